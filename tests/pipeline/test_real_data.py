"""The real files, with their known flaws counted exactly."""

from __future__ import annotations

import os

import pytest
from pyspark.sql import functions as F

from postroad.pipeline import run, store
from postroad.pipeline.schemas import LATENCY
from postroad.workloads.followed import follower_quantiles

pytestmark = pytest.mark.spark
large = pytest.mark.skipif("POSTROAD_REAL" not in os.environ, reason="takes long: make real")


@large
def test_follower_graph_and_its_statistics(spark, tmp_path, real_data):
    source = str(real_data / "twitter_edges_unique.txt.gz")
    facts = run.ingest([source], "edges", str(tmp_path), run.Job())
    assert (facts["records"], facts["rows"]) == (1_768_149, 1_768_135)
    assert facts["reasons"] == {"self-loop": 14}
    told = run.followers(str(tmp_path / "edges"), run.Job())
    assert told["users"] == 81_306
    assert told["max"] == 3383
    assert told["median"] == 8
    assert round(told["mean"], 2) == 21.75
    assert round(told["top_20_percent"], 3) == 0.717
    assert round(told["top_10_percent"], 3) == 0.550
    assert round(told["top_1_percent"], 2) == 0.19
    shipped = follower_quantiles()
    assert list(zip(shipped["share"], shipped["followers"], strict=True)) == told["quantiles"]


def test_friendships(spark, tmp_path, real_data):
    source = str(real_data / "facebook_combined.txt.gz")
    facts = run.ingest([source], "edges", str(tmp_path), run.Job(), undirected=True)
    assert (facts["records"], facts["rows"], facts["quarantined"]) == (88_234, 176_468, 0)


def test_latencies(spark, tmp_path, real_data):
    source = str(real_data / "planetlab490_median_rtt_ms.csv.gz")
    facts = run.ingest([source], "latency", str(tmp_path), run.Job(), times="round-trip")
    assert (facts["records"], facts["rows"]) == (490, 490 * 489)
    table = store.read(spark, str(tmp_path / "latency"), LATENCY)
    row = table.agg(F.percentile("latency_us", F.lit(0.5)), F.mean("latency_us")).head()
    assert round(row[0] / 500, 1) == 133.9
    assert round(row[1] / 500, 1) == 145.1


@large
def test_quotes(spark, tmp_path, real_data):
    source = str(real_data / "sp500_2015_2020_daily.csv.gz")
    facts = run.ingest([source], "quotes", str(tmp_path), run.Job())
    assert facts["records"] == 592_358
    assert facts["reasons"] == {
        "all prices are zero": 1,
        "duplicate of a date and symbol": 3,
        "open or close outside low..high": 3,
    }
    found = store.rows_of(str(tmp_path / "quotes_quarantine"))
    assert sorted((row["line"], row["raw"][:16]) for row in found) == [
        (400649, "2018-06-01,DXC,8"),
        (580319, "2019-12-04,CBS,0"),
        (580680, "2019-12-04,VIAB,"),
        (581577, "2019-12-06,STI,7"),
        (591971, "2020-01-10,CBOE,"),
        (592019, "2020-01-10,DIS,1"),
    ]
