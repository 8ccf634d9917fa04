"""The page of PopSub's figures, the paper's stated numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postroad.papers import Cell, Measures, Replicate
from postroad.papers.popsub import protocol, runs
from postroad.papers.popsub.runs import EXPERIMENTS, MECHANISMS, TRENDS, MeanOf, followed
from postroad.report.figures import popsub as figures
from postroad.report.figures.popsub import LABELS
from postroad.report.markdown import grid, reading_lines, results, stated_lines, summary
from postroad.report.papers import POINTS, Asked, Findings, Paper, Rows, within_points

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
}

GROUNDS = """\
## What the numbers rest on

- Fixed before any figure was made: τ is drawn per broker from five values around 2,500 a second,
  between the 2,000 publications that the root handles in the experiments that are not overloaded
  and the 3,000 of the one that is; Algorithm 1 looks at all entries and follows the printed rule;
  Zipf's law is over the 20 classes; batches, gossip and direct sends cost what `postroad calibrate`
  measured. None was chosen by its results. The tables by τ, φ and reading show what others give.
- Delays are of the latency matrix used, not of the King data: compare ratios.
- Gossip figures come from the kernel's model of gossip, which reaches everyone; beside them, below,
  a sample of the protocol itself.
"""


def page(
    table: MeanOf,
    readings: Mapping[str, Sequence[Cell]],
    sample: Sequence[Mapping[str, str]],
    topologies: Sequence[Mapping[str, float]],
    ratios: Mapping[str, tuple[float, float]],
    how: str,
    folder: str,
) -> str:
    cells = readings[runs.OURS]
    lines = ["# PopSub: paper and ours", "", how, ""]
    lines += ["How the paper was read is written in `src/postroad/papers/popsub/__init__.py`.", ""]
    lines += ["## The paper's stated numbers", ""]
    lines += ["Changes in percent are the largest over the experiment, against the baseline.", ""]
    lines += stated_lines(cells)
    lines += ["", GROUNDS]
    lines += ["Deliveries as a share of the baseline's, over all runs:"]
    shares = [f"{_label(m)} {least:.6g} to {most:.6g}" for m, (least, most) in ratios.items()]
    lines += ["; ".join(shares) + ".", ""]
    lines += reading_lines(readings)
    lines += ["## Gossip: the kernel's model and the protocol", ""]
    lines += ["Small networks, the same for both: what the kernel counts, and the routers. Gossips"]
    lines += ["of the protocol include digests and questions, which carry no publication.", ""]
    lines += grid(list(sample[0]), [list(row.values()) for row in sample], right=1)
    lines += ["", "## The paper's trends", ""]
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
    spans = runs.intervals(measured, replicates)
    cells = runs.cells(measured, replicates)
    measured_readings = dict.fromkeys(at.setting.get("reading", runs.OURS) for at in replicates)
    readings = {name: runs.cells(measured, replicates, name) for name in measured_readings}
    drawn = {
        experiment.name: figures.panels(
            table, spans, experiment.name, experiment.field, SHOWN[experiment.name]
        )
        for experiment in EXPERIMENTS
    }
    topologies = runs.queues_by_topology(measured, replicates)
    ratios = runs.delivery_ratios(measured, replicates)
    sample = protocol.table(protocol.SMALL, 5 if asked.full else 2)
    return Findings(
        results(cells, table),
        drawn,
        lambda how, folder: page(table, readings, sample, topologies, ratios, how, folder),
        summary(cells),
        readings=readings,
        met=within_points,
        criterion=POINTS,
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
