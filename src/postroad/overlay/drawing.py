"""Where to draw brokers: a tree in circles around its middle, a ring as a circle."""

from __future__ import annotations

import math

from postroad.model import BrokerId, TimeUs
from postroad.overlay import Overlay
from postroad.overlay.small_world import Ring


def places(overlay: Overlay) -> list[tuple[float, float]]:
    """A point for each broker. In a tree each gets a sector as wide as the leaves behind it are
    many; where links close cycles, the tree of shortest ways from the middle is drawn."""
    count = overlay.brokers_count
    points = [(0.0, 0.0)] * count
    if isinstance(overlay, Ring):
        for place, broker in enumerate(overlay.world.order.tolist()):
            points[broker] = _around(1.0, place / count)
        return points
    parents = spanning(overlay)
    leaves = dict.fromkeys(parents, 0)
    for broker in reversed(parents):
        leaves[broker] = leaves[broker] or 1
        parent = parents[broker]
        if parent is not None:
            leaves[parent] += leaves[broker]
    level: dict[BrokerId, int] = {}
    begin: dict[BrokerId, float] = {}  # of its sector, and later of its next child's
    for broker, parent in parents.items():
        level[broker] = 0 if parent is None else level[parent] + 1
        width = leaves[broker] / leaves[next(iter(parents))]
        begin[broker] = 0.0 if parent is None else begin[parent]
        if parent is not None:
            begin[parent] += width
        points[broker] = _around(float(level[broker]), begin[broker] + width / 2)
    return points


def spanning(overlay: Overlay) -> dict[BrokerId, BrokerId | None]:
    """Each broker's parent, breadth first from the middle of the longest of the shortest ways;
    brokers that no links reach hang from the middle."""
    peers = overlay.neighbours()
    end = list(_breadth_first(peers, 0))[-1]
    before = _breadth_first(peers, end)
    way: list[BrokerId] = [list(before)[-1]]
    while (parent := before[way[-1]]) is not None:
        way.append(parent)
    middle = way[len(way) // 2]
    parents = _breadth_first(peers, middle)
    for broker in range(overlay.brokers_count):
        parents.setdefault(broker, middle)
    return parents


def _breadth_first(
    peers: list[dict[BrokerId, TimeUs]], root: BrokerId
) -> dict[BrokerId, BrokerId | None]:
    """The brokers in the order in which they are reached, and where from."""
    parents: dict[BrokerId, BrokerId | None] = {root: None}
    queue = [root]
    for broker in queue:
        for peer in peers[broker]:
            if peer not in parents:
                parents[peer] = broker
                queue.append(peer)
    return parents


def _around(radius: float, turn: float) -> tuple[float, float]:
    angle = 2 * math.pi * turn
    return round(radius * math.cos(angle), 4), round(radius * math.sin(angle), 4)
