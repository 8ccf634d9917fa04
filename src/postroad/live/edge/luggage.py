"""Sessions that move between brokers: does what `homes` orders, with the sessions of this broker.

It packs a session into messages and takes it out of them, and has clients wait that have come
before their session.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import mqtt5

from postroad.live.edge import homes
from postroad.live.edge.homes import Homes
from postroad.live.edge.mqtt import Malformed
from postroad.live.edge.session import SECOND_US, Connection, Session
from postroad.live.links.messages import (
    Residents,
    ResidentsVersions,
    SessionAsked,
    SessionGiven,
    SessionMessage,
)
from postroad.live.links.repair import Spread
from postroad.live.store import Kept, ParcelRow, SubscriptionRow
from postroad.model import BrokerId, TimeUs

if TYPE_CHECKING:
    from postroad.live.edge.clients import Clients

log = logging.getLogger("postroad.sessions")

PRUNE_US = 5 * SECOND_US  # so often it is looked for publications that cannot come twice any more


class Luggage:
    def __init__(self, clients: Clients) -> None:
        self.clients, self.broker = clients, clients.broker
        wait_us = clients.limits.session_wait_s * SECOND_US
        self.homes = Homes(self.broker.number, wait_us, self.broker.journal)
        self.waiting: dict[str, Connection] = {}  # who came before its session
        self.early: dict[Connection, None] = {}  # who came before this broker knew of the others'
        self.until_us = self.broker.now + wait_us  # so long they wait

    # What the broker brings.

    def restore(self, kept: Kept) -> None:
        """Before the sessions are restored."""
        self.homes.restore(kept, self.broker.network.has)

    def restored(self, kept: Kept, now: TimeUs) -> None:
        """After them: those that were on their way go on."""
        sessions = self.clients.sessions
        had = kept.by_owner("had")
        for client, session in sessions.items():
            session.leaving = client in self.homes.leaving
            if client in had:
                session.restore_had(had[client])
                self._prune_later(session)
            if client in self.homes.coming:
                self._stall(session)
            elif client not in self.homes.mine:  # of a store that knew of no others
                self.homes.holds(client, True, self._owner(session.username), now)
        self.follow(self.homes.restored(sessions), now)
        self.forget(now)

    def news(self, now: TimeUs) -> None:
        """Once a turn."""
        self.follow(self.homes.news(now), now)

    def greet(self, peer: BrokerId, now: TimeUs) -> None:
        self.follow(self.homes.greet(peer), now)

    def joined(self, now: TimeUs) -> None:
        """Another tree joins the brokers, and has settled."""
        self.follow(self.homes.joined(), now)

    def on_message(
        self, message: SessionMessage | Residents | ResidentsVersions, sender: BrokerId, now: TimeUs
    ) -> None:
        network = self.broker.network
        if isinstance(message, ResidentsVersions):
            if now >= self.until_us and not self.homes.acquainted:
                self.homes.acquaint()
            self.follow(self.homes.on_versions(message, sender, network.members), now)
            if self.homes.acquainted:
                self._let_in(now)
        elif isinstance(message, Residents):
            if network.has(message.broker):
                self.follow(self.homes.learn(message, sender, now), now)
        elif message.origin in network.members:
            self.follow(self.homes.on_message(message, now), now)

    def forget(self, now: TimeUs) -> None:
        """Brokers may have been removed."""
        for broker in self.homes.known_brokers():
            if not self.broker.network.has(broker):
                self.follow(self.homes.forget(broker), now)

    # What clients bring.

    def at_home(
        self,
        connection: Connection,
        client: str,
        packet: mqtt5.ConnectPacket,
        now: TimeUs,
    ) -> bool:
        """Whether a client can be served: its session is here, or there is none to wait for."""
        outcome = self.homes.outcome(client)
        if outcome:
            self.waiting.pop(client, None)
            self._judge(client, outcome, now)
            return True
        if not packet.clean_start and not self._acquainted(now):
            connection.held = True
            self.early[connection] = None
            return False
        there = self.homes.elsewhere(client)
        users = self.clients.users
        if there is not None and users is not None and there[1][2] != packet.username:
            raise Malformed("a client of this name belongs to another user", 0x85)
        if client in self.waiting:  # it did not wait for the answer: what is asked now counts
            self._taken_over(self.waiting[client], now)
            self.homes.gave_up(client)
        if there is None:
            return True
        _, (_, lasting, _) = there
        session = self.clients.sessions.get(client)
        if packet.clean_start or not lasting:
            if session is not None and session.leaving:
                self._end(session, now)
            return True
        if len(self.clients.sessions) >= self.clients.limits.sessions:
            return True  # it is refused
        self.waiting[client] = connection
        connection.held = True
        self.follow(self.homes.ask(client, self._owner(packet.username), now), now)
        return False

    def _acquainted(self, now: TimeUs) -> bool:
        """Whether it is known here, as far as can be, which sessions are elsewhere."""
        if self.homes.acquainted or now >= self.until_us or len(self.broker.network.members) < 2:
            return True
        if not self.early:
            self.broker.after(self.until_us - now, self._let_in)
        return False

    def _let_in(self, now: TimeUs) -> None:
        early, self.early = self.early, {}
        for connection in early:
            connection.held = False
            self.clients.proceed(connection, now)

    def _judge(self, client: str, outcome: str, now: TimeUs) -> None:
        session = self.clients.sessions.get(client)
        if outcome == homes.OTHERS:
            raise Malformed("a client of this name belongs to another user", 0x85)
        if outcome == homes.BUSY:
            raise Malformed("the session is not free yet: what it published is not safe", 0x88)
        if outcome == homes.LEFT:
            log.warning("session left behind", extra={"client": client[:200]})
            if session is not None and session.leaving:
                self._end(session, now)

    def arrived(self, session: Session, assigned: bool, now: TimeUs) -> None:
        """A client is connected to its session here."""
        if session.expiry_s or not assigned:
            owner = self._owner(session.username)
            self.homes.holds(session.client_id, bool(session.expiry_s), owner, now)

    def closed(self, connection: Connection) -> None:
        """A connection is gone; perhaps it was waiting."""
        self.early.pop(connection, None)
        client = next((c for c, each in self.waiting.items() if each is connection), None)
        if client is not None:
            del self.waiting[client]
            self.homes.gave_up(client)

    def ended(self, session: Session, now: TimeUs) -> None:
        self.follow(self.homes.released(session.client_id), now)

    def _owner(self, username: str | None) -> str | None:
        return None if self.clients.users is None else username

    # Orders.

    def follow(self, orders: Iterable[homes.Order], now: TimeUs) -> None:
        for order in orders:
            match order:
                case homes.Tell(message, again):
                    self.broker.tell(message, again)
                case Spread(message, sender):
                    self.broker.spread(message, sender)
                case homes.Reply(peer, message):
                    self.broker.send(peer, message)
                case homes.Later(wait_us, then):
                    self._later(wait_us, then)
                case homes.Proceed(client):
                    self._proceed(client, now)
                case homes.Pack(asked):
                    self._pack(asked, now)
                case homes.Unpack(given):
                    self._unpack(given, now)
                case homes.Ship(client):
                    self._ship_in_order(client, now)
                case homes.Merge(client, parcels):
                    self._merge(client, parcels, now)
                case homes.Stay(client):
                    self._stay(client)
                case homes.End(client):
                    session = self.clients.sessions.get(client)
                    if session is not None:
                        self._end(session, now)

    def _later(self, wait_us: TimeUs, then: homes.Then) -> None:
        self.broker.after(wait_us, lambda later: self.follow(then(later), later))

    def _proceed(self, client: str, now: TimeUs) -> None:
        connection = self.waiting.get(client)
        if connection is None:
            self.homes.gave_up(client)
            return
        asking = self.homes.asking.get(client)
        if asking is not None and asking.outcome == homes.TAKEN:
            self.homes.gave_up(client)
            self._taken_over(connection, now)
            return
        if asking is None:
            del self.waiting[client]
        connection.held = False
        self.clients.proceed(connection, now)

    def _taken_over(self, connection: Connection, now: TimeUs) -> None:
        """The client has connected again, here or elsewhere."""
        self.waiting = {c: each for c, each in self.waiting.items() if each is not connection}
        self.clients.take_over(connection, now)

    def _end(self, session: Session, now: TimeUs) -> None:
        """Another session of this client counts."""
        if session.connection is not None:
            self.clients.take_over(session.connection, now)
        session.leaving = False
        if not session.ended:
            self.clients.end(session, now)

    def _pack(self, asked: SessionAsked, now: TimeUs) -> None:
        clients, client = self.clients, asked.client
        session = clients.sessions.get(client)
        if session is not None and self._owner(session.username) != asked.user:
            self.follow(self.homes.deny(asked, homes.OTHERS), now)
            return
        if session is not None and session.connection is not None:
            clients.take_over(session.connection, now)
            session = clients.sessions.get(client)  # it may have ended with its connection
        if session is None:
            self.follow(self.homes.deny(asked, homes.GONE), now)
        elif client in self.homes.coming or not self._safe(session):
            self.follow(self.homes.deny(asked, homes.LATER), now)
        else:
            session.leaving = True  # from now on it is written down which publications come
            rows = {held.key: held.row() for held in session.subscriptions.values()}
            recent = [(number, taken.digest) for number, taken in session.recent.items()]
            # One that came a while ago lacks some that others here had.
            had = self.broker.may_come_again() if session.had is None else list(session.had)
            # What came since it was first given away is in the rest, and may come there besides.
            both = {parcel.publication for parcel in session.waiting}
            given = SessionGiven(
                asked.origin, self.broker.number, client, asked.stamp,
                self._owner(session.username), session.expiry_s, rows, session.sent(),
                session.last_id, list(session.received), recent,
                [publication for publication in had if publication not in both],
            )  # fmt: skip
            self.follow(self.homes.give(given), now)

    def _safe(self, session: Session) -> bool:
        """Whether all that the client published is safe: another broker could not tell."""
        onward = [taken.onward for taken in session.recent.values()] + [*session.received.values()]
        return all(self.broker.is_safe(self.broker.still(each)) for each in onward)

    def _unpack(self, given: SessionGiven, now: TimeUs) -> None:
        clients = self.clients
        session = clients.new_session(given.client)
        session.expiry_s = given.expiry_s
        username = given.user
        session.allow(clients.kept_user(username), username)
        clients.begin_keeping(session)
        session.begin_telling_apart(given.had, self.broker.may_owe())
        session.adopt(given.parcels, given.last_id)
        for packet_id in given.received:
            session.receive(packet_id, {})
        for packet_id, digest in given.recent:
            session.taken(packet_id, digest, {})
        self._stall(session)
        self.homes.holds(given.client, True, given.user, now)
        clients.expire_later(session)
        clients.do(None, self._subscribe(session, given.subscriptions))
        log.info("session arrives", extra={"client": given.client[:200], "from": self._name(given)})

    def _name(self, message: SessionMessage) -> str:
        return self.broker.network.names[message.origin]

    def _subscribe(self, session: Session, rows: dict[str, SubscriptionRow]) -> Iterator[bool]:
        for key, row in rows.items():
            self.clients.adopt_subscription(session, key, row, self.broker.now)
            yield False
        self.clients.review(session, self.broker.now)
        for publication in self.broker.kept_publications():
            self.clients.hand_kept(session, publication, self.broker.now)
            yield False
        if self.broker.orderly or not rows:
            self.follow(self.homes.subscribed(session.client_id), self.broker.now)
            return

        def settled(later: TimeUs, reached: bool) -> None:
            self.follow(self.homes.subscribed(session.client_id), later)

        self.broker.settle(settled)

    def _stall(self, session: Session) -> None:
        """Until what waited elsewhere is here, or has been waited for long enough."""
        session.stalled = True

        def go_on(later: TimeUs) -> None:
            if session.stalled and not session.ended:
                self._go_on(session, later)

        self.broker.after(max(1, self.homes.wait_us), go_on)

    def _go_on(self, session: Session, now: TimeUs) -> None:
        session.stalled = False
        session.changed()
        session.drain(now)
        self.clients.written_to(session, now)
        self.clients.regroup(session)

    def _ship_in_order(self, client: str, now: TimeUs) -> None:
        if self.broker.orderly:
            self._ship(client, now)
            return

        def settled(later: TimeUs, reached: bool) -> None:
            self._ship(client, later)

        self.broker.settle(settled)

    def _ship(self, client: str, now: TimeUs) -> None:
        session, leaving = self.clients.sessions.get(client), self.homes.leaving.get(client)
        if session is None or leaving is None or leaving.rest is not None:
            return
        rows = session.take_waiting()
        log.info(
            "session leaves",
            extra={"client": client[:200], "to": self.broker.network.names[leaving.broker]},
        )
        orders = self.homes.shipped(client, rows)
        self.clients.move_out(session)
        self.follow(orders, now)

    def _merge(self, client: str, parcels: list[ParcelRow] | None, now: TimeUs) -> None:
        session = self.clients.sessions.get(client)
        if session is None:
            return
        if parcels is None and session.journal is not None:
            session.overflowed = True
            session.overflow = "what waited for this session at its last broker is gone"
            self.clients.overflowed[session] = None
            return
        session.merge(parcels or [])
        session.stalled = False
        if self.broker.may_owe():
            self._prune_later(session)
        else:
            self._prune(session)
        self._go_on(session, now)

    def _prune(self, session: Session) -> None:
        if session.had is None or session.ended:
            return
        moves = session.stalled or session.client_id in self.homes.coming
        if moves or session.forget_had(self.broker.past, self.broker.quiet):
            self._prune_later(session)

    def _prune_later(self, session: Session) -> None:
        self.broker.after(PRUNE_US, lambda _: self._prune(session))

    def _stay(self, client: str) -> None:
        session = self.clients.sessions.get(client)
        if session is not None:
            session.leaving = False
            self.clients.wait_for(session)
