"""How near a replay comes: delays of a live chain of brokers beside those of its replay.

Messages take times that are drawn from what was measured (`Recorded.scenario`); deliveries and
messages are those of the replay that repeats every time (`Recorded.exact`). The machine should be
idle: what it does besides is in the recorded delays, but not at the same moments in the replay.
A replay should take as long as it has publications.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import mqtt5

from postroad import draws
from postroad.bench import growth, live
from postroad.replay.recorded import from_rows
from postroad.replay.report import fidelity
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.traces.files import read

TURNS = 3
BROKERS = 5
SUBSCRIBERS = 12
PUBLISHERS = 4
PUBLICATIONS = 600
SIZES = (75, 150, 300, 600)  # of them that are replayed to see how it grows
REPEATS = 3
PAUSE_S = 0.003
SETTLE_S = 0.5  # until the last publications have arrived, and the last unsubscriptions


def main() -> None:
    print(f"delays in µs, live and replayed, of {PUBLICATIONS} publications over {BROKERS} brokers")
    print("| run | same deliveries and messages | p50 | p90 | p99 |")
    print("|---:|---|---:|---:|---:|")
    for turn in range(TURNS):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with live.brokers(BROKERS, folder, ['traces = { folder = "t" }']) as (ports, _, _):
                _talk(ports, turn)
            rows, _ = read(folder / "t")
        recorded = from_rows(rows)
        same = fidelity(recorded, run(recorded.exact), run(recorded.scenario))
        cells = [
            f"{before:,} {after:,} ({after / before:.2f})"
            for before, after in same.delays_us.values()
        ]
        print(f"| {turn + 1} | {'yes' if same.same else 'no'} | {' | '.join(cells)} |")
    costs = [_replaying_s(recorded.exact, count) for count in SIZES]
    print("  " + growth.said("cost of a replay by publications", SIZES, costs, "1"))


def _replaying_s(scenario: Scenario, count: int) -> float:
    """CPU seconds to replay the first so many publications, the least of the repeats."""
    asked = replace(scenario.workload, postings=scenario.workload.postings[:count])
    took = []
    for _ in range(REPEATS):
        began = time.process_time()
        run(replace(scenario, workload=asked))
        took.append(time.process_time() - began)
    return min(took)


def _talk(ports: list[int], seed: int) -> None:
    """Filters at every broker, publications at some of them, one at a time; then all leave."""
    subscribers = [live.Raw(ports[n % BROKERS], f"subscriber-{n}") for n in range(SUBSCRIBERS)]
    publishers = [live.Raw(ports[n], f"publisher-{n}") for n in range(PUBLISHERS)]
    for n, client in enumerate(subscribers):
        least = draws.below(90, seed, "price", 0, n)
        client.subscribe(1, f"quotes/{n % 3}", f"price > {least}")
        client.await_subacks(1)
    for n in range(PUBLICATIONS):
        client = publishers[draws.below(PUBLISHERS, seed, "publisher", 0, n)]
        content = {"price": draws.below(100, seed, "value", 0, n)}
        packet = mqtt5.PublishPacket(f"quotes/{n % 3}", json.dumps(content).encode())
        client.socket.sendall(packet.write())
        time.sleep(PAUSE_S)
    time.sleep(SETTLE_S)
    for client in (*subscribers, *publishers):
        client.socket.close()
    time.sleep(SETTLE_S)
