"""The same text means the same in a broker and in Spark SQL."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from filter_texts import expression, row
from postroad.cli import cli
from postroad.filters import matches, parse

pytestmark = pytest.mark.spark
SCHEMA = "s string, t string, i bigint, j bigint, d double, b boolean"
BATCH = 500


@pytest.fixture(autouse=True)
def interpreted(spark: Any) -> Iterator[None]:
    """Compiling thousands of expressions used once takes minutes; interpreting them, seconds."""
    settings = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


def spark_matches(spark: Any, texts: list[str], rows: list[dict[str, Any]]) -> list[list[int]]:
    """Per row, the numbers of the texts that Spark finds TRUE (UNKNOWN counts as no)."""
    from pyspark.sql import functions as F

    columns = ["s", "t", "i", "j", "d", "b"]
    frame = spark.createDataFrame([tuple(r[c] for c in columns) for r in rows], SCHEMA).coalesce(1)
    found: list[list[int]] = [[] for _ in rows]
    for start in range(0, len(texts), BATCH):
        flags = [F.coalesce(F.expr(text), F.lit(False)) for text in texts[start : start + BATCH]]
        for number, answer in enumerate(frame.select(F.array(*flags)).collect()):
            found[number] += [start + i for i, flag in enumerate(answer[0]) if flag]
    return found


def test_thousands_of_random_filters_agree_with_spark(spark: Any) -> None:
    draw = random.Random(20)
    texts = [expression(draw) for _ in range(1600)]
    rows = [row(draw) for _ in range(150)]
    filters = [parse(text) for text in texts]
    theirs = spark_matches(spark, texts, rows)
    for values, expected in zip(rows, theirs, strict=True):
        ours = [number for number, filter in enumerate(filters) if matches(filter, values)]
        differing = sorted(set(ours) ^ set(expected))
        assert ours == expected, (values, [texts[number] for number in differing[:3]])
    assert sum(map(len, theirs)) > 10_000


def test_printed_filters_agree_with_spark_too(spark: Any) -> None:
    draw = random.Random(21)
    filters = [parse(expression(draw)) for _ in range(400)]
    rows = [row(draw) for _ in range(100)]
    theirs = spark_matches(spark, [str(filter) for filter in filters], rows)
    for values, expected in zip(rows, theirs, strict=True):
        ours = [number for number, filter in enumerate(filters) if matches(filter, values)]
        assert ours == expected, values


def test_match_command_agrees_with_spark(spark: Any, tmp_path: Path) -> None:
    draw = random.Random(22)
    texts = [expression(draw, depth=2).replace("\n", " ") for _ in range(300)]
    texts = [text for text in texts if text.isprintable()]
    rows = [{k: v for k, v in row(draw).items() if v == v} for _ in range(80)]
    ids = [f"f{number}" for number in range(len(texts))]
    lines = [f"{id}\t{text}\n" for id, text in zip(ids, texts, strict=True)]
    (tmp_path / "filters.txt").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "pubs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    arguments = ["--filters", tmp_path / "filters.txt", "--publications", tmp_path / "pubs.jsonl"]
    done = CliRunner().invoke(cli, ["match", *map(str, arguments)], catch_exceptions=False)
    ours = [json.loads(line) for line in done.stdout.splitlines()]
    full = [{name: r.get(name) for name in ("s", "t", "i", "j", "d", "b")} for r in rows]
    theirs = spark_matches(spark, texts, full)
    assert ours == [
        {"publication": number, "filters": sorted(ids[i] for i in found)}
        for number, found in enumerate(theirs)
    ]
    assert any(answer["filters"] for answer in ours)
