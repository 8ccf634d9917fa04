"""`python -m postroad.bench.peers [ROW …]`: run all rows of the comparison, or the named ones.

--list            the rows and, of each peer that cannot be had here, why
--write FOLDER    only write the workloads, as files
--workloads FOLDER  use those instead of writing them anew
--seed N          what they are drawn from (1)
--json            figures for a program
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from postroad.bench.peers import durable, engines, models, traffic, workloads
from postroad.bench.peers.figures import PeerFigure, PeerRow, show, summary
from postroad.bench.peers.systems import SYSTEMS, no_library

RowSpec = tuple[
    str, str, Callable[[Path, str], list[PeerFigure]]
]  # its title, leading measure, and work

ROWS: dict[str, RowSpec] = {
    "fanout-1": ("deliveries, one subscriber", "per_cpu_s", traffic.fanout),
    "fanout-5": ("deliveries, five subscribers", "per_cpu_s", traffic.fanout),
    "fanout-50": ("deliveries, fifty subscribers", "per_cpu_s", traffic.fanout),
    "latency": ("from when due to read, fixed load, one broker", "p50_us", traffic.latency),
    "others": ("the same for a quiet pair while another floods", "p99_us", traffic.others),
    "chain": ("over three brokers: saturated, and latency at a fixed load", "per_s", traffic.chain),
    "mesh": ("the same over three brokers that are all linked", "per_s", traffic.mesh),
    "durable": ("QoS 1, on disk before it is acknowledged", "per_s", durable.durable),
    "idle": ("memory of an idle connection", "bytes_each", traffic.idle),
    "filters": ("publications against 10,000 filters with ranges", "per_s", traffic.filtered),
    "filters-equal": ("the same, equalities only", "per_s", traffic.filtered),
    "match-few": ("a match among 20 filters", "cpu_us", engines.matched),
    "match-equal": ("among 10,000, equalities only", "cpu_us", engines.matched),
    "match-equal-1m": ("the same among a million", "cpu_us", engines.matched),
    "match-quotes": ("among 10,000, a symbol and a price", "cpu_us", engines.matched),
    "match-quotes-1m": ("the same among a million", "cpu_us", engines.matched),
    "match-mixed": ("among 10,000, three to five demands", "cpu_us", engines.matched),
    "match-mixed-100k": ("the same among 100,000", "cpu_us", engines.matched),
    "match-mixed-1m": ("the same among a million", "cpu_us", engines.matched),
    "simulate": ("messages that flood a tree of 150", "per_cpu_s", models.simulated),
    "plan-tree": ("the cheapest tree over 600 brokers", "cpu_s", models.planned_tree),
    "plan-paths": ("latencies between 600 brokers of a tree", "cpu_s", models.planned_paths),
}  # fmt: skip

# What is compared inside of this process, each with the module that it needs.
LIBRARIES = {name: module for name, (_, module, _) in engines.ENGINES.items() if module} | {
    name: module
    for systems in (models.SIMULATORS, models.TREE_PLANNERS, models.PATH_PLANNERS)
    for name, (_, module) in systems.items()
    if module
}
WIDTH = max(map(len, [*ROWS, *LIBRARIES, *(system.name for system in SYSTEMS)]))


def run(names: list[str], folder: Path) -> Iterator[PeerRow]:
    for name in names:
        title, leads, measure = ROWS[name]
        print(f"{name} …", file=sys.stderr, flush=True)
        yield PeerRow(name, title, leads, measure(folder, name))


def listed() -> str:
    lines = [f"  {name:<{WIDTH}} {title}" for name, (title, _, _) in ROWS.items()]
    reasons = {system.name: system.missing() for system in SYSTEMS}
    reasons |= {name: no_library(module) for name, module in LIBRARIES.items()}
    lines += [f"  {name:<{WIDTH}} {reason or 'here'}" for name, reason in reasons.items()]
    return "\n".join(lines)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m postroad.bench.peers")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--list", action="store_true", help="rows, and peers that are missing")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="only write the workloads")
    parser.add_argument("--workloads", type=Path, metavar="FOLDER", help="use these workloads")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(words)
    unknown = [row for row in chosen.rows if row not in ROWS]
    if unknown:
        parser.error(f"no row {', '.join(unknown)}; choose from {', '.join(ROWS)}")
    rows = chosen.rows or list(ROWS)
    if chosen.list:
        print(listed())
        return
    if chosen.write is not None:
        for path in workloads.write(chosen.write, chosen.seed, rows):
            print(path)
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.workloads
        if folder is None:
            folder = Path(scratch)
            workloads.write(folder, chosen.seed, rows)
        tables = []
        for table in run(rows, folder):
            tables.append(table)
            if not chosen.json:  # a row at a time: all of them take long
                print(f"{show(table)}\n", flush=True)
    load = os.getloadavg()[0]
    if chosen.json:
        document = {"load": load, "rows": [table.as_json() for table in tables]}
        print(json.dumps(document, indent=1))
    else:
        print(summary(tables))
        print(f"load of the machine in the end: {load:.1f}, {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
