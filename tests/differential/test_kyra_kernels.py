"""The kernels of Kyra and its rivals send, server by server, what the cores send."""

from __future__ import annotations

import numpy as np
import pytest

from postroad.filters import Filter, parse
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
from postroad.routing.mbr import Config, GroupPlan, MulticastGroups
from postroad.sim.engine import Simulator

VALUES = 12


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


def wants(values: IntArray) -> Filter:
    return parse(f"value IN ({', '.join(map(str, values.tolist()))})")


def sent(plan: Plan, network: Network) -> IntArray:
    """Messages of publications between servers, as the simulator counts them."""
    simulator = Simulator(plan, check=True)
    for server, row in enumerate(network.wanted):
        if row.any():
            filter = wants(np.flatnonzero(row))
            simulator.at(0, server, Subscribe(Subscription(f"s{server}", filter)))
    simulator.run()
    for n, (server, value) in enumerate(zip(network.publishers, network.values, strict=True)):
        publication = Publication("p", str(n), {"value": int(value)})
        simulator.at(simulator.now, int(server), Publish(publication))
    simulator.run()
    assert len(simulator.deliveries) == network.deliveries()
    count = len(network.wanted)
    found = np.zeros((count, count), np.int64)
    for links in simulator.links:
        for link in links.values():
            for kind in ("publication", "notification"):
                found[link.source, link.target] += link.messages.get(kind, 0)
    return found


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
    outcome = kernel.kyra(
        kernel.routes(layout, VALUES), network.wanted, network.publishers, network.values
    )
    assert (sent(plan_of("kyra", overlay), network) == outcome.messages).all()


@pytest.mark.parametrize("seed", range(12))
def test_filter_based_and_match_early(seed: int) -> None:
    network = Network(100 + seed)
    direct_us = network.underlay.direct_us
    alone = [[server] for server in range(len(direct_us))]
    layout = planning.layout(direct_us, alone, divider(network.load), 1)
    outcome = kernel.kyra(
        kernel.routes(layout, VALUES), network.wanted, network.publishers, network.values
    )
    overlay = network.underlay.overlay()
    for scheme in ("fbr", "match_early"):
        assert (sent(plan_of(scheme, overlay), network) == outcome.messages).all(), scheme


@pytest.mark.parametrize("seed", range(12))
def test_unicast_multicast_and_broadcast(seed: int) -> None:
    network = Network(200 + seed)
    overlay = network.underlay.overlay()
    outcome = kernel.unicast(network.wanted, network.publishers, network.values)
    for scheme in ("unicast", "ideal_multicast"):
        assert (sent(plan_of(scheme, overlay), network) == outcome.messages).all(), scheme
    everyone = np.ones_like(network.wanted)
    outcome = kernel.unicast(everyone, network.publishers, network.values)
    assert (sent(plan_of("broadcast", overlay), network) == outcome.messages).all()


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
    ends = [None, *range(1, VALUES), None]
    cells = [Zone((("value", ends[i], ends[i + 1]),)) for i in range(VALUES)]
    plan = GroupPlan(
        overlay, MulticastGroups, Config(unicast_below=below), cells=cells, group=group.tolist()
    )
    assert (sent(plan, network) == outcome.messages).all()


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
    one = kernel.storage(kernel.routes(layout, VALUES), network.wanted)
    assert one == pytest.approx(placed / len(direct_us))
    layout = planning.layout(direct_us, everyone, divider(network.load))
    many = kernel.storage(kernel.routes(layout, VALUES), network.wanted)
    assert many == pytest.approx(1 / len(direct_us))
