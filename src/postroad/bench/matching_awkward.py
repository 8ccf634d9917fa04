"""Filters that could make the index slow or big: a million of each, each kind in its own process.

Where a filter has hundreds of disjuncts or set members, these are a million in all. Times are CPU
times. `worst insert` is the longest pause of one insertion, when arrays grow or all is filed anew.
`peak` is the most memory that the process had, with the interpreter, the kernels and the filters.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from typing import Any

from postroad.bench.lookups import per_call
from postroad.filters import parse
from postroad.matching import Index

Values = dict[str, Any]
MILLION = 1_000_000
HUNDREDS = 300
SECONDS = 2.0  # for matching all sorts of publications


def _texts(n: int) -> str:
    return ", ".join(f"'v{n * 7 + k}'" for k in range(HUNDREDS))


AWKWARD: list[tuple[str, int, Callable[[int], str], Callable[[int], Values]]] = [
    ("all the same", MILLION, lambda n: "x > 5 AND s = 'a'", lambda n: {"x": 7, "s": "a"}),
    ("all the same, none matches", MILLION, lambda n: "x > 5 AND s = 'a'", lambda n: {"x": 7}),
    ("a value of their own each", MILLION, lambda n: f"s = 'v{n}'", lambda n: {"s": f"v{n}"}),
    ("a range of their own each", MILLION, lambda n: f"x BETWEEN {n} AND {n + 1}",
     lambda n: {"x": n}),
    ("one of 5,000 attributes each", MILLION, lambda n: f"a{n % 5000} > {n}",
     lambda n: {f"a{n % 5000}": n}),
    ("IN lists of 300", MILLION // HUNDREDS, lambda n: f"s IN ({_texts(n)})",
     lambda n: {"s": f"v{n * 7}"}),
    ("300 disjuncts", MILLION // HUNDREDS,
     lambda n: " OR ".join(f"(x > {n * 300 + k} AND y = {k})" for k in range(HUNDREDS)),
     lambda n: {"x": 300 * n, "y": n % 300}),
    ("LIKE '%…%' beside an equality", MILLION, lambda n: f"s = 'v{n % 5000}' AND t LIKE '%b{n}%'",
     lambda n: {"s": f"v{n % 5000}", "t": "a" * 40 + f"b{n}"}),
    ("LIKE '%…%' alone", MILLION, lambda n: f"t LIKE '%a%b{n}%'",
     lambda n: {"t": "a" * 40 + f"b{n}"}),
]  # fmt: skip
TITLES = [
    "filters",
    "matches",
    "µs",
    "inserts/s",
    "worst insert",
    "removals/s",
    "bytes each",
    "peak",
]


def main() -> None:
    print("Matching, filters that could be slow: a million of each, or of their parts; ms and MB")
    print("  " + f"{'':<34}" + "".join(f"{title:>14}" for title in TITLES))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as processes:
        for line, figures in enumerate(processes.map(measure, range(len(AWKWARD)))):
            shown = "".join(f"{figure:>14}" for figure in figures)
            print("  " + f"{AWKWARD[line][0]:<34}" + shown, flush=True)


def measure(line: int) -> list[str]:
    """Figures of one kind of filters: what a match costs, and what each filter takes."""
    _, count, make, values = AWKWARD[line]
    index: Index[int] = Index()
    index.compile()
    parsed = lru_cache(maxsize=1)(parse)
    inserting = worst = 0.0
    for i in range(count):
        filter = parsed(make(i))
        start = time.process_time()
        index.insert(i, filter)
        spent = time.process_time() - start
        inserting += spent
        worst = max(worst, spent)
    publications = [values(n * 7919 % count) for n in range(200)]
    sizes = []
    stop = time.perf_counter() + SECONDS
    for each in publications:
        sizes.append(len(index.match(each)))
        if time.perf_counter() > stop:
            break
    cost = per_call(index.match, publications[: len(sizes)], seconds=SECONDS)
    size = index.nbytes
    removed = min(count, 20_000)
    start = time.process_time()
    for i in range(removed):
        index.remove(i)
    removing = time.process_time() - start
    return [
        f"{count:,}",
        f"{sum(sizes) / len(sizes):,.1f}",
        f"{cost * 1e6:,.1f}",
        f"{count / inserting:,.0f}",
        f"{worst * 1e3:,.0f}",
        f"{removed / removing:,.0f}",
        f"{size / count:,.0f}",
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f}",
    ]
