"""The matcher for many filters: conjunctions become rows of numbers for the compiled kernels.

Every aspect of an attribute that a filter can ask about is a *channel* holding one float:

- `number`: the value itself. NaN becomes infinity: no literal lies between the two.
- `code`: each value that some filter demands has a code; equality is equality of codes.
- a length n: the code of the value's first n characters, for prefixes of that length.
- `text`: the first six bytes and the length, in an order that never contradicts the texts'.
- `flag`, `null`, `present`: 0 or 1.

What five demands on channels cannot say exactly (LIKE beyond prefixes, texts longer than six
bytes as bounds, integers no float equals, second IN lists) is asked of the conjunction itself,
in Python, once the kernels have accepted the row. Where a publication holds an integer that no
float equals, it is given as the floats around it and all accepted rows are asked that way.
A conjunction that is best told apart by a text that LIKE demands anywhere is no row of the
kernels: it is filed in `Grams`, and then asked.
"""

from __future__ import annotations

import logging
import math
import struct
import sys
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from postroad.filters import EVERYTHING, Filter, parse
from postroad.filters import like as patterns
from postroad.filters.constraints import (
    Constraint,
    Flags,
    Null,
    Number,
    NumberRange,
    NumberSet,
    Present,
    TextRange,
    TextSet,
)
from postroad.filters.language import Conjunction, tests_of
from postroad.jit import is_cached
from postroad.matching import grams, kernels, native, packets
from postroad.matching.fanout import Fanout
from postroad.matching.grams import Grams
from postroad.matching.ids import Ids
from postroad.matching.index import Passing
from postroad.matching.verdicts import TOPIC, Verdicts
from postroad.model import Scalar

Id = TypeVar("Id", bound=Hashable)
Demand = tuple[float, float, float, int]  # Channel, low, high, flags.
Tests = list[tuple[str, Callable[[Scalar | None], bool]]]

log = logging.getLogger("postroad.matching")

INFINITY = math.inf
_TRIAL_FILTERS = (
    "a = 1", "a > 0.5 AND b = 'x'", "b LIKE 'xy%'", "flag = TRUE", "c IS NULL", "a <> 3",
    "a IN (1, 2, 1000000) OR b IN ('x', 'z')", "b NOT IN ('x')", "a IS NOT NULL",
)  # fmt: skip
_TRIAL_ROWS: tuple[dict[str, Scalar | None], ...] = (
    {}, {"a": 1}, {"a": 1.0, "b": "x", "c": 0}, {"b": "xyz", "flag": True}, {"a": 10**6, "c": None},
    {"a": 3, "flag": False}, {"a": 2**60}, {"a": float("nan")}, {"b": "é"}, {"b": "z", "d": "?"},
)  # fmt: skip
_SPREAD_MAX = 16  # An IN list of so many values becomes a row per value, whatever else is asked.
_LENGTHS_MAX = 32  # So many lengths of prefixes per attribute have their own channels.
_REFILE_AT = 4  # Rows are filed anew when there are so many times more of them,
_REFILE_MAX = 300_000  # unless there are more than so many: their cells are good enough.
_SAMPLED = 16_384  # So many rows say where cells begin and end.
_WINDOWED_AT = 65_536  # Windows are used once so many rows are filed anew.
_COUPLED_ROWS = 8  # Rows are filed under two codes if so many share them on average,
_COUPLED_VALUES = 4  # and there are at least so many of either.
_CODES_SPARE = 16_384  # Beyond four per row, so many codes may be unused.
_TEXT_BYTES = 6
_LOOSE_MAX = 32  # So many patterns of topics are looked at in each match.
_BY_GRAM = -2  # The home of a row that is in `Grams`.
_SAID_AFTER = 1.0  # A start that takes more seconds says what it is doing.


class _Attribute:
    """The channels of one attribute; -1 where no filter asks.

    Channels and codes are floats already, because integers take twice as long to pack.
    """

    __slots__ = (
        "code",
        "codes",
        "excluded",
        "flag",
        "null",
        "number",
        "prefixes",
        "present",
        "text",
    )

    def __init__(self) -> None:
        self.number = self.code = self.text = self.flag = self.null = self.present = -1.0
        self.codes: dict[Scalar, float] = {}
        self.excluded = False
        self.prefixes: list[tuple[int, float, dict[str, float]]] = []  # Length, channel, codes.


class Compiled(Generic[Id]):
    """The same interface as `Index`, for thousands to millions of filters.

    `plain` keeps to what Python itself can do to read a publication and make the list of ids; so
    does every table where `native` is not known to work.
    """

    def __init__(self, plain: bool = False) -> None:
        self._attributes: dict[str, _Attribute] = {}
        self._nullable: list[tuple[str, float]] = []
        self._channels = 0
        self._codes = 0
        self._free_codes: list[float] = []
        self._lines = np.zeros(16, dtype=np.int32)  # Of a bit table, per channel.
        self._breaks = np.zeros((16, kernels.CELLS))
        self._windows = np.zeros((16, kernels.WINDOWS), dtype=np.int32)
        self._heads = np.zeros(64, dtype=np.int32)
        self._couples = np.zeros((1, 2), dtype=np.int64)
        self._pairs = np.zeros((64, 2))
        self._new_pools(1024)
        self._new_scratch()
        self._homes = np.full(1024, -1, dtype=np.int64)  # By row number: its handle.
        self._ids: Ids[Id] = Ids()
        self._checks: dict[int, Tests] = {}  # By row number: what to ask in Python.
        self._verdicts = Verdicts(len(self._homes))
        self._grams = Grams()  # Rows that the kernels know nothing of.
        self._live = 0
        self._refiled = 64
        self._row = np.zeros(kernels.GIVEN)
        self._state = np.zeros(native.STATE, dtype=np.int64)
        self._native: Any = None
        self._passer: Any = None
        if not plain and native_works():
            self._native = native.matcher(self._state.ctypes.data)
        self._stale = True  # The state no longer says where everything is.

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: Id) -> bool:
        return id in self._ids

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays, lists and dicts in use; the ids themselves come on top."""
        return sum(self.bytes_by_part().values())

    def bytes_by_part(self) -> dict[str, int]:
        allocator = self._allocator
        rows = int(allocator[kernels.ROWS_TOP]) * 4
        scratch = (
            self._point, self._values, self._cells, self._candidates, self._out, self._spare,
            *self._room,
        )  # fmt: skip
        places = (self._breaks, self._lines, self._windows, self._heads, self._couples)
        codes: list[dict[Any, float]] = [a.codes for a in self._attributes.values()]
        codes += [codes for a in self._attributes.values() for _, _, codes in a.prefixes]
        return {
            "rows": rows * kernels.ROW,
            "rests": rows * kernels.REST,
            "bits": int(allocator[kernels.WORDS_TOP]) * 8,
            "blocks": int(allocator[kernels.BLOCKS_TOP]) * kernels.BLOCK * 4,
            "places": sum(array.nbytes for array in places),
            "ids": self._ids.nbytes + self._homes.nbytes,
            "codes": sum(map(sys.getsizeof, codes)),
            "checks": sys.getsizeof(self._checks) + self._grams.nbytes + self._verdicts.nbytes,
            "scratch": sum(array.nbytes for array in scratch),
        }

    def insert(self, id: Id, filter: Filter) -> None:
        """Add a filter under a new id."""
        if self._ids.rows + 65_536 > 2 * self._live + 131_072:
            self._renumber()
        slot, first = self._ids.vacancy(id), self._ids.rows
        for conjunction in filter.conjunctions:
            self._add(id, conjunction)
        self._ids.place(id, slot, first)
        self._live += self._ids.rows - first
        codes = self._codes - len(self._free_codes)
        grown = _REFILE_AT * self._refiled <= self._live - len(self._grams) <= _REFILE_MAX
        if grown or codes > 4 * self._live + _CODES_SPARE:
            self._refile()

    def remove(self, id: Id) -> None:
        """Take a filter out; KeyError if there is none under this id."""
        numbers = self._ids.remove(id)
        for number in numbers:
            home = self._homes.item(number)
            if home == _BY_GRAM:
                moves = self._grams.moves
                self._grams.remove(number)
                self._stale |= self._grams.moves > moves
            else:
                kernels.remove(
                    home, self._lines, self._windows, self._heads, self._couples,
                    self._blocks, self._rows, self._words, self._allocator,
                )  # fmt: skip
            self._homes[number] = -1
            if self._checks.pop(number, None) is not None:
                self._verdicts.drop(number)
        self._live -= len(numbers)

    def match(self, attributes: Mapping[str, Scalar | None]) -> list[Id]:
        """The ids of all filters that match, in the order of their insertion."""
        if self._stale:
            self._tell()
        answer: list[Id] | None = None
        if self._native is not None and type(attributes) is dict:
            answer = self._native(attributes)
            if answer is not None and not self._grams.homes:
                return answer
            if answer is None and self._state[native.MATCHES] < 0:
                answer = self._run(self._describe(attributes))
        else:
            answer = self._run(self._describe(attributes))
        state = self._state
        hits = self._by_gram(attributes) if self._grams else ()
        if answer is None or hits:
            matches, checks = int(state[native.MATCHES]), int(state[native.CHECKS])
            answer = self._answer(matches, checks, attributes, hits)
        return answer

    def passing(self) -> Passing | None:
        """What passes over publications that no filter matches and hands out the others, until the
        table changes; None where each has to be matched by itself."""
        if self._native is None:
            return None
        if self._passer is None:
            self._passer = packets.passer(self._state.ctypes.data)
        if self._stale:
            self._tell()
        return self._passer  # type: ignore[no-any-return]

    def fanout(self) -> Fanout[Id, Any]:
        """Who gets what each filter matches, for `passing`, of the table as it is now."""
        return Fanout(self._ids.rows_of)

    def _by_gram(self, attributes: Mapping[str, Scalar | None]) -> list[int]:
        """The rows among `Grams` that match."""
        checks, get = self._checks, attributes.get
        return [
            number
            for number in self._grams.candidates(attributes)
            if all(accepts(get(name)) for name, accepts in checks[number])
        ]

    def _tell(self) -> None:
        """Say in the state where everything is, for `native`."""
        attributes: list[tuple[int, ...]] = []
        prefixes: list[tuple[int, ...]] = []
        nullable: list[tuple[int, ...]] = []
        for name, attribute in self._attributes.items():
            first = len(prefixes)
            prefixes += [(length, int(at), id(codes)) for length, at, codes in attribute.prefixes]
            channels = (
                attribute.number, attribute.code, attribute.text, attribute.flag, attribute.present
            )  # fmt: skip
            attributes.append((
                *map(int, channels), id(attribute.codes), attribute.excluded, first, len(prefixes),
                self._grams.marks_at(name),
            ))  # fmt: skip
            if attribute.null >= 0:
                nullable.append((id(name), int(attribute.null)))
        within = {name[:at] for name in self._attributes for at in _dots(name)}
        self._known = dict.fromkeys(within, native.ASKED_WITHIN)
        self._known |= {name: number for number, name in enumerate(self._attributes)}
        self._seen = np.zeros(len(self._attributes), dtype=np.int64)
        self._met = np.zeros((native.NAMES_MET, 4), dtype=np.uint64)
        if len(self._pairs) < self._channels:
            self._pairs = np.zeros((2 * self._channels, 2))
        self._tables = [np.array(rows, dtype=np.int64) for rows in (attributes, prefixes, nullable)]
        ids = self._ids
        arrays = (
            self._point, self._values, self._cells, self._breaks, self._lines, self._windows,
            self._heads, self._couples, self._blocks, self._rows, self._rests, self._words,
            self._allocator, self._candidates, self._out, self._spare, *self._room, ids.names,
            self._pairs,
            *self._tables,
        )  # fmt: skip
        self._state[: native.POSITION] = [
            *(array.ctypes.data for array in arrays),
            len(self._candidates), len(self._out), len(self._couples), len(nullable),
            ids.names.dtype != object,
            self._verdicts.tests.ctypes.data, id(self._verdicts.of),
            id(self._known),
            *map(id, (float, str, int, bool, True, None)),
            self._seen.ctypes.data, self._met.ctypes.data, self._known.get(TOPIC, -1), id(TOPIC),
        ]  # fmt: skip
        self._state[native.SERIAL] = 0
        self._stale = False

    def _describe(self, attributes: Mapping[str, Scalar | None]) -> list[float]:
        """The publication on the channels that filters ask about: channel, value, channel, …"""
        pairs: list[float] = []
        known = self._attributes
        values: Mapping[str, Any] = attributes
        for name, value in values.items():
            attribute = known.get(name)
            if attribute is None:
                continue
            # The two common types are dealt with here, because calls cost more than they do.
            kind = type(value)
            if kind is float and value == value:
                if attribute.number >= 0.0:
                    pairs.append(attribute.number)
                    pairs.append(value)
                if attribute.code >= 0.0:
                    _give_code(attribute, value, pairs)
            elif kind is str or isinstance(value, str):
                if attribute.code >= 0.0:
                    code = attribute.codes.get(value)
                    if code is not None:
                        pairs.append(attribute.code)
                        pairs.append(code)
                    elif attribute.excluded:
                        pairs += (attribute.code, -1.0)
                for length, channel, codes in attribute.prefixes:
                    code = codes.get(value[:length])
                    if code is not None:
                        pairs.append(channel)
                        pairs.append(code)
                if attribute.text >= 0.0:
                    pairs += (attribute.text, text_key(value))
            elif value is None:
                continue
            else:
                _give(attribute, value, pairs)
            if attribute.present >= 0.0:
                pairs += (attribute.present, 1.0)
        for name, channel in self._nullable:
            if attributes.get(name) is None:
                pairs += (channel, 1.0)
        return pairs

    def _run(self, pairs: list[float]) -> list[Id] | None:
        """The ids of the rows that match; None if `_out` ends with rows to check."""
        pairs_count = len(pairs) >> 1
        if len(self._pairs) < pairs_count:
            self._pairs = np.zeros((2 * pairs_count, 2))
            self._tell()
        self._pairs.ravel()[: 2 * pairs_count] = pairs
        state = self._state
        answer: list[Id] | None = None
        while True:
            state[native.PAIRS_COUNT] = pairs_count
            if self._native is not None:
                answer = self._native(None)
            else:
                state[native.MATCHES], state[native.CHECKS] = kernels.match(
                    self._pairs[:pairs_count], pairs_count, self._point, self._values, self._cells,
                    self._breaks, self._lines, self._windows, self._heads, self._couples,
                    self._blocks, self._rows, self._rests, self._words, self._allocator,
                    self._candidates, self._out, self._spare, *self._room,
                )  # fmt: skip
            if state[native.MATCHES] >= 0:
                return answer
            self._new_out(2 * int(state[native.CHECKS]))
            self._tell()

    def _answer(
        self,
        matches: int,
        checks: int,
        attributes: Mapping[str, Scalar | None],
        more: Sequence[int],
    ) -> list[Id]:
        """The ids of the rows in `_out`, once those to be checked are, and of some more."""
        numbers: list[int] = self._out[:matches].tolist()
        if checks:
            doubtful = self._out[len(self._out) - checks :].tolist()
            self._verdicts.learn(attributes.get(TOPIC), doubtful)
            numbers += [number for number in doubtful if self._check(number, attributes)]
        if checks or more:
            numbers += more
            numbers.sort()
        ids: list[Id] = self._ids.names[numbers].tolist() if numbers else []
        return list(dict.fromkeys(ids))

    def _check(self, number: int, attributes: Mapping[str, Scalar | None]) -> bool:
        """Whether the row's conjunction is TRUE, decided in Python."""
        tests = self._checks.get(number)
        if tests is not None:
            return all(accepts(attributes.get(name)) for name, accepts in tests)
        row = self._given(np.array([number]))[0]
        ranges = {int(row[kernels.CHANNEL + kernels.STRIDE * i]) >> 3: i for i in _DEMANDS}
        for name, attribute in self._attributes.items():
            i = ranges.get(int(attribute.number))
            if attribute.number >= 0 and i is not None:
                accepts = _range(row, i).accepts
                if not accepts(attributes.get(name)):
                    return False
        return True

    def _given(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Rows as they were given to the kernels."""
        block, slot = np.divmod(self._homes[numbers], kernels.SLOTS)
        given = np.empty((len(numbers), kernels.GIVEN))
        places = self._blocks[block, kernels.ROWS] + slot
        kernels.give_back(places, self._breaks, self._rows, self._rests, given)
        return given

    # Filing.

    def _add(self, id: Id, conjunction: Conjunction) -> None:
        """File the rows of one conjunction: one, or one per value of an IN list."""
        home = grams.home(conjunction, any(map(_pins, conjunction)))
        if home is not None and not self._topic_alone(conjunction):
            number = self._number(id)
            self._attribute(home[0])
            moves = self._grams.moves
            self._grams.insert(number, *home)
            self._stale |= self._grams.moves > moves
            self._checks[number] = tests_of(conjunction)
            self._homes[number] = _BY_GRAM
            return
        demands: list[Demand] = []
        exact = True
        doubts: dict[str, Constraint] = {}
        sets: list[tuple[int, str, frozenset[Any]]] = []
        for name, constraint in conjunction:
            if isinstance(constraint, (TextSet, NumberSet)) and len(constraint.values) > 1:
                sets.append((len(constraint.values), name, constraint.values))
            else:
                more, sure = self._demands(name, constraint)
                demands += more
                if not sure:
                    doubts[name] = constraint
        choices: list[list[Demand]] = [[]]
        if sets:
            sets.sort(key=lambda item: item[:2])
            size, name, values = sets[0]
            coded = any(
                self._breaks[int(channel), 0] < 0 for channel, _, _, flags in demands if not flags
            )
            if size <= _SPREAD_MAX or not coded:
                choices = [self._equal(name, value) for value in sorted(values)]
                sets.pop(0)
            exact = not sets
        test = doubts.get(TOPIC) if exact and len(doubts) == 1 else None
        for choice in choices:
            self._file(id, conjunction, choice + demands, exact and not doubts, test)

    def _topic_alone(self, conjunction: Conjunction) -> bool:
        """Whether the kernels can say all but whether the topic is like a pattern, which is known
        of topics that came before. Every match has to look at such rows: few of them."""
        test = None
        for name, constraint in conjunction:
            if name == TOPIC:
                test = constraint
            elif isinstance(constraint, TextRange) and (constraint.like or constraint.unlike):
                return False
        return test is not None and self._verdicts.has_room(test, _LOOSE_MAX)

    def _number(self, id: Id) -> int:
        """A number for a new row."""
        names = self._ids.names
        number = self._ids.add(id)
        if self._ids.names is not names:
            self._stale = True
        if number == len(self._homes):
            self._homes = _grown(self._homes, number * 5 // 4, -1)
            self._verdicts.grow(len(self._homes))
            self._stale = True
        return number

    def _file(
        self,
        id: Id,
        conjunction: Conjunction,
        demands: list[Demand],
        exact: bool,
        test: Constraint | None,
    ) -> None:
        """File a row; `test` is all that the demands leave to be asked, if that is of the topic."""
        number = self._number(id)
        if len(demands) > kernels.DEMANDS:
            # Equalities first: they leave the fewest rows to ask in Python.
            demands = sorted(demands, key=lambda d: (d[3] & kernels.NOT_EQUAL, d[2] - d[1]))
            demands = demands[: kernels.DEMANDS]
            exact, test = False, None
        if not exact:
            self._checks[number] = tests_of(conjunction)
            if test is not None:
                self._verdicts.add(number, test)
        row = self._row
        values = [float(number + 1 if exact else -number - 1)]
        for channel, low, high, flags in demands:
            values += (low, high, channel * 8 + flags)
        values += _NOTHING[len(demands)]
        _ROW.pack_into(row.data, 0, *values)
        while True:
            handle = kernels.insert(
                row, True, self._breaks, self._lines, self._windows, self._heads, self._couples,
                self._blocks, self._rows, self._rests, self._words, self._allocator,
            )  # fmt: skip
            if handle >= 0:
                break
            self._grow(handle)
        self._homes[number] = handle

    def _new_scratch(self) -> None:
        """What a match writes to."""
        channels = len(self._breaks)
        self._point = np.full((channels, 2), kernels.MISSING, dtype=np.int64)
        self._values = np.full(1 + channels, kernels.NOT_GIVEN, dtype=np.int32)
        self._values[0] = 0  # For what is not demanded.
        self._cells = np.zeros(channels, dtype=np.int32)
        self._candidates = np.empty(2 * kernels.SLOTS, dtype=np.int32)
        self._room = (
            np.empty(kernels.FIRSTS_USUAL, dtype=np.int32),
            np.empty((kernels.VISITS, kernels.VISIT), dtype=np.int64),
            np.empty(kernels.LANES, dtype=np.uint64),
        )
        self._new_out(1024)

    def _new_out(self, size: int) -> None:
        self._out = np.zeros(size, dtype=np.int32)
        self._spare = np.empty(size, dtype=np.int32)
        self._stale = True

    def _demands(self, name: str, constraint: Constraint) -> tuple[list[Demand], bool]:
        """The constraint as demands on channels, and whether they say all of it."""
        if isinstance(constraint, (TextSet, NumberSet)):
            (value,) = constraint.values
            return self._equal(name, value), True
        attribute = self._attribute(name)
        if isinstance(constraint, NumberRange):
            if attribute.number < 0:
                attribute.number = self._new_channel()
            low, low_flags, low_exact = _low(constraint.low, constraint.low_open)
            high, high_flags, high_exact = _high(constraint.high, constraint.high_open)
            demand = (attribute.number, low, high, low_flags | high_flags)
            return [demand, *self._unequal(name, constraint.excluded)], low_exact and high_exact
        if isinstance(constraint, TextRange):
            return self._text_demands(name, attribute, constraint)
        if isinstance(constraint, Flags):
            if attribute.flag < 0:
                attribute.flag = self._new_channel()
            values = constraint.values
            return [(attribute.flag, float(min(values)), float(max(values)), 0)], True
        if isinstance(constraint, Null):
            if attribute.null < 0:
                attribute.null = self._new_channel()
                self._nullable.append((name, attribute.null))
            return [(attribute.null, 1.0, 1.0, 0)], True
        assert isinstance(constraint, Present)
        if attribute.present < 0:
            attribute.present = self._new_channel()
        return [(attribute.present, 1.0, 1.0, 0)], True

    def _text_demands(
        self, name: str, attribute: _Attribute, constraint: TextRange
    ) -> tuple[list[Demand], bool]:
        low, high = constraint.low, constraint.high
        exact = not constraint.like and not constraint.unlike
        if low and high == patterns.after_prefix(low):
            prefixes = attribute.prefixes
            prefix = next((known for known in prefixes if known[0] == len(low)), None)
            if prefix is None and len(prefixes) < _LENGTHS_MAX:
                prefix = (len(low), self._new_channel(coded=True), {})
                prefixes.append(prefix)
            if prefix is not None:
                _, channel, codes = prefix
                code = self._code(channel, codes, low)
                unequal = self._unequal(name, constraint.excluded)
                return [(channel, code, code, 0), *unequal], exact
        if attribute.text < 0:
            attribute.text = self._new_channel()
        exact = exact and _short(low) and (high is None or _short(high))
        below, above = text_key(low), INFINITY
        if high is not None:
            above = text_key(high) - 1 if _short(high) else text_key(high)
        demand = (attribute.text, below, above, 0)
        return [demand, *self._unequal(name, constraint.excluded)], exact

    def _equal(self, name: str, value: Scalar) -> list[Demand]:
        attribute = self._coded(name)
        code = self._code(attribute.code, attribute.codes, value)
        return [(attribute.code, code, code, 0)]

    def _unequal(self, name: str, excluded: frozenset[Any]) -> list[Demand]:
        if not excluded:
            return []
        attribute = self._coded(name)
        if not attribute.excluded:
            attribute.excluded = self._stale = True
        return [
            (attribute.code, code, code, kernels.NOT_EQUAL)
            for code in (self._code(attribute.code, attribute.codes, value) for value in excluded)
        ]

    def _attribute(self, name: str) -> _Attribute:
        attribute = self._attributes.get(name)
        if attribute is None:
            attribute = self._attributes[name] = _Attribute()
            self._stale = True
        return attribute

    def _coded(self, name: str) -> _Attribute:
        attribute = self._attribute(name)
        if attribute.code < 0:
            attribute.code = self._new_channel(coded=True)
        return attribute

    def _code(self, channel: float, codes: dict[Any, float], value: Scalar) -> float:
        code = codes.get(value)
        if code is None:
            if self._free_codes:
                code = self._free_codes.pop()
            else:
                if self._codes == len(self._heads):
                    self._heads = _grown(self._heads, 2 * self._codes, 0)
                    self._stale = True
                code, self._codes = float(self._codes), self._codes + 1
            codes[value] = code
            self._breaks[int(channel), 0] -= 1
        return code

    def _new_channel(self, coded: bool = False) -> float:
        channel, self._channels = self._channels, self._channels + 1
        self._stale = True
        if channel == len(self._breaks):
            size = 2 * channel
            self._lines = _grown(self._lines, size, 0)
            self._breaks = _grown(self._breaks, size, 0)
            self._windows = _grown(self._windows, size, 0)
            self._new_scratch()
        self._breaks[channel, 0] = -1 if coded else 0
        # As if all publications had had it: a new channel must not seem rare.
        self._breaks[channel, kernels.MET] = self._allocator[kernels.ASKED]
        self._lines[channel] = kernels.CELLS if coded else 2
        return float(channel)

    # Pools.

    def _new_pools(self, rows: int) -> None:
        self._rows, self._rests = _rows(rows * 5 // 4 + 2 * kernels.SLOTS)
        self._words = _words(rows + 8 * kernels.SLOTS)
        self._blocks = np.zeros((rows // 4 + 64, kernels.BLOCK), dtype=np.int32)
        self._allocator = np.full(kernels.ALLOCATOR, -1, dtype=np.int64)
        self._allocator[: kernels.ROWS_FREE] = 0
        self._allocator[kernels.BLOCKS_TOP] = 1
        self._allocator[kernels.COUPLED] = 0
        self._stale = True

    def _grow(self, full: int) -> None:
        self._stale = True
        if full == kernels.FULL_ROWS:
            # What blocks have outgrown is left behind.
            blocks = self._blocks[1 : int(self._allocator[kernels.BLOCKS_TOP])]
            used = int(blocks[blocks[:, kernels.USED] > 0, kernels.CAP].sum())
            rows, rests = _rows(used * 5 // 4 + 2 * kernels.SLOTS)
            kernels.pack_rows(self._blocks, self._rows, self._rests, rows, rests, self._allocator)
            self._rows, self._rests = rows, rests
        elif full == kernels.FULL_WORDS:
            pack = (self._lines, self._blocks, self._words)
            used = kernels.pack_words(*pack, self._words[:0], self._allocator)
            self._words = _words(used * 5 // 4 + 16 * kernels.SLOTS)
            kernels.pack_words(*pack, self._words, self._allocator)
        elif full == kernels.FULL_BLOCKS:
            self._blocks = _grown(self._blocks, len(self._blocks) * 5 // 4, 0)
        else:
            before = self._couples
            self._new_lines(int(np.count_nonzero(before[:, 1])))
            kernels.move_lines(before, self._couples, self._blocks)

    def _new_lines(self, used: int, room: int = 0) -> None:
        """An empty table for keys of couples and narrow ranges, of which `used` are to come in."""
        size = 2 << (used + room).bit_length()
        self._couples = np.zeros((size, 2), dtype=np.int64)
        self._allocator[kernels.KEYS] = used
        self._allocator[kernels.KEYS_MAX] = size * 5 // 8
        self._stale = True

    def _refile(self) -> None:
        """File all rows anew: new breakpoints, unused codes given back, pools packed."""
        live = self._given(np.flatnonzero(self._homes[: self._ids.rows] >= 0))
        self._renew_codes(live)
        self._choose_breaks(live)
        self._windows[:] = 0
        self._heads[:] = 0
        asked = self._allocator[kernels.ASKED]
        self._new_pools(len(live))
        self._allocator[kernels.ASKED] = asked
        self._allocator[kernels.WINDOWED] = len(live) >= _WINDOWED_AT
        self._allocator[kernels.MANY] = self._channels > kernels.CHANNELS_MAX
        self._choose_couples(live)
        expected = 0
        while expected < len(live):
            expected = kernels.expect(
                live, expected, self._breaks, self._lines, self._windows, self._heads,
                self._couples, self._allocator,
            )  # fmt: skip
            if expected < len(live):
                self._grow(kernels.FULL_KEYS)
        done, full = 0, -1
        while full < 0:
            done, full = kernels.refile(
                live, done, self._homes, self._breaks, self._lines, self._windows, self._heads,
                self._couples, self._blocks, self._rows, self._rests, self._words,
                self._allocator,
            )  # fmt: skip
            if full < 0:
                self._grow(full)
        self._refiled = max(64, len(live))

    def _choose_breaks(self, live: npt.NDArray[np.float64]) -> None:
        """Cut each channel into cells that hold about equally many of the rows' bounds."""
        self._breaks[:, kernels.WIDTHS_USED] = 0
        live = live[:: max(1, len(live) // _SAMPLED)]
        tagged = live[:, kernels.CHANNEL :: kernels.STRIDE].astype(np.int64)
        ranged = (tagged >= 0) & (tagged & kernels.NOT_EQUAL == 0)
        channels = tagged[ranged] >> 3
        lows = live[:, kernels.LOW :: kernels.STRIDE][ranged]
        highs = live[:, kernels.HIGH :: kernels.STRIDE][ranged]
        for channel in np.unique(channels).tolist():
            if self._breaks[channel, 0] < 0:
                continue
            here = channels == channel
            with np.errstate(over="ignore"):
                beyond = np.nextafter(highs[here], INFINITY)
            bounds = np.concatenate([lows[here], beyond])
            bounds = bounds[np.isfinite(bounds)]
            if not len(bounds):
                continue
            shares = np.linspace(0, 1, kernels.MET - 1)
            cuts = np.unique(np.quantile(bounds, shares, method="nearest"))
            self._breaks[channel, 0] = len(cuts)
            self._breaks[channel, 1 : 1 + len(cuts)] = cuts
            self._lines[channel] = len(cuts) + 2

    def _choose_couples(self, live: npt.NDArray[np.float64]) -> None:
        """Find channels that rows often demand codes of together, and make room for the codes."""
        step = max(1, len(live) // _SAMPLED)
        tagged = live[::step, kernels.CHANNEL :: kernels.STRIDE].astype(np.int64)
        coded = (tagged >= 0) & (tagged & kernels.NOT_EQUAL == 0)
        coded &= self._breaks[np.maximum(tagged >> 3, 0), 0] < 0
        both: list[npt.NDArray[np.int64]] = []
        for i in _DEMANDS:
            for j in range(i):
                rows = coded[:, i] & coded[:, j]
                one, other = tagged[rows, i] >> 3, tagged[rows, j] >> 3
                both.append(np.minimum(one, other) * self._channels + np.maximum(one, other))
        keys, counts = np.unique(np.concatenate(both), return_counts=True)
        chosen: list[int] = []
        room = 0
        for key, count in sorted(
            zip(keys.tolist(), (counts * step).tolist(), strict=True), key=lambda kc: -kc[1]
        ):
            channels = divmod(key, self._channels)
            values = [-1 - int(self._breaks[channel, 0]) for channel in channels]
            combined = values[0] * values[1]
            if (
                self._allocator[kernels.WINDOWED]
                and min(values) >= _COUPLED_VALUES
                and count >= _COUPLED_ROWS * combined
                and len(chosen) < 2 * kernels.COUPLES_MAX
            ):
                chosen += channels
                room += combined
        self._new_lines(0, room)
        self._allocator[kernels.COUPLED] = len(chosen) // 2
        self._allocator[kernels.FIRST_COUPLE : kernels.FIRST_COUPLE + len(chosen)] = chosen

    def _renew_codes(self, live: npt.NDArray[np.float64]) -> None:
        """Forget the codes of values that no row demands any more, and number the others anew.

        Codes of one channel follow each other, so that a few values have cells of their own.
        """
        tagged = live[:, kernels.CHANNEL :: kernels.STRIDE].astype(np.int64)
        coded = (tagged >= 0) & (self._breaks[np.maximum(tagged >> 3, 0), 0] < 0)
        lows, highs = (
            live[:, kernels.LOW :: kernels.STRIDE],
            live[:, kernels.HIGH :: kernels.STRIDE],
        )
        before = lows[coded].astype(np.int64)
        used = np.zeros(self._codes, dtype=bool)
        used[before] = True
        new = np.zeros(self._codes)
        count = 0.0
        for attribute in self._attributes.values():
            tables: list[tuple[int, float, dict[Any, float]]] = list(attribute.prefixes)
            if attribute.code >= 0:
                tables.append((0, attribute.code, attribute.codes))
            for _, channel, codes in tables:
                for value, code in list(codes.items()):
                    if used[int(code)]:
                        codes[value] = new[int(code)] = count
                        count += 1
                    else:
                        del codes[value]
                self._breaks[int(channel), 0] = -1 - len(codes)
                spare = 2 + len(codes) // 4
                self._lines[int(channel)] = min(kernels.CELLS, 1 + len(codes) + spare)
        lows[coded] = highs[coded] = new[before]
        self._codes = int(count)
        self._free_codes.clear()

    def _renumber(self) -> None:
        """Close the gaps that removed rows left in the numbering."""
        used = self._homes[: self._ids.rows] != -1
        kept = np.flatnonzero(used)
        # The new number of a row is how many rows before it are kept.
        new = np.zeros(len(used) + 1, dtype=np.int64)
        new[1:] = np.cumsum(used)
        filed = kept[self._homes[kept] >= 0]
        block, slot = np.divmod(self._homes[filed], kernels.SLOTS)
        places = self._blocks[block, kernels.ROWS] + slot
        signs = np.sign(self._rows[places, kernels.NUMBER])
        self._rows[places, kernels.NUMBER] = signs * (new[filed] + 1)
        if self._grams:
            self._grams.renumber(new)
            self._stale = True
        homes = self._homes[kept]
        self._homes[:] = -1
        self._homes[: len(kept)] = homes
        self._ids.renumber(kept)
        self._checks = {int(new[number]): tests for number, tests in self._checks.items()}
        self._verdicts.renumber(kept)


_DEMANDS = range(kernels.DEMANDS)
_ROW = struct.Struct(f"{kernels.GIVEN}d")
_NOTHING = [(0.0, 0.0, -1.0) * (kernels.DEMANDS - used) for used in range(kernels.DEMANDS + 1)]


@lru_cache(maxsize=65_536)
def text_key(text: str) -> float:
    """Six bytes and a length: texts in order never have keys out of order.

    A text of at most six bytes shares its key with no other, so as a bound it is exact.
    """
    head = text[:_TEXT_BYTES].encode("utf-8", "surrogatepass")
    length = _TEXT_BYTES + 1 if len(text) > _TEXT_BYTES else min(len(head), _TEXT_BYTES + 1)
    return float(int.from_bytes(head[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0"), "big") * 8 + length)


def _give(attribute: _Attribute, value: object, pairs: list[float]) -> None:
    """Add what a number or a boolean means on the channels of its attribute to `pairs`."""
    if isinstance(value, bool):
        if attribute.flag >= 0:
            pairs += (attribute.flag, value)
    elif isinstance(value, (int, float)):
        if attribute.number >= 0:
            if isinstance(value, float):
                pairs += (attribute.number, value if value == value else INFINITY)
            else:
                below, above = floats_around(value)
                pairs += (attribute.number, below)
                if above != below:
                    pairs += (attribute.number, above)
        if attribute.code >= 0:
            _give_code(attribute, value, pairs)


def _give_code(attribute: _Attribute, value: Scalar, pairs: list[float]) -> None:
    code = attribute.codes.get(value)
    if code is not None:
        pairs += (attribute.code, code)
    elif attribute.excluded:
        pairs += (attribute.code, -1.0)


def floats_around(value: int) -> tuple[float, float]:
    """The floats next below and above an integer; twice the same if one equals it."""
    try:
        nearest = float(value)
    except OverflowError:
        nearest = INFINITY if value > 0 else -INFINITY
    if nearest == value:
        return nearest, nearest
    if nearest < value:
        return nearest, math.nextafter(nearest, INFINITY)
    return math.nextafter(nearest, -INFINITY), nearest


@lru_cache(maxsize=1)
def native_works() -> bool:
    """Whether `native` runs here: a Python it was tried on, and equal to plain Python on a trial.

    See docs/decisions/compiled-python-calls.md.
    """
    if not native.SUPPORTED:
        return False
    trial: Compiled[Hashable] = Compiled(plain=True)
    for id, text in enumerate(_TRIAL_FILTERS):
        trial.insert(id, parse(text))
    plain = [trial.match(attributes) for attributes in _TRIAL_ROWS]
    trial._native = native.matcher(trial._state.ctypes.data)
    works = [trial.match(attributes) for attributes in _TRIAL_ROWS] == plain
    trial.insert("named", EVERYTHING)  # ids that are no integers are kept another way
    works = works and [trial.match(attributes) for attributes in _TRIAL_ROWS] == [
        [*ids, "named"] for ids in plain
    ]
    if not works:
        log.error("compiled matching disagrees with Python on this machine: going on without it")
    return works


def is_ready() -> bool:
    """Whether `ready` only has to load what an earlier start compiled."""
    return is_cached(kernels.remove)  # the last that it uses


@lru_cache(maxsize=1)
def ready() -> None:
    """Have the kernels compiled, or loaded from the cache of an earlier start.

    The first start after an installation takes many seconds, so it says what it is doing.
    """
    text = (
        "postroad: getting the matching kernels ready: the first start compiles them, "
        "later ones find them in the cache\n"
    )
    timer = threading.Timer(_SAID_AFTER, sys.stderr.write, [text])
    timer.daemon = True
    timer.start()
    try:
        trial: Compiled[int] = Compiled()
        trial.insert(0, EVERYTHING)
        trial.match({})
        trial._refile()
        trial._renumber()
        for full in (kernels.FULL_ROWS, kernels.FULL_WORDS, kernels.FULL_KEYS):
            trial._grow(full)
        trial.remove(0)
    finally:
        timer.cancel()


def passing_is_ready() -> bool:
    """The same of what `Compiled.passing` gives."""
    return not native.SUPPORTED or packets.is_ready()


def ready_passing() -> None:
    """Have that compiled or loaded too, which brokers use and others do not."""
    ready()
    trial: Compiled[int] = Compiled()
    trial.insert(0, EVERYTHING)
    trial.passing()


def _pins(demand: tuple[str, Constraint]) -> bool:
    """Whether it demands a value, or a text that begins in a certain way."""
    constraint = demand[1]
    if isinstance(constraint, TextRange):
        return bool(constraint.low) and constraint.high == patterns.after_prefix(constraint.low)
    return isinstance(constraint, (TextSet, NumberSet)) and len(constraint.values) <= _SPREAD_MAX


def _dots(name: str) -> list[int]:
    return [at for at, char in enumerate(name) if char == "."]


def _short(text: str) -> bool:
    return len(text.encode("utf-8", "surrogatepass")) <= _TEXT_BYTES


def _low(bound: Number | None, is_open: bool) -> tuple[float, int, bool]:
    """The least float a lower bound admits, its flag, and whether it says all."""
    if bound is None:
        return -INFINITY, 0, True
    below, above = floats_around(bound) if isinstance(bound, int) else (bound, bound)
    if above != below:
        return below, 0, False
    if is_open:
        return math.nextafter(below, INFINITY), kernels.LOW_OPEN, True
    return below, 0, True


def _high(bound: Number | None, is_open: bool) -> tuple[float, int, bool]:
    if bound is None:
        return INFINITY, 0, True
    below, above = floats_around(bound) if isinstance(bound, int) else (bound, bound)
    if above != below:
        return above, 0, False
    if is_open:
        return math.nextafter(below, -INFINITY), kernels.HIGH_OPEN, True
    return below, 0, True


def _range(row: npt.NDArray[np.float64], i: int) -> NumberRange:
    """The number range that a row's demand stands for."""
    flags = int(row[kernels.CHANNEL + kernels.STRIDE * i]) & 7
    low, high = (
        float(row[kernels.LOW + kernels.STRIDE * i]),
        float(row[kernels.HIGH + kernels.STRIDE * i]),
    )
    low_open, high_open = bool(flags & kernels.LOW_OPEN), bool(flags & kernels.HIGH_OPEN)
    if low_open:
        low = math.nextafter(low, -INFINITY)
    if high_open:
        high = math.nextafter(high, INFINITY)
    return NumberRange(
        None if low == -INFINITY else low,
        low_open,
        None if high == INFINITY else high,
        high_open,
    )


def _aligned(rows: int, columns: int, kind: Any) -> Any:
    """An array that begins where a cache line begins, so that its rows take no line too many."""
    size = np.dtype(kind).itemsize
    room = np.empty(rows * columns + 64 // size, dtype=kind)
    begin = -(room.ctypes.data // size) % (64 // size)
    return room[begin : begin + rows * columns].reshape(rows, columns)


def _rows(count: int) -> tuple[Any, Any]:
    """Room for rows and their rests."""
    return _aligned(count, kernels.ROW, np.int32), np.empty((count, kernels.REST), dtype=np.int32)


def _words(count: int) -> Any:
    return _aligned(count // 8 + 1, 8, np.uint64).ravel()


def _grown(array: Any, size: int, fill: float) -> Any:
    """A longer copy of the array along its first axis."""
    grown = np.full((size, *array.shape[1:]), fill, dtype=array.dtype)
    grown[: len(array)] = array
    return grown
