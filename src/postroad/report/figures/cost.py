"""Figures 4 to 10 of the subscription forwarding model."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

Columns = dict[str, npt.NDArray[np.float64]]

_SHADE = "#dddddd"


def load_distribution(columns: Columns, title: str) -> Figure:
    """Figures 4 and 5: how many brokers have which load."""
    figure = _figure(title, 9, 3.6)
    for place, (kind, name) in enumerate((("p", "Subscriptions"), ("e", "Publications")), 1):
        axes = figure.add_subplot(1, 2, place)
        axes.step(columns[f"load_{kind}"], columns[f"simulated_{kind}"], where="mid", color="0.6",
                  linewidth=3, label="simulated")  # fmt: skip
        axes.plot(columns[f"load_{kind}"], columns[f"predicted_{kind}"], "k.", label="model")
        axes.set_yscale("symlog", linthresh=1)
        axes.set(title=name, xlabel="messages sent per broker", ylabel="brokers")
        axes.legend()
    return figure


def ratio_surface(columns: Columns) -> Figure:
    """Figure 6: F(σ, μ)."""
    figure = _figure("Figure 6: F(σ, μ), n = 1,111,111, f = 10", 6, 5)
    axes: Any = figure.add_subplot(projection="3d")
    axes.plot_surface(columns["sigma"], columns["mu"], columns["ratio"], cmap="viridis")
    axes.set(xlabel="σ", ylabel="μ", zlabel="F = F_p / F_e")
    return figure


def ratio_projections(columns: Columns) -> Figure:
    """Figure 7: F(σ, μ) on the three planes; subscription forwarding is cheaper where shaded."""
    figure = _figure("Figure 7: projections of F(σ, μ)", 12, 3.8)
    sigma, mu, ratio = columns["sigma"], columns["mu"], columns["ratio"]
    axis = sigma[0]
    plane = figure.add_subplot(1, 3, 1)
    plane.contourf(sigma, mu, ratio, levels=[0.2, np.inf], colors=[_SHADE])
    lines = plane.contour(
        sigma, mu, ratio, levels=[0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8], colors="k", linewidths=0.8
    )
    plane.clabel(lines)
    plane.set(xlabel="σ", ylabel="μ", title="(a) curves of equal F; shaded: F = 0.2")
    for place, fixed, free in ((2, "μ", "σ"), (3, "σ", "μ")):
        axes = figure.add_subplot(1, 3, place)
        for value in (0.1, 0.2, 0.5, 0.8):
            nearest = int(np.argmin(np.abs(axis - value)))
            curve = ratio[nearest] if fixed == "μ" else ratio[:, nearest]
            axes.plot(axis, curve, label=f"{fixed} = {value}")
            if value == 0.1:
                axes.fill_between(axis, 0, curve, color=_SHADE)
        letter = "bc"[place - 2]
        axes.set(xlabel=free, ylabel="F", title=f"({letter}) shaded: {fixed} = 0.1", ylim=(0, 1))
        axes.legend()
    return figure


def zipf_surface(columns: Columns) -> Figure:
    """Figure 8: D(α_p, α_e)."""
    figure = _figure("Figure 8: D = T(SF) − T(EF), n = 1,111,111, f = 10", 6, 5)
    axes: Any = figure.add_subplot(projection="3d")
    axes.plot_surface(
        columns["alpha_p"], columns["alpha_e"], columns["difference"], cmap="coolwarm"
    )
    axes.set(xlabel="α of patterns", ylabel="α of publications", zlabel="messages")
    return figure


def level_loads(columns: Columns) -> Figure:
    """Figure 9: load against level."""
    figure = _figure("Figure 9: load per broker, n = 111,111, f = 10", 9, 3.6)
    names = [
        f"{int(level)}\n({int(nodes):,})"
        for level, nodes in zip(columns["level"], columns["nodes"], strict=True)
    ]
    for place, name in enumerate(("subscriptions", "publications"), 1):
        axes = figure.add_subplot(1, 2, place)
        axes.bar(names, columns[name], color="0.5")
        axes.tick_params(axis="x", labelsize=7)
        axes.set(title=name.capitalize(), xlabel="level (brokers)", ylabel="messages per broker")
    return figure


def fanout_sweep(columns: Columns) -> Figure:
    """Figure 10: traffic and maximum load against f."""
    figure = _figure("Figure 10: n = 11,111, σ = 0.02, μ = 0.1, F_p = 100, F_e = 1,000", 9, 3.6)
    for place, (measure, title) in enumerate(
        (("traffic", "(a) Messages"), ("load_max", "(b) Maximum load of a broker")), 1
    ):
        axes = figure.add_subplot(1, 2, place)
        for name, style in (("publication", "k-"), ("subscription", "k--")):
            axes.plot(columns["fanout"], columns[f"{name}_{measure}"], style, label=f"{name}s")
        axes.set(title=title, xlabel="fan-out f", ylabel="messages", ylim=(0, None))
        axes.legend()
    return figure


def _figure(title: str, width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title)
    return figure
