"""`postroad simulate`: what it reports, and every way a scenario can be wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from postroad.cli import cli

SCENARIO = """
scheme = "subscription_forwarding"
seed = 3
[parameters]
covering = true
[overlay]
kind = "full_tree"
fanout = 2
height = 2
[workload]
subscriptions = "subs.csv"
publications = "pubs.jsonl"
"""
SUBSCRIPTIONS = "broker,client,filter\n3,ann,class = 'A'\n4,bob,\"class = 'A' AND x > 5\"\n"
PUBLICATIONS = """\
{"time": 0, "broker": 0, "publisher": "p", "attributes": {"class": "A", "x": 3}}
{"time": 0.5, "broker": 6, "publisher": "p", "attributes": {"class": "A", "x": 9}}
"""
COMMAND = [sys.executable, "-c", "from postroad.cli import main; main()", "simulate"]
KEYS = ["scheme", "brokers", "publications", "deliveries", "duplicates", "missing"]
KEYS += ["pure_forwards", "false_sends", "messages", "hops", "latency_us", "table_entries", "queue"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    (tmp_path / "subs.csv").write_text(SUBSCRIPTIONS)
    (tmp_path / "pubs.jsonl").write_text(PUBLICATIONS)
    return tmp_path


def simulate(folder: Path, *more: str) -> tuple[int, str, str]:
    """The command as a user runs it, error handling included."""
    done = subprocess.run(
        [*COMMAND, "scenario.toml", *more],
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[3] / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("to", "warned"), [("71", False), ("5", True)])
def test_a_seat_that_cannot_be_handed_over_is_warned_of(
    folder: Path, to: str, warned: bool
) -> None:
    """The example of docs/kyra.md hands over; to a server of another clique nothing moves."""
    page = (Path(__file__).parents[3] / "docs" / "kyra.md").read_text()
    assert 'seat = "3" ' in page
    assert 'to = "71" ' in page
    (folder / "scenario.toml").write_text(
        'scheme = "kyra"\n[parameters]\nclique_ms = 100.0\n'
        '[overlay]\nkind = "transit_stub"\nservers = 100\n'
        "[workload.generate]\nsubscriptions = 20\npublications = 20\n"
        f'[[hand_overs]]\nseat = "3"\nto = "{to}"\ntime = 1.5\n'
    )
    code, printed, errors = simulate(folder, "--json")
    assert code == 0
    assert ("seated" in json.loads(printed)["messages"]) is not warned
    assert ("warning: the hand-over at 1.5 s, told to 3, was dropped" in errors) is warned


def test_json_has_the_documented_keys_and_the_right_counts(folder: Path) -> None:
    code, out, err = simulate(folder, "--json", "--check")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert list(summary) == KEYS
    # Publication 0 goes 0-1-3; publication 1 goes 6-2-0-1 and there splits to 3 and 4.
    assert summary["messages"]["publication"] == 2 + 3 + 2
    assert (summary["deliveries"], summary["missing"], summary["duplicates"]) == (3, 0, 0)
    assert summary["hops"] == {"mean": (2 + 4 + 4) / 3, "max": 4}
    assert summary["latency_us"] == {"p50": 4000, "p90": 4000, "p99": 4000}
    # Brokers 0 and 1 for the first; 6, 2, 0 and 1 for the second.
    assert summary["pure_forwards"] == 2 + 4


def test_deliveries_file_has_a_line_per_delivery(folder: Path) -> None:
    code, out, _ = simulate(folder, "--deliveries", "out.jsonl", "--counters", "counters.jsonl")
    assert code == 0
    assert "subscription_forwarding" in out
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert rows[0] == {
        "publication": "p/0",
        "subscription": "s0",
        "broker": "3",
        "time_us": 2000,
        "hops": 2,
        "via": "tree",
    }
    assert {(row["publication"], row["subscription"]) for row in rows} == {
        ("p/0", "s0"),
        ("p/1", "s0"),
        ("p/1", "s1"),
    }
    counters = [json.loads(line) for line in (folder / "counters.jsonl").read_text().splitlines()]
    brokers = {row["broker"]: row for row in counters if "broker" in row}
    links = {tuple(row["link"]): row for row in counters if "link" in row}
    assert brokers["1"]["sent"]["publication"] == 3
    assert brokers["1"]["matches"] == 2
    assert links["0", "1"]["messages"]["publication"] == 2
    assert len(links) == 12


def test_check_fails_with_exit_code_1_when_deliveries_are_missing(folder: Path) -> None:
    text = SCENARIO.replace("[workload]", "[brokers]\nrate_per_s = 0.001\nbuffer = 1\n[workload]")
    (folder / "scenario.toml").write_text(text)
    late = PUBLICATIONS + PUBLICATIONS.replace('"p"', '"q"')
    (folder / "pubs.jsonl").write_text(late)
    code, out, err = simulate(folder, "--json", "--check")
    assert code == 1
    assert json.loads(out)["missing"] > 0
    assert re.fullmatch(r"postroad: deliveries differ from the oracle: \d+ missing .*\n", err)


def scenario_with(old: str, new: str) -> str:
    assert old in SCENARIO
    return SCENARIO.replace(old, new)


WRONG = {
    "unknown key": ("scenario.toml", "sede = 1\n" + SCENARIO, "unknown key sede = 1; did you mean"),
    "unknown parameter": (
        "scenario.toml",
        scenario_with("covering = true", "coverin = true"),
        "scenario.toml:5: unknown key parameters.coverin = True; did you mean 'covering'?",
    ),
    "wrong type": (
        "scenario.toml",
        scenario_with("fanout = 2", 'fanout = "2"'),
        "scenario.toml:8: overlay.fanout is '2'; give a whole number",
    ),
    "missing key": (
        "scenario.toml",
        scenario_with("height = 2", ""),
        "scenario.toml:6: overlay.height is missing; set it to a whole number",
    ),
    "impossible value": (
        "scenario.toml",
        scenario_with("fanout = 2", "fanout = 0"),
        "scenario.toml:6: fanout is 0; give fanout >= 1",
    ),
    "unknown scheme": (
        "scenario.toml",
        scenario_with('"subscription_forwarding"', '"pigeons"'),
        "scenario.toml:2: scheme is 'pigeons'; choose one of: flooding",
    ),
    "nearly a scheme": (
        "scenario.toml",
        scenario_with('"subscription_forwarding"', '"subscription-forwarding"'),
        "did you mean 'subscription_forwarding'? choose one of: flooding",
    ),
    "not TOML": (
        "scenario.toml",
        "scheme = \n",
        "scenario.toml: not TOML: Invalid value (at line 1",
    ),
    "missing file": (
        "scenario.toml",
        scenario_with("subs.csv", "nothing.csv"),
        "cannot read 'nothing.csv': No such file or directory; check the file's name",
    ),
    "strange format": (
        "scenario.toml",
        scenario_with("subs.csv", "scenario.toml"),
        "scenario.toml: cannot tell the format",
    ),
    "unknown broker": (
        "subs.csv",
        SUBSCRIPTIONS + "77,cid,TRUE\n",
        "subs.csv:4: unknown broker '77'; the overlay has 0, 1, 2, 3, … 6",
    ),
    "malformed filter": (
        "subs.csv",
        SUBSCRIPTIONS + "1,cid,x >\n",
        "subs.csv:4: filter 'x >': the filter ends where",
    ),
    "missing column": ("subs.csv", "broker,client\n1,c\n", "subs.csv:2: filter is missing; give"),
    "extra column": (
        "subs.csv",
        "broker,client,filter,colour\n1,c,TRUE,red\n",
        "subs.csv:2: unknown column 'colour'; known: broker, client, filter",
    ),
    "ragged row": (
        "subs.csv",
        SUBSCRIPTIONS + "1,c\n",
        "subs.csv:4: 2 fields where the header names 3; quote",
    ),
    "id twice": (
        "subs.csv",
        "id,broker,client,filter\na,1,c,TRUE\na,1,c,TRUE\n",
        "subs.csv:3: id 'a' is used twice; give each row an id of its own",
    ),
    "ends before it begins": (
        "subs.csv",
        "broker,client,filter,time,until\n1,c,TRUE,2,1\n",
        "subs.csv:2: until 1000000 µs is before time 2000000 µs; let it end",
    ),
    "bad JSON": ("pubs.jsonl", PUBLICATIONS + "{oops\n", "pubs.jsonl:3: not JSON: "),
    "not an object": ("pubs.jsonl", "[1]\n", "pubs.jsonl:1: '[1]' is not an object; give one"),
    "no time": (
        "pubs.jsonl",
        '{"broker": 0, "publisher": "p", "attributes": {}}\n',
        "pubs.jsonl:1: time is missing; say when, in seconds",
    ),
    "negative time": (
        "pubs.jsonl",
        '{"time": -1, "broker": 0, "publisher": "p", "attributes": {}}\n',
        "pubs.jsonl:1: time is -1; give a number from 0 up",
    ),
    "publication id twice": (
        "pubs.jsonl",
        '{"time": 1, "broker": 0, "publisher": "p", "id": 5, "attributes": {}}\n' * 2,
        "pubs.jsonl:2: publisher 'p' has already published id '5'; give each",
    ),
    "unknown fault": (
        "scenario.toml",
        SCENARIO + '[[faults]]\nkind = "meteor"\nstart = 0\nend = 1\n',
        "scenario.toml:14: faults[0].kind is 'meteor'; choose one of: link_down",
    ),
    "fault on no link": (
        "scenario.toml",
        SCENARIO + '[[faults]]\nkind = "link_down"\nlink = ["0", "6"]\nstart = 0\nend = 1\n',
        "scenario.toml:15: faults[0].link is ['0', '6']; name two brokers that a link joins",
    ),
    "fault that ends early": (
        "scenario.toml",
        SCENARIO + '[[faults]]\nkind = "crash"\nbroker = "0"\nstart = 2\nend = 1\n',
        "scenario.toml:17: faults[0].end is 1.0; let the fault end after it starts",
    ),
    "crash during a crash": (
        "scenario.toml",
        SCENARIO
        + '[[faults]]\nkind = "crash"\nbroker = "0"\nstart = 0\nend = 2\n'
        + '[[faults]]\nkind = "crash"\nbroker = "0"\nstart = 1\nend = 3\n',
        "scenario.toml:21: faults[1].start is 1.0; let it restart before it crashes again",
    ),
    "share above one": (
        "scenario.toml",
        SCENARIO + '[[faults]]\nkind = "aside_loss"\nshare = 1.5\nstart = 0\nend = 2\n',
        "scenario.toml:15: faults[0].share is 1.5; give a share of at most 1",
    ),
    "buffer without rate": (
        "scenario.toml",
        SCENARIO + "[brokers]\nbuffer = 5\n",
        "scenario.toml:14: brokers.buffer is 5; set brokers.rate_per_s too",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_line_and_exit_code_2(
    folder: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, content, complaint = WRONG[case]
    (folder / name).write_text(content)
    monkeypatch.chdir(folder)
    before = sorted(path.name for path in folder.iterdir())
    done = CliRunner().invoke(cli, ["simulate", "scenario.toml", "--deliveries", "out.jsonl"])
    assert complaint in str(done.exception)
    assert "\n" not in str(done.exception)
    assert done.stdout == ""
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_wrong_scenario_exits_with_2_and_no_traceback(folder: Path) -> None:
    (folder / "scenario.toml").write_text("sede = 1\n" + SCENARIO)
    code, out, err = simulate(folder)
    assert (code, out) == (2, "")
    assert err == "postroad: scenario.toml:1: unknown key sede = 1; did you mean 'seed'?\n"


def test_a_file_without_rows_is_named(folder: Path) -> None:
    for name in ("subs.csv", "pubs.jsonl"):
        (folder / name).write_text("")
    code, _, err = simulate(folder)
    assert code == 0
    assert err == (
        "postroad: warning: there is no subscription in subs.csv\n"
        "postroad: warning: there is no publication in pubs.jsonl\n"
    )
    listed = scenario_with('subscriptions = "subs.csv"', "subscriptions = []")
    (folder / "scenario.toml").write_text(listed)
    assert "there is no subscription in scenario.toml\n" in simulate(folder)[2]


def test_a_place_that_cannot_be_written_is_told(folder: Path) -> None:
    code, out, err = simulate(folder, "--deliveries", "no/such/place.jsonl")
    assert (code, out) == (2, "")
    assert err.startswith("postroad: cannot write 'no/such/place.jsonl': No such file")


@pytest.mark.parametrize(
    ("edges", "complaint"),
    [
        ("a b\nb c\nc a\n", "links.txt: link 3 from 'c' to 'a' closes a cycle; give"),
        ("a b\nc d\n", "links.txt: broker 'c' is not connected to broker 'a'; add"),
        ("a b\nb c fast\n", "links.txt:2: 'b c fast' is not a link; write two brokers"),
        ("# nothing\n", "links.txt: no links; give at least one"),
    ],
)
def test_an_edge_list_that_is_no_tree_is_told(
    folder: Path, edges: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "links.txt").write_text(edges)
    text = scenario_with("fanout = 2\nheight = 2", 'file = "links.txt"')
    (folder / "scenario.toml").write_text(text.replace("full_tree", "edges"))
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(cli, ["simulate", "scenario.toml"])
    assert complaint in str(done.exception)


def test_covering_and_advertisements_make_tables_smaller(folder: Path) -> None:
    generate = "[workload.generate]\nsubscriptions = 150\npublications = 20\nclasses = 3\n"
    entries = {}
    for scheme, covering in [
        ("subscription_forwarding", "false"),
        ("subscription_forwarding", "true"),
        ("advertisement_forwarding", "false"),
    ]:
        text = SCENARIO[: SCENARIO.index("[workload]")] + generate + "publishers = 1\n"
        text = text.replace("subscription_forwarding", scheme).replace("true", covering)
        (folder / "scenario.toml").write_text(text)
        code, out, _ = simulate(folder, "--json", "--check")
        assert code == 0
        entries[scheme, covering] = json.loads(out)["table_entries"]["mean"]
    plain = entries.pop(("subscription_forwarding", "false"))
    assert all(value < 0.9 * plain for value in entries.values()), (plain, entries)
