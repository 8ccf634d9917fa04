"""Filters as values: a disjunction of conjunctions, and the relations routing asks about.

NOT is pushed down to the comparisons when a filter is read. What is left, AND and OR, is
monotone in SQL's three-valued logic, so a filter is TRUE exactly when all constraints of one
of its conjunctions are TRUE, and UNKNOWN never has to be carried along.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from postroad.errors import FilterError
from postroad.filters.constraints import (
    Constraint,
    NumberRange,
    NumberSet,
    TextRange,
    TextSet,
    load,
    meet_all,
)
from postroad.filters.nested import ROWS, rows_of
from postroad.model import Scalar

CONJUNCTIONS_MAX = 1_024
CONSTRAINTS_MAX = 5_000  # of several conjunctions together: each is written, read and filed anew
STEPS_MAX = 100_000
PATTERNS_MAX = 1_000  # by their cost: each is asked of every publication that comes so far
_SHARED_PAIRS, _SHARED_TEXT = 8, 64  # what is larger is not kept for others to share
_ABSORB_MAX = 64  # Up to so many conjunctions, those covered by another are dropped,
_COMPARE_MAX = 100_000  # if that takes at most so many steps; so too for `covers`, `intersects`.

Conjunction = tuple[tuple[str, Constraint], ...]
Disjunction = list[dict[str, Constraint]]
Tests = list[tuple[str, Callable[[Scalar | None], bool]]]
Load = tuple[int, int, int, int]  # conjunctions, their constraints, values, patterns by their cost

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = frozenset(
    ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE", "CURRENT_PATH")
)


class Filter:
    """A filter in normal form. Equal normal forms are equal filters.

    `conjunctions` holds (attribute, constraint) pairs sorted by attribute; the conjunctions
    themselves are sorted by their text. No conjunction at all is FALSE, an empty one is TRUE.
    """

    __slots__ = ("_hash", "_light", "_load", "_tag", "_tests", "conjunctions")

    conjunctions: tuple[Conjunction, ...]

    def __init__(self, conjunctions: tuple[Conjunction, ...]) -> None:
        self.conjunctions = conjunctions
        self._hash = hash(conjunctions)
        self._load: Load | None = None
        self._light = False  # or not known yet: whether it can be compared with any such other
        self._tag = 0  # or not asked for yet
        self._tests: list[Tests] | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Filter):
            return NotImplemented
        return self is other or self.conjunctions == other.conjunctions

    def __hash__(self) -> int:
        return self._hash

    @property
    def load(self) -> Load:
        """How large it is: what comparing it, and asking it of a publication, can take."""
        if self._load is None:
            self._load = _load(self.conjunctions)
            self._light = 4 * _work(self._load, self._load) <= _COMPARE_MAX
        return self._load

    @property
    def tag(self) -> int:
        """Eight bytes that name it in every process: practically no two filters have the same."""
        if not self._tag:
            text = str(self).encode("utf-8", "surrogatepass")
            self._tag = int.from_bytes(blake2b(text, digest_size=8).digest(), "little")
        return self._tag

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
    """Whether the filter is TRUE of these attributes, or of one of their rows; a missing one is
    NULL."""
    if ROWS in attributes:
        return any(matches(filter, row) for row in rows_of(attributes))
    tests = filter._tests
    if tests is None:
        tests = filter._tests = [tests_of(conjunction) for conjunction in filter.conjunctions]
    get = attributes.get
    for conjunction in tests:
        for name, accepts in conjunction:
            if not accepts(get(name)):
                break
        else:
            return True
    return False


def tests_of(conjunction: Conjunction) -> Tests:
    """What to ask of which attribute. Patterns are made ready now: this takes longer than to ask
    them, and a publication may have to ask those of many filters."""
    for _, constraint in conjunction:
        if isinstance(constraint, TextRange):
            constraint.ready()
    return [(name, constraint.accepts) for name, constraint in conjunction]


def covers(a: Filter, b: Filter) -> bool:
    """Whether everything `b` matches, `a` matches: a yes is always right.

    A no is right too when both are single conjunctions of ranges, equalities, sets and
    prefixes. Missed are coverings by several disjuncts together and between LIKE patterns, and
    those between filters so large that it would take too long to see.
    """
    if not (a._light and b._light) and not _comparable(a, b):
        return a.conjunctions == b.conjunctions
    return all(any(_includes(outer, inner) for outer in a.conjunctions) for inner in b.conjunctions)


def intersects(a: Filter, b: Filter) -> bool:
    """Whether some publication may match both: a no is always right."""
    if not (a._light and b._light) and not _comparable(a, b):
        return bool(a.conjunctions and b.conjunctions)
    for first in a.conjunctions:
        for second in b.conjunctions:
            if _meet(first, second):
                return True
    return False


def conjoin(a: Filter, b: Filter) -> Filter:
    """The filter that matches what both match; without conjunctions if nothing can be both."""
    return bounded(Steps().all_of([list(map(dict, each.conjunctions)) for each in (a, b)]))


def sharing(filter: Filter) -> Filter:
    """The filter, its small parts the same objects as in other filters: of those that clients ask
    for, many name the same topics and the same few bounds."""
    if len(filter.conjunctions) != 1 or len(filter.conjunctions[0]) > _SHARED_PAIRS:
        return filter
    (pairs,) = filter.conjunctions
    return Filter((tuple(_pair(*pair) if _is_small(*pair) else pair for pair in pairs),))


def _is_small(name: str, constraint: Constraint) -> bool:
    if len(name) > _SHARED_TEXT:
        return False
    match constraint:
        case TextSet(values):
            return len(values) == 1 and len(next(iter(values))) <= _SHARED_TEXT
        case NumberSet(values):
            return len(values) == 1
        case NumberRange():
            return not constraint.excluded
        case _:
            return False


@lru_cache(maxsize=1 << 12)
def _pair(name: str, constraint: Constraint) -> tuple[str, Constraint]:
    return name, constraint


def disjoin(filters: Iterable[Filter]) -> Filter:
    """The filter that matches what any of these matches."""
    return normal_form([dict(each) for filter in filters for each in filter.conjunctions])


def normal_form(disjunction: Disjunction) -> Filter:
    """The filter for these conjunctions: sorted, without repeats and what others cover."""
    if len(disjunction) == 1:
        return Filter((tuple(sorted(disjunction[0].items(), key=_by_name)),))
    distinct = {tuple(sorted(conjunction.items(), key=_by_name)) for conjunction in disjunction}
    ordered = sorted(distinct, key=_conjunction_sql)
    if len(ordered) <= _ABSORB_MAX and _work(_load(ordered), (0, 0, 0, 0)) <= _COMPARE_MAX:
        kept: list[Conjunction] = []
        for number, inner in enumerate(ordered):
            rivals = kept + ordered[number + 1 :]
            if not any(_includes(outer, inner) for outer in rivals):
                kept.append(inner)
        ordered = kept
    elif () in distinct:
        ordered = [()]
    return Filter(tuple(ordered))


def bounded(disjunction: Disjunction) -> Filter:
    """The normal form, if it can be read again from its text and be asked within bounds."""
    if len(disjunction) > 1 and sum(map(len, disjunction)) > CONSTRAINTS_MAX:
        raise FilterError(
            f"the filter grows beyond {CONSTRAINTS_MAX:,} constraints in all its conjunctions",
            remedy="split it into several filters, or write alternatives as IN lists",
        )
    filter = normal_form(disjunction)
    if filter.load[3] > PATTERNS_MAX:
        raise too_many_patterns()
    steps = Steps()
    for conjunction in filter.conjunctions:
        for _, constraint in conjunction:
            values, patterns = load(constraint)
            steps.spend(0, 3 + values // 8 + values * patterns + 2 * patterns)
    return filter


def too_many_patterns() -> FilterError:
    return FilterError(
        f"the filter has more than {PATTERNS_MAX:,} patterns, a _ counted as one more",
        remedy="split it into several filters",
    )


class Steps:
    """The work spent on one filter's normal form, so that no filter can spend without end.

    Of a `short` text it is not counted how long the few demands that it can hold take to meet.
    """

    def __init__(self, short: bool = False) -> None:
        self.left = STEPS_MAX
        self.short = short

    def all_of(self, operands: list[Disjunction]) -> Disjunction:
        """The conjunction of the operands; contradictory conjunctions are dropped."""
        if len(operands) == 1:
            return operands[0]
        merged: dict[str, Constraint] = {}
        several: dict[str, list[Constraint]] = {}
        wide = []
        for operand in operands:
            if len(operand) == 1:
                for name, constraint in operand[0].items():
                    known = merged.get(name)
                    if known is None:
                        merged[name] = constraint
                    elif name in several:
                        several[name].append(constraint)
                    else:
                        several[name] = [known, constraint]
            else:
                wide.append(operand)
        for name, demands in several.items():
            meeting = meet_all(demands) if self.short else self.meet(demands)
            if meeting is None:
                return []
            merged[name] = meeting
        if not wide:
            return [merged]
        result = [(merged, _size(merged))]
        for operand in wide:
            # What a conjunction holds counts each time it is repeated: all of it will be written.
            sizes = [(second, _size(second)) for second in operand]
            repeated = len(operand) * sum(size for _, size in result)
            self.spend(
                len(result) * len(operand), repeated + len(result) * sum(size for _, size in sizes)
            )
            result = [
                (both, size + more)
                for first, size in result
                for second, more in sizes
                if (both := self.join(first, second)) is not None
            ]
        return [conjunction for conjunction, _ in result]

    def join(
        self, first: Mapping[str, Constraint], second: Mapping[str, Constraint]
    ) -> dict[str, Constraint] | None:
        """The conjunction of two; None if nothing satisfies both."""
        joined = dict(first)
        for name, constraint in second.items():
            known = joined.get(name)
            if known is None:
                joined[name] = constraint
            else:
                both = self.meet([known, constraint])
                if both is None:
                    return None
                joined[name] = both
        return joined

    def meet(self, demands: list[Constraint]) -> Constraint | None:
        """What satisfies all the demands, of which there are several."""
        values = patterns = 0
        for demand in demands:
            more_values, more_patterns = load(demand)
            values += more_values
            patterns += more_patterns
        self.spend(0, len(demands) + values * (2 + patterns) + 2 * patterns)
        return meet_all(demands)

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
    """The attribute's name as SQL writes it: in backticks unless it is a plain word, each part of a
    path by itself."""
    if "." in name and all(parts := name.split(".")):
        return ".".join(map(quote_name, parts))
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


def comparing(a: Filter, b: Filter) -> int:
    """About how many steps `covers` and `intersects` take with these two."""
    work = _work(a.load, b.load)
    return work if work <= _COMPARE_MAX else 0


def _comparable(a: Filter, b: Filter) -> bool:
    """Whether each conjunction of one can be compared with each of the other in a bounded time."""
    return _work(a.load, b.load) <= _COMPARE_MAX


def _work(first: Load, second: Load) -> int:
    """About how many steps it takes at most to compare filters of these loads."""
    parts = first[0] + second[0]
    values = first[2] + second[2]
    return parts * (first[1] + second[1] + values) + values * (first[3] + second[3])


def _size(conjunction: Mapping[str, Constraint]) -> int:
    return len(conjunction) + sum(sum(load(constraint)) for constraint in conjunction.values())


def _load(conjunctions: Iterable[Conjunction]) -> Load:
    parts = constraints = values = patterns = 0
    for conjunction in conjunctions:
        parts += 1
        constraints += len(conjunction)
        for _, constraint in conjunction:
            more_values, more_patterns = load(constraint)
            values += more_values
            patterns += more_patterns
    return _same_load((parts, constraints, values, patterns))


@lru_cache(maxsize=1024)
def _same_load(load: Load) -> Load:
    """One tuple for all filters of such a size: most are of few sizes."""
    return load


def _includes(outer: Conjunction, inner: Conjunction) -> bool:
    if len(outer) > len(inner):
        return False
    demands = dict(inner)
    for name, constraint in outer:
        demand = demands.get(name)
        if demand is None or not constraint.includes(demand):
            return False
    return True


def _meet(first: Conjunction, second: Conjunction) -> bool:
    demands = dict(first)
    for name, constraint in second:
        demand = demands.get(name)
        if demand is not None and demand.meet(constraint) is None:
            return False
    return True
