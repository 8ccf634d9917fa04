"""Section 5.1: the follower-distributed workload."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from postroad import draws
from postroad.kernels.popsub import Floats, WorkloadArrays
from postroad.overlay import Overlay
from postroad.workloads.followed import follower_quantiles, shipped_followers

ATTRIBUTE_MAX = 1000
CLASSES = 20


@dataclass(frozen=True)
class Point:
    """One setting of the experiments."""

    brokers: int = 200
    subscriptions: int = 22_000
    publishers: int = 200
    rate_per_s: float = 10.0
    seconds: float = 60.0
    zipf: float | None = None  # else the follower distribution
    zipf_over: str = "classes"  # or publishers
    random_users: bool = False  # random ones publish, not the most followed
    predicates: bool = True
    entries: str = "all"  # what Algorithm 1 fills capacity with: all entries, or own ones
    rule: str = "printed"  # or prose
    phi: float = 0.05
    throughput_per_s: float = 2500.0  # the middle of the set that brokers draw τ from
    throughput_spread: float = 0.1  # and how far it reaches on either side, as a share
    queues: bool = False  # brokers take 1/τ per publication
    batch_cost: float | None = None  # of each publication of a batch but the first; or measured
    gossip_cost: float | None = None  # of each publication of a gossip; or measured
    direct_cost: float | None = None  # of a direct send, to its sender; or measured
    mechanism: str = "tree"


def throughputs(point: Point, seed: int) -> Floats:
    """τ of each broker: five evenly spaced values, as many as the benchmark had repetitions."""
    steps = 1 + point.throughput_spread * np.linspace(-1, 1, 5)
    choices = (point.throughput_per_s * steps).tolist()
    return np.array([draws.throughput(choices, seed, broker) for broker in range(point.brokers)])


def weights(point: Point, random: np.random.Generator) -> Floats:
    """How the subscriptions are spread over the publishers."""
    raw: Floats
    if point.zipf is not None and point.zipf_over == "classes":
        # Each advertisement belongs to one of the classes; a class's subscriptions are spread
        # evenly over its advertisements, since each subscription is to one publisher.
        classes = random.integers(0, CLASSES, point.publishers)
        sizes = np.bincount(classes, minlength=CLASSES)
        ranked = 1.0 / np.arange(1, CLASSES + 1) ** point.zipf
        raw = np.asarray(ranked[classes] / sizes[classes], np.float64)
    elif point.zipf is not None:
        raw = np.arange(1.0, point.publishers + 1) ** -point.zipf
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
