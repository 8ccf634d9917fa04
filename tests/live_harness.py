"""Live brokers without sockets or clocks: a network in memory, and one of real processes.

`Memory` drives whole brokers deterministically: bytes take a drawn time, arrive in drawn pieces,
connections are cut with what is on them. `Processes` starts `postroad broker` on free ports and
ends every one.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import shutil
import socket
import subprocess
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import mqtt5
import pytest

from postroad.errors import PostroadError
from postroad.live import server
from postroad.live.broker import Broker
from postroad.live.edge import mqtt
from postroad.live.links.neighbour import Wire
from postroad.live.network import Network, load
from postroad.live.operations import launch, logs
from postroad.live.store import MemoryStore, Store
from postroad.live.traces import Traces
from postroad.traces.schema import Row

ROOT = Path(__file__).resolve().parents[1]
STEP_US = 1000


# Below the ports that systems give to outgoing connections, and each test process in a part of its
# own: a port that the system hands out may be handed to someone else before the broker has it.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = itertools.cycle(range(10_000 + _WORKER % 8 * 2_500, 12_500 + _WORKER % 8 * 2_500))
for _ in range(os.getpid() * 37 % 2_500):
    next(_PORTS)


def free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in itertools.islice(_PORTS, 2_500):
        with socket.socket() as made:
            try:
                made.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


def write_network(
    folder: Path,
    names: Sequence[str],
    links: Iterable[tuple[str, str]],
    scheme: str = "subscription_forwarding",
    parameters: str = "",
    top: str = "",
    tables: str = "",
    free: bool = False,
) -> Path:
    ports = iter(free_ports(3 * len(names)) if free else range(20_000, 20_000 + 3 * len(names)))
    lines = [f'name = "test"\nscheme = "{scheme}"']
    lines.append(f"links = {json.dumps([list(pair) for pair in links])}")
    lines.append(top)
    lines.append(f"[parameters]\n{parameters}")
    lines.append(tables)
    for name in names:
        lines.append(f"[brokers.{name}]")
        lines += [f"{key} = {next(ports)}" for key in ("mqtt", "link", "http")]
    path = folder / "network.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def with_workers(path: Path, count: int) -> Path:
    """Every broker of the file has so many workers."""
    text = path.read_text()
    path.write_text(text.replace("mqtt = ", f"workers = {count}\nmqtt = "))
    return path


class KeptInMemory(MemoryStore):
    """In place of a file, which would take longer than all the rest."""

    standing = None  # nobody asks how far it has come

    def __init__(self, *_: Any) -> None:
        super().__init__()
        self._db = self

    def execute(self, _: str) -> None: ...


class Pipe:
    """One connection between two brokers: two directions of bytes under way."""

    def __init__(self, ends: list[tuple[int, Wire]]) -> None:
        self.ends = ends
        self.under_way: list[deque[tuple[int, bytes]]] = [deque(), deque()]


class Memory:
    def __init__(self, network: Network, seed: int = 0) -> None:
        self.network = network
        self.draw = random.Random(seed)
        self.now = 10**15
        self.stores = [
            None if network.store is None else Store(network.store, network.identity, name)
            for name in network.names
        ]
        for store in self.stores:
            if store is not None:  # what crashes here is never the machine
                store._db.execute("PRAGMA synchronous = OFF")
        self.brokers = [self._broker(n) for n in range(len(network.names))]
        self.pipes: list[Pipe] = []
        self.down: set[frozenset[int]] = set()
        self.fakes: list[Fake] = []
        self.ways_us: dict[int, dict[int, int]] = {}  # what pings measure, by broker

    def _broker(self, number: int) -> Broker:
        store = self.stores[number]
        traces = None if self.network.traces is None else Traces(self.network, number, self.now)
        if store is None:
            return Broker(self.network, number, self.now, traces)
        return Broker(self.network, number, self.now, traces, store.load(), store.standing)

    def rows(self, kind: str | None = None) -> list[Row]:
        """What the brokers' traces hold, by time."""
        rows = [row for broker in self.brokers if broker.traces for row in broker.traces.rows]
        rows.sort(key=lambda row: (row.time_us, row.broker, row.sequence))
        return [row for row in rows if kind in (None, row.kind)]

    def commit(self, number: int) -> None:
        journal, store = self.brokers[number].journal, self.stores[number]
        if journal is not None and store is not None:
            store.commit(journal.take())
            self.brokers[number].count = store.count

    def run(self, duration_us: int, step_us: int = STEP_US) -> None:
        for _ in range(duration_us // step_us):
            self.step(step_us)

    def until(self, done: Callable[[], Any], limit_us: int = 20_000_000) -> None:
        end = self.now + limit_us
        while not done():
            assert self.now < end, "did not come about"
            self.step()

    def settle(self) -> None:
        self.until(
            lambda: all(
                n.link.connected for b in self.brokers for n in b.peers.values() if n.link.neighbour
            )
        )
        self.run(50_000)

    def step(self, step_us: int = STEP_US) -> None:
        self.now += step_us
        for number, broker in enumerate(self.brokers):
            broker.tick(self.now)
            broker.flush(self.now)
            self.commit(number)
            self._gather(number)
            for work, then in broker.take_work():
                then(work(), self.now)
            for brokers, answered in broker.take_pings():
                ways = self.ways_us.get(number, {})
                answered({each: ways[each] for each in brokers if each in ways}, self.now)
            for wire in broker.take_closing():
                self._close(wire)
            for peer in broker.to_dial(self.now):
                if frozenset((number, peer)) in self.down:
                    broker.dial_failed(peer, self.now)
                    continue
                mine = broker.wire_opened("memory", peer, self.now)
                theirs = self.brokers[peer].wire_opened("memory", None, self.now)
                self.pipes.append(Pipe([(number, mine), (peer, theirs)]))
        for pipe in list(self.pipes):
            self._move(pipe)

    def _gather(self, number: int) -> None:
        """Take what a broker has to say, of which nothing may be known to it alone."""
        for pipe in self.pipes:
            for side, (end, wire) in enumerate(pipe.ends):
                if end == number:
                    self._send(pipe.under_way[side], b"".join(wire.out))
                    wire.out.clear()
        for fake in self.fakes:
            if fake.broker is self.brokers[number]:
                fake.collect()

    def _send(self, line: deque[tuple[int, bytes]], data: bytes) -> None:
        while data:
            cut = self.draw.randint(1, len(data)) if self.draw.random() < 0.3 else len(data)
            earliest = line[-1][0] if line else 0
            arrival = max(earliest, self.now + self.draw.randint(0, 5) * STEP_US)
            line.append((arrival, data[:cut]))
            data = data[cut:]

    def _move(self, pipe: Pipe) -> None:
        for side in (0, 1):
            line = pipe.under_way[side]
            while line and line[0][0] <= self.now and pipe in self.pipes:
                number, far = pipe.ends[1 - side]
                self.brokers[number].wire_received(far, line.popleft()[1], self.now)

    def _close(self, wire: Wire) -> None:
        """One end closes; what it wrote before still arrives."""
        for pipe in list(self.pipes):
            if any(end is wire for _, end in pipe.ends):
                self.pipes.remove(pipe)
                for side, (number, end) in enumerate(pipe.ends):
                    if end is not wire:
                        for _, data in pipe.under_way[1 - side]:
                            self.brokers[number].wire_received(end, data, self.now)
                        self.brokers[number].wire_closed(end, self.now)

    def cut(self, a: int, b: int) -> None:
        """Break the connection; part of what is under way may still arrive."""
        self.down.add(frozenset((a, b)))
        for pipe in list(self.pipes):
            if {number for number, _ in pipe.ends} == {a, b}:
                for side in (0, 1):
                    number, far = pipe.ends[1 - side]
                    for _, data in list(pipe.under_way[side])[: self.draw.randint(0, 3)]:
                        self.brokers[number].wire_received(far, data, self.now)
                if pipe in self.pipes:
                    self.pipes.remove(pipe)
                for number, end in pipe.ends:
                    self.brokers[number].wire_closed(end, self.now)

    def restart(self, number: int) -> None:
        """A broker loses all but its store and starts again; its clients' connections are gone.

        What it wrote may still arrive, in part. It may fall between writing its store and speaking.
        """
        if self.stores[number] is not None and self.draw.random() < 0.5:
            self.brokers[number].flush(self.now)
            self.commit(number)
        for pipe in list(self.pipes):
            if any(end == number for end, _ in pipe.ends):
                for side, (end, _) in enumerate(pipe.ends):
                    other, wire = pipe.ends[1 - side]
                    if end == number:
                        for _, data in list(pipe.under_way[side])[: self.draw.randint(0, 3)]:
                            self.brokers[other].wire_received(wire, data, self.now)
                        self.brokers[other].wire_closed(wire, self.now)
                if pipe in self.pipes:
                    self.pipes.remove(pipe)
        self.fakes = [fake for fake in self.fakes if fake.broker is not self.brokers[number]]
        self.brokers[number] = self._broker(number)

    def mend(self, a: int, b: int) -> None:
        self.down.discard(frozenset((a, b)))

    def client(self, broker: int, name: str = "", level: int = 5, **options: Any) -> Fake:
        """A connected client."""
        fake = Fake(self, broker, level)
        fake.acknowledges = options.pop("acknowledges", True)
        self.fakes.append(fake)
        options.setdefault("clean_start", True)
        if level == mqtt.V5:
            fake.send(mqtt5.ConnectPacket(name, **options))
        else:
            clean = 2 if options["clean_start"] else 0
            body = b"\x00\x04MQTT\x04" + bytes((clean, 0, 0)) + _text(name)
            fake.raw(bytes((0x10, len(body))) + body)
        self.run(20_000)
        return fake


class Fake:
    """A client's end of a connection without a socket."""

    def __init__(self, memory: Memory, broker: int, level: int) -> None:
        self.memory, self.broker, self.level = memory, memory.brokers[broker], level
        opened = self.broker.clients.opened("memory:1", memory.now)
        assert opened is not None
        self.connection = opened
        self.packets: list[Any] = []
        self.bytes: list[bytes] = []
        self.acknowledges = True
        self.number = 0

    def send(self, packet: mqtt5.Packet) -> None:
        self.raw(packet.write())

    def raw(self, data: bytes) -> None:
        self.broker.clients.received(self.connection, data, self.memory.now)

    def collect(self) -> None:
        data = b"".join(self.connection.out)
        self.connection.out.clear()
        at = 0
        while at < len(data):
            end = mqtt.frame(data, at, 1 << 28)
            self.bytes.append(data[at:end])
            if self.level == mqtt.V5:
                packet, _ = mqtt5.read(memoryview(data[at:end]))
                self.packets.append(packet)
                if self.acknowledges and not self.connection.closing:
                    self._acknowledge(packet)
            at = end

    def _acknowledge(self, packet: Any) -> None:
        if isinstance(packet, mqtt5.PublishPacket) and packet.packet_id:
            kind = mqtt5.PubRecPacket if packet.qos == 2 else mqtt5.PubAckPacket
            self.send(kind(packet.packet_id))
        elif isinstance(packet, mqtt5.PubRelPacket):
            self.send(mqtt5.PubCompPacket(packet.packet_id))

    def drop(self) -> None:
        """The connection is lost without a word."""
        self.broker.clients.closed(self.connection, self.memory.now)

    def subscribe(self, pattern: str, where: str | None = None, **options: Any) -> Any:
        self.number += 1
        identifier = options.pop("identifier", None)
        options.setdefault("retain_as_published", False)
        options.setdefault("max_qos", mqtt5.QoS.AT_MOST_ONCE)
        packet = mqtt5.SubscribePacket(
            self.number,
            [mqtt5.TopicFilter(pattern, **options)],
            subscription_id=identifier,
            user_properties=[] if where is None else [("$where", where)],
        )
        self.send(packet)
        self.memory.until(lambda: self.last(mqtt5.SubAckPacket))
        return self.last(mqtt5.SubAckPacket, take=True)

    def publish(self, topic: str, payload: bytes = b"", **options: Any) -> None:
        qos = options.get("qos", mqtt5.QoS.AT_MOST_ONCE)
        if int(qos):
            self.number += 1
            options["packet_id"] = self.number
        self.send(mqtt5.PublishPacket(topic, payload, **options))

    def last(self, kind: type, take: bool = False) -> Any:
        found = next((packet for packet in self.packets if isinstance(packet, kind)), None)
        if take and found is not None:
            self.packets.remove(found)
        return found

    def got(self) -> list[tuple[str, bytes]]:
        """The publications so far, and forget them."""
        found = [(p.topic, p.payload) for p in self.packets if isinstance(p, mqtt5.PublishPacket)]
        self.packets = [p for p in self.packets if not isinstance(p, mqtt5.PublishPacket)]
        return found


def _text(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


def memory(
    folder: Path,
    names: Sequence[str],
    links: Iterable[tuple[str, str]],
    seed: int = 0,
    **more: Any,
) -> Memory:
    made = Memory(load(write_network(folder, names, links, **more)), seed)
    made.settle()
    return made


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["postroad.live.server", "uvloop"])


def _broker(path: Path, name: str) -> None:
    """What `postroad broker` does, in a process that has imported everything already."""
    with (path.parent / f"{name}.log").open("ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    logs.set_up("info")
    network = load(path)
    try:
        server.run(network, network.number(name))
    except PostroadError as error:
        os.write(2, f"postroad: {error}\n".encode())
        raise SystemExit(1) from None


class Processes:
    """Real brokers, each a process; all ended on leaving."""

    def __init__(self, path: Path) -> None:
        self.network = load(path)
        self.path = path
        self.running: dict[str, Any] = {}

    def __enter__(self) -> Processes:
        for name in self.network.names:
            self.start(name)
        self.wait_linked()
        return self

    def start(self, name: str) -> None:
        process = FORKS.Process(target=_broker, args=(self.path, name))
        process.start()
        self.running[name] = process

    def wait_linked(self, limit_s: float = 60) -> None:
        def linked() -> bool:
            told = [self.status(name) for name in self.network.names]
            return all(
                row is not None and all(k["connected"] for k in row["links"].values())
                for row in told
            )

        wait_for(linked, limit_s)

    def status(self, name: str) -> dict[str, Any] | None:
        try:
            told: dict[str, Any] = json.loads(self.get(name, "/status"))
        except OSError:
            assert self.running[name].exitcode is None, self.log(name)
            return None
        return told

    def get_as_operator(self, name: str, path: str) -> str:
        return self.get(name, path, launch.credentials(self.network))

    def get(self, name: str, path: str, headers: dict[str, str] | None = None) -> str:
        port = self.network.addresses[self.network.number(name)].http
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers or {})
        with urllib.request.urlopen(request, timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    def log(self, name: str) -> str:
        return (self.path.parent / f"{name}.log").read_text()

    def mqtt(self, name: str) -> int:
        return self.network.addresses[self.network.number(name)].mqtt

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.join(10)
            if process.exitcode is None:
                process.kill()
                process.join()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def wait_for(done: Callable[[], Any], limit_s: float = 120) -> None:
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end, "did not come about in time"
        time.sleep(0.05)


def need_mosquitto() -> None:
    """Skip unless Debian's clients are there, or can be installed."""
    if shutil.which("mosquitto_pub") and shutil.which("mosquitto_sub"):
        return
    found = subprocess.run(["sh", str(ROOT / "scripts" / "ensure-mosquitto")], check=False)
    if found.returncode:
        pytest.skip("mosquitto_pub and mosquitto_sub are missing and could not be installed")


def need_mqttjs() -> Path:
    """The folder of MQTT.js; skips unless it is there, or can be installed."""
    installed = subprocess.run(["sh", str(ROOT / "scripts" / "ensure-mqttjs")], check=False)
    if installed.returncode or shutil.which("node") is None:
        pytest.skip("MQTT.js is missing and could not be installed")
    return ROOT / "build" / "node" / "node_modules"
