"""The page of a comparison: one HTML file that needs nothing else.

The table stands in the file; `compare.js` draws the pictures from the data beside it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from postroad.comparison.optimum import LABEL
from postroad.comparison.perform import Results
from postroad.comparison.runs import CONCERN, MEASURES
from postroad.comparison.settings import possible_rows
from postroad.comparison.verdict import (
    Judgement,
    placements,
    problems,
    times_least,
    verdicts,
)
from postroad.overlay.drawing import places
from postroad.routing import SCHEMES

SHORT = {
    "traffic": "traffic",
    "messages": "messages",
    "copies": "copies",
    "pure_forwards": "pure forwards",
    "false_sends": "false sends",
    "matches": "matches",
    "state_mean": "state, mean",
    "state_max": "state, max",
    "stress_mean": "broker load, mean",
    "stress_max": "broker load, max",
    "link_mean": "link load, mean",
    "link_max": "link load, max",
    "delay_p50_ms": "delay p50",
    "delay_p90_ms": "delay p90",
    "delay_p99_ms": "delay p99",
    "hops": "hops",
    "outside": "outside links",
    "control": "control",
    "control_per_change": "control per change",
    "deliveries": "deliveries",
    "lost": "lost",
    "duplicated": "duplicated",
    "unexpected": "unexpected",
}
ENVIRONMENT = Environment(
    loader=PackageLoader("postroad", "report"), autoescape=True, undefined=StrictUndefined
)
UNRANKED = ("deliveries", "lost", "duplicated", "unexpected")
DECIDING = (
    "traffic", "messages", "delay_p90_ms", "delay_p99_ms", "state_max", "stress_max",
    "control_per_change", "lost", "duplicated",
)  # fmt: skip
"""Columns that are shown at once; the others when asked for."""
TIMES = "times_least"


def page(results: Results) -> str:
    """The whole file as text."""
    comparison, scenario = results.comparison, results.scenario
    size = results.size
    times = "" if comparison.replicates == 1 else f" in each of {comparison.replicates} replicates"
    facts = (
        f"{scenario.overlay.brokers_count:,} brokers, {size.subscriptions:,} subscriptions, "
        f"{size.publications:,} publications{times}, {len(results.outcomes)} schemes on the same "
        "publications."
    )
    if results.bad:
        facts += (
            f" {len(results.bad):,} rows of the files could not be used and are left out; "
            "quarantine.csv lists them with reasons."
        )
    judgements = verdicts(results.outcomes, comparison.matters, results.conditions)
    template = ENVIRONMENT.get_template("compare.html")
    return template.render(
        comparison=comparison,
        facts=facts,
        answer=_bold(judgements[comparison.matters].headline),
        verdict={concern: _bold(judgement.text) for concern, judgement in judgements.items()},
        placements=placements(results.outcomes, results.conditions),
        problems=problems(results.outcomes),
        table=_table(results, judgements[comparison.matters]),
        sensitivity=_sensitivity(results),
        estimates=_estimates(results),
        method=_method(results),
        schemes=_schemes(results),
        data=Markup(
            json.dumps(_data(results, judgements[comparison.matters])).replace("</", "<\\/")
        ),
        code=Markup(files("postroad.report").joinpath("compare.js").read_text(encoding="utf-8")),
    )


def _bold(text: str) -> Markup:
    """What stands between two pairs of stars is strong."""
    parts = text.split("**")
    return Markup("").join(
        Markup("<strong>{}</strong>").format(part) if place % 2 else part
        for place, part in enumerate(parts)
    )


def _table(results: Results, judgement: Judgement) -> dict[str, Any]:
    """The columns, and a row for each scheme and the least possible."""
    conditions, matters = results.conditions, results.comparison.matters
    columns = [
        {
            "name": TIMES,
            "short": "× least",
            "long": f"for {matters.replace('_', ' ')}: how many times the least possible",
            "more": False,
        }
    ]
    order = [*DECIDING, *(name for name in MEASURES if name not in DECIDING)]
    columns += [
        {"name": name, "short": SHORT[name], "long": MEASURES[name], "more": name not in DECIDING}
        for name in order
    ]
    able = [row for row in results.outcomes if row.error is None]
    base = next((row for row in able if row.label == results.comparison.baseline), None)
    rows: list[dict[str, Any]] = []
    for row in results.outcomes:
        kind = "baseline" if row is base else ""
        if judgement.best is not None and row.label == judgement.best.label:
            kind += " winner"
        if row.error is not None:
            rows.append({"label": row.label, "kind": kind, "error": row.error})
            continue
        times = times_least(row, matters, conditions)
        cells = [_cell(TIMES, times, "", "", False, False)]
        for name in order:
            figure = row.figure(name)
            least = min(other.figure(name).mean for other in able)
            cells.append(
                _cell(
                    name,
                    figure.mean,
                    "" if math.isnan(figure.half) else f"±\u00a0{_half(figure.half)}",
                    "" if base is None else _change(figure.mean, base.figure(name).mean),
                    name not in UNRANKED and figure.mean == least,
                    name not in DECIDING,
                )
            )
        rows.append({"label": row.label, "kind": kind, "error": None, "cells": cells})
    if conditions.least:
        bounds = {TIMES: 1.0, **{name: one.mean for name, one in conditions.least.items()}}
        bounds.setdefault("messages", bounds.get("copies", math.nan))
        cells = [_cell(name, bounds.get(name), "", "", False, name not in (TIMES, *DECIDING))
                 for name in (TIMES, *order)]  # fmt: skip
        rows.append({"label": LABEL, "kind": "least", "error": None, "cells": cells})
    return {"columns": columns, "rows": rows}


def _cell(
    name: str, value: float | None, half: str, change: str, best: bool, more: bool
) -> dict[str, Any]:
    return {
        "measure": name,
        "value": "" if value is None else value,
        "text": "" if value is None else _digits(value),
        "half": half,
        "change": change,
        "kind": f"{'best' if best else ''}{' more' if more else ''}",
    }


def _digits(value: float) -> str:
    """Four significant digits."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.4g}"


def _half(value: float) -> str:
    """Two significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _change(value: float, base: float) -> str:
    return f"{100 * (value - base) / base:+.0f}%".replace("-", "−") if base else ""


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _limits(results: Results) -> list[dict[str, Any]]:
    """Limits in the units of the measures that they limit."""
    conditions = results.conditions
    limits, rate, change = conditions.limits, conditions.rate_per_s, conditions.per_change
    return [
        {"measure": name, "value": limit / factor}
        for name, limit, factor in (
            ("state_max", limits.state, 1.0),
            ("stress_max", limits.broker_per_s, rate),
            ("link_max", limits.link_per_s, rate),
            ("delay_p99_ms", limits.delay_p99_ms, 1.0),
            ("control_per_change", limits.control_per_s, rate / change),
        )
        if limit is not None
    ]


def _data(results: Results, judgement: Judgement) -> dict[str, Any]:
    """What the pictures are drawn from."""
    rows: list[dict[str, Any]] = []
    for outcome in results.outcomes:
        if outcome.error is not None:
            continue
        detail = results.details[outcome.label]
        figures = {name: outcome.figure(name) for name in MEASURES}
        rows.append(
            {
                "label": outcome.label,
                "figures": {
                    name: {"mean": one.mean, "half": None if math.isnan(one.half) else one.half}
                    for name, one in figures.items()
                },
                "load": [_rounded(detail["load"][str(n)]) for n in range(len(detail["load"]))],
                "links": [
                    [*map(int, key.split("-")), _rounded(value)]
                    for key, value in sorted(detail["link"].items(), key=lambda item: -item[1])
                ],
                "delays": [
                    _rounded(detail["quantile"][str(q)]) for q in range(len(detail["quantile"]))
                ],
            }
        )
    measures = [
        {"name": name, "short": SHORT[name], "long": text} for name, text in MEASURES.items()
    ]
    sensitivity = []
    for dimension in dict.fromkeys(point.dimension for point in results.points):
        mine: dict[str, list[dict[str, Any]]] = {}
        for point in results.points:
            if point.dimension == dimension and point.error is None:
                kept = {name: point.measures[name] for name in MEASURES}
                mine.setdefault(point.label, []).append({"value": point.value, "measures": kept})
        sensitivity.append({"name": dimension, "points": mine})
    return {
        "baseline": results.comparison.baseline,
        "winner": None if judgement.best is None else judgement.best.label,
        "out": judgement.out,
        "matters": CONCERN[results.comparison.matters],
        "limits": _limits(results),
        "least": {
            **{name: figure.mean for name, figure in results.conditions.least.items()},
            **{
                name: results.conditions.least["copies"].mean
                for name in ("traffic", "messages")
                if "copies" in results.conditions.least
            },
        },
        "measures": measures,
        "rows": rows,
        "names": list(results.scenario.overlay.names),
        "places": places(results.scenario.overlay),
        "load_max": max((max(row["load"]) for row in rows), default=0.0),
        "link_max": max((row["links"][0][2] for row in rows if row["links"]), default=0.0),
        "sensitivity": sensitivity,
    }


def _sensitivity(results: Results) -> str:
    if results.comparison.generated is None:
        text = "The same network with a part of the subscriptions; one run each."
    else:
        text = (
            "Around a network and workload of an eighth of the size, one thing changed at a time; "
            "one run each. Skew 0 gives every publisher equally many subscribers."
        )
    if len(possible_rows(results.comparison)) < len(results.comparison.rows):
        text += " Without the rows that the limits rule out whatever the workload."
    return text


def _estimates(results: Results) -> list[list[str]]:
    rows = []
    for label, formula in results.estimates.items():
        outcome = next(
            (row for row in results.outcomes if row.label == label and row.error is None), None
        )
        if outcome is None:
            continue
        for name, value in formula.items():
            simulated = outcome.values[name][0]
            off = f"{100 * (value - simulated) / simulated:+.1f}%" if simulated else ""
            rows.append([label, MEASURES[name], f"{value:,.2f}", f"{simulated:,.2f}", off])
    return rows


def _method(results: Results) -> list[str]:
    comparison, scenario = results.comparison, results.scenario
    if comparison.replicates == 1:
        return [
            "Counted on Spark, not simulated: messages, loads and delays are those of a simulation "
            "in which all subscriptions stand from the beginning and brokers take no time, so "
            "nothing waits in a queue. There are no replicates and no intervals.",
            "What setting up takes and what brokers keep follows in closed form.",
            f"Traffic adds control messages, at {comparison.per_change:,g} publications for each "
            "change of a subscription; a change costs what setting up a subscription did.",
        ]
    dealt = (
        "All replicates use the same network; each draws its workload anew."
        if comparison.generated
        else "The workload comes from files: each replicate judges a stretch of the publications "
        "of its own."
    )
    return [
        dealt,
        "The first fifth of every replicate's publications is for training and not judged."
        + ("" if comparison.tune else " Nothing was tuned: parameters are the defaults below."),
        "A message is one send between two brokers; a batch is one message. A pure forward is "
        "made by a broker that delivers nothing of it. A false send reaches a broker that neither "
        "delivers it nor sends it on.",
        "Routing entries are the most that a broker held. Control messages include those that "
        "set up the tables before the first publication.",
        f"Topic schemes take the attribute {results.topic!r} as topic, those on cells "
        "the cell of the content space, cut into zones of equal load; filters are compared at "
        "the subscriber's broker, and what was sent for nothing counts as a false send.",
        "Topic schemes start from what their planner knew of the interests, so they send no "
        "control messages until interests change. Unicast, match early, ideal multicast and "
        "multicast groups start from it too, but the messages that would have told every broker "
        "are counted.",
        f"Traffic adds control messages, at {comparison.per_change:,g} publications for each "
        "change of a subscription; a change costs what setting up a subscription did.",
        f"A broker takes {scenario.service_us:,g} µs for a message"
        + (" (a default, as measured of live brokers)." if comparison.assumed else "."),
        "The least possible counts one copy to every other broker that wants a publication, and "
        "direct ways; its loads assume that any broker could send any copy.",
        "PopSub's popular_share is the room for popular publications as a share of the rate at "
        "which a publishing broker publishes; τ follows from it at φ = 0.05. traced_share is how "
        "much of its publications a publisher makes before it may be moved.",
        "Best places has every publisher from the beginning at the broker that was best for it in "
        "the training part.",
        "A best mix gives each part of the content the scheme that costs least for it in the "
        "training part, control messages of every scheme that is used included; the parts of the "
        "first replicate are below. Where one scheme is best for everything, it is that scheme.",
    ]


def _schemes(results: Results) -> list[list[str]]:
    """Every row: what it does, its parameters, and how they were chosen."""
    comparison = results.comparison
    return [
        [
            row.label,
            row.scheme,
            SCHEMES[row.scheme].summary
            + (f", publishers moved by {row.relocation}" if row.relocation else ""),
            _parameters(row.parameters),
            f"best of {results.tried[row.label]} for {comparison.matters}"
            if row.label in results.tried
            else "for the least traffic of the training part"
            if comparison.rows[row.label].scheme == "mix"
            else "as given",
        ]
        for row in results.outcomes
    ]


def _parameters(values: Mapping[str, Any]) -> str:
    if "parts" in values:
        return "; ".join(
            f"{part['scheme']} ({_parameters(part.get('parameters', {}))})"
            + (f" where {_short(part['where'])}" if "where" in part else " for the rest")
            for part in values["parts"]
        )
    return ", ".join(f"{name} = {value}" for name, value in values.items()) or "defaults"


def _short(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
