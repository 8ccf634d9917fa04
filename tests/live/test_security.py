"""Real processes with TLS between brokers and to clients, and users."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from live_harness import Processes, environment, wait_for, write_network
from postroad.cli import cli
from postroad.errors import RunFailed
from postroad.live.client import Client
from postroad.live.edge import users
from postroad.live.links import certificates
from postroad.live.links import link as links
from postroad.live.network import load
from postroad.live.operations import demo_certificates


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("guarded")
    users.change(folder / "users.json", "ann", users.new_user(b"secret", ("#",), ("#",)))
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


def test_websockets_are_encrypted_on_the_same_port(guarded: Processes) -> None:
    import paho.mqtt.client as paho

    answers: list[str] = []
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2, transport="websockets", protocol=paho.MQTTv5
    )
    client.on_connect = lambda c, u, f, reason, p: answers.append(str(reason))
    client.username_pw_set("ann", "secret")
    client.tls_set_context(trusting(guarded))
    client.connect("127.0.0.1", guarded.mqtt("A"))
    client.loop_start()
    try:
        wait_for(lambda: answers)
    finally:
        client.disconnect()
        client.loop_stop()
    assert answers == ["Success"]


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


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Brokers with users and a secret, and without TLS."""
    folder = tmp_path_factory.mktemp("sharing")
    users.change(folder / "users.json", "ann", users.new_user(b"secret", ("#",), ("#",)))
    top = 'users = "users.json"\nsecret = "key"'
    path = write_network(folder, ["A", "B"], [("A", "B")], top=top, free=True)
    made = CliRunner().invoke(cli, ["network", "secret", str(path)])
    assert made.exit_code == 0, made.output
    with Processes(path) as running:
        yield running


def test_users_without_tls_or_secret_are_refused_at_the_start(tmp_path: Path) -> None:
    users.change(tmp_path / "users.json", "ann", users.new_user(b"secret", ("#",), ("#",)))
    path = write_network(tmp_path, ["A", "B"], [("A", "B")], top='users = "users.json"', free=True)
    command = [sys.executable, "-m", "postroad"]
    for words in (["broker", "--network", str(path), "--id", "A"], ["network", "up", str(path)]):
        ended = subprocess.run(
            [*command, *words], env=environment(), capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert ended.returncode == 2
        (line,) = ended.stderr.splitlines()
        assert "anyone may pose as a broker" in line
        assert "postroad network secret" in line


def test_who_does_not_know_the_secret_is_no_broker(sharing: Processes) -> None:
    identity = sharing.network.identity
    address = ("127.0.0.1", sharing.network.addresses[1].link)
    for proof in (b"", bytes(32)):
        with socket.create_connection(address, 20) as made:
            hello = links.Hello(
                links.SPEAKS[1], identity, 0, "x.0", "", 0, nonce=bytes(32), proof=proof
            )
            made.sendall(links.pack(hello))
            heard = bytearray()
            while data := made.recv(1 << 16):
                heard += data
        frames = links.unpack(heard)
        assert [type(frame) for frame in frames] == [links.Challenge, links.Bye]
    row = sharing.status("B")
    assert row is not None
    assert row["links"]["A"]["connected"]


def test_operators_list_and_disconnect_clients_with_the_secret_only(sharing: Processes) -> None:
    path = str(sharing.path)

    def told(*words: str) -> Any:
        ran = CliRunner().invoke(cli, ["network", *words])
        assert ran.exit_code in (0, 1), ran.output
        return ran

    async def work() -> None:
        async with Client(
            "127.0.0.1", sharing.mqtt("B"), client_id="sensor-7", username="ann", password="secret"
        ) as client:
            await client.subscribe("quotes/+", where="price > 10", qos=1)
            await client.subscribe("$share/g/quotes/+")
            listed = await asyncio.to_thread(told, "clients", path, "--search", "sensor", "--json")
            (row,) = json.loads(listed.output)
            assert (row["broker"], row["client"], row["user"]) == ("B", "sensor-7", "ann")
            assert (row["connected"], row["subscriptions"], row["mqtt"]) == (True, 2, "5")
            held = await asyncio.to_thread(
                told, "subscriptions", path, "--search", "price", "--json"
            )
            (row,) = json.loads(held.output)
            assert (row["topic"], row["qos"], row["client"]) == ("quotes/+", 1, "sensor-7")
            table = await asyncio.to_thread(told, "clients", path)
            assert "sensor-7" in table.output
            gone = await asyncio.to_thread(told, "kick", path, "sensor-7", "--reason", "too loud")
            assert "disconnected at B" in gone.output
            with pytest.raises(RunFailed, match="too loud"):
                await anext(aiter(client))

    asyncio.run(asyncio.wait_for(work(), 60))
    again = told("kick", path, "sensor-7")
    assert (again.exit_code, "not connected" in again.output) == (1, True)
    address = sharing.network.addresses[0]
    for where, data, token in (
        ("/clients", None, None),
        ("/subscriptions", None, "0" * 64),
        ("/kick", b'{"client": "sensor-7"}', None),
        ("/move", b'{"publisher": "sensor-7", "broker": "A"}', None),
        ("/traces", None, None),
    ):
        url = f"http://127.0.0.1:{address.http}{where}"
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=10)
    log = sharing.log("B")
    assert '"what": "client connected", "client": "sensor-7", "user": "ann"' in log
    assert '"reason": "too loud"' in log
    metrics = sharing.get("B", "/metrics")
    for name in (
        "postroad_received_bytes_total", "postroad_sent_bytes_total", "postroad_waiting",
        "postroad_in_flight", "postroad_delivery_latency_seconds_bucket", "postroad_moves_total",
        "postroad_loop_lag_seconds", "postroad_uptime_seconds", "process_resident_memory_bytes",
    ):  # fmt: skip
        assert f"\n{name}" in metrics, name


def test_an_operator_sends_a_publisher_to_another_broker(sharing: Processes) -> None:
    """While it publishes at quality 1: all arrives, at least once."""

    def move(publisher: str, broker: str) -> str:
        words = ["network", "move", str(sharing.path), publisher, broker]
        ran = CliRunner().invoke(cli, words)
        assert ran.exit_code == ("goes to" not in ran.output), ran.output
        return ran.output

    async def work() -> None:
        known = {"username": "ann", "password": "secret"}
        async with (
            Client("127.0.0.1", sharing.mqtt("A"), client_id="desk", **known) as desk,
            Client("127.0.0.1", sharing.mqtt("A"), client_id="feed", **known) as feed,
        ):
            await desk.subscribe("quotes/#", qos=1)

            async def publish() -> None:
                for number in range(200):
                    await feed.publish(f"quotes/{number}", b"{}", qos=1)

            publishing = asyncio.create_task(publish())
            answers = [
                await asyncio.to_thread(move, name, broker)
                for name, broker in (("feed", "B"), ("desk", "B"), ("nobody", "B"))
            ]
            await publishing
            wanted = {f"quotes/{number}" for number in range(200)}
            async for message in desk:
                wanted.discard(message.topic)
                if not wanted:
                    break
            answers.append(await asyncio.to_thread(move, "feed", "B"))
            assert feed.port == sharing.mqtt("B")
            for answer, words in zip(
                answers,
                ("goes to B", "has subscriptions", "no broker has it connected", "it is there"),
                strict=True,
            ):
                assert words in answer

    asyncio.run(asyncio.wait_for(work(), 60))


@pytest.mark.parametrize("port", ["link", "http"])
def test_idle_strangers_starve_neither_status_nor_brokers(sharing: Processes, port: str) -> None:
    address = ("127.0.0.1", getattr(sharing.network.addresses[1], port))
    held: list[socket.socket] = []
    try:
        for number in range(300):
            held.append(socket.create_connection(address, 20))
            if number % 3 == 0:
                with suppress(OSError):  # closed already to make room
                    held[-1].sendall(b"\0\0\1\0half a frame" if port == "link" else b"GET /st")
        assert sharing.status("B") is not None
        sharing.running["A"].kill()
        sharing.running["A"].join()
        sharing.start("A")
        sharing.wait_linked()
        open_files = len(os.listdir(f"/proc/{sharing.running['B'].pid}/fd"))
        assert open_files < 200, "what strangers hold open is bounded"
    finally:
        for made in held:
            made.close()
    assert sharing.log("B").count("too many connections that say nothing") <= 50


def test_clients_that_use_up_open_files_leave_some_for_status(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A"], [], free=True)
    address = load(path).addresses[0]

    def ask() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{address.http}/healthz", timeout=10):
                return True
        except OSError:
            assert process.poll() is None
            return False

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    command = [sys.executable, "-m", "postroad", "broker", "--network", str(path), "--id", "A"]
    process = subprocess.Popen(
        command, env=environment(), stderr=subprocess.DEVNULL, preexec_fn=few_files
    )
    held: list[socket.socket] = []
    try:
        wait_for(ask, 60)
        there = ("127.0.0.1", address.mqtt)
        held += [socket.create_connection(there, 20) for _ in range(200)]
        assert ask()
    finally:
        for made in held:
            made.close()
        process.kill()
        process.wait()
