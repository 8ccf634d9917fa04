"""The options of every command that may start Spark."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from postroad.pipeline.run import Job

Command = Callable[..., Any]


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


def job(options: dict[str, Any], light: bool = False) -> Job:
    """Where Spark runs and whether to redo, taken out of the arguments of `on_spark`."""
    from postroad.pipeline.run import Job

    return Job(
        master=options.pop("master"),
        conf=tuple(options.pop("conf")),
        force=options.pop("force", False),
        command=shlex.join(["postroad", *sys.argv[1:]]),
        light=light,
    )
