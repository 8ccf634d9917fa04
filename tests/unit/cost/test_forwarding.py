"""The paper's equations, against each other and against plain arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.cost import exact, forwarding, shapes
from postroad.cost import trees as tree_cost
from postroad.errors import InputError
from postroad.overlay import rooted, trees

fanouts = st.integers(min_value=1, max_value=6)
heights = st.integers(min_value=1, max_value=5)
chances = st.floats(min_value=0.0, max_value=1.0)


def test_equation_6_term_by_term() -> None:
    f, h, sigma = 3, 4, 0.07
    n = sum(f**level for level in range(h + 1))
    expected = 0.0
    for level in range(1, h + 1):
        below = sum(f**k for k in range(h - level + 1))
        expected += (2 - (1 - sigma) ** below - (1 - sigma) ** (n - below)) * f**level
    assert math.isclose(forwarding.subscription_traffic(shapes.full(f, h), sigma), expected)


def test_equation_8_term_by_term() -> None:
    f, h, mu = 3, 4, 0.07
    n = sum(f**level for level in range(h + 1))
    expected = 0.0
    for level in range(1, h + 1):
        below = sum(f**k for k in range(h - level + 1))
        pi = below / n
        expected += f**level * (
            pi * (1 - (1 - mu) ** (n - below)) + (1 - pi) * (1 - (1 - mu) ** below)
        )
    assert math.isclose(forwarding.publication_traffic(shapes.full(f, h), mu), expected)


def test_equation_15_term_by_term() -> None:
    f, h, sigma, level = 4, 5, 0.01, 2
    n = sum(f**k for k in range(h + 1))
    child = sum(f**k for k in range(h - level))
    father = n - sum(f**k for k in range(h - level + 1))
    tau_f = father / (n - 1)
    none = 1 - sigma
    expected = (f + 1) / n + (1 - 1 / n) * (
        f * (1 - none ** (n - 1))
        + (1 - tau_f) * (1 - none ** (n - child))
        + tau_f * (1 - none ** (n - father))
    )
    load = forwarding.subscription_load(shapes.full(f, h), sigma)
    assert math.isclose(load[level], expected)
    root = f / n + (1 - 1 / n) * (
        (f - 1) * (1 - none ** (n - 1)) + 1 - none ** ((n * (f - 1) + 1) / f)
    )
    assert math.isclose(load[0], root)
    assert math.isclose(load[h], sigma)


@given(fanouts, heights, chances)
def test_publication_loads_sum_to_the_traffic(fanout: int, height: int, mu: float) -> None:
    shape = shapes.full(fanout, height)
    total = (forwarding.publication_load(shape, mu) * shape.nodes).sum()
    assert math.isclose(total, forwarding.publication_traffic(shape, mu), abs_tol=1e-9)


@given(fanouts, heights, chances)
def test_the_full_tree_is_the_arbitrary_tree_with_equal_subtrees(
    fanout: int, height: int, chance: float
) -> None:
    shape = shapes.full(fanout, height)
    tree = rooted.from_overlay(trees.full_tree(fanout, height))
    for name in ("subscription_load", "publication_load"):
        by_level = getattr(forwarding, name)(shape, chance)
        np.testing.assert_allclose(getattr(tree_cost, name)(tree, chance), by_level[tree.level])
    for name in ("subscription_traffic", "publication_traffic"):
        traffic = getattr(forwarding, name)
        links = tree_cost.links_of(tree)
        assert math.isclose(traffic(links, chance), traffic(shape, chance), abs_tol=1e-9)


@given(st.integers(min_value=2, max_value=60), st.integers(min_value=0, max_value=999), chances)
def test_traffic_on_arbitrary_trees_is_the_exact_expectation(
    count: int, seed: int, chance: float
) -> None:
    tree = rooted.from_overlay(trees.random_tree(count, seed))
    links = tree_cost.links_of(tree)
    subscriptions = exact.subscription_forwarding(tree, chance).traffic
    closed = forwarding.subscription_traffic(links, chance)
    assert math.isclose(closed, subscriptions, abs_tol=1e-9)
    publications = exact.publications(tree, chance).traffic
    closed = forwarding.publication_traffic(links, chance)
    assert math.isclose(closed, publications, abs_tol=1e-9)


def test_arrays_of_parameters_give_what_each_parameter_gives() -> None:
    sigmas = np.array([0.0, 1e-9, 0.02, 0.5, 1.0])
    shape = shapes.full([[2], [10]], [[3], [6]])
    many = forwarding.subscription_traffic(shape, sigmas)
    loads = forwarding.publication_load(shape, sigmas)
    assert many.shape == (2, 5)
    assert loads.shape == (2, 5, 7)
    for row, (fanout, height) in enumerate([(2, 3), (10, 6)]):
        one = shapes.full(fanout, height)
        for column, sigma in enumerate(sigmas):
            assert math.isclose(many[row, column], forwarding.subscription_traffic(one, sigma))
            np.testing.assert_allclose(
                loads[row, column, : height + 1], forwarding.publication_load(one, sigma)
            )


def test_at_the_breakeven_ratio_both_protocols_cost_the_same() -> None:
    shape = shapes.full(10, 4)
    ratio = float(forwarding.breakeven(shape, 0.1, 0.3))
    publications = 1000.0
    subscription_forwarding = ratio * publications * forwarding.subscription_traffic(
        shape, 0.1
    ) + publications * forwarding.publication_traffic(shape, 0.3)
    flooding = forwarding.event_forwarding_traffic(shape, publications)
    assert math.isclose(subscription_forwarding, flooding)
    assert forwarding.breakeven(shape, 0.0, 0.3) == math.inf
    assert forwarding.breakeven(shape, 0.5, 1.0) == 0.0


def test_zipf_keeps_its_mean_until_a_probability_would_exceed_one() -> None:
    sigmas = forwarding.zipf(100, 1.0, 2.0)
    assert math.isclose(sigmas.sum(), 2.0)
    assert math.isclose(sigmas[0] / sigmas[9], 10.0)
    assert forwarding.zipf(100, 3.0, 2.0)[0] == 1.0


@pytest.mark.parametrize("sigma", [-0.1, 1.1, float("nan")])
def test_probabilities_outside_the_unit_interval_are_refused(sigma: float) -> None:
    with pytest.raises(InputError, match="give sigma between 0 and 1"):
        forwarding.subscription_traffic(shapes.full(2, 2), sigma)


def test_fewer_receivers_than_subscribers_are_refused() -> None:
    with pytest.raises(InputError, match=r"mu 0\.1 is below sigma 0\.2"):
        forwarding.breakeven(shapes.full(2, 2), [0.05, 0.2], 0.1)


def test_impossible_zipf_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="Zipf exponent -1"):
        forwarding.zipf(10, -1.0, 2.0)
