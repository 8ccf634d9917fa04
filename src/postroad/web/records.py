"""What was recorded, as the page asks for it: publications and their ways, minutes, replays.

Trace files are read as they are completed, each once. The newest `BYTES` of them are held in
memory; of older ones only what stood (subscriptions, links, brokers). `Records` is not
thread-safe: one question at a time.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroad.errors import InputError
from postroad.explain.filters import explain_filter
from postroad.explain.history import History
from postroad.explain.predicates import misses
from postroad.explain.why import explain, way
from postroad.filters import intersects, matches, parse
from postroad.model import TimeUs
from postroad.replay import announced, report, whatif
from postroad.replay import recorded as recordings
from postroad.sim.run import Result, run
from postroad.traces import files
from postroad.traces.schema import Row

BYTES = 64 << 20
CONTROL_MAX = 200_000  # rows of older files
REPLAYED_MAX = 5_000  # publications
LISTED_MAX = 100
TRIED_MAX = 2_000  # publications that a filter is held against one by one
MINUTE_US = 60_000_000


@dataclass
class _File:
    size: int
    rows: list[Row]
    whole: bool = True  # also publications


class Records:
    def __init__(self, folder: Path, trace_id: str, keep_bytes: int = BYTES) -> None:
        self.folder, self.trace_id, self.keep_bytes = folder, trace_id, keep_bytes
        self._files: dict[Path, _File] = {}
        self._history: History | None = None

    def refresh(self) -> History:
        """Take up what has been written since; `InputError` while there is nothing."""
        try:
            paths = files.paths(self.folder, hidden=True)
        except InputError:
            paths = []
        changed = False
        for path in paths:
            try:
                size = path.stat().st_size
            except OSError:
                continue  # completed or removed meanwhile; the next look sees it
            known = self._files.get(path)
            if known is None or known.size != size:
                self._files[path] = _File(size, list(self._rows(path)))
                changed = True
        for path in [path for path in self._files if path not in {*paths}]:
            del self._files[path]
            changed = True
        if changed or self._history is None:
            self._trim()
            self._history = History(self._joined())
        if not self._history.rows:
            raise InputError(
                "nothing is recorded yet",
                where=str(self.folder),
                remedy="publish something; files are complete after traces.file_s seconds",
            )
        return self._history

    def _rows(self, path: Path) -> list[Row]:
        try:
            return [row for row in files.rows(path) if row.trace_id == self.trace_id]
        except OSError:
            return []

    def _trim(self) -> None:
        """Forget publications of the oldest files beyond `keep_bytes`."""
        by_age = sorted(
            self._files.values(), key=lambda file: file.rows[0].time_us if file.rows else 0
        )
        size = control = 0
        for file in reversed(by_age):
            size += file.size
            if size > self.keep_bytes and file.whole:
                file.rows = [row for row in file.rows if row.publication is None]
                file.whole = False
            if not file.whole:
                control += len(file.rows)
                if control > CONTROL_MAX:
                    file.rows = []

    def _joined(self) -> list[Row]:
        rows = {row.key: row for file in self._files.values() for row in file.rows}
        return sorted(rows.values(), key=lambda row: row.time_us)

    # Questions.

    def publications(self, search: str, limit: int = LISTED_MAX) -> list[dict[str, Any]]:
        """The newest publications whose publisher or content has the text."""
        history = self.refresh()
        rows: list[dict[str, Any]] = []
        for row in reversed(history.rows):
            if len(rows) >= limit:
                break
            if (
                row.kind == "publish"
                and search in f"{row.publisher}/{row.publication} {row.attributes}"
            ):
                rows.append(
                    {
                        "publication": f"{row.publisher}/{row.publication}",
                        "broker": row.broker,
                        "time_us": row.time_us,
                        "attributes": _attributes(row),
                    }
                )
        return rows

    def topics(self, search: str, limit: int = LISTED_MAX) -> list[dict[str, Any]]:
        """Topics that were published to, the busiest first."""
        counts: Counter[str] = Counter()
        for row in self.refresh().rows:
            if row.kind == "publish":
                topic = str(_attributes(row).get("class", ""))
                if search in topic:
                    counts[topic] += 1
        return [{"topic": t, "publications": n} for t, n in counts.most_common(limit)]

    def way(self, publication: str, client: str | None) -> dict[str, Any]:
        """How a publication went, and why a client did or did not get it."""
        history = self.refresh()
        name, rows, visits = way(history, publication)
        if not rows:
            raise InputError(
                f"no publication {publication!r} was recorded",
                remedy="give PUBLISHER/ID, or a publisher for its last one",
            )
        published = next((row for row in rows if row.kind == "publish"), None)
        answer = None if not client else explain(history, name, client).to_json()
        return {
            "publication": name,
            "attributes": {} if published is None else _attributes(published),
            "time_us": rows[0].time_us,
            "visits": [dataclasses.asdict(visit) for visit in visits],
            "deliveries": [
                {
                    "client": held.client,
                    "subscription": row.subscription,
                    "broker": row.broker,
                    "after_us": row.time_us - rows[0].time_us,
                    "hops": row.hops,
                    "mechanism": row.mechanism,
                }
                for row in rows
                if row.kind == "deliver"
                and (held := history.subscriptions.get(str(row.subscription))) is not None
            ],
            "stops": [
                {"broker": row.broker, "peer": row.peer, "client": row.client, "reason": row.reason}
                for row in rows
                if row.kind == "stop"
            ],
            "answer": answer,
        }

    def test(self, text: str) -> dict[str, Any]:
        """A filter, held against the newest publications and against what clients asked for."""
        filter = parse(text)
        history = self.refresh()
        verdict = explain_filter(history, filter).to_json()
        tried: list[dict[str, Any]] = []
        for row in reversed(history.rows):
            if row.kind != "publish" or row.attributes is None:
                continue
            attributes = _attributes(row)
            wrong = misses(filter, attributes)
            tried.append(
                {
                    "publication": f"{row.publisher}/{row.publication}",
                    "attributes": attributes,
                    "matches": matches(filter, attributes),
                    "misses": [
                        {"attribute": m.attribute, "predicate": m.predicate, "text": str(m)}
                        for m in wrong
                    ],
                }
            )
            if len(tried) >= TRIED_MAX:
                break
        tried.sort(key=lambda one: (not one["matches"], len(one["misses"])))
        alike = [
            {"client": held.client, "broker": held.broker, "filter": held.text}
            for held in history.subscriptions.values()
            if held.until_us is None and intersects(filter, history.filter(held.text))
        ]
        return {
            "filter": str(filter),
            "verdict": verdict,
            "tried": tried[:LISTED_MAX],
            "tried_count": len(tried),
            "alike": alike[:LISTED_MAX],
            "alike_count": len(alike),
        }

    def minutes(self) -> dict[str, Any]:
        """For the slider: what was published and sent in each minute that is held."""
        history = self.refresh()
        published: Counter[int] = Counter()
        sent: Counter[int] = Counter()
        for row in history.rows:
            if row.kind == "publish":
                published[row.time_us // MINUTE_US] += 1
            elif row.kind == "send" and not row.part and row.publication is not None:
                sent[row.time_us // MINUTE_US] += 1
        if not published and not sent:
            raise InputError("no publications are recorded yet", remedy="publish something")
        held = sorted({*published, *sent})
        return {
            "minutes": [
                {"at_us": n * MINUTE_US, "publications": published[n], "messages": sent[n]}
                for n in range(held[0], held[-1] + 1)
            ],
            "scheme": history.description.get("scheme"),
            "partial": any(not file.whole for file in self._files.values()),
        }

    def minute(self, at_us: TimeUs, width_us: TimeUs = MINUTE_US) -> dict[str, Any]:
        """What crossed each link in a stretch, and what each broker did."""
        history = self.refresh()
        links: Counter[tuple[str, str]] = Counter()
        brokers: dict[str, Counter[str]] = defaultdict(Counter)
        down: set[str] = set()
        for row in _within(history.rows, at_us, width_us):
            if row.publication is not None and not row.part:
                brokers[row.broker][row.kind] += 1
                if row.kind == "send":
                    links[row.broker, str(row.peer)] += 1
            elif row.kind in ("start", "end"):
                down.add(row.broker)
        return {
            "at_us": at_us,
            "links": [{"a": a, "b": b, "messages": n} for (a, b), n in sorted(links.items())],
            "brokers": {name: dict(counts) for name, counts in sorted(brokers.items())},
            "restarted": sorted(down),
        }

    def replay(self, at_us: TimeUs, width_us: TimeUs, schemes: list[str]) -> dict[str, Any]:
        """The publications of a stretch again, under each scheme."""
        history = self.refresh()
        inside = {id(row) for row in _within(history.rows, at_us, width_us)}
        rows = [row for row in history.rows if row.publication is None or id(row) in inside]
        recorded = recordings.from_rows(rows)
        base = recorded.scenario
        left_out = max(0, len(base.workload.postings) - REPLAYED_MAX)
        if left_out:
            workload = dataclasses.replace(
                base.workload, postings=base.workload.postings[:REPLAYED_MAX]
            )
            base = dataclasses.replace(base, workload=workload)
        base = dataclasses.replace(base, faults=())
        sides = []
        for scheme in schemes:
            changed = base
            if scheme != base.scheme:
                changed = announced.in_time(whatif.under(base, scheme, (), None))
            result = run(changed)
            sides.append(
                {
                    "scheme": scheme,
                    "figures": report.figures(result),
                    "links": _links(result),
                    "brokers": report.broker_load(result),
                }
            )
        return {
            "at_us": at_us,
            "recorded_scheme": recorded.scenario.scheme,
            "sides": sides,
            "left_out": left_out,
            "warnings": recorded.warnings,
        }


def _links(result: Result) -> list[dict[str, Any]]:
    """Messages with publications over each link, each way."""
    names = result.scenario.overlay.names
    return [
        {"a": names[link.source], "b": names[link.target], "messages": sum(link.messages.values())}
        for link in result.links
        if sum(link.messages.values())
    ]


def _within(rows: Any, at_us: TimeUs, width_us: TimeUs) -> list[Row]:
    return [row for row in rows if at_us <= row.time_us < at_us + width_us]


def _attributes(row: Row) -> dict[str, Any]:
    attributes: dict[str, Any] = json.loads(row.attributes or "{}")
    return attributes
