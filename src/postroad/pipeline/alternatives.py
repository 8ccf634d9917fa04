"""What a window's publications would have cost otherwise: another scheme, parameter, place or link.

Of each publication the window tells where it was published, what it says, which brokers delivered
it and how many messages it took. Schemes are priced by their ways (`kernels.ways`), as in
`pipeline cost`; places and links on trees by the subtrees that publications span (`cost.bounds`).
Schemes that plan by the subscriptions are priced if the traces tell all of these: if who was to get
each publication by them is, nearly always, who got it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from postroad.cost import bounds, placement
from postroad.errors import InputError
from postroad.filters import parse
from postroad.kernels.ways import RINGS, TREES, Ways, each
from postroad.matching import Index
from postroad.overlay import IntArray, Overlay
from postroad.overlay.latencies import between_all
from postroad.routing import SCHEMES
from postroad.routing.base import Interests

LATENCY_US = 1000
"""Of links whose latency is not told."""
FILTERING = (*TREES[1:], "fbr")
"""Schemes that send a publication over the links of its subtree and no others."""
ON_TREES = (*TREES, "unicast", "ideal_multicast", "fbr")
"""What can be priced on a tree without a plan of the subscriptions."""
PLANNED = ("kyra", "mbr", *RINGS)
"""What is planned by the subscriptions."""
MESH = "ideal_multicast"
"""The scheme that takes the shortest path over whatever links there are. (On trees a further link
is a spare one, which carries nothing.)"""
PARAMETERS = {"kyra": "clique_ms", "mbr": "groups"}
"""The parameter of a scheme that decides how many messages it takes,"""
FACTORS = (0.25, 0.5, 2, 4)
"""and times what it is tried."""
LINKS_TRIED = 10
PUBLICATIONS_TRIED = 300
"""New links, and the publications that they are tried with."""
EXPLAINED = 0.95
"""The share of publications that must have gone where the known subscriptions say."""


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
    """Publications: which brokers want each, where it was published, by whom, what it says and what
    it took."""

    wanted: bounds.Wanted
    source: IntArray
    publisher: IntArray
    publishers: list[str]
    contents: list[str | None]
    messages: IntArray


Subscriptions = tuple[tuple[str, str], ...]
"""Brokers and filters."""


def of_window(
    description: str, subscriptions: Subscriptions | None, rows: pa.Table
) -> Iterator[Alternative]:
    """All that can be told of a window, from the rows of its publications by broker."""
    network = _network(description)
    if network is None:
        return
    overlay = _overlay(network)
    followed = _followed_in(rows, {name: number for number, name in enumerate(overlay.names)})
    if followed is None:
        return
    is_tree = len(overlay.ends) == overlay.brokers_count - 1
    if is_tree or network.scheme == MESH:  # else it is not known which tree carries the traffic
        yield from _schemes(network, followed, ON_TREES if is_tree else ("unicast", MESH))
        if subscriptions is not None:
            yield from _planned_schemes(network, subscriptions, followed)
        if network.scheme == MESH:
            yield from _added_links(network, followed)
        if network.scheme in FILTERING:
            yield from _links(overlay, followed)
            if network.relocation is None:
                yield from _moves(network.scheme, overlay, followed)


class TracedNetwork(msgspec.Struct, frozen=True, eq=False):
    """What is needed of the description in a `start` row."""

    scheme: str
    brokers: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    relocation: str | None = None
    latency_us: tuple[int, ...] = ()
    seed: int = 0
    parameters: dict[str, Any] = {}


@lru_cache(maxsize=16)
def _network(description: str) -> TracedNetwork | None:
    try:
        return msgspec.json.decode(description, type=TracedNetwork)
    except msgspec.DecodeError:
        return None  # of a schema that is not known


@lru_cache(maxsize=16)
def _overlay(network: TracedNetwork) -> Overlay:
    number = {name: broker for broker, name in enumerate(network.brokers)}
    links = [(number[a], number[b]) for a, b in network.links if a in number and b in number]
    ends = np.array(links, np.int64).reshape(-1, 2)
    latency_us = np.full(len(ends), LATENCY_US, np.int64)
    if len(network.latency_us) == len(ends):
        latency_us[:] = network.latency_us
    return Overlay(network.brokers, ends, latency_us)


@lru_cache(maxsize=64)
def _ways(network: TracedNetwork, scheme: str) -> Ways:
    return Ways(scheme, _overlay(network), Interests([], [], []), None, 0)


def _followed_in(rows: pa.Table, number: Mapping[str, int]) -> FollowedPublications | None:
    """The publications whose beginning is known, at brokers that are in the network."""
    homes: dict[tuple[str, str], int] = {}
    contents: dict[tuple[str, str], str | None] = {}
    sends: dict[tuple[str, str], int] = {}
    wanting: list[tuple[tuple[str, str], int]] = []
    names = ("publisher", "publication", "broker", "publications", "deliveries", "sends", "detail")
    for publisher, name, broker, published, delivered, sent, content in zip(
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
            homes[key], contents[key] = place, content
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
        [contents[key] for key in order],
        np.array([sends.get(key, 0) for key in order], np.int64),
    )


def _schemes(
    network: TracedNetwork, followed: FollowedPublications, schemes: Sequence[str]
) -> Iterator[Alternative]:
    """Every scheme, the network's own too: what it saves shows how far the price is off."""
    for scheme in schemes:
        then = _priced(_ways(network, scheme), followed.source, followed.wanted)
        yield _alternative("switch", None, network.scheme, scheme, followed.messages, then, None)


def _priced(
    ways: Ways, source: IntArray, wanted: bounds.Wanted, contents: Sequence[Any] = ()
) -> IntArray:
    """The messages of each publication; `contents` are their attributes, if schemes read them."""
    then = np.zeros(len(source), np.int64)
    together: dict[tuple[int, str], list[int]] = {}
    for number, broker in enumerate(source.tolist()):
        key = "" if ways.key is None else ways.key(contents[number])
        together.setdefault((broker, key), []).append(number)
    for (broker, key), some in together.items():
        # Column by column: the brokers that want each publication, one after another.
        wanting = np.nonzero(wanted[:, some].T)[1]
        ends = np.cumsum(wanted[:, some].sum(axis=0))
        then[some] = each(ways.way(broker, key), ends, wanting.astype(np.int64))
    return then


def _planned_schemes(
    network: TracedNetwork, subscriptions: Subscriptions, followed: FollowedPublications
) -> Iterator[Alternative]:
    """Schemes that plan by the subscriptions, and the parameter of the network's own."""
    if any(content is None for content in followed.contents):
        return
    contents = [msgspec.json.decode(content or "") for content in followed.contents]
    wanted = _wanted_by(network, subscriptions, contents)
    told = (wanted == followed.wanted).all(axis=0)
    if told.mean() < EXPLAINED:
        return
    where = (followed.source, wanted, contents)
    for scheme in PLANNED:
        ways = _plan(network, scheme, _parameters(network, scheme), subscriptions)
        if ways is not None:
            then = _priced(ways, *where)
            yield _alternative(
                "switch", None, network.scheme, scheme, followed.messages, then, None
            )
    if network.scheme not in PARAMETERS:
        return
    name = PARAMETERS[network.scheme]
    own = _parameters(network, network.scheme)
    ways = _plan(network, network.scheme, own, subscriptions)
    if ways is None:
        return
    now = _priced(ways, *where)
    value = asdict(SCHEMES[network.scheme].config(**dict(own)))[name]
    for factor in (1, *FACTORS):
        other = max(1, round(value * factor))
        tried = tuple((dict(own) | {name: other}).items())
        ways = _plan(network, network.scheme, tried, subscriptions)
        if ways is not None and (other != value) == (factor != 1):
            then = followed.messages - now + _priced(ways, *where)
            said = f"{name}={value:g}", f"{name}={other:g}"
            yield _alternative("parameter", None, *said, followed.messages, then, None)


Parameters = tuple[tuple[str, Any], ...]


def _parameters(network: TracedNetwork, scheme: str) -> Parameters:
    """The network's own for its scheme; of others the defaults."""
    if scheme != network.scheme:
        return ()
    return tuple(network.parameters.items())


@lru_cache(maxsize=64)
def _plan(
    network: TracedNetwork, scheme: str, parameters: Parameters, subscriptions: Subscriptions
) -> Ways | None:
    """None if these subscriptions cannot be planned for."""
    place = {name: broker for broker, name in enumerate(network.brokers)}
    pairs = [(place[broker], _filter(text)) for broker, text in subscriptions if broker in place]
    try:
        config = SCHEMES[scheme].config(**dict(parameters))
        interests = Interests(pairs, [], pairs)
        return Ways(scheme, _overlay(network), interests, config, network.seed)
    except InputError:
        return None


_filter = lru_cache(maxsize=100_000)(parse)


def _wanted_by(
    network: TracedNetwork, subscriptions: Subscriptions, contents: Sequence[Any]
) -> bounds.Wanted:
    index, place = _index(network, subscriptions)
    wanted = np.zeros((len(network.brokers), len(contents)), bool)
    for number, attributes in enumerate(contents):
        wanted[place[list(index.match(attributes))], number] = True
    return wanted


@lru_cache(maxsize=4)
def _index(network: TracedNetwork, subscriptions: Subscriptions) -> tuple[Index[int], IntArray]:
    """The subscriptions by number, and the broker of each."""
    place = {name: broker for broker, name in enumerate(network.brokers)}
    known = [(place[broker], text) for broker, text in subscriptions if broker in place]
    index: Index[int] = Index()
    for number, (_, text) in enumerate(known):
        index.insert(number, _filter(text))
    return index, np.array([broker for broker, _ in known], np.int64)


def _added_links(network: TracedNetwork, followed: FollowedPublications) -> Iterator[Alternative]:
    """One more link, between brokers that many publications go between over many others."""
    overlay = _overlay(network)
    far = between_all(replace(overlay, latency_us=np.ones_like(overlay.latency_us)))
    weight = np.zeros_like(far)
    np.add.at(weight, followed.source, followed.wanted.T)
    weight = (weight + weight.T) * np.maximum(0, far - 1)
    before = _priced(_ways(network, MESH), followed.source, followed.wanted)
    yield _alternative("add", None, "none", "none", followed.messages, followed.messages, None)
    order = np.argsort(-np.triu(weight), axis=None, kind="stable")[:LINKS_TRIED]
    for a, b in zip(*np.unravel_index(order, weight.shape), strict=True):
        if not weight[a, b]:
            break
        wider = Overlay(
            overlay.names,
            np.concatenate([overlay.ends, [(a, b)]]),
            np.append(overlay.latency_us, round(float(np.median(overlay.latency_us)))),
        )
        ways = Ways(MESH, wider, Interests([], [], []), None, network.seed)
        then = followed.messages - before + _priced(ways, followed.source, followed.wanted)
        new = "-".join(sorted((overlay.names[a], overlay.names[b])))
        yield _alternative("add", None, "none", new, followed.messages, then, None)


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
