"""Priced ways against the simulator with the same subscriptions, counter by counter."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import networks
from postroad.filters import matches
from postroad.kernels.ways import PRICED, RINGS, Ways, price
from postroad.overlay import Overlay
from postroad.overlay.latencies import as_overlay
from postroad.overlay.transit_stub import transit_stub
from postroad.routing import SCHEMES, Interests
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest, Posting, Workload, derived_advertisements

KINDS = ("publication", "notification")
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((scheme, {}) for scheme in PRICED),
    ("subscription_forwarding", {"covering": True}),
    ("advertisement_forwarding", {"covering": True}),
    ("kyra", {"clique_ms": 2.0, "trees": 2}),
    ("kyra", {"clique_ms": 4.0, "trees": 3, "covering": True}),
    ("mbr", {"groups": 3, "cells": 6}),
    *(("beaconvey", {"routing": routing, "overlay": "-"}) for routing in ("po", "pal")),
    ("scribe", {"overlay": "L", "long": "random"}),
    ("iscribe", {"overlay": "S"}),
]


def some_network(draw: random.Random) -> Overlay:
    """A tree; or brokers that all reach each other, with or without routers below them."""
    kind = draw.choice(["tree", "tree", "matrix", "routers"])
    if kind == "tree":
        return networks.overlay(draw)
    if kind == "routers":
        return transit_stub(draw.randrange(1000), draw.randint(2, 8), 2, 2, 1, 2).overlay()
    count = draw.randint(1, 9)
    apart = np.random.default_rng(draw.randrange(2**32)).integers(1, 9000, (count, count))
    direct = np.triu(apart, 1) + np.triu(apart, 1).T
    return as_overlay([str(n) for n in range(count)], direct.astype(np.int64))


@pytest.mark.parametrize(
    ("scheme", "parameters"),
    VARIANTS,
    ids=[f"{s}-{'-'.join(map(str, p.values()))}" for s, p in VARIANTS],
)
@given(seed=st.integers(min_value=0, max_value=2**32))
@settings(max_examples=25, deadline=None)
def test_every_counter_is_that_of_the_simulator(
    scheme: str, parameters: dict[str, Any], seed: int
) -> None:
    draw = random.Random(seed)
    network = some_network(draw)
    brokers = network.brokers_count
    subscriptions = tuple(
        Interest(f"s{n}", draw.randrange(brokers), "c", networks.filter(draw))
        for n in range(draw.randint(0, 15))
    )
    postings = tuple(
        Posting(
            n * 1_000_000, draw.randrange(brokers), f"p{n % 3}", str(n), networks.attributes(draw)
        )
        for n in range(draw.randint(1, 10))
    )
    config = SCHEMES[scheme].config(**parameters)
    workload = Workload(subscriptions, derived_advertisements(postings), postings)
    result = run(Scenario(scheme, network, workload, config, seed=seed % 100))

    pairs = [(each.broker, each.filter) for each in subscriptions]
    known = Interests(
        pairs, [(each.broker, each.filter) for each in workload.advertisements], pairs
    )
    ways = Ways(scheme, network, known, config, seed % 100)
    links: Counter[Any] = Counter()
    per_broker: Counter[Any] = Counter()
    delays: Counter[Any] = Counter()
    for posting in postings:
        wanting = Counter(
            each.broker for each in subscriptions if matches(each.filter, posting.attributes)
        )
        key = ways.key(posting.attributes) if ways.key else ""
        way = ways.way(posting.broker, key)
        counts = price(
            way, np.array([1]), np.array([len(wanting)]),
            np.array(list(wanting), np.int64), np.array(list(wanting.values()), np.int64),
        )  # fmt: skip
        for visit, node in enumerate(way.node.tolist()):
            if counts.messages[visit]:
                before = int(way.node[way.above[visit]])
                links[before, node, KINDS[way.notice[visit]]] += int(counts.messages[visit])
            for name in ("deliveries", "pure_forwards", "false_sends"):
                per_broker[node, name] += int(getattr(counts, name)[visit])
            delays[int(way.hops[visit]), int(way.delay_us[visit])] += int(counts.deliveries[visit])
    simulated = {
        (link.source, link.target, kind): link.messages[kind]
        for link in result.links
        for kind in KINDS
        if link.messages.get(kind)
    }
    assert dict(links) == simulated
    for number, broker in enumerate(result.brokers):
        for name in ("deliveries", "pure_forwards", "false_sends"):
            assert per_broker[number, name] == getattr(broker, name), (number, name)
    assert +delays == Counter(
        (hops, time_us - result.published_us[key])
        for key, _, _, time_us, hops, _ in result.deliveries
    )


def test_the_schemes_of_rings_are_priced_too() -> None:
    assert set(RINGS) == {name for name, row in SCHEMES.items() if row.overlay == "ring"}
