"""What the benchmarks of matching share: CPU time per call, and filters as boxes in SQLite."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

NO_DEMAND = -1  # the code of filters that demand nothing of an attribute


def per_call(match: Callable[[Any], Any], publications: list[Any], seconds: float) -> float:
    """CPU seconds per call: the best of short rounds, because other processes may interfere."""
    match(publications[0])
    best = float("inf")
    stop = time.perf_counter() + seconds
    at, size = 0, 1
    while time.perf_counter() < stop:
        batch = [publications[(at + k) % len(publications)] for k in range(size)]
        at += size
        start = time.process_time()
        for values in batch:
            match(values)
        spent = time.process_time() - start
        if size < 500 and spent < 0.02:
            size *= 2
        else:
            best = min(best, spent / size)
    return best if best < float("inf") else spent / size


def boxes(
    ranged: Sequence[str], coded: Sequence[str], rows: Iterable[Sequence[float]]
) -> Callable[[dict[str, Any]], list[int]]:
    """Filters as boxes of an R*Tree: `low <= value < high` for each of up to five names.

    What they demand of other names stands beside the box as a code, or `NO_DEMAND`. A row is a
    number, lows and highs in turn, and codes. A match takes a dict with a number for each of the
    names. The R*Tree keeps bounds in 32 bits, rounded outwards, so those that need more may let
    pass a value just outside of a range.
    """
    base = sqlite3.connect(":memory:")
    columns = ["id", *(f"{name}{end}" for name in ranged for end in "ab")]
    columns += [f"+{name} INTEGER" for name in coded]
    base.execute(f"CREATE VIRTUAL TABLE f USING rtree({', '.join(columns)})")
    base.executemany(f"INSERT INTO f VALUES ({', '.join('?' * len(columns))})", rows)
    conditions = [f"{name}a <= :{name} AND {name}b > :{name}" for name in ranged]
    conditions += [f"{name} IN ({NO_DEMAND}, :{name})" for name in coded]
    query = f"SELECT id FROM f WHERE {' AND '.join(conditions)}"
    return lambda values: [row[0] for row in base.execute(query, values)]
