"""Kyra (Cao and Singh: Efficient Event Routing in Content-based Publish-Subscribe Service
Networks, INFOCOM 2004).

Idea: near servers form a clique and divide the content space among themselves. A subscription
moves from its original server to the proxy servers of its clique whose zones it meets (Figure
8). The network divides the content space among routing trees; a proxy server joins the trees
whose zones meet its own, and each tree is a small filter-based routing network of its own. A
publication goes to the server of the publisher's clique whose zone holds it, along the one tree
whose zone holds it to the proxy servers with matching subscriptions, and from them to the
original servers as a final notification (Figure 9).

State: the local subscriptions; as a proxy server, per filter, the servers of the clique that
want it; per tree joined, the tables of subscription forwarding. Messages: `proxy` and `unproxy`
within a clique; `subscription`, `unsubscription` and `publication` on a tree; `publication` to
the proxy server and `notification` from it.

A subscription that meets several zones is narrowed to each, so that a publication finds it at
one proxy server only. Zones hold every publication, whatever its attributes, so subscriptions
that nobody planned for are served too, only not as evenly.

Where we differ: a server delivers what its own clients publish at once, and its proxy server
does not send it back. The paper plans once, centrally, as we do; it leaves out failing links. A
link that goes down takes with it what came over it; a link that comes up is told afresh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from postroad.errors import InputError
from postroad.filters import Filter
from postroad.model import BrokerId, Publication, Subscription, SubscriptionId, TimeUs
from postroad.overlay import IntArray, Overlay
from postroad.overlay.latencies import between_all
from postroad.planning import kyra as planning
from postroad.planning.kyra import Layout, Planned
from postroad.planning.zones import ALPHA, zone_of
from postroad.routing import subscription_forwarding
from postroad.routing.base import (
    Deliver,
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
from postroad.routing.subscription_forwarding import SubscriptionForwarding
from postroad.routing.tables import LOCAL, SourceTable


@dataclass(frozen=True, slots=True)
class Config:
    """`clique_ms`: the most between two servers of a clique; `clique_max`: the most servers in
    one (0: any); `trees` (0: as many as the largest clique has servers); `attributes`: on which
    the content space is cut, with commas (without: those that filters name); `balance`: the
    balance factor M of the trees."""

    clique_ms: float = 100.0
    clique_max: int = 0
    trees: int = 0
    attributes: str = ""
    balance: int = 1
    alpha: float = ALPHA

    def __post_init__(self) -> None:
        for name in ("clique_ms", "clique_max", "trees", "alpha"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}", remedy="give 0 or more")
        if self.balance < 1:
            raise InputError(f"balance is {self.balance}", remedy="give 1 or more")


@dataclass(frozen=True, slots=True)
class ProxyMessage(Message):
    """The sender has subscriptions for what this filter matches in the receiver's zone."""

    kind = "proxy"
    filter: Filter


@dataclass(frozen=True, slots=True)
class UnproxyMessage(Message):
    kind = "unproxy"
    filter: Filter


@dataclass(frozen=True, slots=True)
class TreeSubscription(Message):
    kind = "subscription"
    tree: int
    filter: Filter


@dataclass(frozen=True, slots=True)
class TreeUnsubscription(Message):
    kind = "unsubscription"
    tree: int
    filter: Filter


@dataclass(frozen=True, slots=True)
class TreePublication(Message):
    kind = "publication"
    carries = True
    forwards = True
    tree: int
    publication: Publication
    hops: int


@dataclass(frozen=True, slots=True)
class NewPublication(Message):
    """Published at the sender; in the receiver's zone."""

    kind = "publication"
    carries = True
    forwards = True
    publication: Publication
    hops: int


@dataclass(frozen=True, slots=True)
class Notification(Message):
    """A publication that a subscription of the receiver's matches."""

    kind = "notification"
    carries = True
    publication: Publication
    hops: int


@dataclass(frozen=True)
class KyraPlan:
    """The layout, and links within the cliques and along the trees."""

    overlay: Overlay
    layout: Layout
    pool: FilterPool = field(default_factory=FilterPool)

    @cached_property
    def between_us(self) -> IntArray:
        return between_all(self.overlay)

    @cached_property
    def clique_of(self) -> list[tuple[BrokerId, ...]]:
        found = {server: clique for clique in self.layout.cliques for server in clique}
        return [found[server] for server in range(self.overlay.brokers_count)]

    @cached_property
    def tree_peers(self) -> list[dict[int, list[BrokerId]]]:
        """Per server, its neighbours in each tree that it joins."""
        found: list[dict[int, list[BrokerId]]] = [{} for _ in self.overlay.names]
        for tree, ends in enumerate(self.layout.trees):
            for server in self.layout.members(tree):
                found[server][tree] = []
            for a, b in ends.tolist():
                found[a][tree].append(b)
                found[b][tree].append(a)
        return found

    def router(self, broker: BrokerId) -> Router:
        return Kyra(broker, self)

    def links(self) -> Sequence[Mapping[BrokerId, TimeUs]]:
        peers = [set(clique) - {server} for server, clique in enumerate(self.clique_of)]
        for server, trees in enumerate(self.tree_peers):
            for near in trees.values():
                peers[server].update(near)
        return [
            {peer: int(self.between_us[server, peer]) for peer in sorted(near)}
            for server, near in enumerate(peers)
        ]

    def direct_us(self, source: BrokerId, target: BrokerId) -> TimeUs:
        return int(self.between_us[source, target])


def plan(overlay: Overlay, interests: Interests, config: Config, seed: int = 0) -> KyraPlan:
    """The plan that the overlay brings, or one made for the interests."""
    if isinstance(overlay, Planned):
        return KyraPlan(overlay, overlay.layout)
    filters = [filter for _, filter in interests.subscriptions]
    names = [name.strip() for name in config.attributes.split(",") if name.strip()]
    between = between_all(overlay)
    found = planning.cliques(between, round(1000 * config.clique_ms), config.clique_max)
    divide = planning.divider(filters, attributes=names, alpha=config.alpha)
    layout = planning.layout(between, found, divide, config.trees, config.balance)
    return KyraPlan(overlay, layout)


class Kyra(Router):
    def __init__(self, broker: BrokerId, plan: KyraPlan) -> None:
        super().__init__(broker)
        layout = plan.layout
        self.layout = layout
        self.local = SourceTable(plan.pool)
        self.proxies = {
            server: zone
            for server in plan.clique_of[broker]
            if (zone := layout.zones[server]) is not None
        }
        # Per proxy server, what it is asked for and the local filters that it is asked for by.
        self.moved: dict[BrokerId, dict[Filter, dict[Filter, None]]] = {
            server: {} for server in self.proxies
        }
        self.up: dict[BrokerId, None] = {}
        self.proxied = SourceTable(plan.pool)  # as a proxy server: who in the clique wants what
        self.tree_peers = plan.tree_peers[broker]
        plain = subscription_forwarding.Config()
        self.trees = {
            tree: SubscriptionForwarding(broker, plain, plan.pool) for tree in self.tree_peers
        }

    # Subscriptions, at the original server.

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        filter = subscription.filter
        if not self.local.subscribe(subscription):
            return []
        effects: list[Effect] = []
        for server, zone in self.proxies.items():
            narrowed = zone.narrow(filter)
            if narrowed is None:
                continue
            asked = self.moved[server].setdefault(narrowed, {})
            asked[filter] = None
            if len(asked) > 1:
                continue
            if server == self.broker:
                effects += self._want(narrowed, LOCAL, now)
            elif server in self.up:
                effects.append(Send(server, ProxyMessage(narrowed)))
        return effects

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        filter = self.local.unsubscribe(subscription_id)
        if filter is None:
            return []
        effects: list[Effect] = []
        for server, zone in self.proxies.items():
            narrowed = zone.narrow(filter)
            if narrowed is None:
                continue
            asked = self.moved[server][narrowed]
            del asked[filter]
            if asked:
                continue
            del self.moved[server][narrowed]
            if server == self.broker:
                effects += self._unwant(narrowed, LOCAL, now)
            elif server in self.up:
                effects.append(Send(server, UnproxyMessage(narrowed)))
        return effects

    # Subscriptions, at the proxy server.

    def _want(self, filter: Filter, source: BrokerId, now: TimeUs) -> list[Effect]:
        known = filter in self.proxied.sources
        if not self.proxied.add(filter, source):
            return [Note(f"dropped: {source} had already asked for {filter}")]
        effects: list[Effect] = []
        for tree, router in {} if known else self.trees.items():
            narrowed = self.layout.tree_zones[tree].narrow(filter)
            if narrowed is not None:
                # Several filters may come to the same on a tree: each keeps it alive.
                proxy = Subscription(str(filter), narrowed)
                effects += self._on_tree(tree, router.on_subscribe(proxy, now))
        return effects

    def _unwant(self, filter: Filter, source: BrokerId, now: TimeUs) -> list[Effect]:
        if not self.proxied.remove(filter, source):
            return [Note(f"dropped: {source} had not asked for {filter}")]
        if filter in self.proxied.sources:
            return []
        effects: list[Effect] = []
        for tree, router in self.trees.items():
            effects += self._on_tree(tree, router.on_unsubscribe(str(filter), now))
        return effects

    def _on_tree(self, tree: int, effects: list[Effect]) -> list[Effect]:
        """What a tree's router sends, as messages of that tree; deliveries are the proxy's."""
        found: list[Effect] = []
        for effect in effects:
            match effect:
                case Send(peer, PublicationMessage(publication, hops)):
                    found.append(Send(peer, TreePublication(tree, publication, hops)))
                case Send(peer, SubscriptionMessage(filter)):
                    found.append(Send(peer, TreeSubscription(tree, filter)))
                case Send(peer, UnsubscriptionMessage(filter)):
                    found.append(Send(peer, TreeUnsubscription(tree, filter)))
                case Deliver():
                    pass
                case _:
                    found.append(effect)
        return found

    # Publications.

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        self.matches_count += 1
        effects: list[Effect] = []
        self.local.deliver(publication, 0, effects)
        proxy = next(
            server for server, zone in self.proxies.items() if zone.holds(publication.attributes)
        )
        if proxy != self.broker:
            return [*effects, Send(proxy, NewPublication(publication, 1))]
        return effects + self._route(publication, 0, self.broker, now)

    def _route(
        self, publication: Publication, hops: int, publisher: BrokerId, now: TimeUs
    ) -> list[Effect]:
        """At the proxy server of the publisher's clique: notify the clique, then the tree."""
        effects = self._notify(publication, hops, publisher)
        tree = zone_of(self.layout.tree_zones, publication.attributes)
        router = self.trees[tree]
        onward = router.on_message(PublicationMessage(publication, hops), LOCAL, now)
        return effects + self._on_tree(tree, onward)

    def _notify(
        self, publication: Publication, hops: int, publisher: BrokerId | None = None
    ) -> list[Effect]:
        """Pass a publication on to the original servers of matching subscriptions."""
        self.matches_count += 1
        effects: list[Effect] = []
        wanting: set[BrokerId] = set()
        for filter in self.proxied.pool.match(publication):
            wanting.update(self.proxied.sources.get(filter, ()))
        wanting.discard(self.broker if publisher is None else publisher)
        if LOCAL in wanting and publisher != self.broker:
            self.local.deliver(publication, hops, effects)
        wanting.discard(LOCAL)
        note = Notification(publication, hops + 1)
        return effects + [Send(server, note) for server in sorted(wanting)]

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        match message:
            case NewPublication(publication, hops):
                return self._route(publication, hops, sender, now)
            case Notification(publication, hops):
                self.matches_count += 1
                effects: list[Effect] = []
                self.local.deliver(publication, hops, effects)
                return effects
            case ProxyMessage(filter):
                return self._want(filter, sender, now)
            case UnproxyMessage(filter):
                return self._unwant(filter, sender, now)
            case TreePublication(tree, publication, hops) if tree in self.trees:
                onward = self.trees[tree].on_message(
                    PublicationMessage(publication, hops), sender, now
                )
                return self._notify(publication, hops) + self._on_tree(tree, onward)
            case TreeSubscription(tree, filter) if tree in self.trees:
                inner: Message = SubscriptionMessage(filter)
                return self._on_tree(tree, self.trees[tree].on_message(inner, sender, now))
            case TreeUnsubscription(tree, filter) if tree in self.trees:
                inner = UnsubscriptionMessage(filter)
                return self._on_tree(tree, self.trees[tree].on_message(inner, sender, now))
            case _:
                return [Note(f"dropped: no place for a {message.kind} message here")]

    # Links.

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.up[peer] = None
        effects: list[Effect] = [
            Send(peer, ProxyMessage(filter)) for filter in self.moved.get(peer, {})
        ]
        for tree, peers in self.tree_peers.items():
            if peer in peers:
                effects += self._on_tree(tree, self.trees[tree].on_link_up(peer, now))
        return effects

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.up.pop(peer, None)
        effects: list[Effect] = []
        for filter in self.proxied.wanted_from(peer):
            effects += self._unwant(filter, peer, now)
        for tree, peers in self.tree_peers.items():
            if peer in peers:
                effects += self._on_tree(tree, self.trees[tree].on_link_down(peer, now))
        return effects

    def table_entries(self) -> int:
        """Filters of the clique and of the trees; local ones are among them at a proxy server."""
        trees = sum(len(router.table) for router in self.trees.values())
        return len(self.local) + len(self.proxied) + trees

    def check(self) -> None:
        self.local.check()
        assert self.proxied.entries_count == sum(map(len, self.proxied.sources.values()))
        for router in self.trees.values():
            router.check()
        wanted = {
            filter for asked in self.moved.values() for own in asked.values() for filter in own
        }
        assert wanted <= set(self.local.holders)
        mine = self.moved.get(self.broker, {})
        assert mine.keys() == set(self.proxied.wanted_from(LOCAL))
