"""Changes to a recorded scenario: a broker that is gone or new, a slower link, a publisher
elsewhere, more of everything.

Each returns another scenario and, in a sentence, the assumptions that it made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from postroad import draws
from postroad.errors import InputError
from postroad.model import BrokerId, TimeUs
from postroad.overlay import Overlay
from postroad.routing import SCHEMES
from postroad.settings import toml
from postroad.settings.sections import Section
from postroad.sim.engine import Fault
from postroad.sim.scenario import Deviations, Scenario
from postroad.workloads.model import Interest, Workload


@dataclass(frozen=True, slots=True)
class Changes:
    """Applied in this order: brokers added, brokers removed, links, publishers, growth."""

    added: Sequence[tuple[str, str, TimeUs]] = ()  # a broker, the one it is joined to, the latency
    without: Sequence[str] = ()
    links_us: Sequence[tuple[str, str, TimeUs]] = ()
    moved: Sequence[tuple[str, str]] = ()  # a publisher and a broker
    subscriptions_x: float = 1.0
    publications_x: float = 1.0

    def __bool__(self) -> bool:
        more = self.subscriptions_x != 1 or self.publications_x != 1
        return bool(self.added or self.without or self.links_us or self.moved or more)


def apply(scenario: Scenario, changes: Changes) -> tuple[Scenario, list[str]]:
    """The scenario after all changes, and the assumptions behind them."""
    said: list[str] = []
    for name, to, latency_us in changes.added:
        scenario = _add(scenario, name, to, latency_us)
    for name in changes.without:
        scenario, sentences = _without(scenario, name)
        said += sentences
    for a, b, latency_us in changes.links_us:
        scenario = _link(scenario, a, b, latency_us)
    for publisher, broker in changes.moved:
        scenario = _move(scenario, publisher, broker)
    if changes.subscriptions_x != 1 or changes.publications_x != 1:
        scenario = _grow(scenario, changes.subscriptions_x, changes.publications_x)
        said.append("what is added is a copy of what was there, at the same brokers and times")
    return scenario, said


def _number(overlay: Overlay, name: str, option: str) -> BrokerId:
    if name not in overlay.names:
        shown = ", ".join(overlay.names[:8]) + (", …" if len(overlay.names) > 8 else "")
        raise InputError(f"{option}: no broker {name!r}", remedy=f"choose one of: {shown}")
    return overlay.names.index(name)


def _add(scenario: Scenario, name: str, to: str, latency_us: TimeUs) -> Scenario:
    overlay = scenario.overlay
    if name in overlay.names:
        raise InputError(f"--add: there is a broker {name!r}", remedy="give it another name")
    peer = _number(overlay, to, "--add")
    ends = np.vstack([overlay.ends, [[peer, overlay.brokers_count]]])
    latencies = np.append(overlay.latency_us, latency_us)
    return replace(scenario, overlay=Overlay((*overlay.names, name), ends, latencies))


def _without(scenario: Scenario, name: str) -> tuple[Scenario, list[str]]:
    """Its clients are removed with it; its neighbours are linked to the nearest of them."""
    overlay = scenario.overlay
    gone = _number(overlay, name, "--without")
    if overlay.brokers_count == 1:
        raise InputError(f"--without: {name!r} is the only broker", remedy="leave one")
    around = overlay.neighbours()[gone]
    links = [
        (a, b, latency)
        for (a, b), latency in zip(overlay.ends.tolist(), overlay.latency_us.tolist(), strict=True)
        if gone not in (a, b)
    ]
    said = [f"the clients of {name} are gone with it"]
    if len(around) > 1:
        near = min(around, key=lambda peer: (around[peer], peer))
        links += [(near, peer, around[near] + us) for peer, us in around.items() if peer != near]
        others = ", ".join(overlay.names[peer] for peer in around if peer != near)
        said.append(
            f"{others} {'is' if len(around) == 2 else 'are'} joined to {overlay.names[near]}, as "
            f"far as over {name}"
        )
    new = {
        old: place for place, old in enumerate(b for b in range(len(overlay.names)) if b != gone)
    }
    ends = np.array([(new[a], new[b]) for a, b, _ in links], dtype=np.int64).reshape(-1, 2)
    names = tuple(other for other in overlay.names if other != name)
    latencies = np.array([latency for *_, latency in links], dtype=np.int64)

    def kept(interests: Sequence[Interest]) -> tuple[Interest, ...]:
        return tuple(
            replace(one, broker=new[one.broker]) for one in interests if one.broker != gone
        )

    workload = scenario.workload
    postings = tuple(
        replace(posting, broker=new[posting.broker])
        for posting in workload.postings
        if posting.broker != gone
    )
    faults = tuple(
        replace(fault, where=tuple(new[broker] for broker in fault.where))
        for fault in scenario.faults
        if gone not in fault.where
    )
    return replace(
        scenario,
        overlay=Overlay(names, ends, latencies),
        workload=Workload(kept(workload.subscriptions), kept(workload.advertisements), postings),
        faults=_still_there(faults, ends),
        measured=_renumbered(scenario.measured, new),
    ), said


def _renumbered(measured: Deviations | None, new: Mapping[BrokerId, BrokerId]) -> Deviations | None:
    if measured is None:
        return None
    of_link_us = {
        (new[a], new[b]): values
        for (a, b), values in measured.of_link_us.items()
        if a in new and b in new
    }
    return replace(measured, of_link_us=of_link_us)


def _still_there(faults: Sequence[Fault], ends: np.ndarray) -> tuple[Fault, ...]:
    links = {frozenset(pair) for pair in ends.tolist()}
    return tuple(f for f in faults if len(f.where) < 2 or frozenset(f.where) in links)


def _link(scenario: Scenario, a: str, b: str, latency_us: TimeUs) -> Scenario:
    overlay = scenario.overlay
    pair = {_number(overlay, a, "--link"), _number(overlay, b, "--link")}
    places = [n for n, ends in enumerate(overlay.ends.tolist()) if set(ends) == pair]
    if not places:
        peers = ", ".join(overlay.names[n] for n in overlay.neighbours()[min(pair)])
        raise InputError(
            f"--link: no link between {a} and {b}",
            remedy=f"{overlay.names[min(pair)]} has links to: {peers}",
        )
    latencies = overlay.latency_us.copy()
    latencies[places] = latency_us
    return replace(scenario, overlay=replace(overlay, latency_us=latencies))


def _move(scenario: Scenario, publisher: str, broker: str) -> Scenario:
    target = _number(scenario.overlay, broker, "--move")
    workload = scenario.workload
    names = {posting.publisher for posting in workload.postings}
    if publisher not in names:
        shown = ", ".join(sorted(names)[:8]) + (", …" if len(names) > 8 else "")
        raise InputError(f"--move: no publisher {publisher!r}", remedy=f"choose one of: {shown}")
    return replace(
        scenario,
        workload=replace(
            workload,
            postings=tuple(
                replace(posting, broker=target) if posting.publisher == publisher else posting
                for posting in workload.postings
            ),
            advertisements=tuple(
                replace(one, broker=target) if one.client == publisher else one
                for one in workload.advertisements
            ),
        ),
    )


def _grow(scenario: Scenario, subscriptions_x: float, publications_x: float) -> Scenario:
    """Whole copies of everything, then copies of a random share. A copy of a publication is made
    when its original is: later, who wanted it or advertised it might be gone."""
    workload, seed = scenario.workload, scenario.seed
    subscriptions = tuple(
        one if copy == 0 else replace(one, id=f"{one.id}~{copy}")
        for number, one in enumerate(workload.subscriptions)
        for copy in range(_copies(subscriptions_x, seed, "replay.subscription", number))
    )
    postings = tuple(
        posting if copy == 0 else replace(posting, id=f"{posting.id}~{copy}")
        for number, posting in enumerate(workload.postings)
        for copy in range(_copies(publications_x, seed, "replay.publication", number))
    )
    return replace(
        scenario,
        workload=replace(workload, subscriptions=subscriptions, postings=postings),
    )


def _copies(factor: float, seed: int, purpose: str, number: int) -> int:
    whole = int(factor)
    return whole + (draws.uniform(seed, purpose, 0, number) < factor - whole)


def under(
    scenario: Scenario, scheme: str | None, parameters: tuple[str, ...], plan: Path | None
) -> Scenario:
    """The scenario under another scheme or other parameters, if any were given."""
    if scheme is None and not parameters:
        return scenario
    top = Section({"scheme": scheme or scenario.scheme}, "--scheme")
    name = top.choice("scheme", list(SCHEMES))
    values: dict[str, Any] = {}
    if name == scenario.scheme and scenario.config is not None:
        values = asdict(scenario.config)
    for text in parameters:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--parameters is {text!r}", remedy="write it as KEY=VALUE")
        try:
            values[key] = toml.parse(f"value = {value}", "--parameters")["value"]
        except InputError:  # a word without quotes
            values[key] = value
    config = Section(values, "--parameters").configure(SCHEMES[name].config)
    overlay = scenario.overlay
    read_plan = SCHEMES[name].read_plan
    if plan is not None and read_plan is not None and name != scenario.scheme:
        overlay = read_plan(plan, int(overlay.latency_us.mean()))
        if set(overlay.names) != set(scenario.overlay.names):
            raise InputError(
                f"the plan {str(plan)!r} is for other brokers",
                remedy="plan for those of the traces",
            )
    relocation = scenario.relocation if name == scenario.scheme else None
    return replace(
        scenario, scheme=name, config=config, overlay=overlay, relocation=relocation,
        relocation_config=scenario.relocation_config if relocation else None,
        blind=scenario.blind and name == scenario.scheme,
    )  # fmt: skip
