"""What the tree kernels count: messages per link and direction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postroad.overlay.rooted import Rooted

Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Counters:
    """Messages per link: `up[v]` from v to its parent, `down[v]` from the parent to v."""

    tree: Rooted
    up: Counts
    down: Counts

    @classmethod
    def zero(cls, tree: Rooted) -> Counters:
        n = tree.brokers_count
        return cls(tree, np.zeros(n, np.int64), np.zeros(n, np.int64))

    @property
    def traffic(self) -> int:
        return int(self.up.sum() + self.down.sum())

    @property
    def load(self) -> Counts:
        """Messages each broker sent: up its own link and down its children's."""
        return self.up + self.tree.sum_children(self.down.astype(float)).astype(np.int64)


def links(tree: Rooted) -> tuple[Numbers, Numbers]:
    """The tree as kernels read it: half the bytes, so twice as much of it in the cache."""
    return tree.parent.astype(np.int32), tree.first_child.astype(np.int32)
