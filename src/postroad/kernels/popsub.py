"""PopSub compiled: the tree, direct delivery and batching of `routing/popsub`, for sweeps.

It mirrors the core publication by publication: the same gains, Algorithm 1 at the same moments,
the same buffers and timers, the same FIFO queues; counters are equal (`tests/differential`).
Subscriptions stand still and belong to one advertisement each, as in the paper's workload: a
box over two attributes. Left out: churn, faults, bounded buffers, the reorder buffer, priority
classes. Gossip is a model of the core, not its equal: groups form at once, a member's view is
drawn anew each time, membership and digests cost nothing, a publication that makes one link switch
goes over the tree on all, and whom the first wave of relays does not reach asks at its next round.

A publication in flight holds a row of `need` (which brokers lead to a match) and `matched` (how
many subscriptions match there); rows are reused, so memory follows what is in flight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from postroad.errors import Unsupported
from postroad.kernels import draws as keyed
from postroad.overlay import Overlay

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MECHANISMS = {"tree": 0, "direct": 1, "batching": 2, "gossip": 3}
_TREE, _DIRECT, _BATCH, _PUBLISH, _SERVED, _EVALUATE, _FLUSH, _ROUND, _GOSSIP, _PULL = range(10)
_FREE, _USED, _HEAP, _TURN, _WAITING = range(5)  # places of a pool's state
_FAR = np.int64(1) << np.int64(62)


@dataclass(frozen=True)
class Workload:
    """Advertisements at brokers, subscriptions as boxes, publications as points in time."""

    homes: Ints  # per advertisement, its broker
    subscription_advertisement: Ints
    subscription_broker: Ints
    low: Ints  # per subscription, the least values of both attributes: shape (n, 2)
    high: Ints  # and the greatest
    time_us: Ints  # per publication, ascending
    advertisement: Ints
    values: Ints  # shape (n, 2)


@dataclass(frozen=True)
class Settings:
    mechanism: str = "tree"
    capacity_per_s: float = 125.0  # τ·φ
    reevaluate_us: int = 2_000_000
    hysteresis: float = 0.1
    batch_timeout_us: int = 3_000_000
    fanout: int = 2
    gossip_interval_us: int = 10_000_000
    service_us: int = 0
    batch_cost: Floats | None = None  # service of a batch of i+1 in units of one publication
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """What one run counted."""

    messages: dict[str, int]
    popular_us: Ints  # a delay per delivery over the tree
    unpopular_us: Ints  # and per delivery by the other mechanism
    pure_forwards: int
    forwards: int
    gain: float  # the sum over all forwards
    hops: int  # the sum over all deliveries
    hops_max: int
    direct_forwards: Ints  # how many publications took so many direct sends
    queue_area: Ints  # per broker: length times microseconds
    queue_max: Ints
    queued: int  # arrivals that found a queue
    queued_length: int  # the sum of the lengths they found
    gossip_groups: int
    gossip_received: int
    gossip_false: int
    gossip_matches: int  # deliveries of what was received
    steps: int
    end_us: int

    @property
    def deliveries(self) -> int:
        return len(self.popular_us) + len(self.unpopular_us)


def simulate(overlay: Overlay, workload: Workload, settings: Settings) -> Outcome:
    """Run the workload on a tree."""
    if settings.mechanism not in MECHANISMS:
        raise Unsupported(f"no mechanism {settings.mechanism!r}; {', '.join(MECHANISMS)}")
    peers = overlay.neighbours()
    pointers = np.cumsum([0] + [len(links) for links in peers])
    neighbours = np.array([peer for links in peers for peer in links], np.int64)
    latencies = np.array([us for links in peers for us in links.values()], np.int64)
    direct = overlay.direct_us
    if direct is None:
        direct = np.array([overlay.path_us(b) for b in range(len(peers))], np.int64)
    homes, rows = np.unique(workload.homes, return_inverse=True)
    above = np.stack([overlay.parents(int(home)) for home in homes])
    depths = np.stack([_depths(up) for up in above])
    order = np.argsort(workload.subscription_advertisement, kind="stable")
    offers = len(workload.homes)
    starts = np.searchsorted(
        workload.subscription_advertisement[order], np.arange(offers + 1), side="left"
    )
    cost = settings.batch_cost if settings.batch_cost is not None else np.arange(1.0, 2.0)
    found = _run(
        pointers,
        neighbours,
        latencies,
        direct,
        workload.homes,
        rows.astype(np.int64),
        above,
        depths,
        starts.astype(np.int64),
        workload.subscription_broker[order],
        workload.low[order],
        workload.high[order],
        workload.time_us,
        workload.advertisement,
        workload.values,
        MECHANISMS[settings.mechanism],
        settings.capacity_per_s,
        settings.reevaluate_us,
        settings.hysteresis,
        settings.batch_timeout_us,
        settings.fanout,
        settings.gossip_interval_us,
        settings.service_us,
        cost,
        keyed.base(settings.seed, "popsub.kernel"),
    )
    sent, popular, unpopular, counts, gain, histogram, area, longest = found
    kinds = ("publication", "direct", "batch", "gossip")
    return Outcome(
        messages={kind: int(n) for kind, n in zip(kinds, sent, strict=True) if n},
        popular_us=popular,
        unpopular_us=unpopular,
        pure_forwards=int(counts[0]),
        forwards=int(counts[1]),
        gain=float(gain),
        hops=int(counts[2]),
        hops_max=int(counts[3]),
        direct_forwards=histogram,
        queue_area=area,
        queue_max=longest,
        queued=int(counts[4]),
        queued_length=int(counts[5]),
        gossip_groups=int(counts[6]),
        gossip_received=int(counts[7]),
        gossip_false=int(counts[8]),
        gossip_matches=int(counts[11]),
        steps=int(counts[9]),
        end_us=int(counts[10]),
    )


def _depths(parents: Ints) -> Ints:
    depth = np.full(len(parents), -1, np.int64)

    def of(broker: int) -> int:
        path = []
        while depth[broker] < 0 and parents[broker] >= 0:
            path.append(broker)
            broker = int(parents[broker])
        level = max(0, int(depth[broker]))
        depth[broker] = level
        for below in reversed(path):
            level += 1
            depth[below] = level
        return level

    for broker in range(len(parents)):
        of(broker)
    return depth


@njit(cache=True)
def _grown(values: Any) -> Any:
    more = np.empty(2 * values.shape[0], values.dtype)
    more[: values.shape[0]] = values
    return more


@njit(cache=True)
def _grown_rows(values: Any) -> Any:
    more = np.zeros((2 * values.shape[0], values.shape[1]), values.dtype)
    more[: values.shape[0]] = values
    return more


@njit(cache=True)
def _heap_push(
    times: Any, turns: Any, items: Any, size: int, time: int, turn: int, item: int
) -> None:
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if times[above] < time or (times[above] == time and turns[above] < turn):
            break
        times[at] = times[above]
        turns[at] = turns[above]
        items[at] = items[above]
        at = above
    times[at] = time
    turns[at] = turn
    items[at] = item


@njit(cache=True)
def _heap_pop(times: Any, turns: Any, items: Any, size: int) -> None:
    """Take the first away; `size` counts it still."""
    size -= 1
    time, turn, item = times[size], turns[size], items[size]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        right = below + 1
        if right < size and (
            times[right] < times[below]
            or (times[right] == times[below] and turns[right] < turns[below])
        ):
            below = right
        if time < times[below] or (time == times[below] and turn < turns[below]):
            break
        times[at] = times[below]
        turns[at] = turns[below]
        items[at] = items[below]
        at = below
    times[at] = time
    turns[at] = turn
    items[at] = item


@njit(cache=True)
def _push(state: Any, times: Any, turns: Any, items: Any, time: int, item: int) -> None:
    """Schedule an item; equal times keep the order of scheduling."""
    _heap_push(times, turns, items, state[_HEAP], time, state[_TURN], item)
    state[_HEAP] += 1
    state[_TURN] += 1


@njit(cache=True)
def _new(pool: Any, follows: Any) -> int:
    """An unused place of a pool: one that was freed, or the next."""
    place = pool[_FREE]
    if place >= 0:
        pool[_FREE] = follows[place]
    else:
        place = pool[_USED]
        pool[_USED] += 1
    return place  # type: ignore[no-any-return]


@njit(cache=True)
def _free(pool: Any, follows: Any, place: int) -> None:
    follows[place] = pool[_FREE]
    pool[_FREE] = place


@njit(cache=True)
def _gains(
    pointers: Any,
    neighbours: Any,
    homes: Any,
    rows: Any,
    above: Any,
    depths: Any,
    starts: Any,
    brokers: Any,
) -> Any:
    """Per directed link and advertisement: subscriptions behind it, and their distances."""
    links = neighbours.shape[0]
    offers = homes.shape[0]
    count = np.zeros((links, offers), np.int64)
    hops = np.zeros((links, offers), np.int64)
    for offer in range(offers):
        row = rows[offer]
        for s in range(starts[offer], starts[offer + 1]):
            below = brokers[s]
            depth = depths[row, below]
            far = 0
            while below != homes[offer]:
                up = above[row, below]
                far += 1
                for link in range(pointers[up], pointers[up + 1]):
                    if neighbours[link] == below:
                        count[link, offer] += 1
                        hops[link, offer] += far
                        break
                below = up
            assert far == depth
    return count, hops


@njit(cache=True)
def _members(
    pointers: Any,
    neighbours: Any,
    homes: Any,
    rows: Any,
    above: Any,
    starts: Any,
    brokers: Any,
) -> Any:
    """Per advertisement: the brokers with a subscription, and the home's link towards each."""
    offers = homes.shape[0]
    found = np.empty(brokers.shape[0], np.int64)
    link_of = np.empty(brokers.shape[0], np.int64)
    begins = np.zeros(offers + 1, np.int64)
    seen = np.full(above.shape[1], -1, np.int64)
    total = 0
    for offer in range(offers):
        home = homes[offer]
        for s in range(starts[offer], starts[offer + 1]):
            broker = brokers[s]
            if broker == home or seen[broker] == offer:
                continue
            seen[broker] = offer
            below = broker
            while above[rows[offer], below] != home:
                below = above[rows[offer], below]
            found[total] = broker
            for link in range(pointers[home], pointers[home + 1]):
                if neighbours[link] == below:
                    link_of[total] = link
            total += 1
        begins[offer + 1] = total
    return found[:total].copy(), begins, link_of[:total].copy()


@njit(cache=True)
def _popularity(
    home: int,
    pointers: Any,
    homes: Any,
    count: Any,
    ratio: Any,
    rate: Any,
    offered: Any,
    popular: Any,
    fresh: bool,
    capacity: float,
    hysteresis: float,
    period_s: float,
) -> float:
    """Algorithm 1 at one broker; the least gain among its popular entries, or -1."""
    first, last = pointers[home], pointers[home + 1]
    offers = homes.shape[0]
    filled = 0.0
    entries = 0
    for link in range(first, last):
        for offer in range(offers):
            if homes[offer] == home:
                rate[link, offer] = offered[link, offer] / period_s
                offered[link, offer] = 0
                if count[link, offer] > 0:
                    entries += 1
                    if popular[link, offer]:
                        filled += rate[link, offer]
    if fresh or abs(filled - capacity) > hysteresis * capacity:
        keys = np.empty(entries, np.float64)
        link_of = np.empty(entries, np.int64)
        offer_of = np.empty(entries, np.int64)
        at = 0
        for link in range(first, last):
            for offer in range(offers):
                if homes[offer] == home and count[link, offer] > 0:
                    keys[at] = -ratio[link, offer]
                    link_of[at] = link
                    offer_of[at] = offer
                    at += 1
        filled = 0.0
        for at in np.argsort(keys, kind="mergesort"):
            link, offer = link_of[at], offer_of[at]
            popular[link, offer] = filled < capacity
            if popular[link, offer]:
                filled += rate[link, offer]
    least = -1.0
    for link in range(first, last):
        for offer in range(offers):
            listed = homes[offer] == home and count[link, offer] > 0
            if listed and popular[link, offer] and (least < 0 or ratio[link, offer] < least):
                least = ratio[link, offer]
    return least


@njit(cache=True)
def _run(
    pointers: Any,
    neighbours: Any,
    latencies: Any,
    direct: Any,
    homes: Any,
    rows: Any,
    above: Any,
    depths: Any,
    starts: Any,
    sub_broker: Any,
    low: Any,
    high: Any,
    pub_time: Any,
    pub_offer: Any,
    values: Any,
    mechanism: int,
    capacity: float,
    period_us: int,
    hysteresis: float,
    timeout_us: int,
    fanout: int,
    interval_us: int,
    service_us: int,
    cost: Any,
    key: Any,
) -> Any:
    brokers = pointers.shape[0] - 1
    offers = homes.shape[0]
    links = neighbours.shape[0]
    count, hops_of = _gains(pointers, neighbours, homes, rows, above, depths, starts, sub_broker)
    ratio = np.zeros((links, offers), np.float64)
    for link in range(links):
        for offer in range(offers):
            if hops_of[link, offer] > 0:
                ratio[link, offer] = count[link, offer] * count[link, offer] / hops_of[link, offer]
    popular = np.ones((links, offers), np.bool_)
    rate = np.zeros((links, offers), np.float64)
    offered = np.zeros((links, offers), np.int64)
    least = np.full(brokers, -1.0)
    fresh = np.ones(brokers, np.bool_)
    evaluating = np.zeros(brokers, np.bool_)
    # Buffers of batching: lists of nodes, each a publication's row.
    head = np.full((links, offers), -1, np.int64)
    tail = np.full((links, offers), -1, np.int64)
    held = np.zeros((links, offers), np.int64)
    stamp = np.zeros((links, offers), np.int64)
    buffered = 0
    # Rows of publications in flight.
    need = np.zeros((256, brokers), np.uint8)
    matched = np.zeros((256, brokers), np.int32)
    refs = np.zeros(256, np.int64)
    row_pub = np.zeros(256, np.int64)
    free_rows = np.arange(255, -1, -1)
    free_rows_count = 256
    # Nodes and messages: pools with lists of what is free.
    node_row = np.empty(1 << 17, np.int64)
    node_next = np.empty(1 << 17, np.int64)
    nodes = np.array([-1, 0, 0, 0, 0])
    what = np.empty(1 << 14, np.int64)
    target = np.empty(1 << 14, np.int64)
    sender = np.empty(1 << 14, np.int64)
    hop = np.empty(1 << 14, np.int64)
    load = np.empty(1 << 14, np.int64)  # a row, or a list's first node, or a timer's link
    size = np.empty(1 << 14, np.int64)
    follows = np.empty(1 << 14, np.int64)
    state = np.array([-1, 0, 0, 0, 0])
    times = np.empty(1 << 14, np.int64)
    turns = np.empty(1 << 14, np.int64)
    items = np.empty(1 << 14, np.int64)
    queue_head = np.full(brokers, -1, np.int64)
    queue_tail = np.full(brokers, -1, np.int64)
    queue_length = np.zeros(brokers, np.int64)
    queue_area = np.zeros(brokers, np.int64)
    queue_since = np.zeros(brokers, np.int64)
    queue_max = np.zeros(brokers, np.int64)
    sent = np.zeros(4, np.int64)
    tree_us = np.empty(1 << 16, np.int64)
    other_us = np.empty(1 << 16, np.int64)
    tree_count = 0
    other_count = 0
    counts = np.zeros(12, np.int64)
    gain = 0.0
    histogram = np.zeros(brokers + 1, np.int64)
    out_head = np.full(brokers, -1, np.int64)
    out_tail = np.full(brokers, -1, np.int64)
    out_size = np.zeros(brokers, np.int64)
    stack = np.empty(brokers, np.int64)
    # Gossip: per advertisement the member brokers and the first link towards each; what waits
    # for the next round; and waves, each what one round sent and whom it has reached.
    members, member_starts, member_link = _members(
        pointers, neighbours, homes, rows, above, starts, sub_broker
    )
    gossiping = np.zeros((links, offers), np.bool_)
    grouped = np.zeros(offers, np.bool_)
    wait_head = np.full(offers, -1, np.int64)
    wait_tail = np.full(offers, -1, np.int64)
    wait_size = np.zeros(offers, np.int64)
    reached = np.zeros((64, brokers), np.uint8)
    wave_head = np.empty(64, np.int64)
    wave_offer = np.empty(64, np.int64)
    wave_refs = np.empty(64, np.int64)
    waves = 0
    drawn = 0
    period_s = period_us / 1e6
    published = 0
    now = np.int64(0)
    publications = pub_time.shape[0]

    while True:
        # Room for the most that one step can add.
        while state[_HEAP] + 2 * brokers + 64 > times.shape[0]:
            times, turns, items = _grown(times), _grown(turns), _grown(items)
        while state[_USED] + 2 * brokers + 64 > what.shape[0]:
            what, target, sender, hop = _grown(what), _grown(target), _grown(sender), _grown(hop)
            load, size, follows = _grown(load), _grown(size), _grown(follows)
        while nodes[_USED] + (1 << 16) > node_row.shape[0]:
            node_row, node_next = _grown(node_row), _grown(node_next)

        due = pub_time[published] if published < publications else _FAR
        first = times[0] if state[_HEAP] > 0 else _FAR
        if published == publications and state[_WAITING] == 0 and buffered == 0:
            break
        if due <= first:
            now = due
            offer = pub_offer[published]
            if free_rows_count == 0:
                old = refs.shape[0]
                need, matched = _grown_rows(need), _grown_rows(matched)
                refs, row_pub = _grown(refs), _grown(row_pub)
                free_rows = np.empty(2 * old, np.int64)
                for r in range(old):
                    free_rows[r] = 2 * old - 1 - r
                free_rows_count = old
            free_rows_count -= 1
            row = free_rows[free_rows_count]
            need[row, :] = 0
            matched[row, :] = 0
            refs[row] = 1
            row_pub[row] = published
            up_row = rows[offer]
            x, y = values[published, 0], values[published, 1]
            for s in range(starts[offer], starts[offer + 1]):
                if low[s, 0] <= x <= high[s, 0] and low[s, 1] <= y <= high[s, 1]:
                    at = sub_broker[s]
                    matched[row, at] += 1
                    while at != homes[offer] and need[row, at] == 0:
                        need[row, at] = 1
                        at = above[up_row, at]
            item = _new(state, follows)
            what[item], target[item], sender[item] = _PUBLISH, homes[offer], -1
            hop[item], load[item], size[item] = 0, row, 1
            published += 1
        else:
            now = first
            item = items[0]
            _heap_pop(times, turns, items, state[_HEAP])
            state[_HEAP] -= 1
            if what[item] <= _BATCH or what[item] in (_SERVED, _GOSSIP, _PULL):
                state[_WAITING] -= 1

        kind = what[item]
        broker = target[item]

        # A broker that takes time serves one message after the other.
        if service_us > 0 and (kind <= _BATCH or kind in (_PUBLISH, _GOSSIP)):
            if queue_length[broker] > 0:
                counts[4] += 1
                counts[5] += queue_length[broker]
            queue_area[broker] += queue_length[broker] * (now - queue_since[broker])
            queue_since[broker] = now
            follows[item] = -1
            if queue_tail[broker] >= 0:
                follows[queue_tail[broker]] = item
            else:
                queue_head[broker] = item
            queue_tail[broker] = item
            queue_length[broker] += 1
            queue_max[broker] = max(queue_max[broker], queue_length[broker])
            if queue_length[broker] > 1:
                continue
            served = _new(state, follows)
            what[served], target[served] = _SERVED, broker
            units = cost[min(size[item], cost.shape[0]) - 1]
            _push(state, times, turns, items, now + np.int64(round(service_us * units)), served)
            state[_WAITING] += 1
            continue
        if kind == _SERVED:
            queue_area[broker] += queue_length[broker] * (now - queue_since[broker])
            queue_since[broker] = now
            served = item
            item = queue_head[broker]
            queue_head[broker] = follows[item]
            queue_length[broker] -= 1
            if queue_length[broker] > 0:
                units = cost[min(size[queue_head[broker]], cost.shape[0]) - 1]
                _push(state, times, turns, items, now + np.int64(round(service_us * units)), served)
                state[_WAITING] += 1
            else:
                queue_tail[broker] = -1
                _free(state, follows, served)
            kind = what[item]

        counts[9] += 1
        forwarded = False
        delivered = False

        if kind == _EVALUATE:
            active = False
            for link in range(pointers[broker], pointers[broker + 1]):
                for offer in range(offers):
                    if offered[link, offer] > 0 or rate[link, offer] > 0:
                        active = True
            least[broker] = _popularity(
                broker,
                pointers,
                homes,
                count,
                ratio,
                rate,
                offered,
                popular,
                fresh[broker],
                capacity,
                hysteresis,
                period_s,
            )
            fresh[broker] = False
            evaluating[broker] = active
            if active:
                _push(state, times, turns, items, now + period_us, item)
            else:
                _free(state, follows, item)
            continue

        flush = -1  # a link whose buffer goes now
        flush_offer = -1
        if kind == _FLUSH:
            link, offer = load[item], size[item]
            if held[link, offer] > 0 and stamp[link, offer] == hop[item]:
                flush, flush_offer = link, offer
            _free(state, follows, item)

        if kind in (_TREE, _PUBLISH):
            row = load[item]
            pub = row_pub[row]
            offer = pub_offer[pub]
            here = matched[row, broker]
            if here > 0:
                delivered = True
                while tree_count + here > tree_us.shape[0]:
                    tree_us = _grown(tree_us)
                for _ in range(here):
                    tree_us[tree_count] = now - pub_time[pub]
                    tree_count += 1
                counts[2] += here * hop[item]
                counts[3] = max(counts[3], hop[item])
            straight = 0
            asked = False
            waits = False
            switching = False  # the publication that switches to gossip goes over the tree
            if mechanism == 3 and kind == _PUBLISH:
                for link in range(pointers[broker], pointers[broker + 1]):
                    if need[row, neighbours[link]] and not popular[link, offer]:
                        switching = switching or not gossiping[link, offer]
            for link in range(pointers[broker], pointers[broker + 1]):
                peer = neighbours[link]
                if peer == sender[item] or need[row, peer] == 0:
                    continue
                over_tree = True
                if kind == _PUBLISH:
                    asked = True
                    offered[link, offer] += 1
                    if mechanism != 0 and not popular[link, offer]:
                        over_tree = switching
                        if mechanism == 3 and not gossiping[link, offer]:
                            gossiping[link, offer] = True
                            if not grouped[offer]:
                                grouped[offer] = True
                                counts[6] += 1
                                new = _new(state, follows)
                                what[new], target[new], load[new] = _ROUND, broker, offer
                                _push(state, times, turns, items, now + interval_us, new)
                    elif mechanism == 3:
                        gossiping[link, offer] = False
                    elif held[link, offer] > 0:
                        # The buffer goes first: see _send_popular in the core.
                        flush, flush_offer = link, offer
                if flush >= 0:
                    new = _new(state, follows)
                    what[new], target[new], sender[new], hop[new] = _BATCH, peer, broker, 1
                    load[new], size[new] = head[flush, flush_offer], held[flush, flush_offer]
                    counts[1] += 1
                    gain += size[new] * ratio[flush, flush_offer]
                    buffered -= held[flush, flush_offer]
                    held[flush, flush_offer] = 0
                    head[flush, flush_offer] = tail[flush, flush_offer] = -1
                    sent[2] += 1
                    _push(state, times, turns, items, now + latencies[link], new)
                    state[_WAITING] += 1
                    forwarded = True
                    flush = -1
                if over_tree:
                    new = _new(state, follows)
                    what[new], target[new], sender[new] = _TREE, peer, broker
                    hop[new], load[new], size[new] = hop[item] + 1, row, 1
                    refs[row] += 1
                    counts[1] += 1
                    gain += ratio[link, offer]
                    sent[0] += 1
                    _push(state, times, turns, items, now + latencies[link], new)
                    state[_WAITING] += 1
                    forwarded = True
                elif mechanism == 1:
                    depth = 1
                    stack[0] = peer
                    while depth > 0:
                        depth -= 1
                        at = stack[depth]
                        if matched[row, at] > 0:
                            straight += 1
                            new = _new(state, follows)
                            what[new], target[new], sender[new] = _DIRECT, at, broker
                            hop[new], load[new], size[new] = 1, row, 1
                            refs[row] += 1
                            counts[1] += 1
                            gain += 1.0
                            sent[1] += 1
                            way = latencies[link] if at == peer else direct[broker, at]
                            _push(state, times, turns, items, now + way, new)
                            state[_WAITING] += 1
                        for other in range(pointers[at], pointers[at + 1]):
                            below = neighbours[other]
                            if need[row, below] and above[rows[offer], below] == at:
                                stack[depth] = below
                                depth += 1
                elif mechanism == 3:
                    if not waits:  # once, however many links gossip
                        waits = True
                        node = _new(nodes, node_next)
                        node_row[node] = row
                        node_next[node] = -1
                        refs[row] += 1
                        if wait_size[offer] == 0:
                            wait_head[offer] = node
                        else:
                            node_next[wait_tail[offer]] = node
                        wait_tail[offer] = node
                        wait_size[offer] += 1
                        buffered += 1
                else:
                    node = _new(nodes, node_next)
                    node_row[node] = row
                    node_next[node] = -1
                    refs[row] += 1
                    if held[link, offer] == 0:
                        head[link, offer] = node
                    else:
                        node_next[tail[link, offer]] = node
                    tail[link, offer] = node
                    held[link, offer] += 1
                    buffered += 1
                    if held[link, offer] == 1:
                        new = _new(state, follows)
                        stamp[link, offer] += 1
                        what[new], target[new], sender[new] = _FLUSH, broker, -1
                        hop[new], load[new], size[new] = stamp[link, offer], link, offer
                        _push(state, times, turns, items, now + timeout_us, new)
                    elif least[broker] >= 0 and held[link, offer] > np.ceil(
                        least[broker] / ratio[link, offer] - 1e-9
                    ):
                        new = _new(state, follows)
                        what[new], target[new], sender[new], hop[new] = _BATCH, peer, broker, 1
                        load[new], size[new] = head[link, offer], held[link, offer]
                        counts[1] += 1
                        gain += size[new] * ratio[link, offer]
                        buffered -= held[link, offer]
                        held[link, offer] = 0
                        head[link, offer] = tail[link, offer] = -1
                        sent[2] += 1
                        _push(state, times, turns, items, now + latencies[link], new)
                        state[_WAITING] += 1
                        forwarded = True
            if straight > 0:
                histogram[straight] += 1
            if kind == _PUBLISH and asked and not evaluating[broker]:
                evaluating[broker] = True
                new = _new(state, follows)
                what[new], target[new], sender[new] = _EVALUATE, broker, -1
                _push(state, times, turns, items, now + period_us, new)
            refs[row] -= 1
            if refs[row] == 0:
                free_rows[free_rows_count] = row
                free_rows_count += 1
            _free(state, follows, item)
        elif kind == _DIRECT:
            row = load[item]
            pub = row_pub[row]
            here = matched[row, broker]
            while other_count + here > other_us.shape[0]:
                other_us = _grown(other_us)
            for _ in range(here):
                other_us[other_count] = now - pub_time[pub]
                other_count += 1
            counts[2] += here
            counts[3] = max(counts[3], 1)
            refs[row] -= 1
            if refs[row] == 0:
                free_rows[free_rows_count] = row
                free_rows_count += 1
            _free(state, follows, item)
        elif kind == _BATCH:
            node = load[item]
            offer = pub_offer[row_pub[node_row[node]]]
            while node >= 0:
                row = node_row[node]
                pub = row_pub[row]
                here = matched[row, broker]
                if here > 0:
                    delivered = True
                    while other_count + here > other_us.shape[0]:
                        other_us = _grown(other_us)
                    for _ in range(here):
                        other_us[other_count] = now - pub_time[pub]
                        other_count += 1
                    counts[2] += here * hop[item]
                    counts[3] = max(counts[3], hop[item])
                for link in range(pointers[broker], pointers[broker + 1]):
                    peer = neighbours[link]
                    if peer == sender[item] or need[row, peer] == 0:
                        continue
                    new = _new(nodes, node_next)
                    node_row[new] = row
                    node_next[new] = -1
                    refs[row] += 1
                    if out_size[peer] == 0:
                        out_head[peer] = new
                    else:
                        node_next[out_tail[peer]] = new
                    out_tail[peer] = new
                    out_size[peer] += 1
                refs[row] -= 1
                if refs[row] == 0:
                    free_rows[free_rows_count] = row
                    free_rows_count += 1
                done = node
                node = node_next[node]
                _free(nodes, node_next, done)
            for link in range(pointers[broker], pointers[broker + 1]):
                peer = neighbours[link]
                if out_size[peer] == 0:
                    continue
                new = _new(state, follows)
                what[new], target[new], sender[new] = _BATCH, peer, broker
                hop[new], load[new], size[new] = hop[item] + 1, out_head[peer], out_size[peer]
                counts[1] += 1
                gain += out_size[peer] * ratio[link, offer]
                out_size[peer] = 0
                sent[2] += 1
                _push(state, times, turns, items, now + latencies[link], new)
                state[_WAITING] += 1
                forwarded = True
            _free(state, follows, item)
        elif kind == _ROUND:
            offer = load[item]
            _push(state, times, turns, items, now + interval_us, item)
            if wait_size[offer] > 0:
                if waves == wave_refs.shape[0]:
                    reached = _grown_rows(reached)
                    wave_head, wave_offer = _grown(wave_head), _grown(wave_offer)
                    wave_refs = _grown(wave_refs)
                wave_head[waves], wave_offer[waves] = wait_head[offer], offer
                wave_refs[waves] = 0
                reached[waves, :] = 1  # whoever is no member needs nothing
                buffered -= wait_size[offer]
                crowd = 0
                for m in range(member_starts[offer], member_starts[offer + 1]):
                    if gossiping[member_link[m], offer] and members[m] != broker:
                        stack[crowd] = members[m]
                        reached[waves, members[m]] = 0
                        crowd += 1
                # Whom the wave does not reach asks at its own next round.
                for m in range(crowd):
                    new = _new(state, follows)
                    what[new], target[new], sender[new] = _PULL, stack[m], broker
                    load[new], size[new] = waves, wait_size[offer]
                    drawn += 1
                    pause = keyed.below(interval_us, key, broker, drawn)
                    way = 2 * direct[broker, stack[m]]
                    _push(state, times, turns, items, now + pause + way, new)
                    state[_WAITING] += 1
                    wave_refs[waves] += 1
                for _ in range(min(fanout, crowd)):
                    drawn += 1
                    to = stack[keyed.below(crowd, key, broker, drawn)]
                    new = _new(state, follows)
                    what[new], target[new], sender[new] = _GOSSIP, to, broker
                    hop[new], load[new], size[new] = 1, waves, wait_size[offer]
                    sent[3] += 1
                    _push(state, times, turns, items, now + direct[broker, to], new)
                    state[_WAITING] += 1
                    wave_refs[waves] += 1
                wait_size[offer] = 0
                if wave_refs[waves] == 0:
                    wave_refs[waves] = 1  # nobody is left to tell: give the rows back below
                    new = _new(state, follows)
                    what[new], target[new], sender[new] = _PULL, broker, broker
                    load[new], size[new] = waves, 0
                    _push(state, times, turns, items, now, new)
                    state[_WAITING] += 1
                waves += 1
        elif kind in (_GOSSIP, _PULL):
            wave = load[item]
            offer = wave_offer[wave]
            if kind == _PULL and reached[wave, broker] == 0:
                sent[3] += 2  # the request and the answer
            if reached[wave, broker] == 0:
                reached[wave, broker] = 1
                node = wave_head[wave]
                while node >= 0:
                    row = node_row[node]
                    pub = row_pub[row]
                    here = matched[row, broker]
                    counts[7] += 1
                    counts[11] += here
                    if here == 0:
                        counts[8] += 1
                    while other_count + here > other_us.shape[0]:
                        other_us = _grown(other_us)
                    for _ in range(here):
                        other_us[other_count] = now - pub_time[pub]
                        other_count += 1
                    counts[2] += here
                    counts[3] = max(counts[3], 1)
                    node = node_next[node]
                crowd = 0
                for m in range(member_starts[offer], member_starts[offer + 1]):
                    if gossiping[member_link[m], offer] and members[m] != broker:
                        stack[crowd] = members[m]
                        crowd += 1
                for _ in range(min(fanout, crowd)):
                    drawn += 1
                    to = stack[keyed.below(crowd, key, broker, drawn)]
                    new = _new(state, follows)
                    what[new], target[new], sender[new] = _GOSSIP, to, broker
                    hop[new], load[new], size[new] = 1, wave, size[item]
                    sent[3] += 1
                    _push(state, times, turns, items, now + direct[broker, to], new)
                    state[_WAITING] += 1
                    wave_refs[wave] += 1
            wave_refs[wave] -= 1
            if wave_refs[wave] == 0:
                node = wave_head[wave]
                while node >= 0:
                    row = node_row[node]
                    refs[row] -= 1
                    if refs[row] == 0:
                        free_rows[free_rows_count] = row
                        free_rows_count += 1
                    done = node
                    node = node_next[node]
                    _free(nodes, node_next, done)
            _free(state, follows, item)
        elif flush >= 0:  # a buffer's time is up
            new = _new(state, follows)
            what[new], target[new], sender[new], hop[new] = _BATCH, neighbours[flush], broker, 1
            load[new], size[new] = head[flush, flush_offer], held[flush, flush_offer]
            counts[1] += 1
            gain += size[new] * ratio[flush, flush_offer]
            buffered -= held[flush, flush_offer]
            held[flush, flush_offer] = 0
            head[flush, flush_offer] = tail[flush, flush_offer] = -1
            sent[2] += 1
            _push(state, times, turns, items, now + latencies[flush], new)
            state[_WAITING] += 1
            forwarded = True
        if forwarded and not delivered:
            counts[0] += 1

    counts[10] = now
    for broker in range(brokers):
        queue_area[broker] += queue_length[broker] * (now - queue_since[broker])
    return (
        sent,
        tree_us[:tree_count].copy(),
        other_us[:other_count].copy(),
        counts,
        gain,
        histogram,
        queue_area,
        queue_max,
    )
