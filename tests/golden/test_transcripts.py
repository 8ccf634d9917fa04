"""Worked examples as readable transcripts. `make golden` rewrites them; explain the diff."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroad.routing import SCHEMES
from postroad.sim.oracle import compare
from postroad.sim.run import run
from postroad.sim.scenario import load
from postroad.sim.transcript import transcribe

HERE = Path(__file__).parent


@pytest.mark.parametrize("path", sorted(HERE.glob("*.toml")), ids=lambda path: path.stem)
def test_transcript_is_as_written(path: Path) -> None:
    scenario = load(path)
    lines: list[str] = []
    result = run(scenario, transcribe(lines.append, scenario.overlay.names), check=True)
    compare(scenario, [delivery[:2] for delivery in result.deliveries]).require()
    golden = path.with_suffix(".out")
    if os.environ.get("POSTROAD_GOLDEN") == "rewrite":
        golden.write_text("".join(lines), encoding="utf-8")
    assert "".join(lines) == golden.read_text(encoding="utf-8")


def test_every_scheme_has_a_transcript() -> None:
    assert {load(path).scheme for path in HERE.glob("*.toml")} == set(SCHEMES)
