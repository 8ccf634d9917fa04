"""The breadth-first sample against a plain Python one, on 1 and 7 partitions."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import functions as F

from postroad.pipeline import sample
from postroad.pipeline.run.graphs import follower_facts
from postroad.pipeline.schemas import EDGES

pytestmark = pytest.mark.spark


def graph(spark, pairs, partitions):
    return spark.createDataFrame([tuple(map(int, pair)) for pair in pairs], EDGES).repartition(
        partitions
    )


def checkpoint(frame):
    return frame.localCheckpoint()


def oracle(spark, pairs, nodes, seeds, seed):
    """Breadth-first in Python, with Spark asked only for the hashes that settle choices."""
    users = sorted({end for pair in pairs for end in pair})
    frame = spark.createDataFrame([(int(user),) for user in users], "node bigint")
    ranked = frame.select("node", sample._rank(seed).alias("rank")).collect()
    rank = {row["node"]: (row["rank"], row["node"]) for row in ranked}
    follows: dict[int, set[int]] = {}
    for follower, followee in pairs:
        follows.setdefault(int(follower), set()).add(int(followee))
    order = sorted(follows, key=rank.__getitem__)
    level_of = dict.fromkeys(order[: min(seeds, nodes)], 0)
    frontier, level, fresh = list(level_of), 0, 1
    while len(level_of) < nodes:
        level += 1
        met = {w for v in frontier for w in follows.get(v, ())} - set(level_of)
        frontier = sorted(met, key=rank.__getitem__)[: nodes - len(level_of)]
        if not frontier:
            wanted = min(fresh, nodes - len(level_of))
            frontier = [user for user in order if user not in level_of][:wanted]
            fresh *= 2
        if not frontier:
            break
        level_of |= dict.fromkeys(frontier, level)
    return level_of


@pytest.mark.parametrize("partitions", [1, 7])
def test_sample_equals_a_plain_breadth_first_search(spark, partitions):
    pairs = np.random.default_rng(5).integers(0, 300, size=(700, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    expected = oracle(spark, pairs, 120, 3, 11)
    edges = graph(spark, pairs, partitions)
    visited = sample.visited(edges, 120, 3, 11, checkpoint)
    assert {row["node"]: row["level"] for row in visited.collect()} == expected
    among = sample.induced(edges, visited, 120)
    kept = sorted(tuple(map(int, p)) for p in pairs if p[0] in expected and p[1] in expected)
    assert sorted(tuple(row) for row in among.collect()) == kept


def test_sample_goes_on_from_a_new_seed_when_a_component_is_exhausted(spark):
    pairs = [(n, n + 1) for n in range(0, 12, 2)]  # six separate pairs
    expected = oracle(spark, pairs, 7, 1, 3)
    visited = sample.visited(graph(spark, pairs, 3), 7, 1, 3, checkpoint)
    assert {row["node"]: row["level"] for row in visited.collect()} == expected
    # One more seed, then two; of the two whom these follow one is enough.
    assert sorted(expected.values()) == [0, 1, 2, 3, 4, 4, 5]
    everyone = sample.visited(graph(spark, pairs, 3), 1000, 5, 3, checkpoint)
    assert everyone.count() == 12


def test_follower_statistics_count_users_without_followers(spark):
    edges = graph(spark, [(1, 9), (2, 9), (3, 9), (9, 1)], 2)
    counts = sample.follower_counts(edges)
    assert {row["node"]: row["followers"] for row in counts.collect()} == {1: 1, 2: 0, 3: 0, 9: 3}
    grouped = counts.groupBy("followers").count().orderBy(F.desc("followers")).collect()
    facts = follower_facts([(row["followers"], row["count"]) for row in grouped])
    assert facts["users"] == 4
    assert facts["median"] == 0
    assert facts["max"] == 3
    assert facts["mean"] == 1
