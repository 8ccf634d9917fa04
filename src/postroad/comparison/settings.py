"""What to compare, as read from a TOML file.

title = "Quotes across Europe"
matters = "traffic"              # or delay, state, worst_broker
replicates = 3
seed = 1
baseline = "subscription forwarding"
schemes = ["flooding", "popsub"] # rows or whole schemes; without it: all
tune = true                      # parameters are chosen on the first fifth of the publications
topic = "symbol"                 # the attribute that topic schemes use; without it: found
sensitivity = true               # how results change with subscriptions, skew and size
publications_per_change = 10     # for each change of a subscription: what control messages weigh

[limits]                         # see Requirements; the best scheme is one that keeps within them
state = 50000
survives_crashes = true

[overlay]                        # these three as in a scenario
kind = "wide_area"
brokers = 200

[brokers]
rate_per_s = 5000

[workload]                       # or [workload.followed], [workload.social], [workload.generate]
subscriptions = "subscriptions.csv"
publications = "publications.jsonl"
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from postroad import draws
from postroad.comparison.limits import Requirements, ruled_out
from postroad.comparison.rows import Row, chosen
from postroad.errors import InputError, choice_of
from postroad.filters.constraints import TextSet
from postroad.model import TimeUs
from postroad.settings import toml
from postroad.sim.scenario import Scenario, from_dict
from postroad.workloads.model import Interest, Workload

RATE_PER_S = 80_000  # messages that a broker takes in a second, unless the file says otherwise
MATTERS = ("traffic", "delay", "state", "worst_broker")
TRAINING = 0.2
PUBLICATIONS_MIN = 2  # of a replicate: one for training, one to judge
GENERATED = ("generate", "followed")
_SCENARIO = ("overlay", "brokers", "workload")


@dataclass(frozen=True)
class Comparison:
    """What the file says, with defaults filled in."""

    title: str
    matters: str
    replicates: int
    seed: int
    baseline: str
    rows: Mapping[str, Row]
    tune: bool
    topic: str | None
    sensitivity: bool
    per_change: float  # publications for each change of a subscription
    limits: Requirements
    scenario: Mapping[str, Any]
    assumed: bool  # whether the brokers' speed is a default
    folder: str
    where: str

    @property
    def generated(self) -> str | None:
        """The kind of workload that can be drawn anew for each replicate, if it is one."""
        return next((kind for kind in GENERATED if kind in self.scenario["workload"]), None)


def load(path: Path, schemes: Sequence[str] | None = None) -> Comparison:
    """Read a comparison; `schemes`, if given, are compared instead of those it names."""
    section = toml.read(path)
    scenario = {key: section.any(key) for key in _SCENARIO if key in section.values}
    title = section.take("title", str, path.stem)
    matters = section.choice("matters", list(MATTERS), "traffic")
    replicates = section.take("replicates", int, 3, least=2)
    seed = section.take("seed", int, 0)
    baseline = section.take("baseline", str, "subscription forwarding")
    named: list[str] | None = section.take("schemes", list, None)
    rows = chosen(schemes or named, str(path))
    if baseline not in chosen(None, ""):
        raise section.wrong("baseline", baseline, choice_of(baseline, chosen(None, "")))
    if baseline not in rows:
        rows = {**chosen([baseline], str(path)), **rows}
    tune = section.take("tune", bool, False)
    topic: str | None = section.take("topic", str, None)
    sensitivity = section.take("sensitivity", bool, False)
    per_change = section.take("publications_per_change", float, 10.0)
    if per_change <= 0:
        raise section.wrong("publications_per_change", per_change, "give a number above 0")
    limits: Requirements = section.section("limits").configure(Requirements)
    section.done()
    for key in ("overlay", "workload"):
        if key not in scenario:
            raise InputError(f"{key} is missing", where=str(path), remedy=f"add a table [{key}]")
    assumed = "rate_per_s" not in scenario.get("brokers", {})
    if assumed:
        scenario["brokers"] = {"rate_per_s": RATE_PER_S, **scenario.get("brokers", {})}
    return Comparison(
        title, matters, replicates, seed, baseline, rows, tune, topic, sensitivity, per_change,
        limits, scenario, assumed, str(path.resolve().parent), str(path),
    )  # fmt: skip


def first_look(comparison: Comparison) -> tuple[Scenario, list[InputError]]:
    """The first replicate's scenario, and the rows of its files that cannot be used."""
    bad: list[InputError] = []
    values = _values(comparison.scenario, comparison.seed)
    scenario = from_dict(values, comparison.where, Path(comparison.folder), bad.append)
    for name, rows in (
        ("subscription", scenario.workload.subscriptions),
        ("publication", scenario.workload.postings),
    ):
        if not rows:
            raise InputError(
                f"there is no usable {name}" + (f"; the first bad row: {bad[0]}" if bad else ""),
                where=comparison.where,
                remedy="mend the files",
            )
    count = len(scenario.workload.postings)
    least = PUBLICATIONS_MIN * (1 if comparison.generated else comparison.replicates)
    if count < least:
        among = "" if comparison.generated else f" for {comparison.replicates} replicates"
        fewer = "" if least <= 2 * PUBLICATIONS_MIN else ", or fewer replicates"
        raise InputError(
            f"too few publications{among}: {count}",
            where=comparison.where,
            remedy=f"give at least {least}{fewer}",
        )
    return scenario, bad


def _values(scenario: Mapping[str, Any], seed: int) -> dict[str, Any]:
    return {**scenario, "scheme": "flooding", "seed": seed}


def part(
    settings: Mapping[str, Any], folder: str, seed: int, replicate: int, replicates: int,
    training: bool,
) -> Scenario:  # fmt: skip
    """The scenario of one replicate: its network, its workload, its part of the publications.

    A generated workload is drawn anew for each replicate, on the same network. One from files
    is the same each time, so its publications are dealt out: each replicate judges a stretch
    of its own. The first fifth of what a replicate has is for training and never judged.
    """
    generated = any(kind in settings["workload"] for kind in GENERATED)
    drawn = draws.bits(seed, "compare.replicate", 0, replicate) >> 1 if generated else seed
    scenario = _scenario(json.dumps(settings, sort_keys=True), folder, seed, drawn)
    postings = scenario.workload.postings
    if not generated:
        size = len(postings) // replicates
        begin = replicate * size
        postings = postings[begin : begin + size if replicate < replicates - 1 else len(postings)]
    cut = max(1, round(TRAINING * len(postings)))
    postings = postings[:cut] if training else postings[cut:]
    start_us = postings[0].time_us if postings else 0
    moved = tuple(replace(posting, time_us=posting.time_us - start_us) for posting in postings)
    workload = scenario.workload
    subscriptions, advertisements = (
        tuple(_during(one, start_us) for one in each if (one.until_us or start_us) >= start_us)
        for each in (workload.subscriptions, workload.advertisements)
    )
    return replace(scenario, workload=Workload(subscriptions, advertisements, moved))


def _during(interest: Interest, start_us: TimeUs) -> Interest:
    """As seen from a stretch that starts later: what began before is there from the beginning."""
    since, until = interest.time_us, interest.until_us
    if since is None and until is None:
        return interest
    return replace(
        interest,
        time_us=None if since is None or since <= start_us else since - start_us,
        until_us=None if until is None else until - start_us,
    )


@lru_cache(maxsize=2)
def _scenario(settings: str, folder: str, seed: int, drawn: int) -> Scenario:
    """Read once for all rows that follow each other: the network by `seed`, the rest by `drawn`."""
    document = json.loads(settings)
    keep: float | None = document["workload"].pop("keep", None)
    network = from_dict(_values({**document, "workload": {}}, seed), "workload", Path(folder))
    scenario = from_dict(_values(document, drawn), "workload", Path(folder), lambda error: None)
    scenario = replace(scenario, overlay=network.overlay)
    if keep is None:
        return scenario
    workload = scenario.workload
    kept = tuple(
        interest
        for n, interest in enumerate(workload.subscriptions)
        if draws.uniform(seed, "compare.keep", 0, n) < keep
    )
    return replace(scenario, workload=replace(workload, subscriptions=kept))


def topic_attribute(scenario: Scenario) -> str:
    """The attribute that topic schemes take topics from: named by most filters, most varied.

    Only attributes that every publication has as text come into question; without one, `class`.
    """
    postings = scenario.workload.postings[:1000]
    names = [
        name
        for name in dict.fromkeys(name for posting in postings for name in posting.attributes)
        if all(isinstance(posting.attributes.get(name), str) for posting in postings)
    ]
    best, most = "class", (0.0, 0)
    filters = [interest.filter for interest in scenario.workload.subscriptions[:5000]]
    for name in names:
        named = [
            values
            for filter in filters
            for conjunction in filter.conjunctions
            if isinstance(values := dict(conjunction).get(name), TextSet)
        ]
        topics = {topic for values in named for topic in values.values}
        score = (round(len(named) / max(1, len(filters)), 1), len(topics))
        if score > most:
            best, most = name, score
    return best


def possible_rows(comparison: Comparison) -> dict[str, Row]:
    """The baseline, and the rows that some workload may leave within the limits."""
    return {
        label: row
        for label, row in comparison.rows.items()
        if label == comparison.baseline or not any(ruled_out(row, comparison.limits))
    }


def sensitivity_points(comparison: Comparison) -> dict[str, list[tuple[float, dict[str, Any]]]]:
    """What is varied, and for each value of it the settings of the runs.

    Generated workloads are varied around an eighth of their size; of files only the number of
    subscriptions can be, by leaving some out.
    """
    if not comparison.sensitivity:
        return {}
    base = json.loads(json.dumps(comparison.scenario))
    if comparison.generated is None:
        shares = (0.25, 0.5, 1.0)
        return {
            "share of subscriptions": [
                (share, {**base, "workload": {**base["workload"], "keep": share}})
                for share in shares
            ]
        }
    workload = base["workload"][comparison.generated]
    for key, least in (("subscriptions", 1), ("publications", PUBLICATIONS_MIN)):
        workload[key] = max(least, workload[key] // 8)
    sized = isinstance(base["overlay"].get("brokers"), int)
    if sized:
        base["overlay"]["brokers"] = max(2, base["overlay"]["brokers"] // 8)

    def changed(table: str, key: str, value: Any) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(json.dumps(base))
        inner = (
            document["overlay"]
            if table == "overlay"
            else document["workload"][comparison.generated]
        )
        inner[key] = value
        return document

    count = workload["subscriptions"]
    points = {
        "subscriptions": [
            (float(n), changed("workload", "subscriptions", n))
            for n in dict.fromkeys((max(1, count // 2), count, 2 * count))
        ],
        "skew of popularity": [
            (skew, changed("workload", "skew", skew)) for skew in (0.0, 0.7, 1.4)
        ],
    }
    if sized:
        brokers = base["overlay"]["brokers"]
        points["brokers"] = [
            (float(n), changed("overlay", "brokers", n))
            for n in dict.fromkeys((max(2, brokers // 2), brokers, 2 * brokers))
        ]
    return points
