"""Figures 3 to 8 of the BeaConvey paper, from what the runs found; bars are the least and the most
over the seeds, hollow marks what the text states."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from postroad.papers.beaconvey.published import OVERLAYS, STATED
from postroad.papers.beaconvey.runs import BASE, Means
from postroad.report.figures.curves import Panel, Point, draw

Curves = Mapping[str, list[tuple[int, float]]]
LABELS = {
    "overhead": "pure forwards (ratio to Scribe(-))",
    "path_mean": "mean path length (ratio to Scribe(-))",
    "path_max": "longest path (ratio to Scribe(-))",
}


def ccdf(graphs: Mapping[str, Curves]) -> Figure:
    """Figure 3: how many users have at least so many followees and followers."""
    curves = {
        f"{graph} {name}": [Point(x, y) for x, y in points]
        for graph, each in graphs.items()
        for name, points in each.items()
    }
    panel = Panel(
        "followees or followers", "share of users with at least as many", curves,
        log_x=True, log_y=True,
    )  # fmt: skip
    return draw([panel], "Figure 3")


def families(measured: Means, workload: str, metric: str, title: str) -> Figure:
    """Figures 4 to 7: each family of systems on each overlay, against Scribe(-)."""
    panels = []
    for family in ("BeaConvey({}, Pie)", "Scribe({})", "iScribe({})"):
        curves = {
            f"overlay {overlay}": _curve(measured, workload, family.format(overlay), metric, 1)
            for overlay in OVERLAYS
        }
        published = {
            f"overlay {overlay}": _stated(workload, family.format(overlay), metric)
            for overlay in OVERLAYS
        }
        panels.append(
            Panel(
                "topics", LABELS[metric], curves, published,
                title=family.replace("({}, Pie)", " with Pie").replace("({})", ""),
            )
        )  # fmt: skip
    return draw(panels, title)


def growth(measured: Means) -> Figure:
    """Figure 8: BeaConvey's routings against Scribe(-) as the nodes grow."""
    panels = []
    for metric in ("overhead", "path_mean", "path_max"):
        curves = {
            routing: _curve(measured, "grow", f"BeaConvey(SL, {routing})", metric, 0)
            for routing in ("Po", "Pal", "Pie")
        }
        panels.append(Panel("nodes", LABELS[metric], curves))
    return draw(panels, "Figure 8: Unif, 2,000 topics, overlay SL")


def _curve(measured: Means, workload: str, system: str, metric: str, along: int) -> list[Point]:
    """Against the nodes or the topics of each point."""
    points = []
    for point in measured.points(workload):
        if system == BASE:
            points.append(Point(point[along], 1.0))
            continue
        ratio = measured.ratios(workload, point, system, metric)
        points.append(Point(point[along], ratio.of_means, ratio.least, ratio.greatest))
    return points


def _stated(workload: str, system: str, metric: str) -> list[Point]:
    return [
        Point(said.topics, said.paper)
        for said in STATED
        if said.workload == workload
        and said.system == system
        and said.metric == metric
        and said.against_scribe
        and said.topics is not None
    ]
