"""`python -m postroad.bench.fuzz [target …] [--seconds N]`: coverage-guided fuzzing with atheris.

Each target is fuzzed in a process of its own, from the inputs kept in the corpus folder. New inputs
that reach new lines join it, as few as do; one that raises is written there too, and the command
ends with exit code 1. Coverage is that of our own Python; msgspec and the Rust core of mqtt5 are
seen from outside only. Needs atheris: pip install 'postroad[fuzz]'.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

CORPUS = Path(__file__).resolve().parents[3] / "tests" / "corpus"
NAMES = ("filter", "mqtt3", "mqtt5", "frames", "client", "peer")
KEPT = 10  # inputs of each target, those of crashes not counted
LENGTH_MAX = 512
# Not postroad.matching: Numba cannot compile functions that were instrumented.
INSTRUMENTED = ["postroad.filters", "postroad.live", "postroad.routing"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m postroad.bench.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=int, default=60, help="per target")
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)  # the fuzzing process
    options = parser.parse_args()
    unknown = [name for name in options.targets if name not in NAMES]
    if unknown:
        parser.error(f"no target {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    if options.inside is not None:
        fuzz(options.targets[0], options.inside, options.seconds)
        return
    failed = [
        name for name in options.targets or NAMES if not run(name, options.seconds, options.corpus)
    ]
    if failed:
        sys.exit(f"fuzz: {', '.join(failed)} raised; the inputs are in {options.corpus}")


def fuzz(name: str, folder: Path, seconds: int) -> None:
    """Never returns: libFuzzer ends the process."""
    try:
        import atheris
    except ImportError:
        sys.exit("fuzz: atheris is missing; pip install 'postroad[fuzz]'")
    with atheris.instrument_imports(include=INSTRUMENTED):
        from postroad.bench.fuzz_targets import TARGETS
    logging.disable()
    options = [f"-max_total_time={seconds}", f"-artifact_prefix={folder}/found-"]
    options += [f"-max_len={LENGTH_MAX}", "-timeout=20", "-print_final_stats=1", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(folder)], TARGETS[name])
    atheris.Fuzz()


def run(name: str, seconds: int, corpus: Path) -> bool:
    """Fuzz one target and keep what is new; False if it raised."""
    from postroad.bench.fuzz_targets import TARGETS, seeds

    logging.disable()
    kept = corpus / name
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        old = [path.read_bytes() for path in sorted(kept.iterdir())]
        for number, data in enumerate([*old, *seeds(name)]):
            (folder / f"{number}").write_bytes(data)
        command = [sys.executable, "-m", "postroad.bench.fuzz", name]
        command += ["--seconds", str(seconds), "--inside", str(folder)]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode and not list(folder.glob("found-*")):
            sys.exit(done.stderr.strip())
        crashes = [path.read_bytes() for path in sorted(folder.glob("found-*"))]
        inputs = [p.read_bytes() for p in sorted(folder.iterdir()) if p.stat().st_size]
    before = kept_crashes(kept)
    chosen, lines = fewest(TARGETS[name], [i for i in inputs if i not in [*crashes, *before]])
    for path in kept.iterdir():
        path.unlink()
    for data in chosen:
        (kept / digest(data)).write_bytes(data)
    for data in [*before, *crashes]:
        (kept / f"crash-{digest(data)}").write_bytes(data)
    stats = dict(
        line.removeprefix("stat::").split(":") for line in done.stderr.splitlines()
        if line.startswith("stat::")
    )  # fmt: skip
    runs = stats.get("number_of_executed_units", "?").strip()
    print(
        f"{name}: {runs} inputs run, {len(inputs)} of interest, "
        f"{len(chosen)} kept that reach {lines} lines, {len(crashes)} raised"
    )
    for line in done.stderr.splitlines() if crashes else []:
        if not line.startswith(("stat::", "INFO")):
            print(f"    {line}")
    return not crashes


def kept_crashes(kept: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(kept.glob("crash-*"))]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def fewest(target: Callable[[bytes], None], inputs: list[bytes]) -> tuple[list[bytes], int]:
    """The inputs that reach most lines of ours, greedily, and how many lines they reach."""
    for data in inputs:  # what is done once and for all counts for none of them
        target(data)
    reached = {data: lines_of(target, data) for data in sorted(inputs, key=len)}
    chosen: list[bytes] = []
    seen: set[tuple[str, int]] = set()
    while len(chosen) < KEPT and reached:
        best = max(reached, key=lambda data: len(reached[data] - seen))
        if not reached[best] - seen:
            break
        chosen.append(best)
        seen |= reached.pop(best)
    return chosen, len(seen)


def lines_of(target: Callable[[bytes], None], data: bytes) -> set[tuple[str, int]]:
    lines: set[tuple[str, int]] = set()

    def see(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if "postroad" not in name:
            return None
        lines.add((name, frame.f_lineno))
        return see

    sys.settrace(see)
    try:
        target(data)
    finally:
        sys.settrace(None)
    return lines


if __name__ == "__main__":
    main()
