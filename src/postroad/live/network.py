"""The network file: which brokers there are, where they listen, how they are joined.

name = "example"
scheme = "subscription_forwarding"
links = [["A", "B"], ["B", "C"]]  # a tree, or more where the scheme is durable: then a tree of
                                  # them carries the traffic and the others stand by; a ring
                                  # scheme plans its own links over a tree
users = "users.json"              # see users.py; everyone else is refused
secret = "network.secret"         # a file that `postroad network secret` makes: brokers prove to
                                  # each other that they know it; users need this or tls
store = "store"                   # a folder: sessions, links and routes survive restarts
traces = "traces"                 # a folder for trace files, or a table as below
removed = ["C"]                   # brokers that have left; `postroad network remove` writes this
# relocation = "grape"            # or "pop": publishers move; its own keys in [grape], [pop]
# tls = "certs"                   # a folder of certificates, see certificates.py
# plan = "ring.json"              # instead of links: what `postroad plan swico` or `kyra` wrote;
                                  # links are of brokers that have joined its ring since

[parameters]                      # the scheme's own
covering = true

[limits]                          # see Limits
session_queue = 10000

[brokers.A]
host = "127.0.0.1"                # where it listens and others reach it
mqtt = 1883                       # for clients
link = 7001                       # for other brokers
http = 9001                       # metrics, health and status
http_host = "127.0.0.1"           # where those are; elsewhere than on loopback it needs a secret,
                                  # and only metrics and health are open
workers = 2                       # processes that share its clients; for the schemes that may
                                  # have a store, see workers.py

[brokers.B]
mqtt = 1884
link = 7002
http = 9002

[brokers.C]
mqtt = 1885
link = 7003
http = 9003
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from postroad import relocation
from postroad.errors import InputError, choice_of
from postroad.model import BrokerId
from postroad.overlay import Overlay, from_links
from postroad.routing import SCHEMES, Scheme
from postroad.routing.base import Interests, Plan
from postroad.settings import toml
from postroad.settings.sections import Section, key_lines
from postroad.traces.schema import Recording

DURABLE = tuple(name for name, scheme in SCHEMES.items() if scheme.durable)
LOOPBACK = "127.0.0.1"
LATENCY_US = 1000  # what plans assume of a link that the file does not describe
WORKERS_MAX = 64
NEW_MAX = 1_000  # brokers that a newer file may have more


@dataclass(frozen=True)
class Address:
    host: str
    mqtt: int
    link: int
    http: int
    http_host: str = LOOPBACK

    @property
    def url(self) -> str:
        """Where its metrics and status are."""
        return f"http://{self.http_host}:{self.http}"


@dataclass(frozen=True)
class Limits:
    packet_bytes: int = 1 << 20
    session_queue: int = 1_000  # publications kept for a subscriber that is away or slow,
    session_inflight: int = 1_000  # sent and not acknowledged, whatever the client would take,
    session_bytes: int = 16 << 20  # and their bytes together
    sessions_bytes: int = 1 << 30  # of all sessions of a broker
    session_expiry_s: int = 7 * 24 * 3600
    session_wait_s: int = 5  # for the broker that has a client's session, before it is left behind
    keep_alive_s: int = 0  # the longest that a client of MQTT 5 may have; 0 for any
    connections_per_address: int = 10_000
    connects_per_s: int = 0  # new connections an address may make in a second; 0 for any number
    bytes_per_s: int = 0  # that a client may send, a second's worth at once; 0 for any number
    subscriptions_per_client: int = 10_000
    sessions: int = 100_000  # of a broker, those of absent clients included
    retained: int = 100_000  # topics of the network that have a retained publication,
    retained_bytes: int = 1 << 30  # and their bytes; as many topics are remembered as removed
    drain_s: int = 5  # so long a broker that is told to stop may take to pass on what it has

    def share(self, workers: int) -> Limits:
        """What each of so many workers may have of what is the broker's."""
        return dataclasses.replace(
            self,
            sessions=-(-self.sessions // workers),
            sessions_bytes=-(-self.sessions_bytes // workers),
        )


@dataclass(frozen=True)
class Network:
    name: str
    scheme: str
    config: Any
    seed: int
    overlay: Overlay
    addresses: tuple[Address, ...]
    limits: Limits
    relocation: str | None
    relocation_config: Any
    traces: Recording | None
    tls: Path | None
    users: Path | None
    secret: Path | None
    store: Path | None
    path: Path
    planned: str  # the hash of the plan's file; empty without one
    plan_file: str | None
    removed: frozenset[BrokerId]
    redundant: bool  # whether there are, or were, more links than a tree has
    workers: tuple[int, ...]  # how many processes each broker has
    hubs: tuple[BrokerId, ...]  # by broker itself; by worker the first of its broker's

    def expanded(self) -> Network:
        """The network with every worker as a broker of its own, as the brokers themselves see it.

        The first worker has its broker's name and links; the others, `A~2` and so on, are each
        joined to the first. They follow it at once, so that a broker which is added comes last.
        """
        if all(count == 1 for count in self.workers):
            return self
        names: list[str] = []
        hubs: list[BrokerId] = []
        for name, count in zip(self.names, self.workers, strict=True):
            hubs += [len(names)] * count
            names += [name, *(f"{name}~{n}" for n in range(2, count + 1))]
        place = [n for n, hub in enumerate(hubs) if n == hub]
        removed = frozenset(n for n, hub in enumerate(hubs) if place.index(hub) in self.removed)
        pairs = [(place[a], place[b]) for a, b in self.overlay.ends.tolist()]
        pairs += [(hub, n) for n, hub in enumerate(hubs) if n != hub and n not in removed]
        ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        delays = np.full(len(ends), LATENCY_US, dtype=np.int64)
        return dataclasses.replace(
            self,
            overlay=Overlay(tuple(names), ends, delays),
            addresses=tuple(self.addresses[place.index(hub)] for hub in hubs),
            removed=removed,
            workers=(1,) * len(names),
            hubs=tuple(hubs),
        )

    def url(self, number: BrokerId) -> str:
        """Where a broker, or one of several workers, answers operators."""
        same = self.of_same_broker(number)
        path = "" if len(same) == 1 else f"/workers/{same.index(number) + 1}"
        return f"{self.addresses[number].url}{path}"

    def of_same_broker(self, number: BrokerId) -> list[BrokerId]:
        """All workers of the broker that this one is of."""
        return [n for n, hub in enumerate(self.hubs) if hub == self.hubs[number]]

    @property
    def row(self) -> Scheme:
        """The scheme, with what it can do under its parameters."""
        return SCHEMES[self.scheme].of(self.config)

    @property
    def grows(self) -> bool:
        """Whether brokers may come and go."""
        return self.row.grows(self.config) and self.relocation is None

    @property
    def members(self) -> list[BrokerId]:
        return [broker for broker in range(len(self.names)) if broker not in self.removed]

    def has(self, broker: BrokerId) -> bool:
        """Whether a broker is a member, or may be one of a newer file: others have it already and
        tell of what has moved there, and what is not listened to now is not said again."""
        count = len(self.names)
        return broker in self.members if broker < count else broker < count + NEW_MAX

    @property
    def revision(self) -> int:
        """Grows with each broker that is added or removed."""
        return len(self.names) + len(self.removed)

    @property
    def member_names(self) -> list[str]:
        return [self.names[broker] for broker in self.members]

    @property
    def pairs(self) -> list[tuple[BrokerId, BrokerId]]:
        return [(min(a, b), max(a, b)) for a, b in self.overlay.ends.tolist()]

    @property
    def names(self) -> tuple[str, ...]:
        return self.overlay.names

    def number(self, name: str) -> BrokerId:
        if name not in self.member_names:
            raise InputError(
                f"no broker {name!r}",
                where=str(self.path),
                remedy=choice_of(name, self.member_names),
            )
        return self.names.index(name)

    def plan(self) -> Plan:
        if self.relocation is not None:
            return relocation.plan(
                self.relocation, self.relocation_config, self.scheme, self.overlay, self.config,
                self.seed,
            )  # fmt: skip
        return SCHEMES[self.scheme].plan(self.overlay, Interests(), self.config, self.seed)

    @property
    def identity(self) -> str:
        """What two brokers must agree on to be of one network: its name and how it routes.

        Of parameters only what differs from the default, so that a later version may add some.
        """
        settings = json.dumps(
            [self.scheme, self.seed, _said(self.config), self.names,
             self.overlay.ends.tolist(), self.relocation, _said(self.relocation_config),
             self.store is not None, self.planned, *sorted(self.removed)]
        )  # fmt: skip
        return f"{self.name}#{hashlib.sha256(settings.encode()).hexdigest()[:12]}"

    def description(self) -> dict[str, Any]:
        """All that a replay has to know of it."""
        names = self.names
        return {
            "name": self.name,
            "scheme": self.scheme,
            "parameters": {} if self.config is None else dataclasses.asdict(self.config),
            "relocation": self.relocation,
            "relocation_parameters": (
                {} if self.relocation_config is None else dataclasses.asdict(self.relocation_config)
            ),
            "seed": self.seed,
            "brokers": self.member_names,
            "links": [[names[a], names[b]] for a, b in self.pairs],
            "assumed_us": LATENCY_US,  # of every link, by a planner that is not told
            "plan": self.plan_file,
            "redundant": self.redundant,
        }

    @property
    def lineage(self) -> tuple[str, ...]:
        """What stays the same when brokers come and go, then all brokers there have been."""
        settings = json.dumps([self.scheme, self.seed, _said(self.config), self.redundant])
        return f"{self.name}#{hashlib.sha256(settings.encode()).hexdigest()[:12]}", *self.names


def _said(config: Any) -> dict[str, Any]:
    """The parameters that are not left at their defaults."""
    if config is None:
        return {}
    values = dataclasses.asdict(config)
    return {
        f.name: values[f.name]
        for f in dataclasses.fields(config)
        if getattr(config, f.name) != f.default
    }


def load(path: Path) -> Network:
    """Read a network file; a wrong one is refused with the line and the key."""
    text = toml.read_text(path)
    values = toml.parse(text, str(path))
    return from_values(values, path, key_lines(text))


# The keys of a network file, beside the table of its relocation.
KEYS = (
    "name", "scheme", "seed", "links", "plan", "parameters", "relocation", "users", "secret", "tls",
    "store", "traces", "removed", "limits", "brokers",
)  # fmt: skip


def from_values(values: Mapping[str, Any], path: Path, lines: Mapping[str, int]) -> Network:
    """The network of a file that has been read."""
    top = Section(values, str(path), lines=lines)
    name = top.take("name", str)
    scheme = top.choice("scheme", list(SCHEMES))
    seed = top.take("seed", int, 0)
    config = top.section("parameters").configure(SCHEMES[scheme].config)
    limits: Limits = top.section("limits").configure(Limits)
    moving: str | None = None
    moving_config: Any = None
    if "relocation" in top.values:
        moving = top.choice("relocation", list(relocation.RELOCATIONS))
        moving_config = top.section(moving).configure(relocation.RELOCATIONS[moving].config)
        try:
            relocation.check(moving, scheme, config)
        except InputError as error:
            raise error.at(f"{path}:{lines.get('relocation', 1)}") from None
    tls, users, secret, store = (
        _path(top, key, path) for key in ("tls", "users", "secret", "store")
    )
    traces = _recording(top, path)
    # Whether there may be a store, and whether brokers may come and go and links close cycles.
    durable = SCHEMES[scheme].of(config).durable and moving is None
    grows = SCHEMES[scheme].grows(config) and moving is None
    if store is not None and not durable:
        remedy = f"leave it out, or choose one of {', '.join(DURABLE)} without relocation"
        raise top.wrong("store", str(store.name), remedy)
    addresses, workers = _addresses(top, secret is not None, durable)
    removed = top.take("removed", list, [])
    for broker in removed:
        if broker not in addresses or not grows:
            raise top.wrong("removed", removed, "leave it to: postroad network remove")
    all_links = top.values.get("links", [])
    plan = _path(top, "plan", path)
    overlay = _overlay(top, list(addresses), removed, scheme, grows, plan, path, lines)
    top.done()
    return Network(
        name=name,
        scheme=scheme,
        config=config,
        seed=seed,
        overlay=overlay,
        addresses=tuple(addresses[broker] for broker in overlay.names),
        limits=limits,
        relocation=moving,
        relocation_config=moving_config,
        traces=traces,
        tls=tls,
        users=users,
        secret=secret,
        store=store,
        path=path,
        planned="" if plan is None else hashlib.sha256(plan.read_bytes()).hexdigest(),
        plan_file=None if plan is None else str(plan),
        removed=frozenset(overlay.names.index(broker) for broker in removed),
        redundant=durable and len(all_links) >= len(overlay.names),
        workers=tuple(workers[broker] for broker in overlay.names),
        hubs=tuple(range(len(overlay.names))),
    )


def _path(top: Section, key: str, path: Path) -> Path | None:
    """A file or folder that the network file names, beside it."""
    name: str | None = top.take(key, str, None)
    return None if name is None else path.parent / name


def _recording(top: Section, path: Path) -> Recording | None:
    """`traces = "folder"`, or a table with more to say."""
    if isinstance(top.values.get("traces"), Mapping):
        recording: Recording = top.section("traces").configure(Recording)
    else:
        folder: str | None = top.take("traces", str, None)
        if folder is None:
            return None
        recording = Recording(folder)
    return dataclasses.replace(recording, folder=str(path.parent / recording.folder))


def _addresses(
    top: Section, guarded: bool, durable: bool
) -> tuple[dict[str, Address], dict[str, int]]:
    """Where each broker is, and how many workers it has."""
    section = top.section("brokers")
    workers: dict[str, int] = {}
    taken: dict[tuple[str, int], str] = {}
    addresses: dict[str, Address] = {}
    for name in list(section.values):
        if not name or "/" in name:
            raise section.wrong(name, name, "name a broker without / in its name")
        broker = section.section(name)
        host = broker.take("host", str, LOOPBACK)
        http_host = broker.take("http_host", str, LOOPBACK)
        if http_host != LOOPBACK and not guarded:
            raise broker.wrong("http_host", http_host, "give the network a secret, or leave it out")
        ports: dict[str, int] = {}
        for key in ("mqtt", "link", "http"):
            port = ports[key] = broker.take(key, int, least=1)
            where = (http_host if key == "http" else host, port)
            if port > 65535:
                raise broker.wrong(key, port, "give a port of at most 65535")
            if where in taken:
                raise broker.wrong(key, port, f"choose another: {taken[where]} has it")
            taken[where] = f"brokers.{name}.{key}"
        workers[name] = broker.take("workers", int, 1, least=1)
        if workers[name] > WORKERS_MAX:
            raise broker.wrong("workers", workers[name], f"give at most {WORKERS_MAX}")
        if workers[name] > 1 and not durable:
            remedy = f"leave it out, or choose one of {', '.join(DURABLE)} without relocation"
            raise broker.wrong("workers", workers[name], remedy)
        broker.done()
        addresses[name] = Address(host, **ports, http_host=http_host)
    for name in addresses:
        first, tilde, number = name.rpartition("~")
        if tilde and number.isdecimal() and 1 < int(number) <= workers.get(first, 1):
            raise section.wrong(name, name, f"choose another name: a worker of {first!r} has it")
    if not addresses:
        raise top.wrong("brokers", {}, "add a table [brokers.NAME] for each broker")
    return addresses, workers


def _overlay(
    top: Section,
    names: list[str],
    removed: list[str],
    scheme: str,
    grows: bool,
    plan: Path | None,
    path: Path,
    lines: Mapping[str, int],
) -> Overlay:
    pairs = top.take("links", list, [])
    planned: Overlay | None = None
    if plan is not None:
        read_plan = SCHEMES[scheme].read_plan
        if read_plan is None:
            raise top.wrong("plan", plan.name, f"leave it out: {scheme} runs on a tree of links")
        if pairs and not grows:
            raise top.wrong("links", pairs, "leave them out: the plan has the links")
        planned = read_plan(plan, LATENCY_US)
        if not grows and sorted(planned.names) != sorted(names):
            raise top.wrong("plan", plan.name, "let brokers and plan name the same brokers")
        if not grows:
            return planned
        missing = [name for name in planned.names if name not in names]
        if missing:
            raise top.wrong("plan", plan.name, f"give broker {missing[0]!r} an address")
        # Those that have joined since are linked by the file, and numbered after the planned.
        between = [[planned.names[a], planned.names[b]] for a, b in planned.ends.tolist()]
        names = [*planned.names, *(name for name in names if name not in planned.names)]
        pairs = between + pairs
    where = f"{path}:{lines['links']}" if "links" in lines else str(path)
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2):
            raise top.wrong("links", pair, "give pairs of brokers")
        for name in pair:
            if name not in names:
                raise top.wrong("links", pair, f"choose from the brokers {', '.join(names)}")
    number = {name: broker for broker, name in enumerate(names)}
    if grows:
        pairs = [pair for pair in pairs if not {*pair} & {*removed}]
        _check_joined(top, [name for name in names if name not in removed], pairs)
    elif len(names) > 1:
        remedy = (
            f"give the links of a tree, or choose a scheme that takes more: {', '.join(DURABLE)}"
        )
        overlay = from_links([(a, b, LATENCY_US) for a, b in pairs], where, remedy)
        if len(overlay.names) != len(names):
            stray = next(name for name in names if name not in overlay.names)
            raise top.wrong("links", pairs, f"join broker {stray!r} to the others")
    ends = np.array([(number[a], number[b]) for a, b in pairs], dtype=np.int64).reshape(-1, 2)
    latency_us = np.full(len(ends), LATENCY_US, dtype=np.int64)
    if planned is None:
        return Overlay(tuple(names), ends, latency_us)
    return dataclasses.replace(planned, names=tuple(names), ends=ends, latency_us=latency_us)


def _check_joined(top: Section, names: list[str], pairs: list[list[str]]) -> None:
    """Links may close cycles here, but each joins two brokers once, and together they join all."""
    if not names:
        raise top.wrong("removed", names, "leave a broker in the network")
    known: set[frozenset[str]] = set()
    for pair in pairs:
        if len(set(pair)) == 1 or frozenset(pair) in known:
            raise top.wrong("links", pair, "join two different brokers, each pair once")
        known.add(frozenset(pair))
    joined = {names[0]}
    while more := {name for pair in known if pair & joined for name in pair - joined}:
        joined |= more
    for name in names:
        if name not in joined:
            raise top.wrong("links", pairs, f"join broker {name!r} to {names[0]!r}")
