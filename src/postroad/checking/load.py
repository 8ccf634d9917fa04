"""The limits of a network against the load that was recorded: exceeded, or nearly so.

What traces do not say is not judged: publications in flight, and how many connections an address
has. Where a share of the publications was recorded, queues and rates are scaled by it.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from postroad.checking.findings import ERROR, WARNING, Finding, plural
from postroad.checking.listed import Listed
from postroad.live.edge.session import PARCEL_BYTES
from postroad.live.network import Limits
from postroad.model import TimeUs
from postroad.traces import schema
from postroad.traces.schema import Row

NEAR = 1.25  # so many times the recorded load should fit
SHARE_WHOLE = 0.95  # a recorded share of at least so much counts as all: rows come in steps
SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that was recorded of what a limit bounds, and of whom."""

    value: float = 0
    who: str = ""


@dataclass(slots=True)
class Load:
    """Peaks by the name of their limit, and publications that found a session full."""

    peaks: dict[str, Peak] = field(default_factory=dict)
    full: Counter[str] = field(default_factory=Counter)  # per client
    share: float = 1.0  # of publications that was recorded

    def see(self, limit: str, value: float, who: str) -> None:
        if value > self.peaks.get(limit, Peak()).value:
            self.peaks[limit] = Peak(value, who)


def measure(rows: Sequence[Row]) -> Load:
    """What the rows of a trace, in their order, say of each limit."""
    load = Load(share=_share(rows))
    sizes: dict[tuple[str, str], int] = {}
    sent: Counter[tuple[str, TimeUs]] = Counter()
    connects: Counter[tuple[str, TimeUs]] = Counter()
    topics: set[str] = set()
    sessions = _Sessions(load)
    for row in rows:
        if row.kind == "publish":
            size = sizes[str(row.publisher), str(row.publication)] = row.bytes or 0
            load.see("packet_bytes", size, f"client {row.publisher}")
            sent[str(row.publisher), row.time_us // SECOND_US] += size
        elif row.kind == "connect":
            connects[row.broker, row.time_us // SECOND_US] += 1
            sessions.connect(row)
        elif row.kind == "disconnect":
            sessions.disconnect(row)
        elif row.kind == "subscribe":
            sessions.subscribe(row)
        elif row.kind == "unsubscribe":
            sessions.unsubscribe(row)
        elif row.kind == "deliver":
            if row.mechanism == "retained" and row.detail is not None:
                topics.add(row.detail)
            elif row.publication is not None:
                sessions.deliver(row, sizes.get((str(row.publisher), row.publication), 0))
        elif row.kind == "hand" and row.queue is not None:
            load.see("session_queue", (row.queue + 1) / load.share, f"client {row.client}")
        elif row.kind == "stop":
            sessions.stop(row)
    sessions.end()
    load.see("retained", len(topics), "the topics whose retained publications were delivered")
    for (client, _), size in sent.items():
        load.see("bytes_per_s", size / load.share, f"client {client} in one second")
    for (broker, _), count in connects.items():
        load.see(
            "connects_per_s", count, f"broker {broker} in one second, if all came from one address"
        )
    return load


class _Sessions:
    """Who has a session where, what it holds, and what waits in those of absent clients."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.holder: dict[str, tuple[str, str]] = {}  # of a subscription: the client and the topic
        # By client, its subscriptions per topic: one that is made again comes before the old goes.
        self.held: dict[str, Counter[str]] = defaultdict(Counter)
        self.broker: dict[str, str] = {}  # of a client that has a session
        self.count: Counter[str] = Counter()  # of sessions, by broker
        self.away: dict[str, TimeUs] = {}
        self.waiting: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)  # bytes, by client

    def connect(self, row: Row) -> None:
        client = row.client or ""
        since_us = self.away.pop(client, None)
        if since_us is not None and self.held[client]:
            gone_s = (row.time_us - since_us) / SECOND_US
            self.load.see("session_expiry_s", gone_s, f"client {client}, which was away so long")
        self._empty(client)
        if self.broker.get(client) != row.broker:
            if client in self.broker:
                self.count[self.broker[client]] -= 1
            self.broker[client] = row.broker
            self.count[row.broker] += 1
            self.load.see("sessions", self.count[row.broker], f"broker {row.broker}")

    def disconnect(self, row: Row) -> None:
        self.away[row.client or ""] = row.time_us
        self._leave(row.client or "")

    def subscribe(self, row: Row) -> None:
        client, name = row.client or "", str(row.subscription)
        detail = json.loads(row.detail) if row.detail and row.detail.startswith("{") else {}
        if name not in self.holder:
            topic = detail.get("topic") or name
            self.holder[name] = client, topic
            self.held[client][topic] += 1
            self.load.see("subscriptions_per_client", len(self.held[client]), f"client {client}")

    def unsubscribe(self, row: Row) -> None:
        client, topic = self.holder.pop(str(row.subscription), ("", ""))
        held = self.held[client]
        held[topic] -= 1
        if held[topic] <= 0:
            del held[topic]
        self._leave(client)

    def deliver(self, row: Row, size: int) -> None:
        client = row.client or self.holder.get(str(row.subscription), ("", ""))[0]
        if client in self.away:
            self.waiting[client][str(row.publisher), str(row.publication)] = size + PARCEL_BYTES

    def stop(self, row: Row) -> None:
        client = row.client or self.holder.get(str(row.subscription), ("", ""))[0]
        if row.reason == schema.FULL and row.client is not None:
            self.load.full[client] += 1
        if row.reason in (schema.EXPIRED, schema.ENDED):  # it had waited; others never did
            self._see(client)
        self.waiting[client].pop((str(row.publisher), str(row.publication)), None)

    def end(self) -> None:
        for client in list(self.waiting):
            self._see(client)

    def _leave(self, client: str) -> None:
        """A client that is gone and holds nothing has no session."""
        if client in self.away and not self.held[client]:
            self._empty(client)
            if client in self.broker:
                self.count[self.broker.pop(client)] -= 1

    def _empty(self, client: str) -> None:
        self._see(client)
        self.waiting.pop(client, None)

    def _see(self, client: str) -> None:
        """What waits is most before it becomes less: for the client, and at its broker."""
        own = self.waiting.get(client)
        if not own:
            return
        share, who = self.load.share, f"client {client} while it was away"
        self.load.see("session_queue", len(own) / share, who)
        self.load.see("session_bytes", sum(own.values()) / share, who)
        broker = self.broker.get(client)
        together = sum(
            size for other, sizes in self.waiting.items() if self.broker.get(other) == broker
            for size in sizes.values()
        )  # fmt: skip
        self.load.see("sessions_bytes", together / share, f"the absent clients of {broker}")


def of_limits(limits: Limits, load: Load, file: str, lines: dict[str, int]) -> list[Finding]:
    """Limits that the load exceeds, or would if it grew a little."""
    findings = []
    for one in dataclasses.fields(limits):
        bound, peak = getattr(limits, one.name), load.peaks.get(one.name)
        unbounded = bound == 0 and one.name in ("connects_per_s", "bytes_per_s")
        if peak is None or unbounded or peak.value * NEAR < bound:
            continue
        line = lines.get(f"limits.{one.name}", lines.get("limits"))
        where = f"{file}:{line}" if line else f"{file}: limits.{one.name}"
        over = peak.value > bound
        default = "" if f"limits.{one.name}" in lines else " (the default)"
        findings.append(
            Finding(
                ERROR if over else WARNING, "limit",
                f"{one.name} is {bound:,}{default}, and {round(peak.value):,} were recorded of "
                f"{peak.who}" + ("" if over else f": less than {NEAR:g} times that would fit"),
                where, {"limit": one.name, "is": bound, "recorded": peak.value, "of": peak.who},
                f"set {one.name} = {round(peak.value * NEAR) + 1} or more",
            )
        )  # fmt: skip
    for client, count in load.full.most_common():
        findings.append(
            Finding(
                WARNING, "limit reached",
                f"{plural(count, 'publication')} for client {client} found its session full",
                f"{file}: limits.session_queue", {"client": client, "publications": count},
                "raise session_queue, session_bytes or sessions_bytes above what was recorded with",
            )
        )  # fmt: skip
    return findings


def of_listed(
    limits: Limits, listed: Iterable[Listed], file: str, lines: dict[str, int]
) -> list[Finding]:
    """Limits that a list of subscriptions exceeds by itself."""
    counts = Counter(one.client for one in listed)
    load = Load()
    for client, count in counts.items():
        load.see("subscriptions_per_client", count, f"client {client}")
    return of_limits(limits, load, file, lines)


def _share(rows: Sequence[Row]) -> float:
    """Which part of the publications was recorded, by what brokers counted of them."""
    recorded: Counter[tuple[str, int]] = Counter()
    counted: dict[tuple[str, int], int] = {}
    for row in rows:
        life = (row.broker, row.life)
        if row.kind == "publish":
            recorded[life] += 1
        elif row.kind == "load" and row.detail is not None:
            counted[life] = max(counted.get(life, 0), json.loads(row.detail).get("published", 0))
    total = sum(counted.values())
    share = sum(recorded[life] for life in counted) / total if total else 1.0
    return 1.0 if share >= SHARE_WHOLE or share == 0 else share
