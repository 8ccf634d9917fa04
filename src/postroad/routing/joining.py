"""Brokers that join a running ring and leave it, by messages (section 1.3 of the BeaConvey paper).

The paper plans a ring now and then and, for nodes that come, go or fail meanwhile, points to what
rings of distributed hash tables do. Here every broker has an identifier, its place on the ring: a
planned broker's follows from its position, any other draws it. Who is on the ring is told by
records (broker, version, here, left or failed), which are flooded and exchanged when a link comes
up, as those of interests are (see `ring`); the newest counts.

A broker that *joins* tells the brokers that the network links it to, and is told all records in
return: so it knows its successor, its predecessor and its fingers. One that *leaves* says so and
goes on passing messages on for a while. Each beats its two neighbours on the ring; one that does
not answer four times has *failed*, and whoever misses it says so. A broker that is said to have
failed, and has not, says so with a newer version. With a beat comes a digest of all records: two
brokers whose digests differ twice send each other theirs. One failed broker at a time is beaten,
too: so halves of a network that was divided find each other; where no neighbour beats, the first
difference is enough.

Fingers are what the plan's repair makes of them (`planning.churn`): a planned one is kept while it
points into its phase, any other is Chord's. Messages go to the neighbour nearest by identifier, so
each hop comes nearer, whatever brokers know of each other. Ring links are made as they are needed;
the network's own links carry records besides.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from postroad import draws
from postroad.errors import InputError
from postroad.model import BrokerId, TimeUs
from postroad.overlay import Overlay
from postroad.overlay.small_world import Ring, SmallWorld, phases_count
from postroad.routing import ring
from postroad.routing.base import Effect, Interests, Message, Router, Send, SetTimer
from postroad.routing.ring import Circle, MembershipMessage, RingPlan, RingRouter

MEMBERSHIPS = ("plan", "messages")
HERE, FAILED, LEFT = 0, 1, 2  # of two records of one version the higher counts
_WORDS = ("here", "failed", "left")
_BROKER_BITS: Final = 20  # the low bits of an identifier are the broker's number: no two are equal
_SPACE: Final = 1 << (32 + _BROKER_BITS)
MISSED_MAX = 4  # beats without an answer
_VIEWS_MAX = 8


def check_membership(membership: str, beat_s: float, grace_s: float) -> None:
    ring.check_choice("membership", membership, MEMBERSHIPS)
    for name, value in (("beat_s", beat_s), ("grace_s", grace_s)):
        if value <= 0:
            raise InputError(f"{name} is {value}", remedy="give a positive number of seconds")


@dataclass(frozen=True, slots=True)
class NodeMessage(Message):
    """Whether a broker is on the ring, as of a version."""

    kind = "node"
    wire = "joining.NodeMessage"
    broker: BrokerId
    version: int
    state: int

    def __str__(self) -> str:
        return f"node: broker {self.broker} is {_WORDS[self.state]}, version {self.version}"


@dataclass(frozen=True, slots=True)
class BeatMessage(Message):
    """The sender is alive, and this is the digest of its records."""

    kind = "beat"
    wire = "joining.BeatMessage"
    chatter = True
    digest: int
    asks: bool  # for an answer

    def __str__(self) -> str:
        return f"beat{', to be answered' if self.asks else ''}"


MESSAGES = (NodeMessage, BeatMessage)


@dataclass(frozen=True, eq=False)
class View(Circle):
    """The ring as one broker knows it."""

    places: Sequence[int]  # ascending
    brokers: Mapping[int, BrokerId]
    peers: Mapping[int, Sequence[int]]
    space: int = _SPACE

    def broker_at(self, place: int) -> BrokerId:
        return self.brokers[place]

    def is_taken(self, place: int) -> bool:
        return place in self.brokers

    def from_on(self, place: int) -> int:
        return self.places[bisect_left(self.places, place) % len(self.places)]

    def peers_of(self, place: int) -> Sequence[int]:
        return self.peers[place] if place in self.peers else self.beside(place)

    def beside(self, place: int) -> list[int]:
        """The places before and after one."""
        if not self.places:
            return []
        before = self.places[bisect_left(self.places, place) - 1]
        after = self.places[bisect_right(self.places, place) % len(self.places)]
        return sorted({before, after} - {place})

    def closest(self, place: int) -> int:
        """Where the broker nearest to a place stands."""
        if place in self.brokers:
            return place
        return self.nearest(self.beside(place), place)


@dataclass(frozen=True)
class JoiningPlan(RingPlan):
    """Routers start from all brokers that have a link; the world may be of some, or of none."""

    def place_of(self, broker: BrokerId) -> int:
        planned = self.world.nodes_count
        if broker < planned:
            high = self.position[broker] * ((1 << 32) // planned)
        else:
            high = draws.below(1 << 32, self.seed, "ring.place", broker, 0)
        return high << _BROKER_BITS | broker

    def links(self) -> Sequence[Mapping[BrokerId, TimeUs]]:
        return self.overlay.neighbours()

    @cached_property
    def first(self) -> frozenset[BrokerId]:
        links = self.links()
        return frozenset(b for b, peers in enumerate(links) if peers or len(links) == 1)

    def view(self, present: frozenset[BrokerId]) -> View:
        """The ring of these brokers; all who know the same may share it."""
        view: View | None = self.remembered.get(present)
        if view is None:
            if len(self.remembered) >= _VIEWS_MAX:
                self.remembered.clear()
            view = self.remembered[present] = self._view(present)
        return view

    def _view(self, present: frozenset[BrokerId]) -> View:
        brokers = {self.place_of(broker): broker for broker in sorted(present)}
        places = sorted(brokers)
        rank = {brokers[place]: n for n, place in enumerate(places)}
        linked: dict[int, set[int]] = {place: set() for place in places}
        for n, place in enumerate(places):
            for phase in range(phases_count(len(places))):
                far = places[(n + (1 << phase)) % len(places)]
                planned = self._planned_finger(brokers[place], phase) if phase else None
                if planned in rank and 1 << phase <= (rank[planned] - n) % len(places) < 2 << phase:
                    far = places[rank[planned]]
                linked[place].add(far)
                linked[far].add(place)
        return View(places, brokers, {place: sorted(far) for place, far in linked.items()})

    def _planned_finger(self, broker: BrokerId, phase: int) -> BrokerId:
        nodes, phases = self.world.fingers.shape
        if broker >= nodes or phase >= phases:
            return -1
        return self.order[int(self.world.fingers[self.position[broker], phase])]


def plan(
    router_class: Callable[[BrokerId, RingPlan], Router],
    joining_class: Callable[[BrokerId, Any], Router],
    told: bool = True,
) -> Callable[[Overlay, Interests, Any, int], RingPlan]:
    """Plans for a scheme whose parameter `membership` says how brokers know of each other.

    A ring is planned for known interests, or given; with neither, identifiers are drawn. `told`:
    routers start from the interests that the planner knows.
    """
    fixed = ring.plan(router_class)

    def ring_plan(overlay: Overlay, interests: Interests, config: Any, seed: int = 0) -> RingPlan:
        if config.membership == "plan":
            return fixed(overlay, interests, config, seed)
        kinds, wanted = ring.wanted_topics(interests, config)
        if isinstance(overlay, Ring):
            world = overlay.world
        elif wanted:
            world = ring.build(overlay.brokers_count, wanted, config, seed)
        else:
            world = SmallWorld(np.zeros(0, np.int64), np.zeros((0, 0), np.int64))
        joining = JoiningPlan(overlay, world, joining_class, config, seed, kinds, {})
        if not told:
            return joining
        places = [joining.place_of(broker) for broker in range(overlay.brokers_count)]
        known = ring.by_topic(wanted, places)
        return JoiningPlan(overlay, world, joining_class, config, seed, kinds, known)

    return ring_plan


class Joining(RingRouter):
    """A router's knowledge of who is on the ring; what it routes by is its scheme's."""

    plan: JoiningPlan
    ring: View

    def __init__(self, broker: BrokerId, plan: JoiningPlan) -> None:
        super().__init__(broker, plan)
        self.beat_us = round(1e6 * plan.config.beat_s)
        self.grace_us = round(1e6 * plan.config.grace_s)
        self.nodes: dict[BrokerId, tuple[int, int]] = {}  # version and state of each record
        self.linked: dict[BrokerId, None] = {}  # whom the network links this broker to, if up
        self.cut = set(plan.links()[broker])  # and if down
        self.missed: dict[BrokerId, int] = {}  # beats that neighbours on the ring did not answer
        self.differs: set[BrokerId] = set()  # whose last digest was another
        self.leaving = self.left = False
        self._digest: int | None = None
        self._beats = 0
        self.ring = plan.view(plan.first)
        self._see_links()

    # What a scheme adds.

    @abstractmethod
    def on_ring_change(self, before: View, effects: list[Effect]) -> None:
        """Others are on the ring now."""

    def on_return(self, broker: BrokerId, effects: list[Effect]) -> None:
        """A broker has started again, or says that it is here after all."""

    # Records.

    def version_of(self, broker: BrokerId) -> tuple[int, int]:
        return self.nodes.get(broker, (0, HERE) if broker in self.plan.first else (-1, LEFT))

    def here(self) -> frozenset[BrokerId]:
        first = {broker for broker in self.plan.first if broker not in self.nodes}
        told = {broker for broker, (_, state) in self.nodes.items() if state == HERE}
        return frozenset(first | told)

    def on_start(self, now: TimeUs) -> list[Effect]:
        effects: list[Effect] = [SetTimer("beat", self.beat_us)]
        if now > 0:  # before, everyone is where the plan says
            self._say(self.broker, HERE, now, effects)
        return effects

    def on_leave(self, now: TimeUs) -> list[Effect]:
        effects: list[Effect] = [SetTimer("left", self.grace_us)]
        self.leaving = True
        self._say(self.broker, LEFT, now, effects)
        return effects

    def has_left(self) -> bool:
        return self.left

    def _say(self, broker: BrokerId, state: int, now: TimeUs, effects: list[Effect]) -> None:
        version = self.version_of(broker)[0] + 1
        own = broker == self.broker
        self._learn_node(
            NodeMessage(broker, max(now, version) if own else version, state), None, effects
        )

    def _learn_node(
        self, message: NodeMessage, sender: BrokerId | None, effects: list[Effect]
    ) -> None:
        before, neighbours = self.ring, self.neighbours()
        self.nodes[message.broker] = message.version, message.state
        self._digest = None
        self.ring = self.plan.view(self.here())
        if self.ring is not before:
            self._members.clear()
            self.missed.pop(message.broker, None)
            self.differs.discard(message.broker)
            self._see_links()
        told = dict.fromkeys([*neighbours, *self.neighbours()])
        effects += [Send(peer, message) for peer in told if peer != sender]
        if self.ring is not before:
            self.on_ring_change(before, effects)
        if message.state == HERE and message.broker != self.broker:
            self.on_return(message.broker, effects)

    def _on_node(self, message: NodeMessage, sender: BrokerId, now: TimeUs) -> list[Effect]:
        effects: list[Effect] = []
        if (message.version, message.state) <= self.version_of(message.broker):
            return effects
        if message.broker != self.broker:
            self._learn_node(message, sender, effects)
        else:  # said by one that missed this broker, or of an earlier start of it
            self.nodes[self.broker] = message.version, message.state
            self._say(self.broker, LEFT if self.leaving else HERE, now, effects)
            for peer in list(self.ring.brokers.values()):
                if peer != self.broker:
                    self.on_return(peer, effects)
        return effects

    def _all_records(self, peer: BrokerId) -> list[Effect]:
        nodes = [NodeMessage(broker, *record) for broker, record in self.nodes.items()]
        return [Send(peer, message) for message in (*nodes, *self.interest_records())]

    def _learn(self, message: MembershipMessage) -> None:
        super()._learn(message)
        self._digest = None

    @property
    def digest(self) -> int:
        if self._digest is None:
            self._digest = self._digest_records()
        return self._digest

    def _digest_records(self) -> int:
        digest = 0
        for broker, (version, state) in self.nodes.items():
            digest ^= draws.bits(version, "joining.node", broker, state)
        for (topic, place), (version, present) in self.records.items():
            digest ^= draws.bits(version, topic, place, present)
        return digest >> 1

    # Links.

    def _see_links(self) -> None:
        """The neighbours on the ring that messages may go to."""
        self.up = [
            peer
            for peer in self.ring.peers_of(self.position)
            if self.ring.broker_at(peer) not in self.cut
        ]

    def neighbours(self) -> list[BrokerId]:
        return list(dict.fromkeys([*self.linked, *super().neighbours()]))

    def hop(self, target: int, clockwise: bool = False) -> int | None:
        peer = super().hop(target, clockwise)
        if peer is None and self.ring.is_taken(target):
            return target  # over whatever way there is
        return peer

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.linked[peer] = None
        self.cut.discard(peer)
        self._see_links()
        effects = self._all_records(peer)
        self.on_ring_change(self.ring, effects)
        return effects

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.linked.pop(peer, None)
        self.cut.add(peer)
        self._see_links()
        effects: list[Effect] = []
        self.on_ring_change(self.ring, effects)
        return effects

    # Beats.

    def on_timer(self, name: str, now: TimeUs) -> list[Effect]:
        if name == "left":
            self.left = True
        return self._beat(now) if name == "beat" else []

    def _beat(self, now: TimeUs) -> list[Effect]:
        effects: list[Effect] = [SetTimer("beat", self.beat_us)]
        beside = [self.ring.broker_at(place) for place in self.ring.beside(self.position)]
        self.missed = {broker: self.missed.get(broker, 0) for broker in beside}
        self.differs.intersection_update(beside)
        for broker in [b for b in beside if self.missed[b] >= MISSED_MAX]:
            self._say(broker, FAILED, now, effects)
        message = BeatMessage(self.digest, True)
        for broker in self.missed:
            self.missed[broker] += 1
            effects.append(Send(broker, message))
        failed = sorted(b for b, (_, state) in self.nodes.items() if state == FAILED)
        if failed:
            self._beats += 1
            effects.append(Send(failed[self._beats % len(failed)], message))
        return effects

    def _on_beat(self, message: BeatMessage, sender: BrokerId) -> list[Effect]:
        effects: list[Effect] = []
        if sender in self.missed:
            self.missed[sender] = 0
        digest = self.digest
        if message.digest == digest:
            self.differs.discard(sender)
        elif sender in self.differs or sender not in self.missed:
            self.differs.discard(sender)
            effects += self._all_records(sender)
        else:
            self.differs.add(sender)
        if message.asks:
            effects.append(Send(sender, BeatMessage(digest, False)))
        return effects

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        if isinstance(message, NodeMessage):
            return self._on_node(message, sender, now)
        if isinstance(message, BeatMessage):
            return self._on_beat(message, sender)
        return super().on_message(message, sender, now)

    def idle(self) -> bool:
        return not self.differs and self.leaving == self.left

    def check(self) -> None:
        super().check()
        assert self.digest == self._digest_records()
        assert sorted(self.ring.brokers.values()) == sorted(self.here())
