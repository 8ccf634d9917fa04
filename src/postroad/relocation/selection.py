"""GRAPE's estimates for every candidate broker at once (section IV-B, algorithms 1 to 3).

The algorithms compute, for one candidate, the delay and the load as if the publisher were there,
by walking the tree from it: O(N) each, O(N²) for all. Moving the root from a broker to its
neighbour changes both by what the one link between them separates, so all candidates cost one
walk down the tree and one up.

Delay is the sum over deliveries, not their average: all candidates have the same deliveries, so
the order and the normalised values are the same, and integers stay exact. A bit vector is an
integer while it is computed with and bytes while it travels; its cardinality is the message rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul, or_
from typing import NamedTuple

from postroad.model import BrokerId, TimeUs


@dataclass(frozen=True, slots=True)
class Report:
    """What a broker tells of a trace session: what it delivered, and how long it takes."""

    broker: BrokerId
    vector: bytes  # the n-th bit is set if the session's n-th publication was delivered here
    deliveries: int
    client_us: TimeUs  # to wait, be matched, and reach a local client
    delays_us: tuple[tuple[BrokerId, TimeUs], ...]  # the same to each neighbour, with the link


def packed(bits: int) -> bytes:
    """A bit vector as it travels: as many bytes as it needs."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


class Estimate(NamedTuple):
    """If the publisher were at this broker: messages into all brokers, and all delays added up."""

    broker: BrokerId
    load: int
    delay_us: TimeUs


def estimates(reports: Sequence[Report], pings_us: Mapping[BrokerId, TimeUs]) -> list[Estimate]:
    """Every candidate's estimate; `reports` are of brokers that form a tree, the first its root.

    A candidate that was not pinged counts as no distance away. Brokers are laid out so that a
    subtree is a stretch of them: what is outside it is then what comes before and what comes
    behind, which running unions give for all at once.
    """
    where = {report.broker: number for number, report in enumerate(reports)}.get
    count = len(reports)
    parent = [0] * count
    down_us = [0] * count  # from the parent to here
    up_us = [0] * count  # from here to the parent
    order: list[int] = []
    stack = [0]
    while stack:
        here = stack.pop()
        above = reports[parent[here]].broker if here else None
        order.append(here)
        for peer, way_us in reports[here].delays_us:
            if peer == above:
                up_us[here] = way_us
            elif (below := where(peer)) is not None:
                parent[below] = here
                down_us[below] = way_us
                stack.append(below)
    assert len(order) == count, "the reports are of one tree"
    bits = [int.from_bytes(report.vector, "little") for report in reports]
    inside = [report.deliveries for report in reports]
    delay_us = sum([report.deliveries * report.client_us for report in reports])
    laid = [bits[here] for here in order]
    before = list(accumulate(laid, or_, initial=0))  # up to each place, without it
    laid.reverse()
    behind = list(accumulate(laid, or_, initial=0))  # of the last brokers, so many
    size = [1] * count
    for here in order[:0:-1]:
        above = parent[here]
        bits[above] |= bits[here]
        inside[above] += inside[here]
        size[above] += size[here]
    rates = [vector.bit_count() for vector in bits]
    total = inside[0]
    loads = [sum(rates)] * count
    delays = [delay_us + sum(map(mul, inside, down_us))] * count
    for place in range(1, count):
        here = order[place]
        above = parent[here]
        rest = before[place] | behind[count - place - size[here]]
        loads[here] = loads[above] - rates[here] + rest.bit_count()
        within = inside[here]
        delays[here] = delays[above] - within * down_us[here] + (total - within) * up_us[here]
    brokers = [report.broker for report in reports]
    if pings_us:
        pinged = pings_us.get
        delays = [d + total * pinged(b, 0) for b, d in zip(brokers, delays, strict=True)]
    return list(map(Estimate, brokers, loads, delays))


def keep(found: Sequence[Estimate], values: Sequence[int], weight: float) -> list[Estimate]:
    """Those whose value, from 0 for the least to 100 for the largest, is at most 100 - weight."""
    low, high = min(values), max(values)
    if low == high:
        return list(found)
    most = low + (high - low) * (100 - weight) / 100
    return [one for one, value in zip(found, values, strict=True) if value <= most]


def select(found: Sequence[Estimate], priority: str, weight: float, current: BrokerId) -> Estimate:
    """Drop candidates by the metric that has priority; of the rest the best by the other.

    Among equals the first metric decides, then staying, then the lower number.
    """
    if priority == "load":
        kept = keep(found, [one.load for one in found], weight)
        return min(kept, key=lambda c: (c.delay_us, c.load, c.broker != current, c.broker))
    kept = keep(found, [one.delay_us for one in found], weight)
    return min(kept, key=lambda c: (c.load, c.delay_us, c.broker != current, c.broker))
