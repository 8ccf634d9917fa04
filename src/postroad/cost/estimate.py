"""One answer for one network and workload: traffic, totals and the load on each level.

A workload is two sets of `Chances`: the probabilities σ of its patterns and μ of its
publications, each with how many share it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from postroad.cost import exact, forwarding, trees
from postroad.cost.shapes import FloatArray, Links, Shape
from postroad.overlay.rooted import Rooted


@dataclass(frozen=True, eq=False)
class Chances:
    """Probabilities, and how many patterns or publications have each."""

    values: FloatArray
    counts: FloatArray

    @property
    def total(self) -> float:
        return float(self.counts.sum())

    @property
    def mean(self) -> float:
        return float(self.values @ self.counts / self.total) if self.total else 0.0

    @property
    def capped(self) -> int:
        """How many are certain."""
        return int(self.counts[self.values >= 1.0].sum())


def uniform(probability: float, count: int) -> Chances:
    return Chances(np.array([probability]), np.array([float(count)]))


def zipf(count: int, alpha: float, per_node: float) -> Chances:
    return Chances(forwarding.zipf(count, alpha, per_node), np.ones(count))


@dataclass(frozen=True)
class Estimate:
    """What a workload costs. Loads are messages sent per broker over the whole workload."""

    brokers: float
    subscription_traffic_per_pattern: float
    publication_traffic_per_publication: float
    total_subscription_forwarding: float
    total_event_forwarding: float
    load: list[dict[str, Any]]


def of_shape(
    shape: Shape, patterns: Chances, publications: Chances, exact_load: bool = False
) -> Estimate:
    """By the equations for full trees, or for f̄ in place of f; a level's load is its mean."""
    load_of = forwarding.exact_subscription_load if exact_load else forwarding.subscription_load
    subscriptions = patterns.counts @ load_of(shape, patterns.values)
    forwards = publications.counts @ forwarding.publication_load(shape, publications.values)
    load = []
    for level in range(int(shape.height) + 1):
        here = shape.level == level
        nodes = shape.nodes[here]
        row = {
            "level": level,
            "nodes": _whole(nodes.sum()),
            "subscriptions": float(nodes @ subscriptions[here] / nodes.sum()),
            "publications": float(nodes @ forwards[here] / nodes.sum()),
        }
        if len(shape.level) > int(shape.height) + 1:
            row["subscriptions_max"] = float(subscriptions[here].max())
            row["publications_max"] = float(forwards[here].max())
        load.append(row)
    return _estimate(shape, patterns, publications, load)


def of_tree(
    tree: Rooted, patterns: Chances, publications: Chances, exact_load: bool = False
) -> Estimate:
    """By the equations for arbitrary trees, (12), (13) and (16); a level's load is its mean."""

    def subscribing(sigma: float) -> FloatArray:
        if exact_load:
            return exact.subscription_forwarding(tree, sigma).load
        return trees.subscription_load(tree, sigma)

    def publishing(mu: float) -> FloatArray:
        return exact.publications(tree, mu).load if exact_load else trees.publication_load(tree, mu)

    subscriptions, forwards = _sum(patterns, subscribing), _sum(publications, publishing)
    load = []
    for level, (begin, end) in enumerate(pairwise(tree.level_starts)):
        here = slice(begin, end)
        load.append(
            {
                "level": level,
                "nodes": end - begin,
                "subscriptions": float(np.mean(subscriptions[here])),
                "publications": float(np.mean(forwards[here])),
                "subscriptions_max": float(np.max(subscriptions[here])),
                "publications_max": float(np.max(forwards[here])),
            }
        )
    return _estimate(trees.links_of(tree), patterns, publications, load)


def totals(links: Links, patterns: Chances, publications: Chances) -> tuple[float, float]:
    """T^SF by equations (9) and (10), and T^EF by (1)."""
    subscriptions, forwards = _traffic(links, patterns, publications)
    flooded = forwarding.event_forwarding_traffic(links, publications.total)
    return subscriptions + forwards, float(flooded)


def _estimate(
    links: Links, patterns: Chances, publications: Chances, load: list[dict[str, Any]]
) -> Estimate:
    subscriptions, forwards = _traffic(links, patterns, publications)
    flooded = forwarding.event_forwarding_traffic(links, publications.total)
    return Estimate(
        brokers=_whole(links.brokers),
        subscription_traffic_per_pattern=subscriptions / max(patterns.total, 1.0),
        publication_traffic_per_publication=forwards / max(publications.total, 1.0),
        total_subscription_forwarding=subscriptions + forwards,
        total_event_forwarding=float(flooded),
        load=load,
    )


def _traffic(links: Links, patterns: Chances, publications: Chances) -> tuple[float, float]:
    """All subscription messages and all publication messages."""
    return (
        float(patterns.counts @ forwarding.subscription_traffic(links, patterns.values)),
        float(publications.counts @ forwarding.publication_traffic(links, publications.values)),
    )


def _sum(chances: Chances, load_of: Callable[[float], FloatArray]) -> FloatArray:
    """A load added up over patterns or publications, one probability at a time."""
    pairs = zip(chances.values.tolist(), chances.counts.tolist(), strict=True)
    return np.asarray(sum(count * load_of(chance) for chance, count in pairs))


def _whole(value: Any) -> float:
    """An integer where the number is one, as brokers of full trees are."""
    number = float(value)
    return int(number) if number.is_integer() else number
