"""Reports on a replay: its fidelity to the recording, the effect of a change, spare capacity."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from postroad.model import TimeUs
from postroad.replay.recorded import Recorded
from postroad.sim.run import Result, percentile, plan_of

WINDOW_US = 1_000_000  # over which a broker's load is measured
MOST = 5  # brokers and links that changed most


@dataclasses.dataclass(frozen=True)
class Fidelity:
    """A run of a recorded scenario under its own scheme beside what was recorded."""

    missing: list[str]  # deliveries that were recorded and not replayed,
    extra: list[str]  # and the reverse
    messages: list[tuple[str, str, str, int, int]]  # from, to, kind; recorded, replayed; unequal
    messages_count: int
    delays_us: dict[str, tuple[TimeUs, TimeUs]]  # p50, p90, p99: recorded and replayed

    @property
    def same(self) -> bool:
        return not (self.missing or self.extra or self.messages)

    def to_json(self) -> dict[str, Any]:
        return {"same": self.same, **dataclasses.asdict(self)}


def fidelity(recorded: Recorded, result: Result, model: Result | None = None) -> Fidelity:
    """`result` is a run of `recorded.exact`; delays are those of `model`, a run of
    `recorded.scenario`, on which changes are tried."""
    replayed = Counter((key, subscription) for key, subscription, *_ in result.deliveries)
    names = result.scenario.overlay.names
    plan = plan_of(result.scenario)
    messages: Counter[tuple[str, str, str]] = Counter()
    for link in result.links:
        spared = plan.introductions(
            link.source, link.target
        )  # counted, because a plan said it beforehand
        for kind, count in link.messages.items():
            key = (names[link.source], names[link.target], kind)
            messages[key] += count - spared.get(kind, 0)

    def text(pair: tuple[tuple[str, str], str]) -> str:
        return f"{pair[0][0]}/{pair[0][1]} for {pair[1]}"

    unequal = [
        (*key, recorded.messages[key], messages[key])
        for key in sorted({*recorded.messages, *messages})
        if recorded.messages[key] != messages[key]
    ]
    after = delays_us(model or result)
    return Fidelity(
        sorted(map(text, (recorded.deliveries - replayed).elements())),
        sorted(map(text, (replayed - recorded.deliveries).elements())),
        unequal,
        sum(recorded.messages.values()),
        {
            f"p{p}": (percentile(recorded.delays_us, p), percentile(after, p))
            for p in (50, 90, 99)
        },
    )  # fmt: skip


def delays_us(result: Result) -> list[TimeUs]:
    return sorted(
        time_us - result.published_us[key] for key, _, _, time_us, *_ in result.deliveries
    )


def figures(result: Result) -> dict[str, float]:
    """The key figures of a run."""
    summary = result.summary()
    messages: Mapping[str, int] = summary["messages"]
    publications = max(1, summary["publications"])
    delays = delays_us(result)
    load = broker_load(result)
    return {
        "publications": summary["publications"],
        "deliveries": summary["deliveries"],
        "missing": summary["missing"],
        "messages": sum(messages.values()),
        "messages_per_publication": sum(messages.values()) / publications,
        "delay_us_p50": percentile(delays, 50),
        "delay_us_p90": percentile(delays, 90),
        "delay_us_p99": percentile(delays, 99),
        "hops_mean": summary["hops"]["mean"],
        "table_entries_mean": summary["table_entries"]["mean"],
        "busiest_broker_messages": max(load.values(), default=0),
    }


def broker_load(result: Result) -> dict[str, int]:
    """Messages that each broker received, and publications of its own clients."""
    names = result.scenario.overlay.names
    own = Counter(posting.broker for posting in result.scenario.workload.postings)
    return {
        names[number]: sum(broker.received.values()) + own[number]
        for number, broker in enumerate(result.brokers)
    }


def link_load(result: Result) -> dict[str, int]:
    """Messages over each link, both ways."""
    names = result.scenario.overlay.names
    messages: Counter[str] = Counter()
    for link in result.links:
        a, b = sorted((names[link.source], names[link.target]))
        messages[f"{a}-{b}"] += sum(link.messages.values())
    return dict(messages)


def changed_most(before: Mapping[str, int], after: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """Name, before and after of what changed most; 0 for what is not there."""
    rows = [(name, before.get(name, 0), after.get(name, 0)) for name in sorted({*before, *after})]
    rows = [row for row in rows if row[1] != row[2]]
    rows.sort(key=lambda row: (-abs(row[2] - row[1]), row[0]))
    return rows[:MOST]


@dataclasses.dataclass(frozen=True)
class Capacity:
    """The headroom of a broker or a link, if the whole workload grows in proportion."""

    name: str
    utilisation: float  # in its busiest second, now
    growth: float  # factor at which that second is full


def capacity(
    result: Result, recorded: Recorded, link_bytes_per_s: float | None = None
) -> list[Capacity]:
    """Brokers, and links if their bandwidth is known, the first to saturate first.

    A broker's CPU time per step is measured; one without has the mean of the others. Its
    messages are spread over the run as the publications are, and the busiest second counts.
    """
    postings = result.scenario.workload.postings
    peak = _peak_share(postings) if postings else 0.0
    service_us = recorded.service_us
    used: dict[str, float] = {}
    if service_us:
        mean = sum(service_us.values()) / len(service_us)
        for name, messages in broker_load(result).items():
            used[name] = messages * peak * service_us.get(name, mean) / WINDOW_US
    sent = sum(recorded.messages.values())
    if link_bytes_per_s is not None and sent:
        size = sum(recorded.bytes.values()) / sent
        for name, messages in link_load(result).items():
            used[name] = messages * peak * size / link_bytes_per_s
    rows = [Capacity(name, share, 1 / share) for name, share in used.items() if share > 0]
    return sorted(rows, key=lambda row: (row.growth, row.name))


def _peak_share(postings: Sequence[Any]) -> float:
    """The share of all publications that the busiest second has."""
    seconds = Counter(posting.time_us // WINDOW_US for posting in postings)
    return max(seconds.values()) / len(postings)
