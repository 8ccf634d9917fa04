"""Workloads with popular publishers, wide-area overlays, and rows that cannot be used."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from postroad.errors import InputError
from postroad.filters import matches
from postroad.sim.oracle import compare
from postroad.sim.run import run
from postroad.sim.scenario import from_dict

BASE: dict[str, Any] = {
    "scheme": "advertisement_forwarding",
    "overlay": {"kind": "wide_area", "brokers": 30},
    "workload": {"followed": {"subscriptions": 600, "publications": 40, "publishers": 50}},
}


def test_quotes_are_followed_as_people_are_and_all_are_delivered() -> None:
    scenario = from_dict(BASE, "x", Path())
    workload = scenario.workload
    symbols = Counter(
        dict(interest.filter.conjunctions[0])["symbol"] for interest in workload.subscriptions
    )
    assert len(workload.subscriptions) == 600
    assert max(symbols.values()) > 1.5 * min(symbols.values())
    for posting in workload.postings:
        assert any(
            interest.client == posting.publisher
            and interest.broker == posting.broker
            and matches(interest.filter, posting.attributes)
            for interest in workload.advertisements
        )
    result = run(scenario)
    compare(scenario, [delivery[:2] for delivery in result.deliveries]).require()
    assert result.deliveries
    assert from_dict(BASE, "x", Path()).workload == workload


def test_leaving_the_tree_takes_the_measured_latency() -> None:
    overlay = from_dict(BASE, "x", Path()).overlay
    assert overlay.direct_us is not None
    assert [overlay.direct_us[a, b] for a, b in overlay.ends] == overlay.latency_us.tolist()


def test_followers_of_a_graph_subscribe(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("# who whom\na b\nc b\na c\nb c\nd c\nd c\na a\n")
    told = {"edges": "edges.txt", "publishers": 1, "publications": 3}
    scenario = from_dict(BASE | {"workload": {"social": told}}, "x", tmp_path)
    assert {i.id for i in scenario.workload.subscriptions} == {"a>c", "b>c", "d>c"}
    assert {p.publisher for p in scenario.workload.postings} == {"c"}
    assert len(run(scenario).deliveries) == 9
    (tmp_path / "edges.txt").write_text("a b c\n")
    with pytest.raises(InputError, match=r"edges\.txt:1: 'a b c' is not an edge"):
        from_dict(BASE | {"workload": {"social": told}}, "x", tmp_path)


def test_rows_that_cannot_be_used_are_left_out_and_told(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(
        "broker,client,filter\n0,c,price > 1\n99,c,price > 1\n1,c,price >\n1,c\n2,d,price > 2\n"
    )
    (tmp_path / "p.jsonl").write_text(
        '{"time": 0, "broker": "0", "publisher": "p", "attributes": {"price": 3}}\n'
        "{nonsense\n"
        '{"time": -1, "broker": "0", "publisher": "p", "attributes": {"price": 3}}\n'
    )
    told = BASE | {"workload": {"subscriptions": "s.csv", "publications": "p.jsonl"}}
    with pytest.raises(InputError, match=r"s\.csv:3: unknown broker '99'"):
        from_dict(told, "x", tmp_path)
    bad: list[InputError] = []
    workload = from_dict(told, "x", tmp_path, bad.append).workload
    assert [i.client for i in workload.subscriptions] == ["c", "d"]
    assert len(workload.postings) == 1
    lines = [str(error.where).rpartition("/")[2] for error in bad]
    assert lines[:1] == ["s.csv:3"]
    assert lines[1].startswith("s.csv:4")
    assert lines[2:] == ["s.csv:5", "p.jsonl:2", "p.jsonl:3"]


def test_quotes_come_from_a_users_file_and_bad_rows_are_told(tmp_path: Path) -> None:
    rows = ["date,symbol,open,high,low,close,volume"]
    rows += [f"2020-01-{day:02},{name},1,3,1,2,{day}" for name in "AB" for day in range(1, 29)]
    rows += ["2020-02-01,A,0,3,1,2,5", "2020-02-02,B,1,3,1,2,many"]
    (tmp_path / "q.csv").write_text("\n".join(rows) + "\n")
    told = {"file": "q.csv", "publishers": 2, "per_publisher": 20, "minutes": 0.5}
    bad: list[InputError] = []
    scenario = from_dict(BASE | {"workload": {"quotes": told}}, "x", tmp_path, bad.append)
    assert [str(error).partition(":")[2] for error in bad] == [
        "58: open is '0'; give a number above 0", "59: volume is 'many'; give a number",
    ]  # fmt: skip
    assert len(scenario.workload.subscriptions) == 40
    assert len(scenario.workload.postings) == 60
    assert {posting.attributes["symbol"] for posting in scenario.workload.postings} == {"A", "B"}
    assert run(scenario).deliveries
    with pytest.raises(InputError, match="3 publishers, and quotes of 2 symbols"):
        from_dict(
            BASE | {"workload": {"quotes": told | {"publishers": 3}}}, "x", tmp_path, bad.append
        )
