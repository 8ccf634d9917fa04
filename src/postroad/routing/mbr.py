"""Multicast-based routing as Kyra's paper compares with (Cao and Singh 2004, section II.B).

Idea: the content space is cut into cells, and cells that much the same servers want form a
multicast group (K-means, `planning/groups.py`). A group's members are the servers with a
subscription anywhere in it. A publication is matched to its group once, and goes to all members
along a minimum spanning tree over them; a publisher that is no member hands it to the nearest.

State: the members of each group, the local subscriptions. Messages: `membership` to all servers
when a server joins or leaves a group, `publication`. With `unicast_below` (Opyrchal et al.), a
publication that a smaller share of the servers wants goes to each of them by itself; servers
then tell each other their filters too.

Where we differ: members come and go after planning. A publication carries the members that its
publisher's server knew, from which each hop finds the same tree, so that a change on the way
loses and repeats nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from postroad.errors import InputError
from postroad.filters import Filter, intersects
from postroad.model import BrokerId, Publication, Subscription, SubscriptionId, TimeUs
from postroad.overlay import Overlay
from postroad.overlay.latencies import spanning_tree
from postroad.planning import kyra as planning
from postroad.planning.groups import forgy
from postroad.planning.zones import Zone, zone_of
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


@dataclass(frozen=True, slots=True)
class GroupMessage(Message):
    """Whether the sender is a member of a group."""

    kind = "membership"
    group: int
    present: bool


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
        found = self.groups_of_filter.get(filter)
        if found is None:
            met = {g for cell, g in zip(self.cells, self.group, strict=True)
                   if intersects(filter, cell.filter)}  # fmt: skip
            found = self.groups_of_filter[filter] = sorted(met)
        return found

    def tree(self, members: tuple[BrokerId, ...]) -> Peers:
        """The neighbours of each member in a spanning tree over them."""
        found = self.trees.get(members)
        if found is None:
            found = {member: [] for member in members}
            for a, b in spanning_tree(self.between_us, members).tolist():
                found[a].append(b)
                found[b].append(a)
            self.trees[members] = found
        return found


def plan(overlay: Overlay, interests: Interests, config: Config, seed: int = 0) -> GroupPlan:
    filters = [filter for _, filter in interests.subscriptions]
    names = [name.strip() for name in config.attributes.split(",") if name.strip()]
    cells = planning.divider(filters, attributes=names)(config.cells)
    wanted = np.zeros((len(cells), overlay.brokers_count), bool)
    for number, cell in enumerate(cells):
        for broker, filter in interests.subscriptions:
            wanted[number, broker] |= intersects(filter, cell.filter)
    group = forgy(wanted, config.groups, seed).tolist()
    return GroupPlan(overlay, MulticastGroups, config, cells=cells, group=group)


class MulticastGroups(Unicast):
    plan: GroupPlan

    def __init__(self, broker: BrokerId, plan: Any) -> None:
        super().__init__(broker, plan)
        self.below: float = plan.config.unicast_below
        self.tells = self.below > 0
        self.own: dict[int, int] = {}  # local filters per group
        self.members: dict[int, dict[BrokerId, None]] = {}  # other servers
        self.memberships_count = 0

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        known = subscription.filter in self.table.holders
        effects = super().on_subscribe(subscription, now)
        for group in [] if known else self.plan.groups_of(subscription.filter):
            self.own[group] = self.own.get(group, 0) + 1
            if self.own[group] == 1:
                effects += [Send(peer, GroupMessage(group, True)) for peer in self.up]
        return effects

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        filter = self.table.filter_of.get(subscription_id)
        effects = super().on_unsubscribe(subscription_id, now)
        if filter is None or filter in self.table.holders:
            return effects
        for group in self.plan.groups_of(filter):
            self.own[group] -= 1
            if not self.own[group]:
                del self.own[group]
                effects += [Send(peer, GroupMessage(group, False)) for peer in self.up]
        return effects

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        effects = super().on_link_up(peer, now)
        return effects + [Send(peer, GroupMessage(group, True)) for group in self.own]

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        for group in list(self.members):
            self._set(group, peer, False)
        return super().on_link_down(peer, now)

    def _set(self, group: int, server: BrokerId, present: bool) -> None:
        members = self.members.setdefault(group, {})
        self.memberships_count -= len(members)
        if present:
            members[server] = None
        else:
            members.pop(server, None)
        self.memberships_count += len(members)
        if not members:
            del self.members[group]

    def spread(self, publication: Publication, servers: Sequence[BrokerId]) -> list[Effect]:
        if len(servers) < self.below * self.plan.overlay.brokers_count:
            return super().spread(publication, servers)
        group = self.plan.group_of(publication)
        others = self.members.get(group, {})
        if not others:
            return []
        if group in self.own:
            return self._onward(ListedMessage(publication, self._among(others), 0), None)
        nearest = min(others, key=lambda peer: (self.plan.between_us[self.broker, peer], peer))
        return [Send(nearest, ListedMessage(publication, tuple(sorted(others)), 1))]

    def _among(self, others: dict[BrokerId, None]) -> tuple[BrokerId, ...]:
        return tuple(sorted([*others, self.broker]))

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
        return len(self.table) + self.memberships_count

    def check(self) -> None:
        super().check()
        assert self.memberships_count == sum(map(len, self.members.values()))
        assert all(self.members.values())
        wanted = {group for filter in self.table.holders for group in self.plan.groups_of(filter)}
        assert wanted == set(self.own)
