"""The matcher for small tables: filters are found by a value they demand, then asked in full.

Each conjunction that demands one of a few values of some attribute is filed under those
values, at the attribute where its buckets are emptiest. A publication asks only the
conjunctions filed under its own values, and those that demand no such thing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from postroad.filters import Filter
from postroad.filters.constraints import NumberSet, TextSet
from postroad.filters.language import Conjunction, Tests, tests_of
from postroad.model import Scalar

Id = TypeVar("Id", bound=Hashable)
Key = tuple[int, int]  # The filter's number, in order of insertion, and its conjunction's.
Bucket = dict[Key, Tests]
_VALUES_MAX = 16  # A conjunction is filed under at most so many values.


class Filed(Generic[Id]):
    """The same interface as `Index`; `asked` counts the conjunctions asked so far."""

    def __init__(self) -> None:
        self._ids: dict[int, Id] = {}
        self._homes: dict[Id, tuple[int, Filter, list[Home]]] = {}
        self._tables: dict[str, dict[Scalar | None, Bucket]] = {}
        self._homeless: Bucket = {}
        self._next = 0
        self.asked = 0

    def __len__(self) -> int:
        return len(self._homes)

    def __contains__(self, id: Id) -> bool:
        return id in self._homes

    def insert(self, id: Id, filter: Filter) -> None:
        """Add a filter under a new id."""
        assert id not in self._homes, f"{id!r} is in the table already"
        number, self._next = self._next, self._next + 1
        homes = []
        for part, conjunction in enumerate(filter.conjunctions):
            home = self._home(conjunction)
            tests = _tests(conjunction, home)
            if home is None:
                self._homeless[number, part] = tests
            else:
                name, values = home
                table = self._tables.setdefault(name, {})
                for value in values:
                    table.setdefault(value, {})[number, part] = tests
            homes.append(home)
        self._ids[number] = id
        self._homes[id] = (number, filter, homes)

    def remove(self, id: Id) -> None:
        """Take a filter out; KeyError if there is none under this id."""
        number, _, homes = self._homes.pop(id)
        del self._ids[number]
        for part, home in enumerate(homes):
            if home is None:
                del self._homeless[number, part]
                continue
            name, values = home
            table = self._tables[name]
            for value in values:
                bucket = table[value]
                del bucket[number, part]
                if not bucket:
                    del table[value]
            if not table:
                del self._tables[name]

    def match(self, attributes: Mapping[str, Scalar | None]) -> list[Id]:
        """The ids of all filters that match, in the order of their insertion."""
        get = attributes.get
        numbers: list[int] = []
        for name, table in self._tables.items():
            bucket = table.get(get(name))
            if bucket is not None:
                self.asked += len(bucket)
                _ask(bucket, get, numbers)
        if self._homeless:
            self.asked += len(self._homeless)
            _ask(self._homeless, get, numbers)
        if len(numbers) > 1:
            numbers = sorted(set(numbers))
        ids = self._ids
        return [ids[number] for number in numbers]

    def number(self, id: Id) -> int:
        """It grows with each filter that is inserted."""
        return self._homes[id][0]

    def filter(self, id: Id) -> Filter:
        return self._homes[id][1]

    def items(self) -> Iterator[tuple[Id, Filter]]:
        """All ids and filters, in the order of their insertion."""
        return ((id, filter) for id, (_, filter, _) in self._homes.items())

    def _home(self, conjunction: Conjunction) -> Home:
        """Where to file it: where the fullest bucket is smallest, then the values most varied."""
        best: Home = None
        least = (0, 0)
        for name, constraint in conjunction:
            if not isinstance(constraint, (TextSet, NumberSet)):
                continue
            values = constraint.values
            if len(values) > _VALUES_MAX:
                continue
            table = self._tables.get(name, {})
            size = (max(len(table.get(value, ())) for value in values), -len(table))
            if best is None or size < least:
                best, least = (name, values), size
        return best


Home = tuple[str, Iterable[Scalar]] | None


def _tests(conjunction: Conjunction, home: Home) -> Tests:
    """What to ask of a publication that has one of the values of the conjunction's home: of a text
    nothing more, but a boolean can be found among numbers."""
    if home is not None and isinstance(dict(conjunction)[home[0]], TextSet):
        return tests_of(tuple(pair for pair in conjunction if pair[0] != home[0]))
    return tests_of(conjunction)


def _ask(bucket: Bucket, get: Callable[[str], Scalar | None], numbers: list[int]) -> None:
    for (number, _), tests in bucket.items():
        for name, accepts in tests:
            if not accepts(get(name)):
                break
        else:
            numbers.append(number)
