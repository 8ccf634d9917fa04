"""What publications say to filters: nested fields, MessagePack, CloudEvents; several filters at
once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mqtt5
import msgspec
import pytest

from live_harness import Memory, memory
from postroad.filters import matches, parse
from postroad.live.edge import content
from postroad.routing import SCHEMES

ONCE = mqtt5.QoS.AT_LEAST_ONCE
LASTING: dict[str, Any] = {"clean_start": False, "session_expiry_interval": 600}
NAMES, CHAIN = ["A", "B", "C"], [("A", "B"), ("B", "C")]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nested_filters_travel_under_every_scheme(tmp_path: Path, scheme: str) -> None:
    net = memory(tmp_path, NAMES, CHAIN, scheme=scheme)
    first, second = net.client(2, "one"), net.client(0, "two")
    first.subscribe("orders", "order.items.sku = 'x' AND order.items.qty > 5", max_qos=ONCE)
    second.subscribe("orders", "order.items.sku = 'y'", max_qos=ONCE)
    publisher = net.client(1, "p")
    for items in ([("x", 9)], [("x", 1), ("y", 9)], [("y", 1), ("x", 6), ("x", 7)], []):
        order = {"items": [{"sku": sku, "qty": qty} for sku, qty in items]}
        publisher.publish(
            "orders", json.dumps({"n": len(items), "order": order}).encode(), qos=ONCE
        )
    net.run(3_000_000)
    got = [[json.loads(payload)["n"] for _, payload in each.got()] for each in (first, second)]
    assert [sorted(each) for each in got] == [[1, 3], [2, 3]]


def test_what_is_retained_and_what_waits_is_nested_too(tmp_path: Path) -> None:
    net = memory(tmp_path, NAMES, CHAIN, top='store = "s"')
    publisher = net.client(0, "p")
    for topic, tags in (("t/1", ["a", "b"]), ("t/2", ["c"])):
        payload = json.dumps({"o": {"tags": tags}}).encode()
        publisher.publish(topic, payload, qos=ONCE, retain=True)
    net.run(200_000)
    net.restart(2)
    net.settle()
    client = net.client(2, "c")
    client.subscribe("t/#", "o.tags = 'b'")
    net.run(200_000)
    assert [topic for topic, _ in client.got()] == ["t/1"]


def attributes(document: Any, *properties: tuple[str, str], kind: str | None = None) -> Any:
    payload = document if isinstance(document, bytes) else json.dumps(document).encode()
    found = content.attributes("t", payload, list(properties), kind)
    assert found.pop("class") == "t"
    return found


def test_messagepack_and_cloudevents_are_read_by_their_content_type() -> None:
    packed = msgspec.msgpack.encode({"a": {"b": 1}, "c": [1, 2], "d": b"bytes", "e": 2**64 - 1})
    assert attributes(packed, kind="application/MsgPack; x=y") == attributes(
        {"a": {"b": 1}, "c": [1, 2]}
    )
    assert attributes(packed) == {}
    for broken in (b"", b"\xc1", b"\x81\x01\x02", b"\x93\x01", b"\xdf\xff\xff\xff\xff"):
        assert attributes(broken, kind="application/msgpack") == {}
    context = {"specversion": "1.0", "id": "5", "type": "sold", "source": "/shop"}
    data = {"price": 5, "id": 7, "at": {"city": "Ulm"}}
    event = {"price": 5, "at.city": "Ulm", **context}
    assert attributes({**context, "data": data}, kind="application/cloudevents+json") == event
    # In binary mode the same, from user properties: what looks like a number stays text.
    assert attributes(data, *context.items(), kind="application/json") == event
    rows = attributes({"tags": ["a", "b"]}, ("tags", "c"))  # a property wins
    assert [matches(parse(f"tags = '{tag}'"), rows) for tag in "abc"] == [False, False, True]
    assert attributes(b"[", kind="application/cloudevents+json") == {}
    assert attributes({"$rows": "[]", "x": "5"}, ("y", '"5"'), ("z", "5")) == {
        "x": "5", "y": "5", "z": 5,
    }  # fmt: skip


def keep(net: Memory, where: str, identifier: int, keeps: bool = True) -> mqtt5.SubscribePacket:
    properties = [("$where", where), *([("$keep", "")] if keeps else [])]
    return mqtt5.SubscribePacket(
        9, [mqtt5.TopicFilter("t", max_qos=ONCE)],
        subscription_id=identifier or None, user_properties=properties,
    )  # fmt: skip


def test_several_filters_on_one_topic_are_kept_by_their_identifiers(tmp_path: Path) -> None:
    net = memory(tmp_path, NAMES, CHAIN, top='store = "s"')
    client = net.client(0, "c", **LASTING)

    def answer(packet: mqtt5.Packet) -> Any:
        client.send(packet)
        kind = type(packet).__name__
        wanted = mqtt5.UnsubAckPacket if kind == "UnsubscribePacket" else mqtt5.SubAckPacket
        net.until(lambda: client.last(wanted))
        return client.last(wanted, take=True)

    assert answer(keep(net, "x > 1", 1)).reason_str is None
    assert answer(keep(net, "x > 3", 2)).reason_str is None
    assert "replaces the $where of 't'" in answer(keep(net, "x > 5", 2)).reason_str
    assert answer(keep(net, "x > 5", 2)).reason_str is None  # the same again
    assert answer(keep(net, "x > 5", 0)).reason_codes == [0x83]
    client.drop()
    net.restart(0)
    net.settle()
    client = net.client(2, "c", **LASTING)  # they survive, and move
    net.until(lambda: client.last(mqtt5.ConnAckPacket))
    publisher = net.client(1, "p")
    for x in (0, 2, 6):
        publisher.publish("t", b'{"x": %d}' % x, qos=ONCE)
    net.run(300_000)
    packets = [packet for packet in client.packets if isinstance(packet, mqtt5.PublishPacket)]
    assert [(p.payload, sorted(p.subscription_ids)) for p in packets] == [
        (b'{"x": 2}', [1]), (b'{"x": 6}', [1, 2]),
    ]  # fmt: skip
    client.got()
    assert answer(mqtt5.UnsubscribePacket(5, ["t"])).reason_codes == [0]
    publisher.publish("t", b'{"x": 6}', qos=ONCE)
    net.run(300_000)
    assert client.got() == []
    # Without it the standard's rule holds: the second replaces the first, and SUBACK says so.
    assert answer(keep(net, "x > 1", 0, False)).reason_str is None
    assert "replaces" in answer(keep(net, "x > 2", 0, False)).reason_str
