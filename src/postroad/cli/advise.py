"""`postroad advise …`: what to build, from the cost model."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table

from postroad.cli.cost import COUNT, JSON, probabilities, show
from postroad.errors import InputError, RunFailed


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
