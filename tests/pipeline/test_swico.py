"""The approximate planner on Spark's candidates, against the exact one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

from postroad.errors import InputError
from postroad.kernels import swico, swico_candidates
from postroad.pipeline import run
from postroad.pipeline.swico import candidates
from postroad.planning.interests import read
from postroad.planning.swico import TopicInterests, from_pairs, support
from postroad.workloads.topics import synthetic

pytestmark = pytest.mark.spark


def pairs_of(spark: Any, interests: TopicInterests, partitions: int) -> Any:
    nodes = np.repeat(np.arange(interests.nodes_count), np.diff(interests.start))
    rows = list(zip(nodes.tolist(), interests.topics.tolist(), strict=True))
    frame = spark.createDataFrame(rows, "node long, topic long").repartition(partitions)
    found = candidates(frame).distinct().orderBy("a", "b").toPandas().to_numpy(np.int64)
    return found @ [interests.nodes_count, 1]


def test_it_comes_near_the_exact_planner_whatever_the_partitions(
    spark: Any, tmp_path: Path
) -> None:
    interests = synthetic("zipf", 400, 400, 10, 1)
    edges = run.candidates(interests, str(tmp_path), run.Job())
    assert not [*tmp_path.iterdir()]
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


def test_it_comes_near_with_many_more_topics_than_nodes(spark: Any, tmp_path: Path) -> None:
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
    edges = run.candidates(interests, str(tmp_path), run.Job())
    world = swico_candidates.build(interests, edges, 1)
    exact = swico.build(interests, "SL", "chord", 1)
    found, best = (
        support(interests, swico.components_count(interests, each)) for each in (world, exact)
    )
    assert found > best - 0.015, (found, best)


def written(folder: Path, rows: Sequence[tuple[object, object]], files: int) -> Path:
    """A table of so many files, as the pipeline's are."""
    table = folder / "interests"
    table.mkdir()
    for number in range(files):
        begin, end = (len(rows) * at // files for at in (number, number + 1))
        nodes, topics = zip(*rows[begin:end], strict=True)
        columns = arrow.table({"user": nodes, "topic": topics})
        parquet.write_table(columns, table / f"part-{number}.parquet", row_group_size=7)
    return table


def test_a_table_is_numbered_as_a_file_is_read(spark: Any, tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    rows = [(f"n{a}", f"t{b}") for a, b in draw.integers(40, size=(500, 2)).tolist()]
    table = written(tmp_path, rows, 5)
    nodes, interests, edges = run.interests(str(table), {"node": "user"}, str(tmp_path), run.Job())
    names, topics, wanted = read(table, {"node": "user"})
    assert nodes == names == list(dict.fromkeys(name for name, _ in rows))
    assert interests.topics_count == wanted.topics_count == len(topics)
    assert interests.start.tolist() == wanted.start.tolist()
    assert interests.topics.tolist() == wanted.topics.tolist()
    assert edges.tolist() == run.candidates(wanted, str(tmp_path), run.Job()).tolist()
    assert [*tmp_path.iterdir()] == [table]


@pytest.mark.parametrize(
    ("row", "names", "complaint"),
    [
        (("n", ""), {"node": "user"}, "row 4 has no topic"),
        ((None, "t"), {"node": "user"}, "row 4 has no node"),
        (("n", "t"), {}, "name two of them node and topic"),
    ],
)
def test_a_table_without_names_is_refused(
    spark: Any, tmp_path: Path, row: tuple[str | None, str], names: dict[str, str], complaint: str
) -> None:
    table = written(tmp_path, [("a", "x")] * 6 + [row], 2)
    with pytest.raises(InputError, match=complaint):
        run.interests(str(table), names, str(tmp_path), run.Job())


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 33])
def test_without_candidates_it_is_still_a_small_world(nodes: int) -> None:
    interests = from_pairs(list(range(nodes)), [0] * nodes, nodes, 1)
    world = swico_candidates.build(interests, np.zeros(0, np.int64), 1)
    assert world.has_property_1()
    assert sorted(world.order.tolist()) == list(range(nodes))
