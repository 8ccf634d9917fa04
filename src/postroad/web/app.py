"""The dashboard's server: a few JSON routes, one page, nothing from anywhere else."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from aiohttp import web

from postroad.errors import InputError, PostroadError, RunFailed
from postroad.explain.dry_run import dry_run
from postroad.live.edge.content import attributes as attributes_of
from postroad.live.edge.users import OPERATE
from postroad.live.network import Network
from postroad.live.operations import launch
from postroad.routing import SCHEMES
from postroad.web.access import COOKIE, LASTS_S, Access, Login
from postroad.web.advice import AdviceTables
from postroad.web.observer import Observer
from postroad.web.records import MINUTE_US, Records

STATIC = {
    "/": ("page.html", "text/html"),
    "/app.js": ("app.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}
BODY_MAX = 64 << 10
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LOGIN = web.RequestKey("login", Login)


class Dashboard:
    def __init__(self, network: Network, access: Access, watched: Path | None = None) -> None:
        """`watched` is what `postroad pipeline watch -o` writes to, for advice."""
        self.network, self.access = network, access
        self.observer = Observer(network)
        self.advice = None if watched is None else AdviceTables(watched)
        self.records = None
        if network.traces is not None:
            self.records = Records(Path(network.traces.folder), network.name)
        self._reading = asyncio.Lock()  # records answer one question at a time
        self._page = {path: _file(name) for path, (name, _) in STATIC.items()}

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_MAX)
        for path in STATIC:
            app.router.add_get(path, self._static)
        for path, handler in {
            "/api/me": self._me,
            "/api/overview": self._overview,
            "/api/clients": self._clients,
            "/api/subscriptions": self._subscriptions,
            "/api/topics": self._topics,
            "/api/publications": self._publications,
            "/api/way": self._way,
            "/api/minutes": self._minutes,
            "/api/minute": self._minute,
            "/api/replay": self._replay,
            "/api/advice": self._advice,
        }.items():
            app.router.add_get(path, handler)
        for path, handler in {
            "/api/login": self._log_in,
            "/api/logout": self._log_out,
            "/api/filter": self._filter,
            "/api/would": self._would,
            "/api/kick": self._kick,
            "/api/apply": self._apply,
        }.items():
            app.router.add_post(path, handler)
        app.on_startup.append(self._open)
        app.on_cleanup.append(self._close)
        return app

    async def _open(self, _: web.Application) -> None:
        await self.observer.open()

    async def _close(self, _: web.Application) -> None:
        await self.observer.close()

    # Who may ask.

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._admit(request)
            response = await handler(request)
        except web.HTTPException as error:
            response = _refusal(error.status, error.text or error.reason)
        except InputError as error:
            response = _refusal(400, str(error))
        except PostroadError as error:
            response = _refusal(502, str(error))
        response.headers.update(HEADERS)
        return response

    def _admit(self, request: web.Request) -> None:
        if request.host not in self.access.hosts:
            raise web.HTTPForbidden(text="this dashboard has another name")
        login = self.access.login_of(request.cookies.get(COOKIE))
        changes = request.method == "POST"
        if request.path in STATIC or request.path in ("/api/login", "/api/me"):
            if changes and request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
                raise web.HTTPForbidden(text="not from another site")
            if login is not None:
                request[LOGIN] = login
            return
        if login is None:
            raise web.HTTPUnauthorized(text="log in first")
        if changes and request.headers.get("X-Postroad-Token") != login.token:
            raise web.HTTPForbidden(text="the page's token is missing")
        request[LOGIN] = login

    def _operate(self, request: web.Request) -> None:
        if request[LOGIN].role != OPERATE:
            raise web.HTTPForbidden(text="you may look; to operate, log in as who may")

    async def _me(self, request: web.Request) -> web.Response:
        login = request.get(LOGIN)
        return _answer(
            {
                "network": self.network.name,
                "open": self.access.open,
                "name": None if login is None else login.name,
                "role": None if login is None else login.role,
                "token": None if login is None else login.token,
                "traces": self.records is not None,
                "sample": None if self.network.traces is None else self.network.traces.sample,
                "advice": self.advice is not None,
                "schemes": {name: scheme.paper for name, scheme in SCHEMES.items()},
            }
        )

    async def _log_in(self, request: web.Request) -> web.Response:
        body = await _body(request, name=str, password=str)
        cookie = await self.access.log_in(body["name"], body["password"])
        if cookie is None:
            return _refusal(403, "no user of that name and password has a role in the dashboard")
        response = _answer({"ok": True})
        response.set_cookie(
            COOKIE, cookie, httponly=True, samesite="Strict", max_age=LASTS_S, path="/",
            secure=request.secure,
        )  # fmt: skip
        return response

    async def _log_out(self, request: web.Request) -> web.Response:
        self.access.log_out(request.cookies.get(COOKIE))
        response = _answer({"ok": True})
        response.del_cookie(COOKIE)
        return response

    async def _static(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._page[request.path], content_type=STATIC[request.path][1], charset="utf-8"
        )

    # What there is now.

    async def _overview(self, _: web.Request) -> web.Response:
        return _answer(await self.observer.picture())

    async def _clients(self, request: web.Request) -> web.Response:
        return await self._listed("/clients", request)

    async def _subscriptions(self, request: web.Request) -> web.Response:
        return await self._listed("/subscriptions", request)

    async def _listed(self, path: str, request: web.Request) -> web.Response:
        query = request.rel_url.with_path(path).with_query(
            {"search": request.query.get("search", ""), "limit": "100"}
        )
        answers = await self.observer.ask(str(query.relative() if query.absolute else query))
        rows = [{"broker": name, **row} for name, rows in answers.items() for row in rows or ()]
        away = [name for name, rows in answers.items() if rows is None]
        return _answer({"rows": rows[:500], "count": len(rows), "away": away})

    async def _kick(self, request: web.Request) -> web.Response:
        self._operate(request)
        body = await _body(request, client=str)
        answers = await self.observer.ask("/kick", body)
        return _answer({"kicked": [name for name, a in answers.items() if a and a["kicked"]]})

    async def _would(self, request: web.Request) -> web.Response:
        body = await _body(request, broker=str, topic=str, payload=str)
        content = attributes_of(body["topic"], body["payload"].encode())
        answer = await asyncio.to_thread(
            dry_run, self.network, body["broker"], "dashboard", content
        )
        return _answer(answer.to_json())

    # What was recorded.

    async def _recorded(self, question: Callable[[Records], Any]) -> web.Response:
        if self.records is None:
            raise InputError(
                "this network records nothing",
                where=str(self.network.path),
                remedy='add traces = "traces" to it, and restart its brokers',
            )
        async with self._reading:
            return _answer(await asyncio.to_thread(question, self.records))

    async def _publications(self, request: web.Request) -> web.Response:
        search = request.query.get("search", "")
        return await self._recorded(lambda records: records.publications(search))

    async def _topics(self, request: web.Request) -> web.Response:
        search = request.query.get("search", "")
        return await self._recorded(lambda records: records.topics(search))

    async def _way(self, request: web.Request) -> web.Response:
        publication, client = request.query.get("publication", ""), request.query.get("client")
        return await self._recorded(lambda records: records.way(publication, client))

    async def _filter(self, request: web.Request) -> web.Response:
        body = await _body(request, filter=str)
        return await self._recorded(lambda records: records.test(body["filter"]))

    async def _minutes(self, _: web.Request) -> web.Response:
        return await self._recorded(Records.minutes)

    async def _minute(self, request: web.Request) -> web.Response:
        at_us, width_us = _number(request, "at_us"), _number(request, "width_us", MINUTE_US)
        return await self._recorded(lambda records: records.minute(at_us, width_us))

    async def _replay(self, request: web.Request) -> web.Response:
        at_us, width_us = _number(request, "at_us"), _number(request, "width_us", MINUTE_US)
        schemes = request.query.getall("scheme", [])
        if not 1 <= len(schemes) <= 2 or not {*schemes} <= SCHEMES.keys():
            raise InputError(
                f"schemes are {schemes!r}", remedy="name one or two of those there are"
            )
        return await self._recorded(lambda records: records.replay(at_us, width_us, schemes))

    # What to change.

    async def _advice(self, _: web.Request) -> web.Response:
        if self.advice is None:
            raise InputError(
                "no advice is made",
                remedy="run postroad pipeline watch NETWORK -o DIR, and give --watch DIR here",
            )
        return _answer(await asyncio.to_thread(self.advice.cards))

    async def _apply(self, request: web.Request) -> web.Response:
        self._operate(request)
        if self.advice is None:
            raise InputError("no advice is made", remedy="start with --watch DIR")
        body = await _body(request, id=str)
        card = await asyncio.to_thread(self.advice.card, body["id"])
        if card["action"] != "move":
            raise InputError(
                f"a {card['action']} cannot be done while the network runs", remedy=card["how"]
            )
        why_not = await asyncio.to_thread(
            launch.move, self.network, card["publisher"], card["instead"]
        )
        if why_not is not None:
            raise RunFailed(f"{card['publisher']} stays at {card['now']}: {why_not}")
        self.advice.applied(card)
        return _answer({"applied": body["id"]})


def _file(name: str) -> bytes:
    return files("postroad.web").joinpath(name).read_bytes()


def _answer(value: Any) -> web.Response:
    return web.json_response(value)


def _refusal(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)


async def _body(request: web.Request, **fields: type) -> dict[str, Any]:
    """The JSON object of a request, with these fields."""
    try:
        value = json.loads(await request.read())
    except ValueError:
        value = None
    if not isinstance(value, dict) or not all(
        isinstance(value.get(name), kind) for name, kind in fields.items()
    ):
        raise InputError("not a request of this page", remedy=f"give {', '.join(fields)}")
    return {name: value[name] for name in fields}


def _number(request: web.Request, name: str, otherwise: int | None = None) -> int:
    text = request.query.get(name, "" if otherwise is None else str(otherwise))
    if not text.isdecimal():
        raise InputError(f"{name} is {text!r}", remedy="give microseconds")
    return int(text)


def serve(dashboard: Dashboard, host: str, port: int, ready: Callable[[], None]) -> None:
    """Until interrupted."""

    async def run() -> None:
        runner = web.AppRunner(dashboard.application(), access_log=None)
        try:
            await runner.setup()
            try:
                await web.TCPSite(runner, host, port).start()
            except OSError as error:
                reason = error.strerror
                option = "--host"
                if error.errno in (errno.EADDRINUSE, errno.EACCES):
                    reason, option = os.strerror(error.errno), "--port"
                raise RunFailed(
                    f"cannot listen on {host}:{port}: {reason}; choose another {option}"
                ) from None
            ready()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    with suppress(KeyboardInterrupt):
        asyncio.run(run())
