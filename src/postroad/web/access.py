"""Who may see the dashboard, and who may act from it.

A network with `users` asks for a name and a password; what a user may do is in the users file
(`look` or `operate`). Without users everyone who reaches the page may look, and only who brings the
key that `postroad dashboard --operate` prints may act.

Against other sites: the cookie is never sent from them (SameSite=Strict), what changes something
also needs a token that only the page itself can read, and requests for another host name than ours
are refused, so that no name can be bent to this address.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from postroad.live.edge import users

COOKIE = "postroad"
LASTS_S = 12 * 3600
LOGINS_MAX = 1_000  # the oldest makes room


@dataclass(frozen=True)
class Login:
    name: str
    role: str
    until_s: float
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))  # against other sites


class Access:
    def __init__(self, users_file: Path | None, key: str | None, hosts: frozenset[str]) -> None:
        """`key` lets its holder operate a network without users. `hosts` are our own names."""
        self.users_file, self.key, self.hosts = users_file, key, hosts
        self._logins: dict[str, Login] = {}
        self._anyone = Login("", users.LOOK, float("inf"))
        self._checking = asyncio.Lock()  # one password at a time: each takes 50 ms on purpose

    @property
    def open(self) -> bool:
        """Whether everyone may look."""
        return self.users_file is None

    def login_of(self, cookie: str | None) -> Login | None:
        login = None if cookie is None else self._logins.get(cookie)
        if login is not None and login.until_s > time.monotonic():
            return login
        return self._anyone if self.open else None

    async def log_in(self, name: str, password: str) -> str | None:
        """A cookie for who proves to be a user with a role, or who has the key."""
        role = await self._role(name, password)
        if role is None:
            return None
        while len(self._logins) >= LOGINS_MAX:
            del self._logins[next(iter(self._logins))]
        cookie = secrets.token_urlsafe(32)
        self._logins[cookie] = Login(name, role, time.monotonic() + LASTS_S)
        return cookie

    async def _role(self, name: str, password: str) -> str | None:
        if self.users_file is None:
            right = self.key is not None and hmac.compare_digest(
                self.key.encode(), password.encode()
            )
            return users.OPERATE if right else None
        async with self._checking:
            known = await asyncio.to_thread(users.load, self.users_file)
            right = await asyncio.to_thread(known.verify, name, password.encode())
        return known.users[name].dashboard if right else None

    def log_out(self, cookie: str | None) -> None:
        self._logins.pop(cookie or "", None)


def allowed_hosts(host: str, port: int) -> frozenset[str]:
    """What a browser may call us in `Host`."""
    names = {host}
    if is_loopback(host):
        names |= {"localhost", "127.0.0.1", "[::1]"}
    return frozenset(f"{name}:{port}" for name in names)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
