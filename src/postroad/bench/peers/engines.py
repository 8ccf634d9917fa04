"""Rows in which a library finds the filters that match: CPU time of a match in this process.

Databases hold the filters as a table, a column for each bound, and are queried with each
publication: SQLite with an R*Tree where filters have ranges of several attributes, else with an
index, whichever is faster. Engines of rules compare every rule. What an engine answers is held
against brute force before it is timed.
"""

from __future__ import annotations

import json
import os
import sqlite3
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

from postroad.bench import lookups
from postroad.bench.lookups import per_call
from postroad.bench.peers import workloads
from postroad.bench.peers.figures import OURS, PeerFigure
from postroad.bench.peers.systems import no_library
from postroad.bench.peers.workloads import Filters, holds
from postroad.filters import parse
from postroad.matching import Index

SECONDS = 1.0
CHECKED = 5  # publications
RULES_MAX = 20_000  # of an engine that compares them all

Match = Callable[[dict[str, Any]], list[int]]


class Columns:
    """The filters as a table: bounds of numbers, values where filters demand equality, prefixes."""

    def __init__(self, work: Filters) -> None:
        operators: dict[str, dict[str, None]] = {}
        for filter in work.filters:
            for name, operator, _ in filter:
                operators.setdefault(name, {})[operator] = None
        self.columns: dict[str, list[Any]] = {"id": list(range(len(work.filters)))}
        self.tests: list[tuple[str, str, str]] = []  # attribute, operator, column
        for name, wanted in operators.items():
            for operator in wanted:
                column = f"{name}_{len(self.tests)}"
                values = [_value(filter, name, operator) for filter in work.filters]
                if operator in EVERY:  # a bound that lets everything pass, where there is none
                    values = [EVERY[operator] if v is None else v for v in values]
                self.columns[column] = values
                self.tests.append((name, operator, column))
        self.partial = {column for column, values in self.columns.items() if None in values}

    def query(self, values: dict[str, Any]) -> tuple[str, list[Any]]:
        parts: list[str] = []
        bound: list[Any] = []
        for name, operator, column in self.tests:
            if operator in EVERY:
                parts.append(f"{column} {MIRRORED[operator]} ?")
            elif column in self.partial:
                parts.append(f"({column} IS NULL OR {column} = ?)")
            else:
                parts.append(f"{column} = ?")
            bound.append(values[name][:1] if operator == "prefix" else values[name])
        return " AND ".join(parts), bound


EVERY = {">=": -1e300, ">": -1e300, "<": 1e300}
BOXED = (">=", "<")  # the bounds that boxes have
MIRRORED = {">=": "<=", ">": "<", "<": ">"}  # a bound beside a value


def _value(filter: list[workloads.Demand], name: str, operator: str) -> Any:
    return next((v for n, o, v in filter if n == name and o == operator), None)


def ours(work: Filters) -> Match:
    index: Index[int] = Index()
    for n, filter in enumerate(work.filters):
        index.insert(n, parse(workloads.as_sql(filter)))
    if len(work.filters) > 1_000:
        index.compile()
    return index.match


def sqlite(work: Filters) -> Match:
    """An R*Tree where filters are boxes of several dimensions, an index where they are not."""
    ranged = {name for filter in work.filters for name, operator, _ in filter if operator in EVERY}
    return sqlite_rtree(work) if len(ranged) > 1 else sqlite_index(work)


def sqlite_index(work: Filters) -> Match:
    """An index of the equalities, then the bounds; the number of a filter is in every index."""
    table = Columns(work)
    base = sqlite3.connect(":memory:")
    names = list(table.columns)
    base.execute(f"CREATE TABLE f (id INTEGER PRIMARY KEY, {', '.join(names[1:])})")
    rows = zip(*table.columns.values(), strict=True)
    base.executemany(f"INSERT INTO f VALUES ({', '.join('?' * len(names))})", rows)
    indexed = [column for _, operator, column in table.tests if operator == "="]
    indexed += [column for _, operator, column in table.tests if operator in EVERY]
    base.execute(f"CREATE INDEX access ON f ({', '.join(indexed)})")

    def match(values: dict[str, Any]) -> list[int]:
        condition, bound = table.query(values)
        return [row[0] for row in base.execute(f"SELECT id FROM f WHERE {condition}", bound)]

    return match


def sqlite_rtree(work: Filters) -> Match:
    """Boxes of an R*Tree, and codes of what is demanded beside the ranges.

    An R*Tree rounds numbers to 32 bits. The ranks of bounds, and of values among them, are small
    integers, which it keeps as they are, so its answers are right.
    """
    bounds: dict[str, set[float]] = {}
    codes: dict[str, dict[Any, int]] = {}
    prefixed: set[str] = set()
    for filter in work.filters:
        for name, operator, value in filter:
            if operator in BOXED:
                bounds.setdefault(name, set()).add(value)
            elif operator in EVERY:
                raise ValueError(f"a box has no bound {operator}")
            else:
                known = codes.setdefault(name, {})
                known.setdefault(value, len(known))
                if operator == "prefix":
                    prefixed.add(name)
    steps = {name: sorted(values) for name, values in bounds.items()}
    ranks = {name: {bound: rank for rank, bound in enumerate(steps[name])} for name in steps}

    def row(id: int, filter: list[workloads.Demand]) -> list[int]:
        demands = {(name, "=" if o == "prefix" else o): value for name, o, value in filter}
        numbers = [id]
        for name, rank in ranks.items():
            low, high = demands.get((name, ">=")), demands.get((name, "<"))
            numbers += [-1 if low is None else rank[low], len(rank) if high is None else rank[high]]
        for name, known in codes.items():
            numbers.append(known.get(demands.get((name, "=")), lookups.NO_DEMAND))
        return numbers

    rows = (row(id, filter) for id, filter in enumerate(work.filters))
    boxed = lookups.boxes(list(steps), list(codes), rows)

    def match(values: dict[str, Any]) -> list[int]:
        asked = {name: bisect_right(step, values[name]) - 1 for name, step in steps.items()}
        for name, known in codes.items():
            value = values[name][:1] if name in prefixed else values[name]
            asked[name] = known.get(value, lookups.NO_DEMAND)
        return boxed(asked)

    return match


def duckdb(work: Filters) -> Match:
    import duckdb as engine
    import pandas as pd

    table = Columns(work)
    base = engine.connect(config={"threads": 1})
    base.register("rows", pd.DataFrame(table.columns))
    base.execute("CREATE TABLE f AS SELECT * FROM rows")

    def match(values: dict[str, Any]) -> list[int]:
        condition, bound = table.query(values)
        hits = base.execute(f"SELECT id FROM f WHERE {condition}", bound).fetchnumpy()["id"]
        return [int(id) for id in hits]

    return match


def polars(work: Filters) -> Match:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    import polars as engine

    table = Columns(work)
    frame = engine.DataFrame(table.columns)
    column = engine.col

    def match(values: dict[str, Any]) -> list[int]:
        wanted = []
        for name, operator, place in table.tests:
            value = values[name]
            if operator == "<":
                wanted.append(column(place) > value)
            elif operator in EVERY:
                wanted.append(column(place) <= value if operator == ">=" else column(place) < value)
            else:
                same = column(place) == (value[:1] if operator == "prefix" else value)
                wanted.append(column(place).is_null() | same)
        ids: list[int] = frame.filter(wanted)["id"].to_list()
        return ids

    return match


def event_ruler(work: Filters) -> Match:
    """EventBridge's patterns, one call for each."""
    from event_ruler import event_ruler as engine

    patterns = []
    for filter in work.filters:
        demands: dict[str, list[Any]] = {}
        ranges: dict[str, list[Any]] = {}
        for name, operator, value in filter:
            if operator == "=":
                demands[name] = [value]
            elif operator == "prefix":
                demands[name] = [{"prefix": value}]
            else:
                ranges.setdefault(name, []).extend([operator, value])
        demands |= {name: [{"numeric": bounds}] for name, bounds in ranges.items()}
        patterns.append(json.dumps(demands))

    def match(values: dict[str, Any]) -> list[int]:
        text = json.dumps(values)
        return [n for n, p in enumerate(patterns) if engine.test_event_pattern(text, p)]

    return match


def plain(work: Filters) -> Match:
    """Each filter as a Python expression, compiled: what a short program would do."""
    tests = []
    for filter in work.filters:
        words = []
        for name, operator, value in filter:
            if operator == "prefix":
                words.append(f"v[{name!r}].startswith({value!r})")
            else:
                words.append(f"v[{name!r}] {'==' if operator == '=' else operator} {value!r}")
        tests.append(f"({' and '.join(words)})")
    code = "lambda v: [n for n, hit in enumerate((" + ", ".join(tests) + ",)) if hit]"
    match: Match = eval(code)  # our own words and numbers
    return match


ENGINES: dict[str, tuple[Callable[[Filters], Match], str, int]] = {
    OURS: (ours, "", 1 << 30),
    "SQLite": (sqlite, "", 1 << 30),
    "DuckDB": (duckdb, "duckdb", 1 << 30),
    "Polars": (polars, "polars", 1 << 30),
    "event-ruler": (event_ruler, "event_ruler", RULES_MAX),
    "Python expressions": (plain, "", RULES_MAX),
}


def matched(folder: Path, name: str) -> list[PeerFigure]:
    work = workloads.filters(folder, name)
    sample = work.publications[:CHECKED]
    expected = [[n for n, f in enumerate(work.filters) if holds(f, v)] for v in sample]
    figures = []
    for system, (build, module, most) in ENGINES.items():
        reason = no_library(module)
        if reason is not None:
            figures.append(PeerFigure(system, note=f"skipped: {reason}"))
            continue
        if len(work.filters) > most:
            figures.append(PeerFigure(system, note="skipped: it compares every filter"))
            continue
        try:
            match = build(work)
            answers = [sorted(match(values)) for values in sample]
        except (ValueError, TypeError, RuntimeError, RecursionError, MemoryError) as error:
            figures.append(PeerFigure(system, note=f"failed: {error}"))
            continue
        if answers != expected:
            figures.append(PeerFigure(system, note="failed: other answers than brute force"))
            continue
        us = 1e6 * per_call(match, work.publications, SECONDS)
        figures.append(PeerFigure(system, {"cpu_us": us, "per_cpu_s": 1e6 / us}))
    return figures
