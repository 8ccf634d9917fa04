"""Run the notebooks of examples/notebooks in fresh folders; keep what they print and draw.

With names, only these: `python scripts/notebooks.py which_scheme_for_my_network`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook, run in a folder by a kernel of this Python; `postroad` is this Python's."""
    notebook = nbformat.read(path, as_version=4)
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env={**os.environ, "PATH": here})
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the time of day
    return notebook


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.ipynb")):
        if path.stem in (sys.argv[1:] or [path.stem]):
            with tempfile.TemporaryDirectory() as folder:
                nbformat.write(executed(path, Path(folder)), path)
            sys.stdout.write(f"{path.name}\n")
