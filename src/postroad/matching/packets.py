"""Publications matched as they stand in the bytes that a client or a neighbour sent.

Most publications at a broker with selective filters go to nobody. To find that out in Python, a
packet is cut up, its payload decoded into a dict and the dict matched; here one compiled call does
it for many packets in a row, and makes no objects but for texts that filters compare. It passes
over what no filter matches, and hands out what filters do match with them: packets in a row that
the same filters match together.

It is sure of those and of nothing else: it stops before a packet of which Python must check a
filter, and before whatever Python reads better. It knows PUBLISH packets of quality 0 without
properties, to topics in `ready`, whose payload begins as no object, or is a JSON object: of texts
without escapes, numbers, booleans and nulls, under names of ASCII; and, where no filter asks for
them or what is in them, of texts with escapes, integers of more than 15 digits, objects and arrays.
What is said of such a payload is said in `live/edge/content.py`, and a property test keeps the two
equal.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numba import carray, types

from postroad.filters.nested import TEXT_MAX
from postroad.jit import njit
from postroad.matching import fanout, grams, kernels, native, verdicts
from postroad.matching.index import PASSED_BITS, TAG_BYTES, Passing
from postroad.matching.native import (
    ASKED_WITHIN,
    AT_ATTRIBUTES,
    AT_NAMES_MET,
    AT_NULLABLE,
    AT_OUT,
    AT_PAIRS,
    AT_PREFIXES,
    AT_SEEN,
    ATTRIBUTE,
    CLASS,
    CODE,
    CODES,
    EXCLUDED,
    FLAG,
    KNOWN,
    MARKS,
    MATCHES,
    NAME,
    NAMES_MET,
    NONE,
    NOT_ASKED,
    NULL,
    NULLABLE,
    NULLABLE_COUNT,
    NUMBER,
    OUT_LENGTH,
    POSITION,
    PREFIX,
    PRESENT,
    SERIAL,
    STATE,
)

_LONG = types.int64
_item = native._python("PyTuple_GetItem", _LONG, _LONG, _LONG)
_bytes_length = native._python("PyBytes_Size", _LONG, _LONG)
_new_text = native._python("PyUnicode_FromStringAndSize", _LONG, _LONG, _LONG)
_new_float = native._python("PyFloat_FromDouble", _LONG, types.float64)
_to_double = native._python("PyOS_string_to_double", types.float64, _LONG, _LONG, _LONG)
_is_in = native._python("PySet_Contains", types.int32, _LONG, _LONG)

_MIX, _MIX_OTHER = np.uint64(grams.MIXES[0]), np.uint64(grams.MIXES[1])
_ONE, _SIX, _EIGHT, _WORD = np.uint64(1), np.uint64(6), np.uint64(8), np.uint64(63)
_GRAM_BITS = tuple(np.uint64((1 << 8 * length) - 1) for length in grams.LENGTHS)
_MET_SHIFT = np.uint64(64 - (NAMES_MET - 1).bit_length())
_DIGITS_MAX = 15  # So a number and its power of ten are floats, and the quotient is rounded once.
_WHOLE_MAX, _DECIMALS_MAX, _POWER_DIGITS_MAX = 19, 40, 2  # So none is beyond the floats.
_POWERS = tuple(10.0**n for n in range(_DIGITS_MAX + 1))
_QUOTE, _BACKSLASH, _COLON, _COMMA, _OPEN, _CLOSE, _DOLLAR = b'"\\:,{}$'
_ARRAY, _ARRAY_END = b"[]"
_BOM = 0xEF  # the first byte of a byte order mark
_PLUS, _MINUS, _DOT, _ZERO, _SEVEN, _NINE, _POWER, _UNICODE = b"+-.079eu"
_ESCAPED = tuple(b'"\\/bfnrt')
_TRUE, _FALSE, _NULL = (tuple(word) for word in (b"true", b"false", b"null"))
RUN_BYTES = 4_096  # of packets that are handed out together, unless one alone has more
LISTED_MAX = 4_096  # matches in one answer, unless the packets of a run have more
DEPTH_MAX = 16  # of objects and arrays in each other
CLOCK_EVERY = 8  # packets, if there is a limit of time


@njit
def _past_space(data, at, end):
    while at < end and (data[at] == 32 or 9 <= data[at] <= 10 or data[at] == 13):
        at += 1
    return at


@njit
def _text_end(data, at, end):
    """Where the text that begins at `at` has its closing quote, -1 if Python reads it better;
    whether it is ASCII; and whether it stands there as it is, without escapes."""
    said, as_is = np.uint8(0), True
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            return at, said < 128, as_is
        if byte < 32:
            break
        if byte == _BACKSLASH:
            at = _escaped(data, at + 1, end)
            if at < 0:
                break
            as_is = False
        said |= byte
        at += 1
    return -1, False, False


@njit
def _escaped(data, at, end):
    """Where the last byte of an escape stands whose first one behind the backslash is here; -1 if
    there is none, or half a pair of surrogates."""
    if at >= end:
        return -1
    if data[at] != _UNICODE:
        for i in range(len(_ESCAPED)):
            if data[at] == _ESCAPED[i]:
                return at
        return -1
    if at + 4 >= end:
        return -1
    for i in range(1, 5):
        low = data[at + i] | 32
        if not (_ZERO <= data[at + i] <= _NINE or 97 <= low <= 102):
            return -1
    if data[at + 1] | 32 == 100 and not _ZERO <= data[at + 2] <= _SEVEN:
        return -1
    return at + 4


@njit
def _name(data, data_at, at, end, state):
    """The number of the attribute whose name begins at `at`, or `NOT_ASKED` or `ASKED_WITHIN`; and
    where the closing quote is, -1 if the name is not a plain one.

    Short names that were met before are known by their bytes, each in the one place where it may
    be, so that nobody's choice of names makes the search long.
    """
    first, second, place = np.uint64(0), np.uint64(0), at
    while place < end:
        byte = data[place]
        if byte == _QUOTE:
            break
        if byte < 32 or byte >= 128 or byte == _BACKSLASH:
            return -1, -1
        bits = np.uint64((place - at) << 3)
        if bits < 64:
            first |= np.uint64(byte) << bits
        elif bits < 128:
            second |= np.uint64(byte) << (bits - np.uint64(64))
        place += 1
    if place == end or data[at] == _DOLLAR:
        return -1, -1
    size = np.uint64(place - at + 1)
    mixed = (first ^ second * _MIX ^ size) * _MIX
    met = carray(native._at(state[AT_NAMES_MET]), (NAMES_MET, 4), np.uint64)[mixed >> _MET_SHIFT]
    if met[0] == first and met[1] == second and met[2] == size and size <= 17:
        return np.int64(met[3]) - 1, place
    text = _new_text(data_at + at, place - at)
    known = native._dict_get(state[KNOWN], text)
    native._drop(text)
    number = native._long(known) if known != 0 else NOT_ASKED
    met[0], met[1], met[2], met[3] = first, second, size, np.uint64(number + 1)
    return number, place


@njit
def _number(data, data_at, at, end, room):
    """A number, NaN for an integer that may be none of a float's; and where it ends, -1 if it is
    none or not a plain one. A word has room."""
    begin = at
    negative = data[at] == _MINUS
    if negative:
        at += 1
    first = at
    whole = 0
    while at < end and _ZERO <= data[at] <= _NINE and at - first < _WHOLE_MAX:
        whole = 10 * whole + (data[at] - _ZERO)
        at += 1
    digits = at - first
    if digits == 0 or (digits > 1 and data[first] == _ZERO):
        return 0.0, -1
    decimals = 0
    dotted = at < end and data[at] == _DOT
    if dotted:
        at += 1
        first = at
        while at < end and _ZERO <= data[at] <= _NINE and at - first < _DECIMALS_MAX:
            if digits + at - first < _DIGITS_MAX:
                whole = 10 * whole + (data[at] - _ZERO)
            at += 1
        decimals = at - first
        if decimals == 0:
            return 0.0, -1
    power = at < end and data[at] | 32 == _POWER
    if power:
        at += 1
        if at < end and data[at] in (_PLUS, _MINUS):
            at += 1
        first = at
        while at < end and _ZERO <= data[at] <= _NINE and at - first < _POWER_DIGITS_MAX:
            at += 1
        if at == first:
            return 0.0, -1
    if at < end and (data[at] | 32 == _POWER or data[at] == _DOT or _ZERO <= data[at] <= _NINE):
        return 0.0, -1
    if power or digits + decimals > _DIGITS_MAX:
        if not (power or dotted):
            return np.nan, at
        return _to_double(data_at + begin, room, 0), at  # as Python rounds it
    number = float(whole) / _POWERS[decimals]
    return (-number if negative and (dotted or whole) else number), at


@njit
def _word_end(data, at, end, word):
    """Where a word ends that stands at `at`; -1 if another does."""
    if at + len(word) > end:
        return -1
    for i in range(len(word)):
        if data[at + i] != word[i]:
            return -1
    return at + len(word)


@njit
def _value_at(data, at, end):
    """Where the value of a field begins whose name's quote is at `at`; -1 if the name is not a
    plain one."""
    if at >= end or data[at] != _QUOTE:
        return -1
    at, ascii, _ = _text_end(data, at + 1, end)
    if at < 0 or not ascii:
        return -1
    at = _past_space(data, at + 1, end)
    return _past_space(data, at + 1, end) if at < end and data[at] == _COLON else -1


@njit
def _scalar_end(data, data_at, at, end, room):
    """Where a text, a number or a word ends; -1 if it is not a plain one."""
    first = data[at]
    if first == _QUOTE:
        at, ascii, _ = _text_end(data, at + 1, end)
        return at + 1 if at >= 0 and ascii else -1
    if first == _MINUS or _ZERO <= first <= _NINE:
        return _number(data, data_at, at, end, room)[1]
    if first == _NULL[0]:
        return _word_end(data, at, end, _NULL)
    if first == _TRUE[0]:
        return _word_end(data, at, end, _TRUE)
    return _word_end(data, at, end, _FALSE)


@njit
def _nested_end(data, data_at, at, end, room):
    """Where an object or an array ends that begins at `at`; -1 if it is not a plain one."""
    depth = objects = 0  # which of those that it is in are objects, as bits
    while True:
        # At a value.
        if at >= end:
            return -1
        first = data[at]
        if first in (_OPEN, _ARRAY):
            if depth == DEPTH_MAX:
                return -1
            depth += 1
            objects = objects << 1 | (first == _OPEN)
            at = _past_space(data, at + 1, end)
            empty = at < end and data[at] == (_CLOSE if first == _OPEN else _ARRAY_END)
            if not empty:
                at = _value_at(data, at, end) if first == _OPEN else at
                if at < 0:
                    return -1
                continue
        else:
            at = _scalar_end(data, data_at, at, end, room)
            if at < 0:
                return -1
        # Behind a value.
        while True:
            at = _past_space(data, at, end)
            if at >= end or data[at] != (_CLOSE if objects & 1 else _ARRAY_END):
                break
            at += 1
            depth -= 1
            objects >>= 1
            if depth == 0:
                return at
        if at >= end or data[at] != _COMMA:
            return -1
        at = _past_space(data, at + 1, end)
        if objects & 1:
            at = _value_at(data, at, end)
            if at < 0:
                return -1


@njit
def _may_share(data, at, end, address):
    """Whether a text may share a gram with a pattern whose marks are there: never a wrong no."""
    head = carray(native._at(address), (grams.HEAD,), np.uint64)
    marks = carray(native._at(address + 8 * grams.HEAD), (1,), np.uint64)
    last = np.uint64(0)
    for place in range(at, end):
        if data[place] >= 128:
            return True
        last = last << _EIGHT | np.uint64(data[place])
        for i in range(len(grams.LENGTHS)):
            length = grams.LENGTHS[i]
            if place - at + 1 >= length and head[1] >> np.uint64(i) & _ONE != 0:
                gram = last & _GRAM_BITS[i] ^ np.uint64(length)
                one, other = gram * _MIX >> head[0], gram * _MIX_OTHER >> head[0]
                if (
                    marks[one >> _SIX] >> (one & _WORD)
                    & marks[other >> _SIX] >> (other & _WORD)
                    & _ONE
                ) != 0:  # fmt: skip
                    return True
    return False


@njit
def _read(data, data_at, at, end, topic, topic_at, topic_end, state, room):
    """Fill the pairs of channel and value from a payload; how many, -1 if Python has to look."""
    table = carray(native._at(state[AT_ATTRIBUTES]), (1, ATTRIBUTE), np.int64)
    prefixes = carray(native._at(state[AT_PREFIXES]), (1, PREFIX), np.int64)
    pairs = carray(native._at(state[AT_PAIRS]), (1, 2), np.float64)
    seen = carray(native._at(state[AT_SEEN]), (1,), np.int64)
    # An attribute that is there has this number, one that is null the next.
    state[SERIAL] += 2
    serial = state[SERIAL]
    count = 0
    if state[CLASS] >= 0:
        seen[state[CLASS]] = serial
        attribute = table[state[CLASS]]
        count = native._give_text(pairs, count, attribute, prefixes, topic, room)
        if count < 0 or (
            attribute[MARKS] != 0 and _may_share(data, topic_at, topic_end, attribute[MARKS])
        ):
            return -1
        if attribute[PRESENT] >= 0:
            pairs[count, 0], pairs[count, 1] = attribute[PRESENT], 1.0
            count += 1
    # Whatever begins otherwise than an object says nothing but its topic.
    says = at < end and (data[at] == _OPEN or data[at] == _BOM or _past_space(data, at, end) > at)
    empty = not says
    if says:
        if data[at] != _OPEN:
            return -1
        at = _past_space(data, at + 1, end)
        empty = at < end and data[at] == _CLOSE
    while not empty:
        if at >= end or data[at] != _QUOTE:
            return -1
        number, at = _name(data, data_at, at + 1, end, state)
        if at < 0:
            return -1
        at = _past_space(data, at + 1, end)
        if at >= end or data[at] != _COLON:
            return -1
        at = _past_space(data, at + 1, end)
        if at >= end:
            return -1
        within = number == ASKED_WITHIN
        if within or number == state[CLASS]:  # it is the topic, whatever the payload says
            number = NOT_ASKED
        elif number >= 0:
            if seen[number] >= serial:  # said twice: the last counts
                return -1
            seen[number] = serial
        attribute = table[max(number, 0)]
        first = data[at]
        if first == _QUOTE:
            value = at + 1
            at, ascii, as_is = _text_end(data, value, end)
            if at < 0 or at - value > TEXT_MAX or (number >= 0 and not as_is):
                return -1
            if number >= 0 or not ascii:
                text = _new_text(data_at + value, at - value)
                if text == 0:  # it is no UTF-8
                    native._forget_error()
                    return -1
                if number >= 0:
                    count = native._give_text(pairs, count, attribute, prefixes, text, room)
                native._drop(text)
                if count < 0 or (
                    number >= 0
                    and attribute[MARKS] != 0
                    and _may_share(data, value, at, attribute[MARKS])
                ):
                    return -1
            at += 1
        elif first == _MINUS or _ZERO <= first <= _NINE:
            quantity, at = _number(data, data_at, at, end, room)
            if at < 0 or (number >= 0 and quantity != quantity):
                return -1
            if number >= 0:
                if attribute[NUMBER] >= 0:
                    pairs[count, 0], pairs[count, 1] = attribute[NUMBER], quantity
                    count += 1
                if attribute[CODE] >= 0:
                    value = _new_float(quantity)
                    count = native._give_code(
                        pairs, count, attribute[CODES], attribute[CODE], attribute[EXCLUDED], value
                    )
                    native._drop(value)
        elif first in (_OPEN, _ARRAY):
            if number >= 0 or within:
                return -1
            at = _nested_end(data, data_at, at, end, room)
            if at < 0:
                return -1
        elif first == _NULL[0]:
            at = _word_end(data, at, end, _NULL)
            if at < 0:
                return -1
            if number >= 0:
                seen[number] = serial + 1
                number = NOT_ASKED
        else:
            flag = first == _TRUE[0]
            at = _word_end(data, at, end, _TRUE) if flag else _word_end(data, at, end, _FALSE)
            if at < 0:
                return -1
            if number >= 0 and attribute[FLAG] >= 0:
                pairs[count, 0], pairs[count, 1] = attribute[FLAG], flag
                count += 1
        if number >= 0 and attribute[PRESENT] >= 0:
            pairs[count, 0], pairs[count, 1] = attribute[PRESENT], 1.0
            count += 1
        at = _past_space(data, at, end)
        if at < end and data[at] == _CLOSE:
            break
        if at >= end or data[at] != _COMMA:
            return -1
        at = _past_space(data, at + 1, end)
    if says and _past_space(data, at + 1, end) != end:
        return -1
    nullable = carray(native._at(state[AT_NULLABLE]), (1, NULLABLE), np.int64)
    for i in range(state[NULLABLE_COUNT]):
        number = native._long(native._dict_get(state[KNOWN], nullable[i, NAME]))
        if seen[number] != serial:
            pairs[count, 0], pairs[count, 1] = nullable[i, NULL], 1.0
            count += 1
    return count


@njit
def _hand_out(wanted, data_at, start, end, before, count, filters):
    """Add a run to what is wanted: these packets, how many were looked at before, the filters."""
    word = native._new_long(end << 2 * PASSED_BITS | before << PASSED_BITS | count)
    native._add(wanted, word)
    native._add(wanted, native._new_bytes(data_at + start, end - start))
    native._add(wanted, filters)


@lru_cache(maxsize=1)
def _function() -> Any:
    """The function to compile: (a state's address, what `Passing` is given) -> its answer."""
    version = native.version_of(kernels, native, fanout, grams, verdicts)

    def pass_over(owner, arguments):
        state = carray(native._at(native._long(owner)), (STATE,), np.int64)
        state[MATCHES] = -version
        packets = _item(arguments, 0)
        at, most = native._long(_item(arguments, 1)), native._long(_item(arguments, 2))
        longest, old = native._long(_item(arguments, 3)), native._long(_item(arguments, 4))
        ready, apart, wanted = _item(arguments, 5), _item(arguments, 6), _item(arguments, 7)
        fanout_at = native._long(_item(arguments, 8))
        limit_ns = native._long(_item(arguments, 9))
        told = _item(arguments, 10)
        told_at, told_end = native._bytes_at(told), native._bytes_at(told) + _bytes_length(told)
        room = native._long(owner) + 8 * POSITION
        began_ns = native._now_ns(room) if limit_ns > 0 else 0
        data_at, size = native._bytes_at(packets), _bytes_length(packets)
        data = carray(native._at(data_at), (size,), np.uint8)
        out = carray(native._at(state[AT_OUT]), (state[OUT_LENGTH],), np.int32)
        group = carray(native._at(fanout_at), (fanout.STATE,), np.int64)
        looked = listed = 0
        # The run at hand: where it begins and ends, its packets and those before it, its filters.
        # Before it was handed out nothing is gathered, and the other way round.
        start = stop = count = before = filters = tries = 0
        while looked < most and at + 4 < size and data[at] == 0x30:
            if (
                limit_ns > 0
                and looked % CLOCK_EVERY == CLOCK_EVERY - 1
                and native._now_ns(room) - began_ns > limit_ns
            ):
                break
            body, length = at + 2, np.int64(data[at + 1])
            if length >= 128:
                if not 0 < data[body] < 128:
                    break
                length = length & 127 | np.int64(data[body]) << 7
                body += 1
            end = body + length
            if end > size or end - at > longest or body + 2 > end:
                break
            topic_end = body + 2 + (np.int64(data[body]) << 8 | np.int64(data[body + 1]))
            if topic_end > end or (old == 0 and (topic_end == end or data[topic_end] != 0)):
                break
            asked = matches = 0
            if told_at < told_end and tries == 0:
                tags = np.int64(carray(native._at(told_at), (1,), np.uint8)[0])
                tags_at = told_at + 1
                told_at = tags_at + TAG_BYTES * tags
                if fanout_at != 0 and told_at <= told_end:
                    asked = fanout.ask_tags(group, tags_at, tags)
            if asked == 0:
                field = native._new_bytes(data_at + body + 2, topic_end - body - 2)
                topic = native._dict_get(ready, field)
                native._drop(field)
                if topic == 0 or _is_in(apart, topic) != 1:
                    break
                payload = topic_end if old != 0 else topic_end + 1
                pairs = _read(data, data_at, payload, end, topic, body + 2, topic_end, state, room)
                if pairs < 0:
                    break
                matches, checks = native._run(state, pairs, out)
                if checks > 0 and matches >= 0:
                    matches, checks = native._decide(state, out, matches, checks, topic)
                if matches < 0 or checks != 0:
                    break
                if matches > 0 and fanout_at != 0:
                    asked = fanout.ask_rows(group, out, matches)
            came = fanout.LEFT
            while asked > 0:
                came = fanout.gather(group, asked, at, topic_end, end, looked)
                if came != fanout.FULL:
                    break
                fanout.hand_over(group, data, data_at, old, state[NONE], wanted, asked)
            if asked > 0 and came == fanout.LEFT and matches == 0:
                tries = 1  # its tags are known, but it is not to be gathered: find its rows
                continue
            tries = 0
            if came == fanout.GATHERED:
                if count > 0:
                    _hand_out(wanted, data_at, start, stop, before, count, filters)
                    count = 0
                if group[fanout.BYTES] <= 0:
                    looked += 1
                    at = end
                    break
            elif matches > 0:
                if fanout_at != 0 and group[fanout.PACKETS] > 0:
                    fanout.hand_over(group, data, data_at, old, state[NONE], wanted, 0)
                if (
                    count > 0
                    and stop == at
                    and end - start <= RUN_BYTES
                    and native._are_listed(state, matches, out, filters)
                ):
                    count += 1
                else:
                    if count > 0:
                        _hand_out(wanted, data_at, start, stop, before, count, filters)
                        count = 0
                        if listed >= LISTED_MAX:
                            break
                    filters = native._listed(state, matches, out)
                    start, before, count = at, looked, 1
                    listed += matches
                stop = end
            looked += 1
            at = end
        if count > 0:
            _hand_out(wanted, data_at, start, stop, before, count, filters)
        if fanout_at != 0 and group[fanout.PACKETS] > 0:
            fanout.hand_over(group, data, data_at, old, state[NONE], wanted, 0)
        return native._new_long(at << PASSED_BITS | looked)

    return pass_over


@lru_cache(maxsize=1)
def _passer() -> Any:
    return native.described(_function(), b"pass_over")


def is_ready() -> bool:
    """Whether it only has to be loaded."""
    return native.is_cached(_function())


def passer(state_at: int) -> Passing:
    """What passes packets over by the state at an address. It is given the packets, the place of
    the first, how many at the most, the bytes of the longest, whether they are of MQTT 3, the
    topics by their bytes, those whose publications are to be looked at one by one, a list, the
    address of a `Fanout` or 0, how many ns it may take, if that is not 0, and what is told of the
    packets, as `fanout.hand_over` has it. It says where to go on, shifted by `PASSED_BITS`, and how
    many it looked at. Of each run that filters match there are three items in the list: where it
    ends, shifted by twice `PASSED_BITS`, how many were looked at before it, shifted once, and how
    many it has; its packets; the ids of the filters. What the fanout knows the recipients of is
    there instead as `fanout.hand_over` has it, in order, and as much as it was told by
    `Fanout.allow`."""
    return native.bound(_passer()[1], state_at)  # type: ignore[no-any-return]
