"""What is fuzzed: each target takes any bytes, and raises only if there is a bug.

`filter` parses a text and reads its canonical form again. `mqtt3` and `mqtt5` read packets of one
level and turn a PUBLISH into what subscribers are sent. `frames` reads what brokers send each
other. `client` and `peer` put the bytes into a whole broker, as a client's after CONNECT and as the
messages of a neighbour.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import mqtt5
import msgspec

from postroad.errors import FilterError
from postroad.filters import covers, matches, parse
from postroad.live.broker import Broker
from postroad.live.edge import mqtt, topics
from postroad.live.edge.mqtt import V3, V5, Letter, Malformed
from postroad.live.links import link as links
from postroad.live.links.link import Refused
from postroad.live.links.messages import BadMessage, Codec, Handoff, Members, Retain, Wave
from postroad.live.network import load
from postroad.model import Advertisement, Publication
from postroad.routing.base import (
    AdvertisementMessage,
    PublicationMessage,
    SubscriptionMessage,
    UnsubscriptionMessage,
)

PACKET_MAX = 1 << 16
BROKER_USES = 200  # inputs that one broker serves, before the next has a new one
NOW = 10**15
CONTENTS: list[dict[str, str | int | float | bool]] = [
    {},
    {"a": 1, "b": "x", "c": True, "class": "t/a"},
    {"a": -0.5, "b": "100%", "c": False, "class": ""},
]


def read_filter(data: bytes) -> None:
    try:
        filter = parse(data.decode("utf-8", "replace"))
    except FilterError:
        return
    again = parse(str(filter))
    assert again == filter, (str(filter), str(again))
    assert covers(filter, again)
    for content in CONTENTS:
        assert matches(filter, content) == matches(again, content), content


def read_packets(data: bytes, level: int) -> None:
    at = 0
    try:
        while at < len(data) and (end := mqtt.frame(data, at, PACKET_MAX)):
            read_packet(data[at:end], level)
            at = end
    except Malformed:
        pass


def read_packet(data: bytes, level: int) -> None:
    if data[0] >> 4 == 1:
        mqtt.level_of(data)
    packet = mqtt.read(data, level)
    if not isinstance(packet, mqtt5.PublishPacket):
        return
    letter = Letter(mqtt.keep(data, level))
    assert (letter.qos, letter.retain) == (packet.qos, packet.retain)
    for to in (V3, V5):
        for qos in (0, 1, 2):
            sent = mqtt.read(letter.addressed(to, qos, 7, 1, [300] if to == V5 else []), to)
            assert isinstance(sent, mqtt5.PublishPacket)
            assert (sent.topic, sent.payload) == (packet.topic, packet.payload)
        plain = mqtt.read(letter.plain(to), to)
        assert isinstance(plain, mqtt5.PublishPacket)
        assert (plain.topic, plain.payload) == (packet.topic, packet.payload)


@cache
def codec() -> Codec:
    return Codec()


def read_frames(data: bytes) -> None:
    buffer = bytearray(data)
    try:
        frames = links.unpack(buffer)
    except Refused:
        return
    for frame in frames:
        if isinstance(frame, links.Data):
            for raw in frame.messages:
                try:
                    message = codec().decode(raw)
                except BadMessage:
                    continue
                assert codec().decode(codec().encode(message)) == message


class Brokers:
    """A broker to talk to, used a few times over because it takes long to make."""

    def __init__(self) -> None:
        self.uses = 0
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.toml"
            path.write_text(
                'name = "fuzz"\nscheme = "advertisement_forwarding"\nlinks = [["A", "B"]]\n'
                "[brokers.A]\nmqtt = 1\nlink = 2\nhttp = 3\n"
                "[brokers.B]\nmqtt = 4\nlink = 5\nhttp = 6\n"
            )
            self.network = load(path)
        self.broker = Broker(self.network, 0, NOW)

    def take(self) -> Broker:
        if self.uses % BROKER_USES == 0:
            self.broker = Broker(self.network, 0, NOW)
        self.uses += 1
        return self.broker


@cache
def brokers() -> Brokers:
    return Brokers()


CONNECTS = {
    V3: b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x05\x00\x01c",
    V5: mqtt5.ConnectPacket("c", clean_start=True).write(),
}


def talk_as_client(data: bytes) -> None:
    broker = brokers().take()
    clients = broker.clients
    connection = clients.opened("fuzz:1", NOW)
    assert connection is not None
    level = V3 if data[:1] < b"\x80" else V5
    clients.received(connection, CONNECTS[level] + data[1:], NOW)
    for later in (1, 3_000_000):
        broker.tick(NOW + later)
        broker.flush(NOW + later)
    clients.closed(connection, NOW + 3_000_000)
    broker.flush(NOW + 3_000_000)


def talk_as_peer(data: bytes) -> None:
    """The bytes are messages, each after two bytes of its length."""
    broker = brokers().take()
    wire = broker.wire_opened("fuzz:2", None, NOW)
    hello = links.Hello(links.SPEAKS[1], broker.network.identity, 1, f"x.{brokers().uses}", "", 0)
    broker.wire_received(wire, links.pack(hello), NOW)
    messages, at = [], 0
    while at + 2 < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        messages.append(msgspec.Raw(data[at + 2 : end]))
        at = end
    try:
        frame = links.pack(links.Data(1, 0, 9000, messages))
        arrived = broker.arrived_alone(wire, frame)
        if arrived is not None:
            broker.clients.alone.destinations_from(1, arrived[1])
        broker.wire_received(wire, frame, NOW)
    except msgspec.DecodeError:
        pass  # no frame at all: `frames` sees to those
    for later in (1, 3_000_000):
        broker.tick(NOW + later)
        broker.flush(NOW + later)
    broker.wire_closed(wire, NOW + 3_000_000)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "filter": read_filter,
    "mqtt3": lambda data: read_packets(data, V3),
    "mqtt5": lambda data: read_packets(data, V5),
    "frames": read_frames,
    "client": talk_as_client,
    "peer": talk_as_peer,
}


def seeds(target: str) -> list[bytes]:
    """Inputs to begin with, one of each kind."""
    match target:
        case "filter":
            texts = (
                "a > 1 AND b LIKE 'x%' ESCAPE '!' OR c IS NOT NULL",
                "NOT (a BETWEEN 1 AND 2) AND b IN ('x', 'y') AND c = TRUE",
                "a <> -1.5e3 AND b NOT LIKE '_' OR \"odd name\" IS NULL",
            )
            return [text.encode() for text in texts]
        case "mqtt3":
            return [
                CONNECTS[V3],
                b"\x32\x07\x00\x01a\x00\x01{}\x82\x06\x00\x01\x00\x01#\x00\xa2\x05\x00\x02\x00\x01#",
                b"\xc0\x00\x40\x02\x00\x01\xe0\x00",
                b"\x34\x07\x00\x01a\x00\x05{}\x62\x02\x00\x05\x50\x02\x00\x01\x70\x02\x00\x01",
            ]
        case "mqtt5":
            return [b"".join(packets5()), *packets5()]
        case "frames":
            return [links.pack(links.Data(1, 0, 9, [msgspec.Raw(m) for m in messages()], 0)),
                    links.pack(links.Hello(1, "n#1", 1, "b.0", "", 0)),
                    links.pack(links.Ack(0, 9)) + links.pack(links.Bye("x"))]  # fmt: skip
        case "client":
            level3 = [b"\0" + seeds("mqtt3")[number] for number in (1, 3)]
            return [b"\xff" + packet for packet in packets5()] + level3
        case _:
            framed = [len(m).to_bytes(2, "big") + m for m in messages()]
            return [*framed, b"".join(framed)]


def packets5() -> list[bytes]:
    will = mqtt5.Will("w", payload=b"x", qos=mqtt5.QoS.AT_LEAST_ONCE, will_delay_interval=1)
    once = mqtt5.QoS.AT_LEAST_ONCE
    exactly = mqtt5.QoS.EXACTLY_ONCE
    wanted = mqtt5.TopicFilter("a/+", max_qos=once)
    shared = mqtt5.TopicFilter("$share/g/a/+", max_qos=exactly)
    return [
        mqtt5.ConnectPacket("c", will=will, username="u", password=b"p").write(),
        mqtt5.PublishPacket("a/é", b'{"x": 1}', user_properties=[("k", "1")]).write(),
        mqtt5.PublishPacket(
            "a", b"{}", qos=once, packet_id=3, retain=True, message_expiry_interval=9
        ).write(),
        mqtt5.SubscribePacket(
            1, [wanted], subscription_id=3, user_properties=[("$where", "x > 1")]
        ).write(),
        mqtt5.UnsubscribePacket(2, ["a/+"]).write(),
        mqtt5.PubAckPacket(1).write() + mqtt5.PingReqPacket().write(),
        # Quality 2 both ways, aliases, a shared subscription and what is published to it.
        mqtt5.SubscribePacket(4, [shared, mqtt5.TopicFilter("$SYS/#")]).write()
        + mqtt5.PublishPacket("a/b", b"{}", qos=exactly, packet_id=5, topic_alias=7).write()
        + mqtt5.PublishPacket("", b"{}", topic_alias=7).write()
        + mqtt5.PubRelPacket(5).write()
        + mqtt5.PubRecPacket(1).write()
        + mqtt5.PubCompPacket(1).write(),
        mqtt5.DisconnectPacket(reason_str="é").write(),
        mqtt5.AuthPacket().write(),
    ]


def messages() -> list[bytes]:
    filter = topics.as_filter("a/+", "x > 1")
    letter = mqtt5.PublishPacket("a/b", b'{"x": 2}').write()
    examples = [
        SubscriptionMessage(filter),
        UnsubscriptionMessage(filter),
        AdvertisementMessage(Advertisement("a", filter, "p")),
        PublicationMessage(Publication("p", "1", {"class": "a/b", "x": 2}, letter, 1), 1),
        Wave(1, 1 << 60),
        Retain("a/b", (1, 1), letter, {"x": 1}),
        Members(1, 1 << 60, {"g/a/+": ("a/+", filter, 1, 1)}),
        Handoff(0, "g/a/+", "p", "1", letter, 1),
        Handoff(1, "g/a/+", "p", "1", letter, 1, 1, "k"),
    ]
    return [codec().encode(message) for message in examples]
