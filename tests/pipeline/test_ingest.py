"""Raw files into tables: what is kept, what is quarantined and why, on which line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from postroad.errors import FilterError, InputError, RunFailed
from postroad.filters import parse
from postroad.pipeline import ingest, run, store
from postroad.pipeline.run import ingestion
from postroad.pipeline.schemas import (
    EDGES,
    LATENCY,
    PUBLICATIONS,
    QUARANTINE,
    QUOTES,
    SUBSCRIPTIONS,
    TRACES,
)

pytestmark = pytest.mark.spark
JOB = run.Job()


def rows(spark: SparkSession, path: Path, schema: object, *order: str) -> list[tuple]:
    return [tuple(row) for row in store.read(spark, str(path), schema).orderBy(*order).collect()]


def quarantined(spark: SparkSession, folder: Path, kind: str) -> list[tuple]:
    table = folder / f"{kind}_quarantine"
    return [(line, reason, raw) for _, line, reason, raw in rows(spark, table, QUARANTINE, "line")]


def test_edges_with_comments_tabs_commas_and_bad_lines(spark, tmp_path):
    source = tmp_path / "graph.txt"
    source.write_text("# a comment\n1 2\r\n2\t3\n\n3,4\n5 5\n6 x\n1 2\n7 8 9\n")
    facts = run.ingest([str(source)], "edges", str(tmp_path / "t"), JOB, bad_share=0.5)
    assert rows(spark, tmp_path / "t/edges", EDGES, "follower") == [(1, 2), (2, 3), (3, 4)]
    assert quarantined(spark, tmp_path / "t", "edges") == [
        (6, "self-loop", "5 5"),
        (7, "not two integers", "6 x"),
        (9, "not two integers", "7 8 9"),
    ]
    assert facts["records"] == 7
    assert facts["reasons"] == {"not two integers": 2, "self-loop": 1}


def test_undirected_edges_are_kept_both_ways_once(spark, tmp_path):
    source = tmp_path / "graph.txt"
    source.write_text("1 2\n2 1\n2 3\n")
    run.ingest([str(source)], "edges", str(tmp_path / "t"), JOB, undirected=True)
    found = rows(spark, tmp_path / "t/edges", EDGES, "follower", "followee")
    assert found == [(1, 2), (2, 1), (2, 3), (3, 2)]


@pytest.mark.parametrize("name", ["graph.txt", "graph.txt.gz"])
def test_line_numbers_are_right_when_a_file_is_read_in_many_splits(spark, tmp_path, name):
    bad = {1, 777, 2500, 5000}
    text = "".join(f"{n} {n + (n not in bad)}\n" for n in range(1, 5001))
    source, other = tmp_path / name, tmp_path / "other.txt"
    source.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    other.write_text("1 2\n3 3\n" + "4 5\n" * 200)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "4096")
    spark.conf.set("spark.sql.files.openCostInBytes", "1")
    try:
        splits = spark.read.text(str(source)).rdd.getNumPartitions()
        run.ingest([str(source), str(other)], "edges", str(tmp_path / "t"), JOB)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")
    assert splits == 1 if name.endswith("gz") else splits > 5
    found = rows(spark, tmp_path / "t/edges_quarantine", QUARANTINE, "file", "line")
    assert [(Path(file).name, line, raw) for file, line, _, raw in found] == sorted(
        [(name, n, f"{n} {n}") for n in bad] + [("other.txt", 2, "3 3")]
    )


def test_latency_matrix_drops_the_diagonal_and_missing_pairs(spark, tmp_path):
    source = tmp_path / "rtt.csv"
    source.write_text("# hosts\n0, 1.5, nan\n1.5,0,20\n-1,20,0\n")
    run.ingest([str(source)], "latency", str(tmp_path / "t"), JOB, unit="ms", times="one-way")
    assert rows(spark, tmp_path / "t/latency", LATENCY, "a", "b") == [
        (0, 1, 1500),
        (1, 0, 1500),
        (1, 2, 20000),
        (2, 1, 20000),
    ]


def test_latency_matrix_with_a_short_row(spark, tmp_path):
    source = tmp_path / "rtt.txt"
    source.write_text("0 1 2\n1 0\n2 x 0\n")
    with pytest.raises(InputError, match=r"rtt.txt:2: '1 0': as many fields as rows expected"):
        run.ingest([str(source)], "latency", str(tmp_path / "t"), JOB, times="one-way")
    facts = run.ingest(
        [str(source)], "latency", str(tmp_path / "t"), JOB, bad_share=0.9, unit="s", times="one-way"
    )
    assert facts["reasons"] == {"as many fields as rows expected": 1, "not a number": 1}
    found = rows(spark, tmp_path / "t/latency", LATENCY, "b")
    assert found == [(0, 1, 1_000_000), (0, 2, 2_000_000)]


def test_latency_triples_with_missing_pairs(spark, tmp_path):
    source = tmp_path / "king.txt"
    source.write_text("1 2 300\n1 3 -1\n2 3 nan\n2 2 0\n3 1 12.6\n")
    facts = run.ingest(
        [str(source)],
        "latency",
        str(tmp_path / "t"),
        JOB,
        layout="triples",
        unit="us",
        bad_share=1,
        times="one-way",
    )
    assert rows(spark, tmp_path / "t/latency", LATENCY, "a") == [(1, 2, 300), (3, 1, 13)]
    assert facts["reasons"] == {"pair of a host with itself": 1}


def test_quotes_by_header_in_any_order_with_flaws(spark, tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text(
        "date,symbol,open,high,low,close,adj_close,volume\n"
        "2020-01-02,A,1,2,0.5,1.5,1.4,100\n"
        "2020-01-02,B,0,0,0,0,0,0\n"
        "2020-01-02,B,5,6,4,5,5,10\n"
        "2020-01-03,A,3,2,1,1.5,1.5,100\n"
        "2020-01-04,A,1,2,1\n"
        "nonsense,A,1,2,1,1,1,1\n"
    )
    second.write_text('Symbol,Volume,Date,Close,Low,High,Open\n"C, Inc",1e3,5-Sep-96,2,1,3,2\n')
    facts = run.ingest([str(first), str(second)], "quotes", str(tmp_path / "t"), JOB, bad_share=0.8)
    found = rows(spark, tmp_path / "t/quotes", QUOTES, "symbol")
    assert [(str(row[0]), *row[1:]) for row in found] == [
        ("2020-01-02", "A", 1.0, 2.0, 0.5, 1.5, 1.4, 100),
        ("2020-01-02", "B", 5.0, 6.0, 4.0, 5.0, 5.0, 10),
        ("1996-09-05", "C, Inc", 2.0, 3.0, 1.0, 2.0, None, 1000),
    ]
    assert [line for line, *_ in quarantined(spark, tmp_path / "t", "quotes")] == [3, 5, 6, 7]
    assert facts["reasons"] == {
        "a field is missing or not of its type": 2,
        "all prices are zero": 1,
        "duplicate of a date and symbol": 1,
        "open or close outside low..high": 1,
    }


def test_subscriptions_from_csv_jsonl_and_parquet_are_the_same(spark, tmp_path):
    given = [
        {"id": "s1", "broker": "b0", "client": "c", "filter": "x = 1 AND y = 'a,b'"},
        {"id": "s2", "broker": "b1", "client": "d", "filter": "x > 2", "time": "1.5"},
    ]
    (tmp_path / "s.csv").write_text(
        "filter,id,client,broker,time\n\"x = 1 AND y = 'a,b'\",s1,c,b0,\nx > 2,s2,d,b1,1.5\n"
    )
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    spark.createDataFrame([{"time": None, **row} for row in given]).write.parquet(
        str(tmp_path / "s.parquet")
    )
    expected = [
        ("s1", "b0", "c", "x = 1 AND y = 'a,b'", None, None),
        ("s2", "b1", "d", "x > 2", 1_500_000, None),
    ]
    for form in ("csv", "jsonl", "parquet"):
        folder = tmp_path / form
        run.ingest([str(tmp_path / f"s.{form}")], "subscriptions", str(folder), JOB)
        assert rows(spark, folder / "subscriptions", SUBSCRIPTIONS, "subscription") == expected


def test_columns_with_other_names_are_mapped_in_every_format(spark, tmp_path):
    said = [{"key": "a", "site": "b1", "user": "c", "rule": "x > 1"}]
    (tmp_path / "s.csv").write_text("Key,Site,User,Rule\na,b1,c,x > 1\n")
    (tmp_path / "s.jsonl").write_text(json.dumps(said[0]) + "\n")
    pq.write_table(pa.Table.from_pylist(said), tmp_path / "s.parquet")
    names = {"id": "key", "broker": "site", "client": "user", "filter": "rule"}
    tables = []
    for name in ("s.csv", "s.jsonl", "s.parquet"):
        out = tmp_path / name.partition(".")[2]
        run.ingest([str(tmp_path / name)], "subscriptions", str(out), JOB, names=names)
        tables.append(rows(spark, out / "subscriptions", SUBSCRIPTIONS, "broker"))
    assert tables[0] == tables[1] == tables[2]
    assert "b1" in tables[0][0]
    with pytest.raises(InputError, match="the map names 'symbol'"):
        run.ingest([str(tmp_path / "s.csv")], "subscriptions", str(tmp_path), JOB,
                   names={"symbol": "ticker"})  # fmt: skip
    with pytest.raises(InputError, match="in which unit"):
        run.ingest([str(tmp_path / "s.csv")], "latency", str(tmp_path), JOB,
                   times="rtt", layout="triples")  # fmt: skip


def test_publications_need_attributes_and_a_time(spark, tmp_path):
    source = tmp_path / "p.jsonl"
    source.write_text(
        '{"time": 2, "broker": 0, "publisher": "p", "id": 7, "attributes": {"x": 1, "s": "a"}}\n'
        '{"time": 2, "broker": 0, "publisher": "p", "attributes": "none"}\n'
        '{"broker": 0, "publisher": "p", "attributes": {}}\n'
        "{broken\n"
    )
    facts = run.ingest([str(source)], "publications", str(tmp_path / "t"), JOB, bad_share=1)
    found = rows(spark, tmp_path / "t/publications", PUBLICATIONS, "publication")
    assert found == [("7", "p", "0", 2_000_000, '{"x":1,"s":"a"}')]
    assert [(line, why) for line, why, _ in quarantined(spark, tmp_path / "t", "publications")] == [
        (2, "attributes are not a JSON object"),
        (3, "time_us is missing"),
        (4, "not a record of the file's format"),
    ]
    assert facts["quarantined"] == 3


def test_publications_that_simulate_or_match_would_refuse(spark, tmp_path):
    row = {"time": 1, "broker": "0", "publisher": "p", "attributes": {"x": 1}}
    lines = [
        row | {"id": 1},
        row | {"id": 2, "attributes": {"x": {"y": 1}}},
        row | {"id": 3, "attributes": {"x": [1]}},
        row | {"id": 4, "attributes": {"x": "{[", "y": None}},
        row | {"id": 1, "time": 2},
        row | {"id": 1, "publisher": "q"},
        row | {"id": 5, "time": -1},
        row | {"id": 6, "time": "soon"},
        row | {"id": 7, "time": None, "time_us": 2**61},
        row | {"id": 8, "attributes": '{"x": 1}}'},
        row | {"id": 9, "attributes": '{"x": 1, "x": 2}'},
        row,
        row,
        row | {"id": "a", "attributes": '{"x": [1]}}'},
        row | {"id": "b", "attributes": '{"x": {"y": [{}, {}]}}, {"z": 2}'},
        row | {"id": "c", "attributes": '[{"x": 1}]'},
    ]
    source = tmp_path / "p.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"id": 10} x\n')
    facts = run.ingest([str(source)], "publications", str(tmp_path / "t"), JOB, bad_share=1)
    table = rows(spark, tmp_path / "t/publications", PUBLICATIONS, "publisher", "publication")
    assert [one[:2] for one in table if len(one[0]) == 1] == [
        *((id, "p") for id in "1234"),
        ("1", "q"),
    ]
    assert len(table) == 7
    assert [(line, why) for line, why, _ in quarantined(spark, tmp_path / "t", "publications")] == [
        (5, "its publisher has used the id before"),
        (7, "time_us is negative or too large"),
        (8, "time_us is not of its type"),
        (9, "time_us is negative or too large"),
        (10, "attributes are not a JSON object"),
        (11, "attributes are not a JSON object"),
        *((line, "attributes are not a JSON object") for line in (14, 15, 16)),
        (17, "not a record of the file's format"),
    ]
    assert sum(facts["reasons"].values()) == facts["quarantined"], "one value, one reason"


def test_subscriptions_that_simulate_would_refuse(spark, tmp_path):
    source = tmp_path / "s.csv"
    source.write_text(
        "id,broker,client,filter,time,until\n"
        "s1,b,c,x = 1,,\n"
        "s2,b,c,x =,,\n"
        "s1,b,c,x = 2,,\n"
        's3,b,c,"x = ""a""b",,\n'
        's4,b,"c"d,x = 1,,\n'
        's5,b,"c,x = 1,,\n'
        "s6,b,c,x = 1,3,2\n"
        's7,b,c"d,"x = \'a""b\'",1,2\n'
        ",b,c,x = 1,,\n"
        ",b,c,x = 1,,\n"
    )
    facts = run.ingest([str(source)], "subscriptions", str(tmp_path / "t"), JOB, bad_share=1)
    table = rows(spark, tmp_path / "t/subscriptions", SUBSCRIPTIONS, "subscription")
    assert [one[0] for one in table if len(one[0]) == 2] == ["s1", "s7"]
    assert len(table) == 4
    assert [one[2:4] for one in table if one[0] == "s7"] == [('c"d', "x = 'a\"b'")]
    found = quarantined(spark, tmp_path / "t", "subscriptions")
    assert [(line, why.partition(":")[0]) for line, why, _ in found] == [
        (3, "filter does not parse"),
        (4, "id is used twice"),
        (5, "filter does not parse"),
        (6, "not a record of the file's format"),
        (7, "not a record of the file's format"),
        (8, "until_us is before time_us"),
    ]
    with pytest.raises(FilterError) as parser:
        parse("x =")
    assert found[0][1] == f"filter does not parse: {parser.value.what}"
    assert facts["reasons"]["filter does not parse"] == 2


def test_rows_of_parquet_without_ids_are_told_apart(spark, tmp_path):
    row = {"time_us": 1, "broker": "0", "publisher": "p", "attributes": "{}"}
    spark.createDataFrame([row, row]).coalesce(1).write.parquet(str(tmp_path / "p.parquet"))
    facts = run.ingest([str(tmp_path / "p.parquet")], "publications", str(tmp_path / "t"), JOB)
    assert (facts["rows"], facts["quarantined"]) == (2, 0)


def test_a_bad_row_does_not_make_ingest_parse_twice(spark, tmp_path, monkeypatch):
    calls = spark.sparkContext.accumulator(0)
    parsing = ingest.edges

    def counted(lines):
        def each(batches):
            for batch in batches:
                calls.add(batch.num_rows)
                yield batch

        return parsing(lines.mapInArrow(each, lines.schema))

    monkeypatch.setattr(ingest, "edges", counted)
    source = tmp_path / "graph.txt"
    source.write_text("1 2\n2 2\n" + "3 4\n" * 200)
    facts = run.ingest([str(source)], "edges", str(tmp_path / "t"), JOB)
    assert facts["quarantined"] == 1
    assert calls.value == 202


def test_appending_gives_what_all_files_at_once_give_and_nothing_twice(spark, tmp_path):
    row = {"time": 1, "broker": "0", "publisher": "p", "attributes": {"x": 1}}
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text("".join(json.dumps(row | {"id": n}) + "\n" for n in (1, 2)) + "{\n")
    second.write_text("".join(json.dumps(row | {"id": n}) + "\n" for n in (2, 3)))

    def ingested(folder, *sources, **told):
        paths = [str(source) for source in sources]
        facts = run.ingest(paths, "publications", str(folder), JOB, bad_share=1, **told)
        table = rows(spark, folder / "publications", PUBLICATIONS, "publication")
        return facts, table, quarantined(spark, folder, "publications")

    whole = ingested(tmp_path / "whole", first, second)
    ingested(tmp_path / "t", first, append=True)  # there is no table yet
    grown = ingested(tmp_path / "t", second, append=True)
    again = ingested(tmp_path / "t", first, second, append=True)
    assert [one[0] for one in grown[1]] == ["1", "2", "3"]
    assert again[0]["unchanged"]
    assert ingested(tmp_path / "t", first, second)[0]["unchanged"], "the same as at once"
    for _, table, bad in (grown, again):
        assert table == whole[1]
        assert sorted(bad) == sorted(whole[2])
    for facts in (grown[0], again[0]):
        assert {**facts, "tables": 0, "unchanged": 0} == {**whole[0], "tables": 0, "unchanged": 0}
    second.write_text("{}")
    with pytest.raises(InputError, match=r"b.jsonl: has changed since it was ingested"):
        ingested(tmp_path / "t", second, append=True)


def test_appended_edges_are_merged_and_other_settings_refused(spark, tmp_path):
    (tmp_path / "a.txt").write_text("1 2\n2 3\n")
    (tmp_path / "b.txt").write_text("2 3\n3 4\n")
    out = str(tmp_path / "t")
    for name in ("a.txt", "b.txt"):
        run.ingest([str(tmp_path / name)], "edges", out, JOB, append=True)
    assert rows(spark, tmp_path / "t/edges", EDGES, "follower") == [(1, 2), (2, 3), (3, 4)]
    with pytest.raises(InputError, match="undirected was False and is True"):
        run.ingest([str(tmp_path / "b.txt")], "edges", out, JOB, append=True, undirected=True)


def test_traces_of_unknown_kind_are_quarantined(spark, tmp_path):
    source = tmp_path / "t.jsonl"
    row = {"trace_id": "r", "kind": "deliver", "time_us": 5, "broker": "0", "published_us": 1}
    source.write_text(json.dumps(row) + "\n" + json.dumps(row | {"kind": "dance", "hops": "x"}))
    facts = run.ingest([str(source)], "traces", str(tmp_path / "t"), JOB, bad_share=0.5)
    assert facts["rows"] == 1
    assert sum(facts["reasons"].values()) == 2


@pytest.mark.parametrize(
    ("name", "text", "kind", "complaint"),
    [
        ("x.txt", "a,b,c\n1,2,3\n", "edges", r"x.txt:1: 'a,b,c': not two integers; 2 of 2 rows"),
        ("x.csv", "1 2\n3 4\n", "quotes", r"x.csv:1: '1 2' is no header of quotes"),
        ("x.jsonl", "1 2\n", "publications", r"x.jsonl:1: '1 2': not a record"),
        ("x.txt", "hello\n", "subscriptions", r"cannot tell the format"),
        ("x.txt", "# nothing\n", "edges", r"there is nothing in it"),
        ("x.txt.gz", "1 2\n", "edges", r"begins with b'1 2\\n', which is not gzip"),
        ("x.txt", "PAR1xxxx", "edges", r"x.txt: is Parquet"),
        ("x.json", ' [{"broker": "a"}]', "publications", r"x.json: is a JSON array; make lines"),
        ("x.parquet", "1 2\n", "traces", r"which is not Parquet"),
    ],
)
def test_a_file_that_is_not_what_it_is_said_to_be(spark, tmp_path, name, text, kind, complaint):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=complaint):
        run.ingest([str(tmp_path / name)], kind, str(tmp_path / "t"), JOB)
    assert not (tmp_path / "t").exists() or not list((tmp_path / "t").iterdir())


def test_one_wrong_file_among_many_good_ones_is_told(spark, tmp_path):
    (tmp_path / "good.txt").write_text("".join(f"{n} {n + 1}\n" for n in range(2000)))
    (tmp_path / "wrong.txt").write_text("1 2\nhello world\n3 4\n")
    sources = [str(tmp_path / "good.txt"), str(tmp_path / "wrong.txt")]
    with pytest.raises(InputError, match=r"wrong.txt:2: 'hello world'.*1 of 3 rows"):
        run.ingest(sources, "edges", str(tmp_path / "t"), JOB)


def test_a_missing_file_is_told_without_spark(tmp_path):
    with pytest.raises(InputError, match=r"there is no '.*nowhere.txt'"):
        run.ingest([str(tmp_path / "nowhere.txt")], "edges", str(tmp_path / "t"), JOB)


def test_a_broken_gzip_file_fails_in_one_line_and_leaves_nothing(spark, tmp_path):
    whole = gzip.compress("".join(f"{n} {n * 7919 % 10_007}\n" for n in range(1, 5000)).encode())
    (tmp_path / "cut.txt.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunFailed, match="Spark failed") as caught:
        run.ingest([str(tmp_path / "cut.txt.gz")], "edges", str(tmp_path / "t"), JOB)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "t").exists() or not list((tmp_path / "t").iterdir())


def test_traces_are_kept_by_day_and_network_compacted_and_dropped_by_age(
    spark, tmp_path, monkeypatch
):
    monkeypatch.setattr(ingestion, "COMPACT_FILES", 2)
    table = tmp_path / "t" / "traces"

    def ingest(name, days, **options):
        rows = [
            {"trace_id": network, "kind": "start", "broker": "0", "time_us": day * 86_400_000_000}
            for network in ("a/b", "07")
            for day in days
        ]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        run.ingest([str(tmp_path / name)], "traces", str(tmp_path / "t"), JOB, **options)
        files = list(table.rglob("*.parquet"))
        return sorted({path.parents[1].name for path in files}), len(files)

    assert ingest("1.jsonl", [0, 1]) == (["day=1970-01-01", "day=1970-01-02"], 4)
    assert ingest("2.jsonl", [1, 2], append=True)[1] == 8
    found, files = ingest("3.jsonl", [3], append=True)  # two files of a day: written anew
    assert (len(found), files) == (4, 8)
    rows = store.rows_of(str(table))
    assert len(rows) == 10
    assert {row["trace_id"] for row in rows} == {"a/b", "07"}
    assert store.read(spark, str(table), TRACES).where("trace_id = '07'").count() == 5
    found, _ = ingest("4.jsonl", [4], append=True, keep_days=2)
    assert found == ["day=1970-01-04", "day=1970-01-05"]
    assert ingest("5.jsonl", [1], append=True, keep_days=2)[0] == found  # too old already
