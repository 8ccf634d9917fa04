"""Publishers that move: MQTT 5 server redirection for what POP and GRAPE decide.

The source sends DISCONNECT 0x9C with a server reference and, in the user property `$migrate`, the
advertisement that moves. The client closes its side, which tells the source that nothing more
comes (`Paused`), and connects to the target with the same `$migrate` (`Migrate`); the target
holds what it publishes until the routers agree (`Resume`). Publications of quality 1 that came too
late at the source are not acknowledged there, so the client sends them again at the target.

Only a client that said `$follow` in CONNECT is moved; any other stays where it is, which the
routers take for an answer. All topics of one that follows are a single advertisement, which
grows with them by new epochs.

A state machine: it is told what happened and returns what it wants done, in order (`Order`), as
routers do. It holds nothing of the broker and calls nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec

from postroad.errors import InputError
from postroad.filters import parse
from postroad.live.edge.mqtt import Malformed
from postroad.live.edge.session import NOTHING, Connection, Session
from postroad.model import Advertisement, AdvertisementId, BrokerId, TimeUs
from postroad.relocation.publisher import GRACE_US
from postroad.routing.base import Advertise, Input, Migrate, Move, Paused, Resume, Unadvertise

log = logging.getLogger("postroad.moves")

LEAVE_US = 2_000_000  # by then a client that was sent elsewhere must have closed
ARRIVE_US = 10_000_000  # by then the routers must have agreed on where it is


class Ticket(msgspec.Struct):
    """An advertisement as `$migrate` carries it."""

    id: AdvertisementId
    filter: str
    publisher: str
    epoch: int
    names: list[str]  # what the client's session calls it: its topics, or that it was declared


@dataclass(frozen=True, slots=True)
class Step:
    """Give the router an input."""

    input: Input


@dataclass(frozen=True, slots=True)
class After:
    """Later, ask what there is to do then."""

    wait_us: TimeUs
    then: Callable[[], list[Order]]


@dataclass(frozen=True, slots=True)
class Redirect:
    """Send a connected publisher to another broker."""

    connection: Connection
    target: BrokerId
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Close:
    connection: Connection


@dataclass(frozen=True, slots=True)
class Release:
    """Take what a connection sends from now on."""

    connection: Connection


Order = Step | After | Redirect | Close | Release


class Moves:
    def __init__(self) -> None:
        self._known: dict[AdvertisementId, tuple[Session, Advertisement]] = {}
        self.count = 0

    # What clients of this broker advertise.

    def advertised(self, session: Session, advertisement: Advertisement) -> None:
        self._known[advertisement.id] = (session, advertisement)

    def advertisement(self, advertisement_id: AdvertisementId) -> Advertisement:
        return self._known[advertisement_id][1]

    def advertisements(self) -> Iterator[Advertisement]:
        return (advertisement for _, advertisement in self._known.values())

    def withdrawn(self, advertisement_id: AdvertisementId) -> None:
        del self._known[advertisement_id]

    # At the source.

    def move(self, order: Move) -> list[Order]:
        """The router wants a publisher elsewhere; acknowledge first what brought it to this."""
        return [After(1, lambda: self._send_away(order))]

    def _send_away(self, order: Move) -> list[Order]:
        """Send the publisher there if it can follow."""
        session, advertisement = self._known.get(order.advertisement_id, (None, None))
        connection = None if session is None else session.connection
        if session is None or advertisement is None or connection is None:
            return []
        alone = set(session.advertised.values()) == {order.advertisement_id}
        if not connection.follows or not alone or connection.moving is not None:
            return []
        if order.epoch <= advertisement.epoch:  # it has begun to publish something else since
            return []
        ticket = Ticket(
            advertisement.id,
            str(advertisement.filter),
            advertisement.publisher,
            order.epoch,
            list(session.advertised),
        )
        connection.moving = order
        self.count += 1
        session.will = None
        return [
            Redirect(connection, order.target, ticket),
            After(LEAVE_US, lambda: [Close(connection)]),
        ]

    def left(self, session: Session, order: Move) -> list[Order]:
        """The client has closed: nothing more of it comes here."""
        name = order.advertisement_id
        session.advertised.clear()
        session.ready = NOTHING
        self._known.pop(name, None)
        # If it never arrives, its advertisement ends here; if it did, this changes nothing.
        return [Step(Paused(name, order.epoch)), After(ARRIVE_US, lambda: self._forget(name))]

    def _forget(self, name: AdvertisementId) -> list[Order]:
        return [] if name in self._known else [Step(Unadvertise(name))]

    # At the target.

    def arrived(self, session: Session, text: str) -> list[Order]:
        """A publisher comes from another broker; hold it until the routers agree."""
        connection = session.connection
        assert connection is not None
        try:
            ticket = msgspec.json.decode(text, type=Ticket)
            filter = parse(ticket.filter)
        except (msgspec.DecodeError, InputError) as error:
            raise Malformed(f"$migrate: {error}", 0x83) from None
        holder, _ = self._known.get(ticket.id, (session, None))
        if ticket.publisher != session.client_id or holder is not session:
            raise Malformed("$migrate is another client's", 0x83)
        advertisement = Advertisement(ticket.id, filter, ticket.publisher, ticket.epoch)
        self._known[ticket.id] = (session, advertisement)
        session.advertised = dict.fromkeys(ticket.names, ticket.id)
        session.declared = "$advertise" in ticket.names
        connection.held = True
        return [
            Step(Migrate(advertisement)),
            After(ARRIVE_US, lambda: self._settle_here(advertisement)),
        ]

    def go_on(self, word: Resume) -> list[Order]:
        """The router lets a publisher go on here."""
        session, advertisement = self._known.get(word.advertisement_id, (None, None))
        if session is None or advertisement is None:
            # It has gone to the target, and goes on there.
            return [After(1, lambda: self._forget(word.advertisement_id))]
        if word.epoch != advertisement.epoch:
            return []
        return [After(GRACE_US if word.cut else 1, lambda: self._release(session))]

    def _release(self, session: Session) -> list[Order]:
        connection = session.connection
        if connection is None or not connection.held:
            return []
        connection.held = False
        return [Release(connection)]

    def _settle_here(self, advertisement: Advertisement) -> list[Order]:
        """The routers did not agree in time: announce the publisher here, by a new epoch."""
        session, known = self._known.get(advertisement.id, (None, None))
        if session is None or known is not advertisement:
            return []
        connection = session.connection
        if connection is None or not connection.held:
            return []
        anew = replace(advertisement, epoch=advertisement.epoch + 1)
        self._known[advertisement.id] = (session, anew)
        return [Step(Advertise(anew)), After(GRACE_US, lambda: self._release(session))]
