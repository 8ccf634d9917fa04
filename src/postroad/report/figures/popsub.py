"""PopSub's figures: one panel per metric, one curve per mechanism."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from postroad.papers.popsub.runs import IntervalOf, MeanOf
from postroad.report.figures.curves import Panel, Point, draw

LABELS = {
    "gain_ratio": "gain ratio",
    "pure_forwards": "pure forwards (messages)",
    "unpopular_deliveries": "unpopular deliveries",
    "popular_pdl_ms": "popular delay, 99th percentile (ms)",
    "unpopular_pdl_ms": "unpopular delay, 99th percentile (ms)",
    "unpopular_pdl90_ms": "unpopular delay, 90th percentile (ms)",
    "direct_forwards": "direct sends, 99th percentile",
    "gossip_groups": "gossip groups",
    "gossip_false_positives": "gossip false positives (share)",
    "matches_per_gossip": "publications delivered per gossip",
    "queue": "average queue (publications)",
}


NAMES = {"tree": "baseline"}
AXES = {
    "phi": "share of capacity for popular publications, φ",
    "throughput_per_s": "throughput of a broker, τ (publications/s)",
    "brokers": "brokers",
    "subscriptions": "subscriptions",
    "zipf": "Zipf exponent of the classes' popularity",
    "random_users": "publishers: 0 the most followed users, 1 random ones",
}
# What the text states: by experiment and metric, (mechanism, value, number), in the metric's unit.
STATED: dict[tuple[str, str], list[tuple[str, float, float]]] = {
    ("phi", "gain_ratio"): [
        ("tree", 0.05, 2.65), ("direct", 0.05, 2.65),
        ("batching", 0.05, 4.3), ("gossip", 0.05, 4.3),
    ],
    ("subscriptions", "direct_forwards"): [("direct", 20_000, 29), ("direct", 25_000, 36)],
}  # fmt: skip
# And as the largest change against the baseline, in percent: shown at the last value.
CHANGES: dict[tuple[str, str], dict[str, float]] = {
    ("subscriptions", "pure_forwards"): {"gossip": -56, "batching": -37, "direct": -42},
    ("skew", "gain_ratio"): {"batching": 40},
    ("overload", "queue"): {"batching": -33, "direct": -60, "gossip": -98},
    ("overload", "popular_pdl_ms"): {"direct": -40, "gossip": -57},
}


def panels(
    table: MeanOf, spans: IntervalOf, experiment: str, axis: str, metrics: Sequence[str]
) -> Figure:
    """An experiment's metrics against what it varies."""
    return draw([_panel(table, spans, experiment, axis, metric) for metric in metrics])


def _panel(table: MeanOf, spans: IntervalOf, experiment: str, axis: str, metric: str) -> Panel:
    curves: dict[str, list[Point]] = {}
    for (name, value, mechanism), measures in table.items():
        applies = metric in ("gain_ratio", "pure_forwards", "queue", "popular_pdl_ms")
        if name == experiment and (applies or measures[metric]):
            low, high = spans[name, value, mechanism][metric]
            label = NAMES.get(mechanism, mechanism)
            curves.setdefault(label, []).append(Point(value, measures[metric], low, high))
    published = {
        NAMES.get(mechanism, mechanism): [
            Point(x, y) for by, x, y in STATED[experiment, metric] if by == mechanism
        ]
        for mechanism, _, _ in STATED.get((experiment, metric), [])
    }
    for mechanism, percent in CHANGES.get((experiment, metric), {}).items():
        last = curves["baseline"][-1]
        published[mechanism] = [Point(last.x, last.y * (1 + percent / 100))]
    published = {name: points for name, points in published.items() if name in curves}
    wide = experiment in ("phi", "throughput")
    return Panel(AXES[axis], LABELS[metric], curves, published, log_x=wide)
