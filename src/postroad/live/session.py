"""A client's session: what it holds, what waits for it, what it has not acknowledged yet.

A state machine without sockets or clocks. A slow subscriber is limited by its own queue and
stalls nobody: at most once (QoS 0), publications are dropped while its connection is blocked; at
least once (QoS 1), up to `queue_max` wait and the newest are dropped beyond. Both are counted.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from mqtt5 import Will

from postroad.filters import Filter
from postroad.live.mqtt import V5, Letter
from postroad.live.users import User
from postroad.model import AdvertisementId, SubscriptionId, TimeUs
from postroad.routing.base import Move

PACKET_IDS = 65_535


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
        self.closing = False
        self.follows = False  # the client goes where it is sent
        self.moving: Move | None = None  # it has been sent elsewhere, and may still be speaking
        self.heard_us = self.since_us = now
        self.keep_alive_us: TimeUs = 0


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
    direct: Connection | None = None  # where every delivery is the same bytes for all

    @property
    def plain(self) -> bool:
        return not (
            self.qos or self.no_local or self.as_published or self.identifier or self.levels
        )


@dataclass(slots=True)
class Parcel:
    """A letter on its way to one session."""

    letter: Letter
    qos: int
    retain: int
    identifiers: list[int]
    expires_us: TimeUs | None


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
        self.will: Will | None = None
        self.advertised: dict[str, AdvertisementId] = {}
        self.user: User | None = None  # None where no users are kept
        self.declared = False  # it said at CONNECT what it will publish
        self.delivered = self.dropped = 0
        self._next_id = 0

    def changed(self) -> None:
        """See again which subscription may be delivered to without looking any further."""
        connection = self.connection
        short = connection is not None and connection.level == V5 and self.packet_max is None
        alone = len(self.subscriptions) == 1
        for held in self.subscriptions.values():
            held.direct = connection if short and alone and held.plain else None

    def attach(self, connection: Connection, receive_max: int, packet_max: int | None) -> None:
        """The client is back: what it has not acknowledged goes first, then what waits."""
        self.connection = connection
        self.receive_max, self.packet_max = receive_max, packet_max
        self.life += 1
        self.changed()
        for packet_id, parcel in self.unacknowledged.items():
            connection.out.append(
                parcel.letter.addressed(
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
            return self._write(connection, parcel, 0)
        if (
            connection is None
            or connection.blocked
            or self.waiting
            or len(self.unacknowledged) >= self.receive_max
        ):
            if len(self.waiting) >= self.queue_max:
                self.dropped += 1
                return False
            self.waiting.append(parcel)
            return True
        return self._post(connection, parcel)

    def on_puback(self, packet_id: int, now: TimeUs) -> None:
        if self.unacknowledged.pop(packet_id, None) is not None:
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
                self._post(connection, parcel)

    def _post(self, connection: Connection, parcel: Parcel) -> bool:
        number = self._next_id
        while True:
            number = number % PACKET_IDS + 1
            if number not in self.unacknowledged:
                break
        self._next_id = number
        self.unacknowledged[number] = parcel
        if not self._write(connection, parcel, number):
            del self.unacknowledged[number]
            return False
        return True

    def _write(self, connection: Connection, parcel: Parcel, packet_id: int) -> bool:
        data = parcel.letter.addressed(
            connection.level, parcel.qos, packet_id, parcel.retain, parcel.identifiers
        )
        if self.packet_max is not None and len(data) > self.packet_max:
            self.dropped += 1  # the standard: as if it had been sent
            return False
        connection.out.append(data)
        self.delivered += 1
        return True
