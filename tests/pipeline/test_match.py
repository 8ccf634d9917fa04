"""Bulk matching against filters that are evaluated here, one by one, without the package."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.pipeline import run, store

pytestmark = pytest.mark.spark
Test = Callable[[dict[str, Any]], bool]
SYMBOLS = ["A", "AB", "B", "it's", "é"]


def some_filter(draw: random.Random) -> tuple[str, Test]:
    """A conjunction of up to three demands as a text, and what it means."""
    parts: list[str] = []
    tests: list[Test] = []
    for kind in draw.sample(
        ["range", "equal", "in", "prefix", "null", "pattern"], draw.randint(1, 3)
    ):
        number, word = draw.randint(0, 20), draw.choice(SYMBOLS)
        quoted = word.replace("'", "''")
        if kind == "range":
            parts.append(f"price > {number} AND price <= {number + 5}")
            tests.append(lambda p, n=number: p.get("price") is not None and n < p["price"] <= n + 5)
        elif kind == "equal":
            parts.append(f"symbol = '{quoted}'")
            tests.append(lambda p, w=word: p.get("symbol") == w)
        elif kind == "in":
            parts.append(f"volume IN ({number}, {number + 1})")
            tests.append(lambda p, n=number: p.get("volume") in (n, n + 1))
        elif kind == "prefix":
            parts.append(f"name LIKE '{word[0]}%'")
            tests.append(lambda p, w=word: (p.get("name") or "").startswith(w[0]))
        elif kind == "null":
            parts.append("flag IS NULL")
            tests.append(lambda p: p.get("flag") is None)
        else:
            parts.append("name LIKE '%B%'")
            tests.append(lambda p: "B" in (p.get("name") or ""))
    return " AND ".join(parts), lambda p: all(test(p) for test in tests)


def some_publication(draw: random.Random) -> dict[str, Any]:
    values = {
        "price": draw.choice([draw.randint(0, 25), draw.random() * 25, 2**60]),
        "symbol": draw.choice(SYMBOLS),
        "volume": draw.randint(0, 22),
        "name": draw.choice(SYMBOLS) + draw.choice(SYMBOLS),
        "flag": draw.choice([True, None]),
    }
    return {name: value for name, value in values.items() if draw.random() < 0.8}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """Subscriptions as CSV and publications as JSON lines; some subscriptions for a while."""
    folder = tmp_path_factory.mktemp("match")
    draw = random.Random(3)
    subscriptions, publications = [], []
    for number in range(300):
        text, test = some_filter(draw)
        since, until = (draw.randint(0, 40), draw.randint(60, 99)) if number % 4 == 0 else ("", "")
        names = f"s{number}", f"b{draw.randrange(5)}", f"c{draw.randrange(20)}"
        subscriptions.append((*names, text, since, until, test))
    with (folder / "subscriptions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "broker", "client", "filter", "time_us", "until_us"])
        writer.writerows(row[:6] for row in subscriptions)
    with (folder / "publications.jsonl").open("w") as file:
        for number in range(400):
            said = {"id": str(number), "publisher": f"p{number % 3}", "broker": "b0"}
            said |= {"time_us": number % 100, "attributes": some_publication(draw)}
            publications.append(said)
            file.write(json.dumps(said) + "\n")
    return folder, subscriptions, publications


def brute(subscriptions: Any, publications: Any, column: int) -> dict[str, list[str]]:
    return {
        said["id"]: sorted(
            {
                row[column]
                for row in subscriptions
                if (row[4] == "" or row[4] <= said["time_us"] <= row[5])
                and row[6](said["attributes"])
            }
        )
        for said in publications
    }


def test_every_publication_is_matched_as_one_by_one(spark, files, tmp_path):
    folder, subscriptions, publications = files
    expected = brute(subscriptions, publications, 0)
    assert 1_000 < sum(map(len, expected.values())) < 60_000
    raw = str(folder / "subscriptions.csv"), str(folder / "publications.jsonl")
    facts = run.match(*raw, str(tmp_path / "out"), run.Job())
    rows = store.rows_of(str(tmp_path / "out/matches"))
    matches = {row["publication"]: row["matches"] for row in rows}
    wrong = {id: set(expected[id]) ^ set(matches.get(id, ())) for id in expected}
    assert {id: who for id, who in wrong.items() if who} == {}
    assert matches == expected
    assert facts["publications"] == len(rows) == 400
    assert facts["matches"] == sum(map(len, expected.values()))
    assert {row["publisher"] for row in rows} == {"p0", "p1", "p2"}
    assert run.match(*raw, str(tmp_path / "out"), run.Job())["unchanged"]
    assert not list((tmp_path / "out").glob(".matches*"))
    tables = [str(tmp_path / "out" / name) for name in ("subscriptions", "publications")]
    run.match(*tables, str(tmp_path / "by"), run.Job(), by="client")
    rows = store.rows_of(str(tmp_path / "by/matches"))
    by_client = {row["publication"]: row["matches"] for row in rows}
    assert by_client == brute(subscriptions, publications, 2)


NESTED = [
    "`order`.items.sku = 'x'",
    "`order`.items.sku = 'x' AND `order`.items.qty > 5",
    "NOT `order`.items.sku = 'x'",
    "tags IN ('a', 'b') AND `order`.items.qty > 5",
    "`order`.items.sku IS NULL OR tags LIKE 'c%'",
    "`order`.city <> 'Oslo' AND (tags = 'a' OR `order`.items.qty <= 2)",
]


def test_nested_content_matches_as_spark_unnests_it(spark, tmp_path):
    """The same texts as predicates over rows that Spark's own `explode` makes."""
    draw = random.Random(5)
    contents = []
    for number in range(60):
        items = [
            {"sku": draw.choice(["x", "y", None]), "qty": draw.randint(0, 9)}
            for _ in range(draw.randint(0, 3))
        ]
        order = {"city": draw.choice(["Oslo", "Rome"]), "items": items}
        tags = [draw.choice(["a", "b", "cd"]) for _ in range(draw.randint(0, 3))]
        contents.append((str(number), {"order": order, "tags": tags}))
    with (tmp_path / "p.jsonl").open("w") as file:
        for number, content in contents:
            row = {"id": number, "time_us": 0, "broker": "b", "publisher": "p"}
            file.write(json.dumps(row | {"attributes": content}) + "\n")
    with (tmp_path / "s.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["id", "broker", "client", "filter"]]
            + [[str(n), "b", "c", text] for n, text in enumerate(NESTED)]
        )
    run.match(str(tmp_path / "s.csv"), str(tmp_path / "p.jsonl"), str(tmp_path / "out"), run.Job())
    rows = store.rows_of(str(tmp_path / "out/matches"))
    matches = {
        (row["publication"], subscription) for row in rows for subscription in row["matches"]
    }
    schema = (
        "id string, `order` struct<city: string, items: array<struct<sku: string, qty: int>>>,"
        " tags array<string>"
    )
    frame = spark.createDataFrame([(n, c["order"], c["tags"]) for n, c in contents], schema)
    unnested = frame.selectExpr(
        "id", "`order`.city", "explode_outer(`order`.items) item", "tags"
    ).selectExpr(
        "id", "named_struct('city', city, 'items', item) `order`", "explode_outer(tags) tags"
    )
    expected = {
        (row.id, str(n))
        for n, text in enumerate(NESTED)
        for row in unnested.where(text).select("id").distinct().collect()
    }
    assert matches == expected
    assert 60 < len(expected) < 300


def test_a_bad_row_of_a_raw_file_is_named(spark, files, tmp_path):
    folder, _, _ = files
    (tmp_path / "bad.csv").write_text("broker,client,filter\nb0,c0,price > 1\nb0,c0,price >\n")
    arguments = ["--subscriptions", str(tmp_path / "bad.csv")]
    arguments += ["--publications", str(folder / "publications.jsonl"), "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, ["pipeline", "match", *arguments])
    assert done.exit_code != 0
    assert "bad.csv:3" in done.output + str(done.exception)
