"""The traces of a simulated run tell all of it, under every scheme, with faults and sampling."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import networks
from networks import NAMES, VARIANTS
from postroad.sim.engine import Fault
from postroad.sim.run import Result, plan_of, run
from postroad.sim.scenario import Scenario
from postroad.sim.tracing import Tracing
from postroad.traces.schema import COLUMNS, DOWN, KINDS, REASONS, SAMPLED, Recording, Row

EXAMPLES = 15

every_scheme = pytest.mark.parametrize(("name", "config"), VARIANTS, ids=NAMES)


def with_faults(draw: random.Random, scenario: Scenario) -> Scenario:
    links = plan_of(scenario).links()
    ends = [(a, b) for a, peers in enumerate(links) for b in sorted(peers) if a < b]
    faults = [Fault("crash", (draw.randrange(scenario.overlay.brokers_count),), 5_000, 9_000)]
    if ends:
        faults.append(Fault("link_down", draw.choice(ends), 15_000, 20_000))
        faults.append(Fault("link_loss", draw.choice(ends), 30_000, 40_000, 0.5))
    buffered = draw.random() < 0.5
    return replace(
        scenario,
        faults=tuple(faults),
        service_us=300 if buffered else 0,
        buffer_max=3 if buffered else None,
    )


def traced(scenario: Scenario, sample: float = 1.0) -> tuple[Result, list[Row]]:
    tracing = Tracing(scenario, "run", Recording("", sample=sample))
    result = run(scenario, tracing=tracing)
    return result, tracing.rows


@every_scheme
@given(seed=st.integers(min_value=0, max_value=2**32))
@example(seed=3236756)  # a link falls while a batch waits for it
@settings(max_examples=EXAMPLES, deadline=None)
def test_traces_tell_every_delivery_every_message_and_every_end(
    name: str, config: Any, seed: int
) -> None:
    draw = random.Random(seed)
    scenario = with_faults(draw, networks.scenario(draw, name, config))
    result, rows = traced(scenario)
    names = scenario.overlay.names
    assert {row.kind for row in rows} <= KINDS.keys()
    assert {row.reason for row in rows if row.kind == "stop"} <= set(REASONS)
    # Rows of a broker are numbered without a gap.
    for broker in {row.broker for row in rows}:
        numbers = [row.sequence for row in rows if row.broker == broker]
        assert numbers == list(range(1, len(numbers) + 1))

    delivered = Counter(
        ((row.publisher, row.publication), row.subscription, row.broker, row.hops, row.mechanism)
        for row in rows
        if row.kind == "deliver"
    )
    assert delivered == Counter(
        (key, subscription, names[broker], hops, via)
        for key, subscription, broker, _, hops, via in result.deliveries
    )
    sent = Counter(
        (row.broker, row.peer, row.mechanism) for row in rows if row.kind == "send" and not row.part
    )
    assert sent == Counter(
        {
            (names[link.source], names[link.target], kind): count
            for link in result.links
            for kind, count in link.messages.items()
        }
    ) - told(scenario)

    # Whatever is sent arrives, or stops with a reason; whatever arrives goes on, or stops.
    way: Counter[Any] = Counter()
    arrived: set[Any] = set()
    outcome: set[Any] = set()
    for row in rows:
        key = (row.publisher, row.publication)
        if row.publication is None:
            continue
        if row.kind in ("publish", "receive"):
            arrived.add((row.broker, key))
        if row.kind in ("send", "deliver", "stop"):
            outcome.add((row.broker, key))
        if row.kind == "send":
            way[row.broker, row.peer, key] += 1
        elif row.kind == "receive":
            way[row.peer, row.broker, key] -= 1
        elif row.kind == "stop" and row.peer is not None:
            if row.reason == DOWN and not way[row.broker, row.peer, key]:
                assert (row.broker, key) in arrived  # it waited there for others of its batch
            else:
                way[row.broker, row.peer, key] -= 1
    assert set(way.values()) <= {0}
    assert {(posting.publisher, posting.id) for posting in scenario.workload.postings} == {
        (row.publisher, row.publication) for row in rows if row.kind == "publish"
    }
    if getattr(config, "unpopular", "") != "gossip":  # members may keep what nobody here wants
        assert arrived <= outcome


def told(scenario: Scenario) -> Counter[tuple[str, str, str]]:
    """Messages that are counted without being sent: routers that start from a plan."""
    plan, names = plan_of(scenario), scenario.overlay.names
    return Counter(
        {
            (names[a], names[b], kind): count
            for a, peers in enumerate(plan.links())
            for b in peers
            for kind, count in plan.introductions(a, b).items()
        }
    )


@every_scheme
@given(seed=st.integers(min_value=0, max_value=2**32))
@settings(max_examples=5, deadline=None)
def test_a_sample_has_all_of_some_publications_and_all_of_the_rest(
    name: str, config: Any, seed: int
) -> None:
    scenario = networks.scenario(random.Random(seed), name, config)
    _, whole = traced(scenario)
    _, sampled = traced(scenario, 0.4)
    chosen = {(row.publisher, row.publication) for row in sampled if row.kind == "publish"}
    expected = [
        row
        for row in whole
        if row.publication is None
        or row.kind not in SAMPLED
        or (row.publisher, row.publication) in chosen
    ]
    assert [bare(row) for row in sampled] == [bare(row) for row in expected]


def bare(row: Row) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in COLUMNS if name != "sequence")
