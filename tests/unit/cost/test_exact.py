"""The exact expectation, against enumeration of every outcome on tiny trees."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from postroad.cost import exact
from postroad.cost.exact import Crossings
from postroad.errors import InputError
from postroad.kernels.counters import Counters
from postroad.kernels.subscription_forwarding import SENT, FilterState
from postroad.overlay import rooted
from postroad.overlay.rooted import Rooted

TREES = [
    rooted.from_parents([0, 0, 0, 1, 1]),
    rooted.from_parents([0, 0, 1, 2]),
    rooted.from_parents([0, 0, 0, 0]),
]
SIGMA = np.array([0.1, 0.7, 0.0, 1.0, 0.3])
OTHER = np.array([0.2, 0.05, 0.6, 0.1, 0.0])
PUBLISHER = np.array([0.4, 0.1, 0.3, 0.2])


def expectation(
    tree: Rooted, chances: list[np.ndarray], simulate: Callable[..., Counters]
) -> tuple[np.ndarray, np.ndarray]:
    """Messages per link, averaged over every combination of the sets that `chances` draw."""
    n = tree.brokers_count
    up, down = np.zeros(n), np.zeros(n)
    subsets = list(itertools.product([False, True], repeat=n))
    for chosen in itertools.product(subsets, repeat=len(chances)):
        weight = math.prod(
            chance[v] if member else 1 - chance[v]
            for chance, subset in zip(chances, chosen, strict=True)
            for v, member in enumerate(subset)
        )
        if weight > 0:
            counters = simulate(*(np.flatnonzero(subset) for subset in chosen))
            up += weight * counters.up
            down += weight * counters.down
    return up, down


def assert_expected(model: Crossings, expected: tuple[np.ndarray, np.ndarray]) -> None:
    np.testing.assert_allclose(model.up, expected[0], atol=1e-12)
    np.testing.assert_allclose(model.down, expected[1], atol=1e-12)
    assert math.isclose(model.load.sum(), model.traffic)


@pytest.mark.parametrize("tree", TREES)
def test_subscription_forwarding(tree: Rooted) -> None:
    sigma = SIGMA[: tree.brokers_count]

    def simulate(members: np.ndarray) -> Counters:
        network = FilterState(tree)
        network.subscribe(members[::-1])
        return network.subscriptions

    assert_expected(
        exact.subscription_forwarding(tree, sigma), expectation(tree, [sigma], simulate)
    )


@pytest.mark.parametrize("tree", TREES[1:])
def test_publications_with_uneven_publishers(tree: Rooted) -> None:
    mu = OTHER[:4]

    def simulate(members: np.ndarray) -> Counters:
        up, down = np.zeros(4), np.zeros(4)
        for broker, weight in enumerate(PUBLISHER):
            network = FilterState(tree)
            network.subscribe(members)
            network.publish([broker])
            up += weight * network.publications.up
            down += weight * network.publications.down
        return Counters(tree, up, down)  # type: ignore[arg-type]

    assert_expected(exact.publications(tree, mu, PUBLISHER), expectation(tree, [mu], simulate))


@pytest.mark.parametrize("tree", TREES[1:])
def test_hierarchical_forwarding(tree: Rooted) -> None:
    mu = SIGMA[:4]
    everywhere = np.ones(4, dtype=bool)

    def network_of(members: np.ndarray) -> FilterState:
        network = FilterState(tree)
        network.bar(up=~everywhere, down=everywhere)
        network.subscribe(members)
        return network

    def publications(members: np.ndarray) -> Counters:
        up, down = np.zeros(4), np.zeros(4)
        for broker, weight in enumerate(PUBLISHER):
            network = network_of(members)
            network.publish([broker], always_up=True)
            up += weight * network.publications.up
            down += weight * network.publications.down
        return Counters(tree, up, down)  # type: ignore[arg-type]

    assert_expected(
        exact.hierarchical_subscriptions(tree, mu),
        expectation(tree, [mu], lambda members: network_of(members).subscriptions),
    )
    assert_expected(
        exact.hierarchical_publications(tree, mu, PUBLISHER), expectation(tree, [mu], publications)
    )


@pytest.mark.parametrize("tree", TREES[1:])
def test_advertised_subscriptions(tree: Rooted) -> None:
    sigma, advertise = SIGMA[:4], OTHER[:4]

    def simulate(members: np.ndarray, advertisers: np.ndarray) -> Counters:
        announced, asked = FilterState(tree), FilterState(tree)
        announced.subscribe(advertisers)
        asked.bar(up=announced.down != SENT, down=announced.up != SENT)
        asked.subscribe(members)
        return asked.subscriptions

    assert_expected(
        exact.advertised_subscriptions(tree, sigma, advertise),
        expectation(tree, [sigma, advertise], simulate),
    )


@pytest.mark.parametrize("tree", TREES[1:])
def test_covered_subscriptions(tree: Rooted) -> None:
    sigma, gamma = SIGMA[:4], OTHER[:4]

    def simulate(members: np.ndarray, holders: np.ndarray) -> Counters:
        wide, narrow = FilterState(tree), FilterState(tree)
        wide.subscribe(holders)
        narrow.bar(up=wide.up == SENT, down=wide.down == SENT)
        narrow.subscribe(members)
        return narrow.subscriptions

    assert_expected(
        exact.covered_subscriptions(tree, sigma, gamma),
        expectation(tree, [sigma, gamma], simulate),
    )


def test_nobody_advertising_silences_subscriptions_and_everybody_changes_nothing() -> None:
    tree = TREES[0]
    assert exact.advertised_subscriptions(tree, SIGMA, 0.0).traffic == 0
    plain = exact.subscription_forwarding(tree, SIGMA)
    assert math.isclose(exact.advertised_subscriptions(tree, SIGMA, 1.0).traffic, plain.traffic)


def test_full_covering_silences_subscriptions_and_none_changes_nothing() -> None:
    tree = TREES[0]
    assert exact.covered_subscriptions(tree, SIGMA, 1.0).traffic == 0
    plain = exact.subscription_forwarding(tree, SIGMA)
    assert math.isclose(exact.covered_subscriptions(tree, SIGMA, 0.0).traffic, plain.traffic)


def test_flooding_crosses_every_link_once() -> None:
    crossings = exact.flooding(TREES[1], PUBLISHER)
    np.testing.assert_allclose((crossings.up + crossings.down)[1:], 1.0)


def test_publisher_probabilities_must_sum_to_one() -> None:
    with pytest.raises(InputError, match="sum to 1"):
        exact.publications(TREES[1], 0.1, [0.5, 0.1, 0.1, 0.1])
