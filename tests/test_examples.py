"""The examples run, and print what stands beside them; the names that Python users have."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import postroad
from postroad.cli import cli

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "examples" / "python"
ON_SPARK = ("compare_own_data", "spark_stage")
NAMES = [
    "SCHEMES",
    "Client",
    "Compared",
    "Estimate",
    "Filter",
    "Index",
    "InputError",
    "PostroadError",
    "Result",
    "Scenario",
    "compare",
    "covers",
    "estimate",
    "intersects",
    "matches",
    "network",
    "parse",
    "plan",
    "simulate",
]


def run_script(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out == (SCRIPTS / f"{name}.out").read_text()


@pytest.mark.parametrize("name", ["filter_and_match", "simulate_and_check", "live_two_brokers"])
def test_scripts_print_what_stands_beside_them(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_script(name, tmp_path, monkeypatch, capsys)


def test_every_script_is_run() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == {
        "filter_and_match", "simulate_and_check", "live_two_brokers", *ON_SPARK
    }  # fmt: skip


def test_the_names_for_python_stay() -> None:
    """Taking one away or renaming it breaks somebody's script."""
    from postroad import api

    assert postroad.__all__ == api.__all__ == NAMES
    for name in NAMES:
        assert getattr(postroad, name) is getattr(api, name)
        assert getattr(api, name).__doc__
    answer = postroad.estimate(4, 3, 0.02, 0.1, 100, 1000)
    assert answer.brokers == 85
    with pytest.raises(AttributeError, match="no attribute 'simulation'"):
        postroad.simulation  # noqa: B018


def test_to_import_it_costs_little() -> None:
    code = "import postroad, sys; assert not {'numpy', 'pyspark', 'numba'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_ring_is_planned_from_interests(tmp_path: Path) -> None:
    table = tmp_path / "interests.csv"
    table.write_text("node,topic\n" + "".join(f"n{n},t{n % 3}\n" for n in range(12)))
    ring = postroad.plan(table)
    assert ring.brokers_count == 12


def test_quotes_example_delivers_what_the_oracle_says(tmp_path: Path) -> None:
    scenario = ROOT / "examples" / "quotes" / "scenario.toml"
    done = CliRunner().invoke(cli, ["simulate", str(scenario), "--check"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "deliveries equal the oracle's" in done.stdout
