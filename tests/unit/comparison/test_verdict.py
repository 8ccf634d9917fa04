"""The words of the verdict follow from the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, stdev

from postroad.comparison.runs import MEASURES
from postroad.comparison.verdict import Outcome, problems, verdict
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


def test_the_best_is_named_with_its_lead_and_its_cost() -> None:
    a = outcome("A", messages=[10, 11, 12], state_mean=[50, 50, 50])
    b = outcome("B", messages=[20, 21, 22], state_mean=[10, 10, 10])
    text = verdict(paired(b, a), "B", "traffic")
    assert text.startswith("For traffic: **A**, with 11.0 ± 2.5 publication messages")
    assert "Next is B with 21.0 ± 2.5, 91% more." in text
    assert "Against B it saves 48% (95% interval 48% to 48%)." in text
    assert "state per broker is 5.0 times that of the best, B" in text


def test_a_lead_within_the_noise_is_called_so() -> None:
    a = outcome("A", messages=[10, 20, 12])
    b = outcome("B", messages=[20, 11, 22])
    assert "The lead over B is within the noise" in verdict(paired(a, b), "B", "traffic")


def test_equals_are_told_apart_by_state() -> None:
    a = outcome("A", messages=[5, 6, 7], state_mean=[9, 9, 9])
    b = outcome("B", messages=[5, 6, 7], state_mean=[3, 3, 3])
    assert "**B**" in verdict(paired(a, b), "A", "traffic")
    assert "as A but with less state" in verdict(paired(a, b), "A", "traffic")


def test_who_loses_or_fails_is_never_the_best() -> None:
    a = outcome("A", messages=[1, 1, 1], lost=[0, 2, 0])
    b = outcome("B", messages=[5, 6, 7])
    c = outcome("C", error="it broke")
    assert "**B**" in verdict(paired(a, b, c), "B", "traffic")
    told = problems([a, b, c])
    assert told[0].startswith("A had 2 lost deliveries")
    assert told[0].endswith("although it promises exactness")
    assert told[1] == "C failed: it broke"


def test_without_an_interval_none_is_printed_and_no_lead_is_claimed() -> None:
    a, b = paired(outcome("A", messages=[3, 3, 3]), outcome("B", messages=[5, 5, 5]))
    a, b = (
        replace(
            row,
            figures={name: Figure(one.mean) for name, one in row.figures.items()},
            gaps={
                key: replace(one, low=float("nan"), high=float("nan"))
                for key, one in row.gaps.items()
            },
        )
        for row in (a, b)
    )
    text = verdict([a, b], "B", "traffic")
    assert "**A**, with 3.0 publication messages" in text
    assert "within the noise" in text
    assert "Against B it saves 40%." in text
    assert "nan" not in text
