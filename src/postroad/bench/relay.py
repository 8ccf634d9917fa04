"""The least that a broker in Python could do: what comes from one client is written to another.

On the event loop that live brokers run on, without any of their code; `bench live` holds their
latency when idle against it. Started as `python -m postroad.bench.relay PORT`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

CONNACK, SUBACK = b"\x20\x03\0\0\0", b"\x90\x04\0\x01\0\0"


class Relay(asyncio.Protocol):
    reader: asyncio.Transport | None = None  # the last that subscribed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if data[0] >> 4 == 1:
            self.transport.write(CONNACK)
        elif data[0] >> 4 == 8:
            Relay.reader = self.transport
            self.transport.write(SUBACK)
        elif Relay.reader is not None:
            Relay.reader.write(data)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Relay, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
