"""Large tables: inputs that could make them slow or big, and the cache of compiled kernels."""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from postroad.bench.matching import touches
from postroad.filters import Filter, parse
from postroad.matching import Index, LinearScan, kernels
from postroad.matching import compiled as kernel_table
from postroad.matching import index as switching
from postroad.matching.compiled import Compiled, floats_around, ready, text_key


def compiled(filters: list[Filter]) -> Index[int]:
    index: Index[int] = Index()
    index.compile()
    for id, filter in enumerate(filters):
        index.insert(id, filter)
    return index


def scan(filters: list[Filter]) -> LinearScan[int]:
    table: LinearScan[int] = LinearScan()
    for id, filter in enumerate(filters):
        table.insert(id, filter)
    return table


def table_of(index: Index[int]) -> Compiled[int]:
    table = index._table
    assert isinstance(table, Compiled)
    return table


def test_identical_filters_are_many_answers_and_no_more() -> None:
    same = parse("a = 1 AND b > 5")
    index = compiled([same] * 20_000)
    assert index.match({"a": 1, "b": 6}) == list(range(20_000))
    assert index.match({"a": 1, "b": 5}) == []
    assert index.nbytes / len(index) < 250
    for id in range(20_000):
        index.remove(id)
    assert index.match({"a": 1, "b": 6}) == []
    used = table_of(index).nbytes
    for id in range(20_000):
        index.insert(id, same)
    assert table_of(index).nbytes <= 1.5 * used


@pytest.mark.parametrize("plain", [False, True])
def test_more_answers_than_any_match_had_before(plain: bool) -> None:
    table: Compiled[int] = Compiled(plain=plain)
    for id in range(3_000):
        table.insert(id, parse("a = 1" if id % 2 else "a LIKE '_%_'"))
    assert table.match({"a": 2}) == []
    assert table.match({"a": 1}) == list(range(1, 3_000, 2))
    assert table.match({"a": "xy"}) == list(range(0, 3_000, 2))


def test_bounds_that_differ_in_a_sign_or_the_last_bit() -> None:
    bounds = [0.0, -0.0, 5e-324, -5e-324, 1.0, math.nextafter(1.0, 2), math.nextafter(1.0, 0)]
    bounds += [-1.0, 1e308, -1e308, 2.0**-1022, 4294967296.0, 1.0000002384185791]
    texts = [f"x {how} {bound!r}" for bound in bounds for how in ("<", "<=", ">", ">=", "=", "<>")]
    filters = [parse(text) for text in texts]
    index, oracle = compiled(filters), scan(filters)
    values = [*bounds, *(math.nextafter(bound, 9) for bound in bounds), math.inf, -math.inf]
    for x in [*values, math.nan, 0, 1, 2**53 + 1, 2**32, -(2**60) - 1]:
        assert index.match({"x": x}) == oracle.match({"x": x}), x


def test_a_filter_that_never_matches_can_be_taken_out() -> None:
    index = compiled([parse("a = 1 AND a = 2"), parse("a = 1")])
    assert index.match({"a": 1}) == [1]
    assert len(index) == 2
    with pytest.raises(AssertionError, match="already"):
        index.insert(0, parse("a = 1"))
    index.remove(0)
    assert 0 not in index
    with pytest.raises(KeyError):
        index.remove(0)
    index.insert(0, parse("a = 1"))
    assert index.match({"a": 1}) == [1, 0]


def test_an_attribute_with_many_values() -> None:
    index = compiled([parse(f"a = 'v{i}'") for i in range(30_000)])
    assert index.match({"a": "v12345"}) == [12345]
    assert index.match({"a": "v30000"}) == []
    assert index.nbytes / len(index) < 450


def test_thousands_of_attributes() -> None:
    index = compiled([parse(f"a{i} > 1 AND b{i} LIKE 'x%'") for i in range(3_000)])
    assert index.match({"a7": 2, "b7": "xy", "a8": 2, "b9": "xy"}) == [7]
    everything = {f"a{i}": 2 for i in range(3_000)} | {f"b{i}": "x" for i in range(3_000)}
    assert index.match(everything) == list(range(3_000))


def test_many_disjuncts_and_set_members() -> None:
    texts = [" OR ".join(f"a{i} = {k}" for i in range(500)) for k in range(20)]
    texts += [f"s IN ({', '.join(repr(str(k * i)) for i in range(500))})" for k in range(1, 20)]
    texts += [f"s NOT IN ({', '.join(repr(str(k * i)) for i in range(500))})" for k in range(1, 20)]
    filters = [parse(text) for text in texts]
    index, oracle = compiled(filters), scan(filters)
    for values in ({"a3": 7, "a400": 7}, {"s": "60"}, {"s": "1", "a9": 3}, {"a1": "7"}, {}):
        assert index.match(values) == oracle.match(values)


def test_patterns_that_only_python_can_check() -> None:
    filters = [parse(f"s LIKE '%x{i}%' AND t LIKE 'long prefix {i % 7}%'") for i in range(500)]
    index, oracle = compiled(filters), scan(filters)
    for i in (3, 77, 499):
        values = {"s": f"ax{i}", "t": f"long prefix {i % 7} and more"}
        assert index.match(values) == oracle.match(values) != []


def test_places_of_many_rows_and_wide_tables() -> None:
    draw = random.Random(3)
    texts = [
        " AND ".join(f"n{k} > {draw.randrange(50)}" for k in draw.sample(range(30), 3))
        for _ in range(10_000)
    ]
    filters = [parse(text) for text in texts]
    index, oracle = compiled(filters), scan(filters)
    gone = draw.sample(range(10_000), 5_000)
    for id in gone:
        index.remove(id)
        oracle.remove(id)
    for id in gone[:2_500]:
        index.insert(id, filters[id])
        oracle.insert(id, filters[id])
    for _ in range(20):
        values = {f"n{k}": draw.randrange(50) for k in range(30) if draw.random() < 0.5}
        assert index.match(values) == oracle.match(values)


@pytest.mark.parametrize("count", [250, 257, 513, 1_100])
def test_blocks_of_many_words_with_gaps(count: int) -> None:
    """Lines of bits are read by the word up to four words and by eight words beyond."""
    draw = random.Random(count)
    table: Compiled[int] = Compiled()
    scan: LinearScan[int] = LinearScan()
    for id in range(count):
        low, other = draw.randrange(40) / 8, draw.randrange(40) / 8
        filter = parse(f"a >= {low} AND a < {low + 1} AND b <= {other} AND c > {other}")
        table.insert(id, filter)
        scan.insert(id, filter)
    for share in (0, 3, 2):
        for id in range(count):
            if share and id % share == 0 and id in table:
                table.remove(id)
                scan.remove(id)
        for a in range(48):
            attributes = {"a": a / 8, "b": draw.randrange(40) / 8, "c": draw.randrange(40) / 8}
            assert table.match(attributes) == scan.match(attributes)


@pytest.mark.parametrize("most", [30, 1_000, 1 << 22, 1 << 23, (1 << 31) - 1])
def test_row_numbers_are_put_in_order(most: int) -> None:
    draw = random.Random(most)
    for count in (2, 24, 25, 300):
        numbers = np.array([draw.randrange(most + 1) for _ in range(count)] + [7], dtype=np.int32)
        numbers[0] = most
        expected = [*sorted(numbers[:count].tolist()), 7]
        kernels._sort(numbers, count, np.empty(count, dtype=np.int32))
        assert numbers.tolist() == expected


def test_narrow_ranges_of_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table, "_WINDOWED_AT", 0)
    draw = random.Random(11)
    # A few wide cells, then ranges within them: of any width, around powers of two, of integers.
    ranges: list[tuple[float, float]] = [(cut, cut + 1000) for cut in range(-9000, 9000, 300)]
    while len(ranges) < 3_000:
        low = draw.choice([draw.uniform(-9e3, 9e3), float(draw.randrange(-64, 64)), 2.0**53])
        ranges.append((low, low + draw.choice([2.0 ** draw.randrange(-40, 8), draw.random()])))
    ranges += [(n, n + 1) for n in (2**53 + 1, 2**60 + 1, 10**30, -(10**19))]
    filters = [parse(f"x BETWEEN {low!r} AND {high!r}") for low, high in ranges]
    index, oracle = compiled(filters), scan(filters)
    table = table_of(index)
    for values in ({"x": draw.uniform(-9e3, 9e3)} for _ in range(20)):
        assert index.match(values) == oracle.match(values)
    table._refile()
    assert int(table._allocator[kernels.KEYS]) > 1_000
    for round in range(3):
        for id in draw.sample(range(3_000), 1_000):
            index.remove(id)
            index.insert(id, filters[id])
            oracle.remove(id)
            oracle.insert(id, filters[id])
        for bound in (bound for each in draw.sample(ranges, 20) for bound in each):
            for x in (bound, math.nextafter(bound, math.inf), math.nextafter(bound, -math.inf)):
                assert index.match({"x": x}) == oracle.match({"x": x}), (round, x)
        for x in (2**53 + 1, 2**53 + 2, 2**60 + 1, 10**30 + 1, -(10**19) + 1, math.inf, math.nan):
            assert index.match({"x": x}) == oracle.match({"x": x}), (round, x)


def test_values_that_left_do_not_pile_up() -> None:
    index = compiled([parse("a = 'stays'")])
    for i in range(40_000):
        index.insert(i + 1, parse(f"a = 'v{i}'"))
        index.remove(i + 1)
    assert index.match({"a": "stays"}) == [0]
    assert index.match({"a": "v39999"}) == []
    assert len(table_of(index)._attributes["a"].codes) < 20_000
    assert index.nbytes < 10_000_000


def test_numbers_of_removed_filters_are_used_again() -> None:
    index = compiled([parse("a = 1"), parse("b = 1")])
    other = parse("a = 1 OR c > 2 OR s LIKE '%x%'")
    for i in range(30_000):
        index.insert(i + 2, other)
        index.remove(i + 2)
    index.insert(2, other)
    assert index.match({"a": 1, "s": "x"}) == [0, 2]
    assert table_of(index)._ids.rows < 70_000


def test_the_table_is_compiled_when_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "SMALL_MAX", 10)
    index: Index[int] = Index()
    for i in range(12):
        index.insert(i, parse(f"a > {i}"))
    assert isinstance(index._table, Compiled)
    assert index.match({"a": 5}) == [0, 1, 2, 3, 4]
    monkeypatch.setattr(switching, "SMALL_MAX", 4096)
    monkeypatch.setattr(switching, "ASKED_MAX", 1000)
    asked: Index[int] = Index()
    for i in range(300):
        asked.insert(i, parse(f"a > {i}"))
    for _ in range(5):
        assert asked.match({"a": 2.5}) == [0, 1, 2]
    assert isinstance(asked._table, Compiled)


def test_small_tables_do_without_numba() -> None:
    code = (
        "import sys; from postroad.filters import parse; from postroad.matching import Index\n"
        "index = Index()\n"
        "for i in range(1000): index.insert(i, parse(f'a = {i}'))\n"
        "assert index.match({'a': 7}) == [7]\n"
        "assert 'numba' not in sys.modules and 'numpy' not in sys.modules"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=60)


@pytest.mark.timeout(300)
def test_a_second_start_finds_the_kernels_compiled() -> None:
    ready()  # The first start, here or in an earlier run.
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[3] / "src"),
        "NUMBA_DEBUG_CACHE": "1",  # Numba says what it loads and what it saves.
    }
    code = "from postroad.matching import compiled; compiled.ready()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )
    for part in ("match", "insert", "remove", "refile", "move_lines", "pack_rows", "pack_words"):
        assert re.search(rf"data loaded from .*\b{part}-", done.stdout), part
    assert "data saved" not in done.stdout


def test_no_use_of_a_table_compiles_what_was_not_ready() -> None:
    """Otherwise a broker that is right after its installation stops for seconds, later."""
    ready()
    parts = [part for part in vars(kernels).values() if isinstance(part, Dispatcher)]
    before = [len(part.signatures) for part in parts]
    draw = random.Random(4)
    index = compiled([parse(f"a > {draw.random()} AND b = {i % 700}") for i in range(30_000)])
    for id in range(25_000):
        index.remove(id)
    for id in range(50_000):
        index.insert(-id - 1, parse(f"c = {id % 50}"))
    assert len(index.match({"c": 7})) == 1_000
    assert [len(part.signatures) for part in parts] == before


def test_a_slow_start_says_what_it_is_doing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ready()
    capsys.readouterr()
    ready.__wrapped__()
    assert capsys.readouterr().err == ""

    class Slow(Compiled[int]):
        def __init__(self) -> None:
            time.sleep(0.3)
            super().__init__()

    monkeypatch.setattr(kernel_table, "_SAID_AFTER", 0.1)
    monkeypatch.setattr(kernel_table, "Compiled", Slow)
    ready.__wrapped__()
    assert "the first start compiles them" in capsys.readouterr().err


def test_matching_keeps_no_reference() -> None:
    index: Index[Any] = Index()
    index.compile()
    names = [("name", n) for n in range(100)]
    for name in names:
        index.insert(name, parse("symbol = 'AB' AND s LIKE 'wor%' AND x > 1 AND b AND t IS NULL"))
    values: dict[str, Any] = {"symbol": "AB", "s": "word" * 3, "x": 2**40, "y": 7.5, "b": True}
    held = [*values.values(), *names, None, float, str, int, bool]
    before = [sys.getrefcount(each) for each in held]
    for _ in range(1000):
        assert len(index.match(values)) == 100
        assert index.match({**values, "x": 0.5}) == []
    now = [sys.getrefcount(each) for each in held]
    assert max(abs(a - b) for a, b in zip(now, before, strict=True)) < 20


def test_text_keys_never_contradict_the_order_of_texts() -> None:
    parts = ["", "\0", "a", "b", "é", "中", "😀", "zz"]
    texts = sorted({x + y + z + w for x in parts for y in parts for z in parts for w in parts})
    keys = [text_key(text) for text in texts]
    assert keys == sorted(keys)
    short = [text for text in texts if len(text.encode()) <= 6]
    assert len({text_key(text) for text in short}) == len(short)


def test_floats_around_an_integer() -> None:
    assert floats_around(5) == (5.0, 5.0)
    assert floats_around(2**53 + 1) == (2.0**53, 2.0**53 + 2)
    assert floats_around(-(2**53) - 1) == (-(2.0**53) - 2, -(2.0**53))
    assert floats_around(10**400) == (1.7976931348623157e308, float("inf"))
    assert floats_around(-(10**400)) == (-float("inf"), -1.7976931348623157e308)


def test_rows_are_filed_under_attributes_that_few_publications_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And elsewhere again once many have them; a new attribute does not seem rare."""
    monkeypatch.setattr(kernel_table, "_WINDOWED_AT", 0)
    filters = [parse(f"a > {n} AND b BETWEEN {n} AND {n + 30}") for n in range(100)]
    table = table_of(compiled(filters))
    for _ in range(kernels.ASKED_MIN):
        table.match({"b": 50})
    table._refile()
    assert table._windows[int(table._attributes["a"].number), kernels.WHOLE] != 0
    assert touches(table, {"b": 50}) == (0, 0, 0)
    assert len(table.match({"a": 200, "b": 50})) == 31

    table.insert("late", parse("c > 5 AND b = 50"))
    channel = int(table._attributes["c"].number)
    assert table._windows[channel, kernels.WHOLE] == 0

    for _ in range(2 * kernels.ASKED_MAX):
        table.match({"a": 0, "b": 50})
    for id, filter in enumerate(filters):
        table.remove(id)
        table.insert(id, filter)
    assert table._allocator[kernels.ASKED] < kernels.ASKED_MAX
    assert table._windows[int(table._attributes["a"].number), kernels.WHOLE] == 0
    assert len(table.match({"a": 200, "b": 50})) == 31
