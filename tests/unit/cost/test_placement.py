"""Places and links against trying all of them."""

import itertools
import random

import numpy as np
import pytest

from postroad.cost import bounds, placement
from postroad.errors import RunFailed
from postroad.overlay import Overlay, from_parents


def _case(seed: int) -> tuple[Overlay, np.ndarray, np.ndarray, np.ndarray]:
    draw = random.Random(seed)
    count = draw.randint(2, 6)
    overlay = from_parents([0] + [draw.randrange(b) for b in range(1, count)])
    publications, publishers = draw.randint(2, 8), 3
    wanted = np.array(
        [[draw.random() < 0.4 for _ in range(publications)] for _ in range(count)], dtype=bool
    )
    publisher = np.array([n % publishers for n in range(publications)], dtype=np.int64)
    home = [draw.randrange(count) for _ in range(publishers)]
    return overlay, wanted, publisher, np.array(home, dtype=np.int64)[publisher]


@pytest.mark.parametrize("seed", range(25))
def test_no_places_are_better(seed: int) -> None:
    overlay, wanted, publisher, source = _case(seed)
    count = int(publisher.max()) + 1
    home = np.array([source[publisher == one][0] for one in range(count)])
    tree = bounds.on_tree(overlay, wanted)
    outcomes = []
    for places in itertools.product(range(overlay.brokers_count), repeat=count):
        source = np.array(places, dtype=np.int64)[publisher]
        busiest = int(bounds.loads_on_tree(overlay, wanted, source).sum(axis=1).max())
        outcomes.append((int(tree.messages(source).sum()), busiest))
    free = placement.best(overlay, wanted, publisher, home)
    assert free.messages == free.least == min(messages for messages, _ in outcomes)
    for one in range(count):  # nobody moves for nothing
        moved = free.brokers[one] != home[one]
        costs = placement.costs(overlay, wanted, publisher)[one]
        assert costs[free.brokers[one]] < costs[home[one]] if moved else True
    least_busy = min(busiest for _, busiest in outcomes)
    for limit in {least_busy, least_busy + 1}:
        chosen = placement.best(overlay, wanted, publisher, home, limit)
        assert chosen.messages == chosen.least
        assert chosen.messages == min(m for m, busiest in outcomes if busiest <= limit)
        load = bounds.loads_on_tree(overlay, wanted, chosen.brokers[publisher]).sum(axis=1)
        assert load.max() <= limit
    if least_busy:
        with pytest.raises(RunFailed, match="no places keep every broker within"):
            placement.best(overlay, wanted, publisher, home, least_busy - 1)


@pytest.mark.parametrize("seed", range(25))
def test_no_replaced_link_saves_more(seed: int) -> None:
    overlay, wanted, _, source = _case(seed)
    now = int(bounds.on_tree(overlay, wanted).messages(source).sum())
    count = overlay.brokers_count
    most = 0
    for old, pair in itertools.product(
        overlay.ends.tolist(), itertools.combinations(range(count), 2)
    ):
        ends = [list(pair) if link == old else link for link in overlay.ends.tolist()]
        seen, grown = {0}, True
        while grown:
            more = {b for a, b in [*ends, *(e[::-1] for e in ends)] if a in seen} - seen
            seen |= more
            grown = bool(more)
        if len(seen) == count:
            changed = Overlay(overlay.names, np.array(ends), overlay.latency_us)
            messages = int(bounds.on_tree(changed, wanted).messages(source).sum())
            most = max(most, now - messages)
    found = placement.replacements(overlay, wanted, source)
    assert (found[0].saved if found else 0) == most
