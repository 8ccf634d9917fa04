"""What patterns of topics that the kernels cannot ask say of topics that came before.

Clients ask for `quotes/+`, which is a pattern LIKE no prefix says exactly: the kernels accept rows
for the prefix, and Python has to ask the rest. Of many rows that is one test of the topic and
nothing else, and topics come again, so its answer is kept for compiled code to read.

Layout. `tests`: by row number the number of its test; 0 where it has none, or asks for more. `of`:
by topic a byte for each test, `UNKNOWN`, `REFUSED` or `ACCEPTED`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from postroad.filters.constraints import Constraint

TOPIC = "class"
UNKNOWN, REFUSED, ACCEPTED = range(3)
TESTS_MAX = 255
TOPICS_MAX = 16_384
TOPIC_CHARACTERS = 256


class Verdicts:
    def __init__(self, rows: int) -> None:
        self.tests: npt.NDArray[np.uint8] = np.zeros(rows, dtype=np.uint8)
        self.of: dict[str, bytearray] = {}
        self._numbers: dict[Constraint, int] = {}
        self._constraints: list[Constraint | None] = [None]  # by number; None of a free one
        self._uses = [0]

    @property
    def nbytes(self) -> int:
        return self.tests.nbytes + sum(map(sys.getsizeof, [self.of, *self.of.values()]))

    def grow(self, rows: int) -> None:
        self.tests = np.concatenate([self.tests, np.zeros(rows - len(self.tests), dtype=np.uint8)])

    def has_room(self, test: Constraint, most: int) -> bool:
        """Whether a test is known, or would not be one of more than so many."""
        return test in self._numbers or len(self._numbers) < most

    def add(self, row: int, test: Constraint) -> None:
        """A row matches if its topic passes this test; no more than so many are kept apart."""
        number = self._numbers.get(test)
        if number is None:
            number = self._free()
            if number == 0:
                return
            self._numbers[test] = number
            self._constraints[number] = test
        self._uses[number] += 1
        self.tests[row] = number

    def drop(self, row: int) -> None:
        number = self.tests.item(row)
        if number:
            self.tests[row] = 0
            self._uses[number] -= 1
            test = self._constraints[number]
            if not self._uses[number] and test is not None:
                del self._numbers[test]
                self._constraints[number] = None
                self.of.clear()  # another test may get its number

    def renumber(self, kept: npt.NDArray[np.int64]) -> None:
        """Only some rows are kept, in the same order."""
        tests = self.tests[kept]
        self.tests[:] = 0
        self.tests[: len(kept)] = tests

    def learn(self, topic: Any, rows: Iterable[int]) -> None:
        """Have the answers of these rows' tests for a topic."""
        if type(topic) is not str or len(topic) > TOPIC_CHARACTERS:
            return
        known = self.of.get(topic)
        for row in rows:
            number = self.tests.item(row)
            test = self._constraints[number]
            if test is None:
                continue
            if known is None or number >= len(known):
                if known is None and len(self.of) >= TOPICS_MAX:
                    self.of.clear()
                before = known or b""
                known = self.of[topic] = bytearray(len(self._constraints))
                known[: len(before)] = before
            known[number] = ACCEPTED if test.accepts(topic) else REFUSED

    def _free(self) -> int:
        """A number that no test has; 0 if there is none."""
        for number in range(1, len(self._constraints)):
            if self._constraints[number] is None:
                return number
        if len(self._constraints) > TESTS_MAX:
            return 0
        self._constraints.append(None)
        self._uses.append(0)
        return len(self._constraints) - 1
