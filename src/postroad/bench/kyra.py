"""Kyra's evaluation: seconds for one point of the paper's size, scheme by scheme.

Seconds are of the clock, the least of three, in this process, once everything is compiled.

Cliques are merged at most once for each server, and each time the nearest two of all pairs are
looked for: up to the third power of the servers. Kyra asks the servers that its publications reach,
which are a share of all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from postroad.bench import growth
from postroad.overlay.transit_stub import transit_stub
from postroad.papers.kyra import runs
from postroad.papers.kyra.published import CONFIGURATION, RATES
from postroad.planning import kyra as planning

SERVERS = (100, 200, 300, 400, 500)


def least(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    took = []
    for _ in range(3):
        began = clock()
        work()
        took.append(clock() - began)
    return min(took)


def network() -> None:
    print("kyra: the network, 500 servers on 2,500 routers")

    def paths() -> None:
        underlay = transit_stub(1)
        _ = underlay.direct_us, underlay.link_into

    print(f"{'draw it':<24}{least(lambda: transit_stub(1)):>9.2f} s")
    print(f"{'and all paths':<24}{least(paths):>9.2f} s")
    direct_us = transit_stub(1).direct_us
    for clique_ms in (100, 500):
        took = least(lambda ms=clique_ms: planning.cliques(direct_us, 1000 * ms))  # type: ignore[misc]
        print(f"{f'cliques of {clique_ms} ms':<24}{took:>9.2f} s")


def points() -> None:
    print("kyra: 1,000 publications, Zipf; seconds per scheme, plan included, and of all")
    print(f"{'interest':<10}" + "".join(f"{scheme:>12}" for scheme in runs.ALL) + f"{'all':>8}")
    for rate in RATES:
        setting = runs.setting(1, 500, 0.0, "zipf", rate, 0)
        clique_ms, trees = CONFIGURATION[rate]
        grouped = runs.cliques(1, 500, 0.0, clique_ms)

        def evaluate(
            scheme: str, setting: Any = setting, grouped: Any = grouped, trees: int = trees
        ) -> None:
            runs.forwarded.cache_clear()
            runs.groups_of.cache_clear()
            runs.evaluate(setting, scheme, grouped, trees)

        evaluate("kyra")
        each = [least(lambda s=scheme: evaluate(s)) for scheme in runs.ALL]  # type: ignore[misc]
        line = "".join(f"{took:>12.2f}" for took in each)
        # FBR and match-early share their messages, the two forms of MBR their groups.
        shared = each[runs.ALL.index("match_early")] + each[runs.ALL.index("mbr_unicast")]
        print(f"{rate:<10.0%}{line}{sum(each) - shared:>8.2f}")


def grown() -> None:
    """Processor time by servers, on networks of as many domains for each."""
    planned, routed = [], []
    rate = RATES[0]
    clique_ms, trees = CONFIGURATION[rate]
    for servers in SERVERS:
        direct_us = transit_stub(1, servers, domains=servers // 25).direct_us
        planned.append(least(lambda: planning.cliques(direct_us, 500_000), time.process_time))  # noqa: B023
        setting = runs.setting(1, servers, 0.0, "zipf", rate, 0)
        grouped = runs.cliques(1, servers, 0.0, clique_ms)
        routed.append(
            least(lambda: runs.evaluate(setting, "kyra", grouped, trees), time.process_time)  # noqa: B023
        )
    print("  " + growth.said("cost of cliques by servers", SERVERS, planned, "2 to 3"))
    print("  " + growth.said("cost of a point of Kyra by servers", SERVERS, routed, "1"))


def main() -> None:
    network()
    points()
    grown()
