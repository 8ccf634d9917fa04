"""The loop around a broker, with transports that are lists."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import mqtt5
import pytest

from live_harness import write_network
from postroad.live import server as servers
from postroad.live.network import load
from postroad.live.server import ClientProtocol, Server, WireProtocol


class Transport:
    """What a server uses of a transport."""

    def __init__(self) -> None:
        self.written = b""
        self.reads = True

    def get_extra_info(self, key: str) -> tuple[str, int] | None:
        return ("127.0.0.1", 1) if key == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True


async def client(server: Server, name: str) -> tuple[ClientProtocol, Transport]:
    protocol, transport = ClientProtocol(server), Transport()
    protocol.connection_made(cast(Any, transport))
    protocol.data_received(mqtt5.ConnectPacket(name, clean_start=True).write())
    await until(lambda: transport.written)
    return protocol, transport


async def until(done: Callable[[], object]) -> None:
    while not done():
        await asyncio.sleep(0)


async def pair(path: Path) -> tuple[ClientProtocol, Transport, ClientProtocol, Transport]:
    """A client that has published to a topic, and one that subscribes to it."""
    server = Server(load(write_network(path, ["A"], [])), 0)
    publisher, sends = await client(server, "p")
    reader, reads = await client(server, "r")
    wanted = mqtt5.TopicFilter("a", max_qos=mqtt5.QoS(0), retain_as_published=False)
    reads.written = b""
    reader.data_received(mqtt5.SubscribePacket(1, [wanted]).write())
    await until(lambda: reads.written[:1] == b"\x90")
    reads.written, first = b"", mqtt5.PublishPacket("a", b"first").write()
    publisher.data_received(first)
    await until(lambda: reads.written == first)
    reads.written = b""
    return publisher, sends, reader, reads


def test_a_quiet_broker_writes_a_publication_without_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        publisher, _, reader, reads = await pair(tmp_path)
        monkeypatch.setattr(servers, "QUIET_US", -1)  # it has been quiet for long enough
        await until(lambda: not publisher.server._scheduled)
        packet = mqtt5.PublishPacket("a", b"x").write()
        publisher.data_received(packet)
        assert reads.written == packet  # nothing was awaited
        longer = mqtt5.PublishPacket("a", b"longer").write()
        publisher.data_received(longer)
        assert reads.written == packet + longer
        for part in (packet[:1], packet[1:] + mqtt5.PublishPacket("ab", b"no").write()):
            publisher.data_received(part)
            await asyncio.sleep(0)
        await until(lambda: reads.written == packet + longer + packet)
        reads.written = packet
        reader.data_received(mqtt5.UnsubscribePacket(2, ["a"]).write())
        await until(lambda: reads.written[len(packet) :][:1] == b"\xb0")
        publisher.data_received(packet)
        await asyncio.sleep(0)
        assert reads.written.count(packet) == 1

    asyncio.run(asyncio.wait_for(run(), 60))


def test_so_much_is_read_of_a_client_before_its_turn(tmp_path: Path) -> None:
    async def run() -> None:
        publisher, sends, _, reads = await pair(tmp_path)
        packet = mqtt5.PublishPacket("a", b"x" * (2 * servers.READ_BYTES)).write()
        for at in range(0, len(packet), servers.READ_BYTES):
            await until(lambda: sends.reads)
            publisher.data_received(packet[at : at + servers.READ_BYTES])
            assert not sends.reads  # until it has had its turn
        await until(lambda: reads.written == packet)
        assert sends.reads

        flood = mqtt5.PublishPacket("a", b"y" * 100).write() * 5_000
        reads.written = b""
        for at in range(0, len(flood), 64 << 10):
            await until(lambda: sends.reads)
            publisher.data_received(flood[at : at + (64 << 10)])
        await until(lambda: len(reads.written) == len(flood) and sends.reads)
        assert reads.written == flood

    asyncio.run(asyncio.wait_for(run(), 60))


class Pipe(Transport):
    """One end of a connection between two servers: what is written waits until it is moved."""

    def __init__(self) -> None:
        super().__init__()
        self.far: WireProtocol | None = None

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def move(self) -> bool:
        data, self.written = self.written, b""
        if data and self.far is not None:
            self.far.data_received(data)
        return bool(data)


class Joined:
    """Three servers in a row and their clients, joined by pipes."""

    def __init__(self, path: Path) -> None:
        network = load(path)
        self.servers = [Server(network, number) for number in range(3)]
        self.clients: dict[str, tuple[ClientProtocol, Transport, int]] = {}
        self.pipes: list[Pipe] = []
        for server in self.servers:
            server._dial = self._never  # type: ignore[method-assign]
        for number in (0, 1):
            ends = (
                WireProtocol(self.servers[number], number + 1),
                WireProtocol(self.servers[number + 1], None),
            )
            pipes = Pipe(), Pipe()
            for pipe, end, far in zip(pipes, ends, reversed(ends), strict=True):
                pipe.far = far
                end.connection_made(cast(Any, pipe))
            self.pipes += pipes

    async def _never(self, peer: int) -> None:
        pass

    async def settle(self) -> None:
        """Until nobody has anything to do but what is due later."""
        while True:
            moved = [pipe.move() for pipe in self.pipes]
            if not any(moved) and not any(server._scheduled for server in self.servers):
                return
            await asyncio.sleep(0)

    async def connect(self, name: str, broker: int, level: int) -> None:
        protocol, transport = ClientProtocol(self.servers[broker]), Transport()
        self.clients[name] = protocol, transport, level
        protocol.connection_made(cast(Any, transport))
        body = b"\0\4MQTT\4\2\0\0" + len(name).to_bytes(2, "big") + name.encode()
        old = bytes((0x10, len(body))) + body
        await self.send(
            name, mqtt5.ConnectPacket(name, clean_start=True).write() if level == 5 else old
        )

    async def send(self, name: str, data: bytes) -> None:
        self.clients[name][0].data_received(data)
        await self.settle()

    async def acknowledged(self) -> None:
        """Until peers have had all there is, and have said so."""
        links = [each.link for s in self.servers for each in s.broker.peers.values()]
        while any(link.queue for link in links):
            await asyncio.sleep(0.01)
            await self.settle()


@pytest.mark.parametrize("seed", range(3))
def test_over_links_what_goes_without_a_turn_is_what_turns_deliver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    alone = 0

    async def run(quiet: bool) -> dict[str, bytes]:
        nonlocal alone
        draw = random.Random(seed)
        monkeypatch.setattr(servers, "QUIET_US", -1 if quiet else 1 << 60)
        path = write_network(tmp_path, ["A", "B", "C"], [("A", "B"), ("B", "C")])
        joined = Joined(path)
        for server in joined.servers:
            passed_on = server.passed_on

            def counted(wire: Any, data: bytes, passed_on: Any = passed_on) -> bool:
                nonlocal alone
                done: bool = passed_on(wire, data)
                alone += done
                return done

            server.passed_on = counted  # type: ignore[method-assign]
        await joined.settle()
        levels = {f"c{n}": draw.choice([4, 5]) for n in range(9)}
        for n, (name, level) in enumerate(levels.items()):
            await joined.connect(name, n % 3, level)
        for step in range(400):
            name = draw.choice(list(levels))
            level, topic = levels[name], draw.choice(["a", "a/b", "b", "b", "c"])
            if step < 12 or draw.random() < 0.05:
                wanted = draw.choice(["a", "a/b", "b", "b", "c", "a/+"])
                if level == 5 and draw.random() < 0.3:
                    data = mqtt5.UnsubscribePacket(step + 1, [wanted]).write()
                else:  # of b it matters what it says; what c0 gets of c needs a further look
                    further = wanted == "c" and name == "c0"
                    data = subscribe(level, step + 1, wanted, further, wanted == "b")
                await joined.send(name, data)
            else:
                payload = b'{"n": %d}' % step + b" " * draw.choice([0, 0, 110, 300, 900, 1_500])
                packets = draw.choice([1, 1, 1, 1, 3])
                await joined.send(name, publication(level, topic, payload) * packets)
        await joined.acknowledged()
        counts = [
            (tally.published, tally.delivered, tally.bytes_sent, server.broker.steps)
            for server in joined.servers
            for tally in [server.broker.clients.tally]
        ]
        for server in joined.servers:
            for neighbour in server.broker.peers.values():
                link = neighbour.link
                assert link.sent == link.base + len(link.queue) == link.carried
                assert link.base == link.sent  # all of it was acknowledged
                far = joined.servers[link.peer].broker.peers[server.number]
                assert neighbour.sent["publication"] == far.received["publication"]
        for server in joined.servers:
            if server._timer is not None:
                server._timer.cancel()
        outcome = {name: transport.written for name, (_, transport, _) in joined.clients.items()}
        return outcome | {"counts": repr(counts).encode()}

    expected = asyncio.run(asyncio.wait_for(run(False), 120))
    assert alone == 0
    assert asyncio.run(asyncio.wait_for(run(True), 120)) == expected
    assert alone > 150


def subscribe(level: int, number: int, pattern: str, qos: bool, where: bool) -> bytes:
    if level == 5:
        wanted = mqtt5.TopicFilter(pattern, max_qos=mqtt5.QoS(qos), retain_as_published=False)
        properties = [("$where", f"n > {20 * number}")] if where else []
        return mqtt5.SubscribePacket(number, [wanted], user_properties=properties).write()
    name = pattern.encode()
    body = number.to_bytes(2, "big") + len(name).to_bytes(2, "big") + name + bytes((qos,))
    return bytes((0x82, len(body))) + body


def publication(level: int, topic: str, payload: bytes) -> bytes:
    if level == 5:
        return mqtt5.PublishPacket(topic, payload).write()
    body = len(topic).to_bytes(2, "big") + topic.encode() + payload
    length, size = len(body), b""
    while length > 127:
        size += bytes((length & 127 | 128,))
        length >>= 7
    return b"\x30" + size + bytes((length,)) + body
