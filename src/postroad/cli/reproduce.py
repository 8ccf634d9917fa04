"""`postroad reproduce …`: a paper's tables and figures, with ours beside."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress

from postroad.cli.spark import job, on_spark
from postroad.errors import InputError, RunFailed

if TYPE_CHECKING:
    from postroad.papers import Measures
    from postroad.pipeline.run import Job
    from postroad.report.papers import Asked, Paper, Rows

FILE = click.Path(path_type=Path, dir_okay=False)


class Papers(click.Group):
    """A command for each record of `report.papers`, made when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from postroad.report.papers import papers

        return list(papers())

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        from postroad.report.papers import papers

        paper = papers().get(name)
        return None if paper is None else _command(name, paper)


@click.group(cls=Papers)
def reproduce() -> None:
    """Regenerate a paper's tables and figures."""


def _command(name: str, paper: Paper) -> click.Command:
    out = Path("results") / name
    parameters: list[click.Parameter] = [
        click.Option(["--quick/--full"], default=True, help=paper.modes),
        click.Option(
            ["-o", "--out"],
            type=click.Path(path_type=Path, file_okay=False),
            default=out,
            show_default=True,
            help="Folder for results.csv, the page and the figures.",
        ),
        click.Option(
            ["--page"], type=FILE, help="Where to write the page, if not to page.md in that folder."
        ),
        click.Option(
            ["--workers"],
            type=click.IntRange(min=1),
            default=os.cpu_count() or 1,
            show_default="one per core",
            help="Cores for a local Spark sweep.",
        ),
        click.Option(
            ["--force"], is_flag=True, help="Run again what an earlier call to this folder has run."
        ),
        *(click.Option([f"--{file}"], type=FILE, help=help) for file, help in paper.files.items()),
        *(
            click.Option(
                [f"--{choice}"], type=click.Choice(list(known)), default=known[0], show_default=True
            )
            for choice, known in paper.choices.items()
        ),
    ]

    @on_spark
    def callback(**options: Any) -> None:
        from postroad.pipeline import store
        from postroad.pipeline.session import is_submitted
        from postroad.report.papers import Asked

        files = {file: options[file].resolve() for file in paper.files if options[file] is not None}
        for path in files.values():
            if not path.is_file():
                raise InputError(f"cannot read {str(path)!r}", remedy="check the file's name")
        choices = {choice: options[choice] for choice in paper.choices}
        asked = Asked(not options["quick"], files, choices)
        page = options["page"] or options["out"] / "page.md"
        workers, where = options["workers"], job(options, light=True)
        alone = where.master is None and not is_submitted()
        if alone:
            where = replace(where, master=f"local[{workers}]")
        with store.locked(str(options["out"]), where.command):
            _reproduce(name, paper, asked, options["out"], page, where)

    return click.command(name, params=parameters, help=paper.about)(callback)


def _reproduce(name: str, paper: Paper, asked: Asked, out: Path, page: Path, where: Job) -> None:
    todo = paper.rows(asked)
    folder = out / "figures"
    for needed in (folder, page.parent):
        try:
            needed.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the folder {str(needed)!r}: {error.strerror}",
                remedy="choose --out and --page",
            ) from None
    began = perf_counter()
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("starting Spark", total=len(todo))

        def report(done: int) -> None:
            progress.update(task, description=name, completed=done)

        rows, ran, measured = _sweep(paper, asked, todo, out, where, report)
    took = perf_counter() - began
    findings = paper.findings(rows, measured, asked)
    for title, figure in findings.figures.items():
        figure.savefig(folder / f"{title}.png", dpi=80)
    with (out / "results.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(findings.results)
    mode = "full" if asked.full else "quick"
    words = [f"--{mode}", *(f"--{key} {value}" for key, value in asked.choices.items())]
    sources = f" with {' and '.join(path.name for path in asked.files.values())}"
    how = (
        f"Made by `postroad reproduce {name} {' '.join(words)}`{sources if asked.files else ''}: "
        f"{len(todo):,} runs, {ran:,} of them in the last call, which took {took:.0f} s on "
    )
    local = re.fullmatch(r"local\[(\d+)\]", where.master or "")
    how += ("1 core" if local[1] == "1" else f"{local[1]} cores") if local else "a Spark cluster"
    how += ", Spark's start included."
    shown = Path(os.path.relpath(folder, page.parent)).as_posix()
    page.write_text(findings.page(how, shown), encoding="utf-8")
    for line in findings.summary:
        click.echo(line)
    click.echo(f"{len(todo):,} runs in {took:.1f} s; results.csv and figures in {out}, page {page}")
    if findings.failure is not None:
        raise RunFailed(findings.failure)


def _sweep(
    paper: Paper,
    asked: Asked,
    todo: Rows,
    out: Path,
    where: Job,
    report: Callable[[int], None],
) -> tuple[Rows, int, Measures]:
    """All rows as a sweep, how many were left to run, and the measures; an earlier sweep is gone
    on with."""
    from postroad.papers import read
    from postroad.pipeline import store
    from postroad.pipeline.run import cases, measure
    from postroad.pipeline.session import kept

    ran = 0

    def progressed(done: int, total: int) -> None:
        nonlocal ran
        ran = ran or total - done
        report(done)

    inputs = {str(path): store.fingerprint(str(path)) for path in asked.files.values()}
    folder = str(out / "sweep")
    with kept():
        outcomes = cases(paper.run, todo, folder, where, inputs=inputs, report=progressed)
        for row, (_, error) in zip(todo, outcomes, strict=True):
            if error is not None:
                again = "call again to run only what failed"
                raise RunFailed(f"the point {row} failed: {error}; {again}")
        settings = [one.case() for one in paper.replicates(asked)]
        measure(
            store.join(folder, "runs"), folder, where, cases=settings, baselines=paper.baselines
        )
    rows = [{**row, **metrics} for row, (metrics, _) in zip(todo, outcomes, strict=True)]
    return rows, ran, read(folder)
