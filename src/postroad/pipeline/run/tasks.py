"""Runs as Spark's tasks, for `sweeps`: handed out, with a row left for those that are lost."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pyspark.sql import SparkSession

from postroad.pipeline import session as sessions
from postroad.pipeline import store
from postroad.pipeline import sweep as sweeping


def known_runs(*folders: str) -> dict[str, tuple[str, int]]:
    """Status and attempt of every run in these folders; a later folder knows better."""
    return {
        row["run_id"]: (row["status"], row["attempt"])
        for folder in folders
        for row in store.rows_of(folder, ("run_id", "status", "attempt"))
    }


def perform_runs(
    spark: SparkSession,
    left: Sequence[sweeping.Run],
    folders: Mapping[str, str],
    report: Callable[[int], None],
) -> None:
    """Perform the runs. One whose Python worker dies is recorded as failed and the rest go on."""
    total = len(left)
    while left:
        listed = sessions.small_table(
            spark,
            {"id": list(range(len(left))), "run": [row.to_json() for row in left]},
            sweeping.TASK,
        )
        job = sweeping.finish(sessions.tasks(spark, len(left)), listed, folders)
        before = total - len(left)
        try:
            outcomes = sessions.with_progress(spark, job.collect, partial(_ahead, report, before))
            lost = {row["run_id"]: row["error"] for row in outcomes if row["error"] is not None}
            _record(left, lost, folders)
            return
        except sessions.ERRORS as error:
            cause = sessions.failure_text(error)
            culprit = re.search(r"Task (\d+) in stage \S+ failed", str(error))
            if culprit is not None:
                lost = {left[int(culprit[1])].run_id: f"the Python worker died: {cause}"}
            elif isinstance(error, sessions.WORKER_ERROR):
                # Not a run's doing, or the run would have been recorded: none can be performed.
                lost = {row.run_id: f"the Python worker failed: {cause}" for row in left}
            else:
                raise
            done = known_runs(folders["runs"])
            left = [row for row in left if done.get(row.run_id, ("", 0))[1] < row.attempt]
            _record(left, lost, folders)
            left = [row for row in left if row.run_id not in lost]


def _record(
    runs: Sequence[sweeping.Run], lost: Mapping[str, str], folders: Mapping[str, str]
) -> None:
    """Leave a failed row for each run that could not leave its own."""
    for run in runs:
        if run.run_id in lost:
            row = json.loads(run.to_json())
            failed = sweeping.finished_row(row, time.perf_counter(), error=lost[run.run_id])
            sweeping.leave(failed, folders)


def _ahead(report: Callable[[int], None], before: int, done: int) -> None:
    report(before + done)
