"""Overlays where any two brokers can talk: the latencies between them, and spanning trees."""

from __future__ import annotations

from collections.abc import Sequence
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
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    picked = np.asarray(members, np.int64)
    if len(picked) < 2:
        return np.zeros((0, 2), np.int64)
    # A sparse matrix has no entry where it is 0, so brokers at one place are 1 µs apart here.
    between = np.triu(direct_us[np.ix_(picked, picked)] + 1, 1)
    tree = minimum_spanning_tree(csr_array(between)).tocoo()
    ends = np.sort(np.stack([picked[tree.row], picked[tree.col]], axis=1), axis=1)
    return ends[np.lexsort((ends[:, 1], ends[:, 0]))]


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
