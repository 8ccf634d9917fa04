"""`postroad reproduce …`: a paper's tables and figures, with ours beside."""

from __future__ import annotations

import csv
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress

from postroad import __version__
from postroad.cli.spark import job, on_spark
from postroad.errors import InputError, RunFailed

if TYPE_CHECKING:
    from postroad.papers import Replicate
    from postroad.pipeline.run import Job
    from postroad.report.papers import Asked, Findings, Paper, Rows

FILE = click.Path(path_type=Path, dir_okay=False)
ALL = "all"
CASE = ("entry", "row")
DOTS_PER_INCH = 110
RECENT = 50  # reports by which the time left is told: runs of papers differ in length
TOLD_EVERY_S = 30.0  # without a terminal


class Papers(click.Group):
    """A command for each record of `report.papers`, made when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from postroad.report.papers import papers

        return [*papers(), ALL]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        from postroad.report.papers import papers

        if name == ALL:
            return _all_command(papers())
        paper = papers().get(name)
        return None if paper is None else _command(name, paper)


@click.group(cls=Papers)
def reproduce() -> None:
    """Regenerate a paper's tables and figures."""


def _options(modes: str, out: Path, page: str, files: Mapping[str, str]) -> list[click.Parameter]:
    return [
        click.Option(["--quick/--full"], default=True, help=modes),
        click.Option(
            ["-o", "--out"],
            type=click.Path(path_type=Path, file_okay=False),
            default=out,
            show_default=True,
            help="Folder for results.csv, the page and the figures.",
        ),
        click.Option(["--page"], type=FILE, help=page),
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
        *(click.Option([f"--{file}"], type=FILE, help=help) for file, help in files.items()),
    ]


def _where(options: Mapping[str, Any]) -> Job:
    """Where the sweep runs: on the cluster that was asked for, else on this machine's cores."""
    from postroad.pipeline.session import is_submitted

    where = job(dict(options), light=True)
    if where.master is None and not is_submitted():
        return replace(where, master=f"local[{options['workers']}]")
    return where


def _files(names: Iterable[str], options: Mapping[str, Any]) -> dict[str, Path]:
    files = {name: options[name].resolve() for name in names if options[name] is not None}
    for path in files.values():
        if not path.is_file():
            raise InputError(f"cannot read {str(path)!r}", remedy="check the file's name")
    return files


def _command(name: str, paper: Paper) -> click.Command:
    parameters = _options(
        paper.modes,
        Path("results") / name,
        "Where to write the page, if not to page.md in that folder.",
        paper.files,
    )
    parameters += [
        click.Option(
            [f"--{choice}"], type=click.Choice(list(known)), default=known[0], show_default=True
        )
        for choice, known in paper.choices.items()
    ]

    @on_spark
    def callback(**options: Any) -> None:
        from postroad.pipeline import store
        from postroad.report.papers import Asked

        choices = {choice: options[choice] for choice in paper.choices}
        asked = Asked(not options["quick"], _files(paper.files, options), choices)
        page = options["page"] or options["out"] / "page.md"
        where = _where(options)
        with store.locked(str(options["out"]), where.command):
            _reproduce(name, paper, asked, options["out"], page, where)

    return click.command(name, params=parameters, help=paper.about)(callback)


def _all_command(papers: Mapping[str, Paper]) -> click.Command:
    parameters = _options(
        "Few points of each paper (default), or all.",
        Path("results"),
        "Where to write the page of all, if not to index.md in that folder.",
        {file: help for paper in papers.values() for file, help in paper.files.items()},
    )

    @on_spark
    def callback(**options: Any) -> None:
        from postroad.pipeline import store
        from postroad.report.papers import Asked

        files = _files({file for paper in papers.values() for file in paper.files}, options)
        asked = {
            name: Asked(
                not options["quick"],
                {file: files[file] for file in paper.files if file in files},
                {choice: known[0] for choice, known in paper.choices.items()},
            )
            for name, paper in papers.items()
        }
        page = options["page"] or options["out"] / "index.md"
        where = _where(options)
        with store.locked(str(options["out"]), where.command):
            _reproduce_all(papers, asked, options["out"], page, where)

    about = (
        "All papers in one sweep: their tables and figures, and one page with every published "
        "number beside ours. A call that was stopped goes on where it was."
    )
    return click.command(ALL, params=parameters, help=about)(callback)


def _reproduce(name: str, paper: Paper, asked: Asked, out: Path, page: Path, where: Job) -> None:
    from postroad.papers import read
    from postroad.pipeline.session import kept

    todo = paper.rows(asked)
    _make_folders(out / "figures", page.parent)
    began = perf_counter()
    inputs, folder = asked.files.values(), str(out / "sweep")
    with kept(), _progress(name, len(todo)) as report:
        rows, ran = _sweep(paper.run, todo, folder, inputs, where, report)
        _measure(paper, paper.replicates(asked), folder, folder, where)
    took = perf_counter() - began
    findings = paper.findings(rows, read(folder), asked)
    words = [f"--{_mode(asked)}", *(f"--{key} {value}" for key, value in asked.choices.items())]
    how = _how(f"{name} {' '.join(words)}", asked.files.values(), len(todo), ran, took, where)
    _write(findings, out, page, how)
    for line in findings.summary:
        click.echo(line)
    click.echo(f"{len(todo):,} runs in {took:.1f} s; results.csv and figures in {out}, page {page}")
    if findings.failure is not None:
        raise RunFailed(findings.failure)


def _reproduce_all(
    papers: Mapping[str, Paper], asked: Mapping[str, Asked], out: Path, page: Path, where: Job
) -> None:
    """One sweep of all papers' rows, then each paper's page, and the page of all."""
    from postroad.papers import read
    from postroad.pipeline.session import kept
    from postroad.report import all_page

    rows_of = {name: paper.rows(asked[name]) for name, paper in papers.items()}
    todo: Rows = [
        {"entry": papers[name].run, "row": row} for name, rows in rows_of.items() for row in rows
    ]
    _make_folders(*(out / name / "figures" for name in papers), page.parent)
    began = perf_counter()
    sweep = str(out / "sweep")
    files = {path for each in asked.values() for path in each.files.values()}
    findings: dict[str, Findings] = {}
    with kept(), _progress("papers", len(todo)) as report:
        outcomes, ran = _sweep("postroad.papers:any_case", todo, sweep, files, where, report)
        done = iter(outcomes)
        for name, paper in papers.items():
            replicates = [
                replace(one, row={"entry": paper.run, "row": dict(one.row)})
                for one in paper.replicates(asked[name])
            ]
            measured = str(out / "sweep" / name)
            _measure(paper, replicates, sweep, measured, where)
            rows = [
                {**row, **{key: value for key, value in outcome.items() if key not in CASE}}
                for row, outcome in zip(rows_of[name], done, strict=False)
            ]
            findings[name] = paper.findings(rows, read(measured), asked[name])
    took = perf_counter() - began
    mode = _mode(next(iter(asked.values())))
    how = _how(f"{ALL} --{mode}", files, len(todo), ran, took, where)
    for name, each in findings.items():
        _write(each, out / name, out / f"{name}.md", how)
        click.echo(all_page.summary(name, each))
    shown = Path(os.path.relpath(out, page.parent)).as_posix()
    page.write_text(all_page.page(findings, how, "" if shown == "." else f"{shown}/"), "utf-8")
    click.echo(f"{len(todo):,} runs in {took:.1f} s; pages, tables and figures in {out}")
    wrong = [f"{name}: {each.failure}" for name, each in findings.items() if each.failure]
    if wrong:
        raise RunFailed("; ".join(wrong))


def _mode(asked: Asked) -> str:
    return "full" if asked.full else "quick"


def _how(command: str, files: Iterable[Path], runs: int, ran: int, took: float, where: Job) -> str:
    names = sorted(path.name for path in files)
    how = (
        f"Made by `postroad reproduce {command}`"
        f"{' with ' + ' and '.join(names) if names else ''}, version {__version__}: "
        f"{runs:,} runs, {ran:,} of them in the last call, which took {took:.0f} s on "
    )
    local = re.fullmatch(r"local\[(\d+)\]", where.master or "")
    how += ("1 core" if local[1] == "1" else f"{local[1]} cores") if local else "a Spark cluster"
    return how + ", Spark's start included."


def _make_folders(*folders: Path) -> None:
    for needed in folders:
        try:
            needed.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the folder {str(needed)!r}: {error.strerror}",
                remedy="choose --out and --page",
            ) from None


def _write(findings: Findings, out: Path, page: Path, how: str) -> None:
    """results.csv and the figures into a folder, and the page that shows them."""
    folder = out / "figures"
    for title, figure in findings.figures.items():
        figure.savefig(folder / f"{title}.png", dpi=DOTS_PER_INCH)
    with (out / "results.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(findings.results)
    shown = Path(os.path.relpath(folder, page.parent)).as_posix()
    page.write_text(findings.page(how, shown), encoding="utf-8")


@contextmanager
def _progress(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with the time left on a terminal; elsewhere a line now and then."""
    console = Console(stderr=True)
    told = perf_counter()
    seen: deque[tuple[float, int]] = deque(maxlen=RECENT)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("starting Spark", total=total)

        def report(done: int) -> None:
            nonlocal told
            progress.update(task, description=name, completed=done)
            now = perf_counter()
            seen.append((now, done))
            began, first = seen[0]
            if not console.is_terminal and now - told > TOLD_EVERY_S and done > first:
                told = now
                left_s = (now - began) / (done - first) * (total - done)
                click.echo(
                    f"{done:,} of {total:,} runs, about {left_s / 60:.0f} min left", err=True
                )

        yield report


def _sweep(
    entry: str,
    todo: Rows,
    folder: str,
    files: Iterable[Path],
    where: Job,
    report: Callable[[int], None],
) -> tuple[Rows, int]:
    """All rows with what they measured, and how many were left to run; an earlier sweep is gone
    on with."""
    from postroad.pipeline import store
    from postroad.pipeline.run import cases

    ran = 0

    def progressed(done: int, total: int) -> None:
        nonlocal ran
        ran = ran or total - done
        report(done)

    inputs = {str(path): store.fingerprint(str(path)) for path in sorted(files)}
    outcomes = cases(entry, todo, folder, where, inputs=inputs, report=progressed)
    for row, (_, error) in zip(todo, outcomes, strict=True):
        if error is not None:
            again = "call again to run only what failed"
            raise RunFailed(f"the point {row} failed: {error}; {again}")
    return [{**row, **metrics} for row, (metrics, _) in zip(todo, outcomes, strict=True)], ran


def _measure(
    paper: Paper, replicates: Iterable[Replicate], sweep: str, folder: str, where: Job
) -> None:
    from postroad.pipeline import store
    from postroad.pipeline.run import measure

    settings = [one.case() for one in replicates]
    measure(store.join(sweep, "runs"), folder, where, cases=settings, baselines=paper.baselines)
