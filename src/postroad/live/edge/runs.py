"""Publications of quality 0 that go as they came, many handled together: for `Clients` what a
client sent, for the broker what a neighbour passed on.

They have no properties and need nothing of their own, so one slice of what came is written to
everybody who gets it. Compiled code looks through many at once (`matching/packets.py`); `KnownWays`
says where they go. Whatever needs a further look is given back to `Clients`, or handed over to the
router. How much of this a turn does is bounded here.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from postroad.filters import Filter
from postroad.live.edge import content, mqtt
from postroad.live.edge.host import Host
from postroad.live.edge.latency import Latency
from postroad.live.edge.mqtt import V3, V5, Letter, Malformed
from postroad.live.edge.session import Connection, Held, Session
from postroad.live.edge.tally import Tally
from postroad.live.edge.ways import TOPIC_BYTES, TOPICS_KNOWN, KnownWays, Whose
from postroad.live.links.batch import OFFSET_MAX, Origins, cut
from postroad.live.links.messages import BatchMessage, ListedBatchMessage, RunMessage
from postroad.live.network import Limits
from postroad.matching.index import OLD, PASSED_BITS, PASSED_MAX, TAG_BYTES
from postroad.model import BrokerId, Publication, Scalar, SubscriptionId, TimeUs
from postroad.routing.base import Recipients

if TYPE_CHECKING:
    from postroad.matching.fanout import Fanout

TURN_NS = 5_000_000  # so much CPU time a turn takes to serve clients before it writes,
SHARE_NS = 1_000_000  # and so much at least one that has more to do than others
TURN_BYTES = 1 << 20  # of publications that are handed out before all is written,
TURN_INPUT_BYTES = 64 << 10  # and of what a client sent;
SHORT_NS, SHORT_INPUT_BYTES = 500_000, 16 << 10  # all this is less while beside who keeps the
LATELY_US = 100_000  # broker busy another has sent a little, so long ago at most;
LITTLE_BYTES = 1_024
LONG = 16_000  # bytes: longer publications are not among the usual
MANY_BYTES = 512  # of input, in which it pays to look for what nobody wants,
WAIT_MAX = 16  # unless the last looks found none: then so many publications later at the latest
LONE = 8  # publications to other topics than those beside them: then more will follow
LOOK_MAX = 2_048  # publications in one look, if time allows
RUN = 256  # publications to one topic that are handed out in one go,
RUN_BYTES = 16_000  # and their bytes, where a neighbour gets them too


class Edge(Protocol):
    """What those who hand out publications need of the clients of a broker."""

    @property
    def broker(self) -> Host: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def holders(self) -> Mapping[SubscriptionId, Held]: ...

    @property
    def ways(self) -> KnownWays: ...

    @property
    def tally(self) -> Tally: ...

    @property
    def latency(self) -> Latency: ...

    # Whom the driver has something to do for, until it takes them, and slow readers of the
    # publication in hand: both are added to.
    @property
    def dirty(self) -> dict[Connection, None]: ...

    @property
    def filling(self) -> dict[Connection, None]: ...

    # The share of a turn at hand: by which clock, until when, and when a little came of one client
    # while another had more to do; and its end, so that what it gathered is written.
    @property
    def clock(self) -> Callable[[], int] | None: ...

    @property
    def end_ns(self) -> int: ...

    @property
    def little_us(self) -> TimeUs: ...

    def end_share(self) -> None: ...

    # A topic that a session publishes to for the first time; None if that takes a further look.
    def new_topic(self, session: Session, field: bytes) -> str | None: ...

    # Take no more of a client until links have room and subscribers have read.
    def pause(self, connection: Connection, now: TimeUs) -> None: ...

    # Deliver a publication to whoever holds these subscriptions, and to a session for some of its.
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
    ) -> None: ...

    def hand(
        self,
        session: Session,
        all_held: list[Held],
        letter: Letter,
        publication: Publication,
        now: TimeUs,
    ) -> None: ...


class RunsTaken(NamedTuple):
    """How runs were handed out: for how many publications the router took a step; if not all were,
    where the rest begins, how many are before it, and whether the tables have changed; and how many
    bytes clients got as they were."""

    stepped: int
    end: int = 0
    before: int = 0
    outdated: bool = False
    bytes: int = 0


class Runs:
    def __init__(self, clients: Edge) -> None:
        self.clients, self.broker, self.ways = clients, clients.broker, clients.ways
        self.tally, self.latency = clients.tally, clients.latency
        self._heard: dict[bytes, str] = {}  # topics by their bytes, that neighbours passed on

    # Of a client.

    def take_usual(
        self, connection: Connection, session: Session, data: bytes, at: int, now: TimeUs
    ) -> int:
        """Take the usual publications from `at` on; where something else begins.

        They are short, have quality 0 and no properties, and a topic that this client has
        published to before. `Clients` does the same for all others, which takes longer.
        """
        clients, broker, known, tally = self.clients, self.broker, self.ways, self.tally
        publisher, size = session.client_id, len(data)
        topic_of, attributes_of = session.ready.get, content.plain_attributes
        interested = broker.asking()
        boot, published, handed = broker.boot, 0, 0
        batch, origins = broker.outgoing, Origins.own(publisher, boot, tally.numbered + 1, now)
        first, farthest = tally.numbered + 1, tally.numbered + 1 + OFFSET_MAX  # of these
        filling, clock, end_ns = clients.filling, clients.clock, clients.end_ns
        old, longest = connection.level == V3, min(LONG, clients.limits.packet_bytes)
        look, last_ns = 1, TURN_NS
        asked = 0  # publications that nobody wanted, since others were last counted
        apart, groupless = known.apart, known.groupless
        short = now - clients.little_us < LATELY_US
        left_bytes, last = TURN_BYTES, at + (SHORT_INPUT_BYTES if short else TURN_INPUT_BYTES)
        ways, given = known.ways_from(None), 0
        match, passing, whose = None, None, known.whose.setdefault(None, {})
        fanout: Fanout[Filter, Session | BrokerId] | None = None
        if (index := broker.deciding()) is not None:
            match, passing = index.match, index.passing() if size - at >= MANY_BYTES else None
            fanout = None if passing is None else known.fanout(index, None)
        due, wait = 0, 1  # how many are to be published before the next look for what nobody wants
        untraced = 0  # the last number up to which nothing is recorded
        runs: list[Any] = []  # what a look found, as `packets.passer` has it
        lone = 0  # publications without another to their topic beside them, in a row,
        went_by = 0  # and those that compiled code might have handed out
        while at + 4 < size and data[at] == 0x30:
            if clock is not None and published >= look:
                # To look at the clock takes time too: less often while there is much left.
                left_ns = end_ns - clock()
                if left_ns <= 0:
                    break
                look = published + (16 if last_ns - left_ns < SHARE_NS // 4 else 1)
                last_ns = left_ns
            number = tally.numbered + asked + 1
            if number > farthest:
                first, farthest = number, number + OFFSET_MAX
                origins = Origins.own(publisher, boot, first, now)
            if number > untraced:
                untraced = number - 1 + broker.untraced(boot, number, LOOK_MAX)
            traced = number > untraced
            if passing is not None and fanout is not None and published >= due and not traced:
                limit_ns = 0 if clock is None else max(1, min(end_ns - clock(), SHARE_NS))
                fanout.allow(left_bytes)
                answer = passing((
                    data, at, min(LOOK_MAX, untraced - number + 1), longest, old, session.ready,
                    groupless, runs, fanout.address, limit_ns, b"",
                ))  # fmt: skip
                end, count = answer >> PASSED_BITS, answer & PASSED_MAX
                if runs:
                    tally.numbered += asked
                    handed += asked
                    asked = 0
                    looked = Origins.own(publisher, boot, tally.numbered + 1, now)
                    taken = self._take_runs(
                        runs, looked, None, whose, fanout, interested, now, connection, left_bytes
                    )
                    runs.clear()
                    handed -= taken.stepped
                    left_bytes -= taken.bytes
                    if taken.end:
                        end, count = taken.end, taken.before
                    if taken.outdated:
                        ways, passing = known.ways_from(None), None
                        whose = known.whose.setdefault(None, {})
                published += count
                asked += count
                at = end
                if left_bytes <= 0:
                    clients.end_share()  # it is to be written before there is more
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
                topic = clients.new_topic(session, data[body + 2 : topic_end])
                if topic is None:
                    break
            packet = data[at:end]
            if topic not in apart:
                way, copies, later = None, None, end
                # Several to one topic in a row go faster together, and so does one alone.
                if not traced and not data.startswith(data[body:topic_end], end + body - at):
                    way = ways.get(topic) or known.way(topic, None, ways)
                    if way is not None and way[1] and end == size:
                        way = None
                if way is not None and self._copy_to(way[0], packet, old):
                    published += 1
                    asked += 1
                    copies = len(way[0])
                    given += bool(copies)
                    if way[1]:
                        kept = mqtt.as_of_other_level(packet, old) if old else packet
                        batch.add_one(origins, number - first, kept, way[1])
                    elif not copies and passing is not None and len(apart) < TOPICS_KNOWN:
                        known.wanted_by_nobody(topic)  # the next look passes over it
                else:
                    tally.numbered += asked
                    handed += asked
                    asked = 0
                    came = None, publisher, boot, tally.numbered + 1, now, 0
                    run = self._pass_on(
                        data, at, body, topic_end, end, topic, old, longest, came, now
                    )
                    if run is not None:
                        count, copies, later = run
                        tally.numbered += count
                        published += count
                if copies is not None:
                    lone = lone + 1 if later == end else 0
                    if lone > LONE and later < size:
                        if passing is None:
                            went_by += 1
                        else:
                            known.comes_in_turn(topic)
                    left_bytes -= copies * (later - at)
                    at = later
                    if left_bytes <= 0 or at >= last:
                        clients.end_share()  # it is to be written before there is more
                        break
                    if broker.congested:
                        clients.pause(connection, now)
                        if connection.stopped:
                            break
                    continue
            payload = data[topic_end if old else topic_end + 1 : end]
            attributes = attributes_of(topic, payload)
            filters = None
            if match is not None and not traced and topic in groupless:
                filters = match(attributes)
            published += 1
            asked += 1
            at = end
            if filters is None or filters:
                tally.numbered += asked
                onward = None
                if filters:
                    onward = self._copy_to_all(filters, whose, None, packet, 1, old, 0)
                if old and onward != []:
                    packet = mqtt.as_of_other_level(packet, old)
                if onward is None:
                    ask = _nothing_known if traced else interested
                    place = number - first
                    asked -= self._take_single(origins, place, packet, attributes, None, ask, now)
                elif onward:
                    batch.add_one(origins, number - first, packet, onward)
                handed += asked
                asked = 0
                if broker.congested or filling:
                    clients.pause(connection, now)
                    if connection.stopped:
                        break
        tally.numbered += asked
        handed += asked
        if went_by and index is not None:
            index.went_by(went_by)
        if published and broker.congested:
            clients.pause(connection, now)
        tally.published += published
        self.latency.sample(0, given)
        broker.passed(handed)
        return at

    # Of a neighbour.

    def take_run(
        self, run: RunMessage, at: int, number: int, sender: BrokerId, now: TimeUs
    ) -> tuple[int, int]:
        """Hand out what a neighbour passed on, from this place and number on, as far as that can be
        done without a further look; how far in its bytes, and how many publications."""
        data, count = run.packets, 0
        longest = len(data)
        self.ways.ways_from(sender)  # if the tables have changed, so may what is apart
        while at < longest and self.ways.goes_one_way(run.topic):
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

    def take_batch(self, batch: BatchMessage, sender: BrokerId, now: TimeUs) -> int:
        """Hand out what a neighbour passed on, and pass on what others want; how many."""
        broker, origins, onward = self.broker, Origins.of(batch), self.broker.outgoing
        interested, took_us = broker.asking(sender), now - origins.time_us
        ways, apart, heard = self.ways.ways_from(sender), self.ways.apart, self._heard
        index, whose = broker.deciding(), self.ways.whose.setdefault(sender, {})
        passing = None if index is None else index.passing()
        fanout = None if index is None or passing is None else self.ways.fanout(index, sender)
        data, told = batch.packets, batch.told if broker.told_all(sender) else b""
        size, most = len(data), batch.count
        at = done = given = singly = went_by = 0
        told_at = told_of = 0  # where in what is told that stands of the publication in this place
        runs: list[Any] = []  # as in `take_usual`
        due, wait = 0, 1
        try:
            while done < most:
                origins.start = done
                if passing is not None and fanout is not None and done >= due:
                    fanout.allow(sys.maxsize)
                    while told_of < done and told_at < len(told):
                        told_at += 1 + TAG_BYTES * told[told_at]
                        told_of += 1
                    answer = passing((
                        data, at, most - done, size, False, heard, apart, runs, fanout.address, 0,
                        told[told_at:],
                    ))  # fmt: skip
                    end, count = answer >> PASSED_BITS, answer & PASSED_MAX
                    if runs:
                        taken = self._take_runs(
                            runs, origins, sender, whose, fanout, interested, now
                        )
                        runs.clear()
                        singly += taken.stepped
                        if taken.outdated:
                            end, count, passing = taken.end, taken.before, None
                            ways = self.ways.ways_from(sender)
                            whose = self.ways.whose.setdefault(sender, {})
                    at, done = end, done + count
                    wait = 1 if count else min(2 * wait, WAIT_MAX)
                    due = done + wait
                    if count:
                        continue
                done += 1
                field, kept, payload = mqtt.next_usual(data, at)
                at += len(kept)
                topic = self._heard_topic(field)
                if topic not in apart:
                    way = ways.get(topic) or self.ways.way(topic, sender, ways)
                    if fanout is None:
                        went_by += 1
                    else:  # those in a row come as a run
                        self.ways.comes_in_turn(topic)
                    if way is not None and self._copy_to(way[0], kept, False):
                        given += bool(way[0])
                        if way[1]:
                            onward.add_one(origins, 0, kept, way[1])
                        continue
                attributes, peers = content.plain_attributes(topic, payload), None
                if index is not None:
                    filters = index.match(attributes)
                    peers = self._copy_to_all(filters, whose, sender, kept, 1, False, took_us)
                if peers is None:
                    singly += self._take_single(
                        origins, 0, kept, attributes, sender, interested, now
                    )
                elif peers:
                    onward.add_one(origins, 0, kept, peers)
            if at != size:
                raise Malformed("more publications in a batch than numbers")
        finally:
            if went_by and index is not None:
                index.went_by(went_by)
            self.latency.sample(took_us, given)
            broker.passed(done - singly)
        return most

    def listed(self, batch: ListedBatchMessage) -> Iterator[tuple[Publication, int]]:
        """The publications of a batch of an older broker, and their sizes."""
        at = 0
        for number in batch.numbers:
            field, kept, payload = mqtt.next_usual(batch.packets, at)
            at += len(kept)
            attributes = content.attributes(self._heard_topic(field), payload)
            name = f"{batch.boot}.{number}"
            yield Publication(batch.publisher, name, attributes, kept, batch.time_us), len(kept)
        if at != len(batch.packets):
            raise Malformed("more publications in a batch than numbers")

    def single(self, run: RunMessage, at: int, number: int) -> tuple[Publication, int]:
        """The publication of a run at this place, and where it ends."""
        _, topic_end, end = mqtt.usual(run.packets, at, run.topic)
        attributes = content.attributes(run.topic, run.packets[topic_end + 1 : end])
        name, kept = f"{run.boot}.{run.first + number}", run.packets[at:end]
        return Publication(run.publisher, name, attributes, kept, run.time_us), end

    def parts(
        self, batch: BatchMessage, alone: Container[int]
    ) -> Iterator[BatchMessage | tuple[Publication, int]]:
        """A batch, cut where the publications in these places are, which come by themselves with
        their sizes."""
        if not alone:
            yield batch
            return
        origins, packets = Origins.of(batch), batch.packets
        at = first = start = 0
        for place in range(batch.count):
            field, kept, payload = mqtt.next_usual(packets, at)
            if place in alone:
                if place > first:
                    yield cut(batch, first, place, packets[start:at])
                attributes = content.attributes(self._heard_topic(field), payload)
                yield origins.single(place, kept, attributes), len(kept)
                first, start = place + 1, at + len(kept)
            at += len(kept)
        if at != len(packets):
            raise Malformed("more publications in a batch than numbers")
        if first < batch.count:
            yield cut(batch, first, batch.count, packets[start:])

    def topic_of(self, packet: bytes) -> str | None:
        """The topic of the first packet of a batch; None if it is not one."""
        try:
            return self._heard_topic(mqtt.next_usual(packet, 0)[0])
        except Malformed:
            return None

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

    # Of either.

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
        recipients = self.broker.recipients(topic, sender)
        if recipients is None:
            self.ways.set_apart(topic)
            return None
        names, peers = recipients
        targets: dict[Connection, None] = {}
        holders, mixed = self.clients.holders, False
        for name in names:
            held = holders.get(name)
            if held is not None and not held.asks(topic):
                continue
            target = None if held is None else held.session.direct
            if target is None:
                self.ways.set_apart(topic)
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
        self.clients.dirty.update(targets)
        if peers:
            packets = converted if old else whole
            run = RunMessage(publisher, boot, first, topic, packets, time_us, hops + 1)
            self.broker.forward(run, count, peers)
        self.broker.passed(count)
        self.latency.sample(now - time_us, count if targets else 0)
        self.tally.delivered += count * len(targets)
        return count, len(targets), at

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
        gets = self.ways.who_gets(filters, whose, sender)
        if gets is None:
            return None
        targets, onward = gets
        if targets:
            self._write_to(targets, run, count, old)
            self.latency.sample(took_us, count)
        return onward

    def _write_to(self, targets: list[Connection], run: bytes, count: int, old: bool) -> None:
        """So many packets as a client of this level sent them, as each of these has them."""
        level, other, dirty = V3 if old else V5, b"", self.clients.dirty
        for target in targets:
            if target.level == level:
                target.out.append(run)
            else:
                other = other or mqtt.run_of_other_level(run, old)
                target.out.append(other)
            dirty[target] = None
        self.tally.delivered += count * len(targets)

    def _take_runs(
        self,
        runs: list[Any],
        origins: Origins,
        sender: BrokerId | None,
        whose: Whose,
        fanout: Fanout[Filter, Session | BrokerId],
        interested: Callable[[Mapping[str, Scalar]], Recipients | None],
        now: TimeUs,
        connection: Connection | None = None,
        left_bytes: int = sys.maxsize,
    ) -> RunsTaken:
        """Hand out what a look found among publications with these origins, from a neighbour or
        from this client, until so many bytes went to clients."""
        broker, took_us = self.broker, now - origins.time_us
        old = connection is not None and connection.level == V3
        stepped = copied = 0
        recipients, kinds = fanout.recipients, fanout.kinds  # as of this look
        for place in range(0, len(runs), 3):
            word, run, matched = runs[place : place + 3]
            before, count = word >> PASSED_BITS & PASSED_MAX, word & PASSED_MAX
            onward: list[BrokerId] | None = []
            if run is None:
                size, stale = self._take_pieces(matched, origins, sender, recipients, kinds, now)
                copied += size
                if stale:
                    fanout.forget()
                self.latency.sample(took_us, count)
                count = 0
            else:
                self.ways.learn(fanout, matched, whose)
                delivered = self.tally.delivered
                onward = self._copy_to_all(matched, whose, sender, run, count, old, took_us)
                copied += (self.tally.delivered - delivered) // count * len(run)
                if old and onward != []:
                    run = mqtt.run_of_other_level(run, old)
            if onward is None:
                for place, packet in enumerate(mqtt.usuals(run), before):
                    attributes = content.of_kept(packet)
                    stepped += self._take_single(
                        origins, place, packet, attributes, sender, interested, now
                    )
            elif onward:
                places = array("H", range(before, before + count)).tobytes()
                broker.outgoing.add(origins, places, run, onward)
            if connection is not None and (broker.congested or self.clients.filling):
                self.clients.pause(connection, now)
            outdated = onward is None and broker.routes_version() != self.ways.version
            stopped = connection is not None and connection.stopped
            if outdated or stopped or copied >= left_bytes:
                end = word >> 2 * PASSED_BITS
                return RunsTaken(stepped, end, before + count, outdated, copied)
        return RunsTaken(stepped, bytes=copied)

    def _take_pieces(
        self,
        pieces: list[Any],
        origins: Origins,
        sender: BrokerId | None,
        recipients: list[Session | BrokerId],
        kinds: list[int],
        now: TimeUs,
    ) -> tuple[int, bool]:
        """Give each recipient its piece of publications with these origins: how many bytes clients
        get, and whether one is not as was learned."""
        dirty, size = self.clients.dirty, 0
        delivered, stale = 0, False
        each = iter(pieces)
        for word, piece, places in zip(each, each, each, strict=True):
            recipient = recipients[word >> PASSED_BITS]
            if isinstance(recipient, int):
                end = 2 * (word & PASSED_MAX)
                told = places[end:]
                self.broker.outgoing.add(origins, places[:end], piece, (recipient,), told)
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
            whole = mqtt.run_of_other_level(piece, True) if kind == OLD else piece
            self._hand_singly(recipient, whole, origins, places, sender, now)
        self.tally.delivered += delivered
        return size, stale

    def _hand_singly(
        self,
        session: Session,
        run: bytes,
        origins: Origins,
        places: bytes,
        sender: BrokerId | None,
        now: TimeUs,
    ) -> None:
        """Deliver the publications in these places to one session that needs a further look."""
        broker = self.broker
        index = broker.deciding()
        assert index is not None
        for place, packet in zip(memoryview(places).cast("H"), mqtt.usuals(run), strict=True):
            attributes = content.of_kept(packet)
            ids = chain.from_iterable(
                broker.wanting(filter, sender)[0] for filter in index.match(attributes)
            )
            wanted = [held for held in map(self.clients.holders.get, ids)
                      if held is not None and held.session is session]  # fmt: skip
            single = origins.single(place, packet, attributes)
            self.clients.hand(session, wanted, Letter(packet), single, now)

    def _take_single(
        self,
        origins: Origins,
        place: int,
        packet: bytes,
        attributes: dict[str, Scalar],
        sender: BrokerId | None,
        interested: Callable[[Mapping[str, Scalar]], Recipients | None],
        now: TimeUs,
    ) -> bool:
        """Hand out the publication in this place, which needs a further look; whether its router
        took a step."""
        recipients = interested(attributes)
        if recipients is None:
            single = origins.single(place, packet, attributes)
            if sender is None:
                self.broker.publish(single, now)
            else:
                self.broker.hand_on(single, sender, origins.hops)
            return True
        ids, peers = recipients
        if ids:
            stretch, number = origins.at(place)
            self.clients.copy(
                ids,
                stretch.publisher,
                stretch.boot,
                number,
                attributes,
                packet,
                stretch.time_us,
                now,
            )
        if peers:
            self.broker.outgoing.add_one(origins, place, packet, peers)
        return False


def _nothing_known(attributes: Mapping[str, Scalar]) -> None:
    """To whom a publication goes of which something is recorded: the router takes a step."""
