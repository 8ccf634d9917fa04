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

A state machine: it is told what happened and returns what it wants done, in order (`Order`), as
routers do. It holds nothing of the broker and calls nobody; the journal and the traces are where
it writes down what is to be kept or recorded.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from postroad.filters import Filter, matches, parse
from postroad.live.links import link as links
from postroad.live.links.messages import (
    Begun,
    Codec,
    Handoff,
    Posted,
    Wants,
    WantsChange,
    WantsVersions,
)
from postroad.live.links.neighbour import Onward
from postroad.live.links.tree import NEVER, Spanning, Tree, TreeId
from postroad.live.network import Network
from postroad.live.store import Journal, Kept
from postroad.model import BrokerId, Publication, SubscriptionId, TimeUs
from postroad.routing.base import (
    Deliver,
    Effect,
    Message,
    PublicationMessage,
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
    routed: bool = True  # otherwise it is only for members of groups
    # By group of a shared subscription, the broker that it is handed to: -1 if that has to be
    # chosen again, None before anything was chosen.
    handoffs: dict[str, BrokerId] | None = None
    tries: int = 0  # brokers that could not give it to a member

    @property
    def undecided(self) -> bool:
        return self.handoffs is None or -1 in self.handoffs.values()


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


@dataclass(frozen=True, slots=True)
class Transmit:
    """Send a message to a neighbour in the tree."""

    peer: BrokerId
    message: Message


@dataclass(frozen=True, slots=True)
class Spread:
    """Send a message to all neighbours in the tree but the one that it came from."""

    message: Message
    sender: BrokerId | None


@dataclass(frozen=True, slots=True)
class Route:
    """Give an own client's publication to the router."""

    publication: Publication
    deliver: bool  # to own clients
    # The messages that it causes are to be noted here; None: do not send it to neighbours yet.
    onward: Onward | None


@dataclass(frozen=True, slots=True)
class Owe:
    """The publication in hand is safe once this entry has left the outbox."""

    number: int


@dataclass(frozen=True, slots=True)
class Probe:
    """Send a wave through this tree, and report with `answered` whether it came back."""

    tree: TreeId


@dataclass(frozen=True, slots=True)
class Choose:
    """Decide to whom an entry of the outbox is handed, and say so with `chosen`: for all groups, or
    for those named."""

    number: int
    publication: Publication
    groups: list[str] | None


@dataclass(frozen=True, slots=True)
class Hand:
    """Send a publication to a member's broker; the message is to be noted in `onward`."""

    handoff: Handoff
    onward: Onward


Order = Transmit | Spread | Route | Owe | Probe | Choose | Hand


@dataclass(frozen=True, slots=True)
class Regroup:
    """Another tree carries the traffic from now on."""

    neighbours: set[BrokerId]
    grown: bool  # it has all links of the one before: they go on


class Repair:
    def __init__(
        self,
        network: Network,
        number: BrokerId,
        boot: str,
        codec: Codec,
        journal: Journal | None,
        traces: TreeTraces | None,
        kept: Kept | None,
        now: TimeUs,
    ) -> None:
        """`boot` is a name that no other start of any broker has. Without a journal nothing
        outlives the broker; `kept` is what the store held when it started."""
        self.network, self.number = network, number
        self.codec, self.journal, self.traces = codec, journal, traces
        row = None
        for _, data in kept.of("tree", 0) if kept is not None else ():
            row = msgspec.msgpack.decode(data, type=TreeRow)
        self.spanning = Spanning(
            number, network.members, network.pairs, network.revision, now,
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
        self._last = _key(f"{boot}.0")[1]
        self._waiting = False  # for a wave that tells whether the tree is settled
        self._resend = False
        self.seen: dict[BrokerId, dict[str, None]] = {}
        self.lows: dict[BrokerId, str] = {}  # what came before that will not come again
        self.handed: dict[BrokerId, dict[str, None]] = {}  # what was handed to members here
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
            message = self.codec.decode(data)
            self._count += 1
            if isinstance(message, Posted):
                entry = OutboxEntry(
                    message.publication, key, {}, message.routed, message.handoffs, message.tries
                )
            else:
                assert isinstance(message, PublicationMessage)
                entry = OutboxEntry(message.publication, key)
            self.outbox[self._count] = entry
            self._numbers[key] = self._count
        self._resend = bool(self.outbox)
        self._choose_again()
        for origin, data in kept.of("tree", BEGUN):
            self.begun[origin] = msgspec.msgpack.decode(data, type=TreeId)
        for origin, rows in kept.by_owner("seen").items():
            self.seen[origin] = {key: None for key, _ in rows}
        for origin, rows in kept.by_owner("share").items():
            if origin >= 0:  # others are statements of members
                self.handed[origin] = {key: None for key, _ in rows}
        for owner, rows in kept.by_owner("wants").items():
            for key, data in rows:
                if key:
                    self.wants.setdefault(owner, {})[key] = None
                else:
                    self.versions[owner] = msgspec.msgpack.decode(data, type=WantsRow).version

    def restored(self, now: TimeUs) -> list[Order]:
        """The clients' sessions are there again: say if they want anything else than before."""
        self._restored = True
        if self.wants.get(self.number, {}).keys() == self._own.keys():
            return []
        version = max(now, self.versions.get(self.number, 0) + 1)
        return self._learn(Wants(self.number, version, list(self._own)), None, now)

    def _keep_tree(self) -> None:
        if self.journal is not None:
            row = TreeRow(self.tree, self.spanning.settled, self.acquainted)
            self.journal.put("tree", 0, 0, row)

    # The tree.

    def status(self) -> dict[str, Any]:
        names = self.network.names
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
            self.lows[report.broker] = max(report.low, self.lows.get(report.broker, ""))
            self._forget_seen(report.broker, report.low)

    def tick(self, now: TimeUs) -> None:
        self.spanning.low = self._low()
        self.spanning.tick(now)

    def change(self, network: Network) -> None:
        """Brokers came or left: trees change in time, and nobody waits for one that left."""
        self.network = network
        self.spanning.change(network.members, network.pairs)
        self._absent = None
        self._resend = True
        self.acquainted |= self.settled() and self._all_in()
        self._choose_again()
        for table, known in (("seen", self.seen), ("wants", self.wants), ("share", self.handed)):
            for gone in list(known):
                if not self.network.has(gone):
                    del known[gone]
                    if self.journal is not None:
                        self.journal.clear(table, gone)
        for gone in list(self.versions):
            if not self.network.has(gone):
                del self.versions[gone]
        for gone in self.begun.keys() - self.spanning.members:
            del self.begun[gone]
            if self.journal is not None:
                self.journal.drop("tree", BEGUN, gone)

    def _choose_again(self) -> None:
        """What was to be handed to brokers that are removed goes to others."""
        for entry in self.outbox.values():
            for group, target in (entry.handoffs or {}).items():
                if target not in self.spanning.members and entry.handoffs is not None:
                    entry.handoffs[group] = -1

    def is_in(self, tree: TreeId) -> bool:
        """Whether messages may be exchanged in this tree. Not in one of which a broker was removed:
        after a restart nothing is left of the link to it, nor of what waited there."""
        return self.spanning.whole and tree == self.tree.id

    def joined(self, trees: Iterable[TreeId | None]) -> bool:
        """Whether all neighbours in the tree have been here in it; `trees` are their last ones."""
        return self.spanning.whole and all(tree == self.tree.id for tree in trees)

    def settled(self) -> bool:
        """Whether it is known in this tree what everyone wants."""
        return self.spanning.whole and self.spanning.settled == self.tree.id

    def _all_in(self) -> bool:
        return self.spanning.members.issubset(self.tree.members)

    def adopt(self, now: TimeUs) -> Regroup | None:
        """Once a turn: take the newest tree, if there is a newer one."""
        tree = self.spanning.tree
        if tree.id == self.tree.id:
            return None
        names = self.network.names
        links = [f"{names[a]}-{names[b]}" for a, b in tree.links]
        log.info(
            "tree changed",
            extra={
                "tree": list(tree.id),
                "links": links,
                "left_out": [names[n] for n in sorted(self.spanning.members - {*tree.members})],
            },
        )
        if self.traces is not None:
            self.traces.tree(tree.id, links, now)
        grown = set(self.tree.links) <= set(tree.links)
        self._met = self._met and grown
        self.tree = tree
        self.changes += 1
        self._waiting = self._resend = False
        self._absent = None
        self._on_the_way.clear()
        self._keep_tree()
        return Regroup(tree.neighbours(self.number), grown)

    def turn(self, trees: Iterable[TreeId | None]) -> list[Order]:
        """Once a turn, after `adopt`: what the tree still needs. `trees` are as for `joined`."""
        if not self.settled():
            if self._waiting or not self.joined(trees):
                return []
            self._waiting = True
            return [Probe(self.tree.id)]
        if not self._resend:
            return []
        self._resend = False
        return [order for number in self.outbox for order in self._send(number, False)]

    def answered(self, tree: TreeId, all_answered: bool, now: TimeUs) -> bool:
        """The wave that was asked for came back, or not in time. Whether to wait on."""
        if tree != self.tree.id:
            return False
        if not all_answered:
            return True
        self._waiting = False
        self.acquainted |= self._met or self._all_in()
        self.spanning.has_settled(tree, now)
        self._keep_tree()
        self._resend = True
        return False

    def news(self, peer: BrokerId) -> links.News | None:
        """What a neighbour has not been told of the tree yet."""
        news = self.spanning.take(peer)
        return None if news is None else links.News(*news)

    # Publications.

    def keeps(self, publication: Publication) -> bool:
        """Whether a publication is kept until it is safe; any other is just routed."""
        return self.journal is not None and bool(publication.payload[0] & 6)

    def publish(self, publication: Publication) -> list[Order]:
        """Route a publication of an own client, and keep it until it is safe."""
        assert self.journal is not None
        self._count += 1
        self._last = _key(publication.id)[1]
        entry = self.outbox[self._count] = OutboxEntry(publication, self._last)
        self._numbers[entry.key] = self._count
        message = PublicationMessage(publication, 0)
        self.journal.put("outbox", 0, entry.key, self.codec.encode(message))
        owe = Owe(self._count)
        if self.settled() and not self._resend:
            return [*self._send(self._count, True), owe]
        # For own clients at once; for others in its turn, when the way to them is known.
        return [Route(publication, True, None), owe]

    def post(self, publication: Publication, group: str, tries: int) -> list[Order]:
        """Hand a publication to a member of a group at another broker, and keep it until then."""
        assert self.journal is not None
        self._count += 1
        self._last = _key(publication.id)[1]
        entry = OutboxEntry(publication, self._last, {}, False, {group: -1}, tries)
        self.outbox[self._count] = entry
        self._numbers[entry.key] = self._count
        self._keep_entry(entry)
        ready = self.settled() and not self._resend
        return [*(self._send(self._count, False) if ready else ()), Owe(self._count)]

    def _keep_entry(self, entry: OutboxEntry) -> None:
        assert self.journal is not None
        message = Posted(entry.publication, entry.routed, entry.handoffs, entry.tries)
        self.journal.put("outbox", 0, entry.key, self.codec.encode(message))

    def _send(self, number: int, first: bool) -> list[Order]:
        entry = self.outbox[number]
        entry.onward = {}
        if not self.settled():
            return [Route(entry.publication, first, entry.onward)] if entry.routed else []
        self._on_the_way[number] = entry
        orders: list[Order] = []
        if entry.routed:
            orders.append(Route(entry.publication, first, entry.onward))
        if not entry.undecided:
            return orders + self._hands(entry)
        if not self.acquainted:  # it may not know of all groups yet
            return orders
        groups = None
        if entry.handoffs is not None:
            groups = [group for group, target in entry.handoffs.items() if target == -1]
        return [*orders, Choose(number, entry.publication, groups)]

    def chosen(self, number: int, targets: dict[str, BrokerId], matches: bool) -> list[Order]:
        """These other brokers get an entry for these groups. If it `matches` others besides, they
        have it already, or nobody is left of them."""
        entry = self.outbox[number]
        before = entry.handoffs
        decided = {group: to for group, to in (before or {}).items() if to != -1}
        entry.handoffs = {**decided, **targets}
        if before is not None or matches:
            self._keep_entry(entry)
        return self._hands(entry)

    def _hands(self, entry: OutboxEntry) -> list[Order]:
        """What members' brokers in this tree are handed; those that it leaves out wait."""
        given = entry.publication
        return [
            Hand(
                Handoff(
                    target, group, given.publisher, given.id, given.payload, given.time_us,
                    self.number, entry.key, entry.tries,
                ),
                entry.onward,
            )
            for group, target in (entry.handoffs or {}).items()
            if target in self.tree.members
        ]  # fmt: skip

    def is_news(self, handoff: Handoff) -> bool:
        """Whether a publication was not handed here before; from now on it was."""
        assert self.journal is not None
        handed, name = self.handed.setdefault(handoff.origin, {}), f"{handoff.key} {handoff.group}"
        if name in handed:
            return False
        handed[name] = None
        self.journal.put("share", handoff.origin, name, b"")
        return True

    def received(
        self,
        publication: Publication,
        effects: list[Effect],
        now: TimeUs,
        lacks: Callable[[SubscriptionId, BrokerId], bool],
    ) -> list[Effect]:
        """Of what the router makes of another broker's publication, what is to be done: it is
        passed on, and delivered if that was not done before. A session that has moved here may
        lack what others here had before it came (`lacks`, by subscription and origin)."""
        if not self.keeps(publication) or not any(type(effect) is Deliver for effect in effects):
            return effects
        assert self.journal is not None
        origin, key = _key(publication.id)
        seen = self.seen.setdefault(origin, {})
        late = bool(seen) and key <= next(reversed(seen))
        if late or self.begun.get(origin) != self.tree.id:
            if self.traces is not None:
                reason = DUPLICATE if key in seen or not late else LATE
                self.traces.stopped(publication, reason, now)
            begun = self.begun.get(origin) == self.tree.id
            return [
                effect
                for effect in effects
                if type(effect) is not Deliver or (begun and lacks(effect.subscription_id, origin))
            ]
        seen[key] = None
        self.journal.put("seen", origin, key, b"")
        return effects

    def begin(self, origin: BrokerId, tree: TreeId) -> bool:
        """What comes from a broker from now on it has sent in this tree. Whether that is news."""
        if origin not in self.spanning.members or tree <= self.begun.get(origin, NEVER):
            return False
        self.begun[origin] = tree
        if self.journal is not None:
            self.journal.put("tree", BEGUN, origin, tree)
        return True

    def _on_begun(self, message: Begun, sender: BrokerId) -> list[Order]:
        news = {origin: tree for origin, tree in message.trees.items() if self.begin(origin, tree)}
        return [Spread(Begun(news), sender)] if news else []

    def let_go(self, is_safe: Callable[[Onward], bool]) -> None:
        """Let go of the publications whose messages to neighbours are all safe."""
        if not self._on_the_way:
            return
        assert self.journal is not None
        there = [n for n, entry in self._on_the_way.items() if is_safe(entry.onward)]
        for number in there:
            entry = self._on_the_way.pop(number)
            # What they were handed is theirs, also when they are removed from the network later.
            handoffs = (entry.handoffs or {}).items()
            left = {group: to for group, to in handoffs if to not in self.tree.members}
            waits = entry.handoffs is None or bool(left)
            if not waits and not (entry.routed and self._is_absent(entry.publication)):
                del self.outbox[number], self._numbers[entry.key]
                self.journal.drop("outbox", 0, entry.key)
            elif entry.handoffs is not None and left != entry.handoffs:
                entry.handoffs = left
                self._keep_entry(entry)

    def holds(self, publication: Publication) -> bool:
        """Whether a publication of an own client is kept to be sent later."""
        origin, key = _key(publication.id)
        return origin == self.number and key in self._numbers

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

    def sends(self) -> bool:
        """Whether something of the outbox is on its way, or will be once the tree is settled; not
        what waits for a broker that the tree leaves out."""
        return bool(self.outbox) and (not self.settled() or bool(self._on_the_way))

    def _low(self) -> str:
        if self.outbox:
            return next(iter(self.outbox.values())).key
        return self._last + "+"  # which comes after it

    def may_come_again(self) -> list[str]:
        """Which publications were delivered here, and are not known to be safe everywhere."""
        own = [publication.id for publication in self.kept_publications()]
        return own + [
            _publication_id(origin, key) for origin, seen in self.seen.items() for key in seen
        ]

    def kept_publications(self) -> list[Publication]:
        return [entry.publication for entry in self.outbox.values() if entry.routed]

    def quiet(self, broker: BrokerId) -> bool:
        """Whether a broker has nothing that it may have to send again."""
        if broker not in self.spanning.members:
            return True
        if broker == self.number:
            return not self.outbox
        return self.settled() and self._all_in() and self.lows.get(broker, "").endswith("+")

    def past(self, publication_id: str) -> bool:
        """Whether a publication will not come again."""
        origin, key = _key(publication_id)
        if origin == self.number:
            return key not in self._numbers
        return key < self.lows.get(origin, "") or origin not in self.spanning.members

    def _forget_seen(self, origin: BrokerId, low: str) -> None:
        handed = self.handed.get(origin)
        if handed and (past := [name for name in handed if name < low]):
            for name in past:
                del handed[name]
            assert self.journal is not None
            self.journal.drop_to("share", origin, max(past))
        seen = self.seen.get(origin)
        if not seen or next(iter(seen)) >= low:
            return
        gone = [key for key in seen if key < low]
        for key in gone:
            del seen[key]
        assert self.journal is not None
        self.journal.drop_to("seen", origin, max(gone))

    # What every broker's clients want.

    def local(self, input: Subscribe | Unsubscribe, now: TimeUs) -> list[Order]:
        """An own client subscribed, or no longer does."""
        if isinstance(input, Subscribe):
            text = str(input.subscription.filter)
            self._texts[input.subscription.id] = text
            self._own[text] += 1
            return self._change(text, True, now) if self._own[text] == 1 else []
        text = self._texts.pop(input.subscription_id)
        self._own[text] -= 1
        if self._own[text]:
            return []
        del self._own[text]
        return self._change(text, False, now)

    def _change(self, text: str, wanted: bool, now: TimeUs) -> list[Order]:
        if not self._restored:
            return []
        me = self.number
        before = self.versions.get(me, 0)
        return self._apply(WantsChange(me, before, max(now, before + 1), text, wanted), None)

    def greet(self, peer: BrokerId) -> list[Order]:
        """A link in the tree starts afresh."""
        begun = {origin: tree for origin, tree in self.begun.items() if tree == self.tree.id}
        if self.settled():
            begun[self.number] = self.tree.id
        return [Transmit(peer, self._known()), Transmit(peer, Begun(begun))]

    def _known(self) -> WantsVersions:
        return WantsVersions(dict(self.versions), self.acquainted or self._met)

    def _on_versions(self, theirs: WantsVersions, sender: BrokerId) -> list[Order]:
        # The latest change last: a session that moves wants something at its new broker before it
        # does not at its old one any more, and the link may break in between.
        orders: list[Order] = [
            Transmit(sender, Wants(broker, version, list(self.wants.get(broker, {}))))
            for broker, version in sorted(self.versions.items(), key=lambda item: item[1])
            if version > theirs.versions.get(broker, 0)
        ]
        if theirs.acquainted and not (self.acquainted or self._met):
            self._met = True
            orders.append(Spread(self._known(), sender))
        return orders

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Order] | None:
        """None if this was no message for here."""
        match message:
            case WantsVersions():
                return self._on_versions(message, sender)
            case Begun():
                return self._on_begun(message, sender)
            case Wants():
                return self._learn(message, sender, now)
            case WantsChange():
                return self._apply(message, sender)
            case _:
                return None

    def _learn(self, wants: Wants, sender: BrokerId | None, now: TimeUs) -> list[Order]:
        if not self.network.has(wants.broker):
            return []
        if wants.version <= self.versions.get(wants.broker, 0):
            return []
        if wants.broker == self.number and sender is not None:
            # Of a store that this broker had before it was reset: what counts is what is so now.
            version = max(now, wants.version + 1)
            wants, sender = Wants(wants.broker, version, list(self._own)), None
        self.wants[wants.broker] = dict.fromkeys(wants.filters)
        self._as_of(wants.broker, wants.version)
        journal = self.journal
        if journal is not None:
            journal.clear("wants", wants.broker)
            journal.put("wants", wants.broker, "", WantsRow(wants.version))
            for text in wants.filters:
                journal.put("wants", wants.broker, text, b"")
        return [Spread(wants, sender)]

    def _apply(self, change: WantsChange, sender: BrokerId | None) -> list[Order]:
        # What is newer than this and was missed comes whole: a link that starts compares versions.
        if change.before != self.versions.get(change.broker, 0) or not self.network.has(
            change.broker
        ):
            return []
        known, journal = self.wants.setdefault(change.broker, {}), self.journal
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
        return [Spread(change, sender)]

    def _as_of(self, broker: BrokerId, version: int) -> None:
        self.versions[broker] = version
        if broker not in self.tree.members:
            self._absent = None

    def _is_absent(self, publication: Publication) -> bool:
        """Whether it is, or may be, for a broker that the tree leaves out."""
        if not self.acquainted and not self._all_in():
            return True
        if self._absent is None:
            texts = {
                text
                for broker, known in self.wants.items()
                if self.network.has(broker) and broker not in self.tree.members
                for text in known
            }
            self._absent = [parse(text) for text in sorted(texts)]
        return any(matches(filter, publication.attributes) for filter in self._absent)


def _key(publication_id: str) -> tuple[BrokerId, str]:
    """Where a publication comes from, and a key that grows with each of that broker's."""
    boot, _, count = publication_id.rpartition(".")
    broker, _, since = boot.partition("-")
    return int(broker, 16), f"{int(since, 16):016x}.{int(count):016x}"


def _publication_id(origin: BrokerId, key: str) -> str:
    since, _, count = key.partition(".")
    return f"{origin:x}-{int(since, 16):x}.{int(count, 16)}"
