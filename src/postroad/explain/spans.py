"""Publications as spans, for tracing systems: one trace each, one span for each broker it came to.

A span lasts from when a broker took the publication up until its last row there; its parent is the
span of the broker that sent it. Deliveries and stops are events of the span. Identifiers are made
from the names, so that the same rows give the same spans.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from postroad.model import TimeUs
from postroad.traces.schema import Row

HELD_MAX = 100_000  # publications that wait for more rows


@dataclass(frozen=True, slots=True)
class Happening:
    """Something within a span."""

    name: str
    time_us: TimeUs
    attributes: dict[str, str]


@dataclass(frozen=True, slots=True)
class PublicationSpan:
    trace: int  # 128 bits
    id: int  # 64 bits
    parent: int | None
    name: str
    broker: str
    start_us: TimeUs
    end_us: TimeUs
    failed: str | None  # why it stopped here, if that was a fault
    attributes: dict[str, str | int] = field(default_factory=dict)
    happenings: list[Happening] = field(default_factory=list)


# Stops that are as it should be.
_GOOD = frozenset(("no entry matches", "duplicate", "no local", "topic levels differ"))


class Collector:
    """Rows in, spans out: those of a publication once nothing more is recorded of it."""

    def __init__(self, settle_us: TimeUs) -> None:
        self.settle_us = settle_us
        self._rows: dict[tuple[str, str, str], list[Row]] = {}
        self._newest_us: TimeUs = 0

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._newest_us = max(self._newest_us, row.time_us)
            if row.publication is not None:
                key = (row.trace_id, str(row.publisher), row.publication)
                self._rows.setdefault(key, []).append(row)

    def take(self, all: bool = False) -> list[PublicationSpan]:
        """The spans of what is over; with `all`, of everything."""
        over_us = self._newest_us - self.settle_us
        over = [
            key
            for key, rows in self._rows.items()
            if all or max(row.time_us for row in rows) < over_us
        ]
        over += list(self._rows)[: max(0, len(self._rows) - len(over) - HELD_MAX)]
        return [span for key in dict.fromkeys(over) for span in spans(self._rows.pop(key))]


def spans(rows: Sequence[Row]) -> list[PublicationSpan]:
    """The spans of one publication."""
    by_broker: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.time_us):
        by_broker.setdefault(row.broker, []).append(row)
    name = f"{rows[0].trace_id}\n{rows[0].publisher}\n{rows[0].publication}"
    trace = _number(name, 16)
    return [
        _span(trace, name, broker, mine, mine[0].peer if mine[0].kind == "receive" else None)
        for broker, mine in by_broker.items()
    ]


def _span(
    trace: int, name: str, broker: str, rows: Sequence[Row], sender: str | None
) -> PublicationSpan:
    first = rows[0]
    attributes: dict[str, str | int] = {
        "messaging.system": "postroad",
        "messaging.operation.type": "publish" if first.kind == "publish" else "process",
        "messaging.client.id": str(first.publisher),
        "messaging.message.id": str(first.publication),
        "postroad.broker": broker,
        "postroad.sent": sum(row.kind == "send" for row in rows),
        "postroad.delivered": sum(row.kind == "deliver" for row in rows),
    }
    if first.attributes is not None:
        attributes["postroad.attributes"] = first.attributes
    happenings = []
    failed = None
    for row in rows:
        if row.kind == "send":
            happenings.append(Happening("send", row.time_us, {"peer": str(row.peer)}))
        elif row.kind == "deliver":
            subscription = {"subscription": str(row.subscription)}
            happenings.append(Happening("deliver", row.time_us, subscription))
        elif row.kind == "stop":
            reason = str(row.reason)
            happenings.append(Happening("stop", row.time_us, {"reason": reason}))
            if reason not in _GOOD:
                failed = reason
    return PublicationSpan(
        trace, _number(f"{name}\n{broker}", 8),
        None if sender is None else _number(f"{name}\n{sender}", 8),
        f"{'publish' if sender is None else 'forward'} {broker}", broker,
        first.time_us, max(row.time_us for row in rows), failed, attributes, happenings,
    )  # fmt: skip


def _number(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size]) or 1
