"""The overlays that a settings file can describe: `kind`, and that kind's own keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from postroad.errors import InputError
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
    """A tree from a file of `a b [latency_us]` lines."""

    file: str
    latency_us: int = 1000

    def overlay(self, folder: Path, seed: int) -> Overlay:
        return files.tree(folder / self.file, _latency_us(self))


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

    `times` says what the file holds: "one-way" or "round-trip".
    """

    brokers: int
    file: str | None = None
    times: str | None = None

    def __post_init__(self) -> None:
        if (self.file is None) != (self.times is None):
            raise InputError(
                f"file is {self.file!r} and times is {self.times!r}",
                remedy=f"give a file and, as times, one of: {', '.join(files.TIMES)}",
            )
        if self.times is not None:
            _check_times(self.times)

    def overlay(self, folder: Path, seed: int) -> Overlay:
        if self.file is None or self.times is None:
            matrix = wide_area.generated_matrix(max(self.brokers, HOSTS), seed)
        else:
            _, matrix = files.matrix(folder / self.file, self.times)
        return wide_area.topology(matrix, self.brokers, seed)


@dataclass(frozen=True)
class Latencies(Kind):
    """Brokers that reach each other: a matrix (.csv, in ms) or a graph (`a b latency_us` lines).

    `times` says what the numbers are: "one-way" or "round-trip".
    """

    file: str
    times: str

    def __post_init__(self) -> None:
        _check_times(self.times)

    def overlay(self, folder: Path, seed: int) -> Overlay:
        return files.read(folder / self.file, self.times)


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


def _check_times(times: str) -> None:
    if times not in files.TIMES:
        raise InputError(f"times is {times!r}", remedy=f"choose one of: {', '.join(files.TIMES)}")
