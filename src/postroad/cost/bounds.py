"""The least that any scheme can do: lower bounds on messages, load, delay and links.

Given, for every publication, the broker where it is made and the brokers with an interested
client. Brokers are columns' rows: `wanted[b, p]` says whether broker b wants publication p.

- *Messages*: every other broker that wants a publication receives it at least once. Exact where
  brokers may send directly. On a tree, the links of the subtree that spans the publisher and the
  interested brokers. Exact there.
- *Worst broker*: messages sent and received. A broker receives what it wants, and sends at least
  once what it publishes and others want. The other sends may fall to anyone: they are poured over
  the brokers, the least loaded first, as if every broker had everything.
- *Delay*: the shortest way over the latencies between brokers, through others where that is
  shorter. Brokers take no time.
- *Links of the network below*: a Steiner tree (`kernels.steiner`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postroad.overlay import IntArray, Overlay
from postroad.overlay.rooted import Rooted, from_overlay

Wanted = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class OnTree:
    """What publications take on a tree of links.

    `links[p]` is the size of the subtree that spans the brokers which want publication p,
    `apart[b, p]` how many links broker b is away from it.
    """

    links: IntArray
    apart: IntArray

    def messages(self, source: IntArray) -> IntArray:
        """Per publication, with its publisher where it is."""
        return self.links + self.apart[source, np.arange(len(source))]

    def best_places(self, publisher: IntArray) -> IntArray:
        """Per publication, the broker that is best for all that its publisher publishes."""
        places = np.empty_like(publisher)
        for one in np.unique(publisher):
            mine = publisher == one
            places[mine] = self.apart[:, mine].sum(axis=1).argmin()
        return places


def messages(wanted: Wanted, source: IntArray) -> IntArray:
    """Per publication, where brokers may send directly."""
    copies: IntArray = wanted.sum(axis=0) - wanted[source, np.arange(len(source))]
    return copies


def on_tree(overlay: Overlay, wanted: Wanted) -> OnTree:
    tree = from_overlay(overlay)
    marked = wanted[tree.broker].astype(np.int64)
    below, total = _below(tree, marked), marked.sum(axis=0)
    crossed = (below > 0) & (below < total)
    crossed[0] = False  # the root has no link above it
    ways = (below < total).astype(np.int64)
    np.add.at(ways, tree.parent[1:], (below[1:] > 0).astype(np.int64))
    spanned = (marked > 0) | (ways >= 2)
    spanned |= total == 0  # nobody wants it: it goes nowhere from anywhere
    far = tree.brokers_count
    apart = np.where(spanned, 0, far)
    for v in range(tree.brokers_count - 1, 0, -1):
        above = tree.parent[v]
        apart[above] = np.minimum(apart[above], apart[v] + 1)
    for v in range(1, tree.brokers_count):
        apart[v] = np.minimum(apart[v], apart[tree.parent[v]] + 1)
    by_broker = np.empty_like(apart)
    by_broker[tree.broker] = apart
    return OnTree(crossed.sum(axis=0), by_broker)


def loads_on_tree(overlay: Overlay, wanted: Wanted, source: IntArray) -> IntArray:
    """Per broker and publication, the messages that it sends and receives if only links that must
    be are used."""
    tree = from_overlay(overlay)
    marked = wanted.copy()
    somewhere = messages(wanted, source) > 0
    marked[source[somewhere], np.flatnonzero(somewhere)] = True
    marked[:, ~somewhere] = False
    counts = marked[tree.broker].astype(np.int64)
    below = _below(tree, counts)
    crossed = ((below > 0) & (below < counts.sum(axis=0))).astype(np.int64)
    crossed[0] = 0
    load = crossed.copy()
    np.add.at(load, tree.parent[1:], crossed[1:])
    by_broker: IntArray = np.empty_like(load)
    by_broker[tree.broker] = load
    return by_broker


def worst_load(wanted: Wanted, source: IntArray) -> int:
    """What the busiest broker sends and receives at least, where brokers may send directly."""
    copies = messages(wanted, source)
    received = wanted.sum(axis=1)
    np.subtract.at(received, source, wanted[source, np.arange(len(source))].astype(np.int64))
    load = received + np.bincount(source[copies > 0], minlength=len(received))
    free = int(copies.sum() - (copies > 0).sum())
    levels = np.sort(load)
    worst = int(levels[-1])
    room = int((worst - levels).sum())
    if free <= room:
        return worst
    return worst + -(-(free - room) // len(levels))


def least_us(overlay: Overlay) -> npt.NDArray[np.float64]:
    """The shortest way from each broker to each other, directly where that is known."""
    from scipy.sparse.csgraph import shortest_path

    if overlay.direct_us is not None:
        latency_us = np.ascontiguousarray(overlay.direct_us, dtype=np.float64)
        shortest: npt.NDArray[np.float64] = shortest_path(
            np.ma.masked_array(latency_us, np.eye(len(latency_us), dtype=bool)), directed=True
        )
        return shortest
    return np.array([overlay.path_us(b) for b in range(overlay.brokers_count)], dtype=np.float64)


def _below(tree: Rooted, values: IntArray) -> IntArray:
    """Per broker and publication, the sum over the broker's subtree."""
    sums = values.copy()
    for v in range(tree.brokers_count - 1, 0, -1):
        sums[tree.parent[v]] += sums[v]
    return sums
