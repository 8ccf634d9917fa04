"""The measures of a comparison computed from a run's result in plain Python, without facts and
without Spark: what the stages are held against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np

from postroad.relocation import all_messages
from postroad.sim.oracle import expected
from postroad.sim.run import Result


def measured(
    result: Result, joined: Collection[tuple[int, int]], per_change: float
) -> dict[str, Any]:
    scenario = result.scenario
    count = max(1, len(scenario.workload.postings))
    kinds = {message.kind for message in all_messages() if message.carries}
    pairs = Counter((key, subscription) for key, subscription, *_ in result.deliveries)
    owed, allowed = expected(scenario, result.refused)
    delays = np.sort(
        [time_us - result.published_us[key] for key, _, _, time_us, *_ in result.deliveries]
    )
    stress = np.zeros(len(result.brokers))
    links: Counter[tuple[int, int]] = Counter()
    control: Counter[str] = Counter()
    for link in result.links:
        carried = 0
        for kind, sent in link.messages.items():
            if kind in kinds:
                carried += sent
            else:
                control[kind] += sent
        if carried:
            for end in (link.source, link.target):
                if end < len(stress):  # routers below the brokers come after them
                    stress[end] += carried
            links[link.source, link.target] += carried
    state = [broker.table_entries_max for broker in result.brokers]
    percentiles = {
        f"delay_p{p}_ms": float(np.percentile(delays, p)) / 1000 if len(delays) else 0.0
        for p in (50, 90, 99)
    }
    messages = sum(links.values()) / count
    change = control.total() / max(1, len(scenario.workload.subscriptions))
    measures: dict[str, Any] = {
        "traffic": messages + change / per_change,
        "messages": messages,
        "copies": sum(link.copies for link in result.links) / count,
        "pure_forwards": sum(broker.pure_forwards for broker in result.brokers) / count,
        "false_sends": sum(broker.false_sends for broker in result.brokers) / count,
        "matches": sum(b.matches_count + b.router.matches_count for b in result.brokers) / count,
        "state_mean": float(np.mean(state)),
        "state_max": max(state),
        "stress_mean": float(stress.mean()) / count,
        "stress_max": float(stress.max()) / count,
        "link_mean": sum(links.values()) / max(1, len(links)) / count,
        "link_max": max(links.values(), default=0) / count,
        **percentiles,
        "hops": sum(hops for *_, hops, _ in result.deliveries) / max(1, len(result.deliveries)),
        "outside": sum(n for pair, n in links.items() if pair not in joined) / count,
        "control": control.total() / count,
        "control_per_change": change,
        "deliveries": len(result.deliveries),
        "lost": len(owed - pairs.keys()),
        "duplicated": pairs.total() - len(pairs),
        "unexpected": len(pairs.keys() - owed - allowed),
        "publications": len(scenario.workload.postings),
        "control_by_kind": dict(sorted(control.items())),
    }
    return measures
