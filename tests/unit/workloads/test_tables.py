"""Parquet is read wherever CSV and JSON Lines are, and says the same."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.errors import InputError
from postroad.pipeline.sweep import files_named
from postroad.workloads import files

SUBSCRIPTIONS = [
    {"subscription": f"s{n}", "broker": str(n % 3), "client": f"c{n}", "filter": f"x > {n}",
     "time_us": None, "until_us": 5_000_000 if n == 1 else None}
    for n in range(5)
]  # fmt: skip
PUBLICATIONS = [
    {"publication": f"{n}", "publisher": "p", "broker": "0", "time_us": 1000 * (9 - n),
     "attributes": json.dumps({"x": n, "s": None})}
    for n in range(6)
]  # fmt: skip
SCENARIO = """
scheme = "flooding"
[overlay]
kind = "full_tree"
fanout = 2
height = 1
[workload]
subscriptions = "{}"
publications = "{}"
"""


def lines(rows):
    said = [{key: value for key, value in row.items() if value is not None} for row in rows]
    return "".join(json.dumps(row) + "\n" for row in said)


@pytest.fixture
def folder(tmp_path):
    """Both tables, each as JSON Lines, as a Parquet file and as a folder of two parts."""
    for name, rows in (("subscriptions", SUBSCRIPTIONS), ("publications", PUBLICATIONS)):
        (tmp_path / f"{name}.jsonl").write_text(lines(rows))
        table = pa.Table.from_pylist(rows)
        pq.write_table(table, tmp_path / f"{name}.parquet")
        (tmp_path / name).mkdir()
        (tmp_path / name / "_lineage.json").write_text('{"fingerprint": "f", "facts": {}}')
        pq.write_table(table[3:], tmp_path / name / "part-0.parquet")
        pq.write_table(table[:3], tmp_path / name / "part-1.parquet")
    return tmp_path


def invoke(*words):
    found = CliRunner().invoke(cli, list(map(str, words)))
    assert found.exit_code == 0, found.output
    return found.output


def test_a_workload_is_the_same_from_lines_and_from_tables(folder):
    def read(ending):
        paths = {name: folder / f"{name}{ending}" for name in ("subscriptions", "publications")}
        tables = {name: files.file_rows(path) for name, path in paths.items()}
        return files.workload(tables, ("0", "1", "2"))

    expected = read(".jsonl")
    assert len(expected.subscriptions) == 5
    for ending in (".parquet", ""):
        assert read(ending) == expected


def test_simulate_reads_tables_and_a_sweep_knows_them(folder):
    said = []
    for ending in (".jsonl", ""):
        text = SCENARIO.format(f"subscriptions{ending}", f"publications{ending}")
        (folder / "scenario.toml").write_text(text)
        said.append(invoke("simulate", folder / "scenario.toml", "--json"))
    assert said[0] == said[1]
    assert json.loads(said[0])["deliveries"] > 0
    assert files_named({"workload": ["subscriptions", "nowhere"]}, folder) == {
        str(folder / "subscriptions"): "f"
    }


def test_match_reads_tables(folder):
    (folder / "filters.txt").write_text(
        "".join(f"{row['subscription']}\t{row['filter']}\n" for row in SUBSCRIPTIONS)
    )
    in_time = sorted(PUBLICATIONS, key=lambda row: row["time_us"])
    (folder / "contents.txt").write_text("".join(row["attributes"] + "\n" for row in in_time))
    expected = invoke(
        "match", "--filters", folder / "filters.txt", "--publications", folder / "contents.txt"
    )
    tables = ("--filters", folder / "subscriptions", "--publications", folder / "publications")
    assert invoke("match", *tables) == expected
    assert '"s3"' in expected


def test_what_is_no_table_is_told(folder):
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: there is no Parquet in it"):
        list(files.file_rows(folder / "empty"))
    (folder / "text.parquet").write_text("hello")
    with pytest.raises(InputError, match=r"cannot read '.*text.parquet'"):
        list(files.file_rows(folder / "text.parquet"))
    rows = [{**SUBSCRIPTIONS[0], "filter": "x >"}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "bad.parquet")
    with pytest.raises(InputError, match=r"bad.parquet: row 1: filter 'x >'"):
        files.workload({"subscriptions": files.file_rows(folder / "bad.parquet")}, ("0",))
