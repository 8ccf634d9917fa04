"""The words of the verdict follow from the numbers."""

from __future__ import annotations

import pytest

from postroad.comparison.runs import MEASURES
from postroad.comparison.verdict import Outcome, figure, problems, verdict


def outcome(label: str, error: str | None = None, **told: list[float]) -> Outcome:
    values = {name: told.get(name, [0.0, 0.0, 0.0]) for name in MEASURES}
    return Outcome(label, "flooding", None, {}, "exact", error, values)


def test_intervals_are_students() -> None:
    told = figure([1.0, 2.0, 3.0])
    assert told.mean == 2.0
    assert told.half == pytest.approx(4.3027 / 3**0.5, rel=1e-4)


def test_the_best_is_named_with_its_lead_and_its_cost() -> None:
    a = outcome("A", messages=[10, 11, 12], state_mean=[50, 50, 50])
    b = outcome("B", messages=[20, 21, 22], state_mean=[10, 10, 10])
    text = verdict([b, a], "B", "traffic")
    assert text.startswith("For traffic: **A**, with 11.0 ± 2.5 publication messages")
    assert "Next is B with 21.0 ± 2.5, 91% more." in text
    assert "Against B it saves 48% (95% interval 48% to 48%)." in text
    assert "state per broker is 5.0 times that of the best, B" in text


def test_a_lead_within_the_noise_is_called_so() -> None:
    a = outcome("A", messages=[10, 20, 12])
    b = outcome("B", messages=[20, 11, 22])
    assert "The lead over B is within the noise" in verdict([a, b], "B", "traffic")


def test_equals_are_told_apart_by_state() -> None:
    a = outcome("A", messages=[5, 6, 7], state_mean=[9, 9, 9])
    b = outcome("B", messages=[5, 6, 7], state_mean=[3, 3, 3])
    assert "**B**" in verdict([a, b], "A", "traffic")
    assert "as A but with less state" in verdict([a, b], "A", "traffic")


def test_who_loses_or_fails_is_never_the_best() -> None:
    a = outcome("A", messages=[1, 1, 1], lost=[0, 2, 0])
    b = outcome("B", messages=[5, 6, 7])
    c = outcome("C", error="it broke")
    assert "**B**" in verdict([a, b, c], "B", "traffic")
    told = problems([a, b, c])
    assert told[0].startswith("A had 2 lost deliveries")
    assert told[0].endswith("although it promises exactness")
    assert told[1] == "C failed: it broke"
