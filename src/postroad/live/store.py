"""What a broker keeps on disk, so that a restart is no more to its peers than a cut connection.

The state machines only note what changed (`Journal`); the driver writes a whole turn's changes in
one transaction (`Store.commit`) *before* it lets a single byte of that turn out. So whatever a
client or a peer has been told is on disk, and what was not yet told may be forgotten: the link
protocol and MQTT send it again.

Every table has the same shape: an owner (a peer's number, a client's name), a key, bytes, and a
checksum of all three and the table's name. SQLite in WAL mode, `synchronous = FULL`: a commit is on
the disk, not only with the operating system.

SQLite forgets without a word all that follows the first frame of its WAL that is torn, damaged or
missing. Whether that was a last write that nobody has been told of, or part of what was synced,
two things tell. Transactions are counted, in the same transaction and then in a small file beside
(`BROKER.mark`, which is not synced: it survives the process, not always the machine): a store that
holds fewer than its mark says has lost some. And SQLite syncs each commit before it writes the
next frame: a frame of the same WAL behind a commit that was not taken shows that it was synced.

Neighbours know how many transactions a broker has had, too (`Standing`): so they know of one that
has been put back to an earlier state, or lost its store.
"""

from __future__ import annotations

import fcntl
import itertools
import operator
import os
import shutil
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from postroad.errors import InputError, RunFailed
from postroad.model import BrokerId, TimeUs

FORMAT: Final = 4
TABLES: Final = (
    "link", "queue", "told", "heard", "session", "subscription", "parcel", "recent", "retained",
    "will", "tree", "outbox", "seen", "wants", "cause", "wave", "received", "share",
    "resident", "move", "had",
)  # fmt: skip
_MOVES: Final = ("resident", "move", "had")
ADDED: Final = {2: ("received", "share", *_MOVES), 3: _MOVES}  # what earlier formats lack
QUICK: Final = "PRAGMA quick_check(1)"

_TABLE: Final = (
    "CREATE TABLE {} (owner, key, data BLOB, sum INTEGER, PRIMARY KEY (owner, key)) WITHOUT ROWID"
)
_SCHEMA: Final = {name: _TABLE.format(name) for name in (*TABLES, "meta")}
_LOCKED: Final = (0x40000002, 510)  # SQLite locks these bytes of a file that it uses

Owner = str | int
Key = str | int
Row = tuple[Owner, Key, bytes]
Rows = dict[str, list[Row]]
Change = tuple[str, str, tuple[Any, ...]]  # what is done, to which table, the values

_crc32 = zlib.crc32
_encode = msgspec.msgpack.Encoder().encode
_SQL: Final = {
    "put": "INSERT OR REPLACE INTO {} VALUES (?, ?, ?, ?)",
    "drop": "DELETE FROM {} WHERE owner = ? AND key = ?",
    "drop_to": "DELETE FROM {} WHERE owner = ? AND key <= ?",
    "clear": "DELETE FROM {} WHERE owner = ?",
}
_STATEMENTS: Final = {(what, name): _SQL[what].format(name) for what in _SQL for name in _SCHEMA}
_WHERE: Final = operator.itemgetter(0, 1)  # of a change: what is done, to which table


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
    known: tuple[int, int] | None = None  # the peer's store, and how many transactions it has had


class Standing(msgspec.Struct, array_like=True, frozen=True):
    """How far a broker's store has come: when it was made, how many transactions it had when the
    broker started, and the number of the first one afterwards. Numbers jump to the time of each
    start, so those that an earlier process gave and this one does not have lie in between."""

    created: TimeUs
    began: int
    first: int
    reset: bool = False  # whether it was put in the place of another on purpose

    def behind(self, known: tuple[int, int]) -> str | None:
        """What is wrong with this store if another broker knows so much of it."""
        created, count = known
        if created > self.created:
            return "its store is older than one that it has had since"
        if created < self.created and not self.reset:
            return "its store is new, and the one that it had is gone"
        if created == self.created and self.began < count < self.first:
            return f"its store ends at transaction {self.began}, and it has told of {count}"
        return None


class Meta(msgspec.Struct, array_like=True, frozen=True):
    """What a store says of itself."""

    whose: str
    lineage: list[str]
    created: TimeUs
    reset: bool


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
    weight: int = 1


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
    qos: int = 1
    group: str = ""  # of the shared subscription that it came by
    publication: str = ""  # which it is, while its session moves


class MoveRow(msgspec.Struct, array_like=True, frozen=True):
    """A session that moves: to or from which broker, with which stamp, and what is still to be
    said of it (`leaving` and a message, or `coming`)."""

    broker: BrokerId
    stamp: int
    leaving: bool
    rest: list[ParcelRow] | None = None  # of one that has left, until all of it has arrived


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


def checksum(table: str, owner: Owner, key: Key, data: bytes) -> int:
    seed = _seed(table, owner)
    if type(key) is int:
        return _crc32(data, (seed ^ key ^ key >> 32) & 0xFFFFFFFF)
    assert isinstance(key, str)
    return _crc32(data, _crc32(key.encode(), ~seed & 0xFFFFFFFF))


def _is_whole(table: str, owner: Any, key: Any, data: Any, sum: Any) -> bool:
    """Whether a row is as it was written; damage may have changed its types too."""
    kinds = isinstance(owner, int | str) and isinstance(key, int | str) and isinstance(data, bytes)
    return kinds and bool(sum == checksum(table, owner, key, data))


@lru_cache(maxsize=4096)
def _seed(table: str, owner: Owner) -> int:
    return _crc32(f"{table} {owner!r} ".encode())


class Store:
    """One broker's file. Every failure is a `RunFailed` that names the file: nothing goes on.

    `reset` makes a new store that stands for one that is lost or old.
    """

    def __init__(
        self,
        folder: Path,
        identity: str,
        broker: str,
        lineage: Sequence[str] = (),
        now: TimeUs = 0,
        reset: bool = False,
    ) -> None:
        self.path = folder / f"{broker}.db"
        whose = f"{identity} {broker}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark = _marked(self.path)
            if not self.path.exists() and (mark is None or not mark[1]):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            for path in _files(self.path):
                if path.exists():
                    path.chmod(0o600)
        except OSError as error:
            raise _failed(self.path, "cannot be opened", error) from None
        self._db, before = _open(self.path, self.path, mark)
        try:
            self._rows: Rows | None = None  # as they were found, until they are taken or changed
            if before is None:
                began, meta = 0, Meta(whose, list(lineage), now, reset)
            else:
                began, meta, self._rows = before
                _check_owner(self.path, meta, whose, lineage)
            self.count = max(began + 1, now)
            self.standing = Standing(meta.created, began, self.count, meta.reset)
            self._mark = os.open(_mark_of(self.path), os.O_CREAT | os.O_RDWR, 0o600)
            if before is None:  # a store is being made: the mark must not be missing once it is
                self._write_mark(0)
                os.fsync(self._mark)
                _sync_folder(folder)
            self._begin(before is None, Meta(whose, list(lineage), meta.created, meta.reset))
            self._write_mark(self.count)
            os.fsync(self._mark)
        except (sqlite3.Error, OSError) as error:
            self._db.close()
            raise _failed(self.path, "cannot be opened", error) from None
        except RunFailed:
            self._db.close()
            raise

    def _begin(self, fresh: bool, meta: Meta) -> None:
        db = self._db
        db.execute("BEGIN EXCLUSIVE")
        (format,) = db.execute("PRAGMA user_version").fetchone()
        for name, sql in _SCHEMA.items():
            if fresh or name in ADDED.get(format, ()):
                db.execute(sql)
        db.execute(f"PRAGMA user_version = {FORMAT}")
        self._put("meta", "", "meta", _encode(meta))
        self._put("meta", "", "count", _encode(self.count))
        db.execute("COMMIT")

    def _put(self, table: str, owner: Owner, key: Key, data: bytes) -> None:
        values = (owner, key, data, checksum(table, owner, key, data))
        self._db.execute(_STATEMENTS["put", table], values)

    def _write_mark(self, count: int) -> None:
        os.pwrite(self._mark, _mark_line(self.standing.created, count), 0)

    def load(self) -> Rows:
        rows, self._rows = self._rows, None
        return _load(self._db, self.path) if rows is None else rows

    def commit(self, changes: list[Change]) -> None:
        """All of these changes, or a failure; on disk when this returns."""
        if not changes:
            return
        db, count = self._db, self.count + 1
        self._rows = None
        try:
            db.execute("BEGIN")
            for (what, table), same in itertools.groupby(changes, _WHERE):
                if what == "put":
                    rows = [(o, k, d, checksum(table, o, k, d)) for _, _, (o, k, d) in same]
                else:
                    rows = [values for _, _, values in same]
                db.executemany(_STATEMENTS[what, table], rows)
            self._put("meta", "", "count", _encode(count))
            db.execute("COMMIT")
            self._write_mark(count)
        except (sqlite3.Error, OSError) as error:
            raise _failed(self.path, "cannot be written", error) from None
        self.count = count

    def close(self) -> None:
        self._db.close()
        os.fsync(self._mark)
        os.close(self._mark)


def _failed(path: Path, what: str, why: object) -> RunFailed:
    return RunFailed(f"the store {path} {what}: {why}")


def _mark_of(path: Path) -> Path:
    return path.with_suffix(".mark")


def _wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _files(path: Path) -> tuple[Path, ...]:
    return path, _wal_of(path), path.with_name(f"{path.name}-shm"), _mark_of(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mark_line(created: TimeUs, count: int) -> bytes:
    counts = b"%020d %020d" % (created, count)
    return b"%s %08x\n" % (counts, zlib.crc32(counts))


def _marked(path: Path) -> tuple[TimeUs, int] | None:
    """The store and transaction that a mark names; None without one."""
    mark = _mark_of(path)
    try:
        line = mark.read_bytes()
    except FileNotFoundError:
        return None
    words = line.split(b" ")
    if len(words) != 3 or not (words[0] + words[1]).isdigit():
        raise _failed(path, "is damaged", f"{mark.name} is no mark")
    counts = int(words[0]), int(words[1])
    if line != _mark_line(*counts):
        raise _failed(path, "is damaged", f"{mark.name} does not match its checksum")
    return counts


def _open(
    path: Path, shown: Path, mark: tuple[TimeUs, int] | None
) -> tuple[sqlite3.Connection, tuple[int, Meta, Rows] | None]:
    """A file that holds all that was synced, and what it holds; nothing if it is new.

    One that is refused stays as it was: SQLite would write what is left of its WAL into it and
    remove the rest.
    """
    kept: Path | None = None
    wal = _wal_of(path)
    try:
        if mark is not None and mark[1] and not (path.exists() and path.stat().st_size):
            raise _failed(shown, "is lost", f"{shown.name} is missing or empty")
        db = sqlite3.connect(path, isolation_level=None, timeout=0)
    except (OSError, sqlite3.Error) as error:
        raise _failed(shown, "cannot be opened", error) from None
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")  # one broker at a time
        db.execute("PRAGMA synchronous = FULL")
        db.execute("SELECT * FROM sqlite_master").fetchone()
        if wal.exists() and wal.stat().st_size:
            kept = wal.with_name(f"{wal.name}.kept")
            shutil.copyfile(wal, kept)
            kept.chmod(0o600)
        db.execute("PRAGMA journal_mode = WAL")
        contents = _examine(db, shown, kept, mark)
    except (sqlite3.Error, OSError) as error:
        refusal = _failed(shown, "cannot be opened", error)
    except RunFailed as error:
        refusal = error
    else:
        if kept is not None:
            kept.unlink()
        return db, contents
    db.close()
    if kept is not None and kept.exists():
        os.replace(kept, wal)
    raise refusal


def _examine(
    db: sqlite3.Connection, path: Path, wal: Path | None, mark: tuple[TimeUs, int] | None
) -> tuple[int, Meta, Rows] | None:
    for (state,) in db.execute(QUICK):
        if state != "ok":
            raise _failed(path, "is damaged", " ".join(state.split()))
    (format,) = db.execute("PRAGMA user_version").fetchone()
    schema = dict(db.execute("SELECT name, sql FROM sqlite_master"))
    frames = max(0, db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1])
    if format == 0 and not schema and (mark is None or not mark[1]):
        return None
    pages = b"" if wal is None else wal.read_bytes()
    (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
    if format == 0 and not schema:
        raise _failed(path, "is damaged", _gone(path, pages, page_bytes, (0, 0), mark))
    if format != FORMAT and format not in ADDED:
        raise _failed(path, "cannot be used", f"it has format {format}, not {FORMAT}")
    if schema != {name: sql for name, sql in _SCHEMA.items() if name not in ADDED.get(format, ())}:
        raise _failed(path, "is damaged", "its tables are not as they were made")
    rows = {
        key: data
        for owner, key, data, sum in db.execute("SELECT * FROM meta")
        if _is_whole("meta", owner, key, data, sum)
    }
    if rows.keys() != {"meta", "count"}:
        raise _failed(path, "is damaged", "table meta does not match its checksums")
    count = msgspec.msgpack.decode(rows["count"], type=int)
    meta = msgspec.msgpack.decode(rows["meta"], type=Meta)
    if mark is None:
        raise _failed(path, "is damaged", f"{_mark_of(path).name} is missing")
    if (meta.created, count) < mark or meta.created != mark[0] or synced(pages, page_bytes, frames):
        why = _gone(path, pages, page_bytes, (meta.created, count), mark)
        raise _failed(path, "is damaged", why)
    return count, meta, _load(db, path, ADDED.get(format, ()))


def _gone(
    path: Path,
    pages: bytes,
    page_bytes: int,
    has: tuple[TimeUs, int],
    mark: tuple[TimeUs, int] | None,
) -> str:
    """What is wrong where if a store does not hold all that was synced."""
    assert mark is not None
    what = f"it ends at transaction {has[1]}"
    if mark > has:
        what += f", and {_mark_of(path).name} says {mark[1]}"
    wal = _wal_of(path).name
    broken = torn(pages, page_bytes)
    if not pages:
        return f"{what}; {wal} is missing or empty"
    if broken is None:
        return f"{what}; {wal} is cut or older"
    return f"{what}; {wal} is damaged at byte {broken}, within what was synced"


_WAL_HEADER: Final = struct.Struct(">8I")
_FRAME_HEADER: Final = struct.Struct(">6I")


def synced(wal: bytes, page_bytes: int, frames: int) -> bool:
    """Whether a WAL of which SQLite has taken so many frames had more that were synced: a frame
    of the same WAL behind a commit that was not taken."""
    if len(wal) < _WAL_HEADER.size:
        return False
    salts = _WAL_HEADER.unpack_from(wal)[4:6]
    committed = False
    step = _FRAME_HEADER.size + page_bytes
    for at in range(_WAL_HEADER.size + frames * step, len(wal) - _FRAME_HEADER.size + 1, step):
        _, size, *its_salts, _, _ = _FRAME_HEADER.unpack_from(wal, at)
        if tuple(its_salts) == salts:
            if committed:
                return True
            committed = size > 0
    return False


def torn(wal: bytes, page_bytes: int) -> int | None:
    """Where a WAL's first frame begins that is not whole or does not match its checksum, or 0 if
    its header does not; None if all that belongs to it is good."""
    if len(wal) < _WAL_HEADER.size:
        return 0 if wal else None
    magic, _, _, _, *salts, one, two = _WAL_HEADER.unpack_from(wal)
    order = ">" if magic & 1 else "<"
    sums = _summed(wal[:24], order, (0, 0))
    if sums != (one, two):
        return 0
    step = _FRAME_HEADER.size + page_bytes
    for at in range(_WAL_HEADER.size, len(wal), step):
        if len(wal) - at < step:
            return at
        _, _, *its_salts, one, two = _FRAME_HEADER.unpack_from(wal, at)
        sums = _summed(wal[at : at + 8], order, sums)
        sums = _summed(wal[at + _FRAME_HEADER.size : at + step], order, sums)
        if its_salts != salts or sums != (one, two):
            # What an earlier round of this WAL left behind is no damage.
            later = (
                list(_FRAME_HEADER.unpack_from(wal, n)[2:4]) == salts
                for n in range(at, len(wal) - _FRAME_HEADER.size + 1, step)
            )
            return at if any(later) else None
    return None


def _summed(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    """SQLite's checksum of a WAL, gone on with."""
    one, two = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        one = (one + words[at] + two) & 0xFFFFFFFF
        two = (two + words[at + 1] + one) & 0xFFFFFFFF
    return one, two


def _check_owner(path: Path, meta: Meta, whose: str, lineage: Sequence[str]) -> None:
    """The network is the one this store was for, or that with brokers added or removed."""
    kept = meta.lineage
    if meta.whose != whose and not (kept and kept == list(lineage)[: len(kept)]):
        raise _failed(path, "cannot be used", f"it belongs to {meta.whose}, not {whose}")


def _load(db: sqlite3.Connection, path: Path, lacks: Sequence[str] = ()) -> Rows:
    tables: Rows = {name: [] for name in TABLES}
    try:
        for name, rows in tables.items():
            if name in lacks:
                continue
            for owner, key, data, sum in db.execute(f"SELECT * FROM {name} ORDER BY owner, key"):
                if not _is_whole(name, owner, key, data, sum):
                    why = f"table {name}, owner {owner!r}, key {key!r} does not match its checksum"
                    raise _failed(path, "is damaged", why)
                rows.append((owner, key, data))
    except sqlite3.Error as error:
        raise _failed(path, "is damaged", error) from None
    return tables


@dataclass(frozen=True)
class Examined:
    """What a look at a store that nobody uses has found."""

    path: Path
    problem: str | None
    transactions: int = 0
    rows: Rows | None = None


def examine(folder: Path, identity: str, broker: str, lineage: Sequence[str]) -> Examined:
    """Look at a store without changing a byte of it; fails if its broker runs."""
    path = folder / f"{broker}.db"
    try:
        _refuse_if_used(path)
        mark = _marked(path)
        if not path.exists() and mark is None:
            return Examined(path, f"there is no store {path}")
        with tempfile.TemporaryDirectory(prefix="postroad-") as aside:
            copy = Path(aside) / path.name
            for mine in (path, _wal_of(path)):
                if mine.exists():
                    shutil.copyfile(mine, copy.with_name(mine.name))
            db, contents = _open(copy, path, mark)
            try:
                if contents is None:
                    return Examined(path, f"the store {path} is empty")
                count, meta, rows = contents
                _check_owner(path, meta, f"{identity} {broker}", lineage)
                return Examined(path, None, count, rows)
            finally:
                db.close()
    except OSError as error:
        return Examined(path, str(_failed(path, "cannot be read", error)))
    except RunFailed as error:
        return Examined(path, str(error))


def _refuse_if_used(path: Path) -> None:
    try:
        with path.open("rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, _LOCKED[1], _LOCKED[0])
    except FileNotFoundError:
        return
    except BlockingIOError:
        raise InputError(f"the store {path} is in use", remedy="stop its broker first") from None


def replace(
    folder: Path, identity: str, broker: str, lineage: Sequence[str], now: TimeUs
) -> Path | None:
    """Put a new store in the place of one that is lost or old; where the old files are now."""
    path = folder / f"{broker}.db"
    _refuse_if_used(path)
    files = [file for file in _files(path) if file.exists()]
    aside = folder / f"{broker}.replaced-{now}"
    try:
        if files:
            aside.mkdir(mode=0o700)
        for file in files:
            os.replace(file, aside / file.name)
    except OSError as error:
        raise _failed(path, "cannot be replaced", error) from None
    Store(folder, identity, broker, lineage, now, reset=True).close()
    return aside if files else None


class MemoryStore:
    """A store that does all the same without a disk, for rehearsals."""

    def __init__(self, reset: bool = False) -> None:
        self._reset = reset  # whether it takes the place of another on purpose
        self._tables: dict[str, dict[tuple[Owner, Key], bytes]] = {name: {} for name in TABLES}
        self._created: TimeUs | None = None
        self.count = 0

    def begin(self, now: TimeUs) -> Standing:
        """A broker starts with this store."""
        began, fresh = self.count, self._created is None
        self._created = now if self._created is None else self._created
        self.count = max(began + 1, now)
        return Standing(self._created, 0 if fresh else began, self.count, self._reset)

    def load(self) -> Rows:
        return {
            name: [(*where, data) for where, data in sorted(table.items())]
            for name, table in self._tables.items()
        }

    def owned(self, table: str, owner: Owner) -> list[bytes]:
        return [data for (who, _), data in self._tables[table].items() if who == owner]

    def commit(self, changes: list[Change]) -> None:
        self.count += bool(changes)
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
        owners: dict[Any, list[tuple[Any, bytes]]] = {}
        for owner, key, data in self._rows[table]:
            owners.setdefault(owner, []).append((key, data))
        return owners

    def link(self, peer: BrokerId) -> LinkRow | None:
        rows = self.of("link", peer)
        return msgspec.msgpack.decode(rows[0][1], type=LinkRow) if rows else None
