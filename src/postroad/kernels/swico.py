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

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from postroad.jit import inner, njit
from postroad.overlay import IntArray
from postroad.overlay.small_world import SmallWorld, phases_count
from postroad.planning.swico import TopicInterests, finger_ties, ring_ties, walk

_REMEMBERED = 24  # candidates kept per node while the ring grows
_REMEMBERED_FINGERS = 2  # candidates kept per position and phase
_SPARSE = 8  # at most one position in so many contributes: those alone are gone through

# For functions that make no array: to count references to those they are given takes time, also
# that of the compiler.
_compiled = inner(_nrt=False, error_model="numpy")


class _Wanted(NamedTuple):
    """Who wants what, both ways, and who does not.

    What serves as an index has no sign: for others Numba checks whether they count from the end.
    """

    start: IntArray  # per node (or position), its first topic
    topics: npt.NDArray[np.uint32]  # ascending per node
    list_start: IntArray  # per topic, its first subscriber
    lists: npt.NDArray[np.uint32]  # ascending per topic
    absent_start: IntArray  # per topic that most nodes want, those that do not
    absent: npt.NDArray[np.uint32]


class _Growing(NamedTuple):
    """A ring that grows: its fragments, who is still open, and what each node remembers."""

    rank: IntArray  # per node, its place in the order of ties
    degree: npt.NDArray[np.uint8]
    end: IntArray  # per end of a fragment, the other
    list_end: IntArray  # per topic, where those end that are still open
    live: npt.NDArray[np.uint32]  # nodes that are still open, as far as known
    live_count: IntArray
    shared: npt.NDArray[np.int32]  # topics in common with the node at hand
    touched: npt.NDArray[np.uint32]
    kept: IntArray  # per node, its best candidates: overlap * count + (count - 1 - rank)
    kept_count: IntArray
    kept_next: IntArray
    more: npt.NDArray[np.bool_]  # whether there may be candidates beyond those kept


class _Parts(NamedTuple):
    """The components of every topic, over the places in its list of subscribers."""

    pair: npt.NDArray[np.uint32]  # per (position, topic), its place in the list
    part: npt.NDArray[np.int32]  # per place, the component it is in
    following: npt.NDArray[np.int32]  # and the next place in it, around
    part_size: npt.NDArray[np.int32]
    main: IntArray  # per topic a component: the largest, when it was chosen


class _Outside(NamedTuple):
    """Per topic, the places outside of its main component; they become fewer."""

    places: npt.NDArray[np.uint32]
    end: IntArray


class _Found(NamedTuple):
    """What edges from the position at hand contribute."""

    gain: npt.NDArray[np.int32]  # per position; all 0 between two searches
    touched: npt.NDArray[np.uint32]  # positions with a gain, each once


class _Slots(NamedTuple):
    """Per position and phase, what is known of its best fingers."""

    begin: IntArray  # per position and phase, where in the phase ties start from
    kept: npt.NDArray[np.int32]  # targets, the best first, then -1
    floor: IntArray  # what no candidate beyond those kept exceeds; -1: none is
    free: npt.NDArray[np.int32]
    """Per phase: a position nobody points to names itself, any other one that is further on."""
    phase_of: npt.NDArray[np.int8]  # per distance
    keys: IntArray  # for a search: per phase, of those kept
    counted: IntArray  # and how many contribute


def greedy_ring(interests: TopicInterests, seed: int, done: IntArray | None = None) -> IntArray:
    """GSwicoS: the nodes in ring order, as `planning.swico.greedy_ring` finds it."""
    count = interests.nodes_count
    order = ring_ties(count, seed)
    wanted = _both_ways(interests)
    growing = _Growing(
        rank=np.argsort(order),
        degree=np.zeros(count, np.uint8),
        end=np.arange(count),
        list_end=wanted.list_start[1:].copy(),
        live=np.arange(count, dtype=np.uint32),
        live_count=np.array([count]),
        shared=np.zeros(count, np.int32),
        touched=np.empty(count, np.uint32),
        kept=np.zeros((count, _REMEMBERED), np.int64),
        kept_count=np.zeros(count, np.int64),
        kept_next=np.zeros(count, np.int64),
        more=np.ones(count, np.bool_),
    )
    beside = np.full((count, 2), -1)
    heap, ends = np.empty(count, np.int64), np.empty(count, np.int64)  # a node is in them once
    _grow(order, wanted, growing, beside, heap, ends, _counter(done))
    return walk([[peer for peer in pair if peer >= 0] for pair in beside.tolist()])


def greedy_fingers(
    interests: TopicInterests,
    order: IntArray,
    seed: int,
    incoming: str = "one",
    done: IntArray | None = None,
) -> IntArray:
    """GSwicoL: the fingers of each position, as `planning.swico.greedy_fingers` finds them."""
    wanted = _both_ways(interests.at_positions(order))
    rank, begin = finger_ties(interests.nodes_count, seed)
    count, phases = rank.shape
    fingers = np.full((count, phases), -1)
    if phases == 0:
        return fingers
    slots = count * phases
    slot_of = np.empty(slots, np.int64)
    slot_of[rank.ravel()] = np.arange(slots)
    known = _Slots(
        begin=begin,
        kept=np.full((slots, _REMEMBERED_FINGERS), -1, np.int32),
        floor=np.zeros(slots, np.int64),
        free=np.tile(np.arange(count + 1, dtype=np.int32), (phases, 1)),
        phase_of=_phase_of(count),
        keys=np.zeros((phases, _REMEMBERED_FINGERS), np.int64),
        counted=np.zeros(phases, np.int64),
    )
    found = _Found(np.zeros(count, np.int32), np.empty(count, np.uint32))
    heap = np.empty(slots, np.int64)  # a position and phase are in it once
    _fingers(
        rank, slot_of, incoming == "any", wanted, _apart(wanted), found, known, fingers, heap,
        _counter(done),
    )  # fmt: skip
    return fingers


def steps_count(interests: TopicInterests, overlay: str) -> int:
    """How far `build` counts: the links that it chooses, and one look at each node before."""
    count = interests.nodes_count
    return ("S" in overlay) * count + ("L" in overlay) * count * phases_count(count)


def _counter(done: IntArray | None) -> IntArray:
    return np.zeros(1, np.int64) if done is None else done


def components_count(interests: TopicInterests, world: SmallWorld) -> int:
    """TCC(E), equation 1."""
    wanted = _both_ways(interests.at_positions(world.order))
    return int(_components(wanted, _apart(wanted), world.edges))


def build(
    interests: TopicInterests,
    overlay: str,
    long: str,
    seed: int,
    incoming: str = "one",
    done: IntArray | None = None,
) -> SmallWorld:
    """One of the paper's overlays: SL, S, L or -, with Chord's or random fingers where not L.

    How far it is stands in `done[0]`, for another thread to read.
    """
    from postroad.overlay import small_world

    count = interests.nodes_count
    if "S" in overlay:
        order = greedy_ring(interests, seed, done)
    else:
        order = small_world.random_ring(count, seed)
    if "L" in overlay:
        fingers = greedy_fingers(interests, order, seed, incoming, done)
    elif long != "random":
        fingers = small_world.chord(count, begun=long == "chord_begun")
    else:
        fingers = small_world.random_fingers(count, seed)
    return SmallWorld(order, fingers)


def _both_ways(interests: TopicInterests) -> _Wanted:
    """Arrays are made here: Numba compiles what makes them for a second and more."""
    count = interests.nodes_count
    list_start, nodes = interests.subscribers
    lists = nodes.astype(np.uint32)
    sizes = np.diff(list_start)
    most = np.flatnonzero(2 * sizes > count)
    absent_start = np.zeros(len(list_start), np.int64)
    absent_start[most + 1] = count - sizes[most]
    absent = [np.empty(0, np.uint32)]
    for topic in most:
        away = np.ones(count, np.bool_)
        away[lists[list_start[topic] : list_start[topic + 1]]] = False
        absent.append(np.flatnonzero(away).astype(np.uint32))
    return _Wanted(
        interests.start, interests.topics.astype(np.uint32), list_start, lists,
        np.cumsum(absent_start), np.concatenate(absent),
    )  # fmt: skip


def _phase_of(count: int) -> npt.NDArray[np.int8]:
    """Per distance up to so many, the phase that it is in: 2 to the power of it is no further."""
    return (np.frexp(np.maximum(np.arange(count + 1), 1))[1] - 1).astype(np.int8)


def _apart(wanted: _Wanted) -> _Parts:
    """Every place a component of its own."""
    count = len(wanted.topics)
    alone = np.arange(count, dtype=np.int32)
    pair = np.empty(count, np.uint32)
    _pairs(wanted.topics, wanted.list_start[:-1].copy(), pair)
    main = np.full(len(wanted.list_start) - 1, -1)
    return _Parts(pair, alone, alone.copy(), np.ones(count, np.int32), main)


@njit(cache=True)
def _pairs(topics, filled, pair):
    """Where each (position, topic) stands in the subscriber lists, filled up to there."""
    for at in range(len(topics)):
        pair[at] = filled[topics[at]]
        filled[topics[at]] += 1


@_compiled
def _push(heap, size, key):
    """Put a key on a heap of so many, the greatest first; how many they are then."""
    at = size
    while at > 0 and heap[(at - 1) >> 1] < key:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = key
    return size + 1


@_compiled
def _pop(heap, size):
    """Take the greatest away."""
    size -= 1
    key = heap[size]
    at = 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and heap[below + 1] > heap[below]:
            below += 1
        if heap[below] <= key:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = key
    return size


@njit(cache=True, nogil=True)
def _grow(by_rank, wanted, growing, beside, heap, ends, done):
    """Tie the edges of the ring, the best first."""
    start, rank, degree, end = wanted.start, growing.rank, growing.degree, growing.end
    kept, kept_count, kept_next = growing.kept, growing.kept_count, growing.kept_next
    more = growing.more
    count = len(rank)
    waiting = np.int64(0)  # a constant would be a type of its own
    for node in range(count):
        key = (start[node + 1] - start[node]) * count + count - 1 - rank[node]
        waiting = _push(heap, waiting, key)
    edges = 0
    while edges < count - 1 and waiting:
        key = heap[0]
        waiting = _pop(heap, waiting)
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
            _remember(node, wanted, growing)
        if best < 0:
            continue  # no topic shared with any that is left
        if best // count < bound:
            key = best // count * count + count - 1 - rank[node]
            waiting = _push(heap, waiting, key)
            continue
        _tie(node, by_rank[count - 1 - best % count], beside, degree, end)
        edges += 1
        done[0] += 1
        if degree[node] < 2:
            waiting = _push(heap, waiting, key)
    # Nothing left contributes: the earliest open ends are joined.
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


@_compiled
def _tie(a, b, beside, degree, end):
    beside[a, degree[a]] = b
    beside[b, degree[b]] = a
    degree[a] += 1
    degree[b] += 1
    far = end[a]
    other = end[b]
    end[far] = other
    end[other] = far


@_compiled
def _remember(node, wanted, growing):
    """Find the best candidates of a node anew; nodes inside a fragment leave the lists."""
    start, topics, list_start, lists = wanted.start, wanted.topics, wanted.list_start, wanted.lists
    absent_start, absent = wanted.absent_start, wanted.absent
    rank, degree, end, live = growing.rank, growing.degree, growing.end, growing.live
    shared, touched, kept = growing.shared, growing.touched, growing.kept
    list_end, live_count = growing.list_end, growing.live_count
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
    remembered = 0
    growing.more[node] = False
    for place in range(size):
        peer = touched[place]
        value = np.int64(shared[peer]) + common
        key = value * count + count - 1 - rank[peer]
        shared[peer] = 0
        if peer == node or end[node] == peer or value == 0:
            continue
        if remembered == _REMEMBERED:
            growing.more[node] = True
            if key < kept[node, remembered - 1]:
                continue
            remembered -= 1
        slot = remembered
        while slot > 0 and kept[node, slot - 1] < key:
            kept[node, slot] = kept[node, slot - 1]
            slot -= 1
        kept[node, slot] = key
        remembered += 1
    if common:  # absentees inside fragments were counted too
        shared[:] = 0
    growing.kept_count[node] = remembered
    growing.kept_next[node] = 0


@_compiled
def _contribution(a, b, start, topics, pair, part):
    i = start[a]
    j = start[b]
    merges = 0
    while i < start[a + 1] and j < start[b + 1]:
        left = topics[i]
        right = topics[j]
        if left == right:
            merges += part[pair[i]] != part[pair[j]]
        i += left <= right  # no branch to mispredict
        j += right <= left
    return merges


@_compiled
def _join(a, b, wanted, parts):
    """Merge the components of a and b in every topic they share; how many that were."""
    start, topics, pair, part = wanted.start, wanted.topics, parts.pair, parts.part
    following, part_size, main = parts.following, parts.part_size, parts.main
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
def _components(wanted, parts, edges):
    count = len(wanted.topics)
    for at in range(len(edges)):
        count -= _join(edges[at, 0], edges[at, 1], wanted, parts)
    return count


@_compiled
def _lower(lists, low, high, value):
    """The first place in lists[low:high], ascending, that holds `value` or more."""
    while low < high:
        middle = (low + high) // 2
        if lists[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@_compiled
def _lower_outside(outside, lists, low, high, value):
    """The same in the list positions that outside[low:high] names."""
    while low < high:
        middle = (low + high) // 2
        if lists[outside[middle]] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _fingers(rank, slot_of, anyone, wanted, parts, found, known, fingers, heap, done):
    """The ring's edges are taken first, then those that contribute most."""
    count = len(fingers)
    for position in range(count):
        after = (position + 1) % count
        fingers[position, 0] = after
        _join(position, after, wanted, parts)
    outside = _outsiders(wanted.list_start, parts)
    _choose(rank, slot_of, anyone, wanted, parts, outside, found, known, fingers, heap, done)


@_compiled
def _choose(
    rank, slot_of, anyone, wanted, parts, outside, found, known, fingers, heap, done
):  # fmt: skip
    """Take the fingers that contribute most, phase by phase of each position."""
    count, phases = rank.shape
    slots = count * phases
    start, topics, begin = wanted.start, wanted.topics, known.begin
    free, kept, floor, keys = known.free, known.kept, known.floor, known.keys
    # Of these types, because Numba compiles a function anew for each constant that it is given.
    first_phase, only_free = np.int64(1), np.bool_(True)
    waiting = np.int64(0)  # a constant would be a type of its own
    for position in range(count):  # all phases at once, while nothing is chosen
        done[0] += 1
        _search(position, first_phase, phases, only_free, wanted, parts, outside, found, known)
        for phase in range(1, phases):
            key = (keys[phase, 0] >> phase) * slots + slots - 1 - rank[position, phase]
            waiting = _push(heap, waiting, key)
    for limited in (True, False):
        if not limited and not anyone:  # at last what found its whole phase taken
            for position in range(count):
                for phase in range(1, phases):
                    if fingers[position, phase] < 0:
                        most = start[position + 1] - start[position]
                        key = most * slots + slots - 1 - rank[position, phase]
                        waiting = _push(heap, waiting, key)
                        floor[position * phases + phase] = count * count  # anybody may be better
        if limited and anyone:
            continue
        while waiting:
            key = heap[0]
            waiting = _pop(heap, waiting)
            bound = key // slots
            slot = slot_of[slots - 1 - key % slots]
            position = slot // phases
            phase = slot % phases
            later = False
            for searched in range(2):
                best, now = _best_kept(
                    position, phase, begin[position, phase], limited, start, topics, parts.pair,
                    parts.part, free[phase], kept[slot], floor[slot],
                )  # fmt: skip
                if best >= 0 or searched:
                    break
                now = floor[slot] >> phase
                later = 0 <= now < bound
                if later:  # those beyond the kept are searched in their turn
                    break
                _search(
                    position, phase, phase + 1, limited, wanted, parts, outside, found, known
                )  # fmt: skip
            if later:
                key = now * slots + slots - 1 - rank[position, phase]
                waiting = _push(heap, waiting, key)
                continue
            if best < 0:
                continue
            if now < bound:
                key = now * slots + slots - 1 - rank[position, phase]
                waiting = _push(heap, waiting, key)
                continue
            done[0] += 1
            fingers[position, phase] = best
            free[phase, best] = best + 1
            _join(position, best, wanted, parts)


@inner()
def _outsiders(list_start, parts):
    """Make the largest component of each topic its main one; the places outside of it."""
    part, part_size, main = parts.part, parts.part_size, parts.main
    outside = np.empty(len(part), np.uint32)
    outside_end = list_start[:-1].copy()
    for topic in range(len(list_start) - 1):
        for place in range(list_start[topic], list_start[topic + 1]):
            if main[topic] < 0 or part_size[part[place]] > part_size[main[topic]]:
                main[topic] = part[place]
        for place in range(list_start[topic], list_start[topic + 1]):
            if part[place] != main[topic]:
                outside[outside_end[topic]] = place
                outside_end[topic] += 1
    return _Outside(outside, outside_end)


@njit(cache=True, inline="always")
def _thin_out(topic, mine, first, left, part, outside):
    """Of those outside the main component, which become fewer, keep the `left` that still are."""
    places, end = outside.places, outside.end
    if 2 * left < end[topic] - first:
        write = first
        for read in range(first, end[topic]):
            if part[places[read]] != mine:
                places[write] = places[read]
                write += 1
        end[topic] = write


@njit(cache=True, inline="always")
def _subtracts(topic, mine, width, count, wanted, parts):
    """Whether to count a topic for all and subtract absentees and the own component."""
    list_start, absent_start = wanted.list_start, wanted.absent_start
    part_size, main = parts.part_size, parts.main
    size = list_start[topic + 1] - list_start[topic]
    if 2 * size <= count:
        return False
    others = size - part_size[mine] if mine == main[topic] else size
    absent = absent_start[topic + 1] - absent_start[topic]
    return width * absent + count * part_size[mine] < width * others


@_compiled
def _search(position, low, high, limited, wanted, parts, outside, found, known):
    """Find the best fingers of the phases from `low` to `high` anew."""
    near = 1 << low
    far = 1 << high
    few = _are_few(position, wanted, parts)
    common, size = _count_shared(position, near, far, few, wanted, parts, outside, found)
    if few:
        _keep_touched(position, low, high, limited, size, found, known)
        return
    phases = known.begin.shape[1]
    for phase in range(low, high):
        slot = position * phases + phase
        known.floor[slot] = _keep_best(
            position, phase, known.begin[position, phase], limited, common, found.gain,
            known.free[phase], known.kept[slot], known.keys[phase],
        )  # fmt: skip


@_compiled
def _are_few(position, wanted, parts):
    """Whether few of the positions can have a gain."""
    count = len(wanted.start) - 1
    others = 0
    for at in range(wanted.start[position], wanted.start[position + 1]):
        topic = wanted.topics[at]
        mine = parts.part[parts.pair[at]]
        size = wanted.list_start[topic + 1] - wanted.list_start[topic]
        if 2 * size > count:
            return False
        others += size - parts.part_size[mine]
    return _SPARSE * others < count


@_compiled
def _count_shared(position, near, far, few, wanted, parts, outside, found):
    """What edges to the positions from `near` to `far` away contribute.

    It is the `gain` of the position plus the first number returned, so many for all. If they are
    few, the second is how many were touched: all that have a gain.
    """
    gain, touched = found.gain, found.touched
    size = 0
    start, topics, list_start, lists = wanted.start, wanted.topics, wanted.list_start, wanted.lists
    absent_start, absent = wanted.absent_start, wanted.absent
    pair, part, part_size, following = parts.pair, parts.part, parts.part_size, parts.following
    count = len(start) - 1
    width = far - near
    low = position + near
    high = position + far
    common = 0  # topics that are counted for all and then subtracted
    for at in range(start[position], start[position + 1]):
        topic = topics[at]
        mine = part[pair[at]]
        first = list_start[topic]
        left = list_start[topic + 1] - first - part_size[mine]
        if left == 0:
            continue
        if _subtracts(topic, mine, width, count, wanted, parts):
            common += 1
            continue
        in_main = mine == parts.main[topic]
        if in_main:  # only those outside of it count
            _thin_out(topic, mine, first, left, part, outside)
        for turn in range(2):  # the phase may reach beyond the end of the numbering
            below = low - turn * count
            above = high - turn * count
            if above <= 0 or below >= count:
                continue
            if in_main:
                places, end = outside.places, outside.end[topic]
                place = _lower_outside(places, lists, first, end, below)
                while place < end and lists[places[place]] < above:
                    item = places[place]
                    if few:
                        size = _touch(lists[item], part[item] != mine, gain, touched, size)
                    else:
                        gain[lists[item]] += part[item] != mine
                    place += 1
                continue
            end = list_start[topic + 1]
            place = _lower(lists, first, end, below)
            while place < end and lists[place] < above:
                if few:
                    size = _touch(lists[place], part[place] != mine, gain, touched, size)
                else:
                    gain[lists[place]] += part[place] != mine
                place += 1
    if common:
        for at in range(start[position], start[position + 1]):
            topic = topics[at]
            mine = part[pair[at]]
            if part_size[mine] == list_start[topic + 1] - list_start[topic]:
                continue
            if not _subtracts(topic, mine, width, count, wanted, parts):
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
                if near <= away < far:
                    gain[lists[member]] -= 1
                member = following[member]
                if member == mine:
                    break
    return common, size


@njit(cache=True, inline="always")
def _touch(target, merges, gain, touched, size):
    """Count a target if an edge to it merges; how many were counted so far."""
    before = gain[target]
    gain[target] = before + merges
    if merges and before == 0:
        touched[size] = target
        return size + 1
    return size


@_compiled
def _keep_touched(position, low, high, limited, size, found, known):
    """Keep the best fingers of these phases, of the few that contribute anything.

    What was counted is forgotten.
    """
    gain, touched = found.gain, found.touched
    kept, keys, counted = known.kept, known.keys, known.counted
    count, phases = known.begin.shape
    first = position * phases
    last = kept.shape[1] - 1
    for phase in range(low, high):
        counted[phase] = 0
        for at in range(last + 1):
            kept[first + phase, at] = -1
            keys[phase, at] = 0
    for seen in range(size):
        target = touched[seen]
        value = np.int64(gain[target])
        gain[target] = 0
        away = np.int64(target) - position
        if away < 0:
            away += count
        phase = known.phase_of[away]
        counted[phase] += 1
        step = (away - known.begin[position, phase]) & ((1 << phase) - 1)
        key = ((value + 1) << phase) - 1 - step
        if key < keys[phase, last] or (limited and known.free[phase, target] != target):
            continue
        at = last
        while at > 0 and keys[phase, at - 1] < key:
            keys[phase, at] = keys[phase, at - 1]
            kept[first + phase, at] = kept[first + phase, at - 1]
            at -= 1
        keys[phase, at] = key
        kept[first + phase, at] = target
    for phase in range(low, high):
        filled = 0
        while filled <= last and keys[phase, filled] > 0:
            filled += 1
        beyond = filled and counted[phase] > filled
        known.floor[first + phase] = keys[phase, filled - 1] if beyond else -1


@_compiled
def _keep_best(position, phase, begin, limited, common, gain, free, kept, keys):
    """Keep the fingers of this phase that contribute most; the key of the last one, or -1.

    What was counted is forgotten.
    """
    count = len(gain)
    width = 1 << phase
    # In the order of ties, so that of equal ones the first is met first.
    keys[:] = 0
    kept[:] = -1
    size = 0
    contributing = 0
    least = 0  # a candidate that contributes more is kept
    step = 0
    for turn in range(4):
        near, far = _stretch(turn, position + width, begin, width, count)
        for target in range(near, far):
            value = gain[target] + common
            gain[target] = 0
            contributing += value > 0
            if value > least and (not limited or free[target] == target):
                slot = min(size, len(kept) - 1)
                while slot > 0 and keys[slot - 1] >> phase < value:
                    keys[slot] = keys[slot - 1]
                    kept[slot] = kept[slot - 1]
                    slot -= 1
                keys[slot] = value * width + width - 1 - (step + target - near)
                kept[slot] = target
                size = min(size + 1, len(kept))
                if size == len(kept):
                    least = keys[size - 1] >> phase
        step += far - near
    return keys[size - 1] if size and contributing > size else np.int64(-1)


@njit(cache=True, inline="always")
def _stretch(turn, low, begin, width, count):
    """A phase from its random start around to it, as four stretches of positions, some empty."""
    middle = low + begin
    if turn < 2:
        near = middle
        far = low + width
    else:
        near = low
        far = middle
    if turn % 2 == 0:  # before the end of the numbering, then beyond it
        return min(near, count), min(far, count)
    return max(near, count) - count, max(far, count) - count


@_compiled
def _best_kept(position, phase, begin, limited, start, topics, pair, part, free, kept, floor):
    """The best finger and what it contributes, if those kept tell; -1 if not, or none is free."""
    count = len(start) - 1
    width = 1 << phase
    most = np.int64(-1)
    chosen = np.int64(-1)
    for place in range(len(kept)):
        target = kept[place]
        if target < 0:
            break
        if limited and free[target] != target:
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
        for turn in range(4):
            near, far = _stretch(turn, position + width, begin, width, count)
            target = _first_free(free, near) if limited else near
            if target < far:
                return target, np.int64(0)
    return np.int64(-1), np.int64(0)


@_compiled
def _first_free(free, position):
    """The first position from here on that nobody points to, or the count of positions."""
    while free[position] != position:
        free[position] = free[free[position]]
        position = free[position]
    return np.int64(position)
