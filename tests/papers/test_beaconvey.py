"""Figure 2 of the BeaConvey paper hop by hop, and what the paper claims of paths and orderings.

Sixteen nodes; {1, 4, 7, 10, 12, 14} subscribe to t; node 1 has a message for [1, 11).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import single_runs
from postroad.filters import parse
from postroad.kernels import beaconvey as compiled
from postroad.model import Publication, Subscription
from postroad.overlay.small_world import SmallWorld, as_overlay, chord
from postroad.papers.beaconvey import runs
from postroad.planning.swico import from_pairs
from postroad.routing import SCHEMES, Interests
from postroad.routing.base import Received, Send, Subscribe
from postroad.routing.beaconvey import RangeMessage
from postroad.sim.engine import Simulator

SUBSCRIBERS = [1, 4, 7, 10, 12, 14]
WANTED = parse("class = 't'")
NEWS = Publication("p", "1", {"class": "t"})
Hop = tuple[int, int, int, int]


def figure_2(routing: str, fingers_of_1: list[int]) -> tuple[set[Hop], list[int], dict[int, int]]:
    """Hops (from, to, low, high), pure forwarders and hops to each subscriber."""
    fingers = chord(16)
    fingers[1] = fingers_of_1
    fingers[5, 1] = 8  # so that 5 leads to 8, as in Figure 2(d)
    fingers[9, 3] = 2  # links work both ways, and 9 must not be a neighbour of 1 by its own
    ring = as_overlay(SmallWorld(np.arange(16), fingers), list(map(str, range(16))), 1000)
    scheme = SCHEMES["beaconvey"]
    interests = Interests([(node, WANTED) for node in SUBSCRIBERS])
    hops: set[Hop] = set()
    received: list[int] = []

    def watch(now: int, broker: int, given: Any, effects: Any) -> None:
        if isinstance(given, Received):
            received.append(broker)
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, RangeMessage):
                message = effect.message
                hops.add((broker, effect.peer, message.low, message.high))

    simulator = Simulator(
        scheme.plan(ring, interests, scheme.config(routing=routing), 0), observer=watch, check=True
    )
    for node in SUBSCRIBERS:
        simulator.at(0, node, Subscribe(Subscription(str(node), WANTED)))
    simulator.run()
    simulator.at(simulator.now, 1, Received(RangeMessage(NEWS, 1, 11, 0), 0))
    simulator.run()
    received.remove(1)
    paths = {broker: path for _, _, broker, _, path, _ in simulator.deliveries}
    return hops, sorted(node for node in received if node not in SUBSCRIBERS), paths


def test_figure_2a_po_sends_to_the_nearest_subscriber_and_the_matched_finger() -> None:
    hops, pure, paths = figure_2("po", [2, 3, 7, 9])
    assert {(1, 3, 4, 7), (3, 4, 4, 7), (1, 7, 7, 11)} <= hops
    # Node 4 is alone in [4, 7); node 7 sends [10, 11) to its nearest subscriber, over 9.
    assert {hop for hop in hops if hop[0] in (4, 7)} == {(7, 9, 10, 11)}
    assert hops - {(1, 3, 4, 7), (3, 4, 4, 7), (1, 7, 7, 11)} == {(7, 9, 10, 11), (9, 10, 10, 11)}
    assert pure == [3, 9]
    assert paths == {1: 0, 4: 2, 7: 1, 10: 3}


def test_figure_2b_po_without_a_matched_finger_goes_on_from_subscriber_to_subscriber() -> None:
    hops, _, paths = figure_2("po", [2, 3, 5, 9])
    assert {hop for hop in hops if hop[0] == 1} == {(1, 3, 4, 11)}
    assert paths[4] < paths[7] < paths[10]


@pytest.mark.parametrize("routing", ["pal", "pie"])
def test_figure_2c_a_finger_in_the_distant_range_is_the_pivot(routing: str) -> None:
    hops, pure, paths = figure_2(routing, [2, 3, 5, 9])
    assert {hop[2:] for hop in hops if hop[0] == 1} == {(4, 9), (9, 11)}
    assert (1, 9, 9, 11) in hops
    assert (9, 10, 10, 11) in hops
    assert paths[10] == 2
    assert 9 in pure


def test_figure_2d_pal_takes_a_pivot_in_any_case_and_pie_does_not() -> None:
    hops, pure, paths = figure_2("pal", [2, 3, 5, 15])
    assert {(1, 5, 8, 11), (5, 8, 8, 11)} <= hops
    assert {hop[2:] for hop in hops if hop[0] == 1} == {(4, 8), (8, 11)}
    assert Counter(pure)[8] == 1
    assert 5 in pure
    assert set(paths) == {1, 4, 7, 10}
    hops, pure, paths = figure_2("pie", [2, 3, 5, 15])
    assert {hop[2:] for hop in hops if hop[0] == 1} == {(4, 11)}
    assert set(paths) == {1, 4, 7, 10}


def test_po_grows_linearly_where_pal_grows_like_a_power_of_the_logarithm() -> None:
    """Multiples of 3 subscribe: no two of them are a power of two apart, so none is another's
    finger in Chord, and Po goes from each to the next (section 4.2.1)."""
    longest: dict[str, list[int]] = {"po": [], "pal": []}
    sizes = [96, 384, 1536, 6144]
    for count in sizes:
        world = SmallWorld(np.arange(count), chord(count))
        subscribers = np.arange(0, count, 3)
        interests = from_pairs(subscribers, np.zeros(len(subscribers)), count, 1)
        for routing, found in longest.items():
            outcome = compiled.route(world, interests, routing, [0], [0])
            assert outcome.deliveries[0] == len(subscribers) - 1
            found.append(int(outcome.path_max[0]))
    assert all(path > count / 3 for path, count in zip(longest["po"], sizes, strict=True))
    for path, count in zip(longest["pal"], sizes, strict=True):
        assert path <= np.log2(count) ** 1.5, longest


SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.mark.parametrize(
    ("workload", "graph"),
    [
        ("zipf", ""),
        ("unif", ""),
        ("fb", "facebook_combined.txt.gz"),
        ("tw", "twitter_edges_unique.txt.gz"),
    ],
)
def test_the_orderings_that_the_paper_claims_hold(spark: Any, workload: str, graph: str) -> None:
    if graph and not (SHARED / graph).is_file():
        pytest.skip(f"{graph} is not there")
    rows = [
        {
            "workload": workload,
            "nodes": 1000,
            "topics": 1000,
            "graph": str(SHARED / graph) if graph else "",
            "long": "chord",
            "publications": 1000,
            "overlay": overlay,
            "seed": 3,
        }
        for overlay in ("SL", "S", "L", "-")
    ]
    replicates = runs.replicates(rows)
    found = single_runs.measured(spark, runs.run_point, replicates, runs.BASELINES)
    measured = runs.Means(found, replicates)
    claims = runs.claims(measured)
    assert claims
    for claim in claims:
        assert claim.holds, claim
    (point,) = measured.points(workload)
    assert measured.ratio(workload, point, "BeaConvey(SL, Pie)", "overhead") < 0.8
