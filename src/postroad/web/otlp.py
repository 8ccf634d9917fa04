"""Spans of recorded publications to an OpenTelemetry collector, through the official exporter."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from postroad import __version__
from postroad.errors import RunFailed
from postroad.explain.spans import Collector, PublicationSpan
from postroad.traces import files

SETTLE_US = 15_000_000  # after its last row a publication is over; files complete every 5 s
BATCH = 512
LOOK_S = 2.0


def export(source: Path, endpoint: str, follow: bool) -> Iterator[int]:
    """Send what is recorded, and with `follow` what will be; yields how many spans were sent."""
    exporter = OTLPSpanExporter(endpoint=endpoint)
    collector = Collector(SETTLE_US)
    known: set[Path] = set()
    sent = 0
    try:
        while True:
            paths = files.paths(source)
            for path in paths:
                if path not in known:
                    collector.add(files.rows(path))
            known = set(paths)
            spans = collector.take(all=not follow)
            for n in range(0, len(spans), BATCH):
                _send(exporter, spans[n : n + BATCH], endpoint)
            sent += len(spans)
            yield sent
            if not follow:
                return
            time.sleep(LOOK_S)
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]


def _send(exporter: OTLPSpanExporter, spans: Sequence[PublicationSpan], endpoint: str) -> None:
    if exporter.export([_readable(span) for span in spans]) is not SpanExportResult.SUCCESS:
        raise RunFailed(f"the collector at {endpoint} does not take spans")


def _readable(span: PublicationSpan) -> ReadableSpan:
    return ReadableSpan(
        span.name,
        context=_context(span.trace, span.id),
        parent=None if span.parent is None else _context(span.trace, span.parent),
        resource=Resource({"service.name": "postroad", "service.instance.id": span.broker}),
        attributes=span.attributes,
        events=[Event(each.name, each.attributes, each.time_us * 1000) for each in span.happenings],
        kind=SpanKind.PRODUCER if span.parent is None else SpanKind.CONSUMER,
        status=Status(StatusCode.UNSET if span.failed is None else StatusCode.ERROR, span.failed),
        start_time=span.start_us * 1000,
        end_time=span.end_us * 1000,
        instrumentation_scope=InstrumentationScope("postroad", __version__),
    )


def _context(trace: int, id: int) -> SpanContext:
    return SpanContext(trace, id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
