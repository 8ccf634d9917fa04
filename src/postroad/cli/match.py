"""`postroad match`: which publication matches which filter."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from postroad.cli.naming import MAP, names_of
from postroad.cli.progress import tracked
from postroad.errors import FilterError, InputError
from postroad.workloads.files import Names, file_rows, form

_FILE = click.Path(path_type=Path)
_ROW = {"time", "time_us", "broker", "publisher", "publication", "id", "attributes"}


@click.command()
@click.option(
    "--filters",
    required=True,
    type=_FILE,
    help="One `id<TAB>expression` per line, or subscriptions: CSV, JSON or Parquet.",
)
@click.option(
    "--publications",
    required=True,
    type=_FILE,
    help="One JSON object per line, or publications: CSV, JSON, CloudEvents or Parquet.",
)
@MAP
@click.option("--json", "as_json", is_flag=True, help="The output is JSON lines in any case.")
def match(filters: Path, publications: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Say for each publication which filters match it.

    Prints one JSON line per publication: {"publication": n, "filters": [ids]}, n counted
    from 0 (in tables by time, publisher and id), ids sorted. Attributes that a publication
    lacks, or has as null, are NULL.
    """
    from postroad.filters import parse
    from postroad.matching import Index

    named = names_of(names)
    index: Index[str] = Index()
    for where, id, expression in _filters(filters, named):
        if id in index:
            raise InputError(f"id {id!r} is there twice", where=where, remedy="give each its own")
        try:
            index.insert(id, parse(expression))
        except FilterError as error:
            raise FilterError(
                f"filter {_shown(expression)}: {error.what}", where=where, remedy=error.remedy
            ) from None
    contents = list(_publications(publications, named))
    answers = [
        json.dumps({"publication": number, "filters": sorted(index.match(attributes))})
        for number, attributes in enumerate(tracked(contents, "publications"))
    ]
    named.check()
    if not len(index):
        click.echo(f"postroad: warning: there is no filter in {filters}", err=True)
    if not contents:
        click.echo(f"postroad: warning: there is no publication in {publications}", err=True)
    for answer in answers:
        click.echo(answer)


def _filters(path: Path, names: Names) -> Iterator[tuple[str, str, str]]:
    if form(path):
        for position, (where, row) in enumerate(file_rows(path, names)):
            if isinstance(row, InputError):
                raise row.at(where)
            if "filter" not in row:
                raise InputError(
                    f"columns {', '.join(row)}",
                    where=where,
                    remedy="give subscription and filter, or name them with --map filter=COLUMN",
                )
            id = row.get("subscription", row.get("id", f"s{position}"))
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


def _publications(path: Path, names: Names) -> Iterator[Mapping[str, Any]]:
    from postroad.filters.nested import plain

    if form(path) in ("csv", "json", "parquet"):
        for where, row in file_rows(path, names, publications=True):
            if isinstance(row, InputError):
                raise row.at(where)
            yield plain(_content(row, where))
        return
    for where, line in _lines(path):
        yield plain(_content(names.renamed(_object(line, where)), where))


def _object(text: str, where: str) -> dict[str, Any]:
    remedy = 'write one object per line, as in {"price": 10.5}'
    try:
        attributes = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = error if isinstance(error, ValueError) else "nested too deeply"
        raise InputError(
            f"{_shown(text)} is not JSON ({reason})", where=where, remedy=remedy
        ) from None
    if not isinstance(attributes, dict):
        raise InputError(f"{_shown(text)} is not a JSON object", where=where, remedy=remedy)
    return attributes


def _content(row: dict[str, Any], where: str) -> dict[str, Any]:
    """The attributes of a row of publications, or of a line that is nothing but attributes."""
    if "attributes" in row and {*row} <= _ROW:
        inner = row["attributes"]
        return _object(inner, where) if isinstance(inner, str) else dict(inner)
    return row


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a UTF-8 file, each with its place for error messages."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError) as error:
        raise InputError(
            f"cannot read it ({getattr(error, 'strerror', None) or error})",
            where=str(path),
            remedy="give a readable file",
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
