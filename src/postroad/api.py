"""What `import postroad` offers to Python: small, typed, and the same from version to version.

Everything else is for Postroad's own use and may change. Spark and the live brokers are imported
only by the calls that need them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from postroad import filters, matching
from postroad.cost.estimate import Estimate
from postroad.errors import InputError, PostroadError
from postroad.filters import Filter, covers, intersects, parse
from postroad.filters.nested import plain
from postroad.live.client import Client
from postroad.routing import SCHEMES
from postroad.sim.run import Result
from postroad.sim.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd

    from postroad.live.network import Network
    from postroad.overlay.small_world import Ring

__all__ = [
    "SCHEMES",
    "Client",
    "Compared",
    "Estimate",
    "Filter",
    "Index",
    "InputError",
    "PostroadError",
    "Result",
    "Scenario",
    "compare",
    "covers",
    "estimate",
    "intersects",
    "matches",
    "network",
    "parse",
    "plan",
    "simulate",
]

Id = TypeVar("Id", bound=Hashable)


def matches(filter: Filter, attributes: Mapping[str, Any]) -> bool:
    """Whether the filter is TRUE of these attributes; a missing one is NULL. Of nested content it
    has to be TRUE of one row."""
    return filters.matches(filter, plain(attributes))


class ContentIndex(matching.Index[Id]):
    """Many filters, each under an id; `match` says which of them are TRUE of a publication."""

    def match(self, attributes: Mapping[str, Any]) -> list[Id]:
        """The ids of all filters that match, in the order of their insertion; where content is
        nested and has several rows, each by the first row that it matches."""
        return super().match(plain(attributes))


Index = ContentIndex  # as it is called outside; Postroad's own `Index` takes no nested content


def simulate(scenario: str | Path | Mapping[str, Any], folder: str | Path = ".") -> Result:
    """Run a scenario: a file, or the same settings as a dictionary, with files beside `folder`.

    `Result.summary()` has the counters; `Result.deliveries` each delivery.
    """
    from postroad.sim.run import run
    from postroad.sim.scenario import from_dict, load

    if isinstance(scenario, Mapping):
        return run(from_dict(scenario, "the scenario", Path(folder)))
    return run(load(Path(scenario)))


@dataclass(frozen=True)
class Compared:
    """What a comparison found: `best` is the row to run, None if none keeps within the limits."""

    best: str | None
    verdict: str
    out: Mapping[str, str]  # rows that do not keep within the limits, with the reason
    measures: pd.DataFrame  # a row for each scheme and measure: mean, low, high, n
    folder: Path

    def page(self) -> Path:
        """The page, one HTML file."""
        return self.folder / "index.html"


def compare(
    workload: str | Path,
    folder: str | Path = "report",
    schemes: Sequence[str] | None = None,
    master: str | None = None,
) -> Compared:
    """Compare schemes on the workload of a comparison file, on Spark; results go to `folder`."""
    import pandas as pd

    from postroad.comparison import perform, settings
    from postroad.comparison.verdict import judge
    from postroad.pipeline.run import Job
    from postroad.report.compare_page import page

    comparison = settings.load(Path(workload), schemes)
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    job = Job(master, command="postroad.compare", light=True)
    results = perform.perform(comparison, out, job, lambda *_: None)
    (out / "index.html").write_text(page(results), encoding="utf-8")
    judgement = judge(results.outcomes, comparison.matters, results.conditions)
    rows = [
        (row.label, name, figure.mean, figure.low, figure.high, figure.n)
        for row in results.outcomes
        for name, figure in row.figures.items()
    ]
    return Compared(
        None if judgement.best is None else judgement.best.label,
        judgement.text.replace("**", ""),
        judgement.out,
        pd.DataFrame(rows, columns=["scheme", "measure", "mean", "low", "high", "n"]),
        out,
    )


def estimate(
    fanout: float, height: int, sigma: float, mu: float, patterns: int, publications: int
) -> Estimate:
    """What subscription forwarding and flooding cost on a full tree, in closed form.

    `sigma` is the share of brokers that hold a pattern, `mu` that of those that want a publication.
    """
    from postroad.cost import estimate as model
    from postroad.cost.forwarding import check_uniform
    from postroad.cost.shapes import full

    check_uniform(sigma, mu)
    shape = full(fanout, height)
    return model.of_shape(shape, model.uniform(sigma, patterns), model.uniform(mu, publications))


def plan(interests: str | Path, overlay: str = "SL", seed: int = 0) -> Ring:
    """A ring whose neighbours share interests, for BeaConvey, Scribe and iScribe, from a table of
    node and topic."""
    from postroad.kernels.swico import build
    from postroad.overlay.small_world import as_overlay
    from postroad.planning.interests import read

    names, _, wanted = read(Path(interests))
    return as_overlay(build(wanted, overlay, "chord", seed), names, 0)


@contextmanager
def network(path: str | Path) -> Iterator[Network]:
    """The brokers of a network file, started if they do not run and stopped afterwards."""
    from postroad.live.network import load
    from postroad.live.operations import launch

    loaded = load(Path(path).absolute())
    started = launch.start(loaded)
    if not started:  # they are somebody else's, who would find them stopped afterwards
        raise InputError(
            f"all brokers of {loaded.name!r} are running already",
            remedy=f"stop them with: postroad network down {loaded.path}",
        )
    try:
        for _ in launch.wait(loaded, started):
            pass
        yield loaded
    finally:
        launch.stop(loaded)
