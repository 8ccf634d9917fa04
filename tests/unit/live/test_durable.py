"""Brokers in memory that lose their memory and keep their stores, by seeds: `check` replays one.

Sessions of quality 1 and 2 at both ends: publishers send again what was not acknowledged,
subscribers come back. A subscriber's acknowledgement is sure once a later ping was answered. One of
quality 2 goes by packet identifiers, as the standard has it, and must never see anything twice.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import mqtt5
import msgspec
import pytest

from live_harness import Fake, Memory, memory, write_network
from postroad.errors import InputError, RunFailed
from postroad.filters import matches
from postroad.live.edge import content, topics
from postroad.live.edge.mqtt import Letter
from postroad.live.links import link as links
from postroad.live.links.link import Link
from postroad.live.network import DURABLE, load
from postroad.live.store import Journal, LinkRow, ParcelRow, Standing, Store, replace

NAMES = ["A", "B", "C", "D"]
TOPICS = ["t/a", "t/b", "u/a"]
WANTED = [("t/#", None), ("+/a", "n > 5"), ("#", "x < 3"), ("u/a", None), ("t/+", "x > 1")]
ONCE = mqtt5.QoS.AT_LEAST_ONCE
EXACTLY = mqtt5.QoS.EXACTLY_ONCE
IN_FLIGHT = 8
SEEDS = int(os.environ.get("POSTROAD_SEEDS", "8"))  # `make seeds` tries many


class Person:
    """A client that comes back to its session as often as it must."""

    def __init__(self, net: Memory, broker: int, name: str) -> None:
        self.net, self.broker, self.name = net, broker, name
        self.fake: Fake | None = None

    def connected(self) -> bool:
        fake = self.fake
        return (
            fake is not None
            and fake.broker is self.net.brokers[self.broker]
            and not fake.connection.closing
        )

    def connect(self) -> Fake:
        self.fake = self.net.client(
            self.broker, self.name, clean_start=False, session_expiry_interval=86_400
        )
        return self.fake

    def hang_up(self) -> None:
        if self.connected():
            assert self.fake is not None
            self.fake.drop()
            self.net.fakes.remove(self.fake)
            self.fake = None


class Publisher(Person):
    def __init__(self, net: Memory, broker: int, name: str, qos: mqtt5.QoS) -> None:
        super().__init__(net, broker, name)
        self.qos = qos
        self.owed: dict[int, mqtt5.PublishPacket] = {}
        self.released: dict[int, None] = {}  # PUBREC came, and no PUBCOMP
        self.acknowledged: list[mqtt5.PublishPacket] = []  # as seen by the last look
        self.next_id = 0

    def publish(self, topic: str, payload: bytes) -> None:
        self.next_id += 1
        packet = mqtt5.PublishPacket(topic, payload, qos=self.qos, packet_id=self.next_id)
        self.owed[self.next_id] = packet
        if self.connected():
            assert self.fake is not None
            self.fake.send(packet)

    def look(self) -> None:
        """Take acknowledgements; come back and send again if the connection is gone."""
        self.acknowledged = []
        if self.fake is not None:
            for packet in self.fake.packets:
                if isinstance(packet, mqtt5.PubAckPacket):
                    self.acknowledged.append(self.owed.pop(packet.packet_id))
                elif isinstance(packet, mqtt5.PubRecPacket):
                    if packet.packet_id in self.owed:
                        self.acknowledged.append(self.owed.pop(packet.packet_id))
                        self.released[packet.packet_id] = None
                    if self.connected():
                        self.fake.send(mqtt5.PubRelPacket(packet.packet_id))
                elif isinstance(packet, mqtt5.PubCompPacket):
                    self.released.pop(packet.packet_id, None)
            self.fake.packets.clear()
        if not self.connected():
            fake = self.connect()
            for number, packet in list(self.owed.items()):
                again = mqtt5.PublishPacket(
                    packet.topic, packet.payload, qos=self.qos, packet_id=number, duplicate=True
                )
                fake.send(again)
            for number in self.released:
                fake.send(mqtt5.PubRelPacket(number))


class Subscriber(Person):
    def __init__(self, net: Memory, broker: int, name: str) -> None:
        super().__init__(net, broker, name)
        self.first: Counter[int] = Counter()  # not marked as sent again
        self.received: dict[int, int] = {}  # of quality 2 and not released, by identifier
        self.exact: set[int] = set()  # of quality 2, what the client passed on to its program
        self.acknowledged: set[int] = set()
        self.pinged: set[int] = set()
        self.sure: set[int] = set()

    def look(self) -> None:
        self._read()
        if not self.connected():
            self.pinged = set()
            self.connect()
            self._read()
        elif not self.pinged:
            assert self.fake is not None
            self.pinged = set(self.acknowledged)
            self.fake.send(mqtt5.PingReqPacket())

    def hang_up(self) -> None:
        self._read()
        super().hang_up()

    def safe(self) -> set[int]:
        """The publications that have reached it, or are on its broker's disk."""
        store = self.net.stores[self.broker]
        assert store is not None
        found = store._db.execute("SELECT data FROM parcel WHERE owner = ?", (self.name,))
        rows = [msgspec.msgpack.decode(data, type=ParcelRow) for (data,) in found]
        payloads = [Letter(row.letter).payload for row in rows if row.letter]
        if self.fake is not None:
            came = [p for p in self.fake.packets if isinstance(p, mqtt5.PublishPacket)]
            payloads += [p.payload for p in came]
        return {msgspec.json.decode(payload)["n"] for payload in payloads} | set(self.first)

    def _read(self) -> None:
        if self.fake is None:
            return
        for packet in self.fake.packets:
            if isinstance(packet, mqtt5.PublishPacket):
                number = msgspec.json.decode(packet.payload)["n"]
                assert number not in self.sure, f"{self.name} had acknowledged {number}"
                if packet.qos == 2:
                    assert packet.packet_id is not None
                    self._take(packet.packet_id, number)
                self.first[number] += not packet.duplicate
                if self.fake.acknowledges:
                    self.acknowledged.add(number)
            elif isinstance(packet, mqtt5.PubRelPacket):
                self.received.pop(packet.packet_id, None)
            elif isinstance(packet, mqtt5.PingRespPacket):
                self.sure |= self.pinged
                self.pinged = set()
        self.fake.packets.clear()

    def _take(self, packet_id: int, number: int) -> None:
        """What a client does that knows nothing but identifiers."""
        if packet_id in self.received:
            assert self.received[packet_id] == number, "an identifier in use stands for another"
            return
        self.received[packet_id] = number
        assert number not in self.exact, f"{self.name} got {number} twice at quality 2"
        self.exact.add(number)


def check_safe(publisher: Publisher, subscribers: list[tuple[Subscriber, str, str | None]]) -> None:
    """What was acknowledged just now is safe with every subscriber it matches."""
    for subscriber, pattern, where in subscribers:
        filter = topics.as_filter(pattern, where)
        wanted = {
            msgspec.json.decode(packet.payload)["n"]
            for packet in publisher.acknowledged
            if matches(filter, content.attributes(packet.topic, packet.payload))
        }
        assert not wanted or wanted <= subscriber.safe(), f"not safe with {subscriber.name}"


def check(scheme: str, seed: int, folder: Path, parameters: str = "") -> Counter[str]:
    """One network's life; what happened how often."""
    draw = random.Random(f"{scheme} {seed}")
    links = [(NAMES[draw.randrange(n)], NAMES[n]) for n in range(1, len(NAMES))]
    home = folder / f"{scheme}-{seed}"
    home.mkdir()
    net = memory(
        home, NAMES, links, seed=seed, scheme=scheme, top='store = "s"', parameters=parameters
    )
    ends = sorted(
        (a, b) for a, peers in enumerate(net.brokers[0].plan.links()) for b in peers if a < b
    )
    subscribers: list[tuple[Subscriber, str, str | None]] = []
    for number in range(4):
        subscriber = Subscriber(net, draw.randrange(len(NAMES)), f"s{number}")
        pattern, where = draw.choice(WANTED)
        subscriber.connect().subscribe(pattern, where, max_qos=draw.choice([ONCE, EXACTLY]))
        subscribers.append((subscriber, pattern, where))
    publishers = [
        Publisher(net, draw.randrange(len(NAMES)), f"p{n}", mqtt5.QoS(draw.choice([1, 2])))
        for n in range(2)
    ]
    people: list[Publisher | Subscriber] = [*publishers, *(s for s, _, _ in subscribers)]
    published: list[tuple[str, bytes]] = []
    did: Counter[str] = Counter()
    cut: set[tuple[int, int]] = set()
    for _ in range(40):
        what = draw.random()
        if what < 0.5:
            publisher = draw.choice(publishers)
            for _ in range(draw.randint(1, IN_FLIGHT - min(len(publisher.owed), IN_FLIGHT - 1))):
                payload = b'{"n": %d, "x": %d}' % (len(published), draw.randint(0, 4))
                published.append((draw.choice(TOPICS), payload))
                publisher.publish(*published[-1])
        elif what < 0.7:
            net.restart(draw.randrange(len(NAMES)))
            did["crash"] += 1
        elif what < 0.8:
            chosen = draw.choice(ends)
            cut.add(chosen)
            net.cut(*chosen)
            did["cut"] += 1
        elif what < 0.9:
            draw.choice(people).hang_up()
            did["hang up"] += 1
        else:
            for chosen in cut:
                net.mend(*chosen)
            cut.clear()
        net.run(draw.choice([0, 1, 2, 5, 20, 300]) * 1000)
        for person in people:
            if draw.random() < 0.5:
                person.look()
                if isinstance(person, Publisher):
                    check_safe(person, subscribers)
                if person.fake is not None and isinstance(person, Subscriber):
                    person.fake.acknowledges = draw.random() < 0.8
    for chosen in cut:
        net.mend(*chosen)
    net.settle()
    owed: list[set[int]] = []
    for _, pattern, where in subscribers:
        filter = topics.as_filter(pattern, where)
        owed.append(
            {n for n, given in enumerate(published) if matches(filter, content.attributes(*given))}
        )
    for subscriber, _, _ in subscribers:  # what it did not acknowledge has to come again
        subscriber.look()
        subscriber.hang_up()
    for _ in range(40):
        for person in people:
            person.look()
        net.run(200_000)
    for publisher in publishers:
        assert not publisher.owed
        assert not publisher.released
    for (subscriber, _, _), wanted in zip(subscribers, owed, strict=True):
        assert subscriber.acknowledged == wanted, subscriber.name
        twice = [n for n, count in subscriber.first.items() if count > 1]
        assert not twice, subscriber.name
        did["delivery"] += len(wanted)
        did["exactly once"] += len(subscriber.exact)
    for broker in net.brokers:
        broker.router.check()
        assert not any(n.link.queue for n in broker.peers.values())
    for store in net.stores:
        assert store is not None
        rows = store.load()
        assert not rows["parcel"]
        assert not rows["received"]
        assert not rows["queue"]
        store.close()
    did["publication"] += len(published)
    return did


MIX = """parts = [
    { scheme = "flooding", where = "x < 2" },
    { scheme = "subscription_forwarding", where = "x < 4", parameters = { covering = true } },
    { scheme = "advertisement_forwarding" },
]"""


# Live, `fbr` is subscription forwarding under another name.
@pytest.mark.parametrize("scheme", [*(name for name in DURABLE if name != "fbr"), "mix"])
def test_nothing_acknowledged_is_lost_or_repeated_through_crashes(
    scheme: str, tmp_path: Path
) -> None:
    did: Counter[str] = Counter()
    for seed in range(SEEDS):
        parameters = "covering = true" if scheme.endswith("forwarding") and seed % 2 else ""
        if scheme == "mix":
            parameters = MIX
        try:
            did += check(scheme, seed, tmp_path, parameters)
        except BaseException:
            print(f"replay with check({scheme!r}, {seed}, folder, {parameters!r})")
            raise
    print(scheme, dict(did))
    assert did["crash"] > 40
    assert did["delivery"] > 500
    assert did["exactly once"] > 50


def pair(folder: Path, **more: str) -> Memory:
    return memory(folder, ["A", "B"], [("A", "B")], top='store = "s"', **more)


def test_sessions_with_all_they_hold_survive_and_others_do_not(tmp_path: Path) -> None:
    net = pair(tmp_path)
    stays = net.client(1, "stays", clean_start=False, session_expiry_interval=60)
    stays.subscribe("t/+", "n > 1", max_qos=ONCE, identifier=7)
    goes = net.client(1, "goes")
    goes.subscribe("u", max_qos=ONCE)
    assert net.brokers[0].router.table_entries() == 2
    stays.drop()
    publisher = net.client(0, "p")
    for number in (1, 2, 3):
        publisher.publish("t/a", b'{"n": %d}' % number, qos=ONCE)
    net.run(100_000)
    net.restart(1)
    net.settle()
    assert list(net.brokers[1].clients.sessions) == ["stays"]
    assert net.brokers[0].router.table_entries() == 1  # the other's subscription was withdrawn
    again = net.client(1, "stays", clean_start=False, session_expiry_interval=60)
    assert again.last(mqtt5.ConnAckPacket).session_present
    came = [p for p in again.packets if isinstance(p, mqtt5.PublishPacket)]
    assert [p.payload for p in came] == [b'{"n": 2}', b'{"n": 3}']
    assert [p.subscription_ids for p in came] == [[7], [7]]
    publisher.publish("t/b", b'{"n": 4}')
    net.run(100_000)
    assert again.got()[-1] == ("t/b", b'{"n": 4}')


def test_restored_session_expires_and_leaves_nothing_behind(tmp_path: Path) -> None:
    net = pair(tmp_path)
    net.client(1, "s", clean_start=False, session_expiry_interval=60).subscribe("t", max_qos=ONCE)
    net.restart(1)
    net.settle()
    net.run(59_000_000, 50_000)
    assert "s" in net.brokers[1].clients.sessions
    net.run(3_000_000, 50_000)
    assert not net.brokers[1].clients.sessions
    assert net.brokers[0].router.table_entries() == 0
    store = net.stores[1]
    assert store is not None
    rows = store.load()
    assert {name for name, found in rows.items() if found} == {"link", "resident"}
    assert {key for _, key, _ in rows["resident"]} == {""}  # which version it is, of nobody


@pytest.mark.parametrize("scheme", ["subscription_forwarding", "advertisement_forwarding"])
def test_wills_survive_and_are_published_once(tmp_path: Path, scheme: str) -> None:
    net = pair(tmp_path, scheme=scheme)
    watcher = net.client(1, "w")
    watcher.subscribe("gone/+")
    for name, expiry, delay in (("a", 0, 0), ("b", 60, 0), ("c", 60, 5), ("d", 60, 5), ("e", 0, 0)):
        will = mqtt5.Will(f"gone/{name}", payload=b"x", will_delay_interval=delay, qos=ONCE)
        client = net.client(0, name, will=will, session_expiry_interval=expiry)
    client.send(mqtt5.DisconnectPacket())
    net.run(10_000)
    net.restart(0)
    net.restart(0)
    net.run(3_000_000)
    assert sorted(watcher.got()) == [("gone/a", b"x"), ("gone/b", b"x")]
    net.client(0, "d", session_expiry_interval=60, clean_start=False)
    net.run(3_000_000)
    assert watcher.got() == [("gone/c", b"x")]
    net.restart(0)
    net.run(9_000_000)
    assert watcher.got() == []
    assert "a" not in net.brokers[0].clients.sessions


@pytest.mark.parametrize("away", [True, False])
def test_a_session_that_cannot_hold_what_it_was_promised_ends_and_its_client_learns_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, away: bool
) -> None:
    net = pair(tmp_path, tables="[limits]\nsession_queue = 10\n")
    options = {"clean_start": False, "session_expiry_interval": 600}
    slow, other = net.client(1, "slow", receive_max=2, **options), net.client(1, "other", **options)
    for client in (slow, other):
        client.subscribe("t", max_qos=ONCE)
    slow.acknowledges = False
    if away:
        slow.drop()
    publisher = net.client(0, "p", **options)
    for number in range(30):
        publisher.publish("t", b"%d" % number, qos=ONCE)
    net.run(200_000)
    assert len([p for p in publisher.packets if isinstance(p, mqtt5.PubAckPacket)]) == 30
    assert len(other.got()) == 30
    if not away:
        assert slow.last(mqtt5.DisconnectPacket).reason_code == 0x97
    store = net.stores[1]
    assert store is not None
    assert not [row for row in store.load()["parcel"] if row[0] == "slow"]
    (row,) = [vars(r) for r in caplog.records if r.getMessage() == "session ended"]
    assert row["reason"] == "more than 10 publications wait for this session"
    back = net.client(1, "slow", **options)
    assert not back.last(mqtt5.ConnAckPacket).session_present


def test_retained_publications_survive(tmp_path: Path) -> None:
    net = pair(tmp_path)
    net.client(0, "p").publish("t", b"kept", retain=True)
    net.run(100_000)
    for broker in (0, 1):
        net.restart(broker)
        late = net.client(broker, "late")
        late.subscribe("t")
        net.run(50_000)
        assert late.got() == [("t", b"kept")]


def test_publication_sent_again_is_taken_once_and_acknowledged_twice(tmp_path: Path) -> None:
    net = pair(tmp_path)
    subscriber = net.client(1, "s")
    subscriber.subscribe("t", max_qos=ONCE)

    def send(payload: bytes, duplicate: bool) -> bool:
        publisher = net.client(0, "p", clean_start=False, session_expiry_interval=60)
        assert publisher.last(mqtt5.ConnAckPacket).receive_max == 1024
        publisher.send(
            mqtt5.PublishPacket("t", payload, qos=ONCE, packet_id=5, duplicate=duplicate)
        )
        net.run(100_000)
        return publisher.last(mqtt5.PubAckPacket) is not None

    assert send(b"1", False)
    net.restart(0)
    assert send(b"1", True)
    assert subscriber.got() == [("t", b"1")]
    assert send(b"1", False)  # the same bytes, and not said to be sent again
    assert send(b"2", True)  # sent again, and never seen here
    assert subscriber.got() == [("t", b"1"), ("t", b"2")]


def test_a_neighbour_that_is_away_for_hours_loses_nothing(tmp_path: Path) -> None:
    net = pair(tmp_path)
    subscriber = net.client(1, "s")
    subscriber.subscribe("t", max_qos=ONCE)
    publisher = net.client(0, "p")
    net.cut(0, 1)
    for number in range(5):
        publisher.publish("t", b"%d" % number, qos=ONCE)
    net.run(100_000)
    net.restart(0)
    net.run(7_200_000_000, 1_000_000)
    net.mend(0, 1)
    net.settle()
    assert [payload for _, payload in subscriber.got()] == [b"0", b"1", b"2", b"3", b"4"]


def test_puback_waits_for_the_last_broker_with_a_subscriber_and_no_other(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A", "B", "C"], [("A", "B"), ("B", "C")], top='store = "s"')
    far = net.client(2, "far", clean_start=False, session_expiry_interval=60)
    far.subscribe("far", max_qos=ONCE)
    net.client(1, "near").subscribe("near", max_qos=ONCE)
    publisher, other = net.client(0, "p"), net.client(0, "other")
    net.cut(1, 2)
    other.publish("near", b"", qos=ONCE)
    net.run(100_000)
    assert other.last(mqtt5.PubAckPacket, take=True)
    publisher.publish("far", b"", qos=ONCE)
    publisher.publish("nobody", b"", qos=ONCE)  # acknowledged in the order of publication
    net.run(10_000_000, 5_000)
    net.restart(1)
    net.run(10_000_000, 5_000)
    assert publisher.last(mqtt5.PubAckPacket) is None
    far.drop()
    net.mend(1, 2)
    net.until(lambda: publisher.last(mqtt5.PubAckPacket))
    store = net.stores[2]
    assert store is not None
    assert [owner for owner, _, _ in store.load()["parcel"]] == ["far"]
    acknowledged = [p.packet_id for p in publisher.packets if isinstance(p, mqtt5.PubAckPacket)]
    assert acknowledged == [1, 2]


def test_damaged_foreign_and_locked_stores_are_one_clear_error(tmp_path: Path) -> None:
    store = Store(tmp_path, "net#1", "A")
    with pytest.raises(RunFailed, match=r"A\.db cannot be opened: database is locked"):
        Store(tmp_path, "net#1", "A")
    journal = Journal()
    for number in range(200):
        journal.put("queue", 1, number, b"x" * 500)
    store.commit(journal.take())
    store.close()
    with pytest.raises(RunFailed, match="belongs to net#1 A, not net#2 A"):
        Store(tmp_path, "net#2", "A")
    path = tmp_path / "A.db"
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + b"\xff" * 8000 + whole[middle + 8000 :])
    with pytest.raises(RunFailed, match=r"A\.db (is damaged|cannot be opened)"):
        Store(tmp_path, "net#1", "A")
    path.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(RunFailed, match="file is not a database"):
        Store(tmp_path, "net#1", "A")


def test_a_full_disk_is_an_error_and_the_last_commit_stands(tmp_path: Path) -> None:
    store = Store(tmp_path, "net#1", "A")
    journal = Journal()
    journal.put("queue", 1, 1, b"safe")
    store.commit(journal.take())
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    journal.drop("queue", 1, 1)
    for number in range(2, 200):
        journal.put("queue", 1, number, b"x" * 500)
    with pytest.raises(RunFailed, match=r"A\.db cannot be written: database or disk is full"):
        store.commit(journal.take())
    store.close()
    assert Store(tmp_path, "net#1", "A").load()["queue"] == [(1, 1, b"safe")]


def test_store_with_missing_messages_is_refused(tmp_path: Path) -> None:
    net = pair(tmp_path)
    net.client(1, "s").subscribe("t", max_qos=ONCE)
    net.cut(0, 1)
    publisher = net.client(0, "p")
    for _ in range(3):
        publisher.publish("t", b"", qos=ONCE)
    net.run(10_000)
    store = net.stores[0]
    assert store is not None
    middle = store.load()["queue"][1][1]
    store._db.execute("DELETE FROM queue WHERE key = ?", (middle,))
    with pytest.raises(RunFailed, match="messages for broker B are missing"):
        net.restart(0)


def test_store_needs_a_scheme_whose_routes_can_be_kept(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A", "B"], [("A", "B")], scheme="popsub", top='store = "s"')
    with pytest.raises(InputError, match="store"):
        load(path)


def test_what_a_neighbour_knows_tells_a_store_that_is_old_or_lost() -> None:
    now = Standing(created=100, began=250, first=900)
    for known, good in (
        ((100, 200), True),
        ((100, 250), True),
        ((100, 251), False),  # an earlier process has told of it
        ((100, 899), False),
        ((100, 900), True),  # this one has
        ((101, 1), False),  # there was a newer store
        ((99, 1), False),  # there was an older one, and this was not meant to take its place
    ):
        assert (now.behind(known) is None) == good, known
    reset = Standing(created=100, began=250, first=900, reset=True)
    assert reset.behind((99, 10**6)) is None
    assert reset.behind((101, 1)) is not None


def test_the_numbers_of_a_link_tell_a_store_that_is_old() -> None:
    def hello(received: int, base: int, mine: str = "b.0") -> links.Hello:
        return links.Hello(1, "n", 1, mine, "a.0", received, base=base)

    link = Link(0, 1, "a", True)
    link.restore(LinkRow("a", 0, "b.0", True, received=10, base=5), [b"6", b"7"])
    link.send(b"8")  # by this process, so the peer cannot have it yet
    assert link.behind(hello(7, 10)) is None
    assert link.behind(hello(8, 10)) is not None
    assert link.behind(hello(7, 11)) is not None
    assert link.behind(hello(99, 99, "another.0")) is None  # both start afresh
    link.met(hello(7, 10))
    assert link.behind(hello(8, 10)) is None


def test_the_others_forget_what_a_broker_wanted_before_its_store_was_reset(tmp_path: Path) -> None:
    cycle = [("A", "B"), ("B", "C"), ("A", "C")]
    net = memory(tmp_path, ["A", "B", "C"], cycle, top='store = "s"')
    client = net.client(1, "s", clean_start=False, session_expiry_interval=600)
    client.subscribe("t", max_qos=ONCE)
    first, old = net.brokers[0].repair, net.stores[1]
    assert first is not None
    net.until(lambda: first.wants.get(1))
    assert old is not None
    assert net.network.store is not None
    old.close()
    replace(net.network.store, net.network.identity, "B", (), net.now)
    net.stores[1] = Store(net.network.store, net.network.identity, "B", now=net.now)
    net.restart(1)
    net.until(lambda: first.wants.get(1) == {}, 60_000_000)
    net.settle()
    assert all(broker.failure is None for broker in net.brokers)
    publisher = net.client(0, "p")
    publisher.publish("t", b"x", qos=ONCE)
    net.until(lambda: publisher.last(mqtt5.PubAckPacket))
