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


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 33])
def test_without_candidates_it_is_still_a_small_world(nodes: int) -> None:
    interests = from_pairs(list(range(nodes)), [0] * nodes, nodes, 1)
    world = swico_candidates.build(interests, np.zeros(0, np.int64), 1)
    assert world.has_property_1()
    assert sorted(world.order.tolist()) == list(range(nodes))
