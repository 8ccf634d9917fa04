"""Filters written to be slow: whatever the text, reading it takes little CPU time.

Each of these, or its like, once took from seconds to minutes for the same 65 kB.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from postroad.errors import FilterError
from postroad.filters import Filter, covers, intersects, matches, parse
from postroad.filters.constraints import meet_all
from postroad.filters.language import CONSTRAINTS_MAX
from postroad.filters.sql import compare, resembles

SIZE = 65_000  # about what a user property holds
CPU_S = 4.0  # fifty times what it takes


def chain(part: Callable[[int], str], join: str = " AND ", size: int = SIZE) -> str:
    parts: list[str] = []
    while size > 0:
        parts.append(part(len(parts)))
        size -= len(parts[-1]) + len(join)
    return join.join(parts)


GROUPS = " AND ".join(f"(a{i} = 1 OR b{i} = 2)" for i in range(10))
TEXTS = {
    "not like": chain(lambda i: f"a NOT LIKE '%{i}%'"),
    "like": chain(lambda i: f"a LIKE '%{i}%'"),
    "unequal numbers": chain(lambda i: f"a <> {i}"),
    "unequal texts": chain(lambda i: f"a <> '{i}'"),
    "a list less each": f"a IN ({chain(str, ',', 30_000)}) AND " + chain(lambda i: f"a<>{i}"),
    "a list unlike each": f"a IN ({chain(lambda i: repr(str(i)), ',', 30_000)}) AND "
    + chain(lambda i: f"a NOT LIKE '%x{i}%'", size=30_000),
    "nested": "(" * 900 + "a <> '0'" + "".join(f" AND a NOT LIKE '%{i}%')" for i in range(900)),
    "nested differences": "(" * 900 + "a <> 0" + "".join(f" AND a <> {i})" for i in range(900)),
    "a list in a product": f"a IN ({chain(str, ',', 30_000)}) AND {GROUPS}",
    "alternatives of patterns": chain(
        lambda i: "(" + " AND ".join(f"a NOT LIKE '%{i}x{j}%'" for j in range(40)) + ")", " OR "
    ),
    "alternatives of lists": chain(
        lambda i: f"(a IN ({','.join(map(str, range(i * 7, i * 7 + 190)))}) AND b <> {i})", " OR "
    ),
    "digits and a letter": "a = " + "1" * SIZE + "x",
    "many digits": "a = ." + "1" * SIZE,
    "a text never closed": "a = '" + "\\'" * (SIZE // 2),
    "a name never closed": "`" * SIZE + "a",
    "gaps in a long text": f"a = '{'a' * 30_000}' AND a LIKE '%{'a_' * 15_000}b%'",
    "no, no, no": "NOT " * (SIZE // 4) + "a = 1",
}


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_takes_long_and_what_is_accepted_can_be_read_again(name: str) -> None:
    began = time.process_time()
    try:
        filter: Filter | None = parse(TEXTS[name])
    except FilterError:
        filter = None
    assert filter is None or parse(str(filter)) == filter
    assert time.process_time() - began < CPU_S


def test_what_can_be_read_can_be_read_again_after_it_was_doubled() -> None:
    """Each half has nearly as many steps as a filter may take."""
    heavy = f"a IN ({','.join(repr(str(i)) for i in range(300))})"
    heavy += "".join(f" AND a NOT LIKE '%x{i}%'" for i in range(250))
    assert parse(str(parse(heavy))) == parse(heavy)
    try:
        twice = parse(f"({heavy}) AND (b = 1 OR c = 1)")
    except FilterError:
        return
    assert parse(str(twice)) == twice


def test_the_constraints_of_all_conjunctions_are_bounded_before_they_are_put_in_order() -> None:
    """A short text may multiply them, and whoever hears of the filter has to read them all."""
    groups = " AND ".join(f"(a{i} = 1 OR b{i} = 2)" for i in range(8))
    most = CONSTRAINTS_MAX // 256 - 8
    fits = groups + "".join(f" AND c{i} = 1" for i in range(most))
    filter = parse(fits)
    assert filter.load[:2] == (256, 256 * (8 + most))
    assert parse(str(filter)) == filter
    with pytest.raises(FilterError, match="beyond 5,000 constraints in all"):
        parse(f"{fits} AND d = 1")


def large(seed: int) -> Filter:
    return parse(" AND ".join(f"(a{i} = {seed} OR b{i} = {seed})" for i in range(9)))


def test_large_filters_are_compared_in_bounded_time_and_safely() -> None:
    first, second = large(1), large(2)
    assert len(first.conjunctions) == 512
    began = time.process_time()
    assert covers(first, large(1))
    assert not covers(first, second)
    assert intersects(first, second)
    assert time.process_time() - began < CPU_S


def test_many_demands_meet_as_two_at_a_time_do() -> None:
    texts = [
        resembles("a%", False), resembles("%b%", True), compare("<>", "ab"), compare(">=", "aa"),
        compare("<", "azz"), resembles("ac%", True),
    ]  # fmt: skip
    numbers = [compare(">", 1), compare(">=", 1), compare("<=", 9), compare("<", 9),
               compare("<>", 5), compare("<>", 100)]  # fmt: skip
    for demands in (texts, numbers, [*texts, compare("=", "aaq")], [*numbers, compare("=", 4)]):
        together = [demand for demand in demands if demand is not None]
        assert len(together) == len(demands)
        one_by_one = together[0]
        for demand in together[1:]:
            both = one_by_one.meet(demand)
            assert both is not None
            one_by_one = both
        assert meet_all(together) == one_by_one
    assert meet_all([d for d in (*texts, compare("=", 1)) if d is not None]) is None
    assert matches(parse("a > 1 AND a IS NOT NULL AND a <> 3 AND a < 9"), {"a": 4})
