"""The neighbours of subscription forwarding, in closed form: covering, hierarchical forwarding and
advertisements, each also with probabilities of every broker's own.

All are exact expectations (`cost/exact.py`), so they need the tree itself, not only its shape.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from postroad.cost import exact
from postroad.cost.estimate import Chances
from postroad.cost.exact import Crossings
from postroad.errors import InputError
from postroad.overlay.rooted import FloatArray, Rooted

VARIANTS = ("subscription_forwarding", "covering", "hierarchical", "advertisement_forwarding")
COLUMNS = ("sigma", "mu", "gamma", "advertise", "publisher")


@dataclass(frozen=True, eq=False)
class PerBroker:
    """What each broker does, in the tree's breadth-first numbers; None where all do the same."""

    sigma: FloatArray | None = None
    mu: FloatArray | None = None
    gamma: float | FloatArray = 0.0  # holds a wider subscription already
    advertise: float | FloatArray = 1.0
    publisher: FloatArray | None = None  # share of the publications


@dataclass(frozen=True)
class VariantEstimate:
    """What a workload costs under one scheme. Loads are messages sent over the whole workload."""

    scheme: str
    brokers: int
    subscription_traffic_per_pattern: float
    publication_traffic_per_publication: float
    other_traffic: float  # of advertisements, or of the wider subscriptions that cover
    total: float
    total_event_forwarding: float
    breakeven_ratio: float | None  # of patterns to publications; None: always cheaper
    load: list[dict[str, Any]] = field(default_factory=list)


def subscriptions(tree: Rooted, scheme: str, sigma: Any, brokers: PerBroker) -> Crossings:
    """The messages of one pattern's subscriptions."""
    if scheme == "covering":
        return exact.covered_subscriptions(tree, sigma, brokers.gamma)
    if scheme == "hierarchical":
        return exact.hierarchical_subscriptions(tree, sigma)
    if scheme == "advertisement_forwarding":
        return exact.advertised_subscriptions(tree, sigma, brokers.advertise)
    return exact.subscription_forwarding(tree, sigma)


def publications(tree: Rooted, scheme: str, mu: Any, brokers: PerBroker) -> Crossings:
    """Those of one publication."""
    if scheme == "hierarchical":
        return exact.hierarchical_publications(tree, mu, brokers.publisher)
    return exact.publications(tree, mu, brokers.publisher)


def others(tree: Rooted, scheme: str, brokers: PerBroker) -> float:
    """What is sent besides, once for each pattern: advertisements, or wider subscriptions."""
    if scheme == "advertisement_forwarding":
        return exact.flooded_advertisements(tree, brokers.advertise).traffic
    if scheme == "covering":
        return exact.subscription_forwarding(tree, brokers.gamma).traffic
    return 0.0


def of_tree(
    tree: Rooted, scheme: str, patterns: Chances, issued: Chances, brokers: PerBroker
) -> VariantEstimate:
    """The whole answer; the brokers' own σ and μ, where given, are those of every pattern."""

    def summed(
        chances: Chances, own: FloatArray | None, cost: Callable[..., Crossings]
    ) -> tuple[float, FloatArray]:
        if own is not None:
            crossings = cost(tree, scheme, own, brokers)
            return chances.total * crossings.traffic, chances.total * crossings.load
        traffic, load = 0.0, np.zeros(tree.brokers_count)
        for chance, count in zip(chances.values.tolist(), chances.counts.tolist(), strict=True):
            crossings = cost(tree, scheme, chance, brokers)
            traffic += count * crossings.traffic
            load += count * crossings.load
        return traffic, load

    asked, asked_load = summed(patterns, brokers.sigma, subscriptions)
    sent, sent_load = summed(issued, brokers.mu, publications)
    load = [
        {
            "level": level,
            "nodes": end - begin,
            "subscriptions": float(np.mean(asked_load[begin:end])),
            "publications": float(np.mean(sent_load[begin:end])),
            "subscriptions_max": float(np.max(asked_load[begin:end])),
            "publications_max": float(np.max(sent_load[begin:end])),
        }
        for level, (begin, end) in enumerate(pairwise(tree.level_starts))
    ]
    besides = others(tree, scheme, brokers)
    return summed_up(scheme, tree.brokers_count, patterns, issued, asked, sent, besides, load)


def summed_up(
    scheme: str,
    brokers: float,
    patterns: Chances,
    issued: Chances,
    asked: float,
    sent: float,
    besides: float,
    load: Sequence[dict[str, Any]] = (),
) -> VariantEstimate:
    """From all messages of subscriptions and publications, and what each pattern costs besides."""
    others_sent = patterns.total * besides
    per_pattern = (asked + others_sent) / max(patterns.total, 1.0)
    per_publication = sent / max(issued.total, 1.0)
    saved = brokers - 1 - per_publication
    return VariantEstimate(
        scheme=scheme,
        brokers=round(brokers),
        subscription_traffic_per_pattern=asked / max(patterns.total, 1.0),
        publication_traffic_per_publication=per_publication,
        other_traffic=others_sent,
        total=asked + others_sent + sent,
        total_event_forwarding=issued.total * (brokers - 1),
        breakeven_ratio=saved / per_pattern if per_pattern else None,
        load=list(load),
    )


def read(path: Path, names: list[str]) -> PerBroker:
    """A CSV file with `broker` and any of sigma, mu, gamma, advertise, publisher."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror}", remedy="check the file's name"
        ) from None
    given = [name for name in (rows[0] if rows else {}) if name != "broker"]
    unknown = [name for name in given if name not in COLUMNS]
    if not rows or "broker" not in rows[0] or unknown:
        raise InputError(
            f"columns {', '.join(rows[0]) if rows else 'none'}",
            where=str(path),
            remedy=f"give broker and any of {', '.join(COLUMNS)}",
        )
    place = {name: number for number, name in enumerate(names)}
    values = {name: np.full(len(names), np.nan) for name in given}
    for line, row in enumerate(rows, 2):
        if row["broker"] not in place:
            raise InputError(
                f"no broker {row['broker']!r}",
                where=f"{path}:{line}",
                remedy="name one of the tree",
            )
        for name in given:
            try:
                values[name][place[row["broker"]]] = float(row[name])
            except (TypeError, ValueError):
                raise InputError(
                    f"{name} is {row[name]!r}", where=f"{path}:{line}", remedy="give a number"
                ) from None
    for name, column in values.items():
        missing = np.flatnonzero(np.isnan(column))
        if len(missing):
            raise InputError(
                f"no {name} for broker {names[missing[0]]!r}",
                where=str(path),
                remedy="give a row for every broker of the tree",
            )
    if "publisher" in values and values["publisher"].sum() > 0:
        values["publisher"] = values["publisher"] / values["publisher"].sum()
    return PerBroker(**values)
