"""Recorded deliveries: what `postroad simulate --deliveries` wrote, or the pipeline's traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from postroad.errors import InputError
from postroad.relocation.advice import Delivered
from postroad.workloads.files import file_rows


def read(path: Path, brokers: tuple[str, ...], trace_id: str | None = None) -> list[Delivered]:
    """The deliveries in a JSON Lines or CSV file, or in a Parquet file or folder.

    Rows of other kinds than `deliver` are passed over. If rows of several runs are in it,
    `trace_id` says which to take.
    """
    number = {name: broker for broker, name in enumerate(brokers)}
    rows_read: list[Delivered] = []
    runs: dict[str, None] = {}
    for where, row in _rows(path):
        if row.get("kind", "deliver") != "deliver":
            continue
        run = str(row.get("trace_id") or "")
        if trace_id is not None and run != trace_id:
            continue
        runs[run] = None
        publication, publisher = row.get("publication"), row.get("publisher")
        if publication is None or row.get("broker") is None:
            raise InputError(
                "no publication or no broker", where=where, remedy="give rows of deliveries"
            )
        if publisher is None:
            publisher, _, publication = str(publication).rpartition("/")
        if str(row["broker"]) not in number:
            raise InputError(
                f"unknown broker {row['broker']!r}",
                where=where,
                remedy="give the scenario that these deliveries were recorded under",
            )
        rows_read.append((str(publisher), str(publication), number[str(row["broker"])]))
    if len(runs) > 1:
        raise InputError(
            f"deliveries of {len(runs)} runs",
            where=str(path),
            remedy=f"choose one by --trace-id, such as {next(iter(runs))}",
        )
    if not rows_read:
        raise InputError("no deliveries", where=str(path), remedy="record some")
    return rows_read


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if path.suffix != ".parquet" and not path.is_dir():
        for where, row in file_rows(path):
            if isinstance(row, InputError):
                raise row
            yield where, row
        return
    import pyarrow
    import pyarrow.dataset

    try:
        read = pyarrow.dataset.dataset(path, format="parquet")
        wanted = ("trace_id", "kind", "broker", "publisher", "publication")
        columns = [name for name in wanted if name in read.schema.names]
        for batch in read.to_batches(columns=columns):
            for row in batch.to_pylist():
                yield str(path), row
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise InputError(
            f"not a Parquet table: {error}", where=str(path), remedy="give a table of traces"
        ) from None
