"""The matcher: plain Python while a table is small, compiled kernels once that pays.

Importing and loading the kernels takes about a second, which a small table never earns back. Who
must not stop for a second has them loaded beside (`beside`), and the table grows on meanwhile; then
its filters move over some at a time. The first time after an installation they are compiled, which
takes most of a minute: another process does that, because a thread would take turns with those
who wait for answers. Without Numba (the extra `fast`) all tables stay as they are.
"""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from postroad.filters import Filter
from postroad.filters.nested import ROWS, rows_of
from postroad.matching.filed import Filed
from postroad.model import Scalar

if TYPE_CHECKING:
    from postroad.matching.compiled import Compiled
    from postroad.matching.fanout import Fanout

Id = TypeVar("Id", bound=Hashable)

# What passes over packets that no filter matches and hands out the others (`packets.passer` says
# how it is asked).
Passing = Callable[
    [tuple[bytes, int, int, int, bool, Mapping[bytes, str], set[str], list[Any], int, int, bytes]],
    int,
]
PASSED_BITS = 16  # of its answer: how many; the rest is where to go on
PASSED_MAX = (1 << PASSED_BITS) - 1
# Of who gets packets: who speaks MQTT 5, MQTT 3.1.1, and what wants MQTT 5 in small pieces.
PLAIN, OLD, NEIGHBOUR = range(3)
TAG_BYTES = 8  # of a filter's tag, as `fanout` has them

SMALL_MAX = 4_096  # A table with more filters is compiled,
ASKED_MAX = 2_000_000  # and one that was asked so much, about a second's worth,
WORTHWHILE = 256  # if it has at least so many filters.
PASSED_WORTHWHILE = 100_000  # asked, and any table is compiled whose publications stand in bytes
COMPILABLE = find_spec("numba") is not None
_COMPILE = "from postroad.matching import compiled; compiled.ready_passing()"
AT_ONCE = 256  # that move over in one step, where nobody must wait for all of them


@lru_cache(maxsize=1)
def _loader() -> Thread:
    """The thread that loads the kernels, begun when it is first asked for."""
    thread = Thread(target=_load, name="postroad kernels", daemon=True)
    thread.start()
    return thread


def _load() -> None:
    from postroad.matching import compiled

    if not (compiled.is_ready() and compiled.passing_is_ready()):
        subprocess.run([sys.executable, "-c", _COMPILE], stdin=subprocess.DEVNULL, check=False)
    compiled.ready_passing()


class Index(Generic[Id]):
    """Many filters, each under an id; `match` says which of them are TRUE of a publication."""

    def __init__(self, beside: bool = False) -> None:
        self.beside = beside
        self._small: Filed[Id] | None = Filed()
        self._table: Filed[Id] | Compiled[Id] = self._small
        self._next: Compiled[Id] | None = None  # to which filters are moving over,
        self._left: deque[tuple[int, Id]] = deque()  # and those that have not, by their numbers

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, id: Id) -> bool:
        return id in self._table

    def insert(self, id: Id, filter: Filter) -> None:
        """Add a filter under a new id."""
        self._table.insert(id, filter)
        small = self._small
        if small is not None:
            if self._next is not None:
                self._left.append((small.number(id), id))
            if len(small) > SMALL_MAX and COMPILABLE and self._loaded():
                self._go_over()

    def remove(self, id: Id) -> None:
        """Take a filter out; KeyError if there is none under this id."""
        self._table.remove(id)
        if self._next is not None and id in self._next:
            self._next.remove(id)

    def match(self, attributes: Mapping[str, Scalar | None]) -> list[Id]:
        """The ids of all filters that match, in the order of their insertion; where attributes have
        several rows, each by the first that it matches."""
        if self._small is None and ROWS not in attributes:
            return self._table.match(attributes)
        if ROWS in attributes:
            rows = rows_of(attributes)
            return list(dict.fromkeys(id for row in rows for id in self.match(row)))
        small = self._small
        if small is not None and COMPILABLE and self._worthwhile(small) and self._loaded():
            self._go_over()
        return self._table.match(attributes)

    def passing(self) -> Passing | None:
        """What passes over publications that no filter matches and hands out the others, as
        `packets` says; None while each has to be matched by itself."""
        small = self._small
        if small is not None and COMPILABLE and small.asked > PASSED_WORTHWHILE and self._loaded():
            self._go_over()
        return None if isinstance(self._table, Filed) else self._table.passing()

    def went_by(self, count: int) -> None:
        """So many publications that stand in bytes went their way unasked, one by one: that counts
        as much towards compiling the table as asking."""
        if self._small is not None:
            self._small.asked += count

    def fanout(self) -> Fanout[Id, Any]:
        """Who gets what each filter matches, where there is `passing`, until the table changes."""
        assert not isinstance(self._table, Filed)
        return self._table.fanout()

    @property
    def nbytes(self) -> int:
        """The bytes of a compiled table, without the ids themselves; 0 before it is compiled."""
        return 0 if isinstance(self._table, Filed) else self._table.nbytes

    def _worthwhile(self, small: Filed[Id]) -> bool:
        count = len(small)
        return count > SMALL_MAX or (small.asked > ASKED_MAX and count >= WORTHWHILE)

    def _loaded(self) -> bool:
        """Whether the kernels are there, or may be loaded now; otherwise see to it."""
        return not self.beside or not _loader().is_alive()

    def compile(self) -> None:
        """Go over to the compiled kernels now; otherwise this happens when it pays."""
        while self._small is not None:
            self._move(self._small)

    def _go_over(self) -> None:
        """Begin to, or go on."""
        if self.beside and self._small is not None:
            self._move(self._small)
        else:
            self.compile()

    def _move(self, small: Filed[Id]) -> None:
        from postroad.matching import compiled

        if self._next is None:
            compiled.ready()
            self._next = compiled.Compiled()
            self._left.extend((small.number(id), id) for id, _ in small.items())
        for _ in range(min(AT_ONCE, len(self._left))):
            number, id = self._left.popleft()
            if id in small and small.number(id) == number:  # it was not taken out meanwhile
                self._next.insert(id, small.filter(id))
        if not self._left:
            self._table, self._small, self._next = self._next, None, None
