"""The pictures in docs/pictures: a network under load on the dashboard, and the demo's page."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import postroad

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
NAMES = "Oslo Gent Bern Rome Turin Nice Lyon Paris Lille Kiel Bonn Graz"
SITES = NAMES.split()
LINKS = [
    ("Bern", "Gent"), ("Bern", "Turin"), ("Bern", "Lyon"), ("Bern", "Bonn"), ("Gent", "Lille"),
    ("Gent", "Oslo"), ("Oslo", "Kiel"), ("Turin", "Rome"), ("Turin", "Nice"), ("Lyon", "Paris"),
    ("Bonn", "Graz"), ("Nice", "Lyon"), ("Lille", "Paris"),
]  # fmt: skip
PORT, DASHBOARD = 24200, 24299


def network(folder: Path) -> Path:
    lines = [
        'name = "quotes"', 'scheme = "advertisement_forwarding"', 'store = "store"',
        f"links = {json.dumps(LINKS)}", "[traces]", 'folder = "traces"', "file_s = 1.0",
    ]  # fmt: skip
    for n, site in enumerate(SITES):
        ports = PORT + 3 * n
        lines.append(f"[brokers.{site}]")
        lines += [f"{key} = {ports + n}" for n, key in enumerate(("mqtt", "link", "http"))]
    path = folder / "quotes.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


async def load(stop: threading.Event) -> None:
    """Feeds in three cities, desks everywhere."""
    draw = random.Random(1)
    wishes = ["price > 15", "price < 2", "symbol = 'ENI'", "price > 10 AND volume > 900"]

    async def desk(n: int) -> None:
        port = PORT + 3 * draw.randrange(len(SITES))
        async with postroad.Client("127.0.0.1", port, client_id=f"desk-{n}") as client:
            await client.subscribe("quotes/+", where=draw.choice(wishes))
            async for _ in client:
                pass

    async def feed(site: str) -> None:
        port = PORT + 3 * SITES.index(site)
        async with postroad.Client("127.0.0.1", port, client_id=f"feed-{site.lower()}") as client:
            while True:
                symbol = draw.choice(["ENI", "SAP", "ABB"])
                price, volume = round(draw.uniform(1, 20), 2), draw.randint(1, 999)
                quote = {"symbol": symbol, "price": price, "volume": volume}
                await client.publish(f"quotes/{symbol.lower()}", json.dumps(quote).encode())
                await asyncio.sleep(draw.uniform(0.005, 0.03))

    tasks = [asyncio.create_task(desk(n)) for n in range(40)]
    await asyncio.sleep(2)
    tasks += [asyncio.create_task(feed(site)) for site in ("Rome", "Paris", "Kiel")]
    while not stop.is_set():
        await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def shoot(page: Page) -> None:
    page.goto(f"http://127.0.0.1:{DASHBOARD}/")
    page.wait_for_selector("#map circle")
    page.wait_for_timeout(12_000)
    page.locator("#map g[role=button]", has_text="Bern").click()
    page.screenshot(path=PICTURES / "overview.png")
    page.click("#views a[href='#follow']")
    page.wait_for_selector("#publications button.link")
    page.locator("#publications button.link").nth(60).click()
    page.wait_for_selector("#way ol")
    page.evaluate("window.scrollTo(0, 0)")
    page.screenshot(path=PICTURES / "follow.png")
    page.click("#views a[href='#filter']")
    page.fill("#filter-form input", "symbol = 'ENI' AND price > 19.9 AND volume > 990")
    page.click("#filter-form button")
    page.wait_for_selector("#verdict table")
    page.screenshot(path=PICTURES / "filter.png")
    page.click("#views a[href='#time']")
    page.wait_for_selector("#minutes rect")
    page.select_option("#replay-form [name=right]", "flooding")
    page.click("#replay-form button")
    page.wait_for_selector("#replay table", timeout=120_000)
    page.locator("#replay .pair").scroll_into_view_if_needed()
    page.screenshot(path=PICTURES / "time.png")


def shoot_comparison(page: Page, report: Path) -> None:
    page.goto(f"file://{report / 'index.html'}")
    page.wait_for_selector("svg")
    page.screenshot(path=PICTURES / "compare.png")


def main() -> None:
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as name:
        report = Path(name) / "report"
        command = [sys.executable, "-m", "postroad", "demo", "-o", str(report)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        path = network(Path(name))
        with postroad.network(path), sync_playwright() as playwright:
            clients = threading.Thread(target=lambda: asyncio.run(load(stop)))
            clients.start()
            command = [sys.executable, "-m", "postroad", "dashboard", str(path)]
            command += ["--port", str(DASHBOARD)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as dashboard:
                assert dashboard.stdout is not None
                dashboard.stdout.readline()
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                shoot(browser.new_page(viewport={"width": 1200, "height": 780}))
                shoot_comparison(browser.new_page(viewport={"width": 1200, "height": 780}), report)
                browser.close()
                dashboard.terminate()
            stop.set()
            clients.join()


if __name__ == "__main__":
    main()
