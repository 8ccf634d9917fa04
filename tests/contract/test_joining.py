"""Brokers join a running ring, leave it and fail; the plan's repair says what must come of it.

Whose links are whose after any churn is computed by `planning.churn` from the plan and from who is
left, the trees of Scribe by walking those links, and who gets what by matching: nothing is shared
with the routers but the brokers' places. A failure prints its seed.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import networks
from postroad import draws
from postroad.filters import matches
from postroad.model import BrokerId, Publication, Subscription
from postroad.overlay.small_world import Ring, SmallWorld, random_fingers, random_ring
from postroad.planning.churn import repaired
from postroad.routing import SCHEMES, Interests
from postroad.routing.base import Publish, Subscribe
from postroad.sim.engine import Fault, Simulator

EXAMPLES = max(1, int(os.environ.get("POSTROAD_EXAMPLES", "40")) // 10)
BEAT_US = 30_000
SETTLED_US = 20 * BEAT_US  # a failure is noticed, told and followed by then
NEVER_US = 10**12
NAMES = ("beaconvey", "scribe", "iscribe")
seeds = st.integers(min_value=0, max_value=2**32)


class Churn:
    """A ring of planned brokers, and others that are linked to one of them and may join."""

    def __init__(self, name: str, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        planned, more = draw.randint(2, 10), draw.randint(1, 4)
        self.count = count = planned + more
        fingers = random_fingers(planned, seed)
        self.world = SmallWorld(random_ring(planned, seed), fingers)
        ends = self.world.order[self.world.edges].tolist()
        ends += [(draw.randrange(planned), broker) for broker in range(planned, count)]
        latency = np.array([draw.randint(0, 3000) for _ in ends], np.int64)
        apart = np.array([[draw.randint(1, 3000) for _ in range(count)] for _ in range(count)])
        overlay = Ring(
            tuple(map(str, range(count))), np.array(ends), latency, apart, world=self.world
        )
        config = SCHEMES[name].config(**networks.JOINING)
        self.plan: Any = SCHEMES[name].plan(overlay, Interests(), config, seed)
        self.simulator = Simulator(self.plan, check=True)
        self.here = set(range(planned))
        self.away = set(range(planned, count))
        self.going: set[BrokerId] = set()  # away once all has settled
        self.subscriptions: dict[str, tuple[BrokerId, Any]] = {}
        self.filters: dict[str, Any] = {}  # also of those that are gone
        self.published: dict[Any, Publication] = {}
        self.owed: Counter[tuple[Any, str]] = Counter()
        for broker in self.away:
            self.simulator.fault(Fault("crash", (broker,), 0, NEVER_US))
        self.number = 0

    # What happens.

    def subscribe(self, broker: BrokerId) -> None:
        self.number += 1
        name, filter = f"s{self.number}", networks.filter(self.draw)
        self.subscriptions[name] = broker, filter
        self.filters[name] = filter
        self.simulator.at(self.simulator.now, broker, Subscribe(Subscription(name, filter)))

    def publish(self, broker: BrokerId, after_us: int = 0) -> None:
        """Owed to every subscription there is now."""
        self.number += 1
        content = networks.attributes(self.draw)
        publication = Publication("p", str(self.number), content)
        self.published[publication.key] = publication
        self.owed.update(
            (publication.key, name)
            for name, (_, filter) in self.subscriptions.items()
            if matches(filter, content)
        )
        self.simulator.at(self.simulator.now + after_us, broker, Publish(publication))

    def join(self, broker: BrokerId) -> None:
        """One that was never there, or had left or failed, starts."""
        self.away.remove(broker)
        self.here.add(broker)
        self.simulator._restart(broker)

    def leave(self, broker: BrokerId) -> None:
        self._lose(broker)
        now = self.simulator.now
        self.simulator.fault(Fault("leave", (broker,), now, now + 10 * BEAT_US))

    def fail(self, broker: BrokerId) -> None:
        self._lose(broker)
        self.simulator.fault(Fault("crash", (broker,), self.simulator.now, NEVER_US))

    def _lose(self, broker: BrokerId) -> None:
        self.here.remove(broker)
        self.going.add(broker)
        gone = [name for name, (home, _) in self.subscriptions.items() if home == broker]
        for name in gone:
            del self.subscriptions[name]
            self.simulator.brokers[broker].subscriptions.pop(name, None)

    def settle(self) -> None:
        self.simulator.run(self.simulator.now + SETTLED_US)
        self.away |= self.going
        self.going.clear()

    # What must have come of it.

    def router(self, broker: BrokerId) -> Any:
        return self.simulator.brokers[broker].router

    def check_links(self) -> dict[BrokerId, set[BrokerId]]:
        place = {broker: self.plan.place_of(broker) for broker in self.here}
        ring = sorted(self.here, key=place.__getitem__)
        number = np.full(self.world.nodes_count, -1, np.int64)
        for new, broker in enumerate(sorted(self.here)):
            if broker < self.world.nodes_count:
                number[broker] = new
        names = sorted(self.here)
        world = repaired(self.world, number, np.array([names.index(b) for b in ring]))
        assert world.has_property_1()
        linked: dict[BrokerId, set[BrokerId]] = {broker: set() for broker in ring}
        for a, b in world.edges.tolist():
            linked[ring[a]].add(ring[b])
            linked[ring[b]].add(ring[a])
        for broker in ring:
            view = self.router(broker).ring
            assert set(view.brokers.values()) == self.here
            peers = {view.broker_at(peer) for peer in view.peers_of(place[broker])}
            assert peers == linked[broker], (broker, ring)
        return linked

    def check_trees(self, linked: dict[BrokerId, set[BrokerId]]) -> None:
        """From every interested broker a walk to the one nearest to the topic's place."""
        space = 1 << 52
        place = {broker: self.plan.place_of(broker) for broker in self.here}

        def away(broker: BrokerId, target: int) -> tuple[int, int]:
            ahead = (target - place[broker]) % space
            return min(ahead, space - ahead), ahead

        for topic in ("A", "B", "C", ""):
            drawn = draws.below(space, self.plan.seed, "scribe.rendezvous",
                                draws.purpose_key(topic), 0)  # fmt: skip
            root = min(self.here, key=lambda broker: away(broker, drawn))
            children: dict[BrokerId, set[BrokerId]] = {}
            for broker in self.here:
                asked = self.simulator.brokers[broker].subscriptions.values()
                if any(topic in self.plan.topics.wanted(each.filter) for each in asked):
                    while broker != root:
                        above = min(linked[broker], key=lambda peer: away(peer, place[root]))
                        children.setdefault(above, set()).add(broker)
                        broker = above
            for broker in self.here:
                found = set(self.router(broker).children.get(topic, ()))
                assert found == children.get(broker, set()), (topic, broker, root)

    def check_deliveries(self) -> None:
        delivered = Counter(delivery[:2] for delivery in self.simulator.deliveries)
        assert not [pair for pair, count in delivered.items() if count > 1]
        missing = self.owed - delivered
        assert not missing, missing
        for key, name in delivered:
            assert matches(self.filters[name], self.published[key].attributes)


def begin(name: str, seed: int) -> Churn:
    churn = Churn(name, seed)
    churn.settle()
    for _ in range(churn.draw.randint(1, 10)):
        churn.subscribe(churn.draw.choice(sorted(churn.here)))
    churn.settle()
    return churn


def check_healed(name: str, churn: Churn) -> None:
    churn.settle()
    linked = churn.check_links()
    if name == "scribe":
        churn.check_trees(linked)
    for broker in churn.draw.sample(sorted(churn.here), min(3, len(churn.here))):
        churn.publish(broker)
    churn.settle()
    churn.check_deliveries()


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds)
@settings(max_examples=EXAMPLES, deadline=None)
def test_after_any_churn_the_ring_is_what_the_plan_s_repair_makes_it(name: str, seed: int) -> None:
    churn = begin(name, seed)
    draw = churn.draw
    for _ in range(draw.randint(1, 3)):
        for _ in range(draw.randint(1, 3)):  # at once
            what = draw.random()
            if what < 0.4 and churn.away:
                churn.join(draw.choice(sorted(churn.away)))
            elif len(churn.here) > 1:
                (churn.leave if what < 0.7 else churn.fail)(draw.choice(sorted(churn.here)))
            churn.simulator.run(churn.simulator.now + draw.choice([0, 1000, 10_000, 100_000]))
        if draw.random() < 0.5:
            churn.subscribe(draw.choice(sorted(churn.here)))
        check_healed(name, churn)


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds)
@settings(max_examples=EXAMPLES, deadline=None)
def test_nothing_is_lost_while_brokers_join_and_leave(name: str, seed: int) -> None:
    """Publications all the while, by brokers that stay, for clients of brokers that stay."""
    churn = begin(name, seed)
    draw = churn.draw
    leaver = draw.choice(sorted(churn.here)) if len(churn.here) > 1 else None
    stay = sorted(churn.here - {leaver})
    for gone in [n for n, (home, _) in churn.subscriptions.items() if home == leaver]:
        del churn.subscriptions[gone]
    for _ in range(40):
        churn.publish(draw.choice(stay), draw.randint(0, 200_000))
    churn.simulator.run(churn.simulator.now + draw.randint(0, 100_000))
    if leaver is not None and draw.random() < 0.7:
        churn.leave(leaver)
    if leaver is None or draw.random() < 0.6:
        churn.join(draw.choice(sorted(churn.away - {leaver})))
    check_healed(name, churn)
