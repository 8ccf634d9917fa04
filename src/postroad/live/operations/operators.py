"""What operators ask a broker and tell it: its clients, what they subscribe to, its traces, to let
a client go or send it elsewhere.

Where the network has a secret all of it needs a token that is made from the secret; without one
nothing can be changed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any
from urllib.parse import parse_qs

from postroad.live.broker import Broker
from postroad.live.edge.session import Session
from postroad.live.links.secret import proves
from postroad.traces.files import Files

LIMIT = 1_000  # rows of an answer, unless more are asked for
PIECE_BYTES = 4 << 20  # of a trace file in one answer


def token(key: bytes, network: str) -> str:
    """What is sent as `Authorization: Bearer …`."""
    return hmac.digest(key, f"operator of {network}".encode(), hashlib.sha256).hex()


def trusted(broker: Broker, shown: str) -> bool:
    """Whether someone who shows this may see and change everything."""
    if broker.secret is None:
        return False
    return proves(shown.encode(), token(broker.secret, broker.network.name).encode())


def clients(broker: Broker, query: str) -> list[dict[str, Any]]:
    """The sessions whose client, user or address contains `search`, at most `limit` of them."""
    search, limit = _asked(query)
    rows: list[dict[str, Any]] = []
    for session in broker.clients.sessions.values():
        if len(rows) >= limit:
            break
        connection = session.connection
        address = "" if connection is None else connection.address
        if any(search in text for text in (session.client_id, session.username or "", address)):
            rows.append(_row(session, address))
    return rows


def _row(session: Session, address: str) -> dict[str, Any]:
    connection = session.connection
    level = None if connection is None else connection.level
    return {
        "client": session.client_id,
        "user": session.username,
        "connected": connection is not None,
        "address": address or None,
        "mqtt": None if level is None else {4: "3.1.1", 5: "5"}[level],
        "subscriptions": len(session.subscriptions),
        "waiting": len(session.waiting),
        "in_flight": session.in_flight,
        "held_bytes": session.held_bytes,
        "dropped": session.dropped,
        "session_expiry_s": session.expiry_s,
    }


def subscriptions(broker: Broker, query: str) -> list[dict[str, Any]]:
    """The subscriptions whose client, topic filter or filter contains `search`."""
    search, limit = _asked(query)
    rows: list[dict[str, Any]] = []
    for held in broker.clients.holders.values():
        if len(rows) >= limit:
            break
        texts = (held.session.client_id, held.pattern, str(held.filter))
        if any(search in text for text in texts):
            names = ("client", "topic", "filter")
            rows.append({**dict(zip(names, texts, strict=True)), "qos": held.terms.qos})
    return rows


def traces(files: Files | None, query: str) -> bytes | None:
    """The numbers and sizes of the complete trace files as JSON; or with `file`, a number, what
    that one has from `offset` on, in pieces. None where there is nothing of the kind."""
    if files is None:
        return None
    fields = parse_qs(query)
    sizes = files.complete()
    if "file" not in fields:
        return json.dumps(sorted(sizes.items())).encode()
    number, offset = (fields.get(name, ["0"])[0] for name in ("file", "offset"))
    if not (number.isdecimal() and offset.isdecimal() and int(number) in sizes):
        return None
    return files.piece(int(number), int(offset), PIECE_BYTES)


def _asked(query: str) -> tuple[str, int]:
    fields = parse_qs(query)
    limit = fields.get("limit", [""])[0]
    return fields.get("search", [""])[0], int(limit) if limit.isdecimal() else LIMIT
