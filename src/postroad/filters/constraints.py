"""What a conjunction demands of one attribute: a canonical set of values of one type.

Every comparison is TRUE only for values of its literal's type, so a constraint lives in one
type: NULL, boolean, number (int and float together) or text. Each has one spelling per set of
values, so equal demands are equal objects.

Numbers are ordered as in Spark: NaN equals itself and is above everything, also infinity; a
range without an upper bound therefore holds NaN. Numbers are treated as dense.

Text is ordered by code point. The least string above `s` is `s` and a NUL, so every text
range is `low <= value < high`, and a prefix is such a range too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from postroad.filters import like as patterns
from postroad.model import Scalar

Number = int | float
_FINITE_RUN = 64  # A text range of at most so many strings becomes a set.
_STEP_CHARS = 16  # of a text, that are looked at in about the time of another step


@dataclass(frozen=True, slots=True)
class Null:
    """The attribute is missing or null."""

    def accepts(self, value: Scalar | None) -> bool:
        return value is None

    def includes(self, other: Constraint) -> bool:
        return isinstance(other, Null)

    def meet(self, other: Constraint) -> Constraint | None:
        return self if isinstance(other, Null) else None

    def sql(self, name: str) -> list[str]:
        return [f"{name} IS NULL"]


@dataclass(frozen=True, slots=True)
class Present:
    """The attribute has a value, of whatever type."""

    def accepts(self, value: Scalar | None) -> bool:
        return value is not None

    def includes(self, other: Constraint) -> bool:
        return not isinstance(other, Null)

    def meet(self, other: Constraint) -> Constraint | None:
        return None if isinstance(other, Null) else other

    def sql(self, name: str) -> list[str]:
        return [f"{name} IS NOT NULL"]


@dataclass(frozen=True, slots=True)
class Flags:
    """A boolean among `values`."""

    values: frozenset[bool]

    def accepts(self, value: Scalar | None) -> bool:
        return isinstance(value, bool) and value in self.values

    def includes(self, other: Constraint) -> bool:
        return isinstance(other, Flags) and other.values <= self.values

    def meet(self, other: Constraint) -> Constraint | None:
        if isinstance(other, Flags):
            both = self.values & other.values
            return Flags(both) if both else None
        return self if isinstance(other, Present) else None

    def sql(self, name: str) -> list[str]:
        return [_one_of(name, [literal(value) for value in sorted(self.values)])]


@dataclass(frozen=True, slots=True)
class NumberSet:
    """A number among `values`."""

    values: frozenset[Number]

    def accepts(self, value: Scalar | None) -> bool:
        return (
            isinstance(value, (int, float)) and value in self.values and not isinstance(value, bool)
        )

    def includes(self, other: Constraint) -> bool:
        return isinstance(other, NumberSet) and other.values <= self.values

    def meet(self, other: Constraint) -> Constraint | None:
        kept = frozenset(filter(other.accepts, self.values))
        return NumberSet(kept) if kept else None

    def sql(self, name: str) -> list[str]:
        return [_one_of(name, [literal(value) for value in sorted(self.values)])]


@dataclass(frozen=True, slots=True)
class NumberRange:
    """A number between two bounds (None: unbounded) and not among `excluded`."""

    low: Number | None = None
    low_open: bool = False
    high: Number | None = None
    high_open: bool = False
    excluded: frozenset[Number] = frozenset()

    def accepts(self, value: Scalar | None) -> bool:
        # Written with `<` and `<=` of the value only, so that NaN falls above every bound.
        if not isinstance(value, (int, float)) or value is True or value is False:
            return False
        low = self.low
        if low is not None and (value <= low if self.low_open else value < low):
            return False
        high = self.high
        if high is not None and not (value < high if self.high_open else value <= high):
            return False
        return not self.excluded or value not in self.excluded

    def includes(self, other: Constraint) -> bool:
        if isinstance(other, NumberSet):
            return all(map(self.accepts, other.values))
        if not isinstance(other, NumberRange):
            return False
        if self.low is not None and (
            other.low is None
            or other.low < self.low
            or (other.low == self.low and self.low_open and not other.low_open)
        ):
            return False
        if self.high is not None and (
            other.high is None
            or other.high > self.high
            or (other.high == self.high and self.high_open and not other.high_open)
        ):
            return False
        return not any(map(other.accepts, self.excluded))

    def meet(self, other: Constraint) -> Constraint | None:
        if isinstance(other, NumberSet):
            return other.meet(self)
        if isinstance(other, Present):
            return self
        if not isinstance(other, NumberRange):
            return None
        low, low_open = self.low, self.low_open
        if other.low is not None and (low is None or other.low >= low):
            low_open = other.low_open or (low_open and other.low == low)
            low = other.low
        high, high_open = self.high, self.high_open
        if other.high is not None and (high is None or other.high <= high):
            high_open = other.high_open or (high_open and other.high == high)
            high = other.high
        return number_range(low, low_open, high, high_open, self.excluded | other.excluded)

    def sql(self, name: str) -> list[str]:
        parts = []
        if self.low is not None:
            parts.append(f"{name} {'>' if self.low_open else '>='} {literal(self.low)}")
        if self.high is not None:
            parts.append(f"{name} {'<' if self.high_open else '<='} {literal(self.high)}")
        if self.excluded:
            parts.append(_none_of(name, [literal(value) for value in sorted(self.excluded)]))
        return parts


@dataclass(frozen=True, slots=True)
class TextSet:
    """A text among `values`."""

    values: frozenset[str]

    def accepts(self, value: Scalar | None) -> bool:
        return isinstance(value, str) and value in self.values

    def includes(self, other: Constraint) -> bool:
        return isinstance(other, TextSet) and other.values <= self.values

    def meet(self, other: Constraint) -> Constraint | None:
        kept = frozenset(filter(other.accepts, self.values))
        return TextSet(kept) if kept else None

    def sql(self, name: str) -> list[str]:
        return [_one_of(name, [literal(value) for value in sorted(self.values)])]


@dataclass(frozen=True, slots=True)
class TextRange:
    """A text with `low <= text < high`, not among `excluded`, like all of `like`, like no `unlike`.

    `like` holds patterns that are more than a prefix; the range is within their prefixes.
    """

    low: str = ""
    high: str | None = None
    excluded: frozenset[str] = frozenset()
    like: frozenset[str] = frozenset()
    unlike: frozenset[str] = frozenset()
    # The patterns ready to be asked, and whether each has to match. They are kept here and not in
    # a cache of so many: a table with more would make each anew for every publication.
    _ready: tuple[tuple[Callable[[str], bool], bool], ...] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[Any, ...]:
        return TextRange, (self.low, self.high, self.excluded, self.like, self.unlike)

    def accepts(self, value: Scalar | None) -> bool:
        if not isinstance(value, str) or value < self.low:
            return False
        if self.high is not None and value >= self.high:
            return False
        if self.excluded and value in self.excluded:
            return False
        for resembles, wanted in self.ready() if self._ready is None else self._ready:
            if resembles(value) is not wanted:
                return False
        return True

    def ready(self) -> tuple[tuple[Callable[[str], bool], bool], ...]:
        """Have the patterns ready to be asked."""
        if self._ready is not None:
            return self._ready
        ready = [(patterns.matcher(pattern), True) for pattern in self.like]
        ready += [(patterns.matcher(pattern), False) for pattern in self.unlike]
        object.__setattr__(self, "_ready", tuple(ready))
        return tuple(ready)

    def includes(self, other: Constraint) -> bool:
        if isinstance(other, TextSet):
            return all(map(self.accepts, other.values))
        if not isinstance(other, TextRange):
            return False
        if other.low < self.low:
            return False
        if self.high is not None and (other.high is None or other.high > self.high):
            return False
        return (
            self.like <= other.like
            and not any(map(other.accepts, self.excluded))
            and all(
                pattern in other.unlike or _apart(pattern, other.low, other.high)
                for pattern in self.unlike
            )
        )

    def meet(self, other: Constraint) -> Constraint | None:
        if isinstance(other, TextSet):
            return other.meet(self)
        if isinstance(other, Present):
            return self
        if not isinstance(other, TextRange):
            return None
        return text_range(
            max(self.low, other.low),
            _least(self.high, other.high),
            self.excluded | other.excluded,
            self.like | other.like,
            self.unlike | other.unlike,
        )

    def sql(self, name: str) -> list[str]:
        hull_low, hull_high = "", None
        for pattern in self.like:
            begins, _ = patterns.prefix(pattern)
            hull_low = max(hull_low, begins)
            hull_high = _least(hull_high, patterns.after_prefix(begins))
        parts = []
        low_known, high_known = self.low == hull_low, self.high == hull_high
        if not low_known and not high_known and self.high == patterns.after_prefix(self.low):
            parts.append(f"{name} LIKE {quote_pattern(patterns.escape(self.low) + '%')}")
        else:
            if not low_known:
                above = self.low.endswith("\0")
                bound = self.low[:-1] if above else self.low
                parts.append(f"{name} {'>' if above else '>='} {literal(bound)}")
            if not high_known:
                assert self.high is not None
                upto = self.high.endswith("\0")
                bound = self.high[:-1] if upto else self.high
                parts.append(f"{name} {'<=' if upto else '<'} {literal(bound)}")
        parts += [f"{name} LIKE {quote_pattern(pattern)}" for pattern in sorted(self.like)]
        parts += [f"{name} NOT LIKE {quote_pattern(pattern)}" for pattern in sorted(self.unlike)]
        if self.excluded:
            parts.append(_none_of(name, [literal(value) for value in sorted(self.excluded)]))
        return parts or [f"{name} LIKE '%'"]


Constraint = Null | Present | Flags | NumberSet | NumberRange | TextSet | TextRange


def meet_all(demands: Sequence[Constraint]) -> Constraint | None:
    """What satisfies all of one or more demands, in time that grows with their sizes alone.

    Two at a time, a chain of `a <> 1 AND a <> 2 …` would look at all earlier ones for each.
    """
    if len(demands) == 1:
        return demands[0]
    if len(demands) == 2:
        return demands[0].meet(demands[1])
    rest = [demand for demand in demands if not isinstance(demand, Present)]
    texts = [demand for demand in rest if isinstance(demand, TextRange)]
    numbers = [demand for demand in rest if isinstance(demand, NumberRange)]
    others = [demand for demand in rest if not isinstance(demand, (TextRange, NumberRange))]
    merged: list[Constraint | None] = [*others]
    if texts:
        merged.append(
            text_range(
                max(demand.low for demand in texts),
                min((demand.high for demand in texts if demand.high is not None), default=None),
                frozenset().union(*(demand.excluded for demand in texts)),
                frozenset().union(*(demand.like for demand in texts)),
                frozenset().union(*(demand.unlike for demand in texts)),
            )
        )
    if numbers:
        lows = [(demand.low, demand.low_open) for demand in numbers if demand.low is not None]
        highs = [
            (demand.high, not demand.high_open) for demand in numbers if demand.high is not None
        ]
        low, low_open = max(lows) if lows else (None, False)
        high, high_closed = min(highs) if highs else (None, True)
        excluded: frozenset[Number] = frozenset().union(*(each.excluded for each in numbers))
        merged.append(number_range(low, low_open, high, not high_closed, excluded))
    result = merged[0] if merged else demands[0]
    for each in merged[1:]:
        if result is None or each is None:
            return None
        result = each.meet(result)
    if isinstance(result, Null) and len(rest) < len(demands):
        return None  # it must be there, and missing
    return result


def load(demand: Constraint) -> tuple[int, int]:
    """How much a constraint holds: its values, and its patterns by what asking one of them costs.

    To meet or include takes at most about (all values) x (1 + all patterns) steps.
    """
    if isinstance(demand, (NumberSet, Flags)):
        return len(demand.values), 0
    if isinstance(demand, TextSet):
        return sum(1 + len(value) // _STEP_CHARS for value in demand.values), 0
    if isinstance(demand, NumberRange):
        return len(demand.excluded), 0
    if isinstance(demand, TextRange):
        values = sum(2 + len(value) // _STEP_CHARS for value in demand.excluded)
        return values, sum(map(patterns.cost, demand.like)) + sum(map(patterns.cost, demand.unlike))
    return 0, 0


def number_range(
    low: Number | None,
    low_open: bool,
    high: Number | None,
    high_open: bool,
    excluded: frozenset[Number],
) -> NumberRange | NumberSet | None:
    """The canonical constraint for these bounds; None when no number is left."""
    if low is not None and high is not None:
        if low > high or (low == high and (low_open or high_open or low in excluded)):
            return None
        if low == high:
            return NumberSet(frozenset((low,)))
    if excluded:
        low_open = low_open or low in excluded
        high_open = high_open or high in excluded
        inside = NumberRange(low, low_open, high, high_open)
        excluded = frozenset(filter(inside.accepts, excluded))
    return NumberRange(low, low_open, high, high_open, excluded)


def text_range(
    low: str,
    high: str | None,
    excluded: frozenset[str],
    like: frozenset[str],
    unlike: frozenset[str],
) -> TextRange | TextSet | None:
    """The canonical constraint for these bounds and patterns; None when no text is left."""
    if like & unlike:
        return None
    while low in excluded:
        low += "\0"
    while high is not None and high.endswith("\0") and high[:-1] in excluded:
        high = high[:-1]
    if high is not None:
        if low >= high:
            return None
        run = len(high) - len(low)
        if run <= _FINITE_RUN and high == low + "\0" * run:
            every = TextRange(low, high, excluded, like, unlike)
            left = frozenset(t for i in range(run) if every.accepts(t := low + "\0" * i))
            return TextSet(left) if left else None
    unlike = frozenset(pattern for pattern in unlike if not _apart(pattern, low, high))
    if excluded:
        rest = TextRange(low, high, frozenset(), like, unlike)
        excluded = frozenset(filter(rest.accepts, excluded))
    return TextRange(low, high, excluded, like, unlike)


def literal(value: Scalar) -> str:
    """The value as a SQL literal."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return _quote(value.replace("\\", "\\\\"))
    return repr(value)


def quote_pattern(pattern: str) -> str:
    r"""A LIKE pattern as a SQL literal: `\%` and `\_` pass through SQL strings unchanged."""
    return _quote(pattern.replace("\\\\", "\\\\\\\\"))


def _quote(escaped: str) -> str:
    for char, spelled in (("'", "\\'"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        escaped = escaped.replace(char, spelled)
    return f"'{escaped}'"


def _one_of(name: str, literals: list[str]) -> str:
    if len(literals) == 1:
        return f"{name} = {literals[0]}"
    return f"{name} IN ({', '.join(literals)})"


def _none_of(name: str, literals: list[str]) -> str:
    if len(literals) == 1:
        return f"{name} <> {literals[0]}"
    return f"{name} NOT IN ({', '.join(literals)})"


def _least(first: str | None, second: str | None) -> str | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


def _apart(pattern: str, low: str, high: str | None) -> bool:
    """Whether no text in the range can match the pattern, judged by its prefix."""
    begins, _ = patterns.prefix(pattern)
    beyond = patterns.after_prefix(begins)
    return (high is not None and begins >= high) or (beyond is not None and beyond <= low)
