"""Whole brokers in memory: what a client may count on."""

from __future__ import annotations

from pathlib import Path

import mqtt5
import numpy as np
import pytest

from live_harness import Fake, Memory, memory
from postroad.filters import parse
from postroad.live.edge import mqtt
from postroad.live.network import load
from postroad.overlay.latencies import as_overlay
from postroad.planning import kyra as planning
from postroad.routing import SCHEMES
from postroad.routing.base import Measure, Measured, Ping, Pinged, Start

CHAIN = (["A", "B", "C"], [("A", "B"), ("B", "C")])
ONCE = mqtt5.QoS.AT_LEAST_ONCE


@pytest.fixture
def chain(tmp_path: Path) -> Memory:
    return memory(tmp_path, *CHAIN)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_filtered_publications_cross_the_network_under_every_scheme(
    tmp_path: Path, scheme: str
) -> None:
    chain = memory(tmp_path, *CHAIN, scheme=scheme)
    dear, all_quotes = chain.client(2, "dear"), chain.client(1, "all")
    assert dear.subscribe("quotes/+", "price > 10").reason_codes[0] == 0
    assert all_quotes.subscribe("quotes/#").reason_codes[0] == 0
    publisher = chain.client(0, "p")
    # At once, without waiting for the network to hear of a new publisher.
    for price in (5, 15):
        publisher.publish("quotes/ibm", b'{"price": %d}' % price)
    publisher.publish("news", b'{"price": 99}')
    chain.run(3_000_000)
    assert dear.got() == [("quotes/ibm", b'{"price": 15}')]
    assert sorted(all_quotes.got()) == [
        ("quotes/ibm", b'{"price": 15}'),
        ("quotes/ibm", b'{"price": 5}'),
    ]
    assert not any(broker.notes for broker in chain.brokers)


def test_kyra_runs_on_a_plan(tmp_path: Path) -> None:
    names = ["A", "B", "C"]
    direct_us = np.full((3, 3), 1000) * (1 - np.eye(3, dtype=np.int64))
    divide = planning.divider([parse("price < 5"), parse("price > 10"), parse("price > 20")])
    layout = planning.layout(direct_us, [[0, 1, 2]], divide)
    assert all(zone is not None for zone in layout.zones)
    planning.save(as_overlay(names, direct_us), layout, tmp_path / "plan.json", {})
    made = memory(tmp_path, names, [], scheme="kyra", top='plan = "plan.json"')
    dear, all_quotes = made.client(2, "dear"), made.client(1, "all")
    dear.subscribe("quotes/+", "price > 10")
    all_quotes.subscribe("quotes/#")
    publisher = made.client(0, "p")
    for price in (1, 15, 99):
        publisher.publish("quotes/ibm", b'{"price": %d}' % price)
    publisher.publish("quotes/none")
    made.run(3_000_000)
    assert sorted(payload for _, payload in dear.got()) == [b'{"price": 15}', b'{"price": 99}']
    assert len(all_quotes.got()) == 4
    assert not any(broker.notes for broker in made.brokers)
    # Brokers with another plan are not of this network, even if their links are the same.
    alone = planning.layout(direct_us, [[0], [1], [2]], divide)
    planning.save(as_overlay(names, direct_us), alone, tmp_path / "plan.json", {})
    assert load(made.network.path).identity != made.network.identity


def test_publications_cross_only_links_that_lead_to_a_subscriber(chain: Memory) -> None:
    middle = chain.client(1, "m")
    middle.subscribe("a")
    publisher = chain.client(0, "p")
    for topic in ("a", "b"):
        publisher.publish(topic)
    chain.run(50_000)
    assert chain.brokers[0].peers[1].sent["publication"] == 1
    assert "publication" not in chain.brokers[1].peers[2].sent


def test_overlapping_subscriptions_get_one_copy_with_all_identifiers(chain: Memory) -> None:
    client = chain.client(0, "c")
    client.subscribe("a/#", identifier=1)
    client.subscribe("a/+", identifier=2, max_qos=ONCE)
    chain.client(2, "p").publish("a/b", b"x", qos=ONCE)
    chain.run(100_000)
    (packet,) = [p for p in client.packets if isinstance(p, mqtt5.PublishPacket)]
    assert sorted(packet.subscription_ids) == [1, 2]
    assert packet.qos == 1


def test_no_local_keeps_ones_own_publications_away(chain: Memory) -> None:
    client = chain.client(0, "c")
    client.subscribe("a", no_local=True)
    client.publish("a", b"own")
    chain.client(1, "d").publish("a", b"other")
    chain.run(100_000)
    assert client.got() == [("a", b"other")]


def test_retained_publications_wait_at_every_broker(chain: Memory) -> None:
    publisher = chain.client(0, "p")
    publisher.publish("t/1", b'{"x": 1}', retain=True)
    publisher.publish("t/2", b'{"x": 2}', retain=True)
    publisher.publish("t/3", b'{"x": 3}', retain=True)
    publisher.publish("t/3", b"", retain=True)
    chain.run(100_000)
    late = chain.client(2, "late")
    late.subscribe("t/+", "x >= 2 OR x IS NULL")
    chain.run(20_000)
    (packet,) = [p for p in late.packets if isinstance(p, mqtt5.PublishPacket)]
    assert (packet.topic, packet.retain) == ("t/2", True)


def test_expired_publications_are_not_delivered(chain: Memory) -> None:
    options = {"session_expiry_interval": 60, "clean_start": False}
    away = chain.client(2, "away", **options)
    away.subscribe("t", max_qos=ONCE)
    away.drop()
    publisher = chain.client(0, "p")
    for seconds in (2, 30):
        payload, expiry = b"%d" % seconds, seconds
        publisher.publish("t", payload, qos=ONCE, message_expiry_interval=expiry)
        publisher.publish(f"kept/{seconds}", payload, retain=True, message_expiry_interval=expiry)
    chain.run(3_000_000)
    back, late = chain.client(2, "away", **options), chain.client(1, "late")
    late.subscribe("kept/+")
    chain.run(10_000)
    for client in (back, late):
        (packet,) = [p for p in client.packets if isinstance(p, mqtt5.PublishPacket)]
        assert packet.payload == b"30"
        assert packet.message_expiry_interval == 27  # what the wait has left of it


def test_time_on_a_link_that_was_away_counts_towards_expiry(chain: Memory) -> None:
    plain, both = chain.client(2, "plain"), chain.client(2, "both")
    plain.subscribe("t")
    both.subscribe("t", max_qos=ONCE)
    both.subscribe("#", identifier=1)
    chain.cut(1, 2)
    for seconds in (3, 30):
        chain.client(0, f"p{seconds}").publish(
            "t", b"x", qos=ONCE, message_expiry_interval=seconds, user_properties=[("k", "v")]
        )
    chain.run(5_000_000)
    chain.mend(1, 2)
    chain.settle()
    chain.run(100_000)
    for client in (plain, both):
        (packet,) = [p for p in client.packets if isinstance(p, mqtt5.PublishPacket)]
        assert 20 < packet.message_expiry_interval <= 25
        assert packet.user_properties == [("k", "v")]


def test_retained_publications_are_reconciled_when_a_link_starts_afresh(chain: Memory) -> None:
    chain.client(0, "p").publish("t", b"old", retain=True)
    chain.run(50_000)
    chain.cut(1, 2)
    chain.run(61_000_000)  # longer than a link is waited for
    chain.client(2, "p").publish("t", b"new", retain=True)
    chain.client(0, "q").publish("u", b"u", retain=True)
    chain.mend(1, 2)
    chain.settle()
    for broker in (0, 2):
        late = chain.client(broker, f"late{broker}")
        late.subscribe("#")
        chain.run(20_000)
        assert sorted(late.got()) == [("t", b"new"), ("u", b"u")]


def test_will_is_published_for_a_client_that_vanishes_only(chain: Memory) -> None:
    watcher = chain.client(2, "w")
    watcher.subscribe("gone/+")
    for name in ("a", "b"):
        will = mqtt5.Will(f"gone/{name}", payload=b"x")
        client = chain.client(0, name, will=will)
        if name == "a":
            client.drop()
        else:
            client.send(mqtt5.DisconnectPacket())
    delayed = mqtt5.Will("gone/late", payload=b"x", will_delay_interval=2)
    slow = chain.client(0, "late", will=delayed, session_expiry_interval=60)
    slow.drop()
    chain.run(500_000)
    assert watcher.got() == [("gone/a", b"x")]
    chain.run(3_000_000)
    assert watcher.got() == [("gone/late", b"x")]


def test_session_keeps_quality_1_until_it_expires(chain: Memory) -> None:
    options = {"session_expiry_interval": 10, "clean_start": False}
    client = chain.client(2, "s", **options)
    client.subscribe("t", max_qos=ONCE)
    client.acknowledges = False
    publisher = chain.client(0, "p")
    publisher.publish("t", b"1", qos=ONCE)
    chain.run(50_000)
    assert client.got() == [("t", b"1")]
    client.drop()
    publisher.publish("t", b"2", qos=ONCE)
    publisher.publish("t", b"lost", qos=mqtt5.QoS.AT_MOST_ONCE)
    chain.run(50_000)
    back = chain.client(2, "s", **options)
    assert back.last(mqtt5.ConnAckPacket).session_present
    duplicates = [p.duplicate for p in back.packets if isinstance(p, mqtt5.PublishPacket)]
    assert duplicates == [True, False]
    assert back.got() == [("t", b"1"), ("t", b"2")]
    back.drop()
    chain.run(12_000_000)
    assert chain.brokers[2].router.table_entries() == 0
    again = chain.client(2, "s", **options)
    assert not again.last(mqtt5.ConnAckPacket).session_present


def test_slow_subscriber_is_limited_by_its_own_queue(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [], top="[limits]\nsession_queue = 5\n")
    slow, other = net.client(0, "slow", receive_max=2), net.client(0, "other")
    slow.subscribe("t", max_qos=ONCE)
    other.subscribe("t")
    slow.acknowledges = False
    publisher = net.client(0, "p")
    for number in range(20):
        publisher.publish("t", b"%d" % number, qos=ONCE)
    net.run(1_020_000)  # the publisher waits a second for a subscriber that may still read
    assert len(other.got()) == 20
    assert [payload for _, payload in slow.got()] == [b"0", b"1"]
    session = net.brokers[0].clients.sessions["slow"]
    assert (len(session.waiting), session.dropped) == (5, 13)


def test_keep_alive_closes_a_silent_client(chain: Memory) -> None:
    client = chain.client(0, "c", keep_alive=2)
    chain.run(2_900_000)
    assert not client.connection.closing
    chain.run(300_000)
    assert client.connection.closing
    assert client.last(mqtt5.DisconnectPacket).reason_code == 0x8D


def test_second_connection_takes_the_session_over(chain: Memory) -> None:
    first = chain.client(0, "c")
    chain.client(0, "c")
    assert first.last(mqtt5.DisconnectPacket).reason_code == 0x8E


def test_wrong_filter_is_refused_with_where_and_why(chain: Memory) -> None:
    client = chain.client(0, "c")
    answer = client.subscribe("t", "price >")
    assert answer.reason_codes[0] == 0x83
    assert "$where" in answer.reason_str
    assert "price >" in answer.reason_str or "end" in answer.reason_str
    client.raw(b"\x82\x09\x00\x09\x00\x00\x03#/a\x00")
    chain.run(10_000)
    assert client.last(mqtt5.SubAckPacket, take=True).reason_codes[0] == 0x8F
    assert not client.connection.closing


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x30\x06\x00\x03a/+\x00", 0x90),
        (mqtt5.PublishPacket("", b"", topic_alias=1).write(), 0x82),
        (mqtt5.PublishPacket("t", b"", subscription_ids=[1]).write(), 0x82),
        (mqtt5.ConnectPacket("again").write(), 0x82),
        (b"\x82\x03\x00\x01\x00", 0x82),
        (mqtt5.PingRespPacket().write(), 0x82),
    ],
)
def test_what_the_standard_forbids_ends_the_connection(
    chain: Memory, data: bytes, code: int
) -> None:
    client = chain.client(0, "c")
    client.raw(data)
    chain.run(10_000)
    assert client.last(mqtt5.DisconnectPacket).reason_code == code
    assert client.connection.closing


def test_topics_with_a_dollar_are_the_brokers(chain: Memory) -> None:
    client = chain.client(0, "c")
    client.subscribe("#", max_qos=mqtt5.QoS.EXACTLY_ONCE)
    client.publish("$own", b"x", qos=ONCE)
    client.publish("$own", b"x", qos=mqtt5.QoS.EXACTLY_ONCE)
    chain.run(10_000)
    assert client.last(mqtt5.PubAckPacket).reason_code == 0x90
    assert client.last(mqtt5.PubRecPacket).reason_code == 0x90
    assert client.got() == []


def test_level_3_1_1_clients_and_unknown_levels(chain: Memory) -> None:
    old = chain.client(0, "old", level=mqtt.V3)
    assert old.bytes == [b"\x20\x02\x00\x00"]
    old.raw(b"\x82\x08\x00\x01\x00\x03t/+\x01")
    chain.run(50_000)
    chain.client(2, "p").publish("t/x", b"new", qos=ONCE)
    chain.run(50_000)
    assert old.bytes[1:] == [b"\x90\x03\x00\x01\x01", b"\x32\x0a\x00\x03t/x\x00\x01new"]
    ancient = Fake(chain, 0, mqtt.V3)
    ancient.raw(b"\x10\x0e\x00\x06MQIsdp\x03\x02\x00\x00\x00\x00")
    ancient.collect()
    assert ancient.bytes == [b"\x20\x02\x00\x01"]
    assert ancient.connection.closing
    old.raw(b"\x82\x08\x00\x03\x00\x03#/t\x01")
    assert old.connection.closing


def test_publisher_of_many_topics_is_taken_to_publish_anything(tmp_path: Path) -> None:
    chain = memory(tmp_path, *CHAIN, scheme="advertisement_forwarding")
    client = chain.client(2, "c")
    client.subscribe("t/#")
    publisher = chain.client(0, "p")
    for number in range(80):
        publisher.publish(f"t/{number}", b"x")
    chain.run(20_000_000)
    assert len(client.got()) == 80
    assert list(chain.brokers[0].clients.sessions["p"].advertised) == ["*"]
    publisher.send(mqtt5.DisconnectPacket())
    client.send(mqtt5.DisconnectPacket())
    chain.run(200_000)
    assert [broker.router.table_entries() for broker in chain.brokers] == [0, 0, 0]


def test_client_may_declare_what_it_will_publish(tmp_path: Path) -> None:
    chain = memory(tmp_path, *CHAIN, scheme="advertisement_forwarding")
    chain.client(0, "p", user_properties=[("$advertise", "class LIKE 't/%'")])
    chain.run(100_000)
    assert len(chain.brokers[2].router.advertisements) == 1  # type: ignore[attr-defined]
    wrong = chain.client(0, "q", user_properties=[("$advertise", "class LIKE")])
    assert wrong.last(mqtt5.ConnAckPacket).reason_code == 0x83


def test_a_client_may_not_declare_a_filter_that_takes_long_to_compare(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [], scheme="advertisement_forwarding")
    for count, code in ((15, 0), (40, 0x83)):
        declared = " OR ".join(f"(class = 't{n}' AND x > {n})" for n in range(count))
        client = net.client(0, f"c{count}", user_properties=[("$advertise", declared)])
        assert client.last(mqtt5.ConnAckPacket).reason_code == code


def test_cuts_under_load_lose_nothing_and_duplicate_nothing(tmp_path: Path) -> None:
    for seed in range(5):
        chain = memory(tmp_path, *CHAIN, seed=seed)
        client = chain.client(2, "c")
        client.subscribe("t")
        publisher = chain.client(0, "p")
        sent = []
        for number in range(400):
            sent.append(("t", b"%d" % number))
            publisher.publish(*sent[-1])
            chain.step()
            if chain.draw.random() < 0.03:
                a = chain.draw.randint(0, 1)
                chain.cut(a, a + 1)
                chain.run(chain.draw.randint(1, 30) * 1000)
                chain.mend(a, a + 1)
        chain.settle()
        chain.run(500_000)
        assert client.got() == sent, f"seed {seed}"
        assert all(n.link.lives == 0 for b in chain.brokers for n in b.peers.values())


def test_subscriptions_made_while_a_link_is_cut_are_all_that_travels_then(chain: Memory) -> None:
    client = chain.client(2, "c")
    for number in range(50):
        client.subscribe(f"t/{number}")
    assert chain.brokers[1].peers[2].received["subscription"] == 50
    chain.cut(1, 2)
    client.subscribe("extra")  # answered although the link is down, after a while
    chain.mend(1, 2)
    chain.settle()
    assert chain.brokers[1].peers[2].received["subscription"] == 51
    chain.client(0, "p").publish("extra", b"x")
    chain.run(50_000)
    assert client.got() == [("extra", b"x")]


def test_publishers_are_held_back_while_a_link_is_full(
    chain: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from postroad.live.links import link as links

    monkeypatch.setattr(links, "QUEUE_MAX", 50)
    client = chain.client(2, "c")
    client.subscribe("t")
    publisher = chain.client(0, "p")
    chain.cut(0, 1)
    packet = mqtt5.PublishPacket("t", b"x").write()
    publisher.raw(packet * 500)
    chain.run(200_000)
    assert publisher.connection.paused
    assert len(chain.brokers[0].peers[1].link.queue) <= 51
    chain.mend(0, 1)
    chain.settle()
    chain.until(lambda: sum(isinstance(p, mqtt5.PublishPacket) for p in client.packets) == 500)
    chain.until(lambda: not publisher.connection.paused)


@pytest.mark.parametrize("follows", [False, True])
def test_only_a_client_that_can_follow_is_sent_elsewhere(tmp_path: Path, follows: bool) -> None:
    chain = memory(
        tmp_path, *CHAIN, scheme="advertisement_forwarding", top='relocation = "grape"',
        tables="[grape]\nthreshold = 10",
    )  # fmt: skip
    far = chain.client(2, "far")
    far.subscribe("+")
    properties = [("$follow", "1")] if follows else []
    publisher = chain.client(0, "p", user_properties=properties)
    sent = 0
    while sent < 60 and not publisher.last(mqtt5.DisconnectPacket):
        publisher.publish("t" if sent < 5 else f"u{sent % 3}", b"%d" % sent)
        sent += 1
        chain.run(10_000)
    chain.run(100_000)
    assert [payload for _, payload in far.got()] == [b"%d" % n for n in range(sent)]
    goodbye = publisher.last(mqtt5.DisconnectPacket)
    if not follows:
        assert goodbye is None
        return
    address = chain.network.addresses[2]
    assert goodbye.reason_code == 0x9C
    assert goodbye.server_reference == f"{address.host}:{address.mqtt}"
    publisher.publish("t", b"late")  # written before it had read the goodbye
    publisher.drop()
    there = chain.client(2, "p", user_properties=[*properties, *goodbye.user_properties])
    there.publish("t", b"there")
    there.publish("new", b"and more")
    chain.run(200_000)
    assert [payload for _, payload in far.got()] == [b"late", b"there", b"and more"]
    wrong = chain.client(2, "q", user_properties=goodbye.user_properties)
    assert wrong.connection.closing


def test_grape_is_told_what_heartbeats_and_pings_measured(tmp_path: Path) -> None:
    """What no ping measured is taken to be reached along the tree."""
    chain = memory(tmp_path, *CHAIN, scheme="advertisement_forwarding", top='relocation = "grape"')
    broker = chain.brokers[0]
    told: list[Measured | Pinged] = []
    asked = [Measure(), Ping("a", (0, 1, 2), ((1, 2, 700), (1, 0, 9)))]

    def ask() -> list[Measured | Pinged]:
        told.clear()
        step, broker.step = broker.step, lambda input, _: told.append(input)  # type: ignore[method-assign, assignment, return-value]
        broker.perform(Start(), list(asked), chain.now)
        chain.run(2_000, step_us=1_000)
        broker.step = step  # type: ignore[method-assign]
        return sorted((each for each in told if isinstance(each, Measured | Pinged)), key=str)

    assert ask() == [Measured(0, 0, ((1, 1000),)), Pinged("a", ((0, 0), (1, 1000), (2, 1700)))]
    chain.run(3_000_000)
    link_us = broker.peers[1].link.delay_us
    assert link_us is not None
    assert link_us not in (0, 1000)  # which the plan assumes
    chain.ways_us[0] = {0: 0, 2: 50}  # the third broker is nearer than the tree says
    assert ask() == [
        Measured(0, 0, ((1, link_us),)),
        Pinged("a", ((0, 0), (1, link_us), (2, 50))),
    ]


def test_letters_of_a_peer_that_cannot_be_read_are_dropped_or_refused(tmp_path: Path) -> None:
    import msgspec

    from postroad.live.links import link as links
    from postroad.live.links.messages import Codec, Retain
    from postroad.model import Publication
    from postroad.routing.base import PublicationMessage

    chain = memory(tmp_path, ["A", "B"], [("A", "B")])
    chain.cut(0, 1)
    broker, client = chain.brokers[0], chain.client(0, "c")
    client.subscribe("t")
    encode = Codec().encode
    hollow = PublicationMessage(Publication("p", "1", {"class": "t"}, b"\x30", 1), 1)
    for message, closes in ((hollow, False), (Retain("t", (1, 1), b"\x30\x02", {}), True)):
        wire = broker.wire_opened("peer", None, chain.now)
        hello = links.Hello(links.SPEAKS[1], chain.network.identity, 1, f"x{closes}", "", 0)
        data = links.Data(1, 0, 9000, [msgspec.Raw(encode(message))])
        broker.wire_received(wire, links.pack(hello) + links.pack(data), chain.now)
        assert wire.closing == closes
    assert broker.clients.tally.dropped == 1
    assert not client.connection.closing


def test_a_peer_of_another_network_is_refused(
    chain: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    from postroad.live.links import link as links

    broker = chain.brokers[0]
    wire = broker.wire_opened("stranger", None, chain.now)
    hello = links.Hello(links.SPEAKS[1], "other#1", 1, "x.0", "", 0)
    broker.wire_received(wire, links.pack(hello), chain.now)
    assert wire.closing
    assert b"belongs to" in wire.out[-1]
    (row,) = [vars(r) for r in caplog.records if r.getMessage() == "broker refused"]
    assert "belongs to 'other#1', not 'test#" in row["reason"]


@pytest.mark.parametrize("scheme", ["subscription_forwarding", "kyra", "unicast"])
def test_what_waits_for_a_link_goes_within_a_second_of_its_return(
    tmp_path: Path, scheme: str
) -> None:
    """However long it was away, and however often it was tried: a mesh has many links to find."""
    net = memory(tmp_path, ["A", "B", "C"], [("A", "B"), ("B", "C")], scheme=scheme)
    subscriber, publisher = net.client(1, "s"), net.client(0, "p")
    subscriber.subscribe("t", max_qos=mqtt5.QoS.AT_LEAST_ONCE)
    for away_us in (4_000_000, 9_000_000, 30_000_000):
        net.cut(0, 1)
        publisher.publish("t", b"late", qos=mqtt5.QoS.AT_LEAST_ONCE)
        net.run(away_us, 5_000)
        assert subscriber.got() == []
        net.mend(0, 1)
        net.until(lambda: subscriber.last(mqtt5.PublishPacket), 1_200_000)
        assert subscriber.got() == [("t", b"late")]
