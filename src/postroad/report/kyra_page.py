"""The page that holds Kyra's published numbers beside the measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postroad.papers.kyra.alpha import Fit
from postroad.papers.kyra.published import FIGURE_7, RATES
from postroad.papers.kyra.runs import ALL, Cell, Claim, Results
from postroad.papers.kyra.workload import DISTRIBUTIONS

FAR = 0.2


def page(
    cells: Sequence[Cell], claims: Sequence[Claim], fit: Fit, results: Results, how: str,
    pictures: Mapping[str, str],
) -> str:  # fmt: skip
    """Markdown. `how` says what made it; `pictures` are titles and files of the figures."""
    lines = ["# Kyra", "", how, ""]
    lines += [
        "Published / measured; the measured number is a mean over networks and seeds, with the",
        "least and the most in brackets. How we read the paper where it leaves a choice is written",
        "in `src/postroad/papers/kyra/__init__.py`.",
        "",
        "## What the paper claims",
        "",
        *_grid(
            ["claim", "holds here", "measured"],
            [[c.text, "yes" if c.holds else "**no**", c.numbers] for c in claims],
        ),
        "",
        "## Figure 7",
        "",
        f"α {FIGURE_7['alpha']} / {fit.alpha:.4f}, R² {FIGURE_7['r_square']} / {fit.r_square:.4f}.",
    ]
    for table in dict.fromkeys(cell.table for cell in cells):
        mine = [cell for cell in cells if cell.table == table]
        columns = list(dict.fromkeys(cell.column for cell in mine))
        found = {(cell.row, cell.column): _shown(cell) for cell in mine}
        lines += ["", f"## {table[0].upper()}{table[1:]}: published / measured", ""]
        lines += _grid(
            ["", *columns],
            [
                [row, *(found.get((row, column), "") for column in columns)]
                for row in dict.fromkeys(cell.row for cell in mine)
            ],
        )
    lines += ["", "## All schemes: NRU, and average and maximum node stress", ""]
    lines += _grid(
        ["distribution", "interest", *ALL],
        [
            [distribution, f"{rate:.0%}", *(_line(results, distribution, rate, s) for s in ALL)]
            for distribution in DISTRIBUTIONS
            for rate in RATES
        ],
    )
    far = [cell for cell in cells if abs(cell.off) > FAR]
    lines += ["", f"## More than {FAR:.0%} off", "", f"{len(far)} of {len(cells)} numbers.", ""]
    lines += _grid(
        ["number", "published", "measured", "off", "over our networks and seeds"],
        [
            [
                f"{c.table}, {c.row}, {c.column}",
                f"{c.paper:g}",
                _number(c.measured.mean),
                f"{c.off:+.0%}",
                _spread(c),
            ]
            for c in far
        ],
    )
    lines += ["", "## Figures", ""]
    lines += [f"![{title}]({path})" for title, path in pictures.items()]
    return "\n".join(lines) + "\n"


def _shown(cell: Cell) -> str:
    m = cell.measured
    return f"{cell.paper:g} / {_number(m.mean)} ({_number(m.low)} to {_number(m.high)})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _line(results: Results, distribution: str, rate: float, scheme: str) -> str:
    nru = f"{results.compare(distribution, rate, scheme, 'nru').mean:.2f}"
    if scheme == "broadcast":
        return nru
    stress = [
        f"{results.compare(distribution, rate, scheme, metric).mean:.0f}"
        for metric in ("node_mean", "node_max")
    ]
    return f"{nru}; {stress[0]}, {stress[1]}"


def _spread(cell: Cell) -> str:
    low, high = cell.measured.low, cell.measured.high
    within = ", the published number among them" if low <= cell.paper <= high else ""
    return f"{_number(low)} to {_number(high)}{within}"


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
