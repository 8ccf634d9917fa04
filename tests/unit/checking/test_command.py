"""`postroad check`: its output, exit codes, and the worked example of its page."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from postroad.cli import cli
from postroad.errors import InputError
from postroad.live.edge import users
from postroad.live.network import KEYS
from postroad.relocation import RELOCATIONS

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "check"
PAGE = ROOT / "docs" / "check.md"


def run(*arguments: str | Path, folder: Path = EXAMPLE) -> Result:
    here = Path.cwd()
    os.chdir(folder)
    try:
        return CliRunner().invoke(cli, ["check", *map(str, arguments)])
    finally:
        os.chdir(here)


def findings(*arguments: str | Path, folder: Path = EXAMPLE) -> tuple[int, list[dict[str, Any]]]:
    done = run(*arguments, "--json", folder=folder)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)["findings"]


def test_the_page_shows_what_the_commands_print() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"^```\n\$ postroad check ([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.M)
    assert len(shown) == 3
    for command, output in shown:
        printed = run(*shlex.split(command)).stdout
        if os.environ.get("POSTROAD_GOLDEN") == "rewrite":
            text = text.replace(f"{command}\n{output}```", f"{command}\n{printed}```")
            PAGE.write_text(text, encoding="utf-8")
        else:
            assert output == printed, command


def test_errors_exit_with_1_and_all_else_with_0() -> None:
    code, found = findings("network.toml", "--subscriptions", "subscriptions.csv")
    assert code == 1
    assert [(f["severity"], f["kind"], f["where"]) for f in found][:2] == [
        ("error", "contradictory", "subscriptions.csv:4"),
        ("warning", "link splits", "network.toml:8"),
    ]
    code, found = findings("now.toml")
    assert code == 0
    assert {f["severity"] for f in found} == {"note"}
    assert run("now.toml").stdout.endswith("2 notes\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "nothing to check"),
        (["missing.toml"], "cannot read"),
        (["--publications", "publications.jsonl"], "who wants them"),
        (["--subscriptions", "now.csv", "--against", "now.toml"], "no other is named"),
        (["now.toml", "--against", "now.csv"], "no other is given"),
        (["now.toml", "--traces", "nowhere"], "no such file or folder"),
    ],
)
def test_wrong_usage(arguments: list[str], complaint: str) -> None:
    done = run(*arguments)
    assert isinstance(done.exception, InputError)  # which `main` turns into exit code 2
    assert complaint in str(done.exception)


@pytest.mark.parametrize(
    ("written", "meant", "line"),
    [("shceme =", "scheme =", 3), ("lnks =", "links =", 4), ("[brokrs.", "[brokers.", 6)],
)
def test_a_key_that_is_misspelled_is_all_that_is_told(
    tmp_path: Path, written: str, meant: str, line: int
) -> None:
    redundant = '"madrid"], ["berlin", "madrid"]]'
    text = (EXAMPLE / "now.toml").read_text().replace('"madrid"]]', redundant)
    (tmp_path / "n.toml").write_text(text.replace(meant, written))
    code, found = findings("n.toml", folder=tmp_path)
    errors = [(f["what"], f["where"], f["remedy"]) for f in found if f["severity"] == "error"]
    key, known = written.strip("[. ="), meant.strip("[. =")
    assert errors == [(f"unknown key {key}", f"n.toml:{line}", f"did you mean {known!r}?")]
    assert code == 1


def test_whether_links_may_close_loops_is_not_told_of_an_unknown_scheme(tmp_path: Path) -> None:
    text = (
        (EXAMPLE / "now.toml").read_text().replace('"madrid"]]', '"madrid"], ["berlin", "madrid"]]')
    )
    (tmp_path / "n.toml").write_text(text.replace("subscription_forwarding", "beacon"))
    _, found = findings("n.toml", folder=tmp_path)
    (error,) = [f for f in found if f["severity"] == "error"]
    assert "scheme is 'beacon'" in error["what"]


def test_the_keys_of_a_network_file_are_those_that_are_read() -> None:
    page = (ROOT / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
    table = page.partition("## A network file")[2].partition("\n## ")[0]
    named = {row.split(".")[0] for row in re.findall(r"^\| `([^`]*)`", table, re.M)}
    assert {*KEYS} == named - {*RELOCATIONS}


@pytest.mark.parametrize("text", ["", "broker,client,filter\n"])
def test_a_file_without_rows_is_warned_of(tmp_path: Path, text: str) -> None:
    (tmp_path / "empty.csv").write_text(text)
    empty = tmp_path / "empty.csv"
    code, found = findings("now.toml", "--subscriptions", empty, "--publications", empty)
    told = [(f["what"], f["where"]) for f in found if f["severity"] == "warning"]
    assert told == [
        ("there is no subscription in it", str(empty)),
        ("there is no publication in it", str(empty)),
    ]
    assert code == 0


def test_users_are_checked_and_compared(tmp_path: Path) -> None:
    text = (EXAMPLE / "now.toml").read_text().replace("links =", 'users = "users.json"\nlinks =')
    for version, where in (("old", None), ("new", "region = 'eu'")):
        folder = tmp_path / version
        folder.mkdir()
        (folder / "n.toml").write_text(text.replace("users =", 'secret = "s"\nusers ='))
        keep = folder / "users.json"
        users.change(keep, "feed", users.User("", "", ("quotes",), ()))
        users.change(keep, "root", users.User("", "", (), ("#",)))
        users.change(keep, "reader", users.User("", "", (), ("quotes",), None, where))
    code, found = findings("new/n.toml", "--against", "old/n.toml", folder=tmp_path)
    assert code == 0
    assert [(f["kind"], f["where"]) for f in found if "users.json" in f["where"]] == [
        ("sees more", "new/users.json: reader"),
        ("sees more", "new/users.json: reader"),
        ("less", "new/users.json: reader"),
    ]
    assert not [f for f in found if f["kind"] == "changed"]  # the same file in another folder
    (tmp_path / "new" / "users.json").unlink()
    code, found = findings("new/n.toml", folder=tmp_path)
    assert (code, found[0]["kind"]) == (1, "refused")


def test_every_change_of_a_network_says_whether_brokers_must_restart(tmp_path: Path) -> None:
    old = (EXAMPLE / "now.toml").read_text()
    changes = {
        "scheme": (old.replace("subscription_forwarding", "flooding"), "warning"),
        "name": (old.replace('"shop"', '"shops"'), "warning"),
        "seed": (old.replace("links =", "seed = 3\nlinks ="), "warning"),
        "parameters.covering": (f"{old}[parameters]\ncovering = true\n", "warning"),
        "limits.session_queue": (f"{old}[limits]\nsession_queue = 5\n", "note"),
        "broker paris listens": (old.replace("18842", "18849"), "warning"),
        "link berlin-madrid": (old.replace('["paris", "m', '["berlin", "m'), "warning"),
        "broker madrid is gone": (old.replace("links =", 'removed = ["madrid"]\nlinks ='), "note"),
        "store": (old.replace("links =", 'store = "s"\nlinks ='), "warning"),
        "traces begin": (old.replace("links =", 'traces = "t"\nlinks ='), "warning"),
        "broker rome is new": (
            old.replace('"madrid"]]', '"madrid"], ["madrid", "rome"]]')
            + "[brokers.rome]\nmqtt = 1\nlink = 2\nhttp = 3\n",
            "note",
        ),
    }  # fmt: skip
    (tmp_path / "old.toml").write_text(old)
    for what, (text, severity) in changes.items():
        (tmp_path / "new.toml").write_text(text)
        _, found = findings("new.toml", "--against", "old.toml", folder=tmp_path)
        told = [f for f in found if f["kind"] == "changed"]
        assert any(what in f["what"] for f in told), (what, told)
        assert {f["severity"] for f in told} == {severity}, (what, told)
    _, found = findings("old.toml", "--against", "old.toml", folder=tmp_path)
    assert not [f for f in found if f["kind"] == "changed"]


def test_traces_of_a_simulation_are_enough(tmp_path: Path) -> None:
    scenario = ROOT / "examples" / "quotes" / "scenario.toml"
    made = CliRunner().invoke(cli, ["simulate", str(scenario), "--traces", str(tmp_path / "t")])
    assert made.exit_code == 0
    network = (EXAMPLE / "now.toml").read_text() + "[limits]\nsubscriptions_per_client = 1\n"
    (tmp_path / "n.toml").write_text(network)
    code, found = findings("n.toml", "--traces", "t", folder=tmp_path)
    assert code == 0
    near = [f["value"]["limit"] for f in found if f["kind"] == "limit"]
    assert near == ["subscriptions_per_client"]
