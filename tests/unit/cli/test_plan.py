"""`postroad plan swico`, and simulating on what it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.errors import InputError

ROWS = [(f"n{v}", f"t{(v * k) % 31}") for v in range(60) for k in (1, 2, 3)]


def plan(folder: Path, *options: str) -> dict[str, object]:
    rows = folder / "interests.csv"
    rows.write_text("node,topic\n" + "".join(f"{v},{t}\n" for v, t in ROWS))
    command = ["plan", "swico", "--interests", str(rows), "-o", str(folder / "overlay.json")]
    result = CliRunner().invoke(cli, [*command, "--json", *options], catch_exceptions=False)
    assert result.exit_code == 0
    said: dict[str, object] = json.loads(result.output)
    return said


def test_planning_for_interest_joins_more_topics_than_not(tmp_path: Path) -> None:
    support = {kind: plan(tmp_path, "--overlay", kind)["tco_support"] for kind in ("SL", "-")}
    assert support["SL"] > support["-"]  # type: ignore[operator]


def test_parquet_says_the_same_as_csv(tmp_path: Path) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    said = plan(tmp_path)
    columns = {"node": [v for v, _ in ROWS], "topic": [t for _, t in ROWS]}
    parquet.write_table(arrow.table(columns), tmp_path / "rows.parquet")
    assert plan(tmp_path, "--interests", str(tmp_path / "rows.parquet")) == said


@pytest.mark.parametrize("scheme", ["beaconvey", "scribe", "iscribe"])
def test_schemes_run_on_the_planned_overlay(tmp_path: Path, scheme: str) -> None:
    plan(tmp_path)
    subscriptions = ", ".join(
        f'{{ broker = "{v}", client = "{v}", filter = "class = \'{t}\'" }}' for v, t in set(ROWS)
    )
    (tmp_path / "scenario.toml").write_text(
        f"""scheme = "{scheme}"
[overlay]
kind = "swico"
file = "overlay.json"
[workload]
subscriptions = [{subscriptions}]
publications = [
  {{ time = 0.0, broker = "n3", publisher = "p", attributes = {{ class = "t1" }} }},
]
"""
    )
    command = ["simulate", str(tmp_path / "scenario.toml"), "--json", "--check"]
    result = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert result.exit_code == 0
    said = json.loads(result.output)
    assert said["deliveries"] == len({v for v, t in ROWS if t == "t1"})
    assert said["missing"] == said["duplicates"] == 0
    assert said["hops"]["max"] >= 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a,b\n1,2\n", "name two of them node and topic"),
        ("node,topic\n", "no interests"),
        ("node,topic\nx,\n", "row 1 has no topic"),
        ("node,topic\nx\n", "give rows node,topic"),
    ],
)
def test_wrong_interests_are_told_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(text)
    command = ["plan", "swico", "--interests", str(rows), "-o", str(tmp_path / "x.json")]
    with pytest.raises(InputError, match=complaint):
        CliRunner().invoke(cli, command, catch_exceptions=False)
    assert not (tmp_path / "x.json").exists()


def test_a_tree_scheme_refuses_a_ring(tmp_path: Path) -> None:
    plan(tmp_path)
    path = tmp_path / "s.toml"
    path.write_text('scheme = "flooding"\n[overlay]\nkind = "swico"\nfile = "overlay.json"\n')
    with pytest.raises(InputError, match="swico is a ring"):
        CliRunner().invoke(cli, ["simulate", str(path)], catch_exceptions=False)


def test_the_approximate_planner_makes_both_or_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="makes SL"):
        plan(tmp_path, "--approximate", "--overlay", "S")


@pytest.mark.spark
def test_the_approximate_planner_joins_more_topics_than_chance(spark: Any, tmp_path: Path) -> None:
    support = [
        plan(tmp_path, *options)["tco_support"]
        for options in (("--approximate",), ("--overlay", "-"), ())
    ]
    assert support[1] < support[0] <= support[2]  # type: ignore[operator]
