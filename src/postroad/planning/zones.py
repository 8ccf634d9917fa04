"""Zones: boxes of the content space that together hold every publication exactly once.

All values stand in one order: missing, booleans, numbers, text. A zone has a side per attribute
on which the space was cut: from one value up to, but not including, another. Every publication,
whatever attributes it has, therefore lies in exactly one zone of a partition, and a zone is also
a filter, so that a subscription can be narrowed to it.

Zones are cut so that they carry equal load, the sum over publications of popularity^α · volume ·
weight (Kyra, section III.B). On one attribute each zone takes values until it has its share of
what is left. On several, the space is halved again and again, each time on the attribute whose
cut is best balanced and goes through the fewest subscriptions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt

from postroad.errors import FilterError
from postroad.filters import Filter, conjoin, intersects
from postroad.filters.constraints import (
    Constraint,
    Flags,
    Null,
    NumberRange,
    NumberSet,
    Present,
    TextRange,
    TextSet,
    number_range,
    text_range,
)
from postroad.filters.language import normal_form
from postroad.matching import Index
from postroad.model import Scalar

ALPHA = 0.6101
Side = tuple[str, Scalar | None, Scalar | None]
Point = Mapping[str, Scalar]
Hull = tuple[tuple[int, Any], tuple[int, Any]]
Loads = npt.NDArray[np.float64]
_NOTHING: frozenset[Any] = frozenset()


def place(value: Scalar | None) -> tuple[int, Any]:
    """Where a value stands in the order of all values."""
    if value is None:
        return (0, 0)
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, str):
        return (3, value)
    return (2, (1, 0)) if value != value else (2, (0, value))  # NaN is above all numbers


NARROWED_MAX = 65_536


@dataclass(frozen=True)
class Zone:
    """A box: of each named attribute the values from `low` up to, not including, `high`."""

    sides: tuple[Side, ...] = ()

    def holds(self, attributes: Mapping[str, Scalar]) -> bool:
        for name, low, high in self.sides:
            at = place(attributes.get(name))
            if (low is not None and at < place(low)) or (high is not None and at >= place(high)):
                return False
        return True

    def meets(self, other: Zone) -> bool:
        """Whether the two have a value of every attribute in common."""
        mine = {name: (low, high) for name, low, high in self.sides}
        return all(
            (name not in mine)
            or (_below(low, mine[name][1]) and _below(mine[name][0], high))
            for name, low, high in other.sides
        )  # fmt: skip

    def may_meet(self, hulls: Mapping[str, Hull]) -> bool:
        """Whether a filter of this hull may match something here; quicker than to make sure."""
        return all(
            (high is None or hulls[name][0] < place(high))
            and (low is None or hulls[name][1] >= place(low))
            for name, low, high in self.sides
        )

    def cut(self, name: str, at: Scalar) -> tuple[Zone, Zone]:
        """The parts below a value of an attribute and from it on."""
        sides = {side[0]: side for side in self.sides}
        _, low, high = sides.get(name, (name, None, None))
        under = sides | {name: (name, low, at)}
        over = sides | {name: (name, at, high)}
        return Zone(tuple(under.values())), Zone(tuple(over.values()))

    @cached_property
    def filter(self) -> Filter:
        """The filter that matches exactly what the zone holds."""
        sides = [
            [(name, each) for each in _constraints(low, high)] for name, low, high in self.sides
        ]
        return normal_form([dict(choice) for choice in product(*sides)])

    def narrow(self, filter: Filter) -> Filter | None:
        """What of a filter lies in the zone; None if nothing can.

        A filter that would grow too large is left as it is: what it is compared with in the zone
        lies in the zone anyway.
        """
        if not intersects(self.filter, filter):  # quicker to see than to conjoin
            return None
        known = self._narrowed
        if filter not in known:
            if len(known) >= NARROWED_MAX:
                known.clear()
            try:
                narrowed = conjoin(filter, self.filter)
            except FilterError:
                narrowed = filter
            known[filter] = narrowed if narrowed.conjunctions else None
        return known[filter]

    @cached_property
    def _narrowed(self) -> dict[Filter, Filter | None]:
        """What is known already: every server of a clique asks the same of the same zones."""
        return {}


EVERYWHERE = Zone()


def _below(low: Scalar | None, high: Scalar | None) -> bool:
    return low is None or high is None or place(low) < place(high)


def _constraints(low: Scalar | None, high: Scalar | None) -> list[Constraint]:
    """A side as constraints, one per type of value that it holds."""
    constraints: list[Constraint | None] = []
    if low is None:
        constraints += [Null(), Flags(frozenset((False, True)))]
    if not isinstance(low, str):
        top = None if isinstance(high, str) else high
        constraints.append(number_range(low, False, top, top is not None, _NOTHING))
    if high is None or isinstance(high, str):
        begin = low if isinstance(low, str) else ""
        constraints.append(text_range(begin, high, _NOTHING, _NOTHING, _NOTHING))
    return [each for each in constraints if each is not None]


def attributes_of(filters: Iterable[Filter]) -> list[str]:
    """The attributes that any of the filters constrains, the most constrained first."""
    counts: dict[str, int] = {}
    for filter in filters:
        for name in {name for conjunction in filter.conjunctions for name, _ in conjunction}:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: (-counts[name], name))


def corners(filters: Iterable[Filter]) -> list[Point]:
    """Publications at the bounds of filters: a stand-in where nobody knows what is published."""
    points: dict[tuple[tuple[str, Scalar], ...], None] = {}
    for filter in dict.fromkeys(filters):
        for conjunction in filter.conjunctions:
            ends = [(name, *_ends(constraint)) for name, constraint in conjunction]
            for side in (1, 2):
                point = [(end[0], value) for end in ends if (value := end[side]) is not None]
                points[tuple(point)] = None
    return [dict(point) for point in points if point]


def _ends(constraint: Constraint) -> tuple[Scalar | None, Scalar | None]:
    """The least and the greatest value that a constraint names; None if it names none."""
    match constraint:
        case NumberSet(values) | Flags(values) | TextSet(values):
            return min(values), max(values)
        case NumberRange(low, _, high):
            return low if low is not None else high, high if high is not None else low
        case TextRange(low, high):
            return low, high if high is not None else low
        case Null() | Present():
            return None, None


def loads(filters: Sequence[Filter], points: Sequence[Point], alpha: float = ALPHA) -> Loads:
    """popularity^α per publication, which has volume and weight 1."""
    index: Index[Filter] = Index()
    times = Counter(filters)  # many subscribers ask for the same
    for filter in times:
        index.insert(filter, filter)
    matching = np.array([sum(times[f] for f in index.match(point)) for point in points], np.float64)
    return np.asarray((matching / max(1, len(filters))) ** alpha)


def intervals(load: Loads, count: int) -> list[tuple[int, int]]:
    """Up to `count` runs of values with equal load: [low, high) positions, in order.

    A run takes values until it has at least its share of the load that is left.
    """
    begins = [0]
    total = np.concatenate([[0.0], np.cumsum(load)])
    for left in range(count, 1, -1):
        begin = begins[-1]
        share = (total[-1] - total[begin]) / left
        end = int(np.searchsorted(total, total[begin] + share * (1 - 1e-12)))
        end = max(begin + 1, end)
        if end >= len(load):
            break
        begins.append(end)
    return list(zip(begins, [*begins[1:], len(load)], strict=True))


def partition(
    filters: Sequence[Filter],
    points: Sequence[Point],
    load: Loads,
    attributes: Sequence[str],
    count: int,
) -> list[Zone]:
    """At most `count` zones of equal load, cut on these attributes."""
    if not attributes or not len(points):
        return [EVERYWHERE]
    if len(attributes) == 1:
        name = attributes[0]
        values, weight = _values(name, points, load)
        cuts = [values[begin] for begin, _ in intervals(weight, count)][1:]
        ends = [None, *cuts, None]
        return [Zone(((name, low, high),)) for low, high in pairwise(ends)]
    times = Counter(filters)
    asked = list(times.values())
    hulls = {name: [_hull(filter, name) for filter in times] for name in attributes}
    at_point = {name: [place(point.get(name)) for point in points] for name in attributes}

    def halve(
        zone: Zone, inside: npt.NDArray[np.int64], wanting: list[int], count: int
    ) -> list[Zone]:
        if count == 1:
            return [zone]
        best: tuple[float, str, Scalar] | None = None
        left = (count + 1) // 2
        for name in attributes:
            values, weight = _values(name, [points[i] for i in inside.tolist()], load[inside])
            if len(values) < 2:
                continue
            total = np.cumsum(weight)
            share = total[:-1] / max(total[-1], 1e-300)
            first = int(np.argmin(abs(share - left / count)))
            at = values[first + 1]
            through = sum(asked[n] for n in wanting if _through(hulls[name][n], place(at)))
            cost = through / max(1, sum(asked[n] for n in wanting))
            cost += abs(share[first] - left / count)
            if best is None or cost < best[0]:
                best = (cost, name, at)
        if best is None:
            return [zone]
        _, name, at = best
        parts = zone.cut(name, at)
        cut = place(at)
        low = np.array([at_point[name][i] < cut for i in inside.tolist()], bool)
        under = [n for n in wanting if hulls[name][n][0] < cut]
        over = [n for n in wanting if hulls[name][n][1] >= cut]
        return [
            *halve(parts[0], inside[low], under, left),
            *halve(parts[1], inside[~low], over, count - left),
        ]

    return halve(EVERYWHERE, np.arange(len(points)), list(range(len(asked))), count)


def _values(name: str, points: Sequence[Point], load: Loads) -> tuple[list[Any], Loads]:
    """The distinct values of an attribute in order, and their load.

    Missing and boolean values stand with the least: no cut goes between them.
    """
    total: dict[tuple[int, Any], float] = {}
    value_at: dict[tuple[int, Any], Scalar | None] = {}
    for point, weight in zip(points, load.tolist(), strict=True):
        value = point.get(name)
        at = place(value) if place(value)[0] >= 2 else (0, 0)
        total[at] = total.get(at, 0.0) + weight
        value_at.setdefault(at, value)
    order = sorted(total)
    return [value_at[at] for at in order], np.array([total[at] for at in order])


def _hull(filter: Filter, name: str) -> Hull:
    """Between which places a filter's values of an attribute lie."""
    low: list[tuple[int, Any]] = []
    high: list[tuple[int, Any]] = []
    for conjunction in filter.conjunctions:
        constraint = dict(conjunction).get(name)
        match constraint:
            case NumberSet(values) | Flags(values) | TextSet(values):
                low.append(min(map(place, values)))
                high.append(max(map(place, values)))
            case NumberRange(least, _, most):
                low.append((2, (-1, 0)) if least is None else place(least))
                high.append((2, (2, 0)) if most is None else place(most))
            case TextRange(begin, end):
                low.append(place(begin))
                high.append((4, 0) if end is None else place(end))
            case Null():
                low.append((0, 0))
                high.append((0, 0))
            case _:
                return (0, 0), (4, 0)
    return min(low, default=(0, 0)), max(high, default=(0, 0))


def _through(within: Hull, at: tuple[int, Any]) -> bool:
    return within[0] < at <= within[1]


def zone_of(zones: Sequence[Zone], attributes: Mapping[str, Scalar]) -> int:
    """The number of the zone that holds a publication."""
    return next(number for number, zone in enumerate(zones) if zone.holds(attributes))


def divided_by(zones: Iterable[Zone]) -> frozenset[str]:
    """What the zones are cut along."""
    return frozenset(name for zone in zones for name, _, _ in zone.sides)


def zones_met(zones: Sequence[Zone], filter: Filter) -> list[int]:
    """The numbers of the zones in which a filter may match something."""
    hulls = {name: _hull(filter, name) for name in {side[0] for z in zones for side in z.sides}}
    return [
        number
        for number, zone in enumerate(zones)
        if zone.may_meet(hulls) and intersects(filter, zone.filter)
    ]
