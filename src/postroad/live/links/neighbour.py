"""Connections between two brokers, and what one knows of a peer besides the link itself."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from postroad.live.links import link as links
from postroad.live.links.link import Link
from postroad.live.links.messages import RunMessage
from postroad.live.links.tree import TreeId
from postroad.live.store import LinkRow
from postroad.model import BrokerId, TimeUs

BACKOFF_US = (100_000, 1_000_000)  # before dialling again: at first, and at most

Onward = dict[BrokerId, int]  # what a publication caused: per neighbour, a message's number


class Wire:
    """One connection between two brokers; who dialled knows from the start to whom.

    `certified` is the name in the peer's certificate, where there are any.
    """

    def __init__(
        self, address: str, dialled: BrokerId | None, certified: str | None, now: TimeUs
    ) -> None:
        self.address = address
        self.certified = certified
        self.dialled = dialled
        self.link: Link | None = None
        self.buffer = bytearray()
        self.out: list[bytes] = []
        self.closing = False
        self.since_us = self.heard_us = now
        self.beat_us: TimeUs = 0
        self.challenge = self.nonce = b""  # of who was dialled and who dialled; see secret.py
        self.hello: links.Hello | None = None  # the peer's last
        self.tree: TreeId | None = None  # of our last
        self.name = ""  # as which our last hello named this end of the link


@dataclass(slots=True)
class Neighbour:
    """What this broker knows of a peer besides the link itself."""

    link: Link
    lasting: bool  # whether the network file has this link
    tree: TreeId | None = None  # in which messages were last exchanged with this peer
    wire: Wire | None = None
    dialler: BrokerId = -1  # who dialled the present connection
    dialling: bool = False
    left: bool = False  # it said that it shuts down
    version: int = 0  # of the protocol, that both speak
    dial_us: TimeUs = 0  # not before
    backoff_us: TimeUs = BACKOFF_US[0]
    # Messages of this peer that are not known to be safe wherever they went, in their order.
    pending: deque[tuple[int, Onward]] = field(default_factory=deque)
    unwritten: list[tuple[int, Onward]] = field(default_factory=list)  # of these, this turn's
    written: deque[tuple[int, int]] = field(default_factory=deque)  # in rows: first and last
    kept: LinkRow | None = None  # the link as the store knows it
    refused: str | None = None  # why its last hello was not gone on with
    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)

    @property
    def clear(self) -> bool:
        """Whether a message would leave at once: nothing waits, and the peer takes one more."""
        wire, link = self.wire, self.link
        if wire is None or wire.out or wire.closing or not link.connected:
            return False
        return link.base + len(link.queue) == link.sent < link.granted

    def at_once(self, message: bytes, now: TimeUs) -> bytes:
        """Pass on a publication that goes alone, if the way is clear: what is to be written now."""
        kind = RunMessage.kind
        self.sent[kind] = self.sent.get(kind, 0) + 1
        return self.link.at_once(message, now)
