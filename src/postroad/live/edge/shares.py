"""Shared subscriptions: at which broker a publication is given to a member of a group.

A group is a share name, a topic filter and a content filter. Every broker states how many members
of each group it has, and how many of them are ready for more; the newest statement of each
broker spreads to all. So every broker can match what its own clients publish with all groups,
and choose.

Who chooses: whoever holds the publication. For each group that it matches there is one copy, at
first with the publisher's broker, and later with the one that it was handed to; it moves from
store to store, exactly once, and only its holder may give it to a member or to another broker. So
there is nothing to agree on, and no broker that a group depends on. A broker that has been
handed a copy and has no member any more, or whose member leaves without having acknowledged it,
chooses again.

The choice: a broker with a member that is ready before one without, one that can be reached now
before one that cannot, then the nearest, then in turns by how many are ready.

A state machine: it holds nothing of the broker and calls nobody.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from postroad.filters import Filter
from postroad.live.edge import topics
from postroad.live.links.messages import Members
from postroad.matching import Index
from postroad.model import BrokerId, Scalar, TimeUs

AWAY = 1 << 20  # added to the distance of a broker that cannot be reached now

# Of a group: its topic filter, its whole filter, members, and those of them that are ready.
Counts = dict[str, tuple[str, Filter, int, int]]


@dataclass(slots=True)
class Gathering:
    filter: Filter
    levels: re.Pattern[str] | None  # to compare level by level where the filter cannot
    members: dict[BrokerId, tuple[int, int]] = field(default_factory=dict)
    given: dict[BrokerId, int] = field(default_factory=dict)  # to each broker, to take turns


def key(share: str, pattern: str, filter: Filter) -> str:
    """What members of one group have in common."""
    return f"{share}/{pattern} {filter}"


class Shares:
    def __init__(self, number: BrokerId) -> None:
        self.number = number
        self.groups: dict[str, Gathering] = {}
        self.stated: dict[BrokerId, Members] = {}
        self._index: Index[str] = Index()

    def state(self, counts: Counts, now: TimeUs) -> Members | None:
        """What to tell the others of this broker's members; None if that is nothing new."""
        before = self.stated.get(self.number)
        if (before.groups if before is not None else {}) == counts:
            return None
        version = max(now, 0 if before is None else before.version + 1)
        return Members(self.number, version, counts)

    def learn(self, members: Members) -> bool:
        """Take a broker's statement; False if it is no news."""
        before = self.stated.get(members.broker)
        if before is not None and before.version >= members.version:
            return False
        self.stated[members.broker] = members
        for name in (before.groups if before is not None else {}).keys() - members.groups.keys():
            self._withdraw(name, members.broker)
        for name, (pattern, filter, count, ready) in members.groups.items():
            group = self.groups.get(name)
            if group is None:
                levels = None if topics.exact(pattern) else topics.matcher(pattern)
                group = self.groups[name] = Gathering(filter, levels)
                self._index.insert(name, filter)
            group.members[members.broker] = (count, ready)
        return True

    def forget(self, broker: BrokerId) -> None:
        """A broker is no longer of the network."""
        before = self.stated.pop(broker, None)
        for name in before.groups if before is not None else ():
            self._withdraw(name, broker)

    def _withdraw(self, name: str, broker: BrokerId) -> None:
        group = self.groups[name]
        group.members.pop(broker, None)
        group.given.pop(broker, None)
        if not group.members:
            del self.groups[name]
            self._index.remove(name)

    def matching(self, attributes: Mapping[str, Scalar]) -> list[str]:
        """The groups that a publication is for."""
        topic = str(attributes.get("class"))
        return [
            name
            for name in sorted(self._index.match(attributes))
            if (levels := self.groups[name].levels) is None or levels.fullmatch(topic)
        ]

    def choose(
        self, name: str, distances: Mapping[BrokerId, int], without: Container[BrokerId] = ()
    ) -> BrokerId | None:
        """To whom a publication for this group goes; None if nobody has a member."""
        group = self.groups.get(name)
        if group is None:
            return None
        best: BrokerId | None = None
        least: tuple[bool, int, int, BrokerId] | None = None
        for broker, (count, ready) in group.members.items():
            if count and broker not in without and broker in distances:
                distance = distances[broker]
                turns = group.given.get(broker, 0) // max(1, ready)
                rank = (not ready or distance >= AWAY, distance, turns, broker)
                if least is None or rank < least:
                    best, least = broker, rank
        if best is not None:
            group.given[best] = group.given.get(best, 0) + 1
        return best

    def ready(self, name: str, distances: Mapping[BrokerId, int], without: BrokerId) -> bool:
        """Whether another broker has a member that would take something now."""
        group = self.groups.get(name)
        return group is not None and any(
            ready and broker != without and distances.get(broker, AWAY) < AWAY
            for broker, (_, ready) in group.members.items()
        )
