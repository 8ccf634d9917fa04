"""The MQTT side of a broker: what each packet of a client means.

MQTT 5 and 3.1.1, quality of service 0 to 2, retained publications, last will, session expiry,
keep-alive, content filters in SUBSCRIBE's user property `$where`. A client may say in CONNECT's
user property `$advertise` what it will publish; otherwise its broker advertises each topic at the
first publication to it.

Publications of quality 0 that go as they came are dealt with in `runs.py`, many together, and in
`alone.py` without a turn; both take from `ways.py` where they go.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator

import mqtt5
import msgspec
from mqtt5 import ConnAckReasonCode, Packet, PublishPacket

from postroad.errors import InputError
from postroad.filters import EVERYTHING, Filter, conjoin, disjoin, matches, parse, sharing
from postroad.live.edge import content, moves, mqtt, shares, system, topics, users
from postroad.live.edge.alone import Alone
from postroad.live.edge.host import Host
from postroad.live.edge.latency import TIMED, Latency
from postroad.live.edge.luggage import Luggage
from postroad.live.edge.moves import Moves
from postroad.live.edge.mqtt import V3, V5, Letter, Malformed
from postroad.live.edge.runs import LATELY_US, LITTLE_BYTES, SHARE_NS, SHORT_NS, TURN_NS, Runs
from postroad.live.edge.session import (
    NOTHING,
    RECENT,
    SECOND_US,
    Connection,
    Held,
    KeptOnward,
    LastWill,
    Parcel,
    Room,
    Session,
    added,
    put,
    taken,
    terms,
)
from postroad.live.edge.tally import Tally
from postroad.live.edge.users import User, Users
from postroad.live.edge.ways import TOPIC_BYTES, TOPICS_KNOWN, KnownWays
from postroad.live.links.messages import Handoff
from postroad.live.links.neighbour import Onward
from postroad.live.network import Limits
from postroad.live.store import Kept, ParcelRow, SessionRow, SubscriptionRow, WillRow
from postroad.model import (
    Advertisement,
    AdvertisementId,
    BrokerId,
    Publication,
    Scalar,
    Subscription,
    SubscriptionId,
    TimeUs,
)
from postroad.routing.base import (
    Advertise,
    Deliver,
    Effect,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from postroad.traces.schema import (
    AWAY,
    ENDED,
    EXPIRED,
    LEVELS,
    MALFORMED,
    NO_LOCAL,
    SHUT_DOWN,
)

log = logging.getLogger("postroad.clients")

NOT_HERE = "it is not connected here"
TOPICS_MAX = 64  # a client that publishes to more is taken to publish anything
ADVERTISED_MAX = 64  # conjunctions, constraints, values and patterns: all filters are compared
TOPICS_READY = 4_096  # of a client: that may be published to without a further look
CONNECT_US = 10_000_000  # by then a new connection must have said CONNECT
RETAINED_AT_ONCE = 200  # topics looked at for one step of a subscription,
RETAINED_BYTES = 64 << 10  # and so much sent before the client must have read
WEIGHT = 64  # constraints and values of a filter that count as one more subscription,
PATTERN_WEIGHT = 2  # as how many more a LIKE pattern counts that is no mere prefix,
LEVELS_WEIGHT = 4  # and up to how many `+` in a topic filter as one more
REASONS, REASON_MAX = 5, 1_000  # that a reason string tells, and its characters
BLOCKED_BYTES = 4 << 20  # that a client has not read: then it gets no more of quality 0
REPLIES_MAX = 1 << 20  # bytes of answers for a client that reads nothing
ALIASES_MAX = 64  # topic aliases that a client may give


class Clients:
    def __init__(self, broker: Host) -> None:
        self.broker = broker
        self.limits = broker.network.limits
        self.room = Room(self.limits.sessions_bytes)
        self.unread = Room(self.limits.sessions_bytes)  # of what the driver holds for slow readers
        self.connections: dict[Connection, None] = {}
        self.sessions: dict[str, Session] = {}
        self.holders: dict[SubscriptionId, Held] = {}
        self.dirty: dict[Connection, None] = {}  # whom the driver has something to do for
        self.paused: dict[Connection, None] = {}
        self.slowed = 0  # how often somebody sent too much
        self.overflowed: dict[Session, None] = {}  # that lost what they were promised
        self.owing: dict[Connection, None] = {}  # whose publications are not all safe yet
        # Where a driver gives turns by this clock, what came is dealt with in `work`, a bounded
        # share for each; otherwise at once.
        self.clock: Callable[[], int] | None = None
        self.end_ns = 1  # of the share at hand
        # Topics that all may publish to who may publish anything, at most `TOPICS_KNOWN`.
        self.topics: dict[bytes, str] = {}
        self.ready: dict[Connection, None] = {}  # who has sent something since the last turn
        self.behind: dict[Connection, None] = {}  # who had more to do than a share
        self.chores: deque[Iterator[bool]] = deque()  # what is left to do for who is gone
        # When a little came of one client while another had more to do than a share.
        self.little_us: TimeUs = -LATELY_US
        self._passed_over = False  # whether those behind were not served in the last turn
        self.feeding: dict[Session, None] = {}  # who can be sent more of what is retained
        self.filling: dict[Connection, None] = {}  # slow readers of the publication in hand
        self.awaiting: dict[Connection, None] = {}  # publishers that wait for slow readers
        self.relieved = False  # whether some may go on
        self.draining = False
        self.tally = Tally()
        self.latency = Latency()
        self.ways = KnownWays(broker, self.holders)
        self.runs = Runs(self)
        self.alone = Alone(self)
        self.started_us = broker.now
        self.watchers: dict[SubscriptionId, Held] = {}  # subscriptions to `$SYS`
        self.groups: dict[str, dict[SubscriptionId, Held]] = {}  # of shared ones, the members here
        self.regrouped: dict[str, None] = {}  # those that have others than the network was told of
        self._system: dict[str, str] = {}  # its values, as its subscribers were last told
        self.elsewhere: dict[str, int] = {}  # what other workers of the broker count for it
        self._watching = False  # whether they are looked at now and then
        self.moves = Moves()
        self.luggage = Luggage(self)
        self.users: Users | None = None
        if broker.network.users is not None:
            self.users = users.load(broker.network.users)
        self._hosts: Counter[str] = Counter()
        self._fresh: Counter[str] = Counter()
        self._second = 0

    # What is kept of sessions that outlive their connections.

    def restore(self, kept: Kept, now: TimeUs) -> None:
        """The sessions as the store has them, their clients away since now."""
        self.luggage.restore(kept)
        subscriptions, parcels = kept.by_owner("subscription"), kept.by_owner("parcel")
        recent, received = kept.by_owner("recent"), kept.by_owner("received")
        for client_id, ((_, data),) in kept.by_owner("session").items():
            row = msgspec.msgpack.decode(data, type=SessionRow)
            session = self.new_session(client_id)
            session.journal = self.broker.journal
            session.expiry_s, session.declared = row.expiry_s, row.declared
            session.allow(self.kept_user(row.username), row.username)
            for name, (advertisement_id, text) in row.advertised.items():
                travels = self._announce(session, name, advertisement_id, parse(text), now)
                session.unsettled |= travels and not row.settled
            for pattern, held in subscriptions.get(client_id, []):
                self._restore_subscription(
                    session, pattern, msgspec.msgpack.decode(held, type=SubscriptionRow), now
                )
            for number, parcel in parcels.get(client_id, []):
                session.restore_parcel(number, msgspec.msgpack.decode(parcel, type=ParcelRow))
            session.restore_taken(recent.get(client_id, []))
            session.restore_received(received.get(client_id, []))
            self.expire_later(session)
        for client_id, ((_, data),) in kept.by_owner("will").items():
            self._restore_will(client_id, msgspec.msgpack.decode(data, type=WillRow), now)
        self.luggage.restored(kept, now)
        for session in list(self.sessions.values()):
            self.review(session, now)

    def new_session(self, client_id: str) -> Session:
        self.tally.numbered += 1
        name = f"{self.broker.boot}.{self.tally.numbered}"
        session = self.sessions[client_id] = Session(client_id, name, self.limits, self.room)
        return session

    def kept_user(self, name: str | None) -> User | None:
        """Who this is, where users are kept."""
        return None if self.users is None else self.users.users.get(name or "")

    def _restore_will(self, client_id: str, row: WillRow, now: TimeUs) -> None:
        """The client vanished with the broker; a session that ended so is there for its will."""
        session = self.sessions.get(client_id)
        if session is None:
            session = self.new_session(client_id)
            session.allow(self.kept_user(row.username), row.username)
        packet = mqtt.read(Letter(row.letter).plain(V5), V5)
        assert isinstance(packet, PublishPacket)
        session.will = LastWill(packet.topic, row.letter, row.delay_s)
        self._known(session, packet.topic, now)
        life = session.life

        def publish(later: TimeUs, reached: bool) -> bool:
            if session.life == life and not reached:
                return True
            if session.expiry_s:
                self._will(session, life, later)
            else:
                self._expire(session, life, later)
            return False

        self.broker.after(
            max(1, min(row.delay_s, session.expiry_s) * SECOND_US),
            lambda _: self.broker.settle(publish),
        )

    def _restore_subscription(
        self, session: Session, key: str, row: SubscriptionRow, now: TimeUs
    ) -> None:
        pattern, kept, _ = key.partition("\0")
        share, topic = topics.split_share(pattern)
        filter = sharing(parse(row.filter))
        group = shares.key(share, topic, filter) if share else ""
        held = Held(
            session, pattern, row.id, filter, row.identifier,
            terms(
                row.qos, row.no_local, row.as_published, _levels(topic), row.within, row.weight,
                group, bool(kept),
            ),
        )  # fmt: skip
        session.weight += row.weight
        session.subscriptions = put(session.subscriptions, key, held)
        session.changed(held)
        self.holders[held.id] = held
        self._route(held, now)

    # Sessions that move (edge/luggage.py).

    def adopt_subscription(
        self, session: Session, key: str, row: SubscriptionRow, now: TimeUs
    ) -> None:
        """A subscription that the session had at another broker."""
        row.id = self._subscription_id(session, key.partition("\0")[0])
        self._restore_subscription(session, key, row, now)
        self._keep_subscription(session.subscriptions[key])

    def _subscription_id(self, session: Session, pattern: str) -> SubscriptionId:
        self.tally.numbered += 1
        return f"{session.client_id}/{pattern}#{self.broker.boot}.{self.tally.numbered}"

    def take_over(self, connection: Connection, now: TimeUs) -> None:
        """Its client has another connection, here or at another broker."""
        connection.parting = "taken over by another connection"
        code = mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER
        bye = mqtt5.DisconnectPacket(reason_code=code) if connection.session else None
        self.close(connection, bye, now)

    def end(self, session: Session, now: TimeUs) -> None:
        """End a session in favour of another, as a client does that starts cleanly."""
        self._will(session, session.life, now)
        self._end(session, now)

    def move_out(self, session: Session) -> None:
        """The session is at another broker: hold nothing of it any more."""
        session.life += 1
        self._leave(session, None)
        self._stop_keeping(session)
        del self.sessions[session.client_id]
        session.empty()
        self.do(None, self._withdraw(session))

    def _keep_session(self, session: Session) -> None:
        if session.journal is not None:
            advertised = {
                name: (id, str(self.moves.advertisement(id).filter))
                for name, id in session.advertised.items()
            }
            row = SessionRow(
                session.expiry_s, session.declared, advertised, session.username,
                not session.unsettled,
            )  # fmt: skip
            session.journal.put("session", session.client_id, 0, row)

    def _keep_subscription(self, held: Held) -> None:
        session = held.session
        if session.journal is not None:
            session.journal.put("subscription", session.client_id, held.key, held.row())

    def begin_keeping(self, session: Session) -> None:
        """Keep the session from now on if it is to outlive its connection, or no longer."""
        if session.expiry_s == 0:
            self._stop_keeping(session)
        else:
            session.journal = self.broker.journal
            self._keep_session(session)

    def _stop_keeping(self, session: Session) -> None:
        journal, session.journal = session.journal, None
        if journal is not None:
            for table in ("session", "subscription", "parcel", "recent", "received", "had"):
                journal.clear(table, session.client_id)

    # Connections.

    def opened(self, address: str, now: TimeUs) -> Connection | None:
        """A new connection; None if its address has too many or opens them too fast."""
        host = address.rpartition(":")[0]
        second = now // SECOND_US
        if second != self._second:
            self._second, self._fresh = second, Counter()
        self._fresh[host] += 1
        limits = self.limits
        if self._hosts[host] >= limits.connections_per_address or (
            limits.connects_per_s and self._fresh[host] > limits.connects_per_s
        ):
            self.tally.refused += 1
            log.warning(
                "connection refused",
                extra={"address": address, "reason": "too many from this address"},
            )
            return None
        self._hosts[host] += 1
        connection = Connection(address, now)
        self.connections[connection] = None
        return connection

    # What the driver does, besides bringing bytes.

    def take_turns(self, clock: Callable[[], int]) -> None:
        """Deal with what comes in turns from now on, by this clock."""
        self.clock = clock

    def take_dirty(self) -> dict[Connection, None]:
        """For whom there is something to do; nobody is told of twice."""
        dirty, self.dirty = self.dirty, {}
        return dirty

    def look_again(self, connections: Iterable[Connection]) -> None:
        """There is still something to do for these."""
        self.dirty.update(dict.fromkeys(connections))

    def turned_away(self) -> None:
        """A connection was refused before it was one of a client."""
        self.tally.refused += 1

    def wrote(self, size: int) -> None:
        self.tally.bytes_sent += size

    def received(self, connection: Connection, data: bytes, now: TimeUs) -> None:
        self.broker.advance(now)
        self.tally.bytes_received += len(data)
        connection.heard_us = now
        if connection.closing:
            return
        connection.add(data)
        self.proceed(connection, now)
        if self.limits.bytes_per_s:
            self._charge(connection, len(data), now)

    def _charge(self, connection: Connection, size: int, now: TimeUs) -> None:
        """Who has sent more than a second's allowance waits until it is paid for."""
        cost_us = size * SECOND_US // self.limits.bytes_per_s
        connection.paid_us = max(connection.paid_us, now - SECOND_US) + cost_us
        if connection.paid_us > now and not connection.slowed:
            connection.slowed = True
            self.slowed += 1
            self.dirty[connection] = None
            self._go_on(connection, now)

    def _go_on(self, connection: Connection, now: TimeUs) -> None:
        if connection.paid_us > now:
            wait_us = connection.paid_us - now
            self.broker.after(wait_us, lambda later: self._go_on(connection, later))
            return
        connection.slowed = False
        self.dirty[connection] = None
        self.proceed(connection, now)

    def proceed(self, connection: Connection, now: TimeUs) -> None:
        """Go on with what has been received, after more came or a hold was lifted."""
        self.dirty[connection] = None
        if self.clock is None:
            self._serve(connection, now)
        elif connection not in self.behind:
            self.ready[connection] = None

    def work(self, now: TimeUs) -> None:
        """One turn: a share for everyone who sent something, or for those with more to do.

        Not both, so that a short answer is written before long work begins; but nobody is
        passed over twice.
        """
        clock = self.clock
        assert clock is not None
        turn_ns = SHORT_NS if now - self.little_us < LATELY_US else TURN_NS
        end_ns = clock() + turn_ns
        served = len(self.behind)
        if self.ready and not self._passed_over:
            served = 0
        self._passed_over = not served
        share_ns = turn_ns if len(self.ready) == 1 and not self.behind else min(SHARE_NS, turn_ns)
        while self.ready and clock() < end_ns:
            connection = next(iter(self.ready))
            del self.ready[connection]
            self.end_ns = clock() + share_ns
            if self.behind and connection.input_bytes <= LITTLE_BYTES:
                self.little_us = now
            if not self._serve(connection, now):
                self.behind[connection] = None
        # At least one of them, so that nobody waits for ever; the others in the next turn.
        for turn in range(served):
            left_ns = end_ns - clock()
            if turn and left_ns <= 0:
                break
            connection = next(iter(self.behind))
            del self.behind[connection]
            self.end_ns = clock() + max(min(SHARE_NS, turn_ns), left_ns // (served - turn))
            if not self._serve(connection, now):
                self.behind[connection] = None
        feeding, self.feeding = self.feeding, {}
        for session in feeding:
            self.end_ns = clock() + SHARE_NS
            if not self._go_on_feeding(session):
                self.feeding[session] = None
        self.end_ns = clock() + SHARE_NS
        while self.chores and self._finish(self.chores[0]):
            self.chores.popleft()

    @property
    def busy(self) -> bool:
        """Whether another turn is to come at once."""
        return bool(self.ready or self.behind or self.feeding or self.chores or self.relieved)

    def end_share(self) -> None:
        """What the share at hand gathered is to be written before there is more."""
        self.end_ns = 0

    def _over(self) -> bool:
        """Whether the share at hand is used up."""
        return self.clock is not None and self.clock() >= self.end_ns

    def _finish(self, chore: Iterator[bool]) -> bool:
        """Go on with a chore; False if it has to be gone on with later."""
        return not any(self.clock is not None and (rest or self._over()) for rest in chore)

    def _serve(self, connection: Connection, now: TimeUs) -> bool:
        """Deal with what a client has sent, for a share; False if there is more to do."""
        self.filling.clear()
        if connection.replies_bytes > REPLIES_MAX:
            self.refuse(connection, Malformed("it does not read what it asked for", 0x97), now)
        if connection.chore is not None:
            if connection.closing:
                connection.chore = None
            elif not self._finish(connection.chore):
                return False
            else:
                connection.chore = None
        if connection.closing or connection.stopped:
            return True
        if connection.input_bytes < connection.needed or not connection.input:
            return True
        return self._process(connection, now)

    def _process(self, connection: Connection, now: TimeUs) -> bool:
        data, at = connection.take()
        size, limit = len(data), self.limits.packet_bytes
        needed, over = 1, False
        self.dirty[connection] = None
        try:
            while at < size and not (connection.closing or connection.stopped or over):
                if data[at] == 0x30 and connection.session is not None:
                    at = self.runs.take_usual(connection, connection.session, data, at, now)
                    over = self._over()
                    if at == size or over or connection.stopped:
                        break
                if at + 1 < size and data[at + 1] < 128:
                    end = at + 2 + data[at + 1]
                    if end > size:
                        needed = end - at
                        break
                else:
                    needed = mqtt.length(data, at, limit) or size - at + 1
                    end = at + needed
                    if end > size:
                        break
                    needed = 1
                packet = data[at:end]
                if connection.session is None:
                    if not self._on_connect(connection, packet, now):
                        break
                elif packet[0] >> 4 == 3:
                    if (connection.moving or connection.redirected) and packet[0] & 6:
                        pass  # it will send this again where it goes
                    elif not self._on_publish(connection, packet, now):
                        break
                elif not (connection.moving or connection.redirected):
                    self._on_packet(connection, mqtt.read(packet, connection.level), now)
                at = end
                over = self._over() or connection.chore is not None
        except Malformed as error:
            self.refuse(connection, error, now)
            return True
        if connection.closing:
            return True
        if at < size:
            connection.leave(data, at, needed)
        return not over or (at == size and connection.chore is None)

    def refuse(self, connection: Connection, error: Malformed, now: TimeUs) -> None:
        """Say why, as the standard has it, and close."""
        self.tally.refused += 1
        connection.parting = str(error)[:REASON_MAX]
        if connection.session is None:
            self._trace("refuse", now, connection.client_id, reason=connection.parting)
        log.warning(
            "client refused",
            extra={
                "client": connection.client_id,
                "user": connection.username,
                "address": connection.address,
                "reason": str(error)[:REASON_MAX],
            },
        )
        if connection.session is None:
            if connection.level == V5:
                answer: Packet = mqtt5.ConnAckPacket(
                    reason_code=ConnAckReasonCode(error.code), reason_str=str(error)[:REASON_MAX]
                )
            else:
                answer = mqtt5.ConnAckPacket(reason_code=ConnAckReasonCode(error.code))
        else:
            answer = mqtt5.DisconnectPacket(
                reason_code=mqtt5.DisconnectReasonCode(error.code),
                reason_str=str(error)[:REASON_MAX],
            )
        self.close(connection, answer, now)

    def close(self, connection: Connection, last: Packet | None, now: TimeUs) -> None:
        if connection.closing:
            return
        if last is not None:
            self._write(connection, last)
        connection.closing = True
        connection.leave(b"", 0)
        self.dirty[connection] = None
        self._detach(connection, now)

    def closed(self, connection: Connection, now: TimeUs) -> None:
        """The driver lost the connection, or finished closing it."""
        self.broker.advance(now)
        connection.closing = True
        if connection in self.connections:
            del self.connections[connection]
            host = connection.address.rpartition(":")[0]
            self._hosts[host] -= 1
            if not self._hosts[host]:
                del self._hosts[host]
        for waiting in (self.paused, self.awaiting, self.ready, self.behind):
            waiting.pop(connection, None)
        self.unwritten(connection, 0)
        connection.chore = None
        if connection.session is None:
            self.luggage.closed(connection)
        if connection.pressing_until_us is not None:
            self.relieved = True
        self._detach(connection, now)

    def _detach(self, connection: Connection, now: TimeUs) -> None:
        session, connection.session = connection.session, None
        if session is None or session.connection is not connection:
            return
        session.connection = None
        session.changed()
        if self.regroup(session) and session.expiry_s:
            self._pass_round(session)
        log.info(
            "client disconnected",
            extra={
                "client": session.client_id[:200],
                "user": connection.username,
                "address": connection.address,
                "reason": connection.parting,
            },
        )
        self._trace(
            "disconnect", now, session.client_id, session=session.name, reason=connection.parting
        )
        if connection.moving is not None:
            self.follow(self.moves.left(session, connection.moving), now)
        self.wait_for(session)

    def wait_for(self, session: Session) -> None:
        """Its client is gone: publish the will and end the session when they are due."""
        life = session.life
        will_s = session.will.delay_s if session.will else 0
        self.broker.after(
            min(will_s, session.expiry_s) * SECOND_US,
            lambda later: self._will(session, life, later),
        )
        self.expire_later(session)

    def follow(self, orders: Iterable[moves.Order], now: TimeUs) -> None:
        """Do what the moves of publishers ask for."""
        for order in orders:
            match order:
                case moves.Step(input):
                    self.broker.step(input, now)
                case moves.After(wait_us, then):
                    self._follow_after(wait_us, then)
                case moves.Redirect(connection, target, ticket):
                    carried = [("$migrate", msgspec.json.encode(ticket).decode())]
                    self._redirect(connection, target, ticket.publisher, carried)
                case moves.Close(connection):
                    self.close(connection, None, now)
                case moves.Release(connection):
                    self.dirty[connection] = None
                    self.proceed(connection, now)

    def _follow_after(self, wait_us: TimeUs, then: Callable[[], list[moves.Order]]) -> None:
        self.broker.after(wait_us, lambda later: self.follow(then(), later))

    def _redirect(
        self,
        connection: Connection,
        target: BrokerId,
        client_id: str,
        properties: list[tuple[str, str]],
    ) -> None:
        network = self.broker.network
        address = network.addresses[target]
        fields = {"client": client_id, "to": network.names[target]}
        moves.log.info("publisher moves", extra=fields)
        connection.parting = f"moves to broker {network.names[target]}"
        self._write(
            connection,
            mqtt5.DisconnectPacket(
                reason_code=mqtt5.DisconnectReasonCode.USE_ANOTHER_SERVER,
                server_reference=f"{address.host}:{address.mqtt}",
                user_properties=properties,
            ),
        )

    def _trace(self, kind: str, now: TimeUs, client: str, **columns: str | None) -> None:
        """Record what a client did."""
        if self.broker.traces is not None:
            self.broker.traces.row(kind, now, client=client, **columns)

    def expire_later(self, session: Session) -> None:
        life = session.life
        if session.expiry_s < mqtt.NEVER:
            self.broker.after(
                session.expiry_s * SECOND_US, lambda later: self._expire(session, life, later)
            )

    def _will(self, session: Session, life: int, now: TimeUs) -> None:
        if session.life == life and session.will is not None and not session.leaving:
            will = session.will
            self._leave(session, None)
            packet = mqtt.read(Letter(will.kept).plain(V5), V5)
            assert isinstance(packet, PublishPacket)
            attributes = content.attributes(
                will.topic, packet.payload, packet.user_properties, packet.content_type
            )
            user = session.user
            if user is None or (
                user.may_publish(will.topic)
                and user.may_publish_content(
                    attributes, packet.payload, packet.user_properties, packet.content_type
                )
            ):
                empty = not packet.payload
                self._publish(session.client_id, will.topic, attributes, will.kept, empty, now)

    def _leave(self, session: Session, will: LastWill | None) -> None:
        """The session's will from now on, kept whether or not the session is."""
        journal = self.broker.journal
        if journal is not None and will is not None:
            row = WillRow(will.kept, will.delay_s, session.username)
            journal.put("will", session.client_id, 0, row)
        elif journal is not None and session.will is not None:
            journal.drop("will", session.client_id, 0)
        session.will = will

    def _expire(self, session: Session, life: int, now: TimeUs) -> None:
        if session.life == life and session.connection is None and not session.leaving:
            self._will(session, life, now)
            self._end(session, now)

    def _end(self, session: Session, now: TimeUs) -> None:
        session.life += 1
        self._leave(session, None)
        self._stop_keeping(session)
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
            self.luggage.ended(session, now)
        self._leave_groups(session)
        session.empty()
        self.do(None, self._withdraw(session))

    def _withdraw(self, session: Session) -> Iterator[bool]:
        """Take back all that a session that has ended had said, step by step."""
        for held in list(session.subscriptions.values()):
            self._unsubscribe(held, self.broker.now)
            yield False
        for advertisement_id in dict.fromkeys(session.advertised.values()):
            self._unadvertise(advertisement_id, self.broker.now)
            yield False
        session.advertised.clear()

    def do(self, connection: Connection | None, chore: Iterator[bool]) -> None:
        """Do something long, in several turns where there are any."""
        if connection is None:
            if self.clock is not None:
                self.chores.append(chore)
                return
            self._finish(chore)
        elif not self._finish(chore):
            connection.chore = chore

    def _unadvertise(self, advertisement_id: AdvertisementId, now: TimeUs) -> None:
        self.moves.withdrawn(advertisement_id)
        self.broker.step(Unadvertise(advertisement_id), now)

    def tick(self, now: TimeUs) -> None:
        """Close connections that have been silent for too long."""
        self.ways.tick(now)
        for connection in list(self.connections):
            silent_us = now - connection.heard_us
            if connection.session is None:
                if now - connection.since_us > CONNECT_US:
                    self.close(connection, None, now)
            elif connection.keep_alive_us and silent_us > connection.keep_alive_us:
                if connection.stopped or connection in self.behind:
                    continue  # it may have spoken: nobody listened
                self.refuse(connection, Malformed("nothing within the keep-alive", 0x8D), now)

    # A new configuration.

    def reload(self, limits: Limits, users: Users | None, now: TimeUs) -> None:
        """Other limits and users from now on; only who lost a right they use is disconnected."""
        if users is not None and self.users is not None:
            users.inherit(self.users)
        self.limits, self.users = limits, users
        self.room.bytes_max = self.unread.bytes_max = limits.sessions_bytes
        for session in list(self.sessions.values()):
            session.bound(limits)
            old = session.user
            session.allow(self.kept_user(session.username), session.username)
            if session.user and old and session.user.hash != old.hash and session.connection:
                self._revoke(session, "the password has changed", now)
            self.review(session, now)

    def review(self, session: Session, now: TimeUs) -> None:
        """End what the session's user may not have: all of it, if there is no such user."""
        if self.users is None:
            return
        if session.user is None:
            self._leave(session, None)
            self._revoke(session, "no such user any more", now)
            self._end(session, now)
            return
        for held in list(session.subscriptions.values()):
            user = session.user
            _, topic = topics.split_share(held.pattern)
            if not user.may_subscribe(topic) or held.terms.within != user.subscribe_where:
                self._revoke(session, f"may not subscribe to {held.pattern[:60]!r} now", now)
                self._unsubscribe(held, now)

    def _revoke(self, session: Session, reason: str, now: TimeUs) -> None:
        log.warning("right revoked", extra={"client": session.client_id, "reason": reason})
        if session.connection is not None:
            code = mqtt5.DisconnectReasonCode.NOT_AUTHORIZED
            bye = mqtt5.DisconnectPacket(reason_code=code, reason_str=reason)
            session.connection.parting = reason
            self.close(session.connection, bye, now)

    def kick(self, client_id: str, reason: str, now: TimeUs) -> bool:
        """An operator lets a client go; its session stays. False if it is not connected here."""
        self.broker.advance(now)
        session = self.sessions.get(client_id)
        if session is None or session.connection is None:
            return False
        reason = reason[:REASON_MAX]
        code = mqtt5.DisconnectReasonCode.ADMINISTRATIVE_ACTION
        session.connection.parting = reason
        bye = mqtt5.DisconnectPacket(reason_code=code, reason_str=reason)
        self.close(session.connection, bye, now)
        return True

    def send_away(self, client_id: str, target: BrokerId, now: TimeUs) -> str | None:
        """An operator sends a publisher to another broker; why it does not go, or None.

        It sends what is not acknowledged again there. One that subscribes stays: it would miss what
        comes meanwhile.
        """
        self.broker.advance(now)
        session = self.sessions.get(client_id)
        connection = None if session is None else session.connection
        if session is None or connection is None:
            return NOT_HERE
        if target == self.broker.number:
            return "it is there"
        if self.broker.network.relocation is not None:
            return f"{self.broker.network.relocation} moves the publishers of this network"
        if not connection.redirects:
            return "it is on its way" if connection.redirected else "it does not follow"
        if session.subscriptions:
            return "it has subscriptions, and would miss what comes meanwhile"
        connection.redirects = None
        self.moves.count += 1
        self._leave(session, None)
        self._redirect(connection, target, client_id, [])
        self.follow([moves.After(moves.LEAVE_US, lambda: [moves.Close(connection)])], now)
        return None

    def end_overflowed(self, now: TimeUs) -> None:
        """End the sessions that could not hold what is for them, before anything is acknowledged.

        Their clients hear of it now or, as there is no session any more, when they come back.
        """
        overflowed, self.overflowed = self.overflowed, {}
        for session in overflowed:
            reason = session.overflow
            log.warning("session ended", extra={"client": session.client_id, "reason": reason})
            if session.connection is not None:
                code = mqtt5.DisconnectReasonCode.QUOTA_EXCEEDED
                bye = mqtt5.DisconnectPacket(reason_code=code, reason_str=reason)
                session.connection.parting = reason
                self.close(session.connection, bye, now)
            self._will(session, session.life, now)
            self._end(session, now)

    # The end.

    def drain(self, now: TimeUs) -> None:
        """Take no more: finish what has been received, then say goodbye."""
        self.draining = True
        self.dirty.update(self.connections)  # so that the driver stops reading
        self.let_go(now)

    def let_go(self, now: TimeUs, all_of_them: bool = False) -> None:
        """Close the connections of those who are owed nothing more, and at last of all.

        Without a store sessions end with the broker, so wills that were to wait go out now.
        """
        bye = mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN)
        for connection in list(self.connections):
            if connection.session is None:
                self.close(connection, None, now)
            elif all_of_them or not (
                connection.stopped
                or connection.owed
                or connection.chore is not None
                or connection in self.ready
                or connection in self.behind
            ):
                connection.parting = SHUT_DOWN
                self.close(connection, bye, now)
        if self.broker.journal is None:
            for session in self.sessions.values():
                if session.connection is None:
                    self._will(session, session.life, now)

    # Packets.

    def _write(self, connection: Connection, packet: Packet) -> None:
        data, most = mqtt.write(packet, connection.level), connection.packet_max
        terse = not connection.problems and isinstance(packet, mqtt5.SubAckPacket)
        if terse or (most is not None and len(data) > most):
            data = mqtt.write(mqtt.bare(packet), connection.level)
        if most is None or len(data) <= most:
            self._reply(connection, data)

    def _reply(self, connection: Connection, data: bytes) -> None:
        """Answer; who asks and asks and never reads is let go, see `_serve`."""
        if connection.blocked:
            connection.replies_bytes += len(data)
        connection.answered = True
        connection.out.append(data)
        self.dirty[connection] = None

    def _on_connect(self, connection: Connection, data: bytes, now: TimeUs) -> bool:
        """Connect; False if this packet has to wait."""
        level = mqtt.level_of(data)
        if level not in (V3, V5):
            connection.level = V3 if level < V3 else V5
            raise Malformed(f"protocol level {level} is not spoken here", 0x84)
        connection.level = level
        packet = mqtt.read(data, level)
        assert isinstance(packet, mqtt5.ConnectPacket)
        connection.packet_max = packet.max_packet_size
        connection.problems = packet.request_problem_info
        connection.aliases_max = packet.topic_alias_max
        if packet.authentication_method is not None:
            raise Malformed("no authentication method is known here", 0x8C)
        client_id, assigned = packet.client_id, None
        connection.client_id, connection.username = client_id[:200], (packet.username or "")[:200]
        if not client_id:
            if level == V3 and not packet.clean_start:
                raise Malformed("a client without a name cannot keep a session", 0x85)
            self.tally.numbered += 1
            client_id = assigned = f"auto-{self.broker.boot}-{self.tally.numbered}"
        user = self._user(connection, packet, data, now)
        if connection.held:
            return False
        will = None if packet.will is None else _last_will(packet.will)
        if will is not None and user is not None and not user.may_publish(will.topic):
            raise Malformed("this user may not publish the will's topic", 0x87)
        declared = self._declared(packet)
        if assigned is None and not self.luggage.at_home(connection, client_id, packet, now):
            return False
        session = self.sessions.get(client_id)
        if session is None and len(self.sessions) >= self.limits.sessions:
            raise Malformed("this broker has too many sessions", 0x97)
        if session is not None and user is not None and session.username != packet.username:
            raise Malformed("a client of this name belongs to another user", 0x85)
        if session is not None and session.connection is not None:
            self.take_over(session.connection, now)
        if session is not None and (packet.clean_start or session.expiry_s == 0):
            self.end(session, now)
            session = None
        present = session is not None
        if session is None:
            session = self.new_session(client_id)
        session.expiry_s = min(packet.session_expiry_interval, self.limits.session_expiry_s)
        session.allow(user, packet.username)
        self._leave(session, will)
        self.begin_keeping(session)
        self.luggage.arrived(session, assigned is not None, now)
        connection.session = session
        log.info(
            "client connected",
            extra={
                "client": client_id[:200],
                "user": connection.username,
                "address": connection.address,
                "level": level,
                "present": present,
            },
        )
        self._trace(
            "connect", now, client_id, session=session.name,
            detail=json.dumps({"present": present, "user": packet.username, "level": level}),
        )  # fmt: skip
        keep_alive_s, longest_s = packet.keep_alive, self.limits.keep_alive_s
        shortens = level == V5 and longest_s > 0 and not 0 < keep_alive_s <= longest_s
        connection.keep_alive_us = (longest_s if shortens else keep_alive_s) * 1_500_000
        capped = packet.session_expiry_interval != session.expiry_s
        self._write(
            connection,
            mqtt5.ConnAckPacket(
                session_present=present,
                assigned_client_id=assigned,
                session_expiry_interval=session.expiry_s if capped else None,
                max_packet_size=self.limits.packet_bytes,
                receive_max=RECENT,
                topic_alias_max=ALIASES_MAX,
                server_keep_alive=longest_s if shortens else None,
                response_info=self._response_info(session, packet),
            ),
        )
        self.regroup(session)
        session.attach(connection, packet.receive_max, packet.max_packet_size, now)
        session.drain(now)
        properties = dict(packet.user_properties)
        movable = self.broker.network.relocation is not None
        connection.redirects = "$follow" in properties
        connection.follows = movable and connection.redirects
        if movable and "$migrate" in properties:
            self.follow(self.moves.arrived(session, properties["$migrate"]), now)
            return True
        if declared is not None and not session.declared:
            session.declared = True
            if self._advertise(session, "$advertise", declared, now):
                self._hold(connection)
        elif will is not None:
            self._known(session, will.topic, now)
        return True

    def _response_info(self, session: Session, packet: mqtt5.ConnectPacket) -> str | None:
        """Below what a client may have itself answered, if it asks and may."""
        topic, user = f"response/{session.client_id}", session.user
        may = user is None or (user.may_publish(topic) and user.may_subscribe(topic))
        fits = topics.valid_topic(topic)
        return topic if packet.request_response_info and may and fits else None

    def _user(
        self, connection: Connection, packet: mqtt5.ConnectPacket, data: bytes, now: TimeUs
    ) -> User | None:
        """Who connects. Checking a password takes long: meanwhile the connection is held."""
        if self.users is None:
            return None
        name, password = packet.username or "", packet.password or b""
        if self.users.remembered(name, password):
            return self.users.users[name]
        connection.held = True
        checked = self.users.verify

        def then(right: bool, later: TimeUs) -> None:
            connection.held = False
            self.dirty[connection] = None
            if right:
                self.proceed(connection, later)
            elif not connection.closing:
                reason = f"no such user or a wrong password: {name[:60]!r}"
                self.refuse(connection, Malformed(reason, 0x86), later)

        self.broker.aside(lambda: checked(name, password), then)
        return None

    def _declared(self, packet: mqtt5.ConnectPacket) -> Filter | None:
        for name, text in packet.user_properties:
            if name == "$advertise":
                try:
                    declared = _of_attributes(parse(text))
                except InputError as error:
                    raise Malformed(f"$advertise: {error}", 0x83) from None
                if sum(declared.load) > ADVERTISED_MAX:
                    raise Malformed("$advertise: the filter is too large; say less of it", 0x83)
                return declared
        return None

    def _on_packet(self, connection: Connection, packet: Packet, now: TimeUs) -> None:
        session = connection.session
        assert session is not None
        if isinstance(packet, mqtt5.PubAckPacket):
            session.on_puback(packet.packet_id, now)
            self._acknowledged(connection, session, now)
        elif isinstance(packet, mqtt5.PubRecPacket):
            self._on_pubrec(connection, session, packet, now)
        elif isinstance(packet, mqtt5.PubRelPacket):
            if session.on_pubrel(packet.packet_id):
                self._reply(connection, mqtt.pubcomp(packet.packet_id))
            else:
                unknown = mqtt5.PubCompReasonCode.PACKET_ID_NOT_FOUND
                self._write(connection, mqtt5.PubCompPacket(packet.packet_id, reason_code=unknown))
        elif isinstance(packet, mqtt5.PubCompPacket):
            session.on_pubcomp(packet.packet_id, now)
            self._acknowledged(connection, session, now)
        elif isinstance(packet, mqtt5.PingReqPacket):
            self._write(connection, mqtt5.PingRespPacket())
        elif isinstance(packet, mqtt5.SubscribePacket):
            if not packet.topic_filters:
                raise Malformed("SUBSCRIBE without a topic filter", 0x82)
            for wanted in packet.topic_filters:
                if wanted.no_local and wanted.pattern.startswith(topics.SHARE):
                    raise Malformed("no local on a shared subscription", 0x82)
            self.do(connection, self._on_subscribe(connection, session, packet))
        elif isinstance(packet, mqtt5.UnsubscribePacket):
            if not packet.patterns:
                raise Malformed("UNSUBSCRIBE without a topic filter", 0x82)
            self.do(connection, self._on_unsubscribe(connection, session, packet))
        elif isinstance(packet, mqtt5.DisconnectPacket):
            if packet.session_expiry_interval is not None and connection.level == V5:
                if session.expiry_s == 0 and packet.session_expiry_interval:
                    raise Malformed("a session that ends cannot be prolonged now", 0x82)
                session.expiry_s = min(packet.session_expiry_interval, self.limits.session_expiry_s)
            if packet.reason_code != mqtt5.DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE:
                self._leave(session, None)
            connection.parting = "disconnected"
            self.close(connection, None, now)
        else:
            raise Malformed(f"{type(packet).__name__} has no place here", 0x82)

    def _acknowledged(self, connection: Connection, session: Session, now: TimeUs) -> None:
        """The client has taken something: there may be room for more."""
        if session.feeds:
            self._feed(session)
        self._relieve(connection, session, now)

    def _on_pubrec(
        self, connection: Connection, session: Session, packet: mqtt5.PubRecPacket, now: TimeUs
    ) -> None:
        number = packet.packet_id
        if not session.on_pubrec(number, int(packet.reason_code) >= 0x80, now):
            self._acknowledged(connection, session, now)
        elif number in session.released:
            self._reply(connection, mqtt.pubrel(number))
            self._acknowledged(connection, session, now)
        else:
            unknown = mqtt5.PubRelReasonCode.PACKET_ID_NOT_FOUND
            self._write(connection, mqtt5.PubRelPacket(number, reason_code=unknown))

    def _on_unsubscribe(
        self, connection: Connection, session: Session, packet: mqtt5.UnsubscribePacket
    ) -> Iterator[bool]:
        codes = []
        for pattern in packet.patterns:
            mine = [held for held in session.subscriptions.values() if held.pattern == pattern]
            for held in mine:
                self._unsubscribe(held, self.broker.now)
                yield False
            codes.append(mqtt5.UnsubAckReasonCode(0 if mine else 17))
            yield False
        self._write(connection, mqtt5.UnsubAckPacket(packet.packet_id, codes))

    def _on_subscribe(
        self, connection: Connection, session: Session, packet: mqtt5.SubscribePacket
    ) -> Iterator[bool]:
        """Take one topic filter after the other; a step is at most one of them."""
        content = self._content(session, packet)
        yield False
        codes: list[int] = []
        reasons: list[str] = []
        replaced: list[str] = []
        keeps = any(name == "$keep" for name, _ in packet.user_properties)
        travels = False
        for wanted in packet.topic_filters:
            try:
                shared = wanted.pattern.startswith(topics.SHARE)
                if isinstance(content, _Refusal):
                    raise content
                held, before, travelled = self._subscribe(
                    session, wanted, content, packet.subscription_id or 0, keeps, self.broker.now
                )
                travels |= travelled
                how = wanted.retain_handling
                if not shared and (how == 0 or (how == 1 and before is None)):
                    session.feeds = added(session.feeds, self._retained(held))
                    self._feed(session)
                if before is not None and before.filter != held.filter:
                    replaced.append(f"replaces the $where of {wanted.pattern[:60]!r}")
                codes.append(int(wanted.max_qos))
            except _Refusal as refusal:
                self._trace(
                    "refuse", self.broker.now, session.client_id, session=session.name,
                    reason=str(refusal)[:REASON_MAX], detail=f"SUBSCRIBE {wanted.pattern[:200]}",
                )  # fmt: skip
                codes.append(refusal.code)
                reasons.append(str(refusal))
            yield False
        answer = mqtt5.SubAckPacket(
            packet.packet_id,
            [mqtt5.SubAckReasonCode(code) for code in codes],
            reason_str=_brief(reasons + replaced) or None,
        )
        if reasons:
            log.warning(
                "subscription refused",
                extra={"client": session.client_id, "reason": _brief(reasons)},
            )
        if not travels:
            self._write(connection, answer)
            return

        def settled(later: TimeUs, reached: bool) -> None:
            if not connection.closing:
                self._write(connection, answer)

        self.broker.settle(settled)

    def _content(self, session: Session, packet: mqtt5.SubscribePacket) -> Filter | _Refusal:
        """What a SUBSCRIBE demands of content, whatever the topic: read once for all of it."""
        where = [text for name, text in packet.user_properties if name == "$where"]
        if len(where) > 1:
            return _Refusal(0x83, "give one $where; join conditions with AND")
        try:
            content = parse(where[0]) if where else EVERYTHING
            within = None if session.user is None else session.user.subscribe_filter
            if within is None or EVERYTHING in (content, within):
                return content if within is None or content != EVERYTHING else within
            return conjoin(content, within)
        except InputError as error:
            return _Refusal(0x83, f"$where: {error}")

    def _subscribe(
        self,
        session: Session,
        wanted: mqtt5.TopicFilter,
        content: Filter,
        identifier: int,
        keeps: bool,
        now: TimeUs,
    ) -> tuple[Held, Held | None, bool]:
        """Hold one more subscription: that, which it replaces, and whether other brokers were told.
        One that `keeps` replaces only one of the same identifier."""
        pattern = sys.intern(wanted.pattern)  # many subscribe to the same
        if keeps and not identifier:
            raise _Refusal(0x83, "$keep needs a subscription identifier, to tell them apart")
        try:
            share, topic = topics.split_share(pattern)
            topics.check_pattern(topic)
        except InputError as error:
            raise _Refusal(0x8F, str(error)) from None
        if session.user is not None and not session.user.may_subscribe(topic):
            raise _Refusal(0x87, f"this user may not subscribe to {topic[:60]!r}")
        # A large filter counts as several: so much longer does it take to keep and to ask.
        weight = _weight(topic, content)
        if session.weight + weight > self.limits.subscriptions_per_client:
            raise _Refusal(0x97, "the client has too many or too large subscriptions")
        within = None if session.user is None else session.user.subscribe_where
        try:
            filter = topics.as_filter(topic, content)
        except InputError as error:
            raise _Refusal(0x83, f"$where: {error}") from None
        held = Held(
            session,
            pattern,
            self._subscription_id(session, pattern),
            filter,
            identifier,
            terms(
                int(wanted.max_qos),
                wanted.no_local,
                wanted.retain_as_published,
                _levels(topic),
                within,
                weight,
                shares.key(share, topic, filter) if share else "",
                keeps,
            ),
        )
        old = session.subscriptions.get(held.key)
        session.subscriptions = put(session.subscriptions, held.key, held)
        session.weight += weight
        self._keep_subscription(held)
        session.changed(held)
        self.holders[held.id] = held
        travels = self._route(held, now)
        if old is not None:
            self._forget(old, now)
        return held, old, travels

    def _route(self, held: Held, now: TimeUs) -> bool:
        """Have publications for a subscription come here. True if other brokers were told."""
        if held.terms.group:
            self.groups.setdefault(held.terms.group, {})[held.id] = held
            self.regrouped[held.terms.group] = None
            return True
        if held.pattern.startswith("$"):  # publications have no such topics
            if not self._watching:
                self._watch(now)
            self.watchers[held.id] = held
            return False
        wanted = Subscription(held.id, held.filter, held.session.client_id)
        return self.broker.step(Subscribe(wanted), now)

    def _watch(self, now: TimeUs) -> None:
        """Tell those who subscribe to `$SYS` what has changed, and again in a while."""
        values = system.values(self, now)
        for topic, letter in system.letters(values, self._system).items():
            for held in self.watchers.values():
                self._tell(held, topic, letter, 0, now)
        self._system, self._watching = values, True
        self.broker.after(system.EVERY_US, self._watch_on)

    def _watch_on(self, now: TimeUs) -> None:
        self._watching = bool(self.watchers)
        if self._watching:
            self._watch(now)

    def _tell(self, held: Held, topic: str, letter: Letter, retain: int, now: TimeUs) -> None:
        """Deliver a value of `$SYS`, if the subscription is to it."""
        attributes = content.attributes(topic, letter.payload)
        if topics.matcher(held.pattern).fullmatch(topic) and matches(held.filter, attributes):
            identifiers = [held.identifier] if held.identifier else []
            held.session.deliver(Parcel(letter, 0, retain, identifiers, None), now)
            if held.session.connection is not None:
                self.dirty[held.session.connection] = None

    def _unsubscribe(self, held: Held, now: TimeUs) -> None:
        session = held.session
        del session.subscriptions[held.key]
        if len(session.subscriptions) == 1:
            session.changed()
        if session.journal is not None:
            session.journal.drop("subscription", session.client_id, held.key)
        self._forget(held, now)

    # Shared subscriptions: members here.

    def members(self, names: Iterable[str]) -> dict[str, shares.Counts | None]:
        """Of these groups, how many members there are that can be given something, and how many
        that would get it at once."""
        return {name: self._members_of(self.groups.get(name, {})) for name in names}

    def _members_of(self, group: dict[SubscriptionId, Held]) -> shares.Counts | None:
        able = [held.session for held in group.values() if _able(held, 1)]
        if not able:
            return None
        first = next(iter(group.values()))
        _, topic = topics.split_share(first.pattern)
        return topic, first.filter, len(able), sum(session.idle for session in able)

    def regroup(self, session: Session) -> bool:
        """A member of groups came or left for now; False if it is of none."""
        groups = {
            held.terms.group: None for held in session.subscriptions.values() if held.terms.group
        }
        self.regrouped.update(groups)
        return bool(groups)

    def new_id(self) -> str:
        """For a publication that this broker holds."""
        self.tally.numbered += 1
        return f"{self.broker.boot}.{self.tally.numbered}"

    def take(self, handoff: Handoff, now: TimeUs, idle: bool = False) -> bool:
        """Give a publication to the member here that has the least to do, or to an idle one only;
        False if there is none."""
        group = self.groups.get(handoff.group)
        if not group:
            return False
        letter = Letter(handoff.kept)
        candidates = [
            held
            for held in group.values()
            if _able(held, letter.qos)
            and len(held.session.waiting) < held.session.queue_max
            and (held.session.idle or not idle)
        ]
        return any(self._give(held, letter, handoff, now) for held in sorted(candidates, key=_load))

    def _give(self, held: Held, letter: Letter, handoff: Handoff, now: TimeUs) -> bool:
        session, group = held.session, self.groups[handoff.group]
        retain = letter.retain * held.terms.as_published
        qos = min(letter.qos, held.terms.qos)
        parcel = self._parcel(letter, qos, retain, handoff.time_us)
        if parcel.expires_us is not None and now >= parcel.expires_us:
            return True
        parcel.identifiers = [held.identifier] if held.identifier else []
        parcel.group = handoff.group
        if not session.deliver(parcel, now):
            session.overflowed = False  # nothing was promised to it: another may have room
            return False
        del group[held.id]
        group[held.id] = held  # the last in turn
        self.tally.delivered += 1
        traces = self.broker.traces
        if traces is not None and traces.recording.sample >= 1:
            traces.row(
                "deliver", now, client=session.client_id, session=session.name,
                subscription=held.id, publisher=handoff.publisher, publication=handoff.id,
                published_us=handoff.time_us, mechanism="shared",
            )  # fmt: skip
        self.written_to(session, now)
        return True

    def unshared(self, handoff: Handoff) -> None:
        """No member of the group can have it, here or anywhere."""
        self.tally.dropped += 1
        log.warning(
            "publication dropped",
            extra={"group": handoff.group[:200], "reason": "no member of the group can take it"},
        )

    def _quit(self, held: Held) -> None:
        """A member is gone: another gets what it was not sent yet."""
        group = self.groups.get(held.terms.group, {})
        group.pop(held.id, None)
        if not group:
            self.groups.pop(held.terms.group, None)
        self.regrouped[held.terms.group] = None
        if not held.session.ended:
            others = bool(group) or self.broker.can_share(held.terms.group)
            if others:
                self._share_again(held.session.take_shared(held.terms.group, False))

    def _share_again(self, parcels: list[Parcel]) -> None:
        now = self.broker.now
        for parcel in parcels:
            kept = parcel.fresh(now).bytes
            handoff = Handoff(-1, parcel.group, "", self.new_id(), kept, now)
            self.broker.share(handoff, now)

    def _leave_groups(self, session: Session) -> None:
        """A session ends: others get what it was not sent, or has not acknowledged."""
        mine = [held for held in session.subscriptions.values() if held.terms.group]
        for held in mine:
            group = self.groups.get(held.terms.group, {})
            group.pop(held.id, None)
            if not group:
                self.groups.pop(held.terms.group, None)
            self.regrouped[held.terms.group] = None
        self._share_again(session.take_shared(None, True))

    def _pass_round(self, session: Session) -> None:
        """A member is away for now: what waits for it goes to who is ready, if anybody is."""
        groups = {parcel.group for parcel in session.waiting if parcel.group}
        for name in sorted(groups):
            here = any(held.session.idle for held in self.groups.get(name, {}).values())
            if here or self.broker.can_share(name):
                self._share_again(session.take_shared(name, False))

    def _forget(self, held: Held, now: TimeUs) -> None:
        held.session.weight -= held.terms.weight
        del self.holders[held.id]
        if held.terms.group:
            self._quit(held)
        elif self.watchers.pop(held.id, None) is None:
            self.broker.step(Unsubscribe(held.id), now)

    def _feed(self, session: Session) -> None:
        """Send what is retained for new subscriptions, no faster than the client takes it."""
        if self.clock is not None:
            self.feeding[session] = None
            return
        for feed in session.feeds:
            self._finish(feed)
        session.feeds = ()

    def _go_on_feeding(self, session: Session) -> bool:
        """For a share; False if there is more to send now."""
        while session.feeds:
            connection = session.connection
            if connection is None:
                session.feeds = ()
            elif connection.full or session.crowded:
                break  # until it has read or acknowledged
            elif self._finish(session.feeds[0]):
                _, session.feeds = taken(session.feeds)
            else:
                return False
        return True

    def _retained(self, held: Held) -> Iterator[bool]:
        """Deliver what is retained, step by step; True where the client should read first."""
        session, retained = held.session, self.broker.retained
        if held.id in self.watchers:
            for topic, letter in system.letters(self._system, {}).items():
                self._tell(held, topic, letter, 1, self.broker.now)
            return
        wild = "+" in held.pattern or "#" in held.pattern
        at_once = max(1, RETAINED_AT_ONCE // (1 + held.filter.load[3]))
        topic_matches = topics.matcher(held.pattern).fullmatch
        sent = 0
        for number, topic in enumerate(list(retained) if wild else [held.pattern]):
            if number % at_once == at_once - 1:
                yield False
            kept = retained.get(topic)
            if kept is None or not kept.kept or not topic_matches(topic):
                continue
            if not matches(held.filter, kept.attributes):
                continue
            letter, now = Letter(kept.kept), self.broker.now
            parcel = self._parcel(letter, min(letter.qos, held.terms.qos), 1, kept.version[0])
            if parcel.expires_us is not None and now >= parcel.expires_us:
                continue
            if held.identifier:
                parcel.identifiers.append(held.identifier)
            traces = self.broker.traces
            if traces is not None and traces.recording.sample >= 1:
                traces.row(
                    "deliver", now, client=session.client_id, session=session.name,
                    subscription=held.id, published_us=kept.version[0], mechanism="retained",
                    detail=topic,
                )  # fmt: skip
            if session.deliver(parcel, now) and session.connection is not None:
                self.dirty[session.connection] = None
            elif session.overflowed:
                self.overflowed[session] = None
            sent += len(kept.kept)
            if sent > RETAINED_BYTES or session.crowded:
                sent = 0
                yield True

    # Publications.

    def _on_publish(self, connection: Connection, data: bytes, now: TimeUs) -> bool:
        """Publish; False if this packet has to wait."""
        session = connection.session
        assert session is not None
        qos = data[0] >> 1 & 3
        packet = mqtt.read(data, connection.level)
        assert isinstance(packet, PublishPacket)
        if packet.topic_alias is not None:
            data = mqtt.unaliased(data, _topic_of(connection, packet))
            packet = mqtt.read(data, connection.level)
            assert isinstance(packet, PublishPacket)
        topic, payload, packet_id = packet.topic, packet.payload, packet.packet_id
        if not self._check_publish(packet):
            self.tally.dropped += 1
            self._trace(
                "refuse", now, session.client_id, session=session.name,
                reason="not a topic that can be published to", detail=f"PUBLISH {topic[:200]}",
            )  # fmt: skip
            self._reject(connection, packet, mqtt5.PubAckReasonCode.TOPIC_NAME_INVALID)
            return True
        if qos == 2 and packet_id in session.received:
            # It came before and is answered again, but not published again.
            assert packet_id is not None
            self._answer(connection, mqtt.pubrec(packet_id), session.received[packet_id])
            return True
        if qos and connection.level == V5 and _unanswered(connection, session) >= RECENT:
            raise Malformed(f"more than {RECENT} publications are not acknowledged", 0x93)
        user = session.user
        if user is not None and not user.may_publish(topic):
            self._forbid(connection, session, packet)
            return True
        if not self._known(session, topic, now):
            self._hold(connection)
            return False
        attributes = content.attributes(topic, payload, packet.user_properties, packet.content_type)
        if user is not None and not user.may_publish_content(
            attributes, payload, packet.user_properties, packet.content_type
        ):
            self._forbid(connection, session, packet)
            return True
        if user is None or user.publish_where is None:
            self._may_publish(session, topic)
        empty = not payload
        kept = mqtt.keep(data, connection.level)
        broker = self.broker
        if packet_id is None:
            self._publish(session.client_id, topic, attributes, kept, empty, now)
        elif qos == 2:
            onward: Onward | None = None if broker.journal is None else {}
            self._publish(session.client_id, topic, attributes, kept, empty, now, onward)
            session.receive(packet_id, {} if onward is None else broker.kept_of(onward))
            self._answer(connection, mqtt.pubrec(packet_id), session.received[packet_id])
        elif broker.journal is None:
            self._publish(session.client_id, topic, attributes, kept, empty, now)
            self._reply(connection, mqtt.puback(packet_id))
        else:
            kept_on = session.journal is not None
            digest = hashlib.blake2b(kept, digest_size=16).digest() if kept_on else b""
            before = session.recent.get(packet_id) if data[0] & 8 else None
            if before is not None and before.digest == digest:
                self._owe(connection, mqtt.puback(packet_id), broker.still(before.onward))
            else:
                onward = {}
                self._publish(session.client_id, topic, attributes, kept, empty, now, onward)
                self._owe(connection, mqtt.puback(packet_id), onward)
                session.taken(packet_id, digest, broker.kept_of(onward))
        if self.broker.congested or self.filling:
            self.pause(connection, now)
        return True

    def _may_publish(self, session: Session, topic: str) -> None:
        """What the session publishes to this topic needs no further look."""
        field = topic.encode()
        if len(field) > TOPIC_BYTES:
            return
        most = TOPICS_READY
        if session.user is None and (session.declared or "*" in session.advertised):
            session.ready, most = self.topics, TOPICS_KNOWN
        elif session.ready is NOTHING:
            session.ready = {}
        if len(session.ready) >= most:
            session.ready.clear()
        session.ready[field] = topic

    def new_topic(self, session: Session, field: bytes) -> str | None:
        """A topic that nobody published to before, if the session may publish to it without a
        further look."""
        if session.ready is not self.topics or session.unsettled:
            return None
        if len(field) > TOPIC_BYTES or not field.isascii():
            return None
        topic = field.decode()
        if not topics.valid_topic(topic):
            return None
        self._may_publish(session, topic)
        return topic

    def pause(self, connection: Connection, now: TimeUs) -> None:
        """Take no more of this client until links have room and subscribers have read."""
        if self.broker.congested:
            connection.paused = True
            self.paused[connection] = None
        awaited = [each for each in self.filling if each is not connection and each.pressing(now)]
        self.filling.clear()
        if awaited:
            connection.awaits = awaited
            self.awaiting[connection] = None

    # Subscribers that read too slowly.

    def filled(self, connection: Connection, now: TimeUs) -> None:
        """The driver has more to write than the client reads."""
        connection.full = True
        self._press(connection, now)

    def unwritten(self, connection: Connection, size: int) -> None:
        """So many bytes wait at the driver for a client that reads too slowly."""
        self.unread.count(connection.unread_bytes, size)
        connection.unread_bytes = size
        connection.blocked = size >= BLOCKED_BYTES or not self.unread.grants(size, 0)

    def emptied(self, connection: Connection, now: TimeUs) -> None:
        """The client has read nearly all."""
        self.broker.advance(now)
        self.unwritten(connection, 0)
        connection.full = connection.blocked = False
        connection.replies_bytes = 0
        session = connection.session
        if session is not None:
            session.drain(now)
            self.dirty[connection] = None
            if session.feeds:
                self._feed(session)
        self._relieve(connection, session, now)

    def _relieve(self, connection: Connection, session: Session | None, now: TimeUs) -> None:
        if connection.pressing_until_us is None or connection.full:
            return
        if session is not None and session.crowded:
            return
        if connection.relieve(now):
            self.relieved = True

    def _press(self, connection: Connection, now: TimeUs) -> None:
        if connection.press(now):
            self.broker.after(connection.patience_us, self._out_of_patience)

    def _out_of_patience(self, now: TimeUs) -> None:
        self.relieved = True

    def go_on_publishing(self, now: TimeUs) -> None:
        """Let those publishers go on whose subscribers have read, or are waited for no longer."""
        self.relieved = False
        for connection in list(self.awaiting):
            connection.awaits = tuple(each for each in connection.awaits if each.pressing(now))
            if not connection.awaits:
                del self.awaiting[connection]
                self.proceed(connection, now)

    def _answer(self, connection: Connection, answer: bytes, kept: KeptOnward) -> None:
        """Answer a publication as soon as what it waits for is safe."""
        if self.broker.journal is None:
            self._reply(connection, answer)
        else:
            self._owe(connection, answer, self.broker.still(kept))

    def _owe(self, connection: Connection, answer: bytes, onward: dict[BrokerId, int]) -> None:
        connection.owed = added(connection.owed, (answer, onward))
        self.owing[connection] = None

    def acknowledge(self) -> None:
        """Acknowledge the publications that are safe now, each client's in their order."""
        for connection in list(self.owing):
            while connection.owed and self.broker.is_safe(connection.owed[0][1]):
                (answer, _), connection.owed = taken(connection.owed)
                if not connection.closing:
                    self._reply(connection, answer)
            if not connection.owed or connection.closing:
                del self.owing[connection]

    def forget_link(self, peer: BrokerId) -> None:
        for connection in self.owing:
            for _, onward in connection.owed:
                onward.pop(peer, None)

    def _hold(self, connection: Connection) -> None:
        """Go on with this client when the network knows what it publishes.

        Where publications are kept, nothing is taken before: as long as a broker is away.
        """
        connection.held = True
        session = connection.session

        def release(later: TimeUs, reached: bool) -> bool:
            if reached or self.broker.journal is None:
                if session is not None and session.unsettled:
                    session.unsettled = False
                    self._keep_session(session)
            elif not connection.closing:
                return True
            connection.held = False
            self.proceed(connection, later)
            self.dirty[connection] = None
            return False

        self.broker.settle(release)

    def _forbid(self, connection: Connection, session: Session, packet: PublishPacket) -> None:
        self.tally.dropped += 1
        self._trace(
            "refuse", self.broker.now, session.client_id, session=session.name,
            reason="not allowed", detail=f"PUBLISH {packet.topic[:200]}",
        )  # fmt: skip
        log.warning(
            "publication refused",
            extra={
                "client": session.client_id,
                "topic": packet.topic[:200],
                "reason": "not allowed",
            },
        )
        self._reject(connection, packet, mqtt5.PubAckReasonCode.NOT_AUTHORIZED)

    def _reject(
        self, connection: Connection, packet: PublishPacket, code: mqtt5.PubAckReasonCode
    ) -> None:
        """Say that a publication is not taken, if its quality has an answer."""
        number = packet.packet_id
        if number is None:
            return
        if packet.qos == 2:
            reason = mqtt5.PubRecReasonCode(int(code))
            self._write(connection, mqtt5.PubRecPacket(number, reason_code=reason))
        else:
            self._write(connection, mqtt5.PubAckPacket(number, reason_code=code))

    def _check_publish(self, packet: PublishPacket) -> bool:
        """Raise if it is against the standard; False if it is against our rules."""
        topic = packet.topic
        if packet.subscription_ids:
            raise Malformed("a client's PUBLISH has no subscription identifier", 0x82)
        if not topics.valid_topic(topic):
            if topic[:1] != "$":
                raise Malformed("not a topic that can be published to", 0x90)
            return False
        return True

    def _publish(
        self,
        publisher: str,
        topic: str,
        attributes: dict[str, Scalar],
        kept: bytes,
        empty: bool,
        now: TimeUs,
        onward: Onward | None = None,
    ) -> None:
        """What it causes at neighbours is noted in `onward`."""
        self.tally.published += 1
        self.tally.numbered += 1
        publication = Publication(
            publisher, f"{self.broker.boot}.{self.tally.numbered}", attributes, kept, now
        )
        self.broker.publish(publication, now, onward)
        if kept[0] & 1:
            reason = None if empty else self._not_retained(topic, kept)
            if reason is None:
                self.broker.retain(topic, b"" if empty else kept, attributes, now)
            else:
                log.warning(
                    "publication not retained",
                    extra={"client": publisher, "topic": topic[:200], "reason": reason},
                )

    def _not_retained(self, topic: str, kept: bytes) -> str | None:
        """Why a publication is not kept; None if it is."""
        broker, limits = self.broker, self.limits
        known = broker.retained.get(topic)
        live = len(broker.retained) - len(broker.removed) - len(broker.absent)
        if (known is None or not known.kept) and live >= limits.retained:
            return "too many topics"
        more = len(kept) - (0 if known is None else len(known.kept))
        if more > 0 and broker.retained_bytes + more > limits.retained_bytes:
            return "too many bytes are retained"
        return None

    def _known(self, session: Session, topic: str, now: TimeUs) -> bool:
        """Whether the network knows that the session publishes this; if not, now it is told."""
        if topic in session.advertised or session.declared or "*" in session.advertised:
            return not session.unsettled
        if len(session.advertised) < TOPICS_MAX:
            self._advertise(session, topic, topics.as_filter(topic), now)
            return not session.unsettled
        before = dict(session.advertised)
        self._advertise(session, "*", EVERYTHING, now)
        for name, advertisement_id in before.items():
            del session.advertised[name]
            if advertisement_id != session.advertised["*"]:
                self._unadvertise(advertisement_id, now)
        self._keep_session(session)
        return not session.unsettled

    def _advertise(self, session: Session, name: str, filter: Filter, now: TimeUs) -> bool:
        connection = session.connection
        if connection is not None and connection.follows and session.advertised:
            # A client that may move does so with all it publishes.
            advertisement_id = next(iter(session.advertised.values()))
            known = self.moves.advertisement(advertisement_id)
            filter, epoch = disjoin([known.filter, filter]), known.epoch + 1
        else:
            self.tally.numbered += 1
            number = f"{self.broker.boot}.{self.tally.numbered}"
            advertisement_id = f"{session.client_id}/{name}#{number}"
            epoch = 0
        travels = self._announce(session, name, advertisement_id, filter, now, epoch)
        session.unsettled |= travels
        self._keep_session(session)
        return travels

    def _announce(
        self,
        session: Session,
        name: str,
        advertisement_id: AdvertisementId,
        filter: Filter,
        now: TimeUs,
        epoch: int = 0,
    ) -> bool:
        session.advertised = put(session.advertised, name, advertisement_id)
        advertisement = Advertisement(advertisement_id, filter, session.client_id, epoch)
        self.moves.advertised(session, advertisement)
        return self.broker.step(Advertise(advertisement), now)

    def resume(self, now: TimeUs) -> None:
        """The links have room again: go on with those who were paused."""
        for connection in list(self.paused):
            del self.paused[connection]
            connection.paused = False
            self.dirty[connection] = None
            self.proceed(connection, now)
            if self.broker.congested:
                break

    # Deliveries.

    def deliver(self, effects: list[Effect], at: int, now: TimeUs) -> int:
        """Hand out the deliveries that stand from `at` on; where the next other effect stands."""
        first = effects[at]
        assert type(first) is Deliver
        names: list[SubscriptionId] = []
        for effect in effects[at:] if at else effects:
            if type(effect) is not Deliver or effect.publication is not first.publication:
                break
            names.append(effect.subscription_id)
        self.hand_out(names, first.publication, now)
        return at + len(names)

    def hand_out(
        self, names: Iterable[SubscriptionId], publication: Publication, now: TimeUs
    ) -> None:
        """Deliver a publication to these subscriptions."""
        plain: bytes | None = publication.payload  # as those get it who need nothing of their own
        letter = passed = None
        if not mqtt.is_plain(publication.payload):
            letter = self._letter(publication, now)
            passed = None if letter is None else _fresh(letter, publication.time_us, now)
            plain = None if passed is None else passed.plain(V5)
            if letter is not None and passed is None:
                self._stopped(publication, EXPIRED, now)
        latency = self.latency
        latency.handed += 1
        if latency.handed % TIMED == 0:
            latency.add(now - publication.time_us)
        if plain is None:
            return
        topic = str(publication.attributes.get("class"))
        for session, wanted in self._copy_directly(names, topic, plain, passed).items():
            letter = letter or Letter(publication.payload)
            self.hand(session, wanted, letter, publication, now)

    def copy(
        self,
        names: Iterable[SubscriptionId],
        publisher: str,
        boot: str,
        number: int,
        attributes: dict[str, Scalar],
        kept: bytes,
        time_us: TimeUs,
        now: TimeUs,
    ) -> None:
        """The same as `hand_out` of one that is delivered as it is kept; few sessions need more of
        it than that."""
        latency = self.latency
        latency.handed += 1
        if latency.handed % TIMED == 0:
            latency.add(now - time_us)
        several = self._copy_directly(names, str(attributes["class"]), kept, None)
        if several:
            publication = Publication(publisher, f"{boot}.{number}", attributes, kept, time_us)
            letter = Letter(kept)
            for session, wanted in several.items():
                self.hand(session, wanted, letter, publication, now)

    def _copy_directly(
        self, names: Iterable[SubscriptionId], topic: str, plain: bytes, letter: Letter | None
    ) -> dict[Session, list[Held]]:
        """Give these bytes to all who need nothing of their own, those of a usual publication if
        there is no letter; the subscriptions of others."""
        several: dict[Session, list[Held]] = {}
        copied: dict[Connection, None] = {}
        for held in map(self.holders.get, names):
            if held is not None:
                session = held.session
                connection = session.direct if letter is None or session.plain else None
                if connection is None or connection.full or not held.asks(topic):
                    several.setdefault(session, []).append(held)
                else:
                    copied[connection] = None
        plain3: bytes | None = None
        for connection in copied:
            if connection.level == V5:
                connection.out.append(plain)
            else:
                plain3 = plain3 or (letter or Letter(plain)).plain(V3)
                connection.out.append(plain3)
        self.dirty.update(copied)
        self.tally.delivered += len(copied)
        return several

    def _letter(self, publication: Publication, now: TimeUs) -> Letter | None:
        """What is to be delivered; None of a peer that sent no such thing."""
        try:
            return Letter(publication.payload)
        except Malformed as error:
            log.warning("publication dropped", extra={"reason": str(error)})
            self.tally.dropped += 1
            self._stopped(publication, MALFORMED, now)
            return None

    def lacks(self, subscription_id: SubscriptionId, origin: BrokerId) -> bool:
        """Whether a session that came from another broker may lack a publication that has been
        here before; it knows itself which it had."""
        held = self.holders.get(subscription_id)
        return held is not None and held.session.had is not None and origin in held.session.owing

    def would_deliver(self, effect: Deliver) -> dict[str, str | None]:
        """What would become of a delivery: to whom, and why it would stop or wait."""
        held = self.holders.get(effect.subscription_id)
        if held is None:
            return {"subscription": effect.subscription_id, "client": None, "reason": ENDED}
        session, publication = held.session, effect.publication
        reason = None
        if held.terms.no_local and publication.publisher == session.client_id:
            reason = NO_LOCAL
        elif not held.asks(str(publication.attributes.get("class"))):
            reason = LEVELS
        elif session.connection is None:
            reason = "waits for the client" if held.terms.qos else AWAY
        return {"subscription": held.id, "client": session.client_id, "reason": reason}

    def hand(
        self,
        session: Session,
        all_held: list[Held],
        letter: Letter,
        publication: Publication,
        now: TimeUs,
    ) -> None:
        """One letter for all subscriptions of a session that match: at the best quality."""
        if session.ended or (session.had is not None and publication.id in session.had):
            return
        qos, retain, identifiers, wanted = 0, 0, [], False
        mine = publication.publisher == session.client_id
        topic = str(publication.attributes.get("class"))
        for held in all_held:
            if held.terms.no_local and mine:
                self._stopped(publication, NO_LOCAL, now, subscription=held.id)
                continue
            if not held.asks(topic):
                self._stopped(publication, LEVELS, now, subscription=held.id)
                continue
            wanted = True
            qos = max(qos, min(letter.qos, held.terms.qos))
            if held.terms.as_published:
                retain |= letter.retain
            if held.identifier:
                identifiers.append(held.identifier)
        if not wanted:
            return
        parcel = self._parcel(letter, qos, retain, publication.time_us)
        parcel.identifiers = identifiers
        if session.had is not None:
            session.takes(publication.id)
        if session.leaving:
            parcel.publication = publication.id
        traces = self.broker.traces
        if traces is not None and traces.sampled(publication):
            parcel.then = self._traced(session, publication, now)
        if session.deliver(parcel, now):
            self.tally.delivered += 1
        else:
            self.tally.dropped += 1
            self._stopped(publication, session.why, now, client=session.client_id)
            if session.overflowed:
                self.overflowed[session] = None
        self.written_to(session, now)

    def hand_kept(self, session: Session, publication: Publication, now: TimeUs) -> None:
        """Deliver a publication that was published here before the session came."""
        wanted = [
            held
            for held in session.subscriptions.values()
            if not held.terms.group and matches(held.filter, publication.attributes)
        ]
        if wanted:
            self.hand(session, wanted, Letter(publication.payload), publication, now)

    def written_to(self, session: Session, now: TimeUs) -> None:
        """There may be something to write; publishers wait for who has too much."""
        connection = session.connection
        if connection is not None:
            self.dirty[connection] = None
            if session.crowded:
                self._press(connection, now)
            if connection.pressing(now):
                self.filling[connection] = None

    def _traced(
        self, session: Session, publication: Publication, since_us: TimeUs
    ) -> Callable[[str | None], None]:
        """Records what becomes of a publication that waits in a session."""

        def over(reason: str | None) -> None:
            now, traces = self.broker.now, self.broker.traces
            assert traces is not None
            if reason is not None:
                self._stopped(publication, reason, now, client=session.client_id)
                return
            traces.row(
                "hand", now, client=session.client_id, session=session.name,
                publisher=publication.publisher, publication=publication.id,
                published_us=publication.time_us, queue=len(session.waiting),
                waited_us=now - since_us,
            )  # fmt: skip

        return over

    def _stopped(self, publication: Publication, reason: str, now: TimeUs, **columns: str) -> None:
        if self.broker.traces is not None:
            self.broker.traces.stopped(publication, reason, now, **columns)

    def _parcel(self, letter: Letter, qos: int, retain: int, published_us: TimeUs) -> Parcel:
        expiry_s = letter.expiry_s
        expires_us = None if expiry_s is None else published_us + expiry_s * SECOND_US
        return Parcel(letter, qos, retain, [], expires_us)


def _brief(reasons: list[str]) -> str:
    """Some of the reasons, each once, in a text of bounded length."""
    each = list(dict.fromkeys(reasons))
    text = "; ".join(each[:REASONS])[:REASON_MAX]
    return f"{text}; and {len(each) - REASONS} more" if len(each) > REASONS else text


def _weight(pattern: str, content: Filter) -> int:
    """As how many subscriptions it counts: by how long a publication may take to be compared."""
    _, constraints, values, patterns = content.load
    levels = -(-pattern.count("+") // LEVELS_WEIGHT)
    return 1 + (constraints + values) // WEIGHT + PATTERN_WEIGHT * patterns + levels


def _able(held: Held, qos: int) -> bool:
    """Whether a member of a group can be given a publication: it is there, or will be."""
    session = held.session
    if session.ended:
        return False
    return session.connection is not None or bool(session.expiry_s and min(qos, held.terms.qos))


def _load(held: Held) -> tuple[bool, bool, int]:
    session = held.session
    away = session.connection is None
    return not session.idle, away, len(session.waiting) + session.in_flight


def _topic_of(connection: Connection, packet: PublishPacket) -> str:
    """The topic that a publication's alias stands for, from now on or since before."""
    alias = packet.topic_alias
    assert alias is not None
    if not 0 < alias <= ALIASES_MAX:
        raise Malformed(f"topic alias {alias}; {ALIASES_MAX} are offered", 0x94)
    if connection.aliases is None:
        connection.aliases = {}
    if packet.topic:
        connection.aliases[alias] = packet.topic
    elif alias not in connection.aliases:
        raise Malformed(f"topic alias {alias} stands for nothing", 0x82)
    return connection.aliases[alias]


def _unanswered(connection: Connection, session: Session) -> int:
    """How many publications a client has sent that it is still to be answered for good."""
    return max(len(session.received), len(connection.owed))


def _fresh(letter: Letter, published_us: TimeUs, now: TimeUs) -> Letter | None:
    """The letter with what the way here left of its expiry; None if that is nothing."""
    expiry_s, waited_s = letter.expiry_s, (now - published_us) // SECOND_US
    if expiry_s is None or waited_s <= 0:
        return letter
    return letter.expiring(expiry_s - waited_s) if waited_s < expiry_s else None


def _last_will(will: mqtt5.Will) -> LastWill:
    if not topics.valid_topic(will.topic):
        raise Malformed("the will's topic is not valid", 0x90)
    mqtt.check_response_topic(will.response_topic)
    packet = PublishPacket(
        will.topic, will.payload or b"", qos=will.qos, retain=will.retain,
        packet_id=1 if int(will.qos) else None,
        payload_format_indicator=will.payload_format_indicator,
        message_expiry_interval=will.message_expiry_interval,
        content_type=will.content_type, response_topic=will.response_topic,
        correlation_data=will.correlation_data, user_properties=will.user_properties,
    )  # fmt: skip
    return LastWill(will.topic, mqtt.keep(packet.write(), V5), will.will_delay_interval)


def _of_attributes(filter: Filter) -> Filter:
    """The filter, unless it asks for fields of fields: of those each element would have to keep to
    it."""
    for conjunction in filter.conjunctions:
        for name, _ in conjunction:
            if "." in name:
                raise InputError(
                    f"{name[:60]} is a nested field",
                    remedy="compare fields of the payload's outermost object, or a user property",
                )
    return filter


def _levels(pattern: str) -> re.Pattern[str] | None:
    return None if topics.exact(pattern) else topics.matcher(pattern)


class _Refusal(Exception):
    """Why one topic filter of a SUBSCRIBE is refused; `code` is the standard's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
