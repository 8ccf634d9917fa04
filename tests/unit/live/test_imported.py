"""Configurations of Mosquitto and NATS become network files that load, with the rest listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.errors import InputError
from postroad.live.network import Network, load
from postroad.live.operations.imported import write

MOSQUITTO = {
    "hub": """
# the centre
listener 1883
listener 9001
protocol websockets
persistence true
password_file /etc/mosquitto/passwd
max_queued_messages 5000
""",
    "edge1": """
port 1883
connection to-hub
address hub.example.org:1883
topic sensors/# out 1
""",
    "edge2": """
listener 1885 0.0.0.0
connection to-hub
addresses localhost:1883 backup.example.org
connection far
address far.example.org:8883
""",
}
NATS = {
    "hub": """
server_name: centre
port: 4222
mqtt { port: 1883 }  # for MQTT clients
leafnodes { port: 7422 }
jetstream { store_dir: "/data", max_mem: 1G }
accounts: { A: { users: [ {user: a, password: "x"} ] } }
cluster {
  name: c1
  listen: 0.0.0.0:6222
  routes = [
    nats-route://localhost:6222
    nats://user:pw@localhost:6223
  ]
}
""",
    "two": """
server_name = two
cluster: {name: c1, port: 6223, routes: ["nats-route://localhost:6222"]}
max_payload: 4MB
""",
    "leaf": """
server_name=leaf   // a comment
leafnodes {
  remotes [ { urls: ["nats-leaf://a:b@centre:7422", "nats-leaf://x:7422"], credentials: "./l" } ]
}
""",
}


def imported(folder: Path, files: dict[str, str]) -> tuple[Network, dict[str, Any]]:
    for name, text in files.items():
        (folder / f"{name}.conf").write_text(text)
    paths = [str(folder / f"{name}.conf") for name in files]
    out = folder / "network.toml"
    done = CliRunner().invoke(cli, ["network", "import", *paths, "-o", str(out), "--json"])
    assert done.exit_code == 0, done.output
    return load(out), json.loads(done.stdout)


def links(network: Network) -> set[frozenset[str]]:
    return {frozenset((network.names[a], network.names[b])) for a, b in network.pairs}


def has(listed: list[str], *words: str) -> bool:
    return any(all(word in text for word in words) for text in listed)


def test_bridges_become_links(tmp_path: Path) -> None:
    network, facts = imported(tmp_path, MOSQUITTO)
    far = "far.example.org-8883"
    assert links(network) == {
        frozenset(pair) for pair in (("edge1", "hub"), ("edge2", "hub"), ("edge2", far))
    }
    ports = {name: network.addresses[network.number(name)].mqtt for name in ("hub", "edge2")}
    assert ports == {"hub": 1883, "edge2": 1885}
    assert network.store is not None
    assert network.limits.session_queue == 5000
    listed = facts["not_taken_over"]
    assert has(listed, "hub.conf:4: listener 9001")
    assert has(listed, "password_file", "postroad users add")
    assert has(listed, "edge1.conf:5: topic sensors/# out 1, of bridge to-hub")
    assert has(listed, "edge1.conf", "port 1883", "another broker has it")
    assert has(listed, "edge2.conf:4: addresses backup.example.org")
    assert has(listed, "no file for far.example.org:8883")
    assert has(listed, "host hub.example.org of hub")


def test_leaf_nodes_and_routes_become_links(tmp_path: Path) -> None:
    network, facts = imported(tmp_path, NATS)
    assert links(network) == {frozenset(("centre", "two")), frozenset(("leaf", "centre"))}
    assert network.addresses[network.number("centre")].mqtt == 1883
    assert network.store is not None
    assert network.limits.packet_bytes == 4_000_000
    listed = facts["not_taken_over"]
    for name in ("accounts", "leafnodes.credentials", "leafnodes: x:7422", "no mqtt block",
                 "the password for localhost:6223"):  # fmt: skip
        assert has(listed, name), name


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"a": "listener 1883\n", "b": "listener 1884\n"}, "nothing joins 'b' to 'a'"),
        ({"a": "server_name: x\ncluster {"}, "a.conf:2: cannot read"),
        ({"a": "port: ]"}, "a.conf:1: cannot read ']'"),
    ],
)
def test_what_cannot_be_read_is_told_and_leaves_nothing(
    tmp_path: Path, files: dict[str, str], complaint: str
) -> None:
    paths = []
    for name, text in files.items():
        paths.append(tmp_path / f"{name}.conf")
        paths[-1].write_text(text)
    with pytest.raises(InputError) as error:
        write(paths, tmp_path / "network.toml", "n", 20_000)
    assert complaint in str(error.value)
    assert not (tmp_path / "network.toml").exists()
