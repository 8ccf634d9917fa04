"""`postroad init`: every file of every starter can be used as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.comparison import settings
from postroad.errors import InputError
from postroad.live.network import load
from postroad.pipeline import sweep
from postroad.planning.interests import read
from postroad.workloads.starters import KINDS


def init(*words: str) -> str:
    done = CliRunner().invoke(cli, ["init", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("brokers", [2, 14])
def test_files_run_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, brokers: int
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "begin with: cd mine && postroad simulate" in init(
        "mine", "--from", kind, "--brokers", str(brokers)
    )
    folder = tmp_path / "mine"
    done = CliRunner().invoke(
        cli, ["simulate", str(folder / "scenario.toml"), "--json"], catch_exceptions=False
    )
    summary = json.loads(done.stdout)
    assert summary["brokers"] == brokers
    assert summary["deliveries"] > 0
    assert summary["missing"] == 0
    scenario, bad = settings.first_look(settings.load(folder / "compare.toml"))
    assert not bad
    assert scenario.overlay.brokers_count == brokers
    assert len(sweep.expand(sweep.load(str(folder / "experiment.toml")))) == 2
    assert len(load(folder / "network.toml").names) == brokers
    names, topics, _ = read(folder / "interests.csv")
    assert len(names) == brokers
    assert topics
    for word in ("simulate", "compare", "plan swico", "pipeline sweep", "network up"):
        assert f"postroad {word}" in (folder / "README.md").read_text()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(InputError, match="is there already"):
        init(str(tmp_path / "mine"))
