"""Measures of settings with one run each: the mean of one value is the value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from postroad.papers import Measures, Replicate, Row
from postroad.pipeline.definitions import OF_PAPERS
from postroad.pipeline.figures import Figure, Ratio, Setting
from postroad.pipeline.measure import fact_metrics
from postroad.pipeline.schemas import FACTS
from postroad.pipeline.sweep import flattened


def metrics_of(
    spark: SparkSession, run_point: Callable[[Row], Mapping[str, Any]], points: Sequence[Row]
) -> list[dict[str, float]]:
    """What each point measures: its plain metrics, and those that follow from its facts."""
    rows: list[tuple[Any, ...]] = []
    found: list[dict[str, float]] = []
    for number, point in enumerate(points):
        answer = dict(run_point(point))
        columns = answer.pop("facts")
        rows += [(str(number), *fact) for fact in zip(*columns.values(), strict=True)]
        found.append(flattened(answer))
    names = {fact for *_, fact, _ in rows}
    (paper,) = {name.partition(".")[0] for name in names}
    assert {name.partition(".")[2] for name in names} <= set(OF_PAPERS[paper].facts)
    for row in fact_metrics(spark.createDataFrame(rows, FACTS), [paper]).collect():
        found[int(row["run_id"])][row["metric"]] = row["value"]
    return found


def measured(
    spark: SparkSession,
    run_point: Callable[[Row], Mapping[str, Any]],
    replicates: Sequence[Replicate],
    baselines: Sequence[Mapping[str, str]],
) -> Measures:
    rows = {one.case().case: one.row for one in replicates}
    found = metrics_of(spark, run_point, list(rows.values()))
    answers = dict(zip(rows, found, strict=True))
    values: dict[tuple[Setting, str], float] = {}
    for one in replicates:
        case = one.case()
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
