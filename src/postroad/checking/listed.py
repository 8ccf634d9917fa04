"""Subscriptions and publications as a check reads them: from files or from traces, with places."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroad.checking.findings import WARNING, Finding, refused
from postroad.errors import FilterError, InputError
from postroad.explain.history import History
from postroad.filters import Filter
from postroad.traces.schema import Row
from postroad.workloads import files


@dataclass(frozen=True, slots=True)
class Listed:
    """A subscription. `key` finds it in another file: by its id, or by its place among those of
    its client that have none."""

    key: tuple[str, str]
    id: str
    client: str
    broker: str
    filter: Filter
    where: str


def subscriptions(
    path: Path, brokers: Sequence[str] | None = None
) -> tuple[list[Listed], list[Finding]]:
    """Those of a file, and what is wrong with other rows. Without `brokers`, they may name any."""
    rows = list(files.file_rows(path))
    names = _brokers(rows, brokers)
    findings = [] if rows else [_empty(path, "subscription")]
    workload = files.workload(
        {"subscriptions": rows}, names, lambda error: findings.append(refused(error, str(path)))
    )
    places: dict[str, tuple[str, bool]] = {}
    for position, (where, row) in enumerate(rows):
        if not isinstance(row, InputError):
            named = row.get("id") is not None
            places.setdefault(str(row["id"]) if named else f"s{position}", (where, named))
    listed = []
    counts: Counter[str] = Counter()
    for one in workload.subscriptions:
        where, named = places[one.id]
        key = ("id", one.id)
        if not named:
            counts[one.client] += 1
            key = (one.client, str(counts[one.client]))
        listed.append(Listed(key, one.id, one.client, names[one.broker], one.filter, where))
    return listed, findings


def publications(
    path: Path, brokers: Sequence[str] | None = None
) -> tuple[list[Row], list[Finding]]:
    """Those of a file as rows of a trace, and what is wrong with other rows."""
    rows = list(files.file_rows(path))
    names = _brokers(rows, brokers)
    findings = [] if rows else [_empty(path, "publication")]
    workload = files.workload(
        {"publications": rows}, names, lambda error: findings.append(refused(error, str(path)))
    )
    return [
        Row(
            path.name, names[one.broker], 0, number, "publish", one.time_us, client=one.publisher,
            publisher=one.publisher, publication=one.id, published_us=one.time_us,
            attributes=json.dumps(one.attributes),
        )
        for number, one in enumerate(workload.postings, 1)
    ], findings  # fmt: skip


def recorded(history: History, where: str) -> tuple[list[Listed], list[Finding]]:
    """The subscriptions that a trace has, ended or not."""
    listed, findings = [], []
    for one in history.subscriptions.values():
        try:
            filter = history.filter(one.text)
        except FilterError as error:
            findings.append(refused(error.at(f"{where}: {one.id}")))
            continue
        place = f"{where}: {one.id}"
        listed.append(Listed(("id", one.id), one.id, one.client, one.broker, filter, place))
    return listed, findings


def _empty(path: Path, what: str) -> Finding:
    return Finding(
        WARNING, "empty", f"there is no {what} in it", str(path), None,
        "name the file that has them",
    )  # fmt: skip


def _brokers(
    rows: Sequence[tuple[str, dict[str, Any] | InputError]], brokers: Sequence[str] | None
) -> tuple[str, ...]:
    if brokers is not None:
        return tuple(brokers)
    named = (row.get("broker") for _, row in rows if not isinstance(row, InputError))
    return tuple(dict.fromkeys(str(name) for name in named if name is not None))
