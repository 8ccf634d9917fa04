"""Findings about filters and their differences, against every publication of a small domain."""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path

import pytest

from postroad.checking import differences, filters
from postroad.checking.listed import Listed, publications, subscriptions
from postroad.checking.witness import compare, witness
from postroad.explain.history import History
from postroad.filters import Filter, parse
from postroad.model import Scalar
from postroad.traces.schema import Row

# Each comparison as text and as Python, over values between and on all bounds that occur.
NUMBERS: list[Scalar | None] = [None, 0, 1, 1.5, 2, 2.5, 3, 4, "a", True]
TEXTS: list[Scalar | None] = [None, "", "a", "aa", "ab", "abc", "ac", "b", "ba", "c", 1, False]
DOMAIN = {"i": NUMBERS, "j": NUMBERS, "s": TEXTS}
Publication = dict[str, Scalar]


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Term:
    """A condition that can be written and asked, each by itself."""

    def __init__(self, draw: random.Random, like: bool, depth: int = 2) -> None:
        self.parts: list[Term] = []
        self.joint = "AND"
        if depth and draw.random() < 0.7:
            self.joint = draw.choice(["AND", "OR"])
            self.parts = [Term(draw, like, depth - 1) for _ in range(draw.randint(2, 3))]
            return
        self.name = draw.choice(list(DOMAIN))
        self.bound: Scalar = draw.choice([1, 2, 3] if self.name != "s" else ["a", "ab", "b"])
        self.operator = draw.choice(["=", "<>", "<", "<=", ">", ">=", "IS NULL", "IS NOT NULL"])
        if self.name == "s" and draw.random() < 0.4:
            self.operator = draw.choice(["prefix", *(["ends", "holds"] if like else [])])

    def text(self) -> str:
        if self.parts:
            return "(" + f" {self.joint} ".join(part.text() for part in self.parts) + ")"
        if self.operator.startswith("IS"):
            return f"{self.name} {self.operator}"
        forms = {"prefix": "{}%", "ends": "%{}", "holds": "%{}%"}
        if self.operator in forms:
            return f"{self.name} LIKE '{forms[self.operator].format(self.bound)}'"
        return f"{self.name} {self.operator} {self.bound!r}"

    def holds(self, attributes: dict[str, Scalar | None]) -> bool:
        if self.parts:
            each = (part.holds(attributes) for part in self.parts)
            return all(each) if self.joint == "AND" else any(each)
        value, bound = attributes.get(self.name), self.bound
        if self.operator.startswith("IS"):
            return (value is None) == (self.operator == "IS NULL")
        alike = is_number(value) if is_number(bound) else isinstance(value, str)
        if not alike:
            return False
        text, part = str(value), str(bound)
        return bool(
            {
                "=": value == bound,
                "<>": value != bound,
                "<": value < bound,  # type: ignore[operator]
                "<=": value <= bound,  # type: ignore[operator]
                ">": value > bound,  # type: ignore[operator]
                ">=": value >= bound,  # type: ignore[operator]
                "prefix": text.startswith(part),
                "ends": text.endswith(part),
                "holds": part in text,
            }[self.operator]
        )


EVERY: list[dict[str, Scalar | None]] = [
    dict(zip(DOMAIN, values, strict=True)) for values in product(*DOMAIN.values())
]


@pytest.mark.parametrize("seed", range(100))
def test_differences_are_those_of_every_publication(seed: int) -> None:
    """Bounds are few, so that the domain has a value on each and between any two of them: then
    two filters differ just if they differ on it. LIKE may be left open, and must not be wrong."""
    draw = random.Random(seed)
    like = seed % 2 == 1
    old, new = Term(draw, like), Term(draw, like)
    word, more, less = compare(parse(old.text()), parse(new.text()))
    about = f"{old.text()} -> {new.text()}: {word}"
    gained = [each for each in EVERY if new.holds(each) and not old.holds(each)]
    lost = [each for each in EVERY if old.holds(each) and not new.holds(each)]
    for answer, gaining, losing, brute in ((more, new, old, gained), (less, old, new, lost)):
        if answer.attributes is not None:
            example: dict[str, Scalar | None] = {**answer.attributes}
            assert gaining.holds(example), about
            assert not losing.holds(example), about
        elif answer.certain:
            assert not brute, about
        else:
            assert like, about
    if not like:
        expected = {
            (False, False): "same",
            (True, False): "more",
            (False, True): "less",
            (True, True): "other",
        }
        assert word == expected[bool(gained), bool(lost)], about


def test_like_is_mostly_decided() -> None:
    """What is left open is named as such; of random filters with patterns it is little."""
    draw = random.Random(5)
    undecided = 0
    for _ in range(100):
        old, new = parse(Term(draw, True).text()), parse(Term(draw, True).text())
        undecided += "perhaps" in compare(old, new)[0]
    assert undecided <= 20


@pytest.mark.parametrize(
    ("wanted", "unwanted", "answer"),
    [
        ("s LIKE '%a' AND s LIKE '%b'", "FALSE", "open"),  # contradictory, which nobody sees
        ("i > 1 AND i < 2", "FALSE", "found"),
        ("i > 1 OR i <= 1", "i IS NOT NULL", "none"),
        ("s IS NULL", "s IS NOT NULL", "found"),
        ("TRUE", "s = 'a' OR s <> 'a'", "found"),  # a number is neither
        ("s LIKE 'a%'", "s < 'ab' OR s >= 'ab'", "none"),  # covered by both together
        ("s LIKE '%a%' AND s LIKE '%b%'", "s LIKE '%ab%'", "found"),
        ("class LIKE 'a/%' AND NOT class LIKE 'a/%/%'", "class = 'a/a'", "found"),
        ("TRUE", "TRUE", "none"),
        ("s > 'a' AND s < 'a '", "FALSE", "found"),
        ("a LIKE '%a' AND a LIKE '%b' OR s = 'c'", "s = 'c'", "open"),
        ("TRUE", "FALSE", "found"),
    ],
)
def test_a_witness_is_found_or_ruled_out_or_left_open(
    wanted: str, unwanted: str, answer: str
) -> None:
    found = witness(parse(wanted), parse(unwanted))
    said = "found" if found.attributes is not None else "none" if found.certain else "open"
    assert said == answer


def listed(*rows: tuple[str, str, str]) -> list[Listed]:
    return [
        Listed(("id", id), id, client, "A", parse(text), f"f:{number}")
        for number, (id, client, text) in enumerate(rows, 2)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_subscriptions_that_are_covered_may_all_be_left_out(seed: int) -> None:
    draw = random.Random(seed)
    terms = [Term(draw, False, 1) for _ in range(8)]
    found = filters.of_subscriptions(
        listed(*((f"s{n}", "c", term.text()) for n, term in enumerate(terms)))
    )
    never = {f.value for f in found if f.kind == "contradictory"}
    holding = {
        f"s{n}": {number for number, each in enumerate(EVERY) if term.holds(each)}
        for n, term in enumerate(terms)
    }
    assert never == {id for id, matching in holding.items() if not matching}
    covered = [f for f in found if f.kind == "covered"]
    for finding in covered:
        inner, *outer = finding.value
        assert holding[inner] <= set().union(*(holding[one] for one in outer))
    left_out = {finding.value[0] for finding in covered} | never
    rest = holding.keys() - left_out
    assert set().union(*holding.values()) == set().union(*(holding[id] for id in rest))
    for id in rest:  # nor is there another that one other covers
        assert not any(holding[id] <= holding[other] for other in rest - {id})


def test_covered_names_both_and_only_of_one_client() -> None:
    found = filters.of_subscriptions(
        listed(
            ("a", "c", "class = 'X'"),
            ("b", "c", "class = 'X' AND price > 5"),
            ("d", "other", "class = 'X' AND price > 5"),
            ("e", "c", "class = 'X'"),
            ("f", "c", "class IN ('Y', 'X') AND price > 5 OR class = 'Z'"),
        )
    )
    assert [(f.kind, f.value, f.where) for f in found] == [
        ("covered", ["b", "a"], "f:3"),
        ("covered", ["e", "a"], "f:5"),
    ]
    assert "a (class = 'X', f:2)" in found[0].what


def publish(number: int, **attributes: Scalar) -> Row:
    return Row("t", "A", 0, number, "publish", number, publisher="p", publication=str(number),
               attributes=json.dumps(attributes))  # fmt: skip


def test_what_nothing_matches_and_what_nobody_wants() -> None:
    rows = [
        Row("t", "A", 0, 1, "advertise", 0, advertisement="a", client="p", filter="class <> 'W'"),
        *(publish(n, **{"class": "XYZ"[n % 3], "price": n}) for n in range(2, 12)),
    ]
    found = filters.against_publications(
        listed(
            ("a", "c", "class = 'X' AND price > 5"),
            ("b", "c", "class = 'X' AND price > 50"),
            ("d", "d", "class = 'X' AND price > 50"),
            ("e", "c", "class = 'W'"),
            ("f", "c", "volume > 1"),
            ("g", "c", "class = 'Y' AND price = '5'"),
            ("h", "c", "secret = 1"),
        ),
        History(rows),
        "traces",
        ["secret"],
    )
    assert [(f.severity, f.kind, f.value) for f in found] == [
        ("warning", "unmatched", ["b", "d"]),
        ("warning", "not advertised", ["e"]),
        ("warning", "unmatched", ["f"]),
        ("warning", "unmatched", ["g"]),
        ("note", "unknown", ["h"]),
        ("warning", "unwanted", "Z"),
        ("warning", "unwanted", "Y"),
    ]
    causes = ["value never seen", "attribute never seen", "type never matches"]
    told = [f.what for f in found if f.kind == "unmatched"]
    assert all(cause in text for cause, text in zip(causes, told, strict=True))


def test_hashed_attributes_are_not_held_against_filters() -> None:
    rows = [publish(1, **{"class": "0123456789abcdef"})]
    found = filters.against_publications(listed(("a", "c", "class = 'X'")), History(rows), "t")
    assert [(f.severity, f.kind) for f in found] == [("note", "unknown")]


@pytest.mark.parametrize("seed", range(20))
def test_unmatched_and_unwanted_are_those_of_every_pair(seed: int) -> None:
    draw = random.Random(seed)
    terms = [Term(draw, True) for _ in range(6)]
    sample: list[dict[str, Scalar | None]] = [
        {**each, "class": draw.choice("XYZ")} for each in draw.sample(EVERY, 12)
    ]
    rows = [
        publish(n, **{key: value for key, value in each.items() if value is not None})
        for n, each in enumerate(sample)
    ]
    found = filters.against_publications(
        listed(*((f"s{n}", "c", term.text()) for n, term in enumerate(terms))), History(rows), "t"
    )
    unmatched = {id for f in found if f.kind == "unmatched" for id in f.value}
    possible = {f"s{n}" for n, t in enumerate(terms) if parse(t.text()).conjunctions}
    assert (
        unmatched
        == {f"s{n}" for n, term in enumerate(terms) if not any(term.holds(each) for each in sample)}
        & possible
    )
    unwanted = {f.value for f in found if f.kind == "unwanted"}
    classes = {str(each["class"]) for each in sample}
    wanted = {str(each["class"]) for each in sample if any(t.holds(each) for t in terms)}
    assert unwanted == classes - wanted


def test_two_files_are_matched_by_id_or_by_client_and_order(tmp_path: Path) -> None:
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text(
        "broker,client,filter,id\n"
        "A,c,class = 'X',\nA,c,price > 5,\nA,d,price > 5,one\nA,d,s LIKE 'a%',two\nA,e,TRUE,gone\n"
    )
    new.write_text(
        "broker,client,filter,id\n"
        "A,d,price > 5 AND class = 'X',one\nA,c,\"class IN ('X', 'Y')\",\n"
        "A,c,price >= 5 AND price < 9,\n"
        "B,d,s LIKE 'a%',two\nA,f,TRUE,new\nA,f,no filter at all,bad\n"
    )
    before, problems = subscriptions(old)
    assert problems == []
    after, problems = subscriptions(new)
    assert [(f.kind, f.where) for f in problems] == [
        ("refused", f"{new}:7: filter 'no filter at all'")
    ]
    found = differences.of_subscriptions(before, after, str(new))
    assert [(f.kind, f.value["id"]) for f in found] == [
        ("less", "one"),
        ("more", "s1"),
        ("other", "s2"),
        ("moved", "two"),
        ("more", "new"),
        ("less", "gone"),
    ]
    more = found[1].value["more"]
    assert more == {"class": "Y"}
    assert found[2].value["more"] == {"price": 5}
    assert not isinstance(found[2].value["less"]["price"], str)
    assert found[2].value["less"]["price"] >= 9
    assert found[1].where == f"{new}:3"


def test_publications_of_a_file_are_rows_of_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(
        '{"time": 1, "broker": "A", "publisher": "p", "attributes": {"class": "X"}}\n'
        '{"time": 1, "broker": "B", "publisher": "p", "attributes": {"class": "X"}}\n'
    )
    rows, problems = publications(path, ["A"])
    assert [filters.published(History(rows)), len(problems)] == [[{"class": "X"}], 1]
    assert problems[0].where == f"{path}:2"


def test_a_filter_of_many_parts_ends_soon() -> None:
    many = " OR ".join(f"(a{n} > 1 AND b{n} < 2 AND s <> 't{n}')" for n in range(200))
    filter: Filter = parse(many)
    assert witness(filter).attributes is not None
    word, _, _ = compare(filter, parse("a0 > 1"))
    assert word == "other"
