"""Breadth-first numbering of trees."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from postroad.overlay import from_links, rooted, trees


@given(st.integers(min_value=1, max_value=60), st.integers(min_value=0, max_value=10_000))
def test_numbering_keeps_the_tree_and_makes_children_contiguous(count: int, seed: int) -> None:
    overlay = trees.random_tree(count, seed)
    tree = rooted.from_overlay(overlay)
    parents = overlay.parents()
    assert sorted(tree.broker.tolist()) == list(range(count))
    for v in range(1, count):
        above = tree.parent[v]
        assert tree.broker[above] == parents[tree.broker[v]]
        assert tree.first_child[above] <= v < tree.first_child[above + 1]
        assert tree.level[v] == tree.level[above] + 1
    assert tree.children_count.sum() == count - 1
    assert tree.level_starts[-1] == count


def test_subtree_sizes_count_each_broker_below() -> None:
    tree = rooted.from_parents([0, 3, 0, 0, 3])  # 0 ─ 2, 3; 3 ─ 1, 4
    assert tree.broker.tolist() == [0, 2, 3, 1, 4]
    assert tree.subtree_size.tolist() == [5, 1, 3, 1, 1]
    assert tree.sum_children(np.array([1.0, 2, 3, 4, 5])).tolist() == [5, 0, 9, 0, 0]


def test_a_chain_has_a_level_per_broker() -> None:
    tree = rooted.from_overlay(from_links([("a", "b", 1), ("b", "c", 1), ("c", "d", 1)]))
    assert tree.level.tolist() == [0, 1, 2, 3]
    assert tree.subtree_size.tolist() == [4, 3, 2, 1]
