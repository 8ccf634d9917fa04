"""Connections to the link port that have not shown yet that they are of a broker: few at a time.

An address may have `connections_per_address` of them and open `connects_per_s`; brokers that have
said who they are do not count. If there are too many of all addresses, the oldest of the address
with the most makes room for the next, so that whoever holds many open cannot keep brokers out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from postroad.live.network import Limits
from postroad.model import TimeUs

MOST = 64
FRAME_MAX = 16 << 10  # of what they may send
SAID_PER_S = 5  # log lines about them
SECOND_US = 1_000_000


class Strangers:
    def __init__(self) -> None:
        self._open: dict[Hashable, str] = {}  # the connection, and its host, oldest first
        self._second = 0
        self._fresh: Counter[str] = Counter()
        self._said = 0

    def __contains__(self, wire: Hashable) -> bool:
        return wire in self._open

    def __len__(self) -> int:
        return len(self._open)

    def arrived(
        self, wire: Hashable, address: str, limits: Limits, now: TimeUs
    ) -> tuple[bool, Hashable | None]:
        """Whether one more is let in, and who has to go for it."""
        self._tick(now)
        host = address.rpartition(":")[0]
        self._fresh[host] += 1
        hosts = Counter(self._open.values())
        if hosts[host] >= limits.connections_per_address or (
            limits.connects_per_s and self._fresh[host] > limits.connects_per_s
        ):
            return False, None
        goes = None
        if len(self._open) >= MOST:
            (most, _), *_ = hosts.most_common(1)
            goes = next(other for other, its in self._open.items() if its == most)
            del self._open[goes]
        self._open[wire] = host
        return True, goes

    def known(self, wire: Hashable) -> None:
        """It is a broker's."""
        host = self._open.pop(wire, None)
        if host is not None:
            self._fresh[host] -= 1

    def gone(self, wire: Hashable) -> None:
        self._open.pop(wire, None)

    def may_log(self, now: TimeUs) -> bool:
        """Not more than a few lines a second, however many strangers there are."""
        self._tick(now)
        self._said += 1
        return self._said <= SAID_PER_S

    def _tick(self, now: TimeUs) -> None:
        if now // SECOND_US != self._second:
            self._second = now // SECOND_US
            self._fresh.clear()
            self._said = 0
