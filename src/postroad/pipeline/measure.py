"""Measures from run results and delivery traces, as Spark SQL: the only place with statistics.

`run_metrics` has one value per run and metric; `measures` takes the replicates of a setting
together, `differences` pairs those of two settings. Means of a group add its values in sorted
order, so the last digit does not depend on how the rows were partitioned; traces are added as
whole numbers, which is exact in any order.

Intervals are Student's t at 95%. There is none for a single value, and none where the replicates
of a setting are copies, equal in every metric: those of a workload from files, under a scheme that
draws nothing, say nothing of how far another workload would be off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from scipy import special

from postroad.pipeline.definitions import MEASURES, OF_PAPERS, SUMS, TRACED
from postroad.pipeline.schemas import DIFFERENCES, FACTS, METRICS, conform
from postroad.pipeline.schemas import MEASURES as TABLE
from postroad.sim.facts import DELAY_GROWTH, carrying

_TABLE_MAX = 60
"""Degrees of freedom up to which the t quantile is tabled; beyond, four terms are exact to 1e-7."""


def trace_metrics(traces: DataFrame) -> DataFrame:
    """Per trace, the metrics of its deliveries: `run_id`, `metric`, `value`."""
    delivered = F.col("kind") == "deliver"
    latency = F.when(delivered, F.col("time_us") - F.col("published_us"))
    hops = F.when(delivered, F.col("hops"))
    spread = [0.5, 0.9, 0.99]
    per_trace = traces.groupBy(F.col("trace_id").alias("run_id")).agg(
        F.count_if(delivered).cast("double").alias("deliveries"),
        _exact_mean(latency).alias("latency_us_mean"),
        F.percentile(latency, F.array(*map(F.lit, spread))).alias("_latency"),
        F.max(latency).cast("double").alias("latency_us_max"),
        _exact_mean(hops).alias("hops_mean"),
        F.max(hops).cast("double").alias("hops_max"),
        F.count_if(F.col("kind") == "send").cast("double").alias("sends"),
        F.sum(F.when(F.col("kind") == "send", F.col("bytes"))).cast("double").alias("bytes_sent"),
    )
    columns = [name for name in per_trace.columns if name not in ("run_id", "_latency")]
    named = [
        F.struct(F.lit(f"trace.{name}").alias("metric"), F.col(name).alias("value"))
        for name in columns
    ]
    named += [
        F.struct(
            F.lit(f"trace.latency_us_p{round(share * 100)}").alias("metric"),
            F.get("_latency", F.lit(place)).alias("value"),
        )
        for place, share in enumerate(spread)
    ]
    rows = per_trace.select("run_id", F.inline(F.array(*named)))
    known = only(fact_metrics(trace_facts(traces)), TRACED)
    of_facts = known.withColumn("metric", F.concat(F.lit("trace."), "metric"))
    return rows.unionByName(of_facts).where(F.col("value").isNotNull())


def _exact_mean(whole: Column) -> Column:
    return F.sum(whole.cast("decimal(38,0)")).cast("double") / F.count(whole)


def fact_metrics(facts: DataFrame, papers: Sequence[str] = ()) -> DataFrame:
    """Per run, every measure that its facts allow: of `definitions.MEASURES`, or of those of the
    `papers` whose runs they are."""
    if papers:
        several = [_paper_metrics(facts, paper) for paper in papers]
        return conform(reduce(DataFrame.unionByName, several), METRICS)
    run = "run_id"
    by_fact = facts.groupBy(run, "fact").agg(
        F.sum("count").alias("_sum"), F.max("count").alias("_max"), F.count("*").alias("_rows")
    )
    totals = by_fact.groupBy(run).agg(
        *[_of_fact(name, "_sum").alias(name) for name in SUMS],
        _of_fact("broker", "_rows").alias("brokers"),
        _of_fact("state", "_max").alias("state_max"),
        _of_fact("queue_max", "_max").alias("queue_max"),
    )
    sent = facts.where(F.col("fact") == "sends").groupBy(run, "broker", "peer")
    links = sent.agg(F.sum("count").alias("_sent"))
    by_link = links.groupBy(run).agg(F.count("*").alias("links"), F.max("_sent").alias("link_max"))
    ends = links.select(run, F.explode(F.array("broker", "peer")).alias("broker"), "_sent")
    brokers = facts.where(F.col("fact") == "broker").select(run, "broker")
    load = ends.join(brokers, on=[run, "broker"], how="left_semi").groupBy(run, "broker")
    by_broker = (
        load.agg(F.sum("_sent").alias("_load"))
        .groupBy(run)
        .agg(F.sum("_load").alias("load"), F.max("_load").alias("load_max"))
    )
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    spread = F.percentile(_delay_us(), F.array(*map(F.lit, shares.values())), F.col("count"))
    delays = facts.where(F.col("bucket").isNotNull()).groupBy(run).agg(spread.alias("_spread"))
    joined = totals
    for part in (by_link, by_broker, delays):
        joined = joined.join(part, on=run, how="left")
    for place, name in enumerate(shares):
        joined = joined.withColumn(f"delay_us_{name}", F.get("_spread", F.lit(place)))
    known = joined.drop("_spread").fillna(0)
    values = [
        F.struct(F.lit(name).alias("metric"), F.expr(one.sql).cast("double").alias("value"))
        for name, one in MEASURES.items()
    ]
    rows = known.select(run, F.inline(F.array(*values))).where(F.col("value").isNotNull())
    return conform(rows, METRICS)


def _paper_metrics(facts: DataFrame, paper: str) -> DataFrame:
    """The measures of a paper's runs, from the facts whose names begin with the paper's."""
    of = OF_PAPERS[paper]
    own = facts.where(F.col("fact").startswith(f"{paper}."))
    named = own.withColumns(
        {
            "fact": F.substring_index("fact", ".", -1),
            "part": F.col("part") if of.several else F.lit(None).cast("string"),
        }
    )
    percent = F.array(*[F.lit(share / 100) for share in range(101)])
    bucket = F.when(F.col("fact").isin(*of.delays), _delay_us()).otherwise(F.col("bucket"))
    value = F.when(
        F.col("fact").isin(*of.spread), F.coalesce(bucket, F.col("count")).cast("double")
    )
    weight = F.when(F.col("bucket").isNull(), 1).otherwise(F.col("count"))
    by_fact = named.groupBy("run_id", "part", "fact").agg(
        F.sum("count").alias("total"),
        F.max("count").alias("most"),
        F.count("*").alias("rows"),
        F.sum(F.col("count") * F.col("bucket")).alias("weight"),
        F.sum(F.try_divide("count", "bucket").cast("decimal(38,9)")).cast("double").alias("each"),
        F.percentile(value, percent, weight).alias("spread"),
    )
    maps = ("total", "most", "rows", "weight", "each", "spread")
    known = by_fact.groupBy("run_id", "part").agg(
        *[F.map_from_entries(F.collect_list(F.struct("fact", name))).alias(name) for name in maps]
    )
    values = [
        F.struct(
            F.concat_ws("|", "part", F.lit(name)).alias("metric"),
            F.expr(one.sql).cast("double").alias("value"),
        )
        for name, one in of.measures.items()
    ]
    rows = known.select("run_id", F.inline(F.array(*values)))
    return rows.where(F.col("value").isNotNull())


def trace_facts(traces: DataFrame) -> DataFrame:
    """The facts that traces tell, of live brokers and of simulations alike.

    They know nothing of tables, matches and what was owed. Traces without publications, such as
    those of sweeps, tell no facts.
    """
    kind, mechanism = F.col("kind"), F.col("mechanism")
    sent, delivered = kind == "send", kind == "deliver"
    carries, first = mechanism.isin(*sorted(carrying())), F.coalesce("part", F.lit(0)) == 0
    delay_us = F.col("time_us") - F.col("published_us")
    place = F.ceil(F.log(delay_us.cast("double")) / math.log(DELAY_GROWTH))
    bucket = F.when(delay_us > 0, place).otherwise(-1)
    link = {"broker": F.col("broker"), "peer": F.col("peer")}
    counted = F.array(
        F.when(sent & first & carries, _counted("sends", **link, part=mechanism)),
        F.when(sent & first & ~carries, _counted("control", **link, part=mechanism)),
        F.when(sent & carries, _counted("copies", **link)),
        F.when(delivered, _counted("deliveries", part=mechanism, bucket=bucket)),
        F.when(delivered, _counted("hops", F.col("hops"), part=mechanism)),
        F.when(delivered, _counted("delay_us", delay_us, part=mechanism)),
        F.when(kind == "start", _counted("broker", broker=F.col("broker"))),
        F.when(
            kind == "publish",
            _counted("publications", **{"class": F.get_json_object("attributes", "$.class")}),
        ),
    )
    rows = traces.select(F.col("trace_id").alias("run_id"), F.explode(counted).alias("_one"))
    told = rows.where(F.col("_one").isNotNull()).select("run_id", "_one.*")
    key = [name for name in FACTS.names if name != "count"]
    added = told.groupBy(*key).agg(F.sum("count").alias("count"))
    whole = told.where(F.col("fact") == "publications").select("run_id").distinct()
    return conform(added.join(whole, on="run_id", how="left_semi"), FACTS)


def _counted(fact: str, count: Column | None = None, **of: Column) -> Column:
    fields = [
        of.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
        for field in FACTS.fields
        if field.name not in ("run_id", "fact", "count")
    ]
    many = F.lit(1) if count is None else count
    return F.struct(*fields, F.lit(fact).alias("fact"), many.cast("bigint").alias("count"))


def _of_fact(name: str, column: str) -> Column:
    return F.coalesce(F.max(F.when(F.col("fact") == name, F.col(column))), F.lit(0))


def _delay_us() -> Column:
    """A bucket's upper end."""
    return F.when(F.col("bucket") < 0, 0.0).otherwise(F.pow(F.lit(DELAY_GROWTH), F.col("bucket")))


def run_metrics(runs: DataFrame, *others: DataFrame) -> DataFrame:
    """One row per run and metric; of failed runs none. Keys: `run_id` is unique in `runs`."""
    ok = runs.where(F.col("status") == "ok").select(
        "run_id", _entries("parameters").alias("_parameters"), "replicate", "metrics"
    )
    metrics = ok.select(
        "run_id", "_parameters", "replicate", F.explode("metrics").alias("metric", "value")
    )
    for other in others:
        joined = ok.drop("metrics").join(other, on="run_id", how="inner")
        metrics = metrics.unionByName(joined)
    return metrics


def of_cases(runs: DataFrame, cases: DataFrame) -> DataFrame:
    """Runs of `run.cases` as runs of a grid, each as often as `cases` names it.

    Keys: the runs' `case` is unique; `cases` may give one case to several settings.
    """
    own = runs.withColumn("case", F.col("parameters")["case"]).drop("parameters", "replicate")
    return own.join(F.broadcast(cases), on="case", how="inner").drop("case")


def by_scheme(metrics: DataFrame) -> DataFrame:
    """A metric `SCHEME|NAME`, of a run that has several schemes, as NAME of that scheme."""
    scheme = F.struct(
        F.lit("scheme").alias("key"), F.substring_index("metric", "|", 1).alias("value")
    )
    named = F.array_sort(F.concat("_parameters", F.array(scheme)))
    several = F.contains("metric", F.lit("|"))
    return metrics.withColumns(
        {
            "_parameters": F.when(several, named).otherwise(F.col("_parameters")),
            "metric": F.substring_index("metric", "|", -1),
        }
    )


def only(metrics: DataFrame, names: Sequence[str]) -> DataFrame:
    """The metrics of these names."""
    return metrics.where(F.col("metric").isin(*names))


def measures(metrics: DataFrame) -> DataFrame:
    """Mean, interval and percentiles over the replicates of each setting."""
    values = F.array_sort(F.collect_list("value"))
    grouped = metrics.groupBy("_parameters", "metric").agg(
        values.alias("_values"),
        F.percentile("value", F.array(*map(F.lit, (0.5, 0.9, 0.99)))).alias("_spread"),
    )
    spread = {name: F.get("_spread", F.lit(n)) for n, name in enumerate(("p50", "p90", "p99"))}
    setting = Window.partitionBy("_parameters")
    marked = grouped.withColumn("_varied", F.max(_varies("_values")).over(setting))
    stated = _stated(marked).withColumns(
        {"parameters": F.map_from_entries("_parameters"), **spread}
    )
    return conform(stated.orderBy("_parameters", "metric"), TABLE)


def differences(metrics: DataFrame, baselines: Sequence[Mapping[str, str | None]]) -> DataFrame:
    """Each setting against the same setting with a baseline's values, replicate by replicate.

    A value of None stands for every value: each setting against each that differs in that alone.
    """
    sides = F.array(*[_side(number, baseline) for number, baseline in enumerate(baselines)])
    split = metrics.select(F.inline(sides), "_parameters", "replicate", "metric", "value")
    base = split.where("_is_base").select(
        "_number",
        "_others",
        "replicate",
        "metric",
        F.col("_own").alias("_base_own"),
        F.col("value").alias("_base"),
    )
    paired = split.join(base, on=["_number", "_others", "replicate", "metric"], how="inner").where(
        F.col("_own") != F.col("_base_own")
    )
    ratio = F.try_divide("value", "_base")
    grouped = paired.groupBy("_parameters", "_base_own", "metric").agg(
        F.array_sort(F.collect_list(F.col("value") - F.col("_base"))).alias("_values"),
        F.array_sort(F.collect_list("value")).alias("_these"),
        F.array_sort(F.collect_list("_base")).alias("_bases"),
        F.array_sort(F.collect_list(ratio)).alias("_ratios"),
    )
    pair = Window.partitionBy("_parameters", "_base_own")
    varies = F.max(_varies("_these") | _varies("_bases")).over(pair)
    stated = (
        _stated(grouped.withColumn("_varied", varies))
        .withColumnRenamed("mean", "difference")
        .withColumns(
            {
                "parameters": F.map_from_entries("_parameters"),
                "baseline": F.map_from_entries("_base_own"),
                "mean": _sum("_these") / F.col("n"),
                "baseline_mean": _sum("_bases") / F.col("n"),
                "ratio_mean": F.try_divide(_sum("_ratios"), F.size("_ratios")),
                "ratio_min": F.array_min("_ratios"),
                "ratio_max": F.array_max("_ratios"),
            }
        )
        .withColumn("ratio", F.try_divide("mean", "baseline_mean"))
    )
    return conform(stated.orderBy("_parameters", "_base_own", "metric"), DIFFERENCES)


def _side(number: int, baseline: Mapping[str, str | None]) -> Column:
    """A setting as a baseline divides it: what both sides share, what is its own, and whether it
    has the baseline's values."""
    keys = sorted(baseline)
    own = F.filter("_parameters", lambda entry: entry["key"].isin(*keys))
    values = F.map_from_entries("_parameters")
    is_base = F.size(own) == len(keys)
    for key, value in baseline.items():
        if value is not None:
            is_base = is_base & F.coalesce(values[key] == F.lit(value), F.lit(False))
    return F.struct(
        F.lit(number).alias("_number"),
        F.filter("_parameters", lambda entry: ~entry["key"].isin(*keys)).alias("_others"),
        own.alias("_own"),
        is_base.alias("_is_base"),
    )


def _varies(values: str) -> Column:
    return F.array_min(values) < F.array_max(values)


def _stated(grouped: DataFrame) -> DataFrame:
    """`_values` as n, mean, standard deviation, extremes and the ends of its 95% interval.

    `_varied` says whether the replicates differ in anything; of copies there is no interval.
    """
    counted = grouped.withColumn("n", F.size("_values").cast("bigint"))
    centred = counted.withColumn("mean", _sum("_values") / F.col("n"))
    squares = F.aggregate(
        "_values",
        F.lit(0.0),
        lambda total, value: total + (value - F.col("mean")) * (value - F.col("mean")),
    )
    freedom = F.col("n") - 1
    spread = centred.withColumn("sd", F.sqrt(F.try_divide(squares, freedom)))
    error = F.col("sd") / F.sqrt("n")
    half = F.when(F.col("_varied"), t_quantile_column(freedom) * error)
    return spread.withColumns(
        {
            "ci95_low": F.col("mean") - half,
            "ci95_high": F.col("mean") + half,
            "min": F.array_min("_values"),
            "max": F.array_max("_values"),
        }
    )


def _sum(values: str) -> Column:
    return F.aggregate(values, F.lit(0.0), lambda total, value: total + value)


def _entries(parameters: str) -> Column:
    """A map as sorted entries, because maps cannot be grouped by."""
    return F.array_sort(F.map_entries(parameters))


def t_quantile_column(freedom: Column) -> Column:
    """The 97.5% quantile of Student's t: a table, then its expansion around the normal."""
    quantiles = special.stdtrit(np.arange(1, _TABLE_MAX + 1), 0.975).tolist()
    table = F.array(*map(F.lit, quantiles))
    z = float(special.ndtri(0.975))
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    far = F.lit(z)
    for power, term in enumerate(terms, 1):
        far = far + F.lit(term) / F.pow(freedom, F.lit(power))
    near = F.get(table, (freedom - 1).cast("int"))
    return F.when(freedom < 1, F.lit(None)).when(freedom <= _TABLE_MAX, near).otherwise(far)
