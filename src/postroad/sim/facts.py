"""What a run counted, as rows of the fact table: the smallest parts that measures add up.

A row says what was counted (`fact`), how often (`count`), and of what: a broker; a link from a
broker to a peer, with the kind of its messages as `part`; a mechanism (`part`) by which deliveries
came; a class of publications; a bucket of delays. What does not apply is null.

Delays are counted in buckets whose upper ends grow by `DELAY_GROWTH` from one to the next, as in
DDSketch (Masson, Rim and Lee, VLDB 2019), so that histograms of any runs are merged by adding
counts, which SQL does. A delay is read as the upper end of its bucket: never too small, and by
less than 0.1% too large. Bucket -1 has the delays of 0. (The `ddsketch` library keeps such a
histogram in one binary value, which only Python could merge and read.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from postroad.overlay.transit_stub import places
from postroad.relocation import all_messages
from postroad.sim.oracle import expected
from postroad.sim.run import Result

COLUMNS = ("broker", "peer", "part", "class", "bucket", "fact", "count")
DELAY_GROWTH = 1.001
FACTS = {
    "publications": "publications made, by class",
    "subscriptions": "subscriptions of the workload",
    "publications_per_1000_changes": "publications per thousand changes of a subscription, as set",
    "duration_us": "from the moment that the network had settled to the end",
    "lost": "deliveries that the oracle expects and that did not happen",
    "duplicated": "deliveries that repeat another one",
    "unexpected": "deliveries that the oracle does not allow",
    "broker": "1 for every broker",
    "state": "the most routing entries that a broker held",
    "matches": "publications that a broker compared with filters",
    "pure_forwards": "publications that a broker sent on without a delivery of its own",
    "false_sends": "publications that a broker received, and neither delivered nor sent on",
    "dropped": "publications that a broker dropped",
    "refused": "publications that a broker refused",
    "queue_us": "length of a broker's queue times how long it was so, in microseconds",
    "queue_max": "the longest that a broker's queue was",
    "sends": "messages with publications on a link, by kind; a batch is one",
    "copies": "publications in those messages",
    "outside": "of the messages, those between brokers that no link of the network joins",
    "control": "other messages on a link, by kind; set-up included",
    "lost_sends": "messages that a link lost",
    "hops": "hops of deliveries, added up, by mechanism",
    "delay_us": "delays of deliveries, added up, by mechanism",
    "deliveries": "deliveries, by mechanism and bucket of delay",
    "class_deliveries": "deliveries, by class of the publication",
}
Fact = tuple[str | None, str | None, str | None, str | None, int | None, str, int]


def facts(
    result: Result,
    joined: Collection[tuple[int, int]] | None = None,
    publications_per_change: float | None = None,
) -> list[Fact]:
    """All facts of a run. `joined` are the links that the network has, if the overlay is another;
    `publications_per_change` says how often subscriptions are thought to change."""
    rows = [*_of_run(result), *_of_brokers(result), *_of_links(result, joined)]
    rows += [*_of_deliveries(result), *_of_classes(result)]
    if publications_per_change is not None:
        rows.append(fact("publications_per_1000_changes", round(1000 * publications_per_change)))
    return rows


def columns(rows: Collection[Fact]) -> dict[str, list[Any]]:
    """The same, column by column."""
    return dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))


def carrying() -> set[str]:
    """The kinds of messages that carry publications, in all schemes."""
    return {message.kind for message in all_messages() if message.carries}


def fact(
    name: str,
    count: int,
    *,
    broker: str | None = None,
    peer: str | None = None,
    part: str | None = None,
    class_: str | None = None,
    bucket: int | None = None,
) -> Fact:
    """One row."""
    return broker, peer, part, class_, bucket, name, int(count)


def _of_run(result: Result) -> Iterator[Fact]:
    pairs = Counter((key, subscription) for key, subscription, *_ in result.deliveries)
    owed, allowed = expected(result.scenario, result.refused)
    yield fact("subscriptions", len(result.scenario.workload.subscriptions))
    yield fact("duration_us", result.duration_us)
    yield fact("lost", len(owed - pairs.keys()))
    yield fact("duplicated", pairs.total() - len(pairs))
    yield fact("unexpected", len(pairs.keys() - owed - allowed))


def _of_brokers(result: Result) -> Iterator[Fact]:
    names = result.scenario.overlay.names
    for number, broker in enumerate(result.brokers):
        yield fact("broker", 1, broker=names[number])
        for name, count in (
            ("state", broker.table_entries_max),
            ("matches", broker.matches_count + broker.router.matches_count),
            ("pure_forwards", broker.pure_forwards),
            ("false_sends", broker.false_sends),
            ("dropped", broker.dropped),
            ("refused", broker.refused),
            ("queue_us", broker.queue_area),
            ("queue_max", broker.queue_max),
        ):
            if count:
                yield fact(name, count, broker=names[number])


def _of_links(result: Result, joined: Collection[tuple[int, int]] | None) -> Iterator[Fact]:
    names, kinds = places(result.scenario.overlay), carrying()
    for link in result.links:
        one, other = names[link.source], names[link.target]
        outside = joined is not None and (link.source, link.target) not in joined
        for kind, sent in link.messages.items():
            name = "sends" if kind in kinds else "control"
            yield fact(name, sent, broker=one, peer=other, part=kind)
            if outside and kind in kinds:
                yield fact("outside", sent, broker=one, peer=other, part=kind)
        if link.copies:
            yield fact("copies", link.copies, broker=one, peer=other)
        if link.lost:
            yield fact("lost_sends", link.lost, broker=one, peer=other)


def _of_deliveries(result: Result) -> Iterator[Fact]:
    """Per mechanism: how many, over how many hops, and how late."""
    delays: dict[str, list[int]] = {}
    hops: Counter[str] = Counter()
    for key, _, _, time_us, far, part in result.deliveries:
        delays.setdefault(part, []).append(time_us - result.published_us[key])
        hops[part] += far
    for part, late_us in delays.items():
        yield fact("hops", hops[part], part=part)
        yield fact("delay_us", sum(late_us), part=part)
        values, counts = np.unique(buckets(np.array(late_us)), return_counts=True)
        for bucket, count in zip(values.tolist(), counts.tolist(), strict=True):
            yield fact("deliveries", count, part=part, bucket=bucket)


def buckets(delays_us: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bucket of each delay."""
    late = np.maximum(delays_us, 1).astype(float)
    places = np.ceil(np.log(late) / np.log(DELAY_GROWTH)).astype(np.int64)
    return np.where(delays_us > 0, places, -1)


def upper_us(buckets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The upper end of each bucket."""
    return np.where(buckets < 0, 0.0, DELAY_GROWTH ** np.maximum(buckets, 0).astype(float))


def _of_classes(result: Result) -> Iterator[Fact]:
    classes = {
        (posting.publisher, posting.id): str(posting.attributes.get("class", ""))
        for posting in result.scenario.workload.postings
    }
    for name, count in Counter(classes.values()).items():
        yield fact("publications", count, class_=name)
    delivered = Counter(classes[key] for key, *_ in result.deliveries)
    for name, count in delivered.items():
        yield fact("class_deliveries", count, class_=name)
