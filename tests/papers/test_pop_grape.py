"""POP and GRAPE (Cheung and Jacobsen): the examples of Figures 1 to 3, algorithms 1 to 3."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.filters import parse
from postroad.model import Advertisement, Publication, Subscription, Trace
from postroad.overlay import from_parents
from postroad.relocation import grape, plan, pop
from postroad.relocation.grape import Grape
from postroad.relocation.pop import Pop, RelocationAnswer, RelocationRequest, TraceResult
from postroad.relocation.selection import (
    Estimates,
    PlacementEstimate,
    TraceReport,
    estimates,
    packed,
    select,
)
from postroad.routing.advertisement_forwarding import Config
from postroad.routing.base import Advertise, Move, PublicationMessage, Publish, Received, Subscribe
from postroad.routing.tables import LOCAL
from postroad.sim.engine import Simulator

ALL = parse("class = 'STOCK'")
SCHEME = "advertisement_forwarding"
B1, B2, B3, B4, B5, B6, B7, B8 = range(8)
FIGURE_1 = [0, B1, B2, B1, B1, B5, B6, B6]
SUBSCRIBERS = {B1: 1, B2: 4, B3: 2, B4: 3, B6: 5, B7: 5, B8: 5}


def network(
    parents: list[int], subscribers: dict[int, int], config: Any, home: int = 0
) -> tuple[Simulator, list[tuple[int, int, Any]]]:
    """Brokers with so many subscribers each, one publisher, and what brokers tell each other."""
    said: list[tuple[int, int, Any]] = []

    def watch(now: int, broker: int, given: Any, effects: Any) -> None:
        if isinstance(given, Received):
            said.append((given.sender, broker, given.message))

    made = plan("pop", config, SCHEME, from_parents(parents), Config(), 0)
    simulator = Simulator(made, observer=watch, check=True)
    simulator.at(0, home, Advertise(Advertisement("P", ALL, "p")))
    for broker, count in subscribers.items():
        for number in range(count):
            name = f"s{broker}-{number}"
            simulator.at(0, broker, Subscribe(Subscription(name, ALL)))
    simulator.run()
    said.clear()
    return simulator, said


def publish(simulator: Simulator, number: int = 0, home: int = 0) -> None:
    publication = Publication("p", str(number), {"class": "STOCK"})
    simulator.at(simulator.now, home, Publish(publication))
    simulator.run()


def profile(simulator: Simulator, broker: int) -> dict[int, float]:
    router = simulator.brokers[broker].router
    assert isinstance(router, Pop)
    return {place: count for place, count in router.profiles["P"].items() if count}


def test_figure_1_one_traced_publication_fills_the_profiles() -> None:
    simulator, said = network(FIGURE_1, SUBSCRIBERS, pop.Config(threshold=2))
    publish(simulator)
    assert profile(simulator, B1) == {B5: 15, B2: 6, B4: 3, LOCAL: 1}
    assert profile(simulator, B5) == {B6: 15}
    assert profile(simulator, B6) == {B7: 5, B8: 5, LOCAL: 5}
    results = {(a, b): m.count for a, b, m in said if isinstance(m, TraceResult)}
    assert results == {
        (B3, B2): 2,
        (B2, B1): 6,
        (B4, B1): 3,
        (B7, B6): 5,
        (B8, B6): 5,
        (B6, B5): 15,
        (B5, B1): 15,
    }


def test_figure_1_the_request_goes_to_b5_and_b6_which_answers() -> None:
    simulator, said = network(FIGURE_1, SUBSCRIBERS, pop.Config(threshold=1))
    publish(simulator)
    requests = [(a, b, m.total, m.path) for a, b, m in said if isinstance(m, RelocationRequest)]
    assert requests == [(B1, B5, 10, (B1,)), (B5, B6, 10, (B5, B1))]
    answers = [(a, b, m.path) for a, b, m in said if isinstance(m, RelocationAnswer)]
    assert answers == [(B6, B5, (B6, B5, B1)), (B5, B1, (B6, B5, B1))]
    assert [(moved.source, moved.target) for moved in simulator.moves] == [(B1, B6)]
    # The migration path is B6, B5, B1: each of its brokers was updated, nobody else.
    updated = [b for _, b, m in said if m.kind == "migration_update"]
    assert updated == [B5, B1]


@pytest.mark.parametrize(
    ("subscribers", "target"),
    [({0: 1, 1: 1, 2: 5}, 2), ({0: 2, 1: 3, 2: 1}, 1), ({0: 3, 1: 1, 2: 1}, None)],
    ids=["a neighbour is closer", "no neighbour is: this broker", "the original broker"],
)
def test_figure_2_the_three_outcomes(subscribers: dict[int, int], target: int | None) -> None:
    simulator, _ = network([0, 0, 1], subscribers, pop.Config(threshold=1))
    publish(simulator)
    assert [moved.target for moved in simulator.moves] == ([] if target is None else [target])


def test_pop_takes_the_newest_value_by_a_quarter_and_links_not_taken_as_zero() -> None:
    simulator, _ = network([0, 0, 0], {1: 4, 2: 4}, pop.Config())
    publish(simulator)
    simulator.at(simulator.now, 1, Subscribe(Subscription("more", parse("x = 1"))))
    simulator.run()
    simulator.at(simulator.now, 0, Publish(Publication("p", "1", {"class": "OTHER", "x": 1})))
    simulator.run()
    router = simulator.brokers[0].router
    assert isinstance(router, Pop)
    assert router.profiles["P"] == {1: 0.75 * 4 + 0.25 * 1, 2: 3.0, LOCAL: 0.0}


def test_pop_traces_at_most_n_publications_in_a_window_and_the_first_for_certain() -> None:
    simulator, said = network([0, 0], {1: 1}, pop.Config(traced_max=5, window_s=1.0))
    zero = 1_000_000 * (1 + simulator.now // 1_000_000)
    for number in range(600):
        publication = Publication("p", str(number), {"class": "STOCK"})
        simulator.at(zero + 1000 * number, 0, Publish(publication))
    simulator.at(zero + 1_000_000, 0, Publish(Publication("p", "next", {"class": "STOCK"})))
    simulator.run()
    traced = [m.publication.id for _, _, m in said if isinstance(m, PublicationMessage)
              and m.publication.trace is not None]  # fmt: skip
    assert len(traced) == 6
    assert traced[0] == "0"
    assert traced[-1] == "next"


def test_a_margin_keeps_a_publisher_where_the_difference_is_small() -> None:
    for margin, moves in ((0.0, 1), (1.0, 0)):
        simulator, _ = network([0, 0], {0: 2, 1: 3}, pop.Config(threshold=1, margin=margin))
        publish(simulator)
        assert len(simulator.moves) == moves


def moves_to_and_fro(margin: float) -> int:
    """Two brokers, three subscribers each; a tenth of the publications is for either of them."""
    config = pop.Config(threshold=5, traced_max=1000, margin=margin)
    simulator, _ = network([0, 0], {}, config)
    for broker in (0, 1):
        wanted = parse(f"class = 'STOCK' AND x = {broker}")
        for number in range(3):
            name = f"s{broker}-{number}"
            simulator.at(simulator.now, broker, Subscribe(Subscription(name, wanted)))
    simulator.run()
    draw = random.Random(1)
    zero = simulator.now
    for number in range(600):
        publication = Publication("p", str(number), {"class": "STOCK", "x": draw.randrange(10)})
        simulator.at(zero + 20_000 * number, 0, Publish(publication))
    simulator.run()
    return len(simulator.moves)


def test_pop_ping_pongs_and_a_margin_stops_it() -> None:
    """The paper leaves a threshold against ping-pong as future work (section III-B)."""
    without, some, enough = (moves_to_and_fro(margin) for margin in (0.0, 0.75, 3.0))
    assert without > 30  # of at most 120 decisions
    assert some < without / 2
    assert enough == 0


def test_figure_3_bit_vector_of_session_b34_m212() -> None:
    """B34-M213, 215, 216, 217, 220, 222, 225 and 226 are delivered; the session starts at 212."""
    router = plan("grape", grape.Config(), SCHEME, from_parents([0]), Config(), 0).router(0)
    assert isinstance(router, Grape)
    router.step(Subscribe(Subscription("s", parse("class = 'STOCK'"))), 0)
    wanted = (213, 215, 216, 217, 220, 222, 225, 226)
    for number in range(212, 227):
        attributes = {"class": "STOCK" if number in wanted else "BOND"}
        trace = Trace("P", "B34-M212", number - 212)
        publication = Publication("p", f"B34-M{number}", attributes, trace=trace)
        router.step(Received(PublicationMessage(publication, 1), 1), 0)
    session = router.sessions["P"]
    assert session.name == "B34-M212"
    assert f"{session.bits:015b}"[::-1] == "010111001010011"
    assert session.bits.bit_count() == session.deliveries == len(wanted)


def test_grape_numbers_sessions_by_the_first_broker_and_its_publication() -> None:
    made = plan("grape", grape.Config(threshold=3), SCHEME, from_parents([0, 0]), Config(), 0)
    simulator = Simulator(made, check=True)
    simulator.at(0, 0, Advertise(Advertisement("P", ALL, "p")))
    simulator.at(0, 1, Subscribe(Subscription("s", ALL)))
    simulator.run()
    router = simulator.brokers[0].router
    publish(simulator)
    assert isinstance(router, Grape)
    assert router.sessions["P"].name == "B0-M1"
    publish(simulator, 1)
    publish(simulator, 2)  # full: the only subscriber is at broker 1
    assert [moved.target for moved in simulator.moves] == [1]


# Algorithms 1 to 3, run literally, for one candidate at a time.


class Literal:
    def __init__(self, reports: list[TraceReport], pings: dict[int, int]) -> None:
        self.stats = {report.broker: report for report in reports}
        self.pings = pings
        self.delays = {report.broker: dict(report.delays_us) for report in reports}
        self.total = 0

    def neighbours(self, broker: int) -> list[int]:
        return [peer for peer in self.delays[broker] if peer in self.stats]

    def add_delays(self, so_far: int, broker: int, before: int | None) -> None:
        """Algorithm 1."""
        here = self.stats[broker]
        self.total += here.deliveries * (so_far + here.client_us)
        for peer in self.neighbours(broker):
            if peer != before:
                self.add_delays(so_far + self.delays[broker][peer], peer, broker)

    def downstream(self, broker: int, before: int | None) -> int:
        """Algorithm 3, without its cache."""
        bits = int.from_bytes(self.stats[broker].vector, "little")
        for peer in self.neighbours(broker):
            if peer != before:
                bits |= self.downstream(peer, broker)
        return bits

    def rate(self, broker: int, before: int | None) -> int:
        """Algorithm 2."""
        total = self.downstream(broker, before).bit_count()
        for peer in self.neighbours(broker):
            if peer != before:
                total += self.rate(peer, broker)
        return total

    def estimate(self, broker: int) -> PlacementEstimate:
        self.total = 0
        self.add_delays(self.pings.get(broker, 0), broker, None)
        return PlacementEstimate(broker, self.rate(broker, None), self.total)


def random_reports(draw: random.Random, count: int, bits: int = 40) -> list[TraceReport]:
    parents = [0] + [draw.randrange(n) for n in range(1, count)]
    delays: list[dict[int, int]] = [{} for _ in range(count)]
    for child in range(1, count):
        delays[child][parents[child]] = draw.randint(0, 900)
        delays[parents[child]][child] = draw.randint(0, 900)
    names = draw.sample(range(10 * count), count)
    reports = []
    for number in range(count):
        delivered = draw.getrandbits(bits) if draw.random() < 0.6 else 0
        ways = [(names[peer], us) for peer, us in delays[number].items()]
        ways.append((10 * count + number, 5))  # a neighbour that no publication reached
        draw.shuffle(ways)
        deliveries = delivered.bit_count() * draw.randint(1, 3)
        reports.append(
            TraceReport(
                names[number], packed(delivered), deliveries, draw.randint(0, 50), tuple(ways)
            )
        )
    return reports


@given(seed=st.integers(0, 2**32))
@settings(max_examples=300)
def test_all_candidates_at_once_equal_algorithms_1_to_3(seed: int) -> None:
    draw = random.Random(seed)
    reports = random_reports(draw, draw.randint(1, 25))
    pings = {report.broker: draw.randint(0, 2000) for report in reports}
    literal = Literal(reports, pings)
    found = estimates(reports, pings)
    assert list(found) == [literal.estimate(report.broker) for report in reports]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=200)
def test_load_100_is_least_load_and_delay_100_least_delay(seed: int) -> None:
    draw = random.Random(seed)
    reports = random_reports(draw, draw.randint(1, 25))
    found = estimates(reports, {report.broker: draw.randint(0, 2000) for report in reports})
    current = reports[0].broker
    loads = {one.broker: one.load for one in found}
    delays = {one.broker: one.delay_us for one in found}
    assert select(found, "load", 100, current).load == min(loads.values())
    assert select(found, "delay", 100, current).delay_us == min(delays.values())
    assert select(found, "load", 0, current) == select(found, "delay", 100, current)
    assert select(found, "delay", 0, current) == select(found, "load", 100, current)
    # Each percent of weight gives up no more of the metric than one percent less.
    chosen = [select(found, "load", weight, current).load for weight in range(101)]
    assert chosen == sorted(chosen, reverse=True)


def columns(found: list[PlacementEstimate]) -> Estimates:
    return Estimates(*map(np.array, zip(*found, strict=True)))


def test_the_delay_of_the_weight_rule_is_normalised_from_least_to_largest() -> None:
    found = columns(
        [
            PlacementEstimate(0, 100, 1000),
            PlacementEstimate(1, 60, 1400),
            PlacementEstimate(2, 20, 2000),
        ]
    )
    assert select(found, "delay", 100, 0).broker == 0
    assert select(found, "delay", 61, 0).broker == 0
    assert select(found, "delay", 60, 0).broker == 1  # 40 of 100
    assert select(found, "delay", 1, 0).broker == 1
    assert select(found, "delay", 0, 0).broker == 2
    assert select(found, "load", 100, 0).broker == 2


def test_a_publisher_whose_brokers_are_equal_stays() -> None:
    found = columns([PlacementEstimate(broker, 7, 70) for broker in (3, 1, 2)])
    assert select(found, "load", 100, 3).broker == 3
    assert select(found, "delay", 100, 2).broker == 2


def chosen_by_brute_force(
    parents: list[int], way_us: list[int], wants: list[set[int]], priority: str, weight: int
) -> int:
    """Section IV-B from its sentences: every publication walked from every candidate.

    `wants` has for each publication the brokers that deliver it, once each.
    """

    def way(source: int, target: int) -> list[int]:
        """The brokers on the way, both ends included."""
        up, down = [source], [target]
        while up[-1]:
            up.append(parents[up[-1]])
        while down[-1] not in up:
            down.append(parents[down[-1]])
        return up[: up.index(down[-1]) + 1] + down[-2::-1]

    def delay(source: int, target: int) -> int:
        path = way(source, target)
        return sum(way_us[b if parents[b] == a else a] for a, b in pairwise(path))

    reached = {0} | {at for who in wants for broker in who for at in way(0, broker)}
    load = {c: sum(len({at for b in who for at in way(c, b)}) for who in wants) for c in reached}
    late = {c: sum(delay(0, c) + delay(c, b) for who in wants for b in who) for c in reached}
    first, second = (load, late) if priority == "load" else (late, load)
    low, high = min(first.values()), max(first.values())
    kept = [c for c in reached if 100 * (first[c] - low) <= (100 - weight) * (high - low)]
    return min(kept, key=lambda c: (second[c], first[c], c != 0, c))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_a_publisher_moves_where_brute_force_says_at_every_weight(seed: int) -> None:
    draw = random.Random(seed)
    count = draw.randint(2, 9)
    parents = [0] + [draw.randrange(n) for n in range(1, count)]
    way_us = [0] + [draw.randint(1, 90) * 1000 for _ in range(1, count)]
    overlay = from_parents(parents, np.array(way_us[1:]))
    interests = [{n for n in range(6) if draw.random() < 0.4} for _ in range(count)]
    topics = [draw.randrange(6) for _ in range(12)]
    wants = [{b for b in range(count) if topic in interests[b]} for topic in topics]
    for priority in ("load", "delay"):
        for weight in (0, draw.randint(1, 99), 25, 40, 50, 75, 100):
            config = grape.Config(len(topics), priority, weight)
            simulator = Simulator(plan("grape", config, SCHEME, overlay, Config(), 0), check=True)
            simulator.at(0, 0, Advertise(Advertisement("P", ALL, "p")))
            for broker, wanted in enumerate(interests):
                for topic in sorted(wanted):
                    only = parse(f"class = 'STOCK' AND x = {topic}")
                    simulator.at(0, broker, Subscribe(Subscription(f"{broker}-{topic}", only)))
            simulator.run()
            for number, topic in enumerate(topics):
                publication = Publication("p", str(number), {"class": "STOCK", "x": topic})
                simulator.at(simulator.now + number, 0, Publish(publication))
            simulator.run()
            target = simulator.moves[-1].target if simulator.moves else 0
            expected = 0
            if any(wants):
                expected = chosen_by_brute_force(parents, way_us, wants, priority, weight)
            assert target == expected, (priority, weight)


def test_move_goes_to_the_publisher_of_the_advertisement() -> None:
    simulator, _ = network([0, 0], {1: 1}, pop.Config(threshold=1))
    router = simulator.brokers[0].router
    assert isinstance(router, Pop)
    assert router.move("P", 1) == [Move("P", 1, 1)]
