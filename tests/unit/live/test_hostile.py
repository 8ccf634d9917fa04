"""What clients send to hold others up: the work that it makes is bounded, or is done in turns."""

from __future__ import annotations

import gc
import json
import logging
from collections import Counter
from pathlib import Path

import mqtt5
import pytest

from live_harness import memory
from postroad.filters import Filter, parse
from postroad.live import broker as brokers
from postroad.live.edge import clients
from postroad.live.edge.runs import TURN_NS
from postroad.live.links import messages
from postroad.live.operations import logs
from postroad.model import Publication
from postroad.routing import pool as pools


def test_a_filter_is_read_once_for_all_topics_of_a_packet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = memory(tmp_path, ["A"], [])
    client = net.client(0, "c")
    read: list[str] = []
    parse = clients.parse

    def counted(text: str) -> object:
        read.append(text)
        return parse(text)

    monkeypatch.setattr(clients, "parse", counted)
    wanted = [mqtt5.TopicFilter(f"t/{n}/+") for n in range(200)]
    client.send(mqtt5.SubscribePacket(1, wanted, user_properties=[("$where", "x > 1")]))
    net.until(lambda: client.last(mqtt5.SubAckPacket))
    assert read == ["x > 1"]
    publisher = net.client(0, "p")
    for x in (0, 2):
        publisher.publish("t/7/a", b'{"x": %d}' % x)
    net.run(10_000)
    assert client.got() == [("t/7/a", b'{"x": 2}')]


class Clock:
    """A clock that moves on with each look at it: what counts is how often work looks."""

    def __init__(self, step_ns: int) -> None:
        self.now_ns, self.step_ns = 0, step_ns

    def __call__(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns


PING = mqtt5.PingReqPacket().write()
MANY = 2_000


def flood(kind: str) -> bytes:
    """Input of one client that takes far longer than a share."""
    if kind == "publications":
        return mqtt5.PublishPacket("t", b'{"x": 1}').write() * MANY
    if kind == "long publications":
        return mqtt5.PublishPacket("t", b"x" * 200).write() * MANY
    if kind == "pings":
        return PING * MANY
    if kind == "bad filters":
        return mqtt5.SubscribePacket(
            1, [mqtt5.TopicFilter("a")], user_properties=[("$where", "x >")]
        ).write() * (MANY // 4)
    wanted = [mqtt5.TopicFilter(f"a/{n}") for n in range(MANY)]
    subscribe = mqtt5.SubscribePacket(1, wanted).write()
    if kind == "topic filters":
        return subscribe
    assert kind == "withdrawn topic filters"
    return subscribe + mqtt5.UnsubscribePacket(2, [each.pattern for each in wanted]).write()


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize(
    "kind",
    [
        "publications", "long publications", "pings", "bad filters", "topic filters",
        "withdrawn topic filters",
    ],
)  # fmt: skip
def test_whatever_one_client_sends_others_are_answered_between_its_shares(
    tmp_path: Path, kind: str, level: int
) -> None:
    net = memory(tmp_path, ["A"], [])
    hostile, other = net.client(0, "h"), net.client(0, "o", level=level)
    broker = net.brokers[0]
    # Somebody wants some of what comes, so that the router is asked about each publication.
    net.client(0, "w").send(
        mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t")], user_properties=[("$where", "x > 5")])
    )
    hostile.raw(mqtt5.PublishPacket("t", b"").write())
    broker.clients.clock = clock = Clock(50_000)
    hostile.raw(flood(kind) + PING)
    turns = 0
    while broker.clients.busy or not turns:
        turns += 1
        assert turns < 10_000
        other.bytes.clear()
        other.raw(PING)
        began_ns, steps = clock.now_ns, broker.steps
        broker.clients.work(net.now)
        other.collect()
        assert other.bytes == [b"\xd0\x00"]  # in the very next turn
        assert clock.now_ns - began_ns <= 2 * TURN_NS
        assert broker.steps - steps <= MANY
        broker.flush(net.now)
    assert turns > 2
    hostile.collect()
    assert hostile.bytes[-1] == b"\xd0\x00"


def test_the_subscriptions_of_who_has_gone_are_withdrawn_step_by_step(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [])
    gone, other = net.client(0, "g"), net.client(0, "o")
    gone.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter(f"a/{n}") for n in range(MANY)]))
    broker = net.brokers[0]
    broker.clients.clock = Clock(50_000)
    gone.drop()
    broker.tick(net.now + 1)
    turns = 0
    while broker.clients.holders:
        turns += 1
        other.bytes.clear()
        other.raw(PING)
        broker.clients.work(net.now)
        other.collect()
        assert other.bytes == [b"\xd0\x00"]
    assert turns > 10
    assert broker.router.table_entries() == 0


def test_publishers_wait_for_a_subscriber_that_reads_and_no_longer_for_one_that_does_not(
    tmp_path: Path,
) -> None:
    net = memory(tmp_path, ["A"], [])
    slow, other, publisher = net.client(0, "s"), net.client(0, "o"), net.client(0, "p")
    slow.subscribe("t")
    other.subscribe("u")
    publisher.publish("t", b"first")
    net.run(2_000)
    side = net.brokers[0].clients

    def flow(count: int) -> None:
        for number in range(count):
            publisher.publish("t", b"%d" % number)

    side.filled(slow.connection, net.now)
    flow(10)
    assert publisher.connection.stopped
    elsewhere = net.client(0, "q")
    elsewhere.publish("u", b"x")  # nobody waits but who publishes to it
    net.run(1_000)
    assert other.got() == [("u", b"x")]
    side.emptied(slow.connection, net.now)
    net.run(2_000)
    assert [payload for _, payload in slow.got()] == [b"first"] + [b"%d" % n for n in range(10)]
    # It reads nothing now: publishers go on after a second, and what it cannot hold is dropped.
    side.filled(slow.connection, net.now)
    flow(10)
    net.run(900_000)
    assert publisher.connection.stopped
    slow.connection.blocked = True
    net.run(200_000)
    assert not publisher.connection.stopped
    assert len(slow.got()) == 1
    assert side.sessions["s"].dropped == 9
    side.emptied(slow.connection, net.now)
    side.filled(slow.connection, net.now)  # next time it is waited for less
    flow(1)
    net.run(300_000)
    assert not publisher.connection.stopped


ONCE = mqtt5.QoS.AT_LEAST_ONCE


def held(net: object, name: str) -> tuple[int, int]:
    session = net.brokers[0].clients.sessions[name]  # type: ignore[attr-defined]
    return len(session.waiting) + len(session.unacknowledged), session.held_bytes


def test_what_a_session_holds_is_bounded_in_number_and_bytes_and_a_broker_has_a_total(
    tmp_path: Path,
) -> None:
    limits = "[limits]\nsession_queue = 20\nsession_inflight = 10\nsession_bytes = 40000\n"
    net = memory(tmp_path, ["A"], [], tables=limits + "sessions_bytes = 100000")
    side = net.brokers[0].clients
    mute = [net.client(0, f"m{n}") for n in range(8)]
    for number, client in enumerate(mute):
        client.acknowledges = False
        client.subscribe(f"t/{number}" if number else "#", max_qos=ONCE)
    publisher = net.client(0, "p")

    def send(topic: str, size: int, count: int) -> None:
        for _ in range(count):
            publisher.publish(topic, b"x" * size, qos=ONCE)
        net.until(lambda: not publisher.connection.stopped, 60_000_000)

    send("s", 1, 100)
    assert held(net, "m0")[0] == 30  # 10 in flight, 20 wait
    assert len(mute[0].got()) == 10
    mute[0].drop()
    net.run(1_000)
    assert side.room.bytes == side.room.holders == 0
    send("t/1", 5_000, 30)
    assert held(net, "m1")[0] == 7  # of 5,300 bytes each
    assert held(net, "m1")[1] <= 40_000
    for number in range(2, 8):
        send(f"t/{number}", 3_000, 30)
        assert side.room.bytes <= 100_000
        if number < 5:
            assert held(net, f"m{number}")[0] >= 1  # those before have left something
    assert side.room.bytes == sum(held(net, f"m{n}")[1] for n in range(1, 8))
    for client in mute[1:]:
        client.drop()
    net.run(1_000)
    assert side.room.bytes == 0


def test_what_nobody_reads_is_bounded_for_all_connections_together(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [], tables=f"[limits]\nsessions_bytes = {64 << 20}\n")
    side = net.brokers[0].clients
    publisher = net.client(0, "p")
    mute = [net.client(0, f"m{n}") for n in range(100)]
    for client in mute:
        client.subscribe("t")
    publisher.publish("t", b"x")
    most, held = 0, [0] * len(mute)
    for _ in range(3_000):
        for number, client in enumerate(mute):  # the driver has a quarter of a megabyte of each
            connection = client.connection
            if not connection.blocked:
                connection.full = True
                held[number] += 1 << 18
                side.unwritten(connection, held[number])
        most = max(most, side.unread.bytes)
    assert 32 << 20 < most <= 64 << 20
    assert side.unread.bytes == sum(held)
    reader = net.client(0, "r")
    reader.subscribe("t")
    reader.connection.full = True
    side.unwritten(reader.connection, 300_000)
    assert not reader.connection.blocked  # nor is somebody who comes later cut off
    side.unwritten(reader.connection, clients.BLOCKED_BYTES)
    assert reader.connection.blocked
    side.emptied(reader.connection, net.now)
    assert not reader.connection.blocked
    for client in mute:
        client.drop()
    assert side.unread.bytes == side.unread.holders == 0


def test_acknowledgements_give_room_back_and_nothing_is_lost_to_who_acknowledges(
    tmp_path: Path,
) -> None:
    limits = "[limits]\nsession_queue = 20\nsession_inflight = 4\nsession_bytes = 20000\n"
    net = memory(tmp_path, ["A"], [], tables=limits)
    reader, publisher = net.client(0, "r"), net.client(0, "p")
    reader.subscribe("t", max_qos=ONCE)
    for number in range(300):
        publisher.publish("t", b"%d" % number, qos=ONCE)
    net.run(1_000_000)
    assert [int(payload) for _, payload in reader.got()] == list(range(300))
    assert held(net, "r") == (0, 0)
    assert net.brokers[0].clients.sessions["r"].dropped == 0


def test_all_that_is_retained_reaches_a_subscriber_that_takes_little_at_a_time(
    tmp_path: Path,
) -> None:
    limits = "[limits]\nsession_queue = 20\nsession_inflight = 4\n"
    net = memory(tmp_path, ["A"], [], tables=limits)
    publisher = net.client(0, "p")
    for number in range(500):
        publisher.publish(f"t/{number}", b"x", qos=ONCE, retain=True)
    net.run(10_000)
    side = net.brokers[0].clients
    side.clock = Clock(50_000)
    reader = net.client(0, "r")
    reader.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("#")]))
    topics = set()
    for _ in range(2_000):
        side.work(net.now)
        net.step()
        topics |= {topic for topic, _ in reader.got()}
    assert len(topics) == 500
    assert side.sessions["r"].dropped == 0


def test_topics_removed_are_bounded_and_swept_without_looking_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "ABSENT_MAX", 20)
    net = memory(tmp_path, ["A", "B"], [("A", "B")], top="[limits]\nretained = 30\n")
    publisher = net.client(0, "p")
    publisher.publish("kept", b"x", retain=True)
    for number in range(200):
        publisher.publish(f"never/{number}", b"", retain=True)
    for number in range(200):
        publisher.publish(f"once/{number}", b"x", retain=True)
        publisher.publish(f"once/{number}", b"", retain=True)
    net.run(50_000)
    for broker in net.brokers:
        assert len(broker.absent) == 20
        assert len(broker.removed) == 30
        assert len(broker.retained) == 51
        assert broker.retained_bytes == len(broker.retained["kept"].kept)
    publisher.publish("again", b"x", retain=True)  # they leave room for what is retained
    net.run(50_000)
    assert net.brokers[1].retained["again"].kept
    for broker in net.brokers:
        broker.tick(net.now + brokers.TOMBSTONE_US + 1_000_000)
        assert not broker.removed
        assert not broker.absent
        assert set(broker.retained) == {"kept", "again"}


def test_what_was_never_retained_is_not_remembered_by_a_broker_alone(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [])
    publisher = net.client(0, "p")
    for number in range(50):
        publisher.publish(f"never/{number}", b"", retain=True)
    assert not net.brokers[0].retained


def test_a_removal_reaches_a_broker_that_was_away(tmp_path: Path) -> None:
    """Also of a topic that the remover's broker has not heard of."""
    net = memory(tmp_path, ["A", "B"], [("A", "B")])
    here, there = net.client(0, "h"), net.client(1, "t")
    net.cut(0, 1)
    net.run(10_000)
    there.publish("t", b"x", retain=True)
    net.run(10_000)
    here.publish("t", b"", retain=True)
    net.run(61_000_000, 100_000)
    net.mend(0, 1)
    net.run(8_000_000, 10_000)
    assert [bool(broker.retained["t"].kept) for broker in net.brokers] == [False, False]


def test_retained_bytes_are_bounded(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [], top="[limits]\nretained_bytes = 1000\n")
    publisher = net.client(0, "p")
    for number in range(20):
        publisher.publish(f"t/{number}", b"x" * 100, retain=True)
    broker = net.brokers[0]
    assert broker.retained_bytes == sum(len(each.kept) for each in broker.retained.values())
    assert 0 < broker.retained_bytes <= 1000


def test_large_filters_count_as_several_subscriptions(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [], top="[limits]\nsubscriptions_per_client = 100\n")
    client = net.client(0, "c")
    large = f"x IN ({','.join(map(str, range(2000)))})"
    codes = [client.subscribe(f"t/{n}", large).reason_codes[0] for n in range(5)]
    assert codes == [0, 0, 0, 0x97, 0x97]
    client.send(mqtt5.UnsubscribePacket(99, ["t/0", "t/1", "t/2"]))
    assert net.brokers[0].clients.sessions["c"].weight == 0
    assert client.subscribe("t/9", large).reason_codes[0] == 0


def test_patterns_and_plus_levels_count_as_several_subscriptions_also_after_a_restart(
    tmp_path: Path,
) -> None:
    """So many that a publication with the longest texts is compared in bounded time."""
    limits = "[limits]\nsubscriptions_per_client = 1000\n"
    net = memory(tmp_path, ["A"], [], top='store = "s"', tables=limits)
    client = net.client(0, "c", clean_start=False, session_expiry_interval=60)
    chained = " AND ".join(f"x NOT LIKE '%{n}%'" for n in range(300))
    plus = "/".join("+" * 40)
    wanted = [("t/1", chained), ("t/2", chained), (plus, None), ("a/+/b", "x LIKE 'a%'")]
    codes = [client.subscribe(*each).reason_codes[0] for each in wanted]
    assert codes == [0, 0x97, 0, 0]
    weights = {"t/1": 601, plus: 11, "a/+/b": 2}

    def held() -> dict[str, int]:
        session = net.brokers[0].clients.sessions["c"]
        assert session.weight == sum(weights.values())
        return {name: each.terms.weight for name, each in session.subscriptions.items()}

    assert held() == weights
    net.restart(0)
    assert held() == weights


def test_log_lines_are_limited_for_each_reason_and_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    handler = logs.Limited()
    handler.setFormatter(logs.Lines())
    log = logging.Logger("test")
    log.addHandler(handler)

    def say(what: str, reason: str, level: int = logging.WARNING) -> None:
        record = log.makeRecord("test", level, "", 0, what, (), None, extra={"reason": reason})
        record.created = 1_000.5
        handler.handle(record)

    for number in range(1000):
        say("client refused", f"a packet of {number} bytes")
        say("client refused", f"{chr(97 + number % 26)}{chr(97 + number // 26)} varied")
    say("subscription refused", "another reason is seen nevertheless")
    for _ in range(30):
        say("broker ends", "an error", logging.ERROR)
    handler.summarise(1_001.0)
    rows = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    counts = Counter(row["what"] for row in rows)
    assert counts["client refused"] == logs.PER_MESSAGE
    assert counts["subscription refused"] == 1
    assert counts["broker ends"] == 30
    suppressed = sum(row["count"] for row in rows if row["what"] == "lines suppressed")
    assert suppressed == 2000 - logs.PER_MESSAGE
    assert len(rows) < 200


def test_a_thousand_refused_topic_filters_are_answered_with_a_short_reason(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [])
    client, narrow = net.client(0, "c"), net.client(0, "n", max_packet_size=3_100)
    wanted = [mqtt5.TopicFilter(f"$share//{'x' * 20}{n}") for n in range(3000)]
    bad = [mqtt5.TopicFilter(f"t/{n}") for n in range(3000)]
    for each, where in ((wanted, None), (bad, "price >"), (bad, "x" * 60_000 + " >")):
        properties = [] if where is None else [("$where", where)]
        for sender in (client, narrow):
            sender.send(mqtt5.SubscribePacket(1, each, user_properties=properties))
            net.until(lambda sender=sender: sender.last(mqtt5.SubAckPacket))  # type: ignore[misc]
            answer = sender.last(mqtt5.SubAckPacket, take=True)
            assert all(int(code) >= 0x80 for code in answer.reason_codes)
            assert len(answer.reason_codes) == 3000
            if sender is client:
                assert 0 < len(answer.reason_str) < 1_100
            else:
                assert len(answer.write()) <= 3_100


def test_nested_fields_are_not_advertised(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [])
    client = net.client(0, "c", user_properties=[("$advertise", "x = 1 OR o.price > 5")])
    answer = client.last(mqtt5.ConnAckPacket)
    assert int(answer.reason_code) == 0x83
    assert "o.price is a nested field" in answer.reason_str


def test_payloads_with_white_space_or_a_mark_before_them_have_attributes(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [])
    client, publisher = net.client(0, "c"), net.client(0, "p")
    client.subscribe("t", "x = 1")
    payloads = [
        b'{"x": 1}', b' {"x": 1}', b'\r\n\t {"x": 1}\n', b'\xef\xbb\xbf{"x": 1}',
        b'\xef\xbb\xbf\n{"x": 1, "y": [2]}',
    ]  # fmt: skip
    for payload in (*payloads, b"  x", b"\xef\xbb\xbf", b' {"x": 2}'):
        publisher.publish("t", payload)
        publisher.publish("t", payload)  # the second time the topic is a usual one
    net.run(5_000)
    assert [payload for _, payload in client.got()] == [p for p in payloads for _ in (0, 1)]


def test_withdrawn_subscriptions_give_their_memory_back(tmp_path: Path) -> None:
    """Counted are the objects left behind, in both brokers and what they share."""
    parameters = "covering = true"
    net = memory(tmp_path, ["A", "B"], [("A", "B")], parameters=parameters)
    client = net.client(0, "c")

    def churn(count: int, kind: str) -> None:
        for start in range(0, count, 50):
            names = [f"{kind}/{n}" for n in range(start, start + 50)]
            where = [("$where", f"price > {start} AND {kind}{start} LIKE '%{kind}{start}%'")]
            wanted = [mqtt5.TopicFilter(name, max_qos=mqtt5.QoS.AT_MOST_ONCE) for name in names]
            client.send(mqtt5.SubscribePacket(1, wanted, user_properties=where))
            net.run(20_000, 10_000)
            client.send(mqtt5.UnsubscribePacket(2, names))
            net.run(20_000, 10_000)
        client.packets.clear()
        client.bytes.clear()

    pools = [broker.router.pool for broker in net.brokers]  # type: ignore[attr-defined]
    churn(5_000, "a")
    for pool in pools:
        assert not pool.uses
        assert not pool._pinned
        assert not pool._unpinned
        assert not pool.above
        assert len(pool.index) == 0
    messages._parsed.cache_clear()
    gc.collect()
    before = len(gc.get_objects())
    churn(1_000, "b")
    messages._parsed.cache_clear()
    gc.collect()
    assert len(gc.get_objects()) - before < 500  # not one for each
    assert messages._parsed.cache_info().maxsize <= 4_096  # type: ignore[operator]


def test_an_index_that_many_filters_have_left_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "LEFT_MAX", 100)
    pool = pools.FilterPool()
    kept = parse("class = 'kept'")
    pool.enter(kept)
    index = pool.index
    for number in range(250):
        filter = parse(f"class = 't{number}'")
        pool.enter(filter)
        pool.leave(filter)
    assert pool.index is not index
    assert pool.match(Publication("p", "1", {"class": "kept"}, b"", 0)) == [kept]


def test_a_filter_is_compared_with_a_bounded_number_of_others_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    usual = pools.covers

    def counted(a: Filter, b: Filter) -> bool:
        nonlocal asked
        asked += 1
        return usual(a, b)

    monkeypatch.setattr(pools, "covers", counted)
    monkeypatch.setattr(brokers, "COVERING_STEPS", 20 * pools.COMPARING)
    net = memory(tmp_path, ["A", "B"], [("A", "B")], parameters="covering = true")
    client, publisher = net.client(0, "c"), net.client(1, "p")
    for number in range(60):
        asked = 0
        client.subscribe(f"t/{number}/#", f"x > {number % 7}")
        assert asked <= 2 * 2 * 20  # both ways, at both brokers
    client.subscribe("t/#", "x > 3")  # covers many of those
    client.send(mqtt5.UnsubscribePacket(99, [f"t/{n}/#" for n in range(0, 60, 2)]))
    net.run(50_000)
    for number in (4, 7, 58):
        publisher.publish(f"t/{number}/a", b'{"x": 4}')
    net.run(50_000)
    client.send(mqtt5.UnsubscribePacket(98, ["t/#"]))
    net.run(50_000)
    for number in (4, 7, 9):
        publisher.publish(f"t/{number}/b", b'{"x": 4}')
    net.run(50_000)
    topics = [topic for topic, _ in client.got()]
    assert topics == ["t/4/a", "t/7/a", "t/58/a", "t/7/b", "t/9/b"]
    for broker in net.brokers:
        broker.router.check()
