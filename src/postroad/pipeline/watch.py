"""Measures of a live network from its traces, window by window, in stream and in batch.

Lines become events (`judged`, `events`), each once (`distinct`); a file with bad lines becomes one
event of no kind, and is read again to say what is wrong where (`faults`). Events become facts, one
for each table that an event counts in; facts with the same key add up (`totals`), in whatever order
and in however many batches they came. A table is a view of the totals. So a stream that adds each
batch to the totals of the windows still open ends with what one batch over all files gives.

A window is closed, and its rows are too late, when another has been seen that ends `watermark`
after it. An event's time for Spark is the end of its window: a window closes as a whole.

Delays are counted in buckets whose bounds grow by a constant factor, so that percentiles of
any union of batches are within `DELAY_ERROR` of the exact ones (Masson, Rim and Lee, "DDSketch",
VLDB 2019). Bytes and messages of several publications count once, with their first part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postroad.pipeline.ingest import reason
from postroad.pipeline.schemas import (
    LONG,
    TRACES,
    WATCH_ADVICE,
    WATCH_BROKERS,
    WATCH_CLASSES,
    WATCH_FACTS,
    WATCH_LINKS,
    WATCH_PUBLISHERS,
    WATCH_SCHEMES,
    WATCH_STOPS,
    conform,
)
from postroad.traces.schema import KINDS, REQUIRED

DELAY_ERROR = 0.01
"""The relative error of percentiles of delays."""
ADVISED_AFTER = 3
"""Windows in a row in which a change must have been better before it is advised,"""
ADVISED_SHARE = 0.1
"""and the share of all messages that it must save."""
KEY = ("trace_id", "broker", "life", "sequence")
WINDOW = ("window_us", "trace_id")
_FILTERING = ("subscription_forwarding", "advertisement_forwarding", "fbr")
TIME_MAX_US = 2**60
_GROWTH = (1 + DELAY_ERROR) / (1 - DELAY_ERROR)
_WHOLE = tuple(field.name for field in TRACES.fields if field.dataType == LONG)
_TEXTS = ("trace_id", "broker", "kind", "peer", "publisher", "attributes", "reason", "detail")
_NEEDED = (*_TEXTS, *_WHOLE)
_COUNTS = (
    "publications", "sends", "receives", "deliveries", "stops",
    "bytes_published", "bytes_sent", "bytes_received", "arrivals", "delay_us",
)  # fmt: skip
_FACT_KEY = tuple(
    name for name in WATCH_FACTS.names if name not in (*_COUNTS, "queue_max", "batch")
)


def judged(lines: DataFrame) -> DataFrame:
    """Lines that are not blank, with the columns that are needed, and whether they are `good`.

    This is on every row's way, so it only says whether; `faults` says why not.
    """
    said = _parsed(lines, {name: "bigint" if name in _WHOLE else "string" for name in _NEEDED})
    complete = [F.col(f"_said.{name}").isNotNull() for name in REQUIRED]
    known = F.col("_said.kind").isin(*KINDS)
    times = F.col("_said.time_us").between(-TIME_MAX_US, TIME_MAX_US)
    good = reduce(and_, [F.col("_typed"), *complete, known, times])
    return said.select(*lines.columns, "_said.*", F.coalesce(good, F.lit(False)).alias("good"))


def _parsed(lines: DataFrame, types: Mapping[str, str]) -> DataFrame:
    """Lines with `_said`, the columns of a line that is one JSON object, else null; and whether
    each value is of its type.

    Spark's parser stops at the end of an object: the line is set between others, so that text
    after its object is noticed. The generator keeps Spark from parsing once for every column.
    """
    fields = ", ".join(f"`{name}` {kind}" for name, kind in types.items())
    framed = F.concat(F.lit('{"said":['), F.col("text"), F.lit('],"end":1}'))
    record = F.from_json(
        framed,
        f"said array<struct<{fields}>>, end string, _bad string",
        {"columnNameOfCorruptRecord": "_bad"},
    )
    parsed = lines.where(F.trim("text") != "").withColumn("_record", record)
    one = F.col("_record.end").isNotNull() & (F.size("_record.said") == 1)
    typed = F.col("_record._bad").isNull()
    return parsed.select(
        *lines.columns,
        typed.alias("_typed"),
        F.explode_outer(F.when(one, F.col("_record.said"))).alias("_said"),
    )


def faults(lines: DataFrame) -> DataFrame:
    """The lines that are not good with the reasons, as `ingest.bad` takes them."""
    bad = judged(lines).where(~F.col("good")).select(*lines.columns)
    whole = F.col("_said").isNotNull()
    values = {name: F.col(f"_said.{name}") for name in _NEEDED}
    rules = [(~whole, "not one JSON object")]
    rules += [(whole & values[name].isNull(), f"{name} is missing") for name in REQUIRED]
    rules += [
        (~values[name].rlike(r"^-?\d{1,19}$"), f"{name} is not a whole number") for name in _WHOLE
    ]
    rules += [
        (~values["kind"].isin(*KINDS), "kind is unknown"),
        (
            ~values["time_us"].try_cast("bigint").between(-TIME_MAX_US, TIME_MAX_US),
            "time_us is too large",
        ),
    ]
    said = _parsed(bad, dict.fromkeys(_NEEDED, "string"))
    why = F.coalesce(F.nullif(reason(*rules), F.lit("")), F.lit("a value is not of its type"))
    return said.select(*lines.columns, why.alias("faults"))


def events(judged: DataFrame, window_us: int) -> DataFrame:
    """Good rows with their windows, and of each what its kind counts by.

    What a simulation did before its network had settled has times below 0 and is left out, but
    for the starts of its brokers, which say the scheme. Of a file with bad lines there is an event
    without a kind and a time, so that it is never late, with the file's name as `trace_id`.
    """
    good = F.col("good")
    kind = F.when(good, F.col("kind"))
    time_us = F.greatest("time_us", F.lit(0))
    start_us = F.when(good, time_us - time_us % window_us)
    delay_us = F.when(kind == "deliver", F.col("time_us") - F.col("published_us"))
    place = F.ceil(F.log(delay_us.cast("double")) / math.log(_GROWTH))
    counted = (F.col("time_us") >= 0) | (kind == "start")
    key = {"trace_id": F.col("file"), "broker": F.lit(""), "life": F.lit(0), "sequence": F.lit(0)}
    return judged.where(~good | counted).select(
        *[F.when(good, F.col(name)).otherwise(bad).alias(name) for name, bad in key.items()],
        kind.alias("kind"),
        "peer",
        "publisher",
        start_us.alias("window_us"),
        F.timestamp_micros(start_us + window_us).alias("until"),
        F.when(kind == "publish", F.get_json_object("attributes", "$.class")).alias("class"),
        F.when(kind == "start", F.get_json_object("detail", "$.scheme")).alias("scheme"),
        F.when(kind == "stop", F.coalesce("reason", F.lit(""))).alias("reason"),
        F.coalesce("bytes", F.lit(0)).alias("bytes"),
        F.when(kind == "send", F.col("queue")).alias("queue_max"),
        (F.coalesce("part", F.lit(0)) == 0).alias("first"),
        F.coalesce(delay_us, F.lit(0)).alias("delay_us"),
        F.when(delay_us > 0, place).when(delay_us <= 0, -1).cast("bigint").alias("bucket"),
    )


def distinct(events: DataFrame, watermark_us: int) -> DataFrame:
    """Each event once. In a stream what is too late is dropped, and keys are kept until then."""
    timed = events.withWatermark("until", f"{watermark_us} microseconds")
    return timed.dropDuplicates([*KEY, "until"])


def facts(events: DataFrame, batch: int) -> DataFrame:
    """What each event adds to each table. The event's own broker always counts it."""
    kind, mine = F.col("kind"), {name: F.col(name) for name in events.columns}
    broker, peer, window = mine["broker"], mine["peer"], mine["window_us"]
    carried = kind.isin("publish", "deliver", "receive") & mine["publisher"].isNotNull()
    views = F.array(
        F.when(
            kind.isNotNull(),
            _view(
                "broker",
                window_us=window,
                broker=broker,
                life=mine["life"],
                bucket=mine["bucket"],
                reason=mine["reason"],
            ),
        ).otherwise(_view("file")),
        F.when(
            (kind == "send") & peer.isNotNull(),
            _view("link", window_us=window, broker=broker, peer=peer),
        ).when(
            (kind == "receive") & peer.isNotNull(),
            _view("link", window_us=window, broker=peer, peer=broker),
        ),
        F.when(kind == "publish", _view("class", window_us=window, **{"class": mine["class"]})),
        F.when(
            carried,
            _view("publisher", window_us=window, broker=broker, publisher=mine["publisher"]),
        ),
        F.when(
            kind == "start",
            _view("start", broker=broker, life=mine["life"], scheme=mine["scheme"]),
        ),
    )
    message = {"sends": (kind == "send") & mine["first"]}
    message["receives"] = (kind == "receive") & mine["first"]
    ones = {
        "publications": kind == "publish",
        **message,
        "deliveries": kind == "deliver",
        "stops": kind == "stop",
        "arrivals": kind == "receive",  # of publications, not of messages
    }
    counted = {name: F.when(condition, 1).otherwise(0) for name, condition in ones.items()}
    for name, condition in (("published", ones["publications"]), ("sent", message["sends"])):
        counted[f"bytes_{name}"] = F.when(condition, mine["bytes"]).otherwise(0)
    counted["bytes_received"] = F.when(message["receives"], mine["bytes"]).otherwise(0)
    counted["delay_us"] = mine["delay_us"]
    added = events.select(
        "trace_id",
        F.explode(views).alias("_view"),
        *[column.cast("bigint").alias(name) for name, column in counted.items()],
        "queue_max",
        F.lit(batch).cast("bigint").alias("batch"),
    ).where(F.col("_view").isNotNull())
    return added.select("_view.*", *[name for name in added.columns if name != "_view"])


def _view(name: str, **columns: Column) -> Column:
    """The key of a fact: what its table does not know is null."""
    fields = [F.lit(name).alias("view")]
    for field in WATCH_FACTS.fields:
        if field.name in _FACT_KEY and field.name not in ("view", "trace_id"):
            value = columns.get(field.name, F.lit(None)).cast(field.dataType)
            fields.append(value.alias(field.name))
    return F.struct(*fields)


def totals(facts: DataFrame) -> DataFrame:
    """Facts with the same key as one. `batch` is the last that changed it."""
    return conform(
        facts.groupBy(*_FACT_KEY).agg(
            *[F.sum(name).alias(name) for name in _COUNTS],
            F.max("queue_max").alias("queue_max"),
            F.max("batch").alias("batch"),
        ),
        WATCH_FACTS,
    )


def still_open(totals: DataFrame, watermark_us: int, batch: int) -> DataFrame:
    """What `batch` may add to, of the totals before it; and the starts, which say the scheme.

    Spark drops late rows by the watermark of two batches before, so later windows do not count.
    """
    seen = F.when(F.col("batch") < batch - 1, F.col("window_us"))
    last = F.broadcast(totals.agg(F.max(seen).alias("_last")))
    unclosed = F.col("_last").isNull() | (F.col("window_us") > F.col("_last") - watermark_us)
    is_open = (F.col("view") == "start") | ((F.col("view") != "file") & unclosed)
    kept = totals.crossJoin(last).where(is_open)
    return kept.select(*WATCH_FACTS.names)


def bad_files(totals: DataFrame, batch: int) -> DataFrame:
    """The files of a batch that have bad lines: `trace_id`."""
    return totals.where((F.col("view") == "file") & (F.col("batch") == batch)).select("trace_id")


def brokers(totals: DataFrame) -> DataFrame:
    """Per window and broker. Of several lives in one window the last one's scheme is told."""
    own = _with_scheme(totals)
    scheme = F.max_by("scheme", "life").alias("scheme")
    return _conform(_measured(own, ("window_us", "trace_id", "broker"), scheme), WATCH_BROKERS)


def schemes(totals: DataFrame) -> DataFrame:
    """Per window and scheme; null where no start of the broker was seen."""
    own = _with_scheme(totals)
    count = F.countDistinct("broker").alias("brokers")
    return _conform(_measured(own, ("window_us", "trace_id", "scheme"), count), WATCH_SCHEMES)


def _with_scheme(totals: DataFrame) -> DataFrame:
    """What brokers count, with the scheme of their lives; a start that comes later changes it."""
    life = ["trace_id", "broker", "life"]
    starts = (
        totals.where(F.col("view") == "start")
        .groupBy(*life)
        .agg(F.max("scheme").alias("scheme"), F.max("batch").alias("_started"))
    )
    own = totals.where(F.col("view") == "broker").drop("scheme")
    joined = own.join(F.broadcast(starts), on=life, how="left")
    return joined.withColumn("batch", F.greatest("batch", "_started"))


def _measured(own: DataFrame, key: Sequence[str], more: Column) -> DataFrame:
    delay_us = F.when(F.col("bucket") < 0, F.lit(0.0)).otherwise(
        F.pow(F.lit(_GROWTH), F.col("bucket")) * (2 / (_GROWTH + 1))
    )
    shares = (0.5, 0.9, 0.99)
    delays = F.sum(F.when(F.col("bucket").isNotNull(), F.col("deliveries")))
    measured = own.groupBy(*key).agg(
        *[F.sum(name).alias(name) for name in _COUNTS],
        more,
        (F.sum("delay_us") / delays).alias("delay_us_mean"),
        F.percentile(delay_us, F.array(*map(F.lit, shares)), F.col("deliveries")).alias("_spread"),
        F.max("batch").alias("batch"),
    )
    return measured.withColumns(
        {
            f"delay_us_p{round(share * 100)}": F.get("_spread", F.lit(place))
            for place, share in enumerate(shares)
        }
    )


def stops(totals: DataFrame) -> DataFrame:
    """Per window, broker and reason: publications that went no further."""
    stopped = totals.where((F.col("view") == "broker") & F.col("reason").isNotNull())
    return _conform(_added(stopped, WATCH_STOPS), WATCH_STOPS)


def links(totals: DataFrame) -> DataFrame:
    """Per window and direction of a link: what its sender sent and its receiver received."""
    own = totals.where(F.col("view") == "link")
    named = own.withColumnsRenamed({"broker": "sender", "peer": "receiver"})
    return _conform(_added(named, WATCH_LINKS), WATCH_LINKS)


def classes(totals: DataFrame) -> DataFrame:
    """Per window and class (of live brokers, the topic): what was published."""
    own = totals.where(F.col("view") == "class").withColumnRenamed("bytes_published", "bytes")
    return _conform(_added(own, WATCH_CLASSES), WATCH_CLASSES)


def publishers(totals: DataFrame) -> DataFrame:
    """Per window, publisher and broker: what it published there, and what of it arrived, from
    other brokers (`arrivals`) and at subscribers (`deliveries`).

    Home is where it published most in the window; null if nothing.
    """
    own = totals.where(F.col("view") == "publisher").withColumnRenamed("bytes_published", "bytes")
    everywhere = Window.partitionBy("window_us", "trace_id", "publisher")
    published = F.when(F.col("publications") > 0, F.struct("publications", "broker"))
    homed = _added(own, WATCH_PUBLISHERS).withColumn("home", F.max(published).over(everywhere))
    return _conform(homed.withColumn("home", F.col("home.broker")), WATCH_PUBLISHERS)


def advice(totals: DataFrame) -> DataFrame:
    """What would have cost fewer messages, in the last `ADVISED_AFTER` windows with publications.

    For networks that filter on a tree. What is known is how many publications of a publisher
    arrived at each broker, and how many deliveries there were, not which: hence two bounds of a
    saving. It is advised if even the lower one was above 0 in each of the windows, for the same
    change, and is in all above the messages that the change takes and a share of those sent.
    """
    starts = totals.where((F.col("view") == "start") & F.col("scheme").isNotNull())
    networks = starts.groupBy("trace_id").agg(
        F.max("scheme").alias("scheme"), F.countDistinct("broker").alias("_brokers")
    )
    filtering = F.broadcast(networks.where(F.col("scheme").isin(*_FILTERING)))
    own = publishers(totals).where(F.col("home").isNotNull())
    own = own.join(filtering, on="trace_id", how="inner")
    changes = _moves(own, totals).unionByName(_switches(own))
    subject = ("trace_id", "action", "publisher")
    # Windows in a row with the same change have the same difference of these two.
    turn = F.row_number().over(Window.partitionBy(*subject).orderBy("window_us"))
    same = Window.partitionBy(*subject, "now", "instead").orderBy("window_us")
    turn -= F.row_number().over(same)
    lasting = Window.partitionBy(*subject, "now", "instead", "_turn").orderBy("window_us")
    recent = lasting.rowsBetween(1 - ADVISED_AFTER, 0)
    tried = changes.withColumn("_turn", turn).withColumns(
        {
            "windows": F.count(F.lit(1)).over(recent),
            "_least": F.min("saving_low").over(recent),
            "batch": F.max("batch").over(recent),
            **{
                name: F.sum(name).over(recent) for name in ("messages", "saving_low", "saving_high")
            },
        }
    )
    worth = F.coalesce("change_messages", F.lit(0)) + F.col("messages") * ADVISED_SHARE
    lasted = (F.col("windows") == ADVISED_AFTER) & (F.col("_least") > 0)
    advised = tried.withColumn("advised", lasted & (F.col("saving_low") > worth))
    return _conform(advised, WATCH_ADVICE)


def _moves(own: DataFrame, totals: DataFrame) -> DataFrame:
    """A publisher goes to the neighbour of its broker where most of its publications arrive.

    Then only the link between the two is crossed the other way, by publications that somebody
    on this side wants: no more than arrive at other neighbours or are delivered here.
    """
    joined = totals.where(F.col("view") == "link").select(
        "trace_id", F.col("broker").alias("home"), F.col("peer").alias("broker")
    )
    near = joined.distinct().withColumn("_near", F.lit(True))
    here = F.col("broker") == F.col("home")
    arrived = F.when(F.col("_near") & (F.col("arrivals") > 0), F.struct("arrivals", "broker"))
    one = own.join(F.broadcast(near), on=["trace_id", "home", "broker"], how="left")
    each = one.groupBy(*WINDOW, "publisher", F.col("home").alias("now")).agg(
        F.sum("publications").alias("_publications"),
        F.sum(F.when(here, F.col("publications")).otherwise(0)).alias("_here"),
        F.sum(F.when(here, F.col("deliveries")).otherwise(0)).alias("_local"),
        F.sum("arrivals").alias("messages"),
        F.sort_array(F.collect_list(arrived), asc=False).alias("_near"),
        F.max("_brokers").alias("_brokers"),
        F.max("batch").alias("batch"),
    )
    each = each.where((F.size("_near") > 0) & (F.col("_here") == F.col("_publications")))
    there = F.col("_near")[0]["arrivals"]
    others = F.aggregate("_near", F.lit(0).cast("bigint"), lambda sum, n: sum + n["arrivals"])
    local = F.least("_local", "_publications")
    back_most = F.least(F.col("_publications"), local + others - there)
    second = F.coalesce(F.get("_near", F.lit(1))["arrivals"], F.lit(0))
    back_least = F.greatest(second, F.least(local, F.lit(1)))
    return each.select(
        *WINDOW,
        F.lit("move").alias("action"),
        "publisher",
        "now",
        F.col("_near")[0]["broker"].alias("instead"),
        "messages",
        (there - back_most).alias("saving_low"),
        (there - back_least).alias("saving_high"),
        (2 * (F.col("_brokers") - 1)).alias("change_messages"),
        "batch",
    )


def _switches(own: DataFrame) -> DataFrame:
    """Unicast instead: a message to each other broker that delivers, and none to those between."""
    away = F.col("broker") != F.col("home")
    served = F.when(away, F.least("arrivals", "deliveries")).otherwise(0)
    return own.groupBy(*WINDOW, F.col("scheme").alias("now")).agg(
        F.lit("switch").alias("action"),
        F.lit(None).cast("string").alias("publisher"),
        F.lit("unicast").alias("instead"),
        F.sum("arrivals").alias("messages"),
        (F.sum("arrivals") - F.sum(served)).alias("saving_low"),
        (F.sum("arrivals") - F.sum(F.least(served, F.lit(1)))).alias("saving_high"),
        F.lit(None).cast("bigint").alias("change_messages"),
        F.max("batch").alias("batch"),
    )


def _added(totals: DataFrame, schema: StructType) -> DataFrame:
    """Totals added up by the columns of a table that are not counts."""
    counts = (*_COUNTS, "bytes", "queue_max", "batch")
    key = [name for name in schema.names if name in totals.columns and name not in counts]
    sums = [
        F.sum(name).alias(name) for name in schema.names if name in counts and name != "queue_max"
    ]
    return totals.groupBy(*key).agg(
        *sums, F.max("queue_max").alias("queue_max"), F.max("batch").alias("batch")
    )


def _conform(frame: DataFrame, schema: StructType) -> DataFrame:
    return conform(frame, StructType([*schema.fields, WATCH_FACTS["batch"]]))


def latest(table: DataFrame, key: Sequence[str], batch: int | None = None) -> DataFrame:
    """The rows that hold: all of a key are of its last batch. Or those that `batch` changed."""
    last = F.max("batch").over(Window.partitionBy(*key))
    wanted = F.col("batch") if batch is None else F.lit(batch)
    return table.withColumn("_last", last).where(F.col("_last") == wanted).drop("_last")


Stage = Callable[[DataFrame], DataFrame]
TABLES: dict[str, tuple[Stage, StructType, tuple[str, ...]]] = {
    # name: stage, columns, and the key of which a batch replaces all rows
    "watch_brokers": (brokers, WATCH_BROKERS, (*WINDOW, "broker")),
    "watch_schemes": (schemes, WATCH_SCHEMES, WINDOW),
    "watch_stops": (stops, WATCH_STOPS, (*WINDOW, "broker", "reason")),
    "watch_links": (links, WATCH_LINKS, (*WINDOW, "sender", "receiver")),
    "watch_classes": (classes, WATCH_CLASSES, (*WINDOW, "class")),
    "watch_publishers": (publishers, WATCH_PUBLISHERS, (*WINDOW, "publisher")),
    "watch_advice": (advice, WATCH_ADVICE, (*WINDOW, "action", "publisher")),
}
