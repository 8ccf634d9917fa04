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
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from postroad.filters import Filter
from postroad.live.edge import topics
from postroad.live.links.messages import Members
from postroad.matching import Index
from postroad.model import BrokerId, Scalar, TimeUs

AWAY = 1 << 20  # added to the distance of a broker that cannot be reached now

# Of a group: its topic filter, its whole filter, members, and those of them that are ready.
Counts = tuple[str, Filter, int, int]


@dataclass(slots=True)
class Gathering:
    pattern: str
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
        self.changes = 0  # statements taken: while there are no more, groups want the same topics
        self.versions: dict[BrokerId, int] = {}
        self.stated: dict[BrokerId, dict[str, Counts]] = {}
        self._index: Index[str] = Index(beside=True)
        self._patterns: Counter[str] = Counter()  # how many groups have each topic filter
        self._topics: Index[str] = Index(beside=True)  # of these, whatever else a group asks for

    def state(self, counts: Mapping[str, Counts | None], now: TimeUs) -> Members | None:
        """What to tell the others of this broker's members of these groups, None where there are
        none; None if that is nothing new."""
        known = self.stated.get(self.number, {})
        changed = {
            name: each
            for name, each in counts.items()
            if each is not None and known.get(name) != each
        }
        gone = tuple(name for name, each in counts.items() if each is None and name in known)
        if not changed and not gone:
            return None
        before = self.versions.get(self.number, 0)
        return Members(self.number, max(now, before + 1), changed, before, gone)

    def whole(self, broker: BrokerId, version: int | None = None) -> Members:
        """All that a broker has stated, perhaps under another version."""
        if version is None:
            version = self.versions[broker]
        return Members(broker, version, dict(self.stated.get(broker, {})))

    def learn(self, members: Members) -> bool:
        """Take a broker's statement; False if it is no news. What was missed comes whole: a link
        that starts afresh begins with it."""
        broker, known = members.broker, self.versions.get(members.broker, 0)
        if known != members.before if members.before >= 0 else known >= members.version:
            return False
        self.versions[broker] = members.version
        self.changes += 1
        stated = self.stated.setdefault(broker, {})
        gone: Iterable[str] = members.gone
        if members.before < 0:
            gone = stated.keys() - members.groups.keys()
        for name in sorted(gone):
            if stated.pop(name, None) is not None:
                self._withdraw(name, broker)
        for name, counts in members.groups.items():
            pattern, filter, count, ready = stated[name] = counts
            group = self.groups.get(name)
            if group is None:
                levels = None if topics.exact(pattern) else topics.matcher(pattern)
                group = self.groups[name] = Gathering(pattern, filter, levels)
                self._index.insert(name, filter)
                self._patterns[pattern] += 1
                if self._patterns[pattern] == 1:
                    self._topics.insert(pattern, topics.as_filter(pattern))
            group.members[broker] = (count, ready)
        return True

    def forget(self, broker: BrokerId) -> None:
        """A broker is no longer of the network."""
        self.versions.pop(broker, None)
        self.changes += 1
        for name in self.stated.pop(broker, {}):
            self._withdraw(name, broker)

    def _withdraw(self, name: str, broker: BrokerId) -> None:
        group = self.groups[name]
        group.members.pop(broker, None)
        group.given.pop(broker, None)
        if not group.members:
            del self.groups[name]
            self._index.remove(name)
            self._patterns[group.pattern] -= 1
            if not self._patterns[group.pattern]:
                del self._patterns[group.pattern]
                self._topics.remove(group.pattern)

    def concerns(self, topic: str) -> bool:
        """Whether a group may want something that is published to a topic."""
        return bool(self.groups) and bool(self._topics.match({"class": topic}))

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
