"""Publishers that move at any moment: nothing lost, nothing twice, order kept, nobody disturbed.

A failure prints the seed; `check_moves(seed, …)` or `check_faults(seed, …)` replays it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import networks
from postroad import draws
from postroad.filters import Filter, matches
from postroad.model import Advertisement, BrokerId, Publication, Subscription, TimeUs
from postroad.overlay import Overlay, from_parents
from postroad.relocation.migration import Migration
from postroad.routing import TreePlan, advertisement_forwarding
from postroad.routing.base import (
    Advertise,
    Effect,
    Input,
    Message,
    Note,
    Publish,
    Received,
    Subscribe,
    TimerFired,
    Unadvertise,
    Unsubscribe,
)
from postroad.routing.pool import FilterPool
from postroad.routing.tables import LOCAL
from postroad.sim.engine import Fault, Simulator

seeds = st.integers(min_value=0, max_value=2**32)
MIGRATION = {"migration_update", "migration_complete", "migration_abort"}


class Ordered(Migration):
    """Moves a publisher of its own when the test says so."""

    def on_timer(self, name: str, now: TimeUs) -> list[Effect]:
        word, advertisement_id, target = name.split()
        known = self.advertisements.get(advertisement_id)
        if word != "move" or known is None or known[1] != LOCAL or int(target) == self.broker:
            return []
        if not self.can_move(advertisement_id):
            return []
        return self.move(advertisement_id, int(target))


class Lossy(Ordered):
    """Of the messages about moves some get lost on the way here."""

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        if message.kind in MIGRATION and draws.uniform(now, "lost", self.broker, sender) < 0.3:
            return [Note("lost")]
        return super().on_message(message, sender, now)


@dataclass
class Net:
    """A simulated network with publishers, each with one advertisement, and what they did."""

    overlay: Overlay
    covering: bool = False
    service_us: int = 0
    router: type[Ordered] = Ordered
    subscriptions: dict[str, tuple[BrokerId, Filter, TimeUs, TimeUs | None]] = field(
        default_factory=dict
    )
    publications: list[tuple[TimeUs, Publication]] = field(default_factory=list)
    injected: dict[Any, TimeUs] = field(default_factory=dict)
    handled: Counter[tuple[str, BrokerId]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        config = advertisement_forwarding.Config(covering=self.covering)
        plan = TreePlan(self.overlay, self.router, config, FilterPool(self.covering), 0)
        self.simulator = Simulator(
            plan, observer=self.watch, check=True, service_us=self.service_us
        )

    def watch(self, now: TimeUs, broker: BrokerId, given: Input, effects: Any) -> None:
        if isinstance(given, Publish):
            self.injected[given.publication.key] = now
        if isinstance(given, Received) and given.message.kind in MIGRATION:
            self.handled[given.message.kind, broker] += 1

    def order(self, time_us: TimeUs, advertisement_id: str, target: BrokerId) -> None:
        """Whoever is the publisher's broker then tells it to move."""
        for broker in range(self.overlay.brokers_count):
            self.simulator.at(time_us, broker, TimerFired(f"move {advertisement_id} {target}"))

    def homes(self) -> dict[str, BrokerId]:
        return {
            name: number
            for number, broker in enumerate(self.simulator.brokers)
            for name, (_, hop) in broker.router.advertisements.items()  # type: ignore[attr-defined]
            if hop == LOCAL
        }

    def require(self, settle_us: TimeUs, troubled: Callable[[TimeUs], bool]) -> None:
        """Exactly once for every subscription that stands around a publication; in order."""
        owed, allowed = set(), set()
        unheard = 0
        for time_us, publication in self.publications:
            sent_us = self.injected.get(publication.key)
            if sent_us is None:
                unheard += publication.key not in self.simulator.refused
                continue
            for name, (_, filter, since, until) in self.subscriptions.items():
                if not matches(filter, publication.attributes):
                    continue
                pair = (publication.key, name)
                stands = since + settle_us <= time_us if since else True
                stays = until is None or sent_us + settle_us <= until
                (owed if stands and stays and not troubled(sent_us) else allowed).add(pair)
        # Only a crash swallows what a publisher has given to its broker.
        assert unheard <= sum(broker.dropped for broker in self.simulator.brokers)
        got = Counter(delivery[:2] for delivery in self.simulator.deliveries)
        assert not owed - got.keys(), f"lost {sorted(owed - got.keys())[:3]}"
        assert not got.keys() - owed - allowed
        assert not got or max(got.values()) == 1
        last: dict[tuple[str, str], int] = {}
        for (publisher, number), subscription, *_ in self.simulator.deliveries:
            assert last.get((publisher, subscription), -1) < int(number), "out of order"
            last[publisher, subscription] = int(number)


def random_net(
    draw: random.Random,
    covering: bool,
    moves: int,
    shorter: int = 1,
    router: type[Ordered] = Ordered,
) -> Net:
    overlay = networks.overlay(draw)
    overlay.latency_us[:] //= shorter
    brokers = range(overlay.brokers_count)
    if draw.random() < 0.7:  # a moved publisher's way to a broker need not be that of the tree
        direct = [[draw.randint(0, 6000 // shorter) for _ in brokers] for _ in brokers]
        overlay = replace(overlay, direct_us=np.array(direct))
    net = Net(overlay, covering, draw.choice([0, 0, 150 // shorter]), router)
    simulator = net.simulator
    offers = {}
    for number in range(draw.randint(1, 4)):
        name = f"a{number}"
        offers[name] = (draw.choice(brokers), networks.filter(draw))
        advertisement = Advertisement(name, offers[name][1], f"p{number}")
        simulator.at(0, offers[name][0], Advertise(advertisement))
    for number in range(draw.randint(0, 12)):
        broker, filter = draw.choice(brokers), networks.filter(draw)
        net.subscriptions[f"s{number}"] = (broker, filter, 0, None)
        simulator.at(0, broker, Subscribe(Subscription(f"s{number}", filter)))
    zero = simulator.settle() + 1
    span = 40_000
    for number in range(draw.randint(0, 6)):
        broker, filter = draw.choice(brokers), networks.filter(draw)
        since = zero + draw.randint(0, span)
        until = draw.choice([None, since + draw.randint(0, span)])
        net.subscriptions[f"t{number}"] = (broker, filter, since, until)
        simulator.at(since, broker, Subscribe(Subscription(f"t{number}", filter)))
        if until is not None:
            simulator.at(until, broker, Unsubscribe(f"t{number}"))
    for name, (broker, filter) in offers.items():
        for time_us in sorted(draw.randint(0, span) for _ in range(draw.randint(0, 25))):
            attributes = networks.matching_attributes(draw, filter)
            if attributes is not None:
                made = Publication(f"p{name[1:]}", str(len(net.publications)), attributes)
                net.publications.append((zero + time_us, made))
                simulator.at(zero + time_us, broker, Publish(made))
    for _ in range(draw.randint(1, moves)):
        net.order(zero + draw.randint(0, span), draw.choice(list(offers)), draw.choice(brokers))
    return net


def settle_us(net: Net) -> int:
    """Two trips across the network, and as much for a queue at every broker."""
    brokers = net.overlay.brokers_count
    direct_us = 0 if net.overlay.direct_us is None else int(net.overlay.direct_us.max())
    return 4 * direct_us + 2 * int(net.overlay.latency_us.sum()) + 40 * brokers * net.service_us


def check_moves(seed: int, covering: bool) -> int:
    net = random_net(random.Random(seed), covering, moves=12)
    net.simulator.run()
    assert not net.simulator.notes
    net.require(settle_us(net), lambda _: False)
    for broker in net.simulator.brokers:
        router = broker.router
        assert isinstance(router, Ordered)
        assert not router.arriving
        assert not router.leaving
    # In the end the tables are those of a network where everyone had been there all along.
    assert tables(net) == tables(afresh(net))
    return len(net.simulator.moves)


def tables(net: Net) -> list[Any]:
    """Per broker: who wants what, and what each neighbour was asked for, up to covering."""
    return [
        (
            {name: hop for name, (_, hop) in broker.router.advertisements.items()},  # type: ignore[attr-defined]
            {
                peer: set(outgoing.asked) | set(outgoing.covered_by)
                for peer, outgoing in broker.router.outgoing.items()  # type: ignore[attr-defined]
            }
            if not net.covering
            else None,
        )
        for broker in net.simulator.brokers
    ]


def afresh(net: Net) -> Net:
    made = Net(net.overlay, net.covering)
    filters = {
        name: advertisement
        for broker in net.simulator.brokers
        for name, (advertisement, _) in broker.router.advertisements.items()  # type: ignore[attr-defined]
    }
    for name, broker in net.homes().items():
        made.simulator.at(0, broker, Advertise(filters[name]))
    for name, (broker, filter, _, until) in net.subscriptions.items():
        if until is None:
            made.simulator.at(0, broker, Subscribe(Subscription(name, filter)))
    made.simulator.settle()
    return made


@pytest.mark.parametrize("covering", [False, True])
@given(seed=seeds)
@settings(max_examples=150, deadline=None)
def test_moves_at_random_moments_lose_nothing_and_keep_order(covering: bool, seed: int) -> None:
    check_moves(seed, covering)


def check_lost(seed: int, covering: bool) -> int:
    net = random_net(random.Random(seed), covering, moves=6, router=Lossy)
    net.simulator.run()
    net.require(settle_us(net), lambda _: False)
    for broker in net.simulator.brokers:
        assert isinstance(broker.router, Ordered)
        assert not broker.router.arriving
        assert not broker.router.leaving
    assert all(not client.publisher.held for client in net.simulator.clients.values())
    assert tables(net) == tables(afresh(net))
    return sum(moved.source == moved.target for moved in net.simulator.moves)


@pytest.mark.parametrize("covering", [False, True])
@given(seed=seeds)
@settings(max_examples=75, deadline=None)
def test_lost_messages_about_moves_delay_a_publisher_and_nothing_else(
    covering: bool, seed: int
) -> None:
    check_lost(seed, covering)


def test_a_move_whose_messages_are_lost_is_given_up() -> None:
    assert sum(check_lost(seed, False) for seed in range(10)) > 3


def check_faults(seed: int, covering: bool) -> None:
    draw = random.Random(seed)
    net = random_net(draw, covering, moves=12, shorter=20)
    simulator = net.simulator
    ends = net.overlay.ends.tolist()
    windows = []
    crashed = set()
    for _ in range(draw.randint(1, 3)):
        start = simulator.now + draw.randint(0, 40_000)
        end = start + draw.randint(1, 4_000)
        if draw.random() < 0.5 or not ends:
            broker = draw.randrange(net.overlay.brokers_count)
            if broker in crashed:
                continue
            crashed.add(broker)
            simulator.fault(Fault("crash", (broker,), start, end))
        else:
            simulator.fault(Fault("link_down", tuple(draw.choice(ends)), start, end))
        windows.append((start - settle_us(net), end + 2 * settle_us(net)))
    simulator.run()
    net.require(settle_us(net), lambda time_us: any(a <= time_us <= b for a, b in windows))
    # Whatever happened, every publisher is at one broker, and may be heard by everyone.
    assert all(client.publisher.target is None for client in simulator.clients.values())
    assert all(not client.publisher.held for client in simulator.clients.values())
    homes = net.homes()
    for name, client in simulator.clients.items():
        assert homes[name] == client.publisher.home
    assert tables(net) == tables(afresh(net))


@pytest.mark.parametrize("covering", [False, True])
@given(seed=seeds)
@settings(max_examples=150, deadline=None)
def test_faults_during_moves_strand_no_publisher_and_lose_only_what_they_touch(
    covering: bool, seed: int
) -> None:
    check_faults(seed, covering)


def test_publishers_that_pass_each_other_on_the_same_path_lose_nothing() -> None:
    net = Net(from_parents([0, 0, 1, 2, 3]))
    everything = networks.parse("TRUE")
    for number, home in enumerate((0, 4)):
        name = f"p{number}"
        net.simulator.at(0, home, Advertise(Advertisement(f"a{number}", everything, name)))
    for broker in range(5):
        net.subscriptions[f"s{broker}"] = (broker, everything, 0, None)
        net.simulator.at(0, broker, Subscribe(Subscription(f"s{broker}", everything)))
    zero = net.simulator.settle()
    for step in range(100):
        for number, home in enumerate((0, 4)):
            made = Publication(f"p{number}", str(step), {"x": step})
            net.publications.append((zero + 100 * step, made))
            net.simulator.at(zero + 100 * step, home, Publish(made))
    net.order(zero + 1050, "a0", 4)
    net.order(zero + 1050, "a1", 0)
    net.simulator.run()
    net.require(0, lambda _: False)
    assert net.homes() == {"a0": 4, "a1": 0}
    assert len(net.simulator.deliveries) == 2 * 100 * 5


def test_only_brokers_on_the_path_handle_migration_messages() -> None:
    """A path of five brokers with a side branch at each: two messages per link of the path."""
    net = Net(from_parents([0, 0, 1, 2, 3, 0, 1, 2, 3, 4]))
    everything = networks.parse("TRUE")
    net.simulator.at(0, 0, Advertise(Advertisement("a", everything, "p")))
    for broker in range(10):
        net.simulator.at(0, broker, Subscribe(Subscription(f"s{broker}", everything)))
    zero = net.simulator.settle()
    net.order(zero, "a", 4)
    net.simulator.run()
    path = range(5)
    expected = Counter({("migration_update", broker): 1 for broker in path if broker != 4})
    expected.update({("migration_complete", broker): 1 for broker in path if broker != 0})
    assert net.handled == expected
    assert net.homes() == {"a": 4}


@pytest.mark.parametrize(("crash_us", "committed"), [(3500, False), (4500, False), (6500, True)])
def test_a_publisher_whose_target_dies_goes_on_at_its_source(
    crash_us: int, committed: bool
) -> None:
    """The target crashes when the update has left it, or when the completion is under way."""
    net = Net(from_parents([0, 0, 1, 2]))
    everything = networks.parse("TRUE")
    net.simulator.at(0, 0, Advertise(Advertisement("a", everything, "p")))
    net.subscriptions["s"] = (1, everything, 0, None)
    net.simulator.at(0, 1, Subscribe(Subscription("s", everything)))
    zero = net.simulator.settle()
    net.order(zero, "a", 3)
    net.simulator.fault(Fault("crash", (3,), zero + crash_us, zero + 10_000_000))
    made = Publication("p", "1", {})
    net.publications.append((zero + 100, made))
    net.simulator.at(zero + 100, 0, Publish(made))
    net.simulator.run(zero + 2_000_000)
    assert (net.handled["migration_complete", 1] == 1) == committed
    assert net.homes() == {"a": 0}
    net.require(0, lambda _: False)


def test_a_publisher_may_withdraw_while_it_moves() -> None:
    net = Net(from_parents([0, 0, 1]))
    everything = networks.parse("TRUE")
    net.simulator.at(0, 0, Advertise(Advertisement("a", everything, "p")))
    net.simulator.at(0, 2, Subscribe(Subscription("s", everything)))
    zero = net.simulator.settle()
    net.order(zero, "a", 2)
    net.simulator.at(zero + 1, 0, Publish(Publication("p", "1", {})))
    net.simulator.at(zero + 2, 0, Unadvertise("a"))
    net.simulator.run()
    assert [delivery[:2] for delivery in net.simulator.deliveries] == [(("p", "1"), "s")]
    assert not net.homes()
    assert not any(b.router.advertisements for b in net.simulator.brokers)  # type: ignore[attr-defined]
