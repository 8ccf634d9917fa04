"""Gossip figures of the protocol itself (views, digests, membership) beside the kernel's model.

The routers take a minute for a second of the paper's traffic between 200 brokers, so the page has
`SMALL`, smaller workloads with τ smaller in proportion; `python -m postroad.bench gossip` has
`LARGE`, a third of a run of the paper's default point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Sample:
    """What both are run on."""

    point: Point
    hosts: int  # of the latency matrix that networks are drawn from
    interval_s: float  # of gossip


SMALL = Sample(
    Point(
        brokers=40, publishers=20, subscriptions=1500, seconds=20.0, throughput_per_s=250.0,
        throughput_spread=0.0, phi=0.1, mechanism="gossip",
    ),
    hosts=100,
    interval_s=2.0,  # a fifth of the paper's, for a run that is a third as long
)  # fmt: skip
LARGE = Sample(Point(seconds=20.0, throughput_spread=0.0, mechanism="gossip"), 490, 10.0)


def table(sample: Sample, networks: int) -> list[dict[str, str]]:
    """Per metric the means over so many networks: the model's and the protocol's."""
    pairs = [_pair(sample, seed) for seed in range(networks)]
    rows = []
    for metric in pairs[0][0]:
        model, protocol = (float(np.mean([pair[n][metric] for pair in pairs])) for n in (0, 1))
        off = f"{100 * (protocol / model - 1):+.1f}%" if model else ""
        rows.append(
            {"": metric, "model": f"{model:.4g}", "protocol": f"{protocol:.4g}", "off": off}
        )
    return rows


def _pair(sample: Sample, seed: int) -> tuple[Mapping[str, float], Mapping[str, float]]:
    overlay = topology(generated_matrix(sample.hosts, seed=1), sample.point.brokers, seed)
    posed = workload(sample.point, overlay, seed)
    return modelled(sample, overlay, posed), observed(sample, overlay, posed)


def modelled(sample: Sample, overlay: Overlay, posed: kernel.WorkloadArrays) -> dict[str, float]:
    counts = kernel.simulate(
        overlay,
        posed,
        kernel.Settings(
            "gossip",
            sample.point.throughput_per_s * sample.point.phi,
            gossip_interval_us=round(sample.interval_s * 1e6),
        ),
    )
    return _measures(
        counts.deliveries, counts.unpopular_us, counts.gossips, counts.gossip_received,
        counts.gossip_false, counts.gossip_groups,
    )  # fmt: skip


def observed(sample: Sample, overlay: Overlay, posed: kernel.WorkloadArrays) -> dict[str, float]:
    config = Config(
        unpopular="gossip",
        phi=sample.point.phi,
        throughput_per_s=sample.point.throughput_per_s,
        gossip_interval_s=sample.interval_s,
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
