"""`postroad explain`: why a publication did not arrive, and why a filter gets nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroad.checking.findings import plural
from postroad.errors import InputError

if TYPE_CHECKING:
    from postroad.explain.dry_run import DryRun
    from postroad.explain.history import History
    from postroad.explain.why import Answer

LISTED = 10


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--publication", metavar="PUBLISHER[/ID]", help="Which; without ID its last one.")
@click.option("--client", metavar="CLIENT", help="Who did, or did not, get it.")
@click.option("--filter", "text", metavar="SQL", help="Why does this filter get nothing?")
@click.option("--dry-run", is_flag=True, help="Ask the running network; nothing is sent.")
@click.option("--at", metavar="BROKER", help="Where --dry-run would publish.")
@click.option("--topic", default="test", show_default=True, help="For --dry-run.")
@click.option("--payload", default="{}", show_default=True, metavar="JSON", help="For --dry-run.")
@click.option("--trace-id", help="Which network or run, if the files hold several.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain(
    source: Path,
    publication: str | None,
    client: str | None,
    text: str | None,
    dry_run: bool,
    at: str | None,
    topic: str,
    payload: str,
    trace_id: str | None,
    as_json: bool,
) -> None:
    """Say why a publication reached a client or did not.

    SOURCE is a network file, whose brokers record traces, or a folder of traces. The network's
    traces are read up to this moment. Without options the last publications and subscriptions are
    listed.
    """
    if dry_run:
        _dry_run(source, at, topic, payload, client, as_json)
        return
    history = _history(source, trace_id)
    if text is not None:
        from postroad.explain.filters import explain_filter
        from postroad.filters import parse

        verdict = explain_filter(history, parse(text))
        if as_json:
            click.echo(json.dumps(verdict.to_json()))
            return
        click.echo(f"{verdict.cause}: {verdict.sentence}")
        for example in verdict.closest:
            click.echo(f"  {example}")
        return
    if publication is None or client is None:
        _list(history)
        return
    from postroad.explain.why import explain as why

    answer = why(history, publication, client)
    if as_json:
        click.echo(json.dumps(answer.to_json()))
    else:
        _show(answer)


def _history(source: Path, trace_id: str | None) -> History:
    from postroad.explain.history import History
    from postroad.traces import files

    folder, hidden = source, False
    if source.suffix == ".toml":
        from postroad.live.network import load

        network = load(source)
        if network.traces is None:
            raise InputError(
                "this network records nothing",
                where=str(source),
                remedy='add traces = "folder" to it, and restart its brokers',
            )
        folder, hidden = Path(network.traces.folder), True
    rows, _ = files.read(folder, trace_id, hidden)
    return History(rows)


def _list(history: History) -> None:
    """Whom and what one can ask about."""
    published = [row for row in history.rows if row.kind in ("publish", "refuse")][-LISTED:]
    click.echo("give --publication and --client; the last publications:")
    for row in published:
        if row.kind == "publish":
            content = row.attributes or ""
            click.echo(f"  {row.publisher}/{row.publication}  at {row.broker}  {content[:80]}")
        else:
            click.echo(f"  {row.client}  at {row.broker}  refused: {row.reason}")
    click.echo("the last subscriptions:")
    for held in list(history.subscriptions.values())[-LISTED:]:
        ended = f"  ({held.ended})" if held.ended else ""
        click.echo(f"  {held.client}  at {held.broker}  {held.text[:80]}{ended}")


def _show(answer: Answer) -> None:
    verb = "was delivered to" if answer.delivered else "was not delivered to"
    click.echo(f"{answer.publication} {verb} {answer.client}: {answer.cause}")
    click.echo(f"  {answer.sentence}")
    for visit in answer.steps:
        source = "published here" if visit.came_from is None else f"from {visit.came_from}"
        parts = [f"to {', '.join(visit.sent_to)}"] if visit.sent_to else []
        parts += [f"delivered to {name}" for name in visit.delivered_to[:3]]
        if len(visit.delivered_to) > 3:
            parts.append(f"and {len(visit.delivered_to) - 3} more")
        parts += [f"stopped: {reason}" for reason in visit.stopped]
        click.echo(
            f"  {visit.time_us / 1000:>10,.1f} ms  {visit.broker:<12} {source}; "
            f"{'; '.join(parts) or 'held'}"
        )
        if visit.towards is not None and visit.towards not in visit.sent_to:
            if visit.entry is None:
                click.echo(f"{'':>29}{visit.towards} had asked for nothing here")
            elif visit.misses:
                click.echo(f"{'':>29}{visit.towards} asks for {visit.entry}")
                for miss in visit.misses:
                    click.echo(f"{'':>31}{miss}")


def _dry_run(
    source: Path, at: str | None, topic: str, payload: str, client: str | None, as_json: bool
) -> None:
    import msgspec

    from postroad.explain.dry_run import dry_run
    from postroad.live.edge.content import attributes
    from postroad.live.network import load

    if at is None:
        raise InputError("--dry-run needs a broker", remedy="say with --at where to publish")
    content = payload.encode(errors="surrogateescape")
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        document = None
    if not isinstance(document, dict):  # which a broker takes, and filters see nothing of
        raise InputError(
            f"--payload is {payload!r:.60}, which is no JSON object",
            remedy="""write one, as in '{"price": 12.5}'""",
        )
    network = load(source)
    answer = dry_run(network, at, client or "dry-run", attributes(topic, content))
    if as_json:
        click.echo(json.dumps(answer.to_json()))
    else:
        _show_dry_run(answer)


def _show_dry_run(answer: DryRun) -> None:
    deliveries = answer.deliveries
    reached = [one for one in deliveries if one["reason"] is None]
    click.echo(
        f"it would come to {plural(len({stop.broker for stop in answer.stops}), 'broker')} and be "
        f"delivered to {len(reached)} of {plural(len(deliveries), 'matching subscription')}; "
        "nothing was sent"
    )
    for stop in answer.stops:
        said: list[Any] = [f"to {', '.join(stop.sent_to)}"] if stop.sent_to else []
        for one in stop.deliveries:
            why = "" if one["reason"] is None else f" ({one['reason']})"
            said.append(f"{one['client']}: {one['subscription']}{why}")
        if stop.holds:
            said.append("held here for a while")
        said += stop.notes
        way = f"{plural(stop.hops, 'link'):<7}  {stop.broker:<12}"
        click.echo(f"  {way} {'; '.join(said) or 'no entry matches'}")
    for name in answer.unreachable:
        click.echo(f"! broker {name} does not answer")
