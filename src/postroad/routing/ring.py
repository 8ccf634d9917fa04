"""What the schemes on a small-world ring share: the plan, topics, and who wants which.

A publication's topic is the text of one attribute, its class unless the scheme's parameter
`topic` names another; or, with `cells`, the cell of the content space that it lies in: the
planner cuts the space into so many zones of equal load, as Kyra does. A broker is interested in
a topic if a local subscription can match publications of that topic; a subscription that does
not name its topics, or meets every cell, is interested in every one (`ANY`). Filters are compared
at the subscriber's broker.

The papers assume a membership service that tells each broker who is interested in what. Ours
is a flood of versioned records: (topic, broker, version, whether interested). A broker floods a
record when its own interest changes, passes on what is newer than what it knows, and tells all
it knows when a link comes up; a record about itself that is no longer true it overrules. What
the planner knew is where every broker starts from, so only changes travel. Unlike in the paper
a broker keeps the whole membership, not only its nearest subscriber of each topic: with less it
could not tell who is nearest after that one leaves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from postroad.errors import InputError
from postroad.filters import Filter
from postroad.filters.constraints import TextSet
from postroad.matching import Index
from postroad.model import BrokerId, Publication, Subscription, SubscriptionId, TimeUs
from postroad.overlay import Overlay, small_world
from postroad.overlay.small_world import Ring, SmallWorld
from postroad.planning import swico
from postroad.planning.kyra import divider
from postroad.planning.zones import Zone, divided_by, zones_met
from postroad.routing.base import Effect, Interests, Message, Note, Plan, Router, Send
from postroad.routing.pool import FilterPool
from postroad.routing.tables import SourceTable

Topic = str
ANY: Final[Topic] = ""
OVERLAYS = ("SL", "S", "L", "-")
LONG = ("chord", "chord_begun", "random")
_MET_MAX = 65_536


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InputError(f"{name} is {value!r}", remedy=f"choose one of: {', '.join(choices)}")


def check_cells(cells: int) -> None:
    if cells < 0:
        raise InputError(f"cells is {cells}", remedy="give a number of cells, or 0 for none")


class Topics:
    """What the topics are: the texts of an attribute, or cells of the content space."""

    def __init__(self, attribute: str, cells: Sequence[Zone] = ()) -> None:
        self.attribute = attribute
        self.cells = cells
        self.divides_by = divided_by(cells) if cells else frozenset((attribute,))
        self._met: dict[Filter, list[Topic]] = {}  # what is known already
        self._index: Index[Topic] = Index()
        for number, cell in enumerate(cells, 1):
            self._index.insert(str(number), cell.filter)

    def of(self, publication: Publication) -> Topic:
        if self.cells:
            (topic,) = self._index.match(publication.attributes)
            return topic
        text = publication.attributes.get(self.attribute)
        return text if isinstance(text, str) else ANY

    def wanted(self, filter: Filter) -> list[Topic]:
        """The topics whose publications a filter can match; `ANY` if it does not list them."""
        if self.cells:
            met = self._met.get(filter)
            if met is None:
                met = [str(1 + n) for n in zones_met(self.cells, filter)]
                met = met if len(met) < len(self.cells) else [ANY]
                if len(self._met) >= _MET_MAX:
                    self._met.clear()
                self._met[filter] = met
            return met
        topics: dict[Topic, None] = {}
        for conjunction in filter.conjunctions:
            texts = dict(conjunction).get(self.attribute)
            if not isinstance(texts, TextSet) or "" in texts.values:
                return [ANY]
            topics |= dict.fromkeys(sorted(texts.values))
        return list(topics)


def topics(filters: Iterable[Filter], config: Any) -> Topics:
    """The topics of a configuration; cells are cut by what the planner knows is asked for."""
    if not config.cells:
        return Topics(config.topic)
    return Topics(config.topic, divider(list(dict.fromkeys(filters)))(config.cells))


@dataclass(frozen=True, slots=True)
class MembershipMessage(Message):
    """Whether the broker at a position is interested in a topic, as of a version."""

    kind = "membership"
    wire = "ring.MembershipMessage"
    topic: Topic
    position: int
    version: int
    present: bool

    def __str__(self) -> str:
        change = f"{'joins' if self.present else 'leaves'} {self.topic!r}, version {self.version}"
        return f"membership: position {self.position} {change}"


class Circle(ABC):
    """Who stands where on a ring. Places are counted clockwise from 0 to before `space`."""

    space: int

    @abstractmethod
    def broker_at(self, place: int) -> BrokerId: ...

    @abstractmethod
    def is_taken(self, place: int) -> bool:
        """Whether a broker stands there."""

    @abstractmethod
    def from_on(self, place: int) -> int:
        """The first place clockwise, this one included, where a broker stands."""

    @abstractmethod
    def peers_of(self, place: int) -> Sequence[int]:
        """The neighbours of the broker there, ascending."""

    def distance(self, a: int, b: int) -> int:
        """The absolute distance between two places (footnote 1 of the BeaConvey paper)."""
        away = (b - a) % self.space
        return min(away, self.space - away)

    def nearest(self, places: Sequence[int], target: int) -> int:
        """Of these places the one nearest to the target; of two, the one before it."""
        space = self.space
        nearest, least = places[0], 2 * space
        for place in places:
            behind = (target - place) % space
            ahead = space - behind
            far = 2 * behind if behind <= ahead else 2 * ahead + 1
            if far < least:
                nearest, least = place, far
        return nearest

    def taken(self, places: Iterable[int]) -> list[int]:
        """Those where a broker stands, ascending."""
        return sorted(filter(self.is_taken, places))


@dataclass(frozen=True)
class RingPlan(Plan, Circle):
    """The plan of every ring scheme: the small world, its links, and the interests known."""

    overlay: Overlay
    world: SmallWorld
    router_class: Callable[[BrokerId, RingPlan], Router]
    config: Any
    seed: int
    topics: Topics
    known: Mapping[Topic, tuple[int, ...]]  # positions interested in each topic, ascending
    pool: FilterPool = field(default_factory=FilterPool)
    remembered: dict[Any, Any] = field(default_factory=dict)  # for answers that all may share
    _paths: dict[BrokerId, list[TimeUs]] = field(default_factory=dict)

    @cached_property
    def order(self) -> list[BrokerId]:
        order: list[BrokerId] = self.world.order.tolist()
        return order

    @cached_property
    def position(self) -> list[int]:
        position: list[int] = self.world.position.tolist()
        return position

    @property
    def space(self) -> int:  # type: ignore[override]
        return len(self.order)

    def broker_at(self, place: int) -> BrokerId:
        return self.order[place]

    def place_of(self, broker: BrokerId) -> int:
        return self.position[broker]

    def is_taken(self, place: int) -> bool:
        return True

    def taken(self, places: Iterable[int]) -> list[int]:
        return sorted(places)

    def from_on(self, place: int) -> int:
        return place

    def peers_of(self, place: int) -> Sequence[int]:
        return self.peers[place]

    @cached_property
    def peers(self) -> list[list[int]]:
        """The neighbours of each position, ascending."""
        start, peers = (part.tolist() for part in self.world.peers)
        return [peers[start[p] : start[p + 1]] for p in range(len(self.order))]

    def router(self, broker: BrokerId) -> Router:
        return self.router_class(broker, self)

    def links(self) -> Sequence[Mapping[BrokerId, TimeUs]]:
        if isinstance(self.overlay, Ring):
            return self.overlay.neighbours()
        return [
            {
                peer: self.direct_us(broker, peer)
                for peer in sorted(self.order[place] for place in self.peers[position])
            }
            for broker, position in enumerate(self.position)
        ]

    def direct_us(self, source: BrokerId, target: BrokerId) -> TimeUs:
        """As the overlay knows it; otherwise along the tree that it is."""
        if self.overlay.direct_us is not None:
            return int(self.overlay.direct_us[source, target])
        if source not in self._paths:
            self._paths[source] = self.overlay.path_us(source)
        return self._paths[source][target]


def plan(
    router_class: Callable[[BrokerId, RingPlan], Router],
) -> Callable[[Overlay, Interests, Any, int], RingPlan]:
    """Plans for a scheme: on the ring that is given, or on one made for the interests.

    A tree is the network below the ring: it says how far brokers are from each other.
    """

    def ring_plan(overlay: Overlay, interests: Interests, config: Any, seed: int = 0) -> RingPlan:
        kinds, wanted = wanted_topics(interests, config)
        if isinstance(overlay, Ring):
            world = overlay.world
        else:
            world = build(overlay.brokers_count, wanted, config, seed)
        known = by_topic(wanted, world.position.tolist())
        return RingPlan(overlay, world, router_class, config, seed, kinds, known)

    return ring_plan


def wanted_topics(interests: Interests, config: Any) -> tuple[Topics, list[tuple[BrokerId, Topic]]]:
    """What the topics are, and which of them brokers are known to want."""
    kinds = topics((filter for _, filter in interests.subscriptions), config)
    return kinds, [
        (broker, topic)
        for broker, filter in interests.subscriptions
        for topic in kinds.wanted(filter)
    ]


def by_topic(
    wanted: Iterable[tuple[BrokerId, Topic]], places: Sequence[int] | Mapping[BrokerId, int]
) -> dict[Topic, tuple[int, ...]]:
    """The places interested in each topic, ascending."""
    known: dict[Topic, set[int]] = {}
    for broker, topic in wanted:
        known.setdefault(topic, set()).add(places[broker])
    return {topic: tuple(sorted(each)) for topic, each in sorted(known.items())}


def build(
    brokers: int, wanted: Sequence[tuple[BrokerId, Topic]], config: Any, seed: int
) -> SmallWorld:
    """The overlay that `config.overlay`, `long` and `incoming` name, for these interests."""
    number: dict[Topic, int] = {}
    for _, topic in wanted:
        if topic != ANY:
            number.setdefault(topic, len(number))
    pairs = [
        (broker, place)
        for broker, topic in wanted
        for place in ([number[topic]] if topic != ANY else range(len(number)))
    ]
    interests = swico.from_pairs(
        [broker for broker, _ in pairs], [topic for _, topic in pairs], brokers, len(number)
    )
    if "S" in config.overlay:
        order = swico.greedy_ring(interests, seed)
    else:
        order = small_world.random_ring(brokers, seed)
    if "L" in config.overlay:
        fingers = swico.greedy_fingers(interests, order, seed, config.incoming)
    elif config.long != "random":
        fingers = small_world.chord(brokers, begun=config.long == "chord_begun")
    else:
        fingers = small_world.random_fingers(brokers, seed)
    return SmallWorld(order, fingers)


class RingRouter(Router):
    stateless = True

    """Local subscriptions, the membership, and the way towards a position."""

    def __init__(self, broker: BrokerId, plan: RingPlan) -> None:
        super().__init__(broker)
        self.plan = plan
        self.ring: Circle = plan
        self.position = plan.place_of(broker)
        self.topics = plan.topics
        self.divides_by = self.topics.divides_by
        self.local = SourceTable(plan.pool)
        self.own: dict[Topic, int] = {}  # local subscriptions per topic
        self.up: list[int] = []  # positions of the neighbours whose links are up, ascending
        self.records: dict[tuple[Topic, int], tuple[int, bool]] = {}
        self.entries_count = sum(map(len, plan.known.values()))
        self._members: dict[Topic, list[int]] = {}

    # Publications: what a scheme adds.

    @abstractmethod
    def on_publication(self, message: Message, now: TimeUs) -> list[Effect] | None:
        """Handle a publication's message; None if it is not one of this scheme's."""

    def deliver(self, publication: Publication, hops: int, effects: list[Effect]) -> None:
        self.matches_count += 1
        self.local.deliver(publication, hops, effects)

    def nearer(self, target: int) -> int | None:
        """The neighbour nearest to a position, if it is nearer than this broker itself."""
        ring = self.ring
        if not self.up:
            return None
        peer = ring.nearest(self.up, target)
        nearer = ring.distance(peer, target) < ring.distance(self.position, target)
        return peer if nearer else None

    def before(self, target: int) -> int | None:
        """The neighbour that is furthest clockwise without passing a position."""
        count = self.ring.space
        left = (target - self.position) % count
        ahead = [peer for peer in self.up if (peer - self.position) % count <= left]
        return max(ahead, key=lambda peer: (peer - self.position) % count, default=None)

    def hop(self, target: int, clockwise: bool = False) -> int | None:
        """The neighbour on the way to a position."""
        return self.before(target) if clockwise else self.nearer(target)

    def towards(self, target: int, message: Message, clockwise: bool = False) -> Effect:
        peer = self.hop(target, clockwise)
        if peer is None:
            return Note(f"dropped: no link leads nearer to position {target}")
        return Send(self.ring.broker_at(peer), message)

    def members(self, topic: Topic) -> list[int]:
        """The positions interested in a topic, ascending."""
        members = self._members.get(topic)
        if members is None:
            places = set(self.plan.known.get(topic, ()))
            for (name, place), (_, present) in self.records.items():
                if name == topic:
                    (places.add if present else places.discard)(place)
            if topic != ANY:
                places.update(self.members(ANY))
            members = self._members[topic] = self.ring.taken(places)
        return members

    # Membership.

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        if subscription.id in self.local.filter_of:
            self.on_unsubscribe(subscription.id, now)
        self.local.subscribe(subscription)
        effects: list[Effect] = []
        for topic in self.topics.wanted(subscription.filter):
            self.own[topic] = self.own.get(topic, 0) + 1
            if not self._known(topic, self.position):
                self._announce(topic, True, now, effects)
        return effects

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        filter = self.local.filter_of.get(subscription_id)
        if filter is None:
            return []
        self.local.unsubscribe(subscription_id)
        effects: list[Effect] = []
        for topic in self.topics.wanted(filter):
            self.own[topic] -= 1
            if not self.own[topic]:
                del self.own[topic]
                self._announce(topic, False, now, effects)
        return effects

    def _known(self, topic: Topic, place: int) -> bool:
        record = self.records.get((topic, place))
        return record[1] if record else place in self.plan.known.get(topic, ())

    def _announce(self, topic: Topic, present: bool, now: TimeUs, effects: list[Effect]) -> None:
        version, _ = self.records.get((topic, self.position), (-1, False))
        message = MembershipMessage(topic, self.position, max(now, version + 1), present)
        self._learn(message)
        effects += self.flood(message)

    def _learn(self, message: MembershipMessage) -> None:
        before = self._known(message.topic, message.position)
        self.records[message.topic, message.position] = (message.version, message.present)
        if before != message.present:
            self.entries_count += 1 if message.present else -1
            if message.topic == ANY:
                self._members.clear()
            else:
                self._members.pop(message.topic, None)

    def _on_membership(
        self, message: MembershipMessage, sender: BrokerId, now: TimeUs
    ) -> list[Effect]:
        version, _ = self.records.get((message.topic, message.position), (-1, False))
        if message.version <= version:
            return []
        self._learn(message)
        effects: list[Effect] = []
        if message.position == self.position and message.present != (message.topic in self.own):
            # Said before this broker crashed, and no longer true.
            self._announce(message.topic, message.topic in self.own, now, effects)
            return effects
        return self.flood(message, sender)

    def flood(self, message: Message, sender: BrokerId | None = None) -> list[Effect]:
        """A message to all neighbours but the one that it came from."""
        return [Send(peer, message) for peer in self.neighbours() if peer != sender]

    def neighbours(self) -> list[BrokerId]:
        return [self.ring.broker_at(peer) for peer in self.up]

    def interest_records(self) -> list[MembershipMessage]:
        return [
            MembershipMessage(topic, place, version, present)
            for (topic, place), (version, present) in self.records.items()
        ]

    # Links.

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        insort(self.up, self.plan.place_of(peer))
        return [Send(peer, message) for message in self.interest_records()]

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        place = self.plan.place_of(peer)
        if place in self.up:
            self.up.remove(place)
        return []

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        if isinstance(message, MembershipMessage):
            return self._on_membership(message, sender, now)
        effects = self.on_publication(message, now)
        if effects is None:
            return [Note(f"dropped: a ring router knows no {message.kind} message")]
        return effects

    def table_entries(self) -> int:
        return len(self.local) + self.entries_count

    def check(self) -> None:
        self.local.check()
        assert all(count > 0 for count in self.own.values())
        assert all(self._known(topic, self.position) for topic in self.own)
        present = sum(present for _, present in self.records.values())
        unsaid = sum(
            (topic, place) not in self.records
            for topic, places in self.plan.known.items()
            for place in places
        )
        assert self.entries_count == present + unsaid
