"""The ids of rows, by row number, and the first row number of an id.

A dict would take a hundred bytes for each id. Here an id takes the eight bytes of its place in
`names`, once per row, and six to eight in `slots`, a table by hash of row numbers plus one: 0 is
free, -1 was given back.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from postroad.jit import njit

Id = TypeVar("Id", bound=Hashable)

_MIX = 0x9E3779B97F4A7C15
_FREE, _GONE = 0, -1
_FILLED = 2 / 3  # At most such a share of the slots is not free.


class Ids(Generic[Id]):
    def __init__(self) -> None:
        self.rows = 0  # Numbers given to rows so far.
        self.names: npt.NDArray[Any] = np.full(1024, None, dtype=object)
        self._several: dict[Id, int] = {}  # How many rows an id has, where it is not one.
        self._count = 0
        self._filled = 0
        self._slots = np.zeros(64, dtype=np.int32)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, id: Id) -> bool:
        return self._look(id)[0]

    @property
    def nbytes(self) -> int:
        return self.names.nbytes + self._slots.nbytes + self._several.__sizeof__()

    def vacancy(self, id: Id) -> int:
        """The slot for a new id, until another is placed or rows are numbered anew."""
        if self._filled >= _FILLED * len(self._slots):
            self._fill(self._slots[self._slots > _FREE].astype(np.int64) - 1)
        known, slot = self._look(id)
        assert not known, f"{id!r} is in the table already"
        return slot

    def add(self, id: Id) -> int:
        """A number for a new row of an id."""
        number = self.rows
        if number == len(self.names):
            self.names = np.concatenate([self.names, np.full(number // 4, None, dtype=object)])
        self.names[number] = id
        self.rows += 1
        return number

    def place(self, id: Id, slot: int, first: int) -> None:
        """An id has been given all its rows, from the first on."""
        rows = self.rows - first
        if rows != 1:
            self._several[id] = rows
        self._count += 1
        if rows:
            self._filled += self._slots.item(slot) == _FREE
            self._slots[slot] = first + 1

    def rows_of(self, id: Id) -> range:
        """The numbers of an id's rows, until they are numbered anew; KeyError if there is none."""
        known, slot = self._look(id)
        if not known:
            raise KeyError(id)
        rows = self._several.get(id, 1) if self._several else 1
        first = self._slots.item(slot) - 1 if rows else 0
        return range(first, first + rows)

    def remove(self, id: Id) -> range:
        """Forget an id: the numbers of its rows; KeyError if there is none."""
        known, slot = self._look(id)
        if not known:
            raise KeyError(id)
        rows = self._several.pop(id, 1) if self._several else 1
        self._count -= 1
        if not rows:
            return range(0)
        first = self._slots.item(slot) - 1
        self._slots[slot] = _GONE
        for number in range(first, first + rows):
            self.names[number] = None
        return range(first, first + rows)

    def renumber(self, kept: npt.NDArray[np.int64]) -> None:
        """Keep only some rows, which are numbered anew."""
        first = np.zeros(self.rows, dtype=bool)
        first[self._slots[self._slots > _FREE] - 1] = True
        self.names[: len(kept)] = self.names[kept]
        self.names[len(kept) : self.rows] = None
        self.rows = len(kept)
        self._fill(np.flatnonzero(first[kept]))

    def _look(self, id: Id) -> tuple[bool, int]:
        """Whether an id is known, and the slot that has it or would have it."""
        names, slots, size = self.names, self._slots.item, len(self._slots)
        at = ((hash(id) * _MIX & 0xFFFFFFFFFFFFFFFF) >> 32) * size >> 32
        vacant = -1
        while (number := slots(at)) != _FREE:
            if number == _GONE:
                vacant = at if vacant < 0 else vacant
            elif names[number - 1] == id:
                return True, at
            at = at + 1 if at + 1 < size else 0
        return bool(self._several) and self._several.get(id) == 0, at if vacant < 0 else vacant

    def _fill(self, firsts: npt.NDArray[np.int64]) -> None:
        self._slots = np.zeros(64 + len(firsts) * 2, dtype=np.int32)
        keys = np.fromiter(map(hash, self.names[firsts].tolist()), np.int64, len(firsts))
        _place_all(self._slots, keys, firsts)
        self._filled = len(firsts)


@njit(cache=True)
def _place_all(slots, keys, numbers):
    """Write numbers plus one into slots by the keys of their ids, as `_look` finds them."""
    size = np.uint64(len(slots))
    for i in range(len(keys)):
        mixed = (np.uint64(keys[i]) * np.uint64(_MIX)) >> np.uint64(32)
        at = np.int64((mixed * size) >> np.uint64(32))
        while slots[at] != _FREE:
            at = (at + 1) % len(slots)
        slots[at] = numbers[i] + 1
