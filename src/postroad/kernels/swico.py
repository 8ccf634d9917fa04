"""GSwicoS and GSwicoL for large inputs: the choices of `planning/swico.py`, compiled.

Nothing is kept per pair of nodes. Each node (each position and phase, for fingers) waits in a
heap under an upper bound of what its best edge contributes. The bound is renewed when its turn
comes, which is exact because contributions only fall. The best edge is found by counting
along the subscriber lists of the node's topics. Of a topic that most nodes want, the few that
do not are subtracted instead; and where a node is in the main component of a topic, only those
outside of it are counted. Ring edges keep their value, so each node remembers its few best
candidates.
"""

from __future__ import annotations

import heapq

import numpy as np
from numba import njit

from postroad.overlay import IntArray
from postroad.overlay.small_world import SmallWorld
from postroad.planning.swico import TopicInterests, finger_ties, ring_ties, walk

_REMEMBERED = 24  # candidates kept per node while the ring grows
_REMEMBERED_FINGERS = 2  # candidates kept per position and phase


def greedy_ring(interests: TopicInterests, seed: int) -> IntArray:
    """GSwicoS: the nodes in ring order, as `planning.swico.greedy_ring` finds it."""
    order = ring_ties(interests.nodes_count, seed)
    starts, nodes = interests.subscribers
    beside = _ring(
        interests.start, interests.topics, starts, nodes.copy(), order, np.argsort(order)
    )
    return walk([[peer for peer in pair if peer >= 0] for pair in beside.tolist()])


def greedy_fingers(interests: TopicInterests, order: IntArray, seed: int) -> IntArray:
    """GSwicoL: the fingers of each position, as `planning.swico.greedy_fingers` finds them."""
    placed = interests.at_positions(order)
    starts, nodes = placed.subscribers
    rank, begin = finger_ties(placed.nodes_count, seed)
    fingers: IntArray = _fingers(placed.start, placed.topics, starts, nodes, rank, begin)
    return fingers


def components_count(interests: TopicInterests, world: SmallWorld) -> int:
    """TCC(E), equation 1."""
    placed = interests.at_positions(world.order)
    starts, nodes = placed.subscribers
    return int(_components(placed.start, placed.topics, starts, nodes, world.edges))


def build(interests: TopicInterests, overlay: str, long: str, seed: int) -> SmallWorld:
    """One of the paper's overlays: SL, S, L or -, with Chord's or random fingers where not L."""
    from postroad.overlay import small_world

    count = interests.nodes_count
    ring = greedy_ring if "S" in overlay else lambda _, seed: small_world.random_ring(count, seed)
    order = ring(interests, seed)
    if "L" in overlay:
        fingers = greedy_fingers(interests, order, seed)
    elif long == "chord":
        fingers = small_world.chord(count)
    else:
        fingers = small_world.random_fingers(count, seed)
    return SmallWorld(order, fingers)


@njit(cache=True)
def _absentees(list_start, lists, count):  # type: ignore[no-untyped-def]
    """Of each topic that most nodes want, those that do not, ascending; of others nobody."""
    topics = len(list_start) - 1
    start = np.zeros(topics + 1, np.int64)
    for topic in range(topics):
        size = list_start[topic + 1] - list_start[topic]
        start[topic + 1] = start[topic] + (count - size if 2 * size > count else 0)
    absent = np.empty(start[topics], np.int64)
    for topic in range(topics):
        place = list_start[topic]
        if 2 * (list_start[topic + 1] - place) <= count:
            continue
        write = start[topic]
        for node in range(count):
            if place < list_start[topic + 1] and lists[place] == node:
                place += 1
            else:
                absent[write] = node
                write += 1
    return start, absent


@njit(cache=True)
def _ring(start, topics, list_start, lists, by_rank, rank):  # type: ignore[no-untyped-def]
    count = len(rank)
    beside = np.full((count, 2), -1, np.int64)
    degree = np.zeros(count, np.int64)
    end = np.arange(count)
    list_end = list_start[1:].copy()
    absent_start, absent = _absentees(list_start, lists, count)
    live = np.arange(count)
    live_count = np.array([count])
    shared = np.zeros(count, np.int64)
    touched = np.empty(count, np.int64)
    kept = np.zeros((count, _REMEMBERED), np.int64)  # overlap * count + (count - 1 - rank)
    kept_count = np.zeros(count, np.int64)
    kept_next = np.zeros(count, np.int64)
    more = np.ones(count, np.bool_)  # whether there may be candidates beyond those kept
    heap = [
        -((start[node + 1] - start[node]) * count + count - 1 - rank[node]) for node in range(count)
    ]
    heapq.heapify(heap)
    edges = 0
    while edges < count - 1 and heap:
        key = -heapq.heappop(heap)
        bound = key // count
        if bound == 0:
            break
        node = by_rank[count - 1 - key % count]
        if degree[node] == 2:
            continue
        best = np.int64(-1)
        while True:
            while kept_next[node] < kept_count[node]:
                candidate = kept[node, kept_next[node]]
                peer = by_rank[count - 1 - candidate % count]
                if degree[peer] < 2 and end[node] != peer:
                    best = candidate
                    break
                kept_next[node] += 1
            if best >= 0 or not more[node]:
                break
            _remember(
                node, start, topics, list_start, list_end, lists, absent_start, absent, live,
                live_count, rank, degree, end, shared, touched, kept, kept_count, kept_next, more,
            )  # fmt: skip
        if best < 0:
            continue  # no topic shared with any that is left
        if best // count < bound:
            heapq.heappush(heap, -(best // count * count + count - 1 - rank[node]))
            continue
        _tie(node, by_rank[count - 1 - best % count], beside, degree, end)
        edges += 1
        if degree[node] < 2:
            heapq.heappush(heap, -key)
    # Nothing left contributes: the earliest open ends are joined.
    ends = np.empty(count, np.int64)
    size = 0
    for place in range(count):
        if degree[by_rank[place]] < 2:
            ends[size] = by_rank[place]
            size += 1
    first = 0
    while edges < count - 1:
        while degree[ends[first]] == 2:
            first += 1
        node = ends[first]
        place = first + 1
        while degree[ends[place]] == 2 or end[node] == ends[place]:
            place += 1
        _tie(node, ends[place], beside, degree, end)
        edges += 1
    return beside


@njit(cache=True)
def _tie(a, b, beside, degree, end):  # type: ignore[no-untyped-def]
    beside[a, degree[a]] = b
    beside[b, degree[b]] = a
    degree[a] += 1
    degree[b] += 1
    far = end[a]
    other = end[b]
    end[far] = other
    end[other] = far


@njit(cache=True)
def _remember(  # type: ignore[no-untyped-def]
    node, start, topics, list_start, list_end, lists, absent_start, absent, live, live_count,
    rank, degree, end, shared, touched, kept, kept_count, kept_next, more,
):  # fmt: skip
    """Find the best candidates of a node anew; nodes inside a fragment leave the lists."""
    count = len(rank)
    size = 0
    common = 0  # topics that most nodes want
    for at in range(start[node], start[node + 1]):
        topic = topics[at]
        if 2 * (list_start[topic + 1] - list_start[topic]) > count:
            common += 1
            continue
        write = list_start[topic]
        for read in range(list_start[topic], list_end[topic]):
            peer = lists[read]
            if degree[peer] < 2:
                lists[write] = peer
                write += 1
                if shared[peer] == 0:
                    touched[size] = peer
                    size += 1
                shared[peer] += 1
        list_end[topic] = write
    if common:
        for at in range(start[node], start[node + 1]):
            topic = topics[at]
            for place in range(absent_start[topic], absent_start[topic + 1]):
                shared[absent[place]] -= 1
        size = 0
        for place in range(live_count[0]):
            peer = live[place]
            if degree[peer] < 2:
                live[size] = peer
                touched[size] = peer
                size += 1
        live_count[0] = size
    found = 0
    more[node] = False
    for place in range(size):
        peer = touched[place]
        value = shared[peer] + common
        key = value * count + count - 1 - rank[peer]
        shared[peer] = 0
        if peer == node or end[node] == peer or value == 0:
            continue
        if found == _REMEMBERED:
            more[node] = True
            if key < kept[node, found - 1]:
                continue
            found -= 1
        slot = found
        while slot > 0 and kept[node, slot - 1] < key:
            kept[node, slot] = kept[node, slot - 1]
            slot -= 1
        kept[node, slot] = key
        found += 1
    if common:  # absentees inside fragments were counted too
        shared[:] = 0
    kept_count[node] = found
    kept_next[node] = 0


@njit(cache=True)
def _pairs(start, topics, list_start):  # type: ignore[no-untyped-def]
    """Where each (position, topic) stands in the subscriber lists."""
    filled = list_start[:-1].copy()
    pair = np.empty(len(topics), np.int64)
    for at in range(len(topics)):
        pair[at] = filled[topics[at]]
        filled[topics[at]] += 1
    return pair


@njit(cache=True)
def _contribution(a, b, start, topics, pair, part):  # type: ignore[no-untyped-def]
    i = start[a]
    j = start[b]
    found = 0
    while i < start[a + 1] and j < start[b + 1]:
        if topics[i] < topics[j]:
            i += 1
        elif topics[i] > topics[j]:
            j += 1
        else:
            found += part[pair[i]] != part[pair[j]]
            i += 1
            j += 1
    return found


@njit(cache=True)
def _join(a, b, start, topics, pair, part, following, part_size, main):  # type: ignore[no-untyped-def]
    """Merge the components of a and b in every topic they share; how many that were.

    `main` is a component of each topic (the largest, when it was chosen) and is followed.
    """
    i = start[a]
    j = start[b]
    merged = 0
    while i < start[a + 1] and j < start[b + 1]:
        if topics[i] < topics[j]:
            i += 1
        elif topics[i] > topics[j]:
            j += 1
        else:
            left = part[pair[i]]
            right = part[pair[j]]
            if left != right:
                if part_size[left] < part_size[right]:
                    left, right = right, left
                part_size[left] += part_size[right]
                member = right
                while True:
                    part[member] = left
                    if following[member] == right:
                        break
                    member = following[member]
                following[member] = following[left]
                following[left] = right
                if main[topics[i]] == right:
                    main[topics[i]] = left
                merged += 1
            i += 1
            j += 1
    return merged


@njit(cache=True)
def _components(start, topics, list_start, lists, edges):  # type: ignore[no-untyped-def]
    pair = _pairs(start, topics, list_start)
    part = np.arange(len(topics))
    following = np.arange(len(topics))
    part_size = np.ones(len(topics), np.int64)
    main = np.full(len(list_start) - 1, -1)
    count = len(topics)
    for at in range(len(edges)):
        count -= _join(
            edges[at, 0], edges[at, 1], start, topics, pair, part, following, part_size, main
        )
    return count


@njit(cache=True)
def _lower(lists, low, high, value):  # type: ignore[no-untyped-def]
    """The first place in lists[low:high], ascending, that holds `value` or more."""
    while low < high:
        middle = (low + high) // 2
        if lists[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _lower_outside(outside, lists, low, high, value):  # type: ignore[no-untyped-def]
    """The same in the list positions that outside[low:high] names."""
    while low < high:
        middle = (low + high) // 2
        if lists[outside[middle]] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _fingers(start, topics, list_start, lists, rank, begin):  # type: ignore[no-untyped-def]
    count, phases = rank.shape
    slots = count * phases
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
    outside, outside_end = _outsiders(list_start, part, part_size, main)
    absent_start, absent = _absentees(list_start, lists, count)
    slot_of = np.empty(slots, np.int64)
    for position in range(count):
        for phase in range(phases):
            slot_of[rank[position, phase]] = position * phases + phase
    pointed = np.zeros((phases, count), np.bool_)
    kept = np.full((slots, _REMEMBERED_FINGERS), -1, np.int64)
    floor = np.zeros(slots, np.int64)  # what no candidate beyond those kept exceeds; -1: none is
    gain = np.zeros(count, np.int32)
    touched = np.empty(count, np.int64)
    for limited in (True, False):
        heap = [np.int64(0)]
        heap.pop()
        for position in range(count):
            for phase in range(1, phases):
                if fingers[position, phase] < 0:
                    most = start[position + 1] - start[position]
                    heap.append(-(most * slots + slots - 1 - rank[position, phase]))
                    floor[position * phases + phase] = count * count
        heapq.heapify(heap)
        while heap:
            key = -heapq.heappop(heap)
            bound = key // slots
            slot = slot_of[slots - 1 - key % slots]
            position = slot // phases
            phase = slot % phases
            best, now = _best_kept(
                position, phase, begin[position, phase], limited, start, topics, pair, part,
                pointed, kept[slot], floor[slot],
            )  # fmt: skip
            if best < 0:
                floor[slot] = _keep_best(
                    position, phase, begin[position, phase], limited, start, topics, list_start,
                    lists, pair, part, part_size, following, main, outside, outside_end,
                    absent_start, absent, pointed, gain, touched, kept[slot],
                )  # fmt: skip
                best, now = _best_kept(
                    position, phase, begin[position, phase], limited, start, topics, pair, part,
                    pointed, kept[slot], floor[slot],
                )  # fmt: skip
            if best < 0:
                continue
            target = best
            if now < bound:
                heapq.heappush(heap, -(now * slots + slots - 1 - rank[position, phase]))
                continue
            fingers[position, phase] = target
            pointed[phase, target] = True
            _join(position, target, start, topics, pair, part, following, part_size, main)
    return fingers


@njit(cache=True)
def _outsiders(list_start, part, part_size, main):  # type: ignore[no-untyped-def]
    """Per topic its largest component, as `main`, and the list places outside of it."""
    outside = np.empty(len(part), np.int64)
    outside_end = list_start[:-1].copy()
    for topic in range(len(list_start) - 1):
        for place in range(list_start[topic], list_start[topic + 1]):
            if main[topic] < 0 or part_size[part[place]] > part_size[main[topic]]:
                main[topic] = part[place]
        for place in range(list_start[topic], list_start[topic + 1]):
            if part[place] != main[topic]:
                outside[outside_end[topic]] = place
                outside_end[topic] += 1
    return outside, outside_end


@njit(cache=True, inline="always")
def _subtracts(topic, mine, main, width, count, list_start, absent_start, part_size):  # type: ignore[no-untyped-def]
    """Whether to count a topic for all and subtract absentees and the own component."""
    size = list_start[topic + 1] - list_start[topic]
    if 2 * size <= count:
        return False
    others = size - part_size[mine] if mine == main[topic] else size
    absent = absent_start[topic + 1] - absent_start[topic]
    return width * absent + count * part_size[mine] < width * others


@njit(cache=True)
def _keep_best(  # type: ignore[no-untyped-def]
    position, phase, begin, limited, start, topics, list_start, lists, pair, part, part_size,
    following, main, outside, outside_end, absent_start, absent, pointed, gain, touched, kept,
):  # fmt: skip
    """Find the fingers of this phase that contribute most; the key of the last kept, or -1."""
    count = len(start) - 1
    width = 1 << phase
    low = position + width
    high = low + width
    taken = pointed[phase]
    size = 0
    common = 0  # topics that are counted for all and then subtracted
    for at in range(start[position], start[position + 1]):
        topic = topics[at]
        mine = part[pair[at]]
        first = list_start[topic]
        if _subtracts(topic, mine, main, width, count, list_start, absent_start, part_size):
            common += 1
            continue
        if mine == main[topic]:
            # Only those outside the main component count, and they become fewer.
            left = list_start[topic + 1] - first - part_size[mine]
            if 2 * left < outside_end[topic] - first:
                write = first
                for read in range(first, outside_end[topic]):
                    if part[outside[read]] != mine:
                        outside[write] = outside[read]
                        write += 1
                outside_end[topic] = write
        for turn in range(2):  # the phase may reach beyond the end of the numbering
            below = low - turn * count
            above = high - turn * count
            if above <= 0 or below >= count:
                continue
            if mine == main[topic]:
                at_most = outside_end[topic]
                place = _lower_outside(outside, lists, first, at_most, below)
                while place < at_most and lists[outside[place]] < above:
                    if part[outside[place]] != mine:
                        target = lists[outside[place]]
                        if not (limited and taken[target]):
                            if gain[target] == 0:
                                touched[size] = target
                                size += 1
                            gain[target] += 1
                    place += 1
                continue
            place = _lower(lists, first, list_start[topic + 1], below)
            while place < list_start[topic + 1] and lists[place] < above:
                if part[place] != mine:
                    target = lists[place]
                    if not (limited and taken[target]):
                        if gain[target] == 0:
                            touched[size] = target
                            size += 1
                        gain[target] += 1
                place += 1
    if common:
        for at in range(start[position], start[position + 1]):
            topic = topics[at]
            mine = part[pair[at]]
            if not _subtracts(topic, mine, main, width, count, list_start, absent_start, part_size):
                continue
            for turn in range(2):
                below = low - turn * count
                above = high - turn * count
                if above <= 0 or below >= count:
                    continue
                place = _lower(absent, absent_start[topic], absent_start[topic + 1], below)
                while place < absent_start[topic + 1] and absent[place] < above:
                    gain[absent[place]] -= 1
                    place += 1
            member = mine
            while True:
                away = lists[member] - position
                if away < 0:
                    away += count
                if away >> phase == 1:
                    gain[lists[member]] -= 1
                member = following[member]
                if member == mine:
                    break
        size = 0
        for step in range(width):
            target = low + step
            if target >= count:
                target -= count
            if gain[target] + common > 0 and not (limited and taken[target]):
                touched[size] = target
                size += 1
            else:
                gain[target] = 0
    keys = np.empty(len(kept), np.int64)
    found = 0
    beyond = False
    kept[:] = -1
    for place in range(size):
        target = touched[place]
        value = np.int64(gain[target]) + common
        gain[target] = 0
        if found == len(kept) and (value + 1) * width <= keys[found - 1]:
            beyond = True
            continue
        away = target - position
        if away < 0:
            away += count
        # A phase is as wide as it begins away, a power of two: this is modulo the width.
        key = value * width + width - 1 - ((away - begin) & (width - 1))
        if found == len(kept):
            beyond = True
            if key < keys[found - 1]:
                continue
            found -= 1
        slot = found
        while slot > 0 and keys[slot - 1] < key:
            keys[slot] = keys[slot - 1]
            kept[slot] = kept[slot - 1]
            slot -= 1
        keys[slot] = key
        kept[slot] = target
        found += 1
    return keys[found - 1] if beyond else np.int64(-1)


@njit(cache=True)
def _best_kept(  # type: ignore[no-untyped-def]
    position, phase, begin, limited, start, topics, pair, part, pointed, kept, floor
):
    """The best finger and what it contributes, if those kept tell; -1 if not, or none is free."""
    count = len(start) - 1
    width = 1 << phase
    taken = pointed[phase]
    most = np.int64(-1)
    chosen = np.int64(-1)
    for place in range(len(kept)):
        target = kept[place]
        if target < 0:
            break
        if limited and taken[target]:
            continue
        value = _contribution(position, target, start, topics, pair, part)
        if value > 0:
            away = (target - position) % count
            key = value * width + width - 1 - ((away - begin) & (width - 1))
            if key > most:
                most = key
                chosen = target
    if chosen >= 0 and most >= floor:
        return chosen, most // width
    if floor < 0:  # nothing contributes any more
        for step in range(width):
            target = (position + width + (begin + step) % width) % count
            if not (limited and taken[target]):
                return target, np.int64(0)
    return np.int64(-1), np.int64(0)
