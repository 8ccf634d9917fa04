"""`pipeline watch` at work: rows a second, per batch, beside nothing else or beside brokers.

A chain of brokers whose publishers sit at one end, as the brokers would have recorded it: files of
a few seconds, in order. The first batch warms Spark up and is left out of the rate. All are of as
many rows, and a later one should take no more processor time than an earlier one. With `BESIDE=N`
a live chain of three brokers carries N publications a second meanwhile, each through all three;
what arrives is counted before the watch starts and while it runs.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import mqtt5

from postroad.bench import growth, live
from postroad.bench.pipeline import processor_s
from postroad.pipeline import run, session
from postroad.traces.files import Files
from postroad.traces.schema import Recording, Row

BROKERS, PUBLISHERS, CLASSES = 8, 100, 20
ROWS_PER_S = 50_000
FILE_S = 5
SECONDS = int(os.environ.get("SECONDS", 120))
BESIDE = int(os.environ.get("BESIDE", 0))
LIVE_BROKERS, BEFORE_S, EVERY_S = 3, 5.0, 0.01
BEGIN_US = 1_700_000_000_000_000
JOB = run.Job("local[2]", ("spark.driver.memory=2g",))


class Carried:
    """Publications through a live chain at a steady rate, and how many have arrived."""

    def __init__(self, first: int, last: int, pids: list[int]) -> None:
        self.pids = pids
        self.reader, self.publisher = live.Raw(last, "reader"), live.Raw(first, "publisher")
        self.reader.subscribe(1, "chain/+", "n >= 0")
        self.reader.await_subacks(1)
        payload = b'{"n": 1, "pad": "%s"}' % (b"x" * live.PAYLOAD)
        self.packet = mqtt5.PublishPacket("chain/a", payload).write()
        self.bytes = 0
        self.ended = threading.Event()
        for part in (self._read, self._publish):
            threading.Thread(target=part, daemon=True).start()

    def _publish(self) -> None:
        begun, sent = time.perf_counter(), 0
        while not self.ended.wait(EVERY_S):
            due = int((time.perf_counter() - begun) * BESIDE) - sent
            self.publisher.socket.sendall(self.packet * due)
            sent += due

    def _read(self) -> None:
        while data := self.reader.socket.recv(1 << 20):
            self.bytes += len(data)

    def now(self) -> tuple[float, float, float]:
        """The clock, publications that have arrived, and processor seconds of the brokers."""
        used_s = sum(map(live.cpu_s, self.pids))
        return time.perf_counter(), self.bytes / len(self.packet), used_s


def said(moment: str, before: tuple[float, ...], after: tuple[float, ...]) -> None:
    took_s, arrived, used_s = (b - a for a, b in zip(before, after, strict=True))
    print(
        f"  {LIVE_BROKERS} brokers {moment}: {arrived / took_s:,.0f} of {BESIDE:,} publications "
        f"a second arrive, {used_s / took_s:.2f} cores"
    )


@contextmanager
def beside(folder: Path) -> Iterator[None]:
    """The live chain, at work for the time of the block; what it carries before and in it."""
    with live.brokers(LIVE_BROKERS, folder) as (ports, _, pids):
        chain = Carried(ports[0], ports[-1], pids)
        begin = chain.now()
        time.sleep(BEFORE_S)
        start = chain.now()
        said("before", begin, start)
        try:
            yield
        finally:
            said("meanwhile", start, chain.now())
            chain.ended.set()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="postroad-bench-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        rows = traces(folder / "traces", SECONDS)
        size = sum(path.stat().st_size for path in (folder / "traces").iterdir())
        print(
            f"\nwatch: {rows:,} rows of {BROKERS} brokers, {size / rows:.0f} bytes each, ", end=""
        )
        print(f"windows of 5 s, watermark 1 m, load average {os.getloadavg()[0]:.1f} before")
        if BESIDE:
            stack.enter_context(beside(folder))
        print(f"  {'batch':>5} {'rows':>9} {'s':>6} {'rows/s':>8} {'CPU s':>6}")
        batches: list[tuple[int, float, float]] = []
        with JOB.session() as spark:
            pid = session.jvm_pid(spark)
            busy = [processor_s(pid)]

            def report(batch: run.Facts) -> None:
                took_s = batch["took_us"] / 1e6
                busy.append(processor_s(pid))
                batches.append((batch["rows"], took_s, busy[-1] - busy[-2]))
                print(
                    f"  {batch['batch']:5} {batch['rows']:9,} {took_s:6.1f} "
                    f"{batch['rows'] / took_s:8,.0f} {batches[-1][2]:6.1f}"
                )

            run.watch(
                str(folder / "traces"),
                str(folder / "out"),
                JOB,
                once=True,
                window_us=5_000_000,
                trigger_us=5_000_000,
                watermark_us=60_000_000,
                files_max=BROKERS * 2,
                report=report,
            )
        costs = [used / rows for rows, _, used in batches[1:]]
        rows, took, used = (sum(column) for column in zip(*batches[1:], strict=True))
        print(
            f"  after the first batch {rows / took:,.0f} rows/s, {rows / used:,.0f} a CPU-second; "
            f"load average {os.getloadavg()[0]:.1f} after"
        )
        if len(costs) > 2:
            before = range(1, 1 + len(costs))
            print("  " + growth.said("cost of a row by batches before it", before, costs, "0"))


def traces(folder: Path, seconds: int) -> int:
    """Traces of so many seconds at `ROWS_PER_S`; how many rows."""
    recording = Recording(str(folder), file_s=FILE_S)
    names = [f"B{broker}" for broker in range(BROKERS)]
    files = [Files(folder, name, recording, BEGIN_US) for name in names]
    sequences = [0] * BROKERS
    # A publication is one row where it is published, and a message, its arrival and a delivery
    # at each further broker.
    every_us = 1_000_000 * (3 * BROKERS - 2) // ROWS_PER_S
    written = 0
    for begin_us in range(BEGIN_US, BEGIN_US + seconds * 1_000_000, FILE_S * 1_000_000):
        gathered: list[list[Row]] = [[] for _ in names]

        def add(broker: int, kind: str, time_us: int, number: int, **columns: object) -> None:
            sequences[broker] += 1
            gathered[broker].append(  # noqa: B023
                Row(
                    "net", names[broker], 1, sequences[broker], kind, time_us,
                    publisher=f"p{number % PUBLISHERS}", publication=f"0-abc.{number}",
                    **columns,  # type: ignore[arg-type]
                )
            )  # fmt: skip

        for time_us in range(begin_us, begin_us + FILE_S * 1_000_000, every_us):
            number = (time_us - BEGIN_US) // every_us
            attributes = f'{{"class":"c{number % CLASSES}","x":{number % 1000}}}'
            add(0, "publish", time_us, number, attributes=attributes, bytes=200)
            for broker in range(BROKERS):
                then_us = time_us + broker * 900 + number % 700
                if broker:
                    add(
                        broker, "receive", then_us, number, peer=names[broker - 1], bytes=260,
                        queue=number % 9, mechanism="publication", published_us=time_us,
                    )  # fmt: skip
                    add(
                        broker, "deliver", then_us, number, published_us=time_us, hops=broker,
                        subscription=f"s{broker}", mechanism="match",
                    )  # fmt: skip
                if broker + 1 < BROKERS:
                    add(
                        broker, "send", then_us, number, peer=names[broker + 1], bytes=260,
                        queue=number % 5, mechanism="publication", published_us=time_us,
                    )  # fmt: skip
        for file, rows in zip(files, gathered, strict=True):
            file.write(rows, begin_us)
            file.write([], begin_us + FILE_S * 1_000_000)
            written += len(rows)
    return written


if __name__ == "__main__":
    main()
