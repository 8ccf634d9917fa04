"""The plain truth about matching: every filter is asked in turn."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from postroad.filters import Filter, matches
from postroad.model import Scalar

Id = TypeVar("Id", bound=Hashable)


class LinearScan(Generic[Id]):
    """The oracle of `Index`: the same interface, one filter after the other."""

    def __init__(self) -> None:
        self._filters: dict[Id, Filter] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, id: Id) -> bool:
        return id in self._filters

    def insert(self, id: Id, filter: Filter) -> None:
        """Add a filter under a new id."""
        assert id not in self._filters, f"{id!r} is in the table already"
        self._filters[id] = filter

    def remove(self, id: Id) -> None:
        """Take a filter out; KeyError if there is none under this id."""
        del self._filters[id]

    def match(self, attributes: Mapping[str, Scalar | None]) -> list[Id]:
        """The ids of all filters that match, in the order of their insertion."""
        return [id for id, filter in self._filters.items() if matches(filter, attributes)]
