"""MQTT packets as bytes: level 5 through the package `mqtt5`, level 3.1.1 through our own codec.

Both speak the packet classes of `mqtt5`, so what is above never asks which level a client has.
`Letter` is a publication ready to be delivered: cut into parts once, put together per level and
quality of service, so that a fan-out costs one encoding for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import mqtt5
from mqtt5 import Packet, PublishPacket, QoS

V3: Final = 4  # the protocol level that MQTT 3.1.1 writes into CONNECT
V5: Final = 5
PACKET_IDS: Final = 65_535
TOPIC_MAX: Final = 65_535  # bytes
PROPERTIES_MAX: Final = 32_768  # bytes, of a PUBLISH
NEVER: Final = 0xFFFFFFFF  # a session expiry that means never
EXPIRY: Final = 0x02  # the property of a PUBLISH that says when it expires
ALIAS: Final = 0x23  # and that which stands for its topic


# What mqtt5 says of a packet, and the reason code that the standard has for it.
_CODES: Final = {
    "Invalid topic": 0x90,
    "Invalid topic filter": 0x8F,
    "Topic alias must be set if topic is empty": 0x82,
    "Topic alias must be != 0": 0x94,
}


class Malformed(Exception):
    """Bytes that are no packet, or not one that may come now; `code` is the standard's reason."""

    def __init__(self, text: str, code: int = 0x81) -> None:
        super().__init__(text)
        self.code = code


def frame(data: bytes | bytearray, at: int, size_max: int) -> int:
    """Where the packet that begins at `at` ends; 0 if more bytes are needed."""
    end = at + length(data, at, size_max)
    return end if at < end <= len(data) else 0


def length(data: bytes | bytearray, at: int, size_max: int) -> int:
    """How long the packet that begins at `at` is; 0 if that cannot be known yet."""
    end, shift, rest = at + 1, 0, 0
    while True:
        if end >= len(data):
            return 0
        byte = data[end]
        end += 1
        rest |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 21:
            raise Malformed("the remaining length has more than four bytes")
    if end + rest - at > size_max:
        raise Malformed(f"a packet of {end + rest - at} bytes; {size_max} are allowed", 0x95)
    return end + rest - at


def level_of(data: bytes) -> int:
    """The protocol level of a CONNECT packet."""
    if data[0] != 0x10:
        raise Malformed("the first packet is not CONNECT", 0x82)
    at = 1
    while data[at] & 128:
        at += 1
    length = int.from_bytes(data[at + 1 : at + 3], "big")
    name, level = data[at + 3 : at + 3 + length], data[at + 3 + length : at + 4 + length]
    if name != b"MQTT" or not level:
        if name == b"MQIsdp":
            return 3
        raise Malformed("CONNECT names another protocol", 0x84)
    return level[0]


_NAMING: Final = (1, 8, 10)  # CONNECT, SUBSCRIBE, UNSUBSCRIBE: their strings are names


def read(data: bytes, level: int) -> Packet:
    """The packet that these bytes are, all of them."""
    if data[0] & 0xFE == 0x38:
        raise Malformed("DUP at quality 0")
    try:
        if level == V3:
            return _read3(data)
        kind = data[0] >> 4
        if kind == 3 and len(data) > PROPERTIES_MAX:
            _check_properties(data)
        if not data.isascii() or kind in _NAMING:
            _check_texts(data)
        packet, used = mqtt5.read(memoryview(data))
    except (ValueError, IndexError, OverflowError) as error:
        raise Malformed(str(error), _CODES.get(str(error), 0x81)) from None
    if used != len(data):
        raise Malformed("bytes after the packet's end")
    if type(packet) is PublishPacket:
        if len(data) - _payload_at(data) != len(packet.payload):
            raise Malformed("the properties are longer than they say")
        texts = [text for pair in packet.user_properties for text in pair]
        texts += (packet.topic, packet.content_type or "", packet.response_topic or "")
        if any("\0" in text for text in texts):
            raise Malformed("a string has a null character")
        check_response_topic(packet.response_topic)
    if getattr(packet, "packet_id", None) == 0:
        raise Malformed("packet identifier 0", 0x82)
    return packet


def check_response_topic(topic: str | None) -> None:
    if topic is not None and ("+" in topic or "#" in topic):
        raise Malformed("a wildcard in the response topic", 0x82)


def _check_properties(data: bytes) -> None:
    """Each property takes time to read, and may be an attribute that every filter asks for."""
    at = 1
    while data[at] & 128:
        at += 1
    at += 3 + (data[at + 1] << 8 | data[at + 2]) + (2 if data[0] & 6 else 0)
    _, size = _varint(data, at)
    if size > PROPERTIES_MAX:
        raise Malformed(f"properties of {size} bytes; {PROPERTIES_MAX} are allowed", 0x95)


def _payload_at(data: bytes) -> int:
    """Where the payload of a level 5 PUBLISH begins, by its lengths."""
    at = 1
    while data[at] & 128:
        at += 1
    at += 3 + (data[at + 1] << 8 | data[at + 2]) + (2 if data[0] & 6 else 0)
    at, length = _varint(data, at)
    return at + length


# The usual answers, alike at both levels.


def puback(packet_id: int) -> bytes:
    return b"\x40\x02" + packet_id.to_bytes(2, "big")


def pubrec(packet_id: int) -> bytes:
    return b"\x50\x02" + packet_id.to_bytes(2, "big")


def pubrel(packet_id: int) -> bytes:
    return b"\x62\x02" + packet_id.to_bytes(2, "big")


def pubcomp(packet_id: int) -> bytes:
    return b"\x70\x02" + packet_id.to_bytes(2, "big")


def write(packet: Packet, level: int) -> bytes:
    """The packet's bytes; none for what 3.1.1 has no packet for."""
    return packet.write() if level == V5 else _write3(packet)


def bare(packet: Packet) -> Packet:
    """An answer without what it says besides its reason code."""
    if isinstance(packet, mqtt5.SubAckPacket):
        return mqtt5.SubAckPacket(packet.packet_id, packet.reason_codes)
    if isinstance(packet, mqtt5.DisconnectPacket):
        return mqtt5.DisconnectPacket(
            reason_code=packet.reason_code, server_reference=packet.server_reference
        )
    if isinstance(packet, mqtt5.ConnAckPacket) and int(packet.reason_code):
        return mqtt5.ConnAckPacket(reason_code=packet.reason_code)
    return packet


class Letter:
    """A publication as it is kept and sent between brokers: a level 5 PUBLISH without packet id.

    The first byte keeps the quality of service and the retain flag it was published with.
    """

    __slots__ = ("_plain3", "_plain5", "bytes", "payload", "properties", "qos", "retain", "topic")

    def __init__(self, kept: bytes) -> None:
        """Raises `Malformed` for bytes of a peer that are no letter."""
        try:
            self._cut(kept)
        except IndexError:
            raise Malformed("the letter ends too early") from None

    def _cut(self, kept: bytes) -> None:
        self.bytes = kept
        first = kept[0]
        self.qos = first >> 1 & 3
        self.retain = first & 1
        at = 1
        while kept[at] & 128:
            at += 1
        at += 1
        topic_end = at + 2 + (kept[at] << 8 | kept[at + 1])
        properties_end, length = _varint(kept, topic_end)
        properties_end += length
        self.topic = kept[at:topic_end]  # with its two bytes of length
        self.properties = kept[topic_end:properties_end]  # with their length
        self.payload = kept[properties_end:]
        self._plain5: bytes | None = None
        self._plain3: bytes | None = None

    @property
    def expiry_s(self) -> int | None:
        """After how many seconds it is not to be delivered any more."""
        at = self._expiry_at()
        return None if at is None else int.from_bytes(self.properties[at : at + 4], "big")

    def _expiry_at(self) -> int | None:
        if b"\x02" not in self.properties:
            return None
        try:
            return _Reader(self.properties, 0).properties().get(EXPIRY)
        except (Malformed, IndexError):
            return None  # of a peer that checks less than we do

    def expiring(self, seconds: int) -> Letter:
        """The same with another expiry, of which it has one."""
        at = self._expiry_at()
        assert at is not None
        at += len(self.bytes) - len(self.payload) - len(self.properties)
        return Letter(self.bytes[:at] + seconds.to_bytes(4, "big") + self.bytes[at + 4 :])

    def plain(self, level: int) -> bytes:
        """At most once, not retained: the same bytes for every such subscriber."""
        if level == V5:
            plain = self._plain5
            if plain is None:
                kept = self.bytes
                plain = self._plain5 = kept if kept[0] == 0x30 else b"\x30" + kept[1:]
            return plain
        plain = self._plain3
        if plain is None:
            plain = self._plain3 = framed(0x30, self.topic + self.payload)
        return plain

    def addressed(
        self,
        level: int,
        qos: int,
        packet_id: int,
        retain: int,
        identifiers: list[int],
        duplicate: bool = False,
        alias: int = 0,
        named: bool = True,
    ) -> bytes:
        """The bytes for one subscriber in particular; with an alias the topic need not be named."""
        first = 0x30 | duplicate << 3 | qos << 1 | retain
        number = packet_id.to_bytes(2, "big") if qos else b""
        if level == V3:
            return framed(first, b"".join((self.topic, number, self.payload)))
        properties = self.properties
        if identifiers or alias:
            start, _ = _varint(properties, 0)
            added = b"".join(b"\x0b" + _as_varint(number) for number in identifiers)
            if alias:
                added += b"\x23" + alias.to_bytes(2, "big")
            properties = _as_varint(len(properties) - start + len(added)) + added
            properties += self.properties[start:]
        topic = self.topic if named else b"\0\0"
        return framed(first, b"".join((topic, number, properties, self.payload)))


def usual(data: bytes, at: int, topic: str) -> tuple[int, int, int]:
    """Where body, topic and packet end of a PUBLISH of MQTT 5 that begins at `at`, has quality 0,
    this topic and no properties; `Malformed` if it is anything else."""
    end = frame(data, at, len(data) - at)
    body = at + 2
    while body <= end and data[body - 1] > 127:
        body += 1
    field = topic_field(topic)
    topic_end = body + len(field)
    if not end or data[at] != 0x30 or data[body : topic_end + 1] != field + b"\0":
        raise Malformed("not a publication of a run")
    return body, topic_end, end


def topic_field(topic: str) -> bytes:
    """A topic as it stands in a PUBLISH."""
    name = topic.encode()
    if len(name) > TOPIC_MAX:
        raise Malformed("a topic is too long")
    return len(name).to_bytes(2, "big") + name


def goes_alone(data: bytes, field: bytes) -> bool:
    """Whether some bytes are one PUBLISH of quality 0, its length in at most two bytes, that begins
    with this field of a topic (and, of MQTT 5, no properties)."""
    size = len(data)
    if size < 5 or data[0] != 0x30:
        return False
    if data[1] < 128:
        return data[1] == size - 2 and data.startswith(field, 2)
    length = data[1] & 127 | data[2] << 7
    return 0 < data[2] < 128 and length == size - 3 and data.startswith(field, 3)


def alike(data: bytes, at: int, length: int, head: int, most: int) -> int:
    """How many whole packets of this length, in a row from this place on, begin with the same bytes
    as the first, up to `head`; at least that one, and at most so many.

    Many are compared byte by byte of their heads, each in all of them at once.
    """
    first = data[at : at + head]
    if most < 2 or not data.startswith(first, at + length):
        return 1
    count = min(most, (len(data) - at) // length)
    if count <= head:
        for k in range(2, count):
            if not data.startswith(first, at + k * length):
                return k
        return count
    for place, byte in enumerate(first, at):
        column = data[place : place + count * length : length]
        if column.count(byte) < count:
            count -= len(column.lstrip(bytes((byte,))))
    return count


def next_usual(data: bytes, at: int) -> tuple[bytes, bytes, bytes]:
    """A packet as of `usual`, whatever its topic, that stands at this place of a batch: the bytes
    of the topic, the packet and the payload."""
    size = len(data)
    if at + 4 >= size or data[at] != 0x30:
        raise Malformed("not a publication of a batch")
    body, length = at + 2, data[at + 1]
    if length >= 128:
        length = length & 127 | data[body] << 7
        body += 1
        if data[body - 1] > 127:
            raise Malformed("a publication of a batch is too long")
    end = body + length
    topic_end = body + 2 + (data[body] << 8 | data[body + 1])
    if end > size or topic_end >= end or data[topic_end]:
        raise Malformed("not a publication of a batch")
    return data[body + 2 : topic_end], data[at:end], data[topic_end + 1 : end]


def usuals(run: bytes) -> Iterator[bytes]:
    """The packets of a run of PUBLISH packets that were read before, their lengths in at most two
    bytes each."""
    at, size = 0, len(run)
    while at < size:
        length = run[at + 1]
        end = at + 2 + length if length < 128 else at + 3 + (length & 127 | run[at + 2] << 7)
        yield run[at:end]
        at = end


def is_plain(kept: bytes) -> bool:
    """Whether a letter is delivered as it is kept: at most once, not retained, no properties."""
    if len(kept) < 5 or kept[0] != 0x30:
        return False
    at = 2 if kept[1] < 128 else 3
    if kept[at - 1] >= 128:
        return False
    topic_end = at + 2 + (kept[at] << 8 | kept[at + 1])
    return topic_end < len(kept) and kept[topic_end] == 0


def as_of_other_level(packet: bytes, old: bool) -> bytes:
    """A PUBLISH of quality 0 without properties, its length in at most two bytes: an old one, of
    MQTT 3.1.1, as MQTT 5 has it, and the other way round."""
    at = 2 if packet[1] < 128 else 3
    topic_end = at + 2 + (packet[at] << 8 | packet[at + 1])
    if old:
        return framed(packet[0], packet[at:topic_end] + b"\0" + packet[topic_end:])
    return framed(packet[0], packet[at:topic_end] + packet[topic_end + 1 :])


def run_of_other_level(run: bytes, old: bool) -> bytes:
    """The same of packets in a row."""
    return b"".join(as_of_other_level(packet, old) for packet in usuals(run))


def keep(data: bytes, level: int) -> bytes:
    """The bytes of a `Letter` from those of a client's PUBLISH."""
    first = data[0]
    if level == V5 and not first & 6:
        return data
    at = 1
    while data[at] & 128:
        at += 1
    at += 1
    topic_end = at + 2 + (data[at] << 8 | data[at + 1])
    rest = data[topic_end + 2 :] if first & 6 else data[topic_end:]
    if level == V3:
        rest = b"\0" + rest
    return framed(first & ~8, data[at:topic_end] + rest)


def unaliased(data: bytes, topic: str) -> bytes:
    """A level 5 PUBLISH that was read before, with this topic and without its topic alias."""
    at = 1
    while data[at] & 128:
        at += 1
    at += 1
    topic_end = at + 2 + (data[at] << 8 | data[at + 1])
    number_end = topic_end + (2 if data[0] & 6 else 0)
    start, length = _varint(data, number_end)
    alias_at = _Reader(data, number_end).properties()[ALIAS] - 1
    properties = data[start:alias_at] + data[alias_at + 3 : start + length]
    name = topic.encode()
    body = len(name).to_bytes(2, "big") + name + data[topic_end:number_end]
    body += _as_varint(len(properties)) + properties + data[start + length :]
    return framed(data[0], body)


def framed(first: int, body: bytes) -> bytes:
    """A packet of its first byte and all that comes after its length."""
    length = len(body)
    if length < 128:
        return bytes((first, length)) + body
    return bytes((first,)) + _as_varint(length) + body


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Where the variable byte integer ends, and its value."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return at, value
        shift += 7


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# Where the strings of a level 5 packet are. The Rust core answers one that is not UTF-8 with a
# panic, which is slow and noisy, so they are looked at before it sees them.

_SIZES: Final = {  # of properties that are numbers
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
}
_TEXTS: Final = {0x03: 1, 0x08: 1, 0x12: 1, 0x15: 1, 0x1A: 1, 0x1C: 1, 0x1F: 1, 0x26: 2}
_BINARIES: Final = (0x09, 0x16)


def _check_texts(data: bytes) -> None:
    kind, flags = data[0] >> 4, data[0] & 15
    at = 1
    while data[at] & 128:
        at += 1
    reader = _Reader(data, at + 1)
    if kind == 3:
        reader.text()
        reader.take(2 if flags & 6 else 0)
        reader.properties()
    elif kind == 1:
        reader.binary()
        reader.take(1)
        flags = reader.int1()
        _check_connect(flags)
        reader.take(2)
        reader.properties()
        reader.text()
        if flags & 4:
            reader.properties()
            reader.text()
            reader.binary()
        if flags & 0x80:
            reader.text()
    elif kind in (8, 10):
        reader.take(2)
        reader.properties()
        while not reader.done():
            reader.text()
            if kind == 8 and reader.int1() & 0xC0:
                raise Malformed("reserved bits of a subscription's options are set")
    elif 4 <= kind <= 7 or kind >= 14:
        reader.take(2 if kind < 14 else 0)
        if not reader.done():
            reader.take(1)
        if not reader.done():
            reader.properties()


# MQTT 3.1.1.


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise Malformed("the packet ends too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def int1(self) -> int:
        return self.take(1)[0]

    def int2(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def binary(self) -> bytes:
        return self.take(self.int2())

    def text(self) -> str:
        try:
            text = self.binary().decode()
        except UnicodeDecodeError:
            raise Malformed("a string is not UTF-8") from None
        if "\0" in text:
            raise Malformed("a string has a null character")
        return text

    def properties(self) -> dict[int, int]:
        """Look at the strings among a level 5 packet's properties; where each value begins."""
        start, length = _varint(self.data, self.at)
        self.at = start
        end = start + length
        offsets: dict[int, int] = {}
        while self.at < end:
            name = self.int1()
            offsets[name] = self.at
            if name in _SIZES:
                self.take(_SIZES[name])
            elif name in _TEXTS:
                for _ in range(_TEXTS[name]):
                    self.text()
            elif name in _BINARIES:
                self.binary()
            elif name == 0x0B:
                self.at, _ = _varint(self.data, self.at)
            else:
                raise Malformed(f"no property has the number {name}")
        return offsets

    def done(self) -> bool:
        return self.at == len(self.data)


_ANSWERS3: Final = {
    4: mqtt5.PubAckPacket,
    5: mqtt5.PubRecPacket,
    6: mqtt5.PubRelPacket,
    7: mqtt5.PubCompPacket,
}


def _read3(data: bytes) -> Packet:
    kind, flags = data[0] >> 4, data[0] & 15
    at = 1
    while data[at] & 128:
        at += 1
    reader = _Reader(data, at + 1)
    if kind != 3 and flags != (2 if kind in (6, 8, 10) else 0):
        raise Malformed("reserved flags are set")
    packet: Packet
    if kind == 3:
        return _publish3(reader, flags)
    if kind == 1:
        packet = _connect3(reader)
    elif kind in _ANSWERS3:
        packet = _ANSWERS3[kind](_packet_id(reader))
    elif kind == 8:
        number = _packet_id(reader)
        topics: list[mqtt5.TopicFilter] = []
        while not reader.done() or not topics:
            pattern, qos = reader.text(), reader.int1()
            if qos > 2:
                raise Malformed("a quality of service above 2")
            topics.append(mqtt5.TopicFilter(pattern, max_qos=QoS(qos), retain_as_published=False))
        packet = mqtt5.SubscribePacket(number, topics)
    elif kind == 10:
        number, patterns = _packet_id(reader), [reader.text()]
        while not reader.done():
            patterns.append(reader.text())
        packet = mqtt5.UnsubscribePacket(number, patterns)
    elif kind == 12:
        packet = mqtt5.PingReqPacket()
    elif kind == 14:
        packet = mqtt5.DisconnectPacket()
    else:
        raise Malformed(f"packet type {kind} has no place here", 0x82)
    if not reader.done():
        raise Malformed("bytes after the packet's end")
    return packet


def _packet_id(reader: _Reader) -> int:
    number = reader.int2()
    if not number:
        raise Malformed("packet identifier 0", 0x82)
    return number


def _publish3(reader: _Reader, flags: int) -> PublishPacket:
    qos = flags >> 1 & 3
    if qos == 3:
        raise Malformed("a quality of service above 2")
    topic = reader.text()
    number = _packet_id(reader) if qos else None
    return PublishPacket(
        topic,
        reader.data[reader.at :],
        qos=QoS(qos),
        retain=bool(flags & 1),
        duplicate=bool(flags & 8),
        packet_id=number,
    )


def _check_connect(flags: int) -> None:
    if flags & 1 or (flags >> 3 & 3) == 3 or (flags & 0x38 and not flags & 4):
        raise Malformed("CONNECT's flags contradict each other")


def _connect3(reader: _Reader) -> mqtt5.ConnectPacket:
    reader.binary(), reader.int1()  # name and level, seen already
    flags, keep_alive, client_id = reader.int1(), reader.int2(), reader.text()
    _check_connect(flags)
    will = None
    if flags & 4:
        topic, payload = reader.text(), reader.binary()
        will = mqtt5.Will(
            topic, payload=payload, qos=QoS(flags >> 3 & 3), retain=bool(flags & 0x20)
        )
    username = reader.text() if flags & 0x80 else None
    password = reader.binary() if flags & 0x40 else None
    clean = bool(flags & 2)
    return mqtt5.ConnectPacket(
        client_id,
        username=username,
        password=password,
        clean_start=clean,
        will=will,
        keep_alive=keep_alive,
        session_expiry_interval=0 if clean else NEVER,
    )


_CONNACK3 = {0x00: 0, 0x84: 1, 0x85: 2, 0x86: 4, 0x87: 5}


def _write3(packet: Packet) -> bytes:
    if isinstance(packet, mqtt5.ConnAckPacket):
        code = _CONNACK3.get(int(packet.reason_code), 3)
        return bytes((0x20, 2, packet.session_present, code))
    if isinstance(packet, mqtt5.PubAckPacket):
        return puback(packet.packet_id)
    if isinstance(packet, mqtt5.PubRecPacket):
        return pubrec(packet.packet_id)
    if isinstance(packet, mqtt5.PubRelPacket):
        return pubrel(packet.packet_id)
    if isinstance(packet, mqtt5.PubCompPacket):
        return pubcomp(packet.packet_id)
    if isinstance(packet, mqtt5.SubAckPacket):
        codes = bytes(min(int(code), 0x80) for code in packet.reason_codes)
        return framed(0x90, packet.packet_id.to_bytes(2, "big") + codes)
    if isinstance(packet, mqtt5.UnsubAckPacket):
        return b"\xb0\x02" + packet.packet_id.to_bytes(2, "big")
    if isinstance(packet, mqtt5.PingRespPacket):
        return b"\xd0\x00"
    assert isinstance(packet, mqtt5.DisconnectPacket), packet
    return b""
