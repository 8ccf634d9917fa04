"""The experiments of section 5.3: points, runs, and what the figures show.

`run_point` takes and returns plain values, so a process pool or a Spark sweep can call it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.cost.service import Costs
from postroad.kernels import popsub as kernel
from postroad.overlay import Overlay, files
from postroad.overlay.wide_area import generated_matrix, topology
from postroad.papers import Cell, Measures, Replicate, facts, histogram, run_alone
from postroad.papers import distinct as settings_of
from postroad.papers.popsub.workload import Point, throughputs, workload
from postroad.pipeline.definitions import MILLION
from postroad.sim.facts import buckets, columns

if TYPE_CHECKING:
    from postroad.pipeline.figures import Figure, Ratio

MECHANISMS = ["tree", "direct", "batching", "gossip"]
HOSTS = 490  # of the generated matrix
LARGEST = 4096  # publications in a message whose cost is told apart from that of larger ones
BASE = Point()
WHOLE = Point(predicates=False)
OVERLOAD = Point(brokers=300, rate_per_s=15.0, subscriptions=40_000, queues=True)
OURS = "ours"
READINGS: dict[str, dict[str, Any]] = {
    OURS: {},
    "own entries only": {"entries": "own"},
    "the prose rule": {"rule": "prose"},
    "Zipf over publishers": {"zipf_over": "publishers"},
    "free sends, batches 1 + 0.2 (n - 1)": {
        "direct_cost": 0.0, "batch_cost": 0.2, "gossip_cost": 0.2,
    },
}  # fmt: skip
ONLY_IN = {"Zipf over publishers": ("skew",), "free sends, batches 1 + 0.2 (n - 1)": ("overload",)}
STATED = ("phi", "overlay", "subscriptions", "skew", "overload")  # with numbers in the text


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
    Axis("throughput", "throughput_per_s", (400, 800, 1600, 3200, 6400), BASE, "3a and 3c by τ", 1),
    Axis("overlay", "brokers", (100, 150, 200, 250, 300), BASE, "3d-3g"),
    Axis("subscriptions", "subscriptions", (20_000, 22_000, 25_000), BASE, "3h-3k"),
    Axis("skew", "zipf", (0.05, 0.25, 0.5, 0.75, 1.0), BASE, "3l-3o"),
    Axis("users", "random_users", (0, 1), WHOLE, "3a and 3c with whole topics, by users", 1),
    Axis("overload", "subscriptions", (30_000, 40_000, 50_000), OVERLOAD, "4a-4d", 1),
    Axis("overload-throughput", "throughput_per_s", (2250, 2750), OVERLOAD, "4b and 4c by τ", 1),
    Axis("overload-phi", "phi", (0.1, 0.2), OVERLOAD, "4b and 4c by φ", 1),
]


def rows(full: bool, matrix: Path | None) -> list[dict[str, Any]]:
    """Every run: 5 topologies by 5 workloads per point in full mode, one by one in quick mode.

    What takes long (overload) or the paper does not vary has one workload per topology; the other
    readings have that too, at the ends of the experiments with stated numbers, in full mode only.
    Mechanisms share topology and workload, so their differences are paired.
    """
    points: list[dict[str, Any]] = []
    for reading, changes in READINGS.items():
        ours = reading == OURS
        for experiment in EXPERIMENTS:
            name = experiment.name
            applies = name in ONLY_IN.get(reading, STATED)
            if not ours and not (full and applies):
                continue
            values = experiment.values
            if not (full and ours):
                values = (values[0], values[-1])
            for value in values:
                whole = experiment.field in ("brokers", "subscriptions")
                varied: dict[str, Any] = {experiment.field: int(value) if whole else value}
                point = replace(experiment.base, **varied, **changes)
                for topology_seed in range(5 if full else 1):
                    for workload_seed in range(experiment.workloads if full and ours else 1):
                        points.extend(
                            {
                                "reading": reading,
                                "experiment": name,
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

    Only τ·φ matters where brokers have no queues, nothing of popularity to the baseline, and what
    a batch or a direct send costs only to those who queue and send them.
    """
    places: dict[Any, int] = {}
    picked: list[dict[str, Any]] = []
    place_of = []
    neutral: dict[str, Any] = {"phi": 0.0, "throughput_per_s": 0.0, "entries": "", "rule": ""}
    costs: dict[str, Any] = dict.fromkeys(("batch_cost", "gossip_cost", "direct_cost"))
    costly = {"direct": "direct_cost", "batching": "batch_cost", "gossip": "gossip_cost"}
    for row in todo:
        point = _point(row)
        mechanism, queues = point.mechanism, point.queues
        key = (
            (row["matrix"], row["topology"], row["workload"]),
            replace(point, **neutral, **costs),
            mechanism != "tree" and (point.phi * point.throughput_per_s, point.entries, point.rule),
            queues and point.throughput_per_s,
            queues and mechanism in costly and getattr(point, costly[mechanism]),
        )
        if key not in places:
            places[key] = len(picked)
            picked.append(row)
        place_of.append(places[key])
    return picked, place_of


def setting(
    row: Mapping[str, Any],
) -> tuple[Overlay, kernel.WorkloadArrays, kernel.Settings]:
    """What the kernel simulates for a row."""
    point = _point(row)
    overlay = topology(_matrix(row["matrix"]), point.brokers, row["topology"])
    posed = workload(point, overlay, 1000 + row["workload"])
    tau = throughputs(point, row["topology"])
    costs = Costs(point.batch_cost, point.gossip_cost, point.direct_cost)
    settings = kernel.Settings(
        mechanism=point.mechanism,
        capacity_per_s=tau * point.phi,
        entries=point.entries,
        rule=point.rule,
        service_us=np.round(1e6 / tau).astype(np.int64) if point.queues else 0,
        batch_cost=costs.table("batch", LARGEST),
        gossip_cost=costs.table("gossip", LARGEST),
        direct_cost=costs.sending,
        seed=row["workload"],
    )
    return overlay, posed, settings


def run_point(row: Mapping[str, Any]) -> dict[str, Any]:
    """One run: what the metrics of section 5.2 follow from."""
    overlay, posed, settings = setting(row)
    counts = kernel.simulate(overlay, posed, settings)
    direct = counts.direct_forwards
    counted = facts(
        "popsub",
        {
            "gain": round(MILLION * counts.gain),
            "forwards": counts.forwards,
            "pure_forwards": counts.pure_forwards,
            "popular": histogram(buckets(counts.popular_us)),
            "unpopular": histogram(buckets(counts.unpopular_us)),
            "direct": histogram(np.arange(len(direct)), direct),
            "gossip_groups": counts.gossip_groups,
            "gossips": counts.gossips,
            "gossip_received": counts.gossip_received,
            "gossip_false": counts.gossip_false,
            "queued": counts.queued,
            "queued_length": counts.queued_length,
        },
    )
    for kind, sent in counts.messages.items():
        counted += facts("popsub", {"messages": sent}, kind)
    degree = len(overlay.neighbours()[0])
    return {**row, "root_degree": degree, "steps": counts.steps, "facts": columns(counted)}


def sweep_case(run: Mapping[str, Any]) -> dict[str, Any]:
    return run_alone(run_point, run)


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
IntervalOf = Mapping[tuple[str, float, str], Mapping[str, tuple[float, float]]]


def replicates(full: bool, matrix: Path | None) -> list[Replicate]:
    """Topologies and workloads are replicates of a point; in overload also of their topology.

    Rows that are equal in what is simulated have run once: see `distinct`.
    """
    todo = rows(full, matrix)
    picked, place_of = distinct(todo)
    replicates = []
    for row, place in zip(todo, place_of, strict=True):
        number = f"{row['topology']} {row['workload']}"
        setting = {name: row[name] for name in ("reading", "experiment", "value", "mechanism")}
        replicates.append(Replicate(picked[place], setting, number))
        if row["experiment"] == "overload" and row["reading"] == OURS:
            setting = {name: row[name] for name in ("topology", "mechanism")}
            number = f"{row['value']} {row['workload']}"
            replicates.append(Replicate(picked[place], setting, number))
    return replicates


def means(measured: Measures, replicates: Iterable[Replicate]) -> MeanOf:
    """Per experiment, value and mechanism, the mean of each metric, under our reading."""
    return {
        (at["experiment"], at["value"], at["mechanism"]): {
            metric: measured.figure(metric, **at).mean for metric in METRICS
        }
        for at in settings_of(replicates)
        if at.get("reading") == OURS
    }


def intervals(measured: Measures, replicates: Iterable[Replicate]) -> IntervalOf:
    """And its 95% interval, nan where there is but one replicate."""
    return {
        (at["experiment"], at["value"], at["mechanism"]): {
            metric: (figure.low, figure.high)
            for metric in METRICS
            for figure in [measured.figure(metric, **at)]
        }
        for at in settings_of(replicates)
        if at.get("reading") == OURS
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


@dataclass(frozen=True)
class Number:
    """A measured number with its 95% interval."""

    value: float
    low: float = math.nan
    high: float = math.nan


def cells(measured: Measures, replicates: Iterable[Replicate], reading: str = OURS) -> list[Cell]:
    """The paper's stated numbers beside ours; changes are against the baseline, in percent.

    Under another reading, those of the experiments that it was measured in.
    """
    values: dict[str, list[float]] = {}
    for at in settings_of(replicates):
        if at.get("reading") == reading and at["value"] not in values.get(at["experiment"], []):
            values.setdefault(at["experiment"], []).append(at["value"])

    def figure(experiment: str, value: float, mechanism: str, metric: str) -> Figure:
        return measured.figure(
            metric, reading=reading, experiment=experiment, value=value, mechanism=mechanism
        )

    def change(experiment: str, value: float, mechanism: str, metric: str) -> Number:
        base = figure(experiment, value, "tree", metric).mean
        difference = measured.difference(
            metric, BASELINES[0], reading=reading, experiment=experiment, value=value,
            mechanism=mechanism,
        )  # fmt: skip
        if not base:
            return Number(0.0)
        parts = (difference.mean, difference.low, difference.high)
        return Number(*(100 * part / base for part in parts))

    def extreme(sign: int, experiment: str, mechanisms: Sequence[str], metric: str) -> Number:
        """The largest rise, or with -1 the largest fall."""
        changes = [change(experiment, v, m, metric) for v in values[experiment] for m in mechanisms]
        return max(changes, key=lambda number: sign * number.value)

    compared: list[Cell] = []

    def add(place: str, text: str, paper: float, number: Number, unit: str = "%") -> None:
        ci95 = None if math.isnan(number.low) else (number.low, number.high)
        compared.append(Cell(f"figure {place}", text, unit, paper, number.value, ci95=ci95))

    if "phi" in values:
        first = values["phi"][0]
        baseline = figure("phi", first, "tree", "gain_ratio")
        number = Number(baseline.mean, baseline.low, baseline.high)
        add("3a", "gain ratio of the baseline", 2.65, number, "")
        for mechanism in ("batching", "gossip"):
            number = extreme(1, "phi", [mechanism], "gain_ratio")
            add("3a", f"gain ratio, {mechanism}", 62, number)
        add("3a", "gain ratio, direct", 0, change("phi", first, "direct", "gain_ratio"))
        number = extreme(-1, "phi", MECHANISMS[1:], "pure_forwards")
        add("3c", "pure forwards, best of three", -59, number)
    if "subscriptions" in values:
        for mechanism, paper in (("gossip", -56.0), ("batching", -37.0), ("direct", -42.0)):
            number = extreme(-1, "subscriptions", [mechanism], "pure_forwards")
            add("3i", f"pure forwards, {mechanism}", paper, number)
        ends = values["subscriptions"][0], values["subscriptions"][-1]
        for value, paper in zip(ends, (29.0, 36.0), strict=True):
            sends = figure("subscriptions", value, "direct", "direct_forwards")
            number = Number(sends.mean, sends.low, sends.high)
            add("3k", f"direct sends, {value:,.0f} subscriptions", paper, number, "")
    for value in values.get("overlay", [])[-1:]:
        for place, metric, times in (
            ("3f", "unpopular_pdl_ms", (10.0, 200.0)),
            ("3g", "unpopular_pdl90_ms", (2.0, 70.0)),
        ):
            straight = figure("overlay", value, "direct", metric).mean
            for mechanism, paper in zip(("batching", "gossip"), times, strict=True):
                slower = figure("overlay", value, mechanism, metric)
                number = Number(*(x / straight for x in (slower.mean, slower.low, slower.high)))
                text = f"unpopular delay, {mechanism} by direct, {value:g} brokers"
                add(place, text, paper, number, "×")
    if "skew" in values:
        number = extreme(1, "skew", ["batching"], "gain_ratio")
        add("3l", "gain ratio, batching", 40, number)
        for text, metric, paper in (
            ("false positives", "gossip_false_positives", -19.0),
            ("matches per gossip", "matches_per_gossip", 18.0),
        ):
            even, skewed = (figure("skew", values["skew"][n], "gossip", metric) for n in (0, -1))
            parts = (skewed.mean, skewed.low, skewed.high)
            number = Number(*(100 * (x / even.mean - 1) if even.mean else 0.0 for x in parts))
            add("3n", f"{text}, skewed against even", paper, number)
    if "overload" in values:
        for mechanism, paper in (("batching", -33.0), ("direct", -60.0), ("gossip", -98.0)):
            number = extreme(-1, "overload", [mechanism], "queue")
            add("4b", f"average queue, {mechanism}", paper, number)
        for mechanism, paper in (("direct", -40.0), ("gossip", -57.0)):
            number = extreme(-1, "overload", [mechanism], "popular_pdl_ms")
            add("4c", f"popular delay, {mechanism}", paper, number)
        lower = [
            100 * (figure("overload", v, "gossip", "popular_pdl_ms").mean / unpopular.mean - 1)
            for v in values["overload"]
            for unpopular in [figure("overload", v, "gossip", "unpopular_pdl_ms")]
            if unpopular.mean
        ]
        for text, paper, pick in (("least", -17.0, max), ("largest", -33.0, min)):
            number = Number(pick(lower, default=0.0))
            add("4c, 4d", f"popular by unpopular delay, gossip, {text} fall", paper, number)
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
