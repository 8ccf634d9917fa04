"""`$SYS`: what a broker tells its own clients about itself, in mosquitto's names where it has the
number.

Subscriptions to it stay at the broker: they are not routed, and no other subscription matches. The
values are made only while somebody subscribes to them, and sent when they have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mqtt5 import PublishPacket

from postroad import __version__
from postroad.live.edge.host import Host
from postroad.live.edge.mqtt import Letter
from postroad.live.edge.session import Connection, Held, Session
from postroad.live.edge.tally import Tally
from postroad.model import SubscriptionId, TimeUs

EVERY_US = 10_000_000  # mosquitto's interval
PREFIX = "$SYS/"


class Counted(Protocol):
    """What clients of a broker are counted by."""

    broker: Host
    connections: dict[Connection, None]
    sessions: dict[str, Session]
    holders: dict[SubscriptionId, Held]
    elsewhere: dict[str, int]
    started_us: TimeUs
    tally: Tally


def counts(clients: Counted) -> dict[str, int]:
    """What is counted of these clients, by the end of its topic."""
    connected = sum(session.connection is not None for session in clients.sessions.values())
    total = len(clients.sessions)
    waiting = sum(len(s.waiting) + s.in_flight for s in clients.sessions.values())
    return {
        "clients/connected": connected,
        "clients/active": connected,
        "clients/disconnected": total - connected,
        "clients/inactive": total - connected,
        "clients/total": total,
        "messages/stored": waiting,
        "store/messages/count": waiting,
        "publish/messages/received": clients.tally.published,
        "publish/messages/sent": clients.tally.delivered,
        "publish/messages/dropped": clients.tally.dropped,
        "bytes/received": clients.tally.bytes_received,
        "bytes/sent": clients.tally.bytes_sent,
        "subscriptions/count": len(clients.holders),
    }


def values(clients: Counted, now: TimeUs) -> dict[str, str]:
    """Every topic and its value; of a worker, what all of its broker's together count."""
    broker, elsewhere = clients.broker, clients.elsewhere
    numbers: dict[str, str | int] = {
        "version": f"postroad {__version__}",
        "uptime": f"{(now - clients.started_us) // 1_000_000} seconds",
        **{name: count + elsewhere.get(name, 0) for name, count in counts(clients).items()},
        "retained messages/count": len(broker.retained) - len(broker.removed) - len(broker.absent),
        "postroad/network": broker.network.name,
        "postroad/scheme": broker.network.scheme,
    }
    return {f"{PREFIX}broker/{name}": str(value) for name, value in numbers.items()}


def letters(now_values: Mapping[str, str], before: Mapping[str, str]) -> dict[str, Letter]:
    """By topic, what has changed."""
    return {
        topic: Letter(PublishPacket(topic, value.encode()).write())
        for topic, value in now_values.items()
        if before.get(topic) != value
    }
