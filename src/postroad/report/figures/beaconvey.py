"""Figures 3 to 8 of the BeaConvey paper, from what the runs found."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from postroad.papers.beaconvey.published import OVERLAYS
from postroad.papers.beaconvey.runs import Means

Curves = Mapping[str, list[tuple[int, float]]]


def ccdf(graphs: Mapping[str, Curves]) -> Figure:
    """Figure 3: how many users have at least so many followees and followers."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for graph, curves in graphs.items():
        for name, points in curves.items():
            axes.loglog([x for x, _ in points], [y for _, y in points], label=f"{graph} {name}")
    axes.set(title="Figure 3", xlabel="count", ylabel="share of users with at least as many")
    axes.legend()
    return figure


def families(measured: Means, workload: str, metric: str, title: str) -> Figure:
    """Figures 4 to 7: each family of systems on each overlay, against Scribe(-)."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    figure.suptitle(title)
    points = measured.points(workload)
    for place, family in enumerate(("BeaConvey({}, Pie)", "Scribe({})", "iScribe({})"), 1):
        axes = figure.add_subplot(1, 3, place)
        for overlay in OVERLAYS:
            name = family.format(overlay)
            values = [measured.ratio(workload, point, name, metric) for point in points]
            axes.plot([topics for _, topics in points], values, marker=".", label=name)
        axes.set(xlabel="topics", ylabel=f"{metric} against Scribe(-)")
        axes.legend()
    return figure


def growth(measured: Means) -> Figure:
    """Figure 8: BeaConvey's routings against Scribe(-) as the nodes grow."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    figure.suptitle("Figure 8: Unif, 2,000 topics")
    points = measured.points("grow")
    for place, metric in enumerate(("overhead", "path_mean", "path_max"), 1):
        axes = figure.add_subplot(1, 3, place)
        for routing in ("Po", "Pal", "Pie"):
            name = f"BeaConvey(SL, {routing})"
            values = [measured.ratio("grow", point, name, metric) for point in points]
            axes.plot([nodes for nodes, _ in points], values, marker=".", label=name)
        axes.set(xlabel="nodes", ylabel=f"{metric} against Scribe(-)")
        axes.legend()
    return figure
