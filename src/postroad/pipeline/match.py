"""Which publication matches whom: the compiled index, in one file for all processes of a host.

The subscriptions, sorted by filter, pass through one task that builds the index and writes it to a
file on the tables' disk (`indexed`). Every other task maps that file and turns batches of
publications into those who are interested (`matched`), a batch of Arrow at a time.

A subscription is asked from its `time_us` to its `until_us`, without them always.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from postroad.errors import FilterError
from postroad.filters import parse
from postroad.filters.nested import ROWS, plain, rows_of
from postroad.matching.compiled import Compiled
from postroad.matching.holders import Holders, interested
from postroad.matching.shared import Shared, load, save
from postroad.pipeline.schemas import LONG, MATCHES, PUBLICATIONS, TEXT, conform, table

Ints = npt.NDArray[np.int64]
BY = ("subscription", "broker", "client")
INDEXED = table(filters=LONG, holders=LONG, bytes=LONG)
BATCH = 1_000
"""Publications matched at a time."""
ROWS_MAX = 1_000_000
"""Of those who hold a matching filter so many are looked at together, at most."""
GROUP = 4_000_000
"""Publications and matches in one part of a file, about."""
WRITTEN = table(publications=LONG, matches=LONG)
Answer = tuple[pa.RecordBatch, Ints, Ints, Ints, list[str]]
"""Some publications, those interested in them, where each one's end, in how many rows, and keys."""
_ALWAYS = 2**63 - 1
_DICTIONARY = 1 << 26


def held(subscriptions: DataFrame, by: str) -> DataFrame:
    """Filter, holder, from and to when; as many times as there are subscriptions, if by broker."""
    rows = subscriptions.select(
        "filter",
        F.col(by).alias("holder"),
        F.coalesce("time_us", F.lit(-_ALWAYS)).alias("since"),
        F.coalesce("until_us", F.lit(_ALWAYS)).alias("until"),
    )
    return conform(rows, table(filter=TEXT, holder=TEXT, since=LONG, until=LONG))


def indexed(held: DataFrame, path: str) -> DataFrame:
    """Write the index to a file, in one task: how many filters and holders, and its size."""
    together = held.repartition(1).sortWithinPartitions("filter", "holder", "since", "until")
    return together.mapInArrow(partial(_build, path), INDEXED)


def _build(path: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    index: Compiled[int] = Compiled()
    start, holder, since, until = (array("q") for _ in range(4))
    numbers: dict[str, int] = {}
    last = None
    for batch in batches:
        texts, names = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        since.frombytes(_ints(batch.column(2)).tobytes())
        until.frombytes(_ints(batch.column(3)).tobytes())
        for text, name in zip(texts, names, strict=True):
            if text != last:
                try:
                    index.insert(len(index), parse(text))
                except FilterError as error:
                    raise error.at(f"filter {text[:60]!r}") from None
                start.append(len(holder))
                last = text
            holder.append(numbers.setdefault(name, len(numbers)))
    start.append(len(holder))
    names = sorted(numbers)
    rank = np.empty(len(names), np.int64)
    rank[[numbers[name] for name in names]] = np.arange(len(names))
    encoded = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    beside = {
        "start": np.asarray(start),
        "holder": rank[np.asarray(holder)] if holder else np.asarray(holder),
        "since": np.asarray(since),
        "until": np.asarray(until),
        "name_ends": ends,
        "names": np.frombuffer(b"".join(encoded), np.uint8),
    }
    save(index, Path(path), beside)
    size = Path(path).stat().st_size
    yield pa.RecordBatch.from_pydict(
        {"filters": [len(index)], "holders": [len(names)], "bytes": [size]},
        schema=to_arrow_schema(INDEXED),
    )


@dataclass(frozen=True)
class Mapped:
    """The index of a file, those who hold its filters, and their names."""

    index: Shared
    holders: Holders
    names: Any


@lru_cache(maxsize=2)
def mapped(path: str, written: int) -> Mapped:
    """The file that was written at that time; once per process, and its pages once per host."""
    index, arrays = load(Path(path))
    ends = arrays["name_ends"]
    buffers = [None, *map(pa.py_buffer, (ends, arrays["names"]))]
    names = (
        pa.Array.from_buffers(pa.large_string(), len(ends) - 1, buffers)
        if len(ends) > 1
        else pa.array([], pa.large_string())
    )
    holders = Holders(
        arrays["start"], arrays["holder"], arrays["since"], arrays["until"], len(names)
    )
    return Mapped(index, holders, names)


def matched(publications: DataFrame, path: str, folder: str) -> DataFrame:
    """Each publication with the sorted names of those who are interested, as `MATCHES`.

    Tasks write their Parquet into the folder themselves, because names by the hundred for each
    publication take Spark four times as long as to find them; the frame has their counts.
    """
    written = Path(path).stat().st_mtime_ns
    write = partial(_write, path, written, folder)
    return publications.select(*PUBLICATIONS.names).mapInArrow(write, WRITTEN)


def _write(
    path: str, written: int, folder: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    table = mapped(path, written)
    context = TaskContext.get()
    assert context is not None
    out = Path(folder) / f"part-{context.partitionId():06}.parquet"
    coming = out.with_name(f".{out.name}.{context.taskAttemptId()}")
    coded = pa.field("element", pa.dictionary(pa.int32(), pa.string()), nullable=False)
    schema = to_arrow_schema(MATCHES)
    schema = schema.set(3, pa.field("matches", pa.list_(coded), nullable=False))
    publications = matches = 0
    with pq.ParquetWriter(
        coming, schema, dictionary_pagesize_limit=_DICTIONARY, store_schema=False
    ) as writer:
        for group in _groups(answers(table, batch) for batch in batches):
            publications += sum(rows.num_rows for rows, *_ in group)
            matches += sum(len(who) for _, who, *_ in group)
            writer.write_table(_named(group, table.names, schema))
    os.replace(coming, out)
    yield pa.RecordBatch.from_pydict(
        {"publications": [publications], "matches": [matches]}, schema=to_arrow_schema(WRITTEN)
    )


def _groups(answered: Iterable[Iterator[Answer]]) -> Iterator[list[Answer]]:
    """Answers in groups of so many that a file's parts are of a good size."""
    group: list[Answer] = []
    size = 0
    for answer in chain.from_iterable(answered):
        group.append(answer)
        size += answer[0].num_rows + len(answer[1])
        if size >= GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def _named(group: list[Answer], names: Any, schema: pa.Schema) -> pa.Table:
    """One table of several answers, with a dictionary of just the names in it."""
    who = np.concatenate([who for _, who, *_ in group])
    used = np.zeros(len(names), np.bool_)
    used[who] = True
    place = np.cumsum(used) - 1
    sizes = np.concatenate([np.diff(ends, prepend=0) for _, _, ends, *_ in group])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    some = names.take(pa.array(np.flatnonzero(used))).cast(pa.string())
    coded = pa.DictionaryArray.from_arrays(pa.array(place[who], pa.int32()), some)
    lists = pa.ListArray.from_arrays(pa.array(offsets), coded, schema[3].type)
    rows = pa.Table.from_batches([rows for rows, *_ in group])
    return pa.table([*(rows[name] for name in schema.names[:3]), lists], schema=schema)


def answers(
    table: Mapped, batch: pa.RecordBatch, key: Callable[[Any], str] | None = None
) -> Iterator[Answer]:
    """Slices of a batch, each with its interested holders, their ends, in how many rows, and what
    `key` says of each publication."""
    for begin in range(0, batch.num_rows, BATCH):
        rows = batch.slice(begin, BATCH)
        times_us = _ints(rows.column("time_us"))
        contents = [_attributes(text) for text in rows.column("attributes").to_pylist()]
        matches = [matching(table.index, attributes) for attributes in contents]
        keys = [] if key is None else [key(attributes) for attributes in contents]
        ends = np.cumsum([len(filters) for filters in matches], dtype=np.int64)
        filters = np.fromiter(chain.from_iterable(matches), np.int64, ends[-1])
        sizes = np.concatenate(
            [[0], np.cumsum(table.holders.start[filters + 1] - table.holders.start[filters])]
        )
        looked = sizes[ends]
        first = 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(looked, sizes[before] + ROWS_MAX, "right")))
            some = slice(before, int(ends[last - 1]))
            part = interested(
                table.holders, filters[some], ends[first:last] - before, times_us[first:last]
            )
            yield (rows.slice(first, last - first), *part, keys[first:last])
            first = last


def matching(index: Shared, attributes: Any) -> list[int]:
    """The filters that match content, which may have several rows, in order."""
    if ROWS not in attributes:
        return index.match(attributes)
    return sorted({filter for row in rows_of(attributes) for filter in index.match(row)})


_decode = msgspec.json.Decoder().decode


def _attributes(text: str) -> Any:
    try:
        content = _decode(text)
    except msgspec.MsgspecError:  # numbers beyond a float's range
        content = json.loads(text)
    return content if text.find("{", 1) < 0 and "[" not in text else plain(content)


def _ints(column: pa.Array) -> Ints:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
