"""The planners against a greedy choice by brute force, and the compiled ones against them."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.kernels import swico as compiled
from postroad.overlay.small_world import SmallWorld, chord, phases_count, random_fingers
from postroad.planning import swico
from postroad.planning.swico import TopicInterests, from_pairs

seeds = st.integers(min_value=0, max_value=2**32)
Edge = tuple[int, int]


def interests(seed: int, nodes_max: int) -> TopicInterests:
    draw = random.Random(seed)
    nodes = draw.randint(1, nodes_max)
    topics = draw.randint(1, 8)
    share = draw.choice([0.1, 0.4, 0.8])
    pairs = [(v, t) for v in range(nodes) for t in range(topics) if draw.random() < share]
    return from_pairs([v for v, _ in pairs], [t for _, t in pairs], nodes, topics)


def components(given: TopicInterests, edges: set[Edge]) -> int:
    """TCC(E) by its definition: search each topic's own part of the overlay."""
    found = 0
    for topic in range(given.topics_count):
        left = {node for node in range(given.nodes_count) if topic in given.of(node)}
        while left:
            found += 1
            stack = [left.pop()]
            while stack:
                node = stack.pop()
                near = {b if a == node else a for a, b in edges if node in (a, b)} & left
                left -= near
                stack.extend(near)
    return found


def may_become_a_circle(edges: set[Edge], count: int) -> bool:
    """Whether a circle through all nodes can hold these edges: they form paths, or the circle."""
    degree = [sum(node in edge for edge in edges) for node in range(count)]
    if max(degree) > 2:
        return False
    everyone = from_pairs(list(range(count)), [0] * count, count, 1)
    parts = components(everyone, edges)
    return parts == count - len(edges) or (parts == 1 and len(edges) == count)


def circle_by_brute_force(given: TopicInterests, seed: int) -> set[Edge]:
    count = given.nodes_count
    rank = np.argsort(swico.ring_ties(count, seed)).tolist()
    circle: set[Edge] = set()
    while len(circle) < count:
        before = components(given, circle)
        choices = [
            (
                components(given, circle | {edge}) - before,
                *sorted(map(rank.__getitem__, edge)),
                edge,
            )
            for edge in combinations(range(count), 2)
            if edge not in circle and may_become_a_circle(circle | {edge}, count)
        ]
        circle.add(min(choices)[-1])
    return circle


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_the_greedy_ring_is_the_brute_force_one(seed: int) -> None:
    made = interests(seed, 12)
    order = swico.greedy_ring(made, seed).tolist()
    assert sorted(order) == list(range(made.nodes_count))
    if made.nodes_count > 2:
        closed = {tuple(sorted(pair)) for pair in zip(order, order[1:] + order[:1], strict=True)}
        assert closed == circle_by_brute_force(made, seed)


@pytest.mark.parametrize("incoming", swico.INCOMING)
@given(seed=seeds)
@settings(max_examples=40, deadline=None)
def test_the_greedy_fingers_are_the_brute_force_ones(incoming: str, seed: int) -> None:
    made = interests(seed, 12)
    count = made.nodes_count
    order = swico.greedy_ring(made, seed)
    placed = made.at_positions(order)
    rank, start = swico.finger_ties(count, seed)
    edges = {tuple(sorted((p, (p + 1) % count))) for p in range(count)} if count > 1 else set()
    chosen: dict[tuple[int, int], int] = {}
    for limited in (True, False) if incoming == "one" else (False,):
        while True:
            before = components(placed, edges)
            choices = []
            for p in range(count):
                for phase in range(1, phases_count(count)):
                    if (p, phase) in chosen:
                        continue
                    for away in range(1 << phase, 2 << phase):
                        q = (p + away) % count
                        pointed = any(i == phase and r == q for (_, i), r in chosen.items())
                        if limited and pointed:
                            continue
                        gain = before - components(placed, edges | {tuple(sorted((p, q)))})
                        step = (away - start[p, phase]) % (1 << phase)
                        choices.append((-gain, int(rank[p, phase]), int(step), p, phase, q))
            if not choices:
                break
            *_, p, phase, q = min(choices)
            chosen[p, phase] = q
            edges.add(tuple(sorted((p, q))))
    fingers = swico.greedy_fingers(made, order, seed, incoming)
    assert {(p, i): int(fingers[p, i]) for p, i in chosen} == chosen
    world = SmallWorld(order, fingers)
    assert world.has_property_1()
    assert {tuple(edge) for edge in world.edges.tolist()} == edges
    assert swico.components_count(made, world.order[world.edges]) == components(placed, edges)


@pytest.mark.parametrize("incoming", swico.INCOMING)
@given(seed=seeds)
@settings(max_examples=60, deadline=None)
def test_the_compiled_planners_choose_the_same(incoming: str, seed: int) -> None:
    made = interests(seed, 50)
    order = swico.greedy_ring(made, seed)
    assert compiled.greedy_ring(made, seed).tolist() == order.tolist()
    fingers = swico.greedy_fingers(made, order, seed, incoming)
    assert compiled.greedy_fingers(made, order, seed, incoming).tolist() == fingers.tolist()
    world = SmallWorld(order, fingers)
    found = swico.components_count(made, world.order[world.edges])
    assert compiled.components_count(made, world) == found
    assert 0 <= swico.support(made, found) <= 1


@pytest.mark.parametrize("incoming", swico.INCOMING)
@pytest.mark.parametrize("seed", range(4))
def test_they_do_where_few_have_anything_in_common(incoming: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    nodes, topics = 150, 40 + 40 * seed  # of most nodes an eighth of the others at most counts
    wanted = random.integers(0, topics, (nodes, 2))
    made = from_pairs(np.repeat(np.arange(nodes), 2), wanted.ravel(), nodes, topics)
    order = swico.greedy_ring(made, seed)
    assert compiled.greedy_ring(made, seed).tolist() == order.tolist()
    fingers = swico.greedy_fingers(made, order, seed, incoming)
    assert compiled.greedy_fingers(made, order, seed, incoming).tolist() == fingers.tolist()


@pytest.mark.parametrize("overlay", ["SL", "S", "L", "-"])
@pytest.mark.parametrize("long", ["chord", "chord_begun", "random"])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 7, 8, 31, 100])
def test_every_overlay_has_property_1(overlay: str, long: str, nodes: int) -> None:
    made = from_pairs(list(range(nodes)), [v % 5 for v in range(nodes)], nodes, 5)
    world = compiled.build(made, overlay, long, 3)
    assert world.has_property_1()
    assert sorted(world.order.tolist()) == list(range(nodes))


def test_property_1_fails_where_a_finger_is_out_of_its_phase() -> None:
    fingers = chord(16)
    fingers[3, 2] = 3 + 3
    assert not SmallWorld(np.arange(16), fingers).has_property_1()


def test_figure_1_a_circle_that_joins_every_topic() -> None:
    """Six nodes A to F that each share a topic with the next: TcoSuppR is 100% or 0%."""
    pairs = [(v, t) for t in range(6) for v in (t, (t + 1) % 6)]
    made = from_pairs([v for v, _ in pairs], [t for _, t in pairs], 6, 6)
    order = swico.greedy_ring(made, 1).tolist()
    ring = list(zip(order, order[1:] + order[:1], strict=True))
    assert swico.support(made, swico.components_count(made, ring)) == 1.0
    other = [0, 2, 5, 3, 1, 4]  # A-C-F-D-B-E-A
    apart = list(zip(other, other[1:] + other[:1], strict=True))
    assert swico.support(made, swico.components_count(made, apart)) == 0.0


def test_random_fingers_spread_over_their_phase() -> None:
    fingers = random_fingers(4096, 1)
    away = (fingers - np.arange(4096)[:, None]) % 4096
    assert len(np.unique(away[:, 3])) == 8
    assert abs(float(away[:, 9].mean()) - 767.5) < 15
