"""The matcher's interface, in small."""

from __future__ import annotations

from typing import Any

import pytest

from postroad.filters import parse
from postroad.matching import Index, LinearScan


@pytest.mark.parametrize("matcher", [Index, LinearScan])
def test_matches_come_in_order_of_insertion(matcher: type[Any]) -> None:
    table = matcher()
    table.insert("z", parse("a = 1 OR b = 2"))
    table.insert("y", parse("c > 0"))
    table.insert("x", parse("a IN (1, 2)"))
    assert table.match({"a": 1, "b": 2, "c": 1}) == ["z", "y", "x"]
    assert table.match({"a": 2}) == ["x"]
    table.remove("z")
    table.insert("z", parse("a = 1"))
    assert table.match({"a": 1, "c": 0.5}) == ["y", "x", "z"]
    assert len(table) == 3
    assert "z" in table
    assert "w" not in table


@pytest.mark.parametrize("matcher", [Index, LinearScan])
def test_misuse_is_refused(matcher: type[Any]) -> None:
    table = matcher()
    table.insert("z", parse("a = 1"))
    with pytest.raises(AssertionError):
        table.insert("z", parse("a = 2"))
    with pytest.raises(KeyError):
        table.remove("y")
    assert table.match({"a": 1}) == ["z"]


def test_true_is_not_one() -> None:
    index: Index[str] = Index()
    index.insert("one", parse("a = 1"))
    index.insert("true", parse("a"))
    assert index.match({"a": 1}) == ["one"]
    assert index.match({"a": 1.0}) == ["one"]
    assert index.match({"a": True}) == ["true"]
