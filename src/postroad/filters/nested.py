"""Nested content as rows of plain attributes, for whoever reads JSON or the like.

A field of a field is the attribute `outer.inner`. An array stands for as many rows as it has
elements, as SQL's `UNNEST` and Spark's `explode` make of it, and a filter matches content if it is
TRUE of one of its rows. So all that filters know of each other (`covers`, `intersects`, normal
forms) stays as it is: they speak of rows.

The attributes of content with several rows are those that all rows share, and under `ROWS` the
rest, as a text: so they travel, and are kept, as any others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import islice, product
from typing import Any

import msgspec

from postroad.model import Scalar

ROWS = "$rows"  # no name that content can use
ROWS_MAX = 64  # of more, the first ones
DEPTH_MAX = 16  # fields of fields further down are no attributes,
FIELDS_MAX = 2_048  # nor are more than these below the first level, in all rows together
TEXT_MAX = 4_096  # characters: LIKE patterns take time in proportion to them
INT_MAX = 2**63  # MessagePack carries no more

Row = dict[str, Scalar]
_SCALARS = frozenset((str, int, float, bool))
_NESTED = frozenset((dict, list))
_decode = msgspec.json.Decoder(list[dict[str, str | int | float | bool]]).decode
_encode = msgspec.json.Encoder().encode


def is_scalar(value: object) -> bool:
    """Whether a value can be an attribute's."""
    kind = type(value)
    if kind is str:
        return len(value) <= TEXT_MAX  # type: ignore[arg-type]
    return kind in _SCALARS and (kind is not int or -INT_MAX <= value < INT_MAX)  # type: ignore[operator]


def flatten(document: Mapping[str, Any]) -> Row:
    """The attributes of content: what all its rows share, and the rows if there are several."""
    shared: Row = {}
    arrays: list[list[Row]] = []
    budget = _Budget()
    for name, value in document.items():
        if is_scalar(value):
            shared[name] = value
        elif type(value) is dict or type(value) is list:
            rows = budget.expand(name, value, 1)
            if len(rows) == 1:
                shared.update(rows[0])
            elif rows:
                arrays.append(rows)
    shared.pop(ROWS, None)
    if arrays:
        rows = [_joined(parts) for parts in islice(product(*arrays), ROWS_MAX)]
        if sum(map(len, rows)) > FIELDS_MAX:
            rows = rows[: max(1, FIELDS_MAX // max(map(len, rows)))]
        shared[ROWS] = _encode(rows).decode()
    return shared


def plain(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Content whose scalars are taken as they are, with what is nested as rows."""
    if _NESTED.isdisjoint(map(type, content.values())):
        return content
    deep = {name: value for name, value in content.items() if type(value) in _NESTED}
    return {name: value for name, value in content.items() if name not in deep} | flatten(deep)


class _Budget:
    def __init__(self) -> None:
        self.left = FIELDS_MAX

    def expand(self, name: str, value: Any, depth: int) -> list[Row]:
        """The rows of one field; one without attributes if it says nothing."""
        kind = type(value)
        if is_scalar(value):
            self.left -= 1
            return [{name: value}]
        if depth > DEPTH_MAX or self.left <= 0:
            return [{}]
        if kind is list:
            rows: list[Row] = []
            for element in value:
                if len(rows) >= ROWS_MAX or self.left <= 0:
                    break
                rows += self.expand(name, element, depth + 1)
            return rows[:ROWS_MAX] or [{}]
        if kind is not dict:
            return [{}]
        shared: Row = {}
        arrays: list[list[Row]] = []
        for inner, part in value.items():
            if self.left <= 0:
                break
            self.left -= 1
            rows = self.expand(f"{name}.{inner}", part, depth + 1)
            if len(rows) == 1:
                shared.update(rows[0])
            else:
                arrays.append(rows)
        if not arrays:
            return [shared]
        combined = [_joined((shared, *parts)) for parts in islice(product(*arrays), ROWS_MAX)]
        self.left -= sum(map(len, combined))
        return combined


def _joined(parts: tuple[Row, ...]) -> Row:
    row: Row = {}
    for part in parts:
        row.update(part)
    return row


@lru_cache(maxsize=64)
def _read(text: str) -> list[Row]:
    try:
        rows = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return []
    return rows[:ROWS_MAX]


def in_rows(attributes: Mapping[str, Scalar], names: Collection[str]) -> str | None:
    """Which of these names has a value in rows alone, if any: there it may have several."""
    if ROWS not in attributes:
        return None
    inside = {name for row in rows_of(attributes) for name in row}
    return next((n for n in sorted(names) if n in inside and n not in attributes), None)


def rows_of(attributes: Mapping[str, Scalar | None]) -> list[dict[str, Scalar | None]]:
    """The rows of content that has several."""
    text = attributes[ROWS]
    shared = {name: value for name, value in attributes.items() if name != ROWS}
    rows = _read(text) if isinstance(text, str) else []
    return [{**row, **shared} for row in rows] or [shared]
