"""`postroad estimate`, `breakeven` and `advise fanout`: answers and refusals."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from postroad import cli


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["postroad", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


@pytest.fixture
def postroad(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    return lambda *words: run(capsys, monkeypatch, *words)


FULL = ("--fanout", "4", "--height", "7")


def test_estimate_answers_in_json_with_the_documented_keys(postroad) -> None:  # type: ignore[no-untyped-def]
    code, out, err = postroad(
        "estimate", *FULL, "--sigma", "0.02", "--mu", "0.1",
        "--patterns", "100", "--publications", "1000", "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert list(found) == [
        "brokers", "subscription_traffic_per_pattern", "publication_traffic_per_publication",
        "total_subscription_forwarding", "total_event_forwarding", "load",
    ]  # fmt: skip
    assert found["brokers"] == 21_845
    assert found["total_event_forwarding"] == 21_844_000
    per_pattern = found["subscription_traffic_per_pattern"]
    per_publication = found["publication_traffic_per_publication"]
    assert math.isclose(
        found["total_subscription_forwarding"], 100 * per_pattern + 1000 * per_publication
    )
    assert [list(row) for row in found["load"]] == [
        ["level", "nodes", "subscriptions", "publications"]
    ] * 8
    total = sum(row["nodes"] * row["publications"] for row in found["load"])
    assert math.isclose(total, 1000 * per_publication)


def test_estimate_prints_a_table_for_people(postroad) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = postroad("estimate", *FULL)
    assert code == 0
    assert "21,845 brokers; T(p) = 23,213.2" in out
    assert "subscription forwarding saves" in out


def test_estimate_reads_a_tree_from_its_links(postroad, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    links = tmp_path / "star.txt"
    links.write_text("hub a\nhub b\nhub c\n")
    code, out, _ = postroad("estimate", "--tree", str(links), "--mu", "1", "--exact", "--json")
    found = json.loads(out)
    assert (code, found["brokers"]) == (0, 4)
    assert math.isclose(found["publication_traffic_per_publication"], 3)
    assert found["load"][1]["subscriptions_max"] == pytest.approx(2.0)


def test_estimate_takes_a_mean_fanout_in_place_of_f(postroad) -> None:  # type: ignore[no-untyped-def]
    mean = json.loads(postroad("estimate", "--mean-fanout", "4", "--brokers", "21845", "--json")[1])
    full = json.loads(postroad("estimate", *FULL, "--json")[1])
    assert mean["total_subscription_forwarding"] == pytest.approx(
        full["total_subscription_forwarding"]
    )


def test_estimate_with_zipf_says_what_it_capped(postroad) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = postroad(
        "estimate", *FULL, "--zipf-patterns", "2", "--patterns-per-node", "5",
        "--zipf-publications", "0.5",
    )  # fmt: skip
    assert code == 0
    assert "of 100 patterns reach probability 1 and stay there" in out


def test_breakeven_tells_the_ratio_and_the_cheaper_protocol(postroad) -> None:  # type: ignore[no-untyped-def]
    words = ("breakeven", "--fanout", "10", "--height", "6", "--sigma", "0.1", "--mu", "0.1")
    found = json.loads(postroad(*words, "--patterns", "800", "--publications", "1000", "--json")[1])
    assert found["brokers"] == 1_111_111
    assert 0.72 < found["breakeven_ratio"] < 0.73
    assert found["cheaper"] == "event_forwarding"
    fewer = json.loads(postroad(*words, "--patterns", "700", "--publications", "1000", "--json")[1])
    assert fewer["cheaper"] == "subscription_forwarding"
    code, out, _ = postroad(*words)
    assert (code, out.startswith("both protocols cost the same at F_p/F_e = 0.72")) == (0, True)


def test_breakeven_surface_covers_the_allowed_half_plane(postroad) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = postroad("breakeven", *FULL, "--surface", "10")
    head, *lines = out.splitlines()
    assert head == "sigma,mu,breakeven_ratio"
    points = [tuple(map(float, line.split(","))) for line in lines]
    assert len(points) == 55
    assert all(sigma <= mu for sigma, mu, _ in points)


def test_advise_fanout_marks_the_best_that_fits(postroad) -> None:  # type: ignore[no-untyped-def]
    words = ("advise", "fanout", "--brokers", "11111")
    found = json.loads(postroad(*words, "--capacity", "6500", "--json")[1])
    assert found["best"] == 5
    six = next(option for option in found["options"] if option["fanout"] == 6)
    assert six["levels_over_capacity"] == [1, 2, 3]
    code, out, _ = postroad(*words, "--capacity", "6500")
    assert (code, "* fan-out 5 costs the least traffic" in out) == (0, True)


def test_advise_fanout_without_a_fit_fails_in_one_line(postroad) -> None:  # type: ignore[no-untyped-def]
    code, _, err = postroad("advise", "fanout", "--brokers", "100", "--capacity", "3")
    assert code == 1
    assert err.startswith("postroad: no fan-out from 2 to 16 fits a capacity of 3")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["estimate", *FULL, "--sigma", "1.5"], "sigma is 1.5"),
        (["estimate", *FULL, "--mu", "-0.1", "--sigma", "0"], "mu is -0.1"),
        (["estimate", *FULL, "--sigma", "0.3", "--mu", "0.2"], "mu 0.2 is below sigma 0.3"),
        (["breakeven", *FULL, "--sigma", "0.3", "--mu", "0.2"], "mu 0.2 is below sigma 0.3"),
        (["estimate", "--fanout", "0.5", "--height", "3"], "fan-out is 0.5"),
        (["estimate", "--fanout", "4", "--height", "0"], "height is 0"),
        (["estimate", "--fanout", "4", "--height", "700"], "give a height of at most 26"),
        (["estimate", "--fanout", "4"], "no tree is given, or two"),
        (["estimate", *FULL, "--brokers", "9"], "no tree is given, or two"),
        (["estimate", *FULL, "--tree", "x"], "--tree says all about the tree"),
        (["estimate", "--tree", "no such file"], "cannot read 'no such file'"),
        (["estimate", *FULL, "--patterns-per-node", "2"], "without --zipf-patterns"),
        (["estimate", *FULL, "--zipf-patterns", "-1"], "Zipf exponent -1"),
        (["breakeven", *FULL, "--patterns", "2"], "one of --patterns and --publications"),
        (["advise", "fanout", "--brokers", "1"], "number of brokers is 1"),
        (["advise", "fanout", "--brokers", "9", "--fanout-max", "1"], "--fanout-max 1 is below"),
        (["advise", "fanout", "--brokers", "9", "--sigma", "0.5"], "mu 0.1 is below sigma 0.5"),
    ],
)
def test_impossible_parameters_are_refused_in_one_line(postroad, words, said) -> None:  # type: ignore[no-untyped-def]
    code, out, err = postroad(*words)
    assert (code, out) == (2, "")
    assert err.startswith("postroad: ")
    assert said in err
    assert err.count("\n") == 1


def test_estimate_answers_for_neighbouring_schemes_and_own_chances(
    postroad, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    links, chances = tmp_path / "star.txt", tmp_path / "chances.csv"
    links.write_text("hub a\nhub b\nhub c\n")
    chances.write_text("broker,sigma,mu,publisher\nhub,0,0,0\na,1,1,0\nb,0,0,1\nc,0,0.5,0\n")
    words = ("--tree", str(links), "--chances", str(chances), "--json")
    answer = json.loads(postroad("estimate", "--scheme", "hierarchical", *words)[1])
    # a subscribes: one message up. b publishes: up, down to a, and to c every other time.
    assert answer["subscription_traffic_per_pattern"] == pytest.approx(1)
    assert answer["publication_traffic_per_publication"] == pytest.approx(2.5)
    flat = json.loads(postroad("estimate", *words)[1])
    assert flat["subscription_traffic_per_pattern"] == pytest.approx(3)
    assert flat["breakeven_ratio"] == pytest.approx((3 - 2.5) / 3)
    ratio = json.loads(
        postroad("breakeven", "--scheme", "hierarchical", "--sigma", "0.02", *words)[1]
    )
    assert ratio["breakeven_ratio"] == pytest.approx(0.5)


def test_estimate_holds_a_variant_against_a_simulation(postroad) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = postroad(
        "estimate", "--fanout", "3", "--height", "3", "--scheme", "covering", "--gamma", "0.02",
        "--simulate", "400", "--json",
    )  # fmt: skip
    assert code == 0
    answer = json.loads(out)
    assert [check["agrees"] for check in answer["simulated"]] == [True, True]
    assert answer["other_traffic"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gamma", "0.1"], "--gamma with --scheme subscription_forwarding"),
        (["--scheme", "covering", "--gamma", "2"], "gamma is 2"),
        (["--chances", "x.csv"], "--chances needs brokers with names"),
        (["--scheme", "hierarchical", "--zipf-patterns", "1", "--simulate", "5"], "with Zipf"),
    ],
)
def test_variants_that_cannot_be_are_refused(postroad, words, said) -> None:  # type: ignore[no-untyped-def]
    code, _, err = postroad("estimate", *FULL, *words)
    assert code == 2
    assert said in err


def test_estimate_of_real_filters_without_and_with_covering(postroad, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    links, filters = tmp_path / "line.txt", tmp_path / "subs.csv"
    links.write_text("a b\nb c\n")
    filters.write_text("broker,client,filter\na,x,price > 5\na,y,price > 9\nc,z,price > 9\n")
    words = ("estimate", "--tree", str(links), "--subscriptions", str(filters))
    code, out, _ = postroad(*words, "--simulate", "200", "--json")
    assert code == 0
    plain, covered = json.loads(out)["schemes"]
    # From a two filters over two links, from c one; with covering the narrow one of a crosses
    # half of the time, and is then withdrawn.
    assert (plain["subscriptions"], plain["unsubscriptions"], plain["entries"]) == (6, 0, 6)
    assert covered["subscriptions"] == pytest.approx(2 * 1.5 + 2)
    assert covered["unsubscriptions"] == pytest.approx(2 * 0.5)
    assert covered["entries"] == 4
    assert plain["error_percent"] == 0
    assert abs(covered["error_percent"]) < 5
    assert "covering" in postroad(*words)[1]
    assert "give --tree" in postroad("estimate", *FULL, "--subscriptions", str(filters))[2]
