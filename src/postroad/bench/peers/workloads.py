"""The work that is compared, as files: JSON that any other program can read.

`write` writes them; a row reads its own. Filters are lists of demands, each
`[attribute, operator, value]` with `=`, `>=`, `>`, `<` or `prefix`, all of which must hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

LETTERS = "abcdefghij"
SYMBOLS, LEVELS = 500, 20

Demand = tuple[str, str, Any]


@dataclass(frozen=True)
class Traffic:
    """Publications on one topic: how many, how large, for how many subscribers."""

    topic: str = "fan/out"
    payload_bytes: int = 64
    subscribers: int = 1
    publications: int = 100_000


@dataclass(frozen=True)
class Pace:
    """An open loop: publications are due at a fixed rate, whatever became of earlier ones."""

    topic: str = "paced"
    payload_bytes: int = 64
    per_s: int = 1_000
    publications: int = 6_000


@dataclass(frozen=True)
class Filters:
    filters: list[list[Demand]]
    publications: list[dict[str, Any]]


@dataclass(frozen=True)
class Graph:
    """A tree with publications that go everywhere, or links with latencies."""

    nodes: int
    links: list[tuple[int, int, int]]  # two nodes and µs
    publications: list[tuple[int, int]]  # a node and µs


TRAFFIC = {
    "fanout-1": Traffic(subscribers=1, publications=150_000),
    "fanout-5": Traffic(subscribers=5, publications=60_000),
    "fanout-50": Traffic(subscribers=50, publications=10_000),
    "chain": Traffic(topic="chain/a", publications=60_000),
    "mesh": Traffic(topic="mesh/a", publications=60_000),
    "others": Traffic(topic="flood", subscribers=5),
    "durable": Traffic(topic="durable/a", publications=5_000),
}
PACES = {
    "latency": Pace(),
    "chain": Pace(),
    "mesh": Pace(),
    "others": Pace(per_s=200, publications=1_200),
}


def mixed(count: int, seed: int) -> Filters:
    """Three to five demands (ranges, equalities, prefixes) over ten attributes."""
    draw = np.random.default_rng(seed)
    filters: list[list[Demand]] = []
    for _ in range(count):
        named = int(draw.integers(0, 3))
        ranged = int(draw.integers(3, 6)) - named
        width = (0.001 / 0.1**named) ** (1 / ranged)
        demands: list[Demand] = []
        for j in sorted(draw.permutation(5)[:ranged].tolist()):
            low = float(draw.random() * (1 - width))
            demands += [(f"n{j}", ">=", low), (f"n{j}", "<", low + width)]
        for j in sorted(draw.permutation(5)[:named].tolist()):
            k = int(draw.integers(0, 10))
            demands.append(
                (f"c{j}", "=", f"value{k}") if j < 3 else (f"t{j}", "prefix", LETTERS[k])
            )
        filters.append(demands)
    publications = []
    for _ in range(1_000):
        values: dict[str, Any] = {f"n{j}": float(draw.random()) for j in range(5)}
        values |= {f"c{j}": f"value{draw.integers(0, 10)}" for j in range(3)}
        for j in (3, 4):
            values[f"t{j}"] = "".join(LETTERS[k] for k in draw.integers(0, 10, 8))
        publications.append(values)
    return Filters(filters, publications)


def quotes(count: int, seed: int) -> Filters:
    """A symbol and a least price: one publication in ten passes the price."""
    draw = np.random.default_rng(seed)
    filters: list[list[Demand]] = [
        [
            ("symbol", "=", f"S{n % SYMBOLS}"),
            ("price", ">=", float(90 + draw.integers(0, 100) / 10)),
        ]
        for n in range(count)
    ]
    publications = [
        {"symbol": f"S{draw.integers(0, SYMBOLS)}", "price": float(draw.integers(0, 1000)) / 10}
        for _ in range(20_000)
    ]
    return Filters(filters, publications)


def equalities(count: int, seed: int) -> Filters:
    """Two equalities; every publication is for one filter."""
    draw = np.random.default_rng(seed)
    filters: list[list[Demand]] = [
        [("symbol", "=", f"S{n // LEVELS}"), ("level", "=", n % LEVELS)] for n in range(count)
    ]
    publications = [
        {"symbol": f"S{k // LEVELS}", "level": int(k % LEVELS)}
        for k in draw.integers(0, count, 20_000).tolist()
    ]
    return Filters(filters, publications)


FILTERS: dict[str, Callable[[int], Filters]] = {
    "filters": lambda seed: quotes(10_000, seed),
    "filters-equal": lambda seed: equalities(10_000, seed),
    "match-few": lambda seed: quotes(20, seed),
    "match-equal": lambda seed: equalities(10_000, seed),
    "match-equal-1m": lambda seed: equalities(1_000_000, seed),
    "match-quotes": lambda seed: quotes(10_000, seed),
    "match-quotes-1m": lambda seed: quotes(1_000_000, seed),
    "match-mixed": lambda seed: mixed(10_000, seed),
    "match-mixed-100k": lambda seed: mixed(100_000, seed),
    "match-mixed-1m": lambda seed: mixed(1_000_000, seed),
}


def tree(nodes: int, publications: int, seed: int) -> Graph:
    draw = np.random.default_rng(seed)
    links = [(int(draw.integers(0, n)), n, int(draw.integers(500, 1_500))) for n in range(1, nodes)]
    times = np.sort(draw.integers(0, 10_000_000, publications)).tolist()
    return Graph(nodes, links, [(int(draw.integers(0, nodes)), int(t)) for t in times])


def complete(nodes: int, seed: int) -> Graph:
    """Latencies of points in a plane, all pairs."""
    draw = np.random.default_rng(seed)
    points = draw.random((nodes, 2))
    links = [
        (a, b, int(1 + 50_000 * float(np.hypot(*(points[a] - points[b])))))
        for a in range(nodes)
        for b in range(a + 1, nodes)
    ]
    return Graph(nodes, links, [])


GRAPHS: dict[str, Callable[[int], Graph]] = {
    "simulate": lambda seed: tree(150, 10_000, seed),
    "plan-tree": lambda seed: complete(600, seed),
    "plan-paths": lambda seed: tree(600, 0, seed),
}


def write(folder: Path, seed: int, rows: Sequence[str]) -> list[Path]:
    """Write the workloads of these rows; the same seed writes the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    documents: dict[str, Any] = {}
    for row in rows:
        if row in TRAFFIC:
            documents[f"traffic-{row}"] = asdict(TRAFFIC[row])
        if row in PACES:
            documents[f"pace-{row}"] = asdict(PACES[row])
        if row in FILTERS:
            documents[row] = asdict(FILTERS[row](seed))
        if row in GRAPHS:
            documents[row] = asdict(GRAPHS[row](seed))
    paths = []
    for name, document in documents.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(document) + "\n")
        paths.append(path)
    return paths


def traffic(folder: Path, name: str) -> Traffic:
    return Traffic(**json.loads((folder / f"traffic-{name}.json").read_text()))


def pace(folder: Path, name: str) -> Pace:
    return Pace(**json.loads((folder / f"pace-{name}.json").read_text()))


def filters(folder: Path, name: str) -> Filters:
    document = json.loads((folder / f"{name}.json").read_text())
    demands = [[(a, o, v) for a, o, v in filter] for filter in document["filters"]]
    return Filters(demands, document["publications"])


def graph(folder: Path, name: str) -> Graph:
    document = json.loads((folder / f"{name}.json").read_text())
    links = [(a, b, us) for a, b, us in document["links"]]
    return Graph(document["nodes"], links, [(n, us) for n, us in document["publications"]])


def holds(filter: list[Demand], values: dict[str, Any]) -> bool:
    """Brute force, for counting what must arrive."""
    for name, operator, value in filter:
        actual = values.get(name)
        if actual is None:
            return False
        if operator == "=" and actual != value:
            return False
        if operator == ">=" and not actual >= value:
            return False
        if operator == ">" and not actual > value:
            return False
        if operator == "<" and not actual < value:
            return False
        if operator == "prefix" and not actual.startswith(value):
            return False
    return True


def as_sql(filter: list[Demand]) -> str:
    words = []
    for name, operator, value in filter:
        text = f"'{value}%'" if operator == "prefix" else repr(value)
        words.append(f"{name} {'LIKE' if operator == 'prefix' else operator} {text}")
    return " AND ".join(words)
