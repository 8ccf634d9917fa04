"""The brute-force oracle: which deliveries a run owes, and which it may make.

A publication is owed to every subscription that matches it and stands from well before it is
made until well after. A change takes time to travel, so around one (`settle_us`: two trips
across the network unless the scenario says otherwise, each link as slow as it was ever measured)
a delivery may or may not happen; and around a fault nothing is owed, but nothing wrong is allowed
either. Where publishers move, a publication may be held back meanwhile, and the time allowed is
longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np

from postroad.errors import RunFailed
from postroad.filters import Filter
from postroad.matching import Index, LinearScan
from postroad.model import PublicationKey, SubscriptionId, TimeUs
from postroad.overlay import Overlay
from postroad.overlay.small_world import Ring
from postroad.relocation.publisher import GRACE_US
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest

Pair = tuple[PublicationKey, SubscriptionId]
NEVER_US = 1 << 62


def expected(
    scenario: Scenario, refused: Collection[PublicationKey] = (), brute: bool = False
) -> tuple[set[Pair], set[Pair]]:
    """The pairs a run owes and the pairs it may deliver besides.

    `brute` compares every publication with every filter, one by one; otherwise an index
    answers, which is what tells `missing` in every summary.
    """
    settle_us = scenario.settle_us
    if settle_us is None:
        settle_us = there_and_back_us(scenario)
        if scenario.relocation is not None:  # a publication may wait for its publisher's move
            settle_us = 3 * settle_us + (GRACE_US if scenario.faults else 0)
    matcher: Index[Filter] | LinearScan[Filter] = LinearScan() if brute else Index()
    holders: dict[Filter, list[Interest]] = {}
    left_us = {f.where[0]: f.start_us for f in scenario.faults if f.kind == "leave"}
    for interest in scenario.workload.subscriptions:
        if interest.filter not in holders:
            matcher.insert(interest.filter, interest.filter)
        holders.setdefault(interest.filter, []).append(interest)
    owed: set[Pair] = set()
    allowed: set[Pair] = set()
    for posting in scenario.workload.postings:
        key, time_us = (posting.publisher, posting.id), posting.time_us
        if key in refused:
            continue
        troubled = any(
            fault.start_us - settle_us <= time_us <= fault.end_us + 2 * settle_us
            for fault in scenario.faults
        )
        for filter in matcher.match(posting.attributes):
            for interest in holders[filter]:
                since, until = interest.time_us, interest.until_us
                if interest.broker in left_us:  # its clients have gone
                    until = min(left_us[interest.broker], NEVER_US if until is None else until)
                if (since is not None and time_us + settle_us < since) or (
                    until is not None and time_us > until + settle_us
                ):
                    continue
                stands = (since is None or since + settle_us <= time_us) and (
                    until is None or time_us + settle_us <= until
                )
                (owed if stands and not troubled else allowed).add((key, interest.id))
    return owed, allowed


def there_and_back_us(scenario: Scenario) -> TimeUs:
    """Two trips across the network, each link as slow as it was ever measured."""
    return 2 * diameter_us(_slowest(scenario))


def _slowest(scenario: Scenario) -> Overlay:
    """The overlay with every link at its latency and the largest deviation measured of it; what is
    sent past the links, as direct sends are, may be as late as the latest of all."""
    overlay, measured = scenario.overlay, scenario.measured
    if measured is None:
        return overlay
    late_us = {pair: max((0, *values)) for pair, values in measured.of_link_us.items()}
    links = overlay.ends.tolist()
    joined = {frozenset(pair) for pair in links}
    past_us = max((us for pair, us in late_us.items() if frozenset(pair) not in joined), default=0)
    added_us = [max(past_us, late_us.get((a, b), 0), late_us.get((b, a), 0)) for a, b in links]
    return replace(overlay, latency_us=overlay.latency_us + np.array(added_us, dtype=np.int64))


def diameter_us(overlay: Overlay) -> TimeUs:
    """The longest latency between any two brokers of a tree; of a ring, the way around it."""
    if isinstance(overlay, Ring):
        return int(overlay.latency_us.max(initial=0)) * overlay.brokers_count
    peers = overlay.neighbours()

    def furthest(start: int) -> tuple[TimeUs, int]:
        best, stack = (0, start), [(0, start, -1)]
        while stack:
            distance, broker, above = stack.pop()
            best = max(best, (distance, broker))
            stack.extend(
                (distance + latency, peer, broker)
                for peer, latency in peers[broker].items()
                if peer != above
            )
        return best

    return furthest(furthest(0)[1])[0]


@dataclass(frozen=True)
class Verdict:
    """How a run's deliveries differ from the oracle's."""

    missing: list[Pair]
    unexpected: list[Pair]
    duplicates: int

    def require(self) -> None:
        """Raise `RunFailed`, naming a first difference of each kind, if there is any."""
        if not (self.missing or self.unexpected or self.duplicates):
            return
        parts = [
            f"{len(pairs)} {name} (first: publication {pairs[0][0][0]}/{pairs[0][0][1]} "
            f"for subscription {pairs[0][1]})"
            for name, pairs in (("missing", self.missing), ("unexpected", self.unexpected))
            if pairs
        ]
        if self.duplicates:
            parts.append(f"{self.duplicates} duplicates")
        raise RunFailed(f"deliveries differ from the oracle: {', '.join(parts)}")


def compare(
    scenario: Scenario, delivered: Iterable[Pair], refused: Collection[PublicationKey] = ()
) -> Verdict:
    """Hold deliveries against the brute-force oracle."""
    owed, allowed = expected(scenario, refused, brute=True)
    pairs = list(delivered)
    seen = set(pairs)
    return Verdict(sorted(owed - seen), sorted(seen - owed - allowed), len(pairs) - len(seen))
