"""Trees as the closed form sees them: groups of alike brokers, with the size of their subtrees.

In a full tree the brokers of a level are alike. A tree that grew breadth-first and stopped
within a level has two groups per level: those above the last brokers added, and those whose
subtrees are one level shorter. Arrays carry the group on their last axis and any parameters
before it, so one `Shape` may stand for a whole sweep over fan-outs and heights; groups that a
tree does not have hold no brokers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postroad.errors import InputError

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Links:
    """All that traffic depends on: `nodes[..., i]` brokers with subtrees of `subtree[..., i]`.

    The first entry is the root; every other broker stands for the link above it.
    """

    brokers: FloatArray
    nodes: FloatArray
    subtree: FloatArray


@dataclass(frozen=True, eq=False)
class Shape(Links):
    """The brokers of group i stand on `level[i]` and have `children[..., i]` children each."""

    height: npt.NDArray[np.int64]
    level: npt.NDArray[np.int64]
    children: FloatArray


COUNTED = 2.0**53  # whole numbers up to here are told apart


def full(fanout: npt.ArrayLike, height: npt.ArrayLike) -> Shape:
    """Full trees (section 2): every broker above level h has f children; equation (3).

    A fan-out need not be whole: with the mean f̄ in its place the traffic equations still
    hold, says section 2, and n is then the sum of the powers of f̄.
    """
    wide, high = np.broadcast_arrays(np.asarray(fanout, float), np.asarray(height, float))
    _refuse(wide, "fan-out", 1)
    _refuse(high, "height", 1)
    broken = high[high != np.floor(high)]
    if broken.size:
        raise InputError(f"height is {broken.flat[0]:g}", remedy="give a whole number of levels")
    most = np.floor(np.log(COUNTED) / np.log(np.maximum(wide, 1.001)))
    for f, h, m in zip(wide.flat, high.flat, most.flat, strict=True):
        if h > m:
            raise InputError(
                f"a tree of fan-out {f:g} and height {h:g} has more brokers than can be counted",
                remedy=f"give a height of at most {m:g}",
            )
    level = np.arange(int(np.max(high)) + 1)
    nodes = np.where(level <= high[..., None], wide[..., None] ** level, 0.0)
    children = np.where(level < high[..., None], wide[..., None], 0.0)
    below = high[..., None] - level
    return Shape(
        brokers=np.asarray(nodes.sum(axis=-1)),
        nodes=nodes,
        subtree=_powers_to(wide[..., None], below),
        height=high.astype(np.int64),
        level=level,
        children=children,
    )


def mean_fanout(fanout: npt.ArrayLike, brokers: npt.ArrayLike) -> Shape:
    """Trees of n brokers known only by f̄, the mean fan-out of the brokers that have children.

    They grew breadth-first: level l holds f̄^l brokers until n are used up. Where n is the sum
    of the powers of f̄ this is `full`.
    """
    wide, count = np.broadcast_arrays(np.asarray(fanout, float), np.asarray(brokers, float))
    _refuse(wide, "fan-out", 1)
    _refuse(count, "number of brokers", 2)
    narrow, most = float(np.min(wide)), float(np.max(count))
    if _powers_to(narrow, 10_000.0) < most:
        raise InputError(
            f"a tree of {most:g} brokers with mean fan-out {narrow:g} has over 10,000 levels",
            remedy="give a larger fan-out",
        )
    high = np.ones(wide.shape)
    while np.any(short := _powers_to(wide, high) < count * (1 - 1e-12)):
        high = high + short
    last = count - _powers_to(wide, high - 1)
    share = np.minimum(last / wide**high, 1.0)  # of each level that has the full height below

    level = np.arange(int(np.max(high)) + 1)
    f, h, q = wide[..., None], high[..., None], share[..., None]
    tall = np.where(level <= h, q * f**level, 0.0)
    low = np.where(level < h, (1 - q) * f**level, 0.0)
    tall[..., 0], low[..., 0] = 1.0, 0.0
    tall_below, low_below = _powers_to(f, h - level), _powers_to(f, h - 1 - level)
    tall_below[..., 0] = count
    tall_children, low_children = np.where(level < h, f, 0.0), np.where(level < h - 1, f, 0.0)
    tall_children[..., 0] = np.minimum(wide, count - 1)

    def grouped(ours: FloatArray, others: FloatArray) -> FloatArray:
        return np.stack(np.broadcast_arrays(ours, others), axis=-1).reshape(*ours.shape[:-1], -1)

    nodes = grouped(tall, low)
    present = np.any(nodes > 1e-9, axis=tuple(range(nodes.ndim - 1)))
    return Shape(
        brokers=count.copy(),
        nodes=nodes[..., present],
        subtree=grouped(tall_below, low_below)[..., present],
        height=high.astype(np.int64),
        level=np.repeat(level, 2)[present],
        children=grouped(tall_children, low_children)[..., present],
    )


def fanout_for(brokers: float, height: int) -> float:
    """The mean fan-out f̄ with which a tree of this height has this many brokers."""
    _refuse(np.asarray(height, float), "height", 1)
    _refuse(np.asarray(brokers, float), "number of brokers", height + 1)
    low, high = 1.0, float(brokers)
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if sum(middle**level for level in range(height + 1)) < brokers:
            low = middle
        else:
            high = middle
    return high


def _powers_to(fanout: npt.ArrayLike, height: npt.ArrayLike) -> FloatArray:
    """f^0 + … + f^h, equation (3); 1 for heights below 0, which no broker has."""
    f, h = np.broadcast_arrays(np.asarray(fanout, float), np.asarray(height, float))
    h = np.maximum(h, 0.0)
    flat = f == 1.0
    with np.errstate(over="ignore"):
        sums = (f ** (h + 1) - 1) / np.where(flat, 1.0, f - 1)
    return np.asarray(np.where(flat, h + 1, sums))


def _refuse(values: FloatArray, name: str, least: int) -> None:
    wrong = values[~(np.isfinite(values) & (values >= least))]
    if wrong.size:
        raise InputError(f"{name} is {wrong.flat[0]:g}", remedy=f"give {name} >= {least}")
