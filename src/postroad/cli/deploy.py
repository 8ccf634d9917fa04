"""`postroad network init`: from a comparison to a network file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from postroad.errors import InputError


@click.command("init")
@click.argument("report", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--row", help="A row of the comparison; without it the verdict's.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), required=True,
    help="The network file to write.",
)  # fmt: skip
@click.option("--name", help="The network's name; by default that of the file.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where brokers listen.")
@click.option(
    "--port", type=click.IntRange(1, 65_535), default=20_000, show_default=True,
    help="The first of three ports for each broker.",
)  # fmt: skip
@click.option(
    "--against", type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A network file: say what would change in that network, and the steps.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite a network file.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as one JSON object.")
def init(
    report: Path, row: str | None, out: Path, name: str | None, host: str, port: int,
    against: Path | None, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write a network file for a row of a comparison, ready for `postroad network up`."""
    from postroad.comparison import deploy
    from postroad.live.network import load

    if out.exists() and not force:
        raise InputError(f"{out} is there already", remedy="choose another -o, or add --force")
    label, measures, scenario = deploy.read(report, row)
    written = deploy.write(scenario, label, out.absolute(), name or out.stem, host, port)
    network = load(out.absolute())
    changes = None if against is None else deploy.changes(load(against.absolute()), network)
    if as_json:
        facts = {
            "row": label,
            "files": [str(path) for path in written],
            "messages": measures["messages"],
            "differences": None if changes is None else changes.differences,
            "steps": [f"postroad network up {out}"] if changes is None else changes.steps,
        }
        click.echo(json.dumps(facts))
        return
    click.echo(f"{label} on {len(network.names)} brokers: {', '.join(map(str, written))}")
    click.echo(f"expected: {measures['messages']:,.4g} messages a publication between brokers")
    if changes is None:
        click.echo(f"start it: postroad network up {out}")
    elif not changes.differences:
        click.echo(f"{against} is that network already")
    else:
        for line in changes.differences:
            click.echo(f"  {line}")
        click.echo("steps:")
        for line in changes.steps:
            click.echo(f"  {line}")
