"""What the closed form knows beyond the paper, held against the compiled kernel.

One random tree on which every broker has its own probabilities; per round one filter is
subscribed to and published to under each scheme. The exact expectation of each scheme must
agree with the mean over the rounds, in total and broker by broker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from postroad import draws
from postroad.cost import exact, forwarding, shapes, variants
from postroad.cost.exact import Crossings
from postroad.cost.variants import PerBroker
from postroad.kernels import flooding
from postroad.kernels.counters import Counters
from postroad.kernels.draws import base, uniforms
from postroad.kernels.subscription_forwarding import SENT, FilterState
from postroad.overlay import rooted, trees
from postroad.overlay.rooted import FloatArray, Rooted

BROKERS = 300


@dataclass(frozen=True)
class Check:
    """Expected and simulated messages per round; errors in percent."""

    scheme: str
    expected: float
    simulated: float
    standard_error: float
    load_error_max: float

    @property
    def error(self) -> float:
        return 100 * (self.expected - self.simulated) / self.simulated

    @property
    def agrees(self) -> bool:
        """Within four standard errors: by chance less than one in ten thousand fails."""
        return abs(self.expected - self.simulated) <= 4 * self.standard_error + 1e-9


@dataclass(frozen=True, eq=False)
class Chances:
    """Every broker's own probabilities, in breadth-first numbers."""

    sigma: FloatArray
    mu: FloatArray
    gamma: FloatArray
    advertise: FloatArray
    publisher: FloatArray


def chances_of(tree: Rooted, seed: int) -> Chances:
    """Skewed on purpose: cubes of uniform draws; one broker in ten publishes and advertises."""
    skew = {name: _draw(tree, seed, f"beyond.{name}", 0) ** 3 for name in ("σ", "μ", "γ", "α", "π")}
    publishes = np.arange(tree.brokers_count) % 10 == 3
    weights = np.where(publishes, skew["π"] + 0.01, 0.0)
    return Chances(
        sigma=0.2 * skew["σ"],
        mu=0.4 * skew["μ"],
        gamma=0.02 * skew["γ"],
        advertise=np.where(publishes, 1.0, 0.05 * skew["α"]),
        publisher=weights / weights.sum(),
    )


def checks(rounds: int, seed: int = 1) -> list[Check]:
    """Each scheme's exact expectation beside `rounds` simulated filters."""
    tree = rooted.from_overlay(trees.random_tree(BROKERS, seed))
    chances = chances_of(tree, seed)
    expected = {
        "subscription forwarding: subscriptions": exact.subscription_forwarding(
            tree, chances.sigma
        ),
        "subscription forwarding: publications": exact.publications(
            tree, chances.mu, chances.publisher
        ),
        "event forwarding: publications": exact.flooding(tree, chances.publisher),
        "advertisements: advertisements": exact.advertisements(tree, chances.advertise),
        "advertisements: subscriptions": exact.advertised_subscriptions(
            tree, chances.mu, chances.advertise
        ),
        "advertisements: publications": exact.publications(tree, chances.mu, chances.publisher),
        "hierarchical: subscriptions": exact.hierarchical_subscriptions(tree, chances.mu),
        "hierarchical: publications": exact.hierarchical_publications(
            tree, chances.mu, chances.publisher
        ),
        "covering: subscriptions": exact.covered_subscriptions(tree, chances.sigma, chances.gamma),
    }
    tallies = {name: _Tally(tree) for name in expected}
    for number in range(rounds):
        for name, counters in _round(tree, chances, seed, number).items():
            tallies[name].add(counters)
    return [tallies[name].check(name, model) for name, model in expected.items()]


def validated(
    tree: Rooted, scheme: str, sigma: Any, mu: Any, brokers: PerBroker, rounds: int, seed: int = 1
) -> list[Check]:
    """One variant of `cost/variants.py` beside so many simulated filters and publications."""
    count = tree.brokers_count

    def each(value: Any) -> FloatArray:
        return np.array(np.broadcast_to(value, count), float)

    chances = Chances(
        sigma=each(sigma),
        mu=each(mu),
        gamma=each(brokers.gamma),
        advertise=each(brokers.advertise),
        publisher=each(1 / count) if brokers.publisher is None else brokers.publisher,
    )
    expected = {
        "subscriptions": variants.subscriptions(tree, scheme, chances.sigma, brokers),
        "publications": variants.publications(tree, scheme, chances.mu, brokers),
    }
    tallies = {name: _Tally(tree) for name in expected}
    for number in range(rounds):
        for name, counters in _variant_round(tree, scheme, chances, seed, number).items():
            tallies[name].add(counters)
    return [tallies[name].check(name, model) for name, model in expected.items()]


def _variant_round(
    tree: Rooted, scheme: str, chances: Chances, seed: int, number: int
) -> dict[str, Counters]:
    """A filter that brokers want by σ, and a publication wanted by μ."""
    asked = FilterState(tree)
    wanted = FilterState(tree)
    everywhere = np.ones(tree.brokers_count, dtype=bool)
    if scheme == "hierarchical":
        for state in (asked, wanted):
            state.bar(up=~everywhere, down=everywhere)
    elif scheme == "covering":
        wide = FilterState(tree)
        wide.subscribe(_members(tree, "gamma", chances.gamma, seed, number))
        asked.bar(up=wide.up == SENT, down=wide.down == SENT)
    elif scheme == "advertisement_forwarding":
        announced = FilterState(tree)
        announced.subscribe(_members(tree, "advertise", chances.advertise, seed, number))
        asked.bar(up=announced.down != SENT, down=announced.up != SENT)
    asked.subscribe(_members(tree, "sigma", chances.sigma, seed, number))
    wanted.subscribe(_members(tree, "mu", chances.mu, seed, number))
    wanted.publish([_publisher(chances, seed, number)], always_up=scheme == "hierarchical")
    return {"subscriptions": asked.subscriptions, "publications": wanted.publications}


def _members(tree: Rooted, kind: str, chance: FloatArray, seed: int, number: int) -> Any:
    """The brokers that are chosen, in random order."""
    chosen = np.flatnonzero(_draw(tree, seed, f"beyond.{kind}.member", number) < chance)
    order = np.argsort(_draw(tree, seed, f"beyond.{kind}.order", number)[chosen])
    return chosen[order]


def _publisher(chances: Chances, seed: int, number: int) -> int:
    draw = draws.uniform(seed, "beyond.publisher", number, 0)
    place = int(np.searchsorted(np.cumsum(chances.publisher), draw, side="right"))
    return min(place, len(chances.publisher) - 1)


def _round(tree: Rooted, chances: Chances, seed: int, number: int) -> dict[str, Counters]:
    """One filter under every scheme."""

    def members(kind: str, chance: FloatArray) -> Any:
        return _members(tree, kind, chance, seed, number)

    publisher = [_publisher(chances, seed, number)]
    receivers = members("mu", chances.mu)

    plain = FilterState(tree)
    plain.subscribe(members("sigma", chances.sigma))
    wanted = FilterState(tree)
    wanted.subscribe(receivers)
    wanted.publish(publisher)

    announced = FilterState(tree)
    announced.subscribe(members("advertise", chances.advertise))
    asked = FilterState(tree)
    asked.bar(up=announced.down != SENT, down=announced.up != SENT)
    asked.subscribe(receivers)
    asked.publish(publisher)

    upward = FilterState(tree)
    everywhere = np.ones(tree.brokers_count, dtype=bool)
    upward.bar(up=~everywhere, down=everywhere)
    upward.subscribe(receivers)
    upward.publish(publisher, always_up=True)

    wide = FilterState(tree)
    wide.subscribe(members("gamma", chances.gamma))
    narrow = FilterState(tree)
    narrow.bar(up=wide.up == SENT, down=wide.down == SENT)
    narrow.subscribe(members("sigma", chances.sigma))

    return {
        "subscription forwarding: subscriptions": plain.subscriptions,
        "subscription forwarding: publications": wanted.publications,
        "event forwarding: publications": flooding.publish(tree, publisher),
        "advertisements: advertisements": announced.subscriptions,
        "advertisements: subscriptions": asked.subscriptions,
        "advertisements: publications": asked.publications,
        "hierarchical: subscriptions": upward.subscriptions,
        "hierarchical: publications": upward.publications,
        "covering: subscriptions": narrow.subscriptions,
    }


class _Tally:
    """Totals of one scheme over the rounds."""

    def __init__(self, tree: Rooted) -> None:
        self.traffic: list[int] = []
        self.load = np.zeros(tree.brokers_count)

    def add(self, counters: Counters) -> None:
        self.traffic.append(counters.traffic)
        self.load += counters.load

    def check(self, scheme: str, model: Crossings) -> Check:
        rounds = len(self.traffic)
        load = self.load / rounds
        return Check(
            scheme,
            expected=model.traffic,
            simulated=float(np.mean(self.traffic)),
            standard_error=float(np.std(self.traffic, ddof=1) / math.sqrt(rounds)),
            load_error_max=float(100 * np.max(np.abs(model.load - load)) / np.max(load)),
        )


def _draw(tree: Rooted, seed: int, purpose: str, n: int) -> FloatArray:
    return np.asarray(uniforms(base(seed, purpose), tree.brokers_count, n))


@dataclass(frozen=True)
class Approximation:
    """L(p) by the paper and exactly, on a broker of one level of a full tree."""

    fanout: int
    height: int
    sigma: float
    level: int
    paper: float
    exact: float

    @property
    def error(self) -> float:
        return 100 * (self.paper - self.exact) / self.exact


@dataclass(frozen=True)
class ErrorTerms:
    """Why L(p) by (11) and (15) exceeds the exact expectation, in messages; they add up to it."""

    first: float  # a first subscriber, the broker itself with 1/n, though there may be none
    children: float  # a child is sent to if any other broker subscribes, also one behind it
    father: float  # likewise towards the father, if the first subscription came from a child

    @property
    def total(self) -> float:
        return self.first + self.children + self.father


def error_terms(fanout: int, height: int, sigma: float, level: int) -> ErrorTerms:
    """On a broker of an inner level of a full tree; all three vanish as nσ grows."""
    total = sum(fanout**i for i in range(height + 1))
    child = sum(fanout**i for i in range(height - level))
    own = child * fanout + 1  # the broker's own subtree
    nobody = 1.0 - sigma
    if level == 0:  # (11): f − 1 children, then the one that the first subscription came from
        children = (fanout - 1) * (nobody ** (total - child) - nobody ** (total - 1))
        inner = (fanout - 1) * (1 - nobody ** (total - 1)) + 1 - nobody ** (total - child)
        return ErrorTerms((fanout - inner) / total, children, 0.0)
    from_father = (total - own) / (total - 1)
    children = fanout * (nobody ** (total - child) - nobody ** (total - 1))
    father = (1 - from_father) * (nobody**own - nobody ** (total - child))
    exactly = fanout * (1 - nobody ** (total - child)) + 1 - nobody**own
    inner = exactly + children + father
    return ErrorTerms((fanout + 1 - inner) / total, children, father)


def approximations() -> list[Approximation]:
    """Where equations (11) and (15) differ from the exact expectation, and by how much."""
    errors = []
    for fanout, height, sigma in ((4, 7, 0.02), (4, 7, 0.001), (4, 4, 0.02), (2, 5, 0.02)):
        shape = shapes.full(fanout, height)
        paper = forwarding.subscription_load(shape, sigma).tolist()
        expected = forwarding.exact_subscription_load(shape, sigma).tolist()
        errors += [
            Approximation(fanout, height, sigma, level, by_paper, exactly)
            for level, (by_paper, exactly) in enumerate(zip(paper, expected, strict=True))
        ]
    return errors
