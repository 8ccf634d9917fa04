"""A whole network as local processes: start, look at, stop.

Beside the network file `x.toml`, the folder `x.run` holds each broker's process id and log.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from postroad.errors import RunFailed
from postroad.live import store as stores
from postroad.live.edge.clients import NOT_HERE
from postroad.live.links.secret import check_guarded
from postroad.live.links.secret import load as load_secret
from postroad.live.network import Address, Network
from postroad.live.operations.members import Change
from postroad.live.operations.operators import token
from postroad.relocation import all_messages

START_S = 60.0
STOP_S = 10.0  # beyond the time that brokers may take to drain
CARRYING = frozenset(message.kind for message in all_messages() if message.carries)


def folder_of(network: Network) -> Path:
    return network.path.with_suffix(".run")


def start(network: Network) -> list[str]:
    """Start every broker that does not run, as a process of its own, and say which; fails if
    something else has a port of one of them."""
    check_guarded(network)
    missing = []
    for name, row in status(network).items():
        if _alive(network, name):
            continue
        address = network.addresses[network.number(name)]
        if row is None:
            _check_free(network, name, address)
        elif (row.get("network"), row.get("broker")) != (network.name, name):
            raise RunFailed(
                f"{network.path}: broker {row.get('broker')!r} of network {row.get('network')!r} "
                f"answers at {address.url}, where broker {name!r} of {network.name!r} is to be; "
                f"stop that network, or give {name} other ports"
            )
        else:
            continue
        missing.append(name)
    for name in missing:
        start_one(network, name)
    return missing


def _check_free(network: Network, name: str, address: Address) -> None:
    """Complain of a port that something else listens at."""
    for key, host, port in (
        ("mqtt", address.host, address.mqtt),
        ("link", address.host, address.link),
        ("http", address.http_host, address.http),
    ):
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )[0]
            with socket.socket(family, kind, protocol) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(place)
        except OSError as error:
            raise RunFailed(
                f"{network.path}: brokers.{name}.{key}: broker {name!r} cannot listen at "
                f"{host}:{port}: {error.strerror or error}; stop what listens there, or choose "
                "another port or host"
            ) from None


def start_one(network: Network, name: str) -> None:
    folder = folder_of(network)
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "postroad", "broker"]
    command += ["--network", str(network.path), "--id", name]
    with (folder / f"{name}.log").open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    (folder / f"{name}.pid").write_text(f"{process.pid}\n")


def wait(network: Network, started: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yields (ready, all) brokers until each runs and all its links are up. If one of those that
    were started ends, or time is up, they are stopped; who ran before runs on."""
    deadline = time.monotonic() + START_S
    while True:
        brokers = status(network)
        for name in started:
            if brokers[name] is None and not _alive(network, name):
                stop_some(network, started)
                raise _ended(network, name)
        ready = sum(row is not None and _linked(row) for row in brokers.values())
        yield ready, len(network.members)
        if ready == len(network.members):
            return
        if time.monotonic() > deadline:
            silent = [name for name, row in brokers.items() if row is None or not _linked(row)]
            logs = ", ".join(str(folder_of(network) / f"{name}.log") for name in silent[:3])
            stop_some(network, started)
            raise RunFailed(
                f"after {START_S:.0f} s only {ready} of {len(brokers)} brokers are ready; stopped "
                f"again what was started. The logs: {logs}"
            )
        time.sleep(0.1)


def wait_for(network: Network, name: str) -> None:
    """Until a broker that was added is linked and knows the others; those stay as they are."""
    deadline = time.monotonic() + START_S
    address = network.addresses[network.number(name)]
    while True:
        row = _ask(network, address)
        if row is not None and any(k["connected"] for k in row["links"].values()):
            tree = row.get("tree")
            if tree is None or tree["settled"]:
                return
        if row is None and not _alive(network, name):
            raise _ended(network, name)
        if time.monotonic() > deadline:
            raise RunFailed(f"after {START_S:.0f} s broker {name} is not ready")
        time.sleep(0.1)


def _ended(network: Network, name: str) -> RunFailed:
    log = folder_of(network) / f"{name}.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    cause = f": {lines[-1]}" if lines else ""
    return RunFailed(f"broker {name} ended{cause}; its log: {log}")


def _linked(row: dict[str, Any]) -> bool:
    tree = row.get("tree")
    joined = tree is None or (tree["settled"] and not tree["left_out"])
    joined = joined and not away(row)
    return joined and all(k["connected"] for k in row["links"].values() if k["neighbour"])


def away(row: Mapping[str, Any]) -> list[str]:
    """The workers of a broker that do not answer or are not joined to the first."""
    workers = row.get("workers", {})
    return [name for name, worker in workers.items() if worker is None or not worker["up"]]


def status(network: Network) -> dict[str, dict[str, Any] | None]:
    """What each broker says of itself; None for one that does not answer."""
    return {
        network.names[broker]: _ask(network, network.addresses[broker])
        for broker in network.members
    }


def _ask(network: Network, address: Address) -> dict[str, Any] | None:
    try:
        request = urllib.request.Request(f"{address.url}/status", headers=credentials(network))
        with urllib.request.urlopen(request, timeout=2) as answer:
            row: dict[str, Any] = json.load(answer)
            return row
    except (OSError, urllib.error.URLError, ValueError):
        return None


def publications_sent(link: Mapping[str, Any]) -> int:
    """Messages with publications that a broker has sent over a link, of whatever kind they are."""
    return sum(count for kind, count in link["sent"].items() if kind in CARRYING)


def credentials(network: Network) -> dict[str, str]:
    """The header by which brokers know an operator, if there is a secret to know them by."""
    shown = operator_token(network)
    return {"Authorization": f"Bearer {shown}"} if shown else {}


def operator_token(network: Network) -> str:
    """What shows a broker that an operator asks; empty where the network has no secret."""
    return "" if network.secret is None else token(load_secret(network.secret), network.name)


def addresses(network: Network) -> dict[str, str]:
    """Where each broker answers operators; of one with workers, where each of them does."""
    inside = network.expanded()
    return {inside.names[broker]: inside.url(broker) for broker in inside.members}


def ask(network: Network, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """What each broker answers an operator; None for one that does not answer."""
    headers = credentials(network)
    data = None if body is None else json.dumps(body).encode()
    answers: dict[str, Any] = {}
    for broker in network.members:
        url = f"{network.addresses[broker].url}{path}"
        request = urllib.request.Request(url, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                answers[network.names[broker]] = json.load(answer)
        except urllib.error.HTTPError as error:
            raise RunFailed(
                f"broker {network.names[broker]} refuses: {error.read().decode().strip()}"
            ) from None
        except (OSError, ValueError):
            answers[network.names[broker]] = None
    return answers


def move(network: Network, publisher: str, broker: str) -> str | None:
    """Send a publisher to another broker; why it does not go, or None."""
    network.number(broker)
    answers = ask(network, "/move", {"publisher": publisher, "broker": broker})
    reasons = [answer["why_not"] for answer in answers.values() if answer is not None]
    if None in reasons:
        return None
    return next((reason for reason in reasons if reason != NOT_HERE), "no broker has it connected")


def stop(network: Network) -> int:
    """End the brokers that `start` started; how many there were."""
    return stop_some(network, network.member_names)


def stop_some(network: Network, names: Sequence[str]) -> int:
    """End these brokers, where they run here; how many did."""
    pids = [pid for name in names if (pid := _alive(network, name))]
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    rounds = 2 if max(network.workers) > 1 else 1  # the first worker waits for the others
    deadline = time.monotonic() + rounds * network.limits.drain_s + STOP_S
    while any(_exists(pid) for pid in pids):
        if time.monotonic() > deadline:
            for pid in filter(_exists, pids):
                os.kill(pid, signal.SIGKILL)
            break
        time.sleep(0.05)
    for name in names:
        (folder_of(network) / f"{name}.pid").unlink(missing_ok=True)
    return len(pids)


def add(change: Change, name: str) -> bool:
    """Write the file with its new broker; where the network runs here, it runs too from now on."""
    network = change.network
    running = _here(network)
    change.write()
    if running:
        reload(network, running)
        start_one(network, name)
    return bool(running)


def remove(change: Change, name: str, force: bool) -> bool:
    """Stop a broker, write the file without it, and tell those that run here. Without `force`,
    one that still has something for others stays."""
    network = change.network
    stopped = stop_some(network, [name])
    owed = 0 if force else _owed(network, name)
    if owed:
        if stopped:
            start_one(network, name)
        again = "was started again and " if stopped else ""
        raise RunFailed(
            f"{name} {again}stays, because of messages that others do not have yet: {owed:,}; "
            "remove it once the brokers that are away are back, or with --force, which loses them"
        )
    change.write()
    reload(network, _here(network))
    return bool(stopped)


def _owed(network: Network, name: str) -> int:
    """How many messages for others are in the store of a broker that does not run; 0 if it has no
    store here that can be read."""
    if network.store is None:
        return 0
    parts = network.expanded()
    owed = 0
    for number in parts.of_same_broker(parts.names.index(name)):
        examined = stores.examine(network.store, parts.identity, parts.names[number], parts.lineage)
        owed += sum(len((examined.rows or {}).get(table, ())) for table in ("outbox", "queue"))
    return owed


def _here(network: Network) -> list[str]:
    return [name for name, row in status(network).items() if row and _process(network, name, row)]


def reload(network: Network, names: Sequence[str]) -> list[str]:
    """Have these brokers read the network file again, those that run here, by whomever they were
    started; who does not. `RunFailed` if one refuses the file."""
    before = status(network)
    pids = {name: _process(network, name, row) for name in names if (row := before[name])}
    missing = [name for name in names if not pids.get(name)]
    names = [name for name in names if name not in missing]
    for name in names:
        os.kill(pids[name], signal.SIGHUP)
    answers: dict[str, str | None] = {}
    deadline = time.monotonic() + STOP_S
    while len(answers) < len(names):
        for name, row in status(network).items():
            old = before[name] if name in names else None
            if row is not None and old is not None and row["reloads"] > old["reloads"]:
                answers[name] = row["reload_error"]
        if time.monotonic() > deadline:
            silent = [name for name in names if name not in answers]
            raise RunFailed(f"no answer from broker {', '.join(silent)}")
        time.sleep(0.05)
    for name, refusal in answers.items():
        if refusal is not None:
            raise RunFailed(f"broker {name} goes on as before: {refusal}")
    return missing


def _process(network: Network, name: str, row: dict[str, Any]) -> int:
    """The process id of a broker that answers, also of one that was started by hand: what it says
    counts if a broker of that name has this id here, and not in a container. Otherwise 0."""
    pid = _alive(network, name)
    if pid:
        return pid
    claimed = row.get("pid")
    try:
        words = Path(f"/proc/{int(claimed)}/cmdline").read_bytes().split(b"\0")  # type: ignore[arg-type]
    except (OSError, TypeError, ValueError):
        return 0
    known = {name.encode(), f"--id={name}".encode()} & {*words}
    return int(claimed) if known and b"broker" in words else 0  # type: ignore[arg-type]


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
        if not command and ") Z " not in Path(f"/proc/{pid}/stat").read_text(errors="replace"):
            return pid  # it is just being started: its words are not there yet
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
