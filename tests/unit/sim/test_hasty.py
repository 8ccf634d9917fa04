"""Setting up in haste leaves the same tables and messages, and what follows is the same."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import networks
from postroad.routing import SCHEMES
from postroad.sim.oracle import compare
from postroad.sim.run import run

# Without covering, which messages it takes does not depend on who is first.
PLAIN = ("flooding", "subscription_forwarding", "advertisement_forwarding", "fbr", "unicast")


@pytest.mark.parametrize("name", PLAIN)
def test_haste_changes_nothing_that_is_counted(name: str) -> None:
    compared = 0
    for seed in range(30):
        scenario = networks.scenario(random.Random(seed), name, SCHEMES[name].config())
        workload = scenario.workload
        standing = tuple(replace(o, time_us=None, until_us=None) for o in workload.subscriptions)
        offered = tuple(replace(o, time_us=None, until_us=None) for o in workload.advertisements)
        workload = replace(workload, subscriptions=standing, advertisements=offered)
        slow = replace(scenario, workload=workload, service_us=50)
        hasty = run(replace(slow, hasty=True), check=True)
        compare(slow, [delivery[:2] for delivery in hasty.deliveries]).require()
        usual = run(slow, check=True)
        assert hasty.summary() == usual.summary(), seed
        assert hasty.deliveries == usual.deliveries
        compared += len(usual.deliveries)
    assert compared > 100
