"""The experiments of section 5.3: points, runs, and what the figures show.

`run_point` takes and returns plain values, so a process pool or a Spark sweep can call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from postroad.kernels import popsub as kernel
from postroad.overlay.wide_area import generated_matrix, read_matrix, topology
from postroad.papers.popsub.workload import Point, workload

MECHANISMS = ["tree", "direct", "batching", "gossip"]
HOSTS = 490  # of the generated matrix
BASE = Point()
WHOLE = Point(predicates=False)
OVERLOAD = Point(
    brokers=300, rate_per_s=15.0, subscriptions=40_000, service_us=370, throughput_per_s=2700.0
)
BATCH_SLOPE = 0.2  # a batch of n takes 1 + 0.2 (n - 1) times as long as one publication


@dataclass(frozen=True)
class Experiment:
    """One x-axis of the paper: a field of `Point`, its values, the figures it gives."""

    name: str
    field: str
    values: tuple[float, ...]
    base: Point
    figures: str


EXPERIMENTS = [
    Experiment("phi", "phi", (0.05, 0.1, 0.2, 0.4, 0.8), BASE, "3a-3c"),
    Experiment("throughput", "throughput_per_s", (400, 800, 1600, 3200), BASE, "3a and 3c by τ"),
    Experiment("overlay", "brokers", (100, 150, 200, 250, 300), BASE, "3d-3g"),
    Experiment("subscriptions", "subscriptions", (20_000, 22_000, 25_000), BASE, "3h-3k"),
    Experiment("skew", "zipf", (0.05, 0.25, 0.5, 0.75, 1.0), BASE, "3l-3o"),
    Experiment("users", "random_users", (0, 1), WHOLE, "3a and 3c with whole topics, by users"),
    Experiment("overload", "subscriptions", (30_000, 40_000, 50_000), OVERLOAD, "4a-4d"),
]


def rows(full: bool, matrix: Path | None) -> list[dict[str, Any]]:
    """Every run: 5 topologies by 5 workloads per point in full mode, one by one in quick mode.

    Mechanisms share topology and workload, so their differences are paired.
    """
    made: list[dict[str, Any]] = []
    for experiment in EXPERIMENTS:
        values = experiment.values
        if not full:
            values = (values[0], values[-1])
        for value in values:
            whole = experiment.field in ("brokers", "subscriptions")
            varied: dict[str, Any] = {experiment.field: int(value) if whole else value}
            point = replace(experiment.base, **varied)
            for topology_seed in range(5 if full else 1):
                for workload_seed in range(5 if full else 1):
                    made.extend(
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
    return made


@lru_cache(maxsize=2)
def _matrix(path: str) -> kernel.Ints:
    return read_matrix(Path(path)) if path else generated_matrix(HOSTS, seed=1)


def run_point(row: Mapping[str, Any]) -> dict[str, Any]:
    """One run and the metrics of section 5.2."""
    point = Point(**{name: row[name] for name in Point.__dataclass_fields__})
    overlay = topology(_matrix(row["matrix"]), point.brokers, row["topology"])
    posed = workload(point, overlay, 1000 + row["workload"])
    found = kernel.simulate(
        overlay,
        posed,
        kernel.Settings(
            mechanism=point.mechanism,
            capacity_per_s=point.throughput_per_s * point.phi,
            service_us=point.service_us,
            batch_cost=1.0 + BATCH_SLOPE * np.arange(256, dtype=np.float64),
            seed=row["workload"],
        ),
    )
    direct = np.repeat(np.arange(len(found.direct_forwards)), found.direct_forwards)
    return {
        **row,
        "gain_ratio": found.gain / max(1, found.forwards),
        "pure_forwards": found.pure_forwards,
        "deliveries": found.deliveries,
        "unpopular_deliveries": len(found.unpopular_us),
        "popular_pdl_ms": _percentile(found.popular_us, 99),
        "unpopular_pdl_ms": _percentile(found.unpopular_us, 99),
        "unpopular_pdl90_ms": _percentile(found.unpopular_us, 90),
        "direct_forwards": float(np.percentile(direct, 99)) if len(direct) else 0.0,
        "gossip_groups": found.gossip_groups,
        "gossip_false_positives": found.gossip_false / max(1, found.gossip_received),
        "matches_per_gossip": found.gossip_matches / max(1, found.gossip_received),
        "queue": found.queued_length / max(1, found.queued),
        "messages": sum(found.messages.values()),
        "steps": found.steps,
    }


def _percentile(values: kernel.Ints, percent: int) -> float:
    return float(np.percentile(values, percent)) / 1000 if len(values) else 0.0


METRICS = [
    "gain_ratio",
    "pure_forwards",
    "unpopular_deliveries",
    "popular_pdl_ms",
    "unpopular_pdl_ms",
    "unpopular_pdl90_ms",
    "direct_forwards",
    "gossip_groups",
    "gossip_false_positives",
    "matches_per_gossip",
    "queue",
]


def means(found: Iterable[Mapping[str, Any]]) -> dict[tuple[str, float, str], dict[str, float]]:
    """Per experiment, value and mechanism, the mean of each metric."""
    grouped: dict[tuple[str, float, str], list[Mapping[str, Any]]] = {}
    for row in found:
        grouped.setdefault((row["experiment"], row["value"], row["mechanism"]), []).append(row)
    return {
        key: {metric: float(np.mean([row[metric] for row in group])) for metric in METRICS}
        for key, group in grouped.items()
    }


@dataclass(frozen=True)
class Claim:
    """A number the paper states, and what we measured for it."""

    figure: str
    claim: str
    paper: float
    measured: float
    unit: str


def claims(table: Mapping[tuple[str, float, str], Mapping[str, float]]) -> list[Claim]:
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

    first = values["phi"][0]
    baseline = table["phi", first, "tree"]
    made = [
        Claim("3a", "gain ratio of the baseline", 2.65, baseline["gain_ratio"], ""),
        Claim("3a", "gain ratio, batching", 62, extreme(max, "phi", "batching", "gain_ratio"), "%"),
        Claim("3a", "gain ratio, gossip", 62, extreme(max, "phi", "gossip", "gain_ratio"), "%"),
        Claim("3a", "gain ratio, direct", 0, change("phi", first, "direct", "gain_ratio"), "%"),
        Claim(
            "3c", "pure forwards, best of three", -59,
            min(extreme(min, "phi", m, "pure_forwards") for m in MECHANISMS[1:]), "%",
        ),
    ]  # fmt: skip
    for mechanism, paper in (("gossip", -56.0), ("batching", -37.0), ("direct", -42.0)):
        measured = extreme(min, "subscriptions", mechanism, "pure_forwards")
        made.append(Claim("3i", f"pure forwards, {mechanism}", paper, measured, "%"))
    ends = values["subscriptions"][0], values["subscriptions"][-1]
    for value, paper in zip(ends, (29.0, 36.0), strict=True):
        measured = table["subscriptions", value, "direct"]["direct_forwards"]
        made.append(Claim("3k", f"direct sends, {value:,.0f} subscriptions", paper, measured, ""))
    made.append(
        Claim("3l", "gain ratio, batching", 40, extreme(max, "skew", "batching", "gain_ratio"), "%")
    )
    even, skewed = (table["skew", values["skew"][n], "gossip"] for n in (0, -1))
    for what, metric, paper in (
        ("false positives", "gossip_false_positives", -19.0),
        ("matches per gossip", "matches_per_gossip", 18.0),
    ):
        measured = 100 * (skewed[metric] / even[metric] - 1) if even[metric] else 0.0
        made.append(Claim("3n", f"{what}, skewed against even", paper, measured, "%"))
    for mechanism, paper in (("batching", -33.0), ("direct", -60.0), ("gossip", -98.0)):
        measured = extreme(min, "overload", mechanism, "queue")
        made.append(Claim("4b", f"average queue, {mechanism}", paper, measured, "%"))
    for mechanism, paper in (("direct", -40.0), ("gossip", -57.0)):
        measured = extreme(min, "overload", mechanism, "popular_pdl_ms")
        made.append(Claim("4c", f"popular delay, {mechanism}", paper, measured, "%"))
    return made
