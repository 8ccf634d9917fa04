"""Links under cuts, by seeds: nothing lost, nothing twice, in order. `check(seed)` replays."""

from __future__ import annotations

import random

import msgspec
import pytest

from postroad.live.links import link as links
from postroad.live.links.link import Link, Refused


class Ends:
    """Two ends and a connection that delays, splits and loses at drawn moments."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.links = [Link(0, 1, "a", True), Link(1, 0, "b", True)]
        self.got: list[list[bytes]] = [[], []]
        self.fresh = 0
        self.now = 0
        self.wire: list[bytearray] | None = None
        self.hello = [False, False]

    def connect(self) -> None:
        self.wire = [bytearray(), bytearray()]
        self.buffers = [bytearray(), bytearray()]
        self.hello = [False, False]
        for side in (0, 1):
            self.wire[1 - side] += links.pack(self.links[side].hello("n"))

    def cut(self) -> None:
        if self.wire is not None:
            self.wire = None
            for link in self.links:
                link.on_cut(self.now)

    def turn(self) -> None:
        self.now += self.draw.randint(1, 100_000)
        if self.wire is None:
            return
        for side in (0, 1):
            pile = self.wire[side]
            count = self.draw.randint(0, len(pile))
            self.buffers[side] += pile[:count]
            del pile[:count]
            for frame in links.unpack(self.buffers[side]):
                if isinstance(frame, links.Hello):
                    self.fresh += self.links[side].on_hello(frame, self.now).fresh
                    self.hello[side] = True
                else:
                    assert not isinstance(frame, links.Bye)
                    new = self.links[side].on_frame(frame, self.now)
                    self.got[side] += [msgspec.msgpack.decode(bytes(data)) for data in new]
        for side in (0, 1):
            if self.hello[side]:
                for data in self.links[side].frames(self.now):
                    self.wire[1 - side] += data


def check(seed: int) -> None:
    ends = Ends(seed)
    ends.connect()
    for _ in range(20):
        ends.turn()
    assert ends.fresh == 2
    sent: list[list[int]] = [[], []]
    for number in range(120):
        side = ends.draw.randint(0, 1)
        sent[side].append(number)
        ends.links[side].send(msgspec.msgpack.encode(number))
        what = ends.draw.random()
        if what < 0.15:
            ends.cut()
        elif what < 0.5 and ends.wire is None:
            ends.connect()
        else:
            ends.turn()
    if ends.wire is None:
        ends.connect()
    for _ in range(60):
        ends.turn()
    assert ends.got == [sent[1], sent[0]]
    assert ends.fresh == 2  # every reconnection resumed
    assert not any(link.queue for link in ends.links)


def test_cuts_lose_nothing_and_duplicate_nothing() -> None:
    for seed in range(400):
        try:
            check(seed)
        except BaseException:
            print(f"replay with check({seed})")
            raise


def pair() -> Ends:
    ends = Ends(1)
    ends.connect()
    for _ in range(20):
        ends.turn()
    return ends


def test_an_end_that_gave_up_makes_both_start_afresh() -> None:
    ends = pair()
    ends.links[0].send(msgspec.msgpack.encode(1))
    ends.cut()
    ends.links[0].give_up()
    assert ends.links[0].dropped == 1
    ends.connect()
    for _ in range(20):
        ends.turn()
    assert ends.fresh == 4
    ends.links[0].send(msgspec.msgpack.encode(2))
    for _ in range(20):
        ends.turn()
    assert ends.got[1] == [2]


def test_no_more_is_sent_than_the_peer_grants() -> None:
    ends = pair()
    near, far = ends.links
    far.open = False
    for number in range(links.WINDOW + 5000):
        near.send(msgspec.msgpack.encode(number))
    for _ in range(400):
        ends.turn()
    assert len(ends.got[1]) <= links.WINDOW + 1
    assert near.queue
    far.open = True
    for _ in range(400):
        ends.turn()
    assert ends.got[1] == list(range(links.WINDOW + 5000))


def test_silence_and_absence_are_noticed() -> None:
    ends = pair()
    link = ends.links[0]
    assert link.tick(ends.now) is None
    assert link.tick(ends.now + links.SILENCE_US + 1) == "silent"
    ends.cut()
    assert link.tick(ends.now) is None
    assert link.tick(ends.now + links.PATIENCE_US + 1) == "lost"


@pytest.mark.parametrize(
    "frame",
    [
        links.Ack(99, 0),
        links.Data(5, 0, 0, [msgspec.Raw(b"\x01")]),
        links.Data(0, 0, 0, [msgspec.Raw(b"\x01")]),
    ],
)
def test_impossible_numbers_are_refused(frame: links.Data | links.Ack) -> None:
    with pytest.raises(Refused):
        pair().links[0].on_frame(frame, 0)


def test_bytes_that_are_no_frame_are_refused() -> None:
    for data in (b"\x00\x00\x00\x01\xc1", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02\x91\xa1"):
        with pytest.raises(Refused):
            links.unpack(bytearray(data))


@pytest.mark.parametrize("seed", range(60))
def test_what_is_dealt_with_at_once_ends_where_a_frame_does(seed: int) -> None:
    draw = random.Random(seed)
    stream, ends = b"", [0]
    for _ in range(draw.randint(1, 12)):
        size = draw.choice([0, 1, 3, 10, 50, 300])
        stream += size.to_bytes(4, "big") + draw.randbytes(size)
        ends.append(len(stream))
    came, stop = draw.randint(0, len(stream)), draw.randint(0, len(stream))
    least = draw.choice([1, 20, 100])
    at = came = min(came, stop)  # what is begun came before; the rest may be cut
    while at < stop:
        begun = bytearray(stream[max(end for end in ends if end <= at) : at])
        end = came + links.whole(begun, stream[came:stop], at - came, least)
        assert end == min([end for end in ends if at + least <= end <= stop], default=stop)
        at = end


def test_heartbeats_measure_the_link() -> None:
    """One way takes 40 ms here; what lies about at the other end is not counted."""
    near, far = Link(0, 1, "a", True), Link(1, 0, "b", True)
    hellos = near.hello("n"), far.hello("n")
    near.on_hello(hellos[1], 0)
    far.on_hello(hellos[0], 0)
    assert near.delay_us is None
    now = 0
    for _ in range(4):
        now += links.HEARTBEAT_US
        for source, target, held_us in ((near, far, 0), (far, near, 25_000), (near, far, 1_000)):
            now += held_us
            frames = source.frames(now)
            now += 40_000
            for data in frames:
                for frame in links.unpack(bytearray(data)):
                    assert isinstance(frame, links.Ack)
                    target.on_frame(frame, now)
    assert near.delay_us == 40_000
    assert far.delay_us == 40_000
