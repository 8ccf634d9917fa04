"""PopSub whose publishers can move: what a publisher's broker keeps of it goes along.

Batches that wait are sent before the publisher leaves, and gains are counted anew where it is now
to be found in another direction. A gossip group ends when its publisher leaves: the source goes on
answering the members that lack something, as it does when gossip ends for another reason, and the
target begins another group, in another epoch. Numbers of publications grow with the epoch, so
that buffers which put them in order need not know of the move.
"""

from __future__ import annotations

from collections.abc import Iterable

from postroad.model import AdvertisementId, BrokerId, Publication
from postroad.relocation.grape import Grape
from postroad.relocation.host import RelocationHost, Seen
from postroad.relocation.pop import Pop
from postroad.routing.base import Effect
from postroad.routing.popsub import PopSub
from postroad.routing.popsub.messages import EPOCH
from postroad.routing.tables import LOCAL


class PopSubHost(RelocationHost, PopSub):
    def send_waiting(self, name: AdvertisementId) -> list[Effect]:
        effects: list[Effect] = []
        for key in [key for key in self.buffers if key[1] == name]:
            effects += self.send_batch(key)
        return effects

    def deliveries_waiting(self, publication: Publication) -> int:
        assert publication.trace is not None
        held = self.held.get(publication.trace.advertisement_id, {})
        waiting = (delivery for deliveries in held.values() for delivery in deliveries)
        return sum(delivery.publication.key == publication.key for delivery in waiting)

    def publisher_turned(self, name: AdvertisementId) -> list[Effect]:
        effects = [*self.send_waiting(name), *self.end_gossip(name)]
        advertisement, hop = self.advertisements[name]
        if hop == LOCAL:
            self.numbers[name] = advertisement.epoch * EPOCH
        else:
            self.numbers.pop(name, None)
        for gains in self.gains.values():
            gains.pop(name, None)
        self.count_gains(advertisement, hop)
        return effects

    def reached_by(self, name: AdvertisementId, links: Iterable[BrokerId]) -> list[BrokerId]:
        # What went directly leaves no trace on the way.
        return [peer for peer, gains in self.gains.items() if name in gains and gains[name].count]


class PopOnPopSub(Pop, PopSubHost):
    def keeps_to_tree(self, publication: Publication) -> bool:
        return publication.trace is not None or super().keeps_to_tree(publication)


class GrapeOnPopSub(Grape, PopSubHost):
    def saw_traced(self, seen: Seen, sender: BrokerId) -> list[Effect]:
        # What was gossiped may come when its session is over, or its publisher has gone.
        name = seen.trace.advertisement_id
        known = self.sessions.get(name)
        late = known is not None and _begins_before(seen.trace.session, known.name)
        if late or name not in self.advertisements:
            return []
        return super().saw_traced(seen, sender)


def _begins_before(session: str, other: str) -> bool:
    """Whether a session of the same broker began before another: B34-M212 before B34-M312."""
    (broker, number), (same, later) = session.split("-M"), other.split("-M")
    return broker == same and int(number) < int(later)
