"""What schemes cost for a fixed set of subscriptions and any number of publications.

Publications are matched by broker (`match`). Those of one broker that the same brokers want, and
between which no scheme sees a difference, are one row with their number (`wanted`): first within a
task, then by Spark. Each such row is priced once (`facts`, by `kernels.ways`); the tables are
sums of the prices. Nothing is approximated: the counters are those of a simulation in which
all subscriptions stand from the beginning and a broker takes no time.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from postroad.errors import InputError
from postroad.filters import parse
from postroad.kernels.ways import PRICED, RINGS, TREES, Visits, Ways, price
from postroad.model import Scalar
from postroad.overlay import Overlay
from postroad.overlay.small_world import Ring
from postroad.pipeline.match import answers, mapped
from postroad.pipeline.schemas import (
    COST,
    COST_BROKERS,
    COST_FACTS,
    COST_LINKS,
    PUBLICATIONS,
    WANTED,
    conform,
)
from postroad.routing import SCHEMES
from postroad.routing.base import Interests
from postroad.settings import overlays, toml

Ints = npt.NDArray[np.int64]
PLANNED = ("kyra", "mbr", *RINGS)
"""The schemes that plan by the interests."""
SETS_MAX = 100_000
"""A task passes its sets on when it has so many,"""
MEMBERS_MAX = 10_000_000
"""or so many brokers in them."""
FACTS_MAX = 1_000_000
"""Facts that a task adds up before it passes them on."""
MESSAGES = ("publication", "notification")
LEAST, LEAST_ON_TREE = "messages_least", "messages_least_on_tree"
_BETWEEN = "\x1f"


@dataclass(frozen=True)
class PricedNetwork:
    """A network, and the schemes to price there with their parameters."""

    overlay: Overlay
    schemes: Mapping[str, Any]
    seed: int

    @property
    def plans(self) -> bool:
        """Whether some scheme must know who subscribes to what."""
        return any(scheme in PLANNED for scheme in self.schemes)


def load(path: Path, chosen: Sequence[str]) -> PricedNetwork:
    """Read a network: `[overlay]`, `seed`, `schemes`, and a table of parameters for a scheme."""
    top = toml.read(path)
    seed: int = top.take("seed", int, 0)
    named: list[str] = top.take("schemes", list, [])
    overlay = overlays.read(top.section("overlay"), path.parent, seed)
    possible = [scheme for scheme in PRICED if not isinstance(overlay, Ring) or scheme in RINGS]
    schemes = {}
    for scheme in PRICED:
        config = top.section(scheme).configure(SCHEMES[scheme].config)
        if scheme in (chosen or named or possible):
            schemes[scheme] = config
    top.done()
    for scheme in chosen or named:
        if scheme not in possible:
            raise InputError(
                f"no price for {scheme!r} on this overlay",
                where=str(path),
                remedy=f"choose of {', '.join(possible)}",
            )
    return PricedNetwork(overlay, schemes, seed)


class Prices:
    """The ways of all schemes, and the numbers of brokers."""

    def __init__(self, settings: PricedNetwork, interests: Sequence[tuple[str, str]]) -> None:
        overlay = settings.overlay
        self.number = {name: broker for broker, name in enumerate(overlay.names)}
        parsed = lru_cache(maxsize=None)(parse)
        pairs = [(self.broker(name), parsed(text)) for name, text in interests]
        known = Interests(pairs, [], pairs)
        # Schemes that always take the same way are priced together.
        ways: dict[str, list[str]] = {} if isinstance(overlay, Ring) else {TREES[1]: []}
        for scheme in settings.schemes:
            alike = scheme in TREES[1:] or (scheme == "fbr" and overlay.direct_us is None)
            ways.setdefault(TREES[1] if alike else scheme, []).append(scheme)
        self.ways = [
            (
                Ways(way, overlay, known, settings.schemes.get(way), settings.seed),
                schemes,
                way == TREES[1],
            )
            for way, schemes in ways.items()
        ]

    def broker(self, name: str) -> int:
        if name not in self.number:
            names = list(self.number)
            known = ", ".join(names[:4]) + (f", … {names[-1]}" if len(names) > 4 else "")
            raise InputError(f"unknown broker {name!r}", remedy=f"the overlay has {known}")
        return self.number[name]

    def key(self, attributes: Mapping[str, Scalar | None]) -> str:
        """What the schemes read of a publication."""
        return _BETWEEN.join(ways.key(attributes) for ways, *_ in self.ways if ways.key is not None)

    def keys(self, key: str) -> list[str]:
        """The part of each way's scheme in a key."""
        parts = iter(key.split(_BETWEEN))
        return ["" if ways.key is None else next(parts) for ways, *_ in self.ways]

    @cached_property
    def keyed(self) -> bool:
        return any(ways.key is not None for ways, *_ in self.ways)


@lru_cache(maxsize=1)
def _loaded(path: str, written: int) -> Prices:
    prices: Prices = pickle.loads(Path(path).read_bytes())
    return prices


def save(prices: Prices, path: str) -> None:
    """Leave the prices where tasks find them."""
    Path(path).write_bytes(pickle.dumps(prices, protocol=pickle.HIGHEST_PROTOCOL))


def _written(path: str) -> int:
    return Path(path).stat().st_mtime_ns


def wanted(publications: DataFrame, index: str, prices: str) -> DataFrame:
    """The publications of a broker that the same brokers want, together."""
    gather = partial(_gather, index, _written(index), prices, _written(prices))
    gathered = publications.select(*PUBLICATIONS.names).mapInArrow(gather, WANTED)
    zeros = F.array_repeat(F.lit(0).cast("bigint"), F.size("wanting"))
    added = F.aggregate(
        "_each", zeros, lambda sums, more: F.zip_with(sums, more, lambda one, other: one + other)
    )
    together = gathered.groupBy("broker", "key", "wanting").agg(
        F.sum("publications").alias("publications"), F.collect_list("deliveries").alias("_each")
    )
    return conform(together.withColumn("deliveries", added), WANTED)


def _gather(
    index: str, indexed: int, prices_path: str, priced: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    table, prices = mapped(index, indexed), _loaded(prices_path, priced)
    number = np.array([prices.broker(name) for name in table.names.to_pylist()], np.int32)
    key = prices.key if prices.keyed else None
    sets: dict[tuple[int, str, bytes], list[Any]] = {}
    members = 0
    for batch in batches:
        for rows, who, ends, times, keys in answers(table, batch, key):
            named = rows.column("broker").dictionary_encode()
            known = np.array([prices.broker(name) for name in named.dictionary.to_pylist()])
            brokers = known[named.indices.to_numpy()].tolist()
            wanting = number[who]
            begin = 0
            for place, end in enumerate(ends.tolist()):
                some = wanting[begin:end].tobytes()
                name = (brokers[place], keys[place] if keys else "", some)
                same = sets.get(name)
                if same is None:
                    sets[name] = [1, times[begin:end].copy()]
                    members += end - begin
                else:
                    same[0] += 1
                    same[1] += times[begin:end]
                begin = end
            if len(sets) > SETS_MAX or members > MEMBERS_MAX:
                yield _sets(sets)
                sets, members = {}, 0
    if sets:
        yield _sets(sets)


def _sets(sets: Mapping[tuple[int, str, bytes], Sequence[Any]]) -> pa.RecordBatch:
    schema = to_arrow_schema(WANTED)
    members = np.frombuffer(b"".join(some for *_, some in sets), np.int32)
    sizes = [len(some) // 4 for *_, some in sets]
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    deliveries = np.concatenate([times for _, times in sets.values()])
    arrays = [
        pa.array([broker for broker, *_ in sets], pa.int32()),
        pa.array([key for _, key, _ in sets], pa.string()),
        pa.ListArray.from_arrays(offsets, pa.array(members), schema[2].type),
        pa.array([count for count, _ in sets.values()], pa.int64()),
        pa.ListArray.from_arrays(offsets, pa.array(deliveries, pa.int64()), schema[4].type),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def facts(wanted: DataFrame, prices: str) -> DataFrame:
    """What the publications of each set cost under each scheme, added up."""
    counted = partial(_count, prices, _written(prices))
    priced = wanted.sortWithinPartitions("broker", "key").mapInArrow(counted, COST_FACTS)
    added = priced.groupBy("scheme", "fact", "a", "b").agg(F.sum("count").alias("count"))
    return conform(added, COST_FACTS)


def _count(path: str, written: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    prices = _loaded(path, written)
    ledger = _Ledger()
    for batch in batches:
        broker, key = batch.column("broker").to_numpy(), batch.column("key").to_pylist()
        changes = [
            n for n in range(1, len(key)) if broker[n] != broker[n - 1] or key[n] != key[n - 1]
        ]
        for begin, end in zip([0, *changes], [*changes, len(key)], strict=True):
            rows = batch.slice(begin, end - begin)
            _count_sets(prices, int(broker[begin]), key[begin], rows, ledger)
            if ledger.size > FACTS_MAX:
                yield ledger.close()
    if ledger.size:
        yield ledger.close()


def _count_sets(
    prices: Prices, broker: int, key: str, rows: pa.RecordBatch, ledger: _Ledger
) -> None:
    """Sets of one broker and key."""
    lists = rows.column("wanting")
    wanting = lists.flatten().to_numpy().astype(np.int64)
    ends = np.cumsum(lists.value_lengths().to_numpy().astype(np.int64))
    counts = rows.column("publications").to_numpy()
    deliveries = rows.column("deliveries").flatten().to_numpy()
    ledger.add("", "publications", [broker], [0], [counts.sum()])
    of_set = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    least = counts[of_set[wanting != broker]].sum()
    ledger.add("", LEAST, [0], [0], [least])
    for (ways, schemes, is_tree), part in zip(prices.ways, prices.keys(key), strict=True):
        way = ways.way(broker, part)
        priced = price(way, counts, ends, wanting, deliveries)
        if is_tree:
            ledger.add("", LEAST_ON_TREE, [0], [0], [priced.messages.sum()])
        for scheme in schemes:
            _enter(scheme, way, priced, ledger)


def _enter(scheme: str, way: Visits, priced: Any, ledger: _Ledger) -> None:
    node = way.node
    for notice, name in enumerate(MESSAGES):
        sent = np.flatnonzero((priced.messages > 0) & (way.notice == notice))
        ledger.add(scheme, name, node[way.above[sent]], node[sent], priced.messages[sent])
    for name in ("pure_forwards", "false_sends", "deliveries"):
        counts = getattr(priced, name)
        some = np.flatnonzero(counts)
        ledger.add(scheme, name, node[some], np.zeros_like(some), counts[some])
        if name == "deliveries":
            ledger.add(scheme, "delay", way.hops[some], way.delay_us[some], counts[some])


class _Ledger:
    """Facts that a task has not passed on yet."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str, Any, Any, Any]] = []
        self.size = 0

    def add(self, scheme: str, fact: str, a: Any, b: Any, count: Any) -> None:
        if len(count):
            self.entries.append((scheme, fact, a, b, count))
            self.size += len(count)

    def close(self) -> pa.RecordBatch:
        """All facts, those alike added up; and begin anew."""
        names = list(dict.fromkeys(entry[:2] for entry in self.entries))
        number = {name: n for n, name in enumerate(names)}
        sizes = [len(entry[4]) for entry in self.entries]
        columns = [np.repeat([number[entry[:2]] for entry in self.entries], sizes)]
        columns += [np.concatenate([entry[n] for entry in self.entries]) for n in (2, 3, 4)]
        added = pa.table(columns, names=["name", "a", "b", "count"])
        added = added.group_by(["name", "a", "b"]).aggregate([("count", "sum")])
        name = added["name"].to_numpy()
        arrays = [
            *(
                pa.array(np.array([each[n] for each in names], object)[name], pa.string())
                for n in (0, 1)
            ),
            *(pa.array(added[column].to_numpy(), pa.int64()) for column in ("a", "b", "count_sum")),
        ]
        self.__init__()  # type: ignore[misc]
        return pa.RecordBatch.from_arrays(arrays, schema=to_arrow_schema(COST_FACTS))


def links(facts: DataFrame, places: DataFrame) -> DataFrame:
    """Per scheme, sender and receiver. `places` has the `name` of each `number`, once."""
    sent = facts.where(F.col("fact").isin(*MESSAGES))
    added = sent.groupBy("scheme", "a", "b").agg(F.sum("count").alias("messages"))
    for column, name in (("a", "sender"), ("b", "receiver")):
        named = places.select(F.col("number").alias(column), F.col("name").alias(name))
        added = added.join(F.broadcast(named), on=column, how="left")
    return conform(added, COST_LINKS)


def brokers(facts: DataFrame, places: DataFrame, schemes: DataFrame) -> DataFrame:
    """Per scheme and broker; those without any load too."""
    is_message = F.col("fact").isin(*MESSAGES)
    at = facts.where(~F.col("fact").isin("delay")).select(
        "scheme",
        F.explode(
            F.when(
                is_message,
                F.array(
                    F.struct(F.col("a").alias("number"), F.lit("sent").alias("what")),
                    F.struct(F.col("b").alias("number"), F.lit("received").alias("what")),
                ),
            ).otherwise(F.array(F.struct(F.col("a").alias("number"), F.col("fact").alias("what"))))
        ).alias("_at"),
        "count",
    )
    counts = at.groupBy("scheme", F.col("_at.number").alias("number")).agg(
        *[_sum_of(F.col("_at.what") == name).alias(name) for name in COST_BROKERS.names[2:]]
    )
    every = schemes.crossJoin(F.broadcast(places.where("is_broker")))
    joined = every.join(counts, on=["scheme", "number"], how="left").fillna(0)
    return conform(joined.withColumnRenamed("name", "broker"), COST_BROKERS)


def _sum_of(condition: Column) -> Column:
    return F.coalesce(F.sum(F.when(condition, F.col("count"))), F.lit(0))


def costs(facts: DataFrame, brokers: DataFrame, schemes: DataFrame) -> DataFrame:
    """Per scheme, with the nearest-rank percentiles of delays."""
    of_all = facts.where(F.col("scheme") == "").agg(
        _sum_of(F.col("fact") == "publications").alias("publications"),
        _sum_of(F.col("fact") == LEAST).alias(LEAST),
        F.sum(F.when(F.col("fact") == LEAST_ON_TREE, F.col("count"))).alias(LEAST_ON_TREE),
    )
    totals = facts.groupBy("scheme").agg(
        _sum_of(F.col("fact").isin(*MESSAGES)).alias("messages"),
        *[
            _sum_of(F.col("fact") == name).alias(name)
            for name in ("deliveries", "pure_forwards", "false_sends")
        ],
    )
    loads = brokers.groupBy("scheme").agg(
        F.max(F.col("sent") + F.col("received")).alias("load_max")
    )
    scheme = Window.partitionBy("scheme")
    upward = scheme.orderBy("b").rangeBetween(Window.unboundedPreceding, Window.currentRow)
    spread = (
        facts.where(F.col("fact") == "delay")
        .groupBy("scheme", "a", "b")
        .agg(F.sum("count").alias("count"))
        .withColumn("_below", F.sum("count").over(upward))
        .withColumn("_all", F.sum("count").over(scheme))
        .groupBy("scheme")
        .agg(
            (F.sum(F.col("a") * F.col("count")) / F.sum("count")).alias("hops_mean"),
            F.max("a").alias("hops_max"),
            (F.sum(F.col("b") * F.col("count")) / F.sum("count")).alias("delay_us_mean"),
            *[
                F.min(F.when(F.col("_below") * 100 >= F.col("_all") * p, F.col("b"))).alias(
                    f"delay_us_p{p}"
                )
                for p in (50, 90, 99)
            ],
            F.max("b").alias("delay_us_max"),
        )
    )
    joined = schemes.crossJoin(F.broadcast(of_all))
    for part in (totals, loads):
        joined = joined.join(F.broadcast(part), on="scheme", how="left")
    counted = joined.fillna(
        0, ["messages", "deliveries", "pure_forwards", "false_sends", "load_max"]
    )
    return conform(counted.join(F.broadcast(spread), on="scheme", how="left"), COST)
