"""The reader for PADRES predicate lists, the notation of the relocation paper:

`[class,=,'STOCK'],[symbol,=,'YHOO'],[volume,>,1000000]`

A list is the conjunction of its predicates. Strings follow the SQL reader's quoting.
"""

from __future__ import annotations

import re

from postroad.errors import FilterError
from postroad.filters import like as patterns
from postroad.filters.constraints import Constraint, Present
from postroad.filters.language import Filter, Steps, bounded
from postroad.filters.sql import TEXT_MAX, compare, number, refuse_surrogates, resembles, unquote
from postroad.model import Scalar

_PREDICATE = re.compile(
    r"\s*\[\s*([^,\[\]]+?)\s*,\s*([^,\[\]\s]+)\s*(?:,\s*('(?:[^'\\]|\\.|'')*'|[^,'\[\]]*?)\s*)?\]\s*",
    re.DOTALL,
)
_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))
_PATTERNS = {"str-prefix": "{}%", "str-suffix": "%{}", "str-contains": "%{}%"}
_OPERATORS = "=, <>, <, <=, >, >=, eq, neq, str-prefix, str-suffix, str-contains, isPresent"


def parse_predicates(text: str) -> Filter:
    """The filter that a PADRES predicate list describes."""
    if len(text) > TEXT_MAX:
        raise FilterError(
            f"the predicate list has {len(text):,} characters", remedy=f"it may have {TEXT_MAX:,}"
        )
    refuse_surrogates(text)
    demands: list[list[dict[str, Constraint]]] = []
    at = 0
    while True:
        match = _PREDICATE.match(text, at)
        if match is None:
            raise FilterError(
                f"no predicate at character {at + 1}: {text[at : at + 40]!r}",
                remedy="write predicates as [attribute,operator,value], separated by commas",
            )
        name, operator, value = match.groups()
        constraint = _constraint(operator, value)
        demands.append([] if constraint is None else [{name: constraint}])
        at = match.end()
        if at == len(text):
            return bounded(Steps().all_of(demands))
        if text[at] != ",":
            raise FilterError(
                f"{text[at]!r} at character {at + 1} does not separate predicates",
                remedy="write a comma between predicates",
            )
        at += 1


def _constraint(operator: str, value: str | None) -> Constraint | None:
    if operator == "isPresent":
        return Present()
    if value is None or value == "":
        raise FilterError(f"operator {operator} has no value", remedy="write [attribute,=,5]")
    scalar = _value(value)
    if operator in _COMPARISONS:
        return compare(operator, scalar)
    if operator not in ("eq", "neq") and operator not in _PATTERNS:
        raise FilterError(f"{operator} is not an operator", remedy=f"use one of {_OPERATORS}")
    if not isinstance(scalar, str):
        raise FilterError(
            f"operator {operator} compares strings, and {value} is none",
            remedy="write the value in single quotes",
        )
    if operator in _PATTERNS:
        return resembles(_PATTERNS[operator].format(patterns.escape(scalar)), negate=False)
    return compare("=" if operator == "eq" else "<>", scalar)


def _value(text: str) -> Scalar:
    if text.startswith("'"):
        return unquote(text)
    if text in ("true", "false"):
        return text == "true"
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if not digits.isascii() or not digits.removeprefix(".")[:1].isdigit():
        raise FilterError(
            f"{text} is neither a number nor a string", remedy="write strings in single quotes"
        )
    return sign * number(digits)
