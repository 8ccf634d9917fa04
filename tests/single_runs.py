"""Measures of settings with one run each, without Spark: the mean of one value is the value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from postroad.papers import Measures, Replicate, Row
from postroad.pipeline.figures import Figure, Ratio, Setting
from postroad.pipeline.sweep import flattened


def measured(
    run_point: Callable[[Row], Mapping[str, Any]],
    replicates: Sequence[Replicate],
    baselines: Sequence[Mapping[str, str]],
) -> Measures:
    answers: dict[str, dict[str, float]] = {}
    values: dict[tuple[Setting, str], float] = {}
    for one in replicates:
        case = one.case()
        if case.case not in answers:
            answers[case.case] = flattened(run_point(one.row))
        for name, value in answers[case.case].items():
            scheme, _, metric = name.rpartition("|")
            setting = dict(case.parameters) | ({"scheme": scheme} if scheme else {})
            values[frozenset(setting.items()), metric] = value
    differences = {}
    for (own, metric), value in values.items():
        for base in baselines:
            other = frozenset((dict(own) | dict(base)).items())
            if base.keys() <= dict(own).keys() and (other, metric) in values:
                below = values[other, metric]
                gap, times = value - below, value / below if below else float("nan")
                differences[own, frozenset(base.items()), metric] = (
                    Figure(gap, least=gap, greatest=gap),
                    Ratio(times, times, times, times),
                )
    figures = {key: Figure(value, least=value, greatest=value) for key, value in values.items()}
    return Measures(figures, differences)
