"""Rolling files of what happened, one JSON object a line, in the pipeline's table `traces`.

`published_us` is the clock of the publisher's broker: across machines, latency is as good as
their clocks agree. A file is closed at a set size, and the oldest are removed. If one cannot be
written (the disk is full), tracing stops and what is left out is counted: a broker goes on without.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from postroad.model import BrokerId, Publication, TimeUs
from postroad.routing.base import Deliver, Message

log = logging.getLogger("postroad.traces")

_encode = msgspec.json.Encoder().encode


class Traces:
    def __init__(
        self, folder: Path, trace_id: str, names: tuple[str, ...], broker: BrokerId,
        bytes_max: int, files_max: int,
    ) -> None:  # fmt: skip
        self.folder, self.trace_id, self.names = folder, trace_id, names
        self.broker = names[broker]
        self.bytes_max, self.files_max = bytes_max, files_max
        self.rows: list[bytes] = []
        self._file: IO[bytes] | None = None
        self._size = self._number = 0
        self.error: str | None = None  # why there are no more
        self.lost = 0  # rows that were not written
        try:
            folder.mkdir(parents=True, exist_ok=True)
            numbers = [int(path.stem.rpartition("-")[2]) for path in self._files()]
            self._number = max(numbers, default=0)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.error = f"{self.folder}: {error.strerror or error}"
        log.error("tracing stops", extra={"reason": self.error})
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # what could not be written before cannot be now
                file.close()

    def status(self) -> dict[str, Any]:
        return {"error": self.error, "lost": self.lost}

    def _files(self) -> list[Path]:
        found = [
            path
            for path in self.folder.glob(f"traces-{self.broker}-*.jsonl")
            if path.stem.rpartition("-")[2].isdigit()
        ]
        return sorted(found, key=lambda path: int(path.stem.rpartition("-")[2]))

    def published(self, publication: Publication, now: TimeUs) -> None:
        self._row("publish", now, publication, bytes=len(publication.payload))

    def delivered(self, effect: Deliver, now: TimeUs) -> None:
        self._row(
            "deliver", now, effect.publication,
            subscription=effect.subscription_id, hops=effect.hops, mechanism=effect.via,
        )  # fmt: skip

    def sent(self, peer: BrokerId, message: Message, size: int, now: TimeUs) -> None:
        publication = message.publications[0] if message.size == 1 and message.carries else None
        self._row(
            "send", now, publication, peer=self.names[peer], mechanism=message.kind, bytes=size
        )

    def received(self, peer: BrokerId, message: Message, size: int, now: TimeUs) -> None:
        publication = message.publications[0] if message.size == 1 and message.carries else None
        self._row(
            "receive", now, publication, peer=self.names[peer], mechanism=message.kind, bytes=size
        )

    def _row(self, kind: str, now: TimeUs, publication: Publication | None, **more: Any) -> None:
        if self.error is not None:
            self.lost += 1
            return
        row = {"trace_id": self.trace_id, "kind": kind, "time_us": now, "broker": self.broker}
        if publication is not None:
            row["publisher"], row["publication"] = publication.key
            row["published_us"] = publication.time_us
        row.update(more)
        self.rows.append(_encode(row))

    def flush(self) -> None:
        """Write what has been gathered; begin a new file if this one is full."""
        if not self.rows:
            return
        count, data = len(self.rows), b"\n".join(self.rows) + b"\n"
        self.rows.clear()
        try:
            if self._file is None or self._size >= self.bytes_max:
                self._next()
            assert self._file is not None
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            self.lost += count
            self._fail(error)
        self._size += len(data)

    def _next(self) -> None:
        self.close()
        self._number += 1
        self._file = (self.folder / f"traces-{self.broker}-{self._number}.jsonl").open("wb")
        self._size = 0
        for old in self._files()[: -self.files_max]:
            old.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
