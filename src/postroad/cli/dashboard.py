"""`postroad dashboard`: one page for a whole network."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from postroad.errors import InputError

PORT = 9470


@click.command()
@click.argument("path", metavar="NETWORK", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(1, 65535))
@click.option("--name", "names", multiple=True, metavar="HOST:PORT",
              help="What browsers call it, if not where it listens; repeatable.")  # fmt: skip
@click.option("--watch", "watched", type=click.Path(path_type=Path), metavar="DIR",
              help="What `postroad pipeline watch -o` writes to, for advice.")  # fmt: skip
@click.option("--operate", is_flag=True, help="Print a key with which one may act.")
def dashboard(
    path: Path,
    host: str,
    port: int,
    names: tuple[str, ...],
    watched: Path | None,
    operate: bool,
) -> None:
    """Serve one page that shows a network: live, back in time, and why.

    NETWORK is a network file whose brokers run on this machine. With users in it, those with
    a role log in (`postroad users add --dashboard look|operate`); without, everyone on this
    machine may look.
    """
    serve(path, host, port, names, watched, operate)


def serve(
    path: Path,
    host: str = "127.0.0.1",
    port: int = PORT,
    names: tuple[str, ...] = (),
    watched: Path | None = None,
    operate: bool = False,
) -> None:
    from postroad.live.network import load
    from postroad.web import app
    from postroad.web.access import Access, allowed_hosts, is_loopback

    network = load(path.absolute())
    if network.users is None and not is_loopback(host):
        raise InputError(
            f"--host is {host!r}, and this network has no users",
            where=str(path),
            remedy="add users to the network file, or listen on loopback",
        )
    if operate and network.users is not None:
        raise InputError(
            "--operate is for networks without users",
            remedy="give a user the role: postroad users add FILE NAME --dashboard operate",
        )
    if operate and network.secret is None:
        raise InputError(
            "brokers of a network without a secret take no orders",
            where=str(path),
            remedy="make one with postroad network secret, and restart the brokers",
        )
    key = secrets.token_urlsafe(12) if operate else None
    served = app.Dashboard(
        network, Access(network.users, key, allowed_hosts(host, port) | {*names}), watched
    )

    def ready() -> None:
        click.echo(f"{network.name}: http://{host}:{port}/  (interrupt to stop)")
        if key is not None:
            click.echo(f"to operate: {key}")

    app.serve(served, host, port, ready)


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--endpoint", default="http://127.0.0.1:4318/v1/traces", show_default=True,
              help="Of an OpenTelemetry collector, OTLP over HTTP.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Go on as files are completed, until interrupted.")
def otlp(source: Path, endpoint: str, follow: bool) -> None:
    """Send recorded publications to an OpenTelemetry collector, a trace each.

    SOURCE is a network file whose brokers record traces, or a folder of traces. What is sampled
    is what `traces.sample` has recorded.
    """
    from postroad.web.otlp import export

    if source.suffix == ".toml":
        from postroad.live.network import load

        recording = load(source.absolute()).traces
        if recording is None:
            raise InputError(
                "this network records nothing", where=str(source), remedy='add traces = "traces"'
            )
        source = Path(recording.folder)
    sent = 0
    for sent in export(source, endpoint, follow):
        if follow:
            click.echo(f"{sent:,} spans", err=True)
    click.echo(f"{sent:,} spans sent to {endpoint}")
