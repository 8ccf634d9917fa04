"""Traces, sorted by what one asks of them: who held what when, which links and brokers were up.

Times are those of the rows. A subscription that a broker says again after a restart is the same.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from postroad.filters import Filter, covers, parse
from postroad.model import TimeUs
from postroad.traces.schema import Row


@dataclass(slots=True)
class Interested:
    """A subscription or an advertisement, while it stood."""

    id: str
    broker: str
    client: str
    text: str
    since_us: TimeUs
    until_us: TimeUs | None = None
    ended: str = ""  # why
    detail: dict[str, Any] = field(default_factory=dict)
    gaps: list[tuple[TimeUs, TimeUs]] = field(default_factory=list)  # while its broker was down

    def stood(self, time_us: TimeUs) -> bool:
        within = self.since_us <= time_us and (self.until_us is None or time_us <= self.until_us)
        return within and self.gap(time_us) is None

    def gap(self, time_us: TimeUs) -> tuple[TimeUs, TimeUs] | None:
        return next((gap for gap in self.gaps if gap[0] < time_us < gap[1]), None)


@dataclass(slots=True)
class Span:
    """A span in which a broker, a link or a connection was up."""

    since_us: TimeUs
    until_us: TimeUs | None = None
    reason: str = ""


class History:
    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.of_publication: dict[tuple[str, str], list[Row]] = defaultdict(list)
        self.of_publisher: dict[str, list[Row]] = defaultdict(list)
        self.of_client: dict[str, list[Row]] = defaultdict(list)
        self.subscriptions: dict[str, Interested] = {}
        self.advertisements: dict[str, Interested] = {}
        self.connections: dict[str, list[Span]] = defaultdict(list)
        self.brokers: dict[str, list[Span]] = defaultdict(list)
        self.links: dict[tuple[str, str], list[Span]] = defaultdict(list)  # seen from the first
        # Per broker, what each neighbour asked it for, and no longer: time, peer, kind, filter.
        self.asked: dict[str, list[Row]] = defaultdict(list)
        self.stopped: list[Row] = []  # messages with filters that did not arrive
        self.description: dict[str, Any] = {}
        self.trees: list[tuple[TimeUs, list[tuple[str, str]]]] = []
        self.end_us = rows[-1].time_us if rows else 0
        for row in rows:
            self._add(row)

    def _add(self, row: Row) -> None:
        if row.publication is not None:
            self.of_publication[str(row.publisher), row.publication].append(row)
            if row.kind == "publish":
                self.of_publisher[str(row.publisher)].append(row)
        if row.client is not None:
            self.of_client[row.client].append(row)
            if row.kind == "refuse":
                self.of_publisher[row.client].append(row)
        match row.kind:
            case "start":
                self._start(row)
            case "end":
                self._end_broker(row.broker, row.time_us, row.reason or "ended")
            case "subscribe":
                self._hold(self.subscriptions, str(row.subscription), row)
            case "unsubscribe":
                self._drop(self.subscriptions, str(row.subscription), row)
            case "advertise":
                self._hold(self.advertisements, str(row.advertisement), row)
            case "unadvertise":
                self._drop(self.advertisements, str(row.advertisement), row)
            case "connect":
                self.connections[str(row.client)].append(Span(row.time_us))
            case "disconnect":
                lives = self.connections[str(row.client)]
                if lives:
                    lives[-1].until_us, lives[-1].reason = row.time_us, row.reason or ""
            case "link":
                self._link(row)
            case "receive" if row.filter is not None:
                self.asked[row.broker].append(row)
            case "stop" if row.filter is not None:
                self.stopped.append(row)
            case "tree":
                tree = json.loads(row.detail or "{}")
                links = [(a, b) for a, _, b in (link.partition("-") for link in tree["links"])]
                self.trees.append((row.time_us, links))
            case _:
                pass

    def _start(self, row: Row) -> None:
        lives = self.brokers[row.broker]
        if lives and lives[-1].until_us is None:  # it was killed, and said nothing
            last = self._last_before.get(row.broker, row.time_us)
            self._end_broker(row.broker, last, "killed")
        lives.append(Span(row.time_us))
        self.description = json.loads(row.detail or "{}")

    @cached_property
    def _last_before(self) -> dict[str, TimeUs]:
        """Per broker, its last row before its last start."""
        ends: dict[str, TimeUs] = {}
        last: dict[str, TimeUs] = {}
        for row in self.rows:
            if row.kind == "start" and row.broker in last:
                ends[row.broker] = last[row.broker]
            last[row.broker] = row.time_us
        return ends

    def _end_broker(self, broker: str, time_us: TimeUs, reason: str) -> None:
        lives = self.brokers[broker]
        if lives and lives[-1].until_us is None:
            lives[-1].until_us, lives[-1].reason = time_us, reason
        for held in (*self.subscriptions.values(), *self.advertisements.values()):
            if held.broker == broker and held.until_us is None:
                held.until_us, held.ended = time_us, f"broker {broker} went down"

    def _hold(self, table: dict[str, Interested], name: str, row: Row) -> None:
        known = table.get(name)
        if known is not None and known.text == (row.filter or "TRUE"):
            if known.until_us is not None and known.ended.startswith("broker"):
                known.gaps.append((known.until_us, row.time_us))  # said again after a restart
                known.until_us, known.ended = None, ""
            return
        detail = row.detail or ""
        extra = json.loads(detail) if detail.startswith("{") else {}
        if row.reason:
            extra["reason"] = row.reason
        table[name] = Interested(
            name, row.broker, row.client or "", row.filter or "TRUE", row.time_us, detail=extra
        )

    def _drop(self, table: dict[str, Interested], name: str, row: Row) -> None:
        held = table.get(name)
        if held is not None and held.until_us is None:
            lives = self.connections.get(held.client, [])
            held.until_us, held.ended = row.time_us, "unsubscribed"
            if lives and lives[-1].until_us is not None:
                held.ended = f"its session ended ({lives[-1].reason})"

    def _link(self, row: Row) -> None:
        lives = self.links[row.broker, str(row.peer)]
        if row.mechanism == "up":
            if not lives or lives[-1].until_us is not None:
                lives.append(Span(row.time_us))
        elif lives and lives[-1].until_us is None:
            lives[-1].until_us = row.time_us

    # Questions.

    def filter(self, text: str) -> Filter:
        parsed = self._filters.get(text)
        if parsed is None:
            parsed = self._filters[text] = parse(text)
        return parsed

    @cached_property
    def _filters(self) -> dict[str, Filter]:
        return {}

    def was_up(self, lives: Iterable[Span], time_us: TimeUs) -> bool:
        return any(
            life.since_us <= time_us and (life.until_us is None or time_us < life.until_us)
            for life in lives
        )

    def broker_up(self, broker: str, time_us: TimeUs) -> bool:
        return broker not in self.brokers or self.was_up(self.brokers[broker], time_us)

    def link_up(self, a: str, b: str, time_us: TimeUs) -> bool:
        lives = self.links.get((a, b))
        return lives is None or self.was_up(lives, time_us)

    def connected(self, client: str, time_us: TimeUs) -> bool:
        return client not in self.connections or self.was_up(self.connections[client], time_us)

    def path(self, source: str, target: str, time_us: TimeUs) -> list[str]:
        """The brokers from one to another over the tree of that time; empty if it has no way."""
        links = [tuple(pair) for pair in self.description.get("links", [])]
        for since_us, tree in self.trees:
            if since_us <= time_us:
                links = list(tree)
        peers: dict[str, list[str]] = defaultdict(list)
        for a, b in links:
            peers[a].append(b)
            peers[b].append(a)
        before: dict[str, str] = {source: source}
        queue = deque([source])
        while queue and target not in before:
            at = queue.popleft()
            for peer in peers[at]:
                if peer not in before:
                    before[peer] = at
                    queue.append(peer)
        if target not in before:
            return []
        way = [target]
        while way[-1] != source:
            way.append(before[way[-1]])
        return way[::-1]

    def entries(self, broker: str, peer: str, time_us: TimeUs) -> dict[str, TimeUs]:
        """What a neighbour had asked this broker for by then, and since when."""
        entries: dict[str, TimeUs] = {}
        up_us = max((life.since_us for life in self.links.get((broker, peer), ())
                     if life.since_us <= time_us), default=None)  # fmt: skip
        for row in self.asked.get(broker, ()):
            if row.time_us > time_us:
                break
            if row.peer != peer or (up_us is not None and row.time_us < up_us):
                continue
            text = str(row.filter)
            if asks(row):
                entries.setdefault(text, row.time_us)
            else:
                entries.pop(text, None)
        return entries

    def asked_later(self, broker: str, peer: str, filter: Filter, time_us: TimeUs) -> Row | None:
        """When this filter, or one that covers it, did come over this link after all."""
        for row in self.asked.get(broker, ()):
            if row.time_us <= time_us or row.peer != peer or not asks(row):
                continue
            if covers(self.filter(str(row.filter)), filter):
                return row
        return None

    def lost(self, filter: Filter, time_us: TimeUs) -> Row | None:
        """Where a message that asked for this filter stopped before then."""
        for row in self.stopped:
            if (
                row.time_us <= time_us
                and asks(row)
                and covers(self.filter(str(row.filter)), filter)
            ):
                return row
        return None


def asks(row: Row) -> bool:
    """Whether a message asks for its filter: it neither withdraws nor announces it."""
    kind = str(row.mechanism)
    return not kind.startswith("un") and kind not in ("advertisement", "migration_update")
