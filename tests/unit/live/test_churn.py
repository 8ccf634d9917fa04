"""Networks in memory under cuts, long outages and restarts, by seeds: `check` replays one."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from live_harness import Fake, memory
from postroad.filters import matches
from postroad.live.edge import content, topics
from postroad.routing import SCHEMES

NAMES = ["A", "B", "C", "D", "E"]
PATTERNS = ["t/+", "t/a", "t/#", "+/b", "u/a"]
WHERE = [None, "x > 2", "x BETWEEN 1 AND 3", "x <> 2"]
TOPICS = ["t/a", "t/b", "u/a", "u/b"]
SEEDS = int(os.environ.get("POSTROAD_SEEDS", "3"))  # `make seeds` tries many


def check(scheme: str, seed: int, folder: Path) -> None:
    draw = random.Random(seed)
    links = [(NAMES[draw.randrange(n)], NAMES[n]) for n in range(1, len(NAMES))]
    net = memory(folder, NAMES, links, seed=seed, scheme=scheme)
    ends = sorted(
        (a, b) for a, peers in enumerate(net.brokers[0].plan.links()) for b in peers if a < b
    )
    held: dict[tuple[int, str], tuple[Fake, str, str | None]] = {}
    for _ in range(draw.randint(3, 8)):
        what = draw.random()
        if what < 0.55:
            broker, name = draw.randrange(len(NAMES)), f"c{draw.randrange(4)}"
            pattern, where = draw.choice(PATTERNS), draw.choice(WHERE)
            client = net.client(
                broker, f"{name}@{broker}"
            )  # takes over what was there, with a new session
            client.subscribe(pattern, where)
            held[broker, name] = (client, pattern, where)
        elif what < 0.65 and held:
            client, _, _ = held.pop(draw.choice(sorted(held)))
            client.drop()
        elif what < 0.9:
            cut = draw.choice(ends)
            net.cut(*cut)
            outage_us = draw.choice([5_000, 300_000, 61_000_000])
            net.run(outage_us, 50_000 if outage_us > 1_000_000 else 1000)
            net.mend(*cut)
        else:
            broker = draw.randrange(len(NAMES))
            net.restart(broker)
            held = {key: value for key, value in held.items() if key[0] != broker}
        net.run(draw.randint(0, 20) * 1000)
    net.settle()
    net.run(2_500_000, 5000)
    for client, _, _ in held.values():
        client.got()
    owed: Counter[Any] = Counter()
    publishers = [net.client(n, f"p{n}") for n in range(len(NAMES))]
    for number in range(12):
        topic, x = draw.choice(TOPICS), draw.randint(0, 4)
        payload = b'{"x": %d, "n": %d}' % (x, number)
        draw.choice(publishers).publish(topic, payload)
        for key, (_, pattern, where) in held.items():
            if matches(topics.as_filter(pattern, where), content.attributes(topic, payload)):
                owed[key, payload] += 1
    net.run(4_000_000, 5000)
    found = Counter(
        (key, payload) for key, (client, _, _) in held.items() for _, payload in client.got()
    )
    assert found == owed
    for broker in net.brokers:
        broker.router.check()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_network_is_exact_again_after_cuts_outages_and_restarts(
    scheme: str, tmp_path: Path
) -> None:
    for seed in range(SEEDS):
        try:
            check(scheme, seed, tmp_path)
        except BaseException:
            print(f"replay with check({scheme!r}, {seed}, folder)")
            raise
