"""A client's session: what it holds, what waits for it, what it has not acknowledged yet.

A state machine without sockets or clocks. A slow subscriber is limited by its own queue and
stalls nobody: at most once (QoS 0), publications are dropped while its connection is blocked; at
least once and exactly once (QoS 1 and 2), up to `queue_max` wait and the newest are dropped
beyond. Both are counted. A session that is kept on disk may not lose what its publisher was told
is safe: it ends instead, so that its client learns of it (`overflowed`). What waits and what is in
flight also count by their bytes, for the session and for the whole broker (`Room`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from postroad.filters import Filter
from postroad.live.edge.mqtt import PACKET_IDS, V5, Letter, Malformed, pubrel
from postroad.live.edge.users import User
from postroad.live.network import Limits
from postroad.live.store import Journal, ParcelRow, SubscriptionRow
from postroad.model import AdvertisementId, BrokerId, SubscriptionId, TimeUs
from postroad.routing.base import Move
from postroad.traces.schema import AWAY, ENDED, EXPIRED, FULL, LARGE, SLOW

SECOND_US = 1_000_000
PATIENCE_US = SECOND_US  # so long publishers wait for a subscriber that reads too slowly
RECENT = 1024  # publications a client may have unacknowledged


# What a publication waits for, by neighbour: how often the link had begun, and a message's number.
# Where links are redundant, the publication's key.
KeptOnward = dict[BrokerId, tuple[int, int]] | str


Item = TypeVar("Item")

# An empty deque takes 760 bytes, and most sessions have nothing to hold in any.
Queue = deque[Item] | tuple[()]


def added(queue: Queue[Item], item: Item) -> Queue[Item]:
    """The queue with one more item in the end."""
    if not isinstance(queue, deque):
        return deque((item,))
    queue.append(item)
    return queue


def taken(queue: Queue[Item]) -> tuple[Item, Queue[Item]]:
    """The first item of a queue that has one, and what is left."""
    assert isinstance(queue, deque)
    return queue.popleft(), queue or ()


Key = TypeVar("Key")
Value = TypeVar("Value")

# An empty dict takes 64 bytes, so sessions share this one, which nobody writes to: see `put`.
NOTHING: Final[dict[Any, Any]] = {}
NOBODY: Final[frozenset[BrokerId]] = frozenset()


def put(table: dict[Key, Value], key: Key, value: Value) -> dict[Key, Value]:
    """The table with one more entry."""
    if table is NOTHING:
        return {key: value}
    table[key] = value
    return table


class Taken(msgspec.Struct, array_like=True, frozen=True):
    """A publication of this client, in case it sends it again."""

    stamp: int  # grows with each
    digest: bytes
    onward: KeptOnward


class Connection:
    """One client's connection: bytes that came, bytes to go, and what holds either up."""

    # Beyond thirty attributes Python keeps a dictionary for each object.
    __slots__ = (
        "address",
        "aliased",
        "aliases",
        "aliases_max",
        "answered",
        "at",
        "awaits",
        "blocked",
        "chore",
        "client_id",
        "closing",
        "follows",
        "full",
        "heard_us",
        "held",
        "input",
        "input_bytes",
        "keep_alive_us",
        "level",
        "moving",
        "needed",
        "out",
        "owed",
        "packet_max",
        "paid_us",
        "parting",
        "patience_us",
        "paused",
        "pressing_until_us",
        "problems",
        "reading",
        "redirects",
        "replies_bytes",
        "session",
        "since_us",
        "slowed",
        "unread_bytes",
        "username",
    )

    def __init__(self, address: str, now: TimeUs) -> None:
        self.address = address
        self.level = V5
        self.session: Session | None = None
        self.client_id = self.username = ""  # as CONNECT names them
        self.problems = True  # whether it wants to be told more than reason codes
        self.packet_max: int | None = None
        self.aliases: dict[int, str] | None = None  # topics by the aliases that the client gave,
        self.aliased: dict[bytes, int] | None = None  # and aliases that it was given,
        self.aliases_max = 0  # at most so many
        # What came and is not processed, less its first `at` bytes.
        self.input: list[bytes] | tuple[()] = ()
        self.at = 0
        self.input_bytes = 0
        self.needed = 1  # so many of them before there is anything to do
        self.reading = True  # whether the driver takes more
        self.chore: Iterator[bool] | None = None  # a packet half dealt with, before all others
        self.out: list[bytes] = []
        self.answered = False  # whether there is an answer among them
        self.full = False  # more is written than the client reads: set by the driver
        self.blocked = False  # so much more that no further QoS 0 is written: set by the driver
        self.replies_bytes = 0  # of answers written nevertheless
        self.unread_bytes = 0  # at the driver, when it last told
        self.pressing_until_us: TimeUs | None = None  # till then publishers wait for this client
        self.patience_us = PATIENCE_US
        # Subscribers that it publishes to faster than they read.
        self.awaits: Sequence[Connection] = ()
        self.held = False  # it waits for the network to know it, or for its password to be checked
        self.paused = False  # it publishes faster than a link carries
        self.slowed = False  # it sends more than it may
        self.paid_us: TimeUs = 0  # until then it has used up what it may send
        self.closing = False
        self.parting = "connection lost"  # why it ends
        # PUBACKs and PUBRECs not yet written, in order, each with what has to be safe before.
        self.owed: Queue[tuple[bytes, dict[BrokerId, int]]] = ()
        self.follows = False  # the client goes where the network's relocation sends it,
        # Or where an operator does; None: one has sent it, and it may still be speaking.
        self.redirects: bool | None = False
        self.moving: Move | None = None  # it has been sent elsewhere, and may still be speaking
        self.heard_us = self.since_us = now
        self.keep_alive_us: TimeUs = 0

    def alias(self, topic: bytes) -> tuple[int, bool]:
        """The alias of a topic for this client, 0 if it has none, and whether it must be named."""
        if self.aliased is None:
            self.aliased = {}
        known = self.aliased.get(topic, 0)
        if known:
            return known, False
        return len(self.aliased) + 1 if len(self.aliased) < self.aliases_max else 0, True

    @property
    def redirected(self) -> bool:
        return self.redirects is None

    @property
    def stopped(self) -> bool:
        """Whether what it sends has to wait."""
        return self.held or self.paused or self.slowed or bool(self.awaits)

    def add(self, data: bytes) -> None:
        if isinstance(self.input, list):
            self.input.append(data)
        else:
            self.input = [data]
        self.input_bytes += len(data)

    def take(self) -> tuple[bytes, int]:
        """All input that is not processed, as it begins at a place in some bytes."""
        assert isinstance(self.input, list)
        data, at = self.input[0], self.at
        if len(self.input) > 1:
            data, at = b"".join((data[at:], *self.input[1:])), 0
        self.leave(b"", 0)
        return data, at

    def leave(self, data: bytes, at: int, needed: int = 1) -> None:
        """Keep what is not processed."""
        self.input_bytes = len(data) - at
        self.input = [data] if self.input_bytes else ()
        self.at, self.needed = at, needed

    def wrote(self) -> None:
        """The driver has taken what is to be written."""
        self.out.clear()
        self.answered = False

    def take_out(self) -> bytes:
        """What is to be written, in one piece."""
        data = b"".join(self.out)
        self.wrote()
        return data

    def read_on(self, reads: bool) -> bool:
        """Whether the driver is to take more from now on; False if it knows."""
        changes, self.reading = reads != self.reading, reads
        return changes

    def press(self, now: TimeUs) -> bool:
        """It reads too slowly: begin to have publishers wait for it. False if that began before."""
        if self.pressing_until_us is not None:
            return False
        self.pressing_until_us = now + self.patience_us
        return True

    def relieve(self, now: TimeUs) -> bool:
        """It has read; who took too long will be waited for less. False if nobody waited."""
        until_us, self.pressing_until_us = self.pressing_until_us, None
        if until_us is not None:
            in_time = now < until_us
            self.patience_us = (
                min(PATIENCE_US, 2 * self.patience_us + 1000) if in_time else self.patience_us // 4
            )
        return until_us is not None

    def pressing(self, now: TimeUs) -> bool:
        until_us = self.pressing_until_us
        return until_us is not None and now < until_us and not self.closing


class Terms(NamedTuple):
    """How a subscription is served."""

    qos: int
    no_local: bool
    as_published: bool
    levels: re.Pattern[str] | None  # to compare level by level where the filter cannot
    within: str | None = None  # the filter that its user is kept to
    weight: int = 1  # how many subscriptions it counts as
    group: str = ""  # of which it is a member, if it is shared
    kept: bool = False  # beside others of the same topic filter, by its identifier


# Most subscriptions have the same, and so one object for all.
terms = lru_cache(maxsize=1024)(Terms)


@dataclass(slots=True, eq=False)
class Held:
    """One subscription of a session."""

    session: Session
    pattern: str
    id: SubscriptionId
    filter: Filter
    identifier: int  # 0 for none
    terms: Terms

    @property
    def key(self) -> str:
        """What it is called in its session; a topic filter holds no NUL."""
        return f"{self.pattern}\0{self.identifier}" if self.terms.kept else self.pattern

    def asks(self, topic: str) -> bool:
        """Whether a topic is asked for, level by level, of what the filter lets through."""
        levels = self.terms.levels
        return levels is None or bool(levels.fullmatch(topic))

    def row(self) -> SubscriptionRow:
        terms = self.terms
        return SubscriptionRow(
            self.id, str(self.filter), terms.qos, terms.no_local, terms.as_published,
            self.identifier, terms.within, terms.weight,
        )  # fmt: skip

    @property
    def usual(self) -> bool:
        """Whether what it is delivered of usual publications, which have quality 0, no properties
        and are not retained, is the same for all such subscriptions that ask for the topic."""
        return not (self.terms.no_local or self.identifier)

    @property
    def plain(self) -> bool:
        """The same of all publications."""
        qos, _, as_published, *_ = self.terms
        return self.usual and not (qos or as_published)


PARCEL_BYTES = 300  # about what a publication that is held takes besides its own bytes


class Room:
    """How many bytes the sessions of a broker may hold together.

    The first half is for whoever comes; of the second a session gets no more than makes an equal
    part of the first, so that a few cannot take it all from the others.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.holders = 0  # sessions that hold anything

    def count(self, before: int, after: int) -> None:
        """One that held so many bytes holds so many now."""
        self.bytes += after - before
        self.holders += (after > 0) - (before > 0)

    def grants(self, held_bytes: int, size: int) -> bool:
        """Whether a session that holds so much may hold so much more."""
        after = self.bytes + size
        if 2 * after <= self.bytes_max:
            return True
        part = self.bytes_max // (2 * max(1, self.holders + (not held_bytes)))
        return after <= self.bytes_max and held_bytes + size <= part


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
    publication: str = ""  # which it is, while its session moves
    group: str = ""  # of the shared subscription that it came by
    # Told, of one that waits, when it goes to the client, or why it never does.
    then: Callable[[str | None], None] | None = None

    def row(self, packet_id: int) -> ParcelRow:
        return ParcelRow(
            self.letter.bytes, self.retain, self.identifiers, self.expires_us, packet_id, self.qos,
            self.group, self.publication,
        )  # fmt: skip

    def over(self, reason: str | None = None) -> None:
        if self.then is not None:
            self.then(reason)

    def fresh(self, now: TimeUs) -> Letter:
        """The letter as it is to be sent now: what is left of its expiry, by the second."""
        if self.expires_us is None:
            return self.letter
        left_s = -((now - self.expires_us) // SECOND_US)
        given_s = self.letter.expiry_s
        if given_s is None or left_s >= given_s:
            return self.letter
        return self.letter.expiring(max(left_s, 0))


def unpacked(row: ParcelRow, number: int = 0) -> Parcel:
    return Parcel(
        Letter(row.letter), row.qos, row.retain, row.identifiers, row.expires_us, number,
        row.publication, row.group,
    )  # fmt: skip


class Session:
    # Beyond thirty attributes Python keeps a dictionary for each object.
    __slots__ = (
        "_next_id",
        "_parcels",
        "_taken",
        "advertised",
        "bytes_max",
        "client_id",
        "connection",
        "declared",
        "delivered",
        "direct",
        "dropped",
        "ended",
        "expiry_s",
        "feeds",
        "had",
        "held_bytes",
        "inflight_max",
        "journal",
        "leaving",
        "life",
        "name",
        "overflow",
        "overflowed",
        "owing",
        "packet_max",
        "plain",
        "queue_max",
        "ready",
        "receive_max",
        "received",
        "recent",
        "released",
        "room",
        "stalled",
        "subscriptions",
        "unacknowledged",
        "unsettled",
        "user",
        "username",
        "usual",
        "waiting",
        "weight",
        "why",
        "will",
    )

    def __init__(self, client_id: str, name: str, limits: Limits, room: Room) -> None:
        self.client_id = client_id
        self.name = name  # tells sessions of one client apart in traces
        self.why = ""  # the last publication was dropped
        self.room = room
        self.bound(limits)
        self.held_bytes = 0  # of what waits or is in flight
        self.feeds: Queue[Iterator[bool]] = ()  # what is retained for it, as it has room
        self.connection: Connection | None = None
        self.subscriptions: dict[str, Held] = NOTHING
        self.weight = 0  # of them together
        self.waiting: Queue[Parcel] = ()
        self.unacknowledged: dict[int, Parcel] = NOTHING
        # What the client has of quality 2 and not let go of (PUBCOMP), by packet identifier in the
        # order of its PUBRECs; the number is the store's.
        self.released: dict[int, int] = NOTHING
        self.receive_max = min(PACKET_IDS, self.inflight_max)
        self.packet_max: int | None = None
        self.expiry_s = 0
        self.life = 0  # grows with each connection: what was scheduled for an earlier one is void
        self.will: LastWill | None = None
        self.advertised: dict[str, AdvertisementId] = NOTHING
        self.username: str | None = None
        self.user: User | None = None  # None where no users are kept
        # Topics by their bytes that it may publish to, that the network knows of, and whose
        # publications need no further look.
        self.ready: dict[bytes, str] = NOTHING
        self.usual = self.plain = True  # whether all its subscriptions are
        # Where all that is delivered of usual publications is the same bytes, whichever match and
        # ask for the topic.
        self.direct: Connection | None = None
        self.unsettled = False  # the network may not know yet what it publishes
        self.declared = False  # it said at CONNECT what it will publish
        self.delivered = self.dropped = 0
        self.ended = False  # what it had subscribed to is being withdrawn
        self.overflowed = False  # it was promised what it cannot hold,
        self.overflow = ""  # for this reason
        self.journal: Journal | None = None  # where a session that survives restarts notes changes
        self.recent: dict[int, Taken] = NOTHING  # the last publications taken, by packet identifier
        # Those of quality 2 that the client has not let go of (PUBREL), and what each waits for.
        self.received: dict[int, KeptOnward] = NOTHING
        # Of one that moves to another broker: it collects what comes, for that one. Of one that
        # came from another: what waited there goes first, and until then what comes waits.
        self.leaving = self.stalled = False
        # Publications that it has had, at either broker, while they may come twice; and the
        # brokers of which some may come that others here had before it came.
        self.had: dict[str, None] | None = None
        self.owing: Set[BrokerId] = NOBODY
        self._next_id = 0
        self._parcels = self._taken = 0

    def bound(self, limits: Limits) -> None:
        """How much it may hold from now on."""
        self.queue_max, self.bytes_max = limits.session_queue, limits.session_bytes
        self.inflight_max = max(1, limits.session_inflight)

    @property
    def crowded(self) -> bool:
        """Whether it holds more than half of what it may."""
        return 2 * len(self.waiting) > self.queue_max or 2 * self.held_bytes > self.bytes_max

    def _hold(self, parcel: Parcel) -> bool:
        """Count a parcel among what is held; False if there is no room for it."""
        size, before = len(parcel.letter.bytes) + PARCEL_BYTES, self.held_bytes
        if before and before + size > self.bytes_max:
            return self._drop(f"more than {self.bytes_max} bytes are held for this session")
        if not self.room.grants(before, size):
            return self._drop("this broker's sessions hold too many bytes together")
        self._count(size)
        return True

    def _count(self, size: int) -> None:
        self.room.count(self.held_bytes, self.held_bytes + size)
        self.held_bytes += size

    def take_shared(self, group: str | None, ended: bool) -> list[Parcel]:
        """Give up what came by one shared subscription, or by any, and another member may have:
        what waits, and if the session has ended what was sent at quality 1 and not acknowledged."""
        taken = [p for p in self.waiting if p.group and group in (None, p.group)]
        if taken:
            gone = set(map(id, taken))
            self.waiting = deque(p for p in self.waiting if id(p) not in gone) or ()
        if ended:
            for packet_id, parcel in list(self.unacknowledged.items()):
                if parcel.group and parcel.qos == 1:
                    taken.insert(0, self.unacknowledged.pop(packet_id))
        for parcel in taken:
            self.let_go(parcel)
        return taken

    @property
    def idle(self) -> bool:
        """Whether its client would get another publication at once."""
        connection = self.connection
        return (
            connection is not None
            and not connection.blocked
            and not self.waiting
            and not self.stalled
            and self.in_flight < self.receive_max
        )

    def empty(self) -> None:
        """It has ended: hold nothing any more."""
        self.ended = True
        for parcel in self.waiting:
            parcel.over(ENDED)
        self.waiting = ()
        self.unacknowledged.clear()
        self.released.clear()
        self.received.clear()
        self.feeds = ()
        if self.held_bytes:
            self._count(-self.held_bytes)

    def allow(self, user: User | None, username: str | None) -> None:
        """Whose session it is, and what they may do from now on."""
        self.user, self.username = user, username
        self.ready = NOTHING

    # What is kept.

    def keep(self, parcel: Parcel, packet_id: int) -> None:
        if self.journal is None:
            return
        if not parcel.number:
            self._parcels += 1
            parcel.number = self._parcels
        self.journal.put("parcel", self.client_id, parcel.number, parcel.row(packet_id))

    def let_go(self, parcel: Parcel) -> None:
        self._count(-(len(parcel.letter.bytes) + PARCEL_BYTES))
        if self.journal is not None and parcel.number:
            self.journal.drop("parcel", self.client_id, parcel.number)

    def restore_parcel(self, number: int, row: ParcelRow) -> None:
        """Called in the order of numbers."""
        self._parcels = number
        if not row.letter:
            self.released = put(self.released, row.packet_id, number)
            return
        parcel = unpacked(row, number)
        self._count(len(parcel.letter.bytes) + PARCEL_BYTES)
        if row.packet_id:
            self.unacknowledged = put(self.unacknowledged, row.packet_id, parcel)
        else:
            self.waiting = added(self.waiting, parcel)

    # What moves with it from one broker to another.

    def sent(self) -> list[ParcelRow]:
        """What its client has not acknowledged, and what it is to be released from."""
        parcels = [parcel.row(packet_id) for packet_id, parcel in self.unacknowledged.items()]
        return parcels + [ParcelRow(b"", 0, [], None, packet_id, 2) for packet_id in self.released]

    @property
    def last_id(self) -> int:
        return self._next_id

    def take_waiting(self) -> list[ParcelRow]:
        """Give up all that waits."""
        rows = [parcel.row(0) for parcel in self.waiting]
        for parcel in self.waiting:
            self.let_go(parcel)
        self.waiting = ()
        return rows

    def adopt(self, rows: list[ParcelRow], last_id: int) -> None:
        """It was sent this by another broker."""
        self._next_id = last_id
        for row in rows:
            self.restore_parcel(self._parcels + 1, row)
            if self.journal is not None:
                self.journal.put("parcel", self.client_id, self._parcels, row)

    def merge(self, rows: list[ParcelRow]) -> None:
        """What waited at another broker goes before what waits here."""
        new = [unpacked(row) for row in rows if self.takes(row.publication)]
        for parcel in new:
            self._count(len(parcel.letter.bytes) + PARCEL_BYTES)
        for parcel in self.waiting:
            if self.journal is not None and parcel.number:
                self.journal.drop("parcel", self.client_id, parcel.number)
            parcel.number = 0
        self.waiting = deque([*new, *self.waiting]) or ()
        for parcel in self.waiting:
            self.keep(parcel, 0)

    def begin_telling_apart(self, had: Iterable[str], owing: Iterable[BrokerId]) -> None:
        """Publications may come twice from now on, these for the second time, and those of some
        brokers late."""
        self.had, self.owing = dict.fromkeys(had), set(owing)
        if self.journal is not None:
            self.journal.put("had", self.client_id, "", sorted(self.owing))
            for publication in self.had:
                self.journal.put("had", self.client_id, publication, b"")

    def restore_had(self, rows: list[tuple[str, bytes]]) -> None:
        self.had = {}
        for publication, data in rows:
            if publication:
                self.had[publication] = None
            else:
                self.owing = msgspec.msgpack.decode(data, type=set[BrokerId])

    def takes(self, publication: str) -> bool:
        """Whether it has not had this publication; from now on it has."""
        if self.had is None or not publication:
            return True
        if publication in self.had:
            return False
        self.had[publication] = None
        if self.journal is not None:
            self.journal.put("had", self.client_id, publication, b"")
        return True

    def forget_had(self, past: Callable[[str], bool], quiet: Callable[[BrokerId], bool]) -> bool:
        """Forget those that cannot come again, and brokers that have nothing to send again;
        whether there are others."""
        assert self.had is not None
        self.owing = {broker for broker in self.owing if not quiet(broker)}
        gone = [each for each in self.had if past(each)] if self.owing else list(self.had)
        for publication in gone:
            del self.had[publication]
        if self.journal is not None:
            for publication in gone:
                self.journal.drop("had", self.client_id, publication)
            self.journal.put("had", self.client_id, "", sorted(self.owing))
        if not self.owing:
            self.had = None
            if self.journal is not None:
                self.journal.clear("had", self.client_id)
            self.changed()
        return self.had is not None

    def taken(self, packet_id: int, digest: bytes, onward: KeptOnward) -> None:
        """Remember a publication of this client, in case it sends it again."""
        if self.journal is None:
            return
        self.recent.pop(packet_id, None)
        self._taken += 1
        row = Taken(self._taken, digest, onward)
        self.recent = put(self.recent, packet_id, row)
        self.journal.put("recent", self.client_id, packet_id, row)
        if len(self.recent) > RECENT:
            oldest = next(iter(self.recent))
            del self.recent[oldest]
            self.journal.drop("recent", self.client_id, oldest)

    def restore_taken(self, rows: list[tuple[int, bytes]]) -> None:
        known = [(packet_id, msgspec.msgpack.decode(data, type=Taken)) for packet_id, data in rows]
        for packet_id, row in sorted(known, key=lambda each: each[1].stamp):
            self.recent = put(self.recent, packet_id, row)
            self._taken = row.stamp

    def receive(self, packet_id: int, onward: KeptOnward) -> None:
        """A publication of quality 2 was taken: not again under this identifier until PUBREL."""
        self.received = put(self.received, packet_id, onward)
        if self.journal is not None:
            self.journal.put("received", self.client_id, packet_id, onward)

    def restore_received(self, rows: list[tuple[int, bytes]]) -> None:
        for packet_id, data in rows:
            onward = msgspec.msgpack.decode(data, type=KeptOnward)
            self.received = put(self.received, packet_id, onward)

    def on_pubrel(self, packet_id: int) -> bool:
        """The client will not send a publication again; False if none was taken by this name."""
        if self.received.pop(packet_id, None) is None:
            return False
        if self.journal is not None:
            self.journal.drop("received", self.client_id, packet_id)
        return True

    # What it is sent.

    def changed(self, added: Held | None = None) -> None:
        """See again whether it may be delivered to without looking any further.

        Of a third subscription follows nothing for the others, unless it is not usual or plain.
        """
        connection = self.connection
        if added is not None and len(self.subscriptions) > 2:
            self.usual &= added.usual
            self.plain &= added.plain
        else:
            self.usual = all(held.usual for held in self.subscriptions.values())
            self.plain = all(held.plain for held in self.subscriptions.values())
        short = (
            connection is not None
            and self.packet_max is None
            and not connection.aliases_max
            and self.had is None
        )
        self.direct = connection if short and self.usual else None

    def attach(
        self, connection: Connection, receive_max: int, packet_max: int | None, now: TimeUs
    ) -> None:
        """The client is back: what it has not acknowledged goes first, then what waits."""
        self.connection = connection
        self.receive_max, self.packet_max = min(receive_max, self.inflight_max), packet_max
        self.life += 1
        self.changed()
        for packet_id, parcel in self.unacknowledged.items():
            connection.out.append(
                parcel.fresh(now).addressed(
                    connection.level, parcel.qos, packet_id, parcel.retain, parcel.identifiers, True
                )
            )
        connection.out += [pubrel(packet_id) for packet_id in self.released]

    def deliver(self, parcel: Parcel, now: TimeUs) -> bool:
        """Send or queue one letter; False if it was dropped."""
        if self.ended:
            self.why = ENDED
            return False
        connection = self.connection
        if parcel.qos == 0:
            if connection is None and self.leaving and self._collect(parcel):
                return True
            if connection is None or connection.blocked:
                self.dropped += 1
                self.why = AWAY if connection is None else SLOW
                return False
            return self._write(connection, parcel, 0, now)
        if not self._hold(parcel):
            return False
        if (
            connection is None
            or connection.blocked
            or self.waiting
            or self.stalled
            or self.in_flight >= self.receive_max
        ):
            if len(self.waiting) >= self.queue_max:
                self._count(-(len(parcel.letter.bytes) + PARCEL_BYTES))
                return self._drop(f"more than {self.queue_max} publications wait for this session")
            self.waiting = added(self.waiting, parcel)
            self.keep(parcel, 0)
            return True
        return self._post(connection, parcel, now)

    def _collect(self, parcel: Parcel) -> bool:
        """Hold one of quality 0 for a client that has come to another broker, if there is room."""
        size = len(parcel.letter.bytes) + PARCEL_BYTES
        if self.crowded or not self.room.grants(self.held_bytes, size):
            return False
        self._count(size)
        self.waiting = added(self.waiting, parcel)
        return True

    def _drop(self, reason: str) -> bool:
        self.dropped += 1
        self.why = FULL
        self.overflowed, self.overflow = self.journal is not None, reason
        return False

    @property
    def in_flight(self) -> int:
        return len(self.unacknowledged) + len(self.released)

    def on_puback(self, packet_id: int, now: TimeUs) -> None:
        parcel = self.unacknowledged.get(packet_id)
        if parcel is None:
            return
        if parcel.qos == 2:
            raise Malformed("PUBACK for a publication of quality 2", 0x82)
        self._done(packet_id, now)

    def _done(self, packet_id: int, now: TimeUs) -> None:
        self.let_go(self.unacknowledged.pop(packet_id))
        self.drain(now)

    def on_pubrec(self, packet_id: int, refused: bool, now: TimeUs) -> bool:
        """The client has a publication of quality 2, or wants none of it. Whether to answer PUBREL;
        one that names nothing is answered so, too, with a reason."""
        parcel = self.unacknowledged.get(packet_id)
        if parcel is not None and parcel.qos != 2:
            raise Malformed("PUBREC for a publication that is not of quality 2", 0x82)
        if refused:
            if parcel is not None:
                self._done(packet_id, now)
            return False
        if parcel is not None:
            self.let_go(self.unacknowledged.pop(packet_id))
            number = 0
            if self.journal is not None:
                self._parcels = number = self._parcels + 1
                row = ParcelRow(b"", 0, [], None, packet_id, 2)
                self.journal.put("parcel", self.client_id, number, row)
            self.released = put(self.released, packet_id, number)
        return True

    def on_pubcomp(self, packet_id: int, now: TimeUs) -> None:
        number = self.released.pop(packet_id, None)
        if number is not None:
            if self.journal is not None and number:
                self.journal.drop("parcel", self.client_id, number)
            self.drain(now)

    def drain(self, now: TimeUs) -> None:
        """Send what waits, as far as the client takes it."""
        connection = self.connection
        while (
            self.waiting
            and connection is not None
            and not connection.blocked
            and not self.stalled
            and self.in_flight < self.receive_max
        ):
            parcel, self.waiting = taken(self.waiting)
            if parcel.expires_us is None or now < parcel.expires_us:
                parcel.over(None if self._post(connection, parcel, now) else self.why)
            else:
                parcel.over(EXPIRED)
                self.let_go(parcel)

    def _post(self, connection: Connection, parcel: Parcel, now: TimeUs) -> bool:
        if parcel.qos == 0:  # it was collected while the session moved
            self.let_go(parcel)
            return self._write(connection, parcel, 0, now)
        number = self._next_id
        while True:
            number = number % PACKET_IDS + 1
            if number not in self.unacknowledged and number not in self.released:
                break
        self._next_id = number
        self.unacknowledged = put(self.unacknowledged, number, parcel)
        if not self._write(connection, parcel, number, now):
            del self.unacknowledged[number]
            self.let_go(parcel)
            return False
        self.keep(parcel, number)
        return True

    def _write(self, connection: Connection, parcel: Parcel, packet_id: int, now: TimeUs) -> bool:
        letter, alias, named = parcel.fresh(now), 0, True
        if connection.aliases_max:
            alias, named = connection.alias(letter.topic)
        data = letter.addressed(
            connection.level, parcel.qos, packet_id, parcel.retain, parcel.identifiers, False,
            alias, named,
        )  # fmt: skip
        if self.packet_max is not None and len(data) > self.packet_max:
            self.dropped += 1  # the standard: as if it had been sent
            self.why = LARGE
            return False
        if alias and named:
            assert connection.aliased is not None
            connection.aliased[letter.topic] = alias
        connection.out.append(data)
        self.delivered += 1
        return True
