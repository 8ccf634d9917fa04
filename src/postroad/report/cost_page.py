"""The page that holds the paper's numbers beside the measured ones."""

from __future__ import annotations

from collections.abc import Sequence

from postroad.papers import Cell, Claim, Measures
from postroad.papers.subscription_forwarding_model import beyond, pictures, runs
from postroad.papers.subscription_forwarding_model.beyond import Approximation, Check
from postroad.papers.subscription_forwarding_model.pictures import SaddleSearch
from postroad.papers.subscription_forwarding_model.published import STATED_ERROR, TABLES
from postroad.report.figures import cost as figures
from postroad.report.markdown import claim_lines, grid
from postroad.report.papers import Asked, Findings, Paper, Rows

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
    claims: Sequence[Claim],
    checks: Sequence[Check],
    approximations: Sequence[Approximation],
    search: SaddleSearch,
    how: str,
    folder: str,
) -> str:
    """Markdown. `how` says which command and mode made it; `folder` is the figures'."""
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
        *grid(
            ["claim", "holds", "measured"],
            [[c.text, "yes" if c.holds else "**no**", c.numbers] for c in claims],
        ),
    ]
    for key, table in TABLES.items():
        lines += ["", f"## Table {key}: {table.title}", ""]
        here = {(cell.row, cell.column): cell for cell in cells if cell.table == key}
        lines += grid(
            ["", *table.columns],
            [[row, *(_shown(here[row, column]) for column in table.columns)] for row in table.rows],
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
        *grid(
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
        *grid(
            ["full tree", "level", "paper", "exact", "difference %", "first", "children", "father"],
            [
                [
                    f"f={item.fanout}, h={item.height}, σ={item.sigma:g}",
                    str(item.level),
                    f"{item.paper:.5f}",
                    f"{item.exact:.5f}",
                    f"{item.error:.3f}",
                    *_terms(item),
                ]
                for item in approximations
            ],
        ),
        "",
        "The last columns say where the difference comes from, in messages: (11) and (15) let a",
        "*first* subscriber exist, the broker itself with 1/n, even if nobody subscribes; a",
        "*child* is sent to if anyone else subscribes, though those behind it do not count; and",
        "likewise the *father* if the first subscription came from a child. They add up to the",
        "difference and vanish as nσ grows, which is why only tiny trees show them.",
        "",
        "## Figure 8's saddle",
        "",
        f"Searched with {search.settings} settings (10 to 10,000 items, mean probabilities from",
        "0.00001 to 0.5, scaled by the mean or by the most popular item). D is a function of α_p",
        "plus one of α_e, so a saddle needs both to turn around somewhere: the part of the",
        f"subscriptions does in {search.turning_subscriptions} settings, that of the publications",
        f"in {search.turning_publications}. Both are sums of concave functions of probabilities",
        "that a larger α spreads less evenly, so they only fall.",
        "",
        "## Figures",
    ]
    for name, title in FIGURES.items():
        lines += ["", f"![{title}]({folder}/{name}.png)"]
    return "\n".join(lines) + "\n"


def _terms(item: Approximation) -> list[str]:
    if item.level == item.height:
        return ["", "", ""]
    terms = beyond.error_terms(item.fanout, item.height, item.sigma, item.level)
    return [f"{term:.5f}" for term in (terms.first, terms.children, terms.father)]


def _shown(cell: Cell) -> str:
    return f"{cell.paper:g} / {cell.measured:.3f} ± {cell.standard_error:.3f}"


def findings(rows: Rows, measured: Measures, asked: Asked) -> Findings:
    cells = runs.cells(measured)
    claims = runs.claims(cells)
    checks = beyond.checks(rounds=20_000 if asked.full else 1000)
    seeds = range(runs.SEEDS_FULL if asked.full else 5)
    surface = pictures.ratio_surface()
    loads = [
        figures.load_distribution(pictures.load_distribution(tree, seeds), FIGURES[name])
        for tree, name in (
            (pictures.FULL_TREE, "figure-4"),
            (pictures.ARBITRARY_TREE, "figure-5"),
        )
    ]
    results: list[list[object]] = [
        ["table", "row", "column", "paper", "measured", "standard_error"]
    ]
    for cell in cells:
        numbers = [cell.paper, f"{cell.measured:.6g}", f"{cell.standard_error:.3g}"]
        results.append([cell.table, cell.row, cell.column, *numbers])
    for check in checks:
        error = 100 * check.standard_error / check.simulated
        row = ["beyond", check.scheme, "error of traffic %", ""]
        results.append([*row, f"{check.error:.6g}", f"{error:.3g}"])
    search = pictures.saddle_search()
    unlike = [check.scheme for check in checks if not check.agrees]
    return Findings(
        results,
        {
            "figure-4": loads[0],
            "figure-5": loads[1],
            "figure-6": figures.ratio_surface(surface),
            "figure-7": figures.ratio_projections(surface),
            "figure-8": figures.zipf_surface(pictures.zipf_surface()),
            "figure-9": figures.level_loads(pictures.level_loads()),
            "figure-10": figures.fanout_sweep(pictures.fanout_sweep()),
        },
        lambda how, folder: page(
            cells, claims, checks, beyond.approximations(), search, how, folder
        ),
        claim_lines(claims),
        f"the exact model and the simulation differ: {', '.join(unlike)}" if unlike else None,
        readings={"ours": cells},
        claims=claims,
        met=lambda cell: abs(cell.measured) <= max(STATED_ERROR, abs(cell.paper or 0.0)),
        criterion=f"the model's error is within the {STATED_ERROR:g}% that the paper states",
    )


PAPER = Paper(
    "Tables 2 to 7 and Figures 4 to 10 of the cost model of subscription forwarding.",
    "Few seeds per point (default), or all 50.",
    "postroad.papers.subscription_forwarding_model.runs:sweep_case",
    lambda asked: runs.rows(asked.full),
    lambda asked: runs.replicates(runs.rows(asked.full)),
    findings,
)
