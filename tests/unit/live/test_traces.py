"""What a live broker records: who came and went and why, where each publication stopped and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from live_harness import Memory, memory
from postroad.errors import InputError
from postroad.live.edge import users
from postroad.traces import schema

ONCE = mqtt5.QoS.AT_LEAST_ONCE
TRACES = 'traces = "traces"'


@pytest.fixture
def chain(tmp_path: Path) -> Memory:
    limits = "[limits]\nsession_queue = 2"
    links = [("A", "B"), ("B", "C")]
    return memory(tmp_path, ["A", "B", "C"], links, top=TRACES, tables=limits)


def seen(net: Memory, *kinds: str) -> list[tuple[Any, ...]]:
    return [(row.kind, row.broker, row.reason) for row in net.rows() if row.kind in kinds]


def test_a_broker_says_how_its_network_is_made(chain: Memory) -> None:
    starts = chain.rows("start")
    assert {row.broker for row in starts} == {"A", "B", "C"}
    told = json.loads(starts[0].detail or "")
    assert told["schema"] == schema.VERSION
    assert told["scheme"] == "subscription_forwarding"
    assert told["links"] == [["A", "B"], ["B", "C"]]
    assert {(row.broker, row.peer, row.mechanism) for row in chain.rows("link")} == {
        ("A", "B", "up"), ("B", "A", "up"), ("B", "C", "up"), ("C", "B", "up"),
    }  # fmt: skip


def test_clients_and_what_they_ask_for_are_recorded(chain: Memory) -> None:
    first = chain.client(2, "c", session_expiry_interval=60)
    first.subscribe("t/+", "price > 10", max_qos=ONCE)
    second = chain.client(2, "c", clean_start=False)
    second.subscribe("bad", "price >")
    second.send(mqtt5.DisconnectPacket())
    chain.client(0, "x").raw(b"\xff\x00")
    rows = [row for row in chain.rows() if row.client == "c"]
    assert [(row.kind, row.reason) for row in rows] == [
        ("connect", None),
        ("subscribe", None),
        ("disconnect", "taken over by another connection"),
        ("connect", None),
        ("refuse", rows[4].reason),
        ("disconnect", "disconnected"),
    ]
    assert (rows[4].reason or "").startswith("$where")
    assert rows[4].detail == "SUBSCRIBE bad"
    subscribed = rows[1]
    assert "price > 10" in (subscribed.filter or "")
    assert json.loads(subscribed.detail or "")["topic"] == "t/+"
    assert subscribed.session == rows[0].session == rows[3].session  # it was taken over
    (lost,) = [row for row in chain.rows("disconnect") if row.client == "x"]
    assert lost.reason not in (None, "disconnected")


def test_a_publication_is_followed_to_its_ends(chain: Memory) -> None:
    near, far = chain.client(1, "near"), chain.client(2, "far")
    near.subscribe("t", "price > 100")
    far.subscribe("t", "price > 10", max_qos=ONCE)
    chain.client(0, "p").publish("t", b'{"price": 50}', qos=ONCE)
    chain.run(50_000)
    chain.client(0, "q").publish("nobody", b"{}")
    chain.run(50_000)
    rows = [row for row in chain.rows() if row.publisher == "p"]
    assert [(row.kind, row.broker, row.peer) for row in rows] == [
        ("publish", "A", None), ("send", "A", "B"), ("receive", "B", "A"),
        ("send", "B", "C"), ("receive", "C", "B"), ("deliver", "C", None),
    ]  # fmt: skip
    assert json.loads(rows[0].attributes or "") == {"class": "t", "price": 50}
    assert (rows[-1].hops, rows[-1].mechanism) == (2, "tree")
    assert rows[0].bytes
    assert [(row.kind, row.reason) for row in chain.rows() if row.publisher == "q"] == [
        ("publish", None),
        ("stop", schema.NO_MATCH),
    ]


def test_what_waits_in_a_session_is_handed_over_or_stops_with_a_reason(chain: Memory) -> None:
    options = {"session_expiry_interval": 60, "clean_start": False}
    away, echo = chain.client(2, "away", **options), chain.client(0, "p")
    away.subscribe("t", max_qos=ONCE)
    away.subscribe("u")
    echo.subscribe("u", no_local=True)
    away.drop()
    chain.run(10_000)
    for expiry in (3600, 1, 3600):  # the session holds two
        echo.publish("t", b"x", qos=ONCE, message_expiry_interval=expiry)
        chain.run(20_000)
    echo.publish("u", b"x")
    chain.run(2_000_000)
    chain.client(2, "away", **options)
    (handed,) = chain.rows("hand")
    assert (handed.client, handed.broker) == ("away", "C")
    assert (handed.waited_us or 0) > 2_000_000
    assert [(row.reason, row.client) for row in chain.rows("stop")] == [
        (schema.FULL, "away"),
        (schema.NO_LOCAL, None),
        (schema.AWAY, "away"),
        (schema.EXPIRED, "away"),
    ]


def test_a_link_that_is_given_up_says_what_it_lost(chain: Memory) -> None:
    chain.client(2, "far").subscribe("t")
    chain.cut(1, 2)
    publisher = chain.client(0, "p")
    publisher.publish("t", b"x")
    chain.run(61_000_000)  # longer than a link is waited for
    (stop,) = [row for row in chain.rows("stop") if row.publication is not None]
    assert (stop.broker, stop.peer, stop.reason) == ("B", "C", schema.DOWN)
    assert ("B", "C", "down") in {(row.broker, row.peer, row.mechanism) for row in chain.rows()}


def test_rights_are_recorded(tmp_path: Path) -> None:
    kept = {
        "reader": users.new_user(b"secret", (), ("#",), subscribe_where="region = 'eu'"),
        "writer": users.new_user(b"secret", ("quotes/",), ()),
    }
    for name, user in kept.items():
        users.change(tmp_path / "users.json", name, user)
    net = memory(tmp_path, ["A"], [], top=f'{TRACES}\nusers = "users.json"')
    reader = net.client(0, "r", username="reader", password=b"secret")
    reader.subscribe("quotes/#")
    writer = net.client(0, "w", username="writer", password=b"secret")
    writer.publish("orders/x", b"{}", qos=ONCE)
    net.client(0, "z", username="writer", password=b"wrong")
    (subscribed,) = net.rows("subscribe")
    assert subscribed.reason == "narrowed by rights"
    assert json.loads(subscribed.detail or "")["within"] == "region = 'eu'"
    refused = [(row.client, row.reason, row.detail) for row in net.rows("refuse")]
    assert refused[0] == ("w", "not allowed", "PUBLISH orders/x")
    assert refused[1][0] == "z"


def test_repairs_record_their_trees(tmp_path: Path) -> None:
    top = f'{TRACES}\nstore = "store"'
    links = [("A", "B"), ("B", "C"), ("A", "C")]
    net = memory(tmp_path, ["A", "B", "C"], links, top=top)
    client = net.client(2, "c", session_expiry_interval=600, clean_start=False)
    client.subscribe("t", max_qos=ONCE)
    publisher = net.client(0, "p")
    (a, b) = next(iter(net.brokers[0].repair.tree.links))  # type: ignore[union-attr]
    publisher.publish("t", b"1", qos=ONCE)
    net.run(30_000)
    net.cut(a, b)
    publisher.publish("t", b"2", qos=ONCE)
    net.run(15_000_000)
    trees = [json.loads(row.detail or "") for row in net.rows("tree")]
    assert trees
    assert f"{'ABC'[a]}-{'ABC'[b]}" not in trees[-1]["links"]
    delivered = {row.publication for row in net.rows("deliver")}
    assert len(delivered) == 2


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('traces = { folder = "t", sample = 2.0 }', "sample is 2.0"),
        ('traces = { folder = "t", attributes = "some" }', "attributes is 'some'"),
        ('traces = { folder = "t", smaple = 0.1 }', "sample"),
        ("traces = { sample = 0.1 }", "folder"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, text: str, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        memory(tmp_path, ["A"], [], top=text)
