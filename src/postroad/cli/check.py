"""`postroad check`: what is wrong with a network before it is deployed, and what would change."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroad.errors import InputError

if TYPE_CHECKING:
    from postroad.checking.findings import Finding
    from postroad.checking.listed import Listed
    from postroad.live.edge.users import User
    from postroad.live.network import Network
    from postroad.traces.files import Read
    from postroad.traces.schema import Row

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("network", type=FILE, required=False)
@click.option("--subscriptions", type=FILE, help="CSV or JSON lines: broker, client, filter.")
@click.option("--publications", type=FILE, help="CSV or JSON lines: time, broker, publisher, …")
@click.option("--traces", type=click.Path(path_type=Path), help="What was recorded: load, filters.")
@click.option("--trace-id", help="Which network or run, if the traces are of several.")
@click.option(
    "--against",
    type=FILE,
    help="What there is now: a network file (.toml), or else a file of subscriptions. Says what "
    "NETWORK or --subscriptions would change of it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(
    network: Path | None,
    subscriptions: Path | None,
    publications: Path | None,
    traces: Path | None,
    trace_id: str | None,
    against: Path | None,
    as_json: bool,
) -> None:
    """Check a network file, and what it is to carry, before it is deployed.

    Finds brokers that no links reach, loops, what must not be lost, filters that cannot match or
    are not needed, publications nobody wants, rights that differ, limits that are too low. Exits 1
    if there is an error among the findings.
    """
    from postroad.checking import filters, load
    from postroad.checking.findings import ERROR, in_order
    from postroad.checking.listed import publications as read_publications
    from postroad.checking.listed import recorded
    from postroad.checking.listed import subscriptions as read_subscriptions
    from postroad.explain.history import History
    from postroad.traces import files

    _usage(network, subscriptions, publications, traces, against)
    findings: list[Finding] = []
    deployed = None
    if network is not None:
        deployed, problems = _network(network)
        findings += problems
    names = None if deployed is None else deployed.member_names
    listed: list[Listed] = []
    if subscriptions is not None:
        listed, problems = read_subscriptions(subscriptions, names)
        findings += problems
    rows: list[Row] = []
    if traces is not None:
        rows, about = files.read(traces, trace_id)
        findings += _read(about, traces)
        if subscriptions is None:
            listed, problems = recorded(History(rows), str(traces))
            findings += problems
        if deployed is not None:
            measured = load.measure(rows)
            findings += load.of_limits(deployed.limits, measured, str(network), _lines(network))
    if publications is not None:
        more, problems = read_publications(publications, names)
        findings += problems
        rows = [*rows, *more]
    if subscriptions is not None or traces is not None:
        findings += filters.of_subscriptions(listed)
    if deployed is not None and subscriptions is not None:
        findings += load.of_listed(deployed.limits, listed, str(network), _lines(network))
    if rows and (listed or subscriptions is not None):
        recording = None if deployed is None or publications is not None else deployed.traces
        findings += filters.against_publications(
            listed, History(rows), str(publications or traces),
            () if recording is None else recording.exclude,
        )  # fmt: skip
    if against is not None:
        findings += _differences(deployed, subscriptions, listed, against)
    findings = in_order(findings)
    counts = Counter(finding.severity for finding in findings)
    if as_json:
        click.echo(
            json.dumps({"findings": [f.to_json() for f in findings], "counts": dict(counts)})
        )
    else:
        _show(findings, counts)
    if counts[ERROR]:
        click.get_current_context().exit(1)


def _usage(
    network: Path | None,
    subscriptions: Path | None,
    publications: Path | None,
    traces: Path | None,
    against: Path | None,
) -> None:
    if publications is not None and subscriptions is None and traces is None:
        raise InputError(
            "--publications alone says nothing of who wants them",
            remedy="give --subscriptions or --traces too",
        )
    if network is None and subscriptions is None and traces is None:
        raise InputError("nothing to check", remedy="name a network file, or give --subscriptions")
    if against is None:
        return
    if against.suffix == ".toml" and network is None:
        raise InputError(
            f"--against {against} is a network file, and no other is named",
            remedy="name the one to compare with it: postroad check NETWORK --against OTHER",
        )
    if against.suffix != ".toml" and subscriptions is None:
        raise InputError(
            f"--against {against} is a file of subscriptions, and no other is given",
            remedy="give --subscriptions too, or name a network file (.toml)",
        )


def _lines(path: Path | None) -> dict[str, int]:
    from postroad.settings import toml
    from postroad.settings.sections import key_lines

    return {} if path is None else key_lines(toml.read_text(path))


def _network(path: Path) -> tuple[Network | None, list[Finding]]:
    """The network of a file, and what is wrong with it, its links and its users."""
    from postroad.checking import network, rights
    from postroad.checking.findings import refused

    deployed, findings = network.of_file(path)
    if deployed is not None and deployed.users is not None:
        try:
            findings += rights.of_users(_users(deployed), str(deployed.users))
        except InputError as error:
            findings.append(refused(error, str(deployed.users)))
    return deployed, findings


def _users(network: Network) -> dict[str, User]:
    from postroad.live.edge import users

    return {} if network.users is None else users.load(network.users).users


def _read(about: Read, traces: Path) -> list[Finding]:
    from postroad.checking.findings import NOTE, WARNING, Finding

    findings = []
    if about.bad:
        text = f"{len(about.bad):,} bad rows left out, the first {about.bad[0]}"
        findings.append(Finding(WARNING, "traces", text, str(traces), len(about.bad)))
    for (_, broker, _), count in about.gaps.items():
        text = f"{count:,} rows of broker {broker} are missing"
        findings.append(Finding(NOTE, "traces", text, str(traces), count))
    return findings


def _differences(
    deployed: Network | None, subscriptions: Path | None, listed: list[Listed], against: Path
) -> list[Finding]:
    from postroad.checking import differences
    from postroad.checking.listed import subscriptions as read_subscriptions
    from postroad.live.network import load

    if against.suffix != ".toml":
        assert subscriptions is not None
        old, problems = read_subscriptions(against)
        return problems + differences.of_subscriptions(old, listed, str(subscriptions))
    if deployed is None:
        return []  # it cannot be read, which is told
    before = load(against)
    findings = differences.of_networks(before, deployed, _lines(deployed.path))
    if before.users is not None and deployed.users is not None:
        findings += differences.of_users(_users(before), _users(deployed), str(deployed.users))
    return findings


def _show(findings: list[Finding], counts: Counter[str]) -> None:
    from postroad.checking.findings import SEVERITIES, plural

    for finding in findings:
        click.echo(f"{finding.severity:<7}  {finding.where}: {finding.what}")
        if finding.remedy:
            click.echo(f"{'':<9}{finding.remedy}")
    said = [plural(counts[severity], severity) for severity in SEVERITIES if counts[severity]]
    click.echo(", ".join(said) or "nothing found")
