"""What an operator does to a running broker: stop it, change its configuration, upgrade it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mqtt5
import pytest

from live_harness import Memory, memory, write_network
from postroad.errors import InputError
from postroad.live.edge import users
from postroad.live.links import link as links
from postroad.live.links import secret
from postroad.live.network import Limits, load
from postroad.live.operations import http
from postroad.live.operations.launch import credentials
from postroad.live.operations.reload import check

CHAIN = (["A", "B", "C"], [("A", "B"), ("B", "C")])
ONCE = mqtt5.QoS.AT_LEAST_ONCE


@pytest.fixture
def chain(tmp_path: Path) -> Memory:
    return memory(tmp_path, *CHAIN)


def drain(net: Memory, number: int) -> None:
    broker = net.brokers[number]
    broker.drain(net.now)
    net.until(broker.drained)
    broker.leave(net.now)
    net.run(20_000)


def test_a_broker_that_stops_passes_on_what_it_has_and_says_goodbye(chain: Memory) -> None:
    watcher = chain.client(2, "w")
    watcher.subscribe("#")
    will = mqtt5.Will("gone", payload=b"x", will_delay_interval=60)
    publisher = chain.client(0, "p", will=will, session_expiry_interval=600)
    for number in range(500):
        publisher.publish("t", b"%d" % number)
    bystander = chain.client(1, "b")
    drain(chain, 0)
    assert publisher.last(mqtt5.DisconnectPacket).reason_code == 0x8B
    chain.run(100_000)
    expected = [("t", b"%d" % number) for number in range(500)] + [("gone", b"x")]
    assert watcher.got() == expected
    assert not bystander.connection.closing
    assert chain.brokers[1].refused_wires == 0


def test_what_is_owed_is_acknowledged_before_a_client_is_let_go(tmp_path: Path) -> None:
    chain = memory(tmp_path, *CHAIN, top='store = "s"')
    far = chain.client(2, "far", session_expiry_interval=600)
    far.subscribe("t", max_qos=ONCE)
    publisher = chain.client(0, "p", session_expiry_interval=600)
    publisher.publish("t", b"first", qos=ONCE)
    chain.until(lambda: publisher.last(mqtt5.PubAckPacket, take=True))
    for _ in range(20):
        publisher.publish("t", b"more", qos=ONCE)
    assert not publisher.last(mqtt5.PubAckPacket)
    drain(chain, 0)
    kinds = [type(packet) for packet in publisher.packets[-21:]]
    assert kinds == [mqtt5.PubAckPacket] * 20 + [mqtt5.DisconnectPacket]
    assert len(far.got()) == 21


def test_nobody_waits_for_a_peer_that_stops_too(chain: Memory) -> None:
    chain.client(0, "s").subscribe("t")
    drain(chain, 1)
    chain.cut(0, 1)
    chain.brokers[0].drain(chain.now)
    chain.run(10_000)
    assert chain.brokers[0].peers[1].link.queue  # that the subscription has ended
    assert chain.brokers[0].drained()


@pytest.mark.parametrize("speaks", [(1, 7), (7, 9)])
def test_brokers_talk_in_the_newest_version_that_both_speak_or_not_at_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, speaks: tuple[int, int]
) -> None:
    net = Memory(load(write_network(tmp_path, *CHAIN)))
    net.brokers[1].speaks = speaks
    net.run(500_000)
    compatible = speaks[0] == 1
    assert all(b.peers[1].link.connected == compatible for b in net.brokers[::2])
    if compatible:
        assert net.brokers[0].peers[1].version == net.brokers[1].peers[0].version == links.SPEAKS[1]
    else:
        ours = f"{links.SPEAKS[0]} to {links.SPEAKS[1]}"
        said = f"speaks versions 7 to 9, this broker {ours}: upgrade the older of the two first"
        refused = [vars(r) for r in caplog.records if r.getMessage() == "broker refused"]
        assert any(said in row["reason"] for row in refused)


def test_brokers_upgraded_one_at_a_time_under_load_lose_nothing(tmp_path: Path) -> None:
    chain = memory(tmp_path, *CHAIN, top='store = "s"')
    options = {"clean_start": False, "session_expiry_interval": 600}
    far = chain.client(2, "far", **options)
    far.subscribe("t", max_qos=ONCE)
    publisher = chain.client(0, "p", **options)
    sent, got = 0, []
    newer = links.SPEAKS[1] + 1
    for number in (1, 2):
        for _ in range(50):
            sent += 1
            publisher.publish("t", b"%d" % sent, qos=ONCE)
        chain.run(3_000)  # some of it is under way
        got += far.got()
        chain.restart(number)
        chain.brokers[number].speaks = (1, newer)
        chain.run(2_000_000)
        if number == 2:
            back = chain.client(2, "far", **options)
            chain.run(2_000_000)
            got += back.got()
        else:
            got += far.got()
    assert chain.brokers[1].peers[2].version == newer
    assert chain.brokers[0].peers[1].version == newer - 1
    acknowledged = [p for p in publisher.packets if isinstance(p, mqtt5.PubAckPacket)]
    assert len(acknowledged) == sent
    assert {payload for _, payload in got} == {b"%d" % n for n in range(1, sent + 1)}


def test_new_limits_and_users_reach_clients_that_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users.json"
    words = {name: users.new_user(b"pw", ("#",), ("#",)) for name in ("ann", "bob", "cid", "dan")}
    for name, user in words.items():
        users.change(path, name, user)
    net = memory(tmp_path, ["A"], [], top='users = "users.json"')
    clients = {
        name: net.client(0, name, username=name, password=b"pw", session_expiry_interval=600)
        for name in words
    }
    for client in clients.values():
        assert client.subscribe("quotes/#").reason_codes[0] == 0
    users.change(path, "bob", None)
    users.change(path, "cid", users.new_user(b"other", ("#",), ("#",)))
    users.change(path, "dan", replace(words["dan"], publish=(), subscribe=("news",)))
    kept = net.brokers[0].clients
    kept.reload(Limits(session_queue=7), users.load(path), net.now)
    net.run(10_000)
    ended = {name: client.last(mqtt5.DisconnectPacket) for name, client in clients.items()}
    assert ended.pop("ann") is None
    assert all(packet.reason_code == 0x87 for packet in ended.values())
    held = {name: list(session.subscriptions) for name, session in kept.sessions.items()}
    assert held == {"ann": ["quotes/#"], "cid": ["quotes/#"], "dan": []}
    assert kept.sessions["ann"].queue_max == 7
    assert kept.users is not None
    assert kept.users.remembered("ann", b"pw")
    assert not kept.users.remembered("cid", b"pw")
    reasons = [vars(r)["reason"] for r in caplog.records if r.getMessage() == "right revoked"]
    assert len(reasons) == 3


def test_a_session_cannot_be_taken_over_by_another_user(tmp_path: Path) -> None:
    for name in ("ann", "eve"):
        users.change(tmp_path / "users.json", name, users.new_user(b"pw", ("#",), ("#",)))
    net = memory(tmp_path, ["A"], [], top='users = "users.json"\nstore = "s"')
    options = {"clean_start": False, "session_expiry_interval": 600, "password": b"pw"}
    net.client(0, "c", username="ann", **options).subscribe("t", max_qos=ONCE)
    assert net.client(0, "c", username="eve", **options).last(mqtt5.ConnAckPacket).reason_code
    net.restart(0)
    eve = net.client(0, "c", username="eve", **options)
    assert eve.last(mqtt5.ConnAckPacket).reason_code == 0x85
    ann = net.client(0, "c", username="ann", **options)
    assert ann.last(mqtt5.ConnAckPacket).session_present
    users.change(tmp_path / "users.json", "ann", None)
    net.restart(0)
    assert not net.brokers[0].clients.sessions
    assert net.brokers[0].router.table_entries() == 0


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('name = "test"', 'name = "other"', "name"),
        ("subscription_forwarding", "flooding", "scheme"),
        ("mqtt = 20000", "mqtt = 20099", "brokers"),
        ('["B", "C"]', '["A", "C"]', "links"),
        ("[parameters]", "[parameters]\ncovering = true", "parameters"),
        ("[parameters]", 'tls = "certs"\n[parameters]', "tls"),
        ("[parameters]", "seed = 3\n[parameters]", "seed"),
    ],
)
def test_what_cannot_change_while_running_is_refused_with_its_key(
    tmp_path: Path, old: str, new: str, key: str
) -> None:
    path = write_network(tmp_path, *CHAIN)
    before = load(path)
    check(before, load(path))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=rf"toml: {key}(, .*)? cannot change while a broker runs"):
        check(before, load(path))


def test_elsewhere_than_on_loopback_only_metrics_and_health_are_open(tmp_path: Path) -> None:
    path = write_network(tmp_path, ["A"], [])
    open_to_all = path.read_text().replace("[brokers.A]", '[brokers.A]\nhttp_host = "127.0.0.2"')
    path.write_text(open_to_all)
    with pytest.raises(InputError, match="give the network a secret, or leave it out"):
        load(path)
    path.write_text(f'secret = "secret"\n{open_to_all}')
    secret.make(tmp_path / "secret")
    net = Memory(load(path))

    class Served:
        broker = net.brokers[0]

    def asked(request: str, headers: str = "") -> str:
        text = f"{request} HTTP/1.1\r\n{headers}\r\n"
        return http.answer(Served(), text.encode())[0]  # type: ignore[arg-type]

    assert asked("GET /healthz").startswith("200")
    for request in ("GET /status", "POST /would", "GET /clients", "POST /kick", "GET /"):
        assert asked(request).startswith("403"), request
    token = credentials(net.network)["Authorization"]
    assert asked("GET /clients", f"Authorization: {token}\r\n").startswith("200")
