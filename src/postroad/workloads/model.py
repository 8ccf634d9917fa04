"""A workload: who subscribes to what, who publishes what, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from postroad.errors import InputError
from postroad.filters import EVERYTHING, Filter, literal, parse
from postroad.model import BrokerId, Scalar, TimeUs

Bad = Callable[[InputError], None]
"""Is told of every row of a file that cannot be used; unless it raises, the others are read on."""


@dataclass(frozen=True, slots=True)
class Interest:
    """A subscription or an advertisement: someone at a broker and a filter, for a while."""

    id: str
    broker: BrokerId
    client: str
    filter: Filter
    time_us: TimeUs | None = None
    until_us: TimeUs | None = None


@dataclass(frozen=True, slots=True)
class Posting:
    """A publication to be made at a broker at a time."""

    time_us: TimeUs
    broker: BrokerId
    publisher: str
    id: str
    attributes: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Workload:
    subscriptions: tuple[Interest, ...]
    advertisements: tuple[Interest, ...]
    postings: tuple[Posting, ...]


def refuse(error: InputError) -> None:
    raise error


def derived_advertisements(postings: tuple[Posting, ...]) -> tuple[Interest, ...]:
    """One advertisement per publisher and broker: the classes it publishes there.

    A publisher that publishes anything without a class advertises everything.
    """
    classes: dict[tuple[str, BrokerId], dict[Scalar | None, None]] = {}
    for posting in postings:
        seen = classes.setdefault((posting.publisher, posting.broker), {})
        seen[posting.attributes.get("class")] = None
    return tuple(
        Interest(f"{publisher}@{broker}", broker, publisher, _any_of(list(seen)))
        for (publisher, broker), seen in classes.items()
    )


def _any_of(classes: list[Scalar | None]) -> Filter:
    if not all(isinstance(name, str) for name in classes):
        return EVERYTHING
    return parse(f"class IN ({', '.join(literal(str(name)) for name in classes)})")
