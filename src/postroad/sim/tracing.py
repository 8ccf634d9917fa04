"""A simulated run's traces, in the schema of live brokers.

Rows of all brokers go into one series of files, in the order of the run. Times count from the
moment the network had settled, so what was there from the beginning has times below 0.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from postroad.model import BrokerId, TimeUs
from postroad.overlay.transit_stub import places
from postroad.routing import SCHEMES
from postroad.routing.base import Input, Publish, Received
from postroad.sim.scenario import Scenario
from postroad.traces.files import Files
from postroad.traces.recorder import Recorder
from postroad.traces.schema import Recording, Row

ROWS_MAX = 50_000  # gathered before they are written


class Tracing:
    """Records what a `Simulator` does; `rows` are those not yet written, all without `files`."""

    def __init__(
        self, scenario: Scenario, trace_id: str, recording: Recording, files: Files | None = None
    ) -> None:
        names = places(scenario.overlay)
        self.recorders = [
            Recorder(trace_id, names, broker, recording) for broker in range(len(names))
        ]
        self.names, self.files = names, files
        self.rows: list[Row] = []
        self.settled = False
        self._description = description(scenario)
        for recorder in self.recorders:
            recorder.rows = self.rows
            recorder.started(self._description, 0)

    def has_settled(self, zero_us: TimeUs) -> None:
        """Times count from here."""
        self.settled = True
        for row in self.rows:
            row.time_us = min(row.time_us - zero_us, -1)
        for recorder in self.recorders:
            recorder.zero_us = zero_us

    def stepped(self) -> None:
        if self.files is not None and self.settled and len(self.rows) >= ROWS_MAX:
            self.files.write(self.rows, 0)
            self.rows.clear()

    def finish(self) -> None:
        if self.files is not None:
            self.files.write(self.rows, 0)
            self.rows.clear()
            self.files.close()

    def stopped(
        self, broker: BrokerId, input: Input, reason: str, now: TimeUs, peer: BrokerId | None = None
    ) -> None:
        """An input was lost, with the publications that it carries."""
        recorder = self.recorders[broker]
        if isinstance(input, Publish):  # its router never had it
            recorder.published(input.publication, now)
            recorder.stopped(input.publication, reason, now)
        elif isinstance(input, Received):
            recorder.lost(input.message, reason, now, peer)

    def crashed(self, broker: BrokerId, now: TimeUs) -> None:
        self.recorders[broker].crashed(now)

    def restarted(self, broker: BrokerId, now: TimeUs) -> None:
        self.recorders[broker].started(self._description, now)


def description(scenario: Scenario) -> dict[str, Any]:
    """All that a replay needs to know of a simulated network."""
    overlay = scenario.overlay
    config = scenario.config or SCHEMES[scenario.scheme].config()
    moving = scenario.relocation_config
    return {
        "name": "",
        "scheme": scenario.scheme,
        "parameters": dataclasses.asdict(config),
        "relocation": scenario.relocation,
        "relocation_parameters": {} if moving is None else dataclasses.asdict(moving),
        "seed": scenario.seed,
        "brokers": list(overlay.names),
        "links": [[overlay.names[a], overlay.names[b]] for a, b in overlay.ends.tolist()],
        "latency_us": overlay.latency_us.tolist(),
        "service_us": scenario.service_us,
        "services_us": list(scenario.services_us),
        "costs": dataclasses.asdict(scenario.costs),
        "copy_us": scenario.copy_us,
        "plan": None,
        "redundant": False,
    }


def to_folder(scenario: Scenario, folder: Path, sample: float) -> Tracing:
    """Traces that go to files in a folder; their run is named after it."""
    name = folder.resolve().name
    for old in folder.glob(f"traces-{name}-*.jsonl"):  # of an earlier run
        old.unlink()
    recording = Recording(str(folder), sample=sample, file_s=float("inf"), keep_s=float("inf"))
    return Tracing(scenario, name, recording, Files(folder, name, recording, 0))
