"""Progress on a terminal: a bar with the time left, on standard error, gone when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

T = TypeVar("T")
Report = Callable[[int, int], None]


def bars(transient: bool = True) -> Progress:
    """Bars that are shown on a terminal only."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=transient)


@contextmanager
def bar(word: str) -> Iterator[Report | None]:
    """A function to call with (done, total); None where there is no terminal to show it on."""
    with bars() as progress:
        task = progress.add_task(word, total=None)

        def report(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield None if progress.disable else report


def tracked(items: Sequence[T], word: str) -> Iterator[T]:
    """The items, with a bar that says how many have been taken."""
    with bar(word) as report:
        for number, item in enumerate(items):
            if report is not None and number % 64 == 0:
                report(number, len(items))
            yield item


def counted(word: str, work: Callable[[npt.NDArray[np.int64]], T], total: int) -> T:
    """What the work returns, with a bar by the counter that it is given.

    The work is a kernel that holds no lock of the interpreter; on a terminal it has a thread.
    """
    done = np.zeros(1, np.int64)
    with bar(word) as report:
        if report is None:
            return work(done)
        with ThreadPoolExecutor(1) as pool:
            waited = pool.submit(work, done)
            while not wait([waited], 0.2).done:
                report(int(done[0]), total)
            return waited.result()


@contextmanager
def waiting(word: str) -> Iterator[None]:
    """The time so far, for work that cannot say how far it is."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as progress:
        progress.add_task(word, total=None)
        yield
