"""`postroad plan …`: overlays and other plans from who wants what."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter

import click

from postroad.errors import InputError

FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def plan() -> None:
    """Plan overlays from interests."""


@plan.command()
@click.option("--interests", type=FILE, required=True, help="Rows node,topic: CSV or Parquet.")
@click.option(
    "--overlay",
    type=click.Choice(["SL", "S", "L", "-"]),
    default="SL",
    show_default=True,
    help="What to plan for interest: S the ring, L the long fingers, SL both, - neither.",
)
@click.option(
    "--long",
    type=click.Choice(["chord", "random"]),
    default="chord",
    show_default=True,
    help="The long fingers if they are not planned.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Settles ties.")
@click.option(
    "--approximate",
    is_flag=True,
    help="Choose among candidate edges that Spark finds, for more nodes than 10,000s.",
)
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
@click.option("-o", "--out", type=FILE, required=True, help="Where to write the overlay (JSON).")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object.")
def swico(
    interests: Path,
    overlay: str,
    long: str,
    seed: int,
    approximate: bool,
    master: str,
    out: Path,
    as_json: bool,
) -> None:
    """A small-world ring whose neighbours share interests (BeaConvey's overlays)."""
    from postroad.kernels.swico import build, components_count
    from postroad.overlay import small_world
    from postroad.planning import swico as planning
    from postroad.planning.interests import read

    if approximate and overlay != "SL":
        raise InputError(
            f"--approximate with --overlay {overlay}", remedy="the approximate planner makes SL"
        )
    names, topics, given = read(interests)
    began = perf_counter()
    if approximate:
        from postroad.kernels import swico_candidates
        from postroad.pipeline.session import session
        from postroad.pipeline.swico import candidate_edges

        with session(master) as spark:
            edges = candidate_edges(spark, given)
        world = swico_candidates.build(given, edges, seed)
    else:
        world = build(given, overlay, long, seed)
    took = perf_counter() - began
    assert world.has_property_1()
    found = components_count(given, world)
    most, least = planning.components_bounds(given)
    facts = {
        "overlay": overlay,
        "long": "greedy" if "L" in overlay else long,
        "seed": seed,
        "approximate": approximate,
        "components": {"without_links": most, "least": least, "overlay": found},
        "tco_support": planning.support(given, found),
    }
    small_world.save(small_world.as_overlay(world, names, 0), out, facts)
    if as_json:
        click.echo(json.dumps({"nodes_count": len(names), "topics_count": len(topics), **facts}))
        return
    click.echo(
        f"{len(names):,} nodes, {len(topics):,} topics, {len(given.topics):,} interests; "
        f"overlay {overlay} in {took:.1f} s"
    )
    click.echo(
        f"{world.fingers.shape[1]} fingers a node, {len(world.edges):,} links; topic-connected "
        f"components {most:,} without links, {found:,} now, {least:,} at best"
    )
    click.echo(f"TcoSuppR {facts['tco_support']:.4f}; written to {out}")
