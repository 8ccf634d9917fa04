"""Watching traces: the stream's tables against one batch over the same files and a plain count."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import networks
from live_harness import Processes, wait_for, write_network
from postroad.cli import cli
from postroad.errors import InputError
from postroad.filters import parse
from postroad.live.client import Client
from postroad.overlay import Overlay
from postroad.pipeline import run, store, watch
from postroad.pipeline.run.batches import merged
from postroad.pipeline.schemas import QUARANTINE, WATCH_SEEN, WATCH_STOPS
from postroad.routing import kyra, mbr
from postroad.sim.facts import carrying
from postroad.sim.run import run as simulate
from postroad.sim.scenario import Scenario
from postroad.sim.tracing import Tracing
from postroad.traces.files import Files, read
from postroad.traces.schema import Recording, Row
from postroad.workloads.model import Interest, Posting, Workload

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
WINDOW_US, WATERMARK_US = 10_000, 60_000_000
TIMES = {"window_us": WINDOW_US, "trigger_us": 1_000_000, "watermark_us": WATERMARK_US}
GOOD = '{"trace_id":"run","broker":"B","life":1,"sequence":%d,"kind":"end","time_us":5}'
BAD = {
    '{"trace_id":"run","broker":': "not one JSON object",
    GOOD % 1 + GOOD % 2: "not one JSON object",
    GOOD % 1 + "," + GOOD % 2: "not one JSON object",
    GOOD % 1 + " and more": "not one JSON object",
    "[1]": "not one JSON object",
    '{"trace_id":"run","broker":"B","life":1,"kind":"end","time_us":5}': "sequence is missing",
    (GOOD % 1).replace("end", "finish"): "kind is unknown",
    (GOOD % 1).replace(":5", ":5.5"): "time_us is not a whole number",
    (GOOD % 1).replace(":5", ":true"): "time_us is not a whole number",
    (GOOD % 1).replace(":5}", ':"x","bytes":"y"}'): (
        "time_us is not a whole number; bytes is not a whole number"
    ),
}


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Traces of a simulated run in eight files, some rows and one file of them twice, some bad."""
    folder = tmp_path_factory.mktemp("traces")
    draw = random.Random(5)
    scenario = networks.scenario(draw, "subscription_forwarding", None)
    recording = Recording(str(folder), file_bytes=1)
    tracing = Tracing(scenario, "run", Recording(""))
    simulate(scenario, tracing=tracing)
    rows, files = tracing.rows, Files(folder, "net", recording, 0)
    assert {"publish", "send", "receive", "deliver", "stop"} <= {row.kind for row in rows}
    for part in range(7):
        files.write(rows[part::7], 0)  # out of order: each file has rows of all times
    files.write(rows[:50], 0)
    shutil.copy(folder / "traces-net-2.jsonl", folder / "traces-copy-1.jsonl")
    with (folder / "traces-net-3.jsonl").open("a") as file:
        file.write("\n" + "".join(f"{line}\n" for line in BAD))
    return folder


def arrived(traces, folder, *numbers):
    """Some of the files, put into a folder as brokers do."""
    folder.mkdir(exist_ok=True)
    names = [f"traces-net-{number}.jsonl" for number in numbers]
    for name in names or [path.name for path in traces.iterdir()]:
        shutil.copy(traces / name, folder / f".{name}")
        (folder / f".{name}").rename(folder / name)
    return str(folder)


def plain(frame):
    return sorted((tuple(sorted(row.asDict().items())) for row in frame.collect()), key=str)


@pytest.fixture(scope="module")
def batch(spark, traces):
    """All tables by one batch over all files."""
    totals = added_up(spark, store.read_lines(spark, [str(traces)]), WINDOW_US)
    stages = watch.stages(WINDOW_US).items()
    tables = {name: plain(stage(totals).drop("batch")) for name, stage in stages}
    tables["watch_alternatives"] = plain(priced(totals).drop("batch"))
    return {**tables, "watch_advice": plain(watch.advice(priced(totals)).drop("batch"))}


def added_up(spark, lines, window_us):
    """The totals of lines, each row once."""
    nothing = spark.createDataFrame([], WATCH_SEEN)
    events = watch.distinct(watch.events(watch.judged(lines), window_us), nothing)
    return watch.as_of(watch.totals(watch.facts(events)), 0, None).localCheckpoint()


def priced(totals):
    networks = {row["trace_id"]: row["detail"] for row in watch.networks(totals).collect()}
    told = totals.select(*watch.OF_BATCH).toArrow()
    return watch.alternatives(totals, networks, watch.filters(watch.standing({}, told)), 0)


def as_watched(spark, folder):
    return {name: plain(run.watched(spark, folder, name)) for name in watch.TABLES}


def test_files_that_arrive_between_calls_give_what_one_batch_gives(spark, traces, batch, tmp_path):
    out = str(tmp_path / "out")
    for numbers in ([3, 1], []):  # one batch, then two
        source = arrived(traces, tmp_path / "source", *numbers)
        facts = run.watch(source, out, run.Job(), once=True, files_max=4, **TIMES)
        assert facts["late"] == 0
    assert as_watched(spark, out) == batch
    again = run.watch(source, out, run.Job(), once=True, **TIMES)
    assert again["rows"] == 0
    assert as_watched(spark, out) == batch
    bad = store.read_batches(spark, f"{out}/quarantine", schema=QUARANTINE).collect()
    first = len((traces / "traces-net-3.jsonl").read_text().splitlines()) - len(BAD) + 1
    assert sorted((row["line"], row["raw"], row["reason"]) for row in bad) == [
        (first + place, line, why) for place, (line, why) in enumerate(BAD.items())
    ]
    assert {row["file"] for row in bad} == {f"{source}/traces-net-3.jsonl"}
    with pytest.raises(InputError, match="window_us was 10000 and is 20000"):
        run.watch(source, out, run.Job(), once=True, **{**TIMES, "window_us": 20_000})


def test_tables_are_what_a_plain_count_of_the_rows_gives(traces, batch):
    rows, _ = read(traces)
    counts, links, classes = Counter(), Counter(), Counter()
    delays, vectors, stops = defaultdict(list), Counter(), Counter()
    for row in rows:
        if row.time_us < 0:
            continue
        window = row.time_us // WINDOW_US * WINDOW_US
        counts[window, row.broker, row.kind] += 1
        if row.kind in ("send", "receive"):
            ends = (row.broker, row.peer) if row.kind == "send" else (row.peer, row.broker)
            links[(window, *ends, row.kind)] += 1
        if row.kind == "publish":
            classes[window, row.attributes.partition('"class":"')[2].partition('"')[0]] += 1
        if row.kind == "stop":
            stops[window, row.broker, row.reason] += 1
        if row.kind == "deliver":
            delays[window, row.broker].append(row.time_us - row.published_us)
            vectors[window, row.publisher, row.broker] += 1
    tables = {name: [dict(row) for row in found] for name, found in batch.items()}
    kinds = {"publications": "publish", "sends": "send", "receives": "receive",
             "deliveries": "deliver", "stops": "stop"}  # fmt: skip
    assert tables["watch_brokers"]
    assert {row["scheme"] for row in tables["watch_brokers"]} == {"subscription_forwarding"}
    for row in tables["watch_brokers"]:
        for name, kind in kinds.items():
            assert row[name] == counts.pop((row["window_us"], row["broker"], kind), 0)
        own = sorted(delays[row["window_us"], row["broker"]])
        if own:
            assert row["delay_us_mean"] == pytest.approx(sum(own) / len(own))
            below, above = own[int(0.9 * (len(own) - 1))], own[-int(0.1 * (len(own) - 1)) - 1]
            assert 0.99 * below - 1e-6 <= row["delay_us_p90"] <= 1.01 * above + 1e-6
        else:
            assert row["delay_us_p50"] is None
    assert not {kind for _, _, kind in counts} & set(kinds.values())
    for row in tables["watch_links"]:
        key = row["window_us"], row["sender"], row["receiver"]
        assert row["sends"] == links.pop((*key, "send"), 0)
        assert row["receives"] == links.pop((*key, "receive"), 0)
    assert not links
    assert {
        (row["window_us"], row["class"]): row["publications"] for row in tables["watch_classes"]
    } == classes
    assert {
        (row["window_us"], row["broker"], row["reason"]): row["stops"]
        for row in tables["watch_stops"]
    } == stops
    assert {
        (row["window_us"], row["publisher"], row["broker"]): row["deliveries"]
        for row in tables["watch_publishers"]
        if row["deliveries"]
    } == vectors


def carried(scenario):
    """The messages with publications of a simulated run."""
    kinds = carrying()
    links = simulate(scenario).links
    return sum(n for link in links for kind, n in link.messages.items() if kind in kinds)


def relinked(overlay, row):
    """The overlay with one link instead of another."""
    old, new = (
        sorted(overlay.names.index(name) for name in row[which].split("-"))
        for which in ("now", "instead")
    )
    ends = [new if sorted(pair) == old else pair for pair in overlay.ends.tolist()]
    assert ends != overlay.ends.tolist()
    return replace(overlay, ends=np.array(ends))


def test_advice_saves_what_it_says(spark):
    """Networks with a publisher each: with the change, a simulation saves as much."""
    scenarios, lines = {}, []
    for seed in range(14):
        draw = random.Random(seed)
        made = networks.overlay(draw)
        brokers = made.brokers_count
        far = [Interest("far", brokers - 1, "c", parse("TRUE"))] if seed % 2 else []
        wanted = [
            Interest(f"s{n}", draw.randrange(brokers), "c", networks.filter(draw))
            for n in range(draw.randint(1, 6))
        ]
        home = draw.randrange(brokers)
        postings = [
            Posting(w * 1_000_000 + n * 10_000, home, "p", f"{w}-{n}", networks.attributes(draw))
            for w in range(4)
            for n in range(20)
        ]
        workload = Workload(tuple(wanted + far), (), tuple(postings))
        scenario = Scenario("subscription_forwarding", made, workload)
        tracing = Tracing(scenario, f"run{seed}", Recording(""))
        simulate(scenario, tracing=tracing)
        scenarios[f"run{seed}"] = scenario
        lines += [("f", 0, msgspec.json.encode(row).decode()) for row in tracing.rows]
    frame = spark.createDataFrame(lines, "file string, block bigint, text string")
    rows = watch.advice(priced(added_up(spark, frame, 1_000_000)))
    rows = rows.where("window_us = 2000000 AND windows = 3").collect()
    advised = {"move": 0, "switch": 0, "link": 0}
    for row in rows:
        scenario = scenarios[row["trace_id"]]
        some = [one for one in scenario.workload.postings if one.time_us < 3_000_000]
        if row["action"] == "move":
            there = scenario.overlay.names.index(row["instead"])
            other = [replace(one, broker=there) for one in some]
            instead = scenario
        elif row["action"] == "link":
            instead = replace(scenario, overlay=relinked(scenario.overlay, row))
            other = some
        else:
            other, instead = some, replace(scenario, scheme=row["instead"], config=None)
        now = carried(replace(scenario, workload=replace(scenario.workload, postings=tuple(some))))
        then = carried(replace(instead, workload=replace(scenario.workload, postings=tuple(other))))
        assert row["messages"] == now
        assert row["saving"] == now - then
        assert row["saving_low"] < row["saving"] < row["saving_high"]
        if row["advised"]:
            assert now - then > 0.1 * now
            advised[row["action"]] += 1
    assert min(advised.values()) > 0
    assert sum(advised.values()) < len(rows)


def watched_windows(spark, scenarios):
    """All alternatives of the third window of each simulated network."""
    lines = []
    for name, scenario in scenarios.items():
        tracing = Tracing(scenario, name, Recording(""))
        simulate(scenario, tracing=tracing)
        lines += [("f", 0, msgspec.json.encode(row).decode()) for row in tracing.rows]
    frame = spark.createDataFrame(lines, "file string, block bigint, text string")
    return priced(added_up(spark, frame, 1_000_000))


def test_planned_schemes_parameters_and_further_links_are_priced_as_simulated(spark):
    """From the subscriptions that the traces tell. Without one of them nothing is priced."""
    draw = random.Random(3)
    names = tuple("ABCDEFGHIJ")
    links = np.array([(max(0, n - 1 - n % 2), n) for n in range(1, 10)])
    overlay = Overlay(names, links, np.array([draw.randint(2, 9) * 1000 for _ in links]))
    wanted = tuple(
        Interest(f"s{n:02}", draw.randrange(10), "c", parse(f"class = 'c{n % 5}' AND x > {n}"))
        for n in range(20)
    )
    postings = tuple(
        Posting(w * 1_000_000 + n * 10_000, n % 4, f"p{n % 4}", f"{w}-{n}",
                {"class": f"c{draw.randrange(6)}", "x": draw.randrange(25)})
        for w in range(4) for n in range(25)
    )  # fmt: skip
    offers = tuple(Interest(f"p{n}", n, f"p{n}", parse("TRUE")) for n in range(4))
    workload = Workload(wanted, offers, postings)
    configs = {"kyra": kyra.Config(clique_ms=20.0, attributes="x"), "mbr": mbr.Config(groups=8)}
    schemes = ("subscription_forwarding", "kyra", "mbr", "ideal_multicast")
    scenarios = {
        scheme: Scenario(scheme, overlay, workload, configs.get(scheme)) for scheme in schemes
    }
    rows = watched_windows(spark, scenarios).where("window_us = 2000000").collect()
    now = [one for one in postings if one.time_us // 1_000_000 == 2]
    seen = Counter()
    for row in rows:
        scenario = replace(scenarios[row["trace_id"]], workload=replace(workload, postings=now))
        instead = scenario
        if row["action"] == "switch":
            if row["instead"] != row["now"]:
                instead = replace(scenario, scheme=row["instead"], config=None)
        elif row["action"] == "parameter":
            name, _, value = row["instead"].partition("=")
            changed = replace(scenario.config, **{name: int(value)})
            instead = replace(scenario, config=changed)
        elif row["action"] == "add" and row["instead"] != "none":
            new = [names.index(name) for name in row["instead"].split("-")]
            wider = replace(
                overlay,
                ends=np.concatenate([links, [new]]),
                latency_us=np.append(overlay.latency_us, round(np.median(overlay.latency_us))),
            )
            instead = replace(scenario, overlay=wider)
        elif row["action"] != "add":
            continue
        assert row["messages"] == carried(scenario)
        assert row["saving"] == row["messages"] - carried(instead), row
        seen[row["trace_id"], row["action"], row["saving"] > 0] += 1
    every = {row["instead"] for row in rows if row["action"] == "switch"}
    assert {"kyra", "mbr", "scribe", "iscribe", "beaconvey"} <= every
    assert seen["ideal_multicast", "add", True]
    assert seen["kyra", "parameter", True] or seen["mbr", "parameter", True]
    assert {row["trace_id"] for row in rows if row["action"] == "parameter"} == {"kyra", "mbr"}


def test_schemes_are_not_planned_by_subscriptions_that_do_not_explain_the_deliveries(spark):
    scenario = networks.scenario(random.Random(5), "subscription_forwarding", None)
    tracing = Tracing(scenario, "run", Recording(""))
    simulate(scenario, tracing=tracing)
    lines = [
        ("f", 0, msgspec.json.encode(row).decode())
        for row in tracing.rows
        if row.kind != "subscribe"
    ]
    frame = spark.createDataFrame(lines, "file string, block bigint, text string")
    rows = priced(added_up(spark, frame, 1_000_000)).collect()
    assert rows
    assert not {row["instead"] for row in rows} & {"kyra", "mbr", "scribe"}


def test_subscriptions_stand_until_they_end_or_their_broker_starts_anew():
    columns = ("view", "trace_id", "broker", "life", "publication", "order_high", "detail")

    def told(*rows):
        return pa.table([list(column) for column in zip(*rows, strict=True)], names=list(columns))

    known = watch.standing(
        {},
        told(
            ("subscription", "net", "A", 1, "s", 5, "x > 1"),
            ("subscription", "net", "A", 1, "s", 3, None),
            ("subscription", "net", "A", 1, "t", 4, "x > 2"),
            ("subscription", "net", "B", 1, "u", 2, "x > 3"),
        ),
    )
    assert watch.filters(known) == {"net": (("A", "x > 1"), ("A", "x > 2"), ("B", "x > 3"))}
    known = watch.standing(known, told(("subscription", "net", "A", 1, "t", 6, None)))
    known = watch.standing(known, told(("subscription", "net", "A", 1, "t", 2, "x > 2")))
    assert watch.filters(known) == {"net": (("A", "x > 1"), ("B", "x > 3"))}
    known = watch.standing(known, told(("start", "net", "A", 2, None, 1, None)))
    assert watch.filters(known) == {"net": (("B", "x > 3"),)}
    many = [("subscription", "big", "A", 1, f"s{n}", n, "x > 1") for n in range(3000)]
    for some in (many[:1500], many[1500:], many[:1]):
        known = watch.standing(known, told(*some))
    assert len(known) < 10
    assert watch.filters(known) == {"net": (("B", "x > 3"),)}


def test_advice_waits_until_a_change_has_lasted(spark):
    """Deliveries that change sides every window, then stay."""
    rows, sequences = [], Counter()

    def add(broker, kind, time_us, **columns):
        sequences[broker] += 1
        row = Row("net", broker, 1, sequences[broker], kind, time_us, **columns)
        rows.append(("f", 0, msgspec.json.encode(row).decode()))

    for broker in "ABC":
        network = {"brokers": [*"ABC"], "links": [("A", "B"), ("B", "C")]}
        add(broker, "start", 0, detail=json.dumps({**network, "scheme": "subscription_forwarding"}))
    for window, side in enumerate("ACACCCC"):
        for number in range(50):
            time_us = window * 1_000_000 + number
            columns = {"publisher": "p", "publication": f"{window}-{number}"}
            add("B", "publish", time_us, attributes="{}", **columns)
            add("B", "send", time_us, peer=side, mechanism="publication", **columns)
            add(side, "receive", time_us, peer="B", mechanism="publication", **columns)
            add(side, "deliver", time_us, published_us=time_us, **columns)
    frame = spark.createDataFrame(rows, "file string, block bigint, text string")
    advice = watch.advice(priced(added_up(spark, frame, 1_000_000))).where("action = 'move'")
    said = [
        (row["window_us"] // 1_000_000, row["instead"], row["saving"])
        for row in advice.where("advised").orderBy("window_us").collect()
    ]
    assert said == [(5, "C", 150), (6, "C", 150)]


@pytest.mark.skipif("POSTROAD_KILLS" not in os.environ, reason="takes long: make kills")
def test_a_watch_that_is_killed_and_started_again_gives_the_same(spark, traces, batch, tmp_path):
    source, out = arrived(traces, tmp_path / "source"), tmp_path / "out"
    script = "from postroad.pipeline import run; run.watch(*{!r}, run.Job('local[2]'), {}, **{!r})"
    options = "once=True, files_max=1"
    killed = subprocess.Popen(
        [sys.executable, "-c", script.format((source, str(out)), options, TIMES)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not (out / "_facts" / "batch=2").exists():
            assert killed.poll() is None, "it ended before it was killed"
            time.sleep(0.01)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    assert len(store.batches(str(out / "watch_publishers"))) < 9
    facts = run.watch(source, str(out), run.Job(), once=True, files_max=1, **TIMES)
    assert facts["rows"]
    assert as_watched(spark, str(out)) == batch


def test_a_row_after_the_watermark_is_left_out_and_counted(spark, tmp_path):
    """95,000 closes the windows up to that of 45,000, for the next batch: two files are one."""
    times_us = [45_000, 95_000, 55_000, 47_000]
    windows = [(40_000, 1), (50_000, 1), (90_000, 1)]
    source, out = tmp_path / "source", str(tmp_path / "out")
    source.mkdir()
    row = '{"trace_id":"run","broker":"B","life":1,"sequence":%d,"kind":"stop","time_us":%d}\n'
    for number, time_us in enumerate(times_us):
        path = source / f"traces-B-{number}.jsonl"
        path.write_text(row % (number, time_us))
        os.utime(path, (number, number))  # the oldest is taken up first
    times = {**TIMES, "watermark_us": 50_000}
    facts = run.watch(str(source), out, run.Job(), once=True, files_max=2, **times)
    assert (facts["batches"], facts["rows"], facts["late"]) == (2, len(times_us), 1)
    counted = run.watched(spark, out, "watch_brokers").orderBy("window_us").collect()
    assert [(row["window_us"], row["stops"]) for row in counted] == windows


def test_files_that_only_the_brokers_see_are_fetched(spark, tmp_path):
    """Two real brokers, and a file with a bad line; what was fetched is not fetched again."""
    tables = '[traces]\nfolder = "traces"\nfile_s = 0.1\n'
    links = [("A", "B")]
    path = write_network(tmp_path, ["A", "B"], links, tables=tables, free=True)
    with Processes(path) as running:

        async def publish():
            async with (
                Client("127.0.0.1", running.mqtt("A"), client_id="feed") as feed,
                Client("127.0.0.1", running.mqtt("B"), client_id="desk") as desk,
            ):
                await desk.subscribe("quotes/#")
                for number in range(20):
                    await feed.publish(f"quotes/{number}", b"{}", qos=1)
                    await anext(aiter(desk))

        asyncio.run(asyncio.wait_for(publish(), 60))
        (tmp_path / "traces" / "traces-B-90.jsonl").write_text("{}\n" + GOOD % 1 + "\n")
        wait_for(lambda: "disconnect" in (recorded := texts(tmp_path)) and recorded, 60)
        out = str(tmp_path / "out")
        times = {**TIMES, "window_us": 60_000_000}
        run.watch(str(path), out, run.Job(), once=True, fetch=True, **times)
        (bad,) = store.read_batches(spark, f"{out}/quarantine", schema=QUARANTINE).collect()
        assert (bad["line"], bad["raw"]) == (1, "{}")
        assert bad["file"].endswith("/traces?file=90")
        again = run.watch(str(path), out, run.Job(), once=True, fetch=True, **times)
        assert again["quarantined"] == 1
        rows = run.watched(spark, out, "watch_brokers").collect()
        assert sum(row["publications"] for row in rows) == 20
        assert sum(row["deliveries"] for row in rows) == 20


def texts(folder):
    return "".join(path.read_text() for path in (folder / "traces").glob("traces-*.jsonl"))


def test_batches_become_one_folder(spark, tmp_path, monkeypatch):
    """Also by a compaction that is cut short after its commit, the rows stay the same."""
    monkeypatch.setattr(store, "COMPACT_BATCHES", 3)
    table, schema = str(tmp_path / "watch_stops"), WATCH_STOPS
    for batch in range(12):
        rows = [(window, "run", "B", "full", batch) for window in {batch // 2, batch // 3}]
        frame = spark.createDataFrame(rows, schema)
        store.write_batch(frame, table, batch)
        before = plain(run.watched(spark, str(tmp_path), "watch_stops"))
        if batch == 7:
            with monkeypatch.context() as cut:
                cut.setattr(store, "finish_compaction", lambda table: None)
                store.compact(table, batch - 1, partial(merged, spark, table))
            store.finish_compaction(table)
        store.compact(table, batch - 1, partial(merged, spark, table))
        assert plain(run.watched(spark, str(tmp_path), "watch_stops")) == before
    assert store.batches(table) == [8, 9, 10, 11]


def test_wrong_usage_is_told_in_one_line(tmp_path):
    network = tmp_path / "network.toml"
    network.write_text(
        'name = "n"\nscheme = "flooding"\n[brokers.A]\nmqtt = 1\nlink = 2\nhttp = 3\n'
    )
    (tmp_path / "old").mkdir()
    (tmp_path / "old/_watch.json").write_text('{"schema": 1}')
    for arguments, said in (
        ([str(tmp_path), "-o", str(tmp_path / "old")], "a watch of schema 1 was begun here"),
        ([str(tmp_path / "none")], "there is no folder"),
        ([str(network)], "the network records no traces"),
        ([str(tmp_path), "--watermark", "7s"], "a multiple of the window"),
        ([str(tmp_path), "--window", "5"], "'5' is no time"),
        ([str(tmp_path), "--fetch"], "is no network file"),
        ([str(network), "--apply"], "takes no orders"),
    ):
        out = str(tmp_path / "out")
        done = CliRunner().invoke(cli, ["pipeline", "watch", "-o", out, "--once", *arguments])
        assert done.exit_code != 0
        assert said in done.output + str(done.exception)
