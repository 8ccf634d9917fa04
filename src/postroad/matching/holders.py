"""Who holds each filter, for how long: from filters that match to those who are interested.

Filter f is held in the rows `start[f]:start[f + 1]`: by `holder[i]` from `since[i]` to `until[i]`,
both included. A holder is a number: a subscription, a client or a broker.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from postroad.jit import njit

Ints = npt.NDArray[np.int64]


class Holders(NamedTuple):
    """See the module; `holders_count` is of different holders."""

    start: Ints
    holder: Ints
    since: Ints
    until: Ints
    holders_count: int


def interested(
    holders: Holders, filters: Ints, ends: Ints, times_us: Ints
) -> tuple[Ints, Ints, Ints]:
    """The holders interested in each publication, ascending; where each one's end; and how many
    rows each holder is interested by.

    Publication n matches the filters `filters[ends[n - 1]:ends[n]]` and is made at `times_us[n]`.
    """
    rows = int((holders.start[filters + 1] - holders.start[filters]).sum())
    who, whose_end, times = np.empty(rows, np.int64), np.empty_like(ends), np.empty(rows, np.int64)
    count = _interested(*holders, filters, ends, times_us, who, whose_end, times)
    return who[:count], whose_end, times[:count]


@njit(cache=True)
def _interested(
    start, holder, since, until, holders_count, filters, ends, times_us, who, whose_end, times
):  # fmt: skip
    counted = np.zeros(holders_count, np.int64)
    at = begin = 0
    for n in range(len(ends)):
        first = at
        for place in range(begin, ends[n]):
            filter = filters[place]
            for row in range(start[filter], start[filter + 1]):
                if since[row] <= times_us[n] <= until[row]:
                    if counted[holder[row]] == 0:
                        who[at] = holder[row]
                        at += 1
                    counted[holder[row]] += 1
        begin = ends[n]
        who[first:at].sort()
        for place in range(first, at):
            times[place] = counted[who[place]]
            counted[who[place]] = 0
        whose_end[n] = at
    return at
