"""The loop around a broker, with transports that are lists."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import mqtt5
import pytest

from live_harness import write_network
from postroad.live import server as servers
from postroad.live.network import load
from postroad.live.server import ClientProtocol, Server


class Transport:
    """What a server uses of a transport."""

    def __init__(self) -> None:
        self.written = b""
        self.reads = True

    def get_extra_info(self, _: str) -> tuple[str, int]:
        return "127.0.0.1", 1

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
