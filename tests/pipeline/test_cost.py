"""Bulk costs against simulations with the same subscriptions, table by table."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

import networks
from postroad.cli import cli
from postroad.errors import InputError
from postroad.filters import matches
from postroad.kernels.ways import PRICED
from postroad.pipeline import cost, run, store
from postroad.sim.run import run as simulate
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Interest, Posting, Workload, derived_advertisements

pytestmark = pytest.mark.spark
NETWORK = """
seed = 4
[overlay]
kind = "edges"
file = "net.edges"
[subscription_forwarding]
covering = true
[kyra]
clique_ms = 3.0
trees = 2
[mbr]
groups = 4
cells = 8
"""
LINKS = [(0, 1, 900), (0, 2, 1100), (1, 3, 2000), (1, 4, 700), (2, 5, 0), (5, 6, 400), (5, 7, 3000)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cost")
    (folder / "net.toml").write_text(NETWORK)
    (folder / "net.edges").write_text("".join(f"B{a} B{b} {us}\n" for a, b, us in LINKS))
    draw = random.Random(11)
    with (folder / "subscriptions.jsonl").open("w") as file:
        for n in range(40):
            said = {"id": f"s{n:02}", "broker": f"B{draw.randrange(1, 8)}", "client": "c"}
            file.write(json.dumps(said | {"filter": str(networks.filter(draw))}) + "\n")
    with (folder / "publications.jsonl").open("w") as file:
        for n in range(150):
            said = {"id": str(n), "broker": f"B{draw.choice([0, 3, 7])}", "publisher": f"p{n % 4}"}
            said |= {"time_us": n * 1_000_000, "attributes": networks.attributes(draw)}
            file.write(json.dumps(said) + "\n")
    return folder


def workload(folder: Path, names: tuple[str, ...]) -> Workload:
    number = {name: n for n, name in enumerate(names)}
    rows = [json.loads(line) for line in (folder / "subscriptions.jsonl").open()]
    subscriptions = tuple(
        Interest(row["id"], number[row["broker"]], "c", cost.parse(row["filter"])) for row in rows
    )
    rows = [json.loads(line) for line in (folder / "publications.jsonl").open()]
    postings = tuple(
        Posting(
            row["time_us"], number[row["broker"]], row["publisher"], row["id"], row["attributes"]
        )
        for row in rows
    )
    return Workload(subscriptions, derived_advertisements(postings), postings)


def test_every_table_is_that_of_the_simulations(spark, files, tmp_path):
    sources = str(files / "subscriptions.jsonl"), str(files / "publications.jsonl")
    facts = run.cost(str(files / "net.toml"), *sources, str(tmp_path), run.Job())
    assert facts["publications"] == 150
    assert facts["sets"] < 150, "publications that the same brokers want are priced together"
    tables = {
        name: store.rows_of(str(tmp_path / name)) for name in ("cost", "cost_brokers", "cost_links")
    }
    settings = cost.load(files / "net.toml", ())
    names = settings.overlay.names
    given = workload(files, names)
    assert {row["scheme"] for row in tables["cost"]} == {*PRICED}
    least = sum(
        len(
            {each.broker for each in given.subscriptions if matches(each.filter, one.attributes)}
            - {one.broker}
        )
        for one in given.postings
    )
    for scheme, config in settings.schemes.items():
        result = simulate(Scenario(scheme, settings.overlay, given, config, seed=4))
        (total,) = [row for row in tables["cost"] if row["scheme"] == scheme]
        links = {
            (names[link.source], names[link.target]): count
            for link in result.links
            if (count := link.messages.get("publication", 0) + link.messages.get("notification", 0))
        }
        assert links == {
            (row["sender"], row["receiver"]): row["messages"]
            for row in tables["cost_links"]
            if row["scheme"] == scheme
        }
        own = {row["broker"]: row for row in tables["cost_brokers"] if row["scheme"] == scheme}
        for name, broker in zip(names, result.brokers, strict=True):
            for column in ("deliveries", "pure_forwards", "false_sends"):
                assert own[name][column] == getattr(broker, column), (scheme, name, column)
            for column in ("sent", "received"):
                counts = getattr(broker, column)
                said = counts.get("publication", 0) + counts.get("notification", 0)
                assert own[name][column] == said, (scheme, name, column)
        summary = result.summary()
        assert total["messages"] == sum(links.values())
        assert total["deliveries"] == summary["deliveries"] > 100
        assert total["pure_forwards"] == summary["pure_forwards"]
        assert total["false_sends"] == summary["false_sends"]
        assert total["hops_mean"] == pytest.approx(summary["hops"]["mean"])
        assert total["hops_max"] == summary["hops"]["max"]
        for p in (50, 90, 99):
            assert total[f"delay_us_p{p}"] == summary["latency_us"][f"p{p}"]
        assert total["messages_least"] == least <= total["messages"]
        assert total["load_max"] == max(row["sent"] + row["received"] for row in own.values())
        if scheme == "subscription_forwarding":
            assert total["messages"] == total["messages_least_on_tree"]
    assert run.cost(str(files / "net.toml"), *sources, str(tmp_path), run.Job())["unchanged"]
    assert not [*tmp_path.glob(".cost*")]


def test_wrong_usage_is_told_in_one_line(spark, files, tmp_path):
    sources = str(files / "subscriptions.jsonl"), str(files / "publications.jsonl")
    with pytest.raises(InputError, match="no price for 'popsub'"):
        run.cost(str(files / "net.toml"), *sources, str(tmp_path), run.Job(), schemes=["popsub"])
    (tmp_path / "late.csv").write_text("broker,client,filter,time_us\nB1,c,x > 1,5\n")
    arguments = ["--subscriptions", str(tmp_path / "late.csv"), "--publications", sources[1]]
    arguments += ["-o", str(tmp_path), "--scheme", "flooding"]
    done = CliRunner().invoke(cli, ["pipeline", "cost", str(files / "net.toml"), *arguments])
    assert done.exit_code != 0
    assert "comes or goes" in done.output + str(done.exception)
