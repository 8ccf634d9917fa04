"""What Kyra's zones are cut by, from tables of any size: where publications lie, and their load.

Publications with the same values of the attributes that zones are cut on are one point. Its load is
the sum of popularity^α · weight (`planning/zones.py`), where popularity is the share of all
subscriptions that match, by the compiled index (`match`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from postroad.errors import InputError
from postroad.pipeline.match import answers, mapped
from postroad.pipeline.schemas import LONG, PUBLICATIONS, REAL, TEXT, conform, table

POPULAR = table(point=TEXT, matches=LONG, weight=REAL)
POINTS = table(point=TEXT, load=REAL)
POINTS_MAX = 100_000
"""A task passes its points on when it has so many."""
Known = dict[tuple[str, int], float]


def points(
    publications: DataFrame,
    index: str,
    subscriptions: int,
    attributes: Sequence[str],
    alpha: float,
    weight: str | None,
) -> DataFrame:
    """Each point, a JSON object, with its load. `index` is by broker; `weight` is an attribute."""
    written = Path(index).stat().st_mtime_ns
    count = partial(_popular, index, written, tuple(attributes), weight)
    counted = publications.select(*PUBLICATIONS.names).mapInArrow(count, POPULAR)
    popularity = F.col("matches") / max(1, subscriptions)
    load = F.sum(F.pow(popularity, F.lit(alpha)) * F.col("weight"))
    return conform(counted.groupBy("point").agg(load.alias("load")), POINTS)


def _popular(
    index: str,
    written: int,
    attributes: Sequence[str],
    weight: str | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    held = mapped(index, written)
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode

    def key(content: dict[str, object]) -> str:
        point = {name: content[name] for name in attributes if content.get(name) is not None}
        return encode([point, 1.0 if weight is None else _weight(content, weight)]).decode()

    known: Known = {}
    for batch in batches:
        for _, _, ends, times, keys in answers(held, batch, key):
            added = np.concatenate([[0], np.cumsum(times)])
            matches = np.diff(added[ends], prepend=0)
            for text, many in zip(keys, matches.tolist(), strict=True):
                point, heavy = decode(text)
                name = encode(point).decode(), many
                known[name] = known.get(name, 0.0) + heavy
            if len(known) > POINTS_MAX:
                yield _rows(known)
                known = {}
    if known:
        yield _rows(known)


def _weight(content: dict[str, object], name: str) -> float:
    value = content.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise InputError(
            f"a publication has {name} = {value!r}",
            remedy=f"give every publication a {name} of 0 or more",
        )
    return float(value)


def _rows(known: Known) -> pa.RecordBatch:
    columns = {
        "point": [point for point, _ in known],
        "matches": [matches for _, matches in known],
        "weight": list(known.values()),
    }
    return pa.RecordBatch.from_pydict(columns, schema=to_arrow_schema(POPULAR))
