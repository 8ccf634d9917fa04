"""PopSub's kernel: steps a second of processor time at the paper's default point and in overload.

Seconds are processor time of this process, the least of three; a step is a message that a broker
handles, a publication or a timer.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace

from postroad.bench import growth
from postroad.kernels import popsub as kernel
from postroad.papers.popsub import runs
from postroad.papers.popsub.workload import Point

POINTS = {"default": runs.BASE, "overload": runs.OVERLOAD}
BROKERS = (75, 150, 300)
REPEATS = 3


def measured(point: Point) -> tuple[int, float]:
    """The steps of a run, and its least seconds."""
    setting = runs.setting({**asdict(point), "matrix": "", "topology": 0, "workload": 0})
    least = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        counts = kernel.simulate(*setting)
        least = min(least, time.process_time() - start)
    return counts.steps, least


def main() -> None:
    print("popsub: the compiled kernel, seconds of processor time")
    print(f"{'point':<10}{'mechanism':<10}{'steps':>12}{'seconds':>9}{'steps/s':>13}")
    for mechanism in runs.MECHANISMS:  # compile
        measured(replace(runs.OVERLOAD, brokers=20, subscriptions=200, mechanism=mechanism))
    for name, point in POINTS.items():
        for mechanism in runs.MECHANISMS:
            steps, took = measured(replace(point, mechanism=mechanism))
            print(f"{name:<10}{mechanism:<10}{steps:>12,}{took:>9.2f}{steps / took:>13,.0f}")
    costs = []
    for brokers in BROKERS:
        steps, took = measured(replace(runs.OVERLOAD, brokers=brokers))
        costs.append(took / steps)
    print("  " + growth.said("overload, tree: cost of a step by brokers", BROKERS, costs, "0"))
