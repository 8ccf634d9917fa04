"""Moving a publisher to another broker while publications flow (POP and GRAPE, section III-C).

Idea: only the brokers between the source and the target change. The source tells the publisher
to pause. The publisher sends `Paused` to the source behind its last publication, and the
migration advertisement (`Migrate`) to the target. A `migration_update` goes from the target to
the source; each broker on the way *adds* the hop that it came over and forwards there every
subscription that the advertisement meets. When both the update and `Paused` are with the source,
a `migration_complete` goes back; each broker drops the hop that it came over, and unsubscribes
there what no other advertisement needs. The target then lets the publisher resume.

State: per advertisement that moves, its second hop (`arriving`); at the source, whether the
publisher has paused (`leaving`). Links are FIFO and carry data and control alike, so whatever the
publisher sent before pausing precedes the completion, and every subscription that the target
needs arrives there before it.

When a link on the way fails, the broker on the source's side drops the new hop and tells the
source (`migration_abort`), and the one on the target's side drops the old hop and tells the
target (`migration_complete`, cut). Either may let the publisher resume; it takes the first and
withdraws from the other. If the target crashes, the publisher sees its connection there close,
and goes on at the source. An advertisement's `epoch` grows with each move and each such choice;
where two parts of the network meet again, the later epoch replaces the earlier.

Where we differ from the paper: it replaces the hop at once, as the update passes, and removes
subscriptions then. That loses what is in flight, and what is published before the update has
reached the source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from postroad.model import Advertisement, AdvertisementId, BrokerId, TimeUs
from postroad.relocation.host import RelocationHost
from postroad.routing.base import (
    AdvertisementMessage,
    Effect,
    Message,
    Migrate,
    Move,
    Note,
    Paused,
    Relocating,
    Resume,
    Send,
)
from postroad.routing.pool import FilterPool
from postroad.routing.tables import LOCAL


@dataclass(frozen=True, slots=True)
class MigrationUpdate(Message):
    """From the target to the source: the publisher comes, over the link this came over."""

    kind = "migration_update"
    wire = "migration.MigrationUpdate"
    advertisement: Advertisement

    def __str__(self) -> str:
        return f"migration_update {self.advertisement.id}, epoch {self.advertisement.epoch}"


@dataclass(frozen=True, slots=True)
class MigrationComplete(Message):
    """To the target: nothing more comes from the source."""

    kind = "migration_complete"
    wire = "migration.MigrationComplete"
    advertisement_id: AdvertisementId
    epoch: int
    cut: bool

    def __str__(self) -> str:
        return f"migration_complete {self.advertisement_id}, epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class MigrationAbort(Message):
    """To the source: the target cannot be reached."""

    kind = "migration_abort"
    wire = "migration.MigrationAbort"
    advertisement_id: AdvertisementId
    epoch: int

    def __str__(self) -> str:
        return f"migration_abort {self.advertisement_id}, epoch {self.epoch}"


MESSAGES = (MigrationUpdate, MigrationComplete, MigrationAbort)


@dataclass(slots=True)
class Leaving:
    """A publisher that was told to move away from here."""

    epoch: int
    paused: bool = False


class Migration(RelocationHost):
    """A scheme whose publishers can move; `config` is the scheme's own."""

    def __init__(self, broker: BrokerId, config: Any, pool: FilterPool) -> None:
        super().__init__(broker, config, pool)
        self.arriving: dict[AdvertisementId, tuple[Advertisement, BrokerId]] = {}
        self.leaving: dict[AdvertisementId, Leaving] = {}

    # The move.

    def can_move(self, advertisement_id: AdvertisementId) -> bool:
        return (
            self.advertisements[advertisement_id][1] == LOCAL
            and advertisement_id not in self.leaving
            and advertisement_id not in self.arriving
        )

    def move(self, advertisement_id: AdvertisementId, target: BrokerId) -> list[Effect]:
        """Tell a local publisher to go to another broker."""
        assert self.can_move(advertisement_id)
        epoch = self.advertisements[advertisement_id][0].epoch + 1
        self.leaving[advertisement_id] = Leaving(epoch)
        return [Move(advertisement_id, target, epoch)]

    def on_relocation(self, input: Relocating, now: TimeUs) -> list[Effect]:
        match input:
            case Migrate(advertisement):
                return self._on_migrate(advertisement)
            case Paused(advertisement_id, epoch):
                leaving = self.leaving.get(advertisement_id)
                if leaving is None or leaving.epoch != epoch:
                    return [Note(f"dropped: {advertisement_id} has left, or was never to leave")]
                leaving.paused = True
                return self._complete(advertisement_id)
            case _:
                return super().on_relocation(input, now)

    def _on_migrate(self, advertisement: Advertisement) -> list[Effect]:
        name = advertisement.id
        if name not in self.advertisements:
            return [
                *self.announce(advertisement, LOCAL),
                Resume(name, advertisement.epoch, cut=True),
            ]
        _, hop = self.advertisements[name]
        if hop == LOCAL or self._epoch(name) >= advertisement.epoch:
            return [Note(f"dropped: {name} is already past epoch {advertisement.epoch}")]
        effects = self._drop_new(name)
        self.arriving[name] = (advertisement, LOCAL)
        self.count_met(advertisement, LOCAL, 1)
        return [*effects, Send(hop, MigrationUpdate(advertisement))]

    def _on_update(self, advertisement: Advertisement, sender: BrokerId) -> list[Effect]:
        name = advertisement.id
        back = Send(sender, MigrationComplete(name, advertisement.epoch, cut=True))
        if name not in self.advertisements:  # withdrawn while the update was under way
            return [*self.announce(advertisement, sender), back]
        _, hop = self.advertisements[name]
        if self._epoch(name) >= advertisement.epoch:
            return [Note(f"dropped: {name} is already past epoch {advertisement.epoch}")]
        if hop == sender:
            self.advertisements[name] = (advertisement, sender)
            return [back]
        effects = self._drop_new(name)
        self.arriving[name] = (advertisement, sender)
        effects += self.refresh(self.count_met(advertisement, sender, 1), [sender])
        if hop == LOCAL:
            return effects + self._complete(name)
        return [*effects, Send(hop, MigrationUpdate(advertisement))]

    def _complete(self, name: AdvertisementId) -> list[Effect]:
        """At the source: send the completion once both the update and `Paused` are here."""
        leaving = self.leaving.get(name)
        arriving = self.arriving.get(name)
        if leaving is None or arriving is None or not leaving.paused:
            return []
        assert leaving.epoch == arriving[0].epoch
        return [*self._drop_old(name), self._onward(name, cut=False)]

    def _onward(self, name: AdvertisementId, cut: bool) -> Effect:
        """Pass the completion on towards the target; there, let the publisher resume."""
        advertisement, hop = self.advertisements[name]
        if hop == LOCAL:
            return Resume(name, advertisement.epoch, cut)
        return Send(hop, MigrationComplete(name, advertisement.epoch, cut))

    def _on_complete(self, message: MigrationComplete, sender: BrokerId) -> list[Effect]:
        name = message.advertisement_id
        if name in self.advertisements and self.advertisements[name][1] == sender:
            if name in self.arriving:
                if self.arriving[name][0].epoch == message.epoch:
                    return [*self._drop_old(name), self._onward(name, message.cut)]
            elif self.advertisements[name][0].epoch < message.epoch:
                return self.withdraw(name, sender)  # the way to the target failed since
        return [Note(f"dropped: {name} does not move from {sender} in epoch {message.epoch}")]

    def _on_abort(self, message: MigrationAbort, sender: BrokerId) -> list[Effect]:
        name = message.advertisement_id
        arriving = self.arriving.get(name)
        if arriving is not None and arriving[1] == sender and arriving[0].epoch == message.epoch:
            return self._drop_new(name) + self._back(name, message.epoch)
        if name in self.advertisements:
            known, hop = self.advertisements[name]
            if hop == sender and known.epoch == message.epoch:  # completed here meanwhile
                return self.withdraw(name, sender)
        return [Note(f"dropped: {name} does not move to {sender} in epoch {message.epoch}")]

    def _back(self, name: AdvertisementId, epoch: int) -> list[Effect]:
        """The target is cut off: tell the source; there, let the publisher go on."""
        _, hop = self.advertisements[name]
        if hop != LOCAL:
            return [Send(hop, MigrationAbort(name, epoch))]
        self.leaving.pop(name, None)
        return [Resume(name, epoch, cut=True)]

    # Hops.

    def _epoch(self, name: AdvertisementId) -> int:
        """The latest epoch heard of."""
        known = self.advertisements[name][0].epoch
        return max(known, self.arriving[name][0].epoch) if name in self.arriving else known

    def _drop_new(self, name: AdvertisementId) -> list[Effect]:
        if name not in self.arriving:
            return []
        advertisement, hop = self.arriving.pop(name)
        met = self.count_met(advertisement, hop, -1)
        return self.refresh(met, [hop]) if hop in self.outgoing else []

    def _drop_old(self, name: AdvertisementId) -> list[Effect]:
        advertisement, hop = self.advertisements[name]
        self.leaving.pop(name, None)
        self.advertisements[name] = self.arriving.pop(name)
        met = self.count_met(advertisement, hop, -1)
        effects = self.publisher_turned(name)
        return effects + (self.refresh(met, [hop]) if hop in self.outgoing else [])

    def announce(self, advertisement: Advertisement, source: BrokerId) -> list[Effect]:
        name = advertisement.id
        if name not in self.advertisements or self._epoch(name) >= advertisement.epoch:
            return super().announce(advertisement, source)
        # A later epoch: the publisher is elsewhere than was thought, whatever was under way.
        known, hop = self.advertisements[name]
        arriving = self.arriving.pop(name, None)
        self.leaving.pop(name, None)
        self.advertisements[name] = (advertisement, source)
        met = self.count_met(advertisement, source, 1) + self.count_met(known, hop, -1)
        former = [hop]
        if arriving is not None:
            self.count_met(arriving[0], arriving[1], -1)
            former.append(arriving[1])
        effects = self.publisher_turned(name)
        onward = AdvertisementMessage(advertisement)
        effects += [Send(peer, onward) for peer in self.outgoing if peer != source]
        changed = [peer for peer in dict.fromkeys([source, *former]) if peer in self.outgoing]
        return effects + self.refresh(list(dict.fromkeys(met)), changed)

    def withdraw(self, advertisement_id: AdvertisementId, source: BrokerId) -> list[Effect]:
        name = advertisement_id
        if name in self.arriving:
            advertisement, hop = self.arriving[name]
            if hop == source:
                return self._drop_new(name) + self._back(name, advertisement.epoch)
            if self.advertisements[name][1] == source:
                return [*self._drop_old(name), self._onward(name, cut=True)]
        elif source == LOCAL:
            self.leaving.pop(name, None)
        return super().withdraw(name, source)

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        effects = super().on_link_down(peer, now)
        for name in [name for name, (_, hop) in self.arriving.items() if hop == peer]:
            effects += self.withdraw(name, peer)
        return effects

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        match message:
            case MigrationUpdate(advertisement):
                return self._on_update(advertisement, sender)
            case MigrationComplete():
                return self._on_complete(message, sender)
            case MigrationAbort():
                return self._on_abort(message, sender)
            case _:
                return super().on_message(message, sender, now)

    def offers(self) -> Iterable[tuple[Advertisement, BrokerId]]:
        return chain(super().offers(), self.arriving.values())

    def table_entries(self) -> int:
        return super().table_entries() + len(self.arriving)

    def check(self) -> None:
        super().check()
        for name, (advertisement, hop) in self.arriving.items():
            known, old = self.advertisements[name]
            assert old != hop
            assert known.epoch < advertisement.epoch
        for name in self.leaving:
            assert self.advertisements[name][1] == LOCAL
