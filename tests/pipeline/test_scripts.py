"""The example scripts that use Spark print what stands beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from test_examples import ON_SPARK, run_script


@pytest.mark.spark
@pytest.mark.parametrize("name", ON_SPARK)
def test_scripts_on_spark_print_what_stands_beside_them(
    name: str,
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_script(name, tmp_path, monkeypatch, capsys)
