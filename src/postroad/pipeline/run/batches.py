"""A batch of a watch, for `watches`: what it must know, what it changes, what it leaves behind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from postroad.live.network import Network
from postroad.live.operations import launch
from postroad.pipeline import ingest as ingesting
from postroad.pipeline import session as sessions
from postroad.pipeline import store
from postroad.pipeline import watch as watching
from postroad.pipeline.alternatives import Subscriptions
from postroad.pipeline.run.job import Facts
from postroad.pipeline.schemas import (
    QUARANTINE,
    WATCH_ALTERNATIVES,
    WATCH_FACTS,
    WATCH_MOVES,
    WATCH_SEEN,
)


@dataclass
class _Known:
    """What a batch must know of those before it."""

    last_us: int | None = None  # the last window,
    closed_us: int | None = None  # and the last that was closed for it
    level: int = 0  # which publications are followed: of 2 ** level one
    seen: dict[watching.Life, list[watching.Range]] = field(default_factory=dict)
    standing: watching.Standing = field(default_factory=dict)

    @classmethod
    def after(cls, folder: str, batch: int) -> _Known:
        if batch < 0:
            return cls()
        state = store.read_json(store.join(folder, f"_known/{batch}.json"))
        seen = {
            (trace_id, broker, life): [(low, high) for low, high in ranges]
            for trace_id, broker, life, ranges in state["seen"]
        }
        standing = {(a, b, c): (d, e, f) for a, b, c, d, e, f in state["standing"]}
        return cls(state["last_us"], state["closed_us"], state["level"], seen, standing)

    def save(self, folder: str, batch: int) -> None:
        seen = [[*life, ranges] for life, ranges in self.seen.items()]
        numbers = {"last_us": self.last_us, "closed_us": self.closed_us, "level": self.level}
        standing = [[*name, *last] for name, last in self.standing.items()]
        state = {**numbers, "seen": seen, "standing": standing}
        store.write_json(store.join(folder, f"_known/{batch}.json"), state)
        store.remove_file(store.join(folder, f"_known/{batch - 2}.json"))

    def with_ranges(
        self, added: Iterable[tuple[watching.Life, watching.Range]]
    ) -> dict[watching.Life, list[watching.Range]] | None:
        """What has been seen with these; None if some of it had been before."""
        seen = dict(self.seen)
        for life, some in added:
            ranges = watching.joined(seen.get(life, ()), some)
            if ranges is None:
                return None
            seen[life] = ranges
        return seen


def measure_batch(
    folder: str,
    settings: Facts,
    small: SparkSession,
    network: Network | None,
    again: Callable[[Sequence[str]], DataFrame],
    beside: dict[int, Facts],
    lines: DataFrame,
    batch: int,
) -> None:
    """Totals of the open windows with these lines, and the rows of tables that they change."""
    spark, place = lines.sparkSession, store.join(folder, "_facts")
    window_us, watermark_us = settings["window_us"], settings["watermark_us"]
    before = _Known.after(folder, batch - 1)
    closed_us = None if before.last_us is None else before.last_us - watermark_us
    events = watching.events(watching.judged(lines), window_us)
    earlier = None
    if batch:
        earlier = store.read_files(spark, store.join(place, f"batch={batch - 1}"), WATCH_FACTS)
        earlier = watching.as_of(earlier, batch - 1, before.closed_us)

    def add(events: DataFrame) -> pa.Table:
        """Write the totals with these events; what they tell of the batch."""
        added = watching.facts(events, before.level)
        if earlier is None:
            totals = watching.totals(added)
        else:
            going_on = watching.still_open(earlier, closed_us, before.level)
            totals = watching.totals(going_on.unionByName(added))
            totals = totals.unionByName(watching.just_closed(earlier, closed_us, window_us))
        # By view, so that a table reads no more than its own.
        store.write_batch(totals.coalesce(1).sortWithinPartitions("view"), place, batch)
        return store.arrow(store.join(place, f"batch={batch}"), watching.OF_BATCH)

    told = add(events)
    orders = watching.orders(told)
    seen = None
    if all(order.is_whole for order in orders.values()):
        seen = before.with_ranges((life, (one.low, one.high)) for life, one in orders.items())
    if seen is None:  # some rows are copies, or missing: look at each
        distinct = watching.distinct(events, _seen_table(spark, before.seen)).persist()
        try:
            told = add(distinct)
            ranges = watching.ranges(distinct).collect()
        finally:
            distinct.unpersist()
        seen = before.with_ranges(
            ((row["trace_id"], row["broker"], row["life"]), (row["from"], row["to"]))
            for row in ranges
        )
        assert seen is not None, "a row that was seen before"
    standing = watching.standing(before.standing, told)
    _write_tables(folder, small, watching.filters(standing), closed_us, window_us, batch)
    bad = [re.sub("^file:/+", "/", path) for path in watching.bad_files(told)]
    if bad:
        _quarantine(again(bad), store.join(folder, "quarantine"), batch)
    last_us, level = watching.last_window(told, before.last_us)
    beside[batch] = {"late": watching.late(told, closed_us), "moves": []}
    if network is not None:
        recent_us = (last_us or 0) - watching.ADVISED_AFTER * window_us
        beside[batch]["moves"] = _apply(small, folder, network, recent_us, batch)
    _Known(last_us, closed_us, level, seen, standing).save(folder, batch)
    for state in ("_facts", "_alternatives"):
        # The last is needed if this batch must be done again.
        store.remove(store.join(folder, f"{state}/batch={batch - 2}"))
    for name in (*watching.TABLES, "quarantine"):
        table = store.join(folder, name)
        store.compact(table, batch - 1, partial(merged, small, table))


def merged(spark: SparkSession, table: str, folders: Sequence[str]) -> DataFrame:
    """The rows of some batches of a table that hold."""
    schema, key = watching.TABLES.get(table.rpartition("/")[2], (QUARANTINE, None))
    rows = store.read_batches(spark, table, *folders, schema=schema)
    return (rows if key is None else watching.latest(rows, key)).drop("batch")


def _apply(
    spark: SparkSession, folder: str, network: Network, recent_us: int, batch: int
) -> list[Facts]:
    """Send publishers where the windows after `recent_us` advise them to be; into `watch_moves`.

    Done again, it changes nothing: who has gone is not there any more."""
    rows = store.rows_of(store.join(folder, f"watch_advice/batch={batch}"))
    orders: dict[str, Facts] = {}
    for row in sorted(rows, key=lambda row: row["window_us"]):
        if row["action"] == "move" and row["trace_id"] == network.name:
            orders[row["publisher"]] = row
    moves = [
        {
            **{name: row[name] for name in ("window_us", "publisher", "now", "instead")},
            "why_not": launch.move(network, row["publisher"], row["instead"]),
        }
        for row in orders.values()
        if row["advised"] and row["window_us"] > recent_us
    ]
    columns = {name: [move[name] for move in moves] for name in WATCH_MOVES.names}
    table = sessions.small_table(spark, columns, WATCH_MOVES)
    store.write_batch(table, store.join(folder, "watch_moves"), batch)
    return moves


def _seen_table(
    spark: SparkSession, seen: Mapping[watching.Life, Sequence[watching.Range]]
) -> DataFrame:
    columns: dict[str, list[Any]] = {
        name: [life[place] for life in seen] for place, name in enumerate(watching.LIFE)
    }
    columns["ranges"] = [
        [{"from": low, "to": high} for low, high in ranges] for ranges in seen.values()
    ]
    return sessions.small_table(spark, columns, WATCH_SEEN)


def _write_tables(
    folder: str,
    spark: SparkSession,
    subscriptions: Mapping[str, Subscriptions],
    closed_us: int | None,
    window_us: int,
    batch: int,
) -> None:
    """The rows that a batch has changed, of all tables."""
    place = store.join(folder, f"_facts/batch={batch}")
    totals = watching.as_of(store.read_files(spark, place, WATCH_FACTS), batch, closed_us)
    with ThreadPoolExecutor(spark.sparkContext.defaultParallelism) as pool:  # one task each
        list(
            pool.map(
                lambda named: _write_changed(named[1](totals), folder, named[0], batch),
                watching.stages(window_us).items(),
            )
        )
    networks = {row["trace_id"]: row["detail"] for row in watching.networks(totals).collect()}
    priced = watching.alternatives(totals, networks, subscriptions, batch)
    batched = watching.batched(WATCH_ALTERNATIVES)
    if batch:
        old = store.join(folder, f"_alternatives/batch={batch - 1}")
        earlier = store.read_files(spark, old, batched)
        priced = watching.carried(earlier, priced, closed_us, window_us)
    store.write_batch(priced, store.join(folder, "_alternatives"), batch)
    written = store.join(folder, f"_alternatives/batch={batch}")
    alternatives = store.read_files(spark, written, batched)
    _write_changed(alternatives, folder, "watch_alternatives", batch)
    _write_changed(watching.advice(alternatives), folder, "watch_advice", batch)


def _write_changed(frame: DataFrame, folder: str, name: str, batch: int) -> None:
    changed = watching.latest(frame, watching.TABLES[name][1], batch).drop("batch")
    store.write_batch(changed, store.join(folder, name), batch)


def _quarantine(lines: DataFrame, table: str, batch: int) -> None:
    """The bad lines of files with their numbers and reasons."""
    broken = watching.faults(lines).persist()
    try:
        store.write_batch(ingesting.bad(broken, lines), table, batch)
    finally:
        broken.unpersist()
