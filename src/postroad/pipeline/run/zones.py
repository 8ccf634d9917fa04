"""Loads of points, for `postroad plan kyra`: what its zones are cut by."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions as F

from postroad.pipeline import match as matching
from postroad.pipeline import store
from postroad.pipeline import zones as zoning
from postroad.pipeline.run.job import Job, guarded, on_disk
from postroad.pipeline.schemas import PUBLICATIONS, SUBSCRIPTIONS


def zone_loads(
    subscriptions_path: str,
    publications_path: str,
    folder: str,
    job: Job,
    *,
    attributes: Sequence[str],
    alpha: float,
    weight: str | None = None,
) -> tuple[list[dict[str, Any]], list[float]]:
    """The points of a table of publications and the load of each, to cut Kyra's zones by. All
    executors must see the folder."""
    index = store.join(on_disk(folder), f".zones-{os.getpid()}.index")
    subscriptions_path, publications_path = map(
        store.absolute, (subscriptions_path, publications_path)
    )

    def act() -> tuple[list[dict[str, Any]], list[float]]:
        with job.session() as spark:
            held = store.read(spark, subscriptions_path, SUBSCRIPTIONS)
            always = F.lit(None).cast("bigint")  # zones are planned for all of them
            always_held = held.withColumns({"time_us": always, "until_us": always})
            matching.indexed(matching.held(always_held, "broker"), index).collect()
            publications = store.read(spark, publications_path, PUBLICATIONS)
            found = zoning.points(publications, index, held.count(), attributes, alpha, weight)
            rows = found.toArrow()
            order = sorted(zip(rows["point"].to_pylist(), rows["load"].to_pylist(), strict=True))
            return [json.loads(point) for point, _ in order], [load for _, load in order]

    try:
        return guarded(act)
    finally:
        store.remove_file(index)
