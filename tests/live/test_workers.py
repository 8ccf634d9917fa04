"""Brokers of several processes: real workers and sockets, over TLS and with a secret.

Two joined brokers have two workers each. Connections go to the worker with the fewest, so a few
clients reach all of them. What is delivered is held against plain Python here.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import ssl
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mqtt5
import pytest
from click.testing import CliRunner

from live_harness import Fake, Processes, memory, wait_for, with_workers, write_network
from postroad.cli import cli
from postroad.errors import InputError
from postroad.explain.dry_run import dry_run
from postroad.live.edge import mqtt
from postroad.live.network import load
from postroad.live.operations import launch

ONCE = mqtt5.QoS.AT_LEAST_ONCE
SECONDS = 60.0  # for what should come at once


class Wire:
    """A client that is a socket; it acknowledges what it gets."""

    def __init__(self, running: Processes, broker: str, name: str, **options: Any) -> None:
        plain = socket.create_connection(("127.0.0.1", running.mqtt(broker)), SECONDS)
        self.socket: socket.socket = plain
        if (folder := running.network.tls) is not None:
            context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
            self.socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self.buffer, self.number, self.got = b"", 0, list[mqtt5.PublishPacket]()
        options.setdefault("clean_start", True)
        self.send(mqtt5.ConnectPacket(name, **options))
        self.connack = self.take(mqtt5.ConnAckPacket)
        assert int(self.connack.reason_code) == 0, self.connack

    def send(self, packet: mqtt5.Packet) -> None:
        self.socket.sendall(packet.write())

    def packet(self) -> Any:
        """The next packet; None at the end."""
        while not (end := mqtt.frame(self.buffer, 0, 1 << 28) if self.buffer else 0):
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self.buffer += data
        packet, self.buffer = mqtt.read(self.buffer[:end], mqtt.V5), self.buffer[end:]
        if isinstance(packet, mqtt5.PublishPacket):
            self.got.append(packet)
            if packet.packet_id is not None:
                self.send(mqtt5.PubAckPacket(packet.packet_id))
        return packet

    def take(self, kind: type) -> Any:
        """The next packet of a kind; publications before it are kept."""
        while not isinstance(packet := self.packet(), kind):
            assert packet is not None, f"closed while waiting for {kind}"
        return packet

    def until(self, count: int, topic: str | None = None) -> None:
        """Read until so many publications have come, of a topic or in all."""
        while sum(topic in (None, packet.topic) for packet in self.got) < count:
            assert self.packet() is not None

    def subscribe(self, pattern: str, where: str | None = None, qos: int = 1) -> None:
        self.number += 1
        wanted = mqtt5.TopicFilter(pattern, max_qos=mqtt5.QoS(qos), retain_as_published=False)
        properties = [] if where is None else [("$where", where)]
        self.send(mqtt5.SubscribePacket(self.number, [wanted], user_properties=properties))
        assert int(self.take(mqtt5.SubAckPacket).reason_codes[0]) < 0x80

    def publish(self, topic: str, payload: bytes, qos: int = 1, **options: Any) -> int:
        self.number = self.number % 65_535 + 1
        number = self.number if qos else None
        self.send(
            mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS(qos), packet_id=number, **options)
        )
        return self.number

    def payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.got]

    def close(self) -> None:
        """Without a word: its session stays, if it may, and its will goes."""
        self.socket.close()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("workers")
    top = 'tls = "certs"\nsecret = "network.secret"\ntraces = "traces"'
    path = with_workers(write_network(folder, ["A", "B"], [("A", "B")], top=top, free=True), 2)
    for command in (["certs", "demo"], ["network", "secret"]):
        outcome = CliRunner().invoke(cli, [*command, str(path)])
        assert outcome.exit_code == 0, outcome.output
    with Processes(path) as running:
        joined(running)
        yield running


def joined(running: Processes) -> None:
    """Wait until all workers are up."""

    def up() -> bool:
        rows = [running.status(name) for name in running.network.names]
        return all(row is not None and not launch.away(row) for row in rows)

    wait_for(up, SECONDS)


def operator(running: Processes, broker: str, path: str, body: Any = None) -> Any:
    url = f"{running.network.addresses[running.network.number(broker)].url}{path}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, launch.credentials(running.network))
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def worker_of(running: Processes, broker: str, client: str) -> int:
    """The place of the worker that has a client's session."""
    for place in (1, 2):
        rows = operator(running, broker, f"/workers/{place}/clients")
        if any(row["client"] == client for row in rows):
            return place
    raise AssertionError(f"nobody has {client}")


def test_random_filters_over_all_workers_get_all_that_match_once_and_in_order(
    two: Processes,
) -> None:
    draw = random.Random(int(os.environ.get("POSTROAD_SEED", "31")))
    lows = {f"s{n}": draw.randint(0, 90) for n in range(8)}
    topics = {name: draw.choice(["w/#", "w/+", "w/a", "w/b"]) for name in lows}
    readers = {name: Wire(two, "AB"[n % 2], name) for n, name in enumerate(lows)}
    for name, reader in readers.items():
        if lows[name] < 60:
            reader.subscribe(topics[name], f"x >= {lows[name]}", qos=draw.choice([0, 1]))
        else:
            lows[name] = 0
            reader.subscribe(topics[name])
        reader.subscribe("end", qos=0)
    writers = {f"p{n}": Wire(two, "AB"[n % 2], f"p{n}") for n in range(4)}
    places = {(b, worker_of(two, b, name)) for name in lows for b in "AB" if name in served(two, b)}
    assert places == {("A", 1), ("A", 2), ("B", 1), ("B", 2)}
    sent: list[tuple[str, str, int, int]] = []  # topic, publisher, number, x
    for number in range(60):
        for name, writer in writers.items():
            topic, x = draw.choice(["w/a", "w/b", "w/a/c"]), draw.randint(0, 100)
            body = json.dumps({"by": name, "n": number, "x": x}).encode()
            writer.publish(topic, body, qos=draw.choice([0, 1]))
            sent.append((topic, name, number, x))
    for name, writer in writers.items():
        writer.publish("end", name.encode(), qos=0)
    for name, reader in readers.items():
        reader.until(len(writers), "end")
        for by in writers:
            due = [n for topic, p, n, x in sent if p == by and x >= lows[name]
                   and _fits(topics[name], topic)]  # fmt: skip
            bodies = [json.loads(p.payload) for p in reader.got if p.topic != "end"]
            assert [body["n"] for body in bodies if body["by"] == by] == due, (name, by)
    rows = {name: two.status(name) for name in "AB"}
    counts = [sum(row["published"] for row in rows.values() if row)]
    assert counts == [len(sent) + len(writers)]
    for client in (*readers.values(), *writers.values()):
        client.close()


def _fits(pattern: str, topic: str) -> bool:
    """Of these few patterns and topics."""
    return {"w/#": True, "w/+": topic.count("/") == 1}.get(pattern, pattern == topic)


def served(running: Processes, broker: str) -> set[str]:
    return {row["client"] for row in operator(running, broker, "/clients")}


def test_a_session_moves_between_workers_and_its_will_and_retained_go_everywhere(
    two: Processes,
) -> None:
    wait_for(lambda: operator(two, "A", "/status")["connections"] == 0)
    lasting: dict[str, Any] = {"clean_start": False, "session_expiry_interval": 600}
    first = Wire(two, "A", "c", will=mqtt5.Will(topic="gone", payload=b"c", qos=ONCE), **lasting)
    watcher = Wire(two, "A", "watcher")
    assert worker_of(two, "A", "c") != worker_of(two, "A", "watcher")
    watcher.subscribe("gone")
    first.subscribe("t/+", "x > 1")
    writer = Wire(two, "B", "writer")
    writer.publish("t/a", b'{"x": 2, "n": 0}', retain=True)
    first.until(1)
    late = Wire(two, "A", "late")
    late.subscribe("t/a")
    late.until(1)
    assert late.got[0].retain
    place = worker_of(two, "A", "c")
    fillers = []
    while True:  # until the other worker has fewer connections
        rows = operator(two, "A", "/status")["workers"].values()
        counts = [row["connections"] for row in rows]
        if counts[2 - place] < counts[place - 1]:
            break
        fillers.append(Wire(two, "A", f"filler{len(fillers)}"))
    second = Wire(two, "A", "c", **lasting)
    assert second.connack.session_present
    assert worker_of(two, "A", "c") != place
    over = first.take(mqtt5.DisconnectPacket)
    assert over.reason_code == mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER
    watcher.until(1)
    assert watcher.payloads() == [b"c"]  # its will, as the standard has it
    for n in range(1, 6):
        writer.publish("t/a", b'{"x": %d, "n": %d}' % (n, n))
    second.until(4)
    assert [json.loads(body)["n"] for body in second.payloads()] == [2, 3, 4, 5]
    writer.publish("t/a", b"", retain=True)
    writer.take(mqtt5.PubAckPacket)
    for client in (first, second, watcher, writer, late, *fillers):
        client.close()


def test_each_publication_goes_to_one_member_of_a_group_over_all_workers(two: Processes) -> None:
    members = [Wire(two, "AABB"[n], f"m{n}") for n in range(4)]
    for member in members:
        member.subscribe("$share/g/job/#", "x >= 0")
        member.subscribe("last", qos=0)
    writers = [Wire(two, "AABB"[n], f"w{n}") for n in range(4)]
    for n in range(100):
        writers[n % 4].publish("job/a", b'{"x": %d}' % n)
    for writer in writers:
        for _ in range(25):
            writer.take(mqtt5.PubAckPacket)
    got = Counter[bytes]()
    end = time.monotonic() + SECONDS
    while got.total() < 100:
        assert time.monotonic() < end, got
        for member in members:  # what has come: the answer to PINGREQ is behind it
            member.send(mqtt5.PingReqPacket())
            member.take(mqtt5.PingRespPacket)
        got = Counter(body for member in members for body in member.payloads())
    assert got == Counter(b'{"x": %d}' % n for n in range(100))
    for client in (*members, *writers):
        client.close()


def test_outside_it_is_one_broker(two: Processes) -> None:
    clients = [Wire(two, "A", f"one{n}") for n in range(4)]
    wait_for(lambda: operator(two, "A", "/status")["connections"] == 4)
    status = operator(two, "A", "/status")
    assert (status["broker"], list(status["links"])) == ("A", ["B"])
    assert status["pid"] == two.running["A"].pid
    assert [row["connections"] for row in status["workers"].values()] == [2, 2]
    assert list(status["workers"]) == ["A", "A~2"]
    assert operator(two, "A", "/workers/2/status")["broker"] == "A~2"
    metrics = two.get("A", "/metrics")
    assert "postroad_connections 4.0" in metrics
    assert 'peer="A~2"' not in metrics
    assert "process_cpu_seconds_total" in metrics
    for client in clients[1:]:
        assert operator(two, "A", "/kick", {"client": f"one{clients.index(client)}"})["kicked"]
        client.take(mqtt5.DisconnectPacket)
    assert not operator(two, "A", "/kick", {"client": "nobody"})["kicked"]
    clients[0].subscribe("t", "x > 1")
    stops = dry_run(two.network, "B", "p", {"class": "t", "x": 2}).stops
    assert stops[0].broker == "B"
    assert [one["client"] for stop in stops for one in stop.deliveries] == ["one0"]
    before = status["reloads"]
    os.kill(two.running["A"].pid, signal.SIGHUP)
    wait_for(lambda: operator(two, "A", "/status")["reloads"] == before + 1, SECONDS)
    assert operator(two, "A", "/status")["reload_error"] is None
    clients[0].publish("t", b'{"x": 2}')
    clients[0].until(1, "t")
    clients[0].close()


def test_what_was_acknowledged_survives_the_end_of_any_worker_and_of_all(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A"], [], top='store = "store"', free=True)
    with Processes(with_workers(path, 2)) as running:
        joined(running)
        lasting: dict[str, Any] = {"clean_start": False, "session_expiry_interval": 600}
        readers = {name: Wire(running, "A", name, **lasting) for name in ("r0", "r1")}
        assert {worker_of(running, "A", name) for name in readers} == {1, 2}
        for reader in readers.values():
            reader.subscribe("t", "n >= 0")
        acknowledged: set[int] = set()
        number = 0
        for victim in ("A~2", "A"):
            writer = Wire(running, "A", f"w{victim}")
            numbers: dict[int, int] = {}
            for _ in range(50):
                numbers[writer.publish("t", b'{"n": %d}' % number)] = number
                number += 1
            for _ in range(20):
                acknowledged.add(numbers[writer.take(mqtt5.PubAckPacket).packet_id])
            status = operator(running, "A", "/status")
            pid = status["workers"][victim]["pid"]
            os.kill(pid, signal.SIGKILL)
            try:
                while (packet := writer.packet()) is not None:
                    acknowledged.add(numbers[packet.packet_id])
                    if len(acknowledged & {*numbers.values()}) == 50:
                        break
            except OSError:
                pass
            writer.close()
            wait_for(lambda: not launch.away(operator(running, "A", "/status")), SECONDS)
            assert operator(running, "A", "/status")["workers"][victim]["pid"] != pid
        assert len(acknowledged) >= 40
        for name, reader in readers.items():
            reader.close()
            again = Wire(running, "A", name, **lasting)
            assert again.connack.session_present
            numbers_got: list[int] = []
            while not acknowledged <= {*numbers_got}:
                assert again.packet() is not None
                numbers_got = [number_in(packet) for packet in again.got]
            assert max(Counter(numbers_got).values()) == 1
            again.close()
        pids = [row["pid"] for row in operator(running, "A", "/status")["workers"].values()]
        running.running["A"].kill()  # without their supervisor workers end, too
        running.running["A"].join()
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), SECONDS)
        (tmp_path / "store" / "A~2.mark").write_bytes(b"no mark")
        running.start("A")  # what would end a broker of one process ends this one
        running.running["A"].join(SECONDS)
        assert running.running["A"].exitcode == 1
        assert "A~2.mark" in running.log("A")


def number_in(packet: mqtt5.PublishPacket) -> int:
    number: int = json.loads(packet.payload)["n"]
    return number


def test_sys_adds_up_what_all_workers_count(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [])
    watcher = net.client(0, "watcher")
    net.brokers[0].clients.elsewhere = {"clients/connected": 3, "subscriptions/count": 40}
    watcher.subscribe("$SYS/broker/#")
    net.until(lambda: any("clients/connected" in p.topic for p in published(watcher)))
    values = {packet.topic: packet.payload for packet in published(watcher)}
    assert values["$SYS/broker/clients/connected"] == b"4"
    assert values["$SYS/broker/subscriptions/count"] in (b"40", b"41")


def published(client: Fake) -> list[mqtt5.PublishPacket]:
    return [packet for packet in client.packets if isinstance(packet, mqtt5.PublishPacket)]


def test_what_workers_cannot_do_is_refused(tmp_path: Path) -> None:
    path = with_workers(write_network(tmp_path, ["A"], [], scheme="popsub"), 2)
    with pytest.raises(InputError, match=r"brokers\.A\.workers is 2; .*choose one of flooding"):
        load(path)
    path = with_workers(write_network(tmp_path, ["A", "B"], [("A", "B")]), 2)
    path.write_text(
        path.read_text().replace("[brokers.B]", '[brokers."A~2"]').replace('"B"', '"A~2"')
    )
    with pytest.raises(InputError, match="a worker of 'A' has it"):
        load(path)
