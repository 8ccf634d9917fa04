"""What serving a batch costs, in units of serving one publication.

The table that ships with the package was measured from our own broker code by `postroad
calibrate`, which can rewrite it. Sizes between two rows are interpolated; beyond the last row the
last step goes on.
"""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files

import numpy as np


@lru_cache(maxsize=1)
def shipped() -> tuple[list[int], list[float]]:
    """Sizes and costs of the table in the package."""
    text = files("postroad.cost").joinpath("batches.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
    return [int(row["size"]) for row in rows], [float(row["cost"]) for row in rows]


def units(size: int) -> float:
    """The cost of a message that carries so many publications."""
    if size == 1:
        return 1.0
    sizes, costs = shipped()
    if size <= sizes[-1]:
        return float(np.interp(size, sizes, costs))
    slope = (costs[-1] - costs[-2]) / (sizes[-1] - sizes[-2])
    return costs[-1] + slope * (size - sizes[-1])
