"""Load and delay of every candidate in compiled code: `selection.py` says what they are.

Moving the root from a broker to its neighbour changes both by what the one link between them
separates, so all candidates cost one walk up the tree and one down. Compiled when it is imported,
because a live broker must not wait for that in the middle of its work.
"""

from __future__ import annotations

import numpy as np

from postroad.jit import njit

_ALL = np.uint64(0x0101010101010101)


@njit("int64(uint64)", cache=True)
def _ones(word):
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    pairs = np.uint64(0x3333333333333333)
    word = (word & pairs) + ((word >> np.uint64(2)) & pairs)
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * _ALL) >> np.uint64(56))


@njit(
    "Tuple((int64[::1], int64[::1]))"
    "(int64[::1], int64[::1], int64[:, ::1], Array(uint64, 2, 'C', readonly=True), int64[::1],"
    " int64[::1])",
    cache=True,
)
def reroot(brokers, start, ways, vectors, deliveries, client_us):
    """Per report, load and delay with the publisher there; the first report is the root's.

    `ways[start[n]:start[n + 1]]` are the neighbours of the n-th and the time to each.
    """
    count, words = vectors.shape
    place = np.argsort(brokers)
    sorted_brokers = brokers[place]
    parent = np.full(count, -1, np.int64)
    down_us = np.zeros(count, np.int64)  # from the parent to here
    up_us = np.zeros(count, np.int64)  # from here to the parent
    order = np.zeros(count, np.int64)
    end = 1
    for number in range(count):
        assert number < end, "the reports are of one tree"
        here = order[number]
        for at in range(start[here], start[here + 1]):
            spot = np.searchsorted(sorted_brokers, ways[at, 0])
            if spot == count or sorted_brokers[spot] != ways[at, 0]:
                continue
            other = place[spot]
            if other == parent[here]:
                up_us[here] = ways[at, 1]
            else:
                parent[other] = here
                down_us[other] = ways[at, 1]
                order[end] = other
                end += 1
    bits = vectors.copy()  # at and below each broker
    inside = deliveries.copy()
    before = np.zeros((count, words), np.uint64)  # what the parent had on the sides already seen
    delay_us = (deliveries * client_us).sum()
    for number in range(count - 1, 0, -1):
        here = order[number]
        above = parent[here]
        for word in range(words):
            before[here, word] = bits[above, word]
            bits[above, word] |= bits[here, word]
        inside[above] += inside[here]
        delay_us += inside[here] * down_us[here]
    rates = np.zeros(count, np.int64)
    for here in range(count):
        for word in range(words):
            rates[here] += _ones(bits[here, word])
    total = inside[0]
    loads = np.empty(count, np.int64)
    delays_us = np.empty(count, np.int64)
    loads[0] = rates.sum()
    delays_us[0] = delay_us
    # What is outside a broker's subtree: beyond its parent, and on the parent's other sides.
    # Children are met in the other direction than above, so `after` holds what `before` lacks.
    outside = np.zeros((count, words), np.uint64)
    after = np.zeros((count, words), np.uint64)
    for number in range(1, count):
        here = order[number]
        above = parent[here]
        rest = 0
        for word in range(words):
            outside[here, word] = outside[above, word] | before[here, word] | after[above, word]
            after[above, word] |= bits[here, word]
            rest += _ones(outside[here, word])
        loads[here] = loads[above] - rates[here] + rest
        within = inside[here]
        delays_us[here] = delays_us[above] - within * down_us[here] + (total - within) * up_us[here]
    return loads, delays_us
