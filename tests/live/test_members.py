"""A broker is added to a network of real processes, and another removed, by command."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from live_harness import environment, free_ports, write_network
from postroad.cli import cli
from postroad.live.client import Client
from postroad.live.network import load

LINKS = [("A", "B"), ("B", "C"), ("A", "C")]


def run(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["network", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


async def carries(path: Path, publisher: str, subscriber: str) -> None:
    network = load(path)
    ports = [network.addresses[network.number(name)].mqtt for name in (publisher, subscriber)]
    async with Client("127.0.0.1", ports[1]) as far, Client("127.0.0.1", ports[0]) as near:
        await far.subscribe("t/#", qos=1)
        await near.publish("t/a", b"hello", qos=1)
        message = await asyncio.wait_for(anext(aiter(far)), 10)
        assert (message.topic, message.payload) == ("t/a", b"hello")


def test_brokers_come_and_go_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    path = write_network(tmp_path, ["A", "B", "C"], LINKS, free=True, top='store = "s"')
    run("up", str(path))
    try:
        mqtt, link, http = map(str, free_ports(3))
        ports = ["--mqtt", mqtt, "--link", link, "--http", http]
        told = run("add", str(path), "D", "--to", "A", "--to", "B", *ports)
        assert told == "D is added and runs\n"
        asyncio.run(carries(path, "D", "C"))
        assert run("remove", str(path), "B") == "B is stopped and removed\n"
        asyncio.run(carries(path, "C", "D"))
        assert "no answer" not in run("status", str(path))
    finally:
        assert run("down", str(path)) == "3 brokers stopped\n"
