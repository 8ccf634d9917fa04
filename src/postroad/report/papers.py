"""The papers that `postroad reproduce` redoes, one record each.

A paper's record says which rows to run, what runs one, which rows are replicates of one setting,
and what their measures say: cells and claims beside the published ones, figures, a page. Rows run
as a Spark sweep, so a command that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from postroad.papers import Cell, Claim, Measures, Replicate

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Asked:
    """What a caller asked for: all points or few, and the paper's own files and choices."""

    full: bool = False
    files: Mapping[str, Path] = field(default_factory=dict)
    choices: Mapping[str, str] = field(default_factory=dict)


def within(cell: Cell, share: float = 0.2) -> bool:
    """Whether ours is so near to the published number."""
    assert cell.paper is not None
    return abs(cell.measured - cell.paper) <= share * abs(cell.paper)


def within_points(cell: Cell, points: float = 5.0) -> bool:
    """The same; a change in percent may also be off by so many points."""
    assert cell.paper is not None
    return within(cell) or (cell.column == "%" and abs(cell.measured - cell.paper) <= points)


POINTS = "within 20%, or 5 points of a change in percent"


@dataclass(frozen=True)
class Findings:
    """What a paper's runs say, ready to be written."""

    results: Sequence[Sequence[object]]  # of results.csv, the header first
    figures: Mapping[str, Figure]
    page: Callable[[str, str], str]  # from how it was made, and the figures' folder
    summary: Sequence[str]  # lines for the terminal
    failure: str | None = None  # what must not be
    readings: Mapping[str, Sequence[Cell]] = field(default_factory=dict)  # ours first
    claims: Sequence[Claim] = ()
    met: Callable[[Cell], bool] = within  # whether a published number is met
    criterion: str = "within 20%"  # and what that means


@dataclass(frozen=True)
class Paper:
    """One record."""

    about: str
    modes: str  # what --quick and --full run
    run: str  # module:function that runs a row of the sweep
    rows: Callable[[Asked], Rows]
    replicates: Callable[[Asked], list[Replicate]]
    findings: Callable[[Rows, Measures, Asked], Findings]
    baselines: Sequence[Mapping[str, str]] = ()  # what settings are measured against
    files: Mapping[str, str] = field(default_factory=dict)  # options that name files: their help
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)  # the first is the default


def papers() -> dict[str, Paper]:
    """All of them, by the name that `postroad reproduce` gives them."""
    from postroad.report import (
        beaconvey_page,
        cost_page,
        kyra_page,
        pop_grape_page,
        popsub_page,
    )

    return {
        "subscription-forwarding-model": cost_page.PAPER,
        "beaconvey": beaconvey_page.PAPER,
        "popsub": popsub_page.PAPER,
        "kyra": kyra_page.PAPER,
        "pop-grape": pop_grape_page.PAPER,
    }
