"""Worked examples of covering and intersection."""

from __future__ import annotations

import pytest

from postroad.filters import EVERYTHING, covers, intersects, parse, sharing
from postroad.filters.language import _pair


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("price > 10", "price > 11 AND symbol = 'X'"),
        ("price >= 10", "price > 10"),
        ("price > 10", "price IN (11, 12)"),
        ("price <> 5", "price > 5"),
        ("price NOT IN (5, 6)", "price NOT IN (4, 5, 6)"),
        ("s LIKE 'ab%'", "s LIKE 'abc%'"),
        ("s LIKE 'ab%'", "s = 'abc'"),
        ("s LIKE 'ab%'", "s LIKE 'ab%c%'"),
        ("s LIKE 'ab%'", "s >= 'aba' AND s <= 'abz'"),
        ("s > 'a'", "s >= 'ab'"),
        ("s NOT LIKE 'x%'", "s < 'b'"),
        ("s LIKE '%'", "s LIKE '%x%'"),
        ("a IS NOT NULL", "a = 'x'"),
        ("a = 1 OR a = 2", "a = 2 AND b = 1"),
        ("a IN (1, 2)", "a = 1 OR a = 2"),
        ("TRUE", "a = 1"),
        ("a = 1", "FALSE"),
    ],
)
def test_covers(outer: str, inner: str) -> None:
    assert covers(parse(outer), parse(inner))
    assert covers(parse(outer), parse(outer))
    assert covers(EVERYTHING, parse(inner))
    if inner != "FALSE":
        assert not covers(parse(inner), parse(outer)) or outer in ("a IN (1, 2)",)
        assert intersects(parse(outer), parse(inner))


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        ("class = 'STOCK' AND price > 0", "class = 'STOCK' AND volume > 5", True),
        ("class = 'STOCK'", "class = 'BOND'", False),
        ("price > 5", "price < 5", False),
        ("price >= 5", "price <= 5", True),
        ("price >= 5 AND price <> 5", "price <= 5", False),
        ("s LIKE 'ab%'", "s LIKE 'ac%'", False),
        ("s LIKE 'ab%'", "s LIKE '%z'", True),
        ("s LIKE '%a%'", "s NOT LIKE '%a%'", False),
        ("a IS NULL", "a = 1", False),
        ("a IS NULL", "b = 1", True),
        ("a = 1", "a = '1'", False),
        ("a = 1 OR b = 2", "a = 2", True),
        ("FALSE", "TRUE", False),
    ],
)
def test_intersects(first: str, second: str, meet: bool) -> None:
    assert intersects(parse(first), parse(second)) is meet
    assert intersects(parse(second), parse(first)) is meet


def test_filters_share_their_small_parts_and_say_what_they_said() -> None:
    text = "class = 'quotes/ibm' AND price >= 10.5"
    one, other = (sharing(parse(text)) for _ in range(2))
    assert one == other == parse(text)
    assert str(one) == str(parse(text))
    for mine, theirs in zip(one.conjunctions[0], other.conjunctions[0], strict=True):
        assert mine is theirs
    for large in (f"class = '{'x' * 65}'", "n IN (1, 2)", "n <> 4", "a = 1 OR b = 2", "TRUE"):
        before = _pair.cache_info().currsize
        assert sharing(parse(large)) == parse(large)
        assert _pair.cache_info().currsize == before  # nothing large is kept for others
