"""`postroad reproduce beaconvey` on a few small points: what it writes and how it complains."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from postroad.cli import cli
from postroad.errors import InputError
from postroad.papers.beaconvey import runs


def test_it_writes_results_page_and_figures(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = tmp_path / "graph.txt"
    graph.write_text("".join(f"{a} {(a * k + 1) % 300}\n" for a in range(300) for k in (1, 2, 5)))

    def few(full: bool, graphs: Any, long: str) -> list[dict[str, Any]]:
        return [
            {
                "workload": workload,
                "nodes": nodes,
                "topics": 100,
                "graph": str(graphs.get(workload, "")),
                "long": long,
                "publications": 50,
                "overlay": overlay,
                "seed": 0,
            }
            for workload, nodes in (
                ("zipf", 64),
                ("unif", 64),
                ("expo", 64),
                ("grow", 80),
                ("tw", 1000),
            )
            for overlay in ("SL", "S", "L", "-")
        ]

    monkeypatch.setattr(runs, "rows", few)
    out = tmp_path / "out"
    command = ["reproduce", "beaconvey", "--out", str(out)]
    result = CliRunner().invoke(cli, [*command, "--twitter", str(graph)], catch_exceptions=False)
    assert result.exit_code == 0
    with (out / "results.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 5 * 4 * 5
    for row in rows:  # what a reading leaves out or adds
        overhead = float(row["overhead"])
        assert (
            float(row["overhead_but_rendezvous"]) <= overhead <= float(row["overhead_every_relay"])
        )
        assert float(row["overhead_without_publisher"]) <= overhead
        if "BeaConvey" in row["system"]:
            assert row["overhead_but_rendezvous"] == row["overhead"]
    page = (out / "page.md").read_text(encoding="utf-8")
    assert "Table 4" in page
    assert "Table 3" not in page
    for reading in runs.READINGS:
        assert (f"| {reading} |" in page) == (reading != runs.COLLEGE)  # no such graph here
    assert "## Expo" in page
    # Table 4 has 12 systems and Table 5 three, of which one stands in Table 4 already; this graph
    # has two metrics at one size. Scribe(-) is 1 by definition.
    counted = int(re.search(r"\d+ of (\d+) numbers\. Those of Scribe", page)[1])
    stated = page.split("## What the text says")[1].split("##")[0].count("| Figure ")
    assert counted == 2 * (12 - 1 + 3 - 1) + stated
    assert not re.search("presumably|because|explained", page)
    for picture in ("figure-3", "figure-8"):
        assert (out / "figures" / f"{picture}.png").stat().st_size > 1000


def test_a_graph_that_is_not_there_is_told_before_anything_runs(tmp_path: Path) -> None:
    command = ["reproduce", "beaconvey", "--out", str(tmp_path / "out"), "--facebook", "nowhere"]
    with pytest.raises(InputError, match="nowhere"):
        CliRunner().invoke(cli, command, catch_exceptions=False)
    assert not (tmp_path / "out").exists()
