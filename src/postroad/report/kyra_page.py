"""The page that holds Kyra's published numbers beside the measured ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from postroad.papers import Cell, Claim, Measures
from postroad.papers.kyra import alpha, runs
from postroad.papers.kyra.alpha import Fit
from postroad.papers.kyra.published import FIGURE_7, RATES
from postroad.papers.kyra.runs import ALL, Results
from postroad.papers.kyra.workload import DISTRIBUTIONS
from postroad.report.figures import kyra as figures
from postroad.report.markdown import claim_lines, grid
from postroad.report.papers import Asked, Findings, Paper, Rows

FAR = 0.2


def page(
    readings: Mapping[str, Sequence[Cell]], claims: Sequence[Claim], fit: Fit, results: Results,
    how: str, names: Iterable[str], folder: str,
) -> str:  # fmt: skip
    """Markdown. `how` says what made it; `names` are the figures in `folder`."""
    cells = readings["ours"]
    lines = ["# Kyra", "", how, ""]
    lines += [
        "Published / measured; the measured number is a mean over networks and seeds, with the",
        "least and the most in brackets. How we read the paper where it leaves a choice is written",
        "in `src/postroad/papers/kyra/__init__.py`.",
        "",
        "## What the paper claims",
        "",
        *grid(
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
        shown = {(cell.row, cell.column): _shown(cell) for cell in mine}
        lines += ["", f"## {table[0].upper()}{table[1:]}: published / measured", ""]
        lines += grid(
            ["", *columns],
            [
                [row, *(shown.get((row, column), "") for column in columns)]
                for row in dict.fromkeys(cell.row for cell in mine)
            ],
        )
    lines += ["", "## All schemes: NRU, and average and maximum node stress", ""]
    lines += grid(
        ["distribution", "interest", *ALL],
        [
            [distribution, f"{rate:.0%}", *(_line(results, distribution, rate, s) for s in ALL)]
            for distribution in DISTRIBUTIONS
            for rate in RATES
        ],
    )
    far = [cell for cell in cells if abs(cell.off) > FAR]
    lines += ["", f"## More than {FAR:.0%} off", "", f"{len(far)} of {len(cells)} numbers.", ""]
    lines += grid(
        ["number", "published", "measured", "off", "over our networks and seeds"],
        [
            [
                f"{c.table}, {c.row}, {c.column}",
                f"{c.paper:g}",
                _number(c.measured),
                f"{c.off:+.0%}",
                _spread(c),
            ]
            for c in far
        ],
    )
    lines += ["", "## Link averages over one fixed set of links", ""]
    lines += [
        "Ours divide by the links that a scheme used; the same for all schemes is the set of links",
        "between any two servers, or that of all links.",
        "",
    ]
    links = [place for place, cell in enumerate(cells) if "link_mean" in cell.row]
    lines += grid(
        ["number", "published", *readings],
        [
            [
                f"{cells[at].table}, {cells[at].row}, {cells[at].column}",
                f"{cells[at].paper:g}",
                *(_number(each[at].measured) for each in readings.values()),
            ]
            for at in links
        ],
    )
    lines += ["", "## Figures", ""]
    lines += [f"![{name}]({folder}/{name}.png)" for name in names]
    return "\n".join(lines) + "\n"


def _shown(cell: Cell) -> str:
    spread = f"({_number(cell.low)} to {_number(cell.high)})"
    return f"{cell.paper:g} / {_number(cell.measured)} {spread}"


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
    assert cell.paper is not None
    within = ", the published number among them" if cell.low <= cell.paper <= cell.high else ""
    return f"{_number(cell.low)} to {_number(cell.high)}{within}"


def findings(rows: Rows, measured: Measures, asked: Asked) -> Findings:
    results = Results(measured, runs.replicates(runs.rows(asked.full)))
    readings = {name: runs.cells(results, name) for name in runs.READINGS}
    cells, claims = readings["ours"], runs.claims(results)
    fit = alpha.fit(*alpha.measure(runs.network(0, 500, 0.0), 0))
    drawn = {
        "figure-7": figures.passed(fit),
        "figure-10": figures.grid(results, "storage", "Figure 10: storage", log=True),
        "figure-11": figures.grid(results, "processing", "Figure 11: processing load"),
        "figure-12": figures.grid(results, "node_mean", "Figure 12: average node stress"),
        "figure-13": figures.grid(results, "link_mean", "Figure 13: average link stress"),
        "figure-14": figures.grid(results, "nru", "Figure 14: NRU"),
        "figure-15": figures.nru(results),
        "figure-16": figures.spread(results),
    }
    keys = ("kind", "topology", "seed", "distribution", "rate", "clique_ms", "trees", "multi_homed")
    table: list[list[object]] = [[*keys, "scheme", *runs.METRICS]]
    for row in rows:
        for scheme in row["schemes"].split():
            values = [row.get(f"{scheme}|{metric}") for metric in runs.METRICS]
            shown = ["" if value is None or value != value else f"{value:.6g}" for value in values]
            table.append([*(row.get(key, "") for key in keys), scheme, *shown])
    near = sum(abs(cell.off) <= FAR for cell in cells)
    return Findings(
        table,
        drawn,
        lambda how, folder: page(readings, claims, fit, results, how, drawn, folder),
        [*claim_lines(claims), f"{near} of {len(cells)} published numbers within {FAR:.0%}"],
        readings=readings,
        claims=claims,
    )


PAPER = Paper(
    "Tables I to IV and Figures 7 and 10 to 16 of Kyra.",
    "One network and few points (default), or 4 networks x 2 seeds.",
    "postroad.papers.kyra.runs:sweep_case",
    lambda asked: runs.rows(asked.full),
    lambda asked: runs.replicates(runs.rows(asked.full)),
    findings,
    baselines=runs.BASELINES,
)
