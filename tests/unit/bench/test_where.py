"""Where the time of a benchmark goes: what is read from /proc and from py-spy, and a real run."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from postroad.bench import where

STACKS = """\
process 7:"python -c a; b";main (postroad/bench/live.py);flow (postroad/bench/live.py) 4
process 7:"python -c a; b";process 8:"python -m x";run (postroad/live/loop.py);wait (selectors.py) 3
process 7:"python -c a; b";process 9:"python -m x";Loop.run.<locals>.turn (postroad/live/loop.py) 2
process 7:"python -c a; b";main (postroad/bench/live.py);process 9:"python -m x";wait (queue.py) 1
process 7:"python -c a; b";process 8:"python -c from x import (
    y, z
)";run (postroad/live/loop.py) 6

"""
KINDS = {7: "benchmark", 8: "broker B0", 9: "broker B1"}


def test_a_sample_counts_for_the_innermost_function_of_ours_in_its_own_process() -> None:
    assert where.functions(STACKS, KINDS) == {
        ("benchmark", "bench.live.flow"): 4,
        ("brokers", "live.loop.run"): 9,
        ("brokers", "live.loop.Loop.run"): 2,
        ("brokers", where.ELSEWHERE): 1,
    }


def test_a_name_with_blanks_and_brackets_does_not_shift_what_is_read_of_a_process() -> None:
    fields = "S 41 1 1 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 4 0 8800 1 1"
    born, parent, cpu_s = where.stat(f"42 (a (b) c) {fields}")
    assert (born, parent) == (8800, 41)
    assert cpu_s == pytest.approx(300 / os.sysconf("SC_CLK_TCK"))


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("/x/python -m postroad broker --network n.toml --id B7", "broker B7"),
        ("/usr/lib/jvm/bin/java -cp spark SparkSubmit", "Java (Spark)"),
        ("/x/python -m pyspark.daemon pyspark.worker", "Python workers (Spark)"),
        ("/x/python -m postroad.bench live --no-where", "benchmark"),
        ("/x/python -m postroad demo", "postroad command"),
        ("/x/python -m postroad.bench.relay 4000", "postroad.bench.relay"),
        ("/usr/sbin/mosquitto -c mosquitto.conf", "mosquitto"),
    ],
)
def test_processes_are_named_by_what_they_do(command: str, kind: str) -> None:
    assert where.kind([*command.split(), ""]) == kind


def test_functions_share_the_cpu_time_of_their_kind_of_process() -> None:
    seen = Counter({("brokers", "a.b"): 1, ("brokers", "a.c"): 3, ("benchmark", "d.e"): 400})
    spent = [("broker B0", 1, 5.0), ("broker B1", 1, 3.0), ("benchmark", 1, 2.0)]
    text = where.show(spent, seen, "")
    assert [line.split() for line in text.splitlines()[-3:]] == [
        ["60%", "brokers:", "a.c"],
        ["20%", "brokers:", "a.b"],
        ["20%", "benchmark:", "d.e"],
    ]


def test_without_samples_the_table_says_why() -> None:
    text = where.show([("benchmark", 1, 2.0)], Counter(), where.ABSENT)
    assert "100%" in text
    assert text.endswith(where.ABSENT)


BUSY = """
import subprocess, sys, time
from postroad.filters import parse
if len(sys.argv) == 1:
    code = subprocess.run([sys.executable, __file__, "child"]).returncode
    sys.exit(3 if code == 0 else code)
until = time.process_time() + 1.5
while time.process_time() < until:
    parse("a > 5 AND b IN ('x', 'y')")
"""


def test_a_program_and_what_it_starts_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("there is no /proc here")
    program = tmp_path / "busy.py"
    program.write_text(BUSY)
    monkeypatch.setenv("PYTHONPATH", str(Path(where.__file__).parents[2]))
    code, text = where.watched([sys.executable, str(program)])
    assert code == 3
    busy = next(line.split() for line in text.splitlines() if "2 of them" in line)
    assert float(busy[1]) >= 1.0
    if where.ABSENT in text or where.BLIND in text:
        pytest.skip(text.splitlines()[-1].strip())
    assert ": filters." in text
