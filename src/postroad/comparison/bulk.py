"""A comparison of any size, without simulating: what schemes without queues cost, counted on Spark.

Messages, loads and delays come from `pipeline.cost`, exactly as a simulation would count them with
all subscriptions standing and brokers that take no time. What is told beforehand and kept follows
in closed form: on a tree a filter crosses every link away from those that hold it; unicast tells
everyone everything. Only schemes of which both are known can be compared here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit

from postroad.comparison import deploy
from postroad.comparison.perform import Results, Size
from postroad.comparison.rows import ROWS
from postroad.comparison.runs import LINKS_DRAWN, MEASURES, links_of
from postroad.comparison.settings import Comparison
from postroad.comparison.verdict import Conditions, Outcome
from postroad.errors import InputError
from postroad.overlay import IntArray, Overlay, rooted
from postroad.pipeline import run, store
from postroad.pipeline.figures import Figure
from postroad.pipeline.session import kept
from postroad.routing import SCHEMES, fbr
from postroad.settings import overlays, toml
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Workload

ABLE = {
    label: row.scheme
    for label, row in ROWS.items()
    if not row.parameters
    and not row.grid
    and row.scheme in ("flooding", "subscription_forwarding", "fbr", "match_early", "unicast")
}
CHUNK = 1 << 13  # filters that are spread over the tree at once


@dataclass(frozen=True, eq=False)
class Told:
    """What setting up takes: control messages in all, and the entries of each broker."""

    control: int
    state: IntArray


def compare(comparison: Comparison, out: Path, job: run.Job) -> Results:
    rows = {label: row for label, row in comparison.rows.items() if label in ABLE}
    if len(rows) < 2:
        raise InputError(
            "fewer than two of the schemes can be compared in bulk",
            where=comparison.where,
            remedy=f"name some of: {', '.join(ABLE)}",
        )
    files = [comparison.scenario["workload"].get(key) for key in ("subscriptions", "publications")]
    if not all(isinstance(name, str) for name in files):
        raise InputError(
            "a bulk comparison reads its workload from files",
            where=comparison.where,
            remedy="name them in [workload]; `postroad pipeline workload` makes large ones",
        )
    folder = Path(comparison.folder)
    network = out / "bulk.toml"
    network.write_text(_network(comparison, folder, rows), encoding="utf-8")
    with kept():  # one session for all of it
        subscriptions, publications = (
            _table(folder / name, kind, out, job)
            for name, kind in zip(files, ("subscriptions", "publications"), strict=True)
        )
        run.cost(str(network), subscriptions, publications, str(out / "bulk"), job)
    top = toml.read(network)
    overlay = overlays.read(top.section("overlay"), out, comparison.seed)
    wanted = _wanted(subscriptions, overlay)
    times_us = [row["time_us"] for row in store.rows_of(publications, ("time_us",))]
    size = Size(sum(count for count in wanted.subscriptions.values()), len(times_us))
    costs = {row["scheme"]: row for row in store.rows_of(str(out / "bulk" / "cost"))}
    brokers = _by_scheme(store.rows_of(str(out / "bulk" / "cost_brokers")))
    links = _by_scheme(store.rows_of(str(out / "bulk" / "cost_links")))
    measured, details = {}, {}
    for label, row in rows.items():
        priced = _priced(row.scheme)
        told = _told(row.scheme, overlay, wanted)
        measured[label] = _measures(
            costs[priced], brokers[priced], links[priced], told, overlay, size, comparison
        )
        if row.scheme == "match_early":  # nobody on the way looks at the content
            copies = costs[priced]["messages_least"] / max(1, size.publications)
            measured[label]["matches"] = 1 + copies
        details[label] = _pictured(brokers[priced], links[priced], overlay, size)
    outcomes = [
        Outcome(
            label, row.scheme, None, {}, SCHEMES[row.scheme].promise, None,
            {name: [value] for name, value in measured[label].items()},
            {name: Figure(value) for name, value in measured[label].items()},
            {
                (other, name): Figure(value - theirs[name], least=value - theirs[name],
                                      greatest=value - theirs[name])
                for other, theirs in measured.items()
                for name, value in measured[label].items()
            },
        )
        for label, row in rows.items()
    ]  # fmt: skip
    span_s = (max(times_us) - min(times_us)) / 1e6 if times_us else 0.0
    some = next(iter(costs.values()))
    least = {"copies": Figure(some["messages_least"] / max(1, size.publications))}
    if some["messages_least_on_tree"] is not None:
        least["tree_copies"] = Figure(some["messages_least_on_tree"] / max(1, size.publications))
    own = {broker: len(filters) for broker, filters in wanted.of_broker.items()}
    entries = [own.get(broker, 0) for broker in range(overlay.brokers_count)]
    least |= {"state_mean": Figure(float(np.mean(entries))), "state_max": Figure(max(entries))}
    results = Results(
        replace(comparison, replicates=1, rows=rows, sensitivity=False, tune=False),
        Scenario("flooding", overlay, Workload((), (), ())),
        size,
        comparison.topic or "class",
        outcomes,
        Conditions(
            comparison.limits, comparison.baseline, size.publications / (span_s or 1.0),
            comparison.per_change, least,
        ),
        details,
        (), {}, {}, (),
    )  # fmt: skip
    deploy.record(results, out)
    return results


def _table(path: Path, kind: str, out: Path, job: run.Job) -> str:
    if path.is_dir() and store.read_lineage(str(path.absolute())) is not None:
        return str(path.absolute())
    folder = str(out / "bulk" / kind)
    table: str = run.ingest([str(path.absolute())], kind, folder, job, bad_share=0)["tables"][0]
    return table


def _network(comparison: Comparison, folder: Path, rows: Mapping[str, Any]) -> str:
    """What `pipeline cost` reads: the overlay, with its file where it is, and the schemes."""
    overlay = dict(comparison.scenario["overlay"])
    if "file" in overlay:
        overlay["file"] = str((folder / overlay["file"]).absolute())
    schemes = list(dict.fromkeys(_priced(row.scheme) for row in rows.values()))
    return tomlkit.dumps({"seed": comparison.seed, "schemes": schemes, "overlay": overlay})


def _priced(scheme: str) -> str:
    """Matched early or late, on the minimum spanning tree it is the same messages."""
    return "fbr" if scheme == "match_early" else scheme


def _by_scheme(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, list[Mapping[str, Any]]]:
    by: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by[row["scheme"]].append(row)
    return by


# What is told and kept.


@dataclass(frozen=True, eq=False)
class Wishes:
    """Filters, as texts, by broker, and subscriptions by broker."""

    of_broker: Mapping[int, Mapping[str, None]]
    subscriptions: Mapping[int, int]

    def held(self, brokers: int) -> Iterator[np.ndarray[Any, Any]]:
        """By broker and filter whether the broker holds it, some filters at a time."""
        holders: dict[str, list[int]] = defaultdict(list)
        for broker, filters in self.of_broker.items():
            for text in filters:
                holders[text].append(broker)
        homes = list(holders.values())
        for begin in range(0, len(homes), CHUNK):
            some = homes[begin : begin + CHUNK]
            held = np.zeros((brokers, len(some)), dtype=np.int32)
            for n, each in enumerate(some):
                held[each, n] = 1
            yield held


def _wanted(subscriptions: str, overlay: Overlay) -> Wishes:
    number = {name: broker for broker, name in enumerate(overlay.names)}
    of_broker: dict[int, dict[str, None]] = defaultdict(dict)
    counts: dict[int, int] = defaultdict(int)
    for row in store.rows_of(subscriptions, ("broker", "filter")):
        broker = number[row["broker"]]
        of_broker[broker][row["filter"]] = None
        counts[broker] += 1
    return Wishes(of_broker, counts)


def _told(scheme: str, overlay: Overlay, wanted: Wishes) -> Told:
    count = overlay.brokers_count
    own = np.array([len(wanted.of_broker.get(broker, ())) for broker in range(count)])
    if scheme == "flooding":
        return Told(0, own)
    if scheme in ("unicast", "match_early"):
        return Told(int(own.sum()) * (count - 1), np.full(count, own.sum()))
    tree = rooted.from_overlay(fbr.tree(overlay) if scheme == "fbr" else overlay)
    control, entries = 0, np.zeros(count, dtype=np.int64)
    for held in wanted.held(count):
        below = held[tree.broker]
        entries += below.sum(axis=1)
        for v in range(count - 1, 0, -1):
            below[tree.parent[v]] += below[v]
        upward = (below[1:] > 0).sum(axis=1)
        downward = (below[1:] < below[0]).sum(axis=1)
        control += int(upward.sum() + downward.sum())
        np.add.at(entries, tree.parent[1:], upward)
        entries[1:] += downward
    state = np.empty_like(entries)
    state[tree.broker] = entries
    return Told(control, state)


# Measures and pictures.


def _measures(
    cost: Mapping[str, Any], brokers: Sequence[Mapping[str, Any]],
    links: Sequence[Mapping[str, Any]], told: Told, overlay: Overlay, size: Size,
    comparison: Comparison,
) -> dict[str, float]:  # fmt: skip
    count = max(1, size.publications)
    number = {name: broker for broker, name in enumerate(overlay.names)}
    joined = links_of(overlay)
    outside = sum(
        row["messages"] for row in links
        if (number[row["sender"]], number[row["receiver"]]) not in joined
    )  # fmt: skip
    load = [row["sent"] + row["received"] for row in brokers]
    messages, change = cost["messages"] / count, told.control / max(1, size.subscriptions)
    figures = {
        "traffic": messages + change / comparison.per_change,
        "messages": messages,
        "copies": messages,
        "pure_forwards": cost["pure_forwards"] / count,
        "false_sends": cost["false_sends"] / count,
        "matches": 1 + messages,
        "state_mean": float(told.state.mean()),
        "state_max": float(told.state.max()),
        "stress_mean": float(np.mean(load)) / count,
        "stress_max": max(load) / count,
        "link_mean": messages / max(1, len(links)),
        "link_max": max((row["messages"] for row in links), default=0) / count,
        **{f"delay_p{p}_ms": (cost[f"delay_us_p{p}"] or 0) / 1000 for p in (50, 90, 99)},
        "hops": cost["hops_mean"] or 0.0,
        "outside": outside / count,
        "control": told.control / count,
        "control_per_change": change,
        "deliveries": float(cost["deliveries"]),
        **dict.fromkeys(("lost", "duplicated", "unexpected"), 0.0),
    }
    assert figures.keys() == MEASURES.keys()
    return figures


def _pictured(
    brokers: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]], overlay: Overlay,
    size: Size,
) -> dict[str, dict[str, float]]:  # fmt: skip
    count = max(1, size.publications)
    number = {name: broker for broker, name in enumerate(overlay.names)}
    both: dict[tuple[int, int], int] = defaultdict(int)
    for row in links:
        ends = sorted((number[row["sender"]], number[row["receiver"]]))
        both[ends[0], ends[1]] += row["messages"]
    heaviest = sorted(both.items(), key=lambda item: -item[1])[:LINKS_DRAWN]
    return {
        "load": {str(number[r["broker"]]): (r["sent"] + r["received"]) / count for r in brokers},
        "link": {f"{a}-{b}": messages / count for (a, b), messages in heaviest},
        "quantile": {},
    }
