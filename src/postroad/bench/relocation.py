"""How long GRAPE takes to choose among many candidate brokers (paper: under 70 ms for 63); what
pings along the tree cost it; and the delay under random subscribers.

Re-rooting goes over the tree twice, so the choice should grow as the candidates do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from time import process_time
from typing import Any

import numpy as np

from postroad import draws
from postroad.bench import growth
from postroad.overlay import IntArray, Overlay
from postroad.papers.pop_grape import runs
from postroad.relocation.selection import TraceReport, estimates, packed, select


def reports(count: int, bits: int, seed: int = 1) -> list[TraceReport]:
    """Answers of a random tree of brokers, each with some of a session's publications."""
    delays: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for child in range(1, count):
        parent = draws.below(child, seed, "bench.parent", child, 0)
        delays[child].append((parent, 1000))
        delays[parent].append((child, 1000))
    answers = []
    for broker in range(count):
        vector = 0
        for word in range(0, bits, 64):
            vector |= draws.bits(seed, "bench.bits", broker, word) << word
        vector &= (1 << bits) - 1
        answers.append(
            TraceReport(broker, packed(vector), vector.bit_count(), 100, tuple(delays[broker]))
        )
    return answers


METHODS = ("static", "pop", "load 100", "delay 100")
SEEDS = range(3)
PLAIN = runs.network


def over_the_tree(point: runs.Point, matrix: IntArray) -> Overlay:
    """The network of a point, where also a publisher's own way to a broker is along the tree."""
    overlay = PLAIN(point, matrix)
    bare = replace(overlay, direct_us=None)
    ways = [bare.path_us(broker) for broker in range(overlay.brokers_count)]
    return replace(overlay, direct_us=np.array(ways, np.int64))


@contextmanager
def network(function: object) -> Iterator[None]:
    before = runs.network
    runs.network = function  # type: ignore[assignment]
    try:
        yield
    finally:
        runs.network = before


def measured(facts: Mapping[str, Sequence[Any]]) -> list[float]:
    """Of a run what `delays` shows, as `pipeline/definitions.py` has it."""
    total: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    delay_us = 0.0
    for *_, bucket, name, count in zip(*facts.values(), strict=True):
        total[name] += count
        rows[name] += 1
        if name == "pop_grape.delay_us" and bucket:
            delay_us += count / bucket
    own = {name.partition(".")[2]: count for name, count in total.items()}
    return [
        delay_us / own["subscribers"] / 1000,
        own["hops"] / own["deliveries"],
        own["handled"] / rows["pop_grape.handled"] / own["window_us"] * 1e6,
        rows["pop_grape.wait_us"],
    ]


def delays(point: runs.Point) -> str:
    """Delay in ms, hops, messages per broker and second, and moves: means over the seeds."""
    rows = []
    for seed in SEEDS:
        row = {"quotes": "", "matrix": "", **asdict(replace(point, seed=seed))}
        rows.append(measured(runs.run_point(row)["facts"]))
    delay, hops, rate, moves = np.mean(rows, axis=0)
    return f"{delay:>9.1f} {hops:>6.2f} {rate:>6.2f} {moves:>6.1f}"


def compare_delays() -> None:
    base = runs.Point(publishers=6, minutes=9.0)
    print(f"\n6 publishers for 9 minutes, made-up quotes and latencies, {len(SEEDS)} seeds")
    print(f"{'subscribers':>11} {'place':>9} {'at':>4} {'ways':>7} {'method':>10} "
          f"{'delay ms':>9} {'hops':>6} {'rate':>6} {'moves':>6}")  # fmt: skip
    cases = [("enterprise", "planetlab", spread, way) for spread in (4, 16) for way in (0, 1)]
    cases += [("random", place, 16, 0) for place in ("planetlab", "cluster")]
    for subscribers, place, spread, way in cases:
        for method in METHODS:
            point = replace(
                base, subscribers=subscribers, place=place, spread=spread, method=method
            )
            with network(over_the_tree if way else PLAIN):
                text = delays(point)
            print(f"{subscribers:>11} {place:>9} {spread:>4} {'tree' if way else 'direct':>7} "
                  f"{method:>10} {text}")  # fmt: skip


def main() -> None:
    print("GRAPE's selection, all candidates by re-rooting; processor time, best of 50")
    print(f"{'candidates':>10} {'bits':>6} {'ms':>8}")
    spent: dict[int, float] = {}
    for count, bits in (
        (63, 100),
        (250, 100),
        (1000, 12_800),
        (1000, 100),
        (4000, 100),
        (10_000, 100),
    ):
        answers = reports(count, bits)
        pings = {report.broker: report.broker % 50 for report in answers}
        best = float("inf")
        for _ in range(50):
            began = process_time()
            select(estimates(answers, pings), "load", 75, 0)
            best = min(best, process_time() - began)
        print(f"{count:>10,} {bits:>6,} {best * 1000:>8.2f}")
        spent[count] = best  # of 100 bits, which come last
    print("  " + growth.said("cost of a choice by candidates", [*spent], [*spent.values()], "1"))
    compare_delays()


if __name__ == "__main__":
    main()
