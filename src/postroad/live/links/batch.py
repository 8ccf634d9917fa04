"""Publications of one client on their way to neighbours, many in one message.

Each of them is wanted for what it says, so that every broker on the way looks at it; but a message,
its frame and all that is counted of it serve the whole batch, and attributes do not travel beside
the payload that they are read from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from postroad.live.links.messages import BatchMessage
from postroad.model import BrokerId, Publication, Scalar, TimeUs

COUNT_MAX = 128  # publications in a message, which is dealt with in one go,
BYTES_MAX = 16_000  # and their bytes


class Neighbours(Protocol):
    """How publications go to neighbours."""

    def takes_batches(self, peer: BrokerId) -> bool: ...

    def send_batch(self, peer: BrokerId, batch: BatchMessage) -> None: ...

    def send_on(self, peer: BrokerId, publication: Publication, hops: int) -> None: ...

    def attributes_of(self, packet: bytes) -> Mapping[str, Scalar]: ...


class OutgoingBatch:
    """Gathers what goes to each neighbour, but for those that take no batches; whoever begins one
    ends it with `close`, before anything else goes to a neighbour. One alone goes by itself,
    with its attributes."""

    __slots__ = ("_bytes", "_of", "_way", "_words")

    def __init__(
        self, way: Neighbours, publisher: str, boot: str, time_us: TimeUs, hops: int
    ) -> None:
        self._way = way
        self._words = publisher, boot, time_us, hops
        self._of: dict[BrokerId, tuple[list[int], list[bytes]]] = {}
        self._bytes = 0

    def add(self, number: int, packet: bytes, peers: Sequence[BrokerId]) -> None:
        """One more publication for these neighbours."""
        for peer in peers:
            gathered = self._of.get(peer)
            if gathered is None:
                if not self._way.takes_batches(peer):
                    self._send_one(peer, number, packet)
                    continue
                gathered = self._of[peer] = ([], [])
            numbers, packets = gathered
            numbers.append(number)
            packets.append(packet)
            self._bytes += len(packet)
            if len(numbers) >= COUNT_MAX or self._bytes >= BYTES_MAX:
                self._send_to(peer)

    def _send_one(self, peer: BrokerId, number: int, packet: bytes) -> None:
        publisher, boot, time_us, hops = self._words
        attributes = self._way.attributes_of(packet)
        single = Publication(publisher, f"{boot}.{number}", attributes, packet, time_us)
        self._way.send_on(peer, single, hops + 1)

    def _send_to(self, peer: BrokerId) -> None:
        numbers, packets = self._of.pop(peer)
        data = b"".join(packets)
        self._bytes -= len(data)
        if len(numbers) == 1:
            self._send_one(peer, numbers[0], data)
            return
        publisher, boot, time_us, hops = self._words
        batch = BatchMessage(publisher, boot, numbers, data, time_us, hops + 1)
        self._way.send_batch(peer, batch)

    def close(self) -> None:
        """Send what there is."""
        for peer in list(self._of):
            self._send_to(peer)
