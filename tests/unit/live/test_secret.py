"""Brokers that share a secret, and strangers at their link ports, in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from live_harness import Memory, memory, write_network
from postroad.errors import InputError
from postroad.live.broker import Broker
from postroad.live.links import link as links
from postroad.live.links import secret, strangers
from postroad.live.links.neighbour import Wire
from postroad.live.links.strangers import Strangers
from postroad.live.network import Limits, load

NAMES = ["A", "B", "C"]
LINKS = [("A", "B"), ("B", "C"), ("A", "C")]


def sharing(folder: Path) -> Memory:
    secret.make(folder / "key")
    return memory(folder, NAMES, LINKS[:2], top='secret = "key"')


def said(broker: Broker, wire: Wire) -> list[links.Frame]:
    """What a broker has written to a connection."""
    data = bytearray(b"".join(wire.out))
    wire.out.clear()
    return links.unpack(data)


def hear(broker: Broker, wire: Wire, frame: links.Frame, now: int) -> str | None:
    """Why a broker refuses this; None if it does not."""
    broker.wire_received(wire, links.pack(frame), now)
    byes = [frame.reason for frame in said(broker, wire) if isinstance(frame, links.Bye)]
    assert wire.closing == bool(byes)
    assert wire.link is None or not byes
    return byes[0] if byes else None


def handshake(
    net: Memory, dialler: int, dialled: int, challenge: bytes | None = None
) -> list[links.Hello]:
    """Both hellos of an honest connection, as someone who listens hears them; perhaps with a
    challenge that was put in the place of the broker's."""
    near, far = net.brokers[dialler], net.brokers[dialled]
    one = near.wire_opened("memory:1", dialled, net.now)
    other = far.wire_opened("memory:1", None, net.now)
    (first,) = said(far, other)
    assert isinstance(first, links.Challenge)
    near.wire_received(one, links.pack(links.Challenge(challenge or first.nonce)), net.now)
    (hello,) = said(near, one)
    assert isinstance(hello, links.Hello)
    far.wire_received(other, links.pack(hello), net.now)
    answers = [frame for frame in said(far, other) if isinstance(frame, links.Hello)]
    near.wire_closed(one, net.now)
    far.wire_closed(other, net.now)
    net.settle()
    return [hello, *answers]


def test_brokers_with_the_same_secret_are_linked(tmp_path: Path) -> None:
    net = sharing(tmp_path)
    listener = net.client(2, "s")
    listener.subscribe("t")
    net.client(0, "p").publish("t", b"x")
    net.run(100_000)
    assert listener.got() == [("t", b"x")]


def test_nothing_recorded_reflected_or_made_up_passes_for_a_broker(tmp_path: Path) -> None:
    net = sharing(tmp_path)
    recorded = [hello for a, b in ((0, 1), (1, 2)) for hello in handshake(net, a, b)]
    assert len(recorded) == 4
    chosen = bytes(range(32))
    recorded += handshake(net, 0, 1, chosen)  # whom A dials is not B, and chooses the challenge
    assert len(recorded) == 5
    identity = net.network.identity
    made_up = [
        links.Hello(links.SPEAKS[1], identity, n, "x.0", "", 0, nonce=nonce, proof=proof)
        for n in range(3)
        for nonce in (b"", chosen)
        for proof in (
            b"",
            b"\0" * 32,
            secret.proof(b"guess" * 8, identity, n, 1, b"", chosen, True),
        )
    ]
    refusals = set()
    for number, broker in enumerate(net.brokers):
        for hello in recorded + made_up:
            # To one that is dialled, as it came, and with its own challenge sent back.
            for reflected in (False, True):
                wire = broker.wire_opened("evil:1", None, net.now)
                (challenge,) = said(broker, wire)
                assert isinstance(challenge, links.Challenge)
                shown = hello
                if reflected:
                    shown = links.Hello(
                        hello.version, hello.network, hello.broker, hello.mine, hello.yours, 0,
                        nonce=challenge.nonce, proof=hello.proof,
                    )  # fmt: skip
                refusals.add(hear(broker, wire, shown, net.now))
            # From one that is dialled and chooses the challenge of the recording.
            for peer in broker.peers:
                wire = broker.wire_opened("evil:1", peer, net.now)
                assert said(broker, wire) == []  # not a word before the challenge
                assert hear(broker, wire, links.Challenge(chosen), net.now) is None
                refusals.add(hear(broker, wire, hello, net.now))
        assert number in range(3)
    assert None not in refusals
    assert "does not prove that it knows the network's secret" in refusals
    net.settle()


def test_a_proof_serves_neither_the_one_who_got_it_nor_another(tmp_path: Path) -> None:
    """Someone whom A takes for B, because A dials them, and who passes on what A says."""
    net = sharing(tmp_path)
    a, c = net.brokers[0], net.brokers[2]
    to_c = c.wire_opened("evil:1", None, net.now)
    (challenge,) = said(c, to_c)
    from_a = a.wire_opened("evil:1", 1, net.now)
    a.wire_received(from_a, links.pack(challenge), net.now)
    (hello,) = said(a, from_a)
    assert isinstance(hello, links.Hello)
    unproven = "does not prove that it knows the network's secret"
    assert hear(c, to_c, hello, net.now) == unproven  # it is for B, and C is asked
    back = replace(hello, broker=1, mine="x.0")
    assert hear(a, from_a, back, net.now) == unproven  # A said it itself


def test_a_wrong_challenge_and_a_broker_without_the_secret_are_refused(tmp_path: Path) -> None:
    net = sharing(tmp_path)
    broker = net.brokers[0]
    wire = broker.wire_opened("evil:1", None, net.now)
    assert hear(broker, wire, links.Challenge(bytes(32)), net.now) is not None
    wire = broker.wire_opened("evil:1", 1, net.now)
    assert hear(broker, wire, links.Challenge(b""), net.now) is not None
    broker.secret = None
    wire = broker.wire_opened("evil:1", 1, net.now)
    refusal = hear(broker, wire, links.Challenge(bytes(32)), net.now)
    assert refusal == "asks for the network's secret, and this broker has none"


def test_secrets_are_for_their_owner_alone_and_wrong_ones_are_named(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(InputError, match="cannot read the secret"):
        secret.load(path)
    secret.make(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(secret.load(path)) == 32
    with pytest.raises(InputError, match="already"):
        secret.make(path)
    path.chmod(0o640)
    with pytest.raises(InputError, match="others may read"):
        secret.load(path)
    path.chmod(0o600)
    for text in ("", "abc", "00" * 31, "zz" * 32):
        path.write_text(text)
        with pytest.raises(InputError, match="no secret"):
            secret.load(path)


def test_users_need_tls_or_a_secret_where_there_are_other_brokers(tmp_path: Path) -> None:
    users = 'users = "users.json"'
    for names, top, good in (
        (["A"], users, True),
        (["A", "B"], "", True),
        (["A", "B"], users, False),
        (["A", "B"], f'{users}\nsecret = "key"', True),
        (["A", "B"], f'{users}\ntls = "certs"', True),
    ):
        pairs = [("A", "B")] if len(names) > 1 else []
        network = load(write_network(tmp_path, names, pairs, top=top))
        if good:
            secret.check_guarded(network)
        else:
            with pytest.raises(InputError, match="anyone may pose as a broker"):
                secret.check_guarded(network)


def test_strangers_are_bounded_and_never_keep_brokers_out(tmp_path: Path) -> None:
    net = memory(
        tmp_path, ["A", "B"], [("A", "B")], tables="[limits]\nconnections_per_address = 10"
    )
    broker = net.brokers[1]
    held = [broker.wire_opened(f"1.2.3.4:{n}", None, net.now) for n in range(30)]
    assert [wire.closing for wire in held] == [False] * 10 + [True] * 20
    many = [broker.wire_opened(f"9.9.{n}.9:1", None, net.now) for n in range(100)]
    assert len(broker.strangers) == strangers.MOST
    assert len(broker.wires) == strangers.MOST + 1
    assert not many[-1].closing
    # What they send is bounded; a broker is let in and counts no longer.
    flood = links.pack(links.Hello(1, "x" * 20_000, 0, "", "", 0))
    broker.wire_received(many[-1], flood[:5_000], net.now)
    assert many[-1].closing
    net.cut(0, 1)
    net.mend(0, 1)
    net.until(lambda: broker.peers[0].link.connected)
    net.run(6_000_000, 10_000)
    assert len(broker.strangers) == 0  # who says nothing is not kept waiting for
    assert broker.peers[0].link.connected


def test_connections_per_second_count_only_strangers() -> None:
    known = Strangers()
    limits = Limits(connects_per_s=3)
    for n in range(20):
        assert known.arrived(n, "1.1.1.1:1", limits, 0) == (True, None)
        known.known(n)
    for n in range(3):
        assert known.arrived(100 + n, "1.1.1.1:1", limits, 0) == (True, None)
    assert known.arrived(200, "1.1.1.1:1", limits, 0) == (False, None)
    assert known.arrived(201, "2.1.1.1:1", limits, 0) == (True, None)
    assert known.arrived(202, "1.1.1.1:1", limits, 1_000_000) == (True, None)
    assert sum(known.may_log(5_000_000) for _ in range(100)) == strangers.SAID_PER_S
