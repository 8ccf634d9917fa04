"""Event forwarding, message by message, compiled.

Mirrors `routing/flooding.py` on a tree: a broker sends each publication to every neighbour
but the one it came from. Omitted: failing links, latencies, and local matching.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from postroad.jit import njit
from postroad.kernels.counters import Counters, links
from postroad.kernels.workload import publisher
from postroad.overlay.rooted import Rooted

_FROM_PARENT = -1
_FROM_CLIENT = -2


def simulate(tree: Rooted, publications: int, seed: int) -> Counters:
    """Flood publications 0, 1, … from the publishers that `workload` draws for this seed."""
    return publish(tree, [publisher(tree, seed, number) for number in range(publications)])


def publish(tree: Rooted, publishers: npt.ArrayLike) -> Counters:
    """Flood one publication from each of these brokers."""
    counts = Counters.zero(tree)
    origins = np.ascontiguousarray(publishers, dtype=np.int64)
    _flood(*links(tree), origins, counts.up, counts.down)
    return counts


@njit(cache=True)
def _flood(parent, first_child, publishers, ups, downs):
    n = len(parent)
    queue_node = np.empty(n, np.int32)
    queue_from = np.empty(n, np.int32)
    for origin in publishers:
        queue_node[0] = origin
        queue_from[0] = _FROM_CLIENT
        head = 0
        tail = 1
        while head < tail:
            node = queue_node[head]
            sender = queue_from[head]
            head += 1
            if sender != _FROM_PARENT and node != 0:
                ups[node] += 1
                queue_node[tail] = parent[node]
                queue_from[tail] = node
                tail += 1
            for child in range(first_child[node], first_child[node + 1]):
                if child != sender:
                    downs[child] += 1
                    if first_child[child] != first_child[child + 1]:
                        queue_node[tail] = child
                        queue_from[tail] = _FROM_PARENT
                        tail += 1
