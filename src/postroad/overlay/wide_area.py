"""Trees of brokers across a wide area: latencies measured or generated, and the tree among them.

A matrix says how far any two hosts are from each other, so it also serves schemes that leave
the tree.
"""

from __future__ import annotations

import gzip
import heapq
from pathlib import Path
from typing import IO

import numpy as np

from postroad.errors import InputError
from postroad.overlay import IntArray, Overlay
from postroad.overlay.rooted import FloatArray


def readable(path: Path) -> IO[str]:
    """A text file, unpacked on the way if its name ends in .gz."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def read_matrix(path: Path) -> IntArray:
    """One-way latencies in microseconds, from round trips in either of two formats.

    A square matrix of milliseconds, separated by commas; or lines `host host microseconds`, hosts
    numbered from any number on, as the King data set has them. A pair that the lines leave out, or
    give as negative, is as far apart as the shortest way through others.
    """
    try:
        with readable(path) as file:
            first = next((line for line in file if line.strip() and line[0] != "#"), "")
        with readable(path) as file:
            if "," in first:
                trips = np.loadtxt(file, delimiter=",", ndmin=2)
            else:
                trips = _from_lines(np.loadtxt(file, ndmin=2), path) / 1000
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror}", remedy="check the file's name"
        ) from None
    except ValueError as error:
        raise InputError(
            f"not a matrix of numbers: {error}", where=str(path), remedy="give rows of ms"
        ) from None
    if trips.shape[0] != trips.shape[1]:
        raise InputError(
            f"{trips.shape} is not square", where=str(path), remedy="give one row per host"
        )
    return np.rint(trips * 500).astype(np.int64)


def _from_lines(rows: FloatArray, path: Path) -> FloatArray:
    """The matrix of lines `host host latency`, gaps filled by the shortest ways."""
    if rows.shape[1] != 3:
        raise InputError(
            f"{rows.shape[1]} numbers a line", where=str(path), remedy="give host, host, µs"
        )
    hosts, places = np.unique(rows[:, :2], return_inverse=True)
    ends = places.reshape(-1, 2)
    trips = np.full((len(hosts), len(hosts)), np.inf)
    known = rows[:, 2] >= 0
    for a, b in ((0, 1), (1, 0)):
        np.minimum.at(trips, (ends[known, a], ends[known, b]), rows[known, 2])
    np.fill_diagonal(trips, 0)
    if np.isinf(trips).any():
        from scipy.sparse.csgraph import shortest_path

        ways = shortest_path(np.where(np.isinf(trips), 0, trips), directed=False)
        if np.isinf(ways).any():
            raise InputError(
                "some hosts are not connected", where=str(path), remedy="leave them out"
            )
        trips = np.where(np.isinf(trips), ways, trips)
    return trips


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
