"""A sweep's answer, from rows of its tables, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from postroad.pipeline.answer import answer, varying
from postroad.report.figures.settings import settings


def row(scheme: str, metric: str, *values: float, size: str = "1") -> dict[str, Any]:
    mean = sum(values) / len(values)
    known = len(set(values)) > 1
    return {
        "parameters": {"scheme": scheme, "size": size}, "metric": metric, "n": len(values),
        "mean": mean, "min": min(values), "max": max(values),
        "ci95_low": mean - 1 if known else None, "ci95_high": mean + 1 if known else None,
    }  # fmt: skip


def difference(a: dict[str, Any], b: dict[str, Any], low: float | None, high: float | None) -> Any:
    return {
        "parameters": a["parameters"], "baseline": b["parameters"], "metric": a["metric"],
        "n": a["n"], "difference": a["mean"] - b["mean"], "ci95_low": low, "ci95_high": high,
    }  # fmt: skip


ROWS = [row("x", "brokers", 5, 5), row("y", "brokers", 5, 5), row("z", "brokers", 5, 5),
        row("x", "messages", 9, 11), row("y", "messages", 3, 5), row("z", "messages", 5, 7),
        row("x", "state", 1, 1), row("y", "state", 2, 2), row("z", "state", 3, 3)]  # fmt: skip


def test_what_is_the_same_everywhere_does_not_vary() -> None:
    assert varying(ROWS) == ["messages", "state"]
    assert varying([row("x", "brokers", 5, 5), row("x", "delay", 1, 2)]) == ["delay"]


def test_the_best_and_by_how_much() -> None:
    _, y, z = ROWS[3:6]
    pairs = [difference(y, z, -3.0, -1.0), difference(z, y, 1.0, 3.0)]
    best = answer(ROWS, pairs)
    assert best is not None
    assert best.best is y
    assert best.next is z
    assert str(best) == (
        "messages: least with scheme = y, size = 1, 4 ± 1; then scheme = z, size = 1, 6 ± 1. "
        "The difference is 2 (95% interval 1 to 3, 2 pairs)."
    )
    unsure = answer(ROWS, [difference(z, y, -1.0, 5.0)])
    assert str(unsure).endswith("so they cannot be told apart.")


def test_another_metric_and_no_interval() -> None:
    x, y = ROWS[6:8]
    least = answer(ROWS, [difference(y, x, None, None)], "state")
    assert str(least).endswith(
        "The difference is 1, without an interval: the replicates are copies."
    )
    assert answer(ROWS[:3], []) is None


def test_a_numeric_key_is_an_axis(tmp_path: Path) -> None:
    rows = [row(s, "m", n, n + 1, size=str(n)) for s in ("x", "y") for n in (10, 2, 7)]
    axes = settings(rows, "m").axes[0]
    assert axes.get_xlabel() == "size"
    assert [line.get_xdata().tolist() for line in axes.lines if line.get_marker() == "."] == [
        [2.0, 7.0, 10.0]
    ] * 2
    labels = [text.get_text() for text in settings(ROWS, "messages").axes[0].get_yticklabels()]
    assert labels == ["scheme = x, size = 1", "scheme = y, size = 1", "scheme = z, size = 1"]
