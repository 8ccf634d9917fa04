"""What the measures say: means, intervals, differences, and the verdict in words.

Replicates are paired: every row saw the same publications, so differences are taken replicate by
replicate. All figures come from the tables `measures` and `differences` of the pipeline.

The verdict names the best row that keeps within the limits, what those that look better break, how
sure the lead is, how far it is from the least possible, and where another row would be best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from postroad.comparison.limits import Requirements, reason_out
from postroad.comparison.rows import PLACED
from postroad.comparison.runs import CONCERN, MEASURES
from postroad.pipeline.figures import Figure

_WORDS = {
    "traffic": ("traffic", "messages a publication"),
    "delay": ("delay", "ms to nine deliveries in ten"),
    "state": ("state", "routing entries a broker"),
    "worst_broker": ("the worst-loaded broker", "messages a publication at the busiest broker"),
}
NEAR = 0.005  # factors within this of 1 are not worth a word


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


@dataclass(frozen=True)
class Conditions:
    """What the rows were compared under, and what else is known of it."""

    limits: Requirements = field(default_factory=Requirements)
    baseline: str = ""
    rate_per_s: float = 1.0  # publications in a second
    per_change: float = 10.0  # publications for each change of a subscription
    least: Mapping[str, Figure] = field(default_factory=dict)  # lower bounds
    points: Sequence[tuple[str, Mapping[str, Mapping[str, float]]]] = ()
    # where the workload is another: what changed, and every row's measures there


@dataclass(frozen=True)
class Judgement:
    """For one concern: the best row within the limits, and in words why."""

    best: Outcome | None
    out: Mapping[str, str]  # rows that do not keep within the limits, with the reason
    text: str
    headline: str  # what to do, in one sentence


def judge(outcomes: Sequence[Outcome], concern: str, conditions: Conditions) -> Judgement:
    measure = CONCERN[concern]
    able = [row for row in outcomes if row.error is None and row.exact]
    reasons = {
        row.label: reason_out(row, conditions.limits, conditions.rate_per_s, conditions.per_change)
        for row in able
    }
    out = {label: reason for label, reason in reasons.items() if reason is not None}
    ranked = sorted(
        (row for row in able if row.label not in out),
        key=lambda row: (row.figure(measure).mean, row.figure("state_mean").mean),
    )
    if not able:
        text = f"For {_WORDS[concern][0]}: no scheme delivered everything exactly once."
        return Judgement(None, out, text, text)
    if not ranked:
        nearest = min(able, key=lambda row: row.figure(measure).mean)
        text = (
            f"For {_WORDS[concern][0]}: no scheme keeps within the limits. "
            f"{nearest.label}, the best without them: {out[nearest.label]}."
        )
        return Judgement(None, out, text, text)
    best = ranked[0]
    said = [
        _answer(best, ranked, concern, conditions),
        _below(best, conditions) if concern == "traffic" else "",
        _lead(best, ranked, measure),
        _against(best, able, measure, conditions.baseline),
        _left_out(best, able, out, measure),
        _elsewhere(best, ranked, measure, conditions.points),
    ]
    text = " ".join(text for text in said if text)
    return Judgement(best, out, text, _headline(best, concern, conditions))


def _headline(best: Outcome, concern: str, conditions: Conditions) -> str:
    figure = best.figure(CONCERN[concern]).mean
    text = f"Run **{best.label}**: {figure:,.4g} {_WORDS[concern][1]}"
    times = times_least(best, concern, conditions)
    if times is not None:
        text += f", {times:,.3g} times the least possible"
    if conditions.limits.any:
        text += ", and within the limits"
    return text + "."


def verdicts(
    outcomes: Sequence[Outcome], matters: str, conditions: Conditions
) -> dict[str, Judgement]:
    """All concerns, the one that matters first."""
    order = [matters, *(concern for concern in CONCERN if concern != matters)]
    return {concern: judge(outcomes, concern, conditions) for concern in order}


def least_of(concern: str, conditions: Conditions) -> Figure | None:
    """The lower bound that a concern's measure stands beside, where there is one."""
    name = "copies" if concern == "traffic" else CONCERN[concern]
    return conditions.least.get(name)


def times_least(row: Outcome, concern: str, conditions: Conditions) -> float | None:
    """How many times the least possible a row takes, if that can be said.

    Traffic is counted in copies here, since a batch is one message with several; so are not the
    loads of brokers, and for a row with batches nothing is said of them.
    """
    bound = least_of(concern, conditions)
    if bound is None or not bound.mean:
        return None
    if concern == "traffic":
        return (row.figure("copies").mean + _control(row)) / bound.mean
    if concern == "worst_broker" and row.figure("copies").mean > row.figure("messages").mean:
        return None
    return row.figure(CONCERN[concern]).mean / bound.mean


def factors(row: Outcome, conditions: Conditions) -> dict[str, float]:
    """What a row's copies are more than the least possible by; their product is the whole.

    The tree of links is judged with publishers at their best places on it, so that what their
    places cost stands by itself.
    """
    bound = least_of("traffic", conditions)
    if bound is None or not bound.mean:
        return {}
    copies, wasted = row.figure("copies").mean, row.figure("false_sends").mean
    useful = copies - wasted
    if not useful:
        return {}
    shares = {"control messages": (copies + _control(row)) / copies, "false sends": copies / useful}
    known = [
        conditions.least.get(name)
        for name in ("tree_copies", "placed_tree_copies", "placed_copies")
    ]
    tree, placed_tree, placed = (0.0 if one is None else one.mean for one in known)
    if tree and placed_tree and placed and not row.figure("outside").mean:
        stretch = placed_tree / placed
        shares["detours"] = useful / tree
        shares["where publishers are"] = tree / bound.mean / stretch
        shares["the tree of links"] = stretch
    else:
        shares["brokers that want nothing of it"] = useful / bound.mean
    return shares


def _control(row: Outcome) -> float:
    return row.figure("traffic").mean - row.figure("messages").mean


def _answer(best: Outcome, ranked: Sequence[Outcome], concern: str, conditions: Conditions) -> str:
    measure = CONCERN[concern]
    subject, unit = _WORDS[concern]
    equal = [row for row in ranked[1:] if _is_equal(row, best, measure)]
    state = best.figure("state_mean").mean
    smaller = all(row.figure("state_mean").mean > state for row in equal)
    text = f"For {subject}: **{best.label}**, with {shown(best.figure(measure))} {unit}"
    if concern == "traffic":
        text += f", {_control(best):,.3g} of them control"
    if equal:
        text += f", as {_listed([row.label for row in equal])}"
        text += " but with less state" if smaller else ""
    times = times_least(best, concern, conditions)
    if times is not None:
        text += f"; {times:,.3g} × the least possible"
        if concern == "traffic":
            notable = {
                name: share
                for name, share in factors(best, conditions).items()
                if abs(share - 1) >= NEAR
            }
            if len(notable) > 1:
                text += (
                    f" ({' × '.join(f'{share:.3g} for {name}' for name, share in notable.items())})"
                )
    return text + "."


def _below(best: Outcome, conditions: Conditions) -> str:
    """The links of the network below, where they are known."""
    mine, least, most = (
        best.figures.get("physical"), conditions.least.get("physical"),
        conditions.least.get("physical_most"),
    )  # fmt: skip
    if mine is None or least is None or most is None or not least.mean:
        return ""
    off = most.mean / least.mean - 1
    sure = "" if off < NEAR / 10 else f"; the bound is at most {_percent(off, 1)} too low"
    return (
        f"Its copies cross {mine.mean:,.4g} links of the network below, "
        f"{mine.mean / least.mean:,.3g} × the least possible{sure}."
    )


def _lead(best: Outcome, ranked: Sequence[Outcome], measure: str) -> str:
    mine = best.figure(measure)
    for row in ranked[1:]:
        gap = difference(row, best, measure)
        if _is_equal(row, best, measure):
            continue
        if math.isnan(gap.half):
            return (
                f"Next is {row.label} with {shown(row.figure(measure))}, "
                f"{_percent(gap.mean, mine.mean)} more."
            )
        if gap.low <= 0:
            return f"The lead over {row.label} is within the noise of the replicates."
        low, high = _percent(gap.low, mine.mean), _percent(gap.high, mine.mean)
        return (
            f"Next is {row.label} with {shown(row.figure(measure))}, "
            f"{_percent(gap.mean, mine.mean)} more (95% interval {low} to {high})."
        )
    return ""


def _against(best: Outcome, able: Sequence[Outcome], measure: str, baseline: str) -> str:
    base = next((row for row in able if row.label == baseline and row is not best), None)
    if base is None:
        return ""
    gap = difference(base, best, measure)
    whole = base.figure(measure).mean
    if gap.mean <= 1e-9 * (1 + whole):
        return ""
    low, high = _percent(gap.low, whole), _percent(gap.high, whole)
    sure = "" if math.isnan(gap.half) else f" (95% interval {low} to {high})"
    return f"Against {baseline} it saves {_percent(gap.mean, whole)}{sure}."


def _left_out(best: Outcome, able: Sequence[Outcome], out: Mapping[str, str], measure: str) -> str:
    mine = best.figure(measure).mean
    better = sorted(
        (row for row in able if row.label in out and row.figure(measure).mean < mine),
        key=lambda row: row.figure(measure).mean,
    )
    if not better:
        return ""
    alike: dict[str, list[str]] = {}
    for row in better:
        alike.setdefault(out[row.label], []).append(
            f"{row.label} ({row.figure(measure).mean:,.4g})"
        )
    listed = "; ".join(f"{_listed(names)}: {reason}" for reason, names in alike.items())
    return f"Out for the limits, though lower: {listed}."


def _elsewhere(
    best: Outcome, ranked: Sequence[Outcome], measure: str,
    points: Sequence[tuple[str, Mapping[str, Mapping[str, float]]]],
) -> str:  # fmt: skip
    """Where the workload is another and another row of those within the limits is best."""
    changes = []
    for name, measures in points:
        here = {row.label: measures[row.label][measure] for row in ranked if row.label in measures}
        if best.label not in here:
            continue
        other = min(here, key=here.__getitem__)
        if here[other] < here[best.label] * (1 - NEAR):
            less = _percent(here[best.label] - here[other], here[best.label])
            changes.append(f"with {name} {other} ({less} less)")
    if changes:
        return f"Another would be best {', '.join(changes)}; one run each."
    return "It stays the best wherever the workload was changed; one run each." if points else ""


def placements(outcomes: Sequence[Outcome], conditions: Conditions) -> str:
    """Rows that move publishers against the best place for every publisher on the tree of links,
    which is exact."""
    best = conditions.least.get("placed_tree_copies")
    moving = [
        row for row in outcomes
        if row.error is None and (row.relocation is not None or PLACED in row.parameters)
        and not row.figure("outside").mean
    ]  # fmt: skip
    if best is None or not best.mean or not moving:
        return ""
    listed = [
        f"{row.label} {row.figure('copies').mean:,.4g} "
        f"({row.figure('copies').mean / best.mean:,.2f} ×)"
        for row in moving
    ]
    return (
        f"With every publisher where it is best, known beforehand, the tree of links would take "
        f"{best.mean:,.4g} copies a publication; {_listed(listed)}."
    )


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


def shown(figure: Figure) -> str:
    """Four significant digits, and the interval to the same place."""
    mean = f"{figure.mean:,.4g}" if abs(figure.mean) < 10_000 else f"{figure.mean:,.0f}"
    if math.isnan(figure.half):
        return mean
    digits = len(mean.partition(".")[2])
    return f"{mean}\u00a0±\u00a0{figure.half:,.{digits}f}"  # never broken over two lines


def _percent(part: float, whole: float) -> str:
    if not whole:
        return "nothing"
    percent = 100 * part / whole
    return f"{percent:.0f}%" if abs(percent) >= 2 else f"{percent:.1g}%"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
