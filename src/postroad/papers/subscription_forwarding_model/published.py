"""The published tables: each column with the point it stands for, each row with its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from postroad.cost import shapes

PATTERNS = 100
PUBLICATIONS = 1000
SIGMA = 0.02
MU = 0.1
TABLE4_BROKERS = 11_111
STATED_ERROR = 3.0
"""Abstract: "our model remains within 3% of the simulated traffic"."""


@dataclass(frozen=True)
class Point:
    """One column of a table. `stddev` None is a full tree; `alpha` None a uniform workload."""

    fanout: float
    height: int
    sigma: float = SIGMA
    mu: float = MU
    stddev: float | None = None
    alpha: float | None = None
    publications: int = PUBLICATIONS
    patterns: int = PATTERNS

    @property
    def brokers(self) -> int:
        return round(sum(self.fanout**level for level in range(self.height + 1)))


@dataclass(frozen=True)
class Table:
    """A published table: named columns with their points, and the numbers row by row."""

    title: str
    columns: Mapping[str, Point]
    rows: Mapping[str, Sequence[float]]
    measure: Literal["traffic", "load"]


def _by_height(sigma: float = SIGMA, mu: float = MU) -> dict[str, Point]:
    names = ["n=341 (h=4)", "n=1,365 (h=5)", "n=5,461 (h=6)", "n=21,845 (h=7)", "n=87,381 (h=8)"]
    return {
        name: Point(4, height, sigma, mu) for name, height in zip(names, range(4, 9), strict=True)
    }


def _by_fanout(sigma: float = SIGMA, mu: float = MU) -> dict[str, Point]:
    names = ["n=63 (f=2)", "n=1,365 (f=4)", "n=9,331 (f=6)", "n=37,449 (f=8)", "n=111,111 (f=10)"]
    return {
        name: Point(fanout, 5, sigma, mu)
        for name, fanout in zip(names, range(2, 11, 2), strict=True)
    }


def _by_probability() -> dict[str, Point]:
    return {f"σ=μ={p:g}": Point(4, 7, p, p) for p in (0.001, 0.01, 0.1, 0.5, 0.8, 0.9)}


def _by_exponent() -> dict[str, Point]:
    return {f"α={alpha:g}": Point(4, 7, SIGMA, SIGMA, alpha=alpha) for alpha in (1.5, 1.0, 0.5)}


def _by_mean(sigma: float = SIGMA, mu: float = MU) -> dict[str, Point]:
    columns = {}
    for height, published in ((4, "10"), (5, "6.22"), (6, "4.53"), (7, "3.61")):
        mean = shapes.fanout_for(TABLE4_BROKERS, height)
        columns[f"h={height}, f̄={published}"] = Point(mean, height, sigma, mu, stddev=1.0)
    return columns


def _by_stddev(sigma: float = SIGMA, mu: float = MU) -> dict[str, Point]:
    mean = shapes.fanout_for(TABLE4_BROKERS, 4)
    return {f"stddev={s}": Point(mean, 4, sigma, mu, stddev=float(s)) for s in range(1, 6)}


TABLES: dict[str, Table] = {
    "2a": Table(
        "Simulated vs. theoretical traffic w.r.t. system scale: h increasing, f fixed",
        _by_height(),
        {
            "%ΔT(p)": (-0.12, 0.02, -0.19, 0.01, 0.005),
            "%ΔT(e)": (-0.30, 0.33, 0.70, 0.23, 0.02),
        },
        "traffic",
    ),
    "2b": Table(
        "Simulated vs. theoretical traffic w.r.t. system scale: f increasing, h fixed",
        _by_fanout(),
        {
            "%ΔT(p)": (1.7, 0.02, 0.003, -0.002, 0.002),
            "%ΔT(e)": (0.36, 0.33, 0.05, 0.03, -0.03),
        },
        "traffic",
    ),
    "3a": Table(
        "Simulated vs. theoretical traffic, uniform distribution, σ(p)=μ(e)",
        _by_probability(),
        {
            "%ΔT(p)": (-0.0004, 0.01, -0.01, 0.005, 0.002, -0.003),
            "%ΔT(e)": (0.072, 0.32, -0.14, -0.0002, 0.004, 0.006),
        },
        "traffic",
    ),
    "3b": Table(
        "Simulated vs. theoretical traffic, Zipf distribution, σ(p)=μ(e)",
        _by_exponent(),
        {"%ΔT(p)": (-0.27, -0.09, -0.01), "%ΔT(e)": (-2.01, -0.88, -0.56)},
        "traffic",
    ),
    "4a": Table(
        "Simulated vs. theoretical traffic, arbitrary trees, standard deviation 1",
        _by_mean(),
        {
            "%ΔT(p)": (0.012, 0.004, 0.045, 0.042),
            "%ΔT(e)": (0.311, 0.142, 0.045, 0.533),
        },
        "traffic",
    ),
    "4b": Table(
        "Simulated vs. theoretical traffic, arbitrary trees, f̄=10",
        _by_stddev(),
        {
            "%ΔT(p)": (0.005, 0.019, 0.017, 0.043, 0.086),
            "%ΔT(e)": (0.091, 0.443, 0.651, 1.789, 2.428),
        },
        "traffic",
    ),
    "5a": Table(
        "Simulated vs. theoretical load w.r.t. system scale: h increasing, f fixed",
        _by_height(mu=SIGMA),
        {
            "average ΔL(p)": (-0.374, -0.131, 0.018, -0.011, 0.003),
            "stdev. ΔL(p)": (3.121, 1.965, 2.002, 1.945, 1.887),
            "% stdev. ΔL(p)": (0.702, 0.399, 0.400, 0.389, 0.377),
            "average ΔL(e)": (-1.189, -0.157, 0.431, -0.129, 0.024),
            "stdev. ΔL(e)": (28.285, 25.788, 21.789, 20.448, 19.882),
            "% stdev. ΔL(e)": (0.883, 0.644, 0.544, 0.511, 0.499),
        },
        "load",
    ),
    "5b": Table(
        "Simulated vs. theoretical load w.r.t. system scale: f increasing, h fixed",
        _by_fanout(mu=SIGMA),
        {
            "average ΔL(p)": (-0.841, 0.109, 0.027, -0.011, -0.005),
            "stdev. ΔL(p)": (6.513, 3.181, 2.844, 2.775, 2.557),
            "% stdev. ΔL(p)": (2.171, 0.636, 0.406, 0.308, 0.232),
            "average ΔL(e)": (-0.731, 0.366, 0.230, -0.031, -0.067),
            "stdev. ΔL(e)": (17.333, 20.456, 19.946, 19.123, 17.255),
            "% stdev. ΔL(e)": (0.866, 0.511, 0.332, 0.239, 0.172),
        },
        "load",
    ),
    "6a": Table(
        "Simulated vs. theoretical load, uniform distribution, σ(p)=μ(e)",
        _by_probability(),
        {
            "average ΔL(p)": (0.017, -0.017, 0.005, 0.103, 0.023, 0.094),
            "stdev. ΔL(p)": (1.261, 1.810, 1.100, 1.004, 0.499, 0.231),
            "% stdev. ΔL(p)": (0.252, 0.362, 0.220, 0.200, 0.099, 0.046),
            "average ΔL(e)": (0.018, -0.037, 0.084, 0.097, -0.034, 0.005),
            "stdev. ΔL(e)": (6.918, 15.629, 23.961, 25.931, 11.100, 7.227),
            "% stdev. ΔL(e)": (0.223, 0.390, 0.599, 0.648, 0.277, 0.180),
        },
        "load",
    ),
    "6b": Table(
        "Simulated vs. theoretical load, Zipf distribution, σ(p)=μ(e)",
        _by_exponent(),
        {
            "average ΔL(p)": (-0.021, 0.054, -0.101),
            "stdev. ΔL(p)": (10.443, 7.221, 4.042),
            "% stdev. ΔL(p)": (2.088, 1.444, 0.808),
            "average ΔL(e)": (0.456, 0.225, 0.004),
            "stdev. ΔL(e)": (35.173, 40.213, 53.104),
            "% stdev. ΔL(e)": (1.004, 1.005, 1.327),
        },
        "load",
    ),
    "7a": Table(
        "Simulated vs. theoretical load, arbitrary trees, standard deviation 1",
        _by_mean(mu=SIGMA),
        {
            "average ΔL(p)": (-0.095, -0.023, 0.029, 0.025),
            "stdev. ΔL(p)": (2.409, 3.581, 1.994, 1.567),
            "% stdev. ΔL(p)": (0.185, 0.329, 0.249, 0.223),
            "average ΔL(e)": (0.159, -0.121, 0.132, -0.091),
            "stdev. ΔL(e)": (10.541, 12.313, 17.234, 14.775),
            "% stdev. ΔL(e)": (0.307, 0.476, 0.615, 0.484),
        },
        "load",
    ),
    "7b": Table(
        "Simulated vs. theoretical load, arbitrary trees, f̄=10",
        _by_stddev(mu=SIGMA),
        {
            "average ΔL(p)": (-0.085, 0.071, -0.037, 0.145, 0.041),
            "stdev. ΔL(p)": (1.704, 6.725, 6.062, 7.372, 7.245),
            "% stdev. ΔL(p)": (0.154, 0.611, 0.551, 0.670, 0.658),
            "average ΔL(e)": (-0.191, 0.072, 0.131, -0.277, -0.041),
            "stdev. ΔL(e)": (24.026, 65.900, 71.222, 75.430, 80.147),
            "% stdev. ΔL(e)": (0.221, 0.409, 0.612, 0.624, 0.671),
        },
        "load",
    ),
}
