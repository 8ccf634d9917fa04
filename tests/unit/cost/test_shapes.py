"""Trees by their levels."""

from __future__ import annotations

import numpy as np
import pytest

from postroad.cost import forwarding, shapes, trees
from postroad.errors import InputError
from postroad.overlay import rooted


def test_full_tree_counts_brokers_per_level_and_per_subtree() -> None:
    shape = shapes.full(4, 7)
    assert shape.brokers == 21_845
    assert shape.nodes.tolist() == [4**level for level in range(8)]
    assert shape.subtree.tolist() == [sum(4**k for k in range(8 - level)) for level in range(8)]


def test_shapes_of_many_trees_at_once_are_those_of_each() -> None:
    many = shapes.full([[2], [10]], [3, 5])
    assert many.brokers.tolist() == [[15, 63], [1111, 111_111]]
    one = shapes.full(2, 3)
    assert many.subtree[0, 0, :4].tolist() == one.subtree.tolist()
    assert many.nodes[0, 0, 4:].tolist() == [0, 0]


def test_mean_fanout_of_a_full_tree_is_that_tree() -> None:
    exact, mean = shapes.full(10, 5), shapes.mean_fanout(10, 111_111)
    assert mean.height == 5
    for name in ("brokers", "nodes", "children", "subtree"):
        np.testing.assert_allclose(getattr(mean, name), getattr(exact, name))


@pytest.mark.parametrize(("fanout", "brokers"), [(3, 22), (3, 25), (2, 100), (10, 1211), (7, 5)])
def test_mean_fanout_is_the_tree_filled_breadth_first(fanout: int, brokers: int) -> None:
    """Up to the one inner broker that may have fewer children; none has in these trees."""
    tree = rooted.from_parents([max(0, (b - 1) // fanout) for b in range(brokers)])
    shape = shapes.mean_fanout(fanout, brokers)
    assert shape.height == tree.level[-1]
    np.testing.assert_allclose(shape.nodes.sum(), brokers)
    for sigma in (0.01, 0.3):
        found = forwarding.subscription_traffic(shape, sigma)
        true = forwarding.subscription_traffic(trees.links_of(tree), sigma)
        np.testing.assert_allclose(found, true, rtol=0.02)
        loads = forwarding.publication_load(shape, sigma)
        for level in range(int(shape.height) + 1):
            nodes = shape.nodes[shape.level == level]
            mean = nodes @ loads[shape.level == level] / nodes.sum()
            true_mean = trees.publication_load(tree, sigma)[tree.level == level].mean()
            np.testing.assert_allclose(mean, true_mean, rtol=0.05)


def test_mean_fanouts_of_many_trees_at_once_are_those_of_each() -> None:
    many = shapes.mean_fanout([2.0, 3.5, 10.0], 20_000)
    traffic = forwarding.publication_traffic(many, 0.1)
    for fanout, found in zip((2.0, 3.5, 10.0), traffic, strict=True):
        one = forwarding.publication_traffic(shapes.mean_fanout(fanout, 20_000), 0.1)
        np.testing.assert_allclose(found, one)


def test_fanout_for_reproduces_the_published_means_of_table_4() -> None:
    found = [round(shapes.fanout_for(11_111, height), 2) for height in (4, 5, 6, 7)]
    assert found == [10.0, 6.22, 4.53, 3.61]


def test_a_star_and_a_chain_are_full_trees() -> None:
    assert shapes.full(9, 1).brokers == 10
    assert shapes.full(1, 9).brokers == 10


@pytest.mark.parametrize(
    ("fanout", "height", "said"),
    [(0.5, 3, "fan-out is 0.5"), (2, 0, "height is 0"), (2, 2.5, "height is 2.5"),
     (float("nan"), 2, "fan-out is nan")],
)  # fmt: skip
def test_impossible_trees_are_refused(fanout: float, height: float, said: str) -> None:
    with pytest.raises(InputError, match=said):
        shapes.full(fanout, height)


def test_a_mean_fanout_without_end_is_refused() -> None:
    with pytest.raises(InputError, match="levels"):
        shapes.mean_fanout(1.0, 10**6)
