"""A metric of a sweep by its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

Row = Mapping[str, Any]
CURVES_MAX = 10
SETTINGS_MAX = 60


def settings(rows: Sequence[Row], metric: str) -> Figure:
    """Means with 95% intervals: curves over a key with three or more numbers, otherwise a point for
    each setting. Rows are those of the table `measures`."""
    shown = [row for row in rows if row["metric"] == metric and row["mean"] is not None]
    keys = sorted({key for row in shown for key in row["parameters"]})
    along = next((key for key in keys if _is_axis(shown, key)), None)
    if along is None:
        return _points(shown[:SETTINGS_MAX], metric)
    curves: dict[str, list[Row]] = {}
    for row in shown:
        curves.setdefault(_named(row, along), []).append(row)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for name, points in list(curves.items())[:CURVES_MAX]:
        points.sort(key=lambda row: float(row["parameters"][along]))
        x = [float(row["parameters"][along]) for row in points]
        axes.errorbar(
            x, [row["mean"] for row in points], yerr=_errors(points), marker=".", capsize=2,
            label=name or None,
        )  # fmt: skip
    axes.set(xlabel=along, ylabel=metric)
    if len(curves) > 1:
        axes.legend(fontsize="small")
    return figure


def _points(rows: Sequence[Row], metric: str) -> Figure:
    figure = Figure(figsize=(7, 1.2 + 0.3 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    places = list(range(len(rows)))
    axes.errorbar([row["mean"] for row in rows], places, xerr=_errors(rows), fmt="o", capsize=3)
    axes.set_yticks(places, [_named(row) for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel=metric)
    return figure


def _is_axis(rows: Sequence[Row], key: str) -> bool:
    try:
        return len({float(row["parameters"][key]) for row in rows}) > 2
    except (KeyError, ValueError):
        return False


def _named(row: Row, without: str = "") -> str:
    own = {key: value for key, value in sorted(row["parameters"].items()) if key != without}
    return ", ".join(f"{key} = {value}" for key, value in own.items())


def _errors(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """How far each interval reaches below and above its mean; 0 where there is none."""
    known = [row if row["ci95_low"] is not None else None for row in rows]
    below = [0.0 if row is None else row["mean"] - row["ci95_low"] for row in known]
    above = [0.0 if row is None else row["ci95_high"] - row["mean"] for row in known]
    return below, above
