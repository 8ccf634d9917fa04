"""What a message costs the broker that serves it, in units of serving one publication.

A batch is matched whole, a gossip against local subscriptions only, and a direct send costs the
broker that sends it. The table that ships with the package was measured from our own broker code
by `postroad calibrate`, which can rewrite it. Sizes between two rows are interpolated; beyond the
last row the last step goes on.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

Rows = tuple[list[int], list[float]]


@lru_cache(maxsize=1)
def shipped() -> dict[str, Rows]:
    """Per kind of message the sizes and costs of the table in the package."""
    text = files("postroad.cost").joinpath("service.csv").read_text(encoding="utf-8")
    table: dict[str, Rows] = {}
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        sizes, costs = table.setdefault(row["message"], ([], []))
        sizes.append(int(row["size"]))
        costs.append(float(row["cost"]))
    return table


@dataclass(frozen=True)
class Costs:
    """The costs of one network; what is None is as measured.

    `batch` is that of each publication of a batch after the first, `gossip` that of each
    publication of a gossip, `direct` that of one direct send, to its sender.
    """

    batch: float | None = None
    gossip: float | None = None
    direct: float | None = None

    @cached_property
    def sending(self) -> float:
        return shipped()["direct"][1][0] if self.direct is None else self.direct

    def units(self, kind: str, size: int) -> float:
        """The cost of receiving a message of this kind with so many publications."""
        if kind == "gossip":
            return _measured("gossip", size) if self.gossip is None else self.gossip * size
        if size == 1:
            return 1.0
        return _measured("batch", size) if self.batch is None else 1.0 + self.batch * (size - 1)

    def table(self, kind: str, most: int) -> npt.NDArray[np.float64]:
        """The costs of messages with 1 to `most` publications."""
        return np.array([self.units(kind, size) for size in range(1, most + 1)])


MEASURED = Costs()


def _measured(kind: str, size: int) -> float:
    sizes, costs = shipped()[kind]
    if size <= sizes[-1]:
        return float(np.interp(size, sizes, costs))
    slope = (costs[-1] - costs[-2]) / (sizes[-1] - sizes[-2])
    return costs[-1] + slope * (size - sizes[-1])
