"""The worked example of Kyra's paper: Figure 4 and the text about it."""

from __future__ import annotations

import numpy as np
import pytest

from postroad.filters import parse
from postroad.model import Publication, Subscription
from postroad.overlay.latencies import as_overlay
from postroad.planning import kyra as planning
from postroad.planning.zones import Zone, loads, partition
from postroad.routing.base import Deliver, Publish, Send, Subscribe
from postroad.routing.kyra import KyraPlan, NewPublication, Notification, TreePublication
from postroad.routing.pool import FilterPool
from postroad.sim.engine import Simulator

NAMES = "ABCDEFGH"
# Where the servers stand (ms along two axes), so that each clique is within 20 ms.
PLACES = np.array([(0, 0), (10, 0), (8, 8), (60, 30), (68, 34), (30, 90), (38, 96), (46, 88)])
# Original subscriptions that move to the proxy subscriptions of the figure's table.
SUBSCRIPTIONS = {
    "A": "e IN (1, 7)", "B": "e IN (2, 8)", "D": "e IN (0, 5)", "E": "e IN (3, 6)",
    "F": "e IN (4, 7)", "G": "e IN (2, 5, 6)", "H": "e = 9",
}  # fmt: skip
PROXIED = {
    "A": {1, 2}, "B": set(), "C": {7, 8}, "D": {0, 3}, "E": {5, 6}, "F": {2},
    "G": {4, 5, 6}, "H": {7, 9},
}  # fmt: skip


def make_plan() -> KyraPlan:
    apart = np.sqrt(((PLACES[:, None] - PLACES[None]) ** 2).sum(axis=2))
    direct_us = np.rint(1000 * apart).astype(np.int64)
    found = planning.cliques(direct_us, 20_000)
    everyone = [parse("e BETWEEN 0 AND 9")]
    points = [{"e": value} for value in range(10)]
    load = loads(everyone, points)
    layout = planning.layout(
        direct_us, found, lambda count: partition(everyone, points, load, ["e"], count)
    )
    return KyraPlan(as_overlay(list(NAMES), direct_us), layout, FilterPool())


@pytest.fixture
def plan() -> KyraPlan:
    return make_plan()


def held(zone: Zone | None) -> str:
    values = [value for value in range(10) if zone is not None and zone.holds({"e": value})]
    assert values == list(range(values[0], values[-1] + 1))
    return f"{values[0]}-{values[-1]}"


def test_figure_4_has_three_cliques(plan: KyraPlan) -> None:
    assert ["".join(NAMES[s] for s in clique) for clique in plan.layout.cliques] == [
        "ABC", "DE", "FGH",
    ]  # fmt: skip


def test_figure_4_trees_and_their_servers(plan: KyraPlan) -> None:
    layout = plan.layout
    assert [held(zone) for zone in layout.tree_zones] == ["0-3", "4-6", "7-9"]
    joined = ["".join(NAMES[s] for s in layout.members(tree)) for tree in range(3)]
    assert joined == ["ADF", "BDEG", "CEH"]


def test_figure_4_server_zones(plan: KyraPlan) -> None:
    zones = dict(zip(NAMES, map(held, plan.layout.zones), strict=True))
    assert zones == {
        "A": "0-3", "B": "4-6", "C": "7-9", "D": "0-4", "E": "5-9",
        "F": "0-3", "G": "4-6", "H": "7-9",
    }  # fmt: skip


def subscribed(plan: KyraPlan) -> Simulator:
    simulator = Simulator(plan, check=True)
    for name, text in SUBSCRIPTIONS.items():
        subscription = Subscription(name, parse(text))
        simulator.at(0, NAMES.index(name), Subscribe(subscription))
    simulator.run()
    return simulator


def test_figure_4_proxy_subscriptions(plan: KyraPlan) -> None:
    simulator = subscribed(plan)
    for name, values in PROXIED.items():
        router = simulator.brokers[NAMES.index(name)].router
        (place,) = router.seats.values()  # type: ignore[attr-defined]
        filters = list(place.proxied)
        found = {v for v in range(10) if any(_matches(filter, v) for filter in filters)}
        assert found == values, name


def _matches(filter: object, value: int) -> bool:
    from postroad.filters import matches

    return matches(filter, {"e": value})  # type: ignore[arg-type]


def test_event_9_from_a_goes_to_c_and_on_t2_to_h(plan: KyraPlan) -> None:
    simulator = subscribed(plan)
    ways: list[str] = []

    def watch(now: int, broker: int, given: object, effects: object) -> None:
        for effect in effects:  # type: ignore[attr-defined]
            if isinstance(effect, Send):
                kind = type(effect.message).__name__
                ways.append(f"{NAMES[broker]}-{NAMES[effect.peer]} {kind}")
            elif isinstance(effect, Deliver):
                ways.append(f"{NAMES[broker]} {effect.subscription_id}")

    simulator.observer = watch
    simulator.at(simulator.now, 0, Publish(Publication("p", "1", {"e": 9})))
    simulator.run()
    # E is on t2 between C and H here; it has no subscription for 9 and only passes it on.
    tree = [tuple(NAMES[s] for s in link) for link in plan.layout.trees[2].tolist()]
    assert tree == [("C", "E"), ("E", "H")]
    assert ways == [
        f"A-C {NewPublication.__name__}", f"C-E {TreePublication.__name__}",
        f"E-H {TreePublication.__name__}", "H H",
    ]  # fmt: skip


def test_a_subscription_that_spans_zones_is_served_once(plan: KyraPlan) -> None:
    simulator = Simulator(plan, check=True)
    simulator.at(0, 4, Subscribe(Subscription("all", parse("e >= 0"))))
    simulator.run()
    for value in range(10):
        publication = Publication("p", str(value), {"e": value})
        simulator.at(simulator.now, value % 8, Publish(publication))
    simulator.run()
    assert sorted(delivery[0][1] for delivery in simulator.deliveries) == list("0123456789")


def test_notifications_go_to_original_servers_and_not_back_to_the_publisher(
    plan: KyraPlan,
) -> None:
    simulator = subscribed(plan)
    notified: list[tuple[str, str]] = []

    def watch(now: int, broker: int, given: object, effects: object) -> None:
        notified.extend(
            (NAMES[broker], NAMES[effect.peer])
            for effect in effects  # type: ignore[attr-defined]
            if isinstance(effect, Send) and isinstance(effect.message, Notification)
        )

    simulator.observer = watch
    simulator.at(simulator.now, 0, Publish(Publication("p", "1", {"e": 7})))
    simulator.run()
    # 7 is wanted at A, which published it, and at F, whose proxy server for 7 is H.
    assert notified == [("H", "F")]
    assert {delivery[1] for delivery in simulator.deliveries} == {"A", "F"}
