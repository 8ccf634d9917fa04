"""Flooding, which Castelli, Costa and Picco (DEBS 2007) call event forwarding.

Idea: every publication crosses every link of the tree once; subscriptions stay where they
were made and are compared with a publication only at the subscriber's broker.

State: the local subscriptions. Messages: `publication`.
"""

from __future__ import annotations

from dataclasses import dataclass

from postroad.model import BrokerId, Publication, Subscription, SubscriptionId, TimeUs
from postroad.routing.base import Effect, Message, Note, PublicationMessage, Router, Send
from postroad.routing.pool import FilterPool
from postroad.routing.tables import SourceTable


@dataclass(frozen=True, slots=True)
class Config:
    """Flooding has nothing to set."""


class Flooding(Router):
    stateless = True

    def __init__(self, broker: BrokerId, config: Config, pool: FilterPool) -> None:
        super().__init__(broker)
        self.local = SourceTable(pool)
        self.peers: dict[BrokerId, None] = {}

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.peers[peer] = None
        return []

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.peers.pop(peer, None)
        return []

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        self.local.subscribe(subscription)
        return []

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        self.local.unsubscribe(subscription_id)
        return []

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        return self._spread(publication, 0, None)

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        if isinstance(message, PublicationMessage):
            return self._spread(message.publication, message.hops, sender)
        return [Note(f"dropped: flooding knows no {message.kind} message")]

    def _spread(self, publication: Publication, hops: int, sender: BrokerId | None) -> list[Effect]:
        self.matches_count += 1
        effects: list[Effect] = []
        self.local.deliver(publication, hops, effects)
        if len(self.peers) == 1 and sender in self.peers:  # most brokers of a tree are its leaves
            return effects
        onward = PublicationMessage(publication, hops + 1)
        effects += [Send(peer, onward) for peer in self.peers if peer != sender]
        return effects

    def table_entries(self) -> int:
        return len(self.local)

    def check(self) -> None:
        self.local.check()
