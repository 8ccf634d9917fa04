"""Relations on filters, judged by brute force over rows."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from filter_texts import expression, row
from postroad.filters import covers, intersects, matches, parse

seeds = st.integers(min_value=0, max_value=2**32)
NUMBERS = [0, 1, 2, 3]
HALVES = [-0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]
TEXTS = ["", "a", "aa", "ab", "b", "ba"]
# Between and beyond the literals above there is always one of these.
TEXT_VALUES = [
    x + y for x in ["", "a", "aa", "ab", "b", "ba"] for y in ["", "\0", "c", "\U0010ffff"]
]


def simple_conjunction(draw: random.Random) -> str:
    """Ranges, equalities, sets and prefixes over `n` (number) and `s` (text)."""
    parts = []
    for _ in range(draw.randint(1, 4)):
        if draw.random() < 0.5:
            name, values = "n", [str(number) for number in NUMBERS]
        else:
            name, values = "s", [f"'{text}'" for text in TEXTS]
        form = draw.randrange(4)
        if form == 0:
            parts.append(f"{name} IN ({', '.join(draw.choices(values, k=draw.randint(1, 3)))})")
        elif form == 1 and name == "s":
            parts.append(f"s LIKE '{draw.choice(TEXTS)}%'")
        else:
            parts.append(f"{name} {draw.choice(['<', '<=', '>', '>=', '='])} {draw.choice(values)}")
    return " AND ".join(parts)


@given(seeds)
@settings(max_examples=3000, deadline=None)
def test_parse_print_parse_is_stable(seed: int) -> None:
    filter = parse(expression(random.Random(seed)))
    again = parse(str(filter))
    assert again.tag == filter.tag
    assert again == filter
    assert str(again) == str(filter)


@given(seeds)
@settings(max_examples=3000, deadline=None)
def test_relations_are_never_wrong_where_they_promise(seed: int) -> None:
    draw = random.Random(seed)
    kinds = {"s": "text", "i": "int", "b": "flag"}
    a = parse(expression(draw, 2, kinds))
    b = parse(expression(draw, 2, kinds))
    covering, meeting = covers(a, b), intersects(a, b)
    for _ in range(40):
        values = row(draw)
        in_a, in_b = matches(a, values), matches(b, values)
        assert not (covering and in_b and not in_a), (str(a), str(b), values)
        assert meeting or not (in_a and in_b), (str(a), str(b), values)


@given(seeds)
@settings(max_examples=3000, deadline=None)
def test_covers_is_complete_for_simple_conjunctions(seed: int) -> None:
    draw = random.Random(seed)
    a, b = parse(simple_conjunction(draw)), parse(simple_conjunction(draw))
    rows = [
        {"n": number, "s": text}
        for number, text in itertools.product([None, *HALVES], [None, *TEXT_VALUES])
    ]
    truth = all(matches(a, values) for values in rows if matches(b, values))
    assert covers(a, b) is truth, (str(a), str(b))
    meeting = any(matches(a, values) and matches(b, values) for values in rows)
    assert intersects(a, b) is meeting, (str(a), str(b))
