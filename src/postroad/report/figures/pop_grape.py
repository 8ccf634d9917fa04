"""Figures 5 to 7: one panel per metric, one curve per method; bars are the least and the most over
the seeds, hollow marks the largest change that the text states, against our static."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from postroad.papers.pop_grape.published import REDUCTIONS
from postroad.report.figures.curves import Panel, Point, draw

LABELS = {
    "message_rate": "message rate per broker, 1/s",
    "input_utilisation": "input utilisation",
    "output_utilisation": "output utilisation",
    "delay_ms": "delivery delay, ms",
    "hops": "hops",
    "overhead": "message overhead, %",
    "table_entries": "table entries per broker",
    "state_bytes": "state per broker at the end, bytes",
    "selection_ms": "broker selection, ms",
    "wait_ms": "publisher wait, ms",
    "moves": "moves",
}


Key = tuple[str, float, str]
MeanOf = Mapping[Key, Mapping[str, float]]
RangeOf = Mapping[Key, Mapping[str, tuple[float, float]]]


def panels(
    table: MeanOf, ranges: RangeOf, experiment: str, axis: str, metrics: Sequence[str]
) -> Figure:
    """An experiment's metrics against what it varies, on a logarithmic axis."""
    keys = [key for key in table if key[0] == experiment]
    positive = all(value > 0 for _, value, _ in keys)
    drawn = []
    for metric in metrics:
        curves: dict[str, list[Point]] = {}
        for key in keys:
            point = Point(key[1], table[key][metric], *ranges[key][metric])
            curves.setdefault(key[2], []).append(point)
        published = {}
        for stated in REDUCTIONS if experiment == "enterprise" else ():
            if stated.metric == metric and stated.method in curves:
                changes = [
                    (table[key][metric] / table[key[0], key[1], "static"][metric], key[1])
                    for key in keys
                    if key[2] == stated.method
                ]
                _, value = min(changes)
                static = table[experiment, value, "static"][metric]
                published[stated.method] = [Point(value, static * (1 + stated.value / 100))]
        drawn.append(Panel(axis, LABELS[metric], curves, published, log_x=positive))
    return draw(drawn)


def weights(table: MeanOf, ranges: RangeOf, metrics: Sequence[str]) -> Figure:
    """Figure 7a: GRAPE's metrics from load 100% to load 1%, and from delay 1% to delay 100%."""
    keys = [key for key in table if key[0] == "weights"]

    def place(key: Key) -> tuple[bool, int]:
        metric, weight = key[2].split()
        return metric == "delay", int(weight) if metric == "delay" else -int(weight)

    keys.sort(key=place)
    drawn = [
        Panel(
            "priority and its weight (%)", LABELS[metric],
            {"GRAPE": [Point(key[2], table[key][metric], *ranges[key][metric]) for key in keys]},
        )
        for metric in metrics
    ]  # fmt: skip
    return draw(drawn)
