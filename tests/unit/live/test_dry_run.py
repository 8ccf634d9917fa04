"""What a network says it would do is what it then does, and being asked changes nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from live_harness import Memory, memory
from postroad.errors import InputError
from postroad.explain.dry_run import DryRun, walk
from postroad.live.edge.content import attributes
from postroad.live.operations import http

LINKS = [("A", "B"), ("B", "C"), ("B", "D")]


def ask(net: Memory, broker: str, publisher: str, topic: str, payload: bytes) -> DryRun:
    def question(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
        return http.would(net.brokers["ABCD".index(name)], json.dumps(told).encode())

    content = attributes(topic, payload)
    return walk(question, broker, {"publisher": publisher, "attributes": content}, content)


@pytest.mark.parametrize(
    "scheme",
    [
        "flooding", "subscription_forwarding", "advertisement_forwarding", "popsub", "kyra",
        "unicast", "scribe", "beaconvey", "mbr", "match_early",
    ],
)  # fmt: skip
def test_a_dry_run_tells_what_happens(scheme: str, tmp_path: Path) -> None:
    net = memory(tmp_path, "ABCD", LINKS, scheme=scheme, top='traces = "t"')
    draw = random.Random(3)
    for n in range(8):
        client = net.client(draw.randrange(4), f"s{n}")
        client.subscribe(draw.choice(["t", "u", "#"]), f"x > {draw.randint(0, 9)}")
    for n in range(6):
        broker, topic = draw.randrange(4), draw.choice("tu")
        publisher = net.client(broker, f"p{n}")
        publisher.publish(topic, b'{"x": 0}')  # so that the network knows it
        net.run(200_000)
        payload = json.dumps({"x": draw.randint(0, 9)}).encode()
        before = [(b.steps, b.router.table_entries(), b.router.matches_count) for b in net.brokers]
        rows = len(net.rows())
        told = ask(net, "ABCD"[broker], f"p{n}", topic, payload)
        assert before == [
            (b.steps, b.router.table_entries(), b.router.matches_count) for b in net.brokers
        ]
        assert rows == len(net.rows())
        publisher.publish(topic, payload)
        net.run(200_000)
        done = {
            row.subscription
            for row in net.rows("deliver")[-20:]
            if row.publisher == f"p{n}" and row.publication == net.rows("publish")[-1].publication
        }
        assert {one["subscription"] for one in told.deliveries} == done


def test_a_dry_run_knows_who_is_away_and_what_is_announced_first(tmp_path: Path) -> None:
    net = memory(tmp_path, "ABCD", LINKS, scheme="advertisement_forwarding")
    away = net.client(2, "away", session_expiry_interval=60)
    away.subscribe("t")
    told = ask(net, "A", "p", "t", b"{}")
    assert "announced first" in told.stops[0].notes[0]
    publisher = net.client(0, "p")
    publisher.publish("t", b"{}")
    net.run(100_000)
    away.drop()
    told = ask(net, "A", "p", "t", b"{}")
    assert [one["reason"] for one in told.deliveries] == ["client away at quality 0"]


def test_bad_questions_are_refused(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [])
    for body in (b"", b"[]", b'{"attributes": 3}', b'{"message": "AAAA", "sender": "A"}',
                 b'{"message": "AAAA", "sender": "Z"}'):  # fmt: skip
        request = b"POST /would HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        assert http.wanted_bytes(request) == len(request)

        class Served:
            broker = net.brokers[0]

        code, _, text = http.answer(Served(), request)  # type: ignore[arg-type]
        assert code.startswith("400"), body
        assert text
    assert http.wanted_bytes(b"POST /would HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n") < 1 << 21


def test_a_network_without_traces_says_what_to_do(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from live_harness import write_network
    from postroad.cli import cli

    path = write_network(tmp_path, ["A"], [])
    result = CliRunner().invoke(cli, ["explain", str(path), "--publication", "p", "--client", "c"])
    assert isinstance(result.exception, InputError)
    assert "records nothing" in str(result.exception)


@pytest.mark.parametrize("payload", ['{"price": 12.5', "12", "hello", "[]", "", '{"a": "\udcff"}'])
def test_a_payload_that_is_no_object_is_not_asked_about(tmp_path: Path, payload: str) -> None:
    from click.testing import CliRunner

    from live_harness import write_network
    from postroad.cli import cli

    path = write_network(tmp_path, ["A"], [])
    words = ["explain", str(path), "--dry-run", "--at", "A", "--payload", payload]
    result = CliRunner().invoke(cli, words)
    assert isinstance(result.exception, InputError)
    assert f"--payload is {payload!r}, which is no JSON object" in str(result.exception)


def test_one_broker_and_one_subscription_are_not_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from postroad.cli.explain import _show_dry_run

    net = memory(tmp_path, ["A", "B"], [("A", "B")])
    net.client(1, "c").subscribe("t")
    net.settle()
    _show_dry_run(ask(net, "B", "p", "t", b"{}"))
    assert (
        "to 1 broker and be delivered to 1 of 1 matching subscription;" in capsys.readouterr().out
    )
    _show_dry_run(ask(net, "A", "p", "t", b"{}"))
    said = capsys.readouterr().out
    assert "to 2 brokers and be delivered to 1 of 1 matching subscription;" in said
    assert "  1 link   B  " in said
