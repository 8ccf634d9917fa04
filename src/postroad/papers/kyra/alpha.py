"""Figure 7: how many servers of a tree a publication passes, by how many want it.

The load of a zone counts popularity^α because a publication also passes servers that do not
want it. α is fitted to minimum spanning trees over randomly placed servers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postroad import draws
from postroad.kernels import kyra as kernel
from postroad.overlay.transit_stub import Underlay
from postroad.planning import kyra as planning
from postroad.planning.zones import EVERYWHERE

EVENTS = 200

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """passed = popularity^alpha, and how well that describes what was measured."""

    alpha: float
    r_square: float
    popularity: Floats
    passed: Floats


def measure(underlay: Underlay, seed: int, levels: int = 50) -> tuple[Floats, Floats]:
    """Popularities from 1/levels up to 1, and the mean share of servers passed at each."""
    servers = underlay.servers_count
    alone = [[server] for server in range(servers)]
    layout = planning.layout(underlay.direct_us, alone, lambda count: [EVERYWHERE], 1)
    routes = kernel.routes(layout, EVENTS)
    random = np.random.default_rng(draws.bits(seed, "kyra.alpha", servers, levels))
    popularity = np.arange(1, levels + 1) / levels
    passed = []
    for share in popularity:
        ranks = random.random((servers, EVENTS)).argsort(axis=0)
        wanted = ranks < max(1, round(share * servers))
        publishers = random.integers(servers, size=EVENTS)
        outcome = kernel.kyra(routes, wanted, publishers, np.arange(EVENTS))
        passed.append((outcome.messages.sum() / EVENTS + 1) / servers)
    return popularity, np.array(passed)


def fit(popularity: Floats, passed: Floats) -> Fit:
    """Least squares of the logarithms, through (1, 1)."""
    x, y = np.log(popularity), np.log(passed)
    alpha = float((x * y).sum() / (x * x).sum())
    left = ((passed - popularity**alpha) ** 2).sum()
    r_square = float(1 - left / ((passed - passed.mean()) ** 2).sum())
    return Fit(alpha, r_square, popularity, passed)
