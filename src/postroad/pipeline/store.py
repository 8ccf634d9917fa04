"""The one place that reads and writes tables.

A table is a folder of Parquet files with `_lineage.json` inside: the command, parameters,
package version and input fingerprints that made it. A table is written beside its place and
renamed into it: `.NAME.writing` while Spark writes, `.NAME.next` once it is complete with its
lineage (this rename is the commit), then `NAME`. A job killed at any moment leaves the old
table or the new one; whoever touches the table next finishes a rename that was cut short.

A stage whose table was made from the same inputs, parameters and version is not run again.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import dataset, fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from postroad import __version__
from postroad.errors import InputError, RunFailed
from postroad.pipeline import source
from postroad.pipeline.schemas import LONG, VERSION, conform, plainly

LINEAGE = "_lineage.json"
LOCK = ".postroad.lock"


@dataclass(frozen=True)
class Recipe:
    """How a table is made. Equal fingerprints mean equal tables: every stage is deterministic."""

    stage: str
    parameters: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    version: str = __version__

    @property
    def fingerprint(self) -> str:
        """Of all but the command line and the inputs' places: those do not change the table."""
        identity = [self.stage, self.parameters, sorted(self.inputs.values()), self.version]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def local(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path in it."""
    if "://" in path:
        return fs.FileSystem.from_uri(path)  # type: ignore[no-any-return]
    return fs.LocalFileSystem(), absolute(path)


def absolute(path: str) -> str:
    """The path for whoever reads it: executors have working directories of their own."""
    return path if "://" in path else os.path.abspath(path)


def uri(path: str) -> str:
    """The path as Spark must see it, whatever a cluster's default file system is."""
    return path if "://" in path else f"file://{absolute(path)}"


def join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}"


def exists(path: str) -> bool:
    files, place = local(path)
    return bool(files.get_file_info(place).type != fs.FileType.NotFound)


def is_folder(path: str) -> bool:
    files, place = local(path)
    return bool(files.get_file_info(place).type == fs.FileType.Directory)


@contextmanager
def locked(folder: str, command: str = "") -> Iterator[None]:
    """The folder is this command's own for the time of the block; a second one is refused.

    The lock is the kernel's, on a file that names its owner, so that of a killed command is free
    at once. Folders that are no local paths are not locked. Folders that were made for it and are
    still empty in the end go again.
    """
    if "://" in folder:
        yield
        return
    path = os.path.join(absolute(folder), LOCK)
    fresh = [parent for parent in _and_parents(absolute(folder)) if not os.path.exists(parent)]
    try:
        os.makedirs(folder, exist_ok=True)
        file = _lock(path)
    except OSError as error:
        raise InputError(
            f"cannot write to {folder!r}: {error.strerror}", remedy="choose another folder"
        ) from None
    try:
        moment = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        owner = f"process {os.getpid()} on {socket.gethostname()} since {moment}"
        os.truncate(file, 0)
        os.write(file, f"{command or 'another command'} ({owner})".encode())
        yield
    finally:
        os.unlink(path)
        os.close(file)
        with suppress(OSError):  # the first that is not empty
            for parent in fresh:
                os.rmdir(parent)


def _and_parents(folder: str) -> list[str]:
    """A folder and those it is in, the innermost first."""
    return [folder, *map(str, Path(folder).parents)]


def _lock(path: str) -> int:
    """An open file with the lock; whoever had it may have removed the file that was opened."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(path) and os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        except FileNotFoundError:
            pass
        except BlockingIOError:
            owner = os.pread(file, 4096, 0).decode(errors="replace")
            os.close(file)
            raise RunFailed(
                f"{os.path.dirname(path)!r} is being written by {owner or 'another command'}; "
                "wait for it, or choose another folder"
            ) from None
        os.close(file)


def read_lineage(path: str) -> dict[str, Any] | None:
    """What made this table, or None where there is no table of ours."""
    recover(path)
    files, place = local(join(path, LINEAGE))
    if files.get_file_info(place).type == fs.FileType.NotFound:
        return None
    return read_json(join(path, LINEAGE))


def check_version(path: str, lineage: Mapping[str, Any]) -> None:
    """Refuse a table of another schema version; what an earlier build wrote has version 1."""
    version = lineage.get("schema", 1)
    if version != VERSION:
        remedy = f"make it again: {lineage['command'] or lineage['stage']}"
        if version > VERSION:
            remedy = f"use the Postroad that made it ({lineage['version']}), or {remedy}"
        raise InputError(
            f"the table has schema version {version}, this Postroad reads {VERSION}",
            where=path,
            remedy=remedy,
        )


def is_current(path: str, recipe: Recipe) -> bool:
    """Whether the table is there and was made by this recipe."""
    lineage = read_lineage(path)
    return (
        lineage is not None
        and lineage["fingerprint"] == recipe.fingerprint
        and lineage.get("schema", 1) == VERSION
    )


def fingerprint(path: str) -> str:
    """What identifies an input: a table's lineage, else names, sizes and modification times."""
    lineage = read_lineage(path) if is_folder(path) else None
    if lineage is not None:
        # Failed runs of a sweep may yet succeed: the table then changes under the same recipe.
        failed = lineage["facts"].get("failed")
        return f"{lineage['fingerprint']}-{failed}" if failed else str(lineage["fingerprint"])
    identity = sorted((one.base_name, one.size, one.mtime_ns) for one in _files(path))
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def size_bytes(path: str) -> int:
    return sum(one.size for one in _files(path))


def _files(path: str) -> list[Any]:
    """A file, or all below a folder."""
    files, place = local(path)
    info = files.get_file_info(place)
    if info.type == fs.FileType.NotFound:
        raise InputError(f"there is no {path!r}", remedy="check the path")
    infos: Iterable[Any] = [info]
    if info.type == fs.FileType.Directory:
        infos = files.get_file_info(fs.FileSelector(place, recursive=True))
    return [one for one in infos if one.is_file]


def content_fingerprint(path: str) -> str:
    """The hash of a file's bytes."""
    files, place = local(path)
    with files.open_input_stream(place, compression=None) as stream:
        return content_hash(stream.read())


def content_hash(content: bytes | str) -> str:
    content = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(content).hexdigest()[:16]


def read(spark: SparkSession, path: str, schema: StructType) -> DataFrame:
    """The table at `path`, which must have the schema's columns."""
    recover(path)
    if not is_folder(path):
        raise InputError(f"there is no table {path!r}", remedy="make it with an earlier stage")
    lineage = read_lineage(path)
    if lineage is not None:
        check_version(path, lineage)
    frame = spark.read.parquet(uri(path))
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise InputError(
            f"table has columns {', '.join(frame.columns)} but not {', '.join(missing)}",
            where=path,
            remedy=f"give a table with columns {', '.join(schema.names)}",
        )
    # Our own was checked when it was written; a check here would keep filters from the files.
    return conform(frame, schema) if lineage is None else plainly(frame, schema)


def read_raw(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Foreign Parquet as it is, with the file each row came from and its place there."""
    frame = spark.read.parquet(*map(uri, paths))
    place = (
        F.col("_metadata.file_path").alias("_file"),
        F.col("_metadata.row_index").alias("_row"),
    )
    return frame.select("*", *place)


def read_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Text files (gzip by name) as lines: `file`, `block`, `position`, `text`.

    `block` is where the split began in its file and `position` grows within it, so `numbered`
    can tell line numbers although the lines were read in parallel.
    """
    return spark.read.text([uri(path) for path in paths]).select(
        F.regexp_replace(F.col("_metadata.file_path"), "^file:/+", "/").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("position"),
        F.col("value").alias("text"),
    )


def stream_lines(spark: SparkSession, folder: str, pattern: str, files_max: int) -> DataFrame:
    """The lines of the files in a folder, and in those in it, as they appear: at most so many
    files at once, the oldest first."""
    options = {
        "pathGlobFilter": pattern,
        "recursiveFileLookup": "true",
        "maxFilesPerTrigger": str(files_max),
    }
    return (
        spark.readStream.options(**options)
        .text(uri(folder))
        .select(F.col("_metadata.file_path").alias("file"), F.col("value").alias("text"))
    )


def stream_fetched(
    spark: SparkSession, brokers: Mapping[str, str], token: str, files_max: int
) -> DataFrame:
    """The lines of the trace files that brokers serve (addresses by name), as they appear."""
    spark.dataSource.register(source.TraceFiles)
    options = {"brokers": json.dumps(dict(brokers)), "token": token, "files_max": str(files_max)}
    return spark.readStream.format(source.NAME).options(**options).load()


def read_fetched(spark: SparkSession, files: Sequence[str], token: str) -> DataFrame:
    """Trace files that brokers serve as lines, like `read_lines`."""
    spark.dataSource.register(source.TraceFiles)
    options = {"files": json.dumps(list(files)), "token": token}
    lines = spark.read.format(source.NAME).options(**options).load()
    place = F.monotonically_increasing_id().alias("position")
    return lines.select("file", F.lit(0).cast("bigint").alias("block"), place, "text")


def write_batch(frame: DataFrame, table: str, batch: int) -> None:
    """The rows of a batch, in place of what an earlier attempt at the same batch left."""
    frame.coalesce(1).write.mode("overwrite").parquet(uri(join(table, f"batch={batch}")))


def read_batches(spark: SparkSession, table: str, *folders: str, schema: StructType) -> DataFrame:
    """All batches of a table, or those in some of its folders, with `batch`; no rows where nothing
    was written yet."""
    batched = StructType([*schema.fields, StructField("batch", LONG, False)])
    if not exists(table):
        return spark.createDataFrame([], batched)
    based = spark.read.schema(batched).option("basePath", uri(table))
    return based.parquet(*[uri(path) for path in folders or [table]])


def batches(table: str) -> list[int]:
    """The numbers of a table's batches."""
    files, place = local(table)
    if files.get_file_info(place).type != fs.FileType.Directory:
        return []
    names = [info.base_name for info in files.get_file_info(fs.FileSelector(place))]
    return sorted(int(name[6:]) for name in names if name.startswith("batch="))


COMPACT_BATCHES = 64
"""So many batches of a table, and they become one; and so many of those, and so on."""
_LEVEL = "_level"  # in a batch's folder: how often it was made of others


def compact(table: str, before: int, merged: Callable[[list[str]], DataFrame]) -> None:
    """Make one of the oldest batches, if there are enough of one level before this one.

    `merged` has their rows that hold, from their folders. The new folder has the last one's
    number. It is written beside and renamed, which is the commit; then those that it replaces go.
    """
    levels: dict[int, list[int]] = {}
    for batch in batches(table):
        if batch < before:
            levels.setdefault(_level(table, batch), []).append(batch)
    for level, old in sorted(levels.items()):
        if len(old) >= COMPACT_BATCHES:
            some = old[:COMPACT_BATCHES]
            folders = [join(table, f"batch={batch}") for batch in some]
            writing = join(table, "_compacting")
            merged(folders).coalesce(1).write.mode("overwrite").parquet(uri(writing))
            write_json(join(writing, _LEVEL), {"level": level + 1, "batches": some})
            files, place = local(writing)
            files.move(place, local(join(table, "_compacted"))[1])
            finish_compaction(table)


def finish_compaction(table: str) -> None:
    """Put a compaction into its place that is complete."""
    ready = join(table, "_compacted")
    if exists(ready):
        replaced = read_json(join(ready, _LEVEL))["batches"]
        for batch in replaced:
            remove(join(table, f"batch={batch}"))
        files, place = local(ready)
        files.move(place, local(join(table, f"batch={replaced[-1]}"))[1])


def _level(table: str, batch: int) -> int:
    path = join(table, f"batch={batch}/{_LEVEL}")
    return int(read_json(path)["level"]) if exists(path) else 0


def arrow(path: str, columns: Sequence[str]) -> pa.Table:
    """Columns of a small table, without Spark."""
    files, place = local(path)
    return dataset.dataset(place, format="parquet", filesystem=files).to_table(list(columns))


def arrow_of(frame: DataFrame) -> pa.Table:
    """A frame that was read from Parquet as it is, read by this process: Spark collects nothing."""
    places = [local(path) for path in frame.inputFiles()]
    files = [place for _, place in places]
    return dataset.dataset(files, format="parquet", filesystem=places[0][0]).to_table()


def read_files(spark: SparkSession, path: str, schema: StructType) -> DataFrame:
    """Loose Parquet files in a folder, such as the finished runs of a sweep."""
    return spark.read.schema(schema).parquet(uri(path))


def write(frame: DataFrame, path: str, by: Sequence[str] = ()) -> None:
    """Write beside the table's place; `publish` puts it there. An earlier attempt is dropped.

    With `by`, rows are in folders by these columns, one file in each.
    """
    recover(path)
    discard(path)
    rows = frame.repartition(*by) if by else frame
    rows.write.mode("error").partitionBy(*by).parquet(uri(beside(path)))


def begin(path: str) -> None:
    """An empty folder beside the table's place, into which tasks write files of their own."""
    recover(path)
    discard(path)
    make_folder(beside(path))


def carry(path: str, wanted: Callable[[str], bool] = lambda name: True) -> None:
    """Add the table's own files to what `write` has written, without writing them again; those
    whose names, with their folders in the table, are `wanted`."""
    files, place = local(path)
    _, target = local(beside(path))
    for name in filter(wanted, _data_files(path)):
        files.create_dir(f"{target}/{name}".rpartition("/")[0], recursive=True)
        if isinstance(files, fs.LocalFileSystem):
            os.link(f"{place}/{name}", f"{target}/{name}")
        else:
            files.copy_file(f"{place}/{name}", f"{target}/{name}")


def _data_files(path: str) -> list[str]:
    """The files of a table, with their folders in it."""
    files, place = local(path)
    found = files.get_file_info(fs.FileSelector(place, recursive=True))
    return [
        info.path.removeprefix(f"{place}/")
        for info in found
        if info.is_file and info.base_name.endswith(".parquet")
    ]


def files_by_folder(path: str) -> dict[str, int]:
    """How many files each folder of a table has; its own are those of ''."""
    return dict(Counter(name.rpartition("/")[0] for name in _data_files(path)))


def write_text(frame: DataFrame, path: str) -> None:
    """One text column as one plain file, put into place by a rename."""
    files, place = local(path)
    folder = beside(path)
    discard(path)
    frame.coalesce(1).write.mode("error").text(uri(folder))
    _, inside = local(folder)
    parts = [
        info.path
        for info in files.get_file_info(fs.FileSelector(inside))
        if info.base_name.startswith("part-")
    ]
    assert len(parts) <= 1, parts
    if parts:
        files.move(parts[0], place)
    else:
        files.open_output_stream(place).close()
    discard(path)


def discard(path: str) -> None:
    """Forget what `write` has written."""
    remove(beside(path))


def remove(folder: str) -> None:
    """Remove a folder, if it is there."""
    files, place = local(folder)
    if files.get_file_info(place).type != fs.FileType.NotFound:
        files.delete_dir(place)


def remove_file(path: str) -> None:
    """Remove a file, if it is there."""
    files, place = local(path)
    if files.get_file_info(place).type != fs.FileType.NotFound:
        files.delete_file(place)


def make_folder(folder: str) -> None:
    files, place = local(folder)
    files.create_dir(place, recursive=True)


def write_json(path: str, values: Mapping[str, Any]) -> None:
    """A small file, put into place by a rename."""
    files, place = local(path)
    files.create_dir(place.rpartition("/")[0], recursive=True)
    with files.open_output_stream(f"{place}.writing") as stream:
        stream.write(json.dumps(values, indent=2, sort_keys=True).encode() + b"\n")
    files.move(f"{place}.writing", place)


def read_json(path: str) -> dict[str, Any]:
    files, place = local(path)
    with files.open_input_stream(place) as stream:
        values = json.loads(stream.read())
    assert isinstance(values, dict)
    return values


def head(path: str, count: int = 200) -> bytes:
    """The first bytes of a file, as they are stored."""
    files, place = local(path)
    if files.get_file_info(place).type == fs.FileType.NotFound:
        raise InputError(f"there is no {path!r}", remedy="check the path")
    with files.open_input_stream(place, compression=None) as stream:
        return bytes(stream.read(count))


def rows_of(path: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """All rows of a small table, without Spark: to print them, or to see what is done."""
    files, place = local(path)
    table = dataset.dataset(place, format="parquet", filesystem=files)
    if not table.files:
        return []
    names = None if columns is None else list(columns)
    rows = table.to_table(columns=names).to_pylist(maps_as_pydicts="strict")
    assert isinstance(rows, list)
    return rows


def tables(folder: str) -> list[str]:
    """The tables in a folder and the folders in it, by name."""
    files, place = local(folder)
    if files.get_file_info(place).type != fs.FileType.Directory:
        raise InputError(f"there is no folder {folder!r}", remedy="check the path")
    infos = files.get_file_info(fs.FileSelector(place, recursive=True))
    suffix = f"/{LINEAGE}"
    paths = [info.path.removesuffix(suffix) for info in infos if info.path.endswith(suffix)]
    return sorted(path for path in paths if "/." not in path.removeprefix(place))


def count(path: str) -> int:
    """The rows of a table, from its files' footers."""
    files, place = local(path)
    return int(dataset.dataset(place, format="parquet", filesystem=files).count_rows())


def distinct(path: str, column: str) -> set[str]:
    """The different values of a text column, without Spark."""
    files, place = local(path)
    table = dataset.dataset(place, format="parquet", filesystem=files)
    values: set[str] = set()
    for batch in table.to_batches(columns=[column]):
        values.update(batch.column(0).unique().to_pylist())
    return values


def write_empty(path: str, schema: StructType) -> None:
    """A table without rows, as `write` would leave it."""
    _write_small(to_arrow_schema(schema).empty_table(), path)


def gather(source: str, path: str, schema: StructType, key: str, wanted: Collection[str]) -> None:
    """The rows of a folder of files whose key is wanted, in its order, as `write` would leave them;
    without Spark, for a table that fits into memory."""
    files, place = local(source)
    arrow = to_arrow_schema(schema)
    rows = dataset.dataset(place, schema=arrow, format="parquet", filesystem=files)
    kept = rows.to_table(filter=dataset.field(key).isin(list(wanted)))
    _write_small(kept.take(pc.sort_indices(kept[key])).cast(arrow), path)


def _write_small(rows: pa.Table, path: str) -> None:
    begin(path)
    files, place = local(beside(path))
    with files.open_output_stream(f"{place}/part-{uuid.uuid4()}.parquet") as stream:
        pq.write_table(rows, stream)


@contextmanager
def scratch(
    spark: SparkSession, folder: str, name: str = ".scratch"
) -> Iterator[Callable[[DataFrame], DataFrame]]:
    """A way to write a frame away and read it back, for the time of the block."""
    place = join(folder, name)
    remove(place)
    turns = itertools.count()

    def keep(frame: DataFrame) -> DataFrame:
        path = uri(join(place, str(next(turns))))
        frame.write.parquet(path)
        return spark.read.schema(frame.schema).parquet(path)

    try:
        yield keep
    finally:
        remove(place)


def publish(path: str, recipe: Recipe, facts: Mapping[str, Any] | None = None) -> None:
    """Put what `write` has written, with its lineage, in the place of the table."""
    files, place = local(beside(path))
    lineage = asdict(recipe) | {
        "fingerprint": recipe.fingerprint,
        "facts": dict(facts or {}),
        "schema": VERSION,
    }
    with files.open_output_stream(f"{place}/{LINEAGE}") as stream:
        stream.write(json.dumps(lineage, indent=2, sort_keys=True).encode() + b"\n")
    files.move(place, local(beside(path, "next"))[1])
    recover(path)


def recover(path: str) -> None:
    """Finish a publication that was cut short after its commit."""
    files, place = local(path)
    coming, gone = local(beside(path, "next"))[1], local(beside(path, "last"))[1]
    if files.get_file_info(coming).type != fs.FileType.NotFound:
        if files.get_file_info(place).type != fs.FileType.NotFound:
            if files.get_file_info(gone).type != fs.FileType.NotFound:
                files.delete_dir(gone)
            files.move(place, gone)
        files.move(coming, place)
    if files.get_file_info(gone).type != fs.FileType.NotFound:
        files.delete_dir(gone)


def beside(path: str, state: str = "writing") -> str:
    """Where a table stands before it is put in its place."""
    folder, _, name = path.rstrip("/").rpartition("/")
    return f"{folder}/.{name}.{state}" if folder or path.startswith("/") else f".{name}.{state}"
