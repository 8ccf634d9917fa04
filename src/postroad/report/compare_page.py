"""The page of a comparison: one HTML file that needs nothing else."""

from __future__ import annotations

import json
import math
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from postroad.comparison.perform import Results
from postroad.comparison.runs import MEASURES
from postroad.comparison.verdict import problems, verdicts
from postroad.overlay import Overlay, rooted
from postroad.overlay.small_world import Ring
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


def page(results: Results) -> str:
    """The whole file as text."""
    comparison, scenario = results.comparison, results.scenario
    workload = scenario.workload
    facts = (
        f"{scenario.overlay.brokers_count:,} brokers, {len(workload.subscriptions):,} "
        f"subscriptions, {len(workload.postings):,} publications in each of "
        f"{comparison.replicates} replicates, {len(results.outcomes)} schemes on the same "
        "publications."
    )
    if results.bad:
        facts += (
            f" {len(results.bad):,} rows of the files could not be used and are left out; "
            "quarantine.csv lists them with reasons."
        )
    said = verdicts(results.outcomes, comparison.matters, results.conditions)
    template = ENVIRONMENT.get_template("compare.html")
    return template.render(
        comparison=comparison,
        facts=facts,
        verdict={concern: _bold(judgement.text) for concern, judgement in said.items()},
        problems=problems(results.outcomes),
        sensitivity=_sensitivity(results),
        estimates=_estimates(results),
        method=_method(results),
        schemes=_schemes(results),
        data=Markup(json.dumps(_data(results)).replace("</", "<\\/")),
        plotly=Markup(get_plotlyjs()),
    )


def _bold(text: str) -> Markup:
    """What stands between two pairs of stars is strong."""
    parts = text.split("**")
    return Markup("").join(
        Markup("<strong>{}</strong>").format(part) if place % 2 else part
        for place, part in enumerate(parts)
    )


def _data(results: Results) -> dict[str, Any]:
    able = [row for row in results.outcomes if row.error is None]
    rows = []
    for outcome in results.outcomes:
        row: dict[str, Any] = {"label": outcome.label, "error": outcome.error}
        if outcome.error is None:
            detail = results.details[outcome.label]
            figures = {name: outcome.figure(name) for name in MEASURES}
            row["figures"] = {
                name: {"mean": one.mean, "half": None if math.isnan(one.half) else one.half}
                for name, one in figures.items()
            }
            row["load"] = [detail["load"][str(n)] for n in range(len(detail["load"]))]
            row["links"] = [
                [*map(int, key.split("-")), value] for key, value in detail["link"].items()
            ]
            row["delays"] = [detail["quantile"][str(q)] for q in range(len(detail["quantile"]))]
        rows.append(row)
    measures = [
        {
            "name": name,
            "short": SHORT[name],
            "long": text,
            "ranked": name not in UNRANKED,
            "least": min((row.figure(name).mean for row in able), default=0.0),
        }
        for name, text in MEASURES.items()
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
        "measures": measures,
        "rows": rows,
        "names": list(results.scenario.overlay.names),
        "places": places(results.scenario.overlay),
        "load_max": max(
            (max(detail["load"].values()) for detail in results.details.values()), default=0.0
        ),
        "sensitivity": sensitivity,
    }


def places(overlay: Overlay) -> list[tuple[float, float]]:
    """Where to draw each broker: a tree in circles around its root, a ring as a circle.

    Each broker gets a sector as wide as the leaves behind it are many.
    """
    count = overlay.brokers_count
    points = [(0.0, 0.0)] * count
    if isinstance(overlay, Ring):
        for place, broker in enumerate(overlay.world.order.tolist()):
            points[broker] = _around(1.0, place / count)
        return points
    tree = rooted.from_overlay(overlay)
    leaves = tree.sum_below((tree.children_count == 0).astype(float))
    begin = [0.0] * count
    width = [1.0] * count
    for here in range(count):
        at = begin[here]
        for child in range(int(tree.first_child[here]), int(tree.first_child[here + 1])):
            width[child] = width[here] * float(leaves[child] / max(1.0, leaves[here]))
            begin[child] = at
            at += width[child]
        level = int(tree.level[here])
        points[int(tree.broker[here])] = _around(float(level), begin[here] + width[here] / 2)
    return points


def _around(radius: float, turn: float) -> tuple[float, float]:
    angle = 2 * math.pi * turn
    return round(radius * math.cos(angle), 4), round(radius * math.sin(angle), 4)


def _sensitivity(results: Results) -> str:
    if results.comparison.generated is None:
        return "The same network with a part of the subscriptions; one run each."
    return (
        "Around a network and workload of an eighth of the size, one thing changed at a time; "
        "one run each. Skew 0 gives every publisher equally many subscribers."
    )


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
    ]


def _schemes(results: Results) -> list[list[str]]:
    """Every row: what it does, its parameters, and how they were chosen."""
    comparison = results.comparison
    return [
        [
            row.label,
            SCHEMES[row.scheme].summary
            + (f", publishers moved by {row.relocation}" if row.relocation else ""),
            ", ".join(f"{name} = {value}" for name, value in row.parameters.items()) or "defaults",
            f"best of {results.tried[row.label]} for {comparison.matters}"
            if row.label in results.tried
            else "as given",
        ]
        for row in results.outcomes
    ]
