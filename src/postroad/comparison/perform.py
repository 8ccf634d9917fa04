"""From a comparison to its results: tune, run everything through the Spark sweep, gather."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from postroad.comparison import deploy, mixing, settings
from postroad.comparison.estimate import estimates
from postroad.comparison.optimum import BOUNDS, LABEL
from postroad.comparison.rows import CANDIDATES, Row
from postroad.comparison.runs import CONCERN, MEASURES, rate_per_s
from postroad.comparison.settings import Comparison
from postroad.comparison.verdict import Conditions, Outcome
from postroad.errors import InputError
from postroad.pipeline import figures as tables
from postroad.pipeline import run
from postroad.pipeline.figures import Figure
from postroad.pipeline.session import kept
from postroad.pipeline.sweep import files_named
from postroad.routing import SCHEMES
from postroad.sim.scenario import Scenario

ENTRY = "postroad.comparison.runs:run_row"
Case = dict[str, Any]
Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Point:
    """One run of the sensitivity study."""

    dimension: str
    value: float
    label: str
    measures: Mapping[str, float]
    error: str | None


@dataclass(frozen=True)
class Size:
    """Of a replicate."""

    subscriptions: int
    publications: int


@dataclass(frozen=True)
class Results:
    """All that the page and the files are made from."""

    comparison: Comparison
    scenario: Scenario  # the first replicate's, as judged
    size: Size
    topic: str
    outcomes: Sequence[Outcome]
    conditions: Conditions
    details: Mapping[str, Mapping[str, Mapping[str, float]]]  # per row: load, link, quantile
    points: Sequence[Point]
    tried: Mapping[str, int]  # how many settings of a row were tried
    estimates: Mapping[str, Mapping[str, float]]
    bad: Sequence[InputError]


def perform(comparison: Comparison, out: Path, job: run.Job, report: Report) -> Results:
    """Run all that is left to run, and gather; what an earlier, broken off call ran is kept."""
    scenario, bad = settings.first_look(comparison)
    topic = comparison.topic or settings.topic_attribute(scenario)
    with kept():  # one session for both sweeps, if anything is left to run
        parameters, tried = _tuned(comparison, topic, out, job, report)
        for label, row in comparison.rows.items():
            if row.scheme == "mix":
                some = mixing.candidates(comparison.rows, parameters)
                parameters[label] = {CANDIDATES: some}
        cases = list(_cases(comparison, topic, parameters))
        ran = _sweep(comparison, cases, out / "sweep", job, lambda *n: report("comparing", *n))
        figures, gaps = _measured(cases, out / "sweep", job)
    judged = settings.part(
        comparison.scenario, comparison.folder, comparison.seed, 0, comparison.replicates, False
    )
    main = [one for one in ran if one[0]["point"] is None]
    outcomes = []
    details: dict[str, dict[str, dict[str, float]]] = {}
    for label, row in comparison.rows.items():
        mine = sorted(
            (one for one in main if one[0]["label"] == label), key=lambda one: one[0]["replicate"]
        )
        error = next((error for _, _, error in mine if error is not None), None)
        values = {} if error else {name: [m[name] for _, m, _ in mine] for name in MEASURES}
        known = [n for n in (*MEASURES, "physical") if (label, None, n) in figures]
        own = {} if error else {name: figures[label, None, name] for name in known}
        used: dict[str, Any] = {
            "scheme": row.scheme,
            "parameters": {**row.parameters, **parameters[label]},
        }
        if CANDIDATES in used["parameters"] and error is None:
            used = _mixed(comparison, topic, used["parameters"][CANDIDATES], mine[0][1])
        outcomes.append(
            Outcome(
                label, used["scheme"], row.relocation, used["parameters"],
                SCHEMES[row.scheme].promise, error, values, own, gaps[label],
            )
        )  # fmt: skip
        if error is None:
            details[label] = _nested(mine[0][1], ("load", "link", "quantile"))
    points = []
    for case, _, error in ran:
        if case["point"] is not None:
            label, point = case["label"], _said(case["point"])
            measures = {} if error else {n: figures[label, point, n].mean for n in MEASURES}
            dimension, value = case["point"]
            points.append(Point(dimension, value, label, measures, error))
    conditions = Conditions(
        limits=comparison.limits,
        baseline=comparison.baseline,
        rate_per_s=rate_per_s(judged),
        per_change=comparison.per_change,
        least={
            name: figure
            for (label, point, name), figure in figures.items()
            if label == LABEL and point is None
        },
        points=_changed(points),
    )
    results = Results(
        comparison,
        judged,
        Size(len(judged.workload.subscriptions), len(judged.workload.postings)),
        topic,
        outcomes,
        conditions,
        details,
        points,
        tried,
        estimates(judged),
        bad,
    )
    _write(results, ran, out)
    return results


def _mixed(
    comparison: Comparison, topic: str, rows: Sequence[Any], measures: Mapping[str, float]
) -> dict[str, Any]:
    """Scheme and parameters of the mix that the first replicate ran."""
    choice = _nested(measures, ("choice",))["choice"]
    training = settings.part(
        comparison.scenario, comparison.folder, comparison.seed, 0, comparison.replicates, True
    )
    some = [mixing.Candidate(*row) for row in rows]
    return mixing.chosen(
        topic, training, some, [int(choice[str(group)]) for group in range(len(choice))]
    )


def _changed(
    points: Sequence[Point],
) -> list[tuple[str, Mapping[str, Mapping[str, float]]]]:
    """Every row's measures at each point of the sensitivity study."""
    changed: dict[str, dict[str, Mapping[str, float]]] = {}
    for point in points:
        if point.error is None:
            name = f"{point.dimension} {point.value:,g}"
            changed.setdefault(name, {})[point.label] = point.measures
    return list(changed.items())


def _tuned(
    comparison: Comparison, topic: str, out: Path, job: run.Job, report: Report
) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """The parameters of each row: the best on the training part for what matters, or the first."""
    parameters = {label: row.candidates()[0] for label, row in comparison.rows.items()}
    if not comparison.tune:
        return parameters, {}
    cases = [
        _case(comparison, topic, label, row, candidate, 0, training=True)
        for label, row in comparison.rows.items()
        if len(row.candidates()) > 1
        for candidate in row.candidates()
    ]
    if not cases:
        return parameters, {}
    ran = _sweep(comparison, cases, out / "tuning", job, lambda *n: report("tuning", *n))
    measure = CONCERN[comparison.matters]
    best: dict[str, float] = {}
    tried: dict[str, int] = {}
    for case, measures, error in ran:
        label = case["label"]
        tried[label] = tried.get(label, 0) + 1
        if error is None and measures[measure] < best.get(label, float("inf")):
            best[label] = measures[measure]
            own = comparison.rows[label].grid
            parameters[label] = {name: case["parameters"][name] for name in own}
    return parameters, tried


def _cases(
    comparison: Comparison, topic: str, parameters: Mapping[str, Mapping[str, Any]]
) -> Iterator[Case]:
    for replicate in range(comparison.replicates):
        for label, row in comparison.rows.items():
            yield _case(comparison, topic, label, row, parameters[label], replicate)
        yield {
            **_case(comparison, topic, LABEL, Row(""), {}, replicate), "scheme": None,
            "details": False,
        }  # fmt: skip
    possible = settings.possible_rows(comparison)
    for dimension, values in settings.sensitivity_points(comparison).items():
        for value, changed in values:
            for label, row in possible.items():
                case = _case(comparison, topic, label, row, parameters[label], 0)
                yield {**case, "settings": changed, "point": [dimension, value], "details": False}


def _case(
    comparison: Comparison, topic: str, label: str, row: Row, parameters: Mapping[str, Any],
    replicate: int, training: bool = False,
) -> Case:  # fmt: skip
    return {
        "label": label,
        "scheme": row.scheme,
        "relocation": row.relocation,
        "parameters": {**row.parameters, **parameters},
        "settings": comparison.scenario,
        "seed": comparison.seed,
        "replicate": replicate,
        "replicates": comparison.replicates,
        "training": training,
        "topic": topic,
        "per_change": comparison.per_change,
        "details": replicate == 0 and not training,
        "point": None,
    }


def _sweep(
    comparison: Comparison, cases: Sequence[Case], folder: Path, job: run.Job,
    report: Callable[[int, int], None],
) -> list[tuple[Case, dict[str, float], str | None]]:  # fmt: skip
    """Case, measures and error of every run, in the order of the cases."""
    measured = run.cases(
        ENTRY, cases, str(folder), job, question=comparison.title, beside=comparison.folder,
        inputs=files_named(comparison.scenario, Path(comparison.folder)), report=report,
    )  # fmt: skip
    return [(case, *done) for case, done in zip(cases, measured, strict=True)]


def _measured(
    cases: Sequence[Case], folder: Path, job: run.Job
) -> tuple[dict[tuple[str, str | None, str], Figure], dict[str, dict[tuple[str, str], Figure]]]:
    """Figures by row, point of the sensitivity study and measure; and of each row, by how much it
    exceeds each other one."""
    named = []
    for case in cases:
        parameters = {"scheme": case["label"]}
        if case["point"] is not None:
            parameters["point"] = _said(case["point"])
        named.append(run.Member(json.dumps(case), parameters, str(case["replicate"])))
    run.measure(
        str(folder / "runs"), str(folder), job, cases=named, metrics=[*MEASURES, *BOUNDS],
        baselines=[{"scheme": None}],
    )  # fmt: skip
    figures = {}
    for (setting, metric), figure in tables.measures(str(folder)).items():
        own = dict(setting)
        figures[own["scheme"], own.get("point"), metric] = figure
    gaps: dict[str, dict[tuple[str, str], Figure]] = defaultdict(dict)
    for (setting, base, metric), (figure, _) in tables.differences(str(folder)).items():
        own = dict(setting)
        if "point" not in own:
            gaps[own["scheme"]][dict(base)["scheme"], metric] = figure
    return figures, gaps


def _said(point: Sequence[Any]) -> str:
    return f"{point[0]} = {point[1]:g}"


def _nested(metrics: Mapping[str, float], names: Sequence[str]) -> dict[str, dict[str, float]]:
    nested: dict[str, dict[str, float]] = {name: {} for name in names}
    for key, value in metrics.items():
        head, _, rest = key.partition(".")
        if rest and head in nested:
            nested[head][rest] = value
    return nested


def _write(
    results: Results, ran: Sequence[tuple[Case, dict[str, float], str | None]], out: Path
) -> None:
    """results.csv and results.parquet: a row per run; quarantine.csv: a row per bad row."""
    rows = [
        {
            "point": "" if case["point"] is None else _said(case["point"]),
            "scheme": case["label"],
            "replicate": case["replicate"],
            "parameters": json.dumps(case["parameters"]),
            "error": error,
            **{name: measures.get(name) for name in MEASURES},
        }
        for case, measures, error in ran
    ]
    with (out / "results.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    pq.write_table(pa.Table.from_pylist(rows), out / "results.parquet")
    deploy.record(results, out)
    quarantine = out / "quarantine.csv"
    quarantine.unlink(missing_ok=True)
    if results.bad:
        with quarantine.open("w", newline="", encoding="utf-8") as file:
            listing = csv.writer(file)
            listing.writerow(["where", "reason"])
            listing.writerows([str(error.where), error.what] for error in results.bad)
