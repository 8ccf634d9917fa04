"""POP: Publisher Optimistic Placement (Cheung and Jacobsen, section III).

Idea: a publisher belongs at the broker that is closest to most of its subscribers. Some of its
publications are traced; each broker learns how many deliveries there are behind each of its
links. From the publisher's broker a request goes from neighbour to neighbour, always to the one
behind which there is more than on all other sides together; where there is none, the publisher
should be.

State: per advertisement the profile (per neighbour, and for the broker's own subscribers, a
running average of deliveries per traced publication); traces whose results are outstanding; at
the first broker, how many were tagged in this window and traced since the last decision.
Messages: `trace_result`, `relocation_request`, `relocation_answer`, and those of the migration.

How we read the paper: the first value is the average, and a link that a traced publication did
not take counts as 0. A request never turns back to where it came from. `margin` is the threshold
against ping-pong that the paper leaves to others: a neighbour must be ahead by more than that.
On PopSub, a tagged publication keeps to the tree, so that its results come back the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from postroad import draws
from postroad.errors import InputError
from postroad.model import AdvertisementId, BrokerId, PublicationKey, TimeUs, Trace
from postroad.relocation.host import Seen
from postroad.relocation.tracing import PublisherTracing
from postroad.routing.base import Effect, Message, Send
from postroad.routing.pool import FilterPool
from postroad.routing.tables import LOCAL

SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Config:
    """N, W, P_threshold and the weight of the newest value, with the paper's defaults."""

    traced_max: int = 50
    window_s: float = 60.0
    threshold: int = 100
    newest: float = 0.25
    margin: float = 0.0

    def __post_init__(self) -> None:
        if self.traced_max < 1 or self.threshold < 1:
            raise InputError(
                f"traced_max is {self.traced_max}, threshold {self.threshold}",
                remedy="give 1 or more",
            )
        if not self.window_s > 0:
            raise InputError(f"window_s is {self.window_s}", remedy="give more than 0")
        if not 0 < self.newest <= 1:
            raise InputError(f"newest is {self.newest}", remedy="give a share above 0, at most 1")
        if self.margin < 0:
            raise InputError(f"margin is {self.margin}", remedy="give 0 or more")


@dataclass(frozen=True, slots=True)
class TraceResult(Message):
    """TRM: to how many subscribers at and behind the sender a traced publication went."""

    kind = "trace_result"
    wire = "pop.TraceResult"
    advertisement_id: AdvertisementId
    publication: PublicationKey
    count: int

    def __str__(self) -> str:
        return f"trace_result {'/'.join(self.publication)}: {self.count} behind here"


@dataclass(frozen=True, slots=True)
class RelocationRequest(Message):
    """RRM: find the closest broker; there is `total` behind the link this came over."""

    kind = "relocation_request"
    wire = "pop.RelocationRequest"
    advertisement_id: AdvertisementId
    total: float
    path: tuple[BrokerId, ...]  # the broker it came from first, the publisher's last

    def __str__(self) -> str:
        return f"relocation_request {self.advertisement_id}, {self.total:g} on this side"


@dataclass(frozen=True, slots=True)
class RelocationAnswer(Message):
    """RAM: the first of the path is the closest broker; back to the last of it."""

    kind = "relocation_answer"
    wire = "pop.RelocationAnswer"
    advertisement_id: AdvertisementId
    path: tuple[BrokerId, ...]

    def __str__(self) -> str:
        return f"relocation_answer {self.advertisement_id}: broker {self.path[0]}"


@dataclass(slots=True)
class Outstanding:
    """A traced publication whose results have not all come."""

    advertisement_id: AdvertisementId
    upstream: BrokerId
    local: int
    waiting: dict[BrokerId, None]
    counts: dict[BrokerId, int] = field(default_factory=dict)


class Pop(PublisherTracing):
    def __init__(
        self, settings: Config, seed: int, broker: BrokerId, config: Any, pool: FilterPool
    ) -> None:
        super().__init__(seed, broker, config, pool)
        self.pop = settings
        self.profiles: dict[AdvertisementId, dict[BrokerId, float]] = {}
        self.outstanding: dict[PublicationKey, Outstanding] = {}
        self.windows: dict[AdvertisementId, tuple[int, int]] = {}  # which, and T
        self.traced: dict[AdvertisementId, int] = {}
        self.pop_draws = 0
        self.pop_entries = 0  # of profiles, and of traces with the answers they wait for

    # Phase 1.

    def next_trace(self, name: AdvertisementId, now: TimeUs) -> Trace | None:
        """P_trace = 1 - T / N."""
        window, tagged = self.windows.get(name, (-1, 0))
        current = now // round(self.pop.window_s * SECOND)
        if window != current:
            tagged = 0
        self.pop_draws += 1
        draw = draws.uniform(self.seed, "pop.trace", self.broker, self.pop_draws)
        chosen = draw < 1 - tagged / self.pop.traced_max and name not in self.leaving
        self.windows[name] = (current, tagged + chosen)
        return Trace(name, "", self.pop_draws) if chosen else None

    def saw_traced(self, seen: Seen, sender: BrokerId) -> list[Effect]:
        key = seen.publication.key
        one = Outstanding(seen.trace.advertisement_id, sender, seen.deliveries, seen.links)
        self.outstanding[key] = one
        self.pop_entries += 1 + len(one.waiting)
        return [] if one.waiting else self._result(key)

    def _on_result(self, message: TraceResult, sender: BrokerId) -> list[Effect]:
        one = self.outstanding.get(message.publication)
        if one is None or sender not in one.waiting:
            return []  # of a place where the publisher is no more
        del one.waiting[sender]
        self.pop_entries -= 1
        one.counts[sender] = message.count
        return [] if one.waiting else self._result(message.publication)

    def _result(self, key: PublicationKey) -> list[Effect]:
        """All results of a traced publication are here: record them, and report upstream."""
        one = self._done(key)
        name = one.advertisement_id
        profile = self.profiles.setdefault(name, {})
        self.pop_entries -= len(profile)
        newest = {peer: one.counts.get(peer, 0) for peer in self.outgoing if peer != one.upstream}
        newest[LOCAL] = one.local
        for place, count in newest.items():
            last = profile.get(place)
            share = self.pop.newest
            profile[place] = count if last is None else share * count + (1 - share) * last
        self.pop_entries += len(profile)
        if one.upstream != LOCAL:
            total = one.local + sum(one.counts.values())
            return [Send(one.upstream, TraceResult(name, key, total))]
        self.traced[name] = self.traced.get(name, 0) + 1
        return self._decide(name)

    # Phase 2.

    def _decide(self, name: AdvertisementId) -> list[Effect]:
        busy = any(one.advertisement_id == name for one in self.outstanding.values())
        if self.traced[name] < self.pop.threshold or busy or not self.can_move(name):
            return []
        self.traced[name] = 0
        return self._seek(name, LOCAL, 0.0, ())

    def _seek(
        self, name: AdvertisementId, sender: BrokerId, total: float, path: tuple[BrokerId, ...]
    ) -> list[Effect]:
        """Pass the request on to the closest neighbour, or answer it."""
        behind = {**self.profiles.get(name, {})}
        if sender != LOCAL:
            behind[sender] = total
        everything = sum(behind.values())
        here = (self.broker, *path)
        for peer, count in behind.items():
            rest = everything - count
            if peer not in (LOCAL, sender) and count > rest + self.pop.margin:
                return [Send(peer, RelocationRequest(name, rest, here))]
        return [] if sender == LOCAL else [Send(sender, RelocationAnswer(name, here))]

    def _on_answer(self, message: RelocationAnswer) -> list[Effect]:
        name, path = message.advertisement_id, message.path
        if path[-1] != self.broker:
            after = path[path.index(self.broker) + 1]
            return [Send(after, message)] if after in self.outgoing else []
        if name not in self.advertisements or not self.can_move(name):
            return []
        return self.move(name, path[0])

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        match message:
            case TraceResult():
                return self._on_result(message, sender)
            case RelocationRequest(name, total, path):
                return self._seek(name, sender, total, path)
            case RelocationAnswer():
                return self._on_answer(message)
            case _:
                return super().on_message(message, sender, now)

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        effects = super().on_link_down(peer, now)
        for key, one in list(self.outstanding.items()):
            if one.upstream == peer:
                self._done(key)
            elif one.waiting.pop(peer, 0) is None:
                self.pop_entries -= 1
                if not one.waiting:
                    effects += self._result(key)
        for profile in self.profiles.values():
            self.pop_entries -= profile.pop(peer, None) is not None
        return effects

    def forget_traces(self, name: AdvertisementId) -> None:
        self.pop_entries -= len(self.profiles.pop(name, ()))
        self.traced.pop(name, None)
        self.windows.pop(name, None)
        for key in [k for k, one in self.outstanding.items() if one.advertisement_id == name]:
            self._done(key)

    def _done(self, key: PublicationKey) -> Outstanding:
        """A trace is answered, or will not be."""
        one = self.outstanding.pop(key)
        self.pop_entries -= 1 + len(one.waiting)
        return one

    def table_entries(self) -> int:
        return super().table_entries() + self.pop_entries

    def check(self) -> None:
        super().check()
        waiting = sum(1 + len(one.waiting) for one in self.outstanding.values())
        assert self.pop_entries == waiting + sum(map(len, self.profiles.values()))
