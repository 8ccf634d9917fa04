"""The same scenario and seed give the same bytes, whatever the hash seed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from postroad.routing import SCHEMES

COMMAND = [sys.executable, "-c", "from postroad.cli import main; main()", "simulate"]
ROOT = Path(__file__).parents[3]
SCENARIO = """
scheme = "{scheme}"
seed = 11
[overlay]
kind = "random_tree"
brokers = 20
latency_us = 3000
[brokers]
rate_per_s = 5000
[workload.generate]
subscriptions = 60
publications = 60
churn = 0.5
[[faults]]
kind = "crash"
broker = "3"
start = 0.1
end = 0.2
[[faults]]
kind = "link_loss"
link = ["0", "1"]
share = 0.2
start = 0.3
end = 0.4
"""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_trace_does_not_depend_on_the_hash_seed(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(SCENARIO.format(scheme=scheme))
    traces = []
    for hash_seed in ("1", "2"):
        subprocess.run(
            [*COMMAND, "scenario.toml", "--json", "--trace", f"{hash_seed}.txt"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            timeout=60,
        )
        traces.append((tmp_path / f"{hash_seed}.txt").read_bytes())
    assert traces[0] == traces[1]
    assert len(traces[0]) > 10_000
