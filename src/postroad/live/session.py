"""A client's session: what it holds, what waits for it, what it has not acknowledged yet.

A state machine without sockets or clocks. A slow subscriber is limited by its own queue and
stalls nobody: at most once (QoS 0), publications are dropped while its connection is blocked; at
least once (QoS 1), up to `queue_max` wait and the newest are dropped beyond. Both are counted. A
session that is kept on disk may not lose what its publisher was told is safe: it ends instead, so
that its client learns of it (`overflowed`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from postroad.filters import Filter
from postroad.live.mqtt import PACKET_IDS, V5, Letter
from postroad.live.store import Journal, ParcelRow
from postroad.live.users import User
from postroad.model import AdvertisementId, BrokerId, SubscriptionId, TimeUs
from postroad.routing.base import Move

SECOND_US = 1_000_000
RECENT = 1024  # publications a client may have unacknowledged, where it may send them again


# What a publication waits for, by neighbour: how often the link had begun, and a message's number.
# Where links are redundant, the publication's key.
KeptOnward = dict[BrokerId, tuple[int, int]] | str


class Taken(msgspec.Struct, array_like=True, frozen=True):
    """A publication of this client, in case it sends it again."""

    stamp: int  # grows with each
    digest: bytes
    onward: KeptOnward


class Connection:
    """One client's connection: bytes that came, bytes to go, and what holds either up."""

    def __init__(self, address: str, now: TimeUs) -> None:
        self.address = address
        self.level = V5
        self.session: Session | None = None
        self.buffer = bytearray()
        self.out: list[bytes] = []
        self.blocked = False  # the client reads too slowly: set by the driver
        self.held = False  # it waits for the network to know it, or for its password to be checked
        self.paused = False  # it publishes faster than a link carries
        self.slowed = False  # it sends more than it may
        self.paid_us = now - SECOND_US  # until then it has used up what it may send
        self.closing = False
        # PUBACKs not yet written, in order, each with what has to be safe before.
        self.owed: deque[tuple[int, dict[BrokerId, int]]] = deque()
        self.follows = False  # the client goes where it is sent
        self.moving: Move | None = None  # it has been sent elsewhere, and may still be speaking
        self.heard_us = self.since_us = now
        self.keep_alive_us: TimeUs = 0

    @property
    def stopped(self) -> bool:
        """Whether what it sends has to wait."""
        return self.held or self.paused or self.slowed


@dataclass(slots=True, eq=False)
class Held:
    """One subscription of a session."""

    session: Session
    pattern: str
    id: SubscriptionId
    filter: Filter
    qos: int
    no_local: bool
    as_published: bool
    identifier: int  # 0 for none
    levels: re.Pattern[str] | None  # to compare level by level where the filter cannot
    within: str | None = None  # the filter that its user is kept to
    # Where every delivery to its session is the same bytes, whichever subscriptions match.
    direct: Connection | None = None
    alone: bool = False  # the only one of its session

    @property
    def plain(self) -> bool:
        return not (
            self.qos or self.no_local or self.as_published or self.identifier or self.levels
        )


@dataclass(frozen=True, slots=True)
class LastWill:
    """What is published if the client vanishes."""

    topic: str
    kept: bytes  # as of a `Letter`
    delay_s: int


@dataclass(slots=True)
class Parcel:
    """A letter on its way to one session."""

    letter: Letter
    qos: int
    retain: int
    identifiers: list[int]
    expires_us: TimeUs | None
    number: int = 0  # in the store

    def fresh(self, now: TimeUs) -> Letter:
        """The letter as it is to be sent now: what is left of its expiry, by the second."""
        if self.expires_us is None:
            return self.letter
        left_s = -((now - self.expires_us) // SECOND_US)
        given_s = self.letter.expiry_s
        if given_s is None or left_s >= given_s:
            return self.letter
        return self.letter.expiring(max(left_s, 0))


class Session:
    def __init__(self, client_id: str, queue_max: int) -> None:
        self.client_id = client_id
        self.queue_max = queue_max
        self.connection: Connection | None = None
        self.subscriptions: dict[str, Held] = {}
        self.waiting: deque[Parcel] = deque()
        self.unacknowledged: dict[int, Parcel] = {}
        self.receive_max = PACKET_IDS
        self.packet_max: int | None = None
        self.expiry_s = 0
        self.life = 0  # grows with each connection: what was scheduled for an earlier one is void
        self.will: LastWill | None = None
        self.advertised: dict[str, AdvertisementId] = {}
        self.username: str | None = None
        self.user: User | None = None  # None where no users are kept
        # Topics by their bytes that it may publish to, that the network knows of, and whose
        # publications need no further look.
        self.ready: dict[bytes, str] = {}
        self.plain = True  # whether all its subscriptions are
        self.unsettled = False  # the network may not know yet what it publishes
        self.declared = False  # it said at CONNECT what it will publish
        self.delivered = self.dropped = 0
        self.overflowed = False  # it was promised what it cannot hold
        self.journal: Journal | None = None  # where a session that survives restarts notes changes
        self.recent: dict[int, Taken] = {}  # the last publications taken, by packet identifier
        self._next_id = 0
        self._parcels = self._taken = 0

    def allow(self, user: User | None, username: str | None) -> None:
        """Whose session it is, and what they may do from now on."""
        self.user, self.username = user, username
        self.ready = {}

    # What is kept.

    def keep(self, parcel: Parcel, packet_id: int) -> None:
        if self.journal is None:
            return
        if not parcel.number:
            self._parcels += 1
            parcel.number = self._parcels
        row = ParcelRow(
            parcel.letter.bytes, parcel.retain, parcel.identifiers, parcel.expires_us, packet_id
        )
        self.journal.put("parcel", self.client_id, parcel.number, row)

    def let_go(self, parcel: Parcel) -> None:
        if self.journal is not None and parcel.number:
            self.journal.drop("parcel", self.client_id, parcel.number)

    def restore_parcel(self, number: int, row: ParcelRow) -> None:
        """Called in the order of numbers."""
        letter = Letter(row.letter)
        parcel = Parcel(letter, 1, row.retain, row.identifiers, row.expires_us, number)
        self._parcels = number
        if row.packet_id:
            self.unacknowledged[row.packet_id] = parcel
        else:
            self.waiting.append(parcel)

    def taken(self, packet_id: int, digest: bytes, onward: KeptOnward) -> None:
        """Remember a publication of this client, in case it sends it again."""
        if self.journal is None:
            return
        self.recent.pop(packet_id, None)
        self._taken += 1
        row = self.recent[packet_id] = Taken(self._taken, digest, onward)
        self.journal.put("recent", self.client_id, packet_id, row)
        if len(self.recent) > RECENT:
            oldest = next(iter(self.recent))
            del self.recent[oldest]
            self.journal.drop("recent", self.client_id, oldest)

    def restore_taken(self, rows: list[tuple[int, bytes]]) -> None:
        known = [(packet_id, msgspec.msgpack.decode(data, type=Taken)) for packet_id, data in rows]
        for packet_id, row in sorted(known, key=lambda each: each[1].stamp):
            self.recent[packet_id] = row
            self._taken = row.stamp

    # What it is sent.

    def changed(self, added: Held | None = None) -> None:
        """See again which subscription may be delivered to without looking any further.

        Of a third one follows nothing for the others, unless it is the first that is not plain.
        """
        connection = self.connection
        short = connection is not None and connection.level == V5 and self.packet_max is None
        changes: Iterable[Held] = self.subscriptions.values()
        if added is not None and len(self.subscriptions) > 2 and added.plain >= self.plain:
            changes = [added]
        else:
            self.plain = all(held.plain for held in changes)
        alone = len(self.subscriptions) == 1
        for held in changes:
            held.direct = connection if short and self.plain else None
            held.alone = alone

    def attach(
        self, connection: Connection, receive_max: int, packet_max: int | None, now: TimeUs
    ) -> None:
        """The client is back: what it has not acknowledged goes first, then what waits."""
        self.connection = connection
        self.receive_max, self.packet_max = receive_max, packet_max
        self.life += 1
        self.changed()
        for packet_id, parcel in self.unacknowledged.items():
            connection.out.append(
                parcel.fresh(now).addressed(
                    connection.level, 1, packet_id, parcel.retain, parcel.identifiers, True
                )
            )

    def deliver(self, parcel: Parcel, now: TimeUs) -> bool:
        """Send or queue one letter; False if it was dropped."""
        connection = self.connection
        if parcel.qos == 0:
            if connection is None or connection.blocked:
                self.dropped += 1
                return False
            return self._write(connection, parcel, 0, now)
        if (
            connection is None
            or connection.blocked
            or self.waiting
            or len(self.unacknowledged) >= self.receive_max
        ):
            if len(self.waiting) >= self.queue_max:
                self.dropped += 1
                self.overflowed = self.journal is not None
                return False
            self.waiting.append(parcel)
            self.keep(parcel, 0)
            return True
        return self._post(connection, parcel, now)

    def on_puback(self, packet_id: int, now: TimeUs) -> None:
        parcel = self.unacknowledged.pop(packet_id, None)
        if parcel is not None:
            self.let_go(parcel)
            self.drain(now)

    def drain(self, now: TimeUs) -> None:
        """Send what waits, as far as the client takes it."""
        connection = self.connection
        while (
            self.waiting
            and connection is not None
            and not connection.blocked
            and len(self.unacknowledged) < self.receive_max
        ):
            parcel = self.waiting.popleft()
            if parcel.expires_us is None or now < parcel.expires_us:
                self._post(connection, parcel, now)
            else:
                self.let_go(parcel)

    def _post(self, connection: Connection, parcel: Parcel, now: TimeUs) -> bool:
        number = self._next_id
        while True:
            number = number % PACKET_IDS + 1
            if number not in self.unacknowledged:
                break
        self._next_id = number
        self.unacknowledged[number] = parcel
        if not self._write(connection, parcel, number, now):
            del self.unacknowledged[number]
            self.let_go(parcel)
            return False
        self.keep(parcel, number)
        return True

    def _write(self, connection: Connection, parcel: Parcel, packet_id: int, now: TimeUs) -> bool:
        data = parcel.fresh(now).addressed(
            connection.level, parcel.qos, packet_id, parcel.retain, parcel.identifiers
        )
        if self.packet_max is not None and len(data) > self.packet_max:
            self.dropped += 1  # the standard: as if it had been sent
            return False
        connection.out.append(data)
        self.delivered += 1
        return True
