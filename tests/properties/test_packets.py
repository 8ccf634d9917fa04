"""What is passed over in a client's bytes is what Python finds no filter for."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from filter_texts import TEXTS, expression, row
from postroad.filters import parse
from postroad.filters.nested import ROWS
from postroad.live.edge import content
from postroad.live.edge.mqtt import framed
from postroad.live.edge.topics import as_filter
from postroad.matching import LinearScan, compiled
from postroad.matching.compiled import Compiled
from postroad.matching.fanout import BYTES_MAX, PARTS_MAX, PIECE_BYTES, TAGS_MAX
from postroad.matching.index import NEIGHBOUR, OLD, PASSED_BITS, PASSED_MAX, PLAIN, TAG_BYTES
from postroad.matching.packets import LISTED_MAX, RUN_BYTES

pytestmark = pytest.mark.skipif(not compiled.native.SUPPORTED, reason="another Python")
TOPICS = ["a", "a/b", "s/é", "x" * 200]
READY = {topic.encode(): topic for topic in TOPICS}


CLASSES = [
    *(f"= '{topic}'" for topic in TOPICS), "LIKE 'a/%'", "LIKE 'a/%' AND class NOT LIKE 'a/%/%'",
    "LIKE 's/_'", "LIKE '%x'", "NOT LIKE 'a%'", "LIKE '%xxx%'", "LIKE '%/é%'", "> 'a'", "< 's/é'",
]  # fmt: skip


def packet(topic: str, payload: bytes, old: bool) -> bytes:
    field = topic.encode()
    return framed(0x30, len(field).to_bytes(2, "big") + field + (b"" if old else b"\0") + payload)


Run = tuple[int, int, bytes, list[Any]]  # how many were before it, and it has; packets; filters


def passed_over(
    table: Compiled[Any], data: bytes, old: bool, most: int = 99
) -> tuple[int, int, list[Run]]:
    """Where to go on, how many were looked at, and the runs among them that filters match."""
    passing = table.passing()
    assert passing is not None
    found: list[Any] = []
    answer = passing((data, 0, most, 16_000, old, READY, set(TOPICS), found, 0, 0, b""))
    runs: list[Run] = []
    for word, packets, filters in zip(found[0::3], found[1::3], found[2::3], strict=True):
        end = word >> 2 * PASSED_BITS
        assert data[end - len(packets) : end] == packets
        runs.append((word >> PASSED_BITS & PASSED_MAX, word & PASSED_MAX, packets, filters))
    return answer >> PASSED_BITS, answer & PASSED_MAX, runs


# No objects, but for those behind white space or a byte order mark.
BARE = [b"", b"21.5", b"on", b"\xff\x00", b"\xef", b"[1]", b'"s"', b"null", b" 1", b"\n", b"}",
        b"\x0b{}", b'\xef\xbb\xbf{"s": "a"}', b"\xef\xbb\xbf1", b' {"s": "a"}',
        b"\x80\x01{"]  # fmt: skip


def deep(draw: random.Random, depth: int) -> Any:
    """Objects and arrays in each other."""
    kind = draw.random()
    if not depth or kind < 0.3:
        return draw.choice([1, -2.5, "a", "", True, None, "é", 10**20, 0.1 + 0.2, 'quo"te'])
    parts = [deep(draw, depth - 1) for _ in range(draw.randrange(4))]
    return parts if kind < 0.6 else dict(zip(draw.sample("abcde", len(parts)), parts, strict=True))


def written(draw: random.Random, values: dict[str, Any]) -> bytes:
    """A payload with these values, in one of the ways in which it may be written or miswritten."""
    if draw.random() < 0.1:
        return draw.choice(BARE)
    if draw.random() < 0.3:
        values = {**values, draw.choice(["class", "$rows", "n", "é", ""]): draw.choice(TEXTS)}
    if draw.random() < 0.2:
        values = {
            **values,
            draw.choice("sidxy"): draw.choice([{"s": 1}, [1], {}, [], None, deep(draw, 3)]),
        }
    text = json.dumps(values, ensure_ascii=draw.random() < 0.5)
    if draw.random() < 0.3:
        text = text.replace("1", draw.choice(["1e0", "01", "1.", "1.0", "-0", "+1", "10" * 9, "-"]))
    if draw.random() < 0.2:
        escape = draw.choice(
            ["\\n", "\\u00e9", "\\uD83D\\uDE00", "\\ud800", "\\x", "\\u12g4", "\\"]
        )
        text = text.replace("a", escape, 1)
    if draw.random() < 0.2:  # said twice
        text = text[:-1] + f', "{draw.choice("sid")}": {draw.choice(["1", "null", "true"])}}}'
    if draw.random() < 0.2:
        text = text.replace(" ", draw.choice(["", "  ", "\t\n", "\r", "\x0b"]))
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    if draw.random() < 0.2:
        data[draw.randrange(len(data))] = draw.choice(b'{}[]",:\\0\x00\x7f\xff ')
    return bytes(data[: draw.randrange(len(data)) if draw.random() < 0.1 else None])


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=120, deadline=None)
def test_what_filters_match_is_found_and_the_rest_passed_over(seed: int) -> None:
    draw = random.Random(seed)
    table: Compiled[int | str] = Compiled()
    scan: LinearScan[int | str] = LinearScan()
    named = draw.random() < 0.7
    for number in range(draw.randint(1, 12)):
        text = expression(draw, depth=2)
        if draw.random() < 0.5:
            text = f"({text}) AND class {draw.choice(CLASSES)}"
        if draw.random() < 0.1:
            text = f"({text}) OR {draw.choice(['x.a', 'x.b', 'y.a.b', 's.c', '`x.c`'])} = 1"
        if draw.random() < 0.1:
            text = f"({text}) OR s LIKE '%{draw.choice(['abc', 'a_bc', 'é中é', 'x/y/z'])}%'"
        id = f"f{number}" if named else number
        table.insert(id, parse(text))
        scan.insert(id, parse(text))
    for _ in range(20):
        old = draw.random() < 0.5
        sent = []
        for _ in range(draw.randint(1, 6)):
            some = {name: value for name, value in row(draw).items() if draw.random() < 0.7}
            values = {name: value for name, value in some.items() if value == value}
            sent += draw.randint(1, 3) * [(draw.choice(TOPICS), written(draw, values))]
        whole = [packet(topic, payload, old) for topic, payload in sent]
        most = draw.choice([1, 4, 99])
        end, count, runs = passed_over(table, b"".join(whole), old, most)
        assert count <= most
        assert end == len(b"".join(whole[:count]))
        expected = [scan.match(content.attributes(*each)) for each in sent[:count]]
        for each in sent[count : count + 1]:  # Python reads that one, and it is remembered
            said = content.attributes(*each)
            if ROWS not in said:  # then an `Index` asks about each row
                assert table.match(said) == scan.match(said)
        filters: list[list[int | str]] = [[] for _ in range(count)]
        for before, several, packets, ids in runs:
            assert packets == b"".join(whole[before : before + several])
            filters[before : before + several] = several * [ids]
        assert filters == expected, sent


numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, width=64).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=4).map(lambda d: f"{d:f}"),
    st.integers().map(str),
    st.from_regex(r"-?[0-9]{1,9}\.?[0-9]{0,9}(e[0-9])?", fullmatch=True),
    st.from_regex(r"-?(0|[1-9][0-9]{0,20})\.[0-9]{8,42}", fullmatch=True),
    st.from_regex(r"-?(0|[1-9][0-9]{0,9})(\.[0-9]{1,9})?[eE][-+]?[0-9]{1,3}", fullmatch=True),
)


@given(numbers)
@example("-0.0")
@example("0.30000000000000004")
@example("999999999999999")
@example("123456789.123456")
@example("21.500000000000004")
@example("-0.00000000000000000000")
@settings(max_examples=400, deadline=None)
def test_numbers_are_those_that_python_reads(text: str) -> None:
    """Filters for a number and for all others tell the two apart."""
    payload = b'{"d": %s}' % text.encode()
    value = content.attributes("a", payload).get("d")
    table: Compiled[int] = Compiled()
    table.insert(0, parse("d < 0 AND d > 0" if value is None else f"d <> {value!r}"))
    nothing = passed_over(table, packet("a", payload, False), False)
    if value is None:
        return
    parts = re.fullmatch(r"-?(\d+)(?:\.(\d+))?(?:[eE][-+]?(\d+))?", text)
    assert parts is not None
    whole, decimals, power = (len(part or "") for part in parts.groups())
    plain = whole <= (19 if decimals or power else 15) and decimals <= 40 and power <= 2
    assert nothing[1:] == (plain, [])  # that one differs from itself is sure
    table.insert(1, parse(f"d = {value!r}"))
    sent, beside = packet("a", payload, False), packet("a", b'{"e": %s}' % text.encode(), False)
    assert plain <= passed_over(table, beside, False)[1]
    found = (len(sent), 1, [(0, 1, sent, [1])]) if plain else (0, 0, [])
    assert passed_over(table, sent, False) == found


def test_plain_payloads_are_passed_over() -> None:
    table: Compiled[int] = Compiled()
    filters = [
        "class = 'a' AND price > 10 AND kind = 'x'", "flag = TRUE", "kind LIKE 'ab%'",
        "price IN (1, 2)", "class = 'a/b' AND volume IS NULL", "kind = 'z' AND flag = FALSE",
    ]  # fmt: skip
    for number, text in enumerate(filters):
        table.insert(number, parse(text))
    plain = [
        ("a", b'{"price": 12.5, "kind": "y"}'), ("a", b'{"price": 9, "kind": "x"}'), ("a", b""),
        ("a", b"{}"), ("a", b' {"price": 0}'), ("a/b", b'{ "volume" :1,"other":"\x7f" } '),
        ("a", b'{"flag": false, "kind": "x"}'), ("a", b'{"kind": null, "class": "a/b"}'),
        ("a", '{"kind": "é中😀", "other": "ü"}'.encode()),
        ("a", b'{"at": {"x": [1, 2.5e0], "y": {}}, "price": 0}'),
        ("a", b'{"at": {"x": [1, -2.5, [], {"z": "t"}], "y" : { } } , "tags":["p", null ]}'),
        ("a", b'{"other": "caf\\u00e9 \\"x\\" \\n", "at": ["\\/"], "price": 1E-5, "n": -0.5e+10}'),
        ("a", b'{"ns": 1700000000123456789, "n":[ ], "price": 21.500000000000004, "kind": "y"}'),
        ("a", b"21.5"), ("a", b"\x00\xff"), ("a", b"[{}]"), ("a", b"\xef\xbb\xbf{}"),
    ]  # fmt: skip
    unknown = {4, 16}  # an object behind something else
    for number, (topic, payload) in enumerate(plain):
        for old in (False, True):
            data = packet(topic, payload, old)
            assert passed_over(table, data, old) == (
                (0, 0, []) if number in unknown else (len(data), 1, [])
            ), payload
    wanted = [
        ("a", b'{"price": 12.5, "kind": "x"}', [0]), ("a", b'{"flag": true}', [1]),
        ("a", b'{"kind": "abc"}', [2]), ("a", b'{"price": 2.0}', [3]),
        ("a/b", b'{"volume": null}', [4]), ("a/b", b'{"price": 3}', [4]),
        ("a", b'{"kind": "z", "flag": false}', [5]), ("a/b", b'{"flag": true}', [1, 4]),
        ("a", '{"kind": "abé"}'.encode(), [2]), ("a/b", b"", [4]), ("a/b", b"on", [4]),
    ]  # fmt: skip
    for topic, payload, filters in wanted:
        for old in (False, True):
            sent = packet(topic, payload, old)
            before = packet("a", b'{"price": 0}', old)
            assert passed_over(table, sent, old) == (len(sent), 1, [(0, 1, sent, filters)]), payload
            end = len(before + sent)
            assert passed_over(table, before + sent, old) == (end, 2, [(1, 1, sent, filters)])


def test_packets_in_a_row_that_the_same_filters_match_are_one_run() -> None:
    table: Compiled[str] = Compiled()
    for name, text in {"low": "n < 10", "high": "n >= 5", "x": "s = 'x'", "y": "n = 3"}.items():
        table.insert(name, parse(text))
    sent = [packet("a", b'{"n": %d}' % n, False) for n in (1, 2, 3, 3, 4, 7, 8, 12, 13)]
    nothing = packet("a/b", b'{"m": 1}', False)
    data = b"".join([nothing, *sent, nothing, nothing, sent[-1]])
    assert passed_over(table, data, False) == (
        len(data),
        len(sent) + 4,
        [
            (1, 2, sent[0] + sent[1], ["low"]),
            (3, 2, 2 * sent[2], ["low", "y"]),
            (5, 1, sent[4], ["low"]),
            (6, 2, sent[5] + sent[6], ["low", "high"]),
            (8, 2, sent[7] + sent[8], ["high"]),
            (12, 1, sent[8], ["high"]),
        ],
    )


def test_topics_that_patterns_were_asked_of_need_no_python() -> None:
    table: Compiled[str] = Compiled()
    one_level, deeper = "class LIKE 'a/%' AND class NOT LIKE 'a/%/%'", "class LIKE 'a/%/c'"
    for n in range(300):
        table.insert(f"one{n}", parse(f"({one_level}) AND n >= {n}"))
    table.insert("deeper", parse(deeper))
    table.insert("both", parse(f"({deeper}) AND s NOT LIKE '%x_y%'"))  # asks more than the topic
    topics = ["a/b", "a/b/c", "a/b/d"]
    ready = {topic.encode(): topic for topic in topics}

    def look(topic: str, payload: bytes) -> tuple[int, list[Any]]:
        sent, found = packet(topic, payload, False), []
        passing = table.passing()
        assert passing is not None
        answer = passing((3 * sent, 0, 9, 16_000, False, ready, set(topics), found, 0, 0, b""))
        return answer & PASSED_MAX, found[2::3]

    first, second = (b'{"n": 1.5}', b'{"n": 0.5, "s": "xay"}')
    for topic, ids in zip(topics, (["one0", "one1"], ["deeper"], []), strict=True):
        assert look(topic, first) == (0, [])
        assert table.match({"class": topic, "n": 1.5}) == ids
        assert look(topic, first) == (3, [ids] if ids else [])
    assert look("a/b/c", second) == (0, [])
    # A test that nobody asks any more gives its number to another.
    table.remove("deeper")
    table.insert("other", parse("class LIKE 'a/%/d'"))
    assert look("a/b/c", first) == (0, [])
    for topic in topics:
        table.match({"class": topic, "n": 1.5})
    assert look("a/b/c", first) == (3, [])
    assert look("a/b/d", first) == (3, [["other"]])
    for n in range(300):  # rows are numbered anew
        table.remove(f"one{n}")
    table._renumber()
    for topic in topics:
        table.match({"class": topic, "n": 1.5})
    assert look("a/b/d", first) == (3, [["other"]])
    assert look("a/b", first) == (3, [])


def in_threes(text: str) -> set[str]:
    return {text[at : at + 3] for at in range(len(text) - 2)}


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=6, deadline=None)
def test_texts_that_share_nothing_with_a_pattern_need_no_python(seed: int) -> None:
    """A pattern that is looked for anywhere slows down nobody who has no such text."""
    draw = random.Random(seed)
    table: Compiled[int] = Compiled()
    scan: LinearScan[int] = LinearScan()
    demanded: dict[int, str] = {}
    alphabet = "abcdefgh"[: draw.choice([2, 4, 8])]

    def text(least: int, most: int) -> str:
        return "".join(draw.choices(alphabet, k=draw.randint(least, most)))

    def insert(number: int) -> None:
        demanded[number] = text(3, 9)
        attribute = draw.choice(["s", "s", "class"])
        wanted = parse(f"{attribute} LIKE '%{demanded[number]}%' AND n >= {number % 5}")
        table.insert(number, wanted)
        scan.insert(number, wanted)

    count = draw.choice([1, 30, 300])
    for number in range(count):
        insert(number)
    left = alone = 0
    for turn in range(40):
        if turn % 10 == 0:
            for number in draw.sample(sorted(demanded), count // 3):
                del demanded[number]
                table.remove(number)
                scan.remove(number)
                insert(count * (1 + turn) + number)
        values = {"s": text(0, draw.choice([4, 30])), "n": draw.randint(0, 6)}
        topic = draw.choice(TOPICS)
        said = {"class": topic, **values}
        assert table.match(said) == scan.match(said)  # what the topic is like is known from then on
        sent = packet(topic, json.dumps(values).encode(), False)
        _, looked, runs = passed_over(table, sent, False)
        if looked:
            assert [filter for *_, filters in runs for filter in filters] == scan.match(said)
        threes = set().union(*map(in_threes, demanded.values()))
        if topic == "a" and not in_threes(values["s"]) & threes:
            alone += 1
            left += not looked
    assert left <= 1 + alone // 10


def test_patterns_of_topics_that_begin_anywhere_need_no_python() -> None:
    """`+/b` and `+` are wanted by few clients, of all that is published."""
    table: Compiled[str] = Compiled()
    scan: LinearScan[str] = LinearScan()
    patterns = [as_filter(pattern) for pattern in ("+", "+/b", "+/+", "s/+", "+/#")]
    for number, wanted in enumerate([*patterns, parse("s > 'abc'"), parse("s < 'b'")]):
        table.insert(f"f{number}", wanted)
        scan.insert(f"f{number}", wanted)
    for topic in TOPICS:
        for values in ({}, {"s": "abcde"}, {"s": "z"}, {"s": ""}):
            sent = packet(topic, json.dumps(values).encode(), False)
            said = {"class": topic, **values}
            for _ in range(2):  # the first time patterns are asked
                assert table.match(said) == scan.match(said)
            _, looked, runs = passed_over(table, sent, False)
            assert looked == 1, said
            assert [filter for *_, filters in runs for filter in filters] == scan.match(said)


def test_more_tests_of_topics_than_are_kept_apart_are_asked_in_python() -> None:
    table: Compiled[str] = Compiled()
    scan: LinearScan[str] = LinearScan()
    for n in range(600):
        wanted = parse(f"class LIKE 'a/%{n % 300}' AND n >= {n % 7}")
        table.insert(f"f{n}", wanted)
        scan.insert(f"f{n}", wanted)
    for n in range(0, 600, 7):
        table.remove(f"f{n}")
        scan.remove(f"f{n}")
    for n in range(300):
        said = {"class": f"a/x{n}", "n": 3.0}
        for _ in range(2):
            assert table.match(said) == scan.match(said)


def test_a_run_and_an_answer_are_bounded() -> None:
    table: Compiled[str] = Compiled()
    table.insert("all", parse("n >= 0"))
    sent = packet("a", b'{"n": 1}', False)
    _, count, runs = passed_over(table, 2_000 * sent, False, most=2_000)
    assert count == 2_000
    assert sum(several for _, several, _, _ in runs) == 2_000
    assert all(len(run) <= RUN_BYTES for _, _, run, _ in runs)
    long = packet("a", b'{"n": 1, "pad": "%s"}' % (RUN_BYTES * b"x"), False)
    assert passed_over(table, 2 * long, False)[2] == [(0, 1, long, ["all"]), (1, 1, long, ["all"])]
    for number in range(99):
        table.insert(f"{number}", parse(f"n > -{number + 1}"))
    table.insert("m", parse("m = 1"))
    both = sent + packet("a", b'{"n": 2, "m": 1}', False)
    _, count, runs = passed_over(table, 200 * both, False, most=400)
    listed = [len(filters) for _, _, _, filters in runs]
    assert len(listed) == count < 400
    assert sum(listed) >= LISTED_MAX > sum(listed[:-1])


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=120, deadline=None)
def test_recipients_get_in_one_piece_what_their_filters_match(seed: int) -> None:
    draw = random.Random(seed)
    table: Compiled[str] = Compiled()
    scan: LinearScan[str] = LinearScan()
    names = {number: draw.choice([PLAIN, OLD, NEIGHBOUR]) for number in range(draw.randint(1, 9))}
    leads: dict[str, list[int] | None] = {}
    for number in range(draw.randint(1, 12)):
        name, wanted = f"f{number}", parse(expression(draw, depth=2))
        table.insert(name, wanted)
        scan.insert(name, wanted)
        leads[name] = draw.sample(sorted(names), draw.randint(0, len(names)))
    tags = {name: draw.choice([0, *9 * [draw.getrandbits(64)]]) for name in leads}
    passing = table.passing()
    if passing is None:
        return
    fanout = table.fanout()
    known: dict[str, list[int] | None] = {}
    for _ in range(12):
        old = draw.random() < 0.5
        sent = []
        for _ in range(draw.randint(1, 30)):
            values = {name: value for name, value in row(draw).items() if value == value}
            body = written(draw, values)
            if draw.random() < 0.3 and body.rstrip().endswith(b"}") and values:
                pad = b"y" * draw.choice([100, 127, 128, 5_000])
                body = body.rstrip()[:-1] + b',"pad":"' + pad + b'"}'
            sent.append((draw.choice(TOPICS), body))
        whole = [packet(topic, payload, old) for topic, payload in sent]
        kept = [packet(topic, payload, False) for topic, payload in sent]
        as_old = [packet(topic, payload, True) for topic, payload in sent]
        found: list[Any] = []
        fanout.allow(BYTES_MAX)
        asked = (
            b"".join(whole),
            0,
            99,
            16_000,
            old,
            READY,
            set(TOPICS),
            found,
            fanout.address,
            0,
            b"",
        )
        answer = passing(asked)
        count = answer & PASSED_MAX
        expected = [scan.match(content.attributes(*each)) for each in sent[:count]]
        done = 0  # of these; what comes in the answer comes in their order
        for word, packets, items in zip(found[0::3], found[1::3], found[2::3], strict=True):
            end, before, some = word >> 32, word >> 16 & PASSED_MAX, word & PASSED_MAX
            if packets is not None:
                assert done <= before
                assert not any(expected[done:before])
                assert expected[before : before + some] == some * [items]
                assert any(known.get(name) is None for name in items)
                done = before + some
            else:
                assert end == len(b"".join(whole[:before]))
                get: dict[int, list[int]] = {}
                served = 0
                for place in range(done, before):
                    lists = [known[name] for name in expected[place]]
                    each = {number for numbers in lists for number in numbers or ()}
                    assert None not in lists
                    served += any(names[number] != NEIGHBOUR for number in each)
                    for number in each:
                        get.setdefault(number, []).append(place)
                assert some == served
                got: dict[int, list[int]] = {}
                for who, piece, places in zip(items[0::3], items[1::3], items[2::3], strict=True):
                    number = fanout.recipients[who >> 16]
                    end = 2 * (who & PASSED_MAX)
                    mine = memoryview(places[:end]).cast("H").tolist()
                    if names[number] == NEIGHBOUR:
                        for place, told in zip(mine, told_of(places[end:]), strict=True):
                            wants = [tags[name] for name in expected[place]
                                     if number in (known[name] or ())]  # fmt: skip
                            assert set(told) == (set(wants) if all(wants) else set())
                    else:
                        assert len(places) == end
                    form = as_old if names[number] == OLD else kept
                    assert len(mine) == who & PASSED_MAX
                    assert piece == b"".join(form[place] for place in mine)
                    if names[number] == NEIGHBOUR and len(mine) > 1:
                        assert len(piece) <= PIECE_BYTES + len(form[mine[-1]])
                    else:
                        assert names[number] == NEIGHBOUR or number not in got
                    got.setdefault(number, []).extend(mine)
                assert got == get
                done = before
        assert not any(expected[done:])
        for name in leads:
            if name not in known and draw.random() < 0.3:
                known[name] = leads[name] if draw.random() < 0.8 else None
                numbers = known[name]
                fanout.learn(
                    name,
                    None if numbers is None else [(number, names[number]) for number in numbers],
                    tags[name],
                )
        if draw.random() < 0.1:
            fanout.forget()
            known.clear()
        if draw.random() < 0.2:
            fanout.try_again()
            known = {name: numbers for name, numbers in known.items() if numbers is not None}


def told_of(told: bytes) -> list[list[int]]:
    """The tags of each packet."""
    found, at = [], 0
    while at < len(told):
        end = at + 1 + TAG_BYTES * told[at]
        found.append([int.from_bytes(told[place : place + TAG_BYTES], "little")
                      for place in range(at + 1, end, TAG_BYTES)])  # fmt: skip
        at = end
    assert at == len(told)
    return found


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=120, deadline=None)
def test_packets_with_tags_go_to_whom_these_lead_and_are_not_matched(seed: int) -> None:
    draw = random.Random(seed)
    table: Compiled[str] = Compiled()
    count = draw.choice([1, 5, 40, 200])
    kinds = {number: draw.choice([PLAIN, OLD, NEIGHBOUR]) for number in range(7)}
    for number in range(count):
        table.insert(f"f{number}", parse(f"n = {number} OR m = {number}"))
    fanout, passing = table.fanout(), table.passing()
    assert passing is not None
    # Many that the hash table has for one place, and some that two filters share.
    tags = [draw.randrange(1, 4) << 56 | draw.randrange(1, 99) << draw.choice([0, 8, 40])
            for _ in range(count)]  # fmt: skip
    leads: dict[int, list[int] | None] = {}
    for number, tag in enumerate(tags):
        if draw.random() < 0.1:
            continue
        to = draw.sample(sorted(kinds), draw.randint(0, 5)) if draw.random() < 0.9 else None
        fanout.learn(
            f"f{number}", None if to is None else [(each, kinds[each]) for each in to], tag
        )
        if to is not None:
            leads[tag] = None if tag in leads else to
    for _ in range(8):
        packets, tolds, goes = [], [], []
        for place in range(draw.randint(1, 60)):
            told = draw.choices(tags, k=draw.choice([0, 1, 1, 2, 5]))
            if draw.random() < 0.03:
                told = draw.choice([[0], [2**64 - 5], 300 * tags[:1]])
            body = b'{"n": "%d"}' % place  # which no filter matches
            packets.append(packet("a", body, False))
            tolds.append(bytes((len(told),)) + b"".join(tag.to_bytes(8, "little") for tag in told)
                         if len(told) < 256 else b"\0")  # fmt: skip
            to = [leads.get(tag) for tag in told]
            known = 0 < len(told) < 256 and None not in to
            goes.append({number for each in to for number in each or ()} if known else None)
        first = goes.index(None) if None in goes else len(goes)
        found: list[Any] = []
        fanout.allow(BYTES_MAX)
        data, told = b"".join(packets), b"".join(tolds)
        if draw.random() < 0.2:  # cut short: the rest is matched
            keep = draw.randrange(len(told) + 1)
            whole = [sum(map(len, tolds[: place + 1])) <= keep for place in range(len(tolds))]
            told = told[:keep]
            first = min(first, whole.index(False) if False in whole else len(whole))
        # What is not known by its tags is left, because its topic is not ready.
        answer = passing((data, 0, 99, 16_000, False, {}, set(), found, fanout.address, 0, told))
        assert answer & PASSED_MAX == first
        assert answer >> PASSED_BITS == sum(map(len, packets[:first]))
        got: dict[int, list[int]] = {}
        for items in found[2::3]:
            for who, piece, places in zip(items[0::3], items[1::3], items[2::3], strict=True):
                number = fanout.recipients[who >> PASSED_BITS]
                end = 2 * (who & PASSED_MAX)
                mine = memoryview(places[:end]).cast("H").tolist()
                got.setdefault(number, []).extend(mine)
                bodies = (b'{"n": "%d"}' % place for place in mine)
                old = kinds[number] == OLD
                assert piece == b"".join(packet("a", body, old) for body in bodies)
                if kinds[number] == NEIGHBOUR:  # who is told those of its own
                    for place, onward in zip(mine, told_of(places[end:]), strict=True):
                        wants = {tag for tag in told_of(tolds[place])[0] if number in leads[tag]}
                        assert set(onward) == wants
        want = {number: [place for place in range(first) if number in goes[place]]
                for number in kinds}  # fmt: skip
        assert got == {number: mine for number, mine in want.items() if mine}
        # With topics that are ready the rest is matched, which finds nothing.
        found.clear()
        asked = (data, 0, 99, 16_000, False, READY, set(TOPICS), found, fanout.address, 0, told)
        assert passing(asked) & PASSED_MAX == len(packets)


def test_a_recipient_of_another_kind_waits_until_all_is_forgotten() -> None:
    table: Compiled[str] = Compiled()
    table.insert("one", parse("n >= 0"))
    table.insert("other", parse("m >= 0"))
    passing, fanout = table.passing(), table.fanout()
    assert passing is not None
    fanout.learn("one", [(7, PLAIN)])
    fanout.learn("other", [(7, OLD)])
    sent = packet("a", b'{"n": 1}', False), packet("a", b'{"n": 1, "m": 1}', False)

    def look() -> tuple[list[Any], list[Any]]:
        found: list[Any] = []
        fanout.allow(BYTES_MAX)
        passing(
            (b"".join(sent), 0, 9, 16_000, False, READY, set(TOPICS), found, fanout.address, 0, b"")
        )
        return found[1::3], found[2::3]

    packets, items = look()
    assert packets == [None, sent[1]]
    assert items[0][1] == sent[0]
    recipients = fanout.recipients
    fanout.forget()
    assert recipients == [7]  # of pieces that were made before
    fanout.learn("one", [(7, OLD)])
    fanout.learn("other", [(7, OLD)])
    packets, items = look()
    assert (packets, items[0][1]) == (
        [None],
        b"".join(packet("a", body, True) for body in (b'{"n": 1}', b'{"n": 1, "m": 1}')),
    )


def test_what_is_gathered_is_bounded() -> None:
    table: Compiled[str] = Compiled()
    table.insert("all", parse("n >= 0"))
    passing, fanout = table.passing(), table.fanout()
    assert passing is not None
    short = packet("a", b'{"n": 1}', False)
    long = packet("a", b'{"n": 1, "pad": "%s"}' % (1_000 * b"x"), False)
    longer = packet("a", b'{"n": 1, "pad": "%s"}' % (4_000 * b"x"), False)

    def look(
        data: bytes, most: int = 5_000, limit_ns: int = 0, allowed: int = 2 * BYTES_MAX
    ) -> tuple[int, list[Any]]:
        found: list[Any] = []
        fanout.allow(allowed)
        asked = (
            data,
            0,
            most,
            16_000,
            False,
            READY,
            set(TOPICS),
            found,
            fanout.address,
            limit_ns,
            b"",
        )
        return passing(asked) & PASSED_MAX, found

    fanout.learn("all", [(number, PLAIN) for number in range(20)])
    count, found = look(3_000 * short)
    assert count == 3_000
    sizes = [len(pieces[2]) // 2 for pieces in found[2::3]]  # packets in the pieces of the first
    assert sum(sizes) == 3_000
    assert max(sizes) * 20 <= PARTS_MAX
    assert look(3 * longer)[1][1::3] == 3 * [longer]  # runs: one object for all
    count, found = look(100 * long)
    assert BYTES_MAX <= count * 20 * len(long) < BYTES_MAX + 20 * len(long)
    assert look(5_000 * short, allowed=30_000)[0] == -(-30_000 // (20 * len(short)))
    fanout.forget()
    fanout.learn("all", [(number, PLAIN) for number in range(PARTS_MAX + 1)])
    count, found = look(3 * short)
    assert (count, found[1::3]) == (3, [3 * short])  # a run, which Python hands out
    assert look(5_000 * short, limit_ns=1)[0] < 5_000


@pytest.mark.parametrize("count", [TAGS_MAX, TAGS_MAX + 1])
def test_of_a_packet_that_many_filters_match_a_neighbour_is_told_nothing(count: int) -> None:
    table: Compiled[int] = Compiled()
    for number in range(count):
        table.insert(number, parse(f"n >= {number}"))
    fanout, passing = table.fanout(), table.passing()
    assert passing is not None
    for number in range(count):
        fanout.learn(number, [(7, NEIGHBOUR)], number + 1)
    found: list[Any] = []
    fanout.allow(BYTES_MAX)
    sent = packet("a", b'{"n": 99}', False) + packet("a", b'{"n": 1}', False)
    passing((sent, 0, 9, 16_000, False, READY, set(TOPICS), found, fanout.address, 0, b""))
    all_tags = list(range(1, count + 1)) if count <= TAGS_MAX else []
    assert told_of(found[2][2][4:]) == [all_tags, [1, 2]]


def test_whatever_is_not_a_usual_publication_is_left() -> None:
    table: Compiled[int] = Compiled()
    table.insert(0, parse("a = 1"))
    good = packet("a", b'{"a": 2}', False)
    size = len(good)
    assert passed_over(table, good * 3, False, most=2) == (2 * size, 2, [])
    for bad in (
        good[:-1], b"\x32" + good[1:], b"\xc0\x00", b"", b"\x30\x00", b"\x30\x01\x00", b"\x30",
        b"\x30\x7f" + good[2:], b"\x30\xff\xff\xff\x7f" + good, b"\x30\x80\x00" + good[2:],
        b"\x30\x04\xff\xff\x00\x00", packet("nobody's", b"{}", False),
        framed(0x30, b"\0\x01a\x02\x01\x01{}"), packet("a", b'{"a": 2}' + b" " * 16_000, False),
    ):  # fmt: skip
        assert passed_over(table, good + bad, False) == (size, 1, []), bad
    passing = table.passing()
    assert passing is not None
    assert (
        passing((good, 0, 9, 16_000, False, READY, set(), [], 0, 0, b"")) == 0
    )  # handed out without asking


def test_a_table_that_changed_is_asked_as_it_is() -> None:
    table: Compiled[int] = Compiled()
    sent = packet("a", b'{"a": 2, "b": "x"}', False)
    table.insert(0, parse("a = 1"))
    for number in range(1, 200):
        assert passed_over(table, sent, False)[1:] == (1, [])
        table.insert(number, parse(f"a = {number + 5} AND z{number} = 'x'"))
    table.insert(500, parse("b = 'x'"))
    assert passed_over(table, sent, False) == (len(sent), 1, [(0, 1, sent, [500])])
    table.remove(500)
    assert passed_over(table, sent, False)[1:] == (1, [])
