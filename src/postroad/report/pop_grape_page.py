"""The page of POP's and GRAPE's figures, the paper's stated numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postroad.papers import Cell, Measures
from postroad.papers.pop_grape import runs
from postroad.report.figures import pop_grape as figures
from postroad.report.figures.pop_grape import LABELS
from postroad.report.markdown import results, stated_lines, summary
from postroad.report.papers import POINTS, Asked, Findings, Paper, Rows, within_points

# Per experiment: its heading, what it varies, and the metrics shown in the figure.
SHOWN: dict[str, tuple[str, str, list[str]]] = {
    "enterprise": (
        "Figures 5a-5c, 6a, 6b, 6e-6g: enterprise workload, PlanetLab",
        "brokers with subscribers",
        ["message_rate", "input_utilisation", "delay_ms", "overhead"],
    ),
    "cluster": (
        "Figures 5d-5f: enterprise workload, cluster",
        "brokers with subscribers",
        ["message_rate", "input_utilisation", "delay_ms", "overhead"],
    ),
    "fan-out 4": (
        "Figures 6c and 6d: fan-out 4 (enterprise workload, PlanetLab)",
        "brokers with subscribers",
        ["message_rate", "delay_ms", "wait_ms"],
    ),
    "random": (
        "Figures 6h and 6i: random workload, PlanetLab",
        "brokers with subscribers",
        ["message_rate", "input_utilisation", "delay_ms", "overhead"],
    ),
    "weights": (
        "Figure 7a: GRAPE's weights (enterprise, 16 brokers with subscribers)",
        "brokers with subscribers",
        ["message_rate", "delay_ms", "hops"],
    ),
    "thresholds": (
        "Figures 7b-7i: sampling thresholds (cluster, enterprise, 16 brokers with subscribers)",
        "threshold",
        ["message_rate", "delay_ms", "overhead", "moves"],
    ),
    "ping-pong": (
        "Beyond the paper: POP's ping-pong, and a margin against it (threshold 25)",
        "margin",
        ["moves", "message_rate", "delay_ms", "overhead"],
    ),
}

GROUNDS = """\
## What the numbers rest on

- The paper's numbers of publishers and subscribers, its matching times and its figures are not in
  the text; how we filled the gaps is in `src/postroad/papers/pop_grape/__init__.py`.
  Matching times, copy costs and subscriber counts were chosen so that the delay comes near the
  paper's, so the largest changes show that its numbers can be reached, not that they are confirmed.
  Compare changes against static, not absolute values.
- Table entries are routing tables, profiles, sessions and answers, the most that a broker held at
  once; bytes are those of its state at the end of the run, written down. The paper's 19 and 31 MB
  are of a virtual machine's process and stand for no such number here.
"""


def page(
    table: Mapping[tuple[str, float, str], Mapping[str, float]],
    cells: Sequence[Cell],
    how: str,
    folder: str,
) -> str:
    lines = ["# POP and GRAPE: paper and ours", "", how, ""]
    lost = sum(measures["lost"] + measures["twice"] for measures in table.values())
    lines += [f"Publications lost or delivered twice, over all runs: {lost:g}.", ""]
    lines += ["## The paper's stated numbers", ""]
    lines += ["Changes are against static, in percent. Paper: PlanetLab, up to.", ""]
    lines += stated_lines(cells)
    lines += ["", GROUNDS]
    for name, (heading, axis, _) in SHOWN.items():
        lines += [f"## {heading}", "", f"![{name}]({folder}/{name.replace(' ', '-')}.png)", ""]
        lines.append(f"| {axis} | method | " + " | ".join(LABELS.values()) + " |")
        lines.append("|---:|---|" + "---:|" * len(LABELS))
        for (experiment, value, method), measures in table.items():
            if experiment == name:
                values = [_shown(measures[metric]) for metric in LABELS]
                lines.append(f"| {value:g} | {method} | " + " | ".join(values) + " |")
        lines.append("")
    return "\n".join(lines)


def _shown(value: float) -> str:
    """Three digits, and never an exponent where a reader expects a number."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _rows(asked: Asked) -> Rows:
    return runs.rows(asked.full, asked.files.get("quotes"), asked.files.get("latencies"))


def findings(rows: Rows, measured: Measures, asked: Asked) -> Findings:
    table = runs.means(measured, runs.replicates(_rows(asked)))
    ranges = runs.ranges(measured, runs.replicates(_rows(asked)))
    cells = runs.cells(table)
    drawn = {
        name.replace(" ", "-"): figures.weights(table, ranges, metrics)
        if name == "weights"
        else figures.panels(table, ranges, name, axis, metrics)
        for name, (_, axis, metrics) in SHOWN.items()
    }
    lost = sum(row["lost"] + row["twice"] for row in rows)
    return Findings(
        results(cells, table),
        drawn,
        lambda how, folder: page(table, cells, how, folder),
        summary(cells),
        f"{lost:g} publications were lost or delivered twice" if lost else None,
        readings={"ours": cells},
        met=within_points,
        criterion=POINTS,
    )


PAPER = Paper(
    "Figures 5 to 7 of POP and GRAPE.",
    "Few small runs (default), or all points, twice, at full length.",
    "postroad.papers.pop_grape.runs:sweep_case",
    _rows,
    lambda asked: runs.replicates(_rows(asked)),
    findings,
    files={
        "quotes": "Daily OHLCV quotes (CSV, gzip too); without them a series is generated.",
        "latencies": "Square matrix of round trips in ms (CSV, gzip too); else one is generated.",
    },
)
