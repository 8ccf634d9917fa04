"""`pipeline watch --apply` beside live brokers: how soon advice comes, and what it saves.

A chain of brokers with subscribers at both ends and most publishers at one. Advised is the saving
that `watch_advice` tells for the publishers that are then moved, per publication; realised is what
the links carry less per publication once all have moved. `make saving` runs it and prints figures.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from statistics import median

import pytest

from live_harness import Processes, write_network
from postroad.live.client import Client
from postroad.live.links import secret
from postroad.pipeline import run, store

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif("POSTROAD_SAVING" not in os.environ, reason="takes long: make saving"),
]
BROKERS, PUBLISHERS = 5, 8
EVERY_S = 0.02
WINDOW_US = TRIGGER_US = 5_000_000
SETTLE_S, AFTER_S = 15.0, 30.0
LIMIT_S = 240.0


def test_what_is_advised_is_saved(spark, tmp_path):
    names = [f"B{n}" for n in range(BROKERS)]
    path = write_network(
        tmp_path,
        names,
        list(itertools.pairwise(names)),
        top='secret = "network.secret"',
        tables='[traces]\nfolder = "traces"\nfile_s = 2.0',
        free=True,
    )
    secret.make(tmp_path / "network.secret")
    with Processes(path) as running:
        print(f"\n{BROKERS} brokers, {PUBLISHERS} publishers, trigger and windows 5 s, ", end="")
        print(f"load average {os.getloadavg()[0]:.1f} before")
        batches, settled_us = asyncio.run(watched(running, tmp_path / "out"))
    advised, realised = shown(str(tmp_path / "out"), batches, settled_us)
    assert realised >= 0.8 * advised > 0


async def watched(running, out):
    """Publish while it is watched, until publishers have moved and some time after."""
    port = [running.mqtt(f"B{n}") for n in range(BROKERS)]
    ended = threading.Event()
    batches = {}
    watching = threading.Thread(
        target=watch, args=(str(running.path), str(out), batches, ended), daemon=True
    )
    async with (
        Client("127.0.0.1", port[-1], client_id="desk") as desk,
        Client("127.0.0.1", port[0], client_id="log") as log,
    ):
        await desk.subscribe("quotes/#")
        await log.subscribe("quotes/feed1")  # which is as well where it is
        stop = asyncio.Event()
        drains = [asyncio.create_task(drained(client)) for client in (desk, log)]
        publishers = [
            asyncio.create_task(publish(f"feed{n}", port[-1 if n == 0 else 0], stop))
            for n in range(PUBLISHERS)
        ]
        watching.start()
        await until(lambda: any(facts["moves"] for _, facts in batches.values()))
        await asyncio.sleep(SETTLE_S)  # the moves, and windows that have both
        settled_us = int(time.time() * 1e6)
        await asyncio.sleep(AFTER_S)
        stop.set()
        await asyncio.gather(*publishers)
        for drain in drains:
            drain.cancel()
    stopped = time.time()  # brokers go on to say how they are: there is always another batch
    await until(lambda: max(at for at, _ in batches.values()) > stopped + 3 * TRIGGER_US / 1e6)
    ended.set()
    watching.join()
    return batches, settled_us


async def until(condition):
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.5)


async def drained(client):
    async for _ in client:
        pass


async def publish(name, port, stop):
    async with Client("127.0.0.1", port, client_id=name) as client:
        while not stop.is_set():
            await client.publish(f"quotes/{name}", b'{"price": 10}', qos=1)
            await asyncio.sleep(EVERY_S * PUBLISHERS)


def watch(path, out, batches, ended):
    run.watch(
        path,
        out,
        run.Job(),
        once=False,
        apply=True,
        window_us=WINDOW_US,
        trigger_us=TRIGGER_US,
        watermark_us=60_000_000,
        report=lambda facts: batches.update({facts["batch"]: (time.time(), facts)}),
        stopped=ended.is_set,
    )


def shown(out, batches, settled_us):
    """Print the figures; the saving per publication that was advised, and that there was."""
    moves = [row for row in store.rows_of(f"{out}/watch_moves") if row["why_not"] is None]
    first_us = max(row["window_us"] for row in moves)
    told = {
        row["publisher"]: row
        for row in store.rows_of(f"{out}/watch_advice")
        if row["advised"] and row["action"] == "move" and row["window_us"] == first_us
    }
    known = [told[row["publisher"]] for row in moves if row["publisher"] in told]
    saving, low, high = (
        sum(row[key] for row in known) for key in ("saving", "saving_low", "saving_high")
    )
    windows = {}  # the last batch that changed each, and its row
    for number in store.batches(f"{out}/watch_alternatives"):
        for row in store.rows_of(f"{out}/watch_alternatives/batch={number}"):
            if row["action"] == "switch" and row["instead"] == "flooding":
                windows[row["window_us"]] = number, row
    until_us = settled_us + int(AFTER_S * 1e6) - WINDOW_US
    before = [row for us, (_, row) in windows.items() if first_us - 2 * WINDOW_US <= us <= first_us]
    after = [row for us, (_, row) in windows.items() if settled_us <= us < until_us]
    # `messages` of an alternative are those that the window's publications took.
    now, then = (
        sum(row["messages"] for row in rows) / sum(row["publications"] for row in rows)
        for rows in (before, after)
    )
    published = sum(row["publications"] for row in before)
    advised = saving / published
    print(f"  {len(moves)} of {PUBLISHERS} publishers moved; messages per publication: {now:.2f} ")
    print(f"  in {len(before)} windows before, {then:.2f} in {len(after)} after")
    print(
        f"  advised saving {advised:.2f} per publication ({low / published:.2f} to "
        f"{high / published:.2f}), realised {now - then:.2f}: {(now - then) / advised:.0%}"
    )
    delays = sorted(
        batches[number][0] - (us + WINDOW_US) / 1e6
        for us, (number, _) in windows.items()
        if us > first_us + 3 * WINDOW_US and number in batches
    )
    took = sorted(facts["took_us"] / 1e6 for number, (_, facts) in batches.items() if number > 1)
    print(
        f"  from the end of a window to its last figures and advice: {median(delays):.1f} s "
        f"(median), {delays[-1]:.1f} s at most; batches took {median(took):.1f} s (median), "
        f"{took[-1]:.1f} s at most; load average {os.getloadavg()[0]:.1f} after"
    )
    return advised, now - then
