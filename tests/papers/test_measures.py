"""The papers' measures, which Spark makes of the facts that runs write, against numpy's from what
the kernels and the simulator returned."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from postroad.cost.service import Costs
from postroad.kernels import beaconvey as routes
from postroad.kernels import kyra as kyra_kernel
from postroad.kernels import popsub as popsub_kernel
from postroad.kernels import swico as planner
from postroad.overlay.wide_area import topology
from postroad.papers.beaconvey import runs as beaconvey
from postroad.papers.kyra import runs as kyra
from postroad.papers.kyra.workload import VALUES
from postroad.papers.pop_grape import runs as pop_grape
from postroad.papers.popsub import runs as popsub
from postroad.papers.popsub.workload import Point, throughputs, workload
from postroad.papers.subscription_forwarding_model import runs as model
from postroad.pipeline.definitions import OF_PAPERS
from postroad.pipeline.measure import fact_metrics
from postroad.pipeline.schemas import FACTS
from postroad.planning.swico import support
from postroad.sim.run import run

pytestmark = pytest.mark.spark
Case = tuple[dict[str, Any], dict[str, float]]
"""What a run answers, and what it must measure."""


def model_case() -> Case:
    row = {"fanout": 3.0, "height": 4, "sigma": 0.1, "mu": 0.2, "seed": 5}
    point = model.Point(**{name: value for name, value in row.items() if name != "seed"})
    tree = model.tree_of(point, 5)
    outcome = model.simulate(point, tree, 5)
    predicted = model.predicted_load(point, tree)
    off = predicted[0] - outcome.subscriptions.load
    return model.run_point(row), {
        "traffic_e": outcome.publications.traffic,
        "predicted_traffic_p": model.predicted_traffic(point)[0],
        "load_difference_p": off.mean(),
        "load_deviation_p": off.std(),
        "load_deviation_percent_p": 100 * off.std() / outcome.subscriptions.load.max(),
    }


def kyra_case() -> Case:
    row = {"seed": 3, "servers": 20, "distribution": "zipf", "rate": 0.1, "clique_ms": 50,
           "trees": 3, "schemes": "kyra mbr broadcast"}  # fmt: skip
    at = kyra.setting(0, 20, 0.0, "zipf", 0.1, 3)
    wanted, grouped = at.interests.wanted, kyra.cliques(0, 20, 0.0, 50)
    laid = kyra_kernel.routes(kyra.layout_of(at, "kyra", grouped, 3), VALUES)
    outcome = kyra_kernel.kyra(laid, wanted, at.publishers, at.values)
    stress = kyra_kernel.stress(outcome.messages)
    charged = kyra_kernel.charge(at.underlay, outcome.messages)
    carried = charged.link_messages[charged.link_messages > 0]
    everywhere = kyra_kernel.charge_multicast(
        at.underlay, np.ones_like(wanted), at.publishers, at.values
    )
    return kyra.run_point(row), {
        "kyra|storage": kyra_kernel.kept(laid, wanted).mean() / wanted.sum(),
        "kyra|processing": outcome.matches.mean(),
        "kyra|node_mean": stress.mean(),
        "kyra|node_max": stress.max(),
        "kyra|node_p80": np.percentile(stress, 80),
        "kyra|link_mean": carried.mean(),
        "kyra|link_max": carried.max(),
        "kyra|link_mean_all": charged.link_messages.mean(),
        "kyra|nru": charged.used_us / at.ideal.used_us,
        "broadcast|nru": everywhere.used_us / at.ideal.used_us,
        "clique_mean": np.mean([len(clique) for clique in grouped]),
    }


def pop_grape_case() -> Case:
    point = pop_grape.Point(method="load 100", publishers=2, per_publisher=10, minutes=3.0)
    row = {"experiment": "", "quotes": "", "matrix": "", **asdict(point)}
    result = run(pop_grape.scenario_of(row))
    late = [one for one in result.deliveries if result.published_us[one[0]] >= 120_000_000]
    delays: dict[str, list[int]] = {}
    for key, subscription, _, time_us, *_ in late:
        delays.setdefault(subscription, []).append(time_us - result.published_us[key])
    messages: Counter[str] = Counter()
    for link in result.links:
        messages.update(link.messages)
    relocating = sum(messages[kind] for kind in pop_grape.RELOCATING)
    return pop_grape.run_point(row), {
        "delay_ms": np.mean([np.mean(own) for own in delays.values()]) / 1000,
        "hops": np.mean([hops for *_, hops, _ in late]),
        "overhead": 100 * relocating / messages.total(),
        "table_entries": np.mean([broker.table_entries_max for broker in result.brokers]),
        "wait_ms": np.mean([moved.wait_us for moved in result.moves]) / 1000,
        "moves": len(result.moves),
        "lost": 0,
    }


def popsub_case() -> Case:
    point = Point(brokers=30, subscriptions=500, publishers=20, seconds=4.0, throughput_per_s=150.0,
                  mechanism="gossip", queues=True)  # fmt: skip
    row = {"topology": 1, "workload": 1, "matrix": "", **asdict(point)}
    overlay = topology(popsub._matrix(""), 30, 1)
    tau = throughputs(point, 1)
    costs = Costs(point.batch_cost, point.gossip_cost, point.direct_cost)
    counts = popsub_kernel.simulate(
        overlay,
        workload(point, overlay, 1001),
        popsub_kernel.Settings(
            mechanism="gossip", capacity_per_s=tau * point.phi, entries=point.entries,
            rule=point.rule, service_us=np.round(1e6 / tau).astype(np.int64),
            batch_cost=costs.table("batch", popsub.LARGEST),
            gossip_cost=costs.table("gossip", popsub.LARGEST), direct_cost=costs.sending, seed=1,
        ),
    )  # fmt: skip
    assert len(counts.unpopular_us)
    return popsub.run_point(row), {
        "gain_ratio": counts.gain / counts.forwards,
        "deliveries": counts.deliveries,
        "messages": sum(counts.messages.values()),
        "unpopular_deliveries": len(counts.unpopular_us),
        "unpopular_pdl_ms": np.percentile(counts.unpopular_us, 99) / 1000,
        "popular_pdl90_ms": np.percentile(counts.popular_us, 90) / 1000,
        "gossip_false_positives": counts.gossip_false / counts.gossip_received,
        "matches_per_gossip": (counts.gossip_received - counts.gossip_false) / counts.gossips,
        "queue": counts.queued_length / max(1, counts.queued),
    }


def beaconvey_case() -> Case:
    row = {"workload": "zipf", "nodes": 60, "topics": 40, "graph": "", "long": "chord",
           "publications": 80, "overlay": "SL", "seed": 2}  # fmt: skip
    interests = beaconvey.interests_of("zipf", 60, 40, "", 2)
    world = planner.build(interests, "SL", "chord", 2)
    topics, publishers = beaconvey.publications(interests, 80, 2)
    outcome = routes.route(world, interests, "pie", topics, publishers)
    within = outcome.path_sum / np.maximum(1, outcome.deliveries)
    relays = outcome.messages - outcome.deliveries - (outcome.own_path > 0)
    return beaconvey.run_point(row), {
        "BeaConvey(SL, Pie)|overhead": outcome.pure_forwards.mean(),
        "BeaConvey(SL, Pie)|path_mean": outcome.path_sum.sum() / outcome.deliveries.sum(),
        "BeaConvey(SL, Pie)|path_publication": within.mean(),
        "BeaConvey(SL, Pie)|path_max": outcome.path_max.max(),
        "BeaConvey(SL, Pie)|overhead_every_relay": relays.mean(),
        "tco_support": support(interests, planner.components_count(interests, world)),
    }


def test_measures_of_all_papers_are_those_computed_by_hand(spark: Any) -> None:
    """Delays are at most 0.1% too large, percentiles of few between two of them."""
    cases = {
        "subscription_forwarding_model": model_case(),
        "kyra": kyra_case(),
        "pop_grape": pop_grape_case(),
        "popsub": popsub_case(),
        "beaconvey": beaconvey_case(),
    }
    assert set(cases) == set(OF_PAPERS)
    rows = []
    for paper, (answer, _) in cases.items():
        facts = list(zip(*answer["facts"].values(), strict=True))
        assert {name for *_, name, _ in facts} <= {
            f"{paper}.{one}" for one in OF_PAPERS[paper].facts
        }
        rows += [(paper, *fact) for fact in facts]
    table = spark.createDataFrame(rows, FACTS).repartition(3)
    found: dict[str, dict[str, float]] = {paper: {} for paper in cases}
    for row in fact_metrics(table, list(cases)).collect():
        found[row["run_id"]][row["metric"]] = row["value"]
    for paper, (_, by_hand) in cases.items():
        for metric, value in by_hand.items():
            rel = 1e-3 if "pdl" in metric else 1e-7
            assert found[paper][metric] == pytest.approx(value, rel=rel), (paper, metric)
    assert "mbr|storage" not in found["kyra"]
    assert "broadcast|node_mean" not in found["kyra"]
    assert "link_mean" not in found["kyra"]
    assert not any(name.endswith("|tco_support") for name in found["beaconvey"])
