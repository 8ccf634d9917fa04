"""How long publications take to their subscribers, as a histogram."""

from __future__ import annotations

from bisect import bisect_left

from postroad.model import TimeUs

BOUNDS_US = (
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
)  # fmt: skip
TIMED = 16  # of so many publications one is timed: the clock is the turn's, but sums take time


class Latency:
    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_US) + 1)
        self.sum_us = 0
        self.handed = 0  # publications; who hands out one counts it here, to add one in `TIMED`

    def sample(self, took_us: TimeUs, count: int) -> None:
        """So many publications were handed out so long after they were published."""
        before, self.handed = self.handed, self.handed + count
        self.add(took_us, self.handed // TIMED - before // TIMED)

    def add(self, took_us: TimeUs, times: int = 1) -> None:
        took_us = max(0, took_us)  # clocks of two brokers may differ
        self.counts[bisect_left(BOUNDS_US, took_us)] += times
        self.sum_us += times * took_us

    def cumulated(self) -> tuple[list[tuple[str, float]], float]:
        """Buckets as Prometheus has them, and the sum in seconds."""
        total = 0.0
        buckets = []
        bounds = [*(str(bound / 1e6) for bound in BOUNDS_US), "+Inf"]
        for bound, count in zip(bounds, self.counts, strict=True):
            total += count
            buckets.append((bound, total))
        return buckets, self.sum_us / 1e6
