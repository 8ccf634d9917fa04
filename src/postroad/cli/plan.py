"""`postroad plan …`: overlays and other plans from who wants what."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from postroad.cli.naming import MAP, names_of, pairs
from postroad.cli.progress import counted, waiting
from postroad.cli.spark import job, on_spark
from postroad.errors import InputError

FILE = click.Path(path_type=Path, dir_okay=False)
TABLE = click.Path(path_type=Path)
LARGE_ROWS = 5_000_000
"""Interests above which Spark numbers nodes and topics; below, that takes longer than to plan."""


@click.group()
def plan() -> None:
    """Plan overlays from interests."""


@plan.command()
@click.option("--interests", type=TABLE, required=True, help="Rows node,topic: CSV or Parquet.")
@click.option(
    "--overlay",
    type=click.Choice(["SL", "S", "L", "-"]),
    default="SL",
    show_default=True,
    help="What to plan for interest: S the ring, L the long fingers, SL both, - neither.",
)
@click.option(
    "--long",
    type=click.Choice(["chord", "chord_begun", "random"]),
    default="chord",
    show_default=True,
    help="The long fingers if they are not planned; chord_begun: one more, of the last phase.",
)
@click.option(
    "--incoming",
    type=click.Choice(["one", "any"]),
    default="one",
    show_default=True,
    help="How many planned fingers of one phase may point to a node.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Settles ties.")
@click.option(
    "--approximate",
    is_flag=True,
    help="Choose among candidate edges that Spark finds, for more nodes than 10,000s.",
)
@on_spark
@MAP
@click.option("-o", "--out", type=FILE, required=True, help="Where to write the overlay (JSON).")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object.")
def swico(
    interests: Path,
    overlay: str,
    long: str,
    incoming: str,
    seed: int,
    approximate: bool,
    names: tuple[str, ...],
    out: Path,
    as_json: bool,
    **told: Any,
) -> None:
    """A small-world ring whose neighbours share interests (BeaConvey's overlays)."""
    from postroad.kernels.swico import build, components_count, steps_count
    from postroad.overlay import small_world
    from postroad.planning import swico as planning
    from postroad.planning.interests import is_parquet, read, rows_count

    if approximate and overlay != "SL":
        raise InputError(
            f"--approximate with --overlay {overlay}", remedy="the approximate planner makes SL"
        )
    if approximate and incoming != "one":
        raise InputError(
            f"--approximate with --incoming {incoming}", remedy="leave one of the two out"
        )
    began = perf_counter()
    if approximate:
        from postroad.kernels import swico_candidates
        from postroad.pipeline import run

        where, beside = job(told, bar=True), str(out.absolute().parent)
        if is_parquet(interests) and rows_count(interests) > LARGE_ROWS:
            nodes, wanted, edges = run.interests(str(interests), pairs(names), beside, where)
        else:
            nodes, _, wanted = read(interests, pairs(names))
            edges = run.candidates(wanted, beside, where)
        world = swico_candidates.build(wanted, edges, seed)
    else:
        nodes, _, wanted = read(interests, pairs(names))
        world = counted(
            "planning",
            lambda done: build(wanted, overlay, long, seed, incoming, done),
            steps_count(wanted, overlay),
        )
    took = perf_counter() - began
    assert world.has_property_1()
    components = components_count(wanted, world)
    most, least = planning.components_bounds(wanted)
    facts = {
        "overlay": overlay,
        "long": "greedy" if "L" in overlay else long,
        "incoming": incoming,
        "seed": seed,
        "approximate": approximate,
        "components": {"without_links": most, "least": least, "overlay": components},
        "tco_support": planning.support(wanted, components),
    }
    small_world.save(small_world.as_overlay(world, nodes, 0), out, facts)
    if as_json:
        click.echo(
            json.dumps({"nodes_count": len(nodes), "topics_count": wanted.topics_count, **facts})
        )
        return
    click.echo(
        f"{len(nodes):,} nodes, {wanted.topics_count:,} topics, {len(wanted.topics):,} interests; "
        f"overlay {overlay} in {took:.1f} s"
    )
    click.echo(
        f"{world.fingers.shape[1]} fingers a node, {len(world.edges):,} links; topic-connected "
        f"components {most:,} without links, {components:,} now, {least:,} at best"
    )
    click.echo(f"TcoSuppR {facts['tco_support']:.4f}; written to {out}")


@plan.command()
@click.option(
    "--latencies", type=FILE, help="A matrix or lines from,to,value (.csv), or a graph of links."
)
@click.option(
    "--times",
    type=click.Choice(["one-way", "round-trip", "rtt"]),
    help="What the latencies are, unless the file's header says it.",
)
@click.option(
    "--unit",
    type=click.Choice(["us", "ms", "s"]),
    help="Of the latencies; a matrix is in ms without it, lines with blanks are in µs.",
)
@click.option(
    "--servers", type=click.IntRange(min=1), help="Or: a transit-stub network of so many."
)
@click.option("--multi-homed", type=float, default=0.0, show_default=True, help="Of its domains.")
@click.option(
    "--subscriptions", type=TABLE, required=True, help="As a scenario's: CSV, JSON or Parquet."
)
@click.option("--publications", type=TABLE, help="Likewise; without them filters stand for them.")
@MAP
@click.option(
    "--weight", help="The attribute of a publication that says how much it weighs; else 1 each."
)
@click.option("--clique-ms", type=float, default=100.0, show_default=True, help="Within a clique.")
@click.option("--clique-max", type=int, default=0, help="Most servers in a clique.")
@click.option("--trees", type=int, default=0, help="By default as many as the largest clique.")
@click.option("--attributes", default="", help="To cut the content space on, with commas.")
@click.option("--balance", type=int, default=1, show_default=True, help="Balance factor of trees.")
@click.option("--alpha", type=float, default=0.6101, show_default=True, help="Of popularity.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the transit-stub network.")
@on_spark
@click.option("-o", "--out", type=FILE, required=True, help="Where to write the plan (JSON).")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object.")
def kyra(
    latencies: Path | None,
    times: str | None,
    unit: str | None,
    servers: int | None,
    multi_homed: float,
    subscriptions: Path,
    publications: Path | None,
    names: tuple[str, ...],
    weight: str | None,
    clique_ms: float,
    clique_max: int,
    trees: int,
    attributes: str,
    balance: int,
    alpha: float,
    seed: int,
    out: Path,
    as_json: bool,
    **told: Any,
) -> None:
    """Cliques, zones and trees for Kyra, from latencies and a workload.

    If subscriptions and publications are tables of the pipeline, Spark computes the loads."""
    from postroad.overlay import files as overlays
    from postroad.overlay.transit_stub import transit_stub
    from postroad.planning import kyra as planning
    from postroad.planning.zones import attributes_of
    from postroad.routing.kyra import Config
    from postroad.workloads import files

    if (latencies is None) == (servers is None):
        raise InputError("where are the servers?", remedy="give either --latencies or --servers")
    if latencies is None and (times is not None or unit is not None):
        raise InputError("--times or --unit without --latencies", remedy="give --latencies too")
    config = Config(clique_ms, clique_max, trees, attributes, balance, alpha)
    if latencies is not None:
        overlay = overlays.read(latencies, "round-trip" if times == "rtt" else times, unit)
    else:
        assert servers is not None
        overlay = transit_stub(seed, servers, multi_homed=multi_homed).overlay()
    assert overlay.direct_us is not None
    named = names_of(names)
    tables = {"subscriptions": files.file_rows(subscriptions, named)}
    on_tables = (
        publications is not None
        and not names
        and all((one / "_lineage.json").is_file() for one in (subscriptions, publications))
    )
    if publications is not None and not on_tables:
        tables["publications"] = files.file_rows(publications, named, publications=True)
    wanted = files.workload(tables, overlay.names)
    named.check()
    if not wanted.subscriptions:
        click.echo(f"postroad: warning: there is no subscription in {subscriptions}", err=True)
    filters = [interest.filter for interest in wanted.subscriptions]
    points = [posting.attributes for posting in wanted.postings]
    cut = [name.strip() for name in config.attributes.split(",") if name.strip()]
    weights = loads = None
    if on_tables:
        from postroad.pipeline.run import zone_loads

        points[:], loads = zone_loads(
            str(subscriptions), str(publications), str(out.parent), job(told, bar=True),
            attributes=cut or attributes_of(filters), alpha=alpha, weight=weight,
        )  # fmt: skip
    elif weight is not None:
        weights = _weights(points, weight, publications)
    with waiting("planning"):
        cliques = planning.cliques(overlay.direct_us, round(1000 * clique_ms), clique_max)
        divide = planning.divider(filters, points, cut, alpha, weights, loads)
        layout = planning.layout(overlay.direct_us, cliques, divide, trees, balance)
    joined = [len(layout.members(tree)) for tree in range(len(layout.trees))]
    facts = {
        "servers_count": overlay.brokers_count,
        "subscriptions_count": len(filters),
        "cliques_count": len(cliques),
        "clique_size_max": max(map(len, cliques)),
        "trees_count": len(layout.trees),
        "tree_size_mean": sum(joined) / len(joined),
        "clique_ms": clique_ms,
        "balance": balance,
    }
    planning.save(overlay, layout, out, facts)
    if as_json:
        click.echo(json.dumps(facts))
        return
    click.echo(
        f"{facts['servers_count']:,} servers in {len(cliques):,} cliques of up to "
        f"{facts['clique_size_max']}; {len(layout.trees)} trees of {facts['tree_size_mean']:.1f} "
        f"servers on average"
    )
    attributes_cut = sorted({side[0] for zone in layout.tree_zones for side in zone.sides})
    click.echo(f"cut on {', '.join(attributes_cut) or 'nothing'}; written to {out}")


def _weights(
    points: Sequence[Mapping[str, object]], name: str, publications: Path | None
) -> list[float]:
    """What each publication weighs in the load of its zone."""
    if publications is None:
        raise InputError("--weight without publications", remedy="give --publications")
    weights = []
    for number, point in enumerate(points, 1):
        value = point.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise InputError(
                f"publication {number} has {name} = {value!r}",
                where=str(publications),
                remedy=f"give every publication a {name} of 0 or more",
            )
        weights.append(float(value))
    if not any(weights):
        raise InputError(
            f"no publication has a {name} above 0", where=str(publications), remedy="give weights"
        )
    return weights


@plan.command()
@click.option("--servers", type=click.IntRange(min=2), default=500, show_default=True)
@click.option("--networks", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the fit as one JSON object.")
def alpha(servers: int, networks: int, seed: int, as_json: bool) -> None:
    """Re-derive Kyra's α: the servers that a publication passes, by its popularity."""
    import numpy as np

    from postroad.overlay.transit_stub import transit_stub
    from postroad.papers.kyra import alpha as fitting

    fits = [
        fitting.measure(transit_stub(seed + number, servers), seed) for number in range(networks)
    ]
    fit = fitting.fit(fits[0][0], np.mean([passed for _, passed in fits], axis=0))
    if as_json:
        click.echo(json.dumps({"alpha": fit.alpha, "r_square": fit.r_square}))
        return
    click.echo(f"share of servers passed = popularity^{fit.alpha:.4f}, R² {fit.r_square:.4f}")
    click.echo("the paper: popularity^0.6101, R² 0.9988")
