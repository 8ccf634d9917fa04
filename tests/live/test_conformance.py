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

ONCE, EXACTLY = mqtt5.QoS.AT_LEAST_ONCE, mqtt5.QoS.EXACTLY_ONCE
LASTING: dict[str, Any] = {"clean_start": False, "session_expiry_interval": 600}
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
    assert not set(named) - set(globals())


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
    """MQTT-3.1.2-14: a will has any quality."""
    subscriber = pair.client(1, "s")
    subscriber.subscribe("will", max_qos=EXACTLY)
    pair.client(0, "c", will=mqtt5.Will("will", payload=b"gone", qos=EXACTLY)).drop()
    pair.run(50_000)
    (packet,) = packets(subscriber, mqtt5.PublishPacket)
    assert (packet.payload, packet.qos) == (b"gone", EXACTLY)


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


def test_a_store_of_the_format_before_is_taken_up(durable: Memory) -> None:
    """Not of the standard: an upgrade keeps sessions."""
    subscriber = durable.client(1, "s", **LASTING)
    subscriber.subscribe("t", max_qos=ONCE)
    durable.run(50_000)
    store = durable.stores[1]
    assert store is not None
    for table in ("received", "share"):
        store._db.execute(f"DROP TABLE {table}")
    store._db.execute("PRAGMA user_version = 2")
    store.close()
    folder, name = durable.network.store, durable.network.names[1]
    assert folder is not None
    again = type(store)(folder, durable.network.identity, name)
    rows = again.load()
    assert [row[0] for row in rows["session"]] == ["s"]
    assert rows["received"] == rows["share"] == []
    again.commit([("put", "received", ("s", 1, b"x"))])
    again.close()
