"""What interoperability suites ask of a broker, on one broker and across three: every connection
goes to the next of them, so that a client that comes back finds its session elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from live_harness import Fake, Memory, memory

QUALITIES = [mqtt5.QoS(n) for n in range(3)]
MOST, ONCE, EXACTLY = QUALITIES
LASTING: dict[str, Any] = {"clean_start": False, "session_expiry_interval": 600}
TOPICS = ["TopicA", "TopicA/B", "Topic/C", "TopicA/C", "/TopicA"]


class Place:
    """A network, each connection at the next of its brokers."""

    def __init__(self, net: Memory, count: int) -> None:
        self.net, self.count, self.next = net, count, 0

    def client(self, name: str, **options: Any) -> Fake:
        client = self.net.client(self.next % self.count, name, **options)
        self.next += 1
        self.net.until(lambda: client.last(mqtt5.ConnAckPacket) or client.connection.closing)
        return client

    def wait(self, us: int = 200_000) -> None:
        self.net.run(us, 1_000 if us <= 1_000_000 else 20_000)


@pytest.fixture(params=[1, 3], ids=["one", "three"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    names = ["A", "B", "C"][: request.param]
    links = [("A", "B"), ("B", "C")][: request.param - 1]
    return Place(memory(tmp_path, names, links), request.param)


def published(client: Fake) -> list[Any]:
    return [packet for packet in client.packets if isinstance(packet, mqtt5.PublishPacket)]


def test_basic_and_retained_at_all_qualities(place: Place) -> None:
    publisher = place.client("p")
    for number, qos in enumerate(QUALITIES):
        publisher.publish(TOPICS[1 + number], b"qos %d" % number, qos=qos, retain=True)
    place.wait()
    client = place.client("c")
    client.subscribe("+/+", max_qos=EXACTLY)
    place.wait()
    kept = sorted((p.payload, int(p.qos), p.retain) for p in published(client))
    assert kept == [(b"qos 0", 0, True), (b"qos 1", 1, True), (b"qos 2", 2, True)]
    client.got()
    for number, qos in enumerate(QUALITIES):
        publisher.publish(TOPICS[1 + number], b"", qos=qos, retain=True)
    place.wait()
    assert len(client.got()) == 3  # what removes them is a publication too
    late = place.client("late")
    late.subscribe("#", max_qos=EXACTLY)
    place.wait()
    assert late.got() == []


def test_offline_messages_are_queued_and_redelivered(place: Place) -> None:
    client = place.client("c", **LASTING)
    client.subscribe("+/+", max_qos=EXACTLY)
    client.send(mqtt5.DisconnectPacket())
    publisher = place.client("p")
    for number, qos in enumerate(QUALITIES):
        publisher.publish(TOPICS[1 + number], b"%d" % number, qos=qos)
    place.wait()
    back = place.client("c", acknowledges=False, **LASTING)
    place.wait()
    assert back.last(mqtt5.ConnAckPacket).session_present
    assert sorted(p.payload for p in published(back)) == [b"1", b"2"]  # quality 0 is not kept
    sent = {p.payload: p.packet_id for p in published(back)}
    back.drop()
    again = place.client("c", **LASTING)
    place.wait()
    repeated = {p.payload: (p.packet_id, p.duplicate) for p in published(again)}
    assert repeated == {name: (packet_id, True) for name, packet_id in sent.items()}
    again.drop()
    last = place.client("c", **LASTING)
    place.wait()
    assert published(last) == []


def test_overlapping_subscriptions_and_identifiers(place: Place) -> None:
    client, publisher = place.client("c"), place.client("p")
    client.subscribe("TopicA/#", max_qos=EXACTLY, identifier=1)
    client.subscribe("TopicA/+", max_qos=ONCE, identifier=2)
    publisher.publish(TOPICS[3], b"overlapping", qos=EXACTLY)
    place.wait()
    (packet,) = published(client)
    assert (int(packet.qos), sorted(packet.subscription_ids)) == (2, [1, 2])


def test_will_keep_alive_and_will_delay(place: Place) -> None:
    watcher = place.client("w")
    watcher.subscribe("will/#", max_qos=EXACTLY)
    will = mqtt5.Will("will/silent", payload=b"gone", qos=EXACTLY)
    place.client("silent", keep_alive=2, will=will)
    place.wait(2_800_000)
    assert watcher.got() == []
    place.wait(600_000)
    assert watcher.got() == [("will/silent", b"gone")]
    late = mqtt5.Will("will/late", payload=b"gone", will_delay_interval=3)
    for returns in (True, False):
        place.client("late", will=late, **LASTING).drop()
        if returns:
            place.client("late", will=late, **LASTING).drop()
        place.wait(2_500_000)
        assert watcher.got() == []
        place.wait(1_000_000)
        assert watcher.got() == [("will/late", b"gone")]
    asks = place.client("asks", will=mqtt5.Will("will/asks", payload=b"gone"))
    code = mqtt5.DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE
    asks.send(mqtt5.DisconnectPacket(reason_code=code))
    place.wait()
    assert watcher.got() == [("will/asks", b"gone")]


def test_unsubscribe_subscribe_failure_and_dollar_topics(place: Place) -> None:
    client, publisher = place.client("c"), place.client("p")
    for topic in TOPICS[:3]:
        client.subscribe(topic, max_qos=EXACTLY)
    client.send(mqtt5.UnsubscribePacket(7, [TOPICS[0]]))
    place.wait()
    for topic in TOPICS[:3]:
        publisher.publish(topic, b"x", qos=ONCE)
    place.wait()
    assert sorted(topic for topic, _ in client.got()) == sorted(TOPICS[1:3])
    client.raw(b"\x82\x0b\x00\x09\x00\x00\x05a/#/b\x00")  # # is not the last level
    place.wait()
    assert int(client.last(mqtt5.SubAckPacket).reason_codes[0]) == 0x8F
    everything = place.client("e")
    everything.subscribe("#", max_qos=EXACTLY)
    publisher.publish("$TopicA", b"x", qos=ONCE)
    publisher.publish("/TopicA", b"y", qos=ONCE)
    place.wait()
    assert everything.got() == [("/TopicA", b"y")]


def test_session_expiry_by_connect_and_disconnect(place: Place) -> None:
    def present(expiry_s: int, wait_us: int, at_the_end: int | None = None) -> bool:
        first = place.client("c", clean_start=True, session_expiry_interval=expiry_s)
        first.send(mqtt5.DisconnectPacket(session_expiry_interval=at_the_end))
        place.wait(wait_us)
        back = place.client("c", clean_start=False, session_expiry_interval=0)
        found: bool = back.last(mqtt5.ConnAckPacket).session_present
        back.send(mqtt5.DisconnectPacket())
        place.wait()
        return found

    assert not present(0, 100_000)
    assert present(5, 1_500_000)
    assert not present(1, 2_500_000)
    assert not present(5, 1_500_000, at_the_end=1)
    assert present(1, 2_500_000, at_the_end=5)


def test_publications_expire_while_they_wait(place: Place) -> None:
    place.client("c", **LASTING).subscribe("t", max_qos=EXACTLY)
    place.client("c", **LASTING).send(mqtt5.DisconnectPacket())
    publisher = place.client("p")
    for qos, expiry_s in ((ONCE, 1), (EXACTLY, 6), (EXACTLY, None)):
        publisher.publish("t", b"x", qos=qos, message_expiry_interval=expiry_s)
    place.wait(3_000_000)
    back = place.client("c", **LASTING)
    place.wait()
    left = [packet.message_expiry_interval for packet in published(back)]
    assert len(left) == 2
    assert left[0] in (2, 3)
    assert left[1] is None


def test_request_and_response_with_all_properties(place: Place) -> None:
    asking = place.client("asks", request_response_info=True)
    answers = place.client("answers")
    topic = asking.last(mqtt5.ConnAckPacket).response_info
    asking.subscribe(topic, max_qos=EXACTLY)
    answers.subscribe("request", max_qos=EXACTLY)
    words = [("c", "2"), ("c", "1")]
    asking.publish(
        "request", b"?", qos=ONCE, response_topic=topic, correlation_data=b"334",
        payload_format_indicator=1, content_type="text", user_properties=words,
    )  # fmt: skip
    place.wait()
    (request,) = published(answers)
    assert (request.user_properties, request.content_type) == (words, "text")
    answers.publish(request.response_topic, b"!", correlation_data=request.correlation_data)
    place.wait()
    (response,) = published(asking)
    assert (response.payload, response.correlation_data) == (b"!", b"334")


def test_flow_control_both_ways_and_packet_sizes(place: Place) -> None:
    client = place.client("c", receive_max=3, max_packet_size=64, acknowledges=False)
    client.subscribe("t", max_qos=EXACTLY)
    publisher = place.client("p")
    publisher.publish("t", b"x" * 100, qos=ONCE)  # too large: as if it had been sent
    for number in range(8):
        publisher.publish("t", b"%d" % number, qos=ONCE)
    place.wait()
    taken = []
    while waiting := published(client):
        assert len(waiting) <= 3
        taken += [payload for _, payload in client.got()]
        for packet in waiting:
            client.send(mqtt5.PubAckPacket(packet.packet_id))
        place.wait()
    assert taken == [b"%d" % number for number in range(8)]
    most = publisher.last(mqtt5.ConnAckPacket).receive_max
    for number in range(most + 1):
        publisher.send(mqtt5.PublishPacket("u", b"", qos=EXACTLY, packet_id=1 + number))
    place.wait()
    assert int(publisher.last(mqtt5.DisconnectPacket).reason_code) == 0x93


def test_aliases_and_assigned_names(place: Place) -> None:
    client, publisher = place.client("", topic_alias_max=2), place.client("p")
    assigned = client.last(mqtt5.ConnAckPacket).assigned_client_id
    assert assigned
    assert place.client("").last(mqtt5.ConnAckPacket).assigned_client_id != assigned
    client.subscribe("#")
    place.wait()
    publisher.publish("a", b"1", topic_alias=1)
    publisher.publish("", b"2", topic_alias=1)
    publisher.publish("b", b"3", topic_alias=1)
    publisher.publish("", b"4", topic_alias=1)
    place.wait()
    came = [(p.topic, p.topic_alias, p.payload) for p in published(client)]
    assert came == [("a", 1, b"1"), ("", 1, b"2"), ("b", 2, b"3"), ("", 2, b"4")]


def test_subscription_options_and_shared_subscriptions(place: Place) -> None:
    own = place.client("own")
    own.subscribe("o/1", max_qos=EXACTLY, no_local=True)
    own.subscribe("o/2", max_qos=EXACTLY, no_local=False, retain_as_published=True)
    for topic in ("o/1", "o/2"):
        own.publish(topic, b"mine", retain=True)
    place.wait()
    assert [(p.topic, p.retain) for p in published(own)] == [("o/2", True)]
    members = [place.client(f"m{number}") for number in range(2)]
    alone = place.client("alone")
    for member in members:
        member.subscribe("$share/group/s/#", max_qos=EXACTLY)
    alone.subscribe("s/#", max_qos=EXACTLY)
    for number in range(6):
        own.publish("s/x", b"%d" % number, qos=ONCE)
    place.wait()
    shared = sorted(payload for member in members for _, payload in member.got())
    assert shared == sorted(payload for _, payload in alone.got())
    assert len(shared) == 6


def _connect(flags: int, rest: bytes, name: bytes = b"MQTT", level: int = 5) -> bytes:
    body = len(name).to_bytes(2, "big") + name + bytes((level, flags, 0, 0)) + rest
    return bytes((0x10, len(body))) + body


HELLO = mqtt5.ConnectPacket("x", clean_start=True).write()
WRONG: dict[str, tuple[bool, bytes]] = {  # whether after CONNECT, and the bytes
    "1.5.4-1: text that is not UTF-8": (True, b"\x30\x05\x00\x02\xc3\x28\x00"),
    "1.5.4-2: NUL in a topic": (True, b"\x30\x05\x00\x02a\x00\x00"),
    "2.1.3-1: flags of SUBSCRIBE": (True, b"\x80\x07\x00\x01\x00\x00\x01t\x00"),
    "2.2.1-3: SUBSCRIBE with packet identifier 0": (True, b"\x82\x07\x00\x00\x00\x00\x01t\x00"),
    "3.1.0-1: not CONNECT first": (False, b"\xc0\x00"),
    "3.1.0-2: CONNECT twice": (True, HELLO),
    "3.1.2-1: another protocol": (False, _connect(2, b"\x00\x00\x01x", b"MQTX")),
    "3.1.2-2: another level": (False, _connect(2, b"\x00\x00\x01x", level=9)),
    "3.1.2-3: the reserved flag": (False, _connect(3, b"\x00\x00\x01x")),
    "3.1.2-11: will quality without a will": (False, _connect(0x0A, b"\x00\x00\x01x")),
    "3.1.2-12: will quality 3": (False, _connect(0x1E, b"\x00\x00\x01x\x00\x00\x01t\x00\x00")),
    "3.1.2-13: will retain without a will": (False, _connect(0x22, b"\x00\x00\x01x")),
    "3.1.2-9: a will without its fields": (False, _connect(0x06, b"\x00\x00\x01x")),
    "3.1.2-16: a user name without its flag": (False, _connect(2, b"\x00\x00\x01x\x00\x01u")),
    "3.1.2-17: no user name though flagged": (False, _connect(0x82, b"\x00\x00\x01x")),
    "3.1.2-19: no password though flagged": (False, _connect(0xC2, b"\x00\x00\x01x\x00\x01u")),
    "3.1.3-3: no client identifier": (False, _connect(2, b"\x00")),
    "3.1.3-4: an identifier that is not UTF-8": (False, _connect(2, b"\x00\x00\x02\xc3\x28")),
    "3.1.3-11: a will's topic that is not UTF-8": (
        False,
        _connect(0x06, b"\x00\x00\x01x\x00\x00\x02\xc3\x28\x00\x00"),
    ),
    "3.1.3-12: a user name that is not UTF-8": (
        False,
        _connect(0x82, b"\x00\x00\x01x\x00\x02\xc3\x28"),
    ),
    "3.3.1-4: quality 3": (True, b"\x36\x06\x00\x01t\x00\x01\x00"),
    "3.3.1-2: DUP at quality 0": (True, b"\x38\x04\x00\x01t\x00"),
    "3.3.2-2: a wildcard in a topic": (True, b"\x30\x04\x00\x01+\x00"),
    "3.3.2-13: a response topic that is not UTF-8": (
        True,
        b"\x30\x09\x00\x01t\x05\x08\x00\x02\xc3\x28",
    ),
    "3.3.2-14: a wildcard in a response topic": (True, b"\x30\x08\x00\x01t\x04\x08\x00\x01#"),
    "3.3.4-6: a subscription identifier of a client": (True, b"\x30\x06\x00\x01t\x02\x0b\x01"),
    "3.6.1-1: flags of PUBREL": (True, b"\x60\x02\x00\x01"),
    "3.8.3-1: a filter that is not UTF-8": (True, b"\x82\x08\x00\x01\x00\x00\x02\xc3\x28\x00"),
    "3.8.3-2: SUBSCRIBE without a filter": (True, b"\x82\x03\x00\x01\x00"),
    "3.8.3-5: reserved bits of options": (True, b"\x82\x07\x00\x01\x00\x00\x01t\xc0"),
    "3.10.1-1: flags of UNSUBSCRIBE": (True, b"\xa0\x06\x00\x01\x00\x00\x01t"),
    "3.10.3-1: the same in UNSUBSCRIBE": (True, b"\xa2\x07\x00\x01\x00\x00\x02\xc3\x28"),
    "3.10.3-2: UNSUBSCRIBE without a filter": (True, b"\xa2\x03\x00\x01\x00"),
    "3.14.1-1: flags of DISCONNECT": (True, b"\xe1\x00"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_malformed_ends_the_connection(tmp_path: Path, what: str) -> None:
    after, data = WRONG[what]
    net = memory(tmp_path, ["A"], [])
    fake = Fake(net, 0, 5)
    net.fakes.append(fake)
    if after:
        fake.send(mqtt5.ConnectPacket("c", clean_start=True))
        net.run(5_000)
    fake.raw(data)
    net.run(5_000)
    assert fake.connection.closing, what
    kind: Callable[..., Any] = mqtt5.DisconnectPacket if after else mqtt5.ConnAckPacket
    answer = fake.packets[-1] if fake.packets else None
    if isinstance(answer, kind):  # type: ignore[arg-type]
        assert int(answer.reason_code) >= 0x80
    else:
        assert not after
