"""The pipeline at three sizes: samples, workloads, sweeps, and a cold start.

Sizes grow by two or more, so that a row shows at once whether time grows with the data. The
peak is the most memory the Spark process has held (heap limit 2 GB): it must not grow with the
data. A sweep's ideal is the sum of its runs' own times over the cores.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from postroad.pipeline import run, session, store
from postroad.pipeline.schemas import EDGES, conform
from postroad.pipeline.store import Recipe

HEAP = "spark.driver.memory=2g"
JOB = run.Job("local[2]", (HEAP,))
GRAPHS = [(10_000_000, 50_000), (20_000_000, 100_000), (40_000_000, 200_000)]
WORKLOADS = [(1_000_000, 10_000_000), (3_000_000, 30_000_000), (10_000_000, 100_000_000)]
SWEEPS = [20, 60, 180]
RUN_S = 0.5


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="postroad-bench-") as scratch:
        folder = Path(scratch)
        cold_start(folder)
        print("\npipeline: breadth-first sample, heap limit 2 GB")
        print(f"  {'edges':>11} {'users':>8} {'levels':>6} {'kept edges':>10} {'s':>6} {'peak':>8}")
        for edges, nodes in GRAPHS:
            apart(sample, folder, edges, nodes)
        print("\npipeline: follower-distributed workload, written as Parquet, heap limit 2 GB")
        print(f"  {'subscriptions':>13} {'publications':>12} {'s':>7} {'peak':>8} {'on disk':>9}")
        for subscriptions, publications in WORKLOADS:
            apart(workload, folder, subscriptions, publications)
        print(
            f"\npipeline: sweep of runs of {RUN_S} s on 2 cores, in a session that has swept before"
        )
        print(f"  {'runs':>5} {'wall s':>7} {'ideal s':>8} {'efficiency':>10}")
        for count in SWEEPS:
            apart(sweep, folder, count)


def apart(part: Callable[..., None], *arguments: Any) -> None:
    """In a process of its own: what Spark holds and has warmed up ends with the process."""
    process = multiprocessing.get_context("spawn").Process(target=part, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(process.exitcode)


def cold_start(folder: Path) -> None:
    (folder / "tiny.txt").write_text("1 2\n2 3\n3 1\n")
    command = [sys.executable, "-c", "from postroad.cli import main; main()", "pipeline", "ingest"]
    arguments = [str(folder / "tiny.txt"), "--as", "edges", "-o", str(folder / "tiny")]
    print("\npipeline: a trivial command that needs Spark, from a cold start")
    for name in ("first", "nothing to do"):
        begun = time.perf_counter()
        subprocess.run([*command, *arguments], check=True, capture_output=True)
        print(f"  {name:14} {time.perf_counter() - begun:6.1f} s")


def sample(folder: Path, edges: int, nodes: int) -> None:
    """A graph of 20 edges per user whose followees are skewed, sampled to a tenth of its users."""
    with started() as spark:
        graph = str(folder / f"graph-{edges}")
        users = edges // 20
        u = "shiftrightunsigned(xxhash64(id, {}), 11) * power(2D, -53)"
        pairs = spark.range(edges).selectExpr(
            f"cast(floor({u.format(1)} * {users}) as bigint) follower",
            f"cast(floor(power({u.format(2)}, 2D) * {users}) as bigint) followee",
        )
        store.write(conform(pairs.where("follower <> followee"), EDGES), graph)
        store.publish(graph, Recipe("bench", {"edges": edges}))
        begun = time.perf_counter()
        facts = run.sample(graph, str(folder / f"sample-{edges}"), JOB, nodes=nodes)
        took = time.perf_counter() - begun
        print(
            f"  {edges:11,} {nodes:8,} {len(facts['levels']):6} {facts['edges']:10,} "
            f"{took:6.1f} {peak_mb(spark):5,} MB"
        )
        store.remove(graph)


def workload(folder: Path, subscriptions: int, publications: int) -> None:
    with started() as spark:
        place = folder / f"workload-{publications}"
        begun = time.perf_counter()
        run.workload(
            "follower",
            str(place),
            JOB,
            by_class=False,
            subscriptions=subscriptions,
            publications=publications,
            publishers=200,
        )
        took = time.perf_counter() - begun
        size = sum(path.stat().st_size for path in place.rglob("*")) / 1e6
        print(
            f"  {subscriptions:13,} {publications:12,} {took:7.1f} {peak_mb(spark):5,} MB "
            f"{size:6,.0f} MB"
        )
        store.remove(str(place))


def sweep(folder: Path, count: int) -> None:
    with started(light=True):  # as the command does
        for name, runs in (("warm", 4), (f"sweep-{count}", count)):
            experiment = folder / f"{name}.toml"
            experiment.write_text(
                f'run = "postroad.bench.pipeline:busy"\nreplicates = {runs}\n'
                f"[fixed]\nbusy_s = {RUN_S}\n"
            )
            begun = time.perf_counter()
            run.sweep(str(experiment), str(folder / f"{name}-{count}"), JOB)
            wall = time.perf_counter() - begun
    rows = store.rows_of(str(folder / f"sweep-{count}-{count}/runs"))
    ideal = sum(row["elapsed_us"] for row in rows) / 1e6 / 2
    print(f"  {count:5} {wall:7.1f} {ideal:8.1f} {ideal / wall:10.2f}")


def processor_s(pid: int) -> float:
    """Of a process and all that it has started, those that have ended and were waited for too."""
    ticks, todo = 0, [pid]
    while todo:
        here = todo.pop()
        with suppress(OSError):  # it has ended
            fields = Path(f"/proc/{here}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
            for thread in Path(f"/proc/{here}/task").iterdir():
                todo += map(int, (thread / "children").read_text().split())
    return ticks / os.sysconf("SC_CLK_TCK")


def busy(row: dict[str, Any]) -> dict[str, Any]:
    """Keep a core busy for so much processor time."""
    until = time.process_time() + row["parameters"]["busy_s"]
    turns = 0
    while time.process_time() < until:
        turns += 1
    return {"turns": turns}


@contextmanager
def started(light: bool = False) -> Iterator[Any]:
    """A session that has run its first job."""
    with session.session(JOB.master, JOB.conf, light) as spark:
        spark.range(1000).selectExpr("sum(id)").collect()
        yield spark


def peak_mb(spark: Any) -> int:
    """The most memory the process of the Spark driver has held, in MB; 0 where /proc is not."""
    status = Path(f"/proc/{session.jvm_pid(spark)}/status")
    if not status.exists():
        return 0
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024
