"""Gossip figures of the protocol itself (views, digests, membership) beside the kernel's model.

The routers are too slow for the paper's 200 brokers, so both run the same smaller workloads: 40
brokers, 20 publishers, 1,500 subscriptions, 20 seconds, with τ smaller in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from postroad.filters import parse
from postroad.kernels import popsub as kernel
from postroad.overlay import Overlay
from postroad.overlay.wide_area import generated_matrix, topology
from postroad.papers.popsub.workload import Point, workload
from postroad.routing.popsub import Config, PopSub
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest, Posting, Workload

POINT = Point(
    brokers=40, publishers=20, subscriptions=1500, seconds=20.0, throughput_per_s=250.0,
    throughput_spread=0.0, phi=0.1, mechanism="gossip",
)  # fmt: skip
HOSTS = 100
INTERVAL_S = 2.0  # of gossip: a fifth of the paper's, for a run that is a third as long


def sample(networks: int) -> list[dict[str, str]]:
    """Per metric the means over so many networks: the model's and the protocol's."""
    pairs = [_pair(seed) for seed in range(networks)]
    rows = []
    for metric in pairs[0][0]:
        model, protocol = (float(np.mean([pair[n][metric] for pair in pairs])) for n in (0, 1))
        off = f"{100 * (protocol / model - 1):+.1f}%" if model else ""
        rows.append(
            {"": metric, "model": f"{model:.4g}", "protocol": f"{protocol:.4g}", "off": off}
        )
    return rows


def _pair(seed: int) -> tuple[Mapping[str, float], Mapping[str, float]]:
    overlay = topology(generated_matrix(HOSTS, seed=1), POINT.brokers, seed)
    posed = workload(POINT, overlay, seed)
    return modelled(overlay, posed), observed(overlay, posed)


def modelled(overlay: Overlay, posed: kernel.WorkloadArrays) -> dict[str, float]:
    counts = kernel.simulate(
        overlay,
        posed,
        kernel.Settings(
            "gossip",
            POINT.throughput_per_s * POINT.phi,
            gossip_interval_us=round(INTERVAL_S * 1e6),
        ),
    )
    return _measures(
        counts.deliveries, counts.unpopular_us, counts.gossips, counts.gossip_received,
        counts.gossip_false, counts.gossip_groups,
    )  # fmt: skip


def observed(overlay: Overlay, posed: kernel.WorkloadArrays) -> dict[str, float]:
    config = Config(
        unpopular="gossip",
        phi=POINT.phi,
        throughput_per_s=POINT.throughput_per_s,
        gossip_interval_s=INTERVAL_S,
    )
    result = run(Scenario("popsub", overlay, in_filters(posed), config))
    delays = [
        time_us - result.published_us[key]
        for key, _, _, time_us, _, via in result.deliveries
        if via == "gossip"
    ]
    routers = [broker.router for broker in result.brokers]
    total: dict[str, float] = {}
    for router in routers:
        assert isinstance(router, PopSub)
        for name, value in router.measures.items():
            total[name] = total.get(name, 0) + value
    own = sum(
        group.publisher == router.broker
        for router in routers
        if isinstance(router, PopSub)
        for group in router.groups.values()
    )
    return _measures(
        len(result.deliveries), np.array(delays), total["gossips"], total["gossip_publications"],
        total["gossip_false_positives"], own,
    )  # fmt: skip


def _measures(
    deliveries: int, delays_us: kernel.Ints, gossips: float, received: float, false: float,
    groups: float,
) -> dict[str, float]:  # fmt: skip
    return {
        "deliveries": deliveries,
        "deliveries by gossip": len(delays_us),
        "groups": groups,
        "false positives": false / max(1, received),
        "matches per gossip": (received - false) / max(1, gossips),
        "gossip delay, 90th percentile, s": float(np.percentile(delays_us, 90)) / 1e6,
        "gossip delay, 99th percentile, s": float(np.percentile(delays_us, 99)) / 1e6,
    }


def in_filters(posed: kernel.WorkloadArrays) -> Workload:
    """The workload as routers see it: the publisher is an attribute."""
    publishers = [f"p{number:03}" for number in range(len(posed.homes))]
    subscriptions = tuple(
        Interest(
            f"s{n:05}",
            int(posed.subscription_broker[n]),
            "c",
            parse(
                f"publisher = '{publishers[posed.subscription_advertisement[n]]}'"
                f" AND x BETWEEN {posed.low[n, 0]} AND {posed.high[n, 0]}"
                f" AND y BETWEEN {posed.low[n, 1]} AND {posed.high[n, 1]}"
            ),
        )
        for n in range(len(posed.subscription_broker))
    )
    offers = tuple(
        Interest(name, int(home), name, parse(f"publisher = '{name}'"))
        for name, home in zip(publishers, posed.homes, strict=True)
    )
    postings = tuple(
        Posting(
            int(posed.time_us[n]),
            int(posed.homes[offer]),
            publishers[offer],
            str(n),
            {"publisher": publishers[offer], "x": int(x), "y": int(y)},
        )
        for n, (offer, (x, y)) in enumerate(zip(posed.advertisement, posed.values, strict=True))
    )
    return Workload(subscriptions, offers, postings)
