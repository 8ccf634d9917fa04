"""Posts of the most followed users of a graph: whoever follows one of them subscribes to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from postroad import draws
from postroad.errors import InputError
from postroad.filters import literal, parse
from postroad.settings.sections import above, at_least
from postroad.workloads.graphs import edges
from postroad.workloads.model import Bad, Interest, Posting, Workload, refuse


@dataclass(frozen=True)
class Social:
    """Settings of `[workload.social]`: a file of `a follows b` lines, and who publishes."""

    edges: str
    publications: int
    publishers: int = 200
    rate_per_s: float = 100.0

    def __post_init__(self) -> None:
        at_least(self, 0, "publications")
        at_least(self, 1, "publishers")
        above(self, 0, "rate_per_s")


def workload(
    settings: Social, folder: Path, brokers: int, seed: int, bad: Bad = refuse
) -> Workload:
    """The most followed users publish in turn, users chosen by seed."""
    path = folder / settings.edges
    pairs = edges(path, bad)
    followers = Counter(followed for _, followed in pairs)
    authors = {user: n for n, (user, _) in enumerate(followers.most_common(settings.publishers))}
    if not authors:
        raise InputError("nobody follows anybody", where=str(path), remedy="give edges")
    homes: dict[str, int] = {}

    def home(user: str) -> int:
        if user not in homes:
            homes[user] = draws.below(brokers, seed, "social.home", 0, len(homes))
        return homes[user]

    wanted = {user: parse(f"class = 'post' AND author = {literal(user)}") for user in authors}
    advertisements = tuple(
        Interest(f"a{user}", home(user), user, filter) for user, filter in wanted.items()
    )
    subscriptions = tuple(
        Interest(f"{follower}>{followed}", home(follower), follower, wanted[followed])
        for follower, followed in dict.fromkeys(pairs)
        if followed in authors and follower != followed
    )
    gap_us = round(1_000_000 / settings.rate_per_s)
    users = list(authors)
    postings = []
    for n in range(settings.publications):
        user = users[draws.below(len(users), seed, "social.posting", 0, n)]
        attributes = {"class": "post", "author": user}
        postings.append(Posting(n * gap_us, home(user), user, str(n), attributes))
    return Workload(subscriptions, advertisements, tuple(postings))
