"""GRAPE's estimates for every candidate broker at once (section IV-B, algorithms 1 to 3).

The algorithms compute, for one candidate, the delay and the load as if the publisher were there,
by walking the tree from it: O(N) each, O(N²) for all. `rerooting.py` gets all in O(N).

Delay is the sum over deliveries, not their average: all candidates have the same deliveries, so
the order and the normalised values are the same, and integers stay exact. A bit vector is an
integer while it is computed with and bytes while it travels; its cardinality is the message rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from postroad.model import BrokerId, TimeUs
from postroad.overlay import IntArray


class TraceReport(msgspec.Struct, frozen=True):
    """What a broker tells of a trace session: what it delivered, and how long it takes."""

    broker: BrokerId
    vector: bytes  # the n-th bit is set if the session's n-th publication was delivered here
    deliveries: int
    client_us: TimeUs  # to wait, be matched, and reach a local client
    delays_us: tuple[tuple[BrokerId, TimeUs], ...]  # the same to each neighbour, with the link


def packed(bits: int) -> bytes:
    """A bit vector as it travels: as many bytes as it needs."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


class PlacementEstimate(NamedTuple):
    """If the publisher were at this broker: messages into all brokers, and all delays added up."""

    broker: BrokerId
    load: int
    delay_us: TimeUs


@dataclass(frozen=True, eq=False)
class Estimates:
    """Those of several candidates, as columns."""

    brokers: IntArray
    loads: IntArray
    delays_us: IntArray

    def __len__(self) -> int:
        return len(self.brokers)

    def __getitem__(self, place: int) -> PlacementEstimate:
        return PlacementEstimate(
            int(self.brokers[place]), int(self.loads[place]), int(self.delays_us[place])
        )

    def only(self, places: npt.NDArray[Any]) -> Estimates:
        """Those at these places, or where this is true."""
        return Estimates(self.brokers[places], self.loads[places], self.delays_us[places])


def estimates(reports: Sequence[TraceReport], pings_us: Mapping[BrokerId, TimeUs]) -> Estimates:
    """Every candidate's estimate; `reports` are of brokers that form a tree, the first its root.

    A candidate that was not pinged counts as no distance away.
    """
    from postroad.relocation.rerooting import reroot

    count = len(reports)
    ways = [report.delays_us for report in reports]
    vectors = [report.vector for report in reports]
    start = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter(map(len, ways), np.int64, count), out=start[1:])
    flat = chain.from_iterable(chain.from_iterable(ways))
    far = np.fromiter(flat, np.int64, 2 * int(start[-1])).reshape(-1, 2)
    bytes_count = 8 * max(1, -(-max(map(len, vectors)) // 8))
    joined = b"".join([vector.ljust(bytes_count, b"\0") for vector in vectors])
    brokers = np.array([report.broker for report in reports])
    deliveries = np.array([report.deliveries for report in reports])
    client_us = np.array([report.client_us for report in reports])
    by_broker = np.argsort(brokers)
    spot = np.searchsorted(brokers, far[:, 0], sorter=by_broker)
    near = by_broker[np.minimum(spot, count - 1)]
    near[brokers[near] != far[:, 0]] = -1
    loads, delays_us = reroot(
        start, near, far[:, 1].copy(), np.frombuffer(joined, np.uint64).reshape(count, -1),
        deliveries, int((deliveries * client_us).sum()),
    )  # fmt: skip
    if pings_us:
        pings = [pings_us.get(report.broker, 0) for report in reports]
        delays_us += int(deliveries.sum()) * np.array(pings)
    return Estimates(brokers, loads, delays_us)


def within(candidates: Estimates, priority: str, weight: float) -> Estimates:
    """Those whose value of the metric that has priority is at most 100 - weight.

    Values are normalised over `candidates`, from 0 for the least to 100 for the largest.
    """
    values = candidates.loads if priority == "load" else candidates.delays_us
    low, high = int(values.min()), int(values.max())
    if low == high:
        return candidates
    return candidates.only(values <= low + (high - low) * (100 - weight) / 100)


def best(candidates: Estimates, priority: str, current: BrokerId) -> PlacementEstimate:
    """The best by the other metric than the one that has priority.

    Among equals the one that has priority decides, then staying, then the lower number.
    """
    loads, delays_us = candidates.loads, candidates.delays_us
    first, second = (delays_us, loads) if priority == "load" else (loads, delays_us)
    brokers = candidates.brokers
    return candidates[int(np.lexsort((brokers, brokers != current, second, first))[0])]


def select(
    candidates: Estimates, priority: str, weight: float, current: BrokerId
) -> PlacementEstimate:
    """The broker GRAPE chooses where every candidate's load and delay are known."""
    return best(within(candidates, priority, weight), priority, current)
