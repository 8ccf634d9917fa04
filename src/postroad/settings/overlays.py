"""The overlays that a settings file can describe: `kind`, and that kind's own keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from postroad.errors import InputError, choice_of
from postroad.model import TimeUs
from postroad.overlay import Overlay, files, small_world, trees, wide_area
from postroad.overlay.transit_stub import transit_stub
from postroad.planning import kyra
from postroad.settings.sections import Section, at_least

HOSTS = 490  # of a generated latency matrix, at least: as many as PlanetLab had


class Kind(ABC):
    @abstractmethod
    def overlay(self, folder: Path, seed: int) -> Overlay:
        """The overlay; files are relative to `folder`."""


@dataclass(frozen=True)
class FullTree(Kind):
    """A tree whose brokers all have `fanout` children, down to `height`."""

    fanout: int
    height: int
    latency_us: int = 1000

    def overlay(self, folder: Path, seed: int) -> Overlay:
        return trees.full_tree(self.fanout, self.height, _latency_us(self))


@dataclass(frozen=True)
class RandomTree(Kind):
    """A tree in which each broker joins one of those before it."""

    brokers: int
    latency_us: int = 1000

    def overlay(self, folder: Path, seed: int) -> Overlay:
        return trees.random_tree(self.brokers, seed, _latency_us(self))


@dataclass(frozen=True)
class NormalTree(Kind):
    """A tree with normally distributed numbers of children."""

    brokers: int
    mean: float
    stddev: float
    latency_us: int = 1000

    def overlay(self, folder: Path, seed: int) -> Overlay:
        return trees.normal_tree(self.brokers, self.mean, self.stddev, seed, _latency_us(self))


@dataclass(frozen=True)
class Edges(Kind):
    """A tree from a file of `a b [latency]` lines, with a header or without.

    Latencies are one way in whole microseconds unless `unit` and `times`, or the header, say more.
    """

    file: str
    latency_us: int = 1000
    unit: str | None = None
    times: str | None = None

    def overlay(self, folder: Path, seed: int) -> Overlay:
        times, unit = _meaning(self)
        return files.tree(folder / self.file, _latency_us(self), times, unit)


@dataclass(frozen=True)
class Swico(Kind):
    """A ring that `postroad plan swico` wrote."""

    file: str
    latency_us: int = 1000

    def overlay(self, folder: Path, seed: int) -> Overlay:
        return small_world.load(folder / self.file, _latency_us(self))


@dataclass(frozen=True)
class Kyra(Kind):
    """Cliques and trees that `postroad plan kyra` wrote."""

    file: str

    def overlay(self, folder: Path, seed: int) -> Overlay:
        return kyra.load(folder / self.file)


@dataclass(frozen=True)
class WideArea(Kind):
    """Brokers on hosts of a latency matrix, from a file or generated, on a shortest-path tree.

    `unit` and `times` ("one-way" or "round-trip") say what the file holds.
    """

    brokers: int
    file: str | None = None
    times: str | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        if self.file is None and (self.times is not None or self.unit is not None):
            raise InputError(
                f"file is None, times is {self.times!r} and unit is {self.unit!r}",
                remedy="give the file that they speak of",
            )

    def overlay(self, folder: Path, seed: int) -> Overlay:
        if self.file is None:
            matrix = wide_area.generated_matrix(max(self.brokers, HOSTS), seed)
        else:
            _, matrix = files.matrix(folder / self.file, *_meaning(self))
        return wide_area.topology(matrix, self.brokers, seed)


@dataclass(frozen=True)
class Latencies(Kind):
    """Brokers that reach each other: a matrix, lines `from,to,value` or a graph of links.

    `unit` and `times` ("one-way" or "round-trip") say what the numbers are.
    """

    file: str
    times: str | None = None
    unit: str | None = None

    def overlay(self, folder: Path, seed: int) -> Overlay:
        return files.read(folder / self.file, *_meaning(self))


@dataclass(frozen=True)
class TransitStub(Kind):
    """Servers on the routers of a generated transit-stub network."""

    servers: int = 500
    multi_homed: float = 0.0

    def overlay(self, folder: Path, seed: int) -> Overlay:
        return transit_stub(seed, self.servers, multi_homed=self.multi_homed).overlay()


KINDS: dict[str, type[Kind]] = {
    "full_tree": FullTree,
    "random_tree": RandomTree,
    "normal_tree": NormalTree,
    "edges": Edges,
    "swico": Swico,
    "kyra": Kyra,
    "wide_area": WideArea,
    "latencies": Latencies,
    "transit_stub": TransitStub,
}


def read(section: Section, folder: Path, seed: int) -> Overlay:
    """The overlay that a table describes."""
    kind = KINDS[section.choice("kind", list(KINDS))]
    settings = section.configure(kind)
    try:
        return settings.overlay(folder, seed)
    except InputError as error:
        raise error if error.where else error.at(section.place) from None


def _latency_us(settings: FullTree | RandomTree | NormalTree | Edges | Swico) -> TimeUs:
    at_least(settings, 0, "latency_us")
    return settings.latency_us


def _meaning(settings: Edges | WideArea | Latencies) -> tuple[str | None, str | None]:
    """What a file's latencies are: whether they go one way, and in which unit."""
    times = "round-trip" if settings.times == "rtt" else settings.times
    for key, value, choices in (
        ("times", times, files.TIMES),
        ("unit", settings.unit, tuple(files.UNITS_US)),
    ):
        if value is not None and value not in choices:
            raise InputError(f"{key} is {value!r}", remedy=choice_of(value, choices))
    return times, settings.unit
