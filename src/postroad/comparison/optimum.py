"""The least that any scheme could do on a scenario, with the measures of the comparison.

Interested brokers are those of the oracle's owed deliveries, so that a scheme which delivers all
that it owes is never below. What a bound cannot say (matches, control messages) is 0.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from postroad.cost import bounds
from postroad.kernels import steiner
from postroad.overlay import IntArray
from postroad.overlay.small_world import Ring
from postroad.overlay.transit_stub import Routed
from postroad.sim.oracle import expected
from postroad.sim.scenario import Scenario

LABEL = "least possible"
BOUNDS = (
    "tree_copies",
    "placed_tree_copies",
    "placed_copies",
    "tree_stress_max",
    "physical",
    "physical_most",
)  # besides the measures of schemes


@dataclass(frozen=True, eq=False)
class Demand:
    """Who wants what: `wanted[b, p]` whether broker b has a client that is owed publication p,
    `source` where publications are made, `publisher` by whom (a number in `publishers`)."""

    wanted: bounds.Wanted
    source: IntArray
    publisher: IntArray
    publishers: tuple[str, ...]
    owed: tuple[tuple[int, int], ...]  # publication and broker of each delivery


def demand(scenario: Scenario) -> Demand:
    postings = scenario.workload.postings
    home = {interest.id: interest.broker for interest in scenario.workload.subscriptions}
    place = {(one.publisher, one.id): p for p, one in enumerate(postings)}
    owed, _ = expected(scenario)
    pairs = tuple((place[key], home[subscription]) for key, subscription in owed)
    wanted = np.zeros((scenario.overlay.brokers_count, len(postings)), dtype=bool)
    for p, broker in pairs:
        wanted[broker, p] = True
    publishers = tuple(sorted({one.publisher for one in postings}))
    number = {name: n for n, name in enumerate(publishers)}
    return Demand(
        wanted,
        np.array([one.broker for one in postings], dtype=np.int64),
        np.array([number[one.publisher] for one in postings], dtype=np.int64),
        publishers,
        pairs,
    )


def least(scenario: Scenario) -> dict[str, float]:
    """Lower bounds. With `tree`, publications keep to the links of the overlay; with `placed`, each
    publisher is at the broker that is best for it on those links. `physical` are links of the
    network below, where it is known, and `physical_most` those of a tree that there is."""
    workload, overlay = scenario.workload, scenario.overlay
    count = max(1, len(workload.postings))
    who = demand(scenario)
    wanted, source, owed = who.wanted, who.source, who.owed
    shortest_us = bounds.least_us(overlay)
    delays_us = np.array([shortest_us[source[p], broker] for p, broker in owed])
    filters: dict[int, set[object]] = defaultdict(set)
    for interest in workload.subscriptions:
        if interest.time_us is None:
            filters[interest.broker].add(interest.filter)
    state = [len(filters[broker]) for broker in range(overlay.brokers_count)]
    copies = int(bounds.messages(wanted, source).sum())
    figures = {
        "copies": copies / count,
        "stress_mean": 2 * copies / overlay.brokers_count / count,
        "stress_max": bounds.worst_load(wanted, source) / count,
        "state_mean": float(np.mean(state)),
        "state_max": float(max(state)),
        **{
            f"delay_p{p}_ms": float(np.percentile(delays_us, p)) / 1000 if len(owed) else 0.0
            for p in (50, 90, 99)
        },
        "deliveries": float(len(owed)),
    }
    if isinstance(overlay, Routed):
        links, home = steiner.of_underlay(overlay.underlay), overlay.underlay.home
        below = [
            steiner.physical(links, home, int(at), np.flatnonzero(wanted[:, p]).tolist())
            for p, at in enumerate(source)
        ]
        figures["physical"] = sum(one.least for one in below) / count
        figures["physical_most"] = sum(one.most for one in below) / count
    if not isinstance(overlay, Ring):
        tree = bounds.on_tree(overlay, wanted)
        figures["tree_copies"] = float(tree.messages(source).sum()) / count
        places = tree.best_places(who.publisher)
        figures["placed_tree_copies"] = float(tree.messages(places).sum()) / count
        figures["placed_copies"] = float(bounds.messages(wanted, places).sum()) / count
        figures["tree_stress_max"] = (
            float(bounds.loads_on_tree(overlay, wanted, source).sum(axis=1).max()) / count
        )
    return figures
