"""From a dict of attributes to the list of ids in one compiled call.

Turning ten attributes into numbers and row numbers into a list takes Python longer than a match
among 10,000 filters takes the kernels. Here compiled code does it, through the functions that
Python exports to C. It is called with the interpreter's lock and keeps no reference.

It knows dicts whose values are plain floats, integers up to 2^53, strings, booleans and None,
which is what publications hold. Anything else, and rows that must be checked in Python for more
than what is known of the topic, are left to `compiled.py`, which can say all that is said here.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import sysconfig
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from postroad import jit
from postroad.jit import cfunc, njit, write_prefetch
from postroad.matching import kernels, verdicts
from postroad.matching.verdicts import ACCEPTED, UNKNOWN

# Whom it was tried on. Another Python need not lay out its calls alike, and one without a lock
# does not keep what is borrowed alive; both go without (`compiled.native_works`).
TRIED = {(3, 11)}
SUPPORTED = (
    platform.python_implementation() == "CPython"
    and sys.version_info[:2] in TRIED
    and not sysconfig.get_config_var("Py_GIL_DISABLED")
)

# Columns of the attributes' table: channels (-1 if no filter asks), then the address of the codes,
# whether some code is excluded, which rows of the prefixes' table are the attribute's, and the
# address of the marks of its grams, or 0.
NUMBER, CODE, TEXT, FLAG, PRESENT, CODES, EXCLUDED, FIRST_PREFIX, PREFIXES_END, MARKS = range(10)
ATTRIBUTE = 10
LENGTH, CHANNEL, PREFIX_CODES = range(3)
PREFIX = 3
NAME, NULL = range(2)  # of the table of attributes that some filter wants to be NULL
NULLABLE = 2

# The state: addresses of arrays, the lengths of two, addresses of objects, then room to work in.
(
    AT_POINT, AT_VALUES, AT_CELLS, AT_BREAKS, AT_LINES, AT_WINDOWS, AT_HEADS, AT_COUPLES, AT_BLOCKS,
    AT_ROWS, AT_RESTS, AT_WORDS, AT_ALLOCATOR, AT_CANDIDATES, AT_OUT, AT_SPARE, AT_FIRSTS,
    AT_VISITS, AT_LANES, AT_NAMES, AT_PAIRS, AT_ATTRIBUTES, AT_PREFIXES, AT_NULLABLE,
) = range(24)  # fmt: skip
CANDIDATES_LENGTH, OUT_LENGTH, COUPLES_LENGTH, NULLABLE_COUNT, NAMES_ARE_INTS = range(24, 29)
AT_TESTS, VERDICTS = range(29, 31)
KNOWN, FLOAT, STR, INT, BOOL, TRUE, NONE = range(31, 38)
# For `packets`: by attribute, when it was last said; names that were met; the number of `class`.
AT_SEEN, AT_NAMES_MET, CLASS = range(38, 41)
TOPIC_NAME = 41
POSITION, KEY, VALUE, OVERFLOW, PAIRS_COUNT, MATCHES, CHECKS, SERIAL = range(42, 50)
STATE = 50
NOT_ASKED, ASKED_WITHIN = -1, -2  # no attributes: of the latter filters ask for nested fields
NAMES_MET = 64

_EXACT = 2**53
_KEY_BYTES = 6
_AHEAD = 16  # So many ids are fetched ahead.
_SIZE, _ITEMS = 2, 3  # Of a list, the words that have its length and the address of its items.
_LONG = types.int64
_MONOTONIC = 1  # as Linux numbers its clocks


def _python(name: str, result: Any, *arguments: Any) -> Any:
    return types.ExternalFunction(name, result(*arguments))


_dict_next = _python("PyDict_Next", types.int32, _LONG, _LONG, _LONG, _LONG)
_dict_get = _python("PyDict_GetItem", _LONG, _LONG, _LONG)
_dict_find = _python("PyDict_GetItemWithError", _LONG, _LONG, _LONG)
_type_of = _python("PyObject_Type", _LONG, _LONG)
_keep = _python("Py_IncRef", types.void, _LONG)
_drop = _python("Py_DecRef", types.void, _LONG)
_float = _python("PyFloat_AsDouble", types.float64, _LONG)
_long = _python("PyLong_AsLongLong", _LONG, _LONG)
_long_if_fits = _python("PyLong_AsLongLongAndOverflow", _LONG, _LONG, _LONG)
_utf8 = _python("PyUnicode_AsUTF8AndSize", _LONG, _LONG, _LONG)
_forget_error = _python("PyErr_Clear", types.void)
_begin_of_text = _python("PyUnicode_Substring", _LONG, _LONG, _LONG, _LONG)
_new_long = _python("PyLong_FromLongLong", _LONG, _LONG)
_new_list = _python("PyList_New", _LONG, _LONG)
_list_cut = _python("PyList_SetSlice", types.int32, _LONG, _LONG, _LONG, _LONG)
_append = _python("PyList_Append", types.int32, _LONG, _LONG)
_bytes_at = _python("PyBytes_AsString", _LONG, _LONG)
_bytearray_at = _python("PyByteArray_AsString", _LONG, _LONG)
_bytearray_size = _python("PyByteArray_Size", _LONG, _LONG)
_new_bytes = _python("PyBytes_FromStringAndSize", _LONG, _LONG, _LONG)
# Of C's library, which Python uses too.
_clock = _python("clock_gettime", types.int32, types.int32, _LONG)
_copy = _python("memcpy", _LONG, _LONG, _LONG, _LONG)


@intrinsic
def _at(typing_context, address):
    """A pointer to what lies at an address."""

    def codegen(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), codegen


@njit
def _add(items, item):
    """Append a new object to a list, which alone holds it then."""
    _append(items, item)
    _drop(item)


@njit
def _now_ns(room):
    """The system's monotonic clock, by way of room for two words."""
    _clock(_MONOTONIC, room)
    seconds_and_ns = carray(_at(room), (2,), np.int64)
    return 1_000_000_000 * seconds_and_ns[0] + seconds_and_ns[1]


@njit(cache=True)
def _give_code(pairs, pairs_count, codes, channel, excluded, value):
    """Add the code that a value has, or that it has none if some filter excludes codes."""
    code = _dict_find(codes, value)
    if code != 0:
        pairs[pairs_count, 0], pairs[pairs_count, 1] = channel, _float(code)
    elif excluded:
        pairs[pairs_count, 0], pairs[pairs_count, 1] = channel, -1.0
    else:
        return pairs_count
    return pairs_count + 1


@njit(cache=True)
def _text_key(text, size):
    """The same as `compiled.text_key`: six bytes and a length."""
    key = np.int64(0)
    for i in range(_KEY_BYTES):
        key = key << 8 | (np.int64(text[i]) if i < size else 0)
    return float(key << 3 | min(size, _KEY_BYTES + 1))


@njit(cache=True)
def _give_text(pairs, pairs_count, attribute, prefixes, value, room):
    """Add what filters ask of a text; -1 where it is none of UTF-8. There is room for a word."""
    if attribute[TEXT] >= 0:
        begin = _utf8(value, room)
        if begin == 0:
            _forget_error()
            return -1
        size = carray(_at(room), (1,), np.int64)[0]
        key = _text_key(carray(_at(begin), (size,), np.uint8), size)
        pairs[pairs_count, 0], pairs[pairs_count, 1] = attribute[TEXT], key
        pairs_count += 1
    if attribute[CODE] >= 0:
        pairs_count = _give_code(
            pairs, pairs_count, attribute[CODES], attribute[CODE], attribute[EXCLUDED], value
        )
    for i in range(attribute[FIRST_PREFIX], attribute[PREFIXES_END]):
        begin = _begin_of_text(value, 0, prefixes[i, LENGTH])
        pairs_count = _give_code(
            pairs, pairs_count, prefixes[i, PREFIX_CODES], prefixes[i, CHANNEL], 0, begin
        )
        _drop(begin)
    return pairs_count


@njit(cache=True)
def _describe(attributes, state, here):
    """Fill the pairs of channel and value: how many, or -1 where this is left to Python."""
    table = carray(_at(state[AT_ATTRIBUTES]), (1, ATTRIBUTE), np.int64)
    prefixes = carray(_at(state[AT_PREFIXES]), (1, PREFIX), np.int64)
    nullable = carray(_at(state[AT_NULLABLE]), (1, NULLABLE), np.int64)
    pairs = carray(_at(state[AT_PAIRS]), (1, 2), np.float64)
    pairs_count = 0
    state[POSITION] = 0
    while _dict_next(attributes, here + 8 * POSITION, here + 8 * KEY, here + 8 * VALUE) != 0:
        known = _dict_get(state[KNOWN], state[KEY])
        number = NOT_ASKED if known == 0 else _long(known)
        if number < 0:
            continue
        attribute, value = table[number], state[VALUE]
        kind = _type_of(value)
        _drop(kind)
        if kind == state[FLOAT] or kind == state[INT]:
            if kind == state[FLOAT]:
                number = _float(value)
                if number != number:
                    return -1
            else:
                whole = _long_if_fits(value, here + 8 * OVERFLOW)
                if state[OVERFLOW] & 0xFFFFFFFF != 0 or whole > _EXACT or whole < -_EXACT:
                    return -1
                number = float(whole)
            if attribute[NUMBER] >= 0:
                pairs[pairs_count, 0], pairs[pairs_count, 1] = attribute[NUMBER], number
                pairs_count += 1
            if attribute[CODE] >= 0:
                pairs_count = _give_code(
                    pairs,
                    pairs_count,
                    attribute[CODES],
                    attribute[CODE],
                    attribute[EXCLUDED],
                    value,
                )
        elif kind == state[STR]:
            room = here + 8 * OVERFLOW
            pairs_count = _give_text(pairs, pairs_count, attribute, prefixes, value, room)
            if pairs_count < 0:
                return -1
        elif value == state[NONE]:
            continue
        elif kind == state[BOOL]:
            if attribute[FLAG] >= 0:
                pairs[pairs_count, 0], pairs[pairs_count, 1] = attribute[FLAG], value == state[TRUE]
                pairs_count += 1
        else:
            return -1
        if attribute[PRESENT] >= 0:
            pairs[pairs_count, 0], pairs[pairs_count, 1] = attribute[PRESENT], 1.0
            pairs_count += 1
    for i in range(state[NULLABLE_COUNT]):
        value = _dict_get(attributes, nullable[i, NAME])
        if value == 0 or value == state[NONE]:
            pairs[pairs_count, 0], pairs[pairs_count, 1] = nullable[i, NULL], 1.0
            pairs_count += 1
    return pairs_count


@njit
def _run(state, pairs_count, out):
    """The kernels on the pairs: how many rows match, and how many Python must check.

    Not cached by itself: its own file would not tell that the kernels have changed.
    """
    return kernels.match(
        carray(_at(state[AT_PAIRS]), (pairs_count, 2), np.float64), pairs_count,
        carray(_at(state[AT_POINT]), (1, 2), np.int64),
        carray(_at(state[AT_VALUES]), (1,), np.int32),
        carray(_at(state[AT_CELLS]), (1,), np.int32),
        carray(_at(state[AT_BREAKS]), (1, kernels.CELLS), np.float64),
        carray(_at(state[AT_LINES]), (1,), np.int32),
        carray(_at(state[AT_WINDOWS]), (1, kernels.WINDOWS), np.int32),
        carray(_at(state[AT_HEADS]), (1,), np.int32),
        carray(_at(state[AT_COUPLES]), (state[COUPLES_LENGTH], 2), np.int64),
        carray(_at(state[AT_BLOCKS]), (1, kernels.BLOCK), np.int32),
        carray(_at(state[AT_ROWS]), (1, kernels.ROW), np.int32),
        carray(_at(state[AT_RESTS]), (1, kernels.REST), np.int32),
        carray(_at(state[AT_WORDS]), (1,), np.uint64),
        carray(_at(state[AT_ALLOCATOR]), (kernels.ALLOCATOR,), np.int64),
        carray(_at(state[AT_CANDIDATES]), (state[CANDIDATES_LENGTH],), np.int32),
        out,
        carray(_at(state[AT_SPARE]), (1,), np.int32),
        carray(_at(state[AT_FIRSTS]), (1,), np.int32),
        carray(_at(state[AT_VISITS]), (1, kernels.VISIT), np.int64),
        carray(_at(state[AT_LANES]), (kernels.LANES,), np.uint64),
    )  # fmt: skip


@njit
def _decide(state, out, matches, checks, topic):
    """Add those of the rows to be checked that ask for nothing more than what is known of the
    topic; the same counts as before if that is not so of all."""
    known = _dict_get(state[VERDICTS], topic)
    if known == 0:
        return matches, checks
    size = _bytearray_size(known)
    says = carray(_at(_bytearray_at(known)), (size,), np.uint8)
    tests = carray(_at(state[AT_TESTS]), (1,), np.uint8)
    first = out.shape[0] - checks
    for i in range(first, out.shape[0]):
        test = tests[out[i]]
        if test >= size or says[test] == UNKNOWN:
            return matches, checks
    before = matches
    for i in range(first, out.shape[0]):
        row = out[i]
        out[matches] = row
        matches += says[tests[row]] == ACCEPTED
    if matches > max(before, 1):
        spare = carray(_at(state[AT_SPARE]), (out.shape[0],), np.int32)
        kernels._sort(out, matches, spare)
    return matches, 0


@intrinsic
def _fetch(typing_context, address):
    """Ask the processor to bring the cache line at an address into its cache."""

    def codegen(context, builder, signature, arguments):
        write_prefetch(builder, builder.inttoptr(arguments[0], cgutils.voidptr_t))
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@njit(cache=True)
def _listed(state, matches, out):
    """The ids of the rows found. Several rows of one id stand beside each other.

    Counts references and writes the list itself: calls for each id would take longer.
    """
    names = carray(_at(state[AT_NAMES]), (1,), np.int64)
    answer = _new_list(matches)
    items = carray(_at(carray(_at(answer), (_ITEMS + 1,), np.int64)[_ITEMS]), (1,), np.int64)
    are_ints = state[NAMES_ARE_INTS] != 0
    before = count = 0
    for i in range(min(2 * _AHEAD, matches)):
        kernels._fetch(names, np.int64(out[i]))
    if not are_ints:
        for i in range(min(_AHEAD, matches)):
            _fetch(names[out[i]])
    for i in range(matches):
        if i + 2 * _AHEAD < matches:
            kernels._fetch(names, np.int64(out[i + 2 * _AHEAD]))
        if not are_ints and i + _AHEAD < matches:
            _fetch(names[out[i + _AHEAD]])
        name = names[out[i]]
        if i > 0 and name == before:
            continue
        before = name
        if are_ints:
            name = _new_long(name)
        else:
            carray(_at(name), (1,), np.int64)[0] += 1
        items[count] = name
        count += 1
    if count < matches:
        _list_cut(answer, count, matches, 0)
    return answer


@njit
def _are_listed(state, matches, out, listed):
    """Whether a list that `_listed` made has the ids of these rows; False also where telling would
    take long, because they are numbers or several rows of one id."""
    fields = carray(_at(listed), (_ITEMS + 1,), np.int64)
    if state[NAMES_ARE_INTS] != 0 or fields[_SIZE] != matches:
        return False
    names = carray(_at(state[AT_NAMES]), (1,), np.int64)
    items = carray(_at(fields[_ITEMS]), (1,), np.int64)
    same = 0
    while same < matches and items[same] == names[out[same]]:
        same += 1
    return same == matches


def version_of(*modules: Any) -> int:
    """Of what is compiled from these modules into a function elsewhere: Numba's cache notices when
    the function's own file changes, and what a closure holds, but not when they do."""
    return 1 + zlib.crc32(b"".join(Path(module.__file__).read_bytes() for module in modules))


@lru_cache(maxsize=1)
def _matcher() -> Any:
    """The compiled method: (state's address as an int, dict or None) -> list or None."""
    version = version_of(kernels, verdicts)

    def match(owner, attributes):
        """The list of ids, or None with what was found so far in the state.

        Given None, the pairs are there already and the state says how many.
        """
        here = _long(owner)
        state = carray(_at(here), (STATE,), np.int64)
        state[MATCHES], state[CHECKS] = -version, 0
        pairs_count = state[PAIRS_COUNT]
        if attributes != state[NONE]:
            pairs_count = _describe(attributes, state, here)
        if pairs_count >= 0:
            out = carray(_at(state[AT_OUT]), (state[OUT_LENGTH],), np.int32)
            matches, checks = _run(state, pairs_count, out)
            if matches >= 0 and checks > 0 and attributes != state[NONE]:
                topic = _dict_get(attributes, state[TOPIC_NAME])
                if topic != 0:
                    matches, checks = _decide(state, out, matches, checks, topic)
            state[MATCHES], state[CHECKS] = matches, checks
            if matches >= 0 and checks == 0:
                return _listed(state, matches, out)
        _keep(state[NONE])
        return state[NONE]

    return described(match, b"match")


class _Method(ctypes.Structure):
    """How C describes a method to Python."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_ONE_ARGUMENT = 0x0008


_SIGNATURE = _LONG(_LONG, _LONG)


def is_cached(function: Any) -> bool:
    """Whether a function that is to be described was compiled before."""
    asked = CFunc(function, (_SIGNATURE.args, _SIGNATURE.return_type), {}, {})
    asked.enable_caching()
    return jit.is_cached(asked)


def described(function: Any, name: bytes) -> tuple[Any, _Method]:
    """A function of an owner and an argument, compiled, and how C describes it to Python."""
    compiled = cfunc(_SIGNATURE, cache=True)(function)
    return compiled, _Method(name, compiled.address, _ONE_ARGUMENT, None)


def bound(method: _Method, state_at: int) -> Any:
    """A built-in method, the cheapest to call, whose owner is a state's address."""
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.argtypes = (ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p)
    new.restype = ctypes.py_object
    return new(ctypes.byref(method), state_at, None)


def matcher(state_at: int) -> Any:
    """What matches by the state at an address."""
    return bound(_matcher()[1], state_at)
