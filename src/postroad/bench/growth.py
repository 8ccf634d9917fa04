"""How cost grows with size: the exponent of the power law that fits best, with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.special import stdtrit  # `scipy.stats` takes a second to import

WORDS = "grows with exponent"


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, float]:
    """The slope of cost over size in logarithms, by least squares, and the half-width of its 95%
    interval; of two points there is none (infinite)."""
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    count = len(xs)
    mean_x, mean_y = sum(xs) / count, sum(ys) / count
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    if count < 3:
        return slope, math.inf
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    error = math.sqrt(rest / (count - 2) / spread)
    return slope, float(stdtrit(count - 2, 0.975)) * error


def said(what: str, sizes: Sequence[float], costs: Sequence[float], expected: str) -> str:
    slope, half = exponent(sizes, costs)
    interval = "" if math.isinf(half) else f" ± {half:.2f}"
    return f"{what} {WORDS} {slope:.2f}{interval}, expected {expected}"
