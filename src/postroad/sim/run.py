"""`run(scenario) -> Result`: the simulator's only entry. No globals, so runs share a process.

A run has two phases. First everything that is there from the beginning advertises and
subscribes, and the network settles. That moment is time 0 of the workload: publications,
later comings and goings, and faults follow from there.
"""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from postroad import relocation
from postroad.errors import InputError
from postroad.filters import disjoin
from postroad.model import (
    Advertisement,
    BrokerId,
    Publication,
    PublicationKey,
    Subscription,
    TimeUs,
)
from postroad.overlay.transit_stub import places
from postroad.relocation import RELOCATIONS
from postroad.routing import SCHEMES
from postroad.routing.base import (
    Advertise,
    Interests,
    Plan,
    Publish,
    Received,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from postroad.sim.engine import Broker, Delivery, Link, Moved, Observer, Simulator
from postroad.sim.oracle import expected
from postroad.sim.scenario import Scenario
from postroad.sim.tracing import Tracing
from postroad.workloads.model import Interest


@dataclass(frozen=True)
class Result:
    """What a run did. Times are microseconds after the network had settled."""

    scenario: Scenario
    deliveries: list[Delivery]
    brokers: list[Broker]
    links: list[Link]
    steps_count: int
    duration_us: TimeUs
    published_us: Mapping[PublicationKey, TimeUs]
    refused: frozenset[PublicationKey]
    notes: list[tuple[TimeUs, BrokerId, str]]
    moves: list[Moved]
    settled_us: TimeUs  # on the simulator's own clock, which observers see

    def summary(self) -> dict[str, Any]:
        """The counters of the whole run, ready for JSON."""
        pairs = Counter((key, subscription) for key, subscription, *_ in self.deliveries)
        required, _ = expected(self.scenario, self.refused)
        hops = sorted(hops for *_, hops, _ in self.deliveries)
        latency = sorted(
            time_us - self.published_us[key] for key, _, _, time_us, *_ in self.deliveries
        )
        messages: Counter[str] = Counter()
        for link in self.links:
            messages.update(link.messages)
        tables = [broker.table_entries_max for broker in self.brokers]
        duration = max(1, self.duration_us)
        relocated: dict[str, Any] = {}
        if self.scenario.relocation is not None:
            waits = sorted(moved.wait_us for moved in self.moves)
            relocated = {
                "relocation": self.scenario.relocation,
                "moves": len(waits),
                "wait_us": {"mean": mean(waits), "max": waits[-1] if waits else 0},
            }
        return {
            "scheme": self.scenario.scheme,
            "brokers": len(self.brokers),
            "publications": len(self.scenario.workload.postings),
            "deliveries": len(self.deliveries),
            "duplicates": sum(pairs.values()) - len(pairs),
            "missing": sum(pair not in pairs for pair in required),
            "pure_forwards": sum(broker.pure_forwards for broker in self.brokers),
            "false_sends": sum(broker.false_sends for broker in self.brokers),
            "messages": dict(sorted(messages.items())),
            "hops": {"mean": mean(hops), "max": hops[-1] if hops else 0},
            "latency_us": {f"p{p}": percentile(latency, p) for p in (50, 90, 99)},
            "table_entries": {"mean": mean(tables), "max": max(tables)},
            "queue": {
                "mean": sum(broker.queue_area for broker in self.brokers)
                / duration
                / len(self.brokers),
                "max": max(broker.queue_max for broker in self.brokers),
            },
            **relocated,
        }

    def counters(self) -> list[dict[str, Any]]:
        """One row per broker, then one per link and direction."""
        names = places(self.scenario.overlay)
        rows: list[dict[str, Any]] = [
            {
                "broker": names[number],
                "sent": dict(sorted(broker.sent.items())),
                "received": dict(sorted(broker.received.items())),
                "matches": broker.matches_count + broker.router.matches_count,
                "table_entries_max": broker.table_entries_max,
                "queue_mean": broker.queue_area / max(1, self.duration_us),
                "queue_max": broker.queue_max,
                "deliveries": broker.deliveries,
                "pure_forwards": broker.pure_forwards,
                "false_sends": broker.false_sends,
                "dropped": broker.dropped,
                "refused": broker.refused,
            }
            for number, broker in enumerate(self.brokers)
        ]
        rows.extend(
            {
                "link": [names[link.source], names[link.target]],
                "messages": dict(sorted(link.messages.items())),
                "lost": link.lost,
            }
            for link in self.links
        )
        return rows


def plan_of(scenario: Scenario) -> Plan:
    """The plan of the scenario's scheme, from its overlay and workload."""
    scheme = SCHEMES[scenario.scheme]
    workload = scenario.workload
    interests = Interests()
    if not scenario.blind:
        interests = Interests(
            [(interest.broker, interest.filter) for interest in workload.subscriptions],
            [(interest.broker, interest.filter) for interest in workload.advertisements],
            [(each.broker, each.filter) for each in workload.subscriptions if each.time_us is None],
        )
    config = scenario.config or scheme.config()
    if scenario.relocation is not None:
        relocation_config = scenario.relocation_config or RELOCATIONS[scenario.relocation].config()
        return relocation.plan(
            scenario.relocation,
            relocation_config,
            scenario.scheme,
            scenario.overlay,
            config,
            scenario.seed,
        )
    return scheme.plan(scenario.overlay, interests, config, scenario.seed)


Later = tuple[TimeUs, int, BrokerId, Any]  # an input: when, which first at one time, where
Progress = Callable[[int, int], None]  # is told how many inputs have been given, and of how many
STRETCHES = 200  # a run is cut into so many, to tell after each


@contextmanager
def uncollected() -> Iterator[None]:
    """What a run makes lives as long as it, and goes with it: looking for garbage meanwhile finds
    none, and takes a fifth of its time."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


@uncollected()
def run(
    scenario: Scenario,
    observer: Observer | None = None,
    check: bool = False,
    tracing: Tracing | None = None,
    progress: Progress | None = None,
) -> Result:
    """Simulate a scenario. `check` asserts every router's invariants after every step."""
    simulator = Simulator(
        plan_of(scenario),
        seed=scenario.seed,
        service_us=scenario.services_us or scenario.service_us,
        costs=scenario.costs,
        copy_us=scenario.copy_us,
        buffer_max=scenario.buffer_max,
        observer=observer,
        check=check,
        tracing=tracing,
        measured=scenario.measured,
        hasty=scenario.hasty and observer is None and tracing is None,
    )
    workload = scenario.workload
    later: list[Later] = []
    advertisements: Sequence[Interest] = workload.advertisements
    if scenario.relocation is not None:
        advertisements = _joined(advertisements)
    for inputs_of, interests in (
        (_advertising, advertisements),
        (_subscribing, workload.subscriptions),
    ):
        for interest in interests:
            come, go = inputs_of(interest)
            if interest.time_us is None:
                simulator.at(simulator.now, interest.broker, come)
            else:
                later.append((interest.time_us, 0, interest.broker, come))
            if interest.until_us is not None:
                later.append((interest.until_us, 2, interest.broker, go))
        zero_us = simulator.settle()
    if tracing is not None:
        tracing.has_settled(zero_us)
    for broker in simulator.brokers:
        broker.queue_area, broker.queue_max, broker.queue_since = 0, 0, zero_us
    _plan_faults(simulator, scenario, zero_us)
    later += _hand_overs(scenario)
    published_us: dict[PublicationKey, TimeUs] = {}
    for posting in workload.postings:
        publication = Publication(
            posting.publisher, posting.id, posting.attributes, b"", posting.time_us
        )
        published_us[publication.key] = posting.time_us
        later.append((posting.time_us, 1, posting.broker, Publish(publication)))
    later.sort(key=lambda item: item[:2])
    for time_us, _, number, input in later:
        simulator.at(zero_us + time_us, number, input)
    until_us = None if scenario.until_us is None else zero_us + scenario.until_us
    if progress is not None:
        _tell(simulator, later, zero_us, until_us, progress)
    simulator.run(until_us)
    simulator.end()
    if tracing is not None:
        tracing.finish()
    return Result(
        scenario=scenario,
        deliveries=[
            (key, subscription, number, time_us - zero_us, hops, via)
            for key, subscription, number, time_us, hops, via in simulator.deliveries
        ],
        brokers=simulator.brokers[: scenario.overlay.brokers_count],  # routers have no results
        links=[
            *(link for links in simulator.links for link in links.values()),
            *simulator.asides.values(),
        ],
        steps_count=simulator.steps_count,
        duration_us=simulator.now - zero_us,
        published_us=published_us,
        refused=frozenset(simulator.refused),
        notes=[(time_us - zero_us, number, text) for time_us, number, text in simulator.notes],
        moves=[replace(moved, time_us=moved.time_us - zero_us) for moved in simulator.moves],
        settled_us=zero_us,
    )


def _tell(
    simulator: Simulator,
    later: Sequence[Later],
    zero_us: TimeUs,
    until_us: TimeUs | None,
    progress: Progress,
) -> None:
    """Run in stretches up to the last inputs. Inputs remain after each stretch, so a simulator that
    ends when all is quiet does not end in one of them."""
    progress(0, len(later))
    step = max(1, len(later) // STRETCHES)
    for done in range(step, len(later), step):
        time_us = later[done - 1][0]
        if time_us >= later[-1][0] or (until_us is not None and zero_us + time_us > until_us):
            return
        simulator.run(zero_us + time_us)
        progress(done, len(later))


def _plan_faults(simulator: Simulator, scenario: Scenario, zero_us: TimeUs) -> None:
    for fault in scenario.faults:
        if len(fault.where) == 2 and fault.where[1] not in simulator.links[fault.where[0]]:
            pair = " and ".join(scenario.overlay.names[broker] for broker in fault.where)
            raise InputError(
                f"{scenario.scheme} has no link between {pair} that a fault could touch",
                remedy="plan the overlay first and name its links, or use a tree scheme",
            )
        begin, end = zero_us + fault.start_us, zero_us + fault.end_us
        simulator.fault(replace(fault, start_us=begin, end_us=end))


def _hand_overs(scenario: Scenario) -> list[Later]:
    """What the host of each seat that moves is told, and when."""
    later: list[Later] = []
    host: dict[BrokerId, BrokerId] = {}
    for move in scenario.hand_overs:
        hand_over = SCHEMES[scenario.scheme].hand_over
        assert hand_over is not None
        input = Received(hand_over(move.seat, move.to), host.get(move.seat, move.seat))
        later.append((move.time_us, 0, input.sender, input))
        host[move.seat] = move.to
    return later


def _joined(advertisements: Sequence[Interest]) -> list[Interest]:
    """A publisher's advertisements at one broker as one that changes with them, because it moves
    as one: an interest for each change, the last of them until there is nothing left."""
    of_publisher: dict[tuple[BrokerId, str], list[Interest]] = {}
    for interest in advertisements:
        of_publisher.setdefault((interest.broker, interest.client), []).append(interest)
    joined: list[Interest] = []
    for own in of_publisher.values():
        if len(own) == 1:
            joined += own
            continue
        since = [-1 if interest.time_us is None else interest.time_us for interest in own]
        until = [math.inf if one.until_us is None else one.until_us for one in own]
        name = None
        for edge in sorted({*since, *(end + 1 for end in until if end < math.inf)}):
            there = [n for n in range(len(own)) if since[n] <= edge <= until[n]]
            if there:
                name = own[there[0]].id if name is None else name
                filter = disjoin(own[n].filter for n in there)
                start = None if edge < 0 else int(edge)
                joined.append(replace(own[0], id=name, filter=filter, time_us=start, until_us=None))
            elif name is not None:
                joined[-1] = replace(joined[-1], until_us=int(edge) - 1)
                name = None
    return joined


def _advertising(interest: Interest) -> tuple[Advertise, Unadvertise]:
    advertisement = Advertisement(interest.id, interest.filter, interest.client)
    return Advertise(advertisement), Unadvertise(interest.id)


def _subscribing(interest: Interest) -> tuple[Subscribe, Unsubscribe]:
    subscription = Subscription(interest.id, interest.filter, interest.client)
    return Subscribe(subscription), Unsubscribe(interest.id)


def mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0


def percentile(ascending: Sequence[int], percent: int) -> int:
    """The nearest-rank percentile: the least value that `percent` of all do not exceed."""
    return ascending[max(0, -(-len(ascending) * percent // 100) - 1)] if ascending else 0
