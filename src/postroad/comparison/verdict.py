"""What the measures say: means, intervals, differences to the baseline, and the verdict in words.

Replicates are paired: every row saw the same publications, so differences are taken replicate by
replicate. All figures come from the tables `measures` and `differences` of the pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from postroad.comparison.runs import CONCERN, MEASURES
from postroad.pipeline.figures import Figure

_WORDS = {
    "traffic": ("traffic", "publication messages a publication", 1),
    "delay": ("delay", "ms to nine deliveries in ten", 0),
    "state": ("state per broker", "routing entries a broker", 0),
    "worst_broker": (
        "the worst-loaded broker", "messages a publication through the busiest broker", 2
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """One row of the comparison: what it was run with, and what came out."""

    label: str
    scheme: str
    relocation: str | None
    parameters: Mapping[str, Any]
    promise: str
    error: str | None
    values: Mapping[str, Sequence[float]]  # per measure, one per replicate
    figures: Mapping[str, Figure]  # per measure, over the replicates
    gaps: Mapping[tuple[str, str], Figure]  # by how much it exceeds another row, by measure

    @property
    def exact(self) -> bool:
        """Whether nothing was lost, doubled or invented."""
        return not any(
            value for name in ("lost", "duplicated", "unexpected") for value in self.values[name]
        )

    def figure(self, measure: str) -> Figure:
        return self.figures[measure]


def difference(outcome: Outcome, other: Outcome, measure: str) -> Figure:
    """By how much a row's measure exceeds another row's, paired."""
    return outcome.gaps[other.label, measure]


def verdict(outcomes: Sequence[Outcome], baseline: str, concern: str) -> str:
    """Sentences: which row is best for this concern, by how much, and what it costs elsewhere."""
    measure = CONCERN[concern]
    subject, unit, digits = _WORDS[concern]
    able = [row for row in outcomes if row.error is None and row.exact]
    if not able:
        return f"For {subject}: no scheme delivered everything exactly once."
    ranked = sorted(able, key=lambda row: (row.figure(measure).mean, row.figure("state_mean").mean))
    best = ranked[0]
    mine = best.figure(measure)
    equal = [row for row in ranked[1:] if _is_equal(row, best, measure)]
    state = best.figure("state_mean").mean
    smaller = all(row.figure("state_mean").mean > state for row in equal)
    said = [
        f"For {subject}: **{best.label}**, with {shown(mine, digits)} {unit}"
        + (f", as {_listed([row.label for row in equal])}" if equal else "")
        + (" but with less state" if equal and smaller else "")
        + "."
    ]
    others = [row for row in ranked[1:] if row not in equal]
    if others:
        second = others[0]
        gap = difference(second, best, measure)
        if math.isnan(gap.half) or gap.low <= 0:
            said.append(f"The lead over {second.label} is within the noise of the replicates.")
        else:
            said.append(
                f"Next is {second.label} with {shown(second.figure(measure), digits)}, "
                f"{_percent(gap.mean, mine.mean)} more."
            )
    base = next((row for row in able if row.label == baseline), None)
    if base is not None and base is not best and base not in equal:
        gap = difference(base, best, measure)
        whole = base.figure(measure).mean
        interval = ""
        if not math.isnan(gap.half):
            interval = f" (95% interval {_percent(gap.low, whole)} to {_percent(gap.high, whole)})"
        said.append(f"Against {baseline} it saves {_percent(gap.mean, whole)}{interval}.")
    costs = []
    for other, other_measure in CONCERN.items():
        if other == concern:
            continue
        least = min(able, key=lambda row: row.figure(other_measure).mean)
        here, there = best.figure(other_measure).mean, least.figure(other_measure).mean
        if here > 1.05 * there:
            costs.append(
                f"{_WORDS[other][0]} is {_times(here, there)} that of the best, {least.label}"
            )
    control = best.figure("control").mean
    costs.append(f"{control:,.1f} control messages a publication, set-up included")
    said.append(f"What it costs elsewhere: {'; '.join(costs)}.")
    return " ".join(said)


def verdicts(outcomes: Sequence[Outcome], baseline: str, matters: str) -> dict[str, str]:
    """All concerns, the one that matters first."""
    order = [matters, *(concern for concern in CONCERN if concern != matters)]
    return {concern: verdict(outcomes, baseline, concern) for concern in order}


def problems(outcomes: Sequence[Outcome]) -> list[str]:
    """What must not happen: failed rows, and losses or duplicates where a scheme promises none."""
    complaints = []
    for row in outcomes:
        if row.error is not None:
            complaints.append(f"{row.label} failed: {row.error}")
        elif not row.exact:
            counts = ", ".join(
                f"{sum(row.values[name]):,.0f} {MEASURES[name]}"
                for name in ("lost", "duplicated", "unexpected")
            )
            broken = " although it promises exactness" if row.promise == "exact" else ""
            complaints.append(f"{row.label} had {counts}{broken}")
    return complaints


def _is_equal(row: Outcome, best: Outcome, measure: str) -> bool:
    """In every replicate."""
    gap = difference(row, best, measure)
    return max(-gap.least, gap.greatest) <= 1e-9 * (1 + best.figure(measure).mean)


def shown(figure: Figure, digits: int) -> str:
    """With its interval, if there is one."""
    if math.isnan(figure.half):
        return f"{figure.mean:,.{digits}f}"
    return f"{figure.mean:,.{digits}f} ± {figure.half:,.{digits}f}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "nothing"


def _times(here: float, there: float) -> str:
    return f"{here / there:,.1f} times" if there else "above"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
