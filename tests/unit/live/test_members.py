from __future__ import annotations

from pathlib import Path

import mqtt5
import pytest

from live_harness import memory
from postroad.errors import InputError, RunFailed
from postroad.live.network import Address, load
from postroad.live.operations import members, reload
from postroad.live.store import Store

TEXT = """name = "n"
scheme = "flooding"
store = "s"
links = [["A", "B"], ["B", "C"],  # not the end: ]
  ["A", "C"],
]

[brokers.A]  # the first
mqtt = 1
link = 2
http = 3
[brokers.B]
mqtt = 4
link = 5
http = 6
[brokers.C]
mqtt = 7
link = 8
http = 9
"""
NEW = Address("127.0.0.1", 10, 11, 12)
ONCE = mqtt5.QoS.AT_LEAST_ONCE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "network.toml"
    path.write_text(TEXT)
    return path


def test_added_broker_comes_last_and_the_file_keeps_its_comments(path: Path) -> None:
    change = members.add(path, "D", NEW, ["A", "C"])
    assert path.read_text() == TEXT  # not before it is said so
    change.write()
    network = load(path)
    assert network.names == ("A", "B", "C", "D")
    assert network.pairs == [(0, 1), (1, 2), (0, 2), (0, 3), (2, 3)]
    assert network.addresses[3] == NEW
    assert "# not the end: ]" in path.read_text()
    assert "# the first" in path.read_text()


def test_removed_broker_keeps_its_place_and_the_others_theirs(path: Path) -> None:
    old = load(path)
    members.add(path, "D", NEW, ["A"]).write()
    members.remove(path, "B").write()
    network = load(path)
    assert network.names == ("A", "B", "C", "D")
    assert network.members == [0, 2, 3]
    assert network.pairs == [(0, 2), (0, 3)]
    assert network.redundant  # it was, and brokers that run must agree on it
    reload.check(old, network)
    with pytest.raises(InputError, match=r"no broker 'B'; choose one of: A, C, D"):
        network.number("B")
    members.remove(path, "C").write()
    assert load(path).members == [0, 3]


def test_what_cannot_be_is_refused_and_nothing_written(path: Path) -> None:
    with pytest.raises(InputError, match="there is or was a broker 'B'"):
        members.add(path, "B", NEW, ["A"])
    with pytest.raises(InputError, match="choose from the brokers"):
        members.add(path, "D", NEW, ["X"])
    with pytest.raises(InputError, match=r"A\.link has it"):
        members.add(path, "D", Address("127.0.0.1", 2, 11, 12), ["A"])
    members.add(path, "D", NEW, ["A"]).write()
    before = path.read_text()
    with pytest.raises(InputError, match="join broker 'D' to 'B'"):
        members.remove(path, "A")
    assert path.read_text() == before
    path.write_text(TEXT.replace('  ["A", "C"],\n', ""))
    with pytest.raises(InputError, match="would close a cycle"):
        members.add(path, "D", NEW, ["A", "C"])
    path.write_text(TEXT.replace('  ["A", "C"],\n', "").replace('"flooding"\nstore', '"popsub"\n#'))
    with pytest.raises(InputError, match="cannot come or go in a network with popsub"):
        members.add(path, "D", NEW, ["A"])


def test_running_brokers_refuse_other_changes_of_brokers_and_links(path: Path) -> None:
    old = load(path)
    for wrong in (
        TEXT.replace('["A", "B"], ["B", "C"]', '["B", "C"], ["A", "B"]'),
        TEXT.replace("mqtt = 7", "mqtt = 17"),
        TEXT.replace("brokers.C", "brokers.D").replace('"C"', '"D"'),
    ):
        path.write_text(wrong)
        with pytest.raises(InputError, match="cannot change while a broker runs"):
            reload.check(old, load(path))


def test_a_store_goes_with_a_network_that_grew_and_with_no_other(tmp_path: Path) -> None:
    Store(tmp_path, "n#1", "A", ("n", "A", "B")).close()
    Store(tmp_path, "n#2", "A", ("n", "A", "B", "C")).close()
    with pytest.raises(RunFailed, match="belongs to n#2 A, not n#3 A"):
        Store(tmp_path, "n#3", "A", ("n", "A", "C", "B"))
    Store(tmp_path, "n#3", "A", ("n", "A", "B", "C", "D")).close()


def test_a_tree_without_spare_links_grows_and_shrinks_by_its_leaves(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A", "B", "C"], [("A", "B"), ("B", "C")], top='store = "s"')
    subscriber = net.client(1, "s")
    subscriber.subscribe("t", max_qos=ONCE)
    publisher = net.client(0, "p")
    net.cut(1, 2)
    net.client(2, "gone", clean_start=False, session_expiry_interval=60)
    change = members.remove(net.network.path, "C")
    publisher.publish("t", b"1", qos=ONCE)
    net.run(100_000)
    for broker in net.brokers[:2]:
        broker.change(change.network, net.now)
    net.run(100_000)
    assert list(net.brokers[1].peers) == [0]
    assert publisher.last(mqtt5.PubAckPacket)
    assert subscriber.got() == [("t", b"1")]


def test_publication_held_for_a_removed_broker_is_acknowledged(tmp_path: Path) -> None:
    links = [("A", "B"), ("B", "C"), ("A", "C")]
    net = memory(tmp_path, ["A", "B", "C"], links, top='store = "s"')
    far = net.client(2, "far", clean_start=False, session_expiry_interval=60)
    far.subscribe("t", max_qos=ONCE)
    for peer in (0, 1):
        net.cut(peer, 2)
    publisher = net.client(0, "p")
    net.run(8_000_000, 5_000)
    publisher.publish("t", b"1", qos=ONCE)
    net.run(5_000_000, 5_000)
    assert publisher.last(mqtt5.PubAckPacket) is None
    change = members.remove(net.network.path, "C")
    for broker in net.brokers[:2]:
        broker.change(change.network, net.now)
    net.until(lambda: publisher.last(mqtt5.PubAckPacket))
    assert [list(broker.peers) for broker in net.brokers[:2]] == [[1], [0]]
