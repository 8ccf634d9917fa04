"""What SWICO plans from, from interests of any size: nodes and topics by number, and the edges that
the approximate planner's ring is chosen from.

Nodes and topics are numbered in the order they first appear, as `planning/interests.py` does it.
Nodes that share a topic are ordered by their MinHash signature, so that similar nodes stand
close, and each is paired with the next few: no topic costs more than its subscribers times
`near`, however popular it is. Which hashes come first in the order depends on the topic, so that
the topics of a node bring it beside different nodes. `kernels/swico_candidates.py` builds the
overlay.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from postroad.pipeline.sample import BROADCAST_MAX
from postroad.pipeline.schemas import LONG, TEXT, table

HASHES = 8
COMPARED = 3
"""How many hashes of the signature make the order within a topic."""
NEAR = 3
ROWS = table(node=(TEXT,), topic=(TEXT,), _file=TEXT, _row=LONG)
"""Interests as they are read, with the file of each and its place there."""
ORDERED = table(name=TEXT, place=LONG)
NUMBERED = table(name=TEXT, number=LONG)
PAIRS = table(node=LONG, topic=LONG)
PART_BITS = 33
"""Of a growing id, those below the number of its partition."""


def nameless(rows: DataFrame) -> DataFrame:
    """The rows without a node or a topic."""
    return rows.where("coalesce(node, '') = '' or coalesce(topic, '') = ''")


def in_order(rows: DataFrame, column: str) -> DataFrame:
    """The names in a column, with a `place` that grows in the order in which they first appear."""
    first = rows.groupBy(column).agg(F.min(F.struct("_file", "_row")).alias("first"))
    place = F.monotonically_increasing_id().alias("place")
    return first.orderBy("first").select(F.col(column).alias("name"), place)


def numbered(ordered: DataFrame, counts: Mapping[int, int]) -> DataFrame:
    """Names by number, from 0 on; `counts` are the names in each partition of places, in order."""
    before, total = [], 0
    for part, count in counts.items():
        before += [F.lit(part), F.lit(total - (part << PART_BITS))]
        total += count
    offset = F.create_map(*before)[F.shiftright("place", PART_BITS)]
    return ordered.select("name", (offset + F.col("place")).alias("number"))


def pairs(rows: DataFrame, nodes: DataFrame, topics: DataFrame, most: int) -> DataFrame:
    """Interests by number, each once; `most` is how many nodes or topics there are."""
    numbers = rows.select("node", "topic")
    for column, names in (("node", nodes), ("topic", topics)):
        names = names.select(F.col("name").alias(column), F.col("number").alias(f"{column}_number"))
        names = F.broadcast(names) if most <= BROADCAST_MAX else names
        numbers = numbers.join(names, on=column, how="inner")
    return numbers.select(
        F.col("node_number").alias("node"), F.col("topic_number").alias("topic")
    ).distinct()


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
