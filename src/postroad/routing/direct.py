"""Baselines of Kyra's paper that leave trees alone, and its future work, match-early routing.

Idea: every server knows every server's filters and can reach every server.

- `unicast`: the publisher's server matches and sends each matching server a copy.
- `ideal_multicast`: the same messages, but the network below carries one copy over each link
  that their shortest paths share. Between servers the two look alike; only the links of the
  underlay tell them apart (`kernels/kyra.py` charges them).
- `broadcast`: a copy to every server, carried like multicast; no filters are exchanged.
- `match_early`: the publisher's server matches once; the copy carries the list of servers it is
  for and is split hop by hop along a minimum spanning tree (section VII of the paper).

State: per filter, the servers (and local clients) that want it. Messages: `subscription` and
`unsubscription` to all servers, `publication`.

Where we differ: the paper takes it for granted that the publisher's server knows who matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from postroad.model import BrokerId, Publication, Subscription, SubscriptionId, TimeUs
from postroad.overlay import IntArray, Overlay
from postroad.overlay.latencies import between_all, spanning_tree
from postroad.routing.base import (
    Effect,
    Interests,
    Message,
    Note,
    PublicationMessage,
    Router,
    Send,
    SubscriptionMessage,
    UnsubscriptionMessage,
)
from postroad.routing.pool import FilterPool
from postroad.routing.tables import LOCAL, SourceTable


@dataclass(frozen=True, slots=True)
class Config:
    """These schemes have nothing to set."""


@dataclass(frozen=True, slots=True)
class ListedMessage(Message):
    """A publication and the servers that this copy is for."""

    kind = "publication"
    carries = True
    forwards = True
    publication: Publication
    servers: tuple[BrokerId, ...]
    hops: int


@dataclass(frozen=True)
class MeshPlan:
    """Every broker has a link to every other, as long as the network says."""

    overlay: Overlay
    router_class: Any
    config: Any = None
    pool: FilterPool = field(default_factory=FilterPool)

    @cached_property
    def between_us(self) -> IntArray:
        return between_all(self.overlay)

    @cached_property
    def next_hop(self) -> IntArray:
        """`next_hop[a, b]`: whom a hands what is for b, along a minimum spanning tree."""
        count = self.overlay.brokers_count
        ends = self.overlay.ends
        if self.overlay.direct_us is not None:
            ends = spanning_tree(self.between_us, np.arange(count))
        tree = Overlay(self.overlay.names, ends, np.ones(len(ends), np.int64))
        # Seen from b, what a has above it in the tree is whom a hands it.
        return np.stack([tree.parents(root) for root in range(count)], axis=1)

    def router(self, broker: BrokerId) -> Router:
        router: Router = self.router_class(broker, self)
        return router

    def links(self) -> Sequence[Mapping[BrokerId, TimeUs]]:
        return [
            {peer: took for peer, took in enumerate(row) if peer != broker}
            for broker, row in enumerate(self.between_us.tolist())
        ]

    def direct_us(self, source: BrokerId, target: BrokerId) -> TimeUs:
        return int(self.between_us[source, target])


def plan(router_class: Any) -> Any:
    def made(overlay: Overlay, interests: Interests, config: Any, seed: int = 0) -> MeshPlan:
        return MeshPlan(overlay, router_class, config)

    return made


class Unicast(Router):
    tells = True  # whether servers tell each other their filters

    def __init__(self, broker: BrokerId, plan: MeshPlan) -> None:
        super().__init__(broker)
        self.plan = plan
        self.table = SourceTable(plan.pool)
        self.up: dict[BrokerId, None] = {}

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.up[peer] = None
        if not self.tells:
            return []
        return [Send(peer, SubscriptionMessage(filter)) for filter in self.table.holders]

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.up.pop(peer, None)
        for filter in self.table.wanted_from(peer):
            self.table.remove(filter, peer)
        return []

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        gained = self.table.subscribe(subscription)
        return self._tell(SubscriptionMessage(subscription.filter)) if gained else []

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        lost = self.table.unsubscribe(subscription_id)
        return [] if lost is None else self._tell(UnsubscriptionMessage(lost))

    def _tell(self, message: Message) -> list[Effect]:
        return [Send(peer, message) for peer in self.up] if self.tells else []

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        effects: list[Effect] = []
        return effects + self.spread(publication, self.match(publication, 0, effects))

    def match(self, publication: Publication, hops: int, effects: list[Effect]) -> list[BrokerId]:
        """Deliver here; the servers that want the publication."""
        self.matches_count += 1
        return self.table.deliver(publication, hops, effects)

    def spread(self, publication: Publication, servers: Sequence[BrokerId]) -> list[Effect]:
        """Send a new publication on its way to these servers."""
        return [Send(server, PublicationMessage(publication, 1)) for server in servers]

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        effects: list[Effect] = []
        if isinstance(message, PublicationMessage):
            self.match(message.publication, message.hops, effects)
        elif isinstance(message, SubscriptionMessage):
            self.table.add(message.filter, sender)
        elif isinstance(message, UnsubscriptionMessage):
            self.table.remove(message.filter, sender)
        else:
            effects.append(Note(f"dropped: no {message.kind} message in this scheme"))
        return effects

    def table_entries(self) -> int:
        return len(self.table)

    def check(self) -> None:
        self.table.check()
        assert all(
            source == LOCAL or source in self.up
            for sources in self.table.sources.values()
            for source in sources
        )


class IdealMulticast(Unicast):
    """Differs below the servers only."""


class Broadcast(Unicast):
    tells = False

    def spread(self, publication: Publication, servers: Sequence[BrokerId]) -> list[Effect]:
        return super().spread(publication, list(self.up))


class MatchEarly(Unicast):
    def spread(self, publication: Publication, servers: Sequence[BrokerId]) -> list[Effect]:
        return self._split(publication, servers, 0)

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        if not isinstance(message, ListedMessage):
            return super().on_message(message, sender, now)
        effects: list[Effect] = []
        onward = [server for server in message.servers if server != self.broker]
        if len(onward) < len(message.servers):
            self.match(message.publication, message.hops, effects)
        return effects + self._split(message.publication, onward, message.hops)

    def _split(
        self, publication: Publication, servers: Sequence[BrokerId], hops: int
    ) -> list[Effect]:
        parts: dict[BrokerId, list[BrokerId]] = {}
        for server in servers:
            parts.setdefault(int(self.plan.next_hop[self.broker, server]), []).append(server)
        return [
            Send(peer, ListedMessage(publication, tuple(part), hops + 1))
            for peer, part in sorted(parts.items())
        ]
