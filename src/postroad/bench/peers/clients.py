"""Clients that are a socket and the bytes of a protocol, so that brokers are what is measured.

Every payload has one `MARK`, which occurs nowhere else: deliveries are counted by it, whatever the
protocol wraps around them.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod

import mqtt5

MARK = b"~"
WAIT_S = 30.0


def payload(number: int, size: int) -> bytes:
    """JSON of about this size, at least 40 bytes, with a mark."""
    return b'{"n": %d, "end": "~%s"}' % (1_000_000_000 + number, b"x" * max(0, size - 40))


class WireClient(ABC):
    """`topic` is written with `/` between its levels, whatever the protocol has."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.count = 0  # of subscriptions
        self.greet(name)

    def until(self, *ends: bytes) -> bytes:
        """Read up to one of these; what came."""
        while True:
            for end in ends:
                at = self.buffer.find(end)
                if at >= 0:
                    taken, self.buffer = self.buffer[: at + len(end)], self.buffer[at + len(end) :]
                    return taken
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError(f"closed by the broker after {self.buffer[:200]!r}")
            self.buffer += data

    def take(self, size: int) -> bytes:
        while len(self.buffer) < size:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("closed by the broker")
            self.buffer += data
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def close(self) -> None:
        self.socket.close()

    @abstractmethod
    def greet(self, name: str) -> None: ...

    @abstractmethod
    def subscribe(self, topic: str, where: str | None = None) -> None:
        """Subscribe and wait until the broker has said so."""

    @staticmethod
    @abstractmethod
    def publication(topic: str, content: bytes, attributes: dict[str, object]) -> bytes: ...


class Mqtt(WireClient):
    """What both levels of MQTT have in common."""

    def packet(self) -> bytes:
        first = self.take(1)
        length, shift = 0, 0
        while True:
            byte = self.take(1)[0]
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return first + self.take(length)

    def await_kind(self, kind: int) -> bytes:
        while (packet := self.packet())[0] >> 4 != kind:
            pass
        return packet


class Mqtt3(Mqtt):
    def greet(self, name: str) -> None:
        body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2, "big") + name.encode()
        self.socket.sendall(bytes((0x10, len(body))) + body)
        answer = self.await_kind(2)
        if answer[-1]:
            raise ConnectionError(f"CONNACK {answer[-1]}")

    def subscribe(self, topic: str, where: str | None = None) -> None:
        assert where is None, "3.1.1 has no filters"
        self.count += 1
        name = topic.encode()
        body = self.count.to_bytes(2, "big") + len(name).to_bytes(2, "big") + name + b"\x00"
        self.socket.sendall(bytes((0x82, len(body))) + body)
        self.await_kind(9)

    @staticmethod
    def publication(topic: str, content: bytes, attributes: dict[str, object]) -> bytes:
        name = topic.encode()
        body = len(name).to_bytes(2, "big") + name + content
        length = len(body)
        size = bytes((length,)) if length < 128 else bytes((length & 127 | 128, length >> 7))
        return b"\x30" + size + body


class Mqtt5(Mqtt):
    def greet(self, name: str) -> None:
        self.socket.sendall(mqtt5.ConnectPacket(name, clean_start=True).write())
        self.await_kind(2)

    def subscribe(self, topic: str, where: str | None = None) -> None:
        self.count += 1
        wanted = mqtt5.TopicFilter(topic, max_qos=mqtt5.QoS.AT_MOST_ONCE, retain_as_published=False)
        properties = [] if where is None else [("$where", where)]
        packet = mqtt5.SubscribePacket(self.count, [wanted], user_properties=properties)
        self.socket.sendall(packet.write())
        self.await_kind(9)

    @staticmethod
    def publication(topic: str, content: bytes, attributes: dict[str, object]) -> bytes:
        return mqtt5.PublishPacket(topic, content).write()


class Nats(WireClient):
    def greet(self, name: str) -> None:
        self.until(b"\r\n")  # INFO
        self.socket.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
        self.until(b"PONG\r\n")

    def subscribe(self, topic: str, where: str | None = None) -> None:
        assert where is None, "NATS has no filters"
        self.count += 1
        self.socket.sendall(b"SUB %s %d\r\nPING\r\n" % (_subject(topic), self.count))
        self.until(b"PONG\r\n")

    @staticmethod
    def publication(topic: str, content: bytes, attributes: dict[str, object]) -> bytes:
        return b"PUB %s %d\r\n%s\r\n" % (_subject(topic), len(content), content)


class Stomp(WireClient):
    def greet(self, name: str) -> None:
        self.socket.sendall(b"CONNECT\naccept-version:1.1\nhost:localhost\n\n\0")
        self.until(b"\0\n")

    def subscribe(self, topic: str, where: str | None = None) -> None:
        self.count += 1
        lines = [f"id:{self.count}", f"destination:/topic/{topic}", "ack:auto"]
        lines += [f"receipt:{self.count}"] + ([] if where is None else [f"selector:{where}"])
        self.socket.sendall(("SUBSCRIBE\n" + "\n".join(lines) + "\n\n\0").encode())
        self.until(b"receipt-id:%d\n" % self.count)
        self.until(b"\0\n")

    @staticmethod
    def publication(topic: str, content: bytes, attributes: dict[str, object]) -> bytes:
        lines = [f"destination:/topic/{topic}", f"content-length:{len(content)}"]
        lines += [f"{name}:{value}" for name, value in attributes.items()]
        return ("SEND\n" + "\n".join(lines) + "\n\n").encode() + content + b"\0"


def _subject(topic: str) -> bytes:
    return topic.replace("/", ".").encode()
