"""What runs have left, for `sweeps`: gathered into `runs`, `traces`, `facts` and `metrics`."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from postroad.pipeline import measure as measuring
from postroad.pipeline import session as sessions
from postroad.pipeline import store
from postroad.pipeline import sweep as sweeping
from postroad.pipeline.run.job import Facts
from postroad.pipeline.schemas import FACTS, RUNS, TEXT, conform, table
from postroad.pipeline.store import Recipe

SMALL_RUNS = 2_000
"""Up to so many runs are measured in one task: to compile and shuffle would take longer."""
SMALL_FACTS = 100_000
"""And so many facts."""
GATHERED_FACTS = 1_000_000
"""So many facts of new runs are put together without Spark."""
FACTS_PER_FILE = 5_000_000


def earlier_runs(spark: SparkSession, runs_out: str) -> DataFrame | None:
    """The runs of the table that this sweep extends or repairs."""
    if store.read_lineage(runs_out) is None:
        return None
    return store.read(spark, runs_out, RUNS)


def gather_runs(spark: SparkSession, folder: str, ids: Sequence[str], extended: bool) -> None:
    """Write the table `runs`; a small one that is new without Spark."""
    finished, runs_out = store.join(folder, "runs.finished"), store.join(folder, "runs")
    if len(ids) < SMALL_RUNS:
        if not extended:
            store.gather(finished, runs_out, RUNS, "run_id", ids)
            return
        spark = sessions.small(spark)
    wanted = sessions.small_table(spark, {"run_id": list(ids)}, table(run_id=TEXT))
    fresh = store.read_files(spark, finished, RUNS).join(
        F.broadcast(wanted), on="run_id", how="left_semi"
    )
    whole = conform(fresh, RUNS)
    earlier = earlier_runs(spark, runs_out) if extended else None
    if earlier is not None:
        kept = earlier.join(F.broadcast(wanted), on="run_id", how="left_semi").join(
            fresh.select("run_id"), on="run_id", how="left_anti"
        )
        whole = whole.unionByName(kept)
    store.write(whole.orderBy("run_id").coalesce(1), runs_out)


def gather_traces(
    spark: SparkSession,
    folder: str,
    ok: Sequence[str],
    extended: bool,
    recipe: Recipe,
    facts: Facts,
) -> None:
    """The table `traces`."""
    traces_out = store.join(folder, "traces")
    store.write(_gathered(spark, folder, "traces", "trace_id", ok, extended), traces_out)
    store.publish(traces_out, recipe, facts)


def gather_facts(
    spark: SparkSession,
    folder: str,
    ok: Sequence[str],
    extended: bool,
    recipe: Recipe,
    facts: Facts,
) -> None:
    """The tables `facts` and `metrics`, where runs have left facts."""
    facts_out, metrics_out = store.join(folder, "facts"), store.join(folder, "metrics")
    left = store.count(store.join(folder, "facts.finished"))
    if not left and not (extended and store.exists(facts_out)):
        store.remove(facts_out)  # those of runs that are no longer there
        store.remove(metrics_out)
        return
    if left < SMALL_FACTS:
        spark = sessions.small(spark)
    if left < GATHERED_FACTS and not extended:
        store.gather(store.join(folder, "facts.finished"), facts_out, FACTS, "run_id", ok)
    else:
        gathered = _gathered(spark, folder, "facts", "run_id", ok, extended)
        store.write(gathered.coalesce(1 + left // FACTS_PER_FILE), facts_out)
    store.publish(facts_out, recipe, facts)
    papers = {name.partition(".")[0] for name in store.distinct(facts_out, "fact") if "." in name}
    values = measuring.fact_metrics(store.read(spark, facts_out, FACTS), sorted(papers))
    store.write(values.coalesce(1), metrics_out)
    store.publish(metrics_out, recipe, facts)


def _gathered(
    spark: SparkSession, folder: str, part: str, key: str, ok: Sequence[str], extended: bool
) -> DataFrame:
    """What the runs that went well have left, with that of an earlier sweep that is extended."""
    schema = sweeping.PARTS[part]
    names = sessions.small_table(spark, {key: list(ok)}, table(**{key: TEXT}))
    rows = store.read_files(spark, store.join(folder, f"{part}.finished"), schema)
    rows = rows.join(F.broadcast(names), on=key, how="left_semi")
    place = store.join(folder, part)
    if extended and store.exists(place):
        old = store.read(spark, place, schema).join(F.broadcast(names), on=key, how="left_semi")
        again = rows.select(key).distinct()
        rows = rows.unionByName(old.join(again, on=key, how="left_anti"))
    return conform(rows, schema)
