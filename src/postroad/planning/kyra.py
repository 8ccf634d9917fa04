"""Kyra's plan: cliques of near servers, zones of the content space, a tree per global zone.

Cao and Singh: Efficient Event Routing in Content-based Publish-Subscribe Service Networks
(INFOCOM 2004), section III. Servers that are near each other form a clique, which divides the
content space among its members; the whole network divides it among routing trees. A server joins
each tree whose zone meets its own.

Where we read the paper, and how: of two equally near cliques the first found merges; the zones
of a clique go to its servers in ascending order; both divisions balance the same load, that of
the whole network; a server for which no value is left gets no zone and joins no tree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from postroad.errors import InputError
from postroad.filters import Filter
from postroad.model import BrokerId
from postroad.overlay import IntArray, Overlay
from postroad.overlay.latencies import as_overlay, spanning_tree
from postroad.planning import zones
from postroad.planning.zones import Zone


@dataclass(frozen=True, eq=False)
class Layout:
    """Who forms a clique, which zone each server has, and the zone and links of each tree."""

    cliques: tuple[tuple[BrokerId, ...], ...]
    zones: tuple[Zone | None, ...]
    tree_zones: tuple[Zone, ...]
    trees: tuple[IntArray, ...]

    def members(self, tree: int) -> list[BrokerId]:
        """The servers that join a tree."""
        zone = self.tree_zones[tree]
        return [s for s, mine in enumerate(self.zones) if mine is not None and mine.meets(zone)]


@dataclass(frozen=True, eq=False)
class Planned(Overlay):
    """Servers that can all reach each other, with a plan for them."""

    layout: Layout = field(kw_only=True)


def cliques(direct_us: IntArray, distance_us: int, size_max: int = 0) -> list[list[BrokerId]]:
    """Figure 5: merge the two nearest cliques while all stays within the distance and size.

    The distance of two cliques is that of their furthest servers. A `size_max` of 0 is no limit.
    """
    count = len(direct_us)
    members = [[server] for server in range(count)]
    apart = direct_us.astype(np.float64)
    np.fill_diagonal(apart, np.inf)
    while count > 1:
        a, b = (int(place) for place in divmod(int(np.argmin(apart)), len(members)))
        if apart[a, b] > distance_us:
            break
        if size_max and len(members[a]) + len(members[b]) > size_max:
            apart[a, b] = apart[b, a] = np.inf  # sizes only grow: this pair will never fit
            continue
        members[a] += members[b]
        members[b] = []
        apart[a] = np.maximum(apart[a], apart[b])
        apart[a, a] = np.inf
        apart[:, a] = apart[a]
        apart[b] = apart[:, b] = np.inf
    return sorted(sorted(clique) for clique in members if clique)


def layout(
    direct_us: IntArray,
    grouped: Sequence[Sequence[BrokerId]],
    divide: Callable[[int], list[Zone]],
    trees_count: int = 0,
    balance: int = 1,
) -> Layout:
    """Zones and trees for these cliques; `divide(k)` makes at most k zones.

    As many trees as the largest clique has servers, unless told; a `balance` above 1 builds
    them with the balanced form of Kruskal's algorithm.
    """
    mine: list[Zone | None] = [None] * len(direct_us)
    divided: dict[int, list[Zone]] = {}
    for clique in grouped:
        if len(clique) not in divided:
            divided[len(clique)] = divide(len(clique))
        for server, zone in zip(clique, divided[len(clique)], strict=False):
            mine[server] = zone
    tree_zones = divide(trees_count or max(map(len, grouped)))
    plain = Layout(tuple(map(tuple, grouped)), tuple(mine), tuple(tree_zones), ())
    degree = np.zeros(len(direct_us), np.int64)
    trees = []
    for tree in range(len(tree_zones)):
        members = plain.members(tree)
        if balance > 1:
            trees.append(balanced_tree(direct_us, members, balance, degree))
        else:
            trees.append(spanning_tree(direct_us, members))
    return Layout(plain.cliques, plain.zones, plain.tree_zones, tuple(trees))


def balanced_tree(
    direct_us: IntArray, members: Sequence[BrokerId], balance: int, degree: IntArray
) -> IntArray:
    """Section V.D: of the `balance` shortest links that close no cycle, the one whose busier end
    has the fewest links, again and again. Counts the links of earlier trees too, in `degree`."""
    picked = np.asarray(members, np.int64)
    near, far = np.triu_indices(len(picked), 1)
    order = np.argsort(direct_us[picked[near], picked[far]], kind="stable")
    waiting = list(zip(picked[near[order]].tolist(), picked[far[order]].tolist(), strict=True))
    part = {server: server for server in picked.tolist()}

    def root(server: int) -> int:
        while part[server] != server:
            part[server] = part[part[server]]
            server = part[server]
        return server

    ends: list[tuple[int, int]] = []
    offered: list[tuple[int, int]] = []  # the shortest links, none of which closes a cycle
    next_one = 0
    while len(ends) < len(picked) - 1:
        offered = [(a, b) for a, b in offered if root(a) != root(b)]
        while len(offered) < balance and next_one < len(waiting):
            a, b = waiting[next_one]
            next_one += 1
            if root(a) != root(b):
                offered.append((a, b))
        a, b = min(offered, key=lambda link: max(degree[link[0]], degree[link[1]]))
        part[root(a)] = root(b)
        degree[a] += 1
        degree[b] += 1
        ends.append((a, b))
    return np.array(sorted(ends), np.int64).reshape(-1, 2)


def divider(
    filters: Sequence[Filter],
    points: Sequence[zones.Point] = (),
    attributes: Sequence[str] = (),
    alpha: float = zones.ALPHA,
    weights: Sequence[float] | None = None,
    loads: Sequence[float] | None = None,
) -> Callable[[int], list[Zone]]:
    """Divides the space by what is asked for and, where known, by what is published.

    `weights`: of each point, how many publications it stands for; `loads`: its load, if known.
    """
    if loads is not None:
        load = np.asarray(loads, np.float64)
    elif points:
        load = zones.loads(filters, points, alpha)
        if weights is not None:
            load = load * np.asarray(weights, np.float64)
    else:  # a corner stands for its own filter at least, even if it lies just outside
        points = zones.corners(filters)
        load = np.maximum(zones.loads(filters, points, alpha), max(1, len(filters)) ** -alpha)
    names = list(attributes) or zones.attributes_of(filters)
    return lambda count: zones.partition(filters, points, load, names, count)


def save(overlay: Overlay, plan: Layout, path: Path, facts: Mapping[str, Any]) -> None:
    """Write a plan as JSON: what is known of it, then names, latencies, cliques, zones, trees."""
    assert overlay.direct_us is not None
    document = {
        **facts,
        "names": overlay.names,
        "latency_us": overlay.direct_us.tolist(),
        "cliques": plan.cliques,
        "zones": [None if zone is None else zone.sides for zone in plan.zones],
        "tree_zones": [zone.sides for zone in plan.tree_zones],
        "trees": [tree.tolist() for tree in plan.trees],
    }
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(json.dumps(document), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise InputError(
            f"cannot write {str(path)!r}: {error.strerror}", remedy="choose another file"
        ) from None


def load(path: Path) -> Planned:
    """Read what `save` wrote."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        names = [str(name) for name in document["names"]]
        direct_us = np.array(document["latency_us"], np.int64).reshape(len(names), len(names))
        plan = Layout(
            tuple(tuple(map(int, clique)) for clique in document["cliques"]),
            tuple(None if sides is None else _zone(sides) for sides in document["zones"]),
            tuple(map(_zone, document["tree_zones"])),
            tuple(np.array(tree, np.int64).reshape(-1, 2) for tree in document["trees"]),
        )
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror}", remedy="check the file's name"
        ) from None
    except (KeyError, TypeError, ValueError, RecursionError):
        raise InputError(
            "not a plan", where=str(path), remedy="make it with postroad plan kyra"
        ) from None
    servers = sorted(server for clique in plan.cliques for server in clique)
    if servers != list(range(len(names))) or len(plan.zones) != len(names) or not names:
        raise InputError(
            "not a plan: each server needs a place in one clique",
            where=str(path),
            remedy="make it with postroad plan kyra",
        )
    tree = as_overlay(names, direct_us)
    return Planned(tree.names, tree.ends, tree.latency_us, direct_us, layout=plan)


def _zone(sides: Sequence[Sequence[Any]]) -> Zone:
    return Zone(tuple((str(name), low, high) for name, low, high in sides))
