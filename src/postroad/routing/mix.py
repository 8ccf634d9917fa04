"""One scheme per part of the content: popular publications over a tree, rare ones direct.

Idea: the content space is cut into parts, each with a scheme of its own. A publication belongs to
the first part whose filter matches it, the last part has all that is left, and every broker knows
the parts, so a publication's content says which scheme carries it wherever it is. A subscription
or an advertisement is known to the schemes of all parts that it can meet. Which cut is best for a
workload, `postroad compare` finds out (the row "best mix").

State: that of every part's router. Messages: those of the parts' schemes, each wrapped with the
number of its part (`mix.…`); a plain publication travels as it is, since its content says the part.
The links are those of all parts together; a part hears only of those that its own plan has.

Publications of one part keep the order that its scheme keeps; between parts there is none, so a
part is best cut along topics, which is what MQTT promises order for. A mix runs on a tree, and has
a store, if every part's scheme does. Schemes that need a plan of their own (rings, Kyra) and those
that do not know beforehand what subscribers will want (multicast groups) cannot be parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cached_property, lru_cache
from typing import Any

from postroad.errors import FilterError, InputError, choice_of
from postroad.filters import EVERYTHING, Filter, covers, intersects, matches, parse
from postroad.model import (
    Advertisement,
    AdvertisementId,
    BrokerId,
    Publication,
    Scalar,
    Subscription,
    SubscriptionId,
    TimeUs,
)
from postroad.overlay import Overlay
from postroad.routing.base import (
    CancelTimer,
    Effect,
    Interests,
    Message,
    Note,
    Plan,
    PublicationMessage,
    Router,
    Send,
    SetTimer,
)
from postroad.routing.pool import FilterPool

UNABLE = ("mix", "beaconvey", "scribe", "iscribe", "kyra", "mbr")
_MEETING_MAX = 1 << 16


@dataclass(frozen=True)
class Part:
    """What has a scheme of its own."""

    scheme: str
    config: Any
    where: Filter


def _everything() -> list[dict[str, Any]]:
    return [{"scheme": "subscription_forwarding"}]


@dataclass(frozen=True)
class Config:
    """`parts` is a list of tables: `scheme`, its `parameters`, and `where`, a filter; the last one
    has no filter, because it takes what is left."""

    parts: list[dict[str, Any]] = field(default_factory=_everything)

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> tuple[Part, ...]:
        if not self.parts:
            raise InputError("parts is empty", remedy="give at least one part, with its scheme")
        last = len(self.parts) - 1
        return tuple(_part(n, table, n == last) for n, table in enumerate(self.parts))


def _part(number: int, table: Any, last: bool) -> Part:
    from postroad.routing import SCHEMES  # the table has this scheme too

    name = f"parts[{number}]"
    if not isinstance(table, Mapping):
        raise InputError(f"{name} is {table!r}", remedy="give a table with a scheme")
    unknown = sorted(table.keys() - {"scheme", "parameters", "where"})
    if unknown:
        raise InputError(
            f"unknown key {name}.{unknown[0]}",
            remedy=choice_of(unknown[0], ("scheme", "parameters", "where"), "known"),
        )
    scheme = table.get("scheme")
    able = [each for each in SCHEMES if each not in UNABLE]
    if scheme not in able:
        raise InputError(f"{name}.scheme is {scheme!r}", remedy=choice_of(scheme, able))
    where = table.get("where")
    if (where is None) != last:
        remedy = "leave it out: the last part takes what is left"
        raise InputError(
            f"{name}.where is {where!r}", remedy=remedy if last else "say which content it has"
        )
    try:
        filter = EVERYTHING if where is None else parse(where)
    except FilterError as error:
        raise InputError(f"{name}.where: {error}", remedy="give a filter") from None
    config = _configured(SCHEMES[scheme].config, table.get("parameters", {}), f"{name}.parameters")
    return Part(scheme, config, filter)


def _configured(config: type[Any], values: Any, name: str) -> Any:
    if not isinstance(values, Mapping):
        raise InputError(f"{name} is {values!r}", remedy="give a table")
    known = {each.name: each.default for each in fields(config)}
    for key, value in values.items():
        if key not in known:
            remedy = choice_of(key, known, "known")
            raise InputError(f"unknown key {name}.{key} = {value!r}", remedy=remedy)
        kind = type(known[key])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise InputError(f"{name}.{key} is {value!r}", remedy=f"give a {kind.__name__}")
    return config(**values)


class Wrapped(Message):
    """A message between the routers of one part; there is a class for each kind."""

    __slots__ = ()
    part: int
    message: Message

    @property
    def publications(self) -> tuple[Publication, ...]:
        return self.message.publications

    @property
    def about(self) -> Filter | None:
        return self.message.about


def _wrapper(kind: type[Message]) -> type[Wrapped]:
    """The message that carries one of this kind; its name on the wire follows from that one's."""
    own: dict[str, Any] = {
        "kind": kind.kind,
        "wire": f"mix.{kind.wire}",
        "carries": kind.carries,
        "forwards": kind.forwards,
        "chatter": kind.chatter,
        "size": property(lambda self: self.message.size),
        "__str__": lambda self: f"{self.message} (part {self.part})",
        "__module__": __name__,
    }
    return make_dataclass(
        f"Mixed{kind.__name__}",
        [("part", int), ("message", kind)],
        bases=(Wrapped,),
        namespace=own,
        frozen=True,
        slots=True,
    )


_WRAPPERS: dict[type[Message], type[Wrapped]] = {}


def messages(kinds: Iterable[type[Message]]) -> tuple[type[Message], ...]:
    """All that routers of a mix send if their parts send these."""
    for kind in kinds:
        if kind not in _WRAPPERS and kind is not PublicationMessage:
            _WRAPPERS[kind] = _wrapper(kind)
    return (PublicationMessage, *_WRAPPERS.values())


def wrap(part: int, message: Message) -> Wrapped:
    return _WRAPPERS[type(message)](part, message)  # type: ignore[call-arg]


@dataclass(frozen=True)
class MixPlan(Plan):
    parts: tuple[Part, ...]
    plans: tuple[Plan, ...]
    meets: Callable[[Filter], tuple[int, ...]]  # the parts that a filter can meet

    @cached_property
    def _links(self) -> list[Sequence[Mapping[BrokerId, TimeUs]]]:
        return [plan.links() for plan in self.plans]

    def part_of(self, attributes: Mapping[str, Scalar]) -> int:
        return next(n for n, part in enumerate(self.parts) if matches(part.where, attributes))

    def router(self, broker: BrokerId) -> Router:
        return Mix(broker, self)

    def of_node(self, node: BrokerId) -> dict[int, tuple[Router, Mapping[BrokerId, TimeUs]]]:
        """By part, the router of a node and its links; one below the brokers has few parts."""
        return {
            n: (plan.router(node), links[node])
            for n, (plan, links) in enumerate(zip(self.plans, self._links, strict=True))
            if node < len(links)
        }

    def links(self) -> Sequence[Mapping[BrokerId, TimeUs]]:
        joined: list[dict[BrokerId, TimeUs]] = [{} for _ in max(self._links, key=len)]
        for links in self._links:
            for own, peers in zip(joined, links, strict=False):
                for peer, took in peers.items():
                    own[peer] = min(took, own.get(peer, took))
        return joined

    def direct_us(self, source: BrokerId, target: BrokerId) -> TimeUs:
        return self.plans[0].direct_us(source, target)

    def introductions(self, source: BrokerId, target: BrokerId) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for plan, links in zip(self.plans, self._links, strict=True):
            if source < len(links) and target in links[source]:
                for kind, count in plan.introductions(source, target).items():
                    counts[kind] = counts.get(kind, 0) + count
        return counts

    def pools(self) -> list[FilterPool]:
        return [pool for plan in self.plans for pool in plan.pools()]


def meeting(parts: Sequence[Part]) -> Callable[[Filter], tuple[int, ...]]:
    """Which parts a filter can meet: not those after one that covers it."""

    @lru_cache(maxsize=_MEETING_MAX)
    def meets(filter: Filter) -> tuple[int, ...]:
        met = []
        for n, part in enumerate(parts):
            if n == len(parts) - 1 or intersects(part.where, filter):
                met.append(n)
                if covers(part.where, filter):
                    break
        return tuple(met)

    return meets


def plan(overlay: Overlay, interests: Interests, config: Config, seed: int = 0) -> MixPlan:
    from postroad.routing import SCHEMES

    parts = config.read()
    meets = meeting(parts)

    def of_part(
        n: int, known: Sequence[tuple[BrokerId, Filter]]
    ) -> Sequence[tuple[BrokerId, Filter]]:
        return [(broker, filter) for broker, filter in known if n in meets(filter)]

    plans = tuple(
        SCHEMES[part.scheme].plan(
            overlay,
            Interests(
                of_part(n, interests.subscriptions),
                of_part(n, interests.advertisements),
                of_part(n, interests.present),
            ),
            part.config,
            seed,
        )
        for n, part in enumerate(parts)
    )
    return MixPlan(parts, plans, meets)


class Mix(Router):
    """A router for each part; what they say to their like is wrapped with the part's number."""

    def __init__(self, broker: BrokerId, plan: MixPlan) -> None:
        super().__init__(broker)
        self.plan = plan
        self.routers: dict[int, Router] = {}
        self.links: dict[int, Mapping[BrokerId, TimeUs]] = {}
        for n, (router, links) in plan.of_node(broker).items():
            self.routers[n], self.links[n] = router, links
        self.parts_of: dict[tuple[str, str], tuple[int, ...]] = {}  # of what clients have said

    def _shared(self) -> dict[int, object]:
        shared: dict[int, object] = {id(self.plan): self.plan}
        for router in self.routers.values():
            shared |= {id(router): router} if router.stateless else router._shared()
        return shared

    def _said(self, part: int, effects: list[Effect]) -> list[Effect]:
        """What a part's router wants done, as this one says it."""
        return [self._effect(part, effect) for effect in effects]

    def _effect(self, part: int, effect: Effect) -> Effect:
        if isinstance(effect, Send):
            if type(effect.message) is PublicationMessage:
                return effect
            return Send(effect.peer, wrap(part, effect.message))
        if isinstance(effect, SetTimer):
            return SetTimer(f"{part} {effect.name}", effect.after_us)
        if isinstance(effect, CancelTimer):
            return CancelTimer(f"{part} {effect.name}")
        return effect

    def _all(self, handle: Callable[[Router], list[Effect]], parts: Iterable[int]) -> list[Effect]:
        return [
            effect
            for n in parts
            if n in self.routers
            for effect in self._said(n, handle(self.routers[n]))
        ]

    def on_start(self, now: TimeUs) -> list[Effect]:
        return self._all(lambda router: router.on_start(now), self.routers)

    def on_link_up(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        return self._all(lambda router: router.on_link_up(peer, now), self._over(peer))

    def on_link_down(self, peer: BrokerId, now: TimeUs) -> list[Effect]:
        return self._all(lambda router: router.on_link_down(peer, now), self._over(peer))

    def _over(self, peer: BrokerId) -> list[int]:
        """The parts that have this link."""
        return [n for n, links in self.links.items() if peer in links]

    def on_subscribe(self, subscription: Subscription, now: TimeUs) -> list[Effect]:
        met = self.parts_of["s", subscription.id] = self.plan.meets(subscription.filter)
        return self._all(lambda router: router.on_subscribe(subscription, now), met)

    def on_unsubscribe(self, subscription_id: SubscriptionId, now: TimeUs) -> list[Effect]:
        met = self.parts_of.pop(("s", subscription_id), ())
        return self._all(lambda router: router.on_unsubscribe(subscription_id, now), met)

    def on_advertise(self, advertisement: Advertisement, now: TimeUs) -> list[Effect]:
        met = self.parts_of["a", advertisement.id] = self.plan.meets(advertisement.filter)
        return self._all(lambda router: router.on_advertise(advertisement, now), met)

    def on_unadvertise(self, advertisement_id: AdvertisementId, now: TimeUs) -> list[Effect]:
        met = self.parts_of.pop(("a", advertisement_id), ())
        return self._all(lambda router: router.on_unadvertise(advertisement_id, now), met)

    def on_timer(self, name: str, now: TimeUs) -> list[Effect]:
        part, _, own = name.partition(" ")
        return self._said(int(part), self.routers[int(part)].on_timer(own, now))

    def on_publish(self, publication: Publication, now: TimeUs) -> list[Effect]:
        part = self.plan.part_of(publication.attributes)
        router = self.routers[part]
        before = router.matches_count
        effects = router.on_publish(publication, now)
        self.matches_count += router.matches_count - before
        return self._said(part, effects)

    def on_message(self, message: Message, sender: BrokerId, now: TimeUs) -> list[Effect]:
        if isinstance(message, Wrapped):
            part, inner = message.part, message.message
        elif isinstance(message, PublicationMessage):
            part, inner = self.plan.part_of(message.publication.attributes), message
        else:
            return [Note(f"dropped: no {message.kind} message in this scheme")]
        router = self.routers.get(part)
        if router is None:
            return [Note(f"dropped: no part {part} here")]
        before = router.matches_count
        effects = router.on_message(inner, sender, now)
        self.matches_count += router.matches_count - before
        return self._said(part, effects)

    def table_entries(self) -> int:
        return sum([router.table_entries() for router in self.routers.values()])

    def idle(self) -> bool:
        return all(router.idle() for router in self.routers.values())

    def holds(self, publication: Publication) -> bool:
        return any(router.holds(publication) for router in self.routers.values())

    def check(self) -> None:
        for router in self.routers.values():
            router.check()
