"""Random filter texts and rows over typed columns, for the property tests.

Columns: `s` and `t` text, `i` and `j` bigint, `d` double, `b` boolean.
"""

from __future__ import annotations

import random
from typing import Any

TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "abc",
    "b",
    "ba",
    "a%b",
    "a_b",
    "a\\b",
    "it's",
    "é",
    "z",
    "中",
    "😀",
    "\U0010ffff",
    "a\nb",
    " ",
]
INTS = [0, 1, -1, 2, 3, 5, 10, 100, -7, 2**31, -(2**31), 2**53, -(2**53)]
DOUBLES = [0.0, -0.0, 0.5, 1.0, -1.5, 2.0, 3.25, 1e-300, 1e300, -1e300, 10.0, 5e-324]
PATTERNS = [
    "%",
    "a%",
    "%b",
    "%a%",
    "a%b",
    "_",
    "a_",
    "_%",
    "%_b%",
    "a\\%%",
    "a\\_b",
    "%\\\\%",
    "abc",
    "",
    "%%",
    "é%",
    "%😀%",
    "_b_",
    "a%b%",
    "%a%b%c",
    "it's%",
]
COLUMNS = {"s": "text", "t": "text", "i": "int", "j": "int", "d": "double", "b": "flag"}


def quote(text: str, draw: random.Random) -> str:
    doubled = draw.random() < 0.5
    return "'" + text.replace("\\", "\\\\").replace("'", "''" if doubled else "\\'") + "'"


def quote_pattern(pattern: str) -> str:
    # A pattern's own backslashes are doubled, as everywhere in a SQL string.
    return "'" + pattern.replace("\\", "\\\\").replace("'", "\\'") + "'"


def literal(kind: str, draw: random.Random) -> str:
    if kind == "text":
        return quote(draw.choice(TEXTS), draw)
    if kind == "flag":
        return draw.choice(["TRUE", "false"])
    value = draw.choice(INTS if kind == "int" else INTS[:9] + DOUBLES)
    if kind == "int" and draw.random() < 0.2:
        return draw.choice(["1.5", "-0.5", "2.0", "1e2", ".5"])
    return repr(value)


def comparison(draw: random.Random, kinds: dict[str, str] = COLUMNS) -> str:
    """A comparison of a column with literals of its own type."""
    column = draw.choice(list(kinds))
    kind = kinds[column]
    name = f"`{column}`" if draw.random() < 0.1 else column
    form = draw.random()
    negation = draw.choice(["", "NOT "])
    if form < 0.08:
        return f"{name} IS {negation}NULL"
    if form < 0.2:
        members = [literal(kind, draw) for _ in range(draw.randint(1, 4))]
        if draw.random() < 0.1:
            members.append("NULL")
        return f"{name} {negation}IN ({', '.join(members)})"
    if form < 0.3:
        return f"{name} {negation}BETWEEN {literal(kind, draw)} AND {literal(kind, draw)}"
    if form < 0.5 and kind == "text":
        return f"{name} {negation}LIKE {quote_pattern(draw.choice(PATTERNS))}"
    if form < 0.55 and kind == "flag":
        return name
    if form < 0.57:
        return draw.choice(["TRUE", "FALSE"])
    operator = draw.choice(["=", "<>", "<", "<=", ">", ">=", "!=", "=="])
    value = "NULL" if draw.random() < 0.03 else literal(kind, draw)
    if draw.random() < 0.2:
        return f"{value} {operator} {name}"
    return f"{name} {operator} {value}"


def expression(draw: random.Random, depth: int = 3, kinds: dict[str, str] = COLUMNS) -> str:
    """A random boolean expression."""
    if depth == 0 or draw.random() < 0.25:
        return comparison(draw, kinds)
    form = draw.random()
    if form < 0.2:
        return f"NOT ({expression(draw, depth - 1, kinds)})"
    if form < 0.25:
        return f"not {comparison(draw, kinds)}"
    parts = [expression(draw, depth - 1, kinds) for _ in range(draw.randint(2, 3))]
    if form < 0.4:  # Mixed without parentheses, so that precedence is tried too.
        return " AND ".join(parts[:2]) + " OR " + parts[-1]
    word = draw.choice([" AND ", " OR ", " and ", "\nOr "])
    return word.join(f"({part})" for part in parts)


def row(draw: random.Random) -> dict[str, Any]:
    """A row of the columns; nulls, NaN and infinities included."""
    values: dict[str, Any] = {}
    for column, kind in COLUMNS.items():
        if draw.random() < 0.15:
            values[column] = None
        elif kind == "text":
            values[column] = draw.choice([*TEXTS, "abcb", "ab c", "aXb", "a\U0010ffff"])
        elif kind == "int":
            values[column] = draw.choice(INTS)
        elif kind == "double":
            values[column] = draw.choice([*DOUBLES, float("nan"), float("inf"), -float("inf")])
        else:
            values[column] = draw.random() < 0.5
    return values


WILD_TEXTS = [
    *TEXTS, "sports/football/a", "sports/football/b", "sports/tennis", "sports", "sports/",
    "abcdef", "abcdefg", "abcdefgh", "ab\0", "a\0\0", "éééé", "ééé", "x" * 300,
]  # fmt: skip
WILD_NUMBERS = [
    *INTS, *DOUBLES, 2**53 + 1, 2**53 + 2, -(2**53) - 1, 2**63, 10**37, 10**37 + 1,
    1.7976931348623157e308, 0.1, 0.30000000000000004,
]  # fmt: skip


def wild_literal(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.45:
        return quote(draw.choice(WILD_TEXTS), draw)
    if kind < 0.9:
        return repr(draw.choice(WILD_NUMBERS))
    return draw.choice(["TRUE", "FALSE"])


def wild_comparison(draw: random.Random) -> str:
    """A comparison of one of a few untyped attributes with whatever literals."""
    name = f"x{min(draw.randrange(12), draw.randrange(12))}"
    form = draw.random()
    negation = draw.choice(["", "", "NOT "])
    if form < 0.06:
        return f"{name} IS {negation}NULL"
    if form < 0.2:
        size = draw.choice([1, 2, 5, 30])
        return f"{name} {negation}IN ({', '.join(wild_literal(draw) for _ in range(size))})"
    if form < 0.28:
        return f"{name} {negation}BETWEEN {wild_literal(draw)} AND {wild_literal(draw)}"
    if form < 0.42:
        pattern = draw.choice([*PATTERNS, "sports/%", "sports/f%", "%ball%", "abcdef%", "abcdefg%"])
        return f"{name} {negation}LIKE {quote_pattern(pattern)}"
    if form < 0.46:
        return name
    return f"{name} {draw.choice(['=', '=', '<>', '<', '<=', '>', '>='])} {wild_literal(draw)}"


def wild_expression(draw: random.Random) -> str:
    """Mostly conjunctions, of up to eight comparisons; now and then several of them."""

    def conjunction() -> str:
        return " AND ".join(wild_comparison(draw) for _ in range(draw.choice([1, 1, 2, 3, 5, 8])))

    return " OR ".join(f"({conjunction()})" for _ in range(draw.choice([1, 1, 1, 2, 6])))


def wild_row(draw: random.Random) -> dict[str, Any]:
    """A few of the untyped attributes with whatever values."""
    values: list[Any] = [
        *WILD_TEXTS, *WILD_NUMBERS, True, False, None, float("nan"), float("inf"), -float("inf"),
        10**400, -(10**400), 2**53 + 3, 2**60 + 1, 10**37 + 2, "sports/football/ab", "abcdefz",
    ]  # fmt: skip
    return {f"x{i}": draw.choice(values) for i in range(12) if draw.random() < 0.6}
