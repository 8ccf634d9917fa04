"""Section 5.1: topologies from a latency matrix, and the follower-distributed workload."""

from __future__ import annotations

import csv
import gzip
import heapq
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO

import numpy as np

from postroad.errors import InputError
from postroad.kernels.popsub import Floats, Ints, Workload
from postroad.overlay import Overlay

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
    predicates: bool = True
    phi: float = 0.05
    throughput_per_s: float = 1600.0
    service_us: int = 0
    mechanism: str = "tree"


def _text(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def read_matrix(path: Path) -> Ints:
    """One-way latencies in microseconds from a square matrix of round trips in milliseconds."""
    with _text(path) as file:
        try:
            trips = np.loadtxt(file, delimiter=",")
        except ValueError as error:
            raise InputError(
                f"not a matrix of numbers: {error}", where=str(path), remedy="give rows of ms"
            ) from None
    if trips.ndim != 2 or trips.shape[0] != trips.shape[1]:
        raise InputError(
            f"{trips.shape} is not square", where=str(path), remedy="give one row per host"
        )
    return np.rint(trips * 500).astype(np.int64)


def generated_matrix(hosts: int, seed: int) -> Ints:
    """One-way latencies that look like the Internet's, for those who have no measurements.

    Hosts lie in clusters on a plane, each behind an access link with a heavy-tailed delay:
    round trips have a median near 130 ms and a 95th percentile near 315 ms (PlanetLab: 134, 326).
    """
    random = np.random.default_rng(seed)
    centres = random.uniform(0, 1, (12, 2)) * [170, 80]
    places = centres[random.integers(0, 12, hosts)] + random.normal(0, 8, (hosts, 2))
    access = random.lognormal(2.6, 1.25, hosts)
    apart = np.sqrt(((places[:, None, :] - places[None, :, :]) ** 2).sum(axis=2))
    trips = 1.3 * apart + access[:, None] + access[None, :] + 5
    np.fill_diagonal(trips, 0)
    one_way: Ints = np.rint(trips * 500).astype(np.int64)
    return one_way


def topology(matrix: Ints, brokers: int, seed: int) -> Overlay:
    """A sub-graph found breadth-first from a random root, and its shortest-path tree."""
    hosts = len(matrix)
    if brokers > hosts:
        raise InputError(
            f"{brokers} brokers on {hosts} hosts", remedy="give a latency matrix of more hosts"
        )
    random = np.random.default_rng(seed)
    known: list[set[int]] = [set() for _ in range(hosts)]
    for host in range(hosts):
        for other in random.choice(hosts, 5, replace=False).tolist():
            if other != host:
                known[host].add(other)
                known[other].add(host)
    root = int(random.integers(hosts))
    chosen = {root: 0}
    queue = [root]
    while queue and len(chosen) < brokers:
        following = []
        for host in queue:
            for other in sorted(known[host]):
                if other not in chosen and len(chosen) < brokers:
                    chosen[other] = len(chosen)
                    following.append(other)
        queue = following
    picked = np.array(list(chosen))
    direct = matrix[np.ix_(picked, picked)]
    parent = [-1] * brokers
    distance = [1 << 60] * brokers
    distance[0] = 0
    heap = [(0, 0)]
    while heap:
        far, broker = heapq.heappop(heap)
        if far > distance[broker]:
            continue
        for other in sorted(known[int(picked[broker])]):
            peer = chosen.get(other)
            if peer is not None and far + direct[broker, peer] < distance[peer]:
                distance[peer] = int(far + direct[broker, peer])
                parent[peer] = broker
                heapq.heappush(heap, (distance[peer], peer))
    ends = np.array([(parent[broker], broker) for broker in range(1, brokers)], np.int64)
    latency = np.array([direct[a, b] for a, b in ends], np.int64)
    return Overlay(tuple(map(str, range(brokers))), ends.reshape(-1, 2), latency, direct)


def most_followed(edges: Path, users: int) -> list[int]:
    """The follower counts of the most followed users of a graph of `a follows b` lines."""
    counts: Counter[str] = Counter()
    with _text(edges) as file:
        for line in file:
            follower, followed = line.split()
            if follower != followed:
                counts[followed] += 1
    return sorted(counts.values(), reverse=True)[:users]


def shipped_followers() -> list[int]:
    """The table that comes with the package."""
    text = files("postroad.papers.popsub").joinpath("followers.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return [int(row["followers"]) for row in rows]


def weights(point: Point) -> Floats:
    """How the subscriptions are spread over the publishers."""
    if point.zipf is not None:
        raw = 1.0 / np.arange(1, point.publishers + 1) ** point.zipf
    else:
        raw = np.array(shipped_followers()[: point.publishers], np.float64)
    return np.asarray(raw / raw.sum(), np.float64)


def workload(point: Point, overlay: Overlay, seed: int) -> Workload:
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
    return Workload(
        homes=random.choice(top, point.publishers),
        subscription_advertisement=random.choice(point.publishers, count, p=weights(point)),
        subscription_broker=random.integers(0, point.brokers, count),
        low=low,
        high=high,
        time_us=times[order],
        advertisement=offers[order],
        values=random.integers(0, ATTRIBUTE_MAX + 1, (len(times), 2)),
    )
