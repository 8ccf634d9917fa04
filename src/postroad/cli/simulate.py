"""`postroad simulate`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console
from rich.table import Table

from postroad.cli.progress import bar
from postroad.errors import InputError, RunFailed

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("scenario", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print the counters as one JSON object.")
@click.option("--check", is_flag=True, help="Compare with a brute-force oracle; exit 1 if unlike.")
@click.option("--deliveries", type=FILE, help="Write one JSON line per delivery.")
@click.option("--counters", type=FILE, help="Write one JSON line per broker and per link.")
@click.option("--trace", type=FILE, help="Write every input and effect as readable lines.")
@click.option(
    "--traces",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write what happened to a folder, in the schema of live brokers (docs/traces.md).",
)
@click.option("--sample", default=1.0, show_default=True, help="Of publications, in --traces.")
def simulate(
    scenario: Path,
    as_json: bool,
    check: bool,
    deliveries: Path | None,
    counters: Path | None,
    trace: Path | None,
    traces: Path | None,
    sample: float,
) -> None:
    """Simulate one network under one scheme and report its counters."""
    from postroad.overlay.transit_stub import places
    from postroad.sim.oracle import compare
    from postroad.sim.run import run
    from postroad.sim.scenario import load
    from postroad.sim.tracing import to_folder
    from postroad.sim.transcript import transcribe

    settings = load(scenario)
    for what, rows in (
        ("subscription", settings.workload.subscriptions),
        ("publication", settings.workload.postings),
    ):
        if not rows:
            place = _place(scenario, f"{what}s")
            click.echo(f"postroad: warning: there is no {what} in {place}", err=True)
    names = settings.overlay.names
    with ExitStack() as stack:
        # Every file is opened before the run, so a wrong name is told at once.
        outputs = {
            path: stack.enter_context(written(path))
            for path in (deliveries, counters, trace)
            if path is not None
        }
        observer = transcribe(outputs[trace].write, places(settings.overlay)) if trace else None
        tracing = None if traces is None else to_folder(settings, traces, sample)
        with bar("inputs") as progress:
            result = run(settings, observer, tracing=tracing, progress=progress)
        if tracing is not None and tracing.files is not None and tracing.files.error is not None:
            raise RunFailed(f"traces were not written: {tracing.files.error}")
        if deliveries:
            for (publisher, number), subscription, broker, time_us, hops, via in result.deliveries:
                row = {
                    "publication": f"{publisher}/{number}",
                    "subscription": subscription,
                    "broker": names[broker],
                    "time_us": time_us,
                    "hops": hops,
                    "via": via,
                }
                outputs[deliveries].write(json.dumps(row) + "\n")
        if counters:
            for row in result.counters():
                outputs[counters].write(json.dumps(row) + "\n")
    for time_us, broker, note in result.notes if settings.hand_overs else ():
        if note.startswith("dropped: seat "):
            moment = f"the hand-over at {time_us / 1_000_000:g} s, told to {names[broker]}"
            click.echo(f"postroad: warning: {moment}, was {note}", err=True)
    summary = result.summary()
    if as_json:
        click.echo(json.dumps(summary))
    else:
        _show(summary)
    if check:
        compare(
            settings, [delivery[:2] for delivery in result.deliveries], result.refused
        ).require()
        if not as_json:
            click.echo("deliveries equal the oracle's")


def _place(scenario: Path, table: str) -> Path:
    """Where a table of the workload is to stand: in the scenario, or in a file that it names."""
    from postroad.settings import toml

    name = toml.read(scenario).section("workload").any(table)
    return scenario.parent / name if isinstance(name, str) else scenario


def _show(summary: dict[str, Any]) -> None:
    table = Table(show_header=False)
    for key, value in summary.items():
        if isinstance(value, dict):
            value = ", ".join(
                f"{name} {item:,.2f}" if isinstance(item, float) else f"{name} {item:,}"
                for name, item in value.items()
            )
        table.add_row(key, f"{value:,}" if isinstance(value, int) else value)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


@contextmanager
def written(path: Path) -> Iterator[IO[str]]:
    """A file that appears whole under its name, or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file
        os.replace(part, path)
    except OSError as error:
        raise InputError(
            f"cannot write {str(path)!r}: {error.strerror}", remedy="choose another place"
        ) from None
    finally:
        part.unlink(missing_ok=True)
