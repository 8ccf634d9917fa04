"""What a broker does besides where links are redundant: it changes trees and loses nothing by it.

A change of tree is a start from nothing: every link that carried traffic is given up with what
was on its way, the router is told that all its neighbours are gone, and the neighbours of the new
tree come up as they join it. Only where a tree has merely grown do its old links go on.

Nothing acknowledged is lost because the broker of the publisher keeps each publication of quality
1 in its outbox until it has been safe everywhere within one tree: sent after a wave had come back
from all its members (so that the way to every subscriber was known), and said to be safe by every
neighbour it went to, all in that tree. After each change and its wave the outbox is sent again.
Nothing is delivered twice because every broker remembers what it has delivered until the
publisher's broker has let go of it (`low`).

Order is kept because in one tree nothing of quality 1 is sent before its wave has come back, and
then the outbox first, in order, and because a broker delivers only what was sent in its own tree,
which is what comes after that wave (`begun`): of the rest of an earlier tree it gets what it needs
again. So of what one broker sends in a tree every other gets a first part, in order, and in the
next tree what is missing before what is new. What comes late all the same passed before it was
asked for, kept only for a broker that was away; it is not delivered after what came later.

Brokers that the tree leaves out cannot answer. What their clients want is known to all (`Wants`),
so a publication that none of them wants is safe without them, and the others stay in the outbox.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from postroad.filters import Filter, matches, parse
from postroad.live.links import link as links
from postroad.live.links.messages import Begun, Codec, Wants, WantsChange, WantsVersions
from postroad.live.links.neighbour import Neighbour, Onward
from postroad.live.links.tree import NEVER, Spanning, Tree, TreeId
from postroad.live.network import Network
from postroad.live.store import Journal, Kept
from postroad.model import BrokerId, Publication, SubscriptionId, TimeUs
from postroad.routing.base import (
    Deliver,
    Effect,
    Input,
    Message,
    PublicationMessage,
    Publish,
    Received,
    Router,
    Subscribe,
    Unsubscribe,
)
from postroad.traces.schema import DUPLICATE, LATE

log = logging.getLogger("postroad.repair")

BEAT_US = 500_000  # something is said over every connection so often
SILENT_US = 3_000_000  # and one that has been silent for so long is dead
BEGUN = 1  # who owns, in the store's table of trees, those of `begun`
ONE = -1  # stands for a neighbour's number: a publication of the outbox


@dataclass(slots=True)
class OutboxEntry:
    """A publication that is not known to be safe yet."""

    publication: Publication
    key: str
    onward: dict[BrokerId, int] = field(default_factory=dict)  # where it went in this tree


class TreeRow(msgspec.Struct, array_like=True, frozen=True):
    tree: Tree
    settled: TreeId
    acquainted: bool


class WantsRow(msgspec.Struct, array_like=True, frozen=True):
    version: int


class TreeTraces(Protocol):
    """Where the repair of a tree is recorded."""

    def tree(self, epoch: TreeId, links: list[str], now: TimeUs) -> None: ...

    def stopped(self, publication: Publication, reason: str, now: TimeUs) -> None: ...


class RepairHost(Protocol):
    """What the repair of a tree needs of the broker whose part it is."""

    now: TimeUs
    steps: int
    onward: Onward | None  # what the publication in hand has caused so far
    congested: bool  # publishers have to wait

    @property
    def number(self) -> BrokerId: ...

    @property
    def boot(self) -> str: ...  # a name that no other start of any broker has

    @property
    def network(self) -> Network: ...

    @property
    def codec(self) -> Codec: ...

    @property
    def journal(self) -> Journal | None: ...  # None: nothing outlives the broker

    @property
    def peers(self) -> Mapping[BrokerId, Neighbour]: ...

    @property
    def router(self) -> Router: ...

    @property
    def traces(self) -> TreeTraces | None: ...

    def step(self, given: Input, now: TimeUs) -> bool: ...

    def perform(self, given: Input, effects: list[Effect], now: TimeUs) -> bool: ...

    def send(self, peer: BrokerId, message: Message) -> None: ...

    def settle(self, then: Callable[[TimeUs, bool], bool | None]) -> None: ...

    def is_safe(self, onward: Onward) -> bool: ...

    def regroup(self, neighbours: set[BrokerId], grown: bool, now: TimeUs) -> None: ...


class Repair:
    def __init__(self, broker: RepairHost, kept: Kept | None, now: TimeUs) -> None:
        self.broker = broker
        network = broker.network
        row = None
        for _, data in kept.of("tree", 0) if kept is not None else ():
            row = msgspec.msgpack.decode(data, type=TreeRow)
        self.spanning = Spanning(
            broker.number, network.members, network.pairs, network.revision, now,
            None if row is None else (row.tree, row.settled),
        )  # fmt: skip
        self.tree = self.spanning.tree
        # Whether it knows what those want whom it has not met: it has been in a tree with all, or
        # with one that knew.
        self.acquainted = row is not None and row.acquainted
        self._met = False  # one that knows is in this tree
        self.changes = 0
        self.outbox: dict[int, OutboxEntry] = {}
        self._numbers: dict[str, int] = {}  # there, by key
        self._on_the_way: dict[int, OutboxEntry] = {}  # those that may soon be known to be safe
        self._count = 0
        self._last = _key(f"{broker.boot}.0")[1]
        self._waiting = False  # for a wave that tells whether the tree is settled
        self._resend = False
        self.seen: dict[BrokerId, dict[str, None]] = {}
        self.begun: dict[BrokerId, TreeId] = {}  # in which what comes from each broker was sent
        self.versions: dict[BrokerId, int] = {}
        self.wants: dict[BrokerId, dict[str, None]] = {}
        self._absent: list[Filter] | None = None  # what brokers that are left out want
        self._own: Counter[str] = Counter()
        self._texts: dict[SubscriptionId, str] = {}
        self._restored = kept is None
        if kept is not None:
            self._restore(kept)

    # What is kept.

    def _restore(self, kept: Kept) -> None:
        for key, data in kept.of("outbox", 0):
            message = self.broker.codec.decode(data)
            assert isinstance(message, PublicationMessage)
            self._count += 1
            self.outbox[self._count] = OutboxEntry(message.publication, key)
            self._numbers[key] = self._count
        self._resend = bool(self.outbox)
        for origin, data in kept.of("tree", BEGUN):
            self.begun[origin] = msgspec.msgpack.decode(data, type=TreeId)
        for origin, rows in kept.by_owner("seen").items():
            self.seen[origin] = {key: None for key, _ in rows}
        for owner, rows in kept.by_owner("wants").items():
            for key, data in rows:
                if key:
                    self.wants.setdefault(owner, {})[key] = None
                else:
                    self.versions[owner] = msgspec.msgpack.decode(data, type=WantsRow).version

    def restored(self, now: TimeUs) -> None:
        """The clients' sessions are there again: say if they want anything else than before."""
        self._restored = True
        if self.wants.get(self.broker.number, {}).keys() != self._own.keys():
            version = max(now, self.versions.get(self.broker.number, 0) + 1)
            self._learn(Wants(self.broker.number, version, list(self._own)), None)

    def _keep_tree(self) -> None:
        if self.broker.journal is not None:
            row = TreeRow(self.tree, self.spanning.settled, self.acquainted)
            self.broker.journal.put("tree", 0, 0, row)

    # The tree.

    def status(self) -> dict[str, Any]:
        names = self.broker.network.names
        return {
            "id": list(self.tree.id),
            "links": [f"{names[a]}-{names[b]}" for a, b in self.tree.links],
            "left_out": [names[n] for n in sorted(self.spanning.members - {*self.tree.members})],
            "settled": self.settled(),
            "changes": self.changes,
            "outbox": len(self.outbox),
        }

    def connected(self, peer: BrokerId, now: TimeUs) -> None:
        self.spanning.connected(peer, now)

    def cut(self, peer: BrokerId, now: TimeUs) -> None:
        self.spanning.cut(peer, now)

    def heard(self, peer: BrokerId, news: links.News, now: TimeUs) -> None:
        self.spanning.heard(peer, news.tree, news.reports, now)
        for report in news.reports:
            self._forget_seen(report.broker, report.low)

    def tick(self, now: TimeUs) -> None:
        self.spanning.low = self._low()
        self.spanning.tick(now)

    def change(self) -> None:
        """Brokers came or left: trees change in time, and nobody waits for one that left."""
        self.spanning.change(self.broker.network.members, self.broker.network.pairs)
        self._absent = None
        self._resend = True
        self.acquainted |= self.settled() and self._all_in()
        for table, known in (("seen", self.seen), ("wants", self.wants)):
            for gone in known.keys() - self.spanning.members:
                del known[gone]
                if self.broker.journal is not None:
                    self.broker.journal.clear(table, gone)
        for gone in self.versions.keys() - self.spanning.members:
            del self.versions[gone]
        for gone in self.begun.keys() - self.spanning.members:
            del self.begun[gone]
            if self.broker.journal is not None:
                self.broker.journal.drop("tree", BEGUN, gone)

    def is_in(self, tree: TreeId) -> bool:
        """Whether messages may be exchanged in this tree. Not in one of which a broker was removed:
        after a restart nothing is left of the link to it, nor of what waited there."""
        return self.spanning.whole and tree == self.tree.id

    def joined(self) -> bool:
        """Whether all neighbours in the tree have been here in it."""
        neighbours = (n for n in self.broker.peers.values() if n.link.neighbour)
        return self.spanning.whole and all(n.tree == self.tree.id for n in neighbours)

    def settled(self) -> bool:
        """Whether it is known in this tree what everyone wants."""
        return self.spanning.whole and self.spanning.settled == self.tree.id

    def _all_in(self) -> bool:
        return self.spanning.members.issubset(self.tree.members)

    def turn(self, now: TimeUs) -> None:
        """Once a turn: take the newest tree, and do what it still needs."""
        spanning = self.spanning
        if spanning.tree.id != self.tree.id:
            self._adopt(spanning.tree, now)
        if not self.settled():
            if not self._waiting and self.joined():
                self._waiting = True
                self._await(self.tree.id)
        elif self._resend:
            self._resend = False
            for number in list(self.outbox):
                self._send(number, now, False)

    def say(self, now: TimeUs) -> None:
        """Write news to the neighbours' wires, and something now and then."""
        for peer, neighbour in self.broker.peers.items():
            wire = neighbour.wire
            if wire is None:
                continue
            news = self.spanning.take(peer)
            if news is not None or now - wire.beat_us >= BEAT_US:
                wire.beat_us = now
                wire.out.append(links.pack(links.News(*(news or (None, [])))))

    def _adopt(self, tree: Tree, now: TimeUs) -> None:
        broker = self.broker
        names = broker.network.names
        log.info(
            "tree changed",
            extra={
                "tree": list(tree.id),
                "links": [f"{names[a]}-{names[b]}" for a, b in tree.links],
                "left_out": [names[n] for n in sorted(self.spanning.members - {*tree.members})],
            },
        )
        if broker.traces is not None:
            broker.traces.tree(tree.id, [f"{names[a]}-{names[b]}" for a, b in tree.links], now)
        grown = set(self.tree.links) <= set(tree.links)
        self._met = self._met and grown
        self.tree = tree
        self.changes += 1
        self._waiting = self._resend = False
        self._absent = None
        self._on_the_way.clear()
        self._keep_tree()
        broker.regroup(tree.neighbours(broker.number), grown, now)

    def _await(self, tree: TreeId) -> None:
        def reached(later: TimeUs, all_answered: bool) -> None:
            if tree != self.tree.id:
                return
            if not all_answered:
                self._await(tree)
                return
            self._waiting = False
            self.acquainted |= self._met or self._all_in()
            self.spanning.has_settled(tree, later)
            self._keep_tree()
            self._resend = True

        self.broker.settle(reached)

    # Publications.

    def publish(self, publication: Publication, now: TimeUs) -> None:
        """Route a publication of an own client, and keep it until it is safe."""
        broker = self.broker
        if broker.journal is None or not publication.payload[0] & 6:
            broker.step(Publish(publication), now)
            return
        self._count += 1
        self._last = _key(publication.id)[1]
        entry = self.outbox[self._count] = OutboxEntry(publication, self._last)
        self._numbers[entry.key] = self._count
        message = PublicationMessage(publication, 0)
        broker.journal.put("outbox", 0, entry.key, broker.codec.encode(message))
        owed = broker.onward
        if self.settled() and not self._resend:
            self._send(self._count, now, True)
        else:  # for own clients at once; for others in its turn, when the way to them is known
            input = Publish(publication)
            effects = broker.router.step(input, now)
            effects = [effect for effect in effects if type(effect) is Deliver]
            broker.perform(input, effects, now)
        broker.onward = owed
        if owed is not None:
            owed[ONE] = self._count
        if len(self.outbox) >= links.QUEUE_MAX:
            broker.congested = True

    def _send(self, number: int, now: TimeUs, first: bool) -> None:
        broker, entry = self.broker, self.outbox[number]
        input = Publish(entry.publication)
        entry.onward = broker.onward = {}
        effects = broker.router.step(input, now)
        if first:
            broker.perform(input, effects, now)
        else:
            message = PublicationMessage(entry.publication, 0)
            effects = [effect for effect in effects if type(effect) is not Deliver]
            broker.perform(Received(message, broker.number), effects, now)
        broker.onward = None
        if self.settled():
            self._on_the_way[number] = entry

    def receive(self, message: PublicationMessage, sender: BrokerId, now: TimeUs) -> None:
        """Pass a publication on, and deliver it if that was not done before."""
        broker = self.broker
        input = Received(message, sender)
        effects = broker.router.step(input, now)
        broker.steps += 1
        publication = message.publication
        if (
            broker.journal is not None
            and publication.payload[0] & 6
            and any(type(effect) is Deliver for effect in effects)
        ):
            origin, key = _key(publication.id)
            seen = self.seen.setdefault(origin, {})
            late = bool(seen) and key <= next(reversed(seen))
            if late or self.begun.get(origin) != self.tree.id:
                if broker.traces is not None:
                    reason = DUPLICATE if key in seen or not late else LATE
                    broker.traces.stopped(publication, reason, now)
                effects = [effect for effect in effects if type(effect) is not Deliver]
            else:
                seen[key] = None
                broker.journal.put("seen", origin, key, b"")
        broker.perform(input, effects, now)

    def begin(self, origin: BrokerId, tree: TreeId) -> bool:
        """What comes from a broker from now on it has sent in this tree. Whether that is news."""
        if origin not in self.spanning.members or tree <= self.begun.get(origin, NEVER):
            return False
        self.begun[origin] = tree
        if self.broker.journal is not None:
            self.broker.journal.put("tree", BEGUN, origin, tree)
        return True

    def _on_begun(self, message: Begun, sender: BrokerId) -> None:
        news = {origin: tree for origin, tree in message.trees.items() if self.begin(origin, tree)}
        if news:
            self._pass_on(Begun(news), sender)

    def see_what_is_safe(self) -> None:
        """Let go of the publications that are safe."""
        broker = self.broker
        if not self._on_the_way:
            return
        assert broker.journal is not None
        there = [n for n, entry in self._on_the_way.items() if broker.is_safe(entry.onward)]
        for number in there:
            entry = self._on_the_way.pop(number)
            if not self._is_absent(entry.publication):
                del self.outbox[number], self._numbers[entry.key]
                broker.journal.drop("outbox", 0, entry.key)

    def holds(self, publication: Publication) -> bool:
        """Whether a publication of an own client is kept to be sent later."""
        origin, key = _key(publication.id)
        return origin == self.broker.number and key in self._numbers

    def is_safe(self, what: int, number: int) -> bool:
        assert what == ONE
        return number not in self.outbox

    def key_of(self, onward: dict[BrokerId, int]) -> str:
        """By which the publication is known for good; none if it is safe."""
        entry = self.outbox.get(onward.get(ONE, 0))
        return "" if entry is None else entry.key

    def still(self, key: str) -> dict[BrokerId, int]:
        number = self._numbers.get(key)
        return {} if number is None else {ONE: number}

    def full(self) -> bool:
        return len(self.outbox) >= links.QUEUE_MAX

    def _low(self) -> str:
        if self.outbox:
            return next(iter(self.outbox.values())).key
        return self._last + "+"  # which comes after it

    def _forget_seen(self, origin: BrokerId, low: str) -> None:
        seen = self.seen.get(origin)
        if not seen or next(iter(seen)) >= low:
            return
        gone = [key for key in seen if key < low]
        for key in gone:
            del seen[key]
        assert self.broker.journal is not None
        self.broker.journal.drop_to("seen", origin, max(gone))

    # What every broker's clients want.

    def local(self, input: Subscribe | Unsubscribe, now: TimeUs) -> None:
        """An own client subscribed, or no longer does."""
        if isinstance(input, Subscribe):
            text = str(input.subscription.filter)
            self._texts[input.subscription.id] = text
            self._own[text] += 1
            if self._own[text] == 1:
                self._change(text, True, now)
        else:
            text = self._texts.pop(input.subscription_id)
            self._own[text] -= 1
            if not self._own[text]:
                del self._own[text]
                self._change(text, False, now)

    def _change(self, text: str, wanted: bool, now: TimeUs) -> None:
        if self._restored:
            me = self.broker.number
            before = self.versions.get(me, 0)
            self._apply(WantsChange(me, before, max(now, before + 1), text, wanted), None)

    def greet(self, peer: BrokerId) -> None:
        """A link in the tree starts afresh."""
        self.broker.send(peer, self._known())
        begun = {origin: tree for origin, tree in self.begun.items() if tree == self.tree.id}
        if self.settled():
            begun[self.broker.number] = self.tree.id
        self.broker.send(peer, Begun(begun))

    def _known(self) -> WantsVersions:
        return WantsVersions(dict(self.versions), self.acquainted or self._met)

    def on_versions(self, theirs: WantsVersions, sender: BrokerId) -> None:
        for broker, version in self.versions.items():
            if version > theirs.versions.get(broker, 0):
                known = list(self.wants.get(broker, {}))
                self.broker.send(sender, Wants(broker, version, known))
        if theirs.acquainted and not (self.acquainted or self._met):
            self._met = True
            self._pass_on(self._known(), sender)

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> bool:
        """Whether this was a message for here."""
        if isinstance(message, PublicationMessage):
            self.receive(message, sender, now)
        elif isinstance(message, WantsVersions):
            self.on_versions(message, sender)
        elif isinstance(message, Begun):
            self._on_begun(message, sender)
        elif isinstance(message, Wants):
            self._learn(message, sender)
        elif isinstance(message, WantsChange):
            self._apply(message, sender)
        else:
            return False
        return True

    def _learn(self, wants: Wants, sender: BrokerId | None) -> None:
        known = wants.broker in self.spanning.members
        if not known or wants.version <= self.versions.get(wants.broker, 0):
            return
        if wants.broker == self.broker.number and sender is not None:
            # Of a store that this broker had before it was reset: what counts is what is so now.
            version = max(self.broker.now, wants.version + 1)
            wants, sender = Wants(wants.broker, version, list(self._own)), None
        self.wants[wants.broker] = dict.fromkeys(wants.filters)
        self._as_of(wants.broker, wants.version)
        journal = self.broker.journal
        if journal is not None:
            journal.clear("wants", wants.broker)
            journal.put("wants", wants.broker, "", WantsRow(wants.version))
            for text in wants.filters:
                journal.put("wants", wants.broker, text, b"")
        self._pass_on(wants, sender)

    def _apply(self, change: WantsChange, sender: BrokerId | None) -> None:
        # What is newer than this and was missed comes whole: a link that starts compares versions.
        if change.before != self.versions.get(change.broker, 0):
            return
        known, journal = self.wants.setdefault(change.broker, {}), self.broker.journal
        self._as_of(change.broker, change.version)
        if change.wanted:
            known[change.filter] = None
        else:
            known.pop(change.filter, None)
        if journal is not None:
            journal.put("wants", change.broker, "", WantsRow(change.version))
            if change.wanted:
                journal.put("wants", change.broker, change.filter, b"")
            else:
                journal.drop("wants", change.broker, change.filter)
        self._pass_on(change, sender)

    def _as_of(self, broker: BrokerId, version: int) -> None:
        self.versions[broker] = version
        if broker not in self.tree.members:
            self._absent = None

    def _pass_on(self, message: Message, sender: BrokerId | None) -> None:
        for peer, neighbour in self.broker.peers.items():
            if peer != sender and neighbour.link.up and neighbour.link.neighbour:
                self.broker.send(peer, message)

    def _is_absent(self, publication: Publication) -> bool:
        """Whether it is, or may be, for a broker that the tree leaves out."""
        if not self.acquainted and not self._all_in():
            return True
        if self._absent is None:
            texts = {
                text
                for broker, known in self.wants.items()
                if broker in self.spanning.members and broker not in self.tree.members
                for text in known
            }
            self._absent = [parse(text) for text in sorted(texts)]
        return any(matches(filter, publication.attributes) for filter in self._absent)


def _key(publication_id: str) -> tuple[BrokerId, str]:
    """Where a publication comes from, and a key that grows with each of that broker's."""
    boot, _, count = publication_id.rpartition(".")
    broker, _, since = boot.partition("-")
    return int(broker, 16), f"{int(since, 16):016x}.{int(count):016x}"
