"""The same scenario and seed give the same bytes, whatever the hash seed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from postroad.routing import SCHEMES

# One process for all schemes: to start one takes longer than to simulate.
RUNS = """
import sys
from postroad.cli import cli

for scheme in sys.argv[2:]:
    trace = f"{scheme}-{sys.argv[1]}.txt"
    cli.main(["simulate", f"{scheme}.toml", "--json", "--trace", trace], standalone_mode=False)
"""
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


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two traces of each scheme."""
    folder = tmp_path_factory.mktemp("traces")
    for scheme in SCHEMES:
        (folder / f"{scheme}.toml").write_text(SCENARIO.format(scheme=scheme))
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", RUNS, hash_seed, *SCHEMES],
            cwd=folder,
            env={"PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert ran.returncode == 0, ran.stderr
    return folder


@pytest.mark.parametrize("scheme", SCHEMES)
def test_trace_does_not_depend_on_the_hash_seed(scheme: str, traces: Path) -> None:
    first, second = ((traces / f"{scheme}-{seed}.txt").read_bytes() for seed in "12")
    assert first == second
    assert len(first) > 10_000
