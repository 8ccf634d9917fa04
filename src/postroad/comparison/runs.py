"""One run of one row, and the measures that all schemes have in common.

A message is one send between two brokers, a batch too. All figures per publication count the
publications that were made; times are from publication to delivery.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from postroad.comparison import settings
from postroad.comparison.optimum import least
from postroad.comparison.rows import SHARE, TRACED
from postroad.errors import InputError
from postroad.overlay import Overlay
from postroad.overlay.small_world import Ring
from postroad.relocation import RELOCATIONS, all_messages
from postroad.routing import SCHEMES
from postroad.routing.ring import ANY, topics
from postroad.sim.oracle import expected
from postroad.sim.run import Result, run
from postroad.sim.scenario import Scenario

MEASURES: dict[str, str] = {
    "traffic": "messages per publication, control messages at the stated rate of change included",
    "messages": "publication messages per publication",
    "copies": "copies of publications in them, per publication",
    "pure_forwards": "pure forwards per publication",
    "false_sends": "false sends per publication",
    "matches": "matches per publication",
    "state_mean": "routing entries per broker, mean",
    "state_max": "routing entries per broker, max",
    "stress_mean": "publication messages sent and received per broker and publication, mean",
    "stress_max": "the same, busiest broker",
    "link_mean": "publication messages per used link and publication, mean",
    "link_max": "the same, busiest link",
    "delay_p50_ms": "delivery delay, median, ms",
    "delay_p90_ms": "delivery delay, 90th percentile, ms",
    "delay_p99_ms": "delivery delay, 99th percentile, ms",
    "hops": "hops per delivery, mean",
    "outside": "publication messages per publication between brokers that no link joins",
    "control": "control messages per publication, set-up included",
    "control_per_change": "control messages per change of a subscription",
    "deliveries": "deliveries",
    "lost": "lost deliveries",
    "duplicated": "duplicate deliveries",
    "unexpected": "deliveries nobody asked for",
}
CONCERN = {
    "traffic": "traffic",
    "delay": "delay_p90_ms",
    "state": "state_mean",
    "worst_broker": "stress_max",
}
"""The measure that stands for each thing that may matter."""
LINKS_DRAWN = 1500


def run_row(row: dict[str, Any]) -> Mapping[str, Any]:
    """The entry point of the sweep: plain values in, numbers out."""
    case = row["parameters"]["case"]
    scenario = settings.part(
        case["settings"], row["folder"], case["seed"], case["replicate"], case["replicates"],
        case["training"],
    )  # fmt: skip
    if case["scheme"] is None:
        return least(scenario)
    scheme, relocation = SCHEMES[case["scheme"]], case["relocation"]
    parameters = dict(case["parameters"])
    share = parameters.pop(SHARE, None)
    if share is not None:
        phi = scheme.config().phi
        parameters["throughput_per_s"] = max(1e-6, share * publishing_rate(scenario) / phi)
    joined = links_of(scenario.overlay)
    if scheme.overlay == "ring":
        parameters["topic"] = case["topic"]
        scenario = on_ring(scenario, scheme.config(**parameters))
    traced = parameters.pop(TRACED, None)
    if relocation is not None:
        publishers = len({posting.publisher for posting in scenario.workload.postings})
        threshold = max(2, round(traced * len(scenario.workload.postings) / publishers))
        scenario = replace(
            scenario,
            relocation=relocation,
            relocation_config=RELOCATIONS[relocation].config(threshold=threshold),
        )
    config = scheme.config(**parameters)
    scenario = replace(scenario, scheme=case["scheme"], config=config)
    return measured(run(scenario), joined, case["per_change"], case["details"])


def links_of(overlay: Overlay) -> set[tuple[int, int]]:
    """The links of an overlay, in both directions."""
    ends = overlay.ends.tolist()
    return {pair for a, b in ends for pair in ((a, b), (b, a))}


def rate_per_s(scenario: Scenario) -> float:
    """Publications per second in the network."""
    postings = scenario.workload.postings
    span_s = (postings[-1].time_us - postings[0].time_us) / 1e6 or 1.0
    return len(postings) / span_s


def publishing_rate(scenario: Scenario) -> float:
    """Publications per second at a broker that publishes, on average."""
    return rate_per_s(scenario) / len({one.broker for one in scenario.workload.postings})


def on_ring(scenario: Scenario, config: Any) -> Scenario:
    """The same brokers on a ring planned for the workload's topics, latencies kept."""
    from postroad.kernels.swico import build
    from postroad.planning.swico import from_pairs

    overlay = scenario.overlay
    if isinstance(overlay, Ring):
        return scenario
    subscriptions = scenario.workload.subscriptions
    kinds = topics((interest.filter for interest in subscriptions), config)
    wanted = [
        (interest.broker, topic)
        for interest in subscriptions
        for topic in kinds.wanted(interest.filter)
    ]
    number = {name: n for n, name in enumerate(sorted({t for _, t in wanted} - {ANY}))}
    if not number:
        raise InputError(
            f"no filter names a value of {config.topic!r}"
            if not config.cells
            else "every filter can match in every cell of the content space",
            remedy="set topic to an attribute that filters compare with =",
        )
    pairs = [
        (broker, place)
        for broker, topic in wanted
        for place in (range(len(number)) if topic == ANY else [number[topic]])
    ]
    interests = from_pairs(
        [broker for broker, _ in pairs], [topic for _, topic in pairs], overlay.brokers_count,
        len(number),
    )  # fmt: skip
    world = build(interests, config.overlay, config.long, scenario.seed)
    direct = overlay.direct_us
    if direct is None:
        direct = np.array([overlay.path_us(broker) for broker in range(overlay.brokers_count)])
    ends = world.order[world.edges]
    ring = Ring(overlay.names, ends, direct[ends[:, 0], ends[:, 1]], direct, world=world)
    return replace(scenario, overlay=ring)


def carrying() -> set[str]:
    """The kinds of messages that carry publications, in all schemes."""
    return {message.kind for message in all_messages() if message.carries}


def measured(
    result: Result, joined: Collection[tuple[int, int]], per_change: float, details: bool
) -> dict[str, Any]:
    """All measures of a run. `joined` are the links that the network has, `per_change` is how many
    publications there are for each change of a subscription; `details` adds what the pictures of
    brokers and links need.

    A change costs as many control messages as setting up a subscription did, on average.
    """
    scenario = result.scenario
    count = max(1, len(scenario.workload.postings))
    kinds = carrying()
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
    if details:
        measures["load"] = {str(n): value / count for n, value in enumerate(stress.tolist())}
        both: Counter[tuple[int, int]] = Counter()
        for (a, b), carried in links.items():
            if max(a, b) < len(stress):
                both[min(a, b), max(a, b)] += carried
        measures["link"] = {
            f"{a}-{b}": carried / count for (a, b), carried in both.most_common(LINKS_DRAWN)
        }
        if len(delays):
            shares = np.percentile(delays, np.arange(101)) / 1000
            measures["quantile"] = {str(q): value for q, value in enumerate(shares.tolist())}
    return measures
