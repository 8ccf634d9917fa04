"""What POP and GRAPE share: telling which publications are traced, and where they go from here.

A publisher's first broker writes a trace header on a publication; every broker that handles it
sees, from the effects of its own step, to how many local subscribers it was delivered and over
which links it went on. A publisher is traced, and may move, if it has exactly one advertisement
at its broker; whoever drives the routers joins several into one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from postroad.filters import Filter
from postroad.model import (
    Advertisement,
    AdvertisementId,
    BrokerId,
    Publication,
    TimeUs,
    Trace,
)
from postroad.relocation.host import Decider, Seen
from postroad.relocation.migration import Migration
from postroad.routing.base import Deliver, Effect, Message, PublicationMessage, Send
from postroad.routing.pool import FilterPool
from postroad.routing.tables import LOCAL


class PublisherTracing(Migration, Decider):
    def __init__(self, seed: int, broker: BrokerId, config: Any, pool: FilterPool) -> None:
        super().__init__(broker, config, pool)
        self.seed = seed
        # Per local publisher, its advertisements that are here or on their way here.
        self.offered: dict[str, dict[AdvertisementId, int]] = {}

    def count_met(self, advertisement: Advertisement, source: BrokerId, step: int) -> list[Filter]:
        if source == LOCAL:
            own = self.offered.setdefault(advertisement.publisher, {})
            own[advertisement.id] = own.get(advertisement.id, 0) + step
            if not own[advertisement.id]:
                del own[advertisement.id]
                if not own:
                    del self.offered[advertisement.publisher]
        return super().count_met(advertisement, source, step)

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        name = self._mine(publication)
        trace = None if name is None else self.next_trace(name, now)
        if trace is not None:
            publication = replace(publication, trace=trace)
        effects = super().on_publish(publication, now)
        return effects + self._observe([publication], effects, LOCAL)

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        effects = super().on_message(message, sender, now)
        if type(message) is PublicationMessage:  # the usual: all that follows is of this one
            trace = message.publication.trace
            if trace is None:
                return effects
            one = Seen(message.publication, trace)
            for effect in effects:
                if type(effect) is Deliver:
                    one.deliveries += 1
                elif type(effect) is Send:
                    one.links[effect.peer] = None
            return effects + self.saw_traced(one, sender)
        if message.carries:
            effects += self._observe(message.publications, effects, sender)
        return effects

    def _observe(
        self, arrived: Iterable[Publication], effects: list[Effect], sender: BrokerId
    ) -> list[Effect]:
        seen_of: dict[Trace, Seen] = {}

        def seen(publication: Publication, trace: Trace) -> Seen:
            return seen_of.setdefault(trace, Seen(publication, trace))

        for publication in arrived:
            if publication.trace is not None:
                seen(publication, publication.trace).deliveries += self.deliveries_waiting(
                    publication
                )
        for effect in effects:
            if isinstance(effect, Deliver):
                if effect.publication.trace is not None:
                    seen(effect.publication, effect.publication.trace).deliveries += 1
            elif isinstance(effect, Send) and effect.message.carries:
                for publication in effect.message.publications:
                    if publication.trace is not None:
                        seen(publication, publication.trace).links[effect.peer] = None
        return [effect for one in seen_of.values() for effect in self.saw_traced(one, sender)]

    def _mine(self, publication: Publication) -> AdvertisementId | None:
        """The advertisement of a local publisher, if it has one only."""
        names = [
            name
            for name in self.offered.get(publication.publisher, ())
            if self.advertisements[name][1] == LOCAL
        ]
        return names[0] if len(names) == 1 else None

    def check(self) -> None:
        super().check()
        here = [
            (advertisement.publisher, name)
            for known in (self.advertisements, self.arriving)
            for name, (advertisement, hop) in known.items()
            if hop == LOCAL
        ]
        assert sorted(here) == sorted(
            (who, name) for who, own in self.offered.items() for name in own
        )

    def publisher_turned(self, name: AdvertisementId) -> list[Effect]:
        self.forget_traces(name)
        return super().publisher_turned(name)

    def withdraw(self, advertisement_id: AdvertisementId, source: BrokerId) -> list[Effect]:
        effects = super().withdraw(advertisement_id, source)
        if advertisement_id not in self.advertisements:
            self.forget_traces(advertisement_id)
        return effects
