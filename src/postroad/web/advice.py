"""Advice as cards, from the tables that `postroad pipeline watch` writes; and what came of it.

What was applied is kept beside the tables in `applied.jsonl`, with what a publication cost then.
What it saved is the difference between the windows before and those after, as measured: other
changes of the workload are in it too.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from postroad.errors import InputError

BATCHES = 60  # the newest folders of a table that are looked at
WINDOWS = 6  # before and after a change, that its effect is measured over
HOW = {
    "switch": "postroad network init can write a file with that scheme; start it anew",
    "link": "write the link into the network file, and restart its brokers",
}


class AdviceTables:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def cards(self) -> dict[str, Any]:
        """The advice of the newest window, the best first; and what was done before."""
        rows = self._latest("watch_advice")
        rows.sort(key=lambda row: (not row["advised"], -(row["saving_low"] or 0)))
        return {
            "cards": [self._card(row) for row in rows],
            "applied": [self._outcome(one) for one in self._applied()],
            "window_us": max((row["window_us"] for row in rows), default=None),
        }

    def card(self, id: str) -> dict[str, Any]:
        cards: list[dict[str, Any]] = self.cards()["cards"]
        for card in cards:
            if card["id"] == id:
                return card
        raise InputError("this advice is not given any more", remedy="look at the newest")

    def applied(self, card: dict[str, Any]) -> None:
        with (self.folder / "applied.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time_us": time.time_ns() // 1000, "card": card}) + "\n")

    def _card(self, row: dict[str, Any]) -> dict[str, Any]:
        names = [str(row.get(name) or "") for name in ("action", "publisher", "now", "instead")]
        return {**row, "id": "/".join(names), "how": HOW.get(names[0], "")}

    def _applied(self) -> list[dict[str, Any]]:
        path = self.folder / "applied.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines[-20:]]

    def _outcome(self, one: dict[str, Any]) -> dict[str, Any]:
        """Messages a publication before and after, over as many windows."""
        windows = sorted(self._costs().items())
        before = [row for at, row in windows if at < one["time_us"]][-WINDOWS - 1 : -1]
        after = [row for at, row in windows if at >= one["time_us"]][1 : WINDOWS + 1]
        return {**one, "before": _per_publication(before), "after": _per_publication(after)}

    def _costs(self) -> dict[int, tuple[int, int]]:
        """Per window, messages and publications of the network."""
        return {
            row["window_us"]: (row["sends"], row["publications"])
            for row in self._rows("watch_schemes")
        }

    def _latest(self, table: str) -> list[dict[str, Any]]:
        rows = self._rows(table)
        newest = max((row["window_us"] for row in rows), default=0)
        return [row for row in rows if row["window_us"] == newest]

    def _rows(self, table: str) -> list[dict[str, Any]]:
        """The rows that hold: of each window those of its last batch."""
        import pyarrow.parquet

        folders = sorted(
            (int(path.name.removeprefix("batch=")), path)
            for path in (self.folder / table).glob("batch=*")
        )
        if not folders:
            raise InputError(
                f"no table {table}",
                where=str(self.folder),
                remedy="give the folder of postroad pipeline watch -o, once it has seen something",
            )
        held: dict[int, tuple[int, list[dict[str, Any]]]] = {}
        for batch, folder in folders[-BATCHES:]:
            for path in sorted(folder.glob("*.parquet")):
                try:
                    rows = pyarrow.parquet.ParquetFile(path).read().to_pylist()
                except FileNotFoundError:  # several batches became one meanwhile
                    continue
                for row in rows:
                    if held.get(row["window_us"], (None,))[0] != batch:
                        held[row["window_us"]] = (batch, [])
                    held[row["window_us"]][1].append(row)
        return [row for _, rows in held.values() for row in rows]


def _per_publication(rows: list[tuple[int, int]]) -> float | None:
    publications = sum(row[1] for row in rows)
    return sum(row[0] for row in rows) / publications if publications else None
