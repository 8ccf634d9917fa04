"""What a match costs: the index beside a linear scan, plain NumPy, and SQLite.

Two workloads. *Mixed*: three to five demands (ranges, equalities, prefixes) over ten attributes,
each filter matching about 0.1% of the publications. *Quotes*: class = 'STOCK' AND symbol = X AND
price > N, also about 0.1%. What a Python program would otherwise use for this is a database of
filters that each publication queries: SQLite, with an R*Tree over the ranges or an index on symbol
and price; DuckDB; Polars. The last two are measured where they are installed (extra `bench`).

`in Python` is `index` where the publication is no dict and so described in Python. `churning` is
the time per match while 1,000 filters a second leave and come back, their cost included. `filing
anew` is the pause, in ms, that comes whenever a table has grown fourfold, up to 300,000 rows.

The second table of each has the blocks, words of bits and rows that a match looks at, and beside
its cost that of the same among 100 filters (the call and the attributes), of a publication without
attributes (the call), and of turning as many numbers into a list of ints.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from postroad.bench import growth, lookups
from postroad.bench.lookups import per_call
from postroad.filters import Filter
from postroad.filters.constraints import Constraint
from postroad.filters.language import normal_form
from postroad.filters.sql import compare, resembles
from postroad.matching import Index, LinearScan, kernels
from postroad.matching.compiled import Compiled

SIZES = (1_000, 10_000, 100_000, 1_000_000)
LETTERS = "abcdefghij"
NUMBERS = ("n0", "n1", "n2", "n3", "n4")
NAMES = ("c0", "c1", "c2", "t0", "t1")
SYMBOLS = 500
CHURN_PER_SECOND = 1_000
TITLES = [
    "filters",
    "matches",
    "index",
    "in Python",
    "churning",
    "SQLite",
    "DuckDB",
    "Polars",
    "NumPy",
    "linear scan",
]
TITLES += ["inserts/s", "removals/s", "bytes each", "filing anew"]
SPENT = [
    "filters",
    "blocks",
    "words",
    "rows",
    "matches",
    "index",
    "among 100",
    "no attribute",
    "ints",
]
Values = dict[str, Any]


class Mixed:
    """Ranges on five numbers, equality on three names of ten, prefixes of two texts."""

    name = "mixed"

    def __init__(self, count: int) -> None:
        draw = np.random.default_rng(7)
        self.low = np.full((count, 5), -1.0)
        self.high = np.full((count, 5), 2.0)
        self.names = np.full((count, 5), -1, dtype=np.int8)
        demands = draw.integers(3, 6, count)
        for i, wanted in enumerate(demands.tolist()):
            named = int(draw.integers(0, 3))
            ranged = wanted - named
            width = (0.001 / 0.1**named) ** (1 / ranged)
            for j in draw.permutation(5)[:ranged].tolist():
                low = draw.random() * (1 - width)
                self.low[i, j], self.high[i, j] = low, low + width
            for j in draw.permutation(5)[:named].tolist():
                self.names[i, j] = draw.integers(0, 10)

    def filter(self, i: int) -> Filter:
        demands: dict[str, Constraint | None] = {}
        for j, name in enumerate(NUMBERS):
            if self.low[i, j] >= 0:
                low, high = float(self.low[i, j]), float(self.high[i, j])
                above, below = compare(">=", low), compare("<", high)
                assert above is not None
                assert below is not None
                demands[name] = above.meet(below)
        for j, name in enumerate(NAMES):
            value = int(self.names[i, j])
            if value >= 0:
                prefix = name[0] == "t"
                demands[name] = (
                    resembles(LETTERS[value] + "%", negate=False)
                    if prefix
                    else compare("=", f"value{value}")
                )
        return normal_form([{name: demand for name, demand in demands.items() if demand}])

    def publication(self, draw: np.random.Generator) -> Values:
        values: Values = {name: float(draw.random()) for name in NUMBERS}
        values |= {name: f"value{draw.integers(0, 10)}" for name in NAMES[:3]}
        for name in NAMES[3:]:
            values[name] = "".join(LETTERS[k] for k in draw.integers(0, 10, 8))
        return values

    def numpy(self, values: Values) -> Any:
        """All filters at once, column by column."""
        hits = np.ones(len(self.low), dtype=bool)
        for j, name in enumerate(NUMBERS):
            hits &= (self.low[:, j] <= values[name]) & (values[name] < self.high[:, j])
        for j, code in enumerate(_codes(values)):
            hits &= (self.names[:, j] < 0) | (self.names[:, j] == code)
        return np.flatnonzero(hits)

    def sqlite(self) -> Callable[[Values], list[int]]:
        rows = (
            (i, *np.stack([self.low[i], self.high[i]], axis=1).ravel().tolist(), *names)
            for i, names in enumerate(self.names.tolist())
        )
        boxed = lookups.boxes(NUMBERS, NAMES, rows)

        def match(values: Values) -> list[int]:
            bound = {name: values[name] for name in NUMBERS}
            bound |= dict(zip(NAMES, _codes(values), strict=True))
            return boxed(bound)

        return match

    def columns(self) -> dict[str, Any]:
        """The filters as a table, for databases that scan columns."""
        arrays: dict[str, Any] = {"id": np.arange(len(self.low))}
        for j, name in enumerate(NUMBERS):
            arrays |= {f"{name}a": self.low[:, j], f"{name}b": self.high[:, j]}
        return arrays | {name: self.names[:, j] for j, name in enumerate(NAMES)}

    def query(self, values: Values) -> tuple[str, list[Any]]:
        conditions = [f"{name}a <= ? AND {name}b > ?" for name in NUMBERS]
        conditions += [f"({name} < 0 OR {name} = ?)" for name in NAMES]
        bound = [values[name] for name in NUMBERS for _ in "ab"] + _codes(values)
        return " AND ".join(conditions), bound

    def polars(self, values: Values) -> Any:
        import polars

        column = polars.col
        wanted = [column(f"{n}a") <= values[n] for n in NUMBERS]
        wanted += [column(f"{n}b") > values[n] for n in NUMBERS]
        codes = zip(NAMES, _codes(values), strict=True)
        return [*wanted, *((column(n) < 0) | (column(n) == code) for n, code in codes)]


class Quotes:
    """class = 'STOCK' AND symbol = X AND price > N, for 500 symbols."""

    name = "quotes"

    def __init__(self, count: int) -> None:
        draw = np.random.default_rng(8)
        self.symbol = draw.integers(0, SYMBOLS, count)
        self.price = np.round(draw.random(count) * 100, 2)

    def filter(self, i: int) -> Filter:
        demands = {
            "class": compare("=", "STOCK"),
            "symbol": compare("=", f"S{self.symbol[i]}"),
            "price": compare(">", float(self.price[i])),
        }
        return normal_form([{name: demand for name, demand in demands.items() if demand}])

    def publication(self, draw: np.random.Generator) -> Values:
        price = round(float(draw.random()) * 100, 2)
        symbol = f"S{draw.integers(0, SYMBOLS)}"
        return {"class": "STOCK", "symbol": symbol, "price": price, "volume": 1000}

    def numpy(self, values: Values) -> Any:
        symbol = int(values["symbol"][1:])
        return np.flatnonzero((self.symbol == symbol) & (self.price < values["price"]))

    def sqlite(self) -> Callable[[Values], list[int]]:
        base = sqlite3.connect(":memory:")
        base.execute("CREATE TABLE f (id INTEGER, class TEXT, symbol TEXT, price REAL)")
        rows = zip(self.symbol.tolist(), self.price.tolist(), strict=True)
        records = ((i, "STOCK", f"S{symbol}", price) for i, (symbol, price) in enumerate(rows))
        base.executemany("INSERT INTO f VALUES (?, ?, ?, ?)", records)
        base.execute("CREATE INDEX access ON f (class, symbol, price, id)")
        query = "SELECT id FROM f WHERE class = :class AND symbol = :symbol AND price < :price"
        return lambda values: [row[0] for row in base.execute(query, values)]

    def columns(self) -> dict[str, Any]:
        return {"id": np.arange(len(self.price)), "symbol": self.symbol, "price": self.price}

    def query(self, values: Values) -> tuple[str, list[Any]]:
        return "symbol = ? AND price < ?", [int(values["symbol"][1:]), values["price"]]

    def polars(self, values: Values) -> Any:
        import polars

        symbol = int(values["symbol"][1:])
        return [polars.col("symbol") == symbol, polars.col("price") < values["price"]]


def duckdb_match(workload: Mixed | Quotes) -> Callable[[Values], list[int]] | None:
    """Queries of a table of filters in DuckDB on one thread; None where it is not installed."""
    if find_spec("duckdb") is None:
        return None
    import duckdb

    base = duckdb.connect(config={"threads": 1})
    table = pd.DataFrame(workload.columns())
    base.register("given", table)
    base.execute("CREATE TABLE f AS SELECT * FROM given")

    def match(values: Values) -> list[int]:
        condition, bound = workload.query(values)
        hits = base.execute(f"SELECT id FROM f WHERE {condition}", bound).fetchnumpy()["id"]
        return [int(id) for id in hits]

    return match


def polars_match(workload: Mixed | Quotes) -> Callable[[Values], list[int]] | None:
    """Filters of a data frame of filters in Polars; None where it is not installed."""
    if find_spec("polars") is None:
        return None
    import polars

    frame = polars.DataFrame(workload.columns())

    def match(values: Values) -> list[int]:
        hits: list[int] = frame.filter(workload.polars(values))["id"].to_list()
        return hits

    return match


def main() -> None:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # as all others
    for workload in (Mixed, Quotes):
        print(f"Matching, {workload.name}: µs of CPU time per match")
        print("  " + "".join(f"{title:>12}" for title in TITLES))
        spent, costs = [], []
        for count in SIZES:
            figures, parts = measure(workload(count), count)
            spent.append(parts)
            costs.append(float(figures[2].replace(",", "")))
            print("  " + "".join(f"{figure:>12}" for figure in figures), flush=True)
        # Matches are a share of the filters: their list alone grows with exponent 1.
        print("  " + growth.said("cost of a match by filters", SIZES, costs, "below 1"))
        print(f"Matching, {workload.name}: what a match reads, and what of its µs goes elsewhere")
        print("  " + "".join(f"{title:>12}" for title in SPENT))
        for parts in spent:
            print("  " + "".join(f"{figure:>12}" for figure in parts))


def measure(workload: Mixed | Quotes, count: int) -> tuple[list[str], list[str]]:
    """One line of either table."""
    filters = [workload.filter(i) for i in range(count)]
    draw = np.random.default_rng(9)
    publications = [workload.publication(draw) for _ in range(1000)]
    index: Index[int] = Index()
    index.compile()
    start = time.process_time()
    for i, filter in enumerate(filters):
        index.insert(i, filter)
    inserting = time.process_time() - start
    size = index.nbytes / count

    numbers = [len(index.match(values)) for values in publications]
    plain = per_call(index.match, publications, seconds=2.0)
    shown = [MappingProxyType(values) for values in publications]
    python = per_call(index.match, shown, seconds=1.0)
    table = index._table
    assert isinstance(table, Compiled)
    parts = where_it_goes(table, filters, publications, plain)
    sqlite = workload.sqlite()
    databases = [duckdb_match(workload), polars_match(workload)]
    for values in publications[:20]:
        for database in databases:
            assert database is None or sorted(database(values)) == index.match(values)
        assert index.match(values) == workload.numpy(values).tolist()
        assert set(index.match(values)) <= set(sqlite(values))  # Its R*Tree rounds outwards.
    other = [
        per_call(sqlite, publications, seconds=2.0),
        *(per_call(match, publications, 1.0) if match else None for match in databases),
        per_call(workload.numpy, publications, seconds=1.0),
        per_call(_scan(filters[:100_000]), publications, seconds=1.0) * max(1, count / 100_000),
    ]
    churning = per_call_under_churn(index, filters, publications)
    removed = list(range(count - min(count, 20_000), count))
    start = time.process_time()
    for i in removed:
        index.remove(i)
    removing = time.process_time() - start
    start = time.process_time()
    table._refile()
    refiling = time.process_time() - start
    figures = [plain, python, churning, *other]
    line = [
        f"{count:,}",
        f"{sum(numbers) / len(numbers):.1f}",
        *("-" if figure is None else f"{figure * 1e6:,.1f}" for figure in figures),
        f"{count / inserting:,.0f}",
        f"{len(removed) / removing:,.0f}",
        f"{size:,.0f}",
        f"{refiling * 1e3:,.0f}",
    ]
    return line, parts


def where_it_goes(
    table: Compiled[int], filters: list[Filter], publications: list[Values], plain: float
) -> list[str]:
    """One line of the second table: what a match touches, and what cheaper calls cost."""
    few: Index[int] = Index()
    few.compile()
    for i, filter in enumerate(filters[:100]):
        few.insert(i, filter)
    touched = np.array([touches(table, values) for values in publications[:200]]).mean(axis=0)
    matches_of = [np.array(table.match(values)) for values in publications]
    costs = [
        plain,
        per_call(few.match, publications, seconds=0.5),
        per_call(table.match, [{}], seconds=0.2),
        per_call(lambda numbers: numbers.tolist(), matches_of, seconds=0.5),
    ]
    matches = sum(map(len, matches_of)) / len(matches_of)
    return [
        f"{len(filters):,}",
        *(f"{number:,.1f}" for number in (*touched, matches)),
        *(f"{cost * 1e6:,.2f}" for cost in costs),
    ]


def touches(table: Compiled[int], values: Values) -> tuple[int, int, int]:
    """How many blocks, words of bits and rows a match looks at."""
    pairs = np.array(table._describe(values)).reshape(-1, 2)
    point, cells, blocks = table._point, table._cells, table._blocks
    for channel, value in zip(pairs[:, 0].astype(int).tolist(), pairs[:, 1].tolist(), strict=True):
        point[channel] = kernels._key(table._breaks[channel, 0] < 0, value)
        cells[channel] = kernels._cell(table._breaks, table._lines, channel, value)
    firsts = np.zeros(len(pairs) * 512 + 64, dtype=np.int32)
    chains = kernels._chains(
        pairs, len(pairs), point, cells, table._breaks, table._windows, table._heads,
        table._couples, blocks, table._allocator, firsts,
    )  # fmt: skip
    visits = np.zeros((kernels.VISITS, kernels.VISIT), dtype=np.int64)
    lanes = np.zeros(kernels.LANES, dtype=np.uint64)
    visited = words = rows = chain = 0
    block = int(firsts[0])
    while chain < chains:
        count, chain, block = kernels._visit(
            firsts, chain, chains, block, cells, table._lines, blocks, table._words, visits
        )
        for i in range(count):
            used = int(blocks[visits[i, 0], kernels.USED])
            words += int(visits[i, 1]) * ((used + 63) >> 6)
            rows += kernels._list(
                visits, i, i + 1, blocks, table._words, table._candidates, lanes
            )[1]  # fmt: skip
        visited += count
    table._new_scratch()
    return visited, words, rows


def per_call_under_churn(
    index: Index[int], filters: list[Filter], publications: list[Values], seconds: float = 3.0
) -> float:
    """CPU seconds per match, churn included: the best of rounds of a fifth of a second."""
    best = float("inf")
    changed = at = 0
    for _ in range(int(seconds / 0.2)):
        begin = time.process_time()
        matched = due = 0
        while (now := time.process_time() - begin) < 0.2:
            while due < now * CHURN_PER_SECOND:
                id = changed * 7919 % len(filters)
                index.remove(id)
                index.insert(id, filters[id])
                changed += 1
                due += 1
            for _ in range(10):
                index.match(publications[at % len(publications)])
                at += 1
            matched += 10
        best = min(best, now / matched)
    return best


def _scan(filters: list[Filter]) -> Callable[[Values], list[int]]:
    scan: LinearScan[int] = LinearScan()
    for i, filter in enumerate(filters):
        scan.insert(i, filter)
    return scan.match


def _codes(values: Values) -> list[int]:
    """The names and the first letters of the texts, as numbers."""
    codes = [int(values[name][5:]) for name in NAMES[:3]]
    return codes + [LETTERS.index(values[name][0]) for name in NAMES[3:]]
