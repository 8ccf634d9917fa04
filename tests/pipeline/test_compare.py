"""The comparison end to end: its page in a real browser, bad rows, failures, resumption."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from live_harness import free_ports, wait_for
from measured_by_hand import measured
from postroad.cli import cli
from postroad.comparison import bulk, deploy
from postroad.comparison.rows import ROWS
from postroad.comparison.runs import MEASURES, links_of
from postroad.errors import InputError
from postroad.live.client import Client
from postroad.live.network import Network, load
from postroad.live.operations import launch
from postroad.relocation import RELOCATIONS
from postroad.routing import SCHEMES
from postroad.sim.facts import carrying
from postroad.sim.run import run
from postroad.sim.scenario import Scenario, from_dict

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium")

TINY = """
title = "Tiny & <quoted>"
replicates = 2
seed = 3
tune = true
sensitivity = true
[limits]
survives_crashes = true
delay_p99_ms = 1000
[overlay]
kind = "wide_area"
brokers = 12
[workload.followed]
subscriptions = 80
publications = 30
publishers = 10
rate_per_s = 5
"""
FILES = """
replicates = 2
schemes = ["flooding", "scribe"]
[overlay]
kind = "random_tree"
brokers = 5
[workload]
subscriptions = "s.csv"
publications = "p.csv"
"""
PUBLICATION = '{n},{n},p,"{{""price"": {n}, ""kind"": ""k""}}"\n'


def compare(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["compare", *words], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def report(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    (folder / "tiny.toml").write_text(TINY)
    code, out, err = compare(str(folder / "tiny.toml"), "-o", str(folder / "report"), "--json")
    assert code == 0, out + err
    (folder / "told.json").write_text(out)
    return folder / "report"


def results(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def means(folder: Path, label: str, measure: str) -> float:
    values = [
        float(row[measure])
        for row in results(folder)
        if row["scheme"] == label and not row["point"]
    ]
    assert len(values) == 2
    return sum(values) / 2


def test_every_scheme_of_the_table_is_compared() -> None:
    assert {row.scheme for row in ROWS.values()} == set(SCHEMES)
    assert {row.relocation for row in ROWS.values()} == {None, *RELOCATIONS}


def test_all_schemes_deliver_the_same_and_nothing_is_lost(report: Path) -> None:
    told = json.loads((report.parent / "told.json").read_text())
    assert told["problems"] == []
    assert list(told["schemes"]) == list(ROWS)
    deliveries = {label: row["deliveries"] for label, row in told["schemes"].items()}
    assert len(set(deliveries.values())) == 1
    assert deliveries["flooding"] > 0
    for label in ROWS:
        for measure in MEASURES:
            assert told["schemes"][label][measure] == pytest.approx(means(report, label, measure))


def test_rows_that_no_workload_leaves_within_the_limits_are_not_run_elsewhere(report: Path) -> None:
    varied = {row["scheme"] for row in results(report) if row["point"]}
    lost = {"PopSub direct", "PopSub gossip", "Kyra", "unicast", "GRAPE", "best places"}
    assert not varied & lost
    assert {"flooding", "subscription forwarding", "advertisement forwarding"} <= varied
    assert "Without the rows that the limits rule out" in (report / "index.html").read_text()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_page_in_a_browser(report: Path) -> None:
    from playwright.sync_api import sync_playwright

    said: list[str] = []
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page()
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("request", lambda request: asked.append(request.url))
            page.goto((report / "index.html").as_uri())
            assert page.inner_text("h1") == "Tiny & <quoted>"
            page.wait_for_selector("#vary-plot svg")
            told = json.loads((report.parent / "told.json").read_text())
            assert page.inner_text("#answer").startswith(f"Run {told['best']}: ")
            check_table(page, report)
            check_pictures(page, report)
            page.set_viewport_size({"width": 390, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            page.focus("summary:text-is('What the columns mean')")
            page.keyboard.press("Enter")
            assert page.is_visible("dd:text-is('false sends per publication')")
            page.emulate_media(color_scheme="dark")
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
            page.emulate_media(color_scheme="light")
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
            bare = browser.new_context(java_script_enabled=False).new_page()
            bare.goto((report / "index.html").as_uri())
            assert len(bare.query_selector_all("#measures tbody tr")) == len(ROWS) + 1
        finally:
            browser.close()
    assert said == []
    assert len(asked) == 1


def check_table(page: Any, report: Path) -> None:
    cells = page.eval_on_selector_all(
        "#measures tr:not(.least) td[data-measure]:not([data-measure=times_least])",
        "cells => cells.map(c => [c.parentNode.dataset.label, c.dataset.measure,"
        " Number(c.dataset.value)])",
    )
    assert len(cells) == len(ROWS) * len(MEASURES)
    for label, measure, value in cells:
        assert value == pytest.approx(means(report, label, measure)), (label, measure)
    times = page.eval_on_selector_all(
        "#measures td[data-measure=times_least]", "cells => cells.map(c => Number(c.dataset.value))"
    )
    assert min(times) == times[-1] == 1  # the least possible itself
    page.select_option("#table-mode", "difference")
    assert page.inner_text("#measures tr.baseline [data-measure=messages] small") == "+0%"
    assert not page.is_visible("#measures [data-measure=hops] >> nth=0")
    page.check("#all-measures")
    assert page.is_visible("#measures [data-measure=hops] >> nth=0")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.uncheck("#all-measures")
    box = page.query_selector("#measures [data-measure=duplicated]").bounding_box()
    assert box["x"] + box["width"] <= 1440
    order = "[...document.querySelectorAll('#measures tbody tr')].map(row => row.dataset.label)"
    for direction in (1, -1):
        page.focus("#measures button[data-key=messages]")
        page.keyboard.press("Enter")
        sorted_by = [means(report, label, "messages") for label in page.evaluate(order)
                     if label in ROWS]  # fmt: skip
        assert sorted_by == sorted(sorted_by, reverse=direction < 0)


def check_pictures(page: Any, report: Path) -> None:
    def loads(side: str) -> list[float]:
        code = f"[...document.querySelectorAll('#{side}-plot circle')].map(c => +c.dataset.load)"
        drawn: list[float] = page.evaluate(code)
        return drawn

    page.select_option("#left-scheme", label="flooding")
    page.select_option("#right-scheme", label="BeaConvey")
    flooding = loads("left")
    assert loads("right") != flooding
    assert sum(flooding) / 12 == pytest.approx(
        float(next(r for r in results(report) if r["scheme"] == "flooding")["stress_mean"]),
        rel=1e-3,
    )
    page.select_option("#trade-x", "state_mean")
    page.select_option("#trade-y", "traffic")
    label = page.get_attribute("#trade-plot svg", "aria-label")
    assert label == f"{MEASURES['traffic']} against {MEASURES['state_mean']}"
    assert len(page.query_selector_all("#trade-plot circle")) == len(ROWS)
    page.select_option("#vary", label="brokers")
    page.select_option("#vary-measure", "messages")
    titles = page.eval_on_selector_all(
        "#vary-plot circle title", "all => all.map(title => title.textContent)"
    )
    assert len([title for title in titles if title.startswith("flooding: ")]) == 2
    grey = "#load-plot polyline[data-label='iScribe']"
    assert "chosen" not in page.get_attribute(grey, "class")
    page.click("#legend button:text-is('iScribe')")
    assert "chosen" in page.get_attribute(grey, "class")
    assert page.get_attribute("#legend button:text-is('iScribe')", "aria-pressed") == "true"
    for plot in ("load", "delay"):
        assert page.query_selector(f"#{plot}-plot polyline.least"), plot
    page.dispatch_event("#delay-plot polyline[data-label='iScribe']", "click")  # and back again
    assert page.get_attribute("#legend button:text-is('iScribe')", "aria-pressed") == "false"
    dot = "#trade-plot circle[data-label='iScribe']"
    stroke = f'getComputedStyle(document.querySelector("{dot}")).stroke'
    before = page.evaluate(stroke)
    page.hover(dot, force=True)
    assert page.evaluate(stroke) != before
    page.emulate_media(media="print", color_scheme="dark")  # says what it shows, on white paper
    assert page.is_visible("#left-scheme")
    assert not page.is_visible("#table-mode")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.emulate_media(media="null", color_scheme="null")
    assert (report / "index.html").stat().st_size < 1_500_000


def test_bad_rows_are_counted_and_a_failing_scheme_does_not_sink_the_others(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "w.toml").write_text(FILES)
    (tmp_path / "s.csv").write_text(
        "broker,client,filter\n0,a,price > 1\n9,b,price > 1\n3,c,price >\n4,d,price < 6\n"
    )
    rows = "".join(PUBLICATION.format(n=n % 5) for n in range(10))
    (tmp_path / "p.csv").write_text("time,broker,publisher,attributes\n" + rows + "x,y\n")
    code, out, err = compare(str(tmp_path / "w.toml"), "-o", str(tmp_path / "out"))
    assert code == 0, err
    assert "bad rows left out: 3," in out
    assert "! Scribe failed: no filter names a value of 'class'" in out
    page = (tmp_path / "out" / "index.html").read_text()
    assert "3 rows of the files could not be used" in page
    with (tmp_path / "out" / "quarantine.csv").open(newline="") as file:
        told = list(csv.DictReader(file))
    assert [Path(row["where"].split(": ")[0]).name for row in told] == [
        "s.csv:3",
        "s.csv:4",
        "p.csv:12",
    ]
    assert told[0]["reason"] == "unknown broker '9'"
    # Each replicate has half of the ten publications and sets the first fifth of them apart:
    # prices 0, 1, 1, 2 and 3, 3, 4, 4 are judged.
    judged = [row for row in results(tmp_path / "out") if row["scheme"] == "flooding"]
    assert [row["deliveries"] for row in judged] == ["5.0", "8.0"]


def test_in_bulk_the_figures_are_those_of_a_simulation(spark: Any, tmp_path: Path) -> None:
    draw = random.Random(5)
    with (tmp_path / "s.jsonl").open("w") as file:
        for n in range(60):
            wish = f"kind = '{draw.choice('abcd')}' AND x >= {draw.choice([0, 3, 6])}"
            said = {"id": f"s{n}", "broker": str(draw.randrange(9)), "client": f"c{n}"}
            file.write(json.dumps(said | {"filter": wish}) + "\n")
    with (tmp_path / "p.jsonl").open("w") as file:
        for n in range(40):
            content = {"kind": draw.choice("abcd"), "x": draw.randint(0, 9)}
            said = {"id": str(n), "broker": str(n % 3), "publisher": f"p{n % 3}"}
            file.write(json.dumps(said | {"time_us": n * 10**6, "attributes": content}) + "\n")
    (tmp_path / "c.toml").write_text(
        'seed = 2\n[overlay]\nkind = "wide_area"\nbrokers = 9\n'
        '[workload]\nsubscriptions = "s.jsonl"\npublications = "p.jsonl"\n'
    )
    words = [str(tmp_path / "c.toml"), "--bulk", "-o", str(tmp_path / "out"), "--json"]
    code, out, err = compare(*words)
    assert code == 0, out + err
    told = json.loads(out)
    assert list(told["schemes"]) == list(bulk.ABLE)
    assert (tmp_path / "out" / "index.html").stat().st_size < 1_500_000
    settings = tomllib.loads((tmp_path / "c.toml").read_text())
    for label, scheme in bulk.ABLE.items():
        scenario = from_dict({**settings, "scheme": scheme}, "c.toml", tmp_path)
        result = run(scenario)
        figures = measured(result, links_of(scenario.overlay), 10.0)
        for measure in MEASURES:
            if not measure.startswith("delay"):
                assert told["schemes"][label][measure] == pytest.approx(figures[measure]), (
                    label, measure,
                )  # fmt: skip
        delays = sorted(d[3] - result.published_us[d[0]] for d in result.deliveries)
        nearest = delays[-(-len(delays) * 90 // 100) - 1] / 1000
        assert told["schemes"][label]["delay_p90_ms"] == pytest.approx(nearest)


def test_nothing_usable_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(FILES)
    (tmp_path / "s.csv").write_text("broker,client,filter\n9,b,price > 1\n")
    (tmp_path / "p.csv").write_text("time,broker,publisher,attributes\n")
    with pytest.raises(InputError, match=r"no usable subscription; the first bad row: .*'9'"):
        compare(str(tmp_path / "w.toml"), "-o", str(tmp_path / "out"))


def test_wrong_settings_are_told(tmp_path: Path) -> None:
    for text, complaint in (
        ('schemes = ["floding"]', "unknown scheme 'floding'"),
        ('matters = "beauty"', "matters is 'beauty'"),
        ('baseline = "x"', "baseline is 'x'"),
        ("replicates = 1", "replicates is 1"),
        ("", "overlay is missing"),
    ):
        (tmp_path / "w.toml").write_text(text)
        with pytest.raises(InputError, match=complaint):
            compare(str(tmp_path / "w.toml"), "-o", str(tmp_path / "out"))


def test_a_killed_comparison_goes_on_and_ends_with_the_same_numbers(
    spark: Any, tmp_path: Path
) -> None:
    few = 'schemes = ["flooding", "Kyra", "Scribe", "GRAPE", "unicast"]\n'
    workload, killed, whole = tmp_path / "w.toml", tmp_path / "killed", tmp_path / "whole"
    workload.write_text(few + "replicates = 5\nseed = 3\n" + TINY[TINY.index("[overlay]") :])
    command = [sys.executable, "-c", "from postroad.cli import main; main()", "compare"]
    command += [str(workload), "-o", str(killed), "--master", "local[2]"]
    going = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    finished = killed / "sweep" / "runs.finished"
    try:
        until = time.monotonic() + 200
        while len(list(finished.glob("*.parquet"))) < 5:
            assert time.monotonic() < until, "the comparison does not get on"
            assert going.poll() is None, "it ended too early"
            time.sleep(0.02)
    finally:
        os.killpg(going.pid, signal.SIGKILL)
        going.wait()
    assert not (killed / "results.csv").exists()
    for folder in (killed, whole):
        code, _, err = compare(str(workload), "-o", str(folder))
        assert code == 0, err
    assert (killed / "results.csv").read_bytes() == (whole / "results.csv").read_bytes()


# From a comparison to a running network.


def init(report: Path, *words: str) -> dict[str, Any]:
    words = ("network", "init", str(report), "--json", *words)
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def free_run(count: int) -> int:
    """The first of so many ports in a row that nobody has."""
    while True:
        first = free_ports(1)[0]
        try:
            for port in range(first, first + count):
                with socket.socket() as made:
                    made.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


async def talk(scenario: Scenario, network: Network) -> None:
    """The workload of a scenario by real clients, each publication after the one before."""
    ports = [network.addresses[network.number(name)].mqtt for name in scenario.overlay.names]
    async with AsyncExitStack() as stack:
        for interest in scenario.workload.subscriptions:
            client = Client("127.0.0.1", ports[interest.broker], client_id=interest.id)
            await stack.enter_async_context(client)
            await client.subscribe("quote", where=str(interest.filter))
        publishers: dict[str, Client] = {}
        for posting in scenario.workload.postings:
            if posting.publisher not in publishers:
                client = Client("127.0.0.1", ports[posting.broker], client_id=posting.publisher)
                publishers[posting.publisher] = await stack.enter_async_context(client)
            content = {name: v for name, v in posting.attributes.items() if name != "class"}
            payload = json.dumps(content).encode()
            await publishers[posting.publisher].publish("quote", payload, qos=1)


def carried(network: Network) -> int:
    """Messages with publications that brokers have received from each other."""
    kinds = carrying()
    return sum(
        count
        for row in launch.status(network).values()
        if row is not None
        for link in row["links"].values()
        for kind, count in link["received"].items()
        if kind in kinds
    )


@pytest.mark.parametrize("row", [None, "best mix"], ids=["verdict", "mix"])
def test_a_row_becomes_a_network_that_does_as_predicted(
    report: Path, tmp_path: Path, row: str | None
) -> None:
    """Through the commands that a comparison ends with: `network init`, `network up`."""
    path = tmp_path / "network.toml"
    words = [] if row is None else ["--row", row]
    facts = init(report, *words, "-o", str(path), "--port", str(free_run(36)))
    label = facts["row"]
    assert facts["messages"] == pytest.approx(means(report, label, "messages"))
    _, _, scenario = deploy.read(report, label)
    network = load(path)
    assert network.scheme == scenario.scheme
    assert row is not None or network.store is not None
    counts = [-1]

    def settled() -> bool:
        counts.append(carried(network))
        return counts[-1] == counts[-2]

    try:
        done = CliRunner().invoke(cli, ["network", "up", str(path)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        asyncio.run(asyncio.wait_for(talk(scenario, network), 300))
        wait_for(settled, 60)
    finally:
        CliRunner().invoke(cli, ["network", "down", str(path)], catch_exceptions=False)
    first = next(r for r in results(report) if r["scheme"] == label and not r["point"])
    predicted = float(first["messages"]) * len(scenario.workload.postings)
    assert counts[-1] > 0
    assert counts[-1] == pytest.approx(predicted, rel=0.05)


@pytest.mark.parametrize("row", ["Kyra", "Scribe", "GRAPE"])
def test_every_kind_of_row_is_a_network_that_loads(report: Path, tmp_path: Path, row: str) -> None:
    path = tmp_path / "network.toml"
    facts = init(report, "--row", row, "-o", str(path))
    network = load(path)
    _, _, scenario = deploy.read(report, row)
    assert network.scheme == scenario.scheme
    assert network.config == scenario.config
    assert network.relocation_config == scenario.relocation_config
    assert (network.store is not None) is False
    assert sorted(network.names) == sorted(scenario.overlay.names)
    assert (len(facts["files"]) == 2) is (row != "GRAPE")


def test_without_a_row_it_is_the_verdict(report: Path, tmp_path: Path) -> None:
    told = json.loads((report.parent / "told.json").read_text())
    assert init(report, "-o", str(tmp_path / "network.toml"))["row"] == told["best"]
    assert f"**{told['best']}**".strip("*") in told["verdict"]


def test_what_would_change_is_said_with_the_steps(report: Path, tmp_path: Path) -> None:
    base, other = tmp_path / "base.toml", tmp_path / "other.toml"
    init(report, "--row", "subscription forwarding", "-o", str(base))
    same = init(
        report, "--row", "subscription forwarding", "-o", str(other), "--against", str(base)
    )
    assert (same["differences"], same["steps"]) == ([], [])
    facts = init(
        report, "--row", "advertisement forwarding + covering", "-o", str(other), "--against",
        str(base), "--force",
    )  # fmt: skip
    assert "scheme: subscription_forwarding → advertisement_forwarding" in facts["differences"]
    assert "covering: default → True" in facts["differences"]
    assert facts["steps"][0].startswith(f"postroad network down {base}")
    assert facts["steps"][1] == f"postroad network up {other}"
    lines = other.read_text()
    init(report, "--row", "subscription forwarding", "-o", str(other), "--force")
    assert lines != other.read_text()


def test_wrong_words_are_refused(report: Path, tmp_path: Path) -> None:
    for words, what in (
        (["--row", "nobody"], "--row is 'nobody'"),
        (["--port", "65530"], "12 brokers need 3 ports each"),
    ):
        with pytest.raises(InputError, match=what):
            init(report, "-o", str(tmp_path / "n.toml"), *words)
    (tmp_path / "there.toml").write_text("")
    with pytest.raises(InputError, match="is there already"):
        init(report, "-o", str(tmp_path / "there.toml"))
    with pytest.raises(InputError, match="cannot read"):
        init(tmp_path, "-o", str(tmp_path / "n.toml"))
