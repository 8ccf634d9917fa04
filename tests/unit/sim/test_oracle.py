"""What a run owes around a change, on links that were measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.filters import EVERYTHING
from postroad.overlay import from_parents
from postroad.sim.oracle import compare, expected
from postroad.sim.run import run
from postroad.sim.scenario import Deviations, Scenario
from postroad.workloads.model import Interest, Posting, Workload

WORKLOAD = Workload(
    (
        Interest("stays", 1, "s", EVERYTHING),
        Interest("leaves", 1, "l", EVERYTHING, until_us=1_010_000),
    ),
    (),
    (Posting(1_000_000, 0, "p", "near", {}), Posting(900_000, 0, "p", "before", {})),
)
CHAIN = Scenario("flooding", from_parents([0, 0], 1000), WORKLOAD, blind=True)


@pytest.mark.parametrize("pair", [(0, 1), (1, 0)])
def test_a_link_that_was_late_may_be_late_again(pair: tuple[int, int]) -> None:
    """A publication 10 ms before a subscription ends is owed over a link of 1 ms, but not over one
    that has taken 41 ms as well."""
    both = {(("p", name), who) for name in ("near", "before") for who in ("stays", "leaves")}
    assert expected(CHAIN)[0] == both
    late = replace(CHAIN, measured=Deviations({pair: [0, 0, 40_000]}, False))
    owed, allowed = expected(late)
    assert allowed == {(("p", "near"), "leaves")}
    assert owed == both - allowed


def test_a_late_message_is_not_told_as_missing() -> None:
    late = replace(CHAIN, measured=Deviations({(0, 1): [40_000]}, False))
    result = run(late)
    assert (("p", "near"), "leaves") not in {delivery[:2] for delivery in result.deliveries}
    assert result.summary()["missing"] == 0
    compare(late, [delivery[:2] for delivery in result.deliveries]).require()
