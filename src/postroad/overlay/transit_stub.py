"""The network below the brokers: routers in transit and stub domains, as GT-ITM draws them.

Transit domains are joined to each other; each transit router has stub domains hanging from it,
one link each (two, in another place, where a domain is multi-homed). Servers stand on any
router, over a LAN link. What one server sends another is charged to the directed links of the
shortest path.

The defaults are the network of Kyra (Cao and Singh, INFOCOM 2004, section V): 20 transit domains
of about 5 routers, 3 stub domains of about 8 routers per transit router. What it leaves unsaid
is chosen so that the links, counted once per direction, come to about its 8,938.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from postroad import draws
from postroad.errors import InputError
from postroad.overlay import IntArray, Overlay
from postroad.overlay.latencies import as_overlay, graph

TRANSIT_US = (50_000, 100_000)
TRANSIT_STUB_US = (10_000, 40_000)
STUB_US = (1_000, 5_000)
LAN_US = 1_000
DOMAINS_JOINED = 0.75  # of all pairs of transit domains
TRANSIT_JOINED = 0.6  # of all pairs of routers in a transit domain
STUB_JOINED = 0.42  # of all pairs of routers in a stub domain


@dataclass(frozen=True, eq=False)
class Underlay:
    """Routers joined by undirected links, and the router of each server."""

    routers_count: int
    ends: IntArray
    latency_us: IntArray
    home: IntArray
    lan_us: int = LAN_US

    @property
    def servers_count(self) -> int:
        return len(self.home)

    @cached_property
    def _shortest(self) -> tuple[IntArray, IntArray]:
        from scipy.sparse.csgraph import dijkstra

        network = graph(self.routers_count, self.ends, self.latency_us)
        homes, place = np.unique(self.home, return_inverse=True)
        took, before = dijkstra(network, indices=homes, return_predecessors=True)
        if np.isinf(took).any():
            raise InputError("the routers are not connected", remedy="add links between them")
        return np.rint(took[place]).astype(np.int64), before[place].astype(np.int64)

    @cached_property
    def direct_us(self) -> IntArray:
        """The latency between any two servers, their LAN links included."""
        took = self._shortest[0][:, self.home] + 2 * self.lan_us
        # Paths of equal length may differ by direction, never their length.
        np.fill_diagonal(took, 0)
        return took

    @cached_property
    def before(self) -> IntArray:
        """`before[s, r]`: the router before r on the shortest path from server s; or below 0."""
        return self._shortest[1]

    @cached_property
    def link_into(self) -> IntArray:
        """`link_into[s, r]`: the directed link by which server s reaches router r; -1 at home.

        Links are numbered as in `ends`; in the other direction, `len(ends)` further.
        """
        count = self.routers_count
        both = np.concatenate([self.ends, self.ends[:, ::-1]])
        keys = both[:, 0] * count + both[:, 1]
        # Of two links between the same routers, the faster one comes first and is taken.
        order = np.lexsort((np.tile(self.latency_us, 2), keys))
        wanted = self.before * count + np.arange(count)
        links = order[np.searchsorted(keys[order], np.maximum(0, wanted)) % len(order)]
        return np.where(self.before >= 0, links, -1)

    def overlay(self) -> Routed:
        """The servers as brokers, linked by a minimum spanning tree."""
        plain = as_overlay([str(server) for server in range(self.servers_count)], self.direct_us)
        return Routed(plain.names, plain.ends, plain.latency_us, plain.direct_us, underlay=self)


@dataclass(frozen=True, eq=False)
class Routed(Overlay):
    """Brokers that stand on a network of which the routers and links are known."""

    underlay: Underlay = field(kw_only=True)


def places(overlay: Overlay) -> list[str]:
    """What the brokers are called, and after them the routers that are known below them."""
    routers = overlay.underlay.routers_count if isinstance(overlay, Routed) else 0
    return [*overlay.names, *(f"router {number}" for number in range(routers))]


def transit_stub(
    seed: int,
    servers: int = 500,
    domains: int = 20,
    transit_routers: int = 5,
    stubs: int = 3,
    stub_routers: int = 8,
    multi_homed: float = 0.0,
) -> Underlay:
    """A transit-stub network; sizes are averages, `multi_homed` a share of the stub domains."""
    for name, value in (
        ("servers", servers), ("domains", domains), ("transit_routers", transit_routers),
        ("stubs", stubs), ("stub_routers", stub_routers),
    ):  # fmt: skip
        if value < 1:
            raise InputError(f"{name} is {value}", remedy="give 1 or more")
    if not 0 <= multi_homed <= 1:
        raise InputError(f"multi_homed is {multi_homed}", remedy="give a share of 0 to 1")
    random = np.random.default_rng(draws.bits(seed, "transit_stub", servers, domains))
    ends: list[tuple[int, int]] = []
    latency: list[int] = []

    def join(pairs: IntArray, bounds: tuple[int, int]) -> None:
        ends.extend(map(tuple, pairs.tolist()))
        latency.extend(random.integers(bounds[0], bounds[1] + 1, len(pairs)).tolist())

    sizes = _jittered(random, domains, transit_routers)
    first = np.concatenate([[0], np.cumsum(sizes)])
    transit = int(first[-1])
    for domain in range(domains):
        join(first[domain] + _connected(random, int(sizes[domain]), TRANSIT_JOINED), TRANSIT_US)
    joined = _connected(random, domains, DOMAINS_JOINED)
    join(first[joined] + (random.random(joined.shape) * sizes[joined]).astype(np.int64), TRANSIT_US)

    hanging = np.repeat(np.arange(transit), _jittered(random, transit, stubs))
    sizes = _jittered(random, len(hanging), stub_routers)
    first = transit + np.concatenate([[0], np.cumsum(sizes)])
    for domain in range(len(hanging)):
        join(first[domain] + _connected(random, int(sizes[domain]), STUB_JOINED), STUB_US)
    second = np.flatnonzero(random.random(len(hanging)) < multi_homed)
    gates = first[:-1] + (random.random(len(sizes)) * sizes).astype(np.int64)
    others = first[second] + (random.random(len(second)) * sizes[second]).astype(np.int64)
    join(np.stack([hanging, gates], axis=1), TRANSIT_STUB_US)
    join(np.stack([random.integers(transit, size=len(second)), others], axis=1), TRANSIT_STUB_US)
    routers = int(first[-1])
    return Underlay(
        routers, np.array(ends, np.int64).reshape(-1, 2), np.array(latency, np.int64),
        random.integers(routers, size=servers),
    )  # fmt: skip


def _jittered(random: np.random.Generator, count: int, mean: int) -> IntArray:
    """Sizes from 5/8 of the mean to as far above it, moved one by one until the mean holds."""
    low = max(1, mean * 5 // 8)
    high = 2 * mean - low
    sizes = random.integers(low, high + 1, count)
    while (over := int(sizes.sum()) - count * mean) != 0:
        place = random.integers(count)
        moved = sizes[place] - np.sign(over)
        if low <= moved <= high:
            sizes[place] = moved
    return sizes


def _connected(random: np.random.Generator, nodes: int, share: float) -> IntArray:
    """The links of a connected random graph, each pair joined with this probability."""
    from scipy.sparse.csgraph import connected_components

    a, b = np.triu_indices(nodes, 1)
    while True:
        kept = random.random(len(a)) < share
        ends = np.stack([a[kept], b[kept]], axis=1)
        if nodes == 1:
            return ends
        network = graph(nodes, ends, np.ones(len(ends), np.int64))
        if connected_components(network, directed=False)[0] == 1:
            return ends
