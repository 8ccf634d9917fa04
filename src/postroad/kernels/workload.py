"""Who subscribes and who publishes, drawn by key, so that every simulator can draw the same.

For each filter every broker subscribes with the filter's probability, independently, and the
subscribers subscribe in random order. Publications are numbered through over all filters and
each is issued by a broker drawn uniformly. Brokers are breadth-first numbers.
"""

from __future__ import annotations

import numpy as np

from postroad.jit import njit
from postroad.kernels.counters import Numbers
from postroad.kernels.draws import base, below, mix, node_keyed, to_uniform
from postroad.overlay.rooted import Rooted


def subscribers(tree: Rooted, probability: float, seed: int, filter: int) -> Numbers:
    """Who subscribes to a filter, in the order in which they do."""
    members = np.empty(tree.brokers_count, dtype=np.int32)
    keys = member_keys(tree.brokers_count, member_base(seed))
    count = draw_members(keys, order_base(seed), filter, probability, members)
    return members[:count]


def publisher(tree: Rooted, seed: int, publication: int) -> int:
    """Who issues a publication."""
    return int(draw_publisher(tree.brokers_count, publisher_base(seed), publication))


def member_base(seed: int) -> np.uint64:
    return base(seed, "workload.member")


def order_base(seed: int) -> np.uint64:
    return base(seed, "workload.order")


def publisher_base(seed: int) -> np.uint64:
    return base(seed, "workload.publisher")


@njit(cache=True)
def member_keys(n, start):
    """Each broker's part of the member draws, once for all filters."""
    keys = np.empty(n, np.uint64)
    for broker in range(n):
        keys[broker] = node_keyed(start, broker)
    return keys


@njit(cache=True)
def draw_members(keys, order, filter, probability, members):
    """Fill `members` with the filter's subscribers in random order; how many there are."""
    count = 0
    for broker in range(len(keys)):
        members[count] = broker
        count += to_uniform(mix(keys[broker] ^ np.uint64(filter))) < probability
    for last in range(count - 1, 0, -1):
        other = below(last + 1, order, filter, last)
        members[last], members[other] = members[other], members[last]
    return count


@njit(cache=True)
def draw_publisher(n, start, publication):
    return below(n, start, publication, 0)
