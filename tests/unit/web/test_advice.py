"""Advice as cards, from tables as a watch writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from postroad.errors import InputError
from postroad.pipeline.schemas import WATCH_ADVICE, WATCH_SCHEMES
from postroad.web.advice import AdviceTables


def write(folder: Path, table: str, batch: int, *rows: dict[str, Any]) -> None:
    place = folder / table / f"batch={batch}"
    place.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), place / "part-0.parquet")


def advice(window_us: int, publisher: str | None, saving: float, advised: bool) -> dict[str, Any]:
    row = {
        "window_us": window_us, "trace_id": "net", "action": "move" if publisher else "switch",
        "publisher": publisher, "now": "A", "instead": "B", "windows": 3, "messages": 100.0,
        "saving": saving, "saving_low": saving - 1, "saving_high": saving + 1,
        "change_messages": 4, "advised": advised,
    }  # fmt: skip
    assert list(row) == WATCH_ADVICE.names
    return row


def cost(window_us: int, sends: int) -> dict[str, Any]:
    assert {"window_us", "trace_id", "scheme", "sends", "publications"} <= {*WATCH_SCHEMES.names}
    return {"window_us": window_us, "trace_id": "net", "scheme": "fbr", "sends": sends,
            "publications": 10}  # fmt: skip


def test_the_last_batch_of_the_newest_window_holds(tmp_path: Path) -> None:
    write(tmp_path, "watch_advice", 0, advice(5, "old", 9.0, True))
    write(tmp_path, "watch_advice", 1, advice(10, "p", 1.0, False), advice(10, "q", 50.0, True))
    write(tmp_path, "watch_advice", 2, advice(10, "p", 30.0, True), advice(10, None, 50.0, False))
    tables = AdviceTables(tmp_path)
    cards = tables.cards()["cards"]
    assert [(card["action"], card["saving"]) for card in cards] == [
        ("move", 30.0),
        ("switch", 50.0),
    ]
    assert "network init" in cards[1]["how"]
    assert tables.card("move/p/A/B")["publisher"] == "p"
    with pytest.raises(InputError, match="not given any more"):
        tables.card("move/old/A/B")


def test_what_was_applied_is_measured_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "watch_advice", 0, advice(10, "p", 30.0, True))
    windows = [(n, 60) for n in range(1, 8)] + [(n, 20) for n in range(8, 16)]
    write(tmp_path, "watch_schemes", 0, *(cost(n * 1_000_000, sends) for n, sends in windows))
    tables = AdviceTables(tmp_path)
    monkeypatch.setattr("postroad.web.advice.time.time_ns", lambda: 8_000_000_000)
    tables.applied(tables.card("move/p/A/B"))
    (outcome,) = tables.cards()["applied"]
    assert (outcome["before"], outcome["after"]) == (6.0, 2.0)


def test_without_tables_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="postroad pipeline watch -o"):
        AdviceTables(tmp_path).cards()
