"""Where the time of a publication goes in a broker without sockets, by fan-out and level of MQTT.

Three kinds of subscribers: plain (all that is published to the topic, handed out in runs), to many
topics that are published to in turn (gathered in compiled code), and with a filter (the router is
asked each time). Processor time, the best of several rounds; µs per publication, and how that grows
with the subscribers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import mqtt5

from postroad.bench import growth
from postroad.live.broker import Broker
from postroad.live.edge.session import Connection
from postroad.live.network import load

FANS = (1, 5, 20, 100)
CHUNK, ROUNDS = 400, 7
TOPICS = 50  # in turn
NETWORK = """
name = "bench"
scheme = "subscription_forwarding"
links = []
[brokers.A]
mqtt = 1
link = 2
http = 3
"""


def client(broker: Broker, name: str, level: int) -> Connection:
    connection = broker.clients.opened("memory:1", 0)
    assert connection is not None
    body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2, "big") + name.encode()
    first = mqtt5.ConnectPacket(name, clean_start=True).write()
    data = first if level == 5 else bytes((0x10, len(body))) + body
    broker.clients.received(connection, data, 0)
    return connection


def subscribe(level: int, kind: str, topic: str) -> bytes:
    if level != 5:
        body = b"\x00\x01" + len(topic).to_bytes(2, "big") + topic.encode() + b"\x00"
        return bytes((0x82, len(body))) + body
    wanted = mqtt5.TopicFilter(topic, max_qos=mqtt5.QoS.AT_MOST_ONCE, retain_as_published=False)
    properties = [("$where", "n > 5")] if kind == "filtered" else []
    return mqtt5.SubscribePacket(1, [wanted], user_properties=properties).write()


def publication(level: int, topic: str) -> bytes:
    payload = b'{"n": 1000000000, "pad": "%s"}' % (b"x" * 30)
    if level == 5:
        return mqtt5.PublishPacket(topic, payload).write()
    body = len(topic).to_bytes(2, "big") + topic.encode() + payload
    return bytes((0x30, len(body))) + body


def cost_us(path: Path, level: int, kind: str, fan: int) -> float:
    broker = Broker(load(path), 0, 0)
    readers = [client(broker, f"r{n}", level) for n in range(fan)]
    topics = [f"fan/{n}" for n in range(TOPICS)] if kind == "in turn" else ["fan/out"]
    for reader in readers:
        for topic in topics:
            broker.clients.received(reader, subscribe(level, kind, topic), 0)
    publisher = client(broker, "p", level)
    broker.flush(0)
    if kind == "in turn":  # as it would be after a while
        index = broker.router.deciding()
        assert index is not None
        index.compile()
    data = b"".join(publication(level, topic) for topic in topics) * (CHUNK // len(topics))

    def act() -> None:
        broker.clients.received(publisher, data, 0)
        for reader in readers:
            if reader.out:
                reader.take_out()
        broker.clients.take_dirty()

    return _best(act) * 1e6 / CHUNK


def _best(act: Callable[[], None]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        act()
        times.append(time.process_time() - start)
    return min(times[1:])


def main() -> None:
    print("fan-out: µs of a publication in a broker without sockets")
    print(f"  {'':<22}" + "".join(f"{f'to {fan}':>9}" for fan in FANS))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.toml"
        path.write_text(NETWORK)
        for kind, level in (
            ("plain", 5),
            ("plain", 4),
            ("in turn", 5),
            ("in turn", 4),
            ("filtered", 5),
        ):
            costs = [cost_us(path, level, kind, fan) for fan in FANS]
            name = f"{kind}, MQTT {'5' if level == 5 else '3.1.1'}"
            print(f"  {name:<22}" + "".join(f"{us:>9.2f}" for us in costs))
            print("    " + growth.said("cost by subscribers", FANS, costs, "0 to 1"), flush=True)


if __name__ == "__main__":
    main()
