"""The tables that the tree schemes share.

`SourceTable` knows who wants what: the broker's own clients and its neighbours. `Outgoing`
knows what one neighbour has been asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Final

from postroad.filters import Filter
from postroad.model import BrokerId, Publication, Scalar, Subscription, SubscriptionId
from postroad.routing.base import NOBODY, Asking, Deliver, Effect, Recipients
from postroad.routing.pool import FilterPool

LOCAL: Final[BrokerId] = -1
"""Stands for the broker's own clients wherever a neighbour's number could stand."""


# One alone is kept as it is, or in a tuple, a quarter of the size of a dict: most filters have no
# more.
Sources = tuple[BrokerId] | dict[BrokerId, None]
Subscribed = SubscriptionId | dict[SubscriptionId, None]


@cache
def _alone(source: BrokerId) -> tuple[BrokerId]:
    """One tuple for all filters that only this source wants."""
    return (source,)


class SourceTable:
    """Filters, each with the sources (neighbours, or LOCAL) that want what it matches."""

    def __init__(self, pool: FilterPool) -> None:
        self.pool = pool
        self.sources: dict[Filter, Sources] = {}
        self.holders: dict[Filter, Subscribed] = {}
        self.filter_of: dict[SubscriptionId, Filter] = {}
        self.entries_count = 0

    def __len__(self) -> int:
        return self.entries_count

    def __iter__(self) -> Iterator[Filter]:
        return iter(self.sources)

    def subscribe(self, subscription: Subscription) -> bool:
        """Add a local subscription. True if its filter gained LOCAL as a source."""
        id, filter = subscription.id, subscription.filter
        self.filter_of[id] = filter
        holders = self.holders.get(filter)
        if holders is None:
            self.holders[filter] = id
        elif isinstance(holders, dict):
            holders[id] = None
        elif holders != id:
            self.holders[filter] = {holders: None, id: None}
        return self.add(filter, LOCAL)

    def unsubscribe(self, subscription_id: SubscriptionId) -> Filter | None:
        """Drop a local subscription. Its filter, if that lost LOCAL as a source."""
        filter = self.filter_of.pop(subscription_id, None)
        if filter is None:
            return None
        holders = self.holders[filter]
        if isinstance(holders, dict):
            del holders[subscription_id]
            if holders:
                return None
        del self.holders[filter]
        self.remove(filter, LOCAL)
        return filter

    def add(self, filter: Filter, source: BrokerId) -> bool:
        """True if this source had not asked for this filter before."""
        # Each look-up of a filter asks for its hash: one tells whether it is new, and who wants it.
        sources_of = self.sources
        count = len(sources_of)
        sources = sources_of.setdefault(filter, _alone(source))
        if len(sources_of) > count:
            self.pool.enter(filter)
        elif source in sources:
            return False
        elif isinstance(sources, dict):
            sources[source] = None
        else:
            sources_of[filter] = {sources[0]: None, source: None}
        self.entries_count += 1
        return True

    def remove(self, filter: Filter, source: BrokerId) -> bool:
        """True if this source had asked for this filter."""
        sources = self.sources.get(filter)
        if sources is None or source not in sources:
            return False
        self.entries_count -= 1
        if isinstance(sources, dict):
            del sources[source]
            if sources:
                return True
        del self.sources[filter]
        self.pool.leave(filter)
        return True

    def wanted_from(self, source: BrokerId) -> list[Filter]:
        """All filters this source has asked for."""
        return [filter for filter, sources in self.sources.items() if source in sources]

    def deliver(
        self, publication: Publication, hops: int, effects: list[Effect], sender: BrokerId = LOCAL
    ) -> list[BrokerId]:
        """Append a delivery per local match; the neighbours but for `sender` that want it."""
        filters = self.pool.match(publication) if self.sources else None
        if not filters:
            return []
        names, peers = self.wanting(filters, sender)
        if names:
            effects.extend([Deliver(name, publication, hops) for name in names])
        return peers

    def asking(self, sender: BrokerId | None) -> Asking:
        """What tells the local subscriptions, and the neighbours but for `sender`, that want a
        publication by what it says, until the table changes."""
        match, wanting = self.pool.index.match, self.wanting

        def ask(attributes: Mapping[str, Scalar]) -> Recipients:
            filters = match(attributes)
            return wanting(filters, sender) if filters else NOBODY

        return ask

    def wanting(self, filters: list[Filter], sender: BrokerId | None) -> Recipients:
        """The local subscriptions with these filters, and the neighbours but for `sender`."""
        if len(filters) == 1:
            wanted = set(self.sources.get(filters[0], ()))
        else:
            # Most filters are none of this table's, or lead the same way: sets and iterators go
            # through them without a step of Python for each.
            wanted = set(chain.from_iterable(filter(None, map(self.sources.get, filters))))
        if not wanted:
            return [], []
        names: list[SubscriptionId] = []
        if LOCAL in wanted:
            wanted.remove(LOCAL)
            for local in map(self.holders.get, filters):
                if type(local) is str:
                    names.append(local)
                elif local is not None:
                    names += local
        if sender in wanted:
            wanted.remove(sender)
        # Sorted, because the pool's order is not this broker's own.
        names.sort()
        return names, sorted(wanted)

    def recipients(self, topic: str, sender: BrokerId | None) -> Recipients | None:
        """The local subscriptions to this class, and the neighbours but for `sender` that want it;
        None if it matters what else a publication says."""
        filters = self.pool.of_class(topic)
        if filters is None:
            return None
        names: list[SubscriptionId] = []
        among: set[BrokerId] = set()
        for filter in filters:
            wanted = self.sources.get(filter)
            if wanted is not None:
                among.update(wanted)
                if LOCAL in wanted:
                    local = self.holders[filter]
                    names += (local,) if isinstance(local, str) else local
        names.sort()
        return names, sorted(peer for peer in among if peer not in (LOCAL, sender))

    def check(self) -> None:
        assert self.entries_count == sum(map(len, self.sources.values()))
        assert self.sources.keys() <= self.pool.uses.keys()
        local = {filter for filter, sources in self.sources.items() if LOCAL in sources}
        assert local == set(self.holders) == set(self.filter_of.values())
        assert all(self.sources.values())
        assert all(self.holders.values())


class Outgoing:
    """What one neighbour is asked for: every wanted filter, or with covering a subset that
    covers the rest.

    Invariant: a wanted filter is either in `asked`, or `covered_by` names a filter in `asked`
    that covers it. Because the coverer has really been sent, an incomplete `covers` can cost
    messages but never a delivery, and no chain of suppressed filters can form.
    """

    def __init__(self, pool: FilterPool) -> None:
        self.pool = pool
        self.asked: dict[Filter, int] = {}  # with a number that grows: which was asked first
        self.covered_by: dict[Filter, Filter] = {}
        self.covering: dict[Filter, dict[Filter, None]] = {}  # the reverse of covered_by
        self._next = 0

    def __contains__(self, filter: Filter) -> bool:
        return filter in self.asked or filter in self.covered_by

    def add(self, filter: Filter) -> tuple[list[Filter], list[Filter]]:
        """A filter became wanted: which filters to subscribe to, and to unsubscribe from."""
        asked = self.asked
        withdrawn: list[Filter] = []
        if self.pool.covering:
            coverers = [other for other in self.pool.above[filter] if other in asked]
            if coverers:
                self._cover(filter, min(coverers, key=asked.__getitem__))
                return [], []
            withdrawn = [other for other in self.pool.below[filter] if other in asked]
            withdrawn.sort(key=asked.__getitem__)
            for other in withdrawn:
                del asked[other]
                for covered in self.covering.pop(other, {}):
                    self._cover(covered, filter)
                self._cover(other, filter)
        self.ask(filter)
        return [filter], withdrawn

    def ask(self, filter: Filter) -> bool:
        """Ask for a filter, whatever covers it. False if it had been asked for."""
        number = self._next
        if self.asked.setdefault(filter, number) != number:
            return False
        self._next = number + 1
        return True

    def remove(self, filter: Filter) -> tuple[list[Filter], list[Filter]]:
        """A filter is no longer wanted. What it alone had covered is asked for first."""
        coverer = self.covered_by.pop(filter, None)
        if coverer is not None:
            covered = self.covering[coverer]
            del covered[filter]
            if not covered:
                del self.covering[coverer]
            return [], []
        del self.asked[filter]
        renewed: dict[Filter, None] = {}
        dropped: dict[Filter, None] = {filter: None}
        bare = self.covering.pop(filter, {})
        for other in bare:
            del self.covered_by[other]
        for other in bare:
            subscribed, withdrawn = self.add(other)
            renewed.update(dict.fromkeys(subscribed))
            for early in withdrawn:  # asked for a moment ago: need not travel at all
                if early in renewed:
                    del renewed[early]
                else:
                    dropped[early] = None
        return list(renewed), list(dropped)

    def _cover(self, filter: Filter, coverer: Filter) -> None:
        self.covered_by[filter] = coverer
        self.covering.setdefault(coverer, {})[filter] = None

    def check(self) -> None:
        assert not self.asked.keys() & self.covered_by.keys()
        pairs = {(covered, coverer) for coverer, all in self.covering.items() for covered in all}
        assert pairs == set(self.covered_by.items())
        assert self.covering.keys() <= self.asked.keys()
        assert all(self.covering.values())
