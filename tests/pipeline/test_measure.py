"""Measures against plain Python, and their independence of partitions."""

from __future__ import annotations

import math
import random
import statistics

import msgspec
import pytest
from pyspark.sql import functions as F

import networks
from measured_by_hand import measured
from networks import VARIANTS
from postroad.pipeline import measure
from postroad.pipeline.definitions import TRACED
from postroad.pipeline.schemas import FACTS, RUNS, TRACES
from postroad.sim.facts import facts
from postroad.sim.run import run
from postroad.sim.tracing import Tracing
from postroad.traces.schema import Recording, Row

pytestmark = pytest.mark.spark


def runs(spark, values, partitions):
    """`values[scheme]` are the metric's values, one per replicate."""
    rows = [
        (f"{scheme}{n}", 1, "ok", None, {"scheme": scheme, "size": "3"}, n, n, {"m": value}, 0)
        for scheme, column in values.items()
        for n, value in enumerate(column)
    ]
    rows.append(("bad", 1, "failed", "oops", {"scheme": "a", "size": "3"}, 9, 9, {"m": 1e9}, 0))
    return spark.createDataFrame(rows, RUNS).repartition(partitions)


VALUES = {
    "a": [0.1, 0.7, 0.30000000000000004, 1e9, 3.3],
    "b": [1.1, 1.7, 1.2, 1e9, 5.0],
    "c": [2.0],
    "d": [3.0, 3.0, 3.0],
}


@pytest.mark.parametrize("partitions", [1, 7])
def test_means_intervals_and_percentiles(spark, partitions):
    metrics = measure.run_metrics(runs(spark, VALUES, partitions))
    found = {row["parameters"]["scheme"]: row for row in measure.measures(metrics).collect()}
    for scheme in ("a", "b"):
        values, row = VALUES[scheme], found[scheme]
        half = 2.7764451052 * statistics.stdev(values) / math.sqrt(5)
        assert row["n"] == 5
        assert row["mean"] == sum(sorted(values)) / 5  # to the last digit
        assert row["ci95_low"] == pytest.approx(statistics.mean(values) - half, rel=1e-8)
        assert row["ci95_high"] == pytest.approx(statistics.mean(values) + half, rel=1e-8)
        assert row["p50"] == statistics.median(values)
        assert (row["min"], row["max"]) == (min(values), max(values))
    assert found["c"]["ci95_low"] is None
    assert found["c"]["mean"] == 2.0
    assert found["d"]["ci95_low"] is None  # copies of one run


@pytest.mark.parametrize("partitions", [1, 7])
def test_differences_are_paired_by_replicate(spark, partitions):
    metrics = measure.run_metrics(runs(spark, {name: VALUES[name] for name in "abc"}, partitions))
    found = {
        row["parameters"]["scheme"]: row
        for row in measure.differences(metrics, [{"scheme": "a"}]).collect()
    }
    assert set(found) == {"b", "c"}
    pairs = sorted(b - a for a, b in zip(VALUES["a"], VALUES["b"], strict=True))
    half = 2.7764451052 * statistics.stdev(pairs) / math.sqrt(5)
    assert found["b"]["difference"] == sum(pairs) / 5
    assert found["b"]["ci95_high"] - found["b"]["difference"] == pytest.approx(half, rel=1e-8)
    assert found["b"]["baseline"] == {"scheme": "a"}
    assert found["c"]["n"] == 1
    assert found["c"]["ratio"] == pytest.approx(20.0)


def test_only_copies_are_without_an_interval(spark):
    """A metric that happens to be constant is no sign of copies if another one varies."""
    values = {"a": [(1.0, 5.0), (2.0, 5.0)], "b": [(4.0, 7.0), (4.0, 7.0)]}
    rows = [
        (f"{name}{n}", 1, "ok", None, {"scheme": name}, n, n, {"m": m, "k": k}, 0)
        for name, column in values.items()
        for n, (m, k) in enumerate(column)
    ]
    metrics = measure.run_metrics(spark.createDataFrame(rows, RUNS))
    found = {
        (row["parameters"]["scheme"], row["metric"]): row
        for row in measure.measures(metrics).collect()
    }
    assert (found["a", "k"]["ci95_low"], found["a", "k"]["ci95_high"]) == (5.0, 5.0)
    assert found["a", "m"]["sd"] == pytest.approx(math.sqrt(0.5))
    assert {found["b", metric]["ci95_low"] for metric in "mk"} == {None}
    pairs = {
        (row["parameters"]["scheme"], row["baseline"]["scheme"], row["metric"]): row
        for row in measure.differences(metrics, [{"scheme": None}]).collect()
    }
    assert set(pairs) == {(*both, metric) for both in ("ab", "ba") for metric in "mk"}
    gap = pairs["b", "a", "m"]
    assert (gap["difference"], gap["min"], gap["max"]) == (2.5, 2.0, 3.0)
    assert (gap["ratio"], gap["ratio_mean"], gap["ratio_min"]) == (8 / 3, 3.0, 2.0)
    assert pairs["b", "a", "k"]["ci95_low"] == 2.0  # a varies


def test_trace_metrics_need_no_join(spark):
    rows = [
        Row("r", "0", 0, n, "deliver", 10 + n, publisher="p", publication=str(n), subscription="s",
            published_us=5, hops=n % 3, mechanism="tree")
        for n in range(100)
    ]  # fmt: skip
    rows += [Row("r", "0", 0, 100, "send", 1, peer="1", publication="0", bytes=64)] * 3
    traces = spark.createDataFrame([msgspec.structs.astuple(row) for row in rows], TRACES)
    found = [
        {row["metric"]: row["value"] for row in measure.trace_metrics(part).collect()}
        for part in (traces.repartition(1), traces.repartition(7))
    ]
    assert found[0] == found[1]
    assert found[0]["trace.deliveries"] == 100
    assert found[0]["trace.latency_us_p50"] == 54.5
    assert found[0]["trace.latency_us_mean"] == 54.5
    assert found[0]["trace.hops_max"] == 2
    assert found[0]["trace.bytes_sent"] == 192


def test_measures_from_facts_are_those_computed_by_hand(spark):
    """All schemes on random networks; delays are at most 0.1% too large."""
    rows, by_hand = [], {}
    for number, (name, config) in enumerate(VARIANTS):
        for seed in range(2):
            result = run(networks.scenario(random.Random(100 * number + seed), name, config))
            joined = {(0, 1), (1, 0)}
            run_id = f"{number} {seed}"
            rows += [(run_id, *fact) for fact in facts(result, joined, 2.5)]
            by_hand[run_id] = measured(result, joined, 2.5)
    table = spark.createDataFrame(rows, FACTS)
    found = {
        (row["run_id"], row["metric"]): row["value"]
        for row in measure.fact_metrics(table).collect()
    }
    assert {run_id for run_id, _ in found} == set(by_hand)
    compared = 0
    for (run_id, metric), value in found.items():
        if metric in by_hand[run_id]:
            exact, compared = by_hand[run_id][metric], compared + 1
            if metric.startswith("delay_p"):
                assert exact * (1 - 1e-9) <= value <= exact * 1.001, (run_id, metric)
            else:
                assert value == pytest.approx(exact, rel=1e-12), (run_id, metric)
    assert compared == len(by_hand) * 24


def test_traces_tell_the_same_measures_as_counters(spark):
    traces, counted = [], []
    for number, (name, config) in enumerate(VARIANTS):
        scenario = networks.scenario(random.Random(number), name, config)
        tracing = Tracing(scenario, str(number), Recording(""))
        result = run(scenario, tracing=tracing)
        if scenario.workload.postings:
            traces += [msgspec.structs.astuple(row) for row in tracing.rows]
            counted += [(str(number), *fact) for fact in facts(result)]
    told = measure.fact_metrics(measure.trace_facts(spark.createDataFrame(traces, TRACES)))
    known = measure.fact_metrics(spark.createDataFrame(counted, FACTS))
    found, expected = (
        {(row["run_id"], row["metric"]): row["value"] for row in frame.collect()}
        for frame in (told, known)
    )
    compared = {key for key in expected if key[1] in (*TRACED, "deliveries")} - {
        key
        for key in expected
        if key[1] == "control"  # set-up is not traced by every scheme
    }
    assert len(compared) >= 12 * 15
    for key in compared:
        assert found[key] == pytest.approx(expected[key], rel=1e-9), key


def test_t_quantiles(spark):
    known = {1: 12.7062, 2: 4.3027, 9: 2.2622, 30: 2.0423, 60: 2.0003, 61: 1.9996, 120: 1.9799}
    table = spark.createDataFrame([(n,) for n in (0, *known)], "n bigint")
    found = table.select("n", measure.t_quantile_column(F.col("n")).alias("t")).collect()
    assert {row["n"]: row["t"] and round(row["t"], 4) for row in found} == {0: None} | known
