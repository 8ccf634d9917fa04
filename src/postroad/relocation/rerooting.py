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
    "(int64[::1], int64[::1], int64[::1], Array(uint64, 2, 'C', readonly=True), int64[::1], int64)",
    cache=True,
)
def reroot(start, near, near_us, vectors, deliveries, delay_us):
    """Per report, load and delay with the publisher there; the first report is the root's.

    `near[start[n]:start[n + 1]]` are the neighbours of the n-th, as numbers of reports, or -1 for
    one that did not report, and `near_us` the time to each. `delay_us` is what all deliveries take
    from broker to client.
    """
    count, words = vectors.shape
    parent = np.zeros(count, np.int64)
    parent[0] = -1
    down_us = np.zeros(count, np.int64)  # from the parent to here
    up_us = np.zeros(count, np.int64)  # from here to the parent
    order = np.zeros(count, np.int64)
    end = 1
    for number in range(count):
        assert number < end, "the reports are of one tree"
        here = order[number]
        for at in range(start[here], start[here + 1]):
            other = near[at]
            if other < 0:
                continue
            if other == parent[here]:
                up_us[here] = near_us[at]
            else:
                parent[other] = here
                down_us[other] = near_us[at]
                order[end] = other
                end += 1
    bits = vectors.copy()  # at and below each broker
    inside = deliveries.copy()
    before = np.zeros((count, words), np.uint64)  # what the parent had on the sides already seen
    for number in range(count - 1, 0, -1):
        here = order[number]
        above = parent[here]
        for word in range(words):
            before[here, word] = bits[above, word]
            bits[above, word] |= bits[here, word]
        inside[above] += inside[here]
        delay_us += inside[here] * down_us[here]
    rates = np.zeros(count, np.int64)
    loads = np.zeros(count, np.int64)
    delays_us = np.zeros(count, np.int64)
    for here in range(count):
        for word in range(words):
            rates[here] += _ones(bits[here, word])
        loads[0] += rates[here]
    total = inside[0]
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
