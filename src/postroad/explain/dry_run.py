"""What a live network would do with a publication that is not sent.

Brokers are asked one after the other, as the publication would go: each says what it would send
and deliver, and what it would send is put to those it is for. Nothing changes anywhere.
"""

from __future__ import annotations

import dataclasses
import json
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from postroad.errors import RunFailed
from postroad.live.network import Network
from postroad.live.operations.launch import credentials
from postroad.model import Scalar

VISITS_MAX = 10_000  # of brokers, in all: what goes round in a circle must end
SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Stop:
    """One broker that the publication would come to."""

    broker: str
    hops: int
    came_from: str | None
    sent_to: list[str]
    deliveries: list[dict[str, str | None]]  # subscription, client, and why it would stop or wait
    holds: bool
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DryRun:
    attributes: dict[str, Scalar]
    stops: list[Stop]
    unreachable: list[str]  # brokers that did not answer

    @property
    def deliveries(self) -> list[dict[str, str | None]]:
        return [one for stop in self.stops for one in stop.deliveries]

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "deliveries": self.deliveries}


Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]


def dry_run(network: Network, broker: str, publisher: str, attributes: dict[str, Scalar]) -> DryRun:
    """Where a publication of a client at this broker, or one of its workers, would go."""
    inside = network.expanded()
    inside.number(broker)  # complains if there is none

    def ask(name: str, question: Mapping[str, Any]) -> dict[str, Any]:
        url = f"{inside.url(inside.number(name))}/would"
        data, headers = json.dumps(question).encode(), credentials(network)
        request = urllib.request.Request(url, data, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                effects: dict[str, Any] = json.load(answer)
                return effects
        except urllib.error.HTTPError as error:
            raise RunFailed(f"broker {name}: {error.read().decode().strip()}") from None

    return walk(ask, broker, {"publisher": publisher, "attributes": attributes}, attributes)


def walk(
    ask: Ask, broker: str, question: Mapping[str, Any], attributes: dict[str, Scalar]
) -> DryRun:
    """Ask broker after broker; `ask` raises `OSError` for one that does not answer."""
    stops: list[Stop] = []
    unreachable: list[str] = []
    queue: deque[tuple[str, str | None, int, Mapping[str, Any]]] = deque()
    queue.append((broker, None, 0, question))
    while queue:
        name, sender, hops, question = queue.popleft()
        try:
            effects = ask(name, question)
        except OSError:
            if name not in unreachable:
                unreachable.append(name)
            continue
        sends = effects["sends"]
        stops.append(
            Stop(
                name, hops, sender, [send["peer"] for send in sends], effects["deliveries"],
                effects["holds"], effects["notes"],
            )
        )  # fmt: skip
        if len(stops) > VISITS_MAX:
            raise RunFailed(
                f"it would come to more than {VISITS_MAX:,} brokers: it goes in a circle"
            )
        for send in sends:
            message = {"message": send["message"], "sender": name}
            queue.append((send["peer"], name, hops + 1, message))
    return DryRun(attributes, stops, unreachable)
