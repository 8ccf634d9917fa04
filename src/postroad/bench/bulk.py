"""Matching and costs of many publications: how they grow, and as many as there is time for.

Subscriptions, at 1,000 brokers, are `class = 'STOCK' AND symbol = X AND price > N`; there are as
many symbols as let some 100 of them match a quote. Processor time is of all processes, the index
included: a fixed part and one in proportion to the publications. So both are fitted to three sizes,
a factor of ten apart, and the exponent to what is above the fixed part. Then, with `FILTERS` (1
million) filters, `cost` at the same sizes, and `PUBLICATIONS` (10 million) are matched by broker.
All in a heap of 2 GB.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from postroad.bench.pipeline import JOB, apart, peak_mb, processor_s, started
from postroad.pipeline import run, store
from postroad.pipeline import schemas as tables
from postroad.pipeline.schemas import conform
from postroad.pipeline.store import Recipe

BROKERS, MATCHES = 1_000, 100
FILTERS = 100_000
SIZES = (10_000, 100_000, 1_000_000)
WARM = 1_000
LARGE = int(os.environ.get("FILTERS", 1_000_000)), int(os.environ.get("PUBLICATIONS", 10_000_000))
WANTED = 100_000_000
SCHEMES = (
    "flooding", "subscription_forwarding", "advertisement_forwarding", "fbr", "unicast",
    "ideal_multicast",
)  # fmt: skip
U = "shiftrightunsigned(xxhash64(id, {}), 11) * power(2D, -53)"
PRICE = "format_string('%.2f', {} * 100)"
STAGES: dict[str, Callable[..., run.Facts]] = {
    "match": lambda network, held, source, out: run.match(held, source, out, JOB),
    "match by broker": lambda network, held, source, out: run.match(
        held, source, out, JOB, by="broker"
    ),
    "cost of six schemes": lambda network, held, source, out: run.cost(
        network, held, source, out, JOB, schemes=SCHEMES
    ),
}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="postroad-bench-") as scratch:
        apart(growth, Path(scratch), FILTERS, tuple(STAGES))
        apart(growth, Path(scratch), LARGE[0], ("cost of six schemes",))
        apart(large, Path(scratch))


def growth(folder: Path, filters: int, names: Sequence[str]) -> None:
    """Stages at three sizes, in one session that has done each once."""
    (folder / "network.toml").write_text(
        f'[overlay]\nkind = "random_tree"\nbrokers = {BROKERS}\nlatency_us = 5000\n'
    )
    network, held = str(folder / "network.toml"), str(folder / "subscriptions")
    with started() as spark:
        subscriptions(spark, filters, held)
        for count in (WARM, *SIZES):
            publications(spark, count, filters, f"{folder}/publications-{count}")
        for name in names:
            stage = partial(STAGES[name], network, held)
            print(f"\npipeline: {name}, {filters:,} filters, load average {os.getloadavg()[0]:.1f}")
            heading()
            spent = []
            for count in (WARM, *SIZES):
                out = f"{folder}/{name}-{count}"
                cpu = timed(spark, stage, f"{folder}/publications-{count}", out, count)
                if count in SIZES:
                    spent.append(cpu)
            fit(spent)


def heading() -> None:
    print(
        f"  {'publications':>12} {'wall s':>7} {'CPU s':>7} {'rows':>11} {'peak':>8} {'on disk':>9}"
    )


def timed(
    spark: Any, stage: Callable[[str, str], run.Facts], source: str, out: str, count: int
) -> float:
    """The processor time of a stage, printed with the rest."""
    before, begun = processor_s(os.getpid()), time.perf_counter()
    facts = stage(source, out)
    wall, cpu = time.perf_counter() - begun, processor_s(os.getpid()) - before
    size = sum(path.stat().st_size for path in Path(out).rglob("*")) / 1e6
    store.remove(out)
    rows = facts.get("matches", facts.get("sets"))
    print(
        f"  {count:12,} {wall:7.1f} {cpu:7.1f} {rows:11,} {peak_mb(spark):5,} MB {size:6,.0f} MB",
        flush=True,
    )
    return cpu


def fit(spent: list[float]) -> None:
    """Processor time as a fixed part and one for each publication, each size weighing the same."""
    sizes, cpu = np.array(SIZES, float), np.array(spent)
    columns = np.stack([np.ones(len(sizes)), sizes], axis=1) / cpu[:, None]
    (fixed, each), *_ = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)
    above = np.maximum(cpu - fixed, 1e-3)[1:]
    exponent = np.log(above[1] / above[0]) / np.log(sizes[2] / sizes[1])
    print(f"  fixed {fixed:.1f} CPU s, then {1 / each:,.0f} publications a CPU-second; above the ")
    print(f"  fixed part, {SIZES[1]:,} to {SIZES[2]:,} grow with exponent {exponent:.2f}; by this ")
    print(f"  fit {WANTED:,} take {(fixed + each * WANTED) / 3600:.1f} CPU-hours")


def large(folder: Path) -> None:
    filters, count = LARGE
    held, source = f"{folder}/many-subscriptions", f"{folder}/many-publications"
    with started() as spark:
        subscriptions(spark, filters, held)
        publications(spark, count, filters, source)
        print(f"\npipeline: match by broker, {filters:,} filters, load ", end="")
        print(
            f"average {os.getloadavg()[0]:.1f}, {shutil.disk_usage(folder).free / 1e9:.0f} GB free"
        )
        heading()
        cpu = timed(
            spark,
            lambda source, out: run.match(held, source, out, JOB, by="broker"),
            source,
            f"{folder}/many",
            count,
        )
        print(f"  {count / cpu:,.0f} publications a CPU-second, the index included")


def _symbol(filters: int) -> str:
    return f"cast(floor({U.format(1)} * {filters // (2 * MATCHES)}) as bigint)"


def subscriptions(spark: Any, count: int, path: str) -> None:
    rows = spark.range(count).selectExpr(
        "concat('s', id) subscription",
        f"cast(id % {BROKERS} as string) broker",
        "concat('c', id % 5000) client",
        f"concat('class = \\'STOCK\\' AND symbol = \\'S', {_symbol(count)}, '\\' AND price > ',"
        f" {PRICE.format(U.format(2))}) filter",
        "cast(null as bigint) time_us",
        "cast(null as bigint) until_us",
    )
    keep(conform(rows, tables.SUBSCRIPTIONS), path)


def publications(spark: Any, count: int, filters: int, path: str) -> None:
    symbol = _symbol(filters)
    rows = spark.range(count).selectExpr(
        "cast(id as string) publication",
        f"concat('p', {symbol}) publisher",
        f"cast({symbol} % {BROKERS} as string) broker",
        "id time_us",
        f'concat(\'{{"class":"STOCK","symbol":"S\', {symbol}, \'","price":\','
        f" {PRICE.format(U.format(3))}, ',\"volume\":1000}}') attributes",
    )
    keep(conform(rows, tables.PUBLICATIONS), path)


def keep(frame: Any, path: str) -> None:
    store.write(frame, path)
    store.publish(path, Recipe("bench", {"path": path}))


if __name__ == "__main__":
    main()
