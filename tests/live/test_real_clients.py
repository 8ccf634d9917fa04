"""Three brokers as processes; mosquitto's clients, paho, our own client and commands."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from live_harness import (
    Processes,
    environment,
    free_ports,
    need_mosquitto,
    need_mqttjs,
    wait_for,
    write_network,
)
from postroad import api
from postroad.errors import InputError
from postroad.live.client import Client
from postroad.live.network import load
from postroad.live.operations import launch
from postroad.traces.schema import KINDS

CHROMIUM = shutil.which("chromium")
TRACES = 'traces = { folder = "traces", file_s = 0.2 }'


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("chain")
    links = [("A", "B"), ("B", "C")]
    with Processes(write_network(folder, ["A", "B", "C"], links, free=True, top=TRACES)) as running:
        yield running


def subscriptions(chain: Processes, name: str) -> int:
    told = chain.status(name)
    assert told is not None
    count: int = told["subscriptions"]
    return count


@pytest.mark.parametrize("level", ["5", "311"])
def test_mosquitto_pub_and_sub(chain: Processes, level: str) -> None:
    need_mosquitto()
    where = ["-D", "subscribe", "user-property", "$where", "price > 10 AND symbol = 'IBM'"]
    command = ["mosquitto_sub", "-V", level, "-p", str(chain.mqtt("C")), "-t", f"q{level}/+"]
    command += ["-q", "2", "-C", "1", "-W", "20", "-v", *(where if level == "5" else [])]
    before = subscriptions(chain, "C")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listening:
        wait_for(lambda: subscriptions(chain, "C") > before)
        wait_for(lambda: (chain.status("A") or {})["table_entries"] > 0)
        rows = [{"symbol": "IBM", "price": 5}] if level == "5" else []
        for row in [*rows, {"symbol": "IBM", "price": 12.5}]:
            subprocess.run(
                ["mosquitto_pub", "-V", level, "-p", str(chain.mqtt("A")), "-q", "2",
                 "-t", f"q{level}/ibm", "-m", json.dumps(row)],
                check=True, timeout=20,
            )  # fmt: skip
        out, _ = listening.communicate(timeout=30)
    assert out == f'q{level}/ibm {{"symbol": "IBM", "price": 12.5}}\n'
    assert "postroad_link_messages_total" in chain.get("B", "/metrics")


def test_paho_with_filter_properties_and_refusal(chain: Processes) -> None:
    import paho.mqtt.client as paho
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    got: list[tuple[str, bytes]] = []
    answers: list[Any] = []
    ready = threading.Event()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho", protocol=paho.MQTTv5)
    client.on_message = lambda _c, _u, message: got.append((message.topic, message.payload))

    def on_subscribe(_c: Any, _u: Any, _mid: int, codes: list[Any], properties: Any) -> None:
        answers.append((codes[0].value, getattr(properties, "ReasonString", None)))
        ready.set()

    client.on_subscribe = on_subscribe
    client.connect("127.0.0.1", chain.mqtt("B"))
    client.loop_start()
    try:
        for text in ("x >", "x > 1"):
            ready.clear()
            properties = Properties(PacketTypes.SUBSCRIBE)
            properties.UserProperty = ("$where", text)
            client.subscribe("paho/#", qos=1, properties=properties)
            assert ready.wait(10)
        assert answers[0][0] == 0x83
        assert "$where" in answers[0][1]
        assert answers[1][0] == 1
        told = Properties(PacketTypes.PUBLISH)
        told.UserProperty = ("x", "2")
        client.publish("paho/a", b"no filter can read this", qos=1, properties=told)
        client.publish("paho/b", b'{"x": 0}', qos=1)
        wait_for(lambda: got)
        client.publish("paho/c", b'{"x": 7}', qos=0)
        wait_for(lambda: len(got) == 2)
    finally:
        client.disconnect()
        client.loop_stop()
    assert got == [("paho/a", b"no filter can read this"), ("paho/c", b'{"x": 7}')]


def test_paho_over_websocket_at_quality_2(chain: Processes) -> None:
    import paho.mqtt.client as paho

    got: list[tuple[str, bytes, int]] = []
    granted = threading.Event()
    clients = []
    for name in ("C", "A"):
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, transport="websockets", protocol=paho.MQTTv5
        )
        client.on_message = lambda c, u, m: got.append((m.topic, m.payload, m.qos))
        client.on_subscribe = lambda c, u, m, codes, p: granted.set()
        client.connect("127.0.0.1", chain.mqtt(name))
        client.loop_start()
        clients.append(client)
    subscriber, publisher = clients
    try:
        wait_for(subscriber.is_connected)
        subscriber.subscribe("web/#", qos=2)
        assert granted.wait(20)
        large = b"x" * 70_000  # a frame with a long length
        for payload in (b"small", large):
            publisher.publish("web/t", payload, qos=2).wait_for_publish(20)
        wait_for(lambda: len(got) == 2)
    finally:
        for client in clients:
            client.disconnect()
            client.loop_stop()
    assert got == [("web/t", b"small", 2), ("web/t", large, 2)]


def test_aiomqtt_with_filter_properties_and_refusal(chain: Processes) -> None:
    aiomqtt = pytest.importorskip("aiomqtt", reason="aiomqtt is not installed")
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    def properties(kind: int, *pairs: tuple[str, str]) -> Properties:
        made = Properties(kind)
        made.UserProperty = list(pairs)
        return made

    async def talk() -> list[tuple[str, bytes]]:
        five = {"protocol": aiomqtt.ProtocolVersion.V5}
        async with (
            aiomqtt.Client("127.0.0.1", chain.mqtt("C"), **five) as far,
            aiomqtt.Client("127.0.0.1", chain.mqtt("A"), **five) as near,
        ):
            wrong = properties(PacketTypes.SUBSCRIBE, ("$where", "price >"))
            (code,) = await far.subscribe("aio/#", properties=wrong)
            assert code.value == 0x83
            where = properties(PacketTypes.SUBSCRIBE, ("$where", "price > 10"))
            (code,) = await far.subscribe("aio/#", qos=1, properties=where)
            assert code.value == 1
            for price in (5, 15):
                await near.publish("aio/json", b'{"price": %d}' % price, qos=1)
            dear = properties(PacketTypes.PUBLISH, ("price", "20"))
            await near.publish("aio/property", b"20", properties=dear)
            got: list[tuple[str, bytes]] = []
            async for message in far.messages:
                got.append((str(message.topic), message.payload))
                if len(got) == 2:
                    break
            return got

    assert asyncio.run(asyncio.wait_for(talk(), 30)) == [
        ("aio/json", b'{"price": 15}'),
        ("aio/property", b"20"),
    ]


ROUND_TRIP = """
async ({mqtt, here, there, protocolVersion}) => {
  const name = protocolVersion + '/' + here.split(':')[0];
  const options = {protocolVersion, connectTimeout: 60000};
  const [subscriber, publisher] = await Promise.all([
    mqtt.connectAsync(there, {...options, clientId: 'js-s/' + name}, false),
    mqtt.connectAsync(here, {...options, clientId: 'js-p/' + name}, false)]);
  const got = [];
  const all = new Promise(done => subscriber.on('message', (topic, payload, packet) => {
    got.push([topic, payload.toString(), packet.qos]);
    if (got.length === 3) done();
  }));
  const properties = protocolVersion === 5 ? {userProperties: {$where: 'n > 0'}} : undefined;
  await subscriber.subscribeAsync('js/' + name + '/#', {qos: 2, properties});
  for (const qos of [0, 1, 2]) {
    if (protocolVersion === 5) await publisher.publishAsync('js/' + name + '/x', '{"n": 0}', {qos});
    await publisher.publishAsync('js/' + name + '/' + qos, '{"n": 1}', {qos});
  }
  await all;
  await Promise.all([subscriber.endAsync(), publisher.endAsync()]);
  return got;
}
"""


def js_rows(level: int, scheme: str) -> list[list[Any]]:
    return [[f"js/{level}/{scheme}/{qos}", '{"n": 1}', qos] for qos in range(3)]


@pytest.mark.parametrize("level", [5, 4])
def test_mqttjs_in_node_at_all_qualities(chain: Processes, level: int) -> None:
    folder = need_mqttjs()
    where = {"here": f"mqtt://127.0.0.1:{chain.mqtt('A')}"}
    where["there"] = f"mqtt://127.0.0.1:{chain.mqtt('C')}"
    program = (
        f"({ROUND_TRIP})({{mqtt: require('mqtt'), protocolVersion: {level},"
        f" ...{json.dumps(where)}}}).then(got => console.log(JSON.stringify(got)))"
    )
    done = subprocess.run(
        ["node", "-e", program], env={**os.environ, "NODE_PATH": str(folder)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == js_rows(level, "mqtt")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_mqttjs_in_a_browser_over_websocket(chain: Processes, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    folder = need_mqttjs()
    # Browsers let pages of this machine connect to it, and no others.
    pages = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), pages) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{server.server_port}/")
            page.add_script_tag(path=str(folder / "mqtt" / "dist" / "mqtt.min.js"))
            where = {"here": f"ws://127.0.0.1:{chain.mqtt('A')}/mqtt", "protocolVersion": 5}
            where["there"] = f"ws://127.0.0.1:{chain.mqtt('C')}/mqtt"
            rows = page.evaluate(f"where => ({ROUND_TRIP})({{mqtt, ...where}})", where)
        finally:
            browser.close()
            server.shutdown()
    assert rows == js_rows(5, "ws")


def test_own_client_and_commands(chain: Processes) -> None:
    async def talk() -> list[bytes]:
        async with (
            Client("127.0.0.1", chain.mqtt("A")) as near,
            Client("127.0.0.1", chain.mqtt("C")) as far,
        ):
            await far.subscribe("own/#", where="n >= 3", qos=1)
            with pytest.raises(InputError, match=r"\$where"):
                await far.subscribe("own/x", where="n >=")
            for number in range(6):
                await near.publish("own/t", b'{"n": %d}' % number, qos=1)
            command = [sys.executable, "-m", "postroad", "publish"]
            command += ["--broker", f"127.0.0.1:{chain.mqtt('B')}", "own/c", '{"n": 9}']
            made = await asyncio.create_subprocess_exec(*command, env=environment())
            assert await made.wait() == 0
            found = []
            async for message in far:
                found.append(message.payload)
                if len(found) == 4:
                    break
            return found

    found = asyncio.run(asyncio.wait_for(talk(), 60))
    assert found == [b'{"n": 3}', b'{"n": 4}', b'{"n": 5}', b'{"n": 9}']


def test_traces_are_rows_of_the_pipelines_table(chain: Processes) -> None:
    from postroad.pipeline.schemas import TRACES as TABLE

    async def talk() -> None:
        async with (
            Client("127.0.0.1", chain.mqtt("A"), client_id="tracer") as near,
            Client("127.0.0.1", chain.mqtt("C")) as far,
        ):
            await far.subscribe("traced")
            await near.publish("traced", b"x", qos=1)
            async for _ in far:
                return

    asyncio.run(asyncio.wait_for(talk(), 60))
    mine: list[dict[str, Any]] = []
    kinds = {"publish", "send", "receive", "deliver"}
    for _ in range(1000):  # a broker writes to its client first, and completes its file later
        rows = [
            json.loads(line)
            for path in (chain.path.parent / "traces").glob("traces-*.jsonl")
            for line in path.read_text().splitlines()
        ]
        mine = [row for row in rows if row.get("publisher") == "tracer"]
        if {row["kind"] for row in mine} == kinds:
            break
        time.sleep(0.05)
    assert {row["kind"] for row in mine} == kinds
    for row in rows:
        assert row["kind"] in KINDS
        assert set(row) <= set(TABLE.names)
        assert all(field.nullable or field.name in row for field in TABLE.fields)
    (delivery,) = [row for row in mine if row["kind"] == "deliver"]
    assert (delivery["broker"], delivery["hops"]) == ("C", 2)
    assert delivery["time_us"] >= delivery["published_us"]


def test_network_up_status_and_down(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A", "B"], [("A", "B")], free=True)

    def postroad(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "postroad", "network", *words, str(path)]
        return subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=60, check=False
        )

    try:
        started = postroad("up")
        assert started.returncode == 0, started.stderr
        again = postroad("up")
        assert again.returncode == 0
        assert again.stdout.startswith("all brokers of 'test' are running already\n")
        with pytest.raises(InputError, match="are running already"), api.network(path):
            pass  # which would stop what somebody else has started
        told = json.loads(postroad("status", "--json").stdout)
        assert all(told[name]["links"] for name in "AB")
        text = path.read_text()
        path.write_text(text.replace("[parameters]", "[limits]\npacket_bytes = 5000\n[parameters]"))
        assert postroad("reload").stdout == "2 brokers have taken it up\n"
        path.write_text(text.replace('"test"', '"other"'))
        refused = postroad("reload")
        assert refused.returncode == 1
        assert "goes on as before" in refused.stderr
        assert "name cannot change while a broker runs" in refused.stderr
        path.write_text(text.replace("[parameters]", "[limit]\n[parameters]"))
        assert postroad("reload").returncode == 2
        path.write_text(text)
        # The one that died is started again, and the other stays as it is.
        pids = {name: told[name]["pid"] for name in "AB"}
        os.kill(pids["B"], signal.SIGKILL)
        network = load(path)
        wait_for(lambda: launch.status(network)["B"] is None)
        partly = postroad("reload")
        assert partly.returncode == 1
        assert partly.stdout.splitlines() == [
            "1 broker has taken it up",
            "not running here: B; send them SIGHUP where they run",
        ]
        assert postroad("up").returncode == 0
        told = json.loads(postroad("status", "--json").stdout)
        assert told["A"]["pid"] == pids["A"]
        assert told["B"]["pid"] != pids["B"]
        # One that was started by hand is reloaded like the others.
        os.kill(told["B"]["pid"], signal.SIGKILL)
        command = [sys.executable, "-m", "postroad", "broker", "--network", str(path), "--id", "B"]
        with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as by_hand:
            try:
                wait_for(lambda: launch.status(network)["B"] is not None)
                assert postroad("reload").stdout == "2 brokers have taken it up\n"
            finally:
                by_hand.kill()
        # If something has a port of the one that is to be started, the others run on.
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", load(path).addresses[1].link))
            taken.listen()
            failed = postroad("up")
        assert failed.returncode == 1
        assert "cannot listen" in failed.stderr
        assert json.loads(postroad("status", "--json").stdout)["A"]["pid"] == pids["A"]
    finally:
        stopped = postroad("down")
    assert stopped.stdout == "1 broker stopped\n"
    gone = postroad("status")
    assert gone.returncode == 1
    assert "no answer" in gone.stdout


def test_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A"], [], free=True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = path.read_text()
        first = next(line for line in text.splitlines() if line.startswith("mqtt = "))
        path.write_text(text.replace(first, f"mqtt = {port}"))
        command = [sys.executable, "-m", "postroad", "broker", "--network", str(path), "--id", "A"]
        ended = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=30, check=False
        )
    assert ended.returncode == 2
    (line,) = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert f"cannot listen on 127.0.0.1:{port}" in line
    assert free_ports(1)
