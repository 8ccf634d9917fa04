"""What each table holds. Every stage ends with `conform`, so a table is what it says it is, and is
read without another check.

Identifiers of users and hosts are integers, as in the public data sets; brokers, clients and
publishers are text, because people name them. Times are integer microseconds. A filter is SQL
text of the filter language, so the same text is a Spark predicate; a publication's attributes
are one JSON object, as `postroad simulate` reads them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from postroad.traces.schema import Row

VERSION = 1
"""Of all schemas below: raised when a column changes what it means, or goes."""

TEXT, LONG, INT, REAL, DATE, BOOLEAN = (
    StringType(),
    LongType(),
    IntegerType(),
    DoubleType(),
    DateType(),
    BooleanType(),
)


def table(**columns: DataType | tuple[DataType]) -> StructType:
    """Columns in order; a type in a one-tuple may be null."""
    return StructType(
        [
            StructField(name, kind[0], True)
            if isinstance(kind, tuple)
            else StructField(name, kind, False)
            for name, kind in columns.items()
        ]
    )


EDGES = table(follower=LONG, followee=LONG)
NODES = table(node=LONG, level=INT)
LATENCY = table(a=LONG, b=LONG, latency_us=LONG)
QUOTES = table(
    date=DATE,
    symbol=TEXT,
    open=REAL,
    high=REAL,
    low=REAL,
    close=REAL,
    adj_close=(REAL,),
    volume=LONG,
)
SUBSCRIPTIONS = table(
    subscription=TEXT,
    broker=TEXT,
    client=TEXT,
    filter=TEXT,
    time_us=(LONG,),
    until_us=(LONG,),
)
ADVERTISEMENTS = table(
    advertisement=TEXT,
    broker=TEXT,
    publisher=TEXT,
    filter=TEXT,
    time_us=(LONG,),
    until_us=(LONG,),
)
PUBLICATIONS = table(publication=TEXT, publisher=TEXT, broker=TEXT, time_us=LONG, attributes=TEXT)
MATCHES = table(publication=TEXT, publisher=TEXT, broker=TEXT, matches=ArrayType(TEXT, False))
WANTED = table(
    broker=INT,
    key=TEXT,
    wanting=ArrayType(INT),
    publications=LONG,
    deliveries=ArrayType(LONG),
)
"""Publications of one broker that the same brokers want, and how often each delivers them."""
COST_FACTS = table(scheme=TEXT, fact=TEXT, a=LONG, b=LONG, count=LONG)
"""What the tables of costs add up: messages from `a` to `b`, what happened at `a`, or deliveries
after `a` hops and `b` microseconds."""
COST = table(
    scheme=TEXT,
    publications=LONG,
    messages=LONG,
    messages_least=LONG,
    messages_least_on_tree=(LONG,),
    deliveries=LONG,
    pure_forwards=LONG,
    false_sends=LONG,
    load_max=LONG,
    hops_mean=(REAL,),
    hops_max=(LONG,),
    **{f"delay_us_{name}": (REAL,) for name in ("mean",)},
    **{f"delay_us_{name}": (LONG,) for name in ("p50", "p90", "p99", "max")},
)
COST_BROKERS = table(
    scheme=TEXT,
    broker=TEXT,
    sent=LONG,
    received=LONG,
    deliveries=LONG,
    pure_forwards=LONG,
    false_sends=LONG,
)
COST_LINKS = table(scheme=TEXT, sender=TEXT, receiver=TEXT, messages=LONG)
# Append-only, one row per thing that happened; `published_us` rides along, so that latency needs
# no join and a stream can be measured row by row.
TRACES = StructType(
    [
        StructField(
            name,
            LONG if "int" in str(kind) else TEXT,
            name not in ("trace_id", "broker", "kind", "time_us"),
        )
        for name, kind in Row.__annotations__.items()
    ]
)
QUARANTINE = table(file=TEXT, line=(LONG,), reason=TEXT, raw=TEXT)
_TRAFFIC: dict[str, DataType | tuple[DataType]] = {
    "publications": LONG,
    "sends": LONG,
    "receives": LONG,
    "deliveries": LONG,
    "stops": LONG,
    "bytes_published": LONG,
    "bytes_sent": LONG,
    "bytes_received": LONG,
}
_DELAYS: dict[str, DataType | tuple[DataType]] = {
    f"delay_us_{name}": (REAL,) for name in ("mean", "p50", "p90", "p99")
}
WATCH_FACTS = table(
    view=TEXT,
    window_us=(LONG,),
    trace_id=TEXT,
    broker=(TEXT,),
    life=(LONG,),
    peer=(TEXT,),
    publisher=(TEXT,),
    publication=(TEXT,),
    **{"class": (TEXT,)},
    scheme=(TEXT,),
    bucket=(LONG,),
    reason=(TEXT,),
    detail=(TEXT,),
    **_TRAFFIC,
    arrivals=LONG,
    delay_us=LONG,
    order_count=LONG,
    order_sum=LONG,
    order_check=LONG,
    order_low=(LONG,),
    order_high=(LONG,),
    queue_max=(LONG,),
    level=(LONG,),
    batch=LONG,
)
"""What the tables of a watch add up: `view` says which table counts it."""
WATCH_SEEN = table(
    trace_id=TEXT,
    broker=TEXT,
    life=LONG,
    ranges=ArrayType(StructType([StructField("from", LONG), StructField("to", LONG)])),
)
"""The numbers of the rows that a watch has had, of each life of a broker."""
WATCH_BROKERS = table(
    window_us=LONG, trace_id=TEXT, broker=TEXT, scheme=(TEXT,), **_TRAFFIC, **_DELAYS
)
WATCH_SCHEMES = table(
    window_us=LONG, trace_id=TEXT, scheme=(TEXT,), brokers=LONG, **_TRAFFIC, **_DELAYS
)
WATCH_STOPS = table(window_us=LONG, trace_id=TEXT, broker=TEXT, reason=TEXT, stops=LONG)
WATCH_LINKS = table(
    window_us=LONG,
    trace_id=TEXT,
    sender=TEXT,
    receiver=TEXT,
    sends=LONG,
    receives=LONG,
    bytes_sent=LONG,
    bytes_received=LONG,
    queue_max=(LONG,),
)
WATCH_CLASSES = table(
    window_us=LONG, trace_id=TEXT, **{"class": (TEXT,)}, publications=LONG, bytes=LONG
)
WATCH_PUBLISHERS = table(
    window_us=LONG,
    trace_id=TEXT,
    publisher=TEXT,
    home=(TEXT,),
    broker=TEXT,
    publications=LONG,
    bytes=LONG,
    arrivals=LONG,
    deliveries=LONG,
)
WATCH_DRIFT = table(
    window_us=LONG,
    trace_id=TEXT,
    of=TEXT,
    drift=REAL,
    drift_by_chance=REAL,
)
WATCH_ALTERNATIVES = table(
    window_us=LONG,
    trace_id=TEXT,
    action=TEXT,
    publisher=(TEXT,),
    now=TEXT,
    instead=TEXT,
    publications=LONG,
    sampled=LONG,
    messages=REAL,
    saving=REAL,
    squares=REAL,
    change_messages=(LONG,),
)
"""What a window would have cost otherwise; `squares` of the publications' savings add up."""
WATCH_ADVICE = table(
    window_us=LONG,
    trace_id=TEXT,
    action=TEXT,
    publisher=(TEXT,),
    now=TEXT,
    instead=TEXT,
    windows=LONG,
    messages=REAL,
    saving=REAL,
    saving_low=REAL,
    saving_high=REAL,
    change_messages=(LONG,),
    advised=BOOLEAN,
)
WATCH_MOVES = table(window_us=LONG, publisher=TEXT, now=TEXT, instead=TEXT, why_not=(TEXT,))
RUNS = table(
    run_id=TEXT,
    attempt=INT,
    status=TEXT,
    error=(TEXT,),
    parameters=MapType(TEXT, TEXT),
    replicate=INT,
    seed=LONG,
    metrics=MapType(TEXT, REAL),
    elapsed_us=LONG,
)
FACTS = table(
    run_id=TEXT,
    broker=(TEXT,),
    peer=(TEXT,),
    part=(TEXT,),
    **{"class": (TEXT,)},
    bucket=(LONG,),
    fact=TEXT,
    count=LONG,
)
"""What runs counted: see `sim/facts.py`. `broker` to `peer` is a link, `part` a kind of message or
a mechanism of delivery, `class` that of publications, `bucket` one of delays."""
METRICS = table(run_id=TEXT, metric=TEXT, value=REAL)
"""What follows from the facts of each run."""
CASES = table(case=TEXT, parameters=MapType(TEXT, TEXT), replicate=TEXT)
"""Which setting a case of `run.cases` is a replicate of."""
MEASURES = table(
    parameters=MapType(TEXT, TEXT),
    metric=TEXT,
    n=LONG,
    mean=REAL,
    sd=(REAL,),
    ci95_low=(REAL,),
    ci95_high=(REAL,),
    min=REAL,
    p50=REAL,
    p90=REAL,
    p99=REAL,
    max=REAL,
)
DIFFERENCES = table(
    parameters=MapType(TEXT, TEXT),
    baseline=MapType(TEXT, TEXT),
    metric=TEXT,
    n=LONG,
    mean=REAL,
    baseline_mean=REAL,
    difference=REAL,
    sd=(REAL,),
    ci95_low=(REAL,),
    ci95_high=(REAL,),
    min=REAL,
    max=REAL,
    ratio=(REAL,),
    ratio_mean=(REAL,),
    ratio_min=(REAL,),
    ratio_max=(REAL,),
)
"""Of paired replicates: `min` and `max` of their differences, `ratio` of the two means, and
`ratio_mean` to `ratio_max` of the replicates' own ratios, where the baseline is not 0."""


def plainly(frame: DataFrame, schema: StructType) -> DataFrame:
    """The schema's columns of a table that is known to conform."""
    return frame.select(*[F.col(field.name).cast(field.dataType) for field in schema.fields])


def conform(frame: DataFrame, schema: StructType) -> DataFrame:
    """Exactly the schema's columns and types; a null where none may be stops the job."""
    missing = [name for name in schema.names if name not in frame.columns]
    assert not missing, f"columns {missing} are missing among {frame.columns}"
    columns = []
    for field in schema.fields:
        column = F.col(field.name).cast(field.dataType)
        if not field.nullable:
            complaint = F.raise_error(F.lit(f"column {field.name} is null")).cast(field.dataType)
            column = F.coalesce(column, complaint)
        columns.append(column.alias(field.name))
    return frame.select(*columns)
