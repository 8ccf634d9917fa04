"""Publications, draws and generated trees."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from postroad import draws
from postroad.errors import InputError
from postroad.overlay import from_links
from postroad.overlay.trees import full_tree, normal_tree, random_tree


def test_draws_are_keyed_and_even() -> None:
    first = [draws.uniform(7, "a", 3, n) for n in range(10_000)]
    assert first == [draws.uniform(7, "a", 3, n) for n in range(10_000)]
    assert abs(np.mean(first) - 0.5) < 0.02
    assert abs(np.var(first) - 1 / 12) < 0.005
    others = [draws.uniform(7, "b", 3, n) for n in range(10_000)]
    assert abs(np.corrcoef(first, others)[0, 1]) < 0.05
    counts = Counter(draws.below(10, 7, "c", n, 0) for n in range(10_000))
    assert set(counts) == set(range(10))
    assert max(counts.values()) < 1150


@pytest.mark.parametrize(("fanout", "height", "count"), [(4, 7, 21845), (10, 5, 111111), (1, 3, 4)])
def test_full_tree_has_the_paper_s_size(fanout: int, height: int, count: int) -> None:
    overlay = full_tree(fanout, height)
    assert overlay.brokers_count == count
    children = Counter(overlay.ends[:, 0].tolist())
    assert set(children.values()) == {fanout}


def test_normal_tree_has_about_the_mean_and_deviation_asked_for() -> None:
    overlay = normal_tree(20_000, mean=4, stddev=1, seed=1)
    assert overlay.brokers_count == 20_000
    children = Counter(overlay.ends[:, 0].tolist())
    inner = [children.get(broker, 0) for broker in range(4000)]
    assert abs(np.mean(inner) - 4) < 0.1
    assert abs(np.std(inner) - 1) < 0.1


def test_random_tree_is_a_tree_of_its_seed() -> None:
    first, again, other = random_tree(50, 1), random_tree(50, 1), random_tree(50, 2)
    assert (first.ends == again.ends).all()
    assert (first.ends != other.ends).any()
    assert (first.parents()[1:] < np.arange(1, 50)).all()


def test_links_keep_their_names_and_latencies() -> None:
    overlay = from_links([("x", "y", 5), ("y", "z", 7)])
    assert overlay.names == ("x", "y", "z")
    assert overlay.neighbours() == [{1: 5}, {0: 5, 2: 7}, {1: 7}]
    with pytest.raises(InputError, match="negative"):
        from_links([("x", "y", -5)])
