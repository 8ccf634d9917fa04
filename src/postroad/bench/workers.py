"""What a broker of several workers carries beside a broker of one.

The load comes from plain sockets in this process, which shares the machine's cores with the
brokers; so rates are by the CPU time of the workers. A publication's cost at each worker is its
CPU time over all publications, and what the broker would carry with a core for each worker, and
the load from elsewhere, is bounded by its busiest worker. Where the machine is busy the same
holds: a worker that waits for a core uses none.

Each load is given to a broker of one worker and to one of two, in turn.
What more workers would carry follows on paper from what a publication costs that stays at its
worker, that leaves it, and that comes to another: the first worker is in the middle of all others.
"""

from __future__ import annotations

import json
import selectors
import socket
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mqtt5

from postroad.bench import live
from postroad.bench.live import FILTERS, HOLDERS, Raw, cpu_s, quote, wanted
from postroad.matching import compiled, index

PUBLISHERS = 8
FILTERED = 120_000
FANOUT, FANNED = 50, 200_000
APART = 40_000
PAYLOAD = 64
RUNS = 7
WARM = 2 * index.PASSED_WORTHWHILE  # publications, after which any table is compiled
SIZES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Figures:
    """Of one publication, in µs of CPU time."""

    workers_us: list[float]  # at each worker, the first first
    rate: float  # publications a second as it went, the load on the same cores

    @property
    def bound(self) -> float:
        """Publications a second with a core for each worker."""
        return 1e6 / max(self.workers_us)


@dataclass(frozen=True)
class Pouring:
    """Clients that are connected and have subscribed, and what is published."""

    publishers: list[Raw]
    readers: list[Raw]
    packets: list[list[bytes]]  # of each publisher
    ends: list[Raw]  # one at each worker, which see every publisher's last publication

    @property
    def clients(self) -> list[Raw]:
        return [*self.publishers, *self.readers, *self.ends]


@contextmanager
def broker(folder: Path, workers: int) -> Iterator[tuple[int, list[int]]]:
    """A broker's port, and the process ids of its workers."""
    own = folder / str(workers)
    own.mkdir()
    with live.brokers(1, own, workers=workers) as (ports, https, pids):

        def status() -> Any:
            with urllib.request.urlopen(f"http://127.0.0.1:{https[0]}/status") as answer:
                return json.load(answer)

        while any(row is None or not row["up"] for row in status().get("workers", {}).values()):
            time.sleep(0.1)
        rows = status().get("workers")
        yield ports[0], pids if rows is None else [row["pid"] for row in rows.values()]


def ends(port: int, workers: int) -> list[Raw]:
    """Connected in a row, so that each is at a worker of its own."""
    made = [Raw(port, f"end{n}") for n in range(workers)]
    for each in made:
        each.subscribe(1, "end")
        each.await_subacks(1)
    return made


def filtered(port: int, workers: int) -> Pouring:
    """Ten thousand filters, 1.0 deliveries of each publication, whoever publishes it."""
    finish = ends(port, workers)
    holders = [Raw(port, f"h{n}") for n in range(HOLDERS)]
    each = FILTERS // HOLDERS
    for h, holder in enumerate(holders):
        for n in range(each):
            holder.subscribe(n + 1, *wanted(h, n))
        holder.await_subacks(each)
    publishers = [Raw(port, f"p{n}") for n in range(PUBLISHERS)]
    quotes = [mqtt5.PublishPacket(*quote(n)).write() for n in range(20_000)]
    packets = [quotes[p::PUBLISHERS] * (FILTERED // 20_000) for p in range(PUBLISHERS)]
    return Pouring(publishers, holders, packets, finish)


def fanned(port: int, workers: int) -> Pouring:
    """One topic that fifty clients read."""
    finish = ends(port, workers)
    readers = [Raw(port, f"r{n}") for n in range(FANOUT)]
    for reader in readers:
        reader.subscribe(1, "fan/out")
        reader.await_subacks(1)
    publishers = [Raw(port, f"p{n}") for n in range(PUBLISHERS)]
    packet = mqtt5.PublishPacket("fan/out", b"x" * PAYLOAD).write()
    return Pouring(publishers, readers, [[packet] * (FANNED // PUBLISHERS)] * PUBLISHERS, finish)


def apart(port: int, workers: int) -> Pouring:
    """Publishers at one worker, and at another a reader that gets all of it by a filter."""
    finish = ends(port, workers)
    clients = [Raw(port, f"c{n}") for n in range(2 * PUBLISHERS)]  # they alternate
    publishers, readers = clients[0::2], clients[1::2]
    readers[0].subscribe(1, "apart/a", "n >= 0")
    readers[0].await_subacks(1)
    body = b'{"n": 1, "pad": "%s"}' % (b"x" * PAYLOAD)
    packet = mqtt5.PublishPacket("apart/a", body).write()
    return Pouring(publishers, readers, [[packet] * (APART // PUBLISHERS)] * PUBLISHERS, finish)


def pour(load: Pouring, share: float = 1.0) -> tuple[int, float]:
    """Publish a share of everything and read everything: how many and how long it took."""
    last = mqtt5.PublishPacket("end", b"").write()
    parts = [each[: int(share * len(each))] for each in load.packets]
    left = {
        client.socket: memoryview(b"".join(part) + last)
        for client, part in zip(load.publishers, parts, strict=True)
    }
    due = {each.socket: len(last) * len(load.publishers) for each in load.ends}
    chosen = selectors.DefaultSelector()
    for client in load.clients:
        client.socket.setblocking(False)
        writes = client.socket in left
        chosen.register(client.socket, selectors.EVENT_WRITE if writes else selectors.EVENT_READ)
    started = time.perf_counter()
    while any(due.values()):
        for key, events in chosen.select(30):
            ready = key.fileobj
            assert isinstance(ready, socket.socket)
            if events & selectors.EVENT_WRITE:
                left[ready] = left[ready][ready.send(left[ready][: 1 << 16]) :]
                if not left[ready]:
                    chosen.unregister(ready)
            else:
                size = len(ready.recv(1 << 20))
                assert size, "the broker closed a connection"
                if ready in due:
                    due[ready] -= size
    took = time.perf_counter() - started
    chosen.close()
    for client in load.clients:
        client.socket.setblocking(True)
    return sum(map(len, parts)), took


def cpu_us(pid: int) -> float:
    """The CPU time that a process has used, finer than the system's clock ticks."""
    try:
        spent = [(task / "schedstat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:  # a kernel without it
        return 1e6 * cpu_s(pid)
    return sum(int(each.split()[0]) for each in spent) / 1e3


def rest(pids: list[int]) -> None:
    """Until the workers do nothing: the first publications may have kernels loaded beside."""
    used, before = 1.0, 0.0
    while used > 0.02:
        before, used = sum(map(cpu_s, pids)), 0.0
        time.sleep(0.5)
        used = sum(map(cpu_s, pids)) - before


def compare(folder: Path, prepare: Callable[[int, int], Pouring]) -> list[Figures]:
    """A broker of one worker and one of two, which get the same load in turn: the best of each,
    because whatever else the machine does can only add to what a publication costs."""
    found: list[list[Figures]] = [[], []]
    with ExitStack() as stack:
        sides = []
        for workers in (1, 2):
            port, pids = stack.enter_context(broker(folder, workers))
            load = prepare(port, workers)
            for _ in range(1 + WARM // sum(map(len, load.packets))):
                pour(load)
            rest(pids)
            sides.append((load, pids))
        for _ in range(RUNS):
            for (load, pids), figures in zip(sides, found, strict=True):
                before = [cpu_us(pid) for pid in pids]
                count, took = pour(load)
                used = [cpu_us(pid) - was for pid, was in zip(pids, before, strict=True)]
                figures.append(Figures([each / count for each in used], count / took))
        for load, _ in sides:
            for client in load.clients:
                client.socket.close()
    return [max(figures, key=lambda each: each.bound) for figures in found]


def on_paper(local_us: float, leaves_us: float, comes_us: float, share: float, n: int) -> float:
    """How many times as much as one n workers carry, if a share of the publications is wanted by a
    client of another worker, any of them."""
    if n == 1:
        return 1.0
    through_us = leaves_us + comes_us - local_us  # neither read from a client nor delivered to one
    own_us = (1 - share) * local_us + share * leaves_us
    # Of a publication at any worker: to the first worker, from it, and between two others.
    first, others = 1 / n, (n - 1) / n
    to_first, between = others * share / (n - 1), others * share * (n - 2) / (n - 1)
    middle_us = first * own_us + to_first * comes_us + between * through_us
    other_us = first * own_us + (first * share + between) * comes_us / (n - 1)
    return local_us / max(middle_us, other_us)


def main() -> None:
    compiled.ready_passing()  # or workers would begin without the kernels while they are compiled
    loads = {
        f"filtered, {FILTERS:,} filters, 1.0 deliveries each": filtered,
        f"one topic to {FANOUT} clients": fanned,
        "filtered, from clients of one worker to one of another": apart,
    }
    best: dict[str, list[Figures]] = {}
    for what, prepare in loads.items():
        with tempfile.TemporaryDirectory() as name:
            one, two = best[what] = compare(Path(name), prepare)
        print(what)
        for workers, found in ((1, one), (2, two)):
            us = ", ".join(f"{each:.2f}" for each in found.workers_us)
            print(
                f"  {workers} workers: {us} µs of CPU a publication at each; at most "
                f"{found.bound:,.0f}/s with a core each; as it went {found.rate:,.0f}/s"
            )
        print(f"  two carry {two.bound / one.bound:.2f} times as much as one", flush=True)
    one, two = best["filtered, from clients of one worker to one of another"]
    local_us, (leaves_us, comes_us) = one.workers_us[0], two.workers_us
    print("times as much as one worker, on paper, by the share wanted at another worker")
    print("  workers " + " ".join(f"{n:>6}" for n in SIZES))
    for share in (0.0, 0.1, 0.5, 1.0):
        times = (on_paper(local_us, leaves_us, comes_us, share, n) for n in SIZES)
        print(f"  {share:>7.0%} " + " ".join(f"{each:>6.1f}" for each in times))


if __name__ == "__main__":
    main()
