"""Who may see the dashboard and act from it, tried over real connections."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, CookieJar
from aiohttp.test_utils import TestServer

from live_harness import environment, free_ports, write_network
from postroad.errors import InputError
from postroad.live.edge import users
from postroad.live.links import secret
from postroad.live.network import load
from postroad.web.access import Access
from postroad.web.app import Dashboard

Ask = Callable[..., Awaitable[tuple[int, Any]]]


def ask_dashboard(path: Path, key: str | None, questions: Callable[[Ask], Awaitable[None]]) -> None:
    """A dashboard of a network that does not run, and a browser's questions to it."""

    async def run() -> None:
        network = load(path)
        access = Access(network.users, key, frozenset())
        server = TestServer(Dashboard(network, access).application())
        await server.start_server()
        access.hosts = frozenset((f"127.0.0.1:{server.port}",))
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as session:

            async def ask(
                path: str, body: Any = None, token: str | None = None, **headers: str
            ) -> tuple[int, Any]:
                if token is not None:
                    headers["X-Postroad-Token"] = token
                method = "GET" if body is None else "POST"
                url = server.make_url(path)
                async with session.request(method, url, json=body, headers=headers) as answer:
                    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
                    text = await answer.text()
                    return answer.status, json.loads(text) if path.startswith("/api") else text

            await questions(ask)
        await server.close()

    asyncio.run(run())


def test_with_users_only_those_with_a_role_get_in(tmp_path: Path) -> None:
    for name, role in (("lou", users.LOOK), ("op", users.OPERATE), ("none", None)):
        user = users.new_user(b"word", ("#",), ("#",), dashboard=role)
        users.change(tmp_path / "users.json", name, user)
    top = 'users = "users.json"\nsecret = "s"'
    path = write_network(tmp_path, ["A"], [], top=top, free=True)
    secret.make(tmp_path / "s")

    async def questions(ask: Ask) -> None:
        assert (await ask("/"))[0] == 200
        assert (await ask("/api/me"))[1]["role"] is None
        assert (await ask("/api/overview"))[0] == 401
        assert (await ask("/api/login", {"name": "lou", "password": "wrong"}))[0] == 403
        assert (await ask("/api/login", {"name": "none", "password": "word"}))[0] == 403
        assert (await ask("/api/login", {"name": "lou", "password": "word"}))[0] == 200
        token = (await ask("/api/me"))[1]["token"]
        assert (await ask("/api/overview"))[0] == 200
        kick = {"client": "someone"}
        assert (await ask("/api/kick", kick, token))[0] == 403
        assert (await ask("/api/login", {"name": "op", "password": "word"}))[0] == 200
        assert (await ask("/api/kick", kick, token))[0] == 403  # another login's token
        token = (await ask("/api/me"))[1]["token"]
        assert await ask("/api/kick", kick, token) == (200, {"kicked": []})
        assert (await ask("/api/logout", {}, token))[0] == 200
        assert (await ask("/api/overview"))[0] == 401

    ask_dashboard(path, None, questions)


def test_without_users_one_looks_and_who_has_the_key_operates(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A"], [], free=True)

    async def questions(ask: Ask) -> None:
        me = (await ask("/api/me"))[1]
        assert (me["role"], me["open"]) == ("look", True)
        assert (await ask("/api/overview"))[0] == 200
        assert (await ask("/api/kick", {"client": "c"}, me["token"]))[0] == 403
        assert (await ask("/api/login", {"name": "", "password": "guess"}))[0] == 403
        assert (await ask("/api/login", {"name": "", "password": "key"}))[0] == 200
        assert (await ask("/api/me"))[1]["role"] == "operate"

    ask_dashboard(path, "key", questions)


def test_other_sites_and_other_names_are_refused(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A"], [], free=True)

    async def questions(ask: Ask) -> None:
        assert (await ask("/api/overview", Host="evil.example:80"))[0] == 403
        login = {"name": "", "password": "key"}
        site = {"Sec-Fetch-Site": "cross-site"}
        assert (await ask("/api/login", login, **site))[0] == 403
        assert (await ask("/api/login", login))[0] == 200
        assert (await ask("/api/kick", {"client": "c"}))[0] == 403  # no token
        assert (await ask("/api/filter", {"filter": "x > 1"}, "made up"))[0] == 403
        token = (await ask("/api/me"))[1]["token"]
        status, answer = await ask("/api/filter", {"filter": "x > 1"}, token)
        assert (status, "records nothing" in answer["error"]) == (400, True)
        assert (await ask("/api/filter", ["x"], token))[0] == 400
        assert (await ask("/api/replay?at_us=x&scheme=kyra"))[0] == 400

    ask_dashboard(path, "key", questions)


def test_a_role_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="choose look or operate"):
        users.new_user(b"word", (), (), dashboard="admin")


def test_a_port_in_use_is_one_line_and_an_interrupt_ends_well(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A"], [], free=True)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "postroad", "dashboard", str(path), "--port", str(port)]
    first = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert first.stdout is not None
    assert f":{port}/" in first.stdout.readline()
    second = subprocess.run(command, env=environment(), capture_output=True, text=True)
    first.send_signal(signal.SIGINT)
    assert first.communicate(timeout=30) == ("", "")
    assert first.returncode == 0
    assert second.stderr == (
        f"postroad: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "choose another --port\n"
    )
    assert second.returncode == 1
