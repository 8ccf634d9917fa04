"""`/metrics` for Prometheus, `/healthz`, `/status` as JSON, and `/would`.

On loopback, unless `http_host` says otherwise: then all but the first two need a token.

POST `/would` asks what this broker would do with a publication, of a client or from another broker;
nothing is sent, and nothing changes. `/clients` and `/subscriptions` list (`?search=` and
`&limit=`), POST `/kick` lets a client go, POST `/move` sends a publisher to another broker, and
`/traces` has the trace files that are complete: these are for operators (operators.py).
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, cast
from typing import Protocol as Interface

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from postroad.errors import InputError
from postroad.filters import matches
from postroad.live.broker import Broker
from postroad.live.edge.latency import Latency
from postroad.live.links.messages import BadMessage
from postroad.live.network import LOOPBACK, Network
from postroad.live.operations import operators
from postroad.live.traces import Traces
from postroad.model import Publication, TimeUs
from postroad.routing.base import Deliver, Note, Publish, Received, Send

REQUEST_MAX = 8192
BODY_MAX = 1 << 20
COPY_MAX = 20_000  # table entries of a router that is copied to be asked: that takes time
OPEN_MAX = 64  # the oldest makes room
PATIENCE_S = 10.0  # for the request to come and the answer to be read

Answer = tuple[str, str, bytes]  # status, content type, body

_TOKEN = b"show the token that is made from the network's secret\n"


class Answering(Interface):
    """Whom somebody asks."""

    asked: dict[Protocol, None]
    loop: asyncio.AbstractEventLoop


class Served(Answering, Interface):
    """What there is to tell of."""

    broker: Broker
    network: Network
    traces: Traces | None
    started_us: TimeUs
    reloads: int
    reload_error: str | None
    lag_us: TimeUs

    def now(self) -> TimeUs: ...

    def soon(self) -> None: ...


class Protocol(asyncio.Protocol):
    """One request, one answer, closed. `respond` is given the request and what to reply with."""

    def __init__(
        self, server: Answering, respond: Callable[[bytes, Callable[[Answer], None]], None]
    ) -> None:
        self.server, self.respond = server, respond
        self.request = b""
        self.answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        asked = self.server.asked
        if len(asked) >= OPEN_MAX:
            next(iter(asked)).end()
        asked[self] = None
        self.timer = self.server.loop.call_later(PATIENCE_S, self.end)

    def end(self) -> None:
        self.server.asked.pop(self, None)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.timer.cancel()
        self.server.asked.pop(self, None)

    def data_received(self, data: bytes) -> None:
        if self.answered:
            return
        self.request += data
        if len(self.request) >= wanted_bytes(self.request):
            self.answered = True
            self.respond(self.request, self.reply)

    def reply(self, answer: Answer) -> None:
        code, kind, body = answer
        head = f"HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        self.transport.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        self.transport.close()


def wanted_bytes(request: bytes) -> int:
    """How long a request is, as far as it has come; one that is too long is answered at once."""
    head, end, _ = request.partition(b"\r\n\r\n")
    if not end:
        return REQUEST_MAX + 1
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return len(head) + 4 + min(int(value), BODY_MAX + 1)
    return len(head) + 4


def answer_inside(server: Served, request: bytes) -> Answer:
    """What a worker answers the process that started it, which needs no token for `/facts`."""
    if not request.startswith(b"GET /facts "):
        return answer(server, request)
    latency = server.broker.clients.latency
    return as_json({"status": status(server), "latency": [latency.counts, latency.sum_us]})


def answer(server: Served, request: bytes) -> Answer:
    words = request.split(b"\r\n", 1)[0].split(b" ")
    open_to_all = len(words) == 3 and words[1] in (b"/healthz", b"/metrics")
    broker = server.broker
    if not open_to_all and broker.network.addresses[broker.number].http_host != LOOPBACK:
        head = request.partition(b"\r\n\r\n")[0]
        if not operators.trusted(broker, _bearer(head)):
            return "403 Forbidden", "text/plain", _TOKEN
    if len(words) == 3 and words[:2] == [b"POST", b"/would"]:
        body = request.partition(b"\r\n\r\n")[2]
        try:
            effects = would(server.broker, body[:BODY_MAX])
        except (msgspec.DecodeError, InputError, BadMessage, ValueError) as error:
            return "400 Bad Request", "text/plain", f"{error}\n".encode()
        return "200 OK", "application/json", msgspec.json.encode(effects)
    if len(words) == 3 and words[1].partition(b"?")[0] in (
        b"/clients",
        b"/subscriptions",
        b"/kick",
        b"/move",
        b"/traces",
    ):
        return operate(server, request)
    if len(words) != 3 or words[0] != b"GET":
        return "400 Bad Request", "text/plain", b"GET /metrics, /healthz or /status\n"
    match words[1].partition(b"?")[0]:
        case b"/healthz":
            if server.broker.clients.draining:
                return "503 Service Unavailable", "text/plain", b"shutting down\n"
            return "200 OK", "text/plain", b"ok\n"
        case b"/status":
            return as_json(status(server))
        case b"/metrics":
            latency, process = server.broker.clients.latency, ProcessCollector(registry=None)
            return metrics(status(server), latency, process)
        case _:
            return "404 Not Found", "text/plain", b"GET /metrics, /healthz or /status\n"


def as_json(value: Any) -> Answer:
    return "200 OK", "application/json", json.dumps(value, indent=1).encode()


def metrics(facts: dict[str, Any], latency: Latency, process: Collector) -> Answer:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(facts, latency))
    registry.register(process)
    return "200 OK", "text/plain; version=0.0.4; charset=utf-8", generate_latest(registry)


class MoveOrder(msgspec.Struct):
    publisher: str
    broker: str


class Kick(msgspec.Struct):
    client: str
    reason: str = "let go by an operator"


def operate(server: Served, request: bytes) -> tuple[str, str, bytes]:
    """What only operators may ask and tell."""
    head, _, body = request.partition(b"\r\n\r\n")
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    path, _, query = target.partition("?")
    broker, changes = server.broker, path in ("/kick", "/move")
    if method != ("POST" if changes else "GET"):
        return "405 Method Not Allowed", "text/plain", b"GET /clients, POST /kick\n"
    if (changes or broker.secret is not None) and not operators.trusted(broker, _bearer(head)):
        why = _TOKEN
        if broker.secret is None:
            why = b'a network without a secret takes no orders; set secret = "FILE"\n'
        return "403 Forbidden", "text/plain", why
    if path == "/clients":
        return "200 OK", "application/json", json.dumps(operators.clients(broker, query)).encode()
    if path == "/subscriptions":
        rows = operators.subscriptions(broker, query)
        return "200 OK", "application/json", json.dumps(rows).encode()
    if path == "/traces":
        files = None if server.traces is None else server.traces.files
        content = operators.traces(files, query)
        if content is None:
            return "404 Not Found", "text/plain", b"no such trace file\n"
        return "200 OK", "application/octet-stream", content
    try:
        if path == "/move":
            order = msgspec.json.decode(body[:BODY_MAX], type=MoveOrder)
            there = server.network.number(order.broker)
            why_not = broker.clients.send_away(order.publisher, there, server.now())
            server.soon()
            told = {"moved": why_not is None, "why_not": why_not}
            return "200 OK", "application/json", json.dumps(told).encode()
        kick = msgspec.json.decode(body[:BODY_MAX], type=Kick)
    except (msgspec.DecodeError, InputError) as error:
        return "400 Bad Request", "text/plain", f"{error}\n".encode()
    kicked = broker.clients.kick(kick.client, kick.reason, server.now())
    server.soon()
    return "200 OK", "application/json", json.dumps({"kicked": kicked}).encode()


def _bearer(head: bytes) -> str:
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() == "authorization":
            return value.strip().removeprefix("Bearer ")
    return ""


class Question(msgspec.Struct):
    """A publication of a client of this broker, or a message from another broker, in base64."""

    publisher: str = ""
    attributes: dict[str, str | int | float | bool] = {}
    message: str = ""
    sender: str = ""


def would(broker: Broker, body: bytes) -> dict[str, Any]:
    """What the broker would send and deliver."""
    asked = msgspec.json.decode(body, type=Question)
    router, names, now = broker.router, broker.network.names, broker.now
    if not router.stateless and router.table_entries() > COPY_MAX:
        raise InputError(
            f"{router.table_entries():,} entries would have to be copied",
            remedy=f"ask where there are at most {COPY_MAX:,}, or use traces",
        )
    input: Publish | Received
    if asked.message:
        sender = broker.network.number(asked.sender)
        input = Received(broker.codec.decode(base64.b64decode(asked.message)), sender)
    else:
        input = Publish(Publication(asked.publisher, "dry-run", asked.attributes, b"\x30", now))
    effects, holds = router.would(input, now)
    sends = [effect for effect in effects if isinstance(effect, Send) and effect.message.carries]
    deliveries = [effect for effect in effects if isinstance(effect, Deliver)]
    return {
        "sends": [
            {
                "peer": names[send.peer],
                "kind": send.message.kind,
                "up": send.peer not in broker.peers or broker.peers[send.peer].link.up,
                "message": base64.b64encode(broker.codec.encode(send.message)).decode(),
            }
            for send in sends
        ],
        "deliveries": [broker.clients.would_deliver(each) for each in deliveries],
        "holds": holds,
        "notes": [
            *(effect.text for effect in effects if isinstance(effect, Note)),
            *_unannounced(broker, input),
        ],
    }


def _unannounced(broker: Broker, input: Publish | Received) -> list[str]:
    """A warning, where a publisher would be announced before its publication is routed."""
    if isinstance(input, Received) or not broker.network.row.advertisements:
        return []
    known = broker.clients.moves.advertisements()
    if any(matches(one.filter, input.publication.attributes) for one in known):
        return []
    return ["nobody here publishes this yet: a publisher would be announced first"]


def status(server: Served) -> dict[str, Any]:
    """What a broker can tell of itself, as plain values."""
    broker = server.broker
    clients, names = broker.clients, server.network.names
    return {
        **({} if broker.repair is None else {"tree": broker.repair.status()}),
        **({} if server.traces is None else {"traces": server.traces.status()}),
        "network": server.network.name,
        "broker": broker.name,
        "pid": os.getpid(),
        "cpu_s": round(time.process_time(), 3),
        "scheme": server.network.scheme,
        "uptime_s": (server.now() - server.started_us) / 1e6,
        "connections": len(clients.connections),
        "sessions": len(clients.sessions),
        "subscriptions": len(clients.holders),
        "retained": len(broker.retained) - len(broker.removed) - len(broker.absent),
        "table_entries": broker.router.table_entries(),
        "groups": len(broker.shares.groups),
        "waiting": sum(len(session.waiting) for session in clients.sessions.values()),
        "in_flight": sum(session.in_flight for session in clients.sessions.values()),
        "held_bytes": clients.room.bytes,
        "bytes_received": clients.tally.bytes_received,
        "bytes_sent": clients.tally.bytes_sent,
        "moves": clients.moves.count,
        "lag_us": server.lag_us,
        "published": clients.tally.published,
        "delivered": clients.tally.delivered,
        "dropped": clients.tally.dropped,
        "refused": clients.tally.refused + broker.refused_wires,
        "slowed": clients.slowed,
        "notes": broker.notes,
        "congested": broker.congested,
        "draining": clients.draining,
        "reloads": server.reloads,
        "reload_error": server.reload_error,
        "links": {
            names[peer]: {
                "connected": neighbour.wire is not None,
                "up": neighbour.link.up,
                "neighbour": neighbour.lasting,
                "in_tree": neighbour.link.neighbour,
                "version": neighbour.version,
                "queued": len(neighbour.link.queue),
                "resent": neighbour.link.resent,
                "dropped": neighbour.link.dropped,
                "cuts": neighbour.link.cuts,
                "refused": neighbour.refused,
                "sent": neighbour.sent,
                "received": neighbour.received,
            }
            for peer, neighbour in sorted(broker.peers.items())
        },
    }


_FACTS = {"received_bytes": "bytes_received", "sent_bytes": "bytes_sent"}  # metric, and fact


class _Metrics(Collector):
    def __init__(self, facts: dict[str, Any], latency: Latency) -> None:
        self.facts, self.latency = facts, latency

    def collect(self) -> Iterator[Metric]:
        facts = self.facts
        for name, text in (
            ("connections", "Client connections"),
            ("sessions", "Client sessions, those of absent clients included"),
            ("subscriptions", "Subscriptions of this broker's clients"),
            ("retained", "Retained publications"),
            ("table_entries", "Entries in the routing table"),
            ("groups", "Shared subscriptions of the network"),
            ("waiting", "Publications that wait for clients"),
            ("in_flight", "Publications sent to clients and not acknowledged"),
            ("held_bytes", "Bytes of what waits and is in flight"),
        ):
            yield GaugeMetricFamily(f"postroad_{name}", text, value=facts[name])
        yield GaugeMetricFamily(
            "postroad_uptime_seconds", "Since the broker started", value=facts["uptime_s"]
        )
        yield GaugeMetricFamily(
            "postroad_loop_lag_seconds",
            "How late the broker did what was due, at worst within the last second or so",
            value=facts["lag_us"] / 1e6,
        )
        buckets, sum_s = self.latency.cumulated()
        yield HistogramMetricFamily(
            "postroad_delivery_latency_seconds",
            "From PUBLISH to delivery, by the clocks of both brokers; one publication in 16",
            buckets=buckets,
            sum_value=sum_s,
        )
        for name, text in (
            ("received_bytes", "Bytes that clients sent"),
            ("sent_bytes", "Bytes written to clients"),
            ("moves", "Publishers sent to another broker"),
            ("published", "Publications of this broker's clients"),
            ("delivered", "Publications handed to this broker's clients"),
            ("dropped", "Publications dropped because a client was slow or its queue full"),
            ("refused", "Connections closed because of what they sent"),
            ("slowed", "Times that a client had sent more than it may and was read later"),
        ):
            value = facts[_FACTS.get(name, name)]
            yield CounterMetricFamily(f"postroad_{name}", text, value=value)
        if "tree" in facts:
            tree = facts["tree"]
            yield GaugeMetricFamily(
                "postroad_outbox", "Publications not known to be safe yet", value=tree["outbox"]
            )
            yield CounterMetricFamily(
                "postroad_tree_changes", "Trees taken up since the start", value=tree["changes"]
            )
        if "traces" in facts:
            yield CounterMetricFamily(
                "postroad_traces_lost", "Trace rows not written", value=facts["traces"]["lost"]
            )
        up = GaugeMetricFamily("postroad_link_connected", "1 if connected", labels=["peer"])
        queued = GaugeMetricFamily(
            "postroad_link_queued", "Messages not acknowledged by the peer", labels=["peer"]
        )
        messages = CounterMetricFamily(
            "postroad_link_messages", "Messages over a link", labels=["peer", "direction", "kind"]
        )
        lost = CounterMetricFamily(
            "postroad_link_dropped", "Messages lost with a peer that was given up", labels=["peer"]
        )
        for peer, link in facts["links"].items():
            up.add_metric([peer], link["connected"])
            queued.add_metric([peer], link["queued"])
            lost.add_metric([peer], link["dropped"])
            for direction in ("sent", "received"):
                for kind, count in sorted(link[direction].items()):
                    messages.add_metric([peer, direction, kind], count)
        yield from (up, queued, messages, lost)
