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

Where we differ: members come and go after planning. A publication carries the members that its
publisher's server knew, from which each hop finds the same tree, so that a change on the way
loses and repeats nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from postroad.errors import InputError
from postroad.filters import Filter
from postroad.model import BrokerId, Publication, Subscription, SubscriptionId, TimeUs
from postroad.overlay import Overlay
from postroad.overlay.latencies import spanning_tree
from postroad.planning import kyra as planning
from postroad.planning.groups import forgy
from postroad.planning.zones import Zone, divided_by, zone_of, zones_met
from postroad.routing.base import Effect, Interests, Message, Send
from postroad.routing.direct import ListedMessage, MeshPlan, Unicast


@dataclass(frozen=True, slots=True)
class Config:
    """`attributes`: on which the space is cut, with commas; without, those that filters name."""

    groups: int = 50
    cells: int = 200
    attributes: str = ""
    unicast_below: float = 0.0

    def __post_init__(self) -> None:
        if self.groups < 1 or self.cells < 1:
            raise InputError(
                f"groups {self.groups}, cells {self.cells}", remedy="give 1 or more of each"
            )
        if not 0 <= self.unicast_below <= 1:
            raise InputError(
                f"unicast_below is {self.unicast_below}", remedy="give a share of 0 to 1"
            )


class GroupMessage(Message, msgspec.Struct, frozen=True):
    """Whether the sender is a member of a group."""

    kind = "membership"
    wire = "mbr.GroupMessage"
    group: int
    present: bool

    def __str__(self) -> str:
        return f"membership: {'joins' if self.present else 'leaves'} group {self.group}"


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


def plan(overlay: Overlay, interests: Interests, config: Config, seed: int = 0) -> GroupPlan:
    filters = [filter for _, filter in interests.subscriptions]
    names = [name.strip() for name in config.attributes.split(",") if name.strip()]
    cells = planning.divider(filters, attributes=names)(config.cells)
    met = {filter: zones_met(cells, filter) for filter in dict.fromkeys(filters)}
    wanted = np.zeros((len(cells), overlay.brokers_count), bool)
    for broker, filter in interests.subscriptions:
        wanted[met[filter], broker] = True
    group = forgy(wanted, config.groups, seed).tolist()
    groups = {filter: sorted({group[cell] for cell in those}) for filter, those in met.items()}
    return GroupPlan(
        overlay, MulticastGroups, config, present=interests.present, cells=cells, group=group,
        groups_of_filter=groups,
    )  # fmt: skip


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
        for group in [] if known else self.plan.groups_of(subscription.filter):
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
        group = self.plan.group_of(publication)
        others = self._others(group)
        if not others:
            return []
        if group in self.mine:
            among = tuple(sorted([*others, self.broker]))
            return self._onward(ListedMessage(publication, among, 0), None)
        nearest = min(others, key=lambda peer: (self.plan.between_us[self.broker, peer], peer))
        return [Send(nearest, ListedMessage(publication, tuple(others), 1))]

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
        wanted = {group for filter in self.table.holders for group in self.plan.groups_of(filter)}
        assert wanted == set(self.mine)
        assert not self.left.keys() & wanted
