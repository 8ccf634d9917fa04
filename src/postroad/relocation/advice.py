"""Where publishers should connect, from what was delivered where, without moving anyone.

GRAPE's estimates over a whole recorded run: each publisher's publications are one trace session,
and every broker of the tree is a candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from postroad.model import BrokerId, TimeUs
from postroad.overlay import Overlay
from postroad.relocation.selection import TraceReport, estimates, packed, select

Delivered = tuple[str, str, BrokerId]
"""Publisher, publication, and the broker of the subscriber it was delivered to."""


@dataclass(frozen=True)
class Advice:
    """Where a publisher is, where it should be, and both metrics at the two places."""

    publisher: str
    current: BrokerId
    target: BrokerId
    publications: int
    deliveries: int
    load: int  # messages into brokers
    load_then: int
    delay_us: TimeUs  # the average of a delivery
    delay_us_then: TimeUs


def advise(
    overlay: Overlay,
    homes: Mapping[str, BrokerId],
    delivered: Iterable[Delivered],
    priority: str,
    weight: float,
    match_us: TimeUs = 0,
) -> list[Advice]:
    """The best broker for every publisher that something of was delivered, by name."""
    numbers: dict[str, dict[str, int]] = {}
    bits: dict[str, dict[BrokerId, int]] = {}
    counts: dict[str, dict[BrokerId, int]] = {}
    for publisher, publication, broker in delivered:
        seen = numbers.setdefault(publisher, {})
        number = seen.setdefault(publication, len(seen))
        vector = bits.setdefault(publisher, {})
        vector[broker] = vector.get(broker, 0) | 1 << number
        count = counts.setdefault(publisher, {})
        count[broker] = count.get(broker, 0) + 1
    ways = [
        tuple((peer, match_us + latency_us) for peer, latency_us in peers.items())
        for peers in overlay.neighbours()
    ]
    advice = []
    for publisher in sorted(numbers):
        home = homes[publisher]
        # The first report is the root's, and the tree has no other order.
        brokers = [home, *(broker for broker in range(overlay.brokers_count) if broker != home)]
        reports = [
            TraceReport(
                broker,
                packed(bits[publisher].get(broker, 0)),
                counts[publisher].get(broker, 0),
                match_us,
                ways[broker],
            )
            for broker in brokers
        ]
        candidates = estimates(reports, pings_us(overlay, home))
        best = select(candidates, priority, weight, home)
        total = sum(counts[publisher].values())
        now = candidates[0]
        advice.append(
            Advice(
                publisher,
                home,
                best.broker,
                len(numbers[publisher]),
                total,
                now.load,
                best.load,
                now.delay_us // total,
                best.delay_us // total,
            )
        )
    return advice


def pings_us(overlay: Overlay, home: BrokerId) -> dict[BrokerId, TimeUs]:
    """From beside a broker to every broker: directly if that is known, else along the tree."""
    if overlay.direct_us is not None:
        times = [int(time_us) for time_us in overlay.direct_us[home]]
    else:
        times = overlay.path_us(home)
    return dict(enumerate(times)) | {home: 0}
