"""A broker that leaves takes its clients with it, and nobody else misses anything."""

from __future__ import annotations

from pathlib import Path

from postroad.sim.oracle import compare, expected
from postroad.sim.run import run
from postroad.sim.scenario import load

TEXT = """
scheme = "scribe"
[parameters]
membership = "messages"
grace_s = 0.1
[overlay]
kind = "full_tree"
fanout = 4
height = 1
[workload]
subscriptions = [
  { id = "gone", broker = "2", client = "g", filter = "class = 'news'" },
  { id = "stays", broker = "4", client = "s", filter = "class = 'news'" },
]
publications = [
  { time = 0.0, broker = "3", publisher = "ann", attributes = { class = "news" } },
  { time = 1.0, broker = "3", publisher = "ann", attributes = { class = "news" } },
  { time = 9.0, broker = "3", publisher = "ann", attributes = { class = "news" } },
]
[[faults]]
kind = "leave"
broker = "2"
start = 1.0
end = 1.5
"""


def test_what_was_for_a_broker_that_left_is_no_longer_owed(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(TEXT)
    scenario = load(path)
    owed, _ = expected(scenario)
    assert sorted(name for (_, number), name in owed if number == "0") == ["gone", "stays"]
    assert [name for (_, number), name in owed if number == "2"] == ["stays"]
    result = run(scenario, check=True)
    delivered = [delivery[:2] for delivery in result.deliveries]
    compare(scenario, delivered, result.refused).require()
    assert (("ann", "1"), "stays") in delivered  # also what was published as it left
