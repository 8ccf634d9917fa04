"""What fuzzing found stays found: every kept input, into the target that it was found with."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroad.bench import fuzz
from postroad.bench.fuzz_targets import TARGETS, seeds

CORPUS = Path(__file__).parents[2] / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_no_kept_input_breaks_its_target(name: str) -> None:
    inputs = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    assert inputs
    for data in [*inputs, *seeds(name), b""]:
        TARGETS[name](data)


def test_fewest_inputs_that_reach_as_much_are_kept() -> None:
    inputs = [b"a > 1", b"a > 2", b"a IN (1, 2) AND b LIKE 'x%'", b"a >"]
    chosen, lines = fuzz.fewest(TARGETS["filter"], inputs)
    assert lines > 100
    assert 2 <= len(chosen) < len(inputs)
    assert tuple(TARGETS) == fuzz.NAMES
