"""`postroad network init` and `import`: a network file from a comparison, or from other brokers."""

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


@click.command("import")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...",
    type=click.Path(path_type=Path, dir_okay=False),
)  # fmt: skip
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), required=True,
    help="The network file to write.",
)  # fmt: skip
@click.option("--name", help="The network's name; by default that of the file.")
@click.option(
    "--port", type=click.IntRange(1, 60_000), default=20_000, show_default=True,
    help="The first of the ports that the files do not give.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite a network file.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as one JSON object.")
def import_network(
    files: tuple[Path, ...], out: Path, name: str | None, port: int, force: bool, as_json: bool
) -> None:
    """Write a network file from configurations of Mosquitto brokers or NATS servers.

    One FILE for each broker. Bridges, leaf nodes, routes and gateways become links; what could not
    be taken over is listed.
    """
    from postroad.live.operations import imported

    if out.exists() and not force:
        raise InputError(f"{out} is there already", remedy="choose another -o, or add --force")
    result = imported.write(files, out.absolute(), name or out.stem, port)
    if as_json:
        facts = {
            "file": str(out),
            "brokers": list(result.brokers),
            "links": [list(link) for link in result.links],
            "not_taken_over": list(result.left_out),
        }
        click.echo(json.dumps(facts))
        return
    click.echo(f"{len(result.brokers)} brokers, {len(result.links)} links in {out}")
    if result.left_out:
        click.echo("not taken over:")
        for text in result.left_out:
            click.echo(f"  {text}")
    click.echo(f"start it: postroad network up {out}")
