"""One link between two brokers, as a state machine: bytes and `now` in, bytes and messages out.

A link outlives its connections. Messages are numbered; the receiver acknowledges cumulatively;
what is not acknowledged is sent again over the next connection, and what arrives twice is
skipped. So while both ends live, a connection that breaks loses nothing and duplicates nothing,
and the routers at both ends need not hear of it: what changed meanwhile is what is resent.

Each end names its side of the link (`mine`); a name changes when the broker restarts or gives
the link up. `Hello` says both names as one end knows them. An end goes on where it was if the peer
has the name that it knows; if not, it starts afresh and its router is told `LinkDown` and `LinkUp`.
A hello may have been overtaken by another connection's, so what it says of this end counts only
as far as it goes: a peer that does not know this end's name yet has received nothing under it.

A link that leaves the tree (not a `neighbour`) has no router behind it that would say everything
again: what no connection ever carried is kept when it starts afresh. It is given up when something
has waited for too long, not when nothing did.

Flow: an end may send up to number `until`, which the other grants with every frame. What waits
beyond is queued here; `full` asks the broker to hold back whoever fills it.

Safety: where brokers have stores, `ack` says that the receiver has a message on disk, and `safe`
that so has every broker that it had to be passed on to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from postroad.live.links.tree import Report, Tree, TreeId
from postroad.live.store import LinkRow, Standing
from postroad.model import BrokerId, TimeUs

# The versions of this protocol that a broker speaks: brokers talk in the newest that both do. A
# version that cannot be spoken any more raises the first number; a new one the second.
SPEAKS = (1, 4)
RUNS = 2  # the version that has runs of publications,
BATCHES = 4  # and that which has batches as they are now
FRAME_MAX = 64 << 20
BATCH_BYTES = 4 << 10  # a frame is closed once it has so many: it is dealt with in one go
QUEUE_MAX = 20_000  # messages waiting: then `full`, and publishers are held back
QUEUE_BYTES = 64 << 20
WINDOW = 8_192  # messages that may be on the way unprocessed
ACK_EVERY = 512
ACK_AFTER_US = 50_000
HEARTBEAT_US = 2_000_000
SILENCE_US = 7_000_000  # nothing for so long: the connection is dead
PATIENCE_US = 60_000_000  # no connection for so long: the link is given up
HELLO_US = 5_000_000
LEAVING = "shutting down"  # what a broker says in its last frame


class Hello(msgspec.Struct, array_like=True, tag="hello", frozen=True):
    version: int
    network: str
    broker: BrokerId
    mine: str
    yours: str
    received: int
    oldest: int = 0  # the oldest version it still speaks; 0 from one that speaks only `version`
    tree: TreeId = (0, 0)  # only brokers in the same tree exchange messages
    base: int = 0  # up to here it knows that what it sent was received
    store: Standing | None = None  # how far its store has come
    known: tuple[int, int] | None = None  # and, as it knows, the other's
    nonce: bytes = b""  # of who dialled; see secret.py
    proof: bytes = b""


class Challenge(msgspec.Struct, array_like=True, tag="challenge", frozen=True):
    """The first word of a broker that was dialled, where the network has a secret."""

    nonce: bytes


class Data(msgspec.Struct, array_like=True, tag="data", frozen=True):
    first: int
    ack: int
    until: int
    messages: list[msgspec.Raw]
    safe: int = 0


class Ack(msgspec.Struct, array_like=True, tag="ack", frozen=True):
    """Also measures the link: `probe` is the sender's clock, and `reply` one of the receiver's
    probes, moved on by as long as it lay here. 0 is none."""

    ack: int
    until: int
    safe: int = 0
    probe: TimeUs = 0
    reply: TimeUs = 0
    count: int = 0  # of transactions in the sender's store


class Bye(msgspec.Struct, array_like=True, tag="bye", frozen=True):
    reason: str


class News(msgspec.Struct, array_like=True, tag="news", frozen=True):
    """What brokers with redundant links tell each other over every connection; see tree.py."""

    tree: Tree | None
    reports: list[Report]


Frame = Hello | Challenge | Data | Ack | Bye | News
_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], Frame] = msgspec.msgpack.Decoder(Frame).decode


class Refused(Exception):
    """What the other end sent cannot be gone on with; the connection is closed."""


def pack(frame: Frame) -> bytes:
    body = _encode(frame)
    return len(body).to_bytes(4, "big") + body


def unpack(buffer: bytearray, bytes_max: int = FRAME_MAX) -> list[Frame]:
    """Take all whole frames off the front of a buffer."""
    frames: list[Frame] = []
    at, size = 0, len(buffer)
    with memoryview(buffer) as view:
        while size - at >= 4:
            length = int.from_bytes(view[at : at + 4], "big")
            if length > bytes_max:
                raise Refused(f"a frame of {length} bytes")
            if size - at - 4 < length:
                break
            try:
                # A copy, because messages may outlive the buffer.
                frames.append(_decode(bytes(view[at + 4 : at + 4 + length])))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise Refused(f"not a frame: {error}") from None
            at += 4 + length
    del buffer[:at]
    return frames


def whole(begun: bytearray, data: bytes, at: int, least: int) -> int:
    """Where the frame ends in which so many bytes from this place on do, or the data: what is
    begun came before."""
    last = at + least
    if begun:
        size = bytes(begun[:4]) + data[at : at + 4]
        at += 4 + int.from_bytes(size[:4], "big") - len(begun) if len(size) >= 4 else 4
    while at < last and at + 4 <= len(data):
        at += 4 + int.from_bytes(data[at : at + 4], "big")
    return at if last <= at < len(data) else len(data)


@dataclass(slots=True)
class Opened:
    """What a hello led to: the link goes on, or both ends start afresh."""

    fresh: bool
    was_up: bool


def agreed(hello: Hello, speaks: tuple[int, int] = SPEAKS) -> int:
    """The newest version that both speak."""
    oldest, newest = speaks
    theirs = hello.oldest or hello.version
    version = min(newest, hello.version)
    if version < max(oldest, theirs):
        raise Refused(
            f"speaks versions {theirs} to {hello.version}, this broker {oldest} to {newest}: "
            "upgrade the older of the two first"
        )
    return version


class Link:
    """This broker's end of the link to one peer."""

    def __init__(self, me: BrokerId, peer: BrokerId, boot: str, neighbour: bool) -> None:
        self.me, self.peer, self.boot = me, peer, boot
        self.neighbour = neighbour  # otherwise opened for messages that leave the tree
        self.lives = self.starts = 0  # names, and how often numbers began again
        self.yours = ""  # how the peer names its side; "" before the first hello
        self.up = False  # whether the routers at both ends know of each other
        self.connected = False  # whether hellos have been exchanged over a connection
        self.queue: deque[bytes] = deque()  # sent and not acknowledged, then not yet sent
        self.queue_bytes = 0
        self.asked = 0  # the last message that said what is wanted here
        self.base = 0  # the number of the first message in the queue, less one
        self.sent = 0  # the last number sent over this connection
        self.carried = 0  # the last number sent over any connection
        self.granted = 0  # the last number the peer lets us send
        self.received = 0
        self.allowed = 0  # the last number we let the peer send
        self.acked = 0  # what the peer knows that we received
        self.safe = 0  # up to here the peer says that what we sent is safe wherever it had to go
        self.settled = 0  # up to here we say so of what we received
        self.said = 0  # and have said so
        self.open = True  # whether we grant more
        self.heard_us: TimeUs = 0
        self.spoke_us: TimeUs = 0
        self.cut_us: TimeUs = 0
        self.waits_us: TimeUs | None = None  # since when something waits beside the tree
        self.ack_due_us: TimeUs | None = None
        self.resent = self.dropped = self.cuts = 0
        self.delay_us: TimeUs | None = None  # one way, a running average; None before it is known
        self.probed_us: TimeUs = 0
        self.probe: tuple[TimeUs, TimeUs] | None = None  # the peer's last, and when it came
        self.patience_us: TimeUs | None = PATIENCE_US  # None: what waits is on disk, and waits on
        self.before: int | None = None  # the last number sent by an earlier process, until met
        self.known: tuple[int, int] | None = None  # how far the peer's store has come
        self.noted: tuple[int, int] | None = None  # and what our store knows of that

    def restore(self, row: LinkRow, queue: list[bytes]) -> None:
        """Go on as the end that a restarted broker had left, as after a cut."""
        self.boot, self.lives, self.yours, self.up = row.boot, row.lives, row.yours, row.up
        self.received, self.base = row.received, row.base
        self.known = self.noted = row.known
        self.before = row.base + len(queue)
        self.sent, self.safe, self.starts = row.base, row.safe, row.starts
        for message in queue:
            self.send(message)
        self.asked = self.before

    def row(self) -> LinkRow:
        return LinkRow(
            self.boot, self.lives, self.yours, self.up, self.received, self.base, self.safe,
            self.starts, self.noted,
        )  # fmt: skip

    @property
    def mine(self) -> str:
        return f"{self.boot}.{self.lives}"

    @property
    def full(self) -> bool:
        return len(self.queue) >= QUEUE_MAX or self.queue_bytes >= QUEUE_BYTES

    def hello(
        self,
        network: str,
        speaks: tuple[int, int] = SPEAKS,
        tree: TreeId = (0, 0),
        store: Standing | None = None,
    ) -> Hello:
        oldest, newest = speaks
        return Hello(
            newest, network, self.me, self.mine, self.yours, self.received, oldest, tree,
            self.base, store, self.known,
        )  # fmt: skip

    def behind(self, hello: Hello) -> str | None:
        """What the peer knows of this end and this end does not, where both name it the same."""
        if not (self.up and hello.mine == self.yours and hello.yours == self.mine):
            return None
        sent = self.base + len(self.queue) if self.before is None else self.before
        if hello.received > sent:
            return f"its store ends at message {sent}, and it has sent {hello.received}"
        if hello.base > self.received:
            return f"its store has received {self.received} messages, and it has had {hello.base}"
        return None

    def met(self, hello: Hello) -> None:
        """The peer and this end agree on how far both have come."""
        self.before = None
        if hello.store is not None:
            self.known = self.noted = (hello.store.created, hello.store.first)

    def on_hello(self, hello: Hello, now: TimeUs) -> Opened:
        """The peer's hello came over a new connection."""
        self.heard_us = self.spoke_us = self.probed_us = now
        self.probe = None
        self.connected = True
        was_up = self.up
        resumed = self.resumes(hello)
        if resumed:
            self._trim(self._known_received(hello))
            self.resent += max(0, self.sent - self.base)
        else:
            self._forget(len(self.queue) if self.neighbour else self.carried - self.base)
            self.yours = hello.mine
            self.up = True
        self.sent = self.base
        self.said = 0
        self.acked = self.received
        self.allowed = self.received + WINDOW if self.open else max(self.allowed, self.received)
        self.granted = self.base + WINDOW
        return Opened(not resumed, was_up)

    def resumes(self, hello: Hello) -> bool:
        """Whether a hello goes on with what there is; refuses one that cannot be gone on with."""
        if not self.up or hello.mine != self.yours:
            boot, _, lives = hello.mine.rpartition(".")
            known, _, count = self.yours.rpartition(".")
            if boot == known and lives.isdigit() and int(lives) < int(count):
                raise Refused("a hello that a later one has overtaken")
            return False
        if not self.base <= self._known_received(hello) <= self.base + len(self.queue):
            raise Refused("acknowledges what was never sent")
        return True

    def _known_received(self, hello: Hello) -> int:
        return hello.received if hello.yours == self.mine else 0

    def _forget(self, count: int) -> None:
        """Drop so many messages of the queue, and number from the beginning."""
        self.starts += 1
        self.dropped += count
        for _ in range(count):
            self.queue_bytes -= len(self.queue.popleft())
        self.base = self.sent = self.carried = self.received = self.acked = self.allowed = 0
        self.safe = self.settled = self.said = 0
        self.asked = len(self.queue)
        self.waits_us = None

    def give_up(self) -> None:
        """Stop waiting for the peer: the next connection starts afresh."""
        self._forget(len(self.queue))
        self.lives += 1
        self.yours = ""
        self.up = self.connected = False

    def send(self, message: bytes) -> None:
        self.queue.append(message)
        self.queue_bytes += len(message)

    def on_cut(self, now: TimeUs) -> None:
        """The connection is gone."""
        if self.connected:
            self.connected = False
            self.cuts += 1
            self.cut_us = now

    def on_frame(self, frame: Data | Ack, now: TimeUs) -> list[msgspec.Raw]:
        """The messages of a frame that are new."""
        self.heard_us = now
        if frame.ack > self.base + len(self.queue) or frame.ack < 0:
            raise Refused("acknowledges what was never sent")
        if frame.safe > frame.ack:
            raise Refused("says that what it has not received is safe")
        if frame.ack > self.base:
            self._trim(frame.ack)
        if frame.safe > self.safe:
            self.safe = frame.safe
        if frame.until > self.granted:
            self.granted = frame.until
        if isinstance(frame, Ack):
            if self.known is not None:
                self.known = (self.known[0], max(self.known[1], frame.count))
            self._measure(frame, now)
            return []
        last = frame.first + len(frame.messages) - 1
        if frame.first > self.received + 1 or frame.first < 1:
            raise Refused(f"message {frame.first} after {self.received}")
        new = frame.messages[self.received + 1 - frame.first :] if last > self.received else []
        self.received = max(self.received, last)
        if new and self.ack_due_us is None:
            self.ack_due_us = now + ACK_AFTER_US
        return new

    def _measure(self, frame: Ack, now: TimeUs) -> None:
        if frame.probe > 0:
            self.probe = (frame.probe, now)
        if 0 < frame.reply <= now:
            one_way_us = (now - frame.reply) // 2
            last = self.delay_us
            self.delay_us = one_way_us if last is None else (7 * last + one_way_us) // 8

    def _trim(self, ack: int) -> None:
        queue = self.queue
        size = 0
        for _ in range(min(ack - self.base, len(queue))):
            size += len(queue.popleft())
        self.queue_bytes -= size
        self.base = max(self.base, ack)
        # What an earlier connection carried may have arrived after all.
        self.sent, self.carried = max(self.sent, self.base), max(self.carried, self.base)

    def frames(self, now: TimeUs, count: int = 0) -> list[bytes]:
        """All that may be written now, after so many transactions."""
        if not self.connected:
            return []
        out: list[bytes] = []
        last = min(self.base + len(self.queue), self.granted)
        unsent = iter(_slice(self.queue, self.sent - self.base, last - self.base))
        while self.sent < last:
            batch: list[msgspec.Raw] = []
            size = 0
            for message in unsent:
                batch.append(msgspec.Raw(message))
                size += len(message)
                if size >= BATCH_BYTES:
                    break
            out.append(self._data(batch))
        probe = now if now - self.probed_us >= HEARTBEAT_US else 0
        if probe or self.probe is not None or (not out and self._ack_owed(now)):
            reply = 0 if self.probe is None else self.probe[0] + now - self.probe[1]
            out.append(pack(Ack(self.received, self._grant(), self.settled, probe, reply, count)))
            self.probe = None
            self.probed_us = probe or self.probed_us
        if out:
            self._spoke(now)
        return out

    def at_once(self, message: bytes, now: TimeUs) -> bytes:
        """Send a message over a clear link: its frame, to be written now.

        What `send`, `_spoke` and `_data` do for any, in one go: where a broker has been idle each
        call takes most of a microsecond.
        """
        self.queue.append(message)
        self.queue_bytes += len(message)
        self.spoke_us = now
        self.acked = self.received
        self.said = self.settled
        self.ack_due_us = None
        if self.open:
            self.allowed = self.received + WINDOW
        self.sent += 1
        if self.sent > self.carried:
            self.carried = self.sent
        messages = [msgspec.Raw(message)]
        body = _encode(Data(self.sent, self.received, self.allowed, messages, self.settled))
        return len(body).to_bytes(4, "big") + body

    def only(self, data: bytes) -> Data | None:
        """The frame that some bytes are, if it is one message, the next, and says nothing that
        could be refused; None if they are more, less or something else."""
        if not self.connected or int.from_bytes(data[:4], "big") != len(data) - 4:
            return None
        try:
            frame = _decode(data[4:])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if type(frame) is not Data or len(frame.messages) != 1:
            return None
        acked = self.base <= frame.ack <= self.base + len(self.queue)
        continues = frame.first == self.received + 1 and acked and frame.safe <= frame.ack
        return frame if continues else None

    def _data(self, messages: list[msgspec.Raw]) -> bytes:
        """The frame of the next messages to be sent."""
        frame = Data(self.sent + 1, self.received, self._grant(), messages, self.settled)
        self.sent += len(messages)
        if self.sent > self.carried:
            self.carried = self.sent
        return pack(frame)

    def _spoke(self, now: TimeUs) -> None:
        self.spoke_us = now
        self.acked = self.received
        self.said = self.settled
        self.ack_due_us = None

    def _ack_owed(self, now: TimeUs) -> bool:
        return (
            self.received - self.acked >= ACK_EVERY
            or self.settled > self.said
            or (self.ack_due_us is not None and now >= self.ack_due_us)
            or (self.open and self.allowed < self.received + WINDOW // 2)
            or now - self.spoke_us >= HEARTBEAT_US
        )

    def _grant(self) -> int:
        if self.open:
            self.allowed = self.received + WINDOW
        return self.allowed

    def tick(self, now: TimeUs) -> Literal["silent", "lost"] | None:
        """Whether the connection is dead, or the whole link to be given up."""
        if self.connected:
            self.waits_us = None
            return "silent" if now - self.heard_us > SILENCE_US else None
        if not self.neighbour:
            if not self.queue:
                self.waits_us = None
                return None
            self.waits_us = now if self.waits_us is None else self.waits_us
            return "lost" if now - self.waits_us > PATIENCE_US else None
        patient = self.patience_us is None or now - self.cut_us <= self.patience_us
        return "lost" if self.up and not patient else None


def _slice(queue: deque[bytes], start: int, end: int) -> Any:
    """Part of a deque; from its right end if that is nearer."""
    if start >= end:
        return ()
    if start == 0 and end == len(queue):
        return queue
    if end == len(queue) and start > end - start:
        part = [queue[-1 - k] for k in range(end - start)]
        part.reverse()
        return part
    return [queue[k] for k in range(start, end)]
