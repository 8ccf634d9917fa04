"""Every view of the dashboard in a real browser, on a running network with faults."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from live_harness import ROOT, Processes, free_ports, wait_for, write_network
from postroad.live.client import Client
from postroad.live.links import secret

CHROMIUM = shutil.which("chromium")
ADVICE = {  # as a watch would write it
    "window_us": 1, "trace_id": "test", "action": "move", "publisher": "roamer", "now": "A",
    "instead": "C", "windows": 3, "messages": 10.0, "saving": 5.0, "saving_low": 4.0,
    "saving_high": 6.0, "change_messages": 0, "advised": True,
}  # fmt: skip
COST = {"window_us": 1, "trace_id": "test", "scheme": "x", "sends": 4, "publications": 2}
EVIL = "<script>document.title='taken'</script>"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Four brokers in a ring, of which one link stands by."""
    folder = tmp_path_factory.mktemp("dashboard")
    secret.make(folder / "secret")
    links = [("A", "B"), ("B", "C"), ("C", "D"), ("A", "D")]
    top = 'secret = "secret"\nstore = "store"'
    traces = '[traces]\nfolder = "traces"\nfile_s = 0.5'
    path = write_network(folder, list("ABCD"), links, top=top, tables=traces, free=True)
    with Processes(path) as processes:
        yield processes


class Load:
    """Clients that publish and read until they are told to stop."""

    def __init__(self, running: Processes) -> None:
        self.running = running
        self.stop = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Load:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(30)

    async def _run(self) -> None:
        async with (
            Client("127.0.0.1", self.running.mqtt("A"), client_id="desk") as desk,
            Client("127.0.0.1", self.running.mqtt("B"), client_id=EVIL) as evil,
            Client("127.0.0.1", self.running.mqtt("A"), client_id="feed") as feed,
        ):
            await desk.subscribe("quotes/+", where="price > 10", qos=1)
            await evil.subscribe(f"quotes/{EVIL}", qos=1)
            n = 0
            while not self.stop.is_set():
                n += 1
                topic = f"quotes/{EVIL}" if n % 5 == 0 else "quotes/ibm"
                await feed.publish(topic, json.dumps({"price": n % 20}).encode(), qos=0)
                await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def address(running: Processes) -> Iterator[tuple[str, str]]:
    """Where the dashboard is, and the key to operate."""
    (port,) = free_ports(1)
    watched = running.path.parent / "watch"
    for table, row in (("watch_advice", ADVICE), ("watch_schemes", COST)):
        (watched / table / "batch=0").mkdir(parents=True)
        file = watched / table / "batch=0" / "part-0.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), file)
    command = [sys.executable, "-m", "postroad", "dashboard", str(running.path)]
    command += ["--port", str(port), "--operate", "--watch", str(watched)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = re.search(r"http://\S+", process.stdout.readline())
        key = process.stdout.readline().partition(": ")[2].strip()
        assert url is not None
        try:
            yield url[0], key
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def page(address: tuple[str, str]) -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    from playwright.sync_api import sync_playwright

    url, _ = address
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(60_000)
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url)
        yield page
        assert {*filter(lambda each: not each.startswith(url), asked)} == set()
        assert [text for text in problems if "the server responded with" not in text] == []
        browser.close()


def until(page: Any, holds: str) -> None:
    """Asked from outside: the page's own policy lets nobody evaluate text."""
    wait_for(lambda: page.evaluate(holds))


def opened(page: Any, view: str) -> None:
    page.click(f"#views a[href='#{view}']")
    page.wait_for_selector(f"#{view}:not([hidden])")


def test_every_view_on_a_network_with_faults(
    running: Processes, address: tuple[str, str], page: Any
) -> None:
    with Load(running):
        page.wait_for_selector("#map circle")
        assert page.locator("#map circle").count() == 4
        assert page.locator("#map line.standby").count() == 1
        until(page, "document.querySelector('#tiles').innerText.includes('4 of 4')")
        until(
            page,  # something is published
            "[...document.querySelectorAll('#tiles div')].some(d =>"
            " d.innerText.startsWith('published') && parseFloat(d.innerText.split('\\n')[1]) > 0)",
        )
        page.locator("#map g[role=button]").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#detail h3:has-text('Broker A')")
        _follow(page)
        _filter(page)
        _clients(page, address)
        _time(page)
        _advice(running, page)
    _fault(running, page)
    _phone(page)
    _stays_small(page, address[0])


def _follow(page: Any) -> None:
    opened(page, "follow")

    def listed() -> bool:
        page.click("#publications-form button")
        return bool(page.locator("#publications button.link").count())

    wait_for(listed)
    page.fill("#publications-form input", '"price":17')
    page.click("#publications-form button")
    row = page.locator("#publications tr:has-text('\"price\":17') button.link").first
    row.wait_for()
    page.fill("#follow-form [name=client]", "desk")
    row.click()
    page.wait_for_selector("#way .yes:has-text('desk: delivered')")
    page.fill("#follow-form [name=client]", EVIL)
    page.click("#follow-form button")
    page.wait_for_selector("#way p:has-text('topic differs'), #way p:has-text('delivered')")
    assert page.locator("#way-map text.time").count() >= 1
    assert page.title() != "taken"


def _filter(page: Any) -> None:
    opened(page, "filter")
    page.fill("#filter-form input", "price > 1000")
    page.click("#filter-form button")
    page.wait_for_selector("#verdict .no:has-text('value never seen')")
    assert page.locator("#verdict mark:has-text('price > 1000')").count() > 5
    page.fill("#filter-form input", "price >")
    page.click("#filter-form button")
    page.wait_for_selector("#trouble:not([hidden])")
    page.fill("#would-form [name=topic]", "quotes/ibm")
    page.fill("#would-form [name=payload]", '{"price": 12}')
    page.select_option("#would-form select", "C")
    page.click("#would-form button")
    page.wait_for_selector("#would p:has-text('delivered to 1 of 1 matching subscriptions')")


def _clients(page: Any, address: tuple[str, str]) -> None:
    opened(page, "clients")
    page.wait_for_selector("#found td:has-text('desk')")
    assert page.locator("#found td", has_text=EVIL).count() == 1
    assert page.locator("#found button").count() == 0  # one may look
    page.click("#me button:has-text('Operate')")
    page.fill("#login-form [name=password]", "not the key")
    page.click("#login-form button")
    page.wait_for_selector("#trouble:has-text('has a role')")
    page.fill("#login-form [name=password]", address[1])
    page.click("#login-form button")
    page.locator("#found tr", has_text=EVIL).locator("button").click()
    page.wait_for_selector("#confirm[open]")
    page.click("#confirm button[value=yes]")
    until(
        page,
        "![...document.querySelectorAll('#found tr')].some(r =>"
        " r.innerText.includes('script') && r.innerText.includes('127.0.0.1'))",
    )
    page.check("#search-form [value=subscriptions]")
    page.wait_for_selector("#found code:has-text('price > 10')")
    page.check("#search-form [value=topics]")
    page.wait_for_selector("#found code:has-text('quotes/ibm')")


def _time(page: Any) -> None:
    opened(page, "time")
    page.wait_for_selector("#minutes rect")
    until(page, "document.querySelector('#clock').textContent.includes('messages')")
    page.select_option("#replay-form [name=right]", "flooding")
    page.click("#replay-form button")
    page.wait_for_selector("#replay table")
    cells = page.locator("#replay table").first.locator("tr", has_text="missing").locator("td")
    assert cells.nth(1).inner_text() == cells.nth(2).inner_text() == "0"
    assert page.locator("#replay svg.map").count() == 3


def _advice(running: Processes, page: Any) -> None:
    """A publisher is advised to move, and moves when that is applied and confirmed."""
    left = threading.Event()

    async def roam() -> int:
        port = running.mqtt("A")
        async with Client("127.0.0.1", port, client_id="roamer") as roamer:
            while not left.is_set():
                await roamer.publish("elsewhere", b"{}", qos=1)
                await asyncio.sleep(0.05)
            return roamer.moves

    with ThreadPoolExecutor(1) as pool:
        moves = pool.submit(lambda: asyncio.run(roam()))
        try:
            wait_for(lambda: "roamer" in running.get_as_operator("A", "/clients?search=roamer"))
            opened(page, "advice")
            card = page.locator(".card.advised", has_text="Move roamer from A to C")
            card.locator("button").click()
            page.click("#confirm button[value=yes]")
            page.wait_for_selector("#applied td:has-text('Move roamer from A to C')")
            wait_for(lambda: "roamer" in running.get_as_operator("C", "/clients?search=roamer"))
        finally:
            left.set()
        assert moves.result(60) == 1


def _fault(running: Processes, page: Any) -> None:
    """A broker is killed: it is drawn as away, and the spare link takes over."""
    opened(page, "overview")
    running.running["C"].kill()
    page.wait_for_selector("#map g.away")
    until(page, "document.querySelector('#tiles').innerText.includes('3 of 4')")
    until(page, "document.querySelectorAll('#map line.standby').length === 0")
    page.locator("#map g.away").click()
    page.wait_for_selector("#detail .no:has-text('C does not answer')")
    running.running["C"].join()
    running.start("C")
    until(page, "document.querySelector('#tiles').innerText.includes('4 of 4')")


def _phone(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        for view in ("overview", "follow", "filter", "clients", "time", "advice"):
            opened(page, view)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
    page.set_viewport_size({"width": 1440, "height": 900})


def _stays_small(page: Any, url: str) -> None:
    """Twenty minutes of refreshes leave no more elements, and little more memory, than one does."""
    other = page.context.browser.new_page()
    other.clock.install()
    other.goto(url)
    other.wait_for_selector("#map circle")
    session = other.context.new_cdp_session(other)

    def size() -> tuple[int, float]:
        session.send("HeapProfiler.collectGarbage")
        used = session.send("Runtime.getHeapUsage")["usedSize"]
        return other.evaluate("document.querySelectorAll('*').length"), used / 1e6

    def minutes(count: int) -> None:
        for _ in range(count):
            with other.expect_response("**/api/overview"):
                other.clock.run_for(60_000)

    minutes(2)
    elements, used_mb = size()
    minutes(20)
    later, later_mb = size()
    for _ in range(10):  # what is under way, or was just compiled, is no leak: that would only grow
        if later_mb < used_mb + 1:
            break
        minutes(1)
        later, later_mb = size()
    assert later <= elements
    assert later_mb < used_mb + 1
    other.close()


def test_the_page_says_what_it_loads_and_nothing_else(address: tuple[str, str]) -> None:
    with urllib.request.urlopen(address[0]) as answer:
        text = answer.read().decode()
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert re.findall(r'(?:src|href)="(?!#)([^"]*)"', text) == [
        "/icon.svg", "/style.css", "/app.js", "/icon.svg",
    ]  # fmt: skip
    assert address[1] not in text


def test_prometheus_and_grafana_ask_for_metrics_that_there_are(running: Processes) -> None:
    told = running.get("A", "/metrics")
    there = {re.split(r"[{ ]", line)[0] for line in told.splitlines() if line[:1] not in ("#", "")}
    folder = ROOT / "examples" / "monitoring"
    asked = [
        target["expr"]
        for panel in json.loads((folder / "grafana.json").read_text())["panels"]
        for target in panel["targets"]
    ]
    asked += re.findall(r"expr: (.*)", (folder / "alerts.yml").read_text())
    assert len(asked) > 25
    for expression in asked:
        names = set(re.findall(r"\b(?:postroad|process)_\w+", expression))
        assert names <= there, expression
