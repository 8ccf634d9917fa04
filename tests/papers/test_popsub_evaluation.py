"""PopSub's evaluation: its inputs are what section 5.1 says, and a small run of each mechanism."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import single_runs
from postroad.errors import InputError
from postroad.overlay import files
from postroad.overlay.wide_area import generated_matrix, topology
from postroad.papers.popsub import protocol, runs
from postroad.papers.popsub.workload import CLASSES, Point, throughputs, weights, workload
from postroad.workloads.followed import shipped_followers
from postroad.workloads.graphs import most_followed

DATA = Path(__file__).parents[3] / "shared" / "data"
SMALL = Point(brokers=60, subscriptions=2000, publishers=60, seconds=8.0, throughput_per_s=400.0)


def test_shipped_followers_are_those_of_the_graph() -> None:
    edges = DATA / "twitter_edges_unique.txt.gz"
    if not edges.exists():
        pytest.skip("the follower graph is not here")
    assert shipped_followers() == most_followed(edges, 200)


def test_generated_latencies_look_like_the_internet_s() -> None:
    matrix = generated_matrix(490, seed=1)
    trips_ms = matrix[np.triu_indices(490, 1)] * 2 / 1000
    assert 110 < np.median(trips_ms) < 150
    assert 280 < np.percentile(trips_ms, 95) < 350
    assert (matrix == matrix.T).all()


def test_a_topology_is_a_shortest_path_tree_with_direct_latencies() -> None:
    matrix = generated_matrix(200, seed=2)
    overlay = topology(matrix, 100, seed=3)
    assert overlay.brokers_count == 100
    assert (overlay.parents() >= -1).all()
    assert overlay.direct_us is not None
    for (a, b), latency in zip(overlay.ends, overlay.latency_us, strict=True):
        assert overlay.direct_us[a, b] == latency
    with pytest.raises(InputError, match="300 brokers on 200 hosts"):
        topology(matrix, 300, seed=3)


def test_a_workload_follows_the_section() -> None:
    overlay = topology(generated_matrix(100, seed=1), 60, seed=1)
    made = workload(SMALL, overlay, seed=5)
    assert set(made.homes) <= {0, *overlay.neighbours()[0]}
    assert len(made.time_us) == 60 * 80
    assert (np.diff(made.time_us) >= 0).all()
    per_publisher = np.bincount(made.subscription_advertisement, minlength=60)
    followers = np.array(shipped_followers()[:60])
    assert np.corrcoef(per_publisher, followers)[0, 1] > 0.9
    inside = (made.low[:, None, :] <= made.values[None, :200, :]) & (
        made.values[None, :200, :] <= made.high[:, None, :]
    )
    assert 0.2 < inside.all(axis=2).mean() < 0.3


def test_every_mechanism_delivers_the_same_and_spares_the_tree(spark: Any) -> None:
    row = {"experiment": "x", "value": 0.0, "topology": 1, "workload": 1, "matrix": ""}
    points = [{**row, **asdict(replace(SMALL, mechanism=one))} for one in runs.MECHANISMS]
    metrics = single_runs.metrics_of(spark, runs.run_point, points)
    found = dict(zip(runs.MECHANISMS, metrics, strict=True))
    base = found.pop("tree")
    assert base["unpopular_deliveries"] == 0
    for mechanism, measured in found.items():
        assert measured["deliveries"] == base["deliveries"], mechanism
        assert measured["unpopular_deliveries"] > 0.1 * base["deliveries"], mechanism
        assert measured["pure_forwards"] < 0.95 * base["pure_forwards"], mechanism
    assert found["batching"]["gain_ratio"] > base["gain_ratio"]
    assert found["gossip"]["gain_ratio"] > base["gain_ratio"]
    assert found["direct"]["unpopular_pdl_ms"] < found["batching"]["unpopular_pdl_ms"]
    assert found["batching"]["unpopular_pdl_ms"] < found["gossip"]["unpopular_pdl_ms"]


def test_points_that_simulate_the_same_run_once() -> None:
    todo = runs.rows(full=False, matrix=None)
    picked, place_of = runs.distinct(todo)
    assert len(picked) < len(todo) == len(place_of)
    row = {"experiment": "x", "value": 0.0, "topology": 1, "workload": 1, "matrix": ""}
    half = replace(SMALL, mechanism="direct", phi=0.1, throughput_per_s=200.0)
    pair = [{**row, **asdict(point)} for point in (replace(SMALL, mechanism="direct"), half)]
    assert len(runs.distinct(pair)[0]) == 1
    first, second = map(runs.run_point, pair)
    assert {**first, **pair[1]} == second
    assert len(runs.distinct([{**r, "queues": True} for r in pair])[0]) == 2


def test_direct_sends_can_cost_their_sender(spark: Any) -> None:
    row = {"experiment": "x", "value": 0.0, "topology": 1, "workload": 1, "matrix": ""}
    busy = replace(SMALL, mechanism="direct", queues=True, phi=0.02, throughput_per_s=800.0)
    points = [{**row, **asdict(replace(busy, direct_cost=cost))} for cost in (0.0, 2.0)]
    free, dear = single_runs.metrics_of(spark, runs.run_point, points)
    assert dear["deliveries"] == free["deliveries"]
    assert dear["queue"] > 2 * free["queue"]


def test_a_trend_must_hold_at_every_step() -> None:
    trend = runs.Trend("3a", "phi", "gain_ratio", False, ("gossip",))
    for values, holds in (((3, 2, 2), True), ((3, 1, 2), False), ((2, 2, 2), False)):
        table = {("phi", float(n), "gossip"): {"gain_ratio": v} for n, v in enumerate(values)}
        assert runs.followed(trend, table) == {"gossip": holds}


def test_a_matrix_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("1,2\n3,x\n")
    with pytest.raises(InputError, match=r"m\.csv:2: not 2 latencies"):
        files.matrix(path, "round-trip")
    path.write_text("1,2\n")
    with pytest.raises(InputError, match="1 rows for 2 columns"):
        files.matrix(path, "round-trip")[1]


def test_king_lines_become_a_matrix_with_its_gaps_filled(tmp_path: Path) -> None:
    path = tmp_path / "king.txt"
    path.write_text("# from to us\n1 2 4000\n2 3 6000\n1 4 -1\n3 4 2000\n")
    matrix = files.matrix(path, "round-trip")[1]
    assert matrix[0].tolist() == [0, 2000, 5000, 6000]
    assert (matrix == matrix.T).all()
    path.write_text("1 2 4000\n3 4 2000\n")
    with pytest.raises(InputError, match="not connected"):
        files.matrix(path, "round-trip")
    path.write_text("1 2\n")
    with pytest.raises(InputError, match="or lines from,to,value"):
        files.matrix(path, "round-trip")[1]


def test_zipf_is_over_classes_or_over_publishers() -> None:
    """Section 5.1: the popularity of classes follows Zipf's law; or that of publishers."""
    point = Point(zipf=1.0, publishers=200)
    by_class = weights(point, np.random.default_rng(1))
    classes = np.random.default_rng(1).integers(0, CLASSES, 200)
    shares = np.bincount(classes, by_class, minlength=CLASSES)
    assert shares == pytest.approx((1 / np.arange(1, 21)) / (1 / np.arange(1, 21)).sum())
    for number in range(CLASSES):  # even within a class
        assert len(set(by_class[classes == number])) == 1
    ranked = weights(replace(point, zipf_over="publishers"), np.random.default_rng(1))
    assert ranked[0] / ranked[9] == pytest.approx(10)


def test_brokers_draw_five_throughputs_around_the_middle() -> None:
    drawn = throughputs(Point(brokers=100), seed=1)
    assert sorted(set(drawn)) == pytest.approx([2250, 2375, 2500, 2625, 2750])


def test_the_gossip_model_stands_beside_the_protocol() -> None:
    small = replace(protocol.SMALL.point, brokers=20, subscriptions=400, publishers=8, seconds=12.0)
    sample = replace(protocol.SMALL, point=small)
    overlay = topology(generated_matrix(60, seed=1), 20, 2)
    posed = workload(small, overlay, 2)
    model = protocol.modelled(sample, overlay, posed)
    real = protocol.observed(sample, overlay, posed)
    assert model["deliveries"] == real["deliveries"] > 1000
    assert real["deliveries by gossip"] > 100
    assert model["false positives"] == pytest.approx(real["false positives"], abs=0.1)
