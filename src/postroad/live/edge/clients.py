"""The MQTT side of a broker: what each packet of a client means.

MQTT 5 and 3.1.1, quality of service 0 to 2, retained publications, last will, session expiry,
keep-alive, content filters in SUBSCRIBE's user property `$where`. A client may say in CONNECT's
user property `$advertise` what it will publish; otherwise its broker advertises each topic at the
first publication to it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import mqtt5
import msgspec
from mqtt5 import ConnAckReasonCode, Packet, PublishPacket

from postroad.errors import InputError
from postroad.filters import EVERYTHING, Filter, conjoin, disjoin, matches, parse, sharing
from postroad.live.edge import content, moves, mqtt, shares, system, topics, users
from postroad.live.edge.host import Host
from postroad.live.edge.latency import Latency
from postroad.live.edge.luggage import Luggage
from postroad.live.edge.moves import Moves
from postroad.live.edge.mqtt import V3, V5, Letter, Malformed
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
from postroad.live.edge.users import User, Users
from postroad.live.links.batch import OutgoingBatch
from postroad.live.links.messages import BatchMessage, Handoff, RunMessage
from postroad.live.links.neighbour import Onward
from postroad.live.network import Limits
from postroad.live.store import Kept, ParcelRow, SessionRow, SubscriptionRow, WillRow
from postroad.matching.index import NEIGHBOUR, OLD, PASSED_BITS, PASSED_MAX, PLAIN, Index
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
    Recipients,
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

if TYPE_CHECKING:
    from postroad.matching.fanout import Fanout

log = logging.getLogger("postroad.clients")

NOT_HERE = "it is not connected here"
TOPICS_MAX = 64  # a client that publishes to more is taken to publish anything
ADVERTISED_MAX = 64  # conjunctions, constraints, values and patterns: all filters are compared
TOPICS_READY = 4_096  # of a client: that may be published to without a further look,
TOPICS_KNOWN = 32_768  # or of all clients that may publish anything,
TOPIC_BYTES = 128  # if they are no longer than that
CONNECT_US = 10_000_000  # by then a new connection must have said CONNECT
TURN_NS = 5_000_000  # so much CPU time a turn takes to serve clients before it writes,
SHARE_NS = 1_000_000  # and so much at least one that has more to do than others
RETAINED_AT_ONCE = 200  # topics looked at for one step of a subscription,
RETAINED_BYTES = 64 << 10  # and so much sent before the client must have read
WEIGHT = 64  # constraints and values of a filter that count as one more subscription,
PATTERN_WEIGHT = 2  # as how many more a LIKE pattern counts that is no mere prefix,
LEVELS_WEIGHT = 4  # and up to how many `+` in a topic filter as one more
REASONS, REASON_MAX = 5, 1_000  # that a reason string tells, and its characters
BLOCKED_BYTES = 4 << 20  # that a client has not read: then it gets no more of quality 0
REPLIES_MAX = 1 << 20  # bytes of answers for a client that reads nothing
TIMED = 16  # of so many publications one is timed: the clock is the turn's, but sums take time
LONG = 16_000  # bytes: longer publications are not among the usual
TURN_BYTES = 1 << 20  # of them that are handed out before all is written,
TURN_INPUT_BYTES = 64 << 10  # and of what a client sent;
SHORT_NS, SHORT_INPUT_BYTES = 500_000, 16 << 10  # all this is less while beside who keeps the
LATELY_US = 100_000  # broker busy another has sent a little, so long ago at most;
LITTLE_BYTES = 1_024
MANY_BYTES = 512  # of input, in which it pays to look for what nobody wants,
WAIT_MAX = 16  # unless the last looks found none: then so many publications later at the latest
LOOK_MAX = 2_048  # publications in one look, if time allows
AT_ONCE = 8  # clients that are written to without a turn, and whose ways are remembered
RUN = 256  # publications to one topic that are handed out in one go,
RUN_BYTES = 16_000  # and their bytes, where a neighbour gets them too
ALIASES_MAX = 64  # topic aliases that a client may give


# Sessions that get what is published to a topic, and neighbours.
Way = tuple[tuple[Session, ...], list[BrokerId]]
# Sessions and neighbours that want what a filter matches, by the filter's identity.
Whose = dict[int, tuple[Session | BrokerId, ...]]


class Destinations(NamedTuple):
    """Where a publication goes at once: the clients that get it, and neighbours. One that is
    `lasting` is that of all to this topic, which begin with this field."""

    topic: str
    field: bytes
    lasting: bool
    targets: list[Connection]
    peers: list[BrokerId]


class RunsTaken(NamedTuple):
    """How runs were handed out: for how many publications the router took a step; if not all were,
    where the rest begins, how many are before it, and whether the tables have changed; and how many
    bytes clients got as they were."""

    stepped: int
    end: int = 0
    before: int = 0
    outdated: bool = False
    bytes: int = 0


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
        self._end_ns = 1  # of the share at hand
        # Topics whose publications do not all go the same way, and those of which that is sure only
        # until the next tick: to ask the router about each is always right.
        self._apart: set[str] = set()
        self._apart_briefly: list[str] = []
        self._heard: dict[bytes, str] = {}  # topics by their bytes, that neighbours passed on
        # Topics that can be published to, and where all that is published to one goes, by where it
        # comes from; the latter as of a version of the routes.
        self.topics: dict[bytes, str] = {}
        self._ways: dict[BrokerId | None, dict[str, Way]] = {}
        self._whose: dict[BrokerId | None, Whose] = {}  # the same of filters,
        self._fanouts: dict[BrokerId | None, Fanout[Filter, Session | BrokerId]] = {}  # compiled
        self._retried_us: TimeUs = 0  # when rows that were kept back there were last let go
        self._ways_version = 0
        self.ready: dict[Connection, None] = {}  # who has sent something since the last turn
        self.behind: dict[Connection, None] = {}  # who had more to do than a share
        self.chores: deque[Iterator[bool]] = deque()  # what is left to do for who is gone
        # When a little came of one client while another had more to do than a share.
        self._little_us: TimeUs = -LATELY_US
        self._passed_over = False  # whether those behind were not served in the last turn
        self.feeding: dict[Session, None] = {}  # who can be sent more of what is retained
        self.filling: dict[Connection, None] = {}  # slow readers of the publication in hand
        self.awaiting: dict[Connection, None] = {}  # publishers that wait for slow readers
        self.relieved = False  # whether some may go on
        self.draining = False
        self.published = self.delivered = self.dropped = self.refused = 0
        self.bytes_received = self.bytes_sent = 0
        self.latency = Latency()
        self._handed = 0  # publications; one in TIMED is timed
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
        self._count = 0
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
        self._count += 1
        name = f"{self.broker.boot}.{self._count}"
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
        self._count += 1
        return f"{session.client_id}/{pattern}#{self.broker.boot}.{self._count}"

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
            self.refused += 1
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
        self.refused += 1

    def wrote(self, size: int) -> None:
        self.bytes_sent += size

    def received(self, connection: Connection, data: bytes, now: TimeUs) -> None:
        self.broker.advance(now)
        self.bytes_received += len(data)
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
        turn_ns = SHORT_NS if now - self._little_us < LATELY_US else TURN_NS
        end_ns = clock() + turn_ns
        served = len(self.behind)
        if self.ready and not self._passed_over:
            served = 0
        self._passed_over = not served
        share_ns = turn_ns if len(self.ready) == 1 and not self.behind else min(SHARE_NS, turn_ns)
        while self.ready and clock() < end_ns:
            connection = next(iter(self.ready))
            del self.ready[connection]
            self._end_ns = clock() + share_ns
            if self.behind and connection.input_bytes <= LITTLE_BYTES:
                self._little_us = now
            if not self._serve(connection, now):
                self.behind[connection] = None
        # At least one of them, so that nobody waits for ever; the others in the next turn.
        for turn in range(served):
            left_ns = end_ns - clock()
            if turn and left_ns <= 0:
                break
            connection = next(iter(self.behind))
            del self.behind[connection]
            self._end_ns = clock() + max(min(SHARE_NS, turn_ns), left_ns // (served - turn))
            if not self._serve(connection, now):
                self.behind[connection] = None
        feeding, self.feeding = self.feeding, {}
        for session in feeding:
            self._end_ns = clock() + SHARE_NS
            if not self._go_on_feeding(session):
                self.feeding[session] = None
        self._end_ns = clock() + SHARE_NS
        while self.chores and self._finish(self.chores[0]):
            self.chores.popleft()

    @property
    def busy(self) -> bool:
        """Whether another turn is to come at once."""
        return bool(self.ready or self.behind or self.feeding or self.chores or self.relieved)

    def _over(self) -> bool:
        """Whether the share at hand is used up."""
        return self.clock is not None and self.clock() >= self._end_ns

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
                    at = self._usual(connection, connection.session, data, at, now)
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

    def _usual(
        self, connection: Connection, session: Session, data: bytes, at: int, now: TimeUs
    ) -> int:
        """Take the usual publications from `at` on; where something else begins.

        They are short, have quality 0 and no properties, and a topic that this client has
        published to before. `_on_publish` does the same for all others, which takes longer.
        """
        broker, publisher, size = self.broker, session.client_id, len(data)
        topic_of, attributes_of = session.ready.get, content.plain_attributes
        interested = broker.asking()
        boot, published, handed = broker.boot, 0, 0
        batch = broker.batch(publisher, boot, now, 0)
        filling, clock, end_ns = self.filling, self.clock, self._end_ns
        old, longest = connection.level == V3, min(LONG, self.limits.packet_bytes)
        look, last_ns = 1, TURN_NS
        asked = 0  # publications that nobody wanted, since others were last counted
        apart = self._apart
        short = now - self._little_us < LATELY_US
        left_bytes, last = TURN_BYTES, at + (SHORT_INPUT_BYTES if short else TURN_INPUT_BYTES)
        ways, given = self._ways_from(None), 0
        match, passing, whose = None, None, self._whose.setdefault(None, {})
        fanout: Fanout[Filter, Session | BrokerId] | None = None
        if (index := broker.deciding()) is not None:
            match, passing = index.match, index.passing() if size - at >= MANY_BYTES else None
            fanout = None if passing is None else self._fanout(index, None)
        due, wait = 0, 1  # how many are to be published before the next look for what nobody wants
        runs: list[Any] = []  # what a look found, as `packets.passer` has it
        while at + 4 < size and data[at] == 0x30:
            if clock is not None and published >= look:
                # To look at the clock takes time too: less often while there is much left.
                left_ns = end_ns - clock()
                if left_ns <= 0:
                    break
                look = published + (16 if last_ns - left_ns < SHARE_NS // 4 else 1)
                last_ns = left_ns
            if passing is not None and fanout is not None and published >= due:
                limit_ns = 0 if clock is None else max(1, min(end_ns - clock(), SHARE_NS))
                fanout.allow(left_bytes)
                answer = passing((
                    data, at, LOOK_MAX, longest, old, session.ready, apart, runs, fanout.address,
                    limit_ns,
                ))  # fmt: skip
                end, count = answer >> PASSED_BITS, answer & PASSED_MAX
                if runs:
                    self._count += asked
                    handed += asked
                    asked = 0
                    numbers = range(self._count + 1, self._count + 1 + count)
                    taken = self._take_runs(
                        runs, numbers, None, whose, fanout, interested, batch, now, connection,
                        left_bytes,
                    )  # fmt: skip
                    runs.clear()
                    handed -= taken.stepped
                    left_bytes -= taken.bytes
                    if taken.end:
                        end, count = taken.end, taken.before
                    if taken.outdated:
                        ways, passing = self._ways_from(None), None
                        whose = self._whose.setdefault(None, {})
                published += count
                asked += count
                at = end
                if left_bytes <= 0:
                    self._end_ns = 0  # it is to be written before there is more
                    break
                if connection.stopped:
                    break
                look = published
                wait = 1 if count else min(2 * wait, WAIT_MAX)
                due = published + (wait if count < LOOK_MAX else 0)
                if count:
                    continue
            body = at + 2
            length = data[at + 1]
            if length >= 128:
                if not 0 < data[body] < 128:
                    break
                length = length & 127 | data[body] << 7
                body += 1
            end = body + length
            topic_end = body + 2 + (data[body] << 8 | data[body + 1])
            if end > size or end - at > longest or topic_end > end:
                break
            if not old and (topic_end == end or data[topic_end]):
                break
            topic = topic_of(data[body + 2 : topic_end])
            if topic is None:
                topic = self._new_topic(session, data[body + 2 : topic_end])
                if topic is None:
                    break
            packet = data[at:end]
            if topic not in apart:
                way = None
                # Several to one topic in a row go faster together, and so does one alone.
                if ways is not None and not data.startswith(data[body:topic_end], end + body - at):
                    way = ways.get(topic) or self._way(topic, None, ways)
                    if way is not None and way[1] and end == size:
                        way = None
                if way is not None and self._copy_to(way[0], packet, old):
                    published += 1
                    asked += 1
                    given += bool(way[0])
                    if way[1]:
                        kept = mqtt.as_of_other_level(packet, old) if old else packet
                        batch.add((self._count + asked,), kept, way[1])
                    elif not way[0] and passing is not None and len(apart) < TOPICS_KNOWN:
                        apart.add(topic)  # nobody wants it: the next look passes over it
                    left_bytes -= len(way[0]) * (end - at)
                    at = end
                    if left_bytes <= 0 or at >= last:
                        self._end_ns = 0  # it is to be written before there is more
                        break
                    if broker.congested:
                        self._pause(connection, now)
                        if connection.stopped:
                            break
                    continue
                batch.close()
                self._count += asked
                handed += asked
                asked = 0
                came = None, publisher, boot, self._count + 1, now, 0
                run = self._pass_on(data, at, body, topic_end, end, topic, old, longest, came, now)
                if run is not None:
                    count, copies, later = run
                    left_bytes -= copies * (later - at)
                    at = later
                    self._count += count
                    published += count
                    if left_bytes <= 0 or at >= last:
                        self._end_ns = 0  # it is to be written before there is more
                        break
                    if broker.congested:
                        self._pause(connection, now)
                        if connection.stopped:
                            break
                    continue
            payload = data[topic_end if old else topic_end + 1 : end]
            attributes = attributes_of(topic, payload)
            filters = None if match is None else match(attributes)
            published += 1
            asked += 1
            at = end
            if filters is None or filters:
                self._count = count = self._count + asked
                onward = None
                if filters:
                    onward = self._copy_to_all(filters, whose, None, packet, 1, old, 0)
                if old and onward != []:
                    packet = mqtt.as_of_other_level(packet, old)
                if onward is None:
                    asked -= self._take_single(
                        count, packet, attributes, None, interested, batch, now
                    )
                elif onward:
                    batch.add((count,), packet, onward)
                handed += asked
                asked = 0
                if broker.congested or filling:
                    self._pause(connection, now)
                    if connection.stopped:
                        break
        self._count += asked
        handed += asked
        batch.close()
        if published and broker.congested:
            self._pause(connection, now)
        self.published += published
        self._timed(0, given)
        broker.passed(handed)
        return at

    def _timed(self, took_us: TimeUs, count: int) -> None:
        """So many publications were handed out so long after they were published."""
        before, self._handed = self._handed, self._handed + count
        self.latency.add(took_us, self._handed // TIMED - before // TIMED)

    def at_once(self, connection: Connection, data: bytes) -> Destinations | None:
        """A publication came alone while there was nothing to do: where it goes as it is, as does
        another of this client to its topic until the next turn.

        None if it has to go through a turn.
        """
        session, size = connection.session, len(data)
        if session is None or size < 5 or data[0] != 0x30 or connection.input:
            return None
        body, length = 2, data[1]
        if length >= 128 and data[2]:
            body, length = 3, length & 127 | data[2] << 7
        topic_end = body + 2 + (data[body] << 8 | data[body + 1])
        old = connection.level == V3
        if body + length != size or topic_end > size:
            return None
        if not old and not data.startswith(b"\0", topic_end):  # it has properties
            return None
        topic = session.ready.get(data[body + 2 : topic_end])
        if topic is None or not connection.reading or self.limits.bytes_per_s:
            return None
        payload = topic_end if old else topic_end + 1
        return self._route_of(topic, data[body:payload], data[payload:], None)

    def at_once_from(self, sender: BrokerId, run: RunMessage) -> Destinations | None:
        """The same of a run of one from a neighbour."""
        try:
            field = mqtt.topic_field(run.topic) + b"\0"
        except Malformed:
            return None
        if not mqtt.goes_alone(run.packets, field):
            return None
        payload = run.packets[(2 if run.packets[1] < 128 else 3) + len(field) :]
        return self._route_of(run.topic, field, payload, sender)

    def _route_of(
        self, topic: str, field: bytes, payload: bytes, sender: BrokerId | None
    ) -> Destinations | None:
        ways = self._ways_from(sender)
        if ways is None:
            return None
        if topic not in self._apart:
            way = ways.get(topic) or self._way(topic, sender, ways)
            if way is not None:
                targets = [each.direct for each in way[0] if each.direct is not None]
                if len(targets) < len(way[0]):
                    return None
                return Destinations(topic, field, True, targets, way[1])
        index = self.broker.deciding(sender)
        if index is None:
            return None
        filters = index.match(content.plain_attributes(topic, payload))
        gets = self._who_gets(filters, self._whose.setdefault(sender, {}), sender)
        return None if gets is None else Destinations(topic, field, False, *gets)

    def went_at_once(self, connection: Connection, data: bytes, copies: int, now: TimeUs) -> None:
        """A client's publication goes to so many clients without a turn."""
        self.broker.advance(now)
        connection.heard_us = now
        self.bytes_received += len(data)
        self._count += 1
        self.published += 1
        self.copied_at_once(copies, 0)

    def copied_at_once(self, copies: int, took_us: TimeUs) -> None:
        """A publication went to so many clients without a turn, so long after it was published."""
        self.broker.passed(1)
        self.delivered += copies
        if copies:
            self._handed += 1
            if self._handed % TIMED == 0:
                self.latency.add(took_us)

    def run_of_one(self, connection: Connection, data: bytes, topic: str) -> RunMessage:
        """The publication that went at once last, for neighbours."""
        session = connection.session
        assert session is not None
        packet = mqtt.as_of_other_level(data, True) if connection.level == V3 else data
        boot, now = self.broker.boot, self.broker.now
        return RunMessage(session.client_id, boot, self._count, topic, packet, now, 1)

    def _ways_from(self, sender: BrokerId | None) -> dict[str, Way] | None:
        """The known ways of publications that come from there; None where there may be none."""
        version = self.broker.routes_version()
        if version is None:
            return None
        if version != self._ways_version:
            self._ways_version = version
            self._apart.clear()
            self._ways.clear()
            self._whose.clear()
            self._fanouts.clear()
        return self._ways.setdefault(sender, {})

    def _set_apart(self, topic: str) -> None:
        """Ask about each publication to a topic: until the tables change, if filters want to know
        what it says, and otherwise, where a client or a neighbour was not ready, until a tick."""
        if len(self._apart) >= TOPICS_KNOWN:
            self._apart.clear()
        self._apart.add(topic)
        known = self.broker.routes_version() is not None and len(topic) <= TOPIC_BYTES
        if not (known and self.broker.content_matters(topic)):
            self._apart_briefly.append(topic)

    def _way(self, topic: str, sender: BrokerId | None, ways: dict[str, Way]) -> Way | None:
        """Where each publication to a topic goes, if that is the same for all and few clients."""
        found = self.broker.recipients(topic, sender)
        if found is None:
            self._set_apart(topic)
            return None
        sessions: dict[Session, None] = {}
        for name in found[0]:
            held = self.holders.get(name)
            if held is None or len(sessions) > AT_ONCE:
                return None
            sessions[held.session] = None
        if len(sessions) > AT_ONCE:
            return None
        way = tuple(sessions), found[1]
        if len(topic) <= TOPIC_BYTES:
            if len(ways) >= TOPICS_KNOWN:
                ways.clear()
            ways[topic] = way
        return way

    def _copy_to(self, sessions: tuple[Session, ...], packet: bytes, old: bool) -> bool:
        """Give a packet, as a client of this level sent it, to all these; False if one of them
        needs a further look, and then nobody has got it."""
        targets: list[Connection] = []
        for session in sessions:
            target = session.direct
            if target is None or target.full:
                return False
            targets.append(target)
        self._write_to(targets, packet, 1, old)
        return True

    def _copy_to_all(
        self,
        filters: list[Filter],
        whose: Whose,
        sender: BrokerId | None,
        run: bytes,
        count: int,
        old: bool,
        took_us: TimeUs,
    ) -> list[BrokerId] | None:
        """The same of so many packets in a row for all who want what one of these filters matches:
        the neighbours that do too; None if somebody needs a further look."""
        gets = self._who_gets(filters, whose, sender)
        if gets is None:
            return None
        targets, onward = gets
        if targets:
            self._write_to(targets, run, count, old)
            self._timed(took_us, count)
        return onward

    def _who_gets(
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
            target = each.direct
            if target is None or target.full:
                return None
            targets.append(target)
        if len(onward) > 1:
            onward.sort()
        return targets, onward

    def _whose_is(self, filter: Filter, sender: BrokerId | None) -> tuple[Session | BrokerId, ...]:
        """Whom a match with this filter names. A subscription that nobody holds any more will soon
        leave the tables."""
        names, onward = self.broker.wanting(filter, sender)
        sessions = [self.holders[name].session for name in names if name in self.holders]
        return (*dict.fromkeys(sessions), *onward)

    def _write_to(self, targets: list[Connection], run: bytes, count: int, old: bool) -> None:
        """So many packets as a client of this level sent them, as each of these has them."""
        level, other, dirty = V3 if old else V5, b"", self.dirty
        for target in targets:
            if target.level == level:
                target.out.append(run)
            else:
                other = other or mqtt.run_of_other_level(run, old)
                target.out.append(other)
            dirty[target] = None
        self.delivered += count * len(targets)

    def _fanout(
        self, index: Index[Filter], sender: BrokerId | None
    ) -> Fanout[Filter, Session | BrokerId]:
        """Who gets what filters match of what comes from there, as far as that was learned."""
        fanout = self._fanouts.get(sender)
        if fanout is None:
            fanout = self._fanouts[sender] = index.fanout()
        return fanout

    def _learn(
        self, fanout: Fanout[Filter, Session | BrokerId], filters: list[Filter], whose: Whose
    ) -> None:
        """Tell compiled code who gets what these filters match, of those that matched before."""
        for filter in filters:
            if fanout.knows(filter) or (wanting := whose.get(id(filter))) is None:
                continue
            recipients = [(each, kind) for each in wanting if (kind := _kind(each)) is not None]
            fanout.learn(filter, recipients if len(recipients) == len(wanting) else None)

    def _take_runs(
        self,
        runs: list[Any],
        numbers: Sequence[int],
        sender: BrokerId | None,
        whose: Whose,
        fanout: Fanout[Filter, Session | BrokerId],
        interested: Callable[[Mapping[str, Scalar]], Recipients | None],
        batch: OutgoingBatch,
        now: TimeUs,
        connection: Connection | None = None,
        left_bytes: int = sys.maxsize,
    ) -> RunsTaken:
        """Hand out what a look found among publications with these numbers, from a neighbour or
        from this client, until so many bytes went to clients."""
        broker, took_us = self.broker, now - batch.words[2]
        old = connection is not None and connection.level == V3
        stepped = copied = 0
        recipients, kinds = fanout.recipients, fanout.kinds  # as of this look
        for place in range(0, len(runs), 3):
            word, run, matched = runs[place : place + 3]
            before, count = word >> PASSED_BITS & PASSED_MAX, word & PASSED_MAX
            onward: list[BrokerId] | None = []
            if run is None:
                size, stale = self._take_pieces(
                    matched, numbers, sender, recipients, kinds, batch, now
                )
                copied += size
                if stale:
                    fanout.forget()
                self._timed(took_us, count)
                count = 0
            else:
                self._learn(fanout, matched, whose)
                delivered = self.delivered
                onward = self._copy_to_all(matched, whose, sender, run, count, old, took_us)
                copied += (self.delivered - delivered) // count * len(run)
                if old and onward != []:
                    run = mqtt.run_of_other_level(run, old)
            if onward is None:
                for number, packet in enumerate(mqtt.usuals(run), before):
                    stepped += self._take_single(
                        numbers[number],
                        packet,
                        content.of_kept(packet),
                        sender,
                        interested,
                        batch,
                        now,
                    )
            elif onward:
                batch.add(numbers[before : before + count], run, onward)
            if connection is not None and (broker.congested or self.filling):
                self._pause(connection, now)
            outdated = onward is None and broker.routes_version() != self._ways_version
            stopped = connection is not None and connection.stopped
            if outdated or stopped or copied >= left_bytes:
                end = word >> 2 * PASSED_BITS
                return RunsTaken(stepped, end, before + count, outdated, copied)
        return RunsTaken(stepped, bytes=copied)

    def _take_pieces(
        self,
        pieces: list[Any],
        numbers: Sequence[int],
        sender: BrokerId | None,
        recipients: list[Session | BrokerId],
        kinds: list[int],
        batch: OutgoingBatch,
        now: TimeUs,
    ) -> tuple[int, bool]:
        """Give each recipient its piece of publications with these numbers: how many bytes clients
        get, and whether one is not as was learned."""
        dirty, size = self.dirty, 0
        delivered, stale = 0, False
        each = iter(pieces)
        for word, piece, places in zip(each, each, each, strict=True):
            recipient = recipients[word >> PASSED_BITS]
            if isinstance(recipient, int):
                chosen = [numbers[place] for place in memoryview(places).cast("H")]
                batch.add(chosen, piece, (recipient,))
                continue
            size += len(piece)
            target = recipient.direct
            kind = kinds[word >> PASSED_BITS]
            if target is not None and not target.full and (target.level == V3) == (kind == OLD):
                target.out.append(piece)
                dirty[target] = None
                delivered += word & PASSED_MAX
                continue
            # It has changed since that was learned, or reads too slowly.
            stale |= target is None or not target.full
            chosen = [numbers[place] for place in memoryview(places).cast("H")]
            whole = mqtt.run_of_other_level(piece, True) if kind == OLD else piece
            self._hand_singly(recipient, whole, chosen, sender, batch, now)
        self.delivered += delivered
        return size, stale

    def _hand_singly(
        self,
        session: Session,
        run: bytes,
        numbers: Sequence[int],
        sender: BrokerId | None,
        batch: OutgoingBatch,
        now: TimeUs,
    ) -> None:
        """Deliver publications with these numbers to one session that needs a further look."""
        broker, (publisher, boot, time_us) = self.broker, batch.words
        index = broker.deciding(sender)
        assert index is not None
        for number, packet in zip(numbers, mqtt.usuals(run), strict=True):
            attributes = content.of_kept(packet)
            names = chain.from_iterable(
                broker.wanting(filter, sender)[0] for filter in index.match(attributes)
            )
            wanted = [held for held in map(self.holders.get, names)
                      if held is not None and held.session is session]  # fmt: skip
            single = Publication(publisher, f"{boot}.{number}", attributes, packet, time_us)
            self._hand(session, wanted, Letter(packet), single, now)

    def _take_single(
        self,
        number: int,
        packet: bytes,
        attributes: dict[str, Scalar],
        sender: BrokerId | None,
        interested: Callable[[Mapping[str, Scalar]], Recipients | None],
        batch: OutgoingBatch,
        now: TimeUs,
    ) -> bool:
        """Hand out a publication that needs a further look; whether its router took a step."""
        recipients = interested(attributes)
        if recipients is None:
            batch.close()
            single = batch.single(number, packet, attributes)
            if sender is None:
                self.broker.publish(single, now)
            else:
                self.broker.hand_on(single, sender, batch.hops)
            return True
        names, peers = recipients
        if names:
            publisher, boot, time_us = batch.words
            self._copy(names, publisher, boot, number, attributes, packet, time_us, now)
        if peers:
            batch.add((number,), packet, peers)
        return False

    def _pass_on(
        self,
        data: bytes,
        at: int,
        body: int,
        topic_end: int,
        end: int,
        topic: str,
        old: bool,
        longest: int,
        came: tuple[BrokerId | None, str, str, int, TimeUs, int],
        now: TimeUs,
    ) -> tuple[int, int, int] | None:
        """Hand out the publications from `at` on, as many as follow each other to a topic, where
        all go to the same clients and neighbours as they are: how many, to how many clients, and
        where they end. `came` tells from which neighbour they came, if any, and the fields of a
        `RunMessage`.

        None if they do not, if one of these clients needs a further look, or the first is traced.
        """
        sender, publisher, boot, first, time_us, hops = came
        count_max = self.broker.untraced(boot, first, min(RUN, 1 + (len(data) - at) // (end - at)))
        if not count_max:
            return None
        found = self.broker.recipients(topic, sender)
        if found is None:
            self._set_apart(topic)
            return None
        names, peers = found
        targets: dict[Connection, None] = {}
        holders, mixed = self.holders, False
        for name in names:
            held = holders.get(name)
            target = None if held is None else held.session.direct
            if target is None:
                self._set_apart(topic)
                return None
            if target.full:
                return None
            targets[target] = None
            mixed |= (target.level == V3) != old
        mixed |= old and bool(peers)
        others: list[bytes] = []  # the same for clients of the other level
        start, count, size = at, 0, len(data)
        begins = 0 if old else 1  # how far after the topic the payload begins
        field = data[body:topic_end]
        most = TURN_BYTES // max(1, len(targets))
        if peers:
            most = min(most, RUN_BYTES)
        while True:
            length, within = end - at, topic_end + begins - at
            room = 1 + (start + most - at - 1) // length
            alike = mqtt.alike(data, at, length, within, min(count_max - count, room))
            if mixed:
                head = field + b"\0" if old else field
                others += [
                    mqtt.framed(0x30, head + data[place + within : place + length])
                    for place in range(at, at + alike * length, length)
                ]
            at += alike * length
            count += alike
            if count == count_max or at - start >= most:
                break
            # Perhaps one of another length.
            if at + 4 >= size or data[at] != 0x30:
                break
            body, length = at + 2, data[at + 1]
            if length >= 128:
                if not 0 < data[body] < 128:
                    break
                length = length & 127 | data[body] << 7
                body += 1
            topic_end, end = body + len(field), body + length
            if end - at > longest or topic_end + begins > end:
                break
            if not data.startswith(field, body) or (
                begins and data[topic_end : topic_end + 1] != b"\0"
            ):
                break
            if end > size:
                break
        whole = data[start:at]
        converted = b"".join(others)
        for target in targets:
            target.out.append(whole if (target.level == V3) == old else converted)
        self.dirty.update(targets)
        if peers:
            packets = converted if old else whole
            run = RunMessage(publisher, boot, first, topic, packets, time_us, hops + 1)
            self.broker.forward(run, count, peers)
        self.broker.passed(count)
        self._timed(now - time_us, count if targets else 0)
        self.delivered += count * len(targets)
        return count, len(targets), at

    def take_run(
        self, run: RunMessage, at: int, number: int, sender: BrokerId, now: TimeUs
    ) -> tuple[int, int]:
        """Hand out what a neighbour passed on, from this place and number on, as far as that can be
        done without a further look; how far in its bytes, and how many publications."""
        data, count = run.packets, 0
        longest = len(data)
        self._ways_from(sender)  # if the tables have changed, so may what is apart
        while at < longest and run.topic not in self._apart:
            body, topic_end, end = mqtt.usual(data, at, run.topic)
            first = run.first + number + count
            came = sender, run.publisher, run.boot, first, run.time_us, run.hops
            done = self._pass_on(
                data, at, body, topic_end, end, run.topic, False, longest, came, now
            )
            if done is None:
                break
            count, at = count + done[0], done[2]
        return at, count

    def single(self, run: RunMessage, at: int, number: int) -> tuple[Publication, int]:
        """The publication of a run at this place, and where it ends."""
        _, topic_end, end = mqtt.usual(run.packets, at, run.topic)
        attributes = content.attributes(run.topic, run.packets[topic_end + 1 : end])
        name, kept = f"{run.boot}.{run.first + number}", run.packets[at:end]
        return Publication(run.publisher, name, attributes, kept, run.time_us), end

    def take_batch(self, batch: BatchMessage, sender: BrokerId, now: TimeUs) -> int:
        """Hand out what a neighbour passed on, and pass on what others want; how many."""
        broker, publisher, boot, time_us = self.broker, batch.publisher, batch.boot, batch.time_us
        interested, took_us = broker.asking(sender), now - batch.time_us
        onward = broker.batch(publisher, boot, time_us, batch.hops)
        ways, apart, heard = self._ways_from(sender), self._apart, self._heard
        index, whose = broker.deciding(sender), self._whose.setdefault(sender, {})
        passing = None if index is None else index.passing()
        fanout = None if index is None or passing is None else self._fanout(index, sender)
        numbers, data = batch.numbers, batch.packets
        size, most = len(data), len(numbers)
        at = done = given = singly = 0
        runs: list[Any] = []  # as in `_usual`
        due, wait = 0, 1
        try:
            while done < most:
                if passing is not None and fanout is not None and done >= due:
                    fanout.allow(sys.maxsize)
                    answer = passing((
                        data, at, most - done, size, False, heard, apart, runs, fanout.address, 0
                    ))  # fmt: skip
                    end, count = answer >> PASSED_BITS, answer & PASSED_MAX
                    if runs:
                        looked = numbers[done : done + count]
                        taken = self._take_runs(
                            runs, looked, sender, whose, fanout, interested, onward, now
                        )
                        runs.clear()
                        singly += taken.stepped
                        if taken.outdated:
                            end, count, passing = taken.end, taken.before, None
                            ways = self._ways_from(sender)
                            whose = self._whose.setdefault(sender, {})
                    at, done = end, done + count
                    wait = 1 if count else min(2 * wait, WAIT_MAX)
                    due = done + wait
                    if count:
                        continue
                number = numbers[done]
                done += 1
                field, kept, payload = mqtt.next_usual(data, at)
                at += len(kept)
                topic = self._heard_topic(field)
                if ways is not None and topic not in apart:
                    way = ways.get(topic) or self._way(topic, sender, ways)
                    if way is not None and self._copy_to(way[0], kept, False):
                        given += bool(way[0])
                        if way[1]:
                            onward.add((number,), kept, way[1])
                        continue
                attributes, peers = content.plain_attributes(topic, payload), None
                if index is not None:
                    filters = index.match(attributes)
                    peers = self._copy_to_all(filters, whose, sender, kept, 1, False, took_us)
                if peers is None:
                    singly += self._take_single(
                        number, kept, attributes, sender, interested, onward, now
                    )
                elif peers:
                    onward.add((number,), kept, peers)
            if at != size:
                raise Malformed("more publications in a batch than numbers")
        finally:
            onward.close()
            self._timed(took_us, given)
            broker.passed(done - singly)
        return most

    def singles(self, batch: BatchMessage) -> Iterator[tuple[Publication, int]]:
        """The publications of a batch, and their sizes."""
        at = 0
        for number in batch.numbers:
            field, kept, payload = mqtt.next_usual(batch.packets, at)
            at += len(kept)
            attributes = content.attributes(self._heard_topic(field), payload)
            name = f"{batch.boot}.{number}"
            yield Publication(batch.publisher, name, attributes, kept, batch.time_us), len(kept)
        if at != len(batch.packets):
            raise Malformed("more publications in a batch than numbers")

    def _heard_topic(self, field: bytes) -> str:
        """The topic of a publication that a neighbour passed on, by its bytes."""
        topic = self._heard.get(field)
        if topic is None:
            try:
                topic = str(field, "utf-8")
            except UnicodeDecodeError:
                raise Malformed("a topic is not UTF-8") from None
            if len(field) <= TOPIC_BYTES:
                if len(self._heard) >= TOPICS_KNOWN:
                    self._heard.clear()
                self._heard[field] = topic
        return topic

    def topic_of(self, packet: bytes) -> str | None:
        """The topic of the first packet of a batch; None if it is not one."""
        try:
            return self._heard_topic(mqtt.next_usual(packet, 0)[0])
        except Malformed:
            return None

    def refuse(self, connection: Connection, error: Malformed, now: TimeUs) -> None:
        """Say why, as the standard has it, and close."""
        self.refused += 1
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
        self._apart.difference_update(self._apart_briefly)
        self._apart_briefly.clear()
        if now - self._retried_us >= SECOND_US:
            self._retried_us = now
            for fanout in self._fanouts.values():
                fanout.try_again()  # whoever needed a further look may not need it any more
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
            self._count += 1
            client_id = assigned = f"auto-{self.broker.boot}-{self._count}"
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
        self._count += 1
        return f"{self.broker.boot}.{self._count}"

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
        self.delivered += 1
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
        self.dropped += 1
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
            self.dropped += 1
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
            self._pause(connection, now)
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

    def _new_topic(self, session: Session, field: bytes) -> str | None:
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

    def _pause(self, connection: Connection, now: TimeUs) -> None:
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
        self.dropped += 1
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
        self.published += 1
        self._count += 1
        publication = Publication(
            publisher, f"{self.broker.boot}.{self._count}", attributes, kept, now
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
            self._count += 1
            advertisement_id = f"{session.client_id}/{name}#{self.broker.boot}.{self._count}"
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
        self._handed += 1
        if self._handed % TIMED == 0:
            self.latency.add(now - publication.time_us)
        if plain is None:
            return
        for session, wanted in self._copy_directly(names, plain, passed).items():
            letter = letter or Letter(publication.payload)
            self._hand(session, wanted, letter, publication, now)

    def _copy(
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
        self._handed += 1
        if self._handed % TIMED == 0:
            self.latency.add(now - time_us)
        several = self._copy_directly(names, kept, None)
        if several:
            publication = Publication(publisher, f"{boot}.{number}", attributes, kept, time_us)
            letter = Letter(kept)
            for session, wanted in several.items():
                self._hand(session, wanted, letter, publication, now)

    def _copy_directly(
        self, names: Iterable[SubscriptionId], plain: bytes, letter: Letter | None
    ) -> dict[Session, list[Held]]:
        """Give these bytes to all who need nothing of their own; the subscriptions of others."""
        several: dict[Session, list[Held]] = {}
        copied: dict[Connection, None] = {}
        for held in map(self.holders.get, names):
            if held is not None:
                session = held.session
                connection = session.direct
                if connection is None or connection.full:
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
        self.delivered += len(copied)
        return several

    def _letter(self, publication: Publication, now: TimeUs) -> Letter | None:
        """What is to be delivered; None of a peer that sent no such thing."""
        try:
            return Letter(publication.payload)
        except Malformed as error:
            log.warning("publication dropped", extra={"reason": str(error)})
            self.dropped += 1
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
        elif not held.asks(publication):
            reason = LEVELS
        elif session.connection is None:
            reason = "waits for the client" if held.terms.qos else AWAY
        return {"subscription": held.id, "client": session.client_id, "reason": reason}

    def _hand(
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
        for held in all_held:
            if held.terms.no_local and mine:
                self._stopped(publication, NO_LOCAL, now, subscription=held.id)
                continue
            if not held.asks(publication):
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
            self.delivered += 1
        else:
            self.dropped += 1
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
            self._hand(session, wanted, Letter(publication.payload), publication, now)

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


def _kind(recipient: Session | BrokerId) -> int | None:
    """How compiled code writes to a recipient; None to whom it may not."""
    if isinstance(recipient, int):
        return NEIGHBOUR
    if recipient.direct is None:
        return None
    return OLD if recipient.direct.level == V3 else PLAIN


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
