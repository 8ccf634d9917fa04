"""Where publications go, for those who hand them out without asking the router about each: all
that is published to a topic, and whatever a filter matches, by where it comes from.

It is remembered until the broker's tables change, which `ways_from` looks at: whoever begins to
hand out calls it first. Topics whose publications do not all go the same way are set apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from postroad.filters import Filter
from postroad.live.edge import content
from postroad.live.edge.host import Host
from postroad.live.edge.mqtt import V3
from postroad.live.edge.session import SECOND_US, Connection, Held, Session
from postroad.matching.index import NEIGHBOUR, OLD, PLAIN, Index
from postroad.model import BrokerId, SubscriptionId, TimeUs

if TYPE_CHECKING:
    from postroad.matching.fanout import Fanout

TOPICS_KNOWN = 32_768  # topics that are remembered in any one place,
TOPIC_BYTES = 128  # if they are no longer than that
AT_ONCE = 8  # clients that are written to without a turn, and whose ways are remembered

# Sessions that get what is published to a topic, and neighbours.
Way = tuple[tuple[Session, ...], list[BrokerId]]
# Sessions and neighbours that want what a filter matches, by the filter's identity; None is among
# them if some session wants it of some topics only.
Whose = dict[int, tuple[Session | BrokerId | None, ...]]


class Destinations(NamedTuple):
    """Where a publication goes at once: the clients that get it, and neighbours. One that is
    `lasting` is that of all to this topic, which begin with this field."""

    topic: str
    field: bytes
    lasting: bool
    targets: list[Connection]
    peers: list[BrokerId]


class KnownWays:
    def __init__(self, broker: Host, holders: Mapping[SubscriptionId, Held]) -> None:
        self.broker, self.holders = broker, holders
        self.version = 0  # of the routes of which all this is
        # Topics whose publications do not all go the same way, and those of which that is sure only
        # until the next tick: to ask the router about each is always right.
        self.apart: set[str] = set()
        self._apart_briefly: list[str] = []
        # Those of them that do, and come in turn: compiled code has them for a while.
        self.in_turn: set[str] = set()
        # Those of them that no shared subscription wants: of an own client's publications filters
        # alone decide. What comes from a neighbour was given to groups where it was published.
        self.groupless: set[str] = set()
        # Where all that is published to a topic goes, by where it comes from.
        self._ways: dict[BrokerId | None, dict[str, Way]] = {}
        self.whose: dict[BrokerId | None, Whose] = {}  # the same of filters,
        self._fanouts: dict[BrokerId | None, Fanout[Filter, Session | BrokerId]] = {}  # compiled
        self._retried_us: TimeUs = 0  # when rows that were kept back there were last let go

    def tick(self, now: TimeUs) -> None:
        """Look anew at what was not ready."""
        self.apart.difference_update(self._apart_briefly)
        self.groupless.difference_update(self._apart_briefly)
        self._apart_briefly.clear()
        if now - self._retried_us >= SECOND_US:
            self._retried_us = now
            self.apart.difference_update(self.in_turn)
            self.groupless.difference_update(self.in_turn)
            self.in_turn.clear()
            for fanout in self._fanouts.values():
                fanout.try_again()  # whoever needed a further look may not need it any more

    def ways_from(self, sender: BrokerId | None) -> dict[str, Way]:
        """The known ways of publications that come from there."""
        version = self.broker.routes_version()
        if version != self.version:
            self.version = version
            self.apart.clear()
            self.groupless.clear()
            self.in_turn.clear()
            self._ways.clear()
            self.whose.clear()
            self._fanouts.clear()
        return self._ways.setdefault(sender, {})

    def set_apart(self, topic: str) -> None:
        """Ask about each publication to a topic: until the tables change, if filters want to know
        what it says, and otherwise, where a client or a neighbour was not ready, until a tick."""
        if len(self.apart) >= TOPICS_KNOWN:
            self.apart.clear()
            self.groupless.clear()
            self.in_turn.clear()
        self.in_turn.discard(topic)
        self.apart.add(topic)
        if not self.broker.groups_want(topic):
            self.groupless.add(topic)
        if len(topic) > TOPIC_BYTES or not self.broker.content_matters(topic):
            self._apart_briefly.append(topic)

    def goes_one_way(self, topic: str) -> bool:
        """Whether all that is published to a topic goes the same way, as far as is known."""
        return topic not in self.apart or topic in self.in_turn

    def comes_in_turn(self, topic: str) -> None:
        """This topic is one of many that are published to in turn: for a second compiled code asks
        filters where it goes, many publications in a call. Those in a row go faster together."""
        if len(self.apart) < TOPICS_KNOWN and topic not in self.apart:
            self.apart.add(topic)
            if not self.broker.groups_want(topic):
                self.groupless.add(topic)
            self.in_turn.add(topic)

    def wanted_by_nobody(self, topic: str) -> None:
        """What own clients publish to a topic goes to nobody, which filters say as well."""
        self.apart.add(topic)
        self.groupless.add(topic)

    def way(self, topic: str, sender: BrokerId | None, ways: dict[str, Way]) -> Way | None:
        """Where each publication to a topic goes, if that is the same for all and few clients."""
        recipients = self.broker.recipients(topic, sender)
        if recipients is None:
            self.set_apart(topic)
            return None
        sessions: dict[Session, None] = {}
        for name in recipients[0]:
            held = self.holders.get(name)
            if held is None or len(sessions) > AT_ONCE:
                return None
            if held.asks(topic):
                sessions[held.session] = None
        if len(sessions) > AT_ONCE:
            return None
        way = tuple(sessions), recipients[1]
        if len(topic) <= TOPIC_BYTES:
            if len(ways) >= TOPICS_KNOWN:
                ways.clear()
            ways[topic] = way
        return way

    def who_gets(
        self, filters: list[Filter], whose: Whose, sender: BrokerId | None
    ) -> tuple[list[Connection], list[BrokerId]] | None:
        """The clients and the neighbours that want what one of these filters matches; None if one
        of these clients needs a further look."""
        try:
            wanting = dict.fromkeys(chain.from_iterable(map(whose.__getitem__, map(id, filters))))
        except KeyError:
            for filter in filters:
                # The tables hold the filter for as long as they are of this version.
                whose[id(filter)] = self._whose_is(filter, sender)
            wanting = dict.fromkeys(chain.from_iterable(map(whose.__getitem__, map(id, filters))))
        targets: list[Connection] = []
        onward: list[BrokerId] = []
        for each in wanting:
            if isinstance(each, int):
                onward.append(each)
                continue
            target = None if each is None else each.direct
            if target is None or target.full:
                return None
            targets.append(target)
        if len(onward) > 1:
            onward.sort()
        return targets, onward

    def _whose_is(
        self, filter: Filter, sender: BrokerId | None
    ) -> tuple[Session | BrokerId | None, ...]:
        """Whom a match with this filter names, as `Whose` has it. A subscription that nobody holds
        any more will soon leave the tables."""
        names, onward = self.broker.wanting(filter, sender)
        all_held = [self.holders[name] for name in names if name in self.holders]
        sessions = [None if held.terms.levels else held.session for held in all_held]
        return (*dict.fromkeys(sessions), *onward)

    def fanout(
        self, index: Index[Filter], sender: BrokerId | None
    ) -> Fanout[Filter, Session | BrokerId]:
        """Who gets what filters match of what comes from there, as far as that was learned."""
        fanout = self._fanouts.get(sender)
        if fanout is None:
            fanout = self._fanouts[sender] = index.fanout()
        return fanout

    def learn(
        self, fanout: Fanout[Filter, Session | BrokerId], filters: list[Filter], whose: Whose
    ) -> None:
        """Tell compiled code who gets what these filters match, of those that matched before."""
        for filter in filters:
            if fanout.knows(filter) or (wanting := whose.get(id(filter))) is None:
                continue
            recipients = [
                (each, kind)
                for each in wanting
                if each is not None and (kind := _kind(each)) is not None
            ]
            known = recipients if len(recipients) == len(wanting) else None
            fanout.learn(filter, known, filter.tag if self.broker.peers else 0)

    def destinations(
        self, topic: str, field: bytes, payload: bytes, sender: BrokerId | None
    ) -> Destinations | None:
        """Where a publication that comes alone goes; None if it has to go through a turn."""
        if self.broker.records:
            return None
        ways = self.ways_from(sender)
        if self.goes_one_way(topic):
            way = ways.get(topic) or self.way(topic, sender, ways)
            if way is not None:
                targets = [each.direct for each in way[0] if each.direct is not None]
                if len(targets) < len(way[0]):
                    return None
                return Destinations(topic, field, True, targets, way[1])
        index = self.broker.deciding()
        if index is None or (sender is None and self.broker.groups_want(topic)):
            return None
        filters = index.match(content.plain_attributes(topic, payload))
        gets = self.who_gets(filters, self.whose.setdefault(sender, {}), sender)
        return None if gets is None else Destinations(topic, field, False, *gets)


def _kind(recipient: Session | BrokerId) -> int | None:
    """How compiled code writes to a recipient; None to whom it may not."""
    if isinstance(recipient, int):
        return NEIGHBOUR
    if recipient.direct is None:
        return None
    return OLD if recipient.direct.level == V3 else PLAIN
