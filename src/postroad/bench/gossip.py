"""PopSub's gossip on a network of the paper's size: the kernel's model and the protocol itself.

Beside each other: what either counts, and the processor time it takes. Then a smaller network for
longer and longer: what it takes grows with the publications, but for the subscriptions, which
settle once.
"""

from __future__ import annotations

import time
from dataclasses import replace

from postroad.bench import growth
from postroad.overlay.wide_area import generated_matrix, topology
from postroad.papers.popsub import protocol
from postroad.papers.popsub.workload import workload

SECONDS = (2.5, 5.0, 10.0, 20.0)


def spent_s(seconds: float) -> tuple[int, float]:
    """How many publications the protocol has on the smaller network in so long, and its seconds of
    processor time."""
    sample = protocol.SMALL
    point = replace(sample.point, seconds=seconds)
    overlay = topology(generated_matrix(sample.hosts, seed=1), point.brokers, 1)
    posed = workload(point, overlay, 1)
    began = time.process_time()
    protocol.observed(replace(sample, point=point), overlay, posed)
    return len(posed.time_us), time.process_time() - began


def main() -> None:
    point = protocol.LARGE.point
    print(
        f"\nPopSub's gossip: {point.brokers} brokers, {point.subscriptions:,} subscriptions, "
        f"{point.seconds:.0f} s of publications, one network"
    )
    began = time.process_time()
    rows = protocol.table(protocol.LARGE, 1)
    print(f"  {'':34} {'model':>10} {'protocol':>10} {'off':>8}")
    for row in rows:
        print(f"  {row['']:34} {row['model']:>10} {row['protocol']:>10} {row['off']:>8}")
    print(f"  {time.process_time() - began:.0f} CPU s in all")
    sizes, costs = zip(*map(spent_s, SECONDS), strict=True)
    what = f"{protocol.SMALL.point.brokers} brokers: cost of the protocol by publications"
    print("  " + growth.said(what, sizes, costs, "below 1"))
