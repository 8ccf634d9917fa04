"""No scheme is below the lower bounds, whatever it does; forwarding on the tree reaches them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

import networks
from measured_by_hand import measured
from networks import NAMES, VARIANTS
from postroad.comparison.optimum import least
from postroad.comparison.runs import physical
from postroad.overlay.transit_stub import transit_stub
from postroad.sim.facts import facts
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Workload

CASES = 25
ALL = ("copies", "state_mean", "state_max", "deliveries")
LOADS = ("stress_mean", "stress_max")  # count messages, and a batch is one with several copies
DELAYS = ("delay_p50_ms", "delay_p90_ms", "delay_p99_ms")


def standing(draw: random.Random, name: str, config: Any) -> Scenario:
    """A scenario in which subscriptions stand from the beginning: all that matches is owed."""
    scenario = networks.scenario(draw, name, config)
    workload = scenario.workload
    stand = tuple(replace(one, time_us=None, until_us=None) for one in workload.subscriptions)
    return replace(scenario, workload=Workload(stand, workload.advertisements, workload.postings))


@pytest.mark.parametrize(("name", "config"), VARIANTS, ids=NAMES)
def test_no_scheme_is_below(name: str, config: Any) -> None:
    for seed in range(CASES):
        scenario = standing(random.Random(seed), name, config)
        if not scenario.workload.postings:
            continue
        bound, figures = least(scenario), measured(run(scenario), (), 10)
        batched = figures["copies"] > figures["messages"]
        for measure in (
            *ALL,
            *(() if batched else LOADS),
            *(DELAYS if figures["deliveries"] else ()),
        ):
            assert figures[measure] >= bound[measure] - 1e-9, (seed, measure)
        if name == "subscription_forwarding":
            assert figures["copies"] == pytest.approx(bound["tree_copies"])
            assert figures["stress_max"] == pytest.approx(bound["tree_stress_max"])


@pytest.mark.parametrize(("name", "config"), VARIANTS, ids=NAMES)
def test_no_scheme_crosses_fewer_links_of_the_network_below(name: str, config: Any) -> None:
    below = transit_stub(3, 9, domains=3, transit_routers=3, stubs=1, stub_routers=3,
                         multi_homed=0.5).overlay()  # fmt: skip
    if getattr(config, "membership", "plan") == "messages":  # ways here are longer than four beats
        config = replace(config, beat_s=2.0, grace_s=1.0)
    for seed in range(4):
        draw = random.Random(seed)
        scenario = standing(draw, name, config)
        moved = replace(scenario, overlay=below)
        counted = facts(run(moved), ())
        crossed = physical(counted, below) / max(1, len(moved.workload.postings))
        bound = least(moved)
        assert bound["physical"] <= bound["physical_most"]
        assert crossed >= bound["physical"] - 1e-9, seed
