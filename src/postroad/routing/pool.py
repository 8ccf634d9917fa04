"""What is true of filters no matter which broker asks.

Whether a filter matches a publication, or covers another filter, does not depend on the
broker. The routers made from one plan share a pool of the filters in their tables, which
answers each such question once: in the simulator for the whole network, in a live broker for
that broker alone. The pool only remembers; a router's effects never depend on who else uses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Literal

from postroad.filters import Filter, comparing, covers, intersects
from postroad.filters.constraints import NumberSet, TextSet
from postroad.matching import Index
from postroad.model import Advertisement, BrokerId, Publication, Scalar

_RECENT_MAX = 2048  # publications per generation, since each visits many brokers

_MEETINGS_MAX = 8192  # remembered per filter; advertisements come and go

COMPARING = 500  # steps that comparing two filters takes besides those for what they hold

CLASS = "class"  # the attribute that a topic is

LEFT_MAX = 4_096  # that have left, and
FEW = 512  # that are left: then a new index takes little time

Pin = tuple[str, Scalar]
Offer = tuple[Advertisement, BrokerId]


class Offers:
    """Advertisements, to be compared with filters: by the identity of their own, with their places
    in the order."""

    def __init__(self, offers: Iterable[Offer]) -> None:
        self.of: dict[int, list[tuple[int, Offer]]] = {}
        for place, offer in enumerate(offers):
            self.of.setdefault(id(offer[0].filter), []).append((place, offer))
        self.filters = frozenset(self.of)


class Meetings:
    """The filters of advertisements that a filter was compared with, by identity (as keys they
    would be slow: there are many questions), and which of them it intersects. `with_all` is the
    last set of them that it was compared with."""

    __slots__ = ("compared", "met", "with_all")

    def __init__(self) -> None:
        self.compared: dict[int, Filter] = {}  # kept, so that no other gets its identity
        self.met: set[int] = set()
        self.with_all: frozenset[int] | None = None


class Several:
    """How many tables hold a filter, of which more than one has."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 2


class FilterPool:
    """The filters in any table, how many tables hold each, what they match and cover."""

    def __init__(self, covering: bool = False) -> None:
        self.covering = covering
        # In a live broker one table holds them, which takes no more than the number; where hundreds
        # do, to count one more takes no second look-up.
        self.uses: dict[Filter, Several | Literal[1]] = {}
        self.above: dict[Filter, dict[Filter, None]] = {}
        self.below: dict[Filter, dict[Filter, None]] = {}
        self.recent_max = _RECENT_MAX  # 0 where each publication is asked about once
        # Of a filter that enters, to compare it with others; of those beyond, it is taken to cover
        # none and to be covered by none, which costs messages and no delivery. None: any number.
        self.steps_max: int | None = None
        self.index: Index[Filter] = Index()
        # Two generations: the elder is dropped whole, because to look for the first entry of a
        # dictionary from whose front others were deleted takes longer the more there were.
        # By identity, because the same object travels and is asked for at each broker; kept, so
        # that no other gets its identity.
        self._recent: dict[int, tuple[Publication, list[Filter]]] = {}
        self._meetings: dict[Filter, Meetings] = {}
        self._offered: frozenset[int] = frozenset()  # the last, and soon that of all brokers
        self._elder: dict[int, tuple[Publication, list[Filter]]] = {}
        # Filters by the values they pin: a filter that demands class = 'A' is only covered
        # by filters that demand the same or nothing of `class`, and covers only the former.
        self._pinned: dict[Pin, dict[Filter, None]] = {}
        self._unpinned: dict[Filter, None] = {}
        self._left = 0  # filters, since the index was begun
        # Filters that ask for more than the class: how many of any class, and of each.
        self._asking_any = 0
        self._asking: dict[Scalar, int] = {}

    def load_beside(self) -> None:
        """Never stop to load the matching kernels: a table that needs them grows on meanwhile."""
        self.index.beside = True

    def enter(self, filter: Filter) -> None:
        """A table begins to hold this filter."""
        uses = self.uses.get(filter)
        if type(uses) is Several:
            uses.count += 1
            return
        if uses is not None:
            self.uses[filter] = Several()
            return
        self.uses[filter] = 1
        self.index.insert(filter, filter)
        self._recent, self._elder = {}, {}
        self._count_asking(filter, 1)
        if self.covering:
            self._relate(filter)

    def leave(self, filter: Filter) -> None:
        """A table no longer holds this filter."""
        uses = self.uses[filter]
        if type(uses) is Several and uses.count > 1:
            uses.count -= 1
            return
        del self.uses[filter]
        self._meetings.pop(filter, None)
        self.index.remove(filter)
        self._recent, self._elder = {}, {}
        self._count_asking(filter, -1)
        if self.covering:
            for other in self.above.pop(filter):
                del self.below[other][filter]
            for other in self.below.pop(filter):
                del self.above[other][filter]
            pins = _pins(filter)
            for pin in pins:
                del self._pinned[pin][filter]
                if not self._pinned[pin]:
                    del self._pinned[pin]
            if not pins:
                del self._unpinned[filter]
        self._left += 1
        if self._left > LEFT_MAX and len(self.uses) <= FEW:
            # The index keeps room, and the texts, of all it ever had: begin a new one.
            self._left = 0
            self.index = Index(self.index.beside)
            for kept in self.uses:
                self.index.insert(kept, kept)

    def match(self, publication: Publication) -> list[Filter]:
        """All filters of the pool that match; a table picks out its own."""
        if not self.recent_max:
            return self.index.match(publication.attributes)
        number = id(publication)
        known = self._recent.get(number) or self._elder.get(number)
        if known is not None and known[0] is publication:
            return known[1]
        filters = self.index.match(publication.attributes)
        if len(self._recent) >= self.recent_max:
            self._recent, self._elder = {}, self._recent
        self._recent[number] = publication, filters
        return filters

    def of_class(self, topic: str) -> list[Filter] | None:
        """All filters that match each publication of this class; None if some may match one that
        says this and not one that says that."""
        if self._asking_any or topic in self._asking:
            return None
        return self.index.match({CLASS: topic})

    def _count_asking(self, filter: Filter, step: int) -> None:
        classes = _asking(filter)
        if classes is None:
            self._asking_any += step
            return
        for name in classes:
            count = self._asking.get(name, 0) + step
            if count:
                self._asking[name] = count
            else:
                del self._asking[name]

    def offers(self, offers: Iterable[Offer]) -> Offers:
        """These advertisements, to be compared with filters."""
        whole = Offers(offers)
        if whole.filters == self._offered:
            whole.filters = self._offered
        self._offered = whole.filters
        return whole

    def meeting(self, filter: Filter, offers: Offers) -> list[Offer]:
        """Those of the advertisements that intersect the filter, in the same order."""
        meetings = self._meetings.get(filter)
        if meetings is None or len(meetings.compared) > _MEETINGS_MAX:
            meetings = Meetings()
            if filter in self.uses:
                self._meetings[filter] = meetings
        of, met = offers.of, meetings.met
        if meetings.with_all is not offers.filters:
            for number in offers.filters - meetings.compared.keys():
                offered = meetings.compared[number] = of[number][0][1][0].filter
                if intersects(offered, filter):
                    met.add(number)
            meetings.with_all = offers.filters
        own = [of[number] for number in met if number in of]
        if len(own) == 1:
            return [offer for _, offer in own[0]]
        return [offer for _, offer in sorted(chain.from_iterable(own))]

    def _relate(self, filter: Filter) -> None:
        pins = _pins(filter)
        above = self.above[filter] = {}
        below = self.below[filter] = {}
        for other in self._within_bounds(filter, self._outer(filter, pins)):
            if covers(other, filter):
                above[other] = None
                self.below[other][filter] = None
        for other in self._within_bounds(filter, self._inner(pins)):
            if covers(filter, other):
                below[other] = None
                self.above[other][filter] = None
        for bucket in self._buckets(filter):
            bucket[filter] = None

    def _within_bounds(self, filter: Filter, others: Iterable[Filter]) -> Iterable[Filter]:
        """As many of the others as it may be compared with."""
        if self.steps_max is None:
            return others
        bounded, left = [], self.steps_max
        for other in others:
            left -= COMPARING + comparing(filter, other)
            if left < 0:
                break
            bounded.append(other)
        return bounded

    def _outer(self, filter: Filter, pins: list[Pin]) -> Iterable[Filter]:
        """All that may cover a filter with these pins, and more."""
        if not filter.conjunctions:
            return list(self.above)[:-1]
        outer = dict(self._unpinned)
        for pin in pins:
            outer.update(self._pinned.get(pin, {}))
        return outer

    def _inner(self, pins: list[Pin]) -> Iterable[Filter]:
        """All that a filter with these pins may cover, and more."""
        if not pins:
            return list(self.above)[:-1]
        least = min((self._pinned.get(pin, {}) for pin in pins), key=len)
        # A filter that nothing satisfies pins nothing, yet is covered by everything.
        return [*least, *(other for other in self._unpinned if not other.conjunctions)]

    def _buckets(self, filter: Filter) -> list[dict[Filter, None]]:
        pins = _pins(filter)
        return [self._pinned.setdefault(pin, {}) for pin in pins] or [self._unpinned]


def _asking(filter: Filter) -> set[Scalar] | None:
    """The classes of which the filter asks for more; None if that may be any."""
    classes: set[Scalar] = set()
    for conjunction in filter.conjunctions:
        constraints = dict(conjunction)
        own = constraints.pop(CLASS, None)
        if constraints:
            if not isinstance(own, TextSet):
                return None
            classes.update(own.values)
    return classes


def _pins(filter: Filter) -> list[Pin]:
    """The (attribute, value) pairs that every conjunction of the filter demands."""
    pins: dict[Pin, int] = {}
    for conjunction in filter.conjunctions:
        for name, constraint in conjunction:
            if isinstance(constraint, (TextSet, NumberSet)) and len(constraint.values) == 1:
                pin = (name, next(iter(constraint.values)))
                pins[pin] = pins.get(pin, 0) + 1
    return [pin for pin, count in pins.items() if count == len(filter.conjunctions)]
