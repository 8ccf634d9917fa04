"""Spans arrive at a collector, through the official exporter and a real connection."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from click.testing import CliRunner
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from postroad.cli import cli
from postroad.traces.files import Files
from postroad.traces.schema import Recording, Row


def test_a_publication_is_a_trace_at_the_collector(tmp_path: Path) -> None:
    requests: list[ExportTraceServiceRequest] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, format: str, *args: object) -> None:
            pass

    rows = [
        Row("net", "A", 1, 1, "publish", 1000, publisher="p", publication="1", attributes="{}"),
        Row("net", "A", 1, 2, "send", 1001, peer="B", publisher="p", publication="1"),
        Row("net", "B", 1, 1, "receive", 1500, peer="A", publisher="p", publication="1"),
        Row("net", "B", 1, 2, "stop", 1501, publisher="p", publication="1", reason="queue full"),
    ]
    files = Files(tmp_path / "traces", "A", Recording("traces"), 0)
    files.write(rows, 0)
    files.close()
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}/v1/traces"
        done = CliRunner().invoke(cli, ["otlp", str(tmp_path / "traces"), "--endpoint", endpoint])
        server.shutdown()
    assert done.exit_code == 0, done.output
    spans = {
        span.name: span
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    first, second = spans["publish A"], spans["forward B"]
    assert first.trace_id == second.trace_id
    assert second.parent_span_id == first.span_id
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == (1_000_000, 1_001_000)
    assert second.status.message == "queue full"
    assert [event.name for event in second.events] == ["stop"]
