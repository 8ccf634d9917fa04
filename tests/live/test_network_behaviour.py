"""Real processes: the simulator's deliveries, links that break under load, hostile bytes."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import mqtt5
import msgspec
import numpy as np
import pytest

from live_harness import Processes, free_ports, write_network
from postroad.live.client import Client
from postroad.live.edge import topics
from postroad.live.links import link as links
from postroad.overlay import from_links, small_world
from postroad.routing import SCHEMES
from postroad.sim.oracle import compare
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest, Posting, Workload

NAMES = ["A", "B", "C", "D"]
LINKS = [("A", "B"), ("B", "C"), ("B", "D")]
WANTED = [
    ("s1", "A", "quotes/+", "price > 10"),
    ("s2", "C", "quotes/#", None),
    ("s3", "D", "quotes/ibm", "price BETWEEN 5 AND 15"),
    ("s4", "D", "#", "urgent = TRUE"),
    ("s5", "C", "news/+/eu", None),
    ("s6", "B", "quotes/ibm", "price > 100"),
]


def scenario(scheme: str) -> Scenario:
    draw = random.Random(5)
    overlay = from_links([(a, b, 1000) for a, b in LINKS])
    number = {name: broker for broker, name in enumerate(overlay.names)}
    subscriptions = tuple(
        Interest(id, number[broker], id, topics.as_filter(pattern, where))
        for id, broker, pattern, where in WANTED
    )
    offers, postings = [], []
    for publisher, broker, topic in (
        ("p1", "A", "quotes/ibm"),
        ("p2", "D", "quotes/sap"),
        ("p3", "C", "news/tech/eu"),
        ("p4", "B", "news/tech/us"),
    ):
        filter = topics.as_filter(topic)
        offers.append(Interest(f"{publisher}/{topic}", number[broker], publisher, filter))
        for n in range(12):
            attributes: dict[str, Any] = {"class": topic, "price": draw.randint(0, 120), "n": n}
            if draw.random() < 0.3:
                attributes["urgent"] = True
            postings.append(
                Posting(1000 * len(postings), number[broker], publisher, str(n), attributes)
            )
    return Scenario(scheme, overlay, Workload(subscriptions, tuple(offers), tuple(postings)))


async def live_pairs(running: Processes, given: Scenario, owed: int) -> Counter[Any]:
    """Play the scenario with real clients; the (publication, subscription) pairs delivered."""
    found: Counter[Any] = Counter()

    async def listen(id: str, client: Client) -> None:
        async for message in client:
            told = msgspec.json.decode(message.payload)
            found[(told["publisher"], str(told["n"])), id] += 1

    names = given.overlay.names
    clients: list[Client] = []
    try:
        listening = []
        for id, broker, pattern, where in WANTED:
            client = Client("127.0.0.1", running.mqtt(broker), client_id=id)
            await client.__aenter__()
            clients.append(client)
            await client.subscribe(pattern, where=where, qos=1)
            listening.append(asyncio.create_task(listen(id, client)))
        publishers: dict[str, Client] = {}
        for posting in given.workload.postings:
            if posting.publisher not in publishers:
                publisher = Client(
                    "127.0.0.1", running.mqtt(names[posting.broker]), client_id=posting.publisher
                )
                await publisher.__aenter__()
                clients.append(publisher)
                publishers[posting.publisher] = publisher
            told = {**posting.attributes, "publisher": posting.publisher}
            topic = str(told.pop("class"))
            await publishers[posting.publisher].publish(topic, msgspec.json.encode(told), qos=1)
        for _ in range(200):
            if sum(found.values()) >= owed:
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)  # whatever should not come would come now
        for task in listening:
            task.cancel()
    finally:
        for client in clients:
            await client.__aexit__(None, None, None)
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
def test_simulator_and_live_brokers_deliver_the_same(tmp_path: Path, scheme: str) -> None:
    given = scenario(scheme)
    result = run(given)
    simulated = Counter(delivery[:2] for delivery in result.deliveries)
    compare(given, simulated.elements()).require()
    assert len(simulated) > 40
    more: dict[str, Any] = {"links": LINKS}
    if scheme == "beaconvey":  # from a plan file
        fingers = small_world.chord(len(NAMES))
        world = small_world.SmallWorld(np.arange(len(NAMES)), fingers)
        small_world.save(small_world.as_overlay(world, NAMES, 1000), tmp_path / "ring.json", {})
        more = {"links": [], "top": 'plan = "ring.json"'}
    path = write_network(tmp_path, NAMES, scheme=scheme, free=True, **more)
    with Processes(path) as running:
        live = asyncio.run(asyncio.wait_for(live_pairs(running, given, len(simulated)), 60))
    assert live == simulated


class Proxy:
    """Stands between two brokers and breaks their connection when told to."""

    def __init__(self, port: int, target: int) -> None:
        self.port, self.target = port, target
        self.writers: set[asyncio.StreamWriter] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.refusing = False
        self.accepted = 0

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self.accepted += 1
        self.writers |= {writer, far_writer}
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._copy(source, sink))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def stop(self) -> None:
        self.server.close()
        self.cut()
        await asyncio.sleep(0.05)


def test_link_cut_and_restored_under_load_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A", "B", "C"], [("A", "B"), ("B", "C")], free=True)
    (port,) = free_ports(1)
    running = Processes(path)
    target = running.network.addresses[1].link
    roundabout = tmp_path / "a.toml"  # as A sees the network: B is behind the proxy
    roundabout.write_text(path.read_text().replace(f"link = {target}\n", f"link = {port}\n"))

    async def play() -> tuple[list[int], int, dict[str, Any] | None]:
        proxy = Proxy(port, target)
        await proxy.start()
        running.path = roundabout
        running.start("A")
        running.path = path
        running.start("B")
        running.start("C")
        await asyncio.to_thread(running.wait_linked)
        draw = random.Random(3)
        got: list[int] = []
        count = 3000
        async with (
            Client("127.0.0.1", running.mqtt("A")) as near,
            Client("127.0.0.1", running.mqtt("C")) as far,
        ):
            await far.subscribe("load", where="n >= 0", qos=1)

            async def listen() -> None:
                async for message in far:
                    got.append(msgspec.json.decode(message.payload)["n"])
                    if len(got) == count:
                        return

            listening = asyncio.create_task(listen())
            for n in range(count):
                await near.publish("load", b'{"n": %d, "pad": "%s"}' % (n, b"x" * 200))
                if n % 400 == 399:
                    await asyncio.sleep(draw.uniform(0, 0.02))
                    proxy.cut()
                    proxy.refusing = draw.random() < 0.5
                elif n % 400 == 100:
                    proxy.refusing = False
                    await asyncio.sleep(0.15)
            proxy.refusing = False
            await asyncio.wait_for(listening, 30)
            await asyncio.sleep(0.2)
        told = await asyncio.to_thread(running.status, "A")
        await proxy.stop()
        return got, proxy.accepted, told

    try:
        got, accepted, told = asyncio.run(asyncio.wait_for(play(), 100))
    finally:
        running.__exit__(None, None, None)
    assert got == list(range(3000))
    assert accepted > 3
    assert told is not None
    assert told["links"]["B"]["cuts"] >= 3
    assert told["links"]["B"]["dropped"] == 0
    assert told["links"]["B"]["resent"] > 0


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(
    ("relocation", "parameters", "declared"),
    [("grape", "threshold = 40", None), ("pop", "threshold = 40\nwindow_s = 1.0", "class = 'm'")],
)
def test_publisher_is_moved_to_its_subscribers_and_loses_nothing(
    tmp_path: Path, relocation: str, parameters: str, declared: str | None, qos: int
) -> None:
    path = write_network(
        tmp_path, ["A", "B", "C"], [("A", "B"), ("B", "C")], free=True,
        scheme="advertisement_forwarding", top=f'relocation = "{relocation}"',
        tables=f"[{relocation}]\n{parameters}",
    )  # fmt: skip

    async def play(running: Processes) -> tuple[list[int], int, int]:
        got: list[int] = []
        sent = 0
        async with (
            Client("127.0.0.1", running.mqtt("C"), client_id="far") as far,
            Client("127.0.0.1", running.mqtt("A"), client_id="mover", advertise=declared) as mover,
        ):
            await far.subscribe("+", where="n >= 0", qos=qos)

            async def listen() -> None:
                async for message in far:
                    told = msgspec.json.decode(message.payload)
                    got.append(told["n"])

            listening = asyncio.create_task(listen())
            after = 0
            while sent < 2000 and after < 50:  # on until it has moved, and then a little
                topic = "m" if declared else f"m{sent // 20 % 3}"
                await mover.publish(topic, b'{"n": %d}' % sent, qos=qos)
                sent += 1
                after += mover.moves > 0
                await asyncio.sleep(0.002)
            for _ in range(100):
                if len(got) >= sent:
                    break
                await asyncio.sleep(0.05)
            listening.cancel()
            assert mover.port == running.mqtt("C")
            return got, sent, mover.moves

    with Processes(path) as running:
        got, sent, moves = asyncio.run(asyncio.wait_for(play(running), 60))
        assert "publisher moves" in running.log("A")
        assert "Traceback" not in running.log("A") + running.log("C")
    assert moves == 1
    assert got == list(range(sent))


def mutated(draw: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        what, at = draw.random(), draw.randrange(len(made) + 1)
        if what < 0.5 and made:
            made[at % len(made)] = draw.randrange(256)
        elif what < 0.7:
            made[at:at] = draw.randbytes(draw.randint(1, 6))
        elif what < 0.9:
            del made[at : at + draw.randint(1, 6)]
        else:
            made = made[:at]
    return bytes(made)


CLIENT_PACKETS = [
    mqtt5.ConnectPacket("c", will=mqtt5.Will("w", payload=b"x"), keep_alive=5).write(),
    b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x05\x00\x01c",
    mqtt5.PublishPacket("a/b", b'{"x": 1}', user_properties=[("k", "v")]).write(),
    mqtt5.PublishPacket("a", b"{}", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=3, retain=True).write(),
    mqtt5.SubscribePacket(
        1, [mqtt5.TopicFilter("a/+")], user_properties=[("$where", "x > 1 AND y LIKE 'a%'")]
    ).write(),
    b"\x82\x06\x00\x01\x00\x01#\x00",
    mqtt5.UnsubscribePacket(2, ["a/+"]).write(),
    mqtt5.PubAckPacket(1).write(),
    mqtt5.PingReqPacket().write(),
    mqtt5.DisconnectPacket().write(),
    mqtt5.AuthPacket().write(),
]


def peer_frames(identity: str) -> list[bytes]:
    from postroad.live.links.messages import Codec, Retain, Wave
    from postroad.model import Advertisement, Publication
    from postroad.routing.base import (
        AdvertisementMessage,
        PublicationMessage,
        SubscriptionMessage,
    )

    encode = Codec().encode
    filter = topics.as_filter("a/+", "x > 1")
    messages = [
        PublicationMessage(Publication("p", "1", {"class": "a", "x": 1}, CLIENT_PACKETS[2], 1), 1),
        SubscriptionMessage(filter),
        AdvertisementMessage(Advertisement("a", filter, "p")),
        Wave(1, 1 << 60),
        Retain("t", (1, 1), CLIENT_PACKETS[2], {"x": 1}),
    ]
    return [
        links.pack(links.Hello(links.SPEAKS[1], identity, 1, "b.0", "", 0)),
        *(
            links.pack(links.Data(1, 0, 9000, [msgspec.Raw(encode(message))]))
            for message in messages
        ),
        links.pack(links.Ack(0, 9000)),
        links.pack(links.Bye("bye")),
    ]


def test_thousands_of_mutated_packets_on_both_ports(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A", "B"], [("A", "B")], free=True)
    draw = random.Random(11)
    with Processes(path) as running:
        running.running["B"].terminate()  # its place is taken by a hostile peer
        running.running["B"].join(10)
        address = running.network.addresses[0]
        frames = peer_frames(running.network.identity)
        sent = 0
        for _ in range(250):
            for port, base in ((address.mqtt, CLIENT_PACKETS), (address.link, frames)):
                first = base[0] if port == address.link else draw.choice(base[:2])
                parts = [first if draw.random() < 0.7 else mutated(draw, first)]
                parts += [mutated(draw, draw.choice(base)) for _ in range(8)]
                sent += len(parts)
                with socket.create_connection(("127.0.0.1", port), timeout=5) as made:
                    try:
                        made.sendall(b"".join(parts))
                        made.shutdown(socket.SHUT_WR)
                        while made.recv(65536):
                            pass
                    except OSError:
                        pass
        assert sent > 4000

        async def served() -> bytes:
            async with Client("127.0.0.1", address.mqtt) as client:
                await client.subscribe("after/#", where="x = 1")
                await client.publish("after/all", b'{"x": 1}')
                async for message in client:
                    return message.payload
            raise AssertionError

        assert asyncio.run(asyncio.wait_for(served(), 20)) == b'{"x": 1}'
        log = running.log("A")
    assert "client refused" in log
    assert "Traceback" not in log, log[log.index("Traceback") - 600 :][:3000]
