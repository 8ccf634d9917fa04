"""Keeping a small world whole between two plannings.

Nodes leave and join while a plan is in use. The ring closes over those that left; one that
joins takes a random place, as its identifier would in a distributed hash table. A finger stays
if it still points into its phase; any other is repaired with the first position of the phase,
Chord's choice. Delivery stays correct, because routing needs no more than Property 1; the
overlay knows less and less of the interests until it is planned again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from postroad import draws
from postroad.overlay import IntArray
from postroad.overlay.small_world import SmallWorld, chord


def renew(
    world: SmallWorld, stays: npt.NDArray[np.bool_], joins: int, seed: int
) -> tuple[SmallWorld, IntArray]:
    """The world without the nodes that left and with `joins` new ones.

    Nodes that stay are renumbered in their order, new ones follow. Also the old number of each
    node, -1 for a new one.
    """
    kept = np.flatnonzero(stays)
    number = np.full(world.nodes_count, -1, np.int64)
    number[kept] = np.arange(len(kept))
    ring: list[int] = number[world.order[stays[world.order]]].tolist()
    for joined in range(joins):
        node = len(kept) + joined
        ring.insert(draws.below(len(ring) + 1, seed, "churn.place", joined, 0), node)
    order = np.array(ring, np.int64)
    return repaired(world, number, order), np.concatenate([kept, np.full(joins, -1, np.int64)])


def repaired(world: SmallWorld, number: IntArray, order: IntArray) -> SmallWorld:
    """The world on a new ring: `number` is what each old node is called there, -1 if it left."""
    count = len(order)
    fingers = chord(count)
    before = number[world.order[world.fingers]]  # of each old position, whom it pointed to
    shared = min(fingers.shape[1], before.shape[1])
    place = np.argsort(order)
    for phase in range(1, shared):
        near = place[number[world.order]]
        far = place[before[:, phase]]
        away = (far - near) % count
        still = (number[world.order] >= 0) & (before[:, phase] >= 0)
        still &= (away >= 1 << phase) & (away < 2 << phase)
        fingers[near[still], phase] = far[still]
    return SmallWorld(order, fingers)
