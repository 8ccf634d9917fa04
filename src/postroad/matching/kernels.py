"""The compiled table of rows: access lists, bit tables, and the exact check of what they leave.

A *row* is one conjunction as at most five demands on *channels*. A channel is one aspect of one
attribute as a float: its number, the code of its value, the code of its prefix of some length,
and so on; `compiled.py` makes them. A demand is `low <= value <= high`.

A row is filed under one demand, the one that fewest publications are likely to meet: under the
code it demands, or under a window of its channel's cells that holds its range, or at the root.
How many publications have the channel is counted, and matters in large tables.
Where many rows demand codes of the same two channels, a *couple*, a row is filed under both codes.
A *narrow* range, within one cell, is filed under the step in which it begins, of a width no less
than its own; a publication looks in the step of its value and the one before.
(All but single codes pay only in large tables: a block costs as much time as the bits of some
hundred rows. Where there are *many* channels, more than have bit tables, a row is at least filed
under one that it demands, so that publications without that channel never see it.)
The rows filed in one place lie in *blocks* of up to 4,096 slots, chained. All but small blocks
have a bit table per channel and cell: bit s is set when slot s fails for values in that cell. A
table has as many *lines* as its channel has cells, and one for publications without the channel.
A publication ORs the lines of its own cells; the slots whose bits stay clear are then compared
exactly. Bits only save comparisons: cells may be coarse and channels left out.

A row is *given* as 16 floats: its number plus one (negative when Python must check it too), then
per demand low, high and channel with flags. Demands come with the hardest to meet first and those
it is filed under last. A row is kept as one cache line of 32-bit integers, which is nearly always
enough and is compared by vector instructions, and a *rest*. Values and bounds
are integers of 64 bits in the order of the floats (`_key`); the row has the upper halves of its
bounds, the rest the lower ones and the flags. Values strictly between the upper halves surely meet
the bounds, and only where two halves are equal the rest is looked at. (A bound that all values
with its upper half meet has the next one, so that codes, among others, never need the rest.) A row
begins with its number plus one: negative when the rest must be looked at in any case, because
Python must check the row or it excludes a code; 0 when the slot is free. Blocks, bits and rows are
asked for ahead of their use.

Blocks take their rows and words of bits from two pools. What a block has outgrown is used by others
of that size, and left behind when the pool grows.

Arrays are passed one by one: in a record they take Python longer to pass (docs/decisions/numba.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from postroad.jit import njit, write_prefetch

DEMANDS = 5
GIVEN = 16  # Columns of a row as it is given: its number, then low, high and channel per demand.
LOW, HIGH, CHANNEL, STRIDE = 1, 2, 3, 3  # The columns of the first demand; then every third.
LOW_OPEN, HIGH_OPEN, NOT_EQUAL = 1, 2, 4  # Flags in the lowest bits of a given row's channel.

# Columns of a row as it is kept, and of its rest.
ROW = 16
NUMBER, LOWS, HIGHS, CHANNELS = 0, 1, 1 + DEMANDS, 1 + 2 * DEMANDS
REST = 11
LOW_RESTS, HIGH_RESTS, FLAGS = 0, DEMANDS, 2 * DEMANDS
CHECKED = 1 << 15  # Among the flags, after three of each demand: Python must check the row too.
MISSING = -(1 << 63)  # The key of a value that the publication lacks,
NOT_GIVEN = -(1 << 31)  # and its upper half.

CELLS = 64  # Cell 0 is for publications without the channel.
SLOTS = 4096
CHANNELS_MAX = 12  # A block has bit tables for at most so many channels.

# Columns of a block.
CAP, USED, LIVE, ROWS, WORDS, TABLES, NEXT, PREVIOUS, KIND, PLACE, WINDOW, OTHER = range(12)
FIRST_CHANNEL = 12
BLOCK = FIRST_CHANNEL + CHANNELS_MAX
AT_ROOT, AT_CODE, AT_COUPLE, AT_NARROW, AT_WINDOW = range(5)
VISIT = 3 + CHANNELS_MAX  # A block, how many places of bits to look at, and these.
AT_ONCE = 6  # So many short lines of bits are read side by side.
VISITS = 128  # So many blocks are fetched ahead at most.
PAIRS_USUAL = 24  # More pairs of a publication need more room than there is.

# Windows of 1, 2, 4, 8, 16 and 32 cells, each half a width after the one before, and all cells.
WINDOWS = 193
WHOLE = 192
_OFFSETS = np.array([0, 64, 128, 160, 176, 184])
_HALVES = np.array([0, 0, 1, 2, 3, 4])  # As powers of two.
_SIZES = np.array([1, 2, 4, 8, 16, 32])

# Narrow ranges: the last column of the breakpoints has a bit for each width in use.
WIDTHS_USED = CELLS - 1
# The column before counts the publications that had the channel; `allocator[ASKED]` counts all.
MET = CELLS - 2
ASKED_MIN, ASKED_MAX = 1_024, 65_536  # Fewer say too little; of more, older ones count less.
WIDTHS_COUNT = 52
_WIDTHS = 2.0 ** (2.0 * np.arange(WIDTHS_COUNT) - 52.0)
_FAR = 2.0**62

# So many slots blocks may have.
_CAPS = np.array(
    [*(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48), *range(64, 512, 64), *range(512, 1024, 128),
     *range(1024, 2048, 256), *range(2048, SLOTS + 1, 512)]
)  # fmt: skip

# Columns of the allocator: the ends of the pools, then heads of free lists.
ROWS_TOP, WORDS_TOP, BLOCKS_TOP, BLOCKS_FREE, ROOT, WINDOWED, MANY, ASKED = range(8)
ROWS_FREE = 8  # One list per capacity,
WORDS_FREE = ROWS_FREE + len(_CAPS)  # and one per size of bit tables, see `_step`.
KEYS = WORDS_FREE + 128
KEYS_MAX, COUPLED, FIRST_COUPLE = KEYS + 1, KEYS + 2, KEYS + 3  # See `_line`; then the couples.
COUPLES_MAX = 32
FIRSTS_EACH = WINDOWS + 2 * WIDTHS_COUNT  # So many first blocks a pair may lead to.
FIRSTS_USUAL = PAIRS_USUAL * FIRSTS_EACH + COUPLES_MAX + 2
ALLOCATOR = FIRST_COUPLE + 2 * COUPLES_MAX

INSERTED_MAX = 24
_AHEAD = 24  # So many candidates are fetched ahead.
LANES = 8  # So many words of bits, or bounds of a row, are looked at by one instruction.

FULL_ROWS, FULL_WORDS, FULL_BLOCKS, FULL_KEYS = -1, -2, -3, -4

_ONE = np.uint64(1)
_TWO = np.uint64(2)
_ZERO = np.uint64(0)
_ALL = ~_ZERO


@intrinsic
def _bits(typing_context, value):
    """The bits of a float, as an integer."""

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def _float(typing_context, bits):
    """The float that has these bits."""

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@njit(cache=True, inline="always")
def _key(coded, value):
    """An integer of 64 bits for a value, in the same order; codes are in the upper half of it."""
    if coded:
        return np.int64(value) << 32
    bits = _bits(value + 0.0)  # Zero has a sign, which does not count.
    return bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)


@njit(cache=True, inline="always")
def _value(coded, key):
    if coded:
        return float(key >> 32)
    return _float(key ^ ((key >> 63) & 0x7FFFFFFFFFFFFFFF))


@njit(cache=True, inline="always")
def _low_key(rows, rests, at, i):
    """The key of a bound. Its upper half is strictly below those of values that surely meet it."""
    rest = np.int64(rests[at, LOW_RESTS + i]) & 0xFFFFFFFF
    return (np.int64(rows[at, LOWS + i]) + (rest == 0)) << 32 | rest


@njit(cache=True, inline="always")
def _high_key(rows, rests, at, i):
    rest = np.int64(rests[at, HIGH_RESTS + i]) & 0xFFFFFFFF
    return (np.int64(rows[at, HIGHS + i]) - (rest == 0xFFFFFFFF)) << 32 | rest


@njit(cache=True, inline="always")
def _keep(row, at, breaks, rows, rests):
    """Write a given row, and its rest."""
    plain = row[0] > 0
    flags = 0 if plain else CHECKED
    for i in range(DEMANDS):
        tagged = int(row[CHANNEL + STRIDE * i])
        if tagged < 0:
            rows[at, LOWS + i], rows[at, HIGHS + i], rows[at, CHANNELS + i] = -1, 1, 0
            rests[at, LOW_RESTS + i], rests[at, HIGH_RESTS + i] = 0, -1
            continue
        coded = breaks[tagged >> 3, 0] < 0
        low, high = _key(coded, row[LOW + STRIDE * i]), _key(coded, row[HIGH + STRIDE * i])
        if coded:
            high |= 0xFFFFFFFF
        rows[at, LOWS + i] = (low >> 32) - (low & 0xFFFFFFFF == 0)
        rows[at, HIGHS + i] = (high >> 32) + (high & 0xFFFFFFFF == 0xFFFFFFFF)
        rows[at, CHANNELS + i] = (tagged >> 3) + 1
        rests[at, LOW_RESTS + i] = low
        rests[at, HIGH_RESTS + i] = high
        flags |= (tagged & 7) << (3 * i)
        plain &= tagged & NOT_EQUAL == 0
    rests[at, FLAGS] = flags
    number = int(abs(row[0]))
    rows[at, NUMBER] = number if plain else -number


@njit(cache=True)
def give_back(places, breaks, rows, rests, given):
    """The rows of some places as they were given."""
    for n in range(len(places)):
        at = places[n]
        number, flags = abs(rows[at, NUMBER]), rests[at, FLAGS]
        given[n, 0] = -number if flags & CHECKED else number
        for i in range(DEMANDS):
            channel = rows[at, CHANNELS + i] - 1
            low, high, tagged = 0.0, 0.0, -1
            if channel >= 0:
                coded = breaks[channel, 0] < 0
                low = _value(coded, _low_key(rows, rests, at, i))
                high = _value(coded, _high_key(rows, rests, at, i))
                tagged = channel << 3 | ((flags >> (3 * i)) & 7)
            given[n, LOW + STRIDE * i] = low
            given[n, HIGH + STRIDE * i] = high
            given[n, CHANNEL + STRIDE * i] = tagged


@intrinsic
def _glance(typing_context, rows, at, values):
    """What the upper halves of a row say: 3 if they surely meet every demand, 1 if they may.

    Written as vector instructions: the lows and the highs are read from the row's cache line as
    they lie, eight integers each, and what follows the demands is masked out.
    """

    def codegen(context, builder, signature, arguments):
        word, vector = ir.IntType(32), ir.VectorType(ir.IntType(32), LANES)
        data, values = (
            builder.bitcast(
                context.make_array(signature.args[i])(context, builder, arguments[i]).data,
                word.as_pointer(),
            )
            for i in (0, 2)
        )
        row = builder.gep(data, [builder.mul(arguments[1], ir.IntType(64)(ROW))])

        def lanes(column: int) -> Any:
            begin = builder.gep(row, [word(column)])
            return builder.load(builder.bitcast(begin, vector.as_pointer()), align=4)

        value = vector(None)
        for i in range(DEMANDS):
            channel = builder.load(builder.gep(row, [word(CHANNELS + i)]))
            place = builder.gep(values, [builder.zext(channel, ir.IntType(64))])
            value = builder.insert_element(value, builder.load(place), word(i))
        low, high = lanes(LOWS), lanes(HIGHS)
        demanded = ir.Constant(ir.IntType(LANES), (1 << DEMANDS) - 1)

        def all_of(compare: str) -> Any:
            both = builder.and_(
                builder.icmp_signed(compare, low, value), builder.icmp_signed(compare, value, high)
            )
            mask = builder.and_(builder.bitcast(both, ir.IntType(LANES)), demanded)
            return builder.zext(builder.icmp_unsigned("==", mask, demanded), ir.IntType(64))

        return builder.add(builder.mul(all_of("<"), ir.IntType(64)(2)), all_of("<="))

    return types.int64(rows, types.uint64, values), codegen


@njit(cache=True, inline="always")
def _accepts(rows, rests, at, point):
    """Whether the point meets every demand of the row. A missing value meets none.

    Looks at all demands, because a processor that guesses wrong where to stop loses more time.
    """
    accepted = True
    flags = rests[at, FLAGS]
    for i in range(DEMANDS):
        channel = rows[at, CHANNELS + i] - 1
        low, high = _low_key(rows, rests, at, i), _high_key(rows, rests, at, i)
        least, most = point[channel, 0], point[channel, 1]
        unequal = (flags >> (3 * i)) & NOT_EQUAL != 0
        within = (low <= most) & (least <= high)
        accepted &= (channel < 0) | (unequal & (least != low)) | (within & (not unequal))
    return accepted


@njit(cache=True)
def _tabled(cap, kind):
    """Whether a block has bit tables. Many codes have few rows each: tables would outweigh them."""
    return cap >= (64 if kind in (AT_CODE, AT_NARROW) else 16)


@njit(cache=True)
def _width(cap):
    """How many words a line of bits takes: so many that no cache line too many is read."""
    words = (cap + 63) >> 6
    if words > 4:
        return (words + 7) & ~7
    return 4 if words == 3 else words


@njit(cache=True, inline="always")
def _cell(breaks, lines, channel, value):
    """The cell of a value: codes by remainder, other channels by their breakpoints."""
    count = breaks[channel, 0]
    if count < 0:
        return 1 + int(value) % (lines[channel] - 1) if value >= 0 else 0
    below, above = 1, int(count) + 1
    while below < above:
        middle = (below + above) >> 1
        if breaks[channel, middle] <= value:
            below = middle + 1
        else:
            above = middle
    return below


@intrinsic
def _lowest(typing_context, word):
    """The number of the lowest bit that is set."""

    def codegen(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.uint64), codegen


@intrinsic
def _lowest_if_any(typing_context, word):
    """The same; 64 if there is none."""

    def codegen(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(types.uint64), codegen


@intrinsic
def _bits_in(typing_context, word):
    """How many bits are set."""

    def codegen(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), codegen


@intrinsic
def _fetch(typing_context, array, place):
    """Ask the processor to bring the cache line at a place of an array into its cache."""

    def codegen(context, builder, signature, arguments):
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        strides = cgutils.unpack_tuple(builder, view.strides)
        start = builder.bitcast(view.data, ir.IntType(8).as_pointer())
        begin = builder.gep(start, [builder.mul(arguments[1], strides[0])])
        write_prefetch(builder, begin)
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@intrinsic
def _passing(typing_context, words, places, tables, word, passing):
    """Write which slots none of some tables' lines fails: eight words from `word` on, as a vector.

    A loop in Python over the words would be compiled to as many scalar instructions.
    """

    def codegen(context, builder, signature, arguments):
        long, vector = ir.IntType(64), ir.VectorType(ir.IntType(64), LANES)
        begin, places, to = (
            context.make_array(signature.args[i])(context, builder, arguments[i]).data
            for i in (0, 1, 4)
        )

        def line(table: Any) -> Any:
            at = builder.add(builder.load(builder.gep(places, [table])), arguments[3])
            here = builder.bitcast(builder.gep(begin, [at]), vector.as_pointer())
            return builder.load(here, align=8)

        failing = cgutils.alloca_once_value(builder, line(long(0)))
        with cgutils.for_range_slice(builder, long(1), arguments[2], long(1)) as (table, _):
            builder.store(builder.or_(builder.load(failing), line(table)), failing)
        to = builder.bitcast(to, vector.as_pointer())
        builder.store(builder.not_(builder.load(failing)), to, align=8)
        return context.get_dummy_value()

    return types.void(words, places, types.int64, types.int64, passing), codegen


@njit(cache=True, inline="always")
def _add_bits(left, first, candidates, count):
    """Add the row of each bit. Words have one or two mostly: two are written without a question
    asked, which a processor would guess wrong, and counted if they are there."""
    end = count + _bits_in(left)
    candidates[count] = first + _lowest_if_any(left)
    left &= left - _ONE
    candidates[count + _ONE] = first + _lowest_if_any(left)
    left &= left - _ONE
    count += _TWO
    while left != _ZERO:
        candidates[count] = first + _lowest(left)
        left &= left - _ONE
        count += _ONE
    return end


@njit(cache=True)
def _list(visits, begin, visited, blocks, words, candidates, passing):
    """List the rows that the bits of blocks leave over, from `begin` on while there is room.

    Returns where it stopped, and how many rows.
    """
    count = _ZERO
    for i in range(begin, visited):
        block, tables = visits[i, 0], visits[i, 1]
        used, base = blocks[block, USED], blocks[block, ROWS]
        if np.int64(count) + used + 2 > candidates.shape[0]:
            return i, np.int64(count)
        if i + 1 < visited and visits[i + 1, 1] > 0:
            ahead = (blocks[visits[i + 1, 0], USED] + 63) >> 6
            for table in range(2, 2 + visits[i + 1, 1]):
                for word in range(16, ahead, 8):
                    _fetch(words, visits[i + 1, table] + word)
        if tables == 0:
            for row in range(base, base + used):
                candidates[count] = row
                count += _ONE
            continue
        last = (used - 1) >> 6
        in_last = _ALL >> np.uint64(63 - ((used - 1) & 63))
        if _width(blocks[block, CAP]) >= LANES:
            for first in range(0, last + 1, LANES):
                _passing(words, visits[i, 2:], tables, first, passing)
                if first + LANES > last:
                    passing[last - first] &= in_last
                for k in range(min(LANES, last + 1 - first)):
                    row = base + ((first + k) << 6)
                    count = _add_bits(passing[np.uint64(k)], row, candidates, count)
            continue
        for table in range(tables, AT_ONCE):
            visits[i, 2 + table] = visits[i, 2]
        a, b, c = np.uint64(visits[i, 2]), np.uint64(visits[i, 3]), np.uint64(visits[i, 4])
        d, e, f = np.uint64(visits[i, 5]), np.uint64(visits[i, 6]), np.uint64(visits[i, 7])
        for word in range(last + 1):
            w = np.uint64(word)
            failing = words[a + w] | words[b + w] | words[c + w]
            failing |= words[d + w] | words[e + w] | words[f + w]
            for table in range(2 + AT_ONCE, 2 + tables):
                failing |= words[np.uint64(visits[i, table]) + w]
            left = ~failing & (in_last if word == last else _ALL)
            count = _add_bits(left, base + (word << 6), candidates, count)
    return visited, np.int64(count)


@njit(cache=True)
def _visit(firsts, chain, chains, block, cells, lines, blocks, words, visits):
    """Note where the bits of blocks are that a publication in these cells reads; ask for them.

    Goes on with a block of a chain while there is room; returns how many, and where it stopped.
    """
    count = 0
    while chain < chains and count < VISITS:
        visits[count, 0] = block
        tables = 0
        if _tabled(blocks[block, CAP], blocks[block, KIND]):
            width = _width(blocks[block, CAP])
            long = blocks[block, USED] > 512
            at = np.int64(blocks[block, WORDS])
            if blocks[block, LIVE] < blocks[block, USED]:
                visits[count, 2] = at
                tables = 1
                _fetch(words, at)
                if long:
                    _fetch(words, at + 8)
            at += width
            for table in range(blocks[block, TABLES]):
                channel = blocks[block, FIRST_CHANNEL + table]
                cell = cells[channel]
                if cell >= 0:
                    line = at + cell * width
                    visits[count, 2 + tables] = line
                    tables += 1
                    _fetch(words, line)
                    if long:
                        _fetch(words, line + 8)
                at += lines[channel] * width
        visits[count, 1] = tables
        count += 1
        block = np.int64(blocks[block, NEXT])
        if block == 0:
            chain += 1
            block = np.int64(firsts[chain])
    return count, chain, block


@njit(cache=True, inline="always")
def _add_first(block, firsts, chains, blocks):
    """Add the first block of a place, if there is one."""
    firsts[chains] = block
    _fetch(blocks, np.int64(block))
    return chains + (block > 0)


@njit(cache=True)
def _chains(
    pairs, pairs_count, point, cells, breaks, windows, heads, couples, blocks, allocator, firsts
):  # fmt: skip
    """Find the places whose rows the publication may meet: how many first blocks there are."""
    chains = _add_first(allocator[ROOT], firsts, 0, blocks)
    for i in range(pairs_count):
        channel, value = int(pairs[i, 0]), pairs[i, 1]
        cell = cells[channel]
        if breaks[channel, 0] < 0:
            if value >= 0:
                chains = _add_first(heads[int(value)], firsts, chains, blocks)
            continue
        if cell < 0:
            if _key(False, value) != point[channel, 1]:
                continue
            for window in range(WHOLE):
                chains = _add_first(windows[channel, window], firsts, chains, blocks)
        elif allocator[WINDOWED]:
            for size in range(6):
                window = (cell - 1) >> _HALVES[size]
                for here in range(window if size == 0 else max(0, window - 1), window + 1):
                    at = _OFFSETS[size] + here
                    chains = _add_first(windows[channel, at], firsts, chains, blocks)
        chains = _add_first(windows[channel, WHOLE], firsts, chains, blocks)
        used = np.uint64(breaks[channel, WIDTHS_USED])
        while used != _ZERO:
            width = _lowest(used)
            used &= used - _ONE
            step = np.floor(value / _WIDTHS[width])
            if abs(step) <= _FAR:
                for begin in range(int(step) - 1, int(step) + 1):
                    at = _line(_narrow_key(channel, width, begin), couples)
                    chains = _add_first(couples[at, 1], firsts, chains, blocks)
    for k in range(FIRST_COUPLE, FIRST_COUPLE + 2 * allocator[COUPLED], 2):
        first, second = point[allocator[k], 0] >> 32, point[allocator[k + 1], 0] >> 32
        if first >= 0 and second >= 0:
            at = _line(_couple_key(first, second), couples)
            chains = _add_first(couples[at, 1], firsts, chains, blocks)
    return chains


@njit(cache=True)
def match(
    pairs, pairs_count, point, values, cells, breaks, lines, windows, heads, couples, blocks, rows,
    rests, words, allocator, candidates, out, spare, firsts, visits, lanes,
):  # fmt: skip
    """The numbers of the rows that accept the publication: how many, and how many to check.

    `pairs` holds (channel, value). A channel given twice has a value between the two floats, an
    integer that no float equals; then every row found is left to be checked. The numbers found
    are in order, those to check are not and at the end of `out`. If `out` is too short: a negative
    number, and how many may come. `firsts` (for `PAIRS_USUAL`), `visits` and `lanes` are room to
    work in, because to allocate it takes a tenth of a match.
    """
    between = False
    allocator[ASKED] += 1
    for i in range(pairs_count):
        channel, value = int(pairs[i, 0]), pairs[i, 1]
        key = _key(breaks[channel, 0] < 0, value)
        if point[channel, 1] != MISSING:
            point[channel, 1] = key
            cells[channel] = -1
            between = True
        else:
            point[channel, 0] = key
            point[channel, 1] = key
            cells[channel] = _cell(breaks, lines, channel, value)
            values[channel + 1] = key >> 32
            breaks[channel, MET] += 1.0
    if pairs_count > PAIRS_USUAL:
        firsts = np.empty(pairs_count * FIRSTS_EACH + COUPLES_MAX + 2, dtype=np.int32)
    chains = _chains(
        pairs, pairs_count, point, cells, breaks, windows, heads, couples, blocks, allocator, firsts
    )  # fmt: skip
    matches, checks, chain, block = 0, 0, 0, np.int64(firsts[0])
    while chain < chains and matches >= 0:
        visited, chain, block = _visit(
            firsts, chain, chains, block, cells, lines, blocks, words, visits
        )
        listed = 0
        while listed < visited and matches >= 0:
            listed, count = _list(
                visits, listed, visited, blocks, words, candidates, lanes
            )  # fmt: skip
            if matches + checks + count > out.shape[0]:
                matches, checks = -1, matches + checks + count
            else:
                matches, checks = _compare(
                    candidates, count, matches, checks, between, point, values, rows, rests, out
                )  # fmt: skip
    for i in range(pairs_count):
        channel = int(pairs[i, 0])
        point[channel, 0] = MISSING
        point[channel, 1] = MISSING
        cells[channel] = 0
        values[channel + 1] = NOT_GIVEN
    if matches > 1:
        _sort(out, matches, spare)
    return matches, checks


@njit(cache=True)
def _compare(candidates, count, matches, checks, between, point, values, rows, rests, out):
    """Add the candidates that accept the point to `out`: at its front, or at its end to check."""
    for i in range(min(_AHEAD, count)):
        _fetch(rows, np.int64(candidates[i]))
    for i in range(count):
        if i + _AHEAD < count:
            _fetch(rows, np.int64(candidates[i + _AHEAD]))
        at = np.uint64(candidates[i])
        number = rows[at, NUMBER]
        if number > 0 and not between:
            says = _glance(rows, at, values)
            out[np.uint64(matches)] = number - 1
            matches += says >> 1
            if says != 1:
                continue
        if number != 0 and _accepts(rows, rests, at, point):
            if between or rests[at, FLAGS] & CHECKED:
                checks += 1
                out[out.shape[0] - checks] = abs(number) - 1
            else:
                out[matches] = abs(number) - 1
                matches += 1
    return matches, checks


@njit(cache=True)
def _sort(out, count, spare):
    """Put the first numbers of `out` in order: a few by insertion, many digit by digit.

    Counts, sums and moves without a question asked, which a processor could guess wrong; two digits
    are counted at once, by the lower one numbers move to `spare` and by the upper one back.
    """
    if count <= INSERTED_MAX:
        for i in range(1, count):
            number = out[i]
            j = i - 1
            while j >= 0 and out[j] > number:
                out[j + 1] = out[j]
                j -= 1
            out[j + 1] = number
        return
    most = np.int32(0)
    for i in range(count):
        most = max(most, out[i])
    bits = _log2(np.int64(most) + 1)
    twice = 1 if bits <= 22 else 2
    digit = np.uint64((bits + 2 * twice - 1) // (2 * twice))
    mask = (_ONE << digit) - _ONE
    counts = np.empty((2, 1 << np.int64(digit)), dtype=np.int32)
    lower, upper = counts[0], counts[1]
    for time in range(twice):
        shift = np.uint64(2 * time) * digit
        counts[:] = 0
        for i in range(count):
            number = np.uint64(out[i]) >> shift
            lower[number & mask] += 1
            upper[(number >> digit) & mask] += 1
        below, above = np.int32(0), np.int32(0)
        for at in range(lower.shape[0]):
            lower[at], below = below, below + lower[at]
            upper[at], above = above, above + upper[at]
        for i in range(count):
            value = (np.uint64(out[i]) >> shift) & mask
            spare[np.uint64(lower[value])] = out[i]
            lower[value] += 1
        for i in range(count):
            value = (np.uint64(spare[i]) >> (shift + digit)) & mask
            out[np.uint64(upper[value])] = spare[i]
            upper[value] += 1


@njit(cache=True)
def _log2(value):
    power = 0
    while (1 << power) < value:
        power += 1
    return power


@njit(cache=True)
def _cap(count):
    """Which of the capacities holds so many rows; the largest if none does."""
    at = 0
    while _CAPS[at] < count and at + 1 < len(_CAPS):
        at += 1
    return at


@njit(cache=True)
def _take_rows(cap, rows, allocator):
    free = ROWS_FREE + _cap(cap)
    base = allocator[free]
    if base >= 0:
        allocator[free] = np.int64(rows[base, 1])
    else:
        base = allocator[ROWS_TOP]
        if base + cap > rows.shape[0]:
            return -1
        allocator[ROWS_TOP] += cap
    for slot in range(base, base + cap):
        rows[slot, NUMBER] = 0
    return base


@njit(cache=True)
def _give_rows(base, cap, rows, allocator):
    free = ROWS_FREE + _cap(cap)
    rows[base, 1] = allocator[free]
    allocator[free] = base


@njit(cache=True)
def pack_rows(blocks, rows, rests, to_rows, to_rests, allocator):
    """Move the rows of all blocks to other arrays, side by side."""
    top = 0
    for block in range(1, allocator[BLOCKS_TOP]):
        used = blocks[block, USED]
        if used > 0:
            base = blocks[block, ROWS]
            to_rows[top : top + used] = rows[base : base + used]
            to_rests[top : top + used] = rests[base : base + used]
            blocks[block, ROWS] = top
            top += blocks[block, CAP]
    allocator[ROWS_TOP] = top
    allocator[ROWS_FREE:WORDS_FREE] = -1


@njit(cache=True)
def _lines_of(block, lines, blocks):
    """How many lines of bits a block has: that of its free slots and those of its tables."""
    count = 1
    for table in range(blocks[block, TABLES]):
        count += lines[blocks[block, FIRST_CHANNEL + table]]
    return count


@njit(cache=True)
def _step(size):
    """Which free list has room for so many words, and how many it has room for.

    Sizes are whole cache lines, in steps of an eighth at most.
    """
    units = (size + 7) >> 3
    shift = 0
    while units > 16:
        units = (units + 1) >> 1
        shift += 1
    return WORDS_FREE + 8 * shift + units - 1, (units << shift) * 8


@njit(cache=True)
def _take_words(size, words, allocator):
    """Room for some words of bits, all zero."""
    free, size = _step(size)
    base = allocator[free]
    if base >= 0:
        allocator[free] = np.int64(words[base])
    else:
        base = allocator[WORDS_TOP]
        if base + size > words.shape[0]:
            return -1
        allocator[WORDS_TOP] += size
    words[base : base + size] = _ZERO
    return base


@njit(cache=True)
def _give_words(base, size, words, allocator):
    free, _ = _step(size)
    words[base] = np.uint64(allocator[free])
    allocator[free] = base


@njit(cache=True)
def pack_words(lines, blocks, words, to_words, allocator):
    """Move the bits of all blocks to another array, side by side; it may be none, to measure."""
    top = 0
    for block in range(1, allocator[BLOCKS_TOP]):
        cap = blocks[block, CAP]
        if blocks[block, USED] > 0 and _tabled(cap, blocks[block, KIND]):
            size = _width(cap) * _lines_of(block, lines, blocks)
            if to_words.shape[0] > 0:
                base = blocks[block, WORDS]
                to_words[top : top + size] = words[base : base + size]
                blocks[block, WORDS] = top
            _, size = _step(size)
            top += size
    if to_words.shape[0] > 0:
        allocator[WORDS_TOP] = top
        allocator[WORDS_FREE:KEYS] = -1
    return top


@njit(cache=True)
def _same_code(block, channel, blocks):
    """Whether all rows of the block have the same code on a channel, being filed under it."""
    kind = blocks[block, KIND]
    return (kind in (AT_CODE, AT_COUPLE) and blocks[block, WINDOW] == channel) or (
        kind == AT_COUPLE and blocks[block, OTHER] == channel
    )


@njit(cache=True)
def _lacking(block, at, begin, blocks, rows, rests):
    """The first demand of a row, from `begin` on, whose channel could have a table and has none."""
    for i in range(begin, DEMANDS):
        channel = rows[at, CHANNELS + i] - 1
        if channel < 0:
            break
        excluding = (rests[at, FLAGS] >> (3 * i)) & NOT_EQUAL != 0
        known = excluding or _same_code(block, channel, blocks)
        for table in range(blocks[block, TABLES]):
            known = known or blocks[block, FIRST_CHANNEL + table] == channel
        if not known:
            return i
    return DEMANDS


@njit(cache=True)
def _gather(block, blocks, rows, rests):
    """Name the channels of a block's rows as those it has tables of, while there is room."""
    base = blocks[block, ROWS]
    for at in range(base, base + blocks[block, USED]):
        if rows[at, NUMBER] != 0:
            i = _lacking(block, at, 0, blocks, rows, rests)
            while i < DEMANDS:
                if blocks[block, TABLES] == CHANNELS_MAX:
                    return
                blocks[block, FIRST_CHANNEL + blocks[block, TABLES]] = rows[at, CHANNELS + i] - 1
                blocks[block, TABLES] += 1
                i = _lacking(block, at, i + 1, blocks, rows, rests)


@njit(cache=True, inline="always")
def _span(at, channel, breaks, lines, rows, rests):
    """The first and the last cell of a channel in which the row may match."""
    first, last = 0, lines[channel] - 1
    for i in range(DEMANDS):
        demanded = rows[at, CHANNELS + i] - 1
        if demanded < 0:
            break
        if demanded == channel and not (rests[at, FLAGS] >> (3 * i)) & NOT_EQUAL:
            coded = breaks[channel, 0] < 0
            low = _value(coded, _low_key(rows, rests, at, i))
            first = max(first, _cell(breaks, lines, channel, low))
            if coded:
                last = min(last, first)
            else:
                high = _value(coded, _high_key(rows, rests, at, i))
                last = min(last, _cell(breaks, lines, channel, high))
    return first, last


@njit(cache=True)
def _mark(block, slot, breaks, lines, blocks, rows, rests, words):
    """Write the slot's bits into the block's tables."""
    width = _width(blocks[block, CAP])
    start = blocks[block, WORDS]
    word, bit = slot >> 6, _ONE << np.uint64(slot & 63)
    words[start + word] &= ~bit
    at = start + width + word
    for table in range(blocks[block, TABLES]):
        channel = blocks[block, FIRST_CHANNEL + table]
        first, last = _span(blocks[block, ROWS] + slot, channel, breaks, lines, rows, rests)
        for cell in range(lines[channel]):
            if first <= cell <= last:
                words[at] &= ~bit
            else:
                words[at] |= bit
            at += width


@njit(cache=True)
def _mark_all(block, breaks, lines, blocks, rows, rests, words):
    """Write the bits of all slots into the block's tables, each word of them once."""
    base, used = blocks[block, ROWS], blocks[block, USED]
    width = _width(blocks[block, CAP])
    start = blocks[block, WORDS]
    failing = np.empty(CELLS, dtype=np.uint64)
    for word in range(width):
        begin, end = word << 6, min(used, (word + 1) << 6)
        at = start + word
        words[at] = ~_ZERO
        for slot in range(begin, end):
            if rows[base + slot, NUMBER] != 0:
                words[at] &= ~(_ONE << np.uint64(slot & 63))
        at += width
        for table in range(blocks[block, TABLES]):
            channel = blocks[block, FIRST_CHANNEL + table]
            failing[:] = _ZERO
            for slot in range(begin, end):
                if rows[base + slot, NUMBER] != 0:
                    first, last = _span(base + slot, channel, breaks, lines, rows, rests)
                    bit = _ONE << np.uint64(slot & 63)
                    for cell in range(first):
                        failing[cell] |= bit
                    for cell in range(last + 1, lines[channel]):
                        failing[cell] |= bit
            for cell in range(lines[channel]):
                words[at] = failing[cell]
                at += width


@njit(cache=True)
def _new_tables(block, breaks, lines, blocks, rows, rests, words, allocator):
    """Give a block bit tables of its rows' channels, and write them."""
    blocks[block, TABLES] = 0
    _gather(block, blocks, rows, rests)
    size = _width(blocks[block, CAP]) * _lines_of(block, lines, blocks)
    taken = _take_words(size, words, allocator)
    if taken < 0:
        blocks[block, TABLES] = 0
        return FULL_WORDS
    blocks[block, WORDS] = taken
    _mark_all(block, breaks, lines, blocks, rows, rests, words)
    return 0


@njit(cache=True)
def _add_table(block, channel, lines, blocks, words, allocator):
    """Give a block a bit table more; no slot fails by it yet.

    Tables only save comparisons, so without words for another the block goes on as it is.
    """
    width = _width(blocks[block, CAP])
    before = width * _lines_of(block, lines, blocks)
    after = before + width * lines[channel]
    start = blocks[block, WORDS]
    if _step(after)[0] != _step(before)[0]:
        taken = _take_words(after, words, allocator)
        if taken < 0:
            return
        words[taken : taken + before] = words[start : start + before]
        _give_words(start, before, words, allocator)
        blocks[block, WORDS] = taken
    else:
        words[start + before : start + after] = _ZERO
    blocks[block, FIRST_CHANNEL + blocks[block, TABLES]] = channel
    blocks[block, TABLES] += 1


@njit(cache=True)
def _widen(block, cap, marking, breaks, lines, blocks, rows, rests, words, allocator):
    """Give a full block more slots; those it has keep their numbers.

    Without `marking` its bits are left to be written.
    """
    old_cap, base, kind = blocks[block, CAP], blocks[block, ROWS], blocks[block, KIND]
    marked = marking and _tabled(old_cap, kind)
    count = _lines_of(block, lines, blocks)
    old_width, width, start = _width(old_cap), _width(cap), np.int64(blocks[block, WORDS])
    taken = np.int64(0)
    if marked and old_width != width:
        taken = _take_words(width * count, words, allocator)
        if taken < 0:
            return FULL_WORDS
        for line in range(count):
            begin, to = start + line * old_width, taken + line * width
            words[to : to + old_width] = words[begin : begin + old_width]
        words[taken + old_width : taken + width] = ~_ZERO
    moved = _take_rows(cap, rows, allocator)
    if moved < 0:
        if marked and old_width != width:
            _give_words(taken, width * count, words, allocator)
        return FULL_ROWS
    rows[moved : moved + old_cap] = rows[base : base + old_cap]
    rests[moved : moved + old_cap] = rests[base : base + old_cap]
    blocks[block, ROWS] = moved
    blocks[block, CAP] = cap
    if marked and old_width != width:
        _give_words(start, old_width * count, words, allocator)
        blocks[block, WORDS] = taken
    if marking and not marked and _tabled(cap, kind):
        full = _new_tables(block, breaks, lines, blocks, rows, rests, words, allocator)
        if full < 0:
            blocks[block, ROWS], blocks[block, CAP] = base, old_cap
            _give_rows(moved, cap, rows, allocator)
            return full
    _give_rows(base, old_cap, rows, allocator)
    return 0


@njit(cache=True)
def _head(kind, place, window, windows, heads, couples, allocator):
    if kind == AT_ROOT:
        return allocator[ROOT]
    if kind in (AT_COUPLE, AT_NARROW):
        return couples[place, 1]
    if kind == AT_CODE:
        return np.int64(heads[place])
    return np.int64(windows[place, window])


@njit(cache=True)
def _set_head(block, kind, place, window, windows, heads, couples, allocator):
    if kind == AT_ROOT:
        allocator[ROOT] = block
    elif kind in (AT_COUPLE, AT_NARROW):
        couples[place, 1] = block
    elif kind == AT_CODE:
        heads[place] = block
    else:
        windows[place, window] = block


@njit(cache=True)
def _couple_key(first, second):
    return (first + 1) << 32 | second


@njit(cache=True)
def _narrow_key(channel, width, step):
    """A negative number, unlike keys of couples. If two are equal, rows meet more publications."""
    mixed = ((channel << 6 | width) * 0x1E3779B97F4A7C15) ^ (step * 0x5851F42D4C957F2D)
    return -1 - (mixed & 0x3FFFFFFFFFFFFFFF)


@njit(cache=True)
def _narrow(low, high):
    """The least width in whose steps the range begins in one and ends there or in the next.

    And that step; a negative width if there is none.
    """
    for width in range(WIDTHS_COUNT):
        if _WIDTHS[width] >= high - low:
            step = np.floor(low / _WIDTHS[width])
            if abs(step) < _FAR and np.floor(high / _WIDTHS[width]) - step <= 1:
                return width, int(step)
    return -1, 0


@njit(cache=True)
def _line(key, couples):
    """Where the table of couples and narrow ranges has the key, or would have it.

    A line is a key and the first block. Lines are given back when the table grows.
    """
    mask = couples.shape[0] - 1
    at = ((key * 0x5851F42D4C957F2D) >> 24) & mask
    while couples[at, 0] != 0 and couples[at, 0] != key:
        at = (at + 1) & mask
    return at


@njit(cache=True)
def move_lines(couples, larger, blocks):
    """Write the lines in use into an empty table."""
    for i in range(couples.shape[0]):
        if couples[i, 1] != 0:
            at = _line(couples[i, 0], larger)
            larger[at, 0], larger[at, 1] = couples[i, 0], couples[i, 1]
            block = couples[i, 1]
            while block > 0:
                blocks[block, PLACE] = at
                block = blocks[block, NEXT]


@njit(cache=True)
def _forget(breaks, allocator):
    """Have all publications count as no more than some, so that later ones outweigh them."""
    share = 0.5 * ASKED_MAX / allocator[ASKED]
    for channel in range(breaks.shape[0]):
        breaks[channel, MET] *= share
    allocator[ASKED] = ASKED_MAX // 2


@njit(cache=True)
def _file_under(row, breaks, lines, couples, allocator):
    """Where to file the row: under the demand that the smallest share of values meets, or two.

    In a large table that share counts among the publications that have the channel.

    Puts the row's demands in order on the way. The kind is negative if there is no line left.
    """
    windowed = allocator[WINDOWED]
    best, kind, place, window, chosen = 1.01 if allocator[MANY] else 0.6, AT_ROOT, 0, 0, -1
    shares = np.full(DEMANDS, 2.0)
    coded = key = wide = second = 0
    for i in range(DEMANDS):
        tagged = int(row[CHANNEL + STRIDE * i])
        if tagged < 0:
            break
        channel = tagged >> 3
        shares[i] = 1.0
        if tagged & NOT_EQUAL:
            continue
        low, high = row[LOW + STRIDE * i], row[HIGH + STRIDE * i]
        having = 1.0
        if windowed and allocator[ASKED] >= ASKED_MIN:
            having = min(1.0, (breaks[channel, MET] + 1.0) / allocator[ASKED])
        if breaks[channel, 0] >= 0 and having < best:
            best, kind, place, window, chosen = having, AT_WINDOW, channel, WHOLE, i
        if breaks[channel, 0] < 0:
            coded += 1
            shares[i] = having / -breaks[channel, 0]
            if shares[i] < best:
                best, kind, place, window, chosen = shares[i], AT_CODE, int(low), channel, i
        elif breaks[channel, 0] > 0:
            first = _cell(breaks, lines, channel, low) - 1
            last = _cell(breaks, lines, channel, high) - 1
            shares[i] = having * (last - first + 1) / (breaks[channel, 0] + 1)
            for size in range(6 * windowed):
                here = first >> _HALVES[size]
                if last < (here << _HALVES[size]) + _SIZES[size]:
                    share = having * _SIZES[size] / (breaks[channel, 0] + 1)
                    if share < best:
                        best, kind, place, chosen = share, AT_WINDOW, channel, i
                        window = _OFFSETS[size] + here
                    break
            share = having * 0.25 / (breaks[channel, 0] + 1)
            if windowed and first == last and share < best and high - low < _FAR:
                width, step = _narrow(low, high)
                if width >= 0:
                    best, kind, place, window, chosen = share, AT_NARROW, channel, 0, i
                    key, wide = _narrow_key(channel, width, step), width
    other = -1
    for k in range(allocator[COUPLED] if coded > 1 else 0):
        i, j = -1, -1
        for demand in range(DEMANDS):
            tagged = int(row[CHANNEL + STRIDE * demand])
            if tagged < 0:
                break
            if not tagged & NOT_EQUAL:
                if tagged >> 3 == allocator[FIRST_COUPLE + 2 * k]:
                    i = demand
                elif tagged >> 3 == allocator[FIRST_COUPLE + 2 * k + 1]:
                    j = demand
        if i >= 0 and j >= 0 and shares[i] * shares[j] < best:
            best, kind, chosen, other = shares[i] * shares[j], AT_COUPLE, i, j
            key = _couple_key(int(row[LOW + STRIDE * i]), int(row[LOW + STRIDE * j]))
    if kind in (AT_COUPLE, AT_NARROW):
        at = _line(key, couples)
        if couples[at, 0] == 0:
            if allocator[KEYS] >= allocator[KEYS_MAX]:
                return FULL_KEYS, 0, 0, 0
            allocator[KEYS] += 1
            couples[at, 0] = key
        if kind == AT_NARROW:
            used = int(breaks[place, WIDTHS_USED])
            breaks[place, WIDTHS_USED] = float(used | 1 << wide)
        place = at
    if kind == AT_COUPLE:
        window = int(row[CHANNEL + STRIDE * chosen]) >> 3
        second = int(row[CHANNEL + STRIDE * other]) >> 3
        shares[other] = 1.5
    if chosen >= 0:
        shares[chosen] = 1.5
    for i in range(1, DEMANDS):
        j = i
        while j > 0 and shares[j] < shares[j - 1]:
            shares[j], shares[j - 1] = shares[j - 1], shares[j]
            for k in range(LOW + STRIDE * j, LOW + STRIDE * (j + 1)):
                row[k], row[k - STRIDE] = row[k - STRIDE], row[k]
            j -= 1
    return kind, place, window, second


@njit(cache=True)
def insert(
    row, marking, breaks, lines, windows, heads, couples, blocks, rows, rests, words, allocator
):  # fmt: skip
    """File a row; its handle is block times 4,096 plus slot. Negative: a pool must grow first.

    Without `marking` its bits are left to be written.
    """
    if allocator[ASKED] > ASKED_MAX:
        _forget(breaks, allocator)
    kind, place, window, second = _file_under(row, breaks, lines, couples, allocator)
    if kind < 0:
        return kind
    head = _head(kind, place, window, windows, heads, couples, allocator)
    expected = max(1, -head)
    head = max(0, head)
    block = head
    while block > 0 and blocks[block, LIVE] == blocks[block, CAP]:
        cap = blocks[block, CAP]
        if cap < SLOTS:
            cap = _CAPS[_cap(cap + 1)]
            full = _widen(
                block, cap, marking, breaks, lines, blocks, rows, rests, words, allocator
            )  # fmt: skip
            if full < 0:
                return full
            break
        block = np.int64(blocks[block, NEXT])
    if block == 0:
        fresh = allocator[BLOCKS_FREE]
        if fresh == 0:
            if allocator[BLOCKS_TOP] == blocks.shape[0]:
                return FULL_BLOCKS
            fresh = allocator[BLOCKS_TOP]
        cap = _CAPS[_cap(expected if head == 0 else 256)]
        base = _take_rows(cap, rows, allocator)
        if base < 0:
            return FULL_ROWS
        start = np.int64(0)
        alike = marking and _tabled(cap, kind) and head != 0
        if marking and _tabled(cap, kind):
            count = 1 if head == 0 else _lines_of(head, lines, blocks)
            start = _take_words(_width(cap) * count, words, allocator)
            if start < 0:
                _give_rows(base, cap, rows, allocator)
                return FULL_WORDS
            words[start : start + _width(cap)] = ~_ZERO
        if allocator[BLOCKS_FREE] != 0:
            allocator[BLOCKS_FREE] = blocks[fresh, NEXT]
        else:
            allocator[BLOCKS_TOP] += 1
        block = fresh
        blocks[block, :] = 0
        if alike:  # Its rows will demand what those of the others do.
            blocks[block, :] = blocks[head]
        blocks[block, CAP] = cap
        blocks[block, USED] = 0
        blocks[block, LIVE] = 0
        blocks[block, ROWS] = base
        blocks[block, WORDS] = start
        blocks[block, NEXT] = head
        blocks[block, PREVIOUS] = 0
        blocks[block, KIND] = kind
        blocks[block, PLACE] = place
        blocks[block, WINDOW] = window
        blocks[block, OTHER] = second
        if head != 0:
            blocks[head, PREVIOUS] = block
        _set_head(block, kind, place, window, windows, heads, couples, allocator)
    cap, base = blocks[block, CAP], blocks[block, ROWS]
    slot = np.int64(0)
    if blocks[block, USED] < cap:
        slot = np.int64(blocks[block, USED])
        blocks[block, USED] += 1
    elif not _tabled(cap, kind):
        while rows[base + slot, NUMBER] != 0:
            slot += 1
    else:
        word = blocks[block, WORDS]
        while words[word] == _ZERO:
            word += 1
        slot = (word - blocks[block, WORDS]) * 64 + _lowest(words[word])
    _keep(row, base + slot, breaks, rows, rests)
    blocks[block, LIVE] += 1
    if marking and _tabled(cap, kind):
        i = _lacking(block, base + slot, 0, blocks, rows, rests)
        while i < DEMANDS and blocks[block, TABLES] < CHANNELS_MAX:
            channel = rows[base + slot, CHANNELS + i] - 1
            _add_table(block, channel, lines, blocks, words, allocator)
            i = _lacking(block, base + slot, i + 1, blocks, rows, rests)
        _mark(block, slot, breaks, lines, blocks, rows, rests, words)
    return block * SLOTS + slot


@njit(cache=True)
def remove(handle, lines, windows, heads, couples, blocks, rows, words, allocator):
    """Free the row's slot, and its block when it was the last."""
    block, slot = handle // SLOTS, handle % SLOTS
    cap, base = blocks[block, CAP], blocks[block, ROWS]
    rows[base + slot, NUMBER] = 0
    blocks[block, LIVE] -= 1
    tabled = _tabled(cap, blocks[block, KIND])
    if blocks[block, LIVE] > 0:
        if tabled:
            words[blocks[block, WORDS] + (slot >> 6)] |= _ONE << np.uint64(slot & 63)
        return
    _give_rows(base, cap, rows, allocator)
    if tabled:
        size = _width(cap) * _lines_of(block, lines, blocks)
        _give_words(blocks[block, WORDS], size, words, allocator)
    following, previous = blocks[block, NEXT], blocks[block, PREVIOUS]
    if following != 0:
        blocks[following, PREVIOUS] = previous
    if previous != 0:
        blocks[previous, NEXT] = following
    else:
        _set_head(
            following, blocks[block, KIND], blocks[block, PLACE], blocks[block, WINDOW],
            windows, heads, couples, allocator,
        )  # fmt: skip
    blocks[block, NEXT] = allocator[BLOCKS_FREE]
    blocks[block, LIVE] = 0
    blocks[block, USED] = 0
    allocator[BLOCKS_FREE] = block


@njit(cache=True)
def expect(live, begin, breaks, lines, windows, heads, couples, allocator):
    """Leave in each empty place minus the number of rows to come, so that blocks fit at once.

    Returns where it stopped for want of lines.
    """
    for i in range(begin, live.shape[0]):
        kind, place, window, _ = _file_under(live[i], breaks, lines, couples, allocator)
        if kind < 0:
            return i
        coming = _head(kind, place, window, windows, heads, couples, allocator) - 1
        _set_head(coming, kind, place, window, windows, heads, couples, allocator)
    return live.shape[0]


@njit(cache=True)
def refile(
    live, begin, homes, breaks, lines, windows, heads, couples, blocks, rows, rests, words,
    allocator,
):  # fmt: skip
    """Insert the rows of `live` from `begin` on; where it stopped, and why (0: all done).

    When all are in their blocks the bits are written, block by block.
    """
    count = live.shape[0]
    for i in range(begin, count):
        handle = insert(
            live[i], False, breaks, lines, windows, heads, couples, blocks, rows, rests, words,
            allocator,
        )  # fmt: skip
        if handle < 0:
            return i, handle
        homes[int(abs(live[i, 0])) - 1] = handle
    for block in range(1 + max(0, begin - count), allocator[BLOCKS_TOP]):
        if _tabled(blocks[block, CAP], blocks[block, KIND]):
            full = _new_tables(block, breaks, lines, blocks, rows, rests, words, allocator)
            if full < 0:
                return count + block - 1, full
    return count + allocator[BLOCKS_TOP], 0
