"""Workloads as others write them: other columns, JSON arrays, CloudEvents, gzip, timestamps."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.errors import InputError
from postroad.sim.scenario import from_dict
from postroad.workloads.model import Workload

SUBSCRIPTIONS = [{"site": "0", "user": "ann", "rule": "symbol = 'IBM' AND price > 10"},
                 {"site": "1", "user": "bob", "rule": "price > 12"}]  # fmt: skip
PUBLICATIONS = [
    {"time": 0.5, "site": "0", "publisher": "nyse", "ticker": "IBM", "price": 11},
    {"time": 1.25, "site": "2", "publisher": "nyse", "ticker": "KO", "price": 12.5},
]
FORMS = ["csv", "csv.gz", "jsonl", "jsonl.gz", "json", "json.gz", "parquet"]
NAMES = {"broker": "site", "client": "user", "filter": "rule", "symbol": "ticker"}
EVENTS = [
    {"specversion": "1.0", "type": "quote", "source": "nyse", "id": f"e{n}", "site": row["site"],
     "time": f"2026-03-01T09:30:0{n}.5Z", "data": {"ticker": row["ticker"], "price": row["price"]}}
    for n, row in enumerate(PUBLICATIONS)
]  # fmt: skip


def written(folder: Path, name: str, rows: list[dict[str, object]]) -> str:
    """The rows in the format that the name says."""
    plain = name.removesuffix(".gz")
    path = folder / name
    if plain.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
        return name
    if plain.endswith(".csv"):
        lines = [",".join(rows[0])] + [",".join(f'"{v}"' for v in row.values()) for row in rows]
        text = "\n".join(lines) + "\n"
    elif plain.endswith(".jsonl"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        text = json.dumps(rows, indent=1)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return name


def read(folder: Path, subscriptions: str, publications: str, names: object) -> Workload:
    workload = {"subscriptions": subscriptions, "publications": publications, "map": names}
    overlay = {"kind": "full_tree", "fanout": 2, "height": 1}
    settings = {"scheme": "flooding", "overlay": overlay, "workload": workload}
    return from_dict(settings, "here", folder).workload


@pytest.mark.parametrize("form", FORMS)
def test_every_format_with_other_columns_is_read_alike(tmp_path: Path, form: str) -> None:
    workload = read(
        tmp_path,
        written(tmp_path, f"s.{form}", SUBSCRIPTIONS),
        written(tmp_path, f"p.{form}", PUBLICATIONS),
        NAMES,
    )
    assert [(one.broker, one.client) for one in workload.subscriptions] == [(0, "ann"), (1, "bob")]
    assert [(one.time_us, one.broker, dict(one.attributes)) for one in workload.postings] == [
        (500_000, 0, {"symbol": "IBM", "price": 11}),
        (1_250_000, 2, {"symbol": "KO", "price": 12.5}),
    ]


@pytest.mark.parametrize("form", ["jsonl", "json.gz"])
def test_cloud_events_are_publications_as_live_brokers_see_them(tmp_path: Path, form: str) -> None:
    workload = read(
        tmp_path,
        written(tmp_path, "s.csv", SUBSCRIPTIONS),
        written(tmp_path, f"e.{form}", EVENTS),
        NAMES,
    )
    first, second = workload.postings
    assert (first.time_us, second.time_us) == (0, 1_000_000)
    assert (first.publisher, first.id, second.broker) == ("nyse", "e0", 2)
    assert first.attributes["symbol"] == "IBM"
    assert first.attributes["type"] == "quote"
    assert first.attributes["price"] == 11


def test_attributes_within_attributes_have_other_names_too(tmp_path: Path) -> None:
    row = {"time": 0, "broker": "0", "publisher": "p", "attributes": {"ticker": "IBM"}}
    written(tmp_path, "p.jsonl", [row, {**row, "time": 1}])
    written(tmp_path, "s.jsonl", [{"broker": "0", "client": "c", "filter": "symbol = 'IBM'"}])
    workload = read(tmp_path, "s.jsonl", "p.jsonl", {"symbol": "ticker"})
    assert [dict(one.attributes) for one in workload.postings] == [{"symbol": "IBM"}] * 2


@pytest.mark.parametrize(
    ("row", "names", "complaint"),
    [
        ({"client": "x"}, {"x": "y"}, r"no row has 'y', which is to be 'x'"),
        ({"client": "x", "user": "y"}, {"client": "user"}, "it has both 'client' and 'user'"),
        ({"client": "x", "region": "y"}, {}, r"unknown column 'region'.* a map gives"),
        ({"client": "x", "time": "2026-01-01", "until": 5}, {}, "where others are timestamps"),
        ({"client": "x", "time": "2026-13-01"}, {}, "time is '2026-13-01'"),
        ({"client": "x"}, {"client": 5}, "workload.map.client is 5"),
    ],
)
def test_what_does_not_fit_is_told(
    tmp_path: Path, row: dict[str, object], names: dict[str, object], complaint: str
) -> None:
    written(tmp_path, "s.jsonl", [{"broker": "0", "filter": "x > 1", **row}])
    written(tmp_path, "p.json", [])
    with pytest.raises(InputError, match=complaint):
        read(tmp_path, "s.jsonl", "p.json", names)


def test_match_reads_them_all(tmp_path: Path) -> None:
    named = [word for pair in NAMES.items() for word in ("--map", "=".join(pair))]
    answers = set()
    for form in ("csv", "jsonl.gz", "json", "parquet"):
        for events in (False, True):
            if events and form not in ("jsonl.gz", "json"):
                continue
            filters = tmp_path / written(tmp_path, f"s.{form}", SUBSCRIPTIONS)
            rows = EVENTS if events else PUBLICATIONS
            publications = tmp_path / written(tmp_path, f"p.{form}", rows)
            words = ["match", "--filters", str(filters), "--publications", str(publications)]
            done = CliRunner().invoke(cli, [*words, *named])
            assert done.exit_code == 0, done.output
            answers.add(done.stdout)
    assert answers == {
        '{"publication": 0, "filters": ["s0"]}\n{"publication": 1, "filters": ["s1"]}\n'
    }
