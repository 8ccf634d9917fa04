"""Shared subscriptions: each publication goes to one member, wherever members are."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from live_harness import Fake, Memory, memory
from postroad.live.edge import topics
from postroad.live.edge.shares import AWAY, Shares, key
from postroad.live.links.messages import Members
from postroad.routing import SCHEMES

NAMES, CHAIN = ["A", "B", "C"], [("A", "B"), ("B", "C")]
RING = [*CHAIN, ("A", "C")]
ONCE, EXACTLY = mqtt5.QoS.AT_LEAST_ONCE, mqtt5.QoS.EXACTLY_ONCE
LASTING: dict[str, Any] = {"clean_start": False, "session_expiry_interval": 600}


# The choice.


def members(broker: int, version: int, count: int, ready: int, pattern: str = "t") -> Members:
    filter = topics.as_filter(pattern)
    groups = {key("g", pattern, filter): (pattern, filter, count, ready)} if count else {}
    return Members(broker, version, groups)


def test_the_nearest_ready_member_gets_it_then_in_turns_by_how_many_are_ready() -> None:
    shares = Shares(0)
    group = key("g", "t", topics.as_filter("t"))
    for broker, ready in ((1, 0), (2, 1), (3, 2), (4, 5)):
        assert shares.learn(members(broker, 1, 2, ready))
    distances = {0: 0, 1: 1, 2: 2, 3: 2, 4: 3}
    assert shares.matching({"class": "t"}) == [group]
    assert shares.matching({"class": "u"}) == []
    chosen = Counter(shares.choose(group, distances) for _ in range(300))
    assert chosen == {2: 100, 3: 200}  # 1 is nearer and not ready, 4 further away
    assert shares.choose(group, {**distances, 2: AWAY, 3: AWAY}) == 4
    assert shares.choose(group, distances, without=(2, 3, 4)) == 1
    assert shares.choose(group, {}) is None


def test_the_newest_statement_counts_and_groups_end_with_their_last_member() -> None:
    shares = Shares(0)
    group = key("g", "t", topics.as_filter("t"))
    assert shares.learn(members(1, 5, 1, 1))
    assert not shares.learn(members(1, 5, 9, 9))
    assert not shares.learn(members(1, 4, 0, 0))
    assert shares.learn(members(2, 1, 1, 1))
    shares.forget(2)
    assert shares.choose(group, {1: 1, 2: 1}) == 1
    assert shares.learn(members(1, 6, 0, 0))
    assert shares.groups == {}
    assert shares.matching({"class": "t"}) == []


def test_changes_are_told_and_one_that_was_missed_waits_for_the_whole() -> None:
    shares, far, late = Shares(0), Shares(1), Shares(2)
    counts = ("t", topics.as_filter("t"), 1, 1)
    assert shares.state({"g": None}, 7) is None
    one = shares.state({"g": counts}, 7)
    assert one == Members(0, 7, {"g": counts}, 0, ())
    two_counts = ("t", topics.as_filter("t"), 2, 1)
    assert shares.learn(one)
    assert shares.state({"g": counts}, 8) is None
    two = shares.state({"g": two_counts, "h": counts}, 3)  # versions grow whatever the clock says
    assert two == Members(0, 8, {"g": two_counts, "h": counts}, 7, ())
    assert shares.learn(two)
    three = shares.state({"h": None}, 9)
    assert three == Members(0, 9, {}, 8, ("h",))
    assert shares.learn(three)
    assert [far.learn(each) for each in (one, one, two, three)] == [True, False, True, True]
    assert far.groups["g"].members == {0: (2, 1)}
    assert "h" not in far.groups
    assert not late.learn(two)
    assert late.learn(shares.whole(0))
    assert late.stated == far.stated


def test_levels_that_a_filter_cannot_say_are_compared() -> None:
    shares = Shares(0)
    pattern = "+/b/#"
    assert not topics.exact(pattern)
    shares.learn(members(1, 1, 1, 1, pattern))
    assert shares.matching({"class": "a/b/c"})
    assert not shares.matching({"class": "a/x/b/c"})


# In memory.


def group(net: Memory, places: list[int], pattern: str = "$share/g/t/#", **more: Any) -> list[Fake]:
    options = {"max_qos": ONCE}
    made = []
    for number, place in enumerate(places):
        client = net.client(place, f"{pattern}{number}", **more)
        assert int(client.subscribe(pattern, **options).reason_codes[0]) == 1
        made.append(client)
    return made


def taken(clients: list[Fake]) -> list[list[bytes]]:
    return [[payload for _, payload in client.got()] for client in clients]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_member_gets_each_publication_under_every_scheme(tmp_path: Path, scheme: str) -> None:
    net = memory(tmp_path, NAMES, CHAIN, scheme=scheme)
    all_of_it = net.client(1, "all")
    all_of_it.subscribe("t/#", max_qos=ONCE)
    clients = group(net, [0, 2, 2])
    others = group(net, [1], "$share/other/t/#")
    publisher = net.client(1, "p")
    for number in range(30):
        publisher.publish("t/x", b"%d" % number, qos=ONCE)
        net.run(5_000)
    publisher.publish("u", b"for nobody", qos=ONCE)
    net.run(3_000_000)
    numbers = [b"%d" % number for number in range(30)]
    came = taken(clients)
    assert sorted(payload for each in came for payload in each) == sorted(numbers)
    assert all(len(each) >= 5 for each in came)
    assert taken(others) == [numbers]
    assert sorted(payload for _, payload in all_of_it.got()) == sorted(numbers)


def test_a_member_near_the_publisher_is_preferred_until_it_has_enough(tmp_path: Path) -> None:
    net = memory(tmp_path, NAMES, CHAIN)
    near, far = group(net, [0, 2], receive_max=3)
    near.acknowledges = False
    publisher = net.client(0, "p")
    for number in range(6):
        publisher.publish("t/x", b"%d" % number, qos=ONCE)
        net.run(200_000)
    assert [len(each) for each in taken([near, far])] == [3, 3]


def test_where_narrows_a_group_and_is_part_of_its_name(tmp_path: Path) -> None:
    net = memory(tmp_path, NAMES, CHAIN)
    dear, again, cheap = net.client(0, "d1"), net.client(2, "d2"), net.client(2, "c")
    for client in (dear, again):
        client.subscribe("$share/g/t", "price > 10")
    cheap.subscribe("$share/g/t", "price < 5")
    publisher = net.client(1, "p")
    for price in (1, 7, 20, 30):
        publisher.publish("t", b'{"price": %d}' % price)
        net.run(50_000)
    assert taken([cheap]) == [[b'{"price": 1}']]
    one, two = taken([dear, again])
    assert sorted(one + two) == [b'{"price": 20}', b'{"price": 30}']


def test_what_a_leaving_member_has_not_acknowledged_goes_to_another(tmp_path: Path) -> None:
    """MQTT-4.8.2-5 for quality 2: what was begun is not given to another."""
    net = memory(tmp_path, NAMES, CHAIN)
    first = net.client(0, "m0", receive_max=2, acknowledges=False, **LASTING)
    first.subscribe("$share/g/t/#", max_qos=EXACTLY)
    publisher = net.client(0, "p")
    for number, qos in enumerate((ONCE, EXACTLY, ONCE, EXACTLY)):
        publisher.publish("t/x", b"%d" % number, qos=qos)
    net.run(50_000)
    assert taken([first]) == [[b"0", b"1"]]
    (second,) = group(net, [2])
    first.drop()
    net.run(500_000)
    assert sorted(taken([second])[0]) == [b"2", b"3"]  # what waited, as another is ready
    back = net.client(0, "m0", acknowledges=False, **LASTING)
    assert [p.duplicate for p in back.packets if isinstance(p, mqtt5.PublishPacket)] == [True] * 2
    back.send(mqtt5.DisconnectPacket(session_expiry_interval=0))
    net.run(500_000)
    assert taken([second]) == [[b"0"]]
    publisher.publish("t/x", b"4", qos=ONCE)
    net.run(100_000)
    assert taken([second]) == [[b"4"]]


def test_what_a_member_refuses_goes_to_nobody_else(tmp_path: Path) -> None:
    """MQTT-4.8.2-6: a PUBACK or PUBREC of 0x80 or more ends it."""
    net = memory(tmp_path, NAMES, CHAIN)
    first = net.client(0, "m0", acknowledges=False, **LASTING)
    first.subscribe("$share/g/t/#", max_qos=EXACTLY)
    publisher = net.client(0, "p")
    for qos in (ONCE, EXACTLY):
        publisher.publish("t/x", b"x", qos=qos)
    net.run(50_000)
    one, two = (p for p in first.packets if isinstance(p, mqtt5.PublishPacket))
    (second,) = group(net, [2])
    refused = mqtt5.PubAckReasonCode.UNSPECIFIED_ERROR
    first.send(mqtt5.PubAckPacket(one.packet_id, reason_code=refused))
    refusal = mqtt5.PubRecReasonCode.UNSPECIFIED_ERROR
    first.send(mqtt5.PubRecPacket(two.packet_id, reason_code=refusal))
    first.send(mqtt5.DisconnectPacket(session_expiry_interval=0))
    net.run(500_000)
    assert taken([second]) == [[]]


def test_unsubscribing_leaves_the_group_and_the_last_one_ends_it(tmp_path: Path) -> None:
    net = memory(tmp_path, NAMES, CHAIN)
    first, second = group(net, [0, 2])
    publisher = net.client(1, "p")
    first.send(mqtt5.UnsubscribePacket(50, ["$share/g/t/#"]))
    net.run(100_000)
    for number in range(4):
        publisher.publish("t/x", b"%d" % number, qos=ONCE)
    net.run(100_000)
    assert taken([first, second]) == [[], [b"0", b"1", b"2", b"3"]]
    second.drop()
    net.run(100_000)
    assert not any(broker.shares.groups for broker in net.brokers)


def test_a_broker_that_cannot_be_reached_is_passed_over(tmp_path: Path) -> None:
    net = memory(tmp_path, NAMES, CHAIN)
    near, far = group(net, [0, 2])
    net.cut(1, 2)
    net.run(100_000)
    publisher = net.client(1, "p")
    for number in range(4):
        publisher.publish("t/x", b"%d" % number, qos=ONCE)
    net.run(100_000)
    assert taken([near]) == [[b"0", b"1", b"2", b"3"]]
    near.drop()
    publisher.publish("t/x", b"4", qos=ONCE)
    net.mend(1, 2)
    net.run(3_000_000)
    assert taken([far]) == [[b"4"]]


def test_wrong_shared_subscriptions_are_refused(tmp_path: Path) -> None:
    """MQTT-4.8.2-1, -2, MQTT-3.8.3-4, MQTT-4.8.2-3."""
    net = memory(tmp_path, ["A"], [])
    client = net.client(0, "c")
    assert client.last(mqtt5.ConnAckPacket).shared_subscription_available
    for pattern in ("$share/g", "$share//t", "$share/g+/t", "$share/g/", "$share/g/t#"):
        raw = len(pattern).to_bytes(2, "big") + pattern.encode() + b"\x01"
        body = b"\x00\x09\x00" + raw
        client.raw(bytes((0x82, len(body))) + body)
        net.run(10_000)
        if client.connection.closing:  # mqtt5 itself knows better
            assert client.last(mqtt5.DisconnectPacket).reason_code == 0x8F
            client = net.client(0, "c")
            continue
        assert client.last(mqtt5.SubAckPacket, take=True).reason_codes[0] == 0x8F
    client.subscribe("$share/g/t", max_qos=ONCE)
    net.client(0, "p").publish("t", b"x", qos=EXACTLY)
    net.run(20_000)
    assert client.last(mqtt5.PublishPacket).qos == ONCE
    no_local = mqtt5.TopicFilter("$share/g/t", no_local=True)
    client.send(mqtt5.SubscribePacket(60, [no_local]))
    net.run(10_000)
    assert client.last(mqtt5.DisconnectPacket).reason_code == 0x82


def test_retained_publications_are_not_for_groups_but_live_ones_are(tmp_path: Path) -> None:
    net = memory(tmp_path, NAMES, CHAIN)
    net.client(0, "p").publish("t/x", b"kept", retain=True)
    net.run(50_000)
    clients = group(net, [0, 2])
    net.run(50_000)
    assert taken(clients) == [[], []]


# Through crashes.


@pytest.mark.parametrize("links", [CHAIN, RING], ids=["tree", "ring"])
def test_each_has_one_member_through_crashes_and_cuts(tmp_path: Path, links: Any) -> None:
    """With stores: a member's broker that falls goes on with what it had been handed."""
    for seed in range(6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        check(folder, links, seed)


def check(folder: Path, links: list[tuple[str, str]], seed: int) -> None:
    draw = random.Random(seed)
    net = memory(folder, NAMES, links, seed=seed, top='store = "s"')
    places = [draw.randrange(3) for _ in range(3)]
    people: dict[str, tuple[int, Fake]] = {}
    got: dict[str, set[bytes]] = {f"m{number}": set() for number in range(3)}

    def connect(name: str, place: int) -> Fake:
        client = net.client(place, name, receive_max=draw.choice([1, 4, 100]), **LASTING)
        people[name] = (place, client)
        return client

    def read() -> None:
        for name in got:
            place, client = people[name]
            got[name].update(payload for _, payload in client.got())
            if client.broker is not net.brokers[place] or client.connection.closing:
                connect(name, place)

    for name, place in zip(got, places, strict=True):
        connect(name, place).subscribe("$share/g/#", max_qos=ONCE)
    owed: dict[int, bytes] = {}
    number = 0

    def send(again: bool) -> None:
        client = people["p"][1]
        for packet in client.packets:
            if isinstance(packet, mqtt5.PubAckPacket):
                owed.pop(packet.packet_id, None)
        client.packets.clear()
        if client.broker is not net.brokers[people["p"][0]]:
            client = connect("p", people["p"][0])
            again = True
        for packet_id, payload in owed.items() if again else ():
            client.send(
                mqtt5.PublishPacket("t", payload, qos=ONCE, packet_id=packet_id, duplicate=True)
            )

    connect("p", draw.randrange(3))
    cut: set[tuple[int, int]] = set()
    for _ in range(30):
        what = draw.random()
        if what < 0.5 and len(owed) < 20:
            send(False)
            for _ in range(draw.randint(1, 5)):
                number += 1
                owed[number] = b"%d" % number
                packet = mqtt5.PublishPacket("t", owed[number], qos=ONCE, packet_id=number)
                people["p"][1].send(packet)
        elif what < 0.7:
            net.restart(draw.randrange(3))
        elif what < 0.8:
            chosen = draw.choice([(NAMES.index(a), NAMES.index(b)) for a, b in links])
            net.cut(*chosen)
            cut.add(chosen)
        elif what < 0.9:
            people[draw.choice(sorted(got))][1].drop()
        else:
            for pair in cut:
                net.mend(*pair)
            cut.clear()
        net.run(draw.choice([1, 5, 50, 500]) * 1000)
        read()
        send(False)
    for pair in cut:
        net.mend(*pair)
    for _ in range(40):
        read()
        send(False)
        net.run(300_000)
    read()
    assert not owed, seed
    counts = Counter(payload for payloads in got.values() for payload in payloads)
    assert set(counts) == {b"%d" % n for n in range(1, number + 1)}, seed
    assert set(counts.values()) == {1}, seed
    for store in net.stores:
        assert store is not None
        rows = store.load()
        assert not rows["parcel"]
        assert not rows["outbox"]
        store.close()
