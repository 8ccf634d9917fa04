"""The matcher: plain Python while a table is small, compiled kernels once that pays.

Importing and loading the kernels takes about a second, which a small table never earns back.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from postroad.filters import Filter
from postroad.matching.filed import Filed
from postroad.model import Scalar

if TYPE_CHECKING:
    from postroad.matching.compiled import Compiled

Id = TypeVar("Id", bound=Hashable)

SMALL_MAX = 4_096  # A table with more filters is compiled,
ASKED_MAX = 2_000_000  # and one that was asked so much, about a second's worth,
WORTHWHILE = 256  # if it has at least so many filters.


class Index(Generic[Id]):
    """Many filters, each under an id; `match` says which of them are TRUE of a publication."""

    def __init__(self) -> None:
        self._small: Filed[Id] | None = Filed()
        self._table: Filed[Id] | Compiled[Id] = self._small

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, id: Id) -> bool:
        return id in self._table

    def insert(self, id: Id, filter: Filter) -> None:
        """Add a filter under a new id."""
        self._table.insert(id, filter)
        if self._small is not None and len(self._small) > SMALL_MAX:
            self.compile()

    def remove(self, id: Id) -> None:
        """Take a filter out; KeyError if there is none under this id."""
        self._table.remove(id)

    def match(self, attributes: Mapping[str, Scalar | None]) -> list[Id]:
        """The ids of all filters that match, in the order of their insertion."""
        small = self._small
        if small is not None and small.asked > ASKED_MAX and len(small) >= WORTHWHILE:
            self.compile()
        return self._table.match(attributes)

    @property
    def nbytes(self) -> int:
        """The bytes of a compiled table, without the ids themselves; 0 before it is compiled."""
        return 0 if isinstance(self._table, Filed) else self._table.nbytes

    def compile(self) -> None:
        """Go over to the compiled kernels now; otherwise this happens when it pays."""
        if self._small is None:
            return
        from postroad.matching import compiled

        compiled.ready()
        table: Compiled[Id] = compiled.Compiled()
        for id, filter in self._small.items():
            table.insert(id, filter)
        self._small, self._table = None, table
