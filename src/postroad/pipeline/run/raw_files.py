"""Raw files as they come, for `ingestion`: what format they are of, read, parsed, and refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from postroad.errors import InputError
from postroad.pipeline import ingest as ingesting
from postroad.pipeline import store


def form_of(sources: Sequence[str]) -> str:
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


def check_magic(source: str, form: str | None) -> None:
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


def parse(
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


def check_share(written: DataFrame, parsed: DataFrame, bad_share: float, kind: str) -> None:
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
