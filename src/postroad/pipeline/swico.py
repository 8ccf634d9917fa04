"""Candidate edges for the approximate SWICO planner, from interests of any size.

Nodes that share a topic stand in one bucket per topic, and nodes with equal MinHash bands in one
bucket per band. Within a bucket they are ordered by their MinHash signature, so that similar
nodes stand close, and each is paired with the next few: no bucket costs more than its size
times `near`, however popular its topic. `kernels/swico_candidates.py` builds the overlay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from postroad.overlay import IntArray
from postroad.planning.swico import TopicInterests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HASHES = 8


def candidate_edges(spark: SparkSession, interests: TopicInterests, near: int = 2) -> IntArray:
    """The candidates of these interests, collected: rows (a, b), ascending."""
    nodes = np.repeat(np.arange(interests.nodes_count), np.diff(interests.start))
    rows = spark.createDataFrame(pd.DataFrame({"node": nodes, "topic": interests.topics}))
    found = candidates(rows, near).toPandas().sort_values(["a", "b"])
    edges: IntArray = found[["a", "b"]].to_numpy(np.int64)
    return edges


def candidates(interests: DataFrame, near: int = 2) -> DataFrame:
    """From (node, topic), both long: pairs (a, b) with a < b, each once.

    Buckets are the topics, and of the HASHES minima each one and each two in a row.
    """
    minima = [F.min(F.xxhash64("topic", F.lit(i))).alias(f"m{i}") for i in range(HASHES)]
    signatures = interests.groupBy("node").agg(*minima)
    bands = [F.xxhash64(F.lit(i), f"m{i}") for i in range(HASHES)]
    bands += [F.xxhash64(F.lit(-i), f"m{i}", f"m{i + 1}") for i in range(HASHES - 1)]
    by_band = signatures.select(
        "node", F.explode(F.array(*bands)).alias("bucket"), *(f"m{i}" for i in range(HASHES))
    )
    by_topic = interests.join(signatures, on="node", how="inner").select(
        "node",
        F.xxhash64(F.lit("topic"), "topic").alias("bucket"),
        *(f"m{i}" for i in range(HASHES)),
    )
    beside = Window.partitionBy("bucket").orderBy(*(f"m{i}" for i in range(HASHES)), "node")
    following = F.array(*(F.lead("node", step).over(beside) for step in range(1, near + 1)))
    buckets = by_band.unionByName(by_topic).select("node", following.alias("following"))
    paired = buckets.select("node", F.explode("following").alias("peer"))
    return (
        paired.where("peer is not null and peer <> node")
        .select(F.least("node", "peer").alias("a"), F.greatest("node", "peer").alias("b"))
        .distinct()
    )
