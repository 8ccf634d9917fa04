"""A benchmark of this version beside an older one's: `python -m postroad.bench NAME --against REF`.

The older version is checked out into a temporary folder, with the benchmarks of this one. Both run
in turn, several times; of each number that both print in the same place the medians are compared.
`!` marks those that differ by more than a tenth: whether that is better, the line says. Of how cost
grows the exponents are compared, by their difference, and where time goes is not looked at.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from postroad.bench import growth

NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
TENTH = 1.1


@dataclass(frozen=True)
class Pair:
    """The medians of a number in both versions."""

    line: str  # of the newer one
    old: float
    new: float

    @property
    def ratio(self) -> float:
        return self.new / self.old if self.old else float("nan")

    @property
    def marked(self) -> bool:
        return not 1 / TENTH <= self.ratio <= TENTH


def numbers(line: str) -> list[float]:
    return [float(word.replace(",", "")) for word in NUMBER.findall(line)]


def skeleton(line: str) -> str:
    """A line without its numbers: what it tells of."""
    return " ".join(NUMBER.sub("#", line).split())


def pairs(old: Sequence[str], new: Sequence[str]) -> list[list[Pair]]:
    """Per line that both versions print, its numbers; texts are of the same benchmark, in turns.

    A label that is a number, such as a size, is the same in all texts and is left out.
    """
    sides = [[_lines(text) for text in texts] for texts in (old, new)]
    compared = []
    for key, (line, _) in sides[1][0].items():
        if not all(key in each for side in sides for each in side):
            continue
        columns = [list(zip(*(each[key][1] for each in side), strict=True)) for side in sides]
        row = [
            Pair(line, statistics.median(before), statistics.median(after))
            for before, after in zip(*columns, strict=True)
            if len({*before, *after}) > 1
        ]
        if row:
            compared.append(row)
    return compared


def _lines(text: str) -> dict[tuple[str, int], tuple[str, list[float]]]:
    """Lines with numbers, by what they tell of and the how manieth of that they are."""
    seen: dict[str, int] = {}
    lines = {}
    for line in text.splitlines():
        before, grows, after = line.partition(growth.WORDS)
        values = numbers(after)[:1] if grows else numbers(before)
        if values:
            key = skeleton(line)
            seen[key] = seen.get(key, 0) + 1
            lines[key, seen[key]] = (line, values)
    return lines


def show(compared: list[list[Pair]]) -> str:
    lines = []
    for row in compared:
        change = "new to old: "
        change += "  ".join(f"{pair.ratio:.2f}{'!' if pair.marked else ''}" for pair in row)
        if growth.WORDS in row[0].line:
            change = f"new less old: {row[0].new - row[0].old:+.2f}"
        lines.append(f"{row[0].line.rstrip()}\n      {change}")
    return "\n".join(lines)


def run(part: str, ref: str, times: int) -> str:
    """Both versions in turn; the comparison as text."""
    here = Path(__file__).parents[3]
    with tempfile.TemporaryDirectory() as scratch:
        older = Path(scratch) / "older"
        git = ["git", "-C", str(here)]
        added = subprocess.run(
            [*git, "worktree", "add", "--detach", str(older), ref], capture_output=True, text=True
        )
        if added.returncode:
            sys.exit(f"bench: cannot check out {ref}: {added.stderr.strip()}")
        try:
            bench = Path("src", "postroad", "bench")
            shutil.copytree(here / bench, older / bench, dirs_exist_ok=True)
            texts: tuple[list[str], list[str]] = ([], [])
            for _ in range(times):
                for source, side in ((older / "src", texts[0]), (here / "src", texts[1])):
                    side.append(_output(part, source))
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(older)], check=False)
    compared = pairs(*texts)
    if not compared:
        sys.exit(f"bench: {part} of {ref} prints nothing that could be compared")
    return show(compared)


def _output(part: str, source: Path) -> str:
    command = [sys.executable, "-m", "postroad.bench", part, "--no-where"]
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(source)}
    )
    if ran.returncode:
        sys.exit(f"bench: {part} does not run with the version in {source}")
    return ran.stdout
