"""PopSub whose publishers can move: what a publisher's broker keeps of it goes along.

Batches that wait are sent before the publisher leaves, its publications go on being numbered,
and gains are counted anew where it is now to be found in another direction. Gossip is left out:
its groups know their publisher by its broker.
"""

from __future__ import annotations

from postroad.model import AdvertisementId, BrokerId, Publication
from postroad.relocation.grape import Grape, Session
from postroad.relocation.migration import Migration
from postroad.relocation.pop import Pop
from postroad.routing.advertisement_forwarding import meet
from postroad.routing.base import Effect
from postroad.routing.popsub import PopSub
from postroad.routing.tables import LOCAL


class MovingPopSub(Migration, PopSub):
    def _flush(self, name: AdvertisementId) -> list[Effect]:
        effects: list[Effect] = []
        for key in [key for key in self.buffers if key[1] == name]:
            effects += self._send_batch(key)
        return effects

    def _depart(self, advertisement_id: AdvertisementId) -> tuple[int, list[Effect]]:
        effects = self._flush(advertisement_id)
        return self.numbers.get(advertisement_id, 0), effects

    def _settle(self, advertisement_id: AdvertisementId, number: int) -> None:
        self.numbers[advertisement_id] = max(number, self.numbers.get(advertisement_id, 0))

    def _turned(self, name: AdvertisementId) -> None:
        super()._turned(name)
        advertisement, hop = self.advertisements[name]
        if hop == LOCAL:
            self.numbers.setdefault(name, 0)
        else:
            self.numbers.pop(name, None)
        for gains in self.gains.values():
            gains.pop(name, None)
        for entry in self.entries.values():
            if entry.source not in (LOCAL, hop) and meet(advertisement.filter, entry.filter):
                self._gain(entry, name, 1)


class PopOnPopSub(Pop, MovingPopSub):
    def _keeps_to_tree(self, publication: Publication) -> bool:
        return publication.trace is not None or super()._keeps_to_tree(publication)


class GrapeOnPopSub(Grape, MovingPopSub):
    def _downstream(self, name: AdvertisementId, session: Session) -> list[BrokerId]:
        return [peer for peer, gains in self.gains.items() if name in gains and gains[name].count]
