"""Why a filter gets nothing: held against what was published, and against who advertises."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from postroad.explain.history import History
from postroad.explain.predicates import VALUE, misses, type_name, wanted_type
from postroad.filters import Filter, intersects, matches
from postroad.model import Scalar

SHOWN = 5


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    filter: str
    cause: str  # matches, contradictory, not advertised, attribute never seen, type never matches,
    sentence: str  # value never seen
    published: int
    matched: int
    closest: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def explain_filter(history: History, filter: Filter) -> FilterAnswer:
    text = str(filter)
    published = [
        json.loads(row.attributes)
        for row in history.rows
        if row.kind == "publish" and row.attributes is not None
    ]
    matched = sum(matches(filter, attributes) for attributes in published)

    def answer(cause: str, sentence: str, closest: list[str] | None = None) -> FilterAnswer:
        return FilterAnswer(text, cause, sentence, len(published), matched, closest or [])

    if matched:
        return answer("matches", f"{matched:,} of {len(published):,} publications match it")
    if not filter.conjunctions:
        return answer("contradictory", "it contradicts itself: nothing can match it")
    seen: dict[str, Counter[str]] = {}
    values: dict[str, Counter[Scalar]] = {}
    for attributes in published:
        for name, value in attributes.items():
            seen.setdefault(name, Counter())[type_name(value)] += 1
            values.setdefault(name, Counter())[value] += 1
    never = [
        name
        for name, constraint in _demands(filter)
        if name not in seen and not constraint.accepts(None)
    ]
    if published and never and _every_conjunction(filter, lambda name, _: name in never):
        known = ", ".join(sorted(seen)[:SHOWN])
        return answer(
            "attribute never seen",
            f"no publication has {', '.join(dict.fromkeys(never))}; seen were {known}",
        )

    def other_type(name: str, constraint: Any) -> bool:
        wanted = wanted_type(constraint)
        return wanted is not None and name in seen and wanted not in seen[name]

    if published and _every_conjunction(filter, other_type):
        name, constraint = next(pair for pair in _demands(filter) if other_type(*pair))
        had = " or ".join(sorted(seen[name]))
        return answer(
            "type never matches",
            f"it compares {name} with {wanted_type(constraint)}, and {name} was always {had}",
        )
    offers = list(history.advertisements.values())
    scheme_advertises = bool(offers)
    if scheme_advertises and not any(
        intersects(filter, history.filter(one.text)) for one in offers
    ):
        said = "; ".join(dict.fromkeys(one.text for one in offers[:SHOWN]))
        return answer("not advertised", f"no publisher advertises what it asks for: {said}")
    if not published:
        return answer("nothing published", "no publication was recorded")
    wrong: Counter[str] = Counter()
    fewest = min(len(misses(filter, attributes)) for attributes in published)
    examples: list[str] = []
    for attributes in published:
        missed = misses(filter, attributes)
        if len(missed) == fewest:
            wrong.update(miss.predicate for miss in missed)
            if len(examples) < SHOWN:
                examples += [str(miss) for miss in missed if miss.kind == VALUE]
    predicate, count = wrong.most_common(1)[0]
    return answer(
        "value never seen",
        f"the closest publications miss it by {fewest}: {predicate} is false of {count:,}",
        list(dict.fromkeys(examples))[:SHOWN],
    )


def _demands(filter: Filter) -> list[tuple[str, Any]]:
    return [pair for conjunction in filter.conjunctions for pair in conjunction]


def _every_conjunction(filter: Filter, holds: Any) -> bool:
    """Whether each conjunction has a demand of which this is so."""
    return all(any(holds(*pair) for pair in conjunction) for conjunction in filter.conjunctions)
