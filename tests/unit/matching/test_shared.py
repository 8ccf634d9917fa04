"""A saved table, mapped: the answers of a linear scan, and nothing that readers can harm."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from filter_texts import expression, row
from postroad.filters import parse
from postroad.matching import LinearScan
from postroad.matching.compiled import Compiled
from postroad.matching.holders import Holders, interested
from postroad.matching.shared import load, save


@pytest.mark.parametrize("count", [0, 1, 2_000])
def test_a_mapped_table_answers_as_a_linear_scan(tmp_path: Path, count: int) -> None:
    draw = random.Random(count)
    filters = [parse(expression(draw)) for _ in range(count)]
    index: Compiled[int] = Compiled()
    scan: LinearScan[int] = LinearScan()
    for id, filter in enumerate(filters):
        index.insert(id, filter)
        scan.insert(id, filter)
    save(index, tmp_path / "table", {"mine": np.arange(5)})
    table, beside = load(tmp_path / "table")
    assert beside["mine"].tolist() == [0, 1, 2, 3, 4]
    assert len(table) == count
    rows = [*(row(draw) for _ in range(200)), {}, {"i": 2**60, "s": None}]
    answers = [scan.match(attributes) for attributes in rows]
    assert [table.match(attributes) for attributes in rows] == answers
    table._native = None  # where compiled calls of Python are not known to work
    assert [table.match(attributes) for attributes in rows] == answers
    if count > 1:
        assert any(answers)


def test_what_a_reader_writes_is_its_own(tmp_path: Path) -> None:
    index: Compiled[int] = Compiled()
    index.insert(7, parse("a = 1"))
    save(index, tmp_path / "table")
    before = (tmp_path / "table").read_bytes()
    table, _ = load(tmp_path / "table")
    assert table.match({"a": 1}) == [7]
    table._rows[:] = 0
    assert table.match({"a": 1}) == []
    assert (tmp_path / "table").read_bytes() == before
    other, _ = load(tmp_path / "table")
    assert other.match({"a": 1}) == [7]
    with pytest.raises(AssertionError, match="does not change"):
        other.insert(8, parse("a = 2"))


def test_holders_are_asked_while_they_hold() -> None:
    holders = Holders(
        np.array([0, 3, 4]), np.array([2, 0, 2, 1]), np.array([0, 5, 0, 0]),
        np.array([9, 6, 9, 9]), 3,
    )  # fmt: skip
    filters, ends = np.array([0, 0, 1, 0, 1]), np.array([1, 3, 3, 5])
    who, whose_end, times = interested(holders, filters, ends, np.array([4, 5, 5, 10]))
    assert who.tolist() == [2, 0, 1, 2]
    assert times.tolist() == [2, 1, 1, 2]
    assert whose_end.tolist() == [1, 4, 4, 4]
