"""`postroad replay`: a recorded stretch again, under any scheme, with any change."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from postroad.checking.findings import plural
from postroad.cli.progress import bar
from postroad.cli.spark import job, on_spark
from postroad.errors import InputError, RunFailed

if TYPE_CHECKING:
    from postroad.replay.recorded import Recorded
    from postroad.replay.report import Fidelity
    from postroad.replay.whatif import Changes

FOLDER = click.Path(path_type=Path)
UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000}


@click.command()
@click.argument("traces", type=FOLDER)
@click.option("--trace-id", help="Which network or run, if the files hold several.")
@click.option("--scheme", help="Another scheme than the recorded one.")
@click.option("--parameters", multiple=True, metavar="KEY=VALUE", help="Of the scheme; repeatable.")
@click.option("--plan", type=FOLDER, help="What `postroad plan` wrote for the scheme.")
@click.option("--without", multiple=True, metavar="BROKER", help="This broker is gone.")
@click.option("--link", "links", multiple=True, metavar="A-B=30ms", help="A link takes so long.")
@click.option("--move", "moves", multiple=True, metavar="PUBLISHER=BROKER", help="Elsewhere.")
@click.option("--add", "added", multiple=True, metavar="BROKER", help="A new broker; needs --to.")
@click.option("--to", multiple=True, metavar="BROKER[=5ms]", help="What --add is joined to.")
@click.option("--grow", metavar="subscriptions=2x,publications=3x", help="More of the same.")
@click.option("--link-mbit", type=float, help="What a link carries, in Mbit/s, for capacity.")
@click.option("--compare", is_flag=True, help="Every scheme on this workload, as a page in -o.")
@click.option("-o", "--out", type=FOLDER, help="Write the scenario, or the comparison, here.")
@click.option("--check", is_flag=True, help="Exit 1 if the replay differs from what was recorded.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@on_spark
def replay(
    traces: Path,
    trace_id: str | None,
    scheme: str | None,
    parameters: tuple[str, ...],
    plan: Path | None,
    without: tuple[str, ...],
    links: tuple[str, ...],
    moves: tuple[str, ...],
    added: tuple[str, ...],
    to: tuple[str, ...],
    grow: str | None,
    link_mbit: float | None,
    compare: bool,
    out: Path | None,
    check: bool,
    as_json: bool,
    **spark: Any,
) -> None:
    """Simulate a recorded stretch again, as it was or changed.

    TRACES is a folder or file of traces, of live brokers or of `postroad simulate --traces`.
    """
    from postroad.cli.compare import _compare as perform
    from postroad.replay import announced, export, report, whatif
    from postroad.replay import recorded as recordings
    from postroad.routing import SCHEMES
    from postroad.sim.run import run
    from postroad.traces import files

    rows, about = files.read(traces, trace_id)
    recorded = recordings.from_rows(rows, plan)
    warnings = [*_reading_warnings(about), *recorded.warnings]
    changes = _changes(without, links, moves, added, to, grow)
    changed, assumptions = whatif.apply(recorded.scenario, changes)
    changed = whatif.under(changed, scheme, parameters, plan)
    differs = changed is not recorded.scenario
    if differs or compare or out is not None:
        given = changed.workload
        changed = announced.in_time(changed)
        if SCHEMES[changed.scheme].advertisements and changed.workload != given:
            assumptions.append(
                "publishers advertise well before they publish, and until well after"
            )
    if compare:
        folder = out or Path("report")
        export.write(changed, folder)
        perform(folder / "comparison.toml", None, folder, job(spark), as_json)
        return
    if out is not None:
        export.write(changed, out)
    with bar("as it was") as progress:
        before = run(recorded.scenario, progress=progress)
    with bar("exactly as it was") as progress:
        same = report.fidelity(recorded, run(recorded.exact, progress=progress), before)
    after = before
    if differs:
        with bar("changed") as progress:
            after = run(changed, progress=progress)
    carried = None if link_mbit is None else link_mbit * 125_000
    full = report.capacity(after, recorded, carried)
    facts: dict[str, Any] = {
        "scheme": recorded.scenario.scheme,
        "warnings": warnings,
        "fidelity": same.to_json(),
        "before": report.figures(before),
        "service_us": dict(recorded.service_us),
        "capacity": [dataclasses.asdict(row) for row in full[:5]],
    }
    if differs:
        facts["assumptions"] = assumptions
        facts["after"] = report.figures(after)
        facts["after_scheme"] = changed.scheme
        for name, load in (("brokers", report.broker_load), ("links", report.link_load)):
            facts[name] = report.changed_most(load(before), load(after))
    if as_json:
        click.echo(json.dumps(facts))
    else:
        _show(recorded, same, facts)
    if check and not same.same:
        raise RunFailed("the replay differs from what was recorded")


def _reading_warnings(about: Any) -> list[str]:
    """What was wrong with the trace files, as sentences."""
    warnings = []
    if about.repeated:
        warnings.append(f"{about.repeated:,} repeated rows counted once")
    if about.bad:
        warnings.append(f"{len(about.bad):,} bad rows left out, the first {about.bad[0]}")
    for (_, broker, _), count in list(about.gaps.items())[:5]:
        warnings.append(f"{count:,} rows of broker {broker} are missing")
    return warnings


def _changes(
    without: tuple[str, ...],
    links: tuple[str, ...],
    moves: tuple[str, ...],
    added: tuple[str, ...],
    to: tuple[str, ...],
    grow: str | None,
) -> Changes:
    from postroad.replay.recorded import LATENCY_US
    from postroad.replay.whatif import Changes

    if len(added) != len(to):
        raise InputError("--add and --to go together", remedy="give one --to for each --add")
    joined = []
    for name, place in zip(added, to, strict=True):
        broker, _, time = place.partition("=")
        joined.append((name, broker, _time_us("--to", time) if time else LATENCY_US))
    slower = []
    for text in links:
        pair, _, time = text.rpartition("=")
        a, dash, b = pair.partition("-")
        if not dash:
            raise InputError(f"--link is {text!r}", remedy="write it as A-B=30ms")
        slower.append((a, b, _time_us("--link", time)))
    moved = []
    for text in moves:
        publisher, equals, broker = text.rpartition("=")
        if not equals:
            raise InputError(f"--move is {text!r}", remedy="write it as PUBLISHER=BROKER")
        moved.append((publisher, broker))
    factors = {"subscriptions": 1.0, "publications": 1.0}
    for part in grow.split(",") if grow else []:
        name, _, factor = part.strip().partition("=")
        try:
            factors[name] = _known(factors, name, float(factor.removesuffix("x")))
        except (KeyError, ValueError):
            raise InputError(
                f"--grow is {grow!r}", remedy="write it as subscriptions=2x,publications=3x"
            ) from None
    return Changes(
        joined, without, slower, moved, factors["subscriptions"], factors["publications"]
    )


def _known(factors: dict[str, float], name: str, factor: float) -> float:
    if name not in factors:
        raise KeyError(name)
    if not 0 < factor <= 1000:
        raise ValueError(factor)
    return factor


def _time_us(option: str, text: str) -> int:
    for unit in ("us", "ms", "s"):
        number = text.removesuffix(unit)
        if number != text:
            try:
                time_us = round(float(number) * UNITS_US[unit])
            except ValueError:
                break
            if time_us >= 0:
                return time_us
    raise InputError(f"{option}: {text!r} is no time", remedy="give one such as 30ms, 500us or 1s")


def _show(recorded: Recorded, same: Fidelity, facts: dict[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 110)
    scenario = recorded.scenario
    click.echo(
        f"recorded: {plural(scenario.overlay.brokers_count, 'broker')}, {scenario.scheme}, "
        f"{plural(len(scenario.workload.subscriptions), 'subscription')}, "
        f"{plural(len(scenario.workload.postings), 'publication')} "
        f"in {recorded.until_us / 1e6:,.1f} s"
    )
    for warning in facts["warnings"]:
        click.echo(f"! {warning}")
    delays = ", ".join(
        f"{name} {before / 1000:,.1f} ms, replayed {after / 1000:,.1f}"
        for name, (before, after) in same.delays_us.items()
    )
    if same.same:
        deliveries = sum(recorded.deliveries.values())
        click.echo(
            f"replayed: the same {plural(deliveries, 'delivery', 'deliveries')} and the same "
            f"{plural(same.messages_count, 'message')} on every link"
        )
    else:
        click.echo(
            f"replayed: {plural(len(same.missing), 'delivery', 'deliveries')} missing, "
            f"{len(same.extra):,} more, "
            f"{len(same.messages):,} links and kinds of messages with other counts"
        )
        for text in (*same.missing[:3], *same.extra[:3]):
            click.echo(f"  {text}")
        for a, b, kind, before, after in same.messages[:5]:
            click.echo(f"  {a} to {b}: {before:,} {kind} recorded, {after:,} replayed")
    click.echo(f"delays: {delays}")
    if "after" in facts:
        for sentence in facts["assumptions"]:
            click.echo(f"taken for granted: {sentence}")
        table = Table("", facts["scheme"], facts["after_scheme"] + ", changed", "change")
        for name, before in facts["before"].items():
            after = facts["after"][name]
            ratio = f"{(after - before) / before:+.1%}" if before else ""
            table.add_row(name, _number(before), _number(after), ratio)
        console.print(table)
        for kind in ("brokers", "links"):
            rows = facts[kind]
            if rows:
                table = Table(f"{kind} that change most", "messages before", "after")
                for name, before, after in rows:
                    table.add_row(name, _number(before), _number(after))
                console.print(table)
    else:
        table = Table("", facts["scheme"])
        for name, before in facts["before"].items():
            table.add_row(name, _number(before))
        console.print(table)
    if facts["capacity"]:
        first = facts["capacity"][0]
        click.echo(
            f"capacity: {first['name']} is full first, at {first['growth']:,.1f} times this load "
            f"({first['utilisation']:.2%} of its busiest second now)"
        )


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
