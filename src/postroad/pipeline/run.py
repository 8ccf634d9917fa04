"""What the commands do, in order: read tables, call a stage, write tables.

Each function first asks whether its tables are already what they would become; then Spark is
not even started. All of them return facts for the command line to print.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from postroad.errors import InputError, RunFailed
from postroad.live import network as networks
from postroad.live.network import Network
from postroad.live.operations import launch
from postroad.overlay import IntArray
from postroad.overlay.small_world import once_each
from postroad.overlay.transit_stub import places
from postroad.pipeline import cost as costing
from postroad.pipeline import ingest as ingesting
from postroad.pipeline import match as matching
from postroad.pipeline import measure as measuring
from postroad.pipeline import sample as sampling
from postroad.pipeline import session as sessions
from postroad.pipeline import store, swico
from postroad.pipeline import sweep as sweeping
from postroad.pipeline import watch as watching
from postroad.pipeline import workload as workloads
from postroad.pipeline import zones as zoning
from postroad.pipeline.alternatives import Subscriptions
from postroad.pipeline.schemas import (
    BOOLEAN,
    CASES,
    COST_BROKERS,
    EDGES,
    FACTS,
    LATENCY,
    LONG,
    MATCHES,
    METRICS,
    PUBLICATIONS,
    QUARANTINE,
    QUOTES,
    RUNS,
    SUBSCRIPTIONS,
    TEXT,
    TRACES,
    WATCH_ALTERNATIVES,
    WATCH_FACTS,
    WATCH_MOVES,
    WATCH_SEEN,
    conform,
    table,
)
from postroad.pipeline.store import Recipe
from postroad.planning.swico import TopicInterests, from_pairs
from postroad.workloads.followed import followers_of

Facts = dict[str, Any]
T = TypeVar("T")
LIGHT_BYTES = 8 << 20
"""Of files to ingest: with less, Java has no time to gain from compiling well."""
COMPACT_FILES = 16
"""So many files of one day and network, and a table of traces is written anew."""
FACTS_PER_FILE = 5_000_000
SMALL_RUNS = 2_000
"""Up to so many runs are measured in one task: to compile and shuffle would take longer."""
SMALL_FACTS = 100_000
"""And so many facts."""
INTERESTS_MEMORY = "3g"
"""What Spark's Java may hold for interests: the planner's process needs as much beside it."""
GATHERED_FACTS = 1_000_000
"""So many facts of new runs are put together without Spark."""


@dataclass(frozen=True)
class Job:
    """What every command is told: where Spark runs, whether to redo, the command itself."""

    master: str | None = None
    conf: tuple[str, ...] = ()
    force: bool = False
    command: str = ""
    light: bool = False  # Spark hands out runs and measures them, and has no bulk of data
    tell: Callable[[int, int, int], None] | None = None  # progress: see `session.followed`

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        with sessions.session(self.master, self.conf, light=self.light) as spark:
            if self.tell is None:
                yield spark
            else:
                with sessions.followed(spark, self.tell):
                    yield spark


@dataclass(frozen=True)
class Member:
    """Which setting a case of `cases`, as JSON, is a replicate of."""

    case: str
    parameters: Mapping[str, str]
    replicate: str


def up_to_date(job: Job, recipe: Recipe, *paths: str) -> Facts | None:
    """The facts of tables that need not be made again, or None."""
    if job.force or not all(store.is_current(path, recipe) for path in paths):
        return None
    lineage = store.read_lineage(paths[0])
    assert lineage is not None
    return {**lineage["facts"], "unchanged": True, "tables": list(paths)}


def _once(
    action: Callable[[], Facts], job: Job, recipe: Recipe, folder: str, *tables: str
) -> Facts:
    """Make the tables of a folder, unless they are there already; nobody else may meanwhile."""
    with store.locked(folder, job.command):
        return up_to_date(job, recipe, *tables) or guarded(action, *tables)


def guarded(action: Callable[[], T], *tables: str) -> T:
    """Spark's own failures as one line; whatever fails, no half-written table stays behind."""
    try:
        return action()
    except BaseException as error:
        for table in tables:
            store.discard(table)
        if isinstance(error, sessions.ERRORS):
            raise RunFailed(f"Spark failed: {sessions.failure_text(error)}") from error
        raise


def tables(folder: str) -> list[Facts]:
    """What every table of a folder holds and how it was made, without Spark."""
    rows = []
    for path in store.tables(folder):
        lineage = store.read_lineage(path)
        assert lineage is not None
        facts = lineage["facts"]
        quality = {key: facts[key] for key in ("records", "quarantined", "failed") if key in facts}
        rows.append(
            {
                "table": path,
                "rows": store.count(path),
                "schema": lineage.get("schema", 1),
                "stage": lineage["stage"],
                "version": lineage["version"],
                "command": lineage["command"],
                "inputs": sorted(lineage["inputs"]),
                "quality": quality,
            }
        )
    return rows


def ingest(
    sources: Sequence[str],
    kind: str,
    folder: str,
    job: Job,
    *,
    bad_share: float = 0.01,
    unit: str | None = None,
    times: str | None = None,
    layout: str = "matrix",
    undirected: bool = False,
    form: str | None = None,
    names: Mapping[str, str] | None = None,
    append: bool = False,
    keep_days: int | None = None,
) -> Facts:
    """Raw files into the table `kind` and its quarantine; with `append`, those not in it yet.
    `names` says which columns are called otherwise in the files, ours to theirs.

    Of traces, `keep_days` keeps so many days, the last one that has rows included.
    """
    if keep_days is not None and (kind != "traces" or keep_days < 1):
        raise InputError(f"keep {keep_days} days of {kind}", remedy="give 1 or more, and traces")
    sources, folder = [store.absolute(source) for source in sources], store.absolute(folder)
    table, quarantine = store.join(folder, kind), store.join(folder, f"{kind}_quarantine")
    parameters: Facts = {"kind": kind, "bad_share": bad_share}
    if kind == "latency":
        if times is None:
            raise InputError(
                "nobody says what the latencies are", remedy="give times: one-way or round-trip"
            )
        if unit is None and layout != "matrix":
            raise InputError(
                "nobody says in which unit the latencies are", remedy="give unit: us, ms or s"
            )
        times = "round-trip" if times == "rtt" else times
        parameters |= {"unit": unit or "ms", "times": times, "layout": layout}
        if layout == "matrix" and len(sources) > 1:
            raise InputError(f"{len(sources)} matrices", remedy="give one matrix at a time")
    elif kind == "edges":
        parameters |= {"undirected": undirected}
    if names:
        columns = ingesting.RECORDS[kind][2] if kind in ingesting.RECORDS else ()
        for ours in names:
            if ours not in columns:
                raise InputError(
                    f"the map names {ours!r}",
                    remedy=f"columns of {kind} are: {', '.join(columns)}"
                    if columns
                    else f"leave it out: {kind} have no named columns",
                )
        parameters |= {"names": dict(names)}
    if kind not in ("latency", "edges"):
        form = form or _form(sources)
        parameters |= {"form": form}
        parameters |= {"keep_days": keep_days} if kind == "traces" else {}
    for source in sources:
        _check_magic(source, form)
    inputs = {source: store.fingerprint(source) for source in sources}
    with store.locked(folder, job.command):
        earlier = _appended_to(table, quarantine, parameters, inputs) if append else None
        if earlier is not None:
            known = set(earlier["inputs"].values())
            sources = [source for source in sources if inputs[source] not in known]
            inputs = earlier["inputs"] | {source: inputs[source] for source in sources}
        recipe = Recipe("ingest", parameters, inputs, job.command)
        if earlier is not None and not sources:
            return {**earlier["facts"], "unchanged": True, "tables": [table, quarantine]}
        job = replace(job, light=sum(map(store.size_bytes, sources)) < LIGHT_BYTES)
        return up_to_date(job, recipe, table, quarantine) or guarded(
            partial(_ingested, sources, table, quarantine, recipe, earlier, job), table, quarantine
        )


def _appended_to(
    table: str, quarantine: str, parameters: Facts, inputs: Mapping[str, str]
) -> Facts | None:
    """The lineage of the table that these files are added to, or None where there is none."""
    lineage, beside = store.read_lineage(table), store.read_lineage(quarantine)
    if lineage is None:
        return None
    store.check_version(table, lineage)
    afresh = "ingest all files again without --append"
    if beside is None or beside["fingerprint"] != lineage["fingerprint"]:
        raise InputError("its quarantine is not of the same files", where=table, remedy=afresh)
    for key in parameters.keys() - {"bad_share", "form", "keep_days"}:
        if lineage["parameters"].get(key) != parameters[key]:
            raise InputError(
                f"{key} was {lineage['parameters'].get(key)!r} and is {parameters[key]!r}",
                where=table,
                remedy=f"give the same as before, or {afresh}",
            )
    if parameters.get("layout") == "matrix":
        raise InputError("a matrix is whole", where=table, remedy="leave --append out")
    for source, mark in inputs.items():
        if lineage["inputs"].get(source, mark) != mark:
            raise InputError(
                "has changed since it was ingested",
                where=source,
                remedy=f"give what is new as a file of its own, or {afresh}",
            )
    return lineage


def _ingested(
    sources: Sequence[str],
    table: str,
    quarantine: str,
    recipe: Recipe,
    earlier: Facts | None,
    job: Job,
) -> Facts:
    """Parse the sources once; what is good goes to the table, the rest to its quarantine."""
    kind, bad_share = recipe.parameters["kind"], recipe.parameters["bad_share"]
    schema, key, complaint = ingesting.KEYS[kind]
    with job.session() as spark, store.scratch(spark, table.rpartition("/")[0]) as keep:
        lines, parsed, finished = _parsed(spark, sources, recipe.parameters)
        if earlier is not None and complaint:
            old = store.read(spark, table, schema)
            parsed = ingesting.without_known(parsed, old, key, complaint)
        seen = Observation("ingest")
        counted = parsed.observe(
            seen,
            F.count(F.lit(1)).alias("records"),
            F.count_if(F.col("faults") != "").alias("bad"),
        )
        parsed = keep(ingesting.slim(counted))
        records, bad = seen.get["records"], seen.get["bad"]
        by_reason: dict[str, int] = {}
        if records == 0:
            raise InputError(
                "there is nothing in it", where=sources[0], remedy=f"give a file of {kind}"
            )
        if bad:
            store.write(ingesting.bad(parsed, lines), quarantine)
            written = store.read_files(spark, store.beside(quarantine), QUARANTINE)
            _check_share(written, parsed, bad_share, kind)
            # What follows a colon is about one row.
            reasons = F.transform(
                F.split("reason", "; "), lambda reason: F.substring_index(reason, ": ", 1)
            )
            by_reason = {
                row["reason"]: row["count"]
                for row in written.select(F.explode(reasons).alias("reason"))
                .groupBy("reason")
                .count()
                .orderBy("reason")
                .collect()
            }
        else:
            store.write_empty(quarantine, QUARANTINE)
        rows = finished(parsed)
        if earlier is not None and key and not complaint:
            rows = rows.join(store.read(spark, table, schema), on=list(key), how="left_anti")
        if kind == "traces":
            _write_dated(spark, rows, table, recipe.parameters["keep_days"], earlier is not None)
        else:
            store.write(rows, table)
        before: Facts = {"records": 0, "quarantined": 0, "reasons": {}}
        if earlier is not None:
            before = earlier["facts"]
            for path in (quarantine,) if kind == "traces" else (table, quarantine):
                store.carry(path)
        records, bad = records + before["records"], bad + before["quarantined"]
        facts = {
            "kind": kind,
            "records": records,
            "good": records - bad,
            "quarantined": bad,
            "reasons": {
                reason: by_reason.get(reason, 0) + before["reasons"].get(reason, 0)
                for reason in sorted(by_reason.keys() | before["reasons"].keys())
            },
            "rows": store.count(store.beside(table)),
        }
        store.publish(quarantine, recipe, facts)
        store.publish(table, recipe, facts)
        return {**facts, "unchanged": False, "tables": [table, quarantine]}


def _write_dated(
    spark: SparkSession, rows: DataFrame, table: str, keep_days: int | None, extended: bool
) -> None:
    """A table of traces by day and network, the earlier one carried over; days that are too old
    are left out, and where files have become many all is written anew."""
    rows = ingesting.dated(rows)
    files = store.files_by_folder(table) if extended else {}
    compact = "" in files or max(files.values(), default=0) >= COMPACT_FILES
    if compact:
        rows = rows.unionByName(ingesting.dated(store.read(spark, table, TRACES)))
    first = ""
    if keep_days is not None:
        newest = rows.agg(F.max("day")).collect()[0][0]
        days = [newest, *(_day(name) for name in files if name)]
        last = date.fromisoformat(max(day for day in days if day))
        first = (last - timedelta(days=keep_days - 1)).isoformat()
        rows = rows.where(F.col("day") >= first)
    store.write(rows, table, ingesting.BY_DAY)
    if extended and not compact:
        store.carry(table, lambda name: _day(name) >= first)
    if not store.files_by_folder(store.beside(table)):
        store.write_empty(table, TRACES)


def _day(name: str) -> str:
    return name.partition("/")[0].removeprefix("day=")


def _parsed(
    spark: SparkSession, sources: Sequence[str], options: Mapping[str, Any]
) -> tuple[DataFrame | None, DataFrame, Callable[[DataFrame], DataFrame]]:
    """The lines, the lines parsed, and how parsed lines become the table."""
    kind = options["kind"]
    names = options.get("names", {})
    if options.get("form") == "parquet":
        parser, schema, columns, _ = ingesting.RECORDS[kind]
        rows = store.read_raw(spark, sources)
        for ours, theirs in names.items():
            rows = rows.withColumnRenamed(theirs, ours)
        ingesting.check_header(kind, rows.columns, ", ".join(rows.columns[:-2]), sources[0])
        parsed = parser(ingesting.parquet_columns(rows, columns))
        return None, parsed, lambda frame: ingesting.good(frame, schema)
    lines = store.read_lines(spark, sources)
    if kind == "edges":
        return (
            lines,
            ingesting.edges(lines),
            lambda frame: ingesting.edge_set(frame, options["undirected"]),
        )
    if kind == "latency" and options["layout"] == "matrix":
        return (
            lines,
            ingesting.latency_matrix(lines, options["unit"], options["times"]),
            ingesting.matrix_pairs,
        )
    if kind == "latency":
        return (
            lines,
            ingesting.latency_triples(lines, options["unit"], options["times"]),
            ingesting.triple_pairs,
        )
    parser, schema, columns, _ = ingesting.RECORDS[kind]
    if options["form"] == "jsonl":
        records = ingesting.json_columns(lines, columns, names)
    else:
        headers = {row["file"]: row["text"] for row in ingesting.first_lines(lines).collect()}
        for file, header in headers.items():
            present = ingesting.header_names(header, names)
            ingesting.check_header(kind, present, header, f"{file}:1")
        records = ingesting.csv_columns(lines, headers, columns, names)
    return lines, parser(records), lambda frame: ingesting.good(frame, schema)


def _form(sources: Sequence[str]) -> str:
    """The files' format by their names; all must be of one."""
    forms = set()
    for source in sources:
        plain = source.rstrip("/").removesuffix(".gz")
        if plain.endswith(".csv"):
            forms.add("csv")
        elif plain.endswith((".jsonl", ".ndjson", ".json")):
            forms.add("jsonl")
        elif plain.endswith(".parquet") or store.is_folder(source):
            forms.add("parquet")
        else:
            raise InputError(
                f"cannot tell the format of {source!r}",
                remedy="name it .csv, .jsonl or .parquet, or give --format",
            )
    if len(forms) > 1:
        raise InputError(
            f"files of several formats: {', '.join(sorted(forms))}", remedy="ingest them apart"
        )
    return forms.pop()


def _check_magic(source: str, form: str | None) -> None:
    """A compressed file by another name, or Parquet given as text, is told at once."""
    if store.is_folder(source):
        return
    head = store.head(source)
    zipped, parquet = head.startswith(b"\x1f\x8b"), head.startswith(b"PAR1")
    if source.endswith(".gz") and not zipped:
        raise InputError(
            f"begins with {head[:40]!r}, which is not gzip", where=source, remedy="rename the file"
        )
    if zipped and not source.endswith(".gz"):
        raise InputError("is gzip but not named so", where=source, remedy="name it .gz")
    if parquet != (form == "parquet"):
        said = "is Parquet" if parquet else f"begins with {head[:40]!r}, which is not Parquet"
        raise InputError(said, where=source, remedy="give --format, or the right file")
    if form == "jsonl" and head.lstrip().startswith(b"["):
        remedy = "make lines of it, one object each: jq -c '.[]' FILE"
        raise InputError("is a JSON array", where=source, remedy=remedy)


def _check_share(written: DataFrame, parsed: DataFrame, bad_share: float, kind: str) -> None:
    """Too many bad rows in one file: it is not what the user says it is."""
    bad_of = {row["file"]: row["count"] for row in written.groupBy("file").count().collect()}
    records_of = {row["file"]: row["count"] for row in parsed.groupBy("file").count().collect()}
    for file, bad in sorted(bad_of.items()):
        if bad > records_of[file] * bad_share:
            first = written.where(F.col("file") == file).orderBy("line", "raw").head(1)[0]
            place = file if first["line"] is None else f"{file}:{first['line']}"
            raise InputError(
                f"{first['raw'][:80]!r}: {first['reason']}; {bad:,} of {records_of[file]:,} rows "
                f"are no {kind}, more than {bad_share:.2%}",
                where=place,
                remedy="check --as, or allow more with --bad-share",
            )


def sample(
    edges_path: str, folder: str, job: Job, *, nodes: int, seeds: int = 5, seed: int = 0
) -> Facts:
    """A breadth-first sample of a graph into the tables `edges` and `nodes`."""
    edges_path, folder = store.absolute(edges_path), store.absolute(folder)
    edges_out, nodes_out = store.join(folder, "edges"), store.join(folder, "nodes")
    if store.uri(edges_out) == store.uri(edges_path):
        raise InputError(f"{folder!r} holds the graph itself", remedy="give another --output")
    if nodes < 1 or seeds < 1:
        raise InputError(f"nodes {nodes}, seeds {seeds}", remedy="give 1 or more")
    parameters = {"nodes": nodes, "seeds": seeds, "seed": seed}
    recipe = Recipe("sample", parameters, {edges_path: store.fingerprint(edges_path)}, job.command)

    def act() -> Facts:
        with job.session() as spark, store.scratch(spark, folder) as keep:
            edges = store.read(spark, edges_path, EDGES)
            cut = sessions.cutter(spark, keep)
            visited = cut(sampling.visited(edges, nodes, seeds, seed, cut))
            levels = visited.groupBy("level").count().orderBy("level").collect()
            store.write(visited.orderBy("level", "node"), nodes_out)
            counted = Observation("sample")
            among = sampling.induced(edges, visited, nodes)
            store.write(among.observe(counted, F.count(F.lit(1)).alias("edges")), edges_out)
            facts = {
                "nodes": sum(row["count"] for row in levels),
                "edges": counted.get["edges"],
                "levels": [row["count"] for row in levels],
            }
            store.publish(nodes_out, recipe, facts)
            store.publish(edges_out, recipe, facts)
            return {**facts, "unchanged": False, "tables": [edges_out, nodes_out]}

    return _once(act, job, recipe, folder, edges_out, nodes_out)


def followers(edges_path: str, job: Job) -> Facts:
    """Follower statistics of a graph, and its quantile table."""

    def act() -> Facts:
        with job.session() as spark:
            counts = sampling.follower_counts(store.read(spark, edges_path, EDGES))
            counts = counts.groupBy("followers").count().orderBy(F.desc("followers"))
            rows = [(row["followers"], row["count"]) for row in counts.collect()]
        return follower_facts(rows)

    return guarded(act)


def follower_facts(rows: Sequence[tuple[int, int]]) -> Facts:
    """Statistics from (followers, users with as many), most followed first."""
    values = np.array([value for value, _ in rows], dtype=np.int64)
    users = np.array([count for _, count in rows], dtype=np.int64)
    total, population = int(values @ users), int(users.sum())
    ends = np.cumsum(users)
    held = np.cumsum(values * users)

    def top(share: float) -> float:
        wanted = round(population * share)
        place = int(np.searchsorted(ends, wanted))
        before_users = int(ends[place - 1]) if place else 0
        before_held = int(held[place - 1]) if place else 0
        return (before_held + (wanted - before_users) * int(values[place])) / max(1, total)

    def quantile(share: float) -> int:
        """The smallest count that at least this share of users do not exceed."""
        rank = min(population, max(1, int(np.ceil(share * population))))
        return int(values[::-1][np.searchsorted(np.cumsum(users[::-1]), rank)])

    shares = [n / 100 for n in range(99)] + [0.99 + n / 1000 for n in range(10)]
    shares += [0.999 + n / 10000 for n in range(11)]
    return {
        "users": population,
        "edges": total,
        "mean": total / max(1, population),
        "median": quantile(0.5),
        "max": int(values[0]),
        "top_1_percent": top(0.01),
        "top_10_percent": top(0.10),
        "top_20_percent": top(0.20),
        "quantiles": [(round(share, 4), quantile(share)) for share in shares],
    }


def workload(
    kind: str,
    folder: str,
    job: Job,
    *,
    inputs: Mapping[str, str] | None = None,
    jsonl: bool = False,
    **options: Any,
) -> Facts:
    """Subscriptions, advertisements and publications of one of the papers' workloads."""
    inputs_of = {name: store.absolute(path) for name, path in (inputs or {}).items()}
    folder = store.absolute(folder)
    tables = [
        store.join(folder, name) for name in ("publications", "subscriptions", "advertisements")
    ]
    marks = {path: store.fingerprint(path) for path in inputs_of.values()}
    recipe = Recipe("workload", {"kind": kind, "jsonl": jsonl, **options}, marks, job.command)

    def act() -> Facts:
        with job.session() as spark, store.scratch(spark, folder) as keep:
            tables = _tables_of(spark, kind, inputs_of, options, sessions.cutter(spark, keep))
            frames = {
                "subscriptions": tables.subscriptions,
                "advertisements": tables.advertisements,
                "publications": tables.publications,
            }
            facts: Facts = {"kind": kind}
            for name, frame in frames.items():
                counted = Observation(name)
                path = store.join(folder, name)
                store.write(frame.observe(counted, F.count(F.lit(1)).alias("rows")), path)
                facts[name] = counted.get["rows"]
            if jsonl:
                for name, frame in frames.items():
                    written = store.read_files(
                        spark, store.beside(store.join(folder, name)), frame.schema
                    )
                    text = workloads.simulator_lines(written, name.removesuffix("s"))
                    store.write_text(text, store.join(folder, f"{name}.jsonl"))
            for name in frames:
                store.publish(store.join(folder, name), recipe, facts)
            return {**facts, "unchanged": False, "tables": tables}

    return _once(act, job, recipe, folder, *tables)


def _tables_of(
    spark: SparkSession,
    kind: str,
    inputs: Mapping[str, str],
    options: Mapping[str, Any],
    cut: Callable[[DataFrame], DataFrame],
) -> workloads.WorkloadTables:
    source = workloads.Source(
        lambda count: sessions.numbers(spark, count),
        lambda columns, schema: sessions.small_table(spark, columns, schema),
    )
    settings = dict(options)
    if kind == "follower":
        by_class = settings.pop("by_class")
        weights = None
        if not by_class and "edges" in inputs:
            counts = sampling.follower_counts(store.read(spark, inputs["edges"], EDGES))
            shares = [(n + 0.5) / options["publishers"] for n in range(options["publishers"])]
            spots = F.percentile("followers", F.array(*map(F.lit, shares)))
            weights = np.array(counts.agg(spots.alias("at")).head(1)[0]["at"])[::-1]
        elif not by_class:
            weights = followers_of(options["publishers"])
        return workloads.follower(source, followers=weights, **settings)
    if kind == "topics":
        return workloads.topics(source, cut, **settings)
    if kind == "social":
        return workloads.social(source, store.read(spark, inputs["edges"], EDGES), **settings)
    if kind == "content" and settings["distribution"] == "regional":
        for name in ("distribution", "exponent", "peaks", "interest_over"):
            del settings[name]
        if "latency" not in inputs:
            return workloads.regional(source, **settings)
        latency = store.read(spark, inputs["latency"], LATENCY)
        near = latency.where((F.col("a") < options["servers"]) & (F.col("b") < options["servers"]))
        shares = [n / 1000 for n in range(1001)]
        spots = F.percentile("latency_us", F.array(*map(F.lit, shares)))
        row = near.agg(spots.alias("at"), F.max("a").alias("top")).head(1)[0]
        if row["at"] is None or row["top"] + 1 < options["servers"]:
            raise InputError(
                f"latencies of fewer than {options['servers']} hosts",
                where=inputs["latency"],
                remedy="give fewer --servers",
            )
        return workloads.regional(
            source, latency=latency, distances=np.array(row["at"]), **settings
        )
    if kind == "content":
        del settings["gamma"]
        return workloads.content(source, **settings)
    if kind == "stock":
        days = settings.pop("days")
        if "quotes" in inputs:
            quotes = store.read(spark, inputs["quotes"], QUOTES)
        else:
            quotes = workloads.made_up_quotes(source, options["publishers"], days, options["seed"])
        return workloads.stock(source, quotes, **settings)
    assert kind == "patterns", kind
    return workloads.patterns(source, **settings)


def sweep(
    experiment_path: str,
    folder: str,
    job: Job,
    *,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Facts:
    """Run the grid of an experiment's file into the table `runs` (and `traces`, if it asks)."""
    experiment = sweeping.load(experiment_path)
    sweeping.check(experiment)
    return perform(experiment, folder, job, report=report)


def perform(
    experiment: sweeping.Experiment,
    folder: str,
    job: Job,
    *,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Facts:
    """The same for an experiment that is at hand."""
    folder = store.absolute(folder)
    runs_out, traces_out = store.join(folder, "runs"), store.join(folder, "traces")
    tables = [runs_out, traces_out] if experiment.traces else [runs_out]
    recipe = Recipe("sweep", experiment.settings(), experiment.files, job.command)
    rows = sweeping.expand(experiment)
    folders = {part: store.join(folder, f"{part}.finished") for part in sweeping.PARTS}
    finished = folders["runs"]

    def act() -> Facts:
        if job.force:
            for part in folders.values():
                store.remove(part)
        with job.session() as spark:
            for part in folders.values():
                store.make_folder(part)
            earlier = None if job.force else _earlier(spark, runs_out)
            done = _known(finished if earlier is None else runs_out, finished)
            left = [
                sweeping.again(row, done[row.run_id][1] + 1) if row.run_id in done else row
                for row in rows
                if done.get(row.run_id, ("", 0))[0] != "ok"
            ]
            skipped = len(rows) - len(left)
            report(skipped, len(rows))
            _perform(spark, left, folders, lambda count: report(skipped + count, len(rows)))
            _gather_runs(spark, folder, [row.run_id for row in rows], earlier is not None)
            written = store.rows_of(store.beside(runs_out), ("run_id", "status", "error"))
            errors = [row["error"] for row in written if row["status"] != "ok"]
            facts: Facts = {
                "runs": len(rows),
                "skipped": skipped,
                "failed": len(errors),
                "first_error": errors[0] if errors else None,
            }
            ok = [row["run_id"] for row in written if row["status"] == "ok"]
            if experiment.traces:
                gathered = _gathered(spark, folder, "traces", "trace_id", ok, earlier is not None)
                store.write(gathered, traces_out)
                store.publish(traces_out, recipe, facts)
            _gather_facts(spark, folder, ok, earlier is not None, recipe, facts)
            store.publish(runs_out, recipe, facts)
            for part in folders.values():
                store.remove(part)
            return {**facts, "unchanged": False, "tables": tables}

    with store.locked(folder, job.command):
        facts = up_to_date(job, recipe, *tables)
        return facts if facts and not facts["failed"] else guarded(act, *tables)


def _gather_runs(spark: SparkSession, folder: str, ids: Sequence[str], extended: bool) -> None:
    """Write the table `runs`; a small one that is new without Spark."""
    finished, runs_out = store.join(folder, "runs.finished"), store.join(folder, "runs")
    if len(ids) < SMALL_RUNS:
        if not extended:
            store.gather(finished, runs_out, RUNS, "run_id", ids)
            return
        spark = sessions.small(spark)
    wanted = sessions.small_table(spark, {"run_id": list(ids)}, table(run_id=TEXT))
    fresh = store.read_files(spark, finished, RUNS).join(
        F.broadcast(wanted), on="run_id", how="left_semi"
    )
    whole = conform(fresh, RUNS)
    earlier = _earlier(spark, runs_out) if extended else None
    if earlier is not None:
        kept = earlier.join(F.broadcast(wanted), on="run_id", how="left_semi").join(
            fresh.select("run_id"), on="run_id", how="left_anti"
        )
        whole = whole.unionByName(kept)
    store.write(whole.orderBy("run_id").coalesce(1), runs_out)


def _gathered(
    spark: SparkSession, folder: str, part: str, key: str, ok: Sequence[str], extended: bool
) -> DataFrame:
    """What the runs that went well have left, with that of an earlier sweep that is extended."""
    schema = sweeping.PARTS[part]
    names = sessions.small_table(spark, {key: list(ok)}, table(**{key: TEXT}))
    rows = store.read_files(spark, store.join(folder, f"{part}.finished"), schema)
    rows = rows.join(F.broadcast(names), on=key, how="left_semi")
    place = store.join(folder, part)
    if extended and store.exists(place):
        old = store.read(spark, place, schema).join(F.broadcast(names), on=key, how="left_semi")
        again = rows.select(key).distinct()
        rows = rows.unionByName(old.join(again, on=key, how="left_anti"))
    return conform(rows, schema)


def _gather_facts(
    spark: SparkSession,
    folder: str,
    ok: Sequence[str],
    extended: bool,
    recipe: Recipe,
    facts: Facts,
) -> None:
    """The tables `facts` and `metrics`, where runs have left facts."""
    facts_out, metrics_out = store.join(folder, "facts"), store.join(folder, "metrics")
    left = store.count(store.join(folder, "facts.finished"))
    if not left and not (extended and store.exists(facts_out)):
        store.remove(facts_out)  # those of runs that are no longer there
        store.remove(metrics_out)
        return
    if left < SMALL_FACTS:
        spark = sessions.small(spark)
    if left < GATHERED_FACTS and not extended:
        store.gather(store.join(folder, "facts.finished"), facts_out, FACTS, "run_id", ok)
    else:
        gathered = _gathered(spark, folder, "facts", "run_id", ok, extended)
        store.write(gathered.coalesce(1 + left // FACTS_PER_FILE), facts_out)
    store.publish(facts_out, recipe, facts)
    papers = {name.partition(".")[0] for name in store.distinct(facts_out, "fact") if "." in name}
    values = measuring.fact_metrics(store.read(spark, facts_out, FACTS), sorted(papers))
    store.write(values.coalesce(1), metrics_out)
    store.publish(metrics_out, recipe, facts)


def cases(
    entry: str,
    todo: Sequence[Mapping[str, Any]],
    folder: str,
    job: Job,
    *,
    question: str = "",
    inputs: Mapping[str, str] | None = None,
    beside: str = "",
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[tuple[dict[str, float], str | None]]:
    """Runs that are no grid: metrics and error of each, in the order given.

    A run finds its own in `parameters["case"]`. `inputs` are hashes of files that decide the
    results, `beside` the folder that the cases' file names are relative to.
    """
    experiment = sweeping.Experiment(
        question=question, seed=0, replicates=1, run=entry, traces=False, scenario={},
        vary={"case": list(todo)}, fixed={}, folder=beside, files=inputs or {},
    )  # fmt: skip
    perform(experiment, folder, job, report=report)
    runs = store.rows_of(store.join(folder, "runs"))
    metrics = {row["run_id"]: dict(row["metrics"]) for row in runs}
    if store.exists(store.join(folder, "metrics")):
        for row in store.rows_of(store.join(folder, "metrics")):
            metrics[row["run_id"]][row["metric"]] = row["value"]
    by_case = {
        dict(row["parameters"])["case"]: (metrics[row["run_id"]], row["error"]) for row in runs
    }
    return [by_case[json.dumps(case)] for case in todo]


def _earlier(spark: SparkSession, runs_out: str) -> DataFrame | None:
    """The runs of the table that this sweep extends or repairs."""
    if store.read_lineage(runs_out) is None:
        return None
    return store.read(spark, runs_out, RUNS)


def _known(*folders: str) -> dict[str, tuple[str, int]]:
    """Status and attempt of every run in these folders; a later folder knows better."""
    return {
        row["run_id"]: (row["status"], row["attempt"])
        for folder in folders
        for row in store.rows_of(folder, ("run_id", "status", "attempt"))
    }


def _perform(
    spark: SparkSession,
    left: Sequence[sweeping.Run],
    folders: Mapping[str, str],
    report: Callable[[int], None],
) -> None:
    """Perform the runs. One whose Python worker dies is recorded as failed and the rest go on."""
    total = len(left)
    while left:
        listed = sessions.small_table(
            spark,
            {"id": list(range(len(left))), "run": [row.to_json() for row in left]},
            sweeping.TASK,
        )
        job = sweeping.finish(sessions.tasks(spark, len(left)), listed, folders)
        before = total - len(left)
        try:
            outcomes = sessions.with_progress(spark, job.collect, partial(_ahead, report, before))
            lost = {row["run_id"]: row["error"] for row in outcomes if row["error"] is not None}
            _record(left, lost, folders)
            return
        except sessions.ERRORS as error:
            cause = sessions.failure_text(error)
            culprit = re.search(r"Task (\d+) in stage \S+ failed", str(error))
            if culprit is not None:
                lost = {left[int(culprit[1])].run_id: f"the Python worker died: {cause}"}
            elif isinstance(error, sessions.WORKER_ERROR):
                # Not a run's doing, or the run would have been recorded: none can be performed.
                lost = {row.run_id: f"the Python worker failed: {cause}" for row in left}
            else:
                raise
            done = _known(folders["runs"])
            left = [row for row in left if done.get(row.run_id, ("", 0))[1] < row.attempt]
            _record(left, lost, folders)
            left = [row for row in left if row.run_id not in lost]


def _record(
    runs: Sequence[sweeping.Run], lost: Mapping[str, str], folders: Mapping[str, str]
) -> None:
    """Leave a failed row for each run that could not leave its own."""
    for run in runs:
        if run.run_id in lost:
            row = json.loads(run.to_json())
            failed = sweeping.finished_row(row, time.perf_counter(), error=lost[run.run_id])
            sweeping.leave(failed, folders)


def _ahead(report: Callable[[int], None], before: int, done: int) -> None:
    report(before + done)


@dataclass(frozen=True)
class Grid:
    """What the runs of a sweep differ in, and how many settings there are."""

    keys: tuple[str, ...]
    count: int


def grid_of(runs_path: str) -> Grid:
    """The settings of a table of runs, without Spark."""
    rows = [dict(row["parameters"]) for row in store.rows_of(runs_path, ("parameters",))]
    distinct = {tuple(sorted(row.items())) for row in rows}
    return Grid(tuple(sorted({key for row in rows for key in row})), len(distinct))


def measure(
    runs_path: str,
    folder: str,
    job: Job,
    *,
    traces_path: str | None = None,
    baselines: Sequence[Mapping[str, str | None]] = (),
    cases: Sequence[Member] | None = None,
    metrics: Sequence[str] | None = None,
) -> Facts:
    """Measures of a sweep into `measures`, and against baselines into `differences`.

    `cases` say which settings the runs of `run.cases` belong to; `metrics` are those wanted, if
    not all. A baseline's value of None stands for every value.
    """
    runs_path, folder = store.absolute(runs_path), store.absolute(folder)
    traces_path = traces_path and store.absolute(traces_path)
    measures_out = store.join(folder, "measures")
    differences_out = store.join(folder, "differences")
    tables = [measures_out, differences_out] if baselines else [measures_out]
    metrics_path = store.join(runs_path.rstrip("/").rpartition("/")[0], "metrics")
    counted = store.exists(metrics_path)
    paths = [runs_path, *([traces_path] if traces_path else [])]
    paths += [metrics_path] if counted else []
    inputs = {path: store.fingerprint(path) for path in paths}
    listed = cases and store.content_hash(json.dumps([astuple(case) for case in cases]))
    wanted = None if metrics is None else sorted(metrics)
    against = [dict(baseline) for baseline in baselines]
    parameters = {"baselines": against, "cases": listed, "metrics": wanted}
    recipe = Recipe("measure", parameters, inputs, job.command)

    def act() -> Facts:
        small = store.count(runs_path) < SMALL_RUNS and traces_path is None
        with job.session() as started:
            spark = sessions.small(started) if small else started
            runs = store.read(spark, runs_path, RUNS)
            if cases is not None:
                runs = measuring.of_cases(runs, _cases_table(spark, cases))
            others = [store.read(spark, metrics_path, METRICS)] if counted else []
            if traces_path:
                others.append(measuring.trace_metrics(store.read(spark, traces_path, TRACES)))
            values = measuring.run_metrics(runs, *others)
            if cases is not None:
                values = measuring.by_scheme(values)
            if metrics is not None:
                values = measuring.only(values, metrics)
            if baselines:
                for baseline in baselines if cases is None else ():
                    _check_baseline(runs, baseline, runs_path)
                compared = measuring.differences(values, baselines)
                store.write(compared.coalesce(1), differences_out)
            store.write(measuring.measures(values).coalesce(1), measures_out)
            facts: Facts = {"measures": store.count(store.beside(measures_out))}
            if baselines:
                facts["differences"] = store.count(store.beside(differences_out))
                store.publish(differences_out, recipe, facts)
            store.publish(measures_out, recipe, facts)
            return {**facts, "unchanged": False, "tables": tables}

    return _once(act, job, recipe, folder, *tables)


def _cases_table(spark: SparkSession, cases: Sequence[Member]) -> DataFrame:
    columns = {
        "case": [case.case for case in cases],
        "parameters": [sorted(case.parameters.items()) for case in cases],
        "replicate": [case.replicate for case in cases],
    }
    return sessions.small_table(spark, columns, CASES)


def _check_baseline(runs: DataFrame, baseline: Mapping[str, str | None], where: str) -> None:
    parameters = [
        F.col("parameters")[key] == F.lit(value)
        for key, value in baseline.items()
        if value is not None
    ]
    matching = runs
    for condition in parameters:
        matching = matching.where(condition)
    if not matching.head(1):
        names = sorted(
            row["key"]
            for row in runs.select(F.explode(F.map_keys("parameters")).alias("key"))
            .distinct()
            .collect()
        )
        said = ", ".join(f"{key}={value}" for key, value in baseline.items())
        raise InputError(
            f"no run has {said}",
            where=where,
            remedy=f"the parameters are {', '.join(names)}",
        )


def match(
    subscriptions_path: str,
    publications_path: str,
    folder: str,
    job: Job,
    *,
    by: str = "subscription",
) -> Facts:
    """Which publication matches whom, into the table `matches`."""
    assert by in matching.BY, by
    folder = _on_disk(folder)
    out, index = store.join(folder, "matches"), store.join(folder, ".matches.index")
    subscriptions_path = _table_of(subscriptions_path, "subscriptions", folder, job)
    publications_path = _table_of(publications_path, "publications", folder, job)
    inputs = {path: store.fingerprint(path) for path in (subscriptions_path, publications_path)}
    recipe = Recipe("match", {"by": by}, inputs, job.command)

    def act() -> Facts:
        with job.session() as spark:
            held = matching.held(store.read(spark, subscriptions_path, SUBSCRIPTIONS), by)
            built = matching.indexed(held, index).collect()[0].asDict()
            publications = store.read(spark, publications_path, PUBLICATIONS)
            store.begin(out)
            counts = matching.matched(publications, index, store.beside(out))
            total = counts.agg(F.sum("publications"), F.sum("matches")).collect()[0]
            if not total[0]:
                store.write_empty(out, MATCHES)
            facts: Facts = {
                "by": by,
                **built,
                "publications": total[0] or 0,
                "matches": total[1] or 0,
            }
            store.publish(out, recipe, facts)
            return {**facts, "unchanged": False, "tables": [out]}

    try:
        return _once(act, job, recipe, folder, out)
    finally:
        store.remove_file(index)


def zone_loads(
    subscriptions_path: str,
    publications_path: str,
    folder: str,
    job: Job,
    *,
    attributes: Sequence[str],
    alpha: float,
    weight: str | None = None,
) -> tuple[list[dict[str, Any]], list[float]]:
    """The points of a table of publications and the load of each, to cut Kyra's zones by. All
    executors must see the folder."""
    index = store.join(_on_disk(folder), f".zones-{os.getpid()}.index")
    subscriptions_path, publications_path = map(
        store.absolute, (subscriptions_path, publications_path)
    )

    def act() -> tuple[list[dict[str, Any]], list[float]]:
        with job.session() as spark:
            held = store.read(spark, subscriptions_path, SUBSCRIPTIONS)
            always = F.lit(None).cast("bigint")  # zones are planned for all of them
            always_held = held.withColumns({"time_us": always, "until_us": always})
            matching.indexed(matching.held(always_held, "broker"), index).collect()
            publications = store.read(spark, publications_path, PUBLICATIONS)
            found = zoning.points(publications, index, held.count(), attributes, alpha, weight)
            rows = found.toArrow()
            order = sorted(zip(rows["point"].to_pylist(), rows["load"].to_pylist(), strict=True))
            return [json.loads(point) for point, _ in order], [load for _, load in order]

    try:
        return guarded(act)
    finally:
        store.remove_file(index)


def interests(
    path: str, names: Mapping[str, str], folder: str, job: Job
) -> tuple[list[str], TopicInterests, IntArray]:
    """From Parquet: the nodes in the order they first appear, the interests by number, and the
    candidates of the approximate planner, a * nodes + b with a < b, ascending. All executors must
    see the folder."""
    path = store.absolute(path)
    job = replace(job, conf=(f"spark.driver.memory={INTERESTS_MEMORY}", *job.conf))

    def act() -> tuple[list[str], TopicInterests, IntArray]:
        with job.session() as spark, _swico_scratch(spark, folder) as keep:
            rows = store.read_raw(spark, [path])
            called = {"node": "node", "topic": "topic", **names}
            for ours, theirs in called.items():
                if ours not in ("node", "topic") or theirs not in rows.columns:
                    raise InputError(
                        f"columns {', '.join(rows.columns[:-2])}",
                        where=path,
                        remedy="name two of them node and topic, or say --map node=COLUMN",
                    )
            rows = rows.select(
                *(F.col(theirs).cast("string").alias(ours) for ours, theirs in called.items()),
                "_file",
                "_row",
            )
            for row in swico.nameless(rows).orderBy("_file", "_row").head(1):
                raise InputError(
                    f"row {row['_row'] + 1} has no {'topic' if row['node'] else 'node'}",
                    where=row["_file"],
                    remedy="name a node and a topic in each row",
                )
            numbered: list[DataFrame] = []
            orders: list[pa.Table] = []
            for column in ("node", "topic"):
                ordered = keep(swico.in_order(rows, column))
                orders.append(store.arrow_of(ordered).sort_by("place"))
                parts = orders[-1]["place"].to_numpy() >> swico.PART_BITS
                numbered.append(swico.numbered(ordered, Counter(parts.tolist())))
            nodes, topics_count = orders[0]["name"].to_pylist(), len(orders[1])
            del orders, parts  # memory counts here
            kept = keep(swico.pairs(rows, numbered[0], numbered[1], max(len(nodes), topics_count)))
            wanted = _interests_of(kept, len(nodes), topics_count)
            return nodes, wanted, _candidates(kept, len(nodes), keep)

    try:
        return guarded(act)
    finally:
        sessions.end_java()  # the planner wants the memory


def candidates(wanted: TopicInterests, folder: str, job: Job) -> IntArray:
    """The same candidates, of interests that are at hand."""

    def act() -> IntArray:
        with job.session() as spark, _swico_scratch(spark, folder) as keep:
            nodes = np.repeat(np.arange(wanted.nodes_count), np.diff(wanted.start))
            columns = {"node": nodes, "topic": wanted.topics}
            rows = sessions.small_table(spark, columns, swico.PAIRS)
            return _candidates(rows, wanted.nodes_count, keep)

    try:
        return guarded(act)
    finally:
        sessions.end_java()


def _interests_of(pairs: DataFrame, nodes: int, topics: int) -> TopicInterests:
    columns = store.arrow_of(pairs)
    node, topic = (columns[name].to_numpy() for name in ("node", "topic"))
    return from_pairs(node, topic, nodes, topics)


def _swico_scratch(spark: SparkSession, folder: str) -> Any:
    return store.scratch(spark, _on_disk(folder), f".swico-{os.getpid()}")


def _candidates(pairs: DataFrame, nodes: int, keep: Callable[[DataFrame], DataFrame]) -> IntArray:
    edges = keep(swico.candidates(pairs).select((F.col("a") * nodes + F.col("b")).alias("edge")))
    # Sorting numbers here costs less than a second shuffle there; in place, for the memory.
    numbers = np.concatenate([chunk.to_numpy() for chunk in store.arrow_of(edges)["edge"].chunks])
    pa.default_memory_pool().release_unused()
    numbers.sort()
    return once_each(numbers)


def cost(
    network: str,
    subscriptions_path: str,
    publications_path: str,
    folder: str,
    job: Job,
    *,
    schemes: Sequence[str] = (),
) -> Facts:
    """What schemes cost, into the tables `cost`, `cost_brokers` and `cost_links`."""
    settings = costing.load(Path(network), schemes)
    folder, network = _on_disk(folder), store.absolute(network)
    out, by_broker, by_link = (
        store.join(folder, name) for name in ("cost", "cost_brokers", "cost_links")
    )
    index, prices = store.join(folder, ".cost.index"), store.join(folder, ".cost.prices")
    subscriptions_path = _table_of(subscriptions_path, "subscriptions", folder, job)
    publications_path = _table_of(publications_path, "publications", folder, job)
    inputs = {path: store.fingerprint(path) for path in (subscriptions_path, publications_path)}
    inputs |= {network: store.content_fingerprint(network)}
    overlay = settings.overlay
    drawn = hashlib.sha256(repr(overlay.names).encode())
    for array in (overlay.ends, overlay.latency_us, overlay.direct_us):
        drawn.update(b"" if array is None else array.tobytes())
    parameters = {"schemes": list(settings.schemes), "overlay": drawn.hexdigest()[:16]}
    recipe = Recipe("cost", parameters, inputs, job.command)

    def act() -> Facts:
        with job.session() as spark, store.scratch(spark, folder) as keep:
            subscriptions = store.read(spark, subscriptions_path, SUBSCRIPTIONS)
            _check_fixed(subscriptions, subscriptions_path)
            interests: list[tuple[str, str]] = []
            if settings.plans:
                columns = ("subscription", "broker", "filter")
                rows = store.rows_of(subscriptions_path, columns)
                rows.sort(key=lambda row: row["subscription"])
                interests = [(row["broker"], row["filter"]) for row in rows]
            costing.save(costing.Prices(settings, interests), prices)
            built = matching.indexed(matching.held(subscriptions, "broker"), index).collect()[0]
            publications = store.read(spark, publications_path, PUBLICATIONS)
            sets = keep(costing.wanted(publications, index, prices))
            facts = keep(costing.facts(sets, prices))
            names = places(overlay)
            named = sessions.small_table(
                spark,
                {
                    "number": list(range(len(names))),
                    "name": names,
                    "is_broker": [n < overlay.brokers_count for n in range(len(names))],
                },
                table(number=LONG, name=TEXT, is_broker=BOOLEAN),
            )
            priced = sessions.small_table(
                spark, {"scheme": list(settings.schemes)}, table(scheme=TEXT)
            )
            store.write(costing.links(facts, named), by_link)
            store.write(costing.brokers(facts, named, priced).coalesce(1), by_broker)
            loads = store.read_files(spark, store.beside(by_broker), COST_BROKERS)
            store.write(costing.costs(facts, loads, priced).coalesce(1), out)
            rows = store.rows_of(store.beside(out))
            said: Facts = {
                "publications": rows[0]["publications"],
                "filters": built["filters"],
                "sets": sets.count(),
            }
            for path in (by_link, by_broker, out):
                store.publish(path, recipe, said)
            return {**said, "unchanged": False, "tables": [out, by_broker, by_link]}

    try:
        return _once(act, job, recipe, folder, out, by_broker, by_link)
    finally:
        store.remove_file(index)
        store.remove_file(prices)


def _check_fixed(subscriptions: DataFrame, where: str) -> None:
    """Costs are of subscriptions that stand throughout."""
    changing = subscriptions.where("time_us IS NOT NULL OR until_us IS NOT NULL").head(1)
    if changing:
        raise InputError(
            f"subscription {changing[0]['subscription']!r} comes or goes",
            where=where,
            remedy="leave time_us and until_us out; simulate what changes",
        )


def _on_disk(folder: str) -> str:
    """A folder that executors can map files in."""
    if "://" in folder:
        raise InputError(
            f"{folder!r} is no path", remedy="give a folder on a disk that all executors see"
        )
    return store.absolute(folder)


def _table_of(source: str, kind: str, folder: str, job: Job) -> str:
    """A table as it is; raw files are ingested into the folder first, and must all be good."""
    source = store.absolute(source)
    if store.is_folder(source) and store.read_lineage(source) is not None:
        return source
    table: str = ingest([source], kind, folder, job, bad_share=0)["tables"][0]
    return table


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
        measure = partial(_measure_batch, folder, settings, small, changed, again, done_beside)
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


def _measure_batch(
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
        store.compact(table, batch - 1, partial(_merged, small, table))


def _merged(spark: SparkSession, table: str, folders: Sequence[str]) -> DataFrame:
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


def watched(spark: SparkSession, folder: str, name: str) -> DataFrame:
    """A table of a watch as it stands: of each key the rows of the last batch that changed it."""
    schema, key = watching.TABLES[name]
    rows = store.read_batches(spark, store.join(store.absolute(folder), name), schema=schema)
    return watching.latest(rows, key).drop("batch")
