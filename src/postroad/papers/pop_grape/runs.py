"""The experiments behind Figures 5 to 7: points, runs, and what they show.

`run_point` takes and returns plain values, so a process pool or a Spark sweep can call it.
"""

from __future__ import annotations

import io
import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from postroad.model import BrokerId, TimeUs
from postroad.overlay import IntArray, Overlay, files, from_parents
from postroad.overlay.wide_area import generated_matrix
from postroad.papers import Cell, Measures, Replicate, distinct, facts, histogram, run_alone
from postroad.papers.pop_grape.published import OVERHEADS, REDUCTIONS
from postroad.relocation import grape, pop
from postroad.routing.base import Deliver, Effect, Input, Move, Publish, Received, Router, Send
from postroad.routing.pool import FilterPool
from postroad.sim.facts import columns
from postroad.sim.oracle import expected
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads.quotes import Quote, made_up_quotes, read_quotes, workload

MINUTE = 60_000_000
METHODS = ("static", "pop", "load 100", "delay 100")
WEIGHTS = (1, 25, 50, 75, 100)
THRESHOLDS = (10, 25, 50, 100, 400, 1600, 12_800)
PLACES = {
    "planetlab": {"brokers": 63, "service_us": 5000},
    "cluster": {"brokers": 127, "service_us": 1000},
}
RELOCATING = {
    "trace_result", "relocation_request", "relocation_answer", "trace_request", "trace_answer",
    "migration_update", "migration_complete", "migration_abort",
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One network, one workload, one method."""

    place: str = "planetlab"
    method: str = "static"  # static, pop, or GRAPE's priority and weight, such as "load 75"
    subscribers: str = "enterprise"
    spread: int = 16  # X: brokers with subscribers, of each publisher
    fanout: int = 2
    threshold: int = 100
    margin: float = 0.0
    publishers: int = 16
    per_publisher: int = 40
    minutes: float = 18.0
    seed: int = 0


def rows(full: bool, quotes: Path | None, matrix: Path | None) -> list[dict[str, Any]]:
    """Every run. Methods of a point share network and workload, so differences are paired."""
    base = Point() if full else Point(publishers=6, minutes=9.0)
    seeds = range(2 if full else 1)
    points: list[tuple[str, Point]] = []

    def add(experiment: str, methods: Iterable[str], **varied: Any) -> None:
        points.extend((experiment, replace(base, method=method, **varied)) for method in methods)

    for spread in (1, 2, 4, 8, 16, 32, 63) if full else (1, 4, 16, 63):
        add("enterprise", METHODS, spread=spread)
    for spread in (1, 2, 4, 8, 16, 32, 63) if full else (1, 16, 63):
        add("random", METHODS, spread=spread, subscribers="random")
    for spread in (1, 4, 16, 64, 127) if full else (16,):
        add("cluster", METHODS, spread=spread, place="cluster")
    for spread in (1, 16, 63) if full else (16,):
        add("fan-out 4", METHODS, spread=spread, fanout=4)
    weights = [f"{metric} {weight}" for metric in grape.PRIORITIES for weight in WEIGHTS]
    add("weights", weights if full else ["load 1", "delay 100", "delay 1", "load 100"])
    for threshold in THRESHOLDS if full else (10, 100, 400, 12_800):
        add("thresholds", ("pop", "load 100"), place="cluster", threshold=threshold)
    for margin in (0.0, 0.5, 1.0, 2.0, 4.0):
        add("ping-pong", ("pop",), threshold=25, margin=margin)
    return [
        {
            "experiment": experiment,
            "quotes": "" if quotes is None else str(quotes),
            "matrix": "" if matrix is None else str(matrix),
            **asdict(replace(point, seed=seed)),
        }
        for experiment, point in points
        for seed in seeds
    ]


@lru_cache(maxsize=2)
def _matrix(path: str) -> IntArray:
    return files.matrix(Path(path), "round-trip")[1] if path else generated_matrix(490, seed=1)


@lru_cache(maxsize=2)
def _quotes(path: str) -> dict[str, list[Quote]]:
    """Rows that are no quotes are left out: the S&P 500 file has one."""
    return read_quotes(Path(path), lambda error: None) if path else made_up_quotes(64, 1500, seed=1)


def network(point: Point, matrix: IntArray) -> Overlay:
    """A balanced tree; its brokers on random hosts of the matrix, or all close together."""
    count = int(PLACES[point.place]["brokers"])
    tree = from_parents([max(0, (broker - 1) // point.fanout) for broker in range(count)])
    if point.place == "cluster":
        direct = np.full((count, count), 300, np.int64)
    else:
        hosts = np.random.default_rng(point.seed).choice(len(matrix), count, replace=False)
        direct = matrix[np.ix_(hosts, hosts)]
    latency = direct[tree.ends[:, 0], tree.ends[:, 1]]
    return replace(tree, latency_us=latency, direct_us=direct)


def scenario_of(row: Mapping[str, Any]) -> Scenario:
    point = Point(**{name: row[name] for name in Point.__dataclass_fields__})
    overlay = network(point, _matrix(row["matrix"]))
    posed = workload(
        _quotes(row["quotes"]),
        brokers=overlay.brokers_count,
        publishers=point.publishers,
        per_publisher=point.per_publisher,
        spread=point.spread,
        subscribers=point.subscribers,
        minutes=point.minutes,
        seed=1000 + point.seed,
    )
    relocation: str | None = None
    config: Any = None
    if point.method == "pop":
        relocation = "pop"
        traced = 50 if point.threshold == 100 else max(1, point.threshold // 2)
        config = pop.Config(threshold=point.threshold, traced_max=traced, margin=point.margin)
    elif point.method != "static":
        relocation = "grape"
        priority, weight = point.method.split()
        config = grape.Config(point.threshold, priority, float(weight))
    service_us = int(PLACES[point.place]["service_us"])
    return Scenario(
        "advertisement_forwarding",
        overlay,
        posed,
        seed=point.seed,
        service_us=service_us,
        copy_us=service_us,
        relocation=relocation,
        relocation_config=config,
    )


def run_point(row: Mapping[str, Any]) -> dict[str, Any]:
    """One run: what the metrics of section V-B follow from."""
    scenario = scenario_of(row)
    since = round(row["minutes"] * MINUTE * 2 / 3)
    until = round(row["minutes"] * MINUTE)
    brokers = scenario.overlay.brokers_count
    handled, copies, outputs = [0] * brokers, [0] * brokers, [0] * brokers
    asked_us: dict[str, TimeUs] = {}
    selections: list[TimeUs] = []

    def watch(now: TimeUs, broker: BrokerId, input: Input, effects: Sequence[Effect]) -> None:
        if since <= now < until:
            handled[broker] += type(input) in (Received, Publish)
            for effect in effects:
                if type(effect) is Send:
                    copies[broker] += effect.message.carries
                    outputs[broker] += 1
                elif type(effect) is Deliver:
                    copies[broker] += 1
                    outputs[broker] += 1
        for effect in effects:
            if type(effect) is Send and effect.message.kind in ASKING:
                name = effect.message.advertisement_id  # type: ignore[attr-defined]
                if type(input) is not Received or input.message.kind == "trace_result":
                    asked_us[name] = now  # not passed on, but asked here
            elif type(effect) is Move:
                selections.append(now - asked_us.pop(effect.advertisement_id, now))

    result = run(scenario, watch)
    delays: dict[str, list[TimeUs]] = {}
    hops = 0
    for key, subscription, _, time_us, far, _ in result.deliveries:
        if result.published_us[key] >= since:
            delays.setdefault(subscription, []).append(time_us - result.published_us[key])
            hops += far
    times = np.array([len(own) for own in delays.values()], np.int64)
    late_us = np.array([sum(own) for own in delays.values()], np.int64)
    messages: Counter[str] = Counter()
    for link in result.links:
        messages.update(link.messages)
    owed, _ = expected(scenario)
    got = Counter(delivery[:2] for delivery in result.deliveries)
    counted = facts(
        "pop_grape",
        {
            "window_us": until - since,
            "handled": handled,
            "copies": copies,
            "outputs": outputs,
            "service_us": scenario.service_us,
            "copy_us": scenario.copy_us,
            "delay_us": histogram(times, late_us),
            "subscribers": len(delays),
            "deliveries": times.sum(),
            "hops": hops,
            "relocating": sum(messages[kind] for kind in RELOCATING),
            "state": [broker.table_entries_max for broker in result.brokers],
            "state_bytes": [state_bytes(broker.router) for broker in result.brokers],
            "selection_us": selections,
            "wait_us": [moved.wait_us for moved in result.moves],
            "lost": sum(pair not in got for pair in owed),
            "twice": sum(count > 1 for count in got.values()),
        },
    )
    for kind, count in messages.items():
        counted += facts("pop_grape", {"messages": count}, kind)
    return {**row, "facts": columns(counted)}


class _StateWriter(pickle.Pickler):
    """Leaves out the filters' pool, which all routers of a simulation share."""

    def persistent_id(self, thing: object) -> str | None:
        return "pool" if isinstance(thing, FilterPool) else None


def state_bytes(router: Router) -> int:
    """How many bytes a router's state takes when it is written down."""
    stream = io.BytesIO()
    _StateWriter(stream, pickle.HIGHEST_PROTOCOL).dump(router)
    return stream.tell()


ASKING = ("relocation_request", "trace_request")
METRICS = [
    "message_rate", "input_utilisation", "output_utilisation", "delay_ms", "hops", "overhead",
    "table_entries", "state_bytes", "selection_ms", "wait_ms", "moves", "lost", "twice",
]  # fmt: skip


Key = tuple[str, float, str]
VARIED = {"weights": "spread", "thresholds": "threshold", "ping-pong": "margin"}


def sweep_case(run: Mapping[str, Any]) -> dict[str, Any]:
    return run_alone(run_point, run)


def replicates(rows: Iterable[Mapping[str, Any]]) -> list[Replicate]:
    """Seeds are replicates of an experiment, what it varies and a method."""
    return [
        Replicate(
            row,
            {
                "experiment": row["experiment"],
                "varied": row[VARIED.get(row["experiment"], "spread")],
                "method": row["method"],
            },
            str(row["seed"]),
        )
        for row in rows
    ]


def means(measured: Measures, replicates: Iterable[Replicate]) -> dict[Key, dict[str, float]]:
    """Per experiment, varied value and method, the mean of each metric."""
    return {
        (at["experiment"], at["varied"], at["method"]): {
            metric: measured.figure(metric, **at).mean for metric in METRICS
        }
        for at in distinct(replicates)
    }


def ranges(
    measured: Measures, replicates: Iterable[Replicate]
) -> dict[Key, dict[str, tuple[float, float]]]:
    """And the least and the most over the seeds."""
    return {
        (at["experiment"], at["varied"], at["method"]): {
            metric: (figure.least, figure.greatest)
            for metric in METRICS
            for figure in [measured.figure(metric, **at)]
        }
        for at in distinct(replicates)
    }


def cells(table: Mapping[Key, Mapping[str, float]]) -> list[Cell]:
    """The paper's stated numbers beside ours, in percent."""

    def change(key: Key, metric: str) -> float:
        return 100 * (table[key][metric] / table[key[0], key[1], "static"][metric] - 1)

    compared = []
    for stated in REDUCTIONS:
        keys = [key for key in table if key[0] == "enterprise" and key[2] == stated.method]
        best = min(change(key, stated.metric) for key in keys)
        text = f"{stated.what}, {stated.method}: largest change"
        compared.append(_cell(stated.figure, text, stated.value, best))
    for stated in OVERHEADS:
        experiment = "enterprise" if "defaults" in stated.what else "thresholds"
        keys = [key for key in table if key[0] == experiment and key[2] == stated.method]
        most = max(table[key][stated.metric] for key in keys)
        compared.append(
            _cell(stated.figure, f"{stated.what}, {stated.method}: most", stated.value, most)
        )
    for a, b in (("load 1", "delay 100"), ("delay 1", "load 100")):
        for metric, word in (("message_rate", "message rate"), ("delay_ms", "delay")):
            one, other = (table["weights", 16, method][metric] for method in (a, b))
            text = f"{word} of {a}% against {b}%"
            compared.append(_cell("7a", text, 0, 100 * (one / other - 1)))
    return compared


def _cell(figure: str, text: str, paper: float, measured: float) -> Cell:
    return Cell(f"figure {figure}", text, "%", paper, measured)
