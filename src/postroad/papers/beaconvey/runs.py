"""The experiments: one row is one overlay of one workload, on which all systems run.

`run_point` takes and returns plain values, so a process pool or a Spark sweep can call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from postroad import draws
from postroad.kernels import beaconvey as routes
from postroad.kernels import swico as planner
from postroad.overlay import IntArray
from postroad.papers import (
    Cell,
    Claim,
    Measures,
    Replicate,
    distinct,
    facts,
    histogram,
    run_alone,
)
from postroad.papers.beaconvey.published import OVERLAYS, STATED, TABLES
from postroad.planning.interests import sample
from postroad.planning.swico import TopicInterests, components_bounds
from postroad.routing.scribe import rendezvous
from postroad.sim.facts import columns
from postroad.workloads.graphs import numbered_edges
from postroad.workloads.topics import synthetic

if TYPE_CHECKING:
    from postroad.pipeline.figures import Ratio

Row = Mapping[str, Any]
SYSTEMS = {
    "pie": "BeaConvey({}, Pie)",
    "po": "BeaConvey({}, Po)",
    "pal": "BeaConvey({}, Pal)",
    "iscribe": "iScribe({})",
    "scribe": "Scribe({})",
}
METRICS = (
    "overhead",
    "path_mean",
    "path_publication",
    "path_max",
    "overhead_but_rendezvous",
    "overhead_every_relay",
    "overhead_without_publisher",
    "overhead_with_singles",
    "overhead_clockwise",
    "path_clockwise",
    "overhead_incoming_any",
    "path_incoming_any",
    "overhead_chord_begun",
    "path_chord_begun",
)
# Other ways to read the paper: the metric to take for one of ours.
READINGS: dict[str, dict[str, str]] = {
    "ours": {},
    "rendezvous points are not counted": {"overhead": "overhead_but_rendezvous"},
    "interested relays are counted too": {"overhead": "overhead_every_relay"},
    "trees leave out the publisher": {"overhead": "overhead_without_publisher"},
    "topics with one subscriber are published": {"overhead": "overhead_with_singles"},
    "paths are averaged within a publication first": {"path_mean": "path_publication"},
    "send never passes its target": {
        "overhead": "overhead_clockwise",
        "path_mean": "path_clockwise",
    },
    "GSwicoL limits no incoming fingers": {
        "overhead": "overhead_incoming_any",
        "path_mean": "path_incoming_any",
    },
    "Chord has ⌈log2 n⌉ fingers": {
        "overhead": "overhead_chord_begun",
        "path_mean": "path_chord_begun",
    },
    "a college's friendships instead of the ego networks": {},
}
COLLEGE = list(READINGS)[-1]
NODES = 1023
EACH = 20
BASE = "Scribe(-)"  # what ratios are against


@lru_cache(maxsize=2)
def _edges(graph: str) -> IntArray:
    return numbered_edges(Path(graph))


@lru_cache(maxsize=2)
def interests_of(workload: str, nodes: int, topics: int, graph: str, seed: int) -> TopicInterests:
    if graph:
        return sample(_edges(graph), nodes, seed, friends=workload in ("fb", "college"))
    kind = "unif" if workload == "grow" else workload
    return synthetic(kind, nodes, topics, EACH, seed)


def publications(
    interests: TopicInterests, count: int, seed: int, least: int = 2
) -> tuple[IntArray, IntArray]:
    """Topics uniform over those with `least` subscribers, publishers over the subscribers."""
    start, nodes = interests.subscribers
    size = np.diff(start)
    chance = np.random.default_rng(draws.bits(seed, "beaconvey.publications", 0, 0))
    topics = np.sort(chance.choice(np.flatnonzero(size >= least), count))
    return topics, nodes[start[topics] + chance.integers(size[topics])]


def run_point(row: Row) -> dict[str, Any]:
    """Build one overlay and run every system on it."""
    interests = interests_of(
        row["workload"], row["nodes"], row["topics"], row["graph"], row["seed"]
    )
    topics, publishers = publications(interests, row["publications"], row["seed"])
    singles = publications(interests, row["publications"], row["seed"], least=1)
    roots = np.array(
        [
            rendezvous(str(t), interests.nodes_count, row["seed"])
            for t in range(interests.topics_count)
        ]
    )
    began = perf_counter()
    overlay, long, seed = row["overlay"], row["long"], row["seed"]
    world = planner.build(interests, overlay, long, seed)
    planned = perf_counter()
    unlimited, begun = world, world
    if "L" in overlay:
        unlimited = planner.build(interests, overlay, long, seed, "any")
    elif long == "chord":
        begun = planner.build(interests, overlay, "chord_begun", seed)
    most, least = components_bounds(interests)
    merges = most - planner.components_count(interests, world)
    counted = facts("beaconvey", {"merges": merges, "merges_possible": most - least})
    for scheme, system in SYSTEMS.items():
        outcome = routes.route(world, interests, scheme, topics, publishers, roots)
        at_root = np.zeros(len(topics), bool)
        pruned = outcome
        if scheme in ("scribe", "iscribe"):
            at_root = _passes_idle_root(interests, topics, publishers, world.order[roots])
            pruned = routes.route(world, interests, scheme, topics, publishers, roots, back=False)
        clockwise = routes.route(
            world, interests, scheme, topics, publishers, roots, clockwise=True
        )
        others = {"clockwise": clockwise}
        for reading, other in (("incoming_any", unlimited), ("chord_begun", begun)):
            others[reading] = outcome
            if other is not world:
                others[reading] = routes.route(other, interests, scheme, topics, publishers, roots)
        single = routes.route(world, interests, scheme, *singles, roots)
        counts: dict[str, Any] = {
            "publications": len(topics),
            "messages": outcome.messages.sum(),
            "deliveries": outcome.deliveries.sum(),
            "returns": np.count_nonzero(outcome.own_path > 0),
            "pure_forwards": outcome.pure_forwards.sum(),
            "idle_roots": np.count_nonzero(at_root),
            "hops": histogram(np.maximum(1, outcome.deliveries), outcome.path_sum),
            "path": outcome.path_max.max(),
            "without_publisher_pure_forwards": pruned.pure_forwards.sum(),
            "with_singles_pure_forwards": single.pure_forwards.sum(),
        }
        for reading, routed in others.items():
            counts |= {
                f"{reading}_pure_forwards": routed.pure_forwards.sum(),
                f"{reading}_hops": routed.path_sum.sum(),
                f"{reading}_deliveries": routed.deliveries.sum(),
            }
        counted += facts("beaconvey", counts, system.format(row["overlay"]))
    return {
        **row,
        "nodes_found": interests.nodes_count,
        "plan_s": planned - began,
        "facts": columns(counted),
    }


def sweep_case(run: Row) -> dict[str, Any]:
    return run_alone(run_point, run)


def _passes_idle_root(
    interests: TopicInterests, topics: IntArray, publishers: IntArray, roots: IntArray
) -> npt.NDArray[np.bool_]:
    """Whether a publication comes to a rendezvous point that is not interested in it."""
    wanted = (
        np.repeat(np.arange(interests.nodes_count), np.diff(interests.start))
        * interests.topics_count
    )
    interested = np.isin(
        roots * interests.topics_count + np.arange(len(roots)), wanted + interests.topics
    )
    passes: npt.NDArray[np.bool_] = (publishers != roots[topics]) & ~interested[topics]
    return passes


def rows(full: bool, graphs: Mapping[str, Path], long: str) -> list[dict[str, Any]]:
    """What to run: figures from synthetic interests, tables from the graphs that are there."""
    common = {"long": long, "publications": 5_000 if full else 2_000}
    points: list[dict[str, Any]] = []
    topics = range(1000, 10_001, 1000) if full else (1000, 4000, 10_000)
    for workload in ("zipf", "unif"):
        points += [
            {"workload": workload, "nodes": NODES, "topics": count, "graph": ""} for count in topics
        ]
    points += [
        {"workload": "expo", "nodes": NODES, "topics": count, "graph": ""}
        for count in (1000, 4000, 10_000)
    ]
    points += [
        {"workload": "grow", "nodes": count, "topics": 2000, "graph": ""}
        for count in (range(1000, 10_001, 1000) if full else (1000, 3000))
    ]
    points += [
        {"workload": name, "nodes": count, "topics": 0, "graph": str(path)}
        for name, path in graphs.items()
        for count in (1000, 10_000)
    ]
    return [
        point | common | {"overlay": overlay, "seed": seed}
        for point in points
        for seed in range(_seeds(point) if full else 1)
        for overlay in (("SL", "-") if point["workload"] == "grow" else OVERLAYS)
    ]


def _seeds(point: Row) -> int:
    """Small samples of one graph differ most, so there are more of them."""
    return 8 if point["graph"] and point["nodes"] == 1000 else 2


BASELINES: list[Mapping[str, str]] = [{"scheme": BASE}]


def replicates(rows: Iterable[Row]) -> list[Replicate]:
    """Seeds are replicates of a workload and its size; each system names its overlay."""
    names = ("workload", "nodes", "topics")
    return [Replicate(row, {name: row[name] for name in names}, str(row["seed"])) for row in rows]


class Means:
    """What the runs found, by workload, size and system; means over the seeds."""

    def __init__(self, measured: Measures, replicates: Iterable[Replicate]) -> None:
        self.measured = measured
        self.settings = distinct(replicates)

    def points(self, workload: str) -> list[tuple[int, int]]:
        mine = (at for at in self.settings if at["workload"] == workload)
        return sorted((at["nodes"], at["topics"]) for at in mine)

    def value(self, workload: str, point: tuple[int, int], system: str, metric: str) -> float:
        return self.measured.figure(metric, **_at(workload, point, system)).mean

    def ratio(self, workload: str, point: tuple[int, int], system: str, metric: str) -> float:
        """Against the original Scribe on the same workload."""
        return 1.0 if system == BASE else self.ratios(workload, point, system, metric).of_means

    def ratios(self, workload: str, point: tuple[int, int], system: str, metric: str) -> Ratio:
        """The same with that of each seed."""
        return self.measured.ratio(metric, BASELINES[0], **_at(workload, point, system))

    def samples(self, workload: str, point: tuple[int, int], system: str) -> int:
        return self.measured.figure("overhead", **_at(workload, point, system)).n


def _at(workload: str, point: tuple[int, int], system: str) -> dict[str, Any]:
    return {"workload": workload, "nodes": point[0], "topics": point[1], "scheme": system}


def cells(measured: Means, reading: str = "ours") -> list[Cell]:
    """Tables 3 to 5 as far as their graphs were there, then what the text says of figures."""
    compared = []
    metric_of = READINGS[reading]
    shown: set[tuple[str, str, str]] = set()
    for table, (workload, published) in TABLES.items():
        if reading == COLLEGE and workload == "fb" and measured.points("college"):
            workload = "college"
        for system, ratios in published.items():
            for place, point in enumerate(measured.points(workload)):
                size = "1K" if point[0] == 1000 else "10K"
                for metric, paper in zip(("overhead", "path_mean"), ratios[place::2], strict=True):
                    taken = metric_of.get(metric, metric)
                    ours = measured.ratio(workload, point, system, taken)
                    low = high = 1.0
                    if system != BASE:
                        ratios_of = measured.ratios(workload, point, system, taken)
                        low, high = ratios_of.least, ratios_of.greatest
                    samples = measured.samples(workload, point, system)
                    column = f"{metric} {size}"
                    counts = system != BASE and (workload, system, column) not in shown
                    shown.add((workload, system, column))
                    named = (f"Table {table}", system, column)
                    compared.append(Cell(*named, paper, ours, low, high, samples, counts=counts))
    for said in STATED:
        points = [p for p in measured.points(said.workload) if said.topics in (None, p[1])]
        if not points:
            continue
        take = measured.ratio if said.against_scribe else measured.value
        taken = metric_of.get(said.metric, said.metric)
        ours = fmean(take(said.workload, p, said.system, taken) for p in points)
        where = "mean" if said.topics is None else f"at {said.topics:,} topics"
        unit = "ratio" if said.against_scribe else "hops"
        column = f"{said.metric} {unit}, {where}"
        compared.append(Cell(f"Figure {said.figure}", said.system, column, said.paper, ours))
    return compared


def expo(measured: Means) -> list[dict[str, str]]:
    """Expo, of which the paper shows nothing: ratios at each number of topics, planned and not."""
    systems = [SYSTEMS[scheme].format("SL") for scheme in SYSTEMS] + ["BeaConvey(-, Pie)"]
    return [
        {"system": system}
        | {
            f"{metric}, {topics:,} topics": f"{measured.ratio('expo', point, system, metric):.3f}"
            for metric in ("overhead", "path_mean")
            for point in measured.points("expo")
            for topics in point[1:]
        }
        for system in systems
        if measured.points("expo")
    ]


def claims(measured: Means) -> list[Claim]:
    """Each claim is held against every point of a workload; numbers are means over them."""
    stated: list[Claim] = []

    def claim(
        text: str, workload: str, systems: Mapping[str, str], metric: str,
        holds: Callable[[dict[str, float]], bool],
    ) -> None:  # fmt: skip
        means_of = {
            point: {
                name: measured.ratio(workload, point, system, metric)
                for name, system in systems.items()
            }
            for point in measured.points(workload)
        }
        if means_of:
            means = {name: fmean(each[name] for each in means_of.values()) for name in systems}
            numbers = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())
            against = {point: each for point, each in means_of.items() if not holds(each)}
            for (nodes, _), each in against.items():
                values = ", ".join(f"{name} {value:.3f}" for name, value in each.items())
                numbers += f"; not at {nodes:,} nodes: {values}"
            stated.append(Claim(f"{workload}: {text}", not against, numbers))

    overlays = {overlay: f"BeaConvey({overlay}, Pie)" for overlay in OVERLAYS}
    for workload in ("fb", "tw", "zipf", "unif"):
        claim("SL has the least overhead", workload, overlays, "overhead",
              lambda means_of: min(means_of, key=lambda name: means_of[name]) == "SL")  # fmt: skip
        if workload == "unif":
            claim("long fingers matter more than short", workload, overlays, "overhead",
                  lambda means_of: means_of["L"] < means_of["S"])  # fmt: skip
        else:
            claim("short fingers matter more than long", workload, overlays, "overhead",
                  lambda means_of: means_of["S"] < means_of["L"])  # fmt: skip
    routings = {name: f"BeaConvey(SL, {name})" for name in ("Po", "Pie", "Pal")}
    for workload in ("fb", "tw", "zipf", "unif", "grow"):
        claim("overhead Po < Pie < Pal", workload, routings, "overhead",
              lambda means_of: means_of["Po"] < means_of["Pie"] < means_of["Pal"])  # fmt: skip
        claim("path length of Pie within 10% of Pal", workload, routings, "path_mean",
              lambda means_of: abs(means_of["Pie"] / means_of["Pal"] - 1) < 0.1)  # fmt: skip
    return stated


def counts_ccdf(interests: TopicInterests) -> dict[str, list[tuple[int, float]]]:
    """Figure 3: the share of users with at least so many followees, and followers."""
    curves = {}
    for name, counts in (
        ("followees", np.diff(interests.start)),
        ("followers", np.diff(interests.subscribers[0])),
    ):
        values, first = np.unique(np.sort(counts), return_index=True)
        curves[name] = [
            (int(v), 1 - f / len(counts)) for v, f in zip(values, first.tolist(), strict=True)
        ]
    return curves
