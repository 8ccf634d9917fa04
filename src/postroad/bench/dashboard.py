"""What an open page of the dashboard costs a broker: it asks for `/status` every two seconds,
however many pages are open. CPU time of the broker for an answer, and as a share of a core: a part
that is always there and one for each client."""

from __future__ import annotations

import tempfile
import urllib.request
from pathlib import Path

from postroad.bench import growth, live

ASKED = 200
EVERY_S = 2.0  # what the page does
SESSIONS = (10, 1_000, 5_000)


def main() -> None:
    print("the dashboard's questions to a broker")
    print("| clients | ms of CPU for an answer | share of a core while a page is open |")
    print("|---:|---:|---:|")
    with (
        tempfile.TemporaryDirectory() as name,
        live.brokers(1, Path(name)) as ((port,), (http,), (pid,)),
    ):
        clients: list[live.Raw] = []
        costs = []
        for count in SESSIONS:
            clients += [live.Raw(port, f"c{n}") for n in range(len(clients), count)]
            before_s = live.cpu_s(pid)
            for _ in range(ASKED):
                with urllib.request.urlopen(f"http://127.0.0.1:{http}/status", timeout=10) as said:
                    said.read()
            each_s = (live.cpu_s(pid) - before_s) / ASKED
            costs.append(each_s)
            print(f"| {count:,} | {1000 * each_s:.2f} | {each_s / EVERY_S:.2%} |")
        print("  " + growth.said("cost of an answer by clients", SESSIONS, costs, "0 to 1"))
