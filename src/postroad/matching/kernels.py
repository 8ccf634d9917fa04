"""The compiled table of rows: access lists, bit tables, and the exact check of what they leave.

A *row* is one conjunction as at most five demands on *channels*. A channel is one aspect of one
attribute as a float: its number, the code of its value, the code of its prefix of some length,
and so on; `compiled.py` makes them. A demand is `low <= value <= high`.

A row is filed under one demand, the one that fewest publications are likely to meet: under the
code it demands, or under a window of its channel's cells that holds its range, or at the root.
Where many rows demand codes of the same two channels, a *couple*, a row is filed under both codes.
A *narrow* range, within one cell, is filed under the step in which it begins, of a width no less
than its own; a publication looks in the step of its value and the one before.
(All but single codes pay only in large tables: a block costs as much time as the bits of some
hundred rows. Where there are *many* channels, more than have bit tables, a row is at least filed
under one that it demands, so that publications without that channel never see it.)
The rows filed in one place lie in *blocks* of up to 4,096 slots, chained. All but small blocks
have a bit table per channel and cell: bit s is set when slot s fails for values in that cell.
A publication ORs the tables of its own cells; the slots whose bits stay clear are then compared
exactly. Bits only save comparisons: cells may be coarse and channels left out.

Each row is 16 floats: its number plus one (negative when Python must check it too, 0 when the
slot is free), then per demand low, high and channel with flags. Demands come with the hardest to
meet first and those it is filed under last. With many rows the time goes into waiting for memory,
so a row has a *brief* that is compared first, of one cache line: its number, its bounds as floats
of 32 bits, and its channels plus one. Values between the bounds surely meet them, and only those
equal to one are compared with the row itself. (Bounds of codes are a half away on either side. The
number is 0 where the brief cannot say all: for a row that Python must check or that excludes a
code.) Briefs have two views, `briefs` as floats and `tags` as integers. Blocks, bits and briefs are
asked for ahead of their use.

Arrays are passed one by one: in a record they take Python longer to pass (docs/decisions/numba.md).
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from postroad.jit import njit

DEMANDS = 5
ROW = 16
BRIEF = 16
NUMBER, LOWS, HIGHS, CHANNELS = 0, 1, 1 + DEMANDS, 1 + 2 * DEMANDS  # Columns of a brief.
CODE_MAX = 1 << 22  # A float of 32 bits tells smaller codes from those a half beside them.
LOW, HIGH, CHANNEL, STRIDE = 1, 2, 3, 3  # The columns of the first demand; then every third.
LOW_OPEN, HIGH_OPEN, NOT_EQUAL = 1, 2, 4  # Flags in the lowest bits of a row's channel.

CELLS = 64  # Cell 0 is for publications without the channel.
SLOTS = 4096
CHANNELS_MAX = 12  # A block has bit tables for at most so many channels.

# Columns of a block.
CAP, USED, LIVE, ROWS, WORDS, TABLES, TABLES_CAP, NEXT, PREVIOUS, KIND, PLACE, WINDOW = range(12)
FIRST_CHANNEL = 12
BLOCK = FIRST_CHANNEL + CHANNELS_MAX
AT_ROOT, AT_CODE, AT_COUPLE, AT_NARROW, AT_WINDOW = range(5)
SECOND = 1 << 20  # Where rows are filed under two codes, WINDOW holds both channels.
VISIT = 3 + CHANNELS_MAX  # A block, how many places of bits to look at, and these.
AT_ONCE = 6  # So many lines of bits are read side by side.
VISITS = 128  # So many blocks are fetched ahead at most.

# Windows of 1, 2, 4, 8, 16 and 32 cells, each half a width after the one before, and all cells.
WINDOWS = 193
WHOLE = 192
_OFFSETS = np.array([0, 64, 128, 160, 176, 184])
_HALVES = np.array([0, 0, 1, 2, 3, 4])  # As powers of two.
_SIZES = np.array([1, 2, 4, 8, 16, 32])

# Narrow ranges: the last column of the breakpoints has a bit for each width in use.
WIDTHS_USED = CELLS - 1
WIDTHS_COUNT = 52
_WIDTHS = 2.0 ** (2.0 * np.arange(WIDTHS_COUNT) - 52.0)
_FAR = 2.0**62

# Columns of the allocator: the ends of the pools, then heads of free lists.
ROWS_TOP, WORDS_TOP, BLOCKS_TOP, BLOCKS_FREE, ROOT, WINDOWED, MANY = range(7)
ROWS_FREE = 8  # One list per capacity 2^i, i up to 12.
WORDS_FREE = 24  # One list per capacity 2^i (i from 6 to 12) and number of tables (3, 6, 9, 12).
KEYS, KEYS_MAX, COUPLED, FIRST_COUPLE = 52, 53, 54, 55  # See `_line`; then the couples.
COUPLES_MAX = 32
ALLOCATOR = FIRST_COUPLE + 2 * COUPLES_MAX

INSERTED_MAX = 24
_AHEAD = 16  # So many candidates are fetched ahead.

FULL_ROWS, FULL_WORDS, FULL_BLOCKS, FULL_KEYS = -1, -2, -3, -4

_DEBRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT = np.zeros(64, dtype=np.int64)
for _i in range(64):
    _BIT[(0x03F79D71B4CB0A89 << _i & 0xFFFFFFFFFFFFFFFF) >> 58] = _i
_ONE = np.uint64(1)
_SHIFT = np.uint64(58)
_ZERO = np.uint64(0)
_ALL = ~_ZERO


@njit(cache=True, inline="always")
def _write_brief(row, at, breaks, briefs, tags):
    """Write a row in brief."""
    plain = row[0] > 0
    for i in range(DEMANDS):
        tagged = int(row[CHANNEL + STRIDE * i])
        low, high = -1.0, 1.0
        if tagged >= 0:
            low, high = row[LOW + STRIDE * i], row[HIGH + STRIDE * i]
            plain &= tagged & NOT_EQUAL == 0
            if breaks[tagged >> 3, 0] < 0:
                plain &= low < CODE_MAX
                low, high = low - 0.5, high + 0.5
        briefs[at, LOWS + i] = low
        briefs[at, HIGHS + i] = high
        tags[at, CHANNELS + i] = (tagged >> 3) + 1
    tags[at, NUMBER] = int(row[0]) if plain else 0


@njit(cache=True, inline="always")
def _glance(briefs, tags, row, values):
    """Whether the values surely meet every demand of a row in brief, and whether they may."""
    sure, maybe = True, True
    for i in range(DEMANDS):
        value = values[tags[row, CHANNELS + i]]
        low, high = briefs[row, LOWS + i], briefs[row, HIGHS + i]
        sure &= (low < value) & (value < high)
        maybe &= (low <= value) & (value <= high)
    return sure, maybe


@njit(cache=True)
def _tabled(cap, kind):
    """Whether a block has bit tables. Many codes have few rows each: tables would outweigh them."""
    return cap >= (64 if kind in (AT_CODE, AT_NARROW) else 16)


@njit(cache=True)
def _width(cap):
    return (cap + 63) >> 6


@njit(cache=True, inline="always")
def _cell(breaks, channel, value):
    """The cell of a value: codes by remainder, other channels by their breakpoints."""
    count = breaks[channel, 0]
    if count < 0:
        return 1 + int(value) % (CELLS - 1) if value >= 0 else 0
    below, above = 1, int(count) + 1
    while below < above:
        middle = (below + above) >> 1
        if breaks[channel, middle] <= value:
            below = middle + 1
        else:
            above = middle
    return below


@njit(cache=True, inline="always")
def _accepts(rows, row, point):
    """Whether the point meets every demand of the row. A missing value is NaN and meets none.

    Looks at all demands, because a processor that guesses wrong where to stop loses more time.
    """
    accepted = True
    for i in range(DEMANDS):
        tagged = int(rows[row, CHANNEL + STRIDE * i])
        low, high = rows[row, LOW + STRIDE * i], rows[row, HIGH + STRIDE * i]
        least, most = point[tagged >> 3, 0], point[tagged >> 3, 1]
        unequal = tagged & NOT_EQUAL != 0
        within = (low <= most) & (least <= high)
        accepted &= (tagged < 0) | (unequal & (least != low)) | (within & (not unequal))
    return accepted


@njit(cache=True, inline="always")
def _lowest(word):
    """The number of the lowest bit that is set."""
    return _BIT[((word & (~word + _ONE)) * _DEBRUIJN) >> _SHIFT]


@intrinsic
def _fetch(typing_context, array, place):
    """Ask the processor to bring the cache line at a place of an array into its cache."""

    def codegen(context, builder, signature, arguments):
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        strides = cgutils.unpack_tuple(builder, view.strides)
        start = builder.bitcast(view.data, ir.IntType(8).as_pointer())
        begin = builder.gep(start, [builder.mul(arguments[1], strides[0])])
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [begin.type, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(prefetch, [begin, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@njit(cache=True)
def _list(visits, visited, blocks, words, candidates, count):
    """Add the rows that the bits of the blocks visited leave over to `candidates`."""
    for i in range(visited):
        if i + 1 < visited and visits[i + 1, 1] > 0:
            ahead = (blocks[visits[i + 1, 0], USED] + 63) >> 6
            for table in range(2, 2 + visits[i + 1, 1]):
                for word in range(16, ahead, 8):
                    _fetch(words, visits[i + 1, table] + word)
        block, tables = visits[i, 0], visits[i, 1]
        used, base = blocks[block, USED], blocks[block, ROWS]
        if tables == 0:
            for row in range(base, base + used):
                candidates[count] = row
                count += 1
            continue
        for table in range(tables, AT_ONCE):
            visits[i, 2 + table] = visits[i, 2]
        a, b, c = np.uint64(visits[i, 2]), np.uint64(visits[i, 3]), np.uint64(visits[i, 4])
        d, e, f = np.uint64(visits[i, 5]), np.uint64(visits[i, 6]), np.uint64(visits[i, 7])
        last = (used - 1) >> 6
        in_last = _ALL >> np.uint64(63 - ((used - 1) & 63))
        for word in range(last + 1):
            w = np.uint64(word)
            failing = words[a + w] | words[b + w] | words[c + w]
            failing |= words[d + w] | words[e + w] | words[f + w]
            for table in range(2 + AT_ONCE, 2 + tables):
                failing |= words[np.uint64(visits[i, table]) + w]
            left = ~failing & (in_last if word == last else _ALL)
            while left != _ZERO:
                candidates[count] = base + (word << 6) + _lowest(left)
                left &= left - _ONE
                count += 1
    return count


@njit(cache=True)
def _candidates(firsts, chains, point, blocks, words, candidates):
    """List the rows of some chains of blocks that the bits leave over: how many."""
    visits = np.empty((VISITS, VISIT), dtype=np.int64)
    count = listed = 0
    for chain in range(chains):
        block = np.int64(firsts[chain])
        while block > 0:
            if count == VISITS:
                listed = _list(visits, count, blocks, words, candidates, listed)
                count = 0
            visits[count, 0] = block
            tables = 0
            if _tabled(blocks[block, CAP], blocks[block, KIND]):
                width = _width(blocks[block, CAP])
                long = blocks[block, USED] > 512
                dead = blocks[block, WORDS]
                if blocks[block, LIVE] < blocks[block, USED]:
                    visits[count, 2] = dead
                    tables = 1
                    _fetch(words, dead)
                    if long:
                        _fetch(words, dead + 8)
                for table in range(blocks[block, TABLES]):
                    cell = int(point[blocks[block, FIRST_CHANNEL + table], 2])
                    if cell >= 0:
                        at = dead + (1 + table * CELLS + cell) * width
                        visits[count, 2 + tables] = at
                        tables += 1
                        _fetch(words, at)
                        if long:
                            _fetch(words, at + 8)
            visits[count, 1] = tables
            count += 1
            block = blocks[block, NEXT]
    return _list(visits, count, blocks, words, candidates, listed)


@njit(cache=True, inline="always")
def _add_first(block, firsts, chains, blocks):
    """Add the first block of a place, if there is one."""
    firsts[chains] = block
    _fetch(blocks, block)
    return chains + (block > 0)


@njit(cache=True)
def _chains(pairs, pairs_count, point, breaks, windows, heads, couples, blocks, allocator, firsts):
    """Find the places whose rows the publication may meet: how many first blocks there are."""
    chains = _add_first(allocator[ROOT], firsts, 0, blocks)
    for i in range(pairs_count):
        channel, value = int(pairs[i, 0]), pairs[i, 1]
        cell = int(point[channel, 2])
        if breaks[channel, 0] < 0:
            if value >= 0:
                chains = _add_first(heads[int(value)], firsts, chains, blocks)
            continue
        if cell < 0:
            if value != point[channel, 1]:
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
        first, second = point[allocator[k], 0], point[allocator[k + 1], 0]
        if first >= 0 and second >= 0:
            at = _line(_couple_key(int(first), int(second)), couples)
            chains = _add_first(couples[at, 1], firsts, chains, blocks)
    return chains


@njit(cache=True)
def match(
    pairs, pairs_count, point, values, breaks, windows, heads, couples, blocks, rows, briefs, tags,
    words, allocator, candidates, out, spare,
):  # fmt: skip
    """The numbers of the rows that accept the publication: how many, and how many to check.

    `pairs` holds (channel, value). A channel given twice has a value between the two floats, an
    integer that no float equals; then every row found is left to be checked. The numbers found
    are in order, those to check are not.
    """
    between = False
    for i in range(pairs_count):
        channel, value = int(pairs[i, 0]), pairs[i, 1]
        if point[channel, 1] == point[channel, 1]:
            point[channel, 1] = value
            point[channel, 2] = -1
            between = True
        else:
            point[channel, 0] = value
            point[channel, 1] = value
            point[channel, 2] = _cell(breaks, channel, value)
            values[channel + 1] = value
    firsts = np.empty(pairs_count * (WINDOWS + 2 * WIDTHS_COUNT) + COUPLES_MAX + 2, dtype=np.int32)
    chains = _chains(
        pairs, pairs_count, point, breaks, windows, heads, couples, blocks, allocator, firsts
    )  # fmt: skip
    count = _candidates(firsts, chains, point, blocks, words, candidates)
    matches, checks = 0, 0
    for i in range(min(_AHEAD, count)):
        _fetch(tags, candidates[i])
    for i in range(count):
        if i + _AHEAD < count:
            _fetch(tags, candidates[i + _AHEAD])
        row = candidates[i]
        number = tags[row, NUMBER]
        if number > 0 and not between:
            sure, maybe = _glance(briefs, tags, row, values)
            out[matches] = number - 1
            matches += sure
            if sure or not maybe:
                continue
        name = rows[row, 0]
        if name != 0 and _accepts(rows, row, point):
            if name > 0 and not between:
                out[matches] = int(name) - 1
                matches += 1
            else:
                checks += 1
                out[out.shape[0] - checks] = int(abs(name)) - 1
    for i in range(pairs_count):
        channel = int(pairs[i, 0])
        point[channel, 0] = np.nan
        point[channel, 1] = np.nan
        point[channel, 2] = 0
        values[channel + 1] = np.nan
    _sort(out, matches, spare)
    return matches, checks


@njit(cache=True)
def _sort(out, count, spare):
    """Put the first numbers of `out` in order: a few by insertion, many digit by digit.

    Counts, sums and moves without a question asked, which a processor could guess wrong.
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
    most = 0
    for i in range(count):
        most = max(most, out[i])
    bits = _log2(most + 1)
    passes = 2 if bits <= 22 else 4  # Of an even number, the last is back in `out`.
    digit = (bits + passes - 1) // passes
    mask = (1 << digit) - 1
    counts = np.empty(1 << digit, dtype=np.int32)
    here, there = out, spare
    for number in range(passes):
        shift = number * digit
        counts[:] = 0
        for i in range(count):
            counts[(here[i] >> shift) & mask] += 1
        total = 0
        for value in range(mask + 1):
            counts[value], total = total, total + counts[value]
        for i in range(count):
            value = (here[i] >> shift) & mask
            there[counts[value]] = here[i]
            counts[value] += 1
        here, there = there, here


@njit(cache=True)
def _log2(value):
    power = 0
    while (1 << power) < value:
        power += 1
    return power


@njit(cache=True)
def _take_rows(cap, rows, tags, allocator):
    free = ROWS_FREE + _log2(cap)
    base = allocator[free]
    if base >= 0:
        allocator[free] = int(rows[base, 1])
    else:
        base = allocator[ROWS_TOP]
        if base + cap > rows.shape[0]:
            return -1
        allocator[ROWS_TOP] += cap
    for slot in range(base, base + cap):
        rows[slot, 0] = 0.0
        tags[slot, NUMBER] = 0
    return base


@njit(cache=True)
def _give_rows(base, cap, rows, allocator):
    free = ROWS_FREE + _log2(cap)
    rows[base, 1] = allocator[free]
    allocator[free] = base


@njit(cache=True)
def pack_rows(blocks, rows, briefs, to_rows, to_briefs, allocator):
    """Move the rows of all blocks to other arrays, which hold zeros, side by side."""
    top = 0
    for block in range(1, allocator[BLOCKS_TOP]):
        used = blocks[block, USED]
        if used > 0:
            base = blocks[block, ROWS]
            to_rows[top : top + used] = rows[base : base + used]
            to_briefs[top : top + used] = briefs[base : base + used]
            blocks[block, ROWS] = top
            top += blocks[block, CAP]
    allocator[ROWS_TOP] = top
    allocator[ROWS_FREE:WORDS_FREE] = -1


@njit(cache=True)
def _take_words(cap, tables, words, allocator):
    """Words for the dead bits and `tables` bit tables of a block; every slot begins as dead."""
    free = WORDS_FREE + max(0, _log2(cap) - 6) * 4 + tables // 3 - 1
    width = _width(cap)
    size = (width * (1 + tables * CELLS) + 7) & ~7  # Whole cache lines.
    base = allocator[free]
    if base >= 0:
        allocator[free] = np.int64(words[base])
    else:
        base = allocator[WORDS_TOP]
        if base + size > words.shape[0]:
            return -1
        allocator[WORDS_TOP] += size
    for w in range(base, base + width):
        words[w] = ~_ZERO
    for w in range(base + width, base + size):
        words[w] = _ZERO
    return base


@njit(cache=True)
def _give_words(base, cap, tables, words, allocator):
    free = WORDS_FREE + max(0, _log2(cap) - 6) * 4 + tables // 3 - 1
    words[base] = np.uint64(allocator[free])
    allocator[free] = base


@njit(cache=True)
def _same_code(block, channel, blocks):
    """Whether all rows of the block have the same code on a channel, being filed under it."""
    kind, window = blocks[block, KIND], blocks[block, WINDOW]
    return (kind == AT_CODE and window == channel) or (
        kind == AT_COUPLE and (window // SECOND == channel or window % SECOND == channel)
    )


@njit(cache=True)
def _add_channels(block, row, blocks, rows):
    """Give the row's channels tables of the block while there is room; False if there was not."""
    complete = True
    for i in range(DEMANDS):
        tagged = int(rows[row, CHANNEL + STRIDE * i])
        if tagged < 0:
            break
        channel = tagged >> 3
        known = bool(tagged & NOT_EQUAL) or _same_code(block, channel, blocks)
        for table in range(blocks[block, TABLES]):
            known = known or blocks[block, FIRST_CHANNEL + table] == channel
        if not known:
            if blocks[block, TABLES] < blocks[block, TABLES_CAP]:
                blocks[block, FIRST_CHANNEL + blocks[block, TABLES]] = channel
                blocks[block, TABLES] += 1
            else:
                complete = False
    return complete


@njit(cache=True, inline="always")
def _span(row, channel, breaks, rows):
    """The first and the last cell of a channel in which the row may match."""
    first, last = 0, CELLS - 1
    for i in range(DEMANDS):
        tagged = int(rows[row, CHANNEL + STRIDE * i])
        if tagged < 0:
            break
        if tagged >> 3 == channel and not tagged & NOT_EQUAL:
            first = max(first, _cell(breaks, channel, rows[row, LOW + STRIDE * i]))
            last = min(last, _cell(breaks, channel, rows[row, HIGH + STRIDE * i]))
    return first, last


@njit(cache=True)
def _mark(block, slot, breaks, blocks, rows, words):
    """Write the slot's bits into the block's tables; False if a channel of the row has none."""
    row = blocks[block, ROWS] + slot
    complete = _add_channels(block, row, blocks, rows)
    width = _width(blocks[block, CAP])
    start = blocks[block, WORDS]
    word, bit = slot >> 6, _ONE << np.uint64(slot & 63)
    words[start + word] &= ~bit
    start += width
    for table in range(blocks[block, TABLES]):
        first, last = _span(row, blocks[block, FIRST_CHANNEL + table], breaks, rows)
        at = start + table * CELLS * width + word
        for cell in range(CELLS):
            if first <= cell <= last:
                words[at + cell * width] &= ~bit
            else:
                words[at + cell * width] |= bit
    return complete


@njit(cache=True)
def _mark_all(block, breaks, blocks, rows, words):
    """Write the bits of all slots into the block's tables, each word of them once."""
    base, used = blocks[block, ROWS], blocks[block, USED]
    width = _width(blocks[block, CAP])
    start = blocks[block, WORDS]
    for row in range(base, base + used):
        if rows[row, 0] != 0:
            _add_channels(block, row, blocks, rows)
    failing = np.empty(CELLS, dtype=np.uint64)
    for word in range(width):
        begin, end = word << 6, min(used, (word + 1) << 6)
        words[start + word] = ~_ZERO
        for slot in range(begin, end):
            if rows[base + slot, 0] != 0:
                words[start + word] &= ~(_ONE << np.uint64(slot & 63))
        for table in range(blocks[block, TABLES]):
            channel = blocks[block, FIRST_CHANNEL + table]
            failing[:] = _ZERO
            for slot in range(begin, end):
                if rows[base + slot, 0] != 0:
                    first, last = _span(base + slot, channel, breaks, rows)
                    bit = _ONE << np.uint64(slot & 63)
                    for cell in range(first):
                        failing[cell] |= bit
                    for cell in range(last + 1, CELLS):
                        failing[cell] |= bit
            at = start + (1 + table * CELLS) * width + word
            for cell in range(CELLS):
                words[at + cell * width] = failing[cell]


@njit(cache=True)
def _tables_for(channels):
    return min(CHANNELS_MAX, max(3, (channels + 2) // 3 * 3))


@njit(cache=True)
def _channels(block, blocks, rows):
    """How many distinct channels the block's rows demand, counted up to the most it can have."""
    seen = np.empty(CHANNELS_MAX, dtype=np.int64)
    count = 0
    base = blocks[block, ROWS]
    for slot in range(blocks[block, USED]):
        if rows[base + slot, 0] == 0:
            continue
        for i in range(DEMANDS):
            tagged = int(rows[base + slot, CHANNEL + STRIDE * i])
            if tagged < 0:
                break
            known = bool(tagged & NOT_EQUAL) or _same_code(block, tagged >> 3, blocks)
            for j in range(count):
                known = known or seen[j] == tagged >> 3
            if not known:
                if count == CHANNELS_MAX:
                    return count
                seen[count] = tagged >> 3
                count += 1
    return count


@njit(cache=True)
def _resize(block, cap, tables, marking, breaks, blocks, rows, tags, words, allocator):
    """Give the block another capacity or number of tables; its slots keep their numbers.

    Without `marking` the tables' bits are left to be written.
    """
    old_cap, old_tables = blocks[block, CAP], blocks[block, TABLES_CAP]
    base, start, kind = blocks[block, ROWS], blocks[block, WORDS], blocks[block, KIND]
    if _tabled(cap, kind):
        taken = _take_words(cap, tables, words, allocator)
        if taken < 0:
            return FULL_WORDS
    if cap != old_cap:
        moved = _take_rows(cap, rows, tags, allocator)
        if moved < 0:
            if _tabled(cap, kind):
                _give_words(taken, cap, tables, words, allocator)
            return FULL_ROWS
        for slot in range(blocks[block, USED]):
            rows[moved + slot] = rows[base + slot]
            tags[moved + slot] = tags[base + slot]
        _give_rows(base, old_cap, rows, allocator)
        blocks[block, ROWS] = moved
        blocks[block, CAP] = cap
    if _tabled(old_cap, kind):
        _give_words(start, old_cap, old_tables, words, allocator)
    if _tabled(cap, kind):
        blocks[block, WORDS] = taken
        blocks[block, TABLES_CAP] = tables
        blocks[block, TABLES] = 0
        if marking:
            _mark_all(block, breaks, blocks, rows, words)
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
def _file_under(row, breaks, couples, allocator):
    """Where to file the row: under the demand that the smallest share of values meets, or two.

    Puts the row's demands in order on the way. The kind is negative if there is no line left.
    """
    windowed, many = allocator[WINDOWED], allocator[MANY]
    best, kind, place, window, chosen = 1.01 if many else 0.6, AT_ROOT, 0, 0, -1
    shares = np.full(DEMANDS, 2.0)
    coded = key = wide = 0
    for i in range(DEMANDS):
        tagged = int(row[CHANNEL + STRIDE * i])
        if tagged < 0:
            break
        channel = tagged >> 3
        shares[i] = 1.0
        if tagged & NOT_EQUAL:
            continue
        low, high = row[LOW + STRIDE * i], row[HIGH + STRIDE * i]
        if breaks[channel, 0] < 0:
            coded += 1
            shares[i] = 1.0 / -breaks[channel, 0]
            if shares[i] < best:
                best, kind, place, window, chosen = shares[i], AT_CODE, int(low), channel, i
        elif breaks[channel, 0] == 0:
            if many and best > 1.0:
                best, kind, place, window, chosen = 1.0, AT_WINDOW, channel, WHOLE, i
        else:
            first, last = _cell(breaks, channel, low) - 1, _cell(breaks, channel, high) - 1
            shares[i] = (last - first + 1) / (breaks[channel, 0] + 1)
            if many and best > 1.0:
                best, kind, place, window, chosen = 1.0, AT_WINDOW, channel, WHOLE, i
            for size in range(6 * windowed):
                here = first >> _HALVES[size]
                if last < (here << _HALVES[size]) + _SIZES[size]:
                    share = _SIZES[size] / (breaks[channel, 0] + 1)
                    if share < best:
                        best, kind, place, chosen = share, AT_WINDOW, channel, i
                        window = _OFFSETS[size] + here
                    break
            share = 0.25 / (breaks[channel, 0] + 1)
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
                return FULL_KEYS, 0, 0
            allocator[KEYS] += 1
            couples[at, 0] = key
        if kind == AT_NARROW:
            used = int(breaks[place, WIDTHS_USED])
            breaks[place, WIDTHS_USED] = float(used | 1 << wide)
        place = at
    if kind == AT_COUPLE:
        window = (int(row[CHANNEL + STRIDE * chosen]) >> 3) * SECOND
        window += int(row[CHANNEL + STRIDE * other]) >> 3
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
    return kind, place, window


@njit(cache=True)
def insert(
    row, marking, breaks, windows, heads, couples, blocks, rows, briefs, tags, words, allocator
):  # fmt: skip
    """File a row; its handle is block times 4,096 plus slot. Negative: a pool must grow first.

    Without `marking` its bits are left to be written.
    """
    kind, place, window = _file_under(row, breaks, couples, allocator)
    if kind < 0:
        return kind
    head = _head(kind, place, window, windows, heads, couples, allocator)
    expected = max(2, -head)
    head = max(0, head)
    block = head
    while block > 0 and blocks[block, LIVE] == blocks[block, CAP]:
        if blocks[block, CAP] < SLOTS:
            cap = blocks[block, CAP] * 2
            tables = blocks[block, TABLES_CAP]
            if _tabled(cap, kind) and tables == 0:
                tables = _tables_for(_channels(block, blocks, rows))
            full = _resize(
                block, cap, tables, marking, breaks, blocks, rows, tags, words, allocator
            )
            if full < 0:
                return full
            break
        block = blocks[block, NEXT]
    if block == 0:
        fresh = allocator[BLOCKS_FREE]
        if fresh == 0:
            if allocator[BLOCKS_TOP] == blocks.shape[0]:
                return FULL_BLOCKS
            fresh = allocator[BLOCKS_TOP]
        cap = 1 << _log2(min(SLOTS, expected if head == 0 else 512))
        base = _take_rows(cap, rows, tags, allocator)
        if base < 0:
            return FULL_ROWS
        start, tables = 0, 0
        if _tabled(cap, kind):
            tables = 3 if head == 0 else blocks[head, TABLES_CAP]
            start = _take_words(cap, tables, words, allocator)
            if start < 0:
                _give_rows(base, cap, rows, allocator)
                return FULL_WORDS
        if allocator[BLOCKS_FREE] != 0:
            allocator[BLOCKS_FREE] = blocks[fresh, NEXT]
        else:
            allocator[BLOCKS_TOP] += 1
        block = fresh
        blocks[block, :] = 0
        blocks[block, CAP] = cap
        blocks[block, ROWS] = base
        blocks[block, WORDS] = start
        blocks[block, TABLES_CAP] = tables
        blocks[block, NEXT] = head
        blocks[block, KIND] = kind
        blocks[block, PLACE] = place
        blocks[block, WINDOW] = window
        if head != 0:
            blocks[head, PREVIOUS] = block
        _set_head(block, kind, place, window, windows, heads, couples, allocator)
    cap, base = blocks[block, CAP], blocks[block, ROWS]
    slot = 0
    if blocks[block, USED] < cap:
        slot = blocks[block, USED]
        blocks[block, USED] += 1
    elif not _tabled(cap, kind):
        while rows[base + slot, 0] != 0:
            slot += 1
    else:
        word = blocks[block, WORDS]
        while words[word] == _ZERO:
            word += 1
        dead = words[word]
        lowest = dead & (~dead + _ONE)
        slot = (word - blocks[block, WORDS]) * 64 + _BIT[(lowest * _DEBRUIJN) >> _SHIFT]
    rows[base + slot] = row
    _write_brief(row, base + slot, breaks, briefs, tags)
    blocks[block, LIVE] += 1
    if marking and _tabled(cap, kind) and not _mark(block, slot, breaks, blocks, rows, words):
        tables = _tables_for(blocks[block, TABLES] + 1)
        if tables > blocks[block, TABLES_CAP]:
            # More tables only save comparisons, so without words for them the row stays put.
            _resize(block, cap, tables, True, breaks, blocks, rows, tags, words, allocator)
    return block * SLOTS + slot


@njit(cache=True)
def remove(handle, windows, heads, couples, blocks, rows, tags, words, allocator):
    """Free the row's slot, and its block when it was the last."""
    block, slot = handle // SLOTS, handle % SLOTS
    cap, base = blocks[block, CAP], blocks[block, ROWS]
    rows[base + slot, 0] = 0.0
    tags[base + slot, NUMBER] = 0
    blocks[block, LIVE] -= 1
    if blocks[block, LIVE] > 0:
        if _tabled(cap, blocks[block, KIND]):
            words[blocks[block, WORDS] + (slot >> 6)] |= _ONE << np.uint64(slot & 63)
        return
    _give_rows(base, cap, rows, allocator)
    if _tabled(cap, blocks[block, KIND]):
        _give_words(blocks[block, WORDS], cap, blocks[block, TABLES_CAP], words, allocator)
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
def expect(live, begin, breaks, windows, heads, couples, allocator):
    """Leave in each empty place minus the number of rows to come, so that blocks fit at once.

    Returns where it stopped for want of lines.
    """
    for i in range(begin, live.shape[0]):
        kind, place, window = _file_under(live[i], breaks, couples, allocator)
        if kind < 0:
            return i
        coming = _head(kind, place, window, windows, heads, couples, allocator) - 1
        _set_head(coming, kind, place, window, windows, heads, couples, allocator)
    return live.shape[0]


@njit(cache=True)
def refile(
    live, begin, homes, breaks, windows, heads, couples, blocks, rows, briefs, tags, words,
    allocator,
):  # fmt: skip
    """Insert the rows of `live` from `begin` on; where it stopped, and why (0: all done).

    When all are in their blocks the bits are written, block by block.
    """
    count = live.shape[0]
    for i in range(begin, count):
        handle = insert(
            live[i], False, breaks, windows, heads, couples, blocks, rows, briefs, tags, words,
            allocator,
        )  # fmt: skip
        if handle < 0:
            return i, handle
        homes[int(abs(live[i, 0])) - 1] = handle
    for block in range(1 + max(0, begin - count), allocator[BLOCKS_TOP]):
        if _tabled(blocks[block, CAP], blocks[block, KIND]):
            tables = max(blocks[block, TABLES_CAP], _tables_for(_channels(block, blocks, rows)))
            full = 0
            if tables > blocks[block, TABLES_CAP]:
                cap = blocks[block, CAP]
                full = _resize(
                    block, cap, tables, True, breaks, blocks, rows, tags, words, allocator
                )
            else:
                _mark_all(block, breaks, blocks, rows, words)
            if full < 0:
                return count + block - 1, full
    return count + allocator[BLOCKS_TOP], 0
