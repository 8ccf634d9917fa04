"""The compiled ring schemes against the routers in the simulator, counter by counter.

Here too is the promise that matters most: every publication reaches every subscriber of its
topic exactly once, under all five routings on all four overlays.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.filters import parse
from postroad.kernels import beaconvey as compiled
from postroad.model import Publication, Subscription
from postroad.overlay import Overlay, from_parents
from postroad.planning.swico import from_pairs
from postroad.routing import SCHEMES, Interests
from postroad.routing.base import Input, Publish, Received, Subscribe
from postroad.routing.scribe import rendezvous
from postroad.sim.engine import Simulator

seeds = st.integers(min_value=0, max_value=2**32)
ROUTINGS = ["po", "pal", "pie", "scribe", "iscribe"]


@pytest.mark.parametrize("overlay", ["SL", "S", "L", "-"])
@pytest.mark.parametrize("routing", ROUTINGS)
@given(seed=seeds)
@settings(max_examples=25, deadline=None)
def test_exactly_once_and_the_kernel_counts_the_same(routing: str, overlay: str, seed: int) -> None:
    draw = random.Random(seed)
    count, topics = draw.randint(1, 40), draw.randint(1, 5)
    share = draw.choice([0.05, 0.3, 0.8])
    pairs = [(v, t) for v in range(count) for t in range(topics) if draw.random() < share]
    long = draw.choice(["chord", "chord_begun", "random"])
    name = routing if "scribe" in routing else "beaconvey"
    incoming, clockwise = draw.choice(["one", "any"]), draw.random() < 0.5
    parameters: dict[str, Any] = {"overlay": overlay, "long": long, "incoming": incoming}
    if name == "beaconvey":
        parameters |= {"routing": routing, "send": "clockwise" if clockwise else "nearest"}
    filters = [parse(f"class = 't{t}'") for t in range(topics)]
    network: Overlay = from_parents([0] * count)
    known = Interests([(v, filters[t]) for v, t in pairs])
    plan: Any = SCHEMES[name].plan(network, known, SCHEMES[name].config(**parameters), seed)
    assert plan.world.has_property_1()

    published = [(draw.randrange(topics), draw.randrange(count)) for _ in range(3)]
    interested = {v: {f"t{t}" for w, t in pairs if w == v} for v in range(count)}
    messages: Counter[str] = Counter()
    pure: Counter[str] = Counter()

    def watch(now: int, broker: int, given: Input, effects: Any) -> None:
        if isinstance(given, Received):
            publication = given.message.publication  # type: ignore[attr-defined]
            messages[publication.id] += 1
            pure[publication.id] += publication.attributes["class"] not in interested[broker]
            assert broker in links[given.sender]

    links = plan.links()
    simulator = Simulator(plan, observer=watch, check=True)
    for v, t in pairs:
        simulator.at(0, v, Subscribe(Subscription(f"{v}/{t}", filters[t])))
    simulator.run()
    assert not messages, "what the planner knew needs no message"
    for number, (t, v) in enumerate(published):
        publication = Publication("p", str(number), {"class": f"t{t}"})
        simulator.at(simulator.now, v, Publish(publication))
    simulator.run()

    delivered = Counter((key[1], name) for key, name, *_ in simulator.deliveries)
    owed = Counter(
        (str(number), f"{v}/{t}")
        for number, (topic, _) in enumerate(published)
        for v, t in pairs
        if t == topic
    )
    assert delivered == owed

    interests = from_pairs([v for v, _ in pairs], [t for _, t in pairs], count, topics)
    outcome = compiled.route(
        plan.world,
        interests,
        routing,
        [t for t, _ in published],
        [v for _, v in published],
        [rendezvous(f"t{t}", count, seed) for t in range(topics)],
        clockwise=clockwise,
    )
    for number, (_, publisher) in enumerate(published):
        key = str(number)
        paths = [
            hops
            for (_, name), _, broker, _, hops, _ in simulator.deliveries
            if name == key and broker != publisher
        ]
        own = [
            hops
            for (_, name), _, broker, _, hops, _ in simulator.deliveries
            if name == key and broker == publisher
        ]
        assert outcome.messages[number] == messages[key]
        assert outcome.pure_forwards[number] == pure[key]
        assert outcome.deliveries[number] == len(paths)
        assert outcome.path_sum[number] == sum(paths)
        assert outcome.path_max[number] == max(paths, default=0)
        assert outcome.own_path[number] == (own[0] if own else -1)
