"""What the page draws: brokers and links with what crossed them since the last look.

Pure functions over what brokers say of themselves (`/status`). All numbers are counters of the
brokers or differences of two readings: exact, never sampled. With more than `DRAWN_MAX` brokers the
outermost ones are drawn as one with the broker that they hang from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from postroad.live.network import Network
from postroad.model import BrokerId
from postroad.overlay.drawing import places, spanning

DRAWN_MAX = 200
TREE, STANDBY, ON_DEMAND, LINK = "tree", "standby", "on demand", "link"


@dataclass(frozen=True)
class Reading:
    """What every broker said at one moment; None of one that did not answer."""

    time_s: float
    brokers: Mapping[str, dict[str, Any] | None]


@dataclass(frozen=True)
class Drawing:
    """Where brokers are drawn, and which is drawn as one with which other."""

    points: Mapping[str, tuple[float, float]]
    shown_as: Mapping[str, str]


def drawing(network: Network, most: int = DRAWN_MAX) -> Drawing:
    names = network.names
    points = places(network.overlay)
    members = {names[broker] for broker in network.members}
    shown_as = _merged(network, most)
    return Drawing(
        {name: points[n] for n, name in enumerate(names) if name in members},
        {name: shown_as[name] for name in names if name in members},
    )


def _merged(network: Network, most: int) -> dict[str, str]:
    """Brokers taken up by their parents, the outermost first, until few enough are left."""
    parents = spanning(network.overlay)
    into: dict[BrokerId, BrokerId] = {}
    for broker in reversed(parents):
        parent = parents[broker]
        if len(parents) - len(into) <= most or parent is None:
            break
        into[broker] = parent

    def top(broker: BrokerId) -> BrokerId:
        while broker in into:
            broker = into[broker]
        return broker

    return {network.names[broker]: network.names[top(broker)] for broker in parents}


def picture(
    network: Network, shape: Drawing, before: Reading | None, now: Reading
) -> dict[str, Any]:
    """Brokers, links and totals; rates where both readings are of the same run of a broker."""
    elapsed_s = 0.0 if before is None else now.time_s - before.time_s
    old = {} if before is None else before.brokers
    rates: dict[str, dict[str, float] | None] = {}
    for name, row in now.brokers.items():
        rates[name] = _rates(old.get(name), row, elapsed_s)
    brokers = _brokers(shape, now, rates)
    return {
        "network": network.name,
        "scheme": network.scheme,
        "relocation": network.relocation,
        "time_s": now.time_s,
        "brokers": brokers,
        "links": _links(network, shape, now, rates),
        "totals": _totals(now, rates),
        "trees": _trees(now),
        "clustered": len(brokers) < len(now.brokers),
    }


_COUNTERS = ("published", "delivered", "dropped", "refused", "bytes_received", "bytes_sent")
_GAUGES = (
    "connections", "sessions", "subscriptions", "table_entries", "waiting", "in_flight",
    "held_bytes", "retained",
)  # fmt: skip


def _counts(row: Mapping[str, Any]) -> dict[str, float]:
    """What only grows while a broker lives."""
    counts: dict[str, float] = {name: row[name] for name in _COUNTERS}
    counts["cpu"] = row.get("cpu_s", 0.0)
    for peer, link in row["links"].items():
        counts[f"sent/{peer}"] = sum(link["sent"].values())
        counts[f"received/{peer}"] = sum(link["received"].values())
    return counts


def _rates(
    before: Mapping[str, Any] | None, now: Mapping[str, Any] | None, elapsed_s: float
) -> dict[str, float] | None:
    if before is None or now is None or before["pid"] != now["pid"] or elapsed_s <= 0:
        return None
    old = _counts(before)
    rates = {
        name: max(0.0, value - old.get(name, 0)) / elapsed_s for name, value in _counts(now).items()
    }
    rates["messages"] = sum(
        rate for name, rate in rates.items() if name.startswith(("sent/", "received/"))
    )
    return rates


def _brokers(
    shape: Drawing, now: Reading, rates: Mapping[str, Mapping[str, float] | None]
) -> list[dict[str, Any]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for name, shown in shape.shown_as.items():
        groups[shown].append(name)
    rows = []
    for shown, names in groups.items():
        x, y = shape.points[shown]
        answers = [now.brokers.get(name) for name in names]
        known = [row for row in answers if row is not None]
        changes = [change for name in names if (change := rates.get(name)) is not None]
        away = [name for name, row in zip(names, answers, strict=True) if row is None]
        rows.append(
            {
                "name": shown, "x": x, "y": y, "members": sorted(names), "away": away,
                "state": _state(shown, names, away, known),
                **{gauge: sum(row[gauge] for row in known) for gauge in _GAUGES},
                **{counter: sum(row[counter] for row in known) for counter in _COUNTERS},
                "queued": sum(link["queued"] for row in known for link in row["links"].values()),
                "lag_ms": max((row["lag_us"] / 1000 for row in known), default=None),
                "rates": _sums(changes) if changes else None,
            }
        )  # fmt: skip
    return rows


def _state(
    shown: str, names: list[str], away: list[str], known: list[dict[str, Any]]
) -> dict[str, str]:
    """How it is, in a word, and why."""
    if len(away) == len(names):
        return {"is": "away", "why": f"{shown} does not answer"}
    if away:
        return {"is": "part", "why": f"{', '.join(sorted(away)[:3])} of {len(names)} do not answer"}
    if any(row["draining"] for row in known):
        return {"is": "stopping", "why": "it is told to stop and passes on what it has"}
    if any(not row["tree"]["settled"] for row in known if "tree" in row):
        return {"is": "repairing", "why": "the tree is being repaired"}
    if any(row["congested"] for row in known):
        return {"is": "congested", "why": "a link's queue is full: publishers are held back"}
    errors = [row["traces"]["error"] for row in known if row.get("traces", {}).get("error")]
    if errors:
        return {"is": "part", "why": f"no traces are recorded: {errors[0]}"}
    return {"is": "up", "why": ""}


def _sums(changes: Iterable[Mapping[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for change in changes:
        for name in (*_COUNTERS, "messages"):
            totals[name] += change[name]
        totals["cpu"] = max(totals["cpu"], change["cpu"])  # of several: the busiest
    return dict(totals)


def _links(
    network: Network, shape: Drawing, now: Reading, rates: Mapping[str, Mapping[str, float] | None]
) -> list[dict[str, Any]]:
    names = network.names
    declared = {
        frozenset((names[a], names[b]))
        for a, b in network.pairs
        if names[a] in shape.points and names[b] in shape.points
    }
    pairs = dict.fromkeys(sorted(tuple(sorted(pair)) for pair in declared))
    for name, row in now.brokers.items():
        for peer in row["links"] if row is not None else ():
            pairs.setdefault(tuple(sorted((name, peer))))
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for a, b in pairs:
        if a not in shape.shown_as or b not in shape.shown_as:
            continue
        ends = shape.shown_as[a], shape.shown_as[b]
        if ends[0] == ends[1]:
            continue
        link = _link(a, b, frozenset((a, b)) in declared, network.redundant, now, rates)
        known = merged.get(ends)
        if known is None:
            merged[ends] = {**link, "a": ends[0], "b": ends[1]}
        else:
            for name in ("rate_ab", "rate_ba"):
                if link[name] is not None:
                    known[name] = (known[name] or 0.0) + link[name]
            known["queued"] += link["queued"]
            known["up"] = known["up"] and link["up"]
    return list(merged.values())


def _link(
    a: str,
    b: str,
    declared: bool,
    redundant: bool,
    now: Reading,
    rates: Mapping[str, Mapping[str, float] | None],
) -> dict[str, Any]:
    rows = {name: now.brokers.get(name) for name in (a, b)}
    sides = [
        row["links"][peer]
        for name, peer in ((a, b), (b, a))
        if (row := rows[name]) is not None and peer in row["links"]
    ]
    up = bool(sides) and all(side["connected"] for side in sides)
    away = [name for name, row in rows.items() if row is None]
    if not declared:
        kind = ON_DEMAND
    elif redundant:
        kind = TREE if any(side["in_tree"] for side in sides) else STANDBY
    else:
        kind = LINK
    why = ""
    if away:
        why = f"{' and '.join(away)} {'does' if len(away) == 1 else 'do'} not answer"
    elif not up:
        refusals = [side["refused"] for side in sides if side["refused"]]
        why = str(refusals[0]) if refusals else "not connected"
    return {
        "a": a, "b": b, "kind": kind, "up": up, "why": why,
        "rate_ab": _one_way(a, b, rates), "rate_ba": _one_way(b, a, rates),
        "queued": sum(side["queued"] for side in sides),
        "cuts": max((side["cuts"] for side in sides), default=0),
        "resent": sum(side["resent"] for side in sides),
        "dropped": sum(side["dropped"] for side in sides),
    }  # fmt: skip


def _one_way(
    source: str, target: str, rates: Mapping[str, Mapping[str, float] | None]
) -> float | None:
    """Messages a second, as the sender counts them; as the receiver does, if that is away."""
    for name, column in ((source, f"sent/{target}"), (target, f"received/{source}")):
        change = rates.get(name)
        if change is not None and column in change:
            return change[column]
    return None


def _totals(now: Reading, rates: Mapping[str, Mapping[str, float] | None]) -> dict[str, Any]:
    known = [row for row in now.brokers.values() if row is not None]
    changes = [change for change in rates.values() if change is not None]
    sent = sum(
        rate for change in changes for name, rate in change.items() if name.startswith("sent/")
    )
    published = sum(change["published"] for change in changes)
    return {
        "brokers": len(now.brokers),
        "answering": len(known),
        **{name: sum(row[name] for row in known) for name in (*_GAUGES, *_COUNTERS)},
        "queued": sum(link["queued"] for row in known for link in row["links"].values()),
        "rates": {**_sums(changes), "sent": sent} if changes else None,
        "messages_per_publication": sent / published if published else None,
    }


def _trees(now: Reading) -> list[dict[str, Any]]:
    """The trees that brokers are on: one, unless a repair is under way or the network is parted."""
    trees: dict[str, dict[str, Any]] = {}
    for name, row in now.brokers.items():
        if row is not None and "tree" in row:
            tree = row["tree"]
            key = str(tree["id"])
            known = trees.setdefault(
                key, {"id": tree["id"], "brokers": [], "left_out": set(), "changes": 0}
            )
            known["brokers"].append(name)
            known["left_out"] |= set(tree["left_out"])
            known["changes"] = max(known["changes"], tree["changes"])
    return [{**tree, "left_out": sorted(tree["left_out"])} for tree in trees.values()]
