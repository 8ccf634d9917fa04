"""Figures 7 and 10 to 16 of Kyra's paper, from what the runs found."""

from __future__ import annotations

from matplotlib.figure import Figure

from postroad.papers.kyra.alpha import Fit
from postroad.papers.kyra.published import RATES
from postroad.papers.kyra.runs import PERCENTS, Results
from postroad.papers.kyra.workload import DISTRIBUTIONS


def passed(fit: Fit) -> Figure:
    """Figure 7: servers that a publication passes in a tree, by its popularity."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(fit.popularity, fit.passed, ".", label="passed")
    axes.plot(fit.popularity, fit.popularity**fit.alpha, label=f"popularity^{fit.alpha:.4f}")
    axes.plot(fit.popularity, fit.popularity, "--", label="interested")
    axes.set(title="Figure 7", xlabel="popularity", ylabel="share of servers")
    axes.legend()
    return figure


def grid(results: Results, metric: str, title: str, log: bool = False) -> Figure:
    """Figures 10 to 14: a metric by clique size, a curve per number of trees."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    figure.suptitle(title)
    cliques_ms, trees = results.grid_points()
    for place, rate in enumerate(RATES, 1):
        axes = figure.add_subplot(1, 3, place)
        for count in trees:
            values = [results.grid(rate, ms, count, metric).mean for ms in cliques_ms]
            axes.plot(cliques_ms, values, marker=".", label=f"{count} trees")
        if log:
            axes.set_yscale("log")
        axes.set(title=f"{rate:.0%} interest", xlabel="clique, ms", ylabel=metric)
        axes.legend()
    return figure


def nru(results: Results) -> Figure:
    """Figure 15: resource usage against ideal multicast."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    figure.suptitle("Figure 15: NRU")
    schemes = ("fbr", "kyra", "mbr", "unicast", "broadcast")
    for place, distribution in enumerate(DISTRIBUTIONS, 1):
        axes = figure.add_subplot(1, 4, place)
        for number, scheme in enumerate(schemes):
            values = [results.compare(distribution, rate, scheme, "nru").mean for rate in RATES]
            axes.bar([at + 0.16 * (number - 2) for at in range(3)], values, 0.16, label=scheme)
        axes.set_xticks(range(3), [f"{rate:.0%}" for rate in RATES])
        axes.set(title=distribution)
        if place == 1:
            axes.legend()
    return figure


def spread(results: Results) -> Figure:
    """Figure 16: the distribution of node stress, Zipf at 10%."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for scheme in ("fbr", "mbr", "kyra", "balanced"):
        values = [results.compare("zipf", 0.1, scheme, f"node_p{p}").mean for p in PERCENTS]
        axes.plot(values, PERCENTS, label=f"{scheme}, max {values[-1]:.0f}")
    axes.set(title="Figure 16", xlabel="node stress", ylabel="% of servers")
    axes.legend()
    return figure
