"""Scribe and inverted Scribe on small-world rings (section 5.1 of the BeaConvey paper).

Idea: each topic has a rendezvous point, drawn by its name. A publication travels from its
broker to that point, and from there down a tree to the subscribers. In Scribe the tree is made
of the ways from each subscriber to the rendezvous point, walked backwards; in iScribe of the
ways from the rendezvous point to each subscriber.

State: the local subscriptions and the membership (see `ring`). Messages: `publication`, on its
way up to the rendezvous point or down the tree, and `membership`.

Where we differ: Scribe's brokers learn their children from join messages. Ours compute them
from the planned links and the membership, which gives the same trees while all links are up;
a link that is down cuts off what is behind it until it comes up. iScribe's messages name the
subscribers they are for and part where the ways to them part. The whole tree is traversed,
also the branch that leads back to the publisher; addresses of rendezvous points are not
cached (footnote 2).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from postroad import draws
from postroad.model import Publication, TimeUs
from postroad.planning.swico import INCOMING
from postroad.routing.base import CarriesOne, Effect, Message, Note, Send, commas
from postroad.routing.ring import LONG, OVERLAYS, RingRouter, Topic, check_cells, check_choice


@dataclass(frozen=True, slots=True)
class Config:
    """`overlay`: what is planned for interest (S: the ring, L: the fingers; - neither).

    `topic` is the attribute whose text is a publication's topic; with `cells` above 0 the
    content space is cut into so many cells instead, and a cell is a topic.
    """

    overlay: str = "SL"
    long: str = "chord"
    incoming: str = "one"
    topic: str = "class"
    cells: int = 0

    def __post_init__(self) -> None:
        check_choice("overlay", self.overlay, OVERLAYS)
        check_choice("long", self.long, LONG)
        check_choice("incoming", self.incoming, INCOMING)
        check_cells(self.cells)


@dataclass(frozen=True, slots=True)
class UpMessage(CarriesOne):
    """A publication on its way to the rendezvous point."""

    kind = "publication"
    wire = "scribe.UpMessage"
    forwards = True
    publication: Publication
    hops: int

    def __str__(self) -> str:
        return f"publication {self.publication.name}, up"


@dataclass(frozen=True, slots=True)
class DownMessage(CarriesOne):
    """A publication on its way down Scribe's tree."""

    kind = "publication"
    wire = "scribe.DownMessage"
    forwards = True
    publication: Publication
    hops: int

    def __str__(self) -> str:
        return f"publication {self.publication.name}, down"


@dataclass(frozen=True, slots=True)
class TargetsMessage(CarriesOne):
    """A publication on its way from the rendezvous point to these positions."""

    kind = "publication"
    wire = "scribe.TargetsMessage"
    forwards = True
    publication: Publication
    hops: int
    targets: tuple[int, ...]

    def __str__(self) -> str:
        return f"publication {self.publication.name} for positions {commas(self.targets)}"


def rendezvous(topic: Topic, count: int, seed: int) -> int:
    """The position of a topic's rendezvous point: every one is as likely."""
    return draws.below(count, seed, "scribe.rendezvous", draws.purpose_key(topic), 0)


class Rendezvous(RingRouter):
    """The way up, which Scribe and iScribe share."""

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        return self._climb(publication, 0)

    def on_publication(self, message: Message, now: TimeUs) -> list[Effect] | None:
        if isinstance(message, UpMessage):
            return self._climb(message.publication, message.hops)
        return self.on_way_down(message)

    def _climb(self, publication: Publication, hops: int) -> list[Effect]:
        topic = self.topics.of(publication)
        root = rendezvous(topic, len(self.plan.order), self.plan.seed)
        if root == self.position:
            return self.turn(publication, hops, topic)
        return [self.towards(root, UpMessage(publication, hops + 1))]

    @abstractmethod
    def turn(self, publication: Publication, hops: int, topic: Topic) -> list[Effect]:
        """A publication has reached its rendezvous point, this broker."""

    @abstractmethod
    def on_way_down(self, message: Message) -> list[Effect] | None: ...


class Scribe(Rendezvous):
    def turn(self, publication: Publication, hops: int, topic: Topic) -> list[Effect]:
        effects: list[Effect] = []
        self.deliver(publication, hops, effects)
        onward = DownMessage(publication, hops + 1)
        effects += [Send(self.plan.order[child], onward) for child in self._children(topic)]
        return effects

    def on_way_down(self, message: Message) -> list[Effect] | None:
        if not isinstance(message, DownMessage):
            return None
        return self.turn(message.publication, message.hops, self.topics.of(message.publication))

    def _children(self, topic: Topic) -> list[int]:
        """The neighbours that subscribers' ways to the rendezvous point come here from."""
        members = tuple(self.members(topic))
        trees = self.plan.remembered.setdefault(topic, {})
        if members not in trees:
            trees.clear()  # of a topic the last membership is enough
            trees[members] = self._tree(topic, members)
        children: list[int] = trees[members].get(self.position, [])
        return children

    def _tree(self, topic: Topic, members: tuple[int, ...]) -> dict[int, list[int]]:
        plan = self.plan
        root = rendezvous(topic, len(plan.order), plan.seed)
        children: dict[int, list[int]] = {}
        joined = {root}
        for member in members:
            place = member
            while place not in joined:
                joined.add(place)
                above = plan.nearest(plan.peers[place], root)
                children.setdefault(above, []).append(place)
                place = above
        return children


class InvertedScribe(Rendezvous):
    def turn(self, publication: Publication, hops: int, topic: Topic) -> list[Effect]:
        return self._part(publication, hops, tuple(self.members(topic)))

    def on_way_down(self, message: Message) -> list[Effect] | None:
        if not isinstance(message, TargetsMessage):
            return None
        return self._part(message.publication, message.hops, message.targets)

    def _part(self, publication: Publication, hops: int, targets: tuple[int, ...]) -> list[Effect]:
        effects: list[Effect] = []
        if self.position in targets:
            self.deliver(publication, hops, effects)
        onward: dict[int, list[int]] = {}
        for target in targets:
            if target != self.position:
                peer = self.nearer(target)
                if peer is None:
                    effects.append(Note(f"dropped: no link leads nearer to position {target}"))
                else:
                    onward.setdefault(peer, []).append(target)
        effects += [
            Send(self.plan.order[peer], TargetsMessage(publication, hops + 1, tuple(behind)))
            for peer, behind in onward.items()
        ]
        return effects
