"""`postroad compare` and `postroad demo`: every scheme on one workload."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from postroad.cli.progress import bars
from postroad.cli.spark import job, on_spark
from postroad.errors import RunFailed

if TYPE_CHECKING:
    from postroad.pipeline.run import Job

OUT = click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("report"),
    show_default=True,
    help="Folder for index.html, results.csv and results.parquet.",
)
FORCE = click.option("--force", is_flag=True, help="Run again what an earlier call has run.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print the figures as one JSON object.")
COLUMNS = ["traffic", "messages", "delay_p90_ms", "state_mean", "stress_max"]


@click.command()
@click.argument("workload", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--schemes", help="Compare only these, separated by commas.")
@click.option("--bulk", is_flag=True, help="Count on Spark instead of simulating: for any size.")
@OUT
@on_spark
@FORCE
@JSON
def compare(
    workload: Path, schemes: str | None, bulk: bool, out: Path, as_json: bool, **told: Any
) -> None:
    """Run every scheme on one workload and write a page that says which to run."""
    named = None if schemes is None else [name.strip() for name in schemes.split(",")]
    _compare(workload, named, out, job(told, light=not bulk, bar=bulk), as_json, bulk)


@click.command()
@click.option("--quick", is_flag=True, help="A small network, to see that all is installed.")
@OUT
@on_spark
@FORCE
@JSON
def demo(quick: bool, out: Path, as_json: bool, **told: Any) -> None:
    """Compare every scheme on the workload that comes with the package."""
    name = "demo_quick.toml" if quick else "demo.toml"
    with as_file(files("postroad.comparison") / name) as path:
        _compare(path, None, out, job(told, light=True), as_json)


def _compare(
    workload: Path, schemes: list[str] | None, out: Path, where: Job, as_json: bool,
    bulk: bool = False,
) -> None:  # fmt: skip
    from postroad.comparison import bulk as counting
    from postroad.comparison import perform, settings
    from postroad.comparison.verdict import judge, problems
    from postroad.pipeline import store
    from postroad.report.compare_page import page

    comparison = settings.load(workload, schemes)
    with bars(transient=False) as progress:
        tasks = {"starting Spark": progress.add_task("starting Spark", total=None)}

        def report(word: str, done: int, total: int) -> None:
            if word not in tasks:
                for earlier in tasks.values():
                    progress.remove_task(earlier)
                tasks.clear()
                tasks[word] = progress.add_task(word, total=total)
            progress.update(tasks[word], completed=min(done, total), total=total)

        with store.locked(str(out), where.command):
            if bulk:
                results = counting.compare(comparison, out, where)
            else:
                results = perform.perform(comparison, out, where, report)
            target = out / "index.html"
            partial = out / ".index.html.part"
            partial.write_text(page(results), encoding="utf-8")
            partial.replace(target)
    judgement = judge(results.outcomes, comparison.matters, results.conditions)
    wrong = problems(results.outcomes)
    if as_json:
        click.echo(json.dumps(_facts(results, judgement, wrong, target)))
    else:
        _show(results, judgement, wrong, target)
    if all(outcome.error is not None for outcome in results.outcomes):
        raise RunFailed("every scheme failed")


def _facts(results: Any, judgement: Any, wrong: list[str], target: Path) -> dict[str, Any]:
    return {
        "verdict": judgement.text.replace("**", ""),
        "best": None if judgement.best is None else judgement.best.label,
        "out": judgement.out,
        "problems": wrong,
        "quarantined": len(results.bad),
        "page": str(target),
        "schemes": {
            outcome.label: {"error": outcome.error}
            if outcome.error is not None
            else {
                "parameters": dict(outcome.parameters),
                **{name: outcome.figure(name).mean for name in outcome.values},
            }
            for outcome in results.outcomes
        },
    }


def _show(results: Any, judgement: Any, wrong: list[str], target: Path) -> None:
    from postroad.comparison.verdict import shown
    from postroad.report.compare_page import SHORT

    overlay, size = results.scenario.overlay, results.size
    click.echo(
        f"{overlay.brokers_count:,} brokers, {size.subscriptions:,} subscriptions, "
        f"{size.publications:,} publications × {results.comparison.replicates}"
    )
    table = Table("scheme")
    for name in COLUMNS:
        table.add_column(SHORT[name].replace(", ", "\n"), justify="right")
    for outcome in results.outcomes:
        if outcome.error is not None:
            table.add_row(outcome.label, "failed", *[""] * (len(COLUMNS) - 1))
            continue
        figures = [outcome.figure(name) for name in COLUMNS]
        table.add_row(outcome.label, *(shown(one) for one in figures))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    if results.bad:
        click.echo(
            f"bad rows left out: {len(results.bad):,}, see {target.parent / 'quarantine.csv'}"
        )
    for problem in wrong:
        click.echo(f"! {problem}")
    click.echo(judgement.text.replace("**", ""))
    click.echo(f"The page: {target}")
    if judgement.best is not None:
        report = shlex.quote(str(target.parent))
        click.echo(
            f"To run {judgement.best.label}: postroad network init {report} -o network.toml "
            "&& postroad network up network.toml"
        )
