"""Steiner bounds against brute force over sets of nodes, and their gap with 200 brokers."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from postroad.kernels import steiner
from postroad.overlay.transit_stub import transit_stub


def draw_graph(draw: random.Random) -> tuple[int, list[tuple[int, int]]]:
    """Connected: a random tree, and some links more."""
    nodes = draw.randint(2, 12)
    links = [(draw.randrange(n), n) for n in range(1, nodes)]
    more = draw.choice([0, 2, 5, 12])
    return nodes, links + [(draw.randrange(nodes), draw.randrange(nodes)) for _ in range(more)]


def fewest(nodes: int, links: list[tuple[int, int]], terminals: set[int]) -> int:
    """A tree has one node more than links, so: the smallest connected set with all terminals."""
    others = [node for node in range(nodes) if node not in terminals]
    for size in range(len(others) + 1):
        for more in itertools.combinations(others, size):
            chosen = terminals | set(more)
            seen = {min(chosen)}
            while grown := {
                b
                for pair in links
                for a, b in (pair, pair[::-1])
                if a in seen and b in chosen and b not in seen
            }:
                seen |= grown
            if seen == chosen:
                return len(chosen) - 1
    raise AssertionError("not connected")


@pytest.mark.parametrize("exact", [steiner.EXACT, 0])
def test_bounds_hold_the_optimum_between_them(exact: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steiner, "EXACT", exact)
    tight = 0
    for seed in range(200):
        draw = random.Random(seed)
        nodes, links = draw_graph(draw)
        terminals = {draw.randrange(nodes) for _ in range(draw.randint(1, nodes))}
        bound = steiner.RouterGraph(nodes, np.array(links)).bound(list(terminals))
        best = fewest(nodes, links, terminals)
        assert bound.least <= best <= bound.most, seed
        if exact and len(terminals) <= exact:
            assert bound.least == bound.most == best, seed
        tight += bound.least == best
    assert tight >= 190


def test_paths_are_as_long_as_they_are_charged() -> None:
    below = transit_stub(2, 6, domains=2, transit_routers=2, stubs=1, stub_routers=3)
    far = steiner.crossed(below)
    for source, target in itertools.permutations(range(6), 2):
        links, router = 2, int(below.home[target])
        while below.link_into[source, router] >= 0:
            links, router = links + 1, int(below.before[source, router])
        assert far[source, target] == links
    assert not far.diagonal().any()


@pytest.mark.parametrize("multi_homed", [0.0, 0.3])
def test_the_gap_is_at_most_5_percent_on_200_brokers(multi_homed: float) -> None:
    below = transit_stub(1, 200, multi_homed=multi_homed)
    links, draw = steiner.of_underlay(below), np.random.default_rng(1)
    for wanting in (3, 10, 20, 50, 150):
        bounds = [
            steiner.physical(
                links, below.home, int(draw.integers(200)),
                draw.choice(200, wanting, replace=False).tolist(),
            )
            for _ in range(10)
        ]  # fmt: skip
        least, most = (sum(getattr(one, end) for one in bounds) for end in ("least", "most"))
        assert most <= 1.05 * least, wanting
