"""What messages cost our own broker code: one PopSub router, stepped with them.

The router holds 2,000 subscriptions behind two links and 20 of its own clients. A message is
decoded, the router steps, and what it sends is encoded, as in a live broker. For each size, batches
(or gossips) of so many publications are received until 256 have come, each of them new, so that
nothing is remembered; the cost is the time per message over that of a single publication, each the
least of five repetitions. A direct send is what a publication with 21 of them takes longer than a
publication with one, by 20.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from postroad import draws
from postroad.filters import parse
from postroad.live.links.messages import Codec
from postroad.model import Advertisement, Publication, Subscription
from postroad.overlay import from_parents
from postroad.routing import SCHEMES
from postroad.routing.base import (
    Advertise,
    AdvertisementMessage,
    Input,
    Interests,
    LinkUp,
    Message,
    Publish,
    Received,
    Send,
    Subscribe,
)
from postroad.routing.popsub import PopSub
from postroad.routing.popsub.messages import (
    Batch,
    CountedSubscription,
    Gossip,
    Post,
    Switch,
    TreePost,
)

SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
SENDS = 20
REPEATS = 5
T = TypeVar("T")
Cost = tuple[str, int, float]  # the message, its publications, the cost


class _Broker:
    """A router and its codec, timed."""

    def __init__(self) -> None:
        scheme = SCHEMES["popsub"]
        plan = scheme.plan(from_parents([0, 0, 0, 0]), Interests(), scheme.config(), 0)
        router = plan.router(0)
        assert isinstance(router, PopSub)
        self.router, self.codec, self.serial = router, Codec(), 0
        for peer in (1, 2, 3):
            router.step(LinkUp(peer), 0)
        self.hear(AdvertisementMessage(Advertisement("a", parse("class = 'A'"), "p")))
        router.step(Advertise(Advertisement("d", parse("class = 'D'"), "q")), 0)
        for number in range(2000):
            message = CountedSubscription(f"s{number}", parse(_interest(number)), 2, 1)
            router.step(Received(message, 2 + number % 2), 0)
        for number in range(20):
            own = Subscription(f"own{number}", parse(_interest(2000 + number)))
            router.step(Subscribe(own), 0)
        for number in range(SENDS + 1):
            filter = parse(f"class = 'D' AND n > {number}")
            router.step(Received(CountedSubscription(f"d{number}", filter, 9 + number, 2), 2), 0)
        router.gains[2]["d"].popular = False
        self.hear(Switch("a", 0, 1, True, 0, (1,)))

    def hear(self, message: Message) -> None:
        self.router.step(Received(message, 1), 0)

    def posts(self, count: int) -> tuple[Post, ...]:
        posts = []
        for _ in range(count):
            self.serial += 1
            value = draws.below(1000, 1, "calibrate.value", self.serial, 0)
            publication = Publication("p", str(self.serial), {"class": "A", "x": value})
            posts.append(Post(publication, "a", self.serial))
        return tuple(posts)

    def received(self, messages: Sequence[Message]) -> float:
        """Processor time of each."""
        frames = [self.codec.encode(message) for message in messages]
        return self._timed(frames, lambda frame: Received(self.codec.decode(frame), 1))

    def published(self, matches: int) -> float:
        publications = []
        for _ in range(SIZES[-1]):
            self.serial += 1
            attributes: dict[str, str | int] = {"class": "D", "n": matches, "serial": self.serial}
            publications.append(Publication("q", str(self.serial), attributes))
        return self._timed(publications, Publish)

    def _timed(self, things: Sequence[T], input_of: Callable[[T], Input]) -> float:
        start = time.process_time()
        for thing in things:
            for effect in self.router.step(input_of(thing), 0):
                if type(effect) is Send:
                    self.codec.encode(effect.message)
        return (time.process_time() - start) / len(things)


def _interest(number: int) -> str:
    low = draws.below(900, 1, "calibrate.low", number, 0)
    return f"class = 'A' AND x >= {low} AND x < {low + 20}"


def costs() -> list[Cost]:
    """In units of a publication that is received and forwarded."""
    broker = _Broker()
    gossiped = 0
    least: dict[tuple[str, int], float] = {}
    for _ in range(REPEATS):
        spent: dict[tuple[str, int], float] = {}
        total = SIZES[-1]
        singles = [TreePost(post, 1) for post in broker.posts(total)]
        spent["publication", 1] = broker.received(singles)
        for size in SIZES:
            batches = [Batch(broker.posts(size), 1) for _ in range(total // size)]
            spent["batch", size] = broker.received(batches)
            gossips = []
            for _ in range(total // size):
                numbered = tuple(enumerate(broker.posts(size), gossiped + 1))
                gossiped += size
                gossips.append(Gossip("a", 0, 1, numbered, gossiped, (), (), (), "relay"))
            spent["gossip", size] = broker.received(gossips)
        spent["one send", 1] = broker.published(1)
        spent["more sends", 1] = broker.published(SENDS + 1)
        least = {key: min(took, least.get(key, took)) for key, took in spent.items()}
    unit = least["publication", 1]
    rows = [
        (kind, size, least[kind, size] / unit) for kind in ("batch", "gossip") for size in SIZES
    ]
    send = (least["more sends", 1] - least["one send", 1]) / SENDS / unit
    return [*rows, ("direct", 1, send)]


def table(rows: list[Cost]) -> str:
    """The rows as the CSV that ships with the package."""
    lines = ["# Cost of a message in units of one publication; made by `postroad calibrate`."]
    lines += ["message,size,cost", *(f"{kind},{size},{cost:.3f}" for kind, size, cost in rows)]
    return "\n".join(lines) + "\n"
