"""Whatever a settings file holds, every command that reads one answers with one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.comparison import settings
from postroad.errors import InputError
from postroad.live import network
from postroad.sim import scenario

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = {
    "lists": b"a = " + b"[" * 50_000 + b"]" * 50_000,
    "tables": b"a = " + b"{a = " * 5_000 + b"1" + b"}" * 5_000,
    "dotted": b".".join([b"a"] * 5_000) + b" = 1",
    "table names": b"[" + b".".join([b"a"] * 5_000) + b"]",
    "a few too many": b"a = " + b"[" * 33 + b"]" * 33,
    "not closed": b"a = " + b"[" * 50_000,
    "digits": b"a = " + b"9" * 10_000,
    "not UTF-8": b"a = \xff",
    "not TOML": b"a = = 1",
}
COMMANDS = {
    "simulate": ["simulate", "FILE"],
    "compare": ["compare", "FILE", "--out", "OUT"],
    "sweep": ["pipeline", "sweep", "FILE", "-o", "OUT"],
    "network": ["network", "status", "FILE"],
    "broker": ["broker", "--network", "FILE", "--id", "A"],
    "add": [
        "network",
        "add",
        "FILE",
        "D",
        "--to",
        "A",
        "--mqtt",
        "1",
        "--link",
        "2",
        "--http",
        "3",
    ],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_hostile_settings_are_one_line(command: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    words = {"FILE": str(path), "OUT": str(tmp_path / "out")}
    for name, text in HOSTILE.items():
        path.write_bytes(text)
        result = CliRunner().invoke(cli, [words.get(word, word) for word in COMMANDS[command]])
        assert isinstance(result.exception, InputError), (name, result.output, result.exception)
        line = str(result.exception)
        assert line.startswith(str(path)), name
        assert "\n" not in line
        assert len(line) < 400, name


def test_toml_is_read_in_one_place() -> None:
    readers = [
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "src").rglob("*.py")
        if re.search(r"^\s*(import|from) tomllib", file.read_text(), re.MULTILINE)
    ]
    assert readers == ["src/postroad/settings/toml.py"]


def example_in(module: Any, folder: Path) -> Path:
    """The file that a module's docstring shows, all but its first sentence."""
    path = folder / "example.toml"
    path.write_text(module.__doc__.partition("\n\n")[2])
    return path


def test_the_files_that_docstrings_show_can_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "subscriptions.csv").write_text("broker,client,filter\n1,c,x > 1\n")
    (tmp_path / "publications.jsonl").write_text(
        '{"time": 0, "broker": "0", "publisher": "p", "attributes": {"x": 2}}\n'
    )
    assert network.load(example_in(network, tmp_path)).names == ("A", "B", "C")
    assert scenario.load(example_in(scenario, tmp_path)).workload.subscriptions
    assert settings.load(example_in(settings, tmp_path)).tune
