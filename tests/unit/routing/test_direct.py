"""Servers that start from what the planner knew, and the shortest paths that multicast merges."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

import networks
from postroad.filters import parse
from postroad.model import Publication, Subscription
from postroad.overlay import from_parents
from postroad.routing import SCHEMES, Interests
from postroad.routing.base import Publish, Subscribe, Unsubscribe
from postroad.routing.direct import PathsPlan, Way
from postroad.sim.engine import Fault, Simulator

MESH = [
    ("unicast", {}), ("match_early", {}), ("ideal_multicast", {}), ("mbr", {"cells": 6}),
    ("mbr", {"cells": 6, "unicast_below": 0.4}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "parameters"), [*MESH, ("mbr", {"cells": 6, "clique_ms": 4.0})])
def test_what_the_plan_spares_is_what_telling_takes(name: str, parameters: dict[str, Any]) -> None:
    """Counters, tables and deliveries are those of a network in which everybody was told."""
    draw = random.Random(5)
    overlay = networks.overlay(draw)
    wanted = [(broker, networks.filter(draw)) for broker in range(overlay.brokers_count)] * 2
    interests = Interests(wanted, (), wanted)
    config = SCHEMES[name].config(**parameters)
    planned = SCHEMES[name].plan(overlay, interests, config, 0)
    # The same plan, whose routers however begin with nothing.
    told = replace(SCHEMES[name].plan(overlay, interests, config, 0), present=())  # type: ignore[type-var]
    simulators = [Simulator(plan, check=True) for plan in (planned, told)]
    posts = [networks.attributes(draw) for _ in range(10)]
    for simulator in simulators:
        for number, (broker, filter) in enumerate(wanted):
            simulator.at(0, broker, Subscribe(Subscription(f"s{number}", filter)))
        simulator.run()
    assert simulators[0].steps_count < simulators[1].steps_count
    for simulator in simulators:
        for number, attributes in enumerate(posts):
            publication = Publication("p", str(number), attributes)
            simulator.at(simulator.now, number % overlay.brokers_count, Publish(publication))
        simulator.run()
    first, second = (
        (
            [{peer: link.messages for peer, link in links.items()} for links in one.links],
            [(broker.sent, broker.received) for broker in one.brokers],
            [broker.table_entries_max for broker in one.brokers],
            sorted(delivery[:3] for delivery in one.deliveries),
        )
        for one in simulators
    )
    assert first == second


@pytest.mark.parametrize(("name", "parameters"), MESH)
def test_servers_that_lost_sight_forget_the_plan(name: str, parameters: dict[str, Any]) -> None:
    """A crash later than an unsubscription: nobody takes the planned for wanted again."""
    overlay = from_parents([0, 0, 0])
    filter = parse("x = 1")
    interests = Interests([(1, filter), (2, filter)], (), [(1, filter), (2, filter)])
    plan = SCHEMES[name].plan(overlay, interests, SCHEMES[name].config(**parameters), 0)
    simulator = Simulator(plan, check=True)
    for broker in (1, 2):
        simulator.at(0, broker, Subscribe(Subscription(f"s{broker}", filter)))
    simulator.at(10, 1, Unsubscribe("s1"))
    simulator.run()
    simulator.fault(Fault("crash", (0,), simulator.now + 10, simulator.now + 20))
    simulator.fault(Fault("crash", (2,), simulator.now + 30, simulator.now + 40))
    simulator.run()
    simulator.at(simulator.now, 0, Publish(Publication("p", "1", {"x": 1})))
    simulator.run()
    assert [delivery[1] for delivery in simulator.deliveries] == ["s2"]
    links = simulator.links[0]
    assert links[2].messages["publication"] == 1
    assert "publication" not in links[1].messages


def test_merged_paths_share_links_on_a_tree() -> None:
    plan = PathsPlan(from_parents([0, 0, 1, 1, 0]), None)
    assert plan.ways(0, [2, 3]) == Way(
        0, False, (Way(1, False, (Way(2, True, ()), Way(3, True, ()))),)
    )
