"""Multicast groups: cells of the content space that much the same servers want.

Forgy's K-means, as Kyra's paper takes it from Riabov et al.: a cell is the vector of which
servers want it, groups begin as cells drawn at random, distances are Euclidean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from postroad import draws
from postroad.overlay import IntArray

ROUNDS_MAX = 100


def forgy(wanted: npt.NDArray[np.bool_], count: int, seed: int) -> IntArray:
    """The group of each cell; `wanted[cell, server]` says who wants what.

    Of two equally near groups a cell joins the first. A group that loses all its cells stays
    where it was.
    """
    cells = wanted.astype(np.float64)
    random = np.random.default_rng(draws.bits(seed, "groups.forgy", len(cells), count))
    centre = cells[random.permutation(len(cells))[:count]]
    group = np.full(len(cells), -1, np.int64)
    for _ in range(ROUNDS_MAX):
        # The square of a cell's own length is the same for all groups.
        apart = (centre**2).sum(axis=1) - 2 * cells @ centre.T
        nearest = apart.argmin(axis=1)
        if (nearest == group).all():
            break
        group = nearest
        size = np.bincount(group, minlength=len(centre))
        total = (group == np.arange(len(centre))[:, None]) @ cells
        centre = np.where(size[:, None] > 0, total / np.maximum(1, size)[:, None], centre)
    return group
