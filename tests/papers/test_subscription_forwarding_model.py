"""Castelli, Costa, Picco: Modeling the Communication Costs of Content-based Routing (DEBS 2007)."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from postroad.cli import cli
from postroad.cost import exact, forwarding, shapes, variants
from postroad.cost.variants import VARIANTS, PerBroker
from postroad.kernels.subscription_forwarding import FilterState
from postroad.overlay import rooted, trees
from postroad.papers.subscription_forwarding_model import beyond, pictures, runs
from postroad.papers.subscription_forwarding_model.published import TABLES, Point
from postroad.report import cost_page

TRAFFIC_TABLES = [key for key, table in TABLES.items() if table.measure == "traffic"]


# Sanity identities of section 3


@given(st.integers(1, 12), st.integers(1, 6))
def test_everyone_subscribing_makes_every_link_bidirectional(fanout: int, height: int) -> None:
    """Section 3.1.1: σ=1 gives T(p) = 2(n−1)."""
    shape = shapes.full(fanout, height)
    assert forwarding.subscription_traffic(shape, 1.0) == 2 * (shape.brokers - 1)


@given(st.integers(1, 12), st.integers(1, 6))
def test_everyone_receiving_makes_a_publication_cross_every_link(fanout: int, height: int) -> None:
    """Section 3.1.2: μ=1 gives T(e) = n−1."""
    shape = shapes.full(fanout, height)
    assert math.isclose(forwarding.publication_traffic(shape, 1.0), shape.brokers - 1)


@pytest.mark.parametrize("mu", [0.0, 0.1, 0.5, 1.0])
def test_a_star_whose_root_publishes_carries_a_message_per_receiver(mu: float) -> None:
    """Section 5: a star has T(e) = μ(n−1) when its root publishes."""
    tree = rooted.from_parents([0] * 50)
    publisher = np.zeros(50)
    publisher[0] = 1.0
    assert math.isclose(exact.publications(tree, mu, publisher).traffic, mu * 49)


def test_a_simulated_star_carries_a_message_per_receiver() -> None:
    network = FilterState(rooted.from_parents([0] * 50))
    network.subscribe([3, 17, 41])
    network.publish([0])
    assert network.publications.traffic == 3


def test_nobody_interested_means_no_messages() -> None:
    shape = shapes.full(4, 5)
    assert forwarding.subscription_traffic(shape, 0.0) == 0
    assert forwarding.publication_traffic(shape, 0.0) == 0


@given(st.integers(2, 6), st.integers(1, 5), st.floats(0.0, 1.0))
def test_loads_sum_to_traffic_for_publications_and_in_the_exact_model(
    fanout: int, height: int, chance: float
) -> None:
    shape = shapes.full(fanout, height)
    publications = (forwarding.publication_load(shape, chance) * shape.nodes).sum()
    assert math.isclose(publications, forwarding.publication_traffic(shape, chance), abs_tol=1e-9)
    subscriptions = (forwarding.exact_subscription_load(shape, chance) * shape.nodes).sum()
    assert math.isclose(subscriptions, forwarding.subscription_traffic(shape, chance), abs_tol=1e-9)


def test_the_paper_s_subscription_loads_sum_to_traffic_up_to_its_approximation() -> None:
    """(11) and (12) let a first subscriber exist even where none may: up by (f+1)/n at most."""
    for fanout, height, sigma, bound in (
        (4, 7, 0.02, 1e-4),
        (4, 7, 0.001, 1e-3),
        (4, 4, 0.02, 0.01),
    ):
        shape = shapes.full(fanout, height)
        total = (forwarding.subscription_load(shape, sigma) * shape.nodes).sum()
        error = total / forwarding.subscription_traffic(shape, sigma) - 1
        assert 0 < error < bound


@given(st.integers(4, 50), st.integers(0, 99), st.integers(0, 99))
def test_the_exact_model_sums_to_traffic_for_uneven_brokers(
    count: int, seed: int, chances: int
) -> None:
    tree = rooted.from_overlay(trees.random_tree(count, seed))
    given_ = beyond.chances_of(tree, chances)
    for crossings in (
        exact.subscription_forwarding(tree, given_.sigma),
        exact.advertised_subscriptions(tree, given_.sigma, given_.advertise),
        exact.covered_subscriptions(tree, given_.sigma, given_.gamma),
        exact.hierarchical_publications(tree, given_.mu),
    ):
        assert math.isclose(crossings.load.sum(), crossings.traffic, abs_tol=1e-9)


# Published settings


def test_the_published_sizes_are_those_of_the_points() -> None:
    for key in ("2a", "2b", "5a", "5b"):
        for name, point in TABLES[key].columns.items():
            assert name.startswith(f"n={point.brokers:,} ")
    assert Point(4, 7).brokers == 21_845  # Table 1
    assert {point.brokers for point in TABLES["4b"].columns.values()} == {11_111}


def test_every_published_row_has_a_number_per_column() -> None:
    for table in TABLES.values():
        assert all(len(row) == len(table.columns) for row in table.rows.values())


# Statements of section 5


def test_figure_6_event_forwarding_wins_where_almost_all_receive() -> None:
    surface = pictures.ratio_surface(steps=20)
    ratio = surface["ratio"]
    assert np.nanmax(ratio) < 1
    assert np.all(np.abs(ratio[-1]) < 1e-9)  # μ = 1
    falling = np.diff(ratio, axis=0)
    assert np.all(falling[np.isfinite(falling)] < 0)


def test_figure_8_subscription_forwarding_always_wins_for_large_alpha_p() -> None:
    difference = pictures.zipf_surface(steps=7)["difference"]
    assert np.all(difference[-1] < 0)
    assert np.all(difference[0] > 0)


def test_figure_9_the_second_level_forwards_most_publications() -> None:
    columns = pictures.level_loads()
    assert np.argmax(columns["publications"]) == 1
    inner = columns["subscriptions"][:-1]
    assert inner.max() < 1.15 * inner.min()


def test_figure_10_a_larger_fanout_trades_traffic_for_load() -> None:
    columns = pictures.fanout_sweep()
    assert np.all(np.diff(columns["publication_traffic"]) < 0)
    assert np.all(np.diff(columns["subscription_load_max"]) > 0)
    assert columns["publication_load_max"][-1] > 10 * columns["publication_load_max"][0]
    subscriptions = columns["subscription_traffic"]
    assert subscriptions.max() < 1.1 * subscriptions.min()


# Quick mode


def test_run_point_is_a_function_of_its_row() -> None:
    row = {"fanout": 4, "height": 3, "sigma": 0.1, "mu": 0.2, "seed": 5}
    assert runs.run_point(row) == runs.run_point(dict(row))
    assert runs.run_point(row) != runs.run_point(row | {"seed": 6})


@pytest.fixture(scope="module")
def reproduced(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp("paper")
    command = ["reproduce", "subscription-forwarding-model", "--quick", "--out", str(out)]
    result = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output, out


def test_quick_mode_regenerates_every_cell(reproduced: tuple[str, Path]) -> None:
    with (reproduced[1] / "results.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0])[:5] == ["table", "row", "column", "paper", "measured"]
    found = {(r["table"], r["row"], r["column"]): float(r["paper"]) for r in rows if r["paper"]}
    assert found == {
        (key, row, column): paper
        for key, table in TABLES.items()
        for row, numbers in table.rows.items()
        for column, paper in zip(table.columns, numbers, strict=True)
    }


def test_quick_mode_stays_within_the_stated_error(reproduced: tuple[str, Path]) -> None:
    """Abstract: within 3% of the simulated traffic, in most scenarios well below 1%."""
    with (reproduced[1] / "results.csv").open(encoding="utf-8") as stream:
        errors = [
            abs(float(row["measured"]))
            for row in csv.DictReader(stream)
            if row["table"] in TRAFFIC_TABLES
        ]
    assert len(errors) == 56
    assert max(errors) < 3.0
    assert sum(error < 1.0 for error in errors) > 0.85 * len(errors)
    for key in TRAFFIC_TABLES:
        assert f"holds: Table {key} within 3%" in reproduced[0]


def test_quick_mode_finds_the_published_deviations(reproduced: tuple[str, Path]) -> None:
    """The readings chosen in the paper module reproduce these published numbers."""
    with (reproduced[1] / "results.csv").open(encoding="utf-8") as stream:
        found = {
            (row["table"], row["row"], row["column"]): (row["paper"], float(row["measured"]))
            for row in csv.DictReader(stream)
        }
    for key, allowed in {
        ("4b", "%ΔT(e)", "stddev=2"): 0.25,
        ("4b", "%ΔT(e)", "stddev=4"): 0.25,
        ("4b", "%ΔT(e)", "stddev=5"): 0.25,
        ("5a", "stdev. ΔL(p)", "n=21,845 (h=7)"): 0.1,
        ("5a", "stdev. ΔL(e)", "n=21,845 (h=7)"): 0.1,
        ("6a", "stdev. ΔL(e)", "σ=μ=0.001"): 0.2,
        ("6a", "stdev. ΔL(e)", "σ=μ=0.01"): 0.1,
    }.items():
        paper, measured = found[key]
        assert abs(measured / float(paper) - 1) < allowed, (key, paper, measured)


def test_quick_mode_draws_every_figure_and_writes_the_page(reproduced: tuple[str, Path]) -> None:
    page = (reproduced[1] / "page.md").read_text(encoding="utf-8")
    assert "--quick" in page
    assert all(f"## Table {key}: " in page for key in TABLES)
    for name in cost_page.FIGURES:
        picture = (reproduced[1] / "figures" / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert f"figures/{name}.png" in page


# Beyond the paper


def test_exact_expectations_agree_with_the_kernel_for_every_scheme() -> None:
    checks = beyond.checks(rounds=1500)
    assert len(checks) == 9
    for check in checks:
        assert check.agrees, check
        assert check.load_error_max < 6, check


def test_the_root_s_load_is_overestimated_by_the_published_equation() -> None:
    """Equation (11) against the exact expectation; docs/cost-model.md quotes the figures."""
    errors = {
        (item.fanout, item.height, item.sigma, item.level): item.error
        for item in beyond.approximations()
    }
    assert abs(errors[4, 7, 0.02, 0]) < 1e-6
    assert 0.3 < errors[4, 4, 0.02, 0] < 0.4
    assert 26 < errors[2, 5, 0.02, 0] < 27


def test_three_terms_explain_equations_11_and_15_on_tiny_trees() -> None:
    """Section 3.2.1: what the paper's loads are above the exact ones, term by term."""
    for item in beyond.approximations():
        if item.level < item.height:
            terms = beyond.error_terms(item.fanout, item.height, item.sigma, item.level)
            assert terms.total == pytest.approx(item.paper - item.exact, abs=1e-12)
            assert min(terms.first, terms.children, terms.father) >= 0
    root = beyond.error_terms(2, 5, 0.02, 0)
    assert root.children > 0.9 * root.total
    assert beyond.error_terms(4, 7, 0.02, 0).total < 1e-100


def test_figure_8_has_no_saddle_in_any_setting() -> None:
    search = pictures.saddle_search(steps=16)
    assert search.settings == 56
    assert search.turning_subscriptions == search.turning_publications == 0
    assert pictures._turns(np.array([2.0, 1.0, 3.0]))


@pytest.mark.parametrize("scheme", VARIANTS)
def test_each_variant_of_the_model_agrees_with_its_simulation(scheme: str) -> None:
    """With probabilities of every broker's own, and a few publishers."""
    tree = rooted.from_overlay(trees.random_tree(60, 3))
    own = beyond.chances_of(tree, 3)
    brokers = PerBroker(
        gamma=own.gamma if scheme == "covering" else 0.0,
        advertise=own.advertise if scheme == "advertisement_forwarding" else 1.0,
        publisher=own.publisher,
    )
    checks = beyond.validated(tree, scheme, own.sigma, own.mu, brokers, rounds=600)
    assert [check.scheme for check in checks] == ["subscriptions", "publications"]
    for check in checks:
        assert check.agrees, check
        assert check.simulated > 1
    wrong = replace(brokers, publisher=own.publisher[::-1])
    assert variants.publications(tree, scheme, own.mu, wrong).traffic != checks[1].expected
