"""Random small broker networks and workloads for the contract tests."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from postroad.filters import Filter, matches, parse
from postroad.model import BrokerId, Publication, Scalar
from postroad.overlay import Overlay, from_parents
from postroad.routing import SCHEMES, Interests
from postroad.routing.base import Message, Plan
from postroad.routing.popsub.gossip import HOME_ROUNDS
from postroad.routing.ring import RingPlan, topics
from postroad.sim.oracle import diameter_us
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest, Posting, Workload

CLASSES = ["A", "B", "C"]
WORDS = ["a", "ab", "b"]

# So little capacity that popularity flaps at every evaluation.
FLAPPING = {
    "throughput_per_s": 100.0,
    "phi": 0.05,
    "reevaluate_s": 0.01,
    "batch_timeout_s": 0.005,
    "gossip_interval_s": 0.01,
    "hysteresis": 0.0,
    "view": 3,
}
VARIANTS: list[tuple[str, Any]] = []
for _name, _scheme in SCHEMES.items():
    VARIANTS.append((_name, _scheme.config(**(FLAPPING if _name == "popsub" else {}))))
    if any(field.name == "covering" for field in dataclasses.fields(_scheme.config)):
        VARIANTS.append((_name, _scheme.config(covering=True)))
VARIANTS += [
    ("popsub", SCHEMES["popsub"].config(unpopular=unpopular, **FLAPPING))
    for unpopular in ("batching", "gossip")
]
VARIANTS += [
    ("beaconvey", SCHEMES["beaconvey"].config(routing, overlay, long, cells=cells))
    for routing, overlay, long, cells in (("po", "-", "random", 0), ("pal", "L", "chord", 5))
]
# Beats as quick as these networks, so that a broker that is gone is missed while there is time.
JOINING = {"membership": "messages", "beat_s": 0.03, "grace_s": 0.06}
VARIANTS += [(name, SCHEMES[name].config(**JOINING)) for name in ("beaconvey", "scribe")]
VARIANTS.append(("kyra", SCHEMES["kyra"].config(clique_ms=4.0, trees=2, balance=4)))
VARIANTS.append(("mbr", SCHEMES["mbr"].config(groups=3, cells=6, unicast_below=0.4)))
VARIANTS.append(("mbr", SCHEMES["mbr"].config(groups=3, cells=6, clique_ms=4.0)))
_PARTS = [
    [{"scheme": "flooding", "where": "class = 'A'"},
     {"scheme": "advertisement_forwarding", "parameters": {"covering": True}}],
    [{"scheme": "unicast", "where": "class IN ('A', 'B') AND x < 3"},
     {"scheme": "popsub", "parameters": {"unpopular": "batching", **FLAPPING}, "where": "x >= 2"},
     {"scheme": "match_early"}],
]  # fmt: skip
VARIANTS += [("mix", SCHEMES["mix"].config(parts)) for parts in _PARTS]
NAMES = [
    "+".join(
        [name]
        + ["covering"] * getattr(config, "covering", False)
        + [getattr(config, "unpopular", "")] * (name == "popsub")
        + [getattr(config, field) for field in ("routing", "overlay") if hasattr(config, field)]
        + ["cells"] * (name == "beaconvey" and config.cells > 0)
        + ["joining"] * (getattr(config, "membership", "") == "messages")
        + [f"{ms:g}" for ms in [getattr(config, "clique_ms", 0)] if ms]
        + ["unicast"] * (getattr(config, "unicast_below", 0) > 0)
        + [part["scheme"] for part in getattr(config, "parts", [])]
    )
    for name, config in VARIANTS
]


def delay_us(config: Any) -> int:
    """How long a scheme may hold a publication back beyond the latency of its path."""
    if hasattr(config, "overlay") or hasattr(config, "attributes"):
        return 6 * 8 * 3000  # a ring or a tree of its own: a few hops as long as the longest path
    if hasattr(config, "parts"):
        return max(delay_us(part.config) for part in config.read())
    if not hasattr(config, "unpopular"):
        return 0
    held_us = round(1e6 * config.reorder_s)
    if config.unpopular == "batching":
        return held_us + round(1e6 * config.batch_timeout_s)
    if config.unpopular == "gossip":  # a round to be sent, then at most HOME_ROUNDS to be asked for
        return held_us + round(1e6 * config.gossip_interval_s) * (HOME_ROUNDS + 2)
    return held_us


def overlay(draw: random.Random, brokers_max: int = 9) -> Overlay:
    count = draw.randint(1, brokers_max)
    parents = [0] + [draw.randrange(broker) for broker in range(1, count)]
    made = from_parents(parents)
    made.latency_us[:] = [draw.randint(0, 3000) for _ in range(count - 1)]
    return made


def plan(name: str, config: Any, made: Overlay) -> Plan:
    """The scheme's plan when nobody knows yet who will ask for what.

    Cells of the content space are cut by what others might ask for, else there would be one.
    """
    found = SCHEMES[name].plan(made, Interests(), config, 0)
    if isinstance(found, RingPlan) and config.cells:
        draw = random.Random(7)
        known = topics([filter(draw) for _ in range(30)], config)
        assert len(known.cells) == config.cells
        found = dataclasses.replace(found, topics=known)
    return found


def filter(draw: random.Random) -> Filter:
    """A filter over a domain so small that equal, covering and disjoint filters are common."""
    parts = []
    if draw.random() < 0.7:
        parts.append(f"class = '{draw.choice(CLASSES)}'")
    if draw.random() < 0.6:
        low = draw.randint(0, 4)
        parts.append(f"x BETWEEN {low} AND {draw.randint(low, 5)}")
    if draw.random() < 0.2:
        parts.append(f"s LIKE '{draw.choice(['a', 'b'])}%'")
    if draw.random() < 0.1:
        parts.append(draw.choice(["s IS NULL", "x <> 3", "(x = 1 OR s = 'b')"]))
    return parse(" AND ".join(parts) or "TRUE")


def attributes(draw: random.Random) -> dict[str, Scalar]:
    made: dict[str, Scalar] = {"class": draw.choice(CLASSES)}
    if draw.random() < 0.9:
        made["x"] = draw.randint(0, 5)
    if draw.random() < 0.6:
        made["s"] = draw.choice(WORDS)
    return made


def matching_attributes(draw: random.Random, advertised: Filter) -> dict[str, Scalar] | None:
    """Attributes that an advertisement allows, if a few tries find any."""
    for _ in range(30):
        made = attributes(draw)
        if matches(advertised, made):
            return made
    return None


def forwarded(message: Message) -> tuple[Publication, ...]:
    """The publications that a message carries over a link of the tree."""
    return message.publications if message.forwards else ()


def behind(made: Overlay, source: BrokerId, target: BrokerId) -> set[BrokerId]:
    """The brokers on the far side of the link from `source` to `target`."""
    peers = made.neighbours()
    seen, stack = {source, target}, [target]
    while stack:
        for peer in peers[stack.pop()]:
            if peer not in seen:
                seen.add(peer)
                stack.append(peer)
    return seen - {source}


def scenario(draw: random.Random, name: str, config: Any) -> Scenario:
    """Clients that come and go at any moment while publications flow."""
    made = overlay(draw)
    brokers = made.brokers_count
    late_us = delay_us(config)
    span = 60_000 + 3 * late_us
    subscriptions = []
    for number in range(draw.randint(0, 15)):
        start = draw.choice([None, draw.randint(0, span)])
        until = draw.choice([None, draw.randint(start or 0, span)])
        subscriptions.append(
            Interest(f"s{number}", draw.randrange(brokers), "c", filter(draw), start, until)
        )
    advertisements = []
    postings = []
    for number in range(draw.randint(0, 6)):
        broker, wanted = draw.randrange(brokers), filter(draw)
        advertisements.append(Interest(f"a{number}", broker, f"p{number}", wanted))
        for publication in range(draw.randint(0, 8)):
            content = matching_attributes(draw, wanted)
            if content is not None:
                postings.append(
                    Posting(draw.randint(0, span), broker, f"p{number}", str(publication), content)
                )
    # Advertisers that come and go and publish nothing must not disturb the others.
    for number in range(draw.randint(0, 3)):
        start = draw.randint(0, span)
        broker, wanted = draw.randrange(brokers), filter(draw)
        advertisements.append(
            Interest(f"z{number}", broker, "z", wanted, start, draw.randint(start, span))
        )
    workload = Workload(tuple(subscriptions), tuple(advertisements), tuple(postings))
    settle_us = 2 * diameter_us(made) + late_us
    seed = draw.randrange(2**32)
    return Scenario(name, made, workload, config, seed=seed, settle_us=settle_us)
