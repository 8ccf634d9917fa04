"""Whole estimates: totals, levels, arbitrary trees."""

from __future__ import annotations

import math

import pytest

from postroad.cost import advice, estimate, forwarding, shapes
from postroad.errors import InputError
from postroad.overlay import from_parents, rooted, trees


def test_totals_add_patterns_and_publications_one_by_one() -> None:
    shape = shapes.full(4, 4)
    patterns, publications = estimate.zipf(30, 1.0, 2.0), estimate.zipf(50, 0.5, 4.0)
    expected = sum(forwarding.subscription_traffic(shape, s) for s in patterns.values) + sum(
        forwarding.publication_traffic(shape, m) for m in publications.values
    )
    found = estimate.of_shape(shape, patterns, publications)
    assert math.isclose(found.total_subscription_forwarding, expected)
    assert found.total_event_forwarding == 50 * 340


def test_a_full_tree_given_by_its_links_costs_what_the_full_tree_costs() -> None:
    patterns, publications = estimate.uniform(0.02, 100), estimate.uniform(0.1, 1000)
    by_shape = estimate.of_shape(shapes.full(3, 4), patterns, publications)
    tree = rooted.from_overlay(trees.full_tree(3, 4))
    by_tree = estimate.of_tree(tree, patterns, publications)
    assert by_tree.brokers == by_shape.brokers == 121
    assert math.isclose(
        by_tree.total_subscription_forwarding, by_shape.total_subscription_forwarding
    )
    for one, other in zip(by_tree.load, by_shape.load, strict=True):
        assert math.isclose(one["subscriptions"], other["subscriptions"])
        assert math.isclose(one["publications_max"], other["publications"])


def test_exact_loads_sum_to_the_traffic_and_differ_from_the_paper_s_root() -> None:
    patterns, publications = estimate.uniform(0.02, 100), estimate.uniform(0.1, 1000)
    tree = rooted.from_overlay(trees.full_tree(2, 5))
    for found in (
        estimate.of_shape(shapes.full(2, 5), patterns, publications, exact_load=True),
        estimate.of_tree(tree, patterns, publications, exact_load=True),
    ):
        total = sum(
            row["nodes"] * (row["subscriptions"] + row["publications"]) for row in found.load
        )
        assert math.isclose(total, found.total_subscription_forwarding)
        assert math.isclose(found.load[0]["subscriptions"], 200 * (1 - 0.98**32))
    paper = estimate.of_shape(shapes.full(2, 5), patterns, publications)
    assert paper.load[0]["subscriptions"] > 1.2 * found.load[0]["subscriptions"]


def test_mean_fanout_would_miss_the_root_that_section_4_warns_of() -> None:
    inner = 50  # the root above 50 brokers with one child each: the mean fan-out is 100/51
    tree = rooted.from_overlay(from_parents([0] * (inner + 1) + list(range(1, inner + 1))))
    workload = estimate.uniform(0.1, 1), estimate.uniform(0.1, 1)
    true_root = estimate.of_tree(tree, *workload).load[0]["subscriptions"]
    averaged = estimate.of_shape(shapes.mean_fanout(100 / 51, 101), *workload)
    assert true_root > 40
    assert averaged.load[0]["subscriptions"] < 3


def test_a_larger_fanout_costs_less_traffic_and_more_load() -> None:
    options = advice.options(11_111, [2, 4, 10, 22, 105], 0.02, 0.1, 100, 1000)
    traffic = [option.publication_traffic for option in options]
    load = [option.load_max for option in options]
    assert traffic == sorted(traffic, reverse=True)
    assert load == sorted(load)


def test_advice_takes_the_least_traffic_that_fits_the_capacity() -> None:
    options = advice.options(11_111, range(2, 40), 0.02, 0.1, 100, 1000)
    best = advice.best(options, capacity=12_500)
    assert best is not None
    assert best.load_max <= 12_500
    assert best.over(12_500) == []
    assert all(o.traffic >= best.traffic for o in options if o.load_max <= 12_500)
    assert advice.best(options, capacity=10) is None
    assert options[0].over(10)[0] == 0


def test_advice_refuses_fewer_receivers_than_subscribers() -> None:
    with pytest.raises(InputError, match="mu >= sigma"):
        advice.options(100, [2], 0.2, 0.1, 1, 1)
