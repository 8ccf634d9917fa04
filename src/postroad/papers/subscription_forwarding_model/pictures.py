"""The numbers behind Figures 4 to 10, each as one small table of named columns.

The paper leaves out some parameters. Figure 8: we take F_p = F_e = 10,000 as in Figure 9 and
1,000 patterns and publications per broker (a mean probability of 0.1), which gives what the
text describes: negative for large α_p whatever α_e, positive near α_p = 0. D is a function of
α_p plus a function of α_e, both falling, so the saddle that the text mentions does not appear;
`saddle_search` looks for it elsewhere.
Figure 10: fan-outs 2 to 100 on trees of exactly n brokers, filled breadth-first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postroad.cost import advice, forwarding, shapes
from postroad.overlay.rooted import FloatArray
from postroad.papers.subscription_forwarding_model.published import TABLE4_BROKERS, Point
from postroad.papers.subscription_forwarding_model.runs import predicted_load, simulate, tree_of

Columns = dict[str, FloatArray]

FULL_TREE = Point(4, 7, 0.001, 0.001)
ARBITRARY_TREE = Point(10, 4, 0.001, 0.001, stddev=3.0)


def load_distribution(point: Point, seeds: Iterable[int]) -> Columns:
    """Figures 4 and 5: how many brokers have which load, simulated (mean of runs) and predicted."""
    tree = tree_of(point, 0)
    runs = [simulate(point, tree, seed) for seed in seeds]
    predicted = predicted_load(point, tree)
    columns: Columns = {}
    for kind, name, model in zip("pe", ("subscriptions", "publications"), predicted, strict=True):
        simulated = np.mean([getattr(run, name).load for run in runs], axis=0)
        edges = np.linspace(0, max(simulated.max(), model.max()) * 1.001, 26)
        columns[f"load_{kind}"] = (edges[1:] + edges[:-1]) / 2
        columns[f"simulated_{kind}"] = np.histogram(simulated, edges)[0].astype(float)
        columns[f"predicted_{kind}"] = np.histogram(model, edges)[0].astype(float)
    return columns


def ratio_surface(steps: int = 60) -> Columns:
    """Figures 6 and 7: F(σ, μ) for n = 1,111,111 and f = 10, where μ >= σ."""
    axis = np.arange(1, steps + 1) / steps
    mu, sigma = np.meshgrid(axis, axis, indexing="ij")
    shape = shapes.full(10, 6)
    ratio = forwarding.breakeven(shape, np.minimum(sigma, mu), mu)
    return {"sigma": sigma, "mu": mu, "ratio": np.where(mu >= sigma, ratio, np.nan)}


def zipf_surface(steps: int = 31, items: int = 10_000, per_node: float = 1000.0) -> Columns:
    """Figure 8: D(α_p, α_e) = T^SF − T^EF for n = 1,111,111 and f = 10."""
    shape = shapes.full(10, 6)
    axis = np.linspace(0, 3, steps)
    chances = np.array([forwarding.zipf(items, alpha, per_node) for alpha in axis])
    subscriptions = forwarding.subscription_traffic(shape, chances).sum(axis=-1)
    publications = forwarding.publication_traffic(shape, chances).sum(axis=-1)
    flooded = forwarding.event_forwarding_traffic(shape, items)
    alpha_p, alpha_e = np.meshgrid(axis, axis, indexing="ij")
    difference = subscriptions[:, None] + publications[None, :] - flooded
    return {"alpha_p": alpha_p, "alpha_e": alpha_e, "difference": difference}


@dataclass(frozen=True)
class SaddleSearch:
    """How many settings were tried, and in how many each part of D turns around."""

    settings: int
    turning_subscriptions: int
    turning_publications: int


def saddle_search(steps: int = 61) -> SaddleSearch:
    """Does D(α_p, α_e) have a saddle for any number of items, mean per broker or way to scale?

    D is a function of α_p plus one of α_e, so a saddle needs a point where each of them turns, one
    up and one down. Neither ever does: T(p) and T(e) are concave in the probability, a larger α
    spreads the same sum less evenly, and cutting at 1 takes from it.
    """
    shape = shapes.full(10, 6)
    axis = np.linspace(0, 3, steps)
    tried = turning = turning_too = 0
    for items in (10, 100, 1000, 10_000):
        ranks = np.arange(1.0, items + 1)
        for share in (1e-5, 1e-4, 0.001, 0.01, 0.1, 0.3, 0.5):
            by_mean = [forwarding.zipf(items, alpha, share * items) for alpha in axis]
            by_first = [share * ranks**-alpha for alpha in axis]
            for chances in (by_mean, by_first):
                tried += 1
                values = np.array(chances)
                turning += _turns(forwarding.subscription_traffic(shape, values).sum(axis=-1))
                turning_too += _turns(forwarding.publication_traffic(shape, values).sum(axis=-1))
    return SaddleSearch(tried, turning, turning_too)


def _turns(values: npt.NDArray[np.float64]) -> bool:
    """Whether a curve rises after it fell, or falls after it rose, beyond rounding."""
    steps = np.diff(values)
    steps = steps[np.abs(steps) > 1e-9 * np.abs(values).max()]
    return bool(np.any(steps > 0) and np.any(steps < 0))


def level_loads() -> Columns:
    """Figure 9: load per broker and level for n = 111,111, σ = 0.1%, μ = 1%, F_p = F_e = 10,000."""
    shape = shapes.full(10, 5)
    return {
        "level": shape.level.astype(float),
        "nodes": shape.nodes,
        "subscriptions": 10_000 * forwarding.subscription_load(shape, 0.001),
        "publications": 10_000 * forwarding.publication_load(shape, 0.01),
    }


def fanout_sweep() -> Columns:
    """Figure 10: traffic and maximum load against f for n = 11,111 and Table 1's workload."""
    options = advice.options(TABLE4_BROKERS, range(2, 101), 0.02, 0.1, 100, 1000)
    return {
        "fanout": np.array([float(option.fanout) for option in options]),
        "subscription_traffic": np.array([option.subscription_traffic for option in options]),
        "publication_traffic": np.array([option.publication_traffic for option in options]),
        "subscription_load_max": np.array([option.subscription_load_max for option in options]),
        "publication_load_max": np.array([option.publication_load_max for option in options]),
    }
