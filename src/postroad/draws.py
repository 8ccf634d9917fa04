"""Keyed randomness: every draw is a pure function of (seed, purpose, node, n).

No generator is carried around, so a draw does not depend on what was drawn before it, and
compiled kernels compute bit-identical values (`mix` is plain 64-bit arithmetic, after the
splitmix64 finaliser). Purposes are words; `purpose_key` turns one into its 64-bit key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15


def mix(value: int) -> int:
    """Scramble 64 bits (the splitmix64 finaliser)."""
    value = (value + _GOLDEN) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def purpose_key(purpose: str) -> int:
    """The 64-bit key of a purpose (FNV-1a of its UTF-8 bytes)."""
    key = 0xCBF29CE484222325
    for byte in purpose.encode():
        key = ((key ^ byte) * 0x100000001B3) & MASK
    return key


def bits(seed: int, purpose: str, node: int, n: int) -> int:
    """64 random bits for this key."""
    return mix(mix(mix(mix(seed & MASK) ^ purpose_key(purpose)) ^ (node & MASK)) ^ (n & MASK))


def uniform(seed: int, purpose: str, node: int, n: int) -> float:
    """A float in [0, 1) with 53 random bits."""
    return (bits(seed, purpose, node, n) >> 11) * (1.0 / (1 << 53))


def below(bound: int, seed: int, purpose: str, node: int, n: int) -> int:
    """An integer in [0, bound), by the high half of a 128-bit product."""
    return (bits(seed, purpose, node, n) * bound) >> 64


def throughput(choices: Sequence[float], seed: int, broker: int) -> float:
    """What one broker serves in a second, of the rates that brokers may have."""
    return choices[below(len(choices), seed, "broker.throughput", broker, 0)]


def bits_of_nodes(count: int, seed: int, purpose: str, n: int) -> npt.NDArray[np.uint64]:
    """`bits` of the nodes 0 to count-1, as an array."""
    base = mix(mix(seed & MASK) ^ purpose_key(purpose))
    nodes = np.arange(count, dtype=np.uint64)
    return _mix_array(_mix_array(nodes ^ np.uint64(base)) ^ np.uint64(n & MASK))


def _mix_array(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """`mix` of each; numpy's integers wrap around by themselves."""
    value = value + np.uint64(_GOLDEN)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
