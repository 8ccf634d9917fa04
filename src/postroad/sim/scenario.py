"""A scenario: one network, one scheme, one workload, as read from a TOML file.

scheme = "advertisement_forwarding"
seed = 7
until = 60                       # stop then, in seconds; without it: when all is done

relocation = "grape"             # or "pop": publishers move; on advertisement_forwarding, popsub

[parameters]                     # the scheme's own
covering = true

[grape]                          # the relocation's own; [pop] likewise
priority = "delay"
weight = 75

[overlay]                        # full_tree: fanout, height; random_tree: brokers;
kind = "full_tree"               # normal_tree: brokers, mean, stddev;
fanout = 3                       # edges: file of `a b [latency_us]` lines;
height = 3                       # swico, kyra: file that `postroad plan` wrote;
latency_us = 5000                # wide_area: brokers, and a file of a matrix (.csv, in ms; without
                                 # it one is generated); latencies: file of a matrix or of a graph;
                                 # with either times = "one-way" or "round-trip";
                                 # transit_stub: servers, multi_homed

[brokers]
rate_per_s = 2000                # without it a broker takes no time; or rates_per_s = [1900, 2100],
                                 # of which each broker draws its own
buffer = 1000                    # without it a queue has no bound
copy_us = 50                     # and so long per copy of a publication, to whomever
direct_cost = 0.1                # a direct send costs its sender, in publications served;
batch_cost = 0.9                 # each publication of a batch after the first;
gossip_cost = 0.8                # each publication of a gossip; all three as measured without

[workload]                       # or [workload.generate], [workload.followed], [workload.social],
subscriptions = "subscriptions.csv"  # [workload.quotes]
publications = "publications.jsonl"

[[faults]]
kind = "link_down"               # link_delay (delay), link_loss (share), crash (broker),
link = ["0", "1"]                # partition (brokers: one side of it), aside_loss (share:
                                 # of what does not travel over the tree), leave (broker: told at
                                 # start, and gone for good from end on)
start = 1.0
end = 2.5

# [[hand_overs]]                 # kyra: a server's seat passes to another of its clique
# seat = "3"
# to = "5"
# time = 3.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroad import workloads
from postroad.cost.service import MEASURED, Costs
from postroad.draws import throughput
from postroad.errors import InputError
from postroad.model import BrokerId, TimeUs
from postroad.overlay import Overlay, small_world
from postroad.relocation import RELOCATIONS, check
from postroad.routing import SCHEMES
from postroad.settings import overlays, toml
from postroad.settings.sections import Section
from postroad.sim.engine import Fault, FaultKind
from postroad.workloads.model import Bad, Workload, refuse

_FAULTS = ["link_down", "link_delay", "link_loss", "aside_loss", "crash", "leave", "partition"]


@dataclass(frozen=True, slots=True)
class Reseat:
    """At a time, the seat that was planned for one server passes to another of its clique."""

    time_us: TimeUs
    seat: BrokerId
    to: BrokerId


@dataclass(frozen=True, slots=True)
class Deviations:
    """How much later or earlier than the link's latency messages were seen to arrive, for each
    link and direction: in the order in which they were sent, or to draw from."""

    of_link_us: Mapping[tuple[BrokerId, BrokerId], Sequence[TimeUs]]
    in_order: bool


@dataclass(frozen=True)
class Scenario:
    """All that a run depends on."""

    scheme: str
    overlay: Overlay
    workload: Workload
    config: Any = None  # the scheme's defaults if None
    seed: int = 0
    service_us: TimeUs = 0
    services_us: tuple[TimeUs, ...] = ()  # of each broker, where they differ
    costs: Costs = MEASURED
    copy_us: TimeUs = 0
    buffer_max: int | None = None
    faults: tuple[Fault, ...] = ()
    settle_us: TimeUs | None = None  # how long a change may take to reach every broker
    until_us: TimeUs | None = None
    relocation: str | None = None
    relocation_config: Any = None  # its defaults if None
    hand_overs: tuple[Reseat, ...] = ()
    measured: Deviations | None = None
    hasty: bool = False  # whether setting up takes no time: only the messages of it are counted
    blind: bool = False  # whether a planner knows nothing of the workload, as in a live network


def load(path: Path) -> Scenario:
    """Read a scenario file."""
    return from_section(toml.read(path), path.parent)


def from_dict(values: Mapping[str, Any], where: str, folder: Path, bad: Bad = refuse) -> Scenario:
    """A scenario from settings that are no file of their own."""
    return from_section(Section(values, where), folder, bad)


def from_section(top: Section, folder: Path, bad: Bad = refuse) -> Scenario:
    """A scenario from its settings; file names in it are relative to `folder`.

    `bad` is told of unusable rows of the workload's files; unless it raises they are left out.
    """
    seed = top.take("seed", int, 0)
    scheme = top.choice("scheme", list(SCHEMES))
    until_s: float | None = top.take("until", float, None, least=0)
    settle_s: float | None = top.take("settle", float, None, least=0)
    config = top.section("parameters").configure(SCHEMES[scheme].config)
    relocation: str | None = None
    relocation_config: Any = None
    if "relocation" in top.values:
        relocation = top.choice("relocation", list(RELOCATIONS))
        relocation_config = top.section(relocation).configure(RELOCATIONS[relocation].config)
        try:
            check(relocation, scheme, config)
        except InputError as error:
            raise error.at(top.where) from None
    overlay = overlays.read(top.section("overlay"), folder, seed)
    if isinstance(overlay, small_world.Ring) and SCHEMES[scheme].overlay != "ring":
        raise top.wrong("scheme", scheme, "choose a tree for it: overlay.kind swico is a ring")
    brokers = top.section("brokers")
    rate_per_s: float | None = brokers.take("rate_per_s", float, None)
    if rate_per_s is not None and rate_per_s <= 0:
        raise brokers.wrong("rate_per_s", rate_per_s, "give a rate above 0")
    rates_per_s: list[float] = brokers.take("rates_per_s", list, [])
    if any(type(rate) not in (int, float) or rate <= 0 for rate in rates_per_s):
        raise brokers.wrong("rates_per_s", rates_per_s, "give rates above 0")
    if rates_per_s and rate_per_s is not None:
        raise brokers.wrong("rates_per_s", rates_per_s, "give it or rate_per_s, not both")
    buffer_max: int | None = brokers.take("buffer", int, None, least=1)
    costs = Costs(
        **{
            name: brokers.take(f"{name}_cost", float, None, least=0)
            for name in ("batch", "gossip", "direct")
        }
    )
    copy_us: int = brokers.take("copy_us", int, 0, least=0)
    brokers.done()
    queues = rate_per_s is not None or bool(rates_per_s)
    if not queues and buffer_max is not None:
        raise brokers.wrong(
            "buffer", buffer_max, "set brokers.rate_per_s too: nothing queues without"
        )
    if not queues and copy_us:
        raise brokers.wrong("copy_us", copy_us, "set brokers.rate_per_s too")
    faults = _faults(top, overlay)
    hand_overs = _hand_overs(top, overlay, scheme)
    workload = workloads.read(top.section("workload"), folder, overlay.names, seed, bad)
    top.done()
    return Scenario(
        scheme=scheme,
        overlay=overlay,
        workload=workload,
        config=config,
        seed=seed,
        service_us=0 if rate_per_s is None else _service_us(rate_per_s),
        services_us=tuple(
            _service_us(throughput(rates_per_s, seed, broker))
            for broker in range(overlay.brokers_count if rates_per_s else 0)
        ),
        costs=costs,
        copy_us=copy_us,
        buffer_max=buffer_max,
        faults=faults,
        settle_us=None if settle_s is None else round(settle_s * 1_000_000),
        until_us=None if until_s is None else round(until_s * 1_000_000),
        relocation=relocation,
        relocation_config=relocation_config,
        hand_overs=hand_overs,
    )


def _service_us(rate_per_s: float) -> TimeUs:
    return max(1, round(1_000_000 / rate_per_s))


def _faults(top: Section, overlay: Overlay) -> tuple[Fault, ...]:
    number = {name: broker for broker, name in enumerate(overlay.names)}
    links: list[tuple[BrokerId, ...]] = [tuple(ends) for ends in overlay.ends.tolist()]
    faults: list[Fault] = []

    def broker(section: Section, key: str, name: Any) -> BrokerId:
        if str(name) not in number:
            raise section.wrong(key, name, "name a broker of the overlay")
        return number[str(name)]

    for position, values in enumerate(top.take("faults", list, [])):
        section = Section(values, top.where, f"faults[{position}]", top.lines)
        kind = section.choice("kind", _FAULTS)
        start = round(section.take("start", float, least=0) * 1_000_000)
        end = round(section.take("end", float, least=0) * 1_000_000)
        if end <= start:
            raise section.wrong("end", end / 1e6, "let the fault end after it starts")
        amount = 0.0
        places: list[tuple[BrokerId, ...]]
        if kind in ("crash", "leave"):
            places = [(broker(section, "broker", section.any("broker")),)]
            for other in faults:
                meets = other.start_us <= end and start <= other.end_us
                if other.kind in ("crash", "leave") and other.where == places[0] and meets:
                    raise section.wrong(
                        "start", start / 1e6, "let it restart before it crashes again"
                    )
        elif kind == "aside_loss":
            places = [()]
            amount = _share(section)
        elif kind == "partition":
            side = {broker(section, "brokers", name) for name in section.take("brokers", list)}
            places = [link for link in links if (link[0] in side) != (link[1] in side)]
        else:
            names = section.take("link", list)
            pair = tuple(broker(section, "link", name) for name in names)
            if pair not in links and pair[::-1] not in links:
                raise section.wrong("link", names, "name two brokers that a link joins")
            places = [pair]
            if kind == "link_delay":
                amount = section.take("delay", float, least=0) * 1_000_000
            elif kind == "link_loss":
                amount = _share(section)
        section.done()
        plain: FaultKind = "link_down" if kind == "partition" else kind  # type: ignore[assignment]
        faults.extend(Fault(plain, place, start, end, amount) for place in places)
    return tuple(faults)


def _hand_overs(top: Section, overlay: Overlay, scheme: str) -> tuple[Reseat, ...]:
    number = {name: broker for broker, name in enumerate(overlay.names)}
    reseats = []
    for position, values in enumerate(top.take("hand_overs", list, [])):
        section = Section(values, top.where, f"hand_overs[{position}]", top.lines)
        if SCHEMES[scheme].hand_over is None:
            seats = ", ".join(name for name, row in SCHEMES.items() if row.hand_over is not None)
            raise top.wrong("scheme", scheme, f"seats that move are in: {seats}")
        time_us = round(section.take("time", float, least=0) * 1_000_000)
        ends = []
        for key in ("seat", "to"):
            name = section.any(key)
            if str(name) not in number:
                raise section.wrong(key, name, "name a broker of the overlay")
            ends.append(number[str(name)])
        section.done()
        reseats.append(Reseat(time_us, *ends))
    return tuple(sorted(reseats, key=lambda reseat: reseat.time_us))


def _share(section: Section) -> float:
    share = section.take("share", float, least=0)
    if share > 1:
        raise section.wrong("share", share, "give a share of at most 1")
    return share
