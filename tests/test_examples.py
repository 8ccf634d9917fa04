"""The examples run."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from postroad.cli import cli

ROOT = Path(__file__).parents[1]


def test_quotes_example_delivers_what_the_oracle_says(tmp_path: Path) -> None:
    scenario = ROOT / "examples" / "quotes" / "scenario.toml"
    done = CliRunner().invoke(cli, ["simulate", str(scenario), "--check"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "deliveries equal the oracle's" in done.stdout
