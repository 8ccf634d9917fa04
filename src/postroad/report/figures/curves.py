"""Panels of curves as a paper prints them: two beside each other on a page's width, axes with
names and units, intervals as bars, the published points as hollow marks, published means as dotted
lines, one legend below."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

WIDTH_INCHES = 7.0
HEIGHT_INCHES = 2.5  # of a row of panels
TEXT_POINTS = 8
MARKS = "os^Dv<>Pp*"


@dataclass(frozen=True)
class Point:
    """A mean with its 95% interval, nan where there is none."""

    x: float | str
    y: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    x: str  # names of the axes, with units
    y: str
    curves: Mapping[str, Sequence[Point]]
    published: Mapping[str, Sequence[Point]] = field(default_factory=dict)  # by curve
    title: str = ""
    log_x: bool = False
    log_y: bool = False
    published_means: Mapping[str, float] = field(default_factory=dict)  # over a whole curve


def draw(panels: Sequence[Panel], title: str = "") -> Figure:
    """All panels; a curve has the same colour and mark in each."""
    across = min(2, len(panels)) if len(panels) != 3 else 3
    down = -(-len(panels) // across)
    width = WIDTH_INCHES if across > 1 else WIDTH_INCHES / 2 + 0.5
    figure = Figure(figsize=(width, HEIGHT_INCHES * down + 0.5), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=TEXT_POINTS + 1)
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    styles = {name: (f"C{n % 10}", MARKS[n % len(MARKS)]) for n, name in enumerate(names)}
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(down, across, place)
        for name, points in panel.curves.items():
            colour, mark = styles[name]
            xs, ys = [point.x for point in points], [point.y for point in points]
            axes.plot(xs, ys, marker=mark, markersize=3.5, linewidth=1.2, color=colour)
            bars = [point for point in points if not math.isnan(point.low)]
            if bars:
                spans = [
                    [point.y - point.low for point in bars],
                    [point.high - point.y for point in bars],
                ]
                axes.errorbar(
                    [point.x for point in bars], [point.y for point in bars], spans,
                    fmt="none", ecolor=colour, elinewidth=0.8, capsize=2,
                )  # fmt: skip
        for name, points in panel.published.items():
            colour, mark = styles[name]
            axes.plot(
                [point.x for point in points], [point.y for point in points], mark,
                markersize=7, markerfacecolor="none", markeredgecolor=colour,
            )  # fmt: skip
        for name, mean in panel.published_means.items():
            axes.axhline(mean, color=styles[name][0], linestyle=":", linewidth=1.2)
        if panel.log_x:
            axes.set_xscale("log")
        if panel.log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.set_xlabel(panel.x, fontsize=TEXT_POINTS)
        axes.set_ylabel(panel.y, fontsize=TEXT_POINTS)
        axes.set_title(panel.title, fontsize=TEXT_POINTS)
        axes.tick_params(labelsize=TEXT_POINTS - 1)
        words = any(isinstance(point.x, str) for each in panel.curves.values() for point in each)
        if words:
            axes.tick_params(axis="x", rotation=60)
        elif not panel.log_x:
            axes.xaxis.set_major_locator(MaxNLocator(5 if across < 3 else 3))
            axes.xaxis.set_major_formatter(FuncFormatter(_plain))
        else:
            values = sorted({float(point.x) for each in panel.curves.values() for point in each})
            if len(values) <= 8:
                axes.set_xticks(values)
            axes.xaxis.set_major_formatter(FuncFormatter(_plain))
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(_plain))
        if panel.log_y:
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.3, linewidth=0.5)
    handles = [
        Line2D([], [], color=colour, marker=mark, markersize=3.5, label=name)
        for name, (colour, mark) in styles.items()
    ]
    if any(points for panel in panels for points in panel.published.values()):
        handles.append(
            Line2D([], [], color="0.3", marker="o", markersize=7, markerfacecolor="none",
                   linestyle="none", label="published")
        )  # fmt: skip
    if any(panel.published_means for panel in panels):
        handles.append(
            Line2D([], [], color="0.3", linestyle=":", linewidth=1.2, label="published mean")
        )
    if len(handles) > 1:
        figure.legend(
            handles=handles, loc="outside lower center", ncols=min(4, len(handles)),
            fontsize=TEXT_POINTS, frameon=False,
        )  # fmt: skip
    return figure


def _plain(value: float, place: int | None = None) -> str:
    """A number as a reader expects it: 30,000 or 0.05, and 2 M for two million."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value:,.6g}"
