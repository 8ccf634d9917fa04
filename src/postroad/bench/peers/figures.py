"""What a row of the comparison says of one system, and how it is shown.

`per_s` is throughput; `cpu_us` the CPU time of the system's own processes per unit of work; a
system in this process counts this process's. The ratio of a figure is ours to theirs in the row's
leading measure, turned so that above 1 means that ours is better.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OURS = "Postroad"

# Measures as they are titled, and whether more is better. The first that a row has leads it.
MEASURES = {
    "per_cpu_s": ("per CPU s", True),
    "per_s": ("per s", True),
    "p50_us": ("p50 µs", False),
    "p99_us": ("p99 µs", False),
    "p999_us": ("p99.9 µs", False),
    "cpu_us": ("CPU µs each", False),
    "cpu_s": ("CPU s", False),
    "memory_mb": ("memory MB", False),
    "bytes_each": ("bytes each", False),
}


@dataclass
class PeerFigure:
    system: str
    measures: dict[str, float] = field(default_factory=dict)
    note: str = ""  # why there are none, or what is different


@dataclass
class PeerRow:
    """One row of the comparison: a workload and what each system did with it."""

    name: str
    title: str
    leads: str  # the measure whose ratio is shown
    figures: list[PeerFigure]

    def ratio(self, figure: PeerFigure) -> float | None:
        """How many times better ours is, in the leading measure."""
        ours = next((f for f in self.figures if f.system == OURS), None)
        if ours is None or self.leads not in ours.measures or self.leads not in figure.measures:
            return None
        mine, theirs = ours.measures[self.leads], figure.measures[self.leads]
        if not mine or not theirs:
            return None
        return mine / theirs if MEASURES[self.leads][1] else theirs / mine

    def as_json(self) -> dict[str, Any]:
        rows = [{**asdict(figure), "ours_is_times": self.ratio(figure)} for figure in self.figures]
        return {"name": self.name, "title": self.title, "leads": self.leads, "systems": rows}


def show(table: PeerRow) -> str:
    present = [m for m in MEASURES if any(m in f.measures for f in table.figures)]
    titles = "".join(f"{MEASURES[m][0]:>13}" for m in present)
    lines = [f"{table.name}: {table.title}", f"  {'':<26}{titles}{'ours is':>14}"]
    for figure in table.figures:
        cells = "".join(f"{_number(figure.measures.get(m)):>13}" for m in present)
        ratio = table.ratio(figure)
        verdict = "" if ratio is None or figure.system == OURS else _verdict(ratio)
        lines.append(f"  {figure.system:<26}{cells}{verdict:>14}  {figure.note}".rstrip())
    return "\n".join(lines)


def summary(tables: Sequence[PeerRow]) -> str:
    """Wins and losses by name."""
    better: list[str] = []
    worse: list[str] = []
    for table in tables:
        for figure in table.figures:
            ratio = table.ratio(figure)
            if ratio is not None and not figure.system.startswith(OURS):
                (better if ratio >= 1 else worse).append(f"{table.name} {figure.system}")
    return f"ahead in {len(better)}, behind in {len(worse)}: {', '.join(worse) or 'none'}"


def _verdict(ratio: float) -> str:
    return f"{ratio:,.2f} x" if ratio < 100 else f"{ratio:,.0f} x"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.0f}"


def percentiles(latencies_us: Sequence[float]) -> dict[str, float]:
    ordered = sorted(latencies_us)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return {"p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999)}


# Processes: a system may be several, each perhaps behind a script that started it.


def family(pids: Sequence[int]) -> list[int]:
    """The processes and all their descendants."""
    members, todo = [], list(pids)
    while todo:
        pid = todo.pop()
        members.append(pid)
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):  # a thread that has ended
                todo += map(int, children.read_text().split())
    return members


def cpu_s(pids: Sequence[int]) -> float:
    total = 0
    for pid in family(pids):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(words[11]) + int(words[12])
    return total / os.sysconf("SC_CLK_TCK")


def memory_mb(pids: Sequence[int]) -> float:
    total = 0
    for pid in family(pids):
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return total / 1024
