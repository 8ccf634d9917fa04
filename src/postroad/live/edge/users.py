"""Who may connect, publish and subscribe: a JSON file of users with scrypt-hashed passwords.

A user may publish to, and subscribe within, the topic prefixes listed for them: `quotes` allows
`quotes` and all below it, `#` everything. With `publish_where` a publication must match that filter
too; with `subscribe_where` every subscription is narrowed to it: what is delivered matches both.
`dashboard` lets them into the dashboard: to look, or to operate the network from there.
Once a network names a users file, nobody else gets in.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from postroad.errors import InputError
from postroad.filters import Filter, matches, parse
from postroad.live.edge import content
from postroad.model import Scalar

COST = {"n": 2**14, "r": 8, "p": 1}  # about 50 ms and 16 MiB a guess
ALL = "#"
LOOK, OPERATE = "look", "operate"  # what a user may do in the dashboard


@dataclass(frozen=True)
class User:
    salt: str
    hash: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    publish_where: str | None = None
    subscribe_where: str | None = None
    dashboard: str | None = None

    @cached_property
    def _publish_filter(self) -> Filter | None:
        return None if self.publish_where is None else parse(self.publish_where)

    @cached_property
    def subscribe_filter(self) -> Filter | None:
        return None if self.subscribe_where is None else parse(self.subscribe_where)

    def may_publish_content(
        self,
        attributes: Mapping[str, Scalar],
        payload: bytes,
        properties: list[tuple[str, str]],
        content_type: str | None = None,
    ) -> bool:
        """Whether the filter holds, whichever way a subscriber reads the publication."""
        filter = self._publish_filter
        if filter is None:
            return True
        names = {name for conjunction in filter.conjunctions for name, _ in conjunction}
        asked = frozenset(names - {"class"})
        return matches(filter, attributes) and content.unambiguous(
            payload, properties, asked, attributes, content_type
        )

    def may_publish(self, topic: str) -> bool:
        return _within(topic.split("/"), self.publish)

    def may_subscribe(self, pattern: str) -> bool:
        """Whether the pattern's fixed first levels lie within what is allowed."""
        fixed: list[str] = []
        for level in pattern.split("/"):
            if level in ("+", "#"):
                break
            fixed.append(level)
        return _within(fixed, self.subscribe)


def _within(levels: list[str], prefixes: tuple[str, ...]) -> bool:
    for prefix in prefixes:
        if prefix == ALL:
            return True
        wanted = prefix.rstrip("/").split("/")
        if levels[: len(wanted)] == wanted:
            return True
    return False


def hashed(password: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(password, salt=salt, maxmem=64 << 20, **COST)


def new_user(
    password: bytes,
    publish: tuple[str, ...],
    subscribe: tuple[str, ...],
    publish_where: str | None = None,
    subscribe_where: str | None = None,
    dashboard: str | None = None,
) -> User:
    """Raises `InputError` for a filter that is none."""
    salt = secrets.token_bytes(16)
    hash = _text(hashed(password, salt))
    user = User(_text(salt), hash, publish, subscribe, publish_where, subscribe_where, dashboard)
    _check(user)
    return user


def with_rights(
    user: User | None,
    password: bytes | None,
    publish: tuple[str, ...] = (),
    subscribe: tuple[str, ...] = (),
    publish_where: str | None = None,
    subscribe_where: str | None = None,
    dashboard: str | None = None,
) -> User:
    """The user with what is given; the rest stays as it was. One who is new has a password.

    Raises `InputError` for a filter that is none.
    """
    if user is None:
        assert password is not None
        return new_user(password, publish, subscribe, publish_where, subscribe_where, dashboard)
    changed = new_user(
        password or b"",
        publish or user.publish,
        subscribe or user.subscribe,
        user.publish_where if publish_where is None else publish_where,
        user.subscribe_where if subscribe_where is None else subscribe_where,
        user.dashboard if dashboard is None else dashboard,
    )
    return changed if password is not None else replace(changed, salt=user.salt, hash=user.hash)


def _check(user: User) -> None:
    for text in (user.publish_where, user.subscribe_where):
        conjunctions = () if text is None else parse(text).conjunctions
        if any("." in name for conjunction in conjunctions for name, _ in conjunction):
            raise InputError(
                "a right names a nested field",
                remedy="name fields of the payload's outermost object, or user properties",
            )
    if user.dashboard not in (None, LOOK, OPERATE):
        raise InputError(
            f"dashboard is {user.dashboard!r}",
            remedy=f"choose {LOOK} or {OPERATE}, or none",
        )


class Users:
    """The users of one network. `verify` is slow on purpose: call it beside the loop."""

    def __init__(self, users: dict[str, User]) -> None:
        self.users = users
        self._key = secrets.token_bytes(32)
        self._verified: dict[str, bytes] = {}
        self._nobody = new_user(
            b"", (), ()
        )  # so that an unknown name takes as long as a wrong word

    def remembered(self, name: str, password: bytes) -> bool:
        """Whether this very password was verified before; fast."""
        known = self._verified.get(name)
        return known is not None and hmac.compare_digest(known, self._digest(password))

    def verify(self, name: str, password: bytes) -> bool:
        user = self.users.get(name, self._nobody)
        right = hmac.compare_digest(
            hashed(password, base64.b64decode(user.salt)), base64.b64decode(user.hash)
        )
        if not right or name not in self.users:
            return False
        self._verified[name] = self._digest(password)
        return True

    def inherit(self, old: Users) -> None:
        """Go on knowing the passwords that were verified and have not changed."""
        self._key = old._key
        for name, digest in old._verified.items():
            if name in self.users and self.users[name].hash == old.users[name].hash:
                self._verified[name] = digest

    def _digest(self, password: bytes) -> bytes:
        return hmac.new(self._key, password, "sha256").digest()


def load(path: Path) -> Users:
    return Users(_read(path))


def _read(path: Path) -> dict[str, User]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        users = {
            str(name): User(
                str(row["salt"]), str(row["hash"]), tuple(row["publish"]), tuple(row["subscribe"]),
                row.get("publish_where"), row.get("subscribe_where"), row.get("dashboard"),
            )
            for name, row in document.items()
        }  # fmt: skip
        for user in users.values():
            _check(user)
            base64.b64decode(user.salt, validate=True)
            base64.b64decode(user.hash, validate=True)
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror}", remedy="add a user: postroad users add"
        ) from None
    except InputError as error:
        raise error.at(str(path)) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(
            "not a file of users", where=str(path), remedy="write it with postroad users add"
        ) from None
    return users


def find(path: Path, name: str) -> User | None:
    """The user of this name, if the file is there and has one."""
    return _read(path).get(name) if path.exists() else None


def change(path: Path, name: str, user: User | None) -> None:
    """Add or replace a user, or remove one; the file is replaced whole and is ours alone."""
    users = _read(path) if path.exists() or user is None else {}
    if user is None:
        if name not in users:
            raise InputError(f"no user {name!r}", where=str(path), remedy="see postroad users list")
        del users[name]
    else:
        users[name] = user
    part = path.with_name(f".{path.name}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({key: asdict(value) for key, value in sorted(users.items())}, file, indent=1)
        os.replace(part, path)
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
