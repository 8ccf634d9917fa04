"""Overlays where any two brokers can talk: the latencies between them, and spanning trees."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from postroad.model import BrokerId
from postroad.overlay import IntArray, Overlay

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# scipy takes a quarter of a second to import: only those who need it wait for it.


def between_all(overlay: Overlay) -> IntArray:
    """The latency between any two brokers: as the overlay knows it, otherwise along its tree."""
    if overlay.direct_us is not None:
        return overlay.direct_us
    return np.array([overlay.path_us(broker) for broker in range(overlay.brokers_count)], np.int64)


def spanning_tree(direct_us: IntArray, members: Sequence[BrokerId] | IntArray) -> IntArray:
    """The links of a minimum spanning tree over some brokers, as pairs in ascending order."""
    picked = np.unique(np.asarray(members, np.int64))
    if len(picked) < 2:
        return np.zeros((0, 2), np.int64)
    if find_spec("numba") is None:
        ends = plain_links(direct_us, picked)
    else:
        from postroad.overlay import spanning

        ends = spanning.links(direct_us, picked)
    return ends[np.lexsort((ends[:, 1], ends[:, 0]))]


def plain_links(direct_us: IntArray, members: IntArray) -> IntArray:
    """What `spanning.links` chooses, without Numba."""
    count = len(members)
    places = np.arange(count)
    between = np.triu(direct_us[np.ix_(members, members)], 1)
    between += between.T
    length = np.full(count, np.iinfo(np.int64).max)  # of the shortest link to those inside
    below = np.zeros(count, np.int64)  # whose it is
    outside = np.ones(count, bool)
    chosen = np.empty((count - 1, 2), np.int64)
    newest = 0
    for place in range(count - 1):
        outside[newest] = False
        first, second = np.minimum(newest, places), np.maximum(newest, places)
        key = (between[newest] * count + first) * count + second
        below[key < length] = newest
        np.minimum(length, key, out=length)
        nearest = int(places[outside][length[outside].argmin()])
        chosen[place] = members[sorted((below[nearest], nearest))]
        newest = nearest
    return chosen


def as_overlay(names: Sequence[str], direct_us: IntArray) -> Overlay:
    """Brokers that can all reach each other, linked by a minimum spanning tree."""
    ends = spanning_tree(direct_us, np.arange(len(names)))
    return Overlay(tuple(names), ends, direct_us[ends[:, 0], ends[:, 1]], direct_us)


def shortest_paths(nodes: int, ends: IntArray, latency_us: IntArray) -> IntArray | None:
    """The latency between any two nodes of a graph; None if it does not join them all."""
    from scipy.sparse.csgraph import connected_components, dijkstra

    network = graph(nodes, ends, latency_us)
    if connected_components(network, directed=False)[0] > 1:
        return None
    return np.asarray(np.rint(dijkstra(network)), np.int64)


def graph(nodes: int, ends: IntArray, latency_us: IntArray) -> csr_array:
    """An undirected graph for scipy, where 0 means no link: a link takes at least 1 µs."""
    from scipy.sparse import coo_array

    both = np.concatenate([ends, ends[:, ::-1]])
    keys, place = np.unique(both[:, 0] * nodes + both[:, 1], return_inverse=True)
    least = np.full(len(keys), np.inf)
    np.minimum.at(least, place, np.maximum(1, np.tile(latency_us, 2)))
    return coo_array((least, (keys // nodes, keys % nodes)), shape=(nodes, nodes)).tocsr()
