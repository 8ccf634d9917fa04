"""How long GRAPE takes to choose among many candidate brokers (paper: under 70 ms for 63)."""

from __future__ import annotations

from time import perf_counter

from postroad import draws
from postroad.relocation.selection import TraceReport, estimates, packed, select


def reports(count: int, bits: int, seed: int = 1) -> list[TraceReport]:
    """Answers of a random tree of brokers, each with some of a session's publications."""
    delays: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for child in range(1, count):
        parent = draws.below(child, seed, "bench.parent", child, 0)
        delays[child].append((parent, 1000))
        delays[parent].append((child, 1000))
    answers = []
    for broker in range(count):
        vector = 0
        for word in range(0, bits, 64):
            vector |= draws.bits(seed, "bench.bits", broker, word) << word
        vector &= (1 << bits) - 1
        answers.append(
            TraceReport(broker, packed(vector), vector.bit_count(), 100, tuple(delays[broker]))
        )
    return answers


def main() -> None:
    print("GRAPE's selection, all candidates by re-rooting; best of 50")
    print(f"{'candidates':>10} {'bits':>6} {'ms':>8}")
    for count, bits in ((63, 100), (1000, 100), (1000, 12_800), (10_000, 100)):
        answers = reports(count, bits)
        pings = {report.broker: report.broker % 50 for report in answers}
        best = float("inf")
        for _ in range(50):
            began = perf_counter()
            select(estimates(answers, pings), "load", 75, 0)
            best = min(best, perf_counter() - began)
        print(f"{count:>10,} {bits:>6,} {best * 1000:>8.2f}")


if __name__ == "__main__":
    main()
