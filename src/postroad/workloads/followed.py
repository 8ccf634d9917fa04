"""Quotes whose publishers have many more subscribers than others, as people have.

Each publisher quotes one symbol; how subscriptions are spread over symbols follows the follower
counts of a social network, or Zipf's law. A subscription asks for its symbol, at or above one of a
few prices. The counts themselves are here too, for whoever spreads subscriptions likewise.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from postroad import draws
from postroad.errors import InputError
from postroad.filters import Filter, parse
from postroad.model import Scalar
from postroad.settings.sections import above, at_least
from postroad.workloads.model import Interest, Posting, Workload

PRICES = 1000
USERS = 200  # of whom `shipped_followers` knows


@dataclass(frozen=True)
class Followed:
    """Settings of `[workload.followed]`; with `skew`, Zipf's law with that exponent."""

    subscriptions: int
    publications: int
    publishers: int = 200
    prices: int = 4
    skew: float | None = None
    rate_per_s: float = 100.0

    def __post_init__(self) -> None:
        at_least(self, 0, "subscriptions", "publications", "skew")
        at_least(self, 1, "publishers", "prices")
        above(self, 0, "rate_per_s")
        if self.skew is None and self.publishers > USERS:
            raise InputError(
                f"publishers is {self.publishers}",
                remedy=f"give at most {USERS}, or a skew for Zipf's law",
            )


def shipped_followers() -> list[int]:
    """How many follow each of the 200 most followed users of a social network."""
    return [int(row["followers"]) for row in _shipped("followers.csv")]


def follower_quantiles() -> dict[str, list[float]]:
    """How many follow a random user of that network: shares of users, followers."""
    rows = _shipped("follower_quantiles.csv")
    return {name: [float(row[name]) for row in rows] for name in ("share", "followers")}


def followers_of(publishers: int) -> npt.NDArray[np.float64]:
    """How many follow each of so many users, spread over the quantiles, the most followed first."""
    quantiles, middles = follower_quantiles(), (np.arange(publishers) + 0.5) / publishers
    return np.asarray(np.interp(middles, quantiles["share"], quantiles["followers"]))[::-1]


def _shipped(name: str) -> list[dict[str, str]]:
    text = files("postroad.workloads").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def workload(settings: Followed, brokers: int, seed: int) -> Workload:
    """Quotes and those who follow them; all draws keyed by seed."""
    if settings.skew is None:
        weights = [float(count) for count in shipped_followers()[: settings.publishers]]
    else:
        weights = [1.0 / (rank + 1) ** settings.skew for rank in range(settings.publishers)]
    sums = list(accumulate(weights))
    parsed: dict[tuple[int, int], Filter] = {}
    subscriptions = []
    for n in range(settings.subscriptions):
        symbol = bisect_right(sums, draws.uniform(seed, "followed.symbol", 0, n) * sums[-1])
        level = draws.below(settings.prices, seed, "followed.price", 0, n)
        filter = parsed.get((symbol, level))
        if filter is None:
            text = _symbol(symbol)
            if level:
                text += f" AND price >= {PRICES * level // settings.prices}"
            filter = parsed[symbol, level] = parse(text)
        broker = draws.below(brokers, seed, "followed.subscriber", 0, n)
        subscriptions.append(Interest(f"s{n}", broker, f"c{n}", filter))
    publishers = range(settings.publishers)
    homes = [draws.below(brokers, seed, "followed.publisher", 0, n) for n in publishers]
    advertisements = tuple(
        Interest(f"a{n}", home, f"p{n}", parse(_symbol(n))) for n, home in enumerate(homes)
    )
    gap_us = round(1_000_000 / settings.rate_per_s)
    postings = []
    for n in range(settings.publications):
        publisher = draws.below(settings.publishers, seed, "followed.posting", 0, n)
        attributes: dict[str, Scalar] = {
            "class": "quote",
            "symbol": f"S{publisher}",
            "price": draws.below(PRICES, seed, "followed.value", 0, n),
        }
        postings.append(Posting(n * gap_us, homes[publisher], f"p{publisher}", str(n), attributes))
    return Workload(tuple(subscriptions), advertisements, tuple(postings))


def _symbol(number: int) -> str:
    return f"class = 'quote' AND symbol = 'S{number}'"
