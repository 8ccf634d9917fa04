"""The closed-form estimate of the two classic schemes, beside which their simulation stands; and
the simulation of real subscriptions in random order, beside which their closed form stands.

σ of a filter is the share of brokers that hold it, μ of a publication the share of brokers
with a subscription that matches it; the model spreads both evenly over the tree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from postroad import draws
from postroad.cost import forwarding, trees
from postroad.filters import Filter
from postroad.matching import Index
from postroad.model import BrokerId
from postroad.overlay import Overlay, rooted
from postroad.routing import subscription_forwarding
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest, Workload

SETTLED_US = 60_000_000  # between two subscriptions: each has reached all it will


def estimates(scenario: Scenario) -> dict[str, dict[str, float]]:
    """Messages and control messages per publication, by scheme."""
    count = scenario.overlay.brokers_count
    holders: dict[object, set[int]] = defaultdict(set)
    index: Index[object] = Index()
    for interest in scenario.workload.subscriptions:
        if interest.filter not in holders:
            index.insert(interest.filter, interest.filter)
        holders[interest.filter].add(interest.broker)
    links = trees.links_of(rooted.from_overlay(scenario.overlay))
    sigma = np.array([len(brokers) / count for brokers in holders.values()])
    postings = scenario.workload.postings
    mu = np.array(
        [
            len(set().union(*(holders[f] for f in index.match(posting.attributes)))) / count
            for posting in postings
        ]
    )
    publications = float(forwarding.publication_traffic(links, mu).mean())
    subscriptions = float(forwarding.subscription_traffic(links, sigma).sum())
    return {
        "flooding": {"messages": float(links.brokers - 1), "control": 0.0},
        "subscription forwarding": {
            "messages": publications,
            "control": subscriptions / len(postings),
        },
    }


def simulated_filters(
    overlay: Overlay, placed: Sequence[tuple[BrokerId, Filter]], covering: bool, rounds: int
) -> float:
    """Messages until these subscriptions stand, a mean over so many random orders."""
    total = 0
    for number in range(rounds):
        drawn = draws.bits_of_nodes(len(placed), 1, "estimate.order", number)
        interests = tuple(
            Interest(f"s{turn}", broker, "c", filter, time_us=turn * SETTLED_US)
            for turn, place in enumerate(np.argsort(drawn).tolist())
            for broker, filter in [placed[place]]
        )
        workload = Workload(interests, (), ())
        config = subscription_forwarding.Config(covering)
        result = run(Scenario("subscription_forwarding", overlay, workload, config))
        total += sum(result.summary()["messages"].values())
    return total / rounds
