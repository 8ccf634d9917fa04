"""Publications of one client on their way to neighbours, many in one message.

Each of them is wanted for what it says, so that every broker on the way looks at it; but a message,
its frame and all that is counted of it serve the whole batch, and attributes do not travel beside
the payload that they are read from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from postroad.live.links.messages import BatchMessage
from postroad.model import BrokerId, Publication, Scalar, TimeUs

COUNT_MAX = 128  # publications in a message, which is dealt with in one go, and a run more at most
BYTES_MAX = 16_000  # the same of their bytes


class Neighbours(Protocol):
    """How publications go to neighbours."""

    def takes_batches(self, peer: BrokerId) -> bool: ...

    def send_batch(self, peer: BrokerId, batch: BatchMessage) -> None: ...

    def send_on(self, peer: BrokerId, publication: Publication, hops: int) -> None: ...

    def each_of(self, run: bytes) -> Iterable[tuple[bytes, Mapping[str, Scalar]]]: ...


class OutgoingBatch:
    """Gathers what goes to each neighbour, but for those that take no batches; whoever begins one
    ends it with `close`, before anything else goes to a neighbour. One alone goes by itself,
    with its attributes."""

    __slots__ = ("_bytes", "_of", "_way", "hops", "words")

    def __init__(
        self, way: Neighbours, publisher: str, boot: str, time_us: TimeUs, hops: int
    ) -> None:
        self._way = way
        self.words = publisher, boot, time_us
        self.hops = hops
        self._of: dict[BrokerId, tuple[list[int], list[bytes]]] = {}
        self._bytes = 0

    def add(self, numbers: Sequence[int], run: bytes, peers: Sequence[BrokerId]) -> None:
        """One more publication for these neighbours, or some in a row."""
        for peer in peers:
            gathered = self._of.get(peer)
            if gathered is None:
                if not self._way.takes_batches(peer):
                    self._send_singly(peer, numbers, run)
                    continue
                gathered = self._of[peer] = ([], [])
            gathered[0].extend(numbers)
            gathered[1].append(run)
            self._bytes += len(run)
            if len(gathered[0]) >= COUNT_MAX or self._bytes >= BYTES_MAX:
                self._send_to(peer)

    def single(self, number: int, packet: bytes, attributes: Mapping[str, Scalar]) -> Publication:
        """A publication that goes by itself."""
        publisher, boot, time_us = self.words
        return Publication(publisher, f"{boot}.{number}", attributes, packet, time_us)

    def _send_singly(self, peer: BrokerId, numbers: Sequence[int], run: bytes) -> None:
        for number, (packet, attributes) in zip(numbers, self._way.each_of(run), strict=True):
            self._way.send_on(peer, self.single(number, packet, attributes), self.hops + 1)

    def _send_to(self, peer: BrokerId) -> None:
        numbers, packets = self._of.pop(peer)
        data = b"".join(packets)
        self._bytes -= len(data)
        if len(numbers) == 1:
            self._send_singly(peer, numbers, data)
            return
        publisher, boot, time_us = self.words
        batch = BatchMessage(publisher, boot, numbers, data, time_us, self.hops + 1)
        self._way.send_batch(peer, batch)

    def close(self) -> None:
        """Send what there is."""
        for peer in list(self._of):
            self._send_to(peer)
