"""Real brokers with stores and redundant links, under a load of quality 1 and 2, through SIGKILLs,
cut and silent links and partitions that a seed draws.

`POSTROAD_FAULTS` and `POSTROAD_SEED` make it longer or another one; `make soak` does the former.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mqtt5
import msgspec
import pytest

from live_harness import Processes, environment, free_ports, wait_for, write_network
from postroad.errors import RunFailed
from postroad.filters import matches
from postroad.live.client import Client
from postroad.live.edge import content, mqtt, topics
from postroad.live.network import load
from postroad.live.store import Store

NAMES = ["A", "B", "C", "D", "E", "F", "G"]
LINKS = [
    ("A", "B"), ("B", "C"), ("C", "D"), ("D", "E"), ("E", "F"), ("F", "G"), ("A", "G"), ("B", "F"),
    ("C", "F"),
]  # fmt: skip
ONCE = mqtt5.QoS.AT_LEAST_ONCE
IN_FLIGHT = 200  # a broker that is away holds acknowledgements up
PAUSE_S = 0.005  # between publications of one publisher
EXACTLY = mqtt5.QoS.EXACTLY_ONCE
WANTED = [
    ("s1", "A", "t/#", None, EXACTLY),
    ("s2", "C", "t/+", "x > 4", ONCE),
    ("s3", "D", "t/b", None, ONCE),
    ("s4", "E", "#", "x BETWEEN 2 AND 7", EXACTLY),
    ("s5", "G", "t/a", "n >= 0", ONCE),
]
MEMBERS = [("m1", "B"), ("m2", "D"), ("m3", "G")]  # of one shared subscription
SHARED = ("t/#", "x > 2")
ROAMING = {"s2": "CAE", "s4": "EBG", "pC": "CFD"}  # who goes from broker to broker
PUBLISHERS = [("A", EXACTLY), ("C", ONCE), ("E", EXACTLY)]
Step = tuple[float, str, tuple[str, ...]]  # when, what, and to whom


class Person:
    """A client that comes back to its session until it is told to end."""

    def __init__(self, port: int, name: str) -> None:
        self.ports, self.name = [port], name
        self.writer: asyncio.StreamWriter | None = None
        self.connections = 0

    async def live(self) -> None:
        while True:
            try:
                port = self.ports[self.connections % len(self.ports)]
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            try:
                hello = mqtt5.ConnectPacket(
                    self.name, clean_start=False, session_expiry_interval=86_400
                )
                writer.write(hello.write())
                await self._listen(reader, writer)
            except OSError:
                pass
            finally:
                self.writer = None
                writer.transport.abort()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = b""
        while more := await reader.read(1 << 16):
            data += more
            at = 0
            while end := mqtt.frame(data, at, 1 << 20) if at < len(data) else 0:
                packet, _ = mqtt5.read(memoryview(data[at:end]))
                if isinstance(packet, mqtt5.ConnAckPacket):
                    self.connections += 1
                    self.writer = writer
                    self.connected()
                else:
                    self.on_packet(packet)
                at = end
            data = data[at:]

    def send(self, packet: mqtt5.Packet) -> None:
        if self.writer is not None:
            self.writer.write(packet.write())

    async def roam(self, ports: list[int]) -> None:
        """Hang up again and again, and go to the next broker each time."""
        self.ports = ports
        while True:
            await asyncio.sleep(1.0)
            if self.writer is not None:
                self.writer.transport.abort()

    def connected(self) -> None: ...

    def on_packet(self, packet: mqtt5.Packet) -> None: ...


class Publisher(Person):
    def __init__(
        self, port: int, name: str, qos: mqtt5.QoS, numbers: Iterator[int], seed: int
    ) -> None:
        super().__init__(port, name)
        self.qos, self.numbers = qos, numbers
        self.draw = random.Random(f"{name} {seed}")
        self.owed: dict[int, tuple[str, bytes]] = {}
        self.released: dict[int, None] = {}  # PUBREC came, and no PUBCOMP
        self.published: dict[int, tuple[str, bytes]] = {}
        self.again = self.next_id = 0

    async def publish(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            await asyncio.sleep(PAUSE_S)
            if len(self.owed) >= IN_FLIGHT:
                continue
            number = next(self.numbers)
            payload = b'{"n": %d, "x": %d}' % (number, self.draw.randrange(10))
            given = (self.draw.choice(["t/a", "t/b", "u"]), payload)
            while True:
                self.next_id = self.next_id % 65_535 + 1
                if self.next_id not in self.owed and self.next_id not in self.released:
                    break
            self.published[number] = self.owed[self.next_id] = given
            self.send(mqtt5.PublishPacket(*given, qos=self.qos, packet_id=self.next_id))

    def connected(self) -> None:
        for packet_id, given in self.owed.items():
            self.again += 1
            packet = mqtt5.PublishPacket(*given, qos=self.qos, packet_id=packet_id, duplicate=True)
            self.send(packet)
        for packet_id in self.released:
            self.send(mqtt5.PubRelPacket(packet_id))

    def on_packet(self, packet: mqtt5.Packet) -> None:
        if isinstance(packet, mqtt5.PubAckPacket):
            assert int(packet.reason_code) == 0
            del self.owed[packet.packet_id]
        elif isinstance(packet, mqtt5.PubRecPacket):
            assert int(packet.reason_code) == 0
            del self.owed[packet.packet_id]
            self.released[packet.packet_id] = None
            self.send(mqtt5.PubRelPacket(packet.packet_id))
        elif isinstance(packet, mqtt5.PubCompPacket):
            self.released.pop(packet.packet_id, None)


class Subscriber(Person):
    """Acknowledges all it gets; an acknowledgement is sure once a later ping is answered.

    At quality 2 it goes by packet identifiers alone, and must never take anything twice.
    """

    def __init__(
        self, port: int, name: str, pattern: str, where: str | None, qos: mqtt5.QoS
    ) -> None:
        super().__init__(port, name)
        self.pattern, self.where, self.qos = pattern, where, qos
        self.received: dict[int, int] = {}  # of quality 2 and not released, by identifier
        self.exact: set[int] = set()  # of quality 2, what it took for new
        self.granted = False
        self.got: Counter[int] = Counter()
        self.first: Counter[int] = Counter()  # not marked as sent again
        self.order: list[int] = []  # as they came first
        self.unsure: list[int] = []
        self.pinged: list[int] = []
        self.sure: set[int] = set()
        self.wrong: list[str] = []

    def connected(self) -> None:
        self.pinged = []
        if not self.granted:
            wanted = mqtt5.TopicFilter(self.pattern, max_qos=self.qos, retain_as_published=False)
            properties = [] if self.where is None else [("$where", self.where)]
            self.send(mqtt5.SubscribePacket(1, [wanted], user_properties=properties))

    def on_packet(self, packet: mqtt5.Packet) -> None:
        if isinstance(packet, mqtt5.SubAckPacket):
            assert int(packet.reason_codes[0]) == self.qos
            self.granted = True
        elif isinstance(packet, mqtt5.PingRespPacket):
            self.sure.update(self.pinged)
            self.pinged = []
        elif isinstance(packet, mqtt5.PublishPacket):
            number = msgspec.json.decode(packet.payload)["n"]
            if number in self.sure:
                self.wrong.append(f"{number} came again after its acknowledgement had been taken")
            if number not in self.got:
                self.order.append(number)
            self.got[number] += 1
            self.first[number] += not packet.duplicate
            self.unsure.append(number)
            assert packet.packet_id is not None
            if packet.qos == 2:
                self._take(packet.packet_id, number)
                self.send(mqtt5.PubRecPacket(packet.packet_id))
            else:
                self.send(mqtt5.PubAckPacket(packet.packet_id))
        elif isinstance(packet, mqtt5.PubRelPacket):
            self.received.pop(packet.packet_id, None)
            self.send(mqtt5.PubCompPacket(packet.packet_id))

    def _take(self, packet_id: int, number: int) -> None:
        if packet_id in self.received:
            if self.received[packet_id] != number:
                self.wrong.append(f"identifier {packet_id} is in use and stands for {number}")
            return
        self.received[packet_id] = number
        if number in self.exact:
            self.wrong.append(f"{number} came twice at quality 2")
        self.exact.add(number)

    async def ping(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            if self.writer is not None and not self.pinged:
                self.pinged, self.unsure = self.unsure, []
                self.send(mqtt5.PingReqPacket())


def _numbers() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


class Way:
    """What a link's connections go through, so that they can be cut or fall silent."""

    def __init__(self, port: int, target: int) -> None:
        self.port, self.target = port, target
        self.broken = 0
        self.goes = asyncio.Event()
        self.goes.set()
        self.ends: set[asyncio.StreamWriter] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ends.add(writer)
        if self.broken:
            writer.transport.abort()
            return
        try:
            far_reader, far = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self.ends.add(far)
        for task in (self._carry(reader, far), self._carry(far_reader, writer)):
            made = asyncio.create_task(task)
            self.tasks.add(made)
            made.add_done_callback(self.tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self.goes.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.transport.abort()

    def cut(self) -> None:
        self.broken += 1
        for end in self.ends:
            end.transport.abort()
        self.ends.clear()

    def mend(self) -> None:
        self.broken -= 1


def script(seed: int, faults: int) -> list[Step]:
    """When what goes wrong and is mended: kills and cuts, and a quarter as many partitions."""
    draw = random.Random(seed)
    kinds = [*["kill"] * (faults - faults // 3), *["cut"] * (faults // 3)]
    kinds += ["part"] * max(5, faults // 4)
    draw.shuffle(kinds)
    steps: list[Step] = []
    away: dict[str, float] = {}
    now = 0.0
    for kind in kinds:
        now += draw.uniform(0.1, 2)
        ways: tuple[str, ...] = ()
        if kind == "kill":
            name = draw.choice([name for name in NAMES if away.get(name, 0) < now])
            away[name] = now + (draw.uniform(1, 4) if draw.random() < 0.2 else draw.uniform(0, 0.3))
            steps += [(now, "kill", (name,)), (away[name] + 0.01, "start", (name,))]
        elif kind == "cut":
            ways = ("".join(draw.choice(LINKS)),)
            silent = draw.random() < 0.3
            what, healed = ("silence", "speak") if silent else ("cut", "mend")
            steps += [(now, what, ways), (now + draw.uniform(0.2, 4), healed, ways)]
        else:
            side = draw.sample(NAMES, draw.randint(1, 3))
            ways = tuple(a + b for a, b in LINKS if (a in side) != (b in side))
            steps += [(now, "part", ways), (now + draw.uniform(0.3, 3), "join", ways)]
    return sorted(steps)


class Network(Processes):
    """Brokers each of which knows the others' link ports only by way of a `Way`."""

    def __init__(self, folder: Path) -> None:
        limits = "[limits]\nsession_queue = 100000\nsession_wait_s = 60"
        top = 'store = "s"'
        path = write_network(folder, NAMES, LINKS, free=True, top=top, tables=limits)
        super().__init__(path)
        numbers = {name: number for number, name in enumerate(NAMES)}
        self.ways: dict[str, Way] = {}
        text = path.read_text()
        files = dict.fromkeys(NAMES, text)
        for (a, b), port in zip(LINKS, free_ports(len(LINKS)), strict=True):
            dials, listens = sorted((a, b), key=numbers.__getitem__)
            target = self.network.addresses[numbers[listens]].link
            self.ways[a + b] = Way(port, target)
            files[dials] = files[dials].replace(f"link = {target}\n", f"link = {port}\n")
        for name, changed in files.items():
            (folder / f"{name}.toml").write_text(changed)

    def start(self, name: str) -> None:
        self.path = self.path.parent / f"{name}.toml"
        super().start(name)

    async def do(self, what: str, whom: tuple[str, ...]) -> None:
        if what == "kill":
            self.running[whom[0]].kill()
        elif what == "start":
            await asyncio.to_thread(self.running[whom[0]].join)
            self.start(whom[0])
        for way in [self.ways[name] for name in whom if name in self.ways]:
            if what in ("cut", "part"):
                way.cut()
            elif what in ("mend", "join"):
                way.mend()
            elif what == "silence":
                way.goes.clear()
            else:
                way.goes.set()


async def play(running: Network, faults: int, seed: int) -> Counter[str]:
    servers = [await way.open() for way in running.ways.values()]
    for name in NAMES:
        running.start(name)
    await asyncio.to_thread(running.wait_linked)
    did: Counter[str] = Counter()
    numbers = _numbers()
    subscribers = [
        Subscriber(running.mqtt(broker), id, pattern, where, qos)
        for id, broker, pattern, where, qos in WANTED
    ]
    members = [
        Subscriber(running.mqtt(broker), id, f"$share/g/{SHARED[0]}", SHARED[1], ONCE)
        for id, broker in MEMBERS
    ]
    publishers = [
        Publisher(running.mqtt(broker), f"p{broker}", qos, numbers, seed)
        for broker, qos in PUBLISHERS
    ]
    people = [*subscribers, *members, *publishers]
    tasks = [asyncio.create_task(person.live()) for person in people]
    tasks += [asyncio.create_task(each.ping()) for each in (*subscribers, *members)]
    ended = asyncio.Event()
    try:
        await _until(lambda: all(s.granted for s in (*subscribers, *members)), 20)
        load = [asyncio.create_task(p.publish(ended)) for p in publishers]
        roaming = [person for person in people if person.name in ROAMING]
        for person in roaming:
            ports = [running.mqtt(name) for name in ROAMING[person.name]]
            tasks.append(asyncio.create_task(person.roam(ports)))
        began = time.monotonic()
        for when, what, whom in script(seed, faults):
            await asyncio.sleep(max(0.0, began + when - time.monotonic()))
            await running.do(what, whom)
            did[what] += 1
            safe = sum(len(p.published) - len(p.owed) for p in publishers)
            at = time.monotonic() - began
            print(f"{at:7.2f} s  {what} {' '.join(whom)}; {safe} acknowledged so far")
        ended.set()
        did["moves"] = sum(person.connections for person in roaming)
        await asyncio.gather(*load)
        published = {n: given for p in publishers for n, given in p.published.items()}
        # In a thread, because everything between the brokers goes through this loop.
        owed = await asyncio.to_thread(_owed, subscribers, published)
        await _until(lambda: not any(p.owed or p.released for p in publishers), 60)
        # A failure to come about is told below, with what is missing.
        await _until(lambda: all(len(s.got) >= len(owed[s.name]) for s in subscribers), 10, False)
        for_one = await asyncio.to_thread(_matching, *SHARED, published)
        await _until(lambda: sum(len(m.got) for m in members) >= len(for_one), 10, False)
        await asyncio.sleep(0.5)  # whatever should not come would come now
        await asyncio.to_thread(running.wait_linked)
        did["trees"] = max(
            row["tree"]["id"][0] for row in map(running.status, NAMES) if row is not None
        )
    finally:
        for task in tasks:
            task.cancel()
        for server in servers:
            server.close()
        for way in running.ways.values():
            way.cut()
    for subscriber in subscribers:
        wanted = owed[subscriber.name]
        lost = sorted(wanted - set(subscriber.got))
        assert not lost, f"seed {seed}: {subscriber.name} never got {len(lost)}: {lost[:10]}"
        assert set(subscriber.got) == wanted
        assert not subscriber.wrong, f"seed {seed}: {subscriber.name}: {subscriber.wrong[:5]}"
        twice = [n for n, count in subscriber.first.items() if count > 1]
        assert not twice, f"seed {seed}: {subscriber.name} got twice: {twice[:10]}"
        # What a session missed while it moved comes after what its new broker had.
        late = out_of_order([] if subscriber.name in ROAMING else subscriber.order, publishers)
        assert not late, f"seed {seed}: {subscriber.name} got out of order: {late[:10]}"
        did["delivered"] += len(wanted)
        did["exactly once"] += len(subscriber.exact)
        did["sent again, not yet acknowledged"] += subscriber.got.total() - len(subscriber.got)
    shared = Counter(n for member in members for n in member.got)
    lost = sorted(for_one - set(shared))
    assert not lost, f"seed {seed}: no member got {len(lost)}: {lost[:10]}"
    assert set(shared) == for_one
    several = sorted(n for n, count in shared.items() if count > 1)
    assert not several, f"seed {seed}: several members got {len(several)}: {several[:10]}"
    for member in members:
        assert not member.wrong, f"seed {seed}: {member.name}: {member.wrong[:5]}"
    did["given to one member"] = len(shared)
    did["acknowledged publications"] = len(published)
    did["publications sent again"] = sum(p.again for p in publishers)
    did["reconnections"] = sum(p.connections - 1 for p in people)
    return did


def out_of_order(order: list[int], publishers: list[Publisher]) -> list[int]:
    """What came after a later publication of the same publisher to the same topic."""
    streams = {n: (p.name, topic) for p in publishers for n, (topic, _) in p.published.items()}
    last: dict[tuple[str, str], int] = {}
    found = []
    for number in order:
        if last.get(streams[number], -1) > number:
            found.append(number)
        else:
            last[streams[number]] = number
    return found


def _owed(
    subscribers: list[Subscriber], published: dict[int, tuple[str, bytes]]
) -> dict[str, set[int]]:
    """What each subscriber has to get."""
    return {s.name: _matching(s.pattern, s.where, published) for s in subscribers}


def _matching(pattern: str, where: str | None, published: dict[int, tuple[str, bytes]]) -> set[int]:
    wanted = topics.as_filter(pattern, where)
    return {n for n, given in published.items() if matches(wanted, content.attributes(*given))}


async def _until(done: Callable[[], bool], limit_s: float, required: bool = True) -> None:
    end = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > end:
            assert not required, "did not come about in time"
            return
        await asyncio.sleep(0.05)


@pytest.mark.timeout(900)
def test_faults_under_load_lose_repeat_and_reorder_nothing_acknowledged(tmp_path: Path) -> None:
    faults = int(os.environ.get("POSTROAD_FAULTS", "21"))
    seed = int(os.environ.get("POSTROAD_SEED", "12"))
    print(
        f"seed {seed}; replay with: POSTROAD_SEED={seed} POSTROAD_FAULTS={faults} pytest {__file__}"
    )
    started = time.monotonic()
    running = Network(tmp_path)
    try:
        did = asyncio.run(play(running, faults, seed))
    finally:
        running.stop()
    for name in NAMES:
        assert "Traceback" not in running.log(name), running.log(name)[-3000:]
    told = ", ".join(f"{what}: {count}" for what, count in sorted(did.items()))
    print(f"seed {seed}, {time.monotonic() - started:.0f} s; {told}")
    assert did["kill"] + did["cut"] + did["silence"] >= faults
    assert did["part"] >= 5
    assert did["acknowledged publications"] > 20 * faults
    assert did["trees"] > 0
    assert did["exactly once"] > 10 * faults
    assert did["given to one member"] > 10 * faults


def run_broker(path: Path, file_bytes: int | None) -> subprocess.Popen[bytes]:
    """`postroad broker` with a bound on the size of its files, which is what a full disk does."""

    def bound() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    command = [sys.executable, "-m", "postroad", "broker", "--network", str(path), "--id", "A"]
    return subprocess.Popen(
        command, env=environment(), stderr=subprocess.PIPE, preexec_fn=bound
    )  # fmt: skip


def test_a_full_disk_ends_the_broker_before_anything_more_is_acknowledged(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A"], [], free=True, top='store = "s"')
    address = load(path).addresses[0]

    async def fill() -> int:
        acknowledged = 0
        for _ in range(200):
            try:
                made = Client("127.0.0.1", address.mqtt, client_id="p")
                async with made as client:
                    for _ in range(1000):
                        await client.publish(f"t/{acknowledged}", b"x" * 900, qos=1, retain=True)
                        acknowledged += 1
            except RunFailed:
                if acknowledged:
                    return acknowledged
                await asyncio.sleep(0.1)  # not there yet
        raise AssertionError("the disk never filled")

    with run_broker(path, 400_000) as process:
        try:
            acknowledged = asyncio.run(asyncio.wait_for(fill(), 60))
            assert process.wait(10) == 1
        finally:
            process.kill()
        assert process.stderr is not None
        last = process.stderr.read().decode().splitlines()[-1]
    assert "A.db cannot be written" in last
    store = Store(tmp_path / "s", load(path).identity, "A")
    assert len(store.load()["retained"]) >= acknowledged > 10
    store.close()
    (tmp_path / "s" / "A.db").write_bytes(b"nonsense" * 1000)
    with run_broker(path, None) as process:
        assert process.wait(30) == 1
        assert process.stderr is not None
        lines = process.stderr.read().decode().splitlines()
    assert len(lines) == 1, lines
    assert "file is not a database" in lines[0]


def test_a_full_disk_stops_the_traces_and_not_the_broker(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A"], [], free=True, top='traces = "t"')
    address = load(path).addresses[0]

    def status() -> dict[str, Any]:
        url = f"http://127.0.0.1:{address.http}/status"
        with urllib.request.urlopen(url, timeout=10) as answer:
            told: dict[str, Any] = json.load(answer)
            return told

    def answers() -> bool:
        try:
            return bool(status())
        except OSError:
            assert process.poll() is None
            return False

    async def talk() -> int:
        async with Client("127.0.0.1", address.mqtt) as client:
            await client.subscribe("t", qos=1)
            for number in range(200):
                await client.publish("t", b"%d" % number, qos=1)
                assert (await anext(aiter(client))).payload == b"%d" % number
        return int(status()["traces"]["lost"])

    with run_broker(path, 20_000) as process:
        try:
            wait_for(answers, 60)
            first = asyncio.run(asyncio.wait_for(talk(), 60))
            second = asyncio.run(asyncio.wait_for(talk(), 60))
            assert "File too large" in status()["traces"]["error"]
        finally:
            process.terminate()
            assert process.wait(30) == 0
        assert process.stderr is not None
        log = process.stderr.read().decode()
    assert 0 < first < 400
    assert first + 400 <= second < first + 430  # who came and went is recorded, too
    assert log.count("tracing stops") == 1
    assert "Traceback" not in log
