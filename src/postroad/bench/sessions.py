"""How long a client waits for CONNACK over a chain of three brokers: new, back at the same broker,
and at the other end, where its session has to come first; with and without a store. And what a
broker's memory of one identifier takes, and how the time to learn them grows: each is put into a
dictionary."""

from __future__ import annotations

import socket
import tempfile
import time
import tracemalloc
from pathlib import Path

import mqtt5

from postroad.bench import growth
from postroad.bench.live import brokers
from postroad.live.edge.homes import Homes
from postroad.live.links.messages import Residence, Residents

CLIENTS = 200
IDENTIFIERS = 100_000
SIZES = (10_000, 20_000, 50_000, IDENTIFIERS)


def connect(port: int, name: str) -> tuple[float, bool]:
    """Milliseconds to CONNACK, and whether the session was there."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        hello = mqtt5.ConnectPacket(name, clean_start=False, session_expiry_interval=600)
        client.sendall(hello.write())
        data = client.recv(4096)
        ms = 1e3 * (time.perf_counter() - began)
    packet, _ = mqtt5.read(memoryview(data))
    assert isinstance(packet, mqtt5.ConnAckPacket)
    return ms, packet.session_present


def residents(count: int) -> Residents:
    """Word of so many identifiers elsewhere."""
    clients: dict[str, Residence] = {
        f"client-{n:06}": (10**15 + n, True, None) for n in range(count)
    }
    return Residents(1, 1, clients)


def learning_s(count: int) -> float:
    """CPU seconds in which a broker learns of so many, the least of three."""
    told = residents(count)
    took = []
    for _ in range(3):
        homes = Homes(0, 0, None)
        began = time.process_time()
        homes.learn(told, 1, 0)
        took.append(time.process_time() - began)
    return min(took)


def main() -> None:
    print("\nms to CONNACK, chain of three | p50 | p99\n---|---:|---:")
    for store in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            options = ['store = "s"'] if store else []
            with brokers(3, Path(folder), options) as ((first, _, last), _, _):
                for what, port, present in (
                    ("new", first, False), ("back", first, True), ("at the other end", last, True),
                ):  # fmt: skip
                    waits = [connect(port, f"c{number}") for number in range(CLIENTS)]
                    assert all(each == present for _, each in waits)
                    times = sorted(ms for ms, _ in waits)
                    name = f"{what}, {'store' if store else 'no store'}"
                    p50, p99 = times[CLIENTS // 2], times[CLIENTS * 99 // 100]
                    print(f"{name} | {p50:.2f} | {p99:.2f}")
                    time.sleep(0.5)  # word of it spreads
    costs = [learning_s(count) for count in SIZES]
    print("\n" + growth.said("cost of learning identifiers by their number", SIZES, costs, "1"))
    tracemalloc.start()
    homes = Homes(0, 0, None)
    before = tracemalloc.get_traced_memory()[0]
    homes.learn(residents(IDENTIFIERS), 1, 0)
    size = (tracemalloc.get_traced_memory()[0] - before) / IDENTIFIERS
    print(f"\nbytes for each identifier elsewhere: {size:.0f}")


if __name__ == "__main__":
    main()
