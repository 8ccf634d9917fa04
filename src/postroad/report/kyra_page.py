"""The page that holds Kyra's published numbers beside the measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postroad.papers.kyra.alpha import Fit
from postroad.papers.kyra.published import FIGURE_7, RATES
from postroad.papers.kyra.runs import ALL, Cell, Claim, Results
from postroad.papers.kyra.workload import DISTRIBUTIONS

FAR = 0.2

# Why numbers differ, by what a cell's table, row and column contain; the first that fits.
REASONS = (
    (("Table I",), "the underlay's random placement: how clusters nest depends on the network"),
    (("Table III", "storage", "50%"), "not explained: no reading we tried gives the paper's 30%"),
    (("_max",), "a maximum over one network: it varies by 10 to 45% between ours"),
    (("mbr", "link"), "not explained; MBR's trees may be other than spanning trees"),
    (("multimodal",), "where the five peaks fall: between seeds averages differ twofold"),
    (("node_p80",), "read off a plot"),
    (("mbr",), "which values Forgy's random start puts together"),
    (("Table III", "storage", "1%"), "rounding of 2%, and where the load of 50 zones falls"),
    ((), "not explained"),
)


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
        ["number", "published", "measured", "off", "why"],
        [
            [
                f"{c.table}, {c.row}, {c.column}",
                f"{c.paper:g}",
                f"{c.measured.mean:.3g}",
                f"{c.off:+.0%}",
                _reason(c),
            ]
            for c in far
        ],
    )
    lines += ["", "## Figures", ""]
    lines += [f"![{title}]({path})" for title, path in pictures.items()]
    return "\n".join(lines) + "\n"


def _shown(cell: Cell) -> str:
    m = cell.measured
    return f"{cell.paper:g} / {m.mean:.3g} ({m.low:.3g} to {m.high:.3g})"


def _line(results: Results, distribution: str, rate: float, scheme: str) -> str:
    nru = f"{results.compare(distribution, rate, scheme, 'nru').mean:.2f}"
    if scheme == "broadcast":
        return nru
    stress = [
        f"{results.compare(distribution, rate, scheme, metric).mean:.0f}"
        for metric in ("node_mean", "node_max")
    ]
    return f"{nru}; {stress[0]}, {stress[1]}"


def _reason(cell: Cell) -> str:
    said = f"{cell.table} | {cell.row} | {cell.column}"
    return next(
        why for words, why in REASONS
        if all(_word(word, said) for word in words)
    )  # fmt: skip


def _word(word: str, said: str) -> bool:
    return said.startswith(f"{word} |") or word in said.split(" | ", 1)[1]


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
