"""Generated trees. Broker 0 is the root; children are numbered breadth-first."""

from __future__ import annotations

import math

from postroad import draws
from postroad.errors import InputError
from postroad.overlay import Overlay, from_parents


def full_tree(fanout: int, height: int, latency_us: int = 1000) -> Overlay:
    """Every broker above level `height` has `fanout` children: (f^(h+1)-1)/(f-1) brokers."""
    _at_least("fanout", fanout, 1)
    _at_least("height", height, 0)
    count = sum(fanout**level for level in range(height + 1))
    return from_parents([max(0, (broker - 1) // fanout) for broker in range(count)], latency_us)


def random_tree(brokers: int, seed: int, latency_us: int = 1000) -> Overlay:
    """Each new broker hangs below one of the earlier brokers, chosen uniformly."""
    _at_least("brokers", brokers, 1)
    parents = [0] + [draws.below(b, seed, "random_tree.parent", b, 0) for b in range(1, brokers)]
    return from_parents(parents, latency_us)


def normal_tree(
    brokers: int, mean: float, stddev: float, seed: int, latency_us: int = 1000
) -> Overlay:
    """Numbers of children drawn from a normal distribution, rounded, until `brokers` exist.

    Brokers get their children breadth-first. A draw below 0 counts as 0, except that the
    last broker that could still have children gets at least one, so the tree never dies out.
    """
    _at_least("brokers", brokers, 1)
    if mean <= 0 or stddev < 0:
        raise InputError(
            f"children mean {mean} and stddev {stddev} make no tree",
            remedy="give mean > 0 and stddev >= 0",
        )
    parents = [0]
    broker = 0
    while len(parents) < brokers:
        first = 1.0 - draws.uniform(seed, "normal_tree.radius", broker, 0)
        second = draws.uniform(seed, "normal_tree.angle", broker, 0)
        normal = math.sqrt(-2.0 * math.log(first)) * math.cos(2.0 * math.pi * second)
        children = max(0, round(mean + stddev * normal))
        if broker == len(parents) - 1:
            children = max(1, children)
        parents.extend([broker] * min(children, brokers - len(parents)))
        broker += 1
    return from_parents(parents, latency_us)


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise InputError(f"{name} is {value}", remedy=f"give {name} >= {least}")
