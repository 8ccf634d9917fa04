"""The page that holds BeaConvey's published numbers beside the measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postroad.papers.beaconvey.runs import Cell, Claim

FAR = 0.2


def page(
    readings: Mapping[str, Sequence[Cell]], claims: Sequence[Claim],
    expo: Sequence[Mapping[str, str]], plans: Sequence[Mapping[str, str]], how: str,
    pictures: Mapping[str, str],
) -> str:  # fmt: skip
    """Markdown. `how` says what made it; `pictures` are titles and files of the figures.

    `readings` are the cells under each reading of the paper, ours first.
    """
    cells = next(iter(readings.values()))
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
    lines += ["", "## What each reading changes", ""]
    lines += [
        "Where the paper leaves a choice, the same runs measured the other way: how many published",
        f"numbers come within {FAR:.0%}, and how far off on average those are that it moves.",
        "",
    ]
    lines += _grid(
        ["reading", f"within {FAR:.0%}", "numbers moved", "off with ours", "off with it"],
        [_effect(name, cells, each) for name, each in readings.items()],
    )
    far = [place for place, cell in enumerate(cells) if cell.counts and abs(cell.off) > FAR]
    lines += ["", f"## More than {FAR:.0%} off", ""]
    lines += [
        f"{len(far)} of {sum(cell.counts for cell in cells)} numbers. Those of Scribe(-) are 1 by",
        "definition and do not count, nor do those that a second table repeats. The graphs are",
        "SNAP's ego networks of 4,039 and 81,306 users, not the paper's crawls of 3 and 41.7",
        "million. Beside each number: what the single samples of the graph gave, and the reading",
        "that comes nearest to the published number where that is not ours.",
        "",
    ]
    lines += _grid(
        ["number", "published", "measured", "over our samples", "nearest with another reading"],
        [
            [
                f"{cells[at].table}, {cells[at].row}, {cells[at].column}",
                f"{cells[at].paper:g}",
                f"{cells[at].measured:.3f}",
                _spread(cells[at]),
                _nearest(at, readings),
            ]
            for at in far
        ],
    )
    if expo:
        lines += ["", "## Expo", ""]
        lines += [
            "The paper names this workload but shows no result; ratios against Scribe(-).",
            "",
        ]
        lines += _grid(list(expo[0]), [list(row.values()) for row in expo])
    lines += ["", "## Overlays", ""]
    lines += _grid(list(plans[0]), [list(plan.values()) for plan in plans])
    lines += ["", "## Figures", ""]
    lines += [f"![{title}]({path})" for title, path in pictures.items()]
    return "\n".join(lines) + "\n"


def _spread(cell: Cell) -> str:
    if not cell.samples:
        return ""
    low, high = min(cell.samples), max(cell.samples)
    within = ", the published number among them" if low <= cell.paper <= high else ""
    return f"{low:.3f} to {high:.3f} in {len(cell.samples)}{within}"


def near(cells: Sequence[Cell]) -> str:
    """How many of the numbers that count come near the published ones."""
    counting = [cell for cell in cells if cell.counts]
    return f"{sum(abs(cell.off) <= FAR for cell in counting)} of {len(counting)}"


def _effect(name: str, ours: Sequence[Cell], theirs: Sequence[Cell]) -> list[str]:
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.counts]
    moved = [(a, b) for a, b in pairs if a.measured != b.measured]
    off = [
        f"{sum(abs(cell.off) for cell in side) / len(side):.0%}" if side else ""
        for side in ([a for a, _ in moved], [b for _, b in moved])
    ]
    return [name, near(theirs), str(len(moved)), *off]


def _nearest(at: int, readings: Mapping[str, Sequence[Cell]]) -> str:
    name = min(readings, key=lambda name: abs(readings[name][at].off))
    if name == next(iter(readings)):
        return ""
    return f"{readings[name][at].measured:.3f}: {name}"


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
