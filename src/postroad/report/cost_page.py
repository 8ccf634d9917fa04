"""The page that holds the paper's numbers beside the measured ones."""

from __future__ import annotations

from collections.abc import Sequence

from postroad.papers.subscription_forwarding_model.beyond import Approximation, Check
from postroad.papers.subscription_forwarding_model.published import STATED_ERROR, TABLES
from postroad.papers.subscription_forwarding_model.runs import Cell, Verdict

FIGURES = {
    "figure-4": "Figure 4: load on full trees, σ=μ=0.001",
    "figure-5": "Figure 5: load on arbitrary trees, σ=μ=0.001",
    "figure-6": "Figure 6: the break-even ratio F(σ, μ)",
    "figure-7": "Figure 7: its projections",
    "figure-8": "Figure 8: Zipf distributions",
    "figure-9": "Figure 9: load against level",
    "figure-10": "Figure 10: traffic and maximum load against f",
}


def page(
    cells: Sequence[Cell],
    verdicts: Sequence[Verdict],
    checks: Sequence[Check],
    approximations: Sequence[Approximation],
    how: str,
    pictures: str,
) -> str:
    """Markdown. `how` says which command and mode made it; `pictures` is the figures' folder."""
    lines = [
        "# Modeling the Communication Costs of Content-based Routing (DEBS 2007)",
        "",
        how,
        "",
        "A cell reads: published / measured ± standard error of the measurement over the seeds.",
        "How we read the paper where it leaves a choice is written in",
        "`src/postroad/papers/subscription_forwarding_model/__init__.py`.",
        "",
        "## Does the model stay within the stated error?",
        "",
        f"The paper states {STATED_ERROR:g}% of the simulated traffic, in most scenarios well",
        "below 1%. For the load tables, for which it states no bound, the same figure is held",
        "against the deviation of the load in percent of the maximum load.",
        "",
        *_grid(
            ["table", f"within {STATED_ERROR:g}%", "worst cell", "worst %", "cells below 1%"],
            [
                [
                    verdict.table,
                    "yes" if verdict.holds else "**no**",
                    verdict.worst_cell,
                    f"{verdict.worst:.2f}",
                    f"{verdict.below_one} of {verdict.cells}",
                ]
                for verdict in verdicts
            ],
        ),
    ]
    for key, table in TABLES.items():
        lines += ["", f"## Table {key}: {table.title}", ""]
        here = {(cell.row, cell.column): cell for cell in cells if cell.table == key}
        lines += _grid(
            ["", *table.columns],
            [[row, *(_told(here[row, column]) for column in table.columns)] for row in table.rows],
        )
    lines += [
        "",
        "## Beyond the paper: exact expectations against the message-level kernel",
        "",
        "One random tree of 300 brokers on which every broker has its own σ, μ, γ and probability",
        "to advertise, and one in ten publishes, with uneven probabilities. Messages per filter or",
        "per publication; the load error is the largest over the brokers, in percent of the",
        "largest load.",
        "",
        *_grid(
            ["scheme", "expected", "simulated", "error %", "largest load error %"],
            [
                [
                    check.scheme,
                    f"{check.expected:.2f}",
                    f"{check.simulated:.2f} ± {check.standard_error:.2f}",
                    f"{check.error:.2f}",
                    f"{check.load_error_max:.2f}",
                ]
                for check in checks
            ],
        ),
        "",
        "## Where the paper approximates: L(p) by (11) and (15) against the exact expectation",
        "",
        *_grid(
            ["full tree", "level", "paper", "exact", "difference %"],
            [
                [
                    f"f={item.fanout}, h={item.height}, σ={item.sigma:g}",
                    str(item.level),
                    f"{item.paper:.5f}",
                    f"{item.exact:.5f}",
                    f"{item.error:.3f}",
                ]
                for item in approximations
            ],
        ),
        "",
        "## Figures",
    ]
    for name, title in FIGURES.items():
        lines += ["", f"![{title}]({pictures}/{name}.png)"]
    return "\n".join(lines) + "\n"


def _told(cell: Cell) -> str:
    return f"{cell.paper:g} / {cell.measured:.3f} ± {cell.standard_error:.3f}"


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
