"""What a folder holds, for `postroad pipeline tables`: every table, and how it was made."""

from __future__ import annotations

from postroad.pipeline import store
from postroad.pipeline.run.job import Facts


def tables(folder: str) -> list[Facts]:
    """What every table of a folder holds and how it was made, without Spark."""
    rows = []
    for path in store.tables(folder):
        lineage = store.read_lineage(path)
        assert lineage is not None
        facts = lineage["facts"]
        quality = {key: facts[key] for key in ("records", "quarantined", "failed") if key in facts}
        rows.append(
            {
                "table": path,
                "rows": store.count(path),
                "schema": lineage.get("schema", 1),
                "stage": lineage["stage"],
                "version": lineage["version"],
                "command": lineage["command"],
                "inputs": sorted(lineage["inputs"]),
                "quality": quality,
            }
        )
    return rows
