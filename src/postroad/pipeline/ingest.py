"""Raw files into tables: parse every line, say of each bad one why it is bad.

A parser turns lines (`file`, `block`, `position`, `text`) into the same lines with the table's
columns and `faults`, the names of the rules a line breaks; an empty text means it is good.
`good` keeps the good ones as the table, `bad` makes the quarantine of the others. Lines are parsed
once, whether or not some are bad: `run.ingest` writes what was parsed away (`slim`).

Line numbers come natively: within a split Spark reads lines in order, so `position` minus the
split's first position counts them, and the line counts of the splits before it in the same
file are added. A gzip file is one split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postroad.errors import FilterError, InputError
from postroad.filters import parse
from postroad.pipeline.schemas import (
    EDGES,
    LATENCY,
    PUBLICATIONS,
    QUARANTINE,
    QUOTES,
    SUBSCRIPTIONS,
    TEXT,
    TRACES,
    conform,
)
from postroad.traces.schema import KINDS

LINE = ("file", "block", "position", "text")
UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000}
TRIPS = {"one-way": 1, "round-trip": 2}  # how often a measured time crosses the network
TIMES = ("time_us", "until_us", "published_us")
TIME_MAX_US = 2**60
# Quantifiers are possessive (*+), because Java's others recurse and long texts overflow its stack.
_CSV_FIELD = r'(?:"[^"]*+(?:""[^"]*+)*+"(?=,|$)|(?!")[^,]*+)'
_CSV_RECORD = f"^{_CSV_FIELD}(?:,{_CSV_FIELD})*+$"
_JSON_TEXT = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT_OBJECT = rf'^\s*+\{{(?:{_JSON_TEXT}|[^"{{}}\[\]])*+\}}\s*$'
_MISSING = ("", "-", "na", "n/a", "null", "none", "nan")
_DATES = ("yyyy-MM-dd", "yyyyMMdd", "M/d/yyyy")


def good(parsed: DataFrame, schema: StructType) -> DataFrame:
    """The lines that break no rule, as the table."""
    return conform(parsed.where(F.col("faults") == ""), schema)


def slim(parsed: DataFrame) -> DataFrame:
    """Parsed lines without what only the quarantine needs, where they are good."""
    return parsed.withColumn("text", F.when(F.col("faults") != "", F.col("text")))


def bad(parsed: DataFrame, lines: DataFrame | None) -> DataFrame:
    """The lines that break rules, with their numbers. `lines` is None where there are none."""
    broken = parsed.where(F.col("faults") != "")
    placed = broken.withColumn("line", F.lit(None)) if lines is None else numbered(broken, lines)
    named = placed.select(
        "file", "line", F.col("faults").alias("reason"), F.col("text").alias("raw")
    )
    return conform(named, QUARANTINE)


def numbered(some: DataFrame, lines: DataFrame) -> DataFrame:
    """`some` of `lines` with `line`, counted from 1 in each file."""
    splits = lines.groupBy("file", "block").agg(
        F.min("position").alias("_first"), F.count(F.lit(1)).alias("_count")
    )
    earlier = Window.partitionBy("file").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    before = splits.withColumn("_before", F.coalesce(F.sum("_count").over(earlier), F.lit(0)))
    return (
        some.join(F.broadcast(before), on=["file", "block"], how="inner")
        .withColumn("line", F.col("position") - F.col("_first") + F.col("_before") + 1)
        .drop("_first", "_count", "_before")
    )


def first_lines(lines: DataFrame) -> DataFrame:
    """The first line of each file."""
    return (
        lines.where(F.col("block") == 0)
        .groupBy("file")
        .agg(F.min_by("text", "position").alias("text"))
    )


def reason(*rules: tuple[Column, str]) -> Column:
    """The names of the rules whose condition holds, as one text."""
    return F.concat_ws("; ", *[F.when(broken, F.lit(name)) for broken, name in rules])


def _content(lines: DataFrame) -> DataFrame:
    """Lines that say something: not blank, not a comment."""
    return lines.where(~F.col("text").rlike(r"^\s*([#%].*)?$"))


def edges(lines: DataFrame) -> DataFrame:
    """SNAP edge lists: two integers, separated by blanks, tabs or a comma; `#` comments."""
    pair = r"^\s*(-?\d+)[\s,]+(-?\d+)\s*$"
    said = _content(lines).select(
        *LINE,
        F.regexp_extract("text", pair, 1).try_cast("bigint").alias("follower"),
        F.regexp_extract("text", pair, 2).try_cast("bigint").alias("followee"),
    )
    two = F.col("follower").isNotNull() & F.col("followee").isNotNull()
    return said.withColumn(
        "faults",
        reason(
            (~two, "not two integers"),
            (F.col("follower") == F.col("followee"), "self-loop"),
        ),
    )


def edge_set(parsed: DataFrame, undirected: bool) -> DataFrame:
    """The good edges, each once; of an undirected graph both ways."""
    kept = good(parsed, EDGES)
    if undirected:
        there = F.struct("follower", "followee")
        back = F.struct(F.col("followee").alias("follower"), F.col("follower").alias("followee"))
        kept = kept.select(F.inline(F.array(there, back)))
    return conform(kept.distinct(), EDGES)


def latency_matrix(lines: DataFrame, unit: str, times: str) -> DataFrame:
    """A square matrix, one row per line; one parsed line per row, its cells as an array."""
    rows = numbered(_content(lines), lines).withColumn("_cells", _fields())
    size = rows.agg(F.min("line").alias("_top"), F.count(F.lit(1)).alias("_rows"))
    rows = rows.crossJoin(F.broadcast(size))
    odd = F.exists("_cells", lambda cell: cell.try_cast("double").isNull() & ~_is_missing(cell))
    return rows.select(
        *LINE,
        (F.col("line") - F.col("_top")).alias("a"),
        F.transform("_cells", lambda cell: _micros(cell, unit, times)).alias("latencies_us"),
        reason(
            (odd, "not a number"),
            (F.size("_cells") != F.col("_rows"), "as many fields as rows expected"),
        ).alias("faults"),
    )


def matrix_pairs(parsed: DataFrame) -> DataFrame:
    """The pairs of a matrix: missing ones and the diagonal left out."""
    pairs = parsed.where(F.col("faults") == "").select(
        "a", F.posexplode("latencies_us").alias("b", "latency_us")
    )
    kept = F.col("latency_us").isNotNull() & (F.col("a") != F.col("b"))
    return conform(pairs.where(kept), LATENCY)


def latency_triples(lines: DataFrame, unit: str, times: str) -> DataFrame:
    """`i j latency` per line; a missing latency is allowed and leaves the pair out."""
    said = _content(lines).withColumn("_fields", _fields())
    cell = F.coalesce(F.get("_fields", F.lit(2)), F.lit(""))
    said = said.select(
        *LINE,
        "_fields",
        F.get("_fields", F.lit(0)).try_cast("bigint").alias("a"),
        F.get("_fields", F.lit(1)).try_cast("bigint").alias("b"),
        _micros(cell, unit, times).alias("latency_us"),
        (cell.try_cast("double").isNull() & ~_is_missing(cell)).alias("_odd"),
    )
    whole = F.col("a").isNotNull() & F.col("b").isNotNull() & (F.size("_fields") == 3)
    return said.withColumn(
        "faults",
        reason(
            (~whole | F.col("_odd"), "not two integers and a latency"),
            (whole & (F.col("a") == F.col("b")), "pair of a host with itself"),
        ),
    ).drop("_fields", "_odd")


def triple_pairs(parsed: DataFrame) -> DataFrame:
    """The pairs of a triple list that have a latency."""
    return good(parsed.where((F.col("faults") != "") | F.col("latency_us").isNotNull()), LATENCY)


def _fields() -> Column:
    return F.split(F.trim(F.translate("text", "\t\r\ufeff", "  ")), r"\s*[,;]\s*|\s+")


def _is_missing(cell: Column) -> Column:
    return F.lower(cell).isin(*_MISSING)


def _micros(cell: Column, unit: str, times: str) -> Column:
    """Whole microseconds one way; null where the measurement is missing (a word, or negative)."""
    value = cell.try_cast("double")
    measured = value.isNotNull() & ~F.isnan(value) & (value >= 0)
    return F.when(measured, F.round(value * (UNITS_US[unit] / TRIPS[times])).cast("bigint"))


def csv_columns(
    lines: DataFrame, headers: Mapping[str, str], wanted: Sequence[str], names: Mapping[str, str]
) -> DataFrame:
    """CSV lines as text columns named by each file's header; `_malformed` where they do not fit.
    `names` says which columns have other names there.

    One record is one line. Files may order their columns differently; columns that nobody
    wants are left out and wanted ones that a file lacks are null.
    """
    files_of: dict[str, list[str]] = {}
    for file, header in headers.items():
        files_of.setdefault(header, []).append(file)
    frames = []
    for header, files in files_of.items():
        present = header_names(header, names)
        fields = ", ".join(f"`_{n}` string" for n in range(len(present)))
        record = F.from_csv(
            "text",
            f"{fields}, _malformed string",
            {"columnNameOfCorruptRecord": "_malformed", "escape": '"'},
        )
        records = lines.where(
            F.col("file").isin(*files) & (F.trim("text") != "") & (F.col("text") != F.lit(header))
        )
        picked = [
            (F.col(f"_record._{present.index(name)}") if name in present else F.lit(None))
            .cast("string")
            .alias(name)
            for name in wanted
        ]
        # The parser is lenient with quotes: text after a closing one, a last one never closed.
        malformed = F.col("_record._malformed").isNotNull() | ~F.col("text").rlike(_CSV_RECORD)
        parsed = records.select(*LINE, record.alias("_record"))
        frames.append(parsed.select(*LINE, *picked, malformed.alias("_malformed")))
    return reduce(DataFrame.unionByName, frames)


def header_names(header: str, names: Mapping[str, str] | None = None) -> list[str]:
    """A header's column names, as `names` has them, ours to theirs: lower case, blanks and dots as
    underscores."""
    ours = {_plain_name(theirs): own for own, theirs in (names or {}).items()}
    plain = [_plain_name(name) for name in header.lstrip("\ufeff").rstrip("\r").split(",")]
    return [ours.get(name, name) for name in plain]


def _plain_name(name: str) -> str:
    return name.strip().strip('"').lower().replace(" ", "_").replace(".", "_")


def json_columns(lines: DataFrame, wanted: Sequence[str], names: Mapping[str, str]) -> DataFrame:
    """JSON Lines as text columns; a nested object stays JSON text."""
    fields = ", ".join(f"`{names.get(name, name)}` string" for name in wanted)
    record = F.from_json(
        "text", f"{fields}, _malformed string", {"columnNameOfCorruptRecord": "_malformed"}
    )
    said = lines.where(F.trim("text") != "").select(*LINE, record.alias("_record"))
    columns = [F.col(f"_record.`{names.get(name, name)}`").alias(name) for name in wanted]
    malformed = F.col("_record._malformed").isNotNull() | ~_is_one_object()
    return said.select(*LINE, *columns, malformed.alias("_malformed"))


def _is_one_object() -> Column:
    """Whether nothing follows the object of a line: the parser stops at the object's end."""
    bare = F.regexp_replace("text", _JSON_TEXT, "")
    opened, closed = (F.length(F.regexp_replace(bare, rf"[^{brace}]", "")) for brace in "{}")
    return (opened == closed) & bare.rlike(r"\}\s*$") & ~bare.rlike(r"\}\s*+\{")


def parquet_columns(rows: DataFrame, wanted: Sequence[str]) -> DataFrame:
    """Foreign Parquet rows as text columns; maps and structs become JSON text."""
    columns = []
    for name in wanted:
        if name not in rows.columns:
            columns.append(F.lit(None).cast("string").alias(name))
        elif rows.schema[name].dataType.typeName() in ("map", "struct"):
            columns.append(F.to_json(name).alias(name))
        else:
            columns.append(F.col(name).cast("string").alias(name))
    whole = F.to_json(F.struct(*[name for name in rows.columns if name not in ("_file", "_row")]))
    return rows.select(
        F.regexp_replace("_file", "^file:/+", "/").alias("file"),
        F.lit(0).cast("bigint").alias("block"),
        F.col("_row").alias("position"),
        whole.alias("text"),
        *columns,
        F.lit(False).alias("_malformed"),
    )


def quotes(records: DataFrame) -> DataFrame:
    """Daily quotes. Of rows with one date and symbol the first that breaks no other rule stays."""
    prices = ("open", "high", "low", "close")
    short = F.try_to_date("date", "d-MMM-yy")  # two digits of a year mean 1970 to 2069
    short = F.when(F.year(short) >= 2070, F.add_months(short, -1200)).otherwise(short)
    day = F.coalesce(*[F.try_to_date("date", pattern) for pattern in _DATES], short)
    typed = records.select(
        *[name for name in records.columns if name not in QUOTE_COLUMNS],
        day.alias("date"),
        F.trim("symbol").alias("symbol"),
        *[F.col(name).try_cast("double").alias(name) for name in (*prices, "adj_close")],
        F.col("volume").try_cast("double").cast("bigint").alias("volume"),
    )
    whole = (
        ~F.col("_malformed")
        & F.col("date").isNotNull()
        & (F.coalesce("symbol", F.lit("")) != "")
        & F.col("volume").isNotNull()
    )
    for name in prices:
        whole &= F.col(name).isNotNull() & ~F.isnan(F.coalesce(name, F.lit(0.0)))
    negative = F.least(*prices) < 0
    outside = (F.least("open", "close") < F.col("low")) | (
        F.greatest("open", "close") > F.col("high")
    )
    judged = typed.withColumn(
        "faults",
        reason(
            (~whole, "a field is missing or not of its type"),
            (whole & (F.greatest(*prices) == 0), "all prices are zero"),
            (whole & negative, "a price is negative"),
            (whole & (F.col("volume") < 0), "the volume is negative"),
            (whole & ~negative & outside, "open or close outside low..high"),
        ),
    )
    same_day = Window.partitionBy("date", "symbol").orderBy(F.length("faults"), *LINE[:3])
    named = F.col("date").isNotNull() & F.col("symbol").isNotNull()
    again = named & (F.row_number().over(same_day) > 1)
    return judged.withColumn("_again", again).withColumn(
        "faults",
        F.concat_ws(
            "; ",
            F.when(F.col("faults") != "", F.col("faults")),
            F.when(F.col("_again"), F.lit(_SAME_DAY)),
        ),
    )


def subscriptions(records: DataFrame) -> DataFrame:
    """Subscriptions; a row without an id is named after its place."""
    early = F.col("until_us") < F.coalesce("time_us", F.lit(0))
    judged = _judged(
        _identified(records, "subscription", "s"),
        SUBSCRIPTIONS,
        ("broker", "client", "filter"),
        (F.coalesce(early, F.lit(False)), "until_us is before time_us"),
    )
    wrong = F.concat(F.lit("filter does not parse: "), _complaints("filter"))
    said = F.nullif("faults", F.lit(""))
    parsed = judged.withColumn("faults", F.concat_ws("; ", said, wrong))
    return _unique(parsed, ("subscription",), _ID_TWICE)


@F.arrow_udf(TEXT)  # type: ignore[attr-defined, untyped-decorator]
def _complaints(texts: pa.Array) -> pa.Array:
    """Why each filter does not parse; null where it does. The parser is the brokers' own."""
    different = texts.dictionary_encode()
    said = [_complaint(text) for text in different.dictionary.to_pylist()]
    return pa.array(said, pa.string()).take(different.indices)


def _complaint(text: str) -> str | None:
    try:
        parse(text)
    except FilterError as error:
        return error.what.replace("; ", ", ")
    return None


def publications(records: DataFrame) -> DataFrame:
    """Publications; a row without an id is named after its place."""
    parsed = F.try_parse_json("attributes")
    content = F.try_variant_get(parsed, "$", "map<string,variant>")
    # The parser of variants does not see what follows the object.
    flat = F.col("attributes").rlike(_FLAT_OBJECT)
    said, bare = (
        F.regexp_replace(text, _JSON_TEXT, "") for text in (F.col("attributes"), F.to_json(parsed))
    )
    marks = [F.length(F.regexp_replace(text, r"[^{}\[\]:,]", "")) for text in (said, bare)]
    alone = content.isNotNull() & (flat | (said.rlike(r"\}\s*$") & (marks[0] == marks[1])))
    judged = _judged(
        _identified(records, "publication", "p"),
        PUBLICATIONS,
        ("broker", "publisher", "time_us"),
        (~F.coalesce(alone, F.lit(False)), "attributes are not a JSON object"),
    )
    return _unique(judged, ("publisher", "publication"), _ID_BEFORE)


BY_DAY = ("day", "network")
"""The folders of a table of traces."""


def dated(traces: DataFrame) -> DataFrame:
    """Traces with the day and the network whose folder they belong to."""
    day = F.date_format(F.timestamp_micros("time_us"), "yyyy-MM-dd")
    return traces.withColumns({"day": day, "network": F.col("trace_id")})


def traces(records: DataFrame) -> DataFrame:
    """Rows of broker traces."""
    known = F.coalesce(F.col("kind").isin(*KINDS), F.lit(False))
    return _judged(
        _timed(records),
        TRACES,
        ("trace_id", "broker", "time_us"),
        (~known, f"kind is none of {', '.join(KINDS)}"),
    )


def _unique(judged: DataFrame, key: Sequence[str], complaint: str) -> DataFrame:
    """Of good rows with one key the first stays."""
    same = Window.partitionBy(*key).orderBy(F.length("faults"), "file", "block", "position")
    again = (F.col("faults") == "") & (F.row_number().over(same) > 1)
    return judged.withColumn("_again", again).withColumn(
        "faults", F.when(F.col("_again"), F.lit(complaint)).otherwise(F.col("faults"))
    )


def _identified(records: DataFrame, name: str, prefix: str) -> DataFrame:
    hashed = F.concat(F.lit(prefix), F.hex(F.xxhash64("file", "block", "position")))
    stated = F.coalesce(F.nullif(F.col(name), F.lit("")), F.nullif(F.col("id"), F.lit("")))
    return _timed(records).withColumn(name, F.coalesce(stated, hashed))


def _timed(records: DataFrame) -> DataFrame:
    """`time_us` in whole microseconds, or from `time` in seconds; `until` likewise.

    What the file says is kept in `_said_time_us`.
    """
    timed = records
    for name in ("time", "until"):
        column = f"{name}_us"
        if column in records.columns:
            said, micros = F.col(column), F.col(column).try_cast("bigint")
            if name in records.columns:
                exact = F.col(name).try_cast("decimal(26,6)") * 1_000_000
                micros = F.when(said.isNotNull(), micros).otherwise(exact.try_cast("bigint"))
                said = F.coalesce(said, F.col(name))
            timed = timed.withColumn(f"_said_{column}", said).withColumn(column, micros)
    return timed


def _judged(
    records: DataFrame,
    schema: StructType,
    needed: Sequence[str],
    *more: tuple[Column, str],
) -> DataFrame:
    """Cast the columns and say what is wrong with each, one thing of each, and what `more` says."""
    whole = ~F.col("_malformed")
    faults = [F.when(F.col("_malformed"), F.lit("not a record of the file's format"))]
    typed = {}
    for field in schema.fields:
        name = field.name
        said = f"_said_{name}" if f"_said_{name}" in records.columns else name
        absent = F.coalesce(F.col(said).cast("string"), F.lit("")) == ""
        typed[name] = F.col(name).try_cast(field.dataType)
        fault = F.when(~whole, F.lit(None))
        fault = fault.when(absent, F.lit(f"{name} is missing" if name in needed else None))
        fault = fault.when(typed[name].isNull(), F.lit(f"{name} is not of its type"))
        if name in TIMES and schema is not TRACES:  # a simulation settles before time 0
            outside = ~typed[name].between(0, TIME_MAX_US)
            fault = fault.when(outside, F.lit(f"{name} is negative or too large"))
        faults.append(fault)
    faults += [F.when(whole & broken, F.lit(name)) for broken, name in more]
    return records.select(
        *LINE,
        *[column.alias(name) for name, column in typed.items()],
        F.concat_ws("; ", *faults).alias("faults"),
    )


def without_known(
    parsed: DataFrame, old: DataFrame, key: Sequence[str], complaint: str
) -> DataFrame:
    """Good rows whose key the table has already are bad. Keys: `key` is unique in `old`."""
    known = old.select(*key, F.lit(True).alias("_known"))
    again = (F.col("faults") == "") & F.col("_known").isNotNull()
    joined = parsed.join(known, on=list(key), how="left")
    return joined.withColumn(
        "faults", F.when(again, F.lit(complaint)).otherwise(F.col("faults"))
    ).drop("_known")


_ID_TWICE = "id is used twice"
_ID_BEFORE = "its publisher has used the id before"
_SAME_DAY = "duplicate of a date and symbol"

KEYS: dict[str, tuple[StructType, tuple[str, ...], str]] = {
    # kind: table, what is unique in it, and what is said of a row that repeats it ("": merged)
    "edges": (EDGES, ("follower", "followee"), ""),
    "latency": (LATENCY, (), ""),
    "quotes": (QUOTES, ("date", "symbol"), _SAME_DAY),
    "subscriptions": (SUBSCRIPTIONS, ("subscription",), _ID_TWICE),
    "publications": (PUBLICATIONS, ("publisher", "publication"), _ID_BEFORE),
    "traces": (TRACES, (), ""),
}

QUOTE_COLUMNS = ("date", "symbol", "open", "high", "low", "close", "adj_close", "volume")
SUBSCRIPTION_COLUMNS = ("id", "time", "until", *SUBSCRIPTIONS.names)
PUBLICATION_COLUMNS = ("id", "time", *PUBLICATIONS.names)

RECORDS: dict[
    str, tuple[Callable[[DataFrame], DataFrame], StructType, tuple[str, ...], tuple[str, ...]]
] = {
    # kind: parser, table, columns a file may have, columns it must have
    "quotes": (quotes, QUOTES, QUOTE_COLUMNS, (*QUOTE_COLUMNS[:6], "volume")),
    "subscriptions": (
        subscriptions,
        SUBSCRIPTIONS,
        SUBSCRIPTION_COLUMNS,
        ("broker", "client", "filter"),
    ),
    "publications": (
        publications,
        PUBLICATIONS,
        PUBLICATION_COLUMNS,
        ("broker", "publisher", "attributes"),
    ),
    "traces": (traces, TRACES, tuple(TRACES.names), ("trace_id", "kind", "time_us", "broker")),
}


def check_header(kind: str, names: Sequence[str], header: str, where: str) -> None:
    """A file whose header lacks what the kind needs is not what the user says it is."""
    missing = [name for name in RECORDS[kind][3] if name not in names]
    if missing:
        raise InputError(
            f"{header[:80]!r} is no header of {kind}: {', '.join(missing)} missing",
            where=where,
            remedy=f"name the columns {', '.join(RECORDS[kind][3])} in the first line",
        )
