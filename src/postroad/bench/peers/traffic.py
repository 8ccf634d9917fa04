"""Rows in which brokers carry publications: throughput at saturation, latency at a fixed load.

Latency counts from the moment at which a publication was *due*, not from when it could be sent: a
broker that stalls is charged for all that became due meanwhile (no coordinated omission). The load
comes from one process; its own cost is the same for all that speak over plain sockets. Zenoh is
driven through its own library, in which this process does more.
"""

from __future__ import annotations

import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, cast

from postroad.bench import rabbitmq
from postroad.bench.peers import workloads
from postroad.bench.peers.clients import MARK, WireClient, payload
from postroad.bench.peers.figures import PeerFigure, cpu_s, memory_mb, percentiles
from postroad.bench.peers.systems import SYSTEMS, Running, System
from postroad.bench.peers.workloads import Filters, Pace, Traffic

STUCK_S = 20.0  # without any delivery
IDLE = 1_000
HOLDERS = 100  # connections that share the filters
ENOUGH_S, MOST = 4.0, 600_000  # seconds of filtered publications, and how many for fast systems
RABBITMQ = "RabbitMQ, headers"


class Lost(Exception):
    """Not all that was published arrived."""


def saturate(
    publisher: WireClient, data: bytes, readers: Sequence[WireClient], expected: int
) -> float:
    """Write everything and read everything; seconds until so many deliveries have come."""
    chosen = selectors.DefaultSelector()
    publisher.socket.setblocking(False)
    chosen.register(publisher.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
    for reader in readers:
        reader.socket.setblocking(False)
        chosen.register(reader.socket, selectors.EVENT_READ)
    view, at, got = memoryview(data), 0, 0
    started = last = time.perf_counter()
    while got < expected:
        for key, events in chosen.select(1):
            ready: Any = key.fileobj
            if events & selectors.EVENT_WRITE:
                at += ready.send(view[at : at + (1 << 17)])
                if at == len(data):
                    chosen.modify(ready, selectors.EVENT_READ)
            if events & selectors.EVENT_READ:
                chunk = ready.recv(1 << 20)
                if not chunk:
                    raise Lost("the broker closed a connection")
                if ready is not publisher.socket:
                    got += chunk.count(MARK)
                    last = time.perf_counter()
        if time.perf_counter() - last > STUCK_S:
            raise Lost(f"{expected - got:,} of {expected:,} deliveries did not come")
    took = time.perf_counter() - started
    chosen.close()
    for client in (publisher, *readers):
        client.socket.setblocking(True)
    return took


def paced(
    publisher: WireClient, reader: WireClient, packets: Sequence[bytes], per_s: int
) -> list[float]:
    """Latencies in µs from when each publication was due until it was read."""
    publisher.socket.setblocking(False)
    reader.socket.setblocking(False)
    chosen = selectors.DefaultSelector()
    chosen.register(reader.socket, selectors.EVENT_READ)
    count, step = len(packets), 1 / per_s
    latencies: list[float] = []
    sent, unsent = 0, b""
    start = last = time.perf_counter() + 0.01
    while len(latencies) < count:
        now = time.perf_counter()
        due = min(count, int((now - start) / step) + 1) if now >= start else 0
        if due > sent or unsent:
            unsent += b"".join(packets[sent:due])
            sent = max(sent, due)
            with suppress(BlockingIOError):
                unsent = unsent[publisher.socket.send(unsent) :]
        wait_s = start + sent * step - time.perf_counter() if sent < count else 0.5
        # A select that waits rounds up to milliseconds: the last one is spent looking.
        for _ in chosen.select(0 if wait_s < 0.002 or unsent else wait_s - 0.0015):
            arrived = reader.socket.recv(1 << 20).count(MARK)
            last = time.perf_counter()
            first = len(latencies)
            dues = (start + k * step for k in range(first, first + arrived))
            latencies.extend((last - due_s) * 1e6 for due_s in dues)
        if time.perf_counter() - last > STUCK_S:
            raise Lost(f"{count - len(latencies):,} of {count:,} did not come")
    chosen.close()
    publisher.socket.setblocking(True)
    reader.socket.setblocking(True)
    return latencies


class ZenohLoad:
    """The same two loads through Zenoh's library."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.sessions: list[Any] = []

    def session(self, port: int) -> Any:
        import zenoh

        config = zenoh.Config()
        config.insert_json5("mode", '"client"')
        config.insert_json5("connect/endpoints", f'["tcp/127.0.0.1:{port}"]')
        config.insert_json5("scouting/multicast/enabled", "false")
        session = zenoh.open(config)
        self.sessions.append(session)
        return session

    def publisher(self, topic: str) -> Any:
        import zenoh

        session = self.session(self.running.ports[0])
        blocking = zenoh.CongestionControl.BLOCK
        return session.declare_publisher(topic, congestion_control=blocking)

    def saturate(self, work: Traffic) -> float:
        counts = [0] * work.subscribers
        keep = []
        for n in range(work.subscribers):

            def count(_: Any, n: int = n) -> None:
                counts[n] += 1

            keep.append(self.session(self.running.ports[-1]).declare_subscriber(work.topic, count))
        publisher = self.publisher(work.topic)
        time.sleep(1)  # the declarations travel
        content = payload(0, work.payload_bytes)
        expected = work.subscribers * work.publications
        started = last = time.perf_counter()
        for _ in range(work.publications):
            publisher.put(content)
        before = -1
        while sum(counts) < expected:
            if sum(counts) > before:
                before, last = sum(counts), time.perf_counter()
            if time.perf_counter() - last > STUCK_S:
                raise Lost(f"{expected - sum(counts):,} of {expected:,} deliveries did not come")
            time.sleep(0.001)
        return time.perf_counter() - started

    def paced(self, work: Pace) -> list[float]:
        arrived: list[float] = []
        keep = self.session(self.running.ports[-1]).declare_subscriber(
            work.topic, lambda _: arrived.append(time.perf_counter())
        )
        publisher = self.publisher(work.topic)
        time.sleep(1)
        content, step = payload(0, work.payload_bytes), 1 / work.per_s
        start = time.perf_counter() + 0.01
        for n in range(work.publications):
            while (wait_s := start + n * step - time.perf_counter()) > 0:
                time.sleep(max(0.0, wait_s - 0.0002))
            publisher.put(content)
        end = time.perf_counter() + STUCK_S
        while len(arrived) < work.publications and time.perf_counter() < end:
            time.sleep(0.01)
        del keep
        if len(arrived) < work.publications:
            raise Lost(f"{work.publications - len(arrived):,} did not come")
        return [(at - (start + n * step)) * 1e6 for n, at in enumerate(arrived)]

    def close(self) -> None:
        for session in self.sessions:
            session.close()


def each(
    systems: Sequence[System],
    brokers: int,
    measure: Callable[[System, Running], dict[str, float]],
    mesh: bool = False,
) -> list[PeerFigure]:
    """Run every system in turn; one that cannot be had, or fails, is named with the reason."""
    figures = []
    for system in systems:
        reason = system.missing()
        if reason is not None:
            figures.append(PeerFigure(system.name, note=f"skipped: {reason}"))
            continue
        with tempfile.TemporaryDirectory() as name:
            try:
                start = system.start_mesh if mesh else system.start
                assert start is not None
                network = cast("AbstractContextManager[Running]", start(Path(name), brokers))
                with network as running:
                    figures.append(PeerFigure(system.name, measure(system, running)))
            except (Lost, OSError, RuntimeError) as error:
                figures.append(PeerFigure(system.name, note=f"failed: {error}"))
    return figures


def _saturated(system: System, running: Running, work: Traffic) -> dict[str, float]:
    if system.speaks is None:
        load = ZenohLoad(running)
        before_s = cpu_s(running.pids)
        try:
            took = load.saturate(work)
        finally:
            load.close()
    else:
        speaks = system.speaks
        readers = [speaks(running.ports[-1], f"r{n}") for n in range(work.subscribers)]
        for reader in readers:
            reader.subscribe(work.topic)
        publisher = speaks(running.ports[0], "p")
        content = payload(0, work.payload_bytes)
        packet = speaks.publication(work.topic, content, {})
        _reach(publisher, packet, readers)
        before_s = cpu_s(running.pids)
        took = saturate(
            publisher, packet * work.publications, readers, work.publications * work.subscribers
        )
        for client in (publisher, *readers):
            client.close()
    used_s = max(cpu_s(running.pids) - before_s, 0.01)
    deliveries = work.publications * work.subscribers
    return {
        "per_s": deliveries / took,
        "per_cpu_s": deliveries / used_s,
        "cpu_us": 1e6 * used_s / deliveries,
        "memory_mb": memory_mb(running.pids),
    }


def _reach(publisher: WireClient, packet: bytes, readers: Sequence[WireClient]) -> None:
    """Publish until every reader has got something: some brokers tell others of a subscription
    later than they say so to the client. Then read what is left."""
    reached = 0
    for reader in readers:
        reader.socket.settimeout(0.2)
        for _ in range(100):
            try:
                publisher.socket.sendall(packet)
                reader.until(MARK)
                reached += 1
                break
            except TimeoutError:
                continue
    if reached < len(readers):
        raise Lost(f"{len(readers) - reached} of {len(readers)} subscribers are not reached")
    for reader in readers:
        try:
            while reader.socket.recv(1 << 16):
                pass
        except TimeoutError:
            reader.buffer = b""
            reader.socket.settimeout(None)


def _paced(system: System, running: Running, work: Pace) -> list[float]:
    if system.speaks is None:
        load = ZenohLoad(running)
        try:
            return load.paced(work)
        finally:
            load.close()
    reader, publisher = (
        system.speaks(running.ports[-1], "pr"),
        system.speaks(running.ports[0], "pp"),
    )
    reader.subscribe(work.topic)
    packets = [
        system.speaks.publication(work.topic, payload(n, work.payload_bytes), {})
        for n in range(work.publications)
    ]
    _reach(publisher, packets[0], [reader])
    latencies = paced(publisher, reader, packets, work.per_s)
    reader.close()
    publisher.close()
    return latencies


def fanout(folder: Path, name: str) -> list[PeerFigure]:
    work = workloads.traffic(folder, name)
    return each(SYSTEMS, 1, lambda system, running: _saturated(system, running, work))


def latency(folder: Path, name: str) -> list[PeerFigure]:
    work = workloads.pace(folder, name)

    def measure(system: System, running: Running) -> dict[str, float]:
        _paced(system, running, Pace(work.topic, work.payload_bytes, work.per_s, 500))  # warm
        before_s = cpu_s(running.pids)
        figures = percentiles(_paced(system, running, work))
        used_s = cpu_s(running.pids) - before_s
        return {**figures, "cpu_us": 1e6 * used_s / work.publications}

    return each(SYSTEMS, 1, measure)


def _three(folder: Path, name: str, mesh: bool) -> list[PeerFigure]:
    """From a client of the first of three brokers to one of the last."""
    work, pace = workloads.traffic(folder, name), workloads.pace(folder, name)

    def measure(system: System, running: Running) -> dict[str, float]:
        figures = percentiles(_paced(system, running, pace))
        return {**_saturated(system, running, work), **figures}

    systems = [s for s in SYSTEMS if (s.start_mesh is not None if mesh else s.chains)]
    return each(systems, 3, measure, mesh)


def chain(folder: Path, name: str) -> list[PeerFigure]:
    return _three(folder, name, mesh=False)


def mesh(folder: Path, name: str) -> list[PeerFigure]:
    return _three(folder, name, mesh=True)


def others(folder: Path, name: str) -> list[PeerFigure]:
    """Latency of a quiet pair of clients while another floods the broker."""
    work, pace = workloads.traffic(folder, name), workloads.pace(folder, name)

    def measure(system: System, running: Running) -> dict[str, float]:
        assert system.speaks is not None
        words = [system.speaks.__name__, str(running.ports[0]), str(work.subscribers)]
        module = "postroad.bench.peers.flood"
        flood = subprocess.Popen([sys.executable, "-m", module, *words], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)  # fmt: skip
        assert flood.stdout is not None
        try:
            flood.stdout.readline()  # it has begun
            return percentiles(_paced(system, running, pace))
        finally:
            flood.communicate()  # closing its input ends it

    systems = [s for s in SYSTEMS if s.speaks is not None]
    return each(systems, 1, measure)


def idle(folder: Path, name: str) -> list[PeerFigure]:
    def measure(system: System, running: Running) -> dict[str, float]:
        assert system.speaks is not None
        warm = [system.speaks(running.ports[0], f"w{n}") for n in range(50)]
        before = memory_mb(running.pids)
        clients = [system.speaks(running.ports[0], f"idle{n}") for n in range(IDLE)]
        after = memory_mb(running.pids)
        for client in (*warm, *clients):
            client.close()
        return {"bytes_each": max(1.0, (after - before) * (1 << 20) / IDLE), "memory_mb": after}

    systems = [s for s in SYSTEMS if s.speaks is not None]
    return each(systems, 1, measure)


def filtered(folder: Path, name: str) -> list[PeerFigure]:
    """Publications a second where each filter is a subscription.

    Brokers without filters take part where a topic can say the same: equalities.
    """
    work = workloads.filters(folder, name)
    equal = name == "filters-equal"
    wanted: dict[int, int] = {}  # how many deliveries the n-th publication makes
    by_symbol: dict[Any, list[list[workloads.Demand]]] = {}
    for filter in work.filters:
        by_symbol.setdefault(filter[0][2], []).append(filter)
    for n, values in enumerate(work.publications):
        wanted[n] = sum(workloads.holds(f, values) for f in by_symbol.get(values["symbol"], []))

    def measure(system: System, running: Running) -> dict[str, float]:
        return _filtered(system, running, work, wanted, equal)

    systems = [s for s in SYSTEMS if s.speaks is not None and (s.filters or equal)]
    figures = each(systems, 1, measure)
    return [*figures, _headers(work)] if equal else figures


def _filtered(
    system: System, running: Running, work: Filters, wanted: dict[int, int], equal: bool
) -> dict[str, float]:
    speaks = system.speaks
    assert speaks is not None

    def topic(values: dict[str, Any]) -> str:
        if system.filters and system.name.startswith("ActiveMQ"):
            return "q"
        if equal:
            return f"q/{values['symbol']}/{values['level']}"
        return f"q/{values['symbol']}"

    holders = [speaks(running.ports[0], f"h{n}") for n in range(HOLDERS)]
    half, before = len(work.filters) // 2, 0.0
    for n, filter in enumerate(work.filters):
        if n == half:  # by then ours has loaded its kernels, or will have when this settles
            before = _settled_mb(running.pids)
        demands = {name: value for name, _, value in filter}
        where = None
        if system.name.startswith("ActiveMQ"):
            where = workloads.as_sql(filter)
        elif not equal:
            where = workloads.as_sql([d for d in filter if d[0] != "symbol"])
        holders[n * HOLDERS // len(work.filters)].subscribe(topic(demands), where)
    per_filter = (memory_mb(running.pids) - before) * (1 << 20) / half
    packets = []
    for n, values in enumerate(work.publications):
        fields = b", ".join(b'"%s": %s' % (k.encode(), _json(v)) for k, v in values.items())
        packets.append(speaks.publication(topic(values), b'{%s, "end": "~"}' % fields, values))
        assert packets[n].count(MARK) == 1
    publisher = speaks(running.ports[0], "p")
    # As many as take about the same time everywhere: shorter runs tell how long one takes. What a
    # system does for the first publication to a topic is in these.
    count, published, took, used_s = 100, 0, 0.0, 0.0
    while took < ENOUGH_S / 2 and published < MOST:
        chosen = [n % len(packets) for n in range(count)]
        expected = sum(wanted[n] for n in chosen)
        before_s = cpu_s(running.pids)
        data = b"".join(packets[n] for n in chosen)
        took = saturate(publisher, data, holders, expected)
        used_s = max(cpu_s(running.pids) - before_s, 0.01)
        published, count = count, min(MOST, int(ENOUGH_S * count / took))
    for client in (publisher, *holders):
        client.close()
    return {
        "per_s": published / took,
        "per_cpu_s": published / used_s,
        "cpu_us": 1e6 * used_s / published,
        "memory_mb": memory_mb(running.pids),
        "bytes_each": max(1.0, per_filter),
    }


def _settled_mb(pids: Sequence[int]) -> float:
    """The memory once it stays as it is for a second."""
    last = 0.0
    for _ in range(60):
        now = memory_mb(pids)
        if now <= last + 0.25:
            break
        last = now
        time.sleep(1)
    return now


def _headers(work: Filters) -> PeerFigure:
    """RabbitMQ's headers exchange with as many bindings."""
    reason = rabbitmq.missing()
    if reason is not None:
        return PeerFigure(RABBITMQ, note=f"skipped: {reason}")
    count = 300
    with tempfile.TemporaryDirectory() as name, rabbitmq.server(Path(name)) as server:
        rabbitmq.connect(server.amqp).close()
        per_s = rabbitmq.publications_per_s(server.amqp, len(work.filters), count)
        return PeerFigure(
            RABBITMQ,
            {"per_s": per_s, "memory_mb": memory_mb([server.process.pid])},
            "one scheduler",
        )


def _json(value: Any) -> bytes:
    return (f'"{value}"' if isinstance(value, str) else str(value)).encode()
