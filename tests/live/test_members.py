"""A broker is added to a network of real processes, and another removed, by command; and the same
on a ring, while publications flow."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from live_harness import environment, free_ports, wait_for, write_network
from postroad.cli import cli
from postroad.errors import RunFailed
from postroad.live.client import Client
from postroad.live.network import Address, Network, load
from postroad.live.operations import launch, members
from postroad.live.server import Server
from postroad.replay.recorded import from_rows
from postroad.replay.report import fidelity
from postroad.sim.run import run as run_scenario
from postroad.traces.files import read

LINKS = [("A", "B"), ("B", "C"), ("A", "C")]


def run(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["network", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


async def carries(path: Path, publisher: str, subscriber: str) -> None:
    network = load(path)
    ports = [network.addresses[network.number(name)].mqtt for name in (publisher, subscriber)]
    async with Client("127.0.0.1", ports[1]) as far, Client("127.0.0.1", ports[0]) as near:
        await far.subscribe("t/#", qos=1)
        await near.publish("t/a", b"hello", qos=1)
        message = await asyncio.wait_for(anext(aiter(far)), 10)
        assert (message.topic, message.payload) == ("t/a", b"hello")


def keeps_what_is_for_one_that_is_away(path: Path) -> None:
    """B has a publication for a client of C, which is down: B is not removed, and loses nothing."""
    import paho.mqtt.client as paho
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    network = load(path)
    lasting = Properties(PacketTypes.CONNECT)
    lasting.SessionExpiryInterval = 3600
    got: list[bytes] = []

    @contextmanager
    def connected(broker: str, name: str) -> Iterator[paho.Client]:
        port = network.addresses[network.number(broker)].mqtt
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
        client.on_message = lambda client, data, message: got.append(message.payload)
        client.connect("127.0.0.1", port, clean_start=False, properties=lasting)
        client.loop_start()
        try:
            yield client
        finally:
            client.disconnect()
            client.loop_stop()

    with connected("C", "far") as far:
        subscribed = threading.Event()
        far.on_subscribe = lambda *_: subscribed.set()
        far.subscribe("t/#", 1)
        assert subscribed.wait(30)
    launch.stop_some(network, ["C"])
    with connected("B", "near") as near:
        near.publish("t/a", b"kept", 1)
        wait_for(lambda: launch.status(network)["B"]["tree"]["outbox"] == 1)
    refused = CliRunner().invoke(cli, ["network", "remove", str(path), "B"])
    assert refused.exit_code == 1
    told = "B was started again and stays, because of messages that others do not have yet: 1;"
    assert str(refused.exception).startswith(told)
    run("up", str(path))
    with connected("C", "far"):
        wait_for(lambda: got == [b"kept"])


def test_brokers_come_and_go_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    path = write_network(tmp_path, ["A", "B", "C"], LINKS, free=True, top='store = "s"')
    run("up", str(path))
    try:
        mqtt, link, http = map(str, free_ports(3))
        ports = ["--mqtt", mqtt, "--link", link, "--http", http]
        told = run("add", str(path), "D", "--to", "A", "--to", "B", *ports)
        assert told == "D is added and runs\n"
        asyncio.run(carries(path, "D", "C"))
        keeps_what_is_for_one_that_is_away(path)
        assert run("remove", str(path), "B") == "B is stopped and removed\n"
        asyncio.run(carries(path, "C", "D"))
        assert "no answer" not in run("status", str(path))
    finally:
        assert run("down", str(path)) == "3 brokers stopped\n"


class Ring:
    """Brokers of one process, each with a client that wants everything and one that publishes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.servers: dict[str, Server] = {}
        self.clients: dict[str, Client] = {}
        self.got: dict[str, Counter[bytes]] = {}
        self.readers: list[asyncio.Task[None]] = []
        self.owed: dict[str, set[bytes]] = {}
        self.number = 0

    async def start(self, name: str, network: Network) -> None:
        number = network.number(name)
        self.servers[name] = Server(network, number)
        await self.servers[name].start()
        address = network.addresses[number]
        self.clients[name] = await Client(address.host, address.mqtt, client_id=name).__aenter__()

    async def subscribe(self, name: str) -> None:
        await self.clients[name].subscribe("t/#", qos=1)
        self.got[name], self.owed[name] = Counter(), set()
        self.readers.append(asyncio.create_task(self._read(name)))

    async def _read(self, name: str) -> None:
        async for message in self.clients[name]:
            self.got[name][message.payload] += 1

    async def publish(self, name: str, count: int) -> None:
        for _ in range(count):
            self.number += 1
            payload = str(self.number).encode()
            for owed in self.owed.values():
                owed.add(payload)
            await self.clients[name].publish(f"t/{self.number % 5}", payload, qos=1)

    def views(self) -> list[set[int]]:
        routers = [server.broker.router for server in self.servers.values()]
        return [set(router.ring.brokers.values()) for router in routers]  # type: ignore[attr-defined]

    def linked(self) -> bool:
        peers = [peer for server in self.servers.values() for peer in server.broker.peers.values()]
        return all(peer.link.connected for peer in peers if peer.lasting)

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not done():
                await asyncio.sleep(0.01)

    async def change(self, change: members.Change) -> Network:
        change.write()
        for server in self.servers.values():
            server.reload()
            assert server.reload_error is None, server.reload_error
        return change.network

    async def crash(self, name: str) -> None:
        """It says nothing to anybody."""
        server = self.servers.pop(name)
        server.failure = RunFailed("crashed")
        await server.stop()

    async def end(self) -> None:
        for reader in self.readers:
            reader.cancel()
        for client in self.clients.values():
            await client.__aexit__(None, None, None)
        for name in list(self.servers):  # none waits for those that are gone
            await self.crash(name)


@pytest.mark.parametrize(
    ("scheme", "planned"), [("beaconvey", True), ("scribe", False), ("iscribe", True)]
)
def test_brokers_join_a_ring_leave_it_and_fail_and_others_lose_nothing(
    scheme: str, planned: bool, tmp_path: Path
) -> None:
    parameters = 'membership = "messages"\nbeat_s = 0.3\ngrace_s = 0.3\ntopic = "topic"'
    traces = 'traces = { folder = "t", file_s = 0.2 }'
    path = write_network(tmp_path, ["A", "B", "C"], LINKS, scheme, parameters, traces, free=True)
    if planned:
        rows = ["node,topic", *(f"{broker},{topic}" for broker in "ABC" for topic in "xy")]
        (tmp_path / "interests.csv").write_text("\n".join(rows))
        plan = ["plan", "swico", "--interests", str(tmp_path / "interests.csv")]
        done = CliRunner().invoke(cli, [*plan, "-o", str(tmp_path / "ring.json")])
        assert done.exit_code == 0, done.output
        text = path.read_text()
        links = next(line for line in text.splitlines() if line.startswith("links"))
        path.write_text(text.replace(links, 'plan = "ring.json"'))

    async def live() -> None:
        ring = Ring(path)
        network = load(path)
        try:
            for name in "ABC":
                await ring.start(name, network)
            await ring.until(ring.linked)
            for name in "AC":
                await ring.subscribe(name)
            await ring.publish("C", 20)
            flowing = asyncio.create_task(ring.publish("A", 300))
            address = Address("127.0.0.1", *free_ports(3))
            network = await ring.change(members.add(path, "D", address, ["A", "C"]))
            await ring.start("D", network)
            await ring.until(lambda: all(view == {0, 1, 2, 3} for view in ring.views()))
            await flowing
            # Or in a replay what is still on its way might reach a subscriber who comes meanwhile.
            await ring.until(lambda: all(ring.owed[n] <= ring.got[n].keys() for n in "AC"))
            await ring.subscribe("D")
            await ring.publish("D", 20)
            flowing = asyncio.create_task(ring.publish("D", 300))
            await ring.clients.pop("B").__aexit__(None, None, None)
            await ring.servers.pop("B").stop()
            await flowing
            number = network.number("B")
            await ring.change(members.remove(path, "B"))
            await ring.until(lambda: all(view == {0, 1, 2, 3} - {number} for view in ring.views()))
            await ring.publish("A", 20)
            await ring.until(lambda: all(ring.owed[n] <= ring.got[n].keys() for n in "ACD"))
            await ring.crash("D")
            await ring.until(lambda: all(view == {0, 1, 2} - {number} for view in ring.views()))
            await ring.publish("A", 20)
            await ring.until(lambda: all(ring.owed[n] <= ring.got[n].keys() for n in "AC"))
            for name, got in ring.got.items():
                assert set(got.values()) == {1}, name
        finally:
            await ring.end()

    asyncio.run(live())
    recorded = from_rows(read(tmp_path / "t")[0])
    assert any("brokers came or went" in warning for warning in recorded.warnings)
    same = fidelity(recorded, run_scenario(recorded.exact))
    assert recorded.deliveries.total() > 1000
    assert not same.missing, same.missing[:5]
    assert not same.extra, same.extra[:5]
