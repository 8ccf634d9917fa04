"""What PopSub brokers tell each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from postroad.filters import Filter
from postroad.model import AdvertisementId, BrokerId, Publication, SubscriptionId
from postroad.routing.base import AboutFilter, Message, commas

EPOCH: Final = 1 << 32


class Post(msgspec.Struct, frozen=True):
    """A publication with the advertisement it belongs to and its number at its publisher.

    Numbers grow with each publication, and by `EPOCH` with each epoch of the advertisement.
    """

    publication: Publication
    advertisement_id: AdvertisementId
    number: int


class CountedSubscription(AboutFilter, msgspec.Struct, frozen=True):
    """A subscription made at broker `origin`, `hops` links away once this arrives."""

    kind = "subscription"
    wire = "messages.CountedSubscription"
    subscription_id: SubscriptionId
    filter: Filter
    origin: BrokerId
    hops: int

    def __str__(self) -> str:
        origin = f"of broker {self.origin}, {self.hops} hops"
        return f"subscription {self.subscription_id} {origin}: {self.filter}"


@dataclass(frozen=True, slots=True)
class CountedUnsubscription(Message):
    kind = "unsubscription"
    wire = "messages.CountedUnsubscription"
    subscription_id: SubscriptionId

    def __str__(self) -> str:
        return f"unsubscription {self.subscription_id}"


class TreePost(Message, msgspec.Struct, frozen=True):
    """A publication that is routed over the tree."""

    kind = "publication"
    wire = "messages.TreePost"
    carries = True
    forwards = True
    post: Post
    hops: int

    @property
    def publications(self) -> tuple[Publication, ...]:
        return (self.post.publication,)

    def __str__(self) -> str:
        return f"publication {self.post.publication.name}"


class DirectPost(Message, msgspec.Struct, frozen=True):
    """An unpopular publication, straight to a broker with a matching subscription."""

    kind = "direct"
    wire = "messages.DirectPost"
    carries = True
    laborious = True
    post: Post

    @property
    def publications(self) -> tuple[Publication, ...]:
        return (self.post.publication,)

    def __str__(self) -> str:
        return f"directly {self.post.publication.name}"


class Batch(Message, msgspec.Struct, frozen=True):
    """Unpopular publications of one advertisement, together over the tree."""

    kind = "batch"
    wire = "messages.Batch"
    carries = True
    forwards = True
    posts: tuple[Post, ...]
    hops: int

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.posts)

    @property
    def publications(self) -> tuple[Publication, ...]:
        return tuple(post.publication for post in self.posts)

    def __str__(self) -> str:
        names = commas(publication.name for publication in self.publications)
        return f"batch of {len(self.posts)}: {names}"


@dataclass(frozen=True, slots=True)
class Switch(Message):
    """Over the tree, to all who may want the advertisement: gossip begins, or ends.

    A group is known by its advertisement and the epoch in which it began. `number` is the last
    publication of the group so far: a member needs all after it when gossip begins, and all up to
    it before it may leave when gossip ends.
    """

    kind = "switch"
    wire = "messages.Switch"
    advertisement_id: AdvertisementId
    epoch: int
    publisher: BrokerId
    to_gossip: bool
    number: int
    view: tuple[BrokerId, ...]

    def __str__(self) -> str:
        way = "gossip" if self.to_gossip else "tree"
        return f"switch {self.advertisement_id} to {way} at {self.number}"


@dataclass(frozen=True, slots=True)
class Gossip(Message):
    """One gossip of a group: M, D, S and U of lpbcast.

    `messages` are numbered publications; `lacking` and `highest` are the digest: the sender has
    everything of the group up to `highest` except `lacking`. The purpose is `round`, `relay`,
    `ask` (send me what I lack) or `answer`; an answer that brings nothing is never answered, so
    no two members can go on asking each other.
    """

    kind = "gossip"
    wire = "messages.Gossip"
    carries = True
    advertisement_id: AdvertisementId
    epoch: int
    publisher: BrokerId
    messages: tuple[tuple[int, Post], ...]
    highest: int
    lacking: tuple[int, ...]
    subscribers: tuple[BrokerId, ...]
    unsubscribers: tuple[BrokerId, ...]
    purpose: str

    @property
    def size(self) -> int:  # type: ignore[override]
        return max(1, len(self.messages))

    @property
    def chatter(self) -> bool:  # type: ignore[override]
        return not self.messages

    @property
    def publications(self) -> tuple[Publication, ...]:
        return tuple(post.publication for _, post in self.messages)

    def __str__(self) -> str:
        names = commas(publication.name for publication in self.publications) or "nothing new"
        return f"gossip ({self.purpose}) about {self.advertisement_id}: {names}"


MESSAGES = (
    CountedSubscription, CountedUnsubscription, TreePost, DirectPost, Batch, Switch, Gossip,
)  # fmt: skip
