"""Filters as values: a disjunction of conjunctions, and the relations routing asks about.

NOT is pushed down to the comparisons when a filter is read. What is left, AND and OR, is
monotone in SQL's three-valued logic, so a filter is TRUE exactly when all constraints of one
of its conjunctions are TRUE, and UNKNOWN never has to be carried along.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

from postroad.errors import FilterError
from postroad.filters.constraints import Constraint
from postroad.model import Scalar

CONJUNCTIONS_MAX = 1_024
STEPS_MAX = 200_000
_ABSORB_MAX = 64  # Up to so many conjunctions, those covered by another are dropped.

Conjunction = tuple[tuple[str, Constraint], ...]
Disjunction = list[dict[str, Constraint]]

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = frozenset(
    ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE", "CURRENT_PATH")
)


class Filter:
    """A filter in normal form. Equal normal forms are equal filters.

    `conjunctions` holds (attribute, constraint) pairs sorted by attribute; the conjunctions
    themselves are sorted by their text. No conjunction at all is FALSE, an empty one is TRUE.
    """

    __slots__ = ("_hash", "_tests", "conjunctions")

    conjunctions: tuple[Conjunction, ...]

    def __init__(self, conjunctions: tuple[Conjunction, ...]) -> None:
        self.conjunctions = conjunctions
        self._hash: int | None = None
        self._tests: list[list[tuple[str, Callable[[Scalar | None], bool]]]] | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Filter):
            return NotImplemented
        return self is other or self.conjunctions == other.conjunctions

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.conjunctions)
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Filter, (self.conjunctions,)

    def __str__(self) -> str:
        if not self.conjunctions:
            return "FALSE"
        texts = [_conjunction_sql(conjunction) for conjunction in self.conjunctions]
        if len(texts) == 1:
            return texts[0]
        return " OR ".join(f"({text})" if " AND " in text else text for text in texts)

    def __repr__(self) -> str:
        return f"parse({str(self)!r})"


def matches(filter: Filter, attributes: Mapping[str, Scalar | None]) -> bool:
    """Whether the filter is TRUE of these attributes; a missing one is NULL."""
    tests = filter._tests
    if tests is None:
        tests = filter._tests = [
            [(name, constraint.accepts) for name, constraint in conjunction]
            for conjunction in filter.conjunctions
        ]
    get = attributes.get
    for conjunction in tests:
        for name, accepts in conjunction:
            if not accepts(get(name)):
                break
        else:
            return True
    return False


def covers(a: Filter, b: Filter) -> bool:
    """Whether everything `b` matches, `a` matches: a yes is always right.

    A no is right too when both are single conjunctions of ranges, equalities, sets and
    prefixes. Missed are coverings by several disjuncts together and between LIKE patterns.
    """
    return all(any(_includes(outer, inner) for outer in a.conjunctions) for inner in b.conjunctions)


def intersects(a: Filter, b: Filter) -> bool:
    """Whether some publication may match both: a no is always right."""
    return any(_meet(first, second) for first, second in product(a.conjunctions, b.conjunctions))


def conjoin(a: Filter, b: Filter) -> Filter:
    """The filter that matches what both match; without conjunctions if nothing can be both."""
    return normal_form(
        [
            both
            for first, second in product(a.conjunctions, b.conjunctions)
            if _add(both := dict(first), dict(second))
        ]
    )


def disjoin(filters: Iterable[Filter]) -> Filter:
    """The filter that matches what any of these matches."""
    return normal_form([dict(each) for filter in filters for each in filter.conjunctions])


def normal_form(disjunction: Disjunction) -> Filter:
    """The filter for these conjunctions: sorted, without repeats and what others cover."""
    if len(disjunction) == 1:
        return Filter((tuple(sorted(disjunction[0].items(), key=_by_name)),))
    distinct = {tuple(sorted(conjunction.items(), key=_by_name)) for conjunction in disjunction}
    ordered = sorted(distinct, key=_conjunction_sql)
    if len(ordered) <= _ABSORB_MAX:
        kept: list[Conjunction] = []
        for number, inner in enumerate(ordered):
            rivals = kept + ordered[number + 1 :]
            if not any(_includes(outer, inner) for outer in rivals):
                kept.append(inner)
        ordered = kept
    elif () in distinct:
        ordered = [()]
    return Filter(tuple(ordered))


class Steps:
    """The work spent on one filter's normal form, so that no filter can spend without end."""

    def __init__(self) -> None:
        self.left = STEPS_MAX

    def all_of(self, operands: list[Disjunction]) -> Disjunction:
        """The conjunction of the operands; contradictory conjunctions are dropped."""
        if len(operands) == 1:
            return operands[0]
        merged: dict[str, Constraint] = {}
        wide = []
        for operand in operands:
            if len(operand) == 1:
                if not _add(merged, operand[0]):
                    return []
            else:
                wide.append(operand)
        result = [merged]
        for operand in wide:
            self.spend(len(result) * len(operand), sum(map(len, result)))
            result = [
                both for first in result for second in operand if _add(both := dict(first), second)
            ]
        return result

    def any_of(self, operands: list[Disjunction]) -> Disjunction:
        """The disjunction of the operands."""
        if len(operands) == 1:
            return operands[0]
        self.spend(sum(map(len, operands)), 0)
        return [conjunction for operand in operands for conjunction in operand]

    def spend(self, conjunctions: int, constraints: int) -> None:
        self.left -= conjunctions + constraints
        if conjunctions > CONJUNCTIONS_MAX or self.left < 0:
            raise FilterError(
                f"the filter grows beyond {CONJUNCTIONS_MAX:,} conjunctions"
                if conjunctions > CONJUNCTIONS_MAX
                else "the filter takes too many steps to normalise",
                remedy="split it into several filters, or write alternatives as IN lists",
            )


def quote_name(name: str) -> str:
    """The attribute's name as SQL writes it: in backticks unless it is a plain word."""
    if PLAIN_NAME.fullmatch(name) and name.upper() not in RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


EVERYTHING = Filter(((),))


def _by_name(item: tuple[str, Constraint]) -> str:
    return item[0]


def _conjunction_sql(conjunction: Conjunction) -> str:
    parts: Iterable[str] = (
        part for name, constraint in conjunction for part in constraint.sql(quote_name(name))
    )
    return " AND ".join(parts) or "TRUE"


def _add(conjunction: dict[str, Constraint], more: Mapping[str, Constraint]) -> bool:
    """Put more constraints into the conjunction; False if nothing satisfies both."""
    for name, constraint in more.items():
        known = conjunction.get(name)
        if known is None:
            conjunction[name] = constraint
        else:
            both = known.meet(constraint)
            if both is None:
                return False
            conjunction[name] = both
    return True


def _includes(outer: Conjunction, inner: Conjunction) -> bool:
    if len(outer) > len(inner):
        return False
    demands = dict(inner)
    return all(
        (demand := demands.get(name)) is not None and constraint.includes(demand)
        for name, constraint in outer
    )


def _meet(first: Conjunction, second: Conjunction) -> bool:
    demands = dict(first)
    return all(
        (demand := demands.get(name)) is None or demand.meet(constraint) is not None
        for name, constraint in second
    )
