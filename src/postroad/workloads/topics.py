"""BeaConvey's topic workloads (section 5.2): Zipf, Unif and Expo popularity, and interests by it.

The paper gives Zipf's exponent, 2.0, and no rate for Expo: here popularity halves every tenth of
the topics, wherever Expo is named.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from postroad import draws
from postroad.overlay import IntArray
from postroad.planning.swico import TopicInterests, from_pairs

Weights = npt.NDArray[np.float64]
_MANY = 20_000  # topics, from which on drawing one after the other is quicker
_AT_ONCE = 20_000  # nodes


def zipf(count: int, exponent: float) -> Weights:
    """Weights proportional to rank^-exponent."""
    return np.arange(1, count + 1, dtype=np.float64) ** -exponent


def popularity(kind: str, topics: int, exponent: float = 2.0) -> Weights:
    """How popular each topic is, the most popular first."""
    match kind:
        case "zipf":
            return zipf(topics, exponent)
        case "expo":
            return np.asarray(0.5 ** (10 * np.arange(topics) / topics))
        case _:
            assert kind == "unif", kind
            return np.ones(topics)


def synthetic(
    kind: str, nodes: int, topics: int, each: int, seed: int, alpha: float = 2.0
) -> TopicInterests:
    """Each node is interested in `each` topics, drawn by popularity without replacement."""
    weights, everything = popularity(kind, topics, alpha), np.arange(topics)
    chance = np.random.default_rng(draws.bits(seed, f"interests.{kind}", nodes, topics))
    chosen = np.empty((nodes, each), np.int64)
    if topics > _MANY:
        cumulative = np.cumsum(weights)
        cumulative /= cumulative[-1]  # which no draw exceeds
        for first in range(0, nodes, _AT_ONCE):
            _draw_distinct(chosen[first : first + _AT_ONCE], cumulative, chance)
    else:
        # The `each` least of exponential variates with these rates are such a draw.
        for node in range(nodes):
            keys = chance.exponential(size=topics) / weights
            chosen[node] = np.argpartition(keys, each - 1)[:each] if each < topics else everything
    return from_pairs(np.repeat(np.arange(nodes), each), chosen.reshape(-1), nodes, topics)


def _draw_distinct(chosen: IntArray, cumulative: Weights, chance: np.random.Generator) -> None:
    """Fill each row with the first different topics of a sequence of draws by popularity."""
    each = chosen.shape[1]
    short = np.arange(len(chosen))
    drawn = np.empty((len(chosen), 0), np.int64)
    while len(short):
        more = np.searchsorted(
            cumulative, chance.random((len(short), max(2 * each, drawn.shape[1])))
        )
        drawn = np.concatenate([drawn, more], axis=1)
        by_topic = np.argsort(drawn, axis=1, kind="stable")
        ordered = np.take_along_axis(drawn, by_topic, axis=1)
        first = np.ones(drawn.shape, bool)
        np.put_along_axis(first, by_topic[:, 1:], ordered[:, 1:] != ordered[:, :-1], axis=1)
        number = first.cumsum(axis=1)
        done = number[:, -1] >= each
        taken = first & (number <= each)
        chosen[short[done]] = drawn[done][taken[done]].reshape(-1, each)
        short, drawn = short[~done], drawn[~done]
