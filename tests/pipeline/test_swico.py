"""The approximate planner on Spark's candidates, against the exact one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from postroad.kernels import swico, swico_candidates
from postroad.pipeline.swico import candidate_edges, candidates
from postroad.planning.swico import TopicInterests, from_pairs, support
from postroad.workloads.topics import synthetic

pytestmark = pytest.mark.spark


def pairs_of(spark: Any, interests: TopicInterests, partitions: int) -> Any:
    nodes = np.repeat(np.arange(interests.nodes_count), np.diff(interests.start))
    rows = list(zip(nodes.tolist(), interests.topics.tolist(), strict=True))
    frame = spark.createDataFrame(rows, "node long, topic long").repartition(partitions)
    found = candidates(frame).distinct().orderBy("a", "b").toPandas().to_numpy(np.int64)
    return found @ [interests.nodes_count, 1]


def test_it_comes_near_the_exact_planner_whatever_the_partitions(spark: Any) -> None:
    interests = synthetic("zipf", 400, 400, 10, 1)
    edges = candidate_edges(spark, interests)
    assert (edges // 400 < edges % 400).all()
    world = swico_candidates.build(interests, edges, 1)
    assert world.has_property_1()
    assert sorted(world.order.tolist()) == list(range(400))
    found, exact, none = (
        support(interests, swico.components_count(interests, each))
        for each in (
            world,
            swico.build(interests, "SL", "chord", 1),
            swico.build(interests, "-", "chord", 1),
        )
    )
    assert none < found
    assert found > none + 0.95 * (exact - none), (none, found, exact)
    assert pairs_of(spark, interests, 7).tolist() == edges.tolist()


def test_it_comes_near_with_many_more_topics_than_nodes(spark: Any) -> None:
    """Nodes share a dozen topics or so: which finger is taken first matters."""
    draw = np.random.default_rng(1)
    weights = 1.0 / np.arange(1, 4001) ** 0.95
    taste = draw.integers(20, size=4000)
    nodes, topics = [], []
    for node in range(400):
        liked = np.isin(taste, draw.choice(20, 3, replace=False))
        chance = weights * np.where(liked, 12.0, 1.0)
        topics += draw.choice(4000, 50, replace=False, p=chance / chance.sum()).tolist()
        nodes += [node] * 50
    interests = from_pairs(nodes, topics, 400, 4000)
    world = swico_candidates.build(interests, candidate_edges(spark, interests), 1)
    exact = swico.build(interests, "SL", "chord", 1)
    found, best = (
        support(interests, swico.components_count(interests, each)) for each in (world, exact)
    )
    assert found > best - 0.015, (found, best)


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 33])
def test_without_candidates_it_is_still_a_small_world(nodes: int) -> None:
    interests = from_pairs(list(range(nodes)), [0] * nodes, nodes, 1)
    world = swico_candidates.build(interests, np.zeros(0, np.int64), 1)
    assert world.has_property_1()
    assert sorted(world.order.tolist()) == list(range(nodes))
