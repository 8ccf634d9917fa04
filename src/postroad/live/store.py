"""What a broker keeps on disk, so that a restart is no more to its peers than a cut connection.

The state machines only note what changed (`Journal`); the driver writes a whole turn's changes in
one transaction (`Store.commit`) *before* it lets a single byte of that turn out. So whatever a
client or a peer has been told is on disk, and what was not yet told may be forgotten: the link
protocol and MQTT send it again.

Every table has the same shape: an owner (a peer's number, a client's name), a key, bytes. SQLite
in WAL mode, `synchronous = FULL`: a commit is on the disk, not only with the operating system.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from postroad.errors import RunFailed
from postroad.model import BrokerId, TimeUs

FORMAT: Final = 1
TABLES: Final = (
    "link", "queue", "told", "heard", "session", "subscription", "parcel", "recent", "retained",
    "will", "tree", "outbox", "seen", "wants", "cause", "wave",
)  # fmt: skip
QUICK: Final = "PRAGMA quick_check(1)"

Owner = str | int
Key = str | int
Row = tuple[Owner, Key, bytes]
Rows = dict[str, list[Row]]
Change = tuple[str, str, tuple[Any, ...]]  # what is done, to which table, the values

_encode = msgspec.msgpack.Encoder().encode
_SQL: Final = {
    "put": "INSERT OR REPLACE INTO {} VALUES (?, ?, ?)",
    "drop": "DELETE FROM {} WHERE owner = ? AND key = ?",
    "drop_to": "DELETE FROM {} WHERE owner = ? AND key <= ?",
    "clear": "DELETE FROM {} WHERE owner = ?",
}


class LinkRow(msgspec.Struct, array_like=True, frozen=True):
    """One end of a link: how both ends name it, and how far it has come."""

    boot: str
    lives: int
    yours: str
    up: bool
    received: int
    base: int
    safe: int = 0
    starts: int = 0  # how often it has started afresh


class CauseRow(msgspec.Struct, array_like=True, frozen=True):
    """Which messages of a neighbour went on to others, and as which: what is not safe before."""

    messages: list[tuple[int, dict[BrokerId, int]]]


class WaveRow(msgspec.Struct, array_like=True, frozen=True):
    """Another broker's wave that has been passed on and not answered yet."""

    parent: BrokerId
    awaited: list[BrokerId]


class SessionRow(msgspec.Struct, array_like=True):
    expiry_s: int
    declared: bool
    advertised: dict[str, tuple[str, str]]  # the name, then id and filter
    username: str | None = None
    settled: bool = False  # the whole network knows what it publishes


class SubscriptionRow(msgspec.Struct, array_like=True):
    id: str
    filter: str
    qos: int
    no_local: bool
    as_published: bool
    identifier: int
    within: str | None = None  # the filter that its user was kept to


class WillRow(msgspec.Struct, array_like=True):
    letter: bytes
    delay_s: int
    username: str | None


class ParcelRow(msgspec.Struct, array_like=True):
    letter: bytes
    retain: int
    identifiers: list[int]
    expires_us: TimeUs | None
    packet_id: int  # 0 if it waits


class Journal:
    """The changes of one turn, in order; pure data for the driver to write."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def put(self, table: str, owner: Owner, key: Key, value: Any) -> None:
        data = value if isinstance(value, bytes) else _encode(value)
        self.changes.append(("put", table, (owner, key, data)))

    def drop(self, table: str, owner: Owner, key: Key) -> None:
        self.changes.append(("drop", table, (owner, key)))

    def drop_to(self, table: str, owner: Owner, key: Key) -> None:
        """Drop this key and all before it."""
        self.changes.append(("drop_to", table, (owner, key)))

    def clear(self, table: str, owner: Owner) -> None:
        self.changes.append(("clear", table, (owner,)))

    def take(self) -> list[Change]:
        changes, self.changes = self.changes, []
        return changes


class Store:
    """One broker's file. Every failure is a `RunFailed` that names the file: nothing goes on."""

    def __init__(
        self, folder: Path, identity: str, broker: str, lineage: Sequence[str] = ()
    ) -> None:
        self.path = folder / f"{broker}.db"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, isolation_level=None, timeout=0)
        except (OSError, sqlite3.Error) as error:
            raise self._failed("cannot be opened", error) from None
        try:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")  # one broker at a time
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._open(f"{identity} {broker}", list(lineage))
        except sqlite3.Error as error:
            self._db.close()
            raise self._failed("cannot be opened", error) from None
        except RunFailed:
            self._db.close()
            raise

    def _open(self, whose: str, lineage: list[str]) -> None:
        db = self._db
        (state,) = db.execute(QUICK).fetchone()
        if state != "ok":
            raise self._failed("is damaged", state)
        db.execute("BEGIN EXCLUSIVE")
        (format,) = db.execute("PRAGMA user_version").fetchone()
        for name in TABLES:  # an earlier version may have had fewer
            db.execute(
                f"CREATE TABLE IF NOT EXISTS {name}"
                " (owner, key, data BLOB, PRIMARY KEY (owner, key)) WITHOUT ROWID"
            )
        db.execute("CREATE TABLE IF NOT EXISTS lineage (text TEXT)")
        if format == 0:
            db.execute("CREATE TABLE whose (text TEXT)")
            db.execute("INSERT INTO whose VALUES (?)", (whose,))
            db.execute(f"PRAGMA user_version = {FORMAT}")
        elif format != FORMAT:
            raise self._failed("cannot be used", f"it has format {format}, not {FORMAT}")
        found = db.execute("SELECT text FROM whose").fetchone()
        if found != (whose,) and not self._descends(lineage):
            raise self._failed("cannot be used", f"it belongs to {found and found[0]}, not {whose}")
        db.execute("UPDATE whose SET text = ?", (whose,))
        db.execute("DELETE FROM lineage")
        db.executemany("INSERT INTO lineage VALUES (?)", [(text,) for text in lineage])
        db.execute("COMMIT")

    def _descends(self, lineage: list[str]) -> bool:
        """Whether the network is the one this store was for, with brokers added or removed."""
        kept = [text for (text,) in self._db.execute("SELECT text FROM lineage ORDER BY rowid")]
        return bool(kept) and kept == lineage[: len(kept)]

    def load(self) -> Rows:
        try:
            return {
                name: self._db.execute(f"SELECT * FROM {name} ORDER BY owner, key").fetchall()
                for name in TABLES
            }
        except sqlite3.Error as error:
            raise self._failed("cannot be read", error) from None

    def commit(self, changes: list[Change]) -> None:
        """All of these changes, or a failure; on disk when this returns."""
        if not changes:
            return
        db = self._db
        try:
            db.execute("BEGIN")
            for (what, table), same in itertools.groupby(changes, key=lambda each: each[:2]):
                db.executemany(_SQL[what].format(table), [values for _, _, values in same])
            db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed("cannot be written", error) from None

    def close(self) -> None:
        self._db.close()

    def _failed(self, what: str, why: object) -> RunFailed:
        return RunFailed(f"the store {self.path} {what}: {why}")


class MemoryStore:
    """A store that does all the same without a disk, for rehearsals."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[tuple[Owner, Key], bytes]] = {name: {} for name in TABLES}

    def load(self) -> Rows:
        return {
            name: [(*where, data) for where, data in sorted(table.items())]
            for name, table in self._tables.items()
        }

    def owned(self, table: str, owner: Owner) -> list[bytes]:
        return [data for (who, _), data in self._tables[table].items() if who == owner]

    def commit(self, changes: list[Change]) -> None:
        for what, name, values in changes:
            table, owner = self._tables[name], values[0]
            if what == "put":
                table[owner, values[1]] = values[2]
            elif what == "drop":
                table.pop((owner, values[1]), None)
            else:
                for where in [
                    where
                    for where in table
                    if where[0] == owner and (what == "clear" or where[1] <= values[1])
                ]:
                    del table[where]


class Kept:
    """What a store held when the broker started, by table and owner."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def of(self, table: str, owner: Owner) -> list[tuple[Any, bytes]]:
        return [(key, data) for who, key, data in self._rows[table] if who == owner]

    def by_owner(self, table: str) -> dict[Any, list[tuple[Any, bytes]]]:
        found: dict[Any, list[tuple[Any, bytes]]] = {}
        for owner, key, data in self._rows[table]:
            found.setdefault(owner, []).append((key, data))
        return found

    def link(self, peer: BrokerId) -> LinkRow | None:
        rows = self.of("link", peer)
        return msgspec.msgpack.decode(rows[0][1], type=LinkRow) if rows else None
