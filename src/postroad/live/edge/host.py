"""What clients need of the broker that serves them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from postroad.filters import Filter
from postroad.live.edge.session import KeptOnward
from postroad.live.links.batch import OutgoingBatch
from postroad.live.links.messages import Handoff, Retain, RunMessage, SessionMessage
from postroad.live.links.neighbour import Onward
from postroad.live.network import Network
from postroad.live.store import Journal
from postroad.matching import Index
from postroad.model import BrokerId, Publication, Scalar, TimeUs
from postroad.routing.base import Input, Message, Recipients
from postroad.traces.recorder import Recorder

# Whether everyone has heard, or time was up; the answer is whether to wait on all the same.
Reached = Callable[[TimeUs, bool], bool | None]


class Host(Protocol):
    @property
    def now(self) -> TimeUs: ...  # of the turn

    @property
    def number(self) -> BrokerId: ...

    @property
    def boot(self) -> str: ...  # a name that no other start of any broker has

    @property
    def network(self) -> Network: ...

    @property
    def journal(self) -> Journal | None: ...  # None: nothing outlives the broker

    @property
    def congested(self) -> bool: ...  # publishers have to wait

    @property
    def traces(self) -> Recorder | None: ...

    # Routing.

    def step(self, input: Input, now: TimeUs) -> bool: ...

    # What the publication causes at neighbours is noted in `onward`.
    def publish(
        self, publication: Publication, now: TimeUs, onward: Onward | None = None
    ) -> None: ...

    # To whom each publication to a topic goes, if it goes nowhere else; that so many went there;
    # and those on to neighbours.
    def recipients(self, topic: str, sender: BrokerId | None = None) -> Recipients | None: ...

    def routes_version(self) -> int: ...

    def content_matters(self, topic: str) -> bool: ...  # besides the topic, to some filter

    def groups_want(self, topic: str) -> bool: ...  # some shared subscription, or it may

    def passed(self, count: int) -> None: ...

    # What tells the same of one publication that says this, of an own client or from a neighbour;
    # the filters that decide it, unless groups want it too, and whom a match with one of them
    # names; and what gathers some for neighbours.
    def asking(
        self, sender: BrokerId | None = None
    ) -> Callable[[Mapping[str, Scalar]], Recipients | None]: ...

    def deciding(self) -> Index[Filter] | None: ...

    def wanting(self, filter: Filter, sender: BrokerId | None = None) -> Recipients: ...

    @property
    def peers(self) -> Mapping[BrokerId, object]: ...  # its neighbours, by their numbers

    def told_all(self, peer: BrokerId) -> bool: ...  # that is wanted here and beyond

    @property
    def outgoing(self) -> OutgoingBatch: ...

    def hand_on(self, publication: Publication, sender: BrokerId, hops: int) -> None: ...

    # Whether something is recorded of some publications, and of how many with these numbers in a
    # row nothing is.
    @property
    def records(self) -> bool: ...

    def untraced(self, boot: str, first: int, most: int) -> int: ...

    def forward(self, run: RunMessage, count: int, peers: list[BrokerId]) -> None: ...

    def settle(self, then: Reached) -> None: ...

    # Shared subscriptions.

    def share(self, handoff: Handoff, now: TimeUs) -> None: ...

    def can_share(self, group: str) -> bool: ...  # whether a member elsewhere is ready

    # Sessions that move.

    @property
    def orderly(self) -> bool: ...  # whether publications keep to the links, in order

    def tell(self, message: SessionMessage, again: bool) -> None: ...

    def spread(self, message: Message, sender: BrokerId | None) -> None: ...

    def send(self, peer: BrokerId, message: Message) -> None: ...

    # Publications that were delivered here and may be sent again, whether one will for sure not,
    # the brokers that may send some again, and whether one has none to send.
    def may_come_again(self) -> list[str]: ...

    # Those of own clients that are not safe yet: nobody sends them here again.
    def kept_publications(self) -> list[Publication]: ...

    def past(self, publication: str) -> bool: ...

    def may_owe(self) -> list[BrokerId]: ...

    def quiet(self, broker: BrokerId) -> bool: ...

    # What is safe.

    def is_safe(self, onward: Onward) -> bool: ...

    def kept_of(self, onward: Onward) -> KeptOnward: ...

    def still(self, kept: KeptOnward) -> Onward: ...

    # What is retained.

    @property
    def retained(self) -> Mapping[str, Retain]: ...

    @property
    def removed(self) -> Mapping[str, TimeUs]: ...

    @property
    def absent(self) -> Mapping[str, TimeUs]: ...

    @property
    def retained_bytes(self) -> int: ...

    def retain(
        self, topic: str, kept: bytes, attributes: dict[str, Scalar], now: TimeUs
    ) -> None: ...

    # Time.

    def advance(self, now: TimeUs) -> None: ...

    def after(self, delay_us: TimeUs, act: Callable[[TimeUs], None]) -> None: ...

    def aside(self, work: Callable[[], bool], then: Callable[[bool, TimeUs], None]) -> None: ...
