"""Cliques, zones, balanced trees and groups."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import networks
from postroad.filters import intersects, matches, parse
from postroad.overlay.latencies import as_overlay, spanning_tree
from postroad.overlay.transit_stub import transit_stub
from postroad.planning import kyra as planning
from postroad.planning.groups import forgy
from postroad.planning.zones import attributes_of, corners, intervals, loads, partition, zone_of

seeds = st.integers(min_value=0, max_value=2**32)


def random_latencies(count: int, seed: int) -> np.ndarray:
    places = np.random.default_rng(seed).integers(0, 100_000, (count, 2))
    apart = np.abs(places[:, None] - places[None]).sum(axis=2)
    return np.asarray(apart, np.int64)


@pytest.mark.parametrize("size_max", [0, 4])
def test_cliques_are_as_figure_5_makes_them(size_max: int) -> None:
    """Against the figure's loops, written out."""
    for seed in range(10):
        direct = random_latencies(14, seed)
        cliques = [[server] for server in range(14)]
        while len(cliques) > 1:
            pairs = sorted(
                (max(direct[a, b] for a in one for b in other), one, other)
                for one, other in combinations(cliques, 2)
            )
            for distance, one, other in pairs:
                if distance > 60_000:
                    break
                if not size_max or len(one) + len(other) <= size_max:
                    cliques = [c for c in cliques if c not in (one, other)]
                    cliques.append(sorted(one + other))
                    break
            else:
                break
            if distance > 60_000:
                break
        assert planning.cliques(direct, 60_000, size_max) == sorted(cliques)


@given(seed=seeds)
@settings(max_examples=100, deadline=None)
def test_every_publication_lies_in_one_zone_and_its_filter_says_so(seed: int) -> None:
    draw = random.Random(seed)
    filters = [networks.filter(draw) for _ in range(draw.randint(1, 20))]
    points = corners(filters)
    names = attributes_of(filters)
    if draw.random() < 0.3:
        names = names[:1]
    zones = partition(filters, points, loads(filters, points), names, draw.randint(1, 9))
    values = [None, True, -3, 2.5, float("nan"), 9, "", "A", "ab", "zz"]
    for _ in range(20):
        attributes = networks.attributes(draw)
        for name in ("class", "x", "s"):
            if draw.random() < 0.4 and (value := draw.choice(values)) is not None:
                attributes[name] = value
        held = [zone.holds(attributes) for zone in zones]
        assert sum(held) == 1
        assert [matches(zone.filter, attributes) for zone in zones] == held
        home = zones[zone_of(zones, attributes)]
        for filter in filters:
            narrowed = home.narrow(filter)
            assert matches(filter, attributes) == (
                narrowed is not None and matches(narrowed, attributes)
            )


def test_zones_that_share_a_publication_meet() -> None:
    filters = [
        parse(f"x BETWEEN {low} AND {low + 3} AND y BETWEEN {y} AND {y + 3}")
        for low in range(20)
        for y in [7 * low % 17]
    ]
    points = [{"x": x, "y": y} for x in range(23) for y in range(20)]
    load = loads(filters, points)
    some = partition(filters, points, load, ["x", "y"], 7)
    others = partition(filters, points, load, ["x", "y"], 4)
    assert len(some) == 7
    assert {side[0] for zone in some for side in zone.sides} == {"x", "y"}
    for one in some:
        for other in others:
            shared = any(one.holds(point) and other.holds(point) for point in points)
            assert one.meets(other) == intersects(one.filter, other.filter)
            assert not shared or one.meets(other)


@given(seed=seeds, count=st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_no_interval_is_heavier_than_its_share_and_one_value(seed: int, count: int) -> None:
    load = np.random.default_rng(seed).random(200)
    runs = intervals(load, count)
    assert [low for low, _ in runs] + [200] == [0] + [high for _, high in runs]
    assert len(runs) == count
    heaviest = max(load[low:high].sum() for low, high in runs)
    assert heaviest <= load.sum() / count + load.max() + 1e-9


def test_multi_dimensional_zones_are_balanced() -> None:
    draw = np.random.default_rng(5)
    points = [{"x": int(x), "y": int(y)} for x, y in draw.integers(0, 1000, (2000, 2))]
    filters = [
        parse(f"x BETWEEN {x} AND {x + 100} AND y BETWEEN {y} AND {y + 100}")
        for x, y in draw.integers(0, 900, (60, 2))
    ]
    load = loads(filters, points)
    zones = partition(filters, points, load, ["x", "y"], 16)
    share = np.bincount([zone_of(zones, point) for point in points], load, 16) / load.sum()
    assert share.max() < 1.2 / 16


def test_a_balanced_tree_spans_with_a_lower_highest_degree() -> None:
    direct = transit_stub(3, servers=60).direct_us
    everyone = list(range(60))
    plain = spanning_tree(direct, everyone)
    first = planning.balanced_tree(direct, everyone, 1, np.zeros(60, np.int64))
    assert direct[plain[:, 0], plain[:, 1]].sum() == direct[first[:, 0], first[:, 1]].sum()
    degree = np.zeros(60, np.int64)
    even = planning.balanced_tree(direct, everyone, 40, degree)
    assert len(even) == 59
    assert (np.bincount(even.ravel()) == degree).all()
    assert degree.max() < np.bincount(plain.ravel()).max()


def test_a_plan_survives_being_written(tmp_path: Path) -> None:
    direct = random_latencies(12, 1)
    filters = [parse(f"x < {v} AND c = '{c}'") for v in range(5) for c in "pq"]
    made = planning.layout(direct, planning.cliques(direct, 50_000), planning.divider(filters))
    planning.save(as_overlay(list(map(str, range(12))), direct), made, tmp_path / "p.json", {})
    again = planning.load(tmp_path / "p.json").layout
    assert (again.cliques, again.zones, again.tree_zones) == (
        made.cliques, made.zones, made.tree_zones,
    )  # fmt: skip
    assert [tree.tolist() for tree in again.trees] == [tree.tolist() for tree in made.trees]


def test_k_means_finds_groups_that_are_there() -> None:
    draw = np.random.default_rng(2)
    kinds = draw.random((4, 50)) < 0.5
    cells = draw.integers(0, 4, 80)
    wanted = kinds[cells] ^ (draw.random((80, 50)) < 0.02)
    best = min(
        (forgy(wanted, 4, seed) for seed in range(8)),
        key=lambda group: sum(len(set(group[cells == kind])) for kind in range(4)),
    )
    assert all(len(set(best[cells == kind].tolist())) == 1 for kind in range(4))
