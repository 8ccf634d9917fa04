"""Refused: wrong passwords, forbidden topics, floods, filter bombs; each with a log line."""

from __future__ import annotations

import stat
from pathlib import Path

import mqtt5
import pytest
from click.testing import CliRunner

from live_harness import Fake, Memory, memory
from postroad.cli import cli
from postroad.errors import InputError
from postroad.live.edge import users

ONCE = mqtt5.QoS.AT_LEAST_ONCE


@pytest.fixture(scope="module")
def kept() -> dict[str, users.User]:
    return {
        "reader": users.new_user(b"secret", (), ("quotes",)),
        "writer": users.new_user(b"secret", ("quotes/eu/",), ()),
        "root": users.new_user(b"toor", ("#",), ("#",)),
    }


@pytest.fixture
def net(tmp_path: Path, kept: dict[str, users.User]) -> Memory:
    for name, user in kept.items():
        users.change(tmp_path / "users.json", name, user)
    return memory(tmp_path, ["A"], [], top='users = "users.json"')


def told(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(str(vars(record)) for record in caplog.records)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"username": "root", "password": b"wrong-secret"},
        {"username": "nobody", "password": b"wrong-secret"},
        {"username": "root"},
    ],
)
def test_everyone_else_is_refused_and_no_secret_is_logged(
    net: Memory, caplog: pytest.LogCaptureFixture, options: dict[str, object]
) -> None:
    client = net.client(0, "c", **options)
    assert client.connection.closing
    assert client.last(mqtt5.ConnAckPacket).reason_code == 0x86
    assert "wrong password" in told(caplog)
    assert "wrong-secret" not in told(caplog)


def test_publish_and_subscribe_only_within_the_allow_lists(
    net: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    reader = net.client(0, "r", username="reader", password=b"secret")
    writer = net.client(0, "w", username="writer", password=b"secret")
    root = net.client(0, "root", username="root", password=b"toor")
    assert root.subscribe("#").reason_codes[0] == 0
    for pattern in ("#", "+/eu", "quotesx", "news/#"):
        assert reader.subscribe(pattern).reason_codes[0] == 0x87
    assert reader.subscribe("quotes/#").reason_codes[0] == 0
    for topic in ("quotes/us", "quotes", "quotes/eux", "quotes/eu", "quotes/eu/sap"):
        writer.publish(topic, b"x", qos=ONCE)
    net.run(10_000)
    codes = [int(p.reason_code) for p in writer.packets if isinstance(p, mqtt5.PubAckPacket)]
    assert codes == [0x87, 0x87, 0x87, 0, 0]
    assert [topic for topic, _ in reader.got()] == ["quotes/eu", "quotes/eu/sap"]
    assert len(root.got()) == 2
    assert "may not subscribe" in told(caplog)
    assert "publication refused" in told(caplog)
    will = mqtt5.Will("news", payload=b"x")
    dying = net.client(0, "d", username="writer", password=b"secret", will=will)
    assert dying.last(mqtt5.ConnAckPacket).reason_code == 0x87


def test_filters_bound_what_a_user_publishes_and_is_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users.json"
    users.change(path, "seller", users.new_user(b"pw", ("#",), ("#",), "price < 100", None))
    users.change(
        path, "buyer", users.new_user(b"pw", (), ("#",), None, "price < 50 AND NOT secret")
    )
    net = memory(tmp_path, ["A", "B"], [("A", "B")], top='users = "users.json"')
    seller = net.client(0, "s", username="seller", password=b"pw")
    buyer = net.client(1, "b", username="buyer", password=b"pw")
    sly = net.client(1, "sly", username="buyer", password=b"pw")
    assert buyer.subscribe("quotes/#").reason_codes[0] == 0
    assert sly.subscribe("quotes/#", "price > 5) OR (TRUE").reason_codes[0] == 0x83
    assert sly.subscribe("#", "price > 5 OR TRUE").reason_codes[0] == 0
    for price, secret in ((1, "false"), (20, "true"), (60, "false"), (200, "false")):
        payload = b'{"price": %d, "secret": %s}' % (price, secret.encode())
        seller.publish("quotes/ibm", payload, qos=ONCE, retain=price < 100)
    seller.publish("quotes/ibm", b"no price at all", qos=ONCE)
    net.run(100_000)
    codes = [int(p.reason_code) for p in seller.packets if isinstance(p, mqtt5.PubAckPacket)]
    assert codes == [0, 0, 0, 0x87, 0x87]
    assert net.brokers[0].peers[1].sent["publication"] == 1  # nothing forbidden travels for them
    for client in (buyer, sly):
        assert client.got() == [("quotes/ibm", b'{"price": 1, "secret": false}')]
    late = net.client(1, "late", username="buyer", password=b"pw")
    late.subscribe("quotes/ibm")
    net.run(10_000)
    assert late.got() == []  # what is retained costs 60
    assert "publication refused" in told(caplog)
    users.change(path, "buyer", users.new_user(b"pw", (), ("#",), None, "price < 70"))
    net.brokers[1].clients.reload(net.network.limits, users.load(path), net.now)
    assert buyer.connection.closing
    assert not net.brokers[1].clients.holders


def test_floods_of_connections_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    few = memory(tmp_path, ["A"], [], top="[limits]\nconnections_per_address = 3\n")
    clients = [few.client(0, f"c{n}") for n in range(3)]
    opened = few.brokers[0].clients.opened
    assert opened("memory:9", few.now) is None
    assert opened("elsewhere:9", few.now) is not None
    clients[0].drop()
    assert opened("memory:9", few.now) is not None
    slow = memory(tmp_path, ["A"], [], top="[limits]\nconnects_per_s = 5\n")
    made = [slow.brokers[0].clients.opened("memory:1", slow.now) for _ in range(8)]
    assert [one is None for one in made] == [False] * 5 + [True] * 3
    assert slow.brokers[0].clients.opened("memory:1", slow.now + 1_000_000) is not None
    assert "too many from this address" in told(caplog)


def test_who_sends_too_much_is_read_later(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [], top="[limits]\nbytes_per_s = 10_000\n")
    reader, writer = net.client(0, "r"), net.client(0, "w")
    reader.subscribe("t")
    for _ in range(30):
        writer.publish("t", b"x" * 1000)
        net.run(1000)
    net.run(470_000)
    first = len(reader.got())
    assert 9 <= first <= 16  # a second's worth at once, then 10 a second
    other = net.client(0, "o")
    other.publish("t", b"y")
    net.run(10_000)
    assert reader.got() == [("t", b"y")]
    net.run(3_000_000)
    assert first + len(reader.got()) == 30
    assert net.brokers[0].clients.slowed > 0


def test_oversized_packets_and_filter_bombs_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = "[limits]\npacket_bytes = 50_000\nsubscriptions_per_client = 2\n"
    net = memory(tmp_path, ["A"], [], top=limits)
    client = net.client(0, "c")
    bomb = " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(40))
    answer = client.subscribe("t", bomb)
    assert answer.reason_codes[0] == 0x83
    assert "conjunctions" in answer.reason_str or "steps" in answer.reason_str
    assert answer.reason_str in told(caplog)
    for topic, code in (("a", 0), ("b", 0), ("c", 0x97)):
        assert client.subscribe(topic).reason_codes[0] == code
    client.publish("t", b"x" * 60_000)
    net.run(10_000)
    assert client.last(mqtt5.DisconnectPacket).reason_code == 0x95
    assert "a packet of 60008 bytes; 50000 are allowed" in told(caplog)


def test_sessions_and_retained_topics_are_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = memory(tmp_path, ["A"], [], top="[limits]\nsessions = 3\nretained = 2\n")
    publisher = net.client(0, "a")
    away = net.client(0, "b", session_expiry_interval=60)
    away.drop()
    reader = net.client(0, "c")
    reader.subscribe("#")
    assert net.client(0, "d").last(mqtt5.ConnAckPacket).reason_code == 0x97
    assert net.client(0, "b").last(mqtt5.ConnAckPacket).reason_code == 0
    for topic in ("t/1", "t/2", "t/3", "t/2"):
        publisher.publish(topic, b"x", retain=True)
    net.run(10_000)
    assert len(reader.got()) == 4
    assert set(net.brokers[0].retained) == {"t/1", "t/2"}
    assert "too many sessions" in told(caplog)
    assert "too many topics" in told(caplog)


def test_half_a_connection_is_closed_after_a_while(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A"], [])
    silent = Fake(net, 0, 5)
    net.run(10_500_000)
    assert silent.connection.closing


def test_users_commands(tmp_path: Path) -> None:
    path = str(tmp_path / "users.json")
    run = CliRunner().invoke
    password = "pass-word"  # which no hash contains: a hyphen is no letter of base64
    allowed = ["--publish", "a", "--subscribe", "#"]
    added = run(cli, ["users", "add", path, "ann", *allowed], input=f"{password}\n{password}\n")
    assert added.exit_code == 0
    assert "ann may publish a and subscribe #" in added.output
    assert stat.S_IMODE((tmp_path / "users.json").stat().st_mode) == 0o600
    assert password not in (tmp_path / "users.json").read_text()
    assert run(cli, ["users", "list", path]).output == "ann: publish a, subscribe #\n"
    assert users.load(tmp_path / "users.json").verify("ann", password.encode())
    bound = ["--publish", "a", "--publish-where", "x > 1", "--password", "pw"]
    assert run(cli, ["users", "add", path, "bob", *bound]).output == (
        "bob may publish a where x > 1 and subscribe nothing\n"
    )
    wrong = run(cli, ["users", "add", path, "cid", "--publish-where", "x >", "--password", "pw"])
    assert isinstance(wrong.exception, InputError)
    assert run(cli, ["users", "remove", path, "ann"]).exit_code == 0
    assert isinstance(run(cli, ["users", "remove", path, "ann"]).exception, InputError)
    (tmp_path / "users.json").write_text('{"x": 1}')
    with pytest.raises(InputError, match="not a file of users"):
        users.load(tmp_path / "users.json")


def test_a_user_is_changed_in_what_is_named(tmp_path: Path) -> None:
    path = tmp_path / "users.json"

    def add(*options: str, typed: str = "") -> str:
        done = CliRunner().invoke(cli, ["users", "add", str(path), "ann", *options], input=typed)
        assert done.exit_code == 0, done.output
        return done.output

    add("--publish", "quotes", "--subscribe", "#", "--publish-where", "x > 1", typed="pw\npw\n")
    said = add("--dashboard", "look")
    assert said == "ann may publish quotes where x > 1, subscribe # and look in the dashboard\n"
    assert users.load(path).verify("ann", b"pw")
    shown = CliRunner().invoke(cli, ["users", "list", str(path)]).output
    assert shown == "ann: publish quotes where x > 1, subscribe #, look in the dashboard\n"
    said = add("--publish", "news", "--password", typed="new\nnew\n")
    assert "ann may publish news where x > 1, subscribe # and look in the dashboard" in said
    assert not users.load(path).verify("ann", b"pw")
    assert users.load(path).verify("ann", b"new")
    wrong = CliRunner().invoke(cli, ["users", "add", str(path), "ann", "--publish-where", "x >"])
    assert isinstance(wrong.exception, InputError)
    assert users.load(path).users["ann"].publish_where == "x > 1"


READINGS = [
    (b'{"price": 5}', [], True),
    (b'{"price": 5}', [("price", "5")], True),
    (b'{"price": 5}', [("other", "500")], True),
    (b"no JSON", [("price", "5")], True),
    (b'{"price": 500}', [("price", "5")], False),
    (b'{"price": 5}', [("price", "500")], False),
    (b'{"price": 500}', [], False),
    (b'{"price": 500, "price": 5}', [], False),
    (b'{"price": 5, "price": 500}', [("price", "5")], False),
    (b' \n{"price": 500}', [("price", "5")], False),
    (b'\xef\xbb\xbf{"price": 500}', [("price", "5")], False),
    (b'{"price": [500]}', [("price", "5")], False),
    (b'{"price": 99999999999999999999999}', [("price", "5")], False),
    (b'{"price": 500, "x": NaN}', [("price", "5")], False),
    (b'{"price": 500} ,', [("price", "5")], False),
    (b'{"price": 500,}', [("price", "5")], False),
    ('{"price": 500}'.encode("utf-16"), [("price", "5")], False),
    (b'{"x": %s1%s, "price": 500}' % (b"[" * 5000, b"]" * 5000), [("price", "5")], False),
    (b"", [("price", "500"), ("price", "5")], False),
    (b"", [("price", "5"), ("price", "5")], True),
    (b'{"price": true}', [("price", "5")], False),
    (b'{"price": null}', [("price", "5")], False),
    (b'{"price": 5}', [("price", "5" * 5000)], False),
    (b'{"price": "%s"}' % (b"5" * 5000), [("price", "5")], False),
]


def test_no_reading_of_a_publication_escapes_the_publishers_filter(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    users.change(path, "seller", users.new_user(b"pw", ("#",), ("#",), "price < 100", None))
    net = memory(tmp_path, ["A"], [], top='users = "users.json"')
    seller = net.client(0, "s", username="seller", password=b"pw")
    for payload, properties, allowed in READINGS:
        seller.publish("t", payload, qos=ONCE, user_properties=properties)
        net.run(2_000)
        code = seller.last(mqtt5.PubAckPacket, take=True).reason_code
        assert code == (0 if allowed else 0x87), (payload, properties)


def test_who_was_refused_is_named_in_the_log(net: Memory, caplog: pytest.LogCaptureFixture) -> None:
    net.client(0, "intruder", username="root", password=b"wrong")
    client = net.client(0, "clumsy", username="root", password=b"toor")
    client.raw(b"\x00\x00")
    rows = [vars(each) for each in caplog.records if each.getMessage() == "client refused"]
    assert [(row["client"], row["user"]) for row in rows] == [
        ("intruder", "root"), ("clumsy", "root"),
    ]  # fmt: skip
