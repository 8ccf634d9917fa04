"""Real processes with TLS between brokers and to clients, and users."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from live_harness import Processes, wait_for, write_network
from postroad.cli import cli
from postroad.errors import RunFailed
from postroad.live import certificates, demo_certificates, users
from postroad.live import link as links
from postroad.live.client import Client


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("guarded")
    users.change(folder / "users.json", "ann", users.made(b"secret", ("#",), ("#",)))
    top = 'tls = "certs"\nusers = "users.json"'
    path = write_network(folder, ["A", "B"], [("A", "B")], top=top, free=True)
    made = CliRunner().invoke(cli, ["certs", "demo", str(path)])
    assert made.exit_code == 0, made.output
    with Processes(path) as running:
        yield running


def trusting(running: Processes) -> ssl.SSLContext:
    assert running.network.tls is not None
    return ssl.create_default_context(cafile=str(running.network.tls / "ca.pem"))


def test_publications_cross_encrypted_links(guarded: Processes) -> None:
    async def talk() -> bytes:
        known = {"username": "ann", "password": "secret", "tls": trusting(guarded)}
        async with (
            Client("127.0.0.1", guarded.mqtt("A"), **known) as near,
            Client("127.0.0.1", guarded.mqtt("B"), **known) as far,
        ):
            await far.subscribe("t", where="x > 1")
            await near.publish("t", b'{"x": 2}', qos=1)
            async for message in far:
                return message.payload
        raise AssertionError

    assert asyncio.run(asyncio.wait_for(talk(), 30)) == b'{"x": 2}'


def test_wrong_password_and_unknown_authority_are_refused(guarded: Processes) -> None:
    async def connect(**options: object) -> None:
        async with Client("127.0.0.1", guarded.mqtt("A"), **options):  # type: ignore[arg-type]
            pass

    known = {"username": "ann", "password": "wrong"}
    with pytest.raises(RunFailed, match="wrong password"):
        asyncio.run(connect(tls=trusting(guarded), **known))
    with pytest.raises(RunFailed, match="certificate"):
        asyncio.run(connect(tls=ssl.create_default_context(), **known))
    assert "wrong password" in guarded.log("A")
    wait_for(lambda: "TLS: " in guarded.log("A"))


def answer(context: ssl.SSLContext, port: int, data: bytes) -> bytes:
    """What a broker says to these bytes; nothing if it closes the connection."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 5) as raw,
            context.wrap_socket(raw) as made,
        ):
            made.sendall(data)
            return made.recv(1000)
    except OSError:
        return b""


def test_peers_without_the_right_certificate_are_refused(guarded: Processes) -> None:
    assert guarded.network.tls is not None
    port = guarded.network.addresses[0].link
    hello = links.pack(links.Hello(links.SPEAKS[1], guarded.network.identity, 1, "x.0", "", 0))
    none = trusting(guarded)
    none.check_hostname = False
    assert answer(none, port, hello) == b""
    wait_for(lambda: "peer did not return a certificate" in guarded.log("A"))
    # One of the authority's, that says it is another broker.
    wrong = certificates.for_peers(guarded.network.tls, "A", True)
    assert b"its certificate is for" in answer(wrong, port, hello)
    wait_for(lambda: "its certificate is for" in guarded.log("A"))
    # The right name, by another authority.
    foreign = guarded.path.parent / "foreign"
    demo_certificates.write(foreign, guarded.network.name, {"B": "127.0.0.1"})
    stranger = certificates.for_peers(foreign, "B", True)
    stranger.verify_mode = ssl.CERT_NONE
    assert answer(stranger, port, hello) == b""
    wait_for(lambda: "certificate verify failed" in guarded.log("A"))
