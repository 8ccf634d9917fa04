"""`postroad replay` and `postroad explain` on recorded traces, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.errors import InputError, RunFailed

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "traces"
    scenario = ROOT / "examples" / "quotes" / "scenario.toml"
    result = CliRunner().invoke(cli, ["simulate", str(scenario), "--traces", str(folder)])
    assert result.exit_code == 0, result.output
    return folder


def call(*words: object) -> Any:
    return CliRunner().invoke(cli, [str(word) for word in words])


def test_a_replay_is_the_same_and_says_so(traces: Path) -> None:
    result = call("replay", traces, "--check")
    assert result.exit_code == 0
    assert "the same 2 deliveries and the same 10 messages on every link" in result.output


def test_a_change_is_shown_as_before_and_after(traces: Path) -> None:
    result = call("replay", traces, "--scheme", "flooding", "--link", "london-paris=80ms", "--json")
    told = json.loads(result.output)
    assert told["fidelity"]["same"]
    assert told["after_scheme"] == "flooding"
    assert told["after"]["deliveries"] == told["before"]["deliveries"] == 2
    assert told["after"]["delay_us_p50"] == told["before"]["delay_us_p50"] + 72_000
    assert told["links"]
    table = call("replay", traces, "--without", "milan", "--grow", "publications=3x")
    assert "the clients of milan are gone with it" in table.output
    assert "links that change most" in table.output


def test_who_publishes_once_and_leaves_is_heard_under_any_scheme(tmp_path: Path) -> None:
    """On a live network without advertisements they last as long as the client: here 2 µs."""
    (tmp_path / "s.csv").write_text("broker,client,filter\n2,desk,class = 'quotes/ibm'\n")
    (tmp_path / "a.csv").write_text(
        "id,broker,publisher,filter,time_us,until_us\na,0,feed,class = 'quotes/ibm',9999,10001\n"
    )
    (tmp_path / "p.csv").write_text(
        'time_us,broker,publisher,attributes\n10000,0,feed,"{""class"": ""quotes/ibm""}"\n'
    )
    (tmp_path / "chain.edges").write_text("0 1 3000\n1 2 3000\n")
    (tmp_path / "scenario.toml").write_text(
        'scheme = "subscription_forwarding"\n[overlay]\nkind = "edges"\nfile = "chain.edges"\n'
        '[workload]\nsubscriptions = "s.csv"\nadvertisements = "a.csv"\npublications = "p.csv"\n'
    )
    made = call("simulate", tmp_path / "scenario.toml", "--traces", tmp_path / "traces")
    assert made.exit_code == 0, made.output
    lines = [json.loads(line) for path in (tmp_path / "traces").iterdir() for line in path.open()]
    for row in lines:  # as if live
        row["life"] = 1
        if row["kind"] == "start":
            row["detail"] = json.dumps({**json.loads(row["detail"]), "assumed_us": 1000})
    copy = tmp_path / "traces-x-1.jsonl"
    copy.write_text("\n".join(map(json.dumps, lines)) + "\n")
    for scheme in ("advertisement_forwarding", "popsub"):
        told = json.loads(call("replay", copy, "--scheme", scheme, "--json").output)
        assert told["fidelity"]["same"]
        assert told["before"]["deliveries"] == told["after"]["deliveries"] == 1
        assert told["after"]["missing"] == 0
        assert told["assumptions"] == [
            "publishers advertise well before they publish, and until well after"
        ]
    told = json.loads(call("replay", copy, "--scheme", "flooding", "--json").output)
    assert told["assumptions"] == []
    call("replay", copy, "-o", tmp_path / "out")
    text = (tmp_path / "out" / "scenario.toml").read_text()
    again = tmp_path / "out" / "again.toml"
    again.write_text(text.replace("subscription_forwarding", "advertisement_forwarding"))
    assert json.loads(call("simulate", again, "--json").output)["missing"] == 0


def test_copies_come_with_their_originals_and_this_is_said(traces: Path) -> None:
    result = call("replay", traces, "--grow", "publications=3x", "--json")
    told = json.loads(result.output)
    assert told["after"]["deliveries"] == 3 * told["before"]["deliveries"]
    assert any("at the same brokers and times" in sentence for sentence in told["assumptions"])


def test_too_few_publications_to_compare_are_refused(traces: Path, tmp_path: Path) -> None:
    result = call("replay", traces, "--compare", "-o", tmp_path / "report")
    assert isinstance(result.exception, InputError)
    assert "give at least 4" in str(result.exception)


def test_an_altered_trace_is_found_out(traces: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for path in traces.iterdir() for line in path.open()]
    lost = next(n for n, row in enumerate(lines) if row["kind"] == "deliver")
    del lines[lost]
    copy = tmp_path / "traces-x-1.jsonl"
    copy.write_text("\n".join(map(json.dumps, lines)) + "\nbad line\n")
    result = call("replay", copy, "--check")
    assert isinstance(result.exception, RunFailed)
    assert "0 deliveries missing, 1 more" in result.output
    assert "rows of broker" in result.output  # the gap
    assert "1 bad rows left out" in result.output


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--link", "london-paris"], "--link is"),
        (["--link", "london-paris=soon"], "is no time"),
        (["--move", "nobody"], "--move is"),
        (["--add", "rome"], "--add and --to go together"),
        (["--grow", "users=2x"], "--grow is"),
        (["--grow", "publications=-1x"], "--grow is"),
        (["--scheme", "floodin"], "scheme is 'floodin'"),
        (["--parameters", "covering"], "--parameters is"),
        (["--parameters", "coverin=true"], "coverin"),
        (["--trace-id", "other"], "no rows"),
    ],
)
def test_wrong_options_are_refused(traces: Path, words: list[str], wrong: str) -> None:
    result = call("replay", traces, *words)
    assert isinstance(result.exception, InputError)
    assert wrong in str(result.exception)


def test_what_can_be_asked_is_listed_and_answered(traces: Path) -> None:
    listed = call("explain", traces)
    assert listed.exit_code == 0
    name = listed.output.splitlines()[1].split()[0]
    client = listed.output.splitlines()[-1].split()[0]
    answer = json.loads(
        call("explain", traces, "--publication", name, "--client", client, "--json").output
    )
    assert answer["publication"] == name
    assert answer["cause"] in call(
        "explain", traces, "--publication", name, "--client", client
    ).output  # fmt: skip
    idle = call("explain", traces, "--filter", "colour = 'red'")
    assert idle.output.startswith("attribute never seen")


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    for command in ("replay", "explain"):
        result = call(command, tmp_path)
        assert isinstance(result.exception, InputError)
        assert "no trace files" in str(result.exception)
        missing = call(command, tmp_path / "nowhere")
        assert "no such file" in str(missing.exception)
