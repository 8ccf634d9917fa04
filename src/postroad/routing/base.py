"""What goes into a router and what comes out.

A routing scheme is a pure state machine. A driver (the simulator, a live broker) calls
`Router.step(input, now)` and performs the effects it returns, in order, after the step has
finished. A router has no clock, no randomness of its own, no logger and no pointer to its
driver, so a recorded list of inputs replays any bug.

Drivers count sends and deliveries from the effects; `Note` is only for what they cannot see.

What is made for every publication is a Struct, not a dataclass: it reads the same, and a frozen
dataclass takes several times as long to make.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, final

import msgspec

from postroad.filters import Filter
from postroad.filters.nested import in_rows
from postroad.model import (
    Advertisement,
    AdvertisementId,
    BrokerId,
    Publication,
    Scalar,
    Subscription,
    SubscriptionId,
    TimeUs,
)

if TYPE_CHECKING:
    from postroad.matching import Index
    from postroad.routing.pool import FilterPool


# To whom a publication goes: local subscriptions, and neighbours.
Recipients = tuple[list[SubscriptionId], list[BrokerId]]
Asking = Callable[[Mapping[str, Scalar]], Recipients]
NOBODY: Final[Recipients] = ([], [])  # it is one object, and nobody writes to it


class Message:
    """What one broker sends another. `kind` is the name drivers count it under.

    `carries` says whether it carries publications, and `size` how many; `forwards` whether
    sending it is forwarding them over the overlay: a broker that does so without a local
    subscriber for them is a pure forwarder. `laborious` says that to send it takes its sender
    time, where brokers take time at all. `chatter` says nothing new by itself: a run need
    not wait for it. `wire` names it between live brokers: no two messages of a network share a
    name, and one that has been given stays. As text it reads as a transcript has it.
    """

    __slots__ = ()
    kind: ClassVar[str]
    wire: ClassVar[str]
    carries: ClassVar[bool] = False
    forwards: ClassVar[bool] = False
    # Plain attributes, because the simulator asks them of every message.
    size: ClassVar[int] = 1
    chatter: ClassVar[bool] = False
    laborious: ClassVar[bool] = False

    @property
    def publications(self) -> tuple[Publication, ...]:
        """The publications that it carries."""
        return ()

    @property
    def about(self) -> Filter | None:
        """The filter that it asks for, withdraws or announces."""
        return None


class AboutFilter(Message):
    """What messages that ask for a filter, or withdraw it, share."""

    __slots__ = ()
    filter: Filter

    @property
    def about(self) -> Filter:
        return self.filter


class CarriesOne(Message):
    """What messages with one publication share."""

    __slots__ = ()
    carries = True
    publication: Publication

    @property
    def publications(self) -> tuple[Publication, ...]:
        return (self.publication,)


def commas(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


class PublicationMessage(CarriesOne, msgspec.Struct, frozen=True):
    """A publication that has crossed `hops` links once it arrives."""

    kind = "publication"
    wire = "base.PublicationMessage"
    forwards = True
    publication: Publication
    hops: int

    def __str__(self) -> str:
        return f"publication {self.publication.name}"


class SubscriptionMessage(AboutFilter, msgspec.Struct, frozen=True):
    """The sender wants what `filter` matches."""

    kind = "subscription"
    wire = "base.SubscriptionMessage"
    filter: Filter

    def __str__(self) -> str:
        return f"subscription {self.filter}"


class UnsubscriptionMessage(AboutFilter, msgspec.Struct, frozen=True):
    """The sender no longer needs what `filter` alone matches."""

    kind = "unsubscription"
    wire = "base.UnsubscriptionMessage"
    filter: Filter

    def __str__(self) -> str:
        return f"unsubscription {self.filter}"


class AdvertisementMessage(Message, msgspec.Struct, frozen=True):
    """A publisher behind the sender announces what it will publish."""

    kind = "advertisement"
    wire = "base.AdvertisementMessage"
    advertisement: Advertisement

    @property
    def about(self) -> Filter:
        return self.advertisement.filter

    def __str__(self) -> str:
        return f"advertisement {self.advertisement.id}: {self.advertisement.filter}"


@dataclass(frozen=True, slots=True)
class UnadvertisementMessage(Message):
    """An advertisement that came over this link is withdrawn."""

    kind = "unadvertisement"
    wire = "base.UnadvertisementMessage"
    advertisement_id: AdvertisementId

    def __str__(self) -> str:
        return f"unadvertisement {self.advertisement_id}"


@dataclass(frozen=True, slots=True)
class Start:
    """The broker starts, or starts again with nothing remembered."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The broker will stop for good; its clients have gone."""


@dataclass(frozen=True, slots=True)
class Advertise:
    advertisement: Advertisement


@dataclass(frozen=True, slots=True)
class Unadvertise:
    advertisement_id: AdvertisementId


@dataclass(frozen=True, slots=True)
class Subscribe:
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    subscription_id: SubscriptionId


class Publish(msgspec.Struct, frozen=True):
    publication: Publication


class Received(msgspec.Struct, frozen=True):
    message: Message
    sender: BrokerId


@dataclass(frozen=True, slots=True)
class LinkUp:
    peer: BrokerId


@dataclass(frozen=True, slots=True)
class LinkDown:
    peer: BrokerId


@dataclass(frozen=True, slots=True)
class TimerFired:
    name: str


@dataclass(frozen=True, slots=True)
class Migrate:
    """A publisher that moves here announces itself: the migration advertisement."""

    advertisement: Advertisement


@dataclass(frozen=True, slots=True)
class Paused:
    """A publisher that moves away has published its last here; `epoch` names the move."""

    advertisement_id: AdvertisementId
    epoch: int


@dataclass(frozen=True, slots=True)
class Pinged:
    """How long a publication would take from the publisher to each of these brokers."""

    advertisement_id: AdvertisementId
    times_us: tuple[tuple[BrokerId, TimeUs], ...]


class Measured(msgspec.Struct, frozen=True):
    """How long a message waits here, is matched, and then needs to each neighbour (waiting to be
    sent, and the link) and to a local client (waiting to be sent)."""

    queue_us: TimeUs
    match_us: TimeUs
    output_us: tuple[tuple[BrokerId, TimeUs], ...]
    client_us: TimeUs = 0


Relocating = Migrate | Paused | Pinged | Measured
"""What only a router that moves publishers understands."""

Input = (
    Start
    | Leave
    | Advertise
    | Unadvertise
    | Subscribe
    | Unsubscribe
    | Publish
    | Received
    | LinkUp
    | LinkDown
    | TimerFired
    | Relocating
)


class Send(msgspec.Struct, frozen=True):
    peer: BrokerId
    message: Message


class Deliver(msgspec.Struct, frozen=True):
    """Hand the publication to the local client that holds this subscription."""

    subscription_id: SubscriptionId
    publication: Publication
    hops: int
    via: str = "tree"


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Fire `name` after `after_us`; setting a timer again replaces it."""

    name: str
    after_us: TimeUs


@dataclass(frozen=True, slots=True)
class CancelTimer:
    name: str


@dataclass(frozen=True, slots=True)
class Note:
    """What the driver cannot see, such as a bad message that was dropped."""

    text: str


@dataclass(frozen=True, slots=True)
class Move:
    """Tell the publisher of this advertisement to pause and go to another broker."""

    advertisement_id: AdvertisementId
    target: BrokerId
    epoch: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Tell the publisher that it may publish here. `cut`: a link failed, and another broker
    may still think that the publisher is its own."""

    advertisement_id: AdvertisementId
    epoch: int
    cut: bool


@dataclass(frozen=True, slots=True)
class Ping:
    """Have the publisher measure its way to each of these brokers: `Pinged` answers.

    `links` is what brokers have measured of theirs: from, to, how long.
    """

    advertisement_id: AdvertisementId
    brokers: tuple[BrokerId, ...]
    links: tuple[tuple[BrokerId, BrokerId, TimeUs], ...]


@dataclass(frozen=True, slots=True)
class Measure:
    """Ask the driver for this broker's own delays: `Measured` answers."""


ToPublisher = Move | Resume | Ping
Effect = Send | Deliver | SetTimer | CancelTimer | Note | ToPublisher | Measure


class Router(ABC):
    """One broker's routing state. Schemes override the `on_*` handlers they need.

    `stateless` says that a publication changes nothing in it but `matches_count`; `divides_by` are
    the attributes that say which part of the network carries a publication: each has one value.
    """

    stateless: ClassVar[bool] = False
    divides_by: frozenset[str] = frozenset()

    def __init__(self, broker: BrokerId) -> None:
        self.broker = broker
        self.matches_count = 0  # publications this router has compared with its table

    @final
    def step(self, input: Input, now: TimeUs) -> list[Effect]:
        """The only door: one input in, the effects out, state changes finished."""
        if type(input) is Received:  # by far the most frequent input
            return self.on_message(input.message, input.sender, now)
        if type(input) is Publish:
            publication = input.publication
            name = in_rows(publication.attributes, self.divides_by) if self.divides_by else None
            if name is not None:
                return [Note(f"dropped: {name} is an array, and this scheme divides content by it")]
            return self.on_publish(publication, now)
        match input:
            case Publish(publication):
                return self.on_publish(publication, now)
            case Subscribe(subscription):
                return self.on_subscribe(subscription, now)
            case Unsubscribe(subscription_id):
                return self.on_unsubscribe(subscription_id, now)
            case Advertise(advertisement):
                return self.on_advertise(advertisement, now)
            case Unadvertise(advertisement_id):
                return self.on_unadvertise(advertisement_id, now)
            case TimerFired(name):
                return self.on_timer(name, now)
            case LinkUp(peer):
                return self.on_link_up(peer, now)
            case LinkDown(peer):
                return self.on_link_down(peer, now)
            case Start():
                return self.on_start(now)
            case Leave():
                return self.on_leave(now)
            case Migrate() | Paused() | Pinged() | Measured():
                return self.on_relocation(input, now)
            case Received(message, sender):
                return self.on_message(message, sender, now)

    def recipients(self, topic: str, sender: BrokerId | None = None) -> Recipients | None:
        """The subscriptions and the neighbours that get each publication of this class that a
        client makes here, or that comes from `sender`, in the order of the effects, if a step does
        nothing else with it whatever else it says; None where the router cannot say so.

        A driver may ask once for many publications, until it gives the router another input.
        """
        return None

    def asking(self, sender: BrokerId | None = None) -> Asking | None:
        """What tells the same of each publication by what it says, until the router is given
        another input; None as of `recipients`."""
        return None

    def deciding(self) -> Index[Filter] | None:
        """The filters of all whom `asking` names: what none of them matches goes to nobody. None
        as of `recipients`."""
        return None

    def wanting(self, filter: Filter, sender: BrokerId | None = None) -> Recipients:
        """Whom `asking` names of a publication that this one of the filters matches, and no other;
        of several it names all of them once."""
        return NOBODY

    def tells_all(self, peer: BrokerId) -> bool:
        """Whether this neighbour is asked for each filter that anybody else wants here or beyond.
        Then of those `wanting` knows, the ones that it was asked for and that match a publication
        from there are all that do."""
        return False

    @final
    def interested(
        self, attributes: Mapping[str, Scalar], sender: BrokerId | None = None
    ) -> Recipients | None:
        """The same of one publication that says this, now."""
        ask = self.asking(sender)
        return None if ask is None else ask(attributes)

    @abstractmethod
    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]: ...

    @abstractmethod
    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]: ...

    @abstractmethod
    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]: ...

    @abstractmethod
    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]: ...

    @abstractmethod
    def table_entries(self) -> int:
        """How many routing entries this broker holds now; constant time."""

    def on_advertise(self, advertisement: Advertisement, now: TimeUs) -> list[Effect]:
        return []

    def on_unadvertise(self, advertisement_id: AdvertisementId, now: TimeUs) -> list[Effect]:
        return []

    def on_timer(self, name: str, now: TimeUs) -> list[Effect]:
        return []

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        return []

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        return []

    def on_start(self, now: TimeUs) -> list[Effect]:
        return []

    def on_leave(self, now: TimeUs) -> list[Effect]:
        return []

    def has_left(self) -> bool:
        """Whether a broker that leaves may stop: nobody counts on it any more."""
        return True

    def settled(self) -> bool:
        """Whether nothing that local clients ask for waits for another broker's answer."""
        return True

    def on_relocation(self, input: Relocating, now: TimeUs) -> list[Effect]:
        return [Note("dropped: publishers do not move in this scheme")]

    def idle(self) -> bool:
        """Whether this router means to send nothing more unless it is given something.

        A run ends when nothing is under way and every router is idle, whatever timers remain.
        """
        return True

    def would(self, input: Publish | Received, now: TimeUs) -> tuple[list[Effect], bool]:
        """What `step` would answer to a publication, and whether the router would then hold it;
        nothing is changed by asking. A router that is not stateless is copied for it."""
        router = self if self.stateless else copy.deepcopy(self, self._shared())
        count = self.matches_count
        effects = router.step(input, now)
        self.matches_count = count
        if isinstance(input, Publish):
            return effects, router.holds(input.publication)
        return effects, any(map(router.holds, input.message.publications))

    def _shared(self) -> dict[int, object]:
        """By identity, what a copy of this router shares: publications do not change it."""
        return {}

    def holds(self, publication: Publication) -> bool:
        """Whether this publication waits here to be sent or delivered later."""
        return False

    def check(self) -> None:  # noqa: B027 - a scheme without invariants keeps this one
        """Assert the router's invariants; under test the simulator calls it after each step."""


@dataclass(frozen=True, slots=True)
class Interests:
    """Who will ask for what and who will publish what, as far as a planner may know it."""

    subscriptions: Sequence[tuple[BrokerId, Filter]] = ()
    advertisements: Sequence[tuple[BrokerId, Filter]] = ()
    present: Sequence[tuple[BrokerId, Filter]] = ()  # those subscriptions that are there already


class Plan(Protocol):
    """What a scheme computes once, before any broker runs; routers are made from it."""

    def router(self, broker: BrokerId) -> Router: ...

    def links(self) -> Sequence[Mapping[BrokerId, TimeUs]]:
        """Per broker, the peers it exchanges messages with and the latency to each."""

    def direct_us(self, source: BrokerId, target: BrokerId) -> TimeUs:
        """The latency between two brokers that no link joins, for schemes that leave the tree."""

    def introductions(self, source: BrokerId, target: BrokerId) -> Mapping[str, int]:
        """By kind, the messages that a link is spared because routers start from what the
        planner knew. Drivers count them as sent."""
        return {}

    def pools(self) -> Sequence[FilterPool]:
        """The pools of filters that its routers share."""
        pool: FilterPool | None = getattr(self, "pool", None)
        return [] if pool is None else [pool]
