"""The page that holds BeaConvey's published numbers beside the measured ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from postroad.papers import Cell, Claim, Measures
from postroad.papers.beaconvey import runs
from postroad.report.figures import beaconvey as figures
from postroad.report.markdown import claim_lines, grid
from postroad.report.papers import Asked, Findings, Paper, Rows

FAR = 0.2


def page(
    readings: Mapping[str, Sequence[Cell]], claims: Sequence[Claim],
    expo: Sequence[Mapping[str, str]], plans: Sequence[Mapping[str, str]], how: str,
    names: Iterable[str], folder: str,
) -> str:  # fmt: skip
    """Markdown. `how` says what made it; `names` are the figures in `folder`.

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
        *grid(
            ["claim", "holds here", "measured (means over the workload's points)"],
            [[c.text, "yes" if c.holds else "**no**", c.numbers] for c in claims],
        ),
    ]
    for table in dict.fromkeys(cell.table for cell in cells if cell.table.startswith("Table")):
        mine = [cell for cell in cells if cell.table == table]
        columns = list(dict.fromkeys(cell.column for cell in mine))
        shown = {(cell.row, cell.column): f"{cell.paper:g} / {cell.measured:.3f}" for cell in mine}
        lines += ["", f"## {table}: published / measured", ""]
        lines += grid(
            ["system", *columns],
            [
                [row, *(shown.get((row, column), "") for column in columns)]
                for row in dict.fromkeys(cell.row for cell in mine)
            ],
        )
    lines += ["", "## What the text says of the figures", ""]
    lines += grid(
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
    lines += grid(
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
    lines += grid(
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
        lines += grid(list(expo[0]), [list(row.values()) for row in expo])
    lines += ["", "## Overlays", ""]
    lines += grid(list(plans[0]), [list(plan.values()) for plan in plans])
    lines += ["", "## Figures", ""]
    lines += [f"![{name}]({folder}/{name}.png)" for name in names]
    return "\n".join(lines) + "\n"


def _spread(cell: Cell) -> str:
    if not cell.samples or cell.paper is None:
        return ""
    within = ", the published number among them" if cell.low <= cell.paper <= cell.high else ""
    return f"{cell.low:.3f} to {cell.high:.3f} in {cell.samples}{within}"


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


def rows(asked: Asked) -> Rows:
    return runs.rows(asked.full, _graphs(asked), asked.choices.get("long", "chord"))


def _graphs(asked: Asked) -> dict[str, Path]:
    names = {"facebook": "fb", "twitter": "tw", "college": "college"}
    return {names[name]: path for name, path in asked.files.items() if name in names}


def findings(ran: Rows, measures: Measures, asked: Asked) -> Findings:
    measured = runs.Means(measures, runs.replicates(rows(asked)))
    readings = {
        name: runs.cells(measured, name)
        for name in runs.READINGS
        if name != runs.COLLEGE or "college" in asked.files
    }
    claims = runs.claims(measured)
    drawn = {
        f"figure-{number}": figures.families(measured, workload, metric, f"Figure {number}: {text}")
        for number, workload, metric, text in (
            (4, "zipf", "overhead", "routing overhead, Zipf"),
            (5, "zipf", "path_mean", "average path length, Zipf"),
            (6, "unif", "overhead", "routing overhead, Unif"),
            (7, "unif", "path_mean", "average path length, Unif"),
        )
    } | {"figure-8": figures.growth(measured)}
    if asked.files:
        samples = {
            f"{name.upper()} {size}": runs.counts_ccdf(
                runs.interests_of(name, count, 0, str(path), 0)
            )
            for name, path in _graphs(asked).items()
            for size, count in (("10K", 10_000), ("all", 10**9))
        }
        drawn = {"figure-3": figures.ccdf(samples), **drawn}
    table: list[list[object]] = [
        ["workload", "nodes", "topics", "overlay", "long", "seed", "publications",
         "tco_support", "plan_s", "system", *runs.METRICS]
    ]  # fmt: skip
    for row in ran:
        shared = [row["workload"], int(row["nodes_found"])]
        shared += [row[key] for key in ("topics", "overlay", "long", "seed", "publications")]
        shared += [f"{row['tco_support']:.4f}", f"{row['plan_s']:.2f}"]
        for system in runs.SYSTEMS.values():
            name = system.format(row["overlay"])
            values = [f"{row[f'{name}|{metric}']:.4f}" for metric in runs.METRICS]
            table.append([*shared, name, *values])
    plans = [
        {
            "workload": row["workload"],
            "nodes": f"{row['nodes_found']:,.0f}",
            "topics": f"{row['topics'] or row['nodes_found']:,.0f}",
            "overlay": row["overlay"],
            "TcoSuppR": f"{row['tco_support']:.4f}",
        }
        for row in ran
        if row["seed"] == 0
    ]
    said = [*claim_lines(claims), f"{near(readings['ours'])} published numbers within {FAR:.0%}"]
    return Findings(
        table,
        drawn,
        lambda how, folder: page(readings, claims, runs.expo(measured), plans, how, drawn, folder),
        said,
        readings=readings,
        claims=claims,
    )


PAPER = Paper(
    "Tables 3 to 5 and Figures 3 to 8 of BeaConvey.\n\n"
    "The tables need the social graphs; without them only Figures 4 to 8 are made.",
    "Few points and one seed (default), or all.",
    "postroad.papers.beaconvey.runs:sweep_case",
    rows,
    lambda asked: runs.replicates(rows(asked)),
    findings,
    baselines=runs.BASELINES,
    files={
        "facebook": "Friendships: lines `a b`.",
        "twitter": "Lines `a b`: a follows b.",
        "college": "Friendships of a college: measured beside, replacing nothing.",
    },
    choices={"long": ("chord", "random")},
)
