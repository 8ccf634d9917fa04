"""`postroad match`: which publication matches which filter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from postroad.errors import FilterError, InputError
from postroad.workloads.files import is_table, table_rows

_FILE = click.Path(path_type=Path)


@click.command()
@click.option(
    "--filters",
    required=True,
    type=_FILE,
    help="One `id<TAB>expression` per line, or a table of subscriptions (Parquet).",
)
@click.option(
    "--publications",
    required=True,
    type=_FILE,
    help="One JSON object per line, or a table of publications (Parquet).",
)
@click.option("--json", "as_json", is_flag=True, help="The output is JSON lines in any case.")
def match(filters: Path, publications: Path, as_json: bool) -> None:
    """Say for each publication which filters match it.

    Prints one JSON line per publication: {"publication": n, "filters": [ids]}, n counted
    from 0 (in tables by time, publisher and id), ids sorted. Attributes that a publication
    lacks, or has as null, are NULL.
    """
    from postroad.filters import parse
    from postroad.matching import Index

    index: Index[str] = Index()
    for where, id, expression in _filters(filters):
        if id in index:
            raise InputError(f"id {id!r} is there twice", where=where, remedy="give each its own")
        try:
            index.insert(id, parse(expression))
        except FilterError as error:
            raise FilterError(
                f"filter {_shown(expression)}: {error.what}", where=where, remedy=error.remedy
            ) from None
    answers = [
        json.dumps({"publication": number, "filters": sorted(index.match(attributes))})
        for number, attributes in enumerate(_publications(publications))
    ]
    for answer in answers:
        click.echo(answer)


def _filters(path: Path) -> Iterator[tuple[str, str, str]]:
    if is_table(path):
        for where, row in table_rows(path):
            assert isinstance(row, dict)
            id = row.get("subscription", row.get("id"))
            if id is None or "filter" not in row:
                raise InputError(
                    f"columns {', '.join(row)}", where=where, remedy="give subscription and filter"
                )
            yield where, str(id), str(row["filter"])
        return
    for where, line in _lines(path):
        id, tab, expression = line.partition("\t")
        if not tab:
            raise InputError(
                f"{_shown(line)} has no TAB", where=where, remedy="write id<TAB>expression"
            )
        if not id:
            raise InputError(
                f"{_shown(line)} has no id", where=where, remedy="write id<TAB>expression"
            )
        yield where, id, expression


def _contents(path: Path) -> Iterator[tuple[str, str]]:
    if not is_table(path):
        yield from _lines(path)
        return
    for where, row in table_rows(path):
        assert isinstance(row, dict)
        if "attributes" not in row:
            raise InputError(f"columns {', '.join(row)}", where=where, remedy="give attributes")
        yield where, str(row["attributes"])


def _publications(path: Path) -> Iterator[dict[str, Any]]:
    from postroad.filters.nested import plain

    for where, line in _contents(path):
        try:
            attributes = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = error if isinstance(error, ValueError) else "nested too deeply"
            raise InputError(
                f"{_shown(line)} is not JSON ({reason})",
                where=where,
                remedy='write one object per line, as in {"price": 10.5}',
            ) from None
        if not isinstance(attributes, dict):
            raise InputError(
                f"{_shown(line)} is not a JSON object",
                where=where,
                remedy='write one object per line, as in {"price": 10.5}',
            )
        yield plain(attributes)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a UTF-8 file, each with its place for error messages."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read it ({error.strerror})", where=str(path), remedy="give a readable file"
        ) from None
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        try:
            yield where, line.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"byte {line[error.start]:#04x} is not UTF-8", where=where, remedy="save as UTF-8"
            ) from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
