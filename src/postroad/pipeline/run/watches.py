"""Watching traces, for `postroad pipeline watch`: the stream from its start to its end.

What is done with each batch of it, `batches` has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from postroad.errors import InputError
from postroad.live import network as networks
from postroad.live.network import Network
from postroad.live.operations import launch
from postroad.pipeline import session as sessions
from postroad.pipeline import store
from postroad.pipeline import watch as watching
from postroad.pipeline.run.batches import measure_batch
from postroad.pipeline.run.job import Facts, Job, guarded
from postroad.pipeline.schemas import QUARANTINE

FILES_MAX = 1_000
"""Trace files in one batch of a watch: what a backlog is taken up in."""
LOOK_S = 0.2


def watch(
    source: str,
    folder: str,
    job: Job,
    *,
    once: bool,
    window_us: int,
    trigger_us: int,
    watermark_us: int,
    files_max: int = FILES_MAX,
    apply: bool = False,
    fetch: bool = False,
    report: Callable[[Facts], None] = lambda facts: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Facts:
    """Measure traces as their files appear, until interrupted or `stopped`; `once`, those that are
    there. With `apply` publishers are sent where they are advised to be; with `fetch` the files are
    fetched from the brokers.

    Batch N adds its events to the totals of open windows that batch N-1 left, and writes the rows
    that it changed. A batch that is done again after a kill has the same files, the same state and
    the same totals before it, and so writes the same.
    """
    network = _network_to_ask(source, apply) if apply or fetch else None
    source = store.absolute(source) if fetch else _traces_of(source)
    folder = store.absolute(folder)
    for name, value_us in (("window", window_us), ("trigger", trigger_us)):
        if value_us <= 0 or value_us % 1000:
            raise InputError(f"{name} is {value_us} us", remedy="give whole milliseconds above 0")
    if watermark_us < window_us or watermark_us % window_us:
        raise InputError(
            f"watermark {watermark_us} us, window {window_us} us",
            remedy="let the watermark be a multiple of the window",
        )
    settings = {"traces": source, "window_us": window_us, "watermark_us": watermark_us}
    with store.locked(folder, job.command):
        _check_same_watch(folder, settings)
        return guarded(
            partial(
                _watched,
                source,
                folder,
                job,
                settings,
                once,
                trigger_us,
                files_max,
                network if apply else None,
                network if fetch else None,
                report,
                stopped,
            )
        )


def _network_to_ask(source: str, apply: bool) -> Network:
    if not source.endswith(".toml"):
        raise InputError(
            f"{source!r} is no network file", remedy="name the network whose brokers to ask"
        )
    network = networks.load(Path(source).absolute())
    if apply and network.secret is None:
        raise InputError(
            "a network without a secret takes no orders", where=source, remedy='set secret = "FILE"'
        )
    return network


def _traces_of(source: str) -> str:
    """The folder of trace files; a network file names it."""
    if source.endswith(".toml"):
        recording = networks.load(Path(source)).traces
        if recording is None:
            raise InputError(
                "the network records no traces", where=source, remedy='add traces = "traces"'
            )
        source = recording.folder
    source = store.absolute(source)
    if not store.is_folder(source):
        raise InputError(
            f"there is no folder {source!r}", remedy="start the network, or check the path"
        )
    return source


def _check_same_watch(folder: str, settings: Facts) -> None:
    """What a stopped watch has begun goes on with the same settings only."""
    path = store.join(folder, "_watch.json")
    if not store.exists(path):
        store.write_json(path, {**settings, "schema": watching.VERSION})
        return
    before = store.read_json(path)
    if before.get("schema") != watching.VERSION:
        raise InputError(
            f"a watch of schema {before.get('schema')} was begun here, this Postroad goes on with "
            f"{watching.VERSION}",
            where=folder,
            remedy="give another --out; the trace files that are still there are read anew",
        )
    for key, value in settings.items():
        if before.get(key) != value:
            raise InputError(
                f"{key} was {before.get(key)!r} and is {value!r}",
                where=folder,
                remedy="give the same as before, or another --out",
            )


def _watched(
    source: str,
    folder: str,
    job: Job,
    settings: Facts,
    once: bool,
    trigger_us: int,
    files_max: int,
    changed: Network | None,
    fetched: Network | None,
    report: Callable[[Facts], None],
    stopped: Callable[[], bool],
) -> Facts:
    with job.session() as started:
        spark = sessions.streaming(started)
        done_beside: dict[int, Facts] = {}
        small = sessions.small(started)
        again = partial(store.read_lines, spark)
        if fetched is None:
            lines = store.stream_lines(spark, source, "traces-*.jsonl", files_max)
        else:
            token = launch.operator_token(fetched)
            urls = launch.addresses(fetched)
            lines = store.stream_fetched(spark, urls, token, files_max)
            again = partial(store.read_fetched, spark, token=token)
        measure = partial(measure_batch, folder, settings, small, changed, again, done_beside)
        for name in (*watching.TABLES, "quarantine"):
            store.finish_compaction(store.join(folder, name))
        moment: Facts = (
            {"availableNow": True}
            if once
            else {"processingTime": f"{trigger_us // 1000} milliseconds"}
        )
        query = (
            lines.writeStream.queryName("watch")
            .option("checkpointLocation", store.uri(store.join(folder, "_checkpoint/facts")))
            .trigger(**moment)
            .foreachBatch(measure)
            .start()
        )
        facts: Facts = {"batches": {}, "interrupted": False}
        try:
            while query.isActive and not stopped():
                time.sleep(LOOK_S)
                failure = query.exception()
                if failure is not None:
                    raise failure
                _follow(query, done_beside, facts["batches"], report)
        except KeyboardInterrupt:
            facts["interrupted"] = True
        finally:
            query.stop()
        _follow(query, done_beside, facts["batches"], report)
        quarantined = store.read_batches(spark, store.join(folder, "quarantine"), schema=QUARANTINE)
        done = facts.pop("batches").values()
        return {
            **facts,
            "batches": len(done),
            "rows": sum(one["rows"] for one in done),
            "late": sum(one["late"] for one in done),
            "quarantined": quarantined.count(),
            "tables": [store.join(folder, name) for name in (*watching.TABLES, "quarantine")],
        }


def _follow(
    query: StreamingQuery,
    beside: Mapping[int, Facts],
    batches: dict[int, Facts],
    report: Callable[[Facts], None],
) -> None:
    """Batches with rows that have ended since the last look."""
    for progress in query.recentProgress:
        number = progress["batchId"]
        if number in batches or not progress["numInputRows"]:
            continue
        batches[number] = {
            "batch": number,
            "rows": progress["numInputRows"],
            **beside.get(number, {"late": 0, "moves": []}),
            "took_us": progress["durationMs"]["triggerExecution"] * 1000,
        }
        report(batches[number])


def watched(spark: SparkSession, folder: str, name: str) -> DataFrame:
    """A table of a watch as it stands: of each key the rows of the last batch that changed it."""
    schema, key = watching.TABLES[name]
    rows = store.read_batches(spark, store.join(store.absolute(folder), name), schema=schema)
    return watching.latest(rows, key).drop("batch")
