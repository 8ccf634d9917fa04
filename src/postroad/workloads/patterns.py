"""Patterns that brokers subscribe to independently (Castelli, Costa and Picco, DEBS 2007)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from postroad.cost.forwarding import zipf
from postroad.errors import InputError

Weights = npt.NDArray[np.float64]


def chances(patterns: int, sigma: float, exponent: float | None) -> Weights:
    """How likely a broker subscribes to each: `sigma`, or Zipf's with that mean, at most 1."""
    if exponent is None:
        return np.full(patterns, sigma)
    return zipf(patterns, exponent, sigma * patterns)


def matched(patterns: int, sigma: float, mu: float | None) -> float:
    """How many patterns a publication matches, for a broker to want it with chance `mu`.

    Without `mu` it matches its own only.
    """
    if not 0 < sigma < 1 or (mu is not None and not sigma <= mu < 1):
        raise InputError(f"sigma {sigma}, mu {mu}", remedy="give 0 < sigma <= mu < 1")
    width = 1.0 if mu is None else math.log1p(-mu) / math.log1p(-sigma)
    if width > patterns:
        raise InputError(
            f"a publication would match {width:.1f} of {patterns} patterns",
            remedy="give more patterns, a larger sigma or a smaller mu",
        )
    return width
