"""The tables that the tree schemes share.

`SourceTable` knows who wants what: the broker's own clients and its neighbours. `Outgoing`
knows what one neighbour has been asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from postroad.filters import Filter, covers
from postroad.matching import Index
from postroad.model import BrokerId, Publication, Subscription, SubscriptionId
from postroad.routing.base import Deliver, Effect

LOCAL: Final[BrokerId] = -1
"""Stands for the broker's own clients wherever a neighbour's number could stand."""


class SourceTable:
    """Filters, each with the sources (neighbours, or LOCAL) that want what it matches."""

    def __init__(self) -> None:
        self.sources: dict[Filter, dict[BrokerId, None]] = {}
        self.holders: dict[Filter, dict[SubscriptionId, None]] = {}
        self.filter_of: dict[SubscriptionId, Filter] = {}
        self.entries_count = 0
        self._index: Index[Filter] = Index()

    def __len__(self) -> int:
        return self.entries_count

    def __iter__(self) -> Iterator[Filter]:
        return iter(self.sources)

    def subscribe(self, subscription: Subscription) -> bool:
        """Add a local subscription. True if its filter gained LOCAL as a source."""
        self.filter_of[subscription.id] = subscription.filter
        holders = self.holders.setdefault(subscription.filter, {})
        holders[subscription.id] = None
        return self.add(subscription.filter, LOCAL)

    def unsubscribe(self, subscription_id: SubscriptionId) -> Filter | None:
        """Drop a local subscription. Its filter, if that lost LOCAL as a source."""
        filter = self.filter_of.pop(subscription_id, None)
        if filter is None:
            return None
        holders = self.holders[filter]
        del holders[subscription_id]
        if holders:
            return None
        del self.holders[filter]
        self.remove(filter, LOCAL)
        return filter

    def add(self, filter: Filter, source: BrokerId) -> bool:
        """True if this source had not asked for this filter before."""
        sources = self.sources.get(filter)
        if sources is None:
            self.sources[filter] = {source: None}
            self._index.insert(filter, filter)
        elif source in sources:
            return False
        else:
            sources[source] = None
        self.entries_count += 1
        return True

    def remove(self, filter: Filter, source: BrokerId) -> bool:
        """True if this source had asked for this filter."""
        sources = self.sources.get(filter)
        if sources is None or source not in sources:
            return False
        del sources[source]
        self.entries_count -= 1
        if not sources:
            del self.sources[filter]
            self._index.remove(filter)
        return True

    def wanted_from(self, source: BrokerId) -> list[Filter]:
        """All filters this source has asked for."""
        return [filter for filter, sources in self.sources.items() if source in sources]

    def wanted_besides(self, filter: Filter, source: BrokerId) -> bool:
        """Whether anyone other than this source wants what the filter matches."""
        sources = self.sources.get(filter)
        return bool(sources) and (len(sources) > 1 or source not in sources)

    def deliver(self, publication: Publication, hops: int, effects: list[Effect]) -> list[BrokerId]:
        """Append a delivery per local match; the neighbours that want the publication."""
        peers: set[BrokerId] = set()
        for filter in self._index.match(publication.attributes):
            peers.update(self.sources[filter])
            for subscription_id in self.holders.get(filter, ()):
                effects.append(Deliver(subscription_id, publication, hops))
        peers.discard(LOCAL)
        return sorted(peers)

    def check(self) -> None:
        assert self.entries_count == sum(map(len, self.sources.values()))
        assert len(self._index) == len(self.sources)
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

    def __init__(self, covering: bool) -> None:
        self.covering = covering
        self.asked: dict[Filter, None] = {}
        self.covered_by: dict[Filter, Filter] = {}

    def __contains__(self, filter: Filter) -> bool:
        return filter in self.asked or filter in self.covered_by

    def __len__(self) -> int:
        return len(self.asked) + len(self.covered_by)

    def add(self, filter: Filter) -> tuple[list[Filter], list[Filter]]:
        """A filter became wanted: which filters to subscribe to, and to unsubscribe from."""
        if self._cover(filter):
            return [], []
        withdrawn: list[Filter] = []
        if self.covering:
            withdrawn = [other for other in self.asked if covers(filter, other)]
            for other in withdrawn:
                del self.asked[other]
            gone = set(withdrawn)
            for covered, coverer in self.covered_by.items():
                if coverer in gone:
                    self.covered_by[covered] = filter
            for other in withdrawn:
                self.covered_by[other] = filter
        self.asked[filter] = None
        return [filter], withdrawn

    def remove(self, filter: Filter) -> tuple[list[Filter], list[Filter]]:
        """A filter is no longer wanted. What it alone had covered is asked for first."""
        if self.covered_by.pop(filter, None) is not None:
            return [], []
        del self.asked[filter]
        bare = [covered for covered, coverer in self.covered_by.items() if coverer == filter]
        for covered in bare:
            del self.covered_by[covered]
        renewed: list[Filter] = []
        dropped: dict[Filter, None] = {}
        for covered in bare:
            subscribed, withdrawn = self.add(covered)
            renewed.extend(subscribed)
            dropped.update(dict.fromkeys(withdrawn))
        # A filter asked for and withdrawn within this one step need not travel at all.
        both = {other for other in renewed if other in dropped}
        renewed = [other for other in renewed if other not in both]
        return renewed, [filter, *(other for other in dropped if other not in both)]

    def _cover(self, filter: Filter) -> bool:
        if self.covering:
            for other in self.asked:
                if covers(other, filter):
                    self.covered_by[filter] = other
                    return True
        return False

    def check(self) -> None:
        assert not self.asked.keys() & self.covered_by.keys()
        assert all(coverer in self.asked for coverer in self.covered_by.values())
        assert self.covering or not self.covered_by
