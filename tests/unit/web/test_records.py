"""Recorded publications as the dashboard asks for them, against the runs that were recorded."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from postroad.errors import InputError
from postroad.explain.spans import Collector
from postroad.sim.run import Result, run
from postroad.sim.scenario import from_dict
from postroad.sim.tracing import to_folder
from postroad.traces import files
from postroad.web.records import Records

SCENARIO = {
    "scheme": "subscription_forwarding",
    "seed": 3,
    "overlay": {"kind": "full_tree", "fanout": 2, "height": 3},
    "workload": {"generate": {"subscriptions": 30, "publications": 40, "selectivity": 0.2}},
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("recorded")
    scenario = from_dict(SCENARIO, "here", folder)
    result = run(scenario, tracing=to_folder(scenario, folder / "traces", 1.0))
    return folder / "traces", result


def records(folder: Path, keep_bytes: int = 1 << 30) -> Records:
    rows, _ = files.read(folder)
    return Records(folder, rows[0].trace_id, keep_bytes)


def test_the_way_of_a_publication_has_all_its_deliveries(recorded: tuple[Path, Result]) -> None:
    folder, result = recorded
    asked = records(folder)
    expected: dict[str, Counter[str]] = {}
    for (publisher, number), subscription, *_ in result.deliveries:
        expected.setdefault(f"{publisher}/{number}", Counter())[subscription] += 1
    listed = asked.publications("")
    assert len(listed) == 40
    for row in listed:
        way = asked.way(row["publication"], None)
        reached = Counter(one["subscription"] for one in way["deliveries"])
        assert reached == expected.get(row["publication"], Counter())
        brokers = {visit["broker"] for visit in way["visits"]}
        assert {peer for visit in way["visits"] for peer in visit["sent_to"]} < brokers
    client = way["deliveries"][0]["client"] if way["deliveries"] else "nobody"
    assert asked.way(row["publication"], client)["answer"]["client"] == client
    with pytest.raises(InputError, match="no publication 'nobody/1' was recorded"):
        asked.way("nobody/1", None)


def test_minutes_and_replays_count_what_the_run_counted(recorded: tuple[Path, Result]) -> None:
    folder, result = recorded
    asked = records(folder)
    sent = sum(link.messages.get("publication", 0) for link in result.links)
    held = asked.minutes()["minutes"]
    assert sum(minute["messages"] for minute in held) == sent
    assert sum(minute["publications"] for minute in held) == 40
    counted = [asked.minute(minute["at_us"]) for minute in held]
    assert sum(link["messages"] for one in counted for link in one["links"]) == sent
    width_us = held[-1]["at_us"] + 60_000_000
    answer = asked.replay(0, width_us, ["subscription_forwarding", "flooding"])
    own, flooded = answer["sides"]
    assert (
        own["figures"]["deliveries"] == flooded["figures"]["deliveries"] == len(result.deliveries)
    )
    assert own["figures"]["messages"] == sum(sum(link.messages.values()) for link in result.links)
    assert (
        flooded["figures"]["messages_per_publication"] == result.scenario.overlay.brokers_count - 1
    )


def test_a_filter_is_held_against_publications_and_subscriptions(
    recorded: tuple[Path, Result],
) -> None:
    asked = records(recorded[0])
    everything = asked.test("TRUE")
    assert everything["tried_count"] == everything["verdict"]["matched"] == 40
    assert everything["alike_count"] == 30
    nothing = asked.test("no_such_attribute > 3")
    assert nothing["verdict"]["cause"] == "attribute never seen"
    assert {m["attribute"] for one in nothing["tried"] for m in one["misses"]} == {
        "no_such_attribute"
    }


def test_old_publications_are_forgotten_and_what_stands_is_not(
    recorded: tuple[Path, Result],
) -> None:
    asked = records(recorded[0], keep_bytes=10)
    assert asked.publications("") == []
    assert len(asked.refresh().subscriptions) == 30


def test_spans_are_the_ways_of_publications(recorded: tuple[Path, Result]) -> None:
    folder, result = recorded
    collector = Collector(settle_us=0)
    for path in files.paths(folder):
        collector.add(files.rows(path))
    spans = collector.take(all=True)
    assert collector.take(all=True) == []
    assert len({span.trace for span in spans}) == 40
    assert sum(int(span.attributes["postroad.delivered"]) for span in spans) == len(
        result.deliveries
    )
    by_id = {span.id: span for span in spans}
    assert len(by_id) == len(spans)
    sent = sum(link.messages.get("publication", 0) for link in result.links)
    children = [span for span in spans if span.parent is not None]
    assert len(children) == sent
    for span in children:
        parent = by_id[span.parent or 0]
        assert parent.trace == span.trace
        assert parent.start_us <= span.start_us
