"""The closed-form estimate of the two classic schemes, beside which their simulation stands; and
the simulation of real subscriptions in random order, beside which their closed form stands.

σ of a filter is the share of brokers that hold it, μ of a publication the share of brokers
with a subscription that matches it; the model spreads both evenly over the tree.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from postroad import draws
from postroad.cost import forwarding, trees
from postroad.filters import Filter, parse
from postroad.matching import Index
from postroad.model import BrokerId
from postroad.overlay import Overlay, from_parents, latencies, rooted
from postroad.routing import kyra, popsub, subscription_forwarding
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest, Posting, Workload

SETTLED_US = 60_000_000  # between two subscriptions: each has reached all it will
AGAIN_US = 3_000_000  # after PopSub has once found out what is popular
BATCHES = 10


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


@dataclass(frozen=True)
class Simulated:
    """Messages that routers sent for one pattern or one publication, a mean over batches."""

    what: str
    mean: float
    standard_error: float


def simulated_scheme(
    scheme: str, brokers: int, fanout: float, sigma: float, mu: float, rounds: int, *,
    clique: int = 1, popular: float = 1.0, advertise: float = 1.0,
) -> list[Simulated]:  # fmt: skip
    """Kyra's or PopSub's routers with so many patterns and publications, for `cost/schemes.py`.

    Kyra's cliques are near servers, joined by a tree that grew breadth-first with this fan-out; its
    routers plan for all patterns. PopSub's is such a tree itself: every publication is made while
    all is popular, and again after Algorithm 1 has found that nothing fits into its capacity.
    """
    each = max(clique, rounds // BATCHES)
    asked, sent = [], []
    for batch in range(BATCHES):
        number = 1 + batch * each
        filters = [parse(f"x = {number + place}") for place in range(each)]

        def chosen(purpose: str, chance: float) -> list[tuple[BrokerId, int]]:
            return [
                (broker, place)
                for place in range(each)
                for broker in range(brokers)
                if draws.uniform(1, purpose, broker, number + place) < chance  # noqa: B023
            ]

        def interests(name: str, pairs: Sequence[tuple[BrokerId, int]]) -> tuple[Interest, ...]:
            return tuple(
                Interest(f"{name}{n}", broker, f"{name}{n}", filters[place])  # noqa: B023
                for n, (broker, place) in enumerate(pairs)
            )

        homes = [draws.below(brokers, 1, "estimate.home", place, batch) for place in range(each)]
        advertised = chosen("estimate.advertise", advertise) if scheme == "popsub" else []
        subscribing = Workload(
            interests("s", chosen("estimate.sigma", sigma)), interests("a", advertised), ()
        )
        postings = [
            Posting(time_us, home, f"p{place}", f"{time_us}", {"x": number + place})
            for time_us in ([0, AGAIN_US] if scheme == "popsub" else [0])
            for place, home in enumerate(homes)
        ]
        publishers = tuple(
            Interest(f"p{place}", home, f"p{place}", filters[place])
            for place, home in enumerate(homes)
        )
        publishing = Workload(
            interests("s", chosen("estimate.mu", mu)), publishers, tuple(postings)
        )
        config: Any
        if scheme == "kyra":
            overlay = cliques_on_a_tree(brokers // clique, fanout, clique)
            config = kyra.Config(clique_ms=1.0)
        else:
            overlay = _grown(brokers, fanout)
            config = popsub.Config(rule="prose", phi=1e-6)
        kinds = Counter(run(Scenario(scheme, overlay, subscribing, config)).summary()["messages"])
        asked.append((kinds.total() - kinds["advertisement"]) / each)
        kinds = Counter(run(Scenario(scheme, overlay, publishing, config)).summary()["messages"])
        if scheme == "kyra":
            sent.append((kinds["publication"] + kinds["notification"]) / each)
        else:
            over_tree, direct = kinds["publication"] / each, kinds["direct"] / each
            sent.append(popular * over_tree + (1 - popular) * direct)
    return [
        Simulated(what, float(np.mean(values)), float(np.std(values, ddof=1) / BATCHES**0.5))
        for what, values in (("subscriptions", asked), ("publications", sent))
    ]


def _grown(count: int, fanout: float) -> Overlay:
    """A tree that grew breadth-first."""
    return from_parents([int(max(0, broker - 1) // fanout) for broker in range(count)])


def cliques_on_a_tree(count: int, fanout: float, size: int) -> Overlay:
    """Servers 0.1 ms apart in a clique, and 10 ms for each link between cliques."""
    tree = _grown(count, fanout)
    tree.latency_us[:] = 10_000
    apart = np.array([tree.path_us(clique) for clique in range(count)])
    between = np.repeat(np.repeat(apart, size, axis=0), size, axis=1) + 100
    np.fill_diagonal(between, 0)
    return latencies.as_overlay([str(server) for server in range(count * size)], between)
