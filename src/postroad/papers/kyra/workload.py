"""The four distributions of section IV.B, drawn: who wants which value, and who publishes it.

`workloads/content.py` says how popular a value is; servers' interests are independent of each
other. Regional: each value has a home server, and p falls with the distance to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postroad import draws
from postroad.overlay import IntArray
from postroad.overlay.transit_stub import LAN_US
from postroad.workloads import content

VALUES = 1000
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
    if distribution == "regional":
        home = random.integers(servers, size=VALUES)
        near = np.maximum(direct_us[:, home], 2 * LAN_US)  # as near as two servers can be
        chance = content.scaled((near**-gamma).ravel(), rate).reshape(near.shape)
    else:
        kind = "zipf-uniform" if distribution == "zipf" else distribution
        chance, volume = content.weights(kind, rate, volume, random)
    wanted = random.random((servers, VALUES)) < chance
    return Interests(wanted, volume, weight, home)


def events(interests: Interests, count: int, seed: int) -> tuple[IntArray, IntArray]:
    """Publishers, uniform unless the values have homes, and values by their volume."""
    random = np.random.default_rng(draws.bits(seed, "kyra.events", count, 0))
    values = random.choice(VALUES, count, p=interests.volume / interests.volume.sum())
    publishers = random.integers(len(interests.wanted), size=count)
    return (publishers if interests.home is None else interests.home[values]), values
