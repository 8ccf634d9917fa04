"""`postroad reproduce kyra` and `postroad plan alpha` on the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.papers.kyra import runs
from postroad.papers.kyra.published import RATES


def few(full: bool) -> list[dict[str, Any]]:
    """The quick rows on a smaller network."""
    return [row | {"servers": 80} for row in usual(full=False)]


usual = runs.rows


def test_page_tables_and_figures_are_written(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "rows", few)
    out = tmp_path / "out"
    result = CliRunner().invoke(
        cli, ["reproduce", "kyra", "--out", str(out)], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert "published numbers within 20%" in result.output
    page = (out / "page.md").read_text()
    for part in ("Table I:", "Table III:", "Table IV:", "Figure 16:", "## Figure 7"):
        assert part in page
    for name in (7, *range(10, 17)):
        assert (out / "figures" / f"figure-{name}.png").stat().st_size > 1000
    with (out / "results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    schemes = {row["scheme"] for row in rows if row["kind"] == "compare"}
    assert schemes == set(runs.ALL)
    assert {float(row["rate"]) for row in rows} == set(RATES)


def test_alpha_is_fitted() -> None:
    command = ["plan", "alpha", "--servers", "60", "--networks", "1", "--json"]
    result = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert 0.4 < json.loads(result.output)["alpha"] < 0.8
