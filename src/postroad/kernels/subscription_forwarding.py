"""Subscription forwarding, message by message, compiled.

Mirrors `routing/subscription_forwarding.py` on a tree: every hop of every subscription and of
every publication is taken one by one, and each broker decides from its routing entries alone.
Per link and direction one byte says whether the filter at hand was sent over it; that byte is
the sender's "already sent" mark and the receiver's routing entry at once.

Filters are independent of each other, so they are simulated one after the other and memory
grows with the number of brokers only. For each filter its subscribers are drawn, subscribe
one at a time in random order, and then its publications are issued.

`FilterState` is the same kernel for a workload of the caller's. Barring links turns it into the
neighbouring schemes: no filter where a wider one went (covering), none where no advertisement
came from (advertisements), none towards the leaves (hierarchical forwarding).

Omitted: unsubscription, failing links, latencies (a message has arrived everywhere before the
next one is issued), and deliveries to clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from postroad.jit import njit
from postroad.kernels.counters import Counters, links
from postroad.kernels.workload import (
    draw_members,
    draw_publisher,
    member_base,
    member_keys,
    order_base,
    publisher_base,
)
from postroad.overlay import IntArray
from postroad.overlay.rooted import Rooted

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

SENT = 1
"""The filter was sent over this link in this direction: there is a routing entry."""
BARRED = 2
"""The filter must not be sent over this link in this direction."""

_FROM_PARENT = -1
_FROM_CLIENT = -2


@dataclass(frozen=True, eq=False)
class ForwardingCounts:
    """`subscriptions` of the counted patterns, `interests` of the rest, `publications` of all."""

    subscriptions: Counters
    interests: Counters
    publications: Counters


def simulate(
    tree: Rooted,
    probability: npt.ArrayLike,
    publications: npt.ArrayLike,
    seed: int,
    patterns: int | None = None,
) -> ForwardingCounts:
    """Simulate filters g = 0, 1, … with `probability[g]` and `publications[g]` publications.

    Only the first `patterns` filters (all, if None) are patterns whose subscription messages
    count as such. The rest stand for the interest in single publications, where receivers are
    drawn apart from the patterns; their messages are counted in `interests`.
    """
    chances = np.ascontiguousarray(probability, dtype=np.float64)
    numbers = np.ascontiguousarray(publications, dtype=np.int64)
    counted = len(chances) if patterns is None else patterns
    outcome = ForwardingCounts(Counters.zero(tree), Counters.zero(tree), Counters.zero(tree))
    counters = _Counters(
        outcome.subscriptions.up, outcome.subscriptions.down,
        outcome.interests.up, outcome.interests.down,
        outcome.publications.up, outcome.publications.down,
    )  # fmt: skip
    bases = _Bases(member_base(seed), order_base(seed), publisher_base(seed))
    _simulate(*links(tree), chances, numbers, counted, bases, counters)
    return outcome


class FilterState:
    """One filter's routing state on a tree, for callers who bring their own workload.

    `up[v]` and `down[v]` are the marks of the link between v and its parent. The counters run
    over the network's whole life; `reset` forgets the routing entries, not the counts.
    """

    def __init__(self, tree: Rooted) -> None:
        n = tree.brokers_count
        self.up: Bytes = np.zeros(n, dtype=np.uint8)
        self.down: Bytes = np.zeros(n, dtype=np.uint8)
        self.subscriptions = Counters.zero(tree)
        self.publications = Counters.zero(tree)
        self._links = links(tree)
        self._queue = np.empty((2, n), dtype=np.int32)

    def reset(self) -> None:
        self.up[:] = 0
        self.down[:] = 0

    def bar(self, up: Bools, down: Bools) -> None:
        """Forbid the filter on these links and directions."""
        self.up[up] = BARRED
        self.down[down] = BARRED

    def subscribe(self, brokers: npt.ArrayLike) -> None:
        """These brokers subscribe, one after the other."""
        members = np.ascontiguousarray(brokers, dtype=np.int32)
        ups, downs = self.subscriptions.up, self.subscriptions.down
        marks = (self.up, self.down)
        _subscribe(*self._links, members, len(members), *marks, ups, downs, self._queue)

    def publish(self, brokers: npt.ArrayLike, always_up: bool = False) -> None:
        """These brokers publish, one after the other; `always_up` sends all to the root too."""
        ups, downs = self.publications.up, self.publications.down
        marks = (self.up, np.full_like(self.down, SENT) if always_up else self.down)
        for broker in np.asarray(brokers).tolist():
            _publish(*self._links, broker, *marks, ups, downs, self._queue)


class _Bases(NamedTuple):
    """Where the streams of draws begin."""

    members: np.uint64
    order: np.uint64
    publishers: np.uint64


class _Counters(NamedTuple):
    """Messages over the link between each broker and its parent, up and down."""

    pattern_ups: IntArray  # subscriptions to the filters that are counted
    pattern_downs: IntArray
    interest_ups: IntArray  # to the others
    interest_downs: IntArray
    publication_ups: IntArray
    publication_downs: IntArray


@njit(cache=True)
def _simulate(parent, first_child, chances, publications, counted, bases, counters):
    n = len(parent)
    up = np.zeros(n, np.uint8)
    down = np.zeros(n, np.uint8)
    members = np.empty(n, np.int32)
    queue = np.empty((2, n), np.int32)
    keys = member_keys(n, bases.members)
    publication = 0
    for filter in range(len(chances)):
        up[:] = 0
        down[:] = 0
        count = draw_members(keys, bases.order, filter, chances[filter], members)
        if filter < counted:
            ups, downs = counters.pattern_ups, counters.pattern_downs
        else:
            ups, downs = counters.interest_ups, counters.interest_downs
        _subscribe(parent, first_child, members, count, up, down, ups, downs, queue)
        for _ in range(publications[filter]):
            broker = draw_publisher(n, bases.publishers, publication)
            _publish(
                parent, first_child, broker, up, down, counters.publication_ups,
                counters.publication_downs, queue,
            )  # fmt: skip
            publication += 1


@njit(cache=True)
def _subscribe(parent, first_child, members, count, up, down, ups, downs, queue):
    """Each subscription goes to every neighbour but its sender that was not yet sent it."""
    queue_node = queue[0]
    queue_from = queue[1]
    for position in range(count):
        queue_node[0] = members[position]
        queue_from[0] = _FROM_CLIENT
        head = 0
        tail = 1
        while head < tail:
            node = queue_node[head]
            sender = queue_from[head]
            head += 1
            if sender != _FROM_PARENT and node != 0 and up[node] == 0:
                up[node] = SENT
                ups[node] += 1
                queue_node[tail] = parent[node]
                queue_from[tail] = node
                tail += 1
            for child in range(first_child[node], first_child[node + 1]):
                if down[child] == 0 and child != sender:
                    down[child] = SENT
                    downs[child] += 1
                    if first_child[child] != first_child[child + 1]:
                        queue_node[tail] = child
                        queue_from[tail] = _FROM_PARENT
                        tail += 1


@njit(cache=True)
def _publish(parent, first_child, broker, up, down, ups, downs, queue):
    """The publication goes to every neighbour but its sender that sent a subscription here."""
    queue_node = queue[0]
    queue_from = queue[1]
    queue_node[0] = broker
    queue_from[0] = _FROM_CLIENT
    head = 0
    tail = 1
    while head < tail:
        node = queue_node[head]
        sender = queue_from[head]
        head += 1
        if sender != _FROM_PARENT and node != 0 and down[node] == SENT:
            ups[node] += 1
            queue_node[tail] = parent[node]
            queue_from[tail] = node
            tail += 1
        for child in range(first_child[node], first_child[node + 1]):
            if up[child] == SENT and child != sender:
                downs[child] += 1
                if first_child[child] != first_child[child + 1]:
                    queue_node[tail] = child
                    queue_from[tail] = _FROM_PARENT
                    tail += 1
