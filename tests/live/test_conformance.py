"""Normative statements of MQTT 5.0 (OASIS, 2019), each against whole brokers in memory.

docs/live.md lists every statement with its test here; each test names those that it shows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from live_harness import Fake, Memory, memory
from postroad.live.edge import mqtt
from postroad.live.store import ADDED

ONCE, EXACTLY = mqtt5.QoS.AT_LEAST_ONCE, mqtt5.QoS.EXACTLY_ONCE
LASTING: dict[str, Any] = {"clean_start": False, "session_expiry_interval": 600}
FILES = (
    "test_conformance.py", "test_homes.py", "test_interoperability.py", "test_shares.py",
    "test_websocket.py",
)  # fmt: skip
DOCS = Path(__file__).resolve().parents[2] / "docs" / "live.md"


@pytest.fixture
def pair(tmp_path: Path) -> Memory:
    return memory(tmp_path, ["A", "B"], [("A", "B")])


@pytest.fixture
def durable(tmp_path: Path) -> Memory:
    return memory(tmp_path, ["A", "B"], [("A", "B")], top='store = "s"')


def packets(client: Fake, kind: type) -> list[Any]:
    return [packet for packet in client.packets if isinstance(packet, kind)]


def publish(client: Fake, packet_id: int, payload: bytes = b"x", **more: Any) -> None:
    """One PUBLISH of quality 2 with this identifier."""
    client.send(mqtt5.PublishPacket("t", payload, qos=EXACTLY, packet_id=packet_id, **more))


def test_the_table_of_statements_names_tests_that_exist() -> None:
    named = re.findall(r"^\| \[MQTT-[^|]*\|[^|]*\| `(test_\w+)`", DOCS.read_text(), re.MULTILINE)
    assert len(named) > 10
    here = Path(__file__).parent
    texts = [(here / name).read_text() for name in FILES]
    assert not set(named) - set(re.findall(r"^def (test_\w+)", "\n".join(texts), re.MULTILINE))


STATEMENTS = {  # how many each section of MQTT 5.0 has (its appendix B; 2.2.1-1 does not exist)
    "1.5.4": 3, "1.5.5": 1, "1.5.7": 1, "2.1.3": 1, "2.2.1": 6, "2.2.2": 1, "3.1.0": 2, "3.1.2": 30,
    "3.1.3": 12, "3.1.4": 6, "3.2.0": 2, "3.2.2": 22, "3.3.1": 13, "3.3.2": 20, "3.3.4": 10,
    "3.4.2": 3, "3.5.2": 3, "3.6.1": 1, "3.6.2": 3, "3.7.2": 3, "3.8.1": 1, "3.8.3": 5, "3.8.4": 8,
    "3.9.2": 2, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2, "3.10.4": 6, "3.11.2": 2, "3.11.3": 2,
    "3.12.4": 1, "3.14.0": 1, "3.14.1": 1, "3.14.2": 4, "3.14.4": 3, "3.15.1": 1, "3.15.2": 3,
    "4.1.0": 2, "4.2.0": 1, "4.3.1": 1, "4.3.2": 5, "4.3.3": 13, "4.4.0": 2, "4.5.0": 2, "4.6.0": 6,
    "4.7.0": 1, "4.7.1": 2, "4.7.2": 1, "4.7.3": 4, "4.8.2": 6, "4.9.0": 3, "4.12.0": 7,
    "4.12.1": 2, "4.13.1": 1, "4.13.2": 1, "6.0.0": 4,
}  # fmt: skip


def test_every_statement_of_the_standard_is_accounted_for() -> None:
    named = set()
    for section, first, _, last in re.findall(
        r"\[MQTT-([\d.]+)-(\d+)\]( to \[MQTT-[\d.]+-(\d+)\])?", DOCS.read_text()
    ):
        named |= {(section, number) for number in range(int(first), int(last or first) + 1)}
    stated = {(key, n + 1) for key, count in STATEMENTS.items() for n in range(count)}
    assert named == stated - {("2.2.1", 1)}


# Quality 2.


def test_quality_2_is_taken_once_until_pubrel(pair: Memory) -> None:
    """MQTT-4.3.3-8, -10, -11, -12: PUBREC for each PUBLISH, one delivery; PUBCOMP for PUBREL."""
    subscriber = pair.client(1, "s")
    assert subscriber.subscribe("t", max_qos=EXACTLY).reason_codes[0] == 2
    publisher = pair.client(0, "p")
    assert publisher.last(mqtt5.ConnAckPacket).max_qos == EXACTLY
    for again in (False, True, True):
        publish(publisher, 7, b"one", duplicate=again)
    publish(publisher, 8, b"two")
    pair.run(50_000)
    assert [p.packet_id for p in packets(publisher, mqtt5.PubRecPacket)] == [7, 7, 7, 8]
    assert subscriber.got() == [("t", b"one"), ("t", b"two")]
    publisher.send(mqtt5.PubRelPacket(7))
    publish(publisher, 7, b"three")  # the identifier is free again
    pair.run(50_000)
    assert [p.packet_id for p in packets(publisher, mqtt5.PubCompPacket)] == [7]
    assert subscriber.got() == [("t", b"three")]


def test_identifiers_that_name_nothing_are_answered_with_0x92(pair: Memory) -> None:
    """MQTT-4.3.3-11 and 3.6.2.1: PUBREL and PUBREC end although nothing is known of them."""
    client = pair.client(0, "c")
    client.send(mqtt5.PubRelPacket(5))
    client.send(mqtt5.PubRecPacket(6))
    client.send(mqtt5.PubCompPacket(7))
    client.send(mqtt5.PubAckPacket(8))
    pair.run(20_000)
    (comp,), (rel,) = packets(client, mqtt5.PubCompPacket), packets(client, mqtt5.PubRelPacket)
    assert (comp.packet_id, comp.reason_code) == (5, 0x92)
    assert (rel.packet_id, rel.reason_code) == (6, 0x92)
    assert not client.connection.closing


def test_quality_2_is_sent_until_pubrec_and_released_until_pubcomp(pair: Memory) -> None:
    """MQTT-4.3.3-1 to -6, MQTT-4.4.0-1, MQTT-3.3.1-1: the same identifier and DUP after a break,
    PUBREL and never PUBLISH once PUBREC came, and the identifier is free after PUBCOMP."""
    first = pair.client(1, "s", **LASTING)
    first.acknowledges = False
    first.subscribe("t", max_qos=EXACTLY)
    publisher = pair.client(0, "p")
    for number, payload in enumerate((b"one", b"two"), 1):
        publish(publisher, number, payload)
    pair.run(50_000)
    one, two = packets(first, mqtt5.PublishPacket)
    assert (one.qos, one.duplicate, two.qos) == (EXACTLY, False, EXACTLY)
    first.send(mqtt5.PubRecPacket(one.packet_id))
    first.send(mqtt5.PubRecPacket(one.packet_id))  # is answered, however often it comes
    pair.run(20_000)
    assert [p.packet_id for p in packets(first, mqtt5.PubRelPacket)] == [one.packet_id] * 2
    first.drop()
    second = pair.client(1, "s", **LASTING)
    (again,) = packets(second, mqtt5.PublishPacket)
    assert (again.payload, again.packet_id, again.duplicate) == (b"two", two.packet_id, True)
    assert second.last(mqtt5.PubRelPacket).packet_id == one.packet_id
    second.send(mqtt5.PubRecPacket(two.packet_id))
    pair.run(20_000)
    assert not pair.brokers[1].clients.sessions["s"].in_flight


def test_refused_with_pubrec_is_not_released_and_not_sent_again(pair: Memory) -> None:
    """MQTT-4.3.3-4, MQTT-4.4.0-2: PUBREL follows only a PUBREC below 0x80."""
    client = pair.client(0, "c", receive_max=1, **LASTING)
    client.acknowledges = False
    client.subscribe("t", max_qos=EXACTLY)
    publisher = pair.client(0, "p")
    publish(publisher, 1, b"one")
    publish(publisher, 2, b"two")
    pair.run(20_000)
    (one,) = packets(client, mqtt5.PublishPacket)  # MQTT-3.3.4-9: no more than it can take
    refusal = mqtt5.PubRecReasonCode.QUOTA_EXCEEDED
    client.send(mqtt5.PubRecPacket(one.packet_id, reason_code=refusal))
    pair.run(20_000)
    assert not packets(client, mqtt5.PubRelPacket)
    assert [p.payload for p in packets(client, mqtt5.PublishPacket)] == [b"one", b"two"]


def test_receive_maximum_counts_quality_2_until_pubcomp(pair: Memory) -> None:
    """MQTT-3.3.4-9: PUBREC frees nothing, PUBCOMP does."""
    client = pair.client(0, "c", receive_max=1)
    client.acknowledges = False
    client.subscribe("t", max_qos=EXACTLY)
    publisher = pair.client(0, "p")
    publish(publisher, 1, b"one")
    publish(publisher, 2, b"two")
    pair.run(20_000)
    (one,) = packets(client, mqtt5.PublishPacket)
    client.send(mqtt5.PubRecPacket(one.packet_id))
    pair.run(20_000)
    assert len(packets(client, mqtt5.PublishPacket)) == 1
    client.send(mqtt5.PubCompPacket(one.packet_id))
    pair.run(20_000)
    assert len(packets(client, mqtt5.PublishPacket)) == 2


@pytest.mark.parametrize(
    ("qos", "kind"), [(EXACTLY, mqtt5.PubAckPacket), (ONCE, mqtt5.PubRecPacket)]
)
def test_an_answer_of_another_quality_ends_the_connection(
    pair: Memory, qos: mqtt5.QoS, kind: Any
) -> None:
    """MQTT-4.13.1-1: a protocol error."""
    client = pair.client(0, "c")
    client.acknowledges = False
    client.subscribe("t", max_qos=qos)
    pair.client(0, "p").publish("t", b"x", qos=qos)
    pair.run(20_000)
    client.send(kind(client.last(mqtt5.PublishPacket).packet_id))
    pair.run(20_000)
    assert client.last(mqtt5.DisconnectPacket).reason_code == 0x82


def test_more_than_the_receive_maximum_ends_the_connection(pair: Memory) -> None:
    """MQTT-3.3.4-7, 0x93 as of 4.13: as many as CONNACK says, and not one more."""
    publisher = pair.client(0, "p")
    most = publisher.last(mqtt5.ConnAckPacket).receive_max
    for number in range(1, most + 1):
        publish(publisher, number)
    pair.run(20_000)
    assert len(packets(publisher, mqtt5.PubRecPacket)) == most
    publish(publisher, most + 1)
    pair.run(20_000)
    assert publisher.last(mqtt5.DisconnectPacket).reason_code == 0x93


def test_quality_2_of_3_1_1(pair: Memory) -> None:
    """MQTT 3.1.1, MQTT-4.3.3-1 and -2: both directions, as bytes."""
    subscriber = pair.client(1, "s", level=mqtt.V3)
    subscriber.raw(b"\x82\x06\x00\x01\x00\x01t\x02")
    pair.run(50_000)
    publisher = pair.client(0, "p", level=mqtt.V3)
    for first in (0x34, 0x3C):  # again, with DUP
        publisher.raw(bytes((first,)) + b"\x06\x00\x01t\x00\x09x")
    pair.run(50_000)
    assert publisher.bytes[1:] == [b"\x50\x02\x00\x09"] * 2
    publisher.raw(b"\x62\x02\x00\x09")
    pair.run(50_000)
    assert publisher.bytes[3:] == [b"\x70\x02\x00\x09"]
    assert subscriber.bytes[1:] == [b"\x90\x03\x00\x01\x02", b"\x34\x06\x00\x01t\x00\x01x"]
    subscriber.raw(b"\x50\x02\x00\x01")
    pair.run(20_000)
    assert subscriber.bytes[3:] == [b"\x62\x02\x00\x01"]
    subscriber.raw(b"\x70\x02\x00\x01")
    pair.run(20_000)
    assert not pair.brokers[1].clients.sessions["s"].in_flight


def test_will_of_quality_2_is_sent_at_quality_2(pair: Memory) -> None:
    """MQTT-3.1.2-12: a will has any quality."""
    subscriber = pair.client(1, "s")
    subscriber.subscribe("will", max_qos=EXACTLY)
    pair.client(0, "c", will=mqtt5.Will("will", payload=b"gone", qos=EXACTLY)).drop()
    pair.run(50_000)
    (packet,) = packets(subscriber, mqtt5.PublishPacket)
    assert (packet.payload, packet.qos) == (b"gone", EXACTLY)


def test_a_refused_identifier_is_new_again(pair: Memory) -> None:
    """MQTT-4.3.3-9: after a PUBREC of 0x80 or more."""
    subscriber, publisher = pair.client(1, "s"), pair.client(0, "p")
    subscriber.subscribe("t", max_qos=EXACTLY)
    publisher.send(mqtt5.PublishPacket("$x", b"no", qos=EXACTLY, packet_id=3))
    publish(publisher, 3, b"yes")
    pair.run(50_000)
    refused, taken = packets(publisher, mqtt5.PubRecPacket)
    assert (int(refused.reason_code) >= 0x80, taken.reason_code) == (True, 0)
    assert subscriber.got() == [("t", b"yes")]


def test_what_was_sent_does_not_expire(pair: Memory) -> None:
    """MQTT-4.3.3-7, -13: to the end of its exchange, and after a break."""
    client = pair.client(0, "c", **LASTING)
    client.acknowledges = False
    client.subscribe("t", max_qos=EXACTLY)
    publish(pair.client(0, "p"), 1, b"one", message_expiry_interval=1)
    pair.run(20_000)
    (sent,) = packets(client, mqtt5.PublishPacket)
    client.drop()
    pair.run(3_000_000, 50_000)
    back = pair.client(0, "c", **LASTING)
    pair.run(20_000)
    (again,) = packets(back, mqtt5.PublishPacket)
    assert (again.packet_id, again.duplicate) == (sent.packet_id, True)
    assert packets(back, mqtt5.PubRelPacket)  # as it answered with PUBREC


def test_a_full_receive_maximum_holds_back_publications_only(pair: Memory) -> None:
    """MQTT-3.3.4-10, MQTT-4.9.0-3, MQTT-3.12.4-1; and of quality 1 and 2 only."""
    client = pair.client(0, "c", receive_max=1)
    client.acknowledges = False
    client.subscribe("t", max_qos=EXACTLY)
    publisher = pair.client(0, "p")
    publish(publisher, 1)
    publish(publisher, 2)
    publisher.publish("t", b"zero")
    pair.run(20_000)
    client.subscribe("u")
    client.send(mqtt5.PingReqPacket())
    publish(client, 9)
    pair.run(20_000)
    assert packets(client, mqtt5.PingRespPacket)
    assert client.last(mqtt5.PubRecPacket).packet_id == 9
    assert [p.qos for p in packets(client, mqtt5.PublishPacket)] == [2, 0]


def test_dup_is_of_one_hop(pair: Memory) -> None:
    """MQTT-3.3.1-3: what a publisher repeats is new to the subscriber."""
    subscriber = pair.client(1, "s")
    subscriber.subscribe("t", max_qos=EXACTLY)
    publish(pair.client(0, "p"), 1, duplicate=True)
    pair.run(50_000)
    (packet,) = packets(subscriber, mqtt5.PublishPacket)
    assert not packet.duplicate


def test_quality_2_survives_a_crash_at_every_step(durable: Memory) -> None:
    """MQTT-4.3.3-3, -5, -10 and MQTT-4.4.0-1 across restarts of both brokers, with a store."""
    subscriber = durable.client(1, "s", **LASTING)
    subscriber.acknowledges = False
    subscriber.subscribe("t", max_qos=EXACTLY)
    publish(durable.client(0, "p", **LASTING), 3, b"one")
    durable.run(200_000)

    def crash() -> tuple[Fake, Fake]:
        for broker in (0, 1):
            durable.restart(broker)
        durable.settle()
        publisher = durable.client(0, "p", **LASTING)
        subscriber = durable.client(1, "s", acknowledges=False, **LASTING)
        durable.run(100_000)
        return publisher, subscriber

    publisher, subscriber = crash()
    publish(publisher, 3, b"one", duplicate=True)
    durable.run(200_000)
    assert [p.packet_id for p in packets(publisher, mqtt5.PubRecPacket)] == [3]
    (packet,) = packets(subscriber, mqtt5.PublishPacket)
    subscriber.send(mqtt5.PubRecPacket(packet.packet_id))
    durable.run(50_000)
    publisher, subscriber = crash()
    publisher.send(mqtt5.PubRelPacket(3))
    durable.run(50_000)
    assert [p.reason_code for p in packets(publisher, mqtt5.PubCompPacket)] == [0]
    assert not packets(subscriber, mqtt5.PublishPacket)
    assert [p.packet_id for p in packets(subscriber, mqtt5.PubRelPacket)] == [packet.packet_id]
    subscriber.send(mqtt5.PubCompPacket(packet.packet_id))
    durable.run(50_000)
    publisher, subscriber = crash()
    assert not packets(subscriber, (mqtt5.PublishPacket | mqtt5.PubRelPacket))  # type: ignore[arg-type]
    for store in durable.stores:
        assert store is not None
        rows = store.load()
        assert not rows["parcel"]
        assert not rows["received"]


@pytest.mark.parametrize("format", sorted(ADDED))
def test_a_store_of_an_earlier_format_is_taken_up(durable: Memory, format: int) -> None:
    """Not of the standard: an upgrade keeps sessions."""
    subscriber = durable.client(1, "s", **LASTING)
    subscriber.subscribe("t", max_qos=ONCE)
    durable.run(50_000)
    store = durable.stores[1]
    assert store is not None
    for table in ADDED[format]:
        store._db.execute(f"DROP TABLE {table}")
    store._db.execute(f"PRAGMA user_version = {format}")
    store.close()
    folder, name = durable.network.store, durable.network.names[1]
    assert folder is not None
    again = type(store)(folder, durable.network.identity, name)
    rows = again.load()
    assert [row[0] for row in rows["session"]] == ["s"]
    assert all(rows[table] == [] for table in ADDED[format])
    again.commit([("put", "received", ("s", 1, b"x"))])
    again.close()


# What CONNECT and CONNACK agree on.


def test_connack_says_what_is_offered(pair: Memory) -> None:
    """MQTT-3.2.2-8, -9, MQTT-3.1.2-28: nothing is withheld, nothing said that was not asked."""
    answer = pair.client(0, "c", keep_alive=60).last(mqtt5.ConnAckPacket)
    assert answer.max_qos == EXACTLY
    assert answer.retain_available
    assert answer.wildcard_subscription_available
    assert answer.subscription_id_available
    assert answer.shared_subscription_available
    assert answer.server_keep_alive is None
    assert answer.response_info is None
    asks = pair.client(0, "d", request_response_info=True)
    assert asks.last(mqtt5.ConnAckPacket).response_info == "response/d"


def test_session_present_clean_start_and_an_assigned_name(pair: Memory) -> None:
    """MQTT-3.1.2-4 to -6, MQTT-3.1.3-6, -7, MQTT-3.2.2-2, -3, -16, MQTT-4.1.0-2."""
    first = pair.client(0, "c", clean_start=False, session_expiry_interval=5)
    assert not first.last(mqtt5.ConnAckPacket).session_present
    first.drop()
    second = pair.client(0, "c", clean_start=False, session_expiry_interval=5)
    assert second.last(mqtt5.ConnAckPacket).session_present
    second.drop()
    third = pair.client(0, "c", clean_start=True, session_expiry_interval=5)
    assert not third.last(mqtt5.ConnAckPacket).session_present
    third.drop()
    pair.run(6_000_000, 50_000)
    fourth = pair.client(0, "c", clean_start=False)
    assert not fourth.last(mqtt5.ConnAckPacket).session_present
    names = {pair.client(0).last(mqtt5.ConnAckPacket).assigned_client_id for _ in range(2)}
    assert len(names) == 2
    assert None not in names


def test_a_second_connection_takes_over_with_0x8e(pair: Memory) -> None:
    """MQTT-3.1.4-3."""
    first = pair.client(0, "c")
    pair.client(0, "c")
    assert first.last(mqtt5.DisconnectPacket).reason_code == 0x8E
    assert first.connection.closing


def test_the_broker_shortens_a_keep_alive_and_holds_to_it(tmp_path: Path) -> None:
    """MQTT-3.1.2-22, MQTT-3.2.2-22: one and a half times what CONNACK says."""
    net = memory(tmp_path, ["A"], [], tables="[limits]\nkeep_alive_s = 10")
    for wanted, answered in ((0, 10), (60, 10), (10, None), (4, None)):
        client = net.client(0, f"c{wanted}", keep_alive=wanted)
        assert client.last(mqtt5.ConnAckPacket).server_keep_alive == answered
        net.run(int((answered or wanted) * 1_500_000) - 200_000, 20_000)
        assert not client.connection.closing
        net.run(500_000, 20_000)
        assert client.last(mqtt5.DisconnectPacket).reason_code == 0x8D


def test_enhanced_authentication_is_refused(pair: Memory) -> None:
    """MQTT-4.12.0-1, MQTT-3.2.2-6, -7, MQTT-4.12.0-6: CONNACK 0x8C, and AUTH has no place."""
    client = pair.client(0, "c", authentication_method="SCRAM-SHA-1", authentication_data=b"x")
    answer = client.last(mqtt5.ConnAckPacket)
    assert (answer.reason_code, answer.session_present) == (0x8C, False)
    assert client.connection.closing
    other = pair.client(0, "d")
    other.send(mqtt5.AuthPacket(reason_code=mqtt5.AuthReasonCode.RE_AUTHENTICATE))
    pair.run(20_000)
    assert other.last(mqtt5.DisconnectPacket).reason_code == 0x82


def test_nothing_larger_than_the_client_takes(pair: Memory) -> None:
    """MQTT-3.1.2-24, -25, MQTT-3.9.2-1, MQTT-3.14.2-3: left out as if sent, answers without a
    reason string; and MQTT-3.2.2-15: what is larger than we take is 0x95."""
    client = pair.client(0, "c", max_packet_size=60)
    client.subscribe("t", max_qos=ONCE)
    refused = client.subscribe("u", "no filter at all, and that takes some words to say")
    assert (refused.reason_codes[0], refused.reason_str) == (0x83, None)
    publisher = pair.client(1, "p")
    for size in (100, 5):
        publisher.publish("t", b"x" * size, qos=ONCE)
    pair.run(50_000)
    assert client.got() == [("t", b"x" * 5)]
    most = publisher.last(mqtt5.ConnAckPacket).max_packet_size
    publisher.raw(b"\x30" + b"\xff\xff\xff\x7f")
    pair.run(20_000)
    assert most < 1 << 28
    assert publisher.last(mqtt5.DisconnectPacket).reason_code == 0x95


def test_no_reasons_in_words_for_who_wants_none(pair: Memory) -> None:
    """MQTT-3.1.2-29."""
    client = pair.client(0, "c", request_problem_info=False)
    answer = client.subscribe("t", "no filter at all")
    assert (answer.reason_codes[0], answer.reason_str) == (0x83, None)


# Topic aliases.


def alias(client: Fake, number: int | None, topic: str, payload: bytes, **more: Any) -> None:
    client.send(mqtt5.PublishPacket(topic, payload, topic_alias=number, **more))


def test_a_clients_aliases_stand_for_topics_on_its_connection(pair: Memory) -> None:
    """MQTT-3.3.2-7, -8, -12: every alias up to the maximum, given again, for one connection; and
    subscribers get the topic, and everything else as it was."""
    near, far = pair.client(0, "n"), pair.client(1, "f", level=mqtt.V5)
    for subscriber in (near, far):
        subscriber.subscribe("#")
    publisher = pair.client(0, "p")
    most = publisher.last(mqtt5.ConnAckPacket).topic_alias_max
    assert most > 0
    words = [("a", "1"), ("b", "2"), ("a", "3")]
    alias(publisher, most, "t/1", b"one", user_properties=words, correlation_data=b"\0\x23\1")
    alias(publisher, most, "", b"two", qos=EXACTLY, packet_id=1)
    alias(publisher, most, "t/2", b"three")
    alias(publisher, most, "", b"four")
    pair.run(50_000)
    wanted = [("t/1", b"one"), ("t/1", b"two"), ("t/2", b"three"), ("t/2", b"four")]
    for subscriber in (near, far):
        first = packets(subscriber, mqtt5.PublishPacket)[0]
        assert (first.topic_alias, first.correlation_data) == (None, b"\0\x23\1")
        assert first.user_properties == words
        assert subscriber.got() == wanted
    publisher.drop()
    again = pair.client(0, "p")
    alias(again, most, "", b"five")
    pair.run(20_000)
    assert again.last(mqtt5.DisconnectPacket).reason_code == 0x82


@pytest.mark.parametrize(
    "data", [b"\x30\x07\x00\x00\x03\x23\x00\x00x", b"\x30\x07\x00\x00\x03\x23\xff\xffx"]
)
def test_an_alias_that_cannot_be_is_0x94(pair: Memory, data: bytes) -> None:
    """MQTT-3.3.2-8, -9: 0, and more than CONNACK says."""
    client = pair.client(0, "c")
    client.raw(data)
    pair.run(20_000)
    assert client.last(mqtt5.DisconnectPacket).reason_code == 0x94


@pytest.mark.parametrize("most", [0, 1])
def test_a_client_gets_no_more_aliases_than_it_takes(pair: Memory, most: int) -> None:
    """MQTT-3.1.2-26, -27, MQTT-3.3.2-11."""
    client = pair.client(0, "c", topic_alias_max=most)
    client.subscribe("t/+", max_qos=ONCE)
    publisher = pair.client(1, "p")
    for topic in ("t/1", "t/2", "t/1", "t/2"):
        publisher.publish(topic, b"x", qos=ONCE)
    pair.run(50_000)
    came = [(p.topic, p.topic_alias) for p in packets(client, mqtt5.PublishPacket)]
    plain = [("t/1", None), ("t/2", None), ("t/1", None), ("t/2", None)]
    assert came == ([("t/1", 1), ("t/2", None), ("", 1), ("t/2", None)] if most else plain)


# Subscriptions and what is retained.


def test_retain_handling_and_retain_as_published(pair: Memory) -> None:
    """MQTT-3.3.1-5 to -13, MQTT-3.8.4-4."""
    publisher = pair.client(0, "p")
    publisher.publish("t", b"kept", retain=True)
    publisher.publish("u", b"kept", retain=True)
    publisher.publish("u", b"", retain=True)
    publisher.publish("t", b"not kept")
    pair.run(50_000)
    client = pair.client(1, "c")

    def comes(how: int) -> int:
        client.subscribe("+", retain_handling=mqtt5.RetainHandling(how), retain_as_published=True)
        pair.run(50_000)
        came = packets(client, mqtt5.PublishPacket)
        assert all((p.topic, p.payload, p.retain) == ("t", b"kept", True) for p in came)
        return len(client.got())

    assert [comes(how) for how in (2, 1, 0, 0)] == [0, 0, 1, 1]
    assert pair.client(1, "d").subscribe("+", retain_handling=mqtt5.RetainHandling(1))
    client.got()
    plain = pair.client(1, "e")
    plain.subscribe("+", retain_handling=mqtt5.RetainHandling(2))
    for retain in (True, False):
        publisher.publish("t", b"live", retain=retain)
    pair.run(50_000)
    assert [p.retain for p in packets(client, mqtt5.PublishPacket)] == [True, False]
    assert [p.retain for p in packets(plain, mqtt5.PublishPacket)] == [False, False]


def test_a_publication_keeps_its_properties_and_their_order(pair: Memory) -> None:
    """MQTT-3.3.2-4, -6, -15 to -18, -20: unaltered, but for the time that is left."""
    away = pair.client(1, "c", **LASTING)
    away.subscribe("t", max_qos=ONCE)
    away.drop()
    words = [("b", "1"), ("a", "2"), ("b", "3")]
    pair.client(0, "p").publish(
        "t", b"x", qos=ONCE, payload_format_indicator=1, content_type="text/plain",
        response_topic="r", correlation_data=b"\0\1", user_properties=words,
        message_expiry_interval=100,
    )  # fmt: skip
    pair.run(3_100_000, 10_000)
    (packet,) = packets(pair.client(1, "c", **LASTING), mqtt5.PublishPacket)
    assert packet.payload_format_indicator == 1
    assert (packet.content_type, packet.response_topic) == ("text/plain", "r")
    assert (packet.correlation_data, packet.user_properties) == (b"\0\1", words)
    assert packet.message_expiry_interval == 97


def test_suback_answers_each_filter_in_order(pair: Memory) -> None:
    """MQTT-3.8.4-1, -2, -5 to -8, MQTT-3.9.3-1, MQTT-3.10.4-1, -4, -5, -6, MQTT-3.11.3-1."""
    client = pair.client(0, "c")
    asked = [("a", 2), ("c", 0), ("d", 1)]
    filters = [mqtt5.TopicFilter(name, max_qos=mqtt5.QoS(qos)) for name, qos in asked]
    client.send(mqtt5.SubscribePacket(9, filters))
    pair.run(50_000)
    answer = client.last(mqtt5.SubAckPacket)
    assert (answer.packet_id, [int(code) for code in answer.reason_codes]) == (9, [2, 0, 1])
    publisher = pair.client(1, "p")
    for topic in ("a", "c", "d"):
        publisher.publish(topic, b"x", qos=EXACTLY)
    pair.run(50_000)
    assert {p.topic: int(p.qos) for p in packets(client, mqtt5.PublishPacket)} == {
        "a": 2, "c": 0, "d": 1,
    }  # fmt: skip
    client.send(mqtt5.UnsubscribePacket(10, ["c", "nowhere", "a"]))
    pair.run(50_000)
    ended = client.last(mqtt5.UnsubAckPacket)
    assert (ended.packet_id, [int(code) for code in ended.reason_codes]) == (10, [0, 0x11, 0])


def test_a_will_waits_for_its_delay_and_not_for_a_client_that_returns(pair: Memory) -> None:
    """MQTT-3.1.2-7, -8, -10, MQTT-3.1.3-9, MQTT-3.14.4-3."""
    watcher = pair.client(1, "w")
    watcher.subscribe("will/+")

    def vanish(name: str, delay_s: int) -> Fake:
        will = mqtt5.Will(f"will/{name}", payload=b"gone", will_delay_interval=delay_s)
        client = pair.client(0, name, will=will, **LASTING)
        client.drop()
        return client

    vanish("late", 3)
    vanish("back", 3)
    pair.run(1_000_000, 10_000)
    pair.client(0, "back", **LASTING)
    assert watcher.got() == []
    pair.run(3_000_000, 10_000)
    assert watcher.got() == [("will/late", b"gone")]
    calm = pair.client(0, "calm", will=mqtt5.Will("will/calm", payload=b"gone"))
    calm.send(mqtt5.DisconnectPacket())
    pair.run(1_000_000, 10_000)
    assert watcher.got() == []


def test_a_will_is_retained_if_it_says_so_and_keeps_its_properties(pair: Memory) -> None:
    """MQTT-3.1.2-14, -15, MQTT-3.1.3-10."""
    said = [("b", "1"), ("a", "2"), ("b", "0")]
    for name, retain in (("kept", True), ("gone", False)):
        will = mqtt5.Will(f"will/{name}", payload=b"x", retain=retain, user_properties=said)
        pair.client(0, name, will=will).drop()
    pair.run(50_000)
    watcher = pair.client(1, "w")
    watcher.subscribe("will/+")
    pair.run(50_000)
    (packet,) = packets(watcher, mqtt5.PublishPacket)
    assert (packet.topic, packet.retain, packet.user_properties) == ("will/kept", True, said)


# `$SYS`.


def test_sys_topics_have_mosquittos_names_and_only_those_who_ask_get_them(pair: Memory) -> None:
    """MQTT-4.7.2-1: wildcards do not match topics that begin with $."""
    everything, watcher = pair.client(0, "e"), pair.client(0, "w")
    everything.subscribe("#")
    everything.subscribe("+/broker/#")
    known = pair.brokers[1].router.table_entries()
    watcher.subscribe("$SYS/broker/clients/#")
    watcher.subscribe("$SYS/broker/uptime", identifier=7)
    pair.run(50_000)
    came = packets(watcher, mqtt5.PublishPacket)
    values = {p.topic: p.payload for p in came}
    assert all(p.retain for p in came)
    assert values["$SYS/broker/clients/connected"] == b"2"
    assert values["$SYS/broker/uptime"].endswith(b" seconds")
    watcher.got()
    pair.client(0, "another")
    pair.run(10_100_000, 50_000)
    changed = packets(watcher, mqtt5.PublishPacket)
    assert ("$SYS/broker/clients/connected", b"3") in watcher.got()
    assert not any(p.retain for p in changed)
    assert [7] in [p.subscription_ids for p in changed]
    assert everything.got() == []
    assert pair.brokers[1].router.table_entries() == known  # others are not asked for it
    watcher.send(mqtt5.UnsubscribePacket(99, ["$SYS/broker/uptime", "$SYS/broker/clients/#"]))
    pair.run(10_100_000, 50_000)
    assert watcher.got() == []
