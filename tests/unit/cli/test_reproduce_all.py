"""`postroad reproduce all`: one sweep of several papers, and the page of every number."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from postroad.cli import cli
from postroad.papers import Cell, Claim, Measures, Replicate
from postroad.report import all_page, papers
from postroad.report.figures.curves import Panel, Point, draw
from postroad.report.papers import Asked, Findings, Paper, Rows, within_points


def paper(name: str, published: float) -> Paper:
    """Two seeds of one setting; ours is their mean, the other reading ten more."""

    def rows(asked: Asked) -> Rows:
        return [{"x": 5, "paper": name, "seed": seed} for seed in (1, 2)]

    def findings(ran: Rows, measured: Measures, asked: Asked) -> Findings:
        mean = measured.figure("value", paper=name).mean
        assert mean == pytest.approx(sum(row["value"] for row in ran) / 2)
        ours = [
            Cell("Table 1", "a", "", published, mean, ci95=(mean - 1, mean + 1)),
            Cell("Table 1", "b", "", 1.0, 1.0, counts=False),
        ]
        other = [Cell("Table 1", "a", "", published, mean + 10)]
        return Findings(
            [["measured"], [mean]],
            {"figure-1": Figure()},
            lambda how, folder: f"# {name}\n{how}\n![]({folder}/figure-1.png)\n",
            [],
            readings={"ours": ours, "ten more": other},
            claims=[Claim("it grows", True, "5")],
        )

    def replicates(asked: Asked) -> list[Replicate]:
        return [Replicate(row, {"paper": name}, str(row["seed"])) for row in rows(asked)]

    return Paper(name, "no modes", "points:case", rows, replicates, findings)


def test_all_papers_run_in_one_sweep_that_goes_on_where_it_was(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "pipeline"))
    records = {"one": paper("one", 5.2), "two": paper("two", 15.5)}
    monkeypatch.setattr(papers, "papers", lambda: records)
    out = tmp_path / "out"
    command = ["reproduce", "all", "--out", str(out)]
    result = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert result.exit_code == 0
    assert "one: 1 of 1 published numbers met (within 20%); 1 of 1 claims hold" in result.output
    two = "two: 0 of 1 published numbers met (within 20%), 1 more under another reading; 1 of 1"
    assert two in result.output
    index = (out / "index.md").read_text()
    assert "4 runs, 4 of them in the last call" in index
    assert "| Table 1 | a | 5.2 | 5" in index
    assert "(met): ten more |" in index
    assert "| Table 1 | b" not in index  # equal by definition
    assert "[one: 1 of 1" in index
    assert "](one.md)" in index
    for name in records:
        assert f"# {name}" in (out / f"{name}.md").read_text()
        assert (out / name / "figures" / "figure-1.png").exists()
        with (out / name / "results.csv").open() as stream:
            assert 5 < float(next(csv.DictReader(stream))["measured"]) < 6
    CliRunner().invoke(cli, command, catch_exceptions=False)
    assert "4 runs, 0 of them in the last call" in (out / "index.md").read_text()


def test_a_number_is_met_by_share_or_by_points() -> None:
    assert within_points(Cell("", "", "%", -59.0, -55.0))
    assert within_points(Cell("", "", "%", 0.0, 4.0))
    assert not within_points(Cell("", "", "", 0.5, 3.0))
    assert not within_points(Cell("", "", "%", -33.0, -54.0))


def test_a_reading_that_moves_nothing_is_not_shown() -> None:
    cells = [Cell("T", "a", "", 2.0, 1.0)]
    findings = Findings([], {}, lambda how, folder: "", [], readings={"ours": cells, "same": cells})
    (row,) = all_page.rows(findings)
    assert not row.others
    assert not row.met


def test_figures_have_one_legend_intervals_and_published_points() -> None:
    curves = {"a": [Point(1, 2, 1.5, 2.5), Point(2, 3, math.nan, math.nan)], "b": [Point(1, 1)]}
    panel = Panel("brokers", "delay (ms)", curves, {"a": [Point(1, 2.2)]})
    figure = draw([panel, panel], "Figure 1")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "published"]
    for axes in figure.axes:
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("brokers", "delay (ms)")
        assert axes.get_legend() is None
        assert len(axes.collections) == 1  # of the one interval
    assert figure.get_figwidth() <= 7
