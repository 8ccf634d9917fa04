"""The reference names the keys that the readers ask for, all of them and no others."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from live_harness import memory
from postroad import reference
from postroad.cli import cli
from postroad.cli.docs import commands_page
from postroad.comparison import settings as comparisons
from postroad.live import network
from postroad.live.operations import http
from postroad.pipeline import sweep
from postroad.routing import SCHEMES
from postroad.settings import toml
from postroad.settings.sections import Section
from postroad.sim import scenario

ROOT = Path(__file__).parents[3]
OVERLAYS = {
    "full_tree": "fanout = 2\nheight = 2",
    "random_tree": "brokers = 5",
    "normal_tree": "brokers = 5\nmean = 2.0\nstddev = 1.0",
    "edges": 'file = "edges"',
    "wide_area": "brokers = 5",
    "latencies": 'file = "edges"\ntimes = "one-way"',
    "transit_stub": "servers = 5",
}
FAULTS = """
[[faults]]
kind = "link_loss"
link = ["0", "1"]
start = 1
end = 2
share = 0.5
[[faults]]
kind = "link_delay"
link = ["0", "1"]
start = 1
end = 2
delay = 0.5
[[faults]]
kind = "crash"
broker = "1"
start = 1
end = 2
[[faults]]
kind = "partition"
brokers = ["1"]
start = 1
end = 2
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The keys that readers ask for from now on."""
    names: set[str] = set()
    take, any_of = Section.take, Section.any

    def spied(read: Any) -> Any:
        def wrapper(self: Section, key: str, *rest: Any, **more: Any) -> Any:
            names.add(re.sub(r"\[\d+\]", "", self._key(key)))
            return read(self, key, *rest, **more)

        return wrapper

    monkeypatch.setattr(Section, "take", spied(take))
    monkeypatch.setattr(Section, "any", spied(any_of))
    return names


def named(file: str) -> set[str]:
    return {key.name for key in reference.entries() if key.file == file}


def tables(names: set[str]) -> set[str]:
    """Without those that only hold others."""
    return {name for name in names if not any(other.startswith(f"{name}.") for other in names)}


def test_scenarios(tmp_path: Path, asked: set[str]) -> None:
    (tmp_path / "edges").write_text("a b 5\nb c 5\n")
    workloads = {
        "generate": "subscriptions = 2\npublications = 2",
        "followed": "subscriptions = 2\npublications = 2",
        "quotes": "publishers = 2",
    }
    tried = [
        f'scheme = "{scheme}"\n[overlay]\nkind = "wide_area"\nbrokers = 5' for scheme in SCHEMES
    ]
    tried += [f'scheme = "flooding"\n[overlay]\nkind = "{kind}"\n{keys}'
              for kind, keys in OVERLAYS.items()]  # fmt: skip
    tried += [f'scheme = "flooding"\n[overlay]\nkind = "random_tree"\nbrokers = 3\n'
              f"[workload.{family}]\n{keys}" for family, keys in workloads.items()]  # fmt: skip
    tried += [f'scheme = "advertisement_forwarding"\nrelocation = "{one}"\n[overlay]\n'
              'kind = "random_tree"\nbrokers = 3' for one in ("pop", "grape")]  # fmt: skip
    tried.append(f'scheme = "flooding"\n[overlay]\nkind = "random_tree"\nbrokers = 2\n{FAULTS}')
    tried.append('scheme = "kyra"\n[overlay]\nkind = "wide_area"\nbrokers = 3\n'
                 '[[hand_overs]]\ntime = 1\nseat = "0"\nto = "1"')  # fmt: skip
    for text in tried:
        scenario.from_dict(toml.parse(text, "here"), "here", tmp_path)
    without_files = {"workload.social", "overlay.file"}
    expected = {n for n in named("scenario") if not n.startswith("workload.social.")}
    assert tables(asked) - without_files == expected - tables_of(expected) - without_files


def tables_of(names: set[str]) -> set[str]:
    return {name for name in names if any(other.startswith(f"{name}.") for other in names)}


def test_networks(tmp_path: Path, asked: set[str]) -> None:
    path = tmp_path / "network.toml"
    brokers = "[brokers.NAME]\nmqtt = 1\nlink = 2\nhttp = 3\n"
    for top, rest in (
        ('scheme = "flooding"', '[traces]\nfolder = "t"\n'),
        *((f'scheme = "{scheme}"', "") for scheme in SCHEMES),
        ('scheme = "advertisement_forwarding"\nrelocation = "pop"', ""),
        ('scheme = "advertisement_forwarding"\nrelocation = "grape"', ""),
    ):
        path.write_text(f'name = "n"\n{top}\n{rest}{brokers}')
        network.load(path)
    expected = named("network")
    assert tables(asked) == expected - tables_of(expected)


def test_comparisons(asked: set[str]) -> None:
    comparisons.load(ROOT / "src" / "postroad" / "comparison" / "demo.toml")
    expected = named("comparison") - {"brokers"}  # which this one leaves out
    assert tables(asked) == expected - tables_of(expected)


def test_experiments() -> None:
    assert named("experiment") == set(sweep._KEYS)


@pytest.mark.parametrize("name", ["files.md", "commands.md"])
def test_the_pages_are_current(name: str) -> None:
    path = ROOT / "docs" / "reference" / name
    text = reference.page() if name == "files.md" else commands_page()
    if os.environ.get("POSTROAD_GOLDEN") == "rewrite":
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "run: make golden"


def test_the_page_of_metrics_is_current(tmp_path: Path) -> None:
    links = [("A", "B"), ("B", "C"), ("A", "C")]
    net = memory(tmp_path, list("ABC"), links, top=f'traces = "{tmp_path}/t"')

    class Served:
        broker, network, traces = net.brokers[0], net.network, net.brokers[0].traces
        started_us = reloads = lag_us = 0
        reload_error = None

        def now(self) -> int:
            return net.now

    collected = http._Metrics(http.status(Served()), net.brokers[0].clients.latency).collect()  # type: ignore[arg-type]
    lines = ["# Every metric of a broker", "", "Made from the code by `make golden`; at `/metrics`,"
             " with what Prometheus' client says of the process (`process_…`).", "",
             "| metric | kind | labels | meaning |", "|---|---|---|---|"]  # fmt: skip
    for metric in collected:
        name = metric.name + ("_total" if metric.type == "counter" else "")
        labels = ", ".join(metric._labelnames)
        lines.append(f"| `{name}` | {metric.type} | {labels} | {metric.documentation} |")
    path = ROOT / "docs" / "reference" / "metrics.md"
    text = "\n".join(lines) + "\n"
    if os.environ.get("POSTROAD_GOLDEN") == "rewrite":
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "run: make golden"


def test_a_key_is_explained_and_a_wrong_one_answered_with_what_is_near() -> None:
    done = CliRunner().invoke(cli, ["docs", "session_queue"])
    assert "network: limits.session_queue\n  whole number, 1,000\n" in done.output
    done = CliRunner().invoke(cli, ["docs", "sesion_queue"])
    assert "did you mean session_queue" in str(done.exception)


def test_schemes_are_listed_where_their_key_is_explained() -> None:
    printed = CliRunner().invoke(cli, ["docs", "scheme"]).stdout
    for name, scheme in SCHEMES.items():
        assert f"  {name} " in printed
        assert scheme.summary in printed
