"""PUBACKs where the brokers of a tree with stores restart often, in memory, by seeds.

A publication has to go out to the brokers that want it and word of it back, link by link. However
often brokers fall, what has been done stays done: each step needs its two brokers to be up together
for a moment, and nothing else, neither others nor later publications. `check` replays a seed.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from pathlib import Path

import mqtt5
import pytest

import live_harness
from live_harness import Fake, KeptInMemory, memory

NAMES = ["A", "B", "C", "D", "E"]
LINKS = [("A", "B"), ("B", "C"), ("C", "D"), ("B", "E")]
# From the publisher's broker to whoever wants the topic, and back.
WAYS = {"far": "ABCDCBA", "near": "ABA", "side": "ABEBA", "nobody": "A"}
OUTAGE_US = 4_000_000
STEP_US = 10_000
JOINED_US = 1_500_000  # two brokers that are up for so long have found each other
PASSED_US = 200_000  # and by then one has heard what the other had to say
ONCE = mqtt5.QoS.AT_LEAST_ONCE


@dataclass
class Owed:
    topic: str
    since_us: int
    way: list[frozenset[int]]  # what has to be up for each step that is left
    entered_us: int = 0  # when the first of them could begin


class Network:
    def __init__(self, scheme: str, seed: int, folder: Path) -> None:
        self.draw = random.Random(seed)
        self.net = memory(folder, NAMES, LINKS, seed=seed, scheme=scheme, top='store = "s"')
        self.ends = [(NAMES.index(a), NAMES.index(b)) for a, b in LINKS]
        self.back_us: dict[int, int] = {}  # who is away, and until when
        self.up_us = [self.net.now] * len(NAMES)  # since when each is up, if it is
        self.fake: Fake | None = None
        self.owed: dict[int, Owed] = {}
        self.count = 0
        self.waited_us: list[int] = []

    def fall(self, number: int, outage_us: int) -> None:
        self.back_us[number] = self.net.now + outage_us
        for a, b in self.ends:
            if number in (a, b):
                self.net.cut(a, b)
        self.net.restart(number)  # nobody hears of it before its links are mended

    def rise(self) -> None:
        for number in [n for n, when in self.back_us.items() if when <= self.net.now]:
            del self.back_us[number]
            self.up_us[number] = self.net.now
        for a, b in self.ends:
            if a not in self.back_us and b not in self.back_us:
                self.net.mend(a, b)

    def publish(self, topic: str) -> None:
        """One more by the client at A, which comes back when it has to and sends again."""
        net = self.net
        if 0 in self.back_us:
            return
        if self.fake is None or self.fake.broker is not net.brokers[0]:
            self.fake = Fake(net, 0, 5)
            net.fakes.append(self.fake)
            options = {"clean_start": False, "session_expiry_interval": 86_400}
            self.fake.send(mqtt5.ConnectPacket("p", **options))
            for number, owed in self.owed.items():
                self._send(number, owed.topic, True)
        if len(self.owed) < 500:
            self.count += 1
            places = [NAMES.index(name) for name in WAYS[topic]]
            way = [frozenset(pair) for pair in itertools.pairwise(places)]
            self.owed[self.count] = Owed(topic, net.now, [*way, frozenset({0})], net.now)
            self._send(self.count, topic, False)

    def _send(self, number: int, topic: str, again: bool) -> None:
        assert self.fake is not None
        packet = mqtt5.PublishPacket(topic, b"", qos=ONCE, packet_id=number, duplicate=again)
        self.fake.send(packet)

    def step(self) -> None:
        net = self.net
        net.step(STEP_US)
        self.rise()
        if self.fake is not None:
            for packet in self.fake.packets:
                if isinstance(packet, mqtt5.PubAckPacket):
                    self.waited_us.append(net.now - self.owed.pop(packet.packet_id).since_us)
            self.fake.packets.clear()
        first = True
        for number, owed in self.owed.items():
            while owed.way and self._passed(owed):
                owed.way.pop(0)
                owed.entered_us = net.now
            if owed.way:
                first = False  # whatever was published later waits for it
            assert not first, (
                f"{number} to {owed.topic!r} is not acknowledged after "
                f"{(net.now - owed.since_us) / 1e6:.1f} s though nothing stood in its way"
            )

    def _passed(self, owed: Owed) -> bool:
        if owed.way[0] & self.back_us.keys():
            return False
        up_us = max(self.up_us[number] for number in owed.way[0])
        return self.net.now - max(up_us + JOINED_US, owed.entered_us + PASSED_US) >= 0


def check(scheme: str, seed: int, folder: Path, lives_us: int = 60_000_000) -> list[int]:
    """How long each PUBACK took."""
    network = Network(scheme, seed, folder)
    net, draw = network.net, network.draw
    for broker, name in ((3, "far"), (1, "near"), (4, "side")):
        client = net.client(broker, name, clean_start=False, session_expiry_interval=86_400)
        client.subscribe(name, max_qos=ONCE)
        client.drop()
        net.fakes.remove(client)
    for topic in WAYS:
        network.publish(topic)
    while network.owed:
        network.step()
    fall_every_us = draw.choice([1_000_000, 2_000_000, 4_000_000])
    end, fall_us, publish_us = net.now + lives_us, 0, 0
    while net.now < end:
        network.step()
        if net.now >= fall_us:
            fall_us = net.now + draw.randint(1, 2 * fall_every_us)
            here = [n for n in range(len(NAMES)) if n not in network.back_us]
            if here:
                network.fall(draw.choice(here), draw.randint(100_000, OUTAGE_US))
        if net.now >= publish_us:
            publish_us = net.now + 100_000
            network.publish(draw.choice(list(WAYS)))
    return network.waited_us


@pytest.mark.parametrize("scheme", ["subscription_forwarding", "advertisement_forwarding"])
def test_pubacks_wait_for_what_is_in_their_way_and_nothing_else(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_harness, "Store", KeptInMemory)
    for seed in range(4):
        try:
            waited_us = check(scheme, seed, tmp_path)
        except BaseException:
            print(f"replay with check({scheme!r}, {seed}, folder)")
            raise
        assert len(waited_us) > 100
