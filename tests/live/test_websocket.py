"""MQTT in WebSocket frames, by the statements of the standard and RFC 6455."""

from __future__ import annotations

import pytest

from postroad.live.edge.websocket import WebSocket

REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n%s\r\n"
)
MQTT = b"Sec-WebSocket-Protocol: mqttv3.1, mqtt\r\n"


def masked(opcode: int, data: bytes, last: bool = True) -> bytes:
    """One short frame of a client, as RFC 6455 has it, with a mask of zeros."""
    return bytes((last << 7 | opcode, 0x80 | len(data))) + bytes(4) + data


def test_websocket_frames_are_one_stream_of_bytes() -> None:
    """MQTT-6.0.0-2, -4: packets lie across frames; the subprotocol is mqtt."""
    web = WebSocket(1000)
    request = REQUEST % MQTT
    assert web.received(request[:40]) + web.received(request[40:]) == b""
    answer = web.take()
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"Sec-WebSocket-Protocol: mqtt\r\n" in answer
    stream = masked(2, b"ab") + masked(2, b"cd", False) + masked(0, b"e") + masked(9, b"ping")
    assert b"".join(web.received(bytes((byte,))) for byte in stream) == b"abcde"
    assert web.take() == b"\x8a\x04ping"
    web.send(b"xyz")
    assert web.take() == b"\x82\x03xyz"
    assert not web.over
    web.close()
    assert web.take() == b"\x88\x02\x03\xe8"


@pytest.mark.parametrize(
    ("request_bytes", "frame"),
    [
        (REQUEST % MQTT, masked(1, b"text")),  # MQTT-6.0.0-1
        (REQUEST % b"", b""),  # MQTT-6.0.0-3
        (REQUEST % b"Sec-WebSocket-Protocol: chat\r\n", b""),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b""),
        (b"GARBAGE\r\n\r\n", b""),
        (REQUEST % MQTT, masked(2, b"x" * 101)),  # more than a frame may hold
    ],
)
def test_what_is_no_mqtt_over_websocket_is_closed(request_bytes: bytes, frame: bytes) -> None:
    """MQTT-6.0.0-1, -3: only binary frames, and only of who offers mqtt."""
    web = WebSocket(100)
    assert web.received(request_bytes + frame) == b""
    assert web.over
