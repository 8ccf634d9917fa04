"""Publications of many clients in one message: who published each, and as what."""

from __future__ import annotations

import random
from array import array
from collections.abc import Mapping
from typing import NamedTuple

import mqtt5
import msgspec
import pytest

from postroad.live.edge import mqtt
from postroad.live.links.batch import (
    BYTES_MAX,
    COUNT_MAX,
    MATCHED_MAX,
    Origins,
    OutgoingBatch,
    cut,
)
from postroad.live.links.messages import BadMessage, BatchMessage, Codec, Stretch
from postroad.matching.index import TAG_BYTES
from postroad.model import Publication, Scalar

CODEC = Codec()


class Sent(NamedTuple):
    publisher: str
    id: str
    packet: bytes
    time_us: int
    hops: int
    told: bytes


class Far:
    """A neighbour that takes batches, or none, and what came there."""

    def __init__(self, takes: bool) -> None:
        self.takes = takes
        self.got: list[Sent] = []
        self.batches: list[BatchMessage] = []

    def read(self, batch: BatchMessage) -> None:
        self.batches.append(batch)
        origins, at = Origins.of(batch), 0
        for place, packet in enumerate(mqtt.usuals(batch.packets)):
            single = origins.single(place, packet, {})
            told = batch.told[at : at + 1 + TAG_BYTES * batch.told[at]] if batch.told else b"\0"
            at += len(told)
            self.got.append(
                Sent(single.publisher, single.id, packet, single.time_us, batch.hops, told)
            )
        assert at == len(batch.told) or not batch.told


class Way:
    def __init__(self, peers: Mapping[int, Far]) -> None:
        self.peers = peers

    def takes_batches(self, peer: int) -> bool:
        return self.peers[peer].takes

    def send_batch(self, peer: int, batch: BatchMessage) -> None:
        message = CODEC.decode(CODEC.encode(batch))
        assert isinstance(message, BatchMessage)
        self.peers[peer].read(message)

    def send_on(self, peer: int, publication: Publication, hops: int) -> None:
        sent = Sent(publication.publisher, publication.id, publication.payload,
                    publication.time_us, hops, b"\0")  # fmt: skip
        self.peers[peer].got.append(sent)

    def each_of(self, run: bytes) -> list[tuple[bytes, Mapping[str, Scalar]]]:
        return [(packet, {}) for packet in mqtt.usuals(run)]


def packet(draw: random.Random) -> bytes:
    return mqtt5.PublishPacket("t", draw.randbytes(draw.choice([0, 5, 300]))).write()


def places(numbers: list[int]) -> bytes:
    return array("H", numbers).tobytes()


def bare(sent: list[Sent]) -> list[Sent]:
    return [each._replace(told=b"\0") for each in sent]


@pytest.mark.parametrize("seed", range(40))
def test_each_arrives_under_its_name_over_two_links(seed: int) -> None:
    draw = random.Random(seed)
    peers = {peer: Far(draw.random() < 0.8) for peer in range(3)}
    batch = OutgoingBatch(Way(peers))
    expected: dict[int, list[Sent]] = {peer: [] for peer in peers}
    for number in range(60):
        publisher, time_us = f"p{draw.randrange(4)}", draw.randrange(99)
        first = draw.choice([1, 10**12])
        origins = Origins.own(publisher, "0-1", first, time_us)
        for _ in range(draw.randint(1, 3)):
            chosen = sorted(draw.sample(range(500), draw.choice([1, 1, 2, 30])))
            packets = [packet(draw) for _ in chosen]
            told = [bytes((n,)) + draw.randbytes(TAG_BYTES * n)
                    for n in (draw.randrange(3) for _ in chosen)]  # fmt: skip
            known = draw.random() < 0.5
            to = sorted(draw.sample(sorted(peers), draw.randint(1, 3)))
            if len(chosen) == 1 and not known:
                batch.add_one(origins, chosen[0], packets[0], to)
            else:
                whole = b"".join(told) if known else b""
                batch.add(origins, places(chosen), b"".join(packets), to, whole)
            for peer in to:
                expected[peer] += [
                    Sent(publisher, f"0-1.{first + place}", each, time_us, 1, said)
                    for place, each, said in zip(
                        chosen, packets, told if known else [b"\0"] * len(told), strict=True
                    )
                ]
        if number % 7 == 6:
            batch.close()
    batch.close()
    for peer, far in peers.items():
        assert bare(far.got) == bare(expected[peer])
        if far.takes:
            # Of one that goes by itself nothing is told.
            assert all(sent.told in (said.told, b"\0")
                       for sent, said in zip(far.got, expected[peer], strict=True))  # fmt: skip
            told = [part for part in far.batches if part.told]
            assert told
            for message in far.batches:
                assert message.count < COUNT_MAX + 30
                assert len(message.packets) + len(message.told) < BYTES_MAX + 30 * 400
    # Some of what came is passed on: from one message, from places on.
    onward = {9: Far(True)}
    second = OutgoingBatch(Way(onward))
    goes: list[Sent] = []
    for far in peers.values():
        for message in far.batches:
            each = Far(True)
            each.read(message)
            origins = Origins.of(message)
            origins.start = draw.randrange(message.count)
            left = range(message.count - origins.start)
            chosen = sorted(draw.sample(left, draw.randint(1, len(left))))
            some = [each.got[origins.start + place] for place in chosen]
            second.add(origins, places(chosen), b"".join(one.packet for one in some), [9])
            goes += [one._replace(hops=2) for one in some]
            assert [origins.at(place)[1] for place in chosen] == [
                int(one.id.split(".")[1]) for one in some
            ]
    second.close()
    assert bare(onward[9].got) == bare(goes)
    # What is cut out of a message is that, and nothing is told of it.
    for message in onward[9].batches:
        first = draw.randrange(message.count)
        stop = draw.randint(first + 1, message.count)
        whole, part = Far(True), Far(True)
        whole.read(message)
        cut_out = b"".join(one.packet for one in whole.got[first:stop])
        part.read(cut(message, first, stop, cut_out))
        assert part.got == bare(whole.got[first:stop])


def test_what_came_from_afar_does_not_go_with_what_own_clients_publish() -> None:
    far = Far(True)
    batch = OutgoingBatch(Way({1: far}))
    came = BatchMessage((Stretch("q", "9-9", 5, 2, 0),), places([0, 3]), b"", b"", 7)
    one = mqtt5.PublishPacket("t", b"").write()
    for origins in (Origins.own("p", "0-1", 1, 0), Origins.of(came)):
        batch.add(origins, places([0, 1]), 2 * one, [1])
    batch.close()
    assert [(sent.id, sent.hops) for sent in far.got] == [
        ("0-1.1", 1), ("0-1.2", 1), ("9-9.5", 8), ("9-9.8", 8),
    ]  # fmt: skip
    assert len(far.batches) == 2


def test_fewer_go_together_of_which_nothing_is_told() -> None:
    one = mqtt5.PublishPacket("t", b"").write()
    for told, most in ((b"", MATCHED_MAX), (b"\1" + bytes(TAG_BYTES), COUNT_MAX)):
        far = Far(True)
        batch = OutgoingBatch(Way({1: far}))
        origins = Origins.own("p", "0-1", 1, 0)
        for place in range(3 * COUNT_MAX):
            batch.add(origins, places([place]), one, [1], told)
        assert {message.count for message in far.batches} == {most}
        assert len(far.got) == 3 * COUNT_MAX


@pytest.mark.parametrize(
    ("stretches", "offsets"),
    [
        ([], b""),
        ([], b"\0\0"),
        ([["p", "0-1", 1, 1, 0]], b""),
        ([["p", "0-1", 1, 1, 0]], b"\0"),
        ([["p", "0-1", 1, 1, 0]], b"\0\0\0"),
        ([["p", "0-1", 1, 2, 0], ["p", "0-1", 1, 0, 0]], b"\0\0\0\0"),
        ([["p", "0-1", 1, 3, 0], ["p", "0-1", 1, -1, 0]], b"\0\0\0\0"),
        ([["p", "0-1", 1]], b"\0\0"),
        ("p", b"\0\0"),
    ],
)
def test_a_message_whose_stretches_do_not_add_up_is_refused(
    stretches: object, offsets: bytes
) -> None:
    good = {"stretches": [["p", "0-1", 1, 1, 0]], "offsets": b"\0\0", "packets": b"", "told": b"",
            "hops": 1}  # fmt: skip
    assert isinstance(CODEC.decode(msgspec.msgpack.encode((BatchMessage.wire, good))), BatchMessage)
    bad = {**good, "stretches": stretches, "offsets": offsets}
    data = msgspec.msgpack.encode((BatchMessage.wire, bad))
    with pytest.raises(BadMessage):
        CODEC.decode(data)
    assert CODEC.together(data) is None
