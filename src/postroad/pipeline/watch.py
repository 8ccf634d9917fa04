"""Measures of a live network from its traces, window by window, in stream and in batch.

Lines become events (`judged`, `events`). Events become facts, one for each table that an event
counts in; facts with the same key add up (`totals`), in whatever order and in however many batches
they came. A table is a view of the totals. So a stream that adds each batch to the totals of the
windows still open ends with what one batch over all files gives. A file with bad lines is read
again, to say what is wrong where (`faults`).

Each event counts once. Brokers number their rows, so what has been seen of a broker is a few ranges
of numbers. Facts carry what shows whether the rows of a batch are all of a range, each once: how
many, their sum and a checksum (`Order`). Only if not, rows are looked at one by one (`distinct`).

A window is closed, and its rows are too late, when an earlier batch had a row whose window is
`watermark` after it.

Delays are counted in buckets whose bounds grow by a constant factor, so that percentiles of
any union of batches are within `DELAY_ERROR` of the exact ones (Masson, Rim and Lee, "DDSketch",
VLDB 2019). Bytes and messages of several publications count once, with their first part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from postroad.pipeline import alternatives as otherwise
from postroad.pipeline.ingest import reason
from postroad.pipeline.schemas import (
    LONG,
    TRACES,
    WATCH_ADVICE,
    WATCH_ALTERNATIVES,
    WATCH_BROKERS,
    WATCH_CLASSES,
    WATCH_DRIFT,
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
SAMPLE = 1_000
"""About so many publications of a window are followed one by one, to say what else they would
have cost; of more, a half, a quarter and so on, by their hash."""
SUBSCRIPTIONS_MAX = 2_000
"""Schemes that plan by the subscriptions are priced for so many different ones at most."""
ADVISED_AFTER = 3
"""Windows in a row in which a change must have been better before it is advised,"""
ADVISED_SHARE = 0.1
"""and the share of the messages that it must save."""
KEY = ("trace_id", "broker", "life", "sequence")
LIFE = ("trace_id", "broker", "life")
WINDOW = ("window_us", "trace_id")
TIME_MAX_US = 2**60
_GROWTH = (1 + DELAY_ERROR) / (1 - DELAY_ERROR)
_PRIME = 2**31 - 1
_Z95 = 1.96
_WHOLE = tuple(field.name for field in TRACES.fields if field.dataType == LONG)
_TEXTS = (
    "trace_id", "broker", "kind", "peer", "publisher", "publication", "subscription", "filter",
    "attributes", "reason", "detail",
)  # fmt: skip
_NEEDED = (*_TEXTS, *_WHOLE)
_COUNTS = (
    "publications", "sends", "receives", "deliveries", "stops",
    "bytes_published", "bytes_sent", "bytes_received", "arrivals", "delay_us",
)  # fmt: skip
_ORDER_SUMS = ("order_count", "order_sum", "order_check")
_ORDER = (*_ORDER_SUMS, "order_low", "order_high")
OF_BATCH = (
    "view", "window_us", "trace_id", "broker", "life", "publication", "detail", "publications",
    *_ORDER,
)  # fmt: skip
"""The columns of totals that tell of a batch as a whole."""
_FACT_KEY = tuple(
    name
    for name in WATCH_FACTS.names
    if name not in (*_COUNTS, *_ORDER, "queue_max", "level", "batch")
)
VERSION = 3
"""Of what a stopped watch leaves for the next."""
Life = tuple[str, str, int]
Range = tuple[int, int]


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
    """Rows with their windows, and of each what its kind counts by; bad ones have no `kind`.

    What a simulation did before its network had settled has times below 0 and belongs to no window.
    """
    good = F.col("good")
    kind = F.when(good, F.col("kind"))
    time_us, made_us = F.col("time_us"), F.coalesce("published_us", "time_us")
    start_us = F.when(good & (time_us >= 0), time_us - time_us % window_us)
    made_us = F.when(good & (made_us >= 0), made_us - made_us % window_us)
    delay_us = F.when(kind == "deliver", F.col("time_us") - F.col("published_us"))
    place = F.ceil(F.log(delay_us.cast("double")) / math.log(_GROWTH))
    sequence = F.pmod("sequence", F.lit(_PRIME))
    return judged.select(
        "file",
        *[F.when(good, F.col(name)).alias(name) for name in KEY],
        kind.alias("kind"),
        "peer",
        "publisher",
        F.coalesce("publication", "subscription").alias("publication"),
        start_us.alias("window_us"),
        made_us.alias("made_us"),
        F.when(kind == "publish", F.get_json_object("attributes", "$.class")).alias("class"),
        F.when(kind == "start", F.get_json_object("detail", "$.scheme")).alias("scheme"),
        F.when(kind == "start", F.col("detail"))
        .when(kind == "publish", F.col("attributes"))
        .when(kind == "subscribe", F.col("filter"))
        .alias("detail"),
        F.when(kind == "start", time_us).alias("started_us"),
        F.when(kind == "stop", F.coalesce("reason", F.lit(""))).alias("reason"),
        F.coalesce("bytes", F.lit(0)).alias("bytes"),
        F.when(kind == "send", F.col("queue")).alias("queue_max"),
        (F.coalesce("part", F.lit(0)) == 0).alias("first"),
        F.coalesce(delay_us, F.lit(0)).alias("delay_us"),
        F.when(delay_us > 0, place).when(delay_us <= 0, -1).cast("bigint").alias("bucket"),
        (sequence * sequence % _PRIME * sequence % _PRIME).alias("order_check"),
    )


def distinct(events: DataFrame, seen: DataFrame) -> DataFrame:
    """Each event once, and none of those that were seen before. `seen` has the ranges (`ranges`:
    from, to) of each life of a broker, once."""
    known = events.join(F.broadcast(seen), on=list(LIFE), how="left")
    again = F.exists("ranges", lambda one: F.col("sequence").between(one["from"], one["to"]))
    fresh = known.where(~F.coalesce(again, F.lit(False))).drop("ranges")
    good = fresh.where(F.col("kind").isNotNull()).dropDuplicates(list(KEY))
    return good.unionByName(fresh.where(F.col("kind").isNull()))


def ranges(events: DataFrame) -> DataFrame:
    """The ranges of sequence numbers of distinct events: life, `from`, `to`."""
    number = F.row_number().over(Window.partitionBy(*LIFE).orderBy("sequence"))
    good = events.where(F.col("kind").isNotNull()).select(*LIFE, "sequence")
    runs = good.withColumn("_run", F.col("sequence") - number).groupBy(*LIFE, "_run")
    return runs.agg(F.min("sequence").alias("from"), F.max("sequence").alias("to")).drop("_run")


def facts(events: DataFrame, level: int = 0) -> DataFrame:
    """What events add to each table. The event's own broker always counts it.

    Publications are followed one by one, by window of publication: of 2 ** `level` one. Nothing
    here differs from batch to batch, so that Spark compiles it once."""
    alike = _alike(events, level)
    kind, mine = F.col("kind"), {name: F.col(name) for name in alike.columns}
    broker, peer, window = mine["broker"], mine["peer"], mine["window_us"]
    counted = kind.isNotNull() & window.isNotNull()
    carried = counted & kind.isin("publish", "deliver", "receive")
    carried &= mine["publisher"].isNotNull()
    one = {name: mine[name] for name in ("publisher", "publication")}
    views = F.array(
        F.when(
            counted,
            _view(
                "broker",
                window_us=window,
                broker=broker,
                life=mine["life"],
                bucket=mine["bucket"],
                reason=mine["reason"],
            ),
        )
        .when(kind.isNotNull(), _view("before", broker=broker, life=mine["life"]))
        .otherwise(_view("file", detail=mine["file"])),
        F.when(
            counted & (kind == "send") & peer.isNotNull(),
            _view("link", window_us=window, broker=broker, peer=peer),
        ).when(
            counted & (kind == "receive") & peer.isNotNull(),
            _view("link", window_us=window, broker=peer, peer=broker),
        ),
        F.when(
            counted & (kind == "publish"),
            _view("class", window_us=window, **{"class": mine["class"]}),
        ).when(
            kind == "start",
            _view("start", broker=broker, life=mine["life"], scheme=mine["scheme"]),
        ),
        F.when(
            carried,
            _view("publisher", window_us=window, broker=broker, publisher=mine["publisher"]),
        ).when(kind == "start", _view("network", life=mine["started_us"], detail=mine["detail"])),
        F.when(
            mine["made_us"].isNotNull(),
            _view(
                "publication",
                window_us=mine["made_us"],
                broker=F.when(kind != "send", broker),
                detail=F.when(kind == "publish", mine["detail"]),
                **one,
            ),
        ).when(
            kind.isin("subscribe", "unsubscribe"),
            _view(
                "subscription",
                broker=broker,
                life=mine["life"],
                publication=mine["publication"],
                detail=mine["detail"],
            ),
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
    many = mine["order_count"]
    numbers = {name: F.when(condition, many).otherwise(0) for name, condition in ones.items()}
    for name, condition in (("published", ones["publications"]), ("sent", message["sends"])):
        numbers[f"bytes_{name}"] = F.when(condition, mine["bytes"]).otherwise(0)
    numbers["bytes_received"] = F.when(message["receives"], mine["bytes"]).otherwise(0)
    added = alike.select(
        "trace_id",
        F.explode(views).alias("_view"),
        *[column.cast("bigint").alias(name) for name, column in numbers.items()],
        "delay_us",
        *_ORDER,
        "queue_max",
        F.lit(level).cast("bigint").alias("level"),
        F.lit(-1).cast("bigint").alias("batch"),
    ).where(F.col("_view").isNotNull())
    return added.select("_view.*", *[name for name in added.columns if name != "_view"])


def _alike(events: DataFrame, level: int) -> DataFrame:
    """Events between which no table tells a difference, as one: the tables then see a tenth of them
    or fewer. Only publications that are followed keep their name, and their window as `made_us`."""
    kind = F.col("kind")
    followed = kind.isin("publish", "deliver", "send") & F.col("made_us").isNotNull()
    followed &= F.col("publisher").isNotNull() & F.col("publication").isNotNull()
    followed &= _hash() % 2**level == 0
    subscribes = kind.isin("subscribe", "unsubscribe")
    named = events.withColumns(
        {
            "trace_id": F.coalesce("trace_id", F.lit("")),
            "made_us": F.when(followed, F.col("made_us")),
            "publication": F.when(followed | subscribes, F.col("publication")),
            "detail": F.when(followed | (kind != "publish"), F.col("detail")),
            "file": F.when(kind.isNull(), F.col("file")),
        }
    )
    numbers = ("sequence", "bytes", "queue_max", "delay_us", "order_check")
    return named.groupBy(*[name for name in named.columns if name not in numbers]).agg(
        F.sum("bytes").alias("bytes"),
        F.max("queue_max").alias("queue_max"),
        F.sum("delay_us").alias("delay_us"),
        F.count(F.lit(1)).alias("order_count"),
        F.coalesce(F.sum("sequence"), F.lit(0)).alias("order_sum"),
        F.coalesce(F.sum("order_check"), F.lit(0)).alias("order_check"),
        F.min("sequence").alias("order_low"),
        F.max("sequence").alias("order_high"),
    )


def _hash() -> Column:
    """Of a publication, not below 0."""
    return F.shiftrightunsigned(F.xxhash64("publisher", "publication"), 1)


def _view(name: str | Column, **columns: Column) -> Column:
    """The key of a fact: what its table does not know is null."""
    fields = [(F.lit(name) if isinstance(name, str) else name).alias("view")]
    for field in WATCH_FACTS.fields:
        if field.name in _FACT_KEY and field.name not in ("view", "trace_id"):
            value = columns.get(field.name, F.lit(None)).cast(field.dataType)
            fields.append(value.alias(field.name))
    return F.struct(*fields)


def totals(facts: DataFrame) -> DataFrame:
    """Facts with the same key as one. `batch` is the last that changed it."""
    sums = (*_COUNTS, *_ORDER_SUMS)
    greatest = ("order_high", "queue_max", "level", "batch")
    return conform(
        facts.groupBy(*_FACT_KEY).agg(
            *[F.sum(name).alias(name) for name in sums],
            F.min("order_low").alias("order_low"),
            *[F.max(name).alias(name) for name in greatest],
        ),
        WATCH_FACTS,
    )


def as_of(totals: DataFrame, batch: int, closed_us: int | None) -> DataFrame:
    """The totals that `batch` has left: those that it has added to are its own, unless their window
    was closed; `closed_us` was the last that is."""
    added = F.col("order_count") > 0
    own = totals.withColumn("batch", F.when(added, F.lit(batch)).otherwise(F.col("batch")))
    if closed_us is None:
        return own
    return own.where(~added | F.col("window_us").isNull() | (F.col("window_us") > closed_us))


def still_open(totals: DataFrame, closed_us: int | None, level: int) -> DataFrame:
    """What the next batch may add to, of the totals before it, and the starts, which say the
    scheme. `closed_us` is the last window that is closed; of 2 ** `level` publications one is still
    followed."""
    lasting = F.col("view").isin("start", "network")
    is_open = F.col("window_us").isNotNull()
    if closed_us is not None:
        is_open &= F.col("window_us") > closed_us
    followed = F.col("view") == "publication"
    kept = totals.where((lasting | is_open) & (~followed | (_hash() % 2**level == 0)))
    raised = F.when(followed, F.greatest("level", F.lit(level))).otherwise(F.col("level"))
    return _of_no_batch(kept.withColumn("level", raised))


def just_closed(totals: DataFrame, closed_us: int | None, window_us: int) -> DataFrame:
    """The last windows that are closed, which show what has lasted."""
    last = F.lit(-1 if closed_us is None else closed_us)
    return _of_no_batch(
        totals.where(F.col("window_us").between(last - (ADVISED_AFTER - 1) * window_us, last))
    )


def _of_no_batch(totals: DataFrame) -> DataFrame:
    """Without what tells of the rows of one batch."""
    nothing = {name: F.lit(0).cast("bigint") for name in _ORDER_SUMS}
    nothing |= {name: F.lit(None).cast("bigint") for name in ("order_low", "order_high")}
    return totals.withColumns(nothing).select(*WATCH_FACTS.names)


@dataclass(frozen=True)
class Order:
    """What shows of rows of a life whether they are all of a range, each once."""

    count: int
    sum: int
    check: int
    low: int
    high: int

    @property
    def is_whole(self) -> bool:
        if self.count != self.high - self.low + 1 or self.sum * 2 != self.count * (
            self.low + self.high
        ):
            return False
        check = 0
        for begin in range(self.low, self.high + 1, 1 << 20):
            numbers = np.arange(begin, min(begin + (1 << 20), self.high + 1), dtype=np.int64)
            numbers %= _PRIME
            check += int((numbers * numbers % _PRIME * numbers % _PRIME).sum())
        return self.check == check


def orders(totals: pa.Table) -> dict[Life, Order]:
    """Of the rows of the last batch, by life."""
    own = totals.filter(pc.field("view").isin(["broker", "before"]))
    own = own.group_by(list(LIFE)).aggregate(
        [(name, {"low": "min", "high": "max"}.get(name[6:], "sum")) for name in _ORDER]
    )
    return {
        (row["trace_id"], row["broker"], row["life"]): Order(
            row["order_count_sum"],
            row["order_sum_sum"],
            row["order_check_sum"],
            row["order_low_min"],
            row["order_high_max"],
        )
        for row in own.to_pylist()
        if row["order_low_min"] is not None
    }


def late(totals: pa.Table, closed_us: int | None) -> int:
    """How many rows of the last batch came after their window was closed."""
    last = -1 if closed_us is None else closed_us
    of_closed = (pc.field("view") == "broker") & (pc.field("window_us") <= last)
    return sum(totals.filter(of_closed)["order_count"].to_pylist())


def bad_files(totals: pa.Table) -> list[str]:
    """The files of the last batch that have bad lines."""
    return sorted(totals.filter(pc.field("view") == "file")["detail"].to_pylist())


Standing = dict[tuple[str, str, str], tuple[int, int, str | None]]
"""Of each subscription (`trace_id`, broker, name): the life and the number of the row that told of
it last, and its filter; None if it has ended."""
_MANY = ("", "")  # the broker and name that stand for those of a network with too many


def standing(before: Standing, totals: pa.Table) -> Standing:
    """The subscriptions with what the rows of the last batch tell of them, in whatever order they
    came. A broker that starts anew has none. Of a network that ever has too many, none is kept."""
    known = dict(before)
    changes = totals.filter(pc.field("view") == "subscription")
    names = ("trace_id", "broker", "publication", "life", "order_high", "detail")
    for trace_id, broker, name, life, sequence, filter in zip(
        *(changes[column].to_pylist() for column in names), strict=True
    ):
        key, last = (trace_id, broker, name), (life, sequence, filter)
        if (
            name is not None
            and (trace_id, *_MANY) not in known
            and last[:2] > known.get(key, (-1, -1))[:2]
        ):
            known[key] = last
    lives: dict[tuple[str, str], int] = {}
    starts = totals.filter(pc.field("view") == "start")
    for trace_id, broker, life in zip(
        *(starts[column].to_pylist() for column in ("trace_id", "broker", "life")), strict=True
    ):
        lives[trace_id, broker] = max(life, lives.get((trace_id, broker), life))
    for key, (life, _, _) in list(known.items()):
        if life < lives.get(key[:2], life):
            del known[key]
    if len(known) > SUBSCRIPTIONS_MAX:
        known = {
            key: last for key, last in known.items() if last[2] is not None or key[1:] == _MANY
        }
    for trace_id, count in Counter(trace_id for trace_id, *_ in known).items():
        if count > SUBSCRIPTIONS_MAX:
            known = {key: last for key, last in known.items() if key[0] != trace_id}
            known[trace_id, *_MANY] = (0, 0, None)
    return known


def filters(known: Standing) -> dict[str, otherwise.Subscriptions]:
    """The subscriptions that stand, by network."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for (trace_id, broker, _), (_, _, filter) in sorted(known.items(), key=lambda one: one[0][2]):
        if filter is not None:
            pairs.setdefault(trace_id, []).append((broker, filter))
    return {trace_id: tuple(own) for trace_id, own in pairs.items()}


def last_window(totals: pa.Table, before_us: int | None) -> tuple[int | None, int]:
    """The last window so far, and of which share of publications, 2 ** -level, the next batch is to
    follow each."""
    starts = totals.filter(pc.field("view") == "broker")["window_us"]
    last_us = pc.max(starts).as_py()
    if last_us is None or (before_us is not None and before_us > last_us):
        last_us = before_us
    own = totals.filter(pc.field("view") == "class").group_by(list(WINDOW))
    most = pc.max(own.aggregate([("publications", "sum")])["publications_sum"]).as_py() or 0
    return last_us, max(0, math.ceil(math.log2(max(1, most) / SAMPLE)))


def joined(known: Iterable[Range], added: Range) -> list[Range] | None:
    """Ranges with another one; None if they overlap."""
    merged: list[Range] = []
    for low, high in sorted([*known, added]):
        if merged and low <= merged[-1][1]:
            return None
        if merged and low == merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return merged


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


def drift(totals: DataFrame, window_us: int) -> DataFrame:
    """How far each window's publications are from those of the window before: half the sum of the
    differences of shares, 0 for the same and 1 for nothing in common. Also what chance alone would
    give with as many, if nothing had changed."""
    by_class = F.col("class")
    views = {
        "classes": ("class", F.coalesce(by_class, F.lit("")), "publications"),
        "publishers": ("publisher", F.struct("publisher", "broker"), "publications"),
        "deliveries": ("publisher", F.struct("publisher", "broker"), "deliveries"),
    }
    counts = [
        totals.where((F.col("view") == view) & (F.col(count) > 0))
        .select(
            *WINDOW,
            F.lit(of).alias("of"),
            F.to_json(what) if view == "publisher" else what.alias("what"),
            F.col(count).alias("count"),
            "batch",
        )
        .toDF(*WINDOW, "of", "what", "count", "batch")
        for of, (view, what, count) in views.items()
    ]
    one = reduce(DataFrame.unionByName, counts)
    # A window counts for itself and as what comes before the next one.
    twice = one.withColumn("_is", F.lit("now")).unionByName(
        one.withColumn("window_us", F.col("window_us") + window_us).withColumn(
            "_is", F.lit("before")
        )
    )
    pairs = twice.groupBy(*WINDOW, "of", "what").agg(
        *[
            F.sum(F.when(F.col("_is") == name, F.col("count")).otherwise(0)).alias(name)
            for name in ("now", "before")
        ],
        F.max("batch").alias("batch"),
    )
    whole = Window.partitionBy(*WINDOW, "of")
    pairs = pairs.withColumns({f"_{n}": F.sum(n).over(whole) for n in ("now", "before")})
    pairs = pairs.where((F.col("_now") > 0) & (F.col("_before") > 0))
    share = (F.col("now") + F.col("before")) / (F.col("_now") + F.col("_before"))
    spread = share * (1 - share) * (1 / F.col("_now") + 1 / F.col("_before"))
    apart = F.abs(F.col("now") / F.col("_now") - F.col("before") / F.col("_before"))
    # The mean of the absolute value of a normal variable is sqrt(2 / pi) of its deviation. Rounded,
    # because sums depend on their order.
    measured = pairs.groupBy(*WINDOW, "of").agg(
        F.round(F.sum(apart) / 2, 9).alias("drift"),
        F.round(F.sum(F.sqrt(spread)) * math.sqrt(2 / math.pi) / 2, 9).alias("drift_by_chance"),
        F.max("batch").alias("batch"),
    )
    return _conform(measured, WATCH_DRIFT)


def networks(totals: DataFrame) -> DataFrame:
    """The last description of each network: `trace_id`, `detail`."""
    told = totals.where((F.col("view") == "network") & F.col("detail").isNotNull())
    return told.groupBy("trace_id").agg(F.max_by("detail", "life").alias("detail"))


def alternatives(
    totals: DataFrame,
    networks: Mapping[str, str],
    subscriptions: Mapping[str, otherwise.Subscriptions],
    batch: int,
) -> DataFrame:
    """What the windows that a batch has changed would have cost under other schemes and parameters,
    with publishers elsewhere, and with other links. `networks` are descriptions by `trace_id`,
    `subscriptions` those that stand."""
    whole = Window.partitionBy(*WINDOW)
    greatest = {name: F.max(name).over(whole) for name in ("level", "batch")}
    own = totals.where(F.col("view") == "publication").withColumns(greatest)
    chosen = _hash() % F.expr("shiftleft(1L, int(level))") == 0
    followed = own.where((F.col("batch") == batch) & chosen)
    needed = followed.select(
        *WINDOW, "publisher", "publication", "broker", "publications", "deliveries", "sends",
        "detail", "level", "batch",
    )  # fmt: skip
    descriptions, standing = dict(networks), dict(subscriptions)

    def price(rows: pa.Table) -> pa.Table:
        return _price_window(descriptions, standing, rows)

    priced = needed.groupBy(*WINDOW).applyInArrow(price, batched(WATCH_ALTERNATIVES))
    return _conform(priced, WATCH_ALTERNATIVES)


def _price_window(
    networks: Mapping[str, str],
    subscriptions: Mapping[str, otherwise.Subscriptions],
    rows: pa.Table,
) -> pa.Table:
    window_us, trace_id = rows["window_us"][0].as_py(), rows["trace_id"][0].as_py()
    batch = max(rows["batch"].to_pylist())
    columns: dict[str, list[object]] = {name: [] for name in (*WATCH_ALTERNATIVES.names, "batch")}
    if trace_id in networks:
        scale = 1 << max(rows["level"].to_pylist())
        for one in otherwise.of_window(networks[trace_id], subscriptions.get(trace_id), rows):
            values = {
                "window_us": window_us,
                "trace_id": trace_id,
                "action": one.action,
                "publisher": one.publisher,
                "now": one.now,
                "instead": one.instead,
                "publications": one.publications * scale,
                "sampled": one.publications,
                "messages": float(one.messages * scale),
                "saving": float(one.saving * scale),
                "squares": float(one.squares * scale * scale),
                "change_messages": one.change_messages,
                "batch": batch,
            }
            for name, value in values.items():
                columns[name].append(value)
    return pa.table(columns, schema=to_arrow_schema(batched(WATCH_ALTERNATIVES)))


def carried(
    earlier: DataFrame, priced: DataFrame, closed_us: int | None, window_us: int
) -> DataFrame:
    """The alternatives of earlier batches that hold still, and those that were priced anew."""
    if closed_us is not None:
        earlier = earlier.where(F.col("window_us") > closed_us - ADVISED_AFTER * window_us)
    anew = priced.select(*WINDOW).distinct()
    return priced.unionByName(earlier.join(anew, on=list(WINDOW), how="left_anti"))


def advice(alternatives: DataFrame) -> DataFrame:
    """The best change of each kind and publisher, over the last windows in a row in which it was
    the best, `ADVISED_AFTER` at most.

    Its interval is what chance gives with as many publications of this kind, at 95%. It is advised
    after so many windows, if the lower end is above the messages that the change takes and a share
    of those sent.
    """
    subject = ("trace_id", "action", "publisher")
    better = Window.partitionBy(*WINDOW, "action", "publisher")
    other = F.col("instead") != F.col("now")
    place = F.row_number().over(better.orderBy(F.desc("saving"), other, "instead"))
    best = alternatives.withColumn("_place", place).where(F.col("_place") == 1)
    # Windows in a row with the same change have the same difference of these two.
    turn = F.row_number().over(Window.partitionBy(*subject).orderBy("window_us"))
    same = Window.partitionBy(*subject, "now", "instead").orderBy("window_us")
    turn -= F.row_number().over(same)
    lasting = Window.partitionBy(*subject, "now", "instead", "_turn").orderBy("window_us")
    recent = lasting.rowsBetween(1 - ADVISED_AFTER, 0)
    tried = best.withColumn("_turn", turn).withColumns(
        {
            "windows": F.count(F.lit(1)).over(recent),
            "batch": F.max("batch").over(recent),
            **{name: F.sum(name).over(recent) for name in ("messages", "saving", "squares")},
        }
    )
    error = F.sqrt("squares") * _Z95
    bounded = tried.withColumns(
        {"saving_low": F.col("saving") - error, "saving_high": F.col("saving") + error}
    )
    worth = F.coalesce("change_messages", F.lit(0)) + F.col("messages") * ADVISED_SHARE
    lasted = F.col("windows") == ADVISED_AFTER
    advised = bounded.where(other).withColumn("advised", lasted & (F.col("saving_low") > worth))
    return _conform(advised, WATCH_ADVICE)


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
    return conform(frame, batched(schema))


def batched(schema: StructType) -> StructType:
    """With the batch that a row is of."""
    return StructType([*schema.fields, WATCH_FACTS["batch"]])


def latest(table: DataFrame, key: Sequence[str], batch: int | None = None) -> DataFrame:
    """The rows that hold: all of a key are of its last batch. Or those that `batch` changed."""
    last = F.max("batch").over(Window.partitionBy(*key))
    wanted = F.col("batch") if batch is None else F.lit(batch)
    return table.withColumn("_last", last).where(F.col("_last") == wanted).drop("_last")


TABLES: dict[str, tuple[StructType, tuple[str, ...]]] = {
    # name: columns, and the key of which a batch replaces all rows
    "watch_brokers": (WATCH_BROKERS, (*WINDOW, "broker")),
    "watch_schemes": (WATCH_SCHEMES, WINDOW),
    "watch_stops": (WATCH_STOPS, (*WINDOW, "broker", "reason")),
    "watch_links": (WATCH_LINKS, (*WINDOW, "sender", "receiver")),
    "watch_classes": (WATCH_CLASSES, (*WINDOW, "class")),
    "watch_publishers": (WATCH_PUBLISHERS, (*WINDOW, "publisher")),
    "watch_drift": (WATCH_DRIFT, (*WINDOW, "of")),
    "watch_alternatives": (WATCH_ALTERNATIVES, WINDOW),
    "watch_advice": (WATCH_ADVICE, WINDOW),
}
Stage = Callable[[DataFrame], DataFrame]


def stages(window_us: int) -> dict[str, Stage]:
    """The tables that are views of the totals."""
    return {
        "watch_brokers": brokers,
        "watch_schemes": schemes,
        "watch_stops": stops,
        "watch_links": links,
        "watch_classes": classes,
        "watch_publishers": publishers,
        "watch_drift": partial(drift, window_us=window_us),
    }
