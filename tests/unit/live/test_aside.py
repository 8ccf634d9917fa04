"""Messages that leave the tree, in memory, by seeds: `check` replays one.

Whatever a scheme sends to a broker that is no neighbour goes over a link that is opened for it, by
either end or by both at once. While both brokers live and no connection is away for too long,
every message arrives once and in order; a broker that restarts gets what is sent to it after that.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from live_harness import Memory, memory
from postroad.live import broker as brokers
from postroad.live.links import link as links
from postroad.live.links.messages import Echo
from postroad.model import BrokerId
from postroad.routing.base import Message

NAMES = ["A", "B", "C", "D"]
TREE = [("A", "B"), ("B", "C"), ("C", "D")]
ASIDE = [(0, 2), (0, 3), (1, 3)]
Pair = tuple[BrokerId, BrokerId]


class Post:
    """Numbered messages between brokers, and which of them have come to whom."""

    def __init__(self, net: Memory, patch: pytest.MonkeyPatch) -> None:
        self.net = net
        self.numbers = iter(range(10**9))
        self.sent: dict[Pair, list[int]] = {}
        self.got: dict[tuple[Pair, int], list[int]] = {}  # and in which life of the receiver
        self.lives = [0] * len(net.brokers)
        usual = brokers.Broker._on_message

        def heard(
            this: brokers.Broker, peer: brokers.Neighbour, message: Message, *more: int
        ) -> None:
            if isinstance(message, Echo) and message.origin < 0:
                way = (peer.link.peer, this.number)
                self.got.setdefault((way, self.lives[this.number]), []).append(message.number)
            else:
                usual(this, peer, message, *more)

        patch.setattr(brokers.Broker, "_on_message", heard)

    def send(self, source: BrokerId, target: BrokerId) -> None:
        number = next(self.numbers)
        self.sent.setdefault((source, target), []).append(number)
        self.net.brokers[source].send(target, Echo(-1, number))

    def restart(self, number: BrokerId) -> None:
        """What was sent to it or by it so far may be lost now."""
        self.net.restart(number)
        self.lives[number] += 1
        for way in self.sent:
            if number in way:
                self.sent[way] = []

    def missing(self) -> dict[Pair, list[int]]:
        """What was sent and has not come to the receiver's present life."""
        found = {}
        for way, sent in self.sent.items():
            came = set(self.got.get((way, self.lives[way[1]]), []))
            if lost := [number for number in sent if number not in came]:
                found[way] = lost
        return found


def check(seed: int, folder: Path, patch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    net = memory(folder, NAMES, TREE, seed=seed)
    post = Post(net, patch)
    for _ in range(40):
        a, b = draw.choice(ASIDE)
        what = draw.random()
        if what < 0.6:
            ways = [(a, b), (b, a)][: draw.choice([1, 2, 2])]  # often both ends dial at once
            for _ in range(draw.randint(1, 4)):
                for way in ways:
                    post.send(*way)
        elif what < 0.75:
            net.cut(a, b)
        elif what < 0.9:
            net.mend(a, b)
        elif what < 0.95:
            post.restart(draw.choice((a, b)))
        else:
            net.run(links.PATIENCE_US + 1_000_000, 50_000)
            for way in post.sent:  # what waited for so long was given up
                if frozenset(way) in net.down:
                    post.sent[way] = []
        net.run(draw.choice([0, 1, 2, 5, 20, 300]) * 1000)
    for a, b in ASIDE:
        net.mend(a, b)
    queues = [n.link.queue for b in net.brokers for n in b.peers.values()]
    net.until(lambda: not post.missing() and not any(queues), 20_000_000)
    net.run(200_000)
    for came in post.got.values():
        assert came == sorted(set(came))  # once, and in order


def test_what_leaves_the_tree_arrives_once_and_in_order(tmp_path: Path) -> None:
    for seed in range(30):
        try:
            with pytest.MonkeyPatch.context() as patch:
                check(seed, tmp_path, patch)
        except BaseException:
            print(f"replay with check({seed}, folder, patch)")
            raise


def test_a_full_link_beside_the_tree_holds_publishers_back_until_it_is_given_up(
    tmp_path: Path,
) -> None:
    net = memory(tmp_path, NAMES, TREE)
    net.cut(0, 2)
    publisher = net.client(0, "p")
    for number in range(links.QUEUE_MAX):
        net.brokers[0].send(2, Echo(-1, number))
    assert net.brokers[0].congested
    publisher.publish("t", b"1")
    publisher.publish("t", b"2")  # waits where it is
    net.run(100_000)
    assert net.brokers[0].clients.tally.published == 1
    net.run(links.PATIENCE_US + 1_000_000, 50_000)
    assert net.brokers[0].clients.tally.published == 2
    assert net.brokers[0].peers[2].link.dropped == links.QUEUE_MAX


def test_an_idle_link_beside_the_tree_is_not_given_up(tmp_path: Path) -> None:
    net = memory(tmp_path, NAMES, TREE)
    net.brokers[0].send(2, Echo(-1, 0))
    net.run(100_000)
    net.cut(0, 2)
    name = net.brokers[0].peers[2].link.mine
    net.run(2 * links.PATIENCE_US, 50_000)
    net.brokers[0].send(2, Echo(-1, 1))  # as the outage ends, not when it began
    net.run(10_000_000, 50_000)
    net.mend(0, 2)
    net.until(lambda: not net.brokers[0].peers[2].link.queue)
    assert net.brokers[0].peers[2].link.mine == name
    assert not net.brokers[0].peers[2].link.dropped
