"""Reading SQL: what is accepted, what it means, and how mistakes are told."""

from __future__ import annotations

import pickle

import pytest

from postroad.errors import FilterError
from postroad.filters import EVERYTHING, Filter, matches, parse


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("class = 'STOCK' AND price > 10.50", "class = 'STOCK' AND price > 10.5"),
        ("10 <= price", "price >= 10"),
        ("NOT (a < 5 OR b IS NULL)", "a >= 5 AND b IS NOT NULL"),
        ("NOT a = 1 AND b = 2", "a <> 1 AND b = 2"),
        ("a = 1 OR b = 2 AND c = 3", "a = 1 OR (b = 2 AND c = 3)"),
        ("a BETWEEN 1 AND 3 AND a <> 2", "a >= 1 AND a <= 3 AND a <> 2"),
        ("a NOT BETWEEN 1 AND 3", "a < 1 OR a > 3"),
        ("a >= 1 AND a <= 1.0", "a = 1"),
        ("a IN (3, 1, 2) AND a > 1", "a IN (2, 3)"),
        ("a IN (1, 'x')", "a = 'x' OR a = 1"),
        ("a NOT IN (1, NULL)", "FALSE"),
        ("s LIKE 'abc'", "s = 'abc'"),
        ("s LIKE 'abc%' AND s LIKE 'ab%'", "s LIKE 'abc%'"),
        ("s >= 'abc' AND s < 'abd'", "s LIKE 'abc%'"),
        ("s > 'a' AND s <= 'b'", "s > 'a' AND s <= 'b'"),
        ("s LIKE '%%x%_%'", "s LIKE '%x_%'"),
        ("s = 'it''s'", r"s = 'it\'s'"),
        ("s = 'two\nlines'", r"s = 'two\nlines'"),
        ("s LIKE '%'", "s LIKE '%'"),
        ("s NOT LIKE '%'", "FALSE"),
        ("flag AND NOT other", "flag = TRUE AND other = FALSE"),
        ("flag > FALSE", "flag = TRUE"),
        ("`openClose%Diff` > -0.0", "`openClose%Diff` > 0"),
        ("`and` = 1 AND `b``c` = 2", "`and` = 1 AND `b``c` = 2"),
        ("a = 1 AND a = 2", "FALSE"),
        ("a = 1 AND a = '1'", "FALSE"),
        ("a = 1 AND a IS NULL", "FALSE"),
        ("a IS NOT NULL AND a IS NULL AND a IS NOT NULL", "FALSE"),
        ("a IS NULL AND a IS NULL AND a IS NULL", "a IS NULL"),
        ("a = NULL OR NOT (a = NULL)", "FALSE"),
        ("TRUE OR a = 1", "TRUE"),
        ("NOT FALSE", "TRUE"),
        ("a > 1 OR a > 2", "a > 1"),
        ("a = 1e300", "a = 1e+300"),
        ("a = 12345678901234567890.0", "a = 12345678901234567890"),
    ],
)
def test_canonical_text(text: str, printed: str) -> None:
    filter = parse(text)
    assert str(filter) == printed
    assert parse(printed) == filter
    assert hash(parse(printed)) == hash(filter)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the filter ends where an attribute, a literal or ( is needed"),
        ("a =", "ends where a literal is needed"),
        ("a = b", "b at character 5 is not a literal"),
        ("a = 1 b = 2", "b at character 7 is not AND, OR or the end"),
        ("(a = 1", "ends where AND, OR or ) is needed"),
        ("a = 1)", ") at character 6 is not AND, OR or the end"),
        ('a = "x"', "write strings in '…'"),
        ("a = 'x", "close the ' with another one"),
        ("`a = 1", "close the ` with another one"),
        ("`` = 1", "names no attribute"),
        ("1 = ``", "names no attribute"),
        ("a = 1AND b = 2", "1AND is not a number"),
        ("a = 1.2.3", ". at character 6"),
        ("a = 1_000", "1_000 is not a number"),
        ("a = ٣", "٣ at character 5"),
        ("a = 5e", "5e is not a number"),
        ("a = --5", "is not a literal"),
        ("like = 1", "an attribute of that name is written `like`"),
        ("a IN ()", ") at character 7 is not a literal"),
        ("a IN (1 2)", "2 at character 9 is not , or )"),
        ("a IN 1", "is not ( after IN"),
        ("a BETWEEN 1", "AND and the upper bound"),
        ("a NOT 5", "5 at character 7 is not IN, BETWEEN or LIKE"),
        ("a IS 5", "5 at character 6 is not NULL or NOT NULL"),
        ("a LIKE 5", "LIKE 5 is not a pattern"),
        (r"a LIKE 'x\\'", "escapes nothing"),
        (r"a LIKE 'x\\y'", "escapes nothing"),
        (r"a = '\u0041'", "is not an escape"),
        ("5", "5 is not a condition"),
        ("'x'", "'x' is not a condition"),
        ("1 = 1", "1 at character 5 is not an attribute"),
        ("a <=> 1", "<=> at character 3"),
        ("a = 1e999", "too large"),
        ("a = 1; DROP", "; at character 6"),
        ("a. = 1", "= at character 4"),
        ("a = '\ud800'", "surrogate"),
        ("é = 1", "é at character 1"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, complaint: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert complaint in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "(" * 100_000 + "a = 1" + ")" * 100_000,
        "NOT (" * 50_000 + "a = 1" + ")" * 50_000,
        "a = 1 OR " * 2_000_000 + "a = 2",
        "a = " + "9" * 500_000 + ".5",
        "a = " + "9" * 100_000,
        " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(40)),
        "NOT (" + " OR ".join(f"(a{i} = 1 AND b{i} = 1)" for i in range(40)) + ")",
        " OR ".join(f"a{i} = 1" for i in range(2000)),
        "("
        + " OR ".join(f"a{i} = 1" for i in range(1000))
        + ")"
        + "".join(f" AND (b{i} = 1 OR FALSE AND b{i} = 2)" for i in range(1000))
        + "".join(f" AND (c{i} IN (1, 'x') OR c{i} = 1 AND c{i} = 2)" for i in range(1000)),
    ],
    ids=lambda text: text[:20],
)
def test_oversized_filters_are_refused(text: str) -> None:
    with pytest.raises(FilterError):
        parse(text)


def test_large_but_flat_filters_are_read() -> None:
    many = parse("a IN (" + ", ".join(map(str, range(100_000))) + ")")
    assert matches(many, {"a": 99_999})
    assert not matches(many, {"a": 100_000})
    assert len(many.conjunctions) == 1
    none = parse("a NOT IN (" + ", ".join(map(str, range(100_000))) + ")")
    assert len(none.conjunctions) == 1
    wide = parse(" AND ".join(f"a{i} > {i}" for i in range(20_000)))
    assert len(wide.conjunctions[0]) == 20_000
    choices = parse(" OR ".join(f"a{i} = 1" for i in range(1000)))
    assert len(choices.conjunctions) == 1000
    nested = parse("(" * 900 + "a = 1" + ")" * 900)
    assert nested == parse("a = 1")
    assert parse("NOT " * 100_001 + "a = 1") == parse("a <> 1")


@pytest.mark.parametrize(
    "text",
    [
        "a = 'x'",
        "a <> 'x'",
        "NOT a = 'x'",
        "a LIKE '%'",
        "a NOT LIKE 'y%'",
        "a NOT IN ('x')",
        "a > ''",
    ],
)
@pytest.mark.parametrize("value", [1, 1.5, True, None])
def test_values_of_another_type_never_match_text(text: str, value: object) -> None:
    assert not matches(parse(text), {"a": value})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "text", ["a = 1", "a <> 0", "NOT a = 0", "a > 0", "a NOT IN (0, 5)", "a < 2"]
)
@pytest.mark.parametrize("value", ["1", True, False, None, ""])
def test_values_of_another_type_never_match_numbers(text: str, value: object) -> None:
    assert matches(parse(text), {"a": 1})
    assert not matches(parse(text), {"a": value})  # type: ignore[dict-item]


@pytest.mark.parametrize("text", ["a", "NOT a", "a = TRUE", "a <> TRUE", "a IN (TRUE, FALSE)"])
@pytest.mark.parametrize("value", ["true", 1, 0, 1.0, None])
def test_values_of_another_type_never_match_flags(text: str, value: object) -> None:
    assert matches(parse(text), {"a": True}) or matches(parse(text), {"a": False})
    assert not matches(parse(text), {"a": value})  # type: ignore[dict-item]


def test_nan_is_above_every_number() -> None:
    nan = {"a": float("nan")}
    assert matches(parse("a > 1e308"), nan)
    assert matches(parse("a >= 5 AND a <> 7"), nan)
    assert not matches(parse("a <= 1e308 OR a = 5 OR a < 5"), nan)


def test_huge_integers_are_compared_exactly() -> None:
    assert matches(parse("a = 9007199254740993"), {"a": 2**53 + 1})
    assert not matches(parse("a = 9007199254740993"), {"a": 2**53})
    assert matches(parse("a > 1e308"), {"a": 10**400})


def test_missing_attributes_are_null() -> None:
    assert matches(parse("a IS NULL"), {})
    assert matches(parse("a IS NULL"), {"a": None})
    assert not matches(parse("a IS NOT NULL OR a = 1 OR a <> 1"), {})
    assert matches(EVERYTHING, {})


def test_filters_survive_pickling() -> None:
    filter = parse("a = 1 AND s LIKE '%x%' OR b IS NULL")
    matches(filter, {})
    again: Filter = pickle.loads(pickle.dumps(filter))
    assert again == filter
    assert matches(again, {"b": 5, "a": 1, "s": "axb"})


@pytest.mark.timeout(20)
def test_like_does_not_backtrack() -> None:
    filter = parse("s LIKE '" + "%a" * 1000 + "b'")
    assert not matches(filter, {"s": "a" * 200_000})
    gaps = parse("s LIKE '" + "%a_" * 50 + "b%'")
    assert not matches(gaps, {"s": "a" * 100_000})
