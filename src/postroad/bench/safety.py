"""The price of safety: publications of QoS 1 or 2 over a chain of three brokers, end to end.

With and without a store (one transaction on disk per turn of a broker's loop, PUBACK only when
the last broker has it on its disk) and TLS (clients and links), and with a spare link besides a
store (publications are kept once more, in case the tree changes), all in one run. Both clients have
sessions that outlive their connections; the subscriber acknowledges everything. Every broker on the
way does the same for a publication, so what it takes of all of them should grow with the chain.
"""

from __future__ import annotations

import socket
import ssl
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import mqtt5

from postroad.bench import growth
from postroad.bench.live import brokers, cpu_s
from postroad.live.edge import mqtt
from postroad.live.operations import demo_certificates

PUBLICATIONS = 4_000
WINDOW = 500  # not acknowledged at a time
ALONE = 200  # published one at a time
PAYLOAD = 64
TOPIC = "chain/a"
CHAIN = 3
CHAINS = (2, CHAIN, 6)
CASES = (  # store, TLS, a spare link, quality
    (False, False, False, 1), (False, True, False, 1), (True, False, False, 1),
    (True, True, False, 1), (True, False, True, 1), (False, False, False, 2),
    (True, False, False, 2),
)  # fmt: skip


class SocketClient:
    """A socket with a session."""

    def __init__(self, port: int, name: str, tls: ssl.SSLContext | None) -> None:
        plain = socket.create_connection(("127.0.0.1", port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self.buffer = b""
        hello = mqtt5.ConnectPacket(name, clean_start=True, session_expiry_interval=600)
        self.socket.sendall(hello.write())
        assert self.packets()[0][0] >> 4 == 2

    def packets(self) -> list[bytes]:
        """At least one packet, and all that came with it."""
        complete: list[bytes] = []
        while not complete:
            data = self.socket.recv(1 << 16)
            assert data, "the broker closed the connection"
            self.buffer += data
            at = 0
            while end := mqtt.frame(self.buffer, at, 1 << 28) if at < len(self.buffer) else 0:
                complete.append(self.buffer[at:end])
                at = end
            self.buffer = self.buffer[at:]
        return complete


def listen(client: SocketClient, count: int) -> None:
    """Acknowledge so many publications."""
    while count > 0:
        answers = []
        for data in client.packets():
            packet, _ = mqtt5.read(memoryview(data))
            if isinstance(packet, mqtt5.PublishPacket):
                assert packet.packet_id is not None
                answers.append(mqtt.puback(packet.packet_id))
                if packet.qos == 2:
                    answers[-1] = mqtt.pubrec(packet.packet_id)
                count -= 1
            elif isinstance(packet, mqtt5.PubRelPacket):
                answers.append(mqtt.pubcomp(packet.packet_id))
        client.socket.sendall(b"".join(answers))


def payload() -> bytes:
    return b'{"n": 1, "pad": "%s"}' % (b"x" * PAYLOAD)


def windowed(
    count: int, window: int, send: Callable[[range], None], answered: Callable[[], list[int]]
) -> list[float]:
    """Send so many, by number from 1, at most `window` unacknowledged; how long each took."""
    sent: dict[int, float] = {}
    took: list[float] = []
    number = 0
    while len(took) < count:
        more = min(window - len(sent), count - number)
        if more:
            batch = range(number + 1, number + more + 1)
            sent |= dict.fromkeys(batch, time.perf_counter())
            number += more
            send(batch)
        took += [time.perf_counter() - sent.pop(each) for each in answered()]
    return took


def publish(client: SocketClient, count: int, window: int, qos: int) -> list[float]:
    """Publish so many, at most `window` unacknowledged; how long each acknowledgement took."""
    content, quality = payload(), mqtt5.QoS(qos)

    def send(batch: range) -> None:
        packets = (
            mqtt5.PublishPacket(TOPIC, content, qos=quality, packet_id=each) for each in batch
        )
        client.socket.sendall(b"".join(packet.write() for packet in packets))

    def answered() -> list[int]:
        released, ended = [], []
        for data in client.packets():
            packet_id = int.from_bytes(data[2:4], "big")
            if data[0] == 0x50:
                released.append(mqtt.pubrel(packet_id))
            elif data[0] in (0x40, 0x70):
                ended.append(packet_id)
        if released:
            client.socket.sendall(b"".join(released))
        return ended

    return windowed(count, window, send, answered)


def measure(
    folder: Path, store: bool, tls: bool, spare: bool, qos: int, chain: int = CHAIN
) -> tuple[float, float, float]:
    """Publications a second until all are delivered and acknowledged; ms to an acknowledgement
    when published one at a time, at the median; CPU seconds of all brokers."""
    options = ["[limits]", "session_queue = 100000"]
    if tls:
        names = {f"B{n}": "127.0.0.1" for n in range(chain)}
        demo_certificates.write(folder / "certs", "bench", names)
        options.insert(0, 'tls = "certs"')
    if store:
        options.insert(0, 'store = "store"')
    context = None
    if tls:
        context = ssl.create_default_context(cafile=str(folder / "certs" / "ca.pem"))
    with brokers(chain, folder, options, spare) as (ports, _, pids):
        reader, publisher = (
            SocketClient(ports[-1], "r", context),
            SocketClient(ports[0], "p", context),
        )
        wanted = mqtt5.TopicFilter("chain/+", max_qos=mqtt5.QoS(qos), retain_as_published=False)
        where = [("$where", "n >= 0")]
        reader.socket.sendall(mqtt5.SubscribePacket(1, [wanted], user_properties=where).write())
        assert reader.packets()[0][0] == 0x90
        listening = threading.Thread(target=listen, args=(reader, PUBLICATIONS + ALONE))
        listening.start()
        alone = publish(publisher, ALONE, 1, qos)
        before_s, started = sum(map(cpu_s, pids)), time.perf_counter()
        publish(publisher, PUBLICATIONS, WINDOW, qos)
        listening.join(60)
        rate = PUBLICATIONS / (time.perf_counter() - started)
        used_s = sum(map(cpu_s, pids)) - before_s
        assert not listening.is_alive(), "not everything was delivered"
        for client in (reader, publisher):
            client.socket.close()
    return rate, statistics.median(alone) * 1000, used_s


def main() -> None:
    print(f"over three brokers, {PUBLICATIONS:,} publications, {WINDOW} unacknowledged")
    print("  store  TLS  spare link  QoS   publications/s   ms to PUBACK or PUBCOMP, alone")
    spent: dict[int, float] = {}
    for store, tls, spare, qos in CASES:
        with tempfile.TemporaryDirectory() as name:
            rate, alone_ms, used_s = measure(Path(name), store, tls, spare, qos)
        spent.setdefault(CHAIN, used_s)  # the first has nothing of all that
        said = "    ".join("yes" if word else "no " for word in (store, tls, spare))
        print(f"  {said}  {qos:>9}  {rate:>15,.0f}   {alone_ms:>30,.2f}")
    for chain in CHAINS:
        if chain not in spent:
            with tempfile.TemporaryDirectory() as name:
                _, _, spent[chain] = measure(Path(name), *CASES[0], chain)
    costs = [spent[chain] for chain in CHAINS]
    print("  " + growth.said("cost of a publication by brokers", CHAINS, costs, "1"))


if __name__ == "__main__":
    main()
