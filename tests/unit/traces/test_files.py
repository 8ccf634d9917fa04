"""Trace files: complete ones only, killed writers, retention, what a reader does with bad rows."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from postroad.errors import InputError
from postroad.model import Publication
from postroad.routing.base import Publish
from postroad.traces.files import Files, read
from postroad.traces.recorder import Recorder
from postroad.traces.schema import COLUMNS, REQUIRED, VERSION, Recording, Row

SECOND = 1_000_000


def rows(count: int, first: int = 1, broker: str = "A", life: int = 7) -> list[Row]:
    return [Row("net", broker, life, first + n, "note", first + n) for n in range(count)]


def test_every_column_is_described_in_order() -> None:
    assert tuple(COLUMNS) == Row.__struct_fields__
    assert REQUIRED == ("trace_id", "broker", "life", "sequence", "kind", "time_us")


def test_a_reader_sees_complete_files_only(tmp_path: Path) -> None:
    files = Files(tmp_path, "A", Recording("", file_s=5), 0)
    files.write(rows(3), 0)
    assert [path.name for path in tmp_path.iterdir()] == [".traces-A-1.jsonl"]
    with pytest.raises(InputError, match="no trace files"):
        read(tmp_path)
    files.write([], 5 * SECOND)  # old enough
    (path,) = tmp_path.iterdir()
    assert path.name == "traces-A-1.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600  # attributes and topics are nobody else's
    found, about = read(tmp_path)
    assert found == rows(3)
    assert (about.repeated, about.bad, about.gaps) == (0, [], {})


def test_a_file_is_complete_at_its_size(tmp_path: Path) -> None:
    files = Files(tmp_path, "A", Recording("", file_bytes=500), 0)
    for first in range(1, 31):
        files.write(rows(1, first), first)
    files.close()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) > 2
    assert max(sizes) < 700
    assert read(tmp_path)[0] == rows(30)


def test_what_a_killed_broker_left_is_completed_at_its_next_start(tmp_path: Path) -> None:
    whole = b"".join(msgspec.json.encode(row) + b"\n" for row in rows(4))
    (tmp_path / ".traces-A-3.jsonl").write_bytes(whole + b'{"trace_id":"net","bro')
    (tmp_path / ".traces-A-4.jsonl").write_bytes(b'{"trace')  # not even one line
    (tmp_path / ".traces-AB-9.jsonl").write_bytes(whole)  # another broker's, that runs
    files = Files(tmp_path, "A", Recording(""), 0)
    files.write(rows(1, 5), 0)
    files.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".traces-AB-9.jsonl",
        "traces-A-3.jsonl",
        "traces-A-5.jsonl",
    ]
    assert read(tmp_path)[0] == rows(5)


def test_the_oldest_files_go_by_size_and_by_age(tmp_path: Path) -> None:
    recording = Recording("", file_bytes=1, keep_bytes=1000)
    files = Files(tmp_path, "A", recording, 0)
    for first in range(1, 31):
        files.write(rows(1, first), first)
    kept = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert 800 < kept <= 1000
    newest = max(int(path.stem.rpartition("-")[2]) for path in tmp_path.iterdir())
    assert newest == 30
    now = int(max(path.stat().st_mtime for path in tmp_path.iterdir()) * SECOND)
    old = Files(tmp_path, "A", Recording("", file_bytes=1, keep_s=60), now)
    old.write(rows(1, 31), now + 61 * SECOND)
    assert [path.name for path in tmp_path.iterdir()] == []  # also the last, by its own clock


def test_repeated_rows_count_once_and_gaps_are_told(tmp_path: Path) -> None:
    a, b = tmp_path / "traces-A-1.jsonl", tmp_path / "copy" / "traces-A-1.jsonl"
    b.parent.mkdir()
    lines = [msgspec.json.encode(row) + b"\n" for row in rows(9)]
    a.write_bytes(b"".join(lines[:3] + lines[5:]))
    b.write_bytes(b"".join(lines[:2]) + b"no row\n" + b'{"trace_id": 3}\n')
    found, about = read(tmp_path)
    assert [row.sequence for row in found] == [1, 2, 3, 6, 7, 8, 9]
    assert about.repeated == 2
    assert about.gaps == {("net", "A", 7): 2}
    assert len(about.bad) == 2
    assert about.bad[0].startswith(f"{b}:3: ")


def test_traces_of_several_networks_or_of_another_schema_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "traces-A-1.jsonl"
    two = [Row("one", "A", 0, 1, "note", 0), Row("two", "A", 0, 1, "note", 0)]
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in two))
    with pytest.raises(InputError, match="--trace-id: one, two"):
        read(tmp_path)
    assert len(read(tmp_path, "two")[0]) == 1
    later = Row("one", "A", 0, 1, "start", 0, detail=json.dumps({"schema": VERSION + 1}))
    path.write_bytes(msgspec.json.encode(later) + b"\n")
    with pytest.raises(InputError, match=f"schema {VERSION + 1}"):
        read(tmp_path)


def test_parquet_tables_are_read_too(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.Table.from_pylist([msgspec.to_builtins(row) for row in rows(3)])
    pyarrow.parquet.write_table(table, tmp_path / "part.parquet")
    assert read(tmp_path)[0] == rows(3)


@pytest.mark.parametrize("how", ["plain", "hash", "none"])
def test_nothing_of_a_payload_is_recorded_that_the_operator_excludes(how: str) -> None:
    recorder = Recorder("net", ["A"], 0, Recording("", attributes=how, exclude=["card"]), key=b"k")
    attributes = {"class": "orders", "card": "4111", "price": 12.5}
    publication = Publication("p", "1", attributes, b'{"card": "4111", "price": 12.5}', 5)
    recorder.stepped(Publish(publication), (), 5, lambda _: False)
    data = msgspec.json.Encoder().encode_lines(recorder.take()).decode()
    assert "4111" not in data
    assert ("12.5" in data) == (how == "plain")
    if how == "hash":
        again = Recorder("net", ["B"], 0, Recording("", attributes=how), key=b"k")
        shown = json.loads(again.attributes(attributes) or "")
        assert shown["price"] in data  # the same at every broker
        other = Recorder("net", ["B"], 0, Recording("", attributes=how), key=b"other")
        assert other.attributes(attributes) != again.attributes(attributes)
