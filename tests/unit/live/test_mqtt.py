"""The 3.1.1 codec and letters, held against mqtt5 and paho's bytes."""

from __future__ import annotations

import json

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.live.edge import content, mqtt
from postroad.live.edge.mqtt import V3, V5, Letter, Malformed

payloads = st.binary(max_size=300)
topics = st.text("ab/é", min_size=1, max_size=150)
texts = st.text(max_size=5).filter(lambda text: "\0" not in text)
properties = st.lists(st.tuples(texts, texts), max_size=3)


@given(topic=topics, payload=payloads, qos=st.integers(0, 1), more=properties)
def test_letter_gives_back_what_was_published(
    topic: str, payload: bytes, qos: int, more: list[tuple[str, str]]
) -> None:
    packet = mqtt5.PublishPacket(
        topic, payload, qos=mqtt5.QoS(qos), packet_id=7 if qos else None, user_properties=more
    )
    letter = Letter(mqtt.keep(packet.write(), V5))
    assert letter.qos == qos
    plain = mqtt.read(letter.plain(V5), V5)
    assert isinstance(plain, mqtt5.PublishPacket)
    assert (plain.topic, plain.payload, plain.user_properties) == (topic, payload, more)
    sent = mqtt.read(letter.addressed(V5, 1, 513, 1, [3, 300]), V5)
    assert isinstance(sent, mqtt5.PublishPacket)
    assert (sent.packet_id, sent.retain, sent.subscription_ids) == (513, True, [3, 300])
    assert (sent.topic, sent.payload, sent.user_properties) == (topic, payload, more)
    old = mqtt.read(letter.addressed(V3, 1, 513, 0, []), V3)
    assert isinstance(old, mqtt5.PublishPacket)
    assert (old.topic, old.payload, old.packet_id) == (topic, payload, 513)


@given(topic=topics, payload=payloads, qos=st.integers(0, 1))
def test_letter_from_3_1_1_is_a_level_5_packet(topic: str, payload: bytes, qos: int) -> None:
    body = len(topic.encode()).to_bytes(2, "big") + topic.encode()
    body += (b"\x01\x02" if qos else b"") + payload
    data = mqtt.framed(0x30 | qos << 1, body)
    first = mqtt.read(data, V3)
    assert isinstance(first, mqtt5.PublishPacket)
    again = mqtt.read(Letter(mqtt.keep(data, V3)).plain(V5), V5)
    assert isinstance(again, mqtt5.PublishPacket)
    assert (again.topic, again.payload) == (first.topic, first.payload) == (topic, payload)


def test_connect_of_3_1_1() -> None:
    body = b"\x00\x04MQTT\x04\xee\x00\x3c\x00\x02id\x00\x01w\x00\x02by\x00\x01u\x00\x01p"
    data = mqtt.framed(0x10, body)
    assert mqtt.level_of(data) == V3
    packet = mqtt.read(data, V3)
    assert isinstance(packet, mqtt5.ConnectPacket)
    assert (packet.client_id, packet.username, packet.password) == ("id", "u", b"p")
    assert packet.will is not None
    assert (packet.will.topic, packet.will.payload, packet.will.retain) == ("w", b"by", True)
    assert packet.will.qos == 1
    assert packet.clean_start


@pytest.mark.parametrize(
    "data",
    [
        b"\x30\x04\x00\x02\xff\xfe",  # a topic that is not UTF-8
        b"\x36\x05\x00\x01a\x00\x01",  # quality of service 3
        b"\x32\x05\x00\x01a\x00\x00",  # packet identifier 0
        b"\x80\x05\x00\x01\x00\x00\x00",  # wrong flags
        b"\x82\x06\x00\x01\x00\x01a\x03",
        b"\x60\x02\x00\x01",  # PUBREL with wrong flags
        b"\xc0\x01\x00",
    ],
)
def test_wrong_packets_are_malformed_at_both_levels(data: bytes) -> None:
    with pytest.raises(Malformed):
        mqtt.read(data, V3)


BAD = b"\x00\x02\xff\xfe"


@pytest.mark.parametrize(
    "data",
    [
        mqtt.framed(0x30, BAD + b"\x00"),
        mqtt.framed(0x30, b"\x00\x01a\x09\x26" + BAD + BAD),
        mqtt.framed(0x10, b"\x00\x04MQTT\x05\x02\x00\x00\x00" + BAD),
        mqtt.framed(0x10, b"\x00\x04MQTT\x05\x06\x00\x00\x00\x00\x00\x00" + BAD + b"\x00\x00"),
        mqtt.framed(0x10, b"\x00\x04MQTT\x05\x82\x00\x00\x00\x00\x01c" + BAD),
        mqtt.framed(0x82, b"\x00\x01\x00" + BAD + b"\x00"),
        mqtt.framed(0xA2, b"\x00\x01\x00" + BAD),
        mqtt.framed(0x40, b"\x00\x01\x00\x05\x1f" + BAD),
        mqtt.framed(0xE0, b"\x00\x05\x1f" + BAD),
    ],
)
def test_strings_that_are_no_text_are_malformed_and_never_reach_the_rust_core(
    data: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Malformed, match="UTF-8"):
        mqtt.read(data, V5)
    assert capfd.readouterr().err == ""


@given(
    topic=st.text(min_size=1, max_size=9).filter(lambda t: not set(t) & set("+#\0")),
    payload=payloads,
    more=properties,
)
def test_any_unicode_is_read(topic: str, payload: bytes, more: list[tuple[str, str]]) -> None:
    data = mqtt5.PublishPacket(topic, payload, user_properties=more).write()
    packet = mqtt.read(data, V5)
    assert isinstance(packet, mqtt5.PublishPacket)
    assert (packet.topic, packet.payload, packet.user_properties) == (topic, payload, more)


def test_a_length_of_five_bytes_or_beyond_the_limit_is_refused() -> None:
    with pytest.raises(Malformed):
        mqtt.frame(b"\x30\xff\xff\xff\xff\x01", 0, 1000)
    with pytest.raises(Malformed) as caught:
        mqtt.frame(b"\x30\xff\x7f", 0, 1000)
    assert caught.value.code == 0x95


def test_attributes_come_from_payload_properties_and_topic() -> None:
    payload = b'{"price": 12, "name": "x", "ok": true, "none": null, "deep": {"a": 1}, "class": 3}'
    more = [("name", "y"), ("n", "1.5"), ("t", '"1.5"'), ("$own", "1"), ("z", "01")]
    assert content.attributes("a/b", payload, more) == {
        "price": 12, "name": "y", "ok": True, "n": 1.5, "t": "1.5", "z": "01", "class": "a/b",
        "deep.a": 1,
    }  # fmt: skip
    for strange in (b"{", b"{}", b"[1]", b'{"a": 1e999}', b'{"a": 99999999999999999999}', b"\xff"):
        assert content.attributes("t", strange) == {"class": "t"}


def test_a_text_that_is_too_long_is_no_attribute() -> None:
    most, long = "é" * content.TEXT_MAX, "é" * (content.TEXT_MAX + 1)
    payload = json.dumps({"a": most, "b": long, "c": 1, "d": 2}).encode()
    properties = [("d", long), ("e", f'"{most}"'), ("f", f'"{long}"'), ("g", most)]
    assert content.attributes("t", payload, properties) == {
        "a": most, "c": 1, "d": 2, "e": most, "g": most, "class": "t",
    }  # fmt: skip
    # Whoever reads further than a filter does may find something else there.
    for name in "bdf":
        found = content.attributes("t", payload, properties)
        assert not content.unambiguous(payload, properties, frozenset(name), found)


def test_packet_identifier_0_and_null_characters_are_malformed() -> None:
    name = b"\x00\x03a\x00b"
    for level, packet in (
        (5, b"\x32\x06\x00\x01t\x00\x00\x00"),
        (4, b"\x32\x05\x00\x01t\x00\x00"),
        (5, b"\x82\x07\x00\x00\x00\x00\x01t\x00"),
        (4, b"\x82\x06\x00\x00\x00\x01t\x00"),
        (5, b"\xa2\x06\x00\x00\x00\x00\x01t"),
        (5, b"\x40\x02\x00\x00"),
        (5, b"\x10\x10\x00\x04MQTT\x05\x02\x00\x00\x00" + name),
        (4, b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x00" + name),
        (5, b"\x82\x0b\x00\x01\x00" + b"\x00\x05a/\x00/b" + b"\x00"),
        (5, b"\x30\x0e\x00\x01t\x0a\x26" + name + b"\x00\x02cd"),
        (5, b"\x30\x0a\x00\x01t\x06\x03" + name),
    ):
        assert len(packet) == 2 + packet[1]
        with pytest.raises(mqtt.Malformed, match=r"identifier 0|null character"):
            mqtt.read(packet, level)


def test_a_publish_with_very_many_properties_is_refused_before_they_are_read() -> None:
    few = mqtt5.PublishPacket("t", b"x" * 50_000, user_properties=[("n", "1")] * 1000).write()
    assert isinstance(mqtt.read(few, 5), mqtt5.PublishPacket)
    many = mqtt5.PublishPacket("t", b"", user_properties=[("n", "1")] * 10_000).write()
    with pytest.raises(mqtt.Malformed, match="properties of 70000 bytes") as refused:
        mqtt.read(many, 5)
    assert refused.value.code == 0x95
