"""The full reproduction's way: Kyra's points as cases of a Spark sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import single_runs
from postroad.papers.kyra import runs
from postroad.pipeline.run import Job, cases

pytestmark = pytest.mark.spark
ENTRY = "postroad.papers.kyra.runs:sweep_case"
POINTS: list[dict[str, Any]] = [
    {"kind": "compare", "topology": 0, "seed": 3, "servers": 20, "distribution": "zipf",
     "rate": 0.1, "schemes": schemes}
    for schemes in ("fbr kyra mbr", "unicast broadcast")
]  # fmt: skip


def test_points_of_a_sweep_are_those_of_the_pool(spark: Any, tmp_path: Path) -> None:
    """That a sweep goes on where it was is tested with the comparison, which runs the same way."""
    bad = {**POINTS[0], "rate": 0.2}  # there is no configuration for this rate
    *found, failed = cases(ENTRY, [*POINTS, bad], str(tmp_path / "sweep"), Job())
    assert failed[1] == "KeyError: 0.2"
    alone = single_runs.metrics_of(spark, runs.run_point, POINTS)
    for point, wanted, (metrics, error) in zip(POINTS, alone, found, strict=True):
        assert error is None
        assert metrics == {name: value for name, value in wanted.items() if name not in point}
