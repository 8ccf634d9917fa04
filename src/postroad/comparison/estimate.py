"""The closed-form estimate of the two classic schemes, beside which their simulation stands.

σ of a filter is the share of brokers that hold it, μ of a publication the share of brokers
with a subscription that matches it; the model spreads both evenly over the tree.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from postroad.cost import forwarding, trees
from postroad.matching import Index
from postroad.overlay import rooted
from postroad.sim.scenario import Scenario


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
