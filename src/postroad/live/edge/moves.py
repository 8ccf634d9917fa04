"""Publishers that move: MQTT 5 server redirection for what POP and GRAPE decide.

The source sends DISCONNECT 0x9C with a server reference and, in the user property `$migrate`, the
advertisement that moves. The client closes its side, which tells the source that nothing more
comes (`Paused`), and connects to the target with the same `$migrate` (`Migrate`); the target
holds what it publishes until the routers agree (`Resume`). Publications of quality 1 that came too
late at the source are not acknowledged there, so the client sends them again at the target.

Only a client that said `$follow` in CONNECT is moved; any other stays where it is, which the
routers take for an answer. All topics of one that follows are a single advertisement, which
grows with them by new epochs.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import mqtt5
import msgspec

from postroad.errors import InputError
from postroad.filters import parse
from postroad.live.edge.mqtt import Malformed
from postroad.live.edge.session import Session
from postroad.model import Advertisement, AdvertisementId, TimeUs
from postroad.relocation.publisher import GRACE_US
from postroad.routing.base import Advertise, Migrate, Move, Paused, Resume, Unadvertise

if TYPE_CHECKING:
    from postroad.live.edge.clients import Clients

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


class Moves:
    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.known: dict[AdvertisementId, tuple[Session, Advertisement]] = {}
        self.count = 0

    # At the source.

    def move(self, order: Move, now: TimeUs) -> None:
        """The router wants a publisher elsewhere; acknowledge first what brought it to this."""
        self.clients.broker.after(1, lambda later: self._send_away(order))

    def _send_away(self, order: Move) -> None:
        """Send the publisher there if it can follow."""
        session, advertisement = self.known.get(order.advertisement_id, (None, None))
        connection = None if session is None else session.connection
        if session is None or advertisement is None or connection is None:
            return
        alone = set(session.advertised.values()) == {order.advertisement_id}
        if not connection.follows or not alone or connection.moving is not None:
            return
        if order.epoch <= advertisement.epoch:  # it has begun to publish something else since
            return
        network = self.clients.broker.network
        address = network.addresses[order.target]
        ticket = Ticket(
            advertisement.id,
            str(advertisement.filter),
            advertisement.publisher,
            order.epoch,
            list(session.advertised),
        )
        connection.moving = order
        connection.parting = f"moves to broker {network.names[order.target]}"
        self.count += 1
        log.info(
            "publisher moves",
            extra={"client": session.client_id, "to": network.names[order.target]},
        )
        session.will = None
        self.clients._write(
            connection,
            mqtt5.DisconnectPacket(
                reason_code=mqtt5.DisconnectReasonCode.USE_ANOTHER_SERVER,
                server_reference=f"{address.host}:{address.mqtt}",
                user_properties=[("$migrate", msgspec.json.encode(ticket).decode())],
            ),
        )
        self.clients.broker.after(
            LEAVE_US, lambda later: self.clients.close(connection, None, later)
        )

    def left(self, session: Session, order: Move, now: TimeUs) -> None:
        """The client has closed: nothing more of it comes here."""
        name = order.advertisement_id
        session.advertised.clear()
        self.known.pop(name, None)
        broker = self.clients.broker
        broker.step(Paused(name, order.epoch), now)
        # If it never arrives, its advertisement ends here; if it did, this changes nothing.
        broker.after(ARRIVE_US, lambda later: self._forget(name, later))

    def _forget(self, name: AdvertisementId, now: TimeUs) -> None:
        if name not in self.known:
            self.clients.broker.step(Unadvertise(name), now)

    # At the target.

    def arrived(self, session: Session, text: str, now: TimeUs) -> None:
        """A publisher comes from another broker; hold it until the routers agree."""
        connection = session.connection
        assert connection is not None
        try:
            ticket = msgspec.json.decode(text, type=Ticket)
            filter = parse(ticket.filter)
        except (msgspec.DecodeError, InputError) as error:
            raise Malformed(f"$migrate: {error}", 0x83) from None
        holder, _ = self.known.get(ticket.id, (session, None))
        if ticket.publisher != session.client_id or holder is not session:
            raise Malformed("$migrate is another client's", 0x83)
        advertisement = Advertisement(ticket.id, filter, ticket.publisher, ticket.epoch)
        self.known[ticket.id] = (session, advertisement)
        session.advertised = dict.fromkeys(ticket.names, ticket.id)
        session.declared = "$advertise" in ticket.names
        connection.held = True
        broker = self.clients.broker
        broker.step(Migrate(advertisement), now)
        broker.after(ARRIVE_US, lambda later: self._settle_here(advertisement, later))

    def go_on(self, word: Resume, now: TimeUs) -> None:
        """The router lets a publisher go on here."""
        session, advertisement = self.known.get(word.advertisement_id, (None, None))
        if session is None or advertisement is None:
            # It has gone to the target, and goes on there.
            self.clients.broker.after(1, lambda later: self._forget(word.advertisement_id, later))
        elif word.epoch == advertisement.epoch:
            wait_us = GRACE_US if word.cut else 1
            self.clients.broker.after(wait_us, lambda later: self._release(session, later))

    def _release(self, session: Session, now: TimeUs) -> None:
        connection = session.connection
        if connection is not None and connection.held:
            connection.held = False
            self.clients.dirty[connection] = None
            self.clients.proceed(connection, now)

    def _settle_here(self, advertisement: Advertisement, now: TimeUs) -> None:
        """The routers did not agree in time: announce the publisher here, by a new epoch."""
        session, known = self.known.get(advertisement.id, (None, None))
        if session is None or known is not advertisement:
            return
        connection = session.connection
        if connection is not None and connection.held:
            anew = replace(advertisement, epoch=advertisement.epoch + 1)
            self.known[advertisement.id] = (session, anew)
            self.clients.broker.step(Advertise(anew), now)
            self.clients.broker.after(GRACE_US, lambda later: self._release(session, later))
