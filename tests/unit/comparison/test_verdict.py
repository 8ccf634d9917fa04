"""The words of the verdict follow from the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, stdev

import pytest

from postroad.comparison.limits import Requirements
from postroad.comparison.runs import MEASURES
from postroad.comparison.verdict import Conditions, Outcome, factors, judge, placements, problems
from postroad.pipeline.figures import Figure

T = 4.302653  # Student's t for three replicates


def figure(values: Sequence[float]) -> Figure:
    middle, half = mean(values), T * stdev(values) / 3**0.5
    return Figure(middle, middle - half, middle + half, min(values), max(values))


def outcome(label: str, error: str | None = None, **told: list[float]) -> Outcome:
    values = {name: told.get(name, [0.0, 0.0, 0.0]) for name in MEASURES}
    figures = {name: figure(own) for name, own in values.items()}
    return Outcome(label, "flooding", None, {}, "exact", error, values, figures, {})


def paired(*outcomes: Outcome) -> list[Outcome]:
    return [
        replace(
            mine,
            gaps={
                (other.label, name): figure(
                    [a - b for a, b in zip(mine.values[name], other.values[name], strict=True)]
                )
                for other in outcomes
                if other is not mine
                for name in MEASURES
            },
        )
        for mine in outcomes
    ]


def test_the_best_is_named_with_its_lead_and_its_saving() -> None:
    a = outcome("A", traffic=[10, 11, 12], messages=[9, 10, 11], state_mean=[50, 50, 50])
    b = outcome("B", traffic=[20, 21, 22], messages=[20, 21, 22], state_mean=[10, 10, 10])
    text = judge(paired(b, a), "traffic", Conditions(baseline="B")).text.replace("\u00a0", " ")
    assert text.startswith(
        "For traffic: **A**, with 11 ± 2 messages a publication, 1 of them control."
    )
    assert "Next is B with 21 ± 2, 91% more (95% interval 91% to 91%)." in text
    assert "Against B it saves 48% (95% interval 48% to 48%)." in text


def test_a_lead_within_the_noise_is_called_so() -> None:
    a = outcome("A", traffic=[10, 20, 12])
    b = outcome("B", traffic=[20, 11, 22])
    assert (
        "The lead over B is within the noise" in judge(paired(a, b), "traffic", Conditions()).text
    )


def test_equals_are_told_apart_by_state() -> None:
    a = outcome("A", traffic=[5, 6, 7], state_mean=[9, 9, 9])
    b = outcome("B", traffic=[5, 6, 7], state_mean=[3, 3, 3])
    text = judge(paired(a, b), "traffic", Conditions(baseline="A")).text
    assert "**B**" in text
    assert "as A but with less state" in text
    assert "saves" not in text


def test_who_loses_or_fails_is_never_the_best() -> None:
    a = outcome("A", traffic=[1, 1, 1], lost=[0, 2, 0])
    b = outcome("B", traffic=[5, 6, 7])
    c = outcome("C", error="it broke")
    assert "**B**" in judge(paired(a, b, c), "traffic", Conditions()).text
    told = problems([a, b, c])
    assert told[0].startswith("A had 2 lost deliveries")
    assert told[0].endswith("although it promises exactness")
    assert told[1] == "C failed: it broke"


def test_who_breaks_a_limit_is_out_with_the_reason() -> None:
    a = outcome("A", traffic=[1, 1, 1], state_max=[900, 900, 900])
    b = outcome("B", traffic=[5, 6, 7], state_max=[50, 50, 50])
    c = outcome("C", traffic=[2, 2, 2], outside=[0.5, 0.5, 0.5])
    d = outcome("D", traffic=[3, 3, 3], control_per_change=[20, 20, 20])
    e = outcome("E", traffic=[9, 9, 9], state_max=[900, 900, 900])
    setting = Conditions(
        Requirements(state=100, given_links=True, control_per_s=30),
        rate_per_s=20.0,
        per_change=10.0,
    )
    judgement = judge(paired(a, b, c, d, e), "traffic", setting)
    assert judgement.best is not None
    assert judgement.best.label == "B"
    assert judgement.out.keys() == {"A", "C", "D", "E"}
    assert (
        "Out for the limits, though lower: "
        "A (1): 900 routing entries at a broker, at most 100 wanted; "
        "C (2): 0.5 messages a publication are sent outside the given links; "
        "D (3): 40 control messages a second, at most 30 wanted." in judgement.text
    )
    nobody = judge(paired(a, c), "traffic", setting)
    assert nobody.best is None
    assert "no scheme keeps within the limits. A, the best without them: 900" in nobody.text


def test_a_store_is_a_matter_of_the_scheme() -> None:
    values = {name: [1.0] * 3 for name in MEASURES} | {
        name: [0.0] * 3 for name in ("lost", "duplicated", "unexpected")
    }
    figures = {n: figure(v) for n, v in values.items()}
    kept = [{"scheme": "flooding", "where": "x < 3"}, {"scheme": "subscription_forwarding"}]
    lost = [{"scheme": "unicast", "where": "x < 3"}, {"scheme": "subscription_forwarding"}]
    rows = [
        Outcome(label, scheme, relocation, parameters, "exact", None, values, figures, {})
        for label, scheme, relocation, parameters in (
            ("moved", "flooding", "grape", {}),
            ("Kyra", "kyra", None, {}),
            ("flooding", "flooding", None, {}),
            ("groups", "mbr", None, {}),
            ("mix", "mix", None, {"parts": kept}),
            ("direct mix", "mix", None, {"parts": lost}),
            ("best places", "flooding", None, {"placed": True}),
        )
    ]
    judgement = judge(paired(*rows), "traffic", Conditions(Requirements(survives_crashes=True)))
    assert judgement.out.keys() == {"moved", "Kyra", "groups", "direct mix", "best places"}
    judgement = judge(paired(*rows), "traffic", Conditions(Requirements(runs_live=True)))
    assert judgement.out.keys() == {"groups", "best places"}


def test_rows_that_move_publishers_stand_beside_the_best_places() -> None:
    row = outcome("A", copies=[12] * 3)
    least = {"placed_tree_copies": Figure(8)}
    assert placements([row], Conditions(least=least)) == ""
    moved = replace(row, label="GRAPE", relocation="grape")
    assert placements([row, moved], Conditions(least=least)).endswith(
        "would take 8 copies a publication; GRAPE 12 (1.50 ×)."
    )


def test_the_distance_to_the_least_possible_is_taken_apart() -> None:
    row = outcome("A", traffic=[13] * 3, messages=[12] * 3, copies=[12] * 3, false_sends=[2] * 3)
    least = {
        "copies": Figure(5), "tree_copies": Figure(10), "placed_tree_copies": Figure(6),
        "placed_copies": Figure(4),
    }  # fmt: skip
    setting = Conditions(least=least)
    shares = factors(row, setting)
    assert shares == pytest.approx({
        "control messages": 13 / 12, "false sends": 1.2, "detours": 1.0,
        "where publishers are": 2 / 1.5, "the tree of links": 1.5,
    })  # fmt: skip
    text = judge(paired(row), "traffic", setting).text
    assert (
        "2.6 × the least possible (1.08 for control messages × 1.2 for false sends × 1.33" in text
    )


def test_where_another_would_be_best_is_said() -> None:
    a = outcome("A", traffic=[1, 1, 1])
    b = outcome("B", traffic=[2, 2, 2])
    there = {"A": {"traffic": 4.0}, "B": {"traffic": 3.0}}
    here = {"A": {"traffic": 1.0}, "B": {"traffic": 3.0}}
    text = judge(
        paired(a, b), "traffic", Conditions(points=[("skew 0", there), ("skew 1", here)])
    ).text
    assert "Another would be best with skew 0 B (25% less); one run each." in text
    text = judge(paired(a, b), "traffic", Conditions(points=[("skew 1", here)])).text
    assert "It stays the best wherever the workload was changed" in text
