"""What several workers say of themselves, as one broker would say it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from postroad.live.edge.latency import Latency

SUMMED = (
    "cpu_s", "connections", "sessions", "subscriptions", "table_entries", "waiting", "in_flight",
    "held_bytes", "bytes_received", "bytes_sent", "moves", "published", "delivered", "dropped",
    "refused", "slowed", "notes",
)  # fmt: skip
OF_EACH = ("pid", "cpu_s", "connections", "subscriptions", "published", "delivered", "lag_us")


def status(
    broker: str, rows: Mapping[str, Mapping[str, Any] | None], refused: int
) -> dict[str, Any]:
    """One broker's status, of its workers' by name, the first first; None of one that is away.

    Links are those to other brokers. `workers` says which worker is up, joined to the first, and
    what each does. Of those away nothing is known, so sums are of the others.
    """
    told = [row for row in rows.values() if row is not None]
    first = rows[broker] or {**told[0], "links": {}}
    one: dict[str, Any] = {
        **first,
        "broker": broker,
        **{key: sum(row[key] for row in told) for key in SUMMED},
        "retained": max(row["retained"] for row in told),
        "groups": max(row["groups"] for row in told),
        "lag_us": max(row["lag_us"] for row in told),
        "congested": any(row["congested"] for row in told),
        "draining": any(row["draining"] for row in told),
        "reloads": min(row["reloads"] for row in told),
        "reload_error": next((row["reload_error"] for row in told if row["reload_error"]), None),
        "links": {peer: link for peer, link in first["links"].items() if peer not in rows},
        "workers": {
            name: None
            if row is None
            else {"up": _up(name, broker, row), **{key: row[key] for key in OF_EACH}}
            for name, row in rows.items()
        },
    }
    one["cpu_s"] = round(one["cpu_s"], 3)
    one["refused"] += refused
    if "traces" in first:
        traces = [row["traces"] for row in told]
        one["traces"] = {
            **first["traces"],
            "error": next((each["error"] for each in traces if each["error"]), None),
            "lost": sum(each["lost"] for each in traces),
            "written": sum(each["written"] for each in traces),
        }
    return one


def _up(name: str, broker: str, row: Mapping[str, Any]) -> bool:
    return name == broker or row["links"][broker]["up"]


def latency(counts: Sequence[tuple[Sequence[int], int]]) -> Latency:
    """One histogram of several: counts by bucket, and the sum."""
    whole = Latency()
    for each, sum_us in counts:
        whole.counts = [a + b for a, b in zip(whole.counts, each, strict=True)]
        whole.sum_us += sum_us
    return whole


def lists(answers: Sequence[Any]) -> Any:
    """Rows one after the other; of orders, what the worker says that could carry it out."""
    if isinstance(answers[0], list):
        return [row for answer in answers for row in answer]
    return next((each for each in answers if each.get("kicked") or each.get("moved")), answers[0])


class Processes(Collector):
    """CPU time, memory and open files of several processes together."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.pids = pids

    def collect(self) -> Iterator[Metric]:
        values: dict[str, list[float]] = defaultdict(list)
        metrics: dict[str, Metric] = {}
        for pid in self.pids:
            for metric in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
                metrics[metric.name] = metric
                values[metric.name].append(metric.samples[0].value)
        for name, metric in metrics.items():
            whole = (min if "start_time" in name else sum)(values[name])
            family = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
            yield family(name, metric.documentation, value=whole)
