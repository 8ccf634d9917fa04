"""The notebooks run, print what is kept in them, and draw where they have pictures."""

from __future__ import annotations

import runpy
from base64 import b64decode
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "notebooks"
PNG = b"\x89PNG"


def said(cell: Any) -> str:
    """What a cell printed, and the value of its last line."""
    streams = (each.text for each in cell.outputs if each.output_type == "stream")
    values = (
        each.data["text/plain"] for each in cell.outputs if each.output_type == "execute_result"
    )
    return "".join((*streams, *values))


def pictures(cell: Any) -> list[bytes]:
    shown = (each.data for each in cell.outputs if each.output_type == "display_data")
    return [b64decode(data["image/png"]) for data in shown if "image/png" in data]


def check(name: str, folder: Path) -> None:
    path = FOLDER / f"{name}.ipynb"
    executed = runpy.run_path(str(ROOT / "scripts" / "notebooks.py"))["executed"]
    kept = nbformat.read(path, as_version=4).cells
    drawn = 0
    for before, after in zip(kept, executed(path, folder).cells, strict=True):
        if before.cell_type == "code":
            assert said(after) == said(before), before.source
            assert len(pictures(after)) == len(pictures(before)), before.source
            assert all(picture.startswith(PNG) for picture in pictures(after))
            drawn += len(pictures(after))
    assert drawn


def test_every_notebook_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {
        "from_a_running_network_to_advice",
        "which_scheme_for_my_network",
    }


def test_from_a_running_network_to_advice(tmp_path: Path) -> None:
    check("from_a_running_network_to_advice", tmp_path)


@pytest.mark.spark
def test_which_scheme_for_my_network(tmp_path: Path) -> None:
    check("which_scheme_for_my_network", tmp_path)
