"""Stores of real brokers that were killed and then damaged, put back, lost or reset.

The promise: all that was acknowledged is there unaltered, or the broker refuses with one line.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mqtt5
import msgspec
import pytest
from click.testing import CliRunner

from live_harness import Processes, environment, wait_for, write_network
from postroad.cli import cli
from postroad.errors import InputError, RunFailed
from postroad.live.broker import Broker
from postroad.live.client import Client
from postroad.live.edge import mqtt
from postroad.live.edge.mqtt import Letter
from postroad.live.network import Network, load
from postroad.live.store import ParcelRow, Store, _mark_line

FILES = ("A.db", "A.db-wal", "A.mark")
DAMAGES = int(os.environ.get("POSTROAD_DAMAGES", "150"))


class Session:
    """A client's connection to a session that outlives it."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.buffer = b""
        hello = mqtt5.ConnectPacket(name, clean_start=False, session_expiry_interval=3600)
        self.socket.sendall(hello.write())
        assert isinstance(self.packet(), mqtt5.ConnAckPacket)

    def packet(self) -> Any:
        while not (end := mqtt.frame(self.buffer, 0, 1 << 28) if self.buffer else 0):
            data = self.socket.recv(1 << 16)
            assert data, "the broker closed the connection"
            self.buffer += data
        packet, _ = mqtt5.read(memoryview(self.buffer[:end]))
        self.buffer = self.buffer[end:]
        return packet


def subscribe(port: int, name: str) -> None:
    session = Session(port, name)
    wanted = mqtt5.TopicFilter("t", max_qos=mqtt5.QoS.AT_LEAST_ONCE, retain_as_published=False)
    session.socket.sendall(mqtt5.SubscribePacket(1, [wanted]).write())
    assert isinstance(session.packet(), mqtt5.SubAckPacket)
    session.socket.close()


def collect(port: int, name: str, count: int) -> list[bytes]:
    session = Session(port, name)
    found: list[bytes] = []
    while len(found) < count:
        packet = session.packet()
        found.append(packet.payload)
        session.socket.sendall(mqtt5.PubAckPacket(packet.packet_id).write())
    session.socket.close()
    return found


async def publish(port: int, numbers: range, size: int = 0) -> None:
    async with Client("127.0.0.1", port, client_id="p") as client:
        for number in numbers:
            await client.publish("t", b"%d " % number + b"x" * size, qos=1)


def do(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


class Killed:
    """The files of a broker that was killed with publications waiting for an absent session."""

    COUNT = 400

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = write_network(folder, ["A"], [], free=True, top='store = "s"')
        self.network: Network = load(self.path)
        with Processes(self.path) as running:
            subscribe(running.mqtt("A"), "s")
            do(publish(running.mqtt("A"), range(self.COUNT), 2_000))
            running.running["A"].kill()
            running.running["A"].join()
        self.kept = {name: (folder / "s" / name).read_bytes() for name in FILES}

    def put_back(self) -> None:
        shutil.rmtree(self.folder / "s")
        (self.folder / "s").mkdir()
        for name, data in self.kept.items():
            (self.folder / "s" / name).write_bytes(data)

    def payloads(self) -> list[bytes]:
        """What a broker that starts would have for the session."""
        network = self.network
        assert network.store is not None
        store = Store(network.store, network.identity, "A", network.lineage, 10**15)
        try:
            rows = store.load()
            Broker(network, 0, 10**15, None, rows, store.standing)
        finally:
            store.close()
        found = [msgspec.msgpack.decode(data, type=ParcelRow) for _, _, data in rows["parcel"]]
        return [Letter(row.letter).payload for row in found]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return Killed(tmp_path_factory.mktemp("killed"))


def damage(draw: random.Random, killed: Killed) -> tuple[str, str]:
    """Spoil one file at a random place; what was done, and a short name for it."""
    name = draw.choices(FILES, [4, 5, 1])[0]
    path = killed.folder / "s" / name
    data = bytearray(killed.kept[name])
    at = draw.randrange(len(data))
    kind = draw.choices(["flip", "zero", "cut", "delete", "swap"], [10, 4, 3, 1, 2])[0]
    if kind == "flip":
        data[at] ^= 1 << draw.randrange(8)
    elif kind == "zero":
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    elif kind == "swap":  # one sector is written where another belongs
        other = draw.randrange(len(data)) // 512 * 512
        at = at // 512 * 512
        data[at : at + 512] = data[other : other + 512]
    elif kind == "cut":
        del data[at:]
    if kind == "delete":
        path.unlink()
    else:
        path.write_bytes(data)
    return f"{kind} {name} at {at}", f"{kind} {name}"


def test_a_damaged_store_has_all_that_was_acknowledged_or_is_refused(killed: Killed) -> None:
    killed.put_back()
    whole = [b"%d " % number + b"x" * 2_000 for number in range(killed.COUNT)]
    assert killed.payloads() == whole
    seen: Counter[str] = Counter()
    store = killed.folder / "s"
    first = int(os.environ.get("POSTROAD_SEED", "0"))
    for seed in range(first, first + DAMAGES):
        draw = random.Random(seed)
        killed.put_back()
        what, kind = damage(draw, killed)
        spoilt = {file.name: file.read_bytes() for file in store.iterdir()}
        try:
            found = killed.payloads()
        except RunFailed as error:
            seen["refused"] += 1
            seen[kind] += 1
            one_line = str(error).startswith(f"the store {store}/A.db ") and "\n" not in str(error)
            after = {file.name: file.read_bytes() for file in store.iterdir()}
            stays = after.get("A.db-wal", b"") == spoilt.get(
                "A.db-wal", b""
            )  # refusing destroys nothing
            if not (one_line and stays):
                pytest.fail(f"seed {seed}: {what}: {error}")
        else:
            seen["whole"] += 1
            assert found == whole, f"seed {seed}: {what}: {len(found)} of {len(whole)}"
    print(dict(seen))
    assert seen["refused"] > DAMAGES // 5
    assert seen["whole"] > DAMAGES // 20


def test_a_torn_last_write_is_no_damage(killed: Killed) -> None:
    """Frames of a transaction that was never synced, whole or in part, are passed over."""
    wal = killed.kept["A.db-wal"]
    salts = wal[16:24]
    for more in (b"x", b"\0\0\0\5" + bytes(4) + salts + bytes(8) + b"y" * 4096, wal[32:2000]):
        killed.put_back()
        # Behind the last frame of this round, where an earlier round may have left its own.
        step, end = 24 + 4096, 32
        while wal[end + 8 : end + 16] == salts:
            end += step
        torn = wal[:end] + more + wal[end + len(more) :]
        (killed.folder / "s" / "A.db-wal").write_bytes(torn)
        assert len(killed.payloads()) == killed.COUNT


def test_damage_within_what_was_synced_is_told_from_a_torn_write_without_a_mark(
    killed: Killed,
) -> None:
    """A machine that lost power may have an old mark; the WAL tells by itself."""
    killed.put_back()
    mark = killed.folder / "s" / "A.mark"
    created = int(killed.kept["A.mark"].split(b" ")[0])
    mark.write_bytes(_mark_line(created, 1))
    assert len(killed.payloads()) == killed.COUNT
    killed.put_back()
    mark.write_bytes(_mark_line(created, 1))
    wal = bytearray(killed.kept["A.db-wal"])
    wal[32 + 24 + 100] ^= 1  # in the first page
    (killed.folder / "s" / "A.db-wal").write_bytes(wal)
    with pytest.raises(RunFailed, match=r"A\.db-wal is damaged at byte 32, within what was synced"):
        killed.payloads()


def test_commands_look_at_a_store_and_begin_again(killed: Killed) -> None:
    killed.put_back()
    before = {file.name: file.read_bytes() for file in (killed.folder / "s").iterdir()}
    run = CliRunner()
    good = run.invoke(cli, ["store", "check", str(killed.path), "A", "--json"])
    assert good.exit_code == 0, good.output
    told = json.loads(good.output)
    assert told["problem"] is None
    assert told["publications_for_sessions"] == killed.COUNT
    assert told["rows"]["session"] == told["sessions"] == 1
    after = {file.name: file.read_bytes() for file in (killed.folder / "s").iterdir()}
    assert after == before
    assert (
        "publications for sessions: 400"
        in run.invoke(cli, ["store", "check", str(killed.path), "A"]).output
    )
    (killed.folder / "s" / "A.db-wal").unlink()
    bad = run.invoke(cli, ["store", "check", str(killed.path), "A"])
    assert bad.exit_code == 1
    assert "A.db-wal is missing or empty" in bad.output
    assert len(bad.output.splitlines()) == 1
    unknown = run.invoke(cli, ["store", "check", str(killed.path), "Z"])
    assert isinstance(unknown.exception, InputError)
    asked = run.invoke(cli, ["store", "reset", str(killed.path), "A"], input="n\n")
    assert asked.exit_code == 1
    done = run.invoke(cli, ["store", "reset", str(killed.path), "A", "--yes"])
    assert done.exit_code == 0, done.output
    assert killed.payloads() == []
    (aside,) = (killed.folder / "s").glob("A.replaced-*")
    assert {file.name for file in aside.iterdir()} == {"A.db", "A.mark"}


def broker(path: Path, name: str) -> tuple[int, list[str]]:
    """How a broker that cannot start ends, and what it says."""
    command = [sys.executable, "-m", "postroad", "broker", "--network", str(path), "--id", name]
    ended = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    return ended.returncode, ended.stderr.splitlines()


def test_a_broker_refuses_a_damaged_store_with_one_line(killed: Killed) -> None:
    killed.put_back()
    wal = bytearray(killed.kept["A.db-wal"])
    wal[500] ^= 1  # in the first frame
    (killed.folder / "s" / "A.db-wal").write_bytes(wal)
    code, lines = broker(killed.path, "A")
    assert code == 1
    assert len(lines) == 1
    assert "A.db is damaged: it ends at transaction " in lines[0]


def test_files_of_a_store_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A"], [], free=True, top='store = "s"')
    with Processes(path) as running:
        subscribe(running.mqtt("A"), "s")
        modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "s").iterdir()}
        refused = CliRunner().invoke(cli, ["store", "check", str(path), "A"])
        assert isinstance(refused.exception, InputError)
        assert "is in use" in str(refused.exception)
    assert modes == {"A.db": 0o600, "A.db-wal": 0o600, "A.mark": 0o600}
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    (tmp_path / "s" / "A.db").chmod(0o644)
    Store(tmp_path / "s", load(path).identity, "A", load(path).lineage).close()
    assert (tmp_path / "s" / "A.db").stat().st_mode & 0o777 == 0o600


CYCLE = [("A", "B"), ("B", "C"), ("A", "C")]


@pytest.fixture(params=[CYCLE[:2], CYCLE], ids=["tree", "redundant"])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Processes]:
    path = write_network(tmp_path, ["A", "B", "C"], request.param, free=True, top='store = "s"')
    running = Processes(path)
    try:
        yield running.__enter__()
    finally:
        running.stop()


def ended(running: Processes, name: str) -> str:
    """A broker ends by itself; its last line."""
    running.running[name].join(60)
    assert running.running[name].exitcode == 1
    lines = running.log(name).splitlines()
    assert not [line for line in lines if "Traceback" in line]
    said = [line for line in lines if "broker ends" in line]
    return said[-1]


def kill(running: Processes, name: str) -> None:
    running.running[name].kill()
    running.running[name].join()


def test_an_old_backup_is_noticed_and_a_reset_broker_joins_again(network: Processes) -> None:
    store = network.path.parent / "s"
    backup = network.path.parent / "backup"
    subscribe(network.mqtt("B"), "s")
    subscribe(network.mqtt("C"), "far")
    do(publish(network.mqtt("A"), range(5)))
    kill(network, "B")
    shutil.copytree(store, backup)
    network.start("B")
    network.wait_linked()
    do(publish(network.mqtt("A"), range(5, 10)))
    kill(network, "B")
    for file in ("B.db", "B.db-wal", "B.mark"):
        shutil.copyfile(backup / file, store / file)
    # It stops by itself, before it has done anything; and whoever knows better says why.
    network.start("B")
    line = ended(network, "B")
    assert "broker B is behind what broker" in line
    assert "postroad store reset" in line
    # A lost store is the same.
    for file in store.glob("B.*"):
        file.unlink()
    network.start("B")
    assert "its store is new, and the one that it had is gone" in ended(network, "B")

    def refused() -> bool:
        rows = [network.status(name) for name in "AC"]
        return any("is gone" in str(row["links"]["B"]["refused"]) for row in rows if row)

    wait_for(refused, 300)
    # On purpose it joins again, with what the others keep for it, and its sessions are gone.
    done = CliRunner().invoke(cli, ["store", "reset", str(network.path), "B", "--yes"])
    assert done.exit_code == 0, done.output
    network.start("B")
    network.wait_linked()
    subscribe(network.mqtt("B"), "s")
    do(publish(network.mqtt("A"), range(10, 15)))
    assert collect(network.mqtt("B"), "s", 5) == [b"%d " % n for n in range(10, 15)]
    got = collect(network.mqtt("C"), "far", 15)
    assert sorted(got) == sorted(b"%d " % n for n in range(15))
    for name in "AC":
        row = network.status(name)
        assert row is not None
        assert row["links"]["B"]["refused"] is None
    # And a store from before the reset is older than what is known now.
    kill(network, "B")
    for file in ("B.db", "B.db-wal", "B.mark"):
        shutil.copyfile(backup / file, store / file)
    network.start("B")
    assert "its store is older than one that it has had since" in ended(network, "B")
