"""The publisher's side of a move: the thin layer between an application and its brokers.

The application publishes when it likes. While its brokers agree on where it belongs, the layer
holds what it publishes; nothing it was given is forgotten. A pure state machine: each method
returns what to tell which broker, in order. Connections are FIFO.

After a fault the publisher announces itself anew, and publishes again when `GRACE_US` have
passed: the driver calls `on_grace` then. Until subscriptions have come, nobody would hear it. If
the brokers do not agree in time, because a message of theirs was lost, the driver calls
`on_overdue`, and the publisher goes on where it was, by a new epoch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from postroad.model import Advertisement, BrokerId, TimeUs
from postroad.routing.base import Advertise, Input, Migrate, Move, Paused, Resume, Unadvertise

Outbound = list[tuple[BrokerId, Input]]
GRACE_US: Final[TimeUs] = 1_000_000
MOVE_US: Final[TimeUs] = 10_000_000  # by then its brokers must have agreed


class Publisher:
    """A publisher with one advertisement, at `home`, or on its way from there to `target`.

    What it advertises may change: under the same name, by a new epoch.
    """

    def __init__(self, advertisement: Advertisement, home: BrokerId) -> None:
        self.advertisement = advertisement
        self.home = home
        self.target: BrokerId | None = None
        self.held: list[Input] = []
        self.grace = 0  # which grace it waits for; 0 if none
        self._graces = 0
        self.ordered: Move | None = None  # a move to make after the grace

    def give(self, input: Input) -> Outbound:
        """The application publishes, changes what it advertises, or withdraws it."""
        self.held.append(input)
        return [] if self.target is not None or self.grace else self._release()

    def on_move(self, order: Move, broker: BrokerId) -> Outbound:
        """The broker wants this publisher to go elsewhere: pause, and announce itself there."""
        if broker != self.home or self.target is not None:
            return []  # it speaks of a past that a fault has undone
        if order.epoch <= self.advertisement.epoch:
            return []
        if self.grace:  # not before the network agrees on where it is
            self.ordered = order
            return []
        self.advertisement = replace(self.advertisement, epoch=order.epoch)
        self.target = order.target
        return [
            (self.home, Paused(self.advertisement.id, order.epoch)),
            (order.target, Migrate(self.advertisement)),
        ]

    def on_resume(self, word: Resume, broker: BrokerId) -> Outbound:
        """A broker lets this publisher go on there."""
        if word.epoch == self.advertisement.epoch and self.target is not None:
            if broker == self.target:
                left, self.home, self.target = self.home, broker, None
                if not word.cut:
                    return self._release()
                self._wait()
                return [(left, Unadvertise(self.advertisement.id))]
            if broker == self.home:
                return self.go_on_at(broker)
        return [] if broker == self.home else [(broker, Unadvertise(self.advertisement.id))]

    def on_lost(self, broker: BrokerId) -> Outbound:
        """A broker could not be reached, or the connection to it has closed."""
        return self.go_on_at(self.home) if broker == self.target else []

    def on_overdue(self, epoch: int) -> Outbound:
        """`MOVE_US` have passed since it was to move in this epoch."""
        moving = self.target is not None and self.advertisement.epoch == epoch
        return self.go_on_at(self.home) if moving else []

    def on_back(self, broker: BrokerId) -> Outbound:
        """A broker that had crashed is back, with nothing remembered."""
        return self.go_on_at(broker) if broker in (self.home, self.target) else []

    def go_on_at(self, broker: BrokerId) -> Outbound:
        """Settle at one of the two brokers by a new epoch, and withdraw from the other."""
        others = {self.home, self.target} - {broker, None}
        self.home, self.target = broker, None
        self.advertisement = replace(self.advertisement, epoch=self.advertisement.epoch + 1)
        outbound: Outbound = [
            (other, Unadvertise(self.advertisement.id)) for other in others if other is not None
        ]
        self._wait()
        return [*outbound, (broker, Advertise(self.advertisement))]

    def on_grace(self, grace: int) -> Outbound:
        """`GRACE_US` have passed since `grace` was set."""
        if grace != self.grace:
            return []
        self.grace = 0
        outbound = self._release()
        withdrawn = any(isinstance(input, Unadvertise) for _, input in outbound)
        if self.ordered is not None and not withdrawn:
            outbound += self.on_move(self.ordered, self.home)
        return outbound

    def _wait(self) -> None:
        self._graces += 1
        self.grace = self._graces
        self.ordered = None

    def _release(self) -> Outbound:
        outbound: Outbound = []
        for input in self.held:
            if isinstance(input, Advertise):
                epoch = self.advertisement.epoch + 1
                self.advertisement = replace(input.advertisement, epoch=epoch)
                outbound.append((self.home, Advertise(self.advertisement)))
            else:
                outbound.append((self.home, input))
        self.held = []
        return outbound
