"""PopSub's gossip on a network of the paper's size: the kernel's model and the protocol itself.

Beside each other: what either counts, and the processor time it takes.
"""

from __future__ import annotations

import time

from postroad.papers.popsub import protocol


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
