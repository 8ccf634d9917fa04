"""`postroad reproduce pop-grape` on a few tiny points, and the quotes it reads or makes up."""

from __future__ import annotations

import csv
import gzip
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.errors import InputError
from postroad.filters import matches
from postroad.papers.pop_grape import runs
from postroad.workloads.quotes import made_up_quotes, read_quotes, workload

TINY = runs.Point(publishers=2, per_publisher=20, minutes=4.5, threshold=10)
WEIGHTS = ("load 1", "load 100", "delay 1", "delay 100")


def few(full: bool, quotes: Path | None, matrix: Path | None) -> list[dict[str, Any]]:
    points = [
        *(("enterprise", replace(TINY, method=m, spread=x)) for x in (1, 16) for m in runs.METHODS),
        *(
            ("weights", replace(TINY, method=f"{p} {w}"))
            for p in ("load", "delay")
            for w in (1, 100)
        ),
        *(("thresholds", replace(TINY, method=m, place="cluster")) for m in ("pop", "load 100")),
        ("ping-pong", replace(TINY, method="pop", subscribers="random", margin=1.0)),
    ]
    whole = {"quotes": "" if quotes is None else str(quotes), "matrix": ""}
    made = [{"experiment": name, **whole, **asdict(point)} for name, point in points]
    for name in ("cluster", "fan-out 4", "random"):
        made.append({**made[0], "experiment": name})
    return made


def test_it_writes_results_page_and_figures(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "rows", few)
    out = tmp_path / "out"
    done = CliRunner().invoke(cli, ["reproduce", "pop-grape", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert len(list((out / "figures").glob("*.png"))) == 7
    with (out / "results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    rate = {
        row["row"]: float(row["measured"])
        for row in rows
        if row["table"] == "enterprise" and row["column"] == "message_rate"
    }
    # With all subscribers at one broker nothing crosses a link any more.
    for method in runs.METHODS[1:]:
        assert rate[f"1 {method}"] < 0.3 * rate["1 static"]
    text = (out / "page.md").read_text()
    assert "delivered twice, over all runs: 0." in text
    assert "| 5a | broker message rate, pop: largest change | -85% |" in text


def test_every_point_of_the_paper_is_there() -> None:
    made = runs.rows(True, None, None)
    assert {row["spread"] for row in made if row["experiment"] == "enterprise"} >= {1, 16, 63}
    assert {row["threshold"] for row in made if row["experiment"] == "thresholds"} >= {10, 12_800}
    weights = {row["method"] for row in made if row["experiment"] == "weights"}
    assert {"load 1", "load 100", "delay 1", "delay 100", "load 50"} <= weights
    assert {row["fanout"] for row in made} == {2, 4}
    assert {row["subscribers"] for row in made} == {"enterprise", "random"}


def test_ratings_sink_a_tenth_a_half_and_all_of_their_publishers_quotes() -> None:
    quotes = made_up_quotes(3, 1000, seed=1)
    made = workload(
        quotes, brokers=10, publishers=3, per_publisher=100, spread=5,
        subscribers="random", minutes=1000 / 60, seed=1,
    )  # fmt: skip
    shares: dict[str, list[float]] = {}
    for interest in made.subscriptions:
        symbol = interest.client.partition("-")[0]
        own = [p.attributes for p in made.postings if p.publisher == symbol]
        text = str(interest.filter)
        rating = "low" if "highLow" in text else "medium" if "volume" in text else "high"
        shares.setdefault(rating, []).append(
            float(np.mean([matches(interest.filter, attributes) for attributes in own]))
        )
    assert {name: len(found) for name, found in shares.items()} == {
        "low": 210, "medium": 75, "high": 15,
    }  # fmt: skip
    assert all(abs(share - 0.1) < 0.01 for share in shares["low"])
    assert all(abs(share - 0.5) < 0.01 for share in shares["medium"])
    assert set(shares["high"]) == {1.0}


def test_enterprise_has_its_high_rated_subscribers_at_one_broker() -> None:
    made = workload(
        made_up_quotes(1, 200, seed=1), brokers=10, publishers=1, per_publisher=100, spread=5,
        subscribers="enterprise", minutes=1, seed=1,
    )  # fmt: skip
    high = {i.broker for i in made.subscriptions if "highLow" not in str(i.filter)}
    low = {i.broker for i in made.subscriptions if "highLow" in str(i.filter)}
    assert len(high) == 1
    assert len(low) == 4
    assert not high & low


def test_quotes_have_the_papers_twelve_attributes(tmp_path: Path) -> None:
    path = tmp_path / "q.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("date,symbol,open,high,low,close,volume\n")
        file.write("1996-09-05,YHOO,18.37,18.6,18.37,18.37,6200\n")
    (quote,) = read_quotes(path)["YHOO"]
    found = quote.attributes("YHOO")
    assert found["openClose%Diff"] == 0.0
    assert found["highLow%Diff"] == pytest.approx(0.0125, abs=1e-4)
    assert (found["closeEqualsLow"], found["closeEqualsHigh"]) == (True, False)
    assert len(found) == 12


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("date,symbol,open\n", "no column 'high'"),
        ("date,symbol,open,high,low,close,volume\n2020-01-01,A,x,1,1,1,1\n", "open is 'x'"),
    ],
)
def test_unusable_quotes_are_told(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "q.csv"
    path.write_text(text)
    with pytest.raises(InputError) as told:
        read_quotes(path)
    assert complaint in str(told.value)


def test_real_quotes_are_read(real_data: Path) -> None:
    path = real_data / "sp500_2015_2020_daily.csv.gz"
    if not path.exists():
        pytest.skip("no quotes among the real data")
    bad: list[InputError] = []
    quotes = read_quotes(path, bad.append)
    assert [error.what for error in bad] == ["open is '0.0000'"]
    assert len(quotes) > 400
    assert min(map(len, quotes.values())) > 0
    assert all(quote.low <= quote.high for quote in quotes["AAPL"])
