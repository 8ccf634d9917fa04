"""Patterns that demand a text anywhere are found by its characters, and no others are missed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from postroad.filters import parse
from postroad.matching import LinearScan, shared
from postroad.matching.compiled import Compiled
from postroad.matching.grams import Grams


def text(draw: random.Random, longest: int) -> str:
    return "".join(draw.choice("abcß😀") for _ in range(draw.randrange(longest)))


def pattern(draw: random.Random) -> str:
    parts = [text(draw, 12).replace("c", "_") for _ in range(draw.randint(1, 3))]
    return draw.choice(["%", "", "%"]) + "%".join(parts) + draw.choice(["%", "", "%"])


def condition(draw: random.Random) -> str:
    likes = [
        f"{draw.choice('st')} {draw.choice(['', '', '', 'NOT '])}LIKE '{pattern(draw)}'"
        for _ in range(draw.randint(1, 2))
    ]
    if draw.random() < 0.4:
        likes.append(draw.choice(["n = 1", "n > 0", "n IN (1, 2)", "t = 'ab'", "s LIKE 'ab%'"]))
    return draw.choice([" AND ", " OR "]).join(likes)


def publication(draw: random.Random) -> dict[str, object]:
    values: dict[str, object] = {"s": text(draw, 40), "n": draw.randrange(3)}
    if draw.random() < 0.7:
        values["t"] = draw.choice([text(draw, 20), 7, None, "ab"])
    return values


@pytest.mark.parametrize("seed", range(6))
def test_a_table_of_patterns_equals_a_linear_scan(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    table: Compiled[int] = Compiled(plain=seed % 3 == 0)
    scan: LinearScan[int] = LinearScan()
    alive: list[int] = []
    by_gram = matches = 0
    for id in range(250):
        filter = parse(condition(draw))
        table.insert(id, filter)
        scan.insert(id, filter)
        alive.append(id)
        if draw.random() < 0.3:
            gone = alive.pop(draw.randrange(len(alive)))
            table.remove(gone)
            scan.remove(gone)
        if id % 97 == 0:
            table._renumber()
        if id % 131 == 0:
            table._refile()
        by_gram = max(by_gram, len(table._grams))
        values = publication(draw)
        expected = scan.match(values)  # type: ignore[arg-type]
        assert table.match(values) == expected, (seed, id)  # type: ignore[arg-type]
        matches += len(expected)
    assert by_gram > 30
    assert matches > 50
    shared.save(table, tmp_path / "table")
    mapped, _ = shared.load(tmp_path / "table")
    for _ in range(20):
        values = publication(draw)
        assert mapped.match(values) == scan.match(values)  # type: ignore[arg-type]
    for id in alive:
        table.remove(id)
    assert len(table) == len(table._grams) == 0
    assert not table._grams._tables


def test_few_rows_are_asked_of_many() -> None:
    draw = random.Random(1)
    grams = Grams()
    words = ["".join(draw.choice("abcdefghijklmnop") for _ in range(9)) for _ in range(20_000)]
    for number, word in enumerate(words):
        grams.insert(number, "s", word)
    asked = grams.candidates({"s": f"before {words[7]} after"})
    assert 7 in asked
    assert len(asked) < 5
    assert grams.candidates({"s": 5, "t": words[7]}) == []


def test_patterns_alone_have_nothing_filed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    table: Compiled[int] = Compiled()
    refiled = 0

    def refile() -> None:
        nonlocal refiled
        refiled += 1

    monkeypatch.setattr(table, "_refile", refile)
    for number in range(1_000):
        table.insert(number, parse(f"s LIKE '%word{number}%'"))
    assert refiled == 0
    assert table.match({"s": "a word77."}) == [7, 77]


def test_rows_that_share_all_their_characters_leave_one_by_one() -> None:
    grams = Grams()
    for number in range(1_000):
        grams.insert(number, "s", "same")
    assert len(grams.candidates({"s": "the same"})) == 1_000
    for number in range(999):
        grams.remove(number)
    assert grams.candidates({"s": "the same"}) == [999]
