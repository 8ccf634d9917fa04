"""Links of random networks, against counting the parts that are left without each."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from postroad.checking import network
from postroad.checking.findings import ERROR, Finding
from postroad.checking.links import Pair, cuts, loops, of_links, parts
from postroad.errors import InputError
from postroad.live.network import load


def count_parts(names: list[str], pairs: list[Pair]) -> int:
    """By painting: each link paints both ends alike until nothing changes."""
    paint = {name: number for number, name in enumerate(names)}
    for _ in names:
        for a, b in pairs:
            paint[a] = paint[b] = min(paint[a], paint[b])
    return len(set(paint.values()))


def drawn(draw: random.Random) -> tuple[list[str], list[Pair]]:
    names = [f"n{number}" for number in range(draw.randint(1, 9))]
    every = [(a, b) for a in names for b in names if a < b]
    pairs = draw.sample(every, min(len(every), draw.randint(0, len(names) + 3)))
    return names, [pair if draw.random() < 0.5 else pair[::-1] for pair in pairs]


def without(pairs: list[Pair], left_out: Pair) -> list[Pair]:
    return [pair for pair in pairs if pair is not left_out]


@pytest.mark.parametrize("seed", range(150))
def test_parts_loops_and_cuts_are_what_leaving_each_out_shows(seed: int) -> None:
    names, pairs = drawn(random.Random(seed))
    whole = count_parts(names, pairs)
    found = parts(names, pairs)
    assert len(found) == whole
    assert sorted(name for part in found for name in part) == names
    for part in found:
        assert count_parts(part, [pair for pair in pairs if {*pair} <= {*part}]) == 1
    bridges, brokers = cuts(names, pairs)
    assert bridges == [pair for pair in pairs if count_parts(names, without(pairs, pair)) > whole]
    for name in names:
        rest = [other for other in names if other != name]
        left = [pair for pair in pairs if name not in pair]
        alone = not any(name in pair for pair in pairs)
        assert (name in brokers) == (count_parts(rest, left) > whole - alone), name
    closing = loops(names, pairs)
    assert len(closing) == len(pairs) - len(names) + whole
    for (a, b), way in closing:
        assert (way[0], way[-1]) == (a, b)
        assert len({*way}) == len(way)
        linked = {frozenset(pair) for pair in pairs}
        assert all(frozenset(step) in linked for step in zip(way, way[1:] + way[:1], strict=True))


def test_a_line_of_brokers_may_be_long() -> None:
    names = [f"n{number:05}" for number in range(5_000)]
    pairs = list(pairwise(names))
    assert cuts(names, pairs) == (pairs, names[1:-1])


def kinds(found: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.severity, finding.kind) for finding in found]


def of(names: str, pairs: str, cyclic: bool) -> list[Finding]:
    linked = [(pair[0], pair[1]) for pair in pairs.split()]
    return of_links(list(names), linked, cyclic, lambda pair: f"n.toml {pair}")


def test_a_tree_is_told_once_and_spare_links_one_by_one() -> None:
    tree = of("ABCD", "AB BC CD", True)
    assert kinds(tree) == [("note", "link splits"), ("note", "broker splits")]
    assert "any of the 3 links" in tree[0].what
    assert tree[1].value == ["B", "C"]
    ring = of("ABCD", "AB BC CA CD", True)
    assert [(f.severity, f.kind, f.value) for f in ring] == [
        ("warning", "link splits", ["C", "D"]),
        ("warning", "broker splits", "C"),
    ]
    assert of("ABC", "AB BC CA", True) == []
    assert of("A", "", True) == []


def test_loops_are_wrong_where_the_scheme_wants_a_tree() -> None:
    found = [f for f in of("ABC", "AB BC CA", False) if f.severity == ERROR]
    assert [f.what for f in found] == ["link C-A closes the loop C - B - A - C"]
    assert found[0].where == "n.toml ('C', 'A')"


BROKER = "[brokers.{0}]\nmqtt = {1}\nlink = {2}\nhttp = {3}\n"


def write(path: Path, names: list[str], pairs: list[Pair], scheme: str) -> Path:
    links = ",\n".join(f'["{a}", "{b}"]' for a, b in pairs)
    text = f'name = "n"\nscheme = "{scheme}"\nlinks = [\n{links}\n]\n'
    for n, name in enumerate(names):
        text += BROKER.format(name, 2000 + 3 * n, 2001 + 3 * n, 2002 + 3 * n)
    path.write_text(text)
    return path


@pytest.mark.parametrize("scheme", ["subscription_forwarding", "popsub"])
@pytest.mark.parametrize("seed", range(20))
def test_a_file_has_errors_where_a_broker_would_refuse_it(
    tmp_path: Path, seed: int, scheme: str
) -> None:
    draw = random.Random(seed)
    names, pairs = drawn(draw)
    if pairs and draw.random() < 0.3:
        pairs.append(draw.choice([pairs[0], pairs[-1][::-1], (names[0], names[0])]))
    path = write(tmp_path / "n.toml", names, pairs, scheme)
    deployed, found = network.of_file(path)
    errors = [finding for finding in found if finding.severity == ERROR]
    try:
        load(path)
    except InputError:
        assert errors, (names, pairs)
    else:
        assert not errors, errors
    assert deployed is not None, found  # the rest is read all the same
    assert list(deployed.names) == names
    for finding in errors:
        if finding.kind in ("link", "loop"):
            line = int(finding.where.rpartition(":")[2])
            a, b = (
                finding.value
                if finding.kind == "link"
                else finding.value[:: len(finding.value) - 1]
            )
            assert f'["{a}", "{b}"]' in path.read_text().splitlines()[line - 1]


def test_every_wrong_thing_of_a_file_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "n.toml", ["A", "B", "C"], [("A", "X")], "flooding")
    path.write_text(path.read_text() + "[limits]\nsession_que = 3\n")
    _, found = network.of_file(path)
    assert [(f.kind, f.where) for f in found if f.severity == ERROR] == [
        ("link", f"{path}:4"),
        ("unreachable", f"{path}:3"),
        ("unreachable", f"{path}:3"),
        ("refused", f"{path}:19"),
    ]
    assert found[-1].remedy == "did you mean 'session_queue'?"


def test_a_broker_that_was_removed_need_not_be_reached(tmp_path: Path) -> None:
    path = write(tmp_path / "n.toml", ["A", "B", "C"], [("A", "B"), ("B", "C")], "flooding")
    path.write_text(path.read_text().replace("links =", 'removed = ["C"]\nlinks ='))
    deployed, found = network.of_file(path)
    assert deployed is not None
    assert [(f.kind, f.value) for f in found] == [("link splits", [["A", "B"]])]


@pytest.mark.parametrize("scheme", ["beaconvey", "kyra"])
def test_a_scheme_that_plans_its_links_is_judged_by_those(tmp_path: Path, scheme: str) -> None:
    names = [f"n{n}" for n in range(8)]
    path = write(tmp_path / "n.toml", names, [(names[0], name) for name in names[1:]], scheme)
    deployed, found = network.of_file(path)
    assert deployed is not None
    peers = deployed.plan().links()
    pairs = [(names[a], names[b]) for a in range(8) for b in peers[a] if a < b]
    splitting = [p for p in pairs if count_parts(names, without(pairs, p)) > 1]
    told = [f for f in found if f.kind == "link splits"]
    assert bool(splitting) == bool(told)
