"""Two versions' benchmarks side by side, and how cost grows."""

from __future__ import annotations

import math

import pytest

from postroad.bench import against, growth

OLD = "rows, 2 rounds\n  publications/s   1,000   2.0 per CPU second\n  only old 5\n"
NEW = "rows, 2 rounds\n  publications/s   1,500   2.1 per CPU second\n  only new 7\n"


def test_numbers_in_the_same_place_are_compared_by_their_medians() -> None:
    slower = NEW.replace("1,500", "100")
    (row,) = against.pairs([OLD, OLD, OLD], [NEW, slower, NEW])
    assert [(pair.old, pair.new) for pair in row] == [(1000.0, 1500.0), (2.0, 2.1)]
    assert [pair.marked for pair in row] == [True, False]
    assert "new to old: 1.50!  1.05" in against.show([row])


def test_a_tenth_is_marked_either_way() -> None:
    marks = [against.Pair("", 100.0, new).marked for new in (112.0, 109.0, 92.0, 90.0)]
    assert marks == [True, False, False, True]


def test_lines_of_the_same_words_are_told_apart_by_their_order() -> None:
    rows = against.pairs(["a 1\na 2\n"], ["a 3\na 8\n"])
    assert [row[0].ratio for row in rows] == [3.0, 4.0]


def test_exponents_are_compared_by_their_difference_and_without_their_intervals() -> None:
    old = growth.said("cost of 2 things by brokers", [1, 2, 4, 9], [1.0, 1.0, 1.1, 1.0], "0")
    new = growth.said("cost of 2 things by brokers", [1, 2, 4, 8], [1.0, 2.0, 4.0, 8.0], "0")
    (row,) = against.pairs([old], [new])
    assert len(row) == 1
    assert "new less old: +0.9" in against.show([row])


def test_a_power_law_is_found_with_its_interval() -> None:
    sizes = [10, 100, 1_000, 10_000]
    slope, half = growth.exponent(sizes, [3 * size**1.5 for size in sizes])
    assert slope == pytest.approx(1.5)
    assert half < 1e-6
    noisy, wide = growth.exponent(sizes, [10, 130, 700, 15_000])
    assert noisy - wide < 1 < noisy + wide
    assert math.isinf(growth.exponent([1, 2], [1, 4])[1])
