"""The best broker for every publisher on a fixed tree, and the best link to replace.

Both count messages as `bounds` does: on a tree a publication crosses the links of the subtree that
spans its publisher and the brokers that want it. Without a limit on load each publisher's best
broker stands for itself. With one the choices hang together: an assignment problem with one more
constraint for each broker, solved by HiGHS to the optimum or to the gap that it reports.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from postroad.cost import bounds
from postroad.errors import RunFailed
from postroad.overlay import IntArray, Overlay

CANDIDATES = 200  # pairs of brokers that a replaced link may join instead


@dataclass(frozen=True, eq=False)
class Placement:
    """A broker for each publisher, the messages in all, and a lower bound of them."""

    brokers: IntArray
    messages: int
    least: float  # equal to `messages` where the optimum is proved


def costs(overlay: Overlay, wanted: bounds.Wanted, publisher: IntArray) -> IntArray:
    """Per publisher and broker, the messages of all it publishes if it is there."""
    tree = bounds.on_tree(overlay, wanted)
    count = int(publisher.max(initial=-1)) + 1
    messages = np.zeros((count, overlay.brokers_count), dtype=np.int64)
    np.add.at(messages, publisher, (tree.links + tree.apart).T)
    return messages


def loads(overlay: Overlay, wanted: bounds.Wanted, publisher: IntArray) -> IntArray:
    """Per publisher, broker where it is, and broker: the messages sent and received there."""
    brokers = overlay.brokers_count
    count = int(publisher.max(initial=-1)) + 1
    load = np.zeros((count, brokers, brokers), dtype=np.int64)
    for here in range(brokers):
        source = np.full(wanted.shape[1], here, dtype=np.int64)
        np.add.at(load[:, here], publisher, bounds.loads_on_tree(overlay, wanted, source).T)
    return load


def best(
    overlay: Overlay, wanted: bounds.Wanted, publisher: IntArray, home: IntArray,
    load_max: float | None = None, limit_s: float = 60.0,
) -> Placement:  # fmt: skip
    """Where publishers are best, no broker sending and receiving more than `load_max` messages.

    Of places that are equally good, `home` (per publisher) is taken.
    """
    messages = costs(overlay, wanted, publisher)
    weight = len(messages) + 1  # all that stay together weigh less than a message
    cost = weight * messages
    cost[np.arange(len(messages)), home] -= 1
    if load_max is None:
        places = cost.argmin(axis=1)
        total = int(messages[np.arange(len(messages)), places].sum())
        return Placement(places, total, total)
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array, csr_array

    count, brokers = messages.shape
    load = loads(overlay, wanted, publisher)
    places = np.arange(count * brokers)
    once = coo_array((np.ones(len(places)), (places // brokers, places)))
    busy = csr_array(load.reshape(count * brokers, brokers).T.astype(np.float64))
    answer = milp(
        cost.ravel().astype(np.float64),
        integrality=np.ones(len(places)),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(once, 1, 1), LinearConstraint(busy, -np.inf, load_max)],
        options={"time_limit": limit_s},
    )
    if answer.x is None:
        raise RunFailed(
            f"no places keep every broker within {load_max:g} messages"
            if answer.status == 2
            else f"no places were found in {limit_s:g} s: {answer.message}"
        )
    chosen = answer.x.reshape(count, brokers).argmax(axis=1)
    total = int(messages[np.arange(count), chosen].sum())
    bound = answer.mip_dual_bound
    least = total if bound is None else float(np.ceil(bound / weight - 1e-6))
    return Placement(chosen, total, min(total, least))


@dataclass(frozen=True)
class Replacement:
    """A link to take out, one to lay instead, and the messages that it saves."""

    old: tuple[int, int]
    new: tuple[int, int]
    saved: int


def replacements(
    overlay: Overlay, wanted: bounds.Wanted, source: IntArray, candidates: int = CANDIDATES
) -> list[Replacement]:
    """Links whose replacement saves messages, best first, one for each new link.

    Tried are the pairs of brokers between which most copies go that are no neighbours; each
    closes a cycle, and every link of it is tried as the one to take out.
    """
    now = int(bounds.on_tree(overlay, wanted).messages(source).sum())
    joined = {frozenset(pair) for pair in overlay.ends.tolist()}
    better = []
    for a, b in _pairs(wanted, source, joined, candidates):
        tried = [
            Replacement(
                old, (a, b), now - _messages(replaced(overlay, old, (a, b)), wanted, source)
            )
            for old in _path(overlay, a, b)
        ]
        top = max(tried, key=lambda one: one.saved)
        if top.saved > 0:
            better.append(top)
    return sorted(better, key=lambda one: -one.saved)


def _pairs(
    wanted: bounds.Wanted, source: IntArray, joined: set[frozenset[int]], count: int
) -> list[tuple[int, int]]:
    """Pairs that are no neighbours, by publications that both ends have something of."""
    has = wanted.astype(np.int64)
    has[source, np.arange(len(source))] = 1
    common: npt.NDArray[np.int64] = has @ has.T
    rows, columns = np.triu_indices(len(common), 1)
    order = np.argsort(-common[rows, columns], kind="stable")
    pairs = ((int(rows[n]), int(columns[n])) for n in order)
    chosen = [pair for pair in pairs if frozenset(pair) not in joined and common[pair]]
    return chosen[:count]


def _messages(overlay: Overlay, wanted: bounds.Wanted, source: IntArray) -> int:
    return int(bounds.on_tree(overlay, wanted).messages(source).sum())


def replaced(overlay: Overlay, old: tuple[int, int], new: tuple[int, int]) -> Overlay:
    """The same with one link instead of another."""
    ends = np.array(
        [new if {*pair} == {*old} else pair for pair in overlay.ends.tolist()], dtype=np.int64
    )
    return replace(overlay, ends=ends)


def _path(overlay: Overlay, a: int, b: int) -> list[tuple[int, int]]:
    """The links between two brokers of a tree."""
    above = overlay.parents(a)
    path = []
    while b != a:
        path.append((int(above[b]), b))
        b = int(above[b])
    return path
