"""`postroad estimate` and `postroad breakeven`: the closed-form cost model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from postroad.errors import InputError

if TYPE_CHECKING:
    from postroad.cost.estimate import Chances
    from postroad.cost.schemes import SchemeTraffic
    from postroad.cost.shapes import Links, Shape
    from postroad.cost.variants import PerBroker, VariantEstimate
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


def variant(command: Command) -> Command:
    """The scheme, and what its neighbours of subscription forwarding need to know."""
    for option in (
        click.option(
            "--chances",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Every broker's own probabilities, with --tree: CSV with broker and any of sigma, "
            "mu, gamma, advertise, publisher.",
        ),
        click.option("--clique", type=click.IntRange(min=1), default=4, show_default=True,
                     help="Servers in a clique, with --scheme kyra."),
        click.option("--popular", type=float, default=0.5, show_default=True,
                     help="Share of the publications that go over the tree, with --scheme popsub."),
        click.option("--advertise", type=float,
                     help="Probability that a broker advertises a pattern; else all do."),
        click.option("--gamma", type=float,
                     help="Probability that a broker holds a subscription covering the pattern."),
        click.option(
            "--scheme",
            type=click.Choice(
                ["subscription_forwarding", "covering", "hierarchical", "advertisement_forwarding",
                 "kyra", "popsub"]
            ),
            default="subscription_forwarding",
            show_default=True,
        ),
    ):  # fmt: skip
        command = option(command)
    return command


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
@variant
@click.option(
    "--simulate",
    type=click.IntRange(min=2),
    help="Also simulate so many patterns and publications, and say how far the model is off.",
)
@click.option(
    "--subscriptions",
    type=click.Path(path_type=Path),
    help="Real filters instead of probabilities, with --tree: as a scenario's, CSV, JSONL or "
    "Parquet. What subscribing costs, without and with covering.",
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
    scheme: str,
    gamma: float | None,
    advertise: float | None,
    clique: int,
    popular: float,
    chances: Path | None,
    simulate: int | None,
    subscriptions: Path | None,
    as_json: bool,
) -> None:
    """Message traffic and forwarding load of subscription forwarding, in closed form.

    With --scheme, --chances or --simulate: the exact expectation of that scheme on the tree.

    Loads are messages that one broker of the level sends over the whole workload. On a tree
    given by its links they are means, and the maximum is shown beside.
    """
    from postroad.cost import estimate as model
    from postroad.cost.forwarding import check_probability, check_uniform

    if subscriptions is not None:
        if tree is None:
            raise InputError("--subscriptions without a tree", remedy="give --tree")
        _tell_filters(tree, subscriptions, simulate, as_json)
        return
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

    if scheme in ("kyra", "popsub"):
        size = _size(tree, fanout, height, mean_fanout, brokers)
        _tell_scheme(size, scheme, wanted, issued, clique, popular, advertise, simulate, as_json)
        return
    if scheme != "subscription_forwarding" or chances is not None or simulate is not None:
        rooted, own = _variant_of(
            tree, fanout, height, mean_fanout, brokers, scheme, gamma, advertise, chances
        )
        if own.sigma is not None and zipf_patterns is not None:
            raise InputError("--chances gives sigma", remedy="leave out --zipf-patterns")
        if own.mu is not None and zipf_publications is not None:
            raise InputError("--chances gives mu", remedy="leave out --zipf-publications")
        _tell_variant(rooted, scheme, wanted, issued, own, simulate, as_json)
        return
    _refuse_parameters(scheme, gamma, advertise)
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
    _show_load(answer.load)


@click.command()
@network
@probabilities
@click.option("--patterns", type=COUNT, help="F_p: which protocol is cheaper for this workload?")
@click.option("--publications", type=COUNT, help="F_e, with --patterns.")
@variant
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
    scheme: str,
    gamma: float | None,
    advertise: float | None,
    clique: int,
    popular: float,
    chances: Path | None,
    surface: int | None,
    as_json: bool,
) -> None:
    """The ratio F = F_p/F_e of patterns to publications at which both protocols cost the same.

    Below it subscription forwarding is cheaper, above it event forwarding.
    """
    from postroad.cost import estimate as model
    from postroad.cost import forwarding, schemes, trees

    if (patterns is None) != (publications is None):
        raise InputError(
            "one of --patterns and --publications is missing", remedy="give both, or neither"
        )
    if scheme in ("kyra", "popsub"):
        size = _size(tree, fanout, height, mean_fanout, brokers)
        costs = _costs(size, scheme, clique, popular, advertise)
        counts = (1, 1) if patterns is None or publications is None else (patterns, publications)
        each = model.uniform(sigma, counts[0]), model.uniform(mu, counts[1])
        answer = schemes.of_network(scheme, float(size[0].brokers), costs, *each)
        _tell_ratio(answer, patterns is not None, as_json)
        return
    if scheme != "subscription_forwarding" or chances is not None:
        if surface is not None:
            raise InputError("--surface with --scheme or --chances", remedy="leave one of them out")
        rooted, own = _variant_of(
            tree, fanout, height, mean_fanout, brokers, scheme, gamma, advertise, chances
        )
        counts = (1, 1) if patterns is None or publications is None else (patterns, publications)
        _tell_variant_ratio(rooted, scheme, sigma, mu, counts, own, patterns is not None, as_json)
        return
    _refuse_parameters(scheme, gamma, advertise)
    links: Links
    if tree is not None:
        links = trees.links_of(_tree(tree, fanout, height, mean_fanout, brokers))
    else:
        links = _shape(fanout, height, mean_fanout, brokers)
    if surface is not None:
        _surface(links, surface, as_json)
        return
    ratio = float(forwarding.breakeven(links, sigma, mu))
    facts: dict[str, Any] = {
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
        facts |= {
            "total_subscription_forwarding": totals[0],
            "total_event_forwarding": totals[1],
            "cheaper": "subscription_forwarding" if totals[0] < totals[1] else "event_forwarding",
            "saved": abs(totals[1] - totals[0]),
        }
        lines.append(_compare(*totals))
    click.echo(json.dumps(facts) if as_json else "\n".join(lines))


def _variant_of(
    tree: Path | None, fanout: float | None, height: int | None, mean_fanout: float | None,
    brokers: int | None, scheme: str, gamma: float | None, advertise: float | None,
    chances: Path | None,
) -> tuple[Rooted, PerBroker]:  # fmt: skip
    """The tree itself, and what its brokers do."""
    from postroad.cost import variants
    from postroad.cost.forwarding import check_probability
    from postroad.overlay import files, rooted, trees

    _refuse_parameters(scheme, gamma, advertise)
    own = variants.PerBroker()
    if tree is not None:
        hung = _tree(tree, fanout, height, mean_fanout, brokers)
        if chances is not None:
            names = files.tree(tree, 0).names
            own = variants.read(chances, [names[number] for number in hung.broker.tolist()])
    else:
        if chances is not None:
            raise InputError("--chances needs brokers with names", remedy="give the tree by --tree")
        _shape(fanout, height, mean_fanout, brokers)
        if fanout is None or height is None or not float(fanout).is_integer():
            raise InputError(
                f"--scheme {scheme} needs the tree itself",
                remedy="give --tree, or --fanout as a whole number and --height",
            )
        hung = rooted.from_overlay(trees.full_tree(int(fanout), height))
    if gamma is not None:
        own = replace(own, gamma=float(check_probability("gamma", gamma)))
    if advertise is not None:
        own = replace(own, advertise=float(check_probability("advertise", advertise)))
    return hung, own


def _refuse_parameters(scheme: str, gamma: float | None, advertise: float | None) -> None:
    for name, value, needed in (
        ("gamma", gamma, "covering"),
        ("advertise", advertise, "advertisement_forwarding"),  # or popsub, seen to before
    ):
        if value is not None and scheme != needed:
            raise InputError(f"--{name} with --scheme {scheme}", remedy=f"give --scheme {needed}")


def _tell_variant(
    tree: Rooted, scheme: str, wanted: Chances, issued: Chances, own: PerBroker,
    rounds: int | None, as_json: bool,
) -> None:  # fmt: skip
    from postroad.cost import variants
    from postroad.papers.subscription_forwarding_model import beyond

    answer = variants.of_tree(tree, scheme, wanted, issued, own)
    checks = []
    if rounds is not None:
        if len(wanted.values) > 1 or len(issued.values) > 1:
            raise InputError("--simulate with Zipf", remedy="leave out the Zipf exponents")
        sigma = float(wanted.values[0]) if own.sigma is None else own.sigma
        mu = float(issued.values[0]) if own.mu is None else own.mu
        checks = beyond.validated(tree, scheme, sigma, mu, own, rounds)
    if as_json:
        simulated = [
            {**asdict(check), "error_percent": check.error, "agrees": check.agrees}
            for check in checks
        ]
        click.echo(json.dumps({**asdict(answer), "simulated": simulated}))
        return
    _tell_traffic(answer)
    for check in checks:
        click.echo(
            f"simulated {rounds:,} times: {check.simulated:,.2f} ± {check.standard_error:.2f} "
            f"messages of {check.scheme}; the model is off by {check.error:+.2f}%, of the largest "
            f"load by at most {check.load_error_max:.1f}%"
        )
    _show_load(answer.load)


def _tell_traffic(answer: VariantEstimate) -> None:
    click.echo(
        f"{answer.brokers:,} brokers, {answer.scheme}; T(p) = "
        f"{answer.subscription_traffic_per_pattern:,.1f} messages per pattern, T(e) = "
        f"{answer.publication_traffic_per_publication:,.1f} per publication"
    )
    besides = f" ({answer.other_traffic:,.0f} of them besides)" if answer.other_traffic else ""
    click.echo(
        f"{answer.scheme} {answer.total:,.0f} messages{besides}, event forwarding "
        f"{answer.total_event_forwarding:,.0f}"
    )


def _size(
    tree: Path | None, fanout: float | None, height: int | None, mean_fanout: float | None,
    brokers: int | None,
) -> tuple[Links, float]:  # fmt: skip
    """The links of a tree, and its mean fan-out."""
    from postroad.cost import trees

    if tree is not None:
        hung = _tree(tree, fanout, height, mean_fanout, brokers)
        return trees.links_of(hung), trees.mean_fanout(hung)
    shape = _shape(fanout, height, mean_fanout, brokers)
    return shape, float(fanout or mean_fanout or 1.0)


def _costs(
    size: tuple[Links, float], scheme: str, clique: int, popular: float, advertise: float | None
) -> SchemeTraffic:
    from postroad.cost import schemes

    links, fanout = size
    if scheme == "kyra":
        _refuse_parameters(scheme, None, advertise)
        return schemes.kyra(float(links.brokers), fanout, clique)
    return schemes.popsub(links, popular, 1.0 if advertise is None else advertise)


def _tell_scheme(
    size: tuple[Links, float], scheme: str, wanted: Chances, issued: Chances, clique: int,
    popular: float, advertise: float | None, rounds: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Kyra or PopSub, and if asked how far their routers are from it."""
    from postroad.comparison.estimate import simulated_scheme
    from postroad.cost import schemes

    links, fanout = size
    count = float(links.brokers)
    costs = _costs(size, scheme, clique, popular, advertise)
    answer = schemes.of_network(scheme, count, costs, wanted, issued)
    rows: list[dict[str, Any]] = []
    if rounds is not None:
        if len(wanted.values) > 1 or len(issued.values) > 1:
            raise InputError("--simulate with Zipf", remedy="leave out the Zipf exponents")
        if scheme == "kyra" and count % clique:
            raise InputError(
                f"{count:g} brokers in cliques of {clique}", remedy="give cliques that fit"
            )
        simulated = simulated_scheme(
            scheme, round(count), fanout, wanted.mean, issued.mean, rounds, clique=clique,
            popular=popular, advertise=1.0 if advertise is None else advertise,
        )  # fmt: skip
        expected = (
            answer.subscription_traffic_per_pattern, answer.publication_traffic_per_publication,
        )  # fmt: skip
        rows = [
            {**asdict(each), "error_percent": 100 * (model / each.mean - 1) if each.mean else 0.0}
            for each, model in zip(simulated, expected, strict=True)
        ]
    if as_json:
        click.echo(json.dumps({**asdict(answer), "simulated": rows}))
        return
    _tell_traffic(answer)
    for row in rows:
        click.echo(
            f"simulated with routers: {row['mean']:,.2f} ± {row['standard_error']:.2f} messages of "
            f"{row['what']}; the model is off by {row['error_percent']:+.2f}%"
        )


def _tell_filters(tree: Path, path: Path, rounds: int | None, as_json: bool) -> None:
    """What the subscriptions of a file cost, expected over the order in which they are made."""
    from postroad.comparison.estimate import simulated_filters
    from postroad.cost.filters import of_filters
    from postroad.overlay import files as overlays
    from postroad.overlay import rooted
    from postroad.workloads import files

    overlay = overlays.tree(tree, 0)
    interests = files.workload({"subscriptions": files.file_rows(path)}, overlay.names)
    placed = [(interest.broker, interest.filter) for interest in interests.subscriptions]
    hung = rooted.from_overlay(overlay)
    rows = []
    for scheme, covering in (("subscription_forwarding", False), ("covering", True)):
        traffic = of_filters(hung, placed, covering)
        row: dict[str, Any] = {
            "scheme": scheme,
            "subscriptions": traffic.subscriptions.traffic,
            "unsubscriptions": traffic.unsubscriptions.traffic,
            "entries": traffic.entries,
            "load_max": float((traffic.subscriptions.load + traffic.unsubscriptions.load).max()),
        }
        if rounds is not None:
            mean = simulated_filters(overlay, placed, covering, rounds)
            row |= {
                "simulated": mean,
                "error_percent": 100 * (traffic.total / mean - 1) if mean else 0.0,
            }
        rows.append(row)
    if as_json:
        facts = {"brokers": overlay.brokers_count, "subscriptions": len(placed), "schemes": rows}
        click.echo(json.dumps(facts))
        return
    click.echo(f"{len(placed):,} subscriptions at {overlay.brokers_count:,} brokers, in any order")
    table = Table()
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="left" if name == "scheme" else "right")
    for row in rows:
        scheme, *numbers = row.values()
        table.add_row(scheme, *(f"{number:,.2f}" for number in numbers))
    show(table)


def _tell_variant_ratio(
    tree: Rooted, scheme: str, sigma: float, mu: float, counts: tuple[int, int], own: PerBroker,
    compared: bool, as_json: bool,
) -> None:  # fmt: skip
    from postroad.cost import estimate as model
    from postroad.cost import variants

    chances = model.uniform(sigma, counts[0]), model.uniform(mu, counts[1])
    _tell_ratio(variants.of_tree(tree, scheme, *chances, own), compared, as_json)


def _tell_ratio(answer: VariantEstimate, compared: bool, as_json: bool) -> None:
    ratio, scheme = answer.breakeven_ratio, answer.scheme
    facts: dict[str, Any] = {
        "brokers": answer.brokers, "scheme": scheme, "breakeven_ratio": ratio,
    }  # fmt: skip
    said = (
        "is cheaper at any ratio" if ratio is None else f"costs the same at F_p/F_e = {ratio:.6g}"
    )
    lines = [f"{scheme} {said}, against event forwarding"]
    if compared:
        facts |= {"total": answer.total, "total_event_forwarding": answer.total_event_forwarding}
        lines.append(
            f"{scheme} {answer.total:,.0f} messages, event forwarding "
            f"{answer.total_event_forwarding:,.0f}"
        )
    click.echo(json.dumps(facts) if as_json else "\n".join(lines))


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


def _show_load(rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table("level", "brokers", title="messages sent per broker")
    for name in list(rows[0])[2:]:
        table.add_column(name.replace("_", "\n"), justify="right")
    for row in rows:
        level, nodes, *loads = row.values()
        table.add_row(str(level), f"{nodes:,.10g}", *(f"{load:,.2f}" for load in loads))
    show(table)


def show(table: Table) -> None:
    Console(width=100 if not sys.stdout.isatty() else None).print(table)
