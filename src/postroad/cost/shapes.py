"""Trees as the closed form sees them: how many brokers per level, how large their subtrees.

Arrays carry the level on their last axis and any parameters before it, so one `Shape` may
stand for a whole sweep over fan-outs and heights. Levels below a tree's own height have no
brokers.
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
    """`nodes[..., l]` brokers on level l, each with `children[..., l]` children, on average."""

    height: npt.NDArray[np.int64]
    children: FloatArray

    @property
    def levels(self) -> npt.NDArray[np.int64]:
        return np.arange(self.nodes.shape[-1])


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
    levels = np.arange(int(np.max(high)) + 1)
    nodes = np.where(levels <= high[..., None], wide[..., None] ** levels, 0.0)
    return _shape(nodes, high.astype(np.int64))


def mean_fanout(fanout: npt.ArrayLike, brokers: npt.ArrayLike) -> Shape:
    """Trees of n brokers known only by their mean fan-out f̄ over the inner brokers.

    Level l holds f̄^l brokers until n are used up, so the last level may be partly filled; a
    subtree of level l holds its share of all that lies at or below l. Where n is the sum of
    the powers of f̄ this is `full`.
    """
    wide, count = np.broadcast_arrays(np.asarray(fanout, float), np.asarray(brokers, float))
    _refuse(wide, "fan-out", 1)
    _refuse(count, "number of brokers", 2)
    narrow = float(np.min(wide))
    most = float(np.max(count))
    depth = most if narrow < 1.001 else np.log1p(most * (narrow - 1)) / np.log(narrow) + 1
    if depth > 10_000:
        raise InputError(
            f"a tree of {most:g} brokers with mean fan-out {narrow:g} has over 10,000 levels",
            remedy="give a larger fan-out",
        )
    levels = np.arange(int(np.ceil(depth)) + 1)
    powers = wide[..., None] ** levels
    above = np.cumsum(powers, axis=-1) - powers
    nodes = np.clip(count[..., None] - above, 0.0, powers)
    nodes[nodes < 1e-9 * powers] = 0.0
    height = np.count_nonzero(nodes, axis=-1) - 1
    return _shape(nodes[..., : int(np.max(height)) + 1], height)


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


def _shape(nodes: FloatArray, height: npt.NDArray[np.int64]) -> Shape:
    at_or_below = np.cumsum(nodes[..., ::-1], axis=-1)[..., ::-1]
    next_level = np.concatenate([nodes[..., 1:], np.zeros_like(nodes[..., :1])], axis=-1)
    some = np.where(nodes > 0, nodes, 1.0)
    return Shape(
        brokers=np.asarray(nodes.sum(axis=-1)),
        height=np.asarray(height),
        nodes=nodes,
        children=next_level / some,
        subtree=at_or_below / some,
    )


def _refuse(values: FloatArray, name: str, least: int) -> None:
    wrong = values[~(np.isfinite(values) & (values >= least))]
    if wrong.size:
        raise InputError(f"{name} is {wrong.flat[0]:g}", remedy=f"give {name} >= {least}")
