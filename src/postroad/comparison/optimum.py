"""The least that any scheme could do on a scenario, with the measures of the comparison.

Interested brokers are those of the oracle's owed deliveries, so that a scheme which delivers all
that it owes is never below. What a bound cannot say (matches, control messages) is 0.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from postroad.cost import bounds
from postroad.overlay.small_world import Ring
from postroad.sim.oracle import expected
from postroad.sim.scenario import Scenario

LABEL = "least possible"
BOUNDS = ("tree_copies", "placed_copies", "tree_stress_max")  # besides the measures of schemes


def least(scenario: Scenario) -> dict[str, float]:
    """Lower bounds; `tree_copies` and `placed_copies` keep to the links of the overlay, the
    second with every publisher at its best broker."""
    workload, overlay = scenario.workload, scenario.overlay
    postings = workload.postings
    count = max(1, len(postings))
    home = {interest.id: interest.broker for interest in workload.subscriptions}
    place = {(one.publisher, one.id): p for p, one in enumerate(postings)}
    source = np.array([one.broker for one in postings], dtype=np.int64)
    owed, _ = expected(scenario)
    wanted = np.zeros((overlay.brokers_count, len(postings)), dtype=bool)
    shortest_us = bounds.least_us(overlay)
    delays_us = np.empty(len(owed))
    for n, (key, subscription) in enumerate(owed):
        p, broker = place[key], home[subscription]
        wanted[broker, p] = True
        delays_us[n] = shortest_us[source[p], broker]
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
    if not isinstance(overlay, Ring):
        tree = bounds.on_tree(overlay, wanted)
        publishers = sorted({one.publisher for one in postings})
        number = {name: n for n, name in enumerate(publishers)}
        publisher = np.array([number[one.publisher] for one in postings], dtype=np.int64)
        figures["tree_copies"] = float(tree.messages(source).sum()) / count
        figures["placed_copies"] = float(tree.best_messages(publisher).sum()) / count
        figures["tree_stress_max"] = (
            float(bounds.load_on_tree(overlay, wanted, source).max()) / count
        )
    return figures
