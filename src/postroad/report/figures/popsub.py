"""PopSub's figures: one panel per metric, one line per mechanism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

LABELS = {
    "gain_ratio": "gain ratio",
    "pure_forwards": "pure forwards",
    "unpopular_deliveries": "unpopular deliveries",
    "popular_pdl_ms": "popular delay p99, ms",
    "unpopular_pdl_ms": "unpopular delay p99, ms",
    "unpopular_pdl90_ms": "unpopular delay p90, ms",
    "direct_forwards": "direct forwards p99",
    "gossip_groups": "gossip groups",
    "gossip_false_positives": "gossip false positives",
    "matches_per_gossip": "publications delivered per gossip",
    "queue": "average queue",
}


def panels(
    table: Mapping[tuple[str, float, str], Mapping[str, float]],
    experiment: str,
    axis: str,
    metrics: Sequence[str],
) -> Figure:
    """An experiment's metrics against what it varies."""
    figure = Figure(figsize=(4 * len(metrics), 3), layout="constrained")
    lines: dict[str, list[tuple[float, Mapping[str, float]]]] = {}
    for (name, value, mechanism), measures in table.items():
        if name == experiment:
            lines.setdefault(mechanism, []).append((value, measures))
    for number, metric in enumerate(metrics, 1):
        axes = figure.add_subplot(1, len(metrics), number)
        for mechanism, points in lines.items():
            label = "baseline" if mechanism == "tree" else mechanism
            axes.plot([x for x, _ in points], [y[metric] for _, y in points], "o-", label=label)
        axes.set_xlabel(axis)
        axes.set_title(LABELS[metric], fontsize=10)
        axes.set_ylim(bottom=0)
        if number == 1:
            axes.legend(fontsize=8)
    return figure
