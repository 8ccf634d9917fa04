"""Kyra's and PopSub's closed forms, beside their routers and where they must be another's."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.comparison.estimate import simulated_scheme
from postroad.cost import forwarding, schemes, shapes
from postroad.errors import InputError

MU = np.array([0.02, 0.3, 1.0])


@pytest.mark.parametrize(
    ("scheme", "sizes"),
    [
        ("kyra", {"clique": 3}),
        ("kyra", {"clique": 7}),
        ("popsub", {"popular": 0.25, "advertise": 0.1}),
    ],
    ids=["kyra 3", "kyra 7", "popsub"],
)
def test_routers_send_what_is_expected(scheme: str, sizes: dict[str, float]) -> None:
    brokers, fanout, sigma, mu = 42, 2.0, 0.1, 0.2
    if scheme == "kyra":
        costs = schemes.kyra(brokers, fanout, int(sizes["clique"]))
    else:
        costs = schemes.popsub(shapes.mean_fanout(fanout, brokers), **sizes)
    expected = costs.subscriptions(np.array(sigma)), costs.publications(np.array(mu))
    simulated = simulated_scheme(scheme, brokers, fanout, sigma, mu, 100, **sizes)  # type: ignore[arg-type]
    for each, model in zip(simulated, expected, strict=True):
        assert abs(each.mean - float(model)) <= 5 * each.standard_error, (each, model)
        assert each.standard_error < 0.1 * each.mean


def test_kyra_with_cliques_of_one_is_subscription_forwarding() -> None:
    tree = shapes.mean_fanout(3, 100)
    costs = schemes.kyra(100, 3, 1)
    assert np.allclose(costs.subscriptions(MU), forwarding.subscription_traffic(tree, MU))
    assert np.allclose(costs.publications(MU), forwarding.publication_traffic(tree, MU))


def test_popsub_s_publications_are_the_tree_s_if_all_are_popular_and_one_a_broker_if_none_is() -> (
    None
):
    tree = shapes.full(3, 4)
    over_tree = schemes.popsub(tree, 1.0, 1.0).publications(MU)
    assert np.allclose(over_tree, forwarding.publication_traffic(tree, MU))
    assert np.allclose(schemes.popsub(tree, 0.0, 1.0).publications(MU), 120 * MU)


def test_a_subscription_of_popsub_crosses_every_link_if_all_advertise_and_none_if_nobody_does() -> (
    None
):
    tree = shapes.full(3, 4)
    everywhere = schemes.popsub(tree, 0.5, 1.0)
    assert np.allclose(everywhere.subscriptions(MU), MU * 121 * 120)
    assert everywhere.besides == 121 * 120
    assert not schemes.popsub(tree, 0.5, 0.0).subscriptions(MU).any()


def test_cliques_that_are_the_whole_network_are_refused() -> None:
    with pytest.raises(InputError, match="cliques of 60 among 100"):
        schemes.kyra(100, 3, 60)


def test_the_commands_answer_for_both() -> None:
    def ask(*words: str) -> dict[str, float]:
        done = CliRunner().invoke(cli, [*words, "--json"])
        assert done.exit_code == 0, done.output
        answer: dict[str, float] = json.loads(done.output)
        return answer

    million = ["--fanout", "10", "--height", "6"]
    kyra = ask("estimate", *million, "--scheme", "kyra", "--clique", "10")
    popsub = ask("estimate", *million, "--scheme", "popsub", "--popular", "0.2")
    assert kyra["brokers"] == popsub["brokers"] == 1_111_111
    ratio = ask("breakeven", *million, "--scheme", "kyra", "--clique", "10")["breakeven_ratio"]
    assert ratio == pytest.approx(kyra["breakeven_ratio"])
    refused = CliRunner().invoke(
        cli, ["estimate", *million, "--scheme", "kyra", "--advertise", "1"]
    )
    assert refused.exit_code != 0
