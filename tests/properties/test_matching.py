"""The index equals the linear scan, whatever came and went before."""

from __future__ import annotations

import random
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from filter_texts import expression, row, wild_expression, wild_row
from postroad.filters import parse
from postroad.matching import Index, LinearScan, compiled
from postroad.matching.compiled import Compiled

seeds = st.integers(min_value=0, max_value=2**32)


def mixed_row(draw: random.Random) -> dict[str, Any]:
    """A typed row; now and then every attribute has another's value, so that types differ."""
    values = row(draw)
    if draw.random() < 0.3:
        values = dict(zip(values, draw.sample(list(values.values()), 6), strict=True))
    return values


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_without_calls_into_python_the_compiled_table_matches_alike(seed: int) -> None:
    """What another CPython gets, or one where the trial at first use fails."""
    draw = random.Random(seed)
    native: Compiled[Any] = Compiled()
    plain: Compiled[Any] = Compiled(plain=True)
    assert native._native is not None
    for number in range(draw.randint(1, 60)):
        filter = parse(expression(draw, depth=2))
        id = number if draw.random() < 0.9 else f"s{number}"
        native.insert(id, filter)
        plain.insert(id, filter)
    for _ in range(20):
        values = mixed_row(draw)
        assert native.match(values) == plain.match(values)


def test_a_failed_trial_or_another_python_is_gone_on_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiled.native_works.cache_clear()
    monkeypatch.setattr(compiled.native, "matcher", lambda state_at: lambda attributes: [])
    try:
        table: Compiled[int] = Compiled()
        assert table._native is None
        assert "disagrees" in caplog.text
        compiled.native_works.cache_clear()
        monkeypatch.undo()
        monkeypatch.setattr(compiled.native, "SUPPORTED", False)
        assert Compiled()._native is None
    finally:
        compiled.native_works.cache_clear()
    table.insert(7, parse("a = 1"))
    assert table.match({"a": 1}) == [7]


@given(seeds)
@settings(max_examples=200, deadline=None)
def test_index_equals_linear_scan(seed: int) -> None:
    draw = random.Random(seed)
    index: Index[int] = Index()
    scan: LinearScan[int] = LinearScan()
    for id in range(draw.randint(1, 60)):
        filter = parse(expression(draw, depth=2))
        index.insert(id, filter)
        scan.insert(id, filter)
    alive = list(range(len(index)))
    while alive:
        for _ in range(5):
            values = mixed_row(draw)
            assert index.match(values) == scan.match(values)
        for id in draw.sample(alive, min(len(alive), 7)):
            alive.remove(id)
            index.remove(id)
            scan.remove(id)
    assert index.match({}) == []
    assert len(index) == len(scan) == 0


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_rows_filed_by_what_was_published_match_alike(seed: int) -> None:
    """Publications have other attributes from time to time; filters come and go meanwhile."""
    draw = random.Random(seed)
    index: Index[int] = Index()
    index.compile()
    scan: LinearScan[int] = LinearScan()
    table = index._table
    assert isinstance(table, Compiled)
    count = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_WINDOWED_AT", 0)
        for _ in range(4):
            names = draw.sample(sorted(row(draw)), draw.randint(0, 3))
            published = [
                {name: value for name, value in mixed_row(draw).items() if name in names}
                for _ in range(10)
            ]
            for _ in range(draw.choice([0, 150, 8_000])):
                for values in published:
                    table.match(values)
            for _ in range(draw.randint(1, 60)):
                filter = parse(expression(draw, depth=2))
                index.insert(count, filter)
                scan.insert(count, filter)
                count += 1
            for id in range(count):
                if id in scan and draw.random() < 0.1:
                    index.remove(id)
                    scan.remove(id)
            if draw.random() < 0.5:
                table._refile()
            for values in [*published, *(mixed_row(draw) for _ in range(10))]:
                assert index.match(values) == scan.match(values), values


class Churn(RuleBasedStateMachine):
    """Filters come and go in bursts; the table is compiled, refiled and renumbered at any time."""

    @initialize(seed=seeds, large=st.booleans())
    def begin(self, seed: int, large: bool) -> None:
        self.patch = pytest.MonkeyPatch()
        if large:  # As if there were enough rows for windows, and for two codes at once.
            self.patch.setattr(compiled, "_WINDOWED_AT", 0)
            self.patch.setattr(compiled, "_COUPLED_ROWS", 0)
            self.patch.setattr(compiled, "_COUPLED_VALUES", 1)
        self.index: Index[Any] = Index()
        self.scan: LinearScan[Any] = LinearScan()
        self.draw = random.Random(seed)
        self.alive: list[Any] = []
        self.count = 0

    @property
    def table(self) -> Compiled[Any] | None:
        table = self.index._table
        return table if isinstance(table, Compiled) else None

    @rule(many=st.integers(min_value=1, max_value=60), same=st.booleans(), named=st.booleans())
    def insert(self, many: int, same: bool, named: bool) -> None:
        one = parse(wild_expression(self.draw))
        for _ in range(many):
            id: Any = f"f{self.count}" if named and self.count % 50 == 49 else self.count
            filter = one if same else parse(wild_expression(self.draw))
            self.count += 1
            self.alive.append(id)
            self.index.insert(id, filter)
            self.scan.insert(id, filter)

    @rule(share=st.sampled_from([0.05, 0.3, 0.9, 1.0]))
    def remove(self, share: float) -> None:
        for id in self.draw.sample(self.alive, int(len(self.alive) * share)):
            self.alive.remove(id)
            self.index.remove(id)
            self.scan.remove(id)

    @rule()
    def compile(self) -> None:
        self.index.compile()

    @precondition(lambda self: self.table is not None)
    @rule(renumber=st.booleans())
    def refile(self, renumber: bool) -> None:
        table = self.table
        assert table is not None
        if renumber:
            table._renumber()
        else:
            table._refile()

    @rule()
    def match(self) -> None:
        for _ in range(3):
            values = wild_row(self.draw)
            expected = self.scan.match(values)
            assert self.index.match(values) == expected, values
            # What is no dict is described in Python and not in compiled code.
            assert self.index.match(MappingProxyType(values)) == expected, values
        assert len(self.index) == len(self.scan)

    def teardown(self) -> None:
        self.patch.undo()


TestChurn = pytest.mark.timeout(300)(Churn.TestCase)
TestChurn.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


def test_thousands_of_steps_on_one_table() -> None:
    """Long enough for blocks to fill, split into chains, empty and be used again."""
    draw = random.Random(5)
    index: Index[int] = Index()
    index.compile()
    scan: LinearScan[int] = LinearScan()
    texts = [wild_expression(draw) for _ in range(300)]
    filters = [parse(text) for text in texts]
    alive: list[int] = []
    for step in range(12_000):
        growing = (step // 3000) % 2 == 0
        if draw.random() < (0.8 if growing else 0.2) or not alive:
            filter = draw.choice(filters) if draw.random() < 0.7 else filters[0]
            index.insert(step, filter)
            scan.insert(step, filter)
            alive.append(step)
        else:
            place = draw.randrange(len(alive))
            alive[place], alive[-1] = alive[-1], alive[place]
            id = alive.pop()
            index.remove(id)
            scan.remove(id)
        if step % 60 == 0:
            values = wild_row(draw)
            expected = scan.match(values)
            assert index.match(values) == expected, (step, values)
            assert index.match(MappingProxyType(values)) == expected, (step, values)
