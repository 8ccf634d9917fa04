"""What a batch costs our own broker code: one PopSub router, stepped with batches.

The router holds 2,000 subscriptions behind two links. For each size, a batch of so many
publications is received until 256 have come, each of them new, so that nothing is remembered;
the cost is the time per batch over the time per batch of one, each the least of five repetitions.
"""

from __future__ import annotations

import time

from postroad import draws
from postroad.filters import parse
from postroad.model import Advertisement, Publication
from postroad.overlay import from_parents
from postroad.routing import SCHEMES
from postroad.routing.base import AdvertisementMessage, Interests, LinkUp, Received
from postroad.routing.popsub.messages import Batch, CountedSubscription, Post

SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
REPEATS = 5


def costs() -> list[tuple[int, float]]:
    """(size, cost in units of a batch of one)."""
    plan = SCHEMES["popsub"].plan(
        from_parents([0, 0, 0, 0]), Interests(), SCHEMES["popsub"].config(), 0
    )
    router = plan.router(0)
    for peer in (1, 2, 3):
        router.step(LinkUp(peer), 0)
    offer = Advertisement("a", parse("class = 'A'"), "p")
    router.step(Received(AdvertisementMessage(offer), 1), 0)
    for number in range(2000):
        low = draws.below(900, 1, "calibrate.low", number, 0)
        text = f"class = 'A' AND x >= {low} AND x < {low + 20}"
        message = CountedSubscription(f"s{number}", parse(text), 2, 1)
        router.step(Received(message, 2 + number % 2), 0)
    spent: dict[int, float] = {}
    serial = 0
    for _ in range(REPEATS):
        for size in SIZES:
            batches = []
            for _ in range(SIZES[-1] // size):
                posts = []
                for _ in range(size):
                    serial += 1
                    value = draws.below(1000, 1, "calibrate.value", serial, 0)
                    publication = Publication("p", str(serial), {"class": "A", "x": value})
                    posts.append(Post(publication, "a", serial))
                batches.append(Received(Batch(tuple(posts), 1), 1))
            start = time.process_time()
            for batch in batches:
                router.step(batch, 0)
            took = time.process_time() - start
            spent[size] = min(took, spent.get(size, took))
    return [(size, spent[size] * size / spent[1]) for size in SIZES]


def table(rows: list[tuple[int, float]]) -> str:
    """The rows as the CSV that ships with the package."""
    lines = ["# Cost of a batch in units of one publication; made by `postroad calibrate`."]
    lines += ["size,cost", *(f"{size},{cost:.3f}" for size, cost in rows)]
    return "\n".join(lines) + "\n"
