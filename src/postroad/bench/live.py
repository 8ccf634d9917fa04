"""What a live broker carries: filtered publications, fan-out, a chain of three, latency, memory.

Beside each rate stands the rate per second of the broker's own CPU time: what a core of its own
would carry, also when the machine is busy with other things. The load comes from plain sockets in
this process with packets encoded beforehand, so that the brokers, one process each, are what is
measured. mosquitto, where it is installed, runs the same fan-out and latency loads for
comparison; it has no content filters. RabbitMQ, where it is installed, has as many bindings.

By the number of filters a publication should cost between nothing more (it is looked up, not
compared with each) and in proportion (as many more match it and have it delivered). What one client
subscribes to should cost others next to nothing; it is measured in a broker without sockets.
"""

from __future__ import annotations

import os
import select
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import mqtt5

from postroad import draws
from postroad.bench import growth, rabbitmq
from postroad.live.broker import Broker
from postroad.live.edge import content, mqtt
from postroad.live.edge.session import Connection
from postroad.live.network import load
from postroad.matching import compiled, index
from postroad.matching.index import Passing
from postroad.routing.base import NOBODY

FILTERS = 10_000
GROWING = (1_000, 2_000, 5_000, 10_000)  # filters
HOLDERS = 100  # connections that hold the filters
SYMBOLS = 500
PUBLICATIONS = 200_000
HEADERS_PUBLICATIONS = 500
FANOUT = 50
FANOUT_PUBLICATIONS = 20_000
CHAIN_PUBLICATIONS = 60_000
SCATTERED, ROUNDS, AHEAD = 300, 300, 3  # clients, what each publishes, and rounds on the way
PINGS, PINGS_IN_TURN = 2_000, 100
IDLE = 2_000
PAYLOAD = 64
SAMPLE = 0.01  # of publications that are traced
BESIDE = (  # what one client more subscribes to: a topic filter, and a content filter
    ("quotes/S1", "price > 50"),
    ("+", None),
    ("+/+", None),
    ("+/S7", None),
    ("+/S7/#", None),
    ("logs/#", "text LIKE '%error%'"),
    ("logs/#", "text > 'e'"),
    ("$share/group/+/S7", None),
)


class Raw:
    """A client that is a socket and nothing more."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.socket.sendall(mqtt5.ConnectPacket(name, clean_start=True).write())
        assert self.packet()[0] >> 4 == 2

    def packet(self) -> bytes:
        """The next packet's bytes."""
        while not (end := mqtt.frame(self.buffer, 0, 1 << 28) if self.buffer else 0):
            data = self.socket.recv(1 << 16)
            assert data, "the broker closed the connection"
            self.buffer += data
        packet, self.buffer = self.buffer[:end], self.buffer[end:]
        return packet

    def subscribe(self, number: int, pattern: str, where: str | None = None) -> None:
        self.socket.sendall(subscribe_packet(number, pattern, where))

    def await_subacks(self, count: int) -> None:
        for _ in range(count):
            while self.packet()[0] != 0x90:
                pass


def subscribe_packet(number: int, pattern: str, where: str | None) -> bytes:
    asked = mqtt5.TopicFilter(pattern, max_qos=mqtt5.QoS.AT_MOST_ONCE, retain_as_published=False)
    properties = [] if where is None else [("$where", where)]
    return mqtt5.SubscribePacket(number, [asked], user_properties=properties).write()


def flow(
    publisher: Raw, data: bytes, readers: list[Raw], done: Callable[[int], bool]
) -> tuple[float, int]:
    """Write everything and read everything; seconds and bytes read until `done(bytes)`."""
    chosen = selectors.DefaultSelector()
    publisher.socket.setblocking(False)
    chosen.register(publisher.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
    for reader in readers:
        reader.socket.setblocking(False)
        chosen.register(reader.socket, selectors.EVENT_READ)
    view, at, got = memoryview(data), 0, 0
    started = time.perf_counter()
    last = started
    while not done(got):
        for key, events in chosen.select(5):
            ready = key.fileobj
            assert isinstance(ready, socket.socket)
            if events & selectors.EVENT_WRITE:
                at += ready.send(view[at : at + (1 << 17)])
                if at == len(data):
                    chosen.modify(ready, selectors.EVENT_READ)
            if events & selectors.EVENT_READ:
                got += len(ready.recv(1 << 20))
                last = time.perf_counter()
        assert time.perf_counter() - last < 30 or got == 0, f"stuck after {got} bytes"
    took = time.perf_counter() - started
    for client in (publisher, *readers):
        client.socket.setblocking(True)
    chosen.close()
    return took, got


@contextmanager
def brokers(
    count: int,
    folder: Path,
    options: Sequence[str] = (),
    spare: bool = False,
    stderr: IO[bytes] | None = None,
    workers: int = 1,
) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """A chain of so many brokers, of so many workers each, perhaps with a spare link between its
    ends: their MQTT ports, HTTP ports and process ids."""
    sockets = [socket.socket() for _ in range(3 * count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    names = [f"B{n}" for n in range(count)]
    links = [[names[n], names[n + 1]] for n in range(count - 1)]
    links += [[names[0], names[-1]]] if spare else []
    lines = ['name = "bench"', 'scheme = "subscription_forwarding"', f"links = {links}"]
    lines += options
    for n, name in enumerate(names):
        mqtt_port, link, http = ports[3 * n : 3 * n + 3]
        lines += [f"[brokers.{name}]", f"mqtt = {mqtt_port}", f"link = {link}", f"http = {http}"]
        lines += [f"workers = {workers}"] if workers > 1 else []
    path = folder / f"chain{count}.toml"
    path.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "postroad", "broker", "--network", str(path)]
    command += ["--log-level", "warning", "--id"]
    running = [subprocess.Popen([*command, name], stderr=stderr) for name in names]
    try:
        for http in ports[2::3]:
            _await(http)
        time.sleep(1)  # the links
        yield ports[0::3], ports[2::3], [process.pid for process in running]
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(20)


def _await(http: int) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{http}/healthz", timeout=2).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("a broker did not start")


@contextmanager
def started(command: Sequence[str], port: int) -> Iterator[int]:
    """The process id of a broker, once it listens."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        process.wait(10)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def mosquitto(folder: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"
        "set_tcp_nodelay true\npersistence false\n"
    )
    command = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    with started([command, "-c", str(config)], port) as pid:
        yield port, pid


def cpu_s(pid: int) -> float:
    """The CPU time that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def memory_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def settled_kib(pid: int) -> int:
    """The memory once it stays as it is: a broker may be loading the kernels beside."""
    last = 0
    for _ in range(120):
        time.sleep(1)
        now = memory_kib(pid)
        if now <= last + 256:
            break
        last = now
    return now


def quote(n: int) -> tuple[str, bytes]:
    """The topic and the payload of the n-th publication."""
    symbol = draws.below(SYMBOLS, 1, "bench.live.symbol", 0, n)
    price = draws.below(1000, 1, "bench.live.price", 0, n) / 10
    return f"quotes/S{symbol}", b'{"price": %.1f, "volume": %d}' % (price, n)


def wanted(holder: int, n: int, each: int = FILTERS // HOLDERS) -> tuple[str, str]:
    """The topic and the filter of a holder's n-th subscription, of so many that each has."""
    symbol = (holder * each + n) % SYMBOLS
    low = 90 + draws.below(100, 2, "bench.live.low", holder, n) / 10
    return f"quotes/S{symbol}", f"price >= {low}"


def filtered(port: int, pid: int) -> tuple[float, float, float, int]:
    """Publications a second, and per CPU second, at a broker with many filters; deliveries
    each; bytes per filter."""
    holders = [Raw(port, f"h{n}") for n in range(HOLDERS)]
    publisher = Raw(port, "p")
    quotes = [mqtt5.PublishPacket(*quote(n)).write() for n in range(20_000)]
    before = 0
    each = FILTERS // HOLDERS
    for h, holder in enumerate(holders):
        if h == HOLDERS // 2:  # once kernels are there, publications pass the table on to them
            settled_kib(pid)
            publisher.socket.sendall(b"".join(quotes[:200]))
            before = settled_kib(pid)
        for n in range(each):
            holder.subscribe(n + 1, *wanted(h, n))
        holder.await_subacks(each)
    per_filter = (memory_kib(pid) - before) * 1024 * 2 // FILTERS
    warm = b"".join(quotes[:5000])
    last = mqtt5.PublishPacket("end", b"", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1).write()
    finish = Raw(port, "finish")
    finish.subscribe(1, "end")
    finish.await_subacks(1)
    # The subscriber of the last publication tells that all before it have been handled.
    _until_end(publisher, warm + last, holders, finish)
    load = b"".join(quotes) * (PUBLICATIONS // 20_000) + last
    before_s = cpu_s(pid)
    took, got = _until_end(publisher, load, holders, finish)
    used_s = cpu_s(pid) - before_s
    size = len(load) / PUBLICATIONS
    for client in (*holders, publisher, finish):
        client.socket.close()
    return PUBLICATIONS / took, PUBLICATIONS / used_s, got / size / PUBLICATIONS, per_filter


def _until_end(publisher: Raw, data: bytes, readers: list[Raw], finish: Raw) -> tuple[float, int]:
    chosen = selectors.DefaultSelector()
    publisher.socket.setblocking(False)
    chosen.register(publisher.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
    for reader in (*readers, finish):
        chosen.register(reader.socket, selectors.EVENT_READ)
    view, at, got, ended = memoryview(data), 0, 0, False
    started = time.perf_counter()
    while not ended:
        for key, events in chosen.select(30):
            ready = key.fileobj
            assert isinstance(ready, socket.socket)
            if events & selectors.EVENT_WRITE:
                at += ready.send(view[at : at + (1 << 17)])
                if at == len(data):
                    chosen.modify(ready, selectors.EVENT_READ)
            if events & selectors.EVENT_READ:
                size = len(ready.recv(1 << 20))
                if ready is finish.socket:
                    ended = True
                elif ready is not publisher.socket:
                    got += size
    took = time.perf_counter() - started
    publisher.socket.setblocking(True)
    chosen.close()
    return took, got


def fanned(port: int, pid: int) -> tuple[float, float]:
    """Deliveries a second, and per CPU second, from one publisher to many subscribers."""
    readers = [Raw(port, f"r{n}") for n in range(FANOUT)]
    for reader in readers:
        reader.subscribe(1, "fan/out")
        reader.await_subacks(1)
    publisher = Raw(port, "p")
    packet = mqtt5.PublishPacket("fan/out", b"x" * PAYLOAD).write()
    total = len(packet) * FANOUT_PUBLICATIONS * FANOUT
    before_s = cpu_s(pid)
    took, _ = flow(publisher, packet * FANOUT_PUBLICATIONS, readers, lambda got: got >= total)
    used_s = cpu_s(pid) - before_s
    for client in (*readers, publisher):
        client.socket.close()
    count = FANOUT_PUBLICATIONS * FANOUT
    return count / took, count / used_s


def chained(first: int, last: int, pids: list[int]) -> tuple[float, float]:
    """Publications a second from one end of a chain to the other, and per CPU second of the
    busiest broker."""
    reader, publisher = Raw(last, "r"), Raw(first, "p")
    reader.subscribe(1, "chain/+", "n >= 0")
    reader.await_subacks(1)
    packet = mqtt5.PublishPacket("chain/a", b'{"n": 1, "pad": "%s"}' % (b"x" * PAYLOAD)).write()
    total = len(packet) * CHAIN_PUBLICATIONS
    for _ in range(1 + 2 * index.PASSED_WORTHWHILE // CHAIN_PUBLICATIONS):
        flow(publisher, packet * CHAIN_PUBLICATIONS, [reader], lambda got: got >= total)
    for pid in pids:
        settled_kib(pid)  # until the kernels are loaded
    before_s = [cpu_s(pid) for pid in pids]
    took, _ = flow(publisher, packet * CHAIN_PUBLICATIONS, [reader], lambda got: got >= total)
    used_s = max(cpu_s(pid) - before for pid, before in zip(pids, before_s, strict=True))
    for client in (reader, publisher):
        client.socket.close()
    return CHAIN_PUBLICATIONS / took, CHAIN_PUBLICATIONS / used_s


def scattered_us(first: int, last: int, pids: list[int]) -> list[float]:
    """CPU time of each broker of a chain for a publication, of many clients that publish one each
    in turn."""
    reader = Raw(last, "r")
    reader.subscribe(1, "scattered/+", "n >= 0")
    reader.await_subacks(1)
    publishers = [Raw(first, f"p{n}") for n in range(SCATTERED)]
    bodies = (b'{"n": %d, "pad": "%s"}' % (n, b"x" * PAYLOAD) for n in range(SCATTERED))
    packets = [mqtt5.PublishPacket(f"scattered/{n}", each).write() for n, each in enumerate(bodies)]
    due = sum(map(len, packets))
    reader.socket.setblocking(False)

    def pour(rounds: int) -> None:
        got = 0
        for turn in range(1, rounds + 1):
            for publisher, packet in zip(publishers, packets, strict=True):
                publisher.socket.sendall(packet)
            while got < due * (turn if turn == rounds else turn - AHEAD):
                select.select([reader.socket], [], [], 30)
                got += len(reader.socket.recv(1 << 20))

    pour(20)
    for pid in pids:
        settled_kib(pid)
    before_s = [cpu_s(pid) for pid in pids]
    pour(ROUNDS)
    used_s = [cpu_s(pid) - before for pid, before in zip(pids, before_s, strict=True)]
    for client in (reader, *publishers):
        client.socket.close()
    return [1e6 * used / (ROUNDS * SCATTERED) for used in used_s]


def latencies_us(*ways: tuple[int, int]) -> list[tuple[float, float]]:
    """p50 and p99 from publishing to receiving, one publication at a time, of brokers that are
    reached at these ports. They take turns, because the machine is not as fast all the time."""
    pairs = []
    for first, last in ways:
        reader, publisher = Raw(last, "r"), Raw(first, "p")
        reader.subscribe(1, "ping")
        reader.await_subacks(1)
        pairs.append((reader, publisher))
    packet = mqtt5.PublishPacket("ping", b'{"n": 1}').write()
    took: list[list[float]] = [[] for _ in ways]
    for _ in range(PINGS // PINGS_IN_TURN):
        for (reader, publisher), times in zip(pairs, took, strict=True):
            for _ in range(PINGS_IN_TURN):
                started = time.perf_counter()
                publisher.socket.sendall(packet)
                reader.packet()
                times.append((time.perf_counter() - started) * 1e6)
                time.sleep(0.0005)
    for pair in pairs:
        for client in pair:
            client.socket.close()
    return [(statistics.median(times), sorted(times)[int(0.99 * PINGS)]) for times in took]


def idle(port: int, pid: int) -> int:
    """Bytes per idle connection."""
    before = memory_kib(pid)
    clients = [Raw(port, f"idle{n}") for n in range(IDLE)]
    used = (memory_kib(pid) - before) * 1024 // IDLE
    for client in clients:
        client.socket.close()
    return used


def inside(
    path: Path, filters: int, more: tuple[str, str | None] | None = None
) -> tuple[Broker, Callable[[list[bytes]], Callable[[], None]]]:
    """A broker without sockets, in this process, with so many filters of the same holders, and
    perhaps one client more; and what gives it packets of a publisher."""
    compiled.ready_passing()  # which a broker does beside what is looked at here
    broker = Broker(load(path), 0, 0, None, None)
    clients = broker.clients

    def client(name: str) -> Connection:
        connection = clients.opened("memory:1", 0)
        assert connection is not None
        clients.received(connection, mqtt5.ConnectPacket(name, clean_start=True).write(), 0)
        return connection

    for h in range(HOLDERS):
        holder = client(f"h{h}")
        for n in range(filters // HOLDERS):
            asked = subscribe_packet(n + 1, *wanted(h, n, filters // HOLDERS))
            clients.received(holder, asked, 0)
    if more is not None:
        clients.received(client("more"), subscribe_packet(1, *more), 0)
        broker.flush(0)
    publisher = client("p")

    def in_broker(sent: list[bytes]) -> Callable[[], None]:
        chunks = [b"".join(sent[at : at + 1000]) for at in range(0, len(sent), 1000)]

        def act() -> None:
            for chunk in chunks:
                clients.received(publisher, chunk, 0)
                for connection in clients.connections:
                    connection.out.clear()

        return act

    return broker, in_broker


def best_us(act: Callable[[], object], count: int) -> float:
    """CPU time of one of so many, the least of five rounds after one to get warm."""
    act()
    times = []
    for _ in range(5):
        started = time.process_time()
        act()
        times.append(time.process_time() - started)
    return 1e6 * min(times) / count


def parts_us(path: Path) -> list[tuple[str, float]]:
    """Where the time of a filtered publication goes, in µs: a broker without sockets is given the
    same load; then what it does is done alone."""
    broker, in_broker = inside(path, FILTERS)
    quotes = [quote(n) for n in range(20_000)]
    packets = [mqtt5.PublishPacket(*each).write() for each in quotes]
    asking = broker.asking()
    wants = [asking(content.plain_attributes(*each)) is not NOBODY for each in quotes]
    of_wanted = [packet for packet, wanting in zip(packets, wants, strict=True) if wanting]
    of_others = [packet for packet, wanting in zip(packets, wants, strict=True) if not wanting]
    wanted_us = best_us(in_broker(of_wanted), len(of_wanted))
    rows = [
        ("a publication in a broker", best_us(in_broker(packets), len(packets))),
        ("one that nobody wants", best_us(in_broker(of_others), len(of_others))),
        (f"one of the {len(of_wanted) / len(quotes):.0%} that somebody wants", wanted_us),
    ]
    index, compiled_s = broker.router.deciding(), 0.0
    assert index is not None
    plain = index.passing

    def timed() -> Passing | None:
        passing = plain()

        def look(asked: Any) -> int:
            nonlocal compiled_s
            assert passing is not None
            started = time.perf_counter()
            answer = passing(asked)
            compiled_s += time.perf_counter() - started
            return answer

        return None if passing is None else look

    index.passing = timed  # type: ignore[method-assign]
    again = in_broker(of_wanted)
    started = time.perf_counter()
    for _ in range(5):
        again()
    compiled_us = wanted_us * compiled_s / (time.perf_counter() - started)
    return [
        *rows,
        ("of it: read, matched, gathered in compiled code", compiled_us),
        ("of it: the rest, in Python", wanted_us - compiled_us),
    ]


def growing_us(path: Path) -> list[float]:
    """What a publication costs in a broker without sockets, by the number of filters."""
    packets = [mqtt5.PublishPacket(*quote(n)).write() for n in range(20_000)]
    return [best_us(inside(path, count)[1](packets), len(packets)) for count in GROWING]


def beside_us(path: Path) -> list[tuple[str, float]]:
    """What a publication costs while one client more subscribes to something."""
    packets = [mqtt5.PublishPacket(*quote(n)).write() for n in range(20_000)]
    costs = []
    for more in (None, *BESIDE):
        what = "nobody" if more is None else " where ".join(filter(None, more))
        costs.append((what, best_us(inside(path, FILTERS, more)[1](packets), len(packets))))
    return costs


def beside_rabbitmq(folder: Path, ours: float) -> None:
    reason = rabbitmq.missing()
    if reason is not None:
        print(f"  RabbitMQ not measured: {reason}")
        return
    with rabbitmq.server(folder) as server:
        theirs = rabbitmq.publications_per_s(server.amqp, FILTERS, HEADERS_PUBLICATIONS)
    print(f"  RabbitMQ, {FILTERS:,} bindings of a headers exchange, one scheduler")
    print(f"  publications/s          {theirs:>12,.0f}   ours to RabbitMQ's {ours / theirs:,.0f}")


def main() -> None:
    compiled.ready_passing()  # or a broker would begin without the kernels while they are compiled
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"one broker, {FILTERS:,} filters, loopback, load from this process")
        with brokers(1, folder) as (ports, _, pids):
            per_connection = idle(ports[0], pids[0])
            rate, per_cpu, matched, per_filter = filtered(ports[0], pids[0])
            print(f"  filtered publications/s {rate:>12,.0f}   {per_cpu:,.0f} per CPU second")
            print(f"  deliveries each         {matched:>12.2f}")
            print(f"  bytes per filter        {per_filter:>12,}")
            print(f"  bytes per idle client   {per_connection:>12,}")
        parts = parts_us(folder / "chain1.toml")
        parts.append(("sockets and event loop", 1e6 / per_cpu - parts[0][1]))
        for what, us in parts:
            print(f"  µs, {what:<48} {us:>6.2f}")
        costs = growing_us(folder / "chain1.toml")
        print("  " + growth.said("cost of a publication by filters", GROWING, costs, "0 to 1"))
        print("  µs, a publication in a broker beside one client more, subscribed to")
        for what, us in beside_us(folder / "chain1.toml"):
            print(f"    {what:<50} {us:>6.2f}")
        traces = ["[traces]", 'folder = "traces"', f"sample = {SAMPLE}"]
        with brokers(1, folder, traces) as (ports, _, pids):
            _, per_cpu, _, _ = filtered(ports[0], pids[0])
        print(f"  with {SAMPLE:.0%} of them traced, publications per CPU second {per_cpu:,.0f}")
        beside_rabbitmq(folder, rate)
        with ExitStack() as stack:
            ports, _, pids = stack.enter_context(brokers(1, folder))
            relay = free_port()
            bare = [sys.executable, "-m", "postroad.bench.relay", str(relay)]
            stack.enter_context(started(bare, relay))
            ways = [ports[0], relay]
            ours, per_cpu = fanned(ports[0], pids[0])
            if shutil.which("mosquitto") or Path("/usr/sbin/mosquitto").exists():
                port, pid = stack.enter_context(mosquitto(folder))
                theirs, their_cpu = fanned(port, pid)
                ways.append(port)
            latencies = latencies_us(*((way, way) for way in ways))
        print(f"fan-out 1 to {FANOUT}, {PAYLOAD} bytes")
        print(f"  deliveries/s            {ours:>12,.0f}   {per_cpu:,.0f} per CPU second")
        if len(ways) == 3:
            print(f"  mosquitto deliveries/s  {theirs:>12,.0f}   {their_cpu:,.0f} per CPU second")
            times, cpu_times = ours / theirs, per_cpu / their_cpu
            print(f"  ours to mosquitto's     {times:>12.1f}   {cpu_times:.1f} per CPU second")
        print("latency when idle, µs, taking turns")
        for who, (p50, p99) in zip(("ours", "a bare relay", "mosquitto"), latencies, strict=False):
            print(f"  {who:<23} {p50:>12,.0f} p50 {p99:,.0f} p99")
        if len(ways) == 3:
            print(f"  ours to mosquitto's     {latencies[0][0] / latencies[2][0]:>12.2f}")
        with brokers(3, folder) as (ports, _, pids):
            rate, per_cpu = chained(ports[0], ports[2], pids)
            costs = scattered_us(ports[0], ports[2], pids)
            ((p50, p99),) = latencies_us((ports[0], ports[2]))
        print("chain of three brokers, filtered")
        print(f"  publications/s          {rate:>12,.0f}   {per_cpu:,.0f} per CPU second of one")
        print(f"  latency when idle, µs   {p50:>12,.0f} p50 {p99:,.0f} p99")
        each = ", ".join(f"{us:.1f}" for us in costs)
        print(f"  of {SCATTERED} clients, one publication each in turn, µs of CPU at each: {each}")


if __name__ == "__main__":
    main()
