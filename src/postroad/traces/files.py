"""Trace files: JSON lines, written under a hidden name and renamed when complete.

`.traces-BROKER-N.jsonl` becomes `traces-BROKER-N.jsonl` at a set size or age, so that a reader sees
whole files only. What a killed broker left hidden is completed at its next start: whole lines are
kept, a torn last one is cut off. The oldest files go when a broker has too many bytes or they are
too old. If one cannot be written (the disk is full), recording stops and rows left out are counted:
a broker goes on without.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from postroad.errors import InputError
from postroad.model import TimeUs
from postroad.traces.schema import REQUIRED, VERSION, Recording, Row

log = logging.getLogger("postroad.traces")

_lines = msgspec.json.Encoder().encode_lines
_decode = msgspec.json.Decoder(Row).decode


class Files:
    """The files of one broker. `now` is microseconds since 1970, as of the rows."""

    def __init__(self, folder: Path, name: str, recording: Recording, now: TimeUs) -> None:
        self.folder, self.name, self.recording = folder, name, recording
        self.error: str | None = None  # why there are no more
        self.lost = 0  # rows that were not written
        self.written = 0
        self._file: IO[bytes] | None = None
        self._size = self._number = 0
        self._since_us = now
        self._pattern = re.compile(rf"\.?traces-{re.escape(name)}-(\d+)\.jsonl")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for number, path in self._numbered():
                self._number = max(self._number, number)
                if path.name.startswith("."):
                    _complete(path)
        except OSError as error:
            self._fail(error)

    def _numbered(self) -> list[tuple[int, Path]]:
        """This broker's files, the oldest first."""
        return sorted(
            (int(match[1]), path)
            for path in self.folder.iterdir()
            if (match := self._pattern.fullmatch(path.name))
        )

    def complete(self) -> dict[int, int]:
        """The bytes of each file that nothing more is written to, by number."""
        return {
            number: path.stat().st_size
            for number, path in self._numbered()
            if not path.name.startswith(".")
        }

    def piece(self, number: int, offset: int, size: int) -> bytes:
        """Some bytes of a file that is complete."""
        with (self.folder / f"traces-{self.name}-{number}.jsonl").open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def status(self) -> dict[str, Any]:
        return {"error": self.error, "lost": self.lost, "written": self.written}

    def write(self, rows: list[Row], now: TimeUs) -> None:
        """Write rows; a file that is large or old enough is complete."""
        if self.error is not None:
            self.lost += len(rows)
            return
        try:
            if rows:
                if self._file is None:
                    self._open(now)
                assert self._file is not None
                data = _lines(rows)
                self._file.write(data)
                self._file.flush()
                self._size += len(data)
                self.written += len(rows)
            old = now - self._since_us >= self.recording.file_s * 1_000_000
            if self._file is not None and (old or self._size >= self.recording.file_bytes):
                self._close()
                self._retain(now)
        except OSError as error:
            self.lost += len(rows)
            self._fail(error)

    def _hidden(self) -> Path:
        return self.folder / f".traces-{self.name}-{self._number}.jsonl"

    def _open(self, now: TimeUs) -> None:
        self._number += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._file = os.fdopen(os.open(self._hidden(), flags, 0o600), "wb")
        self._size, self._since_us = 0, now

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
            hidden = self._hidden()
            hidden.rename(hidden.with_name(hidden.name[1:]))

    def close(self) -> None:
        with suppress(OSError):
            self._close()

    def _fail(self, error: OSError) -> None:
        self.error = f"{self.folder}: {error.strerror or error}"
        log.error("tracing stops", extra={"reason": self.error})
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # what could not be written before cannot be now
                file.close()

    def _retain(self, now: TimeUs) -> None:
        """Remove the oldest files: those that are too old, and those beyond the bytes."""
        size = 0
        for _, path in reversed(self._numbered()):
            about = path.stat()
            size += about.st_size
            old = about.st_mtime * 1_000_000 < now - self.recording.keep_s * 1_000_000
            if old or size > self.recording.keep_bytes:
                path.unlink(missing_ok=True)


def _complete(path: Path) -> None:
    """A file whose broker was killed: whole lines count."""
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        while size:
            start = max(0, size - (1 << 16))
            file.seek(start)
            end = file.read(size - start).rfind(b"\n")
            if end >= 0:
                size = start + end + 1
                break
            size = start
        file.truncate(size)
    if size:
        path.rename(path.with_name(path.name[1:]))
    else:
        path.unlink()


@dataclass(slots=True)
class Read:
    """Problems met while reading."""

    repeated: int = 0
    bad: list[str] = field(default_factory=list)  # where, and what was wrong
    # Per broker and life, the sequence numbers that are missing between the first and the last.
    gaps: dict[tuple[str, str, int], int] = field(default_factory=dict)


def paths(source: Path, hidden: bool = False) -> list[Path]:
    """The complete trace files in a folder, or the one file that is named; with `hidden` also
    those that are being written."""
    if not source.exists():
        raise InputError("no such file or folder", where=str(source), remedy="name trace files")
    if source.is_file():
        return [source]
    files = list(source.rglob("traces-*.jsonl"))
    if hidden:
        files += source.rglob(".traces-*.jsonl")
    files.sort(key=_place)
    files += sorted(path for path in source.rglob("*.parquet") if path.is_file())
    if not files:
        raise InputError(
            "no trace files",
            where=str(source),
            remedy="record some: `traces` in a network file, or postroad simulate --traces",
        )
    return files


def _place(path: Path) -> tuple[str, str, int]:
    """Files of one series in the order in which they were written."""
    name, _, number = path.stem.removeprefix(".").rpartition("-")
    return str(path.parent), name, int(number) if number.isdigit() else 0


def read(source: Path, trace_id: str | None = None, hidden: bool = False) -> tuple[list[Row], Read]:
    """All rows of a folder or file, without duplicates, by time; and the problems met."""
    by_key: dict[tuple[str, str, int, int], Row] = {}
    about = Read()
    for path in paths(source, hidden):
        for where, row in _rows(path):
            if isinstance(row, str):
                about.bad.append(f"{where}: {row}")
            elif trace_id is None or row.trace_id == trace_id:
                if row.key in by_key:
                    about.repeated += 1
                by_key[row.key] = row
    ids = sorted({row.trace_id for row in by_key.values()})
    if len(ids) > 1:
        raise InputError(
            f"traces of {len(ids)} networks or runs",
            where=str(source),
            remedy=f"choose one with --trace-id: {', '.join(ids[:5])}",
        )
    if not by_key:
        first = f": {about.bad[0]}" if about.bad else ""
        raise InputError(f"no rows{first}", where=str(source), remedy="record some")
    lives: dict[tuple[str, str, int], list[int]] = {}
    for trace, broker, life, sequence in by_key:
        lives.setdefault((trace, broker, life), []).append(sequence)
    for key, numbers in sorted(lives.items()):
        missing = max(numbers) - min(numbers) + 1 - len(numbers)
        if missing:
            about.gaps[key] = missing
    # Rows of one time stay as they were written: a simulation has many, and they have an order.
    rows = sorted(by_key.values(), key=lambda row: row.time_us)
    for row in rows:
        if row.kind == "start":
            version = msgspec.json.decode(row.detail or "{}").get("schema")
            if version != VERSION:
                raise InputError(
                    f"traces of schema {version}",
                    where=str(source),
                    remedy=f"read them with the version that wrote them; this one knows {VERSION}",
                )
    return rows, about


def rows(path: Path) -> Iterator[Row]:
    """The good rows of one file, as far as it is written."""
    return (row for _, row in _rows(path) if not isinstance(row, str))


def _rows(path: Path) -> Iterator[tuple[str, Row | str]]:
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    with path.open("rb") as file:
        for line, data in enumerate(file, 1):
            if data.strip() and (data.endswith(b"\n") or not path.name.startswith(".")):
                try:
                    yield f"{path}:{line}", _decode(data)
                except msgspec.DecodeError as error:
                    yield f"{path}:{line}", str(error)


def _parquet_rows(path: Path) -> Iterator[tuple[str, Row | str]]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise InputError(
            f"not a Parquet file: {error}", where=str(path), remedy="give a table of traces"
        ) from None
    names = [name for name in Row.__struct_fields__ if name in file.schema_arrow.names]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise InputError(
            f"no columns {', '.join(missing)}", where=str(path), remedy="give a table of traces"
        )
    number = 0
    for batch in file.iter_batches(columns=names):
        for values in batch.to_pylist():
            number += 1
            try:
                yield f"{path}, row {number}", msgspec.convert(values, Row)
            except msgspec.ValidationError as error:
                yield f"{path}, row {number}", str(error)
