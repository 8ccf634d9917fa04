"""Hierarchical forwarding (the other scheme of Castelli, Costa and Picco, section 1; as in JEDI).

Idea: one broker is the root, where all meet. A subscription travels up to the root only; a
publication always travels up to the root, and down from each broker on its way wherever a
subscription came from. Subscriptions cost less than when they flood, publications more.

State: per filter, the children (and local clients) that want it; what the parent has been asked
for. Messages: those of subscription forwarding.

With `covering`, a filter is not sent up if one that covers it was. Where we differ: nothing; the
paper names the scheme and models only the other one (`cost/exact.py` has both). A broker cut off
from its parent serves its own subtree until the link is back.
"""

from __future__ import annotations

from dataclasses import dataclass

from postroad.errors import InputError
from postroad.filters import Filter
from postroad.matching import Index
from postroad.model import BrokerId, Publication
from postroad.overlay import Overlay
from postroad.routing import subscription_forwarding
from postroad.routing.base import Asking, Effect, PublicationMessage, Recipients, Send
from postroad.routing.pool import FilterPool


@dataclass(frozen=True, slots=True)
class Config:
    """`root` names the broker where all meet; the first one if empty."""

    covering: bool = False
    root: str = ""


class Hierarchical(subscription_forwarding.SubscriptionForwarding):
    def __init__(
        self, broker: BrokerId, config: Config, pool: FilterPool, parent: BrokerId
    ) -> None:
        super().__init__(broker, subscription_forwarding.Config(config.covering), pool)
        self.parent = parent  # -1 at the root

    def _to_know(self, filter: Filter, peers: list[BrokerId]) -> list[BrokerId]:
        return super()._to_know(filter, [peer for peer in peers if peer == self.parent])

    def recipients(self, topic: str, sender: BrokerId | None = None) -> Recipients | None:
        return None if self.parent in self.outgoing else super().recipients(topic, sender)

    def asking(self, sender: BrokerId | None = None) -> Asking | None:
        return None if self.parent in self.outgoing else super().asking(sender)

    def deciding(self) -> Index[Filter] | None:
        return None if self.parent in self.outgoing else super().deciding()

    def tells_all(self, peer: BrokerId) -> bool:
        return False

    def _route(self, publication: Publication, hops: int, sender: BrokerId) -> list[Effect]:
        self.matches_count += 1
        effects: list[Effect] = []
        peers = self.table.deliver(publication, hops, effects)
        if self.parent in self.outgoing:
            peers.append(self.parent)
        onward = PublicationMessage(publication, hops + 1)
        return effects + [Send(peer, onward) for peer in sorted(peers) if peer != sender]


def parents(overlay: Overlay, config: Config) -> list[BrokerId]:
    """Each broker's parent, -1 at the root."""
    names = list(overlay.names)
    if config.root and config.root not in names:
        raise InputError(f"root is {config.root!r}", remedy="name a broker of the overlay")
    above: list[BrokerId] = overlay.parents(names.index(config.root) if config.root else 0).tolist()
    return above
