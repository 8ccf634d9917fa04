"""What the first `postroad demo` of an installation compiles, in all its processes, and how long.

The command runs with an empty cache of Numba's. Each Python process that it starts, Spark's workers
included, writes down what it compiled: per entry point, which is a function that Python calls, the
processor time with all that it calls. A call that waits for another process to compile the same
function compiles nothing. How long calls wait is not measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import postroad

LIMIT_S = 20.0

# Python runs a `sitecustomize.py` on its path at the start of every process.
LISTENER = """
import json
import os
import time

from numba.core import event

class Listener(event.Listener):
    def __init__(self):
        self.starts = []

    def on_start(self, compiling):
        self.starts.append((time.time(), time.process_time()))

    def on_end(self, compiling):
        begin, before_s = self.starts.pop()
        if not self.starts:
            function = compiling.data["dispatcher"].py_func
            row = {
                "name": f"{function.__module__}.{function.__qualname__}",
                "cpu_s": time.process_time() - before_s,
                "begin": begin,
                "end": time.time(),
            }
            with open(f"{os.environ['POSTROAD_COMPILED']}/{os.getpid()}", "a") as file:
                file.write(json.dumps(row) + "\\n")

event.register("numba:compile", Listener())
"""


def compiled(command: list[str]) -> list[dict[str, Any]]:
    """What `postroad` compiles for a command when nothing is in the cache."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("cache", "path", "rows"):
            (folder / part).mkdir()
        (folder / "path" / "sitecustomize.py").write_text(LISTENER)
        environment = os.environ | {
            "NUMBA_CACHE_DIR": str(folder / "cache"),
            "POSTROAD_COMPILED": str(folder / "rows"),
            "PYTHONPATH": f"{folder / 'path'}:{Path(postroad.__file__).parents[1]}",
        }
        subprocess.run(
            [sys.executable, "-m", "postroad", *command, "-o", str(folder / "report")],
            env=environment, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        lines = [line for file in (folder / "rows").iterdir() for line in file.open()]
    return [json.loads(line) for line in lines]


def during_s(rows: list[dict[str, Any]]) -> float:
    """By the clock, for how long some process compiled."""
    total_s = end = 0.0
    for row in sorted(rows, key=lambda row: float(row["begin"])):
        total_s += max(0.0, row["end"] - max(end, row["begin"]))
        end = max(end, row["end"])
    return total_s


def main() -> None:
    start = time.time()
    rows = compiled(["demo"])
    all_s = time.time() - start
    times = Counter(row["name"] for row in rows)
    print("compiling: what `postroad demo` compiles with an empty cache")
    print(f"{'entry point':<44}{'times':>7}{'CPU s':>9}")
    spent = {name: sum(row["cpu_s"] for row in rows if row["name"] == name) for name in times}
    for name, cpu_s in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"{name.removeprefix('postroad.'):<44}{times[name]:>7}{cpu_s:>9.2f}")
    print(f"{'all (the limit is ' + format(LIMIT_S, '.0f') + ')':<44}{len(rows):>7}", end="")
    print(f"{sum(spent.values()):>9.2f}")
    print(f"by the clock {during_s(rows):.0f} of {all_s:.0f} s some process compiled")
