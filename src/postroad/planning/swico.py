"""Small-world interest-close overlays (SWICO, section 3 of the BeaConvey paper).

A planner knows who is interested in which topic. It orders the nodes on a ring and picks their
fingers so that, for as many topics as possible, the interested nodes are joined directly. The
measure is the number of topic-connected components (TCC, equation 1): parts of the overlay
that the nodes interested in one topic form, summed over the topics. An edge contributes the
number of components that it merges (equation 5).

`greedy_ring` is GSwicoS, `greedy_fingers` GSwicoL; `kernels/swico.py` computes the same fast.

Where we read the paper, and how:

- GSwicoS takes any edge that can be part of one full circle: its ends have at most one ring
  neighbour so far and are in different fragments. Such an edge joins nodes that were not
  connected at all, so its contribution is the number of topics that its ends share.
- GSwicoL lets each position have one clockwise and one counter-clockwise edge per phase. Read
  literally, an edge uses up the clockwise phase that it has as seen from either end, and then
  some positions are left without a finger in some phase (Property 1 fails). A greedy choice
  under our reading may still leave a position whose whole phase has its counter-clockwise
  edges: such a position then takes the best finger of that phase regardless. With
  `incoming = "any"` nothing limits who is pointed to: after edge (1, 7) the paper's example
  removes the other edges of node 1's phase and names none of node 7's.
- Ties. A random order of the nodes (of the positions and phases, for fingers) is drawn from
  the seed. Of the ring edges that contribute most, the one whose earlier end is earliest in
  that order is taken, then whose later end is. Of the fingers that contribute most, the one
  whose position and phase come first is taken, then the first clockwise from a random start
  within the phase (around the phase).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np

from postroad import draws
from postroad.overlay import IntArray
from postroad.overlay.small_world import distinct, phases_count, ranked


@dataclass(frozen=True, eq=False)
class TopicInterests:
    """Which topics each node is interested in: `topics[start[v]:start[v + 1]]`, ascending."""

    nodes_count: int
    topics_count: int
    start: IntArray
    topics: IntArray

    @cached_property
    def subscribers(self) -> tuple[IntArray, IntArray]:
        """The same by topic: those of t are `nodes[start[t]:start[t + 1]]`, ascending."""
        nodes = np.repeat(np.arange(self.nodes_count), np.diff(self.start))
        by_topic = np.argsort(self.topics, kind="stable")
        return _starts(self.topics, self.topics_count), nodes[by_topic]

    def of(self, node: int) -> list[int]:
        topics: list[int] = self.topics[self.start[node] : self.start[node + 1]].tolist()
        return topics

    def at_positions(self, order: IntArray) -> TopicInterests:
        """The same interests with nodes renumbered by their position on a ring."""
        sizes = np.diff(self.start)[order]
        start = np.zeros_like(self.start)
        np.cumsum(sizes, out=start[1:])
        moved = np.repeat(self.start[order] - start[:-1], sizes) + np.arange(len(self.topics))
        return TopicInterests(self.nodes_count, self.topics_count, start, self.topics[moved])


def from_pairs(
    nodes: IntArray | Sequence[int],
    topics: IntArray | Sequence[int],
    nodes_count: int,
    topics_count: int,
) -> TopicInterests:
    """From (node, topic) pairs; a pair that appears twice counts once."""
    keys = distinct(
        np.asarray(nodes, np.int64) * max(1, topics_count) + np.asarray(topics, np.int64)
    )
    node, topic = keys // max(1, topics_count), keys % max(1, topics_count)
    return TopicInterests(nodes_count, topics_count, _starts(node, nodes_count), topic)


def _starts(groups: IntArray, count: int) -> IntArray:
    start = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(groups, minlength=count), out=start[1:])
    return start


class Components:
    """The topic-connected components of an overlay that grows edge by edge."""

    def __init__(self, interests: TopicInterests) -> None:
        self.topics = [frozenset(interests.of(node)) for node in range(interests.nodes_count)]
        self.above: dict[tuple[int, int], int] = {}
        self.count = len(interests.topics)

    def contribution(self, a: int, b: int) -> int:
        """Equation 5: how many components the edge between nodes a and b would merge."""
        return sum(self._root(a, t) != self._root(b, t) for t in self.topics[a] & self.topics[b])

    def join(self, a: int, b: int) -> None:
        for topic in sorted(self.topics[a] & self.topics[b]):
            left, right = self._root(a, topic), self._root(b, topic)
            if left != right:
                self.above[topic, left] = right
                self.count -= 1

    def _root(self, node: int, topic: int) -> int:
        while (above := self.above.get((topic, node))) is not None:
            node = above
        return node


def greedy_ring(interests: TopicInterests, seed: int) -> IntArray:
    """GSwicoS: the nodes in ring order."""
    count = interests.nodes_count
    rank = np.argsort(ring_ties(count, seed)).tolist()
    topics = [frozenset(interests.of(node)) for node in range(count)]
    edges = []
    for a, b in combinations(range(count), 2):
        first, second = sorted((rank[a], rank[b]))
        edges.append((-len(topics[a] & topics[b]), first, second, a, b))
    beside: list[list[int]] = [[] for _ in range(count)]
    end = list(range(count))  # of a fragment's end, the other end
    for *_, a, b in sorted(edges):
        if len(beside[a]) < 2 and len(beside[b]) < 2 and end[a] != b:
            beside[a].append(b)
            beside[b].append(a)
            far, other = end[a], end[b]
            end[far], end[other] = other, far
    return walk(beside)


def walk(beside: Sequence[Sequence[int]]) -> IntArray:
    """Node 0 first, then around the path or circle that `beside` describes."""
    count = len(beside)
    ends = [node for node in range(count) if len(beside[node]) < 2]
    order = [ends[0] if ends else 0]
    while len(order) < count:
        before = order[-2] if len(order) > 1 else -1
        order.append(next(node for node in beside[order[-1]] if node != before))
    zero = order.index(0)
    return np.array(order[zero:] + order[:zero], np.int64)


INCOMING = ("one", "any")


def greedy_fingers(
    interests: TopicInterests, order: IntArray, seed: int, incoming: str = "one"
) -> IntArray:
    """GSwicoL: the fingers of each position, on a ring that is already there.

    `incoming`: how many fingers of one phase may point to a position, where that can be helped.
    """
    placed = interests.at_positions(order)
    count, phases = placed.nodes_count, phases_count(placed.nodes_count)
    parts = Components(placed)
    fingers = np.full((count, phases), -1, np.int64)
    if phases:
        fingers[:, 0] = (np.arange(count) + 1) % count
    for position, after in [*pairwise(range(count)), (count - 1, 0)]:
        parts.join(position, after)
    rank, start = finger_ties(count, seed)
    pointed = np.zeros((count, phases), bool)
    # At last the positions that found their whole phase taken.
    for limited in (True, False) if incoming == "one" else (False,):
        waiting = []
        for position in range(count):
            for phase in range(1, phases):
                if fingers[position, phase] < 0:
                    for step in range(1 << phase):
                        away = (1 << phase) + (start[position, phase] + step) % (1 << phase)
                        target = int((position + away) % count)
                        most = parts.contribution(position, target)
                        waiting.append((-most, rank[position, phase], step, position, target))
        heapq.heapify(waiting)
        phase_at = {int(rank[p, i]): i for p in range(count) for i in range(1, phases)}
        while waiting:
            most, tie, step, position, target = heapq.heappop(waiting)
            phase = phase_at[int(tie)]
            if fingers[position, phase] >= 0 or (limited and pointed[target, phase]):
                continue
            now = -parts.contribution(position, target)
            if now != most:  # contributions only fall: ask again in its turn
                heapq.heappush(waiting, (now, tie, step, position, target))
                continue
            fingers[position, phase] = target
            pointed[target, phase] = True
            parts.join(position, target)
    return fingers


def ring_ties(nodes: int, seed: int) -> IntArray:
    """The random order of nodes that settles ties between ring edges."""
    return ranked(nodes, seed, "swico.ring")


def finger_ties(nodes: int, seed: int) -> tuple[IntArray, IntArray]:
    """Per position and phase: its rank among all, and where in the phase ties start from."""
    phases = phases_count(nodes)
    order = ranked(nodes * phases, seed, "swico.finger")
    return np.argsort(order).reshape(nodes, phases), phase_starts(nodes, seed)


def phase_starts(nodes: int, seed: int) -> IntArray:
    """Per position and phase: a random place of the phase, counted from its begin."""
    start = np.zeros((nodes, phases_count(nodes)), np.int64)
    for phase in range(start.shape[1]):
        words = draws.bits_of_nodes(nodes, seed, "swico.start", phase)
        start[:, phase] = words % np.uint64(1 << phase)
    return start


def components_count(interests: TopicInterests, edges: Iterable[Sequence[int]]) -> int:
    """TCC(E), equation 1, for edges between nodes."""
    parts = Components(interests)
    for a, b in edges:
        parts.join(a, b)
    return parts.count


def support(interests: TopicInterests, components: int) -> float:
    """TcoSuppR, equation 7, of an overlay with this many components; 1 if none can be merged."""
    most, least = components_bounds(interests)
    return (most - components) / (most - least) if most > least else 1.0


def components_bounds(interests: TopicInterests) -> tuple[int, int]:
    """TCC(∅) and TCC(K), equations 2 and 3."""
    return len(interests.topics), int(np.count_nonzero(np.bincount(interests.topics)))
