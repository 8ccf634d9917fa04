"""Trees of brokers across a wide area: latencies measured or generated, and the tree among them.

A matrix says how far any two hosts are from each other, so it also serves schemes that leave
the tree.
"""

from __future__ import annotations

import heapq

import numpy as np

from postroad.errors import InputError
from postroad.overlay import IntArray, Overlay


def generated_matrix(hosts: int, seed: int) -> IntArray:
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
    one_way: IntArray = np.rint(trips * 500).astype(np.int64)
    return one_way


def topology(matrix: IntArray, brokers: int, seed: int) -> Overlay:
    """A sub-graph found breadth-first from a random root, and its shortest-path tree."""
    hosts = len(matrix)
    if brokers > hosts:
        raise InputError(
            f"{brokers} brokers on {hosts} hosts", remedy="give a latency matrix of more hosts"
        )
    random = np.random.default_rng(seed)
    known: list[set[int]] = [set() for _ in range(hosts)]
    for host in range(hosts):
        for other in random.choice(hosts, min(5, hosts), replace=False).tolist():
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
