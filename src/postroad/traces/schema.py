"""The one schema of what happened: a row per event, the same of live brokers and of the simulator.

A row has the columns that its kind needs; the others are left out of a JSON line, and null in a
table. `VERSION` grows when a column changes its meaning or goes; a new column does not change it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from postroad.errors import InputError

VERSION = 1

PLAIN, HASH, NONE = "plain", "hash", "none"  # how attributes are recorded

# Kinds of rows that are written of sampled publications only; all others are always written.
SAMPLED = ("publish", "send", "receive", "deliver", "hand", "stop")
KINDS = {
    "start": "a broker starts; `detail` is the network: scheme, parameters, brokers, links",
    "end": "a broker ends; `reason` says why",
    "load": "every few seconds: `detail` has steps, CPU time, table entries, delays of links",
    "connect": "a client connects; `detail` says whether a session was there",
    "disconnect": "a client's connection ends, and why",
    "refuse": "a client, a subscription or a publication is refused, and why",
    "subscribe": "a subscription begins, with the filter that holds for it",
    "unsubscribe": "a subscription ends",
    "advertise": "an advertisement begins or changes",
    "unadvertise": "an advertisement ends",
    "link": "a link comes up or goes down: `mechanism` is `up` or `down`",
    "tree": "another tree carries the traffic: `epoch`, and its links in `detail`",
    "move": "a publisher moves: `mechanism` is `order`, `pause`, `arrive` or `resume`",
    "note": "what a router noted",
    "publish": "a client's publication is taken, with its attributes",
    "send": "a message goes to another broker; `queue` is the link's after it",
    "receive": "a message from another broker is taken up",
    "deliver": "a publication is handed to the session that holds a matching subscription",
    "hand": "what had waited in a session goes to its client, after `waited_us`",
    "stop": "a publication goes no further here, and why",
}

# Why a publication stops.
NO_MATCH = "no entry matches"
UNADVERTISED = "not advertised"
NO_WAY = "no link leads there"
DUPLICATE = "duplicate"
LATE = "after its successors"  # on redundant links: delivered, it would be out of order
EXPIRED = "expired"
FULL = "queue full"
REFUSED = "refused"
DOWN = "link down"
LOST = "lost on the link"
CRASHED = "broker down"
NO_LOCAL = "no local"  # its publisher asked not to get its own
LEVELS = "topic levels differ"
LARGE = "larger than the client takes"
ENDED = "session ended"
AWAY = "client away at quality 0"
SLOW = "client too slow at quality 0"
MALFORMED = "malformed"
SHUT_DOWN = "the broker shuts down"  # why clients are disconnected then
TOLD_TO_STOP = "told to stop"  # why a broker ends that did not fail
REASONS = (
    NO_MATCH, UNADVERTISED, NO_WAY, DUPLICATE, LATE, EXPIRED, FULL, REFUSED, DOWN, LOST, CRASHED,
    NO_LOCAL, LEVELS, LARGE, ENDED, AWAY, SLOW, MALFORMED,
)  # fmt: skip

# What each column is.
COLUMNS = {
    "trace_id": "the network's name, or the run's",
    "broker": "where it happened",
    "life": "when this broker was started, in microseconds since 1970; 0 in a simulation",
    "sequence": "counts a broker's rows in one life from 1: equal ones are copies, gaps are losses",
    "kind": "what happened",
    "time_us": "when, in microseconds since 1970, or since a simulation's network had settled",
    "peer": "the other broker",
    "client": "the client's identifier",
    "session": "which session of this client it is: two with one name are told apart",
    "publisher": "the client that published",
    "publication": "the publication's identifier, unique for its publisher",
    "published_us": "when it was published, by the clock of the publisher's broker",
    "subscription": "the subscription's identifier",
    "advertisement": "the advertisement's identifier",
    "epoch": "of an advertisement that moves, or of a tree",
    "filter": "in SQL",
    "attributes": "a JSON object: plain, or with hashes in place of values",
    "bytes": "of a payload (`publish`) or of a message between brokers",
    "hops": "how many links it has crossed",
    "mechanism": "which way it came, or the kind of the message",
    "queue": "how many wait where it went: for a link, or in a session",
    "waited_us": "how long it waited in a session",
    "part": "of a message with several publications: which of them, from 0",
    "parts": "how many those are",
    "reason": "why",
    "detail": "more, as text or a JSON object",
}


class Row(msgspec.Struct, omit_defaults=True, gc=False):
    """One event. Columns are described in `COLUMNS`, kinds in `KINDS`."""

    trace_id: str
    broker: str
    life: int
    sequence: int
    kind: str
    time_us: int
    peer: str | None = None
    client: str | None = None
    session: str | None = None
    publisher: str | None = None
    publication: str | None = None
    published_us: int | None = None
    subscription: str | None = None
    advertisement: str | None = None
    epoch: int | None = None
    filter: str | None = None
    attributes: str | None = None
    bytes: int | None = None
    hops: int | None = None
    mechanism: str | None = None
    queue: int | None = None
    waited_us: int | None = None
    part: int | None = None
    parts: int | None = None
    reason: str | None = None
    detail: str | None = None

    @property
    def key(self) -> tuple[str, str, int, int]:
        """No two rows share it."""
        return self.trace_id, self.broker, self.life, self.sequence


REQUIRED = Row.__struct_fields__[: -len(Row.__struct_defaults__)]


@dataclass(frozen=True, slots=True)
class Recording:
    """What is recorded, and how long it is kept: the table `traces` of a network file."""

    folder: str
    sample: float = 1.0  # the share of publications; all else is always recorded
    attributes: str = PLAIN
    exclude: list[str] = field(default_factory=list)  # attributes that are never recorded
    file_bytes: int = 64 << 20  # a file is complete at this size,
    file_s: float = 5.0  # or after so long
    keep_bytes: int = 1 << 30  # the oldest files of a broker go beyond this,
    keep_s: float = 7 * 24 * 3600.0  # or when they are older

    def __post_init__(self) -> None:
        if not 0 <= self.sample <= 1:
            raise InputError(f"sample is {self.sample}", remedy="give a share from 0 to 1")
        if self.attributes not in (PLAIN, HASH, NONE):
            raise InputError(
                f"attributes is {self.attributes!r}", remedy=f"choose {PLAIN}, {HASH} or {NONE}"
            )
        for name in ("file_bytes", "file_s", "keep_bytes", "keep_s"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}", remedy="give more than 0")
