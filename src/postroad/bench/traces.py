"""What recording costs a broker: none, one publication in a hundred, all; and why JSON lines.

Rates are per second of the broker's own CPU time, the best of a few turns in which the settings
take each other's place, so that a busy machine does not favour one of them. Rows are written by
the thousand as they come, so their cost should grow as they do.
"""

from __future__ import annotations

import io
import tempfile
import time
from pathlib import Path

import msgspec
import pyarrow
import pyarrow.parquet

from postroad.bench import growth, live
from postroad.traces.schema import Row

TURNS = 4
SAMPLES = (None, 0.01, 1.0)
ROWS = 100_000
SIZES = (10_000, 20_000, 50_000, ROWS)


def main() -> None:
    print("recording, per second of the broker's CPU time (ratio to none)")
    print("| load | none | 1% | 100% |")
    print("|---|---:|---:|---:|")
    rates: dict[str, dict[float | None, float]] = {}
    for _ in range(TURNS):
        for sample in SAMPLES:
            for name, rate in _measured(sample).items():
                best = rates.setdefault(name, {})
                best[sample] = max(rate, best.get(sample, 0.0))
    for name, best in rates.items():
        cells = [f"{best[s]:,.0f} ({best[s] / best[None]:.2f})" for s in SAMPLES]
        print(f"| {name} | {' | '.join(cells)} |")
    _formats()


def _measured(sample: float | None) -> dict[str, float]:
    options = [] if sample is None else [f'traces = {{ folder = "t", sample = {sample} }}']
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with live.brokers(1, folder, options) as ((port,), _, (pid,)):
            _, filtered, _, _ = live.filtered(port, pid)
            _, fanned = live.fanned(port, pid)
        with live.brokers(3, folder, options) as (ports, _, pids):
            _, chained = live.chained(ports[0], ports[-1], pids)
    return {"filtered publications": filtered, "fan-out": fanned, "chain of three": chained}


def _formats() -> None:
    """The same rows as JSON lines and as Parquet, as a broker would write them: by the thousand."""
    rows = [
        Row(
            "net", "B1", 1, n, "receive", 10**15 + n, peer="B0", publisher="client-7",
            publication=f"0-abc.{n}", published_us=10**15, bytes=180, mechanism="publication",
        )
        for n in range(ROWS)
    ]  # fmt: skip
    batches = [rows[n : n + 1000] for n in range(0, ROWS, 1000)]
    encode = msgspec.json.Encoder().encode_lines
    costs = []
    for count in SIZES:
        used_s = time.process_time()
        size = sum(len(encode(batch)) for batch in batches[: count // 1000])
        costs.append(time.process_time() - used_s)
    json_us = costs[-1] * 1e6 / ROWS
    schema = pyarrow.schema(
        [
            (name, pyarrow.int64() if "int" in str(kind) else pyarrow.string())
            for name, kind in Row.__annotations__.items()
        ]
    )
    out = io.BytesIO()
    used_s = time.process_time()
    with pyarrow.parquet.ParquetWriter(out, schema) as writer:
        for batch in batches:
            columns = [[getattr(row, name) for row in batch] for name in schema.names]
            arrays = [
                pyarrow.array(column, kind)
                for column, kind in zip(columns, schema.types, strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
    parquet_us = (time.process_time() - used_s) * 1e6 / ROWS
    parquet = len(out.getvalue()) / ROWS
    print(f"a row as JSON: {json_us:.2f} µs of CPU time, {size / ROWS:.0f} bytes")
    print("  " + growth.said("cost of rows as JSON by rows", SIZES, costs, "1"))
    print(f"a row as Parquet: {parquet_us:.2f} µs of CPU time, {parquet:.0f} bytes")
