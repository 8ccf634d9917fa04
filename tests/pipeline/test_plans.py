"""What Spark is asked to do: no stage gathers its rows in one partition, and none but those that
must parse a filter or ask a compiled index runs Python on rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    MapType,
    StringType,
    StructType,
)

from postroad.pipeline import cost, ingest, match, measure, sample, swico, watch
from postroad.pipeline import schemas as of
from postroad.pipeline.definitions import OF_PAPERS
from postroad.pipeline.schemas import LONG, TEXT, table

pytestmark = pytest.mark.spark

LINES = table(file=TEXT, block=LONG, position=LONG, text=TEXT)
PLACES = table(number=LONG, name=TEXT, is_broker=BooleanType())
Read = Callable[[StructType], Any]

STAGES: dict[str, Callable[[Read], Any]] = {
    "edges": lambda read: ingest.edge_set(ingest.edges(read(LINES)), undirected=True),
    "followers": lambda read: sample.follower_counts(read(of.EDGES)),
    "sample's edges": lambda read: sample.induced(read(of.EDGES), read(of.NODES), 10),
    "held filters": lambda read: match.held(read(of.SUBSCRIPTIONS), "broker"),
    "facts of traces": lambda read: measure.trace_facts(read(of.TRACES)),
    "metrics of traces": lambda read: measure.trace_metrics(read(of.TRACES)),
    "metrics of facts": lambda read: measure.fact_metrics(read(of.FACTS)),
    "metrics of papers": lambda read: measure.fact_metrics(read(of.FACTS), list(OF_PAPERS)),
    "metrics of runs": lambda read: measure.run_metrics(read(of.RUNS), read(of.METRICS)),
    "cost of links": lambda read: cost.links(read(of.COST_FACTS), read(PLACES)),
    "interests without names": lambda read: swico.nameless(read(swico.ROWS)),
    "nodes in order": lambda read: swico.in_order(read(swico.ROWS), "node"),
    "nodes by number": lambda read: swico.numbered(read(swico.ORDERED), {0: 1, 1: 1}),
    "interests by number": lambda read: swico.pairs(
        read(swico.ROWS), read(swico.NUMBERED), read(swico.NUMBERED), 1
    ),
    "interests by number, many": lambda read: swico.pairs(
        read(swico.ROWS), read(swico.NUMBERED), read(swico.NUMBERED), swico.BROADCAST_MAX + 1
    ),
    "candidates": lambda read: swico.candidates(read(swico.PAIRS)),
    "watch: events": lambda read: watch.events(watch.judged(read(LINES)), 1_000_000),
    "watch: faults": lambda read: watch.faults(read(LINES)),
    **{
        name: partial(lambda stage, read: stage(read(of.WATCH_FACTS)), stage)
        for name, stage in watch.stages(1_000_000).items()
    },
}
"""Each a function of tables to one table."""


def value_of(kind: DataType) -> Any:
    match kind:
        case StringType():
            return "x"
        case BooleanType():
            return True
        case DoubleType():
            return 1.0
        case ArrayType():
            return [value_of(kind.elementType)]
        case MapType():
            return {value_of(kind.keyType): value_of(kind.valueType)}
        case StructType():
            return tuple(value_of(field.dataType) for field in kind.fields)
        case _:
            return 1


@pytest.fixture(scope="module")
def read(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """A table of a schema that lies on disk, so that Spark knows nothing of its rows beforehand."""
    folder = tmp_path_factory.mktemp("plans")
    paths: dict[str, Path] = {}

    def of_schema(schema: StructType) -> Any:
        path = paths.get(schema.json())
        if path is None:
            path = paths[schema.json()] = folder / str(len(paths))
            spark.createDataFrame([value_of(schema)], schema).write.parquet(str(path))
        return spark.read.schema(schema).parquet(str(path))

    return of_schema


def plan(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize("name", STAGES)
def test_stage_keeps_its_rows_apart_and_speaks_sql(read: Read, name: str) -> None:
    text = plan(STAGES[name](read))
    assert "Scan parquet" in text
    assert not re.search(r"Exchange SinglePartition|CartesianProduct|BroadcastNestedLoop", text)
    assert not re.search(r"EvalPython|MapInPandas|MapInArrow|FlatMapGroups|PythonUDF", text)


def test_the_check_sees_what_it_is_for(read: Read) -> None:
    edges = read(of.EDGES)
    assert "Exchange SinglePartition" in plan(edges.orderBy("follower").groupBy().count())
    assert "MapInArrow" in plan(edges.mapInArrow(lambda rows: rows, of.EDGES))
