"""The filter language: parse a text, then ask what a filter matches, covers and intersects."""

from postroad.filters.constraints import literal
from postroad.filters.language import (
    EVERYTHING,
    Filter,
    comparing,
    conjoin,
    covers,
    disjoin,
    intersects,
    matches,
    sharing,
)
from postroad.filters.predicates import parse_predicates
from postroad.filters.sql import parse

__all__ = [
    "EVERYTHING",
    "Filter",
    "comparing",
    "conjoin",
    "covers",
    "disjoin",
    "intersects",
    "literal",
    "matches",
    "parse",
    "parse_predicates",
    "sharing",
]
