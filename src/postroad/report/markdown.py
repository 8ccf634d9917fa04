"""What the papers' pages share: tables in Markdown, and the lines of their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from postroad.papers import Cell, Claim


def grid(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: int | None = None
) -> list[str]:
    """A table; the columns from `right` on are numbers."""
    right = len(header) if right is None else right
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * right + "---:|" * (len(header) - right),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def stated_lines(cells: Sequence[Cell]) -> list[str]:
    """The numbers that a paper states in its text, ours beside."""
    return grid(
        ["figure", "what", "paper", "measured", "95% interval"],
        [
            [
                cell.table.removeprefix("figure "),
                cell.row,
                f"{cell.paper:g}{cell.column}",
                f"{cell.measured:.3g}{cell.column}",
                interval(cell),
            ]
            for cell in cells
        ],
        right=2,
    )


def interval(cell: Cell) -> str:
    """The 95% interval over the seeds, or the least and the most where that is what is known."""
    if cell.ci95 is not None:
        return f"{cell.ci95[0]:.3g} to {cell.ci95[1]:.3g}"
    if cell.standard_error:
        low, high = (cell.measured + sign * 1.96 * cell.standard_error for sign in (-1, 1))
        return f"{low:.3g} to {high:.3g}"
    return "" if math.isnan(cell.low) else f"{cell.low:.3g} to {cell.high:.3g} (least, most)"


def reading_lines(readings: Mapping[str, Sequence[Cell]]) -> list[str]:
    """What the other readings give where ours, the first, and they measured the same number."""
    if len(readings) < 2:
        return []
    ours, *others = readings
    by_name = {
        name: {(cell.table, cell.row): cell for cell in cells} for name, cells in readings.items()
    }
    lines = ["## What other readings give", ""]
    lines += grid(
        ["figure", "what", "paper", ours, *others],
        [
            [
                cell.table.removeprefix("figure "),
                cell.row,
                f"{cell.paper:g}{cell.column}",
                *(
                    f"{other.measured:.3g}{cell.column}" if other else ""
                    for name in readings
                    for other in [by_name[name].get((cell.table, cell.row))]
                ),
            ]
            for cell in readings[ours]
        ],
        right=2,
    )
    return [*lines, ""]


def summary(cells: Sequence[Cell]) -> list[str]:
    """The same for the terminal."""
    return [
        f"{cell.table.capitalize()}: {cell.row}: paper {cell.paper:g}{cell.column}, "
        f"measured {cell.measured:.3g}{cell.column}"
        for cell in cells
    ]


def results(
    cells: Sequence[Cell], table: Mapping[tuple[str, float, str], Mapping[str, float]]
) -> list[list[object]]:
    """results.csv: the stated numbers, then every metric of every point."""
    rows: list[list[object]] = [["table", "row", "column", "paper", "measured"]]
    rows += [[c.table, c.row, c.column, f"{c.paper:g}", f"{c.measured:.6g}"] for c in cells]
    for (experiment, value, method), metrics in table.items():
        rows += [
            [experiment, f"{value:g} {method}", metric, "", f"{measured:.6g}"]
            for metric, measured in metrics.items()
        ]
    return rows


def claim_lines(claims: Sequence[Claim]) -> list[str]:
    return [
        f"{'holds' if claim.holds else 'DOES NOT HOLD'}: {claim.text} ({claim.numbers})"
        for claim in claims
    ]
