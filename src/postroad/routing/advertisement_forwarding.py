"""Advertisement-based forwarding, as in SIENA and PADRES (see the PopSub and the POP and
GRAPE papers, which build on it).

Idea: a publisher's advertisement floods the tree. A subscription travels only towards
advertisements that it intersects, so brokers away from all matching publishers never hear
of it. A publication follows the entries it matches, in reverse.

State: the subscription routing table (SRT: each advertisement and the link it came over),
the publication routing table (PRT: each filter and who wants it), and per neighbour the
filters it has been asked for. Messages: `advertisement`, `unadvertisement`, `subscription`,
`unsubscription`, `publication`.

Undoing is exact: an unadvertisement follows the advertisement, and each broker withdraws
from the neighbour it came over the filters that no other advertisement from there needs.
Covering applies to subscriptions as in subscription forwarding. Advertisements are never
covered: relocation and PopSub need to know each one. A publication that its publisher has
not advertised may not reach everyone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from postroad.filters import Filter, intersects
from postroad.model import Advertisement, AdvertisementId, BrokerId, TimeUs
from postroad.routing import subscription_forwarding
from postroad.routing.base import (
    AdvertisementMessage,
    Effect,
    Message,
    Note,
    Send,
    UnadvertisementMessage,
)
from postroad.routing.pool import FilterPool, Offers
from postroad.routing.tables import LOCAL

# Every broker asks the same question of the same pair; the answer is a pure function of it.
meet = lru_cache(maxsize=1 << 18)(intersects)


@dataclass(frozen=True, slots=True)
class Config(subscription_forwarding.Config):
    """As in subscription forwarding."""


class AdvertisementForwarding(subscription_forwarding.SubscriptionForwarding):
    def __init__(self, broker: BrokerId, config: Config, pool: FilterPool) -> None:
        super().__init__(broker, config, pool)
        self.advertisements: dict[AdvertisementId, tuple[Advertisement, BrokerId]] = {}
        # Per filter in the table: how many advertisements it intersects, by where they came from.
        self.towards: dict[Filter, dict[BrokerId, int]] = {}
        self._offers: Offers | None = None  # those of `offers`, until they change

    def tells_all(self, peer: BrokerId) -> bool:
        return False  # only of what it advertises

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        effects: list[Effect] = [
            Send(peer, AdvertisementMessage(advertisement))
            for advertisement, _ in self.advertisements.values()
        ]
        return effects + super().on_link_up(peer, now)

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        effects = super().on_link_down(peer, now)
        lost = [name for name, (_, source) in self.advertisements.items() if source == peer]
        for advertisement_id in lost:
            effects.extend(self.withdraw(advertisement_id, peer))
        return effects

    def on_advertise(self, advertisement: Advertisement, now: TimeUs) -> list[Effect]:
        return self.announce(advertisement, LOCAL)

    def on_unadvertise(self, advertisement_id: AdvertisementId, now: TimeUs) -> list[Effect]:
        return self.withdraw(advertisement_id, LOCAL)

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        if isinstance(message, AdvertisementMessage):
            return self.announce(message.advertisement, sender)
        if isinstance(message, UnadvertisementMessage):
            return self.withdraw(message.advertisement_id, sender)
        return super().on_message(message, sender, now)

    def announce(self, advertisement: Advertisement, source: BrokerId) -> list[Effect]:
        if advertisement.id in self.advertisements:
            return [Note(f"dropped: advertisement {advertisement.id} is already known")]
        self.advertisements[advertisement.id] = (advertisement, source)
        met = self.count_met(advertisement, source, 1)
        onward = AdvertisementMessage(advertisement)
        effects: list[Effect] = [Send(peer, onward) for peer in self.outgoing if peer != source]
        if source in self.outgoing:
            effects.extend(self.refresh(met, [source]))
        return effects

    def withdraw(self, advertisement_id: AdvertisementId, source: BrokerId) -> list[Effect]:
        advertisement, origin = self.advertisements.get(advertisement_id, (None, None))
        if advertisement is None or origin != source:
            return [Note(f"dropped: advertisement {advertisement_id} did not come from {source}")]
        del self.advertisements[advertisement_id]
        met = self.count_met(advertisement, source, -1)
        onward = UnadvertisementMessage(advertisement_id)
        effects: list[Effect] = [Send(peer, onward) for peer in self.outgoing if peer != source]
        if source in self.outgoing:
            effects.extend(self.refresh(met, [source]))
        return effects

    def count_met(self, advertisement: Advertisement, source: BrokerId, step: int) -> list[Filter]:
        """Count the advertisement in or out for each filter it meets; those filters."""
        self._offers = None  # whatever changes them counts them in or out
        met = [filter for filter in self.table if meet(advertisement.filter, filter)]
        for filter in met:
            _add(self.towards[filter], source, step)
        return met

    def _to_know(self, filter: Filter, peers: list[BrokerId]) -> list[BrokerId]:
        towards = self.towards.get(filter, {})
        return super()._to_know(filter, [peer for peer in peers if peer in towards])

    def refresh(self, filters: list[Filter], peers: list[BrokerId]) -> list[Effect]:
        self._track(filters)
        return super().refresh(filters, peers)

    def _track(self, filters: list[Filter]) -> None:
        """Count for filters that came into the table, or left it, the advertisements they meet."""
        for filter in filters:
            if filter not in self.table.sources:
                self.towards.pop(filter, None)
            elif filter not in self.towards:
                counts = self.towards[filter] = {}
                if self._offers is None:
                    self._offers = self.pool.offers(self.offers())
                for _, source in self.pool.meeting(filter, self._offers):
                    _add(counts, source, 1)

    def offers(self) -> Iterable[tuple[Advertisement, BrokerId]]:
        """Each advertisement with where subscriptions to it must go."""
        return self.advertisements.values()

    def table_entries(self) -> int:
        return len(self.table) + len(self.advertisements)

    def check(self) -> None:
        super().check()
        assert self.towards.keys() == self.table.sources.keys()
        for filter, counts in self.towards.items():
            expected: dict[BrokerId, int] = {}
            for advertisement, source in self.offers():
                if meet(advertisement.filter, filter):
                    _add(expected, source, 1)
            assert counts == expected


def _add(counts: dict[BrokerId, int], source: BrokerId, step: int) -> None:
    """Add to a count; a count of zero is no entry."""
    count = counts.get(source, 0) + step
    if count:
        counts[source] = count
    else:
        del counts[source]
