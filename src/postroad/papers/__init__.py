"""One module per paper: its published numbers as data, and the experiments that redo them.

What they share is here: a published number with ours beside it, a claim in words, how a row of an
experiment becomes a run of a sweep, and how its measures are read. Means, ratios and errors are the
pipeline's: a paper says which of its rows are replicates of one setting.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.overlay import IntArray

if TYPE_CHECKING:  # a run of a sweep does not need Spark
    from postroad.pipeline.figures import Figure, Ratio, Setting
    from postroad.pipeline.run import Member
    from postroad.sim.facts import Fact

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One number: published (None where the paper has none), and measured."""

    table: str
    row: str
    column: str
    paper: float | None
    measured: float
    low: float = math.nan  # the least and the greatest of what it is the mean of
    high: float = math.nan
    samples: int = 0  # and how many those are
    standard_error: float = 0.0
    counts: bool = True  # not if it is 1 by definition, or stands in an earlier table already
    ci95: tuple[float, float] | None = None  # of the mean, over the seeds

    @property
    def off(self) -> float:
        """How far off, as a share of the published number."""
        assert self.paper
        return self.measured / self.paper - 1


@dataclass(frozen=True)
class Claim:
    """What a paper says in words, whether ours agrees, and the numbers."""

    text: str
    holds: bool
    numbers: str


@dataclass(frozen=True)
class Replicate:
    """A row that runs, the setting that it is a replicate of, and which one of those."""

    row: Row
    setting: Mapping[str, Any]
    number: str

    def case(self) -> Member:
        from postroad.pipeline.run import Member

        parameters = {name: _text(value) for name, value in self.setting.items()}
        return Member(json.dumps(self.row), parameters, self.number)


@dataclass(frozen=True)
class Measures:
    """The measures of a paper's runs, by setting and metric; and those against a baseline."""

    figures: Mapping[tuple[Setting, str], Figure]
    differences: Mapping[tuple[Setting, Setting, str], tuple[Figure, Ratio]]

    def figure(self, metric: str, **setting: Any) -> Figure:
        return self.figures[_setting(setting), metric]

    def difference(self, metric: str, base: Mapping[str, Any], **setting: Any) -> Figure:
        """By how much the setting exceeds the same one with the baseline's values."""
        return self.differences[_setting(setting), _setting(base), metric][0]

    def ratio(self, metric: str, base: Mapping[str, Any], **setting: Any) -> Ratio:
        """How many times the baseline it is."""
        return self.differences[_setting(setting), _setting(base), metric][1]


def read(folder: str) -> Measures:
    """What the pipeline has measured."""
    from postroad.pipeline import figures

    return Measures(figures.measures(folder), figures.differences(folder))


def distinct(replicates: Iterable[Replicate]) -> list[dict[str, Any]]:
    """Their settings, each once, in order."""
    return list({_setting(one.setting): dict(one.setting) for one in replicates}.values())


def _setting(values: Mapping[str, Any]) -> Setting:
    return frozenset((name, _text(value)) for name, value in values.items())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def facts(paper: str, counts: Mapping[str, Any], part: str | None = None) -> list[Fact]:
    """Facts of a paper's run: of each name a number, one for every broker (or link, move, …) in
    order, or one for every bucket, if it is a mapping.

    `pipeline/definitions.py` says what they are and what follows from them.
    """
    from postroad.sim.facts import fact

    rows: list[Fact] = []
    for name, count in counts.items():
        called = f"{paper}.{name}"
        if isinstance(count, Mapping):
            rows += [fact(called, n, part=part, bucket=b) for b, n in count.items()]
        elif np.ndim(count) == 0:
            rows.append(fact(called, count, part=part))
        else:
            numbers = np.asarray(count).tolist()
            rows += [fact(called, n, part=part, broker=str(b)) for b, n in enumerate(numbers)]
    return rows


def histogram(values: IntArray, weights: IntArray | None = None) -> dict[int, int]:
    """How often each value occurs; with weights, those of its places added up.

    For values close to each other: memory is in proportion to their range.
    """
    if not len(values):
        return {}
    least = int(values.min())
    times = np.bincount(values - least)
    buckets = np.flatnonzero(times)
    if weights is not None:
        times = np.bincount(values - least, weights)
    counts = np.round(times[buckets]).astype(np.int64)
    return dict(zip((buckets + least).tolist(), counts.tolist(), strict=True))


def any_case(run: Row) -> dict[str, Any]:
    """A case of any paper in one sweep: `{"entry": module:function, "row": ...}`."""
    case = run["parameters"]["case"]
    module, _, name = case["entry"].partition(":")
    entry: Callable[[Row], dict[str, Any]] = getattr(importlib.import_module(module), name)
    return entry({**run, "parameters": {**run["parameters"], "case": case["row"]}})


def run_alone(run_point: Callable[[Row], Row], run: Row) -> dict[str, Any]:
    """`run_point` for a case of `pipeline.run.cases`: what it measures, without the row."""
    case = run["parameters"]["case"]
    return {name: value for name, value in run_point(case).items() if name not in case}
