"""The experiments of section 5.3: points, runs, and what the figures show.

`run_point` takes and returns plain values, so a process pool or a Spark sweep can call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.kernels import popsub as kernel
from postroad.overlay import files
from postroad.overlay.wide_area import generated_matrix, topology
from postroad.papers import Cell, Measures, Replicate, run_alone
from postroad.papers import distinct as settings_of
from postroad.papers.popsub.workload import Point, workload

if TYPE_CHECKING:
    from postroad.pipeline.figures import Ratio

MECHANISMS = ["tree", "direct", "batching", "gossip"]
HOSTS = 490  # of the generated matrix
BASE = Point()
WHOLE = Point(predicates=False)
OVERLOAD = Point(
    brokers=300, rate_per_s=15.0, subscriptions=40_000, throughput_per_s=2700.0, queues=True
)


@dataclass(frozen=True)
class Axis:
    """One x-axis of the paper: a field of `Point`, its values, the figures it gives."""

    name: str
    field: str
    values: tuple[float, ...]
    base: Point
    figures: str
    workloads: int = 5  # per topology in full mode


EXPERIMENTS = [
    Axis("phi", "phi", (0.05, 0.1, 0.2, 0.4, 0.8), BASE, "3a-3c"),
    Axis("throughput", "throughput_per_s", (400, 800, 1600, 3200), BASE, "3a and 3c by τ"),
    Axis("overlay", "brokers", (100, 150, 200, 250, 300), BASE, "3d-3g"),
    Axis("subscriptions", "subscriptions", (20_000, 22_000, 25_000), BASE, "3h-3k"),
    Axis("skew", "zipf", (0.05, 0.25, 0.5, 0.75, 1.0), BASE, "3l-3o"),
    Axis("users", "random_users", (0, 1), WHOLE, "3a and 3c with whole topics, by users"),
    Axis("overload", "subscriptions", (30_000, 40_000, 50_000), OVERLOAD, "4a-4d"),
    Axis(
        "overload-throughput", "throughput_per_s", (2500, 2700, 2950), OVERLOAD, "4b and 4c by τ", 1
    ),
    Axis("overload-phi", "phi", (0.05, 0.07, 0.1), OVERLOAD, "4b and 4c by φ", 1),
    Axis("overload-batch", "batch_slope", (0.2, 0.5, 1.0), OVERLOAD, "4b and 4c by batch cost", 1),
    Axis("overload-direct", "direct_cost", (0.0, 0.05, 0.1, 0.2), OVERLOAD, "4b by direct cost", 1),
]


def rows(full: bool, matrix: Path | None) -> list[dict[str, Any]]:
    """Every run: 5 topologies by 5 workloads per point in full mode, one by one in quick mode.

    What the paper does not vary, in overload, has one workload per topology.
    Mechanisms share topology and workload, so their differences are paired.
    """
    points: list[dict[str, Any]] = []
    for experiment in EXPERIMENTS:
        values = experiment.values
        if not full:
            values = (values[0], values[-1])
        for value in values:
            whole = experiment.field in ("brokers", "subscriptions")
            varied: dict[str, Any] = {experiment.field: int(value) if whole else value}
            point = replace(experiment.base, **varied)
            for topology_seed in range(5 if full else 1):
                for workload_seed in range(experiment.workloads if full else 1):
                    points.extend(
                        {
                            "experiment": experiment.name,
                            "value": value,
                            "topology": topology_seed,
                            "workload": workload_seed,
                            "matrix": "" if matrix is None else str(matrix),
                            **asdict(replace(point, mechanism=mechanism)),
                        }
                        for mechanism in MECHANISMS
                    )
    return points


@lru_cache(maxsize=2)
def _matrix(path: str) -> kernel.Ints:
    return files.matrix(Path(path), "round-trip")[1] if path else generated_matrix(HOSTS, seed=1)


def _point(row: Mapping[str, Any]) -> Point:
    return Point(**{name: row[name] for name in Point.__dataclass_fields__})


def distinct(todo: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows that differ in what is simulated, and for each of `todo` the place of its equal.

    Only τ·φ matters where brokers have no queues, not even that to the baseline, and what a batch
    or a direct send costs only to those who queue and send them.
    """
    places: dict[Any, int] = {}
    picked: list[dict[str, Any]] = []
    place_of = []
    for row in todo:
        point = _point(row)
        mechanism, queues = point.mechanism, point.queues
        key = (
            (row["matrix"], row["topology"], row["workload"]),
            replace(point, phi=0.0, throughput_per_s=0.0, batch_slope=0.0, direct_cost=0.0),
            mechanism != "tree" and point.phi * point.throughput_per_s,
            queues and point.throughput_per_s,
            queues and mechanism in ("batching", "gossip") and point.batch_slope,
            queues and mechanism == "direct" and point.direct_cost,
        )
        if key not in places:
            places[key] = len(picked)
            picked.append(row)
        place_of.append(places[key])
    return picked, place_of


def run_point(row: Mapping[str, Any]) -> dict[str, Any]:
    """One run and the metrics of section 5.2."""
    point = _point(row)
    overlay = topology(_matrix(row["matrix"]), point.brokers, row["topology"])
    posed = workload(point, overlay, 1000 + row["workload"])
    counts = kernel.simulate(
        overlay,
        posed,
        kernel.Settings(
            mechanism=point.mechanism,
            capacity_per_s=point.throughput_per_s * point.phi,
            service_us=round(1e6 / point.throughput_per_s) if point.queues else 0,
            batch_cost=1.0 + point.batch_slope * np.arange(256, dtype=np.float64),
            direct_cost=point.direct_cost,
            seed=row["workload"],
        ),
    )
    popular, unpopular = _pdl_ms(counts.popular_us), _pdl_ms(counts.unpopular_us)
    direct = np.repeat(np.arange(len(counts.direct_forwards)), counts.direct_forwards)
    return {
        **row,
        "root_degree": len(overlay.neighbours()[0]),
        "gain_ratio": counts.gain / max(1, counts.forwards),
        "pure_forwards": counts.pure_forwards,
        "deliveries": counts.deliveries,
        "unpopular_deliveries": len(counts.unpopular_us),
        "popular_pdl_ms": popular[0],
        "unpopular_pdl_ms": unpopular[0],
        "popular_pdl90_ms": popular[1],
        "unpopular_pdl90_ms": unpopular[1],
        "direct_forwards": float(np.percentile(direct, 99)) if len(direct) else 0.0,
        "gossip_groups": counts.gossip_groups,
        "gossip_false_positives": counts.gossip_false / max(1, counts.gossip_received),
        "matches_per_gossip": (counts.gossip_received - counts.gossip_false)
        / max(1, counts.gossips),
        "queue": counts.queued_length / max(1, counts.queued),
        "messages": sum(counts.messages.values()),
        "steps": counts.steps,
    }


def sweep_case(run: Mapping[str, Any]) -> dict[str, Any]:
    return run_alone(run_point, run)


def _pdl_ms(delays_us: kernel.Ints) -> tuple[float, float]:
    """The 99th and the 90th percentile."""
    if not len(delays_us):
        return 0.0, 0.0
    high, low = np.percentile(delays_us, [99, 90]) / 1000
    return float(high), float(low)


METRICS = [
    "gain_ratio",
    "pure_forwards",
    "unpopular_deliveries",
    "popular_pdl_ms",
    "unpopular_pdl_ms",
    "popular_pdl90_ms",
    "unpopular_pdl90_ms",
    "direct_forwards",
    "gossip_groups",
    "gossip_false_positives",
    "matches_per_gossip",
    "queue",
]


BASELINES = [{"mechanism": "tree"}]
MeanOf = Mapping[tuple[str, float, str], Mapping[str, float]]


def replicates(full: bool, matrix: Path | None) -> list[Replicate]:
    """Topologies and workloads are replicates of a point; in overload also of their topology.

    Rows that are equal in what is simulated have run once: see `distinct`.
    """
    todo = rows(full, matrix)
    picked, place_of = distinct(todo)
    replicates = []
    for row, place in zip(todo, place_of, strict=True):
        number = f"{row['topology']} {row['workload']}"
        setting = {name: row[name] for name in ("experiment", "value", "mechanism")}
        replicates.append(Replicate(picked[place], setting, number))
        if row["experiment"] == "overload":
            setting = {name: row[name] for name in ("topology", "mechanism")}
            number = f"{row['value']} {row['workload']}"
            replicates.append(Replicate(picked[place], setting, number))
    return replicates


def means(measured: Measures, replicates: Iterable[Replicate]) -> MeanOf:
    """Per experiment, value and mechanism, the mean of each metric."""
    return {
        (at["experiment"], at["value"], at["mechanism"]): {
            metric: measured.figure(metric, **at).mean for metric in METRICS
        }
        for at in settings_of(replicates)
        if "experiment" in at
    }


def delivery_ratios(
    measured: Measures, replicates: Iterable[Replicate]
) -> dict[str, tuple[float, float]]:
    """Per mechanism the least and the greatest share of the baseline's deliveries, run by run."""
    ratios: dict[str, list[Ratio]] = {mechanism: [] for mechanism in MECHANISMS[1:]}
    for at in settings_of(replicates):
        if at["mechanism"] in ratios:
            ratio = measured.ratio("deliveries", BASELINES[0], **at)
            ratios[at["mechanism"]].append(ratio)
    return {
        mechanism: (min(one.least for one in own), max(one.greatest for one in own))
        for mechanism, own in ratios.items()
    }


def queues_by_topology(
    measured: Measures, replicates: Iterable[Replicate]
) -> list[dict[str, float]]:
    """Overload, topology by topology: the root's degree, the baseline's queue, and its change."""
    lines = []
    for at in settings_of(replicates):
        if "topology" in at and at["mechanism"] == "tree":
            changes = {
                mechanism: 100
                * (
                    measured.ratio(
                        "queue", BASELINES[0], topology=at["topology"], mechanism=mechanism
                    ).of_means
                    - 1
                )
                for mechanism in MECHANISMS[1:]
            }
            degree = round(measured.figure("root_degree", **at).mean)
            line = {"degree": degree, "baseline": measured.figure("queue", **at).mean, **changes}
            lines.append(line)
    return sorted(lines, key=lambda line: line["degree"])


def cells(table: MeanOf) -> list[Cell]:
    """The paper's stated numbers beside ours; changes are against the baseline, in percent."""
    values: dict[str, list[float]] = {}
    for experiment, value, _ in table:
        if value not in values.setdefault(experiment, []):
            values[experiment].append(value)

    def change(experiment: str, value: float, mechanism: str, metric: str) -> float:
        base = table[experiment, value, "tree"][metric]
        return 100 * (table[experiment, value, mechanism][metric] / base - 1) if base else 0.0

    def extreme(
        pick: Callable[[Iterable[float]], float], experiment: str, mechanism: str, metric: str
    ) -> float:
        return pick(change(experiment, value, mechanism, metric) for value in values[experiment])

    def cell(figure: str, text: str, paper: float, measured: float, unit: str) -> Cell:
        return Cell(f"figure {figure}", text, unit, paper, measured)

    first = values["phi"][0]
    baseline = table["phi", first, "tree"]
    compared = [
        cell("3a", "gain ratio of the baseline", 2.65, baseline["gain_ratio"], ""),
        cell("3a", "gain ratio, batching", 62, extreme(max, "phi", "batching", "gain_ratio"), "%"),
        cell("3a", "gain ratio, gossip", 62, extreme(max, "phi", "gossip", "gain_ratio"), "%"),
        cell("3a", "gain ratio, direct", 0, change("phi", first, "direct", "gain_ratio"), "%"),
        cell(
            "3c", "pure forwards, best of three", -59,
            min(extreme(min, "phi", m, "pure_forwards") for m in MECHANISMS[1:]), "%",
        ),
    ]  # fmt: skip
    for mechanism, paper in (("gossip", -56.0), ("batching", -37.0), ("direct", -42.0)):
        measured = extreme(min, "subscriptions", mechanism, "pure_forwards")
        compared.append(cell("3i", f"pure forwards, {mechanism}", paper, measured, "%"))
    ends = values["subscriptions"][0], values["subscriptions"][-1]
    for value, paper in zip(ends, (29.0, 36.0), strict=True):
        measured = table["subscriptions", value, "direct"]["direct_forwards"]
        compared.append(
            cell("3k", f"direct sends, {value:,.0f} subscriptions", paper, measured, "")
        )
    for value in values["overlay"][-1:]:
        straight = table["overlay", value, "direct"]
        for figure, metric, times in (
            ("3f", "unpopular_pdl_ms", (10.0, 200.0)),
            ("3g", "unpopular_pdl90_ms", (2.0, 70.0)),
        ):
            for mechanism, paper in zip(("batching", "gossip"), times, strict=True):
                measured = table["overlay", value, mechanism][metric] / straight[metric]
                claim = f"unpopular delay, {mechanism} by direct, {value:g} brokers"
                compared.append(cell(figure, claim, paper, measured, "×"))
    compared.append(
        cell("3l", "gain ratio, batching", 40, extreme(max, "skew", "batching", "gain_ratio"), "%")
    )
    even, skewed = (table["skew", values["skew"][n], "gossip"] for n in (0, -1))
    for what, metric, paper in (
        ("false positives", "gossip_false_positives", -19.0),
        ("matches per gossip", "matches_per_gossip", 18.0),
    ):
        measured = 100 * (skewed[metric] / even[metric] - 1) if even[metric] else 0.0
        compared.append(cell("3n", f"{what}, skewed against even", paper, measured, "%"))
    for mechanism, paper in (("batching", -33.0), ("direct", -60.0), ("gossip", -98.0)):
        measured = extreme(min, "overload", mechanism, "queue")
        compared.append(cell("4b", f"average queue, {mechanism}", paper, measured, "%"))
    for mechanism, paper in (("direct", -40.0), ("gossip", -57.0)):
        measured = extreme(min, "overload", mechanism, "popular_pdl_ms")
        compared.append(cell("4c", f"popular delay, {mechanism}", paper, measured, "%"))
    return compared


@dataclass(frozen=True)
class Trend:
    """How a metric moves along an experiment in the paper, and for which mechanisms here."""

    figure: str
    experiment: str
    metric: str
    rises: bool
    mechanisms: tuple[str, ...]


_THREE = ("direct", "batching", "gossip")
_ALL = ("tree", *_THREE)
TRENDS = [
    Trend("3a", "phi", "gain_ratio", False, ("batching", "gossip")),
    Trend("3b", "phi", "unpopular_deliveries", False, _THREE),
    Trend("3c", "phi", "pure_forwards", True, _THREE),
    Trend("3d", "overlay", "gain_ratio", False, _ALL),
    Trend("3e", "overlay", "pure_forwards", True, _ALL),
    Trend("3h", "subscriptions", "gain_ratio", True, _ALL),
    Trend("3k", "subscriptions", "direct_forwards", True, ("direct",)),
    Trend("3l", "skew", "gain_ratio", True, _ALL),
    Trend("3m", "skew", "pure_forwards", False, _ALL),
    Trend("3n", "skew", "gossip_false_positives", False, ("gossip",)),
    Trend("3n", "skew", "matches_per_gossip", True, ("gossip",)),
    Trend("3o", "skew", "gossip_groups", False, ("gossip",)),
    Trend("3o", "skew", "direct_forwards", False, ("direct",)),
    Trend("4a", "overload", "gain_ratio", True, _ALL),
]


def followed(trend: Trend, table: MeanOf) -> dict[str, bool]:
    """Per mechanism, whether each step of the experiment moves its metric the paper's way."""
    sign = 1 if trend.rises else -1
    verdicts = {}
    for mechanism in trend.mechanisms:
        line = [
            sign * measures[trend.metric]
            for (name, _, by), measures in table.items()
            if name == trend.experiment and by == mechanism
        ]
        verdicts[mechanism] = all(a <= b for a, b in pairwise(line)) and line[0] < line[-1]
    return verdicts
