"""Section 5.1: the follower-distributed workload."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from postroad.kernels.popsub import Floats, WorkloadArrays
from postroad.overlay import Overlay
from postroad.workloads.followed import follower_quantiles, shipped_followers

ATTRIBUTE_MAX = 1000


@dataclass(frozen=True)
class Point:
    """One setting of the experiments."""

    brokers: int = 200
    subscriptions: int = 22_000
    publishers: int = 200
    rate_per_s: float = 10.0
    seconds: float = 60.0
    zipf: float | None = None  # else the follower distribution
    random_users: bool = False  # random ones publish, not the most followed
    predicates: bool = True
    phi: float = 0.05
    throughput_per_s: float = 1600.0
    queues: bool = False  # brokers take 1/τ per publication
    batch_slope: float = 0.2  # a batch of n takes 1 + slope (n - 1) times as long as one
    direct_cost: float = 0.0  # a direct send takes its sender so many times as long as one
    mechanism: str = "tree"


def weights(point: Point, random: np.random.Generator) -> Floats:
    """How the subscriptions are spread over the publishers."""
    if point.zipf is not None:
        raw = 1.0 / np.arange(1, point.publishers + 1) ** point.zipf
    elif point.random_users:
        known = follower_quantiles()
        raw = np.interp(random.random(point.publishers), known["share"], known["followers"])
    else:
        raw = np.array(shipped_followers()[: point.publishers], np.float64)
    return np.asarray(raw / raw.sum(), np.float64)


def workload(point: Point, overlay: Overlay, seed: int) -> WorkloadArrays:
    """Publishers at the root and its children, subscribers anywhere, all drawn from one seed."""
    random = np.random.default_rng(seed)
    top = np.array([0, *overlay.neighbours()[0]])
    count = point.subscriptions
    low = np.zeros((count, 2), np.int64)
    high = np.full((count, 2), ATTRIBUTE_MAX, np.int64)
    if point.predicates:
        bound = random.integers(0, ATTRIBUTE_MAX + 1, (count, 2))
        least = random.random((count, 2)) < 0.5
        low = np.where(least, bound, low)
        high = np.where(least, high, bound)
    each = round(point.rate_per_s * point.seconds)
    gap = round(1e6 / point.rate_per_s)
    phase = random.integers(0, gap, point.publishers)
    times = (phase[:, None] + gap * np.arange(each)[None, :]).ravel()
    offers = np.repeat(np.arange(point.publishers), each)
    order = np.argsort(times, kind="stable")
    spread = weights(point, np.random.default_rng((seed, 1)))
    return WorkloadArrays(
        homes=random.choice(top, point.publishers),
        subscription_advertisement=random.choice(point.publishers, count, p=spread),
        subscription_broker=random.integers(0, point.brokers, count),
        low=low,
        high=high,
        time_us=times[order],
        advertisement=offers[order],
        values=random.integers(0, ATTRIBUTE_MAX + 1, (len(times), 2)),
    )
