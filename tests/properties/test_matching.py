"""The index equals the linear scan, whatever came and went before."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from filter_texts import expression, row
from postroad.filters import parse
from postroad.matching import Index, LinearScan


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=300, deadline=None)
def test_index_equals_linear_scan(seed: int) -> None:
    draw = random.Random(seed)
    index: Index[int] = Index()
    scan: LinearScan[int] = LinearScan()
    for id in range(draw.randint(1, 60)):
        filter = parse(expression(draw, depth=2))
        index.insert(id, filter)
        scan.insert(id, filter)
    alive = list(range(len(index)))
    while True:
        for _ in range(5):
            values = row(draw)
            if draw.random() < 0.3:  # A type mismatch: every attribute gets another's value.
                values = dict(zip(values, draw.sample(list(values.values()), 6), strict=True))
            assert index.match(values) == scan.match(values)
        if not alive:
            break
        for id in draw.sample(alive, min(len(alive), 7)):
            alive.remove(id)
            index.remove(id)
            scan.remove(id)
            if draw.random() < 0.3:
                again = parse(expression(draw, depth=1))
                index.insert(id, again)
                scan.insert(id, again)
                index.remove(id)
                scan.remove(id)
    assert len(index) == len(scan) == 0
