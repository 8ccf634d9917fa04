"""The exact expected cost on any tree, with any probabilities, link by link.

Whether a message crosses a link in one direction depends only on who stands on which side of
it, never on the order of events; and the two sides share no broker. So each expectation is a
product of two independent chances, without approximation, whatever each broker's σ_v and μ_v
and wherever publishers are. (The paper's equations (6), (8) and (16) are the uniform case;
its (11) and (12) approximate, see docs/cost-model.md.)

A model is a `Crossings`: the expected messages on each link, up (from broker v to its parent)
and down. Traffic is their sum; a broker's load is what it sends, up and to its children.

Throughout: for one filter, each broker v subscribes with probability σ_v, independently. One
publication is issued by broker v with probability π_v and wanted by each broker with
probability μ_v, independently of each other and of the publisher. Arrays per broker are in
the tree's breadth-first numbers: `values[tree.broker]` puts an overlay's values in that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from postroad.cost.forwarding import check_probability
from postroad.errors import InputError
from postroad.overlay.rooted import FloatArray, Rooted


@dataclass(frozen=True, eq=False)
class Crossings:
    """Expected messages per link and direction; entry 0, the root's missing link, is 0."""

    tree: Rooted
    up: FloatArray
    down: FloatArray

    @cached_property
    def traffic(self) -> float:
        return float(self.up.sum() + self.down.sum())

    @cached_property
    def load(self) -> FloatArray:
        """Messages each broker is expected to send."""
        return self.up + self.tree.sum_children(self.down)


class Sides:
    """For independent chances per broker: is anyone below each link, is anyone above it?"""

    def __init__(self, tree: Rooted, name: str, probability: npt.ArrayLike) -> None:
        chance = np.broadcast_to(check_probability(name, probability), tree.brokers_count)
        certain = chance >= 1.0
        logs = np.log1p(-np.where(certain, 0.0, chance))
        below_log, below_certain = tree.sum_below(logs), tree.sum_below(certain.astype(float))
        self.below = _someone(below_log, below_certain)
        self.above = _someone(below_log[0] - below_log, below_certain[0] - below_certain)


def subscription_forwarding(tree: Rooted, sigma: npt.ArrayLike) -> Crossings:
    """Subscriptions flood: a link carries the filter iff someone subscribes behind it."""
    subscribers = Sides(tree, "sigma", sigma)
    return _crossings(tree, subscribers.below, subscribers.above)


def publications(
    tree: Rooted, mu: npt.ArrayLike, publisher: npt.ArrayLike | None = None
) -> Crossings:
    """Publications follow subscriptions back: published behind the link, wanted beyond it.

    The same for subscription forwarding, with or without covering, and for
    advertisement-based forwarding (where π_v must be 0 for brokers that do not advertise).
    """
    receivers = Sides(tree, "mu", mu)
    inside = _published_below(tree, publisher)
    return _crossings(tree, inside * receivers.above, (1 - inside) * receivers.below)


def flooding(tree: Rooted, publisher: npt.ArrayLike | None = None) -> Crossings:
    """Event forwarding: each publication crosses every link once, away from its publisher."""
    inside = _published_below(tree, publisher)
    return _crossings(tree, inside, 1 - inside)


def advertisements(tree: Rooted, advertise: npt.ArrayLike) -> Crossings:
    """Advertisements travel as subscriptions do, equal ones never resent (paper, section 1).

    `advertise` is each broker's probability to advertise.
    """
    advertisers = Sides(tree, "advertise", advertise)
    return _crossings(tree, advertisers.below, advertisers.above)


def flooded_advertisements(tree: Rooted, advertise: npt.ArrayLike) -> Crossings:
    """Every advertisement travels for itself, even if equal to one before: n − 1 messages each.

    This is what `routing/advertisement_forwarding.py` does, because relocation needs to know
    every advertisement.
    """
    chance = check_probability("advertise", advertise)
    inside = tree.sum_below(np.array(np.broadcast_to(chance, tree.brokers_count)))
    return _crossings(tree, inside, inside[0] - inside)


def advertised_subscriptions(
    tree: Rooted, sigma: npt.ArrayLike, advertise: npt.ArrayLike
) -> Crossings:
    """Advertisement-based forwarding: a subscription travels only towards advertisers.

    A link carries the filter iff someone subscribes behind it and someone beyond it has
    advertised before. A broker may be both; the sides of a link are still independent.
    """
    subscribers = Sides(tree, "sigma", sigma)
    advertisers = Sides(tree, "advertise", advertise)
    return _crossings(
        tree, subscribers.below * advertisers.above, subscribers.above * advertisers.below
    )


def hierarchical_subscriptions(tree: Rooted, sigma: npt.ArrayLike) -> Crossings:
    """Hierarchical forwarding: subscriptions go up to the root, the meeting point, only."""
    subscribers = Sides(tree, "sigma", sigma)
    return _crossings(tree, subscribers.below, np.zeros(tree.brokers_count))


def hierarchical_publications(
    tree: Rooted, mu: npt.ArrayLike, publisher: npt.ArrayLike | None = None
) -> Crossings:
    """Every publication goes up to the root, and down from each broker on its way.

    It goes down a link iff someone below wants it and it was not published there.
    """
    receivers = Sides(tree, "mu", mu)
    inside = _published_below(tree, publisher)
    return _crossings(tree, inside, (1 - inside) * receivers.below)


def covered_subscriptions(tree: Rooted, sigma: npt.ArrayLike, gamma: npt.ArrayLike) -> Crossings:
    """Subscription forwarding with covering, by γ(p).

    γ_v is the probability that broker v already holds a subscription covering the filter
    when the filter's own subscriptions are issued, independently of all else. The wider
    subscriptions have flooded before; the filter is not sent where one of them went. So a
    link carries it iff behind the link someone subscribes and nobody holds a wider one. What
    the wider subscriptions cost themselves is `subscription_forwarding(tree, gamma)`.
    """
    wide = Sides(tree, "gamma", gamma)
    narrow = np.broadcast_to(check_probability("sigma", sigma), tree.brokers_count)
    covered = np.broadcast_to(np.asarray(gamma, float), tree.brokers_count)
    either = Sides(tree, "sigma", 1 - (1 - narrow) * (1 - covered))
    return _crossings(tree, either.below - wide.below, either.above - wide.above)


def _someone(logs: FloatArray, certain: FloatArray) -> FloatArray:
    return np.where(certain > 0.5, 1.0, -np.expm1(np.minimum(logs, 0.0)))


def _published_below(tree: Rooted, publisher: npt.ArrayLike | None) -> FloatArray:
    """Per link, the probability that the publisher is below it (uniform if None)."""
    n = tree.brokers_count
    if publisher is None:
        return tree.subtree_size / n
    weights = check_probability("publisher", publisher)
    if weights.shape != (n,) or abs(weights.sum() - 1.0) > 1e-9:
        raise InputError(
            f"publisher probabilities of shape {weights.shape} sum to {weights.sum():g}",
            remedy=f"give {n} probabilities that sum to 1",
        )
    return np.asarray(tree.sum_below(weights))


def _crossings(tree: Rooted, up: FloatArray, down: FloatArray) -> Crossings:
    up, down = up.copy(), down.copy()
    up[0] = down[0] = 0.0
    return Crossings(tree, up, down)
