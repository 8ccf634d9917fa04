"""BeaConvey's routing on small-world rings (section 4 of the paper).

Idea: a message is to reach every subscriber of its topic in a range of the ring. The broker at
the start of the range divides it among its next hops and each conquers its own part. Next hops
are the nearest subscriber clockwise and the fingers that subscribe (`po`); `pal` adds a pivot
in the second half of the range whenever there is none, `pie` only where a finger is one.

State: the local subscriptions and the membership (see `ring`). Messages: `publication` with
its range, which relays pass on towards the start of the range, and `membership`.

Where the paper leaves a choice: `send` goes to the neighbour nearest by absolute distance,
over links in either direction, while ranges are clockwise; of two equally near neighbours the
one before the target. A broker's fingers are all its neighbours. Of several fingers in the
distant range the first is the pivot; a pivot without a finger is the middle of the distant
range (as in Figure 2(d)).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from postroad.model import BrokerId, Publication, TimeUs
from postroad.planning.swico import INCOMING
from postroad.routing import joining
from postroad.routing.base import CarriesOne, Effect, Message
from postroad.routing.ring import (
    LONG,
    OVERLAYS,
    RingPlan,
    RingRouter,
    Topic,
    check_cells,
    check_choice,
)

ROUTINGS = ("po", "pal", "pie")
SENDS = ("nearest", "clockwise")


@dataclass(frozen=True, slots=True)
class Config:
    """`overlay`: what is planned for interest (S: the ring, L: the fingers; - neither).

    `topic` is the attribute whose text is a publication's topic; with `cells` above 0 the
    content space is cut into so many cells instead, and a cell is a topic. With `membership`
    "messages" brokers join and leave the running ring; each beats its neighbours every `beat_s`,
    and for `grace_s` after a change the old ways are used beside the new ones.
    """

    routing: str = "pie"
    overlay: str = "SL"
    long: str = "chord"
    incoming: str = "one"
    send: str = "nearest"
    topic: str = "class"
    cells: int = 0
    membership: str = "plan"
    beat_s: float = 2.0
    grace_s: float = 1.0

    def __post_init__(self) -> None:
        check_choice("routing", self.routing, ROUTINGS)
        check_choice("overlay", self.overlay, OVERLAYS)
        check_choice("long", self.long, LONG)
        check_choice("incoming", self.incoming, INCOMING)
        check_choice("send", self.send, SENDS)
        check_cells(self.cells)
        joining.check_membership(self.membership, self.beat_s, self.grace_s)


class RangeMessage(CarriesOne, msgspec.Struct, frozen=True):
    """A publication for the subscribers in [low, high); the whole ring if low is high."""

    kind = "publication"
    wire = "beaconvey.RangeMessage"
    forwards = True
    publication: Publication
    low: int
    high: int
    hops: int

    def __str__(self) -> str:
        return f"publication {self.publication.name} for positions {self.low} to before {self.high}"


class BeaConvey(RingRouter):
    def __init__(self, broker: BrokerId, plan: RingPlan) -> None:
        super().__init__(broker, plan)
        self.routing: str = plan.config.routing

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        return self._spread(RangeMessage(publication, self.position, self.position, 0))

    def on_publication(self, message: Message, now: TimeUs) -> list[Effect] | None:
        if not isinstance(message, RangeMessage):
            return None
        if message.low != self.position:
            return [self._send(message)]
        return self._spread(message)

    def _spread(self, message: RangeMessage) -> list[Effect]:
        """Protocol 4: deliver here, then give each next hop its part of the range."""
        effects: list[Effect] = []
        self.deliver(message.publication, message.hops, effects)
        hops = self.next_hops(self.topics.of(message.publication), message.high)
        for low, high in pairwise([*hops, message.high]):
            effects.append(self._send(RangeMessage(message.publication, low, high, message.hops)))
        return effects

    def _send(self, message: RangeMessage) -> Effect:
        onward = RangeMessage(message.publication, message.low, message.high, message.hops + 1)
        return self.towards(message.low, onward, self.plan.config.send == "clockwise")

    def next_hops(self, topic: Topic, high: int) -> list[int]:
        """Protocol 5, for a message whose range starts here and ends before `high`."""
        count, position = self.ring.space, self.position
        length = (high - position - 1) % count + 1

        def away(place: int) -> int:
            return (place - position) % count

        members = self.members(topic)
        if not members:
            return []
        nearest = members[bisect_right(members, position) % len(members)]
        inside = [
            peer for peer in self.ring.peers_of(position) if (peer - position) % count < length
        ]
        chosen = set(inside).intersection(members)
        if 0 < away(nearest) < length:
            chosen.add(nearest)
        hops = sorted(chosen, key=away)
        middle = length // 2
        if self.routing == "po" or not hops or away(hops[-1]) >= middle:
            return hops
        distant = [peer for peer in inside if away(peer) >= middle]
        if distant:
            hops.append(min(distant, key=away))
        elif self.routing == "pal":
            pivot = self.ring.from_on((self.position + middle + (length - middle) // 2) % count)
            if away(pivot) < length:
                hops.append(pivot)
        return hops


class JoiningBeaConvey(joining.Joining, BeaConvey):
    """On a ring that brokers join and leave: the range of one that is gone has another start."""

    def on_publication(self, message: Message, now: TimeUs) -> list[Effect] | None:
        if isinstance(message, RangeMessage) and not self._is_known(message.low):
            low = self._first_in(message)
            if low is None:
                return []
            message = RangeMessage(message.publication, low, message.high, message.hops)
        return super().on_publication(message, now)

    def _is_known(self, low: int) -> bool:
        return low == self.position or self.ring.is_taken(low)

    def _first_in(self, message: RangeMessage) -> int | None:
        """The first subscriber in the range; ranges only shrink, so nobody gets anything twice."""
        space = self.ring.space
        length = (message.high - message.low) % space
        members = self.members(self.topics.of(message.publication))
        away = ((place - message.low) % space for place in members)
        nearest = min((each for each in away if each < length), default=None)
        return None if nearest is None else (message.low + nearest) % space

    def on_ring_change(self, before: joining.View, effects: list[Effect]) -> None:
        pass
