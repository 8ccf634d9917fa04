"""The matcher's interface, in small."""

from __future__ import annotations

import pickle
import random
from threading import Event
from typing import Any

import pytest

from postroad.filters import Filter, like, matches, parse
from postroad.matching import Index, LinearScan, compiled
from postroad.matching import index as switching
from postroad.matching.compiled import Compiled
from postroad.matching.filed import Filed


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


def test_a_table_that_must_not_stop_grows_on_while_the_kernels_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = Event()
    monkeypatch.setattr(switching, "_load", go_on.wait)
    monkeypatch.setattr(switching, "SMALL_MAX", 10)
    switching._loader.cache_clear()
    try:
        index: Index[int] = Index(beside=True)
        for number in range(15):
            index.insert(number, parse(f"a = {number % 5}"))
        assert index.match({"a": 3}) == [3, 8, 13]
        assert index.nbytes == 0  # not compiled yet
        go_on.set()
        switching._loader().join()
        assert index.match({"a": 3}) == [3, 8, 13]
        assert index.nbytes > 0
    finally:
        go_on.set()
        switching._loader.cache_clear()


def test_kernels_that_are_not_in_the_cache_are_compiled_by_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that compiles would make every match wait for its turn, for most of a minute."""
    steps: list[str] = []
    monkeypatch.setattr("subprocess.run", lambda *_, **__: steps.append("compiled"))
    monkeypatch.setattr(compiled, "ready", lambda: steps.append("loaded"))
    monkeypatch.setattr(compiled, "is_ready", lambda: False)
    switching._load()
    assert steps == ["compiled", "loaded"]
    monkeypatch.setattr(compiled, "is_ready", lambda: True)
    switching._load()
    assert steps == ["compiled", "loaded", "loaded"]


def test_a_table_moves_over_some_at_a_time_while_filters_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(switching, "SMALL_MAX", 20)
    monkeypatch.setattr(switching, "AT_ONCE", 3)
    switching._loader().join()
    moved = 0
    insert = Compiled.insert

    def counted(table: Compiled[int], id: int, filter: Filter) -> None:
        nonlocal moved
        moved += 1
        insert(table, id, filter)

    monkeypatch.setattr(Compiled, "insert", counted)
    for seed in range(5):
        draw = random.Random(seed)
        index: Index[int] = Index(beside=True)
        every: LinearScan[int] = LinearScan()
        held: list[int] = []
        while index.nbytes == 0:
            moved = 0
            if len(held) < 30 or draw.random() < 0.5:  # often one that was there before
                id = draw.choice([each for each in range(60) if each not in held])
                filter = parse(f"a = {draw.randint(0, 3)} OR b > {draw.randint(0, 9)}")
                index.insert(id, filter)
                every.insert(id, filter)
                held.append(id)
            else:
                id = held.pop(draw.randrange(len(held)))
                index.remove(id)
                every.remove(id)
            asked = {"a": draw.randint(0, 3), "b": draw.randint(0, 9)}
            assert index.match(asked) == every.match(asked)
            assert moved <= 2 * 3 + 1
        assert len(index) == len(held)
        assert index.match(asked) == every.match(asked)


def test_patterns_are_made_ready_once_however_many_there_are() -> None:
    """More than any cache holds: when one publication's were made anew for the next, it took
    a hundred times as long."""
    table: Filed[int] = Filed()
    for number in range(5_000):
        table.insert(number, parse(f"a LIKE '%{number}_b%' AND a NOT LIKE '%{number}%c'"))
    made = like.matcher.cache_info().misses  # by who subscribed, not by the first who publishes
    assert table.match({"a": "x8yb"}) == [8]
    assert like.matcher.cache_info().misses == made


def test_a_filter_that_was_asked_can_be_sent_elsewhere() -> None:
    filter = parse("a LIKE '%b_c%' AND a NOT LIKE '%d%'")
    assert matches(filter, {"a": "abxc"})
    again = pickle.loads(pickle.dumps(filter))
    assert again == filter
    assert hash(again) == hash(filter)
    assert matches(again, {"a": "abxc"})
    assert not matches(again, {"a": "abxcd"})
