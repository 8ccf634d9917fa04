"""Sweeps, for `postroad pipeline sweep`, comparisons and papers: an experiment's runs as tables.

Runs that an earlier sweep has finished are not done again, also where it was stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from postroad.pipeline import store
from postroad.pipeline import sweep as sweeping
from postroad.pipeline.run.job import Facts, Job, guarded, up_to_date
from postroad.pipeline.run.results import earlier_runs, gather_facts, gather_runs, gather_traces
from postroad.pipeline.run.tasks import known_runs, perform_runs
from postroad.pipeline.store import Recipe


def sweep(
    experiment_path: str,
    folder: str,
    job: Job,
    *,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Facts:
    """Run the grid of an experiment's file into the table `runs` (and `traces`, if it asks)."""
    experiment = sweeping.load(experiment_path)
    sweeping.check(experiment)
    return perform(experiment, folder, job, report=report)


def perform(
    experiment: sweeping.Experiment,
    folder: str,
    job: Job,
    *,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Facts:
    """The same for an experiment that is at hand."""
    folder = store.absolute(folder)
    runs_out, traces_out = store.join(folder, "runs"), store.join(folder, "traces")
    tables = [runs_out, traces_out] if experiment.traces else [runs_out]
    recipe = Recipe("sweep", experiment.settings(), experiment.files, job.command)
    rows = sweeping.expand(experiment)
    folders = {part: store.join(folder, f"{part}.finished") for part in sweeping.PARTS}
    finished = folders["runs"]

    def act() -> Facts:
        if job.force:
            for part in folders.values():
                store.remove(part)
        with job.session() as spark:
            for part in folders.values():
                store.make_folder(part)
            earlier = None if job.force else earlier_runs(spark, runs_out)
            done = known_runs(finished if earlier is None else runs_out, finished)
            left = [
                sweeping.again(row, done[row.run_id][1] + 1) if row.run_id in done else row
                for row in rows
                if done.get(row.run_id, ("", 0))[0] != "ok"
            ]
            skipped = len(rows) - len(left)
            report(skipped, len(rows))
            perform_runs(spark, left, folders, lambda count: report(skipped + count, len(rows)))
            gather_runs(spark, folder, [row.run_id for row in rows], earlier is not None)
            written = store.rows_of(store.beside(runs_out), ("run_id", "status", "error"))
            errors = [row["error"] for row in written if row["status"] != "ok"]
            facts: Facts = {
                "runs": len(rows),
                "skipped": skipped,
                "failed": len(errors),
                "first_error": errors[0] if errors else None,
            }
            ok = [row["run_id"] for row in written if row["status"] == "ok"]
            if experiment.traces:
                gather_traces(spark, folder, ok, earlier is not None, recipe, facts)
            gather_facts(spark, folder, ok, earlier is not None, recipe, facts)
            store.publish(runs_out, recipe, facts)
            for part in folders.values():
                store.remove(part)
            return {**facts, "unchanged": False, "tables": tables}

    with store.locked(folder, job.command):
        facts = up_to_date(job, recipe, *tables)
        return facts if facts and not facts["failed"] else guarded(act, *tables)


def cases(
    entry: str,
    todo: Sequence[Mapping[str, Any]],
    folder: str,
    job: Job,
    *,
    question: str = "",
    inputs: Mapping[str, str] | None = None,
    beside: str = "",
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[tuple[dict[str, float], str | None]]:
    """Runs that are no grid: metrics and error of each, in the order given.

    A run finds its own in `parameters["case"]`. `inputs` are hashes of files that decide the
    results, `beside` the folder that the cases' file names are relative to.
    """
    experiment = sweeping.Experiment(
        question=question, seed=0, replicates=1, run=entry, traces=False, scenario={},
        vary={"case": list(todo)}, fixed={}, folder=beside, files=inputs or {},
    )  # fmt: skip
    perform(experiment, folder, job, report=report)
    runs = store.rows_of(store.join(folder, "runs"))
    metrics = {row["run_id"]: dict(row["metrics"]) for row in runs}
    if store.exists(store.join(folder, "metrics")):
        for row in store.rows_of(store.join(folder, "metrics")):
            metrics[row["run_id"]][row["metric"]] = row["value"]
    by_case = {
        dict(row["parameters"])["case"]: (metrics[row["run_id"]], row["error"]) for row in runs
    }
    return [by_case[json.dumps(case)] for case in todo]
