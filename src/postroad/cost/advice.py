"""Which fan-out to build a network of n brokers with (section 5, "The Impact of f").

A larger fan-out makes the tree flatter: publications travel fewer links, but the brokers near
the root forward more. A capacity per broker bounds the fan-out from above; traffic prefers it
large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from postroad.cost import forwarding, shapes


@dataclass(frozen=True)
class Option:
    """One fan-out: traffic in all, and the load of the busiest broker and where it stands.

    `loads` holds the busiest broker's load of each level.
    """

    fanout: int
    height: int
    subscription_traffic: float
    publication_traffic: float
    subscription_load_max: float
    publication_load_max: float
    load_max: float
    bottleneck_level: int
    loads: tuple[float, ...]

    @property
    def traffic(self) -> float:
        return self.subscription_traffic + self.publication_traffic

    def over(self, capacity: float) -> list[int]:
        """The levels whose brokers would have to send more than `capacity` messages."""
        return [level for level, load in enumerate(self.loads) if load > capacity]


def options(
    brokers: int,
    fanouts: Sequence[int],
    sigma: float,
    mu: float,
    patterns: float,
    publications: float,
) -> list[Option]:
    """Traffic and load of a tree of `brokers` brokers with each of these fan-outs."""
    forwarding.check_uniform(sigma, mu)
    rows = []
    for fanout in fanouts:
        shape = shapes.mean_fanout(fanout, brokers)
        subscriptions = patterns * forwarding.subscription_load(shape, sigma)
        forwards = publications * forwarding.publication_load(shape, mu)
        both = subscriptions + forwards
        loads = [both[shape.level == level].max() for level in range(int(shape.height) + 1)]
        rows.append(
            Option(
                fanout=fanout,
                height=int(shape.height),
                subscription_traffic=patterns
                * float(forwarding.subscription_traffic(shape, sigma)),
                publication_traffic=publications * float(forwarding.publication_traffic(shape, mu)),
                subscription_load_max=float(subscriptions.max()),
                publication_load_max=float(forwards.max()),
                load_max=float(max(loads)),
                bottleneck_level=int(np.argmax(loads)),
                loads=tuple(map(float, loads)),
            )
        )
    return rows


def best(candidates: Sequence[Option], capacity: float) -> Option | None:
    """The fan-out with the least traffic whose busiest broker stays within `capacity`."""
    fitting = [option for option in candidates if option.load_max <= capacity]
    return min(fitting, key=lambda option: option.traffic, default=None)
