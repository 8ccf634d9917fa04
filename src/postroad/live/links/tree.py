"""Which links carry the traffic of a network that has more of them than a tree needs.

A state machine without sockets or clocks, one at each broker. Every broker reports which of its
links are up; reports spread over all links, the newest of each broker wins. A link is up if both
its ends say so. Of the brokers that can reach each other the one with the lowest number proposes
trees: the present one as long as it joins them all, otherwise one that keeps what it can of it.
Proposals spread like reports; a broker takes the highest that names it a member.

Agreement is not needed for safety, only for progress. Two brokers exchange publications only
while both are in the same tree, by name (`Tree.id`), and names only ever grow: so there is no
loop, and nothing that happened in one tree is taken to have happened in another.

A broker that is away for a moment stays a member if the others are joined without it: what is
for it waits, as over any link. It is left out when the tree has to change meanwhile or it stays
away, because over a link that waits for it nothing else is known to be safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from postroad.model import BrokerId, TimeUs

Pair = tuple[BrokerId, BrokerId]
TreeId = tuple[int, BrokerId]

HOLD_US: Final = 1_000_000  # a link that is back within this was never down
PATIENCE_US: Final = 300_000  # what is wrong must stay so for this long before a tree is proposed
AWAY_US: Final = 3_000_000  # a member that is away for longer is left out
LOW_US: Final = 1_000_000  # how often a report is made only because `low` has moved
NEVER: Final[TreeId] = (-1, -1)


class Tree(msgspec.Struct, array_like=True, frozen=True):
    epoch: int
    proposer: BrokerId  # or, of a first tree, the revision of the network file
    links: tuple[Pair, ...]
    members: tuple[BrokerId, ...]

    @property
    def id(self) -> TreeId:
        return self.epoch, self.proposer

    def neighbours(self, broker: BrokerId) -> set[BrokerId]:
        return {a + b - broker for a, b in self.links if broker in (a, b)}


class Report(msgspec.Struct, array_like=True, frozen=True):
    """What one broker says of itself, as of a version."""

    broker: BrokerId
    version: int
    up: tuple[BrokerId, ...]
    settled: TreeId  # the tree in which it knows what everyone wants
    low: str  # it will never again send publications whose keys are lower


def span(members: Iterable[BrokerId], links: Iterable[Pair]) -> tuple[list[Pair], int]:
    """The links that join what earlier ones do not, and in how many parts the members are."""
    root = {member: member for member in members}

    def find(member: BrokerId) -> BrokerId:
        while root[member] != member:
            root[member] = root[root[member]]
            member = root[member]
        return member

    chosen = []
    for a, b in links:
        if a in root and b in root and find(a) != find(b):
            root[find(a)] = find(b)
            chosen.append((a, b))
    return chosen, len(root) - len(chosen)


class Spanning:
    """One broker's part in keeping the tree."""

    def __init__(
        self,
        me: BrokerId,
        members: Sequence[BrokerId],
        links: Sequence[Pair],
        revision: int,
        now: TimeUs,
        kept: tuple[Tree, TreeId] | None = None,
    ) -> None:
        """`revision` grows with each broker that comes or goes: first trees differ, too."""
        self.me, self.members, self.links = me, set(members), list(links)
        first = Tree(0, revision, tuple(span(members, links)[0]), tuple(members))
        self.tree, self.settled = kept or (first, NEVER)
        self.newest = self.tree
        self.low = ""
        self.reports: dict[BrokerId, Report] = {}
        self._untold: dict[BrokerId, set[BrokerId]] = {}  # per connected peer: whose reports
        self._unproposed: set[BrokerId] = set()  # peers that have not been told the newest tree
        self._cut_us: dict[BrokerId, TimeUs] = {}
        self._wrong_us: TimeUs | None = None
        self._whole_us = now  # when last no member was away
        self._since_us = now
        self._state: tuple[set[BrokerId], set[Pair]] | None = None  # of the reports: see _reach
        self._report(now)

    # What happens.

    def connected(self, peer: BrokerId, now: TimeUs) -> None:
        self._cut_us.pop(peer, None)
        self._untold[peer] = set(self.reports)
        self._unproposed.add(peer)
        self._report(now)

    def cut(self, peer: BrokerId, now: TimeUs) -> None:
        if self._untold.pop(peer, None) is not None:
            self._cut_us[peer] = now
            self._unproposed.discard(peer)

    def heard(
        self, peer: BrokerId, tree: Tree | None, reports: Sequence[Report], now: TimeUs
    ) -> None:
        for report in reports:
            known = self.reports.get(report.broker)
            if known is not None and known.version >= report.version:
                continue
            if report.broker == self.me:  # of an earlier life, by a clock that ran ahead
                self._report(report.version + 1)
            else:
                self.reports[report.broker] = report
                self._tell(report.broker, peer)
        if tree is not None and tree.id > self.newest.id:
            self.newest = tree
            self._unproposed = set(self._untold) - {peer}
            self._take_newest()

    def change(self, members: Sequence[BrokerId], links: Sequence[Pair]) -> None:
        """Brokers came or left."""
        self.members, self.links = set(members), list(links)
        self._state = None
        self._take_newest()

    def _take_newest(self) -> None:
        if self.me in self.newest.members and self.members.issuperset(self.newest.members):
            self.tree = self.newest

    @property
    def whole(self) -> bool:
        """Whether the tree has only brokers that belong to the network."""
        return self.members.issuperset(self.tree.members)

    def has_settled(self, tree: TreeId, now: TimeUs) -> None:
        self.settled = tree
        self._report(now)

    def tick(self, now: TimeUs) -> None:
        gone = [peer for peer, since in self._cut_us.items() if now - since >= HOLD_US]
        for peer in gone:
            del self._cut_us[peer]
        mine = self.reports[self.me]
        if gone or (self.low != mine.low and now - mine.version >= LOW_US):
            self._report(now)
        wanted = self._wanted(now)
        if wanted is None:
            self._wrong_us = None
        elif self._wrong_us is None:
            self._wrong_us = now
        elif now - max(self._wrong_us + PATIENCE_US, self._since_us + HOLD_US) >= 0:
            self._wrong_us = None
            self._propose(wanted)

    # What there is to say.

    def take(self, peer: BrokerId) -> tuple[Tree | None, list[Report]] | None:
        """What this peer has not been told yet."""
        untold = self._untold.get(peer)
        if untold is None or not (untold or peer in self._unproposed):
            return None
        tree = self.newest if peer in self._unproposed else None
        reports = [self.reports[broker] for broker in sorted(untold)]
        untold.clear()
        self._unproposed.discard(peer)
        return tree, reports

    def _report(self, now: TimeUs) -> None:
        known = self.reports.get(self.me)
        version = now if known is None else max(now, known.version + 1)
        up = tuple(sorted({*self._untold, *self._cut_us}))
        self.reports[self.me] = Report(self.me, version, up, self.settled, self.low)
        self._tell(self.me, None)

    def _tell(self, broker: BrokerId, sender: BrokerId | None) -> None:
        self._state = None
        for peer, untold in self._untold.items():
            if peer != sender:
                untold.add(broker)

    # What there is to do.

    def _reach(self) -> tuple[set[BrokerId], set[Pair]]:
        """Who can be reached, and which links are up."""
        if self._state is None:
            up_of = {broker: report.up for broker, report in self.reports.items()}
            up = {(a, b) for a, b in self.links if b in up_of.get(a, ()) and a in up_of.get(b, ())}
            reached: set[BrokerId] = set()
            more = {self.me}
            while more:
                reached |= more
                more = {a + b - c for a, b in up for c in (a, b) if c in reached} - reached
            self._state = reached, up
        return self._state

    def _wanted(self, now: TimeUs) -> tuple[set[BrokerId], set[Pair]] | None:
        """Whom a new tree has to join, and over what; None if it is not mine or all is well."""
        reach, up = self._reach()
        if self.me != min(reach):
            return None
        tree = self.tree
        if reach >= set(tree.members):
            self._whole_us = now
        well = (
            tree.id == self.newest.id
            and self.whole
            and reach <= set(tree.members)
            and span(reach, [link for link in tree.links if link in up])[1] == 1
            and now - self._whole_us <= AWAY_US
            # While somebody is away, nobody else can learn what everyone wants.
            and (
                reach == set(tree.members)
                or all(self.reports[broker].settled == tree.id for broker in reach)
            )
        )
        return None if well else (reach, up)

    def _propose(self, wanted: tuple[set[BrokerId], set[Pair]]) -> None:
        reach, up = wanted
        present = [link for link in self.newest.links if link in up]
        links, _ = span(reach, [*present, *(link for link in self.links if link in up)])
        epoch = self.newest.epoch + 1
        self.tree = self.newest = Tree(epoch, self.me, tuple(links), tuple(sorted(reach)))
        self._unproposed = set(self._untold)
