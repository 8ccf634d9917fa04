"""Where each client's session lives, and how one moves to the broker that its client comes to.

A client identifier is unique in the network. Every broker states which clients have their session
there, with a stamp that grows with each place; the newest statement of each broker spreads to
all. So a broker knows at once whether a client that connects has a session elsewhere, and mostly
has nobody to ask. Where two brokers have one, the greater stamp counts, and the other ends.

A session moves in five messages, between two brokers, each said again until it is answered:

    the client's broker              the session's broker
    Asked                   ->       closes the old connection
                            <-       Given: all but what waits; from now on it only collects
    accepts the client, subscribes
    Ready                   ->       what was on its way here has come before this
                            <-       Rest: what waited, and what came since Given
    Taken                   ->       forgets it

Links are first in, first out: a publication that was not for the new broker passed the place
where the ways part before word of the new subscriptions did, and so reaches the old broker before
`Ready`. What both get is told apart by its identifier. Each broker may fall at any moment, with a
store: the session is whole with one of them until the other has it.

A broker that does not answer within `wait_us` is left behind: the client gets a new session, and
the old one ends when its broker learns of the greater stamp.

A state machine: it is told what happened and returns what it wants done, in order (`Order`). It
holds nothing of the broker and calls nobody; the journal is where it writes down what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from postroad.live.links.messages import (
    Residence,
    Residents,
    ResidentsVersions,
    SessionAsked,
    SessionDeclined,
    SessionGiven,
    SessionMessage,
    SessionReady,
    SessionRefused,
    SessionRest,
    SessionTaken,
)
from postroad.live.links.repair import Spread
from postroad.live.store import Journal, Kept, MoveRow, ParcelRow
from postroad.model import BrokerId, TimeUs
from postroad.routing.base import Message

AGAIN_US = 100_000  # so soon something that was not answered is said again, then ever later,
AGAIN_MAX_US = 10_000_000  # but at least so often
SILENT_US = 500_000  # how long one is waited for that did not answer the last time
STATED_MAX = 1_000  # clients that one message tells of
EVERYBODY = -1  # whose residents are in the store if all brokers' are

# Why a session is not given: it is gone; ask another broker; what it published is not safe yet, or
# it is moving; it is another user's.
GONE, ELSEWHERE, LATER, OTHERS = "gone", "elsewhere", "later", "others"
# How asking ended, besides OTHERS: there is no session elsewhere; its broker did not answer; it
# cannot be had now; the client has come to another broker since.
NONE, LEFT, BUSY, TAKEN = "none", "left", "busy", "taken"


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a message to its target; one that is said `again` only if the way is open."""

    message: SessionMessage
    again: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """Send a message to a neighbour."""

    peer: BrokerId
    message: Message


@dataclass(frozen=True, slots=True)
class Later:
    """Ask again in a while what there is to do."""

    wait_us: TimeUs
    then: Then


@dataclass(frozen=True, slots=True)
class Proceed:
    """It is known where the session is: go on with the client that waits."""

    client: str


@dataclass(frozen=True, slots=True)
class Pack:
    """Close the client's connection; then `give` its session, or `deny` it."""

    asked: SessionAsked


@dataclass(frozen=True, slots=True)
class Unpack:
    """Take a session up, subscribe for it, and say so with `subscribed`."""

    given: SessionGiven


@dataclass(frozen=True, slots=True)
class Ship:
    """Give up what is left of a session, and say what that was with `shipped`."""

    client: str


@dataclass(frozen=True, slots=True)
class Merge:
    """Take what waited for a session elsewhere: it is whole now. None if that was lost."""

    client: str
    parcels: list[ParcelRow] | None


@dataclass(frozen=True, slots=True)
class Stay:
    """A session that was given away is not wanted: it goes on here."""

    client: str


@dataclass(frozen=True, slots=True)
class End:
    """A session of the same client elsewhere is newer: end this one."""

    client: str


Then = Callable[[TimeUs], "list[Order]"]
Order = Tell | Spread | Reply | Later | Proceed | Pack | Unpack | Ship | Merge | Stay | End


@dataclass(slots=True)
class Asking:
    """A client waits to hear where its session is."""

    broker: BrokerId
    stamp: int
    user: str | None
    until_us: TimeUs
    wait_us: TimeUs = AGAIN_US
    answered: bool = False
    outcome: str = ""


@dataclass(slots=True)
class Arrival:
    """A session that is here, but for what waited where it was."""

    broker: BrokerId
    stamp: int
    subscribed: bool = False
    wait_us: TimeUs = AGAIN_US


@dataclass(slots=True)
class Departure:
    """A session that another broker has been given, until all of it has arrived there."""

    broker: BrokerId
    stamp: int
    given: SessionGiven | None = None  # None after a restart, until it is said again
    rest: list[ParcelRow] | None = None
    wait_us: TimeUs = AGAIN_US


class Homes:
    def __init__(self, number: BrokerId, wait_us: TimeUs, journal: Journal | None) -> None:
        self.number, self.wait_us, self.journal = number, wait_us, journal
        self.versions: dict[BrokerId, int] = {}
        self.stated: dict[BrokerId, dict[str, Residence]] = {}
        self.mine: dict[str, Residence] = {}  # sessions here
        self._changed: dict[str, None] = {}  # of which the others have not heard
        self.asking: dict[str, Asking] = {}
        self.coming: dict[str, Arrival] = {}
        self.leaving: dict[str, Departure] = {}
        self._silent: set[BrokerId] = set()  # who did not answer the last time
        self.arrived = self.left_behind = 0
        # Whether it has been told of the sessions of all brokers, or of those that have told it of
        # theirs. Some of a network's brokers that start together know of nothing but each other.
        self.acquainted = False
        self._heard = {number}

    # What is kept.

    def restore(self, kept: Kept, has: Callable[[BrokerId], bool]) -> None:
        residents = kept.by_owner("resident")
        for owner, rows in residents.items():
            clients: dict[str, Residence] = {}
            version = 0
            for client, data in rows:
                if client:
                    clients[client] = msgspec.msgpack.decode(data, type=Residence)
                else:
                    version = msgspec.msgpack.decode(data, type=int)
            if has(owner):
                self._take(Residents(owner, version, clients))
        self.mine = dict(self.stated.get(self.number, {}))
        self.acquainted = EVERYBODY in residents
        for client, ((_, data),) in kept.by_owner("move").items():
            row = msgspec.msgpack.decode(data, type=MoveRow)
            if row.leaving:
                self.leaving[client] = Departure(row.broker, row.stamp, None, row.rest)
            else:
                self.coming[client] = Arrival(row.broker, row.stamp)

    def restored(self, sessions: Iterable[str]) -> list[Order]:
        """These sessions are here again, and no others."""
        here = set(sessions)
        known = (*self.mine, *self.coming, *self.leaving)
        orders = [
            order for client in known if client not in here for order in self.released(client)
        ]
        for coming in self.coming.values():
            coming.subscribed = True
        moving: list[tuple[str, Arrival | Departure]] = [
            *self.coming.items(),
            *self.leaving.items(),
        ]
        return [*orders, *(self._again(client, each.stamp) for client, each in moving)]

    def _keep(self, client: str) -> None:
        if self.journal is None:
            return
        coming, leaving = self.coming.get(client), self.leaving.get(client)
        if coming is not None:
            self.journal.put("move", client, 0, MoveRow(coming.broker, coming.stamp, False))
        elif leaving is not None:
            row = MoveRow(leaving.broker, leaving.stamp, True, leaving.rest)
            self.journal.put("move", client, 0, row)
        else:
            self.journal.drop("move", client, 0)

    def _forget(self, client: str, moves: dict[str, Arrival] | dict[str, Departure]) -> None:
        if moves.pop(client, None) is not None:
            self._keep(client)

    # Where sessions are.

    def elsewhere(self, client: str) -> tuple[BrokerId, Residence] | None:
        """The newest session of a client at another broker, if it is newer than one here."""
        known = [each for each in self._stated_of(client) if each[0] != self.number]
        leaving = self.leaving.get(client)
        if leaving is not None and leaving.stamp > max((r[0] for _, r in known), default=0):
            mine = self.mine.get(client) or self.stated.get(self.number, {}).get(client)
            return leaving.broker, (leaving.stamp, True, mine[2] if mine else None)
        if not known:
            return None
        broker, residence = max(known, key=lambda each: (each[1][0], each[0]))
        mine = self.mine.get(client)
        if mine is not None and (mine[0], self.number) > (residence[0], broker):
            return None
        return broker, residence

    def holds(self, client: str, lasting: bool, user: str | None, now: TimeUs) -> None:
        """A client's session is here from now on. Others hear of it if that is news to them: a
        client that comes back only has a greater stamp, should another session turn up."""
        before, coming = self.mine.get(client), self.coming.get(client)
        newest = max((r[0] for _, r in self._stated_of(client)), default=0)
        stamp = max(now, newest + 1) if coming is None else coming.stamp
        known = before is not None and before[1:] == (lasting, user) and newest <= before[0]
        self.mine[client] = (stamp, lasting, user)
        if not known:
            self._changed[client] = None

    def released(self, client: str) -> list[Order]:
        """The session has ended, and with it what is left of it where it came from."""
        coming, leaving = self.coming.get(client), self.leaving.get(client)
        if leaving is not None and leaving.rest is None:
            self._forget(client, self.leaving)
        if self.mine.pop(client, None) is not None:
            self._changed[client] = None
        if coming is None:
            return []
        self._forget(client, self.coming)
        return [Tell(SessionTaken(coming.broker, self.number, client, coming.stamp))]

    # What brokers tell each other of that.

    def news(self, now: TimeUs) -> list[Order]:
        """Once a turn: tell the others what has changed here."""
        orders: list[Order] = []
        while self._changed:
            names = list(self._changed)[:STATED_MAX]
            for name in names:
                del self._changed[name]
            stated = self.stated.get(self.number, {})
            clients = {
                name: self.mine[name]
                for name in names
                if name in self.mine and stated.get(name) != self.mine[name]
            }
            gone = tuple(name for name in names if name not in self.mine and name in stated)
            if clients or gone:
                before = self.versions.get(self.number, 0)
                told = Residents(self.number, max(now, before + 1), clients, before, gone)
                self._take(told)
                self._write(told)
                orders.append(Spread(told, None))
        return orders

    def greet(self, peer: BrokerId) -> list[Order]:
        """A link starts afresh."""
        return [Reply(peer, ResidentsVersions(dict(self.versions)))]

    def on_versions(
        self, message: ResidentsVersions, sender: BrokerId, members: Iterable[BrokerId]
    ) -> list[Order]:
        orders: list[Order] = [
            Reply(sender, Residents(broker, version, dict(self.stated.get(broker, {}))))
            for broker, version in self.versions.items()
            if version > message.versions.get(broker, 0)
        ]
        if not message.answers:
            orders.append(Reply(sender, self._answer()))
        elif not self.acquainted:
            news = set(members if message.heard is None else message.heard) - self._heard
            self._heard |= news
            if self._heard.issuperset(members):
                self.acquaint()
            if news:
                orders.append(Spread(self._answer(), sender if message.heard is None else None))
        return orders

    def _answer(self) -> ResidentsVersions:
        heard = None if self.acquainted else sorted(self._heard)
        return ResidentsVersions(dict(self.versions), True, heard)

    def acquaint(self) -> None:
        """There is nobody left whose sessions are to be waited for."""
        self.acquainted = True
        if self.journal is not None:
            self.journal.put("resident", EVERYBODY, "", 0)

    def learn(self, told: Residents, sender: BrokerId, now: TimeUs) -> list[Order]:
        """Take another broker's statement. What was missed comes whole: a link that starts afresh
        compares versions."""
        if told.broker == self.number:
            if self.versions.get(self.number, 0) >= told.version:
                return []
            # Of before a restart: what counts is what is so now.
            told = Residents(self.number, max(now, told.version + 1), dict(self.mine))
            self._take(told)
            self._write(told)
            return [Spread(told, None)]
        if not self._take(told):
            return []
        self._silent.discard(told.broker)
        self._write(told)
        orders: list[Order] = [Spread(told, sender)]
        for client, (stamp, _, _) in told.clients.items():
            mine, leaving = self.mine.get(client), self.leaving.get(client)
            if mine is None:
                continue
            if (mine[0], self.number) > (stamp, told.broker):
                self._changed[client] = None  # they may not know
                continue
            if leaving is not None and leaving.stamp >= stamp and leaving.broker == told.broker:
                continue  # as it should be
            orders.append(End(client))
        return orders

    def _take(self, told: Residents) -> bool:
        broker, known = told.broker, self.versions.get(told.broker, 0)
        if known != told.before if told.before >= 0 else known >= told.version:
            return False
        self.versions[broker] = told.version
        stated = self.stated.setdefault(broker, {})
        gone: Iterable[str] = told.gone
        if told.before < 0:
            gone = [client for client in stated if client not in told.clients]
        for client in gone:
            stated.pop(client, None)
        stated.update(told.clients)
        return True

    def _stated_of(self, client: str) -> list[tuple[BrokerId, Residence]]:
        """Where a client has sessions, as brokers say."""
        return [(broker, its[client]) for broker, its in self.stated.items() if client in its]

    def _write(self, told: Residents) -> None:
        journal = self.journal
        if journal is None:
            return
        if told.before < 0:
            journal.clear("resident", told.broker)
        for client in told.gone:
            journal.drop("resident", told.broker, client)
        for client, residence in told.clients.items():
            journal.put("resident", told.broker, client, residence)
        journal.put("resident", told.broker, "", told.version)

    def known_brokers(self) -> set[BrokerId]:
        """Who has told of sessions, or has part of one."""
        leaving = (each.broker for each in self.leaving.values())
        return {*self.versions, *leaving, *(each.broker for each in self.coming.values())}

    def forget(self, broker: BrokerId) -> list[Order]:
        """A broker is no longer of the network, nor what was there."""
        self.versions.pop(broker, None)
        self.stated.pop(broker, None)
        if self.journal is not None:
            self.journal.clear("resident", broker)
        orders: list[Order] = []
        for client, leaving in list(self.leaving.items()):
            if leaving.broker == broker:
                self._forget(client, self.leaving)
                orders += [Stay(client)] if leaving.rest is None else []
        for client, coming in list(self.coming.items()):
            if coming.broker == broker:
                self._forget(client, self.coming)
                orders.append(Merge(client, None))
        return orders

    # Asking for a session.

    def ask(self, client: str, user: str | None, now: TimeUs) -> list[Order]:
        """A client is here whose session is elsewhere."""
        there = self.elsewhere(client)
        assert there is not None
        broker, (stamp, _, _) = there
        wait_us = min(self.wait_us, SILENT_US) if broker in self._silent else self.wait_us
        asking = Asking(broker, max(now, stamp + 1), user, now + wait_us)
        self.asking[client] = asking
        return self._ask(client, asking)

    def _ask(self, client: str, asking: Asking) -> list[Order]:
        message = SessionAsked(asking.broker, self.number, client, asking.stamp, asking.user)
        return [Tell(message, True), self._again(client, asking.stamp, asking.wait_us)]

    def outcome(self, client: str) -> str | None:
        """How asking ended; None if nobody was asked, empty if there is no answer yet. Once it is
        known it is told once."""
        asking = self.asking.get(client)
        if asking is None:
            return None
        if asking.outcome:
            del self.asking[client]
        return asking.outcome

    def gave_up(self, client: str) -> None:
        """The client did not wait."""
        self.asking.pop(client, None)

    def _again(self, client: str, stamp: int, wait_us: TimeUs = AGAIN_US) -> Later:
        return Later(wait_us, lambda now: self._due(client, stamp, now))

    def _due(self, client: str, stamp: int, now: TimeUs) -> list[Order]:
        """Say again what was not answered."""
        asking = self.asking.get(client)
        if asking is not None and asking.stamp == stamp and not asking.outcome:
            if now >= asking.until_us:
                return self._conclude(client, asking, BUSY if asking.answered else LEFT)
            there = self.elsewhere(client)
            if there is None:
                return self._conclude(client, asking, NONE)
            if there[1][0] >= asking.stamp or not asking.answered:
                asking.broker = there[0]
            asking.stamp = max(asking.stamp, there[1][0] + 1)
            asking.wait_us = min(2 * asking.wait_us, SILENT_US)
            asking.wait_us = max(1, min(asking.wait_us, asking.until_us - now))
            return self._ask(client, asking)
        moving: Arrival | Departure | None = self.coming.get(client) or self.leaving.get(client)
        if moving is None or moving.stamp != stamp:
            return []
        moving.wait_us = min(2 * moving.wait_us, AGAIN_MAX_US)
        again = self._again(client, stamp, moving.wait_us)
        return [*self._tell_again(client, moving), again]

    def _tell_again(self, client: str, moving: Arrival | Departure) -> list[Order]:
        """What was said last of a session that moves."""
        message: SessionMessage | None = None
        if isinstance(moving, Arrival):
            if moving.subscribed:
                message = SessionReady(moving.broker, self.number, client, moving.stamp)
        elif moving.rest is not None:
            message = SessionRest(moving.broker, self.number, client, moving.stamp, moving.rest)
        elif moving.given is not None:
            message = moving.given
        elif client in self.mine:  # said before a restart, and perhaps never heard
            user = self.mine[client][2]
            return [Pack(SessionAsked(self.number, moving.broker, client, moving.stamp, user))]
        return [] if message is None else [Tell(message, True)]

    def joined(self) -> list[Order]:
        """Another tree joins the brokers: what was on its way in the last one may be lost."""
        moving: dict[str, Arrival | Departure] = {**self.leaving, **self.coming}
        return [
            order for client, each in moving.items() for order in self._tell_again(client, each)
        ]

    def _conclude(self, client: str, asking: Asking, outcome: str) -> list[Order]:
        asking.outcome = outcome
        if outcome == LEFT:
            self._silent.add(asking.broker)
            self.left_behind += 1
        return [Proceed(client)]

    # Messages about one session.

    def on_message(self, message: SessionMessage, now: TimeUs) -> list[Order]:
        self._silent.discard(message.origin)
        match message:
            case SessionAsked():
                return self._on_asked(message)
            case SessionRefused():
                return self._on_refused(message, now)
            case SessionGiven():
                return self._on_given(message)
            case SessionReady():
                return self._on_ready(message)
            case SessionRest():
                return self._on_rest(message)
            case SessionTaken():
                leaving = self.leaving.get(message.client)
                if leaving is None or leaving.stamp != message.stamp:
                    return []
                self._forget(message.client, self.leaving)
                return [] if leaving.rest is not None else [End(message.client)]
            case SessionDeclined():
                leaving = self.leaving.get(message.client)
                if leaving is None or leaving.stamp != message.stamp or leaving.rest is not None:
                    return []
                self._forget(message.client, self.leaving)
                return [Stay(message.client)]
            case _:
                return []

    def _on_asked(self, asked: SessionAsked) -> list[Order]:
        client = asked.client
        leaving, mine = self.leaving.get(client), self.mine.get(client)
        asking = self.asking.get(client)
        if leaving is not None and (leaving.rest is None or mine is None):
            if leaving.broker != asked.origin:
                return self.deny(asked, ELSEWHERE, leaving.broker)
            if leaving.rest is not None:
                return self.deny(asked, GONE)
            if leaving.stamp == asked.stamp and leaving.given is not None:
                return [Tell(leaving.given)]
            # Whoever asks again did not take what it was given.
            if leaving.stamp <= asked.stamp:
                return [Pack(asked)]
            return self.deny(asked, LATER, leaving.stamp)
        if mine is None:
            if asking is None or asking.outcome:
                return self.deny(asked, GONE)
            if asked.stamp < asking.stamp:
                return self.deny(asked, LATER, asking.stamp)
            return [*self._conclude(client, asking, TAKEN), *self.deny(asked, GONE)]
        if mine[0] >= asked.stamp:
            return self.deny(asked, LATER, mine[0])
        return [Pack(asked)]

    def deny(self, asked: SessionAsked, reason: str, known: int = 0) -> list[Order]:
        return [
            Tell(
                SessionRefused(asked.origin, self.number, asked.client, asked.stamp, reason, known)
            )
        ]

    def give(self, given: SessionGiven) -> list[Order]:
        """The session goes: until `Ready` it collects what comes."""
        client = given.client
        self.leaving[client] = Departure(given.target, given.stamp, given)
        self._keep(client)
        return [Tell(given), self._again(client, given.stamp)]

    def _on_refused(self, refused: SessionRefused, now: TimeUs) -> list[Order]:
        client = refused.client
        asking, coming = self.asking.get(client), self.coming.get(client)
        if asking is not None and asking.stamp == refused.stamp and not asking.outcome:
            if refused.origin != asking.broker:
                return []
            if refused.reason == OTHERS:
                return self._conclude(client, asking, OTHERS)
            if refused.reason == GONE:
                leaving = self.leaving.get(client)
                if leaving is not None and leaving.broker == refused.origin and not leaving.rest:
                    if leaving.rest is None and client in self.mine:
                        self._forget(client, self.leaving)
                        return [Stay(client), *self._conclude(client, asking, NONE)]
                    self._forget(client, self.leaving)
                there = self.elsewhere(client)
                if there is None or there[0] == asking.broker:
                    return self._conclude(client, asking, NONE)
                asking.broker = there[0]
                asking.stamp = max(asking.stamp, there[1][0] + 1)
                return self._ask(client, asking)
            asking.answered = True
            if refused.reason == ELSEWHERE:
                asking.broker = refused.known
            else:
                asking.stamp = max(asking.stamp, refused.known + 1)
                if asking.stamp != refused.stamp:
                    return self._ask(client, asking)
        elif (
            coming is not None
            and (coming.broker, coming.stamp) == (refused.origin, refused.stamp)
            and refused.reason == GONE
        ):
            # It ended there, or its broker fell and had no store: what waited there is gone. (From
            # another broker, asked before under the same stamp, it would only mean "not here".)
            self._forget(client, self.coming)
            return [Merge(client, None)]
        return []

    def _on_given(self, given: SessionGiven) -> list[Order]:
        client = given.client
        asking, coming = self.asking.get(client), self.coming.get(client)
        if coming is not None and coming.stamp == given.stamp:
            return []
        expected = asking is not None and asking.stamp == given.stamp and not asking.outcome
        if not expected or client in self.mine:
            return [Tell(SessionDeclined(given.origin, self.number, client, given.stamp))]
        del self.asking[client]
        self._forget(client, self.leaving)  # its turn there and back is over
        self.coming[client] = Arrival(given.origin, given.stamp)
        self._keep(client)
        self.arrived += 1
        return [Unpack(given)]

    def subscribed(self, client: str) -> list[Order]:
        """The session's subscriptions have been made here."""
        coming = self.coming.get(client)
        if coming is None:
            return []
        coming.subscribed = True
        message = SessionReady(coming.broker, self.number, client, coming.stamp)
        return [Tell(message), self._again(client, coming.stamp), Proceed(client)]

    def _on_ready(self, ready: SessionReady) -> list[Order]:
        leaving = self.leaving.get(ready.client)
        if leaving is None or leaving.stamp != ready.stamp:
            gone = SessionRefused(ready.origin, self.number, ready.client, ready.stamp, GONE)
            return [Tell(gone)]
        if leaving.rest is not None:
            rest = SessionRest(leaving.broker, self.number, ready.client, ready.stamp, leaving.rest)
            return [Tell(rest)]
        return [Ship(ready.client)]

    def shipped(self, client: str, rest: list[ParcelRow]) -> list[Order]:
        """All that is left of a session."""
        leaving = self.leaving[client]
        leaving.rest, leaving.given, leaving.wait_us = rest, None, AGAIN_US
        self._keep(client)
        if self.mine.pop(client, None) is not None:
            self._changed[client] = None
        message = SessionRest(leaving.broker, self.number, client, leaving.stamp, rest)
        return [Tell(message)]

    def _on_rest(self, rest: SessionRest) -> list[Order]:
        client, orders = rest.client, list[Order]()
        coming = self.coming.get(client)
        if coming is not None and coming.stamp == rest.stamp:
            self._forget(client, self.coming)
            orders.append(Merge(client, rest.parcels))
        return [*orders, Tell(SessionTaken(rest.origin, self.number, client, rest.stamp))]
