"""Under POP and GRAPE every scheme keeps its promise: exactly once, in order, for everyone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import networks
from postroad.model import BrokerId
from postroad.overlay import from_parents
from postroad.relocation import grape, pop
from postroad.routing import SCHEMES
from postroad.routing.base import Effect, Input, Message, Note, Received
from postroad.sim.engine import Fault
from postroad.sim.oracle import compare, diameter_us
from postroad.sim.run import plan_of, run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest, Posting, Workload

seeds = st.integers(min_value=0, max_value=2**32)

# So little is traced before each decision that publishers move all the time.
RESTLESS: list[tuple[str, Any]] = [
    ("pop", pop.Config(threshold=1, traced_max=5, window_s=0.01)),
    ("grape", grape.Config(threshold=2, priority="load", weight=100)),
    ("grape", grape.Config(threshold=1, priority="delay", weight=50)),
]
SCHEMES_UNDER: list[tuple[str, Any]] = [
    ("advertisement_forwarding", SCHEMES["advertisement_forwarding"].config()),
    ("advertisement_forwarding", SCHEMES["advertisement_forwarding"].config(covering=True)),
    ("popsub", SCHEMES["popsub"].config(**networks.FLAPPING)),
    ("popsub", SCHEMES["popsub"].config(unpopular="batching", reorder_s=0.02, **networks.FLAPPING)),
    ("popsub", SCHEMES["popsub"].config(unpopular="gossip", **networks.FLAPPING)),
]
every = pytest.mark.parametrize(
    ("relocation", "scheme"),
    [(r, s) for r in RESTLESS for s in SCHEMES_UNDER],
    ids=[
        f"{r[0]}-{getattr(r[1], 'priority', '')}-{s[0]}-"
        f"{getattr(s[1], 'unpopular', getattr(s[1], 'covering', ''))}"
        for r in RESTLESS
        for s in SCHEMES_UNDER
    ],
)


def random_scenario(
    draw: random.Random, relocation: tuple[str, Any], scheme: tuple[str, Any]
) -> Scenario:
    """Publishers that publish a lot, subscribers that come and go."""
    overlay = networks.overlay(draw)
    brokers = overlay.brokers_count
    # A publication may wait for its publisher: to the target, to the source and back again.
    settle_us = 6 * diameter_us(overlay) + networks.delay_us(scheme[1])
    span = 60_000
    subscriptions = []
    for number in range(draw.randint(0, 15)):
        start = draw.choice([None, None, draw.randint(0, span)])
        until = draw.choice([None, draw.randint(start or 0, 2 * span)])
        subscriptions.append(
            Interest(
                f"s{number}", draw.randrange(brokers), "c", networks.filter(draw), start, until
            )
        )
    advertisements, postings = [], []
    for number in range(draw.randint(1, 4)):
        broker, until = draw.randrange(brokers), draw.choice([None, 3 * span // 2])
        filters = [(networks.filter(draw), None, until)]
        if draw.random() < 0.5:  # with another advertisement, and a third for a while
            filters.append((networks.filter(draw), None, draw.choice([None, 2 * span])))
            filters.append((networks.filter(draw), span // 3, 3 * span // 2 + 7))
        for count, (filter, since, end) in enumerate(filters):
            interest = Interest(f"a{number}.{count}", broker, f"p{number}", filter, since, end)
            advertisements.append(interest)
        times = sorted(draw.randint(0, span) for _ in range(draw.randint(0, 20)))
        for publication, time_us in enumerate(times):
            known = filters[: 3 if time_us > span // 3 + settle_us else 2]
            attributes = networks.matching_attributes(draw, draw.choice(known)[0])
            if attributes is not None:
                postings.append(
                    Posting(time_us, broker, f"p{number}", str(publication), attributes)
                )
    workload = Workload(tuple(subscriptions), tuple(advertisements), tuple(postings))
    return Scenario(
        scheme[0],
        overlay,
        workload,
        scheme[1],
        seed=draw.randrange(2**32),
        settle_us=settle_us,
        relocation=relocation[0],
        relocation_config=relocation[1],
    )


@every
@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_publishers_on_the_move_are_heard_exactly_once(
    relocation: tuple[str, Any], scheme: tuple[str, Any], seed: int
) -> None:
    scenario = random_scenario(random.Random(seed), relocation, scheme)
    result = run(scenario, check=True)
    compare(scenario, [delivery[:2] for delivery in result.deliveries]).require()
    if not any(interest.until_us for interest in scenario.workload.advertisements):
        assert not result.notes
    if scheme[0] == "advertisement_forwarding" or scheme[1].reorder_s:
        last: dict[tuple[str, str], int] = {}
        for (publisher, number), subscription, *_ in result.deliveries:
            assert last.get((publisher, subscription), -1) < int(number)
            last[publisher, subscription] = int(number)


@every
@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_faults_lose_only_what_they_touch(
    relocation: tuple[str, Any], scheme: tuple[str, Any], seed: int
) -> None:
    draw = random.Random(seed)
    scenario = random_scenario(draw, relocation, scheme)
    ends = [tuple(pair) for pair in scenario.overlay.ends.tolist()]
    start = draw.randint(0, 50_000)
    faults = [
        Fault("crash", (draw.randrange(scenario.overlay.brokers_count),), start, start + 9000)
    ]
    if ends:
        start = draw.randint(0, 50_000)
        faults.append(Fault("link_down", draw.choice(ends), start, start + draw.randint(1, 9000)))
    late = [
        Posting(3_000_000 + 10 * n, post.broker, post.publisher, f"{1000 + n}", post.attributes)
        for n, post in enumerate(scenario.workload.postings)
    ]
    workload = replace(
        scenario.workload,
        postings=scenario.workload.postings + tuple(late),
        advertisements=tuple(
            replace(interest, until_us=None) for interest in scenario.workload.advertisements
        ),
    )
    # A publisher that a fault has touched waits a second before it goes on.
    scenario = replace(scenario, workload=workload, faults=tuple(faults), settle_us=1_300_000)
    result = run(scenario, check=True)
    compare(scenario, [delivery[:2] for delivery in result.deliveries], result.refused).require()


@every
@given(seed=seeds)
@settings(max_examples=4, deadline=None)
def test_recorded_inputs_replay_to_the_same_effects(
    relocation: tuple[str, Any], scheme: tuple[str, Any], seed: int
) -> None:
    scenario = random_scenario(random.Random(seed), relocation, scheme)
    recorded: dict[BrokerId, list[tuple[int, Input, list[Effect]]]] = {}

    def watch(now: int, broker: BrokerId, given: Input, effects: Any) -> None:
        recorded.setdefault(broker, []).append((now, given, list(effects)))

    run(scenario, watch)
    for broker, steps in recorded.items():
        alone = plan_of(scenario).router(broker)
        for now, given_input, effects in steps:
            assert alone.step(given_input, now) == effects


@every
def test_publishers_do_move(relocation: tuple[str, Any], scheme: tuple[str, Any]) -> None:
    """All subscribers at the far end of a line: the publisher ends up there."""
    wanted = networks.parse("class = 'A'")
    postings = [Posting(3000 * n, 0, "p", str(n), {"class": "A"}) for n in range(30)]
    workload = Workload(
        (Interest("s", 3, "c", wanted), Interest("t", 3, "c", wanted)),
        (Interest("a", 0, "p", wanted),),
        tuple(postings),
    )
    scenario = Scenario(
        scheme[0],
        from_parents([0, 0, 1, 2], latency_us=500),
        workload,
        scheme[1],
        relocation=relocation[0],
        relocation_config=relocation[1],
        service_us=10,
    )
    result = run(scenario, check=True)
    compare(scenario, [delivery[:2] for delivery in result.deliveries]).require()
    assert [moved.target for moved in result.moves][-1] == 3
    assert result.deliveries[-1][4] == 0  # no hops any more


@every
def test_unknown_messages_are_dropped_with_a_note(
    relocation: tuple[str, Any], scheme: tuple[str, Any]
) -> None:
    class Strange(Message):
        kind = "strange"

    scenario = random_scenario(random.Random(1), relocation, scheme)
    (effect,) = plan_of(scenario).router(0).step(Received(Strange(), 1), 0)
    assert isinstance(effect, Note)
