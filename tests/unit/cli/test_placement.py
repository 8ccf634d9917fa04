"""`postroad advise placement`: advice that holds when it is followed, and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.errors import InputError
from postroad.sim.run import run
from postroad.sim.scenario import load

SCENARIO = """
scheme = "advertisement_forwarding"
[overlay]
kind = "full_tree"
fanout = 2
height = 3
latency_us = 1000
[workload.generate]
subscriptions = 40
publications = 300
publishers = 5
selectivity = 0.3
"""


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[Path, Path]:
    scenario, deliveries = tmp_path / "s.toml", tmp_path / "d.jsonl"
    scenario.write_text(SCENARIO)
    done = CliRunner().invoke(cli, ["simulate", str(scenario), "--deliveries", str(deliveries)])
    assert done.exit_code == 0, done.output
    return scenario, deliveries


def test_following_the_advice_costs_what_it_says(recorded: tuple[Path, Path]) -> None:
    scenario, deliveries = recorded
    done = CliRunner().invoke(
        cli, ["advise", "placement", str(scenario), str(deliveries), "--json"]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["load_then"] < found["load"]
    given = load(scenario)
    number = {name: broker for broker, name in enumerate(given.overlay.names)}
    targets = {row["publisher"]: number[row["target"]] for row in found["publishers"]}
    workload = given.workload
    moved = replace(
        given,
        workload=replace(
            workload,
            advertisements=tuple(
                replace(interest, broker=targets.get(interest.client, interest.broker))
                for interest in workload.advertisements
            ),
            postings=tuple(
                replace(posting, broker=targets.get(posting.publisher, posting.broker))
                for posting in workload.postings
            ),
        ),
    )
    # A publication that someone wants enters its first broker too: once from its publisher.
    for expected, one in ((found["load"], given), (found["load_then"], moved)):
        result = run(one)
        wanted = {delivery[0] for delivery in result.deliveries}
        assert result.summary()["messages"]["publication"] + len(wanted) == expected


def test_traces_of_the_pipeline_give_the_same_advice(
    recorded: tuple[Path, Path], tmp_path: Path
) -> None:
    scenario, deliveries = recorded
    rows = [json.loads(line) for line in deliveries.read_text().splitlines()]
    for row in rows:
        row["publisher"], _, row["publication"] = row["publication"].partition("/")
        row |= {"kind": "deliver", "trace_id": "r1"}
    other = [{**row, "trace_id": "r2"} for row in rows[:5]]
    table = tmp_path / "traces"
    table.mkdir()
    pq.write_table(pa.Table.from_pylist(rows + other), table / "part-0.parquet")
    words = ["advise", "placement", str(scenario)]
    plain = CliRunner().invoke(cli, [*words, str(deliveries), "--json"])
    traced = CliRunner().invoke(cli, [*words, str(table), "--trace-id", "r1", "--json"])
    assert plain.output == traced.output
    both = CliRunner().invoke(cli, [*words, str(table)])
    assert isinstance(both.exception, InputError)
    assert "deliveries of 2 runs" in str(both.exception)


def test_table_and_delay(recorded: tuple[Path, Path]) -> None:
    scenario, deliveries = recorded
    done = CliRunner().invoke(
        cli, ["advise", "placement", str(scenario), str(deliveries), "--priority", "delay"]
    )
    assert done.exit_code == 0, done.output
    assert "should be at" in done.output
    assert "average delay" in done.output


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"publication": "p0/1", "broker": "77"}', "unknown broker '77'"),
        ('{"publication": "nobody/1", "broker": "1"}', "unknown publisher 'nobody'"),
        ('{"broker": "1"}', "no publication or no broker"),
        ('{"kind": "send", "broker": "1"}', "no deliveries"),
        ("{", "not JSON"),
    ],
)
def test_what_cannot_be_used_is_told(
    recorded: tuple[Path, Path], tmp_path: Path, line: str, complaint: str
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(line + "\n")
    done = CliRunner().invoke(cli, ["advise", "placement", str(recorded[0]), str(bad)])
    assert isinstance(done.exception, InputError)
    assert complaint in str(done.exception)


def test_the_best_places_cost_what_a_simulation_there_costs(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    done = CliRunner().invoke(cli, ["advise", "publishers", str(path), "--json"])
    assert done.exit_code == 0, done.output
    advice = json.loads(done.output)
    scenario = load(path)
    number = {name: broker for broker, name in enumerate(scenario.overlay.names)}
    there = {row["publisher"]: number[row["should_be_at"]] for row in advice["publishers"]}
    workload = scenario.workload
    moved = replace(
        workload,
        postings=tuple(replace(one, broker=there[one.publisher]) for one in workload.postings),
        advertisements=tuple(
            replace(one, broker=there[one.client]) for one in workload.advertisements
        ),
    )
    for one, messages in ((scenario, "messages"), (replace(scenario, workload=moved), "then")):
        links = run(one).links
        assert sum(link.messages.get("publication", 0) for link in links) == advice[messages]
    assert advice["then"] == advice["least"] < advice["messages"]
    done = CliRunner().invoke(cli, ["advise", "publishers", str(path)])
    assert done.exit_code == 0, done.output
    assert f"messages {advice['messages']:,} to {advice['then']:,}" in done.output


def test_a_replaced_link_saves_what_a_simulation_saves(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    done = CliRunner().invoke(cli, ["advise", "links", str(path), "--json"])
    assert done.exit_code == 0, done.output
    advice = json.loads(done.output)
    best = advice["links"][0]
    scenario = load(path)
    overlay = scenario.overlay
    number = {name: broker for broker, name in enumerate(overlay.names)}
    old, new = ([number[name] for name in best[key]] for key in ("idle", "add"))
    ends = [new if {*pair} == {*old} else pair for pair in overlay.ends.tolist()]
    changed = replace(scenario, overlay=replace(overlay, ends=np.array(ends)))
    links = run(changed).links
    carried = sum(link.messages.get("publication", 0) for link in links)
    assert carried == advice["messages"] - best["saves"] < advice["messages"]
