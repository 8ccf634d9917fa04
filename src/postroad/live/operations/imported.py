"""Networks of Mosquitto brokers or NATS servers as a start for a network file.

Each file is a broker. Bridges, leaf nodes, routes and gateways become links; ports, a few limits
and persistence are taken over. All brokers are on this machine, so that the file runs as it is. The
rest of what the files say is listed with what to do about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tomlkit

from postroad.errors import InputError
from postroad.live.network import LOOPBACK, load
from postroad.settings import toml

MQTT = 1883
LEAF = 7422
ROUTE = 6222
GATEWAY = 7222
_ANYWHERE = ("", "0.0.0.0", "::", "*")
_HERE = (LOOPBACK, "localhost", "::1")
_GENERIC = ("mosquitto", "nats", "nats-server", "server", "broker")
_LIMITS = {
    "max_packet_size": "packet_bytes",
    "message_size_limit": "packet_bytes",
    "max_payload": "packet_bytes",
    "max_queued_messages": "session_queue",
    "max_inflight_messages": "session_inflight",
    "max_keepalive": "keep_alive_s",
}
_USERS = "add users with: postroad users add, and set users in the network file"
_TLS = "put certificates in a folder and set tls in the network file"
_SECRET = "brokers know each other by a secret: postroad network secret"
_REMEDIES = {
    "topic": "links carry what somebody behind them subscribes to; bound it by users' rights",
    "password_file": _USERS,
    "acl_file": _USERS,
    "allow_anonymous": _USERS,
    "authorization": _USERS,
    "accounts": _USERS,
    "operator": _USERS,
    "remote_username": _SECRET,
    "remote_password": _SECRET,
    "username": _SECRET,
    "password": _SECRET,
    "cafile": _TLS,
    "capath": _TLS,
    "certfile": _TLS,
    "keyfile": _TLS,
    "bridge_cafile": _TLS,
    "bridge_certfile": _TLS,
    "bridge_keyfile": _TLS,
    "tls": _TLS,
    "include_dir": "give what it names as part of this file",
    "include": "give what it names as part of this file",
}


@dataclass
class Configured:
    """One broker, as its file has it."""

    name: str
    where: str
    host: str = ""  # empty: it does not say
    mqtt: int | None = None
    listens: set[int] = field(default_factory=set)  # ports at which others may bridge to it
    peers: list[tuple[str, int]] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)
    keeps: bool = False
    left_out: list[str] = field(default_factory=list)

    def skip(self, what: str, line: int | None, key: str, remedy: str = "") -> None:
        """List what is not taken over."""
        place = self.where if line is None else f"{self.where}:{line}"
        remedy = remedy or _REMEDIES.get(key, "")
        self.left_out.append(f"{place}: {what}" + (f" ({remedy})" if remedy else ""))


@dataclass(frozen=True)
class Imported:
    """A network file that was written, and what is not in it."""

    path: Path
    brokers: Sequence[str]
    links: Sequence[tuple[str, str]]
    left_out: Sequence[str]


def write(files: Sequence[Path], out: Path, name: str, port: int) -> Imported:
    """A network file from configurations; ports that they lack count on from `port`."""
    members = [_member(path) for path in files]
    names = [member.name for member in members]
    for member in members:
        if names.count(member.name) > 1:
            raise InputError(
                f"two brokers are called {member.name!r}",
                where=member.where,
                remedy="name the files, or their folders, after their brokers",
            )
    known = list(members)
    links: dict[frozenset[str], tuple[str, str]] = {}
    for member in members:
        for host, at in member.peers:
            peer = _peer(known, host, at)
            if peer is None:
                peer = Configured(f"{host}" if at == MQTT else f"{host}-{at}", member.where, host)
                remedy = "give it too, or check what is written of this broker"
                peer.skip(f"no file for {host}:{at}", None, "", remedy)
                known.append(peer)
            if host not in _HERE:
                peer.host = peer.host or host
            if peer is not member:
                links.setdefault(frozenset((member.name, peer.name)), (member.name, peer.name))
    limits: dict[str, int] = {}
    for member in known:
        for key, value in member.limits.items():
            limits[key] = max(value, limits.get(key, 0))
    _check_joined(known, list(links.values()))
    top = tomlkit.document()
    top.add(tomlkit.comment(f"From {', '.join(str(path) for path in files)}."))
    top["name"] = name
    top["scheme"] = "subscription_forwarding"
    pairs = tomlkit.array()
    for link in links.values():
        pairs.append(list(link))
    top["links"] = pairs.multiline(True)
    if any(member.keeps for member in known):
        top["store"] = f"{out.stem}.store"
    if limits:
        top["limits"] = limits
    brokers = tomlkit.table(is_super_table=True)
    wanted = [member.mqtt for member in known]
    taken: set[int] = set()

    def free() -> int:
        nonlocal port
        while port in taken or port in wanted:
            port += 1
        taken.add(port)
        return port

    for member in known:
        mqtt = member.mqtt
        if mqtt is None or mqtt in taken:
            mqtt = free()
            if member.mqtt is not None:
                member.skip(
                    f"port {member.mqtt}: {mqtt} here, since another broker has it", None, ""
                )
        taken.add(mqtt)
        if member.host not in (*_ANYWHERE, *_HERE):
            remedy = f"set brokers.{member.name}.host to run it on its own machine"
            member.skip(f"host {member.host} of {member.name}", None, "", remedy)
        brokers[member.name] = {"mqtt": mqtt, "link": free(), "http": free()}
    top["brokers"] = brokers
    out.write_text(tomlkit.dumps(top), encoding="utf-8")
    try:
        load(out)
    except InputError:
        out.unlink()
        raise
    left_out = [text for member in known for text in member.left_out]
    return Imported(out, [member.name for member in known], list(links.values()), left_out)


def _check_joined(members: Sequence[Configured], links: Sequence[tuple[str, str]]) -> None:
    joined = {members[0].name}
    while more := {name for link in links if {*link} & joined for name in {*link} - joined}:
        joined |= more
    for member in members:
        if member.name not in joined:
            raise InputError(
                f"nothing joins {member.name!r} to {members[0].name!r}",
                where=member.where,
                remedy="give the files of all brokers, or add the bridge between them",
            )


def _peer(members: Sequence[Configured], host: str, port: int) -> Configured | None:
    """Who is meant by an address: a broker of that name or host, or one at that port here."""
    for member in members:
        if host.lower() in (member.name.lower(), member.host.lower()):
            if host not in _HERE:
                return member
        elif host.lower().partition(".")[0] == member.name.lower():
            return member
    if host not in _HERE:
        return None
    return next((one for one in members if port in one.listens or port == one.mqtt), None)


def _member(path: Path) -> Configured:
    text = toml.read_text(path)
    stem = path.name.partition(".")[0]
    name = path.absolute().parent.name if stem in _GENERIC and path.parent.name else stem
    member = Configured(name, str(path))
    bare = re.sub(r"(#|//).*", "", text)
    read: Callable[[str, Configured], None] = _mosquitto
    if re.search(r"[{]|^\s*\w+\s*[:=]", bare, re.MULTILINE):
        read = _nats
    read(text, member)
    return member


def _mosquitto(text: str, member: Configured) -> None:
    """Lines `key value`; `listener` and `connection` begin sections that last until the next."""
    bridge = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        key, _, value = line.partition(" ")
        value = value.strip()
        words = value.split()
        if key in ("listener", "port") and words and words[0].isdecimal():
            port = int(words[0])
            member.listens.add(port)
            bridge = ""
            if member.mqtt is not None:
                member.skip(line, number, key, "a broker has one port for MQTT and WebSocket")
                continue
            member.mqtt = port
            member.host = words[1] if len(words) > 1 else member.host
        elif key == "bind_address":
            member.host = value
        elif key == "connection":
            bridge = value
        elif key in ("address", "addresses") and bridge and words:
            for place, word in enumerate(words):
                if place:
                    member.skip(f"{key} {word}", number, key, "a bridge becomes one link")
                else:
                    member.peers.append(_address(word, MQTT))
        elif key == "persistence":
            member.keeps = value == "true"
        elif key in _LIMITS and value.isdecimal():
            if int(value):
                member.limits[_LIMITS[key]] = int(value)
        elif key not in ("protocol", "persistence_location", "persistence_file"):
            member.skip(f"{line}, of bridge {bridge}" if bridge else line, number, key)
    if member.mqtt is None:
        member.mqtt = MQTT
        member.listens.add(MQTT)


def _address(text: str, port: int) -> tuple[str, int]:
    """`host`, `host:port` or a URL."""
    parts = urlsplit(text if "://" in text else f"//{text}")
    return parts.hostname or text, parts.port or port


def _nats(text: str, member: Configured) -> None:
    top = _Nats(text, member.where).read()
    member.name = str(top.pop("server_name", member.name))
    member.host = str(top.pop("host", top.pop("net", "")))
    listen = top.pop("listen", None)
    if isinstance(listen, str) and ":" in listen:
        member.host = listen.rpartition(":")[0] or member.host
    top.pop("port", None)
    inner = top.pop("mqtt", None)
    if isinstance(inner, Mapping):
        member.mqtt = int(inner.get("port", MQTT))
    else:
        member.skip(
            "no mqtt block", None, "mqtt", "MQTT clients get a port; NATS clients have none"
        )
    for key, aliases, port in (
        ("leafnodes", ("leafnodes", "leaf"), LEAF),
        ("cluster", ("cluster",), ROUTE),
        ("gateway", ("gateway",), GATEWAY),
    ):
        for alias in aliases:
            block = top.pop(alias, None)
            if isinstance(block, Mapping):
                _nats_links(dict(block), key, port, member)
    if top.pop("jetstream", None):
        member.keeps = True
    for key, value in top.items():
        if key in _LIMITS and isinstance(value, int):
            member.limits[_LIMITS[key]] = value
        else:
            member.skip(key, None, key)


def _nats_links(block: dict[str, Any], key: str, port: int, member: Configured) -> None:
    listen = block.pop("listen", None)
    own = block.pop("port", None) or (str(listen).rpartition(":")[2] if listen else None)
    if own is not None and str(own).isdecimal():
        member.listens.add(int(own))
    block.pop("host", None)
    block.pop("name", None)
    remotes: list[Any] = []
    for name in ("remotes", "routes", "gateways"):
        value = block.pop(name, [])
        remotes += value if isinstance(value, list) else [value]
    for remote in remotes:
        if isinstance(remote, Mapping):
            urls = remote.get("urls", remote.get("url", []))
            for inner in remote:
                if inner not in ("url", "urls", "name"):
                    member.skip(f"{key}.{inner}", None, inner)
        else:
            urls = remote
        urls = urls if isinstance(urls, list) else [urls]
        for place, url in enumerate(urls):
            host, at = _address(str(url), port)
            if "@" in str(url):
                member.skip(f"{key}: the password for {host}:{at}", None, "password")
            if place:
                member.skip(f"{key}: {host}:{at}", None, key, "a remote becomes one link")
            elif not (at in member.listens and host in (*_HERE, member.host)):
                member.peers.append((host, at))
    for inner in block:
        member.skip(f"{key}.{inner}", None, inner)


class _Nats:
    """The NATS configuration language: maps, arrays and scalars, `:` or `=` or nothing between."""

    TOKEN = re.compile(
        r"""\s+|(?:\#|//)[^\n]*|(?P<mark>[{}\[\],;])|(?P<quoted>"(?:[^"\\]|\\.)*"|'[^']*')"""
        r"""|(?P<between>[:=](?=\s|["'{\[\w$]))|(?P<bare>[^\s{}\[\],;=:"'#]+(?:[:=/][^\s{}\[\],;"']*)*)""",
        re.VERBOSE,
    )

    def __init__(self, text: str, where: str) -> None:
        self.where = where
        self.tokens: list[tuple[str, str, int]] = []
        place = 0
        while place < len(text):
            match = self.TOKEN.match(text, place)
            line = text.count("\n", 0, place) + 1
            if match is None:
                raise self._wrong(text[place : place + 20].splitlines()[0], line)
            if match.lastgroup is not None:
                self.tokens.append((match.lastgroup, match[0], line))
            place = match.end()
        self.place = 0

    def read(self) -> dict[str, Any]:
        return self._map(None)

    def _map(self, end: str | None) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while True:
            kind, text, line = self._next(end)
            if text == end and kind in ("mark", "end"):
                return values
            if kind == "end":
                return values
            if text in (",", ";"):
                continue
            if kind not in ("bare", "quoted"):
                raise self._wrong(text, line)
            key, colon, rest = text.strip("\"'").partition(":")
            if kind == "bare" and not colon:
                key, colon, rest = text.partition("=")
            if kind == "bare" and colon and rest:  # `port:4222`, without a blank
                values[key] = self._scalar(rest)
                continue
            if self._peek()[0] == "between":
                self.place += 1
            values[key] = self._value()

    def _value(self) -> Any:
        kind, text, line = self._next(None)
        if text == "{" and kind == "mark":
            return self._map("}")
        if text == "[" and kind == "mark":
            items: list[Any] = []
            while True:
                kind, text, line = self._peek()
                if text == "]" and kind == "mark":
                    self.place += 1
                    return items
                if text in (",", ";") and kind == "mark":
                    self.place += 1
                    continue
                items.append(self._value())
        if kind == "quoted":
            return text[1:-1]
        if kind != "bare":
            raise self._wrong(text, line)
        return self._scalar(text)

    def _scalar(self, text: str) -> Any:
        sized = re.fullmatch(r"(-?\d+)([kKmMgG]?)[bB]?", text)
        if sized:
            return int(sized[1]) * {"": 1, "k": 1000, "m": 10**6, "g": 10**9}[sized[2].lower()]
        if text.lower() in ("true", "yes", "on", "false", "no", "off"):
            return text.lower() in ("true", "yes", "on")
        return text

    def _peek(self) -> tuple[str, str, int]:
        if self.place < len(self.tokens):
            return self.tokens[self.place]
        return "end", "", self.tokens[-1][2] if self.tokens else 1

    def _next(self, end: str | None) -> tuple[str, str, int]:
        token = self._peek()
        self.place += 1
        if token[0] == "end" and (end is not None or self.place > len(self.tokens) + 1):
            raise self._wrong("the end of the file", token[2])
        return token

    def _wrong(self, text: str, line: int) -> InputError:
        return InputError(
            f"cannot read {text!r}", where=f"{self.where}:{line}", remedy="check this line"
        )
