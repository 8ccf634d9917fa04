"""`postroad reproduce …`: a paper's tables and figures, with ours beside."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import Progress

from postroad.errors import InputError, RunFailed

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def reproduce() -> None:
    """Regenerate a paper's tables and figures."""


def _options(name: str, modes: str) -> Callable[[Command], Command]:
    """The options that all papers share."""
    options = [
        click.option("--quick/--full", default=True, help=modes),
        click.option(
            "--out",
            type=click.Path(path_type=Path, file_okay=False),
            default=Path("results") / name,
            show_default=True,
            help="Folder for results.csv, the page and the figures.",
        ),
        click.option(
            "--page",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Where to write the page, if not to page.md in that folder.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            default=os.cpu_count() or 1,
            show_default="one per core",
            help="Processes.",
        ),
    ]

    def apply(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def _run(
    run_point: Callable[[Any], dict[str, Any]], todo: Sequence[Any], workers: int, word: str
) -> tuple[list[dict[str, Any]], float, float]:
    """All runs under a progress bar; seconds that passed, and seconds of processor time."""
    from postroad.papers.processes import run_rows

    began, busy = perf_counter(), _processor_s()
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(word, total=len(todo))
        found = run_rows(run_point, todo, workers, lambda: progress.advance(task))
    return found, perf_counter() - began, _processor_s() - busy


def _sweep(
    entry: str, todo: Sequence[dict[str, Any]], out: Path, workers: int, force: bool
) -> tuple[list[dict[str, Any]], float, int]:
    """All rows through the Spark sweep; seconds that passed, and how many rows were left to run."""
    from postroad.pipeline.run import Job, cases

    began, ran = perf_counter(), 0
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("starting Spark", total=len(todo))

        def report(done: int, total: int) -> None:
            nonlocal ran
            ran = ran or total - done
            progress.update(task, description="routing", completed=done)

        job = Job(f"local[{workers}]", force=force, command="postroad reproduce")
        found = cases(entry, todo, str(out / "sweep"), job, report=report)
    for row, (_, error) in zip(todo, found, strict=True):
        if error is not None:
            raise RunFailed(f"the point {row} failed: {error}; call again to run only what failed")
    rows = [{**row, **metrics} for row, (metrics, _) in zip(todo, found, strict=True)]
    return rows, perf_counter() - began, ran


def _processor_s() -> float:
    """Seconds that this process and its ended children have spent computing."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _make_folders(*folders: Path) -> None:
    for needed in folders:
        try:
            needed.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the folder {str(needed)!r}: {error.strerror}",
                remedy="choose --out and --page",
            ) from None


@reproduce.command("subscription-forwarding-model")
@_options("subscription-forwarding-model", "Few seeds per point (default), or all 50.")
def subscription_forwarding_model(quick: bool, out: Path, page: Path | None, workers: int) -> None:
    """Tables 2 to 7 and Figures 4 to 10 of the cost model of subscription forwarding."""
    from postroad.papers.subscription_forwarding_model import beyond, pictures, runs
    from postroad.report import cost_page
    from postroad.report.figures import cost as figures

    page = page or out / "page.md"
    folder = out / "figures"
    _make_folders(folder, page.parent)
    todo = runs.rows(full=not quick)
    found, took, busy = _run(runs.run_point, todo, workers, "simulating")
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


@reproduce.command()
@_options("beaconvey", "Few points and one seed (default), or all.")
@click.option("--facebook", type=click.Path(path_type=Path), help="Friendships: lines `a b`.")
@click.option("--twitter", type=click.Path(path_type=Path), help="Lines `a b`: a follows b.")
@click.option("--long", type=click.Choice(["chord", "random"]), default="chord", show_default=True)
def beaconvey(
    quick: bool,
    out: Path,
    page: Path | None,
    facebook: Path | None,
    twitter: Path | None,
    long: str,
    workers: int,
) -> None:
    """Tables 3 to 5 and Figures 3 to 8 of BeaConvey.

    The tables need the social graphs; without them only Figures 4 to 8 are made.
    """
    from postroad.papers.beaconvey import runs
    from postroad.report import beaconvey_page
    from postroad.report.figures import beaconvey as figures

    graphs = {name: path for name, path in (("fb", facebook), ("tw", twitter)) if path}
    for path in graphs.values():
        if not path.is_file():
            raise InputError(f"cannot read {str(path)!r}", remedy="check the file's name")
    page = page or out / "page.md"
    folder = out / "figures"
    _make_folders(folder, page.parent)
    todo = runs.rows(not quick, graphs, long)
    found, took, _ = _run(runs.run_point, todo, workers, "routing")
    measured = runs.Measured(found)
    readings = {name: runs.cells(measured, name) for name in runs.READINGS}
    cells, claims = readings["ours"], runs.claims(measured)
    drawn = {
        "figure-4": figures.families(
            measured, "zipf", "overhead", "Figure 4: routing overhead, Zipf"
        ),
        "figure-5": figures.families(
            measured, "zipf", "path_mean", "Figure 5: average path length, Zipf"
        ),
        "figure-6": figures.families(
            measured, "unif", "overhead", "Figure 6: routing overhead, Unif"
        ),
        "figure-7": figures.families(
            measured, "unif", "path_mean", "Figure 7: average path length, Unif"
        ),
        "figure-8": figures.growth(measured),
    }
    if graphs:
        samples = {
            f"{name.upper()} {size}": runs.counts_ccdf(
                runs.interests_of(name, count, 0, str(path), 0)
            )
            for name, path in graphs.items()
            for size, count in (("10K", 10_000), ("all", 10**9))
        }
        drawn = {"figure-3": figures.ccdf(samples), **drawn}
    for name, figure in drawn.items():
        figure.savefig(folder / f"{name}.png", dpi=80)
    with (out / "results.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(
            ["workload", "nodes", "topics", "overlay", "long", "seed", "publications",
             "tco_support", "plan_s", "system", *runs.METRICS]
        )  # fmt: skip
        for row in found:
            shared = [row[key] for key in ("workload", "nodes_found", "topics", "overlay", "long")]
            shared += [row["seed"], row["publications"]]
            shared += [f"{row['tco_support']:.4f}", f"{row['plan_s']:.2f}"]
            for system in runs.SYSTEMS.values():
                name = system.format(row["overlay"])
                values = [f"{row[f'{name}|{metric}']:.4f}" for metric in runs.METRICS]
                writer.writerow([*shared, name, *values])
    plans = [
        {
            "workload": row["workload"],
            "nodes": f"{row['nodes_found']:,}",
            "topics": f"{row['topics'] or row['nodes_found']:,}",
            "overlay": row["overlay"],
            "TcoSuppR": f"{row['tco_support']:.4f}",
        }
        for row in found
        if row["seed"] == 0
    ]
    mode = "quick" if quick else "full"
    how = (
        f"Made by `postroad reproduce beaconvey --{mode} --long {long}`: {len(found)} overlays, "
        f"five systems on each, in {took:.0f} s with {workers} "
        f"process{'es' if workers > 1 else ''}."
    )
    shown = {
        name: Path(os.path.relpath(folder / f"{name}.png", page.parent)).as_posix()
        for name in drawn
    }
    text = beaconvey_page.page(readings, claims, runs.expo(measured), plans, how, shown)
    page.write_text(text, encoding="utf-8")
    for claim in claims:
        click.echo(f"{'holds' if claim.holds else 'DOES NOT HOLD'}: {claim.text} ({claim.numbers})")
    near = beaconvey_page.near(cells)
    click.echo(f"{near} published numbers within {beaconvey_page.FAR:.0%}")
    click.echo(f"{len(found)} overlays in {took:.1f} s; results.csv and figures in {out}, {page}")


@reproduce.command("popsub")
@_options("popsub", "One run per point (default), or 5 x 5.")
@click.option(
    "--latencies",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Square matrix of round trips in ms (CSV, gzip too); without it one is generated.",
)
def popsub(quick: bool, latencies: Path | None, out: Path, page: Path | None, workers: int) -> None:
    """Figures 3a to 3o and 4a to 4d of PopSub."""
    from postroad.papers.popsub import runs
    from postroad.report import popsub_page
    from postroad.report.figures import popsub as figures

    page = page or out / "page.md"
    folder = out / "figures"
    _make_folders(folder, page.parent)
    todo = runs.rows(full=not quick, matrix=latencies)
    picked, place_of = runs.distinct(todo)
    ran, took, busy = _run(runs.run_point, picked, workers, "simulating")
    found = [{**ran[place], **row} for row, place in zip(todo, place_of, strict=True)]
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
        f"{len(ran):,} runs (for {len(found):,} points; equal ones run once) in {took:.0f} s with "
        f"{workers} processes, {busy:.0f} s of processor time."
    )
    shown = Path(os.path.relpath(folder, page.parent)).as_posix()
    topologies, ratios = runs.queues_by_topology(found), runs.delivery_ratios(found)
    made = popsub_page.page(table, claims, topologies, ratios, how, shown)
    page.write_text(made, encoding="utf-8")
    for claim in claims:
        click.echo(
            f"Figure {claim.figure}: {claim.claim}: paper {claim.paper:g}{claim.unit}, "
            f"measured {claim.measured:.3g}{claim.unit}"
        )
    click.echo(f"{len(ran):,} runs in {took:.1f} s; results in {out}, page {page}")


@reproduce.command("kyra")
@_options("kyra", "One network and few points (default), or 4 networks x 2 seeds.")
@click.option("--force", is_flag=True, help="With --full: run again what an earlier call has run.")
def kyra(quick: bool, out: Path, page: Path | None, workers: int, force: bool) -> None:
    """Tables I to IV and Figures 7 and 10 to 16 of Kyra.

    --full is a Spark sweep on this machine; one that was stopped goes on where it was.
    """
    from postroad.papers.kyra import alpha, runs
    from postroad.report import kyra_page
    from postroad.report.figures import kyra as figures

    page = page or out / "page.md"
    folder = out / "figures"
    _make_folders(folder, page.parent)
    todo = runs.rows(full=not quick)
    if quick:
        found, took, _ = _run(runs.run_point, todo, workers, "routing")
        how = f"{workers} process{'es' if workers > 1 else ''}"
    else:
        found, took, ran = _sweep("postroad.papers.kyra.runs:sweep_case", todo, out, workers, force)
        how = f"a Spark sweep on {workers} cores, {ran:,} of the points run then"
    results = runs.Results(found)
    cells, claims = runs.cells(results), runs.claims(results)
    fit = alpha.fit(*alpha.measure(runs.network(0, 500, 0.0), 0))
    drawn = {
        "figure-7": figures.passed(fit),
        "figure-10": figures.grid(results, "storage", "Figure 10: storage", log=True),
        "figure-11": figures.grid(results, "processing", "Figure 11: processing load"),
        "figure-12": figures.grid(results, "node_mean", "Figure 12: average node stress"),
        "figure-13": figures.grid(results, "link_mean", "Figure 13: average link stress"),
        "figure-14": figures.grid(results, "nru", "Figure 14: NRU"),
        "figure-15": figures.nru(results),
        "figure-16": figures.spread(results),
    }
    for name, figure in drawn.items():
        figure.savefig(folder / f"{name}.png", dpi=80)
    keys = ("kind", "topology", "seed", "distribution", "rate", "clique_ms", "trees", "multi_homed")
    with (out / "results.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow([*keys, "scheme", *runs.METRICS])
        for row in found:
            for scheme in row["schemes"].split():
                values = [row.get(f"{scheme}|{metric}") for metric in runs.METRICS]
                shown = ["" if v is None or v != v else f"{v:.6g}" for v in values]
                writer.writerow([*(row.get(key, "") for key in keys), scheme, *shown])
    mode = "quick" if quick else "full"
    how = (
        f"Made by `postroad reproduce kyra --{mode}`: {len(found):,} points in {took:.0f} s with "
        f"{how}."
    )
    pictures = {
        name: Path(os.path.relpath(folder / f"{name}.png", page.parent)).as_posix()
        for name in drawn
    }
    page.write_text(kyra_page.page(cells, claims, fit, results, how, pictures), encoding="utf-8")
    for claim in claims:
        click.echo(f"{'holds' if claim.holds else 'DOES NOT HOLD'}: {claim.text} ({claim.numbers})")
    near = sum(abs(cell.off) <= kyra_page.FAR for cell in cells)
    click.echo(f"{near} of {len(cells)} published numbers within {kyra_page.FAR:.0%}")
    click.echo(f"{len(found):,} points in {took:.1f} s; results.csv and figures in {out}, {page}")


@reproduce.command("pop-grape")
@_options("pop-grape", "Few small runs (default), or all points, twice, at full length.")
@click.option(
    "--quotes",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Daily OHLCV quotes (CSV, gzip too); without them a series is generated.",
)
@click.option(
    "--latencies",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Square matrix of round trips in ms (CSV, gzip too); without it one is generated.",
)
def pop_grape(
    quick: bool,
    quotes: Path | None,
    latencies: Path | None,
    out: Path,
    page: Path | None,
    workers: int,
) -> None:
    """Figures 5 to 7 of POP and GRAPE."""
    from postroad.papers.pop_grape import runs
    from postroad.report import pop_grape_page
    from postroad.report.figures import pop_grape as figures

    page = page or out / "page.md"
    folder = out / "figures"
    _make_folders(folder, page.parent)
    todo = runs.rows(not quick, quotes, latencies)
    found, took, busy = _run(runs.run_point, todo, workers, "simulating")
    table = runs.means(found)
    claims = runs.claims(table)
    for name, (_, axis, metrics) in pop_grape_page.SHOWN.items():
        drawn = (
            figures.weights(table, metrics)
            if name == "weights"
            else figures.panels(table, name, axis, metrics)
        )
        drawn.savefig(folder / f"{name.replace(' ', '-')}.png", dpi=80)
    with (out / "results.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["table", "row", "column", "paper", "measured"])
        writer.writerows(
            [f"figure {c.figure}", c.claim, "%", f"{c.paper:g}", f"{c.measured:.6g}"]
            for c in claims
        )
        for (experiment, value, method), metrics_of in table.items():
            writer.writerows(
                [experiment, f"{value:g} {method}", metric, "", f"{measured:.6g}"]
                for metric, measured in metrics_of.items()
            )
    sources = [
        "generated quotes" if quotes is None else quotes.name,
        "a generated latency matrix" if latencies is None else latencies.name,
    ]
    how = (
        f"Made by `postroad reproduce pop-grape --{'quick' if quick else 'full'}` with "
        f"{' and '.join(sources)}: {len(found):,} runs in {took:.0f} s with {workers} processes, "
        f"{busy:.0f} s of processor time."
    )
    shown = Path(os.path.relpath(folder, page.parent)).as_posix()
    page.write_text(pop_grape_page.page(table, claims, how, shown), encoding="utf-8")
    for claim in claims:
        click.echo(
            f"Figure {claim.figure}: {claim.claim}: paper {claim.paper:g}%, "
            f"measured {claim.measured:.3g}%"
        )
    lost = sum(row["lost"] + row["twice"] for row in found)
    click.echo(f"{len(found):,} runs in {took:.1f} s; results in {out}, page {page}")
    if lost:
        raise RunFailed(f"{lost:g} publications were lost or delivered twice")
