"""Figures 3 to 8 of the BeaConvey paper, from what the runs found; bars are the least and the most
over the seeds, hollow marks what the text states at a point, dotted lines means that it states."""

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
        points, means = _stated(
            workload, metric, {family.format(overlay): f"overlay {overlay}" for overlay in OVERLAYS}
        )
        panels.append(
            Panel(
                "topics", LABELS[metric], curves, points,
                title=family.replace("({}, Pie)", " with Pie").replace("({})", ""),
                published_means=means,
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
        systems = {f"BeaConvey(SL, {routing})": routing for routing in curves}
        points, means = _stated("grow", metric, systems)
        panels.append(Panel("nodes", LABELS[metric], curves, points, published_means=means))
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


def _stated(
    workload: str, metric: str, curves: Mapping[str, str]
) -> tuple[dict[str, list[Point]], dict[str, float]]:
    """What the text gives for these systems against Scribe(-), by the name of their curve: at a
    number of topics, and as a mean over all."""
    points: dict[str, list[Point]] = {}
    means: dict[str, float] = {}
    for said in STATED:
        wanted = (said.workload, said.metric, said.against_scribe) == (workload, metric, True)
        if not wanted or said.system not in curves:
            continue
        if said.topics is None:
            means[curves[said.system]] = said.paper
        else:
            points.setdefault(curves[said.system], []).append(Point(said.topics, said.paper))
    return points, means
