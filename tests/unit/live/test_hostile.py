"""What clients send to hold others up: the work that it makes is bounded, or is done in turns."""

from __future__ import annotations

from pathlib import Path

import mqtt5
import pytest

from live_harness import memory
from postroad.live import clients


def test_a_filter_is_read_once_for_all_topics_of_a_packet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = memory(tmp_path, ["A"], [])
    client = net.client(0, "c")
    read: list[str] = []
    parse = clients.parse

    def counted(text: str) -> object:
        read.append(text)
        return parse(text)

    monkeypatch.setattr(clients, "parse", counted)
    wanted = [mqtt5.TopicFilter(f"t/{n}/+") for n in range(200)]
    client.send(mqtt5.SubscribePacket(1, wanted, user_properties=[("$where", "x > 1")]))
    net.until(lambda: client.last(mqtt5.SubAckPacket))
    assert read == ["x > 1"]
    publisher = net.client(0, "p")
    for x in (0, 2):
        publisher.publish("t/7/a", b'{"x": %d}' % x)
    net.run(10_000)
    assert client.got() == [("t/7/a", b'{"x": 2}')]
