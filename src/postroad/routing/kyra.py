"""Kyra (Cao and Singh: Efficient Event Routing in Content-based Publish-Subscribe Service
Networks, INFOCOM 2004).

Idea: near servers form a clique and divide the content space among themselves. A subscription
moves from its original server to the proxy servers of its clique whose zones it meets (Figure
8). The network divides the content space among routing trees; a proxy server joins the trees
whose zones meet its own, and each tree is a small filter-based routing network of its own. A
publication goes to the server of the publisher's clique whose zone holds it, along the one tree
whose zone holds it to the proxy servers with matching subscriptions, and from them to the
original servers as a final notification (Figure 9).

State: the local subscriptions; per seat (a zone with its places in the trees), per filter, the
servers of the clique that want it, and per tree the tables of subscription forwarding. Messages:
`proxy` and `unproxy` within a clique; `subscription`, `unsubscription` and `publication` on a
tree; `publication` to the proxy server and `notification` from it.

Joining and leaving: every server begins in its own seat. One that leaves hands its seat to
another server of the clique, one that joins is handed a seat (`HandOver`). Whoever sends to the
seat is told (`Moving`), holds back what it has for it, and answers (`Flushed`); links are FIFO,
so that the old host has then seen all that was sent to it. It passes the tables on (`Seated`)
and says so (`Done`); the new host invites what was held back (`Ready`). Publications wait
meanwhile, none is lost or repeated. One seat moves at a time in a neighbourhood. A server that
starts again believes the plan; whoever it has a link to tells it which seats are elsewhere
(`Hosted`, with a number that grows with each hand-over), and it takes up those that it hosted
with empty tables, which the others fill (`Afresh`). A crash in the middle of a hand-over may
leave the seat with nobody.

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
from pathlib import Path

import msgspec

from postroad.errors import InputError
from postroad.filters import Filter
from postroad.model import BrokerId, Publication, Subscription, SubscriptionId, TimeUs
from postroad.overlay import IntArray, Overlay
from postroad.overlay.latencies import between_all
from postroad.planning import kyra as planning
from postroad.planning.kyra import Layout, Planned
from postroad.planning.zones import ALPHA, NARROWED_MAX, divided_by, zone_of
from postroad.routing import subscription_forwarding
from postroad.routing.base import (
    AboutFilter,
    CarriesOne,
    Deliver,
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
)
from postroad.routing.pool import FilterPool
from postroad.routing.subscription_forwarding import SubscriptionForwarding
from postroad.routing.tables import LOCAL, SourceTable


@dataclass(frozen=True, slots=True)
class Config:
    """`clique_ms`: the most between two servers of a clique; `clique_max`: the most servers in
    one (0: any); `trees` (0: as many as the largest clique has servers); `attributes`: on which
    the content space is cut, with commas (without: those that filters name); `balance`: the
    balance factor M of the trees; `covering`: within the trees, as in subscription forwarding."""

    clique_ms: float = 100.0
    clique_max: int = 0
    trees: int = 0
    attributes: str = ""
    balance: int = 1
    alpha: float = ALPHA
    covering: bool = False

    def __post_init__(self) -> None:
        for name in ("clique_ms", "clique_max", "trees", "alpha"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}", remedy="give 0 or more")
        if self.balance < 1:
            raise InputError(f"balance is {self.balance}", remedy="give 1 or more")


Seat = int
"""A zone and its places in the trees, by the number of the server that it was planned for."""


class ProxyMessage(AboutFilter, msgspec.Struct, frozen=True):
    """The sender has subscriptions for what this filter matches in the seat's zone."""

    kind = "proxy"
    wire = "kyra.ProxyMessage"
    seat: Seat
    filter: Filter

    def __str__(self) -> str:
        return f"proxy {self.filter}"


class UnproxyMessage(AboutFilter, msgspec.Struct, frozen=True):
    kind = "unproxy"
    wire = "kyra.UnproxyMessage"
    seat: Seat
    filter: Filter

    def __str__(self) -> str:
        return f"unproxy {self.filter}"


class TreeSubscription(AboutFilter, msgspec.Struct, frozen=True):
    """On a tree, from one seat to its neighbour."""

    kind = "subscription"
    wire = "kyra.TreeSubscription"
    tree: int
    source: Seat
    seat: Seat
    filter: Filter

    def __str__(self) -> str:
        return f"subscription on tree {self.tree}: {self.filter}"


class TreeUnsubscription(AboutFilter, msgspec.Struct, frozen=True):
    kind = "unsubscription"
    wire = "kyra.TreeUnsubscription"
    tree: int
    source: Seat
    seat: Seat
    filter: Filter

    def __str__(self) -> str:
        return f"unsubscription on tree {self.tree}: {self.filter}"


class TreePublication(CarriesOne, msgspec.Struct, frozen=True):
    kind = "publication"
    wire = "kyra.TreePublication"
    forwards = True
    tree: int
    source: Seat
    seat: Seat
    publication: Publication
    hops: int

    def __str__(self) -> str:
        return f"publication {self.publication.name} on tree {self.tree}"


class NewPublication(CarriesOne, msgspec.Struct, frozen=True):
    """Published at the sender; in the seat's zone."""

    kind = "publication"
    wire = "kyra.NewPublication"
    forwards = True
    seat: Seat
    publication: Publication
    hops: int

    def __str__(self) -> str:
        return f"publication {self.publication.name}"


class Notification(CarriesOne, msgspec.Struct, frozen=True):
    """A publication that a subscription of the receiver's matches."""

    kind = "notification"
    wire = "kyra.Notification"
    publication: Publication
    hops: int

    def __str__(self) -> str:
        return f"notification {self.publication.name}"


@dataclass(frozen=True, slots=True)
class HandOver(Message):
    """To the host of a seat, from its operator: let this server of the clique have the seat."""

    kind = "hand_over"
    wire = "kyra.HandOver"
    seat: Seat
    to: BrokerId

    def __str__(self) -> str:
        return f"hand_over seat {self.seat} to broker {self.to}"


@dataclass(frozen=True, slots=True)
class Moving(Message):
    """The seat's `turn`-th hand-over begins."""

    kind = "moving"
    wire = "kyra.Moving"
    seat: Seat
    to: BrokerId
    turn: int

    def __str__(self) -> str:
        return f"moving seat {self.seat} to broker {self.to}"


@dataclass(frozen=True, slots=True)
class Flushed(Message):
    kind = "flushed"
    wire = "kyra.Flushed"
    seat: Seat

    def __str__(self) -> str:
        return f"flushed seat {self.seat}"


@dataclass(frozen=True, slots=True)
class Seated(Message):
    """A seat's tables: (filter, server) of the clique, (tree, neighbour, filter) of the trees,
    and who hosts the neighbours."""

    kind = "seated"
    wire = "kyra.Seated"
    seat: Seat
    proxied: tuple[tuple[Filter, BrokerId], ...]
    heard: tuple[tuple[int, Seat, Filter], ...]
    hosts: tuple[tuple[Seat, BrokerId, int], ...]

    def __str__(self) -> str:
        sizes = f"{len(self.proxied)} of the clique, {len(self.heard)} of the trees"
        return f"seated {self.seat}: {sizes}"


@dataclass(frozen=True, slots=True)
class Done(Message):
    kind = "done"
    wire = "kyra.Done"
    seat: Seat

    def __str__(self) -> str:
        return f"done seat {self.seat}"


@dataclass(frozen=True, slots=True)
class Ready(Message):
    kind = "ready"
    wire = "kyra.Ready"
    seat: Seat

    def __str__(self) -> str:
        return f"ready seat {self.seat}"


@dataclass(frozen=True, slots=True)
class Hosted(Message):
    """Since its `turn`-th hand-over this server has the seat."""

    kind = "hosted"
    wire = "kyra.Hosted"
    seat: Seat
    host: BrokerId
    turn: int

    def __str__(self) -> str:
        return f"hosted seat {self.seat} by broker {self.host}, turn {self.turn}"


@dataclass(frozen=True, slots=True)
class Afresh(Message):
    """The sender has the seat and knows nothing of what the receiver told it: tell it again."""

    kind = "afresh"
    wire = "kyra.Afresh"
    seat: Seat
    turn: int

    def __str__(self) -> str:
        return f"afresh seat {self.seat}, turn {self.turn}"


MESSAGES = (
    ProxyMessage, UnproxyMessage, TreeSubscription, TreeUnsubscription, TreePublication,
    NewPublication, Notification, HandOver, Moving, Flushed, Seated, Done, Ready, Hosted, Afresh,
)  # fmt: skip


def read_plan(path: Path, latency_us: TimeUs) -> Planned:
    """What `postroad plan kyra` wrote, which knows all latencies."""
    return planning.load(path)


AtSeat = ProxyMessage | UnproxyMessage | NewPublication
OnTree = TreeSubscription | TreeUnsubscription | TreePublication


@dataclass(frozen=True)
class KyraPlan(Plan):
    """The layout, and links within the cliques and along the trees."""

    overlay: Overlay
    layout: Layout
    pool: FilterPool

    @cached_property
    def between_us(self) -> IntArray:
        return between_all(self.overlay)

    @cached_property
    def clique_of(self) -> list[tuple[BrokerId, ...]]:
        by_server = {server: clique for clique in self.layout.cliques for server in clique}
        return [by_server[server] for server in range(self.overlay.brokers_count)]

    def narrowed(self, broker: BrokerId, filter: Filter) -> Sequence[tuple[Seat, Filter]]:
        """The seats of the broker's clique that a filter meets, and what of it lies in each."""
        clique = self.clique_of[broker]
        known = self._narrowed.setdefault(clique, {})
        parts = known.get(filter)
        if parts is None:
            zones = self.layout.zones
            within = [
                (seat, zone.narrow(filter)) for seat in clique if (zone := zones[seat]) is not None
            ]
            if len(known) >= NARROWED_MAX:
                known.clear()
            parts = known[filter] = [(seat, part) for seat, part in within if part is not None]
        return parts

    @cached_property
    def _narrowed(self) -> dict[tuple[BrokerId, ...], dict[Filter, list[tuple[Seat, Filter]]]]:
        """What is known already: every server of a clique asks the same."""
        return {}

    @cached_property
    def tree_peers(self) -> list[dict[int, list[BrokerId]]]:
        """Per server, its neighbours in each tree that it joins."""
        peers: list[dict[int, list[BrokerId]]] = [{} for _ in self.overlay.names]
        for tree, ends in enumerate(self.layout.trees):
            for server in self.layout.members(tree):
                peers[server][tree] = []
            for a, b in ends.tolist():
                peers[a][tree].append(b)
                peers[b][tree].append(a)
        return peers

    @cached_property
    def peers(self) -> list[set[BrokerId]]:
        """Per server, whom it has a link to: its clique and its neighbours in trees."""
        near_each = [set(clique) - {server} for server, clique in enumerate(self.clique_of)]
        for server, trees in enumerate(self.tree_peers):
            for near in trees.values():
                near_each[server].update(near)
        return near_each

    def router(self, broker: BrokerId) -> Router:
        return Kyra(broker, self)

    def links(self) -> Sequence[Mapping[BrokerId, TimeUs]]:
        return [
            {peer: int(self.between_us[server, peer]) for peer in sorted(near)}
            for server, near in enumerate(self.peers)
        ]

    def direct_us(self, source: BrokerId, target: BrokerId) -> TimeUs:
        return int(self.between_us[source, target])


def plan(overlay: Overlay, interests: Interests, config: Config, seed: int = 0) -> KyraPlan:
    """The plan that the overlay brings, or one made for the interests."""
    if isinstance(overlay, Planned):
        return KyraPlan(overlay, overlay.layout, FilterPool(config.covering))
    filters = [filter for _, filter in interests.subscriptions]
    names = [name.strip() for name in config.attributes.split(",") if name.strip()]
    between = between_all(overlay)
    cliques = planning.cliques(between, round(1000 * config.clique_ms), config.clique_max)
    divide = planning.divider(filters, attributes=names, alpha=config.alpha)
    layout = planning.layout(between, cliques, divide, config.trees, config.balance)
    return KyraPlan(overlay, layout, FilterPool(config.covering))


class Place:
    """What the host of a seat keeps for it."""

    def __init__(self, seat: Seat, plan: KyraPlan) -> None:
        self.seat = seat
        self.proxied = SourceTable(plan.pool)  # who in the clique wants what
        self.peers = plan.tree_peers[seat]
        plain = subscription_forwarding.Config()
        self.trees = {tree: SubscriptionForwarding(seat, plain, plan.pool) for tree in self.peers}

    def clear(self, now: TimeUs) -> None:
        for filter, servers in list(self.proxied.sources.items()):
            for server in list(servers):
                self.proxied.remove(filter, server)
        for tree, router in self.trees.items():
            for peer in self.peers[tree]:
                router.on_link_down(peer, now)
            for name in list(router.table.filter_of):
                router.table.unsubscribe(name)


@dataclass
class MovingSeat:
    """A seat on its way, as one who sends to it sees it."""

    to: BrokerId
    turn: int
    held: list[AtSeat | OnTree] = field(default_factory=list)
    early: list[tuple[OnTree, BrokerId]] = field(default_factory=list)
    done: bool = False
    resumed: bool = False


class Kyra(Router):
    def __init__(self, broker: BrokerId, plan: KyraPlan) -> None:
        super().__init__(broker)
        self.plan = plan
        layout = plan.layout
        self.local = SourceTable(plan.pool)
        self.zones = {
            seat: zone
            for seat in plan.clique_of[broker]
            if (zone := layout.zones[seat]) is not None
        }
        self.divides_by = divided_by([*self.zones.values(), *layout.tree_zones])
        # Per seat, what it is asked for and the local filters that it is asked for by.
        self.moved: dict[Seat, dict[Filter, dict[Filter, None]]] = {seat: {} for seat in self.zones}
        self.up: dict[BrokerId, None] = {}
        self.seats = {broker: Place(broker, plan)} if broker in self.zones else {}
        self.hosts: dict[Seat, BrokerId] = {}  # where not the server that it was planned for
        self.turns: dict[Seat, int] = {}  # the hand-overs of a seat, as far as known
        self.moves: dict[Seat, MovingSeat] = {}  # seats of others that are on their way
        self.leaving: dict[Seat, tuple[BrokerId, dict[BrokerId, None]]] = {}  # who has not flushed

    def _host(self, seat: Seat) -> BrokerId:
        return self.hosts.get(seat, seat)

    def _to(self, seat: Seat, message: AtSeat | OnTree, now: TimeUs) -> list[Effect]:
        """Send to whoever hosts the seat; hold it back while the seat is on its way."""
        move = self.moves.get(seat)
        if move is not None:
            move.held.append(message)
            return []
        host = self._host(seat)
        if host == self.broker:
            return self._at_seat(message, host, now)
        return [Send(host, message)]

    def _shared(self) -> dict[int, object]:
        return {id(self.plan): self.plan, id(self.plan.pool): self.plan.pool}

    def holds(self, publication: Publication) -> bool:
        waiting = [message for move in self.moves.values() for message in move.held]
        waiting += [message for move in self.moves.values() for message, _ in move.early]
        return any(publication in message.publications for message in waiting)

    # Subscriptions, at the original server.

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        filter = subscription.filter
        if not self.local.subscribe(subscription):
            return []
        effects: list[Effect] = []
        for seat, narrowed in self.plan.narrowed(self.broker, filter):
            asked = self.moved[seat].setdefault(narrowed, {})
            asked[filter] = None
            if len(asked) == 1 and self._reaches(self._host(seat)):
                effects += self._to(seat, ProxyMessage(seat, narrowed), now)
        return effects

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        filter = self.local.unsubscribe(subscription_id)
        if filter is None:
            return []
        effects: list[Effect] = []
        for seat, narrowed in self.plan.narrowed(self.broker, filter):
            asked = self.moved[seat][narrowed]
            del asked[filter]
            if asked:
                continue
            del self.moved[seat][narrowed]
            if self._reaches(self._host(seat)):
                effects += self._to(seat, UnproxyMessage(seat, narrowed), now)
        return effects

    def _reaches(self, server: BrokerId) -> bool:
        """A server that no planned link leads to is reached without one."""
        return server in self.up or server not in self.plan.peers[self.broker]

    # Subscriptions, at the proxy server.

    def _want(self, place: Place, filter: Filter, server: BrokerId, now: TimeUs) -> list[Effect]:
        known = filter in place.proxied.sources
        if not place.proxied.add(filter, server):
            return [Note(f"dropped: {server} had already asked for {filter}")]
        effects: list[Effect] = []
        for tree, router in {} if known else place.trees.items():
            narrowed = self.plan.layout.tree_zones[tree].narrow(filter)
            if narrowed is not None:
                # Several filters may come to the same on a tree: each keeps it alive.
                proxy = Subscription(str(filter), narrowed)
                effects += self._on_tree(place, tree, router.on_subscribe(proxy, now), now)
        return effects

    def _unwant(self, place: Place, filter: Filter, server: BrokerId, now: TimeUs) -> list[Effect]:
        if not place.proxied.remove(filter, server):
            return [Note(f"dropped: {server} had not asked for {filter}")]
        if filter in place.proxied.sources:
            return []
        effects: list[Effect] = []
        for tree, router in place.trees.items():
            effects += self._on_tree(place, tree, router.on_unsubscribe(str(filter), now), now)
        return effects

    def _on_tree(self, place: Place, tree: int, effects: list[Effect], now: TimeUs) -> list[Effect]:
        """What a tree's router sends, as messages of that tree; deliveries are the proxy's."""
        performed: list[Effect] = []
        mine = place.seat
        for effect in effects:
            match effect:
                case Send(peer, PublicationMessage(publication, hops)):
                    onward = TreePublication(tree, mine, peer, publication, hops)
                    performed += self._to(peer, onward, now)
                case Send(peer, SubscriptionMessage(filter)):
                    performed += self._to(peer, TreeSubscription(tree, mine, peer, filter), now)
                case Send(peer, UnsubscriptionMessage(filter)):
                    performed += self._to(peer, TreeUnsubscription(tree, mine, peer, filter), now)
                case Deliver():
                    pass
                case _:
                    performed.append(effect)
        return performed

    # Publications.

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        self.matches_count += 1
        effects: list[Effect] = []
        self.local.deliver(publication, 0, effects)
        seat = next(s for s, zone in self.zones.items() if zone.holds(publication.attributes))
        hops = 0 if seat in self.seats else 1
        return effects + self._to(seat, NewPublication(seat, publication, hops), now)

    def _route(
        self, place: Place, publication: Publication, hops: int, publisher: BrokerId, now: TimeUs
    ) -> list[Effect]:
        """At the proxy server of the publisher's clique: notify the clique, then the tree."""
        effects = self._notify(place, publication, hops, publisher)
        tree = zone_of(self.plan.layout.tree_zones, publication.attributes)
        message = PublicationMessage(publication, hops)
        onward = place.trees[tree].on_message(message, LOCAL, now)
        return effects + self._on_tree(place, tree, onward, now)

    def _notify(
        self, place: Place, publication: Publication, hops: int, publisher: BrokerId | None
    ) -> list[Effect]:
        """Pass a publication on to the original servers of matching subscriptions."""
        self.matches_count += 1
        effects: list[Effect] = []
        wanting: set[BrokerId] = set()
        for filter in place.proxied.pool.match(publication):
            wanting.update(place.proxied.sources.get(filter, ()))
        wanting.discard(LOCAL if publisher is None else publisher)
        if self.broker in wanting:
            self.local.deliver(publication, hops, effects)
            wanting.discard(self.broker)
        note = Notification(publication, hops + 1)
        return effects + [Send(server, note) for server in sorted(wanting)]

    # Messages.

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        match message:
            case Notification(publication, hops):
                self.matches_count += 1
                effects: list[Effect] = []
                self.local.deliver(publication, hops, effects)
                return effects
            case TreePublication() | TreeSubscription() | TreeUnsubscription():
                move = self.moves.get(message.source)
                if move is not None and sender == move.to:
                    move.early.append((message, sender))
                    return []
                if sender != self._host(message.source):
                    return [Note(f"dropped: {sender} does not have seat {message.source}")]
                return self._at_seat(message, sender, now)
            case NewPublication() | ProxyMessage() | UnproxyMessage():
                return self._at_seat(message, sender, now)
            case HandOver(seat, to):
                return self._hand_over(seat, to, now)
            case Moving(seat, to, turn):
                # On its way again: keep what waits.
                before = self.moves.get(seat, MovingSeat(to, turn))
                self.moves[seat] = MovingSeat(to, turn, before.held, before.early)
                return [Send(sender, Flushed(seat))]
            case Flushed(seat) if seat in self.leaving:
                return self._flushed(seat, sender, now)
            case Seated():
                return self._seated(message, now)
            case Hosted(seat, host, turn):
                return self._on_hosted(seat, host, turn, sender, now)
            case Afresh(seat, turn):
                return self._on_afresh(seat, turn, sender, now)
            case Done(seat) | Ready(seat):
                move = self.moves.get(seat)
                if move is not None:  # the old host itself waits for nothing
                    move.done = move.done or isinstance(message, Done)
                    move.resumed = move.resumed or isinstance(message, Ready)
                return self._arrived(seat, now)
            case _:
                return [Note(f"dropped: no place for a {message.kind} message here")]

    def _at_seat(self, message: AtSeat | OnTree, sender: BrokerId, now: TimeUs) -> list[Effect]:
        place = self.seats.get(message.seat)
        if place is None:
            effects: list[Effect] = [Note(f"dropped: seat {message.seat} is not here")]
            if sender != self.broker and message.seat in self.hosts:
                effects.append(Send(sender, self._hosted(message.seat)))
            return effects
        match message:
            case NewPublication(_, publication, hops):
                return self._route(place, publication, hops, sender, now)
            case ProxyMessage(_, filter):
                return self._want(place, filter, sender, now)
            case UnproxyMessage(_, filter):
                return self._unwant(place, filter, sender, now)
            case TreePublication(tree, source, _, publication, hops):
                effects = self._notify(place, publication, hops, None)
                inner: Message = PublicationMessage(publication, hops)
            case TreeSubscription(tree, source, _, filter):
                effects, inner = [], SubscriptionMessage(filter)
            case TreeUnsubscription(tree, source, _, filter):
                effects, inner = [], UnsubscriptionMessage(filter)
        if tree not in place.trees:
            return [Note(f"dropped: tree {tree} is not joined here")]
        onward = place.trees[tree].on_message(inner, source, now)
        return effects + self._on_tree(place, tree, onward, now)

    # A seat that moves.

    def _hand_over(self, seat: Seat, to: BrokerId, now: TimeUs) -> list[Effect]:
        if seat not in self.seats or seat in self.leaving or to == self.broker:
            return [Note(f"dropped: seat {seat} cannot be handed to {to}")]
        if to not in self.plan.clique_of[self.broker]:
            return [Note(f"dropped: seat {seat} is in another clique than {to}")]
        self.leaving[seat] = (to, dict.fromkeys(filter(self._reaches, self._senders(seat))))
        turn = self.turns.get(seat, 0) + 1
        return [Send(server, Moving(seat, to, turn)) for server in self.leaving[seat][1]]

    def _senders(self, seat: Seat) -> list[BrokerId]:
        """The other servers that send to a seat: its clique, and its neighbours' hosts."""
        senders = set(self.plan.clique_of[seat])
        for peers in self.plan.tree_peers[seat].values():
            senders.update(map(self._host, peers))
        return sorted(senders - {self.broker})

    def _flushed(self, seat: Seat, server: BrokerId, now: TimeUs) -> list[Effect]:
        """When all who send to the seat have answered, pass its tables on."""
        to, waiting = self.leaving[seat]
        waiting.pop(server, None)
        if waiting:
            return []
        del self.leaving[seat]
        place = self.seats.pop(seat)
        self.hosts[seat] = to
        self.turns[seat] = self.turns.get(seat, 0) + 1
        sources = place.proxied.sources.items()
        proxied = tuple((filter, server) for filter, servers in sources for server in servers)
        heard = tuple(
            (tree, peer, filter)
            for tree, router in place.trees.items()
            for filter, peers in router.table.sources.items()
            for peer in peers
            if peer != LOCAL
        )
        near = {peer for peers in place.peers.values() for peer in peers}
        hosts = tuple((peer, self._host(peer), self.turns.get(peer, 0)) for peer in sorted(near))
        place.clear(now)
        effects: list[Effect] = [Send(to, Seated(seat, proxied, heard, hosts))]
        return effects + [Send(each, Done(seat)) for each in self._senders(seat) if each != to]

    def _seated(self, message: Seated, now: TimeUs) -> list[Effect]:
        """Take the seat: what its routers would say now, the old host has said already."""
        seat = message.seat
        place = self.seats[seat] = Place(seat, self.plan)
        for near, host, turn in message.hosts:
            self.hosts[near], self.turns[near] = host, turn
        for tree, router in place.trees.items():
            for peer in place.peers[tree]:
                router.on_link_up(peer, now)
        for tree, peer, filter in message.heard:
            place.trees[tree].on_message(SubscriptionMessage(filter), peer, now)
        for filter, server in message.proxied:
            known = filter in place.proxied.sources
            place.proxied.add(filter, server)
            for tree, router in {} if known else place.trees.items():
                narrowed = self.plan.layout.tree_zones[tree].narrow(filter)
                if narrowed is not None:
                    router.on_subscribe(Subscription(str(filter), narrowed), now)
        effects: list[Effect] = [Send(server, Ready(seat)) for server in self._senders(seat)]
        if seat in self.moves:
            self.moves[seat].done = self.moves[seat].resumed = True
        return effects + self._arrived(seat, now)

    def _arrived(self, seat: Seat, now: TimeUs) -> list[Effect]:
        """The old host has said its last word and the new one is ready: let go what waited."""
        move = self.moves.get(seat)
        if move is None or not (move.done and move.resumed):
            return []
        del self.moves[seat]
        self.hosts[seat], self.turns[seat] = move.to, move.turn
        effects: list[Effect] = []
        for held in move.held:
            effects += self._to(seat, held, now)
        for message, sender in move.early:
            effects += self._at_seat(message, sender, now)
        return effects

    # A server that started again.

    def _on_hosted(
        self, seat: Seat, host: BrokerId, turn: int, sender: BrokerId, now: TimeUs
    ) -> list[Effect]:
        if host == self.broker and seat in self.seats:
            self.turns[seat] = max(turn, self.turns.get(seat, 0))
            if seat == self.broker:
                return []  # both sides have told all when the link came up
            place = self.seats[seat]
            again: list[Effect] = [Send(sender, Afresh(seat, self.turns[seat]))]
            return again + self._resume_with(place, sender, now)
        if turn <= self.turns.get(seat, 0) or seat in self.moves:
            return []
        self.hosts[seat], self.turns[seat] = host, turn
        if host == self.broker:
            return self._take_up(seat, turn, now)
        if seat in self.seats:
            self.seats.pop(seat).clear(now)
        # The host may have started again, too, and have nobody else to tell it.
        effects: list[Effect] = [Send(host, Hosted(seat, host, turn))]
        for filter in self.moved.get(seat, ()):
            effects += self._to(seat, ProxyMessage(seat, filter), now)
        for place in self.seats.values():
            if any(seat in peers for peers in place.peers.values()):
                effects.append(Send(host, Afresh(place.seat, self.turns.get(place.seat, 0))))
                effects += self._resume_with(place, host, now)
        return effects

    def _hosted(self, seat: Seat) -> Hosted:
        return Hosted(seat, self._host(seat), self.turns.get(seat, 0))

    def _take_up(self, seat: Seat, turn: int, now: TimeUs) -> list[Effect]:
        """Have a seat again, and ask all who send to it what they told before."""
        place = self.seats[seat] = Place(seat, self.plan)
        effects: list[Effect] = [Send(each, Afresh(seat, turn)) for each in self._senders(seat)]
        for tree, router in place.trees.items():
            for near in place.peers[tree]:
                effects += self._on_tree(place, tree, router.on_link_up(near, now), now)
        return effects + self._tell_again(seat, now)

    def _on_afresh(self, seat: Seat, turn: int, sender: BrokerId, now: TimeUs) -> list[Effect]:
        # Whoever started again asks where seats were planned, and has not heard who has them since.
        near = {near for peers in self.plan.tree_peers[seat].values() for near in peers}
        effects: list[Effect] = [
            Send(sender, self._hosted(each))
            for each in sorted(near)
            if self.turns.get(each) and self._host(each) not in (sender, self.broker)
        ]
        if turn > self.turns.get(seat, 0):
            return effects + self._on_hosted(seat, sender, turn, sender, now)
        return effects + (self._tell_again(seat, now) if self._host(seat) == sender else [])

    def _tell_again(self, seat: Seat, now: TimeUs) -> list[Effect]:
        """All that a seat is to know from here: of seats beside it, and of local clients; of those
        last, because a seat that is here passes them on at once, to seats that forget before."""
        effects: list[Effect] = []
        for place in self.seats.values():
            for tree, peers in place.peers.items():
                if seat in peers:
                    effects += self._resume(place, tree, seat, now)
        for filter in self.moved.get(seat, ()):
            effects += self._to(seat, ProxyMessage(seat, filter), now)
        return effects

    def _resume_with(self, place: Place, host: BrokerId, now: TimeUs) -> list[Effect]:
        """The same for all neighbours of a place that one server has."""
        effects: list[Effect] = []
        for tree, peers in place.peers.items():
            for near in peers:
                if self._host(near) == host:
                    effects += self._resume(place, tree, near, now)
        return effects

    def _resume(self, place: Place, tree: int, near: Seat, now: TimeUs) -> list[Effect]:
        """Forget what a neighbour on a tree told, and tell it all."""
        changes = place.trees[tree].on_link_down(near, now)
        changes += place.trees[tree].on_link_up(near, now)
        return self._on_tree(place, tree, changes, now)

    # Links.

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        """Tell the peer which seats are elsewhere, and what its own seat is to know; of others
        that it has it asks (`Afresh`)."""
        self.up[peer] = None
        # Of seats that this server sends to: of others it may not have heard the latest.
        known = set(self.moved)
        for place in self.seats.values():
            known.update(near for peers in place.peers.values() for near in peers)
        effects: list[Effect] = [
            Send(peer, self._hosted(seat)) for seat in sorted(known) if self.turns.get(seat)
        ]
        if self._host(peer) != peer:
            return effects
        for filter in self.moved.get(peer, ()):
            effects += self._to(peer, ProxyMessage(peer, filter), now)
        for place in self.seats.values():
            for tree, peers in place.peers.items():
                for near in peers:
                    if near == peer:
                        changes = place.trees[tree].on_link_up(near, now)
                        effects += self._on_tree(place, tree, changes, now)
        return effects

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        self.up.pop(peer, None)
        effects: list[Effect] = []
        for place in self.seats.values():
            for filter in place.proxied.wanted_from(peer):
                effects += self._unwant(place, filter, peer, now)
            for tree, peers in place.peers.items():
                for near in peers:
                    if self._host(near) == peer:
                        changes = place.trees[tree].on_link_down(near, now)
                        effects += self._on_tree(place, tree, changes, now)
        for seat, (_, waiting) in list(self.leaving.items()):
            if peer in waiting:
                effects += self._flushed(seat, peer, now)
        return effects

    def table_entries(self) -> int:
        """Filters of local clients, of the clique and of the trees."""
        return len(self.local) + sum(
            len(place.proxied) + sum(len(router.table) for router in place.trees.values())
            for place in self.seats.values()
        )

    def check(self) -> None:
        self.local.check()
        for place in self.seats.values():
            assert place.proxied.entries_count == sum(map(len, place.proxied.sources.values()))
            for router in place.trees.values():
                router.check()
        asked = {f for wanted in self.moved.values() for own in wanted.values() for f in own}
        assert asked <= set(self.local.holders)
        for seat, place in self.seats.items():
            if seat in self.moved and seat not in self.moves:
                assert self.moved[seat].keys() == set(place.proxied.wanted_from(self.broker))
