"""Real processes that are told to stop, or to read their configuration again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from live_harness import Processes, environment, wait_for, write_network
from postroad.cli import cli
from postroad.errors import InputError, RunFailed
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
                    with pytest.raises(RunFailed, match="server shutting down"):
                        await task
                await asyncio.sleep(0.2)
                return acknowledged, far._inbox.qsize()

        acknowledged, received = asyncio.run(asyncio.wait_for(load(), 30))
        running.running["A"].join(10)
        assert running.running["A"].exitcode == 0, running.log("A")
        assert received >= acknowledged >= 200
        assert "not all could be passed on" not in running.log("A")
        assert running.get("B", "/healthz") == "ok\n"


def test_subscribe_ends_well_if_interrupted_and_says_if_the_broker_stops(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A"], [], free=True)
    with Processes(path) as running:
        command = [sys.executable, "-m", "postroad", "subscribe"]
        command += ["--broker", f"127.0.0.1:{running.mqtt('A')}"]
        interrupted, left = (
            subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        )
        for process in (interrupted, left):
            assert process.stderr is not None
            assert process.stderr.readline().startswith("subscribed to #")
        interrupted.send_signal(signal.SIGINT)
        assert interrupted.communicate(timeout=30)[1] == ""
        assert interrupted.returncode == 0
        running.running["A"].terminate()
        said = left.communicate(timeout=30)[1]
        assert said == "postroad: the broker ended the connection: server shutting down (0x8B)\n"
        assert left.returncode == 1


def test_a_text_or_topic_that_no_packet_carries_is_wrong_usage(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A"], [], free=True)
    with Processes(path) as running:
        for words, complaint in (
            (["subscribe", "quotes/#/x"], "# in 'quotes/#/x' is not the last level; write # alone"),
            (["subscribe", ""], "'' is no topic filter; name a topic"),
            (["subscribe", "$share/g"], "'$share/g' is no shared subscription"),
            (["subscribe", "q", "--client", "c" * 70_000], "identifier has 70,000 bytes; use at"),
            (["subscribe", "q", "--user", "u" * 70_000], "the user's name has 70,000 bytes"),
            (["subscribe", "q", "--where", "x" * 70_000], "the content filter has 70,000 bytes"),
            (["subscribe", "q\udcff"], r"the topic filter is 'q\udcff'; write it as UTF-8"),
            (["publish", "quotes/+", "x"], "'quotes/+' is no topic to publish to; name one"),
            (["publish", "", "x"], "'' is no topic to publish to"),
            (["publish", "q" * 70_000, "x"], "the topic has 70,000 bytes"),
        ):
            options = ["--broker", f"127.0.0.1:{running.mqtt('A')}"]
            done = CliRunner().invoke(cli, [*words, *options])
            assert isinstance(done.exception, InputError), words  # which `main` exits with 2 for
            assert complaint in str(done.exception), words


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
                with pytest.raises(Exception, match="not authorized"):
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
