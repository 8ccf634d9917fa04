"""The kernel's own promises; that it equals the reference is tests/differential."""

from __future__ import annotations

import numpy as np

from postroad.kernels import flooding, workload
from postroad.kernels.subscription_forwarding import FilterState, simulate
from postroad.overlay import rooted

# 0 ── 1 ── 3, 4
#  └── 2 ── 5
TREE = rooted.from_parents([0, 0, 0, 1, 1, 2])


def test_first_subscription_floods_and_the_second_stops_where_the_first_passed() -> None:
    network = FilterState(TREE)
    network.subscribe([3])
    assert network.subscriptions.traffic == 5
    network.subscribe([4])  # only 4 to 1 and 1 to 3 are new
    assert network.subscriptions.traffic == 7
    assert network.subscriptions.up.tolist() == [0, 1, 0, 1, 1, 0]
    assert network.subscriptions.down.tolist() == [0, 0, 1, 1, 1, 1]


def test_publication_follows_the_entries_and_nothing_else() -> None:
    network = FilterState(TREE)
    network.subscribe([3, 5])
    network.publish([4])
    assert network.publications.up.tolist() == [0, 1, 0, 0, 1, 0]
    assert network.publications.down.tolist() == [0, 0, 1, 1, 0, 1]
    assert network.publications.load.tolist() == [1, 2, 1, 0, 1, 0]


def test_publication_without_receivers_goes_nowhere() -> None:
    network = FilterState(TREE)
    network.publish([0, 3, 5])
    assert network.publications.traffic == 0


def test_reset_forgets_entries_and_keeps_counts() -> None:
    network = FilterState(TREE)
    network.subscribe([3])
    network.reset()
    network.publish([0])
    network.subscribe([3])
    assert (network.publications.traffic, network.subscriptions.traffic) == (0, 10)


def test_loads_sum_to_traffic() -> None:
    outcome = simulate(TREE, [0.3] * 20, [3] * 20, seed=4)
    for counters in (outcome.subscriptions, outcome.publications):
        assert counters.load.sum() == counters.traffic > 0
    assert outcome.interests.traffic == 0


def test_every_broker_subscribing_uses_every_link_both_ways() -> None:
    outcome = simulate(TREE, [1.0], [4], seed=1)
    assert outcome.subscriptions.traffic == 2 * 5
    assert outcome.publications.traffic == 4 * 5


def test_flooding_crosses_every_link_once_per_publication() -> None:
    counters = flooding.simulate(TREE, 9, seed=2)
    assert (counters.up + counters.down)[1:].tolist() == [9] * 5


def test_subscribers_come_in_random_order_and_about_as_many_as_expected() -> None:
    tree = rooted.from_parents(np.zeros(4000, dtype=np.int64))
    members = workload.subscribers(tree, 0.25, seed=3, filter=8)
    assert 900 < len(members) < 1100
    assert len(set(members.tolist())) == len(members)
    assert members.tolist() != sorted(members.tolist())
    assert workload.subscribers(tree, 0.25, seed=3, filter=9).tolist() != members.tolist()
