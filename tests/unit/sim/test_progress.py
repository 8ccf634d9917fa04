"""A run that tells how far it is comes to the same counters as one that does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroad.sim.run import run
from postroad.sim.scenario import from_dict


@pytest.mark.parametrize("scheme", ["popsub", "subscription_forwarding"])
@pytest.mark.parametrize("until", [None, 2.0])
def test_progress_changes_nothing(scheme: str, until: float | None) -> None:
    settings = {
        "scheme": scheme,
        "overlay": {"kind": "random_tree", "brokers": 12},
        "brokers": {"rate_per_s": 300, "buffer": 4},
        "workload": {"generate": {"subscriptions": 60, "publications": 400, "rate_per_s": 120}},
        **({} if until is None else {"until": until}),
    }
    scenario = from_dict(settings, "here", Path())
    told: list[tuple[int, int]] = []
    quiet, watched = run(scenario), run(scenario, progress=lambda *now: told.append(now))
    assert watched.summary() == quiet.summary()
    assert watched.counters() == quiet.counters()
    assert watched.deliveries == quiet.deliveries
    assert watched.duration_us == quiet.duration_us
    assert told == sorted(told)
    assert len(told) > 50
