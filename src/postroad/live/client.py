"""A small asyncio MQTT 5 client that adds what is Postroad's own.

    async with Client("localhost", 1883) as client:
        await client.subscribe("quotes/#", where="price > 10")
        await client.publish("quotes/ibm", b'{"price": 12}')
        async for message in client:
            ...

Content filters travel in `$where`, an announcement of what will be published in `$advertise`.
When a broker sends the client elsewhere (reason 0x9C, Use another server) it follows by itself:
it connects there, subscribes again, and what is published meanwhile waits.
"""

from __future__ import annotations

import asyncio
import enum
import ssl
from collections.abc import AsyncIterator, Coroutine
from types import TracebackType
from typing import Any, cast

import mqtt5
from mqtt5 import ConnAckReasonCode, DisconnectReasonCode, PublishPacket, QoS

from postroad.errors import InputError, RunFailed
from postroad.live.edge import mqtt, topics

CONNECT_S = 10.0
PACKET_MAX = 256 << 20
TEXT_BYTES_MAX = 65_535  # of a text in a packet: its length stands in two bytes
QUEUE_MAX = 10_000  # received and not yet taken: then reading pauses
MOVES_MAX = 5
# What ends the exchange that a packet identifier is for.
_LAST = (
    mqtt5.PubAckPacket,
    mqtt5.PubRecPacket,  # that refuses
    mqtt5.PubCompPacket,
    mqtt5.SubAckPacket,
    mqtt5.UnsubAckPacket,
)


class Client(asyncio.Protocol):
    """A client of one broker, as an asynchronous context: subscribe, publish, and iterate over
    what arrives. `advertise` is a filter that says what it will publish."""

    def __init__(
        self,
        host: str = "localhost",
        port: int = 1883,
        *,
        client_id: str = "",
        advertise: str | None = None,
        keep_alive: int = 60,
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        for what, text in (
            ("the client's identifier", client_id),
            ("the user's name", username),
            ("the password", password),
            ("advertise", advertise),
        ):
            _check_text(what, text)
        self.host, self.port = host, port
        self.client_id = client_id
        self.advertise = advertise
        self.keep_alive = keep_alive
        self.username, self.password, self.tls = username, password, tls
        self.moves = 0
        self._ticket: str | None = None  # what a broker said on sending the client elsewhere
        self._left = 0  # connections closed on purpose
        self._subscriptions: dict[str, tuple[str | None, int]] = {}
        self._inbox: asyncio.Queue[PublishPacket | None] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._unacknowledged: dict[int, bytes] = {}  # a PUBLISH, or the PUBREL that follows it
        self._received: set[int] = set()  # of quality 2, that the broker may send again
        self._receive_max = 65_535
        self._room = asyncio.Event()  # something was acknowledged
        self._next_id = 0
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._connack: asyncio.Future[mqtt5.ConnAckPacket] | None = None
        self._ready = asyncio.Event()  # connected, and writing is not paused
        self._failure: Exception | None = None
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Client:
        await self._connect()
        self._start(self._ping())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(mqtt5.DisconnectPacket().write())
            self._transport.close()
        await asyncio.sleep(0)

    # Connecting.

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(MOVES_MAX):
            self._buffer = b""
            self._connack = loop.create_future()
            try:
                async with asyncio.timeout(CONNECT_S):
                    await loop.create_connection(lambda: self, self.host, self.port, ssl=self.tls)
                    answer = await self._connack
            except (OSError, TimeoutError) as error:
                raise RunFailed(f"no broker answers at {self.host}:{self.port}: {error}") from None
            if answer.reason_code == ConnAckReasonCode.SUCCESS:
                self.client_id = answer.assigned_client_id or self.client_id
                self._receive_max = answer.receive_max
                if answer.server_keep_alive is not None:
                    self.keep_alive = answer.server_keep_alive
                self._received.clear()  # the session is new
                self._ready.set()
                return
            if not self._move_to(answer.server_reference):
                reason = answer.reason_str or _in_words(answer.reason_code)
                raise RunFailed(f"the broker refuses: {reason}")
        raise RunFailed(f"sent on {MOVES_MAX} times")

    def _move_to(self, reference: str | None) -> bool:
        host, _, port = (reference or "").split(" ")[0].rpartition(":")
        if not port.isdecimal():
            return False
        self.host, self.port = host or self.host, int(port)
        self.moves += 1
        return True

    async def _follow(self) -> None:
        """Connect where the broker said, send what was not acknowledged, subscribe again."""
        try:
            await self._connect()
            assert self._transport is not None
            for data in self._unacknowledged.values():  # before anyone else gets to write
                again = bytes((data[0] | 8,)) + data[1:] if data[0] >> 4 == 3 else data
                self._transport.write(again)
            for pattern, (where, qos) in list(self._subscriptions.items()):
                await self._subscribe(pattern, where, qos)
        except (RunFailed, InputError) as error:
            self._fail(error)

    async def _ping(self) -> None:
        while self.keep_alive:
            await asyncio.sleep(self.keep_alive / 2)
            if self._transport is not None and self._ready.is_set():
                self._transport.write(mqtt5.PingReqPacket().write())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What a program does.

    async def subscribe(
        self, pattern: str = "#", *, where: str | None = None, qos: int = 0
    ) -> None:
        """Ask for publications. Returns once every broker that can be reached knows."""
        _check_text("the topic filter", pattern)
        topics.check_pattern(topics.split_share(pattern)[1])
        _check_text("the content filter", where)
        await self._subscribe(pattern, where, qos)
        self._subscriptions[pattern] = (where, qos)

    async def _subscribe(self, pattern: str, where: str | None, qos: int) -> None:
        number, answer = self._ask()
        wanted = mqtt5.TopicFilter(pattern, max_qos=QoS(qos), retain_as_published=False)
        properties = [] if where is None else [("$where", where)]
        packet = mqtt5.SubscribePacket(number, [wanted], user_properties=properties)
        await self._send(packet.write())
        granted = await answer
        if int(granted.reason_codes[0]) >= 0x80:
            reason = _in_words(granted.reason_codes[0])
            raise InputError(granted.reason_str or f"refused: {reason}")

    async def unsubscribe(self, pattern: str) -> None:
        number, answer = self._ask()
        await self._send(mqtt5.UnsubscribePacket(number, [pattern]).write())
        await answer
        self._subscriptions.pop(pattern, None)

    async def publish(
        self,
        topic: str,
        payload: bytes = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: dict[str, str] | None = None,
    ) -> None:
        """Publish; with qos 1 or 2 this returns once the broker has acknowledged it."""
        _check_text("the topic", topic)
        topics.check_topic(topic)
        while qos and len(self._unacknowledged) >= self._receive_max and self._failure is None:
            self._room.clear()
            await self._room.wait()
        number, answer = self._ask() if qos else (None, None)
        packet = PublishPacket(
            topic,
            payload,
            qos=QoS(qos),
            retain=retain,
            packet_id=number,
            user_properties=list((properties or {}).items()),
        )
        data = packet.write()
        await self._send(data)
        if number is not None:
            self._unacknowledged[number] = data
        if answer is not None:
            answered = await answer
            refused = int(answered.reason_code) >= 0x80
            if refused and not isinstance(answered, mqtt5.PubCompPacket):  # 0x92 is the same to us
                reason = answered.reason_str or _in_words(answered.reason_code)
                raise InputError(f"not published: {reason}")

    def __aiter__(self) -> AsyncIterator[PublishPacket]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[PublishPacket]:
        while True:
            message = await self._inbox.get()
            if message is None:
                raise self._failure or RunFailed("the connection is gone")
            if self._inbox.qsize() < QUEUE_MAX and self._transport is not None:
                self._transport.resume_reading()
            yield message

    def _ask(self) -> tuple[int, asyncio.Future[Any]]:
        number = self._next_id
        while True:
            number = number % 65_535 + 1
            if number not in self._answers:
                break
        self._next_id = number
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        return number, answer

    async def _send(self, data: bytes) -> None:
        while not self._ready.is_set():  # it may have been cleared again since it was set
            await self._ready.wait()
        if self._failure is not None:
            raise self._failure
        assert self._transport is not None
        self._transport.write(data)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        properties = [("$follow", "1")]
        if self._ticket is not None:
            properties.append(("$migrate", self._ticket))
        elif self.advertise is not None:
            properties.append(("$advertise", self.advertise))
        packet = mqtt5.ConnectPacket(
            self.client_id,
            username=self.username,
            password=None if self.password is None else self.password.encode(),
            clean_start=True,
            keep_alive=self.keep_alive,
            user_properties=properties,
        )
        self._transport.write(packet.write())

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data if self._buffer else data
        at = 0
        try:
            while end := mqtt.frame(data, at, PACKET_MAX) if at < len(data) else 0:
                self._on_packet(mqtt.read(data[at:end], mqtt.V5))
                at = end
        except mqtt.Malformed as error:
            self._fail(RunFailed(f"the broker sent what is no packet: {error}"))
            return
        self._buffer = data[at:]

    def _on_packet(self, packet: mqtt5.Packet) -> None:
        assert self._transport is not None
        if isinstance(packet, PublishPacket):
            if packet.packet_id is not None and packet.qos == 2:
                self._transport.write(mqtt.pubrec(packet.packet_id))
                if packet.packet_id in self._received:
                    return
                self._received.add(packet.packet_id)
            elif packet.packet_id is not None:
                self._transport.write(mqtt.puback(packet.packet_id))
            self._inbox.put_nowait(packet)
            if self._inbox.qsize() >= QUEUE_MAX:
                self._transport.pause_reading()
        elif isinstance(packet, mqtt5.PubRelPacket):
            self._received.discard(packet.packet_id)
            self._transport.write(mqtt.pubcomp(packet.packet_id))
        elif isinstance(packet, mqtt5.PubRecPacket) and int(packet.reason_code) < 0x80:
            released = mqtt.pubrel(packet.packet_id)
            if packet.packet_id in self._unacknowledged:
                self._unacknowledged[packet.packet_id] = released
            self._transport.write(released)
        elif isinstance(packet, _LAST):
            self._unacknowledged.pop(packet.packet_id, None)
            self._room.set()
            answer = self._answers.pop(packet.packet_id, None)
            if answer is not None and not answer.done():
                answer.set_result(packet)
        elif isinstance(packet, mqtt5.ConnAckPacket):
            if self._connack is not None and not self._connack.done():
                self._connack.set_result(packet)
        elif isinstance(packet, mqtt5.DisconnectPacket):
            self._ready.clear()
            moved = packet.reason_code in (
                DisconnectReasonCode.USE_ANOTHER_SERVER,
                DisconnectReasonCode.SERVER_MOVED,
            )
            if moved and self._move_to(packet.server_reference):
                self._ticket = dict(packet.user_properties).get("$migrate")
                self._left += 1
                self._transport.close()  # what was written before still goes out
                self._transport = None
                self._start(self._follow())
            else:
                reason = packet.reason_str or _in_words(packet.reason_code)
                self._fail(RunFailed(f"the broker ended the connection: {reason}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._left:
            self._left -= 1
            return
        if self._closing:
            return
        if self._connack is not None and not self._connack.done():
            self._connack.set_exception(OSError("the connection was closed"))
        elif self._ready.is_set():
            self._fail(RunFailed(f"the connection to {self.host}:{self.port} is gone"))

    def pause_writing(self) -> None:
        self._ready.clear()

    def resume_writing(self) -> None:
        self._ready.set()

    def _fail(self, error: Exception) -> None:
        if self._failure is not None:  # what came first says why
            return
        self._failure = error
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
        self._inbox.put_nowait(None)
        self._ready.set()
        self._room.set()


def _check_text(what: str, text: str | None) -> None:
    """Raise `InputError` for a text that no packet can carry."""
    try:
        size = len((text or "").encode())
    except UnicodeEncodeError:  # bytes of a command line that are no UTF-8
        raise InputError(f"{what} is {text!r:.60}", remedy="write it as UTF-8") from None
    if size > TEXT_BYTES_MAX:
        raise InputError(f"{what} has {size:,} bytes", remedy=f"use at most {TEXT_BYTES_MAX:,}")


def _in_words(code: enum.IntEnum) -> str:
    """A reason code as the standard names it."""
    return f"{code.name.lower().replace('_', ' ')} (0x{int(code):02X})"


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine of clients to its end."""
    asyncio.run(work)
