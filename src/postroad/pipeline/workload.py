"""Workloads of the five papers, at any size, by native Spark expressions.

Every function returns three tables: subscriptions, advertisements, publications. Randomness is
a hash of (seed, purpose, ids), so a table does not depend on how it is computed. A choice by
weights is one lookup in an alias table (Walker 1977), so its cost does not grow with the number
of things to choose from; only such tables of weights are made on the driver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postroad import draws
from postroad.errors import InputError
from postroad.pipeline.schemas import (
    ADVERTISEMENTS,
    LONG,
    PUBLICATIONS,
    QUOTES,
    REAL,
    SUBSCRIPTIONS,
    TEXT,
    conform,
    table,
)
from postroad.workloads import content as content_weights
from postroad.workloads import patterns as pattern_weights
from postroad.workloads import topics as topic_weights

Weights = npt.NDArray[np.float64]
_BUCKETS = 256


@dataclass(frozen=True)
class Source:
    """Where rows come from that no table holds: numbers, and small tables of the driver."""

    numbers: Callable[[int], DataFrame]
    table: Callable[[Mapping[str, Any], StructType], DataFrame]


@dataclass(frozen=True)
class WorkloadTables:
    subscriptions: DataFrame
    advertisements: DataFrame
    publications: DataFrame


def uniform(seed: int, purpose: str, *ids: str | Column) -> Column:
    """A number in [0, 1) that depends on nothing but its key."""
    mixed = F.xxhash64(F.lit(seed), F.lit(purpose), *ids)
    return F.shiftrightunsigned(mixed, 11) * F.lit(2.0**-53)


def below(bound: int | Column, seed: int, purpose: str, *ids: str | Column) -> Column:
    """A whole number from 0 to bound-1."""
    return F.floor(uniform(seed, purpose, *ids) * bound)


def choose(rows: DataFrame, source: Source, weights: Weights, name: str, u: Column) -> DataFrame:
    """`rows` with column `name`: a number drawn with probability proportional to its weight."""
    slots = len(weights)
    cut, other = alias_table(weights)
    weighed = source.table(
        {"_slot": np.arange(slots), "_cut": cut, "_other": other},
        table(_slot=LONG, _cut=REAL, _other=LONG),
    )
    drawn = rows.withColumn("_u", u * slots).withColumn("_slot", F.floor("_u"))
    chosen = F.when(F.col("_u") - F.col("_slot") < F.col("_cut"), F.col("_slot"))
    return (
        drawn.join(F.broadcast(weighed), on="_slot", how="inner")
        .withColumn(name, chosen.otherwise(F.col("_other")))
        .drop("_slot", "_u", "_cut", "_other")
    )


def alias_table(weights: Weights) -> tuple[Weights, npt.NDArray[np.int64]]:
    """Walker's alias table: per slot, the share that stays and where the rest goes."""
    count = len(weights)
    share = (weights / weights.sum() * count).tolist()
    cut, other = [1.0] * count, list(range(count))
    poor = [slot for slot in range(count) if share[slot] < 1.0]
    rich = [slot for slot in range(count) if share[slot] >= 1.0]
    while poor and rich:
        slot, giver = poor.pop(), rich.pop()
        cut[slot], other[slot] = share[slot], giver
        share[giver] -= 1.0 - share[slot]
        (poor if share[giver] < 1.0 else rich).append(giver)
    return np.array(cut), np.array(other, dtype=np.int64)


def follower(
    source: Source,
    *,
    followers: Weights | None,
    subscriptions: int,
    publications: int,
    publishers: int = 200,
    classes: int = 20,
    brokers: int = 200,
    publisher_brokers: int = 5,
    rate_per_s: float = 10.0,
    exponent: float = 1.0,
    seed: int = 0,
) -> WorkloadTables:
    """PopSub §5.1. Each subscription is to one publisher, drawn by its number of `followers`.

    Without `followers` it is to a class, drawn by Zipf's law: the paper's synthetic workload.
    Publishers sit at the first `publisher_brokers` brokers (the root and its children when
    brokers are numbered breadth-first), subscribers anywhere. Attributes x and y are whole
    numbers from 0 to 1000; a subscription takes `x >= a AND y >= b`, a quarter of the space.
    """
    kind = F.concat(F.lit("c"), below(classes, seed, "follower.class", "publisher_number"))
    asked = source.numbers(subscriptions)
    u = uniform(seed, "follower.publisher", "id")
    corner = [
        F.concat(
            F.lit(f" AND {axis} >= "),
            below(1001, seed, f"follower.low.{axis}", "id").cast("string"),
        )
        for axis in "xy"
    ]
    if followers is not None:
        assert len(followers) == publishers
        chosen = choose(asked, source, followers, "publisher_number", u)
        whom = F.concat(F.lit("p"), F.col("publisher_number").cast("string"))
        head = [F.lit("class = '"), kind, F.lit("' AND publisher = '"), whom, F.lit("'")]
    else:
        chosen = choose(asked, source, topic_weights.zipf(classes, exponent), "class_number", u)
        head = [F.lit("class = 'c"), F.col("class_number").cast("string"), F.lit("'")]
    wanted = chosen.select(
        _named("s", "id").alias("subscription"),
        below(brokers, seed, "follower.subscriber", "id").alias("broker"),
        _named("u", "id").alias("client"),
        F.concat(*head, *corner).alias("filter"),
    )
    published = _published(source, publications, publishers, rate_per_s, seed)
    place = below(min(publisher_brokers, brokers), seed, "follower.place", "publisher_number")
    content = F.concat(
        F.lit('{"class":"'),
        kind,
        F.lit('","publisher":"p'),
        F.col("publisher_number").cast("string"),
        F.lit('","x":'),
        below(1001, seed, "follower.x", "id").cast("string"),
        F.lit(',"y":'),
        below(1001, seed, "follower.y", "id").cast("string"),
        F.lit("}"),
    )
    announced = source.numbers(publishers).withColumnRenamed("id", "publisher_number")
    text = F.concat(
        F.lit("class = '"),
        kind,
        F.lit("' AND publisher = 'p"),
        F.col("publisher_number").cast("string"),
        F.lit("'"),
    )
    return _workload(
        wanted,
        announced.select(
            _named("a", "publisher_number").alias("advertisement"),
            place.alias("broker"),
            _named("p", "publisher_number").alias("publisher"),
            text.alias("filter"),
        ),
        published.select(
            _named("", "id").alias("publication"),
            _named("p", "publisher_number").alias("publisher"),
            place.alias("broker"),
            "time_us",
            content.alias("attributes"),
        ),
    )


def topics(
    source: Source,
    cut: Callable[[DataFrame], DataFrame],
    *,
    nodes: int,
    topics: int,
    popularity: str,
    publications: int,
    per_node: int = 20,
    exponent: float = 2.0,
    brokers: int | None = None,
    rate_per_s: float = 1000.0,
    seed: int = 0,
) -> WorkloadTables:
    """BeaConvey §5.2 (1): each node subscribes to `per_node` different topics by popularity.

    `cut` keeps who takes what, which all three tables are made from.
    """
    if per_node > topics:
        raise InputError(f"{per_node} of {topics} topics", remedy="give more topics than per node")
    weights = topic_weights.popularity(popularity, topics, exponent)
    taken = cut(_taken(source, nodes, weights / weights.sum(), per_node, seed))
    return _social(source, taken, publications, brokers, rate_per_s, seed)


def _taken(source: Source, nodes: int, weights: Weights, per_node: int, seed: int) -> DataFrame:
    """Each node's draw without replacement: `node`, `topic`.

    The draw is a race: topic t arrives after an exponential time of rate p(t), and the first
    `per_node` to arrive are taken; only arrivals before a horizon count, by which more than
    enough are expected. A topic that is likely to arrive by then draws its time for every node.
    The others together are one Poisson process: how many arrivals, when each, and of which topic;
    a topic's first arrival counts. So a node costs in proportion to `per_node`, not to all topics.
    """
    horizon = _horizon(weights, per_node)
    likely = weights * horizon >= 1.0
    chosen = source.table(
        {"topic": np.flatnonzero(likely), "_weight": weights[likely]},
        table(topic=LONG, _weight=REAL),
    )
    arrival = -F.log(1.0 - uniform(seed, "topics.arrival", "id", "topic")) / F.col("_weight")
    racers = (
        source.numbers(nodes)
        .crossJoin(F.broadcast(chosen))
        .select(F.col("id").alias("node"), "topic", arrival.alias("_arrival"))
        .where(F.col("_arrival") <= F.lit(horizon))
    )
    if not likely.all():
        rest = np.where(likely, 0.0, weights)
        counted = choose(
            source.numbers(nodes), source, _poisson(rest.sum() * horizon), "_count",
            uniform(seed, "topics.count", "id"),
        )  # fmt: skip
        turns = F.explode(F.sequence(F.lit(1), F.col("_count"))).alias("_turn")
        arrivals = counted.where("_count > 0").select("id", turns)
        drawn = choose(
            arrivals, source, rest, "topic", uniform(seed, "topics.topic", "id", "_turn")
        )
        moment = uniform(seed, "topics.moment", "id", "_turn") * horizon
        racers = racers.unionByName(
            drawn.select(F.col("id").alias("node"), "topic", moment.alias("_arrival"))
        )
    first = racers.groupBy("node", "topic").agg(F.min("_arrival").alias("_arrival"))
    order = F.row_number().over(Window.partitionBy("node").orderBy("_arrival", "topic"))
    return (
        first.withColumn("_place", order).where(F.col("_place") <= per_node).select("node", "topic")
    )


def _poisson(mean: float) -> Weights:
    """The chances of 0, 1, 2, … arrivals, as far as they are above 1e-18 or so."""
    most = math.ceil(mean + 12.0 * math.sqrt(mean) + 30.0)
    counts = np.arange(most + 1)
    logs = counts * math.log(mean) - mean - np.array([math.lgamma(n + 1.0) for n in counts])
    return np.asarray(np.exp(logs))


def _horizon(weights: Weights, per_node: int) -> float:
    """A time before which `per_node` topics have arrived, but for one node in 10^12."""
    expected = min(per_node + 8.0 * math.sqrt(per_node) + 20.0, 0.999 * len(weights))
    if expected < per_node + 8.0 * math.sqrt(per_node):
        return math.inf
    low, high = 0.0, 1.0
    while np.sum(-np.expm1(-weights * high)) < expected:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        if np.sum(-np.expm1(-weights * middle)) < expected:
            low = middle
        else:
            high = middle
    return high


def social(
    source: Source,
    edges: DataFrame,
    *,
    publications: int,
    brokers: int | None = None,
    rate_per_s: float = 1000.0,
    seed: int = 0,
) -> WorkloadTables:
    """BeaConvey §5.2 (2, 3): each user is a topic and its followers are the subscribers."""
    taken = edges.select(F.col("follower").alias("node"), F.col("followee").alias("topic"))
    return _social(source, taken, publications, brokers, rate_per_s, seed)


def _social(
    source: Source,
    taken: DataFrame,
    publications: int,
    brokers: int | None,
    rate_per_s: float,
    seed: int,
) -> WorkloadTables:
    """Topics drawn uniformly; the issuer is one of the topic's subscribers, each as likely.

    A node is its own broker, or one of `brokers` by its hash.
    """
    node = F.col("node")
    home = (
        node if brokers is None else F.pmod(F.xxhash64(F.lit(seed), F.lit("home"), node), brokers)
    )
    topic = F.col("topic").cast("string")
    asked = taken.select(
        F.concat(F.lit("s"), node.cast("string"), F.lit("-"), topic).alias("subscription"),
        home.alias("broker"),
        F.concat(F.lit("u"), node.cast("string")).alias("client"),
        F.concat(F.lit("topic = "), topic).alias("filter"),
    )
    within = Window.partitionBy("topic").orderBy("node")
    subscribers = taken.select("topic", "node").withColumn("_turn", F.row_number().over(within) - 1)
    sizes = taken.groupBy("topic").agg(F.count(F.lit(1)).alias("_subscribers"))
    listed = _numbered(sizes, "topic", "_number")
    total = sizes.agg(F.count(F.lit(1)).alias("_topics"))
    published = (
        source.numbers(publications)
        .withColumn("time_us", F.floor(F.col("id") * F.lit(1e6 / rate_per_s)))
        .crossJoin(F.broadcast(total))
        .withColumn("_number", below(F.col("_topics"), seed, "social.topic", "id"))
        .join(listed, on="_number", how="inner")
        .withColumn("_turn", below(F.col("_subscribers"), seed, "social.issuer", "id"))
        .join(subscribers, on=["topic", "_turn"], how="inner")
    )
    return _workload(
        asked,
        taken.select(
            F.concat(F.lit("a"), node.cast("string"), F.lit("-"), topic).alias("advertisement"),
            home.alias("broker"),
            F.concat(F.lit("u"), node.cast("string")).alias("publisher"),
            F.concat(F.lit("topic = "), topic).alias("filter"),
        ),
        published.select(
            _named("", "id").alias("publication"),
            F.concat(F.lit("u"), node.cast("string")).alias("publisher"),
            home.alias("broker"),
            "time_us",
            F.concat(F.lit('{"topic":'), topic, F.lit("}")).alias("attributes"),
        ),
    )


def _numbered(rows: DataFrame, key: str, name: str) -> DataFrame:
    """`rows` with column `name`: numbers from 0 up without gaps, by bucket and then by key.

    Rows are numbered within buckets of the key's hash, so no partition sees all of them; where a
    bucket begins is a sum over the buckets before it. Keys: `key` is unique.
    """
    placed = rows.withColumn("_bucket", F.pmod(F.xxhash64(key), F.lit(_BUCKETS)))
    sizes = placed.groupBy("_bucket").agg(F.count(F.lit(1)).alias("_size"))
    before = F.transform(
        "_sizes",
        lambda one: F.struct(
            one["_bucket"].alias("_bucket"),
            F.aggregate(
                F.filter("_sizes", lambda other: other["_bucket"] < one["_bucket"]),
                F.lit(0).cast("bigint"),
                lambda total, other: total + other["_size"],
            ).alias("_before"),
        ),
    )
    begins = sizes.agg(F.collect_list(F.struct("_bucket", "_size")).alias("_sizes")).select(
        F.inline(before)
    )
    within = F.row_number().over(Window.partitionBy("_bucket").orderBy(key)) - 1
    return (
        placed.withColumn(name, within)
        .join(F.broadcast(begins), on="_bucket", how="inner")
        .withColumn(name, F.col(name) + F.col("_before"))
        .drop("_bucket", "_before")
    )


def content(
    source: Source,
    *,
    distribution: str,
    interest: float,
    interest_over: str = "values",
    servers: int = 500,
    values: int = 1000,
    publications: int = 1000,
    exponent: float = 1.0,
    peaks: int = 5,
    rate_per_s: float = 1000.0,
    seed: int = 0,
) -> WorkloadTables:
    """Kyra §IV-B, all but regional: servers ask for values of a one-dimensional content space.

    `workloads/content.py` defines how popular and how often published each value is.
    """
    random = np.random.default_rng(draws.bits(seed, f"content.{distribution}", values, 0))
    chance, volume = content_weights.weights(
        distribution, interest, random.random(values), random,
        over=interest_over, exponent=exponent, peaks=peaks,
    )  # fmt: skip
    weighed = source.table(
        {"value": np.arange(values), "_chance": chance},
        table(value=LONG, _chance=REAL),
    )
    asked = (
        source.numbers(servers)
        .withColumnRenamed("id", "server")
        .crossJoin(F.broadcast(weighed))
        .where(uniform(seed, "content.asks", "server", "value") < F.col("_chance"))
    )
    published = choose(
        source.numbers(publications), source, volume, "value", uniform(seed, "content.value", "id")
    ).withColumn("server", below(servers, seed, "content.server", "id"))
    return _content(source, asked, published, servers, rate_per_s)


def regional(
    source: Source,
    *,
    interest: float,
    latency: DataFrame | None = None,
    distances: Weights | None = None,
    servers: int = 500,
    values: int = 1000,
    publications: int = 1000,
    gamma: float = 1.0,
    rate_per_s: float = 1000.0,
    seed: int = 0,
) -> WorkloadTables:
    """Kyra, regional: server i asks for what j publishes with chance c/distance^gamma.

    Each server publishes values of its own stretch of the content space. Distances are
    latencies of the given table (`distances` are quantiles of them, to find c), or those of
    servers put at random on a unit square.
    """
    each = max(1, values // servers)
    if latency is None:
        x, y = content_weights.square(servers, seed)
        distances = content_weights.apart(x, y)
        spots = source.table(
            {"server": np.arange(servers), "_x": x, "_y": y},
            table(server=LONG, _x=REAL, _y=REAL),
        )
        near = spots.select(
            F.col("server").alias("owner"), F.col("_x").alias("_x2"), F.col("_y").alias("_y2")
        )
        apart = F.hypot(F.col("_x") - F.col("_x2"), F.col("_y") - F.col("_y2"))
        pairs = (
            spots.crossJoin(F.broadcast(near))
            .where("server <> owner")
            .select("server", "owner", apart.alias("_distance"))
        )
    else:
        known = (F.col("a") < servers) & (F.col("b") < servers) & (F.col("a") != F.col("b"))
        pairs = latency.where(known).select(
            F.col("a").alias("server"),
            F.col("b").alias("owner"),
            F.col("latency_us").cast("double").alias("_distance"),
        )
    assert distances is not None
    nearest = F.lit(content_weights.NEAREST)
    factor = content_weights.regional_factor(distances, gamma, interest)
    chance = F.least(
        F.lit(1.0), F.lit(factor) * F.pow(F.greatest("_distance", nearest), F.lit(-gamma))
    )
    stretch = source.numbers(each).withColumnRenamed("id", "_offset")
    asked = (
        pairs.crossJoin(F.broadcast(stretch))
        .withColumn("value", F.col("owner") * each + F.col("_offset"))
        .where(uniform(seed, "regional.asks", "server", "value") < chance)
    )
    published = (
        source.numbers(publications)
        .withColumn("server", below(servers, seed, "regional.server", "id"))
        .withColumn("value", F.col("server") * each + below(each, seed, "regional.value", "id"))
    )
    return _content(source, asked, published, servers, rate_per_s)


def _content(
    source: Source, asked: DataFrame, published: DataFrame, servers: int, rate_per_s: float
) -> WorkloadTables:
    server, value = F.col("server").cast("string"), F.col("value").cast("string")
    return _workload(
        asked.select(
            F.concat(F.lit("s"), server, F.lit("-"), value).alias("subscription"),
            server.alias("broker"),
            F.concat(F.lit("u"), server).alias("client"),
            F.concat(F.lit("value = "), value).alias("filter"),
        ),
        source.numbers(servers).select(
            _named("a", "id").alias("advertisement"),
            F.col("id").alias("broker"),
            _named("p", "id").alias("publisher"),
            F.lit("value >= 0").alias("filter"),
        ),
        published.select(
            _named("", "id").alias("publication"),
            F.concat(F.lit("p"), server).alias("publisher"),
            server.alias("broker"),
            F.floor(F.col("id") * F.lit(1e6 / rate_per_s)).alias("time_us"),
            F.concat(F.lit('{"value":'), value, F.lit("}")).alias("attributes"),
        ),
    )


def stock(
    source: Source,
    quotes: DataFrame,
    *,
    subscribers: str,
    publishers: int,
    per_publisher: int,
    brokers: int,
    spread: int | None = None,
    rate_per_s: float = 1.0,
    seed: int = 0,
) -> WorkloadTables:
    """POP and GRAPE §V-A: each symbol is a publisher, its subscribers sink some of its traffic.

    `random`: 70% of subscribers take about 10% of their publisher's quotes, 25% about half,
    5% all, on `spread` brokers. `enterprise`: 95% take about 10% on `spread`-1 brokers, 5% all
    on the one broker left. The thresholds that give these shares are each symbol's own
    percentiles. `publishers` symbols are taken, those of smallest hash.
    """
    spread = brokers if spread is None else min(spread, brokers)
    if subscribers == "enterprise" and spread < 2:
        raise InputError(f"spread {spread}", remedy="give enterprise subscribers 2 or more brokers")
    quoted = derived(quotes)
    order = (F.xxhash64(F.lit(seed), F.lit("stock.symbol"), "symbol"), F.col("symbol"))
    listed = (
        quoted.groupBy("symbol")
        .agg(
            F.percentile("high_low_diff", F.lit(0.9)).alias("_high_low"),
            F.percentile("volume", F.lit(0.5)).alias("_volume"),
        )
        .orderBy(*order)
        .limit(publishers)
        .withColumn("publisher_number", F.row_number().over(Window.orderBy(*order)) - 1)
    )
    asked = _sinks(source, listed, subscribers, per_publisher, brokers, spread, seed)
    home = below(brokers, seed, "stock.home", "symbol")
    day = F.row_number().over(Window.partitionBy("symbol").orderBy("date")) - 1
    phase = below(math.floor(1e6 / rate_per_s), seed, "stock.phase", "symbol")
    published = quoted.join(F.broadcast(listed.select("symbol")), on="symbol", how="left_semi")
    return _workload(
        asked,
        listed.select(
            F.concat(F.lit("a"), F.col("symbol")).alias("advertisement"),
            home.alias("broker"),
            F.col("symbol").alias("publisher"),
            _of_symbol().alias("filter"),
        ),
        published.select(
            F.col("date").cast("string").alias("publication"),
            F.col("symbol").alias("publisher"),
            home.alias("broker"),
            (F.floor(day * F.lit(1e6 / rate_per_s)) + phase).alias("time_us"),
            F.to_json(_quote()).alias("attributes"),
        ),
    )


def _sinks(
    source: Source,
    listed: DataFrame,
    subscribers: str,
    per_publisher: int,
    brokers: int,
    spread: int,
    seed: int,
) -> DataFrame:
    """Subscriptions to listed symbols: how much of its quotes each takes, and at which broker."""
    places = sorted(range(brokers), key=lambda b: draws.bits(seed, "stock.place", b, 0))[:spread]
    weighed = source.table(
        {"_place": list(range(spread)), "broker": [str(place) for place in places]},
        table(_place=LONG, broker=TEXT),
    )
    lot = uniform(seed, "stock.rating", "publisher_number", "_turn")
    if subscribers == "random":
        rating = F.when(lot < 0.7, "low").when(lot < 0.95, "medium").otherwise("high")
        place = below(spread, seed, "stock.broker", "publisher_number", "_turn")
    else:
        rating = F.when(lot < 0.95, "low").otherwise("high")
        branch = 1 + below(spread - 1, seed, "stock.broker", "publisher_number", "_turn")
        place = F.when(F.col("_rating") == "high", F.lit(0)).otherwise(branch)
    symbol = _of_symbol()
    text = (
        F.when(
            F.col("_rating") == "low",
            F.concat(symbol, F.lit(" AND `highLow%Diff` > "), _plain("_high_low")),
        )
        .when(
            F.col("_rating") == "medium",
            F.concat(symbol, F.lit(" AND volume > "), F.floor("_volume").cast("string")),
        )
        .otherwise(symbol)
    )
    turns = source.numbers(per_publisher).withColumnRenamed("id", "_turn")
    client = F.concat(F.lit("u"), F.col("symbol"), F.lit("-"), F.col("_turn").cast("string"))
    return (
        listed.crossJoin(F.broadcast(turns))
        .withColumn("_rating", rating)
        .withColumn("_place", place)
        .join(F.broadcast(weighed), on="_place", how="inner")
        .select(
            F.concat(F.lit("s"), client).alias("subscription"),
            "broker",
            client.alias("client"),
            text.alias("filter"),
        )
    )


def _of_symbol() -> Column:
    return F.concat(F.lit("class = 'STOCK' AND symbol = '"), F.col("symbol"), F.lit("'"))


def _quote() -> Column:
    """A quote's attributes, as the paper names them."""
    return F.struct(
        F.lit("STOCK").alias("class"),
        "symbol",
        "open",
        "high",
        "low",
        "close",
        "volume",
        F.col("date").cast("string").alias("date"),
        F.col("open_close_diff").alias("openClose%Diff"),
        F.col("high_low_diff").alias("highLow%Diff"),
        (F.col("close") == F.col("low")).alias("closeEqualsLow"),
        (F.col("close") == F.col("high")).alias("closeEqualsHigh"),
    )


def derived(quotes: DataFrame) -> DataFrame:
    """Quotes with the paper's derived attributes, to six decimals as filters write them."""
    return quotes.withColumn(
        "open_close_diff", F.round((F.col("close") - F.col("open")) / F.col("open"), 6)
    ).withColumn("high_low_diff", F.round((F.col("high") - F.col("low")) / F.col("low"), 6))


def made_up_quotes(source: Source, symbols: int, days: int, seed: int) -> DataFrame:
    """Quotes for users who have none: each day independent, around a price of the symbol's own."""
    number, day = F.floor(F.col("id") / days), F.col("id") % days
    price = F.lit(20.0) + 180.0 * uniform(seed, "made.price", number)
    swing = F.lit(0.002) + 0.06 * F.pow(uniform(seed, "made.swing", "id"), F.lit(2.0))
    low = F.round(price * (1.0 - swing / 2), 2)
    high = F.greatest(F.round(price * (1.0 + swing / 2), 2), low)
    rows = source.numbers(symbols * days).select(
        F.date_add(F.lit("2015-01-12").cast("date"), day.cast("int")).alias("date"),
        F.format_string("S%04d", number).alias("symbol"),
        low.alias("low"),
        high.alias("high"),
        F.round(low + (high - low) * uniform(seed, "made.open", "id"), 2).alias("open"),
        F.round(low + (high - low) * uniform(seed, "made.close", "id"), 2).alias("close"),
        F.lit(None).alias("adj_close"),
        (below(5_000_000, seed, "made.volume", "id") + 1000).alias("volume"),
    )
    return conform(rows, QUOTES)


def patterns(
    source: Source,
    *,
    brokers: int,
    patterns: int,
    sigma: float,
    publications: int,
    mu: float | None = None,
    exponent: float | None = None,
    rate_per_s: float = 1000.0,
    seed: int = 0,
) -> WorkloadTables:
    """Subscription-forwarding model §2, §4: a broker subscribes to pattern p with sigma(p).

    Uniform: that is `sigma`. With an `exponent` it is Zipf's, with mean `sigma`, at most 1.
    Publications pick a pattern uniformly. Without `mu` a publication matches its own pattern
    only: mu is sigma. With it, patterns are overlapping stretches of a circle, each wide enough
    that a publication matches ln(1-mu)/ln(1-sigma) of them on average, so a broker with chance mu.
    """
    width = pattern_weights.matched(patterns, sigma, mu)
    chance = pattern_weights.chances(patterns, sigma, exponent)
    weighed = source.table(
        {"pattern": np.arange(patterns), "_chance": chance},
        table(pattern=LONG, _chance=REAL),
    )
    broker, pattern = F.col("broker").cast("string"), F.col("pattern").cast("string")
    if mu is None:
        text = F.concat(F.lit("pattern = "), pattern)
        said = below(patterns, seed, "patterns.pattern", "id").cast("string")
    else:
        end = F.round(F.col("pattern") + width, 6)
        inside = F.concat(
            F.lit("pattern >= "), pattern, F.lit(" AND pattern < "), _plain_column(end)
        )
        around = F.concat(
            F.lit("pattern >= "), pattern, F.lit(" OR pattern < "), _plain_column(end - patterns)
        )
        text = F.when(end <= patterns, inside).otherwise(around)
        said = _plain_column(uniform(seed, "patterns.pattern", "id") * patterns)
    asked = (
        source.numbers(brokers)
        .withColumnRenamed("id", "broker")
        .crossJoin(F.broadcast(weighed))
        .where(uniform(seed, "patterns.asks", "broker", "pattern") < F.col("_chance"))
        .select(
            F.concat(F.lit("s"), broker, F.lit("-"), pattern).alias("subscription"),
            "broker",
            F.concat(F.lit("u"), broker).alias("client"),
            text.alias("filter"),
        )
    )
    place = below(brokers, seed, "patterns.broker", "id")
    return _workload(
        asked,
        source.numbers(brokers).select(
            _named("a", "id").alias("advertisement"),
            F.col("id").alias("broker"),
            _named("p", "id").alias("publisher"),
            F.lit("pattern >= 0").alias("filter"),
        ),
        source.numbers(publications).select(
            _named("", "id").alias("publication"),
            F.concat(F.lit("p"), place.cast("string")).alias("publisher"),
            place.alias("broker"),
            F.floor(F.col("id") * F.lit(1e6 / rate_per_s)).alias("time_us"),
            F.concat(F.lit('{"pattern":'), said, F.lit("}")).alias("attributes"),
        ),
    )


def simulator_lines(table: DataFrame, identity: str) -> DataFrame:
    """A table as JSON Lines that `postroad simulate` reads, in a stated order."""
    columns = [F.col(identity).alias("id")]
    columns += [F.col(name) for name in table.columns if name not in (identity, "attributes")]
    text = F.to_json(F.struct(*columns))
    if "attributes" in table.columns:
        inner = F.concat(F.lit(',"attributes":'), F.col("attributes"), F.lit("}"))
        text = F.concat(F.expr("substring(_text, 1, length(_text) - 1)"), inner)
        table = table.withColumn("_text", F.to_json(F.struct(*columns)))
    order = ["time_us", "publisher", identity] if "attributes" in table.columns else [identity]
    return table.orderBy(*order).select(text.alias("value"))


def _published(
    source: Source, count: int, publishers: int, rate_per_s: float, seed: int
) -> DataFrame:
    """Publications in turn by each publisher, at its rate, each beginning at its own moment."""
    gap_us = 1e6 / rate_per_s
    phase = below(math.floor(gap_us) or 1, seed, "published.phase", "publisher_number")
    turn = F.floor(F.col("id") / publishers)
    return (
        source.numbers(count)
        .withColumn("publisher_number", F.col("id") % publishers)
        .withColumn("time_us", F.floor(turn * F.lit(gap_us)) + phase)
    )


def _workload(asked: DataFrame, announced: DataFrame, published: DataFrame) -> WorkloadTables:
    never = {"time_us": F.lit(None), "until_us": F.lit(None)}
    return WorkloadTables(
        conform(asked.withColumns(never), SUBSCRIPTIONS),
        conform(announced.withColumns(never), ADVERTISEMENTS),
        conform(published, PUBLICATIONS),
    )


def _named(prefix: str, number: str) -> Column:
    return F.concat(F.lit(prefix), F.col(number).cast("string"))


def _plain(name: str) -> Column:
    return _plain_column(F.col(name))


def _plain_column(value: Column) -> Column:
    """A number as filters write it: six decimals, no exponent."""
    return F.round(value, 6).cast("decimal(20,6)").cast("string")
