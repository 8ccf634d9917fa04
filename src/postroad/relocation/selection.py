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

    A candidate that was not pinged counts as no distance away.
    """
    place = {report.broker: number for number, report in enumerate(reports)}
    count = len(reports)
    parent = [-1] * count
    down_us = [0] * count  # from the parent to here
    up_us = [0] * count  # from here to the parent
    order = [0]
    for number in order:
        above = parent[number]
        for peer, delay_us in reports[number].delays_us:
            other = place.get(peer, -1)
            if other < 0:
                continue
            if other == above:
                up_us[number] = delay_us
            else:
                parent[other] = number
                down_us[other] = delay_us
                order.append(other)
    assert len(order) == count, "the reports are of one tree"
    bits = [int.from_bytes(report.vector, "little") for report in reports]
    inside = [report.deliveries for report in reports]  # at and below each broker
    before = [0] * count  # what a broker's parent has had on the sides already seen
    delay_us = sum([report.deliveries * report.client_us for report in reports])
    for number in order[:0:-1]:
        above = parent[number]
        before[number] = bits[above]
        bits[above] |= bits[number]
        within = inside[number]
        inside[above] += within
        delay_us += within * down_us[number]
    rates = [vector.bit_count() for vector in bits]
    total = inside[0]
    loads = [sum(rates)] * count
    delays = [delay_us] * count
    # What is outside a broker's subtree: beyond its parent, and on the parent's other sides.
    # Children are met in the other direction than above, so `after` holds what `before` lacks.
    outside = [0] * count
    after = [0] * count
    for number in order[1:]:
        above = parent[number]
        rest = outside[number] = outside[above] | before[number] | after[above]
        after[above] |= bits[number]
        loads[number] = loads[above] - rates[number] + rest.bit_count()
        within = inside[number]
        delays[number] = delays[above] - within * down_us[number] + (total - within) * up_us[number]
    if pings_us:
        delays = [
            delay + total * pings_us.get(broker, 0)
            for broker, delay in zip(place, delays, strict=True)
        ]
    return list(map(Estimate._make, zip(place, loads, delays, strict=True)))


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
