"""One module per paper: its published numbers as data, and the experiments that redo them.

What they share is here: a published number with ours beside it, a claim in words, and how a row of
an experiment becomes a run of a sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One number: published (None where the paper has none), and measured."""

    table: str
    row: str
    column: str
    paper: float | None
    measured: float
    samples: tuple[float, ...] = ()  # the values that the measured one is the mean of
    standard_error: float = 0.0
    counts: bool = True  # not if it is 1 by definition, or stands in an earlier table already

    @property
    def off(self) -> float:
        """How far off, as a share of the published number."""
        assert self.paper
        return self.measured / self.paper - 1

    @property
    def low(self) -> float:
        return min(self.samples)

    @property
    def high(self) -> float:
        return max(self.samples)


@dataclass(frozen=True)
class Claim:
    """What a paper says in words, whether ours agrees, and the numbers."""

    text: str
    holds: bool
    numbers: str


def run_alone(run_point: Callable[[Row], Row], run: Row) -> dict[str, Any]:
    """`run_point` for a case of `pipeline.run.cases`: what it measures, without the row."""
    case = run["parameters"]["case"]
    return {name: value for name, value in run_point(case).items() if name not in case}
