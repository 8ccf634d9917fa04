"""`postroad calibrate`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the table as one JSON object.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the table as CSV; the package's own is src/postroad/cost/service.csv.",
)
def calibrate(as_json: bool, out: Path | None) -> None:
    """Measure what batches, gossip and direct sends cost our own broker code."""
    from postroad.bench.calibrate import costs, table
    from postroad.cli.simulate import written

    rows = costs()
    if out is not None:
        with written(out) as file:
            file.write(table(rows))
    if as_json:
        click.echo(json.dumps([{"message": m, "size": n, "cost": cost} for m, n, cost in rows]))
    else:
        for message, size, cost in rows:
            click.echo(
                f"{message:<6} of {size:>3}: {cost:7.2f} units, {cost / size:.3f} a publication"
            )
