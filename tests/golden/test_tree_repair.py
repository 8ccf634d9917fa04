"""How a tree is repaired when a link of it fails, as a readable transcript."""

from __future__ import annotations

import os
from pathlib import Path

from postroad.live.links.tree import AWAY_US, Pair, Report, Spanning, Tree

GOLDEN = Path(__file__).parent / "tree_repair.out"
SQUARE: list[Pair] = [(0, 1), (1, 2), (2, 3), (0, 3)]
NAMES = "ABCD"
TICK_US = 100_000


def tree_text(tree: Tree) -> str:
    links = ", ".join(f"{NAMES[a]}-{NAMES[b]}" for a, b in tree.links)
    return f"tree {tree.epoch}.{tree.proposer} of {links}"


def report_text(report: Report) -> str:
    return f"{NAMES[report.broker]} has {' '.join(NAMES[n] for n in report.up)}"


def transcript() -> str:
    """Four brokers in a square. The link B-C fails, and is back when it is no longer needed."""
    lines: list[str] = []
    brokers = [Spanning(n, range(4), SQUARE, 4, 0) for n in range(4)]
    up = set(SQUARE)

    def happens(now: int, text: str) -> None:
        lines.append(f"{now:>9} {text}\n")

    def exchange(now: int) -> bool:
        """Whether anybody had news for a neighbour."""
        news = False
        for a, b in sorted(up):
            for me, peer in ((a, b), (b, a)):
                words = brokers[me].take(peer)
                if words is None:
                    continue
                tree, reports = words
                parts = [] if tree is None else [tree_text(tree)]
                text = "; ".join([*parts, *map(report_text, reports)])
                happens(now, f"{NAMES[me]} to {NAMES[peer]}: {text}")
                taken = brokers[peer].tree.id
                brokers[peer].heard(me, tree, reports, now)
                if brokers[peer].tree.id != taken:
                    happens(now, f"{NAMES[peer]} takes {tree_text(brokers[peer].tree)}")
                news = True
        return news

    for a, b in SQUARE:
        brokers[a].connected(b, 0)
        brokers[b].connected(a, 0)
    while exchange(0):
        pass
    for broker in brokers:
        broker.has_settled(broker.tree.id, 0)
    while exchange(0):
        pass
    lines.clear()  # how it began
    happens(0, f"all are in {tree_text(brokers[0].tree)}")
    for now in range(TICK_US, 2 * AWAY_US, TICK_US):
        if now == 5 * TICK_US:
            happens(now, "the link B-C fails")
            up.discard((1, 2))
            brokers[1].cut(2, now)
            brokers[2].cut(1, now)
        if now == AWAY_US:
            happens(now, "the link B-C is back")
            up.add((1, 2))
            brokers[1].connected(2, now)
            brokers[2].connected(1, now)
        for broker in brokers:
            before = broker.tree.id
            broker.tick(now)
            if broker.tree.id != before:
                happens(now, f"{NAMES[broker.me]} proposes {tree_text(broker.tree)}")
        while exchange(now):
            pass
        if now == AWAY_US - TICK_US:
            for broker in brokers:
                broker.has_settled(broker.tree.id, now)
    happens(now, f"all are in {tree_text(brokers[0].tree)}")
    assert len({broker.tree for broker in brokers}) == 1
    return "".join(lines)


def test_a_tree_is_repaired_as_written() -> None:
    if os.environ.get("POSTROAD_GOLDEN") == "rewrite":
        GOLDEN.write_text(transcript(), encoding="utf-8")
    assert transcript() == GOLDEN.read_text(encoding="utf-8")
