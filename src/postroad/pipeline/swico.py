"""Candidate edges for the ring of the approximate SWICO planner, from interests of any size.

Nodes that share a topic are ordered by their MinHash signature, so that similar nodes stand
close, and each is paired with the next few: no topic costs more than its subscribers times
`near`, however popular it is. Which hashes come first in the order depends on the topic, so that
the topics of a node bring it beside different nodes. `kernels/swico_candidates.py` builds the
overlay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from postroad.overlay import IntArray
from postroad.planning.swico import TopicInterests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HASHES = 8
COMPARED = 3
"""How many hashes of the signature make the order within a topic."""
NEAR = 3


def candidate_edges(spark: SparkSession, interests: TopicInterests) -> IntArray:
    """The candidates of these interests, collected: a * nodes + b with a < b, ascending."""
    count = interests.nodes_count
    nodes = np.repeat(np.arange(count), np.diff(interests.start))
    rows = spark.createDataFrame(pa.table({"node": nodes, "topic": interests.topics}))
    paired = candidates(rows).select((F.col("a") * count + F.col("b")).alias("edge"))
    # Sorting numbers here costs less than a second shuffle there.
    edges: IntArray = np.unique(paired.toArrow().column("edge").to_numpy())
    return edges


def candidates(interests: DataFrame) -> DataFrame:
    """From (node, topic), both long, each once: pairs (a, b) with a < b, some more than once."""
    minima = F.array(*(F.min(F.xxhash64("topic", F.lit(i))) for i in range(HASHES)))
    signed = interests.groupBy("node").agg(
        minima.alias("signature"), F.collect_list("topic").alias("topics")
    )
    by_topic = signed.select("node", "signature", F.explode("topics").alias("topic"))
    turn = F.pmod(F.xxhash64("topic"), F.lit(HASHES))
    keys = [
        F.get("signature", F.pmod(turn + i, F.lit(HASHES)).cast("int")) for i in range(COMPARED)
    ]
    placed = by_topic.select(
        "node", "topic", *(key.alias(f"key_{i}") for i, key in enumerate(keys))
    )
    beside = Window.partitionBy("topic").orderBy(*(f"key_{i}" for i in range(COMPARED)), "node")
    following = F.array(*(F.lead("node", step).over(beside) for step in range(1, NEAR + 1)))
    followed = placed.select("node", following.alias("following"))
    return (
        followed.select("node", F.explode("following").alias("peer"))
        .where("peer is not null")
        .select(F.least("node", "peer").alias("a"), F.greatest("node", "peer").alias("b"))
    )
