"""What a sweep answers: which setting is best, and by how much, from its tables of measures.

Plain rows in, plain values out: the statistics are those of `measure`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
METRIC = "messages"  # what settings are judged by unless somebody says otherwise
SETTINGS_MAX = 60  # every two are compared, up to so many


@dataclass(frozen=True)
class Best:
    """The best setting and the next one; `difference` is the next minus the best, in pairs."""

    metric: str
    best: Row
    next: Row | None
    difference: Row | None

    def __str__(self) -> str:
        text = f"{self.metric}: least with {named(self.best)}, {stated(self.best, 'mean')}"
        if self.next is None:
            return text
        text += f"; then {named(self.next)}, {stated(self.next, 'mean')}"
        if self.difference is None:
            return text
        by = self.difference["difference"]
        if self.difference["ci95_low"] is None:
            why = "one replicate" if self.difference["n"] == 1 else "the replicates are copies"
            return f"{text}. The difference is {by:,.4g}, without an interval: {why}."
        low, high = self.difference["ci95_low"], self.difference["ci95_high"]
        sure = "" if low > 0 or high < 0 else ", so they cannot be told apart"
        return (
            f"{text}. The difference is {by:,.4g} (95% interval {low:,.4g} to {high:,.4g}, "
            f"{self.difference['n']} pairs){sure}."
        )


def named(row: Row) -> str:
    """A setting by what varies."""
    return ", ".join(f"{key} = {value}" for key, value in sorted(row["parameters"].items()))


def stated(row: Row, name: str) -> str:
    low, high = row["ci95_low"], row["ci95_high"]
    interval = "" if low is None else f" ± {(high - low) / 2:,.2g}"
    return f"{row[name]:,.4g}{interval}"


def varying(measures: Sequence[Row]) -> list[str]:
    """The metrics that are not the same in all settings, in their order."""
    values: dict[str, set[tuple[Any, Any]]] = {}
    for row in measures:
        values.setdefault(row["metric"], set()).add((row["min"], row["max"]))
    return [name for name, ends in values.items() if len(ends) > 1 or _spread(*ends)]


def _spread(ends: tuple[Any, Any]) -> bool:
    return bool(ends[0] != ends[1])


def answer(
    measures: Sequence[Row], differences: Sequence[Row], metric: str | None = None
) -> Best | None:
    """The setting with the least of a metric; None if no metric tells settings apart."""
    metrics = varying(measures)
    if metric is None:
        metric = METRIC if METRIC in metrics else next(iter(metrics), None)
    rows = [row for row in measures if row["metric"] == metric and row["mean"] is not None]
    if metric is None or not rows:
        return None
    ranked = sorted(rows, key=lambda row: row["mean"])
    best, following = ranked[0], ranked[1] if len(ranked) > 1 else None
    difference = None
    if following is not None:
        pair = (dict(following["parameters"]), dict(best["parameters"]))
        difference = next(
            (
                row
                for row in differences
                if row["metric"] == metric
                and (dict(row["parameters"]), dict(row["baseline"])) == pair
            ),
            None,
        )
    return Best(metric, best, following, difference)
