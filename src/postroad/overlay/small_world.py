"""Small-world rings as data: who stands where on the ring, and each position's fingers.

A position is a node's identifier on the ring, 0 to n-1, read clockwise. Node at position p has
one clockwise finger per phase i, somewhere in [p + 2^i, p + 2^(i+1)): Property 1 of BeaConvey
(Chen, Tock, Girdzijauskas). There are ⌊log2 n⌋ phases; phase 0 is the next position, so the
fingers of phase 0 are the ring. Links are undirected: a node knows whom it points to and who
points to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from postroad import draws
from postroad.errors import InputError
from postroad.overlay import IntArray, Overlay


@dataclass(frozen=True, eq=False)
class SmallWorld:
    """`order[p]` is the node at position p; `fingers[p, i]` the position of its i-th finger."""

    order: IntArray
    fingers: IntArray

    @property
    def nodes_count(self) -> int:
        return len(self.order)

    @cached_property
    def position(self) -> IntArray:
        """The position of each node."""
        return np.argsort(self.order)

    @cached_property
    def edges(self) -> IntArray:
        """Every link once, as positions (a, b) with a < b, in ascending order."""
        count, phases = self.fingers.shape
        near = np.repeat(np.arange(count), phases)
        far = self.fingers.reshape(-1)
        keys = distinct(np.minimum(near, far) * count + np.maximum(near, far))
        return np.stack([keys // max(1, count), keys % max(1, count)], axis=1)

    @cached_property
    def peers(self) -> tuple[IntArray, IntArray]:
        """Neighbours in both directions: those of p are `peers[start[p]:start[p + 1]]`."""
        near = np.concatenate([self.edges[:, 0], self.edges[:, 1]])
        far = np.concatenate([self.edges[:, 1], self.edges[:, 0]])
        by_near = np.lexsort((far, near))
        start = np.zeros(self.nodes_count + 1, np.int64)
        np.cumsum(np.bincount(near, minlength=self.nodes_count), out=start[1:])
        return start, far[by_near]

    def has_property_1(self) -> bool:
        """Whether each position has a finger in each of its phases."""
        count = self.nodes_count
        nodes, phases = self.fingers.shape
        if nodes != count or phases not in (phases_count(count), phases_count(count, True)):
            return False
        away = (self.fingers - np.arange(count)[:, None]) % max(1, count)
        low = 1 << np.arange(phases)
        return bool(((away >= low) & (away < 2 * low)).all())


@dataclass(frozen=True, eq=False)
class Ring(Overlay):
    """A small world as an overlay of brokers."""

    world: SmallWorld = field(kw_only=True)


def as_overlay(world: SmallWorld, names: Sequence[str], latency_us: int) -> Ring:
    ends = world.order[world.edges]
    latency = np.full(len(ends), latency_us, np.int64)
    return Ring(tuple(names), ends, latency, world=world)


def save(ring: Ring, path: Path, facts: Mapping[str, Any]) -> None:
    """Write a ring as JSON: what is known of it, then the nodes in ring order and their fingers."""
    world = ring.world
    document = {
        **facts,
        "nodes": [ring.names[node] for node in world.order.tolist()],
        "fingers": world.fingers.tolist(),
    }
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(json.dumps(document), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise InputError(
            f"cannot write {str(path)!r}: {error.strerror}", remedy="choose another file"
        ) from None


def load(path: Path, latency_us: int) -> Ring:
    """Read what `save` wrote. Brokers are numbered as they stand on the ring."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        names = [str(name) for name in document["nodes"]]
        fingers = np.array(document["fingers"], np.int64).reshape(len(names), -1)
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror}", remedy="check the file's name"
        ) from None
    except (KeyError, TypeError, ValueError, RecursionError):
        raise InputError(
            "not an overlay", where=str(path), remedy="make it with postroad plan swico"
        ) from None
    world = SmallWorld(np.arange(len(names)), fingers)
    if not world.has_property_1() or len(set(names)) != len(names) or not names:
        raise InputError(
            "not a small world: each node needs a name of its own and a finger in each phase",
            where=str(path),
            remedy="make it with postroad plan swico",
        )
    return as_overlay(world, names, latency_us)


def distinct(values: IntArray) -> IntArray:
    """Ascending, each once. `np.unique` hashes: for ten million it takes 25 times as long."""
    return once_each(np.sort(values))


def once_each(values: IntArray) -> IntArray:
    """Of values in order, each once."""
    first = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return values[first]


def phases_count(nodes: int, begun: bool = False) -> int:
    """⌊log2 n⌋: as many phases as fit around the ring; or with the one that only begins on it."""
    return max(0, (nodes - 1).bit_length() if begun else nodes.bit_length() - 1)


def random_ring(nodes: int, seed: int) -> IntArray:
    """RandomS: every order of the nodes is as likely."""
    return ranked(nodes, seed, "small_world.ring")


def chord(nodes: int, begun: bool = False) -> IntArray:
    """Chord's fingers: the first position of each phase, also of the one that does not fit."""
    steps = 1 << np.arange(phases_count(nodes, begun))
    return (np.arange(nodes)[:, None] + steps) % max(1, nodes)


def random_fingers(nodes: int, seed: int) -> IntArray:
    """RandomL: any position of each phase is as likely."""
    fingers = np.zeros((nodes, phases_count(nodes)), np.int64)
    for phase in range(fingers.shape[1]):
        words = draws.bits_of_nodes(nodes, seed, "small_world.finger", phase)
        words %= np.uint64(1 << phase)
        fingers[:, phase] = (np.arange(nodes) + (1 << phase) + words.astype(np.int64)) % nodes
    return fingers


def ranked(count: int, seed: int, purpose: str) -> IntArray:
    """0 to count-1 in the order of their random bits."""
    return np.argsort(draws.bits_of_nodes(count, seed, purpose, 0), kind="stable")
