"""A whole network as local processes: start, look at, stop.

Beside the network file `x.toml`, the folder `x.run` holds each broker's process id and log.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from postroad.errors import InputError, RunFailed
from postroad.live.network import Network

START_S = 60.0
STOP_S = 10.0  # beyond the time that brokers may take to drain


def folder_of(network: Network) -> Path:
    return network.path.with_suffix(".run")


def start(network: Network) -> None:
    """Start every broker as a process of its own; fails if one is running already."""
    running = [name for name in network.names if _alive(network, name)]
    if running:
        raise InputError(
            f"broker {', '.join(running)} of {network.name!r} is running already",
            remedy=f"stop it with: postroad network down {network.path}",
        )
    folder = folder_of(network)
    folder.mkdir(exist_ok=True)
    for name in network.names:
        command = [sys.executable, "-m", "postroad", "broker"]
        command += ["--network", str(network.path), "--id", name]
        with (folder / f"{name}.log").open("ab") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        (folder / f"{name}.pid").write_text(f"{process.pid}\n")


def wait(network: Network) -> Iterator[tuple[int, int]]:
    """Yields (ready, all) brokers until each runs and all its links are up."""
    deadline = time.monotonic() + START_S
    while True:
        told = status(network)
        for name in network.names:
            if told[name] is None and not _alive(network, name):
                log = folder_of(network) / f"{name}.log"
                lines = log.read_text(errors="replace").splitlines() if log.exists() else []
                stop(network)
                raise RunFailed(f"broker {name} ended: {lines[-1] if lines else f'see {log}'}")
        ready = sum(row is not None and _linked(row) for row in told.values())
        yield ready, len(network.names)
        if ready == len(network.names):
            return
        if time.monotonic() > deadline:
            raise RunFailed(f"after {START_S:.0f} s only {ready} of {len(told)} brokers are ready")
        time.sleep(0.1)


def _linked(row: dict[str, Any]) -> bool:
    return all(link["connected"] for link in row["links"].values() if link["neighbour"])


def status(network: Network) -> dict[str, dict[str, Any] | None]:
    """What each broker says of itself; None for one that does not answer."""
    return {
        name: _ask(address.http)
        for name, address in zip(network.names, network.addresses, strict=True)
    }


def _ask(port: int) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=2) as answer:
            told: dict[str, Any] = json.load(answer)
            return told
    except (OSError, urllib.error.URLError, ValueError):
        return None


def stop(network: Network) -> int:
    """End the brokers that `start` started; how many there were."""
    pids = [pid for name in network.names if (pid := _alive(network, name))]
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + network.limits.drain_s + STOP_S
    while any(_exists(pid) for pid in pids):
        if time.monotonic() > deadline:
            for pid in filter(_exists, pids):
                os.kill(pid, signal.SIGKILL)
            break
        time.sleep(0.05)
    for name in network.names:
        (folder_of(network) / f"{name}.pid").unlink(missing_ok=True)
    return len(pids)


def reload(network: Network) -> dict[str, str | None]:
    """Have every running broker read the network file again; what each refuses it for, if so."""
    before = status(network)
    for name in network.names:
        pid, row = _alive(network, name), before[name]
        if not pid or row is None:
            raise InputError(
                f"broker {name} of {network.name!r} does not run here",
                remedy=f"start the network with: postroad network up {network.path}",
            )
        os.kill(pid, signal.SIGHUP)
    answers: dict[str, str | None] = {}
    deadline = time.monotonic() + STOP_S
    while len(answers) < len(network.names):
        for name, row in status(network).items():
            old = before[name]
            if row is not None and old is not None and row["reloads"] > old["reloads"]:
                answers[name] = row["reload_error"]
        if time.monotonic() > deadline:
            silent = [name for name in network.names if name not in answers]
            raise RunFailed(f"no answer from broker {', '.join(silent)}")
        time.sleep(0.05)
    return answers


def _alive(network: Network, name: str) -> int:
    """The process id of a broker that runs; 0 if it does not."""
    path = folder_of(network) / f"{name}.pid"
    try:
        pid = int(path.read_text())
    except (OSError, ValueError):
        return 0
    if not _exists(pid):
        return 0
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return pid  # no /proc here: trust the file
    return pid if "postroad" in command and str(network.path) in command else 0


def _exists(pid: int) -> bool:
    try:
        ended, _ = os.waitpid(pid, os.WNOHANG)
        if ended:
            return False
    except ChildProcessError:
        pass  # started by another command
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
