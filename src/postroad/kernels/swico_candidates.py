"""An approximate SWICO planner: greedy, but only over candidate edges that it is given.

The exact planner looks at every pair of nodes that share a topic, which for a million nodes is
too many. Here the ring is Kruskal's pass over the candidates by overlap, and fingers are taken
from the candidates by what they contribute at the time. What candidates leave open is filled
without regard to interest: open ends in random order, fingers from a random start in the phase.
Memory is in proportion to interests and candidates.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from postroad.kernels.swico import _contribution, _join, _pairs, _tie
from postroad.overlay import IntArray
from postroad.overlay.small_world import SmallWorld, ranked
from postroad.planning.swico import TopicInterests, finger_ties, ring_ties


def build(interests: TopicInterests, candidates: IntArray, seed: int) -> SmallWorld:
    """The overlay SL from candidate edges, rows (a, b) of nodes, each pair once."""
    count = interests.nodes_count
    edges = candidates[ranked(len(candidates), seed, "swico.candidates")]
    overlap = _overlaps(interests.start, interests.topics, edges)
    by_overlap = np.argsort(-overlap, kind="stable")
    beside = _ring(edges[by_overlap], ring_ties(count, seed), count)
    order = _around(beside)
    placed = interests.at_positions(order)
    starts, _ = placed.subscribers
    begin = finger_ties(count, seed)[1]
    at = np.argsort(order)[edges]
    fingers = _fingers(placed.start, placed.topics, starts, at, overlap, begin)
    return SmallWorld(order, fingers)


@njit(cache=True)
def _overlaps(start, topics, edges):  # type: ignore[no-untyped-def]
    alone = np.arange(len(topics))  # each interest a component of its own
    found = np.empty(len(edges), np.int64)
    for at in range(len(edges)):
        found[at] = _contribution(edges[at, 0], edges[at, 1], start, topics, alone, alone)
    return found


@njit(cache=True)
def _ring(edges, by_rank, count):  # type: ignore[no-untyped-def]
    beside = np.full((count, 2), -1, np.int64)
    degree = np.zeros(count, np.int64)
    end = np.arange(count)
    left = count - 1
    for at in range(len(edges)):
        a = edges[at, 0]
        b = edges[at, 1]
        if degree[a] < 2 and degree[b] < 2 and end[a] != b:
            _tie(a, b, beside, degree, end)
            left -= 1
    # A fragment's far end, then the next fragment: each is joined whole, in random order.
    last = np.int64(-1)
    for place in range(count):
        node = by_rank[place]
        if left == 0:
            break
        if degree[node] < 2 and (last < 0 or end[last] != node) and last != node:
            if last >= 0:
                far = end[node]
                _tie(last, node, beside, degree, end)
                left -= 1
                last = far
            else:
                last = end[node]
    return beside


@njit(cache=True)
def _around(beside):  # type: ignore[no-untyped-def]
    """The nodes along the path that `beside` describes."""
    count = len(beside)
    order = np.empty(count, np.int64)
    node = np.int64(0)
    for start in range(count):
        if beside[start, 1] < 0:
            node = np.int64(start)
            break
    before = np.int64(-1)
    for place in range(count):
        order[place] = node
        after = beside[node, 0] if beside[node, 0] != before else beside[node, 1]
        before = node
        node = after
    return order


@njit(cache=True)
def _fingers(start, topics, list_start, edges, overlap, begin):  # type: ignore[no-untyped-def]
    count, phases = begin.shape
    pair = _pairs(start, topics, list_start)
    part = np.arange(len(topics))
    following = np.arange(len(topics))
    part_size = np.ones(len(topics), np.int64)
    main = np.full(len(list_start) - 1, -1)
    fingers = np.full((count, phases), -1, np.int64)
    if phases == 0:
        return fingers
    for position in range(count):
        after = (position + 1) % count
        fingers[position, 0] = after
        _join(position, after, start, topics, pair, part, following, part_size, main)
    pointed = np.zeros((phases, count), np.bool_)
    phase_of = np.zeros(count + 1, np.int64)
    for away in range(2, count + 1):
        phase_of[away] = phase_of[away // 2] + 1
    level = overlap.copy()
    for value in range(level.max() if len(level) else 0, 0, -1):
        for at in range(len(edges)):
            if level[at] != value:
                continue
            a = edges[at, 0]
            b = edges[at, 1]
            now = _contribution(a, b, start, topics, pair, part)
            if now < value:
                level[at] = now
                continue
            for near, far in ((a, b), (b, a)):
                phase = phase_of[(far - near) % count]
                if 0 < phase < phases and fingers[near, phase] < 0 and not pointed[phase, far]:
                    fingers[near, phase] = far
                    pointed[phase, far] = True
                    _join(near, far, start, topics, pair, part, following, part_size, main)
                    break
            level[at] = 0
    for position in range(count):
        for phase in range(1, phases):
            if fingers[position, phase] >= 0:
                continue
            width = 1 << phase
            for step in range(width):
                target = (position + width + (begin[position, phase] + step) % width) % count
                if step == 0:
                    fingers[position, phase] = target  # if none is free
                if not pointed[phase, target]:
                    fingers[position, phase] = target
                    pointed[phase, target] = True
                    break
                if step == 64:
                    break
    return fingers
