"""The publisher's side of a move: the thin layer between an application and its brokers.

The application publishes when it likes. While its brokers agree on where it belongs, the layer
holds what it publishes; nothing it was given is forgotten. A pure state machine: each method
returns what to tell which broker, in order. Connections are FIFO.
"""

from __future__ import annotations

from dataclasses import replace

from postroad.model import Advertisement, BrokerId
from postroad.routing.base import Advertise, Input, Migrate, Move, Paused, Resume, Unadvertise

Told = list[tuple[BrokerId, Input]]


class Publisher:
    """A publisher with one advertisement, at `home`, or on its way from there to `target`."""

    def __init__(self, advertisement: Advertisement, home: BrokerId) -> None:
        self.advertisement = advertisement
        self.home = home
        self.target: BrokerId | None = None
        self.held: list[Input] = []

    def give(self, given: Input) -> Told:
        """The application publishes, or withdraws its advertisement."""
        if self.target is not None:
            self.held.append(given)
            return []
        return [(self.home, given)]

    def on_move(self, order: Move, broker: BrokerId) -> Told:
        """The broker wants this publisher to go elsewhere: pause, and announce itself there."""
        if broker != self.home or self.target is not None:
            return []  # it speaks of a past that a fault has undone
        if order.epoch <= self.advertisement.epoch:
            return []
        self.advertisement = replace(self.advertisement, epoch=order.epoch)
        self.target = order.target
        return [
            (self.home, Paused(self.advertisement.id, order.epoch)),
            (order.target, Migrate(self.advertisement)),
        ]

    def on_resume(self, word: Resume, broker: BrokerId) -> Told:
        """A broker lets this publisher go on there."""
        if word.epoch == self.advertisement.epoch and self.target is not None:
            if broker == self.target:
                left, self.home, self.target = self.home, broker, None
                told: Told = [(left, Unadvertise(self.advertisement.id))] if word.cut else []
                return told + self._release()
            if broker == self.home:
                return self.go_on_at(broker)
        return [] if broker == self.home else [(broker, Unadvertise(self.advertisement.id))]

    def on_lost(self, broker: BrokerId) -> Told:
        """A broker could not be reached."""
        return self.go_on_at(self.home) if broker == self.target else []

    def on_back(self, broker: BrokerId) -> Told:
        """A broker that had crashed is back, with nothing remembered."""
        return self.go_on_at(broker) if broker in (self.home, self.target) else []

    def go_on_at(self, broker: BrokerId) -> Told:
        """Settle at one of the two brokers by a new epoch, and withdraw from the other."""
        others = {self.home, self.target} - {broker, None}
        self.home, self.target = broker, None
        self.advertisement = replace(self.advertisement, epoch=self.advertisement.epoch + 1)
        told: Told = [
            (other, Unadvertise(self.advertisement.id)) for other in others if other is not None
        ]
        return [*told, (broker, Advertise(self.advertisement)), *self._release()]

    def _release(self) -> Told:
        held, self.held = self.held, []
        return [(self.home, given) for given in held]
