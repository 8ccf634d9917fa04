"""What a window's publications would have cost otherwise: another scheme, place or link.

Of each publication the window tells where it was published, which brokers delivered it and how many
messages it took. Every scheme that needs no plan of the subscriptions is priced by its ways
(`kernels.ways`); places and links on trees by the subtrees that publications span (`cost.bounds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from postroad.cost import bounds, placement
from postroad.kernels.ways import TREES, Ways, each
from postroad.overlay import IntArray, Overlay
from postroad.routing import SCHEMES
from postroad.routing.base import Interests

LATENCY_US = 1000
"""Of every link: only messages are counted."""
FILTERING = (*TREES[1:], "fbr")
"""Schemes that send a publication over the links of its subtree and no others."""
ON_TREES = (*TREES, "unicast", "ideal_multicast", "fbr")
"""What can be priced on a tree without a plan of the subscriptions."""
LINKS_TRIED = 10
PUBLICATIONS_TRIED = 300
"""New links, and the publications that they are tried with."""


@dataclass(frozen=True)
class Alternative:
    """A change, and over the publications that it concerns: what they took, what it would have
    saved, and the squares of the single savings, added up."""

    action: str
    publisher: str | None
    now: str
    instead: str
    publications: int
    messages: int
    saving: float
    squares: float
    change_messages: int | None


@dataclass(frozen=True, eq=False)
class FollowedPublications:
    """Publications: which brokers want each, where it was published, by whom, and what it took."""

    wanted: bounds.Wanted
    source: IntArray
    publisher: IntArray
    publishers: list[str]
    messages: IntArray


def of_window(description: str, rows: pa.Table) -> Iterator[Alternative]:
    """All that can be told of a window, from the rows of its publications by broker."""
    network = _network(description)
    if network is None:
        return
    overlay = _overlay(network)
    followed = _followed_in(rows, {name: number for number, name in enumerate(overlay.names)})
    if followed is None:
        return
    if len(overlay.ends) == overlay.brokers_count - 1:  # redundant links: which tree is not known
        yield from _schemes(network, followed)
        if network.scheme in FILTERING:
            yield from _links(overlay, followed)
            if network.relocation is None:
                yield from _moves(network.scheme, overlay, followed)


class TracedNetwork(msgspec.Struct, frozen=True):
    """What is needed of the description in a `start` row."""

    scheme: str
    brokers: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    relocation: str | None = None


@lru_cache(maxsize=16)
def _network(description: str) -> TracedNetwork | None:
    try:
        return msgspec.json.decode(description, type=TracedNetwork)
    except msgspec.DecodeError:
        return None  # of a schema that is not known


@lru_cache(maxsize=16)
def _overlay(network: TracedNetwork) -> Overlay:
    number = {name: broker for broker, name in enumerate(network.brokers)}
    ends = np.array(
        [(number[a], number[b]) for a, b in network.links if a in number and b in number], np.int64
    ).reshape(-1, 2)
    return Overlay(network.brokers, ends, np.full(len(ends), LATENCY_US, np.int64))


@lru_cache(maxsize=64)
def _ways(network: TracedNetwork, scheme: str) -> Ways:
    return Ways(scheme, _overlay(network), Interests([], [], []), None, 0)


def _followed_in(rows: pa.Table, number: Mapping[str, int]) -> FollowedPublications | None:
    """The publications whose beginning is known, at brokers that are in the network."""
    homes: dict[tuple[str, str], int] = {}
    sends: dict[tuple[str, str], int] = {}
    wanting: list[tuple[tuple[str, str], int]] = []
    names = ("publisher", "publication", "broker", "publications", "deliveries", "sends")
    for publisher, name, broker, published, delivered, sent in zip(
        *(rows[column].to_pylist() for column in names), strict=True
    ):
        key = (publisher, name)
        if broker is None:
            sends[key] = sends.get(key, 0) + sent
            continue
        place = number.get(broker)
        if place is None:
            return None
        if published:
            homes[key] = place
        if delivered:
            wanting.append((key, place))
    if not homes:
        return None
    order = {key: n for n, key in enumerate(sorted(homes))}
    wanted = np.zeros((len(number), len(order)), bool)
    for key, place in wanting:
        if key in order:
            wanted[place, order[key]] = True
    publishers = sorted({publisher for publisher, _ in order})
    code = {publisher: n for n, publisher in enumerate(publishers)}
    return FollowedPublications(
        wanted,
        np.array([homes[key] for key in order], np.int64),
        np.array([code[publisher] for publisher, _ in order], np.int64),
        publishers,
        np.array([sends.get(key, 0) for key in order], np.int64),
    )


def _schemes(network: TracedNetwork, followed: FollowedPublications) -> Iterator[Alternative]:
    """Every scheme, the network's own too: what it saves shows how far the price is off."""
    for scheme in ON_TREES:
        then = np.zeros_like(followed.messages)
        for source in np.unique(followed.source):
            some = np.flatnonzero(followed.source == source)
            # Column by column: the brokers that want each publication, one after another.
            wanting = np.nonzero(followed.wanted[:, some].T)[1]
            ends = np.cumsum(followed.wanted[:, some].sum(axis=0))
            way = _ways(network, scheme).way(int(source), "")
            then[some] = each(way, ends, wanting.astype(np.int64))
        yield _alternative("switch", None, network.scheme, scheme, followed.messages, then, None)


def _moves(scheme: str, overlay: Overlay, followed: FollowedPublications) -> Iterator[Alternative]:
    """The best broker of every publisher that publishes at one; its own if none is better."""
    apart = bounds.on_tree(overlay, followed.wanted).apart
    announced = 2 * (overlay.brokers_count - 1) if SCHEMES[scheme].advertisements else 0
    for number, publisher in enumerate(followed.publishers):
        mine = np.flatnonzero(followed.publisher == number)
        home = followed.source[mine[0]]
        if (followed.source[mine] != home).any():
            continue
        costs = apart[:, mine].sum(axis=1)
        there = int(home if costs[home] == costs.min() else costs.argmin())
        took = followed.messages[mine]
        yield _alternative(
            "move", publisher, overlay.names[home], overlay.names[there],
            took, took - apart[home, mine] + apart[there, mine], announced,
        )  # fmt: skip


def _links(overlay: Overlay, followed: FollowedPublications) -> Iterator[Alternative]:
    """The best other link, tried with some of the publications and priced with all."""
    some = slice(None, None, 1 + len(followed.source) // PUBLICATIONS_TRIED)
    tried = placement.replacements(
        overlay, followed.wanted[:, some], followed.source[some], LINKS_TRIED
    )
    then, old, new = followed.messages, "none", "none"
    for one in tried[:1]:
        before, after = (
            bounds.on_tree(tree, followed.wanted).messages(followed.source)
            for tree in (overlay, placement.replaced(overlay, one.old, one.new))
        )
        then = followed.messages - before + after
        old, new = ("-".join(sorted(overlay.names[end] for end in ends))
                    for ends in (one.old, one.new))  # fmt: skip
    yield _alternative("link", None, old, new, followed.messages, then, None)


def _alternative(
    action: str,
    publisher: str | None,
    now: str,
    instead: str,
    messages: IntArray,
    then: IntArray,
    change_messages: int | None,
) -> Alternative:
    saved: Any = (messages - then).astype(np.float64)
    return Alternative(
        action, publisher, now, instead, len(messages), int(messages.sum()), float(saved.sum()),
        float((saved * saved).sum()), change_messages,
    )  # fmt: skip
