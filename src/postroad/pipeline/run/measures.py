"""Measures of sweeps, for `postroad pipeline measure`, comparisons and papers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from postroad.errors import InputError
from postroad.pipeline import measure as measuring
from postroad.pipeline import session as sessions
from postroad.pipeline import store
from postroad.pipeline.run.job import Facts, Job, once
from postroad.pipeline.run.results import SMALL_RUNS
from postroad.pipeline.schemas import CASES, METRICS, RUNS, TRACES
from postroad.pipeline.store import Recipe


@dataclass(frozen=True)
class Member:
    """Which setting a case of `cases`, as JSON, is a replicate of."""

    case: str
    parameters: Mapping[str, str]
    replicate: str


@dataclass(frozen=True)
class Grid:
    """What the runs of a sweep differ in, and how many settings there are."""

    keys: tuple[str, ...]
    count: int


def grid_of(runs_path: str) -> Grid:
    """The settings of a table of runs, without Spark."""
    rows = [dict(row["parameters"]) for row in store.rows_of(runs_path, ("parameters",))]
    distinct = {tuple(sorted(row.items())) for row in rows}
    return Grid(tuple(sorted({key for row in rows for key in row})), len(distinct))


def measure(
    runs_path: str,
    folder: str,
    job: Job,
    *,
    traces_path: str | None = None,
    baselines: Sequence[Mapping[str, str | None]] = (),
    cases: Sequence[Member] | None = None,
    metrics: Sequence[str] | None = None,
) -> Facts:
    """Measures of a sweep into `measures`, and against baselines into `differences`.

    `cases` say which settings the runs of `run.cases` belong to; `metrics` are those wanted, if
    not all. A baseline's value of None stands for every value.
    """
    runs_path, folder = store.absolute(runs_path), store.absolute(folder)
    traces_path = traces_path and store.absolute(traces_path)
    measures_out = store.join(folder, "measures")
    differences_out = store.join(folder, "differences")
    tables = [measures_out, differences_out] if baselines else [measures_out]
    metrics_path = store.join(runs_path.rstrip("/").rpartition("/")[0], "metrics")
    counted = store.exists(metrics_path)
    paths = [runs_path, *([traces_path] if traces_path else [])]
    paths += [metrics_path] if counted else []
    inputs = {path: store.fingerprint(path) for path in paths}
    listed = cases and store.content_hash(json.dumps([astuple(case) for case in cases]))
    wanted = None if metrics is None else sorted(metrics)
    against = [dict(baseline) for baseline in baselines]
    parameters = {"baselines": against, "cases": listed, "metrics": wanted}
    recipe = Recipe("measure", parameters, inputs, job.command)

    def act() -> Facts:
        small = store.count(runs_path) < SMALL_RUNS and traces_path is None
        with job.session() as started:
            spark = sessions.small(started) if small else started
            runs = store.read(spark, runs_path, RUNS)
            if cases is not None:
                runs = measuring.of_cases(runs, _cases_table(spark, cases))
            others = [store.read(spark, metrics_path, METRICS)] if counted else []
            if traces_path:
                others.append(measuring.trace_metrics(store.read(spark, traces_path, TRACES)))
            values = measuring.run_metrics(runs, *others)
            if cases is not None:
                values = measuring.by_scheme(values)
            if metrics is not None:
                values = measuring.only(values, metrics)
            if baselines:
                for baseline in baselines if cases is None else ():
                    _check_baseline(runs, baseline, runs_path)
                compared = measuring.differences(values, baselines)
                store.write(compared.coalesce(1), differences_out)
            store.write(measuring.measures(values).coalesce(1), measures_out)
            facts: Facts = {"measures": store.count(store.beside(measures_out))}
            if baselines:
                facts["differences"] = store.count(store.beside(differences_out))
                store.publish(differences_out, recipe, facts)
            store.publish(measures_out, recipe, facts)
            return {**facts, "unchanged": False, "tables": tables}

    return once(act, job, recipe, folder, *tables)


def _cases_table(spark: SparkSession, cases: Sequence[Member]) -> DataFrame:
    columns = {
        "case": [case.case for case in cases],
        "parameters": [sorted(case.parameters.items()) for case in cases],
        "replicate": [case.replicate for case in cases],
    }
    return sessions.small_table(spark, columns, CASES)


def _check_baseline(runs: DataFrame, baseline: Mapping[str, str | None], where: str) -> None:
    parameters = [
        F.col("parameters")[key] == F.lit(value)
        for key, value in baseline.items()
        if value is not None
    ]
    matching = runs
    for condition in parameters:
        matching = matching.where(condition)
    if not matching.head(1):
        names = sorted(
            row["key"]
            for row in runs.select(F.explode(F.map_keys("parameters")).alias("key"))
            .distinct()
            .collect()
        )
        said = ", ".join(f"{key}={value}" for key, value in baseline.items())
        raise InputError(
            f"no run has {said}",
            where=where,
            remedy=f"the parameters are {', '.join(names)}",
        )
