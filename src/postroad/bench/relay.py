"""The least that a broker in Python could do: what comes from one client is written to another.

On the event loop that live brokers run on, without any of their code; `bench live` holds their
latency when idle against it. Started as `python -m postroad.bench.relay PORT`.
"""

from __future__ import annotations

import sys
from typing import Any

import uvloop

CONNACK, SUBACK = b"\x20\x03\0\0\0", b"\x90\x04\0\x01\0\0"


class BareProtocol:
    reader: Any = None  # the transport of the last client that subscribed

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if data[0] >> 4 == 1:
            self.transport.write(CONNACK)
        elif data[0] >> 4 == 8:
            BareProtocol.reader = self.transport
            self.transport.write(SUBACK)
        elif BareProtocol.reader is not None:
            BareProtocol.reader.write(data)

    def eof_received(self) -> None:
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        pass


def main() -> None:
    loop: Any = uvloop.new_event_loop()
    loop.run_until_complete(loop.create_server(BareProtocol, "127.0.0.1", int(sys.argv[1])))
    loop.run_forever()


if __name__ == "__main__":
    main()
