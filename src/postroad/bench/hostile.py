"""How long others wait while one client does its worst: hostile inputs, and plain saturation.

For each input a broker of its own runs as a process, or two where what is sent goes on to a
neighbour. One client sends PINGREQ all the time, each after the answer to the last, while another
sends the input, there to the other broker. Printed are its waits, the worst and
the 99th percentile, as time and as CPU time of the broker meanwhile (which does not depend on how
busy the machine is); the broker's CPU time until the input is dealt with; what subscribers that
read all the time did not get; and what was logged. mosquitto, where it is installed, gets the
inputs that are plain MQTT. `python -m postroad.bench.hostile WORD …` runs those with a WORD in
their name.
"""

from __future__ import annotations

import selectors
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import mqtt5

from postroad.bench import live
from postroad.live.edge import mqtt

MOST_S = 60.0  # for one input
PING = b"\xc0\x00"
SUBSCRIBE_3 = b"\x82\x06\x00\x01\x00\x01s\x00"  # to `s`, in MQTT 3.1.1
FIELD = 65_000  # bytes: about what a user property holds


def chain(part: Callable[[int], str], join: str = " AND ", size: int = FIELD) -> str:
    parts: list[str] = []
    while size > 0:
        parts.append(part(len(parts)))
        size -= len(parts[-1]) + len(join)
    return join.join(parts[:-1])


def subscribe(number: int, patterns: list[str], where: str | None = None) -> bytes:
    wanted = [
        mqtt5.TopicFilter(p, max_qos=mqtt5.QoS.AT_MOST_ONCE, retain_as_published=False)
        for p in patterns
    ]
    properties = [] if where is None else [("$where", where)]
    return mqtt5.SubscribePacket(number, wanted, user_properties=properties).write()


def publish(topic: str, payload: bytes, **options: object) -> bytes:
    return mqtt5.PublishPacket(topic, payload, **options).write()  # type: ignore[arg-type]


def filters(text: str, count: int = 20) -> bytes:
    """SUBSCRIBEs with this filter, or the like of it, one after the other."""
    return b"".join(subscribe(n + 1, [f"t/{n}"], f"({text}) AND n{n} = 1") for n in range(count))


# As many constraints in all conjunctions as a filter may have.
GROUPS = " AND ".join(
    [*(f"(a{i} = 1 OR b{i} = 2)" for i in range(8)), *(f"c{i} > {i}" for i in range(9))]
)


def unlike(number: int) -> str:
    """As many patterns as a filter may have, each of which takes a long look at many an `a`."""
    return " AND ".join(f"a NOT LIKE '%{'a' * 20}{number}b{i}%'" for i in range(1_000))


WORDS = "price > 10 AND symbol LIKE 'A%' AND volume IN (1, 2, 3)"


@dataclass(frozen=True)
class Attack:
    name: str
    data: Callable[[], bytes]
    plain: bool = False  # MQTT that any broker understands
    level: int = mqtt.V5  # of who sends it, and of readers
    readers: int = 0  # subscribers to `s`, which read all the time
    expected: int = 0  # publications that each of them should get
    far: bool = False  # who waits, and readers, are at the neighbour of the broker that gets it


def _v3(topic: str, payload: bytes) -> bytes:
    body = len(topic).to_bytes(2, "big") + topic.encode() + payload
    return bytes((0x30, len(body))) + body


INPUTS = [
    Attack("nothing", lambda: b"", plain=True),
    Attack(
        "100,000 QoS 0 to five readers, MQTT 5",
        lambda: publish("s", b"x" * 16) * 100_000, True, readers=5, expected=100_000,
    ),
    Attack(
        "100,000 QoS 0 to five readers, 3.1.1",
        lambda: _v3("s", b"x" * 16) * 100_000, True, mqtt.V3, 5, 100_000,
    ),
    Attack(
        "20,000 QoS 0 of 1 kB to fifty readers",
        lambda: publish("s", b"x" * 1000) * 20_000, True, readers=50, expected=20_000,
    ),
    Attack(
        "100,000 QoS 0 to five readers at a neighbour",
        lambda: publish("s", b"x" * 16) * 100_000, readers=5, expected=100_000, far=True,
    ),
    Attack("<> chains, at a neighbour", lambda: filters(chain(lambda i: f"a <> '{i}'")), far=True),
    Attack("4,600 constraints, at a neighbour", lambda: filters(GROUPS), far=True),
    Attack("10,000 subscriptions, then gone, at a neighbour", lambda: b"".join(
        subscribe(n + 1, [f"t/{n * 100 + i}" for i in range(100)], "x > 1") for n in range(100)),
        far=True),
    Attack("200 topic filters, one $where", lambda: b"".join(
        subscribe(n + 1, [f"t/{n}/{i}" for i in range(200)], WORDS) for n in range(20))),
    Attack("200 topic filters, a $where of 4,600 constraints", lambda: subscribe(
        1, [f"t/{i}" for i in range(200)], GROUPS)),
    Attack("NOT LIKE chains", lambda: filters(chain(lambda i: f"a NOT LIKE '%{i}%'"))),
    Attack("<> chains", lambda: filters(chain(lambda i: f"a <> '{i}'"))),
    Attack("huge IN lists", lambda: filters(f"a IN ({chain(str, ',')})")),
    Attack("deep nesting", lambda: filters(
        "(" * 900 + "a <> '0'" + "".join(f" AND a <> '{i}')" for i in range(900)))),
    Attack("4,600 constraints", lambda: filters(GROUPS)),
    Attack("LIKE patterns with _", lambda: filters("a LIKE '%" + "a_" * 400 + "b%'")),
    Attack("never closed texts", lambda: filters("a = '" + "\\'" * 30_000)),
    Attack("digits and a letter", lambda: filters("a = " + "1" * 60_000 + "x")),
    Attack("bad SUBSCRIBEs, 8 MB", lambda: subscribe(1, ["a/b"], "price >") * 200_000),
    Attack("3,000 bad filters in one SUBSCRIBE", lambda: subscribe(
        1, [f"$share/g/{n}" for n in range(3000)]) * 20),
    Attack("many topic levels", lambda: b"".join(
        subscribe(n + 1, ["/".join(["+"] * 31 + [str(n)] + ["+"] * 31)]) for n in range(500))
        + publish("/".join(["a"] * 64), b"") * 2_000, plain=True),
    Attack("many properties", lambda: publish(
        "s", b"", user_properties=[(f"n{i}", "1") for i in range(3000)]) * 200, plain=True),
    Attack("PINGREQs, 2 MB", lambda: PING * 1_000_000, plain=True),
    Attack("tiny publications to new topics", lambda: b"".join(
        publish(f"t{n}", b"") for n in range(100_000)), plain=True),
    Attack("retained tombstones", lambda: b"".join(
        publish(f"t{n}", b"", retain=True) for n in range(100_000)), plain=True),
    Attack("# and 50,000 retained, then 200 times", lambda: b"".join(
        publish(f"t{n}", b"x", retain=True) for n in range(50_000))
        + b"".join(subscribe(n + 1, ["#"]) for n in range(200)), plain=True),
    Attack("10,000 subscriptions, then gone", lambda: b"".join(
        subscribe(n + 1, [f"t/{n * 100 + i}" for i in range(100)], "x > 1") for n in range(100))),
    Attack("the longest texts against the most patterns", lambda: b"".join(
        subscribe(n + 1, [f"s/{n}"], unlike(n)) for n in range(5))
        + publish("s/0", b'{"a": "%s"}' % (b"a" * 4_096)) * 100),
    Attack("the longest topics against the most patterns", lambda: b"".join(
        subscribe(n + 1, [f"+/x{n * 100 + i}/+" for i in range(100)]) for n in range(100))
        + publish("a/" + "x" * 1_000 + "/b", b"") * 200, plain=True),
    Attack("payloads of 80,000 fields", lambda: publish(
        "s", b"{%s}" % b",".join(b'"n%d":1' % i for i in range(80_000))) * 20, plain=True),
]  # fmt: skip


class Pinger(threading.Thread):
    """Asks, waits for the answer, asks again."""

    def __init__(self, port: int, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.cpu_s: list[float] = []
        self.client = live.Raw(port, "pinger")
        self.client.socket.settimeout(MOST_S)
        self.waits_s: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        connection = self.client.socket
        while not self.over.is_set():
            began, before_s = time.perf_counter(), _on_cpu_s(self.pid)
            connection.sendall(PING)
            assert connection.recv(2) == b"\xd0\x00"
            self.waits_s.append(time.perf_counter() - began)
            self.cpu_s.append(_on_cpu_s(self.pid) - before_s)
            time.sleep(0.001)


def _on_cpu_s(pid: int) -> float:
    """The CPU time of a process's main thread, to the scheduler's tick."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


@dataclass(frozen=True)
class Delays:
    worst_ms: float
    p99_ms: float
    cpu_worst_ms: float
    cpu_p99_ms: float
    cpu_s: float
    took_s: float
    missed: int


def measure(attack: Attack, to: int, port: int, pid: int) -> Delays:
    """Send the input to one broker, and wait at the one with this port and process.

    It is dealt with when the broker answers a PINGREQ behind it.
    """
    data = attack.data()
    hostile = _raw(to, "hostile", attack.level)
    readers = [_raw(port, f"reader{n}", attack.level) for n in range(attack.readers)]
    for reader in readers:
        reader.socket.sendall(
            live.subscribe_packet(1, "s", None) if attack.level == mqtt.V5 else SUBSCRIBE_3
        )
        reader.await_subacks(1)
    pinger = Pinger(port, pid)
    before_s = live.cpu_s(pid)
    began = time.perf_counter()
    pinger.start()
    got = _drive(hostile, data + PING, readers, attack.expected)
    took_s = time.perf_counter() - began
    hostile.socket.close()
    time.sleep(2.0 if attack.far else 0.2)  # what it left behind, or is on its way
    pinger.over.set()
    pinger.join(MOST_S)
    waits, on_cpu = (sorted(times) or [MOST_S] for times in (pinger.waits_s, pinger.cpu_s))
    used_s = live.cpu_s(pid) - before_s
    for client in (*readers, pinger.client):
        client.socket.close()
    p99 = int(0.99 * len(waits))
    return Delays(
        1e3 * waits[-1], 1e3 * waits[p99],
        1e3 * on_cpu[-1], 1e3 * on_cpu[min(p99, len(on_cpu) - 1)],
        used_s, took_s, attack.expected * len(readers) - got,
    )  # fmt: skip


def _raw(port: int, name: str, level: int) -> live.Raw:
    if level == mqtt.V5:
        return live.Raw(port, name)
    client = live.Raw.__new__(live.Raw)
    client.socket = socket.create_connection(("127.0.0.1", port))
    client.buffer = b""
    body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2, "big") + name.encode()
    client.socket.sendall(bytes((0x10, len(body))) + body)
    assert client.packet()[0] == 0x20
    return client


def _drive(hostile: live.Raw, data: bytes, readers: list[live.Raw], expected: int) -> int:
    """Write and read until all is answered; how many publications readers got."""
    chosen = selectors.DefaultSelector()
    hostile.socket.setblocking(False)
    chosen.register(hostile.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
    buffers = {}
    for reader in readers:
        reader.socket.setblocking(False)
        chosen.register(reader.socket, selectors.EVENT_READ)
        buffers[reader.socket] = 0
    view, at, tail, answered = memoryview(data), 0, b"", False
    size = len(mqtt5.PublishPacket("s", b"").write())
    end, quiet = time.perf_counter() + MOST_S, time.perf_counter()
    each = 0
    while time.perf_counter() < end:
        for key, events in chosen.select(0.1):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            try:
                if events & selectors.EVENT_WRITE:
                    at += connection.send(view[at : at + (1 << 16)])
                    if at == len(data):
                        chosen.modify(connection, selectors.EVENT_READ)
                if events & selectors.EVENT_READ:
                    chunk = connection.recv(1 << 20)
                    quiet = time.perf_counter()
                    if connection is hostile.socket:
                        tail = (tail + chunk)[-2:]
                        answered = answered or (at == len(data) and tail == b"\xd0\x00")
                        if not chunk:
                            answered = True  # it was let go
                            chosen.unregister(connection)
                    else:
                        buffers[connection] += len(chunk)
                        each = each or mqtt.frame(chunk, 0, 1 << 20)
            except (ConnectionError, BlockingIOError):
                if connection is hostile.socket:
                    answered = True
                    chosen.unregister(connection)
        done = not readers or min(buffers.values()) >= expected * (each or size)
        if answered and (done or time.perf_counter() - quiet > 2):
            break
    chosen.close()
    return sum(count // (each or size) for count in buffers.values())


@contextmanager
def brokers(count: int, folder: Path) -> Iterator[tuple[list[int], list[int], Path]]:
    """Their log goes to a file, which floods may not fill."""
    log = folder / "broker.log"
    with log.open("wb") as out, live.brokers(count, folder, stderr=out) as (ports, _, pids):
        yield ports, pids, log


def main() -> None:
    words = sys.argv[1:] if sys.argv[0].endswith("hostile.py") else []
    wanted = [each for each in INPUTS if any(word in each.name for word in words)] or INPUTS
    other = shutil.which("mosquitto") or Path("/usr/sbin/mosquitto").exists()
    print("the wait of another client's PINGREQ, in ms, while one client sends:")
    print(f"{'':<50} {'':>9} {'':>8} {'broker CPU':>16} {'all in all':>15}")
    print(
        f"{'':<50} {'worst':>9} {'p99':>8} {'worst':>8} {'p99':>7} {'CPU s':>7} {'took s':>7}"
        f" {'missed':>7} {'log kB':>6}"
    )
    for attack in wanted:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with brokers(1 + attack.far, folder) as (ports, pids, log):
                outcome = measure(attack, ports[0], ports[-1], pids[-1])
                _print(attack.name, outcome, log.stat().st_size // 1000)
            if other and attack.plain:
                with live.mosquitto(folder) as (port, pid):
                    _print("  mosquitto", measure(attack, port, port, pid), None)


def _print(name: str, outcome: Delays, log_kb: int | None) -> None:
    print(
        f"{name:<50} {outcome.worst_ms:>9.1f} {outcome.p99_ms:>8.1f} {outcome.cpu_worst_ms:>8.1f}"
        f" {outcome.cpu_p99_ms:>7.1f} {outcome.cpu_s:>7.2f} {outcome.took_s:>7.2f}"
        f" {outcome.missed:>7,} {'' if log_kb is None else log_kb:>6}",
        flush=True,
    )


if __name__ == "__main__":
    main()
