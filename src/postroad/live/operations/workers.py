"""A broker of several processes: whoever is asked for it starts its workers and is asked in their
place.

Each worker is a broker of its own (`Network.expanded`), joined to the first by a link inside, so
that sessions, shared subscriptions, retained publications and stores work as they do between
brokers. The supervisor alone listens. It accepts a connection and passes it on, to the worker with
the fewest where it is a client's and to the first where it is another broker's. It answers for all
of them over HTTP. Its counterpart in a worker is `Channel`; between the two are descriptors with a
word, and words.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from postroad.errors import InputError, RunFailed
from postroad.live import network as networks
from postroad.live.network import Network
from postroad.live.operations import http, merged
from postroad.live.operations.http import Answer
from postroad.live.operations.reload import check
from postroad.model import BrokerId

log = logging.getLogger("postroad.workers")

BACKLOG = 1024
WORDS_BYTES = 1 << 16  # the longest that the two say to each other at once
ACCEPTS = 64  # connections let in before anything else is looked at
AGAIN_S = 0.1  # until the next try, where every worker is behind with what it was passed
RESTART_S = (0.1, 5.0)  # before a worker is started again: at first, and at most
STEADY_S = 30.0  # one that ran for so long is started again as at first
ASK_S = 1.5  # for a worker to answer; operators wait for two
SUMS_S = 5.0  # how often workers tell each other, through the supervisor, what they count

_AWAY = "503 Service Unavailable", "text/plain", b"the worker does not answer\n"


class Channel:
    """A worker's end: what it is passed, and what it asks for."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self.socket.setblocking(False)
        self._out: deque[bytes] = deque()

    def say(self, *words: object) -> None:
        self._out.append(" ".join(map(str, words)).encode())

    def flush(self) -> None:
        """Send what is to be said, as far as there is room."""
        while self._out:
            try:
                self.socket.send(self._out[0])
            except BlockingIOError:
                return
            except OSError:  # the supervisor is gone, which the reading side notices
                self._out.clear()
                return
            self._out.popleft()

    def receive(self) -> tuple[list[str], socket.socket | None] | None:
        """What was said, with a connection or without; no words at the end, None if nothing."""
        try:
            said, passed, _, _ = socket.recv_fds(self.socket, WORDS_BYTES, 1)
        except BlockingIOError:
            return None
        except OSError:
            return [], None
        return said.decode().split(" ", 1) if said else [], _socket(passed)


def _socket(passed: list[int]) -> socket.socket | None:
    return socket.socket(fileno=passed[0]) if passed else None


@dataclass(eq=False)
class Worker:
    number: BrokerId
    name: str
    place: int  # among the broker's workers, from 1
    process: asyncio.subprocess.Process | None = None
    channel: socket.socket | None = None
    hosts: Counter[str] = field(default_factory=Counter)  # of the connections it has
    sums: dict[str, int] = field(default_factory=dict)

    def says(self, *words: object, passing: socket.socket | None = None) -> bool:
        """Tell the worker something, perhaps with a connection; whether it could be told."""
        if self.channel is None:
            return False
        said = " ".join(map(str, words)).encode()
        try:
            if passing is None:
                self.channel.send(said)
            else:
                socket.send_fds(self.channel, [said], [passing.fileno()])
        except OSError:
            return False
        return True


class Supervisor:
    def __init__(self, network: Network, number: BrokerId, log_level: str) -> None:
        self.network, self.number, self.log_level = network, number, log_level
        self.name = network.names[number]
        inside = self.inside = network.expanded()
        self.workers = [
            Worker(each, inside.names[each], place)
            for place, each in enumerate(inside.of_same_broker(inside.names.index(self.name)), 1)
        ]
        self.first = self.workers[0]
        self.loop = asyncio.get_running_loop()
        self.asked: dict[http.Protocol, None] = {}
        self.started_s = time.monotonic()
        self.stopping = False
        self.ended = asyncio.Event()
        self.failure: RunFailed | None = None
        self.refused = 0
        self._second, self._fresh = 0, Counter[str]()
        self._doors: list[socket.socket] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        address = self.network.addresses[self.number]
        self._listen("mqtt", address.host, address.mqtt)
        self._listen("link", address.host, address.link)
        door = listening(self.name, "http", address.http_host, address.http)
        self.http = await self.loop.create_server(
            lambda: http.Protocol(self, self._answer), sock=door, backlog=BACKLOG
        )
        for worker in self.workers:
            self._begin(self._keep(worker))
        self.loop.call_later(SUMS_S, self._share_sums)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Connections.

    def _listen(self, key: str, host: str, port: int) -> None:
        door = listening(self.name, key, host, port)
        self._doors.append(door)
        accept = self._accept_clients if key == "mqtt" else self._accept_peers
        self.loop.add_reader(door, accept, door)

    def _accept_clients(self, door: socket.socket) -> None:
        for _ in range(ACCEPTS):
            workers = sorted(
                (w for w in self.workers if w.channel is not None),
                key=lambda worker: worker.hosts.total(),
            )
            try:
                accepted, name = door.accept()
            except BlockingIOError:
                return
            except OSError as error:  # such as too many open files
                log.warning("cannot accept a connection", extra={"reason": str(error)})
                self._rest(door)
                return
            with accepted:
                if not self._lets_in(name[0]):
                    continue
                for worker in workers:
                    if worker.says("mqtt", f"{name[0]}:{name[1]}", passing=accepted):
                        worker.hosts[name[0]] += 1
                        break
                else:
                    self.refused += 1
                    log.warning("connection refused", extra={"reason": "no worker takes it"})
                    self._rest(door)
                    return

    def _lets_in(self, host: str) -> bool:
        """Whether an address may have one more connection: what holds for the broker."""
        limits, second = self.network.limits, int(time.monotonic())
        if second != self._second:
            self._second, self._fresh = second, Counter()
        self._fresh[host] += 1
        open_now = sum(worker.hosts[host] for worker in self.workers)
        if open_now < limits.connections_per_address and not (
            limits.connects_per_s and self._fresh[host] > limits.connects_per_s
        ):
            return True
        self.refused += 1
        log.warning(
            "connection refused", extra={"address": host, "reason": "too many from this address"}
        )
        return False

    def _accept_peers(self, door: socket.socket) -> None:
        with suppress(OSError):
            accepted, name = door.accept()
            with accepted:
                self.first.says("link", f"{name[0]}:{name[1]}", passing=accepted)

    def _rest(self, door: socket.socket) -> None:
        """Let no more connections in for a moment."""
        self.loop.remove_reader(door)
        self.loop.call_later(AGAIN_S, self._go_on, door)

    def _go_on(self, door: socket.socket) -> None:
        if not self.stopping:
            self.loop.add_reader(door, self._accept_clients, door)

    # Workers.

    async def _keep(self, worker: Worker) -> None:
        """Run a worker; if it falls it is started again. If it gives up, so does the broker."""
        wait_s, most_s = RESTART_S
        while True:
            began_s = self.loop.time()
            code = await self._run(worker)
            if code > 0 and not self.stopping:
                self.failure = RunFailed(f"worker {worker.name} ended with exit code {code}")
                self.ended.set()
                return
            if self.loop.time() - began_s > STEADY_S:
                wait_s = RESTART_S[0]
            if not self.stopping:
                extra = {"worker": worker.name, "signal": -code, "again_s": wait_s}
                log.error("worker fell", extra=extra)
                await asyncio.sleep(wait_s)
            if self.stopping:
                return
            wait_s = min(2 * wait_s, most_s)

    async def _run(self, worker: Worker) -> int:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            ours.setblocking(False)
            command = [sys.executable, "-m", "postroad", "broker", "--log-level", self.log_level]
            command += ["--network", str(self.network.path), "--id", self.name]
            command += ["--worker", str(worker.place), "--channel", str(theirs.fileno())]
            worker.process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
            )
        worker.channel = ours
        self.loop.add_reader(ours, self._hear, worker, ours)
        if self.stopping:
            worker.process.terminate()
        code = await worker.process.wait()
        worker.process = worker.channel = None
        worker.hosts.clear()
        worker.sums = {}
        self.loop.remove_reader(ours)
        ours.close()
        return code

    def _hear(self, worker: Worker, channel: socket.socket) -> None:
        try:
            said = channel.recv(WORDS_BYTES)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:  # it ends
            self.loop.remove_reader(channel)
            return
        match said.decode().split(" ", 1):
            case ["closed", host]:
                worker.hosts[host] -= 1
            case ["dial", number]:
                self._join(worker, int(number))
            case ["sums", sums]:
                worker.sums = json.loads(sums)
            case _:
                raise AssertionError(said)

    def _join(self, worker: Worker, number: BrokerId) -> None:
        """Connect a worker with another one."""
        one, other = socket.socketpair()
        with one, other:
            peer = next(each for each in self.workers if each.number == number)
            if peer.says("inside", worker.number, passing=one):
                worker.says("dialled", number, passing=other)
            else:
                worker.says("dialled", number)

    def _share_sums(self) -> None:
        for worker in self.workers:
            others = Counter[str]()
            for other in self.workers:
                if other is not worker:
                    others.update(other.sums)
            worker.says("others", json.dumps(others))
        self.loop.call_later(SUMS_S, self._share_sums)

    def _signal(self, workers: list[Worker], number: int) -> None:
        for worker in workers:
            if worker.process is not None:
                with suppress(ProcessLookupError):
                    worker.process.send_signal(number)

    def end(self) -> None:
        """Stop; asked twice, without waiting for anybody."""
        if self.ended.is_set():
            for _ in range(2):
                self._signal(self.workers, signal.SIGTERM)
        self.ended.set()

    def reload(self) -> None:
        """Have every worker take up the network file; what is wrong with it they say themselves."""
        with suppress(InputError):
            new = networks.load(self.network.path)
            check(self.inside, new.expanded())
            self.network = replace(self.network, limits=new.limits)
            if self.name not in new.member_names:
                self.end()
        self._signal(self.workers, signal.SIGHUP)

    async def stop(self) -> None:
        """The first worker ends last: the others pass on through it what they have."""
        self.stopping = True
        for door in self._doors:
            self.loop.remove_reader(door)
            door.close()
        for some in (self.workers[1:], [self.first]):
            self._signal(some, signal.SIGTERM)
            while any(worker.process is not None for worker in some):
                await asyncio.sleep(0.01)
        self.http.close()

    # HTTP.

    def _answer(self, request: bytes, reply: Callable[[Answer], None]) -> None:
        async def answer() -> None:
            reply(await self.answer(request))

        self._begin(answer())

    async def answer(self, request: bytes) -> Answer:
        """What all workers say as one; below `/workers/N` what one of them says."""
        line, newline, rest = request.partition(b"\r\n")
        words = line.split(b" ")
        path = words[1].partition(b"?")[0] if len(words) == 3 else b""
        if path.startswith(b"/workers/"):
            place, _, target = words[1].removeprefix(b"/workers/").partition(b"/")
            if not place.isdigit() or not 0 < int(place) <= len(self.workers):
                return "404 Not Found", "text/plain", b"no such worker\n"
            words[1] = b"/" + target
            one = await self.ask(self.workers[int(place) - 1], b" ".join(words) + newline + rest)
            return one or _AWAY
        if path == b"/metrics":
            request = b"GET /facts HTTP/1.1\r\n\r\n"
        if path in (b"/would", b"/traces"):  # of the first, others have to be named
            return await self.ask(self.first, request) or _AWAY
        asked = await asyncio.gather(*(self.ask(worker, request) for worker in self.workers))
        answers = [answer for answer in asked if answer is not None]
        refusal = next((each for each in answers if not each[0].startswith("200")), None)
        if refusal is not None or not answers:
            return refusal or _AWAY
        if path == b"/healthz":
            return answers[0]
        if path == b"/metrics":
            return self._metrics(self._rows(asked))
        if path == b"/status":
            return http.as_json(self._status(self._rows(asked)))
        return http.as_json(merged.lists([json.loads(body) for _, _, body in answers]))

    async def ask(self, worker: Worker, request: bytes) -> Answer | None:
        """What a worker answers; None if it does not."""
        try:
            async with asyncio.timeout(ASK_S):
                return await self._asked(worker, request)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return None

    async def _asked(self, worker: Worker, request: bytes) -> Answer | None:
        ours, theirs = socket.socketpair()
        with theirs:
            if not worker.says("http", passing=theirs):
                ours.close()
                return None
        reader, writer = await asyncio.open_connection(sock=ours, limit=1 << 24)
        try:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            body = await reader.read(-1)
        finally:
            writer.close()
        kind = next(line for line in head if line.startswith("Content-Type: "))
        return head[0].removeprefix("HTTP/1.1 "), kind.removeprefix("Content-Type: "), body

    def _rows(self, asked: Sequence[Answer | None]) -> dict[str, Any]:
        """What each worker said, by its name."""
        return {
            worker.name: None if answer is None else json.loads(answer[2])
            for worker, answer in zip(self.workers, asked, strict=True)
        }

    def _status(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **merged.status(self.name, rows, self.refused),
            "pid": os.getpid(),
            "uptime_s": time.monotonic() - self.started_s,
        }

    def _metrics(self, facts: Mapping[str, Any]) -> Answer:
        rows = {name: None if each is None else each["status"] for name, each in facts.items()}
        latencies = [each["latency"] for each in facts.values() if each is not None]
        pids = [worker.process.pid for worker in self.workers if worker.process is not None]
        return http.metrics(
            self._status(rows), merged.latency(latencies), merged.Processes([os.getpid(), *pids])
        )


def listening(broker: str, key: str, host: str, port: int) -> socket.socket:
    """A socket that listens there; `InputError` if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        door = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            where=f"brokers.{broker}.{key}",
            remedy="end what uses this port, or choose another",
        ) from None
    door.setblocking(False)
    return door


async def supervise(network: Network, number: BrokerId, log_level: str) -> None:
    """Run the workers of one broker until SIGTERM or SIGINT."""
    supervisor = Supervisor(network, number, log_level)
    await supervisor.start()
    for name in (signal.SIGTERM, signal.SIGINT):
        supervisor.loop.add_signal_handler(name, supervisor.end)
    supervisor.loop.add_signal_handler(signal.SIGHUP, supervisor.reload)
    await supervisor.ended.wait()
    await supervisor.stop()
    if supervisor.failure is not None:
        raise supervisor.failure
