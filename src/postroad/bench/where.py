"""Where the time of a benchmark goes: CPU seconds by process, and the functions they go to.

A part runs in a process of its own, as it would alone. Beside it this one reads the CPU times of
it and of all that it starts from /proc, five times a second, and py-spy looks at the stacks of
those that are Python. py-spy stops nobody for that and takes a twentieth of a core, with many
brokers a tenth, which is a row of the table; a look that meets a changing stack is lost. A sample
counts for the innermost function of `postroad` on the stack, so that compiled code and libraries
count for their caller; what is sampled while a module is imported counts for `<module>`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

EVERY_S = 0.2
SAMPLES_PER_S = 25
ROWS = 8
LEAST_S = 0.05  # which a process must take to have a row
STACK = re.compile(r"^(process \d+:\".*?) (\d+)$", re.DOTALL | re.MULTILINE)
PROCESS = re.compile(r'process (\d+):"')
FRAME = re.compile(r"([^;]+) \(postroad/([\w/]+)\.py\)")
ABSENT = "py-spy is not installed (pip install 'postroad[bench]')"
BLIND = (
    "py-spy saw none: the part was too short, or it may not trace other processes here (run as "
    "root, give it CAP_SYS_PTRACE, or `sysctl kernel.yama.ptrace_scope=0`)"
)
ELSEWHERE = "outside postroad"


@dataclass
class Spent:
    """CPU seconds and the kind of each process that was seen, by its id and when it began."""

    cpu_s: dict[tuple[int, int], float] = field(default_factory=dict)
    kinds: dict[tuple[int, int], str] = field(default_factory=dict)

    def look(self, roots: Sequence[int]) -> None:
        """Note all there is of these processes and what they started; who has ended stays."""
        alive = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                alive.append((int(folder.name), *stat((folder / "stat").read_text())))
            except OSError:  # it has ended
                continue
        followed = {*roots, *(pid for pid, born, _, _ in alive if (pid, born) in self.cpu_s)}
        for pid, born, parent, cpu_s in sorted(alive, key=lambda each: (each[1], each[0])):
            if pid in followed or parent in followed:
                followed.add(pid)
                self.cpu_s[pid, born] = cpu_s
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
                except OSError:
                    continue
                if words[0]:  # one that has just ended has none
                    self.kinds[pid, born] = kind(words)

    def by_kind(self) -> list[tuple[str, int, float]]:
        """What the processes are, how many, and their CPU seconds together, the most first."""
        each_s: dict[str, list[float]] = {}
        for key, cpu_s in self.cpu_s.items():
            each_s.setdefault(self.kinds.get(key, "?"), []).append(cpu_s)
        rows = [(name, len(spent), sum(spent)) for name, spent in each_s.items()]
        return sorted(rows, key=lambda row: -row[2])


def stat(text: str) -> tuple[int, int, float]:
    """When a process began (in ticks of the clock), its parent and its CPU seconds, from its
    `/proc/PID/stat`."""
    words = text.rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return int(words[19]), int(words[1]), (int(words[11]) + int(words[12])) / ticks


def kind(words: Sequence[str]) -> str:
    """What a process is to a reader, from the words of its command."""
    program = Path(words[0]).name
    text = " ".join(words)
    if "broker" in words and "--id" in words:
        return f"broker {words[words.index('--id') + 1]}"
    if program == "java":
        return "Java (Spark)"
    if "pyspark.daemon" in words:
        return "Python workers (Spark)"
    if "multiprocessing" in text or "postroad.bench" in words:
        return "benchmark"
    if "postroad.cli" in text or "postroad" in words:
        return "postroad command"
    return words[words.index("-m") + 1] if "-m" in words else program


def among(name: str) -> str:
    """The kind with which a process shares its functions: all brokers are one."""
    return "brokers" if name.startswith("broker ") else name


def functions(stacks: str, kinds: Mapping[int, str]) -> Counter[tuple[str, str]]:
    """Samples by kind of process and function, from py-spy's raw stacks: one to a line, with the
    processes that lead to it before its frames and how often it was seen behind them. The command
    of a process may itself have lines."""
    seen: Counter[tuple[str, str]] = Counter()
    for stack, count in STACK.findall(stacks):
        processes = list(PROCESS.finditer(stack))
        if not processes:
            continue
        frames = FRAME.findall(stack, processes[-1].end())
        name = ELSEWHERE
        if frames:
            function, module = frames[-1]
            name = f"{module.replace('/', '.')}.{function.partition('.<locals>')[0]}"
        seen[among(kinds.get(int(processes[-1][1]), "?")), name] += int(count)
    return seen


def show(spent: Sequence[tuple[str, int, float]], seen: Counter[tuple[str, str]], why: str) -> str:
    """The table; `why` says what there is instead of functions where there are none.

    A function has as much of the CPU time of its kind of process as it has of the samples there: a
    process that waits may be sampled more often than its CPU time is worth.
    """
    all_s = sum(cpu_s for _, _, cpu_s in spent) or 1.0
    lines = ["  where the time went: CPU seconds by process"]
    lines += [
        f"    {cpu_s / all_s:>4.0%} {cpu_s:>8.1f}  {name}{f', {count} of them' * (count > 1)}"
        for name, count, cpu_s in spent[:ROWS]
        if cpu_s >= LEAST_S
    ]
    if not seen:
        return "\n".join([*lines, f"  functions: {why}"])
    samples: Counter[str] = Counter()
    for (who, _), count in seen.items():
        samples[who] += count
    cpu = {who: sum(cpu_s for name, _, cpu_s in spent if among(name) == who) for who in samples}
    shares = {
        (who, name): cpu[who] / all_s * count / samples[who] for (who, name), count in seen.items()
    }
    lines.append(
        f"  by function of ours, with what it calls that is not ours; {seen.total():,} samples"
    )
    lines += [
        f"    {share:>4.0%}  {who}: {name}"
        for (who, name), share in sorted(shares.items(), key=lambda each: -each[1])[:ROWS]
    ]
    return "\n".join(lines)


def watched(command: Sequence[str]) -> tuple[int, str]:
    """Run a command; its exit code, and where its time and that of all it started went."""
    spy = shutil.which(
        "py-spy", path=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()])
    )
    with tempfile.TemporaryDirectory() as scratch:
        stacks = Path(scratch, "stacks")
        running = subprocess.Popen(command)
        before = signal.signal(signal.SIGTERM, lambda *_: running.terminate())
        looking = None
        if spy is not None:
            options = ["--subprocesses", "--nonblocking", "--nolineno", "--format", "raw"]
            options += ["--rate", str(SAMPLES_PER_S), "--output", str(stacks)]
            asked = [spy, "record", *options, "--pid", str(running.pid)]
            quiet = subprocess.DEVNULL
            looking = subprocess.Popen(asked, stdout=quiet, stderr=quiet)
        roots = [each.pid for each in (running, looking) if each is not None]
        spent = Spent()
        ended = os.WEXITED | os.WNOWAIT | os.WNOHANG  # and stays, so that it can be looked at
        while os.waitid(os.P_PID, running.pid, ended) is None:
            spent.look(roots)
            time.sleep(EVERY_S)
        spent.look(roots)
        code = running.wait()
        signal.signal(signal.SIGTERM, before)
        if looking is not None:
            looking.send_signal(signal.SIGINT)  # it writes what it has
            try:
                looking.wait(30)
            except subprocess.TimeoutExpired:
                looking.kill()
                looking.wait()
        kinds = {pid: name for (pid, _), name in spent.kinds.items()}
        seen = functions(stacks.read_text() if stacks.exists() else "", kinds)
    return code, show(spent.by_kind(), seen, ABSENT if spy is None else BLIND)


def run(part: str) -> None:
    """One part as a process of its own, and where its time went."""
    code, text = watched([sys.executable, "-m", "postroad.bench", part, "--no-where"])
    if code:
        sys.exit(f"bench: {part} ended with {code}")
    print(text, flush=True)
