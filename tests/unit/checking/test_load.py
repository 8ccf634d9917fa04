"""The recorded load, against what the brokers themselves held at every moment."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import mqtt5
import pytest

from live_harness import Fake, memory
from postroad.checking import load
from postroad.checking.listed import Listed
from postroad.filters import EVERYTHING
from postroad.live.network import Limits
from postroad.traces.schema import Row

ONCE = mqtt5.QoS.AT_LEAST_ONCE
NEVER = mqtt5.QoS.AT_MOST_ONCE


@pytest.mark.parametrize("seed", range(4))
def test_peaks_are_those_that_the_brokers_saw(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    tables = "[limits]\nsession_queue = 12"
    net = memory(tmp_path, ["A", "B"], [("A", "B")], top='traces = "t"', tables=tables)
    publisher = net.client(0, "p")
    clients: dict[str, Fake] = {}
    peaks = dict.fromkeys(("session_queue", "session_bytes", "sessions_bytes", "sessions"), 0)
    subscriptions = 0
    for _ in range(60):
        name = draw.choice(["c0", "c1", "c2"])
        broker = 1 if name == "c2" else 0
        what = draw.random()
        if name not in clients:
            if what < 0.3:
                clients[name] = net.client(
                    broker, name, clean_start=False, session_expiry_interval=600
                )
                clients[name].subscribe("t/#", max_qos=ONCE)
        elif what < 0.1:
            clients[name].subscribe(f"t/{draw.randint(0, 3)}", max_qos=draw.choice([ONCE, NEVER]))
        elif what < 0.25:
            clients.pop(name).drop()
        if what > 0.4:
            qos = draw.choice([ONCE, ONCE, NEVER])
            publisher.publish(f"t/{draw.randint(0, 3)}", b"x" * draw.randint(0, 40), qos=qos)
        net.run(20_000)
        for number in range(2):
            every = net.brokers[number].clients.sessions.values()
            away = [session for session in every if session.connection is None]
            now = {
                "session_queue": max((len(session.waiting) for session in away), default=0),
                "session_bytes": max((session.held_bytes for session in away), default=0),
                "sessions_bytes": sum(session.held_bytes for session in away),
                "sessions": len(every),
            }
            peaks = {limit: max(peak, now[limit]) for limit, peak in peaks.items()}
            subscriptions = max([subscriptions, *(len(one.subscriptions) for one in every)])
    measured = load.measure(sorted(net.rows(), key=lambda row: row.time_us))
    recorded = {limit: measured.peaks.get(limit, load.Peak()).value for limit in peaks}
    # A publication also has what its packet takes besides: bytes are compared roughly.
    for limit in ("session_queue", "sessions"):
        assert recorded[limit] == peaks[limit], limit
    for limit in ("session_bytes", "sessions_bytes"):
        assert recorded[limit] == pytest.approx(peaks[limit], rel=0.1), limit
    assert measured.peaks["subscriptions_per_client"].value == max(subscriptions, 1)
    assert measured.share == 1.0
    assert peaks["session_queue"] > 1, "nothing waited, so nothing was tried"


def rows() -> list[Row]:
    made = [  # ten of a hundred that the broker counted
        Row("t", "A", 1, n, "publish", n, publisher="p", publication=str(n), bytes=100)
        for n in range(10)
    ]
    made.append(Row("t", "A", 1, 11, "hand", 20, client="c", queue=3))
    made.append(Row("t", "A", 1, 12, "stop", 21, client="c", reason="queue full"))
    made.append(Row("t", "A", 1, 13, "load", 22, detail=json.dumps({"published": 100})))
    return made


def test_of_a_sample_rates_and_queues_are_scaled() -> None:
    measured = load.measure(rows())
    assert measured.share == pytest.approx(0.1)
    values = {limit: peak.value for limit, peak in measured.peaks.items()}
    assert values["packet_bytes"] == 100
    assert values["session_queue"] == pytest.approx(40)
    assert values["bytes_per_s"] == pytest.approx(10_000)


@pytest.mark.parametrize(
    ("limit", "bound", "severity"),
    [
        ("session_queue", 39, "error"),
        ("session_queue", 40, "warning"),
        ("session_queue", 50, "warning"),
        ("session_queue", 51, None),
        ("packet_bytes", 99, "error"),
        ("packet_bytes", 126, None),
        ("bytes_per_s", 9_000, "error"),
        ("bytes_per_s", 0, None),  # any number
    ],
)
def test_a_limit_is_exceeded_near_or_neither(limit: str, bound: int, severity: str | None) -> None:
    limits = dataclasses.replace(Limits(), **{limit: bound})
    found = load.of_limits(limits, load.measure(rows()), "n.toml", {f"limits.{limit}": 7})
    told = [(f.severity, f.where) for f in found if f.kind == "limit"]
    assert told == ([] if severity is None else [(severity, "n.toml:7")])
    (full,) = [f for f in found if f.kind == "limit reached"]
    assert full.value == {"client": "c", "publications": 1}


def test_more_subscriptions_than_a_client_may_have() -> None:
    listed = [Listed(("c", str(n)), str(n), "c", "A", EVERYTHING, "f") for n in range(5)]
    limits = dataclasses.replace(Limits(), subscriptions_per_client=4)
    (found,) = load.of_listed(limits, listed, "n.toml", {})
    assert (found.severity, found.where) == ("error", "n.toml: limits.subscriptions_per_client")
    assert "(the default)" in found.what
