"""Who gets what filters match, gathered for each recipient in compiled code.

Where publications are matched as they stand in their bytes, looking up in Python who gets each of
them takes longer than the match. A `Fanout` knows the *recipients* of each row of a compiled table
(sessions and neighbours, say): `packets` notes for every publication who gets it, each once, and
Python is handed one piece of bytes for each recipient, however many publications are in it.

What a row leads to is learned from its filter's owner, row by row, as long as the table stays as it
is. A row that nobody spoke of yet, or that was kept back, leaves its publications to Python.

A filter may have a *tag*, a number that names it for others too: a neighbour is told with each
packet the tags of what it wants it for, and where packets come with tags nothing has to be matched
again. Of each packet they are a byte, how many, and eight bytes for each; where they are none, or
one of them is unknown, rows say whom they lead to.

Layout. `leads`: by row number the place of its route, `UNKNOWN` or `KEPT_BACK`. `routes`: one after
the other, the tag (0: none) before that place; there the length, and the numbers of the recipients,
neighbours first. `tags`: a hash table of tags and leads. `table`: a line per recipient. What is
gathered: `parts`, a packet for a recipient and the part after it; `packets`, where each is;
`asked`, the leads of each.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import Any, Generic, TypeVar

import numpy as np
from numba import carray

from postroad.jit import njit
from postroad.matching import native
from postroad.matching.index import NEIGHBOUR, OLD, PASSED_BITS, TAG_BYTES

Id = TypeVar("Id", bound=Hashable)
Recipient = TypeVar("Recipient", bound=Hashable)

UNKNOWN, KEPT_BACK = 0, -1
PIECE_BYTES = 4_096  # that a neighbour gets in one piece, unless one packet alone has more
PACKETS_MAX, PARTS_MAX, ASKED_MAX = 1_024, 16_384, 32_768  # that are gathered at a time.
ASKED_ROOM = 2 * ASKED_MAX  # with what is asked of the packet that comes then
TAGS_MAX = 32  # of a packet: of one with more nothing is told
BYTES_MAX = 1 << 20  # in one look, unless one packet goes to so many recipients
# Of a packet longer than this no more than so many bytes are copied: Python gives one to all.
LONG_BYTES, COPIED_MAX = 1_024, 64 << 10

# The state: addresses of arrays, the length of one, then what is gathered (of bytes, what may be).
(
    AT_LEADS, AT_ROUTES, AT_TAGS, AT_TABLE, AT_PARTS, AT_PACKETS, AT_ASKED, AT_TOLD, AT_TOUCHED,
) = range(9)  # fmt: skip
ROWS, TAGS, PARTS, PACKETS, ASKED, TOUCHED, BYTES, SERVED, SERIAL = range(9, 18)
STATE = 18
TAG, LEAD = range(2)  # columns of `tags`,
TAGGED = 2
LAST_SEEN, KIND, FIRST, LAST = range(4)  # of `table`,
RECIPIENT = 4
PACKET, NEXT = range(2)  # of `parts`,
PART = 2
START, TOPIC_END, END, LOOKED, ASKED_FROM, ASKED_END = range(6)  # and of `packets`
WHERE = 6
FULL, LEFT, GATHERED = range(3)  # what became of a packet


@lru_cache(maxsize=1)
def _room() -> tuple[Any, ...]:
    """Room for what is gathered: one for all, because nothing stays in it between calls."""
    parts = np.zeros((PARTS_MAX, PART), dtype=np.int32)
    packets = np.zeros((PACKETS_MAX, WHERE), dtype=np.int64)
    told = np.zeros(3 * PACKETS_MAX + TAG_BYTES * ASKED_MAX, dtype=np.uint8)
    return parts, packets, np.zeros(ASKED_ROOM, dtype=np.int32), told


class Fanout(Generic[Id, Recipient]):
    """The recipients of the rows of one table; `rows_of` tells the rows of an id."""

    def __init__(self, rows_of: Callable[[Id], range]) -> None:
        self._rows_of = rows_of
        self.recipients: list[Recipient] = []
        self.kinds: list[int] = []  # of the recipients
        self._kept_back: list[tuple[int, range]] = []  # ids by identity, and their rows
        self._numbers: dict[Recipient, int] = {}
        self._known: set[int] = set()  # by identity: the table holds them
        # Written one by one, which takes half as long by way of their buffers.
        self._leads = np.zeros(64, dtype=np.int32).data
        self._routes = np.zeros(64, dtype=np.int32).data
        self._end = 1  # of the routes
        self._tags = np.zeros((64, TAGGED), dtype=np.int64).data
        self._tagged = 0  # how many are in there
        self._table = np.zeros((16, RECIPIENT), dtype=np.int64)
        self._touched = np.zeros(16, dtype=np.int32)
        self._state = np.zeros(STATE, dtype=np.int64)
        self.address: int = self._state.ctypes.data
        self._tell()

    def allow(self, count: int) -> None:
        """The next look may gather so many bytes; what goes beyond that comes with the last
        packet."""
        self._state[BYTES] = min(count, BYTES_MAX)

    def knows(self, name: Id) -> bool:
        """Whether it was told of this id, the same object, since it forgot."""
        return id(name) in self._known

    def learn(
        self, name: Id, recipients: Iterable[tuple[Recipient, int]] | None, tag: int = 0
    ) -> None:
        """Whom the rows of an id lead to, and of which kind each is; None to keep them back. They
        are also if a recipient was of another kind before: pieces are made for that one."""
        self._known.add(id(name))
        rows = self._rows_of(name)
        asked = [] if recipients is None else [self._number(*each) for each in recipients]
        numbers = [number for number in asked if number is not None]
        if recipients is None or len(numbers) < len(asked):
            lead = KEPT_BACK
            self._kept_back.append((id(name), rows))
        else:
            numbers.sort(key=lambda number: self.kinds[number] != NEIGHBOUR)
            lead = self._end + 2
            self._end = lead + 1 + len(numbers)
            if self._end > len(self._routes):
                self._routes = _grown(self._routes, self._end)
                self._tell()
            route = array("i", tag.to_bytes(TAG_BYTES, "little"))
            route.extend((len(numbers), *numbers))
            self._routes[lead - 2 : self._end] = route
            if tag:
                self._add_tag(tag - (1 << 64) if tag >> 63 else tag, lead)
        if rows.stop > len(self._leads):
            self._leads = _grown(self._leads, rows.stop)
            self._tell()
        for row in rows:
            self._leads[row] = lead

    def try_again(self) -> None:
        """Know nothing of the rows that were kept back."""
        for known, rows in self._kept_back:
            self._known.discard(known)
            for row in rows:
                self._leads[row] = UNKNOWN
        self._kept_back.clear()

    def forget(self) -> None:
        """Know nothing of any row; pieces that were made still go by the lists of before."""
        np.asarray(self._leads)[:] = UNKNOWN
        self._known.clear()
        self._kept_back.clear()
        self._numbers.clear()
        self.recipients, self.kinds = [], []
        self._end = 1
        np.asarray(self._tags)[:] = 0
        self._tagged = 0

    def _add_tag(self, tag: int, lead: int) -> None:
        """Two filters with one tag are both left to their rows."""
        self._tagged += 1
        if 2 * self._tagged > len(self._tags):
            before = np.asarray(self._tags)
            self._tags = np.zeros((2 * len(before), TAGGED), dtype=np.int64).data
            for known, other in before[before[:, TAG] != 0].tolist():
                self._put_tag(known, other)
            self._tell()
        self._put_tag(tag, lead)

    def _put_tag(self, tag: int, lead: int) -> None:
        tags, last = self._tags, len(self._tags) - 1
        place = tag & last
        while tags[place, TAG] not in (0, tag):
            place = (place + 1) & last
        tags[place, LEAD] = KEPT_BACK if tags[place, TAG] else lead
        tags[place, TAG] = tag

    def _number(self, recipient: Recipient, kind: int) -> int | None:
        """The number of a recipient; None if it was of another kind."""
        number = self._numbers.setdefault(recipient, len(self.recipients))
        if number == len(self.recipients):
            self.recipients.append(recipient)
            self.kinds.append(kind)
            if number == len(self._table):
                self._table = np.concatenate([self._table, np.zeros_like(self._table)])
                self._touched = np.zeros(len(self._table), dtype=np.int32)
                self._tell()
            self._table[number, KIND] = kind
        return number if self.kinds[number] == kind else None

    def _tell(self) -> None:
        """Say in the state where everything is."""
        leads, routes = np.asarray(self._leads), np.asarray(self._routes)
        tags = np.asarray(self._tags)
        arrays = (leads, routes, tags, self._table, *_room(), self._touched)
        self._state[:ROWS] = [each.ctypes.data for each in arrays]
        self._state[ROWS], self._state[TAGS] = len(leads), len(tags)


def _grown(numbers: memoryview, size: int) -> memoryview:
    """A longer copy."""
    grown = np.zeros(size + len(numbers), dtype=np.int32)
    grown[: len(numbers)] = numbers
    return grown.data


@njit
def ask_rows(state, out, matches):
    """Put down, behind what was asked of packets that are gathered, whom these rows lead to: how
    many there are, 0 where one is not known."""
    rows, first = state[ROWS], state[ASKED]
    if first + matches > ASKED_ROOM:
        return 0
    leads = carray(native._at(state[AT_LEADS]), (rows,), np.int32)
    asked = carray(native._at(state[AT_ASKED]), (ASKED_ROOM,), np.int32)
    for i in range(matches):
        row = out[i]
        if row >= rows or leads[row] <= 0:
            return 0
        asked[first + i] = leads[row]
    return matches


@njit
def ask_tags(state, told_at, count):
    """The same of so many tags that stand at an address."""
    last, first = state[TAGS] - 1, state[ASKED]
    tags = carray(native._at(state[AT_TAGS]), (1, TAGGED), np.int64)
    told = carray(native._at(told_at), (TAG_BYTES * count,), np.uint8)
    asked = carray(native._at(state[AT_ASKED]), (ASKED_ROOM,), np.int32)
    for i in range(count):
        word = np.uint64(0)
        for k in range(TAG_BYTES):
            word |= np.uint64(told[TAG_BYTES * i + k]) << np.uint64(8 * k)
        tag = np.int64(word)
        place = tag & last
        while tags[place, TAG] != tag and tags[place, TAG] != 0:
            place = (place + 1) & last
        if tag == 0 or tags[place, TAG] == 0 or tags[place, LEAD] <= 0:
            return 0
        asked[first + i] = tags[place, LEAD]
    return count


@njit
def gather(state, count, start, topic_end, end, looked):
    """Note who gets a packet of whom so many were asked: `GATHERED`, `FULL` where what is gathered
    has to go first, or `LEFT` to Python."""
    asked = carray(native._at(state[AT_ASKED]), (ASKED_ROOM,), np.int32)
    routes = carray(native._at(state[AT_ROUTES]), (1,), np.int32)
    asked_from = state[ASKED]
    asked_end = asked_from + count
    most = 0
    for i in range(asked_from, asked_end):
        most += routes[asked[i]]
    if end - start > LONG_BYTES and most * (end - start) > COPIED_MAX:
        return LEFT
    packet = state[PACKETS]
    if packet == PACKETS_MAX or asked_end > ASKED_MAX or state[PARTS] + most > PARTS_MAX:
        return FULL if packet > 0 else LEFT
    table = carray(native._at(state[AT_TABLE]), (1, RECIPIENT), np.int64)
    parts = carray(native._at(state[AT_PARTS]), (PARTS_MAX, PART), np.int32)
    packets = carray(native._at(state[AT_PACKETS]), (PACKETS_MAX, WHERE), np.int64)
    touched = carray(native._at(state[AT_TOUCHED]), (1,), np.int32)
    state[SERIAL] += 1
    serial = state[SERIAL]
    packets[packet, START], packets[packet, TOPIC_END] = start, topic_end
    packets[packet, END], packets[packet, LOOKED] = end, looked
    packets[packet, ASKED_FROM], packets[packet, ASKED_END] = asked_from, asked_end
    part = first = state[PARTS]
    served = 0
    for i in range(asked_from, asked_end):
        lead = asked[i]
        for place in range(lead + 1, lead + 1 + routes[lead]):
            number = routes[place]
            line = table[number]
            if line[LAST_SEEN] == serial:
                continue
            # What is gathered begins anew with a serial number beyond all that were seen before.
            if line[LAST_SEEN] <= serial - 1 - packet:
                line[FIRST] = part
                touched[state[TOUCHED]] = number
                state[TOUCHED] += 1
            else:
                parts[line[LAST], NEXT] = part
            line[LAST_SEEN], line[LAST] = serial, part
            parts[part, PACKET], parts[part, NEXT] = packet, -1
            part += 1
            served |= line[KIND] != NEIGHBOUR
    state[PACKETS] = packet + 1
    state[PARTS] = part
    state[ASKED] = asked_end
    state[BYTES] -= (part - first) * (end - start)
    state[SERVED] += served
    return GATHERED


@njit
def _other(data, where, old):
    """Where a packet goes on after its length, and how long the rest is at the other level: the
    length of its properties, which is none, is there for MQTT 5 alone."""
    body = where[START] + (2 if data[where[START] + 1] < 128 else 3)
    return body, where[END] - body + (1 if old else -1)


@njit
def _size(data, where, same, old):
    if same:
        return where[END] - where[START]
    rest = _other(data, where, old)[1]
    return rest + (2 if rest < 128 else 3)


@njit
def _write(data, data_at, where, same, old, piece, piece_at, at):
    """Write a packet as one level has it; where it ends."""
    start, topic_end, end = where[START], where[TOPIC_END], where[END]
    if same:
        native._copy(piece_at + at, data_at + start, end - start)
        return at + end - start
    body, rest = _other(data, where, old)
    piece[at] = data[start]
    if rest < 128:
        piece[at + 1] = rest
        at += 2
    else:
        piece[at + 1], piece[at + 2] = rest & 127 | 128, rest >> 7
        at += 3
    native._copy(piece_at + at, data_at + body, topic_end - body)
    at += topic_end - body
    if old:
        piece[at] = 0
        native._copy(piece_at + at + 1, data_at + topic_end, end - topic_end)
        return at + 1 + end - topic_end
    native._copy(piece_at + at, data_at + topic_end + 1, end - topic_end - 1)
    return at + end - topic_end - 1


@njit
def _places(state, first, count):
    """The places of so many packets, from this part on, among those looked at: two bytes each."""
    parts = carray(native._at(state[AT_PARTS]), (PARTS_MAX, PART), np.int32)
    packets = carray(native._at(state[AT_PACKETS]), (PACKETS_MAX, WHERE), np.int64)
    whole = native._new_bytes(0, 2 * count)
    places = carray(native._at(native._bytes_at(whole)), (count,), np.uint16)
    for k in range(count):
        places[k] = packets[parts[first, PACKET], LOOKED]
        first = parts[first, NEXT]
    return whole


@njit
def _told(state, first, count, number):
    """What a neighbour is told of so many packets, from this part on: their places among those
    looked at, two bytes each, then the tags of each."""
    parts = carray(native._at(state[AT_PARTS]), (PARTS_MAX, PART), np.int32)
    packets = carray(native._at(state[AT_PACKETS]), (PACKETS_MAX, WHERE), np.int64)
    places = carray(native._at(state[AT_TOLD]), (PACKETS_MAX,), np.uint16)
    told_at = state[AT_TOLD]
    at, each = 2 * count, first
    for k in range(count):
        where = packets[parts[each, PACKET]]
        places[k] = where[LOOKED]
        at = _tell_tags(state, where, number, told_at, at)
        each = parts[each, NEXT]
    return native._new_bytes(told_at, at)


@njit
def _tell_tags(state, where, number, told_at, at):
    """Write down the tags of what a neighbour wants a packet for; where they end."""
    asked = carray(native._at(state[AT_ASKED]), (ASKED_ROOM,), np.int32)
    routes = carray(native._at(state[AT_ROUTES]), (1,), np.int32)
    table = carray(native._at(state[AT_TABLE]), (1, RECIPIENT), np.int64)
    told = carray(native._at(told_at + at), (1,), np.uint8)
    count = 0
    for i in range(where[ASKED_FROM], where[ASKED_END]):
        lead = asked[i]
        for place in range(lead + 1, lead + 1 + routes[lead]):
            if table[routes[place], KIND] != NEIGHBOUR:
                break
            if routes[place] == number:
                if count == TAGS_MAX or (routes[lead - 2] == 0 and routes[lead - 1] == 0):
                    told[0] = 0
                    return at + 1
                tag_at = state[AT_ROUTES] + 4 * (lead - 2)
                native._copy(told_at + at + 1 + TAG_BYTES * count, tag_at, TAG_BYTES)
                count += 1
                break
    told[0] = count
    return at + 1 + TAG_BYTES * count


@njit
def hand_over(state, data, data_at, old, none, wanted, kept):
    """Append all that is gathered to a list, and gather anew: a number (where the last packet ends,
    how many were looked at up to there, how many of these some session gets, each above the other
    by `PASSED_BITS`), None, and a list with three items for each piece: a number (the recipient's,
    above how many packets), the bytes, and the packets' places among those looked at, two bytes
    each; for a neighbour these are followed by the tags of each packet. So many of what was asked
    for a packet that is not gathered yet are kept."""
    table = carray(native._at(state[AT_TABLE]), (1, RECIPIENT), np.int64)
    parts = carray(native._at(state[AT_PARTS]), (PARTS_MAX, PART), np.int32)
    packets = carray(native._at(state[AT_PACKETS]), (PACKETS_MAX, WHERE), np.int64)
    touched = carray(native._at(state[AT_TOUCHED]), (1,), np.int32)
    pieces = native._new_list(0)
    for i in range(state[TOUCHED]):
        line = table[touched[i]]
        same = (line[KIND] == OLD) == (old != 0)
        part = line[FIRST]
        while part >= 0:
            first, size, count = part, 0, 0
            while part >= 0 and (size <= PIECE_BYTES or line[KIND] != NEIGHBOUR):
                size += _size(data, packets[parts[part, PACKET]], same, old != 0)
                count += 1
                part = parts[part, NEXT]
            whole = native._new_bytes(0, size)
            piece_at = native._bytes_at(whole)
            piece = carray(native._at(piece_at), (size,), np.uint8)
            at, each = 0, first
            for _ in range(count):
                where = packets[parts[each, PACKET]]
                at = _write(data, data_at, where, same, old != 0, piece, piece_at, at)
                each = parts[each, NEXT]
            number = np.int64(touched[i])
            native._add(pieces, native._new_long(number << PASSED_BITS | count))
            native._add(pieces, whole)
            if line[KIND] == NEIGHBOUR:
                native._add(pieces, _told(state, first, count, number))
            else:
                native._add(pieces, _places(state, first, count))
    last = packets[state[PACKETS] - 1]
    word = last[END] << 2 * PASSED_BITS | (last[LOOKED] + 1) << PASSED_BITS | state[SERVED]
    native._add(wanted, native._new_long(word))
    native._append(wanted, none)
    native._add(wanted, pieces)
    asked = carray(native._at(state[AT_ASKED]), (ASKED_ROOM,), np.int32)
    for i in range(kept):
        asked[i] = asked[state[ASKED] + i]
    state[PARTS] = state[PACKETS] = state[ASKED] = state[TOUCHED] = state[SERVED] = 0
