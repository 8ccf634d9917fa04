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
    from scipy.sparse import csr_array

    cells = csr_array(wanted.astype(np.float64))  # sparse products also sum in a fixed order
    cells_count = len(wanted)
    random = np.random.default_rng(draws.bits(seed, "groups.forgy", cells_count, count))
    centre = wanted[random.permutation(cells_count)[:count]].astype(np.float64)
    group = np.full(cells_count, -1, np.int64)
    for _ in range(ROUNDS_MAX):
        # The square of a cell's own length is the same for all groups.
        apart = (centre**2).sum(axis=1) - 2 * (cells @ centre.T)
        nearest = apart.argmin(axis=1)
        if (nearest == group).all():
            break
        group = nearest
        size = np.bincount(group, minlength=len(centre))
        ones = (np.ones(cells_count), (group, np.arange(cells_count)))
        total = (csr_array(ones, shape=(len(centre), cells_count)) @ cells).toarray()
        centre = np.where(size[:, None] > 0, total / np.maximum(1, size)[:, None], centre)
    return group
