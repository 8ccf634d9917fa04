"""Asking all brokers of a network at once, as an operator.

Observer are asked when a page asks, at most once in `REFRESH_S` for all pages together: a network
that nobody looks at is not asked at all.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

import aiohttp

from postroad.errors import RunFailed
from postroad.live.network import Network
from postroad.live.operations.launch import credentials
from postroad.web.picture import Drawing, Reading, drawing, picture

REFRESH_S = 1.0
PATIENCE_S = 3.0
KEPT = 120  # readings, from which the page draws its lines
_SHOWN = ("published", "delivered", "dropped", "messages")


class Observer:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.shape: Drawing = drawing(network)
        self.session: aiohttp.ClientSession | None = None
        self._last: Reading | None = None
        self._picture: dict[str, Any] = {}
        self._asking: asyncio.Task[dict[str, Any]] | None = None
        self._lines: deque[dict[str, float]] = deque(maxlen=KEPT)

    async def open(self) -> None:
        # Each request is a connection: brokers answer one and close.
        connector = aiohttp.TCPConnector(limit=64, force_close=True)
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        self.session = aiohttp.ClientSession(connector=connector, timeout=timeout)

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()

    async def picture(self) -> dict[str, Any]:
        """What there is to draw; all who ask at one time get one answer."""
        if self._last is not None and time.monotonic() - self._last.time_s < REFRESH_S:
            return self._picture
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._look())
        return await asyncio.shield(self._asking)

    async def _look(self) -> dict[str, Any]:
        answers = await self.ask("/status")
        now = Reading(time.monotonic(), answers)
        shown = picture(self.network, self.shape, self._last, now)
        rates = shown["totals"]["rates"]
        if rates is not None:
            self._lines.append({"time_s": time.time(), **{n: rates[n] for n in _SHOWN}})
        shown["lines"] = list(self._lines)
        self._last, self._picture = now, shown
        return shown

    async def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """What every broker answers; None of one that does not."""
        names = self.network.member_names
        answers = await asyncio.gather(*(self.ask_one(name, path, body) for name in names))
        return dict(zip(names, answers, strict=True))

    async def ask_one(self, name: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """`RunFailed` if the broker refuses."""
        assert self.session is not None
        network = self.network
        url = f"{network.addresses[network.number(name)].url}{path}"
        headers = credentials(network)
        try:
            method = "GET" if body is None else "POST"
            async with self.session.request(method, url, json=body, headers=headers) as answer:
                if answer.status != 200:
                    raise RunFailed(f"broker {name} refuses: {(await answer.text()).strip()}")
                row = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None
        if path == "/status" and (row["network"], row["broker"]) != (network.name, name):
            return None  # another network has this port now
        return row
