"""Baselines of Kyra's paper that leave trees alone, and its future work, match-early routing.

Idea: every server knows every server's filters and can reach every server.

- `unicast`: the publisher's server matches and sends each matching server a copy.
- `ideal_multicast`: one copy over each link that the shortest paths to the matching servers
  share. Where the network below is known (a drawn transit-stub network) the copy passes its
  routers, which are simulated too; on a tree, the brokers on the way. Of a plain matrix of
  latencies no shared links are known, and this is unicast.
- `broadcast`: a copy to every server; no filters are exchanged.
- `match_early`: the publisher's server matches once; the copy carries the list of servers it is
  for and is split hop by hop along a minimum spanning tree (section VII of the paper).

State: per filter, the servers (and local clients) that want it. Messages: `subscription` and
`unsubscription` to all servers, `publication`.

What the planner knew to be wanted from the beginning is where every server starts from, so only
changes travel; the plan says how many messages that stands for, and drivers count them. Two
servers that have lost sight of each other forget what was planned (`anew`) and tell each other
everything.

Where we differ: the paper takes it for granted that the publisher's server knows who matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from postroad.filters import Filter
from postroad.model import BrokerId, Publication, Subscription, SubscriptionId, TimeUs
from postroad.overlay import IntArray, Overlay
from postroad.overlay.latencies import between_all, spanning_tree
from postroad.overlay.transit_stub import Routed
from postroad.routing.base import (
    CarriesOne,
    Effect,
    Interests,
    Message,
    Note,
    Plan,
    PublicationMessage,
    Router,
    Send,
    SubscriptionMessage,
    UnsubscriptionMessage,
    commas,
)
from postroad.routing.pool import FilterPool
from postroad.routing.tables import LOCAL, SourceTable


@dataclass(frozen=True, slots=True)
class Config:
    """These schemes have nothing to set."""


class ListedMessage(CarriesOne, msgspec.Struct, frozen=True):
    """A publication and the servers that this copy is for."""

    kind = "publication"
    wire = "direct.ListedMessage"
    forwards = True
    publication: Publication
    servers: tuple[BrokerId, ...]
    hops: int

    def __str__(self) -> str:
        return f"publication {self.publication.name} for brokers {commas(self.servers)}"


class Way(msgspec.Struct, frozen=True):
    """A node of a tree of shortest paths, whether the copy is for it, and what hangs below."""

    node: BrokerId
    wanted: bool
    below: tuple[Way, ...]


class PathsMessage(CarriesOne, msgspec.Struct, frozen=True):
    """A publication on its way along merged shortest paths."""

    kind = "publication"
    wire = "direct.PathsMessage"
    forwards = True
    publication: Publication
    way: Way
    hops: int

    def __str__(self) -> str:
        return f"publication {self.publication.name} on shortest paths"


@dataclass(frozen=True, slots=True)
class AnewMessage(Message):
    """The sender has lost sight of the receiver: forget what was planned, and tell everything."""

    kind = "anew"
    wire = "direct.AnewMessage"

    def __str__(self) -> str:
        return "anew"


MESSAGES = (
    PublicationMessage, SubscriptionMessage, UnsubscriptionMessage, ListedMessage, PathsMessage,
    AnewMessage,
)  # fmt: skip


@dataclass(frozen=True)
class MeshPlan(Plan):
    """Every broker has a link to every other, as long as the network says.

    `present` is what is wanted from the beginning, and where.
    """

    overlay: Overlay
    router_class: Any
    config: Any = None
    pool: FilterPool = field(default_factory=FilterPool)
    present: Sequence[tuple[BrokerId, Filter]] = ()

    @cached_property
    def planned(self) -> list[dict[Filter, None]]:
        """Per broker, what it wants from the beginning."""
        filters: list[dict[Filter, None]] = [{} for _ in self.overlay.names]
        for broker, filter in self.present:
            filters[broker][filter] = None
        return filters

    @cached_property
    def askers(self) -> dict[Filter, set[BrokerId]]:
        """The same by filter; the pool knows these filters from then on."""
        brokers_of: dict[Filter, set[BrokerId]] = {}
        for broker, filter in self.present:
            if filter not in brokers_of:
                self.pool.enter(filter)
                brokers_of[filter] = set()
            brokers_of[filter].add(broker)
        return brokers_of

    def introductions(self, source: BrokerId, target: BrokerId) -> Mapping[str, int]:
        count = len(self.planned[source])
        return {"subscription": count} if count else {}

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


class PathsPlan(MeshPlan):
    """The same, with the routers of the network below where they are known.

    Routers are numbered on from the brokers.
    """

    @cached_property
    def _roots(self) -> dict[BrokerId, list[BrokerId]]:
        return {}

    def before(self, source: BrokerId) -> list[BrokerId]:
        """Per node, the one before it on the shortest path from a broker; below 0 at the broker
        itself and where no path leads."""
        parents = self._roots.get(source)
        if parents is None:
            parents = self._roots[source] = self._before(source)
        return parents

    def _before(self, source: BrokerId) -> list[BrokerId]:
        overlay = self.overlay
        count = overlay.brokers_count
        parents: list[BrokerId]
        if isinstance(overlay, Routed):
            below = overlay.underlay
            routers = np.where(below.before[source] < 0, -1, below.before[source] + count)
            routers[below.home[source]] = source
            parents = (below.home + count).tolist() + routers.tolist()
        elif overlay.direct_us is None:
            parents = overlay.parents(source).tolist()
        else:
            parents = [source] * count
        parents[source] = -1
        return parents

    def ways(self, source: BrokerId, targets: Sequence[BrokerId]) -> Way:
        """The shortest paths to the targets, merged."""
        before = self.before(source)
        below: dict[BrokerId, dict[BrokerId, None]] = {source: {}}
        for target in targets:
            node = target
            while node not in below:
                below[node] = {}
                node = before[node]
            # All from the target up to `node` is new; hang it below.
            while target != node:
                below[before[target]][target] = None
                target = before[target]
        wanted = set(targets)

        def way(node: BrokerId) -> Way:
            return Way(node, node in wanted, tuple(map(way, below[node])))

        return way(source)

    def introductions(self, source: BrokerId, target: BrokerId) -> Mapping[str, int]:
        servers = max(source, target) < self.overlay.brokers_count
        return super().introductions(source, target) if servers else {}

    def router(self, broker: BrokerId) -> Router:
        return super().router(broker) if broker < self.overlay.brokers_count else Relay(broker)

    def links(self) -> Sequence[Mapping[BrokerId, TimeUs]]:
        adjacent = [dict(peers) for peers in super().links()]
        if isinstance(self.overlay, Routed):
            count, below = self.overlay.brokers_count, self.overlay.underlay
            adjacent += [{} for _ in range(below.routers_count)]
            joined = zip(below.ends.tolist(), below.latency_us.tolist(), strict=True)
            for (a, b), latency in joined:  # of two between the same routers, the faster
                least = min(latency, adjacent[count + a].get(count + b, latency))
                adjacent[count + a][count + b] = adjacent[count + b][count + a] = least
            for server, router in enumerate(below.home.tolist()):
                adjacent[server][count + router] = adjacent[count + router][server] = below.lan_us
        return adjacent


def plan(router_class: Any, plan_class: type[MeshPlan] = MeshPlan) -> Any:
    def plan(overlay: Overlay, interests: Interests, config: Any, seed: int = 0) -> MeshPlan:
        present = interests.present if router_class.tells else ()
        return plan_class(overlay, router_class, config, present=present)

    return plan


class Unicast(Router):
    stateless = True
    tells = True  # whether servers tell each other their filters

    def __init__(self, broker: BrokerId, plan: MeshPlan) -> None:
        super().__init__(broker)
        self.plan = plan
        self.table = SourceTable(plan.pool)  # what was not planned, and local clients' filters
        self.up: dict[BrokerId, None] = {}
        self.afresh: dict[BrokerId, None] = {}  # servers with which nothing planned is shared
        self.unwanted: set[Filter] = set()  # planned for this server, and given up since
        self.askers = plan.askers if self.tells else {}
        self.own: Mapping[Filter, None] = plan.planned[broker] if self.tells else {}
        # The others with which what was planned is shared, and what each has given up of it.
        self.planned: dict[BrokerId, set[Filter]] = {}
        self.planned_count = 0

    # What the other servers want.

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.up[peer] = None
        if peer in self.afresh:
            anew: list[Effect] = [Send(peer, AnewMessage())] if self.plan.present else []
            return anew + self.introduce(peer)
        self.share(peer)
        return self.catch_up(peer)

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.up.pop(peer, None)
        self.part(peer)
        for filter in self.table.wanted_from(peer):
            self.table.remove(filter, peer)
        return []

    def share(self, peer: BrokerId) -> None:
        """Take the peer to want what was planned for it."""
        if self.tells:
            self.planned[peer] = set()
            self.planned_count += len(self.plan.planned[peer])

    def part(self, peer: BrokerId) -> None:
        """From now on the peer wants only what it says."""
        self.afresh[peer] = None
        given_up = self.planned.pop(peer, None)
        if given_up is not None:
            self.planned_count -= len(self.plan.planned[peer]) - len(given_up)

    def introduce(self, peer: BrokerId) -> list[Effect]:
        """Tell a server that knows nothing everything."""
        if not self.tells:
            return []
        return [Send(peer, SubscriptionMessage(filter)) for filter in self.table.holders]

    def catch_up(self, peer: BrokerId) -> list[Effect]:
        """Tell a server that knows the plan what is different."""
        if not self.tells:
            return []
        wanted: list[Effect] = [
            Send(peer, SubscriptionMessage(filter))
            for filter in self.table.holders
            if filter not in self.own
        ]
        given_up = sorted(self.unwanted, key=str)
        return wanted + [Send(peer, UnsubscriptionMessage(filter)) for filter in given_up]

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        filter = subscription.filter
        if not self.table.subscribe(subscription):
            return []
        known = filter in self.own and filter not in self.unwanted
        self.unwanted.discard(filter)
        return self._tell(SubscriptionMessage(filter), known)

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        lost = self.table.unsubscribe(subscription_id)
        if lost is None:
            return []
        if lost in self.own:
            self.unwanted.add(lost)
        return self._tell(UnsubscriptionMessage(lost))

    def _tell(self, message: Message, planned: bool = False) -> list[Effect]:
        """Tell the others; what was planned, only those that do not know the plan."""
        if not self.tells:
            return []
        return [Send(peer, message) for peer in self.up if not planned or peer in self.afresh]

    def _want(self, filter: Filter, server: BrokerId, wanted: bool) -> None:
        given_up = self.planned.get(server)
        if given_up is None or filter not in self.plan.planned[server]:
            (self.table.add if wanted else self.table.remove)(filter, server)
        elif wanted and filter in given_up:
            given_up.remove(filter)
            self.planned_count += 1
        elif not wanted and filter not in given_up:
            given_up.add(filter)
            self.planned_count -= 1

    # Publications.

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        effects: list[Effect] = []
        servers = set(self.match(publication, 0, effects))
        for filter in self.plan.pool.match(publication) if self.askers else ():
            for server in self.askers.get(filter, ()):
                given_up = self.planned.get(server)
                if given_up is not None and filter not in given_up:
                    servers.add(server)
        return effects + self.spread(publication, sorted(servers))

    def match(self, publication: Publication, hops: int, effects: list[Effect]) -> list[BrokerId]:
        """Deliver here; the servers that have asked for the publication, the planned apart."""
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
            self._want(message.filter, sender, True)
        elif isinstance(message, UnsubscriptionMessage):
            self._want(message.filter, sender, False)
        elif isinstance(message, AnewMessage):
            if sender not in self.afresh:
                self.part(sender)
                effects += self.introduce(sender)
        else:
            effects.append(Note(f"dropped: no {message.kind} message in this scheme"))
        return effects

    def table_entries(self) -> int:
        return len(self.table) + self.planned_count

    def check(self) -> None:
        self.table.check()
        assert self.planned_count == sum(
            len(self.plan.planned[peer]) - len(given_up) for peer, given_up in self.planned.items()
        )
        assert not self.planned.keys() & self.afresh.keys()
        assert not self.unwanted & self.table.holders.keys()
        assert all(
            source == LOCAL or source in self.up
            for sources in self.table.sources.values()
            for source in sources
        )


class IdealMulticast(Unicast):
    plan: PathsPlan

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        return super().on_link_up(peer, now) if self._is_server(peer) else []

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        return super().on_link_down(peer, now) if self._is_server(peer) else []

    def _is_server(self, peer: BrokerId) -> bool:
        return peer < self.plan.overlay.brokers_count

    def spread(self, publication: Publication, servers: Sequence[BrokerId]) -> list[Effect]:
        return passed_on(publication, self.plan.ways(self.broker, servers), 0)

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        if not isinstance(message, PathsMessage):
            return super().on_message(message, sender, now)
        effects: list[Effect] = []
        if message.way.wanted:
            self.match(message.publication, message.hops, effects)
        return effects + passed_on(message.publication, message.way, message.hops)


def passed_on(publication: Publication, way: Way, hops: int) -> list[Effect]:
    """A copy over each link below this one."""
    return [Send(below.node, PathsMessage(publication, below, hops + 1)) for below in way.below]


class Relay(Router):
    """A router of the network below: it passes copies on and knows nothing else."""

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        if isinstance(message, PathsMessage):
            return passed_on(message.publication, message.way, message.hops)
        return [Note(f"dropped: a router knows no {message.kind} message")]

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        return [Note("dropped: a router has no clients")]

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        return [Note("dropped: a router has no clients")]

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        return [Note("dropped: a router has no clients")]

    def table_entries(self) -> int:
        return 0


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
