"""Networks with redundant links through crashes, cuts, silences and partitions, from seeds.

    python -m postroad.bench.rehearse --seeds 5000       # seeds 0 to 4999
    python -m postroad.bench.rehearse --seed 17          # one, with what happens in it

Whole brokers (tree, links, sessions, routers, stores) run in memory on a clock of their own: bytes
take a drawn time over each connection, keep their order on it and no other; connections break
with what is on them or fall silent; brokers lose all but their stores, between any two turns and
between writing and speaking. Clients of QoS 1 or 2 publish, send again what was not
acknowledged, come back to their sessions. What must hold:

- what is acknowledged to a publisher is, at that moment, with every subscriber it matches or in
  its broker's store; in the end every subscriber has had everything, once;
- nothing comes again after its acknowledgement was stored; nothing of quality 0 comes twice, nor
  of quality 2, by packet identifiers alone;
- what one publisher published to one topic at QoS 1 or 2 comes in that order;
- with one broker away and the rest joined, deliveries and acknowledgements go on within seconds,
  and when it comes back not even a publication of quality 0 among the others is lost;
- of a shared subscription one member gets each publication, through all of it; what a member
  that leaves for good has not acknowledged another gets;
- clients that come back at any broker find their session there, with all of this; only order
  is not promised to a session that moves while trees are repaired, and what comes at QoS 1 or 2
  waits for what waited where the session was, if that broker falls meanwhile;
- brokers that are added and removed meanwhile change none of this.
"""

from __future__ import annotations

import argparse
import heapq
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mqtt5
import msgspec

from postroad.errors import InputError
from postroad.filters import Filter, matches
from postroad.live.broker import Broker
from postroad.live.edge import content, mqtt, topics
from postroad.live.edge.mqtt import Letter
from postroad.live.edge.session import Connection
from postroad.live.links.neighbour import Wire
from postroad.live.links.tree import Pair, Tree, TreeId, span
from postroad.live.network import DURABLE, Network, from_values
from postroad.live.store import MemoryStore, ParcelRow
from postroad.model import BrokerId, TimeUs

FILE = Path("rehearsal.toml")
START_US = 10**15
SECOND_US = 1_000_000
REPAIRED_US = 9 * SECOND_US  # by then a tree joins all that can be joined
HEALED_US = 10 * SECOND_US  # and by then one that joins all, if nothing is broken any more
TOPICS = ("t/a", "t/b", "u/a")
WANTED = (("t/#", None), ("+/a", "n > 5"), ("#", "x < 3"), ("u/a", None), ("t/+", "x > 1"))
IN_FLIGHT = 8
LIMITS = {"session_wait_s": 3_600}  # no session is left behind
AT_LEAST = mqtt5.QoS.AT_LEAST_ONCE
QUALITIES = (AT_LEAST, mqtt5.QoS.EXACTLY_ONCE)


class Failed(Exception):
    """What must hold does not."""


class Pipe:
    """One connection between two brokers."""

    def __init__(self, ends: tuple[BrokerId, BrokerId]) -> None:
        self.ends = ends
        self.wires: list[Wire | None] = [None, None]
        self.last_us = [0, 0]  # when the last bytes of each side arrive
        self.held: list[list[bytes]] = [[], []]  # while the link is silent


class World:
    """The brokers of one network, the links between them, and time."""

    def __init__(self, network: Network, draw: random.Random) -> None:
        self.network, self.draw = network, draw
        self.now = START_US
        self.heap: list[tuple[TimeUs, int, Callable[[], None]]] = []
        self.sequence = 0
        count = len(network.names)
        self.stores = [MemoryStore() for _ in range(count)]
        self.brokers: list[Broker | None] = [None] * count
        self.pipes: dict[Pipe, None] = {}
        self.of_wire: dict[Wire, tuple[Pipe, int]] = {}
        self.cut: set[Pair] = set()
        self.silent: set[Pair] = set()
        self.due: list[TimeUs] = [0] * count
        self.crashes: Counter[BrokerId] = Counter()
        self.clients: list[RehearsedClient] = []
        self.slow_us = 3_000
        self.aim = 0.0  # how likely a broker falls just when it has changed its tree
        self.trees: dict[BrokerId, TreeId] = {}
        for number in range(count):
            self.start(number)

    def change(self, network: Network) -> None:
        """Brokers were added or removed: each takes up the new file in its own time."""
        self.network = network
        for number, broker in enumerate(self.brokers):
            if number in network.removed:
                self.crash(number)
            elif broker is not None:
                self.at(self.draw.randint(0, SECOND_US), lambda b=broker: self._tell(b))  # type: ignore[misc]
        for number in range(len(self.brokers), len(network.names)):
            self.stores.append(MemoryStore())
            self.brokers.append(None)
            self.due.append(0)
            self.start(number)

    def owes(self, number: BrokerId) -> bool:
        """Whether a broker has something for others, or cannot be asked."""
        broker = self.brokers[number]
        return broker is None or broker.repair is None or bool(broker.repair.outbox)

    def _tell(self, broker: Broker) -> None:
        if self.brokers[broker.number] is broker:
            broker.change(self.network, self.now)
            self.soon(broker.number)

    # Time.

    def at(self, delay_us: TimeUs, act: Callable[[], None]) -> None:
        self.sequence += 1
        heapq.heappush(self.heap, (self.now + delay_us, self.sequence, act))

    def run(self, duration_us: TimeUs) -> None:
        end = self.now + duration_us
        while self.heap and self.heap[0][0] <= end:
            self.now, _, act = heapq.heappop(self.heap)
            act()
        self.now = end

    def until(self, done: Callable[[], bool], limit_us: TimeUs, what: str) -> None:
        end = self.now + limit_us
        while not done():
            if self.now >= end:
                raise Failed(f"{what}: not within {limit_us / SECOND_US:.0f} s")
            self.run(20_000)

    # Brokers.

    def start(self, number: BrokerId) -> None:
        if self.brokers[number] is None and number not in self.network.removed:
            store = self.stores[number]
            standing = store.begin(self.now)
            self.brokers[number] = Broker(
                self.network, number, self.now, None, store.load(), standing
            )
            self.soon(number)

    def soon(self, number: BrokerId, delay_us: TimeUs = 500) -> None:
        """Have a broker take its turn."""
        when = self.now + delay_us
        if not self.now <= self.due[number] <= when:
            self.due[number] = when
            broker = self.brokers[number]
            self.at(delay_us, lambda: self._turn(number, broker, when))

    def _turn(self, number: BrokerId, broker: Broker | None, when: TimeUs) -> None:
        if broker is None or self.brokers[number] is not broker or self.due[number] != when:
            return
        self.due[number] = 0
        self._write(number, broker)
        assert broker.repair is not None
        if self.trees.get(number) != broker.repair.tree.id:
            self.trees[number] = broker.repair.tree.id
            if self.draw.random() < self.aim:
                self.at(self.draw.randint(0, 30_000), lambda: self._aimed(number))
        for wire in [*broker.wires, *broker.take_closing()]:
            self._speak(wire)
        for peer in broker.to_dial(self.now):
            self._dial(broker, number, peer)
        # What a client answers may have the broker say more to others, which is not stored yet.
        said = [(client, client.take()) for client in self.clients if client.broker == number]
        for client, (connection, data) in said:
            client.hear(connection, data)
        self.soon(number, max(500, broker.next_due_us() - self.now))

    def _write(self, number: BrokerId, broker: Broker) -> None:
        broker.tick(self.now)
        broker.flush(self.now)
        assert broker.journal is not None
        if broker.failure is not None:
            raise Failed(broker.failure)
        self.stores[number].commit(broker.journal.take())
        broker.count = self.stores[number].count

    def _aimed(self, number: BrokerId) -> None:
        if self.aim:  # not if all is to be well by now
            self.fall(number)

    def fall(self, number: BrokerId) -> None:
        """Crash, and start again in a while."""
        self.crash(number)
        crashes = self.crashes[number]

        def rise() -> None:
            if self.crashes[number] == crashes:  # otherwise it fell again, perhaps for good
                self.start(number)

        self.at(self.draw.randint(1_000, 5 * SECOND_US), rise)

    def crash(self, number: BrokerId) -> None:
        """A broker is gone at once; perhaps it had written, and said to some what it wrote."""
        broker = self.brokers[number]
        if broker is None:
            return
        if self.draw.random() < 0.5:
            self._write(number, broker)
            for wire in list(broker.wires):
                if self.draw.random() < 0.5:
                    self._speak(wire)
        self.brokers[number] = None
        self.crashes[number] += 1
        self.due[number] = 0
        for pipe in list(self.pipes):
            if number in pipe.ends:
                self._end(pipe, pipe.ends.index(number))
        for client in self.clients:
            if client.broker == number:
                client.lost()

    # Connections.

    def _dial(self, broker: Broker, number: BrokerId, peer: BrokerId) -> None:
        pair = (min(number, peer), max(number, peer))
        delay_us = 5 * SECOND_US if pair in self.silent else self._delay()

        def answered() -> None:
            if self.brokers[number] is not broker:
                return
            other = self.brokers[peer]
            if pair in self.silent or pair in self.cut or other is None:
                broker.dial_failed(peer, self.now)
            else:
                pipe = Pipe((number, peer))
                self.pipes[pipe] = None
                ends = (broker.wire_opened("memory:1", peer, self.now),
                        other.wire_opened("memory:1", None, self.now))  # fmt: skip
                for side, wire in enumerate(ends):
                    pipe.wires[side] = wire
                    self.of_wire[wire] = pipe, side
            self.soon(number)

        self.at(delay_us, answered)

    def _delay(self) -> TimeUs:
        return self.draw.randint(100, self.slow_us)

    def _speak(self, wire: Wire) -> None:
        end = self.of_wire.get(wire)
        if end is None:
            wire.out.clear()
            return
        pipe, side = end
        if wire.out:
            data = b"".join(wire.out)
            wire.out.clear()
            split = self.draw.randint(1, len(data)) if self.draw.random() < 0.1 else 0
            for part in (data[:split], data[split:]):
                if part:
                    self._under_way(pipe, side, part)
        if wire.closing:
            self._end(pipe, side)

    def _under_way(self, pipe: Pipe, side: int, data: bytes) -> None:
        if (min(pipe.ends), max(pipe.ends)) in self.silent:
            pipe.held[side].append(data)
            return
        when = max(self.now + self._delay(), pipe.last_us[side])
        pipe.last_us[side] = when

        def arrive() -> None:
            wire = pipe.wires[1 - side]
            broker = self.brokers[pipe.ends[1 - side]]
            if wire is not None and broker is not None and pipe in self.pipes:
                broker.wire_received(wire, data, self.now)
                self.soon(pipe.ends[1 - side])

        self.at(when - self.now, arrive)

    def _end(self, pipe: Pipe, side: int) -> None:
        """One side is gone: the other hears of it after what was said before, or part of it."""
        wire = pipe.wires[side]
        if wire is None:
            return
        pipe.wires[side] = None
        del self.of_wire[wire]
        far = pipe.wires[1 - side]
        delay_us = max(0, pipe.last_us[side] - self.now)
        if self.draw.random() < 0.5:
            delay_us = self.draw.randint(0, delay_us)

        def gone() -> None:
            self.pipes.pop(pipe, None)
            broker = self.brokers[pipe.ends[1 - side]]
            if far is not None and broker is not None and far in self.of_wire:
                del self.of_wire[far]
                broker.wire_closed(far, self.now)
                self.soon(pipe.ends[1 - side])

        self.at(delay_us, gone)

    def sever(self, pair: Pair, silently: bool) -> None:
        """A link breaks: its connections end, or nothing arrives any more."""
        if silently:
            self.silent.add(pair)
            return
        self.cut.add(pair)
        for pipe in list(self.pipes):
            if (min(pipe.ends), max(pipe.ends)) == pair:
                for side in (0, 1):
                    wire, number = pipe.wires[side], pipe.ends[side]
                    broker = self.brokers[number]
                    if wire is not None and broker is not None:
                        pipe.wires[side] = None
                        self.of_wire.pop(wire, None)
                        broker.wire_closed(wire, self.now)
                        self.soon(number)
                self.pipes.pop(pipe, None)

    def heal(self, pair: Pair) -> None:
        self.cut.discard(pair)
        if pair in self.silent:
            self.silent.discard(pair)
            for pipe in list(self.pipes):
                if (min(pipe.ends), max(pipe.ends)) == pair:
                    for side in (0, 1):
                        held, pipe.held[side] = pipe.held[side], []
                        for data in held:
                            self._under_way(pipe, side, data)

    def all_well(self) -> None:
        self.aim = 0.0
        for number in self.network.members:
            self.start(number)
        for pair in self.network.pairs:
            self.heal(pair)
        self.slow_us = 3_000

    def joined(self) -> bool:
        """Whether the brokers that live are joined by the links that work."""
        alive = [number for number, broker in enumerate(self.brokers) if broker is not None]
        works = [p for p in self.network.pairs if p not in self.cut and p not in self.silent]
        return span(alive, works)[1] == 1

    def repaired(self) -> bool:
        """Whether one tree of working links joins just those that live, and all are there: nobody
        is held until the network knows what a first publication or a subscription said, which is
        asked again after seconds if the question was lost with a broker."""
        alive = [number for number, broker in enumerate(self.brokers) if broker is not None]
        trees: dict[TreeId, Tree] = {}
        for broker in self.brokers:
            if broker is not None and broker.repair is not None:
                tree = broker.repair.tree
                trees[tree.id] = tree
                within = [n.link for n in broker.peers.values() if n.link.neighbour]
                settled = broker.repair.spanning.settled == tree.id
                if not settled or not all(link.connected for link in within):
                    return False
        (tree, *others) = trees.values()
        broken = self.cut | self.silent
        if not all(client.ready or self.brokers[client.broker] is None for client in self.clients):
            return False
        if any(client.connection is not None and client.connection.held for client in self.clients):
            return False
        return not others and list(tree.members) == alive and broken.isdisjoint(tree.links)


class RehearsedClient:
    """A client that comes back to its session as often as it must."""

    def __init__(self, world: World, broker: BrokerId, name: str) -> None:
        self.world, self.broker, self.name = world, broker, name
        self.connection: Connection | None = None
        self.ready = self.roams = False
        self.next_id = 0
        world.clients.append(self)
        self.come()

    def come(self) -> None:
        broker = self.world.brokers[self.broker]
        if self.connection is not None:
            return
        if broker is None:
            self.world.at(200_000, self.come)
            return
        self.connection = broker.clients.opened("memory:1", self.world.now)
        assert self.connection is not None
        self.send(self.hello())

    def hello(self) -> mqtt5.ConnectPacket:
        return mqtt5.ConnectPacket(self.name, clean_start=False, session_expiry_interval=86_400)

    def lost(self) -> None:
        """The connection is gone, with what was not heard yet."""
        self.connection, self.ready = None, False
        if self.roams:
            self.broker = self.world.draw.choice(self.world.network.members)
        self.world.at(self.world.draw.randint(1_000, 300_000), self.come)

    def hang_up(self) -> None:
        broker = self.world.brokers[self.broker]
        if self.connection is not None and broker is not None:
            broker.clients.closed(self.connection, self.world.now)
            self.world.soon(self.broker)
            self.lost()

    def send(self, packet: mqtt5.Packet) -> None:
        broker = self.world.brokers[self.broker]
        if self.connection is not None and broker is not None:
            broker.clients.received(self.connection, packet.write(), self.world.now)
            self.world.soon(self.broker)

    def take(self) -> tuple[Connection | None, bytes]:
        """What the broker has written; it has been stored before."""
        connection, data = self.connection, b""
        if connection is not None:
            data = b"".join(connection.out)
            connection.out.clear()
        return connection, data

    def hear(self, connection: Connection | None, data: bytes) -> None:
        if connection is None:
            return
        at = 0
        while at < len(data):
            end = mqtt.frame(data, at, 1 << 28)
            packet, _ = mqtt5.read(memoryview(data[at:end]))
            if isinstance(packet, mqtt5.ConnAckPacket):
                self.ready = True
                self.connected()
            else:
                self.on_packet(packet)
            at = end
        if connection.closing and self.connection is connection:
            self.lost()

    def connected(self) -> None: ...

    def on_packet(self, packet: Any) -> None: ...


class RehearsedPublisher(RehearsedClient):
    def __init__(
        self,
        world: World,
        broker: BrokerId,
        name: str,
        ledger: Ledger,
        quality: mqtt5.QoS = AT_LEAST,
    ) -> None:
        self.ledger, self.quality = ledger, quality
        self.owed: dict[int, tuple[int, str, bytes]] = {}
        self.released: dict[int, None] = {}  # PUBREC came, and no PUBCOMP
        super().__init__(world, broker, name)

    def publish(self, qos: int) -> int:
        """Publish something; its number."""
        draw, number = self.world.draw, len(self.ledger.published)
        topic, x = draw.choice(TOPICS), draw.randint(0, 4)
        payload = b'{"n": %d, "x": %d}' % (number, x)
        self.ledger.published.append((topic, payload, qos, self.broker))
        self.ledger.sources.append(self.name)
        if not qos:
            self.send(mqtt5.PublishPacket(topic, payload))
            return number
        self.next_id = self.next_id % 60_000 + 1
        self.owed[self.next_id] = (number, topic, payload)
        if self.ready:  # otherwise it goes with what it sends again then, in order
            self.send(mqtt5.PublishPacket(topic, payload, qos=self.quality, packet_id=self.next_id))
        return number

    def connected(self) -> None:
        for packet_id, (_, topic, payload) in self.owed.items():
            self.send(
                mqtt5.PublishPacket(
                    topic, payload, qos=self.quality, packet_id=packet_id, duplicate=True
                )
            )
        for packet_id in self.released:
            self.send(mqtt5.PubRelPacket(packet_id))

    def on_packet(self, packet: Any) -> None:
        if isinstance(packet, mqtt5.PubCompPacket):
            self.released.pop(packet.packet_id, None)
            return
        if not isinstance(packet, mqtt5.PubAckPacket | mqtt5.PubRecPacket):
            return
        if packet.packet_id in self.owed:
            number, _, _ = self.owed.pop(packet.packet_id)
            self.ledger.acknowledged.add(number)
            self.ledger.check_safe(number)
        if isinstance(packet, mqtt5.PubRecPacket):
            self.released[packet.packet_id] = None
            self.send(mqtt5.PubRelPacket(packet.packet_id))


class Subscriber(RehearsedClient):
    def __init__(
        self,
        world: World,
        broker: BrokerId,
        name: str,
        ledger: Ledger,
        pattern: str,
        where: str | None,
        quality: mqtt5.QoS = AT_LEAST,
    ) -> None:
        self.ledger, self.pattern, self.where = ledger, pattern, where
        self.quality = quality
        self.received: dict[int, int] = {}  # of quality 2 and not released, by identifier
        self.exact: set[int] = set()  # of quality 2, what it took for new
        self.shared, topic = topics.split_share(pattern)
        self.filter: Filter = topics.as_filter(topic, where)
        self.granted = self.roamed = False
        self.first: Counter[int] = Counter()  # not marked as sent again
        self.got: set[int] = set()
        self.acknowledged: set[int] = set()
        self.pinged: set[int] | None = None
        self.sure: set[int] = set()
        self.last: dict[tuple[str, str], int] = {}  # of each publisher and topic, at quality 1
        super().__init__(world, broker, name)
        world.at(100_000, self.ping)

    def connected(self) -> None:
        self.pinged = None
        self.acknowledged = set(self.sure)  # the others may have been lost with the connection
        if not self.granted:
            wanted = mqtt5.TopicFilter(
                self.pattern, max_qos=self.quality, retain_as_published=False
            )
            where = [] if self.where is None else [("$where", self.where)]
            self.send(mqtt5.SubscribePacket(1, [wanted], user_properties=where))

    def ping(self) -> None:
        if self.connection is not None and self.pinged is None:
            self.pinged = set(self.acknowledged)
            self.send(mqtt5.PingReqPacket())
        self.world.at(300_000, self.ping)

    def on_packet(self, packet: Any) -> None:
        if isinstance(packet, mqtt5.SubAckPacket):
            self.granted = True
        elif isinstance(packet, mqtt5.PingRespPacket):
            self.sure |= self.pinged or set()
            self.pinged = None
        elif isinstance(packet, mqtt5.PublishPacket):
            number = msgspec.json.decode(packet.payload)["n"]
            if number in self.sure:
                raise Failed(f"{self.name} gets {number} again after its acknowledgement")
            if packet.packet_id and packet.qos == 2:
                self._take(packet.packet_id, number)
            if packet.packet_id and number not in self.got and not self.shared:
                stream = self.ledger.sources[number], packet.topic
                if self.last.get(stream, -1) > number and not self.roamed:
                    raise Failed(f"{self.name} gets {number} after {self.last[stream]}")
                self.last[stream] = number
            self.got.add(number)
            self.first[number] += not packet.duplicate
            if self.first[number] > 1:
                raise Failed(f"{self.name} gets {number} twice")
            if packet.packet_id and self.world.draw.random() < 0.9:
                kind = mqtt5.PubRecPacket if packet.qos == 2 else mqtt5.PubAckPacket
                self.send(kind(packet.packet_id))
                self.acknowledged.add(number)
        elif isinstance(packet, mqtt5.PubRelPacket):
            self.received.pop(packet.packet_id, None)
            if self.world.draw.random() < 0.9:
                self.send(mqtt5.PubCompPacket(packet.packet_id))

    def _take(self, packet_id: int, number: int) -> None:
        """What a client does that knows nothing but identifiers."""
        if packet_id in self.received:
            if self.received[packet_id] != number:
                raise Failed(
                    f"{self.name}: identifier {packet_id} is in use and stands for another"
                )
            return
        self.received[packet_id] = number
        if number in self.exact:
            raise Failed(f"{self.name} gets {number} twice at quality 2")
        self.exact.add(number)

    def awaits(self, other: BrokerId) -> bool:
        """Whether its session has come, but for what waits for it at this other broker."""
        broker = self.world.brokers[self.broker]
        if broker is None:
            return False
        coming = broker.clients.luggage.homes.coming.get(self.name)
        return coming is not None and coming.broker == other

    def has(self, number: int) -> bool:
        """Whether a publication has reached it, or is in its broker's store, or on its way between
        two that its session moves between."""
        if number in self.got:
            return True
        if self.roamed:
            mark = b'{"n": %d, ' % number
            peers = range(len(self.world.stores))
            return any(
                mark in data
                for store in self.world.stores
                for table, owners in (
                    ("parcel", [self.name]),
                    ("move", [self.name]),
                    ("queue", peers),
                )
                for owner in owners
                for data in store.owned(table, owner)
            )
        rows = self.world.stores[self.broker].owned("parcel", self.name)
        for data in rows:
            letter = msgspec.msgpack.decode(data, type=ParcelRow).letter
            payload = Letter(letter).payload if letter else b'{"n": -1}'
            if msgspec.json.decode(payload)["n"] == number:
                return True
        return False


class GroupMember(Subscriber):
    """One of a group; it may leave for good."""

    leaving = False
    left = False

    def leave(self) -> None:
        """Take its session over with one that ends, as often as it takes."""
        self.leaving = True
        self.hang_up()

    def come(self) -> None:
        if not self.left:
            super().come()

    def hello(self) -> mqtt5.ConnectPacket:
        return mqtt5.ConnectPacket(self.name, clean_start=True) if self.leaving else super().hello()

    def connected(self) -> None:
        if not self.leaving:
            super().connected()
            return
        self.left = True
        self.hang_up()
        self.world.clients.remove(self)

    def ping(self) -> None:
        if not self.leaving:
            super().ping()


class Ledger:
    """What was published and acknowledged, and who should have it."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes, int, BrokerId]] = []
        self.sources: list[str] = []  # who published each
        self.acknowledged: set[int] = set()
        self.subscribers: list[Subscriber] = []
        self.guests: list[Subscriber] = []
        self.members: list[GroupMember] = []

    def matches(self, subscriber: Subscriber, number: int) -> bool:
        topic, payload, _, _ = self.published[number]
        return matches(subscriber.filter, content.attributes(topic, payload))

    def check_safe(self, number: int) -> None:
        for subscriber in self.subscribers:
            if self.matches(subscriber, number) and not subscriber.has(number):
                raise Failed(f"{number} was acknowledged and is not safe with {subscriber.name}")
        if self.members and self.matches(self.members[0], number) and not self._in_group(number):
            raise Failed(f"{number} was acknowledged and is not safe with the group")

    def _in_group(self, number: int) -> bool:
        """Whether a member has it, or a broker that is to hand it to one."""
        if any(member.has(number) for member in self.members):
            return True
        mark = b'{"n": %d, ' % number
        stores = self.members[0].world.stores
        return any(mark in data for store in stores for data in store.owned("outbox", 0))

    def check_group(self, calm: list[int]) -> int:
        """One member each; how many that were."""
        count = 0
        for number, (_, _, qos, _) in enumerate(self.published):
            got = [member for member in self.members if number in member.got]
            stayed = [member.name for member in got if not member.left]
            if not self.matches(self.members[0], number):
                if got:
                    raise Failed(f"{got[0].name} got {number}, which the group did not want")
                continue
            if len(stayed) > 1 or (stayed and any(m.left and number in m.sure for m in got)):
                raise Failed(f"{[member.name for member in got]} all got {number}")
            if not got and (qos or number in calm):
                raise Failed(f"no member of the group got {number}")
            count += bool(got)
        return count


def draw_network(draw: random.Random, scheme: str) -> Network:
    count = draw.randint(4, 7)
    pairs = {(draw.randrange(n), n) for n in range(1, count)}
    more = draw.randint(1, 4 if count > 4 else 3)
    while len(pairs) < count - 1 + more:
        a, b = sorted(draw.sample(range(count), 2))
        pairs.add((a, b))
    chosen = sorted(pairs)
    draw.shuffle(chosen)
    names = "ABCDEFG"[:count]
    values: dict[str, Any] = {
        "name": "rehearsal",
        "scheme": scheme,
        "store": "nowhere",
        "limits": LIMITS,
        "links": [[names[a], names[b]] for a, b in chosen],
        "brokers": {name: _ports(n) for n, name in enumerate(names)},
    }
    if scheme.endswith("forwarding") and draw.random() < 0.5:
        values["parameters"] = {"covering": True}
    return from_values(values, FILE, {})


def _ports(number: int) -> dict[str, int]:
    return {"mqtt": 1 + number, "link": 100 + number, "http": 200 + number}


def changed(network: Network, draw: random.Random, busy: set[BrokerId]) -> Network | None:
    """The network with one broker more, or one less of those without clients."""
    links = [[network.names[a], network.names[b]] for a, b in network.pairs]
    values: dict[str, Any] = {
        "name": network.name,
        "scheme": network.scheme,
        "store": "nowhere",
        "limits": LIMITS,
        "links": links,
        "brokers": {name: _ports(n) for n, name in enumerate(network.names)},
        "removed": [network.names[n] for n in sorted(network.removed)],
    }
    if draw.random() < 0.5:
        number = len(network.names)
        name = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[number]
        values["brokers"][name] = _ports(number)
        peers = draw.sample(network.members, draw.randint(1, 2))
        links += [[network.names[peer], name] for peer in peers]
    else:
        idle = [number for number in network.members if number not in busy]
        if not idle:
            return None
        values["removed"].append(network.names[draw.choice(idle)])
    try:
        new = from_values(values, FILE, {})
        return replace(new, redundant=True, config=network.config)
    except InputError:  # the others would not be joined
        return None


def rehearse(seed: int, say: Callable[[str], None] | None = None) -> Counter[str]:
    """One network's life; what happened how often. Raises `Failed`."""
    draw = random.Random(seed)
    scheme = DURABLE[seed % len(DURABLE)]
    network = draw_network(draw, scheme)
    world = World(network, draw)
    names, did = network.names, Counter[str]()
    shown = say or (lambda text: None)

    def tell(text: str) -> None:
        shown(f"{(world.now - START_US) / SECOND_US:9.3f} s  {text}")

    tell(f"{scheme}, links {' '.join(names[a] + names[b] for a, b in network.pairs)}")
    ledger = Ledger()
    qualities = random.Random(f"qualities {seed}")
    world.run(SECOND_US)
    for number in range(draw.randint(2, 5)):
        (pattern, where), quality = draw.choice(WANTED), qualities.choice(QUALITIES)
        subscriber = Subscriber(
            world, draw.randrange(len(names)), f"s{number}", ledger, pattern, where, quality
        )
        ledger.subscribers.append(subscriber)
        at = names[subscriber.broker]
        tell(f"s{number} at {at} wants {pattern}, {where}, at quality {int(quality)}")
    publishers = [
        RehearsedPublisher(
            world, draw.randrange(len(names)), f"p{n}", ledger, qualities.choice(QUALITIES)
        )
        for n in range(draw.randint(1, 3))
    ]
    for number in range(qualities.choice([0, 2, 3])):
        place = qualities.randrange(len(names))
        member = GroupMember(world, place, f"m{number}", ledger, "$share/g/+/a", "x > 0", AT_LEAST)
        ledger.members.append(member)
        tell(f"m{number} at {names[place]} is a member")
    everyone = [*ledger.subscribers, *ledger.members]
    world.until(lambda: all(s.granted for s in everyone), 20 * SECOND_US, "SUBACK")
    world.aim = draw.choice([0.0, 0.0, 0.2])
    roaming: list[RehearsedClient] = []
    if qualities.random() < 0.5:
        ledger.subscribers[0].roamed = True
        roaming = [ledger.subscribers[0], publishers[0]]
        for client in roaming:
            client.roams = True
        tell("s0 and p0 come back at any broker")
    guests = random.Random(f"guests {seed}")  # who come in between: of order and no more is owed
    for number in range(draw.randint(8, 20)):
        if guests.random() < 0.1:
            place = guests.choice(world.network.members)
            guest = Subscriber(world, place, f"g{number}", ledger, *guests.choice(WANTED))
            ledger.guests.append(guest)
            tell(f"{guest.name} comes to {world.network.names[place]}")
        if len(ledger.members) == 3 and number == 7 and qualities.random() < 0.5:
            leaver = ledger.members[2]
            tell(f"{leaver.name} leaves the group for good")
            leaver.leave()
            did["members that left"] += 1
        _something(world, draw, publishers, did, tell)
        if roaming and qualities.random() < 0.5:
            qualities.choice(roaming).hang_up()
            did["moves"] += 1
        world.run(draw.choice([0, 1, 5, 50, 400, 1500, 3000]) * 1000)
    for client in roaming:
        client.roams = False
    _check_repair(world, draw, publishers, ledger, did, tell)
    world.all_well()
    tell("all is well again")
    for subscriber in everyone:  # what it did not acknowledge has to come again
        subscriber.hang_up()
    world.run(SECOND_US)
    world.until(world.repaired, HEALED_US, "a tree that joins all")
    world.until(
        lambda: not any(p.owed or p.released for p in publishers), 15 * SECOND_US, "all PUBACKs"
    )
    place = draw.choice(world.network.members)
    late = Subscriber(world, place, "late", ledger, *draw.choice(WANTED))
    world.until(lambda: late.granted, SECOND_US, "SUBACK")
    calm = [publisher.publish(qos) for publisher in publishers for qos in (0, 1)]
    world.run(2 * SECOND_US)
    if missing := sorted({n for n in calm if ledger.matches(late, n)} - late.got):
        raise Failed(f"late never got {missing}")
    for subscriber in ledger.subscribers:
        matching = {n for n in range(len(ledger.published)) if ledger.matches(subscriber, n)}
        due = {n for n in matching if ledger.published[n][2] or n in calm}
        if missing := sorted(due - subscriber.got):
            raise Failed(f"{subscriber.name} never got {missing[:10]}")
        if foreign := sorted(subscriber.got - matching):
            raise Failed(f"{subscriber.name} got {foreign[:10]}, which it did not want")
        did["deliveries"] += len(due)
        did["exactly once"] += len(subscriber.exact)
    if ledger.members:
        did["given to one member"] += ledger.check_group(calm)
    for broker in world.brokers:
        if broker is None:
            continue
        assert broker.repair is not None
        broker.router.check()
        if broker.repair.outbox or any(n.link.queue for n in broker.peers.values()):
            raise Failed(f"{broker.name} still keeps something")
        did["trees"] = max(did["trees"], broker.repair.tree.epoch)
    did["publications"] += len(ledger.published)
    return did


def _something(
    world: World,
    draw: random.Random,
    publishers: list[RehearsedPublisher],
    did: Counter[str],
    tell: Callable[[str], None],
) -> None:
    names, pairs, what = world.network.names, world.network.pairs, draw.random()
    if what < 0.4:
        publisher = draw.choice(publishers)
        for _ in range(draw.randint(1, IN_FLIGHT)):
            if len(publisher.owed) < 4 * IN_FLIGHT:
                publisher.publish(draw.random() < 0.8)
    elif what < 0.6:
        number = draw.choice(world.network.members)
        tell(f"{names[number]} falls")
        world.fall(number)
        did["crashes"] += 1
    elif what < 0.75:
        pair, silently = draw.choice(pairs), draw.random() < 0.3
        tell(f"{names[pair[0]]}{names[pair[1]]} {'falls silent' if silently else 'breaks'}")
        world.sever(pair, silently)
        did["silences" if silently else "cuts"] += 1
    elif what < 0.8:
        members = world.network.members
        side = set(draw.sample(members, draw.randint(1, len(members) // 2)))
        tell(f"{''.join(names[n] for n in sorted(side))} is parted from the others")
        for pair in pairs:
            if len(side & set(pair)) == 1:
                world.sever(pair, False)
        did["partitions"] += 1
    elif what < 0.84:
        busy = {client.broker for client in world.clients}
        if any(client.roams for client in world.clients):  # a session leaves with its broker
            busy = set(world.network.members)
        network = changed(world.network, draw, busy)
        if network is not None:
            if any(world.owes(number) for number in network.removed - world.network.removed):
                return  # such a one is not removed
            world.change(network)
            tell(f"the network is now {' '.join(network.member_names)}")
            did["added or removed"] += 1
            newest = len(network.names) - 1
            if newest not in network.removed and newest not in busy and draw.random() < 0.5:
                publishers.append(
                    RehearsedPublisher(
                        world, newest, f"p{newest}", publishers[0].ledger, publishers[0].quality
                    )
                )
    elif what < 0.92:
        tell("links heal")
        for pair in pairs:
            if draw.random() < 0.7:
                world.heal(pair)
    elif what < 0.96:
        world.slow_us = draw.choice([500, 3_000, 200_000])
        tell(f"bytes take up to {world.slow_us} µs")
        did["delays"] += 1
    else:
        draw.choice(world.clients).hang_up()
        did["hang-ups"] += 1


def _check_repair(
    world: World,
    draw: random.Random,
    publishers: list[RehearsedPublisher],
    ledger: Ledger,
    did: Counter[str],
    tell: Callable[[str], None],
) -> None:
    """With one broker or link gone for good, the others go on within seconds."""
    names = world.network.names
    world.all_well()
    world.until(world.repaired, HEALED_US, "a tree that joins all")
    away = draw.choice(world.network.members)
    if draw.random() < 0.5:
        world.crash(away)
        tell(f"{names[away]} stays away")
    else:
        away = -1
        pair = draw.choice(world.network.pairs)
        world.sever(pair, draw.random() < 0.5)
        tell(f"{names[pair[0]]}{names[pair[1]]} stays broken")
    if not world.joined():
        return
    since = world.now
    world.until(world.repaired, REPAIRED_US, "repair")
    did["ms until repaired"] += (world.now - since) // 1000
    here = [p for p in publishers if p.broker != away]
    for publisher in here:
        waits = {number for number, _, _ in publisher.owed.values()}
        news = [publisher.publish(qos) for qos in (0, 1, 0, 1)]
        world.run(SECOND_US)
        for subscriber in ledger.subscribers:
            lacking = {n for n in news if ledger.matches(subscriber, n)} - subscriber.got
            if subscriber.awaits(away):  # what waits there comes first
                lacking = {n for n in lacking if not ledger.published[n][2]}
            if lacking and subscriber.broker != away:
                raise Failed(f"{subscriber.name} has not got {lacking} while one is away")
        gone = [
            s
            for s in (*ledger.subscribers, *ledger.guests)
            if s.broker == away or s.awaits(away)  # it may still want there what it wanted
        ]
        if all(member.left or member.broker == away for member in ledger.members):
            gone += ledger.members
        if not waits and not any(ledger.matches(s, n) for s in gone for n in news):
            if missing := [
                n for n in news if ledger.published[n][2] and n not in ledger.acknowledged
            ]:
                raise Failed(f"{missing} are not acknowledged while one is away")
            did["acknowledged while one is away"] += 2
    did["repairs"] += 1
    world.all_well()
    tell("and comes back")
    meanwhile: list[int] = []
    end = world.now + HEALED_US
    while not world.repaired() and world.now < end:
        meanwhile += [publisher.publish(0) for publisher in here]
        world.run(50_000)
    world.run(SECOND_US // 2)
    for subscriber in ledger.subscribers:
        lacking = {n for n in meanwhile if ledger.matches(subscriber, n)} - subscriber.got
        if lacking and subscriber.broker != away:
            raise Failed(f"{subscriber.name} has not got {lacking} while one came back")
    did["of quality 0 while one came back"] += len(meanwhile)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m postroad.bench.rehearse", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one seed and show what happens")
    parser.add_argument("--seeds", type=int, default=1000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    options = parser.parse_args()
    say = sys.stdout.write
    if options.seed is not None:
        logging.basicConfig(level=logging.WARNING)
        did = rehearse(options.seed, lambda text: (say(text + "\n"), None)[1])
        say(f"{dict(did)}\n")
        return
    total, failed, started = Counter[str](), 0, time.monotonic()
    logging.disable()
    for seed in range(options.first, options.first + options.seeds):
        try:
            total += rehearse(seed)
        except Exception as error:  # whatever it is, its seed must be told
            failed += 1
            say(f"seed {seed}: {type(error).__name__}: {error}\n")
            say(f"  replay: python -m postroad.bench.rehearse --seed {seed}\n")
    say(f"{options.seeds} seeds in {time.monotonic() - started:.0f} s, {failed} failed\n")
    say(", ".join(f"{what}: {count:,}" for what, count in sorted(total.items())) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
