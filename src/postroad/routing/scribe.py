"""Scribe and inverted Scribe on small-world rings (section 5.1 of the BeaConvey paper).

Idea: each topic has a rendezvous point, drawn by its name. A publication travels from its
broker to that point, and from there down a tree to the subscribers. In Scribe the tree is made
of the ways from each subscriber to the rendezvous point, walked backwards; in iScribe of the
ways from the rendezvous point to each subscriber.

State: the local subscriptions and the membership (see `ring`). Messages: `publication`, on its
way up to the rendezvous point or down the tree, and `membership`.

Where we differ: Scribe's brokers learn their children from join messages. Ours compute them
from the planned links and the membership, which gives the same trees while all links are up;
a link that is down cuts off what is behind it until it comes up. iScribe's messages name the
subscribers they are for and part where the ways to them part. The whole tree is traversed,
also the branch that leads back to the publisher; addresses of rendezvous points are not
cached (footnote 2).

With `membership = "messages"` (see `joining`) Scribe's trees are built by joins, and nobody is
told who wants which topic. A broker that wants a topic joins the neighbour that is next on the way
to the rendezvous point, the broker nearest to the topic's place; that one joins its next in turn,
unless it is in the tree already, and acknowledges when it is connected itself. When nothing below
or at a broker wants the topic any more, it leaves. When the ring changes, a broker whose way leads
elsewhere now joins there first and leaves the former parent a little later, and the rendezvous
point hands what it gets also to who was it before; what comes twice is dropped. Subscriptions that
name no topic have a tree of their own, which publications also go down if anybody is known to be in
it; a broker delivers the copy that comes first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from postroad import draws
from postroad.model import (
    BrokerId,
    Publication,
    PublicationKey,
    Subscription,
    SubscriptionId,
    TimeUs,
)
from postroad.planning.swico import INCOMING
from postroad.routing import joining
from postroad.routing.base import CarriesOne, Effect, Message, Note, Send, SetTimer, commas
from postroad.routing.ring import (
    ANY,
    LONG,
    OVERLAYS,
    RingRouter,
    Topic,
    check_cells,
    check_choice,
)


@dataclass(frozen=True, slots=True)
class Config:
    """`overlay`: what is planned for interest (S: the ring, L: the fingers; - neither).

    `topic` is the attribute whose text is a publication's topic; with `cells` above 0 the
    content space is cut into so many cells instead, and a cell is a topic. With `membership`
    "messages" brokers join and leave the running ring; each beats its neighbours every `beat_s`,
    and for `grace_s` after a change the old ways are used beside the new ones.
    """

    overlay: str = "SL"
    long: str = "chord"
    incoming: str = "one"
    topic: str = "class"
    cells: int = 0
    membership: str = "plan"
    beat_s: float = 2.0
    grace_s: float = 1.0

    def __post_init__(self) -> None:
        check_choice("overlay", self.overlay, OVERLAYS)
        check_choice("long", self.long, LONG)
        check_choice("incoming", self.incoming, INCOMING)
        check_cells(self.cells)
        joining.check_membership(self.membership, self.beat_s, self.grace_s)


class UpMessage(CarriesOne, msgspec.Struct, frozen=True):
    """A publication on its way to the rendezvous point."""

    kind = "publication"
    wire = "scribe.UpMessage"
    forwards = True
    publication: Publication
    hops: int

    def __str__(self) -> str:
        return f"publication {self.publication.name}, up"


class DownMessage(CarriesOne, msgspec.Struct, frozen=True):
    """A publication on its way down Scribe's tree."""

    kind = "publication"
    wire = "scribe.DownMessage"
    forwards = True
    publication: Publication
    hops: int

    def __str__(self) -> str:
        return f"publication {self.publication.name}, down"


class TargetsMessage(CarriesOne, msgspec.Struct, frozen=True):
    """A publication on its way from the rendezvous point to these positions."""

    kind = "publication"
    wire = "scribe.TargetsMessage"
    forwards = True
    publication: Publication
    hops: int
    targets: tuple[int, ...]

    def __str__(self) -> str:
        return f"publication {self.publication.name} for positions {commas(self.targets)}"


def rendezvous(topic: Topic, count: int, seed: int) -> int:
    """The position of a topic's rendezvous point: every one is as likely."""
    return draws.below(count, seed, "scribe.rendezvous", draws.purpose_key(topic), 0)


class RendezvousPoints(RingRouter):
    """Where the rendezvous points are."""

    def root(self, topic: Topic) -> int:
        return rendezvous(topic, self.ring.space, self.plan.seed)


class Rendezvous(RendezvousPoints):
    """The way up, which Scribe and iScribe share."""

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        return self._climb(publication, 0)

    def on_publication(self, message: Message, now: TimeUs) -> list[Effect] | None:
        if isinstance(message, UpMessage):
            return self._climb(message.publication, message.hops)
        return self.on_way_down(message)

    def _climb(self, publication: Publication, hops: int) -> list[Effect]:
        topic = self.topics.of(publication)
        root = self.root(topic)
        if root == self.position:
            return self.turn(publication, hops, topic)
        return [self.towards(root, UpMessage(publication, hops + 1))]

    @abstractmethod
    def turn(self, publication: Publication, hops: int, topic: Topic) -> list[Effect]:
        """A publication has reached its rendezvous point, this broker."""

    @abstractmethod
    def on_way_down(self, message: Message) -> list[Effect] | None: ...


class Scribe(Rendezvous):
    def turn(self, publication: Publication, hops: int, topic: Topic) -> list[Effect]:
        effects: list[Effect] = []
        self.deliver(publication, hops, effects)
        onward = DownMessage(publication, hops + 1)
        effects += [Send(self.ring.broker_at(child), onward) for child in self._children(topic)]
        return effects

    def on_way_down(self, message: Message) -> list[Effect] | None:
        if not isinstance(message, DownMessage):
            return None
        return self.turn(message.publication, message.hops, self.topics.of(message.publication))

    def _children(self, topic: Topic) -> list[int]:
        """The neighbours that subscribers' ways to the rendezvous point come here from."""
        members = tuple(self.members(topic))
        trees = self.plan.remembered.setdefault(topic, {})
        if members not in trees:
            trees.clear()  # of a topic the last membership is enough
            trees[members] = self._tree(topic, members)
        children: list[int] = trees[members].get(self.position, [])
        return children

    def _tree(self, topic: Topic, members: tuple[int, ...]) -> dict[int, list[int]]:
        plan, root = self.plan, self.root(topic)
        children: dict[int, list[int]] = {}
        joined = {root}
        for member in members:
            place = member
            while place not in joined:
                joined.add(place)
                above = plan.nearest(plan.peers[place], root)
                children.setdefault(above, []).append(place)
                place = above
        return children


class InvertedScribe(Rendezvous):
    def turn(self, publication: Publication, hops: int, topic: Topic) -> list[Effect]:
        return self._part(publication, hops, tuple(self.members(topic)))

    def on_way_down(self, message: Message) -> list[Effect] | None:
        if not isinstance(message, TargetsMessage):
            return None
        return self._part(message.publication, message.hops, message.targets)

    def _part(self, publication: Publication, hops: int, targets: tuple[int, ...]) -> list[Effect]:
        effects: list[Effect] = []
        if self.position in targets:
            self.deliver(publication, hops, effects)
        onward: dict[int, list[int]] = {}
        for target in targets:
            if target != self.position:
                peer = self.hop(target)
                if peer is None:
                    effects.append(Note(f"dropped: no link leads nearer to position {target}"))
                else:
                    onward.setdefault(peer, []).append(target)
        effects += [
            Send(self.ring.broker_at(peer), TargetsMessage(publication, hops + 1, tuple(behind)))
            for peer, behind in onward.items()
        ]
        return effects


class JoiningPoints(joining.Joining, RendezvousPoints):
    """Rendezvous points on a ring that brokers join and leave: who is nearest to their places."""

    def root(self, topic: Topic) -> int:
        if not self.ring.places:  # all have left, this broker last
            return self.position
        return self.ring.closest(super().root(topic))


class JoiningInvertedScribe(JoiningPoints, InvertedScribe):
    def _part(self, publication: Publication, hops: int, targets: tuple[int, ...]) -> list[Effect]:
        here = [t for t in targets if t == self.position or self.ring.is_taken(t)]
        return super()._part(publication, hops, tuple(here))

    def on_ring_change(self, before: joining.View, effects: list[Effect]) -> None:
        pass


@dataclass(frozen=True, slots=True)
class TreeMessage(Message):
    """The sender joins the receiver in a topic's tree, leaves it, or has it as a child now."""

    kind = "tree"
    wire = "scribe.TreeMessage"
    topic: Topic
    what: str

    def __str__(self) -> str:
        return f"tree of {self.topic!r}: {self.what}"


class ScribePublication(CarriesOne, msgspec.Struct, frozen=True):
    """A publication on its way up or down the tree of a topic."""

    kind = "publication"
    wire = "scribe.ScribePublication"
    forwards = True
    publication: Publication
    hops: int
    topic: Topic
    up: bool

    def __str__(self) -> str:
        way = "up" if self.up else "down"
        return f"publication {self.publication.name}, {way} the tree of {self.topic!r}"


JOINING = (TreeMessage, ScribePublication)
_HOPS_MAX = 128  # while brokers know of different rings


@dataclass(slots=True)
class Stem:
    """A broker's place in a tree: the parent (itself at the rendezvous point), and those before."""

    parent: BrokerId
    joined: bool
    former: dict[BrokerId, None] = field(default_factory=dict)


class JoiningScribe(JoiningPoints):
    stateless = False

    def __init__(self, broker: BrokerId, plan: joining.JoiningPlan) -> None:
        super().__init__(broker, plan)
        self.stems: dict[Topic, Stem] = {}
        self.children: dict[Topic, dict[BrokerId, bool]] = {}  # whether acknowledged
        self.earlier: list[joining.View] = []  # rings that others may still know
        self.seen: dict[tuple[PublicationKey, Topic | None], TimeUs] = {}  # None: delivered

    def _shared(self) -> dict[int, object]:
        shared = (self.plan, self.plan.pool, self.ring, *self.earlier)
        return {id(each): each for each in shared}

    # Subscriptions.

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        effects = self.on_unsubscribe(subscription.id, now)
        self.local.subscribe(subscription)
        for topic in self.topics.wanted(subscription.filter):
            self.own[topic] = self.own.get(topic, 0) + 1
            self._tend(topic, effects)
            if topic == ANY and not self._known(ANY, self.position):
                self._announce(ANY, True, now, effects)
        return effects

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        filter = self.local.filter_of.get(subscription_id)
        effects: list[Effect] = []
        if filter is None:
            return effects
        self.local.unsubscribe(subscription_id)
        for topic in self.topics.wanted(filter):
            self.own[topic] -= 1
            if not self.own[topic]:
                del self.own[topic]
                self._tend(topic, effects)
                if topic == ANY:
                    self._announce(ANY, False, now, effects)
        return effects

    # Trees.

    def _tend(self, topic: Topic, effects: list[Effect]) -> None:
        """Be in the tree under the right parent, or in none."""
        stem = self.stems.get(topic)
        if topic not in self.own and topic not in self.children:
            if stem is not None:
                del self.stems[topic]
                self._part_from([stem.parent, *stem.former], topic, effects)
            return
        parent = self._parent(topic)
        if stem is None:
            stem = self.stems[topic] = Stem(parent, False)
        elif stem.parent == parent:
            return
        else:
            stem.former[stem.parent] = None
            stem.former.pop(parent, None)
            stem.parent, stem.joined = parent, False
            effects.append(SetTimer("part", self.grace_us))
        if parent == self.broker:
            self._connect(topic, stem, effects)
        else:
            effects.append(Send(parent, TreeMessage(topic, "join")))

    def _parent(self, topic: Topic) -> BrokerId:
        root = self.root(topic)
        if root == self.position:
            return self.broker
        peer = self.hop(root)
        assert peer is not None  # a root is on the ring
        return self.ring.broker_at(peer)

    def _part_from(self, parents: Iterable[BrokerId], topic: Topic, effects: list[Effect]) -> None:
        effects += [
            Send(parent, TreeMessage(topic, "leave")) for parent in parents if parent != self.broker
        ]

    def _connect(self, topic: Topic, stem: Stem, effects: list[Effect]) -> None:
        stem.joined = True
        children = self.children.get(topic, {})
        for child, acknowledged in children.items():
            if not acknowledged:
                children[child] = True
                effects.append(Send(child, TreeMessage(topic, "joined")))

    def _on_tree(self, message: TreeMessage, sender: BrokerId) -> list[Effect]:
        effects: list[Effect] = []
        topic, stem = message.topic, self.stems.get(message.topic)
        if message.what == "join":
            self.children.setdefault(topic, {})[sender] = False
            self._tend(topic, effects)
            if stem is not None and stem.joined:
                self._connect(topic, stem, effects)
        elif message.what == "leave":
            self._lose(topic, sender, effects)
        elif stem is not None and stem.parent == sender:
            self._connect(topic, stem, effects)
        return effects

    def _lose(self, topic: Topic, child: BrokerId, effects: list[Effect]) -> None:
        children = self.children.get(topic, {})
        if children.pop(child, None) is not None and not children:
            del self.children[topic]
            self._tend(topic, effects)

    def on_ring_change(self, before: joining.View, effects: list[Effect]) -> None:
        if before is not self.ring:
            self.earlier.append(before)
            effects.append(SetTimer("part", self.grace_us))
            for topic in list(self.children):
                for child in [c for c in self.children[topic] if self._state(c) == joining.FAILED]:
                    self._lose(topic, child, effects)
        for topic in list(self.stems):
            self._tend(topic, effects)

    def _state(self, broker: BrokerId) -> int:
        return self.version_of(broker)[1]

    def on_return(self, broker: BrokerId, effects: list[Effect]) -> None:
        """It may have forgotten its children."""
        for topic, stem in self.stems.items():
            if stem.parent == broker:
                stem.joined = False
                effects.append(Send(broker, TreeMessage(topic, "join")))

    def on_start(self, now: TimeUs) -> list[Effect]:
        if now > 0:
            self.ring = self.plan.view(self.here() - {self.broker})
        return super().on_start(now)

    def on_timer(self, name: str, now: TimeUs) -> list[Effect]:
        effects = super().on_timer(name, now)
        if name == "beat":
            effects += [
                Send(stem.parent, TreeMessage(topic, "join"))
                for topic, stem in self.stems.items()
                if not stem.joined
            ]
        elif name == "part":
            self.earlier.clear()
            for topic in list(self.children):
                for child in [c for c in self.children[topic] if self._state(c) != joining.HERE]:
                    self._lose(topic, child, effects)
            for topic, stem in self.stems.items():
                if stem.joined:
                    self._part_from(stem.former, topic, effects)
                    stem.former.clear()
            if any(stem.former for stem in self.stems.values()):
                effects.append(SetTimer("part", self.grace_us))
        return effects

    def settled(self) -> bool:
        return all(stem.joined for stem in self.stems.values())

    def idle(self) -> bool:
        moving = any(stem.former for stem in self.stems.values())
        return super().idle() and self.settled() and not moving and not self.earlier

    # Publications.

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        topic = self.topics.of(publication)
        effects = self._up(publication, 0, topic, now)
        if topic != ANY and self.members(ANY):
            effects += self._up(publication, 0, ANY, now)
        return effects

    def _up(self, publication: Publication, hops: int, topic: Topic, now: TimeUs) -> list[Effect]:
        root = self.root(topic)
        if root == self.position:
            return self._down(publication, hops, topic, now)
        if hops >= _HOPS_MAX:
            return [Note(f"dropped: {publication.name} has not found its rendezvous point")]
        onward = self.towards(root, ScribePublication(publication, hops + 1, topic, True))
        stem = self.stems.get(topic)
        if stem is not None and not stem.joined:  # it may have been the rendezvous point
            return [onward, *self._down(publication, hops, topic, now)]
        return [onward]

    def _down(self, publication: Publication, hops: int, topic: Topic, now: TimeUs) -> list[Effect]:
        if not self._is_new(publication, topic, now):
            return []
        effects: list[Effect] = []
        if self._is_new(publication, None, now):
            self.deliver(publication, hops, effects)
        onward = ScribePublication(publication, hops + 1, topic, False)
        peers = dict.fromkeys(self.children.get(topic, ()))
        if self.earlier and self.root(topic) == self.position:
            place = RendezvousPoints.root(self, topic)
            roots = [v.broker_at(v.closest(place)) for v in self.earlier if v.places]
            peers |= dict.fromkeys(b for b in roots if self._state(b) != joining.FAILED)
        effects += [Send(peer, onward) for peer in peers if peer != self.broker]
        return effects

    def _is_new(self, publication: Publication, topic: Topic | None, now: TimeUs) -> bool:
        key = (publication.key, topic)
        if key in self.seen:
            return False
        while self.seen:
            first, time_us = next(iter(self.seen.items()))
            if now - time_us <= 2 * self.grace_us:
                break
            del self.seen[first]
        self.seen[key] = now
        return True

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        if isinstance(message, TreeMessage):
            return self._on_tree(message, sender)
        if not isinstance(message, ScribePublication):
            return super().on_message(message, sender, now)
        if message.up:
            return self._up(message.publication, message.hops, message.topic, now)
        effects = self._down(message.publication, message.hops, message.topic, now)
        if message.topic not in self.stems and not self.earlier:
            self._part_from([sender], message.topic, effects)  # it need not send this any more
        return effects

    def on_publication(self, message: Message, now: TimeUs) -> list[Effect] | None:
        return None  # all of this scheme are seen to above

    def table_entries(self) -> int:
        children = sum(map(len, self.children.values()))
        return super().table_entries() + children

    def check(self) -> None:
        self.local.check()
        assert self.stems.keys() == self.own.keys() | self.children.keys()
        assert all(self.children.values())
        assert (ANY in self.own) == self._known(ANY, self.position)
