"""The best mix for a workload: which part of the content should have which scheme.

Classes are the values of the topic attribute; where filters do not name one, cells of the content
space. They are ordered by how many brokers may want them and cut into groups of about as many
publications each, so that what is learnt of a group holds for publications that nobody has seen.

What a group costs under a scheme is counted, not guessed: the messages of its publications in the
training part (`kernels.ways`), and the control messages of the filters that can meet it, in closed
form or by simulating the set-up. A filter that meets groups of two schemes is known to both, so it
is paid for twice. Then groups change their scheme, one at a time or all of a scheme together, as
long as that saves something. Schemes that cannot be parts compete alone.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from postroad.comparison.optimum import Demand, demand
from postroad.comparison.rows import CANDIDATES, DURABLE, PLACED, ROWS, Row
from postroad.cost import bounds
from postroad.filters import Filter, literal
from postroad.filters.language import quote_name
from postroad.kernels.ways import PRICED, Ways, price
from postroad.model import BrokerId, Publication
from postroad.overlay import Overlay
from postroad.planning.kyra import divider
from postroad.planning.zones import Zone
from postroad.routing import SCHEMES, fbr, mix
from postroad.routing.base import Input, Interests, Send
from postroad.routing.ring import ANY, Topics
from postroad.sim.run import run
from postroad.sim.scenario import Scenario
from postroad.workloads.model import Workload

GROUPS = 12
CELLS = 64
GAIN = 0.02  # what a mix must save, by its own count, to be worth more than one scheme
TELLING = ("unicast", "match_early")  # every broker tells every other all that it wants
Floats = npt.NDArray[np.float64]
Sets = dict[tuple[BrokerId, int], list[int]]
"""Publications, by broker and group."""


@dataclass(frozen=True)
class Candidate:
    scheme: str
    parameters: Mapping[str, Any]

    def able(self, overlay: Overlay) -> bool:
        """Whether it can be a part: on the links of the network or straight from one broker to
        another, since live brokers know of one tree."""
        own_tree = overlay.direct_us is not None and self.scheme in ("fbr", "match_early")
        return self.scheme not in mix.UNABLE and not own_tree


def candidates(rows: Mapping[str, Row], parameters: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    """The rows whose schemes can be priced, with their parameters, as plain values: of those that
    are compared, or of all if these are none to choose from."""
    able = [row for row in rows.values() if row.relocation is None and row.scheme in PRICED]
    if len(able) < 3:
        rows = {**rows, **ROWS}
    return [
        [row.scheme, {**row.parameters, **parameters.get(label, {})}]
        for label, row in rows.items()
        if row.relocation is None
        and (row.scheme in PRICED or row.scheme == "match_early")
        and row.scheme != "ideal_multicast"  # its messages are those between routers
        and not (row.grid.keys() | row.parameters.keys()) & {"cells", "unicast_below", PLACED}
    ]


@dataclass(frozen=True)
class Groups:
    """Classes of content, in groups."""

    topics: Topics
    group_of: Mapping[str, int]
    count: int

    def of(self, publication: Publication) -> int:
        return self.group_of.get(self.topics.of(publication), 0)

    def met(self, filter: Filter) -> int:
        """The groups that a filter can meet, a bit each."""
        wanted = self.topics.wanted(filter)
        if ANY in wanted:
            return self.all
        bits = 0
        for topic in wanted:
            bits |= 1 << self.group_of.get(topic, 0)
        return bits

    @property
    def all(self) -> int:
        return (1 << self.count) - 1

    def where(self, groups: Sequence[int]) -> str:
        """The filter of these groups' content."""
        topics = sorted(topic for topic, group in self.group_of.items() if group in groups)
        if self.topics.cells:
            return " OR ".join(_within(self.topics.cells[int(topic) - 1]) for topic in topics)
        return f"{quote_name(self.topics.attribute)} IN ({', '.join(map(literal, topics))})"


def _within(cell: Zone) -> str:
    """The filter of a cell, for texts and numbers: what is neither goes with the rest."""
    sides = []
    for name, low, high in cell.sides:
        ends = [f"{quote_name(name)} >= {literal(low)}"] if low is not None else []
        ends += [f"{quote_name(name)} < {literal(high)}"] if high is not None else []
        # Texts come after numbers, so from a number to a text it is one or the other.
        apart = (
            low is not None and high is not None and isinstance(low, str) != isinstance(high, str)
        )
        if ends:
            sides.append(f"({(' OR ' if apart else ' AND ').join(ends)})")
    return f"({' AND '.join(sides) or 'TRUE'})"


def groups(scenario: Scenario, topic: str) -> Groups:
    """Of a training part. Group 0 is the least popular, with all classes nobody has heard of."""
    workload = scenario.workload
    filters = list(dict.fromkeys(one.filter for one in workload.subscriptions))
    topics = Topics(topic)
    if sum(ANY in topics.wanted(filter) for filter in filters) > len(filters) / 2:
        topics = Topics(topic, divider(filters)(CELLS))
    brokers: dict[str, set[BrokerId]] = defaultdict(set)
    everywhere: set[BrokerId] = set()
    for one in workload.subscriptions:
        wanted = topics.wanted(one.filter)
        if ANY in wanted:
            everywhere.add(one.broker)
            continue
        for each in wanted:
            brokers[each].add(one.broker)
    if topics.cells:
        for n in range(len(topics.cells)):
            brokers[str(n + 1)] |= everywhere
    made = Counter(topics.of(Publication("", "", one.attributes)) for one in workload.postings)
    for each in made:
        if each != ANY:
            brokers.setdefault(each, set())
    order = sorted(brokers, key=lambda each: (len(brokers[each] | everywhere), each))
    total = max(1, sum(made[each] for each in order))
    group_of, before = {}, 0
    for each in order:
        group_of[each] = min(GROUPS - 1, GROUPS * before // total)
        before += made[each]
    numbers = {group: n for n, group in enumerate(sorted(set(group_of.values())))}
    group_of = {each: numbers[group] for each, group in group_of.items()}
    return Groups(topics, group_of, max(1, len(numbers)))


@dataclass(frozen=True)
class Mixture:
    """By group, the number of its candidate; and the traffic, by the count of the tuner."""

    choice: tuple[int, ...]
    traffic: float


def best(
    scenario: Scenario, topic: str, rows: Sequence[Candidate], per_change: float, durable: bool
) -> Mixture:
    """For a training part: the mix with the least traffic. With `durable`, of schemes that can
    have a store."""
    some = groups(scenario, topic)
    who = demand(scenario)
    sets: Sets = defaultdict(list)
    for p, one in enumerate(scenario.workload.postings):
        sets[one.broker, some.of(Publication("", "", one.attributes))].append(p)
    weight = 1 / max(1, len(scenario.workload.subscriptions)) / per_change
    count = max(1, len(scenario.workload.postings))
    met = {one.filter: some.met(one.filter) for one in scenario.workload.subscriptions}
    met |= {one.filter: some.met(one.filter) for one in scenario.workload.advertisements}
    allowed = [n for n, row in enumerate(rows) if not durable or SCHEMES[row.scheme].durable]
    messages: dict[int, Floats] = {}
    control: dict[int, dict[int, int]] = {}
    for n in allowed:
        if rows[n].able(scenario.overlay):
            messages[n] = _messages(scenario, topic, rows[n], who, sets, some.count) / count
            control[n] = _control(scenario, topic, rows[n], met, some.all)

    def cost(choice: Sequence[int]) -> float:
        total = 0.0
        used: dict[int, int] = {}
        for group, n in enumerate(choice):
            total += messages[n][group]
            used[n] = used.get(n, 0) | 1 << group
        for n, bits in used.items():
            total += weight * sum(c for mask, c in control[n].items() if mask & bits)
        return total

    choice: list[int] = []
    least, mixed = math.inf, math.inf
    for n in messages:
        if (figure := cost([n] * some.count)) < least:
            choice, least = [n] * some.count, figure
    for n in messages:
        tried, figure = _improved([n] * some.count, cost, list(messages))
        if figure < min(mixed, (1 - GAIN) * least):
            choice, mixed = tried, figure
    least = min(least, mixed)
    for n in allowed:
        if not rows[n].able(scenario.overlay):
            figure = float(_messages(scenario, topic, rows[n], who, sets, some.count).sum()) / count
            if figure < least:  # else there is no need to know the rest
                figure += weight * sum(_control(scenario, topic, rows[n], met, some.all).values())
            if figure < least:
                choice, least = [n] * some.count, figure
    return Mixture(tuple(choice), least)


def _improved(choice: list[int], cost: Any, rows: Sequence[int]) -> tuple[list[int], float]:
    least = cost(choice)
    while True:
        moves = [
            [n if at == group else old for at, old in enumerate(choice)]
            for group in range(len(choice))
            for n in rows
            if n != choice[group]
        ]
        moves += [
            [n if old == used else old for old in choice]
            for used in set(choice)
            for n in rows
            if n != used
        ]
        # All groups from one on, or up to it: neighbours in popularity want the same.
        moves += [
            [n if (at >= group) == upper else old for at, old in enumerate(choice)]
            for group in range(1, len(choice))
            for n in rows
            for upper in (True, False)
        ]
        figures = [cost(move) for move in moves]
        if not figures or min(figures) >= least - 1e-9:
            return choice, least
        least = min(figures)
        choice = moves[figures.index(least)]


def parts(some: Groups, rows: Sequence[Candidate], choice: Sequence[int]) -> list[dict[str, Any]]:
    """The parameter `parts` of a mix; what has most classes comes last and takes the rest."""
    of_row: dict[int, list[int]] = defaultdict(list)
    for group, n in enumerate(choice):
        of_row[n].append(group)
    classes = Counter(some.group_of.values())
    order = sorted(of_row, key=lambda n: (0 in of_row[n], sum(classes[g] for g in of_row[n])))
    tables = []
    for n in order:
        table: dict[str, Any] = {"scheme": rows[n].scheme}
        if rows[n].parameters:
            table["parameters"] = dict(rows[n].parameters)
        if n != order[-1]:
            table["where"] = some.where(of_row[n])
        tables.append(table)
    return tables


def resolved(
    case: Mapping[str, Any], training: Scenario
) -> tuple[dict[str, Any], dict[str, float]]:
    """A case whose `candidates` may be mixed, as a case of the best mix, and the choice made."""
    rows = [Candidate(scheme, parameters) for scheme, parameters in case["parameters"][CANDIDATES]]
    mixture = best(training, case["topic"], rows, case["per_change"], case["parameters"][DURABLE])
    choice = {str(group): float(n) for group, n in enumerate(mixture.choice)}
    return {**case, **chosen(case["topic"], training, rows, mixture.choice)}, choice


def chosen(
    topic: str, training: Scenario, rows: Sequence[Candidate], choice: Sequence[int]
) -> dict[str, Any]:
    """Scheme and parameters of a choice: a mix, or the one scheme that is best for everything."""
    if len(set(choice)) == 1:
        return {"scheme": rows[choice[0]].scheme, "parameters": dict(rows[choice[0]].parameters)}
    return {
        "scheme": "mix",
        "parameters": {"parts": parts(groups(training, topic), rows, choice)},
    }


# Messages.


def _messages(
    scenario: Scenario, topic: str, row: Candidate, who: Demand, sets: Sets, count: int
) -> Floats:
    """By group, the messages of its publications."""
    ready = _ready(scenario, topic, row)
    # Matched early or late, on the minimum spanning tree it is the same messages.
    scheme = "fbr" if row.scheme == "match_early" else row.scheme
    config = None if scheme != row.scheme else ready.config
    ways = Ways(scheme, ready.overlay, _interests(ready.workload), config, ready.seed)
    postings = scenario.workload.postings
    totals = np.zeros(count)
    for (broker, group), publications in sets.items():
        of_key: dict[str, list[int]] = defaultdict(list)
        for p in publications:
            of_key["" if ways.key is None else ways.key(postings[p].attributes)].append(p)
        for key, mine in of_key.items():
            wanting = [np.flatnonzero(who.wanted[:, p]) for p in mine]
            ends = np.cumsum([len(each) for each in wanting])
            brokers = np.concatenate(wanting).astype(np.int64)
            once = np.ones(len(mine), np.int64)
            counts = price(
                ways.way(broker, key), once, ends, brokers, np.ones(len(brokers), np.int64)
            )
            totals[group] += counts.messages.sum()
    return totals


def _ready(scenario: Scenario, topic: str, row: Candidate) -> Scenario:
    """The scenario under a candidate."""
    from postroad.comparison.runs import prepared

    case = {
        "scheme": row.scheme, "relocation": None, "parameters": row.parameters, "topic": topic,
    }  # fmt: skip
    return prepared(case, scenario)


def _interests(workload: Workload) -> Interests:
    return Interests(
        [(one.broker, one.filter) for one in workload.subscriptions],
        [(one.broker, one.filter) for one in workload.advertisements],
        [(one.broker, one.filter) for one in workload.subscriptions if one.time_us is None],
    )


# Control messages.


def _control(
    scenario: Scenario, topic: str, row: Candidate, met: Mapping[Filter, int], all: int
) -> dict[int, int]:
    """By the groups that a filter can meet, the control messages of setting everything up."""
    if row.scheme == "flooding":
        return {}
    brokers = scenario.overlay.brokers_count
    holders: dict[Filter, set[BrokerId]] = defaultdict(set)
    for one in scenario.workload.subscriptions:
        holders[one.filter].add(one.broker)
    counts: Counter[int] = Counter()
    if row.scheme in TELLING:
        for filter, homes in holders.items():
            counts[met[filter]] += len(homes) * (brokers - 1)
    elif row.scheme == "fbr" or (
        row.scheme == "subscription_forwarding" and not row.parameters.get("covering")
    ):
        tree = fbr.tree(scenario.overlay) if row.scheme == "fbr" else scenario.overlay
        held = np.zeros((brokers, len(holders)), dtype=bool)
        for n, homes in enumerate(holders.values()):
            held[list(homes), n] = True
        # Over every link in one direction, and over those between holders in both.
        crossed = brokers - 1 + bounds.on_tree(tree, held).links
        for filter, sent in zip(holders, crossed.tolist(), strict=True):
            counts[met[filter]] += sent
    else:
        counts = _simulated(_ready(scenario, topic, row), met, all)
    return dict(counts)


def _simulated(scenario: Scenario, met: Mapping[Filter, int], all: int) -> Counter[int]:
    counts: Counter[int] = Counter()

    def watch(now: int, broker: BrokerId, input: Input, effects: Any) -> None:
        for effect in effects:
            if isinstance(effect, Send) and not effect.message.carries:
                about = effect.message.about
                counts[all if about is None else met.get(about, all)] += 1

    subscriptions, advertisements = (
        tuple(replace(one, until_us=None) for one in each if one.time_us is None)
        for each in (scenario.workload.subscriptions, scenario.workload.advertisements)
    )
    steady = replace(scenario, workload=Workload(subscriptions, advertisements, ()))
    # What routers start from because the planner knew it was never sent one by one.
    sent = sum(sum(link.messages.values()) for link in run(steady, watch).links)
    counts[all] += sent - counts.total()
    return counts
