"""One page with every published number beside ours: `postroad reproduce all`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from postroad.papers import Cell
from postroad.report.markdown import grid, interval
from postroad.report.papers import Findings

NEAR = 0.005  # as a share: another reading that moves a number less says nothing


@dataclass(frozen=True)
class Row:
    """A published number, ours, and what other readings give."""

    cell: Cell
    met: bool
    others: Mapping[str, Cell]  # of other readings, where they give another number
    met_by: Sequence[str]  # those among them under which it is met


def rows(findings: Findings) -> list[Row]:
    """Those that count: not what is equal by definition, nor what an earlier table has."""
    names = list(findings.readings)
    by_place = {
        name: {_place(cell): cell for cell in findings.readings[name]} for name in names[1:]
    }
    compared = []
    for cell in findings.readings[names[0]]:
        if not cell.counts or cell.paper is None:
            continue
        others = {
            name: other
            for name, cells in by_place.items()
            for other in [cells.get(_place(cell))]
            if other is not None and _moves(cell, other)
        }
        met_by = [name for name, other in others.items() if findings.met(other)]
        compared.append(Row(cell, findings.met(cell), others, met_by))
    return compared


def _place(cell: Cell) -> tuple[str, str, str]:
    return cell.table, cell.row, cell.column


def _moves(cell: Cell, other: Cell) -> bool:
    return abs(other.measured - cell.measured) > NEAR * max(abs(cell.measured), 1e-9)


def summary(name: str, findings: Findings) -> str:
    """One line of a paper."""
    compared = rows(findings)
    met = sum(row.met for row in compared)
    line = f"{name}: {met} of {len(compared)} published numbers met ({findings.criterion})"
    others = sum(not row.met and bool(row.met_by) for row in compared)
    if others:
        line += f", {others} more under another reading"
    if findings.claims:
        holds = sum(claim.holds for claim in findings.claims)
        line += f"; {holds} of {len(findings.claims)} claims hold"
    return line


def page(papers: Mapping[str, Findings], how: str, folder: str) -> str:
    """Markdown; each paper's own page is `folder`/NAME.md."""
    lines = ["# The papers, number by number", "", how, ""]
    lines += [f"- [{summary(name, each)}]({folder}{name}.md)" for name, each in papers.items()]
    lines += [
        "",
        "Numbers that are equal by definition, or that a later table repeats, are left out. The",
        "interval is the 95% one of the mean over the seeds, or the least and the most where that",
        "is said. Ours is the reading that each paper's page names; beside it the other reading",
        "that comes nearest, where one gives another number.",
    ]
    for name, findings in papers.items():
        lines += ["", f"## {name}", "", f"Met means: {findings.criterion}.", ""]
        lines += grid(
            ["where", "what", "published", "ours", "interval", "met", "nearest other reading"],
            [_line(row) for row in rows(findings)],
        )
        if findings.claims:
            lines += [""]
            lines += grid(
                ["claim", "holds", "measured"],
                [[c.text, "yes" if c.holds else "**no**", c.numbers] for c in findings.claims],
            )
    return "\n".join(lines) + "\n"


def _line(row: Row) -> list[str]:
    cell = row.cell
    unit = cell.column if cell.column in ("%", "×") else ""
    what = cell.row if cell.column in ("%", "×", "") else f"{cell.row}, {cell.column}"
    nearest = ""
    if row.others:
        assert cell.paper is not None
        paper = cell.paper
        name = min(row.others, key=lambda other: abs(row.others[other].measured - paper))
        other = row.others[name]
        met = " (met)" if name in row.met_by else ""
        nearest = f"{other.measured:.3g}{unit}{met}: {name}"
    return [
        cell.table, what, f"{cell.paper:g}{unit}", f"{cell.measured:.3g}{unit}", interval(cell),
        "yes" if row.met else "**no**", nearest,
    ]  # fmt: skip
