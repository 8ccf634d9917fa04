"""The compiled draws are the reference draws, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from postroad import draws
from postroad.kernels import draws as compiled

words = st.integers(min_value=0, max_value=2**63 - 1)
seeds = st.integers(min_value=-(2**63), max_value=2**64 - 1)


@given(seeds, st.text(max_size=12), words, words)
def test_bits_and_uniforms_are_equal(seed: int, purpose: str, node: int, n: int) -> None:
    start = compiled.base(seed, purpose)
    assert int(compiled.bits(start, node, n)) == draws.bits(seed, purpose, node, n)
    assert compiled.uniform(start, node, n) == draws.uniform(seed, purpose, node, n)


@given(st.integers(min_value=1, max_value=2**32 - 1), seeds, words, words)
def test_bounded_integers_are_equal(bound: int, seed: int, node: int, n: int) -> None:
    start = compiled.base(seed, "bounded")
    assert compiled.below(bound, start, node, n) == draws.below(bound, seed, "bounded", node, n)


def test_an_array_of_uniforms_holds_each_node_s_own() -> None:
    values = compiled.uniforms(compiled.base(3, "many"), 50, 9)
    assert values.tolist() == [draws.uniform(3, "many", node, 9) for node in range(50)]
    assert len(np.unique(values)) == 50
