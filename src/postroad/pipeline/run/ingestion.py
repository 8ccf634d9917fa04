"""Raw files into tables, for `postroad pipeline ingest` and commands that are given raw files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import partial

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from postroad.errors import InputError
from postroad.pipeline import ingest as ingesting
from postroad.pipeline import store
from postroad.pipeline.run.job import Facts, Job, guarded, up_to_date
from postroad.pipeline.run.raw_files import check_magic, check_share, form_of, parse
from postroad.pipeline.schemas import QUARANTINE, TRACES
from postroad.pipeline.store import Recipe

LIGHT_BYTES = 8 << 20
"""Of files to ingest: with less, Java has no time to gain from compiling well."""
COMPACT_FILES = 16
"""So many files of one day and network, and a table of traces is written anew."""


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
        form = form or form_of(sources)
        parameters |= {"form": form}
        parameters |= {"keep_days": keep_days} if kind == "traces" else {}
    for source in sources:
        check_magic(source, form)
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
        lines, parsed, finished = parse(spark, sources, recipe.parameters)
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
            check_share(written, parsed, bad_share, kind)
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


def table_of(source: str, kind: str, folder: str, job: Job) -> str:
    """A table as it is; raw files are ingested into the folder first, and must all be good."""
    source = store.absolute(source)
    if store.is_folder(source) and store.read_lineage(source) is not None:
        return source
    table: str = ingest([source], kind, folder, job, bad_share=0)["tables"][0]
    return table
