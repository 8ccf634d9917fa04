"""The compiled kernels equal the reference simulator, link by link, on small random trees."""

from __future__ import annotations

import numpy as np
import pytest

from postroad.cost import exact
from postroad.filters import parse
from postroad.kernels import flooding, workload
from postroad.kernels import subscription_forwarding as kernel
from postroad.kernels.counters import Counters
from postroad.kernels.subscription_forwarding import SENT, FilterState
from postroad.overlay import Overlay, from_parents, rooted, trees
from postroad.overlay.rooted import Rooted
from postroad.routing import SCHEMES
from postroad.sim.run import Result, run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest, Posting, Workload

SECOND_US = 1_000_000
SEEDS = range(12)


def some_tree(seed: int) -> tuple[Overlay, Rooted]:
    """Between 2 and 41 brokers; every third tree is a star or a chain."""
    count = 2 + seed * 7 % 40
    parents = {0: [0] * count, 1: [max(0, b - 1) for b in range(count)]}.get(seed % 6)
    overlay = trees.random_tree(count, seed)
    if parents is not None:
        overlay = from_parents(parents)
    return overlay, rooted.from_overlay(overlay)


def interests(
    kind: str, tree: Rooted, text: str, members: np.ndarray, start: int
) -> list[Interest]:
    """One subscription or advertisement after the other, a second apart."""
    filter = parse(text)
    return [
        Interest(f"{kind}{start + i}", int(tree.broker[v]), "c", filter, (start + i) * SECOND_US)
        for i, v in enumerate(members.tolist())
    ]


def simulate(
    scheme: str,
    overlay: Overlay,
    subscriptions: list[Interest],
    postings: list[Posting],
    advertisements: list[Interest] | None = None,
    **parameters: bool,
) -> Result:
    config = SCHEMES[scheme].config(**parameters)
    given = Workload(tuple(subscriptions), tuple(advertisements or ()), tuple(postings))
    return run(Scenario(scheme, overlay, given, config=config), check=True)


def counted(result: Result, tree: Rooted, kind: str) -> Counters:
    """The reference simulator's messages of one kind, per link as the kernels count them."""
    counters = Counters.zero(tree)
    number = {int(broker): v for v, broker in enumerate(tree.broker)}
    for link in result.links:
        source, target = number[link.source], number[link.target]
        if tree.parent[source] == target:
            counters.up[source] = link.messages.get(kind, 0)
        else:
            assert tree.parent[target] == source
            counters.down[target] = link.messages.get(kind, 0)
    return counters


def assert_equal(result: Result, tree: Rooted, kind: str, *kernels: Counters) -> None:
    reference = counted(result, tree, kind)
    assert reference.up.tolist() == sum(k.up for k in kernels).tolist()
    assert reference.down.tolist() == sum(k.down for k in kernels).tolist()
    sent = [result.brokers[broker].sent.get(kind, 0) for broker in tree.broker]
    assert sent == sum(k.load for k in kernels).tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_subscription_forwarding_agrees_on_every_counter(seed: int) -> None:
    overlay, tree = some_tree(seed)
    chances, issued = [0.05, 0.3, 0.0, 0.9, 0.2, 0.5], [2, 1, 2, 3, 1, 4]
    outcome = kernel.simulate(tree, chances, issued, seed, patterns=4)

    subscriptions: list[Interest] = []
    counted_subscriptions: list[Interest] = []
    postings: list[Posting] = []
    for number, (chance, publications) in enumerate(zip(chances, issued, strict=True)):
        members = workload.subscribers(tree, chance, seed, number)
        subscriptions += interests("s", tree, f"pattern = {number}", members, len(subscriptions))
        if number < 4:
            counted_subscriptions = list(subscriptions)
        for _ in range(publications):
            broker = int(tree.broker[workload.publisher(tree, seed, len(postings))])
            moment = 1000 * SECOND_US + len(postings) * SECOND_US
            postings.append(Posting(moment, broker, "p", str(len(postings)), {"pattern": number}))

    everything = simulate("subscription_forwarding", overlay, subscriptions, postings)
    assert_equal(everything, tree, "subscription", outcome.subscriptions, outcome.interests)
    assert_equal(everything, tree, "publication", outcome.publications)
    only_patterns = simulate("subscription_forwarding", overlay, counted_subscriptions, [])
    assert_equal(only_patterns, tree, "subscription", outcome.subscriptions)


@pytest.mark.parametrize("seed", SEEDS)
def test_flooding_agrees_on_every_counter(seed: int) -> None:
    overlay, tree = some_tree(seed)
    postings = [
        Posting(
            i * SECOND_US,
            int(tree.broker[workload.publisher(tree, seed, i)]),
            "p",
            str(i),
            {"x": i},
        )
        for i in range(7)
    ]
    result = simulate("flooding", overlay, [], postings)
    assert_equal(result, tree, "publication", flooding.simulate(tree, 7, seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_barring_where_a_wider_filter_went_is_covering(seed: int) -> None:
    overlay, tree = some_tree(seed)
    wide, narrow = FilterState(tree), FilterState(tree)
    wide_members = workload.subscribers(tree, 0.1, seed, 0)
    narrow_members = workload.subscribers(tree, 0.4, seed, 1)
    wide.subscribe(wide_members)
    narrow.bar(up=wide.up == SENT, down=wide.down == SENT)
    narrow.subscribe(narrow_members)

    subscriptions = interests("w", tree, "x > 0", wide_members, 0)
    subscriptions += interests("n", tree, "x > 5", narrow_members, len(subscriptions))
    result = simulate("subscription_forwarding", overlay, subscriptions, [], covering=True)
    assert_equal(result, tree, "subscription", wide.subscriptions, narrow.subscriptions)
    assert "unsubscription" not in result.summary()["messages"]


@pytest.mark.parametrize("seed", SEEDS)
def test_barring_where_no_advertisement_came_from_is_advertisement_forwarding(seed: int) -> None:
    overlay, tree = some_tree(seed)
    advertisers = workload.subscribers(tree, 0.3, seed, 0)
    members = workload.subscribers(tree, 0.4, seed, 1)
    announced, asked = FilterState(tree), FilterState(tree)
    announced.subscribe(advertisers)
    asked.bar(up=announced.down != SENT, down=announced.up != SENT)
    asked.subscribe(members)
    asked.publish(advertisers)

    advertisements = interests("a", tree, "x = 1", advertisers, 0)
    subscriptions = interests("s", tree, "x = 1", members, len(advertisements))
    postings = [
        Posting((1000 + i) * SECOND_US, int(tree.broker[v]), "c", str(i), {"x": 1})
        for i, v in enumerate(advertisers.tolist())
    ]
    result = simulate("advertisement_forwarding", overlay, subscriptions, postings, advertisements)
    assert_equal(result, tree, "subscription", asked.subscriptions)
    assert_equal(result, tree, "publication", asked.publications)

    chosen = np.zeros(tree.brokers_count)
    chosen[advertisers] = 1.0
    flooded = exact.flooded_advertisements(tree, chosen)
    reference = counted(result, tree, "advertisement")
    assert reference.up.tolist() == flooded.up.tolist()
    assert reference.down.tolist() == flooded.down.tolist()


def climbed(tree: Rooted, members: list[int], publishers: list[int]) -> tuple[Counters, Counters]:
    """Hierarchical forwarding, written out naively."""
    subscriptions, publications = Counters.zero(tree), Counters.zero(tree)
    wanted_below: set[int] = set()  # brokers whose parent has an entry for them
    for broker in members:
        while broker != 0 and broker not in wanted_below:
            wanted_below.add(broker)
            subscriptions.up[broker] += 1
            broker = int(tree.parent[broker])

    def receive(broker: int, sender: int) -> None:
        above = int(tree.parent[broker])
        if broker != 0 and sender != above:
            publications.up[broker] += 1
            receive(above, broker)
        for child in np.flatnonzero(tree.parent == broker).tolist():
            if child != sender and child in wanted_below:
                publications.down[child] += 1
                receive(child, broker)

    for publisher in publishers:
        receive(publisher, -2)
    return subscriptions, publications


@pytest.mark.parametrize("seed", SEEDS)
def test_barring_the_way_down_is_hierarchical_forwarding(seed: int) -> None:
    overlay, tree = some_tree(seed)
    members = workload.subscribers(tree, 0.3, seed, 0)
    publishers = [workload.publisher(tree, seed, number) for number in range(5)]
    network = FilterState(tree)
    everywhere = np.ones(tree.brokers_count, dtype=bool)
    network.bar(up=~everywhere, down=everywhere)
    network.subscribe(members)
    network.publish(publishers, always_up=True)

    subscriptions, publications = climbed(tree, members.tolist(), publishers)
    for ours, naive in (
        (network.subscriptions, subscriptions),
        (network.publications, publications),
    ):
        assert ours.up.tolist() == naive.up.tolist()
        assert ours.down.tolist() == naive.down.tolist()
    postings = [
        Posting((1000 + i) * SECOND_US, int(tree.broker[v]), "p", str(i), {"x": 1})
        for i, v in enumerate(publishers)
    ]
    result = simulate("hierarchical", overlay, interests("s", tree, "x = 1", members, 0), postings)
    assert_equal(result, tree, "subscription", network.subscriptions)
    assert_equal(result, tree, "publication", network.publications)
