"""One run of one row, and the measures that all schemes have in common.

A message is one send between two brokers, a batch too. All figures per publication count the
publications that were made; times are from publication to delivery.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from postroad.comparison import mixing, settings
from postroad.comparison.optimum import demand, least
from postroad.comparison.rows import CANDIDATES, PLACED, SHARE, TRACED
from postroad.cost import placement
from postroad.errors import InputError
from postroad.kernels import steiner
from postroad.overlay import Overlay
from postroad.overlay.small_world import Ring
from postroad.overlay.transit_stub import Routed
from postroad.pipeline import definitions
from postroad.relocation import RELOCATIONS
from postroad.routing import SCHEMES
from postroad.routing.ring import ANY, topics
from postroad.sim.facts import Fact, columns, facts, upper_us
from postroad.sim.run import run, uncollected
from postroad.sim.scenario import Scenario

MEASURES: dict[str, str] = {
    name: measure.definition
    for name, measure in definitions.MEASURES.items()
    if name not in ("delay_mean_ms", "queue_mean", "queue_max", "publications")
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
    overlay = scenario.overlay
    joined = links_of(overlay)
    more: dict[str, Any] = {}
    if case["parameters"].keys() & {CANDIDATES, PLACED}:
        training = settings.part(
            case["settings"], row["folder"], case["seed"], case["replicate"], case["replicates"],
            True,
        )  # fmt: skip
        if PLACED in case["parameters"]:
            scenario = placed(scenario, training)
        else:
            case, more["choice"] = mixing.resolved(case, training)
    scenario = replace(prepared(case, scenario), hasty=True)
    with uncollected():
        counted = facts(run(scenario), joined, case["per_change"])
    if isinstance(overlay, Routed):
        more["physical"] = physical(counted, overlay) / max(1, len(scenario.workload.postings))
    if case["details"]:
        more |= pictured(counted, scenario)
    return {"facts": columns(counted), **more}


def placed(scenario: Scenario, training: Scenario) -> Scenario:
    """Publishers at the brokers that are best for what they publish in the training part; those
    that publish nothing there stay."""
    who = demand(training)
    home = np.empty(len(who.publishers), dtype=np.int64)
    home[who.publisher] = who.source
    best = placement.best(scenario.overlay, who.wanted, who.publisher, home)
    at = dict(zip(who.publishers, best.brokers.tolist(), strict=True))
    workload = scenario.workload
    moved = replace(
        workload,
        postings=tuple(
            replace(one, broker=at.get(one.publisher, one.broker)) for one in workload.postings
        ),
        advertisements=tuple(
            replace(one, broker=at.get(one.client, one.broker)) for one in workload.advertisements
        ),
    )
    return replace(scenario, workload=moved)


def physical(counted: Sequence[Fact], overlay: Routed) -> int:
    """Copies of publications, each as often as it crosses a link of the network below."""
    number = {name: n for n, name in enumerate(overlay.names)}
    far = steiner.crossed(overlay.underlay)
    total = 0
    for broker, peer, _, _, _, fact, times in counted:
        if fact == "copies":
            a, b = number.get(broker or ""), number.get(peer or "")
            total += times * (1 if a is None or b is None else int(far[a, b]))
    return total


def prepared(case: Mapping[str, Any], scenario: Scenario) -> Scenario:
    """The scenario under a row's scheme, its parameters made out for this workload."""
    scheme, relocation = SCHEMES[case["scheme"]], case["relocation"]
    parameters = dict(case["parameters"])
    share = parameters.pop(SHARE, None)
    if share is not None:
        phi = scheme.config().phi
        parameters["throughput_per_s"] = max(1e-6, share * publishing_rate(scenario) / phi)
    traced = parameters.pop(TRACED, None)
    parameters.pop(PLACED, None)
    if scheme.overlay == "ring":
        parameters["topic"] = case["topic"]
        scenario = on_ring(scenario, scheme.config(**parameters))
    if relocation is not None:
        publishers = len({posting.publisher for posting in scenario.workload.postings})
        threshold = max(2, round(traced * len(scenario.workload.postings) / publishers))
        scenario = replace(
            scenario,
            relocation=relocation,
            relocation_config=RELOCATIONS[relocation].config(threshold=threshold),
        )
    return replace(scenario, scheme=case["scheme"], config=scheme.config(**parameters))


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
    world = build(interests, config.overlay, config.long, scenario.seed, config.incoming)
    direct = overlay.direct_us
    if direct is None:
        direct = np.array([overlay.path_us(broker) for broker in range(overlay.brokers_count)])
    ends = world.order[world.edges]
    ring = Ring(overlay.names, ends, direct[ends[:, 0], ends[:, 1]], direct, world=world)
    return replace(scenario, overlay=ring)


def pictured(counted: Sequence[Fact], scenario: Scenario) -> dict[str, dict[str, float]]:
    """What the pictures of brokers, links and delays show, from the facts of a run."""
    count = max(1, len(scenario.workload.postings))
    number = {name: n for n, name in enumerate(scenario.overlay.names)}
    load = dict.fromkeys(range(len(number)), 0)
    both: Counter[tuple[int, int]] = Counter()
    delays: Counter[int] = Counter()
    for broker, peer, _, _, bucket, fact, times in counted:
        if fact == "sends":
            ends = [number[end] for end in (broker, peer) if end in number]
            for end in ends:
                load[end] += times
            if len(ends) == 2:  # routers below the brokers are not drawn
                both[min(ends), max(ends)] += times
        elif bucket is not None:
            delays[bucket] += times
    shown: dict[str, dict[str, float]] = {
        "load": {str(n): sent / count for n, sent in load.items()},
        "link": {f"{a}-{b}": sent / count for (a, b), sent in both.most_common(LINKS_DRAWN)},
    }
    if delays:
        late = sorted(delays)
        spread = np.repeat(upper_us(np.array(late)), [delays[bucket] for bucket in late])
        shares = np.percentile(spread, np.arange(101)) / 1000
        shown["quantile"] = {str(q): value for q, value in enumerate(shares.tolist())}
    return shown
