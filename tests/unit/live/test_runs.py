"""Publications that are handed out in runs arrive as those do that the router is asked about."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import combinations
from pathlib import Path
from typing import Any

import mqtt5
import msgspec
import pytest
from msgspec import structs

from filter_texts import expression, row
from live_harness import Memory, memory, wait_for, write_network
from postroad.filters import conjoin, parse
from postroad.live.broker import Broker
from postroad.live.edge import mqtt
from postroad.live.edge.runs import (
    LATELY_US,
    RUN,
    SHORT_INPUT_BYTES,
    TURN_BYTES,
    TURN_INPUT_BYTES,
)
from postroad.live.edge.session import Connection
from postroad.live.links import link as links
from postroad.live.links.messages import (
    BatchMessage,
    Codec,
    Echo,
    ListedBatchMessage,
    RunMessage,
    Stretch,
)
from postroad.live.network import load
from postroad.matching.index import PASSED_MAX
from postroad.matching.packets import RUN_BYTES
from postroad.model import Publication, Subscription
from postroad.routing.base import (
    Deliver,
    LinkUp,
    Message,
    PublicationMessage,
    Publish,
    Subscribe,
    Unsubscribe,
)
from postroad.routing.pool import FilterPool
from postroad.routing.subscription_forwarding import Config, SubscriptionForwarding

TOPICS = ["a", "a/b", "a/c", "b", "a/x/b/y", "x/" + "y" * 130]
PATTERNS = [*TOPICS, "#", "a/+", "+"]
LEVELS = ["+/b/#", "+/c/#"]  # that no filter says exactly: of a/x/b/y it says too much


def v3_connect(name: str) -> bytes:
    body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2, "big") + name.encode()
    return bytes((0x10, len(body))) + body


def v3(first: int, body: bytes) -> bytes:
    length, size = len(body), b""
    while length > 127:
        size += bytes((length & 127 | 128,))
        length >>= 7
    return bytes((first,)) + size + bytes((length,)) + body


def field(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


def single_steps(broker: Broker) -> None:
    """Have a broker ask its router about each publication."""
    broker.recipients = lambda *_: None  # type: ignore[method-assign]
    broker.interested = lambda *_: None  # type: ignore[method-assign]
    broker.asking = lambda *_: lambda _: None  # type: ignore[method-assign]
    broker.deciding = lambda: None  # type: ignore[method-assign]


class Side:
    """A broker in memory and its clients."""

    def __init__(self, path: Path, runs: bool) -> None:
        self.broker = Broker(load(path), 0, 1_000_000)
        self.connections: dict[str, Connection] = {}
        if not runs:
            single_steps(self.broker)

    def connect(self, name: str, level: int) -> None:
        connection = self.broker.clients.opened("memory:1", 1_000_000)
        assert connection is not None
        self.connections[name] = connection
        first = mqtt5.ConnectPacket(name, clean_start=True).write()
        self.send(name, first if level == 5 else v3_connect(name))

    def send(self, name: str, data: bytes) -> None:
        self.broker.clients.received(self.connections[name], data, 1_000_000)
        self.broker.flush(1_000_000)

    def got(self, name: str) -> bytes:
        return b"".join(self.connections[name].out)


def subscribe(
    draw: random.Random, level: int, number: int, patterns: list[str] = PATTERNS
) -> bytes:
    pattern, qos = draw.choice(patterns), draw.choice([0, 0, 0, 0, 1])
    if level != 5:
        return v3(0x82, number.to_bytes(2, "big") + field(pattern) + bytes((qos,)))
    shared = number % 17 == 1
    wanted = mqtt5.TopicFilter(
        f"$share/g/{TOPICS[2 + number % 2]}" if shared else pattern,
        max_qos=mqtt5.QoS(qos), retain_as_published=False,
        no_local=draw.random() < 0.05 and not shared,
    )  # fmt: skip
    properties = [("$where", "n >= 5")] if draw.random() < 0.15 else []
    return mqtt5.SubscribePacket(number, [wanted], user_properties=properties).write()


def publication(draw: random.Random, level: int, topic: str) -> bytes:
    payload = b'{"n": %d, "pad": "%s"}' % (
        draw.randrange(10), b"x" * draw.choice([0, 0, 0, 1, 60, 200, 20_000]),
    )  # fmt: skip
    payload = draw.choice([payload, payload, b"", b"\x00text"])
    if level == 5:
        expiry = 60 if draw.random() < 0.05 else None
        return mqtt5.PublishPacket(topic, payload, message_expiry_interval=expiry).write()
    return v3(0x30, field(topic) + payload)


class Quiet(Side):
    """A broker that takes turns; what comes alone is written without one where that can be."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, True)
        self.broker.clients.take_turns(lambda: 0)
        self.written: dict[Connection, bytes] = {}
        self.at_once = 0

    def send(self, name: str, data: bytes) -> None:
        clients, connection = self.broker.clients, self.connections[name]
        route = clients.alone.destinations(connection, data)
        if route is not None:
            self.at_once += 1
            assert mqtt.goes_alone(data, route.field)
            old = connection.level == mqtt.V3
            for target in route.targets:
                same = target.level == connection.level
                written = data if same else mqtt.as_of_other_level(data, old)
                self.written[target] = self.written.get(target, b"") + written
            clients.alone.went(connection, data, len(route.targets), 1_000_000)
            return
        clients.received(connection, data, 1_000_000)
        while clients.busy:
            clients.work(1_000_000)
            self.broker.flush(1_000_000)
        for each in clients.take_dirty():
            self.written[each] = self.written.get(each, b"") + each.take_out()

    def got(self, name: str) -> bytes:
        return self.written[self.connections[name]]


@pytest.mark.parametrize("seed", range(10))
def test_what_is_written_without_a_turn_is_what_single_steps_deliver(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    path = write_network(tmp_path, ["A"], [])
    quiet, slow = Quiet(path), Side(path, False)
    levels = {f"c{n}": draw.choice([4, 5, 5]) for n in range(6)}
    for name, level in levels.items():
        quiet.connect(name, level)
        slow.connect(name, level)
    for step in range(300):
        name, topic = draw.choice(list(levels)), draw.choice(TOPICS[:3])
        level, chance = levels[name], draw.random()
        if chance < 0.04:
            data = subscribe(draw, level, step + 1)
        elif chance < 0.06 and level == 5:
            data = mqtt5.UnsubscribePacket(step + 1, [draw.choice(PATTERNS)]).write()
        else:
            data = publication(draw, level, topic)
        quiet.send(name, data)
        slow.send(name, data)
        for each in levels:
            assert quiet.got(each) == slow.got(each), (seed, step, each)
    assert quiet.at_once > 10
    counts = [
        (tally.published, tally.delivered, side.broker.steps)
        for side in (quiet, slow)
        for tally in [side.broker.clients.tally]
    ]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("seed", range(25))
def test_runs_deliver_what_single_steps_do(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    sides = [Side(write_network(tmp_path, ["A"], []), runs)
             for runs in (True, False)]  # fmt: skip
    levels = {f"c{n}": draw.choice([4, 5]) for n in range(6)}
    for name, level in levels.items():
        for side in sides:
            side.connect(name, level)
    busy = 0
    for step in range(40):
        name = draw.choice(list(levels))
        level = levels[name]
        if draw.random() < 0.4:
            data = subscribe(draw, level, step + 1, PATTERNS + LEVELS * (seed % 2))
        else:
            topics = [draw.choice(TOPICS)] * draw.randrange(1, 30) + [draw.choice(TOPICS)]
            data = b"".join(publication(draw, level, topic) for topic in topics)
            busy += len(topics)
        cuts = sorted(draw.randrange(len(data) + 1) for _ in range(draw.randrange(3)))
        full = draw.random() < 0.1
        for side in sides:
            side.connections["c0"].full = full
            for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                if start < end:
                    side.send(name, data[start:end])
    for name in levels:
        assert sides[0].got(name) == sides[1].got(name), (seed, name)
    first, second = (side.broker.clients for side in sides)
    assert (first.tally.published, first.tally.delivered, first.tally.dropped) == (
        second.tally.published, second.tally.delivered, second.tally.dropped,
    )  # fmt: skip
    assert first.tally.published == busy
    if seed % 2 == 0:  # a step counts a delivery that levels refuse, too
        assert sum(first.latency.counts) == sum(second.latency.counts)
    assert sides[0].broker.steps == sides[1].broker.steps
    assert sides[0].broker.router.matches_count == sides[1].broker.router.matches_count


MANY = [*(f"t/{n}" for n in range(150)), "t/ü", "t/" + "y" * 130, "a", "a/b"]


def many_topics(draw: random.Random, level: int) -> bytes:
    """Publications to many topics, some several times in a row."""
    topics = [draw.choice(MANY) for _ in range(draw.randrange(1, 80))]
    times = draw.choices([1, 2, 5], [8, 1, 1], k=len(topics))
    return b"".join(
        publication(draw, level, topic)
        for topic, count in zip(topics, times, strict=True)
        for _ in range(count)
    )


def subscribe_to_one(draw: random.Random, level: int, number: int) -> bytes:
    if level == 5 and draw.random() < 0.1:
        return mqtt5.UnsubscribePacket(number, [draw.choice(MANY)]).write()
    if draw.random() < 0.1:
        return subscribe(draw, level, number)
    pattern = draw.choice([*MANY, "t/#"] if draw.random() < 0.3 else MANY[:20])
    if level != 5:
        return v3(0x82, number.to_bytes(2, "big") + field(pattern) + b"\0")
    wanted = mqtt5.TopicFilter(pattern, max_qos=mqtt5.QoS(0), retain_as_published=False)
    return mqtt5.SubscribePacket(number, [wanted]).write()


@pytest.mark.parametrize("seed", range(8))
def test_publications_to_many_topics_go_the_ways_of_single_steps(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    fast, slow = (Side(write_network(tmp_path, ["A"], []), runs) for runs in (True, False))
    levels = {f"c{n}": draw.choice([4, 5]) for n in range(12)}
    for name, level in levels.items():
        for side in (fast, slow):
            side.connect(name, level)
    copied = 0
    copy_to = fast.broker.clients.runs._copy_to

    def counted(*arguments: Any) -> bool:
        nonlocal copied
        done = copy_to(*arguments)
        copied += done
        return done

    fast.broker.clients.runs._copy_to = counted  # type: ignore[method-assign]
    for step in range(80):
        name = draw.choice(list(levels))
        level, chance = levels[name], draw.random()
        wants = step < 20 or chance < 0.3
        data = subscribe_to_one(draw, level, step + 1) if wants else many_topics(draw, level)
        full = draw.random() < 0.1
        for side in (fast, slow):
            side.connections["c0"].full = full
            if 0.3 < chance < 0.33:  # a subscriber goes and comes back
                side.broker.clients.closed(side.connections["c1"], 1_000_000)
                side.connect("c1", levels["c1"])
            side.send(name, data)
    for name in levels:
        assert fast.got(name) == slow.got(name), (seed, name)
    first, second = (side.broker.clients for side in (fast, slow))
    assert first.tally.published == second.tally.published
    assert first.tally.delivered == second.tally.delivered
    assert sum(first.latency.counts) == sum(second.latency.counts)
    assert fast.broker.steps == slow.broker.steps
    assert copied > first.tally.published / 10


@pytest.mark.parametrize("seed", range(6))
def test_what_nobody_wants_is_passed_over_and_nothing_else(tmp_path: Path, seed: int) -> None:
    """Among compiled filters, one publication after the other or many in one look."""
    draw = random.Random(seed)
    sides = [Side(write_network(tmp_path, ["A"], []), runs)
             for runs in (True, False)]  # fmt: skip
    passed = 0
    levels = {f"c{n}": draw.choice([4, 5]) for n in range(4)} | {"c4": 5, "c5": 5}
    for name, level in levels.items():
        for side in sides:
            side.connect(name, level)
    index = sides[0].broker.router.deciding()
    assert index is not None
    index.compile()
    plain = index.passing

    def counted() -> Callable[..., int] | None:
        passing = plain()

        def look(asked: Any) -> int:
            nonlocal passed
            assert passing is not None
            answer = passing(asked)
            passed += answer & PASSED_MAX
            return answer

        return None if passing is None else look

    index.passing = counted  # type: ignore[method-assign, assignment]
    for step in range(60):
        name = draw.choice(list(levels))
        if step < 10 or draw.random() < 0.2:
            name = draw.choice(["c4", "c5"])
            where = draw.choice(["n > 7", "n = 3", "pad = 'x'", "n < 0", "flag = TRUE"])
            wanted = mqtt5.TopicFilter(draw.choice(TOPICS), max_qos=mqtt5.QoS.AT_MOST_ONCE)
            packet = mqtt5.SubscribePacket(step + 1, [wanted], user_properties=[("$where", where)])
            data = packet.write()
        else:
            topics = [draw.choice(TOPICS) for _ in range(draw.randrange(1, 60))]
            data = b"".join(publication(draw, levels[name], topic) for topic in topics)
        for side in sides:
            side.send(name, data)
    for name in levels:
        assert sides[0].got(name) == sides[1].got(name), (seed, name)
    assert passed > 100
    first, second = (side.broker.clients for side in sides)
    assert first.tally.published == second.tally.published
    assert first.tally.delivered == second.tally.delivered
    assert sides[0].broker.steps == sides[1].broker.steps


@pytest.mark.parametrize("seed", range(8))
def test_publications_to_many_topics_in_turn_go_where_single_steps_deliver_them(
    tmp_path: Path, seed: int
) -> None:
    """One by one at first, then gathered by compiled code for a second; changes in between."""
    draw = random.Random(seed)
    sides = [Side(write_network(tmp_path, ["A"], []), runs) for runs in (True, False)]
    fast = sides[0].broker
    topics = [f"t/{n}" for n in range(36)] + TOPICS[2:4]  # groups want the last two
    patterns = [*topics, "t/+", "#"] if seed % 2 else topics
    levels = {f"c{n}": draw.choice([4, 5, 5]) for n in range(14)}
    for name, level in levels.items():
        for side in sides:
            side.connect(name, level)
    index = fast.router.deciding()
    assert index is not None
    index.compile()
    alone = together = 0
    now, number = 1_000_000, 0

    def send(name: str, data: bytes) -> None:
        for side in sides:
            side.broker.tick(now)
            side.broker.clients.received(side.connections[name], data, now)
            side.broker.flush(now)

    for burst in range(60):
        for _ in range(60 if burst == 0 else draw.choice([0, 0, 0, 1])):
            number += 1
            name = draw.choice(list(levels))
            send(name, subscribe(draw, levels[name], number, patterns))
        name, before = draw.choice(["c0", "c1"]), fast.clients.tally.published
        chosen = [draw.choice(topics) for _ in range(draw.randrange(1, 120))]
        if draw.random() < 0.2:  # one comes in a row again
            chosen[3:3] = [draw.choice(topics)] * draw.randrange(1, 40)
        send(name, b"".join(publication(draw, levels[name], topic) for topic in chosen))
        alone += len(fast.clients.ways.in_turn)
        together += fast.clients.tally.published - before
        now += draw.choice([1_000, 50_000, 600_000])
    for name in levels:
        assert sides[0].got(name) == sides[1].got(name), (seed, name)
    assert alone > 30 or seed % 2  # a filter on all topics sets all apart
    first, second = (side.broker.clients for side in sides)
    assert first.tally.published == second.tally.published == together
    assert first.tally.delivered == second.tally.delivered > 1_000
    assert sides[0].broker.steps == sides[1].broker.steps
    for side in sides:  # a second later nothing is set apart that comes in a row
        side.broker.tick(now + 3_000_000)
    assert not fast.clients.ways.in_turn


def test_a_turn_hands_out_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    side = Side(write_network(tmp_path, ["A"], []), True)
    for name in ("p", *map(str, range(20))):
        side.connect(name, 5)
        if name != "p":
            wanted = mqtt5.TopicFilter("a", max_qos=mqtt5.QoS(0), retain_as_published=False)
            side.send(name, mqtt5.SubscribePacket(1, [wanted]).write())
    side.send("p", mqtt5.PublishPacket("a", b"").write())
    clients = side.broker.clients
    clients.take_turns(lambda: 0)  # a clock that stands still: only bytes end a turn
    for connection in side.connections.values():
        connection.out.clear()
    clients.received(
        side.connections["p"], mqtt5.PublishPacket("a", b"x" * 1_000).write() * 500, 1_000_000
    )
    turns = []
    while clients.busy:
        clients.work(1_000_000)
        turns.append(sum(len(c.take_out()) for c in side.connections.values() if c.out))
    assert sum(turns) == 500 * 20 * 1_007
    assert max(turns) <= TURN_BYTES + 20 * 1_007


def test_a_turn_gathers_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    side = Side(write_network(tmp_path, ["A"], []), True)
    for name in ("p", *map(str, range(20))):
        side.connect(name, 5)
        if name != "p":
            wanted = mqtt5.TopicFilter("a", max_qos=mqtt5.QoS(0), retain_as_published=False)
            where = [("$where", "n >= 0")]
            side.send(name, mqtt5.SubscribePacket(1, [wanted], user_properties=where).write())
    index = side.broker.router.deciding()
    assert index is not None
    index.compile()
    packet = mqtt5.PublishPacket("a", b'{"n": 1, "pad": "%s"}' % (1_000 * b"x")).write()
    side.send("p", packet)
    clients = side.broker.clients
    clients.take_turns(lambda: 0)  # a clock that stands still: only bytes end a turn
    for connection in side.connections.values():
        connection.out.clear()
    clients.received(side.connections["p"], packet * 500, 1_000_000)
    turns = []
    while clients.busy:
        clients.work(1_000_000)
        turns.append(sum(len(c.take_out()) for c in side.connections.values() if c.out))
    assert sum(turns) == 500 * 20 * len(packet)
    assert max(turns) <= TURN_BYTES + 20 * (RUN_BYTES + len(packet))


def test_turns_are_short_while_others_send_a_little(tmp_path: Path) -> None:
    side = Side(write_network(tmp_path, ["A"], []), True)
    for name in ("flood", "quiet", "reader"):
        side.connect(name, 5)
    wanted = mqtt5.TopicFilter("a", max_qos=mqtt5.QoS(0), retain_as_published=False)
    side.send("reader", mqtt5.SubscribePacket(1, [wanted]).write())
    packet = mqtt5.PublishPacket("a", b"x" * 100).write()
    for name in ("flood", "quiet"):
        side.send(name, packet)
    clients, reader = side.broker.clients, side.connections["reader"]
    clients.take_turns(lambda: 0)  # a clock that stands still: only bytes end a turn
    reader.take_out()

    def turn(now: int) -> int:
        clients.work(now)
        return len(reader.take_out()) if reader.out else 0

    clients.received(side.connections["flood"], packet * 10_000, 1_000_000)
    assert turn(1_000_000) >= TURN_INPUT_BYTES
    clients.received(side.connections["quiet"], packet, 1_000_100)
    most = SHORT_INPUT_BYTES + RUN * len(packet)
    assert turn(1_000_100) <= len(packet) + most
    assert SHORT_INPUT_BYTES <= turn(1_000_200) <= most < TURN_INPUT_BYTES
    assert turn(1_000_100 + LATELY_US) >= TURN_INPUT_BYTES


@pytest.mark.parametrize("seed", range(20))
def test_recipients_are_those_a_step_delivers_to(seed: int) -> None:
    draw = random.Random(seed)
    router = SubscriptionForwarding(0, Config(), FilterPool())
    router.step(LinkUp(1), 0)
    held: list[str] = []
    said = 0
    for n in range(120):
        if held and draw.random() < 0.4:
            router.step(Unsubscribe(held.pop(draw.randrange(len(held)))), 0)
        elif draw.random() < 0.5:
            topic = draw.choice(TOPICS)
            wanted = parse(draw.choice(
                [f"class = '{topic}'", f"class IN ('{topic}', 'b')", "class LIKE 'a%'", "TRUE"]
            ))  # fmt: skip
            if draw.random() < 0.3:
                content = parse(expression(draw, 1))
                wanted = conjoin(wanted, content)
            held.append(f"s{n}")
            router.step(Subscribe(Subscription(held[-1], wanted, "c")), 0)
        topic = draw.choice(TOPICS)
        found = router.recipients(topic)
        for _ in range(4):
            item = Publication("p", str(n), {**row(draw), "class": topic}, b"", 0)
            names, peers = router.interested(item.attributes) or ([], [])
            effects = router.step(Publish(item), 0)
            assert effects == [Deliver(name, item, 0) for name in names]
            assert peers == []
            if found is not None:
                assert effects == [Deliver(name, item, 0) for name in found[0]]
                assert found[1] == []
                said += 1
    assert said > 20


@pytest.mark.parametrize("seed", range(12))
def test_runs_over_links_deliver_what_single_publications_do(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    sides: list[Memory] = []
    spare = [("A", "C")] if seed % 2 else []
    for runs in (True, False):
        net = memory(tmp_path, ["A", "B", "C"], [("A", "B"), ("B", "C"), *spare])
        if not runs:
            for broker in net.brokers:
                single_steps(broker)
        sides.append(net)
    levels = [draw.choice([4, 5]) for _ in range(8)]
    clients = [[net.client(n % 3, f"c{n}", level) for n, level in enumerate(levels)]
               for net in sides]  # fmt: skip
    for n, level in enumerate(levels):
        for number in range(draw.randrange(3)):
            data = subscribe(draw, level, number + 1)
            for side in clients:
                side[n].raw(data)
    for net in sides:
        net.run(300_000)
    busy = 0
    for _ in range(12):
        n = draw.randrange(len(levels))
        topics = [draw.choice(TOPICS)] * draw.randrange(1, 60) + [draw.choice(TOPICS)]
        if seed % 3 == 0:  # so that few are of the same topic as the one before
            topics = [draw.choice(TOPICS) for _ in topics]
        data = b"".join(publication(draw, levels[n], topic) for topic in topics)
        busy += len(topics)
        for net, side in zip(sides, clients, strict=True):
            side[n].raw(data)
            net.run(150_000)
    for one, other in zip(*clients, strict=True):
        assert one.bytes == other.bytes
        assert (one.level, bool(one.bytes)) == (other.level, True)  # CONNACK at least
    first, second = (net.brokers for net in sides)
    for a, b in zip(first, second, strict=True):
        assert a.clients.tally.delivered == b.clients.tally.delivered
        assert a.router.matches_count == b.router.matches_count
        for peer, neighbour in a.peers.items():
            other_end = b.peers[peer]
            for ours, theirs in (
                (neighbour.sent, other_end.sent), (neighbour.received, other_end.received),
            ):  # fmt: skip
                assert ours.get("publication", 0) == theirs.get("publication", 0)
    assert sum(broker.clients.tally.published for broker in first) == busy


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("plain", [False, True])
def test_batches_matched_as_they_stand_deliver_what_single_publications_do(
    tmp_path: Path, seed: int, plain: bool
) -> None:
    """Among compiled filters, at the broker of the publisher and at those after it; or to many
    topics of which filters ask no more, but for a group."""
    draw = random.Random(seed)
    topics_of = [f"t/{n}" for n in range(20)] + ["b"] if plain else TOPICS
    sides: list[Memory] = []
    found, gathered, told = Counter[int | str](), Counter[int](), Counter[int]()
    for single in (False, True):
        net = memory(tmp_path, ["A", "B", "C"], [("A", "B"), ("B", "C")])
        sides.append(net)
        for number, broker in enumerate(net.brokers):
            if single:
                broker.takes_batches = lambda _: False  # type: ignore[method-assign]
                broker.deciding = lambda *_: None  # type: ignore[method-assign]
                continue
            index = broker.router.deciding()
            assert index is not None
            index.compile()

            def counted(
                number: int = number, index: Any = index, plain: Any = index.passing
            ) -> Any:
                def look(asked: Any) -> int:
                    answer: int = plain()(asked)
                    found[number] += len(asked[7]) // 3
                    gathered[number] += asked[7][1::3].count(None)
                    told[number] += bool(asked[10])
                    return answer

                return look

            index.passing = counted  # type: ignore[method-assign]

            def send(peer: int, batch: Any, plain: Any = broker.send_batch) -> None:
                found["of several clients"] += len(batch.stretches) > 1
                plain(peer, batch)

            broker.send_batch = send  # type: ignore[method-assign]
    levels = [draw.choice([4, 5]) for _ in range(4)] + [5] * 5
    clients = [[net.client(n % 3, f"c{n}", level, session_expiry_interval=999)
                for n, level in enumerate(levels)] for net in sides]  # fmt: skip
    gone: list[list[Any]] = [[], []]
    for n in range(4, 9):
        for number in range(1, 5):
            where = draw.choice(["n > 7", "n = 3", "pad = 'x'", "n >= 6 AND n < 8", "n < 0"])
            topic = draw.choice(topics_of)
            if plain and number < 3:  # to b both a group and others subscribe
                topic = "$share/g/b" if n == 8 else "b"
            wanted = mqtt5.TopicFilter(topic, max_qos=mqtt5.QoS.AT_MOST_ONCE)
            said = [] if plain else [("$where", where)]
            packet = mqtt5.SubscribePacket(number, [wanted], user_properties=said)
            for side in clients:
                side[n].raw(packet.write())
    for net in sides:
        net.run(300_000)
    for step in range(30):
        n = draw.randrange(4)
        topics = [draw.choice(topics_of) for _ in range(draw.randrange(1, 60))]
        bodies = [b'{"n": %d, "pad": "%s"}' % (draw.randrange(10), b"x" * draw.randrange(2))
                  for _ in topics]  # fmt: skip
        data = b"".join(
            publication(draw, levels[n], topic) if draw.random() < 0.1
            else mqtt5.PublishPacket(topic, body).write() if levels[n] == 5
            else v3(0x30, field(topic) + body)
            for topic, body in zip(topics, bodies, strict=True)
        )  # fmt: skip
        also = {
            5: b"".join(mqtt5.PublishPacket(topic, body).write()
                        for topic, body in zip(topics, bodies, strict=True)),
            4: b"".join(v3(0x30, field(topic) + body)
                        for topic, body in zip(topics, bodies, strict=True)),
        }  # fmt: skip
        for number, (net, side) in enumerate(zip(sides, clients, strict=True)):
            # What was learned of who gets what holds, but one is away, or back as another client,
            # or reads too slowly.
            if step in (8, 20):
                side[6].drop()
            elif step in (11, 23):
                gone[number].append(side[6])
                side[6] = net.client(0, "c6", 4 if step == 11 else 5, clean_start=False)
            elif step in (14, 17):
                side[7].connection.full = step == 14
            elif step == 26:  # a subscriber comes anew, and gets nothing without a further look
                side[5].raw(mqtt5.DisconnectPacket().write())
                side[5] = net.client(2, "c5")
                side[5].subscribe(TOPICS[0], "n > 2", max_qos=mqtt5.QoS.AT_LEAST_ONCE)
            side[n].raw(data)
            if n in (0, 3) and step % 3:  # another at this broker, before anything goes on
                side[3 - n].raw(also[side[3 - n].level])
            net.run(150_000)
    for mine, left in zip(clients, gone, strict=True):
        mine += left
    for one, other in zip(*clients, strict=True):
        assert one.bytes == other.bytes
    for a, b in zip(*(net.brokers for net in sides), strict=True):
        assert a.clients.tally.delivered == b.clients.tally.delivered
        assert a.router.matches_count == b.router.matches_count
    assert all(found[number] > 5 for number in range(3)), found
    assert gathered.total() > 10, gathered
    assert found.total() > 50
    assert found["of several clients"] > 5
    assert told.total() > 2, told


def test_of_runs_what_is_sampled_is_traced(tmp_path: Path) -> None:
    rows, messages = [], []
    for runs in (True, False):
        links = [("A", "B"), ("B", "C")]
        traces = "[traces]\nfolder = 'traces'\nsample = 0.02"
        net = memory(tmp_path, ["A", "B", "C"], links, tables=traces)
        if not runs:
            for broker in net.brokers:
                single_steps(broker)
        reader, writer = net.client(2, "r"), net.client(0, "w")
        reader.subscribe("a")
        for n in range(8):
            writer.raw(mqtt5.PublishPacket("a", b"%d" % n).write() * 100)
            net.run(100_000)
        assert [int(payload) for _, payload in reader.got()] == [n // 100 for n in range(800)]
        kinds = ("publish", "send", "receive", "deliver")
        rows.append([
            (row.kind, row.broker, row.publication) for row in net.rows()
            if row.kind in kinds and row.publication
        ])  # fmt: skip
        messages.append(net.brokers[0].peers[1].link.base)
    assert sorted(rows[0]) == sorted(rows[1])
    assert len(rows[0]) > 5 * 8
    assert messages[0] < messages[1] / 5


@pytest.mark.parametrize("seed", range(30))
def test_packets_that_begin_alike_are_those_that_do(seed: int) -> None:
    draw = random.Random(seed)
    head = draw.randrange(1, 12)
    length = head + draw.randrange(4)
    first = bytes(draw.choices(range(3), k=head))
    packets = [first + bytes(draw.choices(range(3), k=length - head)) for _ in range(40)]
    if draw.random() < 0.8:  # one that differs, somewhere
        n, place = draw.randrange(1, 40), draw.randrange(head)
        packets[n] = packets[n][:place] + b"\xff" + packets[n][place + 1 :]
    before, after = bytes(draw.randrange(4)), packets[0][: draw.randrange(length)]
    most = draw.choice([1, 2, 5, 39, 100])
    expected = 1
    while expected < min(most, 40) and packets[expected].startswith(first):
        expected += 1
    data = before + b"".join(packets) + after
    assert mqtt.alike(data, len(before), length, head, most) == expected


def test_a_run_that_is_none_is_refused() -> None:
    whole = mqtt5.PublishPacket("a", b"x" * 200).write()
    assert mqtt.usual(whole, 0, "a")[2] == len(whole)
    for data, topic in (
        (whole[:-1], "a"),
        (whole, "b"),
        (whole[:1], "a"),
        (whole, "a" * 65_536),
        (b"\x31" + whole[1:], "a"),
        (mqtt5.PublishPacket("a", b"", message_expiry_interval=1).write(), "a"),
        (b"\x30\x02\x00\x01", "a"),
    ):
        with pytest.raises(mqtt.Malformed):
            mqtt.usual(data, 0, topic)


@pytest.mark.parametrize("spare", [False, True])
def test_an_older_neighbour_gets_no_runs(tmp_path: Path, spare: bool) -> None:
    names = ["A", "B", "C"] if spare else ["A", "B"]
    net = memory(tmp_path, names, list(combinations(names, 2)))
    reader, writer = net.client(1, "r"), net.client(0, "w")
    reader.subscribe("a")
    packets = mqtt5.PublishPacket("a", b"x").write() * 20
    for version, messages in ((links.RUNS, 2), (1, 20)):
        neighbour = net.brokers[0].peers[1]
        neighbour.version = version
        before = neighbour.link.base + len(neighbour.link.queue)
        writer.raw(packets)
        net.run(200_000)
        assert reader.got() == [("a", b"x")] * 20
        sent = neighbour.link.base + len(neighbour.link.queue) - before
        assert sent <= messages
        assert (sent < 20) == (version == links.RUNS)


@pytest.mark.parametrize("spare", [False, True])
def test_an_older_neighbour_gets_no_batches(tmp_path: Path, spare: bool) -> None:
    names = ["A", "B", "C"] if spare else ["A", "B"]
    net = memory(tmp_path, names, list(combinations(names, 2)))
    reader, writer = net.client(1, "r"), net.client(0, "w")
    reader.subscribe("a/+", "n < 30")
    packets = [mqtt5.PublishPacket(f"a/{n % 3}", b'{"n": %d}' % n).write() for n in range(40)]
    for version in (links.BATCHES, links.RUNS):
        neighbour = net.brokers[0].peers[1]
        neighbour.version = version
        before = neighbour.link.base + len(neighbour.link.queue)
        counted = neighbour.sent.get("publication", 0)
        writer.raw(b"".join(packets))
        net.run(200_000)
        assert reader.got() == [(f"a/{n % 3}", b'{"n": %d}' % n) for n in range(30)]
        sent = neighbour.link.base + len(neighbour.link.queue) - before
        assert sent < 10 if version == links.BATCHES else sent >= 30
        assert neighbour.sent["publication"] == counted + 30
        assert net.brokers[1].peers[0].received["publication"] == counted + 30


@pytest.mark.parametrize("seed", range(3))
def test_of_filtered_publications_what_is_sampled_is_traced(tmp_path: Path, seed: int) -> None:
    """The rows are those of brokers that ask their routers about each publication; the others go
    together, within a broker and over links."""
    rows, got, messages = [], [], []
    for together in (True, False):
        draw = random.Random(seed)
        links = [("A", "B"), ("B", "C")]
        traces = "[traces]\nfolder = 'traces'\nsample = 0.02"
        net = memory(tmp_path, ["A", "B", "C"], links, tables=traces)
        for broker in net.brokers:
            if together:
                index = broker.router.deciding()
                assert index is not None
                index.compile()
            else:
                single_steps(broker)
        readers = [net.client(place, f"r{place}") for place in range(3)]
        for place, reader in enumerate(readers):
            reader.subscribe("a", f"n >= {draw.randrange(5)}")
            reader.subscribe("b", f"n < {draw.randrange(1, 5)}")
            reader.subscribe(f"c/{place}")
        writers = [net.client(place, f"w{place}", level=level) for place, level in ((0, 5), (2, 4))]
        for _ in range(6):
            for writer in writers:
                topics, sent = draw.choices(["a", "a", "b", "c/0", "c/2"], k=150), b""
                begins = b"" if writer.level == mqtt.V3 else b"\0"
                for topic in topics:
                    body = b'{"n": %d, "k": %d}' % (draw.randrange(8), draw.randrange(999))
                    sent += v3(0x30, field(topic) + begins + body)
                writer.raw(sent)
            net.run(100_000)
        got.append([sorted(reader.got()) for reader in readers])
        kinds = ("publish", "send", "receive", "deliver", "stop")
        rows.append(sorted(
            (row.kind, row.broker, row.publication) for row in net.rows()
            if row.kind in kinds and row.publication
        ))  # fmt: skip
        messages.append(net.brokers[0].peers[1].link.base)
    assert got[0] == got[1]
    assert rows[0] == rows[1]
    assert len(rows[0]) > 40
    assert messages[0] < messages[1] / 2


def batch_of(numbers: Sequence[int], packets: bytes, time_us: int = 0, hops: int = 1) -> Any:
    offsets = array("H", [number - numbers[0] for number in numbers]).tobytes()
    part = Stretch("p", "0-1", numbers[0], len(numbers), time_us)
    return BatchMessage((part,), offsets, packets, b"", hops)


def test_a_batch_that_is_none_is_refused(tmp_path: Path) -> None:
    one, other = (mqtt5.PublishPacket(topic, b"x" * 200).write() for topic in ("a", "b\u00e4"))
    clients = memory(tmp_path, ["A", "B"], [("A", "B")]).brokers[1].clients
    whole = batch_of([3, 4, 9], one + other + one)
    parts = list(clients.runs.parts(whole, {0, 1, 2}))
    singles = [part[0] for part in parts if isinstance(part, tuple)]
    assert len(singles) == len(parts)
    assert [(each.id, each.attributes["class"]) for each in singles] == [
        ("0-1.3", "a"), ("0-1.4", "b\u00e4"), ("0-1.9", "a")
    ]  # fmt: skip
    assert [each.payload for each in singles] == [one, other, one]
    assert clients.runs.take_batch(whole, 0, 0) == 3
    for data in (
        one,
        one + other + one,
        one + other[:-1],
        one + b"\x31" + other[1:],
        one + mqtt5.PublishPacket("a", b"", message_expiry_interval=1).write(),
        one + b"\x30\x02\x00\x01",
        one + b"\x30\xff\xff\xff\x7f" + other,
        one + b"\x30\x05\x00\x02\xff\xfe\x00",
        one + b"\x30",
    ):
        batch = batch_of([1, 2], data)
        with pytest.raises(mqtt.Malformed):
            list(clients.runs.parts(batch, {1}))
        with pytest.raises(mqtt.Malformed):
            clients.runs.take_batch(batch, 0, 0)


def test_what_came_before_a_bad_packet_of_a_batch_is_handed_on(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A", "B", "C"], [("A", "B"), ("B", "C")])
    near, far = net.client(1, "n"), net.client(2, "f")
    near.subscribe("a", "n < 30")
    far.subscribe("a", "n < 30")
    packets = mqtt5.PublishPacket("a", b'{"n": 1}').write() + b"\x31"
    batch = batch_of([1, 2], packets, net.now, 1)
    neighbour = net.brokers[1].peers[0]
    with pytest.raises(mqtt.Malformed):
        net.brokers[1]._on_message(neighbour, batch, 1, net.now)
    net.run(100_000)
    assert near.got() == far.got() == [("a", b'{"n": 1}')]


def test_a_batch_of_an_older_neighbour_is_taken_one_by_one(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A", "B", "C"], [("A", "B"), ("B", "C")])
    near, far = net.client(1, "n"), net.client(2, "f")
    near.subscribe("+", "n < 30")
    far.subscribe("\u00e4", "n < 30")
    topics = ["a", "\u00e4", "a"]
    packets = [mqtt5.PublishPacket(topic, b'{"n": %d}' % n).write()
               for n, topic in enumerate(topics)]  # fmt: skip
    broker, neighbour = net.brokers[1], net.brokers[1].peers[0]
    for data in (b"".join(packets), b"".join(packets) + packets[0][:-1]):
        batch = ListedBatchMessage("p", "0-1", [3, 4, 99_999], data, net.now, 1)
        message = broker.codec.decode(broker.codec.encode(batch))
        refused = len(data) > len(b"".join(packets))
        with pytest.raises(mqtt.Malformed) if refused else nullcontext():
            broker._on_message(neighbour, message, 1, net.now)
        net.run(100_000)
        assert near.got() == [(topic, b'{"n": %d}' % n) for n, topic in enumerate(topics)]
        assert far.got() == [("\u00e4", b'{"n": 1}')]


def test_what_is_told_counts_while_the_neighbour_knows_all_that_is_wanted(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A", "B", "C"], [("A", "B"), ("B", "C")])
    client, broker = net.client(1, "b"), net.brokers[1]
    net.run(200_000)
    assert broker.told_all(0)
    assert broker.told_all(2)
    net.cut(0, 1)
    client.raw(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("a")]).write())
    net.run(1_000_000)
    assert not broker.told_all(0)
    assert broker.told_all(2)
    net.mend(0, 1)
    net.run(3_000_000)
    assert broker.told_all(0)
    client.raw(mqtt5.UnsubscribePacket(2, ["a"]).write())
    net.run(10_000)
    assert broker.told_all(0)  # what is told too much leads nowhere


@pytest.mark.parametrize(
    ("scheme", "parameters"),
    [
        ("subscription_forwarding", "covering = true"),
        ("hierarchical", ""),
        ("hierarchical", 'root = "B"'),
        ("advertisement_forwarding", ""),
        ("subscription_forwarding", ""),
    ],
)
def test_where_a_neighbour_may_not_know_all_everything_is_matched(
    tmp_path: Path, scheme: str, parameters: str
) -> None:
    """A filter that covers another's, a parent that is told of none."""
    net = memory(tmp_path, ["A", "B"], [("A", "B")], scheme=scheme, parameters=parameters)
    for broker in net.brokers:
        index = broker.router.deciding()
        if index is not None:
            index.compile()
    readers = [net.client(1, f"r{n}") for n in range(2)]
    readers[0].subscribe("+", "n >= 0")
    readers[1].subscribe("+", "n >= 3")
    writer = net.client(0, "w")
    bodies = [b'{"n": %d}' % (n % 6) for n in range(40)]
    for _ in range(4):
        net.run(200_000)
        known = broker.told_all(0)
        writer.raw(b"".join(mqtt5.PublishPacket("a", body).write() for body in bodies))
        net.run(200_000)
        assert readers[0].got() == [("a", body) for body in bodies]
        assert readers[1].got() == [("a", body) for body in bodies if body >= b'{"n": 3}']
    assert known == (scheme == "subscription_forwarding" and not parameters)


def test_through_a_repair_runs_come_once_and_in_order(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A", "B", "C"], [("A", "B"), ("B", "C"), ("A", "C")])
    net.run(1_000_000)
    reader, writer = net.client(2, "r"), net.client(0, "w")
    reader.subscribe("a")
    for n in range(40):
        if n == 10:  # a link that carries them, and then the one that does instead
            net.cut(1, 2)
        elif n == 20:
            net.mend(1, 2)
        elif n == 25:
            net.cut(0, 2)
        packets = [mqtt5.PublishPacket("a", b"%d" % (100 * n + k)).write() for k in range(100)]
        writer.raw(b"".join(packets))
        net.run(200_000)
    got = [int(payload) for _, payload in reader.got()]
    assert got == sorted(set(got))
    assert {*range(1000), *range(3900, 4000)} <= {*got}  # before the first repair, after the last
    sent = net.brokers[0].peers[2].link.base + net.brokers[0].peers[1].link.base
    assert sent < 2000


def test_only_one_publication_that_came_whole_is_dealt_with_at_once(tmp_path: Path) -> None:
    net = memory(tmp_path, ["A", "B"], [("A", "B")])
    net.run(100_000)
    broker = net.brokers[1]
    (wire,) = broker.wires
    link, codec = wire.link, broker.codec
    assert link is not None
    before = link.received

    def frame(*messages: Message, first: int = 1, ack: int = 0, safe: int = 0) -> bytes:
        raws = [msgspec.Raw(codec.encode(each)) for each in messages]
        return links.pack(links.Data(before + first, link.base + ack, 9_000, raws, safe))

    packet = mqtt5.PublishPacket("a", b'{"n": 1}').write()
    run = RunMessage("p", "0-1", 7, "a", packet, 0, 1)
    batch = batch_of([7], packet)
    single = Publication("p", "0-1.7", {"class": "a"}, packet, 0)
    for message in (run, batch):
        arrived = broker.arrived_alone(wire, frame(message))
        assert arrived is not None
        assert arrived[1] == run
    whole = frame(run)
    for data in (
        whole[:-1],
        whole + whole[:1],
        whole[:4] + b"\xc1" + whole[5:],
        frame(run, run),
        frame(run, first=2),
        frame(run, ack=9),
        frame(run, safe=10**9),
        frame(PublicationMessage(single, 1)),
        frame(Echo(0, 1)),
        frame(batch_of([7, 8], packet * 2)),
        frame(batch_of([7], packet[:-1])),
        links.pack(links.Data(before + 1, link.base, 9_000, [msgspec.Raw(b"\x92\xa0\x80")])),
        links.pack(links.Ack(link.base, 9_000)),
        links.pack(links.Bye("no")),
    ):
        assert broker.arrived_alone(wire, data) is None
    for packets, topic in (
        (packet, "b"),
        (packet, "a" * 65_536),
        (packet * 2, "a"),
        (b"\x31" + packet[1:], "a"),
    ):
        other = RunMessage("p", "0-1", 7, topic, packets, 0, 1)
        assert broker.clients.alone.destinations_from(0, other) is None
    assert broker.clients.alone.destinations_from(0, run) is not None
    wire.buffer += whole[:1]
    assert broker.arrived_alone(wire, whole) is None
    wire.buffer.clear()
    link.on_cut(net.now)
    assert broker.arrived_alone(wire, whole) is None
    assert link.received == before


@pytest.mark.parametrize("hops", [1, 2, 126, 127, 128, 200, 0, -1, -2, -200])
@pytest.mark.parametrize("lasting", [True, False])
@pytest.mark.parametrize("kind", [RunMessage, BatchMessage])
def test_what_goes_on_alone_says_one_hop_more_and_nothing_else(
    hops: int, lasting: bool, kind: type[Message]
) -> None:
    codec = Codec()
    packet = mqtt5.PublishPacket("a", b'{"n": 1}').write()
    run = RunMessage("p", "0-1", 7, "a", packet, 10**15, hops)
    batch = batch_of([7], packet, 10**15, hops)
    came = codec.encode(run if kind is RunMessage else batch)
    onward = structs.replace(run if lasting else batch, hops=hops + 1)
    assert codec.alone_on(run, came, lasting) == codec.encode(onward)
    # A field after the hops, as a later version may have, is not taken for them.
    name, body = msgspec.msgpack.decode(came)
    for more in ({"xhops": hops}, {"more": b"\xa4hops" + bytes((hops % 128,))}):
        longer = msgspec.msgpack.encode((name, {**body, **more}))
        assert codec.alone_on(run, longer, lasting) == codec.encode(onward)


def test_a_table_is_compiled_once_many_publications_went_by_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.matching.index.PASSED_WORTHWHILE", 1_000)
    side = Side(write_network(tmp_path, ["A"], []), True)
    for name in ("p", "reader"):
        side.connect(name, 5)
    wanted = mqtt5.TopicFilter("t/+", max_qos=mqtt5.QoS(0), retain_as_published=False)
    side.send("reader", mqtt5.SubscribePacket(1, [wanted]).write())
    index = side.broker.router.deciding()
    assert index is not None
    in_a_row = mqtt5.PublishPacket("t/1", b"x").write() * 2_000
    few = b"".join(mqtt5.PublishPacket(f"t/{n}", b"{}").write() for n in range(8))
    in_turn = b"".join(mqtt5.PublishPacket(f"t/{n}", b"{}").write() for n in range(500))
    side.send("p", in_a_row)
    for _ in range(500):
        side.send("p", few)
    assert index.passing() is None  # neither many in a row nor a few in turn
    for _ in range(3):
        side.send("p", in_turn)
    wait_for(lambda: index.passing() is not None, 60)
    got = side.connections["reader"].out
    pieces = []
    for _ in range(4):  # who gets what is learned first
        got.clear()
        side.send("p", in_turn)
        assert b"".join(got) == in_turn
        pieces.append(len(got))
    assert pieces[0] == 500
    assert pieces[-1] < 50
