"""An approximate SWICO planner, for more nodes than the exact one has time for.

The exact planner looks at every pair of nodes that share a topic. Here the ring is Kruskal's
pass over candidate edges that it is given, by overlap. Fingers are sought along the subscriber
lists of a position's topics, as the exact planner does, but of a long list only a few members
in each phase are looked at, from a random place on; and each position takes its fingers in
turn, first those that contribute most, then less and less. What is left open is filled
without regard to interest: open ends in random order, fingers from a random place in the phase.
Memory is in proportion to interests, candidates and fingers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from postroad import draws
from postroad.jit import inner, njit
from postroad.kernels.swico import (
    _apart,
    _both_ways,
    _contribution,
    _join,
    _lower,
    _lower_outside,
    _outsiders,
    _phase_of,
    _thin_out,
    _tie,
)
from postroad.overlay import IntArray
from postroad.overlay.small_world import SmallWorld
from postroad.planning.swico import TopicInterests, phase_starts, ring_ties

_SHORT = 512  # subscribers of a topic that are all looked at
_LOOKED_AT = 8  # subscribers of any other topic that are looked at in each phase
_TARGETS = 4  # per phase, that a position chooses from
_LEAST = (8, 6, 5, 4, 3, 2, 1)  # contributions of the fingers that are taken in each turn
_TRIES = 64  # for a target without a finger of the phase, where nothing contributes


class _Search(NamedTuple):
    """The fingers so far, and what is found of targets for the position at hand."""

    begin: IntArray  # per position and phase, the random place to begin at
    fingers: IntArray  # per position and phase, or -1
    pointed: npt.NDArray[np.bool_]  # per phase and position, whether a finger points there
    phase_of: npt.NDArray[np.int8]  # per distance
    gain: npt.NDArray[np.int32]  # per position
    touched: IntArray  # those with a gain
    best: IntArray  # per phase, the targets that contribute most


def build(interests: TopicInterests, candidates: IntArray, seed: int) -> SmallWorld:
    """The overlay SL; each pair of nodes that may stand side by side is a * nodes + b."""
    order = _ring_order(interests, candidates, seed)
    placed = interests.at_positions(order)
    wanted, begin = _both_ways(placed), phase_starts(placed.nodes_count, seed)
    return SmallWorld(order, _fingers(wanted, _apart(wanted), begin, _phase_of(placed.nodes_count)))


def _ring_order(interests: TopicInterests, candidates: IntArray, seed: int) -> IntArray:
    count = interests.nodes_count
    overlap = _overlaps(interests.start, interests.topics, candidates, count)
    ties = draws.bits_of_nodes(len(candidates), seed, "swico.candidates", 0) >> np.uint64(24)
    by_overlap = np.argsort(((overlap.max(initial=0) - overlap) << 40) + ties.view(np.int64))
    order: IntArray = _around(_ring(candidates[by_overlap], ring_ties(count, seed), count))
    return order


@njit(cache=True)
def _overlaps(start, topics, edges, count):
    alone = np.arange(len(topics))
    parts = alone.astype(np.int32)  # each interest a component of its own
    overlaps = np.empty(len(edges), np.int64)
    for at in range(len(edges)):
        a = edges[at] // count
        overlaps[at] = _contribution(a, edges[at] - a * count, start, topics, alone, parts)
    return overlaps


@njit(cache=True)
def _ring(edges, by_rank, count):
    beside = np.full((count, 2), -1, np.int64)
    degree = np.zeros(count, np.int64)
    end = np.arange(count)
    left = count - 1
    for at in range(len(edges)):
        a = edges[at] // count
        b = edges[at] - a * count
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
def _around(beside):
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
def _fingers(wanted, parts, begin, phase_of):
    count, phases = begin.shape
    fingers = np.full((count, phases), -1, np.int64)
    if phases == 0:
        return fingers
    for position in range(count):
        after = (position + 1) % count
        fingers[position, 0] = after
        _join(position, after, wanted, parts)
    outside = _outsiders(wanted.list_start, parts)
    pointed = np.zeros((phases, count), np.bool_)
    best = np.empty((phases + 1, _TARGETS), np.int64)
    search = _Search(
        begin,
        fingers,
        pointed,
        phase_of,
        np.zeros(count, np.int32),
        np.empty(count, np.int64),
        best,
    )
    for least in _LEAST:
        for position in range(count):
            _look_around(position, least, wanted, parts, outside, search)
            for phase in range(1, phases):
                most = np.int64(least - 1)
                chosen = np.int64(-1)
                for place in range(_TARGETS):
                    target = best[phase, place]
                    if target < 0:
                        break
                    now = _contribution(
                        position, target, wanted.start, wanted.topics, parts.pair, parts.part
                    )
                    if now > most:
                        most = now
                        chosen = target
                if chosen >= 0:
                    fingers[position, phase] = chosen
                    pointed[phase, chosen] = True
                    _join(position, chosen, wanted, parts)
    for position in range(count):
        for phase in range(1, phases):
            if fingers[position, phase] >= 0:
                continue
            width = 1 << phase
            for step in range(min(width, _TRIES)):
                away = width + (begin[position, phase] + step) % width
                target = (position + away) % count
                if step == 0:
                    fingers[position, phase] = target  # if none is free
                if not pointed[phase, target]:
                    fingers[position, phase] = target
                    pointed[phase, target] = True
                    break
    return fingers


@inner()
def _look_around(position, least, wanted, parts, outside, search):
    """Per phase without a finger, the targets found that contribute most, at least `least`."""
    start, topics, list_start, lists = wanted.start, wanted.topics, wanted.list_start, wanted.lists
    pair, part, part_size, places = parts.pair, parts.part, parts.part_size, outside.places
    phase_of, begin, fingers = search.phase_of, search.begin, search.fingers
    pointed, gain, touched = search.pointed, search.gain, search.touched
    count, phases = fingers.shape
    size = 0
    for at in range(start[position], start[position + 1]):
        topic = topics[at]
        mine = part[pair[at]]
        first = list_start[topic]
        last = list_start[topic + 1]
        left = last - first - part_size[mine]
        if left == 0:
            continue
        in_main = mine == parts.main[topic]
        if in_main:  # only those outside of it count
            _thin_out(topic, mine, first, left, part, outside)
            last = outside.end[topic]
        if last - first <= _SHORT:
            for place in range(first, last):
                item = places[place] if in_main else place
                target = lists[item]
                phase = phase_of[(target - position) % count]
                if (
                    part[item] == mine
                    or phase >= phases
                    or fingers[position, phase] >= 0
                    or pointed[phase, target]
                ):
                    continue
                if gain[target] == 0:
                    touched[size] = target
                    size += 1
                gain[target] += 1
            continue
        for phase in range(1, phases):
            if fingers[position, phase] >= 0:
                continue
            # From a random place of the phase to its end, or to where the numbering begins anew.
            low = position + (1 << phase) + begin[position, phase]
            high = position + (2 << phase)
            if low >= count:
                low -= count
                high -= count
            if in_main:
                place = _lower_outside(places, lists, first, last, low)
            else:
                place = _lower(lists, first, last, low)
            for ahead in range(place, min(last, place + _LOOKED_AT)):
                item = places[ahead] if in_main else ahead
                target = lists[item]
                if target >= high:
                    break
                if part[item] == mine or pointed[phase, target]:
                    continue
                if gain[target] == 0:
                    touched[size] = target
                    size += 1
                gain[target] += 1
    _choose_best(position, least, size, search)


@inner()
def _choose_best(position, least, size, search):
    """Of the `size` targets that were touched, those that contribute most; forget what they do."""
    phase_of, gain, touched, best = search.phase_of, search.gain, search.touched, search.best
    count = len(search.fingers)
    best[:] = -1
    for seen in range(size):
        target = touched[seen]
        if gain[target] < least:
            continue
        phase = phase_of[(target - position) % count]
        place = _TARGETS
        while place and (best[phase, place - 1] < 0 or gain[best[phase, place - 1]] < gain[target]):
            if place < _TARGETS:
                best[phase, place] = best[phase, place - 1]
            place -= 1
        if place < _TARGETS:
            best[phase, place] = target
    for seen in range(size):
        gain[touched[seen]] = 0
