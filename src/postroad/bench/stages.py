"""Every stage of the pipeline at three sizes, each ten times the one before.

A stage has a session of its own on two cores with a heap of 2 GB, in which the smallest size has
run once before: else Java's compilation would be a larger part of a small size than of a large one
and hide how the stage grows. A row says what the stage took in processor time (the JVM's and its
Python workers'). Through the three goes the law fixed + each · rows^exponent, which is printed
below them. `memory` is the most that the Spark process has held so far, `shuffled` what was
written between tasks. A stage is a row of `STAGES`: add yours there.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroad.bench.pipeline import JOB, apart, peak_mb, processor_s, started
from postroad.pipeline import measure, run, session, store
from postroad.pipeline.schemas import EDGES, FACTS, METRICS, RUNS, TRACES, conform
from postroad.pipeline.store import Recipe

SIZES = (50_000, 500_000, 5_000_000)
LARGE = (200_000, 2_000_000, 20_000_000)
"""For stages of which a million rows take little more than none."""


@dataclass(frozen=True)
class Stage:
    """`prepare` makes what it reads, in a folder and for so many rows; `work` is measured."""

    prepare: Callable[[Any, Path, int], None]
    work: Callable[[Any, Path, int], object]
    sizes: tuple[int, ...] = SIZES


def main() -> None:
    print("\npipeline: every stage, two cores, heap limit 2 GB")
    print(
        f"  {'stage':23} {'rows':>10} {'s':>7} {'CPU s':>7} "
        f"{'memory':>8} {'shuffled':>10} {'jobs':>5}"
    )
    for name in STAGES:
        apart(grow, name)


def grow(name: str) -> None:
    stage = STAGES[name]
    with tempfile.TemporaryDirectory(prefix="postroad-bench-") as scratch, started() as spark:
        measured(spark, stage, stage.sizes[0], Path(scratch) / "warm")
        spent = []
        for size in stage.sizes:
            cost = measured(spark, stage, size, Path(scratch) / str(size))
            spent.append(cost.processor_s)
            print(
                f"  {name:23} {size:10,} {cost.wall_s:7.1f} {cost.processor_s:7.1f} "
                f"{peak_mb(spark):5,} MB {cost.shuffled_bytes / 1e6:7,.1f} MB {cost.jobs:5}",
                flush=True,
            )
    print(f"  {said(stage.sizes, spent)}", flush=True)


@dataclass(frozen=True)
class Cost:
    wall_s: float
    processor_s: float
    shuffled_bytes: int
    jobs: int


def measured(spark: Any, stage: Stage, size: int, folder: Path) -> Cost:
    folder.mkdir()
    stage.prepare(spark, folder, size)
    pid = session.jvm_pid(spark)
    jobs, shuffled = session.work_done(spark)
    begun, busy = time.perf_counter(), processor_s(pid)
    stage.work(spark, folder, size)
    took, spent = time.perf_counter() - begun, processor_s(pid) - busy
    jobs_after, shuffled_after = session.work_done(spark)
    store.remove(str(folder))
    return Cost(took, spent, shuffled_after - shuffled, jobs_after - jobs)


def said(sizes: Sequence[int], spent: Sequence[float]) -> str:
    """The law through three sizes, each as many times the one before."""
    (low, middle, high), times = spent, sizes[1] / sizes[0]
    if not 0 < middle - low < high - middle:
        return "no growth above what one run differs from the next"
    exponent = math.log((high - middle) / (middle - low)) / math.log(times)
    fixed = low - (middle - low) / (times**exponent - 1)
    each = (high - middle) / (sizes[2] - sizes[1]) * 1e6
    return f"fixed {fixed:.1f} CPU s, {each:.1f} per million rows, exponent {exponent:.2f}"


def _nothing(spark: Any, folder: Path, size: int) -> None:
    pass


def _edges_file(spark: Any, folder: Path, size: int) -> None:
    draw = random.Random(1)
    with (folder / "edges.txt").open("w") as file:
        for _ in range(size):
            follower, ahead = draw.randrange(size), int(draw.random() ** 2 * (size - 1))
            file.write(f"{follower} {(follower + 1 + ahead) % size}\n")


def _publications_file(spark: Any, folder: Path, size: int) -> None:
    with (folder / "publications.jsonl").open("w") as file:
        for n in range(size):
            attributes = f'{{"class": "c{n % 97}", "price": {n % 1000}}}'
            file.write(
                f'{{"publication": "{n}", "publisher": "p{n % 100}", "broker": "{n % 50}", '
                f'"time_us": {n}, "attributes": {attributes}}}\n'
            )


def _graph(spark: Any, folder: Path, size: int) -> None:
    users = max(100, size // 20)
    u = "shiftrightunsigned(xxhash64(id, {}), 11) * power(2D, -53)"
    pairs = spark.range(size).selectExpr(
        f"cast(floor({u.format(1)} * {users}) as bigint) follower",
        f"cast(floor(power({u.format(2)}, 2D) * {users}) as bigint) followee",
    )
    _table(conform(pairs.where("follower <> followee"), EDGES), folder, "graph")


def _table(frame: Any, folder: Path, name: str) -> None:
    store.write(frame, str(folder / name))
    store.publish(str(folder / name), Recipe("bench", {}))


def _facts(spark: Any, folder: Path, size: int) -> None:
    """Runs of 10,000 facts: half on links, a tenth of brokers, the rest delays."""
    kind = "case when id % 10 < 5 then 'sends' when id % 10 = 5 then 'broker' else 'deliveries' end"
    rows = spark.range(size).selectExpr(
        "cast(id div 10000 as string) run_id",
        "case when id % 10 < 6 then concat('b', (id div 10) % 997) end broker",
        "case when id % 10 < 5 then concat('b', xxhash64(id) % 997) end peer",
        "cast(null as string) part",
        "cast(null as string) class",
        "case when id % 10 > 5 then xxhash64(id) % 5000 + 5000 end bucket",
        f"{kind} fact",
        "id % 7 + 1 count",
    )
    _table(conform(rows, FACTS), folder, "facts")


def _fact_metrics(spark: Any, folder: Path, size: int) -> None:
    values = measure.fact_metrics(store.read(spark, str(folder / "facts"), FACTS))
    store.write(values, str(folder / "metrics"))


def _runs(spark: Any, folder: Path, size: int) -> None:
    """Runs with 25 metrics each: ten replicates of settings under five schemes."""
    runs = spark.range(size // 25).selectExpr(
        "cast(id as string) run_id", "1 attempt", "'ok' status", "cast(null as string) error",
        "map('scheme', concat('s', id % 5), 'size', cast(id div 50 as string)) parameters",
        "cast(id div 5 % 10 as int) replicate", "id seed",
        "cast(map() as map<string, double>) metrics", "0L elapsed_us",
    )  # fmt: skip
    metrics = spark.range(size).selectExpr(
        "cast(id div 25 as string) run_id", "concat('m', id % 25) metric",
        "cast(xxhash64(id) % 1000 as double) value",
    )  # fmt: skip
    _table(conform(runs, RUNS), folder, "runs")
    _table(conform(metrics, METRICS), folder, "metrics")


def _measure(spark: Any, folder: Path, size: int) -> None:
    against: list[dict[str, str | None]] = [{"scheme": "s0"}]
    run.measure(str(folder / "runs"), str(folder / "out"), JOB, baselines=against)


def _traces(spark: Any, folder: Path, size: int) -> None:
    known = {
        "trace_id": "cast(id div 100000 as string)", "broker": "cast(id % 50 as string)",
        "kind": "if(id % 3 = 0, 'deliver', 'send')", "time_us": "id + 1000 + id % 777",
        "published_us": "id", "hops": "id % 9", "bytes": "100L",
    }  # fmt: skip
    columns = [
        f"cast({known.get(field.name, 'null')} as {field.dataType.simpleString()}) {field.name}"
        for field in TRACES.fields
    ]
    _table(conform(spark.range(size).selectExpr(*columns), TRACES), folder, "traces")


def _trace_metrics(spark: Any, folder: Path, size: int) -> None:
    traced = measure.trace_metrics(store.read(spark, str(folder / "traces"), TRACES))
    store.write(traced, str(folder / "metrics"))


def _interests(spark: Any, folder: Path, size: int) -> None:
    """Twenty topics a node, some much more popular than others."""
    nodes = max(100, size // 20)
    rows = spark.range(size).selectExpr(
        f"concat('n', id % {nodes}) node",
        "concat('t', cast(floor(power(shiftrightunsigned(xxhash64(id), 11) * power(2D, -53), 2D)"
        f" * {nodes}) as bigint)) topic",
    )
    rows.write.parquet(str(folder / "interests"))


def _candidates(spark: Any, folder: Path, size: int) -> None:
    run.interests(str(folder / "interests"), {}, str(folder), JOB)


def _ingest_edges(spark: Any, folder: Path, size: int) -> None:
    run.ingest([str(folder / "edges.txt")], "edges", str(folder / "out"), JOB)


def _ingest_publications(spark: Any, folder: Path, size: int) -> None:
    run.ingest([str(folder / "publications.jsonl")], "publications", str(folder / "out"), JOB)


def _sample(spark: Any, folder: Path, size: int) -> None:
    run.sample(str(folder / "graph"), str(folder / "out"), JOB, nodes=max(100, size // 20) // 10)


def _followers(spark: Any, folder: Path, size: int) -> None:
    run.followers(str(folder / "graph"), JOB)


def _workload(spark: Any, folder: Path, size: int) -> None:
    run.workload(
        "follower", str(folder / "out"), JOB, by_class=False, subscriptions=size // 10,
        publications=size, publishers=200,
    )  # fmt: skip


STAGES = {
    "ingest edges": Stage(_edges_file, _ingest_edges),
    "ingest publications": Stage(_publications_file, _ingest_publications),
    "sample": Stage(_graph, _sample, LARGE),
    "followers": Stage(_graph, _followers, LARGE),
    "workload follower": Stage(_nothing, _workload, LARGE),
    "interests to candidates": Stage(_interests, _candidates),
    "facts to metrics": Stage(_facts, _fact_metrics),
    "metrics to measures": Stage(_runs, _measure),
    "traces to metrics": Stage(_traces, _trace_metrics, LARGE),
}
