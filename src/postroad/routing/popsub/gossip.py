"""A gossip group as one broker sees it: lpbcast (Eugster et al.), as PopSub section 4.5 uses it.

There is a group per advertisement. The publisher numbers what it gossips, so a member knows
what it lacks: everything between the number it joined after and the highest it has heard of.
The publisher sends what is new once a round; a member passes on what is new to it at once, so
that a publication is not held up a round at every hop. Each round a member sends its digest to
some of its view, and whoever has what it lacks answers.

Views are partial and may leave a member unreachable (the paper says this cannot happen; with
bounded views it can). Hence the publisher stays in every member's view, and a member asks the
publisher itself every `HOME_ROUNDS` rounds, and every round until it has had an answer: without
losses it has everything within `HOME_ROUNDS` rounds. A member is idle after `QUIET_ROUNDS`
rounds without news; by then it has asked the publisher five times.

When gossip ends a member leaves once it has everything. The publisher's broker then answers who
asks, and forgets a group whose advertisement has gone, or moved, after `QUIET_ROUNDS` rounds in
which nobody did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from postroad.model import AdvertisementId, BrokerId
from postroad.routing.popsub.messages import Gossip, Post

HOME_ROUNDS: Final = 5
QUIET_ROUNDS: Final = 25
ANSWER_MAX: Final = 256  # publications in one answer; the rest is asked for again
CACHE_MAX: Final = 8192  # publications kept for others to ask for


@dataclass(slots=True)
class Group:
    """The lpbcast sets of one broker for one advertisement."""

    advertisement_id: AdvertisementId
    epoch: int
    publisher: BrokerId
    broker: BrokerId
    since: int  # publications up to this number came, or will come, over the tree
    view: dict[BrokerId, None]
    highest: int = 0
    posts: dict[int, Post] = field(default_factory=dict)
    had: set[int] = field(default_factory=set)
    fresh: list[int] = field(default_factory=list)  # M
    subscribers: dict[BrokerId, None] = field(default_factory=dict)  # S
    unsubscribers: dict[BrokerId, None] = field(default_factory=dict)  # U
    answered: bool = False
    leave_after: int | None = None
    rounds: int = 0
    quiet: int = 0

    @property
    def key(self) -> tuple[AdvertisementId, int]:
        return self.advertisement_id, self.epoch

    def take(self, number: int, post: Post) -> bool:
        """Record a publication; True if it is new here."""
        self.highest = max(self.highest, number)
        if number <= self.since or number in self.had:
            return False
        self.had.add(number)
        while self.since + 1 in self.had:  # keep only what lies beyond the gap-free part
            self.since += 1
            self.had.remove(self.since)
        self.posts[number] = post
        if len(self.posts) > CACHE_MAX:
            del self.posts[next(iter(self.posts))]
        self.fresh.append(number)
        self.quiet = 0
        return True

    def lacking(self) -> tuple[int, ...]:
        """The numbers up to the highest that are not here yet."""
        return tuple(
            number for number in range(self.since + 1, self.highest + 1) if number not in self.had
        )

    def over(self) -> bool:
        """Whether this is the publisher's broker, and nothing more comes from it."""
        return self.leave_after is not None and self.publisher == self.broker

    def done(self) -> bool:
        """Whether this member may leave: it has all it was to get by gossip, or asks in vain; the
        publisher's broker, when nobody asks."""
        if self.leave_after is None or self.quiet >= QUIET_ROUNDS:
            return self.leave_after is not None
        return self.since >= self.leave_after and self.publisher != self.broker

    def idle(self) -> bool:
        return not self.fresh and self.quiet >= QUIET_ROUNDS

    def gossip(self, numbers: list[int], purpose: str) -> Gossip:
        """A gossip with these publications and what is known of members."""
        known = [(number, self.posts[number]) for number in numbers if number in self.posts]
        return Gossip(
            self.advertisement_id,
            self.epoch,
            self.publisher,
            tuple(known),
            self.highest,
            self.lacking(),
            tuple(self.subscribers),
            tuple(self.unsubscribers),
            purpose,
        )

    def answer(self, heard: Gossip) -> list[int]:
        """What the sender of a gossip lacks and this broker can give."""
        lacking = set(heard.lacking)
        return [number for number in self.posts if number > heard.highest or number in lacking][
            :ANSWER_MAX
        ]

    def can_give(self, heard: Gossip) -> bool:
        """Whether the sender of a gossip has something that is lacking here."""
        lacking = set(heard.lacking)
        return any(number <= heard.highest and number not in lacking for number in self.lacking())

    def meet(self, heard: Gossip, sender: BrokerId, view_max: int) -> list[BrokerId]:
        """Take up a gossip's news of members; those that no longer fit in the view."""
        self.highest = max(self.highest, heard.highest)
        for member in heard.unsubscribers:
            if member != self.publisher:
                self.view.pop(member, None)
                self.subscribers.pop(member, None)
                self._remember(self.unsubscribers, member, view_max)
        for member in (*heard.subscribers, sender):
            if member == self.broker or member in heard.unsubscribers:
                continue
            self.unsubscribers.pop(member, None)
            if member not in self.view:
                self.view[member] = None
                self._remember(self.subscribers, member, view_max)
        removable = [member for member in self.view if member != self.publisher]
        return removable if len(self.view) > view_max else []

    def evict(self, member: BrokerId, view_max: int) -> None:
        """Drop a member from the view; it is passed on, so that others keep it."""
        del self.view[member]
        self._remember(self.subscribers, member, view_max)

    def _remember(self, known: dict[BrokerId, None], member: BrokerId, most: int) -> None:
        known.pop(member, None)
        known[member] = None
        if len(known) > most:
            del known[next(iter(known))]
