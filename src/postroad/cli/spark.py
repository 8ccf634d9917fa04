"""The options of every command that may start Spark."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from postroad.pipeline.run import Job

Command = Callable[..., Any]
LONG_S = 3.0


class Stages:
    """A bar with the time left for each stage that takes more than a few seconds."""

    def __init__(self) -> None:
        self.begun: dict[int, float] = {}

    def tell(self, number: int, done: int, total: int) -> None:
        now = time.monotonic()
        begun = self.begun.setdefault(number, now)
        if now - begun < LONG_S:
            return
        left = f", {(now - begun) / done * (total - done):,.0f} s left" if done else ""
        end = "\n" if done == total else ""
        text = f"stage {number}: {done:,} of {total:,} tasks{left}"
        print(f"\r\x1b[K{text}", end=end, file=sys.stderr, flush=True)


def on_spark(command: Command) -> Command:
    """`--master` and `--conf`; `job` takes them from the command's arguments."""
    for option in (
        click.option(
            "--conf", multiple=True, metavar="K=V", help="A setting of Spark; may be repeated."
        ),
        click.option(
            "--master", help="Where Spark runs: by default as spark-submit says, else local[*]."
        ),
    ):
        command = option(command)
    return command


def job(options: dict[str, Any], light: bool = False, bar: bool = False) -> Job:
    """Where Spark runs and whether to redo, taken out of the arguments of `on_spark`. With `bar`,
    stages that take long are shown on a terminal."""
    from postroad.pipeline.run import Job

    return Job(
        master=options.pop("master"),
        conf=tuple(options.pop("conf")),
        force=options.pop("force", False),
        command=shlex.join(["postroad", *sys.argv[1:]]),
        light=light,
        tell=Stages().tell if bar and sys.stderr.isatty() else None,
    )
