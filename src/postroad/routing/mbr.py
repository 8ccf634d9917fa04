"""Multicast-based routing as Kyra's paper compares with (Cao and Singh 2004, section II.B).

Idea: the content space is cut into cells, and cells that much the same servers want form a
multicast group (K-means, `planning/groups.py`). A group's members are the servers with a
subscription anywhere in it. A publication is matched to its group once, and goes to all members
along a minimum spanning tree over them; a publisher that is no member hands it to the nearest.

State: the members of each group, the local subscriptions. Messages: `membership` to all servers
when a server joins or leaves a group, `publication`. Servers begin with the members that the
planner knew, as in `direct.py`. With `unicast_below` (Opyrchal et al.), a
publication that a smaller share of the servers wants goes to each of them by itself; servers
then tell each other their filters too.

With `clique_ms`, subscriptions move first, as in Kyra (its section VII expects better groups of
that): near servers form a clique and divide the content space among themselves, and a server is a
member of a group for the subscriptions of its clique that lie in its zone. A publication goes to
the server of the publisher's clique whose zone holds it, then to the group, and from each member
to the servers of its clique that want it. Messages besides: `proxy`, `unproxy`, `publication` and
`notification` as in `kyra.py`; zones stay where they were planned.

Where we differ: members come and go after planning. A publication carries the members that its
publisher's server knew, from which each hop finds the same tree, so that a change on the way
loses and repeats nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from postroad.errors import InputError
from postroad.filters import Filter
from postroad.model import BrokerId, Publication, Subscription, SubscriptionId, TimeUs
from postroad.overlay import Overlay
from postroad.overlay.latencies import between_all, spanning_tree
from postroad.planning import kyra as planning
from postroad.planning.groups import forgy
from postroad.planning.zones import Zone, divided_by, zone_of, zones_met
from postroad.routing.base import Effect, Interests, Message, Note, Send
from postroad.routing.direct import ListedMessage, MeshPlan, Unicast
from postroad.routing.kyra import (
    KyraPlan,
    NewPublication,
    Notification,
    ProxyMessage,
    Seat,
    UnproxyMessage,
)
from postroad.routing.pool import FilterPool
from postroad.routing.tables import SourceTable


@dataclass(frozen=True, slots=True)
class Config:
    """`attributes`: on which the space is cut, with commas; without, those that filters name.
    `clique_ms`: the most between two servers of a clique; 0: subscriptions stay where they are."""

    groups: int = 50
    cells: int = 200
    attributes: str = ""
    unicast_below: float = 0.0
    clique_ms: float = 0.0

    def __post_init__(self) -> None:
        if self.groups < 1 or self.cells < 1:
            raise InputError(
                f"groups {self.groups}, cells {self.cells}", remedy="give 1 or more of each"
            )
        if not 0 <= self.unicast_below <= 1:
            raise InputError(
                f"unicast_below is {self.unicast_below}", remedy="give a share of 0 to 1"
            )
        if self.clique_ms < 0:
            raise InputError(f"clique_ms is {self.clique_ms}", remedy="give 0 or more")
        if self.clique_ms and self.unicast_below:
            raise InputError(
                "unicast_below with clique_ms: servers do not know who wants what",
                remedy="leave one of the two out",
            )


class GroupMessage(Message, msgspec.Struct, frozen=True):
    """Whether the sender is a member of a group."""

    kind = "membership"
    wire = "mbr.GroupMessage"
    group: int
    present: bool

    def __str__(self) -> str:
        return f"membership: {'joins' if self.present else 'leaves'} group {self.group}"


MESSAGES = (GroupMessage, ProxyMessage, UnproxyMessage, NewPublication, Notification)
Peers = dict[BrokerId, list[BrokerId]]


@dataclass(frozen=True)
class GroupPlan(MeshPlan):
    cells: Sequence[Zone] = ()
    group: Sequence[int] = ()  # of each cell
    trees: dict[tuple[BrokerId, ...], Peers] = field(default_factory=dict)
    groups_of_filter: dict[Filter, list[int]] = field(default_factory=dict)

    def group_of(self, publication: Publication) -> int:
        return self.group[zone_of(self.cells, publication.attributes)]

    def groups_of(self, filter: Filter) -> list[int]:
        """The groups in which a filter may match something, ascending."""
        groups = self.groups_of_filter.get(filter)
        if groups is None:
            met = {self.group[cell] for cell in zones_met(self.cells, filter)}
            groups = self.groups_of_filter[filter] = sorted(met)
        return groups

    @cached_property
    def joined(self) -> list[dict[int, None]]:
        """Per broker, the groups that it is a member of from the beginning."""
        return [
            dict.fromkeys(sorted({group for filter in own for group in self.groups_of(filter)}))
            for own in self.planned
        ]

    def introductions(self, source: BrokerId, target: BrokerId) -> Mapping[str, int]:
        filters = super().introductions(source, target) if self.config.unicast_below else {}
        return {"membership": count, **filters} if (count := len(self.joined[source])) else {}

    @cached_property
    def members(self) -> dict[int, set[BrokerId]]:
        """The same by group."""
        by_group: dict[int, set[BrokerId]] = {}
        for broker, groups in enumerate(self.joined):
            for group in groups:
                by_group.setdefault(group, set()).add(broker)
        return by_group

    def tree(self, members: tuple[BrokerId, ...]) -> Peers:
        """The neighbours of each member in a spanning tree over them."""
        neighbours = self.trees.get(members)
        if neighbours is None:
            neighbours = {member: [] for member in members}
            for a, b in spanning_tree(self.between_us, members).tolist():
                neighbours[a].append(b)
                neighbours[b].append(a)
            self.trees[members] = neighbours
        return neighbours


@dataclass(frozen=True)
class MovedPlan(GroupPlan):
    """Groups of the proxy servers to which subscriptions move: `present` is of those, too."""

    layout: KyraPlan = field(kw_only=True)


def plan(overlay: Overlay, interests: Interests, config: Config, seed: int = 0) -> GroupPlan:
    names = [name.strip() for name in config.attributes.split(",") if name.strip()]
    wanted, present = interests.subscriptions, interests.present
    divide = planning.divider([filter for _, filter in wanted], attributes=names)
    layout = None
    if config.clique_ms:
        between = between_all(overlay)
        cliques = planning.cliques(between, round(1000 * config.clique_ms))
        layout = KyraPlan(overlay, planning.layout(between, cliques, divide, 1), FilterPool())
        wanted, present = _moved(layout, wanted), _moved(layout, present)
    cells = divide(config.cells)
    distinct = dict.fromkeys(filter for _, filter in wanted)
    met = {filter: zones_met(cells, filter) for filter in distinct}
    wanting = np.zeros((len(cells), overlay.brokers_count), bool)
    for broker, filter in wanted:
        wanting[met[filter], broker] = True
    group = forgy(wanting, config.groups, seed).tolist()
    groups = {filter: sorted({group[cell] for cell in those}) for filter, those in met.items()}
    if layout is None:
        return GroupPlan(
            overlay, MulticastGroups, config, present=present, cells=cells, group=group,
            groups_of_filter=groups,
        )  # fmt: skip
    return MovedPlan(
        overlay, MovedGroups, config, layout.pool, present, cells, group,
        groups_of_filter=groups, layout=layout,
    )  # fmt: skip


def _moved(
    layout: KyraPlan, wanted: Sequence[tuple[BrokerId, Filter]]
) -> list[tuple[BrokerId, Filter]]:
    """What proxy servers want on behalf of others."""
    return [part for broker, filter in wanted for part in layout.narrowed(broker, filter)]


class MulticastGroups(Unicast):
    plan: GroupPlan

    def __init__(self, broker: BrokerId, plan: Any) -> None:
        self.below: float = plan.config.unicast_below
        self.tells = self.below > 0
        super().__init__(broker, plan)
        self.divides_by = divided_by(plan.cells)
        self.mine: dict[int, int] = {}  # local filters per group
        self.left: dict[int, None] = {}  # groups planned for this server, and left since
        self.members: dict[int, set[BrokerId]] = {}  # other servers, where it was not planned
        self.quit: dict[BrokerId, set[int]] = {}  # of those who share the plan, what they left
        self.memberships_count = 0

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        known = subscription.filter in self.table.holders
        effects = super().on_subscribe(subscription, now)
        return effects if known else effects + self._join(subscription.filter)

    def _join(self, filter: Filter) -> list[Effect]:
        """A filter is wanted here: become a member of its groups."""
        effects: list[Effect] = []
        for group in self.plan.groups_of(filter):
            self.mine[group] = self.mine.get(group, 0) + 1
            if self.mine[group] == 1:
                planned = group in self.plan.joined[self.broker] and group not in self.left
                self.left.pop(group, None)
                effects += [
                    Send(peer, GroupMessage(group, True))
                    for peer in self.up
                    if not planned or peer in self.afresh
                ]
        return effects

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        filter = self.table.filter_of.get(subscription_id)
        effects = super().on_unsubscribe(subscription_id, now)
        if filter is None or filter in self.table.holders:
            return effects
        return effects + self._leave(filter)

    def _leave(self, filter: Filter) -> list[Effect]:
        effects: list[Effect] = []
        for group in self.plan.groups_of(filter):
            self.mine[group] -= 1
            if not self.mine[group]:
                del self.mine[group]
                if group in self.plan.joined[self.broker]:
                    self.left[group] = None
                effects += [Send(peer, GroupMessage(group, False)) for peer in self.up]
        return effects

    def share(self, peer: BrokerId) -> None:
        super().share(peer)
        self.quit[peer] = set()
        self.memberships_count += len(self.plan.joined[peer])

    def part(self, peer: BrokerId) -> None:
        super().part(peer)
        gone = self.quit.pop(peer, None)
        if gone is not None:
            self.memberships_count -= len(self.plan.joined[peer]) - len(gone)
        for group in list(self.members):
            self._set(group, peer, False)

    def introduce(self, peer: BrokerId) -> list[Effect]:
        sends: list[Effect] = [Send(peer, GroupMessage(group, True)) for group in self.mine]
        return super().introduce(peer) + sends

    def catch_up(self, peer: BrokerId) -> list[Effect]:
        planned = self.plan.joined[self.broker]
        changed = {group: True for group in self.mine if group not in planned}
        changed |= dict.fromkeys(self.left, False)
        sends: list[Effect] = [
            Send(peer, GroupMessage(group, present)) for group, present in changed.items()
        ]
        return super().catch_up(peer) + sends

    def _set(self, group: int, server: BrokerId, present: bool) -> None:
        gone = self.quit.get(server)
        if gone is not None and group in self.plan.joined[server]:
            self.memberships_count += len(gone)
            (gone.discard if present else gone.add)(group)
            self.memberships_count -= len(gone)
            return
        members = self.members.setdefault(group, set())
        self.memberships_count -= len(members)
        (members.add if present else members.discard)(server)
        self.memberships_count += len(members)
        if not members:
            del self.members[group]

    def _others(self, group: int) -> list[BrokerId]:
        """The other members of a group, ascending."""
        planned = self.plan.members.get(group, ())
        members = {each for each in planned if group not in self.quit.get(each, (group,))}
        return sorted(members | self.members.get(group, set()))

    def spread(self, publication: Publication, servers: Sequence[BrokerId]) -> list[Effect]:
        if len(servers) < self.below * self.plan.overlay.brokers_count:
            return super().spread(publication, servers)
        return self._to_group(publication, 0)

    def _to_group(self, publication: Publication, hops: int) -> list[Effect]:
        group = self.plan.group_of(publication)
        others = self._others(group)
        if not others:
            return []
        if group in self.mine:
            among = tuple(sorted([*others, self.broker]))
            return self._onward(ListedMessage(publication, among, hops), None)
        nearest = min(others, key=lambda peer: (self.plan.between_us[self.broker, peer], peer))
        return [Send(nearest, ListedMessage(publication, tuple(others), hops + 1))]

    def _onward(self, message: ListedMessage, sender: BrokerId | None) -> list[Effect]:
        onward = ListedMessage(message.publication, message.servers, message.hops + 1)
        peers = self.plan.tree(message.servers)[self.broker]
        return [Send(peer, onward) for peer in peers if peer != sender]

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        if isinstance(message, GroupMessage):
            self._set(message.group, sender, message.present)
            return []
        if not isinstance(message, ListedMessage):
            return super().on_message(message, sender, now)
        effects: list[Effect] = []
        self.match(message.publication, message.hops, effects)
        return effects + self._onward(message, sender)

    def table_entries(self) -> int:
        return super().table_entries() + self.memberships_count

    def check(self) -> None:
        super().check()
        planned = sum(len(self.plan.joined[peer].keys() - gone) for peer, gone in self.quit.items())
        assert self.memberships_count == planned + sum(map(len, self.members.values()))
        assert all(self.members.values())
        wanted = {group for filter in self._wanted() for group in self.plan.groups_of(filter)}
        assert wanted == set(self.mine)
        assert not self.left.keys() & wanted

    def _wanted(self) -> Iterable[Filter]:
        """The filters that this server is a member of groups for."""
        return self.table.holders


class MovedGroups(MulticastGroups):
    """Members are proxy servers; `table` has the subscriptions of local clients alone."""

    plan: MovedPlan

    def __init__(self, broker: BrokerId, plan: Any) -> None:
        super().__init__(broker, plan)
        layout = plan.layout.layout
        self.zones = {
            seat: zone
            for seat in plan.layout.clique_of[broker]
            if (zone := layout.zones[seat]) is not None
        }
        self.divides_by |= divided_by(self.zones.values())
        self.proxied = SourceTable(plan.pool)  # who in the clique wants what
        # Per server of the clique, what it is asked for and the local filters that ask for it.
        self.moved: dict[Seat, dict[Filter, dict[Filter, None]]] = {seat: {} for seat in self.zones}

    # Subscriptions.

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        filter = subscription.filter
        if not self.table.subscribe(subscription):
            return []
        effects: list[Effect] = []
        for seat, part in self.plan.layout.narrowed(self.broker, filter):
            asking = self.moved[seat].setdefault(part, {})
            asking[filter] = None
            if len(asking) == 1:
                effects += self._ask(seat, ProxyMessage(seat, part), now)
        return effects

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        filter = self.table.unsubscribe(subscription_id)
        if filter is None:
            return []
        effects: list[Effect] = []
        for seat, part in self.plan.layout.narrowed(self.broker, filter):
            asking = self.moved[seat][part]
            del asking[filter]
            if not asking:
                del self.moved[seat][part]
                effects += self._ask(seat, UnproxyMessage(seat, part), now)
        return effects

    def _ask(self, seat: Seat, message: ProxyMessage | UnproxyMessage, now: TimeUs) -> list[Effect]:
        """Tell the proxy server; one that cannot be reached is told when it can."""
        if seat == self.broker:
            return self.on_message(message, seat, now)
        return [Send(seat, message)] if seat in self.up else []

    def _unwant(self, filter: Filter, server: BrokerId) -> list[Effect]:
        if not self.proxied.remove(filter, server):
            return [Note(f"dropped: {server} had not asked for {filter}")]
        return [] if filter in self.proxied.sources else self._leave(filter)

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        effects = super().on_link_up(peer, now)
        return effects + [Send(peer, ProxyMessage(peer, part)) for part in self.moved.get(peer, ())]

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        effects = super().on_link_down(peer, now)
        for filter in self.proxied.wanted_from(peer):
            effects += self._unwant(filter, peer)
        return effects

    # Publications.

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        self.matches_count += 1
        effects: list[Effect] = []
        self.table.deliver(publication, 0, effects)
        seat = next(s for s, zone in self.zones.items() if zone.holds(publication.attributes))
        if seat != self.broker:
            return [*effects, Send(seat, NewPublication(seat, publication, 1))]
        return effects + self._route(publication, 0, seat)

    def _route(self, publication: Publication, hops: int, publisher: BrokerId) -> list[Effect]:
        """At the proxy server of the publisher's clique: notify the clique, then the group."""
        effects = self._notify(publication, hops, publisher)
        return effects + self._to_group(publication, hops)

    def _notify(
        self, publication: Publication, hops: int, publisher: BrokerId | None
    ) -> list[Effect]:
        """Pass a publication on to the servers of the clique that want it."""
        self.matches_count += 1
        wanting: set[BrokerId] = set()
        for filter in self.proxied.pool.match(publication):
            wanting.update(self.proxied.sources.get(filter, ()))
        if publisher is not None:
            wanting.discard(publisher)
        effects: list[Effect] = []
        if self.broker in wanting:
            self.table.deliver(publication, hops, effects)
            wanting.remove(self.broker)
        note = Notification(publication, hops + 1)
        return effects + [Send(server, note) for server in sorted(wanting)]

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        effects: list[Effect] = []
        match message:
            case ListedMessage(publication, _, hops):
                return self._notify(publication, hops, None) + self._onward(message, sender)
            case NewPublication(_, publication, hops):
                return self._route(publication, hops, sender)
            case Notification(publication, hops):
                self.matches_count += 1
                self.table.deliver(publication, hops, effects)
                return effects
            case ProxyMessage(_, filter):
                known = filter in self.proxied.sources
                if not self.proxied.add(filter, sender):
                    return [Note(f"dropped: {sender} had already asked for {filter}")]
                return [] if known else self._join(filter)
            case UnproxyMessage(_, filter):
                return self._unwant(filter, sender)
            case _:
                return super().on_message(message, sender, now)

    def table_entries(self) -> int:
        return super().table_entries() + len(self.proxied)

    def check(self) -> None:
        super().check()
        self.proxied.check()
        assert self.moved.get(self.broker, {}).keys() == set(self.proxied.wanted_from(self.broker))

    def _wanted(self) -> Iterable[Filter]:
        return self.proxied.sources
