"""Interests and candidate edges, for `postroad plan swico`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from postroad.errors import InputError
from postroad.overlay import IntArray
from postroad.overlay.small_world import once_each
from postroad.pipeline import session as sessions
from postroad.pipeline import store, swico
from postroad.pipeline.run.job import Job, guarded, on_disk
from postroad.planning.swico import TopicInterests, from_pairs

INTERESTS_MEMORY = "3g"
"""What Spark's Java may hold for interests: the planner's process needs as much beside it."""


def interests(
    path: str, names: Mapping[str, str], folder: str, job: Job
) -> tuple[list[str], TopicInterests, IntArray]:
    """From Parquet: the nodes in the order they first appear, the interests by number, and the
    candidates of the approximate planner, a * nodes + b with a < b, ascending. All executors must
    see the folder."""
    path = store.absolute(path)
    job = replace(job, conf=(f"spark.driver.memory={INTERESTS_MEMORY}", *job.conf))

    def act() -> tuple[list[str], TopicInterests, IntArray]:
        with job.session() as spark, _swico_scratch(spark, folder) as keep:
            rows = store.read_raw(spark, [path])
            called = {"node": "node", "topic": "topic", **names}
            for ours, theirs in called.items():
                if ours not in ("node", "topic") or theirs not in rows.columns:
                    raise InputError(
                        f"columns {', '.join(rows.columns[:-2])}",
                        where=path,
                        remedy="name two of them node and topic, or say --map node=COLUMN",
                    )
            rows = rows.select(
                *(F.col(theirs).cast("string").alias(ours) for ours, theirs in called.items()),
                "_file",
                "_row",
            )
            for row in swico.nameless(rows).orderBy("_file", "_row").head(1):
                raise InputError(
                    f"row {row['_row'] + 1} has no {'topic' if row['node'] else 'node'}",
                    where=row["_file"],
                    remedy="name a node and a topic in each row",
                )
            numbered: list[DataFrame] = []
            orders: list[pa.Table] = []
            for column in ("node", "topic"):
                ordered = keep(swico.in_order(rows, column))
                orders.append(store.arrow_of(ordered).sort_by("place"))
                parts = orders[-1]["place"].to_numpy() >> swico.PART_BITS
                numbered.append(swico.numbered(ordered, Counter(parts.tolist())))
            nodes, topics_count = orders[0]["name"].to_pylist(), len(orders[1])
            del orders, parts  # memory counts here
            kept = keep(swico.pairs(rows, numbered[0], numbered[1], max(len(nodes), topics_count)))
            wanted = _interests_of(kept, len(nodes), topics_count)
            return nodes, wanted, _candidates(kept, len(nodes), keep)

    try:
        return guarded(act)
    finally:
        sessions.end_java()  # the planner wants the memory


def candidates(wanted: TopicInterests, folder: str, job: Job) -> IntArray:
    """The same candidates, of interests that are at hand."""

    def act() -> IntArray:
        with job.session() as spark, _swico_scratch(spark, folder) as keep:
            nodes = np.repeat(np.arange(wanted.nodes_count), np.diff(wanted.start))
            columns = {"node": nodes, "topic": wanted.topics}
            rows = sessions.small_table(spark, columns, swico.PAIRS)
            return _candidates(rows, wanted.nodes_count, keep)

    try:
        return guarded(act)
    finally:
        sessions.end_java()


def _interests_of(pairs: DataFrame, nodes: int, topics: int) -> TopicInterests:
    columns = store.arrow_of(pairs)
    node, topic = (columns[name].to_numpy() for name in ("node", "topic"))
    return from_pairs(node, topic, nodes, topics)


def _swico_scratch(spark: SparkSession, folder: str) -> Any:
    return store.scratch(spark, on_disk(folder), f".swico-{os.getpid()}")


def _candidates(pairs: DataFrame, nodes: int, keep: Callable[[DataFrame], DataFrame]) -> IntArray:
    edges = keep(swico.candidates(pairs).select((F.col("a") * nodes + F.col("b")).alias("edge")))
    # Sorting numbers here costs less than a second shuffle there; in place, for the memory.
    numbers = np.concatenate([chunk.to_numpy() for chunk in store.arrow_of(edges)["edge"].chunks])
    pa.default_memory_pool().release_unused()
    numbers.sort()
    return once_each(numbers)
