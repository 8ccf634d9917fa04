"""What all commands share: the job they are given, and how tables are made once or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from postroad.errors import InputError, RunFailed
from postroad.pipeline import session as sessions
from postroad.pipeline import store
from postroad.pipeline.store import Recipe

Facts = dict[str, Any]
"""What a command returns, for the command line to print."""
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """What every command is told: where Spark runs, whether to redo, the command itself."""

    master: str | None = None
    conf: tuple[str, ...] = ()
    force: bool = False
    command: str = ""
    light: bool = False  # Spark hands out runs and measures them, and has no bulk of data
    tell: Callable[[int, int, int], None] | None = None  # progress: see `session.followed`

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        with sessions.session(self.master, self.conf, light=self.light) as spark:
            if self.tell is None:
                yield spark
            else:
                with sessions.followed(spark, self.tell):
                    yield spark


def up_to_date(job: Job, recipe: Recipe, *paths: str) -> Facts | None:
    """The facts of tables that need not be made again, or None."""
    if job.force or not all(store.is_current(path, recipe) for path in paths):
        return None
    lineage = store.read_lineage(paths[0])
    assert lineage is not None
    return {**lineage["facts"], "unchanged": True, "tables": list(paths)}


def once(action: Callable[[], Facts], job: Job, recipe: Recipe, folder: str, *tables: str) -> Facts:
    """Make the tables of a folder, unless they are there already; nobody else may meanwhile."""
    with store.locked(folder, job.command):
        return up_to_date(job, recipe, *tables) or guarded(action, *tables)


def guarded(action: Callable[[], T], *tables: str) -> T:
    """Spark's own failures as one line; whatever fails, no half-written table stays behind."""
    try:
        return action()
    except BaseException as error:
        for table in tables:
            store.discard(table)
        if isinstance(error, sessions.ERRORS):
            raise RunFailed(f"Spark failed: {sessions.failure_text(error)}") from error
        raise


def on_disk(folder: str) -> str:
    """A folder that executors can map files in."""
    if "://" in folder:
        raise InputError(
            f"{folder!r} is no path", remedy="give a folder on a disk that all executors see"
        )
    return store.absolute(folder)
