"""The page that holds BeaConvey's published numbers beside the measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postroad.papers.beaconvey.runs import Cell, Claim

FAR = 0.2

# Why numbers differ, by the first words of a cell's table and row.
REASONS = {
    "Table": "presumably the graphs: SNAP ego networks of 4,039 and 81,306 users, not the paper's "
    "crawls of 3 and 41.7 million",
    "Figure 8": "presumably the number of publications: a maximum grows with it, and the paper "
    "does not give it",
    "Figure": "not explained",
}


def page(
    cells: Sequence[Cell], claims: Sequence[Claim], plans: Sequence[Mapping[str, str]], how: str,
    pictures: Mapping[str, str],
) -> str:  # fmt: skip
    """Markdown. `how` says what made it; `pictures` are titles and files of the figures."""
    lines = ["# BeaConvey", "", how, ""]
    lines += [
        "Ratios are against Scribe(-), as in the paper. How we read the paper where it leaves a",
        "choice is written in `src/postroad/papers/beaconvey/__init__.py`.",
        "",
        "## What the paper claims",
        "",
        *_grid(
            ["claim", "holds here", "measured (means over the workload's points)"],
            [[c.text, "yes" if c.holds else "**no**", c.numbers] for c in claims],
        ),
    ]
    for table in dict.fromkeys(cell.table for cell in cells if cell.table.startswith("Table")):
        mine = [cell for cell in cells if cell.table == table]
        columns = list(dict.fromkeys(cell.column for cell in mine))
        found = {(cell.row, cell.column): f"{cell.paper:g} / {cell.measured:.3f}" for cell in mine}
        lines += ["", f"## {table}: published / measured", ""]
        lines += _grid(
            ["system", *columns],
            [
                [row, *(found.get((row, column), "") for column in columns)]
                for row in dict.fromkeys(cell.row for cell in mine)
            ],
        )
    lines += ["", "## What the text says of the figures", ""]
    lines += _grid(
        ["figure", "system", "what", "published", "measured", "off"],
        [
            [c.table, c.row, c.column, f"{c.paper:g}", f"{c.measured:.3f}", f"{c.off:+.0%}"]
            for c in cells
            if c.table.startswith("Figure")
        ],
    )
    far = [cell for cell in cells if abs(cell.off) > FAR]
    lines += ["", f"## More than {FAR:.0%} off", ""]
    lines += [f"{len(far)} of {len(cells)} numbers.", ""]
    lines += _grid(
        ["number", "published", "measured", "why"],
        [
            [f"{c.table}, {c.row}, {c.column}", f"{c.paper:g}", f"{c.measured:.3f}", _reason(c)]
            for c in far
        ],
    )
    lines += ["", "## Overlays", ""]
    lines += _grid(list(plans[0]), [list(plan.values()) for plan in plans])
    lines += ["", "## Figures", ""]
    lines += [f"![{title}]({path})" for title, path in pictures.items()]
    return "\n".join(lines) + "\n"


def _reason(cell: Cell) -> str:
    return next(text for start, text in REASONS.items() if cell.table.startswith(start))


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
