"""A live broker's traces: its recorder, and the files that the rows go to.

`published_us` is the clock of the publisher's broker: across machines, latency is as good as
their clocks agree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from postroad.live.edge.session import Held
from postroad.live.links.secret import load as load_secret
from postroad.live.links.tree import TreeId
from postroad.live.network import Network
from postroad.model import BrokerId, Subscription, SubscriptionId, TimeUs
from postroad.traces.files import Files
from postroad.traces.recorder import Recorder

LOAD_US = 5_000_000  # how often a broker's load is recorded


class Traces(Recorder):
    def __init__(self, network: Network, number: BrokerId, now: TimeUs) -> None:
        assert network.traces is not None
        key = b"" if network.secret is None else load_secret(network.secret)
        super().__init__(network.name, network.names, number, network.traces, now, key)
        self.files = Files(Path(network.traces.folder), self.broker, network.traces, now)
        self.started(network.description(), now)
        self._loaded_us = now - LOAD_US  # at once
        self.holders: Mapping[SubscriptionId, Held] = {}  # the broker's, once it is there

    def more(self, subscription: Subscription) -> dict[str, Any]:
        """What the client's session adds to a subscription."""
        held = self.holders.get(subscription.id)
        if held is None:
            return {}
        detail = {"topic": held.pattern, "qos": held.terms.qos, "no_local": held.terms.no_local}
        return {
            "session": held.session.name,
            "reason": None if held.terms.within is None else "narrowed by rights",
            "detail": json.dumps({**detail, "within": held.terms.within}),
        }

    def tree(self, epoch: TreeId, links: list[str], now: TimeUs) -> None:
        self.row("tree", now, epoch=epoch[0], detail=json.dumps({"id": epoch, "links": links}))

    def load_due(self, now: TimeUs) -> bool:
        """Whether it is time to record the load again; if so, it is said once."""
        due = now - self._loaded_us >= LOAD_US
        if due:
            self._loaded_us = now
        return due

    def reload(self, network: Network) -> None:
        assert network.traces is not None
        self.names = network.names
        self.configure(network.traces)
        self.files.recording = network.traces

    def status(self) -> dict[str, Any]:
        return {**self.files.status(), "sample": self.recording.sample}

    def flush(self, now: TimeUs) -> None:
        self.files.write(self.take(), now)

    def close(self, reason: str, now: TimeUs) -> None:
        self.row("end", now, reason=reason)
        self.flush(now)
        self.files.close()
