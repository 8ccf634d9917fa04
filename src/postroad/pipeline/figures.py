"""The tables `measures` and `differences` as figures, read without Spark."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from postroad.pipeline import store

Setting = frozenset[tuple[str, str]]
"""Parameters with their values, as text."""


@dataclass(frozen=True)
class Figure:
    """A mean over replicates with its 95% interval; `low`, `high` and `sd` are nan if unknown."""

    mean: float
    low: float = math.nan
    high: float = math.nan
    least: float = math.nan
    greatest: float = math.nan
    n: int = 1
    sd: float = math.nan

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return self.high - self.mean

    @property
    def standard_error(self) -> float:
        return self.sd / math.sqrt(self.n)


@dataclass(frozen=True)
class Ratio:
    """Of two settings: the ratio of their means, and of the replicates' own ratios the mean and
    the extremes; nan where the baseline is 0."""

    of_means: float
    mean: float
    least: float
    greatest: float


def setting(parameters: Mapping[str, str]) -> Setting:
    return frozenset(parameters.items())


def measures(folder: str) -> dict[tuple[Setting, str], Figure]:
    """Of each setting and metric."""
    rows = store.rows_of(store.join(folder, "measures"))
    return {(setting(row["parameters"]), row["metric"]): _figure(row, "mean") for row in rows}


def differences(folder: str) -> dict[tuple[Setting, Setting, str], tuple[Figure, Ratio]]:
    """Of each setting, each baseline (its own parameters only) and metric: by how much it exceeds
    the baseline, paired, and how many times."""
    path = store.join(folder, "differences")
    return {
        (setting(row["parameters"]), setting(row["baseline"]), row["metric"]): (
            _figure(row, "difference"),
            Ratio(*(_real(row[f"ratio{part}"]) for part in ("", "_mean", "_min", "_max"))),
        )
        for row in (store.rows_of(path) if store.exists(path) else ())
    }


def _figure(row: Mapping[str, Any], mean: str) -> Figure:
    low, high, sd = (_real(row[name]) for name in ("ci95_low", "ci95_high", "sd"))
    return Figure(row[mean], low, high, row["min"], row["max"], row["n"], sd)


def _real(value: float | None) -> float:
    return math.nan if value is None else value
