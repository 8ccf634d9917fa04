"""`postroad estimate` and `postroad breakeven`: the closed-form cost model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from postroad.errors import InputError

if TYPE_CHECKING:
    from postroad.cost.estimate import Chances
    from postroad.cost.shapes import Links, Shape
    from postroad.overlay.rooted import Rooted

Command = TypeVar("Command", bound=Callable[..., Any])

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def network(command: Command) -> Command:
    """The three ways to say which tree: full, by its links, or by its mean fan-out."""
    for option in (
        click.option("--brokers", type=int, help="Number of brokers, with --mean-fanout."),
        click.option("--mean-fanout", type=float, help="Mean number of children f̄."),
        click.option(
            "--tree",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Any tree: a file with one link `a b` per line; the first broker is the root.",
        ),
        click.option("--height", type=int, help="Levels below the root of a full tree."),
        click.option("--fanout", type=float, help="Children per broker of a full tree."),
    ):
        command = option(command)
    return command


def probabilities(command: Command) -> Command:
    """σ and μ, the same for all patterns and publications."""
    for option in (
        click.option("--mu", type=float, default=0.1, show_default=True,
                     help="Probability that a broker wants a publication."),
        click.option("--sigma", type=float, default=0.02, show_default=True,
                     help="Probability that a broker subscribes to a pattern."),
    ):  # fmt: skip
        command = option(command)
    return command


COUNT = click.IntRange(min=0)


@click.command()
@network
@probabilities
@click.option("--patterns", type=COUNT, default=100, show_default=True, help="F_p.")
@click.option("--publications", type=COUNT, default=1000, show_default=True, help="F_e.")
@click.option("--zipf-patterns", type=float, help="Zipf exponent of the patterns.")
@click.option(
    "--patterns-per-node",
    type=float,
    help="Mean number of patterns per broker, with --zipf-patterns; if left out, sigma of them.",
)
@click.option(
    "--zipf-publications",
    type=float,
    help="Zipf exponent of the publications; mu is then the mean probability.",
)
@click.option(
    "--exact", is_flag=True, help="Exact expected loads instead of the paper's approximation."
)
@JSON
def estimate(
    fanout: float | None,
    height: int | None,
    tree: Path | None,
    mean_fanout: float | None,
    brokers: int | None,
    sigma: float,
    mu: float,
    patterns: int,
    publications: int,
    zipf_patterns: float | None,
    patterns_per_node: float | None,
    zipf_publications: float | None,
    exact: bool,
    as_json: bool,
) -> None:
    """Message traffic and forwarding load of subscription forwarding, in closed form.

    Loads are messages that one broker of the level sends over the whole workload. On a tree
    given by its links they are means, and the maximum is shown beside.
    """
    from postroad.cost import estimate as model
    from postroad.cost.forwarding import check_probability, check_uniform

    if patterns_per_node is not None and zipf_patterns is None:
        raise InputError(
            "--patterns-per-node is given without --zipf-patterns",
            remedy="give the exponent too, or --sigma alone",
        )
    if zipf_patterns is None and zipf_publications is None:
        check_uniform(sigma, mu)
    check_probability("sigma", sigma)
    check_probability("mu", mu)
    wanted = model.uniform(sigma, patterns)
    if zipf_patterns is not None:
        per_node = sigma * patterns if patterns_per_node is None else patterns_per_node
        wanted = model.zipf(patterns, zipf_patterns, per_node)
    issued = model.uniform(mu, publications)
    if zipf_publications is not None:
        issued = model.zipf(publications, zipf_publications, mu * publications)

    if tree is not None:
        hung = _tree(tree, fanout, height, mean_fanout, brokers)
        answer = model.of_tree(hung, wanted, issued, exact)
    else:
        shape = _shape(fanout, height, mean_fanout, brokers)
        answer = model.of_shape(shape, wanted, issued, exact)
    if as_json:
        click.echo(json.dumps(asdict(answer)))
        return
    click.echo(
        f"{answer.brokers:,.10g} brokers; T(p) = {answer.subscription_traffic_per_pattern:,.1f} "
        f"messages per pattern, T(e) = {answer.publication_traffic_per_publication:,.1f} "
        "per publication"
    )
    _tell_capped(wanted, issued)
    click.echo(_compare(answer.total_subscription_forwarding, answer.total_event_forwarding))
    table = Table("level", "brokers", title="messages sent per broker")
    for name in list(answer.load[0])[2:]:
        table.add_column(name.replace("_", "\n"), justify="right")
    for row in answer.load:
        level, nodes, *loads = row.values()
        table.add_row(str(level), f"{nodes:,.10g}", *(f"{load:,.2f}" for load in loads))
    show(table)


@click.command()
@network
@probabilities
@click.option("--patterns", type=COUNT, help="F_p: which protocol is cheaper for this workload?")
@click.option("--publications", type=COUNT, help="F_e, with --patterns.")
@click.option(
    "--surface",
    type=click.IntRange(min=1, max=500),
    help="The ratio on a grid of this many steps of sigma and mu, as CSV; sigma <= mu.",
)
@JSON
def breakeven(
    fanout: float | None,
    height: int | None,
    tree: Path | None,
    mean_fanout: float | None,
    brokers: int | None,
    sigma: float,
    mu: float,
    patterns: int | None,
    publications: int | None,
    surface: int | None,
    as_json: bool,
) -> None:
    """The ratio F = F_p/F_e of patterns to publications at which both protocols cost the same.

    Below it subscription forwarding is cheaper, above it event forwarding.
    """
    from postroad.cost import estimate as model
    from postroad.cost import forwarding, trees

    if (patterns is None) != (publications is None):
        raise InputError(
            "one of --patterns and --publications is missing", remedy="give both, or neither"
        )
    links: Links
    if tree is not None:
        links = trees.links_of(_tree(tree, fanout, height, mean_fanout, brokers))
    else:
        links = _shape(fanout, height, mean_fanout, brokers)
    if surface is not None:
        _surface(links, surface, as_json)
        return
    ratio = float(forwarding.breakeven(links, sigma, mu))
    answer: dict[str, Any] = {
        "brokers": int(links.brokers)
        if float(links.brokers).is_integer()
        else float(links.brokers),
        "sigma": sigma,
        "mu": mu,
        "breakeven_ratio": ratio if ratio != float("inf") else None,
    }
    lines = [f"both protocols cost the same at F_p/F_e = {ratio:.6g}"]
    if patterns is not None and publications is not None:
        totals = model.totals(
            links, model.uniform(sigma, patterns), model.uniform(mu, publications)
        )
        answer |= {
            "total_subscription_forwarding": totals[0],
            "total_event_forwarding": totals[1],
            "cheaper": "subscription_forwarding" if totals[0] < totals[1] else "event_forwarding",
            "saved": abs(totals[1] - totals[0]),
        }
        lines.append(_compare(*totals))
    click.echo(json.dumps(answer) if as_json else "\n".join(lines))


def _surface(links: Links, steps: int, as_json: bool) -> None:
    """F over the half plane sigma <= mu, where sigma > 0: without subscribers F is unbounded."""
    import numpy as np

    from postroad.cost.forwarding import breakeven as ratio_at

    axis = np.arange(1, steps + 1) / steps
    rows, columns = np.tril_indices(steps)
    mu, sigma = axis[rows], axis[columns]
    points = zip(sigma.tolist(), mu.tolist(), ratio_at(links, sigma, mu).tolist(), strict=True)
    if as_json:
        click.echo(json.dumps([{"sigma": s, "mu": m, "breakeven_ratio": f} for s, m, f in points]))
        return
    click.echo("sigma,mu,breakeven_ratio")
    for s, m, f in points:
        click.echo(f"{s:.10g},{m:.10g},{f:.10g}")


def _shape(
    fanout: float | None, height: int | None, mean_fanout: float | None, brokers: int | None
) -> Shape:
    from postroad.cost import shapes

    match fanout, height, mean_fanout, brokers:
        case float(), int(), None, None:
            return shapes.full(fanout, height)
        case None, None, float(), int():
            return shapes.mean_fanout(mean_fanout, brokers)
        case _:
            raise InputError(
                "no tree is given, or two",
                remedy="give --fanout and --height, or --tree, or --mean-fanout and --brokers",
            )


def _tree(path: Path, *others: object) -> Rooted:
    from postroad.overlay import files, rooted

    if any(other is not None for other in others):
        raise InputError("--tree says all about the tree", remedy="leave out the other sizes")
    return rooted.from_overlay(files.tree(path, 0))


def _compare(subscription_forwarding: float, event_forwarding: float) -> str:
    line = (
        f"subscription forwarding {subscription_forwarding:,.0f} messages, "
        f"event forwarding {event_forwarding:,.0f}: "
    )
    if subscription_forwarding == event_forwarding:
        return line + "they cost the same"
    cheaper = "subscription" if subscription_forwarding < event_forwarding else "event"
    saved = abs(event_forwarding - subscription_forwarding)
    share = saved / max(event_forwarding, subscription_forwarding)
    return f"{line}{cheaper} forwarding saves {saved:,.0f} ({share:.1%})"


def _tell_capped(wanted: Chances, issued: Chances) -> None:
    for name, chances in (("patterns", wanted), ("publications", issued)):
        if len(chances.values) > 1 and chances.capped:
            click.echo(
                f"{chances.capped} of {chances.total:,.0f} {name} reach probability 1 and stay "
                f"there: the mean is {chances.mean:.4g}"
            )


def show(table: Table) -> None:
    Console(width=100 if not sys.stdout.isatty() else None).print(table)
