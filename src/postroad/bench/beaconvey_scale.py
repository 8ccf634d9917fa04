"""The two SWICO planners from 10,000 to 1,000,000 nodes, through the command.

Per size and planner: seconds of the clock from start to the written overlay, processor time and the
most memory of the command and its Spark together, both looked at twice a second, and TcoSuppR.
20 topics a node, as many topics as nodes. The exact planner is run up to `EXACT_MAX` nodes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
from pyarrow import parquet

from postroad.bench import growth
from postroad.workloads.topics import synthetic

SIZES = (10_000, 100_000, 1_000_000)
EXACT_MAX = {"unif": 1_000_000, "zipf": 100_000}
EVERY_S = 0.5


def write(kind: str, nodes: int, path: Path) -> None:
    wanted = synthetic(kind, nodes, nodes, 20, 1)
    columns = {"node": np.repeat(np.arange(nodes), 20), "topic": wanted.topics}
    parquet.write_table(arrow.table(columns), path)


def look(process: int, spent_s: dict[int, float]) -> int:
    """What a process and those it started hold in memory; their processor time so far is noted."""
    try:
        held = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
        fields = (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
        started = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    spent_s[process] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    mine = [int(line.split()[1]) for line in held.splitlines() if line.startswith("VmRSS:")]
    return 1024 * sum(mine) + sum(look(int(each), spent_s) for each in started.split())


def plan(path: Path, *options: str) -> tuple[dict[str, Any], float, float, int]:
    """What the command says, its seconds of the clock and of processors, and its most memory."""
    command = [sys.executable, "-c", "from postroad.cli import main; main()", "plan", "swico"]
    command += ["--interests", str(path), "-o", str(path.with_suffix(".json")), "--json"]
    began = time.perf_counter()
    most = 0
    spent_s: dict[int, float] = {}
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as running:
        while running.poll() is None:
            most = max(most, look(running.pid, spent_s))
            time.sleep(EVERY_S)
        assert running.stdout is not None
        said = json.loads(running.stdout.read())
    return said, time.perf_counter() - began, sum(spent_s.values()), most


def main() -> None:
    print("beaconvey-scale: postroad plan swico on Parquet, approximate (local[*]) and exact")
    heading = f"{'interests':<10}{'nodes':>10}  {'planner':<12}{'seconds':>8}{'CPU s':>8}{'GB':>7}"
    print(f"{heading}{'TcoSuppR':>10}")
    with tempfile.TemporaryDirectory(prefix="postroad-bench-") as scratch:
        for kind in ("unif", "zipf"):
            costs: dict[str, list[float]] = {"approximate": [], "exact": []}
            for nodes in SIZES:
                path = Path(scratch) / f"{kind}-{nodes}.parquet"
                write(kind, nodes, path)
                for planner, options in (("approximate", ["--approximate"]), ("exact", [])):
                    if planner == "exact" and nodes > EXACT_MAX[kind]:
                        continue
                    said, seconds, spent_s, most = plan(path, *options)
                    costs[planner].append(spent_s)
                    line = f"{kind:<10}{nodes:>10,}  {planner:<12}{seconds:>8.0f}{spent_s:>8.0f}"
                    line += f"{most / 1e9:>7.1f}{said['tco_support']:>10.4f}"
                    print(line, flush=True)
            for planner, spent in costs.items():
                expected = "2" if (kind, planner) == ("zipf", "exact") else "1"
                what = f"{kind}, {planner}: processor time"
                print(f"  {growth.said(what, SIZES[: len(spent)], spent, expected)}", flush=True)
