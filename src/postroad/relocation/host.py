"""The two interfaces of relocation: to the scheme below it, and to what decides above it.

`RelocationHost` is what moving publishers need of the scheme that they stand on, with the answers
of advertisement-based forwarding, where nothing waits in a broker; `on_popsub.py` has PopSub's.
Besides these, migration uses the scheme's tables (`advertisements`, `outgoing`) and refines how it
learns of advertisements: `announce`, `withdraw`, `count_met`, `offers`, `refresh`.

`Decider` is what the tracing of publications needs of POP or GRAPE, which decide who moves where.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field

from postroad.model import AdvertisementId, BrokerId, Publication, TimeUs, Trace
from postroad.routing.advertisement_forwarding import AdvertisementForwarding
from postroad.routing.base import Effect


class RelocationHost(AdvertisementForwarding):
    stateless = False  # a publication may be traced

    def send_waiting(self, name: AdvertisementId) -> list[Effect]:
        """Send what still waits here of a publisher's publications."""
        return []

    def deliveries_waiting(self, publication: Publication) -> int:
        """How many deliveries of a publication wait here to be made in order."""
        return 0

    def publisher_turned(self, name: AdvertisementId) -> list[Effect]:
        """A publisher is now to be found in another direction, or in another epoch."""
        return []

    def reached_by(self, name: AdvertisementId, links: Iterable[BrokerId]) -> list[BrokerId]:
        """Behind which neighbours there are deliveries of what was sent over these links."""
        return list(links)


@dataclass(slots=True)
class Seen:
    """What one step did with a traced publication."""

    publication: Publication
    trace: Trace
    deliveries: int = 0
    links: dict[BrokerId, None] = field(default_factory=dict)


class Decider(ABC):
    @abstractmethod
    def next_trace(self, name: AdvertisementId, now: TimeUs) -> Trace | None:
        """The header for the next publication of a local publisher, if it is to be traced."""

    @abstractmethod
    def saw_traced(self, seen: Seen, sender: BrokerId) -> list[Effect]:
        """A traced publication was handled here."""

    @abstractmethod
    def forget_traces(self, name: AdvertisementId) -> None:
        """A publisher has gone elsewhere: what was traced of it here is void."""
