"""How many inputs a second the reference simulator handles, at three sizes of network.

An input is one call of `Router.step`: a client's request or a message that arrives. Seconds
are processor time of this process, the least of three runs. Each row also gives the rate as a
ratio to a bare heap of the same length being filled and emptied, measured in the same run: the
least that any such loop costs.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import replace

from postroad.bench import growth
from postroad.overlay.trees import random_tree
from postroad.routing import SCHEMES
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads import generated

SIZES = [(50, 500), (150, 1_500), (450, 4_500)]
REPEATS = 3


def scenario(brokers: int, publications: int) -> Scenario:
    settings = generated.Generated(200, publications, selectivity=0.05)
    workload = generated.workload(settings, brokers, seed=1)
    return Scenario("flooding", random_tree(brokers, seed=1), workload)


def bare_heap(count: int) -> float:
    """Seconds to push and pop so many events on a heap that holds 1,000."""
    start = time.process_time()
    heap = [(number, number, None) for number in range(1000)]
    for number in range(count):
        heapq.heappush(heap, (number * 7919 % 10_007, number, None))
        heapq.heappop(heap)
    return time.process_time() - start


def main() -> None:
    print("simulator: inputs per second of the reference simulator")
    print(f"{'scheme':<26}{'brokers':>8}{'inputs':>11}{'inputs/s':>11}{'of a bare heap':>16}")
    spent: dict[str, list[float]] = {}
    for brokers, publications in SIZES:
        base = scenario(brokers, publications)
        for name in SCHEMES:
            seconds = float("inf")
            for _ in range(REPEATS):
                start = time.process_time()
                result = run(replace(base, scheme=name))
                seconds = min(seconds, time.process_time() - start)
            count = result.steps_count
            spent.setdefault(name, []).append(seconds / count)
            share = bare_heap(count) / seconds
            print(f"{name:<26}{brokers:>8}{count:>11,}{count / seconds:>11,.0f}{share:>16.1%}")
    sizes = [brokers for brokers, _ in SIZES]
    for name, costs in spent.items():
        print("  " + growth.said(f"{name}: cost of an input by brokers", sizes, costs, "0"))
