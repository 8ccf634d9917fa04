"""`postroad reproduce …`: a paper's tables and figures, with ours beside."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from time import perf_counter

import click
from rich.console import Console
from rich.progress import Progress

from postroad.errors import InputError, RunFailed


@click.group()
def reproduce() -> None:
    """Regenerate a paper's tables and figures."""


@reproduce.command("subscription-forwarding-model")
@click.option("--quick/--full", default=True, help="Few seeds per point (default), or all 50.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results/subscription-forwarding-model"),
    show_default=True,
    help="Folder for results.csv, the page and the figures.",
)
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write the page, if not to page.md in that folder.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    show_default="one per core",
    help="Processes.",
)
def subscription_forwarding_model(quick: bool, out: Path, page: Path | None, workers: int) -> None:
    """Tables 2 to 7 and Figures 4 to 10 of the cost model of subscription forwarding."""
    from postroad.papers.subscription_forwarding_model import beyond, pictures, runs
    from postroad.report import cost_page
    from postroad.report.figures import cost as figures

    page = page or out / "page.md"
    folder = out / "figures"
    _make_folders(folder, page.parent)
    began, busy = perf_counter(), _processor_s()
    todo = runs.rows(full=not quick)
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("simulating", total=len(todo))
        found = runs.run_rows(todo, workers, lambda: progress.advance(task))
    took, busy = perf_counter() - began, _processor_s() - busy
    cells = runs.cells(found)
    verdicts = runs.verdicts(cells)
    checks = beyond.checks(rounds=1000 if quick else 20_000)
    seeds = range(5 if quick else runs.SEEDS_FULL)
    surface = pictures.ratio_surface()
    drawn = {
        "figure-4": figures.load_distribution(
            pictures.load_distribution(pictures.FULL_TREE, seeds), cost_page.FIGURES["figure-4"]
        ),
        "figure-5": figures.load_distribution(
            pictures.load_distribution(pictures.ARBITRARY_TREE, seeds),
            cost_page.FIGURES["figure-5"],
        ),
        "figure-6": figures.ratio_surface(surface),
        "figure-7": figures.ratio_projections(surface),
        "figure-8": figures.zipf_surface(pictures.zipf_surface()),
        "figure-9": figures.level_loads(pictures.level_loads()),
        "figure-10": figures.fanout_sweep(pictures.fanout_sweep()),
    }
    mode = "quick" if quick else "full"
    how = (
        f"Made by `postroad reproduce subscription-forwarding-model --{mode}`: {len(found):,} runs "
        f"in {took:.0f} s with {workers} process{'es' if workers > 1 else ''}, {busy:.0f} s of "
        "processor time."
    )

    for name, figure in drawn.items():
        figure.savefig(folder / f"{name}.png", dpi=80)
    with (out / "results.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["table", "row", "column", "paper", "measured", "standard_error"])
        writer.writerows(
            [c.table, c.row, c.column, c.paper, f"{c.measured:.6g}", f"{c.standard_error:.3g}"]
            for c in cells
        )
        writer.writerows(
            ["beyond", c.scheme, "error of traffic %", "", f"{c.error:.6g}",
             f"{100 * c.standard_error / c.simulated:.3g}"]
            for c in checks
        )  # fmt: skip
    shown = Path(os.path.relpath(folder, page.parent)).as_posix()
    text = cost_page.page(cells, verdicts, checks, beyond.approximations(), how, shown)
    page.write_text(text, encoding="utf-8")

    for verdict in verdicts:
        click.echo(
            f"Table {verdict.table}: "
            f"{'within' if verdict.holds else 'NOT within'} 3%: worst {verdict.worst:.2f}% "
            f"({verdict.worst_cell}); {verdict.below_one} of {verdict.cells} cells below 1%"
        )
    click.echo(
        f"{len(found):,} runs in {took:.1f} s; results.csv and figures in {out}, page {page}"
    )
    unlike = [check.scheme for check in checks if not check.agrees]
    if unlike:
        raise RunFailed(f"the exact model and the simulation differ: {', '.join(unlike)}")


def _processor_s() -> float:
    """Seconds that this process and its ended children have spent computing."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@reproduce.command("popsub")
@click.option("--quick/--full", default=True, help="One run per point (default), or 5 x 5.")
@click.option(
    "--latencies",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Square matrix of round trips in ms (CSV, gzip too); without it one is generated.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results/popsub"),
    show_default=True,
    help="Folder for results.csv, the page and the figures.",
)
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write the page, if not to page.md in that folder.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    show_default="one per core",
    help="Processes.",
)
def popsub(quick: bool, latencies: Path | None, out: Path, page: Path | None, workers: int) -> None:
    """Figures 3a to 3o and 4a to 4d of PopSub."""
    from postroad.papers.popsub import runs
    from postroad.report import popsub_page
    from postroad.report.figures import popsub as figures

    page = page or out / "page.md"
    folder = out / "figures"
    _make_folders(folder, page.parent)
    began, busy = perf_counter(), _processor_s()
    todo = runs.rows(full=not quick, matrix=latencies)
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("simulating", total=len(todo))
        found = runs.run_rows(todo, workers, lambda: progress.advance(task))
    took, busy = perf_counter() - began, _processor_s() - busy
    table = runs.means(found)
    claims = runs.claims(table)
    for experiment in runs.EXPERIMENTS:
        figure = figures.panels(
            table, experiment.name, experiment.field, popsub_page.SHOWN[experiment.name]
        )
        figure.savefig(folder / f"{experiment.name}.png", dpi=80)
    with (out / "results.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["table", "row", "column", "paper", "measured"])
        writer.writerows(
            [f"figure {c.figure}", c.claim, c.unit, f"{c.paper:g}", f"{c.measured:.6g}"]
            for c in claims
        )
        for (experiment_name, value, mechanism), metrics in table.items():
            writer.writerows(
                [experiment_name, f"{value:g} {mechanism}", metric, "", f"{measured:.6g}"]
                for metric, measured in metrics.items()
            )
    source = "a generated latency matrix" if latencies is None else latencies.name
    how = (
        f"Made by `postroad reproduce popsub --{'quick' if quick else 'full'}` with {source}: "
        f"{len(found):,} runs in {took:.0f} s with {workers} processes, {busy:.0f} s of processor "
        "time."
    )
    shown = Path(os.path.relpath(folder, page.parent)).as_posix()
    page.write_text(popsub_page.page(table, claims, how, shown), encoding="utf-8")
    for claim in claims:
        click.echo(
            f"Figure {claim.figure}: {claim.claim}: paper {claim.paper:g}{claim.unit}, "
            f"measured {claim.measured:.3g}{claim.unit}"
        )
    click.echo(f"{len(found):,} runs in {took:.1f} s; results in {out}, page {page}")


def _make_folders(*folders: Path) -> None:
    for needed in folders:
        try:
            needed.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the folder {str(needed)!r}: {error.strerror}",
                remedy="choose --out and --page",
            ) from None
