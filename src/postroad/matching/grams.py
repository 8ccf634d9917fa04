"""Rows that demand a text anywhere in an attribute (LIKE '%x%'), found by a few of its characters.

A row is filed under one gram, a run of 3, 5 or 8 characters of a text that its pattern demands: of
the longest such runs the one with the fewest rows. A publication looks up every run of these
lengths in its value, so it meets only rows that it shares a gram with; each of them is then asked
in full. A row alone under its gram is kept as a number, several as the keys of a dict.

Compiled code has no need of the rows where a text shares no gram with any of them. For it each
gram is *marked*, by two bits of an array of its attribute, by hashes of its bytes: before the bits
are two words that say how far the hashes are shifted and which lengths there are. A mark stays when
its gram goes, until there are too many and they are made anew.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from postroad.filters import like as patterns
from postroad.filters.constraints import TextRange
from postroad.filters.language import Conjunction
from postroad.model import Scalar

LENGTHS = (8, 5, 3)
HEAD = 2  # words before the bits of the marks
MIXES = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)
_BITS_EACH, _BITS_LEAST = 128, 16  # bits for each mark at least, and for all as a power of two
SELECTIVE = 5  # characters: so many are worth more than a value or a prefix that is demanded

Bucket = int | dict[int, None]


class Grams:
    def __init__(self) -> None:
        self._tables: dict[str, dict[int, dict[str, Bucket]]] = {}  # by attribute and length
        self.homes: dict[int, tuple[str, str]] = {}  # by row number: attribute and gram
        self._marks: dict[str, npt.NDArray[np.uint64]] = {}  # by attribute,
        self._marked: dict[str, int] = {}  # and how many they are
        self.moves = 0  # how often marks came to lie elsewhere

    def __len__(self) -> int:
        return len(self.homes)

    @property
    def nbytes(self) -> int:
        tables = [table for lengths in self._tables.values() for table in lengths.values()]
        marks = sum(each.nbytes for each in self._marks.values())
        return sum(map(sys.getsizeof, tables)) + sys.getsizeof(self.homes) + marks

    def marks_at(self, name: str) -> int:
        """The address of an attribute's marks; 0 if it has none."""
        marks = self._marks.get(name)
        return 0 if marks is None else marks.ctypes.data

    def insert(self, number: int, name: str, text: str) -> None:
        """File a row under a gram of a text that it demands of this attribute."""
        length = next(each for each in LENGTHS if each <= len(text))
        table = self._tables.setdefault(name, {}).setdefault(length, {})
        runs = [text[at : at + length] for at in range(len(text) - length + 1)]
        gram = min(runs, key=lambda run: _size(table.get(run)))
        bucket = table.get(gram)
        if bucket is None:
            table[gram] = number
            self._mark(name, gram)
        elif isinstance(bucket, dict):
            bucket[number] = None
        else:
            table[gram] = {bucket: None, number: None}
        self.homes[number] = (name, gram)

    def remove(self, number: int) -> None:
        name, gram = self.homes.pop(number)
        lengths = self._tables[name]
        table = lengths[len(gram)]
        bucket = table[gram]
        if isinstance(bucket, dict) and len(bucket) > 1:
            del bucket[number]
            return
        del table[gram]
        if not table:
            del lengths[len(gram)]
            if not lengths:
                del self._tables[name], self._marks[name], self._marked[name]
                self.moves += 1

    def candidates(self, attributes: Mapping[str, Scalar | None]) -> list[int]:
        """The numbers of all rows that share their gram with the publication."""
        numbers: list[int] = []
        for name, lengths in self._tables.items():
            value = attributes.get(name)
            if not isinstance(value, str):
                continue
            for length, table in lengths.items():
                runs = {value[at : at + length] for at in range(len(value) - length + 1)}
                for gram in runs & table.keys():
                    bucket = table[gram]
                    if isinstance(bucket, dict):
                        numbers += bucket
                    else:
                        numbers.append(bucket)
        return numbers

    def renumber(self, new: npt.NDArray[np.int64]) -> None:
        """Rows have other numbers from now on."""
        homes, self.homes, self._tables = self.homes, {}, {}
        self._marks, self._marked = {}, {}
        for number, (name, gram) in homes.items():
            self.insert(int(new[number]), name, gram)

    def _mark(self, name: str, gram: str) -> None:
        marks, count = self._marks.get(name), self._marked.get(name, 0) + 1
        self._marked[name] = count
        if marks is not None and _BITS_EACH * count <= 64 * (len(marks) - HEAD):
            _set_mark(marks, gram)
            return
        every = [gram for table in self._tables[name].values() for gram in table]
        bits = max(_BITS_LEAST, (_BITS_EACH * len(every)).bit_length())
        marks = self._marks[name] = np.zeros(HEAD + (1 << bits >> 6), dtype=np.uint64)
        marks[0] = 64 - bits
        self._marked[name] = len(every)
        self.moves += 1
        for each in every:
            _set_mark(marks, each)


def _set_mark(marks: npt.NDArray[np.uint64], gram: str) -> None:
    """Of one that is not ASCII nothing need be known: who asks has no such text."""
    if not gram.isascii():
        return
    word = int.from_bytes(gram.encode(), "big") ^ len(gram)
    for mix in MIXES:
        mark = (word * mix & (1 << 64) - 1) >> int(marks[0])
        marks[HEAD + (mark >> 6)] |= np.uint64(1 << (mark & 63))
    marks[1] |= np.uint64(1 << LENGTHS.index(len(gram)))


def home(conjunction: Conjunction, pinned: bool) -> tuple[str, str] | None:
    """The attribute and the longest text that it has to hold anywhere, if that tells rows apart
    better than what else is demanded: `pinned` says that a value or a prefix is."""
    best: tuple[str, str] | None = None
    for name, constraint in conjunction:
        if isinstance(constraint, TextRange):
            for pattern in sorted(constraint.like):
                for text in _texts(pattern):
                    if best is None or len(text) > len(best[1]):
                        best = (name, text)
    if best is None or len(best[1]) < (SELECTIVE if pinned else LENGTHS[-1]):
        return None
    return best


def _texts(pattern: str) -> list[str]:
    """The runs of characters that every text like the pattern holds."""
    runs = [""]
    for segment in patterns.segments(pattern):
        runs.append("")
        for char in segment:
            if char is None:
                runs.append("")
            else:
                runs[-1] += char
    return runs


def _size(bucket: Bucket | None) -> int:
    if bucket is None:
        return 0
    return len(bucket) if isinstance(bucket, dict) else 1
