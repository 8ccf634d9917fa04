"""Workloads: who subscribes to what, who publishes what, when. Inline, from files, or generated.

Files are CSV (with a header) or JSON Lines. Subscriptions have `broker, client, filter` and
optionally `id`, `time` and `until`; publications `time, broker, publisher, attributes` and
optionally `id`; advertisements `broker, publisher, filter` and optionally `id`, `time`,
`until`. `time` and `until` are seconds after the network has settled; a subscription or
advertisement without `time` is there from the beginning. `time_us` and `until_us` say the same
in whole microseconds.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from postroad import draws
from postroad.errors import FilterError, InputError
from postroad.filters import EVERYTHING, Filter, parse
from postroad.model import BrokerId, Scalar, TimeUs
from postroad.sim.sections import Section

Row = tuple[str, dict[str, Any] | InputError]
"""Where a row stands (file and line, or key and number), and what it says, or why it cannot."""
Bad = Callable[[InputError], None]


@dataclass(frozen=True, slots=True)
class Interest:
    """A subscription or an advertisement: someone at a broker and a filter, for a while."""

    id: str
    broker: BrokerId
    client: str
    filter: Filter
    time_us: TimeUs | None = None
    until_us: TimeUs | None = None


@dataclass(frozen=True, slots=True)
class Posting:
    """A publication to be made at a broker at a time."""

    time_us: TimeUs
    broker: BrokerId
    publisher: str
    id: str
    attributes: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Workload:
    subscriptions: tuple[Interest, ...]
    advertisements: tuple[Interest, ...]
    postings: tuple[Posting, ...]


def refuse(error: InputError) -> None:
    raise error


def read(
    section: Section, folder: Path, brokers: tuple[str, ...], seed: int, bad: Bad = refuse
) -> Workload:
    """The workload that a scenario's `workload` table describes.

    `bad` is told of every row that cannot be used; unless it raises, the others are read on.
    """
    from postroad.sim import followed, quotes

    number = {name: broker for broker, name in enumerate(brokers)}
    for kind, make in (
        ("generate", generated),
        ("followed", followed.quotes),
        ("social", partial(followed.social, folder, bad)),
        ("quotes", partial(quotes.read, folder, bad)),
    ):
        told = section.any(kind)
        if told is not None:
            section.done()
            inner = Section(told, section.where, f"workload.{kind}")
            return make(inner, len(brokers), seed)
    subscriptions = _interests(section, "subscriptions", "client", folder, number, bad)
    publications = _rows(section, "publications", folder)
    advertisements = _interests(section, "advertisements", "publisher", folder, number, bad)
    section.done()
    postings = _postings(publications, number, bad)
    if not advertisements:
        advertisements = derived_advertisements(postings)
    return Workload(subscriptions, advertisements, postings)


def derived_advertisements(postings: tuple[Posting, ...]) -> tuple[Interest, ...]:
    """One advertisement per publisher and broker: the classes it publishes there.

    A publisher that publishes anything without a class advertises everything.
    """
    classes: dict[tuple[str, BrokerId], dict[Scalar | None, None]] = {}
    for posting in postings:
        seen = classes.setdefault((posting.publisher, posting.broker), {})
        seen[posting.attributes.get("class")] = None
    return tuple(
        Interest(f"{publisher}@{broker}", broker, publisher, _any_of(list(seen)))
        for (publisher, broker), seen in classes.items()
    )


def _any_of(classes: list[Scalar | None]) -> Filter:
    if not all(isinstance(name, str) for name in classes):
        return EVERYTHING
    words = ", ".join("'" + str(name).replace("'", "''") + "'" for name in classes)
    return parse(f"class IN ({words})")


def shipped_followers() -> list[int]:
    """How many follow each of the 200 most followed users of a social network."""
    text = files("postroad.sim").joinpath("followers.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return [int(row["followers"]) for row in rows]


def follower_quantiles() -> dict[str, list[float]]:
    """How many follow a random user of that network: shares of users, followers."""
    text = files("postroad.sim").joinpath("follower_quantiles.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
    return {name: [float(row[name]) for row in rows] for name in ("share", "followers")}


def generated(section: Section, brokers: int, seed: int) -> Workload:
    """A workload of `class = … AND value >= … AND value < …` filters, all draws keyed by seed.

    Classes are drawn by Zipf's law with exponent `skew` (0: uniformly) for publishers and
    subscribers alike, values uniformly from 0..999, brokers uniformly. `selectivity` is the
    mean share of values a filter accepts: the shares vary from 0 to twice as much. A share
    `churn` of the subscribers leaves and comes back while publications flow.
    """
    subscriptions_count = section.take("subscriptions", int, least=0)
    publications_count = section.take("publications", int, least=0)
    publishers = section.take("publishers", int, 10, least=1)
    classes = section.take("classes", int, 10, least=1)
    skew = section.take("skew", float, 0.0, least=0.0)
    selectivity = section.take("selectivity", float, 0.1, least=0.0)
    rate_per_s = section.take("rate_per_s", float, 100.0)
    churn = section.take("churn", float, 0.0, least=0.0)
    section.done()
    if selectivity > 1 or churn > 1 or rate_per_s <= 0:
        raise InputError(
            f"selectivity {selectivity}, churn {churn}, rate_per_s {rate_per_s}",
            where=f"{section.where}: {section.path}",
            remedy="give shares of at most 1 and a rate above 0",
        )
    weights = [1.0 / (rank + 1) ** skew for rank in range(classes)]
    total = sum(weights)

    def class_of(purpose: str, n: int) -> str:
        left = draws.uniform(seed, purpose, 0, n) * total
        for rank, weight in enumerate(weights):
            left -= weight
            if left < 0:
                return f"class-{rank}"
        return f"class-{classes - 1}"

    gap_us = round(1_000_000 / rate_per_s)
    span_us = publications_count * gap_us
    parsed: dict[str, Filter] = {}
    subscriptions: list[Interest] = []
    for n in range(subscriptions_count):
        share = min(1.0, 2 * selectivity * draws.uniform(seed, "generate.width", 0, n))
        width = max(1, round(1000 * share))
        low = draws.below(1000 - width + 1, seed, "generate.low", 0, n)
        kind = class_of("generate.subscription", n)
        text = f"class = '{kind}' AND value >= {low} AND value < {low + width}"
        filter = parsed.get(text) or parsed.setdefault(text, parse(text))
        broker = draws.below(brokers, seed, "generate.subscriber", 0, n)
        if draws.uniform(seed, "generate.churn", 0, n) < churn:
            leave = draws.below(span_us + 1, seed, "generate.leave", 0, n)
            back = leave + draws.below(span_us - leave + 1, seed, "generate.back", 0, n)
            subscriptions.append(Interest(f"s{n}", broker, f"c{n}", filter, None, leave))
            subscriptions.append(Interest(f"s{n}+", broker, f"c{n}", filter, back))
        else:
            subscriptions.append(Interest(f"s{n}", broker, f"c{n}", filter))
    homes = [draws.below(brokers, seed, "generate.publisher", 0, n) for n in range(publishers)]
    kinds = [class_of("generate.publisher_class", n) for n in range(publishers)]
    postings: list[Posting] = []
    for n in range(publications_count):
        publisher = draws.below(publishers, seed, "generate.posting", 0, n)
        value = draws.below(1000, seed, "generate.value", 0, n)
        attributes: dict[str, Scalar] = {"class": kinds[publisher], "value": value}
        postings.append(Posting(n * gap_us, homes[publisher], f"p{publisher}", str(n), attributes))
    made = tuple(postings)
    return Workload(tuple(subscriptions), derived_advertisements(made), made)


def _interests(
    section: Section, key: str, who: str, folder: Path, number: dict[str, BrokerId], bad: Bad
) -> tuple[Interest, ...]:
    parsed: dict[str, Filter] = {}
    interests: dict[str, Interest] = {}
    for position, (where, row) in enumerate(_rows(section, key, folder)):
        try:
            if isinstance(row, InputError):
                raise row
            text = _text(row, "filter")
            filter = parsed.get(text) or parsed.setdefault(text, _filter(text))
            name = _identity(row, f"{key[0]}{position}")
            interest = Interest(
                name,
                _broker(row, number),
                _text(row, who),
                filter,
                _time(row, "time"),
                _time(row, "until"),
            )
            _finish(row, "broker", who, "filter", "id", "time", "until")
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


def _postings(rows: Iterator[Row], number: dict[str, BrokerId], bad: Bad) -> tuple[Posting, ...]:
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
            name = _identity(row, str(count))
            attributes = _attributes(row)
            _finish(row, "time", "broker", "publisher", "attributes", "id")
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


def _rows(section: Section, key: str, folder: Path) -> Iterator[Row]:
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


def file_rows(path: Path) -> Iterator[Row]:
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
                    remedy="name it .csv or .jsonl",
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


def _identity(row: dict[str, Any], default: str) -> str:
    return default if row.get("id") is None else _text(row, "id")


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
    for name, item in value.items():
        if not isinstance(item, (str, int, float, bool)) and item is not None:
            raise InputError(
                f"attribute {name!r} is {item!r}",
                remedy="give strings, numbers, true, false or null",
            )
    return {name: item for name, item in value.items() if item is not None}


def _finish(row: dict[str, Any], *known: str) -> None:
    for key in row:
        if key not in known and key not in ("time_us", "until_us"):
            raise InputError(f"unknown column {key!r}", remedy=f"known: {', '.join(known)}")
