"""Workloads in which some publishers have many more subscribers than others, as people have.

[workload.followed]: quotes. Each publisher quotes one symbol; how subscriptions are spread over
symbols follows the follower counts of a social network (`skew`: Zipf's law instead). A
subscription asks for its symbol, at or above one of a few prices.

[workload.social]: a graph file of `a follows b` lines. The most followed users publish, and
whoever follows one of them subscribes to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import accumulate
from pathlib import Path

from postroad import draws
from postroad.errors import InputError
from postroad.filters import Filter, parse
from postroad.model import Scalar
from postroad.overlay.wide_area import readable
from postroad.sim.sections import Section
from postroad.sim.workload import Bad, Interest, Posting, Workload, shipped_followers

PRICES = 1000


def quotes(section: Section, brokers: int, seed: int) -> Workload:
    """Quotes and those who follow them; all draws keyed by seed."""
    subscriptions_count = section.take("subscriptions", int, least=0)
    publications_count = section.take("publications", int, least=0)
    publishers = section.take("publishers", int, 200, least=1)
    prices = section.take("prices", int, 4, least=1)
    skew: float | None = section.take("skew", float, None, least=0.0)
    rate_per_s = section.take("rate_per_s", float, 100.0)
    if rate_per_s <= 0:
        raise section.wrong("rate_per_s", rate_per_s, "give a rate above 0")
    section.done()
    followers = shipped_followers()
    if skew is not None:
        weights = [1.0 / (rank + 1) ** skew for rank in range(publishers)]
    elif publishers <= len(followers):
        weights = [float(count) for count in followers[:publishers]]
    else:
        raise section.wrong(
            "publishers", publishers, f"give at most {len(followers)}, or a skew for Zipf's law"
        )
    sums = list(accumulate(weights))
    parsed: dict[tuple[int, int], Filter] = {}
    subscriptions = []
    for n in range(subscriptions_count):
        symbol = bisect_right(sums, draws.uniform(seed, "followed.symbol", 0, n) * sums[-1])
        level = draws.below(prices, seed, "followed.price", 0, n)
        filter = parsed.get((symbol, level))
        if filter is None:
            text = _symbol(symbol) + (f" AND price >= {PRICES * level // prices}" if level else "")
            filter = parsed[symbol, level] = parse(text)
        broker = draws.below(brokers, seed, "followed.subscriber", 0, n)
        subscriptions.append(Interest(f"s{n}", broker, f"c{n}", filter))
    homes = [draws.below(brokers, seed, "followed.publisher", 0, n) for n in range(publishers)]
    advertisements = tuple(
        Interest(f"a{n}", home, f"p{n}", parse(_symbol(n))) for n, home in enumerate(homes)
    )
    gap_us = round(1_000_000 / rate_per_s)
    postings = []
    for n in range(publications_count):
        publisher = draws.below(publishers, seed, "followed.posting", 0, n)
        attributes: dict[str, Scalar] = {
            "class": "quote",
            "symbol": f"S{publisher}",
            "price": draws.below(PRICES, seed, "followed.value", 0, n),
        }
        postings.append(Posting(n * gap_us, homes[publisher], f"p{publisher}", str(n), attributes))
    return Workload(tuple(subscriptions), advertisements, tuple(postings))


def _symbol(number: int) -> str:
    return f"class = 'quote' AND symbol = 'S{number}'"


def social(folder: Path, bad: Bad, section: Section, brokers: int, seed: int) -> Workload:
    """The most followed users of a graph publish in turn, users chosen by seed."""
    name = section.take("edges", str)
    publishers = section.take("publishers", int, 200, least=1)
    publications_count = section.take("publications", int, least=0)
    rate_per_s = section.take("rate_per_s", float, 100.0)
    if rate_per_s <= 0:
        raise section.wrong("rate_per_s", rate_per_s, "give a rate above 0")
    section.done()
    pairs = _edges(folder / name, bad)
    followers = Counter(followed for _, followed in pairs)
    authors = {user: n for n, (user, _) in enumerate(followers.most_common(publishers))}
    if not authors:
        raise InputError("nobody follows anybody", where=str(folder / name), remedy="give edges")
    homes: dict[str, int] = {}

    def home(user: str) -> int:
        if user not in homes:
            homes[user] = draws.below(brokers, seed, "social.home", 0, len(homes))
        return homes[user]

    wanted = {user: parse(f"class = 'post' AND author = {_quoted(user)}") for user in authors}
    advertisements = tuple(
        Interest(f"a{user}", home(user), user, filter) for user, filter in wanted.items()
    )
    subscriptions = tuple(
        Interest(f"{follower}>{followed}", home(follower), follower, wanted[followed])
        for follower, followed in dict.fromkeys(pairs)
        if followed in authors and follower != followed
    )
    gap_us = round(1_000_000 / rate_per_s)
    users = list(authors)
    postings = []
    for n in range(publications_count):
        user = users[draws.below(len(users), seed, "social.posting", 0, n)]
        attributes = {"class": "post", "author": user}
        postings.append(Posting(n * gap_us, home(user), user, str(n), attributes))
    return Workload(subscriptions, advertisements, tuple(postings))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _edges(path: Path, bad: Bad) -> list[tuple[str, str]]:
    pairs = []
    try:
        with readable(path) as file:
            for line_number, line in enumerate(file, 1):
                words = line.partition("#")[0].replace(",", " ").split()
                if len(words) == 2:
                    pairs.append((words[0], words[1]))
                elif words:
                    bad(
                        InputError(
                            f"{line.strip()[:60]!r} is not an edge",
                            where=f"{path}:{line_number}",
                            remedy="write who follows and who is followed",
                        )
                    )
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error}", remedy="check the file's name"
        ) from None
    return pairs
