"""Which predicate of a filter is false of some attributes, and what it saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from postroad.filters import Filter, literal
from postroad.filters.constraints import (
    Constraint,
    Flags,
    NumberRange,
    NumberSet,
    TextRange,
    TextSet,
)
from postroad.filters.language import Conjunction
from postroad.model import Scalar

MISSING, TYPE, VALUE = "missing", "type", "value"


@dataclass(frozen=True, slots=True)
class Miss:
    """A predicate that is not true: of which attribute, how it reads, and the value it saw."""

    attribute: str
    predicate: str
    value: Scalar | None
    kind: str  # whether the attribute is missing, of another type, or has another value

    def __str__(self) -> str:
        if self.kind == MISSING:
            return f"{self.predicate}, but the publication has no {self.attribute}"
        shown = literal(self.value) if self.value is not None else "NULL"
        if self.kind == TYPE:
            return f"{self.predicate}, but {self.attribute} is {type_name(self.value)}: {shown}"
        return f"{self.predicate}, but {self.attribute} is {shown}"


def misses(filter: Filter, attributes: Mapping[str, Scalar | None]) -> list[Miss]:
    """The false predicates of the conjunction that comes closest; none if the filter matches.

    A filter that nothing matches has no conjunction, and so none either.
    """
    best: list[Miss] | None = None
    for conjunction in filter.conjunctions:
        wrong = _misses(conjunction, attributes)
        if best is None or len(wrong) < len(best):
            best = wrong
    return best or []


def _misses(conjunction: Conjunction, attributes: Mapping[str, Scalar | None]) -> list[Miss]:
    wrong = []
    for name, constraint in conjunction:
        value = attributes.get(name)
        if not constraint.accepts(value):
            predicate = " AND ".join(constraint.sql(name))
            wrong.append(Miss(name, predicate, value, _kind(constraint, value)))
    return wrong


def _kind(constraint: Constraint, value: Scalar | None) -> str:
    if value is None:
        return MISSING
    wanted = wanted_type(constraint)
    return TYPE if wanted is not None and wanted != type_name(value) else VALUE


def wanted_type(constraint: Constraint) -> str | None:
    """The type that a value must have for this constraint to hold."""
    if isinstance(constraint, NumberSet | NumberRange):
        return "a number"
    if isinstance(constraint, TextSet | TextRange):
        return "a text"
    return "a boolean" if isinstance(constraint, Flags) else None


def type_name(value: Scalar | None) -> str:
    if isinstance(value, bool):
        return "a boolean"
    return "a text" if isinstance(value, str) else "a number"
