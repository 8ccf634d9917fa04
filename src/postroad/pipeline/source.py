"""`postroad_traces`: trace files over the brokers' HTTP interface, as a stream for Spark.

For files that are not on a disk which Spark sees. An offset is the number of the last file taken
of each broker; brokers number their files. A broker that does not answer stays where it is. Files
that a broker has removed by then (`keep_bytes`, `keep_s`) are left out. A broker whose numbers
begin again, because its folder was emptied, is read from the beginning.

Executors import this module by name, so it must stay importable without a session.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

NAME = "postroad_traces"
SCHEMA = "file string, text string"
PATIENCE_S = 10.0
ROWS_MAX = 50_000
Offset = dict[str, int]


class FetchedFiles(InputPartition):
    """Trace files that one task fetches, one after another."""

    def __init__(self, urls: Sequence[str]) -> None:
        super().__init__(urls)
        self.urls = urls


class TraceFiles(DataSource):
    """Options: `brokers` (JSON: addresses by name), `token`, `files_max` for a batch; or `files`
    (JSON: addresses of files), to read these and no others."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return TraceStream(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TraceReader(self.options)


class TraceReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.urls, self.token = json.loads(options["files"]), options.get("token", "")

    def partitions(self) -> Sequence[InputPartition]:
        return [FetchedFiles([url]) for url in self.urls]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FetchedFiles)
        for url in partition.urls:
            yield from _lines(url, self.token)


class TraceStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.brokers: dict[str, str] = json.loads(options["brokers"])
        self.token = options.get("token", "")
        self.files_max = int(options["files_max"])
        self.target: Offset | None = None  # of a stream that is to end there

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return dict.fromkeys(self.brokers, 0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxFiles(self.files_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = {name: max(files, default=0) for name, files in self._files().items()}

    def _files(self) -> dict[str, list[int]]:
        """The numbers of the files of each broker that answers."""
        files = {}
        for name, url in self.brokers.items():
            listed = _get(f"{url}/traces", self.token)
            if listed is not None:
                files[name] = sorted(number for number, _ in json.loads(listed))
        return files

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The oldest files that are new, of all brokers in turn, as many as the limit allows."""
        left = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        end = {name: start.get(name, 0) for name in self.brokers}
        fresh = {}
        for name, files in self._files().items():
            if files and files[-1] < end[name]:
                end[name] = 0
            last = files[-1] if files else 0
            if self.target is not None:
                last = min(last, self.target.get(name, 0))
            fresh[name] = [number for number in files if end[name] < number <= last]
        for turn in range(max(map(len, fresh.values()), default=0)):
            for name, files in fresh.items():
                if turn < len(files) and left != 0:
                    end[name] = files[turn]
                    left = None if left is None else left - 1
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        parts: list[InputPartition] = []
        for name, last in end.items():
            first = start.get(name, 0) if start.get(name, 0) <= last else 0
            url = self.brokers[name]
            files = [f"{url}/traces?file={n}" for n in range(first + 1, last + 1)]
            parts += [FetchedFiles(files)] if files else []
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FetchedFiles)
        for url in partition.urls:
            yield from _lines(url, self.token)


def _lines(url: str, token: str) -> Iterator[pa.RecordBatch]:
    """The lines of a file, fetched in pieces; none if it is not there any more."""
    rest, offset = b"", 0
    while piece := _get(f"{url}&offset={offset}", token, patient=True):
        offset += len(piece)
        *lines, rest = (rest + piece).split(b"\n")
        for begin in range(0, len(lines), ROWS_MAX):
            yield _batch(url, lines[begin : begin + ROWS_MAX])
    if rest:
        yield _batch(url, [rest])


def _batch(url: str, lines: Sequence[bytes]) -> pa.RecordBatch:
    texts = [line.decode(errors="replace") for line in lines]
    return pa.RecordBatch.from_pydict({"file": [url] * len(texts), "text": texts})


def _get(url: str, token: str, patient: bool = False) -> bytes | None:
    """The answer; None where there is no such file, or unless `patient` no answer. A task that is
    not answered fails, and Spark tries it again."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise RuntimeError(f"{url}: {error.read().decode().strip()}") from None
        return None
    except OSError:
        if patient:
            raise
        return None
