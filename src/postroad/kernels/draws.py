"""`postroad.draws` for compiled code: the same keys give the same bits.

What all draws of one seed and purpose share is computed once, by `base`; `node_keyed` is the
next step, for loops that vary only `n`.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from postroad import draws
from postroad.jit import njit

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(0xFFFFFFFF)
_UNIT = 1.0 / (1 << 53)


def base(seed: int, purpose: str) -> np.uint64:
    """What all draws of one seed and purpose share."""
    return np.uint64(draws.mix(draws.mix(seed & draws.MASK) ^ draws.purpose_key(purpose)))


@njit(cache=True, inline="always")
def mix(value):
    """Scramble 64 bits (the splitmix64 finaliser)."""
    value = uint64(value) + _GOLDEN
    value = (value ^ (value >> uint64(30))) * _FIRST
    value = (value ^ (value >> uint64(27))) * _SECOND
    return value ^ (value >> uint64(31))


@njit(cache=True, inline="always")
def node_keyed(start, node):
    """What all draws of one seed, purpose and node share."""
    return mix(uint64(start) ^ uint64(node))


@njit(cache=True, inline="always")
def bits(start, node, n):
    """64 random bits for this key."""
    return mix(node_keyed(start, node) ^ uint64(n))


@njit(cache=True, inline="always")
def to_uniform(word):
    """64 random bits as a float in [0, 1) with 53 of them."""
    return np.float64(word >> uint64(11)) * _UNIT


@njit(cache=True)
def uniform(start, node, n):
    return to_uniform(bits(start, node, n))


@njit(cache=True)
def below(bound, start, node, n):
    """An integer in [0, bound): the high half of bits times bound, for bound < 2^32."""
    word = bits(start, node, n)
    count = uint64(bound)
    low = (word & _HALF) * count
    high = (word >> uint64(32)) * count
    return np.int64((high + (low >> uint64(32))) >> uint64(32))


@njit(cache=True)
def uniforms(start, count, n):
    """`uniform` for the nodes 0 to count, as an array."""
    values = np.empty(count, np.float64)
    for node in range(count):
        values[node] = uniform(start, node, n)
    return values
