"""GRAPE: Greedy Relocation Algorithm for Publishers of Events (Cheung and Jacobsen, section IV).

Idea: every broker records which publications of a trace session it delivered, as a bit vector,
and to how many subscribers. When a session is full the publisher's broker asks all brokers that
it reached, and estimates from their answers, for each of them, the load and the delay if the
publisher were there. Load or delay has priority, with a weight: candidates whose normalised
value is above 100 - weight are dropped, and the best of the rest by the other metric is chosen.

State: per advertisement the session: bit vector, deliveries, the links its publications took; at
the first broker the number of the next publication. Messages: `trace_request`, `trace_answer`,
and those of the migration.

How we read the paper: values are normalised from the least (0) to the largest (100), and the
current broker is a candidate; only so is load 1% the same as delay 100%. A broker's delay to a
neighbour includes the link. Ping times are one way. A session that is not answered in full (a
message was lost) is given up when ten more would have been full. On PopSub, a request goes to every
neighbour with subscriptions that the advertisement meets, since a publication that went directly
leaves no trace on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from postroad.errors import InputError
from postroad.model import AdvertisementId, BrokerId, TimeUs, Trace
from postroad.relocation.host import Seen
from postroad.relocation.selection import TraceReport, best, estimates, packed, within
from postroad.relocation.tracing import PublisherTracing
from postroad.routing.base import (
    Effect,
    Measure,
    Measured,
    Message,
    Ping,
    Pinged,
    Relocating,
    Send,
    commas,
)
from postroad.routing.pool import FilterPool
from postroad.routing.tables import LOCAL

PRIORITIES = ("load", "delay")
GIVE_UP = 10  # sessions later


@dataclass(frozen=True, slots=True)
class Config:
    """G_threshold, and what to minimise by how much."""

    threshold: int = 100
    priority: str = "load"
    weight: float = 100.0

    def __post_init__(self) -> None:
        if self.threshold < 1:
            raise InputError(f"threshold is {self.threshold}", remedy="give 1 or more")
        if self.priority not in PRIORITIES:
            raise InputError(
                f"priority is {self.priority!r}", remedy=f"choose one of: {', '.join(PRIORITIES)}"
            )
        if not 0 <= self.weight <= 100:
            raise InputError(f"weight is {self.weight}", remedy="give a percentage")


class TraceRequest(Message, msgspec.Struct, frozen=True):
    """TIR: what did you and those behind you deliver in this session?"""

    kind = "trace_request"
    wire = "grape.TraceRequest"
    advertisement_id: AdvertisementId
    session: str

    def __str__(self) -> str:
        return f"trace_request {self.session}"


class TraceAnswer(Message, msgspec.Struct, frozen=True):
    """TIA: the sender's report and those of all behind it."""

    kind = "trace_answer"
    wire = "grape.TraceAnswer"
    advertisement_id: AdvertisementId
    session: str
    reports: tuple[TraceReport, ...]

    def __str__(self) -> str:
        reports = commas(
            f"{one.broker}: {one.deliveries} as {int.from_bytes(one.vector, 'little'):b}"
            for one in self.reports
        )
        return f"trace_answer {self.session}: {reports}"


@dataclass(slots=True)
class TraceSession:
    """One broker's record of a trace session."""

    name: str
    bits: int = 0
    deliveries: int = 0
    links: dict[BrokerId, None] = field(default_factory=dict)
    upstream: BrokerId | None = None  # who asked, once someone has
    waiting: dict[BrokerId, None] = field(default_factory=dict)
    reports: list[TraceReport] = field(default_factory=list)
    measured: Measured | None = None
    entries: int = 0  # as they were last counted

    def size(self) -> int:
        """Words of 64 bits, and the reports of others."""
        return 3 + self.bits.bit_length() // 64 + len(self.reports)


@dataclass(slots=True)
class Course:
    """Where the first broker of a publisher is between two decisions."""

    numbered: int = 0  # publications so far
    session: str = ""
    traced: int = 0
    full: bool = False  # asking, or pinging, or moving
    reports: list[TraceReport] = field(default_factory=list)


class Grape(PublisherTracing):
    def __init__(
        self, settings: Config, seed: int, broker: BrokerId, config: Any, pool: FilterPool
    ) -> None:
        import postroad.relocation.rerooting  # noqa: F401 - compiled now rather than when needed

        super().__init__(seed, broker, config, pool)
        self.grape = settings
        self.sessions: dict[AdvertisementId, TraceSession] = {}
        self.courses: dict[AdvertisementId, Course] = {}
        self.grape_entries = 0  # of all sessions

    # Phase 1.

    def next_trace(self, name: AdvertisementId, now: TimeUs) -> Trace | None:
        course = self.courses.setdefault(name, Course())
        course.numbered += 1
        if name in self.leaving:
            return None
        if course.full:
            course.traced += 1
            if course.traced < GIVE_UP * self.grape.threshold:
                return None
            course.session, course.full = "", False
        if not course.session:
            course.session, course.traced = f"B{self.broker}-M{course.numbered}", 0
        course.traced += 1
        return Trace(name, course.session, course.traced - 1)

    def saw_traced(self, seen: Seen, sender: BrokerId) -> list[Effect]:
        name, trace = seen.trace.advertisement_id, seen.trace
        session = self._session(name, trace.session)
        if seen.deliveries:
            session.bits |= 1 << trace.number
            session.deliveries += seen.deliveries
            self._count_entries(session)
        session.links.update(seen.links)
        course = self.courses.get(name)
        if (
            course is None
            or course.full
            or course.session != trace.session
            or course.traced < self.grape.threshold
        ):
            return []
        course.full = True
        # Whatever still waits to be sent together belongs to the session.
        effects = self.send_waiting(name)
        effects += self._observe([], effects, LOCAL)
        return effects + self._ask(name, trace.session, LOCAL)

    def _session(self, name: AdvertisementId, session: str) -> TraceSession:
        known = self.sessions.get(name)
        if known is None or known.name != session:
            self._end(name)
            known = self.sessions[name] = TraceSession(session)
            self._count_entries(known)
        return known

    def _count_entries(self, session: TraceSession) -> None:
        size = session.size()
        self.grape_entries += size - session.entries
        session.entries = size

    def _end(self, name: AdvertisementId) -> None:
        ended = self.sessions.pop(name, None)
        if ended is not None:
            self.grape_entries -= ended.entries

    def _ask(self, name: AdvertisementId, session_name: str, sender: BrokerId) -> list[Effect]:
        session = self._session(name, session_name)
        session.upstream = sender
        asked = [
            peer
            for peer in self.reached_by(name, session.links)
            if peer != sender and peer in self.outgoing
        ]
        session.waiting = dict.fromkeys(asked)
        return [Measure(), *(Send(peer, TraceRequest(name, session_name)) for peer in asked)]

    def _on_answer(self, message: TraceAnswer, sender: BrokerId) -> list[Effect]:
        session = self.sessions.get(message.advertisement_id)
        if session is None or session.name != message.session or sender not in session.waiting:
            return []
        del session.waiting[sender]
        session.reports += message.reports
        self._count_entries(session)
        return self._answer(message.advertisement_id)

    def _answer(self, name: AdvertisementId) -> list[Effect]:
        """Report upstream once everyone behind has reported; at the first broker, decide."""
        session = self.sessions[name]
        if session.upstream is None or session.measured is None or session.waiting:
            return []
        self._end(name)
        here = session.measured.queue_us + session.measured.match_us
        own = TraceReport(
            self.broker,
            packed(session.bits),
            session.deliveries,
            here + session.measured.client_us,
            tuple((peer, here + way_us) for peer, way_us in session.measured.output_us),
        )
        reports = (own, *session.reports)
        if session.upstream == LOCAL:
            return self._consider(name, session.name, list(reports))
        return [Send(session.upstream, TraceAnswer(name, session.name, reports))]

    # Phase 2.

    def _consider(
        self, name: AdvertisementId, session: str, reports: list[TraceReport]
    ) -> list[Effect]:
        course = self.courses.get(name)
        if course is None or course.session != session or not self.can_move(name):
            return []
        if not any(report.deliveries for report in reports):
            course.session, course.full = "", False
            return []
        course.reports = reports
        candidates = estimates(reports, {})
        if self.grape.priority == "load":
            candidates = within(candidates, "load", self.grape.weight)
        if len(candidates) == 1:  # nothing to weigh delays for
            return self._go(name, candidates[0].broker)
        links = tuple(
            (report.broker, peer, max(0, way_us - report.client_us))
            for report in reports
            for peer, way_us in report.delays_us
        )
        return [Ping(name, tuple(candidates.brokers.tolist()), links)]

    def _on_pinged(self, input: Pinged) -> list[Effect]:
        name = input.advertisement_id
        course = self.courses.get(name)
        if course is None or not course.reports or not self.can_move(name):
            return []  # it has been given up, or the publisher is elsewhere by now
        pinged = dict(input.times_us)
        candidates = estimates(course.reports, pinged)
        candidates = candidates.only(np.isin(candidates.brokers, list(pinged)))
        priority = self.grape.priority
        if priority == "delay":  # candidates of too much load were not pinged
            candidates = within(candidates, "delay", self.grape.weight)
        return self._go(name, best(candidates, priority, self.broker).broker)

    def _go(self, name: AdvertisementId, target: BrokerId) -> list[Effect]:
        course = self.courses[name]
        course.session, course.full, course.reports = "", False, []
        return [] if target == self.broker else self.move(name, target)

    def on_relocation(self, input: Relocating, now: TimeUs) -> list[Effect]:
        match input:
            case Pinged():
                return self._on_pinged(input)
            case Measured():
                effects: list[Effect] = []
                for name, session in list(self.sessions.items()):
                    if session.upstream is not None and session.measured is None:
                        session.measured = input
                        effects += self._answer(name)
                return effects
            case _:
                return super().on_relocation(input, now)

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        match message:
            case TraceRequest(name, session):
                return self._ask(name, session, sender)
            case TraceAnswer():
                return self._on_answer(message, sender)
            case _:
                return super().on_message(message, sender, now)

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        effects = super().on_link_down(peer, now)
        for name, session in list(self.sessions.items()):
            if session.upstream == peer:
                self._end(name)
            elif session.waiting.pop(peer, 0) is None:
                effects += self._answer(name)
        return effects

    def forget_traces(self, name: AdvertisementId) -> None:
        self._end(name)
        self.courses.pop(name, None)

    def table_entries(self) -> int:
        return super().table_entries() + self.grape_entries

    def check(self) -> None:
        super().check()
        assert self.grape_entries == sum(one.size() for one in self.sessions.values())
