"""What a comparison compares: schemes with their parameters, one row of the table each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from postroad.errors import InputError, choice_of

SHARE = "popular_share"
"""A parameter of ours: PopSub's capacity for popular publications, as a share of the rate at
which a publishing broker publishes. A run turns it into the scheme's throughput τ."""
TRACED = "traced_share"
"""Another: how many of its publications a publisher makes, as a share of all, before POP or GRAPE
decide where it should stand. A run turns it into the relocation's threshold."""

PLACED = "placed"
"""Another: whether publishers are where they would have been best for the training part."""
CANDIDATES, DURABLE = "candidates", "durable"
"""Parameters of a mix that is yet to be found: the rows to choose from, and whether each part must
be able to have a store."""


@dataclass(frozen=True)
class Row:
    """A scheme with fixed parameters, and those that may be tuned with the values to try.

    `relocation` moves publishers on top of it.
    """

    scheme: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    relocation: str | None = None

    def candidates(self) -> list[dict[str, Any]]:
        """Every setting to try; the first is the one used without tuning."""
        settings: list[dict[str, Any]] = [{}]
        for name, values in self.grid.items():
            settings = [{**one, name: value} for one in settings for value in values]
        return settings


_SHARES = {SHARE: [0.3, 0.1, 0.6]}
_TRACED = {TRACED: 0.2}

ROWS: dict[str, Row] = {
    "flooding": Row("flooding"),
    "subscription forwarding": Row("subscription_forwarding"),
    "subscription forwarding + covering": Row("subscription_forwarding", {"covering": True}),
    "hierarchical forwarding": Row("hierarchical"),
    "advertisement forwarding": Row("advertisement_forwarding"),
    "advertisement forwarding + covering": Row("advertisement_forwarding", {"covering": True}),
    "PopSub direct": Row("popsub", {"unpopular": "direct"}, _SHARES),
    "PopSub batching": Row("popsub", {"unpopular": "batching"}, _SHARES),
    "PopSub gossip": Row("popsub", {"unpopular": "gossip"}, _SHARES),
    "BeaConvey": Row("beaconvey", grid={"routing": ["pie", "po", "pal"]}),
    "BeaConvey on cells": Row("beaconvey", grid={"cells": [64, 16, 256]}),
    "Scribe": Row("scribe"),
    "Scribe on cells": Row("scribe", grid={"cells": [64, 16, 256]}),
    "iScribe": Row("iscribe"),
    "iScribe on cells": Row("iscribe", grid={"cells": [64, 16, 256]}),
    "Kyra": Row("kyra", grid={"clique_ms": [100.0, 50.0, 200.0]}),
    "Kyra + covering": Row("kyra", {"covering": True}),
    "balanced Kyra": Row("kyra", {"balance": 4}),
    "filter-based on the minimum spanning tree": Row("fbr"),
    "multicast groups": Row("mbr"),
    "match early": Row("match_early"),
    "unicast": Row("unicast"),
    "broadcast": Row("broadcast"),
    "ideal multicast": Row("ideal_multicast"),
    "POP": Row("advertisement_forwarding", _TRACED, relocation="pop"),
    "GRAPE": Row("advertisement_forwarding", _TRACED, relocation="grape"),
    "PopSub direct after GRAPE": Row(
        "popsub", {"unpopular": "direct", **_TRACED}, _SHARES, relocation="grape"
    ),
    "PopSub batching after GRAPE": Row(
        "popsub", {"unpopular": "batching", **_TRACED}, _SHARES, relocation="grape"
    ),
    "best places": Row("advertisement_forwarding", {"covering": True, PLACED: True}),
    "best mix": Row("mix", {DURABLE: False}),
    "best mix with a store": Row("mix", {DURABLE: True}),
}


def chosen(names: Sequence[str] | None, where: str) -> dict[str, Row]:
    """The rows of these names; a scheme's name stands for all rows of that scheme."""
    if names is None:
        return dict(ROWS)
    rows: dict[str, Row] = {}
    for name in names:
        mine = {
            label: row
            for label, row in ROWS.items()
            if name in (label, row.relocation or row.scheme)
        }
        if not mine:
            raise InputError(f"unknown scheme {name!r}", where=where, remedy=_near(name))
        rows |= mine
    return rows


def _near(name: str) -> str:
    """The row or scheme that is nearly called so, or all rows."""
    schemes = {row.relocation or row.scheme for row in ROWS.values()}
    near = choice_of(name, sorted({*ROWS, *schemes}))
    return near if near.startswith("did") else f"choose from: {', '.join(ROWS)}"
