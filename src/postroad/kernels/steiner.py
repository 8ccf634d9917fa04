"""The fewest links of the network below that join a publisher with the brokers that want its
publication: a Steiner tree on the graph of routers, every link counted once.

The graph is cut at the routers whose loss would part it (a stub domain hangs by one of them): a
Steiner tree of the whole is one of each block, so the bound of the whole is the sum. In a block
with few terminals, Dreyfus and Wagner's recursion is exact. In a larger one the bound is the best
of dual ascent (Wong 1984) from several roots, and of counting: terminals that fall into c pieces
need others between them, and each of those joins at most as many pieces as it touches. A tree
along shortest paths (Takahashi and Matsuyama 1980) says how far off the bound can be.

Data: nodes and links of a block are numbered from 0; `starts` and `peers` are its adjacency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from postroad.jit import inner, njit
from postroad.overlay import IntArray
from postroad.overlay.transit_stub import Underlay

EXACT = 7  # terminals up to which a block is solved exactly
ROOTS = 8  # from which dual ascent and the paths are tried


@dataclass(frozen=True)
class Bound:
    """No tree has fewer links than `least`, and one has `most`."""

    least: int
    most: int


@dataclass(frozen=True, eq=False)
class _Block:
    nodes: tuple[int, ...]  # ascending
    starts: IntArray
    peers: IntArray


class RouterGraph:
    """The links of a network below, for any number of publications."""

    def __init__(self, nodes: int, ends: IntArray) -> None:
        pairs = sorted({(min(a, b), max(a, b)) for a, b in ends.tolist() if a != b})
        self.nodes = nodes
        near: list[list[int]] = [[] for _ in range(nodes)]
        for a, b in pairs:
            near[a].append(b)
            near[b].append(a)
        self.blocks = [_block(links) for links in _biconnected(near)]
        self._hang()
        self._bound = lru_cache(maxsize=1 << 16)(self._of_block)

    def _hang(self) -> None:
        """Hang blocks and nodes from each other as a tree, each after the one above it."""
        of_node: list[list[int]] = [[] for _ in range(self.nodes)]
        for number, block in enumerate(self.blocks):
            for node in block.nodes:
                of_node[node].append(number)
        self.order: list[tuple[int, int]] = []  # blocks, and the node that each hangs from
        seen = [False] * len(self.blocks)
        for root in range(self.nodes):
            stack = [root]
            while stack:
                node = stack.pop()
                for number in of_node[node]:
                    if not seen[number]:
                        seen[number] = True
                        self.order.append((number, node))
                        stack += [other for other in self.blocks[number].nodes if other != node]

    def bound(self, terminals: Sequence[int]) -> Bound:
        """Of the links that join these nodes."""
        distinct = sorted(set(terminals))
        below = [0] * self.nodes
        for node in distinct:
            below[node] = 1
        inside = [0] * len(self.blocks)
        for number, above in reversed(self.order):
            count = sum(below[node] for node in self.blocks[number].nodes if node != above)
            inside[number] = count
            below[above] += count
        least = most = 0
        for number, above in self.order:
            if not inside[number]:
                continue
            nodes = self.blocks[number].nodes
            mine = tuple(
                place
                for place, node in enumerate(nodes)
                if (below[node] if node != above else inside[number] < len(distinct))
            )
            if len(mine) > 1:
                block = self._bound(number, mine)
                least, most = least + block.least, most + block.most
        return Bound(least, most)

    def _of_block(self, number: int, terminals: tuple[int, ...]) -> Bound:
        block = self.blocks[number]
        if len(block.nodes) == 2:
            return Bound(1, 1)
        places = np.array(terminals, dtype=np.int64)
        if len(places) <= EXACT:
            exact = int(_dreyfus_wagner(block.starts, block.peers, places))
            return Bound(exact, exact)
        least = int(_pieces(block.starts, block.peers, places))
        most = len(block.peers)
        for root in places[:: max(1, len(places) // ROOTS)][:ROOTS]:
            most = min(most, int(_paths(block.starts, block.peers, places, root)))
            least = max(least, int(_dual_ascent(block.starts, block.peers, places, root)))
            if least == most:
                break
        return Bound(least, most)


def of_underlay(underlay: Underlay) -> RouterGraph:
    return RouterGraph(underlay.routers_count, underlay.ends)


def physical(links: RouterGraph, home: IntArray, source: int, wanted: Sequence[int]) -> Bound:
    """Of a publication: a LAN link of each server besides, unless nobody else wants it."""
    servers = {source, *wanted}
    if len(servers) == 1:
        return Bound(0, 0)
    routers = links.bound([int(home[server]) for server in servers])
    return Bound(routers.least + len(servers), routers.most + len(servers))


def crossed(underlay: Underlay) -> IntArray:
    """From server to server, the links that the shortest path crosses, LAN links included."""
    links: IntArray = _walked(underlay.before, underlay.home)
    np.fill_diagonal(links, 0)
    return links


def _block(links: Sequence[tuple[int, int]]) -> _Block:
    nodes = tuple(sorted({end for pair in links for end in pair}))
    place = {node: n for n, node in enumerate(nodes)}
    near: list[list[int]] = [[] for _ in nodes]
    for a, b in links:
        near[place[a]].append(place[b])
        near[place[b]].append(place[a])
    starts = np.concatenate([[0], np.cumsum([len(peers) for peers in near])]).astype(np.int64)
    peers = np.array([peer for each in near for peer in sorted(each)], dtype=np.int64)
    return _Block(nodes, starts, peers)


def _biconnected(near: Sequence[Sequence[int]]) -> list[list[tuple[int, int]]]:
    """The links of each block (Hopcroft and Tarjan 1973)."""
    depth, low = [-1] * len(near), [0] * len(near)
    blocks: list[list[tuple[int, int]]] = []
    links: list[tuple[int, int]] = []
    for root in range(len(near)):
        if depth[root] >= 0:
            continue
        depth[root] = 0
        stack = [(root, -1, iter(near[root]))]
        while stack:
            node, above, rest = stack[-1]
            for peer in rest:
                if depth[peer] < 0:
                    links.append((node, peer))
                    depth[peer] = low[peer] = depth[node] + 1
                    stack.append((peer, node, iter(near[peer])))
                    break
                if peer != above and depth[peer] < depth[node]:
                    links.append((node, peer))
                    low[node] = min(low[node], depth[peer])
            else:
                stack.pop()
                if above >= 0:
                    low[above] = min(low[above], low[node])
                    if low[node] >= depth[above]:
                        first = links.index((above, node))
                        blocks.append(links[first:])
                        del links[first:]
    return blocks


@njit(cache=True)
def _walked(before, home):
    servers = len(home)
    links = np.full((servers, servers), 2, np.int64)
    for source in range(servers):
        for target in range(servers):
            router = home[target]
            while router != home[source]:
                links[source, target] += 1
                router = before[source, router]
    return links


@inner()
def _far(starts, peers, source):
    """RouterGraph from a node to each."""
    nodes = len(starts) - 1
    far = np.full(nodes, nodes, np.int64)
    queue = np.empty(nodes, np.int64)
    far[source], queue[0], size = 0, source, 1
    at = 0
    while at < size:
        node = queue[at]
        at += 1
        for place in range(starts[node], starts[node + 1]):
            peer = peers[place]
            if far[peer] == nodes:
                far[peer] = far[node] + 1
                queue[size] = peer
                size += 1
    return far


@njit(cache=True)
def _dreyfus_wagner(starts, peers, terminals):
    """`cost[set, node]`: the fewest links that join the node with the terminals of a set."""
    nodes, last = len(starts) - 1, len(terminals) - 1
    cost = np.full((1 << last, nodes), nodes, np.int64)
    for n in range(last):
        cost[1 << n] = _far(starts, peers, terminals[n])
    for some in range(1, 1 << last):
        if some & (some - 1):
            part = (some - 1) & some
            while part:
                for node in range(nodes):
                    joined = cost[part, node] + cost[some ^ part, node]
                    if joined < cost[some, node]:
                        cost[some, node] = joined
                part = (part - 1) & some
            changed = True  # along links from where the set is joined already
            while changed:
                changed = False
                for node in range(nodes):
                    for place in range(starts[node], starts[node + 1]):
                        if cost[some, peers[place]] + 1 < cost[some, node]:
                            cost[some, node] = cost[some, peers[place]] + 1
                            changed = True
    return cost[(1 << last) - 1, terminals[last]]


@njit(cache=True)
def _pieces(starts, peers, terminals):
    nodes = len(starts) - 1
    piece = np.full(nodes, -1, np.int64)
    for terminal in terminals:
        piece[terminal] = -2
    count = 0
    stack = np.empty(nodes, np.int64)
    for terminal in terminals:
        if piece[terminal] == -2:
            piece[terminal], stack[0], size = count, terminal, 1
            while size:
                size -= 1
                node = stack[size]
                for place in range(starts[node], starts[node + 1]):
                    if piece[peers[place]] == -2:
                        piece[peers[place]] = count
                        stack[size] = peers[place]
                        size += 1
            count += 1
    if count == 1:
        return len(terminals) - 1
    most = 1
    touched = np.full(count, -1, np.int64)
    for node in range(nodes):
        if piece[node] < 0:
            met = 0
            for place in range(starts[node], starts[node + 1]):
                other = piece[peers[place]]
                if other >= 0 and touched[other] != node:
                    touched[other] = node
                    met += 1
            most = max(most, met)
    return len(terminals) - 1 + (count + most - 1) // most


@njit(cache=True)
def _paths(starts, peers, terminals, root):
    """The links of a tree that grows from the root by the shortest path to the nearest terminal."""
    nodes = len(starts) - 1
    inside = np.zeros(nodes, np.bool_)
    wanted = np.zeros(nodes, np.bool_)
    for terminal in terminals:
        wanted[terminal] = True
    inside[root] = True
    left, links = len(terminals) - 1, 0
    before = np.empty(nodes, np.int64)
    queue = np.empty(nodes, np.int64)
    while left:
        before[:] = -2
        size = 0
        for node in range(nodes):
            if inside[node]:
                before[node] = -1
                queue[size] = node
                size += 1
        at, end = 0, -1
        while end < 0:
            node = queue[at]
            at += 1
            for place in range(starts[node], starts[node + 1]):
                peer = peers[place]
                if before[peer] == -2:
                    before[peer] = node
                    queue[size] = peer
                    size += 1
                    if wanted[peer]:
                        end = peer
                        break
        while not inside[end]:
            inside[end] = True
            links += 1
            if wanted[end]:
                left -= 1
            end = before[end]
    return links


@njit(cache=True)
def _dual_ascent(starts, peers, terminals, root):
    """Pay for cuts that keep a terminal from the root, those with the fewest arcs first, until all
    are reached over arcs that are paid for. What was paid is a lower bound; each arc costs 1, and
    so does a cut."""
    nodes = len(starts) - 1
    paid = np.zeros(len(peers), np.bool_)  # of the arc from `peers[place]` into the node
    bound = 0
    reached = np.empty(nodes, np.bool_)
    stack = np.empty(nodes, np.int64)
    active = np.ones(len(terminals), np.bool_)
    left = True
    while left:
        left = False
        best, best_count = -1, 1 << 60
        for n in range(len(terminals)):
            if not active[n] or terminals[n] == root:
                continue
            count = _cut(starts, peers, paid, terminals[n], root, reached, stack)
            if count < 0:
                active[n] = False
            elif count < best_count:
                best, best_count = n, count
        if best >= 0:
            left = True
            _cut(starts, peers, paid, terminals[best], root, reached, stack)
            for node in range(nodes):
                if reached[node]:
                    for place in range(starts[node], starts[node + 1]):
                        if not reached[peers[place]]:
                            paid[place] = True
            bound += 1
    return bound


@inner()
def _cut(starts, peers, paid, terminal, root, reached, stack):
    """What reaches the terminal over paid arcs; how many arcs lead there, or -1 if the root is in
    it."""
    reached[:] = False
    reached[terminal] = True
    stack[0], size = terminal, 1
    while size:
        size -= 1
        node = stack[size]
        for place in range(starts[node], starts[node + 1]):
            peer = peers[place]
            if paid[place] and not reached[peer]:
                reached[peer] = True
                stack[size] = peer
                size += 1
    if reached[root]:
        return -1
    count = 0
    for node in range(len(reached)):
        if reached[node]:
            for place in range(starts[node], starts[node + 1]):
                if not reached[peers[place]]:
                    count += 1
    return count
