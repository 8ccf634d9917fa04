"""MQTT in WebSocket frames, on the same port as without: bytes in, bytes out.

A client that begins with an HTTP request speaks WebSocket. The frames and the handshake are those
of the package `websockets`, whose core has no sockets either; what binary frames hold is one
stream, wherever frames begin and end.
"""

from __future__ import annotations

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

SUBPROTOCOL = Subprotocol("mqtt")


class WebSocket:
    """One client's connection, after its first byte."""

    def __init__(self, frame_max: int) -> None:
        self._protocol = ServerProtocol(subprotocols=[SUBPROTOCOL], max_size=frame_max)
        self._open = False

    def received(self, data: bytes) -> bytes:
        """What of the client's bytes is MQTT."""
        protocol = self._protocol
        protocol.receive_data(data)
        stream = []
        for event in protocol.events_received():
            if isinstance(event, Request):
                self._answer(event)
            elif isinstance(event, Frame) and event.opcode in (Opcode.BINARY, Opcode.CONT):
                stream.append(bytes(event.data))
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                protocol.fail(CloseCode.UNSUPPORTED_DATA, "MQTT is sent in binary frames")
        return b"".join(stream)

    def _answer(self, request: Request) -> None:
        protocol = self._protocol
        response = protocol.accept(request)
        if response.status_code == 101 and protocol.subprotocol != SUBPROTOCOL:
            response = protocol.reject(400, "the WebSocket subprotocol must be mqtt\n")
        protocol.send_response(response)
        self._open = response.status_code == 101

    def send(self, data: bytes) -> None:
        """Frame what the broker has written."""
        if self._open:
            self._protocol.send_binary(data)

    def close(self) -> None:
        """The broker has written all it had to."""
        if self._open:
            self._open = False
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)

    def take(self) -> bytes:
        """What is to be written to the client."""
        return b"".join(self._protocol.data_to_send())

    @property
    def over(self) -> bool:
        """Whether the connection is to be closed once everything is written."""
        protocol = self._protocol
        failed = protocol.handshake_exc is not None or protocol.parser_exc is not None
        return failed or protocol.close_expected()
