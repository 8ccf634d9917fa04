"""The comparison with peers: fair, whole, and plain about who is missing."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from postroad.bench.peers import __main__ as command
from postroad.bench.peers import engines, models, systems, traffic, workloads
from postroad.bench.peers.clients import MARK, WireClient, payload
from postroad.bench.peers.figures import OURS, PeerFigure, PeerRow, show, summary
from postroad.bench.peers.workloads import Graph, Pace, Traffic


def test_a_seed_decides_the_workloads(tmp_path: Path) -> None:
    rows = ["fanout-1", "latency", "filters", "match-few", "simulate"]
    texts = []
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        paths = workloads.write(tmp_path / folder, seed, rows)
        texts.append({path.name: path.read_text() for path in paths})
    assert texts[0] == texts[1]
    assert texts[0]["filters.json"] != texts[2]["filters.json"]
    assert workloads.filters(tmp_path / "a", "match-few").filters[0][0][:2] == ("symbol", "=")


def test_a_missing_peer_is_named_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "where", lambda program: None)
    (mosquitto,) = (s for s in systems.SYSTEMS if s.name == "mosquitto")
    (figure,) = traffic.each([mosquitto], 1, lambda system, running: {"per_s": 1.0})
    assert not figure.measures
    assert figure.note.startswith("skipped: mosquitto is not installed (Debian")
    table = PeerRow("x", "y", "per_s", [PeerFigure(OURS, {"per_s": 2.0}), figure])
    assert "skipped: mosquitto" in show(table)


def test_the_list_names_the_libraries_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        systems, "find_spec", lambda module: None if module in ("event_ruler", "ns3") else "here"
    )
    printed = command.listed()
    for name, said in {
        "event-ruler": "event-ruler is not installed (extra `peers`)",
        "ns-3, events made in C++": "ns3 is not installed (extra `ns3`)",
        **dict.fromkeys(("DuckDB", "Polars", "SimPy", "igraph", "networkx"), "here"),
    }.items():
        assert f"  {name:<{command.WIDTH}} {said}\n" in f"{printed}\n"


def test_ratios_say_how_many_times_better_ours_is() -> None:
    figures = [PeerFigure(OURS, {"per_s": 3.0, "p50_us": 30.0}), PeerFigure("a", {"per_s": 2.0}),
               PeerFigure("b", {"p50_us": 10.0})]  # fmt: skip
    assert PeerRow("x", "", "per_s", figures).ratio(figures[1]) == 1.5
    assert PeerRow("x", "", "p50_us", figures).ratio(figures[2]) == pytest.approx(1 / 3)
    assert "behind in 1: x b" in summary([PeerRow("x", "", "p50_us", figures)])


class Bare(WireClient):
    """A client of a thread that sends back what it gets."""

    def __init__(self, end: socket.socket) -> None:
        self.socket, self.buffer, self.count = end, b"", 0

    def greet(self, name: str) -> None: ...

    def subscribe(self, topic: str, where: str | None = None) -> None: ...

    @staticmethod
    def publication(topic: str, content: bytes, attributes: dict[str, object]) -> bytes:
        return content


def test_what_was_due_during_a_stall_counts_from_when_it_was_due() -> None:
    publisher, left = socket.socketpair()
    right, reader = socket.socketpair()

    def echo() -> None:
        count, stalled = 0, False
        while data := left.recv(1 << 16):
            count += data.count(MARK)
            if count >= 50 and not stalled:
                stalled = True
                time.sleep(0.3)
            right.sendall(data)

    thread = threading.Thread(target=echo, daemon=True)
    thread.start()
    packets = [payload(n, 64) for n in range(400)]
    latencies = traffic.paced(Bare(publisher), Bare(reader), packets, 1_000)
    publisher.close()
    thread.join(10)
    for end in (left, right, reader):
        end.close()
    assert len(latencies) == 400
    # 300 publications were due while nothing moved; a client that waits would count only one.
    assert sum(us > 100_000 for us in latencies) >= 150


@pytest.mark.parametrize("name", [OURS, "mosquitto", "NATS"])
def test_a_broker_carries_a_small_load(name: str) -> None:
    (system,) = (s for s in systems.SYSTEMS if s.name == name)
    if (reason := system.missing()) is not None:
        pytest.skip(reason)
    work, pace = Traffic(subscribers=2, publications=500), Pace(per_s=500, publications=100)

    def measure(system: systems.System, running: systems.Running) -> dict[str, float]:
        saturated = traffic._saturated(system, running, work)
        return saturated | {"count": len(traffic._paced(system, running, pace))}

    (figure,) = traffic.each([system], 1, measure)
    assert figure.note == ""
    assert figure.measures["count"] == 100
    assert figure.measures["per_s"] > 0
    assert figure.measures["memory_mb"] > 1


def test_engines_answer_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "SECONDS", 0.01)
    small = {
        "match-mixed": workloads.mixed(300, 5),
        "match-equal": workloads.equalities(300, 5),
        "match-quotes": workloads.quotes(300, 5),
    }
    for name, work in small.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(vars(work)))
        figures = {figure.system: figure for figure in engines.matched(tmp_path, name)}
        assert figures[OURS].measures["cpu_us"] > 0
        assert figures["SQLite"].measures["cpu_us"] > 0
        assert "other answers" not in "".join(f.note for f in figures.values())


def test_boxes_of_sqlite_hold_what_lies_between_two_numbers_of_32_bits() -> None:
    close = [0.5 + n * 1e-12 for n in range(4)]  # all the same in 32 bits
    work = workloads.Filters(
        [
            [("a", ">=", close[1]), ("a", "<", close[2])],
            [("a", ">=", close[1]), ("b", "<", close[3]), ("c", "=", "x")],
            [("b", ">=", close[2]), ("t", "prefix", "y")],
        ],
        [{"a": a, "b": b, "c": c, "t": t} for a in close for b in close
         for c in ("x", "new") for t in ("yes", "no")],
    )  # fmt: skip
    match = engines.sqlite(work)
    for values in work.publications:
        wanted = [n for n, filter in enumerate(work.filters) if workloads.holds(filter, values)]
        assert sorted(match(values)) == wanted


def test_simulators_count_the_same_messages(tmp_path: Path) -> None:
    graph = workloads.tree(20, 10, 3)
    figures = models.compared(models.SIMULATORS, graph, 190)
    assert not [f for f in figures if f.note.startswith("failed")]
    assert models._bare(graph)() == 190 == models._ours(graph)() == models._compiled(graph)()
    line = Graph(3, [(0, 1, 5), (1, 2, 7)], [])
    assert models._paths(line)() == 2 * (5 + 7 + 12)


def test_a_peer_that_ends_its_process_leaves_the_row_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models, "APART", {"os"})
    code = 3  # in the place of a graph: what the process ends with
    work = {"ends": (os._exit, "os"), "b": (lambda _: lambda: sum(range(100_000)), "")}
    ended, other = models.compared(work, code, 1)
    assert ended.note.startswith("skipped: os does not run: ")
    assert "terminated" in ended.note
    assert other.measures["cpu_s"] > 0


def test_an_unknown_row_is_refused_with_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["fanout-7"])
    assert ended.value.code == 2
    assert "fanout-7" in (said := capsys.readouterr().err)
    assert "fanout-50" in said
