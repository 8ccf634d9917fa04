"""`postroad broker`, `network`, `store`, `users`, `certs`, `publish` and `subscribe`."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from postroad.checking.findings import plural
from postroad.cli.deploy import import_network, init
from postroad.errors import InputError

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.option("--network", "path", type=FILE, required=True, help="The network file.")
@click.option("--id", "name", required=True, help="Which of its brokers to run.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info"
)
@click.option("--worker", type=int, hidden=True)  # which one to be, and
@click.option("--channel", type=int, hidden=True)  # the descriptor that leads to its supervisor
def broker(path: Path, name: str, log_level: str, worker: int | None, channel: int | None) -> None:
    """Run one broker in the foreground, for systemd or a container."""
    from postroad.live import server
    from postroad.live.network import load
    from postroad.live.operations import logs

    network = load(path)
    number = network.number(name)
    logs.set_up(log_level)
    place = None if worker is None or channel is None else (worker, channel)
    server.run(network, number, log_level, place)


@click.group()
def network() -> None:
    """Run a whole network as local processes, one per broker."""


network.add_command(init)
network.add_command(import_network)


@network.command()
@click.argument("path", type=FILE)
@click.option("--dashboard", is_flag=True, help="Then serve the dashboard, until interrupted.")
def up(path: Path, dashboard: bool) -> None:
    """Start every broker of a network file that does not run, and wait until all links are up."""
    from postroad.live.network import load
    from postroad.live.operations import launch

    network = load(path.absolute())
    started = launch.start(network)
    if not started:
        click.echo(f"all brokers of {network.name!r} are running already")
    console = Console(stderr=True)
    try:
        with console.status("starting") as shown:
            for ready, count in launch.wait(network, started):
                shown.update(f"{ready} of {count} brokers are ready")
    except KeyboardInterrupt:
        launch.stop_some(network, started)
        raise
    _show(launch.status(network), network)
    if dashboard:
        from postroad.cli.dashboard import serve

        serve(path)


@network.command()
@click.argument("path", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print what each broker says as JSON.")
def status(path: Path, as_json: bool) -> None:
    """Show the brokers of a network, their clients and their links."""
    from postroad.live.network import load
    from postroad.live.operations import launch

    network = load(path.absolute())
    brokers = launch.status(network)
    if as_json:
        click.echo(json.dumps(brokers))
    else:
        _show(brokers, network)
    if any(row is None for row in brokers.values()):
        sys.exit(1)


@network.command()
@click.argument("path", type=FILE)
def down(path: Path) -> None:
    """Stop the brokers that `up` started."""
    from postroad.live.network import load
    from postroad.live.operations import launch

    count = launch.stop(load(path.absolute()))
    click.echo(f"{plural(count, 'broker')} stopped")


@network.command()
@click.argument("path", type=FILE)
def reload(path: Path) -> None:
    """Have the brokers that run here take up the file's users, limits and certificates.

    Exit code 1 if one refuses it or does not run here.
    """
    from postroad.live.network import load
    from postroad.live.operations import launch

    network = load(path.absolute())
    missing = launch.reload(network, network.member_names)
    count = len(network.members) - len(missing)
    click.echo(f"{plural(count, 'broker')} {'has' if count == 1 else 'have'} taken it up")
    if missing:
        click.echo(f"not running here: {', '.join(missing)}; send them SIGHUP where they run")
        sys.exit(1)


@network.command("clients")
@click.argument("path", type=FILE)
@click.option("--search", default="", help="Part of a client's identifier, user or address.")
@click.option("--json", "as_json", is_flag=True, help="Print rows as JSON.")
def list_clients(path: Path, search: str, as_json: bool) -> None:
    """List the clients of a network, connected or with a session, and what waits for them."""
    columns = ("client", "user", "connected", "address", "subscriptions", "waiting", "in_flight")
    _list(path, "clients", search, columns, as_json)


@network.command("subscriptions")
@click.argument("path", type=FILE)
@click.option("--search", default="", help="Part of a client's identifier, topic or filter.")
@click.option("--json", "as_json", is_flag=True, help="Print rows as JSON.")
def list_subscriptions(path: Path, search: str, as_json: bool) -> None:
    """List the subscriptions of a network's clients with their filters."""
    _list(path, "subscriptions", search, ("client", "topic", "qos", "filter"), as_json)


@network.command("kick")
@click.argument("path", type=FILE)
@click.argument("client")
@click.option("--reason", default="let go by an operator", help="What the client is told.")
def kick(path: Path, client: str, reason: str) -> None:
    """Disconnect a client (0x98). Its session stays, and it may come back.

    The network needs a secret. Exit code 1 if no broker that answers has the client.
    """
    from postroad.live.network import load
    from postroad.live.operations import launch

    answers = launch.ask(load(path.absolute()), "/kick", {"client": client, "reason": reason})
    kicked = [name for name, answer in answers.items() if answer and answer["kicked"]]
    click.echo(f"disconnected at {', '.join(kicked)}" if kicked else f"{client!r} is not connected")
    if not kicked:
        sys.exit(1)


@network.command("move")
@click.argument("path", type=FILE)
@click.argument("publisher")
@click.argument("broker")
def move(path: Path, publisher: str, broker: str) -> None:
    """Send a publisher to another broker (0x9C), if it follows and has no subscriptions.

    What it has published at QoS 1 or 2 and is not acknowledged it sends again there. The
    network needs a secret. Exit code 1 if the publisher does not go.
    """
    from postroad.live.network import load
    from postroad.live.operations import launch

    if (why_not := launch.move(load(path.absolute()), publisher, broker)) is not None:
        click.echo(f"{publisher!r} stays: {why_not}")
        sys.exit(1)
    click.echo(f"{publisher!r} goes to {broker}")


def _list(path: Path, what: str, search: str, columns: tuple[str, ...], as_json: bool) -> None:
    from urllib.parse import quote

    from postroad.live.network import load
    from postroad.live.operations import launch

    answers = launch.ask(load(path.absolute()), f"/{what}?search={quote(search)}")
    rows = [{"broker": name, **row} for name, answer in answers.items() for row in answer or ()]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        table = Table()
        for name in ("broker", *columns):
            table.add_column(name)
        for row in rows:
            table.add_row(*(_cell(row[name]) for name in ("broker", *columns)))
        Console(width=None if sys.stdout.isatty() else 160).print(table)
    if silent := [name for name, answer in answers.items() if answer is None]:
        click.echo(f"no answer from {', '.join(silent)}", err=True)
        sys.exit(1)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


@network.command("secret")
@click.argument("path", type=FILE)
def make_secret(path: Path) -> None:
    """Make the secret that a network file names, by which its brokers know each other."""
    from postroad.live.links import secret
    from postroad.live.network import load

    network = load(path)
    if network.secret is None:
        remedy = 'set it, as in secret = "network.secret"'
        raise InputError("secret is missing", where=str(path), remedy=remedy)
    secret.make(network.secret)
    click.echo(f"{network.secret}: copy it, with its mode 600, to the machine of every broker")


@network.command("add")
@click.argument("path", type=FILE)
@click.argument("name")
@click.option("--to", multiple=True, required=True, help="A broker to link it to; may be repeated.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--mqtt", type=int, required=True, help="Its port for clients.")
@click.option("--link", type=int, required=True, help="Its port for other brokers.")
@click.option("--http", type=int, required=True, help="Its port for metrics and status.")
@click.option("--workers", type=int, default=1, show_default=True, help="Its processes.")
def add_broker(
    path: Path,
    name: str,
    to: tuple[str, ...],
    host: str,
    mqtt: int,
    link: int,
    http: int,
    workers: int,
) -> None:
    """Add a broker to a network file, and to the network if it runs here."""
    from postroad.live.network import Address
    from postroad.live.operations import launch, members

    address = Address(host, mqtt, link, http)
    change = members.add(path.absolute(), name, address, to, workers)
    if not launch.add(change, name):
        click.echo(f"{name} is added; no broker of the network runs here")
        return
    with Console(stderr=True).status(f"starting {name}"):
        launch.wait_for(change.network, name)
    click.echo(f"{name} is added and runs")


@network.command("remove")
@click.argument("path", type=FILE)
@click.argument("name")
@click.option("--force", is_flag=True, help="Also if it has messages that others do not have yet.")
def remove_broker(path: Path, name: str, force: bool) -> None:
    """Stop a broker and take it out of a network file and, if it runs here, the network."""
    from postroad.live.operations import launch, members

    stopped = launch.remove(members.remove(path.absolute(), name), name, force)
    click.echo(f"{name} is {'stopped and ' if stopped else ''}removed")


def _show(brokers: dict[str, dict[str, Any] | None], network: Any) -> None:
    from postroad.live.operations import launch

    table = Table()
    for name in ("broker", "MQTT", "state"):
        table.add_column(name)
    for name in ("clients", "subscriptions", "published", "delivered"):
        table.add_column(name, justify="right")
    table.add_column("publications sent over links")
    for name, row in brokers.items():
        address = network.addresses[network.number(name)]
        where = f"{address.host}:{address.mqtt}"
        if row is None:
            table.add_row(name, where, "no answer")
            continue
        links = row["links"]
        missing = [
            f"{peer} ({link['refused']})" if link.get("refused") else peer
            for peer, link in links.items()
            if not link["connected"]
        ] + launch.away(row)
        table.add_row(
            name,
            where,
            f"no link to {', '.join(missing)}" if missing else "up",
            f"{row['connections']:,}",
            f"{row['subscriptions']:,}",
            f"{row['published']:,}",
            f"{row['delivered']:,}",
            ", ".join(f"{p} {launch.publications_sent(k):,}" for p, k in links.items()),
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


@click.group()
def store() -> None:
    """What a broker keeps on disk: look at it, or begin again without it."""


@store.command()
@click.argument("path", type=FILE)
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def check(path: Path, name: str, as_json: bool) -> None:
    """Read the store of a broker that does not run, change nothing, and say if it is whole.

    Exit code 1 if it is damaged or missing.
    """
    examined = _examined(path, name)
    held = {} if examined.rows is None else _held(examined.rows)
    if as_json:
        facts = {
            "store": str(examined.path),
            "problem": examined.problem,
            "transactions": examined.transactions,
            "rows": {} if examined.rows is None else {t: len(r) for t, r in examined.rows.items()},
            **held,
        }
        click.echo(json.dumps(facts))
    elif examined.problem is not None:
        click.echo(examined.problem)
    else:
        click.echo(f"{examined.path}: whole, {examined.transactions} the last transaction")
        for what, count in held.items():
            click.echo(f"  {what.replace('_', ' ')}: {count:,}")
    if examined.problem is not None:
        sys.exit(1)


@store.command()
@click.argument("path", type=FILE)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(path: Path, name: str, yes: bool) -> None:
    """Let a broker whose store is lost, damaged or old join its network again with an empty one.

    Lost are its clients' sessions with all that waits for them, its clients' publications that were
    not acknowledged, and what it had been given for others and not passed on; its neighbours drop
    what waited for it. The old files are kept beside. Stop the broker first.
    """
    import time

    from postroad.live import store as stores
    from postroad.live.network import load

    examined = _examined(path, name)
    if examined.rows is None:
        click.echo(examined.problem)
        click.echo("what it held is unknown, and lost:")
    else:
        click.echo(f"{examined.path} is whole; this loses:")
    for what, count in _held(examined.rows or {}).items():
        known = "" if examined.rows is None else f": {count:,}"
        click.echo(f"  {what.replace('_', ' ')}{known}")
    click.echo(f"  at its neighbours: what waits for {name}, and what went through it, in a tree")
    if not yes:
        click.confirm(f"Begin again with an empty store for {name}?", abort=True)
    network = load(path.absolute()).expanded()
    assert network.store is not None
    now = time.time_ns() // 1000
    aside = stores.replace(network.store, network.identity, name, network.lineage, now)
    click.echo(
        f"{name} has a new store" + ("" if aside is None else f"; the old one is in {aside}")
    )


def _examined(path: Path, name: str) -> Any:
    from postroad.live import store as stores
    from postroad.live.network import load

    network = load(path.absolute()).expanded()
    network.number(name)
    if network.store is None:
        raise InputError("store is missing", where=str(path), remedy="this network keeps nothing")
    return stores.examine(network.store, network.identity, name, network.lineage)


def _held(rows: Any) -> dict[str, int]:
    return {
        "sessions": len(rows.get("session", ())),
        "subscriptions": len(rows.get("subscription", ())),
        "publications_for_sessions": len(rows.get("parcel", ())),
        "messages_for_neighbours": len(rows.get("queue", ())),
        "publications_not_yet_safe": len(rows.get("outbox", ())),
        "wills": len(rows.get("will", ())),
    }


@click.group()
def users() -> None:
    """Who may connect to a network: add, remove and list users."""


@users.command("add")
@click.argument("path", type=FILE)
@click.argument("name")
@click.option("--publish", multiple=True, help="A topic prefix to publish to; # for all.")
@click.option("--subscribe", multiple=True, help="A topic prefix to subscribe within; # for all.")
@click.option("--publish-where", help="A filter that all they publish must match.")
@click.option("--subscribe-where", help="A filter that narrows all they subscribe to.")
@click.option("--dashboard", type=click.Choice(["look", "operate"]), help="May log in there.")
@click.password_option(
    prompt_required=False, help="Asked for if its text is left out, or if the user is new."
)
def add(
    path: Path,
    name: str,
    publish: tuple[str, ...],
    subscribe: tuple[str, ...],
    publish_where: str | None,
    subscribe_where: str | None,
    dashboard: str | None,
    password: str | None,
) -> None:
    """Add a user to a users file, or change one.

    What is not named stays as it was. To take a right away, remove the user and add it again.
    """
    from postroad.live.edge import users as kept

    user = kept.find(path, name)
    if user is None and password is None:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    user = kept.with_rights(
        user,
        None if password is None else password.encode(),
        publish,
        subscribe,
        publish_where,
        subscribe_where,
        dashboard,
    )
    kept.change(path, name, user)
    *rights, last = _rights(user)
    click.echo(f"{name} may {', '.join(rights)} and {last}")


@users.command("remove")
@click.argument("path", type=FILE)
@click.argument("name")
def remove(path: Path, name: str) -> None:
    """Remove a user from a users file."""
    from postroad.live.edge import users as kept

    kept.change(path, name, None)
    click.echo(f"{name} is removed")


@users.command("list")
@click.argument("path", type=FILE)
def list_users(path: Path) -> None:
    """List the users and what they may do."""
    from postroad.live.edge import users as kept

    for name, user in kept.load(path).users.items():
        click.echo(f"{name}: {', '.join(_rights(user))}")


def _rights(user: Any) -> list[str]:
    rights = [
        f"publish {_listed(user.publish, user.publish_where)}",
        f"subscribe {_listed(user.subscribe, user.subscribe_where)}",
    ]
    return rights if user.dashboard is None else [*rights, f"{user.dashboard} in the dashboard"]


def _listed(prefixes: tuple[str, ...], where: str | None) -> str:
    return (", ".join(prefixes) or "nothing") + ("" if where is None else f" where {where}")


@click.group()
def certs() -> None:
    """Certificates for TLS."""


@certs.command("demo")
@click.argument("path", type=FILE)
def certs_demo(path: Path) -> None:
    """Make an authority and certificates for every broker of a network file that has `tls`."""
    from postroad.live.network import load
    from postroad.live.operations import demo_certificates

    network = load(path)
    if network.tls is None:
        raise InputError("tls is missing", where=str(path), remedy='set it, as in tls = "certs"')
    hosts = dict(zip(network.names, (a.host for a in network.addresses), strict=True))
    demo_certificates.write(network.tls, network.name, hosts)
    click.echo(f"{network.tls}: ca.pem for clients, and a certificate for each broker")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal():
        raise InputError(f"--broker is {text!r}", remedy="write host:port, as in localhost:1883")
    return host or "localhost", int(port)


def _client(where: str, name: str, user: str | None, ca: Path | None) -> Any:
    import os
    import ssl

    from postroad.live.client import Client

    host, port = _address(where)
    try:
        tls = None if ca is None else ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"--ca is {str(ca)!r}: {error}", remedy="name a PEM file") from None
    password = os.environ.get("POSTROAD_PASSWORD")
    return Client(host, port, client_id=name, username=user, password=password, tls=tls)


def _run(awaitable: Any) -> None:
    from postroad.live.client import run

    run(awaitable)


@click.command()
@click.option("--broker", "where", default="localhost:1883", show_default=True)
@click.option("--client", default="", help="Its identifier; by default the broker gives one.")
@click.option("--user", help="Who connects; the password is in POSTROAD_PASSWORD.")
@click.option("--ca", type=FILE, help="Use TLS and trust this authority.")
@click.option("--qos", type=click.IntRange(0, 2), default=0, show_default=True)
@click.option("--retain", is_flag=True, help="Keep it for later subscribers.")
@click.argument("topic")
@click.argument("payload", required=False)
def publish(
    where: str,
    client: str,
    user: str | None,
    ca: Path | None,
    qos: int,
    retain: bool,
    topic: str,
    payload: str | None,
) -> None:
    """Publish a payload, or each line of standard input."""
    connecting = _client(where, client, user, ca)

    async def send() -> None:
        async with connecting as connected:
            lines = sys.stdin if payload is None else [payload]
            for line in lines:
                text = line.rstrip("\n") if payload is None else line
                data = text.encode(errors="surrogateescape")  # what is no UTF-8, as it was given
                await connected.publish(topic, data, qos=qos, retain=retain)

    _run(send())


@click.command()
@click.option("--broker", "where", default="localhost:1883", show_default=True)
@click.option("--client", default="", help="Its identifier; by default the broker gives one.")
@click.option("--user", help="Who connects; the password is in POSTROAD_PASSWORD.")
@click.option("--ca", type=FILE, help="Use TLS and trust this authority.")
@click.option("--where", "filter", help="A content filter, as in: price > 10 AND symbol = 'IBM'")
@click.option("--qos", type=click.IntRange(0, 2), default=0, show_default=True)
@click.option("--count", type=click.IntRange(1), help="Stop after so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.argument("topic", default="#")
def subscribe(
    where: str,
    client: str,
    user: str | None,
    ca: Path | None,
    filter: str | None,
    qos: int,
    count: int | None,
    as_json: bool,
    topic: str,
) -> None:
    """Print the publications that match a topic pattern and a content filter, until interrupted."""
    connecting = _client(where, client, user, ca)

    async def listen() -> None:
        async with connecting as connected:
            await connected.subscribe(topic, where=filter, qos=qos)
            click.echo(f"subscribed to {topic} at {where}", err=True)
            seen = 0
            async for message in connected:
                text = message.payload.decode(errors="replace")
                if as_json:
                    click.echo(json.dumps({"topic": message.topic, "payload": text}))
                else:
                    click.echo(f"{message.topic} {text}")
                seen += 1
                if seen == count:
                    return

    with suppress(KeyboardInterrupt):  # which is how one stops it
        _run(listen())
