"""Workloads from files, or listed in a scenario itself.

Files are CSV (with a header), JSON Lines, a JSON array, CloudEvents in JSON or Parquet, gzipped or
not; a folder is a table of the pipeline, or any folder of Parquet files. Subscriptions have
`broker, client, filter` and
optionally `id`, `time` and `until`; publications `time, broker, publisher, attributes` and
optionally `id`; advertisements `broker, publisher, filter` and optionally `id`, `time`,
`until`. `time` and `until` are seconds after the network has settled, or timestamps (ISO 8601), of
which the earliest is that moment; a subscription or
advertisement without `time` is there from the beginning. `time_us` and `until_us` say the same
in whole microseconds. The id may be called `subscription`, `publication` or `advertisement`, as in
the pipeline's tables. Publications without `attributes` have their other columns as attributes.

A file whose columns have other names is read with `names`, ours to theirs: `{"client": "user"}`.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import IO, Any

from postroad.errors import FilterError, InputError, choice_of
from postroad.filters import Filter, parse
from postroad.filters.nested import plain
from postroad.model import BrokerId, Scalar, TimeUs
from postroad.settings.sections import Section
from postroad.workloads.model import (
    Bad,
    Interest,
    Posting,
    Workload,
    derived_advertisements,
    refuse,
)

Row = tuple[str, dict[str, Any] | InputError]
"""Where a row stands (file and line, or key and number), and what it says, or why it cannot."""
_ORDERS = (("time_us", "publisher", "publication"), ("subscription",), ("advertisement",))
TABLES = ("subscriptions", "publications", "advertisements")
_PUBLICATION = ("time", "time_us", "broker", "publisher", "attributes", "id", "publication")
_COLUMNS = (*_PUBLICATION, "until", "until_us", "client", "filter", "subscription", "advertisement")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
_DATE = re.compile(r"\d{4}-\d")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Clock:
    """Whether times are seconds or timestamps: of one workload all must be the same."""

    def __init__(self) -> None:
        self.absolute: bool | None = None
        self.first_us: TimeUs | None = None

    def read(self, name: str, value: Any, scale: int) -> TimeUs:
        """Microseconds: since 1970 for a timestamp, otherwise since the network has settled."""
        absolute = isinstance(value, datetime) or bool(_DATE.match(str(value)))
        if self.absolute is not None and self.absolute != absolute:
            raise InputError(
                f"{name} is {str(value)!r} where others are "
                + ("timestamps" if self.absolute else "numbers of seconds"),
                remedy="give all times alike",
            )
        try:
            if isinstance(value, bool):
                raise InvalidOperation
            exact = Decimal(_since_1970_us(value)) if absolute else Decimal(str(value)) * scale
            if not exact.is_finite() or exact < 0 or exact > 2**60:
                raise InvalidOperation
        except (InvalidOperation, ValueError):
            raise InputError(
                f"{name} is {value!r}", remedy="give a number from 0 up, or a timestamp"
            ) from None
        self.absolute = absolute
        time_us = round(exact)
        self.first_us = time_us if self.first_us is None else min(self.first_us, time_us)
        return time_us

    def since(self, time_us: TimeUs | None) -> TimeUs | None:
        """The same in microseconds after the network has settled."""
        if time_us is None or not self.absolute:
            return time_us
        assert self.first_us is not None
        return time_us - self.first_us


def _since_1970_us(value: datetime | str) -> int:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def workload(
    tables: Mapping[str, Iterable[Row]], brokers: tuple[str, ...], bad: Bad = refuse
) -> Workload:
    """The workload of such tables; advertisements are derived where there are none."""
    number = {name: broker for broker, name in enumerate(brokers)}
    clock = _Clock()
    subscriptions = _interests(tables, "subscriptions", "client", number, clock, bad)
    advertisements = _interests(tables, "advertisements", "publisher", number, clock, bad)
    postings = _postings(tables.get("publications", ()), number, clock, bad)
    if clock.absolute:
        subscriptions, advertisements = (
            tuple(
                replace(one, time_us=clock.since(one.time_us), until_us=clock.since(one.until_us))
                for one in interests
            )
            for interests in (subscriptions, advertisements)
        )
        postings = tuple(replace(one, time_us=clock.since(one.time_us) or 0) for one in postings)
    return Workload(subscriptions, advertisements or derived_advertisements(postings), postings)


def _interests(
    tables: Mapping[str, Iterable[Row]],
    key: str,
    who: str,
    number: dict[str, BrokerId],
    clock: _Clock,
    bad: Bad,
) -> tuple[Interest, ...]:
    parsed: dict[str, Filter] = {}
    interests: dict[str, Interest] = {}
    for position, (where, row) in enumerate(tables.get(key, ())):
        try:
            if isinstance(row, InputError):
                raise row
            text = _text(row, "filter")
            filter = parsed.get(text) or parsed.setdefault(text, _filter(text))
            name = _identity(row, key[:-1], f"{key[0]}{position}")
            interest = Interest(
                name,
                _broker(row, number),
                _text(row, who),
                filter,
                _time(row, "time", clock),
                _time(row, "until", clock),
            )
            _finish(row, key[:-1], "broker", who, "filter", "id", "time", "until")
            if name in interests:
                raise InputError(
                    f"id {name!r} is used twice", remedy="give each row an id of its own"
                )
            if interest.until_us is not None and interest.until_us < (interest.time_us or 0):
                raise InputError(
                    f"until {interest.until_us} µs is before time {interest.time_us} µs",
                    remedy="let it end after it begins",
                )
        except InputError as error:
            bad(error.at(where))
        else:
            interests[name] = interest
    return tuple(interests.values())


def _postings(
    rows: Iterable[Row], number: dict[str, BrokerId], clock: _Clock, bad: Bad
) -> tuple[Posting, ...]:
    postings: list[Posting] = []
    counts: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    for where, row in rows:
        try:
            if isinstance(row, InputError):
                raise row
            time_us = _time(row, "time", clock)
            if time_us is None:
                raise InputError("time is missing", remedy="say when, in seconds")
            broker = _broker(row, number)
            publisher = _text(row, "publisher")
            count = counts[publisher] = counts.get(publisher, -1) + 1
            name = _identity(row, "publication", str(count))
            attributes = _attributes(row)
            _finish(row, "publication", "time", "broker", "publisher", "attributes", "id")
            if (publisher, name) in seen:
                raise InputError(
                    f"publisher {publisher!r} has already published id {name!r}",
                    remedy="give each of its publications an id of its own",
                )
        except InputError as error:
            bad(error.at(where))
            continue
        seen.add((publisher, name))
        postings.append(Posting(time_us, broker, publisher, name, attributes))
    postings.sort(key=lambda posting: posting.time_us)
    return tuple(postings)


def rows(section: Section, key: str, folder: Path, names: Names | None = None) -> Iterator[Row]:
    """The rows under a key: a list of tables in the scenario itself, or a file's name."""
    value = section.any(key)
    if value is None:
        return iter(())
    if isinstance(value, list):
        place = f"{section.where}: workload.{key}"
        for position, row in enumerate(value):
            if not isinstance(row, Mapping):
                raise section.wrong(f"{key}[{position}]", row, "give a table per row")
        listed: list[Row] = [(f"{place}[{n}]", dict(row)) for n, row in enumerate(value)]
        return iter(listed) if key != "publications" else map(_gathered, listed)
    if not isinstance(value, str):
        raise section.wrong(key, value, "give a file's name or a list of tables")
    return file_rows(folder / value, names, key == "publications")


def is_table(path: Path) -> bool:
    """Whether it is Parquet: a file named so, or a folder."""
    return path.suffix == ".parquet" or path.is_dir()


def form(path: Path) -> str:
    """The format of a file by its name: csv, jsonl, json or parquet; empty if that tells none."""
    if is_table(path):
        return "parquet"
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    known = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"}
    return known.get(plain.suffix, "")


def table_rows(path: Path) -> Iterator[Row]:
    """The rows of Parquet files, in an order that does not depend on how they were divided."""
    import pyarrow
    from pyarrow import dataset

    try:
        parquet = dataset.dataset(path, format="parquet")
        if not parquet.files:
            raise InputError(
                "there is no Parquet in it", where=str(path), remedy="check the folder"
            )
        table = parquet.to_table()
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise InputError(
            f"cannot read {str(path)!r}: {str(error).splitlines()[0]}",
            remedy="give Parquet, or a folder of it",
        ) from None
    for keys in _ORDERS:
        if set(keys) <= set(table.column_names):
            table = table.sort_by([(key, "ascending") for key in keys])
            break
    number = 0
    for batch in table.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            number += 1
            said = {key: value for key, value in row.items() if value is not None}
            yield f"{path}: row {number}", said


def file_rows(path: Path, names: Names | None = None, publications: bool = False) -> Iterator[Row]:
    """The rows of a file, its columns named as ours are; of `publications` without attributes,
    columns that have no meaning of their own become attributes."""
    named = names or Names({})
    texts = form(path) == "csv"
    for where, row in _file_rows(path):
        if isinstance(row, InputError):
            yield where, row
            continue
        try:
            row = named.renamed(row)
        except InputError as error:
            yield where, error
            continue
        yield _gathered((where, row), texts) if publications else (where, row)


class Names:
    """What columns are called in files, ours to theirs, and which of these no row has had yet."""

    def __init__(self, names: Mapping[str, str], where: str = "") -> None:
        self.where = where
        self.names = names
        self.unseen = dict(names)
        self.read = False

    def renamed(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with our names for its columns and, in `attributes`, for its attributes."""
        self.read = True
        if "specversion" in row:
            return self._event(row)
        for ours, theirs in self.names.items():
            place = row
            if theirs not in row and ours not in _COLUMNS and "attributes" in row:
                if isinstance(row["attributes"], str):
                    row["attributes"] = _json_object(row["attributes"])
                place = row["attributes"]
            if not isinstance(place, dict) or theirs not in place:
                continue
            self.unseen.pop(ours, None)
            if ours in place:
                raise InputError(
                    f"it has both {ours!r} and {theirs!r}, which is to be {ours!r}",
                    remedy=f"leave {ours}={theirs} out of the map",
                )
            place[ours] = place.pop(theirs)
        return row

    def _event(self, event: dict[str, Any]) -> dict[str, Any]:
        """A CloudEvent as a row. Its attributes are those that a live broker sees: the fields of
        its data and its context."""
        data = event.pop("data", None)
        event.pop("data_base64", None)
        attributes = {**(data if isinstance(data, dict) else {}), **event}
        row: dict[str, Any] = {}
        for ours, theirs in (("publisher", "source"), ("time", "time"), ("broker", "broker")):
            theirs = self.names.get(ours, theirs)
            if theirs in attributes:
                self.unseen.pop(ours, None)
                row[ours] = attributes[theirs]
        if "id" in event:
            row["id"] = event["id"]
        for ours, theirs in self.names.items():
            if ours not in _COLUMNS and theirs in attributes:
                self.unseen.pop(ours, None)
                attributes[ours] = attributes.pop(theirs)
        return {**row, "attributes": attributes}

    def check(self) -> None:
        """Complain of a name that no row has had."""
        for ours, theirs in self.unseen.items() if self.read else ():
            raise InputError(
                f"no row has {theirs!r}, which is to be {ours!r}",
                where=self.where,
                remedy="give our name first, then the column's name in the file",
            )


def names_of(section: Section) -> Names:
    """What a workload's `map` says."""
    table = section.take("map", dict, {})
    for ours, theirs in table.items():
        if not isinstance(theirs, str):
            raise section.wrong(f"map.{ours}", theirs, "give the column's name in the file")
    return Names(table, f"{section.where}: workload.map")


def _gathered(located: Row, texts: bool = False) -> Row:
    """A publication without `attributes`: its own columns become that; `texts` may be numbers."""
    where, row = located
    if isinstance(row, InputError) or "attributes" in row:
        return located
    own = {name: value for name, value in row.items() if name not in _PUBLICATION}
    if not own:
        return located
    rest = {name: value for name, value in row.items() if name not in own}
    return where, {**rest, "attributes": {k: _typed(v) if texts else v for k, v in own.items()}}


def _typed(text: str) -> Scalar:
    """A cell of a CSV file as an attribute: a number or a truth value where it reads as one."""
    if text in ("true", "false"):
        return text == "true"
    shape = _NUMBER.fullmatch(text)
    if shape is None:
        return text
    return float(text) if shape[2] else int(text)


def _file_rows(path: Path) -> Iterator[Row]:
    kind = form(path)
    if kind == "parquet":
        yield from table_rows(path)
        return
    if not kind:
        raise InputError(
            f"cannot tell the format of {path.name!r}",
            where=str(path),
            remedy="name it .csv, .jsonl, .json or .parquet, with .gz behind if it is gzipped",
        )
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            if kind == "csv":
                yield from _csv_rows(file, path)
            else:
                yield from _json_rows(file, path, kind == "json")
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror or error}", remedy="check the file's name"
        ) from None
    except EOFError as error:
        raise InputError(str(error), where=str(path), remedy="copy the file again") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} is not UTF-8", where=str(path), remedy="save the file as UTF-8"
        ) from None
    except csv.Error as error:
        raise InputError(str(error), where=str(path), remedy="mend the CSV") from None


def _csv_rows(file: IO[str], path: Path) -> Iterator[Row]:
    reader = csv.DictReader(file, strict=True)
    for row in reader:
        where = f"{path}:{reader.line_num}"
        if None in row or None in row.values():
            fields = sum(value is not None for value in row.values())
            yield (
                where,
                InputError(
                    f"{fields} fields where the header names {len(reader.fieldnames or ())}",
                    remedy="quote fields that hold a comma",
                ),
            )
        else:
            yield where, {key: value for key, value in row.items() if value != ""}


def _json_rows(file: IO[str], path: Path, may_be_array: bool) -> Iterator[Row]:
    """JSON Lines; or, in a file called .json, an array of objects or a single one."""
    if may_be_array:
        text = file.read()
        try:
            document = json.loads(text)
        except json.JSONDecodeError:
            pass  # lines of their own, then
        else:
            rows = document if isinstance(document, list) else [document]
            for place, row in enumerate(rows):
                wrong = InputError(f"{str(row)[:60]!r} is not an object", remedy="give objects")
                yield f"{path}[{place}]", row if isinstance(row, dict) else wrong
            return
        lines: Iterable[str] = text.splitlines()
    else:
        lines = file
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                row_or_error: dict[str, Any] | InputError = _json_object(line)
            except InputError as error:
                row_or_error = error
            yield f"{path}:{number}", row_or_error


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"not JSON: {error.msg} at column {error.colno}: {text.strip()[:60]!r}",
            remedy="give one JSON object per line",
        ) from None
    if not isinstance(value, dict):
        raise InputError(
            f"{text.strip()[:60]!r} is not an object",
            remedy="give one JSON object per line",
        )
    return value


def _text(row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if value is None:
        raise InputError(f"{key} is missing", remedy=f"give every row a {key}")
    if isinstance(value, (dict, list, bool, float)):
        raise InputError(f"{key} is {value!r}", remedy="give a name")
    return str(value)


def _filter(text: str) -> Filter:
    try:
        return parse(text)
    except FilterError as error:
        raise error.at(f"filter {text[:60]!r}") from None


def _identity(row: dict[str, Any], name: str, default: str) -> str:
    key = "id" if row.get("id") is not None else name
    return default if row.get(key) is None else _text(row, key)


def _broker(row: dict[str, Any], number: dict[str, BrokerId]) -> BrokerId:
    name = _text(row, "broker")
    if name not in number:
        names = list(number)
        known = ", ".join(names[:4]) + (f", … {names[-1]}" if len(names) > 4 else "")
        raise InputError(f"unknown broker {name!r}", remedy=f"the overlay has {known}")
    return number[name]


def _time(row: dict[str, Any], key: str, clock: _Clock) -> TimeUs | None:
    """Seconds or a timestamp under `key`, or whole microseconds under `key_us`."""
    if row.get(f"{key}_us") is not None:
        return clock.read(f"{key}_us", row[f"{key}_us"], 1)
    return None if row.get(key) is None else clock.read(key, row[key], 1_000_000)


def _attributes(row: dict[str, Any]) -> dict[str, Scalar]:
    value = row.get("attributes")
    if isinstance(value, str):
        value = _json_object(value)
    if not isinstance(value, Mapping):
        raise InputError(
            f"attributes is {value!r}", remedy='give an object such as {"class": "STOCK"}'
        )
    value = plain(dict(value))
    for name, item in value.items():
        if not isinstance(item, (str, int, float, bool)) and item is not None:
            raise InputError(
                f"attribute {name!r} is {item!r}",
                remedy="give strings, numbers, true, false, null, or objects and arrays of them",
            )
    return {name: item for name, item in value.items() if item is not None}


def _finish(row: dict[str, Any], identity: str, *known: str) -> None:
    for key in row:
        if key not in known and key not in ("time_us", "until_us", identity):
            raise InputError(
                f"unknown column {key!r}",
                remedy=f"{choice_of(key, known, 'known')}; a map gives a column such a name",
            )
