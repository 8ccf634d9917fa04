"""The four distributions of section IV.B: who wants which value, and how often it is published.

Interests of servers are independent of each other: a server wants value v with probability
p_v, scaled so that the mean over the values is the interest rate. Zipf: p of the i-th most
popular value is min(1, c/i), values in random order. Uniform: p uniform from 0 to twice the
rate. Multimodal: popularity and volume follow five Gaussian peaks. Regional: each value has a
home server, and p falls with the distance to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from postroad import draws
from postroad.overlay import IntArray
from postroad.overlay.transit_stub import LAN_US

VALUES = 1000
PEAKS = 5
DISTRIBUTIONS = ("uniform", "zipf", "multimodal", "regional")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Interests:
    """`wanted[server, value]`, the volume and weight of each value, and who publishes it (if
    that matters)."""

    wanted: npt.NDArray[np.bool_]
    volume: Floats
    weight: Floats
    home: IntArray | None = None

    def load(self, alpha: float) -> Floats:
        """popularity^α · volume · weight per value (section III.B)."""
        popularity = self.wanted.mean(axis=0)
        return np.asarray(popularity**alpha * self.volume * self.weight)


def interests(
    distribution: str, rate: float, direct_us: IntArray, seed: int, gamma: float = 1.0
) -> Interests:
    servers = len(direct_us)
    key = draws.bits(seed, f"kyra.{distribution}", servers, round(1e6 * rate))
    random = np.random.default_rng(key)
    volume, weight = random.random(VALUES), random.random(VALUES)
    home = None
    if distribution == "uniform":
        chance: Floats = 2 * rate * random.random(VALUES)
    elif distribution == "zipf":
        chance = scaled(1 / (1 + random.permutation(VALUES)), rate)
    elif distribution == "multimodal":
        peaks = random.random(PEAKS) * VALUES
        sigma = np.mean([abs(a - b) for a, b in combinations(peaks, 2)]) / 4
        away = (np.arange(VALUES)[:, None] - peaks) / sigma
        density = np.exp(-(away**2) / 2).sum(axis=1)
        chance = volume = scaled(density, rate)
    else:
        home = random.integers(servers, size=VALUES)
        near = np.maximum(direct_us[:, home], 2 * LAN_US)  # as near as two servers can be
        chance = scaled(near**-gamma, rate)
    wanted = random.random((servers, VALUES)) < chance
    return Interests(wanted, volume, weight, home)


def scaled(shape: Floats, mean: float) -> Floats:
    """min(1, c · shape) with c such that the mean is as given."""
    low, high = 0.0, 1.0 / float(shape.min())
    for _ in range(100):
        c = (low + high) / 2
        low, high = (c, high) if np.minimum(1, c * shape).mean() < mean else (low, c)
    return np.asarray(np.minimum(1, high * shape))


def events(given: Interests, count: int, seed: int) -> tuple[IntArray, IntArray]:
    """Publishers, uniform unless the values have homes, and values by their volume."""
    random = np.random.default_rng(draws.bits(seed, "kyra.events", count, 0))
    values = random.choice(VALUES, count, p=given.volume / given.volume.sum())
    publishers = random.integers(len(given.wanted), size=count)
    return (publishers if given.home is None else given.home[values]), values
