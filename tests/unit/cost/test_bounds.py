"""Lower bounds against brute force that knows nothing of trees hung from a root."""

import itertools
import random

import numpy as np
import pytest

from postroad.cost import bounds
from postroad.overlay import Overlay, from_parents


def _case(seed: int, brokers_max: int = 12) -> tuple[Overlay, np.ndarray, np.ndarray]:
    draw = random.Random(seed)
    count = draw.randint(1, brokers_max)
    overlay = from_parents([0] + [draw.randrange(b) for b in range(1, count)])
    overlay.latency_us[:] = [draw.randint(1, 50) for _ in range(count - 1)]
    publications = draw.randint(1, 6)
    share = draw.choice([0.1, 0.4, 0.9])
    wanted = np.array(
        [[draw.random() < share for _ in range(publications)] for _ in range(count)], dtype=bool
    )
    source = np.array([draw.randrange(count) for _ in range(publications)], dtype=np.int64)
    return overlay, wanted, source


def _path(overlay: Overlay, a: int, b: int) -> set[frozenset[int]]:
    peers = overlay.neighbours()
    ways = {a: []}
    queue = [a]
    for here in queue:
        for there in peers[here]:
            if there not in ways:
                ways[there] = [*ways[here], frozenset((here, there))]
                queue.append(there)
    return set(ways[b])


@pytest.mark.parametrize("seed", range(150))
def test_the_subtree_is_the_union_of_paths(seed: int) -> None:
    overlay, wanted, source = _case(seed)
    tree = bounds.on_tree(overlay, wanted)
    load = np.zeros(overlay.brokers_count, dtype=np.int64)
    for p, at in enumerate(source.tolist()):
        receivers = np.flatnonzero(wanted[:, p]).tolist()
        for b in range(overlay.brokers_count):
            links = set().union(*(_path(overlay, b, r) for r in receivers))
            assert tree.links[p] + tree.apart[b, p] == len(links)
            if b == at:
                assert tree.messages(source)[p] == len(links)
                for link in links:
                    for end in link:
                        load[end] += 1
    assert bounds.loads_on_tree(overlay, wanted, source).sum(axis=1).tolist() == load.tolist()


@pytest.mark.parametrize("seed", range(40))
def test_the_best_place_is_the_best_of_all(seed: int) -> None:
    overlay, wanted, source = _case(seed, 7)
    draw = random.Random(seed)
    publisher = np.array([draw.randrange(3) for _ in source], dtype=np.int64)
    tree = bounds.on_tree(overlay, wanted)
    least = min(
        sum(int(tree.messages(np.array(place)[publisher])[p]) for p in range(len(source)))
        for place in itertools.product(range(overlay.brokers_count), repeat=3)
    )
    assert tree.messages(tree.best_places(publisher)).sum() == least


def _worst_by_trying(wanted: np.ndarray, source: np.ndarray) -> int:
    """The least worst load over all ways in which receivers get their copies from holders;
    brokers that do not want a publication may pass it on."""
    count = len(wanted)
    best = {tuple([0] * count)}
    for p, at in enumerate(source.tolist()):
        receivers = set(np.flatnonzero(wanted[:, p]).tolist()) - {at}
        loads: set[tuple[int, ...]] = set()
        others = [b for b in range(count) if b != at and b not in receivers]
        for size in range(len(others) + 1):
            for helpers in itertools.combinations(others, size):
                if helpers and not receivers:
                    continue
                nodes = sorted(receivers | set(helpers))
                for senders in itertools.product(sorted({at, *nodes}), repeat=len(nodes)):
                    if not _rooted(at, dict(zip(nodes, senders, strict=True))):
                        continue
                    load = [0] * count
                    for node, sender in zip(nodes, senders, strict=True):
                        load[node] += 1
                        load[sender] += 1
                    loads.add(tuple(load))
        best = {tuple(map(sum, zip(a, b, strict=True))) for a in best for b in loads}
    return min(max(load) for load in best)


def _rooted(root: int, sender: dict[int, int]) -> bool:
    for node in sender:
        seen = {node}
        while node != root:
            node = sender[node]
            if node in seen:
                return False
            seen.add(node)
    return True


def test_no_way_to_send_loads_the_busiest_broker_less() -> None:
    equal = 0
    for seed in range(60):
        draw = random.Random(seed)
        count, publications = draw.randint(2, 4), draw.randint(1, 3)
        wanted = np.array(
            [[draw.random() < 0.6 for _ in range(publications)] for _ in range(count)], dtype=bool
        )
        source = np.array([draw.randrange(count) for _ in range(publications)], dtype=np.int64)
        bound, least = bounds.worst_load(wanted, source), _worst_by_trying(wanted, source)
        assert bound <= least
        equal += bound == least
    assert equal >= 45  # it is a relaxation, and a near one


def test_the_shortest_way_may_lead_through_a_third_broker() -> None:
    direct = np.array([[0, 9, 30], [9, 0, 10], [30, 10, 0]], dtype=np.int64)
    overlay = from_parents([0, 0, 0])
    shortest = bounds.least_us(Overlay(overlay.names, overlay.ends, overlay.latency_us, direct))
    assert shortest.tolist() == [[0, 9, 19], [9, 0, 10], [19, 10, 0]]
    turned = Overlay(overlay.names, overlay.ends, overlay.latency_us, np.asfortranarray(direct))
    assert bounds.least_us(turned).tolist() == shortest.tolist()
