"""`relocation` in a scenario: what it takes, what it refuses, what a run then tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from postroad.errors import InputError
from postroad.filters import parse
from postroad.model import Advertisement, Publication, Subscription
from postroad.overlay import from_links
from postroad.relocation import grape, pop
from postroad.routing import SCHEMES
from postroad.routing.advertisement_forwarding import Config
from postroad.routing.base import Advertise, Interests, Measured, Publish, Subscribe
from postroad.sim.engine import Simulator
from postroad.sim.oracle import compare
from postroad.sim.run import run
from postroad.sim.scenario import from_dict

ROOT = Path(__file__).parents[3]


def values(**more: Any) -> dict[str, Any]:
    return {
        "scheme": "advertisement_forwarding",
        "relocation": "grape",
        "overlay": {"kind": "full_tree", "fanout": 2, "height": 3},
        "workload": {
            "generate": {
                "subscriptions": 20,
                "publications": 600,
                "publishers": 3,
                "selectivity": 0.5,
            }
        },
        **more,
    }


def test_the_papers_defaults() -> None:
    assert pop.Config() == pop.Config(50, 60.0, 100, 0.25, 0.0)
    assert grape.Config() == grape.Config(100, "load", 100.0)


@pytest.mark.parametrize("scheme", ["advertisement_forwarding", "popsub"])
@pytest.mark.parametrize("relocation", ["pop", "grape"])
def test_a_run_tells_of_moves_and_waits(scheme: str, relocation: str) -> None:
    given = values(scheme=scheme, relocation=relocation, **{relocation: {"threshold": 20}})
    scenario = from_dict(given, "s", Path())
    result = run(scenario)
    compare(scenario, [delivery[:2] for delivery in result.deliveries]).require()
    summary = result.summary()
    assert summary["relocation"] == relocation
    assert summary["moves"] == len(result.moves) > 0
    assert summary["wait_us"]["max"] >= summary["wait_us"]["mean"] > 0
    assert summary["messages"]["migration_update"] == summary["messages"]["migration_complete"]


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"scheme": "flooding"}, "relocation 'grape' cannot stand on 'flooding'"),
        ({"relocation": "grap"}, "relocation is 'grap'"),
        ({"grape": {"weight": 101.0}}, "weight is 101"),
        ({"grape": {"priority": "both"}}, "priority is 'both'"),
        ({"grape": {"treshold": 5}}, "did you mean 'threshold'"),
        ({"pop": {}}, "unknown key pop"),
        ({"relocation": "pop", "pop": {"newest": 0.0}}, "newest is 0.0"),
        ({"brokers": {"copy_us": 5}}, "set brokers.rate_per_s too"),
    ],
)
def test_what_cannot_be_is_told(more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError) as told:
        from_dict(values(**more), "s", Path())
    assert complaint in str(told.value)


def test_copies_keep_a_broker_busy() -> None:
    """One broker, two subscribers: 1 ms to match and 3 ms for each of two copies."""
    workload = {
        "subscriptions": [{"broker": "0", "client": name, "filter": "TRUE"} for name in ("x", "y")],
        "publications": [
            {"time": 0.0, "broker": "0", "publisher": "p", "attributes": {"class": "A"}}
            for _ in range(2)
        ],
    }
    given = values(
        overlay={"kind": "random_tree", "brokers": 1},
        brokers={"rate_per_s": 1000, "copy_us": 3000},
        workload=workload,
    )
    result = run(from_dict(given, "s", Path()))
    assert sorted({delivery[3] for delivery in result.deliveries}) == [7000, 14_000]


def test_a_broker_tells_how_long_copies_wait_for_neighbours_and_clients() -> None:
    """Section IV-A: output queuing delay to each neighbour and to the client binding."""
    overlay = from_links([("a", "b", 500)])
    plan = SCHEMES["advertisement_forwarding"].plan(overlay, Interests(), Config(), 0)
    measured: list[Measured] = []

    def watch(now: int, broker: int, input: Any, effects: Any) -> None:
        if isinstance(input, Measured):
            measured.append(input)

    simulator = Simulator(plan, service_us=1000, copy_us=300, observer=watch)
    simulator.at(0, 0, Advertise(Advertisement("q", parse("x = 1"), "p")))
    simulator.run()
    for broker in (0, 1):
        simulator.at(simulator.now, broker, Subscribe(Subscription(f"s{broker}", parse("x = 1"))))
    simulator.run()
    for number in range(20):
        publication = Publication("p", str(number), {"x": 1})
        simulator.at(simulator.now + 10_000 * number, 0, Publish(publication))
    simulator.run()
    simulator._pending += 1
    simulator._measure(0, simulator.brokers[0].life)
    # Of 23 inputs (it was told of b's subscription too) 20 made two copies each.
    (one,) = measured
    copying_us = 20 * 2 * 300 // 23
    assert one == Measured(0, 1000, ((1, copying_us + 500),), copying_us)


def test_a_run_does_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path\n"
        "from postroad.sim.scenario import load\n"
        "from postroad.sim.run import run\n"
        "result = run(load(Path('s.toml')))\n"
        "print(result.moves, result.deliveries)\n"
    )
    (tmp_path / "s.toml").write_text(
        'scheme = "popsub"\nrelocation = "grape"\n[grape]\nthreshold = 10\npriority = "delay"\n'
        '[parameters]\nunpopular = "batching"\nthroughput_per_s = 100.0\n'
        '[overlay]\nkind = "random_tree"\nbrokers = 12\n'
        "[workload.generate]\nsubscriptions = 30\npublications = 300\npublishers = 4\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]
    assert b"Moved(" in said[0]
    assert said[0] == said[1]
