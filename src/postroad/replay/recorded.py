"""Recorded traces as a scenario for the simulator, with what was measured beside it.

The network comes from the `start` rows, with all brokers that were ever in it. Subscriptions,
advertisements and publications keep their times. Faults are those that the rows show: brokers that
stopped, started again or left, links of the tree that were down. A publisher that a scheme had
moved starts at its first broker: the scheme moves it again.

Latency of a link: the median transit time of messages over both directions, in which an offset
between the two clocks cancels out; without messages, the heartbeats of its ends (`load` rows);
otherwise one millisecond. Deviations from it are kept: in `exact` each message takes its recorded
time, so that the same scheme repeats the run; in `scenario` deviations are drawn from the recorded
ones. Service time: a broker's CPU time divided by its steps.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np

from postroad import relocation
from postroad.cost.service import Costs
from postroad.errors import InputError
from postroad.filters import Filter, parse
from postroad.model import BrokerId, PublicationKey, SubscriptionId, TimeUs
from postroad.overlay import Overlay
from postroad.routing import SCHEMES
from postroad.settings.sections import Section
from postroad.sim.engine import Fault
from postroad.sim.run import plan_of
from postroad.sim.scenario import Deviations, Scenario
from postroad.traces.schema import SHUT_DOWN, TOLD_TO_STOP, Row
from postroad.workloads.model import Interest, Posting, Workload

LATENCY_US = 1000  # of a link that nobody measured
STEPS_MIN = 1000  # of a broker, before its time per step is taken from them


@dataclass(frozen=True)
class Recorded:
    """A scenario and the measurements of its traces. Times of the scenario count from `zero_us`."""

    scenario: Scenario  # on links with measured latencies, deviations from them drawn
    exact: Scenario  # each message takes its recorded time, on the plan of the live network
    zero_us: TimeUs
    until_us: TimeUs  # the last row, from `zero_us`
    deliveries: Counter[tuple[PublicationKey, SubscriptionId]]
    delays_us: list[TimeUs]  # of deliveries, ascending
    messages: Counter[tuple[str, str, str]]  # from, to, kind; of the scheme's own messages
    bytes: Counter[tuple[str, str]]  # from, to
    service_us: Mapping[str, float]  # per step of a broker, as far as measured
    warnings: list[str] = field(default_factory=list)


def from_rows(rows: Sequence[Row], plan: Path | None = None) -> Recorded:
    """The scenario that these rows describe. `plan` is the plan's file, if it has moved."""
    warnings: list[str] = []
    network = _description(rows, warnings)
    first_life = {row.broker: row for row in reversed(rows)}
    cut = [broker for broker, row in sorted(first_life.items()) if row.sequence > 1]
    if cut:
        warnings.append(
            f"the beginning is missing for {', '.join(cut[:5])}: what was subscribed before is "
            "not known"
        )
    live = any(row.life for row in rows)
    zero_us = min(row.time_us for row in rows) if live else 0
    names: list[str] = network["brokers"]
    number = {name: broker for broker, name in enumerate(names)}
    known = [row for row in rows if row.broker in number]
    departed = len(known) < len(rows)
    if live:
        known = _ordered(_before_the_end(known))
    if departed:
        warnings.append("rows of brokers that are not in the network any more are left out")
    overlay = _overlay(network, known, plan, warnings)
    names, number = list(overlay.names), {n: b for b, n in enumerate(overlay.names)}
    workload, refused = _workload(known, number, zero_us, live, network["relocation"] is not None)
    if not workload.postings:
        raise InputError("no publications were recorded", remedy="record some, or a larger sample")
    if refused:
        warnings.append(f"{refused} publications found their broker down and are left out")
    sampled = _sampled(known)
    if sampled:
        warnings.append(sampled)
    scheme = SCHEMES[network["scheme"]]
    config = Section(network["parameters"], "traces", "parameters").configure(scheme.config)
    moving, moving_config = network["relocation"], None
    if moving is not None:
        section = Section(network["relocation_parameters"], "traces", moving)
        moving_config = section.configure(relocation.RELOCATIONS[moving].config)
    kinds = {message.kind for message in scheme.messages}
    if moving is not None:
        kinds |= {message.kind for message in relocation.RELOCATIONS[moving].messages}
    until_us = max(row.time_us for row in known) - zero_us
    service_us = _service_us(known)
    scenario = Scenario(
        scheme=network["scheme"],
        overlay=overlay,
        workload=workload,
        config=config,
        seed=network["seed"],
        service_us=network.get("service_us") or 0,
        services_us=tuple(network.get("services_us") or ()),
        costs=Costs(**(network.get("costs") or {})),
        copy_us=network.get("copy_us") or 0,
        faults=_faults(known, overlay, zero_us, until_us),
        relocation=moving,
        relocation_config=moving_config,
        blind=live,
    )
    exact = replace(scenario, until_us=max(0, until_us))
    if live:
        exact = replace(exact, overlay=_assumed(overlay, network))
        exact = replace(exact, measured=Deviations(_transits_us(known, exact, kinds), True))
        carried = [row for row in known if row.publication is not None]
        transits_us = _transits_us(carried, scenario, kinds)
        scenario = replace(scenario, measured=Deviations(transits_us, False))
    return Recorded(
        scenario, exact, zero_us, until_us,
        Counter(
            ((str(row.publisher), str(row.publication)), str(row.subscription))
            for row in known
            if row.kind == "deliver" and row.publication is not None
        ),
        sorted(
            row.time_us - row.published_us
            for row in known
            if row.kind == "deliver" and row.publication is not None
            and row.published_us is not None
        ),
        Counter(
            (row.broker, str(row.peer), str(row.mechanism))
            for row in known
            if row.kind == "send" and not row.part and row.mechanism in kinds
        ),
        _bytes(known),
        service_us, warnings,
    )  # fmt: skip


def _description(rows: Iterable[Row], warnings: list[str]) -> dict[str, Any]:
    """The network as the last broker that started knew it, with the brokers and links of before."""
    starts = [row for row in rows if row.kind == "start"]
    if not starts:
        raise InputError(
            "no broker's start was recorded, so the network is not known",
            remedy="keep trace files longer: traces.keep_s, traces.keep_bytes",
        )
    told = [json.loads(detail or "{}") for detail in dict.fromkeys(row.detail for row in starts)]
    network: dict[str, Any] = json.loads(starts[-1].detail or "{}")
    last = len(network["brokers"])
    network["brokers"] = list(dict.fromkeys(name for one in told for name in one["brokers"]))
    if len(network["brokers"]) > min(last, *(len(one["brokers"]) for one in told)):
        warnings.append(
            "brokers came or went while this was recorded: those that came are there from the "
            "beginning of the replay, and deliveries can be compared, messages not"
        )
    joined = {frozenset(pair) for pair in network["links"]}
    for pair in (pair for one in reversed(told) for pair in one["links"]):
        if frozenset(pair) not in joined:
            joined.add(frozenset(pair))
            network["links"].append(pair)
    return network


def _overlay(
    network: Mapping[str, Any], rows: Sequence[Row], plan: Path | None, warnings: list[str]
) -> Overlay:
    names: list[str] = network["brokers"]
    number = {name: broker for broker, name in enumerate(names)}
    measured = measured_us(rows)
    simulated_us = dict(
        zip(map(tuple, network["links"]), network.get("latency_us") or [], strict=False)
    )
    planned: Overlay | None = None
    if network["plan"] is not None or plan is not None:
        read_plan = SCHEMES[network["scheme"]].read_plan
        assert read_plan is not None
        path = plan or Path(network["plan"])
        if not path.exists():
            raise InputError(
                f"the plan {str(path)!r} is not there", remedy="say with --plan where it is"
            )
        planned = read_plan(path, round(median(measured.values())) if measured else LATENCY_US)
        if len(planned.names) == len(names):
            return planned
    links = [(a, b) for a, b in network["links"] if a in number and b in number]
    if network.get("redundant"):
        links = _last_tree(rows, links, number, warnings)
    unknown = 0
    latencies = []
    for a, b in links:
        link_us = simulated_us.get((a, b), measured.get((min(a, b), max(a, b))))
        unknown += link_us is None
        latencies.append(LATENCY_US if link_us is None else link_us)
    if unknown:
        warnings.append(f"{unknown} links were not measured: {LATENCY_US / 1000:g} ms assumed")
    ends = np.array([(number[a], number[b]) for a, b in links], dtype=np.int64).reshape(-1, 2)
    latency_us = np.array(latencies, dtype=np.int64)
    if planned is None:
        return Overlay(tuple(names), ends, latency_us)
    return replace(planned, names=tuple(names), ends=ends, latency_us=latency_us)


def _before_the_end(rows: list[Row]) -> list[Row]:
    """Without what brokers do while all of them are shut down: their clients' subscriptions end,
    and which broker is still told of it is chance."""
    last = {row.broker: row for row in rows}
    if any(row.kind != "end" for row in last.values()):
        return rows
    began = ("subscribe", "advertise")
    busy = [row.time_us for row in rows if row.publication is not None or row.kind in began]
    until_us = max(busy, default=0)
    ends = [row.time_us for row in rows if row.kind == "end" or row.reason == SHUT_DOWN]
    stop_us = min((end_us for end_us in ends if end_us > until_us), default=until_us + 1)
    return [row for row in rows if row.time_us < stop_us or row.kind == "end"]


_INPUTS = frozenset(
    ("publish", "subscribe", "unsubscribe", "advertise", "unadvertise", "receive", "link", "move")
)


def _ordered(rows: Sequence[Row]) -> list[Row]:
    """The rows with times that increase with each input of a broker: times alone order them.

    A broker takes many inputs at one reading of its clock. Each is put one microsecond after its
    predecessor, which is less than a step takes; what the broker sends has the time of its cause.
    """
    last: dict[tuple[str, int], TimeUs] = {}
    ordered = []
    for row in sorted(rows, key=lambda row: (row.life, row.sequence)):
        key = (row.broker, row.life)
        before = last.get(key)
        time_us = row.time_us
        if before is not None:
            time_us = max(time_us, before + (row.kind in _INPUTS))
        last[key] = time_us
        ordered.append(msgspec.structs.replace(row, time_us=time_us))
    return sorted(ordered, key=lambda row: row.time_us)


def _transits_us(
    rows: Sequence[Row], scenario: Scenario, kinds: Collection[str]
) -> dict[tuple[BrokerId, BrokerId], list[TimeUs]]:
    """Per link and direction, the transit time of each message less the latency of the link."""
    plan = plan_of(scenario)
    number = {name: broker for broker, name in enumerate(scenario.overlay.names)}
    left: dict[tuple[BrokerId, BrokerId], list[TimeUs]] = defaultdict(list)
    came: dict[tuple[BrokerId, BrokerId], list[TimeUs]] = defaultdict(list)
    for row in rows:
        if row.kind in ("send", "receive") and row.mechanism in kinds and not row.part:
            here, there = number[row.broker], number.get(str(row.peer), -1)
            if row.kind == "send":
                left[here, there].append(row.time_us)
            else:
                came[there, here].append(row.time_us)
    peers = plan.links()
    deviations_us = {}
    for (here, there), sent in left.items():
        got = came.get((here, there), [])
        if len(got) == len(sent):  # links are FIFO: the n-th to arrive is the n-th that was sent
            usual_us = peers[here].get(there)
            if usual_us is None:
                usual_us = plan.direct_us(here, there)
            pairs = zip(sent, got, strict=True)
            deviations_us[here, there] = [after - before - usual_us for before, after in pairs]
    return deviations_us


def _assumed(overlay: Overlay, network: Mapping[str, Any]) -> Overlay:
    """The overlay as the live network's planner knew it."""
    if network["plan"] is not None:
        return overlay
    return replace(overlay, latency_us=np.full_like(overlay.latency_us, network["assumed_us"]))


def measured_us(rows: Sequence[Row]) -> dict[tuple[str, str], TimeUs]:
    """The one-way latency of each pair of brokers, from messages in both directions or heartbeats.

    A message's transit time includes the turns of the event loops that write and read it.
    """
    beats: dict[tuple[str, str], list[int]] = defaultdict(list)
    left: dict[tuple[str, str, str, str], TimeUs] = {}
    took: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.kind == "load":
            for peer, link in json.loads(row.detail or "{}").get("links", {}).items():
                if link.get("delay_us") is not None:
                    beats[min(row.broker, peer), max(row.broker, peer)].append(link["delay_us"])
        elif row.peer is None or row.publication is None or row.part:
            continue
        elif row.kind == "send":
            left[row.broker, row.peer, str(row.publisher), row.publication] = row.time_us
        elif row.kind == "receive":
            since = left.pop((row.peer, row.broker, str(row.publisher), row.publication), None)
            if since is not None:
                pair = (min(row.broker, row.peer), max(row.broker, row.peer))
                took[pair][row.broker].append(row.time_us - since)
    one_way_us = {pair: round(median(values)) for pair, values in beats.items()}
    for pair, ways in took.items():
        both = sum(median(values) for values in ways.values()) / len(ways)
        if len(ways) == 2 or pair not in one_way_us:  # one way alone trusts that clocks agree
            one_way_us[pair] = max(0, round(both))
        elif both > one_way_us[pair]:  # of one machine's clock, or near: heartbeats miss the turns
            one_way_us[pair] = round(both)
    return one_way_us


def _last_tree(
    rows: Sequence[Row], links: list[tuple[str, str]], number: Mapping[str, int],
    warnings: list[str],
) -> list[tuple[str, str]]:  # fmt: skip
    """Of redundant links, those of the last spanning tree."""
    trees = [row for row in rows if row.kind == "tree"]
    if trees:
        named = json.loads(trees[-1].detail or "{}")["links"]
        chosen = [pair for pair in links if f"{pair[0]}-{pair[1]}" in named
                  or f"{pair[1]}-{pair[0]}" in named]  # fmt: skip
        if len({*(row.detail for row in trees)}) > 1:
            warnings.append("the tree changed while this was recorded: the last one is replayed")
    else:
        chosen = links
    joined: list[tuple[str, str]] = []
    root = {name: name for name in number}

    def top(name: str) -> str:
        while root[name] != name:
            name = root[name]
        return name

    for a, b in [*chosen, *links]:  # what the tree had left out is joined as before
        if top(a) != top(b):
            root[top(a)] = top(b)
            joined.append((a, b))
    return joined


def _workload(
    rows: Sequence[Row], number: Mapping[str, BrokerId], zero_us: TimeUs, live: bool, moves: bool
) -> tuple[Workload, int]:
    subscriptions: dict[str, Interest] = {}
    advertisements: list[Interest] = []
    standing: dict[str, int] = {}  # where in the list an advertisement is
    postings: list[Posting] = []
    filters: dict[str, Filter] = {}
    home: dict[str, BrokerId] = {}
    refused = 0
    doubted: dict[str, TimeUs] = {}  # held at a broker that went down: till then, unless said again
    lives: dict[str, Row] = {}  # each broker's last row
    down = {
        (str(row.publisher), str(row.publication))
        for row in rows
        if row.kind == "stop" and row.reason == "broker down" and row.peer is None
    }

    def when(row: Row) -> TimeUs | None:
        """None for what was there from the beginning of a simulation."""
        time_us = row.time_us - zero_us
        return None if not live and time_us < 0 else time_us

    def filter_of(row: Row) -> Filter:
        text = row.filter or "TRUE"
        if text not in filters:
            filters[text] = parse(text)
        return filters[text]

    for row in rows:
        broker = number.get(row.broker)
        if broker is None:
            continue
        if row.kind == "start" and row.broker in lives:
            until_us = lives[row.broker].time_us - zero_us
            for known in (*subscriptions.values(), *advertisements):
                if known.broker == broker and known.until_us is None:
                    doubted.setdefault(known.id, until_us)
        lives[row.broker] = row
        if row.kind in ("subscribe", "advertise"):
            doubted.pop(str(row.subscription or row.advertisement), None)
        match row.kind:
            case "subscribe" if row.subscription not in subscriptions:
                name = str(row.subscription)
                subscriptions[name] = Interest(
                    name, broker, row.client or "", filter_of(row), when(row)
                )
            case "unsubscribe" if row.subscription in subscriptions:
                name = str(row.subscription)
                subscriptions[name] = _until(subscriptions[name], row.time_us - zero_us)
            case "advertise":
                name = str(row.advertisement)
                interest = Interest(name, broker, row.client or "", filter_of(row), when(row))
                before = advertisements[standing[name]] if name in standing else None
                if before is None or before.filter != interest.filter:
                    standing[name] = len(advertisements)
                    advertisements.append(interest)
            case "unadvertise" if row.advertisement in standing:
                place = standing.pop(str(row.advertisement))
                advertisements[place] = _until(advertisements[place], row.time_us - zero_us)
            case "publish":
                if (str(row.publisher), str(row.publication)) in down:
                    refused += 1
                    continue
                publisher = str(row.publisher)
                at = home.setdefault(publisher, broker) if moves else broker
                postings.append(
                    Posting(
                        max(0, row.time_us - zero_us), at, publisher, str(row.publication),
                        _attributes(row),
                    )
                )  # fmt: skip
            case _:
                pass
    ended = [
        tuple(
            _until(one, doubted[one.id]) if one.id in doubted and one.until_us is None else one
            for one in interests
        )
        for interests in (subscriptions.values(), advertisements)
    ]
    return Workload(ended[0], ended[1], tuple(postings)), refused


def _until(interest: Interest, until_us: TimeUs) -> Interest:
    return Interest(
        interest.id, interest.broker, interest.client, interest.filter, interest.time_us,
        max(until_us, interest.time_us or 0),
    )  # fmt: skip


def _attributes(row: Row) -> Mapping[str, Any]:
    if row.attributes is None:
        raise InputError(
            "these traces have no attributes",
            remedy='record them: attributes = "plain" in the table traces of the network file',
        )
    attributes: dict[str, Any] = json.loads(row.attributes)
    return attributes


def _sampled(rows: Sequence[Row]) -> str | None:
    """A warning, if only some publications were recorded."""
    published = sum(row.kind == "publish" for row in rows)
    counted: dict[tuple[str, int], int] = {}
    for row in rows:
        if row.kind == "load":
            counted[row.broker, row.life] = json.loads(row.detail or "{}").get("published", 0)
    total = sum(counted.values())
    if total > 1.05 * published + 10:
        share = published / total
        return f"about {share:.2%} of the publications were recorded: counts are of these alone"
    return None


def _service_us(rows: Sequence[Row]) -> dict[str, float]:
    """CPU time over steps, between the first and the last `load` row of a broker's longest life."""
    loads: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row.kind == "load":
            loads[row.broker, row.life].append(json.loads(row.detail or "{}"))
    costs: dict[str, tuple[int, float]] = {}
    for (broker, _), readings in loads.items():
        steps = readings[-1]["steps"] - readings[0]["steps"]
        if steps > max(STEPS_MIN, costs.get(broker, (0, 0.0))[0]):
            costs[broker] = (steps, (readings[-1]["cpu_us"] - readings[0]["cpu_us"]) / steps)
    return {broker: cost for broker, (_, cost) in sorted(costs.items())}


def _faults(
    rows: Sequence[Row], overlay: Overlay, zero_us: TimeUs, until_us: TimeUs
) -> tuple[Fault, ...]:
    """Brokers that were down between two lives, or left or fell for good while others went on, and
    links that were down."""
    number = {name: broker for broker, name in enumerate(overlay.names)}
    links = {frozenset(pair) for pair in overlay.ends.tolist()}
    faults: list[Fault] = []
    last: dict[str, Row] = {}
    cut: dict[frozenset[int], TimeUs] = {}
    for row in rows:
        before = last.get(row.broker)
        time_us = max(0, row.time_us - zero_us)
        if row.kind == "start" and before is not None and row.broker in number:
            down_us = max(0, before.time_us - zero_us)
            if time_us > down_us:
                faults.append(Fault("crash", (number[row.broker],), down_us, time_us))
        if row.kind == "link" and row.peer in number and row.broker in number:
            pair = frozenset((number[row.broker], number[row.peer]))
            if pair in links and row.mechanism == "down":
                cut.setdefault(pair, time_us)
            elif pair in cut and time_us > cut[pair]:
                a, b = sorted(pair)
                faults.append(Fault("link_down", (a, b), cut.pop(pair), time_us))
        last[row.broker] = row
    for pair, since_us in cut.items():
        a, b = sorted(pair)
        if until_us > since_us:
            faults.append(Fault("link_down", (a, b), since_us, until_us))
    faults += _departures(rows, last, number, cut, zero_us, until_us)
    crashes = [fault for fault in faults if fault.kind in ("crash", "leave")]
    return tuple(
        fault
        for fault in faults
        if fault.kind in ("crash", "leave")
        or not any(
            crash.where[0] in fault.where
            and crash.start_us <= fault.end_us
            and fault.start_us <= crash.end_us
            for crash in crashes
        )  # a broker that is down takes its links along by itself
    )


def _departures(
    rows: Sequence[Row], last: Mapping[str, Row], number: Mapping[str, BrokerId],
    cut: Mapping[frozenset[int], TimeUs], zero_us: TimeUs, until_us: TimeUs,
) -> Iterable[Fault]:  # fmt: skip
    """Brokers that were told to stop, or fell, before others published for the last time."""
    busy_us = max((row.time_us for row in rows if row.kind == "publish"), default=0)
    for name, row in last.items():
        if name not in number or row.time_us >= busy_us:
            continue
        broker, end_us = number[name], max(0, row.time_us - zero_us)
        if row.kind == "end" and row.reason == TOLD_TO_STOP:
            parted = (
                one.time_us - zero_us
                for one in rows
                if one.broker == name and one.life == row.life and one.reason == SHUT_DOWN
            )
            yield Fault("leave", (broker,), max(0, min(parted, default=end_us - 1)), end_us)
        elif row.kind == "end" or any(broker in pair for pair in cut):
            yield Fault("crash", (broker,), end_us, until_us + 1)


def _bytes(rows: Iterable[Row]) -> Counter[tuple[str, str]]:
    totals: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.kind == "send" and not row.part and row.bytes is not None:
            totals[row.broker, str(row.peer)] += row.bytes
    return totals
