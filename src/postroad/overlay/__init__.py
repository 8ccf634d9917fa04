"""Overlays as data: which brokers there are, which links join them, how long a link takes.

An `Overlay` is arrays, so it travels to kernels and to Spark as it is. Brokers are
numbered from 0; `names` keeps what the user called them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postroad.errors import InputError
from postroad.model import BrokerId, TimeUs

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Overlay:
    """Brokers 0..n-1 and undirected links `(ends[i, 0], ends[i, 1])` with `latency_us[i]`.

    `direct_us[a, b]`, where known, is the latency between brokers that no link joins.
    """

    names: tuple[str, ...]
    ends: IntArray
    latency_us: IntArray
    direct_us: IntArray | None = None

    @property
    def brokers_count(self) -> int:
        return len(self.names)

    def neighbours(self) -> list[dict[BrokerId, TimeUs]]:
        """Per broker, its peers in ascending order with the latency of the link to each."""
        peers: list[dict[BrokerId, TimeUs]] = [{} for _ in self.names]
        for (a, b), latency in zip(self.ends.tolist(), self.latency_us.tolist(), strict=True):
            peers[a][b] = latency
            peers[b][a] = latency
        return [dict(sorted(links.items())) for links in peers]

    def path_us(self, source: BrokerId) -> list[TimeUs]:
        """The latency from a broker to every other, along the links of a tree."""
        peers = self.neighbours()
        delays_us = [-1] * self.brokers_count
        delays_us[source] = 0
        stack = [source]
        while stack:
            broker = stack.pop()
            for peer, latency in peers[broker].items():
                if delays_us[peer] < 0:
                    delays_us[peer] = delays_us[broker] + latency
                    stack.append(peer)
        return delays_us

    def parents(self, root: BrokerId = 0) -> IntArray:
        """Each broker's parent when the tree hangs from `root` (-1 at the root itself)."""
        peers = self.neighbours()
        parent = np.full(self.brokers_count, -2, dtype=np.int64)
        parent[root] = -1
        queue = deque([root])
        while queue:
            broker = queue.popleft()
            for peer in peers[broker]:
                if parent[peer] == -2:
                    parent[peer] = broker
                    queue.append(peer)
        assert not (parent == -2).any(), "parents() is for connected overlays"
        return parent


def from_parents(
    parents: Sequence[int] | IntArray,
    latency_us: int | IntArray = 1000,
    names: Sequence[str] | None = None,
) -> Overlay:
    """A tree from each broker's parent; broker 0 is the root and its entry is ignored."""
    above = np.asarray(parents, dtype=np.int64)
    count = len(above)
    ends = np.stack([above[1:], np.arange(1, count, dtype=np.int64)], axis=1)
    latency = np.broadcast_to(np.asarray(latency_us, dtype=np.int64), count - 1).copy()
    return Overlay(tuple(names or map(str, range(count))), ends, latency)


def from_links(
    links: Sequence[tuple[str, str, TimeUs]],
    where: str = "links",
    remedy: str = "give the links of a tree: each pair of brokers joined by one path",
) -> Overlay:
    """A tree from named links. Brokers are numbered in the order their names first appear.

    `remedy` is what to do about links that close a cycle.
    """
    number: dict[str, BrokerId] = {}
    ends: list[tuple[int, int]] = []
    root_of: list[int] = []

    def root(broker: int) -> int:
        while root_of[broker] != broker:
            root_of[broker] = root_of[root_of[broker]]
            broker = root_of[broker]
        return broker

    for position, (left, right, latency) in enumerate(links):
        if latency < 0:
            raise InputError(
                f"latency {latency} µs of link {left!r} to {right!r} is negative",
                where=where,
                remedy="give a latency of 0 or more",
            )
        for name in (left, right):
            if name not in number:
                number[name] = len(number)
                root_of.append(number[name])
        a, b = number[left], number[right]
        if root(a) == root(b):
            raise InputError(
                f"link {position + 1} from {left!r} to {right!r} closes a cycle",
                where=where,
                remedy=remedy,
            )
        root_of[root(a)] = root(b)
        ends.append((a, b))
    if not number:
        raise InputError("no links", where=where, remedy="give at least one link per broker")
    if len(ends) != len(number) - 1:
        stray = next(name for name, broker in number.items() if root(broker) != root(0))
        raise InputError(
            f"broker {stray!r} is not connected to broker {next(iter(number))!r}",
            where=where,
            remedy="add the links that join the parts into one tree",
        )
    return Overlay(
        tuple(number),
        np.array(ends, dtype=np.int64).reshape(-1, 2),
        np.array([latency for _, _, latency in links], dtype=np.int64),
    )
