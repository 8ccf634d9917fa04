"""`pipeline watch` at work: rows a second, per batch, beside nothing else.

A chain of brokers whose publishers sit at one end, as the brokers would have recorded it: files of
a few seconds, in order. The first batch warms Spark up and is left out of the rate.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from postroad.bench.stages import processor_s
from postroad.pipeline import run, session
from postroad.traces.files import Files
from postroad.traces.schema import Recording, Row

BROKERS, PUBLISHERS, CLASSES = 8, 100, 20
ROWS_PER_S = 50_000
FILE_S = 5
SECONDS = int(os.environ.get("SECONDS", 120))
BEGIN_US = 1_700_000_000_000_000
JOB = run.Job("local[2]", ("spark.driver.memory=2g",))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="postroad-bench-") as scratch:
        folder = Path(scratch)
        rows = traces(folder / "traces", SECONDS)
        size = sum(path.stat().st_size for path in (folder / "traces").iterdir())
        print(
            f"\nwatch: {rows:,} rows of {BROKERS} brokers, {size / rows:.0f} bytes each, ", end=""
        )
        print(f"windows of 5 s, watermark 1 m, load average {os.getloadavg()[0]:.1f} before")
        print(f"  {'batch':>5} {'rows':>9} {'s':>6} {'rows/s':>8} {'CPU s':>6}")
        batches: list[tuple[int, float, float]] = []
        with JOB.session() as spark:
            pid = session.jvm_pid(spark)
            busy = [sum(processor_s(pid).values())]

            def report(batch: run.Facts) -> None:
                took_s = batch["took_us"] / 1e6
                busy.append(sum(processor_s(pid).values()))
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
        rows, took, used = (sum(column) for column in zip(*batches[1:], strict=True))
        print(
            f"  after the first batch {rows / took:,.0f} rows/s, {rows / used:,.0f} a CPU-second; "
            f"load average {os.getloadavg()[0]:.1f} after"
        )


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
