"""Figures 5 to 7: one panel per metric, one line per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

LABELS = {
    "message_rate": "message rate per broker, 1/s",
    "input_utilisation": "input utilisation",
    "output_utilisation": "output utilisation",
    "delay_ms": "delivery delay, ms",
    "hops": "hops",
    "overhead": "message overhead, %",
    "table_entries": "table entries per broker",
    "selection_ms": "broker selection, ms",
    "wait_ms": "publisher wait, ms",
    "moves": "moves",
}


def panels(
    table: Mapping[tuple[str, float, str], Mapping[str, float]],
    experiment: str,
    axis: str,
    metrics: Sequence[str],
) -> Figure:
    """An experiment's metrics against what it varies, on a logarithmic axis."""
    figure = Figure(figsize=(4 * len(metrics), 3), layout="constrained")
    lines: dict[str, list[tuple[float, Mapping[str, float]]]] = {}
    for (name, value, method), measures in table.items():
        if name == experiment:
            lines.setdefault(method, []).append((value, measures))
    for number, metric in enumerate(metrics, 1):
        axes = figure.add_subplot(1, len(metrics), number)
        for method, points in lines.items():
            axes.plot([x for x, _ in points], [y[metric] for _, y in points], "o-", label=method)
        if min(value for value, _ in points) > 0:
            axes.set_xscale("log")
        axes.set_xlabel(axis)
        axes.set_title(LABELS[metric], fontsize=10)
        axes.set_ylim(bottom=0)
        if number == 1:
            axes.legend(fontsize=8)
    return figure


def weights(
    table: Mapping[tuple[str, float, str], Mapping[str, float]], metrics: Sequence[str]
) -> Figure:
    """Figure 7a: GRAPE's metrics from load 100% to load 1%, and from delay 1% to delay 100%."""
    rows = [
        (method, measures) for (name, _, method), measures in table.items() if name == "weights"
    ]

    def place(method: str) -> tuple[bool, int]:
        metric, weight = method.split()
        return metric == "delay", int(weight) if metric == "delay" else -int(weight)

    rows.sort(key=lambda row: place(row[0]))
    figure = Figure(figsize=(4 * len(metrics), 3), layout="constrained")
    for number, metric in enumerate(metrics, 1):
        axes = figure.add_subplot(1, len(metrics), number)
        axes.plot([method for method, _ in rows], [measures[metric] for _, measures in rows], "o-")
        axes.tick_params(axis="x", rotation=60, labelsize=8)
        axes.set_title(LABELS[metric], fontsize=10)
        axes.set_ylim(bottom=0)
    return figure
