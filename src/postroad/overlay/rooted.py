"""A tree hung from its root and numbered breadth-first, as flat arrays.

The children of broker v are the numbers `first_child[v]` up to `first_child[v + 1]`, so both
the cost model and the compiled kernels walk a tree through slices and never through lists.
The link between v and its parent goes by the number v; the root, number 0, has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from postroad.overlay import IntArray, Overlay

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rooted:
    """`parent` and `first_child` in breadth-first numbers; `broker[v]` is v's overlay number."""

    parent: IntArray
    first_child: IntArray
    broker: IntArray

    @property
    def brokers_count(self) -> int:
        return len(self.parent)

    @cached_property
    def children_count(self) -> IntArray:
        return np.diff(self.first_child)

    @cached_property
    def level_starts(self) -> list[int]:
        """The first number on each level, and the number of brokers as the last entry."""
        starts = [0]
        end = 1
        while end < self.brokers_count:
            starts.append(end)
            end = int(self.first_child[end])
        return [*starts, self.brokers_count]

    @cached_property
    def level(self) -> IntArray:
        sizes = np.diff(self.level_starts)
        return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)

    @cached_property
    def subtree_size(self) -> IntArray:
        """How many brokers hang from each broker, itself included."""
        return self.sum_below(np.ones(self.brokers_count)).astype(np.int64)

    def sum_below(self, values: FloatArray) -> FloatArray:
        """Per broker, the sum of `values` over its subtree, itself included."""
        sums = values.copy()
        starts = self.level_starts
        for begin, end in zip(starts[-2:0:-1], starts[:1:-1], strict=True):
            np.add.at(sums, self.parent[begin:end], sums[begin:end])
        return sums

    def sum_children(self, values: FloatArray) -> FloatArray:
        """Per broker, the sum of `values` over its children."""
        sums = np.zeros_like(values)
        np.add.at(sums, self.parent[1:], values[1:])
        return sums


def from_parents(parents: Sequence[int] | IntArray) -> Rooted:
    """Number a tree breadth-first; broker 0 is the root and its own entry is ignored."""
    above = np.array(parents, dtype=np.int64)
    count = len(above)
    above[0] = -1
    in_order = bool(np.all(above[1:] >= above[:-1])) and bool(np.all(above < np.arange(count)))
    broker = np.arange(count, dtype=np.int64)
    if not in_order:
        by_parent = np.argsort(above, kind="stable")
        begins = np.searchsorted(above[by_parent], np.arange(count + 1))
        visited = [0]
        for place in range(count):
            here = visited[place]
            visited.extend(by_parent[begins[here] : begins[here + 1]].tolist())
        broker = np.array(visited, dtype=np.int64)
        number = np.empty(count, dtype=np.int64)
        number[broker] = np.arange(count)
        above = above[broker]
        above[1:] = number[above[1:]]
    first_child = np.searchsorted(above, np.arange(count + 1), side="left").astype(np.int64)
    return Rooted(above, first_child, broker)


def from_overlay(overlay: Overlay) -> Rooted:
    """Hang an overlay from its broker 0."""
    return from_parents(overlay.parents())
