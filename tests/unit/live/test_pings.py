"""The way to another broker, measured by connecting to it."""

from __future__ import annotations

import asyncio
import socket

from postroad.live.server import one_way_us


def test_a_way_is_half_of_what_connecting_takes() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listening:
        host, port = listening.getsockname()
        us = asyncio.run(one_way_us(host, port))
    assert us is not None
    assert 0 <= us < 500_000  # half of the second after which nobody would have answered


def test_nobody_answers() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        host, port = bound.getsockname()
        assert asyncio.run(one_way_us(host, port)) is None
