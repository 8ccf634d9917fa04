"""Figures 7 and 10 to 16 of Kyra's paper, from what the runs found; bars are 95% intervals over
networks and seeds, hollow marks what the text states."""

from __future__ import annotations

from matplotlib.figure import Figure

from postroad.papers.kyra.alpha import Fit
from postroad.papers.kyra.published import FIGURE_10, FIGURE_16_MAX, RATES
from postroad.papers.kyra.runs import PERCENTS, Results
from postroad.papers.kyra.workload import DISTRIBUTIONS
from postroad.report.figures.curves import Panel, Point, draw

LABELS = {
    "storage": "subscriptions stored (share of all)",
    "processing": "matches per server",
    "node_mean": "mean node stress (messages)",
    "link_mean": "mean link stress (messages)",
    "nru": "network use (ratio to ideal multicast)",
}


def passed(fit: Fit) -> Figure:
    """Figure 7: servers that a publication passes in a tree, by its popularity."""
    lines = {
        "passed": fit.passed,
        f"popularity^{fit.alpha:.4f}": fit.popularity**fit.alpha,
        "interested": fit.popularity,
    }
    curves = {
        name: [Point(float(x), float(y)) for x, y in zip(fit.popularity, values, strict=True)]
        for name, values in lines.items()
    }
    return draw([Panel("popularity (share of servers)", "share of servers", curves)], "Figure 7")


def grid(results: Results, metric: str, title: str, log: bool = False) -> Figure:
    """Figures 10 to 14: a metric by clique size, a curve per number of trees."""
    cliques_ms, trees = results.grid_points()
    panels = []
    for rate in RATES:
        curves = {}
        for count in trees:
            figures = [(ms, results.grid(rate, ms, count, metric)) for ms in cliques_ms]
            name = f"{count} tree{'s' if count > 1 else ''}"
            curves[name] = [Point(ms, each.mean, each.low, each.high) for ms, each in figures]
        published = {}
        if metric == "storage" and rate == RATES[1] and "20 trees" in curves:
            published = {"20 trees": [Point(200, FIGURE_10["200 ms, 20 trees"])]}
        x = "diameter of a clique (ms)"
        panels.append(
            Panel(x, LABELS[metric], curves, published, f"{rate:.0%} interest", log_y=log)
        )
    return draw(panels, title)


def nru(results: Results) -> Figure:
    """Figure 15: resource usage against ideal multicast."""
    panels = []
    for distribution in DISTRIBUTIONS:
        curves = {}
        for scheme in ("fbr", "kyra", "mbr", "unicast", "broadcast"):
            figures = [(rate, results.compare(distribution, rate, scheme, "nru")) for rate in RATES]
            curves[scheme] = [
                Point(100 * rate, each.mean, each.low, each.high) for rate, each in figures
            ]
        panels.append(
            Panel("interest (%)", LABELS["nru"], curves, title=distribution, log_x=True, log_y=True)
        )
    return draw(panels, "Figure 15")


def spread(results: Results) -> Figure:
    """Figure 16: the distribution of node stress, Zipf at 10%."""
    curves: dict[str, list[Point]] = {}
    published: dict[str, list[Point]] = {}
    for scheme in ("fbr", "mbr", "kyra", "balanced"):
        values = [results.compare("zipf", 0.1, scheme, f"node_p{p}").mean for p in PERCENTS]
        curves[scheme] = [
            Point(value, percent) for value, percent in zip(values, PERCENTS, strict=True)
        ]
        if scheme in FIGURE_16_MAX:
            published[scheme] = [Point(FIGURE_16_MAX[scheme], 100)]
    panel = Panel(
        "node stress (messages)", "servers with at most as much (%)", curves, published, log_x=True
    )
    return draw([panel], "Figure 16: Zipf, 10% interest")
