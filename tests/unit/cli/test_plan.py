"""`postroad plan swico`, and simulating on what it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.errors import InputError
from postroad.pipeline import store
from postroad.pipeline.schemas import PUBLICATIONS, SUBSCRIPTIONS

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


@pytest.mark.spark
def test_a_large_table_has_the_plan_of_the_same_file(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    said = plan(tmp_path, "--approximate")
    overlay = (tmp_path / "overlay.json").read_text()
    (tmp_path / "table").mkdir()
    for number, rows in enumerate((ROWS[:70], ROWS[70:])):
        columns = {"node": [v for v, _ in rows], "topic": [t for _, t in rows]}
        parquet.write_table(arrow.table(columns), tmp_path / f"table/part-{number}.parquet")
    monkeypatch.setattr("postroad.cli.plan.LARGE_ROWS", 100)
    assert plan(tmp_path, "--approximate", "--interests", str(tmp_path / "table")) == said
    assert (tmp_path / "overlay.json").read_text() == overlay


def kyra_files(folder: Path) -> list[str]:
    names = [f"s{n}" for n in range(6)]
    rows = [",".join(str(abs(a - b) * 20) for b in range(6)) for a in range(6)]
    (folder / "m.csv").write_text("\n".join([",".join(names), *rows]) + "\n")
    lines = [f"{name},c,x BETWEEN {n} AND {n + 2}" for n, name in enumerate(names)]
    (folder / "subs.csv").write_text("\n".join(["broker,client,filter", *lines]) + "\n")
    return ["--subscriptions", str(folder / "subs.csv"), "-o", str(folder / "plan.json")]


@pytest.mark.spark
@pytest.mark.parametrize("options", [(), ("--attributes", "x", "--weight", "volume")])
def test_a_kyra_plan_from_tables_is_that_from_files(
    spark: Any, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Spark computes the loads of one, a loop those of the other; publications are no round number
    of the zones, some lack an attribute, and subscriptions come and go."""
    kyra_files(tmp_path)
    subscriptions = [
        (f"s{n}", f"s{n % 6}", "c", f"x BETWEEN {n} AND {n + 5} AND y < {n % 7}", n, None)
        for n in range(20)
    ]
    contents = [
        {"x": n * n % 29, "volume": n % 5, **({"y": n % 9} if n % 4 else {})} for n in range(200)
    ]
    publications = [
        (str(n), "p", f"s{n % 6}", n, json.dumps(content)) for n, content in enumerate(contents)
    ]
    for name, rows, schema in (
        ("subscriptions", subscriptions, SUBSCRIPTIONS),
        ("publications", publications, PUBLICATIONS),
    ):
        path = str(tmp_path / name)
        store.write(spark.createDataFrame(rows, schema).repartition(3), path)
        store.publish(path, store.Recipe("test", {}))
        lines = [dict(zip(schema.names, row, strict=True)) for row in rows]
        for line in lines:
            line["id"] = line.pop(name[:-1])
            if "attributes" in line:
                line["attributes"] = json.loads(line["attributes"])
        told = [{key: value for key, value in line.items() if value is not None} for line in lines]
        text = "".join(json.dumps(line) + "\n" for line in told)
        (tmp_path / f"{name}.jsonl").write_text(text)
    plans = []
    for ending in ("", ".jsonl"):
        command = ["plan", "kyra", "--latencies", str(tmp_path / "m.csv"), "--times", "one-way"]
        for name in ("subscriptions", "publications"):
            command += [f"--{name}", str(tmp_path / f"{name}{ending}")]
        out = tmp_path / f"plan{ending}.json"
        command += ["--clique-ms", "60", *options, "-o", str(out)]
        CliRunner().invoke(cli, command, catch_exceptions=False)
        plans.append(json.loads(out.read_text()))
    assert plans[0] == plans[1]
    assert len({str(zone) for zone in plans[0]["zones"]}) > 2


def test_a_kyra_plan_is_written_and_simulated(tmp_path: Path) -> None:
    files = kyra_files(tmp_path)
    command = ["plan", "kyra", "--latencies", str(tmp_path / "m.csv"), "--clique-ms", "40", *files]
    result = CliRunner().invoke(cli, command)
    assert "one way or round trips; set times" in str(result.exception)
    command += ["--times", "one-way"]
    result = CliRunner().invoke(cli, [*command, "--json"], catch_exceptions=False)
    facts = json.loads(result.output)
    assert (facts["servers_count"], facts["cliques_count"], facts["trees_count"]) == (6, 3, 2)
    for kind, file in (("kyra", 'plan.json"'), ("latencies", 'm.csv"\ntimes = "one-way"')):
        for scheme in ("kyra", "fbr", "mbr", "match_early", "flooding"):
            (tmp_path / "scenario.toml").write_text(
                f"""scheme = "{scheme}"
[overlay]
kind = "{kind}"
file = "{file}
[workload]
subscriptions = "subs.csv"
publications = [
  {{ time = 0.0, broker = "s0", publisher = "p", attributes = {{ x = 4 }} }},
]
"""
            )
            result = CliRunner().invoke(
                cli, ["simulate", str(tmp_path / "scenario.toml"), "--json"], catch_exceptions=False
            )
            assert json.loads(result.output)["deliveries"] == 3, (kind, scheme)


def test_kyra_needs_to_know_where_the_servers_are(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["plan", "kyra", *kyra_files(tmp_path)])
    assert isinstance(result.exception, InputError)


def test_kyra_plans_for_a_transit_stub_network(tmp_path: Path) -> None:
    (tmp_path / "subs.csv").write_text("broker,client,filter\n3,c,x > 2\n9,c,x < 7\n")
    command = ["plan", "kyra", "--servers", "10", "--subscriptions", str(tmp_path / "subs.csv")]
    result = CliRunner().invoke(
        cli, [*command, "-o", str(tmp_path / "plan.json")], catch_exceptions=False
    )
    assert result.output.startswith("10 servers in ")


def test_kyra_zones_follow_the_weights_of_publications(tmp_path: Path) -> None:
    """Section III.B: what a zone carries is popularity^α · volume · weight."""
    (tmp_path / "subs.csv").write_text("broker,client,filter\n3,c,x >= 0\n9,c,x <= 99\n")
    rows = [
        {"time": 0, "broker": "1", "publisher": "p", "attributes": {"x": x, "n": 1 + 98 * (x < 10)}}
        for x in range(100)
    ]
    (tmp_path / "pubs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["plan", "kyra", "--servers", "10", "--clique-ms", "1000", "--trees", "2"]
    command += ["--attributes", "x", "--subscriptions", str(tmp_path / "subs.csv")]
    command += ["--publications", str(tmp_path / "pubs.jsonl"), "-o", str(tmp_path / "plan.json")]
    cuts = []
    for more in ([], ["--weight", "n"]):
        CliRunner().invoke(cli, [*command, *more], catch_exceptions=False)
        zones = json.loads((tmp_path / "plan.json").read_text())["tree_zones"]
        cuts += [side[2] for zone in zones for side in zone if side[2] is not None]
    # Half of the publications lie below 50, half of their weight (990 + 90) below 6.
    assert cuts == [50, 6]
    result = CliRunner().invoke(cli, [*command, "--weight", "y"])
    assert "publication 1 has y = None" in str(result.exception)
