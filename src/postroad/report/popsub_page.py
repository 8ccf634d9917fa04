"""The page of PopSub's figures, the paper's stated numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postroad.papers import Cell, Measures, Replicate
from postroad.papers.popsub import runs
from postroad.papers.popsub.runs import EXPERIMENTS, MECHANISMS, TRENDS, followed
from postroad.report.figures import popsub as figures
from postroad.report.figures.popsub import LABELS
from postroad.report.markdown import results, stated_lines, summary
from postroad.report.papers import Asked, Findings, Paper, Rows

SHOWN = {
    "phi": ["gain_ratio", "unpopular_deliveries", "pure_forwards"],
    "throughput": ["gain_ratio", "unpopular_deliveries", "pure_forwards"],
    "overlay": ["gain_ratio", "pure_forwards", "unpopular_pdl_ms", "unpopular_pdl90_ms"],
    "subscriptions": [
        "gain_ratio",
        "pure_forwards",
        "unpopular_pdl_ms",
        "direct_forwards",
        "gossip_groups",
    ],
    "skew": [
        "gain_ratio",
        "pure_forwards",
        "gossip_false_positives",
        "matches_per_gossip",
        "gossip_groups",
        "direct_forwards",
    ],
    "users": ["gain_ratio", "pure_forwards", "direct_forwards"],
    "overload": ["gain_ratio", "queue", "popular_pdl_ms", "unpopular_pdl_ms"],
    "overload-throughput": ["queue", "popular_pdl_ms"],
    "overload-phi": ["queue", "popular_pdl_ms"],
    "overload-batch": ["queue", "popular_pdl_ms"],
    "overload-direct": ["queue", "popular_pdl_ms"],
}

GROUNDS = """\
## What the numbers rest on

- How much is unpopular depends on τ·φ and on how many brokers publish, each with a capacity of its
  own; neither is in the text. The default τ was chosen so that direct sends per publication fit the
  paper's; the table by throughput varies it, the one by users who publishes.
- In overload a batch of n costs 1 + 0.2 (n - 1) publications, and a direct send costs its receiver
  alone; the tables by batch and by direct cost vary both.
- Delays are of the latency matrix used, not of the King data: compare ratios.
- Gossip figures come from the kernel's model of gossip, which reaches everyone.
"""


def page(
    table: Mapping[tuple[str, float, str], Mapping[str, float]],
    cells: Sequence[Cell],
    topologies: Sequence[Mapping[str, float]],
    ratios: Mapping[str, tuple[float, float]],
    how: str,
    folder: str,
) -> str:
    lines = ["# PopSub: paper and ours", "", how, ""]
    lines += ["How the paper was read is written in `src/postroad/papers/popsub/__init__.py`.", ""]
    lines += ["## The paper's stated numbers", ""]
    lines += ["Changes in percent are the largest over the experiment, against the baseline.", ""]
    lines += stated_lines(cells)
    lines += ["", GROUNDS]
    lines += ["Deliveries as a share of the baseline's, over all runs:"]
    shares = [f"{_label(m)} {least:.6g} to {most:.6g}" for m, (least, most) in ratios.items()]
    lines += ["; ".join(shares) + ".", ""]
    lines += ["## The paper's trends", ""]
    lines += ["Whether every step of the experiment moves the metric as in the paper.", ""]
    lines += ["| figure | along | what | holds for | not for |", "|---|---|---|---|---|"]
    fields = {experiment.name: experiment.field for experiment in EXPERIMENTS}
    for trend in TRENDS:
        verdicts = followed(trend, table)
        sides = [", ".join(_label(m) for m, v in verdicts.items() if v == s) for s in (True, False)]
        what = f"{LABELS[trend.metric]} {'rises' if trend.rises else 'falls'}"
        along = fields[trend.experiment]
        lines.append(f"| {trend.figure} | {along} | {what} | {sides[0]} | {sides[1]} |")
    lines.append("")
    for experiment in EXPERIMENTS:
        name = experiment.name
        lines += [f"## Figures {experiment.figures}: {name}", ""]
        lines += [f"![{name}]({folder}/{name}.png)", ""]
        metrics = SHOWN[name]
        heads = [experiment.field, "mechanism", *(LABELS[metric] for metric in metrics)]
        lines.append("| " + " | ".join(heads) + " |")
        lines += ["|---:|---|" + "---:|" * len(metrics)]
        values = dict.fromkeys(value for key, value, _ in table if key == name)
        for value in values:
            for mechanism in MECHANISMS:
                measures = table[name, value, mechanism]
                values_of = [f"{measures[metric]:,.4g}" for metric in metrics]
                lines.append(f"| {value:g} | {_label(mechanism)} | " + " | ".join(values_of) + " |")
        lines.append("")
    lines += ["## Figure 4b by topology", ""]
    lines += ["Average queue of the baseline, and how the mechanisms change it.", ""]
    lines += ["| root's links | baseline | " + " | ".join(MECHANISMS[1:]) + " |"]
    lines += ["|---:|---:|" + "---:|" * len(MECHANISMS[1:])]
    for line in topologies:
        changes = " | ".join(f"{line[m]:+.0f}%" for m in MECHANISMS[1:])
        lines.append(f"| {line['degree']} | {line['baseline']:,.4g} | {changes} |")
    return "\n".join([*lines, ""])


def _label(mechanism: str) -> str:
    return "baseline" if mechanism == "tree" else mechanism


def _todo(asked: Asked) -> Rows:
    return runs.rows(asked.full, asked.files.get("latencies"))


def _replicates(asked: Asked) -> list[Replicate]:
    return runs.replicates(asked.full, asked.files.get("latencies"))


def findings(rows: Rows, measured: Measures, asked: Asked) -> Findings:
    replicates = _replicates(asked)
    table = runs.means(measured, replicates)
    cells = runs.cells(table)
    drawn = {
        experiment.name: figures.panels(
            table, experiment.name, experiment.field, SHOWN[experiment.name]
        )
        for experiment in EXPERIMENTS
    }
    topologies = runs.queues_by_topology(measured, replicates)
    ratios = runs.delivery_ratios(measured, replicates)
    return Findings(
        results(cells, table),
        drawn,
        lambda how, folder: page(table, cells, topologies, ratios, how, folder),
        summary(cells),
    )


PAPER = Paper(
    "Figures 3a to 3o and 4a to 4d of PopSub.",
    "One run per point (default), or 5 x 5.",
    "postroad.papers.popsub.runs:sweep_case",
    lambda asked: runs.distinct(_todo(asked))[0],
    _replicates,
    findings,
    baselines=runs.BASELINES,
    files={
        "latencies": "Square matrix of round trips in ms (CSV, gzip too); else one is generated."
    },
)
