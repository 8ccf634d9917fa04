"""What processes compile at the same time into one cache, and what the compiler is told."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from postroad.jit import has_columns, natural, njit

SOURCE = Path(__file__).parents[2] / "src"
KERNELS = """
from postroad.jit import inner, njit

@inner()
def half(value):
    return value / 2

@njit(cache=True)
def kernel(value):
    total = half(value)
    for number in range(100):
        total += number * value
    return total

@njit(cache=True)
def wrong(value):
    return value.nothing
"""
CALLS = """
import os
import signal
import sys
from numba.core import errors, event
import kernels

stops = False

class Starts(event.Listener):
    def on_start(self, what):
        global stops
        print("compiles", what.data["dispatcher"].py_func.__name__, flush=True)
        if stops:
            stops = False
            os.kill(os.getpid(), signal.SIGSTOP)
    def on_end(self, what):
        pass

event.register("numba:compile", Starts())
print("ready", flush=True)
for call in sys.stdin:
    stops = call.startswith("stop ")
    call = call.removeprefix("stop ")
    try:
        print(eval(call), flush=True)
    except errors.TypingError:
        print("not compiled", flush=True)
"""


class Caller:
    """A process that calls what it is told to, and says what it compiles for it."""

    def __init__(self, folder: Path) -> None:
        paths = f"{SOURCE}:{folder}"
        environment = {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(folder / "cache")}
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", CALLS], env=os.environ | environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def call(self, text: str, stop: bool = False) -> None:
        """With `stop` the process stops as soon as it compiles something."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{'stop ' if stop else ''}kernels.{text}\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def lines(self, last: str) -> list[str]:
        """What is said until then."""
        lines = [self.line()]
        while lines[-1] not in (last, ""):
            lines.append(self.line())
        return lines

    def is_silent(self, seconds: float) -> bool:
        return not select.select([self.process.stdout], [], [], seconds)[0]

    def resume(self) -> None:
        """Let it go on, once it has stopped."""
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def callers(tmp_path: Path) -> Iterator[Callable[[int], list[Caller]]]:
    (tmp_path / "kernels.py").write_text(KERNELS)
    processes: list[Caller] = []

    def start(count: int) -> list[Caller]:
        started = [Caller(tmp_path) for _ in range(count)]
        processes.extend(started)
        assert [one.line() for one in started] == ["ready"] * count
        return started

    yield start
    for one in processes:
        one.kill()


def test_what_one_compiles_another_waits_for_and_loads(
    callers: Callable[[int], list[Caller]],
) -> None:
    first, second = callers(2)
    first.call("kernel(2)", stop=True)
    assert first.line() == "compiles kernel"
    second.call("kernel(2)")
    assert second.is_silent(1.0)
    first.resume()
    assert first.lines("9901.0") == ["compiles half", "9901.0"]
    assert second.lines("9901.0") == ["9901.0"]


def test_code_for_different_types_is_not_exchanged(
    callers: Callable[[int], list[Caller]],
) -> None:
    calls = {"kernel(2)": "9901.0", "kernel(3.5)": "17326.75"}
    for compiles in (True, False):
        for one, (call, _) in zip(pair := callers(2), calls.items(), strict=True):
            one.call(call)
        for one, result in zip(pair, calls.values(), strict=True):
            assert len(one.lines(result)) == (3 if compiles else 1)


def test_a_process_that_dies_gives_its_turn_to_the_next(
    callers: Callable[[int], list[Caller]],
) -> None:
    first, second = callers(2)
    first.call("kernel(2)", stop=True)
    assert first.line() == "compiles kernel"
    second.call("kernel(2)")
    assert second.is_silent(1.0)
    first.kill()
    assert second.lines("9901.0") == ["compiles kernel", "compiles half", "9901.0"]


def test_what_cannot_be_compiled_is_not_waited_for(
    callers: Callable[[int], list[Caller]],
) -> None:
    for one in callers(2):
        one.call("wrong(1)")
        assert one.lines("not compiled") == ["compiles wrong", "not compiled"]


def test_what_the_compiler_is_told_changes_no_result() -> None:
    @njit
    def middle(table, row):  # type: ignore[no-untyped-def]
        has_columns(table, 3)
        return table[natural(row), 1]

    table = np.arange(12).reshape(4, 3)
    assert [middle(table, row) for row in range(4)] == [1, 4, 7, 10]
