"""Made-up workloads of `class = … AND value >= … AND value < …` filters."""

from __future__ import annotations

from dataclasses import dataclass

from postroad import draws
from postroad.filters import Filter, parse
from postroad.model import Scalar
from postroad.settings.sections import above, at_least, at_most
from postroad.workloads.model import Interest, Posting, Workload, derived_advertisements


@dataclass(frozen=True)
class Generated:
    """Settings of `[workload.generate]`.

    Classes are drawn by Zipf's law with exponent `skew` (0: uniformly) for publishers and
    subscribers alike, values uniformly from 0..999, brokers uniformly. `selectivity` is the
    mean share of values a filter accepts: the shares vary from 0 to twice as much. A share
    `churn` of the subscribers leaves and comes back while publications flow.
    """

    subscriptions: int
    publications: int
    publishers: int = 10
    classes: int = 10
    skew: float = 0.0
    selectivity: float = 0.1
    rate_per_s: float = 100.0
    churn: float = 0.0

    def __post_init__(self) -> None:
        at_least(self, 0, "subscriptions", "publications", "skew", "selectivity", "churn")
        at_least(self, 1, "publishers", "classes")
        at_most(self, 1, "selectivity", "churn")
        above(self, 0, "rate_per_s")


def workload(settings: Generated, brokers: int, seed: int) -> Workload:
    """All draws are keyed by the seed."""
    selectivity, churn, publishers = settings.selectivity, settings.churn, settings.publishers
    classes = settings.classes
    weights = [1.0 / (rank + 1) ** settings.skew for rank in range(classes)]
    total = sum(weights)

    def class_of(purpose: str, n: int) -> str:
        left = draws.uniform(seed, purpose, 0, n) * total
        for rank, weight in enumerate(weights):
            left -= weight
            if left < 0:
                return f"class-{rank}"
        return f"class-{classes - 1}"

    gap_us = round(1_000_000 / settings.rate_per_s)
    span_us = settings.publications * gap_us
    parsed: dict[str, Filter] = {}
    subscriptions: list[Interest] = []
    for n in range(settings.subscriptions):
        share = min(1.0, 2 * selectivity * draws.uniform(seed, "generate.width", 0, n))
        width = max(1, round(1000 * share))
        low = draws.below(1000 - width + 1, seed, "generate.low", 0, n)
        kind = class_of("generate.subscription", n)
        text = f"class = '{kind}' AND value >= {low} AND value < {low + width}"
        filter = parsed.get(text) or parsed.setdefault(text, parse(text))
        broker = draws.below(brokers, seed, "generate.subscriber", 0, n)
        if draws.uniform(seed, "generate.churn", 0, n) < churn:
            leave = draws.below(span_us + 1, seed, "generate.leave", 0, n)
            back = leave + draws.below(span_us - leave + 1, seed, "generate.back", 0, n)
            subscriptions.append(Interest(f"s{n}", broker, f"c{n}", filter, None, leave))
            subscriptions.append(Interest(f"s{n}+", broker, f"c{n}", filter, back))
        else:
            subscriptions.append(Interest(f"s{n}", broker, f"c{n}", filter))
    homes = [draws.below(brokers, seed, "generate.publisher", 0, n) for n in range(publishers)]
    kinds = [class_of("generate.publisher_class", n) for n in range(publishers)]
    postings: list[Posting] = []
    for n in range(settings.publications):
        publisher = draws.below(publishers, seed, "generate.posting", 0, n)
        value = draws.below(1000, seed, "generate.value", 0, n)
        attributes: dict[str, Scalar] = {"class": kinds[publisher], "value": value}
        postings.append(Posting(n * gap_us, homes[publisher], f"p{publisher}", str(n), attributes))
    advertisements = derived_advertisements(tuple(postings))
    return Workload(tuple(subscriptions), advertisements, tuple(postings))
