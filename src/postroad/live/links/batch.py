"""Publications on their way to neighbours, many in one message, whoever published them.

Each of them is wanted for what it says; but a message, its frame and all that is counted of it
serve the whole batch, and attributes do not travel beside the payload that they are read from.
With them go the tags of the filters that they are wanted for, as `matching/fanout.py` has them,
where compiled code has noted them: a receiver that has told its neighbour of all that it wants
need not match them again.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Protocol

from postroad.live.links.messages import BatchMessage, Stretch
from postroad.model import BrokerId, Publication, Scalar, TimeUs

COUNT_MAX = 256  # publications in a message, which is dealt with in one go, and a run more at most;
MATCHED_MAX = 128  # so many of which nothing is told
BYTES_MAX = 32_000  # and so many of their bytes
OFFSET_MAX = (1 << 16) - 1  # beyond the first of a stretch


class Origins:
    """Whose publications in a row are and how they are called, by their places: those of a client
    from a number on, or those of a message from its place `start` on."""

    __slots__ = ("_beyond", "_ends", "hops", "start", "stretches")

    def __init__(self, stretches: Sequence[Stretch], offsets: bytes | None, hops: int) -> None:
        self.stretches, self.hops, self.start = stretches, hops, 0
        self._beyond: memoryview | None = None
        if offsets is not None:
            self._beyond = memoryview(offsets).cast("H")
            self._ends = list(accumulate([stretch.count for stretch in stretches]))

    @staticmethod
    def own(publisher: str, boot: str, first: int, time_us: TimeUs) -> Origins:
        return Origins((Stretch(publisher, boot, first, OFFSET_MAX + 1, time_us),), None, 0)

    @staticmethod
    def of(batch: BatchMessage) -> Origins:
        return Origins(batch.stretches, batch.offsets, batch.hops)

    @property
    def time_us(self) -> TimeUs:
        """When the first was made."""
        return self.stretches[0].time_us

    def at(self, place: int) -> tuple[Stretch, int]:
        """The stretch and the number of the one in this place."""
        if self._beyond is None:
            return self.stretches[0], self.stretches[0].first + place
        place += self.start
        stretch = self.stretches[bisect_right(self._ends, place)]
        return stretch, stretch.first + self._beyond[place]

    def single(self, place: int, packet: bytes, attributes: Mapping[str, Scalar]) -> Publication:
        """The publication in this place."""
        stretch, number = self.at(place)
        name = f"{stretch.boot}.{number}"
        return Publication(stretch.publisher, name, attributes, packet, stretch.time_us)

    def chosen(self, places: bytes) -> Iterable[tuple[Stretch, bytes]]:
        """Of those in these places, each in two bytes and ascending: the stretches that they are
        of, and how far beyond the first of each they are."""
        return ((self.stretches[0], places),) if self._beyond is None else self._chosen(places)

    def _chosen(self, places: bytes) -> Iterator[tuple[Stretch, bytes]]:
        beyond, start = self._beyond, self.start
        assert beyond is not None
        view, at = memoryview(places).cast("H"), 0
        first = bisect_right(self._ends, start + view[0])
        for stretch, end in zip(self.stretches[first:], self._ends[first:], strict=True):
            stop = bisect_left(view, end - start, at)
            if stop > at:
                yield stretch, array("H", [beyond[start + n] for n in view[at:stop]]).tobytes()
                at = stop
                if at == len(view):
                    return


def cut(batch: BatchMessage, first: int, stop: int, packets: bytes) -> BatchMessage:
    """The publications between these places, whose packets these are, without what is told."""
    places = array("H", range(first, stop)).tobytes()
    chosen = list(Origins.of(batch).chosen(places))
    stretches = tuple(_of_it(stretch, len(offsets) // 2) for stretch, offsets in chosen)
    offsets = b"".join(offsets for _, offsets in chosen)
    return BatchMessage(stretches, offsets, packets, b"", batch.hops)


def _of_it(stretch: Stretch, count: int) -> Stretch:
    return Stretch(stretch.publisher, stretch.boot, stretch.first, count, stretch.time_us)


class Neighbours(Protocol):
    """How publications go to neighbours."""

    def takes_batches(self, peer: BrokerId) -> bool: ...

    def send_batch(self, peer: BrokerId, batch: BatchMessage) -> None: ...

    def send_on(self, peer: BrokerId, publication: Publication, hops: int) -> None: ...

    def each_of(self, run: bytes) -> Iterable[tuple[bytes, Mapping[str, Scalar]]]: ...


class Gathered:
    """What goes to one neighbour."""

    __slots__ = ("count", "hops", "load", "offsets", "packets", "size", "stretches", "told")

    def __init__(self, hops: int) -> None:
        self.hops = hops
        self.stretches: list[tuple[Stretch, int]] = []  # and how many of each
        self.offsets: list[bytes] = []
        self.packets: list[bytes] = []
        self.told: list[bytes] = []
        self.count = self.load = self.size = 0


class OutgoingBatch:
    """Gathers what goes to each neighbour, but for those that take no batches, until it is closed,
    which is to be before anything else goes to a neighbour. One alone goes by itself, with its
    attributes."""

    __slots__ = ("_of", "_way")

    def __init__(self, way: Neighbours) -> None:
        self._way = way
        self._of: dict[BrokerId, Gathered] = {}

    def add(
        self,
        origins: Origins,
        places: bytes,
        run: bytes,
        peers: Sequence[BrokerId],
        told: bytes = b"",
    ) -> None:
        """The publications in these places, each in two bytes, for these neighbours; and the tags
        of each, if they are known."""
        count = len(places) // 2
        for peer in peers:
            gathered = self._of.get(peer)
            if gathered is not None and gathered.hops != origins.hops:
                self._send_to(peer)
                gathered = None
            if gathered is None:
                if not self._way.takes_batches(peer):
                    self._send_singly(peer, origins.chosen(places), run, origins.hops)
                    continue
                gathered = self._of[peer] = Gathered(origins.hops)
            for stretch, offsets in origins.chosen(places):
                stretches = gathered.stretches
                if stretches and stretches[-1][0] is stretch:
                    stretches[-1] = stretch, stretches[-1][1] + len(offsets) // 2
                else:
                    stretches.append((stretch, len(offsets) // 2))
                    gathered.size += len(stretch.publisher)
                gathered.offsets.append(offsets)
            gathered.packets.append(run)
            gathered.told.append(told or bytes(count))
            gathered.count += count
            gathered.load += count if told else count * COUNT_MAX // MATCHED_MAX
            gathered.size += len(run) + len(told)
            if gathered.load >= COUNT_MAX or gathered.size >= BYTES_MAX:
                self._send_to(peer)

    def add_one(
        self, origins: Origins, place: int, packet: bytes, peers: Sequence[BrokerId]
    ) -> None:
        self.add(origins, place.to_bytes(2, sys.byteorder), packet, peers)

    def _send_singly(
        self, peer: BrokerId, stretches: Iterable[tuple[Stretch, bytes]], run: bytes, hops: int
    ) -> None:
        each = iter(self._way.each_of(run))
        for stretch, offsets in stretches:
            origins = Origins((stretch,), offsets, hops)
            for place, (packet, attributes) in zip(range(len(offsets) // 2), each, strict=False):
                self._way.send_on(peer, origins.single(place, packet, attributes), hops + 1)

    def _send_to(self, peer: BrokerId) -> None:
        gathered = self._of.pop(peer)
        if gathered.count == 1:
            ((stretch, _),), (offset,), (packet,) = (
                gathered.stretches,
                gathered.offsets,
                gathered.packets,
            )
            self._send_singly(peer, [(stretch, offset)], packet, gathered.hops)
            return
        told = b"".join(gathered.told)
        if len(told) == gathered.count:  # there are none
            told = b""
        stretches = tuple(_of_it(stretch, count) for stretch, count in gathered.stretches)
        offsets, packets = b"".join(gathered.offsets), b"".join(gathered.packets)
        batch = BatchMessage(stretches, offsets, packets, told, gathered.hops + 1)
        self._way.send_batch(peer, batch)

    def close(self) -> None:
        """Send what there is."""
        while self._of:
            self._send_to(next(iter(self._of)))
