"""What real subscriptions cost on a tree, in closed form: each at its broker, with its own filter.

Let the subscriptions be made one after the other, in random order. On one link and in one direction
only those behind the link matter. Without covering each distinct filter crosses once. With covering
a filter crosses iff the first of its k subscriptions behind the link comes before all C
subscriptions there whose filters cover it, which has the chance k / (k + C), whatever happens
elsewhere: what suppressed it earlier on its way is behind this link too. Of those that crossed,
the ones that something there covers are withdrawn again. So the expectation is exact, and costs one
sum over the tree per distinct filter.

Filters that cover each other count as one. Where `covers` cannot decide, more is sent than it
says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from postroad.cost.exact import Crossings
from postroad.filters import Filter
from postroad.model import BrokerId
from postroad.overlay.rooted import FloatArray, Rooted
from postroad.routing.pool import FilterPool


@dataclass(frozen=True, eq=False)
class FilterTraffic:
    """Expected messages until all subscriptions stand."""

    subscriptions: Crossings
    unsubscriptions: Crossings
    entries: float  # filters that all brokers' neighbours have asked them for, in the end

    @property
    def total(self) -> float:
        return self.subscriptions.traffic + self.unsubscriptions.traffic


def of_filters(
    tree: Rooted, placed: Sequence[tuple[BrokerId, Filter]], covering: bool
) -> FilterTraffic:
    """`placed`: the broker (an overlay's number) and the filter of each subscription."""
    count = tree.brokers_count
    number = np.empty(count, np.int64)
    number[tree.broker] = np.arange(count)
    above = _coverers([filter for _, filter in placed]) if covering else {}
    own: dict[Filter, FloatArray] = {}
    for broker, filter in placed:
        first = above[filter][0] if covering else filter
        own.setdefault(first, np.zeros(count))[number[broker]] += 1
    ups, downs = np.zeros((2, count)), np.zeros((2, count))  # sent, and standing in the end
    for filter, copies in own.items():
        coverers = np.zeros(count)
        for other in above[filter][1] if covering else ():
            coverers += own[other]
        below, wider = tree.sum_below(copies), tree.sum_below(coverers)
        for part, here, there in (
            (ups, below, wider),
            (downs, below[0] - below, wider[0] - wider),
        ):
            part[0] += np.divide(here, here + there, out=np.zeros(count), where=here > 0)
            part[1] += (here > 0) & (there == 0)
    for part in (ups, downs):
        part[:, 0] = 0.0  # the root has no link
    return FilterTraffic(
        Crossings(tree, ups[0], downs[0]),
        Crossings(tree, ups[0] - ups[1], downs[0] - downs[1]),
        float(ups[1].sum() + downs[1].sum()),
    )


def _coverers(filters: Sequence[Filter]) -> dict[Filter, tuple[Filter, list[Filter]]]:
    """Per filter the one that stands for all it is equal to, and those that cover it strictly."""
    pool = FilterPool(covering=True)
    distinct = list(dict.fromkeys(filters))
    for filter in distinct:
        pool.enter(filter)
    place = {filter: n for n, filter in enumerate(distinct)}
    first = {
        filter: min(
            [filter, *(other for other in pool.above[filter] if other in pool.below[filter])],
            key=place.__getitem__,
        )
        for filter in distinct
    }
    return {
        filter: (
            first[filter],
            list(
                dict.fromkeys(
                    first[other] for other in pool.above[filter] if first[other] != first[filter]
                )
            ),
        )
        for filter in distinct
    }
