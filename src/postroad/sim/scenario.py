"""A scenario: one network, one scheme, one workload, as read from a TOML file.

scheme = "subscription_forwarding"
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
latency_us = 5000                # wide_area: brokers, and a file of round trips in ms
                                 # (a square matrix; without it one is generated);
                                 # latencies: file of a matrix (.csv, in ms) or of a graph;
                                 # transit_stub: servers, multi_homed

[brokers]
rate_per_s = 2000                # without it a broker takes no time
buffer = 1000                    # without it a queue has no bound
copy_us = 50                     # and so long per copy of a publication, to whomever

[workload]                       # or [workload.generate], [workload.followed], [workload.social],
subscriptions = "subscriptions.csv"  # [workload.quotes]
publications = "publications.jsonl"

[[faults]]
kind = "link_down"               # link_delay (delay), link_loss (share), crash (broker),
link = ["0", "1"]                # partition (brokers: one side of it), aside_loss (share:
                                 # of what does not travel over the tree)
start = 1.0
end = 2.5

[[hand_overs]]                   # kyra: a server's seat passes to another of its clique
seat = "3"
to = "5"
time = 3.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroad.errors import InputError
from postroad.model import BrokerId, TimeUs
from postroad.overlay import Overlay, from_links, latencies, small_world, trees, wide_area
from postroad.overlay.transit_stub import transit_stub
from postroad.planning import kyra
from postroad.relocation import RELOCATIONS, check
from postroad.routing import SCHEMES
from postroad.sim import workload as workloads
from postroad.sim.engine import Fault, FaultKind
from postroad.sim.sections import Section, read_toml
from postroad.sim.workload import Workload

_OVERLAYS = (
    "full_tree", "random_tree", "normal_tree", "edges", "swico", "kyra", "wide_area", "latencies",
    "transit_stub",
)  # fmt: skip
_HOSTS = 490  # of a generated latency matrix, at least: as many as PlanetLab had
_FAULTS = ["link_down", "link_delay", "link_loss", "aside_loss", "crash", "partition"]


@dataclass(frozen=True, slots=True)
class Reseat:
    """At a time, the seat that was planned for one server passes to another of its clique."""

    time_us: TimeUs
    seat: BrokerId
    to: BrokerId


@dataclass(frozen=True)
class Scenario:
    """All that a run depends on."""

    scheme: str
    overlay: Overlay
    workload: Workload
    config: Any = None  # the scheme's defaults if None
    seed: int = 0
    service_us: TimeUs = 0
    copy_us: TimeUs = 0
    buffer_max: int | None = None
    faults: tuple[Fault, ...] = ()
    settle_us: TimeUs | None = None  # how long a change may take to reach every broker
    until_us: TimeUs | None = None
    relocation: str | None = None
    relocation_config: Any = None  # its defaults if None
    hand_overs: tuple[Reseat, ...] = ()


def load(path: Path) -> Scenario:
    """Read a scenario file."""
    values, _ = read_toml(path)
    return from_dict(values, str(path), path.parent)


def from_dict(
    values: Mapping[str, Any], where: str, folder: Path, bad: workloads.Bad | None = None
) -> Scenario:
    """A scenario from its settings; file names in it are relative to `folder`.

    `bad`, if given, is told of unusable rows of the workload's files, which are then left out.
    """
    top = Section(values, where)
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
            raise error.at(where) from None
    overlay = _overlay(top.section("overlay"), folder, seed)
    if isinstance(overlay, small_world.Ring) and SCHEMES[scheme].overlay != "ring":
        raise top.wrong("scheme", scheme, "choose a tree for it: overlay.kind swico is a ring")
    brokers = top.section("brokers")
    rate_per_s: float | None = brokers.take("rate_per_s", float, None)
    if rate_per_s is not None and rate_per_s <= 0:
        raise brokers.wrong("rate_per_s", rate_per_s, "give a rate above 0")
    buffer_max: int | None = brokers.take("buffer", int, None, least=1)
    copy_us: int = brokers.take("copy_us", int, 0, least=0)
    brokers.done()
    if rate_per_s is None and buffer_max is not None:
        raise brokers.wrong(
            "buffer", buffer_max, "set brokers.rate_per_s too: nothing queues without"
        )
    if rate_per_s is None and copy_us:
        raise brokers.wrong("copy_us", copy_us, "set brokers.rate_per_s too")
    faults = _faults(top, overlay)
    hand_overs = _hand_overs(top, overlay, scheme)
    section = top.section("workload")
    workload = workloads.read(section, folder, overlay.names, seed, bad or workloads.refuse)
    top.done()
    return Scenario(
        scheme=scheme,
        overlay=overlay,
        workload=workload,
        config=config,
        seed=seed,
        service_us=0 if rate_per_s is None else max(1, round(1_000_000 / rate_per_s)),
        copy_us=copy_us,
        buffer_max=buffer_max,
        faults=faults,
        settle_us=None if settle_s is None else round(settle_s * 1_000_000),
        until_us=None if until_s is None else round(until_s * 1_000_000),
        relocation=relocation,
        relocation_config=relocation_config,
        hand_overs=hand_overs,
    )


def _overlay(section: Section, folder: Path, seed: int) -> Overlay:
    latency_us = section.take("latency_us", int, 1000, least=0)
    kind = section.choice("kind", [*_OVERLAYS])
    try:
        match kind:
            case "full_tree":
                fanout = section.take("fanout", int)
                height = section.take("height", int)
                section.done()
                return trees.full_tree(fanout, height, latency_us)
            case "random_tree":
                count = section.take("brokers", int)
                section.done()
                return trees.random_tree(count, seed, latency_us)
            case "normal_tree":
                count = section.take("brokers", int)
                mean = section.take("mean", float)
                stddev = section.take("stddev", float)
                section.done()
                return trees.normal_tree(count, mean, stddev, seed, latency_us)
            case "wide_area":
                count = section.take("brokers", int)
                file: str | None = section.take("file", str, None)
                section.done()
                if file is None:
                    matrix = wide_area.generated_matrix(max(count, _HOSTS), seed)
                else:
                    matrix = wide_area.read_matrix(folder / file)
                return wide_area.topology(matrix, count, seed)
            case "transit_stub":
                count = section.take("servers", int, 500)
                multi_homed = section.take("multi_homed", float, 0.0)
                section.done()
                return transit_stub(seed, count, multi_homed=multi_homed).overlay()
            case "kyra" | "latencies":
                name = section.take("file", str)
                section.done()
                return (kyra.load if kind == "kyra" else latencies.read)(folder / name)
            case "swico":
                name = section.take("file", str)
                section.done()
                return small_world.load(folder / name, latency_us)
            case _:
                name = section.take("file", str)
                section.done()
                return read_edges(folder / name, latency_us)
    except InputError as error:
        raise error if error.where else error.at(f"{section.where}: overlay") from None


def read_edges(path: Path, latency_us: TimeUs) -> Overlay:
    """A tree from lines `a b` or `a b latency_us`, split by blanks, tabs or commas."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror}", remedy="check the file's name"
        ) from None
    except UnicodeDecodeError:
        raise InputError("not UTF-8", where=str(path), remedy="save it as UTF-8") from None
    links: list[tuple[str, str, TimeUs]] = []
    for line_number, line in enumerate(lines, 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        if len(words) not in (2, 3) or (len(words) == 3 and not words[2].isdecimal()):
            raise InputError(
                f"{line.strip()[:60]!r} is not a link",
                where=f"{path}:{line_number}",
                remedy="write two brokers and, if it differs, the latency in µs",
            )
        links.append((words[0], words[1], int(words[2]) if len(words) == 3 else latency_us))
    return from_links(links, str(path))


def _faults(top: Section, overlay: Overlay) -> tuple[Fault, ...]:
    number = {name: broker for broker, name in enumerate(overlay.names)}
    links: list[tuple[BrokerId, ...]] = [tuple(ends) for ends in overlay.ends.tolist()]
    faults: list[Fault] = []

    def broker(section: Section, key: str, name: Any) -> BrokerId:
        if str(name) not in number:
            raise section.wrong(key, name, "name a broker of the overlay")
        return number[str(name)]

    for position, values in enumerate(top.take("faults", list, [])):
        section = Section(values, top.where, f"faults[{position}]")
        kind = section.choice("kind", _FAULTS)
        start = round(section.take("start", float, least=0) * 1_000_000)
        end = round(section.take("end", float, least=0) * 1_000_000)
        if end <= start:
            raise section.wrong("end", end / 1e6, "let the fault end after it starts")
        amount = 0.0
        places: list[tuple[BrokerId, ...]]
        if kind == "crash":
            places = [(broker(section, "broker", section.any("broker")),)]
            for other in faults:
                meets = other.start_us <= end and start <= other.end_us
                if other.kind == "crash" and other.where == places[0] and meets:
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
    found = []
    for position, values in enumerate(top.take("hand_overs", list, [])):
        section = Section(values, top.where, f"hand_overs[{position}]")
        if scheme != "kyra":
            raise top.wrong("scheme", scheme, "only kyra has seats that move")
        time_us = round(section.take("time", float, least=0) * 1_000_000)
        ends = []
        for key in ("seat", "to"):
            name = section.any(key)
            if str(name) not in number:
                raise section.wrong(key, name, "name a broker of the overlay")
            ends.append(number[str(name)])
        section.done()
        found.append(Reseat(time_us, *ends))
    return tuple(sorted(found, key=lambda reseat: reseat.time_us))


def _share(section: Section) -> float:
    share = section.take("share", float, least=0)
    if share > 1:
        raise section.wrong("share", share, "give a share of at most 1")
    return share
