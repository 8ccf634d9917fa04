"""Real processes that are told to stop, or to read their configuration again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from live_harness import Processes, wait_for, write_network
from postroad.errors import RunFailed
from postroad.live.client import Client
from postroad.live.edge import users
from postroad.live.operations import demo_certificates


def test_sigterm_under_load_loses_nothing_that_was_taken(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A", "B"], [("A", "B")], free=True)
    with Processes(path) as running:

        async def load() -> tuple[int, int]:
            async with Client("127.0.0.1", running.mqtt("B")) as far:
                await far.subscribe("t", qos=1)
                acknowledged = 0

                async def publish() -> None:
                    nonlocal acknowledged
                    async with Client("127.0.0.1", running.mqtt("A")) as near:
                        while True:
                            await near.publish("t", b"%d" % acknowledged, qos=1)
                            acknowledged += 1

                publishing = [asyncio.create_task(publish()) for _ in range(3)]
                while acknowledged < 200:
                    await asyncio.sleep(0.01)
                running.running["A"].terminate()
                for task in publishing:
                    with pytest.raises(RunFailed, match="SERVER_SHUTTING_DOWN"):
                        await task
                await asyncio.sleep(0.2)
                return acknowledged, far._inbox.qsize()

        acknowledged, received = asyncio.run(asyncio.wait_for(load(), 30))
        running.running["A"].join(10)
        assert running.running["A"].exitcode == 0, running.log("A")
        assert received >= acknowledged >= 200
        assert "not all could be passed on" not in running.log("A")
        assert running.get("B", "/healthz") == "ok\n"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("guarded")
    for name in ("ann", "bob"):
        users.change(folder / "users.json", name, users.new_user(b"secret", ("#",), ("#",)))
    top = 'tls = "certs"\nusers = "users.json"'
    path = write_network(folder, ["A"], [], top=top, free=True)
    demo_certificates.write(folder / "certs", "test", {"A": "127.0.0.1"})
    with Processes(path) as running:
        yield running


def reload(running: Processes) -> None:
    before = running.status("A")
    assert before is not None
    os.kill(running.running["A"].pid, signal.SIGHUP)
    wait_for(lambda: (running.status("A") or before)["reloads"] > before["reloads"])


def authority(running: Processes) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(running.path.parent / "certs" / "ca.pem"))


def shown(running: Processes) -> bytes:
    """The certificate that a newcomer is shown."""
    none = ssl.create_default_context()
    none.check_hostname, none.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", running.mqtt("A")), timeout=10) as raw,
        none.wrap_socket(raw) as wrapped,
    ):
        certificate = wrapped.getpeercert(binary_form=True)
        assert certificate
        return certificate


def test_new_certificates_and_users_are_taken_up_and_nobody_is_dropped(
    guarded: Processes,
) -> None:
    folder = guarded.path.parent

    async def talk() -> None:
        port, old = guarded.mqtt("A"), authority(guarded)
        first = shown(guarded)
        word = {"password": "secret", "tls": old}
        async with Client("127.0.0.1", port, username="ann", **word) as staying:
            await staying.subscribe("t")
            demo_certificates.write(folder / "certs", "test", {"A": "127.0.0.1"})
            ann = users.load(folder / "users.json").users["ann"]
            users.change(folder / "users.json", "ann", replace(ann, publish=("t",)))
            users.change(folder / "users.json", "bob", None)
            await asyncio.to_thread(reload, guarded)
            assert await asyncio.to_thread(shown, guarded) != first
            with pytest.raises(RunFailed, match="CERTIFICATE_VERIFY_FAILED"):
                async with Client("127.0.0.1", port, username="ann", **word):
                    pass
            word["tls"] = authority(guarded)
            with pytest.raises(RunFailed, match="wrong password"):
                async with Client("127.0.0.1", port, username="bob", **word):
                    pass
            async with Client("127.0.0.1", port, username="ann", **word) as newcomer:
                await newcomer.publish("t", b"hello")
                async for message in staying:
                    assert message.payload == b"hello"
                    break
                with pytest.raises(Exception, match="NOT_AUTHORIZED"):
                    await newcomer.publish("u", qos=1)

    asyncio.run(asyncio.wait_for(talk(), 30))


def test_a_wrong_file_changes_nothing(guarded: Processes) -> None:
    before, text = shown(guarded), guarded.path.read_text()
    key = guarded.path.parent / "certs" / "A.key"
    kept = key.read_bytes()
    wrong = [
        lambda: guarded.path.write_text(text.replace("subscription_forwarding", "flooding")),
        lambda: guarded.path.write_text(text + "\n[limits]\npacket_byte = 1\n"),
        lambda: key.write_bytes(b"nonsense"),
    ]
    for damage in wrong:
        damage()
        reload(guarded)
        status = guarded.status("A")
        assert status is not None
        assert status["reload_error"]
        guarded.path.write_text(text)
    key.write_bytes(kept)
    assert shown(guarded) == before
    log = guarded.log("A")
    assert "cannot change while a broker runs" in log
    assert "packet_byte" in log
    assert "no certificate for broker" in log
    reload(guarded)
    status = guarded.status("A")
    assert status is not None
    assert status["reload_error"] is None
