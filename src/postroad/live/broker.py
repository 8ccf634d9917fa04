"""One broker as a state machine: a router, its clients and its links, driven from outside.

It takes input and `now`, calls `Router.step`, and performs the effects: bytes for clients and peers
are appended to buffers that the driver writes out after `flush`. It also performs the orders of the
repair of trees (`links/repair.py`). Routing decisions stay in the router; what is here is the same
for every scheme.
"""

from __future__ import annotations

import heapq
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace as replaced
from functools import partial

import msgspec
from msgspec.structs import replace

from postroad.errors import RunFailed
from postroad.filters import Filter, parse
from postroad.live.edge import content, mqtt
from postroad.live.edge.clients import Clients
from postroad.live.edge.host import Reached
from postroad.live.edge.mqtt import Letter, Malformed
from postroad.live.edge.session import KeptOnward
from postroad.live.edge.shares import AWAY, Shares
from postroad.live.links import link as links
from postroad.live.links import repair, secret, strangers
from postroad.live.links.batch import Origins, OutgoingBatch
from postroad.live.links.certificates import common_name
from postroad.live.links.link import Link, Refused
from postroad.live.links.messages import (
    BadMessage,
    BatchMessage,
    Codec,
    Echo,
    Handoff,
    ListedBatchMessage,
    Members,
    Residents,
    ResidentsVersions,
    Retain,
    RetainedVersions,
    RunMessage,
    SessionMessage,
    Wave,
)
from postroad.live.links.neighbour import BACKOFF_US, Neighbour, Onward, Wire
from postroad.live.links.repair import BEAT_US, SILENT_US, Repair
from postroad.live.links.strangers import Strangers
from postroad.live.links.tree import TreeId
from postroad.live.network import DURABLE, Network
from postroad.live.store import CauseRow, Journal, Kept, Rows, Standing, WaveRow
from postroad.live.traces import Traces
from postroad.matching import Index
from postroad.model import AdvertisementId, BrokerId, Publication, Scalar, TimeUs
from postroad.routing.base import (
    AdvertisementMessage,
    CancelTimer,
    Deliver,
    Effect,
    Input,
    Leave,
    LinkDown,
    LinkUp,
    Measure,
    Measured,
    Message,
    Move,
    Note,
    Ping,
    Pinged,
    PublicationMessage,
    Publish,
    Received,
    Recipients,
    Resume,
    Send,
    SetTimer,
    Start,
    Subscribe,
    SubscriptionMessage,
    TimerFired,
    UnadvertisementMessage,
    Unsubscribe,
    UnsubscriptionMessage,
)
from postroad.routing.mix import Wrapped, wrap
from postroad.traces.recorder import unsampled
from postroad.traces.schema import DOWN

log = logging.getLogger("postroad.broker")

TICK_US = 100_000
SETTLE_US = 2_000_000  # how long a SUBACK or a first publication waits for a network in trouble
REPAIR_US = 10_000_000  # and where links are redundant, for the tree to be repaired
REFUSED_US = 1_000_000  # before dialling one again whose messages were refused
COVERING_STEPS = 1_500_000  # to see whom a filter covers, and as many who covers it: about 30 ms
WAVES_MAX = 10_000
TOMBSTONE_US = 3_600_000_000  # so long it is remembered that a retained publication was removed
STATE_US = 100  # for each group: so often at most others are told how much members have to do
STATED_MAX = 256  # groups that one message tells of: it is dealt with in one go
TRIES_MAX = 8  # brokers that could not give a publication to a member, before it is dropped
ABSENT_MAX = 10_000  # topics removed here that were never known here: they may be known elsewhere

CAUSES = (PublicationMessage, Handoff)  # what is safe only when what it caused is

WaveKey = tuple[BrokerId, int]
Work = tuple[Callable[[], bool], Callable[[bool, TimeUs], None]]
Pings = tuple[tuple[BrokerId, ...], Callable[[Mapping[BrokerId, TimeUs], TimeUs], None]]


class Broker:
    """With `rows`, the content of a store, it resumes from them and notes changes in `journal`."""

    def __init__(
        self,
        network: Network,
        number: BrokerId,
        now: TimeUs,
        traces: Traces | None = None,
        rows: Rows | None = None,
        standing: Standing | None = None,
    ) -> None:
        self.network, self.number, self.now = network, number, now
        self.standing = standing  # of the store that the rows are from
        self.count = 0 if standing is None else standing.first  # of its transactions
        self.failure: str | None = None  # why this broker must not go on
        self.name = network.names[number]
        self.boot = f"{number:x}-{now:x}"
        self.speaks = links.SPEAKS
        self.plan = network.plan()
        for pool in self.plan.pools():
            pool.recent_max = 0  # a publication comes by once: nothing to remember
            pool.steps_max = COVERING_STEPS
            pool.load_beside()
        self.router = self.plan.router(number)
        self.codec = Codec()
        self.traces = traces
        self.journal = None if rows is None else Journal()
        self.onward: Onward | None = None  # what the publication in hand has caused so far
        self._replayed: list[tuple[BrokerId, Message]] | None = None
        self.retained: dict[str, Retain] = {}
        self.retained_bytes = 0
        # Topics whose retained publication was removed and when, those never known here apart.
        self.removed: OrderedDict[str, TimeUs] = OrderedDict()
        self.absent: OrderedDict[str, TimeUs] = OrderedDict()
        self.shares = Shares(number)
        self._stated_us: TimeUs = 0  # when it last told how much its members have to do
        # The neighbour on the way to each broker, and how far it is; as of what.
        self._ways: dict[BrokerId, tuple[BrokerId, int]] = {}
        self._ways_of: object = None
        self.work: list[Work] = []  # slow things for the driver to do beside the loop
        self.pings: list[Pings] = []  # brokers to which it is to measure the way
        self.clients = Clients(self)
        if traces is not None:
            traces.holders = self.clients.holders
        self.wires: dict[Wire, None] = {}
        self.secret = None if network.secret is None else secret.load(network.secret)
        self.strangers = Strangers()
        self.peers: dict[BrokerId, Neighbour] = {}
        self.outgoing = OutgoingBatch(self)  # closed before anything else happens on a link
        self.steps = self.notes = self.refused_wires = 0
        self._routes = 0  # inputs that may have changed where publications go
        self.congested = False
        self._tree = network.row.overlay == "tree"
        self._heap: list[tuple[TimeUs, int, Callable[[TimeUs], None]]] = []
        self._sequence = 0
        self._timers: dict[str, int] = {}
        self._settling: list[Reached] = []
        self._waves: dict[WaveKey, tuple[BrokerId | None, set[BrokerId]]] = {}
        self._settled: dict[int, list[Reached]] = {}
        self._seen: dict[BrokerId, int] = {}
        self._early: list[tuple[Wave, BrokerId]] = []
        self._closing: list[Wire] = []
        self._wave = now
        self._encoded: tuple[Message | None, bytes] = (None, b"")
        for peer in self.plan.links()[number]:
            self.peers[peer] = Neighbour(Link(number, peer, self.boot, True), True)
        kept = None if rows is None else Kept(rows)
        self.repair: Repair | None = None
        if network.redundant:
            self.repair = Repair(
                network, number, self.boot, self.codec, self.journal, traces, kept, now
            )
            within = self.repair.tree.neighbours(number)
            for peer, neighbour in self.peers.items():
                neighbour.link.neighbour = peer in within
        if kept is None:
            self.step(Start(), now)
        else:
            self._restore(kept, now)
        self._every(now)

    def trust(self, key: bytes | None) -> None:
        """The network's secret for connections from now on."""
        self.secret = key

    def committed(self, count: int) -> None:
        """The store has had so many transactions."""
        self.count = count

    def wire_refused(self, wire: Wire, now: TimeUs) -> None:
        """The driver could not agree on TLS with whoever dialled."""
        self.refused_wires += 1
        self.wire_closed(wire, now)

    # What is kept.

    def _restore(self, kept: Kept, now: TimeUs) -> None:
        """Restore the state of the store: links resume, and the router is given all that it knew.

        The control messages that the router produces are compared with those that neighbours got
        before; only differences are sent (clients whose sessions did not survive, or which of two
        equal filters came first).
        """
        self._replayed = []
        self.step(Start(), now)
        stated: dict[tuple[BrokerId, str], Message] = {}
        for peer, neighbour in self.peers.items():
            link = neighbour.link
            link.patience_us = None
            row = neighbour.kept = kept.link(peer)
            if row is not None:
                queue, name = kept.of("queue", peer), self.network.names[peer]
                if [n for n, _ in queue] != [row.base + 1 + n for n in range(len(queue))]:
                    raise RunFailed(f"the store is damaged: messages for broker {name} are missing")
                link.restore(row, [data for _, data in queue])
            if link.up:
                self.step(LinkUp(peer), now)
            for key, data in kept.of("told", peer):
                stated[peer, key] = self.codec.decode(data)
        retained = [self.codec.decode(data) for _, data in kept.of("retained", 0)]
        for message in sorted(retained, key=lambda each: each.version):  # type: ignore[attr-defined]
            assert isinstance(message, Retain)
            self._put_retained(message)
            if message.topic in self.absent:
                self.removed[message.topic] = self.absent.pop(message.topic)
        self._restore_members(kept)
        self.clients.restore(kept, now)
        for peer in self.peers:
            for _, data in kept.of("heard", peer):
                self.step(Received(self.codec.decode(data), peer), now)
        for peer, neighbour in self.peers.items():
            for first, data in kept.of("cause", peer):
                causes = msgspec.msgpack.decode(data, type=CauseRow)
                neighbour.written.append((first, causes.messages[-1][0]))
                for number, caused in causes.messages:
                    onward = {to: n for to, n in caused.items() if to in self.peers}
                    neighbour.pending.append((number, onward))
        for origin, rows in kept.by_owner("wave").items():
            for number, data in rows:
                wave = msgspec.msgpack.decode(data, type=WaveRow)
                self._waves[origin, number] = wave.parent, set(wave.awaited)
        replayed, self._replayed = self._replayed, None
        due: dict[tuple[BrokerId, str], Message] = {}
        for peer, message in replayed:
            key, said = _statement(message)
            if said:
                due[peer, key] = message
            else:
                due.pop((peer, key), None)
        for (peer, key), message in due.items():
            if (peer, key) not in stated:
                self.send(peer, message)
        for (peer, key), message in stated.items():
            if (peer, key) not in due:
                self.send(peer, _withdrawal(message))
        if self.repair is not None:
            self._obey(self.repair.restored(now), now)

    def _note(self, table: str, peer: BrokerId, message: Message, data: bytes) -> None:
        """Store a control message to or from a neighbour until it is withdrawn."""
        assert self.journal is not None
        key, said = _statement(message)
        if said:
            self.journal.put(table, peer, key, data)
        elif key:
            self.journal.drop(table, peer, key)

    def _note_links(self) -> None:
        assert self.journal is not None
        for peer, neighbour in self.peers.items():
            row, kept = neighbour.link.row(), neighbour.kept
            if neighbour.lasting and row != kept:
                if kept is None or row.base != kept.base:
                    self.journal.drop_to("queue", peer, row.base)
                neighbour.link.noted = neighbour.link.known
                row = neighbour.link.row()
                self.journal.put("link", peer, 0, row)
                neighbour.kept = row
            self._note_causes(peer, neighbour)

    def _note_causes(self, peer: BrokerId, neighbour: Neighbour) -> None:
        """One row per turn, deleted when all its messages are safe."""
        assert self.journal is not None
        unwritten, written = neighbour.unwritten, neighbour.written
        if unwritten:
            self.journal.put("cause", peer, unwritten[0][0], CauseRow(unwritten))
            written.append((unwritten[0][0], unwritten[-1][0]))
            neighbour.unwritten = []
        done = None
        while written and written[0][1] <= neighbour.link.settled:
            done, _ = written.popleft()
        if done is not None:
            self.journal.drop_to("cause", peer, done)

    def _forget_link(self, peer: BrokerId) -> None:
        """The link starts afresh: all state of the old one is void."""
        if self.journal is not None:
            for table in ("queue", "told", "heard"):
                self.journal.clear(table, peer)
            self.peers[peer].pending.clear()
            for other, neighbour in self.peers.items():
                changes = [onward.pop(peer, None) for _, onward in neighbour.pending]
                if other == peer or any(change is not None for change in changes):
                    self.journal.clear("cause", other)
                    neighbour.written.clear()
                    neighbour.unwritten = list(neighbour.pending)
            self.clients.forget_link(peer)

    # What is safe.

    def kept_of(self, onward: Onward) -> KeptOnward:
        """What a publication waits for, in a form that survives a restart."""
        if self.repair is not None:
            return self.repair.key_of(onward)
        return {peer: (self.peers[peer].link.starts, n) for peer, n in onward.items()}

    def still(self, kept: KeptOnward) -> Onward:
        """What of it is still pending."""
        if isinstance(kept, str):
            return {} if self.repair is None else self.repair.still(kept)
        return {
            peer: number
            for peer, (starts, number) in kept.items()
            if peer in self.peers and self.peers[peer].link.starts == starts
        }

    def is_safe(self, onward: Onward) -> bool:
        peers = self.peers
        return all(
            peers[peer].link.safe >= number
            if peer >= 0
            else self.repair is not None and self.repair.is_safe(peer, number)
            for peer, number in onward.items()
        )

    def _see_what_is_safe(self) -> None:
        for neighbour in self.peers.values():
            pending, link = neighbour.pending, neighbour.link
            while pending and self.is_safe(pending[0][1]):
                pending.popleft()
            link.settled = pending[0][0] - 1 if pending else link.received
        if self.repair is not None:
            self.repair.let_go(self.is_safe)
        self.clients.acknowledge()

    # Time.

    def advance(self, now: TimeUs) -> None:
        """The driver read its clock."""
        self.now = now

    def after(self, delay_us: TimeUs, act: Callable[[TimeUs], None]) -> None:
        if delay_us <= 0:
            act(self.now)
            return
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + delay_us, self._sequence, act))

    def aside(self, work: Callable[[], bool], then: Callable[[bool, TimeUs], None]) -> None:
        """Have the driver do slow work off the event loop, then call back with the result."""
        self.work.append((work, then))

    def take_work(self) -> list[Work]:
        work, self.work = self.work, []
        return work

    def next_due_us(self) -> TimeUs:
        return self._heap[0][0]

    def tick(self, now: TimeUs) -> None:
        """Do all that has become due."""
        self.now = now
        self.outgoing.close()
        while self._heap and self._heap[0][0] <= now:
            _, _, act = heapq.heappop(self._heap)
            act(now)

    def _every(self, now: TimeUs) -> None:
        self.clients.tick(now)
        if self.repair is not None:
            self.repair.tick(now)
            for wire in list(self.wires):
                if wire.link is not None and now - wire.heard_us > SILENT_US:
                    self._drop(wire, "silent", now)
        for neighbour in list(self.peers.values()):
            state = neighbour.link.tick(now)
            if state == "silent" and neighbour.wire is not None:
                self._drop(neighbour.wire, "silent", now)
            elif state == "lost":
                self._give_up(neighbour, "no connection for too long", now)
        for wire in list(self.wires):
            if wire.link is None and now - wire.since_us > links.HELLO_US:
                asked = wire.dialled is not None and self.secret is not None and not wire.nonce
                self._drop(wire, "no challenge: it has no secret" if asked else "no hello", now)
        self._sweep(now)
        groups = self.clients.groups
        if groups and now - self._stated_us >= STATE_US * len(groups):
            self._stated_us = now
            self._state_members(groups, now)
        self.after(TICK_US, self._every)

    # Steps.

    def step(self, input: Input, now: TimeUs) -> bool:
        """One step of the router and its effects. True if it sent other brokers anything."""
        self.now = now
        if self.repair is not None and isinstance(input, Subscribe | Unsubscribe):
            self._obey(self.repair.local(input, now), now)
        if _published(input) is None:
            self._routes += 1
        effects = self.router.step(input, now)
        self.steps += 1
        return self._performed(input, effects, now)

    def _performed(self, input: Input, effects: list[Effect], now: TimeUs) -> bool:
        if effects:
            return self.perform(input, effects, now)
        traces = self.traces
        if traces is not None and _recorded(traces, input):
            traces.stepped(input, (), now, self._holds)
        return False

    def _holds(self, publication: Publication) -> bool:
        """Whether a publication is queued here, in the router or in the outbox."""
        return self.router.holds(publication) or (
            self.repair is not None and self.repair.holds(publication)
        )

    def publish(self, publication: Publication, now: TimeUs, onward: Onward | None = None) -> None:
        """An own client published; what that causes is noted in `onward`."""
        self.onward = onward
        if self.repair is None or not self.repair.keeps(publication):
            input = Publish(publication)
            effects = self.router.step(input, now)
            self.now = now
            self.steps += 1
            if effects or self.traces is not None:
                self._performed(input, effects, now)
            if self.shares.groups:
                for group in self.shares.matching(publication.attributes):
                    self._hand_over(_handoff(publication, group), now)
        else:
            self._obey(self.repair.publish(publication), now)
            if self.repair.full():
                self.congested = True
        self.onward = None

    def recipients(self, topic: str, sender: BrokerId | None = None) -> Recipients | None:
        """To whom each publication to this topic goes, of a client or from a neighbour, whatever it
        says, if it goes nowhere else and nothing is noted of it; None if a router has to be asked
        each time, or a neighbour cannot take runs. Where trees change nothing of quality 0 is sent
        again, so there is nothing to tell apart in a run."""
        if sender is None and self.shares.concerns(topic):
            return None
        found = self.router.recipients(topic, sender)
        if found is not None and not all(self._takes(peer, links.RUNS) for peer in found[1]):
            return None
        return found

    def routes_version(self) -> int:
        """While this stays the same `recipients` answers the same, except that a neighbour may no
        longer take runs."""
        return self._routes + self.shares.changes

    def groups_want(self, topic: str) -> bool:
        """Whether a shared subscription may want what is published to a topic."""
        return self.shares.concerns(topic)

    def content_matters(self, topic: str) -> bool:
        """Whether publications to this topic may go different ways for what else they say, which
        holds for one version of the routes."""
        return self.router.recipients(topic) is None

    def interested(
        self, attributes: Mapping[str, Scalar], sender: BrokerId | None = None
    ) -> Recipients | None:
        """To whom a publication goes that says this and that no outbox keeps; None as of
        `recipients`."""
        if sender is None and self.shares.concerns(str(attributes["class"])):
            return None
        return self.router.interested(attributes, sender)

    def asking(
        self, sender: BrokerId | None = None
    ) -> Callable[[Mapping[str, Scalar]], Recipients | None]:
        """`interested` of what comes from there, until this broker hears from others."""
        ask = None if sender is None and self.shares.groups else self.router.asking(sender)
        return ask or partial(self.interested, sender=sender)

    def deciding(self) -> Index[Filter] | None:
        """The filters that decide where publications go, as `wanting` says, but for what groups get
        of own clients'; None where each has to be asked about."""
        return self.router.deciding()

    def wanting(self, filter: Filter, sender: BrokerId | None = None) -> Recipients:
        return self.router.wanting(filter, sender)

    def told_all(self, peer: BrokerId) -> bool:
        """Whether a neighbour knows every filter that is wanted here and beyond: then those that it
        says match a publication are all that do."""
        link = self.peers[peer].link
        return link.base >= link.asked and self.router.tells_all(peer)

    def takes_batches(self, peer: BrokerId) -> bool:
        return self._takes(peer, links.BATCHES)

    def send_batch(self, peer: BrokerId, batch: BatchMessage) -> None:
        self._forward(batch, batch.count, [peer])

    def each_of(self, run: bytes) -> Iterator[tuple[bytes, Mapping[str, Scalar]]]:
        """The packets of a run, and what each says."""
        return ((packet, content.of_kept(packet)) for packet in mqtt.usuals(run))

    def send_on(self, peer: BrokerId, publication: Publication, hops: int) -> None:
        self._send(peer, PublicationMessage(publication, hops))

    def hand_on(self, publication: Publication, sender: BrokerId, hops: int) -> None:
        """A neighbour passed a publication on."""
        traced = self.traces is not None and self.traces.sampled(publication)
        found = None if traced else self.interested(publication.attributes, sender)
        if found is None:
            self.step(Received(PublicationMessage(publication, hops), sender), self.now)
            return
        names, peers = found
        self.passed(1)
        if names:
            self.clients.hand_out(names, publication, self.now)
        if peers:
            message = PublicationMessage(publication, hops + 1)
            for peer in peers:
                self.send(peer, message)

    def _takes(self, peer: BrokerId, version: int) -> bool:
        """Whether a neighbour takes what this version has for many publications together."""
        neighbour = self.peers[peer]
        wired = neighbour.wire is not None and neighbour.version >= version
        return wired and self.journal is None

    @property
    def records(self) -> bool:
        """Whether something is recorded of publications, of all or of some."""
        return self.traces is not None

    def untraced(self, boot: str, first: int, most: int) -> int:
        """How many publications with these numbers in a row nothing is recorded of."""
        if self.traces is None:
            return most
        return unsampled(self.traces.recording.sample, boot, first, most)

    def forward(self, run: RunMessage, count: int, peers: list[BrokerId]) -> None:
        """Pass a run of so many publications on to these neighbours."""
        self.outgoing.close()
        self._forward(run, count, peers)

    def _forward(self, run: RunMessage | BatchMessage, count: int, peers: list[BrokerId]) -> None:
        data = self.codec.encode(run)
        for peer in peers:
            neighbour = self.peers[peer]
            neighbour.link.send(data)
            neighbour.sent[run.kind] = neighbour.sent.get(run.kind, 0) + count
            if neighbour.link.full:
                self.congested = True

    def neighbours(self, peers: Iterable[BrokerId], lasting: bool) -> list[Neighbour] | None:
        """These neighbours, if they take a publication that goes alone: as a run, or a batch."""
        version = links.RUNS if lasting else links.BATCHES
        if not all(self._takes(peer, version) for peer in peers):
            return None
        return [self.peers[peer] for peer in peers]

    def arrived_alone(self, wire: Wire, data: bytes) -> tuple[links.Data, RunMessage, bytes] | None:
        """The publication that came alone over a connection, as a run, with its frame and as it
        stands there; None if it is anything else, or there is more to do for it than to hand it
        out. Nothing is changed."""
        link = wire.link
        if link is None or wire.closing or wire.buffer or self.journal is not None:
            return None
        frame = link.only(data)
        if frame is None:
            return None
        came = bytes(frame.messages[0])
        message = self.codec.together(came)
        if type(message) is BatchMessage and message.count == 1:
            packet = message.packets
            topic = self.clients.runs.topic_of(packet)
            if topic is not None:
                stretch, number = Origins.of(message).at(0)
                message = RunMessage(
                    stretch.publisher,
                    stretch.boot,
                    number,
                    topic,
                    packet,
                    stretch.time_us,
                    message.hops,
                )
        return (frame, message, came) if type(message) is RunMessage else None

    def took_at_once(self, wire: Wire, frame: links.Data, run: RunMessage, now: TimeUs) -> bool:
        """A run of one that came in this frame is dealt with; whether it is to be acknowledged."""
        link = wire.link
        assert link is not None
        self.now = wire.heard_us = now
        link.on_frame(frame, now)
        received = self.peers[link.peer].received
        received[run.kind] = received.get(run.kind, 0) + 1
        return link.received - link.acked >= links.ACK_EVERY

    def _on_run(self, neighbour: Neighbour, run: RunMessage, now: TimeUs) -> None:
        """Hand on a run as it is, or one publication after the other where that cannot be."""
        sender, kind = neighbour.link.peer, run.kind
        at = number = 0
        whole = True
        while at < len(run.packets):
            if whole:
                at, count = self.clients.runs.take_run(run, at, number, sender, now)
                neighbour.received[kind] = neighbour.received.get(kind, 0) + count
                number += count
                whole = self.traces is not None  # after one that is traced others may go together
            if at < len(run.packets):
                publication, end = self.clients.runs.single(run, at, number)
                message = PublicationMessage(publication, run.hops)
                self._on_message(neighbour, message, end - at, now)
                at, number = end, number + 1

    def _on_batch(self, neighbour: Neighbour, batch: BatchMessage, now: TimeUs) -> None:
        """Hand on a batch; by themselves those publications of which something is recorded."""
        kind, received = batch.kind, neighbour.received
        traced: list[int] = []
        if self.traces is not None:
            at = Origins.of(batch).at
            whose = ((place, *at(place)) for place in range(batch.count))
            traced = [
                place
                for place, stretch, number in whose
                if not self.untraced(stretch.boot, number, 1)
            ]
        for part in self.clients.runs.parts(batch, traced):
            if isinstance(part, BatchMessage):
                count = self.clients.runs.take_batch(part, neighbour.link.peer, now)
                received[kind] = received.get(kind, 0) + count
            else:
                publication, size = part
                message = PublicationMessage(publication, batch.hops)
                self._on_message(neighbour, message, size, now)

    def passed(self, count: int) -> None:
        """So many publications went to their recipients."""
        self.steps += count
        self.router.matches_count += count

    def _obey(self, orders: Iterable[repair.Order], now: TimeUs) -> None:
        """Do what the repair of the tree asks for."""
        for order in orders:
            match order:
                case repair.Transmit(peer, message):
                    self.send(peer, message)
                case repair.Spread(message, sender):
                    self.spread(message, sender)
                case repair.Route():
                    self._route(order, now)
                case repair.Owe(number):
                    if self.onward is not None:
                        self.onward[repair.ONE] = number
                case repair.Probe(tree):
                    self._probe(tree)
                case repair.Choose(number, publication, groups):
                    self._choose(number, publication, groups, now)
                case repair.Hand(handoff, onward):
                    before, self.onward = self.onward, onward
                    self._pass_on(handoff, now)
                    self.onward = before

    def spread(self, message: Message, sender: BrokerId | None) -> None:
        for peer, neighbour in self.peers.items():
            if peer != sender and neighbour.link.up and neighbour.link.neighbour:
                self.send(peer, message)

    def _route(self, order: repair.Route, now: TimeUs) -> None:
        input: Input = Publish(order.publication)
        effects = self.router.step(input, now)
        self.steps += 1
        if order.onward is None:
            effects = [effect for effect in effects if type(effect) is Deliver]
            self.perform(input, effects, now)
            return
        if not order.deliver:  # own clients have it already
            input = Received(PublicationMessage(order.publication, 0), self.number)
            effects = [effect for effect in effects if type(effect) is not Deliver]
        before, self.onward = self.onward, order.onward
        self.perform(input, effects, now)
        self.onward = before

    def _probe(self, tree: TreeId) -> None:
        def answered(later: TimeUs, all_answered: bool) -> bool:
            assert self.repair is not None
            waits = self.repair.answered(tree, all_answered, later)
            if self.repair.settled():
                self.clients.luggage.joined(later)
            return waits

        self.settle(answered)

    def perform(self, input: Input, effects: list[Effect], now: TimeUs) -> bool:
        sent = False
        at, end = 0, len(effects)
        traces = self.traces
        if traces is not None and (
            _recorded(traces, input) or (effects and type(effects[0]) is Note)
        ):  # what is only said again, after a restart, has no effects
            done = effects if self._replayed is None else ()
            traces.stepped(input, done, now, self._holds)
        while at < end:
            effect = effects[at]
            if type(effect) is Deliver:
                at = self.clients.deliver(effects, at, now)
                continue
            at += 1
            if type(effect) is Send:
                sent = True
                self.send(effect.peer, effect.message)
                continue
            match effect:
                case SetTimer(name, after_us):
                    self._set_timer(name, after_us)
                case CancelTimer(name):
                    self._timers.pop(name, None)
                case Note(text):
                    self.notes += 1
                    log.info("note", extra={"note": text})
                case Deliver() | Send():
                    pass  # seen to above
                case Move():
                    self.clients.follow(self.clients.moves.move(effect), now)
                case Resume():
                    self.clients.follow(self.clients.moves.go_on(effect), now)
                case Ping(advertisement_id, brokers, links):
                    along_us = self._along_tree_us(links)
                    times_us = {other: along_us[other] for other in brokers}
                    self.pings.append((brokers, partial(self._pinged, advertisement_id, times_us)))
                case Measure():
                    links_us = self.plan.links()[self.number]
                    output = tuple(
                        (peer, self._delay_us(peer, us)) for peer, us in links_us.items()
                    )
                    self._answer(Measured(0, 0, output))
        return sent

    def _delay_us(self, peer: BrokerId, assumed_us: TimeUs) -> TimeUs:
        """The latency of a link as heartbeats measured it, or as the plan assumes."""
        measured = self.peers[peer].link.delay_us if peer in self.peers else None
        return assumed_us if measured is None else measured

    def take_pings(self) -> list[Pings]:
        pings, self.pings = self.pings, []
        return pings

    def _pinged(
        self,
        advertisement_id: AdvertisementId,
        along_us: Mapping[BrokerId, TimeUs],
        measured_us: Mapping[BrokerId, TimeUs],
        now: TimeUs,
    ) -> None:
        """The way to brokers as the driver measured it, and else along the tree."""
        self.step(Pinged(advertisement_id, tuple({**along_us, **measured_us}.items())), now)

    def _along_tree_us(self, links: Iterable[tuple[BrokerId, BrokerId, TimeUs]]) -> list[TimeUs]:
        """The latency to every broker along the tree, from measured links where there are any."""
        measured = {(source, peer): us for source, peer, us in links}
        tree = self.plan.links()
        times_us = [-1] * len(tree)
        times_us[self.number], more = 0, [self.number]
        while more:
            at = more.pop()
            for peer, assumed_us in tree[at].items():
                if times_us[peer] < 0:
                    way_us = measured.get((at, peer), assumed_us)
                    if at == self.number:
                        way_us = self._delay_us(peer, assumed_us)
                    times_us[peer] = times_us[at] + way_us
                    more.append(peer)
        return times_us

    def _answer(self, input: Input) -> None:
        """Give the router an answer once this step is over."""
        self.after(1, lambda later: self._take(input, later))

    def _take(self, input: Input, now: TimeUs) -> None:
        self.step(input, now)

    def _set_timer(self, name: str, after_us: TimeUs) -> None:
        self._sequence += 1
        stamp = self._timers[name] = self._sequence

        def fire(now: TimeUs) -> None:
            if self._timers.get(name) == stamp:
                del self._timers[name]
                self.step(TimerFired(name), now)

        heapq.heappush(self._heap, (self.now + after_us, stamp, fire))

    def send(self, peer: BrokerId, message: Message) -> None:
        self.outgoing.close()
        self._send(peer, message)

    def _send(self, peer: BrokerId, message: Message) -> None:
        if self._replayed is not None:
            self._replayed.append((peer, message))
            return
        neighbour = self.peers.get(peer)
        if neighbour is None:  # a message that leaves the tree
            link = Link(self.number, peer, self.boot, False)
            neighbour = self.peers[peer] = Neighbour(link, False)
        link = neighbour.link
        last, data = self._encoded
        if message is not last:
            data = self.codec.encode(message)
            self._encoded = (message, data)
        link.send(data)
        if type(message) is SubscriptionMessage:
            link.asked = link.base + len(link.queue)
        if self.journal is not None and link.neighbour:
            number = link.base + len(link.queue)
            if self.onward is not None and isinstance(message, CAUSES):
                self.onward[peer] = number
            self.journal.put("queue", peer, number, data)
            self._note("told", peer, message, data)
        kind = message.kind
        neighbour.sent[kind] = neighbour.sent.get(kind, 0) + 1
        traces = self.traces
        if traces is not None and not (
            type(message) is PublicationMessage and not traces.sampled(message.publication)
        ):
            traces.sent(peer, message, len(data), len(link.queue), self.now)
        if not self.congested and link.full:
            self.congested = True

    # Waves: when has all that was said arrived everywhere?

    def settle(self, then: Reached) -> None:
        """Call back once all that was sent until now has reached the whole network, or time is up.

        A wave is lost with the tree it began in. So where trees are repaired others follow it: a
        link that falls silent is found out later than one wave is waited for.
        """
        until_us = self.now + REPAIR_US

        def again(now: TimeUs, reached: bool) -> bool | None:
            return True if not reached and now < until_us else then(now, reached)

        self._settling.append(then if self.repair is None else again)

    def _begin_wave(self, now: TimeUs) -> None:
        then, self._settling = self._settling, []
        peers = {peer for peer, n in self.peers.items() if n.link.up and n.link.neighbour}
        if not peers:
            for act in then:
                act(now, True)
            return
        self._wave += 1
        number = self._wave
        self._waves[self.number, number] = (None, peers)
        self._settled[number] = then
        for peer in sorted(peers):
            self.send(peer, Wave(self.number, number, self._tree_id()))
        self.after(SETTLE_US, lambda later: self._end_wave(number, False, later))

    def _end_wave(self, number: int, reached: bool, now: TimeUs) -> None:
        acts = self._settled.pop(number, [])
        waiting = [act for act in acts if act(now, reached) and not reached]
        if waiting and self.journal is not None and self.repair is None:
            self._settled[number] = waiting  # every broker keeps the wave until it is answered
            return
        self._waves.pop((self.number, number), None)
        self._settling += waiting

    def _note_wave(self, key: WaveKey) -> None:
        """Keep another broker's wave, or no longer. Where trees change, waves begin again."""
        if self.journal is None or self.repair is not None or key[0] == self.number:
            return
        parent, awaited = self._waves.get(key, (None, None))
        if parent is None or awaited is None:
            self.journal.drop("wave", *key)
        else:
            self.journal.put("wave", *key, WaveRow(parent, sorted(awaited)))

    def _on_wave(self, wave: Wave, sender: BrokerId, now: TimeUs) -> None:
        if self.repair is not None:
            self.repair.begin(wave.origin, wave.tree)
        if self.repair is not None and not self.repair.joined(self._trees()):
            self._early.append((wave, sender))  # until it can go everywhere it has to
            return
        echo = Echo(wave.origin, wave.number)
        if wave.origin == self.number or self._seen.get(wave.origin, 0) >= wave.number:
            self.send(sender, echo)
            return
        self._seen[wave.origin] = wave.number
        onward = {
            peer
            for peer, n in self.peers.items()
            if peer != sender and n.link.up and n.link.neighbour
        }
        if not onward:
            self.send(sender, echo)
            return
        key = (wave.origin, wave.number)
        self._waves[key] = (sender, onward)
        self._note_wave(key)
        if len(self._waves) > WAVES_MAX:  # the oldest passes through a broker that has forgotten it
            oldest = next(iter(self._waves))
            del self._waves[oldest]
            self._note_wave(oldest)
        for peer in sorted(onward):
            self.send(peer, wave)

    def _on_echo(self, key: WaveKey, sender: BrokerId, now: TimeUs) -> None:
        parent, awaited = self._waves.get(key, (None, None))
        if awaited is None:
            return
        awaited.discard(sender)
        if awaited:
            self._note_wave(key)
            return
        del self._waves[key]
        self._note_wave(key)
        if key[0] == self.number:
            self._end_wave(key[1], True, now)
        elif parent in self.peers:
            self.send(parent, Echo(*key))

    # Retained publications: every broker keeps them all, the newest version of each topic.

    def retain(self, topic: str, kept: bytes, attributes: dict[str, Scalar], now: TimeUs) -> None:
        version, _ = self.retained[topic].version if topic in self.retained else (0, 0)
        message = Retain(topic, (max(now, version + 1), self.number), kept, attributes)
        self._keep(message, None)

    def _keep(self, message: Retain, sender: BrokerId | None) -> None:
        known = self.retained.get(message.topic)
        if known is not None and known.version >= message.version:
            return
        self._put_retained(message)
        if self.journal is not None:
            self.journal.put("retained", 0, message.topic, self.codec.encode(message))
        self._sweep(self.now)
        self.spread(message, sender)

    def _put_retained(self, message: Retain) -> None:
        """Replace the retained publication of its topic."""
        topic = message.topic
        known = self.retained.get(topic)
        before = 0 if known is None else len(known.kept)
        self.retained_bytes += len(message.kept) - before
        self.retained[topic] = message
        was_absent = self.absent.pop(topic, 0)
        self.removed.pop(topic, None)
        if not message.kept:
            # What was never retained here may be elsewhere, where word of it is still on its way.
            unknown = known is None or bool(was_absent)
            (self.absent if unknown else self.removed)[topic] = min(self.now, message.version[0])

    def _sweep(self, now: TimeUs) -> None:
        """Drop tombstones that have expired, and the oldest beyond the limit."""
        most = self.network.limits.retained
        for removed, count_max in ((self.removed, most), (self.absent, min(most, ABSENT_MAX))):
            while removed:
                topic = next(iter(removed))
                alone = removed is self.absent and not self.peers
                if len(removed) <= count_max and now - removed[topic] <= TOMBSTONE_US and not alone:
                    break
                removed.popitem(last=False)
                del self.retained[topic]
                if self.journal is not None:
                    self.journal.drop("retained", 0, topic)

    def _on_versions(self, theirs: dict[str, tuple[int, int]], sender: BrokerId) -> None:
        for topic, kept in self.retained.items():
            if kept.version > theirs.get(topic, (0, 0)):
                self.send(sender, kept)

    # Shared subscriptions: one copy for each group, which is its holder's to give (edge/shares.py).

    def _state_members(self, groups: Iterable[str], now: TimeUs) -> None:
        names = list(groups)
        for at in range(0, len(names), STATED_MAX):
            counts = self.clients.members(names[at : at + STATED_MAX])
            members = self.shares.state(counts, now)
            if members is not None:
                self._learn_members(members, None)

    def _on_members(self, members: Members, sender: BrokerId) -> None:
        if not self.network.has(members.broker):
            return
        if members.broker != self.number:
            self._learn_members(members, sender)
        elif self.shares.versions.get(self.number, 0) < members.version:
            # What was so before a restart: what counts is what is so now.
            version = max(self.now, members.version + 1)
            self._learn_members(self.shares.whole(self.number, version), None)

    def _learn_members(self, members: Members, sender: BrokerId | None) -> None:
        if self.shares.learn(members):
            if self.journal is not None:
                self._keep_members(self.journal, members)
            self.spread(members, sender)

    def _keep_members(self, journal: Journal, members: Members) -> None:
        owner = -1 - members.broker  # those of handoffs are the brokers themselves
        if members.before < 0:
            journal.clear("share", owner)
        for name in members.gone:
            journal.drop("share", owner, name)
        for name, (pattern, filter, count, ready) in members.groups.items():
            journal.put("share", owner, name, (pattern, str(filter), count, ready))
        journal.put("share", owner, "", members.version)

    def _restore_members(self, kept: Kept) -> None:
        for owner, rows in kept.by_owner("share").items():
            if owner < 0 and self.network.has(-1 - owner):
                version, groups = 0, {}
                for name, data in rows:
                    if name:
                        pattern, text, count, ready = msgspec.msgpack.decode(data)
                        groups[name] = (pattern, parse(text), count, ready)
                    else:
                        version = msgspec.msgpack.decode(data, type=int)
                self.shares.learn(Members(-1 - owner, version, groups))
        self.clients.regrouped.update(dict.fromkeys(self.shares.stated.get(self.number, {})))

    def _find_ways(self) -> dict[BrokerId, tuple[BrokerId, int]]:
        """By broker, over which neighbour and how many links it is reached."""
        as_of: object = self.network if self.repair is None else self.repair.tree
        if self._ways_of is as_of:
            return self._ways
        beside: dict[BrokerId, list[BrokerId]] = {}
        if self.repair is None and not self._tree and not self.network.grows:
            pairs = [(a, b) for a, peers in enumerate(self.plan.links()) for b in peers]
        else:
            chosen = self.network.pairs if self.repair is None else self.repair.tree.links
            pairs = [pair for a, b in chosen for pair in ((a, b), (b, a))]
        for a, b in pairs:
            beside.setdefault(a, []).append(b)
        ways = {peer: (peer, 1) for peer in sorted(beside.get(self.number, []))}
        more = list(ways)
        for at in more:
            for further in sorted(beside.get(at, [])):
                if further not in ways and further != self.number:
                    ways[further] = (ways[at][0], ways[at][1] + 1)
                    more.append(further)
        self._ways, self._ways_of = ways, as_of
        return ways

    def _distances(self) -> dict[BrokerId, int]:
        """How far members' brokers are; those that cannot be reached now are further than any."""
        distances = {self.number: 0}
        for broker, (hop, distance) in self._find_ways().items():
            neighbour = self.peers.get(hop)
            joined = neighbour is not None and neighbour.link.connected
            distances[broker] = distance if joined else distance + AWAY
        if self.repair is not None:  # those that the tree leaves out are waited for
            for broker in self.network.members:
                distances.setdefault(broker, 2 * AWAY)
        return distances

    def share(self, handoff: Handoff, now: TimeUs) -> None:
        """Give a publication that this broker holds to a member of its group: one here that is
        ready, or another broker's, or one here that is not."""
        if self.clients.take(handoff, now, True):
            return
        if handoff.tries > TRIES_MAX:
            self.clients.unshared(handoff)
            return
        keeps = self.repair is not None and self.journal is not None and handoff.kept[0] & 6
        if not keeps:
            self._hand_over(handoff, now)
            return
        assert self.repair is not None
        publication = Publication(handoff.publisher, handoff.id, {}, handoff.kept, handoff.time_us)
        self._obey(self.repair.post(publication, handoff.group, handoff.tries), now)

    def can_share(self, group: str) -> bool:
        """Whether another broker has a member that is ready."""
        return self.shares.ready(group, self._distances(), self.number)

    def _hand_over(self, handoff: Handoff, now: TimeUs) -> None:
        """Give it to a member here, or pass it on; it is lost if there is no member anywhere."""
        target = self._target(handoff, now)
        if target is not None:
            self._pass_on(replaced(handoff, target=target), now)

    def _target(self, handoff: Handoff, now: TimeUs) -> BrokerId | None:
        """The other broker that is to have it; None if a member here has it, or there is none."""
        distances = self._distances()
        target = self.shares.choose(handoff.group, distances)
        if target == self.number:
            if self.clients.take(handoff, now):
                return None
            target = self.shares.choose(handoff.group, distances, (self.number,))
        if target is None and not self.clients.take(handoff, now):
            self.clients.unshared(handoff)
        return target

    def _choose(
        self, number: int, publication: Publication, groups: list[str] | None, now: TimeUs
    ) -> None:
        assert self.repair is not None
        if groups is None:
            groups = self.shares.matching(publication.attributes) if self.shares.groups else []
        targets: dict[str, BrokerId] = {}
        for group in groups:
            target = self._target(_handoff(publication, group), now)
            if target is not None:
                targets[group] = target
        self._obey(self.repair.chosen(number, targets, bool(groups)), now)

    def _pass_on(self, handoff: Handoff, now: TimeUs) -> None:
        hop, _ = self._find_ways().get(handoff.target, (None, 0))
        if hop is not None:
            self.send(hop, handoff)
        elif not handoff.key:  # otherwise who keeps it sends it again
            self.clients.unshared(handoff)

    def _on_handoff(self, handoff: Handoff, now: TimeUs) -> None:
        Letter(handoff.kept)  # refuse what could never be delivered
        if handoff.target != self.number:
            hop, _ = self._find_ways().get(handoff.target, (-1, 0))
            stuck = hop not in self.peers or not self.peers[hop].link.connected
            if self.repair is not None or not (stuck and self.can_share(handoff.group)):
                self._pass_on(handoff, now)
                return
        elif handoff.key and self.repair is not None and self.journal is not None:
            if handoff.origin not in self.network.members or not self.repair.is_news(handoff):
                return
            handoff = replaced(handoff, id=self.clients.new_id())
        # It is this broker's now. Where it goes from here nobody waits for: that may be back, and
        # the brokers on the way would wait in a circle.
        self.onward = None
        if not self.clients.take(handoff, now, handoff.target != self.number):
            self.share(replaced(handoff, tries=handoff.tries + 1), now)

    # Sessions that move (edge/homes.py).

    @property
    def orderly(self) -> bool:
        """Whether what is published keeps to the links of a tree, first in, first out."""
        return self.network.scheme in DURABLE and self.network.relocation is None

    def tell(self, message: SessionMessage, again: bool) -> None:
        """Send a message on its way to the broker that it is for."""
        hop, _ = self._find_ways().get(message.target, (None, 0))
        neighbour = None if hop is None else self.peers.get(hop)
        away = neighbour is None or not neighbour.link.connected
        if hop is not None and neighbour is not None and not (again and away):
            self.send(hop, message)

    def may_come_again(self) -> list[str]:
        return [] if self.repair is None or self.journal is None else self.repair.may_come_again()

    def may_owe(self) -> list[BrokerId]:
        return [] if self.repair is None or self.journal is None else self.network.members

    def quiet(self, broker: BrokerId) -> bool:
        return self.repair is None or self.repair.quiet(broker)

    def kept_publications(self) -> list[Publication]:
        return [] if self.repair is None else self.repair.kept_publications()

    def past(self, publication: str) -> bool:
        return self.repair is None or self.journal is None or self.repair.past(publication)

    # Links.

    def to_dial(self, now: TimeUs) -> list[BrokerId]:
        """The peers to dial now: neighbours with higher numbers, and targets of direct messages."""
        peers = []
        for peer, neighbour in self.peers.items():
            if neighbour.wire is not None or neighbour.dialling or now < neighbour.dial_us:
                continue
            link = neighbour.link
            if (self.number < peer) if neighbour.lasting else bool(link.queue):
                neighbour.dialling = True
                peers.append(peer)
        return peers

    def dial_failed(self, peer: BrokerId, now: TimeUs) -> None:
        self.now = now
        if peer in self.peers:
            self._back_off(self.peers[peer], now)

    def _back_off(self, neighbour: Neighbour, now: TimeUs) -> None:
        neighbour.dialling = False
        neighbour.dial_us = now + neighbour.backoff_us
        neighbour.backoff_us = min(2 * neighbour.backoff_us, BACKOFF_US[1])

    def wire_opened(
        self, address: str, dialled: BrokerId | None, now: TimeUs, certified: str | None = None
    ) -> Wire:
        self.now = now
        wire = Wire(address, dialled, certified, now)
        if dialled is None and not self._let_in(wire, now):
            return wire
        self.wires[wire] = None
        if self.secret is not None and dialled in (None, *self.peers):
            if dialled is None:
                wire.challenge = secret.nonce()
                wire.out.append(links.pack(links.Challenge(wire.challenge)))
        elif dialled in self.peers:
            self._say_hello(wire, self.peers[dialled].link)
        elif dialled is not None:
            self._drop(wire, "the peer was removed", now)
        return wire

    def _let_in(self, wire: Wire, now: TimeUs) -> bool:
        allowed, goes = self.strangers.arrived(wire, wire.address, self.network.limits, now)
        if isinstance(goes, Wire):
            self.refused_wires += 1
            self._drop(goes, "too many connections that say nothing", now)
        if not allowed:
            self._refuse(wire, "too many from this address", now)
            wire.closing = True
            self._closing.append(wire)
        return allowed

    def _refuse(self, wire: Wire, reason: str, now: TimeUs) -> None:
        self.refused_wires += 1
        if wire.dialled is not None or wire.link is not None or self.strangers.may_log(now):
            log.warning("broker refused", extra={"address": wire.address, "reason": reason})

    def _proof(self, wire: Wire, peer: BrokerId, mine: bool) -> bytes:
        """The proof of the secret that one end of a connection sends the other."""
        if self.secret is None:
            return b""
        dials = wire.dialled is not None
        dialler, dialled = (self.number, peer) if dials else (peer, self.number)
        return secret.proof(
            self.secret, self.network.identity, dialler, dialled, wire.challenge, wire.nonce,
            dials == mine,
        )  # fmt: skip

    def _tree_id(self) -> TreeId:
        return (0, 0) if self.repair is None else self.repair.tree.id

    def _trees(self) -> Iterable[TreeId | None]:
        """In which tree messages were last exchanged with each neighbour in the present one."""
        return (n.tree for n in self.peers.values() if n.link.neighbour)

    def _say_news(self, repair: Repair, now: TimeUs) -> None:
        """Write news of the tree to the peers' wires, and something now and then."""
        for peer, neighbour in self.peers.items():
            wire = neighbour.wire
            if wire is None:
                continue
            news = repair.news(peer)
            if news is not None or now - wire.beat_us >= BEAT_US:
                wire.beat_us = now
                wire.out.append(links.pack(news or links.News(None, [])))

    def _say_hello(self, wire: Wire, link: Link) -> None:
        wire.tree, wire.name = self._tree_id(), link.mine
        hello = link.hello(self.network.identity, self.speaks, wire.tree, self.standing)
        if self.secret is not None and wire.link is None:
            nonce = wire.nonce if wire.dialled is not None else b""
            hello = replace(hello, nonce=nonce, proof=self._proof(wire, link.peer, True))
        wire.out.append(links.pack(hello))

    def _on_challenge(self, wire: Wire, challenge: links.Challenge) -> None:
        if self.secret is None:
            raise Refused("asks for the network's secret, and this broker has none")
        if wire.dialled not in self.peers or wire.challenge or len(challenge.nonce) != secret.BYTES:
            raise Refused("a challenge that was not expected")
        wire.challenge, wire.nonce = challenge.nonce, secret.nonce()
        self._say_hello(wire, self.peers[wire.dialled].link)

    def wire_received(self, wire: Wire, data: bytes, now: TimeUs) -> None:
        self.now = now
        self.outgoing.close()
        if wire.closing:
            return
        wire.heard_us = now
        wire.buffer += data
        try:
            most = strangers.FRAME_MAX if wire in self.strangers else links.FRAME_MAX
            for frame in links.unpack(wire.buffer, most):
                if isinstance(frame, links.Hello):
                    self._on_hello(wire, frame, now)
                elif isinstance(frame, links.Challenge):
                    self._on_challenge(wire, frame)
                elif isinstance(frame, links.Bye):
                    if frame.reason != links.LEAVING or wire.link is None:
                        raise Refused(f"the peer said goodbye: {frame.reason[:200]}")
                    self.peers[wire.link.peer].left = True
                    self._drop(wire, "the peer shuts down", now)
                    return
                elif wire.link is None:
                    raise Refused("data before hello")
                elif isinstance(frame, links.News):
                    if self.repair is not None:
                        self.repair.heard(wire.link.peer, frame, now)
                elif wire.link.connected:  # otherwise it is of another tree
                    self._on_frame(wire.link, frame, now)
        except Refused as error:
            wire.out.append(links.pack(links.Bye(str(error))))
            self._refuse(wire, str(error), now)
            if wire.link is not None:  # it would likely be refused again
                self.peers[wire.link.peer].backoff_us = REFUSED_US
            self._drop(wire, str(error), now)

    def _on_frame(self, link: Link, frame: links.Data | links.Ack, now: TimeUs) -> None:
        neighbour = self.peers[link.peer]
        new = link.on_frame(frame, now)
        for number, data in enumerate(new, link.received - len(new) + 1):
            try:
                message = self.codec.decode(data)
                # Only a publication passes on publications, also one for a group: what a client
                # published while it waited for an echo did not come from there, and must not be
                # waited for in a circle.
                self.onward = {} if isinstance(message, CAUSES) else None
                if self.journal is not None and link.neighbour:
                    self._note("heard", link.peer, message, bytes(data))
                self._on_message(neighbour, message, len(memoryview(data)), now)
            except (BadMessage, Malformed) as error:
                raise Refused(f"not a message: {error}") from None
            if self.onward and self.journal is not None:
                neighbour.pending.append((number, self.onward))
                neighbour.unwritten.append((number, self.onward))
        self.onward = None

    def _on_message(self, neighbour: Neighbour, message: Message, size: int, now: TimeUs) -> None:
        if type(message) is RunMessage:
            self._on_run(neighbour, message, now)
            return
        if type(message) is BatchMessage:
            self._on_batch(neighbour, message, now)
            return
        if type(message) is ListedBatchMessage:
            for publication, length in self.clients.runs.listed(message):
                self._on_message(
                    neighbour, PublicationMessage(publication, message.hops), length, now
                )
            return
        sender = neighbour.link.peer
        kind = message.kind
        neighbour.received[kind] = neighbour.received.get(kind, 0) + 1
        traces = self.traces
        if traces is not None and not (
            type(message) is PublicationMessage and not traces.sampled(message.publication)
        ):
            traces.received(sender, message, size, None, now)
        if type(message) is PublicationMessage and not (  # by far the most
            self.repair is not None and self.repair.keeps(message.publication)
        ):
            self.hand_on(message.publication, sender, message.hops)
        elif isinstance(message, Retain):
            if message.kept:
                Letter(message.kept)  # refuse now what could never be delivered
            self._keep(message, sender)
        elif isinstance(message, Wave):
            self._on_wave(message, sender, now)
        elif isinstance(message, Echo):
            self._on_echo((message.origin, message.number), sender, now)
        elif isinstance(message, RetainedVersions):
            self._on_versions(message.versions, sender)
        elif isinstance(message, Handoff):
            self._on_handoff(message, now)
        elif isinstance(message, Members):
            self._on_members(message, sender)
        elif isinstance(message, SessionMessage) and message.target != self.number:
            self.tell(message, False)
        elif isinstance(message, SessionMessage | Residents | ResidentsVersions):
            self.clients.luggage.on_message(message, sender, now)
        elif self.repair is None:
            self.step(Received(message, sender), now)
        elif type(message) is PublicationMessage:
            input = Received(message, sender)
            effects = self.router.step(input, now)
            self.steps += 1
            lacks = self.clients.lacks
            effects = self.repair.received(message.publication, effects, now, lacks)
            self.perform(input, effects, now)
        else:
            orders = self.repair.on_message(message, sender, now)
            if orders is None:
                self.step(Received(message, sender), now)
            else:
                self._obey(orders, now)

    def _on_hello(self, wire: Wire, hello: links.Hello, now: TimeUs) -> None:
        if wire.link is not None:
            # The peer is in another tree now, and says where it begins there.
            if self.repair is None or hello.broker != wire.link.peer or wire.hello is None:
                raise Refused("a second hello")
            if hello.tree <= wire.hello.tree:
                raise Refused("a second hello in the same tree")
            wire.hello = hello
            self._open(wire, wire.link, now)
            return
        version = links.agreed(hello, self.speaks)
        if hello.network != self.network.identity:
            raise Refused(f"belongs to {hello.network[:80]!r}, not {self.network.identity!r}")
        peer = hello.broker
        known = peer in self.network.members and peer != self.number
        if not known or wire.dialled not in (None, peer):
            raise Refused(f"broker {peer} was not expected here")
        if self.network.tls is not None:
            name = common_name(self.network.names[peer], self.network.name)
            if wire.certified != name:
                raise Refused(f"its certificate is for {wire.certified!r}, not {name!r}")
        if self.secret is not None:
            if wire.dialled is None:
                wire.nonce = hello.nonce
            proven = secret.proves(hello.proof, self._proof(wire, peer, False))
            if not proven or len(wire.nonce) != secret.BYTES:
                raise Refused("does not prove that it knows the network's secret")
        self.strangers.known(wire)
        neighbour = self.peers.get(peer)
        if neighbour is None:
            link = Link(self.number, peer, self.boot, False)
            neighbour = self.peers[peer] = Neighbour(link, False)
        dialler = self.number if wire.dialled is not None else peer
        if self.repair is None:
            try:
                neighbour.link.resumes(hello)  # before anything is changed for it
            except Refused:
                if self.journal is not None:  # the stores may tell both ends why
                    if wire.tree != self._tree_id():
                        self._say_hello(wire, neighbour.link)
                    self._compare_stores(neighbour, hello)
                raise
        if neighbour.wire is not None:
            if dialler != neighbour.dialler and dialler > neighbour.dialler:
                raise Refused("there is a connection already")
            self._drop(neighbour.wire, "replaced by a newer connection", now)
        link = neighbour.link
        if wire.tree != self._tree_id():
            self._say_hello(wire, link)
        if self.journal is not None:
            self._compare_stores(neighbour, hello)
        wire.link, wire.hello = link, hello
        neighbour.wire, neighbour.dialler = wire, dialler
        neighbour.dialling, neighbour.backoff_us = False, BACKOFF_US[0]
        neighbour.left, neighbour.version = False, version
        if self.repair is not None:
            self.repair.connected(peer, now)
        self._open(wire, link, now)

    def _compare_stores(self, neighbour: Neighbour, hello: links.Hello) -> None:
        """Nothing may go on with a store that is behind what its broker has told: not this broker,
        if it is its own, and no link, if it is the peer's, which finds the same in our hello."""
        link, name = neighbour.link, self.network.names[hello.broker]
        why = link.behind(hello)
        if why is None and self.standing is not None and hello.known is not None:
            why = self.standing.behind(hello.known)
        if why is not None:
            self.failure = (
                f"broker {self.name} is behind what broker {name} knows of it: {why}; "
                f"to join again without what is lost: "
                f"postroad store reset {self.network.path} {self.name}"
            )
            raise Refused("this broker is behind what the other knows of it")
        if hello.store is not None and link.known is not None:
            why = hello.store.behind(link.known)
        if why is None and link.up and hello.received < link.base and hello.yours == link.mine:
            why = f"it has received {hello.received} messages, and acknowledged {link.base}"
        if why is not None:
            neighbour.refused = why
            raise Refused(f"broker {name} is behind what it has told: {why}")
        neighbour.refused = None
        link.met(hello)

    def _open(self, wire: Wire, link: Link, now: TimeUs) -> None:
        """Exchange messages over a connection, if both ends are in one tree and it has the link."""
        hello, peer = wire.hello, link.peer
        assert hello is not None
        if self.repair is not None and not (link.neighbour and self.repair.is_in(hello.tree)):
            return
        if wire.name != link.mine:
            raise Refused("this end has started afresh since it said hello")
        queue, dropped = list(link.queue) if self.traces is not None else [], link.dropped
        opened = link.on_hello(hello, now)
        self._trace_lost(peer, queue[: link.dropped - dropped], now)
        self.peers[peer].tree = hello.tree
        log.info(
            "link up",
            extra={
                "peer": self.network.names[peer],
                "resumed": not opened.fresh,
                "version": self.peers[peer].version,
            },
        )
        if opened.fresh and link.neighbour:
            self._forget_link(peer)
            if opened.was_up:
                self._link_down(peer, now)
            self.step(LinkUp(peer), now)
            versions = {topic: kept.version for topic, kept in self.retained.items()}
            self.send(peer, RetainedVersions(versions))
            for broker in self.shares.versions:
                self.send(peer, self.shares.whole(broker))
            self.clients.luggage.greet(peer, now)
            if self.repair is not None:
                self._obey(self.repair.greet(peer), now)
        if self._early and self.repair is not None and self.repair.joined(self._trees()):
            early, self._early = self._early, []
            for wave, sender in early:
                self._on_wave(wave, sender, now)

    def change(self, network: Network, now: TimeUs) -> None:
        """Take up a network with other brokers and links."""
        self.network, self.now = network, now
        within = {a + b - self.number for a, b in network.pairs if self.number in (a, b)}
        for peer in sorted(within - set(self.peers)):
            link = Link(self.number, peer, self.boot, self.repair is None)
            link.patience_us = None if self.journal is not None else link.patience_us
            self.peers[peer] = Neighbour(link, True)
        for peer, neighbour in list(self.peers.items()):
            if not neighbour.lasting and peer not in network.members and self.repair is None:
                self._part(peer, now)
            elif neighbour.lasting and peer not in within:
                neighbour.lasting = False
                if self.repair is None and neighbour.link.up:
                    self._give_up(neighbour, "the peer was removed", now)
                if self.repair is None or not neighbour.link.neighbour:
                    self._part(peer, now)  # one in the tree leaves with it
        if self.repair is not None:
            self.repair.change(network)
        self.clients.luggage.forget(now)
        for broker in [b for b in self.shares.versions if not network.has(b)]:
            self.shares.forget(broker)
            if self.journal is not None:
                self.journal.clear("share", -1 - broker)

    def _part(self, peer: BrokerId, now: TimeUs) -> None:
        neighbour = self.peers[peer]
        if neighbour.wire is not None:
            self._drop(neighbour.wire, "the peer was removed", now)
        del self.peers[peer]
        if self.journal is not None:
            self.journal.clear("link", peer)
            self.journal.clear("cause", peer)

    def _regroup(self, neighbours: set[BrokerId], grown: bool, now: TimeUs) -> None:
        """Another tree carries the traffic from now: start from nothing with these neighbours.

        One that has `grown` leads nobody another way: then links go on as they were.
        """
        self._replayed = []  # who is left need not be told goodbye
        for peer, neighbour in self.peers.items():
            if neighbour.link.up and not grown:
                self.step(LinkDown(peer), now)
        self._replayed = None
        self._waves.clear()
        self._early.clear()
        for then in self._settled.values():
            self._settling += then
        self._settled.clear()
        for peer, neighbour in list(self.peers.items()):
            link, wire = neighbour.link, neighbour.wire
            link.connected = False  # until the peer is in the tree, too
            if link.neighbour and not grown:
                self._trace_lost(peer, link.queue, now)
                link.give_up()
                self._forget_link(peer)
            if not neighbour.lasting:
                self._part(peer, now)
                continue
            link.neighbour = peer in neighbours
            if wire is not None:
                self._say_hello(wire, link)
                self._open(wire, link, now)

    def wire_closed(self, wire: Wire, now: TimeUs) -> None:
        """The driver lost the connection, or finished closing it."""
        self.now = now
        self.outgoing.close()
        self._drop(wire, "connection lost", now)

    def _drop(self, wire: Wire, reason: str, now: TimeUs) -> None:
        if wire not in self.wires:
            return
        del self.wires[wire]
        wire.closing = True
        self.strangers.gone(wire)
        peer = wire.link.peer if wire.link is not None else wire.dialled
        if peer is not None or self.strangers.may_log(now):
            log.info(
                "connection to a broker ended",
                extra={
                    "peer": None if peer is None else self.network.names[peer],
                    "address": wire.address,
                    "reason": reason,
                },
            )
        self._closing.append(wire)
        neighbour = None if peer is None else self.peers.get(peer)
        if peer is None or neighbour is None:
            return
        if neighbour.wire is wire:
            neighbour.wire = None
            neighbour.link.on_cut(now)
            if self.repair is not None:
                self.repair.cut(peer, now)
            self._back_off(neighbour, now)
        elif wire.dialled is not None and neighbour.wire is None:
            self._back_off(neighbour, now)

    def _give_up(self, neighbour: Neighbour, reason: str, now: TimeUs) -> None:
        link = neighbour.link
        log.warning(
            "link given up",
            extra={
                "peer": self.network.names[link.peer],
                "reason": reason,
                "lost": len(link.queue),
            },
        )
        self._trace_lost(link.peer, link.queue, now)
        link.give_up()
        if link.neighbour:
            self._forget_link(link.peer)
            self._link_down(link.peer, now)

    def _trace_lost(self, peer: BrokerId, queue: Iterable[bytes], now: TimeUs) -> None:
        """Record which publications a link that starts afresh does not carry any more."""
        if self.traces is not None:
            for data in queue:
                self.traces.lost(self.codec.decode(data), DOWN, now, peer)

    def _link_down(self, peer: BrokerId, now: TimeUs) -> None:
        self.step(LinkDown(peer), now)
        for key, (parent, awaited) in list(self._waves.items()):
            if parent == peer:
                del self._waves[key]
                self._note_wave(key)
            elif peer in awaited and self.repair is None:
                self._on_echo(key, peer, now)
            elif peer in awaited:  # not answered is not known: who began it begins again
                del self._waves[key]
                if key[0] == self.number:
                    self._end_wave(key[1], False, now)

    # What the driver does in the end.

    def flush(self, now: TimeUs) -> None:
        """Begin waves, move what is queued into the wires' buffers, see who may go on."""
        self.now = now
        self.outgoing.close()
        if self.repair is not None:
            change = self.repair.adopt(now)
            if change is not None:
                self._regroup(change.neighbours, change.grown, now)
            self._obey(self.repair.turn(self._trees()), now)
        if self.congested and not self._full():
            self.congested = False
            self.clients.resume(now)
        if self.clients.relieved:
            self.clients.go_on_publishing(now)
        if self.clients.regrouped:
            regrouped, self.clients.regrouped = self.clients.regrouped, {}
            self._state_members(regrouped, now)
        self.clients.luggage.news(now)
        joined = self.repair is None or self.repair.joined(self._trees())
        if self._settling and joined and self.router.settled():
            self._begin_wave(now)
        if self.journal is not None:
            self._see_what_is_safe()
        if self.clients.draining:
            self.clients.let_go(now)
        if self.clients.overflowed:
            self.clients.end_overflowed(now)
        self.outgoing.close()
        full = []  # of the tree: what leaves it may wait in a circle
        if self.congested:
            full = [n.link for n in self.peers.values() if n.link.neighbour and n.link.full]
        for neighbour in self.peers.values():
            link = neighbour.link
            # Grant a peer no more while what it sends could only pile up here. In a tree nobody
            # waits in a circle; on a ring one might, so there only publishers are held back.
            link.open = not self.clients.draining and not (
                self._tree and any(other is not link for other in full)
            )
            if neighbour.wire is not None:
                neighbour.wire.out.extend(link.frames(now, self.count))
        if self.repair is not None:
            self._say_news(self.repair, now)
        if self.journal is not None:
            self._note_links()

    def _full(self) -> bool:
        if self.repair is not None and self.repair.full():
            return True
        return any(n.link.full for n in self.peers.values())

    def drain(self, now: TimeUs) -> None:
        """Take no more from clients or peers; `drained` tells when all has been passed on."""
        self.clients.drain(now)
        self.step(Leave(), now)

    def drained(self) -> bool:
        """Whether clients are gone and peers have all that is for them.

        What is on disk need not wait for a peer that is away, and nothing for one that leaves too.
        """
        waited_for = (
            n
            for n in self.peers.values()
            if not n.left and (n.link.connected or self.journal is None)
        )
        if any(n.link.queue for n in waited_for) or not self.router.has_left():
            return False
        if self.repair is not None and self.repair.sends():
            return not any(n.link.connected and not n.left for n in self.peers.values())
        return all(connection.closing for connection in self.clients.connections)

    def leave(self, now: TimeUs) -> None:
        """Say goodbye to whoever is still there."""
        self.now = now
        self.clients.let_go(now, True)
        self.flush(now)
        for wire in list(self.wires):
            wire.out.append(links.pack(links.Bye(links.LEAVING)))
            self._drop(wire, "this broker shuts down", now)

    def take_closing(self) -> list[Wire]:
        """Connections to close once their buffers are written."""
        closing, self._closing = self._closing, []
        return closing


def _handoff(publication: Publication, group: str) -> Handoff:
    return Handoff(
        -1, group, publication.publisher, publication.id, publication.payload, publication.time_us
    )


def _published(input: Input) -> Publication | None:
    """The publication that an input is, if it is one and nothing else."""
    if type(input) is Publish:
        return input.publication
    if type(input) is Received and type(input.message) is PublicationMessage:
        return input.message.publication
    return None


def _recorded(traces: Traces, input: Input) -> bool:
    """Whether traces tell of an input: of most publications they do not."""
    publication = _published(input)
    return publication is None or traces.sampled(publication)


def _statement(message: Message) -> tuple[str, bool]:
    """What a message tells a neighbour for good, by name, and whether it says or withdraws it."""
    match message:
        case Wrapped():
            key, said = _statement(message.message)
            return f"{message.part} {key}" if key else "", said
        case SubscriptionMessage(filter):
            return f"s {filter}", True
        case UnsubscriptionMessage(filter):
            return f"s {filter}", False
        case AdvertisementMessage(advertisement):
            return f"a {advertisement.id}", True
        case UnadvertisementMessage(advertisement_id):
            return f"a {advertisement_id}", False
        case _:
            return "", False


def _withdrawal(message: Message) -> Message:
    if isinstance(message, Wrapped):
        return wrap(message.part, _withdrawal(message.message))
    if isinstance(message, SubscriptionMessage):
        return UnsubscriptionMessage(message.filter)
    assert isinstance(message, AdvertisementMessage)
    return UnadvertisementMessage(message.advertisement.id)
