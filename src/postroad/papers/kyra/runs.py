"""The experiments: one row is one network, one workload and one configuration of Kyra.

`run_point` takes and returns plain values: a process pool calls it in quick mode, a Spark sweep in
full mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.kernels import kyra as kernel
from postroad.overlay import IntArray
from postroad.overlay.transit_stub import Underlay, transit_stub
from postroad.papers import Cell, Claim, Measures, Replicate, distinct, facts, histogram, run_alone
from postroad.papers.kyra.published import (
    BALANCE,
    CLIQUES_MS,
    CONFIGURATION,
    FIGURE_10,
    FIGURE_16_MAX,
    FIGURE_16_P80,
    GROUPS,
    MULTI_HOMED_LINK,
    RATES,
    STAYS,
    TABLE_1,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TABLE_4_SCHEMES,
    TREES,
)
from postroad.papers.kyra.workload import DISTRIBUTIONS, VALUES, Interests, events, interests
from postroad.planning import kyra as planning
from postroad.planning.groups import forgy
from postroad.planning.kyra import Layout
from postroad.planning.zones import ALPHA, Loads, Zone, intervals
from postroad.sim.facts import columns

if TYPE_CHECKING:
    from postroad.pipeline.figures import Figure, Ratio
    from postroad.sim.facts import Fact

Row = Mapping[str, Any]
EVENTS = 1000
UNICAST_BELOW = 0.1
METRICS = (
    "storage", "processing", "node_mean", "node_max", "link_mean", "link_max", "nru",
    "link_mean_between", "link_mean_all",
)  # fmt: skip
# Other ways to read the paper: the metric to take for one of ours.
READINGS: dict[str, dict[str, str]] = {
    "ours": {},
    "link averages over all links between servers": {"link_mean": "link_mean_between"},
    "link averages over all links": {"link_mean": "link_mean_all"},
}
PERCENTS = tuple(range(0, 101, 5))
ALL = (
    "fbr", "kyra", "balanced", "mbr", "mbr_unicast", "mbr_moved", "match_early", "unicast",
    "broadcast",
)  # fmt: skip


@lru_cache(maxsize=2)
def network(topology: int, servers: int, multi_homed: float) -> Underlay:
    return transit_stub(topology, servers, multi_homed=multi_homed)


@lru_cache(maxsize=8)
def cliques(topology: int, servers: int, multi_homed: float, clique_ms: int) -> list[list[int]]:
    return planning.cliques(network(topology, servers, multi_homed).direct_us, 1000 * clique_ms)


def divider(load: Loads) -> Callable[[int], list[Zone]]:
    """Zones of the values 0 to 999."""

    def divide(count: int) -> list[Zone]:
        cuts = [low for low, _ in intervals(load, count)][1:]
        return [Zone((("value", low, high),)) for low, high in pairwise([None, *cuts, None])]

    return divide


@dataclass(frozen=True, eq=False)
class Setting:
    """A network, its workload, and what ideal multicast spends on it."""

    underlay: Underlay
    interests: Interests
    publishers: IntArray
    values: IntArray
    ideal: kernel.Charged
    between: int  # directed links on the shortest path between any two servers


@lru_cache(maxsize=4)
def setting(
    topology: int, servers: int, multi_homed: float, distribution: str, rate: float, seed: int
) -> Setting:
    underlay = network(topology, servers, multi_homed)
    wanted = interests(distribution, rate, underlay.direct_us, seed)
    publishers, values = events(wanted, EVENTS, seed)
    ideal = kernel.charge_multicast(underlay, wanted.wanted, publishers, values)
    count = underlay.servers_count
    pairs = kernel.charge(underlay, np.ones((count, count), np.int64) - np.eye(count, dtype=int))
    between = int(np.count_nonzero(pairs.link_messages))
    return Setting(underlay, wanted, publishers, values, ideal, between)


@lru_cache(maxsize=1)
def forwarded(setting: Setting) -> kernel.ServerCounts:
    """What filter-based routing sends."""
    alone = [[server] for server in range(setting.underlay.servers_count)]
    routes = kernel.routes(layout_of(setting, "fbr", alone, 1), VALUES)
    return kernel.kyra(routes, setting.interests.wanted, setting.publishers, setting.values)


@lru_cache(maxsize=1)
def groups_of(setting: Setting) -> tuple[IntArray, kernel.Forest, IntArray]:
    """The multicast groups of the values, their trees, and who enters each where."""
    wanted = setting.interests.wanted
    group = forgy(wanted.T, GROUPS, 0)
    return group, *kernel.multicast_groups(group, setting.underlay.direct_us, wanted)


def run_point(row: Row) -> dict[str, Any]:
    """Route 1,000 publications by the schemes that the row names, separated by blanks."""
    where = (int(row.get("topology", 0)), int(row.get("servers", 500)),
             float(row.get("multi_homed", 0.0)))  # fmt: skip
    rate = float(row["rate"])
    at = setting(*where, row["distribution"], rate, int(row["seed"]))
    clique_ms, trees = row.get("clique_ms"), row.get("trees")
    if clique_ms is None or trees is None:
        clique_ms, trees = CONFIGURATION[rate]
    grouped = cliques(*where, clique_ms)
    counted = facts("kyra", {"clique": [len(clique) for clique in grouped]})
    for scheme in str(row.get("schemes", "kyra")).split():
        counted += evaluate(at, scheme, grouped, trees)
    return {**row, "facts": columns(counted)}


def sweep_case(run: Row) -> dict[str, Any]:
    return run_alone(run_point, run)


def sweep_point(run: Row) -> dict[str, Any]:
    """`run_point` for a row of a Spark sweep."""
    return run_point(dict(run["parameters"]) | {"seed": run["seed"]})


def evaluate(
    setting: Setting, scheme: str, grouped: Sequence[Sequence[int]], trees: int
) -> list[Fact]:
    """What one scheme counts; storage and processing where they are defined."""
    wanted = setting.interests.wanted
    where = (wanted, setting.publishers, setting.values)
    kept: IntArray | None = np.full(len(wanted), int(wanted.sum()))
    if scheme == "broadcast":
        charged = kernel.charge_multicast(
            setting.underlay, np.ones_like(wanted), setting.publishers, setting.values
        )
        return _charges(setting, scheme, charged)
    if scheme in ("kyra", "balanced"):
        routes = kernel.routes(layout_of(setting, scheme, grouped, trees), VALUES)
        outcome = kernel.kyra(routes, *where)
        kept = kernel.kept(routes, wanted)
    elif scheme in ("fbr", "match_early"):
        outcome = forwarded(setting)
        if scheme == "match_early":
            outcome = kernel.ServerCounts(outcome.messages, np.ones(len(setting.values), np.int64))
    elif scheme == "unicast":
        outcome = kernel.unicast(*where)
    elif scheme == "mbr_moved":  # future work (section VII)
        routes = kernel.routes(layout_of(setting, "kyra", grouped, 1), VALUES)
        by_proxy = kernel.moved(routes, wanted)
        group = forgy(by_proxy.T, GROUPS, 0)
        tree, entry = kernel.multicast_groups(group, setting.underlay.direct_us, by_proxy)
        outcome = kernel.moved_mbr(routes, tree, entry, group, *where)
        kept = None
    else:
        group, tree, entry = groups_of(setting)
        below = UNICAST_BELOW if scheme == "mbr_unicast" else 0.0
        outcome = kernel.mbr(tree, entry, group, *where, below)
        kept = None
    counts: dict[str, Any] = {
        "publications": len(setting.values),
        "subscriptions": wanted.sum(),
        "matches": outcome.matches.sum(),
        "stress": kernel.stress(outcome.messages),
    }
    if kept is not None:
        counts["kept"] = histogram(kept)
    charged = kernel.charge(setting.underlay, outcome.messages)
    return [*facts("kyra", counts, scheme), *_charges(setting, scheme, charged)]


def layout_of(
    setting: Setting, scheme: str, grouped: Sequence[Sequence[int]], trees: int
) -> Layout:
    balance = BALANCE if scheme == "balanced" else 1
    divide = divider(setting.interests.load(ALPHA))
    return planning.layout(setting.underlay.direct_us, grouped, divide, trees, balance)


def _charges(setting: Setting, scheme: str, charged: kernel.Charged) -> list[Fact]:
    """What the underlay carries: the links that carry anything, and the latency of all."""
    counts = {
        "link": histogram(charged.link_messages[charged.link_messages > 0]),
        "links": len(charged.link_messages),
        "links_between": setting.between,
        "used_us": charged.used_us,
        "ideal_us": setting.ideal.used_us,
    }
    return facts("kyra", counts, scheme)


def rows(full: bool) -> list[dict[str, Any]]:
    """Figures 10 to 14 vary Kyra's configuration; Figures 15, 16 and Table IV its rivals."""
    points: list[dict[str, Any]] = []
    for topology in range(4 if full else 1):
        for seed in range(2 if full else 1):
            common = {"topology": topology, "seed": seed}
            for distribution in DISTRIBUTIONS:
                for rate in RATES:
                    point = common | {"distribution": distribution, "rate": rate}
                    points.append(point | {"kind": "compare", "schemes": " ".join(ALL)})
            for rate in RATES:
                point = common | {"distribution": "zipf", "rate": rate, "schemes": "kyra"}
                for clique_ms in CLIQUES_MS if full else (0, 100, 500):
                    points += [
                        point | {"kind": "grid", "clique_ms": clique_ms, "trees": trees}
                        for trees in (TREES if full else (1, 20))
                    ]
        for seed in range(2 if full else 1):
            point = {"topology": topology, "seed": seed, "distribution": "zipf", "rate": 0.1}
            points.append(point | {"kind": "homed", "schemes": "kyra fbr", "multi_homed": 0.1})
    return points


BASELINES: list[Mapping[str, str]] = [{"scheme": "fbr"}, {"scheme": "kyra"}, {"kind": "compare"}]
VARIES = {
    "compare": ("distribution", "rate"),
    "grid": ("rate", "clique_ms", "trees"),
    "homed": ("distribution", "rate"),
}


def replicates(rows: Iterable[Row]) -> list[Replicate]:
    """Networks and seeds are replicates of a point; of a size of cliques also all points with it,
    and of the configuration that Figure 10 states those of all rates."""
    replicas = []
    for row in rows:
        kind, number = row["kind"], f"{row['topology']} {row['seed']}"
        setting = {"kind": kind} | {name: row[name] for name in VARIES[kind]}
        replicas.append(Replicate(row, setting, number))
        if kind == "grid":
            number += f" {row['rate']}"
            if (row["clique_ms"], row["trees"]) == (200, 20):
                replicas.append(Replicate(row, {"kind": "figure 10"}, number))
            setting = {"kind": "cliques", "clique_ms": row["clique_ms"]}
            replicas.append(Replicate(row, setting, f"{number} {row['trees']}"))
    return replicas


class Results:
    """Measures by what they vary."""

    def __init__(self, measured: Measures, replicates: Iterable[Replicate]) -> None:
        self.measured = measured
        self.settings = distinct(replicates)

    def compare(self, distribution: str, rate: float, scheme: str, metric: str) -> Figure:
        return self.measured.figure(
            metric, kind="compare", distribution=distribution, rate=rate, scheme=scheme
        )

    def grid(self, rate: float, clique_ms: int, trees: int, metric: str) -> Figure:
        return self.measured.figure(
            metric, kind="grid", rate=rate, clique_ms=clique_ms, trees=trees, scheme="kyra"
        )

    def ratio(self, distribution: str, rate: float, metric: str) -> Ratio:
        """Kyra against FBR."""
        return self.measured.ratio(
            metric, BASELINES[0], kind="compare", distribution=distribution, rate=rate,
            scheme="kyra",
        )  # fmt: skip

    def grid_points(self) -> tuple[list[int], list[int]]:
        """The clique latencies and tree counts that were run."""
        chosen = [at for at in self.settings if at["kind"] == "grid"]
        return sorted({at["clique_ms"] for at in chosen}), sorted({at["trees"] for at in chosen})


def cells(results: Results, reading: str = "ours") -> list[Cell]:
    """Every number that the paper prints and these rows can answer."""
    compared = []
    taken = READINGS[reading]
    measured = results.measured
    for clique_ms in results.grid_points()[0]:
        for metric, paper in zip(("mean", "max"), TABLE_1[clique_ms], strict=True):
            ours = measured.figure(f"clique_{metric}", kind="cliques", clique_ms=clique_ms)
            column = f"servers per clique, {metric}"
            compared.append(_cell("Table I", f"{clique_ms} ms", column, paper, ours))
    for metric, ratios in TABLE_3.items():
        for rate, paper in zip(RATES, ratios, strict=True):
            ratio = results.ratio("zipf", rate, taken.get(metric, metric))
            compared.append(_cell("Table III", metric, f"{rate:.0%}", paper, ratio))
    for distribution, metrics in TABLE_4.items():
        for metric, numbers in metrics.items():
            for place, paper in enumerate(numbers):
                rate, scheme = RATES[place // 3], TABLE_4_SCHEMES[place % 3]
                ours = results.compare(distribution, rate, scheme, taken.get(metric, metric))
                row = f"{distribution} {metric}"
                compared.append(_cell("Table IV", row, f"{scheme} {rate:.0%}", paper, ours))
    if 200 in results.grid_points()[0]:
        paper = FIGURE_10["200 ms, 20 trees"]
        ours = measured.figure("storage", kind="figure 10", scheme="kyra")
        compared.append(_cell("Figure 10", "200 ms, 20 trees", "storage", paper, ours))
    for name, numbers_at in (("node_max", FIGURE_16_MAX), ("node_p80", FIGURE_16_P80)):
        for scheme, paper in numbers_at.items():
            ours = results.compare("zipf", 0.1, scheme, name)
            compared.append(_cell("Figure 16", scheme, name, paper, ours))
    homed = {"kind": "homed", "distribution": "zipf", "rate": 0.1}
    if homed in results.settings:
        link_mean = taken.get("link_mean", "link_mean")
        ratio = measured.ratio(link_mean, BASELINES[2], **homed, scheme="kyra")
        compared.append(_cell("text", "10% multi-homed", "Kyra link_mean", MULTI_HOMED_LINK, ratio))
    return compared


def _cell(table: str, row: str, column: str, paper: float, ours: Figure | Ratio) -> Cell:
    return Cell(table, row, column, paper, ours.mean, ours.least, ours.greatest)


def claims(results: Results) -> list[Claim]:
    stated: list[Claim] = []
    for metric, word in (("node_mean", "average"), ("node_max", "maximum")):
        worse, numbers = [], []
        for distribution in ("zipf", "multimodal"):
            for rate in RATES:
                mine = {
                    scheme: results.compare(distribution, rate, scheme, metric).mean
                    for scheme in TABLE_4_SCHEMES
                }
                at = f"{distribution} {rate:.0%}"
                numbers.append(f"{at} " + "/".join(f"{mine[s]:.0f}" for s in TABLE_4_SCHEMES))
                if min(mine, key=lambda scheme: mine[scheme]) != "kyra":
                    worse.append(at)
        said = "; ".join(numbers) + " (FBR/MBR/Kyra)"
        if worse:
            said += f"; not at {', '.join(worse)}"
        text = f"Kyra has the smallest {word} node stress everywhere (Table IV)"
        stated.append(Claim(text, not worse, said))
    kyra, balanced = (
        results.compare("zipf", 0.1, scheme, "node_max") for scheme in ("kyra", "balanced")
    )
    where = {"kind": "compare", "distribution": "zipf", "rate": 0.1, "scheme": "balanced"}
    lower = results.measured.difference("node_max", BASELINES[1], **where).greatest < 0
    text = "Balanced Kyra cuts the maximum further (Figure 16)"
    stated.append(Claim(text, lower, f"{kyra.mean:.0f} to {balanced.mean:.0f}"))
    ratios = [results.ratio("zipf", rate, "nru").of_means for rate in RATES]
    said = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    text = "Kyra's NRU is below 1.3 times FBR's (Table III)"
    stated.append(Claim(text, max(ratios) < 1.3, said))
    spent = {
        distribution: results.compare(distribution, 0.1, "mbr", "nru").mean
        for distribution in ("uniform", "zipf", "multimodal")
    }
    best = min(spent, key=lambda name: spent[name])
    said = ", ".join(f"{name} {value:.2f}" for name, value in spent.items())
    text = "MBR's best distribution is the multimodal one (Figure 15, NRU at 10%)"
    stated.append(Claim(text, best == "multimodal", said))
    mbr, unicast = (
        results.compare("multimodal", 0.1, scheme, "nru").mean for scheme in ("mbr", "unicast")
    )
    better = 1 - mbr / unicast
    text = "At 10%, multimodal, MBR's NRU is 70% better than unicast's (ours: 60 to 80%)"
    stated.append(Claim(text, 0.6 <= better <= 0.8, f"{better:.0%}"))
    return stated + arrows(results)


def arrows(results: Results) -> list[Claim]:
    """Table II: what changes from the smallest to the largest cliques, and from one tree to the
    most, whatever the other is. Where it cannot matter it is left out: cliques with a single tree
    do not change what a server stores, and trees do nothing if each server or all are one clique.
    """
    ms, trees = results.grid_points()
    causes = (
        ("Larger cliques", [[(at, count) for at in ms] for count in trees if count > 1]),
        ("More trees", [[(at, count) for count in trees] for at in ms[1:-1]]),
    )
    words = {-1: "lower", 1: "raise", 0: "hardly change"}
    stated = []
    for place, (cause, lines) in enumerate(causes):
        for metric, both in TABLE_2.items():
            wanted = {r: arrow for r, arrow in zip(RATES, both[place], strict=True)
                      if arrow is not None}  # fmt: skip
            unlike, numbers = [], []
            for rate, arrow in wanted.items():
                for line in lines:
                    first, *_, last = (results.grid(rate, *point, metric).mean for point in line)
                    if not _as_said(first, last, arrow):
                        unlike.append(f"{rate:.0%} with {_fixed(line, place)}")
                numbers.append(f"{rate:.0%}: {first:.4g} to {last:.4g}")
            effects = dict.fromkeys(words[arrow] for arrow in wanted.values())
            text = f"{cause} {' or '.join(effects)} {metric} (Table II)"
            if len(effects) > 1:
                said = ", ".join(f"{words[arrow]} at {r:.0%}" for r, arrow in wanted.items())
                text = f"{cause}: {metric}: {said} (Table II)"
            said = f"with {_fixed(lines[-1], place)}, {', '.join(numbers)}"
            if unlike:
                said += f"; not so: {', '.join(unlike)}"
            stated.append(Claim(text, not unlike, said))
    return stated


def _fixed(line: Sequence[tuple[int, int]], place: int) -> str:
    return f"{line[0][1]} trees" if place == 0 else f"cliques of {line[0][0]} ms"


def _as_said(first: float, last: float, arrow: int) -> bool:
    return abs(last / first - 1) < STAYS if arrow == 0 else (last - first) * arrow > 0
