"""A breadth-first sample of a social graph, keeping all edges among the visited users.

Seeds are those users who follow somebody with the smallest hash of (seed, user): a random
choice that repeats. Each level visits the users that the frontier follows. The last level is
cut to the wanted number of users, again by smallest hash. When a level finds nobody new, the
next users in seed order join as new seeds: one the first time, then twice as many each time.
Nothing depends on how the table is partitioned, and edges are never collected: only counts of
users reach the driver.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postroad.pipeline.schemas import EDGES, NODES, conform

BROADCAST_MAX = 4_000_000
"""Users up to which a frontier or the visited set is sent to every executor whole (32 MB)."""


def visited(
    edges: DataFrame, nodes: int, seeds: int, seed: int, cut: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    """The users of the sample and the level at which each was met. `cut` ends a level's lineage."""
    reached = cut(_fresh_seeds(edges, None, min(seeds, nodes), seed, cut, level=0))
    count = reached.count()
    frontier, level, fresh = reached, 0, 1
    while count < nodes:
        level += 1
        sources = frontier.select(F.col("node").alias("follower"))
        met = (
            edges.join(_whole(sources, count), on="follower", how="left_semi")
            .select(F.col("followee").alias("node"))
            .distinct()
            .join(_whole(reached.select("node"), count), on="node", how="left_anti")
        )
        frontier = cut(met.withColumn("level", F.lit(level)))
        size = frontier.count()
        if size > nodes - count:
            frontier = cut(frontier.orderBy(_rank(seed), "node").limit(nodes - count))
            size = nodes - count
        elif size == 0:
            wanted = min(fresh, nodes - count)
            frontier = cut(_fresh_seeds(edges, reached, wanted, seed, cut, level))
            size, fresh = frontier.count(), fresh * 2
            if size == 0:
                break
        reached = cut(reached.unionByName(frontier))
        count += size
    return conform(reached, NODES)


def induced(edges: DataFrame, nodes: DataFrame, count: int) -> DataFrame:
    """All edges whose two ends were visited; `count` is about how many users that is."""
    followers = nodes.select(F.col("node").alias("follower"))
    followees = nodes.select(F.col("node").alias("followee"))
    among = edges.join(_whole(followers, count), on="follower", how="left_semi").join(
        _whole(followees, count), on="followee", how="left_semi"
    )
    return conform(among, EDGES)


def _fresh_seeds(
    edges: DataFrame,
    reached: DataFrame | None,
    wanted: int,
    seed: int,
    cut: Callable[[DataFrame], DataFrame],
    level: int,
) -> DataFrame:
    """The `wanted` users of smallest hash that follow somebody and were not met yet.

    Only users below a bound of the hash are told apart, so one pass without a shuffle of all
    users is enough; the bound is loosened until enough are below it.
    """
    users = edges.select(F.col("follower").alias("node"))
    if reached is not None:
        users = users.join(F.broadcast(reached.select("node")), on="node", how="left_anti")
    for bits in (12, 6, 0):
        bound = min(-(1 << 63) + (1 << (64 - bits)), (1 << 63) - 1)
        few = cut(users.where(_rank(seed) <= F.lit(bound)).distinct())
        if bits == 0 or few.count() >= wanted:
            break
    return few.orderBy(_rank(seed), "node").limit(wanted).withColumn("level", F.lit(level))


def follower_counts(edges: DataFrame) -> DataFrame:
    """How many followers each user of the graph has, those with none included."""
    users = edges.select(F.col("follower").alias("node")).union(
        edges.select(F.col("followee").alias("node"))
    )
    followed = edges.groupBy(F.col("followee").alias("node")).agg(
        F.count(F.lit(1)).alias("followers")
    )
    return (
        users.distinct()
        .join(followed, on="node", how="left")
        .select("node", F.coalesce("followers", F.lit(0)).alias("followers"))
    )


def _whole(users: DataFrame, count: int) -> DataFrame:
    """Users to be sent to every executor whole, while they are few enough for that."""
    return F.broadcast(users) if count <= BROADCAST_MAX else users


def _rank(seed: int) -> Column:
    return F.xxhash64(F.lit(seed), F.lit("sample"), "node")
