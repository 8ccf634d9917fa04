from __future__ import annotations

from pathlib import Path

import pytest

from live_harness import write_network
from postroad.errors import InputError
from postroad.live.network import load

GOOD = """name = "n"
scheme = "subscription_forwarding"
links = [["A", "B"]]

[brokers.A]
mqtt = 1
link = 2
http = 3

[brokers.B]
mqtt = 4
link = 5
http = 6
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('["A", "B"]', '["A", "X"]', ":3: links is"),
        ("http = 6", "htp = 6", ":13: brokers.B.http is missing, and there is brokers.B.htp"),
        ("mqtt = 4", "mqtt = 2", ":11: brokers.B.mqtt is 2; choose another: brokers.A.link has it"),
        ("mqtt = 4", "mqtt = 70000", ":11: brokers.B.mqtt is 70000"),
        ("http = 3", "http = 3\nhots = 'x'", ":9: unknown key brokers.A.hots"),
        ('[["A", "B"]]', '[["A", "B"], ["B", "A"]]', ":3: links is ['B', 'A']; join two different"),
        ('[["A", "B"]]', "[]", ":3"),
        ('"subscription_forwarding"', '"flodding"', ":2: scheme is 'flodding'"),
        ('name = "n"', "name = 7", ":1: name is 7"),
        ('name = "n"', "name = ", "line 1"),
    ],
)
def test_wrong_files_are_refused_with_line_and_key(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    path = tmp_path / "network.toml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InputError) as caught:
        load(path)
    assert told in str(caught.value)


def test_good_file_and_unknown_broker(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_text(GOOD)
    network = load(path)
    assert network.names == ("A", "B")
    with pytest.raises(InputError, match="choose one of: A, B"):
        network.number("C")


def test_cycles_are_for_schemes_that_repair_their_tree(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    cycle = [("A", "B"), ("B", "C"), ("C", "A")]
    assert load(write_network(tmp_path, ["A", "B", "C"], cycle)).redundant
    assert not load(write_network(tmp_path, ["A", "B", "C"], cycle[:2])).redundant
    write_network(tmp_path, ["A", "B", "C"], cycle, scheme="popsub")
    with pytest.raises(InputError, match="link 3 from 'C' to 'A' closes a cycle"):
        load(path)
    write_network(tmp_path, ["A", "B", "C", "D"], cycle)
    with pytest.raises(InputError, match="join broker 'D' to 'A'"):
        load(path)
