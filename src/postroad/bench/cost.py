"""Hops per second of the compiled kernels and of the reference simulator; closed-form answers.

Every figure is the best of three, after compilation, in processor time of one core.

A hop of a kernel costs the same in a larger tree but for what the caches no longer hold, and a
closed form is of a level of the tree, not of its brokers: both should not grow with brokers.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from postroad.bench import growth
from postroad.cost import estimate, shapes
from postroad.filters import parse
from postroad.kernels import flooding, workload
from postroad.kernels import subscription_forwarding as kernel
from postroad.overlay import rooted, trees
from postroad.overlay.rooted import Rooted
from postroad.papers.subscription_forwarding_model import pictures
from postroad.papers.subscription_forwarding_model.published import Point
from postroad.papers.subscription_forwarding_model.runs import simulate, tree_of
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest, Posting, Workload

SEED = 1
HEIGHTS = (5, 6, 7, 8)  # of trees of four children each


def main() -> None:
    print("Tree kernels, million hops per second on one core")
    print(f"  {'brokers':>9} {'σ=μ':>6} {'subscriptions':>14} {'publications':>13} {'flooding':>9}")
    for fanout, height, chance in ((4, 7, 0.02), (4, 7, 0.1), (10, 5, 0.02), (10, 5, 0.1)):
        tree = tree_of(Point(fanout, height), SEED)
        print(
            f"  {tree.brokers_count:>9,} {chance:>6g} {_subscribing(tree, chance):>14.0f} "
            f"{_publishing(tree, chance):>13.0f} {_flooding(tree):>9.0f}"
        )
    grown = [tree_of(Point(4, height), SEED) for height in HEIGHTS]
    sizes = [tree.brokers_count for tree in grown]
    costs = [1 / _publishing(tree, 0.1) for tree in grown]
    print("  " + growth.said("cost of a publication's hop by brokers", sizes, costs, "0"))
    print("One run, F_p = 100, F_e = 1,000, σ = 0.02, μ = 0.1, drawing of the workload included")
    for point in (Point(4, 7), Point(10, 5)):
        tree = tree_of(point, SEED)
        spent = _best(lambda: simulate(point, tree, SEED))  # noqa: B023 - called at once
        print(f"  {point.brokers:>9,} brokers {spent:8.2f} s")
    _beside_the_reference()
    print("Closed form")
    shape = shapes.full(10, 6)
    workload_ = (estimate.uniform(0.02, 100), estimate.uniform(0.1, 1000))
    spent = _best(lambda: estimate.of_shape(shapes.full(10, 6), *workload_))
    print(f"  all of n = {int(shape.brokers):,} {spent * 1e6:10.0f} µs")
    shaped = [shapes.full(10, height) for height in (2, 3, 4, 5, 6)]
    costs = [_best(lambda: estimate.of_shape(shape, *workload_)) for shape in shaped]  # noqa: B023
    sizes = [int(shape.brokers) for shape in shaped]
    print("  " + growth.said("cost of a closed form by brokers", sizes, costs, "0"))
    spent = _best(lambda: (pictures.ratio_surface(), pictures.zipf_surface()))
    print(f"  surfaces of Figures 6 to 8 {spent:7.3f} s")


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def _subscribing(tree: Rooted, chance: float) -> float:
    """Subscription hops, without the time it takes to draw who subscribes."""
    drawn = [workload.subscribers(tree, chance, SEED, filter) for filter in range(50)]
    network = kernel.FilterState(tree)
    network.subscribe(drawn[0])

    def work() -> None:
        for members in drawn:
            network.reset()
            network.subscribe(members)

    before = network.subscriptions.traffic
    work()
    return (network.subscriptions.traffic - before) / _best(work) / 1e6


def _publishing(tree: Rooted, chance: float) -> float:
    """Publication hops: runs with publications less the same runs without."""
    filters = np.full(10, chance)
    silent, busy = np.zeros(10), np.full(10, 500)
    hops = kernel.simulate(tree, filters, busy, SEED).publications.traffic
    with_them = _best(lambda: kernel.simulate(tree, filters, busy, SEED))
    return hops / (with_them - _best(lambda: kernel.simulate(tree, filters, silent, SEED))) / 1e6


def _flooding(tree: Rooted) -> float:
    publishers = [workload.publisher(tree, SEED, number) for number in range(500)]
    hops = flooding.publish(tree, publishers).traffic
    return hops / _best(lambda: flooding.publish(tree, publishers)) / 1e6


def _beside_the_reference() -> None:
    """The same small workload through the reference simulator and through the kernel."""
    overlay = trees.full_tree(4, 4)
    tree = rooted.from_overlay(overlay)
    filters, each = 20, 20
    subscriptions: list[Interest] = []
    postings: list[Posting] = []
    for number in range(filters):
        wanted = parse(f"pattern = {number}")
        for member in workload.subscribers(tree, 0.1, SEED, number).tolist():
            name = f"s{len(subscriptions)}"
            subscriptions.append(Interest(name, int(tree.broker[member]), name, wanted))
        for _ in range(each):
            at = int(tree.broker[workload.publisher(tree, SEED, len(postings))])
            postings.append(
                Posting(len(postings) * 20_000, at, "p", str(len(postings)), {"pattern": number})
            )
    asked = Workload(tuple(subscriptions), (), tuple(postings))
    scenario = Scenario("subscription_forwarding", overlay, asked)

    def compiled() -> kernel.ForwardingCounts:
        return kernel.simulate(tree, np.full(filters, 0.1), np.full(filters, each), SEED)

    outcome = compiled()
    hops = outcome.subscriptions.traffic + outcome.publications.traffic
    counted = sum(sum(link.messages.values()) for link in run(scenario).links)
    assert counted == hops, (counted, hops)
    reference, ours = hops / _best(lambda: run(scenario)), hops / _best(compiled)
    print(f"The same {hops:,} hops on {tree.brokers_count} brokers, hops per second")
    print(f"  reference simulator {reference:14,.0f}")
    print(f"  compiled kernel     {ours:14,.0f}   {ours / reference:,.0f} times as many")
