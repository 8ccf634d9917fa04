"""How many messages each server sends each other for a list of publications, and what they cost.

Mirrors `routing/kyra.py`, `fbr.py`, `mbr.py` and `direct.py` once all subscriptions are in
place: no churn, no faults, one-dimensional content of whole values, servers rather than filters
(`wanted[server, value]`). Filter-based routing is Kyra with every server a clique of its own and
one tree. Match-early routing sends what filter-based routing sends and matches once.

Messages are counted per pair of servers and then charged to the directed links of the underlay
along shortest paths, all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from postroad.jit import njit
from postroad.overlay import IntArray
from postroad.overlay.latencies import spanning_tree
from postroad.overlay.transit_stub import Underlay
from postroad.planning.kyra import Layout

Wanted = npt.NDArray[np.bool_]


class Forest(NamedTuple):
    """Trees over some of the servers, in arrays.

    Tree t has the places `start[t]:start[t + 1]`, parents first: `server[i]` stands there,
    `above[i]` is its parent's place (or -1), `degree[i]` its number of neighbours; `spot[t, s]`
    is the place of server s in tree t (or -1).
    """

    start: IntArray
    server: IntArray
    above: IntArray
    degree: IntArray
    spot: IntArray

    def joined(self) -> IntArray:
        """`joined[t, s]`: whether server s is in tree t."""
        return (self.spot >= 0).astype(np.int64)


def forest(servers: int, members: Sequence[Sequence[int]], trees: Sequence[IntArray]) -> Forest:
    start = np.zeros(len(trees) + 1, np.int64)
    np.cumsum([len(each) for each in members], out=start[1:])
    spot = np.full((len(trees), servers), -1, np.int64)
    placed = [
        _place(np.asarray(each, np.int64), ends, spot[tree], int(start[tree]))
        for tree, (each, ends) in enumerate(zip(members, trees, strict=True))
    ]
    parts = [np.concatenate([part[i] for part in placed]) for i in range(3)]
    return Forest(start, parts[0], parts[1], parts[2], spot)


@njit(cache=True)
def _place(members, ends, spot, base):
    """Lay a tree out breadth first from its first member."""
    count = len(members)
    server = np.empty(count, np.int64)
    above = np.empty(count, np.int64)
    degree = np.zeros(count, np.int64)
    near_count = np.zeros(len(spot) + 1, np.int64)
    for link in range(len(ends)):
        near_count[ends[link, 0] + 1] += 1
        near_count[ends[link, 1] + 1] += 1
    near_start = np.cumsum(near_count)
    near = np.empty(2 * len(ends), np.int64)
    filled = near_start.copy()
    for link in range(len(ends)):
        a, b = ends[link, 0], ends[link, 1]
        near[filled[a]] = b
        filled[a] += 1
        near[filled[b]] = a
        filled[b] += 1
    if count == 0:
        return server, above, degree
    server[0] = members[0]
    above[0] = -1
    spot[members[0]] = base
    end = 1
    for place in range(count):
        here = server[place]
        degree[place] = near_start[here + 1] - near_start[here]
        for at in range(near_start[here], near_start[here + 1]):
            peer = near[at]
            if spot[peer] < 0:
                server[end] = peer
                above[end] = base + place
                spot[peer] = base + end
                end += 1
    assert end == count
    return server, above, degree


class Routes(NamedTuple):
    """Where Kyra sends a value: `proxy[c, v]` in clique c, along tree `tree_of[v]`."""

    clique_of: IntArray
    clique_start: IntArray
    clique_servers: IntArray
    proxy: IntArray
    tree_of: IntArray
    forest: Forest

    def clique(self, number: int) -> IntArray:
        """The servers of a clique."""
        return self.clique_servers[self.clique_start[number] : self.clique_start[number + 1]]


def routes(layout: Layout, values: int) -> Routes:
    """A layout over one attribute with the values 0 to `values` - 1."""
    servers = len(layout.zones)
    clique_of = np.zeros(servers, np.int64)
    proxy = np.full((len(layout.cliques), values), -1, np.int64)
    for number, clique in enumerate(layout.cliques):
        clique_of[list(clique)] = number
        for server in clique:
            zone = layout.zones[server]
            if zone is not None:
                proxy[number, _span(zone.sides, values)] = server
    tree_of = np.full(values, -1, np.int64)
    for tree, zone in enumerate(layout.tree_zones):
        tree_of[_span(zone.sides, values)] = tree
    assert (proxy >= 0).all()
    assert (tree_of >= 0).all()
    start = np.zeros(len(layout.cliques) + 1, np.int64)
    np.cumsum([len(clique) for clique in layout.cliques], out=start[1:])
    flat = np.array([server for clique in layout.cliques for server in clique], np.int64)
    members = [layout.members(tree) for tree in range(len(layout.trees))]
    return Routes(clique_of, start, flat, proxy, tree_of, forest(servers, members, layout.trees))


def _span(sides: Sequence[tuple[str, Any, Any]], values: int) -> slice:
    if not sides:
        return slice(0, values)
    _, low, high = sides[0]
    return slice(0 if low is None else low, values if high is None else high)


@dataclass(frozen=True)
class ServerCounts:
    """`messages[a, b]` from server a to server b, and per publication the servers that match."""

    messages: IntArray
    matches: IntArray


def kyra(routes: Routes, wanted: Wanted, publishers: IntArray, values: IntArray) -> ServerCounts:
    """Publications through cliques and trees. A server with one neighbour in the tree does not
    match to route; the proxy server of the publisher's clique always does."""
    by_clique = wanted[routes.clique_servers].astype(np.int64)
    wanting = np.add.reduceat(by_clique, routes.clique_start[:-1], axis=0)
    messages, matches = _kyra(routes, wanted, wanting, publishers, values)
    return ServerCounts(messages, matches)


@njit(cache=True)
def _kyra(routes, wanted, wanting, publishers, values):
    clique_of, clique_start, clique_servers, proxy, tree_of, forest = routes
    start, server, above, degree, spot = forest
    servers = len(clique_of)
    messages = np.zeros((servers, servers), np.int64)
    matches = np.zeros(len(values), np.int64)
    below = np.zeros(len(server), np.int64)  # wanted places in the subtree, the source included
    source_below = np.zeros(len(server), np.bool_)
    seen = np.zeros(len(server), np.bool_)
    for n in range(len(values)):
        publisher, value = publishers[n], values[n]
        home = clique_of[publisher]
        first = proxy[home, value]
        if first != publisher:
            messages[publisher, first] += 1
        tree = tree_of[value]
        low, high = start[tree], start[tree + 1]
        below[low:high] = 0
        source_below[low:high] = False
        seen[low:high] = False
        source = spot[tree, first]
        below[source] = 1
        source_below[source] = True
        seen[source] = True
        total = 1
        for clique in range(len(clique_start) - 1):
            if wanting[clique, value] == 0:
                continue
            here = proxy[clique, value]
            if clique != home:
                below[spot[tree, here]] = 1
                total += 1
            for at in range(clique_start[clique], clique_start[clique + 1]):
                target = clique_servers[at]
                if wanted[target, value] and target != here and target != publisher:
                    messages[here, target] += 1
        if total > 1:
            for place in range(high - 1, low, -1):
                up = above[place]
                if below[place] and below[place] < total:
                    if source_below[place]:
                        messages[server[place], server[up]] += 1
                    else:
                        messages[server[up], server[place]] += 1
                    seen[place] = True
                    seen[up] = True
                below[up] += below[place]
                if source_below[place]:
                    source_below[up] = True
        for place in range(low, high):
            if seen[place] and (degree[place] > 1 or place == source):
                matches[n] += 1
    return messages, matches


def multicast_groups(
    group: IntArray, direct_us: IntArray, wanted: Wanted
) -> tuple[Forest, IntArray]:
    """A tree per group of values over the servers that want any of them, and to which member a
    server hands a publication of the group (itself if it is one; -1 if there are none)."""
    count = int(group.max()) + 1
    members = [np.flatnonzero(wanted[:, group == each].any(axis=1)) for each in range(count)]
    trees = [spanning_tree(direct_us, each) for each in members]
    entry = np.full((count, len(wanted)), -1, np.int64)
    for number, each in enumerate(members):
        if len(each):
            entry[number] = each[direct_us[:, each].argmin(axis=1)]
            entry[number, each] = each
    return forest(len(wanted), [each.tolist() for each in members], trees), entry


def mbr(
    trees: Forest, entry: IntArray, group: IntArray, wanted: Wanted,
    publishers: IntArray, values: IntArray, unicast_below: float = 0.0,
) -> ServerCounts:  # fmt: skip
    """Publications to whole groups, or to each server alone if few enough want them."""
    messages = _mbr(
        trees.start, trees.server, trees.above, trees.spot, entry, group, wanted,
        publishers, values, unicast_below * len(wanted),
    )  # fmt: skip
    return ServerCounts(messages, np.ones(len(values), np.int64))


@njit(cache=True)
def _mbr(start, server, above, spot, entry, group, wanted, publishers, values, least):
    servers = len(wanted)
    messages = np.zeros((servers, servers), np.int64)
    down = np.zeros(len(server), np.bool_)
    for n in range(len(values)):
        publisher, value = publishers[n], values[n]
        if least > 0:
            matching = 0
            for target in range(servers):
                if wanted[target, value] and target != publisher:
                    matching += 1
            if matching < least:
                for target in range(servers):
                    if wanted[target, value] and target != publisher:
                        messages[publisher, target] += 1
                continue
        tree = group[value]
        first = entry[tree, publisher]
        if first < 0:
            continue
        if first != publisher:
            messages[publisher, first] += 1
        low, high = start[tree], start[tree + 1]
        down[low:high] = False
        place = spot[tree, first]  # from here to the root the publication climbs
        while above[place] >= 0:
            down[place] = True
            place = above[place]
        for place in range(low + 1, high):
            up = above[place]
            if down[place]:
                messages[server[place], server[up]] += 1
            else:
                messages[server[up], server[place]] += 1
    return messages


def moved(routes: Routes, wanted: Wanted) -> Wanted:
    """What proxy servers want on behalf of their cliques."""
    by_proxy = np.zeros_like(wanted)
    values = np.arange(wanted.shape[1])
    for clique, proxy in enumerate(routes.proxy):
        by_proxy[proxy, values] = wanted[routes.clique(clique)].any(axis=0)
    return by_proxy


def moved_mbr(
    routes: Routes, trees: Forest, entry: IntArray, group: IntArray, wanted: Wanted,
    publishers: IntArray, values: IntArray,
) -> ServerCounts:  # fmt: skip
    """Publications from proxy server to whole groups of proxy servers, and within cliques."""
    first = routes.proxy[routes.clique_of[publishers], values]
    messages = mbr(trees, entry, group, wanted, first, values).messages
    np.add.at(messages, (publishers, first), publishers != first)
    for clique, proxy in enumerate(routes.proxy):
        for target in routes.clique(clique).tolist():
            here = proxy[values]
            sent = wanted[target, values] & (here != target) & (publishers != target)
            np.add.at(messages, (here, target), sent)
    return ServerCounts(messages, np.ones(len(values), np.int64))


def unicast(wanted: Wanted, publishers: IntArray, values: IntArray) -> ServerCounts:
    """A copy to each server that wants a publication."""
    messages = _unicast(wanted, publishers, values)
    return ServerCounts(messages, np.ones(len(values), np.int64))


@njit(cache=True)
def _unicast(wanted, publishers, values):
    messages = np.zeros((len(wanted), len(wanted)), np.int64)
    for n in range(len(values)):
        for target in range(len(wanted)):
            if wanted[target, values[n]] and target != publishers[n]:
                messages[publishers[n], target] += 1
    return messages


def stress(messages: IntArray) -> IntArray:
    """Per server, the messages that it sends and receives."""
    return np.asarray(messages.sum(axis=0) + messages.sum(axis=1))


@dataclass(frozen=True)
class Charged:
    """Messages on each directed link between routers, and the latency of all links used."""

    link_messages: IntArray
    used_us: int


def charge(underlay: Underlay, messages: IntArray) -> Charged:
    """Messages between servers, along shortest paths."""
    carried = _charge(
        messages, underlay.home, underlay.before, underlay.link_into, 2 * len(underlay.ends)
    )
    return Charged(carried, int((messages * underlay.direct_us).sum()))


@njit(cache=True)
def _charge(messages, home, before, link_into, links):
    carried = np.zeros(links, np.int64)
    for source in range(len(messages)):
        for target in range(len(messages)):
            count = messages[source, target]
            if count:
                router = home[target]
                while before[source, router] >= 0:
                    carried[link_into[source, router]] += count
                    router = before[source, router]
    return carried


def charge_multicast(
    underlay: Underlay, wanted: Wanted, publishers: IntArray, values: IntArray
) -> Charged:
    """One copy over each link of the merged shortest paths to the servers that want it.

    Ideal multicast; broadcast if every server wants everything.
    """
    carried, used_us = _merged(
        wanted, publishers, values, underlay.home, underlay.before, underlay.link_into,
        np.tile(underlay.latency_us, 2), underlay.lan_us, underlay.routers_count,
    )  # fmt: skip
    return Charged(carried, int(used_us))


@njit(cache=True)
def _merged(wanted, publishers, values, home, before, link_into, latency_us, lan_us, routers):
    carried = np.zeros(len(latency_us), np.int64)
    used_us = 0
    reached = np.full(routers, -1, np.int64)
    for n in range(len(values)):
        source, value = publishers[n], values[n]
        any_other = False
        for target in range(len(home)):
            if target == source or not wanted[target, value]:
                continue
            any_other = True
            used_us += lan_us
            router = home[target]
            while reached[router] != n and before[source, router] >= 0:
                reached[router] = n
                link = link_into[source, router]
                carried[link] += 1
                used_us += latency_us[link]
                router = before[source, router]
        if any_other:
            used_us += lan_us
    return carried, used_us


def kept(routes: Routes, wanted: Wanted) -> IntArray:
    """Per server, the subscriptions that it knows: those on its trees."""
    per_tree = np.zeros(len(routes.forest.start) - 1, np.int64)
    np.add.at(per_tree, routes.tree_of, wanted.sum(axis=0))
    return np.asarray(per_tree @ routes.forest.joined())
