"""BeaConvey, Scribe and iScribe on small-world rings, message by message, compiled.

Mirrors `routing/beaconvey.py` and `routing/scribe.py` with all links up and a settled
membership. Omitted: changes of membership, latencies, and local filters: every subscriber of a
topic wants all its publications.

Per publication: messages (hops over links), pure forwards (messages received by a node that is
not interested), deliveries to nodes other than the publisher with the sum and the maximum of
their path lengths, and whether the publisher itself was delivered to. In Scribe and iScribe the
publisher's own copy comes back down the tree; its path is reported apart (`own_path`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postroad.jit import inner, njit
from postroad.overlay import IntArray
from postroad.overlay.small_world import SmallWorld
from postroad.planning.swico import TopicInterests

RULES = {"po": 0, "pal": 1, "pie": 2}


@dataclass(frozen=True)
class RouteCounts:
    """One number per publication; see the module."""

    messages: IntArray
    pure_forwards: IntArray
    deliveries: IntArray
    path_sum: IntArray
    path_max: IntArray
    own_path: IntArray  # -1: the publisher is no subscriber


def route(
    world: SmallWorld,
    interests: TopicInterests,
    scheme: str,
    topics: npt.ArrayLike,
    publishers: npt.ArrayLike,
    rendezvous: npt.ArrayLike = (),
    back: bool = True,
    clockwise: bool = False,
) -> RouteCounts:
    """Route one publication per topic and publisher (a node) given.

    `scheme` is po, pal or pie for BeaConvey, scribe or iscribe; these need the position of each
    topic's rendezvous point. Without `back` their trees leave out the publisher, as if it were
    no subscriber (the cores do not do that). With `clockwise` BeaConvey's messages never pass
    their target.
    """
    placed = interests.at_positions(world.order)
    starts, members = placed.subscribers
    peers_start, peers = world.peers
    wanted = np.ascontiguousarray(topics, np.int64)
    origins = world.position[np.asarray(publishers, np.int64)]
    counts = np.zeros((6, len(wanted)), np.int64)
    if scheme in RULES:
        _beaconvey(
            RULES[scheme], clockwise, peers_start, peers, starts, members, wanted, origins, counts
        )
    else:
        roots = np.ascontiguousarray(rendezvous, np.int64)
        run = _scribe if scheme == "scribe" else _iscribe
        run(peers_start, peers, starts, members, wanted, origins, roots, back, counts)
    return RouteCounts(*counts)


@njit(cache=True, inline="always")
def _nearest_link(at, target, start, peers, count):
    """Where the neighbour stands that is nearest to a position by absolute distance.

    Of two it is the one before the position.
    """
    first = start[at]
    end = start[at + 1]
    low = first
    high = end
    while low < high:
        middle = (low + high) // 2
        if peers[middle] <= target:
            low = middle + 1
        else:
            high = middle
    before = low - 1 if low > first else end - 1
    after = low if low < end else first
    below = target - peers[before]
    if below < 0:
        below += count
    above = peers[after] - target
    if above < 0:
        above += count
    # The neighbour before the target may be the nearer one from behind, on a small ring.
    if min(below, count - below) <= min(above, count - above):
        return before
    return after


@njit(cache=True, inline="always")
def _nearest(at, target, start, peers, count):
    return peers[_nearest_link(at, target, start, peers, count)]


@inner()
def _before(at, target, start, peers):
    """The neighbour that is furthest clockwise without passing the target."""
    low = start[at]
    high = start[at + 1]
    last = high - 1
    while low < high:
        middle = (low + high) // 2
        if peers[middle] <= target:
            low = middle + 1
        else:
            high = middle
    return peers[low - 1] if low > start[at] else peers[last]


@njit(cache=True, inline="always")
def _last_nearest(link, first, end, peers, count):
    """The last position, clockwise, to which this of all links first:end leads nearest."""
    after = peers[link + 1] if link + 1 < end else peers[first]
    gap = after - peers[link]
    if gap <= 0:
        gap += count
    return (peers[link] + gap // 2) % count


@inner()
def _following(members, first, end, position):
    """The member after a position, clockwise; perhaps that position itself, all around."""
    low = first
    high = end
    while low < high:
        middle = (low + high) // 2
        if members[middle] <= position:
            low = middle + 1
        else:
            high = middle
    return members[low] if low < end else members[first]


@njit(cache=True)
def _beaconvey(rule, clockwise, peers_start, peers, starts, members, topics, origins, counts):
    count = len(peers_start) - 1
    interested = np.full(count, -1, np.int64)  # the topic it was last found interested in
    depth = 64 * count + 64
    stack_at = np.empty(depth, np.int64)
    stack_high = np.empty(depth, np.int64)
    stack_hops = np.empty(depth, np.int64)
    hops_to = np.empty(count + 2, np.int64)
    for n in range(len(topics)):
        topic = topics[n]
        first = starts[topic]
        end = starts[topic + 1]
        for place in range(first, end):
            interested[members[place]] = topic
        messages = 0
        pure = 0
        deliveries = 0
        path_sum = 0
        path_max = 0
        counts[5, n] = 0 if interested[origins[n]] == topic else -1
        stack_at[0] = origins[n]
        stack_high[0] = origins[n]
        stack_hops[0] = 0
        size = 1
        while size:
            size -= 1
            at = stack_at[size]
            high = stack_high[size]
            hops = stack_hops[size]
            if interested[at] == topic and hops > 0:
                deliveries += 1
                path_sum += hops
                path_max = max(path_max, hops)
            if end == first:
                continue
            length = (high - at - 1) % count + 1
            hops_count = 0
            nearest = (_following(members, first, end, at) - at) % count
            if nearest == 0 or nearest >= length:
                nearest = 0
            middle = length // 2
            pivot = 0
            low = peers_start[at]
            top = peers_start[at + 1]
            turn = low
            while turn < top and peers[turn] < at:
                turn += 1
            if nearest:
                hops_to[0] = nearest
                hops_count = 1
            for step in range(top - low):
                place = turn + step
                if place >= top:
                    place -= top - low
                away = peers[place] - at
                if away < 0:
                    away += count
                if away >= length:
                    break
                if interested[peers[place]] == topic and away != nearest:
                    hops_to[hops_count] = away
                    hops_count += 1
                if pivot == 0 and away >= middle:
                    pivot = away
            if hops_count and rule != 0 and hops_to[hops_count - 1] < middle:
                if pivot:
                    hops_to[hops_count] = pivot
                    hops_count += 1
                elif rule == 1:
                    hops_to[hops_count] = middle + (length - middle) // 2
                    hops_count += 1
            for place in range(hops_count):
                target = (at + hops_to[place]) % count
                far = (at + hops_to[place + 1]) % count if place + 1 < hops_count else high
                relay = at
                path = hops
                while relay != target:
                    if clockwise:
                        relay = _before(relay, target, peers_start, peers)
                    else:
                        relay = _nearest(relay, target, peers_start, peers, count)
                    path += 1
                    messages += 1
                    pure += interested[relay] != topic
                stack_at[size] = target
                stack_high[size] = far
                stack_hops[size] = path
                size += 1
        counts[0, n] = messages
        counts[1, n] = pure
        counts[2, n] = deliveries
        counts[3, n] = path_sum
        counts[4, n] = path_max


@inner()
def _climb(at, root, topic, interested, peers_start, peers):
    """Hops from the publisher to the rendezvous point, and how many were pure forwards."""
    count = len(peers_start) - 1
    hops = 0
    pure = 0
    while at != root:
        at = _nearest(at, root, peers_start, peers, count)
        hops += 1
        pure += interested[at] != topic
    return hops, pure


@njit(cache=True)
def _scribe(peers_start, peers, starts, members, topics, origins, roots, back, counts):
    count = len(peers_start) - 1
    interested = np.full(count, -1, np.int64)
    joined = np.full(count, -1, np.int64)  # the publication for which it joined the tree
    depth = np.zeros(count, np.int64)
    way = np.empty(count + 1, np.int64)
    for n in range(len(topics)):
        topic = topics[n]
        for place in range(starts[topic], starts[topic + 1]):
            interested[members[place]] = topic
        root = roots[topic]
        up, pure = _climb(origins[n], root, topic, interested, peers_start, peers)
        messages = up
        joined[root] = n
        depth[root] = 0
        counts[5, n] = -1
        for place in range(starts[topic], starts[topic + 1]):
            at = members[place]
            if at == origins[n] and not back:
                continue
            size = 0
            while joined[at] != n:
                joined[at] = n
                way[size] = at
                size += 1
                at = _nearest(at, root, peers_start, peers, count)
            hops = depth[at]
            while size:
                size -= 1
                hops += 1
                depth[way[size]] = hops
                messages += 1
                pure += interested[way[size]] != topic
            _arrive(n, members[place], origins[n], up + depth[members[place]], counts)
        counts[0, n] = messages
        counts[1, n] = pure


@inner()
def _arrive(n, at, origin, path, counts):
    if at == origin:
        counts[5, n] = path
        return
    counts[2, n] += 1
    counts[3, n] += path
    counts[4, n] = max(counts[4, n], path)


@njit(cache=True)
def _iscribe(peers_start, peers, starts, members, topics, origins, roots, back, counts):
    """A message stands for a run of targets in ring order, which parts by their next hops.

    The positions to which a link leads nearest are neighbours on the ring, so each link takes a
    stretch of the run; only where a stretch goes around the run's ends is the run turned first.
    """
    count = len(peers_start) - 1
    interested = np.full(count, -1, np.int64)
    targets = np.empty(count, np.int64)
    stack = np.empty((count + 1, 4), np.int64)  # node, hops, targets from, targets to
    for n in range(len(topics)):
        topic = topics[n]
        total = 0
        for place in range(starts[topic], starts[topic + 1]):
            interested[members[place]] = topic
            if back or members[place] != origins[n]:
                targets[total] = members[place]
                total += 1
        root = roots[topic]
        up, pure = _climb(origins[n], root, topic, interested, peers_start, peers)
        messages = up
        counts[5, n] = -1
        stack[0] = (root, up, 0, total)
        size = 1 if total else 0
        while size:
            size -= 1
            at, hops, low, high = stack[size]
            first = peers_start[at]
            end = peers_start[at + 1]
            if targets[low] == at:
                _arrive(n, at, origins[n], hops, counts)
                low += 1
            if high - low > 1 and end - first > 1:
                _turn(at, low, high, targets, peers_start, peers)
            while low < high:
                start = targets[low]
                link = _nearest_link(at, start, peers_start, peers, count)
                reach = count
                if end - first > 1:
                    reach = _last_nearest(link, first, end, peers, count) - start
                    if reach < 0:
                        reach += count
                after = low + 1
                while after < high:
                    away = targets[after] - start
                    if away < 0:
                        away += count
                    if away > reach:
                        break
                    after += 1
                last = after
                if targets[after - 1] == at:
                    _arrive(n, at, origins[n], hops, counts)
                    last -= 1
                if low < last:
                    messages += 1
                    pure += interested[peers[link]] != topic
                    stack[size] = (peers[link], hops + 1, low, last)
                    size += 1
                low = after
        counts[0, n] = messages
        counts[1, n] = pure


@inner()
def _turn(at, low, high, targets, peers_start, peers):
    """Turn a run so that it does not begin amid those that the link of its last target takes."""
    count = len(peers_start) - 1
    first = peers_start[at]
    end = peers_start[at + 1]
    link = _nearest_link(at, targets[high - 1], peers_start, peers, count)
    if link != _nearest_link(at, targets[low], peers_start, peers, count):
        return
    reach = (_last_nearest(link, first, end, peers, count) - targets[low]) % count
    if (targets[high - 1] - targets[low]) % count <= reach:
        return  # one link takes all
    cut = high - 1
    while (targets[cut - 1] - targets[low]) % count > reach and (
        _nearest_link(at, targets[cut - 1], peers_start, peers, count) == link
    ):
        cut -= 1
    behind = targets[low:cut].copy()
    ahead = high - cut
    for place in range(ahead):
        targets[low + place] = targets[cut + place]
    targets[low + ahead : high] = behind
