"""Joins and leaves between plannings: the small world stays whole and delivery correct."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.kernels import beaconvey, swico
from postroad.planning.churn import renew
from postroad.planning.swico import from_pairs
from postroad.workloads.topics import synthetic


@given(
    nodes=st.integers(2, 60),
    joins=st.integers(0, 20),
    left=st.floats(0, 0.9),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40, deadline=None)
def test_every_subscriber_is_reached_after_nodes_came_and_went(
    nodes: int, joins: int, left: float, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    interests = synthetic("zipf", nodes, 8, 3, seed)
    world = swico.build(interests, "SL", "chord", seed)
    stays = draw.random(nodes) >= left
    stays[0] = True
    renewed, old = renew(world, stays, joins, seed)
    assert renewed.has_property_1()
    count = int(stays.sum()) + joins
    assert sorted(renewed.order.tolist()) == list(range(count))
    assert old[old >= 0].tolist() == np.flatnonzero(stays).tolist()
    wanted = draw.random((count, 4)) < 0.4
    now = from_pairs(*np.nonzero(wanted), count, 4)
    publishers = draw.integers(count, size=4)
    roots = draw.integers(count, size=4)
    for scheme in ("po", "pal", "pie", "scribe", "iscribe"):
        found = beaconvey.route(renewed, now, scheme, np.arange(4), publishers, roots)
        others = wanted.sum(axis=0) - wanted[publishers, np.arange(4)]
        assert found.deliveries.tolist() == others.tolist()


def test_without_churn_nothing_changes() -> None:
    world = swico.build(synthetic("zipf", 100, 30, 5, 1), "SL", "chord", 1)
    renewed, old = renew(world, np.ones(100, bool), 0, 1)
    assert renewed.order.tolist() == world.order.tolist()
    assert renewed.fingers.tolist() == world.fingers.tolist()
    assert old.tolist() == list(range(100))


@pytest.mark.parametrize("kind", ["unif", "zipf", "expo"])
def test_synthetic_interests_have_the_stated_popularity(kind: str) -> None:
    interests = synthetic(kind, 400, 100, 20, 7)
    assert (np.diff(interests.start) == 20).all()
    popular = np.diff(interests.subscribers[0]) / 400
    top, rest = popular[:10].mean(), popular[-10:].mean()
    assert {"unif": abs(top - rest) < 0.1, "zipf": top > 0.9, "expo": top > 5 * rest}[kind]
