"""`postroad match`: its output and every way its input can be wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from postroad.cli import main; main()", "match"]
FILTERS = b"b\tprice > 10\na\tclass = 'STOCK' AND price < 20\nc\tprice IS NULL\n"
PUBLICATIONS = b'{"class": "STOCK", "price": 15}\n{"class": "STOCK"}\n{"price": "15"}\n'


def run(
    folder: Path, filters: bytes | None, publications: bytes | None, *more: str
) -> tuple[int, str, str]:
    for name, content in (("filters.txt", filters), ("pubs.jsonl", publications)):
        if content is not None:
            (folder / name).write_bytes(content)
    done = subprocess.run(
        [*COMMAND, "--filters", "filters.txt", "--publications", "pubs.jsonl", *more],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={"PYTHONPATH": str(Path(__file__).parents[3] / "src"), "PYTHONUTF8": "1"},
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_one_json_line_per_publication(tmp_path: Path, more: list[str]) -> None:
    code, out, err = run(tmp_path, FILTERS, PUBLICATIONS, *more)
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"publication": 0, "filters": ["a", "b"]},
        {"publication": 1, "filters": ["c"]},
        {"publication": 2, "filters": []},
    ]


def test_line_ends_and_byte_order_mark_are_forgiven(tmp_path: Path) -> None:
    windows = b"\xef\xbb\xbf" + FILTERS.replace(b"\n", b"\r\n")
    code, out, _ = run(tmp_path, windows, PUBLICATIONS.rstrip(b"\n"))
    assert code == 0
    assert json.loads(out.splitlines()[0])["filters"] == ["a", "b"]


def test_empty_files_are_no_mistake_but_told(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, b"", b"")
    assert (code, out) == (0, "")
    assert "there is no filter in filters.txt" in err
    assert "there is no publication in pubs.jsonl" in err


@pytest.mark.parametrize(
    ("filters", "publications", "complaint"),
    [
        (None, PUBLICATIONS, "filters.txt: cannot read it (No such file or directory); give a"),
        (FILTERS, None, "pubs.jsonl: cannot read it"),
        (
            FILTERS + b"d price > 1\n",
            PUBLICATIONS,
            "filters.txt:4: 'd price > 1' has no TAB; write",
        ),
        (FILTERS + b"\n", PUBLICATIONS, "filters.txt:4: '' has no TAB"),
        (b"\tprice > 1\n", PUBLICATIONS, "filters.txt:1: '\\tprice > 1' has no id"),
        (FILTERS + b"a\tprice > 1\n", PUBLICATIONS, "filters.txt:4: id 'a' is there twice; give"),
        (b"a\tprice >\n", PUBLICATIONS, "filters.txt:1: filter 'price >': the filter ends where"),
        (b"a\t" + b"(" * 100_000, PUBLICATIONS, "filters.txt:1: filter '((((("),
        (b"a\tprice = '\xff'\n", PUBLICATIONS, "filters.txt:1: byte 0xff is not UTF-8; save"),
        (FILTERS, PUBLICATIONS + b"{bad\n", "pubs.jsonl:4: '{bad' is not JSON"),
        (FILTERS, PUBLICATIONS + b"\n", "pubs.jsonl:4: '' is not JSON"),
        (FILTERS, b"[" * 200_000, "pubs.jsonl:1: '[[[["),
        (FILTERS, b'{"a": ' + b"9" * 5000 + b"}", "pubs.jsonl:1: "),
        (FILTERS, PUBLICATIONS + b"[1]\n", "pubs.jsonl:4: '[1]' is not a JSON object; write one"),
        (FILTERS, b"5\n", "pubs.jsonl:1: '5' is not a JSON object"),
        (FILTERS, b'{"a": "\xff"}\n', "pubs.jsonl:1: byte 0xff is not UTF-8"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else (value or "none")[:30],
)
def test_wrong_input_is_told_in_one_line(
    tmp_path: Path, filters: bytes | None, publications: bytes | None, complaint: str
) -> None:
    code, out, err = run(tmp_path, filters, publications)
    assert (code, out) == (2, "")
    assert err.startswith(f"postroad: {complaint}")
    assert err.count("\n") == 1
    assert len(err) < 400


def test_a_missing_option_is_wrong_usage(tmp_path: Path) -> None:
    done = subprocess.run(
        COMMAND,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[3] / "src")},
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--filters" in done.stderr
