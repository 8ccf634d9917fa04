"""The closed-form model of subscription forwarding: equations (1) to (17).

Source: Castelli, Costa, Picco, "Modeling the Communication Costs of Content-based Routing:
The Case of Subscription Forwarding", DEBS 2007, sections 2 and 3. Their *event* is our
publication, their *pattern* a filter that several brokers may subscribe to.

The process: for each pattern every broker subscribes with probability σ, independently; the
subscriptions are issued one at a time in random order and never resent on a link that already
carried the pattern in that direction. A publication is issued by a broker drawn uniformly and
wanted by each broker with probability μ, independently of the publisher and of each other.

Functions take a `Shape` and arrays of probabilities that broadcast against the shape's own
parameters; loads carry the group of brokers, on a full tree
the level, on an added last axis. Where the paper's text and its final
equation disagree (the factor f−1 of L_{r,*}), the final equation, (11), is what we compute.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from postroad.cost.shapes import FloatArray, Links, Shape
from postroad.errors import InputError


def some(probability: npt.ArrayLike, count: npt.ArrayLike) -> FloatArray:
    """The chance that at least one of `count` brokers is chosen: 1 − (1 − probability)^count."""
    brokers = np.asarray(count, float)
    with np.errstate(divide="ignore", invalid="ignore"):  # a certain one of none: −∞ times 0
        chance = -np.expm1(brokers * np.log1p(-np.asarray(probability, float)))
    return np.where(brokers == 0, 0.0, chance)


def check_probability(name: str, value: npt.ArrayLike) -> FloatArray:
    """The value as an array; probabilities outside [0, 1] are refused."""
    values = np.asarray(value, float)
    wrong = values[~((values >= 0.0) & (values <= 1.0))]
    if wrong.size:
        raise InputError(f"{name} is {wrong.flat[0]:g}", remedy=f"give {name} between 0 and 1")
    return values


def check_uniform(sigma: npt.ArrayLike, mu: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Probabilities of uniform patterns and publications; section 2 forbids μ < σ.

    Who subscribes to a pattern receives every publication that matches it, so a publication
    cannot have fewer receivers than one of its patterns has subscribers.
    """
    subscribing, receiving = check_probability("sigma", sigma), check_probability("mu", mu)
    low, high = np.broadcast_arrays(receiving, subscribing)
    wrong = low < high
    if np.any(wrong):
        raise InputError(
            f"mu {low[wrong].flat[0]:g} is below sigma {high[wrong].flat[0]:g}",
            remedy="give mu >= sigma: a receiver subscribes to some matching pattern",
        )
    return subscribing, receiving


def zipf(patterns: int, alpha: float, per_node: float) -> FloatArray:
    """σ(p) = P·c/p^α for p = 1..F_p (section 2), where P is the mean number per broker.

    A value above 1 is cut to 1: no more than every broker can subscribe. The mean number
    per broker is then the sum of what is returned, less than P.
    """
    if patterns < 1 or per_node < 0 or alpha < 0 or not np.isfinite(alpha):
        raise InputError(
            f"Zipf exponent {alpha:g} with {per_node:g} per broker over {patterns} is impossible",
            remedy="give at least 1 item, an exponent >= 0 and a mean per broker >= 0",
        )
    weights = np.arange(1, patterns + 1) ** -float(alpha)
    return np.asarray(np.minimum(1.0, per_node * weights / weights.sum()))


# Overall message traffic (section 3.1)


def subscription_traffic(links: Links, sigma: npt.ArrayLike) -> FloatArray:
    """T(p): messages to disseminate all subscriptions for one pattern; equations (2) to (6)."""
    chance = check_probability("sigma", sigma)[..., None]
    rho = some(chance, links.subtree)  # (4): towards the root
    outside = links.brokers[..., None] - links.subtree
    lam = some(chance, outside)  # (5): towards the leaves
    return np.asarray(((rho + lam) * links.nodes)[..., 1:].sum(axis=-1))


def publication_traffic(links: Links, mu: npt.ArrayLike) -> FloatArray:
    """T(e): messages to bring one publication to its receivers; equations (7) and (8)."""
    chance = check_probability("mu", mu)[..., None]
    total = links.brokers[..., None]
    inside = links.subtree / total
    psi = inside * some(chance, total - links.subtree) + (1 - inside) * some(chance, links.subtree)
    return np.asarray((psi * links.nodes)[..., 1:].sum(axis=-1))


def event_forwarding_traffic(links: Links, publications: npt.ArrayLike) -> FloatArray:
    """T^EF = F_e (n − 1): every publication crosses every link; equation (1)."""
    return np.asarray(publications, float) * (links.brokers - 1)


def breakeven(links: Links, sigma: npt.ArrayLike, mu: npt.ArrayLike) -> FloatArray:
    """The ratio F = F_p/F_e at which both protocols cost the same; (1) equated with (9).

    Below it subscription forwarding is cheaper, above it event forwarding. Without any
    subscriber subscriptions are free, and the ratio is infinite.
    """
    subscribing, receiving = check_uniform(sigma, mu)
    saved = links.brokers - 1 - publication_traffic(links, receiving)
    spent = subscription_traffic(links, subscribing)
    free = spent == 0
    return np.where(free, np.inf, saved / np.where(free, 1.0, spent))


# Forwarding load on a node (section 3.2)


def subscription_load(shape: Shape, sigma: npt.ArrayLike) -> FloatArray:
    """L(p) on a broker of each group: root (11), inner brokers (15), leaves σ."""
    chance = check_probability("sigma", sigma)[..., None]
    total = shape.brokers[..., None]
    child, father = _beyond(shape)
    root = root_subscription_load(chance, total, shape.children[..., :1])
    inner = inner_subscription_load(chance, total, shape.children, child, father)
    return np.where(_leaf(shape), chance, np.where(shape.level == 0, root, inner))


def exact_subscription_load(shape: Shape, sigma: npt.ArrayLike) -> FloatArray:
    """The exact expectation that (11) and (15) approximate.

    A broker sends a pattern over a link iff someone on its side of the link subscribes. For
    publications (17) is exact already.
    """
    chance = check_probability("sigma", sigma)[..., None]
    child, _ = _beyond(shape)
    down = np.where(_leaf(shape), 0.0, some(chance, shape.brokers[..., None] - child))
    up = np.where(shape.level == 0, 0.0, some(chance, shape.subtree))
    return np.asarray(shape.children * down + up)


def publication_load(shape: Shape, mu: npt.ArrayLike) -> FloatArray:
    """L(e) on a broker of each group: root, inner brokers (17), leaves (section 3.2.2)."""
    chance = check_probability("mu", mu)[..., None]
    total = shape.brokers[..., None]
    child, father = _beyond(shape)
    root = root_publication_load(chance, total, shape.children[..., :1])
    inner = inner_publication_load(chance, total, shape.children, child, father)
    leaf = some(chance, total - 1) / total
    return np.where(_leaf(shape), leaf, np.where(shape.level == 0, root, inner))


def root_subscription_load(
    sigma: npt.ArrayLike, brokers: npt.ArrayLike, children: npt.ArrayLike
) -> FloatArray:
    """Equation (11)."""
    n, f = np.asarray(brokers, float), np.asarray(children, float)
    first = (f - 1) * some(sigma, n - 1)
    later = some(sigma, (n * (f - 1) + 1) / f)
    return np.asarray(f / n + (1 - 1 / n) * (first + later))


def inner_subscription_load(
    sigma: npt.ArrayLike,
    brokers: npt.ArrayLike,
    children: npt.ArrayLike,
    child_subtree: npt.ArrayLike,
    father_side: npt.ArrayLike,
) -> FloatArray:
    """Equations (12) and (13), given |T_c|, |T_f| and f; (15) on a full tree."""
    n, f = np.asarray(brokers, float), np.asarray(children, float)
    below, above = np.asarray(child_subtree, float), np.asarray(father_side, float)
    tau_father = above / (n - 1)
    later = (1 - tau_father) * some(sigma, n - below) + tau_father * some(sigma, n - above)
    return np.asarray((f + 1) / n + (1 - 1 / n) * (f * some(sigma, n - 1) + later))


def root_publication_load(
    mu: npt.ArrayLike, brokers: npt.ArrayLike, children: npt.ArrayLike
) -> FloatArray:
    """L_r(e) of section 3.2.2."""
    n, f = np.asarray(brokers, float), np.asarray(children, float)
    return np.asarray((1 / n + f - 1) * some(mu, (n - 1) / f))


def inner_publication_load(
    mu: npt.ArrayLike,
    brokers: npt.ArrayLike,
    children: npt.ArrayLike,
    child_subtree: npt.ArrayLike,
    father_side: npt.ArrayLike,
) -> FloatArray:
    """Equation (16), given |T_c|, |T_f| and f; (17) on a full tree."""
    n, f = np.asarray(brokers, float), np.asarray(children, float)
    tau_father = np.asarray(father_side, float) / (n - 1)
    down, up = some(mu, child_subtree), some(mu, father_side)
    own = (f * down + up) / n
    passing = tau_father * f * down + (1 - tau_father) * ((f - 1) * down + up)
    return np.asarray(own + (1 - 1 / n) * passing)


def _beyond(shape: Shape) -> tuple[FloatArray, FloatArray]:
    """|T_c| and |T_f| per group; equation (14)."""
    child = (shape.subtree - 1) / _divisor(shape.children)
    return child, shape.brokers[..., None] - shape.subtree


def _leaf(shape: Shape) -> npt.NDArray[np.bool_]:
    return np.asarray(shape.children == 0)


def _divisor(children: npt.ArrayLike) -> FloatArray:
    """Numbers of children that may divide; those of leaves, whose result is unused, made 1."""
    counts = np.asarray(children, float)
    return np.where(counts > 0, counts, 1.0)
