"""`postroad simulate` and `postroad demo`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from postroad.errors import InputError

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("scenario", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print the counters as one JSON object.")
@click.option("--check", is_flag=True, help="Compare with a brute-force oracle; exit 1 if unlike.")
@click.option("--deliveries", type=FILE, help="Write one JSON line per delivery.")
@click.option("--counters", type=FILE, help="Write one JSON line per broker and per link.")
@click.option("--trace", type=FILE, help="Write every input and effect as readable lines.")
def simulate(
    scenario: Path,
    as_json: bool,
    check: bool,
    deliveries: Path | None,
    counters: Path | None,
    trace: Path | None,
) -> None:
    """Simulate one network under one scheme and report its counters."""
    from postroad.sim.oracle import compare
    from postroad.sim.run import run
    from postroad.sim.scenario import load
    from postroad.sim.transcript import transcribe

    given = load(scenario)
    names = given.overlay.names
    with ExitStack() as stack:
        # Every file is opened before the run, so a wrong name is told at once.
        outputs = {
            path: stack.enter_context(written(path))
            for path in (deliveries, counters, trace)
            if path is not None
        }
        result = run(given, transcribe(outputs[trace].write, names) if trace else None)
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
    summary = result.summary()
    if as_json:
        click.echo(json.dumps(summary))
    else:
        _show(summary)
    if check:
        compare(given, [delivery[:2] for delivery in result.deliveries], result.refused).require()
        if not as_json:
            click.echo("deliveries equal the oracle's")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per scheme.")
def demo(as_json: bool) -> None:
    """Simulate a small broker network under three schemes and compare them."""
    from postroad.routing import SCHEMES
    from postroad.sim.oracle import compare
    from postroad.sim.run import run
    from postroad.sim.scenario import load

    with as_file(files("postroad.sim") / "demo.toml") as path:
        base = load(path)
    console = Console(stderr=True)
    rows: list[dict[str, Any]] = []
    variants = [("flooding", False)]
    for scheme in ("subscription_forwarding", "advertisement_forwarding"):
        variants += [(scheme, False), (scheme, True)]
    for scheme, covering in track(
        variants, "simulating", console=console, disable=not console.is_terminal, transient=True
    ):
        config = SCHEMES[scheme].config(covering=True) if covering else None
        scenario = replace(base, scheme=scheme, config=config)
        result = run(scenario)
        compare(scenario, [delivery[:2] for delivery in result.deliveries]).require()
        rows.append({**result.summary(), "covering": covering})
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    first = rows[0]
    click.echo(
        f"{first['brokers']} brokers, {len(base.workload.subscriptions)} subscriptions, "
        f"{first['publications']} publications, {first['deliveries']} deliveries under each scheme,"
        " all equal to the brute-force oracle's"
    )
    table = Table()
    for name in ("scheme", "covering", "publication\nmessages", "control\nmessages"):
        text = name in ("scheme", "covering")
        table.add_column(name, justify="left" if text else "right", no_wrap=text)
    for name in (
        "pure\nforwards",
        "table entries\nmean / max",
        "hops\nmean",
        "delay ms\np50 / p99",
    ):
        table.add_column(name, justify="right")
    for row in rows:
        sent = row["messages"]
        control = sum(sent.values()) - sent.get("publication", 0)
        entries, delay = row["table_entries"], row["latency_us"]
        table.add_row(
            row["scheme"],
            "yes" if row["covering"] else "no",
            f"{sent.get('publication', 0):,}",
            f"{control:,}",
            f"{row['pure_forwards']:,}",
            f"{entries['mean']:.1f} / {entries['max']}",
            f"{row['hops']['mean']:.2f}",
            f"{delay['p50'] / 1000:.0f} / {delay['p99'] / 1000:.0f}",
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


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
