"""What the papers' pages share: tables in Markdown, and the lines of their numbers."""

from __future__ import annotations

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
        ["figure", "what", "paper", "measured"],
        [
            [
                cell.table.removeprefix("figure "),
                cell.row,
                f"{cell.paper:g}{cell.column}",
                f"{cell.measured:.3g}{cell.column}",
            ]
            for cell in cells
        ],
        right=2,
    )


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
