"""Workloads from files, or listed in a scenario itself.

Files are CSV (with a header), JSON Lines or Parquet; a folder is a table of the pipeline, or any
folder of Parquet files. Subscriptions have `broker, client, filter` and
optionally `id`, `time` and `until`; publications `time, broker, publisher, attributes` and
optionally `id`; advertisements `broker, publisher, filter` and optionally `id`, `time`,
`until`. `time` and `until` are seconds after the network has settled; a subscription or
advertisement without `time` is there from the beginning. `time_us` and `until_us` say the same
in whole microseconds. The id may be called `subscription`, `publication` or `advertisement`, as in
the pipeline's tables.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from postroad.errors import FilterError, InputError
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


def workload(
    tables: Mapping[str, Iterable[Row]], brokers: tuple[str, ...], bad: Bad = refuse
) -> Workload:
    """The workload of such tables; advertisements are derived where there are none."""
    number = {name: broker for broker, name in enumerate(brokers)}
    subscriptions = _interests(tables, "subscriptions", "client", number, bad)
    advertisements = _interests(tables, "advertisements", "publisher", number, bad)
    postings = _postings(tables.get("publications", ()), number, bad)
    return Workload(subscriptions, advertisements or derived_advertisements(postings), postings)


def _interests(
    tables: Mapping[str, Iterable[Row]],
    key: str,
    who: str,
    number: dict[str, BrokerId],
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
                _time(row, "time"),
                _time(row, "until"),
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


def _postings(rows: Iterable[Row], number: dict[str, BrokerId], bad: Bad) -> tuple[Posting, ...]:
    postings: list[Posting] = []
    counts: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    for where, row in rows:
        try:
            if isinstance(row, InputError):
                raise row
            time_us = _time(row, "time")
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


def rows(section: Section, key: str, folder: Path) -> Iterator[Row]:
    """The rows under a key: a list of tables in the scenario itself, or a file's name."""
    value = section.any(key)
    if value is None:
        return iter(())
    if isinstance(value, list):
        place = f"{section.where}: workload.{key}"
        for position, row in enumerate(value):
            if not isinstance(row, Mapping):
                raise section.wrong(f"{key}[{position}]", row, "give a table per row")
        return iter([(f"{place}[{n}]", dict(row)) for n, row in enumerate(value)])
    if not isinstance(value, str):
        raise section.wrong(key, value, "give a file's name or a list of tables")
    return file_rows(folder / value)


def is_table(path: Path) -> bool:
    """Whether it is Parquet: a file named so, or a folder."""
    return path.suffix == ".parquet" or path.is_dir()


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


def file_rows(path: Path) -> Iterator[Row]:
    if is_table(path):
        yield from table_rows(path)
        return
    try:
        with path.open(encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                reader = csv.DictReader(file, strict=True)
                for row in reader:
                    where = f"{path}:{reader.line_num}"
                    if None in row or None in row.values():
                        fields = sum(value is not None for value in row.values())
                        yield (
                            where,
                            InputError(
                                f"{fields} fields where the header names "
                                f"{len(reader.fieldnames or ())}",
                                remedy="quote fields that hold a comma",
                            ),
                        )
                    else:
                        yield where, {key: value for key, value in row.items() if value != ""}
            elif path.suffix in (".jsonl", ".ndjson"):
                for line_number, line in enumerate(file, 1):
                    if line.strip():
                        try:
                            row_or_error: dict[str, Any] | InputError = _json_object(line)
                        except InputError as error:
                            row_or_error = error
                        yield f"{path}:{line_number}", row_or_error
            else:
                raise InputError(
                    f"cannot tell the format of {path.name!r}",
                    where=str(path),
                    remedy="name it .csv, .jsonl or .parquet",
                )
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror}", remedy="check the file's name"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} is not UTF-8", where=str(path), remedy="save the file as UTF-8"
        ) from None
    except csv.Error as error:
        raise InputError(str(error), where=str(path), remedy="mend the CSV") from None


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


def _time(row: dict[str, Any], key: str) -> TimeUs | None:
    """Seconds under `key`, or whole microseconds under `key_us`."""
    micros, seconds = row.get(f"{key}_us"), row.get(key)
    if micros is None and seconds is None:
        return None
    name, value = (key, seconds) if micros is None else (f"{key}_us", micros)
    try:
        if isinstance(value, bool):
            raise InvalidOperation
        exact = Decimal(str(value)) * (1_000_000 if micros is None else 1)
        if not exact.is_finite() or exact < 0 or exact > 2**60:
            raise InvalidOperation
    except InvalidOperation:
        raise InputError(f"{name} is {value!r}", remedy="give a number from 0 up") from None
    return round(exact)


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
            raise InputError(f"unknown column {key!r}", remedy=f"known: {', '.join(known)}")
