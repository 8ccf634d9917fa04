"""Subscription forwarding (Carzaniga et al.; as described by Castelli, Costa and Picco 2007).

Idea: a subscription floods the tree and leaves at each broker an entry that points back to
where it came from; a publication follows the entries it matches, in reverse. A filter is
never sent again over a link that already carried it in that direction, so the second
subscriber's subscription stops where it meets the first one's path.

State: per filter, the neighbours (and local clients) that want it; per neighbour, the filters
it has been asked for. Messages: `subscription`, `unsubscription`, `publication`.

With `covering`, a filter is not sent to a neighbour that has already been asked for a filter
that covers it; a new filter that covers earlier ones replaces them there; and when a covering
filter goes, what it had covered is asked for before it is withdrawn.

Where we differ: the paper leaves out unsubscription, covering and failing links. A link that
goes down takes with it all that came over it; a link that comes up is told afresh.
"""

from __future__ import annotations

from dataclasses import dataclass

from postroad.filters import Filter
from postroad.matching import Index
from postroad.model import BrokerId, Publication, Subscription, SubscriptionId, TimeUs
from postroad.routing.base import (
    Asking,
    Effect,
    Message,
    Note,
    PublicationMessage,
    Recipients,
    Router,
    Send,
    SubscriptionMessage,
    UnsubscriptionMessage,
)
from postroad.routing.pool import FilterPool
from postroad.routing.tables import LOCAL, Outgoing, SourceTable


@dataclass(frozen=True, slots=True)
class Config:
    covering: bool = False


class SubscriptionForwarding(Router):
    stateless = True

    def __init__(self, broker: BrokerId, config: Config, pool: FilterPool) -> None:
        super().__init__(broker)
        self.pool = pool
        self.table = SourceTable(pool)
        self.outgoing: dict[BrokerId, Outgoing] = {}

    def _shared(self) -> dict[int, object]:
        return {id(self.pool): self.pool}

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.outgoing[peer] = Outgoing(self.pool)
        return self.refresh(list(self.table), [peer])

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        if self.outgoing.pop(peer, None) is None:
            return []
        lost = self.table.wanted_from(peer)
        for filter in lost:
            self.table.remove(filter, peer)
        return self.refresh(lost, list(self.outgoing))

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        if not self.table.subscribe(subscription):
            return []
        return self._gained(subscription.filter, LOCAL)

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        filter = self.table.unsubscribe(subscription_id)
        return [] if filter is None else self.refresh([filter], list(self.outgoing))

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        return self._route(publication, 0, LOCAL)

    def recipients(self, topic: str, sender: BrokerId | None = None) -> Recipients | None:
        return self.table.recipients(topic, sender) if self.stateless else None

    def asking(self, sender: BrokerId | None = None) -> Asking | None:
        return self.table.asking(sender) if self.stateless else None

    def deciding(self) -> Index[Filter] | None:
        return self.table.pool.index if self.stateless else None

    def wanting(self, filter: Filter, sender: BrokerId | None = None) -> Recipients:
        return self.table.wanting([filter], sender)

    def tells_all(self, peer: BrokerId) -> bool:
        return self.stateless and not self.pool.covering and peer in self.outgoing

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        if type(message) is PublicationMessage:
            return self._route(message.publication, message.hops, sender)
        if type(message) is SubscriptionMessage:
            filter = message.filter
            if not self.table.add(filter, sender):
                return [Note(f"dropped: {sender} had already subscribed to {filter}")]
            return self._gained(filter, sender)
        if type(message) is UnsubscriptionMessage:
            if not self.table.remove(message.filter, sender):
                return [Note(f"dropped: {sender} had not subscribed to {message.filter}")]
            return self.refresh([message.filter], list(self.outgoing))
        return [Note(f"dropped: no {message.kind} message in this scheme")]

    def _route(self, publication: Publication, hops: int, sender: BrokerId) -> list[Effect]:
        self.matches_count += 1
        effects: list[Effect] = []
        peers = self.table.deliver(publication, hops, effects, sender)
        if peers:
            onward = PublicationMessage(publication, hops + 1)
            effects += [Send(peer, onward) for peer in peers]
        return effects

    def _to_know(self, filter: Filter, peers: list[BrokerId]) -> list[BrokerId]:
        """Those of the neighbours that should know that the filter is wanted here."""
        sources = self.table.sources.get(filter)
        if sources is None:
            return []
        if len(sources) == 1:
            (source,) = sources
            if source in peers:
                return [peer for peer in peers if peer != source]
        return peers

    def _gained(self, filter: Filter, source: BrokerId) -> list[Effect]:
        """What follows when one more source wants a filter: nothing for the source itself, which
        should know what others want."""
        peers = list(self.outgoing)
        if source in self.outgoing:
            peers.remove(source)
        return self.refresh([filter], peers)

    def refresh(self, filters: list[Filter], peers: list[BrokerId]) -> list[Effect]:
        """Bring what these neighbours have been asked for in line with who wants what now.

        Subscriptions go before unsubscriptions, so that no neighbour is for a moment asked
        for less than is wanted.
        """
        if not peers:
            return []
        effects: list[Effect] = []
        if len(filters) == 1 and not self.pool.covering:  # nothing else can change with it
            (filter,) = filters
            to_know = self._to_know(filter, peers)
            subscription: Message | None = None  # one for all neighbours
            for peer in peers:
                if peer in to_know:
                    if self.outgoing[peer].ask(filter):
                        subscription = subscription or SubscriptionMessage(filter)
                        effects.append(Send(peer, subscription))
                elif filter in self.outgoing[peer].asked:
                    self.outgoing[peer].remove(filter)
                    effects.append(Send(peer, UnsubscriptionMessage(filter)))
            return effects
        to_know_of = [(filter, self._to_know(filter, peers)) for filter in filters]
        for peer in peers:
            outgoing = self.outgoing[peer]
            asked_for, covered = outgoing.asked, outgoing.covered_by
            # A filter may be asked for, withdrawn and asked for again within one refresh:
            # only the net change since before it is sent.
            net: dict[Filter, int] = {}
            for filter, to_know in to_know_of:
                wanted = peer in to_know
                if wanted == (filter in asked_for or filter in covered):
                    continue
                asked, withdrawn = outgoing.add(filter) if wanted else outgoing.remove(filter)
                for other in asked:
                    net[other] = net.get(other, 0) + 1
                for other in withdrawn:
                    net[other] = net.get(other, 0) - 1
            if net:
                effects += [Send(peer, SubscriptionMessage(f)) for f, n in net.items() if n > 0]
                effects += [Send(peer, UnsubscriptionMessage(f)) for f, n in net.items() if n < 0]
        return effects

    def table_entries(self) -> int:
        return self.table.entries_count

    def check(self) -> None:
        self.table.check()
        for peer, outgoing in self.outgoing.items():
            outgoing.check()
            for filter in self.table:
                wanted = peer in self._to_know(filter, [peer])
                assert wanted == (filter in outgoing), (peer, str(filter))
            assert all(filter in self.table.sources for filter in outgoing.asked)
