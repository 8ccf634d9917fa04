"""Messages between brokers as bytes: MessagePack, each under the name that it gives itself.

Routing messages are dataclasses and are encoded as they stand; a filter travels as its canonical
text. To these come the few messages that brokers exchange about themselves, whatever the scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import structs

from postroad import model
from postroad.errors import FilterError
from postroad.filters import Filter, parse, sharing
from postroad.live.store import ParcelRow, SubscriptionRow
from postroad.relocation import all_messages
from postroad.routing.base import Message

# `model` shows Filter to the type checker alone; msgspec resolves annotations at run time.
vars(model)["Filter"] = Filter


@dataclass(frozen=True, slots=True)
class Wave(Message):
    """Pass this on, and answer with `Echo` once all you passed it to have answered.

    Links are first in, first out: when the echoes are back, everything that was sent before the
    wave has arrived everywhere, and so have the answers to it.
    """

    kind = "wave"
    wire = "messages.Wave"
    origin: int
    number: int
    tree: tuple[int, int] = (0, 0)  # in which it began, where links are redundant


@dataclass(frozen=True, slots=True)
class Echo(Message):
    kind = "echo"
    wire = "messages.Echo"
    origin: int
    number: int


@dataclass(frozen=True, slots=True)
class Retain(Message):
    """A topic's retained publication (none if `kept` is empty), as of a version: newest wins."""

    kind = "retain"
    wire = "messages.Retain"
    topic: str
    version: tuple[int, int]  # time and broker
    kept: bytes
    attributes: dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class RetainedVersions(Message):
    """Which retained publications the sender has, so that only the others need to travel."""

    kind = "retained_versions"
    wire = "messages.RetainedVersions"
    versions: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class WantsVersions(Message):
    """As of when the sender knows what each broker's own clients want."""

    kind = "wants_versions"
    wire = "messages.WantsVersions"
    versions: dict[int, int]
    acquainted: bool  # whether it has been told of all brokers


@dataclass(frozen=True, slots=True)
class Wants(Message):
    """All that one broker's own clients want, as of a version."""

    kind = "wants"
    wire = "messages.Wants"
    broker: int
    version: int
    filters: list[str]


@dataclass(frozen=True, slots=True)
class WantsChange(Message):
    """How that changed between two versions."""

    kind = "wants_change"
    wire = "messages.WantsChange"
    broker: int
    before: int
    version: int
    filter: str
    wanted: bool


@dataclass(frozen=True, slots=True)
class Begun(Message):
    """By broker, the tree in which what comes from it now was sent, as far as it is known."""

    kind = "begun"
    wire = "messages.Begun"
    trees: dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Members(Message):
    """How many members of each shared subscription a broker has, as of a version: of all, or of
    those where that changed since the version before.

    By group: its topic filter, its whole filter, members, and those of them that are ready.
    """

    kind = "members"
    wire = "messages.Members"
    broker: int
    version: int
    groups: dict[str, tuple[str, Filter, int, int]]
    before: int = -1  # -1: these are all there are
    gone: tuple[str, ...] = ()  # groups that have no members there any more


@dataclass(frozen=True, slots=True)
class Handoff(Message):
    """A publication for one member of a group: it is the receiver's from now on."""

    kind = "handoff"
    wire = "messages.Handoff"
    target: int
    group: str
    publisher: str
    id: str
    kept: bytes
    time_us: int
    origin: int = -1  # who keeps it until it is known to have arrived, where links are redundant,
    key: str = ""  # and as what
    tries: int = 0  # brokers that had it and could not give it to a member


class RunMessage(Message, msgspec.Struct, frozen=True):
    """Publications of one client to one topic, in a row, all wanted whatever they say: of quality
    0, without properties, as packets of MQTT 5 one after the other. Their identifiers are `boot`
    and the numbers from `first` on. Of version 2."""

    kind = "publication"  # it is counted as those that it stands for
    wire = "messages.RunMessage"
    publisher: str
    boot: str
    first: int
    topic: str
    packets: bytes
    time_us: int
    hops: int


class Stretch(msgspec.Struct, array_like=True, frozen=True):
    """Publications in a row of one client, made at one time: their identifiers are `boot` and
    numbers from `first` on."""

    publisher: str
    boot: str
    first: int
    count: int
    time_us: int


class BatchMessage(Message, msgspec.Struct, frozen=True):
    """Publications of any clients, each wanted for what it says: of quality 0, without properties,
    as packets of MQTT 5 one after the other. `offsets` says of each how far its number is beyond
    the first of its stretch, in two bytes. `told` is what `matching/fanout.py` tells of them: the
    tags of the filters of the receiver that match each; empty if it tells of none. Of version 4."""

    kind = "publication"  # it is counted as those that it stands for
    wire = "messages.MixedBatch"
    stretches: tuple[Stretch, ...]
    offsets: bytes
    packets: bytes
    told: bytes
    hops: int

    def __post_init__(self) -> None:
        counts = [stretch.count for stretch in self.stretches]
        if min(counts, default=0) < 1 or 2 * sum(counts) != len(self.offsets):
            raise ValueError("stretches and offsets are not of as many publications")

    @property
    def count(self) -> int:
        return len(self.offsets) // 2


class ListedBatchMessage(Message, msgspec.Struct, frozen=True):
    """Publications of one client in the same way, as brokers of version 3 send them, no others."""

    kind = "publication"
    wire = "messages.BatchMessage"
    publisher: str
    boot: str
    numbers: list[int]
    packets: bytes
    time_us: int
    hops: int


@dataclass(frozen=True, slots=True)
class Posted(Message):
    """A publication of the outbox, as the store has it: whether it is routed, and to which broker
    it is handed for each group (-1: to be chosen again; None: not chosen yet)."""

    kind = "posted"
    wire = "messages.Posted"
    publication: model.Publication
    routed: bool
    handoffs: dict[str, int] | None
    tries: int = 0


# Of a session: its stamp, whether it outlives its connection, and whose it is.
Residence = tuple[int, bool, str | None]


@dataclass(frozen=True, slots=True)
class Residents(Message):
    """Which clients have their session at a broker, as of a version: all, or those where that
    changed since the version before."""

    kind = "residents"
    wire = "sessions.Residents"
    broker: int
    version: int
    clients: dict[str, Residence]
    before: int = -1  # -1: these are all there are
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResidentsVersions(Message):
    """As of when the sender knows each broker's residents."""

    kind = "residents_versions"
    wire = "sessions.Versions"
    versions: dict[int, int]
    answers: bool = False  # what the receiver lacked came before this
    heard: list[int] | None = None  # the brokers whose residents those are, if not all


@dataclass(frozen=True, slots=True)
class SessionMessage(Message):
    """Between the broker that has a session and the one that a client wants it at."""

    target: int
    origin: int
    client: str
    stamp: int  # that the session is to have at the broker that asks for it


@dataclass(frozen=True, slots=True)
class SessionAsked(SessionMessage):
    """The client is here: give me its session."""

    kind = "session_asked"
    wire = "sessions.Asked"
    user: str | None


@dataclass(frozen=True, slots=True)
class SessionRefused(SessionMessage):
    """Not now, not here, or not at all."""

    kind = "session_refused"
    wire = "sessions.Refused"
    reason: str
    known: int = 0  # the stamp that it has, or a broker that has it


@dataclass(frozen=True, slots=True)
class SessionGiven(SessionMessage):
    """The session but for what waits: what its client may ask about at once."""

    kind = "session_given"
    wire = "sessions.Given"
    user: str | None
    expiry_s: int
    subscriptions: dict[str, SubscriptionRow]
    parcels: list[ParcelRow]  # sent and not acknowledged
    last_id: int  # the packet identifier given last
    received: list[int]  # of quality 2, taken and not released
    recent: list[tuple[int, bytes]]  # of quality 1, taken: identifiers and digests
    had: list[str]  # publications that may be sent again where links are redundant


@dataclass(frozen=True, slots=True)
class SessionReady(SessionMessage):
    """The session's subscriptions are on their way from here, ahead of this message."""

    kind = "session_ready"
    wire = "sessions.Ready"


@dataclass(frozen=True, slots=True)
class SessionRest(SessionMessage):
    """What waited for the client, and what has come since: nothing more comes."""

    kind = "session_rest"
    wire = "sessions.Rest"
    parcels: list[ParcelRow]


@dataclass(frozen=True, slots=True)
class SessionTaken(SessionMessage):
    """It is all here: forget it."""

    kind = "session_taken"
    wire = "sessions.Taken"


@dataclass(frozen=True, slots=True)
class SessionDeclined(SessionMessage):
    """The client did not wait: keep it."""

    kind = "session_declined"
    wire = "sessions.Declined"


class BadMessage(Exception):
    """Bytes of a peer that are no message."""


def _plain(value: Any) -> Any:
    if isinstance(value, Filter):
        return str(value)
    raise NotImplementedError(f"{type(value)} has no place in a message")


@lru_cache(maxsize=1 << 12)
def _parsed(text: str) -> Filter:
    return sharing(parse(text))


def _decode_value(kind: type, value: Any) -> Any:
    if kind is Filter and isinstance(value, str):
        try:
            return _parsed(value)
        except FilterError as error:
            raise ValueError(str(error)) from None
    raise ValueError(f"{type(value).__name__} is no {kind.__name__}")


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
_split = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw]).decode
_decode_run = msgspec.msgpack.Decoder(RunMessage).decode
_decode_batch = msgspec.msgpack.Decoder(BatchMessage).decode


# What brokers say to each other whatever the scheme.
MESSAGES: tuple[type[Message], ...] = (
    Wave,
    Echo,
    Retain,
    RetainedVersions,
    WantsVersions,
    Wants,
    WantsChange,
    Begun,
    Members,
    Handoff,
    RunMessage,
    BatchMessage,
    ListedBatchMessage,
    Posted,
    Residents,
    ResidentsVersions,
    SessionAsked,
    SessionRefused,
    SessionGiven,
    SessionReady,
    SessionRest,
    SessionTaken,
    SessionDeclined,
)


_RUN, _BATCH = (_encode((kind.wire, None))[:-1] for kind in (RunMessage, BatchMessage))
# As they begin with their number of fields, the last of which says how many hops: one byte, if that
# is less than 128.
_WHOLE_RUN, _WHOLE_BATCH = (
    begins + bytes((0x80 + len(kind.__struct_fields__),))
    for kind, begins in ((RunMessage, _RUN), (BatchMessage, _BATCH))
)
_HOPS = _encode(RunMessage.__struct_fields__[-1])


class Codec:
    """Encodes and decodes the messages of every scheme and relocation, and the brokers' own."""

    def __init__(self) -> None:
        self._decoders: dict[str, Callable[[Any], Message]] = {}
        self._names: dict[type, str] = {}
        for kind in (*MESSAGES, *all_messages()):
            assert kind.wire not in self._decoders, f"two messages named {kind.wire}"
            self._names[kind] = kind.wire
            self._decoders[kind.wire] = msgspec.msgpack.Decoder(kind, dec_hook=_decode_value).decode

    def encode(self, message: Message) -> bytes:
        return _encode((self._names[type(message)], message))

    def together(self, data: bytes) -> RunMessage | BatchMessage | None:
        """The run or the batch that some bytes are; None if they are anything else."""
        try:
            if data.startswith(_RUN):
                return _decode_run(data[len(_RUN) :])
            if data.startswith(_BATCH):
                return _decode_batch(data[len(_BATCH) :])
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        return None

    def alone(self, run: RunMessage, lasting: bool) -> bytes:
        """A run of one for a neighbour: as a batch where not all to its topic go the same way."""
        if lasting:
            return self.encode(run)
        stretch = Stretch(run.publisher, run.boot, run.first, 1, run.time_us)
        batch = BatchMessage((stretch,), b"\0\0", run.packets, b"", run.hops)
        return self.encode(batch)

    def alone_on(self, run: RunMessage, came: bytes, lasting: bool) -> bytes:
        """The same of one that came as these bytes, one hop further; nearly always they are it."""
        hops = run.hops + 1
        begins = _WHOLE_RUN if lasting else _WHOLE_BATCH
        if 0 < hops < 128 and came.startswith(begins) and came.endswith(_HOPS, 0, -1):
            return came[:-1] + bytes((hops,))
        return self.alone(structs.replace(run, hops=hops), lasting)

    def decode(self, data: Any) -> Message:
        try:
            name, body = _split(data)
            return self._decoders[name](body)
        except KeyError:
            raise BadMessage(f"no message is named {name[:40]!r}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadMessage(str(error)) from None
