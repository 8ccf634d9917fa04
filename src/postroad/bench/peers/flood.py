"""`python -m postroad.bench.peers.flood PROTOCOL PORT READERS`: saturate a broker until input ends.

Prints a line when it has begun.
"""

from __future__ import annotations

import selectors
import sys
from typing import Any

from postroad.bench.peers import clients
from postroad.bench.peers.clients import WireClient

CHUNK = 1 << 16


def main() -> None:
    protocol, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    speaks: type[WireClient] = getattr(clients, protocol)
    readers = [speaks(port, f"flooded{n}") for n in range(count)]
    for reader in readers:
        reader.subscribe("flood")
    publisher = speaks(port, "flood")
    packet = speaks.publication("flood", clients.payload(0, 64), {})
    data = memoryview(packet * (CHUNK // len(packet)))
    chosen = selectors.DefaultSelector()
    publisher.socket.setblocking(False)
    chosen.register(publisher.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
    for reader in readers:
        reader.socket.setblocking(False)
        chosen.register(reader.socket, selectors.EVENT_READ)
    chosen.register(sys.stdin, selectors.EVENT_READ)
    at, begun = 0, False
    while True:
        for key, events in chosen.select():
            ready: Any = key.fileobj
            if ready is sys.stdin:
                return
            if events & selectors.EVENT_WRITE:
                at = (at + ready.send(data[at:])) % len(data)
            if events & selectors.EVENT_READ and not ready.recv(1 << 20):
                sys.exit("the broker closed a connection")
            if not begun and ready is not publisher.socket:
                begun = True
                print("begun", flush=True)


if __name__ == "__main__":
    main()
