"""What a publication costs on its way, for every set of brokers that may want it.

Once all subscriptions stand, a scheme's way for a publication depends on its broker, on what the
scheme reads of its content (a topic, a zone, a group; `key`) and on which brokers want it. A
`Visits` are all visits that a publication from one broker with one key may make, the broker's own
first and each after the one it comes from. The first `base` are always made; the others only if
they lead to a broker that wants the publication, which gets it in the visit `spot` says. So
flooding is a tree whose visits are all always made, filtering on a tree one where only the first
is, and unicast a star. `price` counts visits for many sets at once.

Omitted: queues, changes, faults, and all messages but those that carry publications. Advertisement
forwarding is priced for publishers that keep to what they advertise. Covering saves subscription
messages only, so it makes no difference here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from postroad.errors import InputError
from postroad.filters import EVERYTHING
from postroad.jit import njit
from postroad.matching import Index
from postroad.model import BrokerId, Publication, Scalar, Subscription, TimeUs
from postroad.overlay import IntArray, Overlay
from postroad.overlay.latencies import between_all
from postroad.routing import SCHEMES, fbr
from postroad.routing.base import Deliver, Interests, LinkUp, Publish, Received, Send
from postroad.routing.direct import PathsPlan
from postroad.routing.kyra import KyraPlan
from postroad.routing.mbr import GroupPlan
from postroad.routing.ring import RingPlan

Key = str
"""What a scheme reads of a publication's content, as a text; empty if nothing."""
RINGS = ("beaconvey", "scribe", "iscribe")
TREES = ("flooding", "subscription_forwarding", "advertisement_forwarding")
PRICED = (*TREES, "unicast", "ideal_multicast", "kyra", "fbr", "mbr", *RINGS)
"""The schemes that can be priced."""


@dataclass(frozen=True, eq=False)
class Visits:
    """See the module. `notice[v]`: whether visit v comes as a notification, not a publication."""

    node: IntArray
    above: IntArray
    notice: IntArray
    hops: IntArray
    delay_us: IntArray
    spot: IntArray
    base: int


def _as_way(
    visits: Sequence[tuple[int, int, TimeUs, bool]],
    spots: Mapping[BrokerId, int],
    brokers: int,
    base: int,
) -> Visits:
    """From (node, visit before, latency from there, whether a notification) of each visit."""
    node, above, latency_us, notice = np.array(visits, np.int64).reshape(-1, 4).T.copy()
    hops, delay_us = np.zeros_like(node), np.zeros_like(node)
    _measure(above, latency_us, hops, delay_us)
    spot = np.full(brokers, -1, np.int64)
    spot[list(spots)] = list(spots.values())
    return Visits(node, above, notice, hops, delay_us, spot, base)


@njit(cache=True)
def _measure(above, latency_us, hops, delay_us):
    for visit in range(1, len(above)):
        hops[visit] = hops[above[visit]] + 1
        delay_us[visit] = delay_us[above[visit]] + latency_us[visit]


@dataclass(frozen=True)
class Counts:
    """Per visit of a way: messages into it, the publications that were only passed on there or
    neither passed on nor delivered, and deliveries."""

    messages: IntArray
    pure_forwards: IntArray
    false_sends: IntArray
    deliveries: IntArray


def price(
    way: Visits, publications: IntArray, ends: IntArray, wanting: IntArray, deliveries: IntArray
) -> Counts:
    """Set n, of `publications[n]`, is wanted by the brokers `wanting[ends[n - 1]:ends[n]]`, and
    all its publications are delivered there `deliveries` times."""
    counts = np.zeros((4, len(way.node)), np.int64)
    _price(
        way.above, way.notice, way.spot, way.base, publications, ends, wanting, deliveries,
        *counts,
    )  # fmt: skip
    return Counts(*counts)


@njit(cache=True)
def _price(
    above, notice, spot, base, publications, ends, wanting, deliveries,
    messages, pure_forwards, false_sends, delivered,
):  # fmt: skip
    visits = len(above)
    visited = np.full(visits, -1, np.int64)  # by the set in which it was last so
    delivers = np.full(visits, -1, np.int64)
    forwards = np.full(visits, -1, np.int64)
    sends = np.full(visits, -1, np.int64)
    way = np.empty(visits, np.int64)
    begin = 0
    for n in range(len(ends)):
        count = publications[n]
        size = base
        for visit in range(base):
            way[visit] = visit
            visited[visit] = n
        for place in range(begin, ends[n]):
            visit = spot[wanting[place]]
            delivers[visit] = n
            delivered[visit] += deliveries[place]
            while visited[visit] != n:
                visited[visit] = n
                way[size] = visit
                size += 1
                visit = above[visit]
        begin = ends[n]
        for place in range(size):
            visit = way[place]
            if visit > 0:
                messages[visit] += count
                sends[above[visit]] = n
                if notice[visit] == 0:
                    forwards[above[visit]] = n
        for place in range(size):
            visit = way[place]
            if delivers[visit] != n:
                if forwards[visit] == n:
                    pure_forwards[visit] += count
                elif sends[visit] != n and visit > 0:
                    false_sends[visit] += count


def each(way: Visits, ends: IntArray, wanting: IntArray) -> IntArray:
    """The messages of each set alone; sets as in `price`."""
    messages = np.zeros(len(ends), np.int64)
    _each(way.above, way.spot, way.base, ends, wanting, messages)
    return messages


@njit(cache=True)
def _each(above, spot, base, ends, wanting, messages):
    visited = np.full(len(above), -1, np.int64)  # by the set in which it was last so
    begin = 0
    for n in range(len(ends)):
        visited[:base] = n
        messages[n] = base - 1
        for place in range(begin, ends[n]):
            visit = spot[wanting[place]]
            while visited[visit] != n:
                visited[visit] = n
                messages[n] += 1
                visit = above[visit]
        begin = ends[n]


class Ways:
    """The ways of a scheme in a network with these interests."""

    def __init__(self, scheme: str, overlay: Overlay, interests: Interests, config: Any, seed: int):
        if scheme not in PRICED:
            raise InputError(f"no price for {scheme!r}", remedy=f"choose of {', '.join(PRICED)}")
        self.scheme = scheme
        self.brokers = overlay.brokers_count
        plan = SCHEMES[scheme].plan(overlay, interests, config or SCHEMES[scheme].config(), seed)
        self._way_of: Callable[[BrokerId, Key], Visits]
        self.key: Callable[[Mapping[str, Scalar | None]], Key] | None = None
        if scheme in TREES or scheme == "fbr":
            tree = fbr.tree(overlay) if scheme == "fbr" else overlay
            self._way_of = _Tree(tree, scheme == "flooding").way
        elif scheme == "unicast":
            self._way_of = _Star(between_all(overlay)).way
        elif isinstance(plan, PathsPlan):
            self._way_of = _Paths(plan).way
        elif isinstance(plan, KyraPlan):
            kyra = _Kyra(plan)
            self._way_of, self.key = kyra.way, kyra.key
        elif isinstance(plan, GroupPlan):
            for name in ("unicast_below", "clique_ms"):
                if getattr(plan.config, name):
                    raise InputError(f"no price for mbr with {name}", remedy=f"leave {name} out")
            groups = _Groups(plan)
            self._way_of, self.key = groups.way, groups.key
        else:
            assert isinstance(plan, RingPlan)
            if plan.config.cells:
                raise InputError(f"no price for {scheme} with cells", remedy="leave cells out")
            if plan.config.membership == "messages":
                raise InputError(
                    f"no price for {scheme} whose brokers join and leave",
                    remedy="leave membership out",
                )
            ring = _Ring(plan)
            self._way_of, self.key = ring.way, ring.key

    def way(self, broker: BrokerId, key: Key) -> Visits:
        return self._way_of(broker, key)


class _Tree:
    def __init__(self, tree: Overlay, floods: bool) -> None:
        self.near = tree.neighbours()
        self.floods = floods

    def way(self, broker: BrokerId, key: Key) -> Visits:
        visits, spots = [(broker, -1, 0, False)], {broker: 0}
        for node, _, _, _ in visits:  # grows meanwhile
            for peer, latency_us in self.near[node].items():
                if peer not in spots:
                    spots[peer] = len(visits)
                    visits.append((peer, spots[node], latency_us, False))
        return _as_way(visits, spots, len(self.near), len(visits) if self.floods else 1)


class _Star:
    def __init__(self, between_us: IntArray) -> None:
        self.between_us = between_us

    def way(self, broker: BrokerId, key: Key) -> Visits:
        brokers = range(len(self.between_us))
        order = [broker, *(other for other in brokers if other != broker)]
        far = self.between_us[broker].tolist()
        visits = [(other, -1 if other == broker else 0, far[other], False) for other in order]
        return _as_way(visits, {other: n for n, other in enumerate(order)}, len(order), 1)


class _Paths:
    """Shortest paths, merged; through the routers of the network below where they are known."""

    def __init__(self, plan: PathsPlan) -> None:
        self.plan = plan
        self.links = plan.links()

    def way(self, broker: BrokerId, key: Key) -> Visits:
        below: dict[int, list[int]] = {}
        for node, before in enumerate(self.plan.before(broker)):
            if before >= 0:
                below.setdefault(before, []).append(node)
        visits, spots = [(broker, -1, 0, False)], {broker: 0}
        for node, _, _, _ in visits:  # grows meanwhile
            for further in below.get(node, ()):
                spots[further] = len(visits)
                visits.append((further, spots[node], self.links[node][further], False))
        brokers = self.plan.overlay.brokers_count
        return _as_way(visits, {n: at for n, at in spots.items() if n < brokers}, brokers, 1)


class _Groups:
    """A tree over the members of each group, whoever wants the publication."""

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        self.cells: Index[int] = Index()
        for number, cell in enumerate(plan.cells):
            self.cells.insert(number, cell.filter)

    def key(self, attributes: Mapping[str, Scalar | None]) -> Key:
        (cell,) = self.cells.match(attributes)
        return str(self.plan.group[cell])

    def way(self, broker: BrokerId, key: Key) -> Visits:
        plan, group = self.plan, int(key)
        between_us = plan.between_us
        members = tuple(sorted(plan.members.get(group, ())))
        visits, spots = [(broker, -1, 0, False)], {broker: 0}
        if members and broker not in members:
            first = min(members, key=lambda peer: (between_us[broker, peer], peer))
            spots[first] = 1
            visits.append((first, 0, int(between_us[broker, first]), False))
        tree = plan.tree(members) if len(members) > 1 else {}
        for node, _, _, _ in visits:  # grows meanwhile
            for peer in tree.get(node, ()):
                if peer not in spots:
                    spots[peer] = len(visits)
                    visits.append((peer, spots[node], int(between_us[node, peer]), False))
        return _as_way(visits, spots, len(between_us), len(visits))


class _Kyra:
    """To the proxy server of the publisher's clique, along a tree to other proxy servers, and from
    proxy servers to the servers of their cliques."""

    def __init__(self, plan: KyraPlan) -> None:
        self.plan = plan
        layout = plan.layout
        self.clique_of = {
            server: number for number, clique in enumerate(layout.cliques) for server in clique
        }
        self.zones: Index[tuple[int, int]] = Index()  # clique (-1: trees), and server or tree
        for tree, zone in enumerate(layout.tree_zones):
            self.zones.insert((-1, tree), zone.filter)
        for server, mine in enumerate(layout.zones):
            if mine is not None:
                self.zones.insert((self.clique_of[server], server), mine.filter)

    def key(self, attributes: Mapping[str, Scalar | None]) -> Key:
        places = dict(self.zones.match(attributes))
        return " ".join(str(places[clique]) for clique in range(-1, len(places) - 1))

    def way(self, broker: BrokerId, key: Key) -> Visits:
        tree, *proxies = map(int, key.split(" "))
        between_us = self.plan.between_us
        first = proxies[self.clique_of[broker]]
        visits = [(broker, -1, 0, False)]
        if first != broker:
            visits.append((first, 0, int(between_us[broker, first]), False))
        base = len(visits)
        at = {first: base - 1}
        for place, (node, _, _, _) in enumerate(visits):  # grows meanwhile
            if at.get(node) == place:
                for peer in self.plan.tree_peers[node][tree]:
                    if peer not in at:
                        at[peer] = len(visits)
                        visits.append((peer, place, int(between_us[node, peer]), False))
        spots = {broker: 0}
        for server, clique in self.clique_of.items():
            proxy = proxies[clique]
            if server == broker:
                continue
            if server == proxy:
                spots[server] = at[proxy]
            else:
                spots[server] = len(visits)
                visits.append((server, at[proxy], int(between_us[proxy, server]), True))
        return _as_way(visits, spots, len(between_us), base)


class _Ring:
    """The routers themselves show the way: it depends on the topic's members alone, whom the plan
    knows. A subscription to everything shows where a publication would be delivered."""

    def __init__(self, plan: RingPlan) -> None:
        self.plan = plan
        self.links = plan.links()
        self.routers: list[Any] = [plan.router(broker) for broker in range(len(plan.order))]
        for router, near in zip(self.routers, self.links, strict=True):
            router.local.subscribe(Subscription("", EVERYTHING))
            for peer in near:
                router.step(LinkUp(peer), 0)

    def key(self, attributes: Mapping[str, Scalar | None]) -> Key:
        return self.plan.topics.of(Publication("", "", attributes))  # type: ignore[arg-type]

    def way(self, broker: BrokerId, key: Key) -> Visits:
        visits, spots = [(broker, -1, 0, False)], {}
        publication = Publication("", "", {self.plan.config.topic: key})
        inputs: deque[tuple[int, Any]] = deque([(0, Publish(publication))])
        while inputs:
            visit, input = inputs.popleft()
            node = visits[visit][0]
            for effect in self.routers[node].step(input, 0):
                if isinstance(effect, Deliver):
                    spots[node] = visit
                elif isinstance(effect, Send):
                    peer = effect.peer
                    inputs.append((len(visits), Received(effect.message, node)))
                    visits.append((peer, visit, self.links[node][peer], False))
        return _as_way(visits, spots, len(self.routers), len(visits))
