"""PopSub compiled: the tree, direct delivery, batching and gossip of `routing/popsub`, for sweeps.

Data. Everything is an array of integers; a thing is its row number in a table.

- `_Inputs` is only read: the overlay as links in the order of brokers (`pointers[b]` to
  `pointers[b + 1]` are those of b), the way from each publisher's broker to every other, the gain
  of each advertisement and link, subscriptions as boxes over two attributes, and publications.
- A *slot* is one advertisement at one link of its publisher's broker (its *home*): what PopSub
  decides about. `slots` says whether it is popular, and holds its buffer. Where Algorithm 1 looks
  at all entries, further slots stand for advertisements of other homes: they only fill capacity.
- An *item* is whatever happens at a time: a message that arrives, a publication, a timer. Its
  columns say what it is, for which broker, from whom, and what it carries.
- A publication in flight has a *row* of `reach`: per broker, 0 where no match lies at or beyond
  it, else 1 plus the matches at it. Rows count who still refers to them.
- A *calm* broker hears along the tree from one link only, and so passes on in the order in which
  it receives; it is a row of `calm`, after the one it is behind. Where direct sends or gossip come
  to it too, and it takes time, its messages wait in *streams*: one along the tree, one from each
  home, each in the order of arrival. What comes along the tree is no item: it lies together in
  `coming`, in chunks of `_CHUNK`, and behind the last there is one that never arrives.
- A *bundle* is a list of rows, for a batch or gossip; its links are *nodes*. When a round gossips
  one, it is put in `listed`, what matches at each member is written to `other_us` at once, as times
  of publication, and the list is done; `spans` says where. The times become delays when the gossip
  comes (`_gather`).
- `state` holds the clock, counters, and per table the first free place. Freed places are used
  again, so memory follows what is in flight. When a table may be too small for the next step,
  `_run` returns, Python doubles it, and `_run` goes on.

Items due within `_HORIZON` wait in a ring with a list per microsecond (`near`), later ones in a
heap (`far`). Both keep the order of sending at equal times; those in the heap were sent first. The
ring is as large as a cache; behind it a bit per microsecond says whether there is a list, so that
to begin one nothing is read that is not at hand, and little to find the next. What has left the
cache by the time it is needed is fetched ahead (`prefetch`). The compiler is told what it cannot
know and would provide for at each access: that a number read from a table is no negative index
(`natural`), and how many columns tables have (`has_columns`). Of the messages in a broker's line
only the first is among the items: see `_LINED`. What a step of the core puts on its heap a step
here puts among the items, in the same order, so that ties are settled as they are there.

Steps. `_run` takes the next item (`_next_item`), lets it wait in its broker's line (`_join`), and
does what its kind asks: deliver and pass on along the tree, publish (`_publish`: each slot sends
over the tree, directly, or into its buffer), send a batch, evaluate popularity (`_evaluate`,
Algorithm 1), gossip. Four short cuts change no counter. What is for calm brokers alone is no item:
whoever they are behind handles in one loop what happens there (`_tree_on`, `_batch_on`), under
the times at which it will. With streams, calm brokers fall behind the clock and catch up one by
one, outwards, every `_WINDOW_US` and before a gossip comes to them (`_catch_up`, up to a chunk at a
time): nothing they do along the tree comes back to others. Where brokers take no time and homes
count nothing for others, `_pass_on` handles a publication's whole way, and what is sent directly
arrives at once. What takes as long as a publication, which all is but batches and gossip, is in no
list of a calm broker's line: how many of them wait follows from the times alone (`_served_along`,
`_served_alike`, `_served`).

It mirrors the core publication by publication: the same gains, Algorithm 1 at the same moments,
the same buffers and timers, the same FIFO queues; counters are equal (`tests/differential`; and in
all 6,000 points with queues of seeds 0 to 1,999 of that test). One tie is open: a message comes to
a calm broker as a service ends that began in the microsecond in which the message was sent. Whether
it still finds that one in line is not looked up, and is taken to be so. Of 6,000 points on a clock
of 100 or 1,000 us 85 differ; in the 39 of them that were looked at, only the longest line does.
Subscriptions stand still and belong to one advertisement each, as in the paper's workload. Left
out: churn, faults, bounded buffers, the reorder buffer, priority classes, covering (which changes
no message). Gossip is a model of the core, not its equal: groups form at once, a
member's view is drawn anew each time, membership and digests cost nothing, a publication that
makes one link switch goes over the tree on all, and whom the first wave of relays does not reach
asks at its next round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba.cpython.unsafe.numbers import trailing_zeros

from postroad.errors import Unsupported
from postroad.jit import has_columns, inner, natural, njit, prefetch
from postroad.kernels import draws as keyed
from postroad.overlay import Overlay

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Nothing compiled here makes an array. Counting references to those it is given would take more
# time than all else, so it is turned off. `_Inputs` and `_Kept` are hundreds of words to pass on,
# so every function is inlined where it is called.
_compiled = inner(_nrt=False, forceinline=True)
_entry = njit(cache=True, _nrt=False)

MECHANISMS = {"tree": 0, "direct": 1, "batching": 2, "gossip": 3}
_TREE_ONLY, _DIRECTLY, _BATCHING, _GOSSIPING = range(4)

# What an item is: messages that a broker serves, what else is under way, timers. (Python's own
# integers would be compiled as constants, a function for each.)
_TREE, _DIRECT, _BATCH, _GOSSIP, _PUBLISH, _SENDS, _PULL = np.arange(7)
_EVALUATE, _FLUSH, _ROUND = np.arange(7, 10)
_NONE, _ZERO, _ONE = np.arange(-1, 2)  # as arguments, for the same reason
_SERVED = 16  # added once a broker has taken its time

# Columns. The first of a pool's table leads to the next in a list.
_NEXT = 0
_WHAT, _TARGET, _SENDER, _HOP, _LOAD, _SIZE, _DUE = range(1, 8)  # of items
_REFS, _PUBLICATION = range(1, 3)  # of rows
_ROW, _LINKS, _PUBLISHED_US = range(1, 4)  # of nodes: a row, the home's links behind which it is
# gossiped, as bits, and the time of its publication
_FROM, _UNTIL = 1, 2  # of nodes that stand for a batch or gossip in a calm broker's line
_HOLDERS, _HEAD, _OFFER, _ANY_LINKS = range(1, 5)  # of bundles
_FIRST, _LAST, _HELD = range(3)  # of whatever keeps a list of nodes, and then
_STAMP, _OFFERED, _POPULAR, _GOSSIPS = range(3, 7)  # of slots, see `_Inputs`
_GROUPED = 3  # of what waits for a round
_BUSY, _AREA, _LONGEST, _FRESH, _EVALUATES = range(3, 8)  # of brokers, and the items in line:
_LINED, _LINE_HEAD, _LINE_TAIL = range(8, 11)  # how many, and those behind the first
_UNITS_SINCE, _LISTED_US = _EVALUATES, 11  # of calm brokers, which evaluate nothing: since when
# they serve only what takes a unit of time, and how long what does not takes that is in line
_ARRIVES, _MATCHES, _SINCE, _TURN_OF = range(1, 5)  # of items in a stream, and when the
_NEXT_ARRIVES = _SIZE  # next one arrives, or `_NEVER`
# Of what comes along the tree to a calm broker: when it does, and once it was served, when that was
# over; the time of its publication; its turn; its row, hops and matches, in one number.
_AT, _PUBLISHED_AT, _NTH, _CARRIED = range(4)

# Of calm brokers; `_UP` is the row of the one they hear from, or how many there are if it is none.
# They have 32 bits, and are widened as arguments: other types would be another function.
_BROKER, _UP, _LINK, _ENTRY_US, _DEPTH, _TOOK_US, _BELOW, _BELOW_END = range(8)
_HEAD_OF, _TAIL_OF = range(2)  # of streams: the first; the last, or where the next will be

# How many columns tables have, which `_run` tells the compiler.
_ITEM_WIDE, _ROW_WIDE, _NODE_WIDE, _SLOT_WIDE = 8, 3, 4, 7
_BROKER_WIDE, _ALONG_WIDE, _COMING_WIDE, _CALM_WIDE = 12, 2, 4, 8

# Places in a run's state. A pool has two: the first free place, and how many were ever used.
_ITEMS, _ROWS, _NODES, _BUNDLES, _CHUNKS = np.arange(0, 10, 2)
_CLOCK, _NOW, _END, _LARGEST, _NEAR, _FAR, _TURN = range(10, 17)
_WAITING, _BUFFERED, _PUBLISHED, _DRAWN, _POPULAR_DELAYS, _OTHER_DELAYS = np.arange(17, 23)
_PURE, _FORWARDS, _HOPS, _QUEUED, _QUEUED_LENGTH = range(23, 28)
_GROUPS, _HEARD, _RECEIVED, _FALSE, _STEPS = range(28, 33)
_SENT = 33  # and the three that follow: publications, direct sends, batches, gossip
_STREAMED, _CATCH_UP, _PUT_OFF = range(37, 40)
_STATES = 40

_GROWING = (
    ("items",),
    ("far",),
    ("rows", "reach"),
    ("nodes", "listed"),
    ("bundles", "spans"),
    ("chunks", "coming"),
    ("popular_us",),
    ("other_us",),
)
_POOLS = (_ITEMS + 1, _FAR, _ROWS + 1, _NODES + 1, _BUNDLES + 1, _CHUNKS + 1)
_USED = (*_POOLS, _POPULAR_DELAYS, _OTHER_DELAYS)
_HORIZON = 1 << 18
_WINDOW_US = 1 << 14
_CHUNK = 16  # messages of a stream that lie together
_DELAYS = 1 << 25  # to make room for at first, if there may be so many; memory that is not used
_NEVER = np.int64(1 << 62)
_END_OF_RUN, _NEXT_PUBLICATION, _NOTHING = range(-1, -4, -1)  # instead of an item


@dataclass(frozen=True)
class WorkloadArrays:
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
    capacity_per_s: float | Floats = 125.0  # τ·φ, of all brokers or of each
    entries: str = "all"
    rule: str = "printed"
    reevaluate_us: int = 2_000_000
    hysteresis: float = 0.1
    batch_timeout_us: int = 3_000_000
    fanout: int = 2
    gossip_interval_us: int = 10_000_000
    service_us: int | Ints = 0  # of all brokers or of each
    batch_cost: Floats | None = None  # service of a batch of i+1 in units of one publication
    gossip_cost: Floats | None = None  # and of a gossip; as a batch if None
    direct_cost: float = 0.0  # what a direct send costs its sender, in the same units
    seed: int = 0


@dataclass(frozen=True)
class PopSubCounts:
    """What one run counted."""

    messages: dict[str, int]
    popular_us: Ints  # a delay per delivery over the tree
    unpopular_us: Ints  # and per delivery by the other mechanism
    pure_forwards: int
    forwards: int
    gain: float  # the sum over all forwards
    hops: int  # the sum over all deliveries
    direct_forwards: Ints  # how many publications took so many direct sends
    queue_area: Ints  # per broker: length times microseconds
    queue_max: Ints
    queued: int  # arrivals that found a queue
    queued_length: int  # the sum of the lengths they found
    gossip_groups: int
    gossips: int  # messages with publications that brokers received, duplicates included
    gossip_received: int  # publications that were new to the broker that received them
    gossip_false: int  # of these, those that no local subscription matched
    steps: int
    end_us: int

    @property
    def deliveries(self) -> int:
        return len(self.popular_us) + len(self.unpopular_us)


class _Inputs(NamedTuple):
    """What a run only reads."""

    pointers: Ints  # per broker, its first link
    neighbours: Ints  # per link
    latencies: Ints
    direct: Ints  # between any two brokers
    above: Ints  # per home and broker, the next on the way to the home
    first_link: Ints  # and the link by which what goes there leaves the home
    path_us: Ints  # the same by columns of `reach`: how long the way is
    depths: Ints  # and how many links it has
    inward: Ints  # and the link by which what comes from the home arrives
    entry: Ints  # and that by which it leaves the home
    inwards: npt.NDArray[np.uint32]  # and, the furthest first, each column and the next one's
    homes: Ints  # per advertisement
    rows: Ints  # per advertisement, the place of its home in `above`
    ratio: Floats  # per advertisement and link, the gain G
    slot_of: Ints  # per advertisement, its first slot: one for each link of its home
    slot_link: Ints
    slot_offer: Ints
    slot_column: Ints  # of `reach`: that of the broker at the other end
    listed: Ints  # per broker, the slots with subscriptions behind them
    ranked: Ints  # the same by descending gain
    passing: npt.NDArray[np.int32]  # per slot that only fills, its column of `forwards`
    listed_of: Ints  # per broker, where they begin
    counting: npt.NDArray[np.bool_]  # per broker, whether it counts what it forwards for others
    column: Ints  # per broker, its column of `reach`: those that are not calm come first
    inner: Ints  # per broker, its links to brokers that are not calm
    inner_of: Ints
    calm: npt.NDArray[np.int32]  # the calm brokers behind each other broker, outwards
    nearest: Ints  # the rows of those next to who they are behind
    nearest_of: Ints  # per row, where those from it on begin
    calm_of: Ints  # per broker that is not calm, where those behind it begin
    calm_from: Ints  # per link to a calm broker, where those behind it begin
    calm_until: Ints  # and end
    members: Ints  # per advertisement, the brokers with a subscription
    member_link: Ints  # and the link of the home behind which each is
    members_of: Ints
    starts: Ints  # per advertisement, its first subscription
    sub_column: npt.NDArray[np.uint32]  # of `reach`
    boxes: npt.NDArray[np.int32]  # the least and the greatest of either attribute: four rows
    pub_time: Ints
    pub_offer: Ints
    values: npt.NDArray[np.int32]
    cost: Floats
    gossip_cost: Floats
    capacity: Floats  # per broker
    service_us: Ints
    unit_us: Ints  # of one publication
    direct_us: Ints  # of one direct send


class _Rules(NamedTuple):
    mechanism: int
    prose: bool
    timed: bool  # whether brokers take time
    at_once: bool  # whether nothing can come between the hops of a publication along the tree
    alike: bool  # whether a broker takes as long for each message
    calm_alike: bool  # whether a calm one does
    streams: bool  # whether what is for calm brokers waits in streams
    period_us: int
    hysteresis: float
    timeout_us: int
    fanout: int
    interval_us: int
    key: np.uint64


class _Kept(NamedTuple):
    """What a run changes; the first twelve grow."""

    items: Ints
    far: Ints  # a heap of (time, turn, item)
    reach: npt.NDArray[np.unsignedinteger]  # 8 bits wide if that is enough
    rows: Ints
    nodes: Ints
    listed: Ints  # what a bundle lists, one after the other: row, links, time of publication
    bundles: Ints
    spans: Ints  # per bundle that is gossiped and broker: from where to where in `other_us`, or -1
    chunks: Ints  # each leads to the next of its stream
    coming: Ints  # along the tree to calm brokers, a chunk after the other
    popular_us: Ints  # a delay per delivery
    other_us: Ints
    state: Ints
    near: npt.NDArray[np.int32]  # the ring: per microsecond the last of a circular list, or -1
    # and, 32 microseconds to a number, bits for those with a list
    slots: Ints
    rate: Floats  # per slot
    brokers: Ints
    least: Floats  # per broker, the least gain among its popular slots
    forwards: npt.NDArray[np.int32]  # per advertisement: to each calm broker, then over each link
    histogram: Ints
    waiting: Ints  # per advertisement: what its next round gossips
    stack: Ints
    handled_us: Ints  # per calm broker, when it handles what is passed on now; last, who passes it
    matches: npt.NDArray[np.uint8]  # which subscriptions the publication taken last matches
    open: npt.NDArray[np.bool_]  # per link of its home, whether it goes along the tree
    parting: npt.NDArray[np.uint8]  # per column, whether the broker passes it on
    along: Ints  # per calm broker, the places in `coming` of its first and next message
    streams: Ints  # per calm broker: what comes from each home directly
    first_us: Ints  # and when the first of each arrives, or never
    earliest: Ints  # per calm broker, the home whose direct send arrives first, or -1


def simulate(overlay: Overlay, workload: WorkloadArrays, settings: Settings) -> PopSubCounts:
    """Run the workload on a tree."""
    if settings.mechanism not in MECHANISMS:
        raise Unsupported(f"no mechanism {settings.mechanism!r}; {', '.join(MECHANISMS)}")
    if settings.mechanism == "tree":  # popularity changes nothing
        settings = replace(settings, entries="own")
    inputs = _inputs(overlay, workload, settings)
    rules = _Rules(
        MECHANISMS[settings.mechanism],
        settings.rule == "prose",
        bool(np.any(inputs.service_us)),
        settings.entries == "own" and not np.any(inputs.service_us),
        settings.mechanism == "tree",
        settings.mechanism in ("tree", "direct"),
        settings.mechanism in ("direct", "gossip") and bool(np.any(inputs.service_us)),
        settings.reevaluate_us,
        settings.hysteresis,
        settings.batch_timeout_us,
        settings.fanout,
        settings.gossip_interval_us,
        keyed.base(settings.seed, "popsub.kernel"),
    )
    kept = _kept(inputs)
    while not _run(inputs, rules, kept, _limits(inputs, rules, kept)):
        kept = _grown(kept, _limits(inputs, rules, kept))
    state, brokers, calm = kept.state, kept.brokers, len(inputs.calm)
    forwards = kept.forwards[:, calm:].astype(np.int64)
    forwards[:, inputs.calm[:, _LINK]] += kept.forwards[:, :calm]
    end_us = int(state[_END])
    kinds = ("publication", "direct", "batch", "gossip")
    sent = state[_SENT : _SENT + len(kinds)]
    return PopSubCounts(
        messages={kind: int(n) for kind, n in zip(kinds, sent, strict=True) if n},
        popular_us=kept.popular_us[: state[_POPULAR_DELAYS]],
        unpopular_us=kept.other_us[: state[_OTHER_DELAYS]],
        pure_forwards=int(state[_PURE]),
        forwards=int(state[_FORWARDS]),
        gain=float((forwards * inputs.ratio).sum() + state[_SENT + 1]),
        hops=int(state[_HOPS]),
        direct_forwards=kept.histogram,
        queue_area=brokers[:, _AREA].copy(),
        queue_max=brokers[:, _LONGEST].copy(),
        queued=int(state[_QUEUED]),
        queued_length=int(state[_QUEUED_LENGTH]),
        gossip_groups=int(state[_GROUPS]),
        gossips=int(state[_HEARD]),
        gossip_received=int(state[_RECEIVED]),
        gossip_false=int(state[_FALSE]),
        steps=int(state[_STEPS]),
        end_us=end_us,
    )


def _inputs(overlay: Overlay, workload: WorkloadArrays, settings: Settings) -> _Inputs:
    peers = overlay.neighbours()
    pointers = np.cumsum([0] + [len(links) for links in peers])
    neighbours = np.array([peer for links in peers for peer in links], np.int64)
    latencies = np.array([us for links in peers for us in links.values()], np.int64)
    direct = overlay.direct_us
    if direct is None:
        direct = np.array([overlay.path_us(b) for b in range(len(peers))], np.int64)
    homes, rows = np.unique(workload.homes, return_inverse=True)
    above = np.stack([overlay.parents(int(home)) for home in homes])
    offers = len(workload.homes)
    order = np.argsort(workload.subscription_advertisement, kind="stable")
    starts = np.searchsorted(workload.subscription_advertisement[order], np.arange(offers + 1))
    sub_broker = workload.subscription_broker[order]
    behind = np.zeros((offers, len(peers)), np.int64)
    np.add.at(behind, (workload.subscription_advertisement, workload.subscription_broker), 1)
    degrees = np.diff(pointers)[workload.homes]
    if settings.mechanism == "gossip" and degrees.max(initial=0) > 62:
        raise Unsupported("gossip at a broker with more than 62 links")
    if behind.max(initial=0) >= np.iinfo(np.int16).max:
        raise Unsupported("more than 32,766 subscriptions to one advertisement at one broker")
    ratio, ways = _gains(peers, pointers, homes, rows, above, behind)
    first_link, path_us, depths, inward = ways

    slot_of = np.concatenate([[0], np.cumsum(degrees)])
    slot_offer = np.repeat(np.arange(offers), degrees)
    slot_link = pointers[workload.homes][slot_offer] + np.arange(slot_of[-1]) - slot_of[slot_offer]
    slot_home = workload.homes[slot_offer]
    filling = np.empty(0, np.int64)  # the links of slots that only fill
    if settings.entries == "all":
        link_at = np.repeat(np.arange(len(peers)), np.diff(pointers))
        others = ratio > 0
        others &= np.isin(link_at, homes)[None, :]
        others &= workload.homes[:, None] != link_at[None, :]
        further, filling = np.nonzero(others)
        slot_offer = np.concatenate([slot_offer, further])
        slot_link = np.concatenate([slot_link, filling])
        slot_home = np.concatenate([slot_home, link_at[filling]])
    gains = ratio[slot_offer, slot_link]
    listed = np.flatnonzero(gains > 0)
    listed = listed[np.lexsort((slot_offer[listed], slot_link[listed], slot_home[listed]))]
    by_gain = np.argsort(-gains[listed], kind="stable")
    ranked = listed[by_gain[np.argsort(slot_home[listed][by_gain], kind="stable")]]

    sub_offer = np.repeat(np.arange(offers), np.diff(starts))
    away = np.flatnonzero(sub_broker != workload.homes[sub_offer])
    pairs = sub_offer[away] * len(peers) + sub_broker[away]
    firsts = away[np.sort(np.unique(pairs, return_index=True)[1])]
    members, member_offer = sub_broker[firsts], sub_offer[firsts]
    member_link = first_link[rows[member_offer], members]
    member_link -= pointers[workload.homes[member_offer]]
    service_us = np.broadcast_to(np.asarray(settings.service_us, np.int64), len(peers)).copy()
    if service_us.any() and not service_us.all():
        raise Unsupported("brokers of which only some take time")
    batch_cost = np.arange(1.0, 2.0) if settings.batch_cost is None else settings.batch_cost
    unit_us = np.round(service_us * batch_cost[0]).astype(np.int64)
    column, inner, inner_of, calm, calm_of, calm_from, calm_until = _calm(
        peers, pointers, homes, above, unit_us
    )
    counted = len(calm) + np.arange(pointers[-1])
    counted[calm[:, _LINK]] = np.arange(len(calm))
    nearest = np.flatnonzero(calm[:, _UP] == len(calm))
    by_column = np.argsort(column)
    ahead = np.argsort(-depths, axis=1, kind="stable")[:, :-1]  # not the home
    behind_it = np.take_along_axis(above, ahead, axis=1)
    boxes, values = _narrowed(workload.low[order], workload.high[order], workload.values)
    return _Inputs(
        pointers,
        neighbours,
        latencies,
        direct,
        above,
        first_link,
        np.take(path_us, by_column, axis=1),
        np.take(depths, by_column, axis=1),
        np.take(inward, by_column, axis=1),
        np.take(first_link, by_column, axis=1),
        np.stack([column[ahead], column[behind_it]], axis=2).astype(np.uint32),
        workload.homes,
        rows,
        ratio,
        slot_of,
        slot_link,
        slot_offer,
        column[neighbours[slot_link]],
        listed,
        ranked,
        counted[filling].astype(np.int32),
        np.searchsorted(slot_home[listed], np.arange(len(peers) + 1)),
        np.isin(np.arange(len(peers)), homes) & (settings.entries == "all"),
        column,
        inner,
        inner_of,
        calm,
        nearest,
        np.searchsorted(nearest, np.arange(len(calm) + 1)),
        calm_of,
        calm_from,
        calm_until,
        members,
        member_link,
        np.searchsorted(member_offer, np.arange(offers + 1)),
        starts,
        column[sub_broker].astype(np.uint32),
        boxes,
        workload.time_us,
        workload.advertisement,
        values,
        batch_cost,
        batch_cost if settings.gossip_cost is None else settings.gossip_cost,
        np.broadcast_to(np.asarray(settings.capacity_per_s, np.float64), len(peers)).copy(),
        service_us,
        unit_us,
        np.round(service_us * settings.direct_cost).astype(np.int64),
    )


def _gains(
    peers: Sequence[Mapping[int, int]],
    pointers: Ints,
    homes: Ints,
    rows: Ints,
    above: Ints,
    behind: Ints,
) -> tuple[Floats, tuple[Ints, Ints, Ints, Ints]]:
    """Per advertisement and link G: the matching subscriptions behind it by their mean distance.

    And for each broker the way from each home: see `_Inputs`.
    """
    link_to = [
        {peer: int(first) + n for n, peer in enumerate(links)}
        for links, first in zip(peers, pointers, strict=False)
    ]
    ratio = np.zeros((behind.shape[0], pointers[-1]))
    depths, path_us = np.zeros_like(above), np.zeros_like(above)
    inward, first_link = np.full_like(above, -1), np.full_like(above, -1)
    for row, home in enumerate(homes.tolist()):
        outwards = [home]
        for broker in outwards:
            outwards += [peer for peer in peers[broker] if above[row, peer] == broker]
        for broker in outwards[1:]:
            up = int(above[row, broker])
            link = link_to[up][broker]
            depths[row, broker] = depths[row, up] + 1
            path_us[row, broker] = path_us[row, up] + peers[up][broker]
            inward[row, broker] = link
            first_link[row, broker] = link if up == home else first_link[row, up]
        offers = np.flatnonzero(rows == row)
        count = behind[offers].T.copy()
        far = np.zeros_like(count)
        for depth in range(depths[row].max(), 0, -1):  # the furthest first
            level = np.flatnonzero(depths[row] == depth)
            far[level] += count[level]
            gains = count[level] ** 2 / np.maximum(1, far[level])
            ratio[offers[:, None], inward[row, level]] = gains.T
            np.add.at(count, above[row, level], count[level])
            np.add.at(far, above[row, level], far[level])
    return ratio, (first_link, path_us, depths, inward)


def _narrowed(
    low: Ints, high: Ints, values: Ints
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Boxes, as four rows, and values in 32 bits: if they do not fit, their ranks."""
    bounds = np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]])
    at = np.array(values).reshape(-1, 2)
    parts = (bounds, at)
    widest = np.iinfo(np.int32)
    if any(((part < widest.min) | (part > widest.max)).any() for part in parts):
        known = np.unique(np.concatenate([bounds.ravel(), at.ravel()]))
        bounds, at = np.searchsorted(known, bounds), np.searchsorted(known, at)
    return bounds.astype(np.int32), at.astype(np.int32)


def _calm(
    peers: Sequence[Mapping[int, int]],
    pointers: Ints,
    homes: Ints,
    above: Ints,
    unit_us: Ints,
) -> tuple[Ints, Ints, Ints, npt.NDArray[np.int32], Ints, Ints, Ints]:
    """The brokers that hear from one link only, and where they are: see `_Inputs`."""
    count = len(peers)
    calm = (above == above[0]).all(axis=0)
    calm[homes] = False
    inner: list[int] = []
    rows: list[tuple[int, ...]] = []
    inner_of, calm_of = np.zeros((2, count + 1), np.int64)
    calm_from, calm_until = np.zeros((2, pointers[-1]), np.int64)
    for broker in range(count):
        inner_of[broker], calm_of[broker] = len(inner), len(rows)
        if calm[broker]:
            continue
        for link, peer in enumerate(peers[broker], int(pointers[broker])):
            if not calm[peer]:
                inner.append(link)
                continue
            calm_from[link] = len(rows)
            waiting = [(peer, calm.sum(), link, peers[broker][peer], 1, broker)]
            for at, up, entry, entry_us, depth, before in waiting:
                first = calm_from[link] + len(waiting)
                waiting += [
                    (below, len(rows), onwards, below_us, depth + 1, at)
                    for onwards, (below, below_us) in enumerate(peers[at].items(), pointers[at])
                    if below != before
                ]
                last = calm_from[link] + len(waiting)
                rows.append((at, up, entry, entry_us, depth, unit_us[at], first, last))
            calm_until[link] = len(rows)
    inner_of[count], calm_of[count] = len(inner), len(rows)
    table = np.array(rows, np.int32).reshape(-1, _CALM_WIDE)
    column = np.empty(count, np.int64)
    column[np.concatenate([np.flatnonzero(~calm), table[:, _BROKER]])] = np.arange(count)
    links = np.array(inner, np.int64)
    return column, links, inner_of, table, calm_of, calm_from, calm_until


def _kept(inputs: _Inputs) -> _Kept:
    brokers = len(inputs.pointers) - 1
    offers, links = inputs.ratio.shape
    subscriptions = np.diff(inputs.starts)
    deliveries = min(_DELAYS, int(subscriptions[inputs.pub_offer].sum()))
    deliveries += (_CHUNK + 1) * int(subscriptions.max(initial=0)) + 2
    most = np.bincount(  # the most subscriptions to one advertisement at one broker
        np.repeat(np.arange(offers), subscriptions) * brokers + inputs.sub_column
    ).max(initial=0)
    state = np.zeros(_STATES, np.int64)
    for empty in (_ITEMS, _ROWS, _NODES, _BUNDLES, _CHUNKS):
        state[empty] = -1
    state[_CHUNKS + 1] = len(inputs.calm)
    coming = np.empty((4 * brokers * _CHUNK, _COMING_WIDE), np.int64)
    # Each stream has a chunk.
    along = np.repeat(_CHUNK * np.arange(len(inputs.calm)), 2).reshape(-1, _ALONG_WIDE)
    coming[along[:, _HEAD_OF], _AT] = _NEVER
    state[_PUT_OFF] = _NOTHING
    slots = np.zeros((len(inputs.slot_link), _SLOT_WIDE), np.int64)
    slots[:, _POPULAR] = 1
    columns = np.zeros((brokers, _BROKER_WIDE), np.int64)
    columns[:, _FRESH] = 1
    return _Kept(
        items=np.empty((1 << 14, _ITEM_WIDE), np.int64),
        far=np.empty((1 << 10, 3), np.int64),
        reach=np.empty((1 << 8, brokers), np.uint8 if most < 255 else np.uint16),
        rows=np.empty((1 << 8, _ROW_WIDE), np.int64),
        nodes=np.empty((1 << 10, _NODE_WIDE), np.int64),
        listed=np.empty((1 << 10, 3), np.int64),
        bundles=np.empty((1 << 8, 5), np.int64),
        spans=np.empty((1 << 8, brokers, 2), np.int64),
        chunks=np.empty((4 * brokers, 1), np.int64),
        coming=coming,
        popular_us=np.empty(deliveries, np.int64),
        other_us=np.empty(deliveries, np.int64),
        state=state,
        near=np.repeat(np.array([-1, 0], np.int32), [_HORIZON, _HORIZON >> 5]),
        slots=slots,
        rate=np.zeros(len(slots)),
        brokers=columns,
        least=np.full(brokers, -1.0),
        forwards=np.zeros((offers, len(inputs.calm) + links), np.int32),
        histogram=np.zeros(brokers + 1, np.int64),
        waiting=np.zeros((len(inputs.homes), 4), np.int64),
        stack=np.empty(brokers, np.int64),
        handled_us=np.empty(len(inputs.calm) + 1, np.int64),
        matches=np.empty(int(subscriptions.max(initial=0)), np.uint8),
        open=np.zeros(len(inputs.neighbours), np.bool_),
        parting=np.zeros(brokers, np.uint8),
        along=along,
        streams=np.full((len(inputs.calm), len(inputs.above), 2), -1),
        first_us=np.full((len(inputs.calm), len(inputs.above)), _NEVER),
        earliest=np.full(len(inputs.calm), -1),
    )


def _limits(inputs: _Inputs, rules: _Rules, kept: _Kept) -> Ints:
    """How much of each growing table may be in use for one more step to fit.

    And before it, one more message to a calm broker.
    """
    brokers = len(kept.brokers)
    step = 3 * brokers + rules.fanout + 2
    matches = np.diff(inputs.starts).max(initial=0)  # of one publication
    return np.array(  # and last the most matches of a publication
        [
            len(kept.items) - step,
            len(kept.far) - step,
            len(kept.rows) - 1,
            len(kept.nodes) - 4 * brokers - 2,
            len(kept.bundles) - brokers,
            len(kept.chunks) - 2 * brokers,
            len(kept.popular_us) - (_CHUNK + 1) * matches - 1,  # `_deliver` writes one more
            len(kept.other_us) - matches * (_held_most(kept.state) + 2) - 1,
            matches,
        ]
    )


def _grown(kept: _Kept, limits: Ints) -> _Kept:
    """With twice the room where the next step may find too little."""
    short = kept.state[np.array(_USED)] > limits[: len(_USED)]
    doubled = {
        name: np.concatenate([table, np.empty_like(table)])
        for lacks, names in zip(short, _GROWING, strict=True)
        for name in names
        if lacks
        for table in [getattr(kept, name)]
    }
    return kept._replace(**doubled)


@_entry
def _held_most(state):
    """How many publications a step may deliver in batches at one broker, or gather for gossip."""
    return state[_BUFFERED] + state[_LARGEST]


@_compiled
def _full(state, limits):
    """Whether a table may be too small for the next step."""
    full = False
    for n in range(len(_USED)):
        full |= state[_USED[n]] > limits[n]
    return full


@_compiled
def _new(state, pool, table):
    """An unused place of a pool: one that was freed, or the next."""
    place = state[pool]
    if place >= 0:
        following = table[place, _NEXT]
        state[pool] = following
        prefetch(table, following, _NEXT)
    else:
        place = state[pool + 1]
        state[pool + 1] += 1
    return natural(place)


@_compiled
def _free(state, pool, table, place):
    table[place, _NEXT] = state[pool]
    state[pool] = place


@_compiled
def _fetch(items, item):
    """An item will be read soon, and has not been for long; it lies in two cache lines."""
    prefetch(items, item, _NEXT)
    prefetch(items, item, _DUE)


@_compiled
def _heap_push(far, size, time, turn, item):
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if far[above, 0] < time or (far[above, 0] == time and far[above, 1] < turn):
            break
        far[at, 0], far[at, 1], far[at, 2] = far[above, 0], far[above, 1], far[above, 2]
        at = above
    far[at, 0], far[at, 1], far[at, 2] = time, turn, item


@_compiled
def _heap_pop(far, size):
    """Take the first away and put the last, at `size`, where it belongs."""
    time, turn = far[size, 0], far[size, 1]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        right = below + 1
        if right < size and (
            far[right, 0] < far[below, 0]
            or (far[right, 0] == far[below, 0] and far[right, 1] < far[below, 1])
        ):
            below = right
        if time < far[below, 0] or (time == far[below, 0] and turn < far[below, 1]):
            break
        far[at, 0], far[at, 1], far[at, 2] = far[below, 0], far[below, 1], far[below, 2]
        at = below
    far[at, 0], far[at, 1], far[at, 2] = time, turn, far[size, 2]


@_compiled
def _schedule(state, items, near, far, time, item, sent_us):
    """Let an item happen; equal times keep the order of sending."""
    items[item, _DUE] = sent_us
    if time - state[_CLOCK] >= _HORIZON:
        _heap_push(far, state[_FAR], time, state[_TURN], item)
        state[_FAR] += 1
        state[_TURN] += 1
        return
    place = time & (_HORIZON - 1)
    state[_NEAR] += 1
    if not near[_HORIZON + (place >> 5)] >> (place & 31) & 1:
        near[_HORIZON + (place >> 5)] |= 1 << (place & 31)
        items[item, _NEXT] = item
        near[place] = item
        return
    before = natural(np.int64(near[place]))
    if items[before, _DUE] <= sent_us:
        near[place] = item
    else:  # what a calm broker will serve was put here early
        while items[natural(items[before, _NEXT]), _DUE] <= sent_us:
            before = natural(items[before, _NEXT])
    items[item, _NEXT] = items[before, _NEXT]
    items[before, _NEXT] = item


@_compiled
def _send(state, items, near, far, delay_us, what, target, sender, hop, load, size):
    """A new message or timer."""
    item = _new(state, _ITEMS, items)
    items[item, _WHAT], items[item, _TARGET], items[item, _SENDER] = what, target, sender
    items[item, _HOP], items[item, _LOAD], items[item, _SIZE] = hop, load, size
    if what <= _PULL:
        state[_WAITING] += 1
    _schedule(state, items, near, far, state[_NOW] + delay_us, item, state[_NOW])


@_compiled
def _release(state, rows, row):
    rows[row, _REFS] -= 1
    if rows[row, _REFS] == 0:
        _free(state, _ROWS, rows, row)


@_compiled
def _append(state, nodes, rows, lists, place, row, published_us):
    """Put a publication at the end of a list that waits to be sent."""
    node = _new(state, _NODES, nodes)
    nodes[node, _ROW], nodes[node, _LINKS], nodes[node, _NEXT] = row, 0, -1
    nodes[node, _PUBLISHED_US] = published_us
    rows[row, _REFS] += 1
    if lists[place, _HELD] == 0:
        lists[place, _FIRST] = node
    else:
        nodes[natural(lists[place, _LAST]), _NEXT] = node
    lists[place, _LAST] = node
    lists[place, _HELD] += 1
    state[_BUFFERED] += 1


@_compiled
def _bundle(state, bundles, lists, place, offer):
    """What a list holds, taken from it."""
    bundle = _new(state, _BUNDLES, bundles)
    bundles[bundle, _HOLDERS], bundles[bundle, _OFFER] = 0, offer
    bundles[bundle, _HEAD] = lists[place, _FIRST]
    state[_LARGEST] = max(state[_LARGEST], lists[place, _HELD])
    state[_BUFFERED] -= lists[place, _HELD]
    lists[place, _HELD] = 0
    return bundle


@_compiled
def _let_go(state, rows, nodes, bundles, bundle):
    """A message with this bundle is done."""
    bundles[bundle, _HOLDERS] -= 1
    if bundles[bundle, _HOLDERS] == 0:
        _empty(state, rows, nodes, bundles, bundle)
        _free(state, _BUNDLES, bundles, bundle)


@_compiled
def _empty(state, rows, nodes, bundles, bundle):
    """What a bundle lists is done."""
    node = bundles[bundle, _HEAD]
    while node >= 0:
        following = nodes[node, _NEXT]
        _release(state, rows, nodes[node, _ROW])
        _free(state, _NODES, nodes, node)
        node = following


@_compiled
def _deliver(state, delays, kind, delay_us, count, hop):
    at = state[kind]
    delays[at] = delay_us  # if there is none, the next one writes here: no branch to mispredict
    for n in range(at + 1, at + count):
        delays[n] = delay_us
    state[kind] = at + count
    state[_HOPS] += count * hop


@_compiled
def _served_alike(state, brokers, broker, now, sent_us, took_us):
    """A message joins a calm broker's line; the time at which it will have been served.

    The broker takes as long for each: those in line will have been served in steps of `took_us`
    before the broker is free; how many there are needs no list.
    """
    free_us = brokers[broker, _BUSY]
    length = 0
    if free_us < now:
        free_us = now
        brokers[broker, _UNITS_SINCE] = now
    else:
        length = (free_us - now + took_us - 1) // took_us
        if (  # one that is served right now may leave after this one comes
            free_us - now == length * took_us
            and brokers[broker, _UNITS_SINCE] < now
            and now - took_us >= sent_us
        ):
            length += 1
        state[_QUEUED] += length > 0
        state[_QUEUED_LENGTH] += length
    done = free_us + took_us
    brokers[broker, _BUSY] = done
    brokers[broker, _AREA] += done - now
    brokers[broker, _LONGEST] = max(brokers[broker, _LONGEST], length + 1)
    return done


@_compiled
def _tree_on(inputs, rules, kept, row, count, published_us, hop):
    """A publication along the tree to so many calm brokers, which are on the stack.

    Whoever they are behind has it since the last of `handled_us`, after so many hops.
    """
    state, calm, stack, handled_us = kept.state, inputs.calm, kept.stack, kept.handled_us
    cells = kept.reach[row, kept.reach.shape[1] - len(calm) :]
    latest = state[_END]
    for n in range(count):
        place = natural(stack[n])
        here = cells[place] - 1
        sent_us = handled_us[natural(calm[place, _UP])]
        done = sent_us + calm[place, _ENTRY_US]
        broker, took_us = natural(np.int64(calm[place, _BROKER])), np.int64(calm[place, _TOOK_US])
        if rules.timed and rules.alike:
            done = _served_alike(state, kept.brokers, broker, done, sent_us, took_us)
        elif rules.timed:
            done = _served(state, kept.nodes, kept.brokers, broker, done, sent_us, took_us, took_us)
        handled_us[place] = done
        latest = max(latest, done)
        depth = hop + calm[place, _DEPTH]
        _deliver(state, kept.popular_us, _POPULAR_DELAYS, done - published_us, here, depth)
    state[_END] = latest


@_compiled
def _count_on(state, cells, forwards):
    """What a publication counts at calm brokers, whenever it comes there."""
    sent, pure = np.int32(0), np.int32(0)
    for n in range(len(cells)):  # as narrow as `forwards`: many at once
        goes = np.int32(cells[n] > 0)
        sent = np.int32(sent + goes)
        pure = np.int32(pure + np.int32(cells[n] == 1))  # then it matches further on
        forwards[n] += goes
    state[_STEPS] += sent
    state[_FORWARDS] += sent
    state[_SENT] += sent
    state[_PURE] += pure
    return sent


@_compiled
def _before(items, item, other):
    """Whether an item comes before another."""
    if items[item, _ARRIVES] != items[other, _ARRIVES]:
        return items[item, _ARRIVES] < items[other, _ARRIVES]
    if items[item, _DUE] != items[other, _DUE]:
        return items[item, _DUE] < items[other, _DUE]
    return items[item, _TURN_OF] < items[other, _TURN_OF]


@_compiled
def _turn(state):
    """A number for each send."""
    state[_TURN] += 1
    return state[_TURN]


@_compiled
def _earliest(items, heads, first_us):
    """The home whose stream to a calm broker has the first of all heads, or -1."""
    least = _NEVER
    for home in range(len(first_us)):
        least = min(least, first_us[home])
    if least == _NEVER:
        return _NONE
    first, ties = _NONE, 0
    for home in range(len(first_us)):  # no branch to mispredict
        first = np.int64(home) if first_us[home] == least else first
        ties += first_us[home] == least
    if ties > 1:
        for home in range(len(first_us)):
            if first_us[home] == least and _before(items, heads[home], heads[first]):
                first = np.int64(home)
    return first


@_compiled
def _send_directly_to(
    state, items, streams, first_us, earliest, place, home, matches, since_us, arrives_us
):
    """A publication from a home to a calm broker, which arrives after those sent there before."""
    first = earliest[place]
    item = _new(state, _ITEMS, items)
    items[item, _NEXT], items[item, _NEXT_ARRIVES] = -1, _NEVER
    items[item, _MATCHES], items[item, _SINCE] = matches, since_us
    items[item, _ARRIVES], items[item, _DUE] = arrives_us, state[_NOW]
    items[item, _TURN_OF] = _turn(state)
    if first_us[place, home] == _NEVER:
        first_us[place, home] = arrives_us
        streams[place, home, _HEAD_OF] = item
    else:
        last = streams[place, home, _TAIL_OF]
        items[last, _NEXT], items[last, _NEXT_ARRIVES] = item, arrives_us
    streams[place, home, _TAIL_OF] = item
    state[_STREAMED] += 1
    if first < 0 or _before(items, item, streams[place, first, _HEAD_OF]):
        earliest[place] = home


@_compiled
def _after(state, chunks, at):
    """Where the next message goes in `coming`."""
    at += 1
    if at % _CHUNK == 0:
        following = _new(state, _CHUNKS, chunks)
        chunks[(at - 1) // _CHUNK, _NEXT] = following
        at = following * _CHUNK
    return at


@_compiled
def _served_along(state, coming, first, count, brokers, broker, entry_us, took_us):
    """What `_served` does, for many messages along the tree of which each takes a unit."""
    busy_us, since_us = brokers[broker, _BUSY], brokers[broker, _UNITS_SINCE]
    area, longest = brokers[broker, _AREA], brokers[broker, _LONGEST]
    queued, queued_length, unit_us = 0, 0, max(1, took_us)  # it never divides by zero
    for n in range(first, first + count):  # no branch to mispredict
        now = coming[n, _AT]
        idle = now > busy_us
        since_us = now if idle else since_us
        left_us = max(0, busy_us - now)
        length = np.int64(np.uint64(left_us + unit_us - 1) // np.uint64(unit_us))
        ending = (left_us == length * unit_us) & (not idle) & (since_us < now)
        length += ending & (entry_us >= took_us)
        queued += length > 0
        queued_length += length
        busy_us = max(now, busy_us) + took_us
        area += busy_us - now
        longest = max(longest, length + 1)
        coming[n, _AT] = busy_us
    brokers[broker, _BUSY], brokers[broker, _UNITS_SINCE] = busy_us, since_us
    brokers[broker, _AREA], brokers[broker, _LONGEST] = area, longest
    state[_QUEUED] += queued
    state[_QUEUED_LENGTH] += queued_length


@_compiled
def _catch_up(inputs, rules, kept, limits, place, until_us, sent_us, turn):
    """A calm broker serves what comes to it before something else; False if room runs out.

    Whoever it is behind has done so already.
    """
    state, items, brokers, calm = kept.state, kept.items, kept.brokers, inputs.calm
    chunks, coming, reach, rows = kept.chunks, kept.coming, kept.reach, kept.rows
    popular_us = kept.popular_us
    heads, first_us = kept.streams[place, :, _HEAD_OF], kept.first_us[place]
    broker, took_us = natural(np.int64(calm[place, _BROKER])), np.int64(calm[place, _TOOK_US])
    below, below_end = np.int64(calm[place, _BELOW]), np.int64(calm[place, _BELOW_END])
    entry_us = np.int64(calm[place, _ENTRY_US])
    columns = reach.shape[1] - len(calm)
    while True:
        home, directly = kept.earliest[place], False
        before_us, before_sent_us, before_turn = until_us, sent_us, turn
        if home >= 0:
            item, arrives_us = natural(heads[home]), first_us[home]
            directly = arrives_us < until_us or (
                arrives_us == until_us
                and (
                    items[item, _DUE] < sent_us
                    or (items[item, _DUE] == sent_us and items[item, _TURN_OF] <= turn)
                )
            )
            if directly:
                before_us = arrives_us
                before_sent_us, before_turn = items[item, _DUE], items[item, _TURN_OF]
        first = natural(kept.along[place, _HEAD_OF])
        last, end = first, (first // _CHUNK + 1) * _CHUNK
        while last < end and coming[last, _AT] < before_us:
            last += 1
        while (
            last < end
            and coming[last, _AT] == before_us
            and (
                before_us - entry_us < before_sent_us
                or (before_us - entry_us == before_sent_us and coming[last, _NTH] <= before_turn)
            )
        ):
            last += 1
        if last == first and not directly:
            return True
        if _full(state, limits):
            return False
        if last == first:
            item, now = natural(heads[home]), first_us[home]
            done = _served_alike(state, brokers, broker, now, items[item, _DUE], took_us)
            state[_END] = max(state[_END], done)
            state[_STREAMED] -= 1
            _fetch(items, items[items[item, _NEXT], _NEXT])  # if there is none, it is not used
            since_us, matches = items[item, _SINCE], items[item, _MATCHES]
            heads[home], first_us[home] = items[item, _NEXT], items[item, _NEXT_ARRIVES]
            _free(state, _ITEMS, items, item)
            kept.earliest[place] = _earliest(items, heads, first_us)
            _deliver(state, kept.other_us, _OTHER_DELAYS, done - since_us, matches, _ONE)
            state[_STEPS] += 1
            continue
        if below < below_end:
            for n in range(first, last):
                row = coming[n, _CARRIED] >> 32
                prefetch(reach, row, columns + below)
                prefetch(rows, row, _REFS)
        if rules.calm_alike or brokers[broker, _HELD] == 0:
            _served_along(state, coming, first, last - first, brokers, broker, entry_us, took_us)
        else:
            for n in range(first, last):
                now = coming[n, _AT]
                coming[n, _AT] = _served(
                    state, kept.nodes, brokers, broker, now, now - entry_us, took_us, took_us
                )
        state[_END] = max(state[_END], coming[last - 1, _AT])
        state[_STREAMED] -= last - first
        at, hops = state[_POPULAR_DELAYS], 0
        for n in range(first, last):
            matches, hop = coming[n, _CARRIED] & 0xFFFF, (coming[n, _CARRIED] >> 16) & 0xFFFF
            delay_us = coming[n, _AT] - coming[n, _PUBLISHED_AT]
            popular_us[at] = delay_us  # as in `_deliver`
            for m in range(at + 1, at + matches):
                popular_us[m] = delay_us
            at += matches
            hops += matches * hop
        state[_POPULAR_DELAYS] = at
        state[_HOPS] += hops
        for to in range(below, below_end):
            cells = reach[:, columns + to]
            _pass_below(state, chunks, coming, first, last, kept.along, cells, rows, calm, to)
        if below < below_end:
            for n in range(first, last):
                _release(state, rows, natural(coming[n, _CARRIED] >> 32))
        kept.along[place, _HEAD_OF] = last
        if last == end:
            chunk = first // _CHUNK
            kept.along[place, _HEAD_OF] = chunks[chunk, _NEXT] * _CHUNK
            _free(state, _CHUNKS, chunks, chunk)


@_compiled
def _pass_below(state, chunks, coming, first, last, along, cells, rows, calm, to):
    """What a calm broker has served goes on to one that is behind it."""
    entry_us = np.int64(calm[to, _ENTRY_US])
    onwards = calm[to, _BELOW] < calm[to, _BELOW_END]
    at, sent = natural(along[to, _TAIL_OF]), np.int64(0)
    for n in range(first, last):
        carried = natural(coming[n, _CARRIED])
        cell = np.int64(cells[carried >> 32])
        goes = cell > 0
        coming[at, _AT] = coming[n, _AT] + entry_us
        coming[at, _PUBLISHED_AT], coming[at, _NTH] = coming[n, _PUBLISHED_AT], 0
        coming[at, _CARRIED] = (((carried >> 16) + 1) << 16) + cell - 1
        sent += goes
        if onwards:
            rows[carried >> 32, _REFS] += goes
        if goes & ((at + 1) % _CHUNK == 0):
            at = _after(state, chunks, at)
        else:
            at += goes
    coming[at, _AT] = _NEVER
    along[to, _TAIL_OF] = at
    state[_STREAMED] += sent


@_compiled
def _catch_up_all(inputs, rules, kept, limits, until_us):
    """All calm brokers do, outwards, up to a time; whether there was room."""
    for place in range(len(inputs.calm)):
        later = min(place + 4, len(inputs.calm) - 1)
        prefetch(kept.coming, kept.along[later, _HEAD_OF], _AT)
        prefetch(kept.coming, kept.along[later, _HEAD_OF] + 2, _AT)
        prefetch(kept.brokers, inputs.calm[later, _BROKER], _BUSY)
        prefetch(kept.brokers, inputs.calm[later, _BROKER], _LISTED_US)
        if not _catch_up(inputs, rules, kept, limits, place, until_us, _NONE, _ZERO):
            return False
    kept.state[_CATCH_UP] = until_us + _WINDOW_US
    return True


@_compiled
def _catch_up_for(inputs, rules, kept, limits, gossip):
    """Who gets a gossip now does, after those it is behind; whether there was room."""
    calm, stack = inputs.calm, kept.stack
    now = kept.state[_CLOCK]
    broker, sent_us = kept.items[gossip, _TARGET], kept.items[gossip, _DUE]
    turn = kept.items[gossip, _TURN_OF]
    place = inputs.column[broker] - (kept.reach.shape[1] - len(calm))
    depth = 0
    while 0 <= place < len(calm):
        stack[depth] = place
        depth += 1
        place = calm[place, _UP]
    while depth > 0:
        depth -= 1
        before_us = sent_us if depth == 0 else _NONE
        if not _catch_up(inputs, rules, kept, limits, stack[depth], now, before_us, turn):
            return False
    return True


@_compiled
def _over_calm(inputs, rules, kept, row, first, last, hop):
    """A publication goes along the tree to the calm brokers from `first` to `last`; if to any.

    Who sends it there is so many hops away from its home.
    """
    state, calm, stack = kept.state, inputs.calm, kept.stack
    columns = kept.reach.shape[1] - len(calm)
    number = natural(kept.rows[row, _PUBLICATION])
    offer, since_us = natural(inputs.pub_offer[number]), inputs.pub_time[number]
    cells = kept.reach[row, columns + first : columns + last]
    sent = _count_on(state, cells, kept.forwards[offer, first:last])
    count = 0  # neither loop that counts has a branch to mispredict
    if rules.streams:
        for n in range(natural(inputs.nearest_of[first]), natural(inputs.nearest_of[last])):
            stack[count] = inputs.nearest[n]
            count += cells[natural(inputs.nearest[n] - first)] > 0
        chunks, coming, along, turn = kept.chunks, kept.coming, kept.along, state[_TURN]
        for n in range(count):
            place = natural(stack[n])
            here = np.int64(cells[natural(place - first)]) - 1
            at = natural(along[place, _TAIL_OF])
            coming[at, _AT] = state[_NOW] + calm[place, _ENTRY_US]
            coming[at, _PUBLISHED_AT], coming[at, _NTH] = since_us, turn + n + 1
            coming[at, _CARRIED] = row << 32 | (hop + 1) << 16 | here
            at = _after(state, chunks, at)
            coming[at, _AT] = _NEVER
            along[place, _TAIL_OF] = at
            kept.rows[row, _REFS] += calm[place, _BELOW] < calm[place, _BELOW_END]
        state[_STREAMED] += count
        state[_TURN] = turn + count
    else:
        for n in range(len(cells)):
            stack[count] = first + n
            count += cells[n] > 0
        kept.handled_us[len(calm)] = state[_NOW]
        _tree_on(inputs, rules, kept, row, count, since_us, hop)
    return sent > 0


@_compiled
def _wanted(kept, bundle, column):
    """How many publications of a bundle match at a broker or beyond."""
    size, cells = 0, kept.reach[:, column]
    node = kept.bundles[bundle, _HEAD]
    while node >= 0:
        size += cells[natural(kept.nodes[node, _ROW])] > 0
        node = kept.nodes[node, _NEXT]
    return size


@_compiled
def _deliver_bundle(kept, bundle, column, now, hop):
    """What of a bundle matches at a broker; whether anything does."""
    delivered, cells = False, kept.reach[:, column]
    node = kept.bundles[bundle, _HEAD]
    while node >= 0:
        here = cells[natural(kept.nodes[node, _ROW])] - 1
        if here > 0:
            delay_us = now - kept.nodes[node, _PUBLISHED_US]
            _deliver(kept.state, kept.other_us, _OTHER_DELAYS, delay_us, here, hop)
            delivered = True
        node = kept.nodes[node, _NEXT]
    return delivered


@_compiled
def _batch_on(inputs, rules, kept, bundle, first, last, hop):
    """The same for a batch: each broker gets what matches at it or beyond."""
    state, handled_us, cost, calm = kept.state, kept.handled_us, inputs.cost, inputs.calm
    offer = kept.bundles[bundle, _OFFER]
    columns = kept.reach.shape[1] - len(calm)
    handled_us[len(calm)] = state[_NOW]
    sent = 0
    for place in range(first, last):
        size = _wanted(kept, bundle, columns + place)
        if size == 0:
            continue
        broker = np.int64(calm[place, _BROKER])
        sent += 1
        kept.forwards[offer, place] += size
        sent_us = handled_us[calm[place, _UP]]
        done = sent_us + calm[place, _ENTRY_US]
        if rules.timed:
            took_us = round(inputs.service_us[broker] * cost[min(size, cost.shape[0]) - 1])
            unit_us = np.int64(calm[place, _TOOK_US])
            done = _served(state, kept.nodes, kept.brokers, broker, done, sent_us, took_us, unit_us)
        handled_us[place] = done
        state[_END] = max(state[_END], done)
        depth = hop + calm[place, _DEPTH]
        delivered = _deliver_bundle(kept, bundle, columns + place, done, depth)
        state[_PURE] += not delivered
    state[_STEPS] += sent
    state[_FORWARDS] += sent
    state[_SENT + 2] += sent
    return sent


@_compiled
def _evaluate(inputs, rules, kept, home):
    """Algorithm 1 at one broker; whether anything was counted since that before the last."""
    capacity = inputs.capacity[home]
    slots, rate = kept.slots, kept.rate
    own = inputs.slot_of[-1]
    first, last = inputs.listed_of[home], inputs.listed_of[home + 1]
    active = False
    filled = 0.0
    for at in range(first, last):
        slot = natural(inputs.listed[at])
        offered = slots[slot, _OFFERED]
        slots[slot, _OFFERED] = 0
        if slot >= own:  # of another home: what went on over the link so far, and had before
            forwarded = kept.forwards[inputs.slot_offer[slot], inputs.passing[slot - own]]
            slots[slot, _OFFERED] = forwarded
            offered = forwarded - offered
        active |= (offered > 0) | (rate[slot] > 0)
        rate[slot] = offered / (rules.period_us / 1e6)
        filled += rate[slot] * slots[slot, _POPULAR]  # no branch to mispredict
    fresh = kept.brokers[home, _FRESH]
    if fresh or abs(filled - capacity) > rules.hysteresis * capacity:
        filled, cut = 0.0, -1.0
        for at in range(first, last):
            slot = natural(inputs.ranked[at])
            if rules.prose:
                slots[slot, _POPULAR] = cut < 0 and filled + rate[slot] <= capacity
            else:
                slots[slot, _POPULAR] = filled < capacity
            if slots[slot, _POPULAR]:
                filled += rate[slot]
            elif cut < 0:
                cut = inputs.ratio[inputs.slot_offer[slot], inputs.slot_link[slot]]
        if rules.prose:
            for at in range(first, last):
                slot = inputs.ranked[at]
                if inputs.ratio[inputs.slot_offer[slot], inputs.slot_link[slot]] <= cut:
                    slots[slot, _POPULAR] = 0
        kept.least[home] = -1.0
        for at in range(first, last):
            slot = inputs.ranked[at]
            if slots[slot, _POPULAR]:
                kept.least[home] = inputs.ratio[inputs.slot_offer[slot], inputs.slot_link[slot]]
    kept.brokers[home, _FRESH] = 0
    return active


@_compiled
def _evaluate_later(rules, kept, broker):
    if not kept.brokers[broker, _EVALUATES]:
        kept.brokers[broker, _EVALUATES] = 1
        _send(
            kept.state, kept.items, kept.near, kept.far, rules.period_us,
            _EVALUATE, broker, _NONE, _ZERO, _ZERO, _ZERO,
        )  # fmt: skip


@_compiled
def _send_batch(inputs, rules, kept, slot):
    """All that a link's buffer holds, as one message."""
    state = kept.state
    link, offer = inputs.slot_link[slot], inputs.slot_offer[slot]
    size = kept.slots[slot, _HELD]
    bundle = _bundle(state, kept.bundles, kept.slots, slot, offer)
    kept.bundles[bundle, _HOLDERS] = 1
    first, last = inputs.calm_from[link], inputs.calm_until[link]
    if first < last:
        _batch_on(inputs, rules, kept, bundle, first, last, _ZERO)
        _let_go(state, kept.rows, kept.nodes, kept.bundles, bundle)
        return
    state[_FORWARDS] += 1
    state[_SENT + 2] += 1
    kept.forwards[offer, len(inputs.calm) + link] += size
    _send(
        state, kept.items, kept.near, kept.far, inputs.latencies[link],
        _BATCH, inputs.neighbours[link], inputs.homes[offer], _ONE, bundle, size,
    )  # fmt: skip


@_compiled
def _send_directly(inputs, rules, kept, row, link, offer, leaves):
    """A publication to each broker behind a link that it matches at; how many.

    Unless it `leaves` now they are only counted.
    """
    state, stack, reach = kept.state, kept.stack, kept.reach
    broker, peer = inputs.homes[offer], inputs.neighbours[link]
    published_us = inputs.pub_time[kept.rows[row, _PUBLICATION]]
    straight = _send_directly_behind(
        inputs, rules, kept, row, offer, leaves, inputs.calm_from[link], inputs.calm_until[link]
    )
    depth = 1 if inputs.calm_from[link] == inputs.calm_until[link] else 0
    stack[0] = peer
    while depth > 0:
        depth -= 1
        at = stack[depth]
        here = reach[row, inputs.column[at]] - 1
        if here > 0:
            straight += 1
            way = inputs.latencies[link] if at == peer else inputs.direct[broker, at]
            if not rules.timed:  # nothing else can change what happens there
                _deliver_at_once(state, kept.other_us, way, published_us, here)
            elif leaves:
                kept.rows[row, _REFS] += 1
                _send(
                    state, kept.items, kept.near, kept.far, way,
                    _DIRECT, at, broker, _ONE, row, _ONE,
                )  # fmt: skip
        for n in range(inputs.inner_of[at], inputs.inner_of[at + 1]):
            below = inputs.neighbours[inputs.inner[n]]
            if (
                reach[row, inputs.column[below]] > 0
                and inputs.above[inputs.rows[offer], below] == at
            ):
                stack[depth] = below
                depth += 1
        straight += _send_directly_behind(
            inputs, rules, kept, row, offer, leaves, inputs.calm_of[at], inputs.calm_of[at + 1]
        )
    if leaves:
        state[_FORWARDS] += straight
        state[_SENT + 1] += straight
    return straight


@_compiled
def _send_directly_behind(inputs, rules, kept, row, offer, leaves, first, last):
    """The same to the calm brokers from `first` to `last`."""
    state, calm = kept.state, inputs.calm
    home, published_us = inputs.homes[offer], inputs.pub_time[kept.rows[row, _PUBLICATION]]
    columns = kept.reach.shape[1] - len(calm)
    cells = kept.reach[row, columns + first : columns + last]
    straight = 0
    for n in range(len(cells)):
        straight += cells[n] > 1
    if straight == 0 or not leaves:
        return straight
    for n in range(len(cells)):
        here = cells[n] - 1
        if here <= 0:
            continue
        at = calm[first + n, _BROKER]
        near = inputs.above[inputs.rows[offer], at] == home
        way = calm[first + n, _ENTRY_US] if near else inputs.direct[home, at]
        if rules.timed:
            _send_directly_to(
                state, kept.items, kept.streams, kept.first_us, kept.earliest, first + n,
                inputs.rows[offer], here, published_us, state[_NOW] + way,
            )  # fmt: skip
        else:
            _deliver_at_once(state, kept.other_us, way, published_us, here)
    return straight


@_compiled
def _deliver_at_once(state, other_us, way_us, published_us, here):
    """What is sent directly to a broker that takes no time."""
    state[_STEPS] += 1
    state[_END] = max(state[_END], state[_NOW] + way_us)
    _deliver(state, other_us, _OTHER_DELAYS, state[_NOW] + way_us - published_us, here, _ONE)


@_compiled
def _pass_on(inputs, kept, row, offer):
    """A publication all the way along the tree behind the home's links that are open to it."""
    state, reach, forwards = kept.state, kept.reach, kept.forwards
    stack, parting, popular_us = kept.stack, kept.parting, kept.popular_us
    home = inputs.rows[offer]
    entry, inward = inputs.entry[home], inputs.inward[home]
    path_us, depths = inputs.path_us[home], inputs.depths[home]
    calm = len(inputs.calm)
    inwards, cells = inputs.inwards[home], reach[row]
    touched, sent, pure, furthest_us = 0, 0, 0, 0
    for n in range(len(inwards)):  # no branch to mispredict
        stack[touched] = inwards[n, 0]
        touched += cells[inwards[n, 0]] > 0
    for n in range(touched):
        at = stack[n]
        if not kept.open[entry[at]]:
            continue
        sent += 1
        forwards[offer, calm + inward[at]] += 1
        furthest_us = max(furthest_us, path_us[at])
        here = cells[at] - 1
        if here > 0:
            _deliver(state, popular_us, _POPULAR_DELAYS, path_us[at], here, depths[at])
        elif parting[at]:
            pure += 1
    state[_STEPS] += sent
    state[_FORWARDS] += sent
    state[_SENT] += sent
    state[_PURE] += pure
    state[_END] = max(state[_END], state[_NOW] + furthest_us)


@_compiled
def _publish(inputs, rules, kept, row):
    """A publication leaves its home by each link; whether any goes along the tree."""
    state, slots, waiting = kept.state, kept.slots, kept.waiting
    items, near, far = kept.items, kept.near, kept.far
    number = natural(kept.rows[row, _PUBLICATION])
    offer, published_us = natural(inputs.pub_offer[number]), inputs.pub_time[number]
    broker = natural(inputs.homes[offer])
    first, last = natural(inputs.slot_of[offer]), natural(inputs.slot_of[offer + 1])
    forwarded, asked, waits = False, False, False
    straight, leaving = 0, -1
    switching = False  # the publication that switches to gossip goes over the tree
    if rules.mechanism == _GOSSIPING:
        for slot in range(first, last):
            leads = (
                kept.reach[row, natural(inputs.slot_column[slot])] > 0
            )  # no branch to mispredict
            switching |= leads & ((slots[slot, _POPULAR] | slots[slot, _GOSSIPS]) == 0)
    for slot in range(first, last):
        if kept.reach[row, natural(inputs.slot_column[slot])] == 0:
            continue
        link = natural(inputs.slot_link[slot])
        peer = inputs.neighbours[link]
        asked = True
        slots[slot, _OFFERED] += 1
        over_tree = True
        if rules.mechanism != _TREE_ONLY and not slots[slot, _POPULAR]:
            over_tree = switching
            if rules.mechanism == _GOSSIPING and not slots[slot, _GOSSIPS]:
                slots[slot, _GOSSIPS] = 1
                if not waiting[offer, _GROUPED]:
                    waiting[offer, _GROUPED] = 1
                    state[_GROUPS] += 1
                    _send(
                        state, items, near, far, rules.interval_us, _ROUND, broker, _NONE, _ZERO,
                        offer, _ZERO,
                    )  # fmt: skip
        elif rules.mechanism == _GOSSIPING:
            slots[slot, _GOSSIPS] = 0
        elif slots[slot, _HELD] > 0:
            _send_batch(
                inputs, rules, kept, slot
            )  # the buffer goes first: see _send_popular in the core
            forwarded = True
        kept.open[link] = over_tree
        if over_tree and rules.at_once:
            forwarded = True
        elif over_tree and inputs.calm_from[link] < inputs.calm_until[link]:
            forwarded = _over_calm(
                inputs, rules, kept, row, inputs.calm_from[link], inputs.calm_until[link], _ZERO
            )
        elif over_tree:
            kept.rows[row, _REFS] += 1
            state[_FORWARDS] += 1
            state[_SENT] += 1
            kept.forwards[offer, len(inputs.calm) + link] += 1
            _send(
                state, items, near, far, inputs.latencies[link], _TREE, peer, broker, _ONE, row,
                _ONE,
            )  # fmt: skip
            forwarded = True
        elif rules.mechanism == _DIRECTLY:
            later = inputs.direct_us[broker] > 0
            straight += _send_directly(inputs, rules, kept, row, link, offer, not later)
            if later:
                node = _new(state, _NODES, kept.nodes)
                kept.nodes[node, _ROW], kept.nodes[node, _NEXT] = link, leaving
                leaving = node
        elif rules.mechanism == _GOSSIPING:
            if not waits:  # once, however many links gossip
                waits = True
                _append(state, kept.nodes, kept.rows, waiting, offer, row, published_us)
            kept.nodes[natural(waiting[offer, _LAST]), _LINKS] |= 1 << (slot - first)
        else:
            _append(state, kept.nodes, kept.rows, slots, slot, row, published_us)
            if slots[slot, _HELD] == 1:
                slots[slot, _STAMP] += 1
                _send(
                    state, items, near, far, rules.timeout_us,
                    _FLUSH, broker, _NONE, slots[slot, _STAMP], slot, _ZERO,
                )  # fmt: skip
            elif kept.least[broker] >= 0 and slots[slot, _HELD] > np.ceil(
                kept.least[broker] / inputs.ratio[offer, link] - 1e-9
            ):
                _send_batch(inputs, rules, kept, slot)
                forwarded = True
    if forwarded and rules.at_once:
        _pass_on(inputs, kept, row, offer)
    if asked:
        _evaluate_later(rules, kept, broker)
    if straight > 0:
        kept.histogram[straight] += 1
        if inputs.direct_us[broker] > 0:  # the sends join the line of their sender
            kept.rows[row, _REFS] += 1
            item = _new(state, _ITEMS, items)
            items[item, _WHAT], items[item, _TARGET], items[item, _SENDER] = _SENDS, broker, leaving
            items[item, _LOAD], items[item, _SIZE] = row, straight
            _join(inputs, kept, item, broker)
    return forwarded


@_compiled
def _send_all(inputs, rules, kept, item):
    """Direct sends whose turn in the line of their sender is over."""
    row, node = kept.items[item, _LOAD], kept.items[item, _SENDER]
    offer = inputs.pub_offer[kept.rows[row, _PUBLICATION]]
    while node >= 0:
        # A constant would be a type of its own, and all of it compiled once more.
        leaves = np.bool_(True)
        _send_directly(inputs, rules, kept, row, kept.nodes[node, _ROW], offer, leaves)
        following = kept.nodes[node, _NEXT]
        _free(kept.state, _NODES, kept.nodes, node)
        node = following
    _release(kept.state, kept.rows, row)


@_compiled
def _on_batch(inputs, rules, kept, item):
    """A batch is delivered and split among the links; whether each happened.

    The message carries the whole bundle: what has come this way is what matches further on.
    """
    state, items = kept.state, kept.items
    broker, sender = items[item, _TARGET], items[item, _SENDER]
    bundle, hop = items[item, _LOAD], items[item, _HOP]
    offer = kept.bundles[bundle, _OFFER]
    delivered = _deliver_bundle(kept, bundle, inputs.column[broker], state[_NOW], hop)
    forwarded = False
    for at in range(inputs.inner_of[broker], inputs.inner_of[broker + 1]):
        link = inputs.inner[at]
        peer = inputs.neighbours[link]
        if peer == sender:
            continue
        size = _wanted(kept, bundle, inputs.column[peer])
        if size > 0:
            kept.bundles[bundle, _HOLDERS] += 1
            state[_FORWARDS] += 1
            state[_SENT + 2] += 1
            kept.forwards[offer, len(inputs.calm) + link] += size
            _send(
                state, items, kept.near, kept.far, inputs.latencies[link],
                _BATCH, peer, broker, hop + 1, bundle, size,
            )  # fmt: skip
            if inputs.counting[broker]:
                _evaluate_later(rules, kept, broker)
            forwarded = True
    first, last = inputs.calm_of[broker], inputs.calm_of[broker + 1]
    if first < last:
        forwarded |= _batch_on(inputs, rules, kept, bundle, first, last, hop) > 0
        if forwarded and inputs.counting[broker]:
            _evaluate_later(rules, kept, broker)
    _let_go(state, kept.rows, kept.nodes, kept.bundles, bundle)
    return delivered, forwarded


@_compiled
def _crowd(inputs, kept, bundle, broker):
    """Puts on the stack who else gossips about an advertisement, or has to get this bundle."""
    offer, links = kept.bundles[bundle, _OFFER], kept.bundles[bundle, _ANY_LINKS]
    first, last = natural(inputs.slot_of[offer]), inputs.slot_of[offer + 1]
    for slot in range(first, last):
        links |= kept.slots[slot, _GOSSIPS] << (slot - first)
    crowd = 0
    for m in range(natural(inputs.members_of[offer]), inputs.members_of[offer + 1]):
        kept.stack[crowd] = inputs.members[m]  # no branch to mispredict
        crowd += (links >> inputs.member_link[m]) & (inputs.members[m] != broker)
    return crowd


@_compiled
def _tell(inputs, rules, kept, broker, bundle, size, crowd):
    """A bundle to `fanout` members drawn from those on the stack."""
    state = kept.state
    for _ in range(min(rules.fanout, crowd)):
        state[_DRAWN] += 1
        to = natural(kept.stack[natural(keyed.below(crowd, rules.key, broker, state[_DRAWN]))])
        state[_SENT + 3] += 1
        kept.bundles[bundle, _HOLDERS] += 1
        _send(
            state, kept.items, kept.near, kept.far, inputs.direct[broker, to],
            _GOSSIP, to, broker, _turn(state), bundle, size,
        )  # fmt: skip


@_compiled
def _on_round(inputs, rules, kept, broker, offer):
    """What has waited since the last round goes out; who misses it asks at its own next round."""
    state, bundles, waiting, stack = kept.state, kept.bundles, kept.waiting, kept.stack
    size = waiting[offer, _HELD]
    if size == 0:
        return
    bundle = _bundle(state, bundles, waiting, offer, offer)
    bundles[bundle, _ANY_LINKS] = 0
    nodes, listed, node = kept.nodes, kept.listed, bundles[bundle, _HEAD]
    for n in range(size):
        node = natural(node)
        listed[n, 0], listed[n, 1] = nodes[node, _ROW], nodes[node, _LINKS]
        listed[n, 2] = nodes[node, _PUBLISHED_US]
        bundles[bundle, _ANY_LINKS] |= nodes[node, _LINKS]
        node = nodes[node, _NEXT]
    crowd = _crowd(inputs, kept, bundle, broker)
    for other in range(kept.spans.shape[1]):
        kept.spans[bundle, other, 0] = -1  # whoever is no member needs nothing
    for m in range(crowd):
        _gather(inputs, kept, bundle, size, stack[m])
    state[_RECEIVED] += crowd * size
    _empty(state, kept.rows, kept.nodes, bundles, bundle)
    if crowd == 0:  # nobody is left to tell
        _free(state, _BUNDLES, bundles, bundle)
        return
    for m in range(crowd):
        to = stack[m]
        state[_DRAWN] += 1
        pause = keyed.below(rules.interval_us, rules.key, broker, state[_DRAWN])
        bundles[bundle, _HOLDERS] += 1
        _send(
            state, kept.items, kept.near, kept.far, pause + 2 * inputs.direct[broker, to],
            _PULL, to, broker, _ONE, bundle, size,
        )  # fmt: skip
    _tell(inputs, rules, kept, broker, bundle, size, crowd)


@_compiled
def _gather(inputs, kept, bundle, size, broker):
    """What of a bundle matches at a member, for when it comes there.

    Rows are read here, one member after the other, while they are in the cache.
    """
    state, listed, other_us = kept.state, kept.listed, kept.other_us
    offer, cells = kept.bundles[bundle, _OFFER], kept.reach[:, inputs.column[broker]]
    link = inputs.first_link[inputs.rows[offer], broker] - inputs.pointers[inputs.homes[offer]]
    first = state[_OTHER_DELAYS]
    last, unwanted = first, 0
    for n in range(size):
        cell = np.int64(cells[natural(listed[n, 0])])
        here = (cell - (cell > 0)) * ((listed[n, 1] >> link) & 1)
        unwanted += here == 0
        published_us = listed[n, 2]
        other_us[last] = published_us  # as in `_deliver`
        for m in range(last + 1, last + here):
            other_us[m] = published_us
        last += here
    kept.spans[bundle, broker, 0], kept.spans[bundle, broker, 1] = first, last
    state[_OTHER_DELAYS] = last
    state[_HOPS] += last - first
    state[_FALSE] += unwanted


@_compiled
def _on_gossip(inputs, rules, kept, item):
    state, items = kept.state, kept.items
    broker, bundle = natural(items[item, _TARGET]), natural(items[item, _LOAD])
    first, last = kept.spans[bundle, broker]
    if first < 0:
        state[_HEARD] += items[item, _WHAT] != _PULL  # who has it already does not ask for it
    else:
        state[_HEARD] += 1
        kept.spans[bundle, broker, 0] = -1
        if items[item, _WHAT] == _PULL:
            state[_SENT + 3] += 2  # the request and the answer
        for n in range(natural(first), last):
            kept.other_us[n] = state[_NOW] - kept.other_us[n]
        crowd = _crowd(inputs, kept, bundle, broker)
        _tell(inputs, rules, kept, broker, bundle, items[item, _SIZE], crowd)
    kept.bundles[bundle, _HOLDERS] -= 1
    if kept.bundles[bundle, _HOLDERS] == 0:
        _free(state, _BUNDLES, kept.bundles, bundle)


@_compiled
def _take(inputs, kept):
    """The next publication as an item, with its row: who leads to a match, and how many."""
    state, column = kept.state, inputs.column
    number = state[_PUBLISHED]
    state[_PUBLISHED] += 1
    offer = natural(inputs.pub_offer[natural(number)])
    home = natural(inputs.homes[offer])
    row = _new(state, _ROWS, kept.rows)
    kept.rows[row, _REFS], kept.rows[row, _PUBLICATION] = 1, number
    x, y = inputs.values[number, 0], inputs.values[number, 1]
    first, last = inputs.starts[offer], inputs.starts[offer + 1]
    boxes, matches, columns = inputs.boxes, kept.matches, inputs.sub_column[first:last]
    low_x, high_x = boxes[0, first:last], boxes[1, first:last]
    low_y, high_y = boxes[2, first:last], boxes[3, first:last]
    for n in range(len(columns)):  # nothing here is a branch to mispredict
        matches[n] = (low_x[n] <= x) & (x <= high_x[n]) & (low_y[n] <= y) & (y <= high_y[n])
    cells, parting = kept.reach[row], kept.parting
    cells[:] = 0
    parting[:] = 0
    for n in range(len(columns)):
        cells[columns[n]] += matches[n]
    cells[column[home]] += 1
    inwards = inputs.inwards[inputs.rows[offer]]
    for n in range(len(inwards)):
        at, up = inwards[n, 0], inwards[n, 1]
        leads = parting[at] | (cells[at] > 0)
        cells[at] += leads
        parting[up] |= leads
    item = _new(state, _ITEMS, kept.items)
    kept.items[item, _WHAT], kept.items[item, _TARGET] = _PUBLISH, home
    kept.items[item, _SENDER], kept.items[item, _HOP] = -1, 0
    kept.items[item, _LOAD], kept.items[item, _SIZE] = row, 1
    kept.items[item, _DUE] = -1  # before whatever else happens at this time
    return item


@_compiled
def _listed(near, time):
    """Bits for those of the next times, 33 to 64, at which the ring has a list."""
    word = (time & (_HORIZON - 1)) >> 5
    following = (word + 1) & ((_HORIZON >> 5) - 1)
    both = np.uint64(np.uint32(near[_HORIZON + word]))
    both |= np.uint64(np.uint32(near[_HORIZON + following])) << np.uint64(32)
    return both >> np.uint64(time & 31)


@_compiled
def _first_listed(near, time, until):
    """The first time from one on at which the ring has a list, or any after `until`."""
    bits = _listed(near, time)
    while bits == 0 and time < until:
        time = (time | 31) + 33
        bits = _listed(near, time)
    return time + np.int64(trailing_zeros(bits))


@_compiled
def _next_item(state, items, near, far, pub_time):
    """What happens next; at equal times a publication comes first."""
    published = state[_PUBLISHED]
    left = pub_time.shape[0] - published
    due = pub_time[published] if left > 0 else _NEVER
    first = min(due, far[0, 0]) if state[_FAR] > 0 else due
    now = first
    if state[_NEAR] > 0:
        now = min(first, _first_listed(near, state[_CLOCK], first))
    if left == 0 and state[_WAITING] == 0 and state[_BUFFERED] == 0 and now >= state[_END]:
        return _END_OF_RUN
    state[_CLOCK] = now
    if now == due:
        return _NEXT_PUBLICATION
    if now < first:
        place = now & (_HORIZON - 1)
        last = natural(np.int64(near[place]))
        item = natural(items[last, _NEXT])
        later = now + 1 + np.int64(trailing_zeros(_listed(near, now + 1)))
        _fetch(items, near[later & (_HORIZON - 1)])
        if item == last:
            near[place] = -1
            near[_HORIZON + (place >> 5)] ^= 1 << (place & 31)
        else:
            items[last, _NEXT] = items[item, _NEXT]
        state[_NEAR] -= 1
    else:
        item = natural(far[0, 2])
        state[_FAR] -= 1
        _heap_pop(far, state[_FAR])
    if items[item, _WHAT] <= _PULL or items[item, _WHAT] >= _SERVED:
        state[_WAITING] -= 1
    return item


@_compiled
def _served(state, nodes, brokers, broker, now, sent_us, took_us, unit_us):
    """What `_served_alike` does, where a message may take another time than a unit.

    Only those that do are listed: the rest of the time until the broker is free consists of units.
    """
    node, length = natural(brokers[broker, _FIRST]), brokers[broker, _HELD]
    while length > 0 and (
        nodes[node, _UNTIL] < now or (nodes[node, _UNTIL] == now and nodes[node, _FROM] < sent_us)
    ):
        brokers[broker, _UNITS_SINCE] = nodes[node, _UNTIL]
        brokers[broker, _LISTED_US] -= nodes[node, _UNTIL] - nodes[node, _FROM]
        following = natural(nodes[node, _NEXT])
        _free(state, _NODES, nodes, node)
        node = following
        length -= 1
        brokers[broker, _FIRST], brokers[broker, _HELD] = node, length
    begins = max(now, brokers[broker, _BUSY])
    if begins > brokers[broker, _BUSY]:
        brokers[broker, _UNITS_SINCE] = now
    else:
        units_us, over_us = begins - now, 0
        if length > 0:
            over_us = max(0, now - nodes[node, _FROM])
            units_us -= brokers[broker, _LISTED_US] - over_us
        units = (units_us + unit_us - 1) // unit_us
        if (  # one that is served right now may leave after this one comes
            units_us == units * unit_us
            and over_us == 0
            and brokers[broker, _UNITS_SINCE] < now
            and now - unit_us >= sent_us
        ):
            units += 1
        length += units
        state[_QUEUED] += length > 0
        state[_QUEUED_LENGTH] += length
    done = begins + took_us
    if took_us != unit_us:
        new = _new(state, _NODES, nodes)
        nodes[new, _FROM], nodes[new, _UNTIL] = begins, done
        if brokers[broker, _HELD] > 0:
            nodes[natural(brokers[broker, _LAST]), _NEXT] = new
        else:
            brokers[broker, _FIRST] = new
        brokers[broker, _LAST] = new
        brokers[broker, _HELD] += 1
        brokers[broker, _LISTED_US] += took_us
    brokers[broker, _BUSY] = done
    brokers[broker, _AREA] += done - now
    brokers[broker, _LONGEST] = max(brokers[broker, _LONGEST], length + 1)
    return done


@_compiled
def _join(inputs, kept, item, broker):
    """An item joins the line of a broker that is not calm, which is among the items itself."""
    state, items, brokers = kept.state, kept.items, kept.brokers
    now, length = state[_NOW], brokers[broker, _LINED]
    took_us = _takes(inputs, items, item, broker)
    state[_QUEUED] += length > 0
    state[_QUEUED_LENGTH] += length
    done = max(now, brokers[broker, _BUSY]) + took_us
    brokers[broker, _BUSY] = done
    brokers[broker, _AREA] += done - now
    brokers[broker, _LONGEST] = max(brokers[broker, _LONGEST], length + 1)
    _line_up(state, items, kept.near, kept.far, brokers, broker, item, done, done - took_us)


@_compiled
def _line_up(state, items, near, far, brokers, broker, item, done, begins):
    """An item waits behind others at its broker, or will be served at a time."""
    items[item, _WHAT] += _SERVED
    state[_WAITING] += 1
    ahead = brokers[broker, _LINED]
    brokers[broker, _LINED] += 1
    if ahead == 0:
        _schedule(state, items, near, far, done, item, begins)
        return
    items[item, _DUE] = done
    if ahead == 1:
        brokers[broker, _LINE_HEAD] = item
    else:
        items[natural(brokers[broker, _LINE_TAIL]), _NEXT] = item
    brokers[broker, _LINE_TAIL] = item


@_compiled
def _takes(inputs, items, item, broker):
    """How long a broker serves a message."""
    what = items[item, _WHAT] & (_SERVED - 1)
    if what in (_TREE, _PUBLISH):
        return inputs.unit_us[broker]
    if what == _SENDS:
        return items[item, _SIZE] * inputs.direct_us[broker]
    cost = inputs.gossip_cost if what == _GOSSIP else inputs.cost
    return round(inputs.service_us[broker] * cost[min(items[item, _SIZE], cost.shape[0]) - 1])


@_entry
def _run(inputs, rules, kept, limits):
    """Steps until all is done, or a table may be too small for the next; whether all is done."""
    state, items, near, far = kept.state, kept.items, kept.near, kept.far
    has_columns(kept.items, _ITEM_WIDE)
    has_columns(kept.rows, _ROW_WIDE)
    has_columns(kept.nodes, _NODE_WIDE)
    has_columns(kept.slots, _SLOT_WIDE)
    has_columns(kept.brokers, _BROKER_WIDE)
    has_columns(kept.along, _ALONG_WIDE)
    has_columns(kept.coming, _COMING_WIDE)
    has_columns(inputs.calm, _CALM_WIDE)
    reach, rows, brokers = kept.reach, kept.rows, kept.brokers
    inner, inner_of = inputs.inner, inputs.inner_of
    neighbours, latencies = inputs.neighbours, inputs.latencies
    pub_time, pub_offer = inputs.pub_time, inputs.pub_offer
    forwards, popular_us, other_us = kept.forwards, kept.popular_us, kept.other_us
    column, counting = inputs.column, inputs.counting
    calm, calm_of = inputs.calm, inputs.calm_of
    columns = reach.shape[1] - len(calm)
    while True:
        if _full(state, limits):
            return False
        if state[_OTHER_DELAYS] + limits[-1] * (_held_most(state) + 2) >= other_us.shape[0]:
            return False
        item = state[_PUT_OFF]
        if item == _NOTHING:
            item = _next_item(state, items, near, far, pub_time)
        state[_PUT_OFF] = _NOTHING
        over = item == _END_OF_RUN
        if over and state[_STREAMED] == 0:
            return True
        if over or (rules.streams and state[_CLOCK] >= state[_CATCH_UP]):
            until_us = _NEVER if over else state[_CLOCK]
            if not _catch_up_all(inputs, rules, kept, limits, until_us):
                state[_PUT_OFF] = item
                return False
        if over:
            continue
        if item == _NEXT_PUBLICATION:
            item = _take(inputs, kept)
        item = natural(item)
        now = state[_CLOCK]
        sent_us = items[item, _DUE]
        state[_NOW] = now
        state[_END] = max(state[_END], now)
        kind = items[item, _WHAT]
        broker = natural(items[item, _TARGET])

        if kind >= _SERVED:
            kind -= _SERVED
            items[item, _WHAT] = kind
            brokers[broker, _LINED] -= 1
            if brokers[broker, _LINED] > 0:
                following = natural(brokers[broker, _LINE_HEAD])
                brokers[broker, _LINE_HEAD] = items[following, _NEXT]
                done = items[following, _DUE]
                took_us = _takes(inputs, items, following, broker)
                _schedule(state, items, near, far, done, following, done - took_us)
                row = items[following, _LOAD]  # if it is a bundle, what is fetched is not used
                _fetch(items, brokers[broker, _LINE_HEAD])
                prefetch(rows, row, _REFS)
                prefetch(reach, row, 0)
                prefetch(reach, row, columns + calm_of[broker])
                prefetch(reach, row, columns + calm_of[broker + 1] - 1)
        elif rules.timed and kind <= _PUBLISH:
            if kind == _GOSSIP:
                if not _catch_up_for(inputs, rules, kept, limits, item):
                    state[_PUT_OFF] = item
                    return False
                prefetch(kept.spans[natural(items[item, _LOAD])], broker, 0)
            if column[broker] < columns:
                _join(inputs, kept, item, broker)
            else:  # what else it serves is not among the items
                took_us = _takes(inputs, items, item, broker)
                unit_us = np.int64(calm[column[broker] - columns, _TOOK_US])
                done = _served(state, kept.nodes, brokers, broker, now, sent_us, took_us, unit_us)
                _line_up(state, items, near, far, brokers, broker, item, done, done - took_us)
            continue

        state[_STEPS] += 1
        delivered, forwarded = False, False
        if kind == _TREE:
            row, sender = natural(items[item, _LOAD]), items[item, _SENDER]
            hop = items[item, _HOP]
            _free(state, _ITEMS, items, item)
            number = natural(rows[row, _PUBLICATION])
            offer = natural(pub_offer[number])
            here = reach[row, natural(column[broker])] - 1
            delivered = here > 0
            _deliver(state, popular_us, _POPULAR_DELAYS, now - pub_time[number], here, hop)
            for at in range(natural(inner_of[broker]), natural(inner_of[broker + 1])):
                link = natural(inner[at])
                peer = natural(neighbours[link])
                if peer != sender and reach[row, natural(column[peer])] > 0:
                    rows[row, _REFS] += 1
                    state[_FORWARDS] += 1
                    state[_SENT] += 1
                    forwards[offer, len(calm) + link] += 1
                    _send(
                        state, items, near, far, latencies[link], _TREE, peer, broker, hop + 1,
                        row, _ONE,
                    )  # fmt: skip
                    if counting[broker]:
                        _evaluate_later(rules, kept, broker)
                    forwarded = True
            first, last = natural(calm_of[broker]), natural(calm_of[broker + 1])
            if _over_calm(inputs, rules, kept, row, first, last, hop):
                if counting[broker]:
                    _evaluate_later(rules, kept, broker)
                forwarded = True
            _release(state, rows, row)
        elif kind == _PUBLISH:
            row = natural(items[item, _LOAD])
            here = reach[row, column[broker]] - 1
            delivered = here > 0
            delay_us = now - pub_time[rows[row, _PUBLICATION]]
            _deliver(state, popular_us, _POPULAR_DELAYS, delay_us, here, _ZERO)
            forwarded = _publish(inputs, rules, kept, row)
            _release(state, rows, row)
            _free(state, _ITEMS, items, item)
        elif kind == _SENDS:
            state[_STEPS] -= 1  # it was one with the publication
            _send_all(inputs, rules, kept, item)
            _free(state, _ITEMS, items, item)
        elif kind == _DIRECT:
            row = items[item, _LOAD]
            delay_us = now - pub_time[rows[row, _PUBLICATION]]
            here = reach[row, column[broker]] - 1
            _deliver(state, other_us, _OTHER_DELAYS, delay_us, here, _ONE)
            _release(state, rows, row)
            _free(state, _ITEMS, items, item)
        elif kind == _BATCH:
            delivered, forwarded = _on_batch(inputs, rules, kept, item)
            _free(state, _ITEMS, items, item)
        elif kind == _FLUSH:
            slot = items[item, _LOAD]
            waits = kept.slots[slot, _HELD] > 0
            if waits and kept.slots[slot, _STAMP] == items[item, _HOP]:
                _send_batch(inputs, rules, kept, slot)
                forwarded = True
            _free(state, _ITEMS, items, item)
        elif kind == _EVALUATE:
            if _evaluate(inputs, rules, kept, broker):
                _schedule(state, items, near, far, now + rules.period_us, item, now)
            else:
                brokers[broker, _EVALUATES] = 0
                _free(state, _ITEMS, items, item)
        elif kind == _ROUND:
            _schedule(state, items, near, far, now + rules.interval_us, item, now)
            _on_round(inputs, rules, kept, broker, items[item, _LOAD])
        else:
            _on_gossip(inputs, rules, kept, item)
            _free(state, _ITEMS, items, item)
        if forwarded and not delivered:
            state[_PURE] += 1
