"""What the dashboard draws, from what brokers say of themselves."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from live_harness import write_network
from postroad.live.network import Network, load
from postroad.web.picture import Reading, drawing, picture


def network(folder: Path, count: int, extra: tuple[tuple[str, str], ...] = ()) -> Network:
    names = [f"B{n}" for n in range(count)]
    return load(write_network(folder, names, [*pairwise(names), *extra]))


def said(network: Network, name: str, sent: int = 0, pid: int = 1, **other: Any) -> dict[str, Any]:
    """What a broker answers that has sent so many messages over each of its links."""
    names = network.names
    peers = [names[b if names[a] == name else a] for a, b in network.pairs
             if name in (names[a], names[b])]  # fmt: skip
    link = {
        "connected": True, "up": True, "neighbour": True, "in_tree": True, "queued": 2,
        "resent": 0, "dropped": 0, "cuts": 0, "refused": None, "sent": {"publication": sent},
        "received": {"publication": sent},
    }  # fmt: skip
    gauges = dict.fromkeys(
        ("connections", "sessions", "subscriptions", "table_entries", "waiting", "in_flight",
         "held_bytes", "retained", "published", "delivered", "dropped", "refused",
         "bytes_received", "bytes_sent"), 1,
    )  # fmt: skip
    return {
        **gauges, "pid": pid, "cpu_s": sent / 100, "draining": False, "congested": False,
        "lag_us": 100, "links": {peer: dict(link) for peer in peers}, **other,
    }  # fmt: skip


def readings(network: Network, away: str = "", restarted: str = "") -> tuple[Reading, Reading]:
    before = {name: said(network, name, 10) for name in network.names}
    now: dict[str, Any] = {
        name: said(network, name, 30, 2 if name == restarted else 1) for name in network.names
    }
    if away:
        now[away] = None
    return Reading(100.0, before), Reading(102.0, now)


def test_rates_are_differences_of_counters(tmp_path: Path) -> None:
    net = network(tmp_path, 3)
    shown = picture(net, drawing(net), *readings(net))
    assert [
        (link["a"], link["b"], link["rate_ab"], link["rate_ba"]) for link in shown["links"]
    ] == [
        ("B0", "B1", 10.0, 10.0),
        ("B1", "B2", 10.0, 10.0),
    ]
    assert shown["totals"]["rates"]["sent"] == 40.0
    assert shown["totals"]["queued"] == 8
    assert shown["brokers"][1]["rates"]["cpu"] == pytest.approx(0.1)


def test_who_restarted_has_no_rates_and_who_is_away_is_named(tmp_path: Path) -> None:
    net = network(tmp_path, 3)
    shown = picture(net, drawing(net), *readings(net, away="B2", restarted="B0"))
    first, _, last = shown["brokers"]
    assert first["rates"] is None
    assert last["state"] == {"is": "away", "why": "B2 does not answer"}
    one, two = shown["links"]
    assert (one["rate_ab"], one["rate_ba"]) == (10.0, 10.0)  # as the other end counts
    assert two["why"] == "B2 does not answer"
    assert shown["totals"]["answering"] == 2


def test_redundant_links_are_of_the_tree_or_stand_by(tmp_path: Path) -> None:
    net = network(tmp_path, 3, (("B0", "B2"),))
    before, now = readings(net)
    for name, peer in (("B0", "B2"), ("B2", "B0")):
        now.brokers[name]["links"][peer]["in_tree"] = False  # type: ignore[index]
    kinds = {(k["a"], k["b"]): k["kind"] for k in picture(net, drawing(net), before, now)["links"]}
    assert kinds == {("B0", "B1"): "tree", ("B1", "B2"): "tree", ("B0", "B2"): "standby"}


def test_of_many_brokers_the_outer_ones_are_drawn_with_their_parents(tmp_path: Path) -> None:
    net = network(tmp_path, 30)
    shape = drawing(net, most=10)
    shown = picture(net, shape, *readings(net))
    assert len(shown["brokers"]) == 10
    assert sorted(name for one in shown["brokers"] for name in one["members"]) == sorted(net.names)
    assert len(shown["links"]) == 9
    whole = picture(net, drawing(net), *readings(net))
    assert sum(one["table_entries"] for one in shown["brokers"]) == 30
    assert shown["totals"] == whole["totals"]
    assert len({(one["x"], one["y"]) for one in whole["brokers"]}) == 30
