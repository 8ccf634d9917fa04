"""The cost of real subscriptions in closed form, against every order of tiny sets and the
simulator."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

import networks
from postroad.cost.filters import of_filters
from postroad.filters import Filter, covers, parse
from postroad.overlay import from_links, rooted
from postroad.routing.subscription_forwarding import Config
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest, Workload


def by_every_order(behind: list[Filter]) -> tuple[float, float]:
    """Subscriptions and unsubscriptions over one link, means over all orders."""
    sent = withdrawn = orders = 0
    for order in permutations(behind):
        asked: list[Filter] = []
        for filter in order:
            if not any(covers(other, filter) for other in asked):
                gone = [other for other in asked if covers(filter, other)]
                asked = [other for other in asked if other not in gone] + [filter]
                sent += 1
                withdrawn += len(gone)
        orders += 1
    return sent / orders, withdrawn / orders


@pytest.mark.parametrize("seed", range(12))
def test_one_link_agrees_with_every_order_of_subscriptions(seed: int) -> None:
    draw = random.Random(seed)
    texts = ["x > 1", "x > 3", "x > 3 AND y = 1", "y = 1", "TRUE", "x > 1 AND x > 1", "z = 'a'"]
    behind = [parse(draw.choice(texts)) for _ in range(draw.randint(1, 6))]
    tree = rooted.from_overlay(from_links([("a", "b", 0)]))
    traffic = of_filters(tree, [(1, filter) for filter in behind], covering=True)
    sent, withdrawn = by_every_order(behind)
    assert traffic.subscriptions.traffic == pytest.approx(sent)
    assert traffic.unsubscriptions.traffic == pytest.approx(withdrawn)
    assert traffic.entries == pytest.approx(sent - withdrawn)
    assert traffic.subscriptions.down.tolist() == [0, 0]


@pytest.mark.parametrize("covering", [False, True])
def test_the_mean_over_simulated_orders_is_the_expectation(covering: bool) -> None:
    draw = random.Random(5)
    overlay = networks.overlay(draw, 9)
    placed = [
        (draw.randrange(overlay.brokers_count), parse(f"x > {draw.randrange(5)}"))
        for _ in range(14)
    ]
    traffic = of_filters(rooted.from_overlay(overlay), placed, covering)
    rounds = 150 if covering else 1
    counts = {"subscription": 0, "unsubscription": 0}
    for _ in range(rounds):
        order = draw.sample(placed, len(placed))
        interests = tuple(
            Interest(f"s{n}", broker, "c", filter, time_us=n * 10_000_000)
            for n, (broker, filter) in enumerate(order)
        )
        scenario = Scenario(
            "subscription_forwarding", overlay, Workload(interests, (), ()), Config(covering)
        )
        messages = run(scenario).summary()["messages"]
        for kind in counts:
            counts[kind] += messages.get(kind, 0)
    wanted = (traffic.subscriptions.traffic, traffic.unsubscriptions.traffic)
    if not covering:
        assert (counts["subscription"], counts["unsubscription"]) == wanted
        return
    assert counts["subscription"] / rounds == pytest.approx(wanted[0], rel=0.05)
    assert counts["unsubscription"] / rounds == pytest.approx(wanted[1], rel=0.1)
    assert wanted[1] > 5
