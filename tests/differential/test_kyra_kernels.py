"""The kernels of Kyra and its rivals send, server by server, what the cores send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from postroad.filters import Filter, matches, parse
from postroad.kernels import kyra as kernel
from postroad.model import Publication, Subscription
from postroad.overlay import IntArray, Overlay
from postroad.overlay.transit_stub import transit_stub
from postroad.papers.kyra.runs import divider
from postroad.planning import kyra as planning
from postroad.planning.groups import forgy
from postroad.planning.kyra import Planned
from postroad.planning.zones import Zone
from postroad.routing import SCHEMES, Interests
from postroad.routing.base import Plan, Publish, Subscribe
from postroad.routing.direct import Relay
from postroad.routing.kyra import Kyra, KyraPlan
from postroad.routing.mbr import Config, GroupPlan, MovedGroups, MovedPlan, MulticastGroups
from postroad.routing.pool import FilterPool
from postroad.sim.engine import Simulator

VALUES = 12
CELLS = [Zone((("value", *ends),)) for ends in pairwise([None, *range(1, VALUES), None])]


class Network:
    """A small transit-stub network whose servers want sets of values."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        count = int(random.integers(2, 25))
        self.underlay = transit_stub(seed, count, domains=3, transit_routers=2)
        self.wanted = random.random((count, VALUES)) < random.choice([0.05, 0.3, 0.8])
        self.publishers = random.integers(count, size=40)
        self.values = random.integers(VALUES, size=40)
        self.load = random.random(VALUES)
        self.random = random

    def deliveries(self) -> int:
        return int(self.wanted[:, self.values].sum())


def wants(server: int, values: IntArray) -> Filter:
    """What a server asks for; nothing has its tag, so all filters match, and none are equal."""
    return parse(f"value IN ({', '.join(map(str, values.tolist()))}) AND tag{server} IS NULL")


def values_in(filter: Filter) -> int:
    return sum(matches(filter, {"value": value}) for value in range(VALUES))


@dataclass
class Core:
    """What the simulated brokers did: as the kernels count it."""

    messages: IntArray  # of publications, between servers
    stress: IntArray  # sent and received
    matched: list[list[tuple[int, int, bool]]]  # per publication: server, its peers, if the first
    known: list[int]  # per server, the (server, value) pairs in its routing tables

    def matches(self) -> list[int]:
        """A server with one neighbour need not match to route, unless it is the first."""
        return [sum(peers > 1 or first for _, peers, first in each) for each in self.matched]


def routed(plan: Plan, network: Network) -> tuple[Core, Simulator]:
    simulator = Simulator(plan, check=True)
    for server, row in enumerate(network.wanted):
        if row.any():
            filter = wants(server, np.flatnonzero(row))
            simulator.at(0, server, Subscribe(Subscription(f"s{server}", filter)))
    simulator.run()
    matched = []
    for n, (server, value) in enumerate(zip(network.publishers, network.values, strict=True)):
        publication = Publication("p", str(n), {"value": int(value)})
        before = [router.matches_count for _, _, router in tables(simulator)]
        simulator.at(simulator.now, int(server), Publish(publication))
        simulator.run()
        matched.append([
            (place, peers, is_first(plan, int(server), place, int(value)))
            for (place, peers, router), count in zip(tables(simulator), before, strict=True)
            if router.matches_count > count
        ])  # fmt: skip
    assert len(simulator.deliveries) == network.deliveries()
    count = len(network.wanted)
    found = np.zeros((count, count), np.int64)
    for links in simulator.links[:count]:
        for link in links.values():
            if link.target < count:
                found[link.source, link.target] = carried(link.messages)
    stress = [carried(each.sent) + carried(each.received) for each in simulator.brokers[:count]]
    known = [0] * count
    for place, _, router in tables(simulator):
        known[place] += sum(map(values_in, router.table.sources))
    return Core(found, np.array(stress), matched, known), simulator


def carried(messages: Mapping[str, int]) -> int:
    return messages.get("publication", 0) + messages.get("notification", 0)


def tables(simulator: Simulator) -> list[tuple[int, int, Any]]:
    """Server, number of neighbours and router of every routing table."""
    found: list[tuple[int, int, Any]] = []
    for number, broker in enumerate(simulator.brokers):
        router: Any = broker.router
        if isinstance(router, Kyra):
            for place in router.seats.values():
                found += [(number, len(place.peers[t]), each) for t, each in place.trees.items()]
        elif not isinstance(router, Relay):
            found.append((number, len(simulator.links[number]), router))
    return found


def is_first(plan: Plan, publisher: int, place: int, value: int) -> bool:
    if not isinstance(plan, KyraPlan):
        return place == publisher
    zone = plan.layout.zones[place]
    return place in plan.clique_of[publisher] and zone is not None and zone.holds({"value": value})


def agrees(core: Core, outcome: kernel.ServerCounts) -> None:
    assert (core.messages == outcome.messages).all()
    assert (core.stress == kernel.stress(outcome.messages)).all()


def plan_of(scheme: str, overlay: Overlay) -> Plan:
    return SCHEMES[scheme].plan(overlay, Interests(), SCHEMES[scheme].config(), 0)


@pytest.mark.parametrize("seed", range(25))
def test_kyra(seed: int) -> None:
    network = Network(seed)
    direct_us = network.underlay.direct_us
    clique_ms = int(network.random.choice([0, 50, 150, 1000]))
    layout = planning.layout(
        direct_us,
        planning.cliques(direct_us, 1000 * clique_ms),
        divider(network.load),
        int(network.random.choice([0, 1, 3])),
        int(network.random.choice([1, 5])),
    )
    plain = network.underlay.overlay()
    overlay = Planned(plain.names, plain.ends, plain.latency_us, direct_us, layout=layout)
    routes = kernel.routes(layout, VALUES)
    outcome = kernel.kyra(routes, network.wanted, network.publishers, network.values)
    core, _ = routed(plan_of("kyra", overlay), network)
    agrees(core, outcome)
    assert core.matches() == outcome.matches.tolist()
    assert list(core.known) == kernel.kept(routes, network.wanted).tolist()


@pytest.mark.parametrize("seed", range(12))
def test_filter_based_and_match_early(seed: int) -> None:
    network = Network(100 + seed)
    direct_us = network.underlay.direct_us
    alone = [[server] for server in range(len(direct_us))]
    layout = planning.layout(direct_us, alone, divider(network.load), 1)
    routes = kernel.routes(layout, VALUES)
    outcome = kernel.kyra(routes, network.wanted, network.publishers, network.values)
    overlay = network.underlay.overlay()
    core, _ = routed(plan_of("fbr", overlay), network)
    agrees(core, outcome)
    assert core.matches() == outcome.matches.tolist()
    early, _ = routed(plan_of("match_early", overlay), network)
    agrees(early, outcome)
    wanted = network.wanted[:, network.values].T
    for publisher, want, each in zip(network.publishers, wanted, early.matched, strict=True):
        # Matched to route once; those who want it match it to deliver.
        assert {place for place, *_ in each} == {publisher, *np.flatnonzero(want)}
        assert sum(first for *_, first in each) == 1
    assert core.known == early.known == [network.wanted.sum()] * len(network.wanted)


@pytest.mark.parametrize("seed", range(12))
def test_unicast_multicast_and_broadcast(seed: int) -> None:
    network = Network(200 + seed)
    underlay = network.underlay
    overlay = underlay.overlay()
    asked = (network.wanted, network.publishers, network.values)
    everyone = (np.ones_like(network.wanted), network.publishers, network.values)
    agrees(routed(plan_of("unicast", overlay), network)[0], kernel.unicast(*asked))
    agrees(routed(plan_of("broadcast", overlay), network)[0], kernel.unicast(*everyone))
    multicast, simulator = routed(plan_of("ideal_multicast", overlay), network)
    charged = kernel.charge_multicast(underlay, *asked)
    assert not multicast.messages.any()  # all over routers
    routers: dict[tuple[int, int], int] = {}
    ends = [*map(tuple, underlay.ends.tolist()), *map(tuple, underlay.ends[:, ::-1].tolist())]
    for (a, b), count in zip(ends, charged.link_messages.tolist(), strict=True):
        routers[a, b] = routers.get((a, b), 0) + count
    first = len(network.wanted)
    used_us = 0
    for links in simulator.links:
        for link in links.values():
            count = carried(link.messages)
            used_us += count * link.latency_us
            if min(link.source, link.target) >= first:
                assert count == routers[link.source - first, link.target - first]
    assert used_us == charged.used_us


@pytest.mark.parametrize("seed", range(12))
def test_multicast_groups(seed: int) -> None:
    network = Network(300 + seed)
    overlay = network.underlay.overlay()
    assert overlay.direct_us is not None
    below = float(network.random.choice([0.0, 0.3]))
    group = forgy(network.wanted.T, 4, seed)
    tree, entry = kernel.multicast_groups(group, overlay.direct_us, network.wanted)
    outcome = kernel.mbr(
        tree, entry, group, network.wanted, network.publishers, network.values, below
    )
    plan = GroupPlan(
        overlay, MulticastGroups, Config(unicast_below=below), cells=CELLS, group=group.tolist()
    )
    agrees(routed(plan, network)[0], outcome)


@pytest.mark.parametrize("seed", range(12))
def test_multicast_groups_of_proxy_servers(seed: int) -> None:
    network = Network(400 + seed)
    overlay = network.underlay.overlay()
    assert overlay.direct_us is not None
    cliques = planning.cliques(overlay.direct_us, int(network.random.choice([0, 50_000, 150_000])))
    layout = planning.layout(overlay.direct_us, cliques, divider(network.load), 1)
    routes = kernel.routes(layout, VALUES)
    wanted = kernel.moved(routes, network.wanted)
    group = forgy(wanted.T, 4, seed)
    outcome = kernel.moved_mbr(
        routes, *kernel.multicast_groups(group, overlay.direct_us, wanted), group,
        network.wanted, network.publishers, network.values,
    )  # fmt: skip
    kyra = KyraPlan(overlay, layout, FilterPool())
    plan = MovedPlan(
        overlay, MovedGroups, Config(clique_ms=1.0), kyra.pool,
        cells=CELLS, group=group.tolist(), layout=kyra,
    )  # fmt: skip
    agrees(routed(plan, network)[0], outcome)


def test_charging_a_pair_is_charging_its_path() -> None:
    """Links carry what their messages add up to, and merged paths never more than each alone."""
    network = Network(7)
    underlay = network.underlay
    outcome = kernel.unicast(network.wanted, network.publishers, network.values)
    alone = kernel.charge(underlay, outcome.messages)
    lan_us = 2 * underlay.lan_us * int(outcome.messages.sum())
    latency = np.tile(underlay.latency_us, 2)
    assert alone.used_us == int((alone.link_messages * latency).sum()) + lan_us
    merged = kernel.charge_multicast(underlay, network.wanted, network.publishers, network.values)
    assert (merged.link_messages <= alone.link_messages).all()
    assert merged.used_us <= alone.used_us
    one = kernel.charge_multicast(
        underlay, np.eye(len(network.wanted), dtype=bool), np.array([0]), np.array([1])
    )
    assert one.used_us == underlay.direct_us[0, 1]


def test_a_server_stores_its_trees_only() -> None:
    """All with one tree; with as many as servers, what lies in the server's own zone."""
    network = Network(3)
    direct_us = network.underlay.direct_us
    everyone = [list(range(len(direct_us)))]
    layout = planning.layout(direct_us, everyone, divider(network.load), 1)
    placed = sum(zone is not None for zone in layout.zones)
    assert 1 < placed < len(direct_us)
    everything = network.wanted.sum()
    one = kernel.kept(kernel.routes(layout, VALUES), network.wanted) / everything
    assert one.mean() == pytest.approx(placed / len(direct_us))
    layout = planning.layout(direct_us, everyone, divider(network.load))
    many = kernel.kept(kernel.routes(layout, VALUES), network.wanted) / everything
    assert many.mean() == pytest.approx(1 / len(direct_us))
