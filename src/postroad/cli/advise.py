"""`postroad advise …`: what to build, from the cost model, and where publishers should be."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from postroad.checking.findings import plural
from postroad.cli.cost import COUNT, JSON, probabilities, show
from postroad.errors import InputError, RunFailed

if TYPE_CHECKING:
    from postroad.relocation.advice import Advice
    from postroad.workloads.model import Interest


@click.group()
def advise() -> None:
    """Recommend how to build a network."""


@advise.command()
@click.option("--brokers", type=int, required=True, help="About how many brokers.")
@probabilities
@click.option("--patterns", type=COUNT, default=100, show_default=True, help="F_p.")
@click.option("--publications", type=COUNT, default=1000, show_default=True, help="F_e.")
@click.option("--capacity", type=float, help="Messages a broker can send over the workload.")
@click.option("--fanout-min", type=int, default=2, show_default=True)
@click.option("--fanout-max", type=int, default=16, show_default=True)
@JSON
def fanout(
    brokers: int,
    sigma: float,
    mu: float,
    patterns: int,
    publications: int,
    capacity: float | None,
    fanout_min: int,
    fanout_max: int,
    as_json: bool,
) -> None:
    """Traffic and maximum load against the fan-out, and the fan-out that fits a capacity.

    The best fan-out is the one with the least traffic whose busiest broker stays within the
    capacity. The bottleneck is the level that this broker stands on; the root is level 0.
    """
    from postroad.cost import advice

    if fanout_max < fanout_min:
        raise InputError(
            f"--fanout-max {fanout_max} is below --fanout-min {fanout_min}",
            remedy="give a range of fan-outs",
        )
    fanouts = range(fanout_min, fanout_max + 1)
    options = advice.options(brokers, fanouts, sigma, mu, patterns, publications)
    best = None if capacity is None else advice.best(options, capacity)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "brokers": brokers,
                    "capacity": capacity,
                    "best": None if best is None else best.fanout,
                    "options": [_row(option, capacity) for option in options],
                }
            )
        )
    else:
        table = Table("fan-out", "height", title=f"{brokers:,} brokers")
        for name in ("traffic\nsubscr.", "traffic\npubl.", "max load\nsubscr.", "max load\npubl.",
                     "max load\nboth", "on\nlevel"):  # fmt: skip
            table.add_column(name, justify="right")
        if capacity is not None:
            table.add_column("levels over\nthe capacity", justify="right")
        for option in options:
            over = [] if capacity is None else [_levels(option.over(capacity))]
            table.add_row(
                f"{option.fanout}{' *' if option is best else ''}",
                str(option.height),
                f"{option.subscription_traffic:,.0f}",
                f"{option.publication_traffic:,.0f}",
                f"{option.subscription_load_max:,.0f}",
                f"{option.publication_load_max:,.0f}",
                f"{option.load_max:,.0f}",
                str(option.bottleneck_level),
                *over,
            )
        show(table)
        if best is not None:
            click.echo(
                f"* fan-out {best.fanout} costs the least traffic, {best.traffic:,.0f} messages, "
                f"of those that fit a capacity of {capacity:,.0f}"
            )
    if capacity is not None and best is None:
        least = min(options, key=lambda option: option.load_max)
        raise RunFailed(
            f"no fan-out from {fanout_min} to {fanout_max} fits a capacity of {capacity:g}: the "
            f"least maximum load is {least.load_max:,.0f}, with fan-out {least.fanout}"
        )


def _row(option: Any, capacity: float | None) -> dict[str, Any]:
    row = asdict(option)
    if capacity is not None:
        row["levels_over_capacity"] = option.over(capacity)
    return row


def _levels(levels: list[int]) -> str:
    return ", ".join(map(str, levels)) or "none"


@advise.command()
@click.argument("scenario", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("deliveries", type=click.Path(path_type=Path))
@click.option("--priority", type=click.Choice(["load", "delay"]), default="load", show_default=True)
@click.option("--weight", type=click.FloatRange(0, 100), default=100.0, show_default=True)
@click.option("--trace-id", help="Which run, if the deliveries of several are in the table.")
@JSON
def placement(
    scenario: Path,
    deliveries: Path,
    priority: str,
    weight: float,
    trace_id: str | None,
    as_json: bool,
) -> None:
    """Where each publisher should connect, and what that would save in load and delay.

    SCENARIO says which brokers there are and where publishers connect now; DELIVERIES is what
    `postroad simulate --deliveries` or a sweep with `traces` recorded. Nobody is moved.
    """
    from postroad.relocation import advice
    from postroad.sim import deliveries as recorded
    from postroad.sim.scenario import load

    settings = load(scenario)
    names = settings.overlay.names
    homes = _homes(settings.workload.advertisements, scenario)
    delivered = recorded.read(deliveries, names, trace_id)
    unknown = sorted({publisher for publisher, _, _ in delivered} - homes.keys())
    if unknown:
        raise InputError(
            f"unknown publisher {unknown[0]!r}",
            where=str(deliveries),
            remedy="give the scenario that these deliveries were recorded under",
        )
    advised = advice.advise(
        settings.overlay, homes, delivered, priority, weight, settings.service_us
    )
    load_now, load_then = sum(a.load for a in advised), sum(a.load_then for a in advised)
    total = sum(a.deliveries for a in advised)
    delay_now, delay_then = (
        sum(delay_us * a.deliveries for a, delay_us in pairs) / total
        for pairs in (
            [(a, a.delay_us) for a in advised],
            [(a, a.delay_us_then) for a in advised],
        )
    )
    if as_json:
        rows = [
            asdict(a) | {"current": names[a.current], "target": names[a.target]} for a in advised
        ]
        whole = {
            "priority": priority, "weight": weight, "publishers": rows,
            "load": load_now, "load_then": load_then,
            "delay_us": delay_now, "delay_us_then": delay_then,
        }  # fmt: skip
        click.echo(json.dumps(whole))
        return
    _show_placement(advised, names, f"{priority} {weight:g}%")
    click.echo(
        f"messages {load_now:,} to {load_then:,} ({_change(load_now, load_then)}), average delay "
        f"{delay_now / 1000:,.1f} to {delay_then / 1000:,.1f} ms "
        f"({_change(delay_now, delay_then)})"
    )


SCENARIO = click.argument("scenario", type=click.Path(path_type=Path, dir_okay=False))


@advise.command()
@SCENARIO
@click.option("--load-max", type=COUNT, help="Messages that a broker may send and receive in all.")
@click.option("--limit-s", type=float, default=60.0, show_default=True, help="Time for the solver.")
@JSON
def publishers(scenario: Path, load_max: int | None, limit_s: float, as_json: bool) -> None:
    """The best broker for every publisher of a scenario on its tree, under a limit on load.

    Exact for schemes that send a publication over the links towards its subscribers and no
    others: subscription and advertisement forwarding. Nobody is moved.
    """
    import numpy as np

    from postroad.comparison.optimum import demand
    from postroad.cost import placement
    from postroad.sim.scenario import load

    settings = load(scenario)
    who, names = demand(settings), settings.overlay.names
    messages = placement.costs(settings.overlay, who.wanted, who.publisher)
    home = np.empty(len(who.publishers), dtype=np.int64)
    home[who.publisher] = who.source
    best = placement.best(settings.overlay, who.wanted, who.publisher, home, load_max, limit_s)
    now = int(messages[np.arange(len(home)), home].sum())
    rows = [
        {
            "publisher": name,
            "at": names[home[one]],
            "should_be_at": names[best.brokers[one]],
            "messages": int(messages[one, home[one]]),
            "then": int(messages[one, best.brokers[one]]),
        }
        for one, name in enumerate(who.publishers)
    ]
    if as_json:
        facts = {"messages": now, "then": best.messages, "least": best.least, "publishers": rows}
        click.echo(json.dumps(facts))
        return
    table = Table("publisher", "at", "should be at")
    for name in ("messages", "then"):
        table.add_column(name, justify="right")
    for row in sorted(rows, key=lambda row: row["then"] - row["messages"]):
        if row["at"] != row["should_be_at"]:
            table.add_row(*(f"{value:,}" if isinstance(value, int) else value
                            for value in row.values()))  # fmt: skip
    show(table)
    proved = (
        "" if best.least == best.messages else f"; the least possible is {best.least:,.0f} or more"
    )
    staying = len(rows) - table.row_count
    stay = f"{plural(staying, 'publisher')} {'stays' if staying == 1 else 'stay'}"
    click.echo(
        f"messages {now:,} to {best.messages:,} ({_change(now, best.messages)}){proved}; {stay}"
    )


@advise.command()
@SCENARIO
@click.option("--candidates", type=COUNT, default=200, show_default=True, help="New links to try.")
@click.option("--show", "count", type=COUNT, default=5, show_default=True, help="How many to show.")
@JSON
def links(scenario: Path, candidates: int, count: int, as_json: bool) -> None:
    """Which link to add to a scenario's tree, and which it makes idle, for the largest saving.

    The idle one may be taken out, or stay as a spare where links may close cycles (brokers with
    a store). Tried are new links between the brokers that most publications concern both of.
    """
    from postroad.comparison.optimum import demand
    from postroad.cost import bounds, placement
    from postroad.sim.scenario import load

    settings = load(scenario)
    who, names = demand(settings), settings.overlay.names
    tree = bounds.on_tree(settings.overlay, who.wanted)
    now = int(tree.messages(who.source).sum())
    better = placement.replacements(settings.overlay, who.wanted, who.source, candidates)[:count]
    rows = [
        {
            "add": [names[end] for end in one.new],
            "idle": [names[end] for end in one.old],
            "saves": one.saved,
        }
        for one in better
    ]
    if as_json:
        click.echo(json.dumps({"messages": now, "links": rows}))
        return
    if not rows:
        click.echo(f"messages {now:,}: no other link tried saves any")
        return
    table = Table("add", "then idle")
    table.add_column("saves", justify="right")
    for one in better:
        old, new = ("-".join(names[end] for end in ends) for ends in (one.old, one.new))
        table.add_row(new, old, f"{one.saved:,} ({100 * one.saved / now:.1f}%)")
    show(table)
    click.echo(f"messages {now:,}; one new link at a time")


def _change(now: float, then: float) -> str:
    return f"{100 * (then / now - 1):+.0f}%" if now else "unchanged"


def _homes(advertisements: Iterable[Interest], scenario: Path) -> dict[str, int]:
    """Per publisher, its one broker."""
    homes: dict[str, int] = {}
    for interest in advertisements:
        if homes.setdefault(interest.client, interest.broker) != interest.broker:
            raise InputError(
                f"publisher {interest.client!r} is at two brokers",
                where=str(scenario),
                remedy="give each publisher one broker",
            )
    return homes


def _show_placement(advised: Sequence[Advice], names: Sequence[str], title: str) -> None:
    table = Table("publisher", "at", "should be at", title=title)
    for name in ("deliveries", "messages", "then", "delay ms", "then"):
        table.add_column(name, justify="right")
    for a in advised:
        moved = a.target != a.current
        table.add_row(
            a.publisher,
            names[a.current],
            names[a.target] if moved else "stays",
            f"{a.deliveries:,}",
            f"{a.load:,}",
            f"{a.load_then:,}" if moved else "",
            f"{a.delay_us / 1000:,.1f}",
            f"{a.delay_us_then / 1000:,.1f}" if moved else "",
        )
    show(table)
