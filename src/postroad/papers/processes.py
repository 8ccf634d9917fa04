"""The runs of a paper's experiments, spread over processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


def run_rows(
    run_point: Callable[[Any], dict[str, Any]],
    todo: Sequence[Any],
    workers: int = 1,
    advance: Callable[[], object] = lambda: None,
) -> list[dict[str, Any]]:
    """`run_point` of every row, here or in a pool; the order is that of `todo`."""
    found = []
    if workers == 1:
        for row in todo:
            found.append(run_point(row))
            advance()
        return found
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for done in pool.map(run_point, todo, chunksize=1):
            found.append(done)
            advance()
    return found
