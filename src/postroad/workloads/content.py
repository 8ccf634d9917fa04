"""Kyra's content space (section IV.B): how popular each value is, and how often published.

A server wants value v with probability p_v. Uniform: popularity and volume are both drawn
uniformly. Zipf-uniform: the popularity of the i-th most popular value is proportional to i^-α,
values in random order, volume uniform. Multimodal: popularity and volume follow the same five
Gaussian peaks, whose deviation is a quarter of the mean distance over all pairs of peaks. The
regional distribution has no weights of values: there p falls with the distance to a value's home.

The interest rate is "the probability that subscriptions on a server match a randomly chosen
event". An event is a value of the content space, which has a popularity and a volume, so one is
chosen uniformly among the values: the rate is the mean of p over them (`over="values"`). Chosen
among the publications instead, where popular values may be published more often, it is the mean
weighted by volume (`over="publications"`).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt

from postroad import draws
from postroad.errors import InputError

Weights = npt.NDArray[np.float64]
DISTRIBUTIONS = ("uniform", "zipf-uniform", "multimodal", "regional")
PEAKS = 5
NEAREST = 1e-9  # no distance counts as less


def weights(
    distribution: str,
    rate: float,
    volume: Weights,
    random: np.random.Generator,
    *,
    over: str = "values",
    exponent: float = 1.0,
    peaks: int = PEAKS,
) -> tuple[Weights, Weights]:
    """The chance that a server wants each value, and how often each is published.

    `volume` is uniformly drawn; the multimodal distribution replaces it.
    """
    count = len(volume)
    if distribution == "uniform":
        popularity = random.random(count)
        if over == "values" and rate <= 0.5:
            return np.asarray(2 * rate * popularity), volume
        return scaled(popularity, rate, volume if over == "publications" else None), volume
    if distribution == "zipf-uniform":
        popularity = 1 / (1.0 + random.permutation(count)) ** exponent
    else:
        assert distribution == "multimodal", distribution
        at = random.random(peaks) * count
        apart = [abs(a - b) for a, b in combinations(at, 2)]
        sigma = float(np.mean(apart)) / 4 if apart else count / 4
        away = (np.arange(count)[:, None] - at) / sigma
        popularity = np.exp(-(away**2) / 2).sum(axis=1)
        # Over the values, one that all want is published no more often the more they want it.
        volume = scaled(popularity, rate) if over == "values" else popularity
    return scaled(popularity, rate, volume if over == "publications" else None), volume


def scaled(popularity: Weights, rate: float, volume: Weights | None = None) -> Weights:
    """min(1, c · popularity) with c such that the mean, weighted by volume, is the rate."""
    return np.asarray(np.minimum(1.0, factor(popularity, rate, volume) * popularity))


def factor(popularity: Weights, rate: float, volume: Weights | None = None) -> float:
    if not 0 < rate < 1:
        raise InputError(f"interest {rate}", remedy="give a share between 0 and 1, such as 0.1")
    low, high = 0.0, 1.0 / float(popularity[popularity > 0].min())
    for _ in range(100):
        middle = (low + high) / 2
        met = np.average(np.minimum(1.0, middle * popularity), weights=volume)
        low, high = (middle, high) if met < rate else (low, middle)
    return high


def regional_factor(distances: Weights, gamma: float, rate: float) -> float:
    """c such that min(1, c / distance^gamma) is on average the rate."""
    return factor(np.asarray(np.maximum(distances, NEAREST) ** -gamma), rate)


def square(servers: int, seed: int) -> tuple[Weights, Weights]:
    """Servers put at random on a unit square."""
    at = [[draws.uniform(seed, "square", n, axis) for n in range(servers)] for axis in (0, 1)]
    return np.array(at[0]), np.array(at[1])


def apart(x: Weights, y: Weights) -> Weights:
    """How far each is from each other."""
    far = np.hypot(x[:, None] - x[None, :], y[:, None] - y[None, :])
    return np.asarray(far[~np.eye(len(x), dtype=bool)])
