"""Floods through real brokers with compiled tables, held against plain Python.

What clients send by the thousand is read, matched and gathered in compiled code, many publications
at a time, which few publications never reach. Here clients of both levels of MQTT, with hundreds of
filters at every broker, flood each other; between floods they change what they want and where they
are, and some do so all the time. Everyone gets exactly what the evaluator below says, each once and
in the order in which its publisher sent it, and of a group one member. Some of it is traced.

The evaluator, the payloads and the packets are plain Python here and share no code with brokers.
`POSTROAD_FLOODS` and `POSTROAD_SEED` make longer runs.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from live_harness import Processes, wait_for, with_workers, write_network

SEED = int(os.environ.get("POSTROAD_SEED", "1"))
FLOODS = int(os.environ.get("POSTROAD_FLOODS", "2"))
PUBLICATIONS = 1_000  # of each publisher in a flood
LIMIT_S = 120.0
TOPICS = [f"{kind}/{n}" for kind in ("a", "b/c", "d", "x/y/c") for n in range(8)]
PATTERNS = [*TOPICS, "a/+", "b/#", "+/3", "b/+/5", "d/#", "+/+/+", "+/c/#", "#"]
WORDS = ["", "x", "ab", "abc", "zz top", "a%b"]

Truth = bool | None  # SQL's third value is None
Wish = tuple[str, Callable[[Mapping[str, Any]], Truth]]  # a filter's text, and what it means


@cache
def fits(pattern: str, topic: str) -> bool:
    asked, given = pattern.split("/"), topic.split("/")
    for place, part in enumerate(asked):
        if part == "#":
            return True
        if place == len(given) or part not in ("+", given[place]):
            return False
    return len(asked) == len(given)


def compared(name: str, kinds: tuple[type, ...], test: Callable[[Any], bool]) -> Any:
    """A test of one attribute, of which nothing is known where it is missing or of another kind."""

    def holds(row: Mapping[str, Any]) -> Truth:
        value = row.get(name)
        if value is None or (bool in kinds) != isinstance(value, bool):
            return None
        return test(value) if isinstance(value, kinds) else None

    return holds


def draw_comparison(draw: random.Random) -> Wish:
    number, word = draw.randint(-5, 60), draw.choice(WORDS)
    name, text = draw.choice(["n", "m", "o.n"]), draw.choice(["s", "t", "tags"])
    numbers, quoted = (int, float), f"'{word}'"
    wishes: list[Wish] = [
        (f"{name} >= {number}", compared(name, numbers, lambda v: v >= number)),
        (f"{name} < {number + 0.5}", compared(name, numbers, lambda v: v < number + 0.5)),
        (f"{name} = {number}", compared(name, numbers, lambda v: v == number)),
        (f"{name} BETWEEN {number} AND {number + 9}",
         compared(name, numbers, lambda v: number <= v <= number + 9)),
        (f"{text} = {quoted}", compared(text, (str,), lambda v: v == word)),
        (f"{text} <> {quoted}", compared(text, (str,), lambda v: v != word)),
        (f"{text} IN ('x', {quoted})", compared(text, (str,), lambda v: v in ("x", word))),
        (f"{text} LIKE 'a%'", compared(text, (str,), lambda v: v.startswith("a"))),
        (f"{text} LIKE '%top%'", compared(text, (str,), lambda v: "top" in v)),
        ("flag", compared("flag", (bool,), lambda v: v)),
        (f"{text} IS NULL", lambda row: row.get(text) is None),
        (f"{name} IS NOT NULL", lambda row: row.get(name) is not None),
    ]  # fmt: skip
    return draw.choice(wishes)


def both(a: Truth, b: Truth) -> Truth:
    return False if a is False or b is False else None if a is None or b is None else True


def draw_wish(draw: random.Random, depth: int = 2) -> Wish:
    kind = draw.random()
    if not depth or kind < 0.3:
        return draw_comparison(draw)
    (one, first), (two, second) = draw_wish(draw, depth - 1), draw_wish(draw, depth - 1)
    if kind < 0.75:
        return f"({one} AND {two})", lambda row: both(first(row), second(row))
    if kind < 0.9:

        def either(row: Mapping[str, Any]) -> Truth:
            neither = both(denied(first(row)), denied(second(row)))
            return denied(neither)

        return f"({one} OR {two})", either
    return f"(NOT {one})", lambda row: denied(first(row))


def denied(truth: Truth) -> Truth:
    return None if truth is None else not truth


def draw_payload(draw: random.Random, name: str) -> tuple[bytes, list[dict[str, Any]]]:
    """A payload that has its publication's name in it, and the rows that filters see."""
    if draw.random() < 0.05:
        return b"no JSON " + name.encode(), [{}]
    fields: dict[str, Any] = {"id": name}
    row: dict[str, Any] = {"id": name}
    for key in ("n", "m"):
        if draw.random() < 0.8:
            fields[key] = row[key] = draw.choice(
                [draw.randint(-9, 70), draw.randint(-9, 70), draw.randint(0, 600) / 10, "7", None]
            )
    for key in ("s", "t"):
        if draw.random() < 0.7:
            fields[key] = row[key] = draw.choice([*WORDS, *WORDS, "é", 'quo"te', 3, False])
    if draw.random() < 0.5:
        fields["flag"] = row["flag"] = draw.random() < 0.5
    rows = [row]
    if draw.random() < 0.1:
        fields["o"] = {"n": draw.randint(-9, 70)}
        row["o.n"] = fields["o"]["n"]
    if draw.random() < 0.1:
        fields["tags"] = draw.choices(WORDS, k=draw.randint(0, 3))
        rows = [{**row, "tags": tag} for tag in fields["tags"]] or rows
    fields["pad"] = "p" * draw.choice([0, 0, 0, 20, 90, 200, 3_000 if draw.random() < 0.1 else 1])
    order = list(fields.items())
    draw.shuffle(order)
    escaped, gaps = draw.random() < 0.9, draw.choice([(",", ":"), (", ", ": ")])
    return json.dumps(dict(order), ensure_ascii=escaped, separators=gaps).encode(), rows


class Sent(NamedTuple):
    topic: str
    rows: list[dict[str, Any]]
    qos: int
    by: str
    place: int  # among those of its publisher in this flood


def framed(first: int, body: bytes) -> bytes:
    size, left = b"", len(body)
    while True:
        left, seven = divmod(left, 128)
        size += bytes((seven | (128 if left else 0),))
        if not left:
            return bytes((first,)) + size + body


def string(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


class Client:
    """A connection of one of both levels, whose bytes `exchange` reads and writes."""

    def __init__(
        self, running: Processes, broker: str, name: str, level: int, qualities: list[int]
    ) -> None:
        self.name, self.level = name, level
        self.qualities = qualities  # at which it subscribes
        self.socket = socket.create_connection(("127.0.0.1", running.mqtt(broker)), LIMIT_S)
        self.wanted: dict[str, tuple[Callable[[Mapping[str, Any]], Truth] | None, int]] = {}
        self.ever: list[tuple[str, Callable[[Mapping[str, Any]], Truth] | None, int]] = []
        self.got: list[tuple[str, bytes, int]] = []  # topic, payload and quality
        self.answers: list[tuple[int, bytes]] = []  # other packets: first byte and body
        self.out, self.left, self.number = b"", b"", 0
        nothing = b"\0" if level == 5 else b""
        head = string("MQTT") + bytes((level, 2)) + (0).to_bytes(2, "big") + nothing
        self.out += framed(0x10, head + string(name))

    def subscribe(self, pattern: str, wish: Wish | None, qos: int) -> None:
        self.number = self.number % 60_000 + 1
        body = self.number.to_bytes(2, "big")
        if self.level == 5:
            where = b"" if wish is None else b"\x26" + string("$where") + string(wish[0])
            body += framed(0, where)[1:]
        self.out += framed(0x82, body + string(pattern) + bytes((qos,)))
        self.wanted[pattern] = None if wish is None else wish[1], qos
        self.ever.append((pattern, *self.wanted[pattern]))

    def unsubscribe(self, pattern: str) -> None:
        self.number = self.number % 60_000 + 1
        nothing = b"\0" if self.level == 5 else b""
        self.out += framed(0xA2, self.number.to_bytes(2, "big") + nothing + string(pattern))
        del self.wanted[pattern]

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        number = b""
        if qos:
            self.number = self.number % 60_000 + 1
            number = self.number.to_bytes(2, "big")
        nothing = b"\0" if self.level == 5 else b""
        self.out += framed(0x30 | qos << 1, string(topic) + number + nothing + payload)

    def takes(self, sent: Sent, ever: bool = False) -> int | None:
        """At which quality it gets a publication by what it wants, or ever has; None if not."""
        wanted = self.ever if ever else [(each, *rest) for each, rest in self.wanted.items()]
        highest = [
            qos
            for pattern, means, qos in wanted
            if fits(pattern, sent.topic)
            and (means is None or any(means(row) is True for row in sent.rows))
        ]
        return min(max(highest), sent.qos) if highest else None

    def received(self, data: bytes) -> None:
        assert data, f"{self.name} was disconnected: {self.answers[-1:]}"
        data, at = self.left + data, 0
        while len(data) - at >= 2:
            length, body = 0, at + 1
            while body < len(data) and data[body] >= 128:
                length |= (data[body] & 127) << 7 * (body - at - 1)
                body += 1
            if body == len(data):
                break
            length |= data[body] << 7 * (body - at - 1)
            body += 1
            if body + length > len(data):
                break
            self._packet(data[at], data[body : body + length])
            at = body + length
        self.left = data[at:]

    def _packet(self, first: int, body: bytes) -> None:
        if first >> 4 != 3:
            self.answers.append((first, body))
            return
        end = 2 + int.from_bytes(body[:2], "big")
        topic, qos = body[2:end].decode(), first >> 1 & 3
        if qos:
            self.out += framed(0x40, body[end : end + 2])
            end += 2
        if self.level == 5:
            assert body[end] < 128
            end += 1 + body[end]
        self.got.append((topic, body[end:], qos))


def exchange(clients: list[Client], done: Callable[[], bool]) -> None:
    """Write and read for all of them until this is so."""
    end = time.monotonic() + LIMIT_S
    with selectors.DefaultSelector() as chosen:
        for client in clients:
            client.socket.setblocking(False)
            chosen.register(client.socket, selectors.EVENT_READ, client)
        while not done():
            assert time.monotonic() < end, "did not come about in time"
            for client in clients:
                writes = selectors.EVENT_WRITE if client.out else 0
                if chosen.get_key(client.socket).events != selectors.EVENT_READ | writes:
                    chosen.modify(client.socket, selectors.EVENT_READ | writes, client)
            for key, events in chosen.select(0.1):
                client = key.data
                if events & selectors.EVENT_WRITE:
                    client.out = client.out[client.socket.send(client.out[: 1 << 16]) :]
                if events & selectors.EVENT_READ:
                    client.received(client.socket.recv(1 << 16))


def check_order(client: Client, sent: Mapping[tuple[str, bytes], Sent]) -> None:
    """What one publisher sent to a topic at one quality came in its order."""
    last: dict[tuple[str, str, int], int] = {}
    for topic, payload, _ in client.got:
        if topic != "end":
            one = sent[topic, payload]
            way = one.by, topic, one.qos
            assert last.get(way, -1) < one.place, f"{client.name} got {payload!r} too late"
            last[way] = one.place


class Flooded:
    """A network, clients that are checked, publishers, and some that change their minds."""

    def __init__(self, running: Processes, seed: int) -> None:
        self.running, self.draw = running, random.Random(seed)
        self.names = running.network.names
        self.count = 0
        self.readers = [self._arrive(f"r{n}") for n in range(18)]
        self.publishers = [self._arrive(f"p{n}") for n in range(4)]
        self.restless = [self._arrive(f"x{n}") for n in range(2)]
        self.members = [self._arrive(f"m{n}") for n in range(3)]  # of one group
        wish = draw_wish(self.draw)
        for member in self.members:
            member.subscribe("$share/g/d/+", wish, 0)
            member.wanted["d/+"] = member.wanted.pop("$share/g/d/+")
        for reader in (*self.readers, *self.restless):
            self._subscribe(reader, 40 if reader.level == 5 else 2)
        self.settle()

    @property
    def clients(self) -> list[Client]:
        return [*self.readers, *self.publishers, *self.restless, *self.members]

    def _arrive(self, name: str) -> Client:
        self.count += 1
        broker = self.draw.choice(self.names)
        level = 5 if self.draw.random() < 0.7 or name[0] == "m" else 4
        # What a client gets at quality 0 alone may be copied as it came, all else takes more.
        qualities = [0] if self.draw.random() < 0.8 else [0, 0, 1]
        client = Client(self.running, broker, f"{name}-{self.count}", level, qualities)
        if name[0] == "r":
            client.subscribe("end", None, 0)
        return client

    def _subscribe(self, client: Client, count: int) -> None:
        draw = self.draw
        for pattern in draw.sample(PATTERNS, min(count, len(PATTERNS))):
            wish = draw_wish(draw) if client.level == 5 else None
            if pattern == "#" and wish is None:
                continue
            client.subscribe(pattern, wish, draw.choice(client.qualities))

    def settle(self) -> None:
        """Until everything that was asked is answered: then every broker knows of it."""

        def answered() -> bool:
            return all(
                sum(first >> 4 in (2, 9, 11) for first, _ in each.answers) > each.number
                for each in (*self.readers, *self.restless, *self.members)
            )

        exchange(self.clients, answered)
        for client in self.clients:
            for first, body in client.answers:
                assert first >> 4 != 2 or body[1] == 0, body
                assert first >> 4 != 9 or body[-1] < 128, body

    def change(self) -> None:
        """Some want other things from now on, and some go and come back elsewhere as others."""
        draw = self.draw
        for reader in draw.sample(self.readers, 6):
            for pattern in draw.sample(sorted(reader.wanted), len(reader.wanted) // 3):
                if pattern != "end":
                    reader.unsubscribe(pattern)
            self._subscribe(reader, 6 if reader.level == 5 else 1)
        for place in draw.sample(range(len(self.readers)), 2):
            self.readers[place].socket.close()
            self.readers[place] = self._arrive(f"r{place}")
            self._subscribe(self.readers[place], 40)
        self.settle()

    def flood(self) -> int:
        """What everyone got is what was meant for them; how many deliveries."""
        draw = self.draw
        for client in self.clients:
            client.got.clear()
        sent: dict[tuple[str, bytes], Sent] = {}
        owed: dict[str, Counter[tuple[str, bytes, int]]] = {r.name: Counter() for r in self.readers}
        owed_to_one: Counter[tuple[str, bytes, int]] = Counter()
        for publisher in self.publishers:
            for place in range(PUBLICATIONS):
                self.count += 1
                topic = draw.choice(TOPICS) if draw.random() < 0.7 else TOPICS[0]
                payload, rows = draw_payload(draw, f"{publisher.name}-{self.count}")
                qos = 1 if draw.random() < 0.01 else 0
                sent[topic, payload] = one = Sent(topic, rows, qos, publisher.name, place)
                for reader in self.readers:
                    at = reader.takes(one)
                    if at is not None:
                        owed[reader.name][topic, payload, at] += 1
                owed_to_one[topic, payload, 0] += self.members[0].takes(one) is not None
                publisher.publish(topic, payload, qos)
            publisher.publish("end", b"", 0)
        changes = self._change_minds()
        due = {name: len(each) + len(self.publishers) for name, each in owed.items()}

        def over() -> bool:
            next(changes)
            given = sum(len(member.got) for member in self.members)
            return given >= owed_to_one.total() and all(
                len(each.got) >= due[each.name] for each in self.readers
            )

        exchange(self.clients, over)
        # Whatever should not come would come now.
        ends = 2 * len(self.publishers)
        for publisher in self.publishers:
            publisher.publish("end", b"", 0)
        exchange(self.clients, lambda: all(
            sum(topic == "end" for topic, _, _ in each.got) >= ends for each in self.readers
        ))  # fmt: skip
        for reader in self.readers:
            got = Counter(each for each in reader.got if each[0] != "end")
            lacks, beyond = owed[reader.name] - got, got - owed[reader.name]
            assert not lacks, f"{reader.name} lacks {len(lacks)}, such as {next(iter(lacks))}"
            assert not beyond, f"{reader.name} has not asked for {next(iter(beyond))}"
            check_order(reader, sent)
        given = Counter(each for member in self.members for each in member.got)
        assert +owed_to_one == given, "each is for one member of the group"
        for client in self.restless:
            counts = Counter((topic, payload) for topic, payload, _ in client.got)
            for each, count in counts.items():
                assert each[0] == "end" or client.takes(sent[each], ever=True) is not None, each
                assert each[0] == "end" or count == 1, f"{client.name} got twice {each}"
            check_order(client, sent)
        return sum(map(len, owed.values())) + owed_to_one.total()

    def _change_minds(self) -> Iterator[None]:
        """While the flood goes on."""
        while True:
            for client in self.restless:
                for _ in range(20):
                    yield
                if len(client.wanted) > 3:
                    client.unsubscribe(self.draw.choice(sorted(client.wanted)))
                self._subscribe(client, 1)

    def compiled(self) -> bool:
        """Whether every broker has loaded the kernels, and has nothing to do any more."""
        used = 0
        for process in self.running.running.values():
            members = [process.pid, *children(process.pid)]
            if all("llvmlite" not in Path(f"/proc/{pid}/maps").read_text() for pid in members):
                return False
            used += sum(ticks(pid) for pid in members)
        time.sleep(0.5)
        return used == sum(
            ticks(pid)
            for process in self.running.running.values()
            for pid in [process.pid, *children(process.pid)]
        )

    def close(self) -> None:
        for client in self.clients:
            client.socket.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_floods_bring_everyone_their_own_once_and_in_order(workers: int, tmp_path: Path) -> None:
    print(f"replay with POSTROAD_SEED={SEED} POSTROAD_FLOODS={FLOODS}")
    tables = "[traces]\nfolder = 'traces'\nsample = 0.02"
    if workers == 1:
        links = [("A", "B"), ("B", "C")]
        path = write_network(tmp_path, "ABC", links, tables=tables, free=True)
    else:
        path = with_workers(write_network(tmp_path, "AB", [("A", "B")], free=True), workers)
    with Processes(path) as running:
        flooded = Flooded(running, SEED)
        try:
            deliveries = flooded.flood()
            wait_for(flooded.compiled, 300)
            for _ in range(FLOODS):
                flooded.change()
                deliveries += flooded.flood()
        finally:
            flooded.close()
    print(f"{deliveries:,} deliveries of {(1 + FLOODS) * 4 * PUBLICATIONS:,} publications")
    assert deliveries > 4 * PUBLICATIONS


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *children(child)]
    return found


def ticks(pid: int) -> int:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])
