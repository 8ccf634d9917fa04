"""PopSub's worked examples, algorithms and delivery guarantees."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import networks
from postroad.errors import InputError
from postroad.filters import parse
from postroad.model import Advertisement, Publication, Subscription
from postroad.overlay import from_links
from postroad.routing import SCHEMES, Interests
from postroad.routing.base import Advertise, Publish, Subscribe, Unsubscribe
from postroad.routing.popsub import ENTRIES, Config, Gain, PopSub
from postroad.routing.popsub.messages import Batch, DirectPost
from postroad.sim.engine import Fault, Simulator
from postroad.sim.oracle import compare
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest, Posting, Workload


def network(links: str, config: Config) -> tuple[Simulator, dict[str, int]]:
    pairs = [link.split("-") for link in links.split()]
    overlay = from_links([(a, b, 1000) for a, b in pairs])
    plan = SCHEMES["popsub"].plan(overlay, Interests(), config, 0)
    number = {name: broker for broker, name in enumerate(overlay.names)}
    return Simulator(plan, check=True), number


def router(simulator: Simulator, broker: int) -> PopSub:
    made = simulator.brokers[broker].router
    assert isinstance(made, PopSub)
    return made


def subscribe(simulator: Simulator, broker: int, name: str, text: str) -> None:
    simulator.at(simulator.now, broker, Subscribe(Subscription(name, parse(text))))


@pytest.fixture
def figure_2() -> tuple[Simulator, dict[str, int]]:
    """B1 publishes red and blue; S10, S11 (red) at B4; S7, S8 (red) and S9 (blue) at B8."""
    simulator, at = network("B1-B2 B1-B3 B2-B4 B4-B8", Config())
    for colour in ("red", "blue"):
        offer = Advertisement(colour, parse(f"class = '{colour}'"), colour)
        simulator.at(0, at["B1"], Advertise(offer))
    simulator.run()
    for name, broker in (("S7", "B8"), ("S8", "B8"), ("S10", "B4"), ("S11", "B4")):
        subscribe(simulator, at[broker], name, "class = 'red'")
    subscribe(simulator, at["B8"], "S9", "class = 'blue'")
    simulator.run()
    return simulator, at


def test_figure_2_gains(figure_2: tuple[Simulator, dict[str, int]]) -> None:
    simulator, at = figure_2
    at_b1 = router(simulator, at["B1"]).gains[at["B2"]]
    assert at_b1["red"].ratio == pytest.approx(4 / 2.5)
    assert at_b1["blue"].ratio == pytest.approx(1 / 3)
    # Section 4.1: local subscriptions do not count, so at B4 red is 2/1 and not 4/1.
    assert router(simulator, at["B4"]).gains[at["B8"]]["red"].ratio == pytest.approx(2 / 1)
    assert not router(simulator, at["B1"]).gains[at["B3"]]


def test_unsubscriptions_undo_gains_exactly(figure_2: tuple[Simulator, dict[str, int]]) -> None:
    simulator, at = figure_2
    simulator.at(simulator.now, at["B8"], Unsubscribe("S8"))
    simulator.run()
    gain = router(simulator, at["B1"]).gains[at["B2"]]["red"]
    assert (gain.count, gain.hops) == (3, 2 + 2 + 3)
    for name, broker in (("S7", "B8"), ("S9", "B8"), ("S10", "B4"), ("S11", "B4")):
        simulator.at(simulator.now, at[broker], Unsubscribe(name))
    simulator.run()
    for gain in router(simulator, at["B1"]).gains[at["B2"]].values():
        assert (gain.count, gain.hops, gain.ratio) == (0, 0, 0.0)


def test_figure_1_utility_of_b2_is_20_times_that_of_b3() -> None:
    simulator, at = network("B1-B2 B1-B3 B3-B4", Config())
    simulator.at(0, at["B1"], Advertise(Advertisement("a", parse("TRUE"), "p")))
    simulator.run()
    for number in range(1, 11):
        subscribe(simulator, at["B2"], f"s{number}", "TRUE")
    subscribe(simulator, at["B4"], "s11", "TRUE")
    simulator.run()
    gains = router(simulator, at["B1"]).gains
    assert gains[at["B2"]]["a"].ratio == pytest.approx(20 * gains[at["B3"]]["a"].ratio)


def evaluated(config: Config, rows: list[tuple[int, float]], changed: bool = True) -> list[bool]:
    """Popularity after Algorithm 1 of entries with (subscriptions at distance 1, rate)."""
    plan = SCHEMES["popsub"].plan(from_links([("a", "b", 0)]), Interests(), config, 0)
    made = plan.router(0)
    assert isinstance(made, PopSub)
    gains: dict[str, Gain] = {}
    for number, (count, rate) in enumerate(rows):
        name = f"c{number}"
        offer = Advertisement(name, parse(f"class = '{name}'"))
        made.advertisements[name] = (offer, -1)
        made.numbers[name] = 0
        gains[name] = Gain(count, count, offered=round(rate * config.reevaluate_s))
    made.gains = {1: gains}
    made.gains_changed = changed
    made._evaluate()
    return [gain.popular for gain in gains.values()]


def test_algorithm_1_fills_the_capacity_by_descending_gain() -> None:
    config = Config(throughput_per_s=100, phi=0.5)  # capacity 50
    assert evaluated(config, [(1, 30), (9, 30), (5, 30)]) == [False, True, True]
    # An entry is popular while what was filled before it is below the capacity.
    assert evaluated(config, [(9, 50), (5, 1)]) == [True, False]
    assert evaluated(config, [(9, 49), (5, 1000), (4, 1)]) == [True, True, False]


def test_the_prose_rule_leaves_out_the_entry_that_would_exceed_and_its_equals() -> None:
    """Section 4.2, below Algorithm 1."""
    config = Config(throughput_per_s=100, phi=0.5, rule="prose")
    assert evaluated(config, [(1, 30), (9, 30), (5, 30)]) == [False, True, False]
    assert evaluated(config, [(9, 50), (5, 1)]) == [True, False]
    assert evaluated(config, [(9, 49), (5, 1000), (4, 1)]) == [True, False, False]
    # The second of two equal gains does not fit, so the first is unpopular too.
    assert evaluated(config, [(9, 10), (5, 20), (5, 30)]) == [True, False, False]


@pytest.mark.parametrize("entries", ENTRIES)
def test_what_is_forwarded_for_others_fills_the_capacity_too(entries: str) -> None:
    """Section 4.2 evaluates all entries: at B2 the ten a second of B1 leave no room for its own."""
    config = replace(SMALL, entries=entries, unpopular="direct")
    simulator, at = network("B1-B2 B2-B3 B3-B4", config)
    for name, broker in (("others", "B1"), ("own", "B2")):
        offer = Advertisement(name, parse(f"class = '{name}'"), name)
        simulator.at(0, at[broker], Advertise(offer))
    simulator.run()
    for number in range(3):
        subscribe(simulator, at["B3"], f"o{number}", "class = 'others'")
    subscribe(simulator, at["B4"], "far", "class = 'own'")
    simulator.run()
    start = simulator.now
    for number in range(60):
        for name, broker, every in (("others", "B1", 1), ("own", "B2", 5)):
            if number % every == 0:
                publication = Publication(name, str(number), {"class": name})
                simulator.at(start + 100_000 * number, at[broker], Publish(publication))
    simulator.run()
    assert len(simulator.deliveries) == 3 * 60 + 12
    far = [via for _, name, _, _, _, via in simulator.deliveries if name == "far"]
    # Its own two a second fit into five; with the ten a second of B1 they do not.
    assert far.count("direct") == (7 if entries == "all" else 0)


def test_covering_keeps_covered_filters_out_of_the_table_and_every_gain() -> None:
    """Section 4.1: all subscriptions propagate, for the gains; tables shrink."""
    sizes = {}
    for covering in (False, True):
        config = Config(unpopular="batching", covering=covering)
        simulator, at = network("B1-B2 B2-B3", config)
        simulator.at(0, at["B1"], Advertise(Advertisement("a", parse("x > 0"), "a")))
        simulator.run()
        for number in range(10):
            subscribe(simulator, at["B3"], f"s{number}", f"x > {number}")
        simulator.run()
        gain = router(simulator, at["B1"]).gains[at["B2"]]["a"]
        assert (gain.count, gain.hops) == (10, 20)
        sizes[covering] = [broker.router.table_entries() for broker in simulator.brokers]
        start = simulator.now
        for value in range(12):
            publication = Publication("a", str(value), {"x": value})
            simulator.at(start + value, at["B1"], Publish(publication))
        simulator.run()
        assert len(simulator.deliveries) == sum(min(value, 10) for value in range(12))
        simulator.at(simulator.now, at["B3"], Unsubscribe("s0"))  # uncovers the others
        simulator.run()
        simulator.at(simulator.now, at["B1"], Publish(Publication("a", "z", {"x": 2})))
        simulator.run()
        assert len([key for key, *_ in simulator.deliveries if key[1] == "z"]) == 1
    assert sizes == {False: [11, 11, 11], True: [2, 2, 11]}


def test_brokers_draw_their_throughput_from_a_set() -> None:
    """Section 5.1 speaks of a set of measured throughputs."""
    config = Config(phi=0.5, throughputs_per_s=[100.0, 300.0])
    overlay = from_links([(str(n), str(n + 1), 0) for n in range(40)])
    plan = SCHEMES["popsub"].plan(overlay, Interests(), config, 3)
    capacities = [plan.router(broker).capacity for broker in range(40)]
    assert set(capacities) == {50.0, 150.0}
    assert 8 < capacities.count(50.0) < 32


def test_priority_classes_are_filled_first() -> None:
    config = Config(throughput_per_s=100, phi=0.5, priority=["c0"])
    assert evaluated(config, [(1, 30), (9, 30), (5, 30)]) == [True, True, False]


def test_ten_percent_rule_keeps_the_plan_while_gains_stand_still() -> None:
    config = Config(throughput_per_s=100, phi=0.5)
    # 52 filled of 50 is within 10%; both stay popular unless a gain has changed.
    assert evaluated(config, [(9, 51), (5, 1)], changed=False) == [True, True]
    assert evaluated(config, [(9, 51), (5, 1)], changed=True) == [True, False]
    assert evaluated(config, [(9, 55), (5, 1)], changed=False) == [True, False]


def publish_many(config: Config, count: int) -> Simulator:
    """One hot and one cold advertisement at B1; B8 is four hops away, B9 next door."""
    simulator, at = network("B1-B2 B2-B4 B4-B8 B1-B9", config)
    for name in ("hot", "cold"):
        offer = Advertisement(name, parse(f"class = '{name}'"), name)
        simulator.at(0, at["B1"], Advertise(offer))
    simulator.run()
    for number in range(5):
        subscribe(simulator, at["B2"], f"hot-{number}", "class = 'hot'")
    subscribe(simulator, at["B8"], "far", "class = 'cold'")
    simulator.run()
    start = simulator.now
    for number in range(count):
        for name in ("hot", "cold"):
            publication = Publication(name, str(number), {"class": name})
            simulator.at(start + 100_000 * number, at["B1"], Publish(publication))
    simulator.run()
    assert len(simulator.deliveries) == 6 * count
    return simulator


SMALL = Config(throughput_per_s=100, phi=0.05)  # five publications a second


def test_direct_delivery_skips_the_brokers_between() -> None:
    simulator = publish_many(replace(SMALL, unpopular="direct"), 60)
    ways = [(name, via, hops) for _, name, _, _, hops, via in simulator.deliveries]
    assert {way for way in ways if way[0] != "far"} == {
        (f"hot-{number}", "tree", 1) for number in range(5)
    }
    # The first two seconds everything is popular; then the far one goes straight.
    assert ways.count(("far", "tree", 3)) == 21
    assert ways.count(("far", "direct", 1)) == 39
    assert DirectPost.kind in {kind for link in simulator.asides.values() for kind in link.messages}


def test_batches_are_sent_by_size_or_timeout_and_keep_the_order() -> None:
    simulator = publish_many(replace(SMALL, unpopular="batching"), 60)
    far = [
        (time, int(key[1]), via)
        for key, name, _, time, _, via in simulator.deliveries
        if name == "far"
    ]
    assert [number for _, number, _ in sorted(far)] == list(range(60))
    sizes: dict[int, int] = {}
    for time, _, via in far:
        if via == "batching":
            sizes[time] = sizes.get(time, 0) + 1
    # Hot has gain 5, cold 1/3: a batch goes when it holds more than 15.
    assert list(sizes.values())[:2] == [16, 16]
    assert Batch.kind in simulator.links[0][1].messages


def test_gossip_reaches_the_far_subscriber_within_the_stated_rounds() -> None:
    config = replace(SMALL, unpopular="gossip", gossip_interval_s=1.0)
    simulator = publish_many(config, 60)
    late = [
        time - 100_000 * int(key[1])
        for key, name, _, time, _, via in simulator.deliveries
        if name == "far" and via == "gossip"
    ]
    assert len(late) > 30
    assert max(late) < 2_000_000


@given(seed=st.integers(min_value=0, max_value=2**32))
@settings(max_examples=30, deadline=None)
def test_gossip_delivers_everything_though_5_percent_is_lost(seed: int) -> None:
    draw = random.Random(seed)
    config = SCHEMES["popsub"].config(**{**networks.FLAPPING, "unpopular": "gossip"})
    overlay = networks.overlay(draw, 12)
    subscriptions = tuple(
        Interest(f"s{n}", draw.randrange(overlay.brokers_count), "c", networks.filter(draw))
        for n in range(12)
    )
    filters = [networks.filter(draw) for _ in range(4)]
    offers = tuple(Interest(f"a{n}", 0, f"p{n}", filter) for n, filter in enumerate(filters))
    postings = []
    for number, filter in enumerate(filters):
        for count in range(15):
            attributes = networks.matching_attributes(draw, filter)
            if attributes is not None:
                time_us = draw.randint(0, 200_000)
                postings.append(Posting(time_us, 0, f"p{number}", str(count), attributes))
    workload = Workload(subscriptions, offers, tuple(postings))
    lossy = Fault("aside_loss", (), 0, 600_000, 0.05)  # long after the last delivery
    scenario = Scenario("popsub", overlay, workload, config, seed=seed, faults=(lossy,))
    result = run(scenario, check=True)
    # Losses outside the tree excuse nothing: hold it against the oracle without the fault.
    compare(replace(scenario, faults=()), [d[:2] for d in result.deliveries]).require()


@given(
    seed=st.integers(min_value=0, max_value=2**32), mechanism=st.sampled_from(["direct", "gossip"])
)
@settings(max_examples=60, deadline=None)
def test_reorder_buffer_keeps_each_publisher_s_order(seed: int, mechanism: str) -> None:
    draw = random.Random(seed)
    flapping: dict[str, Any] = {**networks.FLAPPING, "unpopular": mechanism, "reorder_s": 0.2}
    overlay = networks.overlay(draw)
    broker = draw.randrange(overlay.brokers_count)
    subscriptions = tuple(
        Interest(f"s{n}", draw.randrange(overlay.brokers_count), "c", networks.filter(draw))
        for n in range(8)
    )
    postings = []
    for number in range(40):
        time_us = 2000 * number
        postings.append(
            Posting(time_us, broker, f"p{number % 2}", str(number), networks.attributes(draw))
        )
    offers = tuple(Interest(f"a{n}", broker, f"p{n}", parse("TRUE")) for n in range(2))
    scenario = Scenario(
        "popsub",
        overlay,
        Workload(subscriptions, offers, tuple(postings)),
        SCHEMES["popsub"].config(**flapping),
        seed=seed,
    )
    result = run(scenario)
    compare(scenario, [d[:2] for d in result.deliveries]).require()
    assert not result.notes
    last: dict[tuple[str, str], int] = {}
    for (publisher, number), subscription, *_ in result.deliveries:
        assert int(number) > last.get((publisher, subscription), -1)
        last[publisher, subscription] = int(number)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"unpopular": "pigeon"}, "unpopular is 'pigeon'; choose one of: direct, batching"),
        ({"phi": 0.0}, "phi is 0.0; give a share above 0, at most 1"),
        ({"throughput_per_s": -1.0}, "throughput_per_s is -1.0; give more than 0"),
        ({"view": 0}, "view is 0; give 1 or more"),
    ],
)
def test_impossible_parameters_are_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Config(**wrong)
