"""The loop around a broker: sockets, the clock, and nothing else.

Output is gathered while the loop is busy and written once per turn, so a burst of publications
becomes one write per connection.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import resource
import signal
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import msgspec

from postroad.errors import InputError, RunFailed
from postroad.live import network as networks
from postroad.live.broker import Broker
from postroad.live.edge import mqtt, system, users
from postroad.live.edge.mqtt import Malformed
from postroad.live.edge.session import Connection
from postroad.live.edge.ways import Destinations
from postroad.live.links import certificates, secret
from postroad.live.links import link as links
from postroad.live.links.messages import BadMessage
from postroad.live.links.neighbour import Neighbour, Wire
from postroad.live.network import Network
from postroad.live.operations import http, logs, reload, workers
from postroad.live.store import Store
from postroad.live.traces import Traces
from postroad.model import BrokerId, TimeUs
from postroad.traces.schema import TOLD_TO_STOP

if TYPE_CHECKING:
    from postroad.live.edge.websocket import WebSocket

log = logging.getLogger("postroad.server")

FULL_BYTES = 256 << 10  # so much unwritten: a subscriber reads too slowly, and publishers wait
READ_BYTES = 128 << 10  # of a client that are read before it has had a turn
GATHER, GATHER_BYTES = 64, 16 << 10  # fewer publications may wait, while others make work,
GATHER_NS = 30_000_000  # for so much CPU time,
GATHER_CLIENTS = 16  # if there are some for more clients than this
QUIET_US, QUIET_BYTES = 100, 1_024  # since the last turn: then so little is dealt with at once
WIRE_BYTES = 4 << 10  # of what a peer sent, that are dealt with at once, and the frame's rest,
WIRE_NS = 4_000_000  # and so long, before clients are served;
LONG_NS = 10_000_000  # a single message may take longer
DIAL_S = 5.0
PINGS, PING_S = 3, 1.0  # connections to measure the way to a broker, and how long each may take
HANDSHAKE_S = 10.0
ACCEPT_AGAIN_S = 0.1
# Look for garbage less often: a broker makes few cycles and many values that die at once.
GARBAGE = (10_000, 20, 50)
PASSWORDS_AT_ONCE = 2  # so that guessing passwords cannot take every core
FRAME_MORE = 64 << 10  # a WebSocket frame may hold so much more than the largest packet
M_MMAP_THRESHOLD, MAPPED_BYTES = -3, 512 << 10  # what is larger is given back when it is freed
CLOSE_S = 2.0  # how long closing connections may take to be written


class Writes(NamedTuple):
    """How publications of a client, or from a neighbour, are written without a turn."""

    to: Destinations
    level: int  # of MQTT, as they come
    writes: Sequence[tuple[Connection, Callable[[bytes], None], bool]]  # to whom, if as they come
    onward: Sequence[tuple[Neighbour, Callable[[bytes], None]]]


def clock() -> Callable[[], TimeUs]:
    """Microseconds since 1970 that never run backwards."""
    monotonic_ns = time.monotonic_ns
    zero = time.time_ns() - monotonic_ns()
    return lambda: (zero + monotonic_ns()) // 1000


async def one_way_us(host: str, port: int) -> TimeUs | None:
    """Half of the least time that it took to connect there; None if nobody answers."""
    least: TimeUs | None = None
    for _ in range(PINGS):
        began_ns = time.monotonic_ns()
        try:
            opened = asyncio.open_connection(host, port)
            _, writer = await asyncio.wait_for(opened, PING_S)
        except (OSError, TimeoutError):
            return least
        took_us = (time.monotonic_ns() - began_ns) // 2000
        least = took_us if least is None else min(least, took_us)
        writer.close()
    return least


class Server:
    """One broker, or one worker of a broker: then what would be listened for comes through
    `channel`, and the network has its workers for brokers (`Network.expanded`)."""

    def __init__(
        self, network: Network, number: BrokerId, channel: workers.Channel | None = None
    ) -> None:
        secret.check_guarded(network)
        self.channel = channel
        self.network, self.number = _share(network, number), number
        self.now = clock()
        started = self.now()
        self.traces: Traces | None = None
        if network.traces is not None:
            self.traces = Traces(network, number, started)
        self.store: Store | None = None
        if network.store is not None:
            self.store = Store(
                network.store, network.identity, network.names[number], network.lineage, started
            )
        self.broker = self._broker(started)
        self.ended = asyncio.Event()
        self.hurried = False
        self.failure: RunFailed | None = None
        self.started_us = started
        self.lag_us: TimeUs = 0  # how late something due was done
        self.loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(PASSWORDS_AT_ONCE)
        self.transports: dict[Connection | Wire, asyncio.Transport | WebSocketTransport] = {}
        self.inbox: dict[Wire, bytes] = {}  # what peers sent and is not dealt with
        self._cpu_ns = CpuClock().ns
        self.broker.clients.take_turns(self._cpu_ns)
        self._doors: dict[str, Callable[[], object]] = {}
        self._scheduled = False
        self._long_read = False  # whether the last turn was long in dealing with what peers sent
        self._wrote_ns = 0  # when all was written that there was, by this thread's CPU time
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us: TimeUs = 0  # when it fires
        self._turned_us: TimeUs = 0  # when the last turn was over
        self._ways: dict[Connection | Wire, Writes] = {}  # since then
        self._tasks: set[asyncio.Task[None]] = set()
        self._agreeing: dict[Wire, asyncio.Task[None]] = {}  # on TLS
        self.asked: dict[http.Protocol, None] = {}
        self.room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 3 // 4
        self.contexts = reload.contexts(network, number)
        self.reloads = 0
        self.reload_error: str | None = None  # of the last one

    def _broker(self, now: TimeUs) -> Broker:
        store = self.store
        if store is None:
            return Broker(self.network, self.number, now, self.traces)
        try:
            rows = store.load()
            return Broker(self.network, self.number, now, self.traces, rows, store.standing)
        except (msgspec.DecodeError, BadMessage, Malformed) as error:
            store.close()
            raise RunFailed(f"the store {store.path} cannot be read: {error}") from None
        except BaseException:
            store.close()
            raise

    async def start(self) -> None:
        address = self.network.addresses[self.number]
        if self.channel is None:
            await self._listen("mqtt", address.host, address.mqtt)
            await self._listen("link", address.host, address.link)
            await self._listen("http", address.http_host, address.http)
        else:
            self.loop.add_reader(self.channel.socket, self._take, self.channel)
            self._tell_sums()
        self._turn()
        log.info(
            "broker started",
            extra={"broker": self.broker.name, "mqtt": address.mqtt, "scheme": self.network.scheme},
        )

    async def _listen(self, key: str, host: str, port: int) -> None:
        try:
            listening = workers.listening(self.broker.name, key, host, port)
        except InputError:
            await self.stop()
            raise
        if self.network.tls is not None and key != "http":
            self._doors[key] = self._start(self._accept(listening, key)).cancel
            return
        backlog = workers.BACKLOG
        server = await self.loop.create_server(self._protocol(key), sock=listening, backlog=backlog)
        self._doors[key] = server.close

    def _protocol(self, key: str) -> Callable[[], asyncio.BaseProtocol]:
        protocols: dict[str, Callable[[], asyncio.BaseProtocol]] = {
            "mqtt": lambda: ClientProtocol(self),
            "link": lambda: WireProtocol(self, None),
            "http": lambda: http.Protocol(self, self._answer),
        }
        return protocols[key]

    def _answer(self, request: bytes, reply: Callable[[http.Answer], None]) -> None:
        answer = http.answer if self.channel is None else http.answer_inside
        reply(answer(self, request))

    def _take(self, channel: workers.Channel) -> None:
        """Take what the supervisor passes to this worker."""
        while (given := channel.receive()) is not None:
            match given:
                case [], _:  # it is gone, and so is the broker
                    self.loop.remove_reader(channel.socket)
                    self.end()
                    return
                case ["http"], socket.socket() as passed:
                    self._start(self._ask(passed))
                case [("mqtt" | "link") as key, address], socket.socket() as passed:
                    passed.setblocking(False)
                    self._start(self._agree(passed, address, key))
                case ["inside", number], socket.socket() as passed:
                    self._start(self._join(passed, int(number), False))
                case ["dialled", number], socket.socket() as passed:
                    self._start(self._join(passed, int(number), True))
                case ["dialled", number], None:
                    self.broker.dial_failed(int(number), self.now())
                    self.soon()
                case ["others", sums], None:
                    self.broker.clients.elsewhere = json.loads(sums)
                case _:
                    raise AssertionError(given)

    async def _ask(self, passed: socket.socket) -> None:
        """The supervisor asks something over HTTP."""
        await self.loop.connect_accepted_socket(self._protocol("http"), passed)

    async def _join(self, passed: socket.socket, peer: BrokerId, dialled: bool) -> None:
        """A connection with another worker of this broker, which the supervisor vouches for."""
        names, now = self.network.names, self.now()
        certified = certificates.common_name(names[peer], self.network.name)
        wire = self.broker.wire_opened(
            f"{names[peer]}:0", peer if dialled else None, now, certified
        )
        await self.loop.connect_accepted_socket(lambda: WireProtocol(self, None, wire), passed)

    def _tell_sums(self) -> None:
        """Tell the supervisor what this worker counts, for the others' `$SYS`."""
        assert self.channel is not None
        self.channel.say("sums", json.dumps(system.counts(self.broker.clients)))
        self.channel.flush()
        self.loop.call_later(workers.SUMS_S, self._tell_sums)

    async def _accept(self, listening: socket.socket, key: str) -> None:
        """Let connections in where TLS is on; each agrees on it in a task of its own."""
        with listening:
            while True:
                try:
                    accepted, name = await self.loop.sock_accept(listening)
                except OSError as error:  # such as too many open files
                    log.warning("cannot accept a connection", extra={"reason": str(error)})
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                else:
                    self._start(self._agree(accepted, f"{name[0]}:{name[1]}", key))

    async def _agree(self, accepted: socket.socket, address: str, key: str) -> None:
        """Agree on TLS, if it is on, with the certificates of this moment, and say in the log why
        not. Also for connections that a worker is passed."""
        broker, contexts = self.broker, self.contexts
        connection: Connection | None = None
        wire: Wire | None = None
        protocol: asyncio.Protocol
        if key == "mqtt":
            full = self.full() or broker.clients.draining
            connection = None if full else broker.clients.opened(address, self.now())
            if connection is None:
                accepted.close()
                self.gone(address)
                return
            protocol = ClientProtocol(self, connection)
        else:
            wire = broker.wire_opened(address, None, self.now())
            if wire.closing:
                accepted.close()
                return
            protocol = WireProtocol(self, None, wire)
            task = asyncio.current_task()
            assert task is not None
            self._agreeing[wire] = task
        context = contexts.to_peers if connection is None else contexts.to_clients
        try:
            await self.loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
            )
        except OSError as error:  # an SSLError and a TimeoutError are OSErrors
            if connection is not None or broker.strangers.may_log(self.now()):
                log.warning(
                    "connection refused",
                    extra={"address": address, "reason": f"TLS: {error or type(error).__name__}"},
                )
            if connection is not None:
                broker.clients.turned_away()
                broker.clients.closed(connection, self.now())
                self.gone(address)
            if wire is not None:
                broker.wire_refused(wire, self.now())
        finally:
            if wire is not None:
                self._agreeing.pop(wire, None)

    def gone(self, address: str) -> None:
        """A client's connection is closed, which the supervisor counts."""
        if self.channel is not None:
            self.channel.say("closed", address.rpartition(":")[0])
            self.channel.flush()

    def full(self) -> bool:
        """Whether the files that a process may have open are kept for peers and `/status`."""
        full = len(self.transports) >= self.room
        if full:
            self.broker.clients.turned_away()
            if self.broker.strangers.may_log(self.now()):
                log.warning("connection refused", extra={"reason": "too many open files"})
        return full

    async def stop(self) -> None:
        """Tell the clients, pass on what is left as far as time allows, close everything."""
        broker = self.broker
        self._stop_listening("mqtt")
        if self.failure is None:
            end = self.now() + self.network.limits.drain_s * 1_000_000
            broker.drain(self.now())
            self._turn()
            while not broker.drained() and self.now() < end and not self.hurried:
                await asyncio.sleep(0.01)
            if not broker.drained():
                left = {self.network.names[p]: len(n.link.queue) for p, n in broker.peers.items()}
                log.warning("not all could be passed on", extra={"queued": left})
            broker.leave(self.now())
            self._turn()
        for key in list(self._doors):
            self._stop_listening(key)
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        for transport in list(self.transports.values()):
            transport.close()
        waited = 0.0
        while self.transports and waited < CLOSE_S:
            await asyncio.sleep(0.01)
            waited += 0.01
        for transport in list(self.transports.values()):
            transport.abort()
        if self.traces is not None:
            reason = TOLD_TO_STOP if self.failure is None else str(self.failure)
            self.traces.loaded(self._load(), self.now())
            self.traces.close(reason, self.now())
        if self.store is not None:
            self.store.close()

    def reload(self) -> None:
        """Take up the network file as it is now, or say why not and go on as before."""
        self.reloads += 1
        try:
            new = _share(networks.load(self.network.path).expanded(), self.number)
            reload.check(self.network, new)
            known = None if new.users is None else users.load(new.users)
            key = None if new.secret is None else secret.load(new.secret)
            contexts = reload.contexts(new, self.number)
        except InputError as error:
            self.reload_error = str(error)
            log.error("reload refused", extra={"reason": str(error)})
            return
        self.reload_error = None
        self.network, self.contexts = new, contexts
        self.broker.change(new, self.now())
        self.broker.trust(key)
        self.broker.clients.reload(new.limits, known, self.now())
        if self.traces is not None:
            self.traces.reload(new)
        if self.number in new.removed:
            self.end()
        self.soon()
        log.info("configuration reloaded", extra={"broker": self.broker.name})

    def _stop_listening(self, key: str) -> None:
        close = self._doors.pop(key, None)
        if close is not None:
            close()

    def end(self) -> None:
        """Stop; asked twice, without waiting for anybody."""
        self.hurried = self.ended.is_set()
        self.ended.set()

    def _commit(self) -> bool:
        """Write down what this turn changed. If that fails nothing may leave the broker."""
        journal = self.broker.journal
        if journal is None or self.store is None:
            return True
        if self.broker.failure is not None:
            return self._fail(RunFailed(self.broker.failure))
        try:
            self.store.commit(journal.take())
        except RunFailed as error:
            return self._fail(error)
        self.broker.committed(self.store.count)
        return True

    def _fail(self, error: RunFailed) -> bool:
        self.failure = error
        log.critical("broker ends", extra={"reason": str(error)})
        for transport in list(self.transports.values()):
            transport.abort()
        self.ended.set()
        return False

    def soon(self) -> None:
        """Something may have changed: look once this turn of the loop is over."""
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def upgrade(self, connection: Connection) -> WebSocketTransport:
        """A client speaks WebSocket."""
        from postroad.live.edge.websocket import WebSocket  # only brokers that need it load it

        socket = WebSocket(self.network.limits.packet_bytes + FRAME_MORE)
        plain = cast(asyncio.Transport, self.transports[connection])
        web = self.transports[connection] = WebSocketTransport(plain, socket)
        return web

    def came(self, size: int, now: TimeUs) -> None:
        """So many bytes came: a quiet broker deals with a few at once, a busy one with all that
        comes meanwhile together, so that nobody waits for two turns."""
        if size <= QUIET_BYTES and now - self._turned_us > QUIET_US and not self._scheduled:
            self._turn()
        else:
            self.soon()

    def passed(self, protocol: ClientProtocol, data: bytes) -> bool:
        """Write a publication that came alone to a quiet broker to whoever gets it, and count it
        afterwards; False if it takes a turn."""
        now = self.now()
        connection = protocol.connection
        if self._scheduled or now - self._turned_us <= QUIET_US or connection is None:
            return False
        way = self._ways.get(connection)
        if way is None or not mqtt.goes_alone(data, way.to.field):
            if len(data) > QUIET_BYTES:
                return False
            to = protocol.clients.alone.destinations(connection, data)
            way = None if to is None else self._way(connection, to, connection.level)
        if way is None or not self._clear(way):
            return False
        self._turned_us = now
        if way.writes:
            self._write(way, data)
        protocol.clients.alone.went(connection, data, len(way.writes), now)
        if way.onward:
            run = protocol.clients.alone.as_run(connection, data, way.to.topic)
            message = self.broker.codec.alone(run, way.to.lasting)
            for neighbour, write in way.onward:
                write(neighbour.at_once(message, now))
        return True

    def passed_on(self, wire: Wire, data: bytes) -> bool:
        """The same of a publication that came alone from a neighbour."""
        now = self.now()
        if self._scheduled or now - self._turned_us <= QUIET_US or len(data) > QUIET_BYTES:
            return False
        arrived = None if self.inbox else self.broker.arrived_alone(wire, data)
        if arrived is None:
            return False
        frame, run, came = arrived
        clients, way = self.broker.clients, self._ways.get(wire)
        if way is None or way.to.topic != run.topic:
            assert wire.link is not None
            to = clients.alone.destinations_from(wire.link.peer, run)
            way = None if to is None else self._way(wire, to, mqtt.V5)
        if way is None or not (mqtt.goes_alone(run.packets, way.to.field) and self._clear(way)):
            return False
        self._turned_us = now
        acknowledges = self.broker.took_at_once(wire, frame, run, now)
        if way.writes:
            self._write(way, run.packets)
        clients.alone.copied(len(way.writes), now - run.time_us)
        if way.onward:
            message = self.broker.codec.alone_on(run, came, way.to.lasting)
            for neighbour, write in way.onward:
                write(neighbour.at_once(message, now))
        if acknowledges:
            self.soon()
        return True

    def _way(self, source: Connection | Wire, to: Destinations, level: int) -> Writes | None:
        """How what comes from there at this MQTT level is written to whom; None if a neighbour has
        to get it otherwise."""
        transports, neighbours = self.transports, self.broker.neighbours(to.peers, to.lasting)
        if neighbours is None:
            return None
        writes = [(target, transports[target].write, target.level == level)
                  for target in to.targets]  # fmt: skip
        onward = [(each, transports[each.wire].write) for each in neighbours if each.wire]
        way = Writes(to, level, writes, onward)
        if to.lasting:
            self._ways[source] = way
        return way

    def _clear(self, way: Writes) -> bool:
        """Whether nothing else waits for anybody who gets a publication."""
        for target, _, _ in way.writes:
            if target.full or target.out:
                return False
        for neighbour, _ in way.onward:
            if not neighbour.clear:
                return False
        return not (way.onward and self.broker.congested)

    def _write(self, way: Writes, data: bytes) -> None:
        other, size = b"", 0
        for _, write, same in way.writes:
            if not same:
                other = other or mqtt.as_of_other_level(data, way.level == mqtt.V3)
            written = data if same else other
            write(written)
            size += len(written)
        self.broker.clients.wrote(size)

    def _due(self) -> None:
        """The time has come, or nearly: loops round it."""
        self._timer = None
        if not self._scheduled:  # one turn between two looks at what came, or others wait for both
            self._turn()

    def _turn(self) -> None:
        self._scheduled = False
        self._ways.clear()
        if self.failure is not None:
            return
        broker, transports = self.broker, self.transports
        now = self.now()
        late_us = now - broker.next_due_us()
        if late_us > 0:  # it fades within a second or so
            self.lag_us = max(late_us, self.lag_us * 7 // 8)
        broker.tick(now)
        # After long work for peers whoever has asked meanwhile is answered before there is more.
        if not (self._long_read and broker.clients.ready):
            self._read_wires(now)
        else:
            self._long_read = False
        broker.clients.work(now)
        broker.flush(now)
        if not self._commit():
            return
        clients = broker.clients
        # While somebody keeps the broker busy, few publications for each of many clients wait for
        # more of them.
        gathers = (
            bool(clients.behind)
            and len(clients.dirty) > GATHER_CLIENTS
            and time.thread_time_ns() < self._wrote_ns + GATHER_NS
        )
        if not gathers:
            self._wrote_ns = time.thread_time_ns()
        gathered: dict[Connection, None] = {}
        parts: list[bytes] = []  # what was last joined: many clients may get the same
        while dirty := clients.take_dirty():
            for connection in dirty:
                transport = transports.get(connection)
                if transport is None:
                    continue
                out = connection.out
                if gathers and out and not connection.answered and _few(out):
                    gathered[connection] = None
                elif out:
                    if out != parts:
                        parts, data = out.copy(), b"".join(out)
                    connection.wrote()
                    transport.write(data)
                    clients.wrote(len(data))
                    if connection.full:
                        clients.unwritten(connection, transport.get_write_buffer_size())
                if connection.closing:
                    transport.close()
                    continue
                reads = not (connection.stopped or clients.draining or connection in clients.behind)
                if connection.read_on(reads):
                    if reads:
                        transport.resume_reading()
                    else:
                        transport.pause_reading()
        clients.look_again(gathered)
        for wire in [*broker.wires, *broker.take_closing()]:
            transport = transports.get(wire)
            if transport is not None:
                if wire.out:
                    transport.write(b"".join(wire.out))
                    wire.out.clear()
                if wire.closing:
                    transport.close()
            elif wire.closing and wire in self._agreeing:
                self._agreeing.pop(wire).cancel()
        if self.traces is not None:
            if self.traces.load_due(now):
                self.traces.loaded(self._load(), now)
            self.traces.flush(now)
        logs.summarise(now / 1e6)
        for peer in broker.to_dial(now):
            self._start(self._dial(peer))
        for work, then in broker.take_work():
            self._start(self._aside(work, then))
        for brokers, answered in broker.take_pings():
            self._start(self._ping(brokers, answered))
        if self.inbox or clients.busy:
            self.soon()
        due_us = broker.next_due_us()
        # One that fires sooner than need be does no harm, and to set another takes time.
        if self._timer is None or due_us < self._timer_us:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_us = due_us
            self._timer = self.loop.call_later(max(0, due_us - now) / 1e6, self._due)
        self._turned_us = self.now()

    def _load(self) -> dict[str, Any]:
        """What traces say of this broker's load now and then: sums since it started."""
        broker = self.broker
        return {
            "steps": broker.steps,
            "cpu_us": time.process_time_ns() // 1000,
            "published": broker.clients.tally.published,
            "delivered": broker.clients.tally.delivered,
            "connections": len(broker.clients.connections),
            "table_entries": broker.router.table_entries(),
            "links": {
                self.network.names[peer]: {
                    "delay_us": neighbour.link.delay_us,
                    "queue": len(neighbour.link.queue),
                }
                for peer, neighbour in broker.peers.items()
            },
        }

    def _read_wires(self, now: TimeUs) -> None:
        """Deal with some of what peers sent; they are read on when all of it is done."""
        if not self.inbox:
            self._long_read = False
            return
        clock = self._cpu_ns
        began_ns = clock()
        for wire, data in list(self.inbox.items()):
            end_ns = clock() + WIRE_NS
            at = 0
            while at < len(data) and clock() < end_ns:
                end = links.whole(wire.buffer, data, at, WIRE_BYTES)
                self.broker.wire_received(wire, data[at:end], now)
                at = end
            transport = self.transports.get(wire)
            if at < len(data) and not wire.closing and transport is not None:
                self.inbox[wire] = data[at:]
                transport.pause_reading()
            else:
                del self.inbox[wire]
                if transport is not None and not wire.closing:
                    transport.resume_reading()
        self._long_read = clock() > began_ns + LONG_NS

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _aside(self, work: Callable[[], bool], then: Callable[[bool, TimeUs], None]) -> None:
        async with self._room:
            answer = await asyncio.to_thread(work)
        then(answer, self.now())
        self.soon()

    async def _ping(
        self,
        brokers: Sequence[BrokerId],
        answered: Callable[[Mapping[BrokerId, TimeUs], TimeUs], None],
    ) -> None:
        """Measure the way that a client beside this broker would take to others."""
        times_us: dict[BrokerId, TimeUs] = {}
        for number in brokers:
            address = self.network.addresses[number]
            us = 0 if number == self.number else await one_way_us(address.host, address.mqtt)
            if us is not None:
                times_us[number] = us
        answered(times_us, self.now())
        self.soon()

    async def _dial(self, peer: BrokerId) -> None:
        address, tls = self.network.addresses[peer], self.contexts.dialling
        if self.channel is not None and self.network.hubs[peer] == self.network.hubs[self.number]:
            self.channel.say("dial", peer)
            self.channel.flush()
            return
        try:
            connecting = self.loop.create_connection(
                lambda: WireProtocol(self, peer),
                address.host,
                address.link,
                ssl=tls,
                server_hostname=address.host if tls else None,
            )
            await asyncio.wait_for(connecting, DIAL_S)
        except (OSError, TimeoutError) as error:  # an SSLError is an OSError
            if isinstance(error, ssl.SSLError):
                log.warning("dialling failed", extra={"peer": peer, "reason": str(error)})
            self.broker.dial_failed(peer, self.now())
            self.soon()


class WebSocketTransport:
    """A client's transport that speaks WebSocket; what `Server` uses of one."""

    def __init__(self, transport: asyncio.Transport, socket: WebSocket) -> None:
        self.inner, self.socket = transport, socket
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.get_write_buffer_size, self.abort = transport.get_write_buffer_size, transport.abort

    def received(self, data: bytes) -> bytes:
        stream = self.socket.received(data)
        self._flush()
        if self.socket.over:
            self.inner.close()
        return stream

    def write(self, data: bytes) -> None:
        self.socket.send(data)
        self._flush()

    def _flush(self) -> None:
        data = self.socket.take()
        if data:
            self.inner.write(data)

    def close(self) -> None:
        self.socket.close()
        self._flush()
        self.inner.close()


class ClientProtocol(asyncio.Protocol):
    """`connection` is given where TLS was agreed on first, which counts against the limits."""

    __slots__ = ("clients", "connection", "server", "web")

    def __init__(self, server: Server, connection: Connection | None = None) -> None:
        self.server = server
        self.clients = server.broker.clients
        self.connection = connection
        # False: it speaks MQTT as it is; None before a byte has come.
        self.web: WebSocketTransport | Literal[False] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        opened = cast(asyncio.Transport, transport)
        opened.set_write_buffer_limits(high=FULL_BYTES)
        if self.connection is None and not self.server.full():
            self.connection = self.clients.opened(peer_name(transport), self.server.now())
        if self.connection is None:
            opened.abort()
            return
        self.server.transports[self.connection] = opened

    def data_received(self, data: bytes) -> None:
        connection, server = self.connection, self.server
        if connection is None:
            return
        web = self.web
        if web is not False:
            if web is None:  # of GET; MQTT begins with 0x10
                web = self.web = server.upgrade(connection) if data[:1] == b"G" else False
            if web is not False:
                data = web.received(data)
                if not data:
                    return
        if server.passed(self, data):
            return
        now = server.now()
        self.clients.received(connection, data, now)
        # A loop would read on while there is anything, and others would wait for all of it. The
        # turn to come sees whether to read on.
        if connection.input_bytes >= READ_BYTES and connection.read_on(False):
            server.transports[connection].pause_reading()
        server.came(len(data), now)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.connection is None:
            return
        self.server.transports.pop(self.connection, None)
        self.clients.closed(self.connection, self.server.now())
        self.server.gone(self.connection.address)
        self.server.soon()

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.clients.filled(self.connection, self.server.now())

    def resume_writing(self) -> None:
        if self.connection is None:
            return
        self.clients.emptied(self.connection, self.server.now())
        self.server.soon()


class WireProtocol(asyncio.Protocol):
    """`wire` is given where TLS was agreed on first, which counts against the limits, and between
    workers."""

    def __init__(self, server: Server, dialled: BrokerId | None, wire: Wire | None = None) -> None:
        self.server, self.dialled, self.agreed = server, dialled, wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self.server
        certified = certificates.name_in(transport.get_extra_info("peercert"))
        if self.agreed is None:
            self.wire = server.broker.wire_opened(
                peer_name(transport), self.dialled, server.now(), certified
            )
        else:
            self.wire = self.agreed
            self.wire.certified = certified or self.wire.certified
            if self.wire.closing:
                cast(asyncio.Transport, transport).abort()
        server.transports[self.wire] = cast(asyncio.Transport, transport)
        server.soon()

    def data_received(self, data: bytes) -> None:
        server = self.server
        if server.passed_on(self.wire, data):
            return
        server.inbox[self.wire] = server.inbox.get(self.wire, b"") + data
        server.came(len(data), server.now())

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.transports.pop(self.wire, None)
        data = self.server.inbox.pop(self.wire, b"")
        if data:
            self.server.broker.wire_received(self.wire, data, self.server.now())
        self.server.broker.wire_closed(self.wire, self.server.now())
        self.server.soon()


class CpuClock:
    """This thread's CPU time, asked of the system once in a millisecond: to ask takes microseconds.

    In between time that passes counts, so a turn may end early by what the thread was not running.
    """

    def __init__(self) -> None:
        self._cpu_ns, self._asked_ns = time.thread_time_ns(), time.perf_counter_ns()

    def ns(self) -> int:
        now_ns = time.perf_counter_ns()
        if now_ns - self._asked_ns > 1_000_000:
            self._cpu_ns, self._asked_ns = time.thread_time_ns(), now_ns
        return self._cpu_ns + now_ns - self._asked_ns


def _few(out: list[bytes]) -> bool:
    """Whether so little is to be written that it may wait; its size is judged by both ends."""
    count = len(out)
    return count < GATHER and count * (len(out[0]) + len(out[-1])) < 2 * GATHER_BYTES


def _share(network: Network, number: BrokerId) -> Network:
    """The network as a worker sees it, with its part of the limits."""
    count = len(network.of_same_broker(number))
    return network if count == 1 else replace(network, limits=network.limits.share(count))


def peer_name(transport: asyncio.BaseTransport) -> str:
    name: Any = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unknown"


async def serve(network: Network, number: BrokerId, channel: workers.Channel | None = None) -> None:
    """Run one broker, or one worker of it, until SIGTERM or SIGINT."""
    server = Server(network, number, channel)
    await server.start()
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    for name in (signal.SIGTERM, signal.SIGINT):
        server.loop.add_signal_handler(name, server.end)
    server.loop.add_signal_handler(signal.SIGHUP, server.reload)
    await server.ended.wait()
    log.info("broker stops", extra={"broker": server.broker.name})
    await server.stop()
    if server.failure is not None:
        raise server.failure


def run(
    network: Network,
    number: BrokerId,
    log_level: str = "info",
    worker: tuple[int, int] | None = None,
) -> None:
    """Run one broker of a network; or of its workers the one of this place, which hears from its
    supervisor over this descriptor.

    On uvloop where it is installed, which is faster, and on asyncio otherwise.
    """
    with suppress(AttributeError):  # of glibc alone: else it keeps the arrays that tables outgrow
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if network.workers[number] > 1 and worker is None:
        asyncio.run(workers.supervise(network, number, log_level))
        return
    inside = network.expanded()
    place, channel = (1, None) if worker is None else (worker[0], workers.Channel(worker[1]))
    number = inside.names.index(network.names[number]) + place - 1
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):
        import uvloop

        new_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(inside, number, channel))
